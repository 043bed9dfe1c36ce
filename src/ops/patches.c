/* patches.c: unfold and fold: patches of an image as rows of a matrix, and back.
 *
 * Both know the positions of all patches in the padded image as one array of indices, windows…×
 * kernel…: unfold gathers there, fold adds there.
 */
#include "composites.h"
#include "error.h"
#include "operands.h"
#include "option_struct.h"
#include "windows.h"
#include <cflux/resample.h>

typedef struct patches {
    int spatial;
    bool flipped;
    int32_t kernel[3], stride[3], dilation[3], before[3], after[3];
    int64_t windows[3], padded[3]; /* numbers of windows; sizes of the image with its padding */
    int64_t nwindows, nkernel, npadded;
    int64_t channels, batch;
} patches;

/* Reads the options that unfold and fold share. */
static fx_status read_options(const char *op, const fx_unfold_args *a, patches *p)
{
    fx_status s = fxi_spread(op, "kernel", &a->kernel, p->spatial, 1, p->kernel);
    if (s == FX_OK)
        s = fxi_spread(op, "stride", &a->stride, p->spatial, 1, p->stride);
    if (s == FX_OK)
        s = fxi_spread(op, "dilation", &a->dilation, p->spatial, 1, p->dilation);
    if (s == FX_OK)
        s = fxi_spread_pad(op, &a->pad, p->spatial, p->before, p->after);
    p->flipped = a->flipped;
    return s;
}

/* Counts windows in an image of these sizes. */
static fx_status count_windows(const char *op, const int64_t *sizes, patches *p)
{
    char t[FXI_SHAPE_TEXT], u[FXI_SHAPE_TEXT];
    int64_t kernel[3];
    bool fits = true;
    p->nwindows = p->nkernel = p->npadded = 1;
    for (int i = 0; i < p->spatial; i++) {
        kernel[i] = p->kernel[i];
        p->windows[i] = fxi_window_count(sizes[i], p->kernel[i], p->stride[i], p->before[i],
                                         p->after[i], p->dilation[i]);
        p->padded[i] = fxi_add_sizes(fxi_add_sizes(sizes[i], p->before[i]), p->after[i]);
        fits = fits && p->windows[i] >= 0 &&
               fxi_mul_i64(p->nwindows, p->windows[i], &p->nwindows) &&
               fxi_mul_i64(p->nkernel, kernel[i], &p->nkernel) &&
               fxi_mul_i64(p->npadded, p->padded[i], &p->npadded);
    }
    return fits ? FX_OK
                : fx_fail(FX_STATUS_SHAPE, op, "a patch of %s does not fit into %s",
                          fxi_shape_text(p->spatial, kernel, t),
                          fxi_shape_text(p->spatial, sizes, u));
}

/* start, start + step, … along axis `axis` of an array with `rank` axes. */
static fx_array *range_along(double start, double step, int64_t n, int axis, int rank)
{
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < rank; i++)
        sizes[i] = i == axis ? n : 1;
    return fxi_reshape(fx_range_dtype(FX_DTYPE_I64, start, step, n), rank, sizes);
}

/* The index in the padded image of every element of every patch: windows…×kernel…. */
static fx_array *indices(const patches *p)
{
    fx_array *sum = NULL;
    const int c = p->spatial;
    int64_t line = 1;
    for (int i = 0; i < c; i++) {
        const double tap = (double)(line * p->dilation[i]), last = (double)(p->kernel[i] - 1);
        fx_array *window = range_along(0, (double)(line * p->stride[i]), p->windows[i], i, 2 * c);
        fx_array *element = range_along(p->flipped ? 0 : last * tap, p->flipped ? tap : -tap,
                                        p->kernel[i], c + i, 2 * c);
        fx_array *both = fx_add(window, element);
        sum = sum ? fx_add(sum, both) : both;
        line *= p->padded[i];
    }
    return sum;
}

