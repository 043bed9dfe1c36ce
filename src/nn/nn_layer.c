/* nn_layer.c: functions that the built-in layers share: checks of inputs and options, weights and
 * biases.
 *
 * Messages of failed checks are Flux's, with Julia's axis numbers (from 1), because they quote
 * Julia expressions: size(input, 1). A warning about an element type is given once per process, as
 * Flux's @warn with maxlog=1, so that a training loop does not repeat it.
 */
#include "nn_layer.h"
#include "c_text.h"

#include "memory.h"

#include <inttypes.h>
#include <stdarg.h>

enum { SUMMARY_TEXT = 200 };

bool fxi_layer_fail(const fx_type *type, const char *format, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, format);
    fxi_vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    fx_fail(FX_STATUS_ARGUMENT, type->name, "%s", text);
    return false;
}

const char *fxi_given(const void *object, char *text, size_t size)
{
    snprintf(text, size, "NULL");
    if (object)
        fx_summary((void *)(uintptr_t)object, text, size);
    return text;
}

const char *fxi_dims_text(const fx_dims *d, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "(");
    for (int64_t i = 0; i < d->n && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%" PRId64, i ? ", " : "", d->v[i]);
    if (n < size)
        snprintf(text + n, size - n, d->n == 1 ? ",)" : ")");
    return text;
}

