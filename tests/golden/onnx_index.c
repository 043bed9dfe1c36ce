/* onnx_index.c: ONNX operators that gather, scatter and reorder by index arrays.
 *
 * GatherND and ScatterND address slices by index tuples along the leading NumPy axes. Those axes
 * are joined into one and the tuples into numbers along it, so that cflux's one-axis gather and
 * scatter do the work. Negative indices count from the end.
 */
#include "onnx_case.h"

#include <string.h>

static fx_array *wrap_index(fx_array *idx, int64_t size)
{
    return fx_where(fx_lt(idx, 0), fx_add(idx, size), idx);
}

static void op_gather(onnx_node *n)
{
    const int axis = np_axis(n->in[0], onnx_int(n, "axis", 0));
    n->out[0] = fx_gather(n->in[0], wrap_index(n->in[1], fx_size(n->in[0], axis)), axis);
}

static void op_gather_elements(onnx_node *n)
{
    const int axis = np_axis(n->in[0], onnx_int(n, "axis", 0));
    n->out[0] = fx_gather_elements(n->in[0], wrap_index(n->in[1], fx_size(n->in[0], axis)), axis);
}

/* fx_topk of the negative numbers gives the smallest. */
static void op_topk(onnx_node *n)
{
    const bool largest = onnx_int(n, "largest", 1) != 0;
    const int axis = np_axis(n->in[0], onnx_int(n, "axis", -1));
    onnx_int(n, "sorted", 1);
    void *both = fx_topk(largest ? n->in[0] : fx_neg(n->in[0]), (int64_t)fx_at(n->in[1], 0), axis);
    if (fx_is_error(both))
        return;
    n->out[0] = largest ? fx_child(both, 0) : fx_neg(fx_child(both, 0));
    n->out[1] = fx_child(both, 1);
}

/* How values with the same index are combined with each other and with the old value. */
static const struct joining {
    const char *name;
    fx_reduce reduction;
    fx_array *(*join)(fxi_arg, fxi_arg);
} joinings[] = {{"add", FX_REDUCE_SUM, fxi_add},
                {"mul", FX_REDUCE_PROD, fxi_mul},
                {"max", FX_REDUCE_MAX, fxi_max},
                {"min", FX_REDUCE_MIN, fxi_min}};

/* NULL for "none"; an unknown one is a variant. */
static const struct joining *joining_of(onnx_node *n)
{
    const char *name = onnx_text(n, "reduction", "none");
    for (size_t i = 0; i < sizeof joinings / sizeof *joinings; i++)
        if (!strcmp(joinings[i].name, name))
            return &joinings[i];
    if (strcmp(name, "none") != 0)
        n->variant = "reduction";
    return NULL;
}

static fx_array *join(const struct joining *j, fx_array *x, fx_array *scattered)
{
    return j->join(fxi_arg_array(x), fxi_arg_array(scattered));
}

/* The positions that `idx` names along `axis`, counted through all of x. */
static fx_array *positions_in(fx_array *x, fx_array *idx, int axis)
{
    const int rank = fx_ndims(x);
    fx_array *sum = NULL;
    int64_t step = 1;
    for (int i = 0; i < rank; i++) {
        fx_array *at = i == axis ? idx : np_iota(FX_DTYPE_I64, fx_size(idx, i), i, rank);
        at = fx_mul(at, step);
        sum = sum ? fx_add(sum, at) : at;
        step *= fx_size(x, i);
    }
    return sum;
}

static void op_scatter_elements(onnx_node *n)
{
    fx_array *x = n->in[0];
    const int axis = np_axis(x, onnx_int(n, "axis", 0));
    fx_array *idx = wrap_index(n->in[1], fx_size(x, axis));
    const struct joining *j = joining_of(n);
    if (!j) {
        n->out[0] = fx_scatter_elements(x, idx, n->in[2], axis);
        return;
    }
    fx_array *numbers = fx_vec(positions_in(x, idx, axis));
    fx_array *y =
        join(j, fx_vec(x), fx_scatter(j->reduction, fx_vec(n->in[2]), numbers, 0, fx_length(x)));
    int64_t shape[FX_MAX_DIMS];
    n->out[0] = np_reshape(y, np_shape(x, shape), shape);
}

/* ---- index tuples ---------------------------------------------------------------------------- */
/* x as a matrix rest×lead, where lead are the first `batch + depth` NumPy axes, and the tuples of
 * `idx` (its last NumPy axis, our first) as numbers along lead. */
typedef struct tuple_index {
    fx_array *matrix, *numbers;
    int depth;
    int64_t lead, rest;
} tuple_index;

