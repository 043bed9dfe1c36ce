/* conform_values.c: shapes from text, input values, and the layouts they are given on a device.
 *
 * Values are the golden-ratio sequence over the domain: distinct, evenly spread, about range/n
 * apart, and the same on every machine. They are rounded to the case's type on the host, so that
 * ref in Float64 starts from the same numbers: 16-bit types take multiples of 1/32.
 */
#include "conform.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const cf_variant_names[CF_VARIANTS] = {"plain", "strided", "unaligned", "broadcast",
                                                   "special"};
const char *const cf_type_names[FX_DTYPE_COUNT] = {"f32", "f64",  "i32", "i64",
                                                   "u8",  "bool", "f16", "bf16"};

bool cf_is_real(fx_dtype t)
{
    return t == FX_DTYPE_F32 || t == FX_DTYPE_F64 || t == FX_DTYPE_F16 || t == FX_DTYPE_BF16;
}

fx_device *cf_ref_device(void)
{
    return fx_device_get("ref", 0);
}

/* ---- shapes from text ------------------------------------------------------------------------ */
static const char *parse_sizes(const char *s, int *ndim, int64_t *sizes)
{
    *ndim = 0;
    if (*s == 's')
        return s + 1;
    while (isdigit((unsigned char)*s) && *ndim < FX_MAX_DIMS) {
        char *end;
        sizes[(*ndim)++] = strtoll(s, &end, 10);
        s = *end == 'x' ? end + 1 : end;
    }
    return s;
}

static const char *parse_params(const char *s, int64_t *param)
{
    for (int k = 0; *s && k < CF_MAX_PARAMS; k++) {
        char *end;
        param[k] = strtoll(s, &end, 10);
        s = *end == ',' ? end + 1 : end;
    }
    return s;
}

bool cf_parse_shape(const char *text, cf_shape *out)
{
    memset(out, 0, sizeof *out);
    out->full_only = *text == '+';
    text += out->full_only;
    const char *equals = strchr(text, '='), *body = equals ? equals + 1 : text;
    const char *end = equals ? equals : text + strlen(text);
    snprintf(out->name, sizeof out->name, "%.*s", (int)(end - text), text);
    for (char *c = out->name; *c; c++)
        *c = *c == ' ' ? '_' : *c;
    while (*body && *body != ':' && out->nin < CF_MAX_IN) {
        body = parse_sizes(body, &out->ndim[out->nin], out->sizes[out->nin]);
        out->nin++;
        body += *body == ' ';
    }
    if (*body == ':')
        body = parse_params(body + 1, out->param);
    return *body == '\0';
}

/* ---- values ---------------------------------------------------------------------------------- */
typedef struct range {
    double low, high;
    int64_t ilow, ihigh;
} range;
static const range ranges[] = {
    [CF_ANY] = {-2, 2, -9, 9},       [CF_WIDE] = {-8, 8, -9, 9},
    [CF_POS] = {0.2, 3, 1, 9},       [CF_NONZERO] = {0.3, 2.3, 1, 9},
    [CF_UNIT] = {-0.95, 0.95, 0, 0}, [CF_ABOVE1] = {1.1, 4, 2, 9},
    [CF_PROB] = {0.05, 0.95, 0, 1},  [CF_HUGE] = {-1e12, 1e12, -1000000007, 1000000007},
    [CF_TIES] = {-1, 1, -1, 1},      [CF_BOOL] = {0, 1, 0, 1},
};

/* A number in [0, 1): the fractional part of a multiple of the golden ratio, with another start for
 * each input. */
static double spread(int64_t i, int input)
{
    const double v = (double)(i + 1) * 0.6180339887498949 + 0.3711 * input;
    return v - floor(v);
}

static double quantised(fx_dtype t, double v)
{
    if (t == FX_DTYPE_F32)
        return (double)(float)v;
    if (t == FX_DTYPE_F64)
        return v;
    const double q = nearbyint(v * 32) / 32; /* |v| < 8: exact in Float16 and BFloat16 */
    return q == 0 ? 0.03125 : q;
}

