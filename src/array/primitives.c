/* primitives.c: the builders of elementwise and movement primitives: the shape and type rule of
 * each op.
 *
 * A builder checks its arguments at once, converts and broadcasts operands, and records one node.
 * Nodes made on the way are released alike on every way out. A number becomes a CONST node of the
 * type the operation computes in: it never widens an array.
 */
#include "context.h"
#include "primitives.h"

#include <cflux/device.h>
#include <string.h>

/* ---- operands -------------------------------------------------------------------------------- */

typedef struct operand {
    fxi_node *node; /* NULL for a number not yet made */
    fxi_arg arg;
    bool literal;
    bool made; /* here: the reference is ours; else an argument holds it */
} operand;

static void operands_release(operand *o, int n)
{
    for (int i = 0; i < n; i++)
        if (o[i].made && o[i].node)
            fxi_node_release(o[i].node);
}

fx_status fxi_check_array(const char *op, const fx_array *x)
{
    if (!x)
        return fx_fail(FX_STATUS_ARGUMENT, op, "an argument is NULL");
    if (x->base.type != &fxi_array_type)
        return fx_fail(FX_STATUS_ARGUMENT, op, "takes arrays, got %s",
                       x->base.type ? x->base.type->name : "nothing");
    if (x->status != FX_OK)
        return x->status;
    if (!fxi_node_usable(fxi_here(), x->node))
        return fx_fail(FX_STATUS_STATE, op,
                       "an argument is still pending in another thread; fx_eval it there first");
    return FX_OK;
}

fxi_context *fxi_begin(void)
{
    fxi_context *c = fxi_here();
    if (c->created > FXI_PENDING_LIMIT && !c->busy)
        fxi_flush(c);
    return c;
}

static inline bool usable(const fxi_context *c, const fx_array *x)
{
    return x && x->base.type == &fxi_array_type && x->status == FX_OK &&
           fxi_node_usable(c, x->node);
}

static fx_status resolve(const char *op, const fxi_arg *args, int n, operand *out)
{
    const fxi_context *c = fxi_begin();
    for (int i = 0; i < n; i++)
        out[i] = (operand){.arg = args[i], .literal = args[i].kind != FXI_ARG_ARRAY};
    for (int i = 0; i < n; i++) {
        if (out[i].literal)
            continue;
        fx_array *x = args[i].u.array;
        const fx_status s = usable(c, x) ? FX_OK : fxi_check_array(op, x);
        if (s != FX_OK)
            return s;
        out[i].node = x->node;
        if (x->node->weak) {
            out[i].literal = true;
            out[i].arg = fxi_arg_real(x->node->attr.number);
        }
    }
    return FX_OK;
}

/* The element type in which operands from `first` on meet: Julia's promotion, literals weak. */
static fx_dtype common_type(const operand *o, int first, int n)
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

static void replace(operand *o, fxi_node *n)
{
    if (o->made && o->node)
        fxi_node_release(o->node);
    o->node = n;
    o->made = true;
}

static bool make_literal(operand *o, fx_dtype dtype)
{
    const bool real = o->arg.kind == FXI_ARG_REAL;
    fx_attr a = {.i = {0}};
    a.number = real ? o->arg.u.real : (double)o->arg.u.integer;
    a.i[1] = real ? 0 : o->arg.u.integer;
    a.i[2] = !real;
    replace(o, fxi_node_new(fxi_here(), FX_OP_CONST, dtype, 0, NULL, NULL, &a, 0, NULL));
    return o->node != NULL;
}

/* Converts an operand, creating the number if it is one. */
static bool convert(operand *o, fx_dtype dtype)
{
    if (!o->node)
        return make_literal(o, dtype);
    if (o->node->dtype == dtype)
        return true;
    replace(o, fxi_node_new(fxi_here(), FX_OP_CAST, dtype, o->node->ndim, o->node->shape,
                            o->node->device, NULL, 1, &o->node));
    return o->node != NULL;
}

/* Views n with `ndim` axes (1s behind) and then as `shape`. Broadcastability has been checked. */
static bool stretch(operand *o, int ndim, const int64_t *shape)
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

