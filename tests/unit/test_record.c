/* test_record.c: recorded training steps (FX_RECORD): programs that change control flow, sizes,
 * literals, handles and reads at random compute the same bits as with FX_STEP; equal calls repeat
 * the recording and build no nodes. In this file a step is a training step. ctest: threads */
#include "dist_group.h"
#include "semantics_check.h"

#include <cflux.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

/* ---- a program with choices ------------------------------------------------------------------ */

enum { LOG = 4096, KEPT = 4 };

typedef struct program {
    uint64_t state;
    int mode; /* FXI_SCOPE_STEP or FXI_SCOPE_RECORD */
    int choice[16];
    void *model, *second, *opt, *opt2;
    fx_array *total, *kept[KEPT], *x, *y, *old;
    double log[LOG];
    int n;
} program;

static unsigned pick(program *p, unsigned n)
{
    p->state = p->state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(p->state >> 33) % n;
}

/* A choice that is mostly the same as in the previous training step. */
static int habit(program *p, int i, unsigned n, unsigned often)
{
    if (pick(p, often) == 0)
        p->choice[i] = (int)pick(p, n);
    return p->choice[i];
}

static void note(program *p, double v)
{
    if (p->n < LOG)
        p->log[p->n++] = v;
}

static void note_array(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path;
    (void)trainable;
    program *p = user;
    const float *v = fx_data(x);
    for (int64_t i = 0; v && i < fx_length(x) && i < 6; i++)
        note(p, v[i]);
}

static void note_error(program *p)
{
    const fx_error e = fx_error_take();
    note(p, e.status);
}

/* The group that the optimisers of a program average over, or NULL. */
static fx_dist *group;

static fx_rule *averaged(fx_rule *rule)
{
    return group ? fx_dist_optimiser(group, rule) : rule;
}

static void open_program(program *p, uint64_t seed, int mode)
{
    memset(p, 0, sizeof *p);
    p->state = seed;
    p->mode = mode;
    fx_seed(seed);
    fx_set(&p->model, (void *)fx_chain(fx_dense(3, 8, FX_TANH), fx_batchnorm(8), fx_dropout(0.25),
                                       fx_dense(8, 2)));
    fx_set(&p->second, (void *)fx_dense(2, 2));
    fx_set(&p->opt, fx_setup(averaged(fx_adam(.eta = 1e-2)), p->model));
    fx_set(&p->opt2, fx_setup(averaged(fx_momentum(.eta = 1e-2)), p->second));
    fx_set(&p->total, fx_zeros(1));
    fx_set(&p->x, fx_randn(3, 6));
    fx_set(&p->y, fx_randn(2, 6));
    fx_eval(fx_tuple(p->x, p->y, p->total, p->model, p->second));
}

static void close_program(program *p)
{
    void *const all[] = {p->model, p->second, p->opt, p->opt2, p->total, p->x, p->y, p->old};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        fx_release(all[i]);
    for (int i = 0; i < KEPT; i++)
        fx_release(p->kept[i]);
}

static fx_array *inner(program *p, fx_array *y, int kind)
{
    FX_SCOPE;
    fx_array *a = fx_mul(y, 1 + kind % 2);
    fx_array *b = fx_add(a, kind > 2 ? fx_square(y) : y);
    if (kind == 4)
        fx_set(&p->kept[0], a);
    return fx_keep(b);
}

static void new_batch(program *p)
{
    const int kind = habit(p, 0, 6, 4), n = kind == 5 ? 4 : 6;
    if (kind == 0)
        return;
    float x[3 * 6], y[2 * 6];
    for (int i = 0; i < 3 * n; i++)
        x[i] = (float)pick(p, 1000) / 500 - 1;
    for (int i = 0; i < 2 * n; i++)
        y[i] = (float)pick(p, 1000) / 500 - 1;
    FX_SCOPE;
    fx_set(&p->x, fx_from(FX_DTYPE_F32, x, 3, n));
    fx_set(&p->y, fx_from(FX_DTYPE_F32, y, 2, n));
}

static void read_between(program *p, fx_array *loss, fx_array *out)
{
    const int kind = habit(p, 1, 8, 4);
    if (kind == 1)
        note(p, fx_item(loss));
    if (kind == 2)
        note(p, fx_item(fx_sum(out)));
    if (kind == 3)
        fx_eval(out);
    if (kind == 4) {
        fx_matmul(out, out); /* sizes that do not match */
        note_error(p);
    }
    if (kind == 5)
        fx_want(out);
}

