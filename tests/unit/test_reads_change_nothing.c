/* test_reads_change_nothing.c: which arrays can be combined does not depend on earlier reads.
 *
 * Random programs compute with arrays of literals, generators, data of the host and data of a
 * device (away.h). Each is run twice from the same seed, the second time with reads at random
 * places. Every operation must have the same outcome both times, value or error text: literals and
 * generated values meet arrays of any device, data of the host does not. Values are
 * compared as doubles, because a read changes what is fused. FX_PROGRAMS=n runs n programs
 * (default: 400).
 */
#include "semantics_check.h"

#include "away.h"

#include <stdlib.h>

enum { OPS = 24, POOL = OPS + 8, SIDE = 4 };

static fx_device *device;
static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state += 0x9E3779B97F4A7C15ull; /* splitmix64 */
    uint64_t z = random_state;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

static int below(int n)
{
    return (int)(next_random() % (uint64_t)n);
}

/* ---- operations: SIDE×SIDE Float32 in and out ------------------------------------------------ */

static fx_status halve(const fx_custom_op *op, int n, const fx_custom_operand *in,
                       const fx_custom_operand *out)
{
    (void)op, (void)n;
    for (int64_t i = 0; i < SIDE * SIDE; i++)
        ((float *)out->data)[i] = ((const float *)in[0].data)[i] / 2;
    return FX_OK;
}
static const fx_custom_op halving = {.fxi_size = sizeof halving, .name = "halve", .forward = halve};

static fx_array *image(fx_array *x)
{
    return fx_reshape(x, SIDE, SIDE, 1, 1);
}
static fx_array *square_of(fx_array *x)
{
    return fx_reshape(x, SIDE, SIDE);
}
static fx_array *rows(void)
{
    return fx_range_dtype(FX_DTYPE_I64, 0, 1, SIDE);
}
static fx_array *index_of(fx_array *x)
{
    return fx_cast(fx_lt(fx_reshape(fx_slice(x, 1, 0, 1), SIDE), 0.5), FX_DTYPE_I64);
}
static fx_array *gradient_at(fx_array *a, fx_array *b)
{
    return gradient1(fx_sum(fx_mul(fx_sin(a), b)), a);
}

typedef fx_array *(*operation)(fx_array *a, fx_array *b);
#define OP(name, value)                                                                            \
    static fx_array *op_##name(fx_array *a, fx_array *b)                                           \
    {                                                                                              \
        (void)a, (void)b;                                                                          \
        return value;                                                                              \
    }
#define OPERATIONS(X)                                                                              \
    X(add, fx_add(a, b))                                                                           \
    X(sub, fx_sub(a, b))                                                                           \
    X(mul, fx_mul(a, b))                                                                           \
    X(max, fx_max(a, b))                                                                           \
    X(select, fx_where(fx_lt(a, b), a, b))                                                         \
    X(number, fx_add(fx_mul(a, 0.5), 1))                                                           \
    X(weak, fx_mul(a, fx_scalar(0.25)))                                                            \
    X(unary, fx_tanh(fx_neg(a)))                                                                   \
    X(power, fx_pow(a, 2))                                                                         \
    X(cast, fx_cast(fx_cast(a, FX_DTYPE_F64), FX_DTYPE_F32))                                       \
    X(reshape, square_of(fx_reshape(a, SIDE *SIDE)))                                               \
    X(permute, fx_transpose(a))                                                                    \
    X(expand, fx_expand(fx_slice(a, 1, 0, 1), SIDE, SIDE))                                         \
    X(slice, fx_pad(fx_slice(a, 0, 1, 3), 0, 1, 1, 0.5))                                           \
    X(concat, fx_slice(fx_concat(0, a, b), 0, 2, 2 + SIDE))                                        \
    X(stop, fx_stop_gradient(a))                                                                   \
    X(reduce, fx_expand(fx_mean(a, .dims = FX_AXES(1)), SIDE, SIDE))                               \
    X(cumsum, fx_cumsum(a, 0))                                                                     \
    X(gather, fx_gather(a, rows(), 1))                                                             \
    X(gather_index, fx_gather(a, index_of(b), 1))                                                  \
    X(scatter, fx_scatter(FX_REDUCE_SUM, a, rows(), 1, SIDE))                                      \
    X(matmul, fx_mul(fx_matmul(a, b), 0.25))                                                       \
    X(conv, square_of(fx_convolve(image(a), image(b), .pad = FX_DIMS(1, 2, 1, 2))))                \
    X(pool,                                                                                        \
      square_of(fx_pool_max(image(a), FX_DIMS(3, 3), .pad = FX_DIMS(1), .stride = FX_DIMS(1))))    \
    X(custom, fx_custom(&halving, 1, &a, FX_DTYPE_F32, FX_DIMS(SIDE, SIDE)))                       \
    X(softmax, fx_softmax(a))                                                                      \
    X(gradient, gradient_at(a, b))                                                                 \
    X(zeros_like, fx_add(fx_zeros_like(a), b))                                                     \
    X(random, fx_mul(fx_rand(SIDE, SIDE), a))                                                      \
    X(to_device, fx_to(device, a))                                                                 \
    X(to_host, fx_to(fx_cpu_device(), a))
