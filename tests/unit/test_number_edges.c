/* Numbers at the limits of their types, on every available device.
 *
 * rem and mod against libm's fmod and Julia's mod written out here; reductions of nothing; windows
 * of a convolution that are in the padding; Bool arrays with literals against Julia's promotion.
 * Random numbers are bit patterns, so that every exponent occurs. ctest: timeout=600
 */
#include "every_device.h"
#include "half.h"

#include <cflux/nn.h>

static fx_array *here(fx_dtype dtype, const void *data, int64_t n)
{
    return fx_array_to(device, fxi_from(dtype, data, 1, &n));
}

static const char *where(void)
{
    return device == fx_cpu_device() ? fxi_cpu_simd()->name : fx_device_name(device);
}

/* ---- rem and mod ----------------------------------------------------------------------------- */

enum { PAIRS = 1 << 15 };

/* Julia's mod of floats. */
static double julia_mod(double r, double y, double (*round_to)(double))
{
    if (r == 0)
        return copysign(r, y);
    return (r > 0) != (y > 0) ? round_to(r + y) : r;
}
static double to_f64(double x)
{
    return x;
}
static double to_f32(double x)
{
    return (double)(float)x;
}
static double to_f16(double x)
{
    return (double)fxi_f16_to_f32(fxi_f32_to_f16((float)x));
}
static double to_bf16(double x)
{
    return (double)fxi_bf16_to_f32(fxi_f32_to_bf16((float)x));
}

static const struct {
    fx_dtype type;
    int fraction, exponent; /* bits */
    double (*round_to)(double);
} floats[] = {{FX_DTYPE_F32, 23, 8, to_f32},
              {FX_DTYPE_F64, 52, 11, to_f64},
              {FX_DTYPE_F16, 10, 5, to_f16},
              {FX_DTYPE_BF16, 7, 8, to_bf16}};

static void put_bits(void *p, int i, fx_dtype t, uint64_t bits)
{
    const size_t size = fx_dtype_size(t);
    memcpy((char *)p + (size_t)i * size, &bits,
           size); /* little-endian, as all that cflux runs on */
}

/* Pairs of random bits. The first pairs are all combinations of special values; in every second
 * pair the exponents are so close that the quotient has only a few digits. */
static void make_pairs(int k, void *a, void *b)
{
    static const double special[] = {
        0,   -0.0,  1,     -1,      3,   -3,  0.1,    -0.3,    1e3,    7,     INFINITY, -INFINITY,
        NAN, 1e-30, -1e-7, 5.96e-8, 1e4, 5.5, 3.4e38, -3.4e38, 1e-320, 65504, 6.1e-05,  16777217};
    const int n = (int)COUNT(special), shift = floats[k].fraction;
    const uint64_t top = (1u << floats[k].exponent) - 1;
    fx_array *all = fx_cast(fxi_from(FX_DTYPE_F64, special, 1, (int64_t[]){n}), floats[k].type);
    uint64_t values[24] = {0};
    char bytes[24 * 8];
    assert_int_equal(fx_read_into(all, bytes, (size_t)n * fx_dtype_size(floats[k].type)), FX_OK);
    for (int i = 0; i < n; i++)
        memcpy(&values[i], bytes + (size_t)i * fx_dtype_size(floats[k].type),
               fx_dtype_size(floats[k].type));
    for (int i = 0; i < PAIRS; i++) {
        uint64_t x = next_random(), y = next_random();
        if (i % 2) {
            const uint64_t e = (x >> shift) & top, near = e - (y >> 32) % (uint64_t)(shift + 8);
            y = (y & ~(top << shift)) | (near & top) << shift;
        }
        put_bits(a, i, floats[k].type, i < n * n ? values[i / n] : x);
        put_bits(b, i, floats[k].type, i < n * n ? values[i % n] : y);
    }
}

static bool same(double p, double q)
{
    return isnan(p) ? isnan(q) : p == q && !signbit(p) == !signbit(q);
}

