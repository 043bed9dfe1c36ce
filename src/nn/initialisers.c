/* initialisers.c: initial values of parameters: Flux's formulas over the thread's random stream.
 *
 * All return Float32 and are lazy: a weight is computed together with its first use. The fans are
 * Flux's nfan: (1, n) for a vector, (columns, rows) for a matrix, and for convolutions the product
 * of the kernel's axes times each of the final two. The truncated normal inverts the distribution
 * function, as Flux does, so it needs no rejection and every element depends on one random number.
 * The inverse error function is M. Giles' polynomial (GPU Computing Gems, 2011), relative error
 * below 1e-6;
 *
 * t
 *
 * ≤ erf(√2) stays within its central branch. Sources: Glorot, Bengio, 2010; He et al., 2015; LeCun
 * et al., 1998.
 */
#include "nn_layer.h"

#include <math.h>

typedef struct fans {
    double in, out;
} fans;

static fans fans_of(int ndims, const int64_t *sizes)
{
    if (ndims < 2)
        return (fans){1, ndims == 1 ? (double)sizes[0] : 1};
    double kernel = 1;
    for (int i = 0; i < ndims - 2; i++)
        kernel *= (double)sizes[i];
    if (ndims == 2)
        return (fans){(double)sizes[1], (double)sizes[0]};
    return (fans){kernel * (double)sizes[ndims - 2], kernel * (double)sizes[ndims - 1]};
}

/* U(−bound, bound). */
static fx_array *uniform(double bound, int ndims, const int64_t *sizes)
{
    FXI_SCOPE;
    return fx_keep(fx_mul(fx_sub(fxi_rand(FX_DTYPE_F32, ndims, sizes), 0.5), 2 * bound));
}

static fx_array *normal(double deviation, int ndims, const int64_t *sizes)
{
    FXI_SCOPE;
    return fx_keep(fx_mul(fxi_randn(FX_DTYPE_F32, ndims, sizes), deviation));
}

fx_array *fx_glorot_uniform(int ndims, const int64_t *sizes)
{
    const fans f = fans_of(ndims, sizes);
    return uniform(sqrt(6 / (f.in + f.out)), ndims, sizes);
}

fx_array *fx_glorot_normal(int ndims, const int64_t *sizes)
{
    const fans f = fans_of(ndims, sizes);
    return normal(sqrt(2 / (f.in + f.out)), ndims, sizes);
}

/* Gain √2, the value for relu. */
fx_array *fx_kaiming_uniform(int ndims, const int64_t *sizes)
{
    return uniform(sqrt(6 / fans_of(ndims, sizes).in), ndims, sizes);
}

fx_array *fx_kaiming_normal(int ndims, const int64_t *sizes)
{
    return normal(sqrt(2 / fans_of(ndims, sizes).in), ndims, sizes);
}

/* erf⁻¹(t) for t² < 0.99. */
static fx_array *erf_inverse(fx_array *t)
{
    static const double giles[] = {2.81022636e-08,  3.43273939e-07, -3.5233877e-06,
                                   -4.39150654e-06, 0.00021858087,  -0.00125372503,
                                   -0.00417768164,  0.246640727,    1.50140941};
    fx_array *w = fx_sub(fx_neg(fx_log1p(fx_neg(fx_square(t)))), 2.5);
    fx_array *p = fx_add(fx_mul(w, giles[0]), giles[1]);
    for (int i = 2; i < FXI_COUNT(giles); i++)
        p = fx_add(fx_mul(p, w), giles[i]);
    return fx_mul(p, t);
}

static fx_array *truncated(double deviation, int ndims, const int64_t *sizes)
{
    const double erf_of_sqrt2 = 0.95449973610364159, sqrt2 = 1.4142135623730951;
    FXI_SCOPE;
    fx_array *t = fx_mul(fx_sub(fxi_rand(FX_DTYPE_F32, ndims, sizes), 0.5), 2 * erf_of_sqrt2);
    fx_array *x = fx_mul(erf_inverse(t), deviation * sqrt2);
    return fx_keep(fx_clamp(x, -2 * deviation, 2 * deviation));
}

fx_array *fx_truncated_normal(int ndims, const int64_t *sizes)
{
    return truncated(1, ndims, sizes);
}
fx_array *fx_lecun_normal(int ndims, const int64_t *sizes)
{
    return truncated(sqrt(1 / fans_of(ndims, sizes).in), ndims, sizes);
}

fx_array *fx_rand_init(int ndims, const int64_t *sizes)
{
    return fxi_rand(FX_DTYPE_F32, ndims, sizes);
}

fx_array *fx_randn_init(int ndims, const int64_t *sizes)
{
    return fxi_randn(FX_DTYPE_F32, ndims, sizes);
}

fx_array *fx_zeros_init(int ndims, const int64_t *sizes)
{
    return fxi_full(FX_DTYPE_F32, 0, ndims, sizes);
}
fx_array *fx_ones_init(int ndims, const int64_t *sizes)
{
    return fxi_full(FX_DTYPE_F32, 1, ndims, sizes);
}