/* clang-format off */
OPERATIONS(OP)
#define ENTRY(name, value) {#name, op_##name},
static const struct { const char *name; operation f; } operations[] = {OPERATIONS(ENTRY)};
/* clang-format on */
enum { KINDS = sizeof operations / sizeof operations[0] };

/* ---- programs -------------------------------------------------------------------------------- */

typedef struct outcome {
    int kind;
    fx_status status;
    char message[sizeof((fx_error){0}.message)];
    double values[SIDE * SIDE];
} outcome;

static int64_t done[KINDS], refused[KINDS];

static void start(fx_array **pool)
{
    float data[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++)
        data[i] = (float)(i % 5) / 4;
    pool[0] = fx_rand(SIDE, SIDE);
    pool[1] = fx_full(0.75, SIDE, SIDE);
    pool[2] = fx_reshape(fx_range(0, 0.0625, SIDE * SIDE), SIDE, SIDE);
    pool[3] = fx_from(FX_DTYPE_F32, data, SIDE, SIDE);
    pool[4] = fx_to(device, fx_from(FX_DTYPE_F32, data, SIDE, SIDE));
    pool[5] = fx_sub(fx_randn(SIDE, SIDE), 0.5);
    pool[6] = fx_add(pool[3], 1);
    pool[7] = fx_to(device, pool[2]);
}

/* Draws from a state of its own, so that the operations are the same with and without reads. */
static void read_some(uint64_t *reads, fx_array *const *pool, int n)
{
    char text[2000];
    const uint64_t state = random_state;
    random_state = *reads;
    while (below(3) == 0) {
        fx_array *x = pool[below(n)];
        const int how = below(3);
        if (how == 0)
            fx_show_text(x, text, sizeof text);
        else if (how == 1)
            fx_eval(x);
        else
            fx_data(x);
    }
    *reads = random_state;
    random_state = state;
}

static void read_values(uint64_t program, fx_array *x, double values[SIDE * SIDE])
{
    if (fx_read_as(x, FX_DTYPE_F64, values, SIDE * SIDE) != FX_OK)
        fail_msg("program %d cannot be read: %s", (int)program, fx_error_take().message);
}

static void run_program(uint64_t seed, bool reading, outcome out[OPS])
{
    FX_SCOPE;
    fx_array *pool[POOL], *results[OPS];
    uint64_t reads = seed ^ 0x5555;
    int n = POOL - OPS;
    random_state = seed;
    fx_seed(seed);
    start(pool);
    for (int i = 0; i < OPS; i++) {
        const int kind = below(KINDS);
        fx_array *a = pool[below(n)], *b = pool[below(n)];
        if (reading)
            read_some(&reads, pool, n);
        results[i] = operations[kind].f(a, b);
        const fx_error e = fx_error_take();
        out[i].kind = kind;
        out[i].status = fx_array_status(results[i]);
        memcpy(out[i].message, e.message, sizeof e.message);
        if (out[i].status == FX_OK)
            pool[n++] = results[i];
    }
    for (int i = OPS - 1; i >= 0; i--)
        if (out[i].status == FX_OK)
            read_values(seed, results[i], out[i].values);
}

