/* test_heap.c: failures and size of the heap for all code in the process: cflux, zlib, libbson and
 * the C library itself. ctest: native timeout=240
 *
 * This program replaces malloc and related functions by functions that can fail and that count
 * bytes. (The other fault tests fail allocations of cflux alone, in memory.h.) A thread that has
 * just begun builds a network, trains it, saves it in each format, loads it again and reads its
 * output, while allocation number k fails, or number k and every later one. The program must end.
 * Each failure must be recorded with FX_STATUS_MEMORY, a run without a record must give the correct
 * result, and the files must be complete.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "evaluate.h"
#include "memory.h"
#include "temp_file.h"
#include "zip_file.h"

/* ---- the heap -------------------------------------------------------------------------------- */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static _Atomic long seen, fails_at = -1;
static _Atomic bool forever;
static _Atomic long long held, peak; /* bytes */

/* Call number `at` from now fails (-1: none); `ever`: every later one too. */
static void heap_fail(long at, bool ever)
{
    atomic_store(&fails_at, -1);
    atomic_store(&seen, 0);
    atomic_store(&forever, ever);
    atomic_store(&fails_at, at);
}

#if !SANITIZED
#define EXPORTED __attribute__((visibility("default")))
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void __libc_free(void *p);

static bool refused(void)
{
    const long at = atomic_load_explicit(&fails_at, memory_order_relaxed);
    if (at < 0)
        return false;
    const long n = atomic_fetch_add(&seen, 1);
    if (n != at && !(atomic_load(&forever) && n > at))
        return false;
    errno = ENOMEM;
    return true;
}

static void count(long long bytes)
{
    const long long now = atomic_fetch_add(&held, bytes) + bytes;
    long long before = atomic_load(&peak);
    while (now > before && !atomic_compare_exchange_weak(&peak, &before, now))
        continue;
}

static void *counted(void *p)
{
    if (p)
        count((long long)malloc_usable_size(p));
    return p;
}

EXPORTED void *malloc(size_t n)
{
    return refused() ? NULL : counted(__libc_malloc(n));
}
EXPORTED void *calloc(size_t n, size_t size)
{
    return refused() ? NULL : counted(__libc_calloc(n, size));
}
EXPORTED void *realloc(void *p, size_t n)
{
    if (refused())
        return NULL;
    const long long old = p ? (long long)malloc_usable_size(p) : 0;
    void *q = __libc_realloc(p, n);
    if (q || !n) {
        counted(q);
        count(-old);
    }
    return q;
}
EXPORTED void *memalign(size_t alignment, size_t n)
{
    return refused() ? NULL : counted(__libc_memalign(alignment, n));
}
EXPORTED void *aligned_alloc(size_t alignment, size_t n)
{
    return refused() ? NULL : counted(__libc_memalign(alignment, n));
}
EXPORTED int posix_memalign(void **out, size_t alignment, size_t n)
{
    void *p = refused() ? NULL : counted(__libc_memalign(alignment, n));
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}
EXPORTED void free(void *p)
{
    if (p)
        count(-(long long)malloc_usable_size(p));
    __libc_free(p);
}
#endif

/* Does nothing: this test is about memory, and flushing every file to the disk would take most of
 * the time. */
__attribute__((visibility("default"))) int fsync(int fd);
int fsync(int fd)
{
    (void)fd;
    return 0;
}

/* ---- the program ----------------------------------------------------------------------------- */

static const char *const names[] = {"heap.safetensors", "heap.npz", "heap.npy", "heap.checkpoint",
                                    "heap.bson"};
enum { SAFETENSORS, NPZ, NPY, CHECKPOINT, BSON, FORMATS };
static const char *paths[FORMATS], *table;

static fx_array *weight_of(void *model)
{
    return ((fx_dense_layer *)fx_child(model, 0))->weight;
}

static void save_and_load(int format, void *model, void *state, void *other)
{
    const char *path = paths[format];
    if (format == CHECKPOINT) {
        fx_checkpoint_args c = {
            .fxi_size = sizeof c, .model = other, .state = fx_setup(fx_adam(), other)};
        fx_checkpoint_save(path, model, .state = state, .keep = 1);
        fx_checkpoint_load(path, &c);
    } else if (format == NPY) {
        fx_save(path, "weight", weight_of(model));
        fx_load_into(path, "weight", weight_of(other));
    } else {
        fx_save(path, "model", model, "scale", fx_vector(1, 2));
        fx_load_into(path, "model", other);
    }
}

static void *small_model(void)
{
    return fx_chain(fx_dense(4, 3, FX_TANH), fx_batchnorm(3), fx_dense(3, 2));
}

