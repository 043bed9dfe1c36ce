/* test_device_memory.c: devices with memory of their own (ctest: threads). Freed memory is kept up
 * to a bound and used again; limits; the order of attempts when memory runs out, the text of the
 * error, and that no value is lost. The device is that of support/away, with a given number of
 * bytes and a log of its calls.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cflux.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away.h"
#include "context.h"
#include "evaluate.h"
#include "memory.h"
#include "pool.h"
#include "reads.h"
#include "registry.h"

enum { MIB = 1 << 20, BLOCKS = 4096, LOG = 4000 };

/* ---- the device ------------------------------------------------------------------------------ */

static const fx_backend *inner;
static fx_device *d0, *d1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const void *ptr;
    int64_t bytes;
} blocks[BLOCKS];
static int64_t used[4], capacity; /* bytes of each device; the most that each has */
static char calls[LOG];           /* one letter for each call */
static int ncalls;
static bool sync_fails;

static void note(char letter)
{
    static pthread_mutex_t log = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&log);
    if (ncalls < LOG - 1)
        calls[ncalls++] = letter;
    calls[ncalls] = 0;
    pthread_mutex_unlock(&log);
}

static void forget_calls(void)
{
    ncalls = 0;
    *calls = 0;
}

static int count(char letter)
{
    int n = 0;
    for (const char *c = calls; *c; c++)
        n += *c == letter;
    return n;
}

/* Logs A for an allocation, x for a refused one. */
static void *traced_alloc(fx_device *device, size_t bytes)
{
    pthread_mutex_lock(&lock);
    void *p = used[device->id] + (int64_t)bytes <= capacity ? inner->alloc(device, bytes) : NULL;
    note(p ? 'A' : 'x');
    for (int i = 0; p && i < BLOCKS; i++)
        if (!blocks[i].ptr) {
            blocks[i].ptr = p;
            blocks[i].bytes = (int64_t)bytes;
            used[device->id] += (int64_t)bytes;
            break;
        }
    pthread_mutex_unlock(&lock);
    return p;
}

static void traced_free(fx_device *device, void *ptr)
{
    pthread_mutex_lock(&lock);
    note('f');
    int i = 0;
    while (i < BLOCKS && blocks[i].ptr != ptr)
        i++;
    if (i == BLOCKS)
        abort(); /* not ours, or freed twice */
    blocks[i].ptr = NULL;
    used[device->id] -= blocks[i].bytes;
    inner->free(device, ptr);
    pthread_mutex_unlock(&lock);
}

static int64_t traced_available(fx_device *device)
{
    pthread_mutex_lock(&lock);
    const int64_t n = capacity - used[device->id];
    pthread_mutex_unlock(&lock);
    return n;
}

static fx_status traced_sync(fx_device *device)
{
    note('s');
    return sync_fails ? fx_fail(FX_STATUS_DEVICE, "sync", "%s fell off the bus", device->name)
                      : FX_OK;
}

static void traced_release(fx_device *device, fx_step *step)
{
    note('p'); /* of a plan that is dropped */
    inner->release(device, step);
}

static fx_status traced_run(fx_device *device, const fx_step *step, const void *const *in,
                            void *out, fx_run *run)
{
    note('R');
    return inner->run(device, step, in, out, run);
}

static fx_backend table(const char *name)
{
    fx_backend b = *inner;
    b.head.name = name;
    b.alloc = traced_alloc;
    b.free = traced_free;
    b.available = traced_available;
    b.sync = traced_sync;
    b.release = traced_release;
    b.run = traced_run;
    return b;
}

static int setup(void **state)
{
    (void)state;
    static fx_backend traced;
    inner = away_register("Away", 1)->backend;
    traced = table("CUDA");
    assert_int_equal(fxi_backend_register(&traced, 2, ""), FX_OK);
    d0 = fx_device_get("CUDA", 0);
    d1 = fx_device_get("CUDA", 1);
    return 0;
}

