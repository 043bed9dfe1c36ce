/* upsample.c: Upsample and PixelShuffle as layers. */
#include "nn_layer.h"

#include <cflux/resample.h>

/* The number of spatial axes that a mode requires; 0: any number (nearest). */
static int axes_of_mode(int64_t mode)
{
    return mode == FX_UPSAMPLE_MODE_BILINEAR ? 2 : mode == FX_UPSAMPLE_MODE_TRILINEAR ? 3 : 0;
}

static void *upsample_forward(void *self, int n, void *const *args)
{
    fx_upsample_layer *l = self;
    fx_array *x = fxi_layer_input(self, n, args);
    if (fx_is_error(x))
        return x;
    const int axes = axes_of_mode(l->mode);
    const fx_status s = axes ? fxi_expect_ndims(self, x, axes + 2) : FX_OK;
    if (s != FX_OK)
        return fx_error_array(s);
    return fx_resize(x, axes ? FX_RESIZE_MODE_LINEAR : FX_RESIZE_MODE_NEAREST, .scale = l->scale,
                     .size = l->size);
}

/* Checks one of scale and size: one number, or one for each axis. */
static bool factors(const fx_type *type, const char *name, const fx_dims *given, int axes)
{
    fx_dims spread;
    if (given->n == 0)
        return true;
    const int count = given->n == 1 ? 1 : axes ? axes : given->n <= 3 ? (int)given->n : 3;
    return fxi_spread_option(type, name, given, count, 1, &spread);
}

static bool upsample_build(const fx_type *type, const void *options, void *self)
{
    const fx_upsample_args *a = options;
    (void)self;
    if (a->mode < FX_UPSAMPLE_MODE_NEAREST || a->mode > FX_UPSAMPLE_MODE_TRILINEAR)
        return fxi_layer_fail(type, "mode=%d is not supported.", (int)a->mode);
    if ((a->scale.n > 0) == (a->size.n > 0))
        return fxi_layer_fail(type, "Either scale or size should be specified (but not both).");
    const int axes = axes_of_mode(a->mode);
    return factors(type, "scale", &a->scale, axes) && factors(type, "size", &a->size, axes);
}

/* Flux's struct stores its options inline. */
static int64_t upsample_bytes(const void *self)
{
    const fx_upsample_layer *l = self;
    return 8 * (l->scale.n + l->size.n);
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    M(mode, INTEGER, FX_FROM(mode, WORD), .positional = ":nearest, :bilinear or :trilinear",            \
      .words = "nearest bilinear trilinear", .shown = true)                                                       \
    M(scale, DIMS, FX_FROM(scale, FACTORS), .positional = "a scale", .names = "scale", .least = 1,      \
      .flux = "scale")                                                                             \
    M(size, DIMS, FX_FROM(size, FACTORS), .names = "size", .least = 1, .flux = "size")
/* clang-format on */
static const fx_flux_form upsample_forms[] = {{"scale size", ":mode scale size", 0, 0}, {0}};
FX_LAYER_TYPE(upsample, fx_upsample_layer, fx_upsample_args, FXI_UPSAMPLE_ARGS, ROWS,
              (.name = "Upsample", .forward = upsample_forward), .build = upsample_build,
              .layout_bytes = upsample_bytes, .flux = "Flux.Upsample", .forms = upsample_forms);
FXI_LIBRARY_LAYER(upsample, fx_upsample_layer, fx_upsample_args)

/* ---- PixelShuffle ---------------------------------------------------------------------------- */

static void *pixelshuffle_forward(void *self, int n, void *const *args)
{
    fx_array *x = fxi_layer_input(self, n, args);
    return fx_is_error(x) ? x : fx_pixel_shuffle(x, ((fx_pixelshuffle_layer *)self)->r);
}

static bool pixelshuffle_build(const fx_type *type, const void *options, void *self)
{
    const fx_pixelshuffle_args *a = options;
    (void)self;
    return a->r >= 1 ||
           fxi_layer_fail(type, "the factor must be positive, got %lld", (long long)a->r);
}

/* clang-format off */
#define SHUFFLE_ROWS(M, O, F)                                                                      \
    M(r, INTEGER, FX_FROM(r, INTEGER), .positional = "a factor", .least = 1, .required = true,          \
      .flux = "r")
/* clang-format on */
static const fx_flux_form pixelshuffle_forms[] = {{"r", "", 0, 0}, {0}};
FX_LAYER_TYPE(pixelshuffle, fx_pixelshuffle_layer, fx_pixelshuffle_args, FXI_PIXELSHUFFLE_ARGS,
              SHUFFLE_ROWS,
              (.name = "PixelShuffle", .forward = pixelshuffle_forward, .layout_bytes = 8),
              .build = pixelshuffle_build, .flux = "Flux.PixelShuffle",
              .forms = pixelshuffle_forms);
FXI_LIBRARY_LAYER(pixelshuffle, fx_pixelshuffle_layer, fx_pixelshuffle_args)
