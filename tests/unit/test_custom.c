/* test_custom.c: operations of programs: what is refused, operations of many inputs and none, and
 * gradients of the wrong size. */
#include "composite_check.h"

#include <cflux/optim.h>
#include <cflux/tree.h>

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

/* A gradient function that ends the history of its operand: the scope in which it keeps the operand
 * closes before the sweep has come to the operand. */
static fx_array *kept;

static void keeps_operand(const fx_custom_op *of, int n, fx_array *const *in, fx_array *out,
                          fx_array *gy, fx_array **gx)
{
    (void)of, (void)n, (void)out;
    {
        FX_TEST;
        fx_set(&kept, in[0]);
    }
    gx[0] = fx_mul(gy, 1);
}

static void releases_operand(const fx_custom_op *of, int n, fx_array *const *in, fx_array *out,
                             fx_array *gy, fx_array **gx)
{
    (void)of, (void)n, (void)out;
    fx_release(in[0]);
    gx[0] = fx_mul(gy, 1);
}

/* Replaces a value whose gradient the sweep computes. */
static fx_array *wanted;

static void updates_wanted(const fx_custom_op *of, int n, fx_array *const *in, fx_array *out,
                           fx_array *gy, fx_array **gx)
{
    (void)of, (void)n, (void)in, (void)out;
    void *state = fx_setup(fx_descent(0.5), fx_tuple(wanted));
    assert_int_equal(fx_update(state, fx_tuple(wanted), fx_tuple(fx_ones(3))), FX_OK);
    gx[0] = fx_mul(gy, 1);
}

static void check_misused_gradient(void (*gradient)(const fx_custom_op *of, int n,
                                                    fx_array *const *in, fx_array *out,
                                                    fx_array *gy, fx_array **gx),
                                   const char *message)
{
    FX_SCOPE;
    const fx_custom_op misused = {sizeof misused, "misused", positions, gradient, NULL};
    fx_array *a = vector64((double[]){1, 2, 3}, 3), *h = fx_mul(a, 2), *g;
    h = fx_mul(h, h);
    wanted = a;
    fx_array *loss = fx_sum(fx_custom(&misused, 1, &h, FX_DTYPE_F64, FX_DIMS(3)));
    assert_int_not_equal(fx_gradient_of(loss, &a, 1, &g), FX_OK);
    const fx_error e = fx_error_take();
    if (!strstr(e.message, message))
        fail_msg("%s", e.message);
}

static void misused_operands_are_errors(void **state)
{
    (void)state;
    kept = fx_retain(fx_ones(3));
    check_misused_gradient(keeps_operand, "ended the history of a value");
    check_misused_gradient(updates_wanted, "has updated an array whose gradient is wanted");
    check_misused_gradient(releases_operand, "freed");
    fx_release(kept);
}

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

/* ---- gradients ------------------------------------------------------------------------------- */

/* The gradients that the gradient function of `test_op` stores for its inputs. */
static fx_array *stored[2];

static void store(const fx_custom_op *test_op, int n, fx_array *const *in, fx_array *out,
                  fx_array *gy, fx_array **gx)
{
    (void)test_op, (void)in, (void)out, (void)gy;
    for (int i = 0; i < n; i++)
        gx[i] = stored[i];
}

/* A gradient function may store an array of the sizes of the input, of any element type, and for a
 * 0-d input any array, which is summed. Everything else is an error that names the input. The
 * inputs are results of other operations, so nothing but the check sees the sizes. */
static void gradients_fit_their_inputs(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fx_custom_op test_op = {sizeof test_op, "test", positions, store, NULL};
    static const fx_custom_op nameless = {
        .fxi_size = sizeof nameless, .forward = positions, .gradient = store};
    fx_array *ones = fx_full_dtype(FX_DTYPE_F64, 1, 3), *fixed = fx_full_dtype(FX_DTYPE_F64, 1, 3),
             *one = fx_scalar(1), *scalar = fx_cast(one, FX_DTYPE_F64);
    const struct {
        const fx_custom_op *op;
        fx_array *x, *gradient;
        fx_status status;
        double want; /* each element of the gradient, which is multiplied by 2 */
        const char *message;
    } rows[] = {
        {&test_op, ones, fx_full_dtype(FX_DTYPE_F64, 4, 3), FX_OK, 8, ""},
        {&test_op, ones, fx_full_dtype(FX_DTYPE_F32, 4, 3), FX_OK, 8, ""},
        {&test_op, scalar, fx_full_dtype(FX_DTYPE_F64, 4, 3), FX_OK, 24, ""},
        {&test_op, ones, NULL, FX_OK, 0, ""},
        {&test_op, ones, fx_ones(7), FX_STATUS_SHAPE, 0,
         "test: its gradient function stored an array of size 7 in gx[1], but the size of input 1 "
         "is 3"},
        {&test_op, ones, fx_ones(3, 1), FX_STATUS_SHAPE, 0, "of size 3×1 in gx[1]"},
        {&test_op, ones, one, FX_STATUS_SHAPE, 0, "of size scalar in gx[1]"},
        {&nameless, ones, fx_ones(1), FX_STATUS_SHAPE, 0, "custom: its gradient function"},
        {&test_op, ones, fx_tuple(ones), FX_STATUS_ARGUMENT, 0,
         "test: its gradient function stored an object that is not an array in gx[1]"},
    };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        fx_array *in[] = {fixed, fx_mul(rows[k].x, 2)};
        stored[1] = rows[k].gradient; /* gx[0] is not needed, so it is not checked */
        stored[0] = one;
        fx_array *y = fx_sum(fx_custom(rows[k].op, 2, in, FX_DTYPE_F64, FX_DIMS(3)));
        fx_array *g = fx_gradient(y, rows[k].x);
        if (rows[k].status != FX_OK) {
            check_error(g, rows[k].status, rows[k].message);
            continue;
        }
        assert_int_equal(fx_eltype(g), FX_DTYPE_F64);
        assert_int_equal(fx_ndims(g), fx_ndims(rows[k].x));
        for (int64_t i = 0; i < fx_length(rows[k].x); i++)
            assert_true(fx_at(g, i) == rows[k].want);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_fit_their_inputs),
        cmocka_unit_test(any_number_of_inputs),
        cmocka_unit_test(misused_operands_are_errors),
        cmocka_unit_test(what_is_no_operation_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