/* Every test begins without live or cached memory, and must end in the same way. */
static int before_each(void **state)
{
    (void)state;
    fx_set_memory_limit(d0, 0);
    fx_set_memory_cache(d0, -1);
    capacity = 1 << 30;
    sync_fails = false;
    fxi_reclaim_all();
    assert_int_equal(fxi_device_live(d0), 0);
    assert_int_equal(used[0], 0);
    assert_int_equal(fx_error_status(), FX_OK);
    forget_calls();
    return 0;
}

static fx_array *there(fx_device *d, int64_t n)
{
    fx_array *x = fx_to(d, fx_full(2, n));
    assert_int_equal(fx_eval(x), FX_OK);
    assert_ptr_equal(fx_array_device(x), d);
    return x;
}

/* Allocates and frees this many bytes. */
static void come_and_go(int64_t bytes)
{
    FX_SCOPE;
    there(d0, bytes / 4);
}

/* ---- the pool -------------------------------------------------------------------------------- */

static void freed_memory_is_found_again(void **state)
{
    (void)state;
    come_and_go(MIB);
    assert_int_equal(count('A'), 1);
    assert_int_equal(count('f'), 0);
    assert_int_equal(fx_memory_status(d0).live, 0);
    assert_int_equal(fx_memory_status(d0).cached, MIB);
    come_and_go(MIB);
    come_and_go(MIB - MIB / 16); /* an array of about that size */
    assert_int_equal(count('A'), 1);
    come_and_go(MIB / 2); /* an array that would waste half of the block */
    assert_int_equal(count('A'), 2);
    come_and_go(MIB + 256);
    assert_int_equal(count('A'), 3);
    assert_int_equal(fx_memory_status(d0).cached, 2 * MIB + MIB / 2 + 256);
    assert_int_equal(count('f'), 0);
    come_and_go(800);
    come_and_go(796); /* small blocks are reused only for exactly their size */
    assert_int_equal(count('A'), 5);
    fx_reclaim();
    come_and_go(MIB / 2);
    come_and_go(MIB);
    come_and_go(MIB + 256);
    forget_calls();
    FX_SCOPE;
    fx_array *a = there(d0, MIB / 4),
             *b = there(d0, MIB / 4 + 1); /* different sizes: none reuses another block */
    assert_int_equal(count('A'), 0);
    assert_int_equal(fx_memory_status(d0).cached, MIB / 2);
    assert_int_equal(fx_memory_status(d0).live, 2 * MIB + 256);
    assert_int_equal(fx_memory_status(d0).peak, 2 * MIB + 256);
    assert_true(fx_item(fx_sum(a)) == MIB / 2 && fx_item(fx_sum(b)) == MIB / 2 + 2);
}

/* A training step reuses all its memory: from the third one on it allocates nothing. */
static void training_allocates_nothing(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_chain_layer *model = fx_to(d0, fx_chain(fx_dense(20, 30, FX_TANH), fx_dense(30, 5)));
    void *opt = fx_setup(fx_adam(.eta = 0.01), model);
    fx_array *x = fx_to(d0, fx_randn(20, 16)), *y = fx_to(d0, fx_randn(5, 16));
    for (int i = 0; i < 20; i++) {
        FX_STEP;
        if (i == 2)
            forget_calls();
        fx_array *loss = fx_mse(fx_call(model, x), y);
        fx_update(opt, model, fx_gradient(loss, model));
    }
    assert_int_equal(fx_error_status(), FX_OK);
    assert_int_equal(count('A'), 0);
    assert_int_equal(count('f'), 0);
    assert_true(count('R') >= 18);
}

static void what_is_kept_is_bounded(void **state)
{
    (void)state;
    fx_set_memory_cache(d0, 4 * MIB);
    {
        FX_SCOPE;
        for (int i = 0; i < 10; i++)
            there(d0, (MIB + i * MIB / 4) / 4);
        forget_calls();
    }
    assert_true(fx_memory_status(d0).cached <= 4 * MIB);
    assert_true(fx_memory_status(d0).cached > 2 * MIB);
    assert_int_equal(fx_memory_status(d0).cached, used[0]);
    assert_true(count('f') >= 6);
    come_and_go(3 * MIB); /* the block that was freed last is kept */
    forget_calls();
    come_and_go(3 * MIB);
    assert_string_equal(calls, "");
    come_and_go(5 * MIB); /* more than may be kept */
    assert_string_equal(calls, "Af");
    assert_int_equal(fx_memory_status(d0).cached, used[0]);
    fx_set_memory_cache(d0, 0);
    come_and_go(MIB);
    forget_calls();
    come_and_go(MIB);
    assert_string_equal(calls, "Af");
}

