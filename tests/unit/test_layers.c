/* Tests of src/nn: Dense, Chain, Conv, pools, BatchNorm, LayerNorm, Dropout, modes.
 *
 * Expected values are loops in double over the definitions written out here, Flux's formulas for
 * the running statistics, statistical bounds for dropout, and Flux's own texts for descriptions and
 * errors. Gradients are compared with central differences in Float64.
 */
#include <cflux.h>

#include "composite_check.h"
#include "memory.h"

#include <stdio.h>

/* ---- helpers --------------------------------------------------------------------------------- */

/* Uneven numbers in (−1, 1), the same everywhere. */
static double number(int64_t i)
{
    return sin(0.7 + 1.3 * (double)i + 0.01 * (double)(i * i % 17));
}

static fx_array *numbers(fx_dtype dtype, int64_t from, int ndims, const int64_t *sizes)
{
    double v[CHECK_MOST];
    int64_t n = 1;
    for (int i = 0; i < ndims; i++)
        n *= sizes[i];
    assert_true(n <= CHECK_MOST);
    for (int64_t i = 0; i < n; i++)
        v[i] = number(from + i);
    return fx_cast(fxi_from(FX_DTYPE_F64, v, ndims, sizes), dtype);
}
#define NUMBERS(dtype, from, ...)                                                                  \
    numbers(dtype, from, COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__})
#define DESCRIBES(object, text)                                                                    \
    do {                                                                                           \
        char described[300];                                                                       \
        fx_summary((object), described, sizeof described);                                         \
        assert_string_equal(described, (text));                                                    \
        assert_int_equal(fx_error_status(), FX_OK);                                                \
    } while (0)

/* A constructor failed with this text. Objects that are made from its result are errors, without a
 * crash. */
static void check_refused(void *layer, const char *text)
{
    const fx_error e = fx_error_take();
    if (e.status == FX_OK || !strstr(e.message, text))
        fail_msg("got %s \"%s\", expected \"%s\"", fx_status_name(e.status), e.message, text);
    assert_non_null(layer);
    assert_true(fx_is_error(fx_call(layer, fx_ones(2, 2))));
    fx_error_take();
}

/* ---- Dense ----------------------------------------------------------------------------------- */

/* y[o, j] = act(Σ_i W[o, i]·x[i, j] + b[o]) */
static void dense_expected(const double *w, const double *b, const double *x, int out, int in,
                           int n, double *y)
{
    for (int j = 0; j < n; j++)
        for (int o = 0; o < out; o++) {
            double s = b ? b[o] : 0;
            for (int i = 0; i < in; i++)
                s += w[o + out * i] * x[i + in * j];
            y[o + out * j] = tanh(s);
        }
}

static void test_dense_values(void **state)
{
    (void)state;
    FX_SCOPE;
    double w[15], b[3], x[60], want[36];
    for (int i = 0; i < 15; i++)
        w[i] = number(i);
    for (int i = 0; i < 3; i++)
        b[i] = number(100 + i);
    for (int i = 0; i < 60; i++)
        x[i] = number(200 + i);
    fx_array *W = fx_from(FX_DTYPE_F64, w, 3, 5), *B = fx_from(FX_DTYPE_F64, b, 3);
    fx_dense_layer *l = fx_dense(0, 0, FX_TANH, .weight_array = W, .bias_array = B);
    assert_ptr_equal(l->weight, W);
    dense_expected(w, b, x, 3, 5, 12, want);
    CHECK(fx_call(l, fx_from(FX_DTYPE_F64, x, 5)), (3), 1e-14, want[0], want[1], want[2]);
    fx_array *y = fx_call(l, fx_from(FX_DTYPE_F64, x, 5, 4, 3)); /* the other axes come back */
    check_dims("dense 3-d", y, 3, (const int64_t[]){3, 4, 3});
    check_array("dense 3-d", y, 36, want, 1e-14, 1e-14);
    y = fx_call(l, fx_from(FX_DTYPE_F64, x, 5, 2, 2, 3));
    check_dims("dense 4-d", y, 4, (const int64_t[]){3, 2, 2, 3});
    check_array("dense 4-d", y, 36, want, 1e-14, 1e-14);
    dense_expected(w, NULL, x, 3, 5, 2, want);
    y = fx_call(fx_dense(5, 3, FX_TANH, .weight_array = W, .bias = false),
                fx_from(FX_DTYPE_F64, x, 5, 2));
    check_array("dense without bias", y, 6, want, 1e-14, 1e-14);
    check_dims("empty batch", fx_call(l, fxi_full(FX_DTYPE_F64, 0, 3, (const int64_t[]){5, 0, 2})),
               3, (const int64_t[]){3, 0, 2});
    assert_int_equal(fx_error_status(), FX_OK);
}