static double real_value(cf_domain d, fx_dtype t, int64_t i, int input)
{
    const double v = ranges[d].low + (ranges[d].high - ranges[d].low) * spread(i, input);
    if (d == CF_TIES)
        return nearbyint(2 * v) / 2;
    return quantised(t, d == CF_NONZERO && (i + input) % 2 ? -v : v);
}

static int64_t integer_value(cf_domain d, fx_dtype t, int64_t i, int input)
{
    if (t == FX_DTYPE_BOOL)
        return spread(i, input) < 0.5;
    if (t == FX_DTYPE_U8 && (d == CF_ANY || d == CF_WIDE || d == CF_HUGE))
        return (int64_t)(256 * spread(i, input));
    int64_t low = ranges[d].ilow;
    if (t == FX_DTYPE_U8 && low < 0)
        low = 0;
    const int64_t v = low + (int64_t)((double)(ranges[d].ihigh - low + 1) * spread(i, input));
    return d == CF_NONZERO && t != FX_DTYPE_U8 && (i + input) % 2 ? -v : v;
}

/* Sums of the multi-index modulo n are distinct along every axis of at most n. */
static int64_t distinct_index(const cf_values *v, int64_t i, int64_t n)
{
    int64_t sum = 0;
    for (int k = 0; k < v->ndim; k++) {
        sum += i % v->sizes[k];
        i /= v->sizes[k];
    }
    return n ? (sum + 1) % n : 0;
}

static double special_real(double plain, int64_t i)
{
    static const double special[] = {NAN, INFINITY, -INFINITY, -0.0};
    return i % 7 == 3 ? special[i / 7 % 4] : plain;
}

static int64_t special_integer(fx_dtype t, int64_t plain, int64_t i)
{
    static const int64_t low[FX_DTYPE_COUNT] =
        {[FX_DTYPE_I32] = INT32_MIN, [FX_DTYPE_I64] = INT64_MIN},
                         high[FX_DTYPE_COUNT] = {[FX_DTYPE_I32] = INT32_MAX,
                                                 [FX_DTYPE_I64] = INT64_MAX,
                                                 [FX_DTYPE_U8] = UINT8_MAX,
                                                 [FX_DTYPE_BOOL] = 1};
    if (i % 5 != 2)
        return plain;
    const int64_t special[] = {low[t], high[t], 0};
    return special[i / 5 % 3];
}

static bool is_index(cf_domain d)
{
    return d == CF_INDEX || d == CF_INDEX_DISTINCT;
}

static fx_dtype input_type(const cf_case *c, int input)
{
    const cf_domain d = c->row->domain[input];
    if (d == CF_BOOL)
        return FX_DTYPE_BOOL;
    if (is_index(d)) /* both index types are tested */
        return c->variant == CF_PLAIN ? FX_DTYPE_I64 : FX_DTYPE_I32;
    return c->dtype;
}

/* The axis along which the broadcast variant is constant. */
static int constant_axis(const cf_values *v)
{
    return v->ndim - 1;
}

/* The position whose value element i gets: along a broadcast axis, that with index 0. */
static int64_t source_of(const cf_case *c, const cf_values *v, int input, int64_t i)
{
    if (c->variant != CF_BROADCAST || v->ndim == 0 || is_index(c->row->domain[input]))
        return i;
    int64_t stride = 1;
    for (int k = 0; k < constant_axis(v); k++)
        stride *= v->sizes[k];
    return i % stride;
}

static int64_t one_integer(const cf_case *c, const cf_values *v, int input, int64_t i)
{
    const cf_domain d = c->row->domain[input];
    const int64_t n = c->shape.param[0];
    if (d == CF_INDEX_DISTINCT)
        return distinct_index(v, i, n);
    if (d == CF_INDEX)
        return (int64_t)((double)n * spread(i, input));
    const int64_t plain = integer_value(d, v->dtype, i, input);
    return c->variant == CF_SPECIAL ? special_integer(v->dtype, plain, i) : plain;
}

