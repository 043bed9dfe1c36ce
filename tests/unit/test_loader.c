/* test_loader.c: batches against direct indexing, for every combination of options. ctest: threads
 *
 * The data carry their own numbers: observation i of Y is i, its column of X is 100·i + row. A
 * batch is right when its X and Z are what its Y says, and a pass when it has every observation
 * once. Orders of shuffled passes are compared with each other (seeds, passes, worker counts),
 * never with a recording.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"
#include "thread_count.h"

enum { ROWS = 3, MOST = 64 };
typedef enum form { ARRAY, TUPLE, NAMED } form;

static fx_array *make_x(int64_t n)
{
    float x[ROWS * MOST];
    for (int i = 0; i < ROWS * n; i++)
        x[i] = (float)(100 * (i / ROWS) + i % ROWS);
    return fx_from(FX_DTYPE_F32, x, ROWS, n);
}

static fx_array *make_y(int64_t n)
{
    int64_t y[MOST];
    for (int i = 0; i < n; i++)
        y[i] = i;
    return fx_from(FX_DTYPE_I64, y, n);
}

/* 2×1×n bytes: 2i, 2i + 1. */
static fx_array *make_z(int64_t n)
{
    uint8_t z[2 * MOST];
    for (int i = 0; i < 2 * n; i++)
        z[i] = (uint8_t)i;
    return fx_from(FX_DTYPE_U8, z, 2, 1, n);
}

static void *make_data(form f, int64_t n)
{
    if (f == ARRAY)
        return make_x(n);
    if (f == TUPLE)
        return fx_tuple(make_x(n), make_y(n), make_z(n));
    return fx_named_tuple("image", make_x(n), "label", make_y(n), "z", make_z(n));
}

static void check_x(fx_array *x, const int64_t *ids, int64_t size)
{
    assert_int_equal(fx_eltype(x), FX_DTYPE_F32);
    assert_int_equal(fx_ndims(x), 2);
    assert_int_equal(fx_size(x, 0), ROWS);
    assert_int_equal(fx_size(x, 1), size);
    const float *data = fx_data(x);
    for (int i = 0; i < ROWS * size; i++)
        assert_true(data[i] == (float)(100 * ids[i / ROWS] + i % ROWS));
}

/* Checks the batch's arrays against each other and writes the observations it holds. */
static void check_batch(form f, const fx_batch *b, int64_t *ids)
{
    for (int64_t i = 0; f == ARRAY && i < b->size; i++)
        ids[i] = (int64_t)fx_at(b->x, i * ROWS) / 100;
    if (f == ARRAY) {
        assert_ptr_equal(b->items, b->x);
        assert_null(b->y);
        check_x(b->x, ids, b->size);
        return;
    }
    assert_int_equal(fx_count(b->items), 3);
    assert_ptr_equal(fx_child(b->items, 0), b->x);
    assert_ptr_equal(fx_child(b->items, 1), b->y);
    assert_string_equal(fx_child_name(b->items, 1), f == NAMED ? "label" : "");
    if (f == NAMED)
        assert_ptr_equal(fx_child_named(b->items, "image"), b->x);
    assert_int_equal(fx_eltype(b->y), FX_DTYPE_I64);
    assert_int_equal(fx_ndims(b->y), 1);
    assert_int_equal(fx_read_into(b->y, ids, (size_t)b->size * sizeof *ids), FX_OK);
    check_x(b->x, ids, b->size);
    fx_array *z = fx_child(b->items, 2);
    assert_int_equal(fx_eltype(z), FX_DTYPE_U8);
    assert_int_equal(fx_ndims(z), 3);
    assert_int_equal(fx_size(z, 2), b->size);
    for (int64_t i = 0; i < 2 * b->size; i++)
        assert_true(fx_at(z, i) == (double)(2 * ids[i / 2] + i % 2));
}

/* One pass; writes the order of the observations, returns how many there were. */
static int64_t run_pass(form f, fx_loader *loader, int64_t *order)
{
    int64_t n = 0, batches = 0;
    for (fx_batch b = {0}; fx_next(loader, &b);) {
        FX_STEP;
        assert_int_equal(b.index, batches);
        batches++;
        check_batch(f, &b, order + n);
        n += b.size;
    }
    assert_int_equal(batches, fx_loader_length(loader));
    return n;
}