static void by_default_half_of_the_peak(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++)
        come_and_go(MIB + i * MIB / 2);
    assert_true(fx_memory_status(d0).peak < 64 * MIB);
    assert_true(fx_memory_status(d0).cached <= 64 * MIB);
    assert_true(fx_memory_status(d0).cached > 40 * MIB);
    {
        FX_SCOPE;
        for (int i = 0; i < 20; i++)
            there(d0, 10 * MIB / 4);
    }
    assert_int_equal(fx_memory_status(d0).peak, 200 * MIB);
    assert_int_equal(fx_memory_status(d0).cached, 100 * MIB);
    assert_int_equal(used[0], 100 * MIB);
}

static void reclaimed_by_device(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = there(d0, 1000), *y = there(d1, 1000);
    come_and_go(MIB);
    fx_to(d1, fx_full(1, 5000));
    {
        FX_SCOPE;
        there(d1, MIB);
    }
    assert_true(fx_memory_status(d0).cached > 0 && fx_memory_status(d1).cached > 0);
    fx_reclaim_device(d0);
    assert_int_equal(fx_memory_status(d0).cached, 0);
    assert_int_equal(used[0], fx_memory_status(d0).live);
    assert_true(fx_memory_status(d1).cached > 0);
    fx_reclaim();
    assert_int_equal(fx_memory_status(d1).cached, 0);
    assert_int_equal(used[1], fx_memory_status(d1).live);
    assert_true(fx_item(fx_sum(x)) == 2000 && fx_item(fx_sum(y)) == 2000);
}

/* Cached memory counts against the limit, and is freed if it exceeds the limit. */
static void the_limit_holds_for_all(void **state)
{
    (void)state;
    fx_set_memory_limit(d0, 4 * MIB);
    for (int i = 0; i < 12; i++) {
        FX_SCOPE;
        there(d0, (MIB + i * MIB / 4) / 4);
        assert_true(used[0] <= 4 * MIB);
    }
    assert_int_equal(fx_error_status(), FX_OK);
    FX_SCOPE;
    fx_array *x = fx_to(d0, fx_full(1, MIB + 1));
    assert_int_equal(fx_array_status(x), FX_STATUS_MEMORY);
    /* No freed memory could help, so it stays in the cache. */
    const long long cached = fx_memory_status(d0).cached;
    char want[160];
    assert_true(cached > 0);
    snprintf(want, sizeof want,
             "no memory for 4194308 bytes on CUDA:0 (0 bytes live of at most 4194304, %lld cached, "
             "%lld free)",
             cached, 1073741824 - cached);
    assert_non_null(strstr(fx_error_take().message, want));
}

/* ---- out of memory --------------------------------------------------------------------------- */

static fx_array *product(fx_array *x)
{
    return fx_matmul(x, x);
}

/* A device keeps a thread's work space while the thread computes on another device. */
static void work_space_stays_when_devices_alternate(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_device *const d[2] = {d0, d1};
    fx_array *x[2];
    int64_t live[2], kept[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        x[k] = fx_to(d[k], fx_full(1, 256, 256));
        assert_int_equal(fx_eval(x[k]), FX_OK);
        live[k] = fx_memory_status(d[k]).live;
    }
    for (int i = 0; i < 6; i++) {
        FX_SCOPE;
        assert_true(fx_at(product(product(x[i % 2])), 5) == 256. * 256 * 256);
        kept[i % 2] = fx_memory_status(d[i % 2]).live - live[i % 2];
        assert_true(kept[i % 2] >= MIB / 4); /* the first product */
        if (i > 1)
            assert_true(fx_memory_status(d[(i + 1) % 2]).live - live[(i + 1) % 2] >= MIB / 4);
    }
    fx_reclaim_device(d1);
    assert_int_equal(fx_memory_status(d1).live, live[1]);
    assert_true(fx_memory_status(d0).live - live[0] >= MIB / 4);
    fx_reclaim();
    assert_int_equal(fx_memory_status(d0).live, live[0]);
}