static void keep_some(program *p, fx_array *loss, fx_array *out)
{
    const int kind = habit(p, 2, 8, 5);
    if (kind == 1)
        fx_set(&p->total, fx_add(p->total, fx_reshape(loss, 1)));
    if (kind == 2)
        fx_set(&p->kept[1], loss);
    if (kind == 3)
        fx_set(&p->kept[2], fx_mul(out, 3));
    if (kind == 4) { /* pending after the step, and independent of all replaced values */
        fx_release(p->old);
        p->old = fx_retain(fx_add(p->x, 2));
    }
    if (kind == 5) { /* pending after the step, and lost by the update */
        fx_release(p->old);
        p->old = fx_retain(fx_neg(fx_square(out)));
    }
    if (kind == 6 && p->old) {
        note(p, fx_item(fx_sum(p->old)));
        note_error(p);
    }
}

static void update(program *p, fx_array *loss, fx_array *out)
{
    const int kind = habit(p, 3, 8, 4);
    void *g = fx_gradient(loss, p->model);
    if (kind == 0)
        return;
    if (kind == 1) {
        fx_array *of[] = {p->x}, *gx[1];
        fx_gradient_of(loss, of, 1, gx);
        fx_array *twice = fx_sum(fx_square(gx[0]));
        fx_update(p->opt, p->model, fx_gradient(fx_add(loss, twice), p->model));
    } else if (kind == 2) {
        fx_array *other = fx_mean(fx_abs(fx_call(p->second, out)));
        void *const states[] = {p->opt, p->opt2}, *const models[] = {p->model, p->second},
                    *const gradients[] = {g, fx_gradient(other, p->second)};
        fx_update_all(2, states, models, gradients);
    } else if (kind == 3) {
        fx_update(p->opt, p->model, g, .guard = loss);
    } else {
        fx_update(p->opt, p->model, g);
    }
    if (kind == 4) { /* another update in the same step */
        fx_array *again = fx_mean(fx_square(fx_call(p->second, p->y)));
        fx_update(p->opt2, p->second, fx_gradient(again, p->second));
        note(p, fx_item(again));
    }
}

static void step(program *p)
{
    new_batch(p);
    FXI_OPEN(p->mode);
    const int shape = habit(p, 4, 5, 6);
    if (pick(p, 3) == 0)
        fx_adjust_eta(p->opt, 1e-3 * (1 + pick(p, 9)));
    fx_array *x = shape == 1 ? fx_mul(p->x, 0.5 + 0.1 * pick(p, 5)) : p->x;
    fx_array *out = fx_call(p->model, x);
    if (shape == 2)
        out = inner(p, out, habit(p, 5, 5, 3));
    if (shape == 3)
        out = fx_add(out, fx_mul(fx_randn_like(out), 0.1));
    fx_array *loss = fx_mse(out, shape == 4 ? out : p->y);
    fx_array *unused = habit(p, 6, 2, 4) ? fx_maximum(out) : NULL;
    if (habit(p, 7, 2, 5))
        fx_want(loss);
    read_between(p, loss, out);
    keep_some(p, loss, out);
    update(p, loss, out);
    note(p, fx_item(loss));
    if (unused)
        note(p, fx_item(unused));
    note_error(p);
}

static void run_program(program *p, uint64_t seed, int mode, int steps)
{
    FX_SCOPE;
    fx_reclaim(); /* also frees the recordings of the previous program */
    open_program(p, seed, mode);
    for (int i = 0; i < steps; i++) {
        step(p);
        if (pick(p, 3) == 0)
            fx_visit(p->model, note_array, p);
    }
    fx_visit(p->model, note_array, p);
    note(p, fx_item(p->total));
    for (int i = 0; i < KEPT; i++)
        if (p->kept[i])
            note(p, fx_item(fx_sum(p->kept[i])));
    note_error(p);
    /* A pending exchange of the last training step runs before the next one. */
    if (group)
        note(p, fx_item(fx_dist_allreduce(group, fx_ones(1), FX_REDUCE_SUM)));
    close_program(p);
}

enum { SEEDS = 60, STEPS = 24 };

/* Exchanges of a group whose other member does nothing: one number for the operations so far and
 * their order. */
static double exchanges;

static fx_status alone(const fxi_transport_group *g, const fxi_transport_call *c, char *why,
                       size_t size)
{
    (void)g, (void)why, (void)size;
    if (c->kind <= FX_COLLECTIVE_BROADCAST)
        exchanges = fmod(exchanges * 31 + (double)(c->kind * 8 + c->fold + c->count * 64), 1e9 + 7);
    memcpy(c->out, c->in, (size_t)c->count * fx_dtype_size((fx_dtype)c->dtype));
    return FX_OK;
}

static fx_dist the_group;

static void open_group(void)
{
    static const fxi_transport link = {.run = alone};
    const fxi_transport_group g = {
        .size = 2, .local_size = 2, .any_thread = true, .library = "a link"};
    fxi_dist_begin(&the_group, &link, &g, 2);
    group = &the_group;
}

