/* matmul.c: matrix products of two matrices or of batches of matrices. */
#include "operands.h"

#include <string.h>

/* Converts both operands to their common type, Bool to Int64. */
static fx_status promote_pair(const char *op, fx_array **a, fx_array **b)
{
    if ((*a)->node->dtype == (*b)->node->dtype && (*a)->node->dtype != FX_DTYPE_BOOL)
        return FX_OK;
    fx_dtype t = fx_dtype_promote(fx_eltype(*a), fx_eltype(*b));
    if (t == FX_DTYPE_BOOL)
        t = FX_DTYPE_I64;
    *a = fx_eltype(*a) == t ? *a : fx_cast(*a, t);
    *b = fx_eltype(*b) == t ? *b : fx_cast(*b, t);
    if (fx_is_error(*a) || fx_is_error(*b))
        return fx_fail(FX_STATUS_MEMORY, op, "no memory for a conversion");
    return FX_OK;
}

/* fx_size of an array that has been checked. */
static inline int64_t size_of(const fx_array *x, int axis)
{
    return axis < x->node->ndim ? x->node->shape[axis] : 1;
}

fx_array *fxi_matmul_node(bool ta, bool tb, fx_array *a, fx_array *b, const char *op)
{
    char t[FXI_SHAPE_TEXT], u[FXI_SHAPE_TEXT];
    fx_device *device;
    fx_status s = fxi_check_operand(op, a);
    if (s == FX_OK)
        s = fxi_check_operand(op, b);
    if (s == FX_OK)
        s = fxi_same_device(op, a, b, &device);
    if (s == FX_OK && (a->node->ndim < 2 || b->node->ndim < 2))
        s = fx_fail(FX_STATUS_SHAPE, op, "takes matrices: A is %s, B is %s",
                    fxi_shape_text(a->node->ndim, a->node->shape, t),
                    fxi_shape_text(b->node->ndim, b->node->shape, u));
    if (s == FX_OK && size_of(a, !ta) != size_of(b, tb))
        s = fx_fail(FX_STATUS_SHAPE, op, "inner sizes differ: A is %s, B is %s",
                    fxi_shape_text(a->node->ndim, a->node->shape, t),
                    fxi_shape_text(b->node->ndim, b->node->shape, u));
    if (s == FX_OK)
        s = promote_pair(op, &a, &b);
    if (s != FX_OK)
        return fx_error_array(s);
    const int ndim = a->node->ndim > b->node->ndim ? a->node->ndim : b->node->ndim;
    int64_t shape[FX_MAX_DIMS] = {size_of(a, ta), size_of(b, !tb)};
    for (int i = 2; i < ndim; i++) {
        const int64_t p = size_of(a, i), q = size_of(b, i);
        if (p != q && p != 1 && q != 1) {
            fx_fail(FX_STATUS_SHAPE, op, "batch sizes differ: A is %s, B is %s",
                    fxi_shape_text(a->node->ndim, a->node->shape, t),
                    fxi_shape_text(b->node->ndim, b->node->shape, u));
            return fx_error_array(FX_STATUS_SHAPE);
        }
        shape[i] = p == 1 ? q : p;
    }
    const fx_attr attr = {.matmul = {ta, tb}};
    fxi_node *in[] = {a->node, b->node};
    return fxi_array_take(fxi_node_new(fxi_here(), FX_OP_MATMUL, (fx_dtype)a->node->dtype, ndim,
                                       shape, device, &attr, 2, in));
}

fx_array *fx_matmul(fx_array *a, fx_array *b)
{
    char t[FXI_SHAPE_TEXT], u[FXI_SHAPE_TEXT];
    if (fxi_array_ok(a) && fxi_array_ok(b) && a->node->ndim == 2 && b->node->ndim == 2)
        return fxi_matmul_node(false, false, a, b, "matmul");
    fx_status s = fxi_check_operand("matmul", a);
    if (s == FX_OK)
        s = fxi_check_operand("matmul", b);
    if (s != FX_OK)
        return fx_error_array(s);
    const int da = fx_ndims(a), db = fx_ndims(b);
    /* A vector is a column; a column times a row is the outer product. */
    const bool columns = da >= 1 && da <= 2 && db >= 1 && db <= 2;
    if (!columns || (da == 2 && fx_size(a, 1) != fx_size(b, 0)) ||
        (da == 1 && (db == 1 || fx_size(b, 0) != 1))) {
        fx_fail(FX_STATUS_SHAPE, "matmul",
                columns ? "inner sizes differ: A is %s%s, B is %s%s"
                        : "takes matrices and vectors: A is %s%s, B is %s%s",
                fxi_shape_text(da, a->node->shape, t), da == 1 ? "×1" : "",
                fxi_shape_text(db, b->node->shape, u), db == 1 ? "×1" : "");
        return fx_error_array(FX_STATUS_SHAPE);
    }
    FXI_SCOPE;
    fx_array *ma = da == 2 ? a : fx_reshape(a, -1, 1),
             *mb = db == 2 ? b : fx_reshape(b, fx_size(b, 0), 1);
    fx_array *y = fxi_matmul_node(false, false, ma, mb, "matmul");
    return fx_keep(db == 2 ? y : fx_reshape(y, fx_size(a, 0)));
}

fx_array *fx_batched_mul(fx_array *a, fx_array *b)
{
    return fxi_matmul_node(false, false, a, b, "batched_mul");
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* Sums g over the batch axes along which x was broadcast. */
static fx_array *unbroadcast(fx_array *g, const fxi_node *x)
{
    if (!fxi_array_ok(g) || fxi_same_shape(g->node, x))
        return g;
    unsigned mask = 0;
    for (int i = 2; i < fx_ndims(g); i++)
        if (g->node->shape[i] != (i < x->ndim ? x->shape[i] : 1))
            mask |= FXI_AXIS_BIT(i);
    return fxi_reshape(fxi_reduce(FX_REDUCE_SUM, g, mask, "sum"), x->ndim, x->shape);
}

RULE(MATMUL)
{
    const bool ta = a->node->attr.matmul.transpose_a, tb = a->node->attr.matmul.transpose_b;
    if (a->need[0])
        a->gx[0] = unbroadcast(ta ? fxi_matmul_node(tb, true, Y, G, "matmul")
                                  : fxi_matmul_node(false, !tb, G, Y, "matmul"),
                               a->node->in[0]);
    if (a->need[1])
        a->gx[1] = unbroadcast(tb ? fxi_matmul_node(true, ta, G, X, "matmul")
                                  : fxi_matmul_node(!ta, false, X, G, "matmul"),
                               a->node->in[1]);
}
