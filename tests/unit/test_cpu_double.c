/* Vector functions of Float64 on the CPU: how far they are from the exact value, what they give for
 * special values, and that a result never depends on the position of its element.
 *
 * The exact value is the C library's in long double, which has 64 bits on x86-64 and 113 on ARM.
 * Numbers are random bits (every exponent), numbers spread over the range in which the function
 * changes, numbers that approach 0 or 1 by powers of two, and all neighbours of the points where a
 * function changes its method. ctest: timeout=240
 */
#include "cpu_check.h"
#include <float.h>

#ifdef CFLUX_EMULATED /* fewer on an emulated processor */
enum { CHUNK = FXI_TILE, CHUNKS = 80 };
#else
enum { CHUNK = FXI_TILE, CHUNKS = 2000 };
#endif

static long double exact_sigmoid(long double x)
{
    return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}

static const struct {
    const char *name;
    fx_op op;
    long double (*exact)(long double);
    double from, to;   /* where the result is neither constant nor Inf */
    double near;       /* numbers approach it by powers of two */
    double around[10]; /* where the method changes; 0 ends the list */
} functions[] = {
    {"exp",
     FX_OP_EXP,
     expl,
     -746,
     710,
     0,
     {709.7827128933841, -745.13, -708.39, 0.3465735902799726}},
    {"expm1", FX_OP_EXPM1, expm1l, -40, 710, 0, {709.78, -37.4, -40, 0.34657, -0.34657, 1.0397}},
    {"log", FX_OP_LOG, logl, 0, 8, 1, {0.7071067811865476, 1, 1.4142135623730951, 0x1p-1022, 2}},
    {"log1p", FX_OP_LOG1P, log1pl, -1, 4, 0, {-1, 1, -0.2928932188, 0.414213562, 0x1p53, 0x1p60}},
    {"tanh",
     FX_OP_TANH,
     tanhl,
     -20,
     20,
     0,
     {0.1732867951, -0.1732867951, 19.1, 0.5198603854, 20, 18.4, 0.97295507452765665}},
#ifndef _WIN32 /* sinl and cosl of MinGW know 66 bits of pi */
    {"sin",
     FX_OP_SIN,
     sinl,
     -40,
     40,
     0,
     {1.5707963267948966, 3.141592653589793, 355, 0x1p20, -0x1p20, 103993, -6.283185307179586,
      0.7853981633974483, 1e6}},
    {"cos",
     FX_OP_COS,
     cosl,
     -1e6,
     1e6,
     1.5707963267948966,
     {1.5707963267948966, 4.71238898038469, 177.5, 0x1p20, -0x1p20, 51996.5, -7.853981633974483,
      0.7853981633974483, 1e6}},
#endif
    {"sigmoid", FX_OP_SIGMOID, exact_sigmoid, -746, 40, 0, {-745.13, -708.39, 36.7, -0.3465, 37}},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static const double specials[] = {0.0,        -0.0,       INFINITY, -INFINITY,
                                  NAN,        1.0,        -1.0,     0x1p-1074,
                                  -0x1p-1074, 1e-310,     -1e-310,  0x1p-1022,
                                  0.5,        -0.5,       2.0,      -2.0,
                                  0x1p-53,    -0x1p-53,   0x1p1023, -0x1p1023,
                                  DBL_MAX,    -DBL_MAX,   709.78,   709.79,
                                  710,        -745.13,    -745.14,  -746,
                                  -747,       746,        36.7,     -37.5,
                                  40,         -40,        -41,      22,
                                  0x1p53,     0x1p60,     0x1p61,   1e300,
                                  -1e300,     0x1p-27,    -0x1p-27, 0x1.fffffffffffffp-1,
                                  1e5,        0x1.5p1023, -1e5,     0x1.fffffffffffffp-2};
enum { SPECIALS = sizeof specials / sizeof *specials };

/* 64 random bits, from numbers of 31 bits. */
static uint64_t random_bits(void)
{
    return (uint64_t)next_random() << 33 ^ (uint64_t)next_random() << 2 ^ next_random() >> 5;
}

/* A number in [0, 1). */
static double random_part(void)
{
    return (double)(random_bits() >> 11) * 0x1p-53;
}

static double number(size_t f, int kind, int i)
{
    const uint64_t bits = random_bits();
    double x;
    if (kind == 0) {
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    if (kind == 1)
        return functions[f].from + (functions[f].to - functions[f].from) * random_part();
    return functions[f].near + (2 * random_part() - 1) * ldexp(1, -(i % 64));
}

/* Distance from the exact value, in units of the last place there. */
static double ulps(double got, long double want)
{
    const double rounded = (double)want;
    if (isnan(rounded))
        return isnan(got) ? 0 : INFINITY;
    if (isinf(rounded) || rounded == 0)
        return got == rounded && !signbit(got) == !signbit(rounded) ? 0 : INFINITY;
    if (!isfinite(got) || !signbit(got) != !signbit(rounded))
        return INFINITY;
    const int exponent = ilogbl(want) < -1022 ? -1022 : ilogbl(want);
    return (double)(fabsl((long double)got - want) / ldexpl(1, exponent - 52));
}

/* d = op(x) over n numbers, computed by the backend. */
static void apply(fx_op op, const double *x, double *d, int64_t n)
{
    fx_tensor t = {.dtype = FX_DTYPE_F64, .ndim = 1, .shape = {n}, .stride = {1}};
    fx_instr ins = {
        .op = (uint8_t)op, .dtype = FX_DTYPE_F64, .from = FX_DTYPE_F64, .nsrc = 1, .src = {0}};
    fx_step step = {.op = (uint8_t)op,
                    .cls = FX_CLASS_ELEMENTWISE,
                    .nin = 1,
                    .out = t,
                    .in = &t,
                    .as.elementwise.program = {&ins, 1}};
    fx_run run;
    assert_int_equal(run_once(&step, (const void *[]){x}, d, &run), FX_OK);
}

typedef struct worst {
    double error, x;
} worst;

static void check(size_t f, const double *x, int64_t n, worst *w)
{
    double y[CHUNK];
    apply(functions[f].op, x, y, n);
    for (int64_t i = 0; i < n; i++) {
        const double e = ulps(y[i], functions[f].exact((long double)x[i]));
        if (!(e <= w->error))
            *w = (worst){e, x[i]};
    }
}

static void within_two_ulp(void **state)
{
    (void)state;
    for (size_t f = 0; f < FUNCTIONS; f++) {
        double x[CHUNK];
        worst w = {0, 0};
        for (int k = 0; k < CHUNKS; k++) {
            for (int i = 0; i < CHUNK; i++)
                x[i] = number(f, k % 3, i);
            check(f, x, CHUNK, &w);
        }
        for (int k = 0; functions[f].around[k] != 0; k++) {
            x[0] = functions[f].around[k] * (1 - CHUNK * 0x1p-54);
            for (int i = 1; i < CHUNK; i++)
                x[i] = nextafter(x[i - 1], x[0] < 0 ? -INFINITY : INFINITY);
            check(f, x, CHUNK, &w);
        }
        check(f, specials, SPECIALS, &w);
        print_message("%s: at most %.3f ulp (at %a)\n", functions[f].name, w.error, w.x);
        assert_true(w.error <= 2);
    }
}

/* Every position in a tile and in memory, and in place. */
static void position_does_not_matter(void **state)
{
    (void)state;
    enum { N = 100 };
    double x[N], want[N], got[N + 1];
    for (size_t f = 0; f < FUNCTIONS; f++) {
        for (int i = 0; i < N; i++)
            x[i] = i < SPECIALS ? specials[i] : number(f, i % 3, i);
        apply(functions[f].op, x, want, N);
        for (int from = 0; from < 10; from++)
            for (int n = 1; n <= 80; n++) {
                got[n] = 12345;
                memcpy(got, x + from, (size_t)n * sizeof *got);
                apply(functions[f].op, got, got, n);
                assert_memory_equal(got, want + from, (size_t)n * sizeof *got);
                assert_true(got[n] == 12345);
            }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(within_two_ulp),
    cmocka_unit_test(position_does_not_matter),
};
RUN_ON_EVERY_ISA(tests)
