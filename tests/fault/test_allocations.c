/* test_allocations.c: makes every allocation fail in turn in a program that builds a small
 * convolutional network, differentiates, trains, reads, prints and frees. After each failure an
 * error is recorded, the program runs to its end, nothing leaks, and the next run without faults
 * gives the correct result.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "backends.h"
#include "context.h"
#include "evaluate.h"
#include "memory.h"

static fx_array *loss_of(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_logitcrossentropy(fx_call(model, b->x), b->y);
}

/* Two training steps without fx_train and one epoch of fx_train; returns the last loss. */
static double plain_program(fx_device *device)
{
    FX_SCOPE;
    fx_seed(7);
    fx_chain_layer *model = fx_chain(fx_conv(FX_DIMS(3, 3), 1, 2, FX_RELU, .pad = FX_SAME),
                                     fx_batchnorm(2), fx_maxpool(FX_DIMS(2, 2)), FX_FLATTEN,
                                     fx_dropout(0.25), fx_dense(8, 3), fx_layernorm(FX_DIMS(3)));
    model = fx_to(device, model);
    void *opt = fx_setup(fx_adam(.eta = 0.01), model);
    fx_array *x = fx_rand(4, 4, 1, 6), *labels = fx_range_dtype(FX_DTYPE_I32, 0, 1, 6);
    fx_array *y = fx_to(device, fx_onehotbatch(fx_mod(labels, 3), 3));
    x = fx_to(device, x);
    double last = 0;
    for (int i = 0; i < 2; i++) {
        FX_STEP;
        fx_array *loss = fx_logitcrossentropy(fx_call(model, x), y);
        fx_update(opt, model, fx_gradient(loss, model), .guard = loss);
        last = fx_item(loss);
    }
    fx_loader *loader = fx_dataloader(fx_tuple(x, y), .batchsize = 4, .shuffle = true, .seed = 3);
    fx_train(loss_of, model, loader, opt, .epochs = 1);
    char text[2048];
    fx_show_text(model, text, sizeof text);
    fx_show_text(fx_call(model, x), text, sizeof text);
    void *copy = fx_snapshot(model);
    fx_eval(copy);
    return last;
}

/* Recorded training steps: the first one is noted, two repeat it, the fourth differs in the middle,
 * and the last one repeats the fourth. The gradient of the third outlives its training step. */
static double recorded_program(fx_device *device)
{
    FX_SCOPE;
    fx_seed(7);
    fx_dense_layer *model = fx_to(device, fx_dense(4, 3));
    void *opt = fx_setup(fx_momentum(.eta = 0.01), model);
    fx_array *x = fx_to(device, fx_rand(4, 6)), *y = fx_to(device, fx_rand(3, 6)), *kept = NULL;
    fx_eval(fx_tuple(x, y, model));
    double last = 0;
    for (int i = 0; i < 5; i++) {
        FX_RECORD;
        fx_array *out = fx_call(model, x);
        if (i >= 3)
            out = fx_mul(out, fx_sigmoid(out));
        fx_array *loss = fx_mse(out, y);
        fx_dense_layer *g = fx_gradient(loss, model);
        if (i == 2)
            fx_set(&kept, fx_sum(out));
        fx_update(opt, model, g, .guard = i == 4 ? loss : NULL);
        last = fx_item(loss);
    }
    last += fx_item(kept);
    fx_release(kept);
    return last;
}

/* Losses whose gradients need each kind of memory that the sweep allocates, and their derivatives.
 */
static fx_array *two_contributions(fx_array *x)
{
    return fx_sum(fx_add(fx_mul(x, x), fx_sin(x)));
}
static double two_contributions_derivative(double x)
{
    return 2 * x + cos(x);
}

enum { PARTS = 10 }; /* more inputs than the sweep keeps on the stack */

static fx_array *many_inputs(fx_array *x)
{
    fx_array *parts[PARTS];
    for (int i = 0; i < PARTS; i++)
        parts[i] = fx_mul(x, i);
    return fx_sum(fx_square(fxi_concat(0, PARTS, parts)));
}
static double many_inputs_derivative(double x)
{
    return 2 * 285 * x; /* Σ i² for i < 10 is 285 */
}

static fx_array *slices(fx_array *x)
{
    fx_array *sum = fx_zeros();
    for (int64_t i = 0; i < 2 * fx_length(x); i++)
        sum = fx_add(sum, fx_sum(fx_square(fx_slice(x, 0, i / 2, i / 2 + 1))));
    return sum;
}
static double slices_derivative(double x)
{
    return 4 * x;
}

