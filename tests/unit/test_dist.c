/* test_dist.c: groups of processes, with threads of this process as members (meeting.h). ctest:
 * threads
 *
 * Real transports are tested by tests/dist. Expected values are those of one member that has all
 * the data, or are computed by hand.
 */
#include "meeting.h"
#include "shared_library.h"

#include <cflux/mlutils.h>

enum { STEPS = 100 };

/* ---- operations ------------------------------------------------------------------------------ */

static void *each_operation(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    const double r = fx_dist_rank(&m->d);
    fx_array *x = fx_vector(1 + r, 10 * (r - 1));
    read_out(m, fx_dist_allreduce(&m->d, x, FX_REDUCE_SUM));
    read_out(m, fx_dist_allreduce(&m->d, x, FX_REDUCE_MEAN));
    read_out(m, fx_dist_allreduce(&m->d, x, FX_REDUCE_MAX));
    read_out(m, fx_dist_allreduce(&m->d, x, FX_REDUCE_MIN));
    read_out(m, fx_dist_allreduce(&m->d, x, FX_REDUCE_PROD));
    read_out(m, fx_dist_reduce(&m->d, x, FX_REDUCE_SUM, 2));
    read_out(m, fx_dist_bcast(&m->d, x, 1));
    read_out(m, fx_dist_gather(&m->d, x));
    read_out(m, fx_dist_allreduce(&m->d, fx_cast(x, FX_DTYPE_F16), FX_REDUCE_MEAN));
    read_out(m, fx_dist_allreduce(&m->d, fx_cast(x, FX_DTYPE_I32), FX_REDUCE_SUM));
    read_out(m, fx_dist_bcast(&m->d, fx_zeros(0), 0));
    m->got[m->n++] = fx_dist_synchronize_number(&m->d, r + 0.5, 2);
    if (fx_dist_barrier(&m->d) != FX_OK)
        take_error(m);
    return NULL;
}

static void operations_give_what_they_say(void **state)
{
    (void)state;
    run_members(each_operation);
    const double want[] = {6, 0, 2,   0, 3, 10, 1,  -10, 6, 0, 0, 0,  2,
                           0, 1, -10, 2, 0, 3,  10, 2,   0, 6, 0, 2.5};
    for (int k = 0; k < MEMBERS; k++) {
        assert_string_equal(members[k].message, "");
        assert_int_equal(members[k].n, COUNT(want));
        for (int i = 0; i < COUNT(want); i++)
            if (i != 10 || k != 2)
                assert_true(members[k].got[i] == want[i]);
        assert_true(members[k].got[10] == (k == 2 ? 6 : 0));
    }
}

/* Each result is read by one member, before the next operation. All of them run in the order of the
 * calls: on one device, on another one, and on none (literals). */
static void *reads_some(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    const int r = fx_dist_rank(&m->d);
    fx_array *x = fx_vector(r, 1), *other = fx_to(fx_device_get("ref", 0), x);
    fx_array *y = fx_dist_allreduce(&m->d, x, FX_REDUCE_SUM);
    if (r == 0)
        read_out(m, y);
    y = fx_dist_allreduce(&m->d, other, FX_REDUCE_MAX);
    if (r == 1)
        read_out(m, y);
    y = fx_gradient(fx_sum(fx_dist_allreduce(&m->d, x, FX_REDUCE_MEAN)), x);
    if (r == 2)
        read_out(m, y);
    y = fx_dist_allreduce(&m->d, fx_full(1, 3), FX_REDUCE_SUM);
    if (r == 0)
        read_out(m, y);
    y = fx_dist_bcast(&m->d, other, 2);
    if (r == 0)
        read_out(m, y);
    y = fx_dist_average(&m->d, x);
    if (r == 1)
        read_out(m, y);
    if (fx_dist_barrier(&m->d) != FX_OK)
        take_error(m);
    return NULL;
}

static void the_order_does_not_depend_on_reads(void **state)
{
    (void)state;
    static const double want[MEMBERS][7] = {{3, 3, 3, 3, 3, 2, 1}, {2, 1, 1, 1}, {1, 1}};
    assert_int_equal(fx_use("ref"), FX_OK);
    run_members(reads_some);
    for (int k = 0; k < MEMBERS; k++) {
        assert_string_equal(members[k].message, "");
        for (int i = 0; i < 7; i++)
            assert_true(members[k].got[i] == want[k][i]);
    }
}

/* The sum of 1, 2^-24 and 2^-24 in Float32 depends on the order: in that of the ranks it is 1. The
 * transport is not asked for sums or products (meeting.no_sums). */
static void *adds_in_order(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    const int r = fx_dist_rank(&m->d);
    m->d.fixed_order = true;
    fx_array *x = fx_vector(r == 0 ? 1 : ldexp(1, -24), r + 1);
    read_out(m, fx_dist_allreduce(&m->d, x, FX_REDUCE_SUM));
    read_out(m, fx_dist_allreduce(&m->d, x, FX_REDUCE_MEAN));
    read_out(m, fx_dist_allreduce(&m->d, x, FX_REDUCE_PROD));
    read_out(m, fx_dist_reduce(&m->d, fx_cast(x, FX_DTYPE_I32), FX_REDUCE_SUM, 1));
    read_out(m, fx_dist_allreduce(&m->d, fx_cast(x, FX_DTYPE_F16), FX_REDUCE_SUM));
    read_out(m, fx_dist_allreduce(&m->d, x, FX_REDUCE_MAX));
    if (r == 2)
        m->d.fixed_order = false;
    fx_eval(fx_dist_allreduce(&m->d, x, FX_REDUCE_SUM));
    take_error(m);
    return NULL;
}

