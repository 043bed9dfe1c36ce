// The definitions that all dialects share. They follow the dialect's own prelude (opencl.cl,
// cuda.cl, hip.cl, metal.cl, host.cl).
//
// The files of this folder are the texts of kernels. Each file has one or several texts, which
// begin with a line of four slashes and a name: the text `copy` is fxi_gpu_text_copy in C
// (gpu_kernels.h). Empty lines and lines that begin with // are comments and not part of a text.
//
// A name in @ signs is a placeholder, which C code fills for each step: with a type, a number
// (fxi_gpu_set), or lines that it computes, such as the program of an elementwise step or the walk
// over strides (fxi_gpu_say_until). A placeholder on a line of its own is replaced by any number of
// whole lines, also by none. gpu_build.h lists the names that a text may use.
//
// A kernel's text is a list of `#define`s for the features of the device, one dialect's prelude,
// the two texts below, and a body that uses only these definitions. Only Metal and C include
// headers, since the compilers of other dialects often have none at run time. Pointers into global
// memory and into a group's memory are always marked FX_GLOBAL and FX_SHARED: only OpenCL C and
// Metal know the difference, and both require the marks. Float16 is converted by the dialect's own
// conversion where it has one, always to nearest even, and computed in Float32.

// Index arithmetic: in 32-bit kernels every index is below 2³¹, and FX_DIV divides by a parameter
// with the multiplier and the shift in the next two parameters (gpu_walk.c).
//// common
#ifdef FX_WIDE
typedef fx_i64 fx_int;
#define FX_DIV(n, k) ((n) / P(k))
#else
typedef fx_i32 fx_int;
#define FX_DIV(n, k) ((fx_int)(((fx_u32)(((fx_u64)(fx_u32)(n) * (fx_u32)P((k) + 1)) >> 32) + \
    (fx_u32)(n)) >> P((k) + 2)))
#endif
#ifndef FX_FMA
#define FX_FMA(x, y, z) FX_MAD(x, y, z)
#endif
// Several elements of a work-item, which are loaded and stored together: n elements of type T, or m
// vectors of type V, or words. All of a work-item's loads come before its first store, because an
// output may have the memory of an operand, so no compiler moves a load over a store.
#define FX_PACK(T, n, V, m) union { T e[n]; V v[m]; fx_u32 w[(n * sizeof(T) + 3) / 4]; }
#define FX_LOAD_PACK(p, x, V, m) FX_UNROLL for (fx_int q = 0; q < m; q++) (p).v[q] = ((const FX_GLOBAL V *)(x))[q];
#define FX_STORE_PACK(p, x, V, m) FX_UNROLL for (fx_int q = 0; q < m; q++) ((FX_GLOBAL V *)(x))[q] = (p).v[q];
#define FX_INF fx_float(0x7f800000u)
#define FX_I64_LAST ((fx_i64)0x7fffffffffffffff)
#ifndef FX_HALF_IN
FX_FN fx_f32 fx_f16_in(fx_u16 h) {
    const fx_u32 sign = (fx_u32)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;
    if (e == 31) return fx_float(sign | 0x7f800000u | (m << 13));
    if (e == 0) return fx_float(sign | fx_bits((fx_f32)m * 5.96046448e-8f));
    return fx_float(sign | ((e + 112u) << 23) | (m << 13)); }
FX_FN fx_u16 fx_f16_out(fx_f32 x) {
    const fx_u32 u = fx_bits(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (fx_u16)(sign | 0x7e00u);
    if (a >= 0x477ff000u) return (fx_u16)(sign | 0x7c00u);
    if (a < 0x38800000u)
        return (fx_u16)(sign | (fx_bits(fx_float(a) + 0.5f) - 0x3f000000u));
    return (fx_u16)(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13)); }
