/* file_types.c: the element types of files and the types that the library uses for them: one table
 * for all formats.
 *
 * Float8 formats: Micikevicius et al., "FP8 formats for deep learning", 2022 (E4M3 has no infinity,
 * and its NaN has all bits set; E5M2 follows IEEE). E8M0 is the scale of the OCP microscaling
 * formats, 2^(v−127), 255 is NaN. UInt64 becomes Int64 if all values fit, otherwise Float64.
 */
#include "file_types.h"
#include "memory.h"

#include <math.h>
#include <string.h>

/* ---- one number ------------------------------------------------------------------------------ */

#define WIDEN(name, from, to)                                                                      \
    static void widen_##name(uint64_t v, void *dst)                                                \
    {                                                                                              \
        const to x = (to)(from)v;                                                                  \
        memcpy(dst, &x, sizeof x);                                                                 \
    }
WIDEN(i8, int8_t, int32_t)
WIDEN(i16, int16_t, int32_t)
WIDEN(u16, uint16_t, int32_t)
WIDEN(u32, uint32_t, int64_t)
WIDEN(u64, uint64_t, int64_t)
WIDEN(u64_f64, uint64_t, double)
WIDEN(same8, uint8_t, uint8_t)
WIDEN(same16, uint16_t, uint16_t)
WIDEN(same32, uint32_t, uint32_t)
WIDEN(same64, uint64_t, uint64_t)

/* (−1)^s · 2^(e − bias) · 1.m, or · 2^(1 − bias) · 0.m for e = 0. */
static float small_float(uint64_t v, int exponent_bits, int mantissa_bits, int bias)
{
    const int m = (int)(v & ((1u << mantissa_bits) - 1));
    const int e = (int)(v >> mantissa_bits & ((1u << exponent_bits) - 1));
    const int whole = e ? m + (1 << mantissa_bits) : m;
    const float x = ldexpf((float)whole, (e ? e : 1) - bias - mantissa_bits);
    return v & 0x80 ? -x : x;
}

static void widen_e4m3(uint64_t v, void *dst)
{
    const float x = (v & 0x7F) == 0x7F ? NAN : small_float(v, 4, 3, 7);
    memcpy(dst, &x, sizeof x);
}

static void widen_e5m2(uint64_t v, void *dst)
{
    float x = small_float(v, 5, 2, 15);
    if ((v & 0x7C) == 0x7C)
        x = v & 3 ? NAN : v & 0x80 ? -INFINITY : INFINITY;
    memcpy(dst, &x, sizeof x);
}