static void sums_in_the_order_of_ranks(void **state)
{
    (void)state;
    meeting.no_sums = true;
    run_members(adds_in_order);
    meeting.no_sums = false;
    for (int k = 0; k < MEMBERS; k++) {
        const double want[] = {
            1, 6, (double)(1.0f / 3), 2, ldexp(1, -48), 6, k == 1 ? 1 : 0, k == 1 ? 6 : 0, 1, 6,
            1, 3};
        assert_int_equal(members[k].n, COUNT(want));
        for (int i = 0; i < COUNT(want); i++)
            assert_true(members[k].got[i] == want[i]);
        assert_non_null(strstr(members[k].message,
                               "rank 2 calls all_reduce (sum) of 2 Float32, but rank 0 calls "
                               "all_reduce (sum) of 2 Float32 in the order of ranks"));
    }
}

/* Each member must have a message that contains `want`. */
static void expect(const char *want)
{
    for (int k = 0; k < MEMBERS; k++)
        if (!strstr(members[k].message, want))
            fail_msg("rank %d: %s\ninstead of %s", k, members[k].message, want);
}

/* Runs a barrier, then a sum that may fail. Then m->message has the message of the failure, and the
 * note for cflux launch. */
static void *notes_progress(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    m->d.progress = tmpfile();
    if (!m->d.progress || fx_dist_barrier(&m->d) != FX_OK)
        return NULL;
    fx_eval(fx_dist_allreduce(&m->d, fx_zeros(2), FX_REDUCE_SUM));
    take_error(m);
    const size_t n = strlen(m->message);
    rewind(m->d.progress);
    if (!fgets(m->message + n, (int)(sizeof m->message - n), m->d.progress))
        m->message[0] = 0;
    fclose(m->d.progress);
    return NULL;
}

/* The note and the message have the same number: 2 for the second operation of the program, whether
 * its comparison (call 3) or the move of its data (call 4) fails. */
static void operations_are_noted(void **state)
{
    (void)state;
    for (int call = 3; call <= 5; call++) {
        meeting.fails_at = call;
        run_members(notes_progress);
        expect("2, all_reduce (sum) of 2 Float32\n");
        if (call < 5)
            expect("all_reduce (sum) of 2 Float32, operation 2: no answer from rank 1 within 2 s");
    }
    meeting.fails_at = 0;
}

/* ---- training -------------------------------------------------------------------------------- */

static void *model_of(int seed)
{
    fx_seed((uint64_t)seed);
    return fx_f64(fx_chain(fx_dense(2, 5, FX_TANH), fx_dense(5, 1)));
}

static void data_of(fx_array **x, fx_array **y)
{
    double xs[24], ys[12];
    for (int i = 0; i < 24; i++)
        xs[i] = (i * 7 % 24) / 12.0 - 1;
    for (int i = 0; i < 12; i++)
        ys[i] = xs[2 * i] * xs[2 * i + 1];
    *x = fx_from(FX_DTYPE_F64, xs, 2, 12);
    *y = fx_from(FX_DTYPE_F64, ys, 1, 12);
}

/* Trains on this member's part, and stores the parameters in the member. */
static void train(fx_dist *d, member *m, int seed)
{
    FX_SCOPE;
    fx_array *x, *y;
    data_of(&x, &y);
    void *part = fx_getobs(fx_dist_data(d, fx_tuple(x, y)));
    fx_chain_layer *model = fx_dist_synchronize(d, fx_dist_model(model_of(seed)), 0);
    void *opt = fx_dist_synchronize(d, fx_setup(fx_dist_optimiser(d, fx_adam(0.01)), model), 0);
    for (int i = 0; i < STEPS; i++) {
        FX_STEP;
        fx_array *loss = fx_mse(fx_call(model, fx_child(part, 0)), fx_child(part, 1));
        if (fx_update(opt, model, fx_gradient(loss, model)) != FX_OK)
            break;
    }
    if (fx_error_status() != FX_OK)
        take_error(m);
    read_out(m, fx_destructure(model));
}

static void *trains(void *argument)
{
    member *m = argument;
    train(&m->d, m, 10 + fx_dist_rank(&m->d));
    return NULL;
}

static void members_train_as_one(void **state)
{
    (void)state;
    static member serial;
    begin(&serial.d, 0, 1, NULL);
    train(&serial.d, &serial, 10);
    run_members(trains);
    assert_int_equal(serial.n, 21);
    expect_same(serial.n, serial.got, 1e-12);
    /* A training step runs one operation for the bucket and one comparison, not one for each of the
     * four arrays. The other operations belong to the start: comparisons, arrays of the model and
     * of the state, numbers. */
    assert_true(meeting.made <= 2 * STEPS + 40);
    fxi_dist_end(&serial.d);
}

/* ---- parts of different sizes ---------------------------------------------------------------- */

/* Member 0 has 5 of the 12 observations, member 1 none, member 2 the other 7. */
static void *weighs(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    static const int ends[] = {0, 5, 5, 12};
    const int r = fx_dist_rank(&m->d), first = ends[r], last = ends[r + 1];
    fx_array *x, *y;
    data_of(&x, &y);
    void *model = model_of(10), *opt = fx_setup(fx_dist_optimiser(&m->d, fx_adam(0.01)), model);
    for (int i = 0; i < STEPS; i++) {
        FX_STEP;
        void *g = NULL;
        if (last > first)
            g = fx_gradient(
                fx_mse(fx_call(model, fx_slice(x, 1, first, last)), fx_slice(y, 1, first, last)),
                model);
        if (fx_update(opt, model, g, .observations = last - first) != FX_OK)
            break;
    }
    take_error(m);
    read_out(m, fx_destructure(model));
    return NULL;
}

