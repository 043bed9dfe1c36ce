/* Models as text. A printed model is read back as the same structure: for random models of every
 * layer, in both forms of printing, with equal results once the parameters are the same. Texts that
 * people write are printed as Flux would print them; each error names its position. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cflux.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "evaluate.h"
#include "memory.h"

enum { TEXT = 1 << 16 };
static char shown[TEXT], again[TEXT];

static const char *summary(void *object, char dst[TEXT])
{
    assert_true(fx_summary(object, dst, TEXT) < TEXT);
    return dst;
}

static void *parsed(const char *text)
{
    void *model = fx_parse_model(text);
    const fx_error e = fx_error_take();
    if (fx_is_error(model) || e.status != FX_OK)
        fail_msg("%s: %s", text, e.message);
    return model;
}

/* ---- texts that people write ----------------------------------------------------------------- */

static void written_by_hand(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"Chain(Conv((5, 5), 1 => 6, relu), MaxPool((2, 2)), Flux.flatten, Dense(864 => 10))",
         "Chain(Conv((5, 5), 1 => 6, relu), MaxPool((2, 2)), Flux.flatten, Dense(864 => 10))"},
        {"Dense(10, 5, σ)", "Dense(10 => 5, σ)"},
        {" Dense ( 10=>5 ,NNlib.relu ) ", "Dense(10 => 5, relu)"},
        {"Flux.Dense(10 => 5, Flux.sigmoid; bias = false)", "Dense(10 => 5, σ; bias=false)"},
        {"Dense(10 => 5, bias=false, tanh,)", "Dense(10 => 5, tanh; bias=false)"},
        {"Dense(2 => 3, identity; init=Flux.kaiming_normal, bias=true)", "Dense(2 => 3)"},
        {"Dense(1_000 => 2, tanh_fast)", "Dense(1000 => 2, tanh)"},
        {"Dense(3 => 4, gelu)", "Dense(3 => 4, gelu_tanh)"},
        {"Conv((3,), 1 => 2)", "Conv((3,), 1 => 2)"},
        {"Conv((3, 3), 4 => 8; groups=2, stride=(2, 2), pad=SamePad(), bias=false)",
         "Conv((3, 3), 4 => 8, pad=1, stride=2, groups=2, bias=false)"},
        {"Conv((3, 3), 4=>8, pad=(1,0), dilation=(1, 2), elu)",
         "Conv((3, 3), 4 => 8, elu, pad=(1, 0), dilation=(1, 2))"},
        {"Conv((2, 2, 2), 1 => 1, pad=(0, 1, 0, 1, 0, 1))",
         "Conv((2, 2, 2), 1 => 1, pad=(0, 1, 0, 1, 0, 1))"},
        {"MaxPool((3, 3); stride = 2, pad = 1)", "MaxPool((3, 3), pad=1, stride=2)"},
        {"MeanPool((2,))", "MeanPool((2,))"},
        {"BatchNorm(64, relu, affine=false, active=true)",
         "BatchNorm(64, relu, affine=false, active=true)"},
        {"BatchNorm(4; eps=1f-3, momentum=0.5f0, active=nothing, track_stats=false)",
         "BatchNorm(4)"},
        {"LayerNorm(4, affine=false)", "LayerNorm(4, affine=false)"},
        {"LayerNorm((4, 5), tanh; ϵ=1e-6)", "LayerNorm(4, 5, tanh)"},
        {"LayerNorm(4, 5, 6, relu)", "LayerNorm(4, 5, 6, relu)"},
        {"Dropout(0.4, dims=2, active=false)", "Dropout(0.4, dims=2, active=false)"},
        {"Dropout(5f-1; dims=(1,3))", "Dropout(0.5, dims=(1, 3))"},
        {"Dropout(p=0, dims=:)", "Dropout(0.0)"},
        {"Chain()", "Chain()"},
        {"Chain(x -> reshape(x, :, size(x, 4)), Dense(8, 2))",
         "Chain(x -> reshape(x, :, size(x, 4)), Dense(8 => 2))"},
        {"Chain(f = z->Flux.softmax(tanh.(z)), g = x->x)",
         "Chain(f = Chain(tanh, softmax), g = identity)"},
        {"x -> reshape(maxpool(x, (2, 2)), (7, :))",
         "Chain(MaxPool((2, 2)), x -> reshape(x, 7, :))"},
        {"x -> 2f0x", "x -> 2.0f0 .* x"},
        {"x -> 1.0e-3 .* x ./ 3 .- 1", "Chain(x -> 0.001 .* x, x -> x ./ 3, x -> x .- 1)"},
        {"x -> 2 * NNlib.relu.(x .+ 1)", "Chain(x -> x .+ 1, relu, x -> 2 .* x)"},
        {"Chain(Dense(2 => 3, sin), x -> abs2.(x), Base.sqrt, x -> vec(x), only)",
         "Chain(Dense(2 => 3, sin), abs2, sqrt, vec, only)"},
        {"x -> x.^2", "x -> x .^ 2"},
        {"x -> 2 .^ x", "x -> 2 .^ x"},
        {"x -> x .^ -0.5", "x -> x .^ -0.5"},
        {"x -> (x)", "identity"},
        {"x -> (x .- 1f-1) ./ 0.5", "Chain(x -> x .- 0.1f0, x -> x ./ 0.5)"},
        {"x -> tanh.(2(x .+ 1))", "Chain(x -> x .+ 1, x -> 2 .* x, tanh)"},
        {"x -> 1 .- x .* 2", "Chain(x -> x .* 2, x -> 1 .- x)"},
        {"x -> 1 .+ 2x.^2 ./ 3", "Chain(x -> x .^ 2, x -> 2 .* x, x -> x ./ 3, x -> 1 .+ x)"},
        {"x -> 6 ./ 2x", "Chain(x -> 2 .* x, x -> 6 ./ x)"},
        {"Dense(2 => 3, x -> x.^2)", "Dense(2 => 3, x -> x .^ 2)"},
        {"Dense(2 => 3, z -> (tanh(z) + 1) / 2; bias=false)",
         "Dense(2 => 3, x -> (tanh.(x) .+ 1) ./ 2; bias=false)"},
        {"Conv((3, 3), 1 => 2, x -> 2x^2 - 1, pad=1)",
         "Conv((3, 3), 1 => 2, x -> (2 .* (x .^ 2)) .- 1, pad=1)"},
        {"x -> 2 .* leakyrelu.(x .+ 1, 0.2f0)",
         "Chain(x -> x .+ 1, x -> leakyrelu.(x, 0.2f0), x -> 2 .* x)"},
        {"Dense(2 => 3, x -> trelu(elu(x + 1, 2), 0.5) + 1)",
         "Dense(2 => 3, x -> trelu.(elu.(x .+ 1, 2), 0.5) .+ 1)"},
        {"Dense(2 => 3, x -> NNlib.gelu(x))", "Dense(2 => 3, gelu_tanh)"},
        {"Dense(2 => 3, x -> x)", "Dense(2 => 3)"},
        {"Chain([softmax, Dense(1 => 1)])", "Chain(softmax, Dense(1 => 1))"},
        {"Chain(enc = Dense(4 => 2), β₂ = Dense(2 => 4))",
         "Chain(enc = Dense(4 => 2), β₂ = Dense(2 => 4))"},
        {"Chain(; a = logσ, b = Chain(hardσ, mish))", "Chain(a = logσ, b = Chain(hardσ, mish))"},
        {"(Dense(1 => 1), relu)", "(Dense(1 => 1), relu)"},
        {"(relu,)", "(relu,)"},
        {"(relu)", "relu"},
        {"(; g = Chain(relu), d = tanh)", "(g = Chain(relu), d = tanh)"},
        {"Chain( # a comment, with ) and (\n  Dense(2 => 3), # 9 parameters\n\tsoftmax,\r\n) ",
         "Chain(Dense(2 => 3), softmax)"},
    };
    int n = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++, n++) {
        FX_SCOPE;
        assert_string_equal(summary(parsed(cases[i][0]), shown), cases[i][1]);
    }
    assert_true(n >= 31);
}

