/* cpu_convert.h: Float64 to 16-bit floats in one rounding.
 *
 * Float64 → Float32 → Float16 would round twice. Here the first conversion rounds "to odd": an
 * inexact result gets an odd last bit, which keeps the information that it was inexact, so that the
 * rounding to 16 bits (half.h) is the only one (Boldo and Melquiond, "Emulation of FMA and
 * correctly rounded sums", 2008). It has no branches on data, so loops over it become vector code.
 */
#ifndef CFLUX_CPU_CONVERT_H
#define CFLUX_CPU_CONVERT_H

#include "half.h"

#include <stdbool.h>

/* Converts x to Float32, rounding to odd. */
static inline float fxi_f64_to_odd(double x)
{
    const float r = (float)x;
    const double back = (double)r;
    const uint32_t u = fxi_bits(r);
    /* An inexact r with an even last bit is replaced by its odd neighbour on the other side of x:
     * the next number towards zero if |r| > |x|, else away from zero. */
    const uint32_t neighbour = __builtin_fabs(back) > __builtin_fabs(x) ? u - 1u : u + 1u;
    const int inexact = back < x || back > x;
    return fxi_float(inexact && !(u & 1u) ? neighbour : u);
}

/* The same for an integer. One beyond 2^53 may not fit in a double: bit 11, far below the last bit
 * of the Float32, then says that some of the bits below it were set. */
static inline float fxi_i64_to_odd(int64_t x)
{
    const int64_t most = INT64_C(1) << 53, low = x & 2047;
    const bool large = x > most || x < -most;
    return fxi_f64_to_odd((double)(large ? (x - low) | (low ? 2048 : 0) : x));
}

#endif
