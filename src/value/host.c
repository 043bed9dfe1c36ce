/* host.c: reads, writes and converts elements in host memory; see host.h. Integers are converted
 * through int64, all other types through double, so that each number is rounded once.
 */
#include "host.h"
#include "context.h"
#include "half.h"
#include "strided.h"

#include <math.h>
#include <string.h>

static bool is_integer(int dtype)
{
    return dtype == FX_DTYPE_I32 || dtype == FX_DTYPE_I64 || dtype == FX_DTYPE_U8 ||
           dtype == FX_DTYPE_BOOL;
}

#define LOAD(T) (*(const T *)p)
static int64_t get_integer(int dtype, const void *p)
{
    switch (dtype) {
    case FX_DTYPE_I32:
        return LOAD(int32_t);
    case FX_DTYPE_I64:
        return LOAD(int64_t);
    default:
        return LOAD(uint8_t);
    }
}

double fxi_host_double(int dtype, const void *p)
{
    switch (dtype) {
    case FX_DTYPE_F32:
        return (double)LOAD(float);
    case FX_DTYPE_F64:
        return LOAD(double);
    case FX_DTYPE_F16:
        return (double)fxi_f16_to_f32(LOAD(uint16_t));
    case FX_DTYPE_BF16:
        return (double)fxi_bf16_to_f32(LOAD(uint16_t));
    default:
        return (double)get_integer(dtype, p);
    }
}
#undef LOAD

static int64_t saturate(double v, double lo, double hi, int64_t top)
{
    if (isnan(v))
        return 0;
    return v >= hi ? top : v <= lo ? (int64_t)lo : (int64_t)v;
}

void fxi_host_put_double(int dtype, void *p, double v)
{
    switch (dtype) {
    case FX_DTYPE_F32:
        *(float *)p = (float)v;
        break;
    case FX_DTYPE_F64:
        *(double *)p = v;
        break;
    case FX_DTYPE_F16:
        *(uint16_t *)p = fxi_f32_to_f16(fxi_f64_to_odd(v));
        break;
    case FX_DTYPE_BF16:
        *(uint16_t *)p = fxi_f32_to_bf16(fxi_f64_to_odd(v));
        break;
    case FX_DTYPE_I32:
        *(int32_t *)p = (int32_t)saturate(v, -0x1p31, 0x1p31 - 1, INT32_MAX);
        break;
    case FX_DTYPE_I64:
        *(int64_t *)p = saturate(v, -0x1p63, 0x1p63, INT64_MAX);
        break;
    case FX_DTYPE_U8:
        *(uint8_t *)p = (uint8_t)saturate(v, 0, 255, 255);
        break;
    default:
        *(uint8_t *)p = v != 0;
    }
}

void fxi_host_put_integer(int dtype, void *p, int64_t v)
{
    switch (dtype) {
    case FX_DTYPE_I32:
        *(int32_t *)p = (int32_t)(uint32_t)(uint64_t)v;
        break;
    case FX_DTYPE_I64:
        *(int64_t *)p = v;
        break;
    case FX_DTYPE_U8:
        *(uint8_t *)p = (uint8_t)v;
        break;
    case FX_DTYPE_BOOL:
        *(uint8_t *)p = v != 0;
        break;
    case FX_DTYPE_F32:
        *(float *)p = (float)v;
        break;
    case FX_DTYPE_F16:
        *(uint16_t *)p = fxi_f32_to_f16(fxi_i64_to_odd(v));
        break;
    case FX_DTYPE_BF16:
        *(uint16_t *)p = fxi_f32_to_bf16(fxi_i64_to_odd(v));
        break;
    default:
        *(double *)p = (double)v;
    }
}

static void copy_element(int from, const char *src, int to, char *dst)
{
    if (is_integer(from))
        fxi_host_put_integer(to, dst, get_integer(from, src));
    else
        fxi_host_put_double(to, dst, fxi_host_double(from, src));
}

void fxi_host_copy(int ndim, const int64_t *shape, int from, const void *src,
                   const int64_t *strides, int to, void *dst)
{
    const int64_t n = fxi_length(ndim, shape), in = (int64_t)fx_dtype_size((fx_dtype)from),
                  out = (int64_t)fx_dtype_size((fx_dtype)to);
    if (n == 0)
        return;
    if (from == to) {
        fxi_copy_elements(ndim, shape, strides, (size_t)in, src, dst);
        return;
    }
    int64_t index[FX_MAX_DIMS] = {0};
    const char *s = src;
    char *d = dst;
    for (int64_t i = 0; i < n; i++, d += out) {
        copy_element(from, s, to, d);
        for (int k = 0; k < ndim; k++) {
            s += strides[k] * in;
            if (++index[k] < shape[k])
                break;
            s -= shape[k] * strides[k] * in;
            index[k] = 0;
        }
    }
}
