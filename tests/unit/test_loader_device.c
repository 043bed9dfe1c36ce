/* test_loader_device.c: batches that are made and moved in advance, to a device whose memory the
 * host cannot address: equal to a loader that does neither, copied once, bounded in memory, freed
 * in time; functions in workers; every way to fail or to stop in the middle. ctest: threads
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "away.h"
#include "context.h"
#include "evaluate.h"
#include "memory.h"
#include "option_struct.h"
#include "pool.h"
#include "same_bits.h"
#include "thread_count.h"

enum { ROWS = 6, OBS = 40, BATCH = 8, BATCHES = OBS / BATCH };
/* One batch of X (Float32) and Y (Int64) in bytes. */
enum { BATCH_BYTES = BATCH * (ROWS * 4 + 8) };

static fx_device *device;

static int setup(void **state)
{
    (void)state;
    setenv("CFLUX_PROJECT", CFLUX_BUILD_DIR, 1);
    device = away_register("CUDA", 2);
    return 0;
}

static int64_t live_bytes(void)
{
    return fxi_device_live(device);
}

static fx_array *make_x(fx_dtype type)
{
    fx_array *x = fx_cast(fx_mul(fx_randn(ROWS, OBS), 100), type);
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

/* Y says which observation it is. */
static fx_array *make_y(void)
{
    int64_t y[OBS];
    for (int i = 0; i < OBS; i++)
        y[i] = i;
    return fx_from(FX_DTYPE_I64, y, OBS);
}

static void *make_data(void)
{
    return fx_tuple(make_x(FX_DTYPE_F32), make_y());
}

/* A loader whose passes begin with the first; l itself is to stay unused. */
static fx_loader *anew(fx_loader *l)
{
    return fx_to(fx_cpu_device(), l);
}

/* Compares two passes of both loaders; the batches of `two` are on `where`. Returns the number of
 * batches. */
static int same_batches(fx_loader *one, fx_loader *two, fx_device *where)
{
    int compared = 0;
    assert_int_equal(fx_loader_length(one), fx_loader_length(two));
    for (int pass = 0; pass < 2; pass++) {
        fx_batch a = {0}, b = {0};
        while (fx_next(one, &a)) {
            assert_true(fx_next(two, &b));
            assert_int_equal(a.index, b.index);
            assert_int_equal(a.size, b.size);
            assert_int_equal(fx_count(a.items), fx_count(b.items));
            for (int64_t i = 0; i < fx_count(a.items); i++) {
                assert_string_equal(fx_child_name(a.items, i), fx_child_name(b.items, i));
                assert_ptr_equal(fx_array_device(fx_child(b.items, i)), where);
                same_bits(fx_child(a.items, i), fx_child(b.items, i));
            }
            same_bits(a.x, b.x);
            same_bits(a.y, b.y);
            compared++;
        }
        assert_false(fx_next(two, &b));
    }
    assert_int_equal(fx_error_status(), FX_OK);
    return compared;
}

/* ---- the same batches ------------------------------------------------------------------------ */

static void equal_to_the_plain_loader(void **state)
{
    (void)state;
    static const int64_t sizes[] = {8, 7, 40, 1};
    int compared = 0;
    for (int bits = 0; bits < 8; bits++)
        for (int s = 0; s < 4; s++)
            for (int workers = -1; workers <= 3; workers++) {
                FX_SCOPE;
                void *data = bits & 4 ? make_data()
                                      : (void *)fx_named_tuple("x", make_x(FX_DTYPE_F32), "label",
                                                               make_y(), "z", make_x(FX_DTYPE_U8));
                FXI_DEFAULT_OPTIONS(fx_dataloader_args, FXI_DATALOADER_ARGS, a);
                a.data = data;
                a.batchsize = sizes[s];
                a.shuffle = bits & 1;
                a.seed = 5;
                a.partial = !(bits & 2);
                a.workers = 0;
                fx_loader *plain = fxi_dataloader(&a);
                a.workers = workers;
                a.device = device;
                compared += same_batches(plain, fxi_dataloader(&a), device);
                a.device = NULL;
                plain = fx_dataloader(data, .batchsize = sizes[s], .shuffle = bits & 1, .seed = 5,
                                      .partial = !(bits & 2));
                compared += same_batches(plain, fx_to(device, fxi_dataloader(&a)), device);
            }
    assert_true(compared > 3000);
    assert_int_equal(away.live, 0);
    assert_int_equal(live_bytes(), 0);
}

/* Flux: gpu(loader) is DataLoader(mapobs(gpu, data)); Float64 becomes Float32, but not by fx_to. */
static void gpu_of_a_loader_is_mapobs_of_gpu(void **state)
{
    (void)state;
    FX_SCOPE;
    void *data = fx_tuple(make_x(FX_DTYPE_F64), make_y());
    fx_loader *plain = fx_dataloader(data, .batchsize = 7, .shuffle = true, .seed = 9);
    fx_loader *moved = fx_gpu(plain);
    assert_ptr_not_equal(moved, plain);
    assert_ptr_equal(fx_gpu(moved), moved);
    for (int parallel = 0; parallel < 2; parallel++) {
        fx_loader *mapped = fx_dataloader(fx_mapobs(fx_gpu, data), .batchsize = 7, .shuffle = true,
                                          .seed = 9, .parallel = parallel);
        assert_int_equal(same_batches(mapped, fx_gpu(plain), device), 12);
    }
    fx_batch b = {0};
    assert_true(fx_next(moved, &b));
    assert_int_equal(fx_eltype(b.x), FX_DTYPE_F32);
    assert_int_equal(fx_eltype(b.y), FX_DTYPE_I64);
    fx_batch_end(&b);
    assert_int_equal(same_batches(fx_dataloader(data, .batchsize = 7),
                                  fx_to(device, fx_dataloader(data, .batchsize = 7)), device),
                     12);
    assert_int_equal(same_batches(fx_cpu(moved), fx_cpu(moved), fx_cpu_device()), 12);
}

/* ---- copies and memory ----------------------------------------------------------------------- */

static void each_array_is_copied_once(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_loader *l =
        fx_dataloader(make_data(), .batchsize = BATCH, .shuffle = true, .device = device);
    const away_counts before = away;
    int batches = 0;
    for (fx_batch b = {0}; fx_next(l, &b);)
        batches++;
    assert_int_equal(batches, BATCHES);
    assert_int_equal(away.writes - before.writes, 2 * BATCHES);
    assert_int_equal(away.bytes_written - before.bytes_written, BATCHES * BATCH_BYTES);
    assert_int_equal(away.allocs - before.allocs, 2 * BATCHES);
    assert_int_equal(away.reads - before.reads, 0);
    assert_int_equal(away.runs - before.runs, 0);
    assert_int_equal(away.live, 0);
}

static int failures; /* atomic: errors of any thread since memory_is_bounded began */
static void count_failure(const fx_error *e, void *unused)
{
    (void)e, (void)unused;
    __atomic_add_fetch(&failures, 1, __ATOMIC_SEQ_CST);
}

/* Workers fail while the batch is held; on a busy machine they run late. */
static void wait_for_a_failure(void)
{
    for (int i = 0; i < 3000 && __atomic_load_n(&failures, __ATOMIC_SEQ_CST) == 0; i++)
        usleep(10000);
}

/* Runs a pass with memory for `most` batches on the device; returns the number of batches. */
static int pass_within(int most, int workers, bool iterator)
{
    FX_SCOPE;
    fx_loader *l = fx_dataloader(make_data(), .batchsize = BATCH, .workers = workers);
    l = iterator ? fx_cu_iterator(l) : fx_to(device, l);
    fx_set_memory_limit(device, most * (int64_t)BATCH_BYTES);
    int batches = 0;
    for (fx_batch b = {0}; fx_next(l, &b);) {
        if (workers != 0 && most == 1)
            wait_for_a_failure();
        else
            usleep(2000); /* for workers to do all they may, if they are run */
        assert_true(live_bytes() <= most * (int64_t)BATCH_BYTES);
        assert_true(live_bytes() >= BATCH_BYTES);
        batches++;
    }
    assert_int_equal(live_bytes(), 0);
    fx_set_memory_limit(device, 0);
    return batches;
}

static void memory_is_bounded(void **state)
{
    (void)state;
    fx_error_set_hook(count_failure, NULL);
    for (int iterator = 0; iterator < 2; iterator++) {
        failures = 0;
        assert_int_equal(pass_within(1, 0, iterator), BATCHES);
        assert_int_equal(pass_within(3, FX_WORKERS_AUTO, iterator), BATCHES);
        assert_int_equal(pass_within(5, 2, iterator), BATCHES);
        assert_int_equal(fx_error_take().status, FX_OK);
        assert_true(pass_within(1, FX_WORKERS_AUTO, iterator) <
                    BATCHES); /* the lack of memory is reported */
        assert_int_equal(fx_error_take().status, FX_STATUS_MEMORY);
    }
    fx_error_set_hook(NULL, NULL);
    assert_int_equal(away.live, 0);
}

/* Retained objects remain, and no others. */
static void a_batch_that_is_held_stays(void **state)
{
    (void)state;
    FX_SCOPE;
    void *data = make_data();
    fx_loader *l = fx_dataloader(data, .batchsize = BATCH, .device = device);
    fx_array *held = NULL, *kept = NULL;
    for (fx_batch b = {0}; fx_next(l, &b);) {
        if (b.index == 0)
            held = fx_retain(b.x);
        if (b.index == 2)
            fx_set(&kept, b.y);
    }
    same_bits(held, fx_slice(fx_child(data, 0), 1, 0, BATCH));
    same_bits(kept, fx_slice(fx_child(data, 1), 0, 2 * BATCH, 3 * BATCH));
    assert_int_equal(away.live, 2);
    fx_release(held);
    assert_int_equal(away.live, 1);
    fx_set(&kept, NULL);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* fx_keep: for the scope around the step, the whole pass and longer. */
static void a_batch_that_is_kept_stays(void **state)
{
    (void)state;
    void *data = fx_retain(make_data());
    {
        FX_SCOPE;
        fx_array *x[BATCHES];
        void *first = NULL;
        {
            FX_SCOPE;
            fx_loader *l = fx_dataloader(data, .batchsize = BATCH, .device = device);
            for (fx_batch b = {0}; fx_next(l, &b);) {
                FX_STEP;
                x[b.index] = fx_keep(b.x);
                assert_ptr_equal(x[b.index], b.x);
                if (b.index == 0)
                    first = fx_keep(b.items);
            }
            assert_int_equal(away.live, BATCHES + 1);
            for (int i = 0; i < BATCHES; i++) {
                same_bits(x[i], fx_slice(fx_child(data, 0), 1, i * BATCH, (i + 1) * BATCH));
                if (i < 2)
                    assert_ptr_equal(fx_keep(x[i]),
                                     x[i]); /* hands the array to the next outer scope */
            }
            same_bits(fx_child(first, 1), fx_slice(fx_child(data, 1), 0, 0, BATCH));
        }
        assert_int_equal(away.live, 2);
        same_bits(x[1], fx_slice(fx_child(data, 0), 1, BATCH, 2 * BATCH));
    }
    assert_int_equal(away.live, 0);
    fx_release(data);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* The manual's other way: all data at once. Batches are made where the data are. */
static void data_that_is_there_already(void **state)
{
    (void)state;
    {
        FX_SCOPE;
        void *data = make_data(), *there = fx_gpu(data);
        for (int shuffle = 0; shuffle < 2; shuffle++)
            for (int workers = 0; workers <= 2; workers += 2) {
                fx_loader *plain =
                    fx_dataloader(data, .batchsize = 7, .shuffle = shuffle, .seed = 4);
                fx_loader *l = fx_dataloader(there, .batchsize = 7, .shuffle = shuffle, .seed = 4,
                                             .workers = workers);
                fx_device *other = fx_device_get("CUDA", 1);
                assert_int_equal(same_batches(anew(plain), fx_to(device, l), device), 12);
                assert_int_equal(same_batches(anew(plain), fx_cpu(l), fx_cpu_device()), 12);
                assert_int_equal(same_batches(anew(plain), fx_to(other, l), other), 12);
                assert_int_equal(same_batches(anew(plain), fx_cu_iterator(l), device), 12);
                assert_int_equal(same_batches(anew(plain), l, device), 12);
                const away_counts before = away;
                for (fx_batch b = {0}; fx_next(l, &b);)
                    continue;
                assert_int_equal(away.writes - before.writes, shuffle * 6); /* the positions */
                assert_int_equal(away.reads - before.reads, 0);
            }
        same_bits(fx_child(there, 0), fx_child(data, 0)); /* no iterator has freed the data */
        same_bits(fx_child(there, 1), fx_child(data, 1));
    }
    fxi_reclaim_all();
    assert_int_equal(away.live, 0);
}

/* ---- CuIterator ------------------------------------------------------------------------------ */

static void iterator_frees_at_once(void **state)
{
    (void)state;
    {
        FX_SCOPE;
        void *data = fx_named_tuple("x", make_x(FX_DTYPE_F64), "y", make_y());
        fx_loader *it = fx_cu_iterator(fx_dataloader(data, .batchsize = BATCH));
        assert_int_equal(same_batches(fx_dataloader(data, .batchsize = BATCH), it, device),
                         2 * BATCHES); /* Float64 as well */
        fx_array *held = NULL;
        int stale = 0;
        for (fx_batch b = {0}; fx_next(it, &b);) {
            if (held) {
                double v[ROWS * BATCH];
                assert_int_equal(fx_read_into(held, v, sizeof v), FX_STATUS_STATE);
                assert_non_null(strstr(fx_error_take().message, "freed when its iterator"));
                fx_release(held);
                stale++;
            }
            held = fx_retain(b.x);
        }
        assert_int_equal(stale, BATCHES - 1);
        assert_int_equal(away.live, 0); /* although the last one is held */
        assert_int_equal(fx_eval(fx_mul(held, 2)), FX_STATUS_STATE);
        assert_int_equal(fx_error_take().status, FX_STATUS_STATE);
        fx_release(held);
    }
}

static void *nested(void *observations, void *user)
{
    (void)user;
    return fx_tuple(fx_child(observations, 0), fx_dense(2, 2));
}

static void iterator_takes_arrays_only(void **state)
{
    (void)state;
    for (int parallel = 0; parallel < 2; parallel++) {
        FX_SCOPE;
        fx_loader *l = fx_dataloader(fx_mapobs_with(nested, NULL, make_data()), .batchsize = BATCH,
                                     .parallel = parallel);
        fx_batch b = {0};
        assert_false(fx_next(fx_cu_iterator(l), &b));
        fx_error e = fx_error_take();
        assert_int_equal(e.status, FX_STATUS_ARGUMENT);
        assert_non_null(strstr(e.message, "cu_iterator: a batch must be an array, a tuple or"));
        l = fx_dataloader(fx_mapobs_with(nested, NULL, make_data()), .buffer = true);
        assert_false(fx_next(l, &b));
        e = fx_error_take();
        assert_int_equal(e.status, FX_STATUS_ARGUMENT);
        assert_non_null(strstr(e.message, "with .buffer a batch must be an array"));
        assert_null(strstr(e.message, "cu_iterator"));
    }
    assert_int_equal(away.live, 0);
}

/* ---- functions ------------------------------------------------------------------------------- */

typedef struct augmentation {
    pthread_t caller;
    int calls, elsewhere; /* atomic */
    int fails_at;         /* the call that gives nothing; 0: none */
    bool by_file;         /* … but the contents of a file that does not exist */
    int microseconds;
} augmentation;

/* Noise, and a draw on the host. */
static void *augment(void *observations, void *user)
{
    augmentation *a = user;
    const int call = __atomic_add_fetch(&a->calls, 1, __ATOMIC_SEQ_CST);
    if (!pthread_equal(pthread_self(), a->caller))
        __atomic_add_fetch(&a->elsewhere, 1, __ATOMIC_SEQ_CST);
    usleep((useconds_t)a->microseconds);
    if (call == a->fails_at)
        return a->by_file ? fx_read_idx("no such file") : NULL;
    fx_array *x = fx_child(observations, 0);
    const double shift = (double)(fx_rand_u64() % 1000);
    fx_array *noise = fx_randn(fx_size(x, 0), fx_size(x, 1));
    return fx_tuple(fx_add(fx_add(x, noise), shift), fx_child(observations, 1));
}

static void functions_make_the_same_in_any_thread(void **state)
{
    (void)state;
    FX_SCOPE;
    augmentation a = {.caller = pthread_self()};
    void *data = fx_mapobs_with(augment, &a, make_data());
    const bool shuffle = true;
    fx_seed(3);
    fx_loader *plain = fx_dataloader(data, .batchsize = 7, .shuffle = shuffle);
    const uint64_t next = fx_rand_u64();
    for (int workers = FX_WORKERS_AUTO; workers <= 3; workers++)
        for (int parallel = 0; parallel < (workers == 0 ? 1 : 2); parallel++) {
            fx_seed(3);
            fx_loader *l = fx_dataloader(data, .batchsize = 7, .shuffle = shuffle,
                                         .workers = workers, .parallel = parallel);
            a.calls = a.elsewhere = 0;
            fx_loader *there = fx_to(device, l);
            assert_int_equal(same_batches(anew(plain), l, fx_cpu_device()), 12);
            assert_int_equal(a.calls, 24);
            assert_int_equal(a.elsewhere, parallel ? 12 : 0);
            assert_int_equal(same_batches(anew(plain), there, device), 12);
            assert_true(fx_rand_u64() == next); /* the thread's own stream has not moved */
        }
    fx_batch b = {0}, c = {0}; /* passes differ, because the function draws random numbers */
    fx_loader *l = fx_dataloader(data, .batchsize = OBS, .seed = 3);
    assert_true(fx_next(l, &b));
    assert_true(fx_next(l, &c));
    assert_int_equal(fx_item(fx_any(fx_eq(b.x, c.x))), 0);
    fx_batch_end(&b);
    fx_batch_end(&c);
}

/* The error of a function is recorded with its batch, in the thread that requests the batch. */
static void functions_that_fail(void **state)
{
    (void)state;
    for (int parallel = 0; parallel < 2; parallel++)
        for (int at = 1; at <= BATCHES; at++) {
            FX_SCOPE;
            augmentation a = {.caller = pthread_self(), .fails_at = at, .by_file = at % 2};
            fx_loader *l =
                fx_dataloader(fx_mapobs_with(augment, &a, make_data()), .batchsize = BATCH,
                              .parallel = parallel, .device = device);
            int batches = 0;
            for (fx_batch b = {0}; fx_next(l, &b); batches++)
                assert_int_equal(fx_error_status(), FX_OK);
            assert_int_equal(batches, at - 1);
            const fx_error e = fx_error_take();
            assert_int_equal(e.status, a.by_file ? FX_STATUS_IO : FX_STATUS_ARGUMENT);
            assert_non_null(strstr(e.message, a.by_file ? "no such file"
                                                        : "mapobs: the function returned NULL"));
            assert_non_null(strstr(e.file, "test_loader_device.c"));
        }
    assert_int_equal(away.live, 0);
}

/* ---- stopping in the middle ------------------------------------------------------------------ */

static void leave_by_break(fx_loader *l)
{
    for (fx_batch b = {0}; fx_next(l, &b);)
        if (b.index == 1)
            break;
}

static void stopped_in_the_middle(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        const int64_t threads = threads_now();
        {
            FX_SCOPE;
            augmentation a = {.caller = pthread_self(), .microseconds = 3000};
            fx_loader *l =
                fx_dataloader(fx_mapobs_with(augment, &a, make_data()), .batchsize = 2,
                              .parallel = true, .workers = 1 + way % 2, .device = device);
            fx_batch b = {0};
            if (way == 0)
                leave_by_break(l); /* the loader is freed while its worker is busy */
            for (int i = 0; way == 1 && i < 3; i++)
                assert_true(fx_next(l, &b));
            if (way == 1) {
                fx_batch_end(&b);
                expect_threads(threads);
                assert_int_equal(live_bytes(), 0);
            }
            for (int i = 0; way == 2 && i < 4; i++) { /* the same variable, again and again */
                memset(&b, 0, sizeof b);
                assert_true(fx_next(l, &b));
                assert_int_equal(b.index, 0);
            }
            for (int i = 0; way == 3 && i < 3; i++)
                leave_by_break(l);
        }
        expect_threads(threads);
        assert_int_equal(away.live, 0);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

static void nested_passes(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_loader *l = fx_dataloader(make_data(), .batchsize = BATCH, .device = device);
    int pairs = 0;
    for (fx_batch a = {0}; fx_next(l, &a);)
        for (fx_batch b = {0}; fx_next(l, &b);) {
            FX_SCOPE;
            assert_true(fx_item(fx_slice(fx_cpu(a.y), 0, 0, 1)) == BATCH * (double)a.index);
            assert_true(fx_item(fx_slice(fx_cpu(b.y), 0, 0, 1)) == BATCH * (double)b.index);
            pairs++;
        }
    assert_int_equal(pairs, BATCHES * BATCHES);
    assert_int_equal(live_bytes(), 0);
}

static void *passes_of_a_thread(void *argument)
{
    int *batches = argument;
    FX_SCOPE;
    fx_loader *l = fx_dataloader(make_data(), .batchsize = 3, .shuffle = true, .device = device);
    for (int pass = 0; pass < 6; pass++)
        for (fx_batch b = {0}; fx_next(l, &b);)
            ++*batches;
    return NULL;
}

static void several_loaders_at_once(void **state)
{
    (void)state;
    pthread_t threads[3];
    int batches[3] = {0};
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, passes_of_a_thread, &batches[i]), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(batches[i], 6 * 14);
    }
    assert_int_equal(away.live, 0);
}

/* A training loop as a program writes it, against one on the CPU. */
static void training_on_the_device(void **state)
{
    (void)state;
    FX_SCOPE;
    void *data = make_data(), *here = fx_dense(ROWS, 1), *there = fx_gpu(here);
    void *opt[2] = {fx_setup(fx_adam(), here), fx_setup(fx_adam(), there)};
    fx_loader *l = fx_dataloader(data, .batchsize = BATCH, .shuffle = true, .seed = 2);
    fx_loader *loaders[2] = {l, fx_gpu(l)};
    void *models[2] = {here, there};
    for (int k = 0; k < 2; k++)
        for (int epoch = 0; epoch < 2; epoch++)
            for (fx_batch b = {0}; fx_next(loaders[k], &b);) {
                FX_STEP;
                fx_array *y = fx_reshape(fx_cast(b.y, FX_DTYPE_F32), 1, b.size);
                fx_array *loss = fx_mse(fx_call(models[k], b.x), y);
                assert_int_equal(fx_update(opt[k], models[k], fx_gradient(loss, models[k])), FX_OK);
            }
    same_bits(((fx_dense_layer *)here)->weight, ((fx_dense_layer *)there)->weight);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* The batches that came before the error. */
static int batches_until_error(fx_status expected, int workers)
{
    FX_SCOPE;
    fx_loader *l =
        fx_dataloader(make_data(), .batchsize = BATCH, .workers = workers, .device = device);
    int batches = 0;
    for (fx_batch b = {0}; fx_next(l, &b); batches++) {
        assert_int_equal(fx_error_status(), FX_OK);
        assert_int_equal(b.index, batches);
    }
    const fx_error e = fx_error_take();
    if (batches < BATCHES) {
        assert_int_equal(e.status, expected);
        assert_non_null(strstr(e.file, "test_loader_device.c"));
        fx_batch again = {0}; /* the loader still works */
        assert_true(fx_next(l, &again));
        fx_batch_end(&again);
    }
    assert_int_equal(away.live, 0);
    return batches;
}

static void copies_and_allocations_that_fail(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 3; workers += 2)
        for (int nth = 1; nth <= 2 * BATCHES; nth++) {
            away_copy_fails = nth;
            const int copies = batches_until_error(FX_STATUS_DEVICE, workers);
            away_alloc_fails = nth;
            const int allocs = batches_until_error(FX_STATUS_MEMORY, workers);
            away_alloc_fails = 0;
            assert_true(copies < BATCHES);
            assert_true(workers > 1 || copies == (nth - 1) / 2);
            assert_true(allocs == BATCHES || workers > 1 || allocs == (nth - 1) / 2);
        }
    assert_int_equal(batches_until_error(FX_OK, 1), BATCHES);
}

/* Work that workers do not do: batches of data that is on the device, functions of the program. */
static void steps_that_fail(void **state)
{
    (void)state;
    for (int nth = 1; nth <= 2 * BATCHES; nth++)
        for (int workers = 0; workers < 2; workers++) {
            FX_SCOPE;
            fx_loader *l = fx_dataloader(fx_to(device, make_data()), .batchsize = BATCH,
                                         .shuffle = true, .workers = workers);
            int64_t batches = 0;
            away_run_fails = nth;
            for (fx_batch b = {0}; fx_next(l, &b);)
                batches++;
            const fx_error e = fx_error_take();
            assert_true(away_run_fails > 0 ? batches == BATCHES : batches < BATCHES);
            assert_int_equal(e.status, batches == BATCHES ? FX_OK : FX_STATUS_DEVICE);
            assert_true(nth > BATCHES || batches < BATCHES);
            away_run_fails = 0;
        }
}

static bool pass_with_fault(int64_t nth, bool parallel)
{
    FX_SCOPE;
    augmentation a = {.caller = pthread_self()};
    void *data = make_data();
    data = parallel ? fx_mapobs_with(augment, &a, data) : data;
    fxi_fault_set(nth);
    fx_loader *l = fx_dataloader(data, .batchsize = 16, .shuffle = true, .seed = 5,
                                 .parallel = parallel, .device = device);
    int64_t n = 0;
    for (fx_batch b = {0}; fx_next(l, &b);)
        n += b.size;
    const bool reached = fxi_fault_seen() > nth;
    fxi_fault_set(-1);
    const fx_error e = fx_error_take();
    assert_true(n == OBS || e.status == FX_STATUS_MEMORY);
    return reached;
}

static void each_allocation_fails(void **state)
{
    (void)state;
    for (int parallel = 0; parallel < 2; parallel++) {
        pass_with_fault(INT64_MAX, parallel);
        fxi_reclaim_all();
        const int64_t live = fxi_live_allocations();
        int64_t nth = 0;
        while (pass_with_fault(nth, parallel)) {
            fxi_reclaim_all();
            assert_int_equal(fxi_live_allocations(), live);
            assert_int_equal(away.live, 0);
            assert_in_range(++nth, 1, 100000);
        }
        assert_true(nth > 20);
    }
}

/* Sanitizers and the emulator cannot fork a process with threads: the child may wait for ever for a
 * lock of the sanitizer's own allocator that a worker held. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && !defined(CFLUX_EMULATED)
#define FORKS_WITH_THREADS
static double rest_of_pass(fx_loader *l, fx_batch *b)
{
    double sum = 0;
    while (fx_next(l, b))
        sum += fx_item(fx_sum(fx_cpu(b->y)));
    return fx_error_status() == FX_OK ? sum : -1;
}

/* The child has no workers and continues without them; the parent continues with its workers. */
static void a_fork_in_the_middle(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        FX_SCOPE;
        fx_loader *l = fx_dataloader(make_data(), .batchsize = 2, .workers = 1 + round % 3,
                                     .device = round % 2 ? device : NULL);
        fx_batch b = {0};
        double first = 0;
        for (int i = 0; i < 3; i++) {
            assert_true(fx_next(l, &b));
            first += fx_item(fx_sum(fx_cpu(b.y)));
        }
        fflush(NULL);
        const pid_t child = fork();
        assert_true(child >= 0);
        const double expected = OBS * (OBS - 1) / 2.0, sum = first + rest_of_pass(l, &b);
        if (child == 0) {
            const double another = rest_of_pass(l, &b);
            _exit(sum == expected && another == expected ? 0 : 1);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_true(sum == expected);
    }
}
#endif

static void options_that_exclude_each_other(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_true(fx_is_error(fx_dataloader(make_data(), .workers = 0, .parallel = true)));
    assert_non_null(strstr(fx_error_take().message, "parallel needs workers, but workers is 0"));
    assert_true(fx_is_error(fx_dataloader(make_data(), .batchsize = 0)));
    assert_non_null(strstr(fx_error_take().message, "batchsize is 0, expected a positive number"));
}

/* After every test: nothing is left on the device. */
static int nothing_is_left(void **state)
{
    (void)state;
    fxi_reclaim_all();
    return away.live == 0 && live_bytes() == 0 ? 0 : -1;
}

#define TEST(name) cmocka_unit_test_teardown(name, nothing_is_left)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(equal_to_the_plain_loader),
        TEST(gpu_of_a_loader_is_mapobs_of_gpu),
        TEST(each_array_is_copied_once),
        TEST(memory_is_bounded),
        TEST(a_batch_that_is_held_stays),
        TEST(a_batch_that_is_kept_stays),
        TEST(data_that_is_there_already),
        TEST(iterator_frees_at_once),
        TEST(iterator_takes_arrays_only),
        TEST(functions_make_the_same_in_any_thread),
        TEST(functions_that_fail),
        TEST(stopped_in_the_middle),
        TEST(nested_passes),
        TEST(several_loaders_at_once),
        TEST(training_on_the_device),
        TEST(copies_and_allocations_that_fail),
        TEST(steps_that_fail),
        TEST(each_allocation_fails),
#ifdef FORKS_WITH_THREADS
        TEST(a_fork_in_the_middle),
#endif
        TEST(options_that_exclude_each_other),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