static void check_each_once(const int64_t *order, int64_t n, int64_t total)
{
    bool seen[MOST] = {false};
    for (int64_t i = 0; i < n; i++) {
        assert_true(order[i] >= 0 && order[i] < total);
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
    }
}

typedef struct combination {
    form form;
    int64_t n, batchsize;
    bool shuffle, drop;
} combination;

static void check_combination(combination c)
{
    static const int worker_counts[] = {0, 1, 3};
    int64_t reference[2][MOST] = {{0}}, order[2][MOST];
    const int64_t whole = c.n / c.batchsize, expected = c.drop ? whole * c.batchsize : c.n;
    for (int w = 0; w < 3; w++) {
        FX_SCOPE;
        fx_loader *loader =
            fx_dataloader(make_data(c.form, c.n), .batchsize = c.batchsize, .shuffle = c.shuffle,
                          .seed = 42, .partial = !c.drop, .workers = worker_counts[w]);
        assert_false(fx_is_error(loader));
        assert_int_equal(fx_loader_length(loader), whole + (!c.drop && c.n % c.batchsize != 0));
        for (int pass = 0; pass < 2; pass++) {
            assert_int_equal(run_pass(c.form, loader, order[pass]), expected);
            check_each_once(order[pass], expected, c.n);
            for (int64_t i = 0; !c.shuffle && i < expected; i++)
                assert_int_equal(order[pass][i], i);
            if (w > 0)
                assert_memory_equal(order[pass], reference[pass],
                                    (size_t)expected * sizeof(int64_t));
            else
                memcpy(reference[pass], order[pass], sizeof order[pass]);
        }
        if (c.shuffle && expected > 10)
            assert_memory_not_equal(order[0], order[1], (size_t)expected * sizeof(int64_t));
    }
}

static void run_combinations(void)
{
    static const int64_t sizes[][2] = {{20, 6}, {21, 7}, {5, 1}, {64, 64}, {13, 12}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int bits = 0; bits < 12; bits++)
            check_combination((combination){.form = (form)(bits / 4),
                                            .n = sizes[i][0],
                                            .batchsize = sizes[i][1],
                                            .shuffle = bits & 1,
                                            .drop = bits & 2});
}

static void all_combinations(void **state)
{
    (void)state;
    run_combinations();
    const int64_t live = fxi_live_allocations(); /* with what the thread keeps for itself */
    run_combinations();
    assert_int_equal(fxi_live_allocations(), live);
    assert_int_equal(fx_error_status(), FX_OK);
}

static int64_t order_of(uint64_t seed, int64_t *order)
{
    FX_SCOPE;
    fx_loader *loader = fx_dataloader(make_x(40), .batchsize = 7, .shuffle = true, .seed = seed);
    return run_pass(ARRAY, loader, order);
}

static void seeds(void **state)
{
    (void)state;
    int64_t a[MOST], b[MOST], c[MOST];
    order_of(1, a);
    order_of(1, b);
    order_of(2, c);
    assert_memory_equal(a, b, 40 * sizeof *a);
    assert_memory_not_equal(a, c, 40 * sizeof *a);
    fx_seed(7);
    order_of(FX_DRAWN, a);
    order_of(FX_DRAWN, c);
    fx_seed(7);
    order_of(FX_DRAWN, b);
    assert_memory_equal(a, b, 40 * sizeof *a);
    assert_memory_not_equal(a, c, 40 * sizeof *a);
    order_of(0, a); /* zero is a seed like any other */
    order_of(0, b);
    assert_memory_equal(a, b, 40 * sizeof *a);
}

static void *with_noise(void *items, void *unused)
{
    (void)unused;
    return fx_add(fx_child(items, 0), fx_rand(1));
}