#endif
// A pair is a word with two BFloat16 values. It is made of Float32 values, before or after they are
// rounded: FX_PAIR_OF says which.
FX_FN fx_f32 fx_bf16_in(fx_u16 h) { return fx_float((fx_u32)h << 16); }
#ifndef FX_BF16_OUT
FX_FN fx_u16 fx_bf16_out(fx_f32 x) {
    const fx_u32 u = fx_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (fx_u16)((u >> 16) | 0x40u);
    return (fx_u16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16); }
#define fx_round_bf16(x) fx_bf16_in(fx_bf16_out(x))
#define FX_PAIR_OF(exact, rounded) (rounded)
#ifndef FX_UPPER_HALVES
#define FX_UPPER_HALVES(x, y) (((x) >> 16) | ((y) & 0xffff0000u))
#endif
FX_FN fx_u32 fx_pair_bf16(fx_f32 x, fx_f32 y) {
    return FX_UPPER_HALVES(fx_bits(x), fx_bits(y)); }
#endif
#define fx_round_f16(x) fx_f16_in(fx_f16_out(x))
#define FX_LOAD_f32(x, i) ((x)[i])
#define FX_LOAD_f64(x, i) ((x)[i])
#define FX_LOAD_i32(x, i) ((x)[i])
#define FX_LOAD_i64(x, i) ((x)[i])
#define FX_LOAD_u8(x, i) ((x)[i])
#define FX_LOAD_bool(x, i) ((x)[i])
#define FX_LOAD_f16(x, i) fx_f16_in((x)[i])
#define FX_LOAD_bf16(x, i) fx_bf16_in((x)[i])
#define FX_STORE_f32(x, i, v) ((x)[i] = (v))
#define FX_STORE_f64(x, i, v) ((x)[i] = (v))
#define FX_STORE_i32(x, i, v) ((x)[i] = (v))
#define FX_STORE_i64(x, i, v) ((x)[i] = (v))
#define FX_STORE_u8(x, i, v) ((x)[i] = (v))
#define FX_STORE_bool(x, i, v) ((x)[i] = (v))
#define FX_STORE_f16(x, i, v) ((x)[i] = fx_f16_out(v))
#define FX_STORE_bf16(x, i, v) ((x)[i] = fx_bf16_out(v))
// Stores a value that is rounded already, and loads value e from the words of a pack.
#define FX_STORE_rounded_bf16(x, i, v) ((x)[i] = (fx_u16)(fx_bits(v) >> 16))
#define FX_LOAD_word_bf16(w, e) fx_float((e) % 2 ? (w)[(e) / 2] & 0xffff0000u : (w)[(e) / 2] << 16)

// Functions for instructions that C has no operator for. On devices without FX_DIVIDES a Float32
// quotient may be wrong in its last bits, so its floor could be wrong by one. It is corrected by
// the remainder, which fma gives exactly. (x and y are scaled where the remainder would underflow;
// below 0.25 the floor follows from the sign.) Conversions from reals to integers saturate, and NaN
// gives 0. An integer or a Float64 that is converted to 16 bits becomes a Float32 rounded to odd
// first, so that the rounding to 16 bits is the only one. fx_part(x, y) is x / y for y from 1 to 2.
//// arithmetic
#ifndef FX_PART
#define fx_part_f32(x, y) ((x) / (y))
#endif
#define fx_part_f64(x, y) ((x) / (y))
#define FX_REAL(S, T, F) \
FX_FN T fx_sigmoid_##S(T x) { \
    const T e = F(exp)(-F(fabs)(x)); return fx_part_##S(x < 0 ? e : (T)1, (T)1 + e); } \
FX_FN T fx_powi_##S(T x, fx_i64 n) { \
    fx_u64 k = n < 0 ? 0 - (fx_u64)n : (fx_u64)n; T y = 1; \
    for (; k; k >>= 1, x *= x) if (k & 1) y *= x; \
    return n < 0 ? 1 / y : y; } \
