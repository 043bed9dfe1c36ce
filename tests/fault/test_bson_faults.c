/* test_bson_faults.c: makes every allocation and every system call fail in turn while objects that
 * only BSON stores are loaded and saved: optimisers, states, layers of Flux, files of old versions.
 * After each failure an error is recorded, nothing leaks, and the file is completely the old one or
 * completely the new one. test_files.c tests models alone.
 *
 * Allocations fail in two ways: the library's own, through its hook, and every one of the process,
 * those of libbson and of libc included, through a malloc that this program defines. With this
 * malloc, either the k-th allocation fails or the k-th and all later ones, as on a machine that
 * remains out of memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"
#include "evaluate.h"
#include "file_out.h"
#include "memory.h"
#include "python_run.h"
#include "read_back.h"
#include "temp_file.h"

static char path[1000];

/* ---- the malloc of this process -------------------------------------------------------------- */

#if defined __GLIBC__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define OWN_MALLOC 1
#endif
#if defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#undef OWN_MALLOC
#endif
#endif

#ifdef OWN_MALLOC
static long fail_at = -1, allocations_seen;
static bool fail_on; /* also every allocation after fail_at fails */

static bool fails(void)
{
    if (__atomic_load_n(&fail_at, __ATOMIC_RELAXED) < 0)
        return false;
    const long n = __atomic_fetch_add(&allocations_seen, 1, __ATOMIC_RELAXED);
    const bool now = n == fail_at || (fail_on && n > fail_at);
    if (now)
        errno = ENOMEM;
    return now;
}

static void arm(long k, bool on)
{
    allocations_seen = 0;
    fail_on = on;
    __atomic_store_n(&fail_at, k, __ATOMIC_RELAXED);
}

/* Visible, so that libbson and libc call them too. */
#pragma GCC visibility push(default)
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t alignment, size_t n);

void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
    return fails() ? NULL : __libc_realloc(p, n);
}
void *aligned_alloc(size_t alignment, size_t n)
{
    return fails() ? NULL : __libc_memalign(alignment, n);
}
int posix_memalign(void **p, size_t alignment, size_t n)
{
    void *q = fails() ? NULL : __libc_memalign(alignment, n);
    if (!q)
        return ENOMEM;
    *p = q;
    return 0;
}
#pragma GCC visibility pop
#endif

/* ---- what is done ---------------------------------------------------------------------------- */

/* Returns false if the call reported a failure. */
typedef bool (*job)(void);

static bool load(void)
{
    void *file = fx_load(path);
    return !fx_is_error(file);
}

static bool load_optimiser(void)
{
    void *m = fx_chain(fx_dense(2, 2), FX_RELU);
    void *state = fx_flux_optimiser(fx_load_key(path, "opt"), m);
    return !fx_is_error(state);
}

/* One object of every kind that is written: an array twice, an optimiser, a state, names. */
static void *model, *opt, *state_of_it;
static double epoch; /* makes each saved file different */

static void make_what_is_saved(void)
{
    fx_array *w = fx_ones(3, 3);
    model =
        fx_chain_of("conv", fx_conv(FX_DIMS(2, 2), 1, 2, FX_RELU), "norm", fx_batchnorm(2), "pool",
                    fx_maxpool(FX_DIMS(2, 2)), "a", fx_dense(0, 0, .weight_array = w), "b",
                    fx_dense(0, 0, .weight_array = w), "drop", fx_dropout(0.5, .dims = FX_AXES(0)),
                    "last", fx_layernorm(FX_DIMS(3), FX_TANH));
    opt = fx_setup(fx_adam(), model);
    state_of_it = fx_flux_state(fx_dense(2, 2));
    assert_int_equal(fx_eval(model), FX_OK);
    assert_int_equal(fx_eval(opt), FX_OK);
    assert_int_equal(fx_error_status(), FX_OK);
}

static bool save(void)
{
    return fx_save(path, "model", model, "opt", opt, "state", state_of_it, "epoch",
                   fx_scalar(epoch)) == FX_OK;
}

/* ---- failing --------------------------------------------------------------------------------- */

static bool run(job what)
{
    FX_SCOPE;
    fx_seed(1);
    return what();
}

static int64_t live(void)
{
    fxi_reclaim_all();
    return fxi_live_allocations();
}

/* The bytes of the file before a fault, and after a call that succeeds; loading does not change
 * them. */
static char *old_file, *new_file;
static size_t old_bytes, new_bytes;

static void prepare(job what)
{
    free(old_file);
    free(new_file);
    epoch = 2;
    assert_true(what != save || run(save));
    assert_true(run(load));
    old_file = file_bytes(path, &old_bytes);
    epoch = 3;
    assert_true(run(what));
    assert_true(run(load));
    new_file = file_bytes(path, &new_bytes);
    const bool same = old_bytes == new_bytes && memcmp(old_file, new_file, new_bytes) == 0;
    assert_int_equal(same, what != save);
}

static void put_old_file(void)
{
    unlink(path); /* overwriting a file would wait for the disk */
    temp_file(strrchr(path, '/') + 1, old_file, old_bytes);
}

static void check_file(bool is_new)
{
    size_t n;
    char *now = file_bytes(path, &n);
    assert_int_equal(n, is_new ? new_bytes : old_bytes);
    assert_memory_equal(now, is_new ? new_file : old_file, n);
    free(now);
    assert_alone(path);
}