/* The first number that .collate_with draws in a loader with this seed. */
static double noise_of(uint64_t seed)
{
    FX_SCOPE;
    fx_loader *loader =
        fx_dataloader(fx_zeros(1, 2), .batchsize = 1, .collate_with = with_noise, .seed = seed);
    fx_batch b = {0};
    const double number = fx_next(loader, &b) ? fx_item(b.items) : NAN;
    fx_batch_end(&b);
    return number;
}

/* Also without .shuffle, a drawn seed comes from the stream of the thread. */
static void seeds_of_collating_functions(void **state)
{
    (void)state;
    assert_true(noise_of(1) == noise_of(1));
    assert_true(noise_of(1) != noise_of(2));
    fx_seed(7);
    const double first = noise_of(FX_DRAWN), second = noise_of(FX_DRAWN);
    assert_true(first != second);
    fx_seed(7);
    assert_true(noise_of(FX_DRAWN) == first);
    fx_seed(8);
    assert_true(noise_of(FX_DRAWN) != first);
}

/* Every observation comes first about equally often: 6000 passes over 6, χ² with 5 degrees of
 * freedom; 20.5 is its 99.9 % point. */
static void shuffle_is_uniform(void **state)
{
    (void)state;
    enum { N = 6, PASSES = 6000 };
    int64_t first[N] = {0}, last[N] = {0}, order[MOST];
    FX_SCOPE;
    fx_loader *loader = fx_dataloader(make_x(N), .batchsize = N, .shuffle = true, .seed = 3);
    for (int pass = 0; pass < PASSES; pass++) {
        run_pass(ARRAY, loader, order);
        first[order[0]]++;
        last[order[N - 1]]++;
    }
    double chi_first = 0, chi_last = 0;
    const double expected = (double)PASSES / N;
    for (int i = 0; i < N; i++) {
        chi_first += ((double)first[i] - expected) * ((double)first[i] - expected) / expected;
        chi_last += ((double)last[i] - expected) * ((double)last[i] - expected) / expected;
    }
    assert_true(chi_first < 20.5);
    assert_true(chi_last < 20.5);
}

static void leave_by_break(fx_loader *loader)
{
    for (fx_batch b = {0}; fx_next(loader, &b);)
        if (b.index == 1)
            break;
}

static void abandoned_passes(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 3; workers += 3) {
        const int64_t live = fxi_live_allocations(), threads = threads_now();
        {
            FX_SCOPE;
            fx_loader *loader =
                fx_dataloader(make_data(TUPLE, 60), .batchsize = 4, .workers = workers);
            fx_batch ended = {0};
            assert_true(fx_next(loader, &ended));
            assert_true(fx_next(loader, &ended));
            fx_batch_end(&ended);
            assert_null(ended.x);
            assert_null(ended.fxi_pass);
            fx_batch_end(&ended); /* a second call does nothing */
            expect_threads(threads);

            fx_batch b = {0}; /* a zeroed batch starts over */
            for (int round = 0; round < 5; round++) {
                memset(&b, 0, sizeof b);
                assert_true(fx_next(loader, &b));
                assert_int_equal(b.index, 0);
                assert_true(fx_at(b.x, 0) == 0);
            }
            fx_batch_end(&b);
            leave_by_break(loader);
        }
        expect_threads(threads);
        assert_int_equal(fxi_live_allocations(), live);
    }
}

/* Two passes of one loader at a time do not disturb each other. */
static void nested_passes(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_loader *loader = fx_dataloader(make_data(TUPLE, 10), .batchsize = 5, .workers = 2);
    int64_t pairs = 0;
    for (fx_batch a = {0}; fx_next(loader, &a);)
        for (fx_batch b = {0}; fx_next(loader, &b);) {
            FX_SCOPE;
            assert_true(fx_at(a.y, 0) == (double)(5 * a.index));
            assert_true(fx_at(b.y, 0) == (double)(5 * b.index));
            pairs++;
        }
    assert_int_equal(pairs, 4);
}

static void foreign_batches(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_loader *one = fx_dataloader(make_x(10)), *other = fx_dataloader(make_x(10));
    fx_batch b = {0};
    assert_true(fx_next(one, &b));
    assert_false(fx_next(other, &b));
    assert_int_equal(fx_error_take().status, FX_STATUS_STATE);
    assert_null(b.items);
    assert_false(fx_next(NULL, &b));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_false(fx_next(one, NULL));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
}