FX_FN T fx_max_##S(T a, T b) { \
    return a > b || a != a || (a == b && !fx_negative_##S(a)) ? a : b; } \
FX_FN T fx_min_##S(T a, T b) { \
    return a < b || a != a || (a == b && fx_negative_##S(a)) ? a : b; } \
FX_FN fx_i32 fx_to_i32_##S(T x) { \
    return x >= (T)2147483648.0f ? 0x7fffffff : x <= (T)-2147483648.0f ? -0x7fffffff - 1 \
        : x == x ? (fx_i32)x : 0; } \
FX_FN fx_i64 fx_to_i64_##S(T x) { \
    return x >= (T)9223372036854775808.0f ? FX_I64_LAST \
        : x <= (T)-9223372036854775808.0f ? -FX_I64_LAST - 1 : x == x ? (fx_i64)x : 0; } \
FX_FN fx_u8 fx_to_u8_##S(T x) { \
    return (fx_u8)(x >= (T)255.0f ? 255 : x > 0 ? (fx_i32)x : 0); }
#define fx_negative_f32(x) (fx_bits(x) >> 31)
FX_REAL(f32, fx_f32, FX_F32)
#ifdef FX_HAS_F64
#define fx_negative_f64(x) (fx_bits64(x) >> 63)
FX_REAL(f64, fx_f64, FX_F64)
FX_FN fx_f32 fx_odd_f64(fx_f64 x) {
    const fx_f32 r = (fx_f32)x; const fx_f64 back = (fx_f64)r; const fx_u32 u = fx_bits(r);
    if (back == x || x != x || (u & 1u)) return r;
    return fx_float(FX_F64(fabs)(back) > FX_F64(fabs)(x) ? u - 1u : u + 1u); }
#endif
FX_FN fx_f32 fx_odd_i64(fx_i64 x) {
    fx_u64 a = x < 0 ? 0 - (fx_u64)x : (fx_u64)x; fx_f32 scale = x < 0 ? -1.0f : 1.0f;
    for (; a >> 24; scale *= 2.0f) a = (a >> 1) | (a & 1);
    return (fx_f32)a * scale; }
#ifndef FX_DIVIDE_F32
#define FX_DIVIDE_F32(x, y) ((x) / (y))
#endif
#define fx_quotient_f64(x, y) ((x) / (y))
#ifdef FX_DIVIDES
#define fx_quotient_f32(x, y) FX_DIVIDE_F32(x, y)
#else
FX_FN fx_f32 fx_quotient_f32(fx_f32 x, fx_f32 y) {
    const fx_f32 q = FX_DIVIDE_F32(x, y), a = FX_F32(fabs)(q);
    if (!(a >= 0.25f && a < 3.0e38f)) return q;
    const fx_f32 s = FX_F32(fabs)(x) < 1.0e-18f ? 1.8446744e19f : 1.0f;
    const fx_f32 p = x * s, d = y * s;
    return q + FX_DIVIDE_F32(FX_FMA(-q, d, p), d); }
#endif
#define fx_odd_f32(x) (x)
#define fx_odd_i32(x) fx_odd_i64(x)
#define fx_odd_u8(x) ((fx_f32)(x))
FX_FN fx_i64 fx_fld(fx_i64 x, fx_i64 y) {
    if (y == 0) return 0;
    if (y == -1) return (fx_i64)(0 - (fx_u64)x);
    return x / y - (x % y != 0 && (x % y < 0) != (y < 0)); }
FX_FN fx_i64 fx_rem(fx_i64 x, fx_i64 y) { return y == 0 ? x : y == -1 ? 0 : x % y; }
FX_FN fx_i64 fx_ipow(fx_i64 x, fx_i64 n) {
    if (n < 0) return x == 1 ? 1 : x != -1 ? 0 : n % 2 ? -1 : 1;
    fx_u64 y = 1, b = (fx_u64)x;
    for (; n; n >>= 1, b *= b) if (n & 1) y *= b;
    return (fx_i64)y; }
