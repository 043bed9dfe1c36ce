/* cpu_move.c: dense copies, concatenation and padding.
 *
 * Movement depends on the size of an element only (1, 2, 4 or 8 bytes), not on its type; strided.h
 * does the copying. Concatenation and padding see the output as inner × axis × outer: the elements
 * that one input contributes to one outer index are contiguous in the output, so each is one read
 * of a walk.
 */
#include "cpu_kernels.h"
#include "cpu_parallel.h"
#include "cpu_walk.h"
#include <string.h>

/* fxi_walk_push merges neighbouring axes, so that most walks have one or two. */
void fxi_walk_axes(fxi_walk *w, const fx_tensor *t, uint32_t mask, bool in)
{
    w->nd = 0;
    w->offset = 0;
    for (int d = 0; d < t->ndim; d++)
        if ((bool)FXI_AXIS_IN(mask, d) == in)
            fxi_walk_push(w, t->shape[d], t->stride[d]);
}

typedef struct copy_job {
    fxi_copy copy;
    const void *in;
    void *out;
    int64_t parts;
} copy_job;

/* The copy is cut by its shape and strides (strided.h), so the parts never write the same bytes. */
static void copy_part(void *user, int64_t part)
{
    const copy_job *j = user;
    int64_t first, last;
    fxi_cpu_range(j->copy.parts, j->parts, part, &first, &last);
    fxi_copy_parts(&j->copy, j->in, j->out, first, last);
}

/* The cost counts each byte twice: it is read and written. */
fx_status fxi_cpu_copy(const fx_tensor *src, const void *in, void *out)
{
    copy_job j = {.in = in, .out = out};
    fxi_copy_init(&j.copy, src->ndim, src->shape, src->stride, fxi_cpu_size(src->dtype));
    /* An empty array. */
    if (j.copy.parts == 0)
        return FX_OK;
    j.parts = fxi_cpu_parts(j.copy.parts,
                            fxi_cpu_cost(2 * (double)j.copy.length * (double)j.copy.size, 0));
    fxi_cpu_parallel(j.parts, copy_part, &j);
    return FX_OK;
}

/* Stores a view as a dense array, where the planner needs one. The input tensor already describes
 * the view by its strides. */
fx_status fxi_cpu_move(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    /* Only a mistake in the planner leads here. */
    if (fx_tensor_length(&step->in[0]) != fx_tensor_length(&step->out))
        return fxi_cpu_fail(FX_STATUS_INTERNAL, step, "sizes of input and output differ");
    return fxi_cpu_copy(&step->in[0], in[0], out);
}

/* ---- concat and pad -------------------------------------------------------------------------- */
/* The output as inner × axis × outer, and the position at which the next input begins. */
typedef struct target {
    int64_t inner, outer, size; /* size: of the output along the axis */
    int64_t start;              /* along the axis */
    size_t bytes;
    char *out;
} target;

/* The output of both operations is dense, so its axes can be seen as three. */
static target target_of(const fx_tensor *t, int axis, void *out)
{
    return (target){.inner = fxi_length(axis, t->shape),
                    .size = t->shape[axis],
                    .outer = fxi_length(t->ndim - axis - 1, t->shape + axis + 1),
                    .bytes = fxi_cpu_size(t->dtype),
                    .out = out};
}

/* Copies t into the target and advances by `along` elements of the axis. */
static void put(target *p, const fx_tensor *t, const void *in, int64_t along)
{
    const int64_t run = p->inner * along, row = p->inner * p->size;
    char *dst = p->out + p->inner * p->start * (int64_t)p->bytes;
    fxi_walk w;
    fxi_walk_init(&w, t->ndim, t->shape, t->stride);
    /* Each read continues the walk where the previous read ended. */
    for (int64_t o = 0; o < p->outer && run > 0; o++, dst += row * (int64_t)p->bytes)
        fxi_walk_read(&w, in, p->bytes, dst, run);
    p->start += along;
}

/* A stride of 0 repeats the value. */
static void fill(const void *value, size_t bytes, int64_t n, void *out)
{
    fxi_copy_strided(out, value, n, 0, bytes);
}

/* CONCAT copies one input after the other. PAD is a concatenation of the value, the input and
 * the value: the value fills the whole output first, which is simpler than filling only the two
 * ends. */
fx_status fxi_cpu_join(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    const bool pads = step->op == FX_OP_PAD;
    const int axis = fx_step_copy(step)->axis;
    target p = target_of(&step->out, axis, out);
    if (pads) {
        fill(in[1], p.bytes, fx_tensor_length(&step->out), out);
        p.start = fx_step_copy(step)->before;
        put(&p, &step->in[0], in[0], step->in[0].shape[axis]);
        return FX_OK;
    }
    for (int k = 0; k < step->nin; k++)
        put(&p, &step->in[k], in[k], step->in[k].shape[axis]);
    return FX_OK;
}
