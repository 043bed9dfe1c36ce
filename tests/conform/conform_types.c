/* conform_types.c: every operation with every element type, also those that its row does not list.
 *
 * An operation may refuse a type when it is called, with an error. If it accepts the type, the
 * evaluation must succeed: an error there is too late, and names a kernel instead of the call. The
 * same holds for the gradients of the inputs that have one.
 */
#include "conform.h"

#include <stdio.h>

/* FX_OK, or the status of the first array whose evaluation failed. */
static fx_status evaluate_all(fx_array *const *x, int n)
{
    for (int k = 0; k < n; k++) {
        const fx_status s = fx_is_error(x[k]) ? FX_OK : fx_eval(x[k]);
        if (s != FX_OK)
            return s;
    }
    return FX_OK;
}

static bool is_real(const fx_array *x)
{
    return cf_is_real(fx_eltype(x));
}

/* Makes y and the gradients of its sum; returns the number of arrays. */
static int build(const cf_case *c, fx_array **x, fx_array **out)
{
    fx_array *reals[CF_MAX_IN];
    int n = 0;
    out[0] = c->row->build(x, c->shape.param);
    for (int k = 0; k < c->row->nin; k++)
        if (!fx_is_error(x[k]) && is_real(x[k]))
            reals[n++] = x[k];
    if (n == 0 || fx_is_error(out[0]) || !is_real(out[0]))
        return 1;
    return fx_gradient_of(fx_sum(out[0]), reals, n, out + 1) == FX_OK ? 1 + n : 1;
}

cf_outcome cf_run_types(const cf_options *o, const cf_case *c, char *why, size_t size)
{
    fx_array *x[CF_MAX_IN], *y[1 + CF_MAX_IN];
    FX_SCOPE;
    for (int k = 0; k < c->row->nin; k++) {
        cf_values v;
        if (!cf_make_values(c, k, &v)) {
            snprintf(why, size, "out of memory");
            return CF_FAIL;
        }
        x[k] = cf_array(o->device, &v, c->variant);
        cf_free_values(&v);
    }
    const int n = build(c, x, y);
    fx_error_take(); /* refused when called */
    const uint64_t before = fx_stats().steps_run;
    const fx_status status = evaluate_all(y, n);
    cf_device_kernels += fx_stats().steps_run - before;
    if (status == FX_OK)
        return CF_PASS;
    const fx_error e = fx_error_take();
    snprintf(why, size, "accepted when called, failed when evaluated: %s %s",
             fx_status_name(e.status), e.message);
    return CF_FAIL;
}
