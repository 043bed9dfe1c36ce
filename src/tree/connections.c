/* connections.c: functions of several arrays, which combine the results of layers, and reductions.
 *
 * The connections are Julia's +, -, *, .*, vcat, hcat, cat and tuple. Like Julia's, the sum needs
 * arrays of one shape: a sum that broadcasts by accident would hide a wrong size. Sums and
 * products combine three or more arrays from the left: f(f(a, b), c). A difference takes at most
 * two. With one array the result is also the same as Julia's.
 */
#include "functions.h"

#include <cflux/ops.h>

#include <string.h>

typedef fx_array *(*binary_fn)(fx_array *a, fx_array *b);

/* False (recorded) if an argument is not an array. */
static bool are_arrays(const char *name, int n, void *const *args)
{
    for (int i = 0; i < n; i++)
        if (!fx_is_array(args[i])) {
            fx_fail(FX_STATUS_ARGUMENT, "call", "%s takes arrays, got a %s", name,
                    fx_type_of(args[i])->name);
            return false;
        }
    return true;
}

static fx_array *fold(const char *name, binary_fn f, int n, void *const *args)
{
    if (!are_arrays(name, n, args))
        return fx_error_array(FX_STATUS_ARGUMENT);
    FXI_SCOPE;
    fx_array *y = args[0];
    for (int i = 1; i < n; i++)
        y = f(y, args[i]);
    return fx_keep(y);
}

static bool check_sizes(const char *name, fx_array *a, fx_array *b)
{
    char x[100], y[100];
    if (fxi_same_sizes(a, b) || fx_is_error(a) || fx_is_error(b))
        return true;
    fx_summary(a, x, sizeof x);
    fx_summary(b, y, sizeof y);
    fx_fail(FX_STATUS_SHAPE, "call", "%s takes arrays of one shape, got a %s and a %s", name, x, y);
    return false;
}

static fx_array *add(fx_array *a, fx_array *b)
{
    return check_sizes("+", a, b) ? fx_add(a, b) : fx_error_array(FX_STATUS_SHAPE);
}

static fx_array *sub(fx_array *a, fx_array *b)
{
    return check_sizes("-", a, b) ? fx_sub(a, b) : fx_error_array(FX_STATUS_SHAPE);
}

static fx_array *mul(fx_array *a, fx_array *b)
{
    return fx_mul(a, b);
}

static fx_array *product(fx_array *a, fx_array *b)
{
    return fx_ndims(a) == 0 || fx_ndims(b) == 0 ? fx_mul(a, b) : fx_matmul(a, b);
}

static void *add_all(int n, void *const *args)
{
    return fold("+", add, n, args);
}

static void *subtract(int n, void *const *args)
{
    if (n > 2)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, "call", "- takes one or two arrays, got %d", n));
    return n == 1 && are_arrays("-", n, args) ? fx_neg(args[0]) : fold("-", sub, n, args);
}

static void *multiply_matrices(int n, void *const *args)
{
    return fold("*", product, n, args);
}

static void *multiply(int n, void *const *args)
{
    return fold(".*", mul, n, args);
}

static void *tuple(int n, void *const *args)
{
    return fxi_tuple(n, args);
}

/* ---- joining --------------------------------------------------------------------------------- */

/* x with at least `ndims` axes: new ones of size 1 at the end. */
static fx_array *with_axes(fx_array *x, int ndims)
{
    while (!fx_is_error(x) && fx_ndims(x) < ndims)
        x = fx_unsqueeze(x, fx_ndims(x));
    return x;
}

static fx_array *joined(int axis, int n, void *const *args)
{
    FXI_SCOPE;
    int ndims = axis + 1;
    fx_array **xs = fxi_calloc((size_t)n, sizeof *xs);
    if (!xs)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, "cat", "no memory for %d arrays", n));
    for (int i = 0; i < n; i++)
        ndims = fx_ndims(args[i]) > ndims ? fx_ndims(args[i]) : ndims;
    for (int i = 0; i < n; i++)
        xs[i] = with_axes(args[i], ndims);
    fx_array *y = fxi_concat(axis, n, xs);
    fxi_free(xs);
    return fx_keep(y);
}