static void options_that_are_not_printed(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_batchnorm_layer *b = parsed("BatchNorm(4; eps=1f-3, momentum=0, track_stats=false)");
    assert_true(b->epsilon == 1e-3 && b->momentum == 0 && !b->mean && b->gamma);
    assert_true(((fx_layernorm_layer *)parsed("LayerNorm(4; eps=0.25)"))->epsilon == 0.25);
    fx_batchnorm_layer *norms[] = {
        parsed("BatchNorm(3; initβ=ones32, initγ=Flux.zeros32)"),
        parsed("InstanceNorm(3; affine=true, initγ=zeros32, initβ=ones32)"),
        fx_instancenorm(3, .affine = true, .init_beta = fx_ones_init, .init_gamma = fx_zeros_init)};
    for (int i = 0; i < 3; i++)
        assert_true(fx_item(fx_all(fx_eq(norms[i]->beta, 1))) == 1 &&
                    fx_item(fx_all(fx_eq(norms[i]->gamma, 0))) == 1 &&
                    (!norms[i]->var || fx_item(fx_all(fx_eq(norms[i]->var, 1))) == 1));
    fx_groupnorm_layer *groups = parsed("GroupNorm(4, 2; initγ=zeros32)");
    assert_true(fx_item(fx_all(fx_eq(groups->gamma, 0))) == 1 && fx_length(groups->gamma) == 4);
    assert_true(fx_item(fx_all(fx_eq(groups->beta, 0))) == 1);
    fx_dense_layer *ones = parsed("Dense(3 => 2; init=ones32)");
    assert_true(fx_item(fx_all(fx_eq(ones->weight, 1))) == 1);
    const fx_conv_layer *c = parsed("Conv((4, 3), 1 => 1, pad=SamePad(), dilation=2)");
    const int64_t same[] = {3, 3, 2, 2}; /* (k−1)·dilation: 6 and 4 */
    assert_int_equal(c->pad.n, 4);
    assert_memory_equal(c->pad.v, same, sizeof same);
    fx_array *y = fx_call(parsed("Chain(Conv((5, 5), 1 => 6, relu), MaxPool((2, 2)), Flux.flatten,"
                                 " Dense(864 => 10))"),
                          fx_rand(28, 28, 1, 3));
    assert_true(fx_ndims(y) == 2 && fx_size(y, 0) == 10 && fx_size(y, 1) == 3);
    /* As in Julia, 0.1f0 is a Float32, also where it meets a Float64. */
    fx_array *tenth = fx_call(parsed("x -> 0.1f0 .* x"), fx_full_dtype(FX_DTYPE_F64, 1, 1));
    assert_true(fx_item(tenth) == (double)0.1f);
    fx_batchnorm_layer *largest = parsed("BatchNorm(1; eps=3.4028235f38, momentum=1f-60)");
    assert_true((float)largest->epsilon == 0x1.fffffep127f && (float)largest->momentum == 0);
    for (int i = 0; i < 2; i++) { /* every function by both of its names */
#define HAS(NAME, word) assert_ptr_equal(parsed(i ? #word : FX_##NAME->name), FX_##NAME);
        FXI_FUNCTIONS(HAS)
#undef HAS
    }
}

/* ---- functions of Julia's Base --------------------------------------------------------------- */

/* f and its derivative, by C's functions. */
#define SLOPE(name, f, df)                                                                         \
    static double value_of_##name(double x)                                                        \
    {                                                                                              \
        return f;                                                                                  \
    }                                                                                              \
    static double slope_of_##name(double x)                                                        \
    {                                                                                              \
        (void)x;                                                                                   \
        return df;                                                                                 \
    }
#define BASE_ROWS(X)                                                                               \
    X(exp, exp(x), exp(x))                                                                         \
    X(expm1, expm1(x), exp(x))                                                                     \
    X(sin, sin(x), cos(x))                                                                         \
    X(cos, cos(x), -sin(x))                                                                        \
    X(tan, tan(x), 1 / (cos(x) * cos(x)))                                                          \
    X(atan, atan(x), 1 / (1 + x * x))                                                              \
    X(sinh, sinh(x), cosh(x))                                                                      \
    X(cosh, cosh(x), sinh(x))                                                                      \
    X(asinh, asinh(x), 1 / sqrt(x * x + 1))                                                        \
    X(abs, fabs(x), x < 0 ? -1 : 1)                                                                \
    X(abs2, x *x, 2 * x)                                                                           \
    X(sign, x < 0 ? -1 : 1, 0)                                                                     \
    X(inv, 1 / x, -1 / (x * x))                                                                    \
    X(sqrt, sqrt(x), 0.5 / sqrt(x))                                                                \
    X(log, log(x), 1 / x)                                                                          \
    X(log1p, log1p(x), 1 / (1 + x))                                                                \
    X(asin, asin(x), 1 / sqrt(1 - x * x))                                                          \
    X(acos, acos(x), -1 / sqrt(1 - x * x))                                                         \
    X(acosh, acosh(x), 1 / sqrt(x * x - 1))                                                        \
    X(atanh, atanh(x), 1 / (1 - x * x))                                                            \
    X(vec, x, 1)                                                                                   \
    X(tanh, tanh(x), 1 - tanh(x) * tanh(x))                                                        \
    X(identity, x, 1)
