/* test_overlap.c: gradients are exchanged while the backward pass computes the next ones. ctest:
 * threads
 *
 * The members are threads (meeting.h). Between two layers is a gate (gate.h). Each layer has one
 * full bucket.
 */
#include "gate.h"
#include "meeting.h"

#include <time.h>

enum { WIDTH = 512, LAYERS = 5, PAUSE = 40 };

/* ---- gates ----------------------------------------------------------------------------------- */

/* Waits until the members have reduced a bucket. Without overlap no bucket would be begun. */
static fx_status waits(const fx_custom_op *op, int n, const fx_custom_operand *in,
                       const fx_custom_operand *out)
{
    (void)op, (void)n;
    int64_t done = 0;
    for (int ms = 0; ms < 20000 && done == 0; ms++) {
        nanosleep(&(const struct timespec){.tv_nsec = 1000000}, NULL);
        pthread_mutex_lock(&meeting.lock);
        done = meeting.large;
        pthread_mutex_unlock(&meeting.lock);
    }
    return done > 0 ? gate_copies(in, out) : FX_STATUS_IO;
}

static fx_status computes(const fx_custom_op *op, int n, const fx_custom_operand *in,
                          const fx_custom_operand *out)
{
    (void)op, (void)n;
    nanosleep(&(const struct timespec){.tv_nsec = PAUSE * 1000000}, NULL);
    return gate_copies(in, out);
}

static fx_status breaks(const fx_custom_op *op, int n, const fx_custom_operand *in,
                        const fx_custom_operand *out)
{
    (void)op, (void)n, (void)in, (void)out;
    return FX_STATUS_STATE;
}

/* In the second gate of its backward pass, when the group's thread runs an operation, this member's
 * process ends. */
static _Thread_local fx_dist *leaving;
static _Thread_local int passed;

static fx_status leaves(const fx_custom_op *op, int n, const fx_custom_operand *in,
                        const fx_custom_operand *out)
{
    (void)op, (void)n;
    if (++passed < 2)
        return gate_copies(in, out);
    while (!__atomic_load_n(&leaving->queue.running, __ATOMIC_RELAXED))
        nanosleep(&(const struct timespec){.tv_nsec = 1000000}, NULL);
    fxi_dist_leave(leaving);
    return gate_copies(in, out);
}

GATE(open_gate, gate_passes);
GATE(left, leaves);
GATE(waiting, waits);
GATE(slow, computes);
GATE(broken, breaks);

/* ---- training -------------------------------------------------------------------------------- */

static void *layers_of(int n)
{
    fx_seed(3);
    void *all[LAYERS];
    for (int i = 0; i < n; i++)
        all[i] = fx_dense(WIDTH, WIDTH);
    return fxi_chain(n, all);
}

/* One update of a model of n layers, with a gate before each layer but the first. */
static fx_status step(void *opt, void *model, int n, const fx_custom_op *gate)
{
    FX_SCOPE;
    fx_array *x = fx_add(fx_ones(WIDTH, 2), 0.5);
    for (int i = 0; i < n; i++)
        x = fx_call(fx_child(model, i), i > 0 ? gate_pass(gate, x) : x);
    return fx_update(opt, model, fx_gradient(fx_mean(fx_square(x)), model));
}

static fx_status train(fx_dist *d, member *m, const fx_custom_op *gate)
{
    FX_SCOPE;
    void *model = layers_of(2);
    void *opt = fx_setup(fx_dist_optimiser(d, fx_descent(0.5)), model);
    const fx_status status = step(opt, model, 2, gate);
    if (status != FX_OK)
        return status;
    fx_array *p = fx_destructure(model);
    read_out(m, fx_slice(p, 0, 0, 20));
    read_out(m, fx_slice(p, 0, fx_length(p) - 20, fx_length(p)));
    return FX_OK;
}

static void *trains_waiting(void *argument)
{
    member *m = argument;
    if (train(&m->d, m, &waiting) != FX_OK)
        take_error(m);
    return NULL;
}

static void *trains_at_once(void *argument)
{
    member *m = argument;
    m->d.communicator.begin = NULL;
    if (train(&m->d, m, &open_gate) != FX_OK)
        take_error(m);
    return NULL;
}

static void gradients_travel_during_the_backward_pass(void **state)
{
    (void)state;
    double at_once[40];
    run_members(trains_at_once);
    assert_int_equal(members[0].n, 40);
    memcpy(at_once, members[0].got, sizeof at_once);
    run_members(trains_waiting);
    for (int k = 0; k < MEMBERS; k++) {
        assert_string_equal(members[k].message, "");
        assert_int_equal(members[k].n, 40);
        assert_memory_equal(members[k].got, at_once, sizeof at_once);
    }
    assert_int_equal(meeting.large, 2);
}

