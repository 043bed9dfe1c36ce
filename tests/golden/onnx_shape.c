/* onnx_shape.c: ONNX operators that move, join, cut or make arrays, and matrix products.
 *
 * Attributes that later opsets turned into inputs (axes, pads, split, repeats) are read from either
 * place. Inputs that decide a shape are read on the host: shapes never depend on data in cflux.
 */
#include "onnx_case.h"

#include <stdlib.h>
#include <string.h>

/* ---- reshaping ------------------------------------------------------------------------------- */
static void op_reshape(onnx_node *n)
{
    fx_array *x = n->in[0];
    int64_t sizes[FX_MAX_DIMS];
    const int rank = onnx_ints_of(n, 1, "shape", FX_MAX_DIMS, sizes);
    const bool keep_zero = onnx_int(n, "allowzero", 0) != 0;
    for (int i = 0; i < rank; i++)
        if (sizes[i] == 0 && !keep_zero)
            sizes[i] = np_size(x, i);
    n->out[0] = np_reshape(x, rank, sizes);
}

static void op_flatten(onnx_node *n)
{
    fx_array *x = n->in[0];
    int64_t shape[FX_MAX_DIMS], sizes[2] = {1, 1};
    const int rank = np_shape(x, shape);
    int64_t axis = onnx_int(n, "axis", 1);
    axis += axis < 0 ? rank : 0;
    for (int i = 0; i < rank; i++)
        sizes[i >= axis] *= shape[i];
    n->out[0] = np_reshape(x, 2, sizes);
}

static void op_squeeze(onnx_node *n)
{
    fx_array *x = n->in[0];
    int64_t axes[FX_MAX_DIMS];
    const int count = onnx_ints_of(n, 1, "axes", FX_MAX_DIMS, axes);
    unsigned mask = 0;
    for (int i = 0; i < fx_ndims(x); i++)
        mask |= fx_size(x, i) == 1 ? 1u << (unsigned)i : 0;
    n->out[0] = fx_squeeze(x, FXI_AXES(count > 0 ? np_axes(x, count, axes) : mask));
}

static void op_unsqueeze(onnx_node *n)
{
    fx_array *x = n->in[0];
    int64_t axes[FX_MAX_DIMS];
    const int count = onnx_ints_of(n, 1, "axes", FX_MAX_DIMS, axes), rank = fx_ndims(x) + count;
    unsigned fresh = 0;
    for (int i = 0; i < count; i++)
        fresh |= 1u << (unsigned)(axes[i] < 0 ? -axes[i] - 1 : rank - 1 - axes[i]);
    for (int a = 0; a < rank; a++)
        if (fresh >> a & 1)
            x = fx_unsqueeze(x, a);
    n->out[0] = x;
}

static void op_transpose(onnx_node *n)
{
    fx_array *x = n->in[0];
    int64_t perm[FX_MAX_DIMS];
    const int rank = fx_ndims(x);
    if (onnx_ints(n, "perm", FX_MAX_DIMS, perm) < 0)
        for (int i = 0; i < rank; i++)
            perm[i] = rank - 1 - i;
    n->out[0] = np_transpose(x, rank, perm);
}

static void op_expand(onnx_node *n)
{
    fx_array *x = n->in[0];
    int64_t want[FX_MAX_DIMS], ours[FX_MAX_DIMS];
    const int given = onnx_ints_of(n, 1, "shape", FX_MAX_DIMS, want), rank = fx_ndims(x);
    const int total = given > rank ? given : rank;
    for (int i = 0; i < total; i++) {
        ours[i] = i < given ? want[given - 1 - i] : 1;
        ours[i] = ours[i] == 1 ? fx_size(x, i) : ours[i];
    }
    n->out[0] = fxi_expand(x, total, ours);
}

static void op_tile(onnx_node *n)
{
    int64_t counts[FX_MAX_DIMS], ours[FX_MAX_DIMS];
    const int rank = onnx_ints_of(n, 1, "repeats", FX_MAX_DIMS, counts);
    for (int i = 0; i < rank; i++)
        ours[i] = counts[rank - 1 - i];
    n->out[0] = fxi_repeat(n->in[0], rank, ours);
}