static void uneven_parts_train_as_one(void **state)
{
    (void)state;
    static member serial;
    begin(&serial.d, 0, 1, NULL);
    train(&serial.d, &serial, 10);
    run_members(weighs);
    expect_same(serial.n, serial.got, 1e-12);
    fxi_dist_end(&serial.d);
}

/* A group whose other member has the same operands. */
static fx_status echo(const fxi_transport_group *g, const fxi_transport_call *c, char *why,
                      size_t size)
{
    (void)g, (void)why, (void)size;
    memcpy(c->out, c->in, (size_t)c->count * fx_dtype_size((fx_dtype)c->dtype));
    return FX_OK;
}

/* Runs updates with these numbers of observations. Returns the number of plans that were run. */
static int64_t evaluations(fx_dist *d, fx_rule *rule, const double *observations)
{
    FX_SCOPE;
    fx_array *x, *y;
    data_of(&x, &y);
    void *model = model_of(10), *opt = fx_setup(fx_dist_optimiser(d, rule), model);
    fx_eval(fx_tuple(x, y, model, opt));
    const uint64_t before = fx_stats().evals;
    for (int i = 0; i < 6; i++) {
        FX_STEP;
        const double n = observations[i % 3];
        void *g = n == 0 ? NULL : fx_gradient(fx_mse(fx_call(model, x), y), model);
        assert_int_equal(fx_update(opt, model, g, .observations = n), FX_OK);
    }
    return (int64_t)(fx_stats().evals - before);
}

/* The weight of a member is part of the plan of the update. */
static void a_weighted_update_is_one_evaluation(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fxi_transport echoes = {.run = echo};
    static const double equal[] = {-1, -1, -1}, weighted[] = {3, 5, 0};
    fx_dist d;
    begin(&d, 0, 2, &echoes);
    const int64_t adam = evaluations(&d, fx_adam(0.01), equal);
    assert_true(adam >= 6);
    assert_int_equal(evaluations(&d, fx_adam(0.01), weighted), adam);
    assert_int_equal(evaluations(&d, fx_optimiser_chain(fx_accum_grad(2), fx_adam(0.01)), weighted),
                     evaluations(&d, fx_optimiser_chain(fx_accum_grad(2), fx_adam(0.01)), equal));
    fxi_dist_end(&d);
}

/* ---- accumulation ---------------------------------------------------------------------------- */

/* Four gradients for each update. */
typedef struct accumulation {
    bool uneven; /* members 0, 1, 2 have 4, 0, 7 observations, else 4 each */
    bool mixed;  /* a Float32 model, updated in Float64 */
    int guarded; /* the training step in which the loss of the last member is NaN; 0: none, without
                    guards */
} accumulation;
static accumulation how;
enum { EACH = 4 };

/* The gradient of training step i; with `wrong` a guard that is not finite. */
static fx_status accumulate(fx_dist *d, void *opt, void *model, int i, bool wrong)
{
    FX_STEP;
    static const int even[] = {0, 4, 8, 12}, uneven[] = {0, 4, 4, 11};
    const bool one = fx_dist_total_workers(d) == 1;
    const int *ends = how.uneven ? uneven : even, r = fx_dist_rank(d);
    const int first = one ? 0 : ends[r], last = ends[one ? MEMBERS : r + 1];
    fx_array *x, *y;
    data_of(&x, &y);
    if (how.uneven && first == last)
        return fx_update(opt, model, NULL, .observations = 0);
    if (how.mixed) {
        x = fx_cast(x, FX_DTYPE_F32);
        y = fx_cast(y, FX_DTYPE_F32);
    }
    fx_array *loss =
        fx_mse(fx_call(model, fx_slice(x, 1, first, last)), fx_slice(y, 1, first, last));
    void *g = fx_gradient(fx_mul(loss, 1 + i % 7), model);
    fx_array *guard = fx_mul(loss, wrong ? NAN : 1);
    return how.uneven    ? fx_update(opt, model, g, .observations = last - first)
           : how.guarded ? fx_update(opt, model, g, .guard = guard)
                         : fx_update(opt, model, g);
}

static void *accumulates(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    const bool one = fx_dist_total_workers(&m->d) == 1;
    void *model = model_of(10);
    model = how.mixed ? fx_f32(model) : model;
    fx_rule *rule = fx_optimiser_chain(fx_accum_grad(EACH), fx_adam(0.01));
    rule = how.mixed ? fx_mixed_precision(rule, .type = FX_DTYPE_F64) : rule;
    void *opt = fx_setup(fx_dist_optimiser(&m->d, rule), model);
    int refused = 0;
    for (int i = 1; i <= STEPS; i++) {
        const bool wrong = i == how.guarded && (one || fx_dist_rank(&m->d) == MEMBERS - 1);
        const fx_status status = accumulate(&m->d, opt, model, i, wrong);
        refused += status == FX_STATUS_NONFINITE;
        if (status != FX_OK && status != FX_STATUS_NONFINITE)
            break;
    }
    take_error(m);
    read_out(m, fx_destructure(model));
    m->got[m->n++] = refused;
    return NULL;
}

/* The parameters are the same as in one process, and gradients are exchanged once for four
 * training steps. */