static void test_dense_construction(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *l = fx_dense(10, 5, FX_RELU);
    check_dims("weight", l->weight, 2, (const int64_t[]){5, 10});
    CHECK(l->bias, (5), 0, 0, 0, 0, 0, 0);
    assert_int_equal(fx_eltype(l->weight), FX_DTYPE_F32);
    double w[50];
    check_read("weight", l->weight, w, 50);
    for (int i = 0; i < 50; i++)
        assert_true(fabs(w[i]) <= sqrt(6.0 / 15)); /* glorot_uniform */
    CHECK(fx_dense(2, 2, .init = fx_ones_init)->weight, (2, 2), 0, 1, 1, 1, 1);
    fx_array *b64 = fx_from(FX_DTYPE_F64, ((const double[]){1, 2}), 2);
    assert_int_equal(fx_eltype(fx_dense(3, 2, .bias_array = b64)->bias),
                     FX_DTYPE_F32); /* the weight's type */
    DESCRIBES(l, "Dense(10 => 5, relu)");
    DESCRIBES(fx_dense(10, 5, FX_RELU, .bias = false), "Dense(10 => 5, relu; bias=false)");
    DESCRIBES(fx_dense(10, 5, .bias = false), "Dense(10 => 5; bias=false)");
    check_refused(fx_dense(10, 0), "Dense: sizes must be positive, got 10 => 0");
    check_refused(fx_dense(-1, 3), "got -1 => 3");
    check_refused(fx_dense(4, 2, .weight_array = fx_ones(2, 5)),
                  "weight must be an array of size 2×4, got 2×5");
    check_refused(fx_dense(3, 2, .bias_array = fx_ones(3)),
                  "expected bias of size (2,), got 3-element");
    check_refused(
        fx_dense(3, 2, .init = fx_ones_init, .weight_array = fx_add(fx_ones(2), fx_ones(3))),
        "add");
}

static void test_dense_errors(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *l = fx_dense(10, 5);
    check_error(fx_call(l, fx_ones(3, 2)), FX_STATUS_SHAPE,
                "layer Dense(10 => 5) expects size(input, 1) == 10, but got 3×2 Matrix{Float32}");
    check_error(fx_call(l, fx_ones(10), fx_ones(10)), FX_STATUS_ARGUMENT,
                "Dense: expects one array, got several");
    check_error(fx_call(l, fx_tuple(fx_ones(10))), FX_STATUS_ARGUMENT, "Dense: expects one array");
    fx_array *bad = fx_add(fx_ones(2), fx_ones(3));
    const fx_error first = fx_error_take();
    assert_int_equal(first.status, FX_STATUS_SHAPE);
    assert_int_equal(fx_array_status(fx_call(l, bad)),
                     FX_STATUS_SHAPE); /* the error is passed on and not recorded again */
    assert_int_equal(fx_error_status(), FX_OK);
    check_dims("and goes on", fx_call(l, fx_ones(10, 2)), 2, (const int64_t[]){5, 2});
}

static int warnings;
static char warning[400];
static void count_warnings(int level, const char *text, void *user)
{
    (void)user;
    warnings += level == 1;
    snprintf(warning, sizeof warning, "%s", text);
}

static void test_element_types(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_message_set_hook(count_warnings, NULL);
    fx_dense_layer *l = fx_dense(3, 2, .init = fx_ones_init);
    fx_array *ints = fx_from(FX_DTYPE_I64, ((const int64_t[]){1, 2, 3}), 3);
    fx_array *y = fx_call(l, ints);
    assert_int_equal(fx_eltype(y), FX_DTYPE_F32);
    CHECK(y, (2), 0, 6, 6);
    CHECK(fx_call(l, fx_onehot(fx_from(FX_DTYPE_I64, ((const int64_t[]){2}), 1), 3)), (2, 1), 0, 1,
          1);
    assert_int_equal(warnings, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fx_eltype(fx_call(l, fx_full_dtype(FX_DTYPE_F64, 1, 3))), FX_DTYPE_F32);
    assert_int_equal(warnings, 1);
    assert_string_equal(warning,
                        "Layer with Float32 parameters got Float64 input.\n"
                        "  The input will be converted, but any earlier layers may be very slow.");
    for (int i = 0; i < 3; i++)
        assert_int_equal(fx_eltype(fx_call(fx_f16(l), fx_ones(3))), FX_DTYPE_F16);
    assert_int_equal(warnings, 2);
    assert_string_equal(warning, "Layer with Float16 parameters got Float32 input.\n"
                                 "  The input will be converted, but may indicate a problem in "
                                 "earlier layers.");
    fx_message_set_hook(NULL, NULL);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- gradients -------------------------------------------------------------------------- */

static void *under_test;
static fx_array *call_under_test(fx_array *x)
{
    return fx_call(under_test, x);
}

static void check_layer_gradient(const char *what, void *layer, int ndims, const int64_t *sizes)
{
    double at[CHECK_MOST];
    for (int64_t i = 0; i < CHECK_MOST; i++)
        at[i] = number(400 + i);
    under_test = layer;
    check_gradients(what, call_under_test, at, ndims, sizes, 2e-6);
}

static void test_input_gradients(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = NUMBERS(FX_DTYPE_F64, 0, 3, 4), *k = NUMBERS(FX_DTYPE_F64, 7, 2, 3, 2, 2);
    check_layer_gradient("Dense", fx_dense(4, 3, FX_TANH, .weight_array = w), 3,
                         (const int64_t[]){4, 2, 3});
    check_layer_gradient("Conv",
                         fx_conv(FX_DIMS(2, 3), 2, 2, FX_TANH, .weight_array = k, .pad = FX_DIMS(1),
                                 .stride = FX_DIMS(2)),
                         4, (const int64_t[]){5, 4, 2, 2});
    check_layer_gradient("MeanPool", fx_meanpool(FX_DIMS(2, 2)), 4, (const int64_t[]){4, 4, 2, 1});
    check_layer_gradient("LayerNorm", fx_layernorm(FX_DIMS(4), FX_TANH), 2,
                         (const int64_t[]){4, 3});
    check_layer_gradient("BatchNorm in training",
                         fx_batchnorm(2, FX_TANH, .active = FX_ACTIVE_ON, .track_stats = false), 3,
                         (const int64_t[]){3, 2, 4});
    check_layer_gradient("BatchNorm in inference", fx_batchnorm(2, FX_TANH), 3,
                         (const int64_t[]){3, 2, 4});
    check_layer_gradient("Chain", fx_chain(fx_dense(4, 3, FX_TANH, .weight_array = w), FX_SOFTMAX),
                         2, (const int64_t[]){4, 3});
}

static fx_array *shaped_like(const fx_array *x, const double *v)
{
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(x); i++)
        sizes[i] = fx_size(x, i);
    return fxi_from(FX_DTYPE_F64, v, fx_ndims(x), sizes);
}

