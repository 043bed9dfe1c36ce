/* movement.c: operations that move elements without computing: reshape, permute, expand, slice,
 * pad, concatenate, and moves between devices.
 */
#include "error.h"
#include "operands.h"

#include <cflux/device.h>
#include <string.h>

/* Records a node over one array, with the given shape. */
static fx_array *movement(fx_op op, fx_array *x, int ndim, const int64_t *shape,
                          const fx_attr *attr)
{
    fxi_node *n = x->node;
    return fxi_array_take(
        fxi_node_new(fxi_begin(), op, (fx_dtype)n->dtype, ndim, shape, n->device, attr, 1, &n));
}

static fx_status check_rank(const char *op, int ndims, const int64_t *sizes)
{
    if (ndims < 0 || ndims > FX_MAX_DIMS)
        return fx_fail(FX_STATUS_ARGUMENT, op, "expected 0 to %d axes, got %d", FX_MAX_DIMS, ndims);
    return fxi_check_list(op, "sizes", ndims, sizes);
}

fx_array *fxi_transfer(fx_device *device, fx_array *x)
{
    fxi_node *n = x->node;
    return fxi_array_take(fxi_node_new(fxi_begin(), FX_OP_TRANSFER, (fx_dtype)n->dtype, n->ndim,
                                       n->shape, device, NULL, 1, &n));
}

fx_array *fx_stop_gradient(fx_array *x)
{
    const fx_status s = fxi_check_array("stop_gradient", x);
    return s == FX_OK ? movement(FX_OP_STOP, x, x->node->ndim, x->node->shape, NULL)
                      : fx_error_array(s);
}

/* Fills in the size that is −1, if any; false if the lengths do not match. */
static bool infer(int64_t length, int ndims, const int64_t *sizes, int64_t *shape)
{
    int64_t known = 1;
    int open = -1;
    for (int i = 0; i < ndims; i++) {
        shape[i] = sizes[i];
        if (sizes[i] == -1 && open >= 0)
            return false;
        if (sizes[i] == -1)
            open = i;
        else if (sizes[i] < 0 || !fxi_mul_i64(known, sizes[i], &known))
            return false;
    }
    if (open < 0)
        return known == length;
    if (known == 0 || length % known != 0)
        return false;
    shape[open] = length / known;
    return true;
}

fx_array *fxi_reshape(fx_array *x, int ndims, const int64_t *sizes)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    fx_status s = fxi_usable(fxi_here(), x) ? FX_OK : fxi_check_array("reshape", x);
    if (s == FX_OK)
        s = check_rank("reshape", ndims, sizes);
    if (s != FX_OK)
        return fx_error_array(s);
    const fxi_node *n = x->node;
    int64_t shape[FX_MAX_DIMS];
    if (!infer(fxi_length(n->ndim, n->shape), ndims, sizes, shape)) {
        int open = 0;
        for (int i = 0; i < ndims; i++)
            open += sizes[i] == -1;
        fx_fail(FX_STATUS_SHAPE, "reshape", "%s (%lld elements) does not fit into %s%s",
                fxi_shape_text(n->ndim, n->shape, a), (long long)fxi_length(n->ndim, n->shape),
                fxi_shape_text(ndims, sizes, b), open > 1 ? ": only one size may be -1" : "");
        return fx_error_array(FX_STATUS_SHAPE);
    }
    bool same = ndims == n->ndim;
    for (int i = 0; i < ndims && same; i++)
        same = shape[i] == n->shape[i];
    if (same)
        return x;
    return movement(FX_OP_RESHAPE, x, ndims, shape, NULL);
}