/* Batches live until the next call, also when they were made inside a scope that is open for long.
 */
static void batches_do_not_pile_up(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_loader *loader = fx_dataloader(make_data(TUPLE, 60), .batchsize = 2, .workers = 1);
    int64_t at_five = 0, at_25 = INT64_MAX;
    for (fx_batch b = {0}; fx_next(loader, &b);) {
        if (b.index == 5)
            at_five = fxi_live_allocations();
        if (b.index == 25)
            at_25 = fxi_live_allocations();
    }
    assert_true(at_25 <= at_five + 40); /* the number of prepared batches varies */
}

/* A pass reads the data as they were when it began. */
static void data_replaced_during_a_pass(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = make_x(12);
    fx_loader *loader = fx_dataloader(x, .batchsize = 3, .workers = 1);
    fx_batch b = {0};
    assert_true(fx_next(loader, &b));
    assert_int_equal(fx_copy_into(x, fx_zeros(ROWS, 12)), FX_OK);
    while (fx_next(loader, &b))
        assert_true(fx_at(b.x, 0) == (double)(300 * b.index));
    assert_true(fx_next(loader, &b));
    assert_true(fx_at(b.x, 0) == 0 && fx_at(b.x, 3) == 0);
    fx_batch_end(&b);
}

static void expect_error(fx_loader *loader, fx_status status, const char *text)
{
    assert_true(fx_is_error(loader));
    assert_int_equal(fx_loader_length(loader), 0);
    fx_batch b = {0};
    assert_false(fx_next(loader, &b));
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, status);
    if (!strstr(e.message, text))
        fail_msg("\"%s\" does not say \"%s\"", e.message, text);
}

static void refusals(void **state)
{
    (void)state;
    FX_SCOPE;
    expect_error(fx_dataloader(fx_tuple(make_x(10), make_y(12))), FX_STATUS_SHAPE,
                 "item 0 has 10 observations, item 1 has 12");
    expect_error(fx_dataloader(fx_named_tuple("a", make_x(10), "b", make_y(12))), FX_STATUS_SHAPE,
                 "a has 10 observations, b has 12");
    expect_error(fx_dataloader(make_x(4), .batchsize = -3), FX_STATUS_ARGUMENT, "batchsize is -3");
    expect_error(fx_dataloader(make_x(4), .workers = -2), FX_STATUS_ARGUMENT, "workers is -2");
    expect_error(fx_dataloader(NULL), FX_STATUS_ARGUMENT, "NULL");
    expect_error(fx_dataloader(fx_scalar(1)), FX_STATUS_SHAPE, "no axes");
    expect_error(fx_dataloader(fx_dense(2, 3)), FX_STATUS_ARGUMENT, "Dense");
    expect_error(fx_dataloader(make_x(4), .batchsize = 0), FX_STATUS_ARGUMENT, "batchsize is 0");
    expect_error(fx_dataloader(make_x(4), .collate = (fx_collate)7), FX_STATUS_ARGUMENT,
                 "collate is 7");
    expect_error(fx_dataloader(make_x(4), .batchsize = -1, .collate = FX_COLLATE_BATCH),
                 FX_STATUS_ARGUMENT, "batchsize = -1 gives single observations");
    expect_error(fx_dataloader(fx_tuple(make_x(4), fx_tuple(make_y(5)))), FX_STATUS_SHAPE,
                 "item 0 has 4 observations, item 1.0 has 5");
    expect_error(fx_dataloader(fx_tuple(make_x(4), fx_tuple(fx_dense(2, 3)))), FX_STATUS_ARGUMENT,
                 "item 1.0 is not an array");
}

static char last_message[256];
static void remember_message(int level, const char *text, void *user)
{
    (void)level;
    (void)user;
    snprintf(last_message, sizeof last_message, "%s", text);
}

