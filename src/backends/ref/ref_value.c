/* ref_value.c: reads, writes and converts elements for the ref backend.
 *
 * Every kernel of ref reads an element as a double or an int64_t and writes it back, so only this
 * file knows element types. The 16-bit types are converted from their definition, not by shifting
 * bits: round(x / quantum)·quantum, where the quantum is the distance of neighbours at x. All
 * but the rounding is exact in double, so an element is rounded once, to nearest with ties to even.
 * A value that rounds beyond the largest number gives infinity, as IEEE 754 requires.
 */
#include <math.h>

#include "ref_kernels.h"

/* A 16-bit format: fraction bits, smallest normal exponent, largest exponent. */
typedef struct format16 {
    int fraction, emin, emax;
} format16;
static const format16 half = {10, -14, 15}, bfloat = {7, -126, 127};

static double round16(format16 f, double x)
{
    if (x == 0 || !isfinite(x))
        return x;
    int exponent = ilogb(x);
    if (exponent < f.emin)
        exponent = f.emin;
    const double quantum = ldexp(1, exponent - f.fraction);
    const double y = nearbyint(x / quantum) * quantum;
    return fabs(y) >= ldexp(1, f.emax + 1) ? copysign(INFINITY, x) : y;
}

static double decode16(format16 f, uint16_t bits)
{
    const int exponent = (bits & 0x7fff) >> f.fraction, fraction = bits & ((1 << f.fraction) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == f.emax - f.emin + 2)
        return fraction ? copysign(NAN, sign) : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, f.emin - f.fraction);
    return sign * ldexp(fraction + (1 << f.fraction), exponent - 1 + f.emin - f.fraction);
}

static uint16_t encode16(format16 f, double x)
{
    const int top = (f.emax - f.emin + 2) << f.fraction;
    const int sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x))
        return (uint16_t)(sign | top | 1 << (f.fraction - 1));
    x = fabs(round16(f, x));
    if (isinf(x))
        return (uint16_t)(sign | top);
    const int exponent = x == 0 ? f.emin - 1 : ilogb(x);
    if (exponent < f.emin) /* zero and the subnormals */
        return (uint16_t)(sign | (int)ldexp(x, f.fraction - f.emin));
    const int fraction = (int)ldexp(x, f.fraction - exponent) - (1 << f.fraction);
    return (uint16_t)(sign | (exponent - f.emin + 1) << f.fraction | fraction);
}

bool fxi_ref_is_real(int dtype)
{
    return dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F64 || dtype == FX_DTYPE_F16 ||
           dtype == FX_DTYPE_BF16;
}

double fxi_ref_round(int dtype, double x)
{
    switch (dtype) {
    case FX_DTYPE_F32:
        return (double)(float)x;
    case FX_DTYPE_F16:
        return round16(half, x);
    case FX_DTYPE_BF16:
        return round16(bfloat, x);
    default:
        return x;
    }
}

int64_t fxi_ref_wrap(int dtype, int64_t x)
{
    switch (dtype) {
    case FX_DTYPE_I32:
        return (int32_t)(uint32_t)x;
    case FX_DTYPE_U8:
        return (uint8_t)x;
    case FX_DTYPE_BOOL:
        return x != 0;
    default:
        return x;
    }
}

fxi_ref_value fxi_ref_number(int dtype, int64_t x)
{
    if (!fxi_ref_is_real(dtype))
        return (fxi_ref_value){.integer = fxi_ref_wrap(dtype, x)};
    /* Directly to float: through double a large integer would be rounded twice. */
    if (dtype == FX_DTYPE_F32)
        return (fxi_ref_value){.real = (double)(float)x};
    /* A double has 53 bits, so it would round a larger integer a first time. To prevent that, the
     * lowest 11 bits become one bit, if any is set. BFloat16 keeps 8 bits: of bits so low, its
     * rounding depends only on whether any is set. So the result is that of one rounding. */
    const int64_t most = INT64_C(1) << 53;
    if (dtype == FX_DTYPE_BF16 && (x > most || x < -most) && x % 2048 != 0)
        x = (x / 2048) * 2048 + (x > 0 ? 1024 : -1024);
    return (fxi_ref_value){.real = fxi_ref_round(dtype, (double)x)};
}

/* Truncates and saturates; NaN gives 0. The limits are powers of two, which are exact in double. */
static int64_t saturate(int dtype, double x)
{
    static const struct {
        int64_t low, high;
        double end; /* high + 1 */
    } range[FX_DTYPE_COUNT] = {
        [FX_DTYPE_I32] = {INT32_MIN, INT32_MAX, 0x1p31},
        [FX_DTYPE_I64] = {INT64_MIN, INT64_MAX, 0x1p63},
        [FX_DTYPE_U8] = {0, UINT8_MAX, 0x1p8},
    };
    if (isnan(x))
        return 0;
    if (x >= range[dtype].end)
        return range[dtype].high;
    if (x <= (double)range[dtype].low)
        return range[dtype].low;
    return (int64_t)x;
}

