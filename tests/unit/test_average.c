/* test_average.c: fx_average, the mean of gradients of models on several devices: values against
 * sums by hand, bits on all devices, buckets, ties, 16-bit numbers, missing gradients, errors. With
 * an argument the devices are those of the plugin of that name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <string.h>

#include "away.h"
#include "gpu_device.h"
#include "same_bits.h"

enum { DEVICES = 3 };
static fx_device *d[DEVICES];
static const char *plugin;

static int setup(void **state)
{
    (void)state;
    if (!plugin)
        away_register("CUDA", DEVICES);
    else if (fx_use(plugin) != FX_OK)
        return -1;
    for (int i = 0; i < DEVICES; i++)
        d[i] = fx_device_get("CUDA", i);
    return 0;
}

static void refused(fx_status status, const char *text)
{
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, status);
    if (!strstr(e.message, text))
        fail_msg("%s\nlacks: %s", e.message, text);
}

/* Copies between devices so far that did not use host memory; reads by the host. */
static int64_t copies(void)
{
    if (!plugin)
        return away.copies;
    const fxi_gpu_counters *counts = fx_backend_proc("CUDA", "counters");
    return (int64_t)counts->direct;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* (x + y + z) / 3 in the element type, added in this order. */
static fx_array *by_hand(fx_array *const *x)
{
    const fx_dtype type = fx_eltype(x[0]);
    const fx_dtype in = fx_dtype_size(type) < 4 ? FX_DTYPE_F32 : type;
    fx_array *sum = fx_add(fx_add(fx_cast(x[0], in), fx_cast(x[1], in)), fx_cast(x[2], in));
    return fx_cast(fx_div(sum, 3), type);
}

static void means_have_the_same_bits_everywhere(void **state)
{
    (void)state;
    static const fx_dtype types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16, FX_DTYPE_BF16};
    for (int t = 0; t < 4; t++) {
        FX_SCOPE;
        fx_array *x[DEVICES];
        void *g[DEVICES];
        for (int k = 0; k < DEVICES; k++) {
            x[k] = fx_randn_dtype(types[t], 7, 5);
            g[k] = fx_to(d[k], x[k]);
        }
        const int64_t before = copies(), reads = away.reads;
        assert_int_equal(fx_average(DEVICES, g), FX_OK);
        assert_int_equal(copies() - before, 2 * (DEVICES - 1));
        assert_int_equal(away.reads, reads);
        for (int k = 0; k < DEVICES; k++) {
            assert_ptr_equal(fx_array_device(g[k]), d[k]);
            assert_int_equal(fx_eltype(g[k]), types[t]);
            same_bits(by_hand(x), g[k]);
        }
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Large arrays, so that each device adds up some buckets; sizes that end inside a bucket. */
static void large_gradients_are_divided_among_the_devices(void **state)
{
    (void)state;
    static const int64_t sizes[] = {300, 40000, 1, 90000, 0, 70000, 5};
    enum { N = sizeof sizes / sizeof sizes[0] };
    FX_SCOPE;
    void *g[DEVICES], *parts[DEVICES][N];
    for (int k = 0; k < DEVICES; k++) {
        for (int i = 0; i < N; i++)
            parts[k][i] = fx_randn(sizes[i]);
        g[k] = fx_to(d[k], fxi_tuple(N, parts[k]));
    }
    assert_int_equal(fx_average(DEVICES, g), FX_OK);
    for (int k = 0; k < DEVICES; k++)
        for (int i = 0; i < N; i++) {
            fx_array *x[] = {parts[0][i], parts[1][i], parts[2][i]};
            same_bits(by_hand(x), fx_child(g[k], i));
        }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- training -------------------------------------------------------------------------------- */

typedef struct two_layers {
    fx_object base;
    fx_dense_layer *a, *b, *again; /* `again` is the same layer as `a` */
    fx_array *unused;
} two_layers;
FX_FUNCTOR(two_layers, a, b, again, unused);

static two_layers *model_new(void)
{
    fx_seed(3);
    fx_dense_layer *a = fx_dense(4, 4, FX_TANH);
    return fx_new(two_layers, .a = a, .b = fx_dense(4, 2), .again = a, .unused = fx_ones(3));
}

static fx_array *loss_of(two_layers *m, fx_array *x)
{
    fx_array *h = fx_call(m->again, fx_call(m->a, x));
    return fx_mean(fx_square(fx_call(m->b, h)));
}

/* Batches of a third on three devices train like the whole batch on one. */
static void three_devices_train_like_one(void **state)
{
    (void)state;
    FX_SCOPE;
    two_layers *one = fx_to(d[0], model_new());
    void *models[DEVICES], *states[DEVICES], *alone = fx_setup(fx_adam(.eta = 0.01), one);
    fx_array *x = fx_randn(4, 30), *whole = fx_to(d[0], x), *parts[DEVICES];
    for (int k = 0; k < DEVICES; k++) {
        models[k] = fx_to(d[k], model_new());
        states[k] = fx_setup(fx_adam(.eta = 0.01), models[k]);
        parts[k] = fx_to(d[k], fx_slice(x, 1, 10 * k, 10 * k + 10));
    }
    for (int step = 0; step < 20; step++) {
        FX_STEP;
        void *both[DEVICES];
        fx_array *expected = fx_want(loss_of(one, whole));
        assert_int_equal(fx_update(alone, one, fx_gradient(expected, one)), FX_OK);
        for (int k = 0; k < DEVICES; k++) {
            fx_array *loss = loss_of(models[k], parts[k]);
            both[k] = fx_tuple(loss, fx_gradient(loss, models[k]));
        }
        assert_int_equal(fx_average(DEVICES, both), FX_OK);
        for (int k = 0; k < DEVICES; k++)
            assert_int_equal(fx_update(states[k], models[k], fx_child(both[k], 1)), FX_OK);
        for (int k = 0; k < DEVICES; k++)
            assert_true(fabs(fx_item(fx_child(both[k], 0)) - fx_item(expected)) < 1e-6);
    }
    for (int k = 1; k < DEVICES; k++) {
        same_bits(((two_layers *)models[0])->a->weight, ((two_layers *)models[k])->a->weight);
        same_bits(((two_layers *)models[0])->b->bias, ((two_layers *)models[k])->b->bias);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* The loss that fx_want asks for comes from the same plan: reading it runs nothing. */
static void the_forward_pass_runs_once(void **state)
{
    (void)state;
    FX_SCOPE;
    void *m = fx_to(d[0], fx_chain(fx_dense(3, 5), fx_batchnorm(5), fx_dense(5, 1)));
    void *s = fx_setup(fx_descent(0.1), m), *g[1];
    fx_array *x = fx_to(d[0], fx_randn(3, 8));
    FX_STEP;
    fx_array *loss = fx_want(fx_mean(fx_square(fx_call(m, x))));
    g[0] = fx_gradient(loss, m);
    assert_int_equal(fx_average(1, g), FX_OK);
    const uint64_t steps = fx_stats().steps_run;
    fx_item(loss);
    assert_int_equal(fx_stats().steps_run, steps);
    assert_int_equal(fx_update(s, m, g[0]), FX_OK);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The copies are freed as soon as the call returns; the means with the scope. */
static void copies_are_freed(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { N = 1 << 18 };
    void *g[DEVICES];
    int64_t before[DEVICES];
    for (int k = 0; k < DEVICES; k++) {
        g[k] = fx_to(d[k], fx_randn(N));
        fx_eval(g[k]);
        before[k] = fx_memory_status(d[k]).live;
    }
    {
        FX_SCOPE;
        void *means[DEVICES];
        memcpy(means, g, sizeof g);
        assert_int_equal(fx_average(DEVICES, means), FX_OK);
        for (int k = 0; k < DEVICES; k++)
            assert_true(fx_memory_status(d[k]).live <= before[k] + 4 * N + 4096);
    }
    for (int k = 0; k < DEVICES; k++)
        assert_int_equal(fx_memory_status(d[k]).live, before[k]);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void differences_are_named(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *one = fx_to(d[0], fx_dense(2, 3)), *other = fx_to(d[1], fx_dense(3, 3)),
                   *bare = fx_to(d[1], fx_dense(2, 3, .bias = false));
    void *g[] = {one, other}, *h[] = {one, bare}, *i[] = {one, fx_ones(2)},
         *j[] = {fx_tuple(fx_ones(1)), fx_tuple(fx_ones(1), fx_ones(1))};
    assert_int_equal(fx_average(2, g), FX_STATUS_SHAPE);
    refused(FX_STATUS_SHAPE, "average: \"weight\" is 3×2 CUDA:0 Matrix{Float32} in gradient 1, "
                             "but 3×3 CUDA:1 Matrix{Float32} in gradient 2");
    assert_ptr_equal(g[0], one);
    assert_int_equal(fx_average(2, h), FX_STATUS_ARGUMENT);
    refused(FX_STATUS_ARGUMENT, "average: \"bias\" is 3-element CUDA:0 Vector{Float32} in "
                                "gradient 1, but ");
    assert_int_equal(fx_average(2, i), FX_STATUS_ARGUMENT);
    refused(FX_STATUS_ARGUMENT, "average: the gradient is Dense(2 => 3) in gradient 1, but "
                                "2-element Vector{Float32} in gradient 2");
    assert_int_equal(fx_average(2, j), FX_STATUS_ARGUMENT);
    refused(FX_STATUS_ARGUMENT, "average: the gradient is ");
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_to(d[0], fx_ones(2)), *y = fx_to(d[1], fx_ones(2)),
             *z = fx_to(d[1], fx_ones(2));
    void *none[] = {x, NULL}, *whole[] = {fx_onehot(fx_cast(x, FX_DTYPE_I64), 3), NULL},
         *tied[] = {fx_tuple(x, x), fx_tuple(y, z)};
    whole[1] = whole[0] = fx_cast(x, FX_DTYPE_I64);
    assert_int_equal(fx_average(0, none), FX_STATUS_ARGUMENT);
    refused(FX_STATUS_ARGUMENT, "average: takes 1 to 8 gradients, got 0");
    assert_int_equal(fx_average(9, none), FX_STATUS_ARGUMENT);
    refused(FX_STATUS_ARGUMENT, "average: takes 1 to 8 gradients, got 9");
    assert_int_equal(fx_average(2, NULL), FX_STATUS_ARGUMENT);
    refused(FX_STATUS_ARGUMENT, "average: the list of 2 gradients is NULL");
    assert_int_equal(fx_average(2, none), FX_STATUS_ARGUMENT);
    refused(FX_STATUS_ARGUMENT, "average: gradient 2 is NULL");
    assert_int_equal(fx_average(2, whole), FX_STATUS_DTYPE);
    refused(FX_STATUS_DTYPE,
            "2-element CUDA:0 Vector{Int64}: the elements are not floating-point numbers");
    assert_int_equal(fx_average(2, tied), FX_STATUS_ARGUMENT);
    refused(FX_STATUS_ARGUMENT, "average: gradient 1 has the same array in several positions");
    fx_array *wrong = fx_add(fx_ones(2), fx_ones(3));
    void *failed[] = {x, wrong};
    assert_true(fx_average(2, failed) != FX_OK);
    assert_ptr_equal(failed[0], x);
    fx_error_take();
}

int main(int argc, char **argv)
{
    plugin = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_have_the_same_bits_everywhere),
        cmocka_unit_test(large_gradients_are_divided_among_the_devices),
        cmocka_unit_test(three_devices_train_like_one),
        cmocka_unit_test(the_forward_pass_runs_once),
        cmocka_unit_test(copies_are_freed),
        cmocka_unit_test(differences_are_named),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
