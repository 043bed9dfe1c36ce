/* operands.c: helpers for the functions that record operations: checks of arguments, common element
 * types, shapes and devices, and numbers as operands.
 *
 * A recording function checks its arguments at once, converts and broadcasts operands, and records
 * one node. Intermediate nodes are released in the same way on success and on failure. A number
 * becomes a CONST node of the type in which the operation computes, so it never widens an array.
 */
#include "operands.h"

#include "handle.h"
#include "primitives.h"

#include <cflux/device.h>
#include <string.h>

fx_status fxi_check_array(const char *op, const fx_array *x)
{
    if (fxi_usable(fxi_here(), x))
        return FX_OK;
    const fx_status status = fxi_operand_status(op, x);
    return status != FX_OK ? status
                           : fx_fail(FX_STATUS_STATE, op,
                                     "an argument is still pending in another thread; call fx_eval "
                                     "in that thread first");
}

fx_status fxi_resolve(const char *op, const fxi_arg *args, int n, fxi_operand *out)
{
    const fxi_context *c = fxi_begin();
    for (int i = 0; i < n; i++)
        out[i] = (fxi_operand){.arg = args[i], .literal = args[i].kind != FXI_ARG_ARRAY};
    for (int i = 0; i < n; i++) {
        if (out[i].literal)
            continue;
        fx_array *x = args[i].u.array;
        const fx_status s = fxi_usable(c, x) ? FX_OK : fxi_check_array(op, x);
        if (s != FX_OK)
            return s;
        out[i].node = x->node;
        if (x->node->weak) {
            out[i].literal = true;
            out[i].arg = fxi_arg_real(x->node->attr.literal.number);
        }
    }
    return FX_OK;
}

/* Can the integer type represent this value? */
static bool holds(fx_dtype type, int64_t value)
{
    return type == FX_DTYPE_BOOL  ? value == 0 || value == 1
           : type == FX_DTYPE_U8  ? value >= 0 && value <= UINT8_MAX
           : type == FX_DTYPE_I32 ? value >= INT32_MIN && value <= INT32_MAX
                                  : true;
}

bool fxi_any_beyond(const fxi_operand *o, int first, int n, fx_dtype type)
{
    for (int i = first; i < n; i++)
        if (o[i].literal && !fxi_is_float((int)type) && !holds(type, o[i].arg.u.integer))
            return true;
    return false;
}

fx_dtype fxi_common_type(const fxi_operand *o, int first, int n)
{
    int type = -1;
    bool real = false;
    for (int i = first; i < n; i++) {
        if (o[i].literal)
            real |= o[i].arg.kind == FXI_ARG_REAL;
        else
            type = type < 0 ? o[i].node->dtype
                            : (int)fx_dtype_promote((fx_dtype)type, (fx_dtype)o[i].node->dtype);
    }
    if (type < 0)
        return FX_DTYPE_F32;
    if (real && !fxi_is_float(type))
        return FX_DTYPE_F32;
    return (fx_dtype)type;
}

static void replace(fxi_operand *o, fxi_node *n)
{
    if (o->made && o->node)
        fxi_node_release(o->node);
    o->node = n;
    o->made = true;
}

fxi_node *fxi_literal_node(const fxi_arg *number, fx_dtype dtype)
{
    const bool real = number->kind == FXI_ARG_REAL;
    const fx_attr a = {.literal = {.number = real ? number->u.real : (double)number->u.integer,
                                   .integer = real ? 0 : number->u.integer,
                                   .is_integer = !real}};
    return fxi_node_new(fxi_here(), FX_OP_CONST, dtype, 0, NULL, NULL, &a, 0, NULL);
}

bool fxi_operand_literal(fxi_operand *o, fx_dtype dtype)
{
    replace(o, fxi_literal_node(&o->arg, dtype));
    return o->node != NULL;
}

/* Converts an operand, creating the number if it is one. */
bool fxi_operand_convert(fxi_operand *o, fx_dtype dtype)
{
    if (!o->node)
        return fxi_operand_literal(o, dtype);
    if (o->node->dtype == dtype)
        return true;
    replace(o, fxi_node_new(fxi_here(), FX_OP_CAST, dtype, o->node->ndim, o->node->shape,
                            o->node->device, NULL, 1, &o->node));
    return o->node != NULL;
}

