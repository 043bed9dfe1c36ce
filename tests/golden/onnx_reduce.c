/* onnx_reduce.c: ONNX reductions, softmaxes, normalisations and losses.
 *
 * A reduction is a row of one table: what is done before, which reduction, what is done after. Axes
 * are masks; an empty list of axes means all of them unless the node says otherwise.
 */
#include "onnx_case.h"

#include <string.h>

/* ---- reductions ------------------------------------------------------------------------------ */
static const struct reduction {
    const char *op;
    fx_array *(*before)(fx_array *);
    fx_array *(*reduce)(const fx_reduce_args *);
    fx_array *(*after)(fx_array *);
} reductions[] = {
    {"ReduceL1", fx_abs, fxi_sum, NULL},     {"ReduceL2", NULL, fxi_norm, NULL},
    {"ReduceLogSum", NULL, fxi_sum, fx_log}, {"ReduceLogSumExp", NULL, fxi_logsumexp, NULL},
    {"ReduceMax", NULL, fxi_maximum, NULL},  {"ReduceMean", NULL, fxi_mean, NULL},
    {"ReduceMin", NULL, fxi_minimum, NULL},  {"ReduceProd", NULL, fxi_prod, NULL},
    {"ReduceSum", NULL, fxi_sum, NULL},      {"ReduceSumSquare", fx_square, fxi_sum, NULL},
};

static void op_reduce(onnx_node *n)
{
    const struct reduction *r = reductions;
    while (strcmp(r->op, n->op) != 0)
        r++;
    fx_array *x = n->in[0];
    int64_t axes[FX_MAX_DIMS];
    const int count = onnx_ints_of(n, 1, "axes", FX_MAX_DIMS, axes);
    const bool keep = onnx_int(n, "keepdims", 1) != 0;
    if (count <= 0 && onnx_int(n, "noop_with_empty_axes", 0)) {
        n->out[0] = fx_identity(x);
        return;
    }
    fx_array *y = FXI_REDUCE(r->reduce, r->before ? r->before(x) : x,
                             .dims = FXI_AXES(np_axes(x, count, axes)), .drop = !keep);
    y = r->after ? r->after(y) : y;
    n->out[0] = np_is_integer(x) ? fx_cast(y, fx_eltype(x)) : y;
}

/* The last of equal elements is the first of the reversed array. */
static void op_arg(onnx_node *n)
{
    fx_array *x = n->in[0];
    const int axis = np_axis(x, onnx_int(n, "axis", 0));
    const bool last = onnx_int(n, "select_last_index", 0) != 0;
    fx_array *y = FXI_REDUCE(strcmp(n->op, "ArgMax") ? fxi_argmin : fxi_argmax,
                             last ? fx_flip(x, FX_AXES(axis)) : x, .dims = FX_AXES(axis),
                             .drop = !onnx_int(n, "keepdims", 1));
    n->out[0] = last ? fx_sub(fx_size(x, axis) - 1, y) : y;
}

/* Exclusive sums are those of the elements before: cut the last one, put a zero in front. */
static void op_cumsum(onnx_node *n)
{
    fx_array *x = n->in[0];
    const int axis = np_axis(x, (int64_t)fx_item(n->in[1]));
    const bool reverse = onnx_int(n, "reverse", 0) != 0;
    if (onnx_int(n, "exclusive", 0))
        x = fx_pad(x, axis, reverse ? -1 : 1, reverse ? 1 : -1, 0);
    n->out[0] = reverse ? fx_cumsum_reverse(x, axis) : fx_cumsum(x, axis);
}

/* ---- softmax and similar operators ----------------------------------------------------------- */
static fx_array *hardmax(const fx_softmax_args *a)
{
    int axis = 0;
    while (!(a->dims.bits >> axis & 1))
        axis++;
    fx_array *index = np_iota(FX_DTYPE_I64, fx_size(a->x, axis), axis, fx_ndims(a->x));
    return fx_cast(fx_eq(index, fx_argmax(a->x, .dims = a->dims)), fx_eltype(a->x));
}