/* clang-format off */
BASE_ROWS(SLOPE)
/* clang-format on */
#undef SLOPE

static void check_near(const char *name, fx_array *x, int i, double expected)
{
    const double got = fx_at(x, i);
    if (!(fabs(got - expected) <= 1e-12 * (1 + fabs(expected))) && !(isnan(got) && isnan(expected)))
        fail_msg("%s: %.17g instead of %.17g", name, got, expected);
}

/* Values and gradients, also outside of a function's domain, where both are NaN. */
static void functions_of_base(void **state)
{
    (void)state;
    static const double x[] = {-2.5, -0.75, -0.25, 0.5, 0.9, 1.5, 3};
    static const struct {
        const char *name;
        double (*value)(double), (*slope)(double);
    } rows[] = {
#define ROW(name, f, df) {#name, value_of_##name, slope_of_##name},
        BASE_ROWS(ROW)
#undef ROW
    };
    enum { N = sizeof x / sizeof *x };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        FX_SCOPE;
        char text[80];
        snprintf(text, sizeof text, "Chain(Base.%s)", rows[i].name);
        fx_array *in = fx_from(FX_DTYPE_F64, x, N), *y = fx_call(parsed(text), in);
        fx_array *gradient = fx_gradient(fx_sum(y), in);
        assert_int_equal(fx_eltype(y), FX_DTYPE_F64);
        for (int k = 0; k < N; k++) {
            check_near(rows[i].name, y, k, rows[i].value(x[k]));
            if (!isnan(rows[i].value(x[k])))
                check_near(rows[i].name, gradient, k, rows[i].slope(x[k]));
        }
    }
}

/* Each activation with a parameter p, of −2, −0.25 and 1.5: NNlib's formulas. */
static void activations_with_a_parameter(void **state)
{
    static const struct {
        const char *text;
        double expected[3];
    } rows[] = {{"x -> leakyrelu.(x, 0.5)", {-1, -0.125, 1.5}},
                {"x -> elu.(x, 0.5)", {-0.43233235838169365, -0.11059960846429760, 1.5}},
                {"x -> celu.(x, 0.5)", {-0.49084218055563290, -0.19673467014368329, 1.5}},
                {"x -> softshrink.(x, 0.5)", {-1.5, 0, 1}},
                {"x -> trelu.(x, 0.5)", {0, 0, 1.5}},
                {"x -> trelu.(x, 2)", {0, 0, 0}}};
    (void)state;
    FX_SCOPE;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double x[] = {-2, -0.25, 1.5};
        fx_array *y = fx_call(parsed(rows[i].text), fx_from(FX_DTYPE_F64, x, 3));
        for (int k = 0; k < 3; k++)
            check_near(rows[i].text, y, k, rows[i].expected[k]);
    }
}

/* (tanh(x)² − 1)·3 of each element, and its derivative 6·tanh(x)·(1 − tanh(x)²). */
static void anonymous_functions_compute(void **state)
{
    static const char *const texts[] = {
        "Chain(x -> 3(tanh.(x).^2 .- 1))",
        "Scale(3, z -> (tanh(z)^2 - 1) * 3; bias=false)",
    };
    (void)state;
    FX_SCOPE;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const double x[] = {-0.75, 0.5, 2};
        fx_array *in = fx_from(FX_DTYPE_F64, x, 3), *y = fx_call(fx_f64(parsed(texts[i])), in);
        fx_array *gradient = fx_gradient(fx_sum(y), in);
        for (int k = 0; k < 3; k++) {
            const double t = tanh(x[k]);
            check_near(texts[i], y, k, (t * t - 1) * 3);
            check_near(texts[i], gradient, k, 6 * t * (1 - t * t));
        }
    }
    fx_dense_layer *l = parsed("Dense(1 => 1, x -> x^2)");
    assert_true(fx_is_error(l->act->apply(fx_ones(1))));
    assert_non_null(strstr(fx_error_take().message, "is called with fx_call"));
}

/* An array of one element of any shape becomes a number; other arrays are an error, as in Julia. */
static void only_takes_one_element(void **state)
{
    (void)state;
    FX_SCOPE;
    void *model = parsed("Chain(Dense(2 => 1; init=ones32), only, sqrt)");
    fx_array *x = fx_from(FX_DTYPE_F32, ((const float[]){4, 5}), 2, 1), *y = fx_call(model, x);
    assert_true(fx_ndims(y) == 0 && fx_item(y) == 3);
    fx_array *g = fx_gradient(y, x); /* 1/(2·3) for each */
    assert_true(fx_ndims(g) == 2 && fabs(fx_at(g, 0) - 1.0 / 6) < 1e-7);
    assert_true(fx_is_error(fx_call(FX_ONLY, fx_ones(2, 3))));
    assert_string_equal(fx_error_take().message, "only: expects an array of 1 element, got 2×3");
    assert_true(fx_is_error(fx_call(FX_ONLY, fx_ones(0))));
    assert_string_equal(fx_error_take().message, "only: expects an array of 1 element, got 0");
}

/* ---- what is printed ------------------------------------------------------------------------- */

static int64_t below(int64_t n)
{
    return (int64_t)(fx_rand_u64() % (uint64_t)n);
}

static fx_function *random_act(void)
{
#define ADDRESS(NAME, name) &fxi_function_##name,
    static fx_function *const all[] = {FXI_FUNCTIONS(ADDRESS)};
#undef ADDRESS
    enum { NNLIB = 26, WHOLE = 3, BASE = 12 }; /* the functions after these have a domain */
    const int64_t i = below(NNLIB + BASE);
    return below(2) ? all[i < NNLIB ? i : i + WHOLE] : NULL;
}

static fx_dims random_dims(int64_t n, int64_t least, int64_t most)
{
    fx_dims d = {.n = n};
    for (int64_t i = 0; i < n; i++)
        d.v[i] = least + below(most - least + 1);
    return d;
}

/* One for all, or several. */
static fx_dims option(int64_t n, int64_t least, int64_t most)
{
    return random_dims(below(2) ? 1 : n, least, most);
}

