/* same_bits.h: checks that two arrays, on any devices, have the same type, sizes and bits. Include
 * it after cmocka.h.
 */
#ifndef CFLUX_TEST_SAME_BITS_H
#define CFLUX_TEST_SAME_BITS_H

#include <cflux.h>

static inline void same_bits(fx_array *a, fx_array *b)
{
    FX_SCOPE;
    a = fx_cpu(a);
    b = fx_cpu(b);
    assert_int_equal(fx_array_status(a), FX_OK);
    assert_int_equal(fx_array_status(b), FX_OK);
    assert_int_equal(fx_eltype(a), fx_eltype(b));
    assert_int_equal(fx_ndims(a), fx_ndims(b));
    for (int i = 0; i < fx_ndims(a); i++)
        assert_int_equal(fx_size(a, i), fx_size(b, i));
    assert_memory_equal(fx_data(a), fx_data(b), (size_t)fx_length(a) * fx_dtype_size(fx_eltype(a)));
}

#endif