static void rem_is_fmod_and_mod_is_julias(void **unused)
{
    (void)unused;
    int64_t checked = 0;
    for (int k = 0; k < (int)COUNT(floats); k++) {
        FX_SCOPE;
        static char a[PAIRS * 8], b[PAIRS * 8];
        static double x[PAIRS], y[PAIRS], rem[PAIRS], mod[PAIRS];
        make_pairs(k, a, b);
        fx_array *p = here(floats[k].type, a, PAIRS), *q = here(floats[k].type, b, PAIRS);
        check_read("x", p, x, PAIRS);
        check_read("y", q, y, PAIRS);
        check_read("rem", fx_rem(p, q), rem, PAIRS);
        check_read("mod", fx_mod(p, q), mod, PAIRS);
        for (int i = 0; i < PAIRS; i++) {
            const double r = fmod(x[i], y[i]), m = julia_mod(r, y[i], floats[k].round_to);
            if (!same(rem[i], r))
                fail_msg("rem(%a, %a) is %a, not %a: %s, %s", x[i], y[i], rem[i], r,
                         fx_dtype_name(floats[k].type), where());
            if (!same(mod[i], m))
                fail_msg("mod(%a, %a) is %a, not %a: %s, %s", x[i], y[i], mod[i], m,
                         fx_dtype_name(floats[k].type), where());
            checked++;
        }
    }
    assert_int_equal(checked, COUNT(floats) * PAIRS);
}

static void rem_and_mod_of_integers(void **unused)
{
    (void)unused;
    static const fx_dtype types[] = {FX_DTYPE_I32, FX_DTYPE_I64, FX_DTYPE_U8};
    static const int64_t low[] = {INT32_MIN, INT64_MIN, 0}, high[] = {INT32_MAX, INT64_MAX, 255};
    for (int k = 0; k < 3; k++) {
        FX_SCOPE;
        const int64_t v[] = {0,  1,  2,      3,          7,       8,          100,
                             -1, -7, low[k], low[k] + 1, high[k], high[k] - 1};
        enum { N = 13 };
        int64_t a[N * N], b[N * N], rem[N * N], mod[N * N];
        for (int i = 0; i < N * N; i++) {
            a[i] = k == 2 ? v[i / N] & 255 : v[i / N];
            b[i] = k == 2 ? v[i % N] & 255 : v[i % N];
        }
        fx_array *x = fx_cast(here(FX_DTYPE_I64, a, N * N), types[k]);
        fx_array *y = fx_cast(here(FX_DTYPE_I64, b, N * N), types[k]);
        fx_array *r = fx_cast(fx_rem(x, y), FX_DTYPE_I64), *m = fx_cast(fx_mod(x, y), FX_DTYPE_I64);
        assert_int_equal(fx_eltype(fx_rem(x, y)), types[k]);
        assert_int_equal(fx_read_into(r, rem, sizeof rem), FX_OK);
        assert_int_equal(fx_read_into(m, mod, sizeof mod), FX_OK);
        for (int i = 0; i < N * N; i++) {
            const int64_t want = b[i] == 0 ? a[i] : b[i] == -1 ? 0 : a[i] % b[i];
            assert_true(rem[i] == want);
            assert_true(mod[i] ==
                        (want != 0 && b[i] != 0 && (want < 0) != (b[i] < 0) ? want + b[i] : want));
        }
    }
}

/* ---- reductions of nothing ------------------------------------------------------------------- */

static fx_array *apply(int f, fx_array *x, fx_axes dims)
{
    switch (f) {
    case 0:
        return fx_maximum(x, .dims = dims);
    case 1:
        return fx_minimum(x, .dims = dims);
    case 2:
        return fx_argmax(x, .dims = dims);
    case 3:
        return fx_argmin(x, .dims = dims);
    case 4:
        return fx_sum(x, .dims = dims);
    case 5:
        return fx_prod(x, .dims = dims);
    case 6:
        return fx_mean(x, .dims = dims);
    case 7:
        return fx_var(x, .dims = dims);
    default:
        return fx_std(x, .dims = dims);
    }
}

