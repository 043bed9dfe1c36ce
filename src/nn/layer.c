/* layer.c: what the built-in layers share: checks of inputs and options, and pieces of
 * descriptions.
 *
 * The texts of failed checks are Flux's, Julia's axis numbers (from 1) included, because they quote
 * Julia expressions: size(input, 1). Warnings about element types are given once per process, as
 * Flux's @warn with maxlog=1, so a training loop is not drowned in them.
 * Descriptions are made of the same pieces for all layers so that they agree with Flux byte for
 * byte.
 */
#include "layer.h"

#include <inttypes.h>
#include <stdarg.h>

enum { SUMMARY_TEXT = 200 };

void *fxi_refuse(const fx_type *type, const char *format, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    fx_fail(FX_STATUS_ARGUMENT, type->name, "%s", text);
    return fxi_error_object(type);
}

/* ---- inputs ----------------------------------------------------------------------------- */

fx_array *fxi_layer_input(const void *layer, int n, void *const *args)
{
    const fx_type *type = fx_type_of(layer);
    if (layer == type->error)
        return fx_error_array(FX_STATUS_ARGUMENT);
    if (n == 1 && args[0] && fx_is_array(args[0]))
        return args[0];
    if (n == 1 && args[0] && fx_is_error(args[0]))
        return fx_error_array(FX_STATUS_ARGUMENT);
    if (n != 1 || !args[0]) {
        fx_fail(FX_STATUS_ARGUMENT, type->name, "expects one array, got %s",
                n > 1 ? "several inputs" : "none");
        return fx_error_array(FX_STATUS_ARGUMENT);
    }
    char got[SUMMARY_TEXT];
    fx_summary(args[0], got, sizeof got);
    fx_fail(FX_STATUS_ARGUMENT, type->name, "expects one array, got %s", got);
    return fx_error_array(FX_STATUS_ARGUMENT);
}

fx_status fxi_layer_mismatch(void *layer, fx_array *x, fx_status status, const char *expectation)
{
    char self[SUMMARY_TEXT], got[SUMMARY_TEXT];
    fx_summary(layer, self, sizeof self);
    fx_summary(x, got, sizeof got);
    return fx_fail(status, fx_type_of(layer)->name, "layer %s expects %s, but got %s", self,
                   expectation, got);
}

fx_status fxi_expect_size(void *layer, fx_array *x, int axis, int64_t size)
{
    if (axis < fx_ndims(x) && fx_size(x, axis) == size)
        return FX_OK;
    char what[64];
    snprintf(what, sizeof what, "size(input, %d) == %" PRId64, axis + 1, size);
    return fxi_layer_mismatch(layer, x, FX_STATUS_SHAPE, what);
}

fx_status fxi_expect_ndims(void *layer, fx_array *x, int ndims)
{
    if (fx_ndims(x) == ndims)
        return FX_OK;
    char what[64];
    snprintf(what, sizeof what, "ndims(input) == %d", ndims);
    return fxi_layer_mismatch(layer, x, FX_STATUS_SHAPE, what);
}

static bool is_float(fx_dtype t)
{
    return t != FX_DTYPE_BOOL && t != FX_DTYPE_U8 && t != FX_DTYPE_I32 && t != FX_DTYPE_I64;
}

fx_array *fxi_match_type(fx_array *parameter, fx_array *x)
{
    static bool warned[2];
    if (fx_is_error(parameter))
        return fx_error_array(fx_array_status(parameter));
    const fx_dtype want = fx_eltype(parameter), got = fx_eltype(x);
    if (want == got || !is_float(want))
        return x;
    const bool wide = want == FX_DTYPE_F32 && got == FX_DTYPE_F64;
    const bool half = want == FX_DTYPE_F16 && got == FX_DTYPE_F32;
    if ((wide || half) && !__atomic_test_and_set(&warned[half], __ATOMIC_RELAXED))
        fx_message(1,
                   "Layer with %s parameters got %s input.\n"
                   "  The input will be converted, but any earlier layers may be very slow.",
                   fx_dtype_name(want), fx_dtype_name(got));
    return fx_cast(x, want);
}