static tuple_index join_tuples(fx_array *x, fx_array *idx, int batch)
{
    int64_t shape[FX_MAX_DIMS];
    const int rank = np_shape(x, shape), depth = (int)fx_size(idx, 0);
    tuple_index t = {.depth = depth, .lead = 1, .rest = 1};
    for (int i = rank - 1; i >= batch + depth; i--)
        t.rest *= shape[i];
    for (int i = batch + depth - 1; i >= batch; i--) {
        fx_array *part = fx_squeeze(fx_slice(idx, 0, i - batch, i - batch + 1), FX_AXES(0));
        part = fx_mul(wrap_index(part, shape[i]), t.lead);
        t.numbers = t.numbers ? fx_add(t.numbers, part) : part;
        t.lead *= shape[i];
    }
    for (int i = batch - 1; i >= 0; i--) {
        const int axes = fx_ndims(t.numbers);
        fx_array *offset = np_iota(FX_DTYPE_I64, shape[i], axes - 1 - i, axes);
        t.numbers = fx_add(t.numbers, fx_mul(offset, t.lead));
        t.lead *= shape[i];
    }
    t.matrix = fx_reshape(x, t.rest, t.lead);
    return t;
}

static void op_gather_nd(onnx_node *n)
{
    fx_array *x = n->in[0], *idx = n->in[1];
    const int batch = (int)onnx_int(n, "batch_dims", 0);
    const tuple_index t = join_tuples(x, idx, batch);
    fx_array *y = fx_gather(t.matrix, fx_vec(t.numbers), 1);
    int64_t sizes[2 * FX_MAX_DIMS];
    int count = 0;
    for (int i = 0; i < fx_ndims(x) - batch - t.depth; i++)
        sizes[count++] = fx_size(x, i);
    for (int i = 0; i < fx_ndims(t.numbers); i++)
        sizes[count++] = fx_size(t.numbers, i);
    n->out[0] = fxi_reshape(y, count, sizes);
}

static void op_scatter_nd(onnx_node *n)
{
    fx_array *x = n->in[0];
    const tuple_index t = join_tuples(x, n->in[1], 0);
    fx_array *numbers = fx_vec(t.numbers), *y;
    const int64_t count = fx_length(numbers);
    fx_array *updates = fx_reshape(n->in[2], t.rest, count);
    const struct joining *j = joining_of(n);
    if (j)
        y = join(j, t.matrix, fx_scatter(j->reduction, updates, numbers, 1, t.lead));
    else
        y = fx_scatter_elements(t.matrix, fx_expand(fx_reshape(numbers, 1, count), t.rest, count),
                                updates, 1);
    int64_t shape[FX_MAX_DIMS];
    n->out[0] = np_reshape(y, np_shape(x, shape), shape);
}

/* ---- the rest -------------------------------------------------------------------------------- */
static void op_onehot(onnx_node *n)
{
    fx_array *idx = n->in[0];
    const int64_t depth = (int64_t)fx_item(n->in[1]), given = onnx_int(n, "axis", -1);
    const int rank = fx_ndims(idx) + 1, axis = (int)(given < 0 ? -given - 1 : rank - 1 - given);
    fx_array *off = fx_slice(n->in[2], 0, 0, 1), *on = fx_slice(n->in[2], 0, 1, 2);
    fx_array *classes = np_iota(fx_eltype(idx), depth, axis, rank);
    fx_array *hit = fx_eq(fx_unsqueeze(wrap_index(idx, depth), axis), classes);
    n->out[0] = fx_where(hit, fxi_reshape(on, 0, NULL), fxi_reshape(off, 0, NULL));
}

/* Times before a sequence's length come in reverse order, the rest stays. */
static void op_reverse_sequence(onnx_node *n)
{
    fx_array *x = n->in[0];
    int64_t shape[FX_MAX_DIMS], sizes[FX_MAX_DIMS];
    const int rank = np_shape(x, shape), batch = np_axis(x, onnx_int(n, "batch_axis", 1)),
              time = np_axis(x, onnx_int(n, "time_axis", 0));
    for (int i = 0; i < rank; i++)
        sizes[i] = i == batch ? fx_size(x, batch) : 1;
    fx_array *lengths = fxi_reshape(n->in[1], rank, sizes),
             *t = np_iota(FX_DTYPE_I64, fx_size(x, time), time, rank);
    fx_array *idx = fx_where(fx_lt(t, lengths), fx_sub(fx_sub(lengths, 1), t), t);
    for (int i = 0; i < rank; i++)
        sizes[i] = fx_size(x, i);
    n->out[0] = fx_gather_elements(x, fxi_expand(idx, rank, sizes), time);
}

#define RUN(Name, f)                                                                               \
    {                                                                                              \
        Name, GOLD_POINTWISE, f, NULL, NULL                                                        \
    }
const onnx_op onnx_index_ops[] = {
    RUN("Gather", op_gather),
    RUN("GatherElements", op_gather_elements),
    RUN("GatherND", op_gather_nd),
    RUN("OneHot", op_onehot),
    RUN("ReverseSequence", op_reverse_sequence),
    RUN("Scatter", op_scatter_elements),
    RUN("ScatterElements", op_scatter_elements),
    RUN("ScatterND", op_scatter_nd),
    RUN("TopK", op_topk),
    {NULL, GOLD_POINTWISE, NULL, NULL, NULL},
};
