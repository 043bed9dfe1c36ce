/* onnx_window.c: ONNX convolutions and pooling.
 *
 * ONNX lists spatial attributes in NumPy's order, and pads as all begins, then all ends; ours are
 * reversed, and pads go (before, after) per axis. ONNX computes cross-correlations: `.flipped`.
 * Padding that auto_pad or ceil_mode asks for is worked out here. The indices of MaxPool are the
 * argmax over the shifted slices that make up the windows, turned into positions in the whole
 * array.
 */
#include "onnx_case.h"

#include <string.h>

typedef struct window {
    int nd; /* spatial axes */
    fx_dims kernel, stride, dilation;
    fx_dims pad;                /* (before, after) per axis, as asked for */
    int64_t extra[FX_MAX_DIMS]; /* padding after it that only ceil_mode asks for */
    bool more;                  /* any extra */
} window;

/* An attribute of one number per spatial axis in our order. */
static fx_dims spatial(const onnx_node *n, const char *attr, int nd, int64_t otherwise)
{
    int64_t v[FX_MAX_DIMS];
    fx_dims d = {.n = nd};
    const int count = onnx_ints(n, attr, FX_MAX_DIMS, v);
    for (int i = 0; i < nd; i++)
        d.v[i] = count == nd ? v[nd - 1 - i] : otherwise;
    return d;
}

static int64_t reach(const window *w, int i)
{
    return (w->kernel.v[i] - 1) * w->dilation.v[i] + 1;
}

/* SAME: ⌈size/stride⌉ results; an odd element goes after for UPPER, before for LOWER. */
static void pad_same(window *w, const fx_array *x, bool lower)
{
    for (int i = 0; i < w->nd; i++) {
        const int64_t size = fx_size(x, i), stride = w->stride.v[i],
                      results = (size + stride - 1) / stride;
        int64_t total = (results - 1) * stride + reach(w, i) - size;
        total = total > 0 ? total : 0;
        w->pad.v[2 * i] = lower ? total - total / 2 : total / 2;
        w->pad.v[2 * i + 1] = total - w->pad.v[2 * i];
    }
}

/* Rounds the number of windows up, but none may start beyond the array and its left padding. */
static void pad_ceil(window *w, const fx_array *x)
{
    for (int i = 0; i < w->nd; i++) {
        const int64_t before = w->pad.v[2 * i], after = w->pad.v[2 * i + 1], size = fx_size(x, i),
                      stride = w->stride.v[i];
        int64_t results = (size + before + after - reach(w, i) + stride - 1) / stride + 1;
        results -= (results - 1) * stride >= size + before;
        const int64_t missing = (results - 1) * stride + reach(w, i) - size - before - after;
        w->extra[i] = missing > 0 ? missing : 0;
        w->more = w->more || missing > 0;
    }
}

static window read_window(const onnx_node *n, const fx_array *x, fx_dims kernel)
{
    window w = {.nd = fx_ndims(x) - 2, .kernel = kernel};
    int64_t pads[2 * FX_MAX_DIMS];
    w.stride = spatial(n, "strides", w.nd, 1);
    w.dilation = spatial(n, "dilations", w.nd, 1);
    w.pad.n = 2 * w.nd;
    const bool given = onnx_ints(n, "pads", 2 * FX_MAX_DIMS, pads) == 2 * w.nd;
    for (int i = 0; given && i < w.nd; i++) {
        w.pad.v[2 * i] = pads[w.nd - 1 - i];
        w.pad.v[2 * i + 1] = pads[2 * w.nd - 1 - i];
    }
    if (!strncmp(onnx_text(n, "auto_pad", "NOTSET"), "SAME", 4))
        pad_same(&w, x, strcmp(onnx_text(n, "auto_pad", ""), "SAME_LOWER") == 0);
    if (onnx_int(n, "ceil_mode", 0))
        pad_ceil(&w, x);
    return w;
}

static fx_dims all_pads(const window *w)
{
    fx_dims d = w->pad;
    for (int i = 0; i < w->nd; i++)
        d.v[2 * i + 1] += w->extra[i];
    return d;
}

/* The size of the kernel is that of the weights; the attribute repeats it. */
static fx_dims kernel_of(onnx_node *n)
{
    const fx_array *w = n->in[1];
    fx_dims d = {.n = fx_ndims(w) - 2};
    const fx_dims said = spatial(n, "kernel_shape", (int)d.n, 0);
    for (int i = 0; i < d.n; i++) {
        d.v[i] = fx_size(w, i);
        if (onnx_has(n, "kernel_shape") && said.v[i] != d.v[i])
            n->variant = "kernel_shape unlike the weights";
    }
    return d;
}

static fx_array *add_bias(const onnx_node *n, fx_array *y)
{
    return n->nin > 2 && n->in[2] ? fx_add(y, np_channels(n->in[2], y)) : y;
}

