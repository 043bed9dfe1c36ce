/* test_semantics_numbers.c: weak literals and promotion, what integers and conversions do at their
 * limits, NaN, ties, literals as inputs of a plan, random streams, arrays without elements.
 *
 * Expected types are Julia's promote_type written down; expected numbers are C's own, or exact.
 */
#include "semantics_check.h"

#include "random.h"

#include <pthread.h>

enum { F32, F64, I32, I64, U8, B, F16, BF }; /* in the order of fx_dtype */

static fx_array *of_type(int dtype, double value)
{
    return fx_cast(fx_full_dtype(FX_DTYPE_F64, value, 2), (fx_dtype)dtype);
}

#define TYPE(x, want) assert_int_equal(fx_eltype(x), FX_DTYPE_##want)

static int64_t exact(fx_array *x, int64_t i)
{
    int64_t v[8];
    assert_int_equal(fx_read_as(x, FX_DTYPE_I64, v, fx_length(x)), FX_OK);
    return v[i];
}

#define I64_OF(...)                                                                                \
    fxi_from(FX_DTYPE_I64, (const int64_t[]){__VA_ARGS__}, 1,                                      \
             &(const int64_t){(int64_t)(sizeof((const int64_t[]){__VA_ARGS__}) / 8)})
#define I32_OF(...)                                                                                \
    fxi_from(FX_DTYPE_I32, (const int32_t[]){__VA_ARGS__}, 1,                                      \
             &(const int64_t){(int64_t)(sizeof((const int32_t[]){__VA_ARGS__}) / 4)})
#define U8_OF(...)                                                                                 \
    fxi_from(FX_DTYPE_U8, (const uint8_t[]){__VA_ARGS__}, 1,                                       \
             &(const int64_t){(int64_t)(sizeof((const uint8_t[]){__VA_ARGS__}))})

/* ---- types ----------------------------------------------------------------------------------- */

/* promote_type of Julia; Float16 with BFloat16, which Julia does not define, gives Float32. */
static const uint8_t promoted[8][8] = {[F32] = {F32, F64, F32, F32, F32, F32, F32, F32},
                                       [F64] = {F64, F64, F64, F64, F64, F64, F64, F64},
                                       [I32] = {F32, F64, I32, I64, I32, I32, F16, BF},
                                       [I64] = {F32, F64, I64, I64, I64, I64, F16, BF},
                                       [U8] = {F32, F64, I32, I64, U8, U8, F16, BF},
                                       [B] = {F32, F64, I32, I64, U8, B, F16, BF},
                                       [F16] = {F32, F64, F16, F16, F16, F16, F16, F32},
                                       [BF] = {F32, F64, BF, BF, BF, BF, F32, BF}};

static void arrays_promote_as_julia(void **state)
{
    (void)state;
    for (int a = 0; a < 8; a++)
        for (int b = 0; b < 8; b++) {
            FX_SCOPE;
            const int want = promoted[a][b];
            fx_array *x = of_type(a, 1), *y = of_type(b, 1), *sum = fx_add(x, y);
            if (fx_dtype_promote((fx_dtype)a, (fx_dtype)b) != (fx_dtype)want)
                fail_msg("%s with %s", fx_dtype_name((fx_dtype)a), fx_dtype_name((fx_dtype)b));
            /* true + true == 2 */
            assert_int_equal(fx_eltype(sum), want == B ? I64 : want);
            SAME(fx_at(sum, 1), 2);
            assert_int_equal(fx_eltype(fx_mul(x, y)), want);
            assert_int_equal(fx_eltype(fx_max(x, y)), want);
            assert_int_equal(fx_eltype(fx_where(fx_gt(x, 0), x, y)), want);
            assert_int_equal(fx_eltype(fx_lt(x, y)), B);
            assert_int_equal(fx_eltype(fx_concat(0, x, y)), want);
            /* two integers divide to Float32 */
            assert_int_equal(fx_eltype(fx_div(x, y)), want >= I32 && want <= B ? F32 : want);
            SAME(fx_at(fx_div(x, y), 0), 1);
        }
}

