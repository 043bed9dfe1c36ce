/* torch_array_ops.c: recorded operations, activations, convolutions and poolings of PyTorch.
 *
 * Attribute "dim" counts in PyTorch's order. PyTorch's convolutions do not flip the kernel:
 * `.flipped`. Windows and strides are given in PyTorch's order of spatial axes and reversed on
 * reading.
 */
#include "torch_case.h"

#include <math.h>
#include <string.h>

static fx_array *x_of(const torch_node *t)
{
    return torch_in(t, "x");
}

static int dim_axis(const torch_node *t, const fx_array *x)
{
    const int dim = (int)torch_real(t, "dim", 0);
    return dim < 0 ? -dim - 1 : fx_ndims(x) - 1 - dim;
}

/* ---- reductions along "dim" ------------------------------------------------------------------ */
static const struct reduction {
    const char *op;
    fx_array *(*reduce)(const fx_reduce_args *);
    fx_array *(*spread)(const fx_var_args *);
    bool corrected;
    fx_array *(*soft)(const fx_softmax_args *);
} reductions[] = {
    {"softmax", .soft = fxi_softmax},       {"logsoftmax", .soft = fxi_logsoftmax},
    {"logsumexp", .reduce = fxi_logsumexp}, {"sum", .reduce = fxi_sum},
    {"mean", .reduce = fxi_mean},           {"var_unbiased", .spread = fxi_var, .corrected = true},
    {"var_biased", .spread = fxi_var},      {"std_unbiased", .spread = fxi_std, .corrected = true},
    {"std_biased", .spread = fxi_std},      {"max", .reduce = fxi_maximum},
    {"min", .reduce = fxi_minimum},         {"prod", .reduce = fxi_prod},
    {"norm2", .reduce = fxi_norm},
};

static void op_reduce(torch_node *t)
{
    const struct reduction *r = reductions;
    while (strcmp(r->op, t->op) != 0)
        r++;
    fx_array *x = x_of(t);
    const fx_axes dims = FX_AXES(dim_axis(t, x));
    const bool drop = !torch_flag(t, "keepdim");
    fx_array *y = r->soft     ? FXI_SOFTMAX_OF(r->soft, x, dims)
                  : r->reduce ? FXI_REDUCE(r->reduce, x, dims, drop)
                              : FXI_VAR(r->spread, x, dims, drop, r->corrected);
    torch_out(t, "y", y);
}

static void op_cumsum(torch_node *t)
{
    torch_out(t, "y", fx_cumsum(x_of(t), dim_axis(t, x_of(t))));
}

/* ---- two arguments --------------------------------------------------------------------------- */
static void op_matmul(torch_node *t)
{
    torch_out(t, "y", fx_matmul(torch_in(t, "b"), torch_in(t, "a")));
}

static void op_bmm(torch_node *t)
{
    fx_array *a = torch_in(t, "a"), *b = torch_in(t, "b");
    a = torch_flag(t, "transA") ? fx_permute(a, 1, 0, 2) : a;
    b = torch_flag(t, "transB") ? fx_permute(b, 1, 0, 2) : b;
    torch_out(t, "y", fx_batched_mul(b, a));
}

#define BINARY(name, expression)                                                                   \
    static void op_##name(torch_node *t)                                                           \
    {                                                                                              \
        fx_array *a = torch_in(t, "a"), *b = torch_in(t, "b");                                     \
        torch_out(t, "y", expression);                                                             \
    }
BINARY(add, fx_add(a, b))
BINARY(sub, fx_sub(a, b))
BINARY(mul, fx_mul(a, b))
BINARY(div, fx_div(a, fx_add(fx_abs(b), 0.5))) /* away from 0, as recorded */
BINARY(pow, fx_pow(fx_add(fx_abs(a), 0.1), b))
BINARY(maximum, fx_max(a, b))
BINARY(minimum, fx_min(a, b))
BINARY(atan2, fx_atan2(a, b))

