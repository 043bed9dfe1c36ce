/* torch_layer_ops.c: recorded layers and normalisations of PyTorch.
 *
 * PyTorch's weights are out×in in C order, which is in×out here; Flux's Dense wants out×in, so they
 * are transposed, and the gradient comes back through the transposition. Layers that cflux does not
 * have as such are written from operations.
 */
#include "torch_case.h"

#include <string.h>

static fx_array *x_of(const torch_node *t)
{
    return torch_in(t, "x");
}

/* ---- dense layers ---------------------------------------------------------------------------- */
static void op_dense(torch_node *t)
{
    static const struct {
        const char *name;
        fx_function *act;
    } acts[] = {
        {"identity", FX_IDENTITY}, {"relu", FX_RELU}, {"sigmoid", FX_SIGMOID}, {"tanh", FX_TANH}};
    fx_function *act = NULL;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (!strcmp(acts[i].name, torch_text(t, "act", "identity")))
            act = acts[i].act;
    if (!act) {
        t->variant = torch_text(t, "act", "");
        return;
    }
    fx_array *b = torch_in(t, "b");
    void *layer = fx_dense(0, 0, act, .weight_array = fx_transpose(torch_in(t, "w")),
                           .bias_array = b, .bias = b != NULL);
    torch_out(t, "y", fx_call(layer, x_of(t)));
}

static void *linear(const torch_node *t, const char *w, const char *b)
{
    return fx_dense(0, 0, .weight_array = fx_transpose(torch_in(t, w)),
                    .bias_array = torch_in(t, b));
}
static void op_maxout(torch_node *t)
{
    torch_out(t, "y", fx_call(fx_maxout(linear(t, "w1", "b1"), linear(t, "w2", "b2")), x_of(t)));
}
static void op_scale(torch_node *t)
{
    void *layer = fx_scale((fx_dims){.n = 0}, .scale_array = torch_in(t, "s"),
                           .bias_array = torch_in(t, "b"));
    torch_out(t, "y", fx_call(layer, x_of(t)));
}

/* y[o] = Σ x1[i]·w[o,i,j]·x2[j] + b[o]; here w is j×i×o. */
static void op_bilinear(torch_node *t)
{
    void *layer =
        fx_bilinear((fx_dims){.n = 0}, .weight_array = fx_permute(torch_in(t, "w"), 2, 1, 0),
                    .bias_array = torch_in(t, "b"));
    torch_out(t, "y", fx_call(layer, torch_in(t, "x1"), torch_in(t, "x2")));
}

static void op_embedding(torch_node *t)
{
    torch_only(t, "index_base", 0);
    torch_out(t, "y",
              fx_call(fx_embedding(0, 0, .weight_array = torch_in(t, "w")), torch_in(t, "i")));
}

static void op_embeddingbag(torch_node *t)
{
    torch_only(t, "index_base", 0);
    const char *mode = torch_text(t, "mode", "mean");
    fx_function *reduction = !strcmp(mode, "sum")   ? FX_SUM
                             : !strcmp(mode, "max") ? FX_MAXIMUM
                                                    : FX_MEAN;
    void *layer = fx_embeddingbag(0, 0, reduction, .weight_array = torch_in(t, "w"));
    torch_out(t, "y", fx_call(layer, torch_in(t, "i")));
}

static void op_pixelshuffle(torch_node *t)
{
    torch_out(t, "y", fx_pixel_shuffle(x_of(t), (int64_t)torch_real(t, "r", 1)));
}

static void op_pixelshuffle_layer(torch_node *t)
{
    torch_out(t, "y", fx_call(fx_pixelshuffle((int64_t)torch_real(t, "r", 1)), x_of(t)));
}

/* ---- resampling ------------------------------------------------------------------------------ */
/* A scale, or the sizes of the result. */
static void op_upsample(torch_node *t)
{
    fx_array *x = x_of(t);
    const int nd = fx_ndims(x) - 2;
    const bool sized = torch_has(t, "size"), corners = torch_flag(t, "align_corners");
    const char *mode = torch_text(t, "mode", "nearest");
    const fx_dims of = torch_spatial(t, sized ? "size" : "scale", nd, 1), none = FXI_DIMS_NONE;
    torch_out(t, "y",
              fx_resize(x, strcmp(mode, "nearest") ? FX_RESIZE_MODE_LINEAR : FX_RESIZE_MODE_NEAREST,
                        .scale = sized ? none : of, .size = sized ? of : none,
                        .align_corners = corners));
}

