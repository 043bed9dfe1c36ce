/* dense.c: Dense, y = act(W·x .+ b).
 *
 * An input with more than two axes is seen as in×(everything else) for the product and gets its
 * axes back afterwards: the same matrix product over all positions, as in Flux. Sizes of the rest
 * are multiplied out, not inferred, so that zero-size inputs work. The given weight is taken as it
 * is (shared, any element type); a given bias is converted to the weight's type. A size that is
 * left out is 0 in C, so 0 is refused: Flux has no such trap.
 */
#include "layer.h"

#include <inttypes.h>

static void *dense_forward(void *self, int n, void *const *args);
static void dense_describe(const void *self, fx_text *text);

static const fx_field dense_fields[] = {
    FXI_LAYER_FIELD(fx_dense_layer, weight, CHILD),
    FXI_LAYER_FIELD(fx_dense_layer, bias, CHILD),
    FXI_LAYER_FIELD(fx_dense_layer, act, SHARED),
};
static fx_dense_layer dense_error;
static const fx_type dense_type = {
    .fxi_size = sizeof(fx_type),
    .name = "Dense",
    .size = sizeof(fx_dense_layer),
    .fields = dense_fields,
    .nfields = FXI_COUNT(dense_fields),
    .forward = dense_forward,
    .describe = dense_describe,
    .error = &dense_error,
    .layout_bytes = 16,
};

/* W·x over the first axis of x. */
static fx_array *product(fx_array *weight, fx_array *x)
{
    const int nd = fx_ndims(x);
    if (nd <= 2)
        return fx_matmul(weight, x);
    int64_t dims[FX_MAX_DIMS], rest = 1;
    for (int i = 1; i < nd; i++)
        rest *= dims[i] = fx_size(x, i);
    dims[0] = fx_size(weight, 0);
    return fxi_reshape(fx_matmul(weight, fx_reshape(x, fx_size(x, 0), rest)), nd, dims);
}

static fx_array *column(fx_array *bias, int ndims)
{
    int64_t dims[FX_MAX_DIMS] = {fx_size(bias, 0), 1, 1, 1, 1, 1, 1, 1};
    return ndims <= 1 ? bias : fxi_reshape(bias, ndims, dims);
}

static void *dense_forward(void *self, int n, void *const *args)
{
    fx_dense_layer *l = self;
    FXI_SCOPE;
    fx_array *x = fxi_layer_input(self, n, args);
    if (fx_is_error(x) || fx_is_error(l->weight))
        return fx_error_array(fx_array_status(fx_is_error(x) ? x : l->weight));
    const fx_status s = fxi_expect_size(self, x, 0, fx_size(l->weight, 1));
    if (s != FX_OK)
        return fx_error_array(s);
    fx_array *y = product(l->weight, fxi_match_type(l->weight, x));
    if (l->bias && !fx_is_error(y))
        y = fx_add(y, column(l->bias, fx_ndims(y)));
    return fx_keep(fxi_activate(l->act, y));
}

static void dense_describe(const void *self, fx_text *text)
{
    const fx_dense_layer *l = self;
    if (!l->weight) {
        fx_text_add(text, "Dense()");
        return;
    }
    fx_text_add(text, "Dense(%" PRId64 " => %" PRId64, fx_size(l->weight, 1),
                fx_size(l->weight, 0));
    fxi_describe_act(text, l->act);
    fx_text_add(text, l->bias ? ")" : "; bias=false)");
}

/* The weight to use; NULL when the options do not fit (recorded). */
static fx_array *dense_weight(const fx_dense_args *a)
{
    if (a->weight) {
        const int64_t out = fx_size(a->weight, 0), in = fx_size(a->weight, 1);
        if (fx_ndims(a->weight) == 2 && (!a->in || a->in == in) && (!a->out || a->out == out))
            return a->weight;
        char got[100];
        fx_summary(a->weight, got, sizeof got);
        fxi_refuse(&dense_type,
                   "weight must be an out×in matrix for %" PRId64 " => %" PRId64 ", got %s", a->in,
                   a->out, got);
        return NULL;
    }
    if (a->in < 1 || a->out < 1) {
        fxi_refuse(&dense_type, "sizes must be positive, got %" PRId64 " => %" PRId64, a->in,
                   a->out);
        return NULL;
    }
    fx_array *w = (a->init ? a->init : fx_glorot_uniform)(2, (const int64_t[]){a->out, a->in});
    if (fx_is_error(w) || (fx_ndims(w) == 2 && fx_size(w, 0) == a->out && fx_size(w, 1) == a->in))
        return w;
    fxi_refuse(&dense_type, "init returned an array of another size than %" PRId64 "×%" PRId64,
               a->out, a->in);
    return NULL;
}

fx_dense_layer *fxi_dense(const fx_dense_args *a)
{
    FXI_SCOPE;
    if (fxi_given_error(a->weight) || fxi_given_error(a->bias))
        return fxi_error_object(&dense_type);
    if (a->no_bias && a->bias)
        return fxi_refuse(&dense_type, "a bias and no_bias were given");
    fx_dense_layer l = {.weight = dense_weight(a), .act = a->act ? a->act : FX_IDENTITY};
    if (fx_is_error(l.weight))
        return fxi_error_object(&dense_type);
    if (!a->no_bias) {
        l.bias = fxi_parameter_vector(&dense_type, a->bias, fx_eltype(l.weight),
                                      fx_size(l.weight, 0), 0);
        if (fx_is_error(l.bias))
            return fxi_error_object(&dense_type);
    }
    return fx_keep((fx_dense_layer *)fxi_new(&dense_type, &l));
}