/* Every parameter's gradient, one element at a time. */
static void check_parameter_gradients(const char *what, int parameters, void *layer, fx_array *x)
{
    void *all = fx_trainables(layer);
    assert_int_equal(fx_count(all), parameters);
    for (int64_t p = 0; p < parameters; p++) {
        FX_SCOPE;
        fx_array *parameter = fx_child(all, p), *g = NULL;
        const int64_t n = fx_length(parameter);
        double at[CHECK_MOST], got[CHECK_MOST], v[CHECK_MOST], side[2];
        assert_int_equal(fx_gradient_of(weighted_sum(fx_call(layer, x)), &parameter, 1, &g), FX_OK);
        check_read(what, g, got, n);
        check_read(what, parameter, at, n);
        for (int64_t i = 0; i < n; i++) {
            memcpy(v, at, (size_t)n * sizeof *v);
            for (int s = 0; s < 2; s++) {
                v[i] = at[i] + (s ? 1e-5 : -1e-5);
                assert_int_equal(fx_copy_into(parameter, shaped_like(parameter, v)), FX_OK);
                side[s] = fx_item(weighted_sum(fx_call(layer, x)));
            }
            check_value(what, i, got[i], (side[1] - side[0]) / 2e-5, 1e-6, 1e-6);
        }
        fx_copy_into(parameter, shaped_like(parameter, at));
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

static fx_array *to_f64(fx_array *x)
{
    return fx_cast(x, FX_DTYPE_F64);
}

static void test_parameter_gradients(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = NUMBERS(FX_DTYPE_F64, 0, 3, 4), *k = NUMBERS(FX_DTYPE_F64, 7, 2, 2, 1, 4);
    fx_array *x = NUMBERS(FX_DTYPE_F64, 50, 4, 5), *image = NUMBERS(FX_DTYPE_F64, 60, 5, 4, 2, 2);
    check_parameter_gradients("Dense", 2, fx_dense(4, 3, FX_TANH, .weight_array = w), x);
    check_parameter_gradients("Conv", 2,
                              fx_conv(FX_DIMS(2, 2), 2, 4, FX_TANH, .weight_array = k, .groups = 2,
                                      .dilation = FX_DIMS(2, 1)),
                              image);
    fx_batchnorm_layer *bn = fx_batchnorm(4, FX_TANH, .active = FX_ACTIVE_ON, .track_stats = false);
    check_parameter_gradients("BatchNorm", 2, fx_fmap(to_f64, bn), x);
    check_parameter_gradients("LayerNorm", 2, fx_fmap(to_f64, fx_layernorm(FX_DIMS(4), FX_TANH)),
                              x);
}

/* ---- Chain ----------------------------------------------------------------------------------- */

static fx_array *halve(fx_array *x)
{
    return fx_mul(0.5, x);
}

static void *sum_forward(void *self, int n, void *const *args)
{
    (void)self;
    fx_array *y = args[0];
    for (int i = 1; i < n; i++)
        y = fx_add(y, (fx_array *)args[i]);
    return y;
}
typedef struct sum_layer {
    fx_object base;
    fx_array *unused;
} sum_layer;
FX_LAYER(sum_layer, sum_forward, unused);

static void test_chain(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2), *y = fx_vector(3, 5);
    CHECK(
        fx_call(fx_chain(fx_dense(2, 2, .init = fx_ones_init), fx_function_new("halve", halve)), x),
        (2), 0, 1.5, 1.5);
    CHECK(fx_call(fx_chain(fx_new(sum_layer, .unused = x), fx_function_new("halve", halve)), x, y),
          (2), 0, 2, 3.5);
    assert_ptr_equal(fx_call(fx_chain(), x), x);
    assert_int_equal(fx_count((void *)fx_call(fx_chain(), x, y)), 2);
    DESCRIBES(fx_chain(fx_dense(2, 3), FX_SOFTMAX), "Chain(Dense(2 => 3), softmax)");
    DESCRIBES(fx_chain_of("enc", fx_dense(4, 2), "dec", fx_dense(2, 4, FX_TANH)),
              "Chain(enc = Dense(4 => 2), dec = Dense(2 => 4, tanh))");
    DESCRIBES(fx_chain(fx_chain(fx_dense(1, 1)), FX_TANH), "Chain(Chain(Dense(1 => 1)), tanh)");
    fx_chain_layer *m = fx_chain_of("enc", fx_dense(4, 2), "dec", fx_dense(2, 4));
    assert_ptr_equal(fx_child_named(m, "dec"), m->layers.items[1]);
    check_refused(fx_chain(fx_dense(2, 2), x),
                  "Chain: child 1 is not a layer: 2-element Vector{Float32}");
    check_refused(fx_chain(NULL), "child 0 is not a layer");
    check_refused(fx_chain_of("layers", fx_dense(2, 2)),
                  "a Chain cannot have a named layer called `layers`");
    check_refused(fx_chain_of("a", fx_dense(2, 2), "a", fx_dense(2, 2)),
                  "two layers are called `a`");
    check_refused(fx_chain_of("a", fx_dense(2, 2), "b"), "names and layers must alternate");
    check_refused(fx_chain(fx_dense(2, 2), fx_dense(0, 1)), "sizes must be positive");
    check_error(
        fx_call(fx_chain(fx_dense(2, 3), fx_dense(4, 1)), x), FX_STATUS_SHAPE,
        "layer Dense(4 => 1) expects size(input, 1) == 4, but got 3-element Vector{Float32}");
}

/* ---- Conv and pools -------------------------------------------------------------------------- */

/* A true convolution in one dimension: y[o] = Σ_k x[o·stride + (K−1−k)·dilation − before]·w[k] */
static void test_conv_values(void **state)
{
    (void)state;
    FX_SCOPE;
    double x[9], w[3] = {1, 10, 100}, want[5];
    for (int i = 0; i < 9; i++)
        x[i] = number(i);
    for (int o = 0; o < 5; o++) {
        want[o] = 0.5;
        for (int k = 0; k < 3; k++) {
            const int i = o * 2 + (2 - k) * 2 - 3;
            want[o] += i >= 0 && i < 9 ? x[i] * w[k] : 0;
        }
    }
    fx_conv_layer *l = fx_conv(FX_DIMS(3), 1, 1, .weight_array = fx_from(FX_DTYPE_F64, w, 3, 1, 1),
                               .bias_array = fx_full_dtype(FX_DTYPE_F64, 0.5, 1),
                               .stride = FX_DIMS(2), .dilation = FX_DIMS(2), .pad = FX_DIMS(3, 1));
    CHECK(fx_call(l, fx_from(FX_DTYPE_F64, x, 9, 1, 1)), (5, 1, 1), 1e-14, want[0], want[1],
          want[2], want[3], want[4]);
    DESCRIBES(l, "Conv((3,), 1 => 1, pad=(3, 1), stride=2, dilation=2)");
    /* groups: channel c of the output sees channel c of the input only; the activation comes last
     */
    const double two[2] = {2, -3}, in[4] = {1, 2, 10, 20};
    fx_conv_layer *g = fx_conv(FX_DIMS(1), 2, 2, FX_RELU, .groups = 2, .bias = false,
                               .weight_array = fx_from(FX_DTYPE_F64, two, 1, 1, 2));
    CHECK(fx_call(g, fx_from(FX_DTYPE_F64, in, 2, 2, 1)), (2, 2, 1), 0, 2, 4, 0, 0);
}

static void test_conv_construction(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_conv_layer *l =
        fx_conv(FX_DIMS(5, 4), 6, 4, .groups = 2, .pad = FX_SAME, .dilation = FX_DIMS(1, 3));
    check_dims("weight", l->weight, 4, (const int64_t[]){5, 4, 3, 4});
    const int64_t pad[] = {2, 2, 5, 4}; /* (k−1)·dilation: 4 and 9, the larger half before */
    assert_int_equal(l->pad.n, 4);
    assert_memory_equal(l->pad.v, pad, sizeof pad);
    check_dims("same", fx_call(l, fx_ones(9, 8, 6, 2)), 4, (const int64_t[]){9, 8, 4, 2});
    DESCRIBES(fx_conv(FX_DIMS(3, 3), 2, 16, FX_RELU, .pad = FX_DIMS(1), .stride = FX_DIMS(2),
                      .groups = 2, .bias = false),
              "Conv((3, 3), 2 => 16, relu, pad=1, stride=2, groups=2, bias=false)");
    DESCRIBES(fx_conv(FX_DIMS(3, 3), 1, 2, .pad = FX_DIMS(1, 2), .dilation = FX_DIMS(2, 1)),
              "Conv((3, 3), 1 => 2, pad=(1, 2), dilation=(2, 1))");
    DESCRIBES(fx_conv(FX_DIMS(2, 2, 2), 1, 2), "Conv((2, 2, 2), 1 => 2)");
    check_error(
        fx_call(fx_conv(FX_DIMS(3, 3), 1, 2), fx_ones(8, 8, 1)), FX_STATUS_SHAPE,
        "layer Conv((3, 3), 1 => 2) expects ndims(input) == 4, but got 8×8×1 Array{Float32, 3}");
    check_error(fx_call(fx_conv(FX_DIMS(3, 3), 1, 2), fx_ones(8, 8, 2, 1)), FX_STATUS_SHAPE,
                "layer Conv((3, 3), 1 => 2) expects size(input, 3) == 1, but got 8×8×2×1 "
                "Array{Float32, 4}");
    check_refused(fx_conv(FX_DIMS(3, 3), 3, 4, .groups = 2),
                  "Conv: Input channel dimension must be divisible by groups");
    check_refused(fx_conv(FX_DIMS(3, 3), 3, 0), "sizes must be positive");
    check_refused(fx_conv(FX_DIMS(3, 0), 3, 1), "sizes must be positive");
    check_refused(fx_conv(FX_DIMS(1, 1, 1, 1), 3, 1), "kernels of 1 to 3 axes");
    check_refused(fx_conv(FX_DIMS(3, 3), 3, 1, .stride = FX_DIMS(1, 2, 3)),
                  "stride takes one number, or one for each of 2 axes");
    check_refused(fx_conv(FX_DIMS(3, 3), 3, 1, .stride = FX_DIMS(0)),
                  "2 axes, of at least 1, got (0,)");
    check_refused(
        fx_conv(FX_DIMS(3, 3), 3, 1, .pad = FX_DIMS(1, 2, 3)),
        "pad takes FX_SAME, or numbers of at least 0: one, 2 (one for each axis) or 4 (two");
    check_refused(fx_conv(FX_DIMS(3, 3), 3, 1, .pad = FX_DIMS(-1)), "got (-1,)");
    check_refused(fx_conv(FX_DIMS(3), 3, 1, .weight_array = fx_ones(2, 3, 1)),
                  "the weight, a 2×3×1 Array{Float32, 3}, does not match (3,), 3 => 1");
}

static void test_pools(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_reshape(fx_range(0, 1, 16), 4, 4, 1, 1);
    CHECK(fx_call(fx_maxpool(FX_DIMS(2, 2)), x), (2, 2, 1, 1), 0, 5, 7, 13, 15);
    CHECK(fx_call(fx_meanpool(FX_DIMS(2, 2)), x), (2, 2, 1, 1), 0, 2.5, 4.5, 10.5, 12.5);
    /* the mean divides by the whole window, padding counted */
    CHECK(fx_call(fx_meanpool(FX_DIMS(2), .pad = FX_DIMS(1)), fx_reshape(fx_vector(2, 4), 2, 1, 1)),
          (2, 1, 1), 0, 1, 2);
    check_dims("same", fx_call(fx_maxpool(FX_DIMS(3, 2), .pad = FX_SAME, .stride = FX_DIMS(1)), x),
               4, (const int64_t[]){4, 4, 1, 1});
    DESCRIBES(fx_maxpool(FX_DIMS(2, 2), .pad = FX_DIMS(1), .stride = FX_DIMS(3)),
              "MaxPool((2, 2), pad=1, stride=3)");
    DESCRIBES(fx_meanpool(FX_DIMS(2, 2)), "MeanPool((2, 2))");
    DESCRIBES(fx_maxpool(FX_DIMS(5), .stride = FX_DIMS(5)), "MaxPool((5,))");
    check_error(fx_call(fx_maxpool(FX_DIMS(2, 2)), fx_ones(4, 4)), FX_STATUS_SHAPE,
                "layer MaxPool((2, 2)) expects ndims(input) == 4, but got 4×4 Matrix{Float32}");
    check_refused(fx_maxpool(FX_DIMS(0, 2)),
                  "MaxPool: window takes one number, or one for each of 2 axes, of at least 1");
    check_refused(fx_meanpool(FX_DIMS(1, 1, 1, 1)), "MeanPool: takes windows of 1 to 3 axes");
}

/* ---- BatchNorm ------------------------------------------------------------------------------- */

enum { CHANNELS = 2, SPATIAL = 3, BATCH = 4, PER_CHANNEL = SPATIAL * BATCH };

/* Mean and biased variance of channel c of x: SPATIAL×CHANNELS×BATCH. */
static void channel_moments(const double *x, int c, double *mean, double *var)
{
    *mean = *var = 0;
    for (int i = 0; i < PER_CHANNEL; i++)
        *mean += x[i % SPATIAL + SPATIAL * (c + CHANNELS * (i / SPATIAL))] / PER_CHANNEL;
    for (int i = 0; i < PER_CHANNEL; i++) {
        const double d = x[i % SPATIAL + SPATIAL * (c + CHANNELS * (i / SPATIAL))] - *mean;
        *var += d * d / PER_CHANNEL;
    }
}

static void fill_batch(double *x, int from)
{
    for (int i = 0; i < PER_CHANNEL * CHANNELS; i++)
        x[i] = 3 + 2 * number(from + i);
}

/* act(γ·(x − μ)/√(σ² + ε) + β) with γ = 1, β = 0 */
static void check_normalised(const char *what, fx_array *y, const double *x, const double *mean,
                             const double *var, double epsilon)
{
    double want[PER_CHANNEL * CHANNELS];
    for (int i = 0; i < PER_CHANNEL * CHANNELS; i++) {
        const int c = i / SPATIAL % CHANNELS;
        want[i] = tanh((x[i] - mean[c]) / sqrt(var[c] + epsilon));
    }
    check_array(what, y, PER_CHANNEL * CHANNELS, want, 1e-5, 1e-5);
}

static void test_batchnorm(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_batchnorm_layer *l = fx_batchnorm(CHANNELS, FX_TANH, .momentum = 0.3, .eps = 0.01);
    double x[PER_CHANNEL * CHANNELS], mean[CHANNELS], var[CHANNELS], run_mean[CHANNELS] = {0, 0},
                                                                     run_var[CHANNELS] = {1, 1};
    fill_batch(x, 0);
    fx_array *in = fx_cast(fx_from(FX_DTYPE_F64, x, SPATIAL, CHANNELS, BATCH), FX_DTYPE_F32);
    check_normalised("before training", fx_call(l, in), x, run_mean, run_var, 0.01);
    for (int round = 0; round < 3; round++) {
        fill_batch(x, 40 * round);
        for (int c = 0; c < CHANNELS; c++) {
            channel_moments(x, c, &mean[c], &var[c]);
            run_mean[c] = 0.7 * run_mean[c] + 0.3 * mean[c];
            run_var[c] = 0.7 * run_var[c] + 0.3 * var[c] * PER_CHANNEL / (PER_CHANNEL - 1.0);
        }
        FX_STEP;
        in = fx_cast(fx_from(FX_DTYPE_F64, x, SPATIAL, CHANNELS, BATCH), FX_DTYPE_F32);
        fx_array *y = fx_call(l, in);
        check_normalised("training", y, x, mean, var, 0.01);
    }
    check_array("running mean", l->mean, CHANNELS, run_mean, 1e-5, 1e-6);
    check_array("running variance", l->var, CHANNELS, run_var, 1e-5, 1e-6);
    check_normalised("inference",
                     fx_call(l, in = fx_from(FX_DTYPE_F64, x, SPATIAL, CHANNELS, BATCH)), x,
                     run_mean, run_var, 0.01);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Two calls in one training step move the statistics twice; a call that is in inference does not.
 */
static void test_batchnorm_staging(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_batchnorm_layer *l = fx_batchnorm(1), *off = fx_batchnorm(1, .active = FX_ACTIVE_OFF);
    {
        FX_STEP;
        fx_call(l, fx_reshape(fx_vector(1, 3), 1, 2));
        fx_call(l, fx_reshape(fx_vector(10, 20), 1, 2));
        fx_call(off, fx_reshape(fx_vector(1, 3), 1, 2));
        fx_call(l, fx_zeros(1, 0)); /* an empty batch does not change the statistics */
    }
    CHECK(l->mean, (1), 1e-6, 0.9 * (0.1 * 2) + 0.1 * 15);
    CHECK(l->var, (1), 1e-6, 0.9 * (0.9 + 0.1 * 2) + 0.1 * 50);
    CHECK(off->mean, (1), 0, 0);
    CHECK(off->var, (1), 0, 1);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void test_batchnorm_options(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_batchnorm_layer *l = fx_batchnorm(64, FX_RELU, .affine = false, .active = FX_ACTIVE_ON);
    assert_null(l->gamma);
    assert_null(l->beta);
    DESCRIBES(l, "BatchNorm(64, relu, affine=false, active=true)");
    DESCRIBES(fx_batchnorm(3, .active = FX_ACTIVE_OFF), "BatchNorm(3, active=false)");
    DESCRIBES(fx_batchnorm(3), "BatchNorm(3)");
    l = fx_batchnorm(2, .eps = 0, .momentum = 0);
    assert_true(l->epsilon == 0 && l->momentum == 0);
    l = fx_batchnorm(2);
    assert_true(l->epsilon == 1e-5 && l->momentum == 0.1);
    assert_int_equal(fx_parameter_count(l), 4); /* running statistics are not trained */
    assert_null(fx_batchnorm(2, .track_stats = false)->mean);
    { /* without statistics of its own, inference uses the batch's */
        fx_array *x = fx_reshape(fx_vector(1, 3), 1, 2);
        CHECK(fx_call(fx_batchnorm(1, .track_stats = false, .eps = 3), x), (1, 2), 1e-6, -0.5, 0.5);
    }
    check_error(fx_call(l, fx_ones(3, 2)), FX_STATUS_SHAPE,
                "layer BatchNorm(2) expects size(input, 1) == 2, but got 3×2 Matrix{Float32}");
    check_error(fx_call(l, fx_ones(2)), FX_STATUS_SHAPE,
                "layer BatchNorm(2) expects ndims(input) >= 2, but got 2-element");
    {
        FX_STEP;
        check_error(fx_call(l, fx_ones(2, 1)), FX_STATUS_ARGUMENT,
                    "more than one value per channel");
    }
    check_refused(fx_batchnorm(0), "BatchNorm: the number of channels must be positive, got 0");
}

/* ---- LayerNorm, normalise --------------------------------------------------------------- */

static void test_layernorm(void **state)
{
    (void)state;
    FX_SCOPE;
    double x[12], want[12];
    for (int j = 0; j < 2; j++) {
        double mean = 0, var = 0;
        for (int i = 0; i < 6; i++)
            mean += (x[6 * j + i] = number(6 * j + i)) / 6;
        for (int i = 0; i < 6; i++)
            var += (x[6 * j + i] - mean) * (x[6 * j + i] - mean) / 6;
        for (int i = 0; i < 6; i++)
            want[6 * j + i] = (x[6 * j + i] - mean) / sqrt(var + 0.02);
    }
    fx_array *in = fx_from(FX_DTYPE_F64, x, 2, 3, 2);
    check_array("LayerNorm", fx_call(fx_layernorm(FX_DIMS(2, 3), .eps = 0.02), in), 12, want, 1e-13,
                1e-13);
    check_array("normalise", fx_normalise(in, FX_AXES(0, 1), 0.02), 12, want, 1e-13, 1e-13);
    fx_layernorm_layer *l = fx_layernorm(FX_DIMS(2, 3), FX_TANH, .eps = 0.02);
    fx_copy_into(l->scale, fx_full(2, 2, 3));
    fx_copy_into(l->bias, fx_full(0.25, 2, 3));
    for (int i = 0; i < 12; i++)
        want[i] = tanh(2 * want[i] + 0.25);
    check_array("LayerNorm with parameters", fx_call(l, in), 12, want, 1e-13, 1e-13);
    DESCRIBES(fx_layernorm(FX_DIMS(4), .affine = false), "LayerNorm(4, affine=false)");
    DESCRIBES(l, "LayerNorm(2, 3, tanh)");
    check_error(fx_call(fx_layernorm(FX_DIMS(4)), fx_ones(3, 2)), FX_STATUS_SHAPE,
                "layer LayerNorm(4) expects size(input, 1) == 4, but got 3×2 Matrix{Float32}");
    check_refused(fx_layernorm(FX_DIMS(0)), "LayerNorm: takes 1 to 8 positive sizes, got (0,)");
}

/* A batch far from zero: E(x²) − E(x)² would lose every digit in Float32. */
static void test_normalise_far_from_zero(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(10001, 10002, 10003, 10004);
    const double d = sqrt(1.25);
    CHECK(fx_normalise(x, FX_AXES(0), 0), (4), 1e-6, -1.5 / d, -0.5 / d, 0.5 / d, 1.5 / d);
    fx_array *half = fx_cast(fx_vector(-600, 600), FX_DTYPE_F16); /* 600² is beyond Float16 */
    assert_int_equal(fx_eltype(fx_normalise(half, FX_AXES(0), 0)), FX_DTYPE_F16);
    CHECK(fx_normalise(half, FX_AXES(0), 0), (2), 1e-3, -1, 1);
}

/* ---- Dropout --------------------------------------------------------------------------------- */

/* Kept elements are x/(1−p) exactly; their number is binomial: within 5 standard deviations. */
static void test_dropout_statistics(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { N = 20000 };
    static float y[N];
    fx_seed(5);
    const double ps[] = {0.1, 0.5, 0.75};
    for (int k = 0; k < 3; k++) {
        FX_STEP;
        const double p = ps[k];
        const float kept = (float)(3 * (1 / (1 - p)));
        fx_array *out = fx_call(fx_dropout(p), fx_full(3, N));
        assert_int_equal(fx_read_into(out, y, sizeof y), FX_OK);
        int zeros = 0;
        for (int i = 0; i < N; i++) {
            zeros += y[i] == 0;
            if (y[i] != 0)
                check_value("kept", i, (double)y[i], (double)kept, 2e-7, 0);
        }
        assert_true(fabs(zeros - N * p) < 5 * sqrt(N * p * (1 - p)));
    }
}

static void test_dropout_modes(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(4, 5);
    fx_dropout_layer *l = fx_dropout(0.5);
    assert_ptr_equal(fx_call(l, x), x);
    {
        FX_STEP;
        assert_ptr_not_equal(fx_call(l, x), x);
        assert_ptr_equal(fx_call(fx_dropout(0.5, .active = FX_ACTIVE_OFF), x), x);
        assert_ptr_equal(fx_call(fx_dropout(0), x), x);
        FX_TEST;
        assert_ptr_equal(fx_call(l, x), x);
    }
    CHECK(fx_call(fx_dropout(1, .active = FX_ACTIVE_ON), fx_vector(1, -2, INFINITY)), (3), 0, 0, 0,
          0);
    CHECK(fx_dropout_apply(fx_vector(1, 2), 1), (2), 0, 0, 0);
    fx_array *v = fx_vector(1, 2), *g = NULL;
    fx_gradient_of(fx_sum(fx_dropout_apply(v, 1)), &v, 1, &g);
    CHECK(g, (2), 0, 0, 0);
    check_error(fx_dropout_apply(x, 1.5), FX_STATUS_ARGUMENT, "expects 0 ≤ p ≤ 1, got p = 1.5");
    check_refused(fx_dropout(-0.1), "Dropout: expects 0 ≤ p ≤ 1, got p = -0.1");
    check_refused(fx_dropout((double)NAN), "got p = NaN");
    check_refused(fx_dropout(0.5, .dims = FX_AXES(9)), "dims must be one or more axes from 0 to 7");
    DESCRIBES(l, "Dropout(0.5)");
    DESCRIBES(fx_dropout(0.4, .dims = FX_AXES(1), .active = FX_ACTIVE_OFF),
              "Dropout(0.4, dims=2, active=false)");
    DESCRIBES(fx_dropout(0.4, .dims = FX_AXES(0, 2)), "Dropout(0.4, dims=(1, 3))");
}

/* With dims the mask is one value along the other axes; its gradient is the same mask. */
static void test_dropout_dims(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(1);
    fx_array *x = fx_ones(3, 40), *g = NULL;
    fx_array *y = fx_call(fx_dropout(0.5, .dims = FX_AXES(1), .active = FX_ACTIVE_ON), x);
    assert_int_equal(fx_gradient_of(fx_sum(y), &x, 1, &g), FX_OK);
    double v[120], d[120];
    check_read("y", y, v, 120);
    check_read("gradient", g, d, 120);
    int columns = 0;
    for (int j = 0; j < 40; j++) {
        assert_true(v[3 * j] == v[3 * j + 1] && v[3 * j] == v[3 * j + 2]);
        assert_true(v[3 * j] == 0 || v[3 * j] == 2);
        columns += v[3 * j] == 0;
    }
    assert_in_range(columns, 5, 35);
    assert_memory_equal(v, d, sizeof v);
    fx_array *again = fx_call(fx_dropout(0.5, .dims = FX_AXES(1), .active = FX_ACTIVE_ON), x);
    double w[120];
    check_read("a second mask", again, w, 120);
    assert_memory_not_equal(v, w, sizeof v);
}

static void test_modes(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dropout_layer *d = fx_dropout(0.5);
    fx_batchnorm_layer *b = fx_batchnorm(2);
    fx_chain_layer *m = fx_chain(fx_dense(2, 2), fx_chain(d, FX_RELU), b);
    assert_int_equal(fx_trainmode(m), FX_OK);
    assert_int_equal(d->active, FX_ACTIVE_ON);
    assert_int_equal(b->active, FX_ACTIVE_ON);
    assert_int_equal(fx_testmode(m), FX_OK);
    assert_int_equal(d->active, FX_ACTIVE_OFF);
    assert_int_equal(b->active, FX_ACTIVE_OFF);
    assert_int_equal(fx_automode(fx_tuple(m, d)), FX_OK);
    assert_int_equal(d->active, FX_ACTIVE_AUTO);
    assert_int_equal(b->active, FX_ACTIVE_AUTO);
    assert_int_equal(fx_trainmode(NULL), FX_STATUS_ARGUMENT);
    fx_error_take();
    assert_int_equal(fx_trainmode(fx_chain(fx_dense(0, 0))), FX_STATUS_ARGUMENT);
    fx_error_take();
}

/* ---- memory ----------------------------------------------------------------------------- */

static fx_status build_and_run(void)
{
    FX_SCOPE;
    void *m = fx_chain_of(
        "conv", fx_conv(FX_DIMS(3, 3), 1, 2, FX_RELU, .pad = FX_SAME, .init = fx_lecun_normal),
        "pool", fx_maxpool(FX_DIMS(2, 2)), "norm", fx_batchnorm(2), "flat", FX_FLATTEN, "drop",
        fx_dropout(0.5, .dims = FX_AXES(0)), "dense", fx_dense(8, 3), "ln",
        fx_layernorm(FX_DIMS(3)));
    char text[40];
    fx_summary(m, text, sizeof text);
    {
        FX_STEP;
        fx_array *x = fx_ones(4, 4, 1, 2), *y = fx_full(0.5, 3, 2);
        fx_item(fx_logitcrossentropy(fx_call(m, x), y, .smoothing = 0.1));
    }
    fx_trainmode(m);
    return fx_error_take().status;
}

/* Fails the 1st, 2nd, … allocation in turn until a run gets through; returns the number of
 * failures. */
static int64_t fail_each_allocation(void)
{
    for (int64_t n = 0; n < 20000; n++) {
        fxi_fault_set(n);
        const fx_status s = build_and_run();
        const bool reached = fxi_fault_seen() > n;
        fxi_fault_set(-1);
        if (s != FX_OK && s != FX_STATUS_MEMORY)
            fail_msg("allocation %lld: %s", (long long)n, fx_status_name(s));
        if (!reached) {
            printf("%lld allocations failed in turn\n", (long long)n);
            return n;
        }
    }
    fail();
    return 0;
}

/* The second round finds caches and plans warm, those of half-built graphs included: nothing may
 * grow. */
static void test_allocation_failures(void **state)
{
    (void)state;
    assert_int_equal(build_and_run(), FX_OK);
    assert_true(fail_each_allocation() > 20);
    const int64_t live = fxi_live_allocations();
    assert_true(fail_each_allocation() > 20);
    assert_true(fxi_live_allocations() <= live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense_values),
        cmocka_unit_test(test_dense_construction),
        cmocka_unit_test(test_dense_errors),
        cmocka_unit_test(test_element_types),
        cmocka_unit_test(test_input_gradients),
        cmocka_unit_test(test_parameter_gradients),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_conv_values),
        cmocka_unit_test(test_conv_construction),
        cmocka_unit_test(test_pools),
        cmocka_unit_test(test_batchnorm),
        cmocka_unit_test(test_batchnorm_staging),
        cmocka_unit_test(test_batchnorm_options),
        cmocka_unit_test(test_layernorm),
        cmocka_unit_test(test_normalise_far_from_zero),
        cmocka_unit_test(test_dropout_statistics),
        cmocka_unit_test(test_dropout_modes),
        cmocka_unit_test(test_dropout_dims),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
