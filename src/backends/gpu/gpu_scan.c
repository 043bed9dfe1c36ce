/* gpu_scan.c: cumulative sums along an axis, from either end.
 *
 * As in a reduction, some lanes of a group work on one line. They take as many neighbouring
 * elements of it as there are lanes, add them up in log₂(lanes) rounds (Hillis and Steele), and
 * carry the last sum on to the next elements. If there are many lines, each has one lane, which
 * needs no rounds.
 */
#include "gpu_text.h"

enum { LINES = 0, COUNT, FROM_END, ALONG_X, ALONG_Y, LANES, WALK = LANES + FXI_GPU_LANE_PARAMS };

/* If x is dense too, both arrays have one pattern. The last pattern is always that of y. */
static void say_scan(fxi_gpu_builder *b, const fxi_gpu_walk *w, bool wide)
{
    const fxi_gpu_type *t = &fxi_gpu_types[b->step->out.dtype];
    fxi_gpu_begin(b, wide);
    fxi_gpu_say_fold(b, 0, FX_REDUCE_SUM, b->step->out.dtype, b->step->out.dtype);
    fxi_gpu_kernel(b, "fx_scan", 2, WALK + fxi_gpu_walk_params(w));
    fxi_gpu_set(b, "stored", t->stored);
    fxi_gpu_set(b, "name", t->name);
    fxi_gpu_set_number(b, "to", w->npatterns - 1);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_scan, "lanes");
    fxi_gpu_say_lanes(b, LANES);
    text = fxi_gpu_say_until(b, text, "walk");
    fxi_gpu_walk_say(b, w, WALK, "(line < P(0) ? line : 0)", "o", NULL);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
}

/* x may have any strides; y is dense. */
void fxi_gpu_scan(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const fx_tensor *x = &s->in[0], *y = &s->out;
    const int axis = fx_step_scan(s)->axis;
    const int64_t n = y->shape[axis], length = fx_tensor_length(y), lines = n ? length / n : 0;
    int64_t dense[FX_MAX_DIMS];
    fxi_gpu_layout l = {.nd = y->ndim};
    if (length == 0 || !fxi_gpu_has_fold(b, FX_REDUCE_SUM, y->dtype))
        return;
    fxi_dense_strides(y->ndim, y->shape, dense);
    for (int d = 0; d < y->ndim; d++)
        l.shape[d] = y->shape[d];
    fxi_gpu_layout_add(&l, x->stride);
    fxi_gpu_layout_add(&l, dense);
    /* The walk finds the start of each line; along the line the kernel adds strides. */
    const fxi_gpu_walk w = fxi_gpu_walk_over(&l, ~(1u << axis));
    fxi_gpu_lanes lanes = {.lanes = fxi_gpu_power(n), .columns = axis > 0};
    /* Enough lines to keep all work-items busy with one lane each. */
    if (lines >= (int64_t)b->limits->units * FXI_GPU_GROUP)
        lanes.lanes = 1;
    say_scan(b, &w, fxi_gpu_layout_wide(&l));
    fxi_gpu_call *c = fxi_gpu_add(b);
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, 0);
    fxi_gpu_buffer(c, 1, FXI_GPU_OUT, 0);
    fxi_gpu_param(c, LINES, lines);
    fxi_gpu_param(c, COUNT, n);
    fxi_gpu_param(c, FROM_END, fx_step_scan(s)->reverse);
    fxi_gpu_param(c, ALONG_X, fxi_gpu_stride(x, axis));
    fxi_gpu_param(c, ALONG_Y, dense[axis]);
    fxi_gpu_lanes_fill(lanes, c, LANES);
    fxi_gpu_walk_fill(&w, c, WALK);
    c->groups[0] = fxi_gpu_divide_up(lines, FXI_GPU_GROUP / lanes.lanes);
}
