/* conform_compare.c: reads results and compares them within the limits of their class.
 *
 * In every class, NaN must be NaN in both results, and an infinity the same infinity. Integers and
 * Bool are compared exactly. The limits are: Float64 1e-12 relative with 1e-13 absolute, Float32
 * 1.3e-6 relative with 1e-5 absolute, normalised mean squared error 1e-11 (Float32), 5e-7
 * (Float16), 5e-6 (BFloat16), and forty times the limit of the 16-bit types where several results
 * are rounded one after another.
 */
#include "conform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct limits {
    double relative, absolute, nmse;
} limits;
static const limits allowed[FX_DTYPE_COUNT] = {
    [FX_DTYPE_F32] = {1.3e-6, 1e-5, 1e-11},
    [FX_DTYPE_F64] = {1e-12, 1e-13, 1e-24},
    [FX_DTYPE_F16] = {0, 0, 5e-7},
    [FX_DTYPE_BF16] = {0, 0, 5e-6},
};

bool cf_read(fx_array *x, cf_result *out)
{
    memset(out, 0, sizeof *out);
    if (fx_is_error(x) || fx_eval(x) != FX_OK)
        return false;
    out->dtype = fx_eltype(x);
    out->ndim = fx_ndims(x);
    out->n = fx_length(x);
    for (int k = 0; k < out->ndim; k++)
        out->sizes[k] = fx_size(x, k);
    out->real = calloc((size_t)out->n + 1, sizeof(double));
    out->integer = calloc((size_t)out->n + 1, sizeof(int64_t));
    if (!out->real || !out->integer)
        return false;
    return cf_is_real(out->dtype) ? fx_read_as(x, FX_DTYPE_F64, out->real, out->n) == FX_OK
                                  : fx_read_as(x, FX_DTYPE_I64, out->integer, out->n) == FX_OK;
}

void cf_free_result(cf_result *r)
{
    free(r->real);
    free(r->integer);
    memset(r, 0, sizeof *r);
}

static bool same_shape(const cf_result *a, const cf_result *b)
{
    return a->ndim == b->ndim && memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof(int64_t)) == 0;
}

static bool special(double x)
{
    return isnan(x) || isinf(x);
}

static bool special_agrees(double got, double want)
{
    return (isnan(got) && isnan(want)) || got == want;
}

static bool close_point(double got, double want, cf_tolerance tolerance, const limits *l)
{
    if (special(got) || special(want))
        return special_agrees(got, want);
    if (tolerance == CF_EXACT)
        return got == want;
    return tolerance == CF_NMSE || tolerance == CF_ROUNDED ||
           fabs(got - want) <= l->absolute + l->relative * fabs(want);
}

static bool close_integers(const cf_result *got, const cf_result *want, char *why, size_t size)
{
    for (int64_t i = 0; i < got->n; i++)
        if (got->integer[i] != want->integer[i]) {
            snprintf(why, size, "element %lld is %lld, ref has %lld", (long long)i,
                     (long long)got->integer[i], (long long)want->integer[i]);
            return false;
        }
    return true;
}

static double squared_error(const cf_result *got, const cf_result *want, double *scale)
{
    double error = 0;
    *scale = 0;
    for (int64_t i = 0; i < got->n; i++) {
        if (special(want->real[i]))
            continue;
        const double d = got->real[i] - want->real[i];
        error += d * d;
        *scale += want->real[i] * want->real[i];
    }
    return error;
}

/* Is every element the nearest value of the 16-bit type? With few elements, one rounding may exceed
 * the limit of the squared error. */
static bool all_nearest(const cf_result *got, const cf_result *want)
{
    const int fraction = got->dtype == FX_DTYPE_F16 ? 10 : 7;
    if (got->dtype != FX_DTYPE_F16 && got->dtype != FX_DTYPE_BF16)
        return false;
    for (int64_t i = 0; i < got->n; i++) {
        if (special(want->real[i]))
            continue;
        const int exponent = want->real[i] == 0 ? -14 : ilogb(want->real[i]);
        const double half = ldexp(0.5, exponent - fraction);
        if (fabs(got->real[i] - want->real[i]) > 1.001 * half)
            return false;
    }
    return true;
}

static bool close_nmse(const cf_result *got, const cf_result *want, double limit, char *why,
                       size_t size)
{
    double scale;
    const double error = squared_error(got, want, &scale);
    if (error <= limit * scale || all_nearest(got, want))
        return true;
    snprintf(why, size, "normalised squared error %.3g is above %.3g", error / scale, limit);
    return false;
}

bool cf_close(const cf_result *got, const cf_result *want, cf_tolerance tolerance, char *why,
              size_t size)
{
    if (!same_shape(got, want) || cf_is_real(got->dtype) != cf_is_real(want->dtype)) {
        snprintf(why, size, "rank %d, %lld elements of %s; ref has rank %d, %lld of %s", got->ndim,
                 (long long)got->n, fx_dtype_name(got->dtype), want->ndim, (long long)want->n,
                 fx_dtype_name(want->dtype));
        return false;
    }
    if (!cf_is_real(got->dtype))
        return close_integers(got, want, why, size);
    const limits *l = &allowed[got->dtype];
    if (l->absolute == 0 && tolerance == CF_POINT) /* 16-bit types have one measure */
        tolerance = CF_NMSE;
    for (int64_t i = 0; i < got->n; i++)
        if (!close_point(got->real[i], want->real[i], tolerance, l)) {
            snprintf(why, size, "element %lld is %.17g, ref has %.17g", (long long)i, got->real[i],
                     want->real[i]);
            return false;
        }
    if (tolerance == CF_ROUNDED)
        return close_nmse(got, want, l->absolute == 0 ? 40 * l->nmse : l->nmse, why, size);
    return tolerance != CF_NMSE || close_nmse(got, want, l->nmse, why, size);
}
