/* shapes.c: rearrangements built from reshape, permute, expand, slice and concat.
 *
 * None of these functions moves an element itself. Repeats are an expand between two reshapes: the
 * gradient is then the sum over the copies, and the copy is one strided kernel. Paddings that
 * mirror or wrap are slices of the array joined to it. Triangles are selected by a comparison of
 * two index vectors, so elements outside the triangle are 0 even if x is NaN there.
 */
#include "own_gradient.h"
#include "composites.h"
#include "error.h"
#include "memory.h"
#include "object_types.h"

/* ---- axes ------------------------------------------------------------------------------------ */

/* "3×4", for messages. */
static const char *text(const fx_array *x, char buf[FXI_SHAPE_TEXT])
{
    return fxi_shape_text(x->node->ndim, x->node->shape, buf);
}

static void copy_sizes(const fx_array *x, int64_t *out_sizes)
{
    for (int i = 0; i < fx_ndims(x); i++)
        out_sizes[i] = fx_size(x, i);
}

/* FX_OK if x is an array with this axis. */
static fx_status check_axis(const char *op, const fx_array *x, int axis)
{
    if (fx_is_error(x))
        return fxi_operand_status(op, x);
    return fxi_check_axis(op, x, axis);
}

bool fxi_axes_of(const char *op, const fx_array *x, fx_axes axes, unsigned *out_mask)
{
    const int n = fx_ndims(x);
    const unsigned all = (1u << n) - 1, beyond = axes.bits & ~all;
    *out_mask = axes.bits == FXI_BIT_ALL ? all : axes.bits;
    if (axes.bits == FXI_BIT_ALL)
        return true;
    if (axes.bits == 0)
        fx_fail(FX_STATUS_ARGUMENT, op, "the set of axes is empty (FX_ALL means all axes)");
    else if (beyond & FXI_BIT_OUTSIDE)
        fx_fail(FX_STATUS_ARGUMENT, op, "an axis in the set is below 0 or above 28");
    else if (beyond)
        fxi_check_axis(op, x, __builtin_ctz(beyond));
    return axes.bits != 0 && !beyond;
}

/* The axes as a mask, which may be empty; FX_OK if x has all of them. */
static fx_status check_axes(const char *op, const fx_array *x, fx_axes axes, unsigned *out_mask)
{
    *out_mask = 0;
    if (fx_is_error(x))
        return fxi_operand_status(op, x);
    return axes.bits == 0 || fxi_axes_of(op, x, axes, out_mask) ? FX_OK : FX_STATUS_ARGUMENT;
}

/* A vector is a column: its transpose is 1×n. */
fx_array *fx_transpose(fx_array *x)
{
    if (fx_is_error(x))
        return fxi_pass_error("transpose", x);
    if (fx_ndims(x) < 2)
        return fx_ndims(x) == 0 ? x : fx_reshape(x, 1, fx_size(x, 0));
    int64_t perm[FX_MAX_DIMS] = {1, 0, 2, 3, 4, 5, 6, 7};
    return fxi_permute(x, fx_ndims(x), perm);
}

fx_array *fx_flatten(fx_array *x)
{
    if (fx_is_error(x))
        return fxi_pass_error("flatten", x);
    int64_t inner = 1;
    for (int i = 0; i + 1 < fx_ndims(x); i++)
        inner *= fx_size(x, i);
    return fx_reshape(x, inner, fx_size(x, fx_ndims(x) - 1));
}

fx_array *fx_vec(fx_array *x)
{
    FXI_OPERATION("vec");
    return fx_reshape(x, fx_length(x));
}

fx_array *fx_unsqueeze(fx_array *x, int axis)
{
    if (fx_is_error(x))
        return fxi_pass_error("unsqueeze", x);
    const int n = fx_ndims(x);
    if (axis < 0 || axis > n || n == FX_MAX_DIMS)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "unsqueeze",
                                      "cannot insert axis %d into a %d-d array", axis, n));
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i <= n; i++)
        sizes[i] = i == axis ? 1 : fx_size(x, i - (i > axis));
    return fxi_reshape(x, n + 1, sizes);
}

fx_array *fx_squeeze(fx_array *x, fx_axes axes)
{
    char shape[FXI_SHAPE_TEXT];
    unsigned mask;
    const fx_status s = check_axes("squeeze", x, axes, &mask);
    if (s != FX_OK)
        return fx_error_array(s);
    int64_t sizes[FX_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < fx_ndims(x); i++) {
        if (!FXI_AXIS_IN(mask, i))
            sizes[n++] = fx_size(x, i);
        else if (fx_size(x, i) != 1)
            return fx_error_array(fx_fail(FX_STATUS_SHAPE, "squeeze",
                                          "axis %d of %s does not have size 1", i, text(x, shape)));
    }
    return fxi_reshape(x, n, sizes);
}

