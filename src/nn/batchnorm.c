/* batchnorm.c: BatchNorm and InstanceNorm, y = act(γ·(x − μ)/√(σ² + ε) + β).
 *
 * BatchNorm takes the statistics of a channel over all observations, InstanceNorm those of each
 * observation. The running statistics of an InstanceNorm move towards the mean over the
 * observations.
 *
 * Mean and variance are two independent reductions. FX_REDUCE_SQDEV keeps the digits of the
 * variance of a batch far from zero, and its gradient omits the derivative by μ, which is 0. If a
 * batch is divided among processes (divided_batch.h), its statistics are those of all parts: one
 * sum over the members for the mean and the number of values, and one for the squares of the
 * differences from it. The gradient passes through both.
 *
 * 16-bit inputs are normalised in Float32, and the result is rounded to their type, as in NNlib and
 * PyTorch. Running statistics are staged, not assigned: the update of the training step, or its
 * end, computes and commits them (after an error they are dropped), and they are not part of the
 * gradient. The second call in a training step starts from the values that the first one staged;
 * inference reads the handles. An empty batch has no statistics: it does not change the running
 * ones, in which a NaN would stay forever, and the gradients of γ and β are 0, as in PyTorch.
 * Sources: Ioffe, Szegedy, 2015; Ulyanov et al., 2016.
 */
#include "nn_layer.h"

#include "divided_batch.h"
#include "recorded_part.h"

#include <inttypes.h>

/* One call: its input and the values that follow from it. */
typedef struct batch {
    fx_array *x; /* floating point, 32 bits or more */
    int ndims, channel_axis;
    int64_t per_channel; /* number of values averaged per channel */
    bool training;
    bool instance;                  /* statistics per observation */
    fx_array *next_mean, *next_var; /* running statistics to stage; NULL: nothing to stage */
} batch;

/* Reshapes a vector of channels so that it broadcasts over x. */
static fx_array *along_channels(const batch *b, fx_array *v)
{
    int64_t sizes[FX_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    sizes[b->channel_axis] = fx_size(v, 0);
    return fxi_reshape(v, b->ndims, sizes);
}

/* The elements from ≤ i < to of a vector, with the sizes of x. */
static fx_array *shaped(fx_array *v, int64_t from, int64_t to, const fx_array *x)
{
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(x); i++)
        sizes[i] = fx_size(x, i);
    return fxi_reshape(fx_slice(v, 0, from, to), fx_ndims(x), sizes);
}

/* A one-element vector of the type of x, on no device, so that it can be joined to any array. */
static fx_array *number_like(const fx_array *x, double value)
{
    return fx_full_dtype(fx_eltype(x), value, 1);
}

/* (1−m)·old + m·factor·new, as a constant in the element type of `old`. */
static fx_array *moved(fx_array *old, double momentum, fx_array *batch_value, double factor)
{
    fx_array *next = fx_mul(momentum, fx_vec(batch_value));
    if (factor != 1)
        next = fx_mul(next, factor);
    next = fx_add(fx_mul(1 - momentum, fx_staged(old)), next);
    return fx_stop_gradient(fx_cast(next, fx_eltype(old)));
}

/* The mean over the observations of all members. sum: the sum over this member's observations, by
 * channel; *total: the number of observations of all members. */
static fx_array *mean_of_members(fx_array *sum, int64_t observations, fx_array **total)
{
    const int64_t c = fx_length(sum);
    fx_array *n = number_like(sum, (double)observations);
    fx_array *all = fxi_over_members(fx_concat(0, fx_vec(sum), n));
    *total = fx_slice(all, 0, c, c + 1);
    return fx_div(fx_slice(all, 0, 0, c), *total);
}

/* The statistics x of each channel; those of InstanceNorm are averaged over the observations. */
static fx_array *per_channel(const batch *b, fx_array *x)
{
    fx_array *total;
    if (!b->instance || !fxi_members())
        return b->instance ? fx_mean(x, .dims = FX_AXES(b->ndims - 1)) : x;
    fx_array *sum = fx_stop_gradient(fx_sum(x, .dims = FX_AXES(b->ndims - 1)));
    return mean_of_members(sum, fx_size(x, b->ndims - 1), &total);
}

