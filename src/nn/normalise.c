/* normalise.c: (x − mean)/√(var + ε) over some axes, fx_normalise.
 *
 * Elements are multiplied by 1/√(var + ε): a division of every element would take several times as
 * long. 16-bit inputs are normalised in Float32. Source: Flux's normalise.jl (ε is added to the
 * variance since 0.16.11).
 */
#include "nn_layer.h"
#include "error.h"
#include "own_gradient.h"

bool fxi_is_half(fx_dtype t)
{
    return t == FX_DTYPE_F16 || t == FX_DTYPE_BF16;
}

double fxi_epsilon(fx_dtype t)
{
    return t == FX_DTYPE_F64    ? 0x1p-52
           : t == FX_DTYPE_F16  ? 0x1p-10
           : t == FX_DTYPE_BF16 ? 0x1p-7
                                : 0x1p-23;
}
fx_array *fxi_wide_enough(fx_array *x)
{
    const fx_dtype t = fx_eltype(x);
    return fxi_is_half(t) || !fxi_is_floating(t) ? fx_cast(x, FX_DTYPE_F32) : x;
}

fx_array *fxi_as_narrow(fx_array *y, fx_dtype input)
{
    return fxi_is_half(input) ? fx_cast(y, input) : y;
}

fx_array *fxi_normalised(fx_array *x, fx_axes dims, double eps, double flux)
{
    if (fx_is_error(x))
        return fx_cast(x, FX_DTYPE_F32); /* records an error for NULL, passes an error array on */
    fx_array *w = fxi_wide_enough(x);
    fx_array *mean = fx_mean(w, .dims = dims), *rest = fx_mean_rest(w, .dims = dims);
    fx_array *variance = fx_var(w, .dims = dims, .corrected = false);
    fx_array *deviation = flux == FXI_FLUX_14
                              ? fx_add(fx_sqrt(variance), eps)
                              : fx_sqrt(fx_add(variance, flux == FXI_FLUX_15 ? eps * eps : eps));
    return fxi_as_narrow(fxi_quotient(fx_sub(fx_sub(w, mean), rest), deviation), fx_eltype(x));
}

fx_array *fx_normalise(fx_array *x, fx_axes dims, double eps)
{
    FXI_OPERATION("normalise");
    FXI_SCOPE;
    return fx_keep(fxi_normalised(x, dims, eps, FXI_FLUX_16));
}
