/* resize.c: resizing of images and pixel shuffle, composed of gathers and reshapes.
 *
 * Positions between elements are computed in integers, so that they are exact for every size: the
 * position of output i is (a·i + b)/d.
 */
#include "composites.h"
#include "error.h"
#include "operands.h"
#include "option_struct.h"
#include "windows.h"
#include <cflux/resample.h>
#include <math.h>

/* x: spatial axes, channels, batch. FX_OK and the number of spatial axes. */
static fx_status spatial_axes(const char *op, const fx_array *x, int *out)
{
    char t[FXI_SHAPE_TEXT];
    const fx_status s = fxi_operand_status(op, x);
    if (s != FX_OK)
        return s;
    *out = fx_ndims(x) - 2;
    if (*out >= 1 && *out <= 3)
        return FX_OK;
    return fx_fail(FX_STATUS_SHAPE, op, "takes 1 to 3 spatial axes, channels and batch; x is %s",
                   fxi_shape_text(x->node->ndim, x->node->shape, t));
}

/* ---- resize ---------------------------------------------------------------------------------- */

/* The spatial sizes ⌊factor·n⌋. */
static fx_status sizes_by_factors(const fx_resize_args *a, int spatial, int64_t *out)
{
    const fx_fractions *f = &a->factors;
    if (f->n != 1 && f->n != spatial)
        return fx_fail(FX_STATUS_ARGUMENT, "resize", "factors has %lld numbers for %d spatial axes",
                       (long long)f->n, spatial);
    for (int i = 0; i < spatial; i++) {
        const double v = f->v[f->n == 1 ? 0 : i], size = floor(v * (double)fx_size(a->x, i));
        if (!(v > 0 && size < 0x1p53))
            return fx_fail(FX_STATUS_ARGUMENT, "resize",
                           "factor is %g, expected a number above 0 that gives fewer than 2^53 "
                           "elements along axis %d",
                           v, i);
        out[i] = (int64_t)size;
    }
    return FX_OK;
}

/* The spatial sizes of the result. */
static fx_status sizes_of(const fx_resize_args *a, int spatial, int64_t *out)
{
    static const char *const op = "resize";
    int32_t v[3];
    const int given = (a->scale.n > 0) + (a->size.n > 0) + (a->factors.n > 0);
    if (given != 1)
        return fx_fail(FX_STATUS_ARGUMENT, op,
                       "expects exactly one of .scale, .size and .factors, got %d", given);
    if (a->factors.n > 0)
        return sizes_by_factors(a, spatial, out);
    const bool scaled = a->scale.n > 0;
    const fx_status s =
        fxi_spread(op, scaled ? "scale" : "size", scaled ? &a->scale : &a->size, spatial, 1, v);
    for (int i = 0; i < spatial && s == FX_OK; i++)
        out[i] = fxi_mul_sizes(v[i], scaled ? fx_size(a->x, i) : 1);
    return s;
}

/* y[i] = x[⌊i·n/m⌋] along one axis; repeated elements where m is a multiple of n. */
static fx_array *nearest(fx_array *x, int axis, int64_t m, bool align_corners)
{
    const int64_t n = fx_size(x, axis);
    (void)align_corners;
    if (m % n == 0)
        return fx_repeat_inner(x, axis, m / n);
    return fx_gather(x, fx_fld(fx_range_dtype(FX_DTYPE_I64, 0, (double)n, m), m), axis);
}

/* The vector v along axis `axis` of an array with `rank` axes. */
static fx_array *along(fx_array *v, int axis, int rank)
{
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < rank; i++)
        sizes[i] = i == axis ? fx_size(v, 0) : 1;
    return fxi_reshape(v, rank, sizes);
}

/* The positions (a·i + b)/d in x of the m elements of the result: low + w, 0 ≤ w < 1. */
typedef struct positions {
    fx_array *low; /* Int64 */
    fx_array *w;   /* along the axis */
} positions;

static positions find_positions(fx_array *x, int axis, int64_t m, bool align_corners, bool bounded)
{
    const int64_t n = fx_size(x, axis), d = align_corners ? (m > 1 ? m - 1 : 1) : 2 * m;
    const double step = (double)(align_corners ? n - 1 : 2 * n),
                 first = (double)(align_corners ? 0 : n - m);
    fx_array *u = fx_range_dtype(FX_DTYPE_I64, first, step, m);
    u = bounded ? fx_clamp(u, 0, fxi_mul_sizes(d, n - 1)) : u;
    fx_array *low = fx_fld(u, d);
    fx_array *w = fx_div(fx_cast(fx_sub(u, fx_mul(low, d)), fx_eltype(x)), (double)d);
    return (positions){low, along(w, axis, fx_ndims(x))};
}

static fx_array *linear(fx_array *x, int axis, int64_t m, bool align_corners)
{
    const positions p = find_positions(x, axis, m, align_corners, true);
    fx_array *high = fx_min(fx_add(p.low, 1), fx_size(x, axis) - 1);
    return fx_add(fx_mul(fx_sub(1.0, p.w), fx_gather(x, p.low, axis)),
                  fx_mul(p.w, fx_gather(x, high, axis)));
}

