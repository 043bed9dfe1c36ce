/* norm_layers.c: BatchNorm, LayerNorm and the function they share, fx_normalise.
 *
 * Mean and variance are two reductions that do not wait for each other; the variance of a batch far
 * from zero keeps its digits (FX_FOLD_SQDEV), and what x − μ adds to its gradient is known to be 0.
 * 16-bit inputs are normalised in Float32. Running statistics are staged, never assigned: an update
 * of the step, or its close, computes and commits them (after an error they are dropped), and the
 * gradient does not see them. Two calls in one step stage on top of each other; inference reads the
 * handles. An empty batch leaves them alone: its mean is NaN, and one NaN would stay in them for
 * good. Source: Ioffe, Szegedy, 2015; Ba et al., 2016; Flux's normalise.jl (ε added to the
 * variance, 0.16.11).
 */
#include "layer.h"

#include <inttypes.h>

static bool is_half(fx_dtype t)
{
    return t == FX_DTYPE_F16 || t == FX_DTYPE_BF16;
}
static bool is_integer(fx_dtype t)
{
    return t == FX_DTYPE_BOOL || t == FX_DTYPE_U8 || t == FX_DTYPE_I32 || t == FX_DTYPE_I64;
}

/* x in a type in which means and squares are safe. */
static fx_array *working(fx_array *x)
{
    return is_half(fx_eltype(x)) || is_integer(fx_eltype(x)) ? fx_cast(x, FX_DTYPE_F32) : x;
}

/* 1/√(v + ε) times `factor`, which may be NULL. */
static fx_array *scale_of(fx_array *v, double epsilon, fx_array *factor)
{
    fx_array *deviation = fx_sqrt(fx_add(v, epsilon));
    return factor ? fx_div(factor, deviation) : fx_div(1, deviation);
}

/* ---- normalise -------------------------------------------------------------------------- */

fx_array *fx_normalise(fx_array *x, unsigned dims, double epsilon)
{
    FXI_SCOPE;
    if (fx_is_error(x))
        return fx_cast(x, FX_DTYPE_F32); /* records what is wrong with NULL, passes an error on */
    fx_array *w = working(x);
    fx_array *centred = fx_sub(w, fx_mean(w, .dims = dims));
    fx_array *variance = fx_var(w, .dims = dims, .uncorrected = true);
    fx_array *y = fx_div(centred, fx_sqrt(fx_add(variance, epsilon)));
    return fx_keep(is_half(fx_eltype(x)) ? fx_cast(y, fx_eltype(x)) : y);
}

/* ---- LayerNorm -------------------------------------------------------------------------- */

static void *layernorm_forward(void *self, int n, void *const *args);
static void layernorm_describe(const void *self, fx_text *text);

static const fx_field layernorm_fields[] = {
    FXI_LAYER_FIELD(fx_layernorm_layer, act, SHARED),
    FXI_LAYER_FIELD(fx_layernorm_layer, scale, CHILD),
    FXI_LAYER_FIELD(fx_layernorm_layer, bias, CHILD),
    FXI_LAYER_FIELD(fx_layernorm_layer, epsilon, NUMBER),
    FXI_LAYER_FIELD(fx_layernorm_layer, size, DIMS),
};
static fx_layernorm_layer layernorm_error;
static const fx_type layernorm_type = {
    .fxi_size = sizeof(fx_type),
    .name = "LayerNorm",
    .size = sizeof(fx_layernorm_layer),
    .fields = layernorm_fields,
    .nfields = FXI_COUNT(layernorm_fields),
    .forward = layernorm_forward,
    .describe = layernorm_describe,
    .error = &layernorm_error,
    .flags = FX_TYPE_ONE_LINE,
    .layout_bytes = 40, /* Scale 16, ε 4, one size 8, affine 1, aligned */
};

static void *layernorm_forward(void *self, int n, void *const *args)
{
    fx_layernorm_layer *l = self;
    FXI_SCOPE;
    fx_array *x = fxi_layer_input(self, n, args);
    if (fx_is_error(x))
        return x;
    for (int i = 0; i < (int)l->size.n; i++) {
        const fx_status s = fxi_expect_size(self, x, i, l->size.v[i]);
        if (s != FX_OK)
            return fx_error_array(s);
    }
    fx_array *y = fx_normalise(x, (1u << (unsigned)l->size.n) - 1, l->epsilon);
    if (l->scale)
        y = fx_add(fx_mul(l->scale, y), l->bias);
    return fx_keep(fxi_activate(l->act, y));
}

