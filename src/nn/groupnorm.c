/* groupnorm.c: GroupNorm: normalises groups of channels of one observation.
 *
 * The channel axis is split into (channels per group)×groups, so that the axes of a group come
 * first. Source: Wu, He, 2018.
 */
#include "nn_layer.h"

#include <inttypes.h>

/* A vector of channels as (channels per group)×groups, so that it broadcasts over the split x. */
static fx_array *along_channels(const fx_groupnorm_layer *l, fx_array *v, int ndims)
{
    int64_t sizes[FX_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    sizes[ndims - 2] = l->channels / l->groups;
    sizes[ndims - 1] = l->groups;
    return fxi_reshape(v, ndims + 1, sizes);
}

/* (x − μ)/√(σ² + ε) per group, times γ plus β; computed in Float32 and rounded once for 16-bit
 * inputs. Scale and bias are applied before the result is reshaped to the shape of x, because a
 * reshape between them would end a step of the plan. */
static fx_array *grouped(const fx_groupnorm_layer *l, fx_array *x)
{
    int64_t whole[FX_MAX_DIMS], split[FX_MAX_DIMS + 1];
    const int nd = fx_ndims(x);
    for (int i = 0; i < nd; i++)
        split[i] = whole[i] = fx_size(x, i);
    split[nd - 2] = l->channels / l->groups;
    split[nd - 1] = l->groups;
    split[nd] = whole[nd - 1];
    const fx_axes axes = FXI_AXES((1u << (unsigned)(nd - 1)) - 1);
    fx_array *y = fx_normalise(fxi_reshape(fxi_wide_enough(x), nd + 1, split), axes, l->epsilon);
    if (l->gamma)
        y = fx_add(fx_mul(along_channels(l, l->gamma, nd), y), along_channels(l, l->beta, nd));
    return fxi_reshape(fxi_as_narrow(y, fx_eltype(x)), nd, whole);
}

static void *groupnorm_forward(void *self, int n, void *const *args)
{
    fx_groupnorm_layer *l = self;
    FXI_SCOPE;
    fx_array *x = fxi_layer_input(self, n, args);
    if (fx_is_error(x))
        return fx_keep(x);
    const int nd = fx_ndims(x);
    if (nd < 2 || nd >= FX_MAX_DIMS)
        return fx_error_array(
            fxi_layer_mismatch(self, x, FX_STATUS_SHAPE, "2 to 7 axes in its input"));
    const fx_status s = fxi_expect_size(self, x, nd - 2, l->channels);
    if (s != FX_OK)
        return fx_error_array(s);
    return fx_keep(fxi_activate(l->act, grouped(l, x)));
}

static bool groupnorm_build(const fx_type *type, const void *options, void *self)
{
    const fx_groupnorm_args *a = options;
    fx_groupnorm_layer *l = self;
    const int64_t *c = &l->channels;
    if (*c < 1 || l->groups < 1)
        return fxi_layer_fail(type,
                              "the numbers of channels and groups must be positive, got %" PRId64
                              " and %" PRId64,
                              *c, l->groups);
    if (*c % l->groups)
        return fxi_layer_fail(type,
                              "The number of groups (%" PRId64
                              ") must divide the number of channels (%" PRId64 ")",
                              l->groups, *c);
    if (!a->init_beta || !a->init_gamma)
        return fxi_layer_fail(type, "%s is NULL", a->init_beta ? "init_gamma" : "init_beta");
    return !a->affine || (fxi_weight(type, &l->beta, a->init_beta, 1, c) &&
                          fxi_weight(type, &l->gamma, a->init_gamma, 1, c));
}

/* Before Flux 0.12 no field stores the number of channels. */
static bool groupnorm_from_flux(const fx_flux_source *source, void *options, void *self)
{
    fx_groupnorm_args *a = options;
    fx_groupnorm_layer *l = self;
    (void)source;
    if (a->channels == 0 && l->beta)
        a->channels = fx_length(l->beta);
    l->track_stats = false;
    return a->channels >= 1;
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    M(channels, INTEGER, FX_FROM(channels, SIZE), .positional = "a number of channels", .least = 1,     \
      .required = true, .flux = "chs")                                                             \
    M(groups, INTEGER, FX_FROM(groups, INTEGER), .positional = "a number of groups", .least = 1,        \
      .required = true, .flux = "G")                                                               \
    M(act, SHARED, FX_FROM(act, FUNCTION), .positional = "a function", .flux = "λ")                     \
    M(beta, CHILD, .flux = "β", .torch = "bias")                                                   \
    M(gamma, CHILD, .flux = "γ", .torch = "weight")                                                \
    O(affine, FLAG, FX_PRESENT(gamma), .names = "affine", .flux = "affine")                        \
    M(epsilon, NUMBER, FX_FROM(eps, REAL32), .names = "eps ϵ epsilon", .silent = true, .flux = "ϵ") \
    M(momentum, NUMBER, FX_FROM(momentum, REAL32), .names = "momentum", .silent = true,            \
      .flux = "momentum")                                                                          \
    M(track_stats, FLAG, .flux = "track_stats")                                                    \
    M(active, INTEGER, FX_FROM(active, ACTIVE), .names = "active", .flux = "active")               \
    F(statistics, NOTHING, .flux = "μ σ²")                                                         \
    O(init_beta, INIT, .names = "initβ init_beta")                                                 \
    O(init_gamma, INIT, .names = "initγ init_gamma")
/* clang-format on */
#define NORM "G λ β γ μ σ² ϵ momentum"
static const fx_flux_form forms[] = {
    {NORM, NULL, 1000, 1001},
    {NORM " active", NULL, 0, 1199},
    {NORM " affine track_stats active chs", "λ β ϵ μ", 1200, 0},
    {0},
};
FX_LAYER_TYPE(groupnorm, fx_groupnorm_layer, fx_groupnorm_args, FXI_GROUPNORM_ARGS, ROWS,
              (.name = "GroupNorm", .forward = groupnorm_forward, .layout_bytes = 64,
               .flags = FX_TYPE_MUTABLE | FX_TYPE_WIDE),
              .build = groupnorm_build, .flux = "Flux.GroupNorm", .forms = forms,
              .from_flux = groupnorm_from_flux);
FXI_LIBRARY_LAYER(groupnorm, fx_groupnorm_layer, fx_groupnorm_args)
