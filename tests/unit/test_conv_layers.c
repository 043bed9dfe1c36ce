/* test_conv_layers.c: CrossCor, ConvTranspose, DepthwiseConv, and the global, adaptive and norm
 * pools: numbers by hand, printing, the notation, files of Flux's versions, state dictionaries,
 * refusals.
 */
#include "semantics_check.h"

#include "python_run.h"
#include "temp_file.h"

#include <math.h>

static void has_values(fx_array *y, int n, const double *expected)
{
    assert_false(fx_is_error(y));
    assert_int_equal(fx_length(y), n);
    for (int i = 0; i < n; i++)
        assert_float_equal(fx_at(y, i), expected[i], 1e-6);
}
#define VALUES(y, ...)                                                                             \
    has_values(y, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__})

static void has_size(fx_array *y, int n, const int64_t *sizes)
{
    assert_int_equal(fx_ndims(y), n);
    for (int i = 0; i < n; i++)
        assert_int_equal(fx_size(y, i), sizes[i]);
}
#define SIZE(y, ...)                                                                               \
    has_size(y, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

static void prints(void *layer, const char *expected)
{
    char text[200];
    fx_summary(layer, text, sizeof text);
    assert_string_equal(text, expected);
}

static fx_array *line(fx_array *v, int64_t channels)
{
    return fx_reshape(v, -1, channels, 1);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* y[i] = x[i]·w[0] + x[i+1]·w[1]; Conv reverses the kernel. */
static void cross_correlates(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *x = line(fx_vector(1, 2, 3), 1), *w = fx_reshape(fx_vector(10, 1), 2, 1, 1);
    VALUES(fx_call(fx_crosscor(FX_DIMS(2), .weight_array = w), x), 12, 23);
    VALUES(fx_call(fx_conv(FX_DIMS(2), .weight_array = w), x), 21, 32);
    VALUES(fx_call(fx_crosscor(FX_DIMS(2), .weight_array = w, .bias_array = fx_vector(5),
                               .pad = FX_DIMS(1, 0), .stride = FX_DIMS(2)),
                   x),
           6, 28);
    VALUES(fx_call(fx_crosscor(FX_DIMS(2), .weight_array = w, .dilation = FX_DIMS(2)), x), 13);
}

/* Each element of x adds x·w, with the kernel reversed, to the outputs from its position times the
 * stride on. This is the gradient of a convolution that reverses its kernel. */
static void transposes(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *x = line(fx_vector(1, 2), 1), *w = fx_reshape(fx_vector(10, 1), 2, 1, 1);
#define OF(...) fx_call(fx_convtranspose(FX_DIMS(2), .weight_array = w, __VA_ARGS__), x)
    VALUES(OF(.stride = FX_DIMS(1)), 1, 12, 20);
    VALUES(OF(.stride = FX_DIMS(2)), 1, 10, 2, 20);
    VALUES(OF(.stride = FX_DIMS(2), .outpad = FX_DIMS(1)), 1, 10, 2, 20, 0);
    VALUES(OF(.stride = FX_DIMS(2), .pad = FX_DIMS(1, 0)), 10, 2, 20);
    VALUES(OF(.dilation = FX_DIMS(2)), 1, 2, 10, 20);
    VALUES(OF(.stride = FX_DIMS(2), .pad = FX_SAME), 1, 10, 2, 20);
#undef OF
    /* Two groups: output channels (0, 1) come from input channel 0, channels (2, 3) from 1. */
    fx_array *two = line(fx_vector(1, 2), 2);
    fx_array *many = fx_reshape(fx_vector(1, 10, 100, 1000), 1, 2, 2);
    VALUES(fx_call(fx_convtranspose(FX_DIMS(1), .weight_array = many, .groups = 2), two), 1, 10,
           200, 2000);
}

/* With SamePad the output is `stride` times as large, in 1 to 3 dimensions. */
static void keeps_sizes(void **state)
{
    FX_SCOPE;
    (void)state;
    for (int64_t k = 2; k <= 5; k++)
        for (int64_t s = 1; s <= 2; s++) {
            void *l = fx_convtranspose(FX_DIMS(k), 1, 1, .stride = FX_DIMS(s), .pad = FX_SAME);
            SIZE(fx_call(l, fx_ones(7, 1, 2)), 7 * s, 1, 2);
        }
    SIZE(fx_call(fx_convtranspose(FX_DIMS(3, 2), 2, 4, .groups = 2), fx_ones(4, 5, 2, 3)), 6, 6, 4,
         3);
    SIZE(fx_call(fx_convtranspose(FX_DIMS(2, 2, 2), 2, 3, .stride = FX_DIMS(2)),
                 fx_ones(2, 3, 4, 2, 1)),
         4, 6, 8, 3, 1);
    SIZE(fx_call(fx_crosscor(FX_DIMS(3, 3, 3), 1, 2, .pad = FX_SAME), fx_ones(4, 5, 6, 1, 1)), 4, 5,
         6, 2, 1);
    SIZE(fx_call(fx_depthwiseconv(FX_DIMS(3, 3), 2, 4, .pad = FX_SAME), fx_ones(4, 5, 2, 1)), 4, 5,
         4, 1);
}

static void works_on_each_channel(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *x = line(fx_vector(1, 2, 3, 4), 2);
    fx_array *w = fx_reshape(fx_vector(1, 10, 100, 1000), 1, 1, 4);
    fx_conv_layer *l = fx_depthwiseconv(FX_DIMS(1), 2, 4, .weight_array = w);
    assert_int_equal(l->groups, 2);
    VALUES(fx_call(l, x), 1, 2, 10, 20, 300, 400, 3000, 4000);
    prints(l, "Conv((1,), 2 => 4, groups=2)");
}

/* 8 elements in 3 windows: stride 8 ÷ 3 = 2, window 8 − 2·2 = 4. */
static void pools_the_whole_or_a_size(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *x = line(fx_vector(1, 8, 2, 3, 0, 5, 4, 9), 1);
    VALUES(fx_call(fx_adaptivemaxpool(FX_DIMS(3)), x), 8, 5, 9);
    VALUES(fx_call(fx_adaptivemeanpool(FX_DIMS(3)), x), 3.5, 2.5, 4.5);
    VALUES(fx_call(fx_adaptivemaxpool(FX_DIMS(4)), x), 8, 3, 5, 9);
    fx_array *two = line(fx_vector(1, 8, 2, 3, 0, 5), 2);
    VALUES(fx_call(fx_globalmaxpool(), two), 8, 5);
    VALUES(fx_call(fx_globalmeanpool(), fx_cast(two, FX_DTYPE_I64)), 11.0 / 3, 8.0 / 3);
    SIZE(fx_call(fx_globalmaxpool(), fx_ones(3, 4, 2, 5)), 1, 1, 2, 5);
    SIZE(fx_call(fx_globalmeanpool(), fx_ones(3, 4, 2, 2, 5)), 1, 1, 1, 2, 5);
    SIZE(fx_call(fx_adaptivemeanpool(FX_DIMS(2, 3, 1)), fx_ones(5, 3, 4, 2, 1)), 2, 3, 1, 2, 1);
}

/* √(3² + 4²) and (1 + 8 + 27)^(1/3); the signs of the elements do not matter. A window of zeros has
 * gradient 0. */
static void pools_norms(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *g, *x = line(fx_vector(3, -4, 0, 0), 1);
    VALUES(fx_call(fx_lpnormpool(FX_DIMS(2)), x), 5, 0);
    VALUES(fx_pool_lpnorm(line(fx_vector(-1, 2, 3), 1), FX_DIMS(3), .p = 3), cbrt(36));
    VALUES(fx_pool_lpnorm(x, FX_DIMS(2), .pad = FX_DIMS(1), .p = 1), 3, 4, 0);
    VALUES(fx_pool_lpnorm(x, FX_DIMS(2), .dilation = FX_DIMS(2), .stride = FX_DIMS(1)), 3, 4);
    VALUES(fx_pool_mean(x, FX_DIMS(2), .dilation = FX_DIMS(2), .stride = FX_DIMS(1)), 1.5, -2);
    assert_int_equal(fx_gradient_of(fx_sum(fx_pool_lpnorm(x, FX_DIMS(2))), &x, 1, &g), FX_OK);
    VALUES(g, 0.6, -0.8, 0, 0);
    assert_true(fx_is_error(fx_pool_lpnorm(x, FX_DIMS(2), .p = 0)));
    assert_non_null(strstr(fx_error_take().message, "p must be positive"));
}

/* ---- text ------------------------------------------------------------------------------------ */

/* The rules of Flux's show: σ, pad, stride, dilation, groups, bias, then outpad as a tuple. */
static void are_written(void **state)
{
    FX_SCOPE;
    (void)state;
    static const char *const texts[] = {
        "CrossCor((5, 5), 3 => 7, relu)",
        "CrossCor((3,), 1 => 2, pad=1, stride=2, bias=false)",
        "CrossCor((3, 3), 1 => 2, tanh, pad=(1, 0, 2, 1), stride=(1, 2), dilation=2)",
        "ConvTranspose((5, 5), 3 => 7, relu)",
        "ConvTranspose((3, 3), 4 => 2, pad=1, stride=2, groups=2, bias=false, outpad=(1, 1))",
        "ConvTranspose((2,), 4 => 2, σ, dilation=3, outpad=(1,))",
        "ConvTranspose((2, 2, 2), 1 => 2, stride=(2, 1, 2))",
        "GlobalMaxPool()",
        "GlobalMeanPool()",
        "AdaptiveMaxPool((5, 7))",
        "AdaptiveMeanPool((3,))",
        "LPNormPool((2, 2), p=3.0, pad=1)",
        "LPNormPool((2,), stride=1)",
        "Upsample(:nearest, scale = (2, 3))",
        "Upsample(:bilinear, size = (4, 4))",
        "Upsample(:trilinear, scale = 2)",
        "PixelShuffle(3)",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char line[300];
        snprintf(line, sizeof line, "Chain(%s, relu)", texts[i]);
        prints(fx_parse_model(line), line);
    }
    prints(fx_parse_model("Chain(DepthwiseConv((3, 3), 2 => 6, relu; pad=SamePad(), bias=false))"),
           "Chain(Conv((3, 3), 2 => 6, relu, pad=1, groups=2, bias=false))");
    prints(fx_parse_model("Upsample(scale = (2,))"), "Upsample(:nearest, scale = 2)");
    prints(fx_parse_model("Upsample((2, 2), :bilinear)"), "Upsample(:bilinear, scale = (2, 2))");
    prints(fx_parse_model("ConvTranspose((4, 4), 2 => 3; stride=2, pad=SamePad())"),
           "ConvTranspose((4, 4), 2 => 3, pad=1, stride=2)");
    assert_int_equal(fx_error_take().status, FX_OK);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void are_saved(void **state)
{
    FX_SCOPE;
    (void)state;
    void *models[] = {
        fx_crosscor(FX_DIMS(3, 2), 2, 3, FX_RELU, .pad = FX_DIMS(1, 0, 2, 1), .bias = false),
        fx_convtranspose(FX_DIMS(3, 2), 2, 4, FX_TANH, .groups = 2, .stride = FX_DIMS(2, 1),
                         .outpad = FX_DIMS(1, 0)),
        fx_depthwiseconv(FX_DIMS(3, 2), 2, 4),
        fx_adaptivemaxpool(FX_DIMS(3, 2)),
        fx_globalmeanpool(),
        fx_upsample(FX_UPSAMPLE_MODE_BILINEAR, FX_DIMS(2)),
        fx_upsample(FX_UPSAMPLE_MODE_NEAREST, .size = FX_DIMS(10, 4)),
    };
    const char *path = temp_file("conv.bson", "", 0);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char before[200], after[200];
        fx_array *x = fx_randn(5, 4, 2, 3);
        assert_int_equal(fx_save(path, "model", models[i]), FX_OK);
        void *back = fx_load_key(path, "model");
        fx_summary(models[i], before, sizeof before);
        fx_summary(back, after, sizeof after);
        assert_string_equal(before, after);
        fx_array *same = fx_all(fx_eq(fx_call(models[i], x), fx_call(back, x)));
        assert_true(fx_item(same) == 1);
    }
    assert_int_equal(fx_error_take().status, FX_OK);
}

/* The weight begins with 10, 10.125, …; DepthwiseConv was a struct until Flux 0.12, with the
 * outputs of a channel before the channels: its elements are those of Conv in the same order. */
static void of_every_version_are_read(void **state)
{
    FX_SCOPE;
    (void)state;
    static const struct {
        const char *entry, *text;
        int64_t weights, outputs;
    } rows[] = {
        {"transpose_0.8", "ConvTranspose((2, 2), 2 => 1, relu)", 8, 9},
        {"transpose_0.12", "ConvTranspose((2, 2), 2 => 1, relu)", 8, 9},
        {"transpose_0.14", "ConvTranspose((2, 2), 2 => 1, relu, outpad=(1, 0))", 8, 12},
        {"crosscor_0.9", "CrossCor((2, 2), 1 => 2, relu)", 8, 2},
        {"depthwise_0.7", "Conv((2, 2), 2 => 6, relu, groups=2)", 24, 6},
        {"adaptive", "AdaptiveMeanPool((3, 2))", 0, 0},
        {"global", "GlobalMaxPool()", 0, 0},
        {"upsample", "Upsample(:bilinear, scale = 2)", 0, 0},
        {"upsample_size", "Upsample(:nearest, size = (4, 6))", 0, 0},
        {"shuffle", "PixelShuffle(2)", 0, 0},
    };
    void *file = fx_load(made_bson("windows.bson"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fx_conv_layer *l = fx_child_named(file, rows[i].entry);
        prints(l, rows[i].text);
        if (!rows[i].weights)
            continue;
        fx_array *weight = fx_child_named(l, "weight");
        assert_int_equal(fx_length(weight), rows[i].weights);
        for (int64_t k = 0; k < rows[i].weights; k++)
            assert_true(fx_at(weight, k) == 10 + 0.125 * (double)k);
        const int64_t in = strstr(rows[i].text, ", 2 =>") ? 2 : 1;
        assert_int_equal(fx_length(fx_call(l, fx_ones(2, 2, in, 1))), rows[i].outputs);
    }
    assert_int_equal(fx_error_take().status, FX_OK);
}

/* PyTorch's Conv2d is CrossCor; the kernel of its ConvTranspose2d is Flux's reversed. */
static void have_state_dictionaries(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *w = fx_reshape(fx_vector(1, 2, 3, 4), 2, 2, 1, 1);
    fx_array *cross = fx_child_named(
        fx_torch_state(fx_crosscor(FX_DIMS(2, 2), .weight_array = w, .bias = false)), "weight");
    VALUES(cross, 1, 2, 3, 4);
    fx_convtranspose_layer *l = fx_convtranspose(FX_DIMS(2, 2), .weight_array = w, .bias = false);
    void *dictionary = fx_torch_state(l);
    VALUES(fx_child_named(dictionary, "weight"), 4, 3, 2, 1);
    fx_convtranspose_layer *other = fx_convtranspose(FX_DIMS(2, 2), 1, 1, .bias = false);
    assert_int_equal(fx_load_torch_state(other, dictionary), FX_OK);
    VALUES(other->weight, 1, 2, 3, 4);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void fails(void *made, const char *message)
{
    assert_true(fx_is_error(made));
    const fx_error e = fx_error_take();
    if (!strstr(e.message, message))
        fail_msg("\"%s\" instead of \"%s\"", e.message, message);
}

static void refuse(void **state)
{
    FX_SCOPE;
    (void)state;
    fails(fx_convtranspose(FX_DIMS(2), 1, 1, .stride = FX_DIMS(3), .pad = FX_SAME),
          "SamePad needs a stride that is not larger than the kernel");
    fails(
        fx_convtranspose(FX_DIMS(2), 3, 4, .groups = 2),
        "ConvTranspose: Input channel dimension must be divisible by groups, got 3 => 4, 2 groups");
    fails(fx_convtranspose(FX_DIMS(2), 3, 4, .outpad = FX_DIMS(-1)), "outpad");
    fails(fx_convtranspose(FX_DIMS(2), 1, 1, .pad = FX_DIMS(1, 1, 1)), "pad takes FX_SAME");
    fails(fx_depthwiseconv(FX_DIMS(2), 3, 4),
          "Output channel dimension must be divisible by groups, got 3 => 4, 3 groups");
    fails(fx_depthwiseconv(FX_DIMS(2), 2, 4, .groups = 2),
          "groups cannot be set: there is one group for each input channel");
    fails(fx_call(fx_crosscor(FX_DIMS(2, 2), 3, 4), fx_ones(5, 5, 2, 1)),
          "layer CrossCor((2, 2), 3 => 4) expects size(input, 3) == 3, but got "
          "5×5×2×1 Array{Float32, 4}");
    fails(fx_call(fx_convtranspose(FX_DIMS(2, 2), 3, 4), fx_ones(5, 5, 3)),
          "layer ConvTranspose((2, 2), 3 => 4) expects ndims(input) == 4, but got "
          "5×5×3 Array{Float32, 3}");
    fails(fx_call(fx_adaptivemaxpool(FX_DIMS(3, 3)), fx_ones(4, 2, 1, 1)),
          "layer AdaptiveMaxPool((3, 3)) expects size(input, 2) ≥ 3, but got 4×2×1×1");
    fails(fx_adaptivemeanpool(FX_DIMS(0)), "out takes one number of at least 1, got (0,)");
    fails(fx_call(fx_globalmaxpool(), fx_ones(4, 2)),
          "layer GlobalMaxPool() expects 3 ≤ ndims(input) ≤ 5, but got 4×2");
    fails(fx_call(fx_globalmaxpool(), fx_ones(4, 0, 1, 2)),
          "layer GlobalMaxPool() expects spatial sizes of at least 1, but got 4×0×1×2");
    /* (k − 1)·dilation is 2^63, and then −2^63 after it overflowed */
    const int64_t huge = INT64_MAX / 2 + 1;
    fails(fx_conv(FX_DIMS(3), 1, 1, .dilation = FX_DIMS(huge), .pad = FX_SAME),
          "Conv: the padding of FX_SAME is too large: kernel 3, dilation 4611686018427387904");
    fails(fx_upsample(FX_UPSAMPLE_MODE_NEAREST),
          "Either scale or size should be specified (but not both).");
    fails(fx_upsample(FX_UPSAMPLE_MODE_BILINEAR, FX_DIMS(2), FX_DIMS(4, 4)),
          "Either scale or size");
    fails(fx_upsample(FX_UPSAMPLE_MODE_BILINEAR, FX_DIMS(2, 2, 2)),
          "scale takes one number, or one for each of 2 axes");
    fails(fx_upsample((fx_upsample_mode)5, FX_DIMS(2)), "mode=5 is not supported.");
    fails(fx_parse_model("Upsample(:cubic, scale=2)"),
          "Upsample takes :nearest, :bilinear or :trilinear, got");
    fails(fx_call(fx_upsample(FX_UPSAMPLE_MODE_BILINEAR, FX_DIMS(2)), fx_ones(4, 2, 1)),
          "layer Upsample(:bilinear, scale = 2) expects ndims(input) == 4, but got 4×2×1");
    fx_array *five = fx_call(fx_upsample(FX_UPSAMPLE_MODE_NEAREST, .size = FX_DIMS(5)),
                             fx_reshape(fx_range(0, 1, 4), 4, 1, 1));
    for (int i = 0; i < 5; i++)
        assert_true(fx_at(five, i) == (double)(i * 4 / 5));
    fails(fx_pixelshuffle(0), "the factor must be positive, got 0");
    fails(fx_call(fx_pixelshuffle(2), fx_ones(4, 3, 1)),
          "channel dimension to be divisible by r^d");
    const int64_t far = INT32_MAX;
    assert_true(fx_is_error(fx_call(
        fx_convtranspose(FX_DIMS(1, 1, 1), 1, 1, .outpad = FX_DIMS(far)), fx_ones(1, 1, 1, 1, 1))));
    assert_non_null(strstr(fx_error_take().message, "the product of the sizes overflows"));
    fails(fx_lpnormpool(FX_DIMS(2), INFINITY), "expects a finite p > 0, got p = inf");
    fails(fx_lpnormpool(FX_DIMS(2), -1), "expects a finite p > 0, got p = -1");
    fails(fx_call(fx_convtranspose(FX_DIMS(2), 1, 1, .pad = FX_DIMS(3)), fx_ones(2, 1, 1)),
          "negative size");
    /* nothing is left of the result, or of the gradient */
    fx_array *none = fx_convolve_transposed(fx_ones(2, 1, 1), fx_ones(1, 1, 1), .pad = FX_DIMS(1));
    assert_int_equal(fx_eval(none), FX_OK);
    assert_int_equal(fx_size(none, 0), 0);
    fx_array *x = fx_zeros(0, 1, 1), *g = NULL;
    fx_array *y = fx_convolve(x, fx_ones(1, 1, 1), .pad = FX_DIMS(1));
    assert_int_equal(fx_gradient_of(fx_sum(y), &x, 1, &g), FX_OK);
    assert_int_equal(fx_eval(g), FX_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_correlates),
        cmocka_unit_test(transposes),
        cmocka_unit_test(keeps_sizes),
        cmocka_unit_test(works_on_each_channel),
        cmocka_unit_test(pools_the_whole_or_a_size),
        cmocka_unit_test(pools_norms),
        cmocka_unit_test(are_written),
        cmocka_unit_test(are_saved),
        cmocka_unit_test(of_every_version_are_read),
        cmocka_unit_test(have_state_dictionaries),
        cmocka_unit_test(refuse),
    };
    return cmocka_run_group_tests_name("conv_layers", tests, NULL, NULL);
}
