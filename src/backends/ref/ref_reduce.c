/* ref_reduce.c: reductions and running sums, from their definitions.
 *
 * Every output element reads its terms in column-major order and is rounded once, at the end. A
 * reduction of no elements is 0 for sum, 1 for prod, −Inf for max, +Inf for min (integers: the
 * type's smallest and largest number). In max and min the result is NaN if any element is.
 */
#include <math.h>

#include "ref_kernels.h"

static const int64_t smallest[FX_DTYPE_COUNT] = {
    [FX_DTYPE_I32] = INT32_MIN, [FX_DTYPE_I64] = INT64_MIN, [FX_DTYPE_U8] = 0, [FX_DTYPE_BOOL] = 0};
static const int64_t largest[FX_DTYPE_COUNT] = {[FX_DTYPE_I32] = INT32_MAX,
                                                [FX_DTYPE_I64] = INT64_MAX,
                                                [FX_DTYPE_U8] = UINT8_MAX,
                                                [FX_DTYPE_BOOL] = 1};

fxi_ref_value fxi_ref_reduce_start(int kind, int dtype)
{
    if (kind == FX_REDUCE_SUM || kind == FX_REDUCE_PROD)
        return fxi_ref_number(dtype, kind == FX_REDUCE_PROD);
    if (fxi_ref_is_real(dtype))
        return (fxi_ref_value){.real = kind == FX_REDUCE_MAX ? -INFINITY : INFINITY};
    return (fxi_ref_value){.integer = kind == FX_REDUCE_MAX ? smallest[dtype] : largest[dtype]};
}

static bool replaces(int kind, int dtype, fxi_ref_value sofar, fxi_ref_value x)
{
    if (!fxi_ref_is_real(dtype))
        return kind == FX_REDUCE_MAX ? x.integer > sofar.integer : x.integer < sofar.integer;
    /* The first NaN stays, so argmax and argmin return its position. */
    if (isnan(sofar.real))
        return false;
    return isnan(x.real) || (kind == FX_REDUCE_MAX ? x.real > sofar.real : x.real < sofar.real);
}

fxi_ref_value fxi_ref_reduce_next(int kind, int dtype, fxi_ref_value sofar, fxi_ref_value x)
{
    if (kind == FX_REDUCE_SUM)
        return fxi_ref_sum2(dtype, sofar, x);
    if (kind == FX_REDUCE_PROD)
        return fxi_ref_product2(dtype, sofar, x);
    return replaces(kind, dtype, sofar, x) ? x : sofar;
}

/* The terms of one result. */
typedef struct terms {
    const fx_step *step;
    const void *x;
    const int64_t *index; /* multi-index of the result; used for the axes that are not reduced */
    int64_t count, extent[FX_MAX_DIMS];
} terms;

static fxi_ref_value term(const terms *e, int64_t r)
{
    const fx_tensor *t = &e->step->in[0];
    int64_t inner[FX_MAX_DIMS], at[FX_MAX_DIMS];
    fxi_ref_unravel(r, t->ndim, e->extent, inner);
    for (int k = 0; k < t->ndim; k++)
        at[k] = FXI_AXIS_IN(fx_step_reduce(e->step)->mask, k) ? inner[k] : e->index[k];
    return fxi_ref_get(t->dtype, e->x, fxi_ref_offset(t, at));
}

/* Σ(x − mean)², in two passes over d = x − first. The subtraction is exact for numbers that are
 * nearly equal, where cancellation would be worst. */
static fxi_ref_value squared_deviations(const terms *e)
{
    double mean = 0, sum = 0;
    const double first = e->count > 0 ? term(e, 0).real : 0;
    for (int64_t r = 0; r < e->count; r++)
        mean += (term(e, r).real - first) / (double)e->count;
    for (int64_t r = 0; r < e->count; r++) {
        const double d = (term(e, r).real - first) - mean;
        sum += d * d;
    }
    return (fxi_ref_value){.real = sum};
}

static fxi_ref_value index_of_extreme(const terms *e, int kind, int dtype)
{
    fxi_ref_value best = term(e, 0), at = {.integer = 0};
    for (int64_t r = 1; r < e->count; r++)
        if (replaces(kind, dtype, best, term(e, r))) {
            best = term(e, r);
            at.integer = r;
        }
    return at;
}

/* The reduction of all elements of x that belong to the result at `index`. */
static fxi_ref_value reduce_one(const fx_step *s, const void *x, const int64_t *index)
{
    const fx_tensor *t = &s->in[0];
    const int kind = fx_step_reduce(s)->fold;
    terms e = {.step = s, .x = x, .index = index, .count = 1};
    for (int k = 0; k < t->ndim; k++) {
        e.extent[k] = FXI_AXIS_IN(fx_step_reduce(s)->mask, k) ? t->shape[k] : 1;
        e.count *= e.extent[k];
    }
    if (kind == FX_REDUCE_SQDEV)
        return squared_deviations(&e);
    if (kind == FX_REDUCE_ARGMAX || kind == FX_REDUCE_ARGMIN)
        return index_of_extreme(&e, kind == FX_REDUCE_ARGMAX ? FX_REDUCE_MAX : FX_REDUCE_MIN,
                                t->dtype);
    fxi_ref_value y = fxi_ref_reduce_start(kind, t->dtype);
    for (int64_t r = 0; r < e.count; r++)
        y = fxi_ref_reduce_next(kind, t->dtype, y, term(&e, r));
    return y;
}

fx_status fxi_ref_reduce(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    int64_t index[FX_MAX_DIMS];
    (void)run;
    const int64_t n = fxi_ref_length(&s->out);
    for (int64_t i = 0; i < n; i++) {
        fxi_ref_unravel(i, s->out.ndim, s->out.shape, index);
        fxi_ref_put(s->out.dtype, out, i, reduce_one(s, in[0], index));
    }
    return FX_OK;
}

/* y[…, i, …] = Σ_{j ≤ i} x[…, j, …], or over j ≥ i. */
fx_status fxi_ref_cumsum(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    const fx_tensor *t = &s->in[0];
    const int axis = fx_step_scan(s)->axis;
    int64_t index[FX_MAX_DIMS];
    (void)run;
    const int64_t n = fxi_ref_length(&s->out);
    for (int64_t i = 0; i < n; i++) {
        fxi_ref_unravel(i, s->out.ndim, s->out.shape, index);
        const int64_t first = fx_step_scan(s)->reverse ? index[axis] : 0;
        const int64_t last = fx_step_scan(s)->reverse ? t->shape[axis] - 1 : index[axis];
        fxi_ref_value y = fxi_ref_number(t->dtype, 0);
        for (index[axis] = first; index[axis] <= last; index[axis]++)
            y = fxi_ref_sum2(t->dtype, y, fxi_ref_get(t->dtype, in[0], fxi_ref_offset(t, index)));
        fxi_ref_put(s->out.dtype, out, i, y);
    }
    return FX_OK;
}
