/* cpu_conv.c: convolution and its two gradients on the CPU: reads the sizes and chooses the method.
 *
 * One, two or three spatial axes are treated as three, of which the unused have size 1. No method
 * unfolds windows into a matrix, which would take as many times the memory of x as there are taps.
 * A kernel of one tap is a matrix already (cpu_conv_product.c). 3×3 kernels of many channels need
 * fewer multiplications (cpu_conv_winograd.c). Where channels are few, vectors run along the
 * windows (cpu_conv_direct.c; with groups, cpu_conv_masked.c). Otherwise they run along the
 * output's channels (cpu_conv_gather.c).
 */
#include "conv_infinite.h"
#include "cpu_conv.h"
#include "cpu_kernels.h"
#include "cpu_parallel.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

static void spatial_sizes(const fx_tensor *t, int spatial, int64_t out[3])
{
    for (int d = 0; d < 3; d++)
        out[d] = d < spatial ? t->shape[d] : 1;
}

/* The padding at the ends of the axes (`after`) is not needed: it follows from the number of
 * windows. */
static void read_attr(fxi_conv_geometry *g, const fx_conv_attr *a)
{
    for (int d = 0; d < 3; d++) {
        const bool used = d < a->spatial;
        g->stride[d] = used ? a->stride[d] : 1;
        g->before[d] = used ? a->before[d] : 0;
        g->dilation[d] = used ? a->dilation[d] : 1;
    }
}

/* Which tensor is the x side, the kernel and the y side, by kind: 0 and 1 are inputs, 2 is the
 * output. */
static const struct {
    uint8_t x, w, y;
} kinds[] = {
    [FX_CONV_FORWARD] = {0, 1, 2}, [FX_CONV_DATA] = {2, 1, 0}, [FX_CONV_WEIGHT] = {0, 2, 1}};

/* x, w and y are the tensors that have the sizes of the input, the kernel and the output of the
 * forward convolution, whichever of them the step computes. So all three kinds share one
 * description. */
static fxi_conv_geometry geometry_of(const fx_step *step)
{
    const fx_conv_attr *a = &fx_step_conv(step)->attr;
    const fx_tensor *tensors[] = {&step->in[0], &step->in[1], &step->out};
    const fx_tensor *x = tensors[kinds[a->kind].x], *w = tensors[kinds[a->kind].w],
                    *y = tensors[kinds[a->kind].y];
    const int s = a->spatial;
    fxi_conv_geometry g = {
        .attr = a, .dtype = step->out.dtype, .size = fxi_cpu_size(step->out.dtype)};
    spatial_sizes(x, s, g.x);
    spatial_sizes(w, s, g.k);
    spatial_sizes(y, s, g.y);
    read_attr(&g, a);
    g.groups = a->groups;
    /* A kernel has taps × channels of one group × output channels of all groups. */
    g.cin = w->shape[s];
    g.cout = w->shape[s + 1] / g.groups;
    g.batch = x->shape[s + 1];
    g.positions = fxi_length(3, g.y);
    g.taps = fxi_length(3, g.k);
    g.xs = fxi_length(3, g.x);
    g.depth = g.taps * g.cin;
    return g;
}

bool fxi_cpu_conv_reads_in_place(const fx_step *step)
{
    const fxi_conv_geometry g = geometry_of(step);
    return fxi_cpu_conv_masked_suits(&g, fx_step_conv(step)->attr.kind);
}

bool fxi_cpu_conv_multiplies_less(const fx_step *step)
{
    const int kind = fx_step_conv(step)->attr.kind;
    const fxi_conv_geometry g = geometry_of(step);
    return fxi_cpu_conv_winograd_suits(&g, kind == FX_CONV_WEIGHT ? FX_CONV_FORWARD : kind);
}

/* ---- the epilogue ---------------------------------------------------------------------------- */

/* Is an instruction of the epilogue a relu, or arithmetic with a number or a value of each channel?
 * r: the register of the value so far. *out_operand: the register of the second operand; r if there
 * is none. */
