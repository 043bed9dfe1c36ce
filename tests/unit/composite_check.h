/* composite_check.h: what the tests of composite operations share.
 *
 * Expected values come from libm in long double, from closed forms written out in the tests, or
 * from central differences in Float64; never from the library. A comparison accepts an error of abs
 * + rel·|expected|; NaN equals NaN and infinities equal themselves.
 */
#ifndef CFLUX_COMPOSITE_CHECK_H
#define CFLUX_COMPOSITE_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux/grad.h>
#include <cflux/ops.h>
#include <math.h>
#include <string.h>

enum { CHECK_MOST = 256 };

#define COUNT(a) ((int64_t)(sizeof(a) / sizeof((a)[0])))

static inline void check_value(const char *what, int64_t i, double got, double want, double rel,
                               double abs)
{
    if (isnan(want) ? isnan(got) : got == want)
        return;
    if (!(fabs(got - want) <= abs + rel * fabs(want)))
        fail_msg("%s, element %lld: %.17g, expected %.17g", what, (long long)i, got, want);
}

/* The elements of x, as doubles; fails on an error array. */
static inline void check_read(const char *what, fx_array *x, double *out, int64_t n)
{
    if (fx_is_error(x) || fx_length(x) != n || fx_read_as(x, FX_DTYPE_F64, out, n) != FX_OK) {
        const fx_error e = fx_error_take();
        fail_msg("%s: %lld elements instead of %lld, status %s: %s", what, (long long)fx_length(x),
                 (long long)n, fx_status_name(fx_array_status(x)), e.message);
    }
}

static inline void check_array(const char *what, fx_array *x, int64_t n, const double *want,
                               double rel, double abs)
{
    double got[CHECK_MOST];
    assert_true(n <= CHECK_MOST);
    check_read(what, x, got, n);
    for (int64_t i = 0; i < n; i++)
        check_value(what, i, got[i], want[i], rel, abs);
}

static inline void check_dims(const char *what, const fx_array *x, int ndims, const int64_t *sizes)
{
    if (fx_ndims(x) != ndims)
        fail_msg("%s: %d axes, expected %d", what, fx_ndims(x), ndims);
    for (int i = 0; i < ndims; i++)
        if (fx_size(x, i) != sizes[i])
            fail_msg("%s: axis %d has size %lld, expected %lld", what, i, (long long)fx_size(x, i),
                     (long long)sizes[i]);
}

/* check(x, (3, 4), 1e-12, values…): shape and exact list of elements, column-major. */
#define UNPACK(...) __VA_ARGS__
#define CHECK(x, dims, tolerance, ...)                                                             \
    do {                                                                                           \
        fx_array *const checked = (x);                                                             \
        const int64_t checked_dims[] = {0, UNPACK dims};                                           \
        const double checked_want[] = {__VA_ARGS__};                                               \
        check_dims(#x, checked, (int)COUNT(checked_dims) - 1, checked_dims + 1);                   \
        check_array(#x, checked, COUNT(checked_want), checked_want, (tolerance), (tolerance));     \
    } while (0)

/* x failed with this status and a message that contains text; takes the record. */
static inline void check_error(fx_array *x, fx_status status, const char *text)
{
    assert_true(fx_is_error(x));
    const fx_error e = fx_error_take();
    if (fx_array_status(x) != status || e.status != status || !strstr(e.message, text))
        fail_msg("got %s and \"%s\", expected %s and \"%s\"", fx_status_name(fx_array_status(x)),
                 e.message, fx_status_name(status), text);
}

static inline fx_array *vector64(const double *v, int64_t n)
{
    return fxi_from(FX_DTYPE_F64, v, 1, &n);
}

static inline fx_array *scalar32(double value)
{
    return fxi_full(FX_DTYPE_F32, value, 0, NULL);
}

typedef fx_array *(*unary_fn)(fx_array *);

/* Σ w·f(x) with fixed uneven weights, so that every element of f has a different gradient. */
static inline fx_array *weighted_sum(fx_array *y)
{
    double w[CHECK_MOST];
    for (int i = 0; i < CHECK_MOST; i++)
        w[i] = 1 + 0.25 * (i % 7) - 0.125 * (i % 3);
    const int64_t n = fx_length(y);
    return fx_sum(fx_mul(fx_vec(y), vector64(w, n)));
}

/* d Σ w·f(x) / dx. */
static inline fx_array *gradient_of(unary_fn f, fx_array *x)
{
    fx_array *g = NULL;
    fx_gradient_of(weighted_sum(f(x)), &x, 1, &g);
    return g;
}

/* x of this shape with element i moved by h. */
static inline fx_array *moved(const double *at, int64_t i, double h, int ndims,
                              const int64_t *sizes)
{
    double v[CHECK_MOST];
    int64_t n = 1;
    for (int k = 0; k < ndims; k++)
        n *= sizes[k];
    memcpy(v, at, (size_t)n * sizeof *v);
    v[i] += h;
    return fxi_from(FX_DTYPE_F64, v, ndims, sizes);
}

/* Gradient and gradient of the gradient of f at a point, against central differences. The second
 * one differentiates Σ w·g, where g is the gradient that the library built. */
static inline void check_gradients(const char *what, unary_fn f, const double *at, int ndims,
                                   const int64_t *sizes, double tolerance)
{
    FX_SCOPE;
    const double h = 1e-5;
    fx_array *x = moved(at, 0, 0, ndims, sizes), *g = gradient_of(f, x), *gg = NULL;
    const int64_t n = fx_length(x);
    double first[CHECK_MOST], second[CHECK_MOST];
    fx_gradient_of(weighted_sum(g), &x, 1, &gg);
    check_read(what, g, first, n);
    check_read(what, gg, second, n);
    for (int64_t i = 0; i < n; i++) {
        FX_SCOPE;
        fx_array *up = moved(at, i, h, ndims, sizes), *down = moved(at, i, -h, ndims, sizes);
        const double slope =
            (fx_item(weighted_sum(f(up))) - fx_item(weighted_sum(f(down)))) / (2 * h);
        const double bend = (fx_item(weighted_sum(gradient_of(f, up))) -
                             fx_item(weighted_sum(gradient_of(f, down)))) /
                            (2 * h);
        check_value(what, i, first[i], slope, tolerance, tolerance);
        check_value(what, i, second[i], bend, 10 * tolerance, 10 * tolerance);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

#endif