static void literals_are_weak(void **state)
{
    (void)state;
    for (int t = 0; t < 8; t++) {
        FX_SCOPE;
        fx_array *x = of_type(t, 1);
        const bool integer = t >= I32 && t <= B;
        const int number = t == B ? I64 : t; /* Julia: true * 2 === 2 */
        assert_int_equal(fx_eltype(fx_mul(x, 2)), number);
        assert_int_equal(fx_eltype(fx_mul(2, x)), number);
        assert_int_equal(fx_eltype(fx_add(x, 1)), number);
        assert_int_equal(fx_eltype(fx_max(x, 1000000)), number);
        assert_int_equal(fx_eltype(fx_mul(x, 2.0)), integer ? F32 : t);
        assert_int_equal(fx_eltype(fx_mul(2.0f, x)), integer ? F32 : t);
        assert_int_equal(fx_eltype(fx_mul(x, fx_scalar(2))), integer ? F32 : t);
        assert_int_equal(fx_eltype(fx_div(x, 2)), integer ? F32 : t);
        assert_int_equal(fx_eltype(fx_where(fx_gt(x, 0), x, 0)), t);
        assert_int_equal(fx_eltype(fx_where(fx_gt(x, 0), 0.5, x)), integer ? F32 : t);
        assert_int_equal(fx_eltype(fx_clamp(x, 0, 1)), t);
    }
    FX_SCOPE;
    fx_array *x = fx_from(FX_DTYPE_F64, ((double[]){0, 0}), 2);
    SAME(fx_at(fx_add(x, 0.1), 0), 0.1); /* not through Float32 */
    SAME(fx_at(fx_mul(fx_add(x, 1), fx_scalar(0.1)), 0), 0.1);
    SAME((double)exact(fx_add(I64_OF(0), INT64_MAX), 0), (double)INT64_MAX);
    assert_true(exact(fx_add(I64_OF(0), INT64_MAX), 0) == INT64_MAX); /* not through a double */
    assert_true(exact(fx_mul(I64_OF(1), (int64_t)9007199254740993), 0) == 9007199254740993);
    TYPE(fx_add(fx_ones(2), INT64_MAX), F32);
    TYPE(fx_add(fx_scalar(1), fx_scalar(2)), F32);
    SAME(fx_item(fx_add(fx_scalar(1), fx_scalar(2))), 3);
    const uint8_t byte = 3;
    const bool yes = true;
    TYPE(fx_mul(U8_OF(5), byte), U8);
    SAME(fx_at(fx_mul(U8_OF(5), byte), 0), 15);
    SAME(fx_at(fx_add(I32_OF(5), yes), 0), 6);
    SAME(fx_at(fx_add(I32_OF(5), 'a'), 0), 5 + 'a');
    SAME(fx_at(fx_add(fx_ones(1), UINT64_MAX), 0), 0x1p64);
}

/* A number that fills an array has the array's type before it meets another one, read before or
 * not. */