static fx_status common_device(const char *op, const operand *o, int n, fx_device **out)
{
    fx_device *d = NULL;
    for (int i = 0; i < n; i++) {
        fx_device *own = o[i].node ? o[i].node->device : NULL;
        if (own && d && own != d)
            return fx_fail(FX_STATUS_DEVICE, op,
                           "arrays on two devices: %s and %s; move one with fx_to",
                           fx_device_name(d), fx_device_name(own));
        d = own ? own : d;
    }
    *out = d;
    return FX_OK;
}

/* The node whose shape all others have, numbers left out; NULL when they differ. */
static const fxi_node *all_alike(const operand *o, int n)
{
    const fxi_node *first = NULL;
    for (int i = 0; i < n; i++) {
        if (!o[i].node || o[i].node->ndim == 0)
            continue;
        if (first && !fxi_same_shape(first, o[i].node))
            return NULL;
        first = o[i].node;
    }
    return first;
}

/* Julia's broadcasting: axis k of every operand has the same size or 1. */
static fx_status common_shape(const char *op, const operand *o, int n, int *out_ndim, int64_t *out)
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

/* Records an elementwise node over operands that are resolved: operands from `first` on become
 * `type`; the result has type `result`. Releases the operands. */
static fx_array *finish(fx_op op, const char *name, operand *o, int first, int n, fx_dtype type,
                        fx_dtype result)
{
    int ndim = 0;
    int64_t mixed[FX_MAX_DIMS];
    fx_device *device = NULL;
    fxi_node *in[3];
    const fxi_node *alike = all_alike(o, n);
    const int64_t *shape = alike ? alike->shape : mixed;
    fx_status s = FX_OK;
    if (alike)
        ndim = alike->ndim;
    else
        s = common_shape(name, o, n, &ndim, mixed);
    if (s == FX_OK)
        s = common_device(name, o, n, &device);
    for (int i = 0; i < n && s == FX_OK; i++) {
        const fx_dtype want = i < first ? FX_DTYPE_BOOL : type;
        if (!convert(&o[i], want) || !(alike || stretch(&o[i], ndim, shape)))
            s = FX_STATUS_MEMORY;
        in[i] = o[i].node;
    }
    fxi_node *node =
        s == FX_OK ? fxi_node_new(fxi_here(), op, result, ndim, shape, device, NULL, n, in) : NULL;
    operands_release(o, n);
    return s == FX_OK ? fxi_array_take(node) : fx_error_array(s);
}

static fx_array *give_up(operand *o, int n, fx_status s)
{
    operands_release(o, n);
    return fx_error_array(s);
}

/* ---- elementwise, two arguments -------------------------------------------------------------- */

enum type_rule { KEEP, COUNT, REAL, COMPARE };

/* The usual case needs no rules: floating-point operands of one type, shape and device, or one of
 * them a number. NULL: not that. */
static fx_array *plain_binary(fx_op op, enum type_rule rule, const fxi_arg *args)
{
    fxi_context *c = fxi_begin();
    fxi_node *in[2] = {NULL, NULL}, *main = NULL;
    for (int i = 0; i < 2; i++) {
        if (args[i].kind != FXI_ARG_ARRAY)
            continue;
        const fx_array *x = args[i].u.array;
        if (!usable(c, x))
            return NULL;
        in[i] = x->node;
        main = main && main->ndim > 0 ? main : in[i];
    }
    if (!main || main->weak || !fxi_is_float(main->dtype))
        return NULL;
    for (int i = 0; i < 2; i++)
        if (in[i] &&
            (in[i]->dtype != main->dtype || (in[i]->device && in[i]->device != main->device) ||
             (in[i]->ndim > 0 && !fxi_same_shape(in[i], main))))
            return NULL;
    operand number = {.arg = args[in[0] ? 1 : 0]};
    if (!in[0] || !in[1]) {
        if (!make_literal(&number, (fx_dtype)main->dtype))
            return fx_error_array(FX_STATUS_MEMORY);
        in[in[0] ? 1 : 0] = number.node;
    }
    fxi_node *node = fxi_node_new(c, op, rule == COMPARE ? FX_DTYPE_BOOL : (fx_dtype)main->dtype,
                                  main->ndim, main->shape, main->device, NULL, 2, in);
    operands_release(&number, 1);
    return fxi_array_take(node);
}