static bool can_apply(const fx_step *step, const fx_instr *ins, int r, int *out_operand)
{
    const bool first = ins->src[0] == r, either = ins->op == FX_OP_ADD || ins->op == FX_OP_MUL;
    *out_operand = r;
    if (ins->op == FX_OP_RELU)
        return true;
    if (!either && !(first && (ins->op == FX_OP_SUB || ins->op == FX_OP_DIV)))
        return false;
    *out_operand = ins->src[first];
    const fx_tensor *t = &step->in[*out_operand + 1];
    bool channels = true;
    for (int d = 0; d < t->ndim; d++)
        channels = channels && (d == t->ndim - 2 || t->shape[d] == 1 || t->stride[d] == 0);
    return channels;
}

/* Fills in the epilogue's instructions. n stays 0 if the step has none, too many, or one that
 * can_apply refuses. */
static void read_epilogue(const fx_step *step, const void *const *in, fxi_conv_epilogue *out)
{
    const fx_program p = fx_step_program(step);
    int operand;
    if (p.n > FXI_CONV_INSTRUCTIONS)
        return;
    for (int k = 0; k < p.n; k++) {
        if (!can_apply(step, &p.instr[k], k ? step->nin - 2 + k : 0, &operand))
            return;
        const fx_tensor *t = &step->in[operand + 1];
        out->op[k] = p.instr[k].op;
        if (p.instr[k].nsrc < 2)
            continue;
        out->value[k] = in[operand + 1];
        out->stride[k] = t->stride[t->ndim - 2];
    }
    out->n = p.n;
}

size_t fxi_conv_epilogue_bytes(const fxi_conv_geometry *g, int64_t padded)
{
    return (size_t)(g->epilogue.n * g->groups * padded) * g->size;
}

/* The position in `values` of the first value of instruction k. Values are ordered by group, then
 * by instruction, then by channel. */
static int64_t value_at(const fxi_conv_geometry *g, int64_t padded, int64_t group, int k)
{
    return (group * g->epilogue.n + k) * padded;
}

void fxi_conv_epilogue_put(const fxi_conv_geometry *g, int64_t padded, char *values)
{
    const fxi_conv_epilogue *e = &g->epilogue;
    memset(values, 0, fxi_conv_epilogue_bytes(g, padded));
    for (int64_t group = 0; group < g->groups; group++)
        for (int k = 0; k < e->n; k++)
            for (int64_t c = 0; e->value[k] && c < g->cout; c++)
                memcpy(fxi_at_out(values, value_at(g, padded, group, k) + c, g->size),
                       fxi_at(e->value[k], (group * g->cout + c) * e->stride[k], g->size), g->size);
}

int fxi_conv_epilogue_at(const fxi_conv_geometry *g, int64_t padded, const char *values,
                         int64_t group, int64_t first, fxi_conv_instr *out)
{
    for (int k = 0; k < g->epilogue.n; k++)
        out[k] = (fxi_conv_instr){g->epilogue.op[k],
                                  fxi_at(values, value_at(g, padded, group, k) + first, g->size)};
    return g->epilogue.n;
}

/* ---- gradients of weights from a gy that is not finite --------------------------------------- */

typedef struct scan {
    const char *p;
    int dtype;
    int64_t n, parts;
    bool infinite; /* atomic */
} scan;

/* The parts only ever store true, so it does not matter in which order they do. */
static void scan_part(void *user, int64_t part)
{
    scan *s = user;
    int64_t from, to;
    fxi_cpu_range(s->n, s->parts, part, &from, &to);
    if (!fxi_conv_finite(s->dtype, fxi_at(s->p, from, fxi_cpu_size(s->dtype)), to - from))
        __atomic_store_n(&s->infinite, true, __ATOMIC_RELAXED);
}

static bool is_finite(const fx_tensor *t, const void *p)
{
    scan s = {.p = p, .dtype = t->dtype, .n = fx_tensor_length(t)};
    s.parts = fxi_cpu_parts(s.n, fxi_cpu_cost((double)s.n * (double)fxi_cpu_size(t->dtype), 0));
    fxi_cpu_parallel(s.parts, scan_part, &s);
    return !s.infinite;
}