fx_status fxi_expect_array(const char *op, const char *what, const fx_array *x)
{
    char got[SUMMARY_TEXT];
    if (!x)
        return fx_fail(FX_STATUS_ARGUMENT, op, "%s is NULL", what);
    if (!fx_is_array(x))
        return fx_fail(FX_STATUS_ARGUMENT, op, "%s must be an array, got %s", what,
                       fxi_given(x, got, sizeof got));
    return fx_array_status(x);
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

fx_array *fxi_weighted_input(const void *layer, int n, void *const *args, fx_array *weight)
{
    fx_array *x = fxi_layer_input(layer, n, args);
    if (fx_is_error(x) || !fx_is_error(weight))
        return x;
    return fx_error_array(fx_array_status(weight));
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

fx_status fxi_expect_sizes(void *layer, fx_array *x, const fx_dims *sizes)
{
    fx_status status = FX_OK;
    for (int i = 0; i < (int)sizes->n && status == FX_OK; i++)
        status = fxi_expect_size(layer, x, i, sizes->v[i]);
    return status;
}

bool fxi_positive_sizes(const fx_type *type, const fx_dims *sizes)
{
    bool ok = sizes->n >= 1 && sizes->n <= FX_MAX_DIMS;
    for (int64_t i = 0; ok && i < sizes->n; i++)
        ok = sizes->v[i] >= 1;
    char got[SUMMARY_TEXT];
    return ok || fxi_layer_fail(type, "takes 1 to %d positive sizes, got %s", FX_MAX_DIMS,
                                fxi_dims_text(sizes, got, sizeof got));
}

fx_status fxi_expect_ndims(void *layer, fx_array *x, int ndims)
{
    if (fx_ndims(x) == ndims)
        return FX_OK;
    char what[64];
    snprintf(what, sizeof what, "ndims(input) == %d", ndims);
    return fxi_layer_mismatch(layer, x, FX_STATUS_SHAPE, what);
}

bool fxi_is_floating(fx_dtype t)
{
    return t == FX_DTYPE_F32 || t == FX_DTYPE_F64 || fxi_is_half(t);
}

fx_array *fxi_match_type(fx_array *parameter, fx_array *x)
{
    static bool warned[2];
    if (fx_is_error(parameter))
        return fx_error_array(fx_array_status(parameter));
    const fx_dtype want = fx_eltype(parameter), got = fx_eltype(x);
    if (want == got || !fxi_is_floating(want))
        return x;
    const bool wide = want == FX_DTYPE_F32 && got == FX_DTYPE_F64;
    const bool half = want == FX_DTYPE_F16 && got == FX_DTYPE_F32;
    if ((wide || half) && !__atomic_test_and_set(&warned[half], __ATOMIC_RELAXED))
        fx_message(1,
                   "Layer with %s parameters got %s input.\n"
                   "  The input will be converted, but %s.",
                   fx_dtype_name(want), fx_dtype_name(got),
                   half ? "may indicate a problem in earlier layers"
                        : "any earlier layers may be very slow");
    return fx_cast(x, want);
}

fx_array *fxi_activate(fx_function *act, fx_array *x)
{
    if (!act)
        return x;
    /* Other types of functions have state that `apply` does not get. */
    return act->base.type == FX_IDENTITY->base.type ? act->apply(x) : fx_call(act, x);
}

/* Multiplies the remaining sizes instead of inferring one, so that arrays of length 0 work. */
fx_array *fxi_weighted(fx_array *weight, fx_array *x)
{
    const int nd = fx_ndims(x);
    if (nd <= 2)
        return fx_matmul(weight, x);
    int64_t sizes[FX_MAX_DIMS], rest = 1;
    for (int i = 1; i < nd; i++)
        rest *= sizes[i] = fx_size(x, i);
    sizes[0] = fx_size(weight, 0);
    return fxi_reshape(fx_matmul(weight, fx_reshape(x, fx_size(x, 0), rest)), nd, sizes);
}

fx_array *fxi_biased(fx_array *y, fx_array *bias, int axis)
{
    int64_t sizes[FX_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (!bias || fx_is_error(y))
        return y;
    if (fx_ndims(y) <= 1)
        return fx_add(y, bias);
    sizes[axis] = fx_size(bias, 0);
    return fx_add(y, fxi_reshape(bias, fx_ndims(y), sizes));
}

/* ---- options ----------------------------------------------------------------------------- */

static bool has_sizes(fx_array *x, int ndims, const int64_t *sizes)
{
    bool same = fx_ndims(x) == ndims;
    for (int i = 0; i < ndims && same; i++)
        same = !sizes[i] || fx_size(x, i) == sizes[i];
    return same;
}

/* Formats sizes, with n for any size: "3×n". */
static const char *sizes_text(int ndims, const int64_t *sizes, char text[SUMMARY_TEXT])
{
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < ndims && n < SUMMARY_TEXT; i++) {
        char size[24] = "n";
        if (sizes[i])
            snprintf(size, sizeof size, "%" PRId64, sizes[i]);
        n += (size_t)snprintf(text + n, SUMMARY_TEXT - n, "%s%s", i ? "×" : "", size);
    }
    return text;
}

/* Refuses a weight of more bytes than any array can have; an initialiser's own error would not name
 * the layer. */
static bool sizes_overflow(const fx_type *type, int ndims, const int64_t *sizes)
{
    char text[SUMMARY_TEXT];
    double bytes = 4;
    for (int i = 0; i < ndims; i++)
        bytes *= (double)sizes[i];
    return bytes >= 0x1p59 && !fxi_layer_fail(type, "a weight of size %s is too large",
                                              sizes_text(ndims, sizes, text));
}

/* Refuses a weight of wrong sizes: `given`, or the result of init if `given` is NULL. */
static bool other_sizes(const fx_type *type, fx_array *given, int ndims, const int64_t *sizes)
{
    char wanted[SUMMARY_TEXT], got[SUMMARY_TEXT];
    sizes_text(ndims, sizes, wanted);
    if (!given)
        return fxi_layer_fail(type, "init returned an array whose size is not %s", wanted);
    fx_summary(given, got, sizeof got);
    return fxi_layer_fail(type, "weight must be an array of size %s, got %s", wanted, got);
}

bool fxi_weight(const fx_type *type, fx_array **io_weight, fx_init_fn init, int ndims,
                const int64_t *sizes)
{
    if (*io_weight)
        return has_sizes(*io_weight, ndims, sizes) || other_sizes(type, *io_weight, ndims, sizes);
    if (!init)
        return fxi_layer_fail(type, "init is NULL");
    if (sizes_overflow(type, ndims, sizes))
        return false;
    *io_weight = init(ndims, sizes);
    if (fx_is_error(*io_weight))
        return false;
    return has_sizes(*io_weight, ndims, sizes) || other_sizes(type, NULL, ndims, sizes);
}

bool fxi_bias(const fx_type *type, fx_array **io_bias, bool wanted, fx_array *weight, int64_t n)
{
    char got[SUMMARY_TEXT];
    if (!wanted)
        return !*io_bias || fxi_layer_fail(type, "bias_array was given with bias = false");
    if (!*io_bias)
        *io_bias = fxi_full(fx_eltype(weight), 0, 1, &n);
    else if (has_sizes(*io_bias, 1, &n))
        *io_bias = fx_cast(*io_bias, fx_eltype(weight));
    else {
        fx_summary(*io_bias, got, sizeof got);
        fx_fail(FX_STATUS_SHAPE, type->name, "expected bias of size (%" PRId64 ",), got %s", n,
                got);
        return false;
    }
    return !fx_is_error(*io_bias);
}

bool fxi_filled(fx_array **out, double value, int ndims, const int64_t *sizes)
{
    *out = fxi_full(FX_DTYPE_F32, value, ndims, sizes);
    return !fx_is_error(*out);
}

static bool all_at_least(const fx_dims *d, int64_t least)
{
    for (int64_t i = 0; i < d->n; i++)
        if (d->v[i] < least)
            return false;
    return true;
}

bool fxi_same_dims(const fx_dims *a, const fx_dims *b)
{
    bool same = a->n == b->n;
    for (int64_t i = 0; i < a->n && same; i++)
        same = a->v[i] == b->v[i];
    return same;
}

static fx_dims repeated(int64_t n, int64_t value)
{
    fx_dims d = {.n = n};
    for (int64_t i = 0; i < n; i++)
        d.v[i] = value;
    return d;
}

bool fxi_spread_option(const fx_type *type, const char *name, const fx_dims *given, int spatial,
                       int64_t least, fx_dims *out)
{
    *out = given->n == spatial ? *given : repeated(spatial, given->v[0]);
    if ((given->n == 1 || given->n == spatial) && all_at_least(out, least))
        return true;
    char got[SUMMARY_TEXT];
    char axes[48] = "one number";
    if (spatial > 1)
        snprintf(axes, sizeof axes, "one number, or one for each of %d axes,", spatial);
    fx_fail(FX_STATUS_ARGUMENT, type->name, "%s takes %s of at least %" PRId64 ", got %s", name,
            axes, least, fxi_dims_text(given, got, sizeof got));
    return false;
}

bool fxi_spread_padding(const fx_type *type, const fx_dims *given, const fx_dims *kernel,
                        const fx_dims *dilation, fx_dims *out)
{
    const int64_t n = kernel->n;
    /* FX_SAME: (k − 1)·dilation elements, half on each side; of an odd number, one more before the
     * input (Dumoulin, Visin, 2016). */
    if (given->n == -1) {
        out->n = 2 * n;
        for (int64_t i = 0; i < n; i++) {
            int64_t total;
            if (!fxi_mul_i64(kernel->v[i] - 1, dilation ? dilation->v[i] : 1, &total))
                return fxi_layer_fail(type,
                                      "the padding of FX_SAME is too large: kernel %" PRId64
                                      ", dilation %" PRId64,
                                      kernel->v[i], dilation->v[i]);
            out->v[2 * i] = total - total / 2;
            out->v[2 * i + 1] = total / 2;
        }
        return true;
    }
    *out = given->n == 1 ? repeated(2 * n, given->v[0]) : *given;
    if ((given->n == 1 || given->n == n || given->n == 2 * n) && all_at_least(out, 0))
        return true;
    char got[SUMMARY_TEXT];
    fx_fail(
        FX_STATUS_ARGUMENT, type->name,
        "pad takes FX_SAME, or numbers of at least 0: one, %d (one for each axis) or %d (two for "
        "each axis), got %s",
        (int)n, (int)(2 * n), fxi_dims_text(given, got, sizeof got));
    return false;
}
