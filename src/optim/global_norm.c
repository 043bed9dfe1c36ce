/* global_norm.c: the norm of all gradients of a model together, and clipping by it.
 *
 * ‖g‖ = √(Σ over all arrays and elements of x²), and clipping multiplies every array by
 * min(most/‖g‖, 1), so the whole gradient keeps its direction (Pascanu, Mikolov, Bengio, 2013). The
 * arrays are visited twice: for the largest magnitude, and for the sum of the squares. If the
 * largest magnitude is very large or very small, all elements are divided by it before they are
 * squared, because x² leaves the range of Float32 above 2⁶⁴ and below 2⁻⁷⁵. Everything is recorded,
 * nothing is evaluated: the update stays one plan.
 */
#include <cflux/ops.h>
#include <cflux/optim.h>

#include "error.h"
#include "map_gradient.h"
#include "rules.h"

typedef struct squares {
    fx_array *largest; /* magnitude of an element, or an error array */
    fx_array *scale;   /* NULL: the visit looks for the largest magnitude */
    fx_array *sum;     /* of the squares of the elements divided by the scale */
} squares;

/* The sum of squares of 16-bit numbers needs the range of Float32. */
static void add_squares(fx_array *x, const char *path, bool trainable, void *user)
{
    squares *s = user;
    const fx_dtype type = fx_eltype(x);
    (void)path, (void)trainable;
    if (fx_is_error(x))
        s->largest = x;
    const bool real = type == FX_DTYPE_F64 || type == FX_DTYPE_F32 || type == FX_DTYPE_F16 ||
                      type == FX_DTYPE_BF16;
    if (fx_is_error(s->largest) || !real || fx_length(x) == 0)
        return;
    x = type == FX_DTYPE_F64 ? x : fx_cast(x, FX_DTYPE_F32);
    if (s->scale)
        s->sum = fx_add(s->sum, fx_sum(fx_square(fx_div(x, s->scale))));
    else
        s->largest = fx_max(s->largest, fx_maximum(fx_abs(x)));
}

fx_array *fx_global_norm(void *gradient)
{
    FXI_SCOPE;
    if (!gradient || fx_is_error(gradient))
        return fx_keep(
            fx_error_array(gradient && fx_error_status() != FX_OK
                               ? fx_error_status()
                               : fx_fail(FX_STATUS_ARGUMENT, "global_norm", "the gradient is %s",
                                         gradient ? "an error object" : "NULL")));
    squares s = {.largest = fx_scalar(0), .sum = fx_scalar(0)};
    const fx_error earlier = fxi_error_begin();
    fx_visit(gradient, add_squares, &s);
    s.scale = fxi_norm_scale(s.largest);
    fx_visit(gradient, add_squares, &s);
    const fx_status status = fxi_error_end(&earlier);
    return fx_keep(status == FX_OK ? fx_mul(s.scale, fx_sqrt(s.sum)) : fx_error_array(status));
}

static fx_array *scaled(fx_array *x, void *factor)
{
    return fx_mul(x, fx_cast(factor, fx_eltype(x)));
}

void *fxi_clip_global_norm(void *gradient, double most)
{
    FXI_SCOPE;
    if (!(most >= 0))
        fx_fail(FX_STATUS_ARGUMENT, "clip_global_norm",
                "the largest norm is %g, expected at least 0", most);
    fx_array *norm = most >= 0 ? fx_global_norm(gradient) : fx_error_array(FX_STATUS_ARGUMENT);
    if (fx_is_error(norm))
        return !gradient || fx_is_array(gradient) ? fx_keep(norm)
                                                  : fx_error_object(fx_type_of(gradient));
    return fx_keep(
        fxi_map_gradient(scaled, fxi_norm_factor(fx_scalar(most), most, norm), gradient));
}