static void widen_e8m0(uint64_t v, void *dst)
{
    const float x = v == 255 ? NAN : ldexpf(1, (int)v - 127);
    memcpy(dst, &x, sizeof x);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const fxi_file_type types[] = {
    {"F64", "f8", 8, 1, FX_DTYPE_F64, true, widen_same64},
    {"F32", "f4", 4, 1, FX_DTYPE_F32, true, widen_same32},
    {"F16", "f2", 2, 1, FX_DTYPE_F16, true, widen_same16},
    {"BF16", NULL, 2, 1, FX_DTYPE_BF16, true, widen_same16},
    {"I64", "i8", 8, 1, FX_DTYPE_I64, true, widen_same64},
    {"I32", "i4", 4, 1, FX_DTYPE_I32, true, widen_same32},
    {"U8", "u1", 1, 1, FX_DTYPE_U8, true, widen_same8},
    {"BOOL", "b1", 1, 1, FX_DTYPE_BOOL, true, widen_same8},
    {"I16", "i2", 2, 1, FX_DTYPE_I32, false, widen_i16},
    {"I8", "i1", 1, 1, FX_DTYPE_I32, false, widen_i8},
    {"U16", "u2", 2, 1, FX_DTYPE_I32, false, widen_u16},
    {"U32", "u4", 4, 1, FX_DTYPE_I64, false, widen_u32},
    {"U64", "u8", 8, 1, FX_DTYPE_I64, false, widen_u64},
    {"F8_E4M3", NULL, 1, 1, FX_DTYPE_F32, false, widen_e4m3},
    {"F8_E5M2", NULL, 1, 1, FX_DTYPE_F32, false, widen_e5m2},
    {"F8_E8M0", NULL, 1, 1, FX_DTYPE_F32, false, widen_e8m0},
    {"C64", "c8", 8, 2, FX_DTYPE_F32, true, widen_same32},
    {NULL, "c16", 16, 2, FX_DTYPE_F64, true, widen_same64},
};
enum { NTYPES = sizeof types / sizeof *types };
/* Used for UInt64 if some value does not fit Int64. */
static const fxi_file_type large_u64 = {"U64", "u8", 8, 1, FX_DTYPE_F64, false, widen_u64_f64};

const fxi_file_type *fxi_file_type_safetensors(const char *name)
{
    for (int i = 0; i < NTYPES; i++)
        if (types[i].safetensors && strcmp(types[i].safetensors, name) == 0)
            return &types[i];
    return NULL;
}

const fxi_file_type *fxi_file_type_npy(const char *name)
{
    for (int i = 0; i < NTYPES; i++)
        if (types[i].npy && strcmp(types[i].npy, name) == 0)
            return &types[i];
    return NULL;
}

const fxi_file_type *fxi_file_type_of(fx_dtype dtype)
{
    for (int i = 0; i < NTYPES; i++)
        if (types[i].same && types[i].parts == 1 && types[i].dtype == dtype)
            return &types[i];
    return NULL;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

bool fxi_file_type_bytes(const fxi_file_type *type, int ndims, const uint64_t *sizes,
                         size_t *out_bytes)
{
    const size_t made = (size_t)type->parts * fx_dtype_size(type->dtype), read = (size_t)type->size;
    size_t most = made > read ? made : read; /* of an element, in the array or in the file */
    bool fits = true;
    *out_bytes = read;
    for (int i = 0; i < ndims; i++) {
        fits = fits && sizes[i] <= INT64_MAX && fxi_mul_size(most, sizes[i] + !sizes[i], &most);
        *out_bytes *= fits ? sizes[i] : 0;
    }
    return fits && most <= INT64_MAX / 16; /* as fxi_sizes_fit, which the array has to pass */
}

/* The sizes in this library's order, the first axis first in memory. If there are too many axes,
 * axes of size 1 are dropped, the slowest varying first. */
static bool our_sizes(const fxi_file_type *type, int ndims, const uint64_t *sizes, int *out_n,
                      int64_t out[FX_MAX_DIMS])
{
    int n = 0, extra = ndims + (type->parts > 1) - FX_MAX_DIMS;
    int64_t all[FXI_FILE_DIMS + 1];
    for (int i = 0; i < ndims; i++) {
        if (extra > 0 && sizes[i] == 1)
            extra--;
        else
            all[n++] = (int64_t)sizes[i];
    }
    if (extra > 0)
        return false;
    *out_n = 0;
    if (type->parts > 1)
        out[(*out_n)++] = type->parts;
    while (n > 0)
        out[(*out_n)++] = all[--n];
    return true;
}

static uint64_t number_at(const unsigned char *p, int size, bool big)
{
    uint64_t v = 0;
    for (int i = 0; i < size; i++)
        v = v << 8 | p[big ? i : size - 1 - i];
    return v;
}

static bool fits_i64(const unsigned char *p, size_t n, bool big)
{
    for (size_t i = 0; i < n; i++)
        if (number_at(p + 8 * i, 8, big) > INT64_MAX)
            return false;
    return true;
}

static fx_array *widened(const fxi_file_type *type, bool big, const unsigned char *p, size_t n,
                         int ndims, const int64_t *sizes)
{
    if (type->widen == widen_u64 && !fits_i64(p, n, big))
        type = &large_u64;
    const size_t to = fx_dtype_size(type->dtype);
    const int size = type->size / type->parts;
    char *wide = fxi_malloc(n * to + 1);
    if (!wide)
        return fx_error_array(
            fx_fail(FX_STATUS_MEMORY, "load", "no memory for an array of %zu bytes", n * to));
    for (size_t i = 0; i < n; i++)
        type->widen(number_at(p + (size_t)size * i, size, big), wide + to * i);
    fx_array *x = fxi_from(type->dtype, wide, ndims, sizes);
    fxi_free(wide);
    return x;
}

/* Checks that Bools are 0 or 1: a C program that reads a bool of another value has undefined
 * behaviour. */
static bool are_bools(fxi_bytes *b, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] > 1) {
            fxi_bytes_fail(b, (size_t)(p - b->data) + i, "a Bool is %d, expected 0 or 1", p[i]);
            return false;
        }
    return true;
}

fx_array *fxi_file_type_array(fxi_bytes *b, const fxi_file_type *type, bool big, int ndims,
                              const uint64_t *sizes)
{
    size_t bytes;
    int n;
    int64_t ours[FX_MAX_DIMS];
    if (!fxi_file_type_bytes(type, ndims, sizes, &bytes)) {
        fxi_bytes_fail(b, b->at, FXI_FILE_TOO_LARGE);
        return NULL;
    }
    if (!our_sizes(type, ndims, sizes, &n, ours)) {
        fxi_bytes_fail(b, b->at, "the array has more than %d axes of a size other than 1",
                       FX_MAX_DIMS);
        return NULL;
    }
    const unsigned char *p = fxi_bytes_take(b, bytes, "the elements of the array");
    if (!p || (type->dtype == FX_DTYPE_BOOL && !are_bools(b, p, bytes)))
        return NULL;
    const int size = type->size / type->parts;
    if (type->same && (!big || size == 1))
        return fxi_file_array(b->file, type->dtype, p, n, ours);
    return widened(type, big, p, bytes / (size_t)size, n, ours);
}