/* The same for all element types: extremes of nothing are errors, sums 0, products 1, means NaN. */
static void reductions_of_nothing(void **unused)
{
    (void)unused;
    static const double want[] = {0, 0, 0, 0, 0, 1, NAN, NAN, NAN};
    int errors = 0, values = 0;
    for (int t = 0; t < FX_DTYPE_COUNT; t++)
        for (int f = 0; f < 9; f++)
            for (int shape = 0; shape < 3; shape++) {
                FX_SCOPE;
                fx_array *x = fx_cast(fx_zeros(0, 3), (fx_dtype)t);
                x = shape == 0 ? fx_reshape(x, 0) : x;
                fx_eval(x);
                x = fx_array_to(device, x);
                fx_array *y = apply(f, x, shape == 1 ? FX_AXES(0) : FX_ALL);
                if (f < 4) {
                    check_error(y, FX_STATUS_SHAPE, "of an empty array");
                    errors++;
                    continue;
                }
                double got[3] = {-1, -1, -1};
                const int64_t n = shape == 1 ? 3 : 1;
                check_read("reduction of nothing", y, got, n);
                for (int i = 0; i < n; i++)
                    assert_true(isnan(want[f]) ? isnan(got[i]) : got[i] == want[f]);
                values++;
            }
    assert_int_equal(errors, FX_DTYPE_COUNT * 4 * 3);
    assert_int_equal(values, FX_DTYPE_COUNT * 5 * 3);
    FX_SCOPE;
    fx_array *none = fx_array_to(device, fx_gt(fx_zeros(0, 3), 0));
    CHECK(fx_cast(fx_any(none, .dims = FX_AXES(0)), FX_DTYPE_F32), (1, 3), 0, 0, 0, 0);
    CHECK(fx_cast(fx_all(none, .dims = FX_AXES(0)), FX_DTYPE_F32), (1, 3), 0, 1, 1, 1);
    /* along the axis that is there nothing is computed */
    check_dims("maximum", fx_maximum(none, .dims = FX_AXES(1)), 2, (int64_t[]){0, 1});
    check_dims("argmax", fx_argmax(none, .dims = FX_AXES(1)), 2, (int64_t[]){0, 1});
}

static void scatter_of_bool(void **unused)
{
    (void)unused;
    FX_SCOPE;
    const uint8_t v[] = {1, 0, 1, 1};
    const int64_t at[] = {0, 1, 0, 1};
    fx_array *x = here(FX_DTYPE_BOOL, v, 4), *i = here(FX_DTYPE_I64, at, 4);
    static const double want[][3] = {{2, 1, 0}, {1, 1, 0}, {1, 0, 1}, {1, 0, 1}, {1, 0.5, 0}};
    static const fx_dtype types[] = {FX_DTYPE_I64, FX_DTYPE_BOOL, FX_DTYPE_BOOL, FX_DTYPE_I64,
                                     FX_DTYPE_F32};
    static const fx_reduce all[] = {FX_REDUCE_SUM, FX_REDUCE_MAX, FX_REDUCE_MIN, FX_REDUCE_PROD,
                                    FX_REDUCE_MEAN};
    for (size_t r = 0; r < sizeof all / sizeof all[0]; r++) {
        fx_array *y = fx_scatter(all[r], x, i, 0, 3);
        assert_int_equal(fx_eltype(y), types[r]);
        check_array("scatter", y, 3, want[r], 0, 0);
    }
}

/* ---- convolution ----------------------------------------------------------------------------- */