/* Before opset 13 the array was first made a matrix at `axis`. */
static void soft(onnx_node *n, fx_array *(*f)(const fx_softmax_args *))
{
    fx_array *x = n->in[0];
    int64_t shape[FX_MAX_DIMS], matrix[2] = {1, 1};
    const int rank = np_shape(x, shape);
    int64_t axis = onnx_int(n, "axis", n->opset < 13 ? 1 : -1);
    axis += axis < 0 ? rank : 0;
    for (int i = 0; i < rank; i++)
        matrix[i >= axis] *= shape[i];
    const bool coerce = n->opset < 13;
    fx_array *y = FXI_SOFTMAX_OF(f, coerce ? np_reshape(x, 2, matrix) : x,
                                 .dims = FX_AXES(coerce ? 0 : np_axis(x, axis)));
    n->out[0] = coerce ? np_reshape(y, rank, shape) : y;
}
static void op_softmax(onnx_node *n)
{
    soft(n, fxi_softmax);
}
static void op_logsoftmax(onnx_node *n)
{
    soft(n, fxi_logsoftmax);
}
static void op_hardmax(onnx_node *n)
{
    soft(n, hardmax);
}

/* ---- normalisation --------------------------------------------------------------------------- */
static unsigned spatial_axes(const fx_array *x)
{
    return (1u << (unsigned)(fx_ndims(x) - 2)) - 1u;
}

/* (x − mean)/√(var + ε)·γ + β with one γ and β per channel. */
static fx_array *affine(fx_array *x, fx_array *normed, fx_array *gamma, fx_array *beta)
{
    return fx_add(fx_mul(normed, np_channels(gamma, x)), np_channels(beta, x));
}

static void op_batchnorm(onnx_node *n)
{
    fx_array *x = n->in[0], *mean = n->in[3], *var = n->in[4];
    if (onnx_has(n, "is_test") && onnx_int(n, "is_test", 1) != 1)
        n->variant = "training before opset 7";
    const double epsilon = onnx_real(n, "epsilon", 1e-5), momentum = onnx_real(n, "momentum", 0.9);
    if (!onnx_int(n, "training_mode", 0)) {
        fx_array *normed =
            fx_mul(fx_sub(x, np_channels(mean, x)), fx_rsqrt(fx_add(np_channels(var, x), epsilon)));
        n->out[0] = affine(x, normed, n->in[1], n->in[2]);
        return;
    }
    const fx_axes axes = FXI_AXES(spatial_axes(x) | 1u << (unsigned)(fx_ndims(x) - 1));
    fx_array *batch_mean = fx_mean(x, .dims = axes, .drop = true);
    fx_array *batch_var = fx_var(x, .dims = axes, .drop = true, .corrected = false);
    n->out[0] = affine(x, fx_normalise(x, axes, epsilon), n->in[1], n->in[2]);
    n->out[1] = fx_add(fx_mul(momentum, mean), fx_mul(1 - momentum, batch_mean));
    n->out[2] = fx_add(fx_mul(momentum, var), fx_mul(1 - momentum, batch_var));
}

static void op_instancenorm(onnx_node *n)
{
    fx_array *x = n->in[0];
    const double epsilon = onnx_real(n, "epsilon", 1e-5);
    n->out[0] = affine(x, fx_normalise(x, FXI_AXES(spatial_axes(x)), epsilon), n->in[1], n->in[2]);
}

static void op_layernorm(onnx_node *n)
{
    fx_array *x = n->in[0];
    const double epsilon = onnx_real(n, "epsilon", 1e-5);
    const fx_axes axes = FXI_AXES((2u << (unsigned)np_axis(x, onnx_int(n, "axis", -1))) - 1u);
    fx_array *y = fx_mul(fx_normalise(x, axes, epsilon), n->in[1]);
    n->out[0] = n->nin > 2 && n->in[2] ? fx_add(y, n->in[2]) : y;
    n->out[1] = fx_mean(x, .dims = axes);
    n->out[2] = fx_rsqrt(fx_add(fx_var(x, .dims = axes, .corrected = false), epsilon));
}

static void op_mvn(onnx_node *n)
{
    static const int64_t usual[] = {0, 2, 3};
    int64_t axes[FX_MAX_DIMS];
    const int count = onnx_ints(n, "axes", FX_MAX_DIMS, axes);
    fx_array *x = n->in[0];
    const fx_axes mask = FXI_AXES(count < 0 ? np_axes(x, 3, usual) : np_axes(x, count, axes));
    fx_array *deviation = fx_std(x, .dims = mask, .corrected = false);
    n->out[0] = fx_div(fx_sub(x, fx_mean(x, .dims = mask)), fx_add(deviation, 1e-9));
}

static void op_lpnormalization(onnx_node *n)
{
    fx_array *x = n->in[0];
    const fx_axes mask = FX_AXES(np_axis(x, onnx_int(n, "axis", -1)));
    const double p = (double)onnx_int(n, "p", 2);
    n->out[0] = fx_div(x, p == 2 ? fx_norm(x, .dims = mask)
                                 : fx_pow(fx_sum(fx_pow(fx_abs(x), p), .dims = mask), 1 / p));
}