static void allocations(job what, int at_least)
{
    prepare(what);
    const int64_t before = live();
    int failed = 0, points = 0;
    for (int64_t n = 0;; n++) {
        put_old_file();
        fxi_fault_set(n);
        const bool worked = run(what);
        const int64_t seen = fxi_fault_seen();
        fxi_fault_set(-1);
        const fx_error e = fx_error_take();
        if (live() != before)
            fail_msg("allocation %d leaks %d (%s)", (int)n, (int)(live() - before), e.message);
        if (e.status != FX_OK && e.status != FX_STATUS_MEMORY)
            fail_msg("allocation %d is reported as %s: %s", (int)n, fx_status_name(e.status),
                     e.message);
        if (worked != (e.status == FX_OK))
            fail_msg("allocation %d: %s", (int)n, e.message);
        check_file(worked);
        if (seen <= n)
            break;
        points++;
        failed += !worked;
    }
    print_message("%d allocations, %d of them end in an error\n", points, failed);
    assert_true(points >= at_least && failed >= points / 4);
}

#ifdef OWN_MALLOC
/* Makes every allocation of the process fail in turn, after the library's caches have been freed.
 */
static void all_of_the_process(job what, bool on, int at_least)
{
    prepare(what);
    int failed = 0, points = 0;
    for (long k = 0;; k++) {
        put_old_file();
        fxi_memory_reclaim();
        const int64_t before = live();
        arm(k, on);
        const bool worked = run(what);
        const long seen = allocations_seen;
        arm(-1, false);
        const fx_error e = fx_error_take();
        if (live() != before)
            fail_msg("allocation %ld leaks %d (%s)", k, (int)(live() - before), e.message);
        if (worked != (e.status == FX_OK))
            fail_msg("allocation %ld: %s but %s: %s", k, worked ? "worked" : "failed",
                     fx_status_name(e.status), e.message);
        if (e.status != FX_OK && e.status != FX_STATUS_MEMORY && e.status != FX_STATUS_IO)
            fail_msg("allocation %ld is reported as %s: %s", k, fx_status_name(e.status),
                     e.message);
        check_file(worked);
        if (seen <= k)
            break;
        points++;
        failed += !worked;
    }
    print_message("%d allocations of the process%s, %d end in an error\n", points,
                  on ? " and all after" : "", failed);
    assert_true(points >= at_least && failed >= points / 4);
}
#else
static void all_of_the_process(job what, bool on, int at_least)
{
    (void)what, (void)on, (void)at_least;
}
#endif

static void system_calls(job what, int at_least)
{
    static const int errors[] = {EIO, ENOSPC, EINTR, FXI_FILE_SHORT};
    prepare(what);
    const int64_t before = live();
    int failed = 0;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        for (int64_t n = 0;; n++) {
            put_old_file();
            fxi_file_fault_set(n, errors[i]);
            const bool worked = run(what);
            const int64_t seen = fxi_file_fault_seen();
            fxi_file_fault_set(-1, 0);
            const fx_error e = fx_error_take();
            assert_int_equal(live(), before);
            assert_int_equal(worked, e.status == FX_OK);
            if (!worked && (e.status != FX_STATUS_IO || !strstr(e.message, path) ||
                            !strstr(e.message, strerror(errors[i]))))
                fail_msg("call %d: %s", (int)n, e.message);
            check_file(worked || strstr(e.message, "folder to the disk"));
            if (seen <= n)
                break;
            failed += !worked;
        }
    print_message("%d system calls end in an error\n", failed);
    assert_true(failed >= at_least);
}

static void use(const char *file)
{
    snprintf(path, sizeof path, "%s", file);
}

static void loading(void **state)
{
    (void)state;
    use(made_bson("adam.bson"));
    allocations(load, 150);
    use(made_bson("old_adam_0.13.bson"));
    allocations(load, 150);
    system_calls(load, 2);
    use(made_bson("nodes.bson")); /* a few structs that are nodes */
    allocations(load, 20);
    use(made_bson("known.bson")); /* every layer, in the layouts of all versions */
    allocations(load, 500);
    use(made_bson("adam.alone.bson"));
    allocations(load_optimiser, 150);
}

static void saving(void **state)
{
    (void)state;
    FX_SCOPE;
    use(temp_text("saved.bson", ""));
    make_what_is_saved();
    allocations(save, 1000);
    system_calls(save, 12);
}

static void loading_in_a_process(void **state)
{
    static const char *const files[] = {"adam.bson", "known.bson", "nodes.bson", "dicts.bson"};
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int on = 0; on < 2; on++) {
            use(made_bson(files[i]));
            all_of_the_process(load, on, 20);
        }
}

static void saving_in_a_process(void **state)
{
    (void)state;
    FX_SCOPE;
    use(temp_text("saved.bson", ""));
    make_what_is_saved();
    all_of_the_process(save, false, 20);
    all_of_the_process(save, true, 20);
}

int main(void)
{
    fx_message_set_hook(NULL, NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(loading), cmocka_unit_test(saving),
                                       cmocka_unit_test(loading_in_a_process),
                                       cmocka_unit_test(saving_in_a_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