static void layernorm_describe(const void *self, fx_text *text)
{
    const fx_layernorm_layer *l = self;
    fx_text_add(text, "LayerNorm(");
    for (int64_t i = 0; i < l->size.n; i++)
        fx_text_add(text, "%s%" PRId64, i ? ", " : "", l->size.v[i]);
    fxi_describe_act(text, l->act);
    fx_text_add(text, l->scale ? ")" : ", affine=false)");
}

fx_layernorm_layer *fxi_layernorm(const fx_layernorm_args *a)
{
    const int64_t n = a->size.n;
    bool ok = n >= 1 && n <= FX_MAX_DIMS;
    for (int64_t i = 0; ok && i < n; i++)
        ok = a->size.v[i] >= 1;
    if (!ok)
        return fxi_refuse(&layernorm_type, "takes 1 to %d positive sizes", FX_MAX_DIMS);
    FXI_SCOPE;
    fx_layernorm_layer l = {.act = a->act ? a->act : FX_IDENTITY, .size = a->size};
    l.epsilon = fxi_or_default(a->epsilon, 1e-5);
    if (!a->no_affine) {
        l.scale = fxi_full(FX_DTYPE_F32, 1, (int)n, a->size.v);
        l.bias = fxi_full(FX_DTYPE_F32, 0, (int)n, a->size.v);
        if (fx_is_error(l.scale) || fx_is_error(l.bias))
            return fxi_error_object(&layernorm_type);
    }
    return fx_keep((fx_layernorm_layer *)fxi_new(&layernorm_type, &l));
}

/* ---- BatchNorm -------------------------------------------------------------------------- */

static void *batchnorm_forward(void *self, int n, void *const *args);
static void batchnorm_describe(const void *self, fx_text *text);

static const fx_field batchnorm_fields[] = {
    FXI_LAYER_FIELD(fx_batchnorm_layer, act, SHARED),
    FXI_LAYER_FIELD(fx_batchnorm_layer, beta, CHILD),
    FXI_LAYER_FIELD(fx_batchnorm_layer, gamma, CHILD),
    FXI_LAYER_FROZEN(fx_batchnorm_layer, mean),
    FXI_LAYER_FROZEN(fx_batchnorm_layer, var),
    FXI_LAYER_FIELD(fx_batchnorm_layer, epsilon, NUMBER),
    FXI_LAYER_FIELD(fx_batchnorm_layer, momentum, NUMBER),
    FXI_LAYER_FIELD(fx_batchnorm_layer, channels, INTEGER),
    FXI_LAYER_FIELD(fx_batchnorm_layer, active, INTEGER),
};
static fx_batchnorm_layer batchnorm_error;
const fx_type fxi_batchnorm_type = {
    .fxi_size = sizeof(fx_type),
    .name = "BatchNorm",
    .size = sizeof(fx_batchnorm_layer),
    .fields = batchnorm_fields,
    .nfields = FXI_COUNT(batchnorm_fields),
    .forward = batchnorm_forward,
    .describe = batchnorm_describe,
    .error = &batchnorm_error,
    .flags = FX_TYPE_MUTABLE | FX_TYPE_WIDE,
    .layout_bytes = 56,
};

/* What one call knows about its input. */
typedef struct batch {
    fx_array *x; /* floating point, 32 bits or more */
    int ndims, channel_axis;
    int64_t per_channel; /* values that are averaged */
    bool training;
    fx_array *next_mean, *next_var; /* running statistics to stage; NULL for none */
} batch;