static fx_array *binary(fx_op op, enum type_rule rule, fxi_arg a, fxi_arg b)
{
    const char *name = fxi_ops[op].name;
    operand o[2];
    fx_array *plain = plain_binary(op, rule, (fxi_arg[]){a, b});
    if (plain)
        return plain;
    const fx_status s = resolve(name, (fxi_arg[]){a, b}, 2, o);
    if (s != FX_OK)
        return give_up(o, 2, s);
    fx_dtype type = common_type(o, 0, 2);
    if (rule == COUNT && type == FX_DTYPE_BOOL)
        type = FX_DTYPE_I64; /* Julia: true + true == 2 */
    if (rule == REAL && !fxi_is_float((int)type))
        type = FX_DTYPE_F32;
    return finish(op, name, o, 0, 2, type, rule == COMPARE ? FX_DTYPE_BOOL : type);
}

fx_array *fxi_add(fxi_arg a, fxi_arg b)
{
    return binary(FX_OP_ADD, COUNT, a, b);
}
fx_array *fxi_sub(fxi_arg a, fxi_arg b)
{
    return binary(FX_OP_SUB, COUNT, a, b);
}
fx_array *fxi_mul(fxi_arg a, fxi_arg b)
{
    return binary(FX_OP_MUL, KEEP, a, b);
}
fx_array *fxi_div(fxi_arg a, fxi_arg b)
{
    return binary(FX_OP_DIV, REAL, a, b);
}
fx_array *fxi_fld(fxi_arg a, fxi_arg b)
{
    return binary(FX_OP_FLD, COUNT, a, b);
}
fx_array *fxi_max(fxi_arg a, fxi_arg b)
{
    return binary(FX_OP_MAX, KEEP, a, b);
}
fx_array *fxi_min(fxi_arg a, fxi_arg b)
{
    return binary(FX_OP_MIN, KEEP, a, b);
}
fx_array *fxi_atan2(fxi_arg a, fxi_arg b)
{
    return binary(FX_OP_ATAN2, REAL, a, b);
}
fx_array *fxi_lt(fxi_arg a, fxi_arg b)
{
    return binary(FX_OP_LT, COMPARE, a, b);
}
fx_array *fxi_le(fxi_arg a, fxi_arg b)
{
    return binary(FX_OP_LE, COMPARE, a, b);
}
fx_array *fxi_eq(fxi_arg a, fxi_arg b)
{
    return binary(FX_OP_EQ, COMPARE, a, b);
}
fx_array *fxi_ne(fxi_arg a, fxi_arg b)
{
    return binary(FX_OP_NE, COMPARE, a, b);
}

/* x^n with an integer literal n: the exponent is structure, exact for every type. */
static fx_array *integer_power(fx_array *x, int64_t exponent)
{
    const fx_status s = fxi_check_array("pow", x);
    if (s != FX_OK)
        return fx_error_array(s);
    fxi_context *c = fxi_begin();
    if (x->node->dtype == FX_DTYPE_BOOL)
        x = fx_cast(x, FX_DTYPE_I64);
    if (exponent < 0 && !fxi_is_float(x->node->dtype))
        x = fx_cast(x, FX_DTYPE_F32);
    if (fx_is_error(x))
        return x;
    const fx_attr a = {.i = {exponent}};
    const fxi_node *n = x->node;
    return fxi_array_take(fxi_node_new(c, FX_OP_POWI, (fx_dtype)n->dtype, n->ndim, n->shape,
                                       n->device, &a, 1, &x->node));
}

fx_array *fxi_pow(fxi_arg a, fxi_arg b)
{
    if (a.kind == FXI_ARG_ARRAY && b.kind == FXI_ARG_INT)
        return integer_power(a.u.array, b.u.integer);
    return binary(FX_OP_POW, COUNT, a, b);
}