static void filled_arrays_are_of_their_type(void **state)
{
    (void)state;
    FX_SCOPE;
    static const struct {
        int type, other;
        double number, want;
    } cases[] = {{F32, F64, 1.11, (double)1.11f}, {F16, F32, 0.1, 0.0999755859375},
                 {BF, F64, 0.1, 0.10009765625},   {I32, F64, 2.75, 2},
                 {F32, F64, 16777217, 16777216},  {B, F32, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fx_array *x = fxi_full((fx_dtype)cases[i].type, cases[i].number, 0, NULL);
        const fx_dtype other = (fx_dtype)cases[i].other;
        fx_array *pending = fx_cast(x, other), *sum = fx_add(x, fx_full_dtype(other, 0, 3));
        assert_true(fx_item(pending) == cases[i].want);
        assert_true(fx_at(sum, 2) == cases[i].want);
        fx_eval(x);
        assert_true(fx_item(fx_cast(x, other)) == cases[i].want);
    }
    assert_true(fx_item(fx_cast(fx_scalar(1.11), FX_DTYPE_F64)) == 1.11); /* a literal is weak */
}

/* The integer with 8 significant bits that is nearest to x, and even where two are. */
static double nearest_with_8_bits(int64_t x)
{
    uint64_t a = x < 0 ? 0 - (uint64_t)x : (uint64_t)x, unit = 1;
    while (a / unit >= 256)
        unit *= 2;
    const uint64_t rest = a % unit, quotient = a / unit;
    const bool up = unit > 1 && (rest > unit / 2 || (rest == unit / 2 && quotient % 2));
    const double r = (double)(quotient + up) * (double)unit;
    return x < 0 ? -r : r;
}

/* Through Float64, integers beyond 2^53 would be rounded twice. */
static void integers_become_bfloat16_in_one_rounding(void **state)
{
    (void)state;
    FX_SCOPE;
    int64_t x[256];
    int n = 0;
    for (int high = 8; high < 63; high++)
        for (int k = 0; k < 4; k++) {
            /* near the middle of two neighbours in BFloat16 */
            const int64_t middle = (INT64_C(1) << high) + (INT64_C(1) << (high - 8));
            x[n++] = (middle + (k & 1 ? 1 : -1)) * (k & 2 ? 1 : -1);
        }
    assert_int_equal(n, 220);
    x[n++] = INT64_MAX, x[n++] = INT64_MIN;
    fx_device *const devices[] = {fx_cpu_device(), fx_device_find("ref")};
    for (int d = 0; d < 2; d++) {
        fx_array *y = fx_to(devices[d], fx_from(FX_DTYPE_I64, x, n));
        y = fx_cpu(fx_cast(fx_cast(y, FX_DTYPE_BF16), FX_DTYPE_F64));
        for (int k = 0; k < n; k++)
            if (fx_at(y, k) != nearest_with_8_bits(x[k]))
                fail_msg("%s: %lld becomes %.17g, not %.17g", fx_device_name(devices[d]),
                         (long long)x[k], fx_at(y, k), nearest_with_8_bits(x[k]));
    }
}

static void integers_wrap(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *i = I32_OF(INT32_MAX, INT32_MIN, 3), *l = I64_OF(INT64_MAX, INT64_MIN, 3);
    fx_array *u = U8_OF(255, 0, 16);
    assert_int_equal(exact(fx_add(i, 1), 0), INT32_MIN);
    assert_int_equal(exact(fx_sub(i, 1), 1), INT32_MAX);
    assert_int_equal(exact(fx_mul(i, 2), 0), -2);
    assert_int_equal(exact(fx_neg(i), 1), INT32_MIN);
    assert_int_equal(exact(fx_abs(i), 1), INT32_MIN); /* as in Julia */
    assert_int_equal(exact(fx_square(i), 0), 1);
    assert_int_equal(exact(fx_pow(i, 31), 2), (int32_t)(uint32_t)617673396283947ull);
    assert_int_equal(exact(fx_fld(i, -1), 1), INT32_MIN);
    assert_int_equal(exact(fx_fld(i, 0), 0), 0);
    assert_int_equal(exact(fx_mod(i, 0), 0), exact(i, 0)); /* a − 0·⌊a/0⌋ */
    assert_int_equal(exact(fx_mod(i, -1), 1), 0);
    assert_true(exact(fx_add(l, 1), 0) == INT64_MIN);
    assert_true(exact(fx_sub(l, 1), 1) == INT64_MAX);
    assert_true(exact(fx_mul(l, 2), 0) == -2);
    assert_true(exact(fx_neg(l), 1) == INT64_MIN);
    assert_true(exact(fx_fld(l, -1), 1) == INT64_MIN);
    assert_true(exact(fx_square(l), 0) == 1);
    assert_int_equal(exact(fx_add(u, 1), 0), 0);
    assert_int_equal(exact(fx_sub(u, 1), 1), 255);
    assert_int_equal(exact(fx_mul(u, u), 2), 0);
    assert_int_equal(exact(fx_neg(u), 0), 1);
    assert_true(exact(fx_sum(I64_OF(INT64_MAX, 1)), 0) == INT64_MIN);
    assert_true(exact(fx_prod(I64_OF(INT64_MAX, 2)), 0) == -2);
    assert_true(exact(fx_cumsum(I64_OF(INT64_MAX, 1), 0), 1) == INT64_MIN);
    assert_int_equal(exact(fx_cast(I64_OF(0x1FFFFFFFF), FX_DTYPE_I32), 0), -1);
    assert_int_equal(exact(fx_cast(I32_OF(-1), FX_DTYPE_U8), 0), 255);
}

static void sums_and_means_of_integers(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *u = fx_full_dtype(FX_DTYPE_U8, 200, 1000), *i = I32_OF(INT32_MAX, INT32_MAX);
    TYPE(fx_sum(u), I64);
    SAME(fx_item(fx_sum(u)), 200000);
    TYPE(fx_mean(u), F64);
    SAME(fx_item(fx_mean(u)), 200);
    TYPE(fx_sum(i), I64);
    SAME(fx_item(fx_sum(i)), 2.0 * INT32_MAX);
    TYPE(fx_prod(i), I64);
    assert_true(exact(fx_prod(i), 0) == (int64_t)INT32_MAX * INT32_MAX);
    TYPE(fx_mean(i), F64);
    SAME(fx_item(fx_mean(i)), INT32_MAX);
    fx_array *yes = fx_gt(u, 0);
    TYPE(fx_sum(yes), I64);
    SAME(fx_item(fx_sum(yes)), 1000);
    TYPE(fx_mean(yes), F32);
    SAME(fx_item(fx_mean(yes)), 1);
    TYPE(fx_maximum(u), U8);
}

static void conversions_saturate(void **state)
{
    (void)state;
    FX_SCOPE;
    static const double v[] = {NAN,   INFINITY, -INFINITY, 1e10,  -1e10,
                               1e300, -2.9,     2.9,       255.5, -0.5};
    static const int64_t want[3][10] = {
        {0, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX, -2, 2, 255, 0},
        {0, INT64_MAX, INT64_MIN, 10000000000, -10000000000, INT64_MAX, -2, 2, 255, 0},
        {0, 255, 0, 255, 0, 255, 0, 2, 255, 0}};
    static const fx_dtype to[] = {FX_DTYPE_I32, FX_DTYPE_I64, FX_DTYPE_U8};
    static const fx_dtype from[] = {FX_DTYPE_F64, FX_DTYPE_F32, FX_DTYPE_BF16};
    for (int t = 0; t < 3; t++)
        for (int f = 0; f < 3; f++)
            for (int i = 0; i < 10; i++) {
                if (f == 2 && (i == 3 || i == 4 || (i > 5 && i < 9)))
                    continue; /* not numbers of that type */
                fx_array *x = fx_cast(vector64(v + i, 1), from[f]);
                fx_eval(x);
                int64_t got = 1, read = 1;
                assert_int_equal(fx_read_as(fx_cast(x, to[t]), FX_DTYPE_I64, &got, 1), FX_OK);
                if (got != want[t][i])
                    fail_msg("%g as %s gives %lld", v[i], fx_dtype_name(to[t]), (long long)got);
                char bytes[8] = {0}; /* the reading function converts the same way */
                assert_int_equal(fx_read_as(x, to[t], bytes, 1), FX_OK);
                assert_int_equal(
                    fx_read_as(fxi_from(to[t], bytes, 0, NULL), FX_DTYPE_I64, &read, 1), FX_OK);
                assert_true(read == got);
            }
    SAME(fx_at(fx_cast(fx_vector(NAN, 0.1f, -0.0f), FX_DTYPE_BOOL), 0), 1);
    SAME(fx_at(fx_cast(fx_vector(NAN, 0.1f, -0.0f), FX_DTYPE_BOOL), 1), 1);
    SAME(fx_at(fx_cast(fx_vector(NAN, 0.1f, -0.0f), FX_DTYPE_BOOL), 2), 0);
    /* the same for literals that an integer array cannot hold */
    SAME(fx_at(fx_full_dtype(FX_DTYPE_U8, 1e9, 1), 0), 255);
    SAME(fx_at(fx_full_dtype(FX_DTYPE_I32, NAN, 1), 0), 0);
}

static void nan_and_ties(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, NAN, 3, 2), *y = fx_vector(NAN, 1, 3, 5), *g[2];
    CHECK(fx_max(x, y), (4), 0, NAN, NAN, 3, 5);
    CHECK(fx_min(x, y), (4), 0, NAN, NAN, 3, 2);
    CHECK(fx_relu(fx_vector(NAN, -1)), (2), 0, NAN, 0);
    assert_true(isnan(fx_item(fx_maximum(x))));
    assert_true(isnan(fx_item(fx_minimum(x))));
    assert_true(isnan(fx_item(fx_maximum(fx_flip(x, FX_AXES(0))))));
    CHECK(fx_gt(x, y), (4), 0, 0, 0, 0, 0);
    CHECK(fx_ne(x, x), (4), 0, 0, 1, 0, 0);
    /* equal maxima share the gradient evenly */
    x = fx_vector(1, 5, 3), y = fx_vector(1, 2, 4);
    fx_gradient_of(fx_sum(fx_max(x, y)), (fx_array *[]){x, y}, 2, g);
    CHECK(g[0], (3), 0, 0.5, 1, 0);
    CHECK(g[1], (3), 0, 0.5, 0, 1);
    fx_gradient_of(fx_sum(fx_min(x, y)), (fx_array *[]){x, y}, 2, g);
    CHECK(g[0], (3), 0, 0.5, 0, 1);
    CHECK(g[1], (3), 0, 0.5, 1, 0);
    x = fx_from(FX_DTYPE_F32, ((float[]){4, 4, 1, 4, 2, 7}), 3, 2);
    CHECK(gradient1(fx_maximum(x), x), (3, 2), 0, 0, 0, 0, 0, 0, 1);
    CHECK(gradient1(fx_sum(fx_maximum(x, .dims = FX_AXES(0))), x), (3, 2), 0, 0.5, 0.5, 0, 0, 0, 1);
    x = fx_vector(4, 4, 4, 1);
    CHECK(gradient1(fx_maximum(x), x), (4), 1e-7, 1 / 3.0, 1 / 3.0, 1 / 3.0, 0);
}

