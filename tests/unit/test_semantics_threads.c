/* test_semantics_threads.c: what several threads may do at the same time. ctest: threads
 *
 * Threads read one model at the same time, read snapshots while another thread updates, train
 * models of their own, hand arrays over. Numbers are compared bit by bit with the same work done
 * alone; the thread sanitizer finds races. Only the main thread uses assertions, because a failed
 * one jumps out of the test; other threads count failures.
 */
#include "evaluate.h"
#include "semantics_check.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { MANY = 6 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWER = 10 };
#else
enum { SLOWER = 1 };
#endif

static void run_threads(int n, void *(*body)(void *), void *arguments, size_t size)
{
    pthread_t threads[MANY];
    for (int i = 0; i < n; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, body, (char *)arguments + (size_t)i * size), 0);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

static fx_chain_layer *network(void)
{
    return fx_chain(fx_dense(5, 16, FX_TANH), fx_batchnorm(16), fx_dropout(0.3), fx_dense(16, 3));
}

static fx_array *input(int k)
{
    return fx_cos(fx_add(fx_reshape(fx_range(0, 0.37, 40), 5, 8), k));
}

/* ---- many readers ---------------------------------------------------------------------------- */

typedef struct reader {
    fx_chain_layer *model;
    int number, wrong;
    float outputs[20][24], gradients[20][80];
} reader;

static void *read_model(void *argument)
{
    reader *r = argument;
    for (int k = 0; k < 20; k++) {
        FX_SCOPE;
        char text[400];
        fx_array *y = fx_call(r->model, input(k));
        fx_chain_layer *g = fx_gradient(fx_sum(fx_square(y)), r->model);
        const fx_dense_layer *first = fx_child(g, 0);
        r->wrong += fx_read_into(y, r->outputs[k], sizeof r->outputs[k]) != FX_OK;
        r->wrong += fx_read_into(first->weight, r->gradients[k], sizeof r->gradients[k]) != FX_OK;
        r->wrong += fx_show_text(r->model, text, sizeof text) == 0;
        r->wrong += fx_parameter_count(r->model) != 5 * 16 + 16 + 32 + 48 + 3;
        r->wrong += fx_data(fx_transpose(first->weight)) == NULL;
        fx_error_take();
    }
    return NULL;
}

static void many_threads_read_one_model(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_chain_layer *m = network();
    fx_eval(m);
    reader *r = calloc(MANY + 1, sizeof *r);
    for (int i = 0; i <= MANY; i++)
        r[i].model = m, r[i].number = i;
    read_model(&r[MANY]); /* alone */
    assert_int_equal(r[MANY].wrong, 0);
    run_threads(MANY, read_model, r, sizeof *r);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(r[i].wrong, 0);
        assert_memory_equal(r[i].outputs, r[MANY].outputs, sizeof r->outputs);
        assert_memory_equal(r[i].gradients, r[MANY].gradients, sizeof r->gradients);
    }
    free(r);
}

/* A dense copy of one strided value, made by all at once. */
typedef struct viewer {
    fx_array *x;
    const float *data;
} viewer;
static void *view(void *argument)
{
    viewer *v = argument;
    v->data = fx_data(v->x);
    return NULL;
}

static void many_threads_ask_for_data(void **state)
{
    (void)state;
    FX_SCOPE;
    for (int k = 0; k < 20; k++) {
        fx_array *x = fx_transpose(fx_reshape(fx_range(0, 1, 400), 20, 20));
        viewer v[MANY];
        fx_eval(x);
        for (int i = 0; i < MANY; i++)
            v[i].x = x;
        run_threads(MANY, view, v, sizeof *v);
        for (int i = 0; i < MANY; i++)
            assert_ptr_equal(v[i].data, v[0].data);
        SAME((double)v[0].data[1], 20);
    }
}

/* ---- pending arrays -------------------------------------------------------------------------- */

typedef struct taker {
    fx_array *x;
    fx_dense_layer *model;
    fx_status in_operation, in_read, in_call, in_eval, in_gradient;
    fx_error error;
    double value;
} taker;