/* A vector of channels in the shape that broadcasts over x. */
static fx_array *along_channels(const batch *b, fx_array *v)
{
    int64_t dims[FX_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    dims[b->channel_axis] = fx_size(v, 0);
    return fxi_reshape(v, b->ndims, dims);
}

/* (1−m)·old + m·factor·new, as a constant in old's type. */
static fx_array *moved(fx_array *old, double momentum, fx_array *batch_value, double factor)
{
    fx_array *next = fx_mul(fx_mul(momentum, fx_vec(batch_value)), factor);
    next = fx_add(fx_mul(1 - momentum, fx_staged(old)), next);
    return fx_stop_gradient(fx_cast(next, fx_eltype(old)));
}

/* x − μ and σ² of this call: of the batch, or the running ones. */
static void moments(const fx_batchnorm_layer *l, batch *b, fx_array **centred, fx_array **variance)
{
    if (!b->training && l->mean) {
        *centred = fx_sub(b->x, along_channels(b, l->mean));
        *variance = along_channels(b, l->var);
        return;
    }
    const unsigned all = (1u << (unsigned)b->ndims) - 1, axes = all & ~FX_AXIS(b->channel_axis);
    fx_array *mean = fx_mean(b->x, .dims = axes);
    *centred = fx_sub(b->x, mean);
    *variance = fx_var(b->x, .dims = axes, .uncorrected = true);
    if (!b->training || !l->mean || b->per_channel == 0)
        return;
    const double n = (double)b->per_channel;
    b->next_mean = fx_keep(moved(l->mean, l->momentum, mean, 1));
    b->next_var = fx_keep(moved(l->var, l->momentum, *variance, n / (n - 1)));
}

static fx_array *batchnorm_apply(const fx_batchnorm_layer *l, batch *b, fx_dtype input)
{
    FXI_SCOPE;
    fx_array *centred, *variance;
    b->x = working(b->x);
    moments(l, b, &centred, &variance);
    fx_array *y = fx_mul(
        centred, scale_of(variance, l->epsilon, l->gamma ? along_channels(b, l->gamma) : NULL));
    if (l->beta)
        y = fx_add(y, along_channels(b, l->beta));
    const fx_dtype other = l->gamma ? fx_eltype(l->gamma) : input;
    if (is_half(input) && is_half(fx_dtype_promote(input, other)))
        y = fx_cast(y, input);
    return fx_keep(fxi_activate(l->act, y));
}

static fx_status batchnorm_check(fx_batchnorm_layer *l, batch *b)
{
    if (b->ndims < 2)
        return fxi_layer_mismatch(l, b->x, FX_STATUS_SHAPE, "ndims(input) >= 2");
    const fx_status s = fxi_expect_size(l, b->x, b->channel_axis, l->channels);
    if (s != FX_OK)
        return s;
    b->per_channel = fx_length(b->x) / l->channels;
    if (b->training && b->per_channel == 1)
        return fxi_layer_mismatch(l, b->x, FX_STATUS_ARGUMENT,
                                  "more than one value per channel in training");
    return FX_OK;
}

static void *batchnorm_forward(void *self, int n, void *const *args)
{
    fx_batchnorm_layer *l = self;
    fx_array *x = fxi_layer_input(self, n, args);
    if (fx_is_error(x))
        return x;
    batch b = {.x = x, .ndims = fx_ndims(x), .channel_axis = fx_ndims(x) - 2};
    b.training = l->active == FX_ACTIVE_AUTO ? fx_training() : l->active == FX_ACTIVE_ON;
    const fx_status s = batchnorm_check(l, &b);
    if (s != FX_OK)
        return fx_error_array(s);
    fx_array *y = batchnorm_apply(l, &b, fx_eltype(x));
    if (b.next_mean && !fx_is_error(y)) {
        fx_stage(l->mean, b.next_mean);
        fx_stage(l->var, b.next_var);
    }
    return y;
}

static void batchnorm_describe(const void *self, fx_text *text)
{
    const fx_batchnorm_layer *l = self;
    fx_text_add(text, "BatchNorm(%" PRId64, l->channels);
    fxi_describe_act(text, l->act);
    fx_text_add(text, l->gamma ? "" : ", affine=false");
    if (l->active != FX_ACTIVE_AUTO)
        fx_text_add(text, ", active=%s", l->active == FX_ACTIVE_ON ? "true" : "false");
    fx_text_add(text, ")");
}

fx_batchnorm_layer *fxi_batchnorm(const fx_batchnorm_args *a)
{
    const int64_t c = a->channels;
    if (c < 1)
        return fxi_refuse(&fxi_batchnorm_type,
                          "the number of channels must be positive, got %" PRId64, c);
    FXI_SCOPE;
    fx_batchnorm_layer l = {
        .act = a->act ? a->act : FX_IDENTITY, .channels = c, .active = (int64_t)a->active};
    l.epsilon = fxi_or_default(a->epsilon, 1e-5);
    l.momentum = fxi_or_default(a->momentum, 0.1);
    fx_array **const parts[] = {&l.beta, &l.gamma, &l.mean, &l.var};
    for (int i = 0; i < FXI_COUNT(parts); i++) {
        if (i < 2 ? a->no_affine : a->no_track)
            continue;
        *parts[i] = fxi_full(FX_DTYPE_F32, i % 2, 1, &c); /* β and μ begin at 0, γ and σ² at 1 */
        if (fx_is_error(*parts[i]))
            return fxi_error_object(&fxi_batchnorm_type);
    }
    return fx_keep((fx_batchnorm_layer *)fxi_new(&fxi_batchnorm_type, &l));
}