/* Flux has linear upsampling of one axis as a function only. */
static void op_upsample_layer(torch_node *t)
{
    fx_array *x = x_of(t);
    const int nd = fx_ndims(x) - 2;
    if (nd == 1) {
        op_upsample(t);
        return;
    }
    const bool sized = torch_has(t, "size");
    const fx_dims of = torch_spatial(t, sized ? "size" : "scale", nd, 1), none = FXI_DIMS_NONE;
    if (!torch_flag(t, "align_corners"))
        t->variant = "edges";
    torch_text(t, "mode", "");
    torch_out(t, "y",
              fx_call(fx_upsample(nd == 2 ? FX_UPSAMPLE_MODE_BILINEAR : FX_UPSAMPLE_MODE_TRILINEAR,
                                  .scale = sized ? none : of, .size = sized ? of : none),
                      x));
}

/* PyTorch's patches are in their own order. */
static void op_fold(torch_node *t)
{
    torch_out(t, "y",
              fx_fold(x_of(t), torch_spatial(t, "out", 2, 1), torch_spatial(t, "k", 2, 1),
                      .stride = torch_spatial(t, "stride", 2, 1), .flipped = true));
}

static void op_grid_sample(torch_node *t)
{
    const char *padding = torch_text(t, "padding_mode", "zeros");
    if (strcmp(padding, "zeros") != 0 && strcmp(padding, "border") != 0)
        t->variant = padding;
    torch_out(
        t, "y",
        fx_grid_sample(x_of(t), torch_in(t, "grid"),
                       strcmp(padding, "zeros") ? FX_GRID_PADDING_BORDER : FX_GRID_PADDING_ZEROS,
                       .align_corners = torch_flag(t, "align_corners")));
}

/* ---- normalisation --------------------------------------------------------------------------- */
static void batchnorm_forward(torch_node *t, fx_batchnorm_layer *layer)
{
    torch_out(t, "y", fx_call(layer, x_of(t)));
    torch_gradients(t);
    for (int i = 0; i < t->grad.n; i++)
        fx_eval(t->grad.items[i].array);
    for (int i = 0; i < t->out.n; i++)
        if (t->out.items[i].array)
            fx_eval(t->out.items[i].array);
}

/* Gradients are computed inside the training step; the running statistics move when it closes. */
static void batchnorm_train(torch_node *t, fx_batchnorm_layer *layer)
{
    FX_STEP;
    batchnorm_forward(t, layer);
    for (int i = 0; i < t->grad.n; i++)
        fx_keep(t->grad.items[i].array);
    for (int i = 0; i < t->out.n; i++)
        if (t->out.items[i].array)
            fx_keep(t->out.items[i].array);
}

static void op_batchnorm(torch_node *t)
{
    fx_array *gamma = torch_in(t, "gamma"), *beta = torch_in(t, "beta");
    torch_only(t, "affine", gamma != NULL);
    if (strncmp(torch_text(t, "running_var", "unbiased"), "unbiased", 8) != 0)
        t->variant = "running_var";
    fx_batchnorm_layer *layer =
        fx_batchnorm(fx_length(torch_in(t, "running_mean")), .affine = gamma != NULL,
                     .eps = torch_real(t, "eps", 1e-5), .momentum = torch_real(t, "momentum", 0.1));
    if (fx_is_error(layer))
        return;
    if (gamma) {
        fx_set(&layer->gamma, gamma);
        fx_set(&layer->beta, beta);
    }
    fx_set(&layer->mean, torch_in(t, "running_mean"));
    fx_set(&layer->var, torch_in(t, "running_var"));
    if (torch_flag(t, "train"))
        batchnorm_train(t, layer);
    else
        batchnorm_forward(t, layer);
    torch_out(t, "new_running_mean", layer->mean);
    torch_out(t, "new_running_var", layer->var);
}

