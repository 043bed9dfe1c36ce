/* ref_index.c: gather and scatter, from their definitions.
 *
 *   gather    y[a…, k…, b…] = x[a…, idx[k…], b…]
 *   scatter   y[a…, i, b…] = reduction of src[a…, k…, b…] over all k… with idx[k…] = i,
 *                            in the order of k…
 *
 * and by element (backend.h)
 *
 *   gather    y[a…, k, b…] = x[a…, idx[a…, k, b…], b…]
 *   scatter   y[a…, i, b…] = reduction of src[a…, k, b…] over all k with idx[a…, k, b…] = i
 *
 * Both check all indices first, even if another axis is empty. For every element of y, scatter
 * searches the whole of idx, so each result is rounded once and its terms are in an obvious order.
 */
#include "ref_kernels.h"

#include <string.h>

static fx_status check_indices(const char *op, const fx_tensor *t, const void *idx, int axis,
                               int64_t size)
{
    int64_t index[FX_MAX_DIMS];
    const int64_t n = fxi_ref_length(t);
    for (int64_t k = 0; k < n; k++) {
        fxi_ref_unravel(k, t->ndim, t->shape, index);
        const int64_t i = fxi_ref_get(t->dtype, idx, fxi_ref_offset(t, index)).integer;
        if (i >= 0 && i < size)
            continue;
        return fx_fail(FX_STATUS_ARGUMENT, op,
                       "index %lld is out of range for axis %d of size %lld", (long long)i, axis,
                       (long long)size);
    }
    return FX_OK;
}

fx_status fxi_ref_gather(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    const fx_tensor *x = &s->in[0], *idx = &s->in[1];
    const int axis = fx_step_gather(s)->axis;
    int64_t index[FX_MAX_DIMS], at[FX_MAX_DIMS];
    const fx_status status = check_indices("gather", idx, in[1], axis, x->shape[axis]);
    if (status != FX_OK)
        return status;
    const int64_t n = fxi_ref_length(&s->out);
    for (int64_t i = 0; i < n; i++) {
        fxi_ref_unravel(i, s->out.ndim, s->out.shape, index);
        for (int k = 0; k < axis; k++)
            at[k] = index[k];
        const int64_t *position = fx_step_by_element(s) ? index : index + axis;
        at[axis] = fxi_ref_get(idx->dtype, in[1], fxi_ref_offset(idx, position)).integer;
        for (int k = axis + 1; k < x->ndim; k++)
            at[k] = index[fx_step_by_element(s) ? k : k - 1 + idx->ndim];
        fxi_ref_put(s->out.dtype, out, i, fxi_ref_get(x->dtype, in[0], fxi_ref_offset(x, at)));
    }
    return FX_OK;
}

/* The value of the output at multi-index `index`. */
static fxi_ref_value scatter_one(const fx_step *s, const void *const *in, const int64_t *index)
{
    const fx_tensor *src = &s->in[0], *idx = &s->in[1];
    const int kind = fx_step_scatter(s)->fold, axis = fx_step_scatter(s)->axis;
    int64_t at[FX_MAX_DIMS], position[FX_MAX_DIMS];
    const bool elements = fx_step_by_element(s);
    const int axes = elements ? 1 : idx->ndim; /* of src, in place of `axis` */
    fxi_ref_value y = fxi_ref_reduce_start(kind, src->dtype);
    const int64_t n = elements ? idx->shape[axis] : fxi_ref_length(idx);
    for (int64_t j = 0; j < n; j++) {
        if (elements)
            memcpy(position, index, sizeof position), position[axis] = j;
        else
            fxi_ref_unravel(j, idx->ndim, idx->shape, position);
        if (fxi_ref_get(idx->dtype, in[1], fxi_ref_offset(idx, position)).integer != index[axis])
            continue;
        for (int k = 0; k < src->ndim; k++)
            at[k] = k < axis          ? index[k]
                    : k < axis + axes ? position[elements ? axis : k - axis]
                                      : index[k + 1 - axes];
        const fxi_ref_value x = fxi_ref_get(src->dtype, in[0], fxi_ref_offset(src, at));
        y = fxi_ref_reduce_next(kind, src->dtype, y, x);
    }
    return y;
}

fx_status fxi_ref_scatter(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    const int axis = fx_step_scatter(s)->axis;
    int64_t index[FX_MAX_DIMS];
    const fx_status status = check_indices("scatter", &s->in[1], in[1], axis, s->out.shape[axis]);
    if (status != FX_OK)
        return status;
    const int64_t n = fxi_ref_length(&s->out);
    for (int64_t i = 0; i < n; i++) {
        fxi_ref_unravel(i, s->out.ndim, s->out.shape, index);
        fxi_ref_put(s->out.dtype, out, i, scatter_one(s, in, index));
    }
    return FX_OK;
}