/* Gradients of w and x of Σ y·g with infinities and NaN in g, against ref. */
static void gradients_of_conv(fx_device *d, unsigned number, double *out, int64_t *out_n)
{
    random_state = 1000003u * (number + 1);
    const int64_t k = 1 + (int64_t)(next_random() % 3), s = 1 + (int64_t)(next_random() % 2);
    const int64_t wide = number % 4 == 0 ? 8 : 1, in = wide * (1 + (int64_t)(next_random() % 3));
    const int64_t pad = 1 + (int64_t)(next_random() % 3), size = 4 + (int64_t)(next_random() % 5);
    const int64_t channels = wide * 4, batch = 2;
    FX_SCOPE;
    fx_array *a[3];
    float v[4096];
    const int64_t after = (size + 2 * pad - k) / s + 1;
    const int64_t sizes[3][4] = {
        {size, size, in, batch}, {k, k, in, channels}, {after, after, channels, batch}};
    for (int j = 0; j < 3; j++) {
        const int64_t n = sizes[j][0] * sizes[j][1] * sizes[j][2] * sizes[j][3];
        float *p = n <= 4096 ? v : malloc((size_t)n * sizeof *p);
        assert_non_null(p);
        for (int64_t i = 0; i < n; i++)
            p[i] = j == 2 && next_random() % 70 == 0 ? (next_random() % 2 ? NAN : INFINITY)
                                                     : (float)(next_random() % 2001) / 1000 - 1;
        a[j] = fx_array_to(d, fxi_from(FX_DTYPE_F32, p, 4, sizes[j]));
        if (p != v)
            free(p);
    }
    fx_array *y = fx_convolve(a[0], a[1], .stride = FX_DIMS(s, s), .pad = FX_DIMS(pad, pad)), *g[2];
    fx_gradient_of(fx_sum(fx_mul(y, a[2])), (fx_array *[]){a[1], a[0]}, 2, g);
    fx_array *both = fx_concat(0, fx_vec(g[0]), fx_vec(g[1]));
    *out_n = fx_length(both);
    assert_true(*out_n <= 1 << 16);
    check_read("gradients", both, out, *out_n);
}

static void windows_in_padding_contribute_nothing(void **unused)
{
    (void)unused;
    static double got[1 << 16], want[1 << 16];
    int64_t finite = 0, infinite = 0;
    for (unsigned number = 0; number < (slow ? 6 : 60); number++) {
        int64_t n, m;
        gradients_of_conv(device, number, got, &n);
        gradients_of_conv(fx_device_get("ref", 0), number, want, &m);
        assert_int_equal(n, m);
        for (int64_t i = 0; i < n; i++) {
            check_value(where(), i, got[i], want[i], 1e-4, 1e-4);
            *(isfinite(want[i]) ? &finite : &infinite) += 1;
        }
    }
    assert_true(finite > 500 && infinite > 500);
    /* all of gy: every weight is NaN, and it does not take long */
    FX_SCOPE;
    fx_array *x = fx_array_to(device, fx_ones(32, 32, 16, 8)), *g[1];
    fx_array *w = fx_array_to(device, fx_ones(3, 3, 16, 16));
    fx_eval(x), fx_eval(w);
    fx_array *y = fx_mul(fx_convolve(x, w, .pad = FX_DIMS(1, 1)), (double)NAN);
    fx_gradient_of(fx_sum(y), &w, 1, g);
    assert_int_equal((int)fx_item(fx_sum(fx_isnan(g[0]))), 3 * 3 * 16 * 16);
}

/* An infinite weight at the second tap of two: every window is infinite, and the gradient of the
 * sum by each element that meets this tap, which is all but one at an end (1 or, where a kernel
 * reads zeros beyond the border, NaN: docs/design/0016). */
static void infinite_weights(void **unused)
{
    (void)unused;
    for (int k = 0; k < 2; k++) {
        FX_SCOPE;
        const fx_dtype type = k == 0 ? FX_DTYPE_F32 : FX_DTYPE_F64;
        fx_array *x = fx_array_to(device, fx_full_dtype(type, 2, 5, 1, 1)), *g[1];
        fx_array *w = fx_cast(fx_reshape(fx_vector(1, INFINITY), 2, 1, 1), type);
        fx_array *y = fx_convolve(x, fx_array_to(device, w));
        check_array("windows", y, 4, (const double[]){INFINITY, INFINITY, INFINITY, INFINITY}, 0,
                    0);
        fx_gradient_of(fx_sum(y), &x, 1, g);
        assert_int_equal((int)fx_item(fx_sum(fx_isinf(g[0]))), 4);
    }
}