static bool allocate(cf_values *v)
{
    v->n = 1;
    for (int k = 0; k < v->ndim; k++)
        v->n *= v->sizes[k];
    const size_t count = (size_t)v->n + 1;
    v->real = calloc(count, sizeof(double));
    v->integer = calloc(count, sizeof(int64_t));
    return v->real && v->integer;
}

bool cf_make_values(const cf_case *c, int input, cf_values *out)
{
    memset(out, 0, sizeof *out);
    out->dtype = input_type(c, input);
    out->ndim = c->shape.ndim[input];
    memcpy(out->sizes, c->shape.sizes[input], sizeof out->sizes);
    if (!allocate(out)) {
        cf_free_values(out);
        return false;
    }
    for (int64_t i = 0; i < out->n; i++) {
        const int64_t from = source_of(c, out, input, i);
        if (cf_is_real(out->dtype)) {
            const double v = real_value(c->row->domain[input], out->dtype, from, input);
            out->real[i] = c->variant == CF_SPECIAL ? special_real(v, from) : v;
        } else {
            out->integer[i] = one_integer(c, out, input, from);
        }
    }
    return true;
}

void cf_free_values(cf_values *v)
{
    free(v->real);
    free(v->integer);
    memset(v, 0, sizeof *v);
}

/* ---- layouts --------------------------------------------------------------------------------- */
/* The 16 bits of NaN, of an infinity, or of a number that the type represents exactly. */
static uint16_t bits16(double x, int fraction, int bias)
{
    const int sign = signbit(x) ? 0x8000 : 0, top = (2 * bias + 1) << fraction;
    if (isnan(x))
        return (uint16_t)(top | 1 << (fraction - 1));
    if (isinf(x))
        return (uint16_t)(sign | top);
    if (x == 0)
        return (uint16_t)sign;
    int exponent;
    const double m = frexp(fabs(x), &exponent); /* |x| = 2m·2^(exponent−1), 1 ≤ 2m < 2 */
    return (uint16_t)(sign | (exponent - 1 + bias) << fraction |
                      (int)((2 * m - 1) * (1 << fraction)));
}

static void store_real(fx_dtype t, void *p, int64_t at, double v)
{
    if (t == FX_DTYPE_F64)
        ((double *)p)[at] = v;
    else if (t == FX_DTYPE_F32)
        ((float *)p)[at] = (float)v;
    else
        ((uint16_t *)p)[at] = t == FX_DTYPE_F16 ? bits16(v, 10, 15) : bits16(v, 7, 127);
}

static void store_integer(fx_dtype t, void *p, int64_t at, int64_t v)
{
    if (t == FX_DTYPE_I64)
        ((int64_t *)p)[at] = v;
    else if (t == FX_DTYPE_I32)
        ((int32_t *)p)[at] = (int32_t)v;
    else
        ((uint8_t *)p)[at] = (uint8_t)v;
}

static void store(const cf_values *v, fx_dtype t, void *p, int64_t at, int64_t i)
{
    if (cf_is_real(t))
        store_real(t, p, at, v->real[i]);
    else
        store_integer(t, p, at, v->integer[i]);
}

static fx_array *contiguous(const cf_values *v, fx_dtype t, int ndim, const int64_t *sizes,
                            int64_t n)
{
    void *p = calloc((size_t)n + 1, sizeof(double));
    if (!p)
        return fx_error_array(FX_STATUS_MEMORY);
    for (int64_t i = 0; i < n; i++)
        store(v, t, p, i, i);
    fx_array *x = fxi_from(t, p, ndim, sizes);
    free(p);
    return x;
}

/* The position of element i in the storage. Axis k of the value is axis ndim−1−k of the storage, of
 * which it uses every second element; the last axis of the value runs backwards. */
static int64_t storage_position(const cf_values *v, int64_t i)
{
    int64_t index[FX_MAX_DIMS], at = 0;
    for (int k = 0; k < v->ndim; k++) {
        const int64_t j = i % v->sizes[k];
        i /= v->sizes[k];
        index[k] = 1 + 2 * (k == v->ndim - 1 ? v->sizes[k] - 1 - j : j);
    }
    for (int k = 0; k < v->ndim; k++) /* the value's first axis is the storage's slowest */
        at = at * (2 * v->sizes[k] + 1) + index[k];
    return at;
}