static void fewer_than_a_batch(void **state)
{
    (void)state;
    FX_SCOPE;
    int64_t order[MOST];
    fx_message_set_hook(remember_message, NULL);
    fx_loader *loader = fx_dataloader(make_x(5), .batchsize = 8, .partial = false);
    assert_string_equal(
        last_message,
        "Number of observations less than batch-size, decreasing the batch-size to 5");
    assert_int_equal(fx_loader_length(loader), 1);
    assert_int_equal(run_pass(ARRAY, loader, order), 5);
    fx_loader *empty = fx_dataloader(make_x(0), .workers = 2, .shuffle = true);
    assert_int_equal(fx_loader_length(empty), 0);
    assert_int_equal(run_pass(ARRAY, empty, order), 0);
    fx_message_set_hook(NULL, NULL);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void summary(void **state)
{
    (void)state;
    FX_SCOPE;
    char text[200];
    fx_summary(fx_dataloader(fx_tuple(make_x(10), make_y(10)), .batchsize = 3, .shuffle = true),
               text, sizeof text);
    assert_string_equal(
        text,
        "4-element DataLoader(::Tuple{Matrix{Float32}, Vector{Int64}}, shuffle=true, batchsize=3)");
    fx_summary(fx_dataloader(make_z(10), .partial = false), text, sizeof text);
    assert_string_equal(text, "10-element DataLoader(::Array{UInt8, 3}, partial=false)");
    fx_summary(fx_dataloader(fx_named_tuple("x", make_x(4)), .batchsize = 4), text, sizeof text);
    assert_string_equal(text,
                        "1-element DataLoader(::@NamedTuple{x::Matrix{Float32}}, batchsize=4)");
    fx_show_text(fx_dataloader(make_x(4)), text, sizeof text); /* its arrays are not parameters */
    assert_string_equal(text, "4-element DataLoader(::Matrix{Float32})");
}

/* A walk over a loader gives a loader with mapped data and no part in the original's passes. */
static fx_array *plus_thousand(fx_array *x)
{
    return fx_add(x, 1000);
}
static void mapped_loader(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_loader *loader = fx_dataloader(make_x(6), .batchsize = 2, .workers = 1);
    fx_batch a = {0}, b = {0};
    assert_true(fx_next(loader, &a));
    fx_loader *mapped = fx_fmap(plus_thousand, loader);
    assert_int_equal(fx_loader_length(mapped), 3);
    assert_true(fx_next(mapped, &b));
    assert_true(fx_at(b.x, 0) == 1000);
    assert_true(fx_next(loader, &a));
    assert_true(fx_at(a.x, 0) == 200);
    fx_batch_end(&b);
    fx_batch_end(&a);
}

static void observations(void **state)
{
    (void)state;
    FX_SCOPE;
    void *data = make_data(NAMED, 10);
    assert_int_equal(fx_num_obs(data), 10);
    assert_int_equal(fx_num_obs(make_z(7)), 7);
    void *some = fx_get_obs(data, fx_from(FX_DTYPE_I64, ((const int64_t[]){7, 0, 7}), 3));
    assert_true(fx_at(fx_child_named(some, "label"), 0) == 7);
    check_x(fx_child(some, 0), (const int64_t[]){7, 0, 7}, 3);
    void *parts = fx_split_obs(data, 0.75); /* ⌊7.5⌋ */
    assert_int_equal(fx_num_obs(fx_child(parts, 0)), 7);
    assert_int_equal(fx_num_obs(fx_child(parts, 1)), 3);
    check_x(fx_child_named(fx_child(parts, 1), "image"), (const int64_t[]){7, 8, 9}, 3);
    assert_true(fx_at(fx_child(fx_split_obs(make_y(10), 0.2), 1), 0) == 2);
    assert_int_equal(fx_error_status(), FX_OK);

    assert_true(fx_is_error(fx_child(fx_split_obs(make_y(10), 1.5), 0)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_int_equal(fx_num_obs(fx_tuple(make_x(3), make_y(4))), 0);
    assert_int_equal(fx_error_take().status, FX_STATUS_SHAPE);
}

/* Loaders with workers in several threads at once. */
static void *many_passes(void *argument)
{
    int64_t order[MOST], *failures = argument;
    FX_SCOPE;
    fx_loader *loader =
        fx_dataloader(make_data(TUPLE, 50), .batchsize = 3, .shuffle = true, .workers = 2);
    for (int pass = 0; pass < 10; pass++)
        *failures += run_pass(TUPLE, loader, order) != 50;
    return NULL;
}

static void several_threads(void **state)
{
    (void)state;
    pthread_t threads[3];
    int64_t failures[3] = {0};
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many_passes, &failures[i]), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(failures[i], 0);
    }
}

/* If the n-th allocation fails, in any thread, a pass is complete or ends with an error, and
 * nothing leaks. */
static bool pass_with_fault(int64_t nth, int workers)
{
    FX_SCOPE;
    void *data = make_data(NAMED, 9);
    fxi_fault_set(nth);
    fx_loader *loader =
        fx_dataloader(data, .batchsize = 2, .shuffle = true, .seed = 5, .workers = workers);
    int64_t n = 0;
    for (fx_batch b = {0}; fx_next(loader, &b);)
        n += b.size;
    const bool reached = fxi_fault_seen() > nth;
    fxi_fault_set(-1);
    const fx_error e = fx_error_take();
    assert_true(n == 9 || e.status == FX_STATUS_MEMORY);
    return reached;
}

static void each_allocation_fails(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 2; workers += 2) {
        pass_with_fault(INT64_MAX, workers);
        const int64_t live = fxi_live_allocations();
        int64_t nth = 0;
        while (pass_with_fault(nth, workers)) {
            assert_int_equal(fxi_live_allocations(), live);
            assert_in_range(++nth, 1, 100000);
        }
        assert_true(nth > 10);
    }
}

