/* cpu_isa_ops.h: one loop for every elementwise op and type, and the table of them; part of
 * cpu_isa.h.
 *
 * A loop is FXI_LOOP1/2 with an expression in x and y. Signed integers compute in their unsigned
 * type, so overflow wraps. An empty place in the table means that the op has no meaning for the
 * type (the builders of operations never ask for it).
 */
#define FXI_LOOP1(NAME, T, R, EXPR)                                                                \
    static void NAME(void *dv, const void *const *s, int n, int64_t attr)                          \
    {                                                                                              \
        (void)attr;                                                                                \
        const T *a = s[0];                                                                         \
        R *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        for (int i = 0; i < n; i++) {                                                              \
            const T x = a[i];                                                                      \
            d[i] = (R)(EXPR);                                                                      \
        }                                                                                          \
    }
#define FXI_LOOP2(NAME, T, R, EXPR)                                                                \
    static void NAME(void *dv, const void *const *s, int n, int64_t attr)                          \
    {                                                                                              \
        (void)attr;                                                                                \
        const T *a = s[0], *b = s[1];                                                              \
        R *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        for (int i = 0; i < n; i++) {                                                              \
            const T x = a[i], y = b[i];                                                            \
            d[i] = (R)(EXPR);                                                                      \
        }                                                                                          \
    }

/* The same expression with one operand that is a single value, the second (_vs) or the first (_sv).
 */
