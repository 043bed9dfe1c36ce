/* test_replay.c: plans as a whole and marks, on the stand-in that has both and does its work as
 * late as possible (standin/replay.h). Training on digits with random steps gives the CPU's losses
 * in every bit, from captured plans; and where the stand-in forgets addresses, random streams or
 * marks, these tests notice. ctest: devices threads timeout=300 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "evaluate.h"
#include "memory.h"
#include "planning.h"
#include "replay.h"
#include "same_bits.h"

enum { BATCH = 32, STEPS = 12, PIXELS = 64, DIGITS = 10 };
static fx_device *d[3];
static const replay *there;
static fx_array *table;

static int64_t count(replay_count which)
{
    return there->count(which);
}

/* ---- training -------------------------------------------------------------------------------- */

static fx_array *images(int64_t from, int64_t to)
{
    return fx_div(fx_slice(fx_slice(table, 1, from, to), 0, 0, PIXELS), 16);
}

static fx_array *labels(int64_t from, int64_t to)
{
    fx_array *digit = fx_vec(fx_slice(fx_slice(table, 1, from, to), 0, PIXELS, PIXELS + 1));
    return fx_onehotbatch(fx_cast(digit, FX_DTYPE_I64), DIGITS);
}

typedef struct losses {
    double at[STEPS];
} losses;

/* Fresh batches, dropout and batch normalisation; everything else keeps its values. */
static losses train(fx_device *device)
{
    FX_SCOPE;
    losses all = {{0}};
    fx_seed(5);
    fx_chain_layer *model =
        fx_to(device, fx_chain(fx_dense(PIXELS, 40, FX_TANH), fx_dropout(0.3), fx_batchnorm(40),
                               fx_dense(40, 24, FX_RELU), fx_dropout(0.2), fx_dense(24, DIGITS)));
    void *opt = fx_setup(fx_adam(.eta = 0.004), model);
    fx_trainmode(model);
    for (int step = 0; step < STEPS; step++) {
        FX_SCOPE;
        fx_array *x = fx_to(device, images(step * BATCH, (step + 1) * BATCH)),
                 *y = fx_to(device, labels(step * BATCH, (step + 1) * BATCH));
        fx_array *loss = fx_logitcrossentropy(fx_call(model, x), y);
        assert_int_equal(fx_update(opt, model, fx_gradient(loss, model)), FX_OK);
        all.at[step] = fx_item(loss);
    }
    assert_int_equal(fx_error_status(), FX_OK);
    return all;
}