/* An InstanceNorm whose batch is empty on this member: it takes part in the operations of the other
 * members, and stages the same statistics. If all batches are empty, these do not change. */
static void moments_of_others(const fx_batchnorm_layer *l, batch *b)
{
    double n = 1;
    for (int i = 0; i < b->channel_axis; i++)
        n *= (double)fx_size(b->x, i);
    fx_array *total, *nothing = fxi_full(fx_eltype(b->x), 0, 1, &l->channels);
    nothing = fx_to(fx_array_device(b->x), nothing);
    fx_array *mean = mean_of_members(nothing, 0, &total);
    fx_array *some = fx_gt(total, 0), *variance = mean_of_members(nothing, 0, &total);
    mean = moved(l->mean, l->momentum, mean, 1);
    variance = moved(l->var, l->momentum, variance, n > 1 ? n / (n - 1) : 1);
    b->next_mean = fx_keep(fx_where(some, mean, fx_staged(l->mean)));
    b->next_var = fx_keep(fx_where(some, variance, fx_staged(l->var)));
}

/* The moments of a batch that is divided among processes. The variance takes the mean as a
 * constant, because its derivative by the mean is 0. */
static void moments_of_all(const fx_batchnorm_layer *l, batch *b, fx_axes axes, fx_array **centred,
                           fx_array **rest, fx_array **variance)
{
    fx_array *sum = fx_sum(b->x, .dims = axes), *n = number_like(b->x, (double)b->per_channel);
    const int64_t c = fx_length(sum);
    fx_array *first = fxi_over_members(fx_concat(0, fx_vec(sum), n));
    fx_array *total = fx_stop_gradient(fx_slice(first, 0, c, c + 1));
    fx_array *mean = shaped(fx_div(first, total), 0, c, sum);
    fx_array *apart = fx_sub(b->x, fx_stop_gradient(mean));
    fx_array *squares = fx_sum(fx_mul(apart, apart), .dims = axes);
    fx_array *error = fx_stop_gradient(fx_sum(apart, .dims = axes));
    fx_array *second =
        fx_div(fxi_over_members(fx_concat(0, fx_vec(squares), fx_vec(error))), total);
    *centred = fx_sub(b->x, mean);
    *rest = fx_stop_gradient(shaped(second, c, 2 * c, sum));
    *variance = fx_sub(shaped(second, 0, c, sum), fx_mul(*rest, *rest));
    if (!l->mean)
        return;
    fx_array *corrected = fx_div(fx_mul(*variance, total), fx_sub(total, 1));
    /* One process refuses a batch with one value per channel, because it has no variance. Here the
     * host does not know the total: the running statistics keep their values instead. */
    fx_array *enough = fx_gt(total, 1);
    mean = moved(l->mean, l->momentum, mean, 1);
    corrected = moved(l->var, l->momentum, corrected, 1);
    b->next_mean = fx_keep(fx_where(enough, mean, fx_staged(l->mean)));
    b->next_var = fx_keep(fx_where(enough, corrected, fx_staged(l->var)));
}

/* Computes x − μ and σ², from the batch or from the running statistics. *rest is the rounding error
 * of μ; NULL if none. */