fx_array *fxi_permute(fx_array *x, int ndims, const int64_t *perm)
{
    fx_status s = fxi_check_array("permute", x);
    if (s == FX_OK)
        s = fxi_check_list("permute", "axes", ndims, perm);
    if (s != FX_OK)
        return fx_error_array(s);
    const fxi_node *n = x->node;
    fx_attr a = {.words = {0}};
    int64_t shape[FX_MAX_DIMS];
    unsigned seen = 0;
    bool same = true;
    for (int i = 0; i < ndims && i < FX_MAX_DIMS; i++) {
        if (perm[i] < 0 || perm[i] >= n->ndim)
            break;
        seen |= 1u << perm[i];
        a.permutation[i] = perm[i];
        shape[i] = n->shape[perm[i]];
        same &= perm[i] == i;
    }
    if (ndims != n->ndim || seen != (1u << n->ndim) - 1) {
        char got[FXI_SHAPE_TEXT] = "no axes";
        size_t end = 0;
        for (int i = 0; i < ndims && end < sizeof got; i++)
            end += (size_t)snprintf(got + end, sizeof got - end, i ? ", %lld" : "%lld",
                                    (long long)perm[i]);
        fx_fail(FX_STATUS_ARGUMENT, "permute", "expects each axis from 0 to %d once, got %s",
                n->ndim - 1, got);
        return fx_error_array(FX_STATUS_ARGUMENT);
    }
    return same ? x : movement(FX_OP_PERMUTE, x, ndims, shape, &a);
}

fx_array *fxi_expand(fx_array *x, int ndims, const int64_t *sizes)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    fx_status s = fxi_check_array("expand", x);
    if (s == FX_OK)
        s = check_rank("expand", ndims, sizes);
    if (s != FX_OK)
        return fx_error_array(s);
    const fxi_node *n = x->node;
    int64_t longer[FX_MAX_DIMS];
    bool fits = ndims >= n->ndim, same = ndims == n->ndim;
    for (int i = 0; i < ndims && fits; i++) {
        longer[i] = i < n->ndim ? n->shape[i] : 1;
        fits = sizes[i] >= 0 && (longer[i] == sizes[i] || longer[i] == 1);
        same &= longer[i] == sizes[i];
    }
    if (!fits) {
        fx_fail(FX_STATUS_SHAPE, "expand", "%s does not broadcast to %s",
                fxi_shape_text(n->ndim, n->shape, a), fxi_shape_text(ndims, sizes, b));
        return fx_error_array(FX_STATUS_SHAPE);
    }
    if (same)
        return x;
    /* An expansion keeps the number of axes; those that x lacks come from a reshape. */
    fx_array *r = ndims == n->ndim ? x : movement(FX_OP_RESHAPE, x, ndims, longer, NULL);
    if (fx_is_error(r) || memcmp(longer, sizes, (size_t)ndims * sizeof *sizes) == 0)
        return r;
    return movement(FX_OP_EXPAND, r, ndims, sizes, NULL);
}

fx_array *fx_slice_step(fx_array *x, int axis, int64_t start, int64_t step, int64_t n)
{
    char t[FXI_SHAPE_TEXT];
    fx_status s = fxi_check_array("slice_step", x);
    if (s == FX_OK)
        s = fxi_check_axis("slice_step", x, axis);
    if (s != FX_OK)
        return fx_error_array(s);
    const int64_t size = x->node->shape[axis];
    int64_t last = 0, reach = 0;
    const bool overflow = __builtin_mul_overflow(step, n > 0 ? n - 1 : 0, &reach) ||
                          __builtin_add_overflow(start, reach, &last);
    if (n < 0 || overflow || (n > 0 && (start < 0 || start >= size || last < 0 || last >= size))) {
        fx_fail(FX_STATUS_ARGUMENT, "slice_step",
                "%lld elements from index %lld in steps of %lld are outside axis %d of %s",
                (long long)n, (long long)start, (long long)step, axis,
                fxi_shape_text(x->node->ndim, x->node->shape, t));
        return fx_error_array(FX_STATUS_ARGUMENT);
    }
    if (start == 0 && step == 1 && n == size)
        return x;
    int64_t shape[FX_MAX_DIMS];
    memcpy(shape, x->node->shape, sizeof shape);
    shape[axis] = n;
    /* A slice without elements may begin anywhere, also outside the axis. */
    const fx_attr a = {.slice = {axis, n ? start : 0, n > 1 ? step : 1}};
    return movement(FX_OP_SLICE, x, x->node->ndim, shape, &a);
}