fx_array *fx_flip(fx_array *x, fx_axes axes)
{
    unsigned mask;
    const fx_status s = check_axes("flip", x, axes, &mask);
    if (s != FX_OK)
        return fx_error_array(s);
    FXI_SCOPE;
    for (int i = 0; i < fx_ndims(x); i++)
        if (FXI_AXIS_IN(mask, i) && fx_size(x, i) > 1)
            x = fx_slice_step(x, i, fx_size(x, i) - 1, -1, fx_size(x, i));
    return fx_keep(x);
}

/* ---- padding with x's own elements ----------------------------------------------------------- */

/* For an axis of size n: a side takes at most n − less elements; the left side starts at
 * left[0]·before + left[1]·n + left[2], the right one at right[0]·n + right[1], both with this
 * step. */
typedef struct padding {
    const char *op;
    int64_t less, step, left[3], right[2];
} padding;

static const padding reflect = {"pad_reflect", 1, -1, {1, 0, 0}, {1, -2}};
static const padding symmetric = {"pad_symmetric", 0, -1, {1, 0, -1}, {1, -1}};
static const padding circular = {"pad_circular", 0, 1, {-1, 1, 0}, {0, 0}};

static fx_status check_counts(const char *op, const fx_array *x, int axis, int64_t before,
                              int64_t after, int64_t most)
{
    char shape[FXI_SHAPE_TEXT];
    const fx_status s = check_axis(op, x, axis);
    if (s != FX_OK)
        return s;
    if (before < 0 || after < 0)
        return fx_fail(FX_STATUS_ARGUMENT, op,
                       "counts of %lld and %lld: only fx_pad accepts negative counts",
                       (long long)before, (long long)after);
    if (before > most || after > most)
        return fx_fail(FX_STATUS_ARGUMENT, op,
                       "%lld and %lld elements cannot be taken from axis %d of %s",
                       (long long)before, (long long)after, axis, text(x, shape));
    return FX_OK;
}

/* Joins left, x and right. Left and right may be NULL. */
static fx_array *join(int axis, fx_array *left, fx_array *x, fx_array *right)
{
    fx_array *parts[3];
    int n = 0;
    if (left)
        parts[n++] = left;
    parts[n++] = x;
    if (right)
        parts[n++] = right;
    return n == 1 ? x : fxi_concat(axis, n, parts);
}

static fx_array *pad_own(const padding *p, fx_array *x, int axis, int64_t before, int64_t after)
{
    const int64_t n = fx_size(x, axis);
    const fx_status s = check_counts(p->op, x, axis, before, after, n > p->less ? n - p->less : 0);
    if (s != FX_OK)
        return fx_error_array(s);
    FXI_SCOPE;
    fx_array *left = NULL, *right = NULL;
    if (before > 0)
        left = fx_slice_step(x, axis, p->left[0] * before + p->left[1] * n + p->left[2], p->step,
                             before);
    if (after > 0)
        right = fx_slice_step(x, axis, p->right[0] * n + p->right[1], p->step, after);
    return fx_keep(join(axis, left, x, right));
}

fx_array *fx_pad_reflect(fx_array *x, int axis, int64_t before, int64_t after)
{
    return pad_own(&reflect, x, axis, before, after);
}
fx_array *fx_pad_symmetric(fx_array *x, int axis, int64_t before, int64_t after)
{
    return pad_own(&symmetric, x, axis, before, after);
}
fx_array *fx_pad_circular(fx_array *x, int axis, int64_t before, int64_t after)
{
    return pad_own(&circular, x, axis, before, after);
}

/* One slice, `count` times. */
static fx_array *edge(fx_array *x, int axis, int64_t at, int64_t count)
{
    int64_t sizes[FX_MAX_DIMS];
    copy_sizes(x, sizes);
    sizes[axis] = count;
    return count == 0 ? NULL : fxi_expand(fx_slice(x, axis, at, at + 1), fx_ndims(x), sizes);
}

fx_array *fx_pad_repeat(fx_array *x, int axis, int64_t before, int64_t after)
{
    const int64_t n = fx_size(x, axis);
    const fx_status s = check_counts("pad_repeat", x, axis, before, after, n > 0 ? INT64_MAX : 0);
    if (s != FX_OK)
        return fx_error_array(s);
    FXI_SCOPE;
    fx_array *left = edge(x, axis, 0, before), *right = edge(x, axis, n - 1, after);
    return fx_keep(join(axis, left, x, right));
}

/* ---- repeats --------------------------------------------------------------------------------- */

/* Repeats axis `axis` count times: as a whole (tiled) or element by element. The array is seen as
 * inner × axis × outer, so four axes are enough for every x. */