fx_array *fxi_where(fxi_arg c, fxi_arg a, fxi_arg b)
{
    operand o[3];
    const fx_status s = resolve("where", (fxi_arg[]){c, a, b}, 3, o);
    if (s != FX_OK)
        return give_up(o, 3, s);
    const fx_dtype type = common_type(o, 1, 3);
    return finish(FX_OP_SELECT, "where", o, 1, 3, type, type);
}

/* ---- elementwise, one argument --------------------------------------------------------------- */

static fx_array *unary(fx_op op, enum type_rule rule, fx_array *x)
{
    const char *name = fxi_ops[op].name;
    operand o[1];
    const fx_status s = resolve(name, (fxi_arg[]){fxi_arg_array(x)}, 1, o);
    if (s != FX_OK)
        return give_up(o, 1, s);
    fx_dtype type = common_type(o, 0, 1);
    if (rule == COUNT && type == FX_DTYPE_BOOL)
        type = FX_DTYPE_I64;
    if (rule == REAL && !fxi_is_float((int)type))
        type = FX_DTYPE_F32;
    return finish(op, name, o, 0, 1, type, type);
}

#define UNARY(name, NAME, rule)                                                                    \
    fx_array *fx_##name(fx_array *x)                                                               \
    {                                                                                              \
        return unary(FX_OP_##NAME, rule, x);                                                       \
    }
UNARY(neg, NEG, COUNT)
UNARY(exp, EXP, REAL)
UNARY(expm1, EXPM1, REAL)
UNARY(log, LOG, REAL)
UNARY(log1p, LOG1P, REAL)
UNARY(sqrt, SQRT, REAL)
UNARY(sin, SIN, REAL)
UNARY(cos, COS, REAL)
UNARY(tanh, TANH, REAL)
UNARY(sigmoid, SIGMOID, REAL)
UNARY(erf, ERF, REAL)
UNARY(relu, RELU, KEEP)

fx_array *fx_floor(fx_array *x)
{
    if (!fx_is_error(x) && fx_is_array(x) && !fxi_is_float(x->node->dtype))
        return x;
    return unary(FX_OP_FLOOR, REAL, x);
}

/* A node over one array, of the given shape. */
static fx_array *movement(fx_op op, fx_array *x, int ndim, const int64_t *shape,
                          const fx_attr *attr)
{
    fxi_node *n = x->node;
    return fxi_array_take(
        fxi_node_new(fxi_begin(), op, (fx_dtype)n->dtype, ndim, shape, n->device, attr, 1, &n));
}

fx_array *fx_cast(fx_array *x, fx_dtype dtype)
{
    const fx_status s = fxi_check_array("cast", x);
    if (s != FX_OK)
        return fx_error_array(s);
    if ((unsigned)dtype >= FX_DTYPE_COUNT) {
        fx_fail(FX_STATUS_ARGUMENT, "cast", "%d is not an element type", (int)dtype);
        return fx_error_array(FX_STATUS_ARGUMENT);
    }
    fxi_node *n = x->node;
    if (n->dtype == dtype)
        return x;
    return fxi_array_take(
        fxi_node_new(fxi_begin(), FX_OP_CAST, dtype, n->ndim, n->shape, n->device, NULL, 1, &n));
}

fx_array *fxi_transfer(fx_device *device, fx_array *x)
{
    fxi_node *n = x->node;
    return fxi_array_take(fxi_node_new(fxi_begin(), FX_OP_TRANSFER, (fx_dtype)n->dtype, n->ndim,
                                       n->shape, device, NULL, 1, &n));
}

fx_array *fx_stop_gradient(fx_array *x)
{
    const fx_status s = fxi_check_array("stop_gradient", x);
    return s == FX_OK ? movement(FX_OP_STOP, x, x->node->ndim, x->node->shape, NULL)
                      : fx_error_array(s);
}

/* ---- movement -------------------------------------------------------------------------------- */

static fx_array *fail_array(fx_status s)
{
    return fx_error_array(s);
}

static fx_status check_rank(const char *op, int ndims)
{
    if (ndims < 0 || ndims > FX_MAX_DIMS)
        return fx_fail(FX_STATUS_ARGUMENT, op, "%d dimensions; at most %d are possible", ndims,
                       FX_MAX_DIMS);
    return FX_OK;
}

fx_status fxi_check_axis(const char *op, const fx_array *x, int axis)
{
    if (axis < 0 || axis >= x->node->ndim)
        return fx_fail(FX_STATUS_ARGUMENT, op, "axis %d of an array with %d axes", axis,
                       x->node->ndim);
    return FX_OK;
}

/* Fills in the one size that is −1; false when the lengths do not match. */
static bool infer(int64_t length, int ndims, const int64_t *dims, int64_t *shape)
{
    int64_t known = 1;
    int open = -1;
    for (int i = 0; i < ndims; i++) {
        shape[i] = dims[i];
        if (dims[i] == -1 && open >= 0)
            return false;
        if (dims[i] == -1)
            open = i;
        else if (dims[i] < 0 || !fxi_mul_i64(known, dims[i], &known))
            return false;
    }
    if (open < 0)
        return known == length;
    if (known == 0 || length % known != 0)
        return false;
    shape[open] = length / known;
    return true;
}

fx_array *fxi_reshape(fx_array *x, int ndims, const int64_t *dims)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    fx_status s = fxi_check_array("reshape", x);
    if (s == FX_OK)
        s = check_rank("reshape", ndims);
    if (s != FX_OK)
        return fail_array(s);
    const fxi_node *n = x->node;
    int64_t shape[FX_MAX_DIMS];
    if (!infer(fxi_length(n->ndim, n->shape), ndims, dims, shape)) {
        fx_fail(FX_STATUS_SHAPE, "reshape", "%s does not fit into %s",
                fxi_shape_text(n->ndim, n->shape, a), fxi_shape_text(ndims, dims, b));
        return fail_array(FX_STATUS_SHAPE);
    }
    if (ndims == n->ndim && memcmp(shape, n->shape, (size_t)ndims * sizeof *shape) == 0)
        return x;
    return movement(FX_OP_RESHAPE, x, ndims, shape, NULL);
}

