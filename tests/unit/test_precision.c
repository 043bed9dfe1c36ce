/* test_precision.c: the allowed precision of products: the precision that a backend receives, plans
 * by precision, the environment, and mistakes. ctest: devices native */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdio.h>
#include <string.h>

#include "own_child.h"
#include "standin.h"

static const float numbers[24] = {1, 2, 3};

static fx_array *product(fx_device *d)
{
    return fx_matmul(fx_array_to(d, fx_from(FX_DTYPE_F32, numbers, 3, 4)),
                     fx_array_to(d, fx_from(FX_DTYPE_F32, numbers, 4, 5)));
}

static fx_array *convolution(fx_device *d)
{
    return fx_convolve(fx_array_to(d, fx_from(FX_DTYPE_F32, numbers, 6, 2, 1)),
                       fx_array_to(d, fx_from(FX_DTYPE_F32, numbers, 3, 2, 4)));
}

static fx_array *elementwise(fx_device *d)
{
    return fx_tanh(fx_array_to(d, fx_from(FX_DTYPE_F32, numbers, 3, 4)));
}

typedef fx_array *(*graph_fn)(fx_device *d);

static uint64_t plans_built_by(graph_fn graph, fx_device *d)
{
    FX_SCOPE;
    const uint64_t before = fx_stats().plans_built;
    assert_int_equal(fx_eval(graph(d)), FX_OK);
    return fx_stats().plans_built - before;
}

/* A plan of its own for each precision, which the backend sees; back: the first plan again. */
static void plans_go_by_precision(void **state)
{
    static const fx_precision all[] = {FX_PRECISION_HIGHEST, FX_PRECISION_HIGH,
                                       FX_PRECISION_MEDIUM};
    static const graph_fn graphs[] = {product, convolution};
    (void)state;
    fx_device *d = fx_device_get("CUDA", 0);
    for (int g = 0; g < 2; g++)
        for (int round = 0; round < 2; round++)
            for (int k = 0; k < 3; k++) {
                assert_int_equal(fx_set_matmul_precision(all[k]), FX_OK);
                assert_int_equal(fx_matmul_precision(), all[k]);
                assert_int_equal(plans_built_by(graphs[g], d), round == 0);
                if (round == 0)
                    assert_int_equal(standin_of(d)->precision(0), all[k]);
            }
    fx_set_matmul_precision(FX_PRECISION_HIGHEST);
}

static void plans_without_products_do_not(void **state)
{
    (void)state;
    fx_device *d = fx_device_get("CUDA", 0);
    assert_int_equal(plans_built_by(elementwise, d), 1);
    fx_set_matmul_precision(FX_PRECISION_MEDIUM);
    assert_int_equal(plans_built_by(elementwise, d), 0);
    fx_set_matmul_precision(FX_PRECISION_HIGHEST);
}

static void one_that_is_none_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(fx_set_matmul_precision((fx_precision)3), FX_STATUS_ARGUMENT);
    assert_string_equal(fx_error_take().message, "set_matmul_precision: 3 is not an fx_precision");
    assert_int_equal(fx_matmul_precision(), FX_PRECISION_HIGHEST);
}

/* ---- the environment ------------------------------------------------------------------------- */

static int messages;

static void count(int level, const char *text, void *user)
{
    messages += level == 1;
    (void)user;
    fputs(text, stdout);
}

/* This program with --said: asks twice, and prints what is said and found. */
static int say(void)
{
    fx_message_set_hook(count, NULL);
    fx_matmul_precision();
    printf("%d %d", (int)fx_matmul_precision(), messages);
    return 0;
}

static void expect(const char *value, const char *want)
{
    char environment[100], got[300];
    snprintf(environment, sizeof environment, "FX_MATMUL_PRECISION='%s'", value);
    assert_int_equal(own_child(environment, "--said", got, sizeof got), 0);
    assert_string_equal(got, want);
}

static void the_environment_sets_it(void **state)
{
    (void)state;
    expect("", "0 0");
    expect("highest", "0 0");
    expect("high", "1 0");
    expect("medium", "2 0");
    expect("low", "FX_MATMUL_PRECISION=low is ignored: it must be highest, high or medium.0 1");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--said") == 0)
        return say();
    standin_path();
    if (fx_use("CUDA") != FX_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_go_by_precision),
        cmocka_unit_test(plans_without_products_do_not),
        cmocka_unit_test(one_that_is_none_is_an_error),
        cmocka_unit_test(the_environment_sets_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