/* ---- literals are inputs --------------------------------------------------------------------- */

static void numbers_are_not_in_the_key(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2, 3);
    fx_eval(x);
    fx_item(fx_sum(fx_mul(fx_add(x, 1.5), 2)));
    const fx_counters before = fx_stats();
    for (int k = 0; k < 50; k++)
        SAME(fx_item(fx_sum(fx_mul(fx_add(x, 0.25 * k), k))), k * (6 + 0.75 * k));
    SAME(fx_item(fx_sum(fx_mul(fx_add(fx_vector(4, 5, 6), -1.0), 2))), 24); /* other data */
    assert_int_equal(fx_stats().plans_built, before.plans_built);
    assert_int_equal(fx_stats().plan_hits, before.plan_hits + 51);
}

static void integer_exponents_are_structure(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(-3, 2, 0.5f);
    fx_eval(x);
    CHECK(fx_pow(x, 3), (3), 0, -27, 8, 0.125);
    const uint64_t built = fx_stats().plans_built;
    CHECK(fx_pow(x, 3), (3), 0, -27, 8, 0.125);
    assert_int_equal(fx_stats().plans_built, built);
    CHECK(fx_pow(x, 2), (3), 0, 9, 4, 0.25);
    assert_int_equal(fx_stats().plans_built, built + 1);
    CHECK(fx_pow(x, -1), (3), 1e-7, -1 / 3.0, 0.5, 2);
    CHECK(fx_pow(x, 0), (3), 0, 1, 1, 1);
    CHECK(fx_pow(fx_vector(NAN, 0), 0), (2), 0, 1, 1);
    assert_true(exact(fx_pow(I64_OF(3), 39), 0) == 4052555153018976267); /* not through a double */
}

