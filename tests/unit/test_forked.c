/* test_forked.c: the child of a fork: every call for a device of a plugin that was opened before it
 * fails with a message, also if work was queued; the CPU computes, on several threads too, and the
 * parent continues. Each stand-in has a thread (STANDIN_ASYNC), which does not exist in the child.
 * ctest: devices threads native */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "standin.h"

/* Sanitizers and the emulator cannot fork a process with threads (test_loader_device.c). */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && !defined(CFLUX_EMULATED)

enum { SECONDS_MOST = 60, SIZE = 400 };

static const char *const names[] = {"CUDA:0", "AMDGPU:1", "check:CUDA:0"};

/* Runs `act` in a child that calls exit, so that the library frees everything. Returns 0, or the
 * line of the first check that fails. */
static int in_child(int (*act)(fx_device *device), fx_device *device)
{
    int status = -1;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(SECONDS_MOST); /* a child that waits for ever is a failure too */
        exit(act(device));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status))
        fail_msg("the child got signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__ % 251 + 1;                                                             \
    } while (0)

static bool refused(const fx_device *device)
{
    char want[300];
    const fx_error e = fx_error_take();
    snprintf(want, sizeof want,
             ": %s cannot be used: the device was opened before this process was forked",
             fx_device_name(device));
    if (e.status != FX_STATUS_DEVICE || !strstr(e.message, want))
        printf("%s\n", e.message);
    return e.status == FX_STATUS_DEVICE && strstr(e.message, want);
}

/* Arrays of the parent that are on the device. */
static fx_array *kept, *pending;

static int nothing_reaches_the_device(fx_device *device)
{
    fx_array *x = fx_rand(3, 4);
    CHECK(fx_eval(x) == FX_OK);
    fx_eval(fx_array_to(device, x)); /* to the device */
    CHECK(refused(device));
    fx_eval(fx_array_to(fx_cpu_device(), kept)); /* from the device */
    CHECK(refused(device));
    fx_data(kept);
    CHECK(refused(device));
    CHECK(fx_eval(fx_cumsum(kept, 0)) != FX_OK); /* a new plan */
    CHECK(refused(device));
    CHECK(fx_eval(pending) != FX_OK); /* a plan that is in the cache */
    CHECK(refused(device));
    CHECK(fx_synchronize(device) != FX_OK);
    CHECK(refused(device));
    fx_eval(fx_tanh(x));
    CHECK(fx_error_status() == FX_OK); /* the CPU still works */
    return 0;
}

static void devices_refuse(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        FX_SCOPE;
        fx_device *d = fx_device_find(names[k]);
        kept = fx_array_to(d, fx_rand(SIZE, SIZE));
        assert_int_equal(fx_eval(fx_tanh(fx_matmul(kept, kept))), FX_OK); /* queued */
        pending = fx_tanh(fx_matmul(kept, kept));
        assert_int_equal(in_child(nothing_reaches_the_device, d), 0);
        assert_int_equal(fx_eval(pending), FX_OK);
        assert_int_equal(fx_synchronize(d), FX_OK);
    }
}

/* ---- the CPU --------------------------------------------------------------------------------- */

static double sum_of_product(void)
{
    return fx_item(fx_sum(fx_matmul(fx_ones(SIZE, SIZE), fx_ones(SIZE, SIZE))));
}

static int computes(fx_device *unused)
{
    (void)unused;
    CHECK(fx_num_threads() == 3);
    for (int k = 0; k < 20; k++)
        CHECK(sum_of_product() == (double)SIZE * SIZE * SIZE);
    CHECK(fx_set_num_threads(2) == FX_OK);
    CHECK(sum_of_product() == (double)SIZE * SIZE * SIZE);
    fx_dense_layer *layer = fx_dense(8, 4);
    void *opt = fx_setup(fx_descent(.eta = 0.05), layer);
    fx_array *x = fx_ones(8, 16), *loss = fx_mse(fx_call(layer, x), fx_ones(4, 16));
    CHECK(fx_update(opt, layer, fx_gradient(loss, layer)) == FX_OK);
    return fx_error_status() == FX_OK ? 0 : 255;
}

static int has_a_child(fx_device *unused)
{
    const int status = in_child(computes, unused);
    return status ? status : computes(unused);
}

static void the_cpu_computes(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_int_equal(fx_set_num_threads(3), FX_OK);
    assert_true(sum_of_product() ==
                (double)SIZE * SIZE * SIZE); /* the pool has started its threads */
    assert_int_equal(in_child(computes, NULL), 0);
    assert_int_equal(in_child(has_a_child, NULL), 0);
    assert_true(sum_of_product() == (double)SIZE * SIZE * SIZE);
    assert_int_equal(in_child(computes, NULL), 0);
}

/* A device that is opened after the fork works. */
static int opens_its_own(fx_device *unused)
{
    (void)unused;
    CHECK(fx_use("AMDGPU") == FX_OK);
    fx_array *x = fx_array_to(fx_device_get("AMDGPU", 0), fx_ones(3, 4));
    CHECK(fx_item(fx_sum(fx_add(x, 1))) == 24);
    return 0;
}

static void a_child_opens_its_own(void **state)
{
    (void)state;
    assert_int_equal(in_child(opens_its_own, NULL), 0);
}

static int use(void **state)
{
    (void)state;
    return fx_use("check:CUDA") || fx_use("AMDGPU") || fx_use("CPU");
}

int main(void)
{
    standin_path();
    setenv("STANDIN_ASYNC", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_opens_its_own), /* first: nothing is open yet */
        cmocka_unit_test_setup(devices_refuse, use),
        cmocka_unit_test(the_cpu_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    puts("skipped: a process with threads cannot be forked here");
    return 0;
}

#endif