/* DCR: the block's two axes are the slowest part of the channels; CRD: the fastest. */
static void op_depth_to_space(onnx_node *n)
{
    static const int64_t dcr[] = {0, 3, 4, 1, 5, 2}, crd[] = {0, 1, 4, 2, 5, 3};
    fx_array *x = n->in[0];
    int64_t s[FX_MAX_DIMS];
    np_shape(x, s);
    const int64_t b = onnx_int(n, "blocksize", 1), c = s[1] / (b * b);
    const bool is_crd = !strcmp(onnx_text(n, "mode", "DCR"), "CRD");
    const int64_t split_dcr[] = {s[0], b, b, c, s[2], s[3]},
                  split_crd[] = {s[0], c, b, b, s[2], s[3]};
    const int64_t joined[] = {s[0], c, s[2] * b, s[3] * b};
    x = np_reshape(x, 6, is_crd ? split_crd : split_dcr);
    n->out[0] = np_reshape(np_transpose(x, 6, is_crd ? crd : dcr), 4, joined);
}

static void op_space_to_depth(onnx_node *n)
{
    static const int64_t perm[] = {0, 3, 5, 1, 2, 4};
    fx_array *x = n->in[0];
    int64_t s[FX_MAX_DIMS];
    np_shape(x, s);
    const int64_t b = onnx_int(n, "blocksize", 1);
    const int64_t split[] = {s[0], s[1], s[2] / b, b, s[3] / b, b},
                  joined[] = {s[0], s[1] * b * b, s[2] / b, s[3] / b};
    n->out[0] = np_reshape(np_transpose(np_reshape(x, 6, split), 6, perm), 4, joined);
}

/* ---- joining and cutting --------------------------------------------------------------------- */
static void op_concat(onnx_node *n)
{
    n->out[0] = fxi_concat(np_axis(n->in[0], onnx_int(n, "axis", 1)), n->nin, n->in);
}

static void op_split(onnx_node *n)
{
    fx_array *x = n->in[0];
    int64_t parts[ONNX_MAX_ARGS];
    const int axis = np_axis(x, onnx_int(n, "axis", 0));
    const int64_t size = fx_size(x, axis), each = (size + n->nout - 1) / n->nout;
    if (onnx_ints_of(n, 1, "split", ONNX_MAX_ARGS, parts) < 0)
        for (int i = 0; i < n->nout; i++)
            parts[i] = i + 1 < n->nout ? each : size - each * i;
    int64_t at = 0;
    for (int i = 0; i < n->nout; i++) {
        n->out[i] = fx_slice(x, axis, at, at + parts[i]);
        at += parts[i];
    }
}