static void op_cosine(torch_node *t)
{
    fx_array *a = torch_in(t, "a"), *b = torch_in(t, "b");
    const fx_axes dims = FX_AXES(dim_axis(t, a));
    fx_array *norms =
        fx_mul(fx_norm(a, .dims = dims, .drop = true), fx_norm(b, .dims = dims, .drop = true));
    torch_out(t, "y", fx_div(fx_sum(fx_mul(a, b), .dims = dims, .drop = true), norms));
}

/* ---- indexing -------------------------------------------------------------------------------- */
static void op_gather(torch_node *t)
{
    fx_array *x = x_of(t);
    torch_only(t, "index_base", 0);
    torch_out(t, "y", fx_gather(x, torch_in(t, "i"), fx_ndims(x) - 1));
}

/* Rows of src go to rows i of x0, PyTorch's index_reduce; without x0 (include_self false) only rows
 * that no index names keep it. */
static void op_scatter(torch_node *t)
{
    static const struct {
        const char *name;
        fx_reduce reduction;
        fx_array *(*join)(fxi_arg, fxi_arg);
    } kinds[] = {{"sum", FX_REDUCE_SUM, fxi_add},
                 {"mean", FX_REDUCE_MEAN, NULL},
                 {"amax", FX_REDUCE_MAX, fxi_max},
                 {"amin", FX_REDUCE_MIN, fxi_min},
                 {"prod", FX_REDUCE_PROD, fxi_mul}};
    fx_array *x = torch_in(t, "x0"), *src = torch_in(t, "src"), *i = torch_in(t, "i");
    const int axis = fx_ndims(x) - 1;
    const int64_t rows = fx_size(x, axis);
    size_t k = 0;
    torch_only(t, "index_base", 0);
    while (k < sizeof kinds / sizeof *kinds - 1 &&
           strcmp(kinds[k].name, torch_text(t, "reduce", "sum")) != 0)
        k++;
    fx_array *y = fx_scatter(kinds[k].reduction, src, i, axis, rows);
    if (torch_flag(t, "include_self")) {
        if (kinds[k].join)
            torch_out(t, "y", kinds[k].join(fxi_arg_array(x), fxi_arg_array(y)));
        else
            t->variant = "mean with itself";
        return;
    }
    fx_array *hits = fx_scatter(FX_REDUCE_SUM, fx_full_dtype(t->real, 1, fx_length(i)), i, 0, rows);
    torch_out(t, "y", fx_where(fx_gt(fx_unsqueeze(hits, 0), 0), y, x));
}

static void op_permute(torch_node *t)
{
    const cJSON *perm = gold_list(t->attrs, "perm");
    int64_t ours[FX_MAX_DIMS];
    const int n = cJSON_GetArraySize(perm);
    for (int i = 0; i < n && i < FX_MAX_DIMS; i++)
        ours[i] = n - 1 - cJSON_GetArrayItem(perm, n - 1 - i)->valueint;
    torch_out(t, "y", fxi_permute(x_of(t), n, ours));
}

/* PyTorch's name of a padding mode; NULL for a constant. */
static fx_array *pad_axis(torch_node *t, fx_array *x, int axis, int64_t before, int64_t after)
{
    static const struct {
        const char *mode;
        fx_array *(*pad)(fx_array *, int, int64_t, int64_t);
    } modes[] = {
        {"reflect", fx_pad_reflect}, {"replicate", fx_pad_repeat}, {"circular", fx_pad_circular}};
    const char *mode = torch_text(t, "mode", "constant");
    if (!strcmp(mode, "constant"))
        return fx_pad(x, axis, before, after, torch_real(t, "value", 0));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(modes[i].mode, mode))
            return modes[i].pad(x, axis, before, after);
    t->variant = "mode";
    return x;
}