/* Trim, wait, drop plans, one more try: for a move and for an evaluation. */
static void the_steps_come_in_order(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_to(d0, fx_full(1, 512, 512)); /* 1 MiB */
    {
        FX_SCOPE;
        assert_int_equal(fx_eval(fx_tanh(x)), FX_OK); /* a plan, and 1 MiB that is kept */
    }
    come_and_go(MIB / 2);
    capacity = 3 * MIB;
    forget_calls();
    {
        FX_SCOPE;
        fx_array *y = there(d0, 2 * MIB / 4);
        assert_string_equal(calls, "xffspA");
        capacity = 1 << 30;
        assert_true(fx_item(fx_sum(y)) == MIB);
    }
    fxi_reclaim_all();
    {
        FX_SCOPE;
        fx_eval(fx_tanh(x));
        come_and_go(MIB / 2);
    }
    capacity = 3 * MIB;
    forget_calls();
    fx_array *y = product(product(x)); /* work space and a result, a MiB each */
    assert_int_equal(fx_eval(y), FX_OK);
    assert_string_equal(calls, "xffspAARR"); /* the first kept block was found */
    capacity = 1 << 30;
    assert_true(fx_item(fx_sum(y)) == 0x1p45);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* If one allocation fails once, the result is the same. */
static void one_failure_is_survived(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = fx_randn(30, 20), *x = fx_randn(20, 10);
    fx_array *here = fx_softmax(fx_matmul(fx_tanh(w), x));
    int failures = 0;
    for (int n = 1; away_alloc_fails == 0; n++) {
        FX_SCOPE;
        fxi_reclaim_all();
        away_alloc_fails = n;
        fx_array *y = fx_cpu(fx_softmax(fx_matmul(fx_tanh(fx_to(d0, w)), fx_to(d0, x))));
        assert_int_equal(fx_eval(y), FX_OK);
        assert_memory_equal(fx_data(y), fx_data(here), 300 * sizeof(float));
        failures += away_alloc_fails == 0;
    }
    away_alloc_fails = 0;
    assert_true(failures >= 4); /* two moves, work space, a result */
    assert_int_equal(fx_error_status(), FX_OK);
}

static void a_lost_device_is_not_out_of_memory(void **state)
{
    (void)state;
    FX_SCOPE;
    capacity = MIB;
    sync_fails = true;
    fx_array *x = fx_to(d0, fx_full(1, MIB));
    assert_int_equal(fx_array_status(x), FX_STATUS_DEVICE);
    const fx_error e = fx_error_take();
    assert_string_equal(e.message, "sync: CUDA:0 fell off the bus");
}

static void the_error_names_the_largest(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a[] = {fx_full(1, 10, 300),
                     fx_full_dtype(FX_DTYPE_F64, 2, 7, 1000),
                     fx_full_dtype(FX_DTYPE_I32, 3, 5000),
                     fx_full_dtype(FX_DTYPE_F16, 4, 100, 9, 5),
                     fx_full_dtype(FX_DTYPE_U8, 5, 6000),
                     fx_full(6, 2, 2000),
                     fx_full(7, 2)};
    const double sums[] = {3000, 14000, 15000, 18000, 30000, 24000, 14};
    for (int i = 0; i < 7; i++)
        a[i] = fx_to(d0, a[i]);
    fx_array *gone = fx_to(d0, fx_full(1, 90000)); /* was the largest */
    assert_int_equal(fx_array_status(gone), FX_OK);
    fxi_array_give_up(gone);
    capacity = used[0];
    fx_array *big = fx_to(d0, fx_full(1, 100000));
    assert_int_equal(fx_array_status(big), FX_STATUS_MEMORY);
    const fx_error e = fx_error_take();
    char want[400];
    snprintf(want, sizeof want,
             "to: no memory for 400000 bytes on CUDA:0 (%lld bytes live, 0 cached, %lld free); the "
             "largest arrays: 7×1000 Float64 (56000 bytes), 5000 Int32 (20000 bytes), 2×2000 "
             "Float32 (16000 bytes), 10×300 Float32 (12000 bytes), 100×9×5 Float16 (9000 bytes)",
             (long long)fxi_device_live(d0), (long long)(capacity - used[0]));
    assert_string_equal(e.message, want);
    capacity = 1 << 30;
    for (int i = 0; i < 7; i++)
        assert_true(fx_item(fx_sum(fx_cast(a[i], FX_DTYPE_F64))) == sums[i]);
}

static uint32_t dice;

static int64_t roll(int64_t sides)
{
    dice = dice * 1664525 + 1013904223;
    return (dice >> 8) % sides;
}

/* The end of the message, from the sizes of the vectors alone. */
static void largest_of(int n, const int64_t *sizes, char *text, size_t bytes)
{
    int64_t below = INT64_MAX;
    size_t at = 0;
    *text = 0;
    for (int k = 0; k < 5; k++) {
        int64_t next = 0;
        for (int i = 0; i < n; i++)
            next = sizes[i] < below && sizes[i] > next ? sizes[i] : next;
        if (!next)
            break;
        at += (size_t)snprintf(text + at, bytes - at, "%s%lld Float32 (%lld bytes)",
                               k ? ", " : "; the largest arrays: ", (long long)next,
                               (long long)(4 * next));
        below = next;
    }
}

/* Arrays come and go in a random order: the error always names the five largest that are left. */
static void the_error_names_those_that_are_left(void **state)
{
    (void)state;
    enum { MOST = 12, FIRST = 1024 };
    fx_array *arrays[MOST] = {NULL};
    int64_t sizes[MOST] = {0};
    dice = 5;
    for (int round = 0; round < 150; round++) {
        FX_SCOPE;
        const int64_t i = roll(MOST);
        capacity = 1 << 30;
        sizes[i] = sizes[i] ? 0
                            : FIRST + MOST * roll(200) +
                                  i; /* different sizes: none reuses another block */
        fx_set(&arrays[i], sizes[i] ? there(d0, sizes[i]) : NULL);
        fx_reclaim_device(d0);
        capacity = used[0];
        assert_true(fx_is_error(fx_to(d0, fx_full(1, 100))));
        const fx_error e = fx_error_take();
        char want[400];
        largest_of(MOST, sizes, want, sizeof want);
        const char *got = strstr(e.message, " free)");
        assert_non_null(got);
        assert_string_equal(got + strlen(" free)"), want);
    }
    capacity = 1 << 30;
    for (int i = 0; i < MOST; i++)
        fx_set(&arrays[i], NULL);
}

/* A plan that cannot fit: nothing is allocated, nothing runs. */
static void a_plan_knows_its_need(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_to(d0, fx_full(1, 512, 512));
    fx_array *y = product(product(x)); /* 1 MiB of work space, 1 MiB of result */
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            capacity = 3 * MIB - 1;
        else
            fx_set_memory_limit(d0, 3 * MIB - 1);
        forget_calls();
        assert_int_equal(fx_eval(y), FX_STATUS_MEMORY);
        assert_string_equal(calls, "s");
        const fx_error e = fx_error_take();
        assert_non_null(strstr(e.message, "eval: no memory for 2097152 bytes on CUDA:0 (1048576 "
                                          "bytes live"));
        assert_non_null(strstr(e.message, "; the plan needs 1048576 bytes of temporary memory and "
                                          "1048576 of results; the largest arrays: 512×512 "
                                          "Float32 (1048576 bytes)"));
        capacity = 1 << 30;
    }
    fx_set_memory_limit(d0, 3 * MIB);
    assert_int_equal(fx_eval(y), FX_OK);
    fx_set_memory_limit(d0, 0);
    assert_true(fx_item(fx_sum(y)) == 0x1p45);
}

