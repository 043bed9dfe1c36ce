/* test_metrics.c: confusion matrix and scores on every device. Expected values are worked out by
 * hand from the formulas in metrics.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <string.h>

#include "every_device.h"
#include "refused.h"

static fx_array *on_device(fx_dtype type, int n, const int64_t *v)
{
    const int64_t size = n;
    return fx_array_to(device, fx_cast(fxi_from(FX_DTYPE_I64, v, 1, &size), type));
}
#define LABELS(type, ...)                                                                          \
    on_device(type, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),               \
              (const int64_t[]){__VA_ARGS__})

/* Class 0: 3 observations, 2 predicted correctly, one as class 2. Class 1: 2 observations, one
 * predicted correctly, one as class 0. Class 2: 1 observation, predicted correctly. Class 3: none.
 */
static fx_array *example(void)
{
    fx_array *actual = LABELS(FX_DTYPE_I64, 0, 0, 0, 1, 1, 2);
    return fx_confusion(LABELS(FX_DTYPE_I32, 0, 2, 0, 1, 0, 2), actual, 4);
}

static void confusion(void **state)
{
    (void)state;
    FX_SCOPE;
    int64_t got[16];
    const int64_t want[16] = {2, 1, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0}; /* by columns */
    fx_array *c = example();
    assert_ptr_equal(fx_array_device(c), device);
    assert_int_equal(fx_eltype(c), FX_DTYPE_I64);
    assert_int_equal(fx_read_into(c, got, sizeof got), FX_OK);
    assert_memory_equal(got, want, sizeof want);
    fx_array *none = fxi_from(FX_DTYPE_I64, NULL, 1, (const int64_t[]){0});
    none = fx_array_to(device, none);
    assert_true(fx_item(fx_sum(fx_confusion(none, none, 2))) == 0);
    fx_array *flags = LABELS(FX_DTYPE_BOOL, 1, 0, 1);
    assert_true(fx_item(fx_sum(fx_confusion(flags, LABELS(FX_DTYPE_U8, 1, 1, 1), 2))) == 3);
    fx_array *y = LABELS(FX_DTYPE_I64, 0, 1, 2);
    refused(fx_confusion(y, y, 2), FX_STATUS_ARGUMENT, "predicted label 2 is outside 0 … 1");
    refused(fx_confusion(y, LABELS(FX_DTYPE_I64, 0, -1, 2), 3), FX_STATUS_ARGUMENT,
            "actual label -1 is outside 0 … 2");
    refused(fx_confusion(y, LABELS(FX_DTYPE_I64, 0, 1), 3), FX_STATUS_SHAPE,
            "predicted labels are a 3-element");
    refused(fx_confusion(y, LABELS(FX_DTYPE_F32, 0, 1, 2), 3), FX_STATUS_DTYPE, "Float32");
    refused(fx_confusion(y, y, 0), FX_STATUS_ARGUMENT, "nclasses is 0");
    refused(fx_confusion(NULL, y, 3), FX_STATUS_ARGUMENT, "NULL");
}

static void is_about(fx_array *x, double want)
{
    const double got = fx_item(x);
    if (!(fabs(got - want) < 1e-6))
        fail_msg("%g instead of %g", got, want);
}

static void per_class(fx_array *x, double a, double b, double c)
{
    assert_int_equal(fx_length(x), 4);
    is_about(fx_slice(x, 0, 0, 1), a);
    is_about(fx_slice(x, 0, 1, 2), b);
    is_about(fx_slice(x, 0, 2, 3), c);
    is_about(fx_slice(x, 0, 3, 4), 0);
}

static void scores(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *c = example();
    per_class(fx_precision_score(c, FX_AVERAGING_NONE), 2.0 / 3, 1, 0.5);
    per_class(fx_recall_score(c, FX_AVERAGING_NONE), 2.0 / 3, 0.5, 1);
    per_class(fx_f1_score(c, FX_AVERAGING_NONE), 2.0 / 3, 2.0 / 3, 2.0 / 3);
    is_about(fx_precision_score(c, FX_AVERAGING_MACRO), (2.0 / 3 + 1 + 0.5) / 3);
    is_about(fx_recall_score(c, FX_AVERAGING_MACRO), (2.0 / 3 + 0.5 + 1) / 3);
    is_about(fx_f1_score(c, FX_AVERAGING_MACRO), 2.0 / 3);
    is_about(fx_precision_score(c, FX_AVERAGING_MICRO), 4.0 / 6);
    is_about(fx_recall_score(c, FX_AVERAGING_MICRO), 4.0 / 6);
    is_about(fx_f1_score(c, FX_AVERAGING_MICRO), 4.0 / 6);
    is_about(fx_precision_score(c, FX_AVERAGING_WEIGHTED), (3 * 2.0 / 3 + 2 * 1 + 0.5) / 6);
    is_about(fx_f1_score(c, FX_AVERAGING_WEIGHTED), 2.0 / 3);
    is_about(fx_f1_score(fx_zeros_like(c), FX_AVERAGING_MICRO), 0);
    is_about(fx_recall_score(fx_zeros_like(c), FX_AVERAGING_WEIGHTED), 0);
    refused(fx_f1_score(fx_slice(c, 0, 0, 2), FX_AVERAGING_NONE), FX_STATUS_SHAPE, "square");
    refused(fx_f1_score(c, (fx_averaging)9), FX_STATUS_ARGUMENT, "average is 9");
    fx_array *a = LABELS(FX_DTYPE_I64, 1, 2, 3, 4);
    is_about(fx_accuracy(a, LABELS(FX_DTYPE_I32, 1, 0, 3, 4)), 0.75);
    refused(fx_accuracy(a, LABELS(FX_DTYPE_I64, 1)), FX_STATUS_SHAPE,
            "predicted labels are a 4-element");
}

static int run(const char *name)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(confusion), cmocka_unit_test(scores)};
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    return run_on_every_device(run);
}