static void *take_pending(void *argument)
{
    taker *t = argument;
    FX_SCOPE;
    fx_array *y = fx_add(t->x, 1), *g = NULL;
    t->in_operation = fx_array_status(y);
    t->error = fx_error_take();
    fx_item_get(t->x, &t->value);
    t->in_read = fx_error_take().status;
    t->in_call = fx_array_status(fx_call(t->model, fx_ones(2)));
    fx_error_take();
    t->in_eval = fx_eval(t->x);
    fx_error_take();
    fx_array *own = fx_ones(1);
    t->in_gradient = fx_gradient_of(t->x, &own, 1, &g);
    fx_error_take();
    return NULL;
}

static void a_pending_array_is_refused(void **state)
{
    (void)state;
    FX_SCOPE;
    /* Belongs to the caller, so only fx_eval computes it. */
    fx_array *pending = fx_mul(fx_ones(1, 2), 2);
    taker t = {.x = fx_sum(fx_ones(3)), .model = fx_dense(2, 1, .weight_array = pending)};
    run_threads(1, take_pending, &t, sizeof t);
    assert_int_equal(t.in_operation, FX_STATUS_STATE);
    assert_non_null(strstr(t.error.message, "add: an argument is still pending in another thread"));
    assert_int_equal(t.in_read, FX_STATUS_STATE);
    assert_true(isnan(t.value));
    assert_int_equal(t.in_call, FX_STATUS_STATE);
    assert_int_equal(t.in_eval, FX_STATUS_STATE);
    assert_int_equal(t.in_gradient, FX_STATUS_STATE);
    assert_int_equal(fx_error_status(), FX_OK); /* the errors belong to the other threads */
    assert_false(fx_is_evaluated(t.x));
    fx_eval(t.model);
    SAME(fx_item(t.x), 3); /* evaluated arrays may be used by another thread */
    t = (taker){.x = t.x, .model = t.model};
    run_threads(1, take_pending, &t, sizeof t);
    assert_int_equal(t.in_operation, FX_OK);
    assert_int_equal(t.in_call, FX_OK);
    assert_int_equal(t.in_eval, FX_OK);
    SAME(t.value, 3);
}

/* ---- new models ------------------------------------------------------------------------------ */

enum { READERS = 6, READS = 20 };

static fx_array *network_input(void)
{
    return fx_reshape(fx_div(fx_range(0, 1, 128), 100.0), 4, 32);
}

static void *new_network(void)
{
    return fx_chain(fx_dense(4, 8, .act = FX_TANH), fx_batchnorm(8), fx_dropout(0.5),
                    fx_dense(8, 2), fx_layernorm(FX_DIMS(2)));
}

typedef struct new_reader {
    void *model;
    double sum[READS];
    fx_status status;
} new_reader;

static void *read_new_model(void *argument)
{
    new_reader *r = argument;
    for (int i = 0; i < READS; i++) {
        FX_TEST;
        r->sum[i] = fx_item(fx_sum(fx_abs(fx_call(r->model, network_input()))));
    }
    r->status = fx_error_take().status;
    return NULL;
}

static void *train_new_model(void *argument)
{
    new_reader *r = argument;
    void *state = fx_setup(fx_descent(0.1), r->model);
    fx_retain(state);
    for (int i = 0; i < READS; i++) {
        FX_STEP;
        fx_array *loss = fx_mse(fx_call(r->model, network_input()), fx_zeros(2, 32));
        fx_want(loss);
        fx_update(state, r->model, fx_gradient(loss, r->model));
        r->sum[i] = fx_item(loss);
    }
    fx_release(state);
    r->status = fx_error_take().status;
    return NULL;
}

/* ---- an array that no scope owns ------------------------------------------------------------- */

static fx_array *common;

/* The gradient of a sum is the cotangent itself. */
static void *pull_back_common(void *argument)
{
    double *sum = argument;
    for (int i = 0; i < 200; i++) {
        FX_SCOPE;
        fx_array *x = fx_ones(4), *g = NULL;
        if (fx_pullback(fx_add(x, x), common, &x, 1, &g) == FX_OK)
            *sum += fx_item(fx_sum(g));
    }
    return NULL;
}

static void threads_share_a_cotangent(void **state)
{
    (void)state;
    double sums[READERS] = {0};
    {
        FX_SCOPE;
        fx_set(&common, fx_ones(4));
        assert_int_equal(fx_eval(common), FX_OK);
    }
    run_threads(READERS, pull_back_common, sums, sizeof sums[0]);
    for (int i = 0; i < READERS; i++)
        assert_true(sums[i] == 200 * 8);
    fx_set(&common, NULL);
}

