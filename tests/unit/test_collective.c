/* test_collective.c: collective operations among threads of this process, each a member of a
 * communicator, on the CPU, on `ref` and on a device with memory of its own. ctest: threads devices
 *
 * The communicator waits until all members have stored their operands; then each member computes
 * its own result. If the members call different operations, they get an error, where a real
 * communicator would hang. Expected values are computed by hand. Only the main thread uses
 * assertions, because a failed one jumps out of the test.
 */
#include "evaluate.h"
#include "semantics_check.h"
#include "primitives.h"
#include "standin.h"

#include <cflux/backend.h>
#include <pthread.h>

enum { MEMBERS = 3, LENGTH = 4 };

/* ---- the communicator ------------------------------------------------------------------------ */

typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t all;
    int here, round, refusals;
    const fx_step *steps[MEMBERS];
    const void *in[MEMBERS];
} meeting;
static meeting call = {.lock = PTHREAD_MUTEX_INITIALIZER, .all = PTHREAD_COND_INITIALIZER};

/* The caller holds the lock. */
static void wait_for_all(void)
{
    const int round = call.round;
    if (++call.here == MEMBERS) {
        call.here = 0;
        call.round++;
        pthread_cond_broadcast(&call.all);
    }
    while (call.round == round)
        pthread_cond_wait(&call.all, &call.lock);
}

static bool alike(void)
{
    const fx_collective_step *first = fx_step_collective(call.steps[0]);
    bool same = true;
    for (int k = 1; k < MEMBERS; k++) {
        const fx_collective_step *c = fx_step_collective(call.steps[k]);
        same = same && c->what.kind == first->what.kind && c->what.fold == first->what.fold &&
               call.steps[k]->out.dtype == call.steps[0]->out.dtype &&
               fx_tensor_length(&call.steps[k]->out) == fx_tensor_length(&call.steps[0]->out);
    }
    return same;
}

static double element(const fx_step *s, const void *x, int64_t i)
{
    return s->out.dtype == FX_DTYPE_I32 ? ((const int32_t *)x)[i] : (double)((const float *)x)[i];
}

static void put(const fx_step *s, void *x, int64_t i, double value)
{
    if (s->out.dtype == FX_DTYPE_I32)
        ((int32_t *)x)[i] = (int32_t)value;
    else
        ((float *)x)[i] = (float)value;
}

static double folded(const fx_collective *w, const fx_step *s, int64_t i)
{
    double v = element(s, call.in[0], i);
    for (int k = 1; k < MEMBERS; k++) {
        const double x = element(s, call.in[k], i);
        v = w->fold == FX_REDUCE_MAX ? (x > v ? x : v) : v + x;
    }
    return w->fold == FX_REDUCE_MEAN ? v / MEMBERS : v;
}

static fx_status meet(const fx_communicator *self, const fx_step *step, const void *in, void *out,
                      char *why, size_t size)
{
    const fx_collective *w = &fx_step_collective(step)->what;
    pthread_mutex_lock(&call.lock);
    call.steps[self->rank] = step;
    call.in[self->rank] = in;
    wait_for_all();
    const bool good = alike();
    for (int64_t i = 0; good && i < fx_tensor_length(&step->out); i++)
        put(step, out, i,
            w->kind == FX_COLLECTIVE_BROADCAST ? element(step, call.in[w->root], i)
            : w->kind == FX_COLLECTIVE_REDUCE && self->rank != w->root ? 0
                                                                       : folded(w, step, i));
    call.refusals += !good;
    wait_for_all();
    pthread_mutex_unlock(&call.lock);
    if (!good)
        snprintf(why, size, "the members came with different operations");
    return good ? FX_OK : FX_STATUS_STATE;
}

static const fx_communicator members[MEMBERS] = {
    {.fxi_size = sizeof(fx_communicator),
     .name = "a meeting",
     .rank = 0,
     .size = MEMBERS,
     .run = meet},
    {.fxi_size = sizeof(fx_communicator),
     .name = "a meeting",
     .rank = 1,
     .size = MEMBERS,
     .run = meet},
    {.fxi_size = sizeof(fx_communicator),
     .name = "a meeting",
     .rank = 2,
     .size = MEMBERS,
     .run = meet},
};