static double sign_of(fx_array *x)
{
    float v;
    assert_int_equal(fx_read_into(x, &v, sizeof v), FX_OK);
    assert_true(v == 0);
    return signbit(v) ? -1 : 1;
}

/* No operation is simplified because of a literal's value, as −0.0 shows. */
static void nothing_is_folded(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *minus = fx_vector(-0.0f), *plus = fx_vector(0.0f);
    SAME(sign_of(minus), -1);
    SAME(sign_of(fx_add(minus, 0)), 1); /* −0 + 0 = 0 */
    SAME(sign_of(fx_add(minus, -0.0)), -1);
    SAME(sign_of(fx_sub(minus, 0)), -1);
    SAME(sign_of(fx_sub(0, plus)), 1);
    SAME(sign_of(fx_neg(plus)), -1);
    SAME(sign_of(fx_mul(plus, -1)), -1);
    SAME(sign_of(fx_mul(minus, 1)), -1);
    SAME(sign_of(fx_mul(fx_vector(-3), 0)), -1);
    SAME(sign_of(fx_full(-0.0, 1)), -1);
    assert_true(isnan(fx_at(fx_mul(fx_vector(INFINITY), 0), 0)));
    assert_true(isnan(fx_at(fx_sub(fx_vector(NAN), fx_vector(NAN)), 0)));
    SAME(fx_at(fx_pow(fx_vector(NAN), 0), 0), 1);
    fx_array *nan = fx_vector(NAN);
    assert_true(isnan(fx_at(fx_div(nan, nan), 0)));
}

/* ---- random numbers -------------------------------------------------------------------------- */

static void check_different(fx_array *x, fx_array *y)
{
    SAME(fx_item(fx_sum(fx_eq(x, y))), 0);
}