/* x/(bias + α/size·Σx²)^β over `size` neighbouring channels. */
static void op_lrn(onnx_node *n)
{
    fx_array *x = n->in[0], *sum = NULL;
    const int64_t size = onnx_int(n, "size", 1), axis = fx_ndims(x) - 2,
                  channels = fx_size(x, (int)axis);
    const double scale = onnx_real(n, "alpha", 1e-4) / (double)size;
    fx_array *squares =
        fx_pad(fx_square(x), (int)axis, (size - 1) / 2, size - 1 - (size - 1) / 2, 0);
    for (int64_t i = 0; i < size; i++) {
        fx_array *part = fx_slice(squares, (int)axis, i, i + channels);
        sum = sum ? fx_add(sum, part) : part;
    }
    fx_array *base = fx_add(onnx_real(n, "bias", 1), fx_mul(scale, sum));
    n->out[0] = fx_div(x, fx_pow(base, onnx_real(n, "beta", 0.75)));
}

/* ---- losses ---------------------------------------------------------------------------------- */
/* −w[t]·x[t] along the class axis, 0 where the target is to be ignored; mean: divided by Σw[t]. */
static fx_array *nll(const onnx_node *n, fx_array *x)
{
    const int axis = np_axis(x, 1);
    fx_array *target = n->in[1], *weight = n->nin > 2 ? n->in[2] : NULL;
    fx_array *counts = fx_cast(fx_eq(target, target), fx_eltype(x));
    if (onnx_has(n, "ignore_index")) {
        fx_array *kept = fx_ne(target, onnx_int(n, "ignore_index", 0));
        counts = fx_cast(kept, fx_eltype(x));
        target = fx_where(kept, target, 0);
    }
    if (weight)
        counts = fx_mul(counts, fx_gather(weight, target, 0));
    fx_array *picked =
        fx_squeeze(fx_gather_elements(x, fx_unsqueeze(target, axis), axis), FX_AXES(axis));
    fx_array *loss = fx_neg(fx_mul(picked, counts));
    const char *reduction = onnx_text(n, "reduction", "mean");
    if (!strcmp(reduction, "none"))
        return loss;
    fx_array *sum = fx_sum(loss);
    return strcmp(reduction, "sum") ? fx_div(sum, fx_sum(counts)) : sum;
}

static void op_nll(onnx_node *n)
{
    n->out[0] = nll(n, n->in[0]);
}

static void op_softmax_crossentropy(onnx_node *n)
{
    fx_array *x = n->in[0], *log_prob = fx_logsoftmax(x, .dims = FX_AXES(np_axis(x, 1)));
    n->out[0] = nll(n, log_prob);
    n->out[1] = log_prob;
}

#define RUN(Name, f)                                                                               \
    {                                                                                              \
        Name, GOLD_POINTWISE, f, NULL, NULL                                                        \
    }
#define SUM(Name, f)                                                                               \
    {                                                                                              \
        Name, GOLD_CONTRACTION, f, NULL, NULL                                                      \
    }
const onnx_op onnx_reduce_ops[] = {
    RUN("ArgMax", op_arg),
    RUN("ArgMin", op_arg),
    RUN("Hardmax", op_hardmax),
    RUN("LRN", op_lrn),
    RUN("LogSoftmax", op_logsoftmax),
    RUN("ReduceMax", op_reduce),
    RUN("ReduceMin", op_reduce),
    RUN("Softmax", op_softmax),
    SUM("BatchNormalization", op_batchnorm),
    SUM("CumSum", op_cumsum),
    SUM("InstanceNormalization", op_instancenorm),
    SUM("LayerNormalization", op_layernorm),
    SUM("LpNormalization", op_lpnormalization),
    SUM("MeanVarianceNormalization", op_mvn),
    SUM("NegativeLogLikelihoodLoss", op_nll),
    SUM("ReduceL1", op_reduce),
    SUM("ReduceL2", op_reduce),
    SUM("ReduceLogSum", op_reduce),
    SUM("ReduceLogSumExp", op_reduce),
    SUM("ReduceMean", op_reduce),
    SUM("ReduceProd", op_reduce),
    SUM("ReduceSum", op_reduce),
    SUM("ReduceSumSquare", op_reduce),
    SUM("SoftmaxCrossEntropyLoss", op_softmax_crossentropy),
    {NULL, GOLD_POINTWISE, NULL, NULL, NULL},
};