/* Returns a number that depends on all results of the program. */
static double program(int format)
{
    FX_SCOPE;
    fx_seed(3);
    void *model = small_model(), *other = small_model();
    void *state = fx_setup(fx_adam(.eta = 0.01), model);
    fx_array *x = fx_rand(4, 6), *y = fx_rand(2, 6);
    for (int i = 0; i < 2; i++) {
        FX_STEP;
        fx_array *loss = fx_mse(fx_call(model, x), y);
        fx_update(state, model, fx_gradient(loss, model));
    }
    save_and_load(format, model, state, other);
    double sum = fx_item(fx_sum(fx_call(other, x))) + fx_item(fx_sum(weight_of(other)));
    if (format == NPZ) { /* loads data that zlib decompresses */
        sum +=
            fx_item(fx_sum(fx_f64(fx_child(fx_load("tests/fuzz/corpus/npz/npz-deflated.npz"), 0))));
        sum += fx_item(fx_sum(fx_read_csv(table)));
    }
    return sum;
}

/* ---- failing in turn ------------------------------------------------------------------------- */

typedef struct attempt {
    int format;
    long at;
    bool ever;
    double result; /* this and the members below are set by the attempt */
    long seen;
    fx_error error;
} attempt;

static void *in_thread(void *arg)
{
    attempt *a = arg;
    heap_fail(a->at, a->ever);
    a->result = program(a->format);
    a->seen = atomic_load(&seen);
    heap_fail(-1, false);
    a->error = fx_error_take();
    return NULL;
}

static attempt attempted(int format, long at, bool ever)
{
    attempt a = {.format = format, .at = at, .ever = ever};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, in_thread, &a), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return a;
}

static bool of_memory(const fx_error *e)
{
    return e->status == FX_STATUS_MEMORY ||
           (e->status == FX_STATUS_IO && strstr(e->message, "Cannot allocate memory"));
}

static void check_file(const attempt *a)
{
    FX_SCOPE;
    const void *file = fx_load(paths[a->format]);
    const fx_error e = fx_error_take();
    if (fx_is_error(file))
        fail_msg("%s, failure %ld: the file cannot be read: %s", names[a->format], a->at,
                 e.message);
}

static int each(int format, bool ever)
{
    const attempt right = attempted(format, 1L << 40, false);
    assert_int_equal(right.error.status, FX_OK);
    assert_true(isfinite(right.result));
    int reported = 0, survived = 0;
    fxi_reclaim_all();
    const int64_t live = fxi_live_allocations();
    for (long k = 0;; k++) {
        const attempt a = attempted(format, k, ever);
        if (a.seen <= k)
            break;
        const bool failed = a.error.status != FX_OK;
        if (failed && !of_memory(&a.error))
            fail_msg("%s, failure %ld is reported as %s: %s", names[format], k,
                     fx_status_name(a.error.status), a.error.message);
        if (!failed && a.result != right.result)
            fail_msg("%s, failure %ld: no record, and %g instead of %g", names[format], k, a.result,
                     right.result);
        check_file(&a);
        reported += failed;
        survived += !failed;
        fxi_reclaim_all();
        if (fxi_live_allocations() != live)
            fail_msg("%s, failure %ld leaves %lld allocations", names[format], k,
                     (long long)(fxi_live_allocations() - live));
    }
    printf("%s, %s: %d failures were reported, %d survived\n", names[format],
           ever ? "from k on" : "once", reported, survived);
    return reported;
}

static void in_turn(bool ever)
{
    if (SANITIZED) {
        printf("skipped: a sanitizer has its own heap\n");
        return;
    }
    int reported = 0;
    for (int f = 0; f < FORMATS; f++)
        reported += each(f, ever);
    assert_true(reported >= 400);
}

static void one_allocation_fails(void **state)
{
    (void)state;
    in_turn(false);
}

static void all_from_one_on_fail(void **state)
{
    (void)state;
    in_turn(true);
}

/* ---- many threads at once -------------------------------------------------------------------- */

enum { THREADS = 150 };
static pthread_barrier_t together;

static void *without_memory(void *arg)
{
    fx_error *e = arg;
    pthread_barrier_wait(&together); /* all threads have started */
    pthread_barrier_wait(&together); /* every allocation fails from now on */
    program(SAFETENSORS);
    *e = fx_error_take();
    pthread_barrier_wait(&together); /* all have ended their programs */
    return NULL;
}

/* Many threads begin while there is no memory for their contexts, and none ends before all have got
 * their errors. */
static void threads_begin_without_memory(void **state)
{
    (void)state;
    if (SANITIZED) {
        printf("skipped: a sanitizer has its own heap\n");
        return;
    }
    for (int round = 0; round < 3; round++) {
        pthread_t threads[THREADS];
        fx_error errors[THREADS];
        assert_int_equal(pthread_barrier_init(&together, NULL, THREADS + 1), 0);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, without_memory, &errors[i]), 0);
        pthread_barrier_wait(&together);
        heap_fail(0, true);
        pthread_barrier_wait(&together);
        pthread_barrier_wait(&together);
        heap_fail(-1, false);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(errors[i].status, FX_STATUS_MEMORY);
        }
        pthread_barrier_destroy(&together);
    }
    assert_int_equal(attempted(SAFETENSORS, -1, false).error.status, FX_OK);
}