static void calls_never_merge(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = fx_rand_dtype(FX_DTYPE_F64, 100), *b = fx_rand_dtype(FX_DTYPE_F64, 100);
    check_different(a, b);
    check_different(fx_randn_dtype(FX_DTYPE_F64, 100), fx_randn_dtype(FX_DTYPE_F64, 100));
    FX_STEP;
    fx_array *x = fx_ones(10000);
    fx_array *p = fx_dropout_apply(x, 0.5), *q = fx_dropout_apply(x, 0.5);
    const double both = fx_item(fx_sum(fx_and(fx_gt(p, 0), fx_gt(q, 0))));
    NEAR(both, 2500, 0.1); /* independent: a quarter; merged would be a half */
}

static void recomputing_repeats(void **state)
{
    (void)state;
    FX_SCOPE;
    FX_STEP;
    fx_array *x = fx_ones(1000), *y = fx_dropout_apply(x, 0.5), *loss = fx_sum(fx_square(y));
    const double first = fx_item(loss); /* y itself was not kept */
    float mask[1000], g[1000];
    assert_false(fx_is_evaluated(y));
    assert_int_equal(fx_read_into(gradient1(loss, x), g, sizeof g), FX_OK);
    assert_int_equal(fx_read_into(y, mask, sizeof mask), FX_OK);
    double sum = 0;
    for (int i = 0; i < 1000; i++) {
        assert_true(mask[i] == 0 || mask[i] == 2);
        SAME((double)g[i], 2 * 2 * (double)mask[i]);
        sum += (double)mask[i] * (double)mask[i];
    }
    SAME(first, sum);
}

/* A thread continues from a state, also one of another thread, as if it had drawn nothing since. */
static void *draw_from(void *random)
{
    FX_SCOPE;
    fx_random_set(*(const fx_random_state *)random);
    fx_rand(5);
    *(fx_random_state *)random = fx_random_get();
    return (void *)(uintptr_t)fx_rand_u64();
}

static void states_of_streams(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(5);
    fx_rand_u64();
    const fx_random_state begin = fx_random_get();
    fx_array *a = fx_rand_dtype(FX_DTYPE_F64, 5);
    const uint64_t u = fx_rand_u64();
    fx_rand_u64();
    fx_random_set(begin);
    fx_array *b = fx_rand_dtype(FX_DTYPE_F64, 5);
    SAME(fx_item(fx_sum(fx_ne(a, b))), 0);
    assert_true(fx_rand_u64() == u);
    fx_random_state moved = begin;
    pthread_t thread;
    void *got;
    assert_int_equal(pthread_create(&thread, NULL, draw_from, &moved), 0);
    assert_int_equal(pthread_join(thread, &got), 0);
    assert_true((uintptr_t)got == (uintptr_t)u);
    fx_random_set(moved);
    assert_true(fx_rand_u64() == u);
}

static void seeds(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(42);
    fx_array *a = fx_rand_dtype(FX_DTYPE_F64, 64), *b = fx_randn_dtype(FX_DTYPE_F64, 64);
    const uint64_t u = fx_rand_u64();
    fx_eval(fx_tuple(a, b));
    fx_seed(42);
    fx_array *a2 = fx_rand_dtype(FX_DTYPE_F64, 64), *b2 = fx_randn_dtype(FX_DTYPE_F64, 64);
    assert_true(fx_rand_u64() == u);
    fx_eval(b2); /* the order of evaluation does not matter */
    SAME(fx_item(fx_sum(fx_ne(a, a2))), 0);
    SAME(fx_item(fx_sum(fx_ne(b, b2))), 0);
    fx_seed(43);
    check_different(a, fx_rand_dtype(FX_DTYPE_F64, 64));
    /* a seed is such an input as well */
    fx_array *c = fx_rand(7);
    fx_eval(c);
    const uint64_t built = fx_stats().plans_built;
    for (uint64_t s = 0; s < 10; s++) {
        fx_seed(s);
        fx_eval(fx_rand(7));
    }
    assert_int_equal(fx_stats().plans_built, built);
}

/* Streams have names (worker threads get one each): the same seed and count, other numbers. */
static void streams_are_named(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *named[3];
    for (uint64_t name = 0; name < 3; name++) {
        fxi_random_name(42, name);
        named[name] = fx_rand_dtype(FX_DTYPE_F64, 64);
    }
    fx_seed(42); /* the thread's default stream continues with its first number */
    fx_array *own = fx_rand_dtype(FX_DTYPE_F64, 64);
    check_different(named[0], named[1]);
    check_different(named[1], named[2]);
    SAME(fx_item(fx_sum(fx_ne(own, named[0]))), 0);
}