static int64_t clamp_to(int64_t v, int64_t lo, int64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* NumPy's slice of one axis; bounds beyond the array are cut. */
static fx_array *slice_axis(fx_array *x, int axis, int64_t start, int64_t stop, int64_t step)
{
    const int64_t size = fx_size(x, axis);
    start =
        clamp_to(start < 0 ? start + size : start, step < 0 ? -1 : 0, step < 0 ? size - 1 : size);
    stop = clamp_to(stop < 0 && stop > -(INT64_C(1) << 31) ? stop + size : stop, step < 0 ? -1 : 0,
                    size);
    const int64_t span = step < 0 ? start - stop : stop - start, stride = step < 0 ? -step : step;
    const int64_t count = span > 0 ? (span + stride - 1) / stride : 0;
    return count ? fx_slice_step(x, axis, start, step, count) : fx_slice(x, axis, 0, 0);
}

static void op_slice(onnx_node *n)
{
    fx_array *x = n->in[0];
    int64_t starts[FX_MAX_DIMS], stops[FX_MAX_DIMS], axes[FX_MAX_DIMS], steps[FX_MAX_DIMS];
    const int count = onnx_ints_of(n, 1, "starts", FX_MAX_DIMS, starts);
    onnx_ints_of(n, 2, "ends", FX_MAX_DIMS, stops);
    const bool all_axes = onnx_ints_of(n, 3, "axes", FX_MAX_DIMS, axes) < 0;
    const bool unit_steps = onnx_ints_of(n, 4, "steps", FX_MAX_DIMS, steps) < 0;
    for (int i = 0; i < count; i++)
        x = slice_axis(x, np_axis(n->in[0], all_axes ? i : axes[i]), starts[i], stops[i],
                       unit_steps ? 1 : steps[i]);
    n->out[0] = x;
}

/* ---- padding --------------------------------------------------------------------------------- */
static fx_array *pad_axis(fx_array *x, const char *mode, int axis, int64_t before, int64_t after,
                          double value)
{
    if (!strcmp(mode, "reflect"))
        return fx_pad_reflect(x, axis, before, after);
    if (!strcmp(mode, "edge"))
        return fx_pad_repeat(x, axis, before, after);
    if (!strcmp(mode, "wrap"))
        return fx_pad_circular(x, axis, before, after);
    return fx_pad(x, axis, before, after, value);
}

static void op_pad(onnx_node *n)
{
    fx_array *x = n->in[0];
    int64_t pads[2 * FX_MAX_DIMS], axes[FX_MAX_DIMS];
    const int count = onnx_ints_of(n, 1, "pads", 2 * FX_MAX_DIMS, pads) / 2;
    const double value = n->nin > 2 && n->in[2] ? fx_item(n->in[2]) : onnx_real(n, "value", 0);
    const bool all_axes = onnx_ints_of(n, 3, "axes", FX_MAX_DIMS, axes) < 0;
    for (int i = 0; i < count; i++)
        if (pads[i] || pads[count + i])
            x = pad_axis(x, onnx_text(n, "mode", "constant"), np_axis(x, all_axes ? i : axes[i]),
                         pads[i], pads[count + i], value);
    n->out[0] = x;
}

/* ---- making ---------------------------------------------------------------------------------- */
/* Numbers in nested lists; the outermost list is the first NumPy axis. */
typedef struct constant {
    int ndims;
    int64_t sizes[FX_MAX_DIMS]; /* ours */
    int64_t count, capacity;
    double *data;
    bool whole, ragged;
} constant;

static void read_constant(constant *k, const cJSON *at)
{
    const cJSON *item;
    if (cJSON_IsNumber(at) || cJSON_IsBool(at)) {
        const double v = cJSON_IsBool(at) ? cJSON_IsTrue(at) : at->valuedouble;
        k->whole = k->whole && v == (double)(int64_t)v;
        if (k->count < k->capacity)
            k->data[k->count] = v;
        k->count++;
        return;
    }
    k->ragged = k->ragged || !cJSON_IsArray(at);
    cJSON_ArrayForEach(item, at) read_constant(k, item);
}

static void op_constant(onnx_node *n)
{
    const cJSON *at = cJSON_GetObjectItemCaseSensitive(gold_any(n->attrs, "value"), "tensor");
    constant k = {.whole = true};
    int64_t shape[FX_MAX_DIMS], total = 1;
    for (const cJSON *level = at; cJSON_IsArray(level) && k.ndims < FX_MAX_DIMS;
         level = level->child)
        shape[k.ndims++] = cJSON_GetArraySize(level);
    for (int i = 0; i < k.ndims; i++) {
        k.sizes[i] = shape[k.ndims - 1 - i];
        total *= k.sizes[i];
    }
    k.capacity = total;
    k.data = gold_alloc((size_t)total * sizeof *k.data);
    read_constant(&k, at);
    if (k.ragged || k.count != total) {
        n->variant = "a constant that is not an array of numbers";
    } else {
        fx_array *x = fxi_from(FX_DTYPE_F64, k.data, k.ndims, k.sizes);
        n->out[0] = fx_cast(x, k.whole ? FX_DTYPE_I64 : FX_DTYPE_F32);
        fx_eval(n->out[0]);
    }
    free(k.data);
}

/* Element (row, column) is 1 where column − row = k. */
static void op_eye_like(onnx_node *n)
{
    fx_array *x = n->in[0];
    const fx_dtype dtype =
        onnx_has(n, "dtype") ? onnx_dtype(onnx_int(n, "dtype", 1)) : fx_eltype(x);
    fx_array *column = np_iota(FX_DTYPE_I64, fx_size(x, 0), 0, 2),
             *row = np_iota(FX_DTYPE_I64, fx_size(x, 1), 1, 2);
    n->out[0] = fx_cast(fx_eq(fx_sub(column, row), onnx_int(n, "k", 0)), dtype);
}

/* Our axis 0 is the column: NumPy's upper triangle is our lower one. */
static void op_trilu(onnx_node *n)
{
    const int64_t k = n->nin > 1 && n->in[1] ? (int64_t)fx_item(n->in[1]) : 0;
    n->out[0] = onnx_int(n, "upper", 1) ? fx_tril(n->in[0], -k) : fx_triu(n->in[0], -k);
}

static fx_array *ints(int count, const int64_t *values)
{
    const int64_t size = count;
    return fxi_from(FX_DTYPE_I64, values, 1, &size);
}

static void op_shape(onnx_node *n)
{
    int64_t sizes[FX_MAX_DIMS];
    const int rank = np_shape(n->in[0], sizes);
    int64_t start = onnx_int(n, "start", 0), end = onnx_int(n, "end", rank);
    start = clamp_to(start < 0 ? start + rank : start, 0, rank);
    end = clamp_to(end < 0 ? end + rank : end, start, rank);
    n->out[0] = ints((int)(end - start), sizes + start);
}

static void op_size(onnx_node *n)
{
    const int64_t count = fx_length(n->in[0]);
    n->out[0] = fxi_from(FX_DTYPE_I64, &count, 0, NULL);
}

static void op_range(onnx_node *n)
{
    const double start = fx_item(n->in[0]), limit = fx_item(n->in[1]), delta = fx_item(n->in[2]);
    int64_t count = 0;
    while ((delta > 0 && start + (double)count * delta < limit) ||
           (delta < 0 && start + (double)count * delta > limit))
        count++;
    n->out[0] = fx_range_dtype(fx_eltype(n->in[0]), start, delta, count);
}

/* ---- matrix products ------------------------------------------------------------------------- */
static void op_matmul(onnx_node *n)
{
    fx_array *a = n->in[0], *b = n->in[1];
    if (fx_ndims(a) <= 2 && fx_ndims(b) == 2)
        n->out[0] = fx_matmul(b, a);
    else if (fx_ndims(a) == 2 && fx_ndims(b) == 1)
        n->out[0] = fx_matmul(fx_transpose(a), b);
    else if (fx_ndims(a) == 1 && fx_ndims(b) == 1)
        n->out[0] = fx_sum(fx_mul(a, b));
    else if (fx_ndims(a) == 1)
        n->out[0] = fx_squeeze(fx_batched_mul(b, fx_unsqueeze(a, 1)), FX_AXES(1));
    else if (fx_ndims(b) == 1)
        n->out[0] = fx_squeeze(fx_batched_mul(fx_unsqueeze(b, 0), a), FX_AXES(0));
    else
        n->out[0] = fx_batched_mul(b, a);
}

static void op_gemm(onnx_node *n)
{
    fx_array *a = n->in[0], *b = n->in[1];
    a = onnx_int(n, "transA", 0) ? fx_transpose(a) : a;
    b = onnx_int(n, "transB", 0) ? fx_transpose(b) : b;
    fx_array *y = fx_mul(onnx_real(n, "alpha", 1), fx_matmul(b, a));
    onnx_ignore(n, "broadcast"); /* the sizes show whether it is set */
    if (n->nin > 2 && n->in[2])
        y = fx_add(y, fx_mul(onnx_real(n, "beta", 1), n->in[2]));
    n->out[0] = y;
}

/* ---- Einstein sums --------------------------------------------------------------------------- */
/*
 * Each operand is brought to one axis per label (output labels first, then those summed over),
 * repeated labels by a mask on the diagonal; the operands are multiplied and the rest is summed.
 * Axes under an ellipsis get the labels '0', '1', … counted from the right. */
typedef struct labels {
    int n;
    char of[FX_MAX_DIMS + 1];
} labels;

static const char *parse_labels(const char *at, int rank, labels *out)
{
    int named = 0;
    out->n = 0;
    for (const char *p = at; *p && *p != ',' && *p != '-'; p++)
        named += *p != ' ' && *p != '.';
    for (; *at && *at != ',' && *at != '-'; at++) {
        if (!strncmp(at, "...", 3)) {
            for (int i = rank - named - 1; i >= 0 && out->n < FX_MAX_DIMS; i--)
                out->of[out->n++] = (char)('0' + i);
            at += 2;
        } else if (*at != ' ' && out->n < FX_MAX_DIMS) {
            out->of[out->n++] = *at;
        }
    }
    return at;
}

static int label_index(const labels *l, char c)
{
    for (int i = 0; i < l->n; i++)
        if (l->of[i] == c)
            return i;
    return -1;
}

static fx_array *take_diagonal(fx_array *x, labels *l, int first, int second)
{
    const int a = np_axis(x, first), b = np_axis(x, second), rank = fx_ndims(x);
    fx_array *mask = fx_eq(np_iota(FX_DTYPE_I64, fx_size(x, a), a, rank),
                           np_iota(FX_DTYPE_I64, fx_size(x, b), b, rank));
    memmove(l->of + second, l->of + second + 1, (size_t)(l->n - second - 1));
    l->n--;
    return fx_sum(fx_where(mask, x, 0), .dims = FX_AXES(b), .drop = true);
}

static fx_array *align(fx_array *x, labels l, const labels *all)
{
    int64_t perm[FX_MAX_DIMS], sizes[FX_MAX_DIMS];
    for (int i = 0; i < l.n; i++)
        for (int j = l.n - 1; j > i; j--)
            if (l.of[i] == l.of[j])
                x = take_diagonal(x, &l, i, j);
    int used = 0;
    for (int i = 0; i < all->n; i++) {
        const int at = label_index(&l, all->of[i]);
        sizes[i] = at < 0 ? 1 : np_size(x, at);
        if (at >= 0)
            perm[used++] = at;
    }
    return np_reshape(np_transpose(x, used, perm), all->n, sizes);
}

/* Without "->": the labels that occur once, in alphabetical order, the ellipsis' first. */
static void implied_output(const labels *in, int n, labels *out)
{
    out->n = 0;
    for (int c = '0'; c <= 'z'; c++) {
        int count = 0;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < in[i].n; j++)
                count += in[i].of[j] == c;
        if (out->n < FX_MAX_DIMS && (count == 1 || (count && c <= '7')))
            out->of[out->n++] = (char)c;
    }
}