/* Fills the storage with NaN (integers: 77, Bool: true), because what is between the elements must
 * not be read. */
static void poison(const cf_values *v, void *p, int64_t total)
{
    for (int64_t i = 0; i < total; i++)
        if (cf_is_real(v->dtype))
            store_real(v->dtype, p, i, NAN);
        else
            store_integer(v->dtype, p, i, v->dtype == FX_DTYPE_BOOL ? 1 : 77);
}

static fx_array *strided_view(fx_array *x, const cf_values *v)
{
    int64_t perm[FX_MAX_DIMS];
    for (int k = 0; k < v->ndim; k++)
        perm[k] = v->ndim - 1 - k;
    x = fxi_permute(x, v->ndim, perm);
    for (int k = 0; k < v->ndim; k++) {
        const int64_t n = v->sizes[k];
        const bool back = k == v->ndim - 1;
        x = n == 0 ? fx_slice(x, k, 0, 0)
                   : fx_slice_step(x, k, back ? 2 * n - 1 : 1, back ? -2 : 2, n);
    }
    return x;
}

static fx_array *strided(fx_device *device, const cf_values *v)
{
    int64_t size[FX_MAX_DIMS], total = 1;
    for (int k = 0; k < v->ndim; k++) {
        size[v->ndim - 1 - k] = 2 * v->sizes[k] + 1;
        total *= 2 * v->sizes[k] + 1;
    }
    void *p = calloc((size_t)total, sizeof(double));
    if (!p)
        return fx_error_array(FX_STATUS_MEMORY);
    poison(v, p, total);
    for (int64_t i = 0; i < v->n; i++)
        store(v, v->dtype, p, storage_position(v, i), i);
    fx_array *x = fx_array_to(device, fxi_from(v->dtype, p, v->ndim, size));
    free(p);
    return strided_view(x, v);
}

static void release(void *data, void *user)
{
    (void)data;
    free(user);
}

static fx_array *unaligned(const cf_values *v)
{
    const size_t width = fx_dtype_size(v->dtype);
    char *p = calloc((size_t)v->n + 2, sizeof(double));
    if (!p)
        return fx_error_array(FX_STATUS_MEMORY);
    for (int64_t i = 0; i < v->n; i++)
        store(v, v->dtype, p + width, i, i);
    return fxi_borrow(v->dtype, p + width, release, p, v->ndim, v->sizes);
}

static fx_array *broadcast(fx_device *device, const cf_values *v)
{
    int64_t sizes[FX_MAX_DIMS], n = 1;
    memcpy(sizes, v->sizes, sizeof sizes);
    sizes[constant_axis(v)] = v->n ? 1 : v->sizes[constant_axis(v)];
    for (int k = 0; k < v->ndim; k++)
        n *= sizes[k];
    fx_array *x = contiguous(v, v->dtype, v->ndim, sizes, n);
    return fxi_expand(fx_array_to(device, x), v->ndim, v->sizes);
}

static bool is_constant(const cf_values *v)
{
    if (v->ndim == 0 || v->n == 0)
        return false;
    const int64_t block = v->n / v->sizes[constant_axis(v)];
    for (int64_t i = 0; i < v->n; i++)
        if (cf_is_real(v->dtype) ? v->real[i] != v->real[i % block]
                                 : v->integer[i] != v->integer[i % block])
            return false;
    return true;
}

fx_array *cf_array(fx_device *device, const cf_values *v, cf_variant variant)
{
    if (variant == CF_STRIDED && v->ndim > 0)
        return strided(device, v);
    if (variant == CF_UNALIGNED)
        return fx_array_to(device, unaligned(v));
    if (variant == CF_BROADCAST && is_constant(v))
        return broadcast(device, v);
    return fx_array_to(device, contiguous(v, v->dtype, v->ndim, v->sizes, v->n));
}

fx_array *cf_ref_array(const cf_values *v, fx_dtype dtype)
{
    return fx_array_to(cf_ref_device(), contiguous(v, dtype, v->ndim, v->sizes, v->n));
}