static fx_status conv(const fx_step *step, const void *const *in, void *out, fx_run *run);

/* The kernels read padding as zeros, and 0·Inf is NaN, but a window's taps outside x must
 * contribute nothing. So the gradient is computed from the finite elements of gy, and then the
 * contributions of the others are added, which read x at positions inside only
 * (conv_infinite.h). */
static fx_status conv_infinite(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    const fx_tensor *y = &step->in[1];
    const int64_t n = fx_tensor_length(y);
    void *finite = fxi_aligned(64, (size_t)n * fxi_cpu_size(y->dtype));
    if (!finite)
        return fxi_cpu_no_memory(step);
    fxi_conv_finite_part(y->dtype, finite, in[1], n);
    const fx_status status = conv(step, (const void *[]){in[0], finite}, out, run);
    if (status == FX_OK)
        fxi_conv_add_infinite(step, in[0], in[1], out);
    fxi_free(finite);
    return status;
}

/* gy is scanned only for gradients of weights with padding, and only if the method reads the
 * padding. The scan reads gy once, which takes little time compared with the convolution. */
fx_status fxi_cpu_conv(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    const bool known = step->out.dtype == FX_DTYPE_F32 || step->out.dtype == FX_DTYPE_F64;
    if (known && fxi_conv_must_test_gy(&fx_step_conv(step)->attr) &&
        !fxi_cpu_conv_reads_in_place(step) && !is_finite(&step->in[1], in[1]))
        return conv_infinite(step, in, out, run);
    return conv(step, in, out, run);
}

static fx_status conv(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    const int kind = fx_step_conv(step)->attr.kind;
    /* The struct also describes the written operand, so inputs lose their const here; they are only
     * read. */
    char *const ptrs[] = {(char *)(uintptr_t)in[0], (char *)(uintptr_t)in[1], out};
    if (step->out.dtype != FX_DTYPE_F32 && step->out.dtype != FX_DTYPE_F64)
        return fxi_cpu_no_dtype(step, step->out.dtype);
    /* The layouts below divide by sizes of the output. */
    if (fx_tensor_length(&step->out) == 0)
        return FX_OK;
    fxi_conv_geometry g = geometry_of(step);
    const fxi_finish finish = {step, in, out};
    if (fx_step_has_epilogue(step)) {
        read_epilogue(step, in, &g.epilogue);
        g.finish = &finish;
    }
    void *x = ptrs[kinds[kind].x], *w = ptrs[kinds[kind].w], *y = ptrs[kinds[kind].y];
    fx_status status = FX_OK;
    if (fxi_cpu_conv_masked(&g, kind, x, w, y, &status))
        return status ? fxi_cpu_no_memory(step) : FX_OK;
    /* Sums without terms are zeros, to which an epilogue still applies: bias and activation. */
    if (g.batch == 0 || g.positions == 0 || g.depth == 0 || g.cout == 0) {
        memset(out, 0, (size_t)fx_tensor_length(&step->out) * g.size);
        fxi_cpu_finish(&finish);
        return FX_OK;
    }
    /* Every method writes all elements of the output, so it is not cleared first: one thread would
     * do that alone. The gathering method computes what the others decline. */
    if (!fxi_cpu_conv_product(&g, kind, x, w, y, &status) &&
        !fxi_cpu_conv_winograd(&g, kind, x, w, y, &status) &&
        !fxi_cpu_conv_direct(&g, kind, x, w, y, &status))
        status = fxi_cpu_conv_gather(&g, kind, x, w, y);
    if (status == FX_STATUS_UNSUPPORTED)
        return fxi_cpu_fail(status, step,
                            "one row of windows reads more than the CPU's maximum of %d elements, "
                            "padding and all channels included",
                            INT32_MAX);
    return status ? fxi_cpu_no_memory(step) : FX_OK;
}