static fx_array *loss_of(void *model, fx_device *d)
{
    fx_array *x = fx_reshape(fx_range(0, 0.01, 20 * 16), 20, 16);
    return fx_mean(fx_square(fx_call(model, fx_to(d, x))));
}

typedef struct list {
    fx_array *arrays[20];
    int n;
} list;

static void collect(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path, (void)trainable;
    list *l = user;
    assert_true(l->n < 20);
    l->arrays[l->n++] = x;
}

static void same_arrays(void *a, void *b)
{
    list x = {.n = 0}, y = {.n = 0};
    fx_visit(a, collect, &x);
    fx_visit(b, collect, &y);
    assert_int_equal(x.n, 8); /* weights, biases, scale, shift, running mean and variance */
    assert_int_equal(y.n, 8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(fx_length(x.arrays[i]), fx_length(y.arrays[i]));
        assert_memory_equal(fx_data(x.arrays[i]), fx_data(y.arrays[i]),
                            (size_t)fx_length(x.arrays[i]) * sizeof(float));
    }
}

/* The training step fails as a whole, and gives the same result afterwards. */
static void a_training_step_fails_as_a_whole(void **state)
{
    (void)state;
    FX_SCOPE;
    void *model = fx_chain(fx_dense(20, 300, FX_TANH), fx_batchnorm(300), fx_dense(300, 5));
    void *far = fx_to(d0, model), *before = fx_snapshot(model);
    void *opt = fx_setup(fx_adam(.eta = 0.01), model),
         *far_opt = fx_setup(fx_adam(.eta = 0.01), far);
    int failed = 0, done = 0;
    fx_eval(far);
    for (int64_t pages = 0; done == 0 && pages < 400; pages++) {
        fxi_reclaim_all();
        fx_set_memory_limit(d0, fxi_device_live(d0) + pages * 4096);
        FX_STEP;
        fx_array *loss = loss_of(far, d0);
        const fx_status s = fx_update(far_opt, far, fx_gradient(loss, far));
        failed += s == FX_STATUS_MEMORY;
        done += s == FX_OK;
        assert_true(s == FX_OK || s == FX_STATUS_MEMORY);
        assert_int_equal(fx_error_take().status, s);
        if (s == FX_OK)
            break;
        same_arrays(far, before);
    }
    fx_set_memory_limit(d0, 0);
    assert_int_equal(done, 1);
    assert_true(failed >= 5);
    {
        FX_STEP;
        assert_int_equal(fx_update(opt, model, fx_gradient(loss_of(model, fx_cpu_device()), model)),
                         FX_OK);
    }
    same_arrays(far, model);
}

