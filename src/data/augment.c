/* augment.c: random changes of images: see augment.h.
 *
 * A random number per observation has the shape 1×…×1×batch and broadcasts over the images. A crop
 * gathers along one spatial axis after another: the index of an element is its position plus the
 * observation's random offset. A shift pads and then crops. Only the positions of fx_imrotate are
 * evaluated.
 */
#include "option_struct.h"
#include "order.h"
#include "random.h"

#include <cflux/augment.h>
#include <cflux/resample.h>
#include <math.h>

#include "memory.h"

static fx_status check_images(const char *op, const fx_array *x)
{
    if (!x)
        return fx_fail(FX_STATUS_ARGUMENT, op, "the images are NULL");
    if (fx_is_error(x))
        return fx_array_status(x);
    return fx_ndims(x) >= 3 && fx_ndims(x) <= 5
               ? FX_OK
               : fx_fail(FX_STATUS_SHAPE, op,
                         "the images have %d axes, expected spatial axes (1 to 3), channels, batch",
                         fx_ndims(x));
}

static int64_t size_along(const fx_dims *sizes, int axis)
{
    return sizes->v[sizes->n == 1 ? 0 : axis];
}

/* One size, or one per spatial axis, each at least `least` and, if `bounded`, at most the image's.
 */
static fx_status check_sizes(const char *op, const fx_augment_args *a, int64_t least, bool bounded)
{
    const int spatial = fx_ndims(a->x) - 2;
    if (a->sizes.n != 1 && a->sizes.n != spatial)
        return fx_fail(FX_STATUS_ARGUMENT, op, "%lld sizes for %d spatial axes",
                       (long long)a->sizes.n, spatial);
    for (int i = 0; i < spatial; i++) {
        const int64_t size = size_along(&a->sizes, i);
        const int64_t most = bounded ? fx_size(a->x, i) : INT32_MAX;
        if (size < least || size > most)
            return fx_fail(FX_STATUS_ARGUMENT, op, "size %lld for axis %d, expected %lld to %lld",
                           (long long)size, i, (long long)least, (long long)most);
    }
    return FX_OK;
}

/* One number per observation: 1×…×1×batch. */
static fx_array *uniform(const fx_array *x)
{
    int64_t sizes[FX_MAX_DIMS];
    const int n = fx_ndims(x);
    for (int i = 0; i < n; i++)
        sizes[i] = i == n - 1 ? fx_size(x, i) : 1;
    return fxi_rand(FX_DTYPE_F32, n, sizes);
}

/* The elements start … start + size − 1 along an axis, with a start per observation. */
static fx_array *cut(fx_array *x, int axis, fx_array *start, int64_t size)
{
    int64_t one[FX_MAX_DIMS], whole[FX_MAX_DIMS];
    const int n = fx_ndims(x);
    for (int i = 0; i < n; i++) {
        one[i] = i == axis ? size : 1;
        whole[i] = i == axis ? size : fx_size(x, i);
    }
    fx_array *within = fxi_reshape(fx_range_dtype(FX_DTYPE_I64, 0, 1, size), n, one);
    fx_array *idx = fx_add(within, start);
    return fx_gather_elements(x, fxi_expand(idx, n, whole), axis);
}

/* Crops every spatial axis to the sizes at uniformly distributed positions. u < 1 in Float32, but
 * u·choices may round up to choices. */
static fx_array *random_parts(fx_array *x, const int64_t *sizes)
{
    for (int axis = 0; axis < fx_ndims(x) - 2; axis++) {
        const int64_t choices = fx_size(x, axis) - sizes[axis] + 1;
        if (choices < 2)
            continue;
        fx_array *u = fx_floor(fx_mul(uniform(x), choices));
        fx_array *start = fx_cast(fx_min(u, choices - 1), FX_DTYPE_I64);
        x = cut(x, axis, fx_array_to(fx_array_device(x), start), sizes[axis]);
    }
    return x;
}

static fx_array *flip(const fx_augment_args *a)
{
    fx_array *x = a->x;
    for (int axis = 0; axis < fx_ndims(a->x) - 2; axis++)
        if (a->dims.bits >> axis & 1 || a->dims.bits & FX_ALL.bits)
            x = fx_where(fx_lt(uniform(x), a->p), fx_flip(x, fx_axes_of(1, &(int64_t){axis})), x);
    return x;
}

static fx_array *crop(const fx_augment_args *a)
{
    int64_t sizes[FX_MAX_DIMS];
    fx_array *x = a->x;
    const bool random = a->always || fx_training();
    for (int axis = 0; axis < fx_ndims(a->x) - 2; axis++) {
        sizes[axis] = size_along(&a->sizes, axis);
        const int64_t start = (fx_size(x, axis) - sizes[axis]) / 2;
        x = random ? x : fx_slice(x, axis, start, start + sizes[axis]);
    }
    return random ? random_parts(x, sizes) : x;
}

static fx_array *shift(const fx_augment_args *a)
{
    int64_t sizes[FX_MAX_DIMS];
    fx_array *x = a->x;
    for (int axis = 0; axis < fx_ndims(a->x) - 2; axis++) {
        const int64_t most = size_along(&a->sizes, axis);
        sizes[axis] = fx_size(a->x, axis);
        x = fx_pad(x, axis, most, most, a->fill);
    }
    return random_parts(x, sizes);
}