static void op_pad(torch_node *t)
{
    const cJSON *pads = gold_list(t->attrs, "pad_last_dim_first");
    fx_array *x = x_of(t);
    for (int i = 0; i < cJSON_GetArraySize(pads) / 2; i++)
        x = pad_axis(t, x, i, cJSON_GetArrayItem(pads, 2 * i)->valueint,
                     cJSON_GetArrayItem(pads, 2 * i + 1)->valueint);
    torch_out(t, "y", x);
}

/* ---- convolution ----------------------------------------------------------------------------- */
static fx_array *with_bias(torch_node *t, fx_array *y)
{
    fx_array *b = torch_in(t, "b");
    torch_only(t, "bias", b != NULL);
    for (int i = 0; b && i < fx_ndims(y) - 2; i++)
        b = fx_unsqueeze(b, 0);
    return b ? fx_add(y, b) : y;
}

static void op_conv(torch_node *t)
{
    fx_array *x = x_of(t);
    const int nd = fx_ndims(x) - 2;
    fx_array *y = fx_convolve(x, torch_in(t, "w"), .stride = torch_spatial(t, "stride", nd, 1),
                              .pad = torch_spatial(t, "pad", nd, 0),
                              .dilation = torch_spatial(t, "dilation", nd, 1),
                              .groups = (int64_t)torch_real(t, "groups", 1), .flipped = true);
    torch_out(t, "y", with_bias(t, y));
}

/* The layer is a true convolution, so it gets the reversed kernel. */
static void op_conv_layer(torch_node *t)
{
    fx_array *x = x_of(t), *w = torch_in(t, "w"), *b = torch_in(t, "b");
    const int nd = fx_ndims(x) - 2;
    torch_only(t, "bias", b != NULL);
    void *layer = fx_conv(
        torch_spatial(t, "none", 0, 0), 0, 0, .stride = torch_spatial(t, "stride", nd, 1),
        .pad = torch_spatial(t, "pad", nd, 0), .dilation = torch_spatial(t, "dilation", nd, 1),
        .groups = (int64_t)torch_real(t, "groups", 1),
        .weight_array = fx_flip(w, FXI_AXES((1u << (unsigned)nd) - 1u)), .bias_array = b,
        .bias = b != NULL);
    torch_out(t, "y", fx_call(layer, x));
}

static void op_conv_transpose(torch_node *t)
{
    fx_array *x = x_of(t);
    const int nd = fx_ndims(x) - 2;
    fx_array *y = fx_convolve_transposed(
        x, torch_in(t, "w"), .stride = torch_spatial(t, "stride", nd, 1),
        .pad = torch_spatial(t, "pad", nd, 0), .dilation = torch_spatial(t, "dilation", nd, 1),
        .outpad = torch_spatial(t, "output_padding", nd, 0),
        .groups = (int64_t)torch_real(t, "groups", 1), .flipped = true);
    torch_out(t, "y", with_bias(t, y));
}

/* PyTorch's convolution does not flip its kernel: the weights are CrossCor's. */
static void op_crosscor_layer(torch_node *t)
{
    fx_array *x = x_of(t), *b = torch_in(t, "b");
    const int nd = fx_ndims(x) - 2;
    if (torch_real(t, "groups", 1) != 1) {
        op_conv(t);
        return;
    }
    torch_only(t, "bias", b != NULL);
    void *layer = fx_crosscor((fx_dims){0}, .stride = torch_spatial(t, "stride", nd, 1),
                              .pad = torch_spatial(t, "pad", nd, 0),
                              .dilation = torch_spatial(t, "dilation", nd, 1),
                              .weight_array = torch_in(t, "w"), .bias_array = b, .bias = b != NULL);
    torch_out(t, "y", fx_call(layer, x));
}

