/* dense.c: Dense, y = act(W·x .+ b).
 *
 * A given weight is used unchanged (shared, any element type); a given bias is converted to the
 * weight's type. A size of 0 is refused although Flux allows it: in C a size that the caller left
 * out is 0.
 */
#include "nn_layer.h"

#include "recorded_part.h"

#include <inttypes.h>

static fx_array *dense_apply(fx_dense_layer *l, fx_array *x)
{
    FXI_SCOPE;
    const fx_status s = fxi_expect_size(l, x, 0, fx_size(l->weight, 1));
    if (s != FX_OK)
        return fx_error_array(s);
    fx_array *y = fxi_weighted(l->weight, fxi_match_type(l->weight, x));
    return fx_keep(fxi_activate(l->act, fxi_biased(y, l->bias, 0)));
}

static void *dense_forward(void *self, int n, void *const *args)
{
    fx_dense_layer *l = self;
    fx_array *x = fxi_weighted_input(self, n, args, l->weight);
    if (fx_is_error(x))
        return x;
    fxi_part p = {.what = "dense", .function = l->act, .in = {x, l->weight, l->bias}};
    if (!fxi_part_repeat(&p)) {
        p.out[0] = dense_apply(l, x);
        fxi_part_note(&p);
    }
    return p.out[0];
}

static bool dense_build(const fx_type *type, const void *options, void *self)
{
    const fx_dense_args *a = options;
    fx_dense_layer *l = self;
    if (!l->weight && (a->in < 1 || a->out < 1))
        return fxi_layer_fail(type, "sizes must be positive, got %" PRId64 " => %" PRId64, a->in,
                              a->out);
    return fxi_weight(type, &l->weight, a->init, 2, (const int64_t[]){a->out, a->in}) &&
           fxi_bias(type, &l->bias, a->bias, l->weight, fx_size(l->weight, 0));
}

static bool dense_recover(const void *self, void *options)
{
    const fx_dense_layer *l = self;
    fx_dense_args *a = options;
    a->in = l->weight ? fx_size(l->weight, 1) : 0;
    a->out = l->weight ? fx_size(l->weight, 0) : 0;
    return l->weight != NULL;
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    O(in, PAIR, .positional = "in => out", .least = 1, .required = true)                                \
    M(weight, CHILD, FX_FROM(weight_array, MATRIX), .flux = "weight", .layout = FX_TORCH_LAYOUT_TRANSPOSED) \
    M(bias, CHILD, FX_FROM(bias_array, VECTOR), .flux = "bias")                                    \
    M(act, SHARED, FX_FROM(act, FUNCTION), .positional = "a function", .flux = "σ")                     \
    O(bias, BIAS, FX_PRESENT(bias), .names = "bias")                                               \
    O(init, INIT, .names = "init initW")
/* clang-format on */
static const fx_flux_form forms[] = {{"weight bias σ", "σ weight bias", 0, 0}, {0}};
FX_LAYER_TYPE(dense, fx_dense_layer, fx_dense_args, FXI_DENSE_ARGS, ROWS,
              (.name = "Dense", .forward = dense_forward, .layout_bytes = 16), .build = dense_build,
              .recover = dense_recover, .semicolon = true, .flux = "Flux.Dense", .forms = forms);
FXI_LIBRARY_LAYER(dense, fx_dense_layer, fx_dense_args)