fx_array *fx_slice(fx_array *x, int axis, int64_t start, int64_t stop)
{
    FXI_OPERATION("slice");
    if (!fx_is_error(x) && fx_is_array(x) && stop < start) {
        fx_fail(FX_STATUS_ARGUMENT, "slice", "stop %lld is before start %lld", (long long)stop,
                (long long)start);
        return fx_error_array(FX_STATUS_ARGUMENT);
    }
    int64_t n;
    if (__builtin_sub_overflow(stop, start, &n))
        n = INT64_MAX; /* outside the axis anyway */
    return fx_slice_step(x, axis, start, 1, n);
}

/* The literal that fills a padding, in x's type. */
static bool fill_literal(fxi_operand *v, double value, fx_dtype dtype)
{
    const bool whole = value >= -0x1p53 && value <= 0x1p53 && value == (double)(int64_t)value;
    v->arg = whole && !fxi_is_float((int)dtype) ? fxi_arg_int((int64_t)value) : fxi_arg_real(value);
    return fxi_operand_literal(v, dtype);
}

/* The size of the axis after padding, or after cropping by negative counts. FX_STATUS_ARGUMENT if
 * the array is too small for that, or the size overflows. */
static fx_status pad_counts(const fx_array *x, int axis, int64_t before, int64_t after,
                            int64_t *out_size)
{
    char t[FXI_SHAPE_TEXT];
    const int64_t size = x->node->shape[axis];
    int64_t total;
    const bool ok = before >= -size && after >= -size &&
                    !__builtin_add_overflow(size, before, &total) &&
                    !__builtin_add_overflow(total, after, &total) && total >= 0;
    if (!ok)
        return fx_fail(FX_STATUS_ARGUMENT, "pad",
                       "cannot add %lld elements before and %lld after axis %d of %s",
                       (long long)before, (long long)after, axis,
                       fxi_shape_text(x->node->ndim, x->node->shape, t));
    *out_size = total;
    return FX_OK;
}

/* The literal of x, if x is a padding with the same number: then the planner knows that the numbers
 * are equal, and may do both paddings in one step (merge_pads.c). Else NULL. */
static fxi_node *shared_fill(const fxi_node *x, double value)
{
    const bool pads = x->op == FX_OP_PAD && !x->data && !x->history_cut && fxi_is_float(x->dtype);
    fxi_node *v = pads ? x->in[1] : NULL;
    const bool same =
        v && v->op == FX_OP_CONST && memcmp(&v->attr.literal.number, &value, sizeof value) == 0;
    return same ? v : NULL;
}

fx_array *fx_pad(fx_array *x, int axis, int64_t before, int64_t after, double value)
{
    int64_t size = 0;
    fx_status s = fxi_check_array("pad", x);
    if (s == FX_OK)
        s = fxi_check_axis("pad", x, axis);
    if (s == FX_OK)
        s = pad_counts(x, axis, before, after, &size);
    if (s != FX_OK)
        return fx_error_array(s);
    int64_t shape[FX_MAX_DIMS];
    memcpy(shape, x->node->shape, sizeof shape);
    shape[axis] = size;
    if (before < 0 || after < 0) {
        const int64_t first = before < 0 ? -before : 0,
                      last = x->node->shape[axis] + (after < 0 ? after : 0);
        x = last >= first ? fx_slice(x, axis, first, last) : fx_slice(x, axis, 0, 0);
        before = before < 0 ? 0 : before;
        after = after < 0 ? 0 : after;
    }
    if (fx_is_error(x) || (before == 0 && after == 0))
        return x;
    fxi_context *c = fxi_begin();
    const fxi_node *n = x->node;
    fxi_operand v = {0};
    fxi_node *shared = shared_fill(n, value);
    if (!shared && !fill_literal(&v, value, (fx_dtype)n->dtype))
        return fx_error_array(FX_STATUS_MEMORY);
    const fx_attr a = {.pad = {axis, before, size - n->shape[axis] - before}};
    fxi_node *in[] = {x->node, shared ? shared : v.node};
    fxi_node *r =
        fxi_node_new(c, FX_OP_PAD, (fx_dtype)n->dtype, n->ndim, shape, n->device, &a, 2, in);
    fxi_operands_release(&v, 1);
    return fxi_array_take(r);
}