fx_array *fxi_permute(fx_array *x, int ndims, const int64_t *perm)
{
    const fx_status s = fxi_check_array("permute", x);
    if (s != FX_OK)
        return fail_array(s);
    const fxi_node *n = x->node;
    fx_attr a = {.i = {0}};
    int64_t shape[FX_MAX_DIMS];
    unsigned seen = 0;
    bool same = true;
    for (int i = 0; i < ndims && i < FX_MAX_DIMS; i++) {
        if (perm[i] < 0 || perm[i] >= n->ndim)
            break;
        seen |= 1u << perm[i];
        a.i[i] = perm[i];
        shape[i] = n->shape[perm[i]];
        same &= perm[i] == i;
    }
    if (ndims != n->ndim || seen != (1u << n->ndim) - 1) {
        fx_fail(FX_STATUS_ARGUMENT, "permute", "needs each of the axes 0 … %d once", n->ndim - 1);
        return fail_array(FX_STATUS_ARGUMENT);
    }
    return same ? x : movement(FX_OP_PERMUTE, x, ndims, shape, &a);
}

fx_array *fxi_expand(fx_array *x, int ndims, const int64_t *dims)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    fx_status s = fxi_check_array("expand", x);
    if (s == FX_OK)
        s = check_rank("expand", ndims);
    if (s != FX_OK)
        return fail_array(s);
    const fxi_node *n = x->node;
    int64_t longer[FX_MAX_DIMS];
    bool fits = ndims >= n->ndim, same = ndims == n->ndim;
    for (int i = 0; i < ndims && fits; i++) {
        longer[i] = i < n->ndim ? n->shape[i] : 1;
        fits = dims[i] >= 0 && (longer[i] == dims[i] || longer[i] == 1);
        same &= longer[i] == dims[i];
    }
    if (!fits) {
        fx_fail(FX_STATUS_SHAPE, "expand", "%s does not broadcast to %s",
                fxi_shape_text(n->ndim, n->shape, a), fxi_shape_text(ndims, dims, b));
        return fail_array(FX_STATUS_SHAPE);
    }
    if (same)
        return x;
    fx_array *r = ndims == n->ndim ? x : movement(FX_OP_RESHAPE, x, ndims, longer, NULL);
    if (fx_is_error(r) || memcmp(longer, dims, (size_t)ndims * sizeof *dims) == 0)
        return r;
    return movement(FX_OP_EXPAND, r, ndims, dims, NULL);
}