/* Two random values in one graph, in either order, keep their own numbers. */
static void streams_follow_the_node(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a, *b, *d[2];
    for (int swap = 0; swap < 2; swap++) {
        fx_seed(5);
        a = fx_rand_dtype(FX_DTYPE_F64, 9), b = fx_rand_dtype(FX_DTYPE_F64, 9);
        d[swap] = swap ? fx_neg(fx_sub(b, a)) : fx_sub(a, b);
        fx_eval(d[swap]);
    }
    SAME(fx_item(fx_maximum(fx_abs(fx_sub(d[0], d[1])))), 0);
    fx_seed(5);
    a = fx_rand_dtype(FX_DTYPE_F64, 9);
    fx_eval(a);
    SAME(fx_item(fx_maximum(fx_abs(fx_sub(fx_sub(a, b), d[0])))), 0);
}

/* ---- nothing --------------------------------------------------------------------------------- */

static void arrays_without_elements(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *none = fx_zeros(0), *flat = fx_zeros(3, 0, 2);
    assert_int_equal(fx_length(flat), 0);
    CHECK(fx_matmul(fx_ones(2, 0), fx_ones(0, 3)), (2, 3), 0, 0, 0, 0, 0, 0, 0);
    CHECK(fx_matmul(fx_ones(2, 0), fx_ones(0)), (2), 0, 0, 0);
    check_dims("0×3", fx_matmul(fx_ones(0, 4), fx_ones(4, 3)), 2, (int64_t[]){0, 3});
    assert_int_equal(fx_eval(fx_matmul(fx_ones(0, 4), fx_ones(4, 3))), FX_OK);
    assert_true(isnan(fx_item(fx_mean(none))));
    assert_int_equal(fx_error_status(), FX_OK);
    assert_true(isnan(fx_item(fx_mean(fx_full_dtype(FX_DTYPE_I32, 0, 0)))));
    SAME(fx_item(fx_sum(none)), 0);
    SAME(fx_item(fx_prod(none)), 1);
    CHECK(fx_sum(flat, .dims = FX_AXES(1)), (3, 1, 2), 0, 0, 0, 0, 0, 0, 0);
    CHECK(fx_mean(flat, .dims = FX_AXES(1)), (3, 1, 2), 0, NAN, NAN, NAN, NAN, NAN, NAN);
    check_dims("over others", fx_maximum(flat, .dims = FX_AXES(0)), 3, (int64_t[]){1, 0, 2});
    SAME(fx_item(fx_all(fx_gt(none, 0))), 1);
    SAME(fx_item(fx_any(fx_gt(none, 0))), 0);
    assert_int_equal(fx_error_status(), FX_OK);
    check_error(fx_maximum(none), FX_STATUS_SHAPE, "maximum: ");
    check_error(fx_minimum(flat, .dims = FX_AXES(1)), FX_STATUS_SHAPE, "minimum: ");
    check_error(fx_argmax(none), FX_STATUS_SHAPE, "argmax: ");
    fx_array *all[] = {fx_add(none, 1),
                       fx_exp(none),
                       fx_add(flat, fx_ones(3, 1, 1)),
                       fx_permute(flat, 1, 2, 0),
                       fx_reshape(flat, 0, 7),
                       fx_slice(fx_ones(4), 0, 2, 2),
                       fx_softmax(fx_ones(3, 0)),
                       fx_cumsum(none, 0),
                       fx_rand(0, 5),
                       fx_cast(none, FX_DTYPE_I64),
                       fx_flip(none, FX_AXES(0)),
                       fx_gather(fx_ones(3), fx_full_dtype(FX_DTYPE_I64, 0, 0), 0),
                       fx_repeat(fx_ones(3), 0),
                       fx_onehot(fx_full_dtype(FX_DTYPE_I64, 0, 0), 4)};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (fx_length(all[i]) != 0 || fx_eval(all[i]) != FX_OK)
            fail_msg("operation %d on nothing: %s", (int)i, fx_error_take().message);
        assert_non_null(fx_data(all[i]));
    }
    CHECK(fx_concat(0, none, fx_vector(1, 2), none), (2), 0, 1, 2);
    CHECK(fx_pad(none, 0, 1, 2, 9), (3), 0, 9, 9, 9);
    CHECK(fx_scatter(FX_REDUCE_SUM, none, fx_full_dtype(FX_DTYPE_I64, 0, 0), 0, 2), (2), 0, 0, 0);
    char text[100];
    fx_show_text(none, text, sizeof text);
    assert_non_null(strstr(text, "Float32"));
    float nothing = 7;
    assert_int_equal(fx_read_into(none, &nothing, 0), FX_OK);
    SAME((double)nothing, 7);
    assert_int_equal(fx_eval(fx_from(FX_DTYPE_F32, NULL, 0)), FX_OK);
}