/* If the pool has no host memory to record a block, it returns the block to the device. */
static void host_memory_runs_out(void **state)
{
    (void)state;
    int failed = 0;
    for (int64_t n = 0; n < 60; n++) {
        fxi_reclaim_all();
        const int64_t live = fxi_live_allocations();
        fxi_fault_set(n);
        {
            FX_SCOPE;
            failed += fx_array_status(fx_to(d0, fx_full(1, 2000))) == FX_STATUS_MEMORY;
        }
        fxi_fault_set(-1);
        assert_int_equal(used[0], fx_memory_status(d0).cached);
        fxi_reclaim_all();
        assert_int_equal(used[0], 0);
        assert_int_equal(fxi_live_allocations(), live);
        fx_error_take();
    }
    assert_true(failed >= 5);
}

/* ---- figures and settings -------------------------------------------------------------------- */

static void figures_for_a_person(void **state)
{
    (void)state;
    FX_SCOPE;
    there(d0, 3 * MIB / 4);
    come_and_go(MIB / 2);
    const int64_t peak = fx_memory_status(d0).peak;
    capacity = 100 * MIB;
    fx_set_memory_limit(d0, 50 * MIB);
    char got[200], want[200];
    snprintf(want, sizeof want,
             "CUDA:0: 3.000 MiB live (peak %.3f MiB, limit 50.000 MiB), 512.000 KiB cached, 96.500 "
             "MiB free",
             (double)peak / MIB);
    const size_t length = fx_memory_text(d0, got, sizeof got);
    assert_string_equal(got, want);
    assert_int_equal(length, strlen(want));
    fx_set_memory_limit(d0, 1); /* the least: 0 is none */
    fx_memory_text(d0, got, sizeof got);
    assert_non_null(strstr(got, ", limit 1 byte"));
    fx_set_memory_limit(d0, 0);
    fx_memory_text(d0, got, sizeof got);
    assert_null(strstr(got, "limit"));
    fx_set_memory_limit(d0, 50 * MIB);
    fx_memory m;
    memset(&m, 0x55, sizeof m);
    m.fxi_size = offsetof(fx_memory, free); /* a program of an older library */
    fxi_memory_status(d0, &m);
    assert_int_equal(m.cached, MIB / 2);
    assert_int_equal(m.free, 0x5555555555555555);
    const fx_memory cpu = fx_memory_status(NULL);
    assert_int_equal(cpu.live, fxi_device_live(fx_cpu_device()));
    assert_true(cpu.total > 0 && cpu.free > 0 && cpu.free < cpu.total && cpu.peak >= cpu.live);
    fx_reclaim();
    const int64_t kept = fx_memory_status(NULL).cached;
    {
        FX_SCOPE;
        fx_eval(fx_full(1, MIB));
    }
    assert_true(fx_memory_status(NULL).cached >= kept);
}

