/* step.c: sets a step's attributes from a node's, and computes the types and sizes of its outputs.
 */
#include "context.h"
#include "step.h"

#include <string.h>

void fxi_step_set_attr(fx_step *s, const fx_attr *a)
{
    switch (s->op) {
    case FX_OP_IOTA:
        s->as.generator.axis = (int32_t)a->axis;
        break;
    case FX_OP_PERMUTE:
        memcpy(s->as.movement.permutation, a->permutation, sizeof a->permutation);
        break;
    case FX_OP_SLICE:
        s->as.movement.slice.axis = a->slice.axis;
        s->as.movement.slice.start = a->slice.start;
        s->as.movement.slice.step = a->slice.step;
        break;
    case FX_OP_PAD:
        s->as.copy = (fx_copy_step){(int32_t)a->pad.axis, a->pad.before, a->pad.after};
        break;
    case FX_OP_CONCAT:
        s->as.copy.axis = (int32_t)a->axis;
        break;
    case FX_OP_REDUCE:
        s->as.reduce.fold = (int32_t)a->reduce.fold;
        s->as.reduce.mask = (uint32_t)a->reduce.mask;
        break;
    case FX_OP_CUMSUM:
        s->as.scan = (fx_scan_step){(int32_t)a->scan.axis, a->scan.reverse != 0};
        break;
    case FX_OP_GATHER:
        s->as.gather.axis = (int32_t)a->axis;
        break;
    case FX_OP_SCATTER:
        s->as.scatter = (fx_scatter_step){(int32_t)a->scatter.fold, (int32_t)a->scatter.axis};
        break;
    case FX_OP_MATMUL:
        s->as.matmul.transpose_a = a->matmul.transpose_a != 0;
        s->as.matmul.transpose_b = a->matmul.transpose_b != 0;
        break;
    case FX_OP_CONV:
        s->as.conv.attr = a->conv;
        break;
    case FX_OP_POOL:
        s->as.pool.attr = a->pool;
        break;
    case FX_OP_ATTENTION:
        s->as.attention = (fx_attention_step){.kind = (uint8_t)a->attention.kind,
                                              .causal = a->attention.causal != 0,
                                              .scale = a->attention.scale,
                                              .heads = a->attention.heads};
        break;
    case FX_OP_CUSTOM:
        s->as.custom.op = a->custom;
        break;
    case FX_OP_COLLECTIVE:
        s->as.collective.what = a->collective;
        break;
    default:
        break;
    }
}

/* An output that is padded along several axes has elements, so no stride is 0. */
void fxi_pad_before(const fx_step *s, int64_t before[FX_MAX_DIMS])
{
    const fx_copy_step *c = fx_step_copy(s);
    int64_t rest = c->before;
    for (int d = s->out.ndim - 1; d >= 0; d--) {
        const int64_t stride = fxi_length(d, s->out.shape);
        before[d] = d == c->axis ? c->before : 0;
        if (c->axis != FXI_PAD_AXES)
            continue;
        before[d] = rest / stride;
        rest %= stride;
    }
}

void fxi_step_set_attention_sizes(fx_step *s)
{
    fx_attention_step *a = &s->as.attention;
    const fx_tensor *q = &s->in[0], *k = &s->in[1];
    a->features = q->shape[0] / a->heads;
    a->value_features = a->kind == FX_ATTENTION_LOGSUMEXP ? 0 : s->in[2].shape[0] / a->heads;
    a->queries = q->shape[1];
    a->keys = k->shape[1];
    a->batch = q->shape[2];
    a->mask = s->in[s->nin - 1].dtype == FX_DTYPE_BOOL ? (uint8_t)(s->nin - 1) : 0;
}

fx_tensor fxi_step_output_tensor(const fx_step *step, int32_t k)
{
    const fx_more_outputs *more = fx_step_more(step);
    const int32_t segments = fx_step_segments(step), which = k % (1 + more->n);
    /* Reductions of a foreach step are steps of their own, with one output each. */
    if (step->cls == FX_CLASS_FOREACH && fx_step_foreach(step)->each)
        return fx_step_foreach(step)->each[k].out;
    fx_tensor t = step->out;
    if (step->cls == FX_CLASS_FOREACH) {
        /* A segment has only a length, so its outputs have one axis. */
        t.ndim = 1;
        t.shape[0] = fx_step_foreach(step)->segments[k / (1 + more->n)].length;
    }
    if (which > 0 && step->cls == FX_CLASS_ATTENTION) {
        const fx_attention_step *a = fx_step_attention(step);
        if (a->kind == FX_ATTENTION_GRADIENTS)
            t = step->in[0];
        else
            t = (fx_tensor){
                .dtype = FX_DTYPE_F32, .ndim = 3, .shape = {a->heads, a->queries, a->batch}};
    } else if (which > 0) {
        /* Registers are numbered within a segment: its inputs, then the results of instructions. */
        const int reg = more->reg[which - 1] - step->nin / segments;
        const fx_instr *ins = &fx_step_program(step).instr[reg];
        if (step->cls == FX_CLASS_ROW) {
            const fx_row_step *row = fx_step_row(step);
            t = row->space;
            for (int a = 0; a < t.ndim; a++)
                if (ins->row ? fx_row_has_axis(row, a)
                             : ins->op == FX_OP_REDUCE && (row->across_axes >> a & 1))
                    t.shape[a] = 1;
        }
        t.dtype = ins->dtype;
    }
    fxi_dense_strides(t.ndim, t.shape, t.stride);
    return t;
}