static void close_group(void)
{
    fx_dist_sync_norms(NULL);
    fxi_dist_end(&the_group);
    group = NULL;
}

static void random_programs(void)
{
    static program a, b;
    int64_t repeated = 0, notes = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        exchanges = 0;
        run_program(&a, seed, FXI_SCOPE_STEP, STEPS);
        note(&a, exchanges);
        const fx_counters before = fx_stats();
        exchanges = 0;
        run_program(&b, seed, FXI_SCOPE_RECORD, STEPS);
        note(&b, exchanges);
        repeated += (int64_t)(fx_stats().repeated_evals - before.repeated_evals);
        notes += a.n;
        assert_int_equal(a.n, b.n);
        for (int i = 0; i < a.n; i++)
            if (memcmp(&a.log[i], &b.log[i], sizeof a.log[i]) != 0 &&
                !(a.log[i] != a.log[i] && b.log[i] != b.log[i]))
                fail_msg("seed %d: number %d of %d is %.9g, with FX_STEP %.9g", (int)seed, i, a.n,
                         b.log[i], a.log[i]);
    }
    printf("%d evaluations repeated, %d numbers\n", (int)repeated, (int)notes);
    assert_true(repeated > SEEDS * STEPS / 8);
}

static void random_programs_compute_the_same_bits(void **state)
{
    (void)state;
    random_programs();
}

/* The same with averages over a group, and with norms over the batches of all members: the forward
 * pass, the gradient and the update exchange arrays, always in one order. */
static void random_programs_of_a_group(void **state)
{
    (void)state;
    open_group();
    random_programs();
    fx_dist_sync_norms(group);
    random_programs();
    close_group();
}

/* ---- what repeats ---------------------------------------------------------------------------- */

enum { BATCH = 8 };

/* Runs n training steps of a small network, with new data, learning rate and mask in each. Returns
 * the final loss. */
static double train(int mode, int n)
{
    FX_SCOPE;
    fx_seed(5);
    fx_chain_layer *model =
        fx_chain(fx_dense(2, 6, FX_TANH), fx_batchnorm(6), fx_dropout(0.2), fx_dense(6, 1));
    void *opt = fx_setup(fx_adam(.eta = 0.01), model);
    double last = 0;
    for (int i = 0; i < n; i++) {
        FX_SCOPE;
        fx_array *x = fx_randn(2, BATCH), *y = fx_sum(x, .dims = FX_AXES(0));
        fx_eval(fx_tuple(x, y));
        fx_adjust_eta(opt, 0.01 / (1 + i));
        FXI_OPEN(mode);
        fx_array *loss = fx_want(fx_mse(fx_call(model, x), y));
        fx_update(opt, model, fx_gradient(loss, model));
        last = fx_item(loss);
    }
    return last;
}

/* each: evaluations of a training step. */
static void steps_build_nothing(int each)
{
    FX_SCOPE;
    fx_chain_layer *model = fx_chain(fx_dense(2, 3, FX_TANH), fx_batchnorm(3), fx_dense(3, 2));
    void *opt = fx_setup(averaged(fx_adam(.eta = 0.01)), model);
    fx_array *x = fx_randn(2, BATCH), *y = fx_randn(2, BATCH);
    fx_eval(fx_tuple(x, y));
    fx_counters before = fx_stats();
    for (int i = 0; i < 23; i++) {
        if (i == 3) /* the state of the optimiser is pending in the first step */
            before = fx_stats();
        FX_RECORD;
        fx_array *loss = fx_want(fx_mse(fx_call(model, x), y));
        fx_update(opt, model, fx_gradient(loss, model));
        assert_true(isfinite(fx_item(loss)));
    }
    const fx_counters after = check_same_plans(&before, 20 * each);
    assert_int_equal(after.nodes, before.nodes);
    assert_int_equal(after.repeated_evals - before.repeated_evals, 20 * each);
    assert_int_equal(after.donation_misses, before.donation_misses);
}

static void a_step_that_repeats_builds_nothing(void **state)
{
    (void)state;
    steps_build_nothing(1);
}

static void a_step_of_a_group_builds_nothing(void **state)
{
    (void)state;
    open_group();
    exchanges = 0;
    steps_build_nothing(1);
    assert_true(exchanges != 0);
    /* The number of observations of a norm over all members needs no evaluation of its own. */
    fx_dist_sync_norms(group);
    steps_build_nothing(1);
    close_group();
}

/* The exchange in the backward pass has no handle when the update runs. The next training step must
 * still see that it has run. Returns the sum of the losses. */