fx_array *fx_slice_step(fx_array *x, int axis, int64_t start, int64_t step, int64_t n)
{
    char t[FXI_SHAPE_TEXT];
    fx_status s = fxi_check_array("slice", x);
    if (s == FX_OK)
        s = fxi_check_axis("slice", x, axis);
    if (s != FX_OK)
        return fail_array(s);
    const int64_t size = x->node->shape[axis];
    int64_t last = 0, reach = 0;
    const bool overflow = __builtin_mul_overflow(step, n > 0 ? n - 1 : 0, &reach) ||
                          __builtin_add_overflow(start, reach, &last);
    if (n < 0 || overflow || (n > 0 && (start < 0 || start >= size || last < 0 || last >= size))) {
        fx_fail(FX_STATUS_ARGUMENT, "slice",
                "%lld elements from %lld in steps of %lld leave axis %d of %s", (long long)n,
                (long long)start, (long long)step, axis,
                fxi_shape_text(x->node->ndim, x->node->shape, t));
        return fail_array(FX_STATUS_ARGUMENT);
    }
    if (start == 0 && step == 1 && n == size)
        return x;
    int64_t shape[FX_MAX_DIMS];
    memcpy(shape, x->node->shape, sizeof shape);
    shape[axis] = n;
    const fx_attr a = {.i = {axis, n ? start : 0, n ? step : 1}};
    return movement(FX_OP_SLICE, x, x->node->ndim, shape, &a);
}

fx_array *fx_slice(fx_array *x, int axis, int64_t start, int64_t stop)
{
    if (!fx_is_error(x) && fx_is_array(x) && stop < start) {
        fx_fail(FX_STATUS_ARGUMENT, "slice", "stop %lld lies before start %lld", (long long)stop,
                (long long)start);
        return fail_array(FX_STATUS_ARGUMENT);
    }
    return fx_slice_step(x, axis, start, 1, stop - start);
}

/* The literal that fills a padding, in x's type. */
static bool fill_literal(operand *v, double value, fx_dtype dtype)
{
    const bool whole = value >= -0x1p53 && value <= 0x1p53 && value == (double)(int64_t)value;
    v->arg = whole && !fxi_is_float((int)dtype) ? fxi_arg_int((int64_t)value) : fxi_arg_real(value);
    return make_literal(v, dtype);
}

/* The counts left after cropping; FX_STATUS_ARGUMENT when they make no size. */
static fx_status pad_counts(const fx_array *x, int axis, int64_t before, int64_t after,
                            int64_t *out_size)
{
    char t[FXI_SHAPE_TEXT];
    const int64_t size = x->node->shape[axis];
    int64_t total;
    const bool ok = before >= -size && after >= -size &&
                    !__builtin_add_overflow(size, before, &total) &&
                    !__builtin_add_overflow(total, after, &total) && total >= 0;
    if (!ok)
        return fx_fail(FX_STATUS_ARGUMENT, "pad", "%lld before and %lld after axis %d of %s",
                       (long long)before, (long long)after, axis,
                       fxi_shape_text(x->node->ndim, x->node->shape, t));
    *out_size = total;
    return FX_OK;
}