fxi_ref_value fxi_ref_convert(int to, int from, fxi_ref_value x)
{
    if (!fxi_ref_is_real(from))
        return fxi_ref_number(to, x.integer);
    if (fxi_ref_is_real(to))
        return (fxi_ref_value){.real = fxi_ref_round(to, x.real)};
    if (to == FX_DTYPE_BOOL)
        return (fxi_ref_value){.integer = x.real != 0};
    return (fxi_ref_value){.integer = saturate(to, x.real)};
}

fxi_ref_value fxi_ref_get(int dtype, const void *p, int64_t index)
{
    switch (dtype) {
    case FX_DTYPE_F32:
        return (fxi_ref_value){.real = (double)((const float *)p)[index]};
    case FX_DTYPE_F64:
        return (fxi_ref_value){.real = ((const double *)p)[index]};
    case FX_DTYPE_F16:
        return (fxi_ref_value){.real = decode16(half, ((const uint16_t *)p)[index])};
    case FX_DTYPE_BF16:
        return (fxi_ref_value){.real = decode16(bfloat, ((const uint16_t *)p)[index])};
    case FX_DTYPE_I32:
        return (fxi_ref_value){.integer = ((const int32_t *)p)[index]};
    case FX_DTYPE_I64:
        return (fxi_ref_value){.integer = ((const int64_t *)p)[index]};
    default: /* U8, Bool */
        return (fxi_ref_value){.integer = ((const uint8_t *)p)[index]};
    }
}

void fxi_ref_put(int dtype, void *p, int64_t index, fxi_ref_value v)
{
    switch (dtype) {
    case FX_DTYPE_F32:
        ((float *)p)[index] = (float)v.real;
        break;
    case FX_DTYPE_F64:
        ((double *)p)[index] = v.real;
        break;
    case FX_DTYPE_F16:
        ((uint16_t *)p)[index] = encode16(half, v.real);
        break;
    case FX_DTYPE_BF16:
        ((uint16_t *)p)[index] = encode16(bfloat, v.real);
        break;
    case FX_DTYPE_I32:
        ((int32_t *)p)[index] = (int32_t)fxi_ref_wrap(dtype, v.integer);
        break;
    case FX_DTYPE_I64:
        ((int64_t *)p)[index] = v.integer;
        break;
    default:
        ((uint8_t *)p)[index] = (uint8_t)fxi_ref_wrap(dtype, v.integer);
        break;
    }
}

void fxi_ref_unravel(int64_t linear, int ndim, const int64_t *shape, int64_t *index)
{
    for (int k = 0; k < FX_MAX_DIMS; k++)
        index[k] = 0;
    for (int k = 0; k < ndim; k++) {
        index[k] = linear % shape[k];
        linear /= shape[k];
    }
}

void fxi_ref_unravel3(int64_t linear, const int64_t *size, int64_t *index)
{
    index[0] = linear % size[0];
    index[1] = linear / size[0] % size[1];
    index[2] = linear / size[0] / size[1];
}

int64_t fxi_ref_volume(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

int64_t fxi_ref_length(const fx_tensor *t)
{
    int64_t n = 1;
    for (int k = 0; k < t->ndim; k++)
        n *= t->shape[k];
    return n;
}

int64_t fxi_ref_offset(const fx_tensor *t, const int64_t *index)
{
    int64_t offset = 0;
    for (int k = 0; k < t->ndim; k++)
        offset += t->shape[k] == 1 ? 0 : index[k] * t->stride[k];
    return offset;
}

fxi_ref_value fxi_ref_sum2(int dtype, fxi_ref_value a, fxi_ref_value b)
{
    if (fxi_ref_is_real(dtype))
        return (fxi_ref_value){.real = a.real + b.real};
    const uint64_t sum = (uint64_t)a.integer + (uint64_t)b.integer;
    return (fxi_ref_value){.integer = fxi_ref_wrap(dtype, (int64_t)sum)};
}

fxi_ref_value fxi_ref_product2(int dtype, fxi_ref_value a, fxi_ref_value b)
{
    if (fxi_ref_is_real(dtype))
        return (fxi_ref_value){.real = a.real * b.real};
    const uint64_t product = (uint64_t)a.integer * (uint64_t)b.integer;
    return (fxi_ref_value){.integer = fxi_ref_wrap(dtype, (int64_t)product)};
}