/* Checks that the parts of a concatenation agree in all sizes except along `axis`, whose sum is the
 * size of the result. */
static fx_status concat_shape(int axis, int n, fx_array *const *x, int64_t *shape, fx_dtype *type,
                              fx_device **device)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    if (n < 1)
        return fx_fail(FX_STATUS_ARGUMENT, "concat", "needs at least one array, got %d", n);
    const fx_status listed = fxi_check_list("concat", "arrays", n, x);
    if (listed != FX_OK)
        return listed;
    for (int i = 0; i < n; i++) {
        fx_status s = fxi_check_array("concat", x[i]);
        if (s == FX_OK)
            s = fxi_check_axis("concat", x[i], axis);
        if (s != FX_OK)
            return s;
        const fxi_node *p = x[i]->node, *first = x[0]->node;
        bool fits = p->ndim == first->ndim;
        for (int k = 0; k < p->ndim && fits; k++)
            fits = k == axis || p->shape[k] == first->shape[k];
        if (!fits)
            return fx_fail(
                FX_STATUS_SHAPE, "concat", "sizes differ in an axis other than %d: %s and %s", axis,
                fxi_shape_text(first->ndim, first->shape, a), fxi_shape_text(p->ndim, p->shape, b));
        if (i == 0)
            memcpy(shape, first->shape, FX_MAX_DIMS * sizeof *shape);
        else
            shape[axis] = fxi_add_sizes(shape[axis], p->shape[axis]);
        *type = i == 0 ? (fx_dtype)p->dtype : fx_dtype_promote(*type, (fx_dtype)p->dtype);
        s = fxi_add_device("concat", p, device);
        if (s != FX_OK)
            return s;
    }
    return FX_OK;
}

fx_array *fxi_concat(int axis, int n, fx_array *const *x)
{
    int64_t shape[FX_MAX_DIMS];
    fx_dtype type = FX_DTYPE_F32;
    fx_device *device = NULL;
    const fx_status s = concat_shape(axis, n, x, shape, &type, &device);
    if (s != FX_OK)
        return fx_error_array(s);
    if (n == 1)
        return x[0];
    fxi_context *c = fxi_begin();
    fxi_operand *o = fxi_calloc((size_t)n, sizeof *o);
    fxi_node **in = fxi_malloc((size_t)n * sizeof *in);
    bool ok = o && in;
    for (int i = 0; i < n && ok; i++) {
        o[i].node = x[i]->node;
        ok = fxi_operand_convert(&o[i], type);
        in[i] = o[i].node;
    }
    const fx_attr a = {.axis = axis};
    fxi_node *r =
        ok ? fxi_node_new(c, FX_OP_CONCAT, type, x[0]->node->ndim, shape, device, &a, n, in) : NULL;
    if (o)
        fxi_operands_release(o, n);
    fxi_free(o);
    fxi_free(in);
    if (!ok)
        fx_fail(FX_STATUS_MEMORY, "concat", "no memory for %d parts", n);
    return fxi_array_take(r);
}

/* ---- gradients ------------------------------------------------------------------------------- */

fx_array *fxi_reshaped_like(fx_array *y, const fx_array *x)
{
    return fx_is_error(x) ? y : fxi_reshape(y, x->node->ndim, x->node->shape);
}

RULE(RESHAPE)
{
    a->gx[0] = fxi_reshape(G, a->node->in[0]->ndim, a->node->in[0]->shape);
}

