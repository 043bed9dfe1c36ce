/* test_cpu_plugin.c: opens the CPU's kernel library. Each fake plugin (fake_plugin.c,
 * standin/head_plugin.c) has one fault: the CPU's own kernels then give the correct results, and
 * one message names the fault. One fake has no fault. ctest: devices */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_plugin.h"
#include "cpu_simd.h"
#include "planning.h"

static char messages[2000];

static void note(int level, const char *text, void *user)
{
    (void)level, (void)user;
    const size_t n = strlen(messages);
    snprintf(messages + n, sizeof messages - n, "%s\n", text);
}

/* Resets the search for plugins, as in a new process that finds this plugin. NULL: FX_PLUGIN_PATH
 * has none. */
static void begin(const char *variant, const char *setting)
{
    char path[600];
    snprintf(path, sizeof path, "%s:%s/tests/%s", CFLUX_BUILD_DIR "/nowhere", CFLUX_BUILD_DIR,
             variant ? variant : "none");
    setenv("FX_PLUGIN_PATH", path, 1);
    unsetenv("FAKE_STATUS");
    unsetenv("FX_ONEDNN");
    if (setting)
        setenv("FX_ONEDNN", setting, 1);
    messages[0] = '\0';
    fx_message_set_hook(note, NULL);
    fxi_cpu_plugin_reset();
    fxi_plans_reclaim();
}

static int end(void **state)
{
    (void)state;
    fx_message_set_hook(NULL, NULL);
    fxi_plans_reclaim(); /* the plugin that prepared steps releases them */
    return 0;
}

/* Element 0 of a product of n×n matrices of ones, plus one; 42 + 1 when a fake made it. */
static double product(int64_t n)
{
    FX_SCOPE;
    fx_array *a = fx_ones(n, n), *b = fx_ones(n), *y = fx_add(fx_matmul(a, a), b);
    fx_eval(fx_tuple(a, b));
    double first = 0;
    if (fx_item_get(fx_slice(fx_slice(y, 0, 0, 1), 1, 0, 1), &first) != FX_OK)
        return -1;
    return first;
}

/* The image of ones under a convolution large enough for a plugin. */
static double convolution(int64_t channels)
{
    FX_SCOPE;
    fx_array *x = fx_ones(32, 32, channels, 4), *w = fx_ones(3, 3, channels, channels);
    fx_array *y = fx_convolve(x, w);
    fx_eval(fx_tuple(x, w));
    return fx_item(fx_maximum(y));
}

static void the_part_says_whether_it_is_used(void **state)
{
    (void)state;
    begin("plugins/works", NULL);
    assert_true(fx_functional("CPU:oneDNN"));
    assert_string_equal(fx_why_not("CPU:oneDNN"), "");
    begin("plugins/fails_open", NULL);
    assert_false(fx_functional("CPU:oneDNN"));
    assert_non_null(strstr(fx_why_not("CPU:oneDNN"), "libcflux-cpu-onednn.so"));
    begin("plugins/works", "0");
    assert_string_equal(fx_why_not("CPU:oneDNN"), "FX_ONEDNN is 0");
    assert_string_equal(fx_why_not("CPU:cuDNN"), "the backend has no part of that name");
}

static void what_is_wrong_is_said_once(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"plugins/fails_open", "it does not feel like it"},
        {"heads/other_abi", "it was built for kernel library ABI "},
        {"heads/former", "it was built for kernel library ABI 2"},
        {"heads/other_sizes", "the sizes of its structs differ from this cflux's"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        begin(wrong[i][0], "all");
        assert_true(product(5) == 6);
        assert_true(product(7) == 8); /* another plan */
        assert_null(fxi_cpu_plugin_name(false));
        const char *said = strstr(messages, " is ignored: ");
        assert_non_null(said);
        assert_non_null(strstr(messages, wrong[i][0]));
        assert_non_null(strstr(said, wrong[i][1]));
        assert_null(strstr(said + 1, " is ignored: "));
    }
}

static void without_one_all_is_quiet(void **state)
{
    (void)state;
    begin(NULL, "all");
    assert_true(product(5) == 6);
    assert_true(convolution(16) == 144);
    assert_string_equal(messages, "");
}

static void a_good_one_computes(void **state)
{
    (void)state;
    begin("plugins/works", "all");
    assert_true(product(5) == 43); /* the plugin's product 42, and the addition by our own kernel */
    assert_string_equal(fxi_cpu_plugin_name(false), "oneDNN");
    assert_true(convolution(16) == 144); /* the plugin declines convolutions */
    assert_string_equal(messages, "");
}

static void one_can_do_without(void **state)
{
    (void)state;
    begin("plugins/works", "0");
    assert_true(product(5) == 6);
    assert_true(convolution(16) == 144);
}

/* Small steps do not open a library: opening this one would give a message. */
static void small_steps_open_nothing(void **state)
{
    (void)state;
    const char *own = fxi_cpu_simd()->name;
    assert_true(fxi_cpu_simd_choose("base"));
    begin("plugins/fails_open", NULL);
    assert_true(product(64) == 65);
    assert_string_equal(messages, "");
    assert_true(convolution(16) == 144);
    assert_non_null(strstr(messages, "it does not feel like it"));
    assert_true(fxi_cpu_simd_choose(own));
}

static void check_convolution_opens_nothing(const char *set, int64_t channels)
{
    const char *own = fxi_cpu_simd()->name;
    if (!fxi_cpu_simd_choose(set)) {
        print_message("skipped: the machine has no %s\n", set);
        return;
    }
    begin("plugins/fails_open", NULL);
    assert_true(convolution(channels) == (double)(9 * channels));
    assert_string_equal(messages, "");
    assert_true(fxi_cpu_simd_choose(own));
}

/* Nor do large convolutions with AVX2, where our own kernels are faster, and with AVX-512 those
 * that our own kernels compute with fewer multiplications. */
static void some_convolutions_open_nothing(void **state)
{
    (void)state;
    check_convolution_opens_nothing("avx2", 16);
    check_convolution_opens_nothing("avx512", 64);
}

static void its_failures_are_errors(void **state)
{
    (void)state;
    begin("plugins/works", "all");
    setenv("FAKE_STATUS", "prepare", 1);
    assert_true(product(5) == -1);
    assert_int_equal(fx_error_take().status, FX_STATUS_MEMORY);
    setenv("FAKE_STATUS", "run", 1);
    assert_true(product(5) == -1);
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_INTERNAL);
    assert_string_equal(e.message, "matmul: not today");
    unsetenv("FAKE_STATUS");
    assert_true(product(5) == 43);
}

int main(void)
{
    unsetenv("FX_EAGER");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_part_says_whether_it_is_used, end),
        cmocka_unit_test_teardown(what_is_wrong_is_said_once, end),
        cmocka_unit_test_teardown(without_one_all_is_quiet, end),
        cmocka_unit_test_teardown(a_good_one_computes, end),
        cmocka_unit_test_teardown(one_can_do_without, end),
        cmocka_unit_test_teardown(small_steps_open_nothing, end),
        cmocka_unit_test_teardown(some_convolutions_open_nothing, end),
        cmocka_unit_test_teardown(its_failures_are_errors, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