/* ---- mapobs and devices ---------------------------------------------------------------------- */

static fx_array *doubled(fx_array *x)
{
    return fx_mul(x, 2);
}

static void *first_only(void *observations, void *user)
{
    ++*(int *)user;
    return fx_child(observations, 0);
}

static void mapped_data(void **state)
{
    (void)state;
    FX_SCOPE;
    const int64_t n = 7;
    int calls = 0;
    void *plain = make_data(TUPLE, n), *twice = fx_mapobs(doubled, plain);
    assert_int_equal(fx_num_obs(twice), n);
    fx_array *idx = fx_from(FX_DTYPE_I64, ((const int64_t[]){4, 1}), 2);
    void *obs = fx_get_obs(twice, idx);
    assert_int_equal(fx_item(fx_slice(fx_child(obs, 1), 0, 0, 1)), 8);
    assert_int_equal(fx_item(fx_slice(fx_child(obs, 1), 0, 1, 2)), 2);
    void *again = fx_mapobs_with(first_only, &calls, twice); /* of what was doubled */
    assert_int_equal(fx_item(fx_slice(fx_vec(fx_get_obs(again, idx)), 0, 0, 1)), 800);
    assert_int_equal(calls, 1);
    void *halves = fx_split_obs(twice, 0.5);
    assert_int_equal(fx_num_obs(fx_child(halves, 0)), 3);
    assert_int_equal(fx_num_obs(fx_child(halves, 1)), 4);
    obs = fx_get_obs(fx_child(halves, 1), fx_from(FX_DTYPE_I64, ((const int64_t[]){0}), 1));
    assert_int_equal(fx_item(fx_child(obs, 1)), 6);
    int batches = 0;
    fx_loader *l = fx_dataloader(twice, .batchsize = 3),
              *one = fx_dataloader(again, .batchsize = 3);
    for (fx_batch b = {0}; fx_next(l, &b); batches++)
        for (int64_t i = 0; i < b.size; i++) {
            assert_int_equal(fx_item(fx_slice(b.y, 0, i, i + 1)), 2 * (3 * b.index + i));
            assert_int_equal(fx_item(fx_slice(fx_vec(b.x), 0, ROWS * i, ROWS * i + 1)),
                             200 * (3 * b.index + i));
        }
    for (fx_batch b = {0}; fx_next(one, &b); batches++) {
        assert_true(fx_is_array(b.items));
        assert_null(b.y);
        assert_int_equal(fx_size(b.x, 1), b.size);
    }
    assert_int_equal(batches, 6);
    assert_int_equal(fx_error_take().status, FX_OK);
    char text[200];
    fx_summary(twice, text, sizeof text);
    assert_memory_equal(text, "mapobs(f, (", 11);
    assert_true(fx_is_error(fx_mapobs(NULL, plain)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fx_mapobs(doubled, fx_tuple())));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
}