/* A layer of a kind, and an input that it takes. */
static void *random_layer(int kind, fx_array **out_x)
{
    const int64_t c = 1 + below(3), groups = 1 + below(2), in = 1 + below(6), n = 1 + below(3);
    int64_t sizes[] = {12, 12, 12, 12, 12};
    sizes[c] = kind == 1 ? in * groups : in;
    sizes[c + 1] = 2;
    *out_x = fxi_rand(FX_DTYPE_F32, (int)c + 2, sizes);
    const fx_active active = (fx_active)below(3);
    const fx_dims window = random_dims(c, 2, 3), pad = below(4) ? option(c, 0, 1) : FX_SAME;
    const fx_dims axes = random_dims(below(3), 0, 4);
    switch (kind) {
    case 0:
        *out_x = fx_rand(in, 2);
        return fx_dense(in, 1 + below(6), random_act(), .bias = below(2) != 0);
    case 1:
        return fx_conv(random_dims(c, 1, 3), in * groups, (1 + below(3)) * groups, random_act(),
                       .stride = option(c, 1, 2), .dilation = option(c, 1, 2),
                       .pad = below(2) ? pad : option(2 * c, 0, 2), .groups = groups,
                       .bias = below(2) != 0);
    case 2:
        return fx_maxpool(window, .pad = pad,
                          .stride = below(3) ? option(c, 1, 3) : (fx_dims){0, {0}});
    case 3:
        return fx_meanpool(window, .pad = pad,
                           .stride = below(3) ? option(c, 1, 3) : (fx_dims){0, {0}});
    case 4:
        *out_x = fx_rand(3, in, 2);
        return fx_batchnorm(in, random_act(), .affine = below(2), .active = active);
    case 5:
        *out_x = fxi_rand(FX_DTYPE_F32, (int)n, sizes);
        return fx_layernorm(((fx_dims){.n = n, .v = {sizes[0], sizes[1], sizes[2]}}), random_act(),
                            .affine = below(2));
    case 6:
        return fx_dropout((double)below(11) / 10, .active = active,
                          .dims = axes.n ? fx_axes_of((int)axes.n, axes.v) : FX_ALL);
    default:
        return FX_RELU;
    }
}

typedef struct arrays {
    char text[TEXT];
    size_t n;
} arrays;

static void note(fx_array *x, const char *path, bool trainable, void *user)
{
    arrays *a = user;
    a->n += (size_t)snprintf(a->text + a->n, TEXT - a->n, "%s %d", path, trainable);
    for (int i = 0; i < fx_ndims(x); i++)
        a->n += (size_t)snprintf(a->text + a->n, TEXT - a->n, " %" PRId64, fx_size(x, i));
    a->n += (size_t)snprintf(a->text + a->n, TEXT - a->n, "\n");
    assert_true(a->n < TEXT);
}

/* Both printed forms of the model come back as the same structure, which is returned. */
static void *round_trip(void *model)
{
    static arrays here, there;
    here.n = there.n = 0;
    assert_string_equal(summary(parsed(summary(model, shown)), again), shown);
    assert_true(fx_show_text(model, shown, TEXT) < TEXT);
    void *copy = parsed(shown);
    assert_true(fx_show_text(copy, again, TEXT) < TEXT);
    assert_string_equal(again, shown);
    fx_visit(model, note, &here);
    fx_visit(copy, note, &there);
    assert_int_equal(here.n, there.n);
    assert_memory_equal(here.text, there.text, here.n);
    return copy;
}

static void random_layers(void **state)
{
    (void)state;
    int n = 0, with_arrays = 0;
    for (int i = 0; i < 320; i++, n++) {
        FX_SCOPE;
        fx_array *x;
        void *layer = random_layer(i % 8, &x);
        assert_int_equal(fx_error_take().status, FX_OK);
        void *copy = round_trip(layer);
        if (fx_parameter_count(layer) > 0) {
            assert_int_equal(fx_loadmodel(copy, layer), FX_OK);
            with_arrays++;
        }
        fx_seed(7); /* the same mask of a dropout */
        fx_array *y = fx_call(layer, x);
        fx_eval(y);
        fx_seed(7);
        assert_true(fx_item(fx_all(fx_eq(y, fx_call(copy, x)))) == 1);
        assert_int_equal(fx_error_take().status, FX_OK);
        fx_seed((uint64_t)i + 1000);
    }
    assert_true(n == 320 && with_arrays >= 100);
}

static void *random_model(int depth)
{
    static const char *const words[] = {"a", "enc", "β", "x_1", "out!"};
    void *items[5];
    const char *names[5];
    fx_array *x;
    const int n = (int)below(5), kind = (int)below(6);
    if (depth == 0 || kind < 2)
        return random_layer((int)below(8), &x);
    for (int i = 0; i < n; i++) {
        items[i] = random_model(depth - 1);
        while (kind != 3 && kind != 4 && !fx_type_of(items[i])->forward)
            items[i] = random_model(depth - 1); /* a tuple is not a layer */
        names[i] = words[i];
    }
    const void *pairs[10];
    for (int i = 0; i < n; i++)
        pairs[2 * i] = names[i], pairs[2 * i + 1] = items[i];
    return kind == 3        ? fxi_tuple(n, items)
           : kind == 4      ? fx_named_tuple_from(n, names, items)
           : kind == 5      ? fxi_chain(n, items)
           : kind == 2 && n ? (void *)fxi_parallel_pairs(FX_HCAT, 2 * n, pairs)
                            : fxi_chain_pairs(2 * n, pairs);
}

static void random_models(void **state)
{
    (void)state;
    int large = 0;
    for (uint64_t seed = 0; seed < 150; seed++) {
        FX_SCOPE;
        fx_seed(seed);
        void *model = random_model(4);
        assert_int_equal(fx_error_take().status, FX_OK);
        round_trip(model);
        large += strchr(shown, '\n') != NULL;
    }
    assert_true(large >= 50);
}

/* ---- errors ---------------------------------------------------------------------------------- */

#define FUNCTION_LIST                                                                              \
    "identity, sigmoid, hardsigmoid, logsigmoid, tanh, hardtanh, relu, relu6, leakyrelu, "         \
    "rrelu, elu, celu, selu, gelu, gelu_sigmoid, gelu_erf, swish, hardswish, lisht, "              \
    "softplus, softsign, logcosh, mish, tanhshrink, softshrink, trelu, softmax, "                  \
    "logsoftmax, flatten, exp, expm1, sin, cos, tan, atan, sinh, cosh, asinh, abs, abs2, "         \
    "sign, inv, sqrt, log, log1p, asin, acos, acosh, atanh, vec, only"

#define CLOSURES                                                                                   \
    "an anonymous function can be x, reshape(x, …), maxpool(x, (2, 2)), meanpool(x, (2, 2)), "   \
    "softmax(x), f.(x) or 2 .* x, got "