static fx_array *deep(fx_array *x)
{
    for (int i = 0; i < 100; i++)
        x = fx_add(x, 1);
    return fx_sum(fx_square(x));
}
static double deep_derivative(double x)
{
    return 2 * (x + 100);
}

static void gradients_fail(void **state)
{
    (void)state;
    static const struct {
        fx_array *(*loss)(fx_array *x);
        double (*derivative)(double x);
        int at_least; /* the fewest allocations */
    } kinds[] = {{two_contributions, two_contributions_derivative, 6},
                 {many_inputs, many_inputs_derivative, 20},
                 {slices, slices_derivative, 20},
                 {deep, deep_derivative, 6}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        FX_SCOPE;
        fx_array *x = fx_vector(1, 2, 3), *g = NULL;
        assert_int_equal(fx_eval(x), FX_OK);
        int failed = 0, done = 0;
        for (int64_t n = 0; n < 2000 && done < 3; n++) {
            FX_SCOPE;
            fx_array *loss = kinds[k].loss(x);
            fxi_fault_set(n);
            const fx_status status = fx_gradient_of(loss, &x, 1, &g);
            fxi_fault_set(-1);
            failed += status == FX_STATUS_MEMORY;
            done += status == FX_OK;
            assert_true(status == FX_OK || status == FX_STATUS_MEMORY);
            assert_int_equal(fx_is_error(g), status != FX_OK);
            fx_error_take();
            for (int i = 0; i < 3 && status == FX_OK; i++)
                assert_float_equal(fx_at(g, i), kinds[k].derivative(1 + i), 1e-5);
        }
        if (failed < kinds[k].at_least || done != 3)
            fail_msg("kind %d: %d failed, %d done", (int)k, failed, done);
    }
}

static double norm_of(fx_array *x)
{
    FX_SCOPE;
    return fx_item(fx_sum(fx_square(x)));
}

/* Statistics of a batch norm move with the parameters or not at all, whatever allocation of the
 * training step fails. */
static void statistics_move_with_the_parameters(void **state)
{
    (void)state;
    int failed = 0, done = 0;
    for (int64_t n = 0; n < 4000 && done == 0; n++) {
        FX_SCOPE;
        fx_seed(7);
        fx_batchnorm_layer *norm = fx_batchnorm(2);
        fx_dense_layer *dense = fx_dense(2, 3);
        void *model = fx_chain(norm, dense), *opt = fx_setup(fx_momentum(.eta = 0.5), model);
        assert_int_equal(fx_trainmode(model), FX_OK);
        fx_array *x = fx_add(fx_rand(2, 6), 3);
        assert_int_equal(fx_eval(fx_tuple(model, x)), FX_OK);
        const double mean = norm_of(norm->mean), var = norm_of(norm->var),
                     weight = norm_of(dense->weight);
        fx_status status;
        {
            FX_STEP;
            fxi_fault_set(n);
            fx_array *loss = fx_sum(fx_square(fx_call(model, x)));
            status = fx_update(opt, model, fx_gradient(loss, model));
            fxi_fault_set(-1);
        }
        fx_error_take();
        assert_true(status == FX_OK || status == FX_STATUS_MEMORY);
        const bool moved = norm_of(dense->weight) != weight;
        if (moved != (status == FX_OK) || (norm_of(norm->mean) != mean) != moved ||
            (norm_of(norm->var) != var) != moved)
            fail_msg("fault %d: %s, but weight %d, mean %d, variance %d moved", (int)n,
                     fx_status_name(status), moved, norm_of(norm->mean) != mean,
                     norm_of(norm->var) != var);
        failed += status != FX_OK;
        done += status == FX_OK && fxi_fault_seen() <= n;
    }
    printf("%d of the allocations of a training step fail it as a whole\n", failed);
    assert_true(failed > 50 && done == 1);
}

/* Frees everything that the program left: a checking wrapper keeps released memory. */
static void clear(fx_device *device)
{
    fxi_reclaim_all();
    if (device != fx_cpu_device())
        fxi_check_reclaim(device);
}