static void *weighted(void *observations, void *weight)
{
    return fx_sum(fx_mul(observations, weight));
}

/* A batch is a constant: no gradient leads from it to what its function computed with. */
static void batches_have_no_past(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_reshape(fx_range(1, 1, 4), 1, 4), *w = fx_vector(3);
    fx_loader *l = fx_dataloader(fx_mapobs_with(weighted, w, x), .batchsize = 2);
    int batches = 0;
    for (fx_batch b = {0}; fx_next(l, &b); batches++) {
        assert_true(fx_item(b.x) == (b.index ? 21 : 9));
        assert_true(fx_is_error(fx_gradient(b.x, w)));
        const fx_error e = fx_error_take();
        assert_int_equal(e.status, FX_STATUS_STATE);
        assert_non_null(strstr(e.message, "it is now a constant"));
        assert_true(fx_item(fx_gradient(fx_mul(b.x, fx_sum(w)), w)) == fx_item(b.x));
    }
    assert_int_equal(batches, 2);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* A moved loader moves its batches, in the same order; the data and the original stay. */
static void moved_loader(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_device *other = fx_device_get("ref", 0);
    void *data = make_data(TUPLE, 10);
    fx_loader *l = fx_dataloader(data, .batchsize = 4, .shuffle = true, .seed = 3);
    fx_loader *m = fx_to(other, l), *n = fx_child(fx_to(other, fx_tuple(l)), 0);
    assert_ptr_not_equal(m, l);
    assert_ptr_equal(fx_to(other, m), m);
    assert_ptr_equal(fx_array_device(fx_child(data, 0)), fx_cpu_device());
    fx_batch a = {0}, b = {0}, c = {0};
    int64_t seen = 0;
    while (fx_next(l, &a) && fx_next(m, &b) && fx_next(n, &c)) {
        assert_ptr_equal(fx_array_device(a.x), fx_cpu_device());
        assert_ptr_equal(fx_array_device(b.x), other);
        assert_ptr_equal(fx_array_device(c.y), other);
        assert_int_equal(fx_item(fx_all(fx_eq(a.y, fx_cpu(b.y)))), 1);
        assert_int_equal(fx_item(fx_all(fx_eq(a.x, fx_cpu(c.x)))), 1);
        seen += a.size;
    }
    fx_batch_end(&b);
    fx_batch_end(&c);
    assert_int_equal(seen, 10);
    assert_int_equal(fx_error_take().status, FX_OK);
}

/* The parts of each batch, one after the other, are the batch. A batch with fewer observations than
 * parts is in each of them. */
static void check_part_of_loaders(int64_t n, int64_t batchsize, int parts, bool shuffle)
{
    FX_SCOPE;
    void *data = make_data(TUPLE, n);
    fx_loader *whole = fx_dataloader(data, .batchsize = batchsize, .shuffle = shuffle, .seed = 5),
              *part[8];
    fx_batch all = {0}, one[8] = {{0}};
    for (int k = 0; k < parts; k++)
        part[k] = fx_loader_part(whole, k, parts);
    while (fx_next(whole, &all)) {
        int64_t ids[MOST], mine[MOST], at = 0;
        check_batch(TUPLE, &all, ids);
        for (int k = 0; k < parts; k++) {
            assert_true(fx_next(part[k], &one[k]));
            check_batch(TUPLE, &one[k], mine);
            assert_int_equal(one[k].total, all.size);
            assert_true(one[k].size == all.size / parts || one[k].size == all.size / parts + 1 ||
                        all.size < parts);
            at = all.size < parts ? 0 : at;
            assert_memory_equal(mine, ids + at, (size_t)one[k].size * sizeof *mine);
            at += one[k].size;
        }
        assert_int_equal(at, all.size);
    }
    for (int k = 0; k < parts; k++)
        assert_false(fx_next(part[k], &one[k]));
}

static void parts_of_batches(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 20; n++)
        for (int parts = 1; parts <= 8; parts++)
            for (int64_t batchsize = 1; batchsize <= n; batchsize += 3)
                check_part_of_loaders(n, batchsize, parts, n % 2);
    FX_SCOPE;
    fx_loader *l = fx_dataloader(make_data(TUPLE, 9), .batchsize = 4);
    expect_error(fx_loader_part(l, 2, 2), FX_STATUS_ARGUMENT, "part 2 of 2");
    expect_error(fx_loader_part(fx_loader_part(l, 0, 2), 0, 2), FX_STATUS_ARGUMENT,
                 "already part 0 of 2");
    expect_error(fx_loader_part(NULL, 0, 2), FX_STATUS_ARGUMENT, "expects a DataLoader, got NULL");
}

