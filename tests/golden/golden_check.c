/* golden_check.c: compares results with the recorded ones.
 *
 * Shapes and element types must agree, integers exactly. The error of a float is at most
 * relative·|expected| + absolute: Float64 1e-12 and 1e-15, or 1e-12 of the array's largest finite
 * element for contractions, whose terms cancel; Float32 1.3e-6 and 1e-5, or for contractions
 * instead a normalised mean squared error of 1e-11 over the array; Float16 1e-3 and 1e-3. NaN
 * equals NaN and an infinity equals itself.
 */
#include "golden.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void gold_fail(gold_case *c, const char *format, ...)
{
    if (c->failed)
        return;
    c->failed = true;
    va_list args;
    va_start(args, format);
    vsnprintf(c->why, sizeof c->why, format, args);
    va_end(args);
}

void gold_check_record(gold_case *c)
{
    const fx_error e = fx_error_take();
    if (e.status != FX_OK)
        gold_fail(c, "%s: %s", fx_status_name(e.status), e.message);
}

static void dims_text(char *dst, size_t capacity, int n, const int64_t *sizes)
{
    size_t used = (size_t)snprintf(dst, capacity, "%d-d", n);
    for (int i = 0; i < n && used < capacity; i++)
        used +=
            (size_t)snprintf(dst + used, capacity - used, "%s%" PRId64, i ? "×" : " ", sizes[i]);
}

static bool same_shape(gold_case *c, const char *what, const gold_tensor *want, fx_array *got)
{
    int64_t sizes[FX_MAX_DIMS];
    const int n = fx_ndims(got);
    bool same = n == want->ndims;
    for (int i = 0; i < n; i++) {
        sizes[i] = fx_size(got, i);
        same = same && sizes[i] == want->sizes[i];
    }
    if (same)
        return true;
    char a[160], b[160];
    dims_text(a, sizeof a, want->ndims, want->sizes);
    dims_text(b, sizeof b, n, sizes);
    gold_fail(c, "%s: expected size %s, got %s", what, a, b);
    return false;
}

static bool is_real(fx_dtype d)
{
    return d == FX_DTYPE_F32 || d == FX_DTYPE_F64 || d == FX_DTYPE_F16 || d == FX_DTYPE_BF16;
}

static bool same_dtype(gold_case *c, const char *what, const gold_tensor *want, fx_array *got,
                       fx_dtype dtype)
{
    const fx_dtype expected = want->real ? dtype : want->dtype;
    const fx_dtype found = fx_eltype(got);
    if (found == expected || (expected == FX_DTYPE_COUNT && is_real(found)))
        return true;
    gold_fail(c, "%s: expected %s, got %s", what,
              expected == FX_DTYPE_COUNT ? "floating point" : fx_dtype_name(expected),
              fx_dtype_name(found));
    return false;
}

static void compare_whole(gold_case *c, const char *what, const gold_tensor *want, fx_array *got)
{
    int64_t *v = gold_alloc((size_t)want->count * sizeof *v);
    if (fx_read_as(got, FX_DTYPE_I64, v, want->count) != FX_OK)
        gold_check_record(c);
    for (int64_t i = 0; !c->failed && i < want->count; i++)
        if (v[i] != want->whole[i])
            gold_fail(c, "%s[%" PRId64 "]: expected %" PRId64 ", got %" PRId64, what, i,
                      want->whole[i], v[i]);
    free(v);
}

typedef struct bounds {
    double relative, absolute, square; /* square 0: there is no second test */
} bounds;

static bounds choose_bounds(const gold_tensor *want, gold_rule rule)
{
    if (rule.precision == GOLD_F16)
        return (bounds){1e-3, 1e-3, 0};
    if (rule.precision == GOLD_F32 || rule.kind == GOLD_SINGLE)
        return (bounds){1.3e-6, 1e-5, rule.kind == GOLD_CONTRACTION ? 1e-11 : 0};
    double largest = 0;
    for (int64_t i = 0; i < want->count; i++)
        if (isfinite(want->real[i]))
            largest = fmax(largest, fabs(want->real[i]));
    return (bounds){1e-12, rule.kind == GOLD_CONTRACTION ? 1e-12 * largest : 1e-15, 0};
}

static bool differs(double want, double got, double bound)
{
    if (isnan(want) || isinf(want))
        return isnan(want) ? !isnan(got) : want != got;
    return !(fabs(got - want) <= bound);
}

/* Σ(got−want)²/Σwant²; infinite when NaN or Inf are not where they belong. */
static double square_error(const gold_tensor *want, const double *got)
{
    double error = 0, norm = 0;
    for (int64_t i = 0; i < want->count; i++) {
        const double w = want->real[i];
        if (!isfinite(w)) {
            if (differs(w, got[i], 0))
                return (double)INFINITY;
            continue;
        }
        error += (got[i] - w) * (got[i] - w);
        norm += w * w;
    }
    return isnan(error) ? (double)INFINITY : norm > 0 ? error / norm : error;
}

static void compare_real(gold_case *c, const char *what, const gold_tensor *want, fx_array *got,
                         gold_rule rule)
{
    double *v = gold_alloc((size_t)want->count * sizeof *v);
    if (fx_read_as(got, FX_DTYPE_F64, v, want->count) != FX_OK)
        gold_check_record(c);
    const bounds b = choose_bounds(want, rule);
    int64_t worst = -1;
    double worst_excess = 0;
    for (int64_t i = 0; i < want->count; i++) {
        const double w = want->real[i];
        if (!differs(w, v[i], b.relative * fabs(w) + b.absolute))
            continue;
        const double excess = isfinite(v[i] - w) ? fabs(v[i] - w) : (double)INFINITY;
        if (worst < 0 || excess > worst_excess) {
            worst = i;
            worst_excess = excess;
        }
    }
    if (worst >= 0 && !(b.square > 0 && square_error(want, v) <= b.square))
        gold_fail(c,
                  "%s[%" PRId64 "]: expected %.17g, got %.17g (%s; normalised square error %.3g)",
                  what, worst, want->real[worst], v[worst], fx_dtype_name(fx_eltype(got)),
                  square_error(want, v));
    free(v);
}

void gold_compare(gold_case *c, const char *what, const gold_tensor *want, fx_array *got,
                  gold_rule rule)
{
    if (c->failed)
        return;
    if (!got) {
        gold_fail(c, "%s: there is none", what);
        return;
    }
    if (fx_is_error(got)) {
        gold_check_record(c);
        gold_fail(c, "%s: an error array, but no error record", what);
        return;
    }
    if (!same_shape(c, what, want, got) || !same_dtype(c, what, want, got, rule.dtype))
        return;
    if (want->real)
        compare_real(c, what, want, got, rule);
    else
        compare_whole(c, what, want, got);
}