static void check_accumulation(accumulation a, int64_t operations, double most)
{
    static member serial;
    how = a;
    serial = (member){.n = 0};
    begin(&serial.d, 0, 1, NULL);
    accumulates(&serial);
    run_members(accumulates);
    assert_int_equal(serial.n, 22);
    assert_true(serial.got[21] == (a.guarded > 0));
    expect_same(serial.n, serial.got, most);
    assert_int_equal(meeting.large, (STEPS - (a.guarded > 0)) / EACH);
    assert_int_equal(meeting.made, operations);
    fxi_dist_end(&serial.d);
}

/* Each operation is preceded by its comparison, so it counts twice. */
static void sums_of_gradients_are_exchanged_once(void **state)
{
    (void)state;
    check_accumulation((accumulation){.uneven = false}, 2 * STEPS / EACH, 1e-12);
    check_accumulation((accumulation){.mixed = true}, 2 * STEPS / EACH, 1e-6);
    /* In each training step the members add up their numbers of observations. */
    check_accumulation((accumulation){.uneven = true}, 2 * STEPS / EACH + 2 * STEPS, 1e-12);
    /* In each training step the members compare their guards, in every fourth one with the
     * gradients. */
    check_accumulation((accumulation){.guarded = 42}, 2 * STEPS, 1e-12);
}

/* ---- 16 bits on the way ---------------------------------------------------------------------- */

/* One update of 50 parameters, which are 0, by the mean of the gradients; with weights if
 * `weights`. The gradients of member r: (−1)ʳ·(i + 1)/7·(r + 1). */
enum { GRADIENTS = 50 };
static bool weights;
static const int observed[] = {301, 1, 517}; /* not all numbers of BFloat16 */

static double term(int r, int i)
{
    return (float)((r % 2 ? -1 : 1) * (i + 1) / 7.0 * (r + 1));
}

static void *sends_half(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    m->d.narrow = true;
    const int r = fx_dist_rank(&m->d);
    double g[GRADIENTS];
    for (int i = 0; i < GRADIENTS; i++)
        g[i] = term(r, i);
    fx_array *w = fx_zeros(1, GRADIENTS);
    fx_dense_layer *one = fx_dense(0, 0, .weight_array = w, .bias = false);
    void *opt = fx_setup(fx_dist_optimiser(&m->d, fx_descent(1)), one);
    fx_array *terms = fx_cast(fx_from(FX_DTYPE_F64, g, 1, GRADIENTS), FX_DTYPE_F32);
    void *gradient = fx_gradient(fx_sum(fx_mul(one->weight, terms)), one);
    const fx_status status = weights ? fx_update(opt, one, gradient, .observations = observed[r])
                                     : fx_update(opt, one, gradient, .guard = fx_scalar(1));
    if (status != FX_OK)
        take_error(m);
    read_out(m, one->weight);
    read_out(m, fx_dist_allreduce(&m->d, fx_vector(1 + ldexp(1, -20)), FX_REDUCE_MEAN));
    return NULL;
}

/* 2⁻⁸ of the mean of the magnitudes, and some error, or nothing was rounded. */
static void gradients_travel_in_16_bits(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        weights = k == 1;
        run_members(sends_half);
        double worst = 0;
        expect_same(GRADIENTS + 1, NULL, 0);
        for (int i = 0; i < GRADIENTS; i++) {
            double sum = 0, magnitudes = 0, total = 0;
            for (int r = 0; r < MEMBERS; r++) {
                const double w = weights ? observed[r] : 1;
                sum += w * term(r, i);
                magnitudes += w * fabs(term(r, i));
                total += w;
            }
            const double error = fabs(-members[0].got[i] - sum / total) / (magnitudes / total);
            worst = error > worst ? error : worst;
        }
        assert_true(worst <= ldexp(1, -8) && worst >= ldexp(1, -12));
        /* An operation of the program itself is exact. */
        assert_true(members[0].got[GRADIENTS] == 1 + ldexp(1, -20));
    }
}

/* Training ends near the parameters of one process: Descent, 100 updates, Float32. */
static void *trains_half(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    m->d.narrow = fx_dist_total_workers(&m->d) > 1;
    fx_array *x, *y;
    data_of(&x, &y);
    void *part = fx_getobs(fx_dist_data(&m->d, fx_tuple(x, y)));
    void *model = fx_f32(model_of(10));
    void *opt = fx_setup(fx_dist_optimiser(&m->d, fx_descent(0.1)), model);
    fx_array *px = fx_cast(fx_child(part, 0), FX_DTYPE_F32),
             *py = fx_cast(fx_child(part, 1), FX_DTYPE_F32);
    for (int i = 0; i < STEPS; i++) {
        FX_STEP;
        fx_array *loss = fx_mse(fx_call(model, px), py);
        if (fx_update(opt, model, fx_gradient(loss, model)) != FX_OK)
            break;
    }
    if (fx_error_status() != FX_OK)
        take_error(m);
    read_out(m, fx_destructure(model));
    if (fx_dist_rank(&m->d) == 2)
        m->d.narrow = false;
    fx_update(opt, model, fx_gradient(fx_mse(fx_call(model, px), py), model));
    take_error(m);
    return NULL;
}