/* The caller has checked that the operand broadcasts. */
bool fxi_operand_stretch(fxi_operand *o, int ndim, const int64_t *shape)
{
    fxi_node *n = o->node;
    if (n->ndim == 0 ||
        (n->ndim == ndim && memcmp(n->shape, shape, (size_t)ndim * sizeof *shape) == 0))
        return true;
    if (n->ndim < ndim) {
        int64_t longer[FX_MAX_DIMS];
        for (int i = 0; i < ndim; i++)
            longer[i] = i < n->ndim ? n->shape[i] : 1;
        replace(o, fxi_node_new(fxi_here(), FX_OP_RESHAPE, (fx_dtype)n->dtype, ndim, longer,
                                n->device, NULL, 1, &n));
        n = o->node;
        if (!n)
            return false;
        if (memcmp(longer, shape, (size_t)ndim * sizeof *shape) == 0)
            return true;
    }
    replace(o, fxi_node_new(fxi_here(), FX_OP_EXPAND, (fx_dtype)n->dtype, ndim, shape, n->device,
                            NULL, 1, &n));
    return o->node != NULL;
}

fx_status fxi_add_device(const char *op, const fxi_node *operand, fx_device **io)
{
    fx_device *own = operand ? operand->device : NULL;
    if (own && *io && own != *io)
        return fx_fail(FX_STATUS_DEVICE, op,
                       "arrays on two devices: %s and %s; move one with fx_to", fx_device_name(*io),
                       fx_device_name(own));
    *io = own ? own : *io;
    return FX_OK;
}

fx_status fxi_common_device(const char *op, const fxi_operand *o, int n, fx_device **out)
{
    fx_status s = FX_OK;
    *out = NULL;
    for (int i = 0; i < n && s == FX_OK; i++)
        s = fxi_add_device(op, o[i].node, out);
    return s;
}

fx_status fxi_common_shape(const char *op, const fxi_operand *o, int n, int *out_ndim, int64_t *out)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    int nd = 0;
    for (int i = 0; i < n; i++)
        if (o[i].node && o[i].node->ndim > nd)
            nd = o[i].node->ndim;
    *out_ndim = nd;
    for (int k = 0; k < nd; k++) {
        const fxi_node *from = NULL;
        out[k] = 1;
        for (int i = 0; i < n; i++) {
            const fxi_node *x = o[i].node;
            if (!x || k >= x->ndim || x->shape[k] == 1)
                continue;
            if (from && x->shape[k] != out[k])
                return fx_fail(FX_STATUS_SHAPE, op, "sizes do not broadcast: %s and %s",
                               fxi_shape_text(from->ndim, from->shape, a),
                               fxi_shape_text(x->ndim, x->shape, b));
            out[k] = x->shape[k];
            from = x;
        }
    }
    return FX_OK;
}

fx_status fxi_check_axis(const char *op, const fx_array *x, int axis)
{
    char t[FXI_SHAPE_TEXT];
    if (axis >= 0 && axis < fx_ndims(x))
        return FX_OK;
    const fx_status status = fxi_check_array(op, x);
    const int n = fx_ndims(x);
    return status != FX_OK
               ? status
               : fx_fail(FX_STATUS_ARGUMENT, op, "there is no axis %d: the array has %d %s (%s)",
                         axis, n, n == 1 ? "axis" : "axes", fxi_shape_text(n, x->node->shape, t));
}

fx_status fxi_same_device(const char *op, const fx_array *a, const fx_array *b, fx_device **out)
{
    *out = a->node->device;
    return fxi_add_device(op, b->node, out);
}

fx_array *fxi_node_over(fx_op op, fx_array *x, fx_dtype dtype, int ndim, const int64_t *shape,
                        const fx_attr *attr)
{
    return fxi_array_take(
        fxi_node_new(fxi_here(), op, dtype, ndim, shape, x->node->device, attr, 1, &x->node));
}