static void op_conv_transpose_layer(torch_node *t)
{
    fx_array *x = x_of(t), *w = torch_in(t, "w"), *b = torch_in(t, "b");
    const int nd = fx_ndims(x) - 2;
    torch_only(t, "bias", b != NULL);
    void *layer = fx_convtranspose((fx_dims){0}, .stride = torch_spatial(t, "stride", nd, 1),
                                   .pad = torch_spatial(t, "pad", nd, 0),
                                   .dilation = torch_spatial(t, "dilation", nd, 1),
                                   .outpad = torch_spatial(t, "output_padding", nd, 0),
                                   .groups = (int64_t)torch_real(t, "groups", 1),
                                   .weight_array = fx_flip(w, FXI_AXES((1u << (unsigned)nd) - 1u)),
                                   .bias_array = b, .bias = b != NULL);
    torch_out(t, "y", fx_call(layer, x));
}

/* ---- pooling --------------------------------------------------------------------------------- */
static void op_maxpool(torch_node *t)
{
    fx_array *x = x_of(t);
    const int nd = fx_ndims(x) - 2;
    const fx_dims window = torch_spatial(t, "k", nd, 1);
    torch_out(t, "y",
              fx_pool_max(x, window, .pad = torch_spatial(t, "pad", nd, 0),
                          .stride = torch_spatial(t, "stride", nd, window.v[0]),
                          .dilation = torch_spatial(t, "dilation", nd, 1)));
}

static void op_meanpool(torch_node *t)
{
    fx_array *x = x_of(t);
    const int nd = fx_ndims(x) - 2;
    const fx_dims window = torch_spatial(t, "k", nd, 1);
    torch_out(t, "y",
              fx_pool_mean(x, window, .pad = torch_spatial(t, "pad", nd, 0),
                           .stride = torch_spatial(t, "stride", nd, window.v[0]),
                           .exclude_pad = !torch_flag(t, "count_include_pad")));
}

static void op_maxpool_layer(torch_node *t)
{
    const int nd = fx_ndims(x_of(t)) - 2;
    if (torch_real(t, "dilation", 1) != 1) {
        op_maxpool(t);
        return;
    }
    torch_out(
        t, "y",
        fx_call(fx_maxpool(torch_spatial(t, "k", nd, 1), .pad = torch_spatial(t, "pad", nd, 0),
                           .stride = torch_spatial(t, "stride", nd, 1)),
                x_of(t)));
}

static void op_meanpool_layer(torch_node *t)
{
    const int nd = fx_ndims(x_of(t)) - 2;
    if (!torch_flag(t, "count_include_pad")) {
        op_meanpool(t);
        return;
    }
    torch_out(
        t, "y",
        fx_call(fx_meanpool(torch_spatial(t, "k", nd, 1), .pad = torch_spatial(t, "pad", nd, 0),
                            .stride = torch_spatial(t, "stride", nd, 1)),
                x_of(t)));
}

static void op_adaptive_max(torch_node *t)
{
    const fx_dims out = torch_spatial(t, "out", fx_ndims(x_of(t)) - 2, 1);
    torch_out(t, "y", fx_call(fx_adaptivemaxpool(out), x_of(t)));
}

static void op_adaptive_mean(torch_node *t)
{
    const fx_dims out = torch_spatial(t, "out", fx_ndims(x_of(t)) - 2, 1);
    torch_out(t, "y", fx_call(fx_adaptivemeanpool(out), x_of(t)));
}

/* Recorded for |x| + 0.1, so that no root of 0 is differentiated. */
static void op_lpnormpool(torch_node *t)
{
    fx_array *x = fx_add(fx_abs(x_of(t)), 0.1);
    const fx_dims window = torch_spatial(t, "k", fx_ndims(x) - 2, 1);
    torch_out(t, "y", fx_call(fx_lpnormpool(window, torch_real(t, "p", 2)), x));
}

/* ---- activations ----------------------------------------------------------------------------- */
static fx_array *celu_a2(fx_array *x)
{
    return fx_celu_alpha(x, 2);
}

#define UNARY(Name, f)                                                                             \
    {                                                                                              \
        Name, GOLD_POINTWISE, NULL, f                                                              \
    }
#define RUN(Name, f)                                                                               \
    {                                                                                              \
        Name, GOLD_POINTWISE, f, NULL                                                              \
    }