static void fail_in_turn(fx_device *device, double (*program)(fx_device *), int at_least)
{
    const double right = program(device);
    fx_error_print(stderr);
    assert_true(isfinite(right));
    assert_int_equal(fx_error_status(), FX_OK);
    clear(device);
    const int64_t before = fxi_live_allocations();

    int64_t points = 0, reported = 0;
    for (int64_t n = 0;; n++) {
        fxi_fault_set(n);
        const double got = program(device);
        const int64_t seen = fxi_fault_seen();
        fxi_fault_set(-1);
        const fx_error e = fx_error_take();
        clear(device);
        if (fxi_live_allocations() != before)
            fail_msg("fault %lld leaks %lld allocations (%s)", (long long)n,
                     (long long)(fxi_live_allocations() - before), e.message);
        if (seen <= n)
            break; /* the run made fewer allocations */
        points++;
        if (e.status == FX_STATUS_MEMORY)
            reported++;
        else if (e.status != FX_OK)
            fail_msg("fault %lld is reported as %s: %s", (long long)n, fx_status_name(e.status),
                     e.message);
        else
            assert_float_equal(got, right, 0.0); /* no failure: the result must be the same */
    }
    printf("%lld fault points, %lld reported, the others survived with the same result\n",
           (long long)points, (long long)reported);
    assert_true(points >= at_least);
    assert_true(reported >= points / 2);
    assert_float_equal(program(device), right, 0.0);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void every_allocation_fails_in_turn(void **state)
{
    (void)state;
    fail_in_turn(fx_cpu_device(), plain_program, 2000);
}

static void every_allocation_of_recorded_steps_fails_in_turn(void **state)
{
    (void)state;
    fail_in_turn(fx_cpu_device(), recorded_program, 500);
}

/* Memory accesses are correct then, too. */
static void every_allocation_of_a_checked_device_fails_in_turn(void **state)
{
    (void)state;
    assert_int_equal(fx_use("check:CPU"), FX_OK);
    fail_in_turn(fx_device_get("check:CPU", 0), plain_program, 2000);
}

/* ---- the model of another thread ------------------------------------------------------------- */

/* An update of a model that another thread made remembers its parameters in memory of its own. */
typedef struct apprentice {
    fx_dense_layer *model;
    int64_t fault;
    double weights, bias; /* sums from before the update, read after it */
    fx_status updated, read;
    bool ended; /* the run ended before the chosen allocation */
} apprentice;

static void *train_the_model_of_another(void *argument)
{
    apprentice *a = argument;
    FX_SCOPE;
    void *state = fx_setup(fx_descent(.eta = 0.5), a->model);
    fx_dense_layer *g = fx_gradient(
        fx_add(fx_sum(fx_square(a->model->weight)), fx_sum(fx_square(a->model->bias))), a->model);
    fx_array *weights = fx_sum(a->model->weight), *bias = fx_sum(a->model->bias);
    fxi_fault_set(a->fault);
    a->updated = fx_update(state, a->model, g);
    a->ended = fxi_fault_seen() <= a->fault;
    fxi_fault_set(-1);
    fx_error_take();
    a->weights = fx_item(weights);
    a->bias = fx_item(bias);
    a->read = fx_error_take().status;
    return NULL;
}

static void an_update_in_another_thread_fails(void **state)
{
    (void)state;
    int failed = 0;
    for (apprentice a = {0}; !a.ended; a.fault++) {
        FX_SCOPE;
        pthread_t thread;
        a.model =
            fx_dense(0, 0, .weight_array = fx_full(2, 3, 3), .bias_array = fx_vector(1, 2, 4));
        assert_int_equal(fx_eval(a.model), FX_OK);
        assert_int_equal(pthread_create(&thread, NULL, train_the_model_of_another, &a), 0);
        pthread_join(thread, NULL);
        failed += a.updated == FX_STATUS_MEMORY;
        assert_true(a.updated == FX_OK || a.updated == FX_STATUS_MEMORY);
        if (a.read != FX_OK || a.weights != 18 || a.bias != 7)
            fail_msg("fault %d: %s, then %s, %g and %g", (int)a.fault, fx_status_name(a.updated),
                     fx_status_name(a.read), a.weights, a.bias);
        const bool done = a.updated == FX_OK;
        assert_true(fx_item(fx_sum(a.model->weight)) == (done ? 0 : 18)); /* 2 − 0.5 · 2 · 2 */
        assert_true(fx_item(fx_sum(a.model->bias)) == (done ? 0 : 7));
    }
    assert_true(failed >= 6);
}

int main(void)
{
    fx_message_set_hook(NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_fail),
        cmocka_unit_test(statistics_move_with_the_parameters),
        cmocka_unit_test(every_allocation_fails_in_turn),
        cmocka_unit_test(an_update_in_another_thread_fails),
        cmocka_unit_test(every_allocation_of_recorded_steps_fails_in_turn),
        cmocka_unit_test(every_allocation_of_a_checked_device_fails_in_turn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
