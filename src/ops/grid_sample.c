/* grid_sample.c: values of an image at given positions.
 *
 * Linear interpolation is the weighted sum of the 2^d elements around a position. The positions are
 * arrays of (Π out)×batch, one for each spatial axis; all elements that one corner needs are one
 * gather. Outside the image the value is replaced, not multiplied by 0, because the element of the
 * border that is read there may be NaN or infinite.
 */
#include "composites.h"
#include "error.h"
#include "operands.h"
#include "option_struct.h"
#include <cflux/resample.h>

typedef struct sampling {
    const fx_grid_sample_args *a;
    int spatial;
    fx_array *x;             /* channels×(elements of all images) */
    fx_array *low[3], *w[3]; /* ⌊position⌋ and the rest, (Π out)×batch; a->nearest: the rounded
                                position and NULL */
    int64_t sizes[3], pixels; /* of an image */
} sampling;

static fx_status check(const fx_grid_sample_args *a)
{
    static const char *const op = "grid_sample";
    char t[FXI_SHAPE_TEXT], u[FXI_SHAPE_TEXT];
    fx_status s = fxi_operand_status(op, a->x);
    if (s == FX_OK)
        s = fxi_operand_status(op, a->grid);
    if (s != FX_OK)
        return s;
    const int d = fx_ndims(a->x) - 2;
    const bool fits = d >= 1 && d <= 3 && fx_ndims(a->grid) == d + 2 && fx_size(a->grid, 0) == d &&
                      fx_size(a->grid, d + 1) == fx_size(a->x, d + 1);
    bool empty = false;
    for (int i = 0; i < d && fits; i++)
        empty = empty || fx_size(a->x, i) == 0;
    if (a->padding != FX_GRID_PADDING_ZEROS && a->padding != FX_GRID_PADDING_BORDER)
        return fx_fail(FX_STATUS_ARGUMENT, op, "padding %d is not supported", (int)a->padding);
    if (fits && !empty)
        return FX_OK;
    return fx_fail(
        FX_STATUS_SHAPE, op,
        "expects x with d = 1 to 3 spatial axes that are not empty, channels and batch, and "
        "a grid d×out…×batch: x is %s, grid is %s",
        fxi_shape_text(a->x->node->ndim, a->x->node->shape, t),
        fxi_shape_text(a->grid->node->ndim, a->grid->node->shape, u));
}

/* Positions along axis i, in elements: −1 … 1 become 0 … n−1, or −½ … n−½. */
static fx_array *positions(const sampling *s, fx_array *grid, int i)
{
    const double n = (double)s->sizes[i];
    int64_t out = 1; /* not inferred: the batch may be empty */
    for (int k = 1; k <= s->spatial; k++)
        out *= fx_size(grid, k);
    fx_array *g = fx_reshape(fx_slice(grid, 0, i, i + 1), out, fx_size(grid, s->spatial + 1));
    fx_array *at = s->a->align_corners ? fx_mul(fx_add(g, 1.0), (n - 1) / 2)
                                       : fx_sub(fx_mul(fx_add(g, 1.0), n / 2), 0.5);
    return s->a->padding == FX_GRID_PADDING_BORDER ? fx_clamp(at, 0.0, n - 1) : at;
}

/* The elements at one corner of the positions, times its weight: channels×(Π out)×batch. Bit i of
 * `corner` is set for the element after the position along axis i. */
static fx_array *corner_part(const sampling *s, unsigned corner)
{
    const int64_t batch = fx_size(s->low[0], 1);
    fx_array *weight = NULL, *inside = NULL;
    fx_array *index =
        fx_reshape(fx_range_dtype(FX_DTYPE_I64, 0, (double)s->pixels, batch), 1, batch);
    int64_t line = 1;
    for (int i = 0; i < s->spatial; i++) {
        const bool high = corner >> i & 1;
        const double end = (double)(s->sizes[i] - 1);
        fx_array *at = high ? fx_add(s->low[i], 1.0) : s->low[i];
        fx_array *in = fx_and(fx_ge(at, 0.0), fx_le(at, end));
        inside = inside ? fx_and(inside, in) : in;
        index = fx_add(index, fx_mul(fx_cast(fx_clamp(at, 0.0, end), FX_DTYPE_I64), line));
        if (s->w[i]) {
            fx_array *part = high ? s->w[i] : fx_sub(1.0, s->w[i]);
            weight = weight ? fx_mul(weight, part) : part;
        }
        line *= s->sizes[i];
    }
    fx_array *value = fx_where(fx_unsqueeze(inside, 0), fx_gather(s->x, index, 1), 0.0);
    return weight ? fx_mul(value, fx_unsqueeze(fx_where(inside, weight, 0.0), 0)) : value;
}

/* 16-bit floats and integers are computed in Float32. */
static fx_array *wide(fx_array *x)
{
    return fx_eltype(x) == FX_DTYPE_F64 ? x : fx_cast(x, FX_DTYPE_F32);
}

static fx_array *grid_sample(const fx_grid_sample_args *a)
{
    const fx_status status = check(a);
    if (status != FX_OK)
        return fx_error_array(status);
    FXI_SCOPE;
    sampling s = {.a = a, .spatial = fx_ndims(a->x) - 2, .pixels = 1};
    const int d = s.spatial;
    const int64_t channels = fx_size(a->x, d), batch = fx_size(a->x, d + 1);
    int64_t sizes[FX_MAX_DIMS];
    fx_array *grid = wide(a->grid), *y = NULL;
    for (int i = 0; i < d; i++) {
        s.pixels *= s.sizes[i] = fx_size(a->x, i);
        sizes[i] = fx_size(a->grid, i + 1);
    }
    sizes[d] = channels;
    sizes[d + 1] = batch;
    fx_array *x = fx_permute(fx_reshape(wide(a->x), s.pixels, channels, batch), 1, 0, 2);
    s.x = fx_reshape(x, channels, s.pixels * batch);
    for (int i = 0; i < d; i++) {
        fx_array *at = positions(&s, grid, i);
        s.low[i] = a->nearest ? fx_round(at) : fx_floor(at);
        s.w[i] = a->nearest ? NULL : fx_sub(at, s.low[i]);
    }
    for (unsigned corner = 0; corner < (a->nearest ? 1u : 1u << (unsigned)d); corner++) {
        fx_array *part = corner_part(&s, corner);
        y = y ? fx_add(y, part) : part;
    }
    y = fxi_reshape(fx_permute(y, 1, 0, 2), d + 2, sizes);
    const fx_dtype given = fx_eltype(a->x);
    return fx_keep(fxi_is_float((int)given) ? fx_cast(y, given) : y);
}

fx_array *fxi_grid_sample(const fx_grid_sample_args *given)
{
    FXI_OPERATION("grid_sample");
    FXI_TAKE_OPTIONS(fx_grid_sample_args, FXI_GRID_SAMPLE_ARGS, a, "grid_sample", given);
    return a_ok ? grid_sample(&a) : fx_error_array(FX_STATUS_ARGUMENT);
}