static void op_layernorm(torch_node *t)
{
    fx_array *gamma = torch_in(t, "gamma");
    fx_dims size = {.n = fx_ndims(gamma)};
    for (int i = 0; i < size.n; i++)
        size.v[i] = fx_size(gamma, i);
    const fx_dims said = torch_spatial(t, "normalized_shape", (int)size.n, 0);
    if (torch_has(t, "normalized_shape") &&
        memcmp(said.v, size.v, (size_t)size.n * sizeof *size.v) != 0)
        t->variant = "normalized_shape unlike gamma";
    fx_layernorm_layer *layer = fx_layernorm(size, .eps = torch_real(t, "eps", 1e-5));
    if (fx_is_error(layer))
        return;
    fx_set(&layer->scale, gamma);
    fx_set(&layer->bias, torch_in(t, "beta"));
    torch_out(t, "y", fx_call(layer, x_of(t)));
}

/* Recorded with ε² added to the variance. */
static void op_normalise(torch_node *t)
{
    const double epsilon = torch_real(t, "eps", 1e-5);
    torch_out(t, "y", fx_normalise(x_of(t), FX_AXES(0), epsilon * epsilon));
}

static void op_lp_normalise(torch_node *t)
{
    fx_array *x = x_of(t);
    const fx_axes dims = FX_AXES(fx_ndims(x) - 1 - (int)torch_real(t, "dim", 1));
    const double p = torch_real(t, "p", 2);
    fx_array *norm = p == 2 ? fx_norm(x, .dims = dims)
                            : fx_pow(fx_sum(fx_pow(fx_abs(x), p), .dims = dims), 1 / p);
    torch_out(t, "y", fx_div(x, norm));
}

static void op_groupnorm(torch_node *t)
{
    fx_array *x = x_of(t);
    fx_groupnorm_layer *layer =
        fx_groupnorm(fx_size(x, fx_ndims(x) - 2), (int64_t)torch_real(t, "groups", 1),
                     .eps = torch_real(t, "eps", 1e-5));
    if (fx_is_error(layer))
        return;
    fx_set(&layer->gamma, torch_in(t, "gamma"));
    fx_set(&layer->beta, torch_in(t, "beta"));
    torch_out(t, "y", fx_call(layer, x));
}

static void op_instancenorm(torch_node *t)
{
    fx_instancenorm_layer *layer = fx_instancenorm(
        fx_length(torch_in(t, "running_mean")), .affine = true, .track_stats = true,
        .eps = torch_real(t, "eps", 1e-5), .momentum = torch_real(t, "momentum", 0.1));
    if (fx_is_error(layer))
        return;
    fx_set(&layer->gamma, torch_in(t, "gamma"));
    fx_set(&layer->beta, torch_in(t, "beta"));
    fx_set(&layer->mean, torch_in(t, "running_mean"));
    fx_set(&layer->var, torch_in(t, "running_var"));
    if (torch_flag(t, "use_input_stats"))
        batchnorm_train(t, layer);
    else
        batchnorm_forward(t, layer);
    torch_out(t, "new_running_mean", layer->mean);
    torch_out(t, "new_running_var", layer->var);
}

/* ---- attention ------------------------------------------------------------------------------- */

static void op_attention(torch_node *t)
{
    torch_only(t, "causal", 0);
    torch_only(t, "bias", 0);
    fx_array *q = torch_in(t, "q"), *k = torch_in(t, "k"), *v = torch_in(t, "v");
#define PROJECTION(w) fx_dense(0, 0, .weight_array = fx_transpose(torch_in(t, w)), .bias = false)
    void *layer = fx_multiheadattention(FX_DIMS(0), .nheads = (int64_t)torch_real(t, "heads", 1),
                                        .q_proj = PROJECTION("Wq"), .k_proj = PROJECTION("Wk"),
                                        .v_proj = PROJECTION("Wv"), .attn_drop = fx_dropout(0),
                                        .out_proj = PROJECTION("Wo"));
#undef PROJECTION
    void *pair = fx_call(layer, q, k, v);
    if (fx_is_error(pair))
        return;
    torch_out(t, "y", fx_child(pair, 0));
    torch_out(t, "attn", fx_child(pair, 1));
}