static void pooling_windows_in_padding(void **unused)
{
    (void)unused;
    const float v[] = {1, 2, 3}, nan_outside[] = {NAN, 1, 2, 3, NAN};
    FX_SCOPE;
    fx_array *x = fx_reshape(here(FX_DTYPE_F32, v, 3), 3, 1, 1), *g;
    fx_array *c = fx_reshape(here(FX_DTYPE_F32, nan_outside, 5), 5, 1, 1);
    fx_array *mean = fx_pool_mean(x, .window = FX_DIMS(1), .stride = FX_DIMS(1), .pad = FX_DIMS(1));
    fx_gradient_of(fx_sum(fx_mul(mean, c)), &x, 1, &g);
    CHECK(g, (3, 1, 1), 0, 1, 2, 3);
    fx_array *most = fx_pool_max(x, .window = FX_DIMS(1), .stride = FX_DIMS(1), .pad = FX_DIMS(1));
    fx_gradient_of(fx_sum(fx_mul(most, c)), &x, 1, &g);
    CHECK(g, (3, 1, 1), 0, 1, 2, 3);
}

/* ---- Bool and literals ----------------------------------------------------------------------- */

/* What Julia 1.10 prints for f.([false, true], literal) and f.(literal, [false, true]), with
 * Float64 read as Float32 (rule of literals). */
#define TABLE(X)                                                                                   \
    X(fx_add(b, 2), FX_DTYPE_I64, 2, 3)                                                            \
    X(fx_add(2, b), FX_DTYPE_I64, 2, 3)                                                            \
    X(fx_sub(b, 2), FX_DTYPE_I64, -2, -1)                                                          \
    X(fx_sub(2, b), FX_DTYPE_I64, 2, 1)                                                            \
    X(fx_mul(b, 2), FX_DTYPE_I64, 0, 2)                                                            \
    X(fx_mul(-3, b), FX_DTYPE_I64, 0, -3)                                                          \
    X(fx_mul(b, 1), FX_DTYPE_I64, 0, 1)                                                            \
    X(fx_div(b, 2), FX_DTYPE_F32, 0, 0.5)                                                          \
    X(fx_fld(b, 2), FX_DTYPE_I64, 0, 0)                                                            \
    X(fx_fld(b, -1), FX_DTYPE_I64, 0, -1)                                                          \
    X(fx_mod(b, 2), FX_DTYPE_I64, 0, 1)                                                            \
    X(fx_mod(b, -2), FX_DTYPE_I64, 0, -1)                                                          \
    X(fx_rem(b, 2), FX_DTYPE_I64, 0, 1)                                                            \
    X(fx_max(b, 2), FX_DTYPE_I64, 2, 2)                                                            \
    X(fx_max(b, 0), FX_DTYPE_I64, 0, 1)                                                            \
    X(fx_max(-1, b), FX_DTYPE_I64, 0, 1)                                                           \
    X(fx_min(b, 2), FX_DTYPE_I64, 0, 1)                                                            \
    X(fx_min(b, -2), FX_DTYPE_I64, -2, -2)                                                         \
    X(fx_pow(b, 2), FX_DTYPE_BOOL, 0, 1)                                                           \
    X(fx_pow(b, 0), FX_DTYPE_BOOL, 1, 1)                                                           \
    X(fx_pow(2, b), FX_DTYPE_I64, 1, 2)                                                            \
    X(fx_lt(b, 2), FX_DTYPE_BOOL, 1, 1)                                                            \
    X(fx_lt(b, 1), FX_DTYPE_BOOL, 1, 0)                                                            \
    X(fx_lt(-1, b), FX_DTYPE_BOOL, 1, 1)                                                           \
    X(fx_le(b, -1), FX_DTYPE_BOOL, 0, 0)                                                           \
    X(fx_gt(b, 2), FX_DTYPE_BOOL, 0, 0)                                                            \
    X(fx_ge(2, b), FX_DTYPE_BOOL, 1, 1)                                                            \
    X(fx_eq(b, 2), FX_DTYPE_BOOL, 0, 0)                                                            \
    X(fx_eq(b, 1), FX_DTYPE_BOOL, 0, 1)                                                            \
    X(fx_ne(b, 2), FX_DTYPE_BOOL, 1, 1)                                                            \
    X(fx_add(b, 0.5), FX_DTYPE_F32, 0.5, 1.5)                                                      \
    X(fx_mul(b, 2.5), FX_DTYPE_F32, 0, 2.5)                                                        \
    X(fx_max(b, 0.5), FX_DTYPE_F32, 0.5, 1)                                                        \
    X(fx_lt(b, 0.5), FX_DTYPE_BOOL, 1, 0)                                                          \
    X(fx_where(b, b, 2), FX_DTYPE_I64, 2, 1)                                                       \
    X(fx_where(b, b, 0), FX_DTYPE_BOOL, 0, 1)                                                      \
    X(fx_clamp(b, 2, 3), FX_DTYPE_I64, 2, 2)                                                       \
    X(fx_clamp(b, 0, 1), FX_DTYPE_BOOL, 0, 1)