#define ACTIVATIONS "an anonymous function can be x, f(x), 2x or x^2 as an activation, got "

static void refused(const char *text, const char *message)
{
    FX_SCOPE;
    void *model = fx_parse_model(text);
    const fx_error e = fx_error_take();
    assert_true(fx_is_error(model));
    assert_string_equal(e.message, message);
    assert_true(e.status == FX_STATUS_FORMAT || e.status == FX_STATUS_ARGUMENT);
}

/* A message quotes at most 24 characters of a text; "…" follows if the text is longer. */
static void quotes_are_cut_between_characters(void **state)
{
    (void)state;
    static const char *const letters[] = {"a", "σ", "加", "𝒩"}; /* 1 to 4 bytes */
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        for (int n = 1; n <= 30; n++) {
            char name[130] = "", text[200], message[300];
            for (int k = 0; k < n; k++)
                strcat(name, letters[i]);
            snprintf(text, sizeof text, "Dense(%s => 4)", name);
            if (n > 24)
                snprintf(name + 24 * strlen(letters[i]), 8, "…");
            snprintf(message, sizeof message, "model, column 7: Dense takes in => out, got %s",
                     name);
            refused(text, message);
        }
}

/* The names of all layers, in their order; a list that is too long for a message ends with "…". */
static void unknown_layers_are_answered_with_a_list(void **state)
{
    (void)state;
    char expected[2000] = "model, column 10: unknown layer Konv; known are ";
    const fx_type *type;
    for (int64_t i = 0; (type = fx_layer_type(i)); i++) {
        const size_t n = strlen(expected);
        snprintf(expected + n, sizeof expected - n, "%s%s", i ? ", " : "", type->name);
    }
    FX_SCOPE;
    assert_true(fx_is_error(fx_parse_model("Chain(σ, Konv((1,), 1 => 1))")));
    fx_error e = fx_error_take();
    char *cut = strstr(e.message, ", …");
    if (cut)
        *cut = 0;
    assert_true(strlen(e.message) > 200 || strcmp(e.message, expected) == 0);
    assert_memory_equal(e.message, expected, strlen(e.message));
    assert_true(strchr(", ", expected[strlen(e.message)]) || !expected[strlen(e.message)]);
}

