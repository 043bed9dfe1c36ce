/* gpu_scan.c: cumulative sums along an axis, from either end.
 *
 * As in a reduction some lanes of a group work on one line: they take as many neighbouring elements
 * of it as they are, add them up in log₂ lanes rounds (Hillis and Steele), and carry the last sum
 * on. Where lines are many, each has one lane and runs on its own.
 */
#include "gpu_text.h"

enum { LINES = 0, COUNT, FROM_END, ALONG_X, ALONG_Y, LANES, WALK = LANES + FXI_GPU_LANE_PARAMS };

static void say_scan(fxi_gpu_builder *b, const fxi_gpu_walk *w, bool wide)
{
    const fxi_gpu_type *t = &fxi_gpu_types[b->step->out.dtype];
    const int py = w->npatterns - 1;
    fxi_gpu_begin(b, wide);
    fxi_gpu_say_fold(b, 0, FX_FOLD_SUM, b->step->out.dtype);
    fxi_gpu_kernel(b, "fx_scan", 2, WALK + fxi_gpu_walk_params(w));
    fxi_gpu_say(b, "FX_USE(0, const %s, x)\nFX_USE(1, %s, y)\n", t->stored, t->stored);
    fxi_gpu_say(b, "FX_LOCAL(fx_acc0, s0, FX_GROUP);\n");
    fxi_gpu_say_lanes(b, LANES);
    fxi_gpu_say(b, "const fx_int line = FX_GROUP_X * slots + slot;\n");
    fxi_gpu_walk_say(b, w, WALK, "(line < P(0) ? line : 0)", "o", NULL);
    fxi_gpu_say(b, "fx_acc0 carry = fx_none0();\n"
                   "for (fx_int base = 0; base < P(1); base += lanes) {\n"
                   "const fx_int n = base + lane, at = P(2) ? P(1) - 1 - n : n;\n"
                   "const int live = line < P(0) && n < P(1);\n"
                   "fx_acc0 a0 = fx_none0();\n");
    fxi_gpu_say(b, "if (live) a0 = fx_take0(a0, FX_LOAD_%s(x, o0 + at * P(3)), n);\n", t->name);
    fxi_gpu_say(b, "if (lanes > 1) {\n"
                   "s0[own] = a0;\nFX_BARRIER;\n"
                   "for (fx_int back = 1; back < lanes; back *= 2) {\n"
                   "    if (lane >= back) a0 = fx_join0(s0[own - back * slots], a0);\n"
                   "    FX_BARRIER;\n    s0[own] = a0;\n    FX_BARRIER;\n}\n}\n");
    fxi_gpu_say(b, "a0 = fx_join0(carry, a0);\n");
    fxi_gpu_say(b, "if (live) FX_STORE_%s(y, o%d + at * P(4), fx_done0(a0));\n", t->name, py);
    fxi_gpu_say(b, "if (lanes > 1) {\n"
                   "    carry = fx_join0(carry, s0[slot + (lanes - 1) * slots]);\n"
                   "    FX_BARRIER;\n} else\n    carry = a0;\n}\n");
    fxi_gpu_end(b);
}

/* x may have any strides; y is dense. */
void fxi_gpu_scan(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const fx_tensor *x = &s->in[0], *y = &s->out;
    const int axis = (int)s->attr.i[0];
    const int64_t n = y->shape[axis], length = fx_tensor_length(y), lines = n ? length / n : 0;
    int64_t dense[FX_MAX_DIMS];
    fxi_gpu_layout l = {.nd = y->ndim};
    if (length == 0 || !fxi_gpu_has_fold(b, FX_FOLD_SUM, y->dtype))
        return;
    fxi_gpu_dense_strides(y->ndim, y->shape, dense);
    for (int d = 0; d < y->ndim; d++)
        l.shape[d] = y->shape[d];
    fxi_gpu_layout_add(&l, x->stride);
    fxi_gpu_layout_add(&l, dense);
    const fxi_gpu_walk w = fxi_gpu_walk_over(&l, ~(1u << axis));
    fxi_gpu_lanes lanes = {.lanes = fxi_gpu_power(n), .columns = axis > 0};
    if (lines >= (int64_t)b->limits->units * FXI_GPU_GROUP)
        lanes.lanes = 1;
    say_scan(b, &w, fxi_gpu_layout_wide(&l));
    fxi_gpu_call *c = fxi_gpu_add(b);
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, 0);
    fxi_gpu_buffer(c, 1, FXI_GPU_OUT, 0);
    fxi_gpu_param(c, LINES, lines);
    fxi_gpu_param(c, COUNT, n);
    fxi_gpu_param(c, FROM_END, s->attr.i[1] != 0);
    fxi_gpu_param(c, ALONG_X, x->stride[axis]);
    fxi_gpu_param(c, ALONG_Y, dense[axis]);
    fxi_gpu_lanes_fill(lanes, c, LANES);
    fxi_gpu_walk_fill(&w, c, WALK);
    c->groups[0] = fxi_gpu_groups(lines, FXI_GPU_GROUP / lanes.lanes);
}