static void broadcasts_that_overflow(void **unused)
{
    (void)unused;
    FX_SCOPE;
    assert_true(fx_is_error(fx_add(fx_ones(1LL << 31, 1), fx_ones(1, 1LL << 31))));
    assert_non_null(strstr(fx_error_take().message, "the product of the sizes overflows"));
}

/* The message names the function that the program called, and the sizes. */
#define TOO_LARGE(expression, text)                                                                \
    assert_true(fx_is_error(expression));                                                          \
    assert_string_equal(fx_error_take().message, text)

static void sizes_that_overflow_are_named(void **unused)
{
    (void)unused;
    FX_SCOPE;
    const int64_t far = 1LL << 40;
    fx_array *one = fx_full_dtype(FX_DTYPE_I64, 1, 1);
    TOO_LARGE(fx_dense(far, far),
              "Dense: a weight of size 1099511627776×1099511627776 is too large");
    TOO_LARGE(fx_embedding(far, far),
              "Embedding: a weight of size 1099511627776×1099511627776 is too large");
    TOO_LARGE(fx_conv(FX_DIMS(far, far), 3, 8),
              "Conv: a weight of size 1099511627776×1099511627776×3×8 is too large");
    TOO_LARGE(fx_onehot(one, INT64_MAX), "onehot: the product of the sizes overflows: "
                                         "9223372036854775807 of Int64");
    TOO_LARGE(fx_onehotbatch(one, INT64_MAX), "onehotbatch: the product of the sizes overflows: "
                                              "9223372036854775807 of Int64");
}

static void bool_with_literals(void **unused)
{
    (void)unused;
    int rows = 0;
    FX_SCOPE;
    const uint8_t v[] = {0, 1};
    fx_array *b = here(FX_DTYPE_BOOL, v, 2);
#define ROW(expression, type, first, second)                                                       \
    {                                                                                              \
        fx_array *y = expression;                                                                  \
        if (fx_eltype(y) != (type))                                                                \
            fail_msg(#expression " is %s", fx_dtype_name(fx_eltype(y)));                           \
        check_array(#expression, y, 2, (const double[]){first, second}, 0, 0);                     \
        rows++;                                                                                    \
    }
    TABLE(ROW)
    assert_true(rows >= 35);
    /* other integers too: no literal wraps before it is compared */
    const uint8_t bytes[] = {44, 200};
    fx_array *u = here(FX_DTYPE_U8, bytes, 2);
    ROW(fx_lt(u, 300), FX_DTYPE_BOOL, 1, 1)
    ROW(fx_eq(u, 300), FX_DTYPE_BOOL, 0, 0)
    ROW(fx_ge(u, -1), FX_DTYPE_BOOL, 1, 1)
    ROW(fx_lt(fx_cast(u, FX_DTYPE_I32), INT64_C(1) << 40), FX_DTYPE_BOOL, 1, 1)
}

/* ---- all of them on every device ------------------------------------------------------------- */

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rem_is_fmod_and_mod_is_julias),
    cmocka_unit_test(rem_and_mod_of_integers),
    cmocka_unit_test(reductions_of_nothing),
    cmocka_unit_test(scatter_of_bool),
    cmocka_unit_test(windows_in_padding_contribute_nothing),
    cmocka_unit_test(infinite_weights),
    cmocka_unit_test(pooling_windows_in_padding),
    cmocka_unit_test(broadcasts_that_overflow),
    cmocka_unit_test(sizes_that_overflow_are_named),
    cmocka_unit_test(bool_with_literals),
};

static int run(const char *name)
{
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    return run_on_every_device(run);
}
