/* test_update_in_place.c: an update that writes into the buffers it replaces gives the bits of one
 * that cannot.
 *
 * A snapshot shares the model's values, so a training step while a snapshot exists needs new
 * buffers. The same network is trained with and without snapshots of model and optimiser state, for
 * every rule, guarded and not; the counters show that one run was in place and the other was not.
 * The planner decides steps, their order and their fusion; only the numbers show whether a value
 * was overwritten before its last reader. In a network as small as this one, the optimiser's step
 * shows it first, so the convolution has many small elements.
 */
#include <cflux.h>

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "option_struct.h"
#include "state_parts.h"

enum { STEPS = 6, BATCH = 16, LARGEST = 32 * 16 * 9 };

static const char *const rules[] = {"Descent", "Momentum", "Nesterov", "Adam", "AdamW"};
enum { RULES = sizeof rules / sizeof *rules };

static fx_chain_layer *network(void)
{
    return fx_chain(fx_conv(FX_DIMS(3, 3), 1, 16, FX_RELU, .pad = FX_SAME),
                    fx_maxpool(FX_DIMS(2, 2)),
                    fx_conv(FX_DIMS(3, 3), 16, 32, FX_RELU, .pad = FX_SAME), FX_FLATTEN,
                    fx_batchnorm(512), fx_dense(512, 8, FX_TANH), fx_dense(8, 3));
}

/* Trains a network that depends on nothing but the rule; the caller's scope owns it. */
static fx_chain_layer *train(const char *rule, bool guarded, bool hold)
{
    fx_seed(4);
    fx_array *x = fx_rand(8, 8, 1, BATCH);
    fx_array *y = fx_onehot(fx_cast(fx_mul(fx_rand(BATCH), 3), FX_DTYPE_I64), 3);
    fx_chain_layer *model = network();
    FXI_DEFAULT_OPTIONS(fx_adjust_args, FXI_ADJUST_ARGS, numbers);
    numbers.eta = 0.005;
    void *state = fx_setup(fxi_rule_named(rule, &numbers, true), model);
    assert_int_equal(fx_eval(fx_tuple(x, y, model, state)), FX_OK);
    for (int i = 0; i < STEPS; i++) {
        FX_STEP;
        if (hold)
            assert_false(fx_is_error(fx_tuple(fx_snapshot(model), fx_snapshot(state))));
        fx_array *loss = fx_logitcrossentropy(fx_call(model, x), y);
        fx_chain_layer *g = fx_gradient(loss, model);
        assert_int_equal(fx_update(state, model, g, .guard = guarded ? loss : NULL), FX_OK);
    }
    return model;
}

static void assert_same_bits(fx_array *a, fx_array *b)
{
    static float left[LARGEST], right[LARGEST];
    const int64_t n = fx_length(a);
    assert_true(n == fx_length(b) && n <= LARGEST);
    assert_int_equal(fx_read_as(a, FX_DTYPE_F32, left, n), FX_OK);
    assert_int_equal(fx_read_as(b, FX_DTYPE_F32, right, n), FX_OK);
    assert_memory_equal(left, right, (size_t)n * sizeof *left);
}

static void compare(const char *rule, bool guarded)
{
    FX_SCOPE;
    const fx_counters start = fx_stats();
    fx_chain_layer *apart = train(rule, guarded, true);
    const fx_counters middle = fx_stats();
    fx_chain_layer *in_place = train(rule, guarded, false);
    const fx_counters end = fx_stats();
    assert_int_equal(middle.donations, start.donations);
    assert_true(end.donations > middle.donations);
    void *a = fx_trainables(apart), *b = fx_trainables(in_place);
    assert_int_equal(fx_count(a), 10);
    for (int64_t i = 0; i < fx_count(a); i++)
        assert_same_bits(fx_child(a, i), fx_child(b, i));
    assert_int_equal(fx_error_status(), FX_OK);
}

static void unguarded(void **unused)
{
    (void)unused;
    for (int r = 0; r < RULES; r++)
        compare(rules[r], false);
}

static void guarded(void **unused)
{
    (void)unused;
    for (int r = 0; r < RULES; r++)
        compare(rules[r], true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(unguarded), cmocka_unit_test(guarded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
