/* cpu_move.c: walks over strided memory, dense copies, concatenation and padding.
 *
 * Movement knows element sizes only (1, 2, 4, 8 bytes), never types. A copy whose fastest input
 * axis is not the output's (a transpose) goes through blocks of 16×16, so that every cache line
 * that is read is used up. Concatenation and padding see the output as inner × axis × outer: what
 * one input gives for one outer index is contiguous there, so both are reads of a walk into runs of
 * the output.
 */
#include "cpu_kernels.h"
#include "cpu_walk.h"
#include <string.h>

/* ---- walks ----------------------------------------------------------------------------------- */
static void walk_push(fxi_walk *w, int64_t n, int64_t stride)
{
    if (n == 1)
        return;
    const int last = w->nd - 1;
    if (last >= 0 && stride == w->stride[last] * w->shape[last]) {
        w->shape[last] *= n;
        return;
    }
    w->shape[w->nd] = n;
    w->stride[w->nd] = stride;
    w->idx[w->nd++] = 0;
}

void fxi_walk_init(fxi_walk *w, int ndim, const int64_t *shape, const int64_t *stride)
{
    w->nd = 0;
    w->offset = 0;
    for (int d = 0; d < ndim; d++)
        walk_push(w, shape[d], stride[d]);
}

void fxi_walk_axes(fxi_walk *w, const fxi_tensor *t, uint32_t mask, bool in)
{
    w->nd = 0;
    w->offset = 0;
    for (int d = 0; d < t->ndim; d++)
        if ((bool)FXI_AXIS_IN(mask, d) == in)
            walk_push(w, t->shape[d], t->stride[d]);
}

void fxi_walk_pop(fxi_walk *w, int64_t *out_n, int64_t *out_stride)
{
    *out_n = *out_stride = 1;
    if (w->nd == 0)
        return;
    *out_n = w->shape[0];
    *out_stride = w->stride[0];
    w->nd--;
    for (int d = 0; d < w->nd; d++) {
        w->shape[d] = w->shape[d + 1];
        w->stride[d] = w->stride[d + 1];
        w->idx[d] = 0;
    }
}

int64_t fxi_walk_length(const fxi_walk *w)
{
    return fxi_length(w->nd, w->shape);
}

#define STRIDED(NAME, WORD)                                                                        \
    typedef WORD __attribute__((may_alias)) NAME##_word;                                           \
    static void NAME##_fill(NAME##_word *dst, NAME##_word value, int64_t n)                        \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            dst[i] = value;                                                                        \
    }                                                                                              \
    static void NAME(NAME##_word *dst, const NAME##_word *src, int64_t n, int64_t stride)          \
    {                                                                                              \
        if (stride == 0 && n > 0)                                                                  \
            NAME##_fill(dst, *src, n);                                                             \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                dst[i] = src[i * stride];                                                          \
    }                                                                                              \
    /* dst[i + j·dj] = src[i·si + j] */                                                          \
    static void NAME##_block(NAME##_word *dst, const NAME##_word *src, int64_t ni, int64_t nj,     \
                             int64_t si, int64_t dj)                                               \
    {                                                                                              \
        for (int64_t j = 0; j < nj; j++)                                                           \
            for (int64_t i = 0; i < ni; i++)                                                       \
                dst[i + j * dj] = src[i * si + j];                                                 \
    }
STRIDED(strided1, uint8_t)
STRIDED(strided2, uint16_t)
STRIDED(strided4, uint32_t)
STRIDED(strided8, uint64_t)

void fxi_copy_strided(void *dst, const void *src, int64_t n, int64_t stride, size_t size)
{
    if (stride == 1)
        memcpy(dst, src, (size_t)n * size);
    else if (size == 4)
        strided4(dst, src, n, stride);
    else if (size == 8)
        strided8(dst, src, n, stride);
    else if (size == 2)
        strided2(dst, src, n, stride);
    else
        strided1(dst, src, n, stride);
}

/* Steps the outer axes after `run` elements of the first one. */
static void walk_forward(fxi_walk *w, int64_t run)
{
    w->idx[0] += run;
    w->offset += run * w->stride[0];
    if (w->idx[0] < w->shape[0])
        return;
    w->offset -= w->shape[0] * w->stride[0];
    w->idx[0] = 0;
    for (int d = 1; d < w->nd; d++) {
        w->offset += w->stride[d];
        if (++w->idx[d] < w->shape[d])
            return;
        w->offset -= w->stride[d] * w->shape[d];
        w->idx[d] = 0;
    }
}

void fxi_walk_read(fxi_walk *w, const void *base, size_t size, void *dst, int64_t n)
{
    if (w->nd == 0 && n > 0) {
        memcpy(dst, base, size);
        return;
    }
    char *d = dst;
    while (n > 0) {
        const int64_t left = w->shape[0] - w->idx[0], run = left < n ? left : n;
        fxi_copy_strided(d, fxi_at(base, w->offset, size), run, w->stride[0], size);
        walk_forward(w, run);
        d += run * (int64_t)size;
        n -= run;
    }
}

/* ---- dense copies ---------------------------------------------------------------------------- */
enum { BLOCK = 16 };

