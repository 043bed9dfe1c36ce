/* gpu_gather.c: gather, and the check of indices, which scatter needs too. */
#include "gpu_text.h"

/* Checks every index in a launch of its own; the kernel writes an index that is out of range to the
 * fault words. A gather gives zeros for these indices. */
void fxi_gpu_check_indices(fxi_gpu_builder *b, int axis, int64_t size)
{
    const fx_tensor *t = &b->step->in[1];
    const int64_t n = fx_tensor_length(t);
    fxi_gpu_layout l = {.nd = t->ndim};
    for (int d = 0; d < t->ndim; d++)
        l.shape[d] = t->shape[d];
    fxi_gpu_layout_add(&l, t->stride);
    const fxi_gpu_walk w = fxi_gpu_walk_over(&l, UINT32_MAX);
    if (t->dtype != FX_DTYPE_I32 && t->dtype != FX_DTYPE_I64)
        fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED, "indices must be Int32 or Int64, got %s",
                     fxi_gpu_types[t->dtype].name);
    if (n == 0)
        return;
    fxi_gpu_begin(b, fxi_gpu_layout_wide(&l) || fxi_gpu_wide(size));
    fxi_gpu_kernel(b, "fx_check", 2, 4 + fxi_gpu_walk_params(&w));
    fxi_gpu_set(b, "index", fxi_gpu_types[t->dtype].stored);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_check_indices, "walk");
    fxi_gpu_walk_say(b, &w, 4, "i", "o", NULL);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
    fxi_gpu_call *c = fxi_gpu_add_each(b, n);
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, 1);
    fxi_gpu_buffer(c, 1, FXI_GPU_FAULT, 0);
    fxi_gpu_param(c, 1, size);
    fxi_gpu_param(c, 2, axis);
    fxi_gpu_param(c, 3, 1 + b->step->op);
    fxi_gpu_walk_fill(&w, c, 4);
}

/* The strides of x without its axis, and those of idx, over the output: x's axes before, idx's
 * axes, x's axes after. If idx has an index for each element, the output has the axes of idx. */
void fxi_gpu_index_layout(fxi_gpu_layout *l, const fx_tensor *outer, const fx_tensor *idx,
                          const fx_tensor *x, int axis)
{
    const bool elements = outer->ndim == x->ndim && outer->ndim == idx->ndim;
    const int axes = elements ? 1 : idx->ndim; /* of the output, instead of the axis */
    int64_t sx[FX_MAX_DIMS] = {0}, si[FX_MAX_DIMS] = {0};
    *l = (fxi_gpu_layout){.nd = outer->ndim};
    for (int d = 0; d < outer->ndim; d++) {
        const bool index = d >= axis && d < axis + axes;
        l->shape[d] = outer->shape[d];
        si[d] = elements ? idx->stride[d] : index ? idx->stride[d - axis] : 0;
        sx[d] = index ? 0 : x->stride[d < axis ? d : d - axes + 1];
    }
    fxi_gpu_layout_add(l, sx);
    if (fxi_gpu_layout_add(l, si) == 0) { /* both are equal, but the caller expects two patterns */
        for (int d = 0; d < l->nd; d++)
            l->stride[1][d] = l->stride[0][d];
        l->npatterns = 2;
    }
}

/* Axis 0 becomes an axis of vectors, and every stride counts vectors: the walk and the text stay
 * those of single elements. This needs rows along axis 0 (axis > 0), and all distances between rows
 * must be multiples of a vector, else only some rows would be aligned. Indices are not divided:
 * one index belongs to a whole row. */
int fxi_gpu_index_vectors(const fxi_gpu_builder *b, fxi_gpu_layout *l, int dtype, int axis,
                          int64_t *stride)
{
    enum { BYTES = 16 };
    const int64_t n = BYTES / (int64_t)fxi_gpu_size(dtype);
    bool dense =
        !b->limits->serial && axis > 0 && n > 1 && l->shape[0] % n == 0 && *stride % n == 0;
    for (int k = 0; k < l->npatterns; k++) {
        dense &= l->stride[k][0] == (k != FXI_GPU_INDEX_PATTERN);
        for (int d = 1; d < l->nd && k != FXI_GPU_INDEX_PATTERN; d++)
            dense &= l->shape[d] == 1 || l->stride[k][d] % n == 0;
    }
    if (!dense)
        return 1;
    l->shape[0] /= n;
    *stride /= n;
    for (int k = 0; k < l->npatterns; k++)
        for (int d = 1; d < l->nd && k != FXI_GPU_INDEX_PATTERN; d++)
            l->stride[k][d] /= n;
    return (int)n;
}

void fxi_gpu_gather(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const fx_tensor *x = &s->in[0], *idx = &s->in[1];
    const int axis = fx_step_gather(s)->axis;
    const int64_t n = fx_tensor_length(&s->out);
    int64_t stride = fxi_gpu_stride(x, axis);
    fxi_gpu_layout l;
    /* Queued before the gather, which does not wait for the answer: the error is reported by the
     * next call that waits. */
    fxi_gpu_check_indices(b, axis, x->shape[axis]);
    if (n == 0)
        return;
    fxi_gpu_index_layout(&l, &s->out, idx, x, axis);
    const bool wide = fxi_gpu_layout_wide(&l);
    const int vector = fxi_gpu_index_vectors(b, &l, x->dtype, axis, &stride);
    const fxi_gpu_walk w = fxi_gpu_walk_over(&l, UINT32_MAX);
    fxi_gpu_begin(b, wide || fxi_gpu_wide(x->shape[axis]) ||
                         fxi_gpu_wide(fxi_gpu_reach(x->ndim, x->shape, x->stride)));
    fxi_gpu_kernel(b, "fx_gather", 3, 3 + fxi_gpu_walk_params(&w));
    fxi_gpu_set(b, "stored", fxi_gpu_types[x->dtype].stored);
    fxi_gpu_set(b, "index", fxi_gpu_types[idx->dtype].stored);
    fxi_gpu_set_number(b, "elements", vector);
    const char *text = fxi_gpu_say_until(
        b, vector > 1 ? fxi_gpu_text_gather_vectors : fxi_gpu_text_gather, "walk");
    fxi_gpu_walk_say(b, &w, 3, "i", "o", NULL);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
    fxi_gpu_call *c = fxi_gpu_add_each(b, n / vector);
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, 0);
    fxi_gpu_buffer(c, 1, FXI_GPU_IN, 1);
    fxi_gpu_buffer(c, 2, FXI_GPU_OUT, 0);
    fxi_gpu_param(c, 1, x->shape[axis]);
    fxi_gpu_param(c, 2, stride);
    fxi_gpu_walk_fill(&w, c, 3);
}