#define SUM(Name, f)                                                                               \
    {                                                                                              \
        Name, GOLD_CONTRACTION, f, NULL                                                            \
    }
const torch_op torch_array_ops[] = {
    UNARY("relu", fx_relu),
    UNARY("relu6", fx_relu6),
    UNARY("leakyrelu", fx_leakyrelu),
    UNARY("sigmoid", fx_sigmoid),
    UNARY("tanh", fx_tanh),
    UNARY("swish", fx_swish),
    UNARY("hardswish", fx_hardswish),
    UNARY("lisht", fx_lisht),
    UNARY("softsign", fx_softsign),
    UNARY("trelu", fx_trelu),
    UNARY("elu", fx_elu),
    UNARY("celu", fx_celu),
    UNARY("celu_a2", celu_a2),
    UNARY("selu", fx_selu),
    UNARY("gelu_tanh", fx_gelu),
    UNARY("gelu_erf", fx_gelu_erf),
    UNARY("gelu_sigmoid", fx_gelu_sigmoid),
    UNARY("softplus", fx_softplus),
    UNARY("logcosh", fx_logcosh),
    UNARY("mish", fx_mish),
    UNARY("tanhshrink", fx_tanhshrink),
    UNARY("softshrink", fx_softshrink),
    {"hardsigmoid", GOLD_SINGLE, NULL,
     fx_hardsigmoid}, /* PyTorch's gradient multiplies by 1.0f/6.0f */
    UNARY("logsigmoid", fx_logsigmoid),
    UNARY("hardtanh", fx_hardtanh),
    RUN("add", op_add),
    RUN("sub", op_sub),
    RUN("mul", op_mul),
    RUN("div", op_div),
    RUN("pow", op_pow),
    RUN("maximum", op_maximum),
    RUN("minimum", op_minimum),
    RUN("atan2", op_atan2),
    RUN("softmax", op_reduce),
    RUN("logsoftmax", op_reduce),
    RUN("logsumexp", op_reduce),
    RUN("max", op_reduce),
    RUN("min", op_reduce),
    RUN("gather", op_gather),
    RUN("permute", op_permute),
    RUN("Pad", op_pad),
    RUN("MaxPool", op_maxpool),
    RUN("MaxPool", op_maxpool_layer),
    RUN("AdaptiveMaxPool", op_adaptive_max),
    SUM("sum", op_reduce),
    SUM("mean", op_reduce),
    SUM("var_unbiased", op_reduce),
    SUM("var_biased", op_reduce),
    SUM("std_unbiased", op_reduce),
    SUM("std_biased", op_reduce),
    SUM("prod", op_reduce),
    SUM("norm2", op_reduce),
    SUM("cumsum", op_cumsum),
    SUM("matmul", op_matmul),
    SUM("bmm", op_bmm),
    SUM("cosine_similarity", op_cosine),
    SUM("scatter", op_scatter),
    SUM("Conv1d", op_conv),
    SUM("Conv2d", op_conv),
    SUM("Conv3d", op_conv),
    SUM("Conv1d", op_conv_layer),
    SUM("Conv2d", op_conv_layer),
    SUM("Conv3d", op_conv_layer),
    SUM("Conv1d", op_crosscor_layer),
    SUM("ConvTranspose1d", op_conv_transpose),
    SUM("ConvTranspose1d", op_conv_transpose_layer),
    SUM("Conv2d", op_crosscor_layer),
    SUM("ConvTranspose2d", op_conv_transpose),
    SUM("ConvTranspose2d", op_conv_transpose_layer),
    SUM("Conv3d", op_crosscor_layer),
    SUM("ConvTranspose3d", op_conv_transpose),
    SUM("ConvTranspose3d", op_conv_transpose_layer),
    SUM("MeanPool", op_meanpool),
    SUM("MeanPool", op_meanpool_layer),
    SUM("AdaptiveMeanPool", op_adaptive_mean),
    SUM("LPNormPool", op_lpnormpool),
    {NULL, GOLD_POINTWISE, NULL, NULL},
};
