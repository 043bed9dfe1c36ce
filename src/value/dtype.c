/* dtype.c: the element types: their names, sizes, and the common type of two (promotion). */
#include "node.h"

static const struct {
    const char *name;
    int rank; /* the common type of two is the one with the larger rank */
} types[FX_DTYPE_COUNT] = {
    [FX_DTYPE_BOOL] = {"Bool", 0},   [FX_DTYPE_U8] = {"UInt8", 1},
    [FX_DTYPE_I32] = {"Int32", 2},   [FX_DTYPE_I64] = {"Int64", 3},
    [FX_DTYPE_F16] = {"Float16", 4}, [FX_DTYPE_BF16] = {"BFloat16", 4},
    [FX_DTYPE_F32] = {"Float32", 5}, [FX_DTYPE_F64] = {"Float64", 6},
};

const uint8_t fxi_dtype_sizes[FX_DTYPE_COUNT] = {
    [FX_DTYPE_BOOL] = 1, [FX_DTYPE_U8] = 1,   [FX_DTYPE_I32] = 4, [FX_DTYPE_I64] = 8,
    [FX_DTYPE_F16] = 2,  [FX_DTYPE_BF16] = 2, [FX_DTYPE_F32] = 4, [FX_DTYPE_F64] = 8,
};

static bool valid(fx_dtype t)
{
    return (unsigned)t < FX_DTYPE_COUNT;
}

const char *fx_dtype_name(fx_dtype dtype)
{
    return valid(dtype) ? types[dtype].name : "?";
}
size_t fx_dtype_size(fx_dtype dtype)
{
    return fxi_dtype_size((int)dtype);
}

fx_dtype fx_dtype_promote(fx_dtype a, fx_dtype b)
{
    if (types[a].rank == types[b].rank)
        return a == b ? a : FX_DTYPE_F32; /* Float16 with BFloat16 */
    return types[a].rank > types[b].rank ? a : b;
}