fx_array *fx_pad(fx_array *x, int axis, int64_t before, int64_t after, double value)
{
    int64_t size = 0;
    fx_status s = fxi_check_array("pad", x);
    if (s == FX_OK)
        s = fxi_check_axis("pad", x, axis);
    if (s == FX_OK)
        s = pad_counts(x, axis, before, after, &size);
    if (s != FX_OK)
        return fail_array(s);
    int64_t shape[FX_MAX_DIMS];
    memcpy(shape, x->node->shape, sizeof shape);
    shape[axis] = size;
    s = fxi_check_dims("pad", (fx_dtype)x->node->dtype, x->node->ndim, shape);
    if (s != FX_OK)
        return fail_array(s);
    if (before < 0 || after < 0) {
        const int64_t first = before < 0 ? -before : 0,
                      last = x->node->shape[axis] + (after < 0 ? after : 0);
        x = last >= first ? fx_slice(x, axis, first, last) : fx_slice(x, axis, 0, 0);
        before = before < 0 ? 0 : before;
        after = after < 0 ? 0 : after;
    }
    if (fx_is_error(x) || (before == 0 && after == 0))
        return x;
    fxi_context *c = fxi_begin();
    const fxi_node *n = x->node;
    operand v = {0};
    if (!fill_literal(&v, value, (fx_dtype)n->dtype))
        return fail_array(FX_STATUS_MEMORY);
    const fx_attr a = {.i = {axis, before, size - n->shape[axis] - before}};
    fxi_node *in[] = {x->node, v.node};
    fxi_node *r =
        fxi_node_new(c, FX_OP_PAD, (fx_dtype)n->dtype, n->ndim, shape, n->device, &a, 2, in);
    operands_release(&v, 1);
    return fxi_array_take(r);
}

/* Checks that the parts of a concatenation agree in all sizes but `axis`, whose sum is the
 * result's. */
static fx_status concat_shape(int axis, int n, fx_array *const *x, int64_t *shape, fx_dtype *type,
                              fx_device **device)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    if (n < 1)
        return fx_fail(FX_STATUS_ARGUMENT, "concat", "needs at least one array");
    for (int i = 0; i < n; i++) {
        fx_status s = fxi_check_array("concat", x[i]);
        if (s == FX_OK)
            s = fxi_check_axis("concat", x[i], axis);
        if (s != FX_OK)
            return s;
        const fxi_node *p = x[i]->node, *first = x[0]->node;
        bool fits = p->ndim == first->ndim;
        for (int k = 0; k < p->ndim && fits; k++)
            fits = k == axis || p->shape[k] == first->shape[k];
        if (!fits)
            return fx_fail(FX_STATUS_SHAPE, "concat", "sizes differ beside axis %d: %s and %s",
                           axis, fxi_shape_text(first->ndim, first->shape, a),
                           fxi_shape_text(p->ndim, p->shape, b));
        if (i == 0)
            memcpy(shape, first->shape, FX_MAX_DIMS * sizeof *shape);
        else
            shape[axis] += p->shape[axis];
        *type = i == 0 ? (fx_dtype)p->dtype : fx_dtype_promote(*type, (fx_dtype)p->dtype);
        const operand pair[] = {{.node = x[0]->node}, {.node = x[i]->node}};
        s = common_device("concat", pair, 2, device);
        if (s != FX_OK)
            return s;
    }
    return FX_OK;
}

fx_array *fxi_concat(int axis, int n, fx_array *const *x)
{
    int64_t shape[FX_MAX_DIMS];
    fx_dtype type = FX_DTYPE_F32;
    fx_device *device = NULL;
    const fx_status s = concat_shape(axis, n, x, shape, &type, &device);
    if (s != FX_OK)
        return fail_array(s);
    if (n == 1)
        return x[0];
    fxi_context *c = fxi_begin();
    operand *o = fxi_calloc((size_t)n, sizeof *o);
    fxi_node **in = fxi_malloc((size_t)n * sizeof *in);
    bool ok = o && in;
    for (int i = 0; i < n && ok; i++) {
        o[i].node = x[i]->node;
        ok = convert(&o[i], type);
        in[i] = o[i].node;
    }
    const fx_attr a = {.i = {axis}};
    fxi_node *r =
        ok ? fxi_node_new(c, FX_OP_CONCAT, type, x[0]->node->ndim, shape, device, &a, n, in) : NULL;
    if (o)
        operands_release(o, n);
    fxi_free(o);
    fxi_free(in);
    if (!ok)
        fx_fail(FX_STATUS_MEMORY, "concat", "no memory for %d parts", n);
    return fxi_array_take(r);
}