static void compare(uint64_t seed, const outcome *plain, const outcome *read)
{
    for (int i = 0; i < OPS; i++) {
        const char *name = operations[plain[i].kind].name;
        if (plain[i].status != read[i].status || strcmp(plain[i].message, read[i].message) != 0)
            fail_msg("program %d, operation %d (%s): \"%s\" (%s), after reads \"%s\" (%s)",
                     (int)seed, i, name, plain[i].message, fx_status_name(plain[i].status),
                     read[i].message, fx_status_name(read[i].status));
        *(plain[i].status == FX_OK ? &done[plain[i].kind] : &refused[plain[i].kind]) += 1;
        for (int k = 0; plain[i].status == FX_OK && k < SIDE * SIDE; k++)
            if (fabs(plain[i].values[k] - read[i].values[k]) >
                1e-4 * (1 + fabs(plain[i].values[k])))
                fail_msg("program %d, operation %d (%s), element %d: %g, after reads %g", (int)seed,
                         i, name, k, plain[i].values[k], read[i].values[k]);
    }
}

static void random_programs(void **state)
{
    (void)state;
    const char *text = getenv("FX_PROGRAMS");
    const int programs = text ? atoi(text) : 400;
    int64_t least = INT64_MAX, errors = 0;
    for (int seed = 1; seed <= programs; seed++) {
        outcome plain[OPS] = {0}, read[OPS] = {0};
        run_program((uint64_t)seed, false, plain);
        run_program((uint64_t)seed, true, read);
        compare((uint64_t)seed, plain, read);
    }
    for (int i = 0; i < KINDS; i++) {
        least = done[i] < least ? done[i] : least;
        errors += refused[i];
    }
    print_message("%d programs; each operation worked at least %d times; %d refused\n", programs,
                  (int)least, (int)errors);
    assert_true(least >= programs / 10);
    assert_true(errors >= programs);
}

/* ---- single cases ---------------------------------------------------------------------------- */

/* For every kind of source: whether it can be combined with an array of the device, before and
 * after a read. */
static void sources(void **state)
{
    (void)state;
    const float four[] = {1, 2, 3, 4};
    for (int read = 0; read < 2; read++) {
        FX_SCOPE;
        fx_array *there = fx_to(device, fx_vector(1, 2, 3, 4));
        fx_array *const follow[] = {fx_rand(4),          fx_ones(4),
                                    fx_scalar(2),        fx_range(0, 1, 4),
                                    fx_exp(fx_randn(4)), fx_stop_gradient(fx_ones(4))};
        fx_array *const stay[] = {fx_vector(1, 2, 3, 4), fx_from(FX_DTYPE_F32, four, 4),
                                  fx_add(fx_rand(4), fx_vector(1, 2, 3, 4)),
                                  fx_borrow(FX_DTYPE_F32, four, NULL, NULL, 4)};
        for (size_t i = 0; i < sizeof follow / sizeof follow[0]; i++) {
            if (read)
                fx_eval(follow[i]);
            fx_array *y = fx_add(follow[i], there);
            assert_int_equal(fx_eval(y), FX_OK);
            assert_ptr_equal(fx_array_device(y), device);
        }
        for (size_t i = 0; i < sizeof stay / sizeof stay[0]; i++) {
            if (read)
                fx_eval(stay[i]);
            assert_true(fx_is_error(fx_add(stay[i], there)));
            expect_error(FX_STATUS_DEVICE, "arrays on two devices");
        }
    }
}

/* A model that was neither trained nor moved is copied to the device of the data; a trained one is
 * not. */
static void fresh_models_follow(void **state)
{
    (void)state;
    for (int read = 0; read < 2; read++) {
        FX_SCOPE;
        fx_dense_layer *m = fx_dense(4, 2);
        fx_array *there = fx_to(device, fx_vector(1, 2, 3, 4)), *here = fx_vector(1, 2, 3, 4);
        if (read)
            fx_eval(m);
        fx_array *y = fx_call(m, there);
        assert_int_equal(fx_eval(y), FX_OK);
        assert_ptr_equal(fx_array_device(y), device);
        void *opt = fx_setup(fx_descent(), m);
        FX_STEP;
        assert_int_equal(fx_update(opt, m, fx_gradient(fx_sum(fx_call(m, here)), m)), FX_OK);
        assert_true(fx_is_error(fx_call(m, there)));
        expect_error(FX_STATUS_DEVICE, "arrays on two devices");
    }
}

int main(void)
{
    device = away_register("CUDA", 1);
    const struct CMUnitTest tests[] = {
        TEST(sources),
        TEST(fresh_models_follow),
        TEST(random_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