/* ---- only beside work ------------------------------------------------------------------------ */

static int begun;

static void *counts(const fx_communicator *self, const fx_step *s, const void *in, void *out)
{
    begun++;
    return fxi_dist_operation_begin(self, s, in, out);
}

static fx_status alone(const fxi_transport_group *g, const fxi_transport_call *c, char *why,
                       size_t size)
{
    (void)g, (void)why, (void)size;
    memcpy(c->out, c->in, (size_t)c->count * fx_dtype_size((fx_dtype)c->dtype));
    return FX_OK;
}

/* After the only bucket of a model, a plan may still compute the loss. Of a mean over few numbers
 * the thread would cost more time than it saves; a product is worth it. */
static int begun_beside(int64_t n)
{
    FX_SCOPE;
    static const fxi_transport link = {.run = alone};
    fx_dist d;
    begin(&d, 0, 2, &link);
    d.communicator.begin = counts;
    begun = 0;
    void *model = (void *)fx_dense(64, 64);
    fx_array *x = fx_ones(64, 2), *other = fx_rand(n, n);
    assert_int_equal(fx_eval(fx_tuple(model, x, other)), FX_OK);
    fx_array *mean = fx_want(fx_mean(fx_matmul(other, other)));
    fx_array *loss = fx_want(fx_mean(fx_square(fx_call(model, x))));
    void *opt = fx_setup(fx_dist_optimiser(&d, fx_descent(0.5)), model);
    assert_int_equal(fx_update(opt, model, fx_gradient(loss, model)), FX_OK);
    assert_true(isfinite(fx_item(mean)) && isfinite(fx_item(loss)));
    fxi_dist_end(&d);
    return begun;
}

static void an_exchange_is_begun_only_beside_work(void **state)
{
    (void)state;
    assert_int_equal(begun_beside(4), 0);
    assert_int_equal(begun_beside(256), 1);
}

/* More exchanges than a run begins at a time: the first one is finished before a further one is
 * begun, so none is run at once. */
static void many_exchanges_are_begun(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { MANY = 100 };
    static const fxi_transport link = {.run = alone};
    fx_dist d;
    begin(&d, 0, 2, &link);
    d.communicator.begin = counts;
    begun = 0;
    fx_array *x = fx_full(1.0 / 128, 128, 128), *y = x;
    void *all[MANY];
    for (int k = 0; k < MANY; k++) {
        y = fx_matmul(y, x); /* ones divided by 128 again */
        all[k] = fx_dist_allreduce(&d, fx_add(y, k), FX_REDUCE_SUM);
    }
    const fx_status status = fx_eval(fxi_tuple(MANY, all));
    fxi_dist_end(&d);
    assert_int_equal(status, FX_OK);
    for (int k = 0; k < MANY; k++)
        assert_true(fabs(fx_item(fx_mean(all[k])) - k - 1.0 / 128) < 1e-4);
    assert_int_equal(begun, MANY - 1); /* the last one has nothing beside it */
}

/* ---- failures -------------------------------------------------------------------------------- */

static void *fails(void *argument)
{
    member *m = argument;
    m->got[0] = train(&m->d, m, &open_gate);
    take_error(m);
    return NULL;
}

/* Operation 2 moves the first bucket, after operation 1 has compared what the members do. */
static void a_failure_beside_the_backward_pass_is_told(void **state)
{
    (void)state;
    meeting.fails_at = 2;
    run_members(fails);
    for (int k = 0; k < MEMBERS; k++) {
        assert_true(members[k].got[0] == FX_STATUS_IO);
        assert_non_null(strstr(members[k].message, "no answer from rank 1 within 2 s"));
    }
}

/* Rank 1 fails in the backward pass, when the first bucket has begun. The others may have begun the
 * second one. The next update runs. */
static void *one_breaks(void *argument)
{
    FX_SCOPE;
    member *m = argument;
    void *model = layers_of(3);
    void *opt = fx_setup(fx_dist_optimiser(&m->d, fx_descent(0.5)), model);
    m->got[0] = step(opt, model, 3, fx_dist_rank(&m->d) == 1 ? &broken : &open_gate);
    take_error(m);
    model = layers_of(3);
    opt = fx_setup(fx_dist_optimiser(&m->d, fx_descent(0.5)), model);
    m->got[1] = step(opt, model, 3, &open_gate);
    return NULL;
}

