/* test_reduce_program.c: reductions whose terms a program computes, and row steps of 16-bit floats,
 * against the same operations in single steps and on ref: sums along the first, the middle and the
 * last axis and to a single number, for any number of threads.
 */
#include "cpu_check.h"
#include "cpu_parallel.h"
#include "evaluate.h"
#include "planning.h"

#include <cflux.h>

enum { MOST_BYTES = 1 << 19 };

typedef struct bits {
    size_t used;
    char data[MOST_BYTES];
} bits;

static void keep_bits(fx_array *x, bits *out)
{
    out->used = (size_t)fx_length(x) * fx_dtype_size(fx_eltype(x));
    assert_true(out->used <= MOST_BYTES);
    assert_int_equal(fx_read_into(x, out->data, out->used), FX_OK);
}

/* Values that every type represents and whose squares and sums are exact in Float32. */
static fx_array *data_of(fx_dtype dtype, int nd, const int64_t *shape, fx_device *device)
{
    fx_seed(5);
    fx_array *x = fx_floor(fx_mul(fxi_rand(FX_DTYPE_F32, nd, shape), 4));
    x = fx_array_to(device, fx_cast(x, dtype));
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

typedef struct sum_case {
    const char *name;
    int nd;
    int64_t shape[3];
    unsigned axes; /* a mask */
} sum_case;

/* Few and many results, with terms that are neighbours, strided, or both; tiles that end inside a
 * row; results that end inside a tile. */
static const sum_case sums[] = {
    {"scalar", 1, {600001}, 1},
    {"first axis", 2, {1001, 301}, 1},
    {"first axis, few results", 2, {200003, 3}, 1},
    {"last axis, many results", 2, {50021, 9}, 2},
    {"last axis, few results", 2, {37, 9001}, 2},
    {"middle axis kept", 3, {61, 7, 991}, 5},
    {"middle axis kept, long", 3, {3, 20011, 11}, 5},
};

static fx_array *sum_of_squares(fx_array *x, fx_axes dims)
{
    return fx_sum(fx_square(x), .dims = dims);
}

static void threads_give_the_same_bits(void **state)
{
    (void)state;
    static const fx_dtype types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_I32, FX_DTYPE_BF16};
    static bits one, many;
    static char text[4096];
    for (size_t k = 0; k < sizeof sums / sizeof *sums; k++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            FX_SCOPE;
            const sum_case *c = &sums[k];
            fx_array *x = data_of(types[t], c->nd, c->shape, fx_cpu_device());
            fx_plan_text(sum_of_squares(x, FXI_AXES(c->axes)), text, sizeof text);
            assert_non_null(strstr(text, "  1  reduce sum of "));
            fx_set_num_threads(1);
            keep_bits(sum_of_squares(x, FXI_AXES(c->axes)), &one);
            for (int threads = 2; threads <= 5; threads++) {
                fx_set_num_threads(threads);
                keep_bits(sum_of_squares(x, FXI_AXES(c->axes)), &many);
                assert_int_equal(one.used, many.used);
                if (memcmp(one.data, many.data, one.used) != 0)
                    fail_msg("%s, %s: %d threads", c->name, fx_dtype_name(types[t]), threads);
            }
            /* Sums of integers below 2²⁴ are exact in any order. */
            fx_set_num_threads(1);
            fxi_eager_set(true);
            keep_bits(sum_of_squares(x, FXI_AXES(c->axes)), &many);
            fxi_eager_set(false);
            if (memcmp(one.data, many.data, one.used) != 0)
                fail_msg("%s, %s: other than in single steps", c->name, fx_dtype_name(types[t]));
        }
    fx_set_num_threads(0);
}

/* Rounding errors show which terms were added first: with pieces they differ from one long sum. */
static void terms_are_divided(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(1);
    fx_array *x = fx_cast(fx_rand(600001), FX_DTYPE_F64);
    assert_int_equal(fx_eval(x), FX_OK);
    x = fx_div(x, 3);
    assert_int_equal(fx_eval(x), FX_OK);
    const double pieces = fx_item(fx_sum(fx_square(x)));
    fxi_cpu_parts_from(INT64_MAX);
    const double serial = fx_item(fx_sum(fx_square(x)));
    fxi_cpu_parts_from(FXI_PARTS_FROM);
    assert_true(pieces != serial);
    assert_true(fabs(pieces - serial) < 1e-9 * serial);
}

/* ---- 16-bit floats --------------------------------------------------------------------------- */

typedef fx_array *(*pattern)(fx_array *x, fx_array *y, fx_axes dims);

static fx_array *cross_entropy(fx_array *x, fx_array *y, fx_axes dims)
{
    return fx_sum(fx_mul(y, fx_logsoftmax(x, .dims = dims)), .dims = dims);
}
static fx_array *share_of_sum(fx_array *x, fx_array *y, fx_axes dims)
{
    fx_array *e = fx_exp(fx_sub(x, y));
    return fx_div(e, fx_sum(e, .dims = dims));
}
static fx_array *distance_to_extremes(fx_array *x, fx_array *y, fx_axes dims)
{
    fx_array *d = fx_mul(x, y);
    return fx_sub(fx_sub(d, fx_maximum(d, .dims = dims)), fx_minimum(x, .dims = dims));
}
/* A 16-bit reduction whose result a later pass of the row reads, and one after that. */
static fx_array *two_sums(fx_array *x, fx_array *y, fx_axes dims)
{
    fx_array *s = fx_sum(fx_mul(x, 0.01), .dims = dims), *d = fx_sub(y, s);
    return fx_add(d, fx_sum(fx_mul(fx_mul(d, d), 0.01), .dims = dims));
}
static fx_array *normalised(fx_array *x, fx_array *y, fx_axes dims)
{
    return fx_mul(y, fx_normalise(x, dims, 1e-3));
}
static fx_array *sum_of_products(fx_array *x, fx_array *y, fx_axes dims)
{
    return fx_sum(fx_tanh(fx_mul(x, y)), .dims = dims);
}