/* Parameters of a new model count as evaluated. */
static void a_new_model_may_be_used_by_other_threads(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(11);
    new_reader here = {.model = new_network()};
    read_new_model(&here);
    assert_int_equal(here.status, FX_OK);
    fx_seed(11);
    new_reader r[READERS];
    void *model = new_network(); /* nothing evaluates it */
    for (int i = 0; i < READERS; i++)
        r[i] = (new_reader){.model = model};
    run_threads(READERS, read_new_model, r, sizeof r[0]);
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(r[i].status, FX_OK);
        assert_memory_equal(r[i].sum, here.sum, sizeof here.sum);
    }
    new_reader trained = {.model = new_network()};
    run_threads(1, train_new_model, &trained, sizeof trained);
    assert_int_equal(trained.status, FX_OK);
    assert_true(trained.sum[READS - 1] < trained.sum[0]);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

typedef struct shared {
    pthread_mutex_t lock;
    fx_dense_layer *snapshot; /* retained */
    int version, stop;
    int readings, wrong;
} shared;

/* All elements of all arrays are the number of the step. */
static bool is_of_one_step(const fx_dense_layer *m, int version)
{
    FX_SCOPE;
    float w[64], b[8];
    if (fx_read_into(m->weight, w, sizeof w) != FX_OK ||
        fx_read_into(m->bias, b, sizeof b) != FX_OK)
        return false;
    for (int i = 0; i < 64; i++)
        if (w[i] != (float)version || b[i % 8] != (float)version)
            return false;
    const double y = 8.0 * version + version;
    return fx_item(fx_maximum(fx_call((void *)(uintptr_t)m, fx_ones(8)))) == y;
}

static void *read_snapshots(void *argument)
{
    shared *s = *(shared **)argument;
    for (bool stop = false; !stop;) {
        pthread_mutex_lock(&s->lock);
        fx_dense_layer *m = fx_retain(s->snapshot);
        const int version = s->version;
        stop = s->stop;
        pthread_mutex_unlock(&s->lock);
        bool right = true;
        for (int k = 0; k < 3 && right; k++)
            right = is_of_one_step(m, version);
        fx_release(m);
        __atomic_fetch_add(&s->readings, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&s->wrong, !right, __ATOMIC_RELAXED);
        fx_error_take();
    }
    return NULL;
}

static void publish(shared *s, fx_dense_layer *m, int version)
{
    FX_SCOPE;
    pthread_mutex_lock(&s->lock);
    fx_set(&s->snapshot, fx_snapshot(m));
    s->version = version;
    pthread_mutex_unlock(&s->lock);
}