#define FXI_LOOP2_MIXED(NAME, T, R, EXPR)                                                          \
    FXI_LOOP2(NAME, T, R, EXPR)                                                                    \
    static void NAME##_vs(void *dv, const void *const *s, int n, int64_t attr)                     \
    {                                                                                              \
        (void)attr;                                                                                \
        const T *a = s[0], y = *(const T *)s[1];                                                   \
        R *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        for (int i = 0; i < n; i++) {                                                              \
            const T x = a[i];                                                                      \
            d[i] = (R)(EXPR);                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void NAME##_sv(void *dv, const void *const *s, int n, int64_t attr)                     \
    {                                                                                              \
        (void)attr;                                                                                \
        const T x = *(const T *)s[0], *b = s[1];                                                   \
        R *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        for (int i = 0; i < n; i++) {                                                              \
            const T y = b[i];                                                                      \
            d[i] = (R)(EXPR);                                                                      \
        }                                                                                          \
    }

/* ---- scalar helpers -------------------------------------------------------------------------- */
static inline uint64_t bits_f64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
#define NEGATIVE_f32(x) (fxi_bits(x) >> 31)
#define NEGATIVE_f64(x) (bits_f64(x) >> 63)

static inline double sigmoid1(double x)
{
    const double e = exp(-fabs(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}

/* Saturating conversion; NaN gives 0. The bounds of Int32 and UInt8 are exact in Float64. */
static inline int32_t to_i32(double x)
{
    const double c = x < -2147483648.0 ? -2147483648.0 : x > 2147483647.0 ? 2147483647.0 : x;
    return (int32_t)(c == c ? c : 0.0);
}
static inline uint8_t to_u8(double x)
{
    const double c = x < 0.0 ? 0.0 : x > 255.0 ? 255.0 : x;
    return (uint8_t)(int32_t)(c == c ? c : 0.0);
}
static inline int64_t to_i64(double x)
{
    if (x >= 0x1p63)
        return INT64_MAX;
    if (x < -0x1p63)
        return INT64_MIN;
    return (int64_t)(x == x ? x : 0.0);
}

/* ⌊x/y⌋; 0 for y = 0. The narrower types compute in Int64, too, and keep the low bits. */
static inline int64_t fld1(int64_t x, int64_t y)
{
    if (y == 0)
        return 0;
    if (y == -1) /* MIN/−1 wraps */
        return (int64_t)(0 - (uint64_t)x);
    return x / y - (x % y != 0 && (x % y < 0) != (y < 0));
}

/* xᵉ by squaring, wrapping; a negative exponent gives 0 but for x = ±1. */
static inline int64_t pow1(int64_t x, int64_t e)
{
    if (e < 0)
        return x == 1 ? 1 : x != -1 ? 0 : e % 2 ? -1 : 1;
    uint64_t r = 1, b = (uint64_t)x;
    for (; e; e >>= 1) {
        r = e & 1 ? r * b : r;
        b *= b;
    }
    return (int64_t)r;
}

/* ---- every type ------------------------------------------------------------------------------ */
#define FXI_COMPARE_LOOPS(S, T, LOOP2)                                                             \
    LOOP2(lt_##S, T, uint8_t, x < y)                                                               \
    LOOP2(le_##S, T, uint8_t, x <= y)                                                              \
    LOOP2(eq_##S, T, uint8_t, x == y)                                                              \
    LOOP2(ne_##S, T, uint8_t, x != y)                                                              \
    FXI_LOOP1(relu_##S, T, T, x <= 0 ? 0 : x)                                                      \
    static void select_##S(void *dv, const void *const *s, int n, int64_t attr)                    \
    {                                                                                              \
        (void)attr;                                                                                \
        const uint8_t *c = s[0];                                                                   \
        const T *a = s[1], *b = s[2];                                                              \
        T *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        for (int i = 0; i < n; i++) {                                                              \
            const T x = a[i], y = b[i];                                                            \
            d[i] = c[i] ? x : y;                                                                   \
        }                                                                                          \
    }
FXI_COMPARE_LOOPS(f32, float, FXI_LOOP2_MIXED)
FXI_COMPARE_LOOPS(f64, double, FXI_LOOP2_MIXED)
FXI_COMPARE_LOOPS(i32, int32_t, FXI_LOOP2)
FXI_COMPARE_LOOPS(i64, int64_t, FXI_LOOP2)
FXI_COMPARE_LOOPS(u8, uint8_t, FXI_LOOP2)

/* ---- floats: f is the suffix of libm's functions --------------------------------------------- */
#define FXI_FLOAT_LOOPS(S, T, f)                                                                   \
    FXI_LOOP2_MIXED(add_##S, T, T, x + y)                                                          \
    FXI_LOOP2_MIXED(sub_##S, T, T, x - y)                                                          \
    FXI_LOOP2_MIXED(mul_##S, T, T, x *y)                                                           \
    FXI_LOOP2_MIXED(div_##S, T, T, x / y)                                                          \
    FXI_LOOP2(fld_##S, T, T, floor##f(x / y))                                                      \
    FXI_LOOP2_MIXED(max_##S, T, T, ((x > y) | (x != x) | ((x == y) & !NEGATIVE_##S(x))) ? x : y)   \
    FXI_LOOP2_MIXED(min_##S, T, T,                                                                 \
                    ((x < y) | (x != x) | ((x == y) & (int)NEGATIVE_##S(x))) ? x : y)              \
    FXI_LOOP1(neg_##S, T, T, -x)                                                                   \
    FXI_LOOP1(sqrt_##S, T, T, sqrt##f(x))                                                          \
    FXI_LOOP1(floor_##S, T, T, floor##f(x))                                                        \
    FXI_LOOP1(invert_##S, T, T, 1 / x)                                                             \
    FXI_LOOP1(power0_##S, T, T, ((void)x, 1))                                                      \
    FXI_LOOP1(power1_##S, T, T, x)                                                                 \
    FXI_LOOP1(power2_##S, T, T, x *x)                                                              \
    FXI_LOOP1(power3_##S, T, T, x *(x * x))                                                        \
    FXI_LOOP1(power4_##S, T, T, (x * x) * (x * x))                                                 \
    /* xᵏ, k > 0, of a whole tile by squaring */                                                 \
    static void power_##S(T *d, const T *a, int n, uint64_t k)                                     \
    {                                                                                              \
        T b[FXI_TILE_MOST];                                                                        \
        memcpy(b, a, (size_t)n * sizeof *b);                                                       \
        for (int i = 0; i < n; i++)                                                                \
            d[i] = 1;                                                                              \
        for (; k; k >>= 1) {                                                                       \
            for (int i = 0; k & 1 && i < n; i++)                                                   \
                d[i] *= b[i];                                                                      \
            for (int i = 0; k > 1 && i < n; i++)                                                   \
                b[i] *= b[i];                                                                      \
        }                                                                                          \
    }                                                                                              \
    /* Small exponents have their own loop, with the same bits; a negative e gives 1/x⁻ᵉ. */   \
    static void powi_##S(void *dv, const void *const *s, int n, int64_t e)                         \
    {                                                                                              \
        static const fxi_tile_fn small[] = {power0_##S, power1_##S, power2_##S, power3_##S,        \
                                            power4_##S};                                           \
        const uint64_t k = e < 0 ? 0 - (uint64_t)e : (uint64_t)e;                                  \
        if (k < sizeof small / sizeof *small)                                                      \
            small[k](dv, s, n, 0);                                                                 \
        else                                                                                       \
            power_##S(dv, s[0], n, k);                                                             \
        const void *const power[] = {dv};                                                          \
        if (e < 0)                                                                                 \
            invert_##S(dv, power, n, 0);                                                           \
    }
FXI_FLOAT_LOOPS(f32, float, f)
FXI_FLOAT_LOOPS(f64, double, )
#define FXI_SELECT_MIXED(S, T)                                                                     \
    static void select_##S##_vs(void *dv, const void *const *s, int n, int64_t attr)               \
    {                                                                                              \
        (void)attr;                                                                                \
        const uint8_t *c = s[0];                                                                   \
        const T *a = s[1], y = *(const T *)s[2];                                                   \
        T *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        for (int i = 0; i < n; i++) {                                                              \
            const T x = a[i];                                                                      \
            d[i] = c[i] ? x : y;                                                                   \
        }                                                                                          \
    }                                                                                              \
    static void select_##S##_sv(void *dv, const void *const *s, int n, int64_t attr)               \
    {                                                                                              \
        (void)attr;                                                                                \
        const uint8_t *c = s[0];                                                                   \
        const T x = *(const T *)s[1], *b = s[2];                                                   \
        T *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        for (int i = 0; i < n; i++) {                                                              \
            const T y = b[i];                                                                      \
            d[i] = c[i] ? x : y;                                                                   \
        }                                                                                          \
    }
FXI_SELECT_MIXED(f32, float)
FXI_SELECT_MIXED(f64, double)
FXI_LOOP1(exp_f64, double, double, exp(x))
FXI_LOOP1(expm1_f64, double, double, expm1(x))
FXI_LOOP1(log_f64, double, double, log(x))
FXI_LOOP1(log1p_f64, double, double, log1p(x))
FXI_LOOP1(tanh_f64, double, double, tanh(x))
FXI_LOOP1(sin_f64, double, double, sin(x))
FXI_LOOP1(cos_f64, double, double, cos(x))
FXI_LOOP1(erf_f64, double, double, erf(x))
FXI_LOOP2(pow_f64, double, double, pow(x, y))
FXI_LOOP2(atan2_f64, double, double, atan2(x, y))
FXI_LOOP1(sigmoid_f64, double, double, sigmoid1(x))

/* ---- integers -------------------------------------------------------------------------------- */
#define FXI_INTEGER_LOOPS(S, T, U)                                                                 \
    FXI_LOOP2(add_##S, T, T, (U)x + (U)y)                                                          \
    FXI_LOOP2(sub_##S, T, T, (U)x - (U)y)                                                          \
    FXI_LOOP2(mul_##S, T, T, (U)x *(U)y)                                                           \
    FXI_LOOP2(fld_##S, T, T, fld1((int64_t)x, (int64_t)y))                                         \
    FXI_LOOP2(pow_##S, T, T, pow1((int64_t)x, (int64_t)y))                                         \
    FXI_LOOP2(max_##S, T, T, x > y ? x : y)                                                        \
    FXI_LOOP2(min_##S, T, T, x < y ? x : y)                                                        \
    FXI_LOOP1(neg_##S, T, T, 0u - (U)x)                                                            \
    FXI_LOOP1(floor_##S, T, T, x)                                                                  \
    static void powi_##S(void *dv, const void *const *s, int n, int64_t e)                         \
    {                                                                                              \
        const T *a = s[0];                                                                         \
        T *d = dv;                                                                                 \
        for (int i = 0; i < n; i++)                                                                \
            d[i] = (T)pow1((int64_t)a[i], e);                                                      \
    }
FXI_INTEGER_LOOPS(i32, int32_t, uint32_t)
FXI_INTEGER_LOOPS(i64, int64_t, uint64_t)
FXI_INTEGER_LOOPS(u8, uint8_t, uint8_t)

#define FXI_ROW_FLOAT(n)                                                                           \
    {                                                                                              \
        n##_f32, n##_f64, NULL, NULL, NULL, NULL                                                   \
    }
#define FXI_ROW_SIGNED(n)                                                                          \
    {                                                                                              \
        n##_f32, n##_f64, n##_i32, n##_i64, n##_u8, NULL                                           \
    }
#define FXI_ROW_ALL(n)                                                                             \
    {                                                                                              \
        n##_f32, n##_f64, n##_i32, n##_i64, n##_u8, n##_u8                                         \
    }
static const fxi_tile_fn tile_ops[FX_OP_COUNT][FXI_C_COUNT] = {
    [FX_OP_ADD] = FXI_ROW_SIGNED(add),
    [FX_OP_SUB] = FXI_ROW_SIGNED(sub),
    [FX_OP_MUL] = FXI_ROW_ALL(mul),
    [FX_OP_DIV] = FXI_ROW_FLOAT(div),
    [FX_OP_FLD] = FXI_ROW_SIGNED(fld),
    [FX_OP_POW] = FXI_ROW_SIGNED(pow),
    [FX_OP_MAX] = FXI_ROW_ALL(max),
    [FX_OP_MIN] = FXI_ROW_ALL(min),
    [FX_OP_ATAN2] = FXI_ROW_FLOAT(atan2),
    [FX_OP_LT] = FXI_ROW_ALL(lt),
    [FX_OP_LE] = FXI_ROW_ALL(le),
    [FX_OP_EQ] = FXI_ROW_ALL(eq),
    [FX_OP_NE] = FXI_ROW_ALL(ne),
    [FX_OP_SELECT] = FXI_ROW_ALL(select),
    [FX_OP_NEG] = FXI_ROW_SIGNED(neg),
    [FX_OP_POWI] = FXI_ROW_SIGNED(powi),
    [FX_OP_EXP] = FXI_ROW_FLOAT(exp),
    [FX_OP_EXPM1] = FXI_ROW_FLOAT(expm1),
    [FX_OP_LOG] = FXI_ROW_FLOAT(log),
    [FX_OP_LOG1P] = FXI_ROW_FLOAT(log1p),
    [FX_OP_SQRT] = FXI_ROW_FLOAT(sqrt),
    [FX_OP_SIN] = FXI_ROW_FLOAT(sin),
    [FX_OP_COS] = FXI_ROW_FLOAT(cos),
    [FX_OP_TANH] = FXI_ROW_FLOAT(tanh),
    [FX_OP_SIGMOID] = FXI_ROW_FLOAT(sigmoid),
    [FX_OP_RELU] = FXI_ROW_ALL(relu),
    [FX_OP_ERF] = FXI_ROW_FLOAT(erf),
    [FX_OP_FLOOR] = FXI_ROW_SIGNED(floor),
};

#define FXI_ROW_MIXED(n)                                                                           \
    {                                                                                              \
        {n##_f32_vs, n##_f32_sv},                                                                  \
        {                                                                                          \
            n##_f64_vs, n##_f64_sv                                                                 \
        }                                                                                          \
    }
static const fxi_tile_fn tile_mixed[FX_OP_COUNT][2][2] = {
    [FX_OP_ADD] = FXI_ROW_MIXED(add),       [FX_OP_SUB] = FXI_ROW_MIXED(sub),
    [FX_OP_MUL] = FXI_ROW_MIXED(mul),       [FX_OP_DIV] = FXI_ROW_MIXED(div),
    [FX_OP_MAX] = FXI_ROW_MIXED(max),       [FX_OP_MIN] = FXI_ROW_MIXED(min),
    [FX_OP_LT] = FXI_ROW_MIXED(lt),         [FX_OP_LE] = FXI_ROW_MIXED(le),
    [FX_OP_EQ] = FXI_ROW_MIXED(eq),         [FX_OP_NE] = FXI_ROW_MIXED(ne),
    [FX_OP_SELECT] = FXI_ROW_MIXED(select),
};

/* ---- conversions ----------------------------------------------------------------------------- */
#define FXI_CASTS_TO(S, T, TO_F32, TO_F64, TO_I32, TO_I64, TO_U8)                                  \
    FXI_LOOP1(S##_to_f32, T, float, TO_F32)                                                        \
    FXI_LOOP1(S##_to_f64, T, double, TO_F64)                                                       \
    FXI_LOOP1(S##_to_i32, T, int32_t, TO_I32)                                                      \
    FXI_LOOP1(S##_to_i64, T, int64_t, TO_I64)                                                      \
    FXI_LOOP1(S##_to_u8, T, uint8_t, TO_U8)                                                        \
    FXI_LOOP1(S##_to_bool, T, uint8_t, x != 0)
FXI_CASTS_TO(f32, float, x, x, to_i32((double)x), to_i64((double)x), to_u8((double)x))
FXI_CASTS_TO(f64, double, x, x, to_i32(x), to_i64(x), to_u8(x))
FXI_CASTS_TO(i32, int32_t, x, x, x, x, x)
FXI_CASTS_TO(i64, int64_t, x, x, x, x, x)
FXI_CASTS_TO(u8, uint8_t, x, x, x, x, x)
#define FXI_ROW_CAST(S)                                                                            \
    {                                                                                              \
        S##_to_f32, S##_to_f64, S##_to_i32, S##_to_i64, S##_to_u8, S##_to_bool                     \
    }
static const fxi_tile_fn tile_casts[FXI_C_COUNT][FXI_C_COUNT] = {
    FXI_ROW_CAST(f32), FXI_ROW_CAST(f64), FXI_ROW_CAST(i32),
    FXI_ROW_CAST(i64), FXI_ROW_CAST(u8),  FXI_ROW_CAST(u8),
};

FXI_LOOP1(f64_to_odd, double, float, fxi_f64_to_odd(x))
FXI_LOOP1(i32_to_odd, int32_t, float, fxi_f64_to_odd((double)x))
FXI_LOOP1(i64_to_odd, int64_t, float, fxi_f64_to_odd((double)x))
static const fxi_tile_fn tile_odd[FXI_C_COUNT] = {f32_to_f32, f64_to_odd, i32_to_odd,
                                                  i64_to_odd, u8_to_f32,  u8_to_f32};

FXI_LOOP1(round_f16, float, float, fxi_f16_to_f32(fxi_f32_to_f16(x)))
FXI_LOOP1(round_bf16, float, float, fxi_bf16_to_f32(fxi_f32_to_bf16(x)))
FXI_LOOP1(load_f16, uint16_t, float, fxi_f16_to_f32(x))
FXI_LOOP1(load_bf16, uint16_t, float, fxi_bf16_to_f32(x))
FXI_LOOP1(store_f16, float, uint16_t, fxi_f32_to_f16(x))
FXI_LOOP1(store_bf16, float, uint16_t, fxi_f32_to_bf16(x))
static const fxi_tile_fn tile_round[2] = {round_f16, round_bf16};
static const fxi_tile_fn tile_load[2] = {load_f16, load_bf16};
static const fxi_tile_fn tile_store[2] = {store_f16, store_bf16};

/* ---- stores past the caches ------------------------------------------------------------------ */
#if defined(__SSE2__)
#include <emmintrin.h>
static void stream(void *dv, const void *sv, size_t bytes)
{
    char *d = dv;
    const char *s = sv;
    const size_t odd = (size_t)(-(uintptr_t)d % 16), head = odd < bytes ? odd : bytes;
    memcpy(d, s, head);
    size_t k = head;
    for (; k + 16 <= bytes; k += 16)
        _mm_stream_si128((__m128i *)(void *)(d + k),
                         _mm_loadu_si128((const __m128i *)(const void *)(s + k)));
    memcpy(d + k, s + k, bytes - k);
}
static void stream_end(void)
{
    _mm_sfence();
}
#else
static void stream(void *d, const void *s, size_t bytes)
{
    memcpy(d, s, bytes);
}
static void stream_end(void) {}
#endif