/* ---- convolution ----------------------------------------------------------------------------- */
static void op_conv(onnx_node *n)
{
    fx_array *x = n->in[0];
    const window w = read_window(n, x, kernel_of(n));
    n->out[0] = add_bias(n, fx_convolve(x, n->in[1], .stride = w.stride, .pad = w.pad,
                                        .dilation = w.dilation, .groups = onnx_int(n, "group", 1),
                                        .flipped = true));
}

/* With output_shape or SAME the size of the result is given: a smaller result gets output padding,
 * a larger one is cut. */
static void fix_size(const onnx_node *n, const fx_array *x, window *w, fx_dims *outpad)
{
    int64_t want[FX_MAX_DIMS];
    const char *mode = onnx_text(n, "auto_pad", "NOTSET");
    const bool given = onnx_ints(n, "output_shape", FX_MAX_DIMS, want) == w->nd,
               same = !strncmp(mode, "SAME", 4);
    for (int i = 0; (given || same) && i < w->nd; i++) {
        const int64_t size = fx_size(x, i), stride = w->stride.v[i];
        const int64_t target = given ? want[w->nd - 1 - i] : size * stride;
        const int64_t total = stride * (size - 1) + outpad->v[i] + reach(w, i) - target;
        const int64_t cut = total > 0 ? total : 0;
        w->pad.v[2 * i] = strcmp(mode, "SAME_UPPER") ? cut - cut / 2 : cut / 2;
        w->pad.v[2 * i + 1] = cut - w->pad.v[2 * i];
        outpad->v[i] += total < 0 ? -total : 0;
    }
}

static void op_conv_transpose(onnx_node *n)
{
    fx_array *x = n->in[0];
    window w = read_window(n, x, kernel_of(n));
    fx_dims outpad = spatial(n, "output_padding", w.nd, 0);
    fix_size(n, x, &w, &outpad);
    n->out[0] = add_bias(n, fx_convolve_transposed(x, n->in[1], .stride = w.stride, .pad = w.pad,
                                                   .dilation = w.dilation,
                                                   .groups = onnx_int(n, "group", 1),
                                                   .flipped = true, .outpad = outpad));
}

/* ---- mean and norm pooling ------------------------------------------------------------------- */
static void op_averagepool(onnx_node *n)
{
    fx_array *x = n->in[0];
    const int nd = fx_ndims(x) - 2;
    const bool count_pad = onnx_int(n, "count_include_pad", 0) != 0;
    window w = read_window(n, x, spatial(n, "kernel_shape", nd, 1));
    if (count_pad && w.more) { /* the mean counts requested padding, but not that of ceil_mode */
        for (int i = 0; i < nd; i++) {
            x = fx_pad(x, i, w.pad.v[2 * i], w.pad.v[2 * i + 1], 0);
            w.pad.v[2 * i] = w.pad.v[2 * i + 1] = 0;
        }
    }
    n->out[0] = fx_pool_mean(x, w.kernel, .pad = all_pads(&w), .stride = w.stride,
                             .dilation = w.dilation, .exclude_pad = !count_pad || w.more);
}

static void op_lppool(onnx_node *n)
{
    fx_array *x = n->in[0];
    const window w = read_window(n, x, spatial(n, "kernel_shape", fx_ndims(x) - 2, 1));
    n->out[0] = fx_pool_lpnorm(x, w.kernel, .pad = all_pads(&w), .stride = w.stride,
                               .dilation = w.dilation, .p = (double)onnx_int(n, "p", 2));
}

static void op_global_average(onnx_node *n)
{
    n->out[0] = fx_call(fx_globalmeanpool(), n->in[0]);
}
static void op_global_max(onnx_node *n)
{
    n->out[0] = fx_call(fx_globalmaxpool(), n->in[0]);
}

/* ---- max pooling ----------------------------------------------------------------------------- */
/* The element at `offset` within each window, for all windows: a strided slice of the padded array.
 */
static fx_array *window_slice(fx_array *padded, const window *w, fx_array *y, const int64_t *offset)
{
    for (int i = 0; i < w->nd; i++)
        padded =
            fx_slice_step(padded, i, offset[i] * w->dilation.v[i], w->stride.v[i], fx_size(y, i));
    return padded;
}

/* Which element of the window, counted with our first axis fastest. */
static fx_array *winner(fx_array *x, const window *w, fx_array *y)
{
    enum { MAX_ELEMENTS = 512 };
    static fx_array *parts[MAX_ELEMENTS];
    const fx_dims pads = all_pads(w);
    for (int i = 0; i < w->nd; i++)
        x = fx_pad(x, i, pads.v[2 * i], pads.v[2 * i + 1], -(double)__builtin_inff());
    int64_t offset[FX_MAX_DIMS] = {0};
    int count = 0;
    for (bool done = false; !done && count < MAX_ELEMENTS;) {
        parts[count++] = window_slice(x, w, y, offset);
        int i = 0;
        while (i < w->nd && ++offset[i] == w->kernel.v[i])
            offset[i++] = 0;
        done = i == w->nd;
    }
    return fx_argmax(fxi_stack(0, count, parts), .dims = FX_AXES(0), .drop = true);
}