fx_array *fxi_activate(fx_function *act, fx_array *x)
{
    return act ? act->apply(x) : x;
}

/* ---- options ---------------------------------------------------------------------------- */

fx_array *fxi_parameter_vector(const fx_type *type, fx_array *given, fx_dtype t, int64_t n,
                               double value)
{
    if (!given)
        return fxi_full(t, value, 1, &n);
    if (fx_ndims(given) == 1 && fx_size(given, 0) == n)
        return fx_cast(given, t);
    char got[SUMMARY_TEXT];
    fx_summary(given, got, sizeof got);
    fx_fail(FX_STATUS_SHAPE, type->name, "expected bias of size (%" PRId64 ",), got %s", n, got);
    return NULL;
}

static bool all_at_least(const fx_dims *d, int64_t least)
{
    for (int64_t i = 0; i < d->n; i++)
        if (d->v[i] < least)
            return false;
    return true;
}

static fx_dims repeated(int64_t n, int64_t value)
{
    fx_dims d = {.n = n};
    for (int64_t i = 0; i < n; i++)
        d.v[i] = value;
    return d;
}

bool fxi_spread_option(const fx_type *type, const char *name, const fx_dims *given, int spatial,
                       int64_t otherwise, int64_t least, fx_dims *out)
{
    *out =
        given->n == spatial ? *given : repeated(spatial, given->n == 1 ? given->v[0] : otherwise);
    if ((given->n == 0 || given->n == 1 || given->n == spatial) && all_at_least(out, least))
        return true;
    fx_fail(FX_STATUS_ARGUMENT, type->name, "%s takes one number or %d, each at least %" PRId64,
            name, spatial, least);
    return false;
}

bool fxi_spread_padding(const fx_type *type, const fx_dims *given, const fx_dims *kernel,
                        const fx_dims *dilation, fx_dims *out)
{
    const int64_t n = kernel->n;
    if (given->n == -1) { /* Dumoulin, Visin, 2016: half of the kernel's reach on each side, the odd
                             one before */
        out->n = 2 * n;
        for (int64_t i = 0; i < n; i++) {
            const int64_t total = (kernel->v[i] - 1) * (dilation ? dilation->v[i] : 1);
            out->v[2 * i] = total - total / 2;
            out->v[2 * i + 1] = total / 2;
        }
        return true;
    }
    *out = given->n <= 1 ? repeated(2 * n, given->n == 1 ? given->v[0] : 0) : *given;
    if ((given->n == 0 || given->n == 1 || given->n == n || given->n == 2 * n) &&
        all_at_least(out, 0))
        return true;
    fx_fail(FX_STATUS_ARGUMENT, type->name,
            "pad takes one number, %d, %d, or FX_SAME, each at least 0", (int)n, (int)(2 * n));
    return false;
}

/* ---- descriptions ----------------------------------------------------------------------- */

void fxi_describe_act(fx_text *text, const fx_function *act)
{
    if (act && act != FX_IDENTITY)
        fx_text_add(text, ", %s", act->name);
}

void fxi_describe_dims(fx_text *text, const fx_dims *d)
{
    fx_text_add(text, "(");
    for (int64_t i = 0; i < d->n; i++)
        fx_text_add(text, "%s%" PRId64, i ? ", " : "", d->v[i]);
    fx_text_add(text, d->n == 1 ? ",)" : ")");
}

void fxi_describe_option(fx_text *text, const char *name, const fx_dims *d, int64_t silent)
{
    bool equal = true;
    for (int64_t i = 1; i < d->n; i++)
        equal = equal && d->v[i] == d->v[0];
    if (d->n == 0 || (equal && d->v[0] == silent))
        return;
    fx_text_add(text, ", %s=", name);
    if (equal)
        fx_text_add(text, "%" PRId64, d->v[0]);
    else
        fxi_describe_dims(text, d);
}
