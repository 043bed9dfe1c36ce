/* test_custom.c: operations of programs: what is refused, and operations of many inputs and none.
 */
#include "composite_check.h"

/* out[i] = i + Σ of the inputs' elements i */
static fx_status positions(const fx_custom_op *op, int n, const fx_custom_operand *in,
                           const fx_custom_operand *out)
{
    (void)op;
    double *y = out->data;
    for (int64_t i = 0; i < out->sizes[0]; i++) {
        y[i] = (double)i;
        for (int k = 0; k < n; k++)
            y[i] += ((const double *)in[k].data)[i];
    }
    return FX_OK;
}

static const fx_custom_op op = {sizeof op, "positions", positions, NULL, NULL};

static void any_number_of_inputs(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x[] = {vector64((double[]){10, 20, 30}, 3), vector64((double[]){100, 200, 300}, 3)};
    CHECK(fx_custom(&op, 0, NULL, FX_DTYPE_F64, FX_DIMS(3)), (3), 0, 0, 1, 2);
    CHECK(fx_custom(&op, 1, x, FX_DTYPE_F64, FX_DIMS(3)), (3), 0, 10, 21, 32);
    CHECK(fx_custom(&op, 2, x, FX_DTYPE_F64, FX_DIMS(3)), (3), 0, 110, 221, 332);
}

static void what_is_no_operation_is_refused(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fx_custom_op unsized = {.name = "unsized", .forward = positions},
                              idle = {sizeof idle, "idle", NULL, NULL, NULL},
                              nameless = {.fxi_size = sizeof nameless};
    fx_array *x = fx_ones(3);
    fx_dims many = FX_DIMS(1, 1, 1, 1, 1, 1, 1, 1), few = FX_DIMS(1);
    many.n = FX_MAX_DIMS + 1;
    few.n = -1;
    check_error(fx_custom(&unsized, 1, &x, FX_DTYPE_F64, FX_DIMS(3)), FX_STATUS_ARGUMENT,
                "custom: the fx_custom_op must begin with .fxi_size");
    check_error(fx_custom(NULL, 1, &x, FX_DTYPE_F64, FX_DIMS(3)), FX_STATUS_ARGUMENT,
                "custom: the operation is NULL");
    check_error(fx_custom(&idle, 1, &x, FX_DTYPE_F64, FX_DIMS(3)), FX_STATUS_ARGUMENT,
                "idle: the forward function is NULL");
    check_error(fx_custom(&nameless, 1, &x, FX_DTYPE_F64, FX_DIMS(3)), FX_STATUS_ARGUMENT,
                "custom: ");
    check_error(fx_custom(&op, -1, &x, FX_DTYPE_F64, FX_DIMS(3)), FX_STATUS_ARGUMENT,
                "0 to 8 sizes, got -1 and 1");
    check_error(fx_custom(&op, 1, &x, FX_DTYPE_F64, many), FX_STATUS_ARGUMENT, "got 1 and 9");
    check_error(fx_custom(&op, 1, &x, FX_DTYPE_F64, few), FX_STATUS_ARGUMENT, "got 1 and -1");
    check_error(fx_custom(&op, 1, &x, FX_DTYPE_F64, FX_DIMS(2, -3)), FX_STATUS_ARGUMENT,
                "size -3 of axis 1 is negative");
    check_error(fx_custom(&op, 1, &x, FX_DTYPE_COUNT, FX_DIMS(3)), FX_STATUS_ARGUMENT,
                "is not an element type");
    many.n = FX_MAX_DIMS;
    CHECK(fx_custom(&op, 0, NULL, FX_DTYPE_F64, many), (1, 1, 1, 1, 1, 1, 1, 1), 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_inputs),
        cmocka_unit_test(what_is_no_operation_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
