/* test_bson_faults.c: every allocation and every system call failing in turn while BSON is loaded
 * and saved. Whatever fails: an error is recorded, nothing leaks, and the file is the old one or
 * the new one, whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "context.h"
#include "file_out.h"
#include "memory.h"
#include "python_bson.h"
#include "temp_file.h"

static char path[1000], other[1000];

/* ---- what is done ---------------------------------------------------------------------------- */

/* Returns false when the call said that it failed. */
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

static bool load_into(void)
{
    void *m = fx_chain(fx_dense(2, 2), FX_RELU);
    return fx_load_into(path, "model", m) == FX_OK;
}

/* Every kind of thing that is written: an array twice, an optimiser, a state, names. */
static void *model, *opt, *state_of_it;

static void make_what_is_saved(void)
{
    fx_array *w = fx_ones(3, 3);
    model = fx_chain_of("conv", fx_conv(FX_DIMS(2, 2), 1, 2, FX_RELU), "norm", fx_batchnorm(2),
                        "pool", fx_maxpool(FX_DIMS(2, 2)), "a", fx_dense(0, 0, .weight = w), "b",
                        fx_dense(0, 0, .weight = w), "drop", fx_dropout(0.5, .dims = FX_DIMS(0)),
                        "last", fx_layernorm(FX_DIMS(3), FX_TANH));
    opt = fx_setup(fx_adam(), model);
    state_of_it = fx_flux_state(fx_dense(2, 2));
    assert_int_equal(fx_eval(model), FX_OK);
    assert_int_equal(fx_eval(opt), FX_OK);
    assert_int_equal(fx_error_status(), FX_OK);
}

static bool save(void)
{
    return fx_save(path, "model", model, "opt", opt, "state", state_of_it, "epoch", fx_scalar(3)) ==
           FX_OK;
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
    fxi_drain();
    return fxi_live_allocations();
}

static size_t contents(char *text, size_t capacity)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(text, 1, capacity, f);
    fclose(f);
    return n;
}

/* The file is what it was, or it loads; nothing lies beside it. */
static void check_file(bool worked, const char *old, size_t bytes)
{
    static char now[1 << 20];
    const size_t n = contents(now, sizeof now);
    const bool same = n == bytes && memcmp(now, old, n) == 0;
    assert_true(same || run(load));
    assert_true(worked || same);
    assert_int_not_equal(access(other, F_OK), 0);
}

static void allocations(job what, int at_least)
{
    static char old[1 << 20];
    assert_true(run(what));
    const size_t bytes = contents(old, sizeof old);
    const int64_t before = live();
    int failed = 0, points = 0;
    for (int64_t n = 0;; n++) {
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
        check_file(worked, old, bytes);
        if (seen <= n)
            break;
        points++;
        failed += !worked;
    }
    print_message("%d allocations, %d of them end in an error\n", points, failed);
    assert_true(points >= at_least && failed >= points / 4);
}

static void system_calls(job what, int at_least)
{
    static const int errors[] = {EIO, ENOSPC, EINTR, FXI_FILE_SHORT};
    static char old[1 << 20];
    assert_true(run(what));
    const size_t bytes = contents(old, sizeof old);
    const int64_t before = live();
    int failed = 0;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        for (int64_t n = 0;; n++) {
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
            check_file(worked || e.status == FX_STATUS_IO, old, bytes);
            if (seen <= n)
                break;
            failed += !worked;
        }
    print_message("%d system calls end in an error\n", failed);
    assert_true(failed >= at_least);
}

static void use(const char *name)
{
    snprintf(path, sizeof path, "%s", made_bson(name));
    snprintf(other, sizeof other, "%.900s.tmp0", path);
}

static void loading(void **state)
{
    (void)state;
    use("adam.bson");
    allocations(load, 150);
    allocations(load_into, 100);
    use("old_adam_0.13.bson");
    allocations(load, 150);
    system_calls(load, 2);
    use("nodes.bson");
    allocations(load, 500);
    use("adam.alone.bson");
    allocations(load_optimiser, 150);
    temp_files_remove();
}

static void saving(void **state)
{
    (void)state;
    FX_SCOPE;
    use("saved.bson");
    make_what_is_saved();
    allocations(save, 1000);
    system_calls(save, 12);
    temp_files_remove();
}

int main(void)
{
    fx_message_set_hook(NULL, NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(loading), cmocka_unit_test(saving)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
