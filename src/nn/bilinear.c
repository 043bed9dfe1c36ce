/* bilinear.c: Bilinear, y[i] = act(xᵀ·W[i,:,:]·z + b[i]).
 *
 * As in Flux: W·x along the second axis of W first, one matrix product of (out·in2)×in1 with
 * in1×batch, then one product with z per observation. W is permuted lazily.
 */
#include "nn_layer.h"

#include <inttypes.h>

/* Σ_ij W[o,i,j]·x[i,b]·z[j,b] for matrices x and z. */
static fx_array *contracted(fx_array *w, fx_array *x, fx_array *z)
{
    const int64_t out = fx_size(w, 0), in1 = fx_size(w, 1), in2 = fx_size(w, 2),
                  batch = fx_size(x, 1);
    fx_array *m = fx_reshape(fx_permute(w, 0, 2, 1), out * in2, in1);
    fx_array *part = fx_reshape(fx_matmul(m, x), out, in2, batch);
    return fx_reshape(fx_batched_mul(part, fx_unsqueeze(z, 1)), out, batch);
}

/* x with all axes but the first joined. */
static fx_array *as_matrix(fx_array *x)
{
    int64_t rest = 1;
    for (int i = 1; i < fx_ndims(x); i++)
        rest *= fx_size(x, i);
    return fx_reshape(x, fx_size(x, 0), rest);
}

static fx_status inputs_fit(void *self, fx_array *w, fx_array *x, fx_array *z)
{
    fx_status s = fxi_expect_size(self, x, 0, fx_size(w, 1));
    if (s == FX_OK)
        s = fxi_expect_size(self, z, 0, fx_size(w, 2));
    bool same = fx_ndims(x) == fx_ndims(z);
    for (int i = 1; i < fx_ndims(x) && same; i++)
        same = fx_size(x, i) == fx_size(z, i);
    return s != FX_OK || same ? s
                              : fxi_layer_mismatch(self, z, FX_STATUS_SHAPE,
                                                   "two inputs with the same batch sizes");
}

static fx_array *combined(void *self, fx_array *x, fx_array *z)
{
    const fx_bilinear_layer *l = self;
    const fx_status s = inputs_fit(self, l->weight, x, z);
    if (s != FX_OK)
        return fx_error_array(s);
    int64_t sizes[FX_MAX_DIMS] = {fx_size(l->weight, 0)};
    for (int i = 1; i < fx_ndims(x); i++)
        sizes[i] = fx_size(x, i);
    fx_array *y = contracted(l->weight, as_matrix(fxi_match_type(l->weight, x)),
                             as_matrix(fxi_match_type(l->weight, z)));
    y = fxi_biased(fxi_reshape(y, fx_ndims(x), sizes), l->bias, 0);
    return fxi_activate(l->act, y);
}

static void *bilinear_forward(void *self, int n, void *const *args)
{
    const fx_bilinear_layer *l = self;
    const fxi_inputs in = fxi_inputs_of(n, args);
    FXI_SCOPE;
    if (in.n != 1 && in.n != 2)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, "Bilinear", "takes one or two inputs, got %d", in.n));
    fx_array *x = fxi_weighted_input(self, 1, in.items, l->weight);
    fx_array *z = in.n == 1 ? x : fxi_weighted_input(self, 1, in.items + 1, l->weight);
    if (fx_is_error(x) || fx_is_error(z))
        return fx_is_error(x) ? x : z;
    return fx_keep(combined(self, x, z));
}

static bool bilinear_build(const fx_type *type, const void *options, void *self)
{
    const fx_bilinear_args *a = options;
    fx_bilinear_layer *l = self;
    const int64_t in1 = a->in.v[0], in2 = a->in.n == 1 ? in1 : a->in.v[1];
    const bool sizes = (a->in.n == 1 || a->in.n == 2) && in1 > 0 && in2 > 0 && a->out > 0;
    if (!l->weight && !sizes)
        return fxi_layer_fail(type,
                              "sizes must be positive, got (%" PRId64 ", %" PRId64 ") => %" PRId64,
                              in1, in2, a->out);
    const int64_t any[3] = {0}, wanted[3] = {a->out, in1, in2};
    return fxi_weight(type, &l->weight, a->init, 3, sizes ? wanted : any) &&
           fxi_bias(type, &l->bias, a->bias, l->weight, fx_size(l->weight, 0));
}

static bool bilinear_recover(const void *self, void *options)
{
    const fx_bilinear_layer *l = self;
    fx_bilinear_args *a = options;
    if (!l->weight)
        return false;
    a->in = (fx_dims){2, {fx_size(l->weight, 1), fx_size(l->weight, 2)}};
    a->out = fx_size(l->weight, 0);
    return true;
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    O(in, TWO_PAIR, .positional = "(in1, in2) => out", .least = 1, .required = true)                    \
    M(weight, CHILD, FX_FROM(weight_array, ARRAY), .flux = "weight",                               \
      .layout = FX_TORCH_LAYOUT_TRANSPOSED)                                                        \
    M(bias, CHILD, FX_FROM(bias_array, VECTOR), .flux = "bias")                                    \
    M(act, SHARED, FX_FROM(act, FUNCTION), .positional = "a function", .flux = "σ")                     \
    O(bias, BIAS, FX_PRESENT(bias), .names = "bias")                                               \
    O(init, INIT, .names = "init")
/* clang-format on */
static const fx_flux_form forms[] = {{"weight bias σ", "σ weight bias", 0, 0}, {0}};
FX_LAYER_TYPE(bilinear, fx_bilinear_layer, fx_bilinear_args, FXI_BILINEAR_ARGS, ROWS,
              (.name = "Bilinear", .forward = bilinear_forward, .layout_bytes = 16),
              .build = bilinear_build, .recover = bilinear_recover, .semicolon = true,
              .flux = "Flux.Bilinear", .forms = forms);
FXI_LIBRARY_LAYER(bilinear, fx_bilinear_layer, fx_bilinear_args)
