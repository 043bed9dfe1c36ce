/* onnx_resample.c: ONNX's Resize and GridSample, in the forms that fx_resize and fx_grid_sample
 * have.
 *
 * ONNX lists sizes and scales of all axes in NumPy's order; only spatial axes may change here.
 */
#include "onnx_case.h"

#include <math.h>
#include <string.h>

/* The sizes of the result in our order; false if scales do not give whole sizes, or if another axis
 * changes. */
static bool resized(const onnx_node *n, fx_array *x, fx_dims *size)
{
    const int rank = fx_ndims(x);
    const bool sized = n->nin > 3 && n->in[3];
    bool whole = true;
    size->n = rank - 2;
    for (int i = 0; i < rank; i++) {
        const double given = fx_at(n->in[sized ? 3 : 2], rank - 1 - i),
                     exact = sized ? given : given * (double)fx_size(x, i);
        whole = whole && (i < rank - 2 ? exact == floor(exact) : exact == (double)fx_size(x, i));
        if (i < rank - 2)
            size->v[i] = (int64_t)floor(exact);
    }
    return whole;
}

/* True if every size is at least 2. */
static bool several(const fx_dims *size)
{
    bool all = true;
    for (int i = 0; i < size->n; i++)
        all = all && size->v[i] > 1;
    return all;
}

/* The element of n that ONNX uses for element i of m. */
static int64_t nearest_element(const char *at, const char *rounding, int64_t i, int64_t n,
                               int64_t m)
{
    const double ratio = (double)n / (double)m, x = (double)i;
    const double u = !strcmp(at, "align_corners") ? x * (double)(n - 1) / (double)(m - 1)
                     : !strcmp(at, "asymmetric")  ? x * ratio
                     : !strcmp(at, "half_pixel")  ? (x + 0.5) * ratio - 0.5
                                                  : (x + 0.5) * ratio;
    const double r = !strcmp(rounding, "floor")               ? floor(u)
                     : !strcmp(rounding, "ceil")              ? ceil(u)
                     : !strcmp(rounding, "round_prefer_ceil") ? floor(u + 0.5)
                                                              : ceil(u - 0.5);
    return r < 0 ? 0 : r > (double)(n - 1) ? n - 1 : (int64_t)r;
}

/* Does the form take the same elements as fx_resize, ⌊i·n/m⌋? */
static bool same_elements(const char *at, const char *rounding, fx_array *x, const fx_dims *size)
{
    bool same = strcmp(at, "tf_crop_and_resize") != 0;
    for (int axis = 0; axis < size->n; axis++)
        for (int64_t i = 0, n = fx_size(x, axis), m = size->v[axis]; i < m; i++)
            same = same && nearest_element(at, rounding, i, n, m) == i * n / m;
    return same;
}

/* With one result, pytorch_half_pixel means another position. */
static void op_resize(onnx_node *n)
{
    fx_array *x = n->in[0];
    fx_dims size;
    const char *mode = onnx_text(n, "mode", "nearest"),
               *at = onnx_text(n, "coordinate_transformation_mode", "half_pixel"),
               *rounding = onnx_text(n, "nearest_mode", "round_prefer_floor");
    const bool corners = !strcmp(at, "align_corners"), half = !strcmp(at, "half_pixel"),
               nearest = !strcmp(mode, "nearest"), cubic = !strcmp(mode, "cubic"),
               whole = resized(n, x, &size), inside = onnx_int(n, "exclude_outside", 0) == 0,
               keys = onnx_real(n, "cubic_coeff_a", -0.75) == -0.75 && inside;
    onnx_real(n, "extrapolation_value", 0);
    const bool same =
        nearest ? same_elements(at, rounding, x, &size)
                : half || corners || (!strcmp(at, "pytorch_half_pixel") && several(&size));
    if (!same || !whole || (cubic && !keys)) {
        n->variant = mode;
        return;
    }
    n->out[0] = fx_resize(x,
                          nearest ? FX_RESIZE_MODE_NEAREST
                          : cubic ? FX_RESIZE_MODE_CUBIC
                                  : FX_RESIZE_MODE_LINEAR,
                          .size = size, .align_corners = corners);
}

static void op_grid_sample(onnx_node *n)
{
    const char *mode = onnx_text(n, "mode", "bilinear"),
               *padding = onnx_text(n, "padding_mode", "zeros");
    const bool border = !strcmp(padding, "border"), nearest = !strcmp(mode, "nearest");
    if ((!border && strcmp(padding, "zeros") != 0) || (!nearest && strcmp(mode, "bilinear") != 0)) {
        n->variant = strcmp(padding, "reflection") ? mode : padding;
        return;
    }
    n->out[0] =
        fx_grid_sample(n->in[0], n->in[1], border ? FX_GRID_PADDING_BORDER : FX_GRID_PADDING_ZEROS,
                       nearest, .align_corners = onnx_int(n, "align_corners", 0) != 0);
}

const onnx_op onnx_resample_ops[] = {
    {"GridSample", GOLD_CONTRACTION, op_grid_sample, NULL, NULL},
    {"Resize", GOLD_CONTRACTION, op_resize, NULL, NULL},
    {NULL, GOLD_POINTWISE, NULL, NULL, NULL},
};