/* Keys' kernel with a = −¾ at a distance t: up to 1 if `near`, else from 1 to 2. Keys, 1981. */
static fx_array *cubic_weight(fx_array *t, bool near)
{
    const double a = -0.75;
    fx_array *inner = near ? fx_sub(fx_mul(a + 2, t), a + 3) : fx_sub(fx_mul(a, t), 5 * a);
    return near ? fx_add(fx_mul(fx_mul(inner, t), t), 1.0)
                : fx_sub(fx_mul(fx_add(fx_mul(inner, t), 8 * a), t), 4 * a);
}

static fx_array *cubic(fx_array *x, int axis, int64_t m, bool align_corners)
{
    const positions p = find_positions(x, axis, m, align_corners, false);
    fx_array *distances[] = {fx_add(p.w, 1.0), p.w, fx_sub(1.0, p.w), fx_sub(2.0, p.w)}, *y = NULL;
    for (int i = 0; i < 4; i++) {
        fx_array *at = fx_clamp(fx_add(p.low, i - 1), 0, fx_size(x, axis) - 1);
        fx_array *term =
            fx_mul(cubic_weight(distances[i], i == 1 || i == 2), fx_gather(x, at, axis));
        y = y ? fx_add(y, term) : term;
    }
    return y;
}

/* How one axis is resized; `real`: 16-bit floats and integers are computed in Float32. */
static const struct {
    fx_array *(*along)(fx_array *x, int axis, int64_t m, bool align_corners);
    bool real;
} modes[] = {[FX_RESIZE_MODE_NEAREST] = {nearest, false},
             [FX_RESIZE_MODE_LINEAR] = {linear, true},
             [FX_RESIZE_MODE_CUBIC] = {cubic, true}};

static fx_array *resized(const fx_resize_args *a, int spatial, const int64_t *sizes)
{
    const fx_dtype given = fx_eltype(a->x);
    const bool real = modes[a->mode].real;
    fx_array *y = !real || given == FX_DTYPE_F64 ? a->x : fx_cast(a->x, FX_DTYPE_F32);
    for (int i = 0; i < spatial; i++) {
        const int64_t n = fx_size(a->x, i);
        if (n == 0 && sizes[i] != 0) {
            fx_fail(FX_STATUS_SHAPE, "resize", "axis %d of x has no elements", i);
            return fx_error_array(FX_STATUS_SHAPE);
        }
        y = n == sizes[i] ? y : modes[a->mode].along(y, i, sizes[i], a->align_corners);
    }
    return fxi_is_float((int)given) ? fx_cast(y, given) : y;
}

static fx_array *resize(const fx_resize_args *a)
{
    int spatial = 0;
    int64_t sizes[3];
    fx_status s = spatial_axes("resize", a->x, &spatial);
    if (s == FX_OK && (unsigned)a->mode > FX_RESIZE_MODE_CUBIC)
        s = fx_fail(FX_STATUS_ARGUMENT, "resize", "mode %d is not supported", (int)a->mode);
    if (s == FX_OK)
        s = sizes_of(a, spatial, sizes);
    if (s != FX_OK)
        return fx_error_array(s);
    FXI_SCOPE;
    return fx_keep(resized(a, spatial, sizes));
}

fx_array *fxi_resize(const fx_resize_args *given)
{
    FXI_OPERATION("resize");
    FXI_TAKE_OPTIONS(fx_resize_args, FXI_RESIZE_ARGS, a, "resize", given);
    return a_ok ? resize(&a) : fx_error_array(FX_STATUS_ARGUMENT);
}

/* ---- pixel shuffle --------------------------------------------------------------------------- */

fx_array *fx_pixel_shuffle(fx_array *x, int64_t r)
{
    static const char *const op = "pixel_shuffle";
    char t[FXI_SHAPE_TEXT];
    int d = 0;
    fx_status s = spatial_axes(op, x, &d);
    if (s == FX_OK && r < 1)
        s = fx_fail(FX_STATUS_ARGUMENT, op, "the factor is %lld, expected at least 1",
                    (long long)r);
    int64_t group = 1;
    for (int i = 0; i < d && s == FX_OK; i++)
        if (!fxi_mul_i64(group, r, &group))
            s = fx_fail(FX_STATUS_ARGUMENT, op, "the factor is %lld, which is too large",
                        (long long)r);
    if (s == FX_OK && fx_size(x, d) % group != 0)
        s = fx_fail(FX_STATUS_SHAPE, op,
                    "expected channel dimension to be divisible by r^d = %lld, where d=%d is the "
                    "number of spatial dimensions. Given r=%lld, input size(x) = %s",
                    (long long)group, d, (long long)r,
                    fxi_shape_text(x->node->ndim, x->node->shape, t));
    if (s != FX_OK)
        return fx_error_array(s);
    FXI_SCOPE;
    int64_t apart[FX_MAX_DIMS], order[FX_MAX_DIMS], joined[FX_MAX_DIMS];
    for (int i = 0; i < d; i++) {
        apart[i] = fx_size(x, i);
        apart[d + i] = r;
        order[2 * i] = d + i;
        order[2 * i + 1] = i;
        joined[i] = fx_size(x, i) * r;
    }
    for (int i = 0; i < 2; i++) {
        order[2 * d + i] = 2 * d + i;
        apart[2 * d + i] = joined[d + i] = i ? fx_size(x, d + 1) : fx_size(x, d) / group;
    }
    fx_array *y = fxi_permute(fxi_reshape(x, 2 * d + 2, apart), 2 * d + 2, order);
    return fx_keep(fxi_reshape(y, d + 2, joined));
}