static void *update_and_publish(void *argument)
{
    shared *s = *(shared **)argument;
    FX_SCOPE;
    fx_dense_layer *m = fx_dense(0, 0, .weight_array = fx_zeros(8, 8), .bias_array = fx_zeros(8));
    void *opt = fx_setup(fx_descent(.eta = 1), m);
    fx_eval(m);
    publish(s, m, 0);
    for (int k = 1; k <= 300; k++) {
        FX_STEP;
        fx_array *loss = fx_neg(fx_add(fx_sum(m->weight), fx_sum(m->bias))); /* every element + 1 */
        if (fx_update(opt, m, fx_gradient(loss, m)) != FX_OK)
            __atomic_fetch_add(&s->wrong, 1, __ATOMIC_RELAXED);
        if (k % 2 == 0) /* odd steps run in place */
            publish(s, m, k);
    }
    pthread_mutex_lock(&s->lock);
    s->stop = 1;
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void snapshots_while_another_updates(void **state)
{
    (void)state;
    shared s = {.lock = PTHREAD_MUTEX_INITIALIZER}, *argument = &s;
    FX_SCOPE;
    pthread_t updater, readers[3];
    assert_int_equal(pthread_create(&updater, NULL, update_and_publish, &argument), 0);
    for (bool ready = false; !ready; sched_yield()) {
        pthread_mutex_lock(&s.lock);
        ready = s.snapshot != NULL;
        pthread_mutex_unlock(&s.lock);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_snapshots, &argument), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(readers[i], NULL);
    pthread_join(updater, NULL);
    assert_int_equal(s.wrong, 0);
    assert_true(s.readings >= 3);
    assert_true(is_of_one_step(s.snapshot, 300)); /* valid after its thread ended */
    fx_set(&s.snapshot, NULL);
}

/* ---- training in several threads ------------------------------------------------------------- */

typedef struct trainer {
    uint64_t seed;
    int64_t batch;
    int wrong;
    float losses[40], weights[80], norm[16];
} trainer;

static void *train(void *argument)
{
    trainer *t = argument;
    FX_SCOPE;
    fx_seed(t->seed);
    fx_chain_layer *m = network();
    void *opt = fx_setup(fx_adam(.eta = 0.01), m);
    for (int k = 0; k < 40; k++) {
        FX_STEP;
        fx_array *x = fx_randn(5, t->batch);
        fx_array *loss = fx_mse(fx_call(m, x), fx_slice(fx_sin(x), 0, 0, 3));
        t->wrong += fx_update(opt, m, fx_gradient(loss, m)) != FX_OK;
        t->losses[k] = (float)fx_item(loss);
    }
    const fx_dense_layer *first = fx_child(m, 0);
    const fx_batchnorm_layer *norm = fx_child(m, 1);
    t->wrong += fx_read_into(first->weight, t->weights, sizeof t->weights) != FX_OK;
    t->wrong += fx_read_into(norm->mean, t->norm, sizeof t->norm) != FX_OK;
    t->wrong += fx_error_take().status != FX_OK;
    return NULL;
}

static void models_trained_side_by_side_are_as_alone(void **state)
{
    (void)state;
    trainer alone[4] = {{0}}, together[4];
    for (int i = 0; i < 4; i++) {
        alone[i].seed = 7 + (uint64_t)(i / 2); /* two seeds, and two batch sizes of each */
        alone[i].batch = 16 + 16 * (i % 2);
    }
    memcpy(together, alone, sizeof alone);
    for (int i = 0; i < 4; i++) {
        train(&alone[i]);
        assert_int_equal(alone[i].wrong, 0);
    }
    assert_true(alone[0].losses[39] < alone[0].losses[0]);
    assert_memory_not_equal(alone[0].weights, alone[2].weights, sizeof alone->weights);
    run_threads(4, train, together, sizeof *together);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(together[i].wrong, 0);
        assert_memory_equal(&together[i], &alone[i], sizeof *alone);
    }
}

static void *draw(void *out)
{
    FX_SCOPE;
    fx_read_into(fx_rand(4), out, 4 * sizeof(float));
    return NULL;
}

/* A thread without a seed has its own stream, also if another thread has the seed 0, the default.
 */
static void threads_draw_different_numbers(void **state)
{
    float drawn[3][4];
    (void)state;
    fx_seed(0);
    draw(drawn[0]);
    run_threads(2, draw, drawn[1], sizeof drawn[1]);
    for (int i = 0; i < 3; i++)
        assert_memory_not_equal(drawn[i], drawn[(i + 1) % 3], sizeof drawn[i]);
}

/* A model that another thread made is updated like the thread's own models: pending results that
 * read it are computed, and a gradient with respect to a replaced value is an error. */
typedef struct apprentice {
    fx_dense_layer *model;
    bool updated, came_along, is_error;
    double norm;
} apprentice;

static void *train_the_model_of_another(void *argument)
{
    apprentice *a = argument;
    FX_SCOPE;
    void *opt = fx_setup(fx_descent(.eta = 0.5), a->model);
    FX_STEP;
    fx_array *loss = fx_mul(0.5, fx_sum(fx_square(a->model->weight)));
    fx_array *norm = fx_sum(fx_abs(a->model->weight));
    a->updated = fx_update(opt, a->model, fx_gradient(loss, a->model)) == FX_OK;
    a->came_along = fx_is_evaluated(norm);
    a->norm = fx_item(norm);
    fx_error_take();
    fx_dense_layer *g = fx_gradient(loss, a->model);
    a->is_error = fx_array_status(g->weight) == FX_STATUS_STATE;
    fx_error_take();
    return NULL;
}