static void op_einsum(onnx_node *n)
{
    labels in[ONNX_MAX_ARGS], out, all;
    const char *at = onnx_text(n, "equation", "");
    int widest = 0;
    for (int i = 0; i < n->nin; i++) {
        at = parse_labels(at, fx_ndims(n->in[i]), &in[i]);
        at += *at == ',';
        for (int j = 0; j < in[i].n; j++)
            if (in[i].of[j] >= '0' && in[i].of[j] <= '7' && in[i].of[j] - '0' + 1 > widest)
                widest = in[i].of[j] - '0' + 1;
    }
    if (!strncmp(at, "->", 2)) {
        int named = 0;
        for (const char *p = at + 2; *p; p++)
            named += *p != ' ' && *p != '.';
        parse_labels(at + 2, named + widest, &out);
    } else {
        implied_output(in, n->nin, &out);
    }
    all = out;
    for (int i = 0; i < n->nin; i++)
        for (int j = 0; j < in[i].n; j++)
            if (label_index(&all, in[i].of[j]) < 0 && all.n < FX_MAX_DIMS)
                all.of[all.n++] = in[i].of[j];
    fx_array *y = align(n->in[0], in[0], &all);
    for (int i = 1; i < n->nin; i++)
        y = fx_mul(y, align(n->in[i], in[i], &all));
    const int summed = all.n - out.n;
    n->out[0] =
        summed ? fx_sum(y, .dims = FXI_AXES((1u << (unsigned)summed) - 1u), .drop = true) : y;
}

