/* gpu_walk.c: computes, in the text of kernels, the offsets in several tensors from the index of an
 * element.
 *
 * Shapes and strides are parameters, so a text depends only on the number of axes after merging and
 * on the number of patterns of strides. Division by a size is slow on GPUs, so it is a
 * multiplication with a number that is computed here, and a shift (Granlund and Montgomery,
 * "Division by invariant integers using multiplication", 1994). For numerators below 2³¹ this needs
 * no 33rd bit; 64-bit kernels divide.
 *
 * Parameters: for each axis but the last its size, multiplier and shift; then for each pattern the
 * strides of all axes.
 */
#include "gpu_text.h"

#include <string.h>

bool fxi_gpu_is_scalar(const fx_tensor *t)
{
    return fxi_is_single(t->ndim, t->shape, t->stride);
}

/* ---- layouts --------------------------------------------------------------------------------- */
int fxi_gpu_layout_add(fxi_gpu_layout *l, const int64_t *strides)
{
    int64_t own[FXI_GPU_AXES];
    for (int d = 0; d < l->nd; d++)
        /* Strides of axes of size 1 mean nothing; as 0 they make equal layouts equal. */
        own[d] = l->shape[d] == 1 ? 0 : strides[d];
    const size_t bytes = (size_t)l->nd * sizeof *own;
    /* Operands with equal strides share one offset, which is computed once. */
    for (int p = 0; p < l->npatterns; p++)
        if (memcmp(l->stride[p], own, bytes) == 0)
            return p;
    memcpy(l->stride[l->npatterns], own, bytes);
    return l->npatterns++;
}

/* Strides may be negative: what counts is how large an offset can become. */
int64_t fxi_gpu_reach(int nd, const int64_t *shape, const int64_t *stride)
{
    int64_t reach = 0;
    for (int d = 0; d < nd; d++)
        if (shape[d] > 1)
            reach += (stride[d] < 0 ? -stride[d] : stride[d]) * (shape[d] - 1);
    return reach;
}

bool fxi_gpu_layout_wide(const fxi_gpu_layout *l)
{
    /* 32-bit indices are faster on GPUs; 64-bit ones are used only where an offset needs them. */
    bool wide = fxi_gpu_wide(fxi_gpu_walk_length(l));
    for (int p = 0; p < l->npatterns; p++)
        wide |= fxi_gpu_wide(fxi_gpu_reach(l->nd, l->shape, l->stride[p]));
    return wide;
}

/* ---- walks ----------------------------------------------------------------------------------- */
/* Does axis d of the layout continue the walk's last axis, for every pattern? */
static bool merges(const fxi_gpu_walk *w, const fxi_gpu_layout *l, int d)
{
    const int last = w->nd - 1;
    for (int p = 0; p < w->npatterns && w->nd > 0; p++)
        if (l->stride[p][d] != w->stride[p][last] * w->shape[last])
            return false;
    return w->nd > 0;
}

fxi_gpu_walk fxi_gpu_walk_over(const fxi_gpu_layout *l, uint32_t axes)
{
    fxi_gpu_walk w = {.npatterns = l->npatterns};
    for (int d = 0; d < l->nd; d++) {
        if (!(axes >> d & 1) || l->shape[d] == 1)
            continue;
        /* Fewer axes need fewer divisions in the kernel. */
        if (merges(&w, l, d)) {
            w.shape[w.nd - 1] *= l->shape[d];
            continue;
        }
        for (int p = 0; p < l->npatterns; p++)
            w.stride[p][w.nd] = l->stride[p][d];
        w.shape[w.nd++] = l->shape[d];
    }
    return w;
}

/* Rounded up, so that few texts serve all numbers of axes; unused axes have size 1 and stride 0. */
static int class_of(const fxi_gpu_walk *w)
{
    return w->nd < 1 ? 1 : w->nd > 4 ? FX_MAX_DIMS : w->nd;
}

int64_t fxi_gpu_walk_length(const fxi_gpu_walk *w)
{
    int64_t n = 1;
    for (int d = 0; d < w->nd; d++)
        n *= w->shape[d];
    return n;
}

int fxi_gpu_walk_params(const fxi_gpu_walk *w)
{
    const int n = class_of(w);
    return w->npatterns ? 3 * (n - 1) + w->npatterns * n : 0;
}

void fxi_gpu_divisor(fxi_gpu_call *c, int first, int64_t size)
{
    int shift = 0;
    /* The least power of two that is not below the size. */
    while (((int64_t)1 << shift) < size)
        shift++;
    fxi_gpu_param(c, first, size);
    /* 64-bit kernels divide, so they use only the size. */
    if (c->wide)
        return;
    const uint64_t more = ((uint64_t)1 << shift) - (uint64_t)size,
                   multiplier = size ? (more << 32) / (uint64_t)size + 1 : 0;
    fxi_gpu_bits(c, first + 1, (uint32_t)multiplier);
    fxi_gpu_param(c, first + 2, shift);
}

/* In the order in which fxi_gpu_walk_say numbers the parameters. */
void fxi_gpu_walk_fill(const fxi_gpu_walk *w, fxi_gpu_call *c, int first)
{
    const int n = class_of(w);
    if (w->npatterns == 0)
        return;
    for (int d = 0; d < n - 1; d++, first += 3)
        fxi_gpu_divisor(c, first, d < w->nd ? w->shape[d] : 1);
    for (int p = 0; p < w->npatterns; p++)
        for (int d = 0; d < n; d++)
            fxi_gpu_param(c, first++, d < w->nd ? w->stride[p][d] : 0);
}

void fxi_gpu_walk_say(fxi_gpu_builder *b, const fxi_gpu_walk *w, int first, const char *index,
                      const char *name, const char *base)
{
    const int n = class_of(w), strides = first + 3 * (n - 1);
    if (w->npatterns == 0)
        return;
    /* The coordinate along an axis is the remainder of a division by its size. The quotient is then
     * divided by the size of the next axis. */
    fxi_gpu_say(b, "const fx_int %s_q0 = %s;\n", name, index);
    for (int d = 0; d < n - 1; d++) {
        fxi_gpu_say(b, "const fx_int %s_q%d = FX_DIV(%s_q%d, %s%d);\n", name, d + 1, name, d,
                    b->own, first + 3 * d);
        fxi_gpu_say(b, "const fx_int %s_c%d = %s_q%d - %s_q%d * P(%s%d);\n", name, d, name, d, name,
                    d + 1, b->own, first + 3 * d);
    }
    for (int p = 0; p < w->npatterns; p++) {
        fxi_gpu_say(b, "const fx_int %s%d = ", name, p);
        if (base)
            fxi_gpu_say(b, "%s%d + ", base, p);
        for (int d = 0; d < n - 1; d++)
            fxi_gpu_say(b, "%s_c%d * P(%s%d) + ", name, d, b->own, strides + p * n + d);
        fxi_gpu_say(b, "%s_q%d * P(%s%d);\n", name, n - 1, b->own, strides + p * n + n - 1);
    }
}