static fx_array *collective(int rank, fx_collective_kind kind, fx_reduce fold, int root,
                            fx_array *x)
{
    const fx_collective w = {&members[rank], kind, fold, root, 0};
    return fxi_collective(&w, x);
}
static fx_array *sum_of_all(int rank, fx_array *x)
{
    return collective(rank, FX_COLLECTIVE_ALL_REDUCE, FX_REDUCE_SUM, 0, x);
}

/* ---- members --------------------------------------------------------------------------------- */

typedef struct member {
    int rank;
    fx_device *device;
    double got[8][LENGTH];
    fx_status status;
    char message[200];
} member;

static void read_out(member *m, int k, fx_array *y)
{
    float values[LENGTH];
    const fx_status s = fx_read_into(fx_cast(y, FX_DTYPE_F32), values, sizeof values);
    m->status = m->status ? m->status : s;
    for (int i = 0; i < LENGTH && s == FX_OK; i++)
        m->got[k][i] = values[i];
}

static void run_members(void *(*body)(void *), member *m, fx_device *device)
{
    pthread_t threads[MEMBERS];
    for (int k = 0; k < MEMBERS; k++) {
        m[k] = (member){.rank = k, .device = device};
        assert_int_equal(pthread_create(&threads[k], NULL, body, &m[k]), 0);
    }
    for (int k = 0; k < MEMBERS; k++)
        pthread_join(threads[k], NULL);
}

/* Rank r has 10^r · (1, 2, 3, 4), on its device. */
static fx_array *own(const member *m)
{
    const float scale = m->rank == 0 ? 1 : m->rank == 1 ? 10 : 100;
    return fx_to(m->device, fx_mul(scale, fx_vector(1, 2, 3, 4)));
}

static void *each_kind(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    fx_array *x = own(m);
    const int r = m->rank;
    fx_array *y[] = {
        sum_of_all(r, x),
        collective(r, FX_COLLECTIVE_ALL_REDUCE, FX_REDUCE_MEAN, 0, x),
        collective(r, FX_COLLECTIVE_ALL_REDUCE, FX_REDUCE_MAX, 0, x),
        collective(r, FX_COLLECTIVE_REDUCE, FX_REDUCE_SUM, 1, x),
        collective(r, FX_COLLECTIVE_BROADCAST, FX_REDUCE_SUM, 2, x),
        sum_of_all(r, fx_transpose(fx_reshape(x, 2, 2))), /* strided */
        sum_of_all(r, fx_cast(x, FX_DTYPE_I32)),
    };
    for (int k = 0; k < (int)(sizeof y / sizeof y[0]); k++)
        read_out(m, k, y[k]);
    return NULL;
}