/* A text, and the error that it gives. */
static const char *const wrong_models[][2] = {
    {"", "model, column 1: expected a layer or a function, got the end of the text"},
    {"# only a comment",
     "model, column 17: expected a layer or a function, got the end of the text"},
    {"7", "model, column 1: expected a layer or a function, got 7"},
    {"Chain(Dense(3 => ))", "model, column 18: Dense takes in => out, got 3 => )"},
    {"Chain(Dense(3 => ", "model, column 18: Dense takes in => out, got 3 => "},
    {"Dense(3)", "model, column 8: Dense takes in => out, got 3)"},
    {"Dense()", "model, column 7: Dense takes in => out, got )"},
    {"Dense(; bias=false)", "model, column 19: Dense takes in => out, got )"},
    {"Dense(3 = 4)", "model, column 11: Dense takes in => out, got 3 = 4"},
    {"Dense(σ => 4)", "model, column 7: Dense takes in => out, got σ"},
    {"Dense(2.5 => 4)", "model, column 7: Dense takes in => out, got 2.5"},
    {"Dense(3 => 4, 7)", "model, column 15: Dense takes a function, got 7"},
    {"Dense(3 => 4, relu, 7)", "model, column 21: Dense takes no argument here, got 7"},
    {"Dense(3 => 4; bias=7)", "model, column 20: Dense takes true or false for bias, got 7"},
    {"Dense(3 => 4; bias=maybe)",
     "model, column 20: Dense takes true or false for bias, got maybe"},
    {"Dense(3 => 4; bais=true)", "model, column 15: Dense has no option bais; it has bias, init"},
    {"Dense(3 => 4; bias=true, bias=true)", "model, column 26: bias is given twice"},
    {"Dropout(0.5, p=0.5)", "model, column 14: p is given twice"},
    {"Dense(3 => 4 relu)", "model, column 14: expected , or ), got relu"},
    {"Dense(3 => 4", "model, column 13: expected , or ), got the end of the text"},
    {"Dense(0 => 4)", "model, column 7: Dense takes numbers from 1 to 2147483647 here, got 0"},
    {"Dense(4 => -4)", "model, column 12: Dense takes numbers from 1 to 2147483647 here, got -4"},
    {"Dense(4 => 2147483648)",
     "model, column 12: Dense takes numbers from 1 to 2147483647 here, got 2147483648"},
    {"Dense(99999999999999999999 => 4)",
     "model, column 7: 99999999999999999999 is not a number, or too large"},
    {"Dropout(1e999)", "model, column 9: 1e999 is not a number, or too large"},
    {"Dropout(1e)", "model, column 9: 1e is not a number, or too large"},
    {"Dense(2000000000 => 2000000000)",
     "model, column 7: Dense of that size would have more than 1099511627776 parameters"},
    {"Conv((2000000, 2000000), 2000000 => 1)",
     "model, column 6: Conv of that size would have more than 1099511627776 parameters"},
    {"LayerNorm(2147483647, 2147483647, 2147483647)",
     "model, column 11: LayerNorm of that size would have more than 1099511627776 parameters"},
    {"Chain(Dense(1000000 => 1000000), Dense(1000000 => 1000000))",
     "model, column 34: the model would have more than 1099511627776 parameters"},
    {"Conv((), 1 => 2)", "model, column 8: Conv takes a kernel such as (5, 5), got (),"},
    {"Conv((3, 3), 1 => 2; stride=0)",
     "model, column 29: Conv takes numbers from 1 to 2147483647 here, got 0"},
    {"Conv((3, 3), 1 => 2; pad=Same())",
     "model, column 26: Conv takes a number, several such as (1, 1), or SamePad() for pad, "
     "got Same"},
    {"Conv((3, 3), 1 => 2, stride=(1,1,1))",
     "model, column 1: Conv: stride takes one number, or one for each of 2 axes, of at least 1, "
     "got (1, 1, 1)"},
    {"Conv((3, 3), 3 => 2, groups=2)",
     "model, column 1: Conv: Input channel dimension must be divisible by groups, got "
     "3 => 2, 2 groups"},
    {"Conv((1,1,1,1), 3 => 2)", "model, column 1: Conv: takes kernels of 1 to 3 axes and at "
                                "least one group, got 4 axes and 1 groups"},
    {"MaxPool((1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1))",
     "model, column 42: MaxPool takes at most 16 numbers here"},
    {"LayerNorm(1,1,1,1,1,1,1,1,1)", "model, column 27: LayerNorm takes at most 8 sizes"},
    {"BatchNorm(relu)", "model, column 11: BatchNorm takes a number of channels, got relu"},
    {"Chain(Dropout(1.5))", "model, column 7: Dropout: expects 0 ≤ p ≤ 1, got p = 1.5"},
    {"Dropout(0.5; active=yes)",
     "model, column 21: Dropout takes true, false or nothing for active, got yes"},
    {"Dropout(0.5; dims=x)",
     "model, column 19: Dropout takes an axis, several such as (1, 2), or : for dims, got x"},
    {"Dense(1 => 1; init=relu)",
     "model, column 20: unknown initialiser relu; known are glorot_uniform, "
     "glorot_normal, kaiming_uniform, kaiming_normal, lecun_normal, truncated_normal, "
     "rand32, randn32, orthogonal, identity_init, zeros32, ones32"},
    {"Chain(reluu)", "model, column 7: unknown function reluu; known are " FUNCTION_LIST},
    {"Chain(Other.relu)", "model, column 7: unknown function Other; known are " FUNCTION_LIST},
    {"Dense(1 => 1, Flux.)", "model, column 15: Dense takes a function, got Flux"},
    {"Chain(relu", "model, column 11: expected , or ), got the end of the text"},
    {"Chain(relu))", "model, column 12: expected the end of the text, got )"},
    {"Chain([relu, tanh)", "model, column 18: expected , or ], got )"},
    {"Chain([relu], tanh)", "model, column 13: expected ), got ,"},
    {"Chain(,)", "model, column 7: expected a layer or a function, got ,"},
    {"Chain(layers = relu)",
     "model, column 1: Chain: a Chain cannot have a named layer called `layers`"},
    {"Chain(a = relu, a = tanh)", "model, column 1: Chain: two layers are called `a`"},
    {"Chain((relu, tanh))", "model, column 1: Chain: child 0 is not a layer: (relu, tanh)"},
    {"(a = relu, tanh)", "model, column 1: either all items of a tuple have names, or none"},
    {"Chain(\n  Dense(2 => 3),  # 9 parameters\n  β = Dense(3 => 0),\n)",
     "model, line 3, column 18: Dense takes numbers from 1 to 2147483647 here, got 0"},
    {"x -> relu(x)", "model, column 6: " CLOSURES "relu"},
    {"x -> softmax.(x)", "model, column 6: " CLOSURES "softmax"},
    {"x -> y", "model, column 6: " CLOSURES "y"},
    {"x -> sum(x)", "model, column 6: " CLOSURES "sum"},
    {"x -> 2", "model, column 6: " CLOSURES "2"},
    {"x -> 2 x", "model, column 6: " CLOSURES "2"},
    {"x -> 1 / x", "model, column 6: " CLOSURES "1"},
    {"x -> x .+ 1 .* 2", "model, column 16: " CLOSURES "2"},
    {"x -> x .+ x", "model, column 11: " CLOSURES "x"},
    {"x -> x .^ 2 .^ 3", "model, column 13: " CLOSURES "."},
    {"x -> -2 .^ x", "model, column 6: " CLOSURES "-"},
    {"x -> x ^ 2", "model, column 8: expected the end of the text, got ^"},
    {"x -> (x .+ 1", "model, column 13: " CLOSURES "the end of the text"},
    {"Dense(2 => 3, x -> softmax(x))", "model, column 20: " ACTIVATIONS "softmax"},
    {"Dense(2 => 3, x -> x^x)", "model, column 22: " ACTIVATIONS "x"},
    {"Dense(2 => 3, x -> 2)", "model, column 20: " ACTIVATIONS "2"},
    {"Dropout(1f39)", "model, column 9: 1f39 is not a number, or too large"},
    {"x -> -4_0f38 .* x", "model, column 6: -4_0f38 is not a number, or too large"},
    {"x -> reshape(x)", "model, column 6: " CLOSURES "reshape"},
    {"x -> reshape(x, :, :)", "model, column 6: " CLOSURES "reshape"},
    {"x -> reshape(x, 2.5)", "model, column 17: " CLOSURES "2.5"},
    {"x -> reshape(x, 2, size(x, 9))", "model, column 20: " CLOSURES "size"},
    {"x -> reshape(tanh.(x), :, size(x, 4))", "model, column 27: " CLOSURES "size"},
    {"x -> reshape(x, 1,1,1,1,1,1,1,1,1)", "model, column 6: " CLOSURES "reshape"},
    {"x -> maxpool(x, 2, 2)", "model, column 6: " CLOSURES "maxpool"},
    {"x -> relu.(x, 2)", "model, column 6: " CLOSURES "relu"},
    {"x -> elu.(x, x)", "model, column 6: " CLOSURES "elu"},
    {"x -> softmax(x, 2)", "model, column 6: " CLOSURES "softmax"},
    {"x -> ", "model, column 6: " CLOSURES "the end of the text"},
    {"x -> tanh.(tanh.(tanh.(tanh.(tanh.(tanh.(tanh.(tanh.(x))))))))",
     "model, column 54: " CLOSURES "x"},
    {"x -> x .* 1 .* 1 .* 1 .* 1 .* 1 .* 1 .* 1 .* 1 .* 1",
     "model, column 51: an anonymous function can have at most 8 operations"},
    {"x -> maxpool(x, (0, 2))", "model, column 6: MaxPool: window takes one number, or one for "
                                "each of 2 axes, of at least 1, got (0, 2)"},
    {"x -> sec.(x)", "model, column 6: unknown function sec; known are " FUNCTION_LIST},
    {"x -> sin(x)", "model, column 6: " CLOSURES "sin"},
    {"x -> vec.(x)", "model, column 6: " CLOSURES "vec"},
    {"x -> x + 1", "model, column 8: expected the end of the text, got +"},
    {"x -> reshape(x, 2", "model, column 18: expected , or ), got the end of the text"},
    {"x -> 1e999 .* x", "model, column 6: 1e999 is not a number, or too large"},
    {"22×33 Matrix{Float32}", "model, column 1: expected a layer or a function, got 22"},
};

static void errors_have_a_location(void **state)
{
    (void)state;
    int n = 0;
    for (size_t i = 0; i < sizeof wrong_models / sizeof *wrong_models; i++, n++)
        refused(wrong_models[i][0], wrong_models[i][1]);
    assert_true(n >= 55);
    refused(NULL, "model: the text is NULL");
}

