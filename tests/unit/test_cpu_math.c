/* Functions of numbers on the CPU: how far they are from the exact value over all of Float32, what
 * they give for special values, and that a result never depends on the position of its element.
 *
 * The exact value is libm's in double, whose error is below 2⁻²⁷ of a Float32's last place. A
 * sample takes every 509th bit pattern (emulated: every 8191st), so that every exponent occurs with
 * mantissas from their whole range, and all patterns around the points where a function changes its
 * method. Special values come from libm's Float32 functions (C11, Annex F). ctest: timeout=240 */
#include "cpu_check.h"

#ifdef CFLUX_EMULATED /* fewer on an emulated processor */
enum { CHUNK = FXI_TILE, EVERY = 8191, AROUND = 300 };
#else
enum { CHUNK = FXI_TILE, EVERY = 509, AROUND = 300 };
#endif

typedef double (*exact1)(double);
typedef double (*exact2)(double, double);

static double exact_sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static const struct {
    const char *name;
    fx_op op;
    exact1 exact;
    double most;      /* ulp */
    float around[12]; /* where the method changes; 0 ends the list */
} functions[] = {
    {"exp", FX_OP_EXP, exp, 4, {88.7228394f, -103.972076f, -87.3365479f, 0.34657359f, 87, -87}},
    {"expm1", FX_OP_EXPM1, expm1, 4, {88.7228394f, 88.37626f, -18, 0.34657359f, -0.34657359f}},
    {"log", FX_OP_LOG, log, 4, {0.70710678f, 1, 1.41421356f, 0x1p-126f, 2}},
    {"log1p", FX_OP_LOG1P, log1p, 4, {-1, 1, -0.29289322f, 0.41421356f, 0x1p24f, 0x1p-24f}},
    {"tanh", FX_OP_TANH, tanh, 4, {0.1732868f, -0.1732868f, 0.5198604f, 9.01f, 10}},
    {"sigmoid", FX_OP_SIGMOID, exact_sigmoid, 4, {-88.7228394f, -103.972076f, 16.6f}},
    {"erf", FX_OP_ERF, erf, 4, {1, -1, 3.9192059f, 4}},
    {"sin", FX_OP_SIN, sin, 4, {0x1p20f, 3.14159265f, 355, 103993, 6.2831853f, 1.57079633f}},
    {"cos", FX_OP_COS, cos, 4, {0x1p20f, -0x1p20f, 1.57079633f, 11, 344.0044f, 161.79f}},
    {"sqrt", FX_OP_SQRT, sqrt, 0.5, {0x1p-126f, 1}},
};
static const struct {
    const char *name;
    fx_op op;
    exact2 exact;
    float (*libm)(float, float);
} functions2[] = {
    {"pow", FX_OP_POW, pow, powf},
    {"atan2", FX_OP_ATAN2, atan2, atan2f},
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static const float specials[] = {
    0.0f,       -0.0f,       INFINITY,    -INFINITY,    NAN,        1.0f,      -1.0f,
    0x1p-149f,  -0x1p-149f,  1e-40f,      -1e-40f,      0x1p-126f,  0.5f,      -0.5f,
    2.0f,       -2.0f,       3.0f,        -3.0f,        2.5f,       -2.5f,     0.9999999f,
    1.0000001f, -1.0000001f, -0.9999999f, 100,          -100,       1e30f,     -1e30f,
    16777215,   -16777215,   16777216,    33554431e1f,  0x1.8p22f,  0x1.8p23f, 8388607.5f,
    0x1p25f,    -0x1p25f,    3.40282e38f, -3.40282e38f, 4194303.5f, 88.73f,    -104.0f};

/* Distance of a Float32 from the exact value, in units of the last place there. Beyond the largest
 * number the next one would be 2¹²⁸. */
static double ulps(float got, double want)
{
    if (isnan(want))
        return isnan(got) ? 0 : INFINITY;
    if (isinf(want) || want == 0)
        return (double)got == want && !signbit(got) == !signbit(want) ? 0 : INFINITY;
    if (isnan(got) || !signbit(got) != !signbit(want))
        return INFINITY;
    const double value = isinf(got) ? copysign(0x1p128, (double)got) : (double)got;
    const double bound = fabs(want) > 0x1p128 ? copysign(0x1p128, want) : want;
    const int exponent = ilogb(bound) > 127 ? 127 : ilogb(bound);
    return fabs(value - bound) / (exponent < -126 ? 0x1p-149 : ldexp(1, exponent - 23));
}

/* d = op(a[, b]) over n numbers, computed by the backend. */
static void apply(fx_op op, int64_t attr, const float *a, const float *b, float *d, int64_t n)
{
    fx_tensor t[2] = {
        {.dtype = FX_DTYPE_F32, .ndim = 1, .shape = {n}, .stride = {1}},
        {.dtype = FX_DTYPE_F32, .ndim = 1, .shape = {n}, .stride = {1}},
    };
    fx_instr ins = {.op = (uint8_t)op,
                    .dtype = FX_DTYPE_F32,
                    .from = FX_DTYPE_F32,
                    .nsrc = b ? 2 : 1,
                    .src = {0, 1},
                    .attr = attr};
    fx_step step = {.op = (uint8_t)op,
                    .cls = FX_CLASS_ELEMENTWISE,
                    .nin = ins.nsrc,
                    .out = t[0],
                    .in = t,
                    .as.elementwise.program = {&ins, 1}};
    fx_run run;
    assert_int_equal(run_once(&step, (const void *[]){a, b}, d, &run), FX_OK);
}

/* ---- accuracy -------------------------------------------------------------------------------- */
typedef struct worst {
    double error;
    float x, y;
} worst;

static void check_chunk(size_t f, uint32_t first, uint32_t step, worst *w)
{
    float x[CHUNK], y[CHUNK];
    for (uint32_t i = 0; i < CHUNK; i++)
        x[i] = fxi_float(first + i * step);
    apply(functions[f].op, 0, x, NULL, y, CHUNK);
    for (int i = 0; i < CHUNK; i++) {
        const double e = ulps(y[i], functions[f].exact((double)x[i]));
        if (e > w->error)
            *w = (worst){e, x[i], 0};
    }
}

static void functions_of_one_are_accurate(void **state)
{
    (void)state;
    for (size_t f = 0; f < COUNT(functions); f++) {
        worst w = {0, 0, 0};
        for (uint64_t bits = 0; bits >> 32 == 0; bits += (uint64_t)CHUNK * EVERY)
            check_chunk(f, (uint32_t)bits, EVERY, &w);
        for (int k = 0; functions[f].around[k] != 0; k++)
            for (uint32_t i = 0; i < 2 * AROUND; i += CHUNK)
                check_chunk(f, fxi_bits(functions[f].around[k]) - AROUND + i, 1, &w);
        print_message("%s: at most %.3f ulp (at %a)\n", functions[f].name, w.error, (double)w.x);
        assert_true(w.error <= functions[f].most);
    }
}

/* Multiples of π/2 are where an angle loses most digits: the nearest Float32 to each of them. */
static void angles_near_multiples_of_a_right_angle(void **state)
{
    (void)state;
    enum { MULTIPLES = 700000 / CHUNK };
    for (size_t f = 0; f < COUNT(functions); f++) {
        if (functions[f].op != FX_OP_SIN && functions[f].op != FX_OP_COS)
            continue;
        worst w = {0, 0, 0};
        for (int k = 0; k < MULTIPLES; k++) {
            float x[CHUNK], y[CHUNK];
            for (int i = 0; i < CHUNK; i++)
                x[i] = (float)((k * CHUNK + i) * 1.57079632679489661923);
            apply(functions[f].op, 0, x, NULL, y, CHUNK);
            for (int i = 0; i < CHUNK; i++) {
                const double e = ulps(y[i], functions[f].exact((double)x[i]));
                if (e > w.error)
                    w = (worst){e, x[i], 0};
            }
        }
        print_message("%s: at most %.3f ulp near multiples of a right angle (at %a)\n",
                      functions[f].name, w.error, (double)w.x);
        assert_true(w.error <= functions[f].most);
    }
}

/* Random bits: every exponent; for pow half of the pairs are such that the result is a number that
 * is neither 0 nor Inf, and some bases are negative with a whole y. */
static void random_pair(int i, bool power, float *x, float *y)
{
    *x = fxi_float(next_random() << 1 ^ next_random());
    *y = fxi_float(next_random() << 1 ^ next_random());
    if (!power || i % 2 == 0)
        return;
    const double most = 151 / (fabs(log2(fabs((double)*x))) + 1e-9);
    *y = (float)(most * ((double)next_random() * 0x1p-30 - 1));
    if (i % 4 == 1) { /* a base near 1: the logarithm is small, y is large */
        *x = 1 + (float)((double)next_random() * 0x1p-31 - 0.5) *
                     fxi_float((uint32_t)(i % 24 + 104) << 23);
        *y = (float)(151 * ((double)next_random() * 0x1p-30 - 1) / log2((double)*x));
    }
    *y = i % 8 == 3 ? rintf(*y) : *y;
    *x = i % 8 == 3 ? -fabsf(*x) : fabsf(*x);
}

static void functions_of_two_are_accurate(void **state)
{
    (void)state;
    for (size_t f = 0; f < COUNT(functions2); f++) {
        worst w = {0, 0, 0};
        for (int k = 0; k < 8000; k++) {
            float x[CHUNK], y[CHUNK], z[CHUNK];
            for (int i = 0; i < CHUNK; i++)
                random_pair(i, functions2[f].op == FX_OP_POW, &x[i], &y[i]);
            apply(functions2[f].op, 0, x, y, z, CHUNK);
            for (int i = 0; i < CHUNK; i++) {
                const double e = ulps(z[i], functions2[f].exact((double)x[i], (double)y[i]));
                if (e > w.error)
                    w = (worst){e, x[i], y[i]};
            }
        }
        print_message("%s: at most %.3f ulp (at %a, %a)\n", functions2[f].name, w.error,
                      (double)w.x, (double)w.y);
        assert_true(w.error <= 4);
    }
}

/* ---- special values -------------------------------------------------------------------------- */
static void special_values(void **state)
{
    (void)state;
    enum { N = COUNT(specials) };
    float y[N], a[N * N], b[N * N], z[N * N];
    for (size_t f = 0; f < COUNT(functions); f++) {
        apply(functions[f].op, 0, specials, NULL, y, N);
        for (int i = 0; i < N; i++)
            if (!(ulps(y[i], functions[f].exact((double)specials[i])) <= functions[f].most))
                fail_msg("%s(%a) = %a", functions[f].name, (double)specials[i], (double)y[i]);
    }
    for (int i = 0; i < N * N; i++)
        a[i] = specials[i / N], b[i] = specials[i % N];
    for (size_t f = 0; f < COUNT(functions2); f++) {
        apply(functions2[f].op, 0, a, b, z, (int64_t)N * N);
        for (int i = 0; i < N * N; i++) {
            const double want = functions2[f].exact((double)a[i], (double)b[i]);
            const float want32 = functions2[f].libm(a[i], b[i]);
            const bool exact = isnan(want32) || isinf(want32) || want32 == 0;
            if (!(ulps(z[i], exact ? (double)want32 : want) <= (exact ? 0 : 4)))
                fail_msg("%s(%a, %a) = %a, not %a", functions2[f].name, (double)a[i], (double)b[i],
                         (double)z[i], want);
        }
    }
}

/* Powers that Float32 holds are exact. */
static void whole_powers_are_exact(void **state)
{
    (void)state;
    for (int base = -20; base <= 20; base++)
        for (int e = 0; e <= 20; e++) {
            const double want = pow(base, e);
            const float x = (float)base, y = (float)e;
            float z = 0;
            apply(FX_OP_POW, 0, &x, &y, &z, 1);
            if ((double)(float)want == want)
                assert_true((double)z == want);
        }
}

static void small_exponents_multiply(void **state)
{
    (void)state;
    float x[1000], y[1000];
    for (int i = 0; i < 1000; i++)
        x[i] = i < (int)COUNT(specials) ? specials[i] : fxi_float(next_random() << 1);
    for (int e = -9; e <= 40; e++) {
        apply(FX_OP_POWI, e, x, NULL, y, 1000);
        for (int i = 0; i < 1000; i++) {
            float r = 1, b = x[i];
            for (int k = abs(e); k; k >>= 1, b *= b)
                r = k & 1 ? r * b : r;
            r = e < 0 ? 1 / r : r;
            assert_true(isnan(r) ? isnan(y[i]) : fxi_bits(y[i]) == fxi_bits(r));
        }
        apply(FX_OP_POWI, e, x, NULL, x, 1000); /* in place */
        assert_memory_equal(x, y, sizeof x);
        for (int i = 0; i < 1000; i++)
            x[i] = i < (int)COUNT(specials) ? specials[i] : fxi_float(next_random() << 1);
    }
}

/* ---- position -------------------------------------------------------------------------------- */
enum { PLACES = 700 };

static void check_places(fx_op op, const float *x, const float *y)
{
    float want[PLACES], got[PLACES + 1];
    const float mark = 12345;
    apply(op, 0, x, y, want, PLACES);
    for (int from = 0; from < 34; from++)
        for (int n = 1; n <= 600; n += n < 70 ? 1 : n < 250 ? 45 : n < 260 ? 1 : 85) {
            got[n] = mark;
            apply(op, 0, x + from, y ? y + from : NULL, got, n);
            assert_memory_equal(got, want + from, (size_t)n * sizeof *got);
            assert_true(got[n] == mark);
            memcpy(got, x + from, (size_t)n * sizeof *got); /* into the memory of an operand */
            apply(op, 0, got, y ? y + from : NULL, got, n);
            assert_memory_equal(got, want + from, (size_t)n * sizeof *got);
            assert_true(got[n] == mark);
        }
}

static void place_does_not_matter(void **state)
{
    (void)state;
    float x[PLACES], y[PLACES];
    for (int i = 0; i < PLACES; i++) {
        x[i] = fxi_float(next_random() << 1 ^ next_random());
        y[i] = i % 2 ? specials[next_random() % COUNT(specials)] : 4 * (float)sin(i);
        x[i] = i % 3 ? x[i] : 7 * (float)cos(3 * i);
    }
    for (size_t f = 0; f < COUNT(functions); f++)
        check_places(functions[f].op, x, NULL);
    for (size_t f = 0; f < COUNT(functions2); f++)
        check_places(functions2[f].op, x, y);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(functions_of_one_are_accurate),
    cmocka_unit_test(angles_near_multiples_of_a_right_angle),
    cmocka_unit_test(functions_of_two_are_accurate),
    cmocka_unit_test(special_values),
    cmocka_unit_test(whole_powers_are_exact),
    cmocka_unit_test(small_exponents_multiply),
    cmocka_unit_test(place_does_not_matter),
};
RUN_ON_EVERY_ISA(tests)