static bool equal(const losses *a, const losses *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void training_is_the_cpus_in_every_bit(void **state)
{
    (void)state;
    const losses here = train(fx_cpu_device());
    const int64_t captures = count(REPLAY_CAPTURES), replays = count(REPLAY_REPLAYS),
                  steps = count(REPLAY_STEPS);
    const losses all = train(d[0]);
    assert_true(equal(&here, &all));
    assert_int_equal(count(REPLAY_STEPS), steps);
    const int64_t captured = count(REPLAY_CAPTURES) - captures,
                  replayed = count(REPLAY_REPLAYS) - replays;
    print_message("%lld captures, %lld replays\n", (long long)captured, (long long)replayed);
    assert_true(replayed >= STEPS - 4);
}

/* The same training fails if a capture keeps data that it must not keep. */
static void stale_streams_are_noticed(void **state)
{
    (void)state;
    const losses here = train(fx_cpu_device());
    there->stale(REPLAY_STALE_STREAMS);
    const losses all = train(d[0]);
    there->stale(0);
    assert_false(equal(&here, &all));
}

static fx_array *square_and_one(fx_array *x)
{
    return fx_add(fx_matmul(x, fx_mul(x, 2)), 1);
}

/* How many of a few results, all kept, differ from the CPU's or cannot be read. */
static int wrong_results(void)
{
    FX_SCOPE;
    enum { RESULTS = 4, SIZE = 8 };
    int wrong = 0;
    fx_array *x[RESULTS], *y[RESULTS];
    fxi_reclaim_all();
    for (int k = 0; k < RESULTS; k++) {
        x[k] = fx_randn(SIZE, SIZE);
        y[k] = square_and_one(fx_to(d[0], x[k]));
        fx_eval(y[k]);
    }
    for (int k = 0; k < RESULTS; k++) {
        float a[SIZE * SIZE], b[SIZE * SIZE];
        assert_int_equal(fx_read_into(square_and_one(x[k]), a, sizeof a), FX_OK);
        wrong += fx_read_into(y[k], b, sizeof b) != FX_OK || memcmp(a, b, sizeof a) != 0;
    }
    return wrong;
}

static void stale_addresses_are_noticed(void **state)
{
    (void)state;
    assert_int_equal(wrong_results(), 0);
    there->stale(REPLAY_STALE_ADDRESSES);
    assert_true(wrong_results() > 0);
    fx_error_take();
    there->stale(0);
    assert_int_equal(wrong_results(), 0);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- which plans ----------------------------------------------------------------------------- */

/* A new plan, of ten elements; its sum. */
static double sum_of_ten(double factor)
{
    FX_SCOPE;
    fxi_reclaim_all();
    return fx_item(fx_sum(fx_exp(fx_mul(fx_to(d[0], fx_zeros(10)), factor))));
}

/* The results of plan_prepare: the plan is accepted, runs step by step, or the evaluation fails
 * with its error. */
static void a_backend_may_refuse_a_plan(void **state)
{
    (void)state;
    const int64_t steps = count(REPLAY_STEPS), replays = count(REPLAY_CAPTURES);
    there->answer(FX_STATUS_UNSUPPORTED);
    assert_float_equal(sum_of_ten(2), 10, 0);
    assert_int_equal(fx_error_status(), FX_OK);
    assert_true(count(REPLAY_STEPS) > steps);
    assert_int_equal(count(REPLAY_CAPTURES), replays);
    const fx_status bad[] = {FX_STATUS_DEVICE, FX_STATUS_MEMORY};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        there->answer(bad[i]);
        sum_of_ten(2);
        const fx_error e = fx_error_take();
        assert_int_equal(e.status, bad[i]);
        assert_non_null(strstr(e.message, "plan: Replay was told to refuse it"));
    }
    there->answer(FX_OK);
    assert_float_equal(sum_of_ten(2), 10, 0);
    assert_int_equal(count(REPLAY_CAPTURES), replays + 1);
    assert_int_equal(fx_error_status(), FX_OK);
}

static fx_status add_three(const fx_custom_op *op, int n, const fx_custom_operand *in,
                           const fx_custom_operand *out)
{
    (void)op, (void)n;
    for (int i = 0; i < 10; i++)
        ((float *)out->data)[i] = ((const float *)in->data)[i] + 3;
    return FX_OK;
}

/* A plan runs step by step if the library runs one of its steps itself, with FX_EAGER, and on
 * check:Replay. */
static void other_plans_run_step_by_step(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fx_custom_op op = {
        .fxi_size = sizeof op, .name = "add_three", .forward = add_three};
    const int64_t captures = count(REPLAY_CAPTURES), steps = count(REPLAY_STEPS);
    fx_array *x = fx_exp(fx_to(d[0], fx_zeros(10)));
    fx_array *y = fx_mul(fx_custom(&op, 1, &x, FX_DTYPE_F32, FX_DIMS(10)), 2);
    same_bits(y, fx_full(8, 10));
    fxi_eager_set(true);
    same_bits(fx_exp(fx_mul(fx_to(d[0], fx_zeros(10)), 3)), fx_ones(10));
    fxi_eager_set(false);
    fx_device *checked = fx_device_find("check:Replay:1");
    same_bits(fx_exp(fx_mul(fx_to(checked, fx_zeros(10)), 3)), fx_ones(10));
    same_bits(fx_to(checked, fx_mul(fx_to(fx_device_find("check:Replay:0"), fx_ones(10)), 3)),
              fx_full(3, 10));
    assert_int_equal(count(REPLAY_CAPTURES), captures);
    assert_true(count(REPLAY_STEPS) >= steps + 6);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Evicted and dropped, plans are released before their steps. */
static void plans_are_released(void **state)
{
    (void)state;
    train(d[1]);
    assert_true(count(REPLAY_PLANS) > 0);
    fxi_reclaim_all();
    for (int k = 0; k < 3; k++)
        assert_int_equal(fx_synchronize(d[k]), FX_OK);
    assert_int_equal(count(REPLAY_PLANS), 0);
    assert_int_equal(count(REPLAY_MARKS), 0);
    assert_int_equal(count(REPLAY_EARLY), 0);
}

static void *train_there(void *out)
{
    *(losses *)out = train(d[2]);
    return NULL;
}

/* One plan, run by several threads. */
static void threads_share_plans(void **state)
{
    (void)state;
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    losses all[THREADS];
    const losses here = train(fx_cpu_device());
    for (int k = 0; k < THREADS; k++)
        assert_int_equal(pthread_create(&threads[k], NULL, train_there, &all[k]), 0);
    for (int k = 0; k < THREADS; k++) {
        pthread_join(threads[k], NULL);
        assert_true(equal(&here, &all[k]));
    }
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* Moves an array that begins as `first` back and forth between devices, changes it on each, and
 * overwrites the old copy. Returns how many elements are correct at the end. */
static int right_after_a_journey(float first)
{
    FX_SCOPE;
    enum { ROUNDS = 10, LENGTH = 100 };
    float back[LENGTH];
    int right = 0;
    fx_array *x = fx_to(d[0], fx_full(first, LENGTH));
    for (int k = 0; k < ROUNDS; k++) {
        FX_SCOPE;
        fx_array *y = fx_to(d[1 + k % 2], x);
        assert_int_equal(fx_eval(y), FX_OK);
        fx_set(&x, fx_mul(x, 1000)); /* only after the copy has been read */
        fx_eval(x);
        fx_set(&x, fx_to(d[0], fx_add(y, 1)));
        fx_eval(x);
    }
    if (fx_read_into(x, back, sizeof back) == FX_OK)
        for (int k = 0; k < LENGTH; k++)
            right += back[k] == first + ROUNDS;
    fx_error_take();
    return right;
}

static void copies_keep_the_order(void **state)
{
    (void)state;
    const standin *s = standin_of(d[0]);
    const int64_t reads = s->calls(0, STANDIN_READ), marks = s->calls(0, STANDIN_MARK);
    assert_int_equal(right_after_a_journey(1), 100);
    assert_int_equal(s->calls(0, STANDIN_READ),
                     reads + 1); /* no data was copied through the host */
    assert_int_equal(s->calls(0, STANDIN_MARK), marks + 20);
    there->stale(REPLAY_STALE_MARKS);
    assert_true(right_after_a_journey(2) < 100);
    there->stale(0);
    assert_int_equal(right_after_a_journey(4), 100);
}

/* Every allocation of a copy between devices fails in turn, with and without an earlier error: the
 * copy reports a lack of memory, not a failure of the device, and the record keeps the first
 * failure. */
static void copies_without_memory(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_to(d[0], fx_ones(100)), *y = fx_to(d[1], fx_zeros(100));
    assert_int_equal(fx_eval(fx_tuple(x, y)), FX_OK);
    for (int earlier = 0; earlier < 2; earlier++) {
        int reported = 0;
        bool more = true;
        for (int n = 0; more; n++) {
            FX_SCOPE;
            if (earlier)
                fx_fail(FX_STATUS_SHAPE, "test", "an earlier error");
            fxi_fault_set(n);
            const fx_status status = fx_copy_into(y, x);
            more = fxi_fault_seen() > n;
            fxi_fault_set(-1);
            /* A cache may have replaced what was refused; an error array that has no memory for a
             * status of its own has that of the record. */
            assert_true(status == FX_OK || status == FX_STATUS_MEMORY ||
                        (earlier && status == FX_STATUS_SHAPE));
            reported += status != FX_OK;
            assert_int_equal(fx_error_take().status, earlier ? FX_STATUS_SHAPE : status);
        }
        assert_true(reported >= 3);
    }
}

static void elements_have_their_sizes(void **state)
{
    (void)state;
    for (int k = 0; k < FX_DTYPE_COUNT; k++) {
        const fx_tensor t = {.dtype = (uint8_t)k};
        assert_int_equal(fx_tensor_element_bytes(&t), fx_dtype_size((fx_dtype)k));
    }
}

int main(void)
{
    standin_path();
    fx_use("Replay");
    for (int k = 0; k < 3; k++)
        d[k] = fx_device_get("Replay", k);
    there = d[0] ? replay_of(d[0]) : NULL;
    table = fx_keep(fx_read_csv(CFLUX_SOURCE_DATA_DIR "/digits.csv.gz"));
    if (fx_error_print(stderr) || !there)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(training_is_the_cpus_in_every_bit),
                                       cmocka_unit_test(stale_streams_are_noticed),
                                       cmocka_unit_test(stale_addresses_are_noticed),
                                       cmocka_unit_test(a_backend_may_refuse_a_plan),
                                       cmocka_unit_test(other_plans_run_step_by_step),
                                       cmocka_unit_test(threads_share_plans),
                                       cmocka_unit_test(plans_are_released),
                                       cmocka_unit_test(copies_keep_the_order),
                                       cmocka_unit_test(copies_without_memory),
                                       cmocka_unit_test(elements_have_their_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