static void depth_and_length_are_bounded(void **state)
{
    (void)state;
    static char text[200000];
    char *end = text;
    for (int i = 0; i < 64; i++)
        end = stpcpy(end, "Chain(");
    strcpy(end, "relu");
    refused(text, "model, column 385: nested deeper than 64");
    strcpy(end - 6, "relu");
    for (int i = 0; i < 63; i++)
        strcat(text, ")");
    round_trip(parsed(text));
    for (size_t i = 0; i + 1 < sizeof text; i++) /* up to the deepest nesting */
        text[i] = '(';
    refused(text, "model, column 65: nested deeper than 64");
    end = stpcpy(text, "Chain(");
    for (int i = 0; i < 10000; i++)
        end = stpcpy(end, "relu,");
    refused(text, "model, column 50002: more than 10000 layers");
}

/* The record of another failure remains, and the call still fails. */
static void an_earlier_record_stays(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_fail(FX_STATUS_IO, "before", "something else");
    assert_true(fx_is_error(fx_parse_model("Dropout(7)")));
    assert_true(fx_is_error(fx_parse_model("Dense(")));
    assert_false(fx_is_error(fx_parse_model("Dense(1 => 1)")));
    assert_string_equal(fx_error_take().message, "before: something else");
}

/* A text may name more layers than memory holds: only a small model is evaluated at once. */
static void a_large_model_of_small_layers(void **state)
{
    (void)state;
    enum { LAYERS = 400 }; /* of 4 MB */
    FX_SCOPE;
    static char text[LAYERS * 24];
    size_t n = (size_t)sprintf(text, "Chain(");
    for (int i = 0; i < LAYERS; i++)
        n += (size_t)sprintf(text + n, "%sDense(1000 => 1000)", i ? ", " : "");
    sprintf(text + n, ")");
    const int64_t before = fx_memory_status(fx_cpu_device()).live;
    void *model = fx_parse_model(text);
    assert_false(fx_is_error(model));
    assert_int_equal(fx_count(model), LAYERS);
    assert_in_range(fx_memory_status(fx_cpu_device()).live - before, 0, 1 << 20);
    assert_false(fx_is_evaluated(((fx_dense_layer *)fx_child(model, 0))->weight));
    fx_dense_layer *small = fx_parse_model("Dense(2 => 3)");
    assert_true(fx_is_evaluated(small->weight) && fx_is_evaluated(small->bias));
}

/* Every allocation failing in turn: the model or an error, and nothing left behind. */
static void without_memory(void **state)
{
    (void)state;
    static const char text[] =
        "Chain(enc = Chain(Dense(1 => 6, tanh), BatchNorm(6)), dec = (Dropout(0.5)), "
        "scale = x -> 2 .* tanh.(x) .+ 1, out = Dense(6 => 1, x -> x^2))";
    int failures = 0;
    parsed(text);
    for (int64_t nth = 0;; nth++) {
        fxi_reclaim_all();
        const int64_t live = fxi_live_allocations();
        bool reached;
        {
            FX_SCOPE;
            fxi_fault_set(nth);
            const bool bad = fx_is_error(fx_parse_model(text));
            reached = fxi_fault_seen() > nth;
            fxi_fault_set(-1);
            const fx_error e = fx_error_take();
            if (e.status != (bad ? FX_STATUS_MEMORY : FX_OK))
                fail_msg("allocation %d: %s", (int)nth, e.message);
            failures += bad;
        }
        fxi_reclaim_all();
        assert_int_equal(fxi_live_allocations(), live);
        if (!reached)
            break;
    }
    assert_true(failures >= 20);
}

/* ---- rules and losses ------------------------------------------------------------------------ */

/* A text, and what is printed. */
static const char *const rules[][2] = {
    {"Adam(0.001)", "Adam(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-8)"},
    {"Adam()", "Adam(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-8)"},
    {"Adam(eta=0.01, beta=(0.8, 0.99))", "Adam(eta=0.01, beta=(0.8, 0.99), epsilon=1.0e-8)"},
    {"Adam(0.001, (0.9, 0.999), 1.0e-7)", "Adam(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-7)"},
    {"Flux.Adam(η = 1f-3; ϵ=0, β=(0, 0.5))", "Adam(eta=0.001, beta=(0.0, 0.5), epsilon=0.0)"},
    {"Optimisers.Descent(0.1f0)", "Descent(0.1)"},
    {"Descent()", "Descent(0.1)"},
    {"Descent(0)", "Descent(0.0)"},
    {"Momentum(rho=0.5)", "Momentum(eta=0.01, rho=0.5)"},
    {"Nesterov(0.1, 0.8)", "Nesterov(eta=0.1, rho=0.8)"},
    {"AdamW(1e-4; couple=false, lambda=0.01)",
     "AdamW(eta=0.0001, beta=(0.9, 0.999), lambda=0.01, epsilon=1.0e-8, couple=false)"},
    {"RMSProp(0.01; centred=true)", "RMSProp(eta=0.01, rho=0.9, epsilon=1.0e-8, centred=true)"},
    {"OptimiserChain(ClipNorm(1), AccumGrad(4), Lion())",
     "OptimiserChain(ClipNorm(omega=1.0, p=2.0, throw=true), AccumGrad(4), "
     "Lion(eta=0.001, beta=(0.9, 0.999)))"},
    {"OptimiserChain()", "OptimiserChain()"},
    {"MixedPrecision(Adam())",
     "MixedPrecision{Float32}(Adam(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-8))"},
    {"MixedPrecision(Float64, OptimiserChain(SignDecay(), Descent()), scale=1024)",
     "MixedPrecision{Float64}(OptimiserChain(SignDecay(lambda=0.001), Descent(0.1)); "
     "scale=1024.0)"},
    {"MixedPrecision(Descent(); growth=2000)",
     "MixedPrecision{Float32}(Descent(0.1); scale=65536.0, growth=2000)"},
    {"MixedPrecision{Float32}(Descent(0.1); scale=65536.0, growth=2000)",
     "MixedPrecision{Float32}(Descent(0.1); scale=65536.0, growth=2000)"},
};

/* Every rule with its defaults, as Optimisers.jl 0.4.8 prints it; see rules.c for the exceptions.
 */
