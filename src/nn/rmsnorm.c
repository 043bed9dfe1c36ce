/* rmsnorm.c: RMSNorm, y = act(γ·x/√(mean(x²) + ε)). Source: Zhang, Sennrich, 2019. */
#include "nn_layer.h"
#include "own_gradient.h"

static void *rmsnorm_forward(void *self, int n, void *const *args)
{
    fx_rmsnorm_layer *l = self;
    FXI_SCOPE;
    fx_array *x = fxi_layer_input(self, n, args);
    if (fx_is_error(x))
        return fx_keep(x);
    const fx_status s = fxi_expect_sizes(self, x, &l->size);
    if (s != FX_OK)
        return fx_error_array(s);
    const fx_axes axes = FXI_AXES((1u << (unsigned)l->size.n) - 1);
    fx_array *w = fxi_wide_enough(x), *square = fx_mean(fx_square(w), .dims = axes);
    fx_array *y = fxi_quotient(w, fx_sqrt(fx_add(square, l->epsilon)));
    y = fxi_as_narrow(y, fx_eltype(x));
    if (l->scale)
        y = fx_mul(l->scale, y);
    return fx_keep(fxi_activate(l->act, y));
}

static bool rmsnorm_build(const fx_type *type, const void *options, void *self)
{
    const fx_rmsnorm_args *a = options;
    fx_rmsnorm_layer *l = self;
    const int n = (int)l->size.n;
    if (!fxi_positive_sizes(type, &l->size))
        return false;
    return !a->affine || fxi_filled(&l->scale, 1, n, l->size.v);
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    M(size, DIMS, FX_FROM(size, SIZES), .positional = "sizes", .least = 1, .required = true)            \
    M(act, SHARED, FX_FROM(act, FUNCTION), .positional = "a function")                                  \
    M(scale, CHILD, .torch = "weight")                                                             \
    O(affine, FLAG, FX_PRESENT(scale), .names = "affine")                                          \
    M(epsilon, NUMBER, FX_FROM(eps, REAL), .names = "eps ϵ epsilon")
/* clang-format on */
FX_LAYER_TYPE(rmsnorm, fx_rmsnorm_layer, fx_rmsnorm_args, FXI_RMSNORM_ARGS, ROWS,
              (.name = "RMSNorm", .forward = rmsnorm_forward, .layout_bytes = 24,
               .flags = FX_TYPE_ONE_LINE),
              .build = rmsnorm_build);
FXI_LIBRARY_LAYER(rmsnorm, fx_rmsnorm_layer, fx_rmsnorm_args)