/* A ni×nj plane whose axis j is contiguous in src and whose axis i is contiguous in dst. */
static void copy_plane(char *dst, const char *src, int64_t ni, int64_t nj, int64_t si, int64_t dj,
                       size_t size)
{
    for (int64_t j = 0; j < nj; j += BLOCK)
        for (int64_t i = 0; i < ni; i += BLOCK) {
            const int64_t bi = ni - i < BLOCK ? ni - i : BLOCK,
                          bj = nj - j < BLOCK ? nj - j : BLOCK;
            void *d = dst + (i + j * dj) * (int64_t)size;
            const void *s = src + (i * si + j) * (int64_t)size;
            if (size == 4)
                strided4_block(d, s, bi, bj, si, dj);
            else if (size == 8)
                strided8_block(d, s, bi, bj, si, dj);
            else if (size == 2)
                strided2_block(d, s, bi, bj, si, dj);
            else
                strided1_block(d, s, bi, bj, si, dj);
        }
}

/* The axis to pair with axis 0 in a blocked copy: the one that is contiguous in memory; 0 if none.
 */
static int transposed_axis(const fxi_walk *w)
{
    if (w->nd < 2 || w->stride[0] == 1 || w->stride[0] == 0 || w->shape[0] < 8)
        return 0;
    for (int d = 1; d < w->nd; d++)
        if (w->stride[d] == 1 && w->shape[d] >= 8)
            return d;
    return 0;
}

static void copy_transposed(const fxi_walk *w, int axis, const void *in, void *out, size_t size)
{
    fxi_walk from = {0}, to = {0};
    int64_t step = 1, dj = 0;
    for (int d = 0; d < w->nd; d++) {
        if (d == axis)
            dj = step;
        else if (d != 0) {
            from.shape[from.nd] = to.shape[to.nd] = w->shape[d];
            from.stride[from.nd++] = w->stride[d];
            to.stride[to.nd++] = step;
        }
        step *= w->shape[d];
    }
    for (int64_t k = fxi_walk_length(&from); k > 0; k--) {
        copy_plane(fxi_at_out(out, to.offset, size), fxi_at(in, from.offset, size), w->shape[0],
                   w->shape[axis], w->stride[0], dj, size);
        fxi_walk_next(&from);
        fxi_walk_next(&to);
    }
}

fx_status fxi_cpu_copy(const fxi_tensor *src, const void *in, void *out)
{
    const size_t size = fxi_cpu_size(src->dtype);
    const int64_t n = fxi_tensor_length(src);
    if (n == 0)
        return FX_OK;
    fxi_walk w;
    fxi_walk_init(&w, src->ndim, src->shape, src->stride);
    const int axis = transposed_axis(&w);
    if (axis)
        copy_transposed(&w, axis, in, out, size);
    else
        fxi_walk_read(&w, in, size, out, n);
    return FX_OK;
}

/* Views that the planner had to store: their input tensor already describes the view. */
fx_status fxi_cpu_move(const fxi_step *step, const void *const *in, void *out, fxi_run *run)
{
    if (fxi_tensor_length(&step->in[0]) != fxi_tensor_length(&step->out))
        return fxi_cpu_fail(run, FX_STATUS_INTERNAL, step, "sizes of input and output differ");
    return fxi_cpu_copy(&step->in[0], in[0], out);
}

/* ---- concat and pad -------------------------------------------------------------------------- */
/* The output as inner × axis × outer, and where in it the next input goes. */
typedef struct place {
    int64_t inner, outer, size; /* size: of the output along the axis */
    int64_t start;              /* along the axis */
    size_t bytes;
    char *out;
} place;

static place place_of(const fxi_tensor *t, int axis, void *out)
{
    return (place){.inner = fxi_length(axis, t->shape),
                   .size = t->shape[axis],
                   .outer = fxi_length(t->ndim - axis - 1, t->shape + axis + 1),
                   .bytes = fxi_cpu_size(t->dtype),
                   .out = out};
}

/* Reads t into the place, `along` elements along the axis. */
static void put(place *p, const fxi_tensor *t, const void *in, int64_t along)
{
    const int64_t run = p->inner * along, row = p->inner * p->size;
    char *dst = p->out + p->inner * p->start * (int64_t)p->bytes;
    fxi_walk w;
    fxi_walk_init(&w, t->ndim, t->shape, t->stride);
    for (int64_t o = 0; o < p->outer && run > 0; o++, dst += row * (int64_t)p->bytes)
        fxi_walk_read(&w, in, p->bytes, dst, run);
    p->start += along;
}

static void fill(const void *value, size_t bytes, int64_t n, void *out)
{
    fxi_copy_strided(out, value, n, 0, bytes);
}

/* CONCAT, and PAD: a concatenation of the value, the input and the value. */
fx_status fxi_cpu_join(const fxi_step *step, const void *const *in, void *out, fxi_run *run)
{
    (void)run;
    const int axis = (int)step->attr.i[0];
    place p = place_of(&step->out, axis, out);
    if (step->op == FXI_OP_PAD) {
        fill(in[1], p.bytes, fxi_tensor_length(&step->out), out);
        p.start = step->attr.i[1];
        put(&p, &step->in[0], in[0], step->in[0].shape[axis]);
        return FX_OK;
    }
    for (int k = 0; k < step->nin; k++)
        put(&p, &step->in[k], in[k], step->in[k].shape[axis]);
    return FX_OK;
}