/* The gradients with respect to the layer's own weights, transposed into PyTorch's layout. */
static void attention_gradients(torch_node *t, const fx_multiheadattention_layer *l, void *pair)
{
    fx_array *x[TORCH_MAX_ARRAYS], *g[TORCH_MAX_ARRAYS] = {NULL};
    const fx_dense_layer *of[] = {l->q_proj, l->k_proj, l->v_proj, l->out_proj};
    static const char *const names[] = {"Wq", "Wk", "Wv", "Wo"};
    int weight[TORCH_MAX_ARRAYS];
    for (int i = 0; i < t->grad.n; i++) {
        weight[i] = 0;
        while (weight[i] < 4 && strcmp(t->grad.items[i].name, names[weight[i]]) != 0)
            weight[i]++;
        x[i] = weight[i] < 4 ? of[weight[i]]->weight : torch_in(t, t->grad.items[i].name);
    }
    fx_array *loss = fx_add(fx_sum(fx_mul(fx_child(pair, 0), torch_in(t, "gy"))),
                            fx_sum(fx_mul(fx_child(pair, 1), torch_in(t, "gy_attn"))));
    fx_gradient_of(loss, x, t->grad.n, g);
    for (int i = 0; i < t->grad.n; i++)
        t->grad.items[i].array = weight[i] < 4 ? fx_transpose(g[i]) : g[i];
    t->gradients_taken = true;
}

/* The same weights as PyTorch's state dictionary has them: in one array. */
static void op_attention_state(torch_node *t)
{
    torch_only(t, "causal", 0);
    torch_only(t, "bias", 0);
    fx_array *q = torch_in(t, "q"), *k = torch_in(t, "k"), *v = torch_in(t, "v"),
             *parts[] = {torch_in(t, "Wq"), torch_in(t, "Wk"), torch_in(t, "Wv")};
    fx_multiheadattention_layer *layer =
        fx_multiheadattention(FX_DIMS(fx_size(q, 0)), .nheads = (int64_t)torch_real(t, "heads", 1));
    layer = fx_eltype(q) == FX_DTYPE_F64 ? fx_f64(layer) : layer;
    void *state = fx_named_tuple("in_proj_weight", fxi_concat(1, 3, parts), "out_proj.weight",
                                 torch_in(t, "Wo"));
    void *pair = fx_load_torch_state(layer, state) == FX_OK ? fx_call(layer, q, k, v) : NULL;
    if (!pair || fx_is_error(pair))
        return;
    torch_out(t, "y", fx_child(pair, 0));
    torch_out(t, "attn", fx_child(pair, 1));
    attention_gradients(t, layer, pair);
}

#define RUN(Name, f)                                                                               \
    {                                                                                              \
        Name, GOLD_POINTWISE, f, NULL                                                              \
    }
#define SUM(Name, f)                                                                               \
    {                                                                                              \
        Name, GOLD_CONTRACTION, f, NULL                                                            \
    }
const torch_op torch_layer_ops[] = {
    RUN("Embedding", op_embedding),
    RUN("PixelShuffle", op_pixelshuffle),
    RUN("PixelShuffle", op_pixelshuffle_layer),
    RUN("Scale", op_scale),
    SUM("BatchNorm", op_batchnorm),
    SUM("Bilinear", op_bilinear),
    SUM("Dense", op_dense),
    SUM("EmbeddingBag", op_embeddingbag),
    SUM("Fold", op_fold),
    SUM("GridSample", op_grid_sample),
    SUM("GroupNorm", op_groupnorm),
    SUM("InstanceNorm", op_instancenorm),
    SUM("LayerNorm", op_layernorm),
    SUM("Maxout", op_maxout),
    SUM("MultiHeadAttention", op_attention),
    SUM("MultiHeadAttention", op_attention_state),
    SUM("Upsample", op_upsample),
    SUM("Upsample", op_upsample_layer),
    SUM("lp_normalise", op_lp_normalise),
    SUM("normalise", op_normalise),
    {NULL, GOLD_POINTWISE, NULL, NULL},
};