#define RUN(Name, f)                                                                               \
    {                                                                                              \
        Name, GOLD_POINTWISE, f, NULL, NULL                                                        \
    }
#define PRODUCT(Name, f)                                                                           \
    {                                                                                              \
        Name, GOLD_CONTRACTION, f, NULL, NULL                                                      \
    }
const onnx_op onnx_shape_ops[] = {
    RUN("Concat", op_concat),
    RUN("Constant", op_constant),
    RUN("DepthToSpace", op_depth_to_space),
    RUN("Expand", op_expand),
    RUN("EyeLike", op_eye_like),
    RUN("Flatten", op_flatten),
    RUN("Pad", op_pad),
    RUN("Range", op_range),
    RUN("Reshape", op_reshape),
    RUN("Shape", op_shape),
    RUN("Size", op_size),
    RUN("Slice", op_slice),
    RUN("SpaceToDepth", op_space_to_depth),
    RUN("Split", op_split),
    RUN("Squeeze", op_squeeze),
    RUN("Tile", op_tile),
    RUN("Transpose", op_transpose),
    RUN("Trilu", op_trilu),
    RUN("Unsqueeze", op_unsqueeze),
    PRODUCT("Einsum", op_einsum),
    PRODUCT("Gemm", op_gemm),
    PRODUCT("MatMul", op_matmul),
    {NULL, GOLD_POINTWISE, NULL, NULL, NULL},
};