static const char *const printed_rules[] = {
    "Descent(0.1)",
    "Momentum(eta=0.01, rho=0.9)",
    "Nesterov(eta=0.001, rho=0.9)",
    "RMSProp(eta=0.001, rho=0.9, epsilon=1.0e-8, centred=false)",
    "Rprop(eta=0.001, ell=(0.5, 1.2), gamma=(1.0e-6, 50.0))",
    "Adam(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-8)",
    "Lion(eta=0.001, beta=(0.9, 0.999))",
    "RAdam(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-8)",
    "AdaMax(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-8)",
    "OAdam(eta=0.001, beta=(0.5, 0.9), epsilon=1.0e-8)",
    "AdaGrad(eta=0.1, epsilon=1.0e-8)",
    "AdaDelta(rho=0.9, epsilon=1.0e-8)",
    "AMSGrad(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-8)",
    "NAdam(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-8)",
    "AdamW(eta=0.001, beta=(0.9, 0.999), lambda=0.0, epsilon=1.0e-8, couple=true)",
    "AdaBelief(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-16)",
    "WeightDecay(lambda=0.0005)",
    "SignDecay(lambda=0.001)",
    "ClipGrad(delta=10.0)",
    "ClipNorm(omega=10.0, p=2.0, throw=true)",
};

/* The text of a rule is its notation: it is read as the same rule. */
static void rules_print_as_in_Optimisers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof printed_rules / sizeof printed_rules[0]; i++) {
        FX_SCOPE;
        const char *want = printed_rules[i];
        char call[40], text[200];
        snprintf(call, sizeof call, "%.*s()", (int)strcspn(want, "("), want);
        fx_summary(fx_parse_optimiser(call), text, sizeof text);
        assert_string_equal(text, want);
        fx_summary(fx_parse_optimiser(want), text, sizeof text);
        assert_string_equal(text, want);
    }
}

static const char *const wrong_rules[][2] = {
    {"", "optimiser, column 1: expected an optimiser such as Adam(0.001), got the end of the text"},
    {"Adam",
     "optimiser, column 5: expected an optimiser such as Adam(0.001), got the end of the text"},
    {"Adam(-1)", "optimiser, column 1: Adam: the learning rate must be at least 0, got eta = -1.0"},
    {"Adem(1)", "optimiser, column 1: unknown optimiser Adem; known are Descent, Momentum, "
                "Nesterov, Rprop, RMSProp, Adam, AdamW, AdaMax, NAdam, RAdam, AMSGrad, OAdam, "
                "AdaBelief, AdaGrad, AdaDelta, Lion, WeightDecay, SignDecay, ClipGrad, "
                "ClipNorm, AccumGrad, OptimiserChain, MixedPrecision"},
    {"AccumGrad()", "optimiser, column 11: AccumGrad takes a number of gradients, got )"},
    {"OptimiserChain(Adam(), 3)",
     "optimiser, column 24: expected an optimiser such as Adam(0.001), got 3"},
    {"MixedPrecision(Float16, Adam())",
     "optimiser, column 16: MixedPrecision computes in Float32 or Float64, got Float16"},
    {"MixedPrecision(Adam(), x=1)",
     "optimiser, column 26: MixedPrecision takes a rule, scale=… and growth=…, got 1"},
    {"MixedPrecision(Adam(), growth=2.5)",
     "optimiser, column 34: MixedPrecision takes a rule, scale=… and growth=…, got )"},
    {"Descent(1; rho=2)", "optimiser, column 12: Descent has no option rho; it has eta"},
    {"Adam(beta=0.9)", "optimiser, column 11: Adam takes two numbers such as (0.9, 0.999) for "
                       "beta, got 0.9"},
    {"Adam(0.1) x", "optimiser, column 11: expected the end of the text, got x"},
    {"Adam(x)", "optimiser, column 6: Adam takes a learning rate, got x"},
};

static void optimisers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        FX_SCOPE;
        fx_rule *rule = fx_parse_optimiser(rules[i][0]);
        assert_string_equal(fx_error_take().message, "");
        assert_string_equal(summary(rule, shown), rules[i][1]);
        assert_string_equal(summary(fx_parse_optimiser(shown), again), shown);
    }
    for (size_t i = 0; i < sizeof wrong_rules / sizeof *wrong_rules; i++) {
        FX_SCOPE;
        fx_rule *rule = fx_parse_optimiser(wrong_rules[i][0]);
        assert_true(fx_is_error(rule));
        assert_string_equal(fx_error_take().message, wrong_rules[i][1]);
    }
    assert_true(fx_is_error(fx_parse_optimiser(NULL)));
    assert_string_equal(fx_error_take().message, "optimiser: the text is NULL");
}

static void losses(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_ptr_equal(fx_parse_loss("mse"), fxi_mse);
    assert_ptr_equal(fx_parse_loss(" Flux.Losses.logitcrossentropy "), fxi_logitcrossentropy);
    assert_ptr_equal(fx_parse_loss("Flux.squared_hinge_loss"), fxi_squared_hinge_loss);
    const fx_formula_fn none = fx_parse_loss("mes");
    assert_string_equal(
        fx_error_take().message,
        "loss, column 1: unknown loss mes; known are mse, mae, msle, "
        "huber_loss, quantile_loss, crossentropy, logitcrossentropy, binarycrossentropy, "
        "logitbinarycrossentropy, kldivergence, poisson_loss, hinge_loss, "
        "squared_hinge_loss, focal_loss, binary_focal_loss, "
        "siamese_contrastive_loss, dice_coeff_loss, tversky_loss, ctc_loss");
    assert_true(fx_is_error(fx_call_loss(none, NULL, NULL)));
    fx_parse_loss("mse(");
    assert_string_equal(fx_error_take().message,
                        "loss, column 4: expected the end of the text, got (");
    assert_true(fx_is_error(fx_parse_model("LayerNorm((1, 1, 1, 1, 1, 1, 1, 1, 1, 1), 2, 3)")));
    assert_non_null(strstr(fx_error_take().message, "LayerNorm takes at most 8 sizes"));
    fx_parse_loss(NULL);
    assert_string_equal(fx_error_take().message, "loss: the text is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_print_as_in_Optimisers),
        cmocka_unit_test(written_by_hand),
        cmocka_unit_test(options_that_are_not_printed),
        cmocka_unit_test(functions_of_base),
        cmocka_unit_test(only_takes_one_element),
        cmocka_unit_test(anonymous_functions_compute),
        cmocka_unit_test(activations_with_a_parameter),
        cmocka_unit_test(random_layers),
        cmocka_unit_test(random_models),
        cmocka_unit_test(quotes_are_cut_between_characters),
        cmocka_unit_test(errors_have_a_location),
        cmocka_unit_test(unknown_layers_are_answered_with_a_list),
        cmocka_unit_test(depth_and_length_are_bounded),
        cmocka_unit_test(an_earlier_record_stays),
        cmocka_unit_test(a_large_model_of_small_layers),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(optimisers),
        cmocka_unit_test(losses),
    };
    return cmocka_run_group_tests_name("notation", tests, NULL, NULL);
}