static int warnings;
static char warned[400];
static void listen(int level, const char *text, void *user)
{
    (void)user;
    warnings += level == 1;
    snprintf(warned, sizeof warned, "%s", text);
}

static void the_environment_sets_limits(void **state)
{
    (void)state;
    static fx_backend named;
    named = table("AMDGPU");
    setenv("FX_MEMORY_LIMIT", "8GiB,amdgpu:1=2.5 MB,CUDA:2=1,AMDGPU:2=lots,AMDGPU:3=512KiB,CPU=9,",
           1);
    setenv("FX_MEMORY_CACHE", "AMDGPU=800B,AMDGPU:1=0", 1);
    assert_int_equal(fxi_backend_register(&named, 4, ""), FX_OK);
    fx_message_set_hook(listen, NULL);
    static const int64_t limits[] = {8ll << 30, 2500000, 8ll << 30, 512 << 10};
    for (int i = 0; i < 4; i++)
        assert_int_equal(fx_memory_status(fx_device_get("AMDGPU", i)).limit, limits[i]);
    assert_int_equal(warnings, 1);
    assert_string_equal(
        warned,
        "FX_MEMORY_LIMIT: \"lots\" is not a size such as 8GiB; it is ignored for AMDGPU:2.");
    /* The device was used before the variable was set. */
    assert_int_equal(fx_memory_status(NULL).limit, 0);
    FX_SCOPE;
    for (int i = 0; i < 2; i++) {
        FX_SCOPE;
        there(fx_device_get("AMDGPU", i), 200);
    }
    assert_int_equal(fx_memory_status(fx_device_get("AMDGPU", 0)).cached, 800);
    assert_int_equal(fx_memory_status(fx_device_get("AMDGPU", 1)).cached, 0);
    fx_set_memory_limit(fx_device_get("AMDGPU", 0),
                        0); /* the program's limit replaces that of the environment */
    assert_int_equal(fx_memory_status(fx_device_get("AMDGPU", 0)).limit, 0);
    unsetenv("FX_MEMORY_LIMIT");
    unsetenv("FX_MEMORY_CACHE");
    fx_message_set_hook(NULL, NULL);
}

static int64_t limit_of_text(const char *text)
{
    int64_t limit, cache;
    setenv("FX_MEMORY_LIMIT", text, 1);
    fxi_pool_settings(d0, &limit, &cache);
    unsetenv("FX_MEMORY_LIMIT");
    assert_int_equal(cache, -1);
    return limit;
}

