/* layernorm.c: LayerNorm: normalises over the first axes, which must have the layer's sizes, then
 * computes γ·x + β.
 *
 * Flux changed the formula twice, and neither Flux's files nor PyTorch's states store which one
 * applies. So each layer records the version of its formula. Source: Ba et al., 2016.
 */
#include "nn_layer.h"

#include <inttypes.h>
#include <string.h>

static void *layernorm_forward(void *self, int n, void *const *args)
{
    fx_layernorm_layer *l = self;
    FXI_SCOPE;
    fx_array *x = fxi_layer_input(self, n, args);
    if (fx_is_error(x))
        return x;
    const fx_status s = fxi_expect_sizes(self, x, &l->size);
    if (s != FX_OK)
        return fx_error_array(s);
    const fx_axes axes = FXI_AXES((1u << (unsigned)l->size.n) - 1);
    fx_array *y = fxi_normalised(x, axes, l->epsilon, l->flux);
    if (l->scale)
        y = fx_add(fx_mul(l->scale, y), l->bias);
    return fx_keep(fxi_activate(l->act, y));
}

static bool layernorm_build(const fx_type *type, const void *options, void *self)
{
    const fx_layernorm_args *a = options;
    fx_layernorm_layer *l = self;
    const int n = (int)l->size.n;
    if (!fxi_positive_sizes(type, &l->size))
        return false;
    if (l->flux != FXI_FLUX_14 && l->flux != FXI_FLUX_15 && l->flux != FXI_FLUX_16)
        return fxi_layer_fail(type, "expects .flux = 0.14, 0.15 or 0.16, got %g", l->flux);
    return !a->affine ||
           (fxi_filled(&l->scale, 1, n, l->size.v) && fxi_filled(&l->bias, 0, n, l->size.v));
}

/* Flux 0.15 changed σ + ε to √(σ² + ε²), and 0.16.11 changed that to √(σ² + ε). */
static bool layernorm_from_flux(const fx_flux_source *source, void *options, void *self)
{
    const fx_layernorm_layer *l = self;
    fx_layernorm_args *a = options;
    a->flux = source->newest < 1500   ? FXI_FLUX_14
              : source->newest < 1611 ? FXI_FLUX_15
                                      : FXI_FLUX_16;
    if (a->size.n == 0 && l->scale) /* up to Flux 0.11 only the scale stores it */
        a->size = (fx_dims){.n = 1, .v = {fx_size(l->scale, 0)}};
    return true;
}

/* To write another formula as Flux's current one: √(σ² + ε²) needs a different ε, and σ + ε has no
 * equivalent. */
static const char *layernorm_to_flux(const void *self, const char *member, double *number)
{
    const fx_layernorm_layer *l = self;
    if (l->flux == FXI_FLUX_15 && strcmp(member, "epsilon") == 0)
        *number *= *number;
    return l->flux == FXI_FLUX_14 ? "it divides by σ + ε, which Flux 0.16 does not; set its member "
                                    "flux to 0.16 to divide "
                                    "by √(σ² + ε) instead"
                                  : NULL;
}

/* Warns, because PyTorch's LayerNorm divides by √(σ² + ε) and its state does not store ε. */
static void layernorm_to_torch(const void *self)
{
    const fx_layernorm_layer *l = self;
    if (l->flux == FXI_FLUX_15)
        fx_message(1,
                   "a LayerNorm divides by √(σ² + ε²), as Flux 0.15 did: in PyTorch give it "
                   "eps=%g.",
                   l->epsilon * l->epsilon);
    if (l->flux == FXI_FLUX_14)
        fx_message(1,
                   "a LayerNorm divides by σ + ε, as Flux until 0.14 did: PyTorch's divides by "
                   "√(σ² + ε), and its results differ where σ is near ε = %g.",
                   l->epsilon);
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    M(size, DIMS, FX_FROM(size, SIZES), .positional = "sizes", .least = 1, .required = true, .flux = "size") \
    M(act, SHARED, FX_FROM(act, FUNCTION), .positional = "a function", .flux = "λ")                     \
    M(scale, CHILD, .torch = "weight")                                                             \
    M(bias, CHILD, .torch = "bias")                                                                \
    O(affine, FLAG, FX_PRESENT(scale), .names = "affine", .flux = "affine")                        \
    M(epsilon, NUMBER, FX_FROM(eps, REAL32), .names = "eps ϵ epsilon", .silent = true, .flux = "ϵ") \
    M(flux, NUMBER, FX_FROM(flux, REAL), .names = "flux")                                          \
    F(diag, SCALE, .flux = "diag")
/* clang-format on */
static const fx_flux_form forms[] = {
    {"diag", NULL, 0, 1199},
    {"λ diag ϵ size affine", "λ diag ϵ #size", 1200, 0},
    {0},
};
FX_LAYER_TYPE(layernorm, fx_layernorm_layer, fx_layernorm_args, FXI_LAYERNORM_ARGS, ROWS,
              /* layout: scale 16, ε 4, one size 8, affine 1, aligned */
              (.name = "LayerNorm", .forward = layernorm_forward, .layout_bytes = 40,
               .flags = FX_TYPE_ONE_LINE),
              .build = layernorm_build, .flux = "Flux.LayerNorm", .forms = forms,
              .from_flux = layernorm_from_flux, .to_flux = layernorm_to_flux,
              .to_torch = layernorm_to_torch);
FXI_LIBRARY_LAYER(layernorm, fx_layernorm_layer, fx_layernorm_args)