/* Batches are freed when the next one is taken, also if the program still holds them. */
static void eager_iterator(void **state)
{
    (void)state;
    FX_SCOPE;
    void *data = make_data(TUPLE, 7);
    fx_loader *it = fx_cu_iterator(fx_dataloader(data, .batchsize = 3));
    fx_array *held = NULL, *kept = NULL, *pending = NULL;
    int64_t seen = 0, first = 0;
    for (fx_batch b = {0}; fx_next(it, &b);) {
        assert_int_equal(fx_eltype(b.y), FX_DTYPE_I64);
        assert_int_equal(fx_item(fx_slice(b.y, 0, 0, 1)), seen);
        seen += b.size;
        if (held) {
            assert_true(isnan(fx_at(held, 0)));
            const fx_error e = fx_error_take();
            assert_int_equal(e.status, FX_STATUS_STATE);
            assert_non_null(strstr(e.message, "freed when its iterator"));
            /* A copy that the program made remains. */
            assert_true(fx_at(kept, 0) == 100.0 * (double)first);
            assert_int_equal(fx_eval(pending), FX_STATUS_STATE);
            assert_int_equal(fx_error_take().status, FX_STATUS_STATE);
            assert_null(fx_data(held));
            assert_int_equal(fx_error_take().status, FX_STATUS_STATE);
            fx_release(held);
        }
        held = fx_retain(b.x);
        kept = fx_add(fx_slice(held, 1, 0, 1), 0);
        first = seen - b.size;
        assert_int_equal(fx_eval(kept), FX_OK);
        pending = fx_mul(held, 2);
    }
    assert_int_equal(seen, 7);
    assert_int_equal(fx_eval(pending), FX_STATUS_STATE); /* the last one is freed too */
    assert_int_equal(fx_error_take().status, FX_STATUS_STATE);
    fx_release(held);
    assert_int_equal(fx_item(fx_slice(fx_child(data, 1), 0, 6, 7)), 6); /* the data are not */
    assert_true(fx_is_error(fx_cu_iterator((void *)data)));
    assert_string_equal(fx_error_take().message, "cu_iterator: expects a DataLoader, got Tuple");
    assert_int_equal(fx_loader_seek(fx_error_object(fx_type_of(it)), (fx_loader_position){0}),
                     FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "expects a DataLoader, got an error object"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_batches),
        cmocka_unit_test(eager_iterator),
        cmocka_unit_test(mapped_data),
        cmocka_unit_test(batches_have_no_past),
        cmocka_unit_test(moved_loader),
        cmocka_unit_test(all_combinations),
        cmocka_unit_test(seeds),
        cmocka_unit_test(seeds_of_collating_functions),
        cmocka_unit_test(shuffle_is_uniform),
        cmocka_unit_test(abandoned_passes),
        cmocka_unit_test(nested_passes),
        cmocka_unit_test(foreign_batches),
        cmocka_unit_test(batches_do_not_pile_up),
        cmocka_unit_test(data_replaced_during_a_pass),
        cmocka_unit_test(refusals),
        cmocka_unit_test(fewer_than_a_batch),
        cmocka_unit_test(summary),
        cmocka_unit_test(mapped_loader),
        cmocka_unit_test(observations),
        cmocka_unit_test(several_threads),
        cmocka_unit_test(each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