static double exchange_in_the_loss(int mode)
{
    FX_SCOPE;
    fx_seed(3);
    void *model = (void *)fx_dense(4, 3), *opt = fx_setup(fx_descent(0.01), model);
    fx_array *x = fx_rand(4, 5);
    fx_eval(fx_tuple(x, model));
    double sum = 0;
    for (int i = 0; i < 6; i++) {
        FXI_OPEN(mode);
        fx_array *h = fx_dist_allreduce(group, fx_call(model, x), FX_REDUCE_SUM);
        fx_array *loss = fx_sum(fx_square(h));
        assert_int_equal(fx_update(opt, model, fx_gradient(loss, model)), FX_OK);
        sum += fx_item(loss);
    }
    return sum;
}

static void exchanges_without_a_handle(void **state)
{
    (void)state;
    open_group();
    exchanges = 0;
    const double want = exchange_in_the_loss(FXI_SCOPE_STEP), order = exchanges;
    const uint64_t before = fx_stats().repeated_evals;
    exchanges = 0;
    assert_true(exchange_in_the_loss(FXI_SCOPE_RECORD) == want && isfinite(want));
    assert_true(exchanges == order);
    assert_true(fx_stats().repeated_evals >= before + 4);
    close_group();
}

/* The applications of a chain of rules to the parameters are not skipped together, but all of them
 * use the literals of the first one, whose part is skipped. */
