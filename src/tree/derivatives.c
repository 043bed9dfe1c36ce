/* derivatives.c: Jacobians and Hessians, row by row with the reverse sweep: see grad.h.
 *
 * Row i of a Jacobian is the pullback of the i-th unit vector. All rows are pending, so one
 * evaluation computes them in one plan, which shares the forward pass.
 */
#include <cflux/grad.h>
#include <cflux/ops.h>
#include <cflux/tree.h>

#include "memory.h"
#include "node.h"

/* The i-th unit vector with the shape and element type of y. */
static fx_array *unit_like(fx_array *y, int64_t i)
{
    int64_t sizes[FX_MAX_DIMS];
    for (int k = 0; k < fx_ndims(y); k++)
        sizes[k] = fx_size(y, k);
    fx_array *all = fx_range_dtype(FX_DTYPE_I64, 0, 1, fx_length(y));
    fx_array *unit = fx_reshape(fx_cast(fx_eq(all, i), fx_eltype(y)), -1);
    return fx_array_to(fx_array_device(y), fxi_reshape(unit, fx_ndims(y), sizes));
}

static bool is_real(const fx_array *x)
{
    const fx_dtype t = fx_eltype(x);
    return t == FX_DTYPE_F64 || t == FX_DTYPE_F32 || t == FX_DTYPE_F16 || t == FX_DTYPE_BF16;
}

static fx_status check(const char *op, fx_array *y, fx_array *x)
{
    if (!y || !x)
        return fx_fail(FX_STATUS_ARGUMENT, op, "the %s is NULL", y ? "argument" : "result");
    if (fx_is_error(y) || fx_is_error(x))
        return fx_array_status(fx_is_error(y) ? y : x);
    /* Checked here, because a result without elements has no rows that could fail. */
    const fx_array *whole = is_real(x) ? y : x;
    return is_real(whole)
               ? FX_OK
               : fx_fail(FX_STATUS_DTYPE, op, "the %s is %s, expected floats",
                         whole == x ? "argument" : "result", fx_dtype_name(fx_eltype(whole)));
}

/* d y[i] / d x in the shape of x. */
static fx_array *row(fx_array *y, fx_array *x, int64_t i)
{
    fx_array *g = NULL;
    const fx_status status = fx_pullback(y, unit_like(y, i), &x, 1, &g);
    return status == FX_OK ? g : fx_error_array(status);
}

/* part(row i, i) for all elements of y, stacked along axis 0. */
static fx_array *rows(const char *op, fx_array *y, fx_array *x,
                      fx_array *(*part)(fx_array *row, int64_t i))
{
    fx_status status = check(op, y, x);
    if (status != FX_OK)
        return fx_error_array(status);
    const int64_t m = fx_length(y);
    if (m == 0)
        return fxi_full(fx_eltype(x), 0, 2, (const int64_t[]){0, fx_length(x)});
    fx_array **list = fxi_calloc((size_t)m, sizeof(fx_array *));
    if (!list || m > INT32_MAX) {
        fxi_free(list);
        return fx_error_array(
            fx_fail(FX_STATUS_MEMORY, op, "out of memory for %lld rows", (long long)m));
    }
    FXI_SCOPE;
    fx_array *failed = NULL;
    for (int64_t i = 0; i < m && !failed; i++) {
        list[i] = part(row(y, x, i), i);
        failed = fx_is_error(list[i]) ? list[i] : NULL;
    }
    fx_array *all = failed ? failed : fxi_stack(0, (int)m, list);
    fxi_free(list);
    return fx_keep(all);
}

static fx_array *whole_row(fx_array *r, int64_t i)
{
    (void)i;
    return fx_is_error(r) ? r : fx_vec(r);
}

static fx_array *diagonal_element(fx_array *r, int64_t i)
{
    return fx_is_error(r) ? r : fx_reshape(fx_slice(fx_vec(r), 0, i, i + 1), 1);
}

fx_array *fx_jacobian(fx_array *y, fx_array *x)
{
    return rows("jacobian", y, x, whole_row);
}

fx_array *fx_withjacobian(fx_array *y, fx_array *x)
{
    fx_array *j = rows("withjacobian", y, x, whole_row);
    if (fx_is_error(j))
        return j;
    const fx_status status = fx_eval(fx_tuple(y, j));
    return status == FX_OK ? j : fx_error_array(status);
}

/* d loss / d x, for a second derivative. */
static fx_array *gradient(const char *op, fx_array *loss, fx_array *x)
{
    fx_array *g = NULL;
    char t[FXI_SHAPE_TEXT];
    fx_status status = check(op, loss, x);
    if (status == FX_OK && fx_length(loss) != 1)
        status = fx_fail(FX_STATUS_SHAPE, op,
                         "the loss must have one element, got %s; take its mean or sum",
                         fxi_shape_text(loss->node->ndim, loss->node->shape, t));
    if (status == FX_OK)
        status = fx_gradient_of(loss, &x, 1, &g);
    return status == FX_OK ? g : fx_error_array(status);
}

fx_array *fx_hessian(fx_array *loss, fx_array *x)
{
    fx_array *g = gradient("hessian", loss, x);
    return fx_is_error(g) ? g : rows("hessian", g, x, whole_row);
}

fx_array *fx_diaghessian(fx_array *loss, fx_array *x)
{
    fx_array *g = gradient("diaghessian", loss, x);
    fx_array *d =
        fx_is_error(g) || fx_length(g) == 0 ? g : rows("diaghessian", g, x, diagonal_element);
    if (fx_is_error(d))
        return d;
    int64_t sizes[FX_MAX_DIMS];
    for (int k = 0; k < fx_ndims(x); k++)
        sizes[k] = fx_size(x, k);
    return fxi_reshape(d, fx_ndims(x), sizes);
}