/* A layer and a training step on an empty batch. */
static void an_empty_batch(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_chain_layer *m = fx_chain(fx_dense(3, 4, FX_RELU), fx_dense(4, 2));
    void *opt = fx_setup(fx_descent(), m);
    fx_array *before = fx_add(((fx_dense_layer *)fx_child(m, 0))->weight, 0);
    fx_eval(before);
    FX_STEP;
    fx_array *y = fx_call(m, fx_zeros(3, 0)), *loss = fx_sum(y);
    check_dims("y", y, 2, (int64_t[]){2, 0});
    assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
    SAME(fx_item(loss), 0);
    SAME(fx_item(fx_maximum(fx_abs(fx_sub(before, ((fx_dense_layer *)fx_child(m, 0))->weight)))),
         0);
}

/* A training step on an empty batch changes no layer: all gradients are 0, as in PyTorch. */
static void no_layer_changes_on_an_empty_batch(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(5);
    fx_array *rows = fx_zeros(4, 0), *series = fx_zeros(4, 3, 0), *images = fx_zeros(5, 5, 4, 0);
    const struct {
        void *layer;
        fx_array *x;
    } rows_of[] = {
        {fx_dense(4, 2), rows},
        {fx_scale(4), rows},
        {fx_batchnorm(4), rows},
        {fx_batchnorm(4), images},
        {fx_batchnorm(4, .track_stats = false), rows},
        {fx_layernorm(4), rows},
        {fx_rmsnorm(4), rows},
        {fx_instancenorm(4, .affine = true, .track_stats = true), images},
        {fx_instancenorm(4, .affine = true, .track_stats = true), fx_zeros(0, 4, 3)},
        {fx_groupnorm(4, 2), images},
        {fx_groupnorm(4, 2), fx_zeros(0, 4, 3)},
        {fx_conv(FX_DIMS(3, 3), 4, 2), images},
        {fx_convtranspose(FX_DIMS(3, 3), 4, 2), images},
        {fx_rnn(4, 2), series},
        {fx_lstm(4, 2), series},
        {fx_gru(4, 2), series},
        {fx_multiheadattention(FX_DIMS(4), .nheads = 2), series},
        {fx_transformerblock(4, .nheads = 2), series},
        {fx_embedding(4, 2), fx_full_dtype(FX_DTYPE_I64, 0, 3, 0)},
    };
    for (size_t i = 0; i < sizeof rows_of / sizeof *rows_of; i++) {
        FX_STEP;
        void *layer = rows_of[i].layer, *opt = fx_setup(fx_descent(), layer);
        fx_array *before = fx_add(fx_destructure(layer), 0), *after;
        fx_eval(before);
        void *y = fx_call(layer, rows_of[i].x);
        fx_array *loss = fx_sum(fx_is_array(y) ? y : fx_child(y, 0));
        assert_int_equal(fx_update(opt, layer, fx_gradient(loss, layer)), FX_OK);
        after = fx_destructure(layer);
        if (fx_item(fx_all(fx_eq(before, after))) != 1)
            fail_msg("%s, row %d", fx_type_of(layer)->name, (int)i);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(arrays_promote_as_julia),
        TEST(literals_are_weak),
        TEST(filled_arrays_are_of_their_type),
        TEST(integers_wrap),
        TEST(integers_become_bfloat16_in_one_rounding),
        TEST(sums_and_means_of_integers),
        TEST(conversions_saturate),
        TEST(nan_and_ties),
        TEST(numbers_are_not_in_the_key),
        TEST(integer_exponents_are_structure),
        TEST(nothing_is_folded),
        TEST(calls_never_merge),
        TEST(recomputing_repeats),
        TEST(seeds),
        TEST(states_of_streams),
        TEST(streams_are_named),
        TEST(streams_follow_the_node),
        TEST(arrays_without_elements),
        TEST(an_empty_batch),
        TEST(no_layer_changes_on_an_empty_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