static fx_array *tile(const char *op, fx_array *x, int axis, int64_t count, bool each)
{
    int64_t sizes[FX_MAX_DIMS], inner = 1, outer = 1;
    const int64_t n = fx_size(x, axis);
    const int rank = fx_ndims(x);
    if (count < 0)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, op,
                                      "the count is %lld, expected at least 0", (long long)count));
    copy_sizes(x, sizes);
    for (int i = 0; i < rank; i++)
        if (i != axis)
            *(i < axis ? &inner : &outer) *= sizes[i];
    sizes[axis] = fxi_mul_sizes(n, count);
    const fx_status s = fxi_check_sizes(op, fx_eltype(x), rank, sizes);
    if (s != FX_OK)
        return fx_error_array(s);
    x = each ? fx_reshape(x, inner, 1, n, outer) : fx_reshape(x, inner, n, 1, outer);
    x = each ? fx_expand(x, inner, count, n, outer) : fx_expand(x, inner, n, count, outer);
    return fxi_reshape(x, rank, sizes);
}

fx_array *fxi_repeat(fx_array *x, int ndims, const int64_t *counts)
{
    FXI_OPERATION("repeat");
    if (fx_is_error(x))
        return fxi_pass_error("repeat", x);
    if (ndims < 0 || ndims > FX_MAX_DIMS)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "repeat",
                                      "got %d counts, one for each axis; the maximum is %d", ndims,
                                      FX_MAX_DIMS));
    const fx_status listed = fxi_check_list("repeat", "counts", ndims, counts);
    if (listed != FX_OK)
        return fx_error_array(listed);
    FXI_SCOPE;
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < ndims; i++)
        sizes[i] = fx_size(x, i);
    if (ndims > fx_ndims(x))
        x = fxi_reshape(x, ndims, sizes);
    for (int i = 0; i < ndims && !fx_is_error(x); i++)
        if (counts[i] != 1)
            x = tile("repeat", x, i, counts[i], false);
    return fx_keep(x);
}

fx_array *fx_repeat_inner(fx_array *x, int axis, int64_t count)
{
    const fx_status s = check_axis("repeat_inner", x, axis);
    if (s != FX_OK)
        return fx_error_array(s);
    FXI_SCOPE;
    return fx_keep(count == 1 ? x : tile("repeat_inner", x, axis, count, true));
}

/* ---- stack, triangles ------------------------------------------------------------------------ */

/* FX_OK if all arrays have the shape of the first. */
static fx_status check_same(int n, fx_array *const *x)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    if (n < 1)
        return fx_fail(FX_STATUS_ARGUMENT, "stack", "needs at least one array, got %d", n);
    const fx_status listed = fxi_check_list("stack", "arrays", n, x);
    if (listed != FX_OK)
        return listed;
    for (int i = 0; i < n; i++) {
        if (fx_is_error(x[i]))
            return fxi_operand_status("stack", x[i]);
        if (!fxi_same_sizes(x[i], x[0]))
            return fx_fail(FX_STATUS_SHAPE, "stack", "sizes differ: %s and %s", text(x[0], a),
                           text(x[i], b));
    }
    return FX_OK;
}

fx_array *fxi_stack(int axis, int n, fx_array *const *x)
{
    FXI_OPERATION("stack");
    const fx_status s = check_same(n, x);
    if (s != FX_OK)
        return fx_error_array(s);
    if (axis < 0 || axis > fx_ndims(x[0]) || fx_ndims(x[0]) == FX_MAX_DIMS)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "stack",
                                      "cannot insert axis %d into arrays with %d axes", axis,
                                      fx_ndims(x[0])));
    fx_array **parts = fxi_malloc((size_t)n * sizeof *parts);
    if (!parts)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, "stack", "no memory for %d parts", n));
    FXI_SCOPE;
    for (int i = 0; i < n; i++)
        parts[i] = fx_unsqueeze(x[i], axis);
    fx_array *y = fxi_concat(axis, n, parts);
    fxi_free(parts);
    return fx_keep(y);
}

/* column − row − k: at most 0 in the lower triangle, at least 0 in the upper one. */
static fx_array *diagonal_distance(const fx_array *x, int64_t k)
{
    fx_array *row = fxi_iota(FX_DTYPE_I64, 0, 2, (int64_t[]){fx_size(x, 0), 1});
    fx_array *column = fxi_iota(FX_DTYPE_I64, 1, 2, (int64_t[]){1, fx_size(x, 1)});
    return fx_sub(fx_sub(column, row), k);
}

static fx_array *triangle(const char *op, fx_array *x, int64_t k, bool lower)
{
    char shape[FXI_SHAPE_TEXT];
    if (fx_is_error(x))
        return fxi_pass_error(op, x);
    if (fx_ndims(x) < 2)
        return fx_error_array(
            fx_fail(FX_STATUS_SHAPE, op, "takes a matrix, got %s", text(x, shape)));
    FXI_SCOPE;
    fx_array *d = diagonal_distance(x, k);
    return fx_keep(fx_where(lower ? fx_le(d, 0) : fx_ge(d, 0), x, 0));
}

fx_array *fx_tril(fx_array *x, int64_t k)
{
    return triangle("tril", x, k, true);
}
fx_array *fx_triu(fx_array *x, int64_t k)
{
    return triangle("triu", x, k, false);
}