/* Every digit and unit, with and without decimals, to the byte. */
static void sizes_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } units[] = {{"", 1},           {"B", 1},
                 {" b", 1},         {"K", 1000},
                 {"kB", 1000},      {" KiB", 1 << 10},
                 {"ki", 1 << 10},   {"MB", 1000000},
                 {"Mib", 1 << 20},  {"G", 1000000000},
                 {"GiB", 1 << 30},  {"TB", 1000000000000},
                 {"tI", 1ll << 40}, {"P", 1000000000000000},
                 {"PiB", 1ll << 50}};
    static const int64_t places[] = {1, 10, 100, 1000};
    warnings = 0;
    fx_message_set_hook(listen, NULL);
    dice = 3;
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++)
        for (int k = 0; k < 100; k++) {
            char text[60];
            const int decimals = units[u].bytes < 1ll << 41 ? k % 4 : 0;
            const int64_t n = roll(10 * places[decimals]);
            if (decimals)
                snprintf(text, sizeof text, "%lld.%0*lld%s", (long long)(n / places[decimals]),
                         decimals, (long long)(n % places[decimals]), units[u].text);
            else
                snprintf(text, sizeof text, "%lld%s", (long long)n, units[u].text);
            const int64_t got = limit_of_text(text), want = n * units[u].bytes / places[decimals];
            if (got != want)
                fail_msg("\"%s\" is %lld bytes, not %lld", text, (long long)want, (long long)got);
        }
    assert_int_equal(warnings, 0);
    static const char *const bad[] = {"GiB", "5.",   "1..2",      "1.2.3", ".",      "-1",
                                      "1e9", "1 XB", "1Bi",       "1 KBB", "1 ki B", "9/",
                                      "3:",  "1iB",  "9999999PB", " 1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(limit_of_text(bad[i]), 0);
        if (warnings != (int)i + 1 || !strstr(warned, bad[i]))
            fail_msg("\"%s\" is not a size, but: %s", bad[i], warned);
    }
    fx_message_set_hook(NULL, NULL);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 60 };

static void *work(void *seed)
{
    uint32_t r = (uint32_t)(uintptr_t)seed;
    intptr_t right = 0;
    for (int i = 0; i < ROUNDS; i++) {
        FX_SCOPE;
        r = r * 1664525 + 1013904223;
        const int64_t n = 100 + (r >> 12) % 50000;
        fx_array *x = fx_to(d0, fx_full(1, n)), *y = fx_add(x, x);
        right += fx_item(fx_sum(y)) == 2. * (double)n;
        if (i % 20 == 7)
            fx_reclaim();
    }
    return (void *)right;
}

static void several_threads(void **state)
{
    (void)state;
    pthread_t t[THREADS];
    fx_set_memory_cache(d0, 200000);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, work, (void *)(uintptr_t)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) {
        void *right;
        pthread_join(t[i], &right);
        assert_int_equal((intptr_t)right, ROUNDS);
    }
    assert_int_equal(fxi_device_live(d0), 0);
    assert_true(fx_memory_status(d0).cached <= 200000);
    assert_int_equal(fx_memory_status(d0).cached, used[0]);
    fx_reclaim(); /* LeakSanitizer does not know these addresses */
    assert_int_equal(used[0], 0);
}

#define TEST(f) cmocka_unit_test_setup(f, before_each)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(freed_memory_is_found_again),
        TEST(training_allocates_nothing),
        TEST(what_is_kept_is_bounded),
        TEST(by_default_half_of_the_peak),
        TEST(reclaimed_by_device),
        TEST(the_limit_holds_for_all),
        TEST(work_space_stays_when_devices_alternate),
        TEST(the_steps_come_in_order),
        TEST(one_failure_is_survived),
        TEST(a_lost_device_is_not_out_of_memory),
        TEST(the_error_names_the_largest),
        TEST(the_error_names_those_that_are_left),
        TEST(a_plan_knows_its_need),
        TEST(a_training_step_fails_as_a_whole),
        TEST(host_memory_runs_out),
        TEST(figures_for_a_person),
        TEST(the_environment_sets_limits),
        TEST(sizes_are_exact),
        TEST(several_threads),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