static void a_member_that_fails_between_two_buckets_is_named(void **state)
{
    (void)state;
    run_members(one_breaks);
    for (int k = 0; k < MEMBERS; k++) {
        assert_true(members[k].got[0] == FX_STATUS_STATE);
        const char *want = k == 1 ? "its function returned" : "rank 1 cannot continue: ";
        if (!strstr(members[k].message, want))
            fail_msg("rank %d: %s\ninstead of %s", k, members[k].message, want);
        assert_true(members[k].got[1] == FX_OK);
    }
}

/* Rank 1 ends when two buckets have begun. The others come later, so it has not exchanged them. It
 * takes part in the first one, and refuses the second one. */
static void *one_leaves(void *argument)
{
    FX_SCOPE;
    member *m = argument;
    const bool is_one = fx_dist_rank(&m->d) == 1;
    void *model = layers_of(3);
    void *opt = fx_setup(fx_dist_optimiser(&m->d, fx_descent(0.5)), model);
    leaving = &m->d;
    if (!is_one)
        nanosleep(&(const struct timespec){.tv_nsec = 500000000}, NULL);
    m->got[0] = step(opt, model, 3, is_one ? &left : &open_gate);
    take_error(m);
    if (is_one)
        m->got[1] = fx_dist_barrier(&m->d);
    return NULL;
}

static void a_member_that_ends_between_two_buckets_is_named(void **state)
{
    (void)state;
    run_members(one_leaves);
    for (int k = 0; k < MEMBERS; k++) {
        assert_true(members[k].got[0] == FX_STATUS_STATE);
        const char *want = "rank 1 cannot continue: its program ended during an evaluation";
        if (!strstr(members[k].message, want))
            fail_msg("rank %d: %s\ninstead of %s", k, members[k].message, want);
    }
    assert_true(members[1].got[1] == FX_STATUS_STATE);
    assert_int_equal(meeting.large, 1);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* A link over which a bucket takes as long as the backward pass of a layer. */
static fx_status slow_link(const fxi_transport_group *g, const fxi_transport_call *c, char *why,
                           size_t size)
{
    (void)g, (void)why, (void)size;
    memcpy(c->out, c->in, (size_t)c->count * fx_dtype_size((fx_dtype)c->dtype));
    if (c->count > 3)
        nanosleep(&(const struct timespec){.tv_nsec = PAUSE * 1000000}, NULL);
    return FX_OK;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double time_of(void *opt, void *model)
{
    const double start = now();
    assert_int_equal(step(opt, model, LAYERS, &slow), FX_OK);
    return now() - start;
}

/* The backward pass takes 4 pauses and the exchange 5: together 9 one after the other, and 5 if all
 * but the first layer's backward pass is hidden. Other processes only add time, so the fastest of
 * several steps counts; a busy machine needs more steps. */
static void most_of_the_exchange_is_hidden(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fxi_transport link = {.run = slow_link};
    fx_dist at_once, d;
    begin(&at_once, 0, 2, &link);
    at_once.communicator.begin = NULL;
    begin(&d, 0, 2, &link);
    void *model = layers_of(LAYERS);
    void *opt = fx_setup(fx_dist_optimiser(&d, fx_descent(0.01)), model);
    void *other = fx_setup(fx_dist_optimiser(&at_once, fx_descent(0.01)), model);
    double hidden = 1e9, visible = 1e9;
    for (int k = 0; k < 40 && !(k > 1 && hidden < 0.75 * visible); k++) {
        visible = fmin(visible, time_of(other, model));
        hidden = fmin(hidden, time_of(opt, model));
    }
    printf("one after the other %.0f ms, with overlap %.0f ms\n", visible, hidden);
    assert_true(visible > (2 * LAYERS - 1) * PAUSE);
    assert_true(hidden > LAYERS * PAUSE);
    assert_true(hidden < 0.75 * visible);
    fxi_dist_end(&at_once);
    fxi_dist_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_travel_during_the_backward_pass),
        cmocka_unit_test(an_exchange_is_begun_only_beside_work),
        cmocka_unit_test(many_exchanges_are_begun),
        cmocka_unit_test(a_failure_beside_the_backward_pass_is_told),
        cmocka_unit_test(a_member_that_fails_between_two_buckets_is_named),
        cmocka_unit_test(a_member_that_ends_between_two_buckets_is_named),
        cmocka_unit_test(most_of_the_exchange_is_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
