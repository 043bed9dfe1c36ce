/* array.c: the properties of an array that are known without evaluation: sizes, element type,
 * status.
 */
#include "context.h"
#include "handle.h"
#include "object_types.h"

#include <stdio.h>
#include <string.h>

const fx_type fxi_array_type = {
    .fxi_size = sizeof(fx_type), .name = "Array", .size = sizeof(fx_array)};

/* ---- sizes and type -------------------------------------------------------------------------- */

int fx_ndims(const fx_array *x)
{
    return fxi_has_node(x) ? x->node->ndim : 0;
}

int64_t fx_size(const fx_array *x, int axis)
{
    if (!fxi_has_node(x))
        return 0;
    return axis >= 0 && axis < x->node->ndim ? x->node->shape[axis] : 1;
}

bool fxi_same_sizes(const fx_array *a, const fx_array *b)
{
    bool same = fx_ndims(a) == fx_ndims(b);
    for (int i = 0; i < fx_ndims(a) && same; i++)
        same = fx_size(a, i) == fx_size(b, i);
    return same;
}

int64_t fx_length(const fx_array *x)
{
    return fxi_has_node(x) ? fxi_length(x->node->ndim, x->node->shape) : 0;
}

fx_dtype fx_eltype(const fx_array *x)
{
    return fxi_has_node(x) ? (fx_dtype)x->node->dtype : FX_DTYPE_F32;
}

fx_status fx_array_status(const fx_array *x)
{
    return fx_is_array(x) ? fxi_array_check("array", x) : FX_STATUS_ARGUMENT;
}

fx_status fxi_operand_status(const char *op, const fx_array *x)
{
    if (fx_is_array(x))
        return fxi_array_check(op, x);
    if (fx_type_of(x) && fx_is_error(x))
        return fxi_object_status(x);
    return x ? fx_fail(FX_STATUS_ARGUMENT, op, "takes arrays, got %s", fxi_type_name(x))
             : fx_fail(FX_STATUS_ARGUMENT, op, "an argument is NULL");
}

bool fx_is_evaluated(const fx_array *x)
{
    return fxi_has_node(x) && x->node->data;
}

bool fx_is_error(const void *object)
{
    const fx_object *o = object;
    if (!o || !o->type)
        return true;
    const bool array = o->type == &fxi_array_type;
    if (array && ((const fx_array *)o)->status == FX_OK)
        return false;
    const bool error = array || o->type->error == o || o->type == &fxi_freed_type;
    if (error && fxi_handle_freed(o))
        fxi_handle_misused("handle", o);
    return error;
}

const char *fxi_shape_text(int ndim, const int64_t *shape, char buf[FXI_SHAPE_TEXT])
{
    if (ndim == 0)
        return strcpy(buf, "scalar");
    size_t n = 0;
    for (int i = 0; i < ndim && n < FXI_SHAPE_TEXT; i++)
        n += (size_t)snprintf(buf + n, FXI_SHAPE_TEXT - n, i ? "×%lld" : "%lld",
                              (long long)shape[i]);
    return buf;
}