static fx_array *unfold(const fx_unfold_args *a)
{
    static const char *const op = "unfold";
    patches p = {.spatial = 0};
    fx_status s = fxi_operand_status(op, a->x);
    if (s != FX_OK)
        return fx_error_array(s);
    p.spatial = fx_ndims(a->x) - 2;
    if (p.spatial < 1 || p.spatial > 3)
        s = fx_fail(FX_STATUS_SHAPE, op,
                    "takes 1 to 3 spatial axes, channels and batch; x has %d axes", p.spatial + 2);
    if (s == FX_OK)
        s = read_options(op, a, &p);
    if (s == FX_OK)
        s = count_windows(op, a->x->node->shape, &p);
    if (s != FX_OK)
        return fx_error_array(s);
    FXI_SCOPE;
    fx_array *x = a->x;
    const int64_t channels = fx_size(x, p.spatial), batch = fx_size(x, p.spatial + 1);
    for (int i = 0; i < p.spatial; i++)
        x = p.before[i] || p.after[i] ? fx_pad(x, i, p.before[i], p.after[i], 0) : x;
    x = fx_gather(fx_reshape(x, p.npadded, channels, batch), indices(&p), 0);
    return fx_keep(fx_reshape(x, p.nwindows, p.nkernel * channels, batch));
}

fx_array *fxi_unfold(const fx_unfold_args *given)
{
    FXI_OPERATION("unfold");
    FXI_TAKE_OPTIONS(fx_unfold_args, FXI_UNFOLD_ARGS, a, "unfold", given);
    return a_ok ? unfold(&a) : fx_error_array(FX_STATUS_ARGUMENT);
}

/* Checks that the rows are the windows, and the columns whole patches. */
static fx_status check_rows(const fx_array *x, patches *p)
{
    char t[FXI_SHAPE_TEXT];
    if (fx_ndims(x) == 3 && fx_size(x, 0) == p->nwindows && fx_size(x, 1) % p->nkernel == 0) {
        p->channels = fx_size(x, 1) / p->nkernel;
        p->batch = fx_size(x, 2);
        return FX_OK;
    }
    return fx_fail(
        FX_STATUS_SHAPE, "fold",
        "expects (%lld windows)×(%lld elements of a patch, times channels)×batch, got %s",
        (long long)p->nwindows, (long long)p->nkernel,
        fxi_shape_text(x->node->ndim, x->node->shape, t));
}

/* The patches as windows…×kernel…×channels×batch, added at their indices. */
static fx_array *added(fx_array *x, const patches *p)
{
    const int c = p->spatial;
    int64_t apart[FX_MAX_DIMS], whole[FX_MAX_DIMS];
    for (int i = 0; i < c; i++) {
        apart[i] = p->windows[i];
        apart[c + i] = p->kernel[i];
        whole[i] = p->padded[i];
    }
    apart[2 * c] = whole[c] = p->channels;
    apart[2 * c + 1] = whole[c + 1] = p->batch;
    x = fxi_reshape(x, 2 * c + 2, apart);
    return fxi_reshape(fx_scatter(FX_REDUCE_SUM, x, indices(p), 0, p->npadded), c + 2, whole);
}

static fx_array *fold(const fx_fold_args *a)
{
    patches p = {.spatial = (int)a->size.n};
    const fx_unfold_args shared = {.kernel = a->kernel,
                                   .stride = a->stride,
                                   .pad = a->pad,
                                   .dilation = a->dilation,
                                   .flipped = a->flipped};
    fx_status s = fxi_operand_status("fold", a->x);
    if (s == FX_OK && (p.spatial < 1 || p.spatial > 3))
        s = fx_fail(FX_STATUS_SHAPE, "fold", "takes the sizes of 1 to 3 spatial axes, got %d",
                    p.spatial);
    for (int i = 0; i < p.spatial && s == FX_OK; i++)
        if (a->size.v[i] < 0)
            s = fx_fail(FX_STATUS_SHAPE, "fold", "size %lld of axis %d is negative",
                        (long long)a->size.v[i], i);
    if (s == FX_OK)
        s = read_options("fold", &shared, &p);
    if (s == FX_OK)
        s = count_windows("fold", a->size.v, &p);
    if (s == FX_OK)
        s = check_rows(a->x, &p);
    if (s != FX_OK)
        return fx_error_array(s);
    FXI_SCOPE;
    fx_array *y = added(a->x, &p);
    for (int i = 0; i < p.spatial; i++)
        y = fx_slice(y, i, p.before[i], p.before[i] + a->size.v[i]);
    return fx_keep(y);
}

fx_array *fxi_fold(const fx_fold_args *given)
{
    FXI_OPERATION("fold");
    FXI_TAKE_OPTIONS(fx_fold_args, FXI_FOLD_ARGS, a, "fold", given);
    return a_ok ? fold(&a) : fx_error_array(FX_STATUS_ARGUMENT);
}