/* ---- archives that unpack to more than there is ---------------------------------------------- */

enum { MIB = 1 << 20, LIMIT = 8 * MIB, SLACK = MIB }; /* SLACK: zlib's state, lists, records */

/* An .npy of zeros, all of it; to be freed. */
static unsigned char *zeros(size_t elements, size_t *out_size)
{
    char header[128];
    const int n = snprintf(header, sizeof header,
                           "\x93NUMPY\1%c\x76%c{'descr': '|u1', 'fortran_order': False, "
                           "'shape': (%zu,), }",
                           0, 0, elements);
    memset(header + n, ' ', sizeof header - (size_t)n);
    header[sizeof header - 1] = '\n';
    unsigned char *all = calloc(sizeof header + elements, 1);
    assert_non_null(all);
    memcpy(all, header, sizeof header);
    *out_size = sizeof header + elements;
    return all;
}

/* Loads the file; the most bytes that were held meanwhile. */
static long long peak_of_loading(const char *path, fx_error *out_error)
{
    FX_SCOPE;
    fxi_memory_reclaim();
    const long long before = atomic_load(&held);
    atomic_store(&peak, before);
    fx_load(path);
    *out_error = fx_error_take();
    return atomic_load(&peak) - before;
}

static void check_bomb(const char *path, size_t file, fx_status status, const char *words)
{
    fx_error e;
    const long long most = peak_of_loading(path, &e);
    assert_int_equal(e.status, status);
    assert_true(!words || strstr(e.message, words));
    if (!SANITIZED && most > 2 * (long long)file + LIMIT + SLACK)
        fail_msg("%s of %zu bytes took %lld", path, file, most);
}

static void archives_unpack_within_the_limit(void **state)
{
    (void)state;
    enum { MEMBERS = 20 };
    static const char *const member_names[MEMBERS] = {
        "a.npy", "b.npy", "c.npy", "d.npy", "e.npy", "f.npy", "g.npy", "h.npy", "i.npy", "j.npy",
        "k.npy", "l.npy", "m.npy", "n.npy", "o.npy", "p.npy", "q.npy", "r.npy", "s.npy", "t.npy"};
    size_t large_size, small_size, bytes;
    unsigned char *large = zeros(64 * MIB, &large_size), *small = zeros(MIB - 256, &small_size);
    zip_member many[MEMBERS];
    for (int i = 0; i < MEMBERS; i++)
        many[i] = (zip_member){member_names[i], small, small_size, 0};
    fx_set_memory_limit(fx_cpu_device(), LIMIT);
    const char *path = temp_zip("one.npz", &(zip_member){"x.npy", large, large_size, 0}, 1, &bytes);
    assert_true(bytes < MIB / 4);
    check_bomb(path, bytes, FX_STATUS_MEMORY, "at most 8388608");
    path = temp_zip("many.npz", many, MEMBERS, &bytes);
    check_bomb(path, bytes, FX_STATUS_MEMORY, "at most 8388608");
    /* The first member decompresses to more than it declares; the second declares more than deflate
     * can produce. */
    path = temp_zip("more.npz", &(zip_member){"x.npy", large, large_size, MIB}, 1, &bytes);
    check_bomb(path, bytes, FX_STATUS_FORMAT, "cannot be decompressed");
    path = temp_zip("less.npz", &(zip_member){"x.npy", small, small_size, 1u << 31}, 1, &bytes);
    check_bomb(path, bytes, FX_STATUS_FORMAT, "cannot come from");
    path = temp_zip("fits.npz", many, 6, &bytes);
    check_bomb(path, bytes, FX_OK, NULL);
    fx_set_memory_limit(fx_cpu_device(), 0);
    fx_error e;
    path = temp_zip("one.npz", &(zip_member){"x.npy", large, large_size, 0}, 1, &bytes);
    const long long most = peak_of_loading(path, &e);
    assert_int_equal(e.status, FX_OK);
    assert_true(SANITIZED || most > 64 * MIB); /* proves that the counter works */
    free(large);
    free(small);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 4096);
    fx_message_set_hook(NULL, NULL);
    for (int f = 0; f < FORMATS; f++)
        paths[f] = temp_text(names[f], "");
    table = temp_gzip("heap.csv.gz", "1,2\n3,4\n", 8);
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_allocation_fails),
                                       cmocka_unit_test(all_from_one_on_fail),
                                       cmocka_unit_test(threads_begin_without_memory),
                                       cmocka_unit_test(archives_unpack_within_the_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