RULE(PERMUTE)
{
    int64_t inverse[FX_MAX_DIMS];
    for (int i = 0; i < a->node->ndim; i++)
        inverse[a->node->attr.permutation[i]] = i;
    a->gx[0] = fxi_permute(G, a->node->ndim, inverse);
}

/* Sums g over the axes of mask. If g is a negation, the smaller sum is negated instead: the same
 * numbers for less work. */
static fx_array *summed(fx_array *g, unsigned mask)
{
    if (!fxi_array_ok(g) || g->node->data || g->node->op != FX_OP_NEG)
        return fxi_reduce(FX_REDUCE_SUM, g, mask, "sum");
    return fx_neg(fxi_reduce(FX_REDUCE_SUM, fxi_array_of(g->node->in[0]), mask, "sum"));
}

RULE(EXPAND)
{
    unsigned mask = 0;
    for (int i = 0; i < a->node->ndim; i++)
        if (a->node->in[0]->shape[i] != a->node->shape[i])
            mask |= FXI_AXIS_BIT(i);
    a->gx[0] = summed(G, mask);
}

/* Writes the gradient back to the positions of the elements, with zeros between them. The array is
 * seen as (inner, n, outer); a step of k pads n to k×n with zeros in a new axis. A step of 0
 * repeats one element. fx_slice_step sets the step of slices of 0 or 1 elements to 1. */
RULE(SLICE)
{
    const fxi_node *x = a->node->in[0];
    const int axis = (int)a->node->attr.slice.axis;
    int64_t start = a->node->attr.slice.start, step = a->node->attr.slice.step, inner = 1,
            outer = 1;
    int64_t n = a->node->shape[axis];
    const int64_t size = x->shape[axis];
    fx_array *g = G;
    if (step == 0) {
        g = fxi_reduce(FX_REDUCE_SUM, g, FXI_AXIS_BIT(axis), "sum");
        step = n = 1;
    }
    if (step == 1) {
        a->gx[0] = fx_pad(g, axis, start, size - start - n, 0);
        return;
    }
    for (int i = 0; i < x->ndim; i++)
        *(i < axis ? &inner : &outer) *= i == axis ? 1 : x->shape[i];
    if (step < 0) {
        g = fx_slice_step(g, axis, n - 1, -1, n);
        start += step * (n - 1);
        step = -step;
    }
    g = fx_pad(fx_reshape(g, inner, 1, n, outer), 1, 0, step - 1, 0);
    g = fx_pad(fx_reshape(g, inner, step * n, outer), 1, start, size - start - step * n, 0);
    a->gx[0] = fxi_reshaped_like(g, X);
}

RULE(PAD)
{
    const int axis = (int)a->node->attr.pad.axis;
    const int64_t before = a->node->attr.pad.before;
    a->gx[0] = fx_slice(G, axis, before, before + a->node->in[0]->shape[axis]);
}

RULE(CONCAT)
{
    const int axis = (int)a->node->attr.axis;
    int64_t at = 0;
    for (int i = 0; i < a->node->nin; i++) {
        const int64_t n = a->node->in[i]->shape[axis];
        if (a->need[i])
            a->gx[i] = fx_slice(G, axis, at, at + n);
        at += n;
    }
}

/* Moves g to the device of `to`. */
static fx_array *moved_back(const fxi_node *to, fx_array *g)
{
    fx_device *device = to->device ? to->device : fx_cpu_device();
    return g->node->device == device ? g : fxi_transfer(device, g);
}

/* A value that belongs to no device is computed wherever it is used. A gradient goes back to the
 * device that the value was moved from. It ignores moves that the evaluation added by itself
 * (transfer.unasked), because those depend on what was evaluated before. */
RULE(TRANSFER)
{
    const bool anywhere = fx_is_error(G) || !G->node->device || a->node->attr.transfer.unasked;
    a->gx[0] = anywhere ? G : moved_back(a->node->in[0], G);
}