static void the_model_of_another_thread(void **state)
{
    (void)state;
    FX_SCOPE;
    apprentice a = {.model = fx_dense(0, 0, .weight_array = fx_full(2, 3, 3), .bias = false)};
    fx_eval(a.model);
    run_threads(1, train_the_model_of_another, &a, sizeof a);
    assert_true(a.updated);
    assert_true(a.came_along);
    SAME(a.norm, 18);
    assert_true(a.is_error);
    /* The thread that made the model sees the new values. */
    SAME(fx_item(fx_sum(a.model->weight)), 9);
}

/* More shapes than the plan cache holds: plans are dropped while others run them. */
typedef struct shaper {
    int first, wrong;
} shaper;
static void *many_shapes(void *argument)
{
    shaper *s = argument;
    for (int n = 1; n <= 400; n++) {
        FX_SCOPE;
        const int64_t size = s->first + n % 350;
        s->wrong += fx_item(fx_sum(fx_add(fx_ones(size), 1))) != 2.0 * (double)size;
    }
    return NULL;
}

static void plans_are_dropped_while_others_run(void **state)
{
    (void)state;
    shaper s[MANY] = {{0}};
    for (int i = 0; i < MANY; i++)
        s[i].first = 100 * i + 1;
    const uint64_t evicted = fx_stats().plans_evicted;
    run_threads(MANY, many_shapes, s, sizeof *s);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(s[i].wrong, 0);
    assert_true(fx_stats().plans_evicted > evicted);
}

/* ---- handing over ---------------------------------------------------------------------------- */

enum { QUEUE = 8, ITEMS = 2000 };
typedef struct queue {
    pthread_mutex_t lock;
    fx_array *items[QUEUE];
    int put, got, wrong;
} queue;

static bool queue_put(queue *q, fx_array *x)
{
    pthread_mutex_lock(&q->lock);
    const bool fits = q->put - q->got < QUEUE;
    if (fits)
        q->items[q->put++ % QUEUE] = x;
    pthread_mutex_unlock(&q->lock);
    return fits;
}

static fx_array *queue_get(queue *q)
{
    pthread_mutex_lock(&q->lock);
    fx_array *x = q->got < q->put ? q->items[q->got++ % QUEUE] : NULL;
    pthread_mutex_unlock(&q->lock);
    return x;
}

/* Evaluated arrays whose history, shared between them, is still there when they are handed over. */
static void *produce(void *argument)
{
    queue *q = argument;
    FX_SCOPE;
    fx_array *ones = fx_ones(4), *base = fx_mul(fx_exp(fx_zeros(4)), ones); /* pending for good */
    for (int k = 0; k < ITEMS; k++) {
        FX_SCOPE;
        fx_array *middle = fx_add(base, k), *x = fx_retain(fx_mul(middle, ones));
        if (fx_eval(x) != FX_OK)
            __atomic_fetch_add(&q->wrong, 1, __ATOMIC_RELAXED);
        while (!queue_put(q, x))
            sched_yield();
    }
    return NULL;
}

static void *consume(void *argument)
{
    queue *q = argument;
    for (int k = 0; k < ITEMS;) {
        fx_array *x = queue_get(q);
        if (!x) {
            sched_yield();
            continue;
        }
        FX_SCOPE;
        if (fx_item(fx_sum(x)) != 4.0 * (k + 1))
            __atomic_fetch_add(&q->wrong, 1, __ATOMIC_RELAXED);
        fx_release(x);
        k++;
    }
    return NULL;
}

static void evaluated_arrays_are_handed_over(void **state)
{
    (void)state;
    queue q = {.lock = PTHREAD_MUTEX_INITIALIZER};
    fxi_reclaim_all();
    const int64_t live = fxi_live_allocations();
    pthread_t producer, consumer;
    assert_int_equal(pthread_create(&producer, NULL, produce, &q), 0);
    assert_int_equal(pthread_create(&consumer, NULL, consume, &q), 0);
    pthread_join(producer, NULL);
    pthread_join(consumer, NULL);
    assert_int_equal(q.wrong, 0);
    assert_int_equal(q.got, ITEMS);
    fxi_reclaim_all();
    assert_int_equal(fxi_live_allocations(), live); /* no allocation leaked */
}

static void *make_and_end(void *argument)
{
    fx_array *x = fx_mul(fx_add(fx_ones(3), 1), fx_exp(fx_zeros(3)));
    fx_eval(x);
    *(fx_array **)argument = fx_retain(x);
    return NULL;
}