#define CAT(axis)                                                                                  \
    static void *cat##axis(int n, void *const *args)                                               \
    {                                                                                              \
        return are_arrays("cat", n, args) ? joined(axis, n, args)                                  \
                                          : fx_error_array(FX_STATUS_ARGUMENT);                    \
    }                                                                                              \
    static fx_array *cat_one##axis(fx_array *x)                                                    \
    {                                                                                              \
        return with_axes(x, (axis) + 1);                                                           \
    }
CAT(0)
CAT(1)
CAT(2)
CAT(3)
CAT(4)
CAT(5)
CAT(6)
CAT(7)
#undef CAT

/* ---- reductions ------------------------------------------------------------------------------ */

static fx_array *sum_of(fx_array *x)
{
    return fx_sum(x);
}
static fx_array *mean_of(fx_array *x)
{
    return fx_mean(x);
}
static fx_array *maximum_of(fx_array *x)
{
    return fx_maximum(x);
}
static fx_array *minimum_of(fx_array *x)
{
    return fx_minimum(x);
}

/* ---- the objects ----------------------------------------------------------------------------- */

#define FUNCTION(one, several, printed)                                                            \
    {                                                                                              \
        {.type = &fxi_function_type, .refs = FXI_IMMORTAL}, one, printed, several                  \
    }
fx_function fxi_function_add = FUNCTION(fx_identity, add_all, "+");
fx_function fxi_function_sub = FUNCTION(fx_neg, subtract, "-");
fx_function fxi_function_matmul = FUNCTION(fx_identity, multiply_matrices, "*");
fx_function fxi_function_mul = FUNCTION(fx_identity, multiply, ".*");
fx_function fxi_function_vcat = FUNCTION(cat_one0, cat0, "vcat");
fx_function fxi_function_hcat = FUNCTION(cat_one1, cat1, "hcat");
fx_function fxi_function_tuple = FUNCTION(fx_identity, tuple, "tuple");
fx_function fxi_function_sum = FUNCTION(sum_of, NULL, "sum");
fx_function fxi_function_mean = FUNCTION(mean_of, NULL, "mean");
fx_function fxi_function_maximum = FUNCTION(maximum_of, NULL, "maximum");
fx_function fxi_function_minimum = FUNCTION(minimum_of, NULL, "minimum");
static fx_function cats[FX_MAX_DIMS] = {
    FUNCTION(cat_one0, cat0, "cat(dims=1)"), FUNCTION(cat_one1, cat1, "cat(dims=2)"),
    FUNCTION(cat_one2, cat2, "cat(dims=3)"), FUNCTION(cat_one3, cat3, "cat(dims=4)"),
    FUNCTION(cat_one4, cat4, "cat(dims=5)"), FUNCTION(cat_one5, cat5, "cat(dims=6)"),
    FUNCTION(cat_one6, cat6, "cat(dims=7)"), FUNCTION(cat_one7, cat7, "cat(dims=8)")};
#undef FUNCTION

fx_function *fx_cat_function(int axis)
{
    if (axis >= 0 && axis < FX_MAX_DIMS)
        return &cats[axis];
    fx_fail(FX_STATUS_ARGUMENT, "cat_function", "the axis must be 0 to %d, got %d", FX_MAX_DIMS - 1,
            axis);
    return fx_error_object(&fxi_function_type);
}

/* A connection cannot be an activation, which is called with one array and without its object. */
static fx_array *no_activation(fx_array *x)
{
    (void)x;
    return fx_error_array(
        fx_fail(FX_STATUS_ARGUMENT, "call", "a connection cannot be an activation function"));
}

fx_function *fx_connection_new(const char *name, void *(*combine)(int n, void *const *args))
{
    if (!name || !combine) {
        fx_fail(FX_STATUS_ARGUMENT, "connection_new", "needs a name and a function");
        return fx_error_object(&fxi_function_type);
    }
    const fx_function init = {.apply = no_activation, .name = name, .combine = combine};
    return fxi_new(&fxi_function_type, &init);
}