/* Position in the whole array: each winner's coordinates, weighted by strides. storage_order 1
 * counts the first spatial NumPy axis fastest. */
static fx_array *positions(const onnx_node *n, const window *w, fx_array *y)
{
    fx_array *x = n->in[0], *which = winner(x, w, y), *sum = NULL;
    const bool column_major = onnx_int(n, "storage_order", 0) != 0;
    const int rank = fx_ndims(x);
    int64_t weight[FX_MAX_DIMS], step = 1;
    for (int i = 0; i < rank; i++) {
        const int axis = column_major && i < w->nd ? w->nd - 1 - i : i;
        weight[axis] = step;
        step *= fx_size(x, axis);
    }
    for (int i = 0; i < rank; i++) {
        fx_array *at = np_iota(FX_DTYPE_I64, fx_size(y, i), i, rank);
        if (i < w->nd) {
            fx_array *offset = fx_mul(fx_mod(which, w->kernel.v[i]), w->dilation.v[i]);
            at = fx_sub(fx_add(fx_mul(at, w->stride.v[i]), offset), w->pad.v[2 * i]);
            which = fx_fld(which, w->kernel.v[i]);
        }
        at = fx_mul(at, weight[i]);
        sum = sum ? fx_add(sum, at) : at;
    }
    return sum;
}

static void op_maxpool(onnx_node *n)
{
    fx_array *x = n->in[0];
    const window w = read_window(n, x, spatial(n, "kernel_shape", fx_ndims(x) - 2, 1));
    n->out[0] =
        fx_pool_max(x, w.kernel, .pad = all_pads(&w), .stride = w.stride, .dilation = w.dilation);
    if (n->nout > 1)
        n->out[1] = positions(n, &w, n->out[0]);
}

/* Indices are positions in the array that MaxPool would have read; a larger output_shape adds
 * padding after it. */
static void op_maxunpool(onnx_node *n)
{
    fx_array *x = n->in[0];
    const window w = read_window(n, x, spatial(n, "kernel_shape", fx_ndims(x) - 2, 1));
    int64_t sizes[FX_MAX_DIMS], want[FX_MAX_DIMS], total = 1;
    const int rank = fx_ndims(x);
    for (int i = 0; i < rank; i++) {
        sizes[i] = fx_size(x, i);
        if (i < w.nd)
            sizes[i] =
                (sizes[i] - 1) * w.stride.v[i] + reach(&w, i) - w.pad.v[2 * i] - w.pad.v[2 * i + 1];
        total *= sizes[i];
    }
    fx_array *y = fx_scatter(FX_REDUCE_SUM, fx_vec(x), fx_vec(n->in[1]), 0, total);
    y = fxi_reshape(y, rank, sizes);
    const bool given =
        n->nin > 2 && n->in[2] && onnx_read_ints(n->in[2], FX_MAX_DIMS, want) == rank;
    for (int i = 0; given && i < w.nd; i++)
        y = fx_pad(y, i, 0, want[rank - 1 - i] - sizes[i], 0);
    n->out[0] = y;
}

/* Nearest neighbour by whole factors: each element repeated. */
static void op_upsample(onnx_node *n)
{
    fx_array *x = n->in[0];
    const int rank = fx_ndims(x);
    const cJSON *scales = gold_list(n->attrs, "scales");
    if (strcmp(onnx_text(n, "mode", "nearest"), "nearest") != 0) {
        n->variant = "linear";
        return;
    }
    for (int a = 0; a < rank; a++) {
        const double s =
            n->nin > 1 ? fx_at(n->in[1], a) : cJSON_GetArrayItem(scales, a)->valuedouble;
        if (s != (double)(int64_t)s)
            n->variant = "linear";
        else if (s != 1)
            x = fx_repeat_inner(x, rank - 1 - a, (int64_t)s);
    }
    n->out[0] = x;
}

#define RUN(Name, f)                                                                               \
    {                                                                                              \
        Name, GOLD_POINTWISE, f, NULL, NULL                                                        \
    }
#define SUM(Name, f)                                                                               \
    {                                                                                              \
        Name, GOLD_CONTRACTION, f, NULL, NULL                                                      \
    }
const onnx_op onnx_window_ops[] = {
    RUN("GlobalMaxPool", op_global_max),
    RUN("MaxPool", op_maxpool),
    RUN("MaxUnpool", op_maxunpool),
    RUN("Upsample", op_upsample),
    SUM("AveragePool", op_averagepool),
    SUM("Conv", op_conv),
    SUM("ConvTranspose", op_conv_transpose),
    SUM("GlobalAveragePool", op_global_average),
    SUM("LpPool", op_lppool),
    {NULL, GOLD_POINTWISE, NULL, NULL, NULL},
};