static void *make_pending_and_end(void *argument)
{
    *(fx_array **)argument = fx_retain(fx_add(fx_exp(fx_ones(3)), fx_ones(3)));
    return NULL;
}

/* A pending array whose thread has ended will never be computed: an error, and it can be released.
 */
static void pending_arrays_end_with_their_thread(void **state)
{
    (void)state;
    FX_SCOPE;
    fxi_reclaim_all();
    const int64_t live = fxi_live_allocations();
    fx_array *x[MANY] = {NULL};
    run_threads(MANY, make_pending_and_end, x, sizeof x[0]);
    assert_true(isnan(fx_item(fx_sum(x[0]))));
    expect_error(FX_STATUS_STATE, "pending in another thread");
    for (int i = 0; i < MANY; i++)
        fx_release(x[i]);
    fxi_reclaim_all();
    assert_int_equal(fxi_live_allocations(), live);
}

static void arrays_outlive_their_thread(void **state)
{
    (void)state;
    FX_SCOPE;
    fxi_reclaim_all();
    const int64_t live = fxi_live_allocations();
    fx_array *x = NULL;
    run_threads(1, make_and_end, &x, sizeof x);
    CHECK(x, (3), 0, 2, 2, 2);
    CHECK(gradient1(fx_sum(fx_square(x)), x), (3), 0, 4, 4, 4);
    fx_release(x);
    {
        FX_SCOPE;
        CHECK(fx_add(fx_ones(2), 1), (2), 0, 2, 2);
    }
    fxi_scope_close(0);
    fxi_reclaim_all();
    assert_int_equal(fxi_live_allocations(), live);
}

/* ---- arrays that errors name ----------------------------------------------------------------- */

enum { NAMED = 2048, ROUNDS = 20000, RING = 4 }; /* arrays of 8 KiB */

static void *make_and_free(void *argument)
{
    static const float zeros[NAMED];
    fx_array *ring[RING] = {NULL};
    int *failed = argument;
    for (int n = 0; n < ROUNDS / SLOWER; n++) {
        FX_SCOPE;
        fx_set(&ring[n % RING], fx_from(FX_DTYPE_F32, zeros, NAMED));
        *failed += fx_is_error(ring[n % RING]);
    }
    for (int i = 0; i < RING; i++)
        fx_set(&ring[i], NULL);
    return NULL;
}

/* Afterwards an error names the arrays that are left: those of this thread. */
static void large_arrays_come_and_go(void **state)
{
    (void)state;
    FX_SCOPE;
    static const float zeros[NAMED];
    int failed[MANY] = {0};
    fx_array *x = fx_from(FX_DTYPE_F32, zeros, 3, 400), *y = fx_from(FX_DTYPE_F32, zeros, 1500);
    run_threads(MANY, make_and_free, failed, sizeof *failed);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(failed[i], 0);
    fx_device *cpu = fx_cpu_device();
    fx_set_memory_limit(cpu, fx_memory_status(cpu).live + 1);
    assert_int_equal(fx_eval(fx_add(y, 1)), FX_STATUS_MEMORY);
    fx_set_memory_limit(cpu, 0);
    const fx_error e = fx_error_take();
    const char *got = strstr(e.message, "; the largest");
    assert_non_null(got);
    assert_string_equal(
        got, "; the largest arrays: 1500 Float32 (6000 bytes), 3×400 Float32 (4800 bytes)");
    assert_true(fx_item(fx_sum(x)) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(threads_draw_different_numbers), /* the first one: no other thread has drawn */
        TEST(threads_share_a_cotangent),
        TEST(many_threads_read_one_model),
        TEST(many_threads_ask_for_data),
        TEST(a_pending_array_is_refused),
        TEST(a_new_model_may_be_used_by_other_threads),
        TEST(snapshots_while_another_updates),
        TEST(models_trained_side_by_side_are_as_alone),
        TEST(the_model_of_another_thread),
        TEST(plans_are_dropped_while_others_run),
        TEST(evaluated_arrays_are_handed_over),
        TEST(pending_arrays_end_with_their_thread),
        TEST(arrays_outlive_their_thread),
        TEST(large_arrays_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