static void moments(const fx_batchnorm_layer *l, batch *b, fx_array **centred, fx_array **rest,
                    fx_array **variance)
{
    *rest = NULL;
    if (!b->training && l->mean) {
        *centred = fx_sub(b->x, along_channels(b, l->mean));
        *variance = along_channels(b, l->var);
        return;
    }
    const unsigned all = (1u << (unsigned)b->ndims) - 1, channel = 1u << (unsigned)b->channel_axis;
    const fx_axes axes = FXI_AXES(b->instance ? channel - 1 : all & ~channel);
    if (!b->instance && b->training && fxi_members()) {
        moments_of_all(l, b, axes, centred, rest, variance);
        return;
    }
    if (fx_length(b->x) == 0) {
        static const int64_t ones[FX_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
        *centred = b->x;
        *variance = fxi_full(fx_eltype(b->x), 1, b->ndims, ones);
        if (b->instance && b->training && l->mean && fxi_members())
            moments_of_others(l, b);
        return;
    }
    fx_array *mean = fx_mean(b->x, .dims = axes);
    *centred = fx_sub(b->x, mean);
    *rest = fx_mean_rest(b->x, .dims = axes);
    *variance = fx_var(b->x, .dims = axes, .corrected = false);
    if (!b->training || !l->mean)
        return;
    const double n = (double)b->per_channel;
    b->next_mean = fx_keep(moved(l->mean, l->momentum, per_channel(b, mean), 1));
    b->next_var = fx_keep(moved(l->var, l->momentum, per_channel(b, *variance), n / (n - 1)));
}

/* 1/√(v + ε), times `factor` unless that is NULL. */
static fx_array *scale_of(fx_array *v, double epsilon, fx_array *factor)
{
    fx_array *deviation = fx_sqrt(fx_add(v, epsilon));
    return factor ? fx_div(factor, deviation) : fx_div(1, deviation);
}

static fx_array *batchnorm_apply(const fx_batchnorm_layer *l, batch *b, fx_dtype input)
{
    FXI_SCOPE;
    fx_array *centred, *rest, *variance;
    b->x = fxi_wide_enough(b->x);
    moments(l, b, &centred, &rest, &variance);
    fx_array *scale = scale_of(variance, l->epsilon, l->gamma ? along_channels(b, l->gamma) : NULL);
    fx_array *y = fx_mul(centred, scale), *shift = l->beta ? along_channels(b, l->beta) : NULL;
    if (rest) /* per channel, so the cost does not grow with the batch */
        shift = shift ? fx_sub(shift, fx_mul(rest, scale)) : fx_neg(fx_mul(rest, scale));
    if (shift)
        y = fx_add(y, shift);
    return fx_keep(fxi_activate(l->act, fxi_as_narrow(y, input)));
}

/* In a recorded training step, repeats what the layer computed before. With sums over the members
 * of a group, its operations are repeated one by one, because each collective operation must know
 * the previous one. */
static fx_array *batchnorm_repeat_or_apply(const fx_batchnorm_layer *l, batch *b)
{
    const fx_dtype input = fx_eltype(b->x);
    if (fxi_members())
        return batchnorm_apply(l, b, input);
    const bool stages = b->training && l->mean;
    fxi_part p = {.what = b->instance ? "instancenorm" : "batchnorm",
                  .function = l->act,
                  .numbers = {l->epsilon, l->momentum, b->training},
                  .in = {b->x, l->gamma, l->beta, stages ? fx_staged(l->mean) : l->mean,
                         stages ? fx_staged(l->var) : l->var}};
    if (!fxi_part_repeat(&p)) {
        p.out[0] = batchnorm_apply(l, b, input);
        p.out[1] = b->next_mean;
        p.out[2] = b->next_var;
        fxi_part_note(&p);
    }
    b->next_mean = p.out[1];
    b->next_var = p.out[2];
    return p.out[0];
}

static fx_status batchnorm_check(fx_batchnorm_layer *l, batch *b)
{
    if (b->ndims < 2 + b->instance)
        return fxi_layer_mismatch(l, b->x, FX_STATUS_SHAPE,
                                  b->instance ? "ndims(input) >= 3" : "ndims(input) >= 2");
    const fx_status s = fxi_expect_size(l, b->x, b->channel_axis, l->channels);
    if (s != FX_OK)
        return s;
    b->per_channel = fx_length(b->x) / l->channels;
    const int64_t observations = fx_size(b->x, b->ndims - 1);
    if (b->instance)
        b->per_channel = observations ? b->per_channel / observations : 0;
    if (b->training && b->per_channel == 1 && (b->instance || !fxi_members()))
        return fxi_layer_mismatch(l, b->x, FX_STATUS_ARGUMENT,
                                  "more than one value per channel in training");
    return FX_OK;
}

/* Stages both statistics or none. */
static fx_status stage(const fx_batchnorm_layer *l, const batch *b)
{
    fx_array *before = fx_retain(fx_staged(l->mean));
    fx_status s = fx_is_error(b->next_var) ? fx_array_status(b->next_var) : FX_OK;
    s = s == FX_OK ? fx_stage(l->mean, b->next_mean) : s;
    const bool one = s == FX_OK;
    s = s == FX_OK ? fx_stage(l->var, b->next_var) : s;
    if (one && s != FX_OK)
        fx_stage(l->mean, before);
    fx_release(before);
    return s;
}

static void *normed(fx_batchnorm_layer *l, bool instance, int n, void *const *args)
{
    fx_array *x = fxi_layer_input(l, n, args);
    if (fx_is_error(x))
        return x;
    batch b = {.x = x, .ndims = fx_ndims(x), .channel_axis = fx_ndims(x) - 2, .instance = instance};
    b.training = fxi_is_active(l->active);
    const fx_status s = batchnorm_check(l, &b);
    if (s != FX_OK)
        return fx_error_array(s);
    fx_array *y = batchnorm_repeat_or_apply(l, &b);
    const fx_status staged = b.next_mean && !fx_is_error(y) ? stage(l, &b) : FX_OK;
    /* A training step whose statistics are lost fails as a whole. */
    return staged == FX_OK ? y : fx_error_array(staged);
}

static void *batchnorm_forward(void *self, int n, void *const *args)
{
    return normed(self, false, n, args);
}
static void *instancenorm_forward(void *self, int n, void *const *args)
{
    return normed(self, true, n, args);
}

static bool norm_build(const fx_type *type, fx_batchnorm_layer *l, bool affine, bool track_stats,
                       fx_init_fn init_beta, fx_init_fn init_gamma)
{
    const int64_t *c = &l->channels;
    if (*c < 1)
        return fxi_layer_fail(type, "the number of channels must be positive, got %" PRId64, *c);
    if (!init_beta || !init_gamma)
        return fxi_layer_fail(type, "%s is NULL", init_beta ? "init_gamma" : "init_beta");
    return (!affine || (fxi_weight(type, &l->beta, init_beta, 1, c) &&
                        fxi_weight(type, &l->gamma, init_gamma, 1, c))) &&
           (!track_stats || (fxi_filled(&l->mean, 0, 1, c) && fxi_filled(&l->var, 1, 1, c)));
}

/* Converts to the variance. Flux 0.6 stored the standard deviation, with ϵ under its root. Its
 * files are recognised by the combination of 8 fields and chains that are lists, which no later
 * version wrote. Evaluated now, so that a failure refuses the file. */
static fx_array *variance_of(const fx_flux_source *source, fx_array *kept, double epsilon)
{
    if (!kept || source->nfields != 8 || !source->in_lists)
        return kept;
    fx_array *x = fx_sub(fx_mul(kept, kept), epsilon);
    const fx_status status = fx_eval(x);
    return status == FX_OK ? x : fx_error_array(status);
}

/* Before Flux 0.12 no field stores the number of channels. */
static bool norm_from_flux(const fx_flux_source *source, fx_batchnorm_layer *l, double eps,
                           int64_t *io_channels)
{
    fx_array *any = l->beta ? l->beta : l->mean;
    if (*io_channels == 0 && any)
        *io_channels = fx_length(any);
    l->var = variance_of(source, l->var, eps);
    return *io_channels >= 1;
}

/* The two option structs have the same members with other defaults. */
#define BUILD(id)                                                                                  \
    static bool id##_build(const fx_type *type, const void *options, void *self)                   \
    {                                                                                              \
        const fx_##id##_args *a = options;                                                         \
        return norm_build(type, self, a->affine, a->track_stats, a->init_beta, a->init_gamma);     \
    }                                                                                              \
    static bool id##_from_flux(const fx_flux_source *source, void *options, void *self)            \
    {                                                                                              \
        fx_##id##_args *a = options;                                                               \
        return norm_from_flux(source, self, a->eps, &a->channels);                                 \
    }
BUILD(batchnorm)
BUILD(instancenorm)

/* clang-format off */
#define FIRST(M)                                                                                   \
    M(channels, INTEGER, FX_FROM(channels, SIZE), .positional = "a number of channels", .least = 1,     \
      .required = true, .flux = "chs")                                                             \
    M(act, SHARED, FX_FROM(act, FUNCTION), .positional = "a function", .flux = "λ")                     \
    M(beta, CHILD, .flux = "β", .torch = "bias")                                                   \
    M(gamma, CHILD, .flux = "γ", .torch = "weight")                                                \
    M(mean, BUFFER, .flux = "μ", .torch = "running_mean")                                          \
    M(var, BUFFER, .flux = "σ²", .torch = "running_var", .torch_count = "num_batches_tracked")
#define LAST(M)                                                                                    \
    M(epsilon, NUMBER, FX_FROM(eps, REAL32), .names = "eps ϵ epsilon", .silent = true, .flux = "ϵ") \
    M(momentum, NUMBER, FX_FROM(momentum, REAL32), .names = "momentum", .silent = true,            \
      .flux = "momentum")                                                                          \
    M(active, INTEGER, FX_FROM(active, ACTIVE), .names = "active", .flux = "active")
#define INITS(O)                                                                                   \
    O(init_beta, INIT, .names = "initβ init_beta")                                                 \
    O(init_gamma, INIT, .names = "initγ init_gamma")
#define ROWS(M, O, F)                                                                              \
    FIRST(M)                                                                                       \
    O(affine, FLAG, FX_PRESENT(gamma), .names = "affine", .flux = "affine")                        \
    O(track_stats, FLAG, FX_PRESENT(mean), .names = "track_stats", .silent = true,                 \
      .flux = "track_stats")                                                                       \
    LAST(M)                                                                                        \
    INITS(O)
/* Flux prints affine=false, which is the default here. */
#define INSTANCE_ROWS(M, O, F)                                                                     \
    FIRST(M)                                                                                       \
    O(affine, FLAG, FX_PRESENT(gamma), .names = "affine", .shown = true, .flux = "affine")         \
    O(track_stats, FLAG, FX_PRESENT(mean), .names = "track_stats", .flux = "track_stats")          \
    LAST(M)                                                                                        \
    INITS(O)
/* clang-format on */
#define NORM "λ β γ μ σ² ϵ momentum"
static const fx_flux_form forms[] = {
    {NORM, NULL, 1000, 1001},
    {NORM " active", NULL, 0, 1199},
    {NORM " affine track_stats active chs", "λ β ϵ μ", 1200, 0},
    {0},
};
#define NORM_TYPE(id, text, LIST, LAYER_ROWS)                                                      \
    FX_LAYER_TYPE(id, fx_batchnorm_layer, fx_##id##_args, LIST, LAYER_ROWS,                        \
                  (.name = (text), .forward = id##_forward, .layout_bytes = 56,                    \
                   .flags = FX_TYPE_MUTABLE | FX_TYPE_WIDE),                                       \
                  .build = id##_build, .flux = "Flux." text, .forms = forms,                       \
                  .from_flux = id##_from_flux);                                                    \
    FXI_LIBRARY_LAYER(id, fx_batchnorm_layer, fx_##id##_args)
NORM_TYPE(batchnorm, "BatchNorm", FXI_BATCHNORM_ARGS, ROWS)
NORM_TYPE(instancenorm, "InstanceNorm", FXI_INSTANCENORM_ARGS, INSTANCE_ROWS)