static void literals_that_a_chain_of_rules_shares(void **state)
{
    (void)state;
    enum { MEMBERS = 6 };
    float got[2][MEMBERS];
    for (int recorded = 0; recorded < 2; recorded++) {
        FX_SCOPE;
        fx_seed(11);
        fx_dense_layer *first = fx_dense(2, 3, FX_TANH), *second = fx_dense(3, 2);
        void *model = fx_chain(first, second);
        void *opt = fx_setup(fx_optimiser_chain(fx_weight_decay(.lambda = 0.1), fx_adam()), model);
        fx_array *x = fx_randn(2, BATCH), *y = fx_randn(2, BATCH);
        fx_eval(fx_tuple(x, y));
        uint64_t before = 0;
        for (int i = 0; i < 13; i++) {
            if (i == 3)
                before = fx_stats().repeated_evals;
            FXI_OPEN(recorded ? FXI_SCOPE_RECORD : FXI_SCOPE_STEP);
            fx_array *loss = fx_mse(fx_call(model, x), y);
            assert_int_equal(fx_update(opt, model, fx_gradient(loss, model)), FX_OK);
        }
        assert_int_equal(fx_stats().repeated_evals - before, recorded ? 10 : 0);
        memcpy(got[recorded], fx_data(first->weight), MEMBERS * sizeof(float));
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

static void new_data_and_numbers_repeat(void **state)
{
    (void)state;
    const double want = train(FXI_SCOPE_STEP, 12);
    const fx_counters before = fx_stats();
    assert_true(train(FXI_SCOPE_RECORD, 12) == want);
    assert_int_equal(fx_stats().repeated_evals - before.repeated_evals, 10);
}

static void *train_here(void *user)
{
    *(double *)user = train(FXI_SCOPE_RECORD, 12);
    return NULL;
}

static void each_thread_records_for_itself(void **state)
{
    (void)state;
    enum { THREADS = 3 };
    pthread_t thread[THREADS];
    double got[THREADS];
    const double want = train(FXI_SCOPE_STEP, 12);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, train_here, &got[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_true(got[i] == want);
    }
}

/* A repeated step takes the model's arrays, their gradients and the leaves of the state from the
 * recorded one, without a walk. These changes must be noticed. Each is made before the numbered
 * step. */
enum { CHANGES = 40 };

typedef struct changing {
    fx_chain_layer *model;
    fx_dense_layer *a, *b;
    void *opt;
    fx_array *spare;
} changing;

static void change_model(changing *w, int i)
{
    void **items = w->model->layers.items;
    if (i == 6 || i == 9) { /* layers change places */
        void *first = items[0];
        items[0] = items[1];
        items[1] = first;
    } else if (i == 12) { /* another array of the same size */
        fx_set(&w->b->weight, w->spare);
    } else if (i == 15) { /* two layers share an array */
        fx_set(&w->a->weight, w->b->weight);
        fx_set(&w->opt, fx_setup(fx_adam(.eta = 0.01), w->model));
    } else if (i == 18) { /* one layer twice */
        fx_release(items[1]);
        items[1] = fx_retain(items[0]);
        fx_set(&w->opt, fx_setup(fx_adam(.eta = 0.01), w->model));
    } else if (i == 30) {
        fx_freeze(fx_child(w->opt, 0));
    } else if (i == 33) {
        fx_thaw(w->opt);
    }
}

static void change_gradient(changing *w, int i, void *gradient)
{
    fx_chain_layer *g = gradient;
    fx_dense_layer *first = g->layers.items[0], *second = g->layers.items[1];
    (void)w;
    if (i == 21 || i == 22) { /* gradients change places */
        fx_array *weight = first->weight;
        first->weight = second->weight;
        second->weight = weight;
    } else if (i == 25) {
        fx_set(&first->bias, NULL);
    } else if (i == 27) {
        fx_set(&first->weight, fx_mul(first->weight, 2));
    }
}

static int changing_steps(int mode, double *got)
{
    FX_SCOPE;
    fx_seed(12);
    changing w = {.a = fx_dense(4, 4, FX_TANH), .b = fx_dense(4, 4, FX_TANH)};
    w.model = fx_chain(w.a, w.b);
    w.spare = fx_randn(4, 4);
    fx_array *x = fx_randn(4, BATCH);
    fx_eval(fx_tuple(w.model, x, w.spare));
    fx_set(&w.opt, fx_setup(fx_adam(.eta = 0.01), w.model));
    int n = 0, repeated = 0;
    for (int i = 0; i < CHANGES; i++) {
        change_model(&w, i);
        const uint64_t before = fx_stats().repeated_evals;
        FXI_OPEN(mode);
        fx_array *loss = fx_want(fx_mean(fx_square(fx_call(w.model, x))));
        void *gradient = fx_gradient(loss, w.model);
        change_gradient(&w, i, gradient);
        fx_update(w.opt, w.model, gradient);
        got[n++] = fx_item(loss);
        got[n++] = fx_item(fx_sum(w.a->weight));
        got[n++] = fx_item(fx_sum(w.b->bias));
        repeated += fx_stats().repeated_evals > before;
    }
    fx_set(&w.opt, NULL);
    return repeated;
}

static void models_gradients_and_states_that_change(void **state)
{
    (void)state;
    double want[3 * CHANGES], got[3 * CHANGES];
    assert_int_equal(changing_steps(FXI_SCOPE_STEP, want), 0);
    assert_true(changing_steps(FXI_SCOPE_RECORD, got) > CHANGES / 4);
    for (int i = 0; i < 3 * CHANGES; i++)
        if (memcmp(&want[i], &got[i], sizeof *got) != 0)
            fail_msg("step %d: %.9g, with FX_STEP %.9g", i / 3, got[i], want[i]);
}

/* Two models that one update changes. Their states are frozen, thawed and exchanged. */
enum { TOGETHER = 30 };

static int steps_of_two(int mode, double *got)
{
    FX_SCOPE;
    fx_seed(13);
    void *models[] = {fx_dense(3, 3, FX_TANH), fx_chain(fx_dense(3, 3), fx_dense(3, 2))};
    void *const rule = fx_adam(.eta = 0.01);
    void *states[] = {fx_setup(rule, models[0]), fx_setup(rule, models[1])};
    fx_array *x = fx_randn(3, BATCH);
    fx_eval(fx_tuple(models[0], models[1], x));
    int repeated = 0;
    for (int i = 0; i < TOGETHER; i++) {
        if (i == 6)
            fx_freeze(fx_child(states[1], 0));
        if (i == 12)
            fx_freeze(states[0]);
        if (i == 18)
            fx_thaw(states[0]);
        const int first = i > 23 && i % 2; /* the order of the trees changes in each step */
        const uint64_t before = fx_stats().repeated_evals;
        FXI_OPEN(mode);
        fx_array *y = fx_call(models[0], x), *loss = fx_mean(fx_square(fx_call(models[1], y)));
        fx_want(loss);
        void *gradients[] = {fx_gradient(loss, models[0]), fx_gradient(loss, models[1])};
        assert_int_equal(fx_update_all(2, (void *[]){states[first], states[1 - first]},
                                       (void *[]){models[first], models[1 - first]},
                                       (void *[]){gradients[first], gradients[1 - first]}),
                         FX_OK);
        got[2 * i] = fx_item(loss);
        got[2 * i + 1] = fx_item(fx_sum(((fx_dense_layer *)models[0])->weight));
        repeated += fx_stats().repeated_evals > before;
    }
    return repeated;
}

static void models_that_are_updated_together(void **state)
{
    (void)state;
    double want[2 * TOGETHER], got[2 * TOGETHER];
    assert_int_equal(steps_of_two(FXI_SCOPE_STEP, want), 0);
    assert_true(steps_of_two(FXI_SCOPE_RECORD, got) > TOGETHER / 2);
    assert_memory_equal(want, got, sizeof want);
}

static void *loss_of_batch(void *model, const fx_batch *batch, void *user)
{
    (void)batch;
    return fx_mean(fx_square(fx_call(model, user)));
}

/* fx_trainstep records, and its results outlive the step. */
static void steps_of_trainstep(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(14);
    fx_dense_layer *m = fx_dense(3, 2, FX_TANH);
    fx_seed(14);
    fx_dense_layer *n = fx_dense(3, 2, FX_TANH);
    void *opt = fx_setup(fx_adam(.eta = 0.01), m), *opt2 = fx_setup(fx_adam(.eta = 0.01), n);
    fx_array *x = fx_randn(3, BATCH), *loss[2][6];
    const fx_batch batch = {0};
    fx_eval(fx_tuple(m, n, x));
    const uint64_t before = fx_stats().repeated_evals;
    for (int i = 0; i < 6; i++) {
        void *both = i % 2 ? fx_trainstep_withgradient(loss_of_batch, m, &batch, opt, x)
                           : fx_trainstep(loss_of_batch, m, &batch, opt, x);
        loss[0][i] = i % 2 ? fx_child(both, 0) : both;
    }
    assert_int_equal(fx_stats().repeated_evals - before,
                     4); /* the state was pending in the first */
    for (int i = 0; i < 6; i++) {
        FX_STEP;
        fx_array *l = fx_want(loss_of_batch(n, NULL, x));
        fx_update(opt2, n, fx_gradient(l, n), .guard = l);
        loss[1][i] = fx_keep(l);
    }
    for (int i = 0; i < 6; i++)
        assert_true(fx_item(loss[0][i]) == fx_item(loss[1][i]));
}

enum { REPLACED = 6 };

/* The update of a recorded step computes a new bias that is still pending, and then replaces it. */
static void replacing_steps(int mode, double got[])
{
    FX_SCOPE;
    fx_seed(5);
    fx_dense_layer *model = fx_dense(4, 8);
    fx_array *x = fx_randn(4, BATCH);
    fx_eval(fx_tuple(model, x));
    void *opt = fx_setup(fx_adam(.eta = 0.01), model);
    for (int i = 0; i < REPLACED; i++) {
        FXI_OPEN(mode);
        fx_array *loss = fx_want(fx_mean(fx_square(fx_call(model, x))));
        void *gradient = fx_gradient(loss, model);
        fx_set(&model->bias, fx_zeros(8));
        assert_int_equal(fx_update(opt, model, gradient, .guard = loss), FX_OK);
        got[2 * i] = fx_item(loss);
        got[2 * i + 1] = fx_item(fx_sum(model->bias));
    }
}

static void parameters_replaced_by_pending_values(void **state)
{
    (void)state;
    double want[2 * REPLACED], got[2 * REPLACED];
    replacing_steps(FXI_SCOPE_STEP, want);
    replacing_steps(FXI_SCOPE_RECORD, got);
    assert_memory_equal(want, got, sizeof want);
}

/* a and b have one shape. They are exchanged, and in some steps both are the same value. */
static void operands_that_change_places(void **state)
{
    (void)state;
    double got[2][12];
    for (int recorded = 0; recorded < 2; recorded++) {
        FX_SCOPE;
        fx_seed(3);
        fx_dense_layer *m = fx_dense(4, 4);
        fx_array *a = fx_randn(4, 4), *b = fx_randn(4, 4);
        void *opt = fx_setup(fx_descent(.eta = 0.1), m);
        fx_eval(fx_tuple(a, b, m));
        for (int i = 0; i < 12; i++) {
            FXI_OPEN(recorded ? FXI_SCOPE_RECORD : FXI_SCOPE_STEP);
            fx_array *l = i / 2 % 3 == 1 ? b : a, *r = i / 2 % 3 == 0 ? b : i / 2 % 3 == 1 ? a : l;
            r = i > 9 ? m->weight : r;
            fx_array *loss = fx_want(fx_mean(fx_square(fx_sub(fx_matmul(m->weight, l), r))));
            fx_update(opt, m, fx_gradient(loss, m));
            got[recorded][i] = fx_item(loss);
        }
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

static void kept_results_keep_their_values(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { STEPS_KEPT = 6 };
    fx_dense_layer *m = fx_dense(3, 3);
    void *opt = fx_setup(fx_descent(.eta = 0.1), m);
    fx_array *x = fx_randn(3, 4), *loss[STEPS_KEPT] = {NULL};
    double seen[STEPS_KEPT];
    fx_eval(x);
    for (int i = 0; i < STEPS_KEPT; i++) {
        FX_RECORD;
        fx_array *l = fx_want(fx_mean(fx_square(fx_call(m, x))));
        fx_update(opt, m, fx_gradient(l, m));
        seen[i] = fx_item(l);
        loss[i] = fx_retain(l);
    }
    fx_array *g = NULL;
    for (int i = 0; i < STEPS_KEPT; i++) {
        assert_true(fx_item(loss[i]) == seen[i]);
        assert_true(i == 0 || seen[i] < seen[i - 1]);
    }
    /* Results of a recorded step have no history after it, like those of other steps. */
    assert_int_equal(fx_gradient_of(loss[STEPS_KEPT - 1], &m->weight, 1, &g), FX_STATUS_STATE);
    fx_error_take();
    for (int i = 0; i < STEPS_KEPT; i++)
        fx_release(loss[i]);
}

static void checkpointed_parts_and_reclaims(void **state)
{
    (void)state;
    double got[2];
    for (int recorded = 0; recorded < 2; recorded++) {
        FX_SCOPE;
        fx_seed(9);
        fx_chain_layer *first = fx_chain(fx_dense(3, 5, FX_TANH), fx_dropout(0.5));
        fx_dense_layer *second = fx_dense(5, 1);
        fx_chain_layer *m = fx_chain(first, second);
        void *opt = fx_setup(fx_adam(.eta = 0.01), m);
        fx_array *x = fx_randn(3, 4);
        fx_eval(x);
        for (int i = 0; i < 8; i++) {
            FXI_OPEN(recorded ? FXI_SCOPE_RECORD : FXI_SCOPE_STEP);
            fx_array *out = fx_call(second, fx_checkpointed(first, x));
            fx_array *loss = fx_want(fx_mean(fx_square(out)));
            if (i == 4)
                fx_reclaim();
            fx_update(opt, m, fx_gradient(loss, m));
            got[recorded] = fx_item(loss);
        }
        fx_reclaim();
    }
    assert_true(got[0] == got[1]);
}

/* The sweep makes both gradients of atan2 although only one is asked for. The program gets the
 * other one in the third step, and reads it after the update. */
static void gradients_of_other_arrays(void **state)
{
    (void)state;
    double got[2];
    for (int recorded = 0; recorded < 2; recorded++) {
        FX_SCOPE;
        fx_seed(3);
        fx_array *w = fx_rand(3, 4), *v = fx_rand(3, 4), *u = fx_rand(3, 4);
        fx_eval(fx_tuple(w, v, u));
        void *opt = fx_setup(fx_descent(.eta = 0.1), w);
        for (int i = 0; i < 3; i++) {
            FXI_OPEN(recorded ? FXI_SCOPE_RECORD : FXI_SCOPE_STEP);
            fx_array *loss = fx_sum(fx_mul(fx_atan2(w, v), u)), *of[] = {w, v}, *g[2], *kept = NULL;
            {
                FX_SCOPE;
                assert_int_equal(fx_gradient_of(loss, of, i < 2 ? 1 : 2, g), FX_OK);
                kept = i < 2 ? NULL : fx_keep(g[1]);
            }
            fx_update(opt, w, fx_gradient(loss, w));
            if (kept)
                got[recorded] = fx_item(fx_sum(kept));
        }
    }
    assert_true(got[0] == got[1]);
}

/* One step at line 1 of the given file. Did its update repeat a recorded one? */
static bool step_in(const char *file, fx_dense_layer *m, void *opt, fx_array *x)
{
    const uint64_t before = fx_stats().repeated_evals;
    FXI_OPEN_AT(FXI_SCOPE_RECORD, file, 1);
    fx_update(opt, m, fx_gradient(fx_mean(fx_square(fx_call(m, x))), m));
    return fx_stats().repeated_evals > before;
}

/* A plugin that is unloaded takes the names of its files with it. */
static void names_of_files_may_go_away(void **state)
{
    (void)state;
    FX_SCOPE;
    char gone[] = "one.c";
    fx_dense_layer *m = fx_dense(3, 3);
    void *opt = fx_setup(fx_descent(.eta = 0.1), m);
    fx_array *x = fx_randn(3, 4);
    fx_eval(x);
    fx_reclaim();
    for (int i = 0; i < 2; i++)
        step_in(gone, m, opt, x);
    memset(gone, 'x', sizeof gone - 1);
    assert_true(step_in("one.c", m, opt, x));
    fx_reclaim();
}

static fx_array *passed_on;

static void *release_here(void *unused)
{
    (void)unused;
    fx_release(passed_on);
    return NULL;
}

/* The thread that frees a value of a step is not the one that records the step. */
static void values_that_another_thread_frees(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = fx_dense(3, 3);
    void *opt = fx_setup(fx_descent(.eta = 0.1), m);
    for (int i = 0; i < 4; i++) {
        FX_RECORD;
        {
            FX_SCOPE;
            fx_array *drawn = fx_rand(3, 4);
            fx_eval(drawn); /* a value without operands */
            passed_on = fx_retain(drawn);
        }
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, release_here, NULL), 0);
        pthread_join(thread, NULL);
        fx_array *loss = fx_want(fx_mean(fx_square(fx_call(m, fx_randn(3, 4)))));
        fx_update(opt, m, fx_gradient(loss, m));
        assert_true(isfinite(fx_item(loss)));
    }
}

/* fx_zeros_like gives its result the device of the other array. */
static void zeros_like_an_array_of_a_device(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_int_equal(fx_use("ref"), FX_OK);
    fx_device *ref = fx_device_find("ref");
    fx_dense_layer *m = fx_to(ref, fx_dense(3, 3));
    void *opt = fx_setup(fx_descent(.eta = 0.1), m);
    fx_array *x = fx_to(ref, fx_randn(3, 4));
    const uint64_t before = fx_stats().repeated_evals;
    for (int i = 0; i < 10; i++) {
        FX_RECORD;
        fx_array *y = fx_call(m, x);
        fx_array *loss = fx_mean(fx_square(fx_add(y, fx_zeros_like(y))));
        fx_update(opt, m, fx_gradient(loss, m));
    }
    assert_int_equal(fx_stats().repeated_evals - before, 9);
}

/* A value of literals is computed on the CPU and then combined with arrays of another device: the
 * evaluation there copies it, in a repeated step too. */
static void literals_that_meet_two_devices(void **state)
{
    (void)state;
    enum { MEETINGS = 5 };
    double got[2][MEETINGS];
    for (int recorded = 0; recorded < 2; recorded++) {
        FX_SCOPE;
        fx_seed(3);
        fx_array *x = fx_to(fx_device_get("ref", 0), fx_randn(4));
        for (int i = 0; i < MEETINGS; i++) {
            const uint64_t before = fx_stats().repeated_evals;
            {
                FXI_OPEN(recorded ? FXI_SCOPE_RECORD : FXI_SCOPE_STEP);
                fx_array *number = fx_mul(fx_full(i + 1, 4), 0.5);
                fx_array *once = fx_mul(number, x), *twice = fx_add(once, number);
                got[recorded][i] = fx_item(fx_sum(number));
                got[recorded][i] += 100 * fx_item(fx_sum(fx_square(twice)));
            }
            assert_int_equal(fx_stats().repeated_evals - before, recorded && i > 0 ? 2 : 0);
        }
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

/* Without .sinks an update does not compute the pending result, which may be lost then. */
static void sinks_of_some_steps(void **state)
{
    static const bool sinks[] = {false, false, true, true, true, false, true};
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = fx_dense(4, 3);
    void *opt = fx_setup(fx_descent(.eta = 0.1), m);
    fx_array *x = fx_ones(4, 2);
    fx_eval(x);
    for (size_t i = 0; i < sizeof sinks / sizeof *sinks; i++) {
        FX_SCOPE;
        fx_array *kept;
        double right;
        {
            FX_SCOPE;
            right = 2 * fx_item(fx_sum(fx_call(m, x)));
        }
        {
            FX_RECORD;
            fx_array *y = fx_call(m, x);
            kept = fx_retain(fx_mul(y, 2));
            fx_update(opt, m, fx_gradient(fx_sum(y), m), .sinks = sinks[i]);
        }
        const double sum = fx_item(fx_sum(kept));
        const fx_status status = fx_error_take().status;
        assert_true(!sinks[i] || (status == FX_OK && fabs(sum - right) < 1e-4));
        fx_release(kept);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_compute_the_same_bits),
        cmocka_unit_test(random_programs_of_a_group),
        cmocka_unit_test(a_step_that_repeats_builds_nothing),
        cmocka_unit_test(a_step_of_a_group_builds_nothing),
        cmocka_unit_test(exchanges_without_a_handle),
        cmocka_unit_test(literals_that_a_chain_of_rules_shares),
        cmocka_unit_test(new_data_and_numbers_repeat),
        cmocka_unit_test(each_thread_records_for_itself),
        cmocka_unit_test(models_gradients_and_states_that_change),
        cmocka_unit_test(models_that_are_updated_together),
        cmocka_unit_test(steps_of_trainstep),
        cmocka_unit_test(parameters_replaced_by_pending_values),
        cmocka_unit_test(operands_that_change_places),
        cmocka_unit_test(kept_results_keep_their_values),
        cmocka_unit_test(checkpointed_parts_and_reclaims),
        cmocka_unit_test(gradients_of_other_arrays),
        cmocka_unit_test(names_of_files_may_go_away),
        cmocka_unit_test(values_that_another_thread_frees),
        cmocka_unit_test(zeros_like_an_array_of_a_device),
        cmocka_unit_test(literals_that_meet_two_devices),
        cmocka_unit_test(sinks_of_some_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