static void check_kinds(fx_device *device)
{
    static const double factors[3] = {1, 10, 100};
    member m[MEMBERS];
    run_members(each_kind, m, device);
    for (int r = 0; r < MEMBERS; r++) {
        assert_int_equal(m[r].status, FX_OK);
        for (int i = 0; i < LENGTH; i++) {
            SAME(m[r].got[0][i], 111 * (i + 1));
            SAME(m[r].got[1][i], 37 * (i + 1));
            SAME(m[r].got[2][i], 100 * (i + 1));
            SAME(m[r].got[3][i], r == 1 ? 111 * (i + 1) : 0);
            SAME(m[r].got[4][i], factors[2] * (i + 1));
            SAME(m[r].got[5][i], 111 * (i == 1 ? 3 : i == 2 ? 2 : i + 1));
            SAME(m[r].got[6][i], 111 * (i + 1));
        }
    }
    assert_int_equal(call.refusals, 0);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Each member makes three operations of different kinds in the same order and reads them in another
 * order. Rank 2 never reads its second one, and rank 1 has released its first. All run in the order
 * in which they were made. */
static void *read_in_any_order(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    fx_array *x = own(m);
    fx_array *a, *b, *c;
    {
        FX_SCOPE;
        a = sum_of_all(m->rank, x);
        a = m->rank == 1 ? NULL : fx_keep(a);
    }
    b = collective(m->rank, FX_COLLECTIVE_ALL_REDUCE, FX_REDUCE_MAX, 0, fx_add(x, 1));
    c = collective(m->rank, FX_COLLECTIVE_BROADCAST, FX_REDUCE_SUM, 0, fx_mul(x, b));
    fx_array *const order[MEMBERS][3] = {{c, a, b}, {b, c, NULL}, {c, a, NULL}};
    for (int k = 0; k < 3; k++)
        if (order[m->rank][k])
            read_out(m,
                     order[m->rank][k] == a   ? 0
                     : order[m->rank][k] == b ? 1
                                              : 2,
                     order[m->rank][k]);
    return NULL;
}

static void check_order(fx_device *device)
{
    member m[MEMBERS];
    run_members(read_in_any_order, m, device);
    for (int r = 0; r < MEMBERS; r++) {
        assert_int_equal(m[r].status, FX_OK);
        for (int i = 0; i < LENGTH; i++) {
            const double largest = 100 * (i + 1) + 1;
            SAME(m[r].got[0][i], r == 1 ? 0 : 111 * (i + 1));
            SAME(m[r].got[1][i], r == 2 ? 0 : largest);
            SAME(m[r].got[2][i], (i + 1) * largest);
        }
    }
    assert_int_equal(call.refusals, 0);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* loss_r = Σᵢ cᵣ·i·yᵢ with y = Σᵣ xᵣ², so the gradient of the sum of all losses with respect to xᵣ
 * is 2·xᵣ·i·Σcᵣ, with c = 1, 2, 3. For the mean it is a third of that; for a broadcast of x₁, rank
 * 1 gets all of it. */
static void *gradients(void *argument)
{
    static const struct {
        fx_collective_kind kind;
        fx_reduce fold;
    } kinds[] = {{FX_COLLECTIVE_ALL_REDUCE, FX_REDUCE_SUM},
                 {FX_COLLECTIVE_ALL_REDUCE, FX_REDUCE_MEAN},
                 {FX_COLLECTIVE_BROADCAST, FX_REDUCE_SUM},
                 {FX_COLLECTIVE_REDUCE, FX_REDUCE_MEAN},
                 {FX_COLLECTIVE_REDUCE, FX_REDUCE_SUM}};
    member *m = argument;
    for (int k = 0; k < 5; k++) {
        FX_SCOPE;
        fx_array *x = own(m), *by = fx_to(m->device, fx_mul(m->rank + 1, fx_vector(1, 2, 3, 4)));
        fx_array *y = collective(m->rank, kinds[k].kind, kinds[k].fold, 1, fx_square(x));
        read_out(m, k, gradient1(fx_sum(fx_mul(by, y)), x));
    }
    FX_SCOPE;
    fx_array *x = own(m);
    fx_array *y = collective(m->rank, FX_COLLECTIVE_ALL_REDUCE, FX_REDUCE_MAX, 0, x);
    fx_array *g = gradient1(fx_sum(y), x);
    const fx_error e = fx_error_take();
    m->status = m->status || !fx_is_error(g) || e.status != FX_STATUS_UNSUPPORTED;
    return NULL;
}

static void check_gradients_of(fx_device *device)
{
    static const double factors[3] = {1, 10, 100};
    member m[MEMBERS];
    run_members(gradients, m, device);
    for (int r = 0; r < MEMBERS; r++) {
        assert_int_equal(m[r].status, FX_OK);
        for (int i = 0; i < LENGTH; i++) {
            const double n = i + 1, own_part = 2 * factors[r] * n * n;
            SAME(m[r].got[0][i], 6 * own_part);
            NEAR(m[r].got[1][i], 2 * own_part, 1e-6);
            SAME(m[r].got[2][i], r == 1 ? 6 * own_part : 0);
            NEAR(m[r].got[3][i], 2 * own_part / 3, 1e-6); /* rank 1's loss only, c = 2 */
            SAME(m[r].got[4][i], 2 * own_part);
        }
    }
    assert_int_equal(call.refusals, 0);
}

/* Training on a third of the batch each, with the mean of the gradients, is training on the batch.
 */
enum { STEPS = 5, BATCH = 6 };

static fx_dense_layer *model_on(fx_device *device)
{
    fx_dense_layer *d = fx_dense(2, 2, FX_TANH);
    fx_set(&d->weight, fx_reshape(fx_vector(0.5, -0.25, 0.75, 1), 2, 2));
    fx_set(&d->bias, fx_vector(0.125, -0.5));
    return fx_to(device, d);
}

static void train(fx_device *device, int rank, int first, int n, float got[LENGTH + 2])
{
    FX_SCOPE;
    fx_dense_layer *model = model_on(device);
    void *state = fx_setup(fx_adam(.eta = 0.125), model);
    fx_array *all = fx_sin(fx_reshape(fx_range(0, 1, 2 * BATCH), 2, BATCH));
    fx_array *x = fx_to(device, fx_slice(all, 1, first, first + n));
    for (int k = 0; k < STEPS; k++) {
        FX_SCOPE;
        fx_dense_layer *g = fx_gradient(fx_mse(fx_call(model, x), fx_cos(x)), model);
        if (rank >= 0) {
            fx_set(&g->weight,
                   collective(rank, FX_COLLECTIVE_ALL_REDUCE, FX_REDUCE_MEAN, 0, g->weight));
            fx_set(&g->bias,
                   collective(rank, FX_COLLECTIVE_ALL_REDUCE, FX_REDUCE_MEAN, 0, g->bias));
        }
        fx_update(state, model, g);
    }
    fx_read_into(model->weight, got, LENGTH * sizeof *got);
    fx_read_into(model->bias, got + LENGTH, 2 * sizeof *got);
}

static void *train_a_third(void *argument)
{
    member *m = argument;
    float got[LENGTH + 2];
    train(m->device, m->rank, m->rank * BATCH / MEMBERS, BATCH / MEMBERS, got);
    for (int i = 0; i < LENGTH; i++)
        m->got[0][i] = got[i];
    for (int i = 0; i < 2; i++)
        m->got[1][i] = got[LENGTH + i];
    m->status = fx_error_take().status;
    return NULL;
}

static void check_training(fx_device *device)
{
    member m[MEMBERS];
    float want[LENGTH + 2];
    train(device, -1, 0, BATCH, want);
    run_members(train_a_third, m, device);
    for (int r = 0; r < MEMBERS; r++) {
        assert_int_equal(m[r].status, FX_OK);
        for (int i = 0; i < LENGTH + 2; i++)
            NEAR(m[r].got[i / LENGTH][i % LENGTH], want[i], 1e-5);
    }
    assert_int_equal(call.refusals, 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Rank 1 calls another operation: all members fail, with the name of the communicator and the rank.
 * Earlier values remain, and the next operation works. */
static void *disagree(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    fx_array *x = own(m), *y;
    fx_eval(x);
    y = collective(m->rank, FX_COLLECTIVE_ALL_REDUCE, m->rank == 1 ? FX_REDUCE_MAX : FX_REDUCE_SUM,
                   0, x);
    const fx_status refused = fx_eval(y);
    const fx_error e = fx_error_take();
    snprintf(m->message, sizeof m->message, "%.190s", e.message);
    m->status = refused == FX_STATUS_STATE && e.status == refused ? FX_OK : FX_STATUS_INTERNAL;
    y = NULL;
    read_out(m, 0, x);
    return NULL;
}

static void check_failure(fx_device *device)
{
    static const double factors[3] = {1, 10, 100};
    member m[MEMBERS];
    run_members(disagree, m, device);
    for (int r = 0; r < MEMBERS; r++) {
        char text[40];
        snprintf(text, sizeof text, "a meeting, rank %d of 3", r);
        assert_int_equal(m[r].status, FX_OK);
        if (!strstr(m[r].message, text) || !strstr(m[r].message, "different operations"))
            fail_msg("rank %d says: %s", r, m[r].message);
        for (int i = 0; i < LENGTH; i++)
            SAME(m[r].got[0][i], factors[r] * (i + 1));
    }
    assert_int_equal(call.refusals, MEMBERS);
    call.refusals = 0;
}

static void what_is_refused(void **state)
{
    (void)state;
    FX_SCOPE;
    const fx_communicator odd = {
        .fxi_size = sizeof odd, .name = "odd", .rank = 3, .size = 3, .run = meet};
    assert_true(fx_is_error(fxi_collective(&(fx_collective){NULL, 0, 0, 0, 0}, fx_ones(2))));
    expect_error(FX_STATUS_ARGUMENT, "communicator");
    assert_true(fx_is_error(fxi_collective(&(fx_collective){&odd, 0, 0, 0, 0}, fx_ones(2))));
    expect_error(FX_STATUS_ARGUMENT, "rank");
    assert_true(fx_is_error(collective(0, FX_COLLECTIVE_BROADCAST, FX_REDUCE_SUM, 3, fx_ones(2))));
    expect_error(FX_STATUS_ARGUMENT, "the root is 3, expected a rank below 3");
    assert_true(fx_is_error(sum_of_all(0, fx_eq(fx_ones(2), 1))));
    expect_error(FX_STATUS_DTYPE, "Bool");
    fx_array *whole = fx_cast(fx_ones(2), FX_DTYPE_I32);
    assert_true(fx_is_error(collective(0, FX_COLLECTIVE_ALL_REDUCE, FX_REDUCE_MEAN, 0, whole)));
    expect_error(FX_STATUS_DTYPE, "Int32, expected floats");
}

/* A thread that ends while one of its operations is pending leaks nothing. */
static void *make_and_go(void *argument)
{
    FX_SCOPE;
    sum_of_all(((member *)argument)->rank, own(argument));
    return NULL;
}

/* ---- devices --------------------------------------------------------------------------------- */

static void check_device(fx_device *device)
{
    check_kinds(device);
    check_order(device);
    check_gradients_of(device);
    check_training(device);
    check_failure(device);
    member m[MEMBERS];
    run_members(make_and_go, m, device);
}

static void on_the_cpu(void **state)
{
    (void)state;
    check_device(fx_cpu_device());
}

static void on_the_reference(void **state)
{
    (void)state;
    check_device(fx_device_get("ref", 0));
    check_device(fx_device_find("check:cpu"));
}

static int64_t reads(const fx_device *device)
{
    return standin_of(device)->calls(fx_device_id(device), STANDIN_READ);
}

/* The library copies operands to the host, or the backend runs the step on the device. */
static void on_memory_of_its_own(void **state)
{
    (void)state;
    fx_device *device = fx_device_find("CUDA:0");
    const standin *s = standin_of(device);
    member m[MEMBERS];
    const int64_t before = reads(device);
    run_members(each_kind, m, device);
    const int64_t by_library = reads(device) - before;
    check_device(device);
    s->collectives(true);
    fxi_reclaim_all();
    const int64_t again = reads(device);
    run_members(each_kind, m, device);
    assert_int_equal(by_library - (reads(device) - again), 7 * MEMBERS);
    check_device(device);
    s->collectives(false);
    fxi_reclaim_all();
}

/* ---- plans ----------------------------------------------------------------------------------- */

static fx_collective latest; /* what the latest step of `alone` was to compute */

static fx_status note(const fx_communicator *self, const fx_step *step, const void *in, void *out,
                      char *why, size_t size)
{
    (void)self, (void)why, (void)size;
    latest = fx_step_collective(step)->what;
    memcpy(out, in, (size_t)fx_tensor_length(&step->out) * sizeof(float));
    return FX_OK;
}

/* Operations that differ in one member of fx_collective must not share a cached plan. */
static void a_plan_for_each(void **state)
{
    (void)state;
    static const fx_communicator alone = {
        .fxi_size = sizeof(fx_communicator), .name = "alone", .size = 2, .run = note};
    static const fx_collective of[] = {
        {&alone, FX_COLLECTIVE_ALL_REDUCE, FX_REDUCE_SUM, 0, 0},
        {&alone, FX_COLLECTIVE_ALL_REDUCE, FX_REDUCE_SUM, 0, LENGTH},
        {&alone, FX_COLLECTIVE_ALL_REDUCE, FX_REDUCE_MAX, 0, 0},
        {&alone, FX_COLLECTIVE_REDUCE, FX_REDUCE_SUM, 0, 0},
        {&alone, FX_COLLECTIVE_REDUCE, FX_REDUCE_SUM, 1, 0},
    };
    FX_SCOPE;
    fx_array *x = fx_ones(LENGTH);
    assert_int_equal(fx_eval(x), FX_OK);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        FX_SCOPE;
        assert_int_equal(fx_eval(fxi_collective(&of[i], x)), FX_OK);
        assert_memory_equal(&latest, &of[i], sizeof latest);
    }
}

int main(void)
{
    standin_path();
    if (fx_is_error(fx_device_find("CUDA:0")))
        return fx_error_print(stderr);
    const struct CMUnitTest tests[] = {
        TEST(on_the_cpu),      TEST(on_the_reference), TEST(on_memory_of_its_own),
        TEST(what_is_refused), TEST(a_plan_for_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