static void training_in_16_bits_is_near(void **state)
{
    (void)state;
    static member serial;
    serial = (member){.n = 0};
    begin(&serial.d, 0, 1, NULL);
    trains_half(&serial);
    run_members(trains_half);
    double worst = 0;
    for (int k = 0; k < MEMBERS; k++) {
        assert_non_null(strstr(members[k].message,
                               "rank 2 calls all_reduce (mean) of 21 Float32, but rank 0 calls "
                               "all_reduce (mean) of 21 Float32 as BFloat16"));
        assert_int_equal(members[k].n, serial.n);
        assert_memory_equal(members[k].got, members[0].got, sizeof members[0].got);
        for (int i = 0; i < serial.n; i++)
            worst = fmax(worst, fabs(members[k].got[i] - serial.got[i]));
    }
    assert_int_equal(serial.n, 21);
    assert_true(worst > 0 && worst <= 2e-3);
    fxi_dist_end(&serial.d);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Half floats are multiplied by their weights as Float32, which holds 300 · 300. */
static void *weighs_halves(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    fx_dense_layer *a = fx_f16(fx_dense(0, 0, .weight_array = fx_zeros(1, 1), .bias = false));
    void *opt = fx_setup(fx_dist_optimiser(&m->d, fx_descent(1)), a);
    const double g = fx_dist_rank(&m->d) == 1 ? 300 : 0;
    m->got[m->n++] = fx_update(opt, a, fx_gradient(fx_mul(fx_sum(a->weight), g), a),
                               .observations = g > 0 ? 300 : 100);
    take_error(m);
    read_out(m, a->weight);
    m->got[m->n++] = fx_update(opt, a, NULL, .observations = NAN);
    fx_error_take();
    fx_update(opt, a, NULL, .observations = 0); /* no member has observations, so nothing changes */
    read_out(m, a->weight);
    void *alone = fx_setup(fx_descent(1), a);
    fx_update(alone, a, NULL, .observations = 0);
    read_out(m, a->weight);
    m->got[m->n++] = fx_update(opt, a, fx_gradient(fx_sum(a->weight), a), .observations = -3);
    fx_error_take();
    return NULL;
}

static void weights_are_not_lost_in_halves(void **state)
{
    (void)state;
    run_members(weighs_halves);
    for (int k = 0; k < MEMBERS; k++) {
        assert_string_equal(members[k].message, "");
        assert_true(members[k].got[0] == FX_OK && members[k].got[1] == -180);
        assert_true(members[k].got[2] == FX_STATUS_ARGUMENT);
        assert_true(members[k].got[3] == -180 && members[k].got[4] == -180);
        assert_true(members[k].got[5] == FX_STATUS_ARGUMENT);
    }
}

/* One member's loss is not finite, and one has no gradient of the second layer. */
static void *guards(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    const int rank = fx_dist_rank(&m->d);
    fx_dense_layer *a = fx_dense(0, 0, .weight_array = fx_ones(1, 1), .bias = false),
                   *b = fx_dense(0, 0, .weight_array = fx_ones(1, 1), .bias = false);
    void *model = fx_tuple(a, b);
    void *opt = fx_setup(fx_dist_optimiser(&m->d, fx_descent(0.3)), model);
    for (int i = 0; i < 2; i++) {
        fx_array *loss = fx_sum(rank == 1 ? a->weight : fx_mul(a->weight, b->weight));
        fx_array *guard = fx_scalar(rank == 1 && i == 0 ? NAN : 1);
        m->got[m->n++] = fx_update(opt, model, fx_gradient(loss, model), .guard = guard);
        read_out(m, a->weight);
    }
    read_out(m, b->weight);
    return NULL;
}

static void guards_hold_for_all(void **state)
{
    (void)state;
    run_members(guards);
    for (int k = 0; k < MEMBERS; k++) {
        assert_int_equal(members[k].n, 5);
        assert_true(members[k].got[0] == FX_STATUS_NONFINITE && members[k].got[1] == 1);
        assert_true(members[k].got[2] == FX_OK);
        assert_true(fabs(members[k].got[3] - 0.7) < 1e-6 && fabs(members[k].got[4] - 0.8) < 1e-6);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void *other_models(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    const int64_t n = fx_dist_rank(&m->d) == 1 ? 4 : 3;
    fx_chain_layer *model = fx_chain(fx_dense(2, 5), fx_dense(5, n));
    fx_dist_synchronize(&m->d, model, 0);
    take_error(m);
    fx_dist_barrier(&m->d); /* all members still run the same operations */
    m->got[m->n++] = fx_error_take().status;
    return NULL;
}

/* Rank 1 has another array than the others, after many arrays that are equal. */
static void *many_arrays(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    void *parts[41];
    for (int i = 0; i < 40; i++)
        parts[i] = fx_zeros(2);
    parts[40] = fx_zeros(fx_dist_rank(&m->d) == 1 ? 4 : 3);
    m->got[m->n++] = fx_is_error(fx_dist_synchronize(&m->d, fxi_tuple(41, parts), 0));
    take_error(m);
    return NULL;
}

static void *other_sizes(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    fx_eval(fx_dist_allreduce(&m->d, fx_zeros(3, 2 + (fx_dist_rank(&m->d) == 2)), FX_REDUCE_SUM));
    take_error(m);
    return NULL;
}

static fx_status gives_up(const fx_custom_op *op, int n, const fx_custom_operand *in,
                          const fx_custom_operand *out)
{
    (void)op, (void)n, (void)in, (void)out;
    return FX_STATUS_FORMAT;
}

/* The update of member 1 fails before the evaluation, because its gradient is an error; that of
 * member 2 in the evaluation. */
static void *refuses(void *argument)
{
    member *m = argument;
    static const fx_custom_op broken = {
        .fxi_size = sizeof(fx_custom_op), .name = "broken", .forward = gives_up};
    FX_SCOPE;
    const int rank = fx_dist_rank(&m->d);
    fx_dense_layer *a = fx_dense(0, 0, .weight_array = fx_ones(1, 1), .bias = false);
    void *opt = fx_setup(fx_dist_optimiser(&m->d, fx_descent(0.25)), a);
    for (int i = 0; i < 3; i++) {
        FX_STEP; /* the next update would compute this one's results again */
        fx_array *w = a->weight, *x = fx_ones(1, 1);
        if (rank == 1 && i == 0)
            x = fx_ones(2, 3); /* does not fit */
        if (rank == 2 && i == 1)
            x = fx_custom(&broken, 1, &x, FX_DTYPE_F32, FX_DIMS(1, 1));
        m->got[m->n++] = fx_update(opt, a, fx_gradient(fx_sum(fx_matmul(x, w)), a));
        const fx_error e = fx_error_take();
        snprintf(m->message + strlen(m->message), sizeof m->message - strlen(m->message), "%.200s|",
                 e.message);
    }
    read_out(m, a->weight);
    return NULL;
}

static void a_member_that_cannot_go_on_is_named(void **state)
{
    (void)state;
    run_members(refuses);
    for (int k = 0; k < MEMBERS; k++) {
        const member *m = &members[k];
        /* All members get the same status, and the third update succeeds. */
        assert_true(m->got[0] == FX_STATUS_SHAPE && m->got[1] == FX_STATUS_FORMAT);
        assert_true(m->got[2] == FX_OK && m->got[3] == 0.75);
        assert_true(k == 1 || strstr(m->message, "rank 1 cannot continue: "));
        assert_non_null(strstr(m->message, "broken: its function returned"));
        assert_true(k == 2 || strstr(m->message, "rank 2 cannot continue: "));
    }
}

/* Rank 1 opens NCCL, the others add up numbers: 0-d Float32, which all header fields describe by 0.
 */
static void *opens_devices(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    char why[FXI_DIST_WHY] = "";
    if (fx_dist_rank(&m->d) == 1) {
        m->status = fxi_dist_share(&m->d, FX_OK, "", why, sizeof why);
        snprintf(m->message, sizeof m->message, "%s", why);
        return NULL;
    }
    fx_eval(fx_dist_allreduce(&m->d, fx_sum(fx_vector(1, 2)), FX_REDUCE_SUM));
    take_error(m);
    return NULL;
}

static void *too_late(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    fx_eval(fx_dist_allreduce(&m->d, fx_zeros(3, 2), FX_REDUCE_SUM));
    take_error(m);
    m->got[m->n++] = m->status;
    fx_dist_barrier(&m->d);
    take_error(m);
    return NULL;
}

static fx_status measures_nothing(const fxi_transport_group *g, const fxi_transport_call *c,
                                  bool link, int64_t runs, double *out_seconds, char *why,
                                  size_t size)
{
    (void)g, (void)c, (void)link, (void)runs, (void)why, (void)size;
    *out_seconds = 1;
    return FX_OK;
}

/* Rank 1 first measures more runs, and then the link. */
static void *measures_other_things(void *argument)
{
    static const fxi_transport timed = {.run = meet, .measure = measures_nothing};
    member *m = argument;
    const int rank = fx_dist_rank(&m->d);
    m->d.transport = &timed;
    m->got[m->n++] = fx_dist_time_sum(&m->d, 100, 5);
    m->got[m->n++] = fx_dist_time_sum(&m->d, 100, 5 + (rank == 1));
    take_error(m);
    m->got[m->n++] = rank == 1 ? fx_dist_time_link(&m->d, 100, 5) : fx_dist_time_sum(&m->d, 100, 5);
    const size_t n = strlen(m->message);
    snprintf(m->message + n, sizeof m->message - n, "|%s", fx_error_take().message);
    return NULL;
}

static void differences_are_named_on_all_members(void **state)
{
    (void)state;
    run_members(other_models);
    expect("array 3 on rank 1 is layers.1.weight, 4×5 Float32, but on rank 0 it is "
           "layers.1.weight, 3×5 Float32");
    assert_true(members[0].got[0] == FX_OK && members[2].got[0] == FX_OK);
    run_members(measures_other_things);
    expect("rank 1 calls a measurement of sums with 100 elements, 6 times, but rank 0 calls a "
           "measurement of sums with 100 elements, 5 times");
    expect("rank 1 calls a measurement of the link with 100 elements, 5 times, but rank 0 calls");
    for (int k = 0; k < MEMBERS; k++)
        assert_true(members[k].got[0] == 1 && isnan(members[k].got[1]) && isnan(members[k].got[2]));
    run_members(other_sizes);
    expect("rank 2 calls all_reduce (sum) of 3×3 Float32, but rank 0 calls all_reduce (sum) of 3×2 "
           "Float32");
}

/* Each operation of the comparison fails in turn, as if a member had stopped there. */
static void a_comparison_that_fails_is_reported(void **state)
{
    (void)state;
    int64_t at = 1;
    for (;; at++) {
        meeting.fails_at = at;
        run_members(many_arrays);
        if (members[0].status == FX_STATUS_ARGUMENT)
            break;
        for (int k = 0; k < MEMBERS; k++) {
            assert_true(members[k].got[0] == 1);
            assert_int_equal(members[k].status, FX_STATUS_IO);
            assert_non_null(strstr(members[k].message, "no answer from rank 1 within 2 s"));
        }
    }
    expect("array 41 on rank 1 is 40, 4 Float32, but on rank 0 it is 40, 3 Float32");
    assert_in_range(at, 10, 100);
}

static void *compares_versions(void *argument)
{
    member *m = argument;
    char why[FXI_DIST_WHY] = "";
    m->got[m->n++] = fxi_dist_same_version(&m->d, "1.2.3", why, sizeof why);
    m->got[m->n++] =
        fxi_dist_same_version(&m->d, fx_dist_rank(&m->d) ? "1.2.4" : "1.2.3", why, sizeof why);
    snprintf(m->message, sizeof m->message, "%s", why);
    return NULL;
}

static void versions_must_be_equal(void **state)
{
    (void)state;
    run_members(compares_versions);
    expect("rank 1 has version 1.2.4 of cflux, but rank 0 has version 1.2.3: start all ranks with");
    for (int k = 0; k < MEMBERS; k++)
        assert_true(members[k].got[0] == FX_OK && members[k].got[1] == FX_STATUS_UNSUPPORTED);
}

static void joining_by_nccl_is_no_sum(void **state)
{
    (void)state;
    run_members(opens_devices);
    expect("rank 1 calls fx_dist_init(FX_NCCL), but rank 0 calls all_reduce (sum) of Float32");
}

static void a_failure_ends_the_group(void **state)
{
    (void)state;
    meeting.fails_at = 2;
    run_members(too_late);
    expect("an earlier operation failed: no answer from rank 1 within 2 s");
    assert_true(members[0].got[0] == FX_STATUS_IO);
}

/* Gives the result that two equal members would get. */
static fx_status alone(const fxi_transport_group *g, const fxi_transport_call *c, char *why,
                       size_t size)
{
    const size_t bytes = (size_t)c->count * fx_dtype_size((fx_dtype)c->dtype);
    (void)g, (void)why, (void)size;
    memcpy(c->out, c->in, bytes);
    if (c->kind == FXI_COLLECTIVE_GATHER)
        memcpy((char *)c->out + bytes, c->in, bytes);
    return FX_OK;
}

/* A member without memory for an operation tells the others, which wait in it, and the group
 * continues. */
static void memory_that_is_short_is_told_to_all(void **state)
{
    (void)state;
    static const fxi_transport same = {.run = alone};
    fx_dist d;
    begin(&d, 0, 2, &same);
    fx_step step = {.cls = FX_CLASS_COLLECTIVE,
                    .out = {.dtype = FX_DTYPE_F32, .ndim = 1, .shape = {(int64_t)1 << 60}}};
    step.as.collective.what = (fx_collective){
        .communicator = &d.communicator, .kind = FX_COLLECTIVE_ALL_REDUCE, .fold = FX_REDUCE_SUM};
    char why[FXI_DIST_WHY] = "";
    float x = 1, y = 0;
    assert_int_equal(fxi_dist_run(&d.communicator, &step, &x, &y, why, sizeof why),
                     FX_STATUS_MEMORY);
    assert_non_null(strstr(why, "rank 0 cannot continue: no memory for 4611686018427387905 bytes"));
    step.out.shape[0] = 1;
    assert_int_equal(fxi_dist_run(&d.communicator, &step, &x, &y, why, sizeof why), FX_OK);
    assert_true(y == 1);
    fxi_dist_end(&d);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(2);
    assert_true(fx_is_error(fx_dist_bcast(NULL, x, 0)));
    assert_non_null(strstr(fx_error_take().message, "Call fx_dist_init first"));
    assert_null(fx_dist_backend(FX_MPI));
    assert_non_null(strstr(fx_error_take().message, "Backend `MPI` is not initialized"));
    assert_null(fx_dist_backend(FX_NCCL));
    assert_non_null(strstr(fx_error_take().message, "Backend `NCCL` is not initialized"));
    assert_null(fx_dist_backend(FX_DIST_AUTO));
    assert_non_null(strstr(fx_error_take().message, "Call fx_dist_init(FX_DIST_AUTO) first"));
    assert_int_equal(fx_dist_init((fx_dist_kind)7), FX_STATUS_ARGUMENT);
    fx_error_take();
    assert_int_equal(fx_dist_init(FX_MPI, .time_limit = -1), FX_STATUS_ARGUMENT);
    fx_error_take();
    assert_int_equal(fx_dist_init(FX_MPI, .wire = FX_DTYPE_F16), FX_STATUS_ARGUMENT);
    assert_non_null(
        strstr(fx_error_take().message, ".wire must be Float32 or BFloat16, got Float16"));
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    assert_int_equal(fx_dist_init(FX_MPI), FX_STATUS_UNSUPPORTED);
    assert_non_null(strstr(fx_error_take().message,
                           "there is no libcflux-mpi-openmpi" FXI_LIBRARY_SUFFIX " in"));
    unsetenv("OMPI_COMM_WORLD_SIZE");
    setenv("SLURM_STEP_NUM_TASKS", "3", 1);
    assert_int_equal(fx_dist_init(FX_MPI), FX_STATUS_UNSUPPORTED);
    assert_non_null(
        strstr(fx_error_take().message, "srun started 3 processes without an MPI interface: use"));
    unsetenv("SLURM_STEP_NUM_TASKS");
    assert_false(fx_dist_initialized(FX_MPI));
}

/* ---- one member, and parts of data ----------------------------------------------------------- */

static void a_group_of_one_is_free(void **state)
{
    (void)state;
    FX_SCOPE;
    setenv("FX_DIST_BACKEND", "NCCL", 1);
    assert_int_equal(fx_dist_init(FX_MPI), FX_OK);
    fx_dist *d = fx_dist_backend(FX_MPI);
    assert_true(d && fx_dist_initialized(FX_MPI) && !fx_dist_initialized(FX_NCCL));
    assert_true(fx_dist_initialized(FX_DIST_AUTO));
    assert_int_equal(fx_dist_init(FX_DIST_AUTO), FX_OK); /* by the variable */
    assert_true(fx_dist_initialized(FX_NCCL));
    assert_int_equal(fx_dist_init(FX_NCCL), FX_OK);
    assert_ptr_equal(fx_dist_backend(FX_NCCL), d);
    assert_ptr_equal(fx_dist_backend(FX_DIST_AUTO), d);
    unsetenv("FX_DIST_BACKEND");
    assert_true(fx_dist_total_workers(d) == 1 && fx_dist_rank(d) == 0 &&
                fx_dist_local_rank(d) == 0);
    fx_array *x = fx_vector(1, 2);
    assert_ptr_equal(fx_dist_allreduce(d, x, FX_REDUCE_MEAN), x);
    assert_ptr_equal(fx_dist_bcast(d, x, 0), x);
    assert_ptr_equal(fx_dist_reduce(d, x, FX_REDUCE_MAX, 0), x);
    assert_int_equal(fx_length(fx_dist_gather(d, x)), 2);
    assert_int_equal(fx_dist_barrier(d), FX_OK);
    assert_true(fx_is_error(fx_dist_bcast(d, x, 1)));
    assert_non_null(strstr(fx_error_take().message, "the root is 1, expected a rank below 1"));
    assert_true(isnan(fx_dist_time_sum(d, 4, 1)) && isnan(fx_dist_time_link(d, 4, 1)));
    assert_non_null(strstr(fx_error_take().message, "dist_time_sum: one process moves no data"));
    assert_true(isnan(fx_dist_time_sum(d, 0, 1)) && isnan(fx_dist_time_link(NULL, 1, 1)));
    assert_non_null(strstr(fx_error_take().message, "1 runs with 0 elements, expected at least 1"));
    char text[200];
    fx_show_text(fx_dist_optimiser(d, fx_adam(0.1)), text, sizeof text);
    assert_string_equal(text,
                        "DistributedOptimizer(Adam(eta=0.1, beta=(0.9, 0.999), epsilon=1.0e-8))");
    fx_show_text(fx_dist_optimiser(d, fx_mixed_precision(fx_adam(0.1))), text, sizeof text);
    assert_string_equal(text, "MixedPrecision{Float32}(DistributedOptimizer(Adam(eta=0.1, "
                              "beta=(0.9, 0.999), epsilon=1.0e-8)))");
    fx_summary(fx_dist_data(d, fx_ones(2, 3)), text, sizeof text);
    assert_string_equal(text, "Flux.DistributedUtils.DistributedDataContainer(2×3 Matrix{Float32}, "
                              "[1, 2, 3])");
    assert_true(fx_is_error(fx_optimiser_chain(fx_dist_optimiser(d, fx_adam()), fx_descent())));
    assert_non_null(strstr(fx_error_take().message, "it must be the outermost rule"));
}

static void check_parts(int n, int w, bool ceil)
{
    FX_SCOPE;
    fx_array *data = fx_range_dtype(FX_DTYPE_I32, 0, 1, n);
    int64_t next = 0, least = n, most = 0;
    for (int r = 0; r < w; r++) {
        FX_SCOPE;
        fx_dist d;
        int32_t got[201];
        begin(&d, r, w, NULL);
        fx_array *part = fx_getobs(ceil ? fx_dist_data_ceil(&d, data) : fx_dist_data(&d, data));
        const int64_t k = fx_length(part);
        assert_int_equal(fx_read_as(part, FX_DTYPE_I32, got, k), FX_OK);
        for (int64_t i = 0; i < k; i++, next++)
            assert_int_equal(got[i], next);
        const int64_t whole = (n + w - 1) / w, rest = n - r * whole;
        assert_true(!ceil || k == (rest < 0 ? 0 : rest < whole ? rest : whole));
        least = k < least ? k : least;
        most = k > most ? k : most;
        fxi_dist_end(&d);
    }
    assert_int_equal(next, n);
    assert_true(ceil || most - least <= 1);
}

static void parts_are_complete_disjoint_and_even(void **state)
{
    (void)state;
    for (int n = 0; n <= 200; n++)
        for (int w = 1; w <= 16; w++) {
            check_parts(n, w, false);
            if (n < 12 || n % 50 == 0)
                check_parts(n, w, true);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_is_short_is_told_to_all),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(a_group_of_one_is_free),
        cmocka_unit_test(parts_are_complete_disjoint_and_even),
        cmocka_unit_test(operations_give_what_they_say),
        cmocka_unit_test(the_order_does_not_depend_on_reads),
        cmocka_unit_test(operations_are_noted),
        cmocka_unit_test(sums_in_the_order_of_ranks),
        cmocka_unit_test(members_train_as_one),
        cmocka_unit_test(guards_hold_for_all),
        cmocka_unit_test(uneven_parts_train_as_one),
        cmocka_unit_test(a_weighted_update_is_one_evaluation),
        cmocka_unit_test(sums_of_gradients_are_exchanged_once),
        cmocka_unit_test(gradients_travel_in_16_bits),
        cmocka_unit_test(training_in_16_bits_is_near),
        cmocka_unit_test(weights_are_not_lost_in_halves),
        cmocka_unit_test(a_member_that_cannot_go_on_is_named),
        cmocka_unit_test(differences_are_named_on_all_members),
        cmocka_unit_test(a_comparison_that_fails_is_reported),
        cmocka_unit_test(versions_must_be_equal),
        cmocka_unit_test(joining_by_nccl_is_no_sum),
        cmocka_unit_test(a_failure_ends_the_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