static fx_array *noise(const fx_augment_args *a)
{
    int64_t sizes[FX_MAX_DIMS];
    const int n = fx_ndims(a->x);
    for (int i = 0; i < n; i++)
        sizes[i] = fx_size(a->x, i);
    return fx_add(a->x, fx_mul(fxi_randn(fx_eltype(a->x), n, sizes), a->std));
}

static fx_status check_flip(const fx_augment_args *a)
{
    const unsigned spatial = (1u << (fx_ndims(a->x) - 2)) - 1;
    if (!(a->dims.bits & FX_ALL.bits) && (a->dims.bits & ~spatial))
        return fx_fail(FX_STATUS_ARGUMENT, "random_flip", "dims has an axis that is not spatial");
    return a->p >= 0 && a->p <= 1
               ? FX_OK
               : fx_fail(FX_STATUS_ARGUMENT, "random_flip", "expects 0 ≤ p ≤ 1, got p = %g", a->p);
}

static fx_status check_crop(const fx_augment_args *a)
{
    return check_sizes("random_crop", a, 1, true);
}

static fx_status check_shift(const fx_augment_args *a)
{
    return check_sizes("random_shift", a, 0, false);
}

static bool is_whole(const fx_array *x)
{
    const fx_dtype t = fx_eltype(x);
    return t == FX_DTYPE_I32 || t == FX_DTYPE_I64 || t == FX_DTYPE_U8 || t == FX_DTYPE_BOOL;
}

static fx_status check_noise(const fx_augment_args *a)
{
    if (is_whole(a->x))
        return fx_fail(FX_STATUS_DTYPE, "random_noise", "the images are %s, expected floats",
                       fx_dtype_name(fx_eltype(a->x)));
    return a->std >= 0 && a->std < INFINITY ? FX_OK
                                            : fx_fail(FX_STATUS_ARGUMENT, "random_noise",
                                                      "expects std ≥ 0, got std = %g", a->std);
}

static fx_array *augment(const char *op, const fx_augment_args *given,
                         fx_status (*check)(const fx_augment_args *),
                         fx_array *(*apply)(const fx_augment_args *))
{
    FXI_TAKE_OPTIONS(fx_augment_args, FXI_AUGMENT_ARGS, a, op, given);
    fx_status status = a_ok ? check_images(op, a.x) : FX_STATUS_ARGUMENT;
    if (status == FX_OK)
        status = check(&a);
    if (status != FX_OK)
        return fx_error_array(status);
    if (!a.always && !fx_training() && apply != crop)
        return a.x;
    FXI_SCOPE;
    if (a.seed == FX_DRAWN)
        return fx_keep(apply(&a));
    const fxi_random_state before = fxi_random_enter(fxi_mix(a.seed));
    fx_array *y = fx_keep(apply(&a));
    fxi_random_leave(before);
    return y;
}

fx_array *fxi_random_flip(const fx_augment_args *a)
{
    return augment("random_flip", a, check_flip, flip);
}

fx_array *fxi_random_crop(const fx_augment_args *a)
{
    return augment("random_crop", a, check_crop, crop);
}

fx_array *fxi_random_shift(const fx_augment_args *a)
{
    return augment("random_shift", a, check_shift, shift);
}

fx_array *fxi_random_noise(const fx_augment_args *a)
{
    return augment("random_noise", a, check_noise, noise);
}

/* ---- rotation -------------------------------------------------------------------------------- */

/* The positions to read for every element of a w×h image, 2×w×h, from −1 to 1. */
static void fill_grid(int64_t w, int64_t h, double theta, double *out)
{
    const double s = sin(theta), c = cos(theta), my = (double)(w - 1) / 2, mx = (double)(h - 1) / 2;
    for (int64_t j = 0; j < h; j++)
        for (int64_t i = 0; i < w; i++, out += 2) {
            const double y = (double)i - my, x = (double)j - mx;
            out[0] = my > 0 ? (c * y - s * x) / my : 0;
            out[1] = mx > 0 ? (s * y + c * x) / mx : 0;
        }
}

fx_array *fx_imrotate(fx_array *x, double theta, bool nearest)
{
    fx_status status = check_images("imrotate", x);
    if (status == FX_OK && fx_ndims(x) != 4)
        status = fx_fail(FX_STATUS_SHAPE, "imrotate",
                         "the images have %d axes, expected two spatial axes, channels, batch",
                         fx_ndims(x));
    if (status == FX_OK && !isfinite(theta))
        status = fx_fail(FX_STATUS_ARGUMENT, "imrotate",
                         "the angle is %g, expected a finite number", theta);
    if (status != FX_OK)
        return fx_error_array(status);
    if (fx_length(x) == 0) /* fx_grid_sample refuses empty images */
        return fx_cast(x, is_whole(x) ? FX_DTYPE_F32 : fx_eltype(x));
    const int64_t w = fx_size(x, 0), h = fx_size(x, 1);
    double *v = fxi_calloc((size_t)(w * h) + 1, 2 * sizeof *v);
    if (!v)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, "imrotate", "out of memory"));
    FXI_SCOPE;
    fill_grid(w, h, theta, v);
    fx_array *grid =
        fx_cast(fx_from(FX_DTYPE_F64, v, 2, w, h, 1), is_whole(x) ? FX_DTYPE_F32 : fx_eltype(x));
    fxi_free(v);
    grid = fx_eval(grid) == FX_OK ? fx_array_to(fx_array_device(x), grid) : grid;
    grid = fx_expand(grid, 2, w, h, fx_size(x, 3));
    return fx_keep(fx_grid_sample(x, grid, .nearest = nearest));
}
