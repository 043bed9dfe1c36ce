/* Values that move between devices: as nodes of a graph, with gradients; whole programs on a device
 * whose memory the host cannot address; plans over several devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cflux.h>
#include <stdlib.h>
#include <string.h>

#include "away.h"
#include "same_bits.h"

static fx_device *d[3];

static int setup(void **state)
{
    (void)state;
    away_register("CUDA", 3);
    for (int i = 0; i < 3; i++)
        d[i] = fx_device_get("CUDA", i);
    return 0;
}

/* A literal is an operand like others, and reaches the device with the plan. */
static void programs_run_there(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_randn(40, 30), *w = fx_randn(20, 40);
    fx_array *here = fx_softmax(fx_add(fx_mul(0.5, fx_matmul(w, x)), 3));
    fx_array *there = fx_softmax(fx_add(fx_mul(0.5, fx_matmul(fx_to(d[0], w), fx_to(d[0], x))), 3));
    assert_ptr_equal(fx_array_device(there), d[0]);
    const int64_t runs = away.runs;
    same_bits(here, there);
    assert_true(away.runs > runs);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* loss = Σ (w2·to(d1, tanh(w1·x)))², w1 on d0, w2 on d1: a gradient is on the device of its
 * parameter.
 */
static fx_array *two_stages(fx_array *w1, fx_array *w2, fx_array *x)
{
    fx_array *h = fx_tanh(fx_matmul(w1, fx_to(fx_array_device(w1), x)));
    return fx_sum(fx_square(fx_matmul(w2, fx_to(fx_array_device(w2), h))));
}

static void gradients_flow_through_moves(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w1 = fx_randn(5, 4), *w2 = fx_randn(3, 5), *x = fx_randn(4, 7);
    fx_array *a[2] = {w1, w2}, *b[2] = {fx_to(d[0], w1), fx_to(d[1], w2)}, *ga[2], *gb[2];
    fx_array *here = two_stages(a[0], a[1], x), *there = two_stages(b[0], b[1], x);
    fx_gradient_of(here, a, 2, ga);
    fx_gradient_of(there, b, 2, gb);
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(fx_array_device(gb[i]), d[i]);
        same_bits(ga[i], gb[i]);
    }
    same_bits(here, there);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Σ (a·b)² on device k of arrays on other devices; their gradients are on the arrays' devices. */
static void gradients_reach_what_was_copied(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fx_dtype types[] = {FX_DTYPE_F32, FX_DTYPE_F16, FX_DTYPE_F64};
    for (int t = 0; t < 3; t++) {
        fx_array *data = fx_cast(fx_vector(1, -2, 3), types[t]),
                 *drawn = fx_randn_dtype(types[t], 3);
        fx_eval(data);
        fx_array *x[4] = {data, fx_scalar(1.5), drawn, fx_to(d[0], fx_mul(data, 1))}, *here[4],
                 *there[4];
        fx_array *p = fx_mul(fx_mul(x[0], x[1]), fx_mul(x[2], fx_cpu(x[3])));
        fx_array *q = fx_mul(fx_mul(fx_to(d[1], x[0]), fx_to(d[1], x[1])),
                             fx_mul(fx_to(d[1], x[2]), fx_to(d[1], x[3])));
        assert_int_equal(fx_gradient_of(fx_sum(fx_square(p)), x, 4, here), FX_OK);
        assert_int_equal(fx_gradient_of(fx_sum(fx_square(q)), x, 4, there), FX_OK);
        for (int i = 0; i < 4; i++) {
            assert_ptr_equal(fx_array_device(there[i]), i < 3 ? fx_cpu_device() : d[0]);
            assert_true(fx_item(fx_norm(fx_cast(here[i], FX_DTYPE_F32))) > 0);
            same_bits(here[i], there[i]);
        }
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Inside a training step gradients flow back through a copy of a model; outside, the copy is
 * independent. */
static void gradients_reach_a_model_that_was_copied(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = fx_dense(3, 2, FX_TANH);
    fx_array *x = fx_randn(3, 4), *there = fx_to(d[0], x);
    fx_dense_layer *a = fx_gradient(fx_sum(fx_call(m, x)), m), *b;
    {
        FX_STEP;
        b = fx_keep(fx_gradient(fx_sum(fx_call(fx_to(d[0], m), there)), m));
        fx_eval(b);
        same_bits(a->weight, b->weight);
        same_bits(a->bias, b->bias);
        assert_true(fx_item(fx_norm(b->weight)) > 0);
    }
    fx_dense_layer *copy = fx_to(d[0], m), *g = fx_gradient(fx_sum(fx_call(copy, there)), copy);
    same_bits(a->weight, g->weight);
    b = fx_gradient(fx_sum(fx_call(copy, there)), m);
    assert_true(fx_item(fx_norm(b->weight)) == 0);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* A copy of a model that is made outside a training step does not keep the original's memory. */
static void what_a_model_left_is_free(void **state)
{
    (void)state;
    FX_SCOPE;
    void *back;
    fx_reclaim();
    const int64_t live = fx_memory_status(d[2]).live;
    {
        FX_SCOPE;
        void *m = fx_to(d[2], fx_chain(fx_dense(30, 20), fx_dense(20, 10)));
        assert_true(fx_memory_status(d[2]).live > live);
        back = fx_keep(fx_cpu(m));
    }
    assert_int_equal(fx_memory_status(d[2]).live, live);
    assert_int_equal(fx_parameter_count(back), 30 * 20 + 20 + 20 * 10 + 10);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Updates replace values in place; what moves between the devices is computed from the old ones. */
static void a_model_over_two_devices_trains(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w1 = fx_randn(6, 4), *w2 = fx_randn(2, 6), *x = fx_randn(4, 9);
    void *here = fx_tuple(fx_mul(w1, 1), fx_mul(w2, 1));
    void *there = fx_tuple(fx_to(d[0], w1), fx_to(d[1], w2));
    fx_eval(here);
    void *opt[2] = {fx_setup(fx_adam(.eta = 0.01), here), fx_setup(fx_adam(.eta = 0.01), there)};
    void *models[2] = {here, there};
    for (int step = 0; step < 10; step++)
        for (int k = 0; k < 2; k++) {
            FX_STEP;
            fx_array *loss = two_stages(fx_child(models[k], 0), fx_child(models[k], 1), x);
            assert_int_equal(fx_update(opt[k], models[k], fx_gradient(loss, models[k])), FX_OK);
        }
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(fx_array_device(fx_child(there, i)), d[i]);
        same_bits(fx_child(here, i), fx_child(there, i));
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

static void many_moves_in_a_row(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_randn(8), *y = x, *z = x;
    for (int i = 0; i < 1000; i++) {
        y = fx_add(fx_to(d[i % 3], y), 1);
        z = fx_add(z, 1);
    }
    same_bits(y, z);
}

static fx_status doubled(const fx_custom_op *op, int n, const fx_custom_operand *in,
                         const fx_custom_operand *out)
{
    (void)op, (void)n;
    for (int64_t i = 0; i < in[0].sizes[0]; i++)
        ((float *)out->data)[i] = 2 * ((const float *)in[0].data)[i];
    return FX_OK;
}

static void custom_operations_run_on_the_host(void **state)
{
    (void)state;
    FX_SCOPE;
    const fx_custom_op op = {.fxi_size = sizeof op, .name = "doubled", .forward = doubled};
    fx_array *x = fx_to(d[2], fx_vector(1, 2, 3));
    fx_array *y = fx_custom(&op, 1, (fx_array *[]){fx_mul(x, 10)}, FX_DTYPE_F32, FX_DIMS(3));
    assert_ptr_equal(fx_array_device(y), d[2]);
    same_bits(fx_add(y, 1), fx_vector(21, 41, 61));
}

static void failures_are_told(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_to(d[0], fx_vector(1, 2, 3));
    away_run_fails = 1;
    assert_int_equal(fx_eval(fx_exp(x)), FX_STATUS_DEVICE);
    assert_non_null(strstr(fx_error_take().message, "CUDA:0 does not answer"));
    away_copy_fails = 1; /* the literal */
    assert_int_equal(fx_eval(fx_mul(x, 2)), FX_STATUS_DEVICE);
    assert_non_null(strstr(fx_error_take().message, "CUDA:0 does not answer"));
    away_copy_fails = 1;
    assert_int_equal(fx_eval(fx_to(d[1], fx_exp(x))), FX_STATUS_DEVICE);
    fx_error_take();
    away_alloc_fails = 1;
    fx_eval(fx_to(d[1], fx_exp(x)));
    fx_error_take();
    same_bits(fx_mul(x, 2), fx_vector(2, 4, 6));
}

/* Not in a plan, but in the call that makes the array. */
static void a_device_without_float64_says_so(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_full(1.5, 2, 3), *wide = fx_cast(fx_ones(4), FX_DTYPE_F64);
    fx_array *there = fx_to(d[0], x);
    d[0]->info.no_f64 = true;
    assert_int_equal(fx_array_status(fx_cast(there, FX_DTYPE_F64)), FX_STATUS_UNSUPPORTED);
    assert_non_null(strstr(fx_error_take().message, "CUDA:0 has no Float64"));
    assert_int_equal(fx_array_status(fx_to(d[0], wide)), FX_STATUS_UNSUPPORTED);
    fx_error_take();
    fx_eval(wide);
    assert_int_equal(fx_array_status(fx_to(d[0], wide)), FX_STATUS_UNSUPPORTED);
    fx_error_take();
    assert_int_equal(fx_eltype(fx_gpu(wide)), FX_DTYPE_F32);
    same_bits(fx_gpu(wide), fx_ones(4));
    assert_int_equal(fx_error_status(), FX_OK);
    d[0]->info.no_f64 = false;
}

static void devices_by_one_text(void **state)
{
    (void)state;
    assert_ptr_equal(fx_device_find("cuda:2"), d[2]);
    assert_ptr_equal(fx_device_find("CUDA"), d[0]);
    assert_ptr_equal(fx_device_find("cpu"), fx_cpu_device());
    assert_string_equal(fx_device_model(d[1]), "Test device 1");
    assert_int_equal(fx_synchronize(d[1]), FX_OK);
    assert_ptr_equal(fx_device_find("cuda:3"), fx_cpu_device());
    assert_non_null(strstr(fx_error_take().message, "CUDA has 3 devices, so there is no id 3"));
    fx_device_find("cuda:99999999999999999999");
    assert_non_null(strstr(fx_error_take().message, "there is no id 2147483647"));
    fx_device_find("");
    assert_int_equal(fx_error_take().status, FX_STATUS_DEVICE);
    fx_device_find(NULL);
    assert_int_equal(fx_error_take().status, FX_STATUS_DEVICE);
}

static void nothing_is_left(void **state)
{
    (void)state;
    fx_reclaim();
    assert_true(away.allocs > 50);
    assert_int_equal(away.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_run_there),
        cmocka_unit_test(gradients_flow_through_moves),
        cmocka_unit_test(gradients_reach_what_was_copied),
        cmocka_unit_test(gradients_reach_a_model_that_was_copied),
        cmocka_unit_test(what_a_model_left_is_free),
        cmocka_unit_test(a_model_over_two_devices_trains),
        cmocka_unit_test(many_moves_in_a_row),
        cmocka_unit_test(custom_operations_run_on_the_host),
        cmocka_unit_test(failures_are_told),
        cmocka_unit_test(a_device_without_float64_says_so),
        cmocka_unit_test(devices_by_one_text),
        cmocka_unit_test(nothing_is_left),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