static const struct {
    const char *name;
    pattern f;
} patterns[] = {{"cross entropy", cross_entropy},
                {"share of the sum", share_of_sum},
                {"distance to extremes", distance_to_extremes},
                {"two sums", two_sums},
                {"normalised", normalised},
                {"sum of products", sum_of_products}};

/* Short rows share a tile, long rows have several. */
static const int64_t shapes[][2] = {{5, 70}, {100, 12}, {1500, 5}};

/* The pattern with its gradient, one after the other. */
static void run_pattern(size_t k, fx_dtype dtype, const int64_t *shape, fx_axes dims,
                        fx_device *device, bits out[2])
{
    FX_SCOPE;
    fx_seed(2);
    fx_array *x = fxi_randn(FX_DTYPE_F32, 2, shape), *y = fxi_rand(FX_DTYPE_F32, 2, shape), *g;
    assert_int_equal(fx_eval(fx_tuple(x, y)), FX_OK);
    x = fx_array_to(device, fx_cast(x, dtype));
    y = fx_array_to(device, fx_cast(y, dtype));
    fx_array *z = patterns[k].f(x, y, dims);
    assert_int_equal(fx_gradient_of(fx_sum(fx_mul(z, 0.25)), &x, 1, &g), FX_OK);
    assert_int_equal(fx_eval(fx_tuple(z, g)), FX_OK);
    keep_bits(z, &out[0]);
    keep_bits(g, &out[1]);
}

/* The root of the mean squared difference, of the mean square. */
static double difference(const bits *a, const bits *b, fx_dtype dtype)
{
    double error = 0, scale = 0;
    assert_int_equal(a->used, b->used);
    for (size_t i = 0; i < a->used; i += 2) {
        const double p = load_element((int)dtype, a->data + i),
                     q = load_element((int)dtype, b->data + i);
        error += (p - q) * (p - q);
        scale += q * q;
    }
    return sqrt(error / (scale + 1e-30));
}

static void halves_round_after_each_operation(void **state)
{
    (void)state;
    static const fx_dtype types[] = {FX_DTYPE_F16, FX_DTYPE_BF16};
    static bits fused[2], single[2], ref[2];
    for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int t = 0; t < 4; t++) {
                const fx_dtype dtype = types[t % 2];
                const fx_axes dims = t < 2 ? FX_AXES(0) : FX_AXES(1);
                run_pattern(k, dtype, shapes[s], dims, fx_cpu_device(), fused);
                fxi_eager_set(true);
                run_pattern(k, dtype, shapes[s], dims, fx_cpu_device(), single);
                fxi_eager_set(false);
                run_pattern(k, dtype, shapes[s], dims, fx_device_get("ref", 0), ref);
                for (int i = 0; i < 2; i++) {
                    if (memcmp(fused[i].data, single[i].data, fused[i].used) != 0)
                        fail_msg("%s, %s, %d rows: other bits than in single steps",
                                 patterns[k].name, fx_dtype_name(dtype), (int)shapes[s][1]);
                    /* ref rounds its functions once; here a function of Float32 is rounded to 16
                     * bits, which may give the other neighbour. */
                    const double d = difference(&fused[i], &ref[i], dtype);
                    if (!(d < (dtype == FX_DTYPE_F16 ? 2e-3 : 1.6e-2)))
                        fail_msg("%s, %s, %d rows: %g from ref", patterns[k].name,
                                 fx_dtype_name(dtype), (int)shapes[s][1], d);
                }
            }
}

/* A sum and squared deviations share one pass over the same elements, and only over the same: here
 * exp(a) takes the memory of a, whose deviations were added just before. */
static void sums_of_other_elements_are_apart(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_rand(300, 40), *y[2];
    assert_int_equal(fx_eval(x), FX_OK);
    for (int eager = 0; eager < 2; eager++) {
        fxi_eager_set(eager);
        fx_array *a = fx_mul(x, 2), *v = fx_var(a, .dims = FX_AXES(0)),
                 *m = fx_mean(fx_exp(a), .dims = FX_AXES(0));
        y[eager] = fx_mul(v, fx_sub(x, m));
        assert_int_equal(fx_eval(y[eager]), FX_OK);
    }
    fxi_eager_set(false);
    assert_true(fx_item(fx_maximum(fx_abs(fx_sub(y[0], y[1])))) < 1e-4);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(threads_give_the_same_bits),
                                          cmocka_unit_test(terms_are_divided),
                                          cmocka_unit_test(halves_round_after_each_operation),
                                          cmocka_unit_test(sums_of_other_elements_are_apart)};

RUN_ON_EVERY_ISA(tests)
