/* wave.h: arrays that programs in Python compute too. */
#ifndef CFLUX_TEST_WAVE_H
#define CFLUX_TEST_WAVE_H

#include <cflux.h>

/* factor·sin(0.7·i + phase), i = 0, 1, … in the order of the memory, in Float64, as in
 * make_packed_sequences.py and make_transformer_blocks.py */
static inline fx_array *wave(double phase, double factor, int ndims, const int64_t *sizes)
{
    int64_t n = 1;
    for (int k = 0; k < ndims; k++)
        n *= sizes[k];
    fx_array *x = fx_mul(factor, fx_sin(fx_range_dtype(FX_DTYPE_F64, phase, 0.7, n)));
    return fxi_reshape(x, ndims, sizes);
}

#endif
