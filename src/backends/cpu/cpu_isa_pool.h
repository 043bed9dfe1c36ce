/* cpu_isa_pool.h: pooling for one tap of a row of windows at a time, and for windows of 2×2; part
 * of cpu_isa.h.
 *
 * Neighbouring windows begin `stride` elements apart, so one tap of all of them is one strided run
 * of x. Taps are taken in the order of the window, so that the first NaN, else the first largest
 * element, is the maximum. Strides 1 and 2, the usual ones, have loops of their own, which become
 * vectors.
 */
/* Does v replace top? Also if v is the first NaN; a NaN in top stays. This form becomes vectors
 * with gcc; with & and | it does not. */
#define FXI_BEATS(v, top) ((v) > (top) || ((v) != (v) && (top) == (top)))

/* Lets the compiler vectorise the loops over a block. Without it, gcc unrolls these loops
 * completely and then has no loop to vectorise. */
#if defined(__clang__)
#define FXI_POOL_LOOP FXI_IVDEP
#else
#define FXI_POOL_LOOP _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
#endif

/* The elements are gathered first and filled up with values that beat nothing, so that no loop has
 * a remainder. Indices are set before the maxima, because both loops compare with the old maxima.
 */
#define FXI_POOL_MAXIMA(S, T, LOW)                                                                 \
    static void pool_low_##S(int64_t n, void *top)                                                 \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            ((T *)top)[i] = LOW;                                                                   \
    }                                                                                              \
    static inline __attribute__((always_inline)) void pool_take_##S(const T *x, int64_t n,         \
                                                                    int64_t stride, T *d)          \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            d[i] = x[i * stride];                                                                  \
        for (int64_t i = n; i % FXI_POOL_SLACK; i++)                                               \
            d[i] = LOW;                                                                            \
    }                                                                                              \
    static void pool_max_##S(const void *xv, int64_t first, int64_t n, int64_t stride, void *top,  \
                             int64_t *at)                                                          \
    {                                                                                              \
        const T *x = (const T *)xv + first;                                                        \
        T d[FXI_TILE], *t = top;                                                                   \
        /* Calls with a constant stride, so that the usual ones become vectors. */                 \
        stride == 1   ? pool_take_##S(x, n, 1, d)                                                  \
        : stride == 2 ? pool_take_##S(x, n, 2, d)                                                  \
                      : pool_take_##S(x, n, stride, d);                                            \
        for (int64_t i = 0; i < n; i += FXI_POOL_SLACK) {                                          \
            FXI_POOL_LOOP                                                                          \
            for (int l = 0; at && l < FXI_POOL_SLACK; l++)                                         \
                at[i + l] = FXI_BEATS(d[i + l], t[i + l]) ? first + (i + l) * stride : at[i + l];  \
            FXI_POOL_LOOP                                                                          \
            for (int l = 0; l < FXI_POOL_SLACK; l++)                                               \
                t[i + l] = FXI_BEATS(d[i + l], t[i + l]) ? d[i + l] : t[i + l];                    \
        }                                                                                          \
    }

/* The sum and its gradient, for means. Sums are doubles, as in the other reductions of floats, so
 * the rounding of a sum is not visible in a Float32 mean. The gradient gives each element of a
 * window an equal share. Strides 1 and 2 are constants in calls of their own, as above. One tap of
 * different windows is different elements, so no element gets two shares in one call. */
#define FXI_POOL_SUM(S, T)                                                                         \
    static inline void pool_run_##S(const T *x, int64_t n, int64_t stride, double *restrict sum)   \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            sum[i] += (double)x[i * stride];                                                       \
    }                                                                                              \
    static void pool_sum_##S(const void *xv, int64_t first, int64_t n, int64_t stride,             \
                             double *sum)                                                          \
    {                                                                                              \
        const T *x = (const T *)xv + first;                                                        \
        stride == 1   ? pool_run_##S(x, n, 1, sum)                                                 \
        : stride == 2 ? pool_run_##S(x, n, 2, sum)                                                 \
                      : pool_run_##S(x, n, stride, sum);                                           \
    }                                                                                              \
    static inline void pool_give_##S(T *restrict x, int64_t n, int64_t stride,                     \
                                     const T *restrict share)                                      \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            x[i * stride] += share[i];                                                             \
    }                                                                                              \
    static void pool_spread_##S(void *xv, int64_t first, int64_t n, int64_t stride,                \
                                const void *share)                                                 \
    {                                                                                              \
        T *x = (T *)xv + first;                                                                    \
        stride == 1   ? pool_give_##S(x, n, 1, share)                                              \
        : stride == 2 ? pool_give_##S(x, n, 2, share)                                              \
                      : pool_give_##S(x, n, stride, share);                                        \
    }

/* ---- windows of 2×2 side by side ------------------------------------------------------------- */
/* NAME(e, L, at): the number of the tap at which each of L windows has its maximum, an integer of
 * the type's size; e[k] has tap k of each window. Written in vector types, because gcc turns a loop
 * over all taps into branches. Lanes without a window are cleared, because they are computed too.
 */
#define FXI_POOL_FIND(NAME, T, I, BYTES)                                                           \
    typedef T NAME##_v __attribute__((vector_size(BYTES)));                                        \
    typedef I NAME##_mask __attribute__((vector_size(BYTES)));                                     \
    FXI_INLINE void NAME(T e[4][16], const int L, I *at)                                           \
    {                                                                                              \
        for (int i = 0; i < L; i += BYTES / (int)sizeof(T)) {                                      \
            NAME##_v top, w;                                                                       \
            NAME##_mask best = {0};                                                                \
            memcpy(&top, e[0] + i, sizeof top);                                                    \
            FXI_UNROLL                                                                             \
            for (int k = 1; k < 4; k++) {                                                          \
                memcpy(&w, e[k] + i, sizeof w);                                                    \
                const NAME##_mask beats = (w > top) | ((w != w) & (top == top));                   \
                top = (NAME##_v)(((NAME##_mask)w & beats) | ((NAME##_mask)top & ~beats));          \
                best = (beats & k) | (best & ~beats);                                              \
            }                                                                                      \
            memcpy(at + i, &best, sizeof best);                                                    \
        }                                                                                          \
    }
#define FXI_POOL_FINDS(S, T, I)                                                                    \
    FXI_POOL_FIND(pool_find_##S##_16, T, I, 16)                                                    \
    FXI_POOL_FIND(pool_find_##S##_32, T, I, 32)                                                    \
    FXI_POOL_FIND(pool_find_##S##_64, T, I, 64)                                                    \
    FXI_INLINE void pool_find_##S(T e[4][16], const int L, I *at)                                  \
    {                                                                                              \
        /* Full vectors: a load that is wider than the stores before it waits for them. */         \
        const int all = L * (int)sizeof(T);                                                        \
        if (FXI_VECTOR_BYTES >= 64 && all >= 64)                                                   \
            pool_find_##S##_64(e, L, at);                                                          \
        else if (FXI_VECTOR_BYTES >= 32 && all >= 32)                                              \
            pool_find_##S##_32(e, L, at);                                                          \
        else                                                                                       \
            pool_find_##S##_16(e, L, at);                                                          \
    }
FXI_POOL_FINDS(f32, float, int32_t)
FXI_POOL_FINDS(f64, double, int64_t)

#define FXI_POOL_PAIR_FIND(S, T, I)                                                                \
    T e[4][16];                                                                                    \
    I at[16];                                                                                      \
    if (L * (int)sizeof(T) < 16)                                                                   \
        memset(e, 0, sizeof e);                                                                    \
    FXI_POOL_EACH(e[0][l] = x[0][2 * l]; e[1][l] = x[0][2 * l + 1];)                               \
    FXI_POOL_EACH(e[2][l] = x[1][2 * l]; e[3][l] = x[1][2 * l + 1];)                               \
    pool_find_##S(e, L, at);

#define FXI_POOL_EACH(BODY)                                                                        \
    FXI_POOL_LOOP                                                                                  \
    for (int l = 0; l < L; l++) {                                                                  \
        BODY                                                                                       \
    }

/* Defines NAME(p), which runs BODY for blocks of L windows; in it x, y and v are rows of operands.
 * The last block of a row overlaps the previous block instead of being shorter, so every block has
 * one of four sizes that the compiler knows. */
#define FXI_POOL_PAIRS(NAME, X, Y, V, BODY)                                                        \
    static inline __attribute__((always_inline)) void NAME##_block(X *restrict r0, X *restrict r1, \
                                                                   Y *restrict y, V *restrict v0,  \
                                                                   V *restrict v1, const int L)    \
    {                                                                                              \
        X *const x[2] = {r0, r1};                                                                  \
        V *const v[2] = {v0, v1};                                                                  \
        (void)v;                                                                                   \
        BODY                                                                                       \
    }                                                                                              \
    static inline __attribute__((always_inline)) void NAME##_row(X *x, Y *y, V *v, int64_t pitch,  \
                                                                 int64_t n, const int L)           \
    {                                                                                              \
        for (int64_t i = 0; i < n; i += L) {                                                       \
            i = i + L > n ? n - L : i;                                                             \
            NAME##_block(x + 2 * i, x + pitch + 2 * i, y + i, v + 2 * i, v + pitch + 2 * i, L);    \
        }                                                                                          \
    }                                                                                              \
    static void NAME(const fxi_pool_pairs *p)                                                      \
    {                                                                                              \
        X *x = (X *)p->x;                                                                          \
        Y *y = (Y *)p->y;                                                                          \
        V *v = (V *)p->v;                                                                          \
        for (int64_t j = 0; j < p->rows; j++, x += 2 * p->pitch, y += p->n, v += 2 * p->pitch)     \
            if (p->n >= 16)                                                                        \
                NAME##_row(x, y, v, p->pitch, p->n, 16);                                           \
            else if (p->n >= 8)                                                                    \
                NAME##_row(x, y, v, p->pitch, p->n, 8);                                            \
            else if (p->n >= 4)                                                                    \
                NAME##_row(x, y, v, p->pitch, p->n, 4);                                            \
            else                                                                                   \
                NAME##_row(x, y, v, p->pitch, p->n, 1);                                            \
    }

#define FXI_POOL_FLOAT_PAIRS(S, T, I)                                                              \
    FXI_POOL_PAIRS(pair_max_##S, const T, T, const T,                                              \
                   FXI_POOL_EACH(T t = x[0][2 * l]; T e = x[0][2 * l + 1];                         \
                                 t = FXI_BEATS(e, t) ? e : t; e = x[1][2 * l];                     \
                                 t = FXI_BEATS(e, t) ? e : t; e = x[1][2 * l + 1];                 \
                                 y[l] = FXI_BEATS(e, t) ? e : t;))                                 \
    FXI_POOL_PAIRS(pair_mean_##S, const T, T, const T,                                             \
                   FXI_POOL_EACH(double sum = (double)x[0][2 * l]; sum += (double)x[0][2 * l + 1]; \
                                 sum += (double)x[1][2 * l]; sum += (double)x[1][2 * l + 1];       \
                                 y[l] = (T)(sum / 4);))                                            \
    FXI_POOL_PAIRS(pair_max_grad_##S, const T, const T, T,                                         \
                   FXI_POOL_PAIR_FIND(S, T, I)                                                     \
                       FXI_POOL_EACH(const T g = y[l]; v[0][2 * l] = at[l] == 0 ? g : 0;           \
                                     v[0][2 * l + 1] = at[l] == 1 ? g : 0;)                        \
                           FXI_POOL_EACH(const T g = y[l]; v[1][2 * l] = at[l] == 2 ? g : 0;       \
                                         v[1][2 * l + 1] = at[l] == 3 ? g : 0;))                   \
    FXI_POOL_PAIRS(pair_mean_grad_##S, const T, const T, T, (void)x; FXI_POOL_EACH(                \
                       const T share = (T)((double)y[l] / 4); v[0][2 * l] = share;                 \
                       v[0][2 * l + 1] = share; v[1][2 * l] = share; v[1][2 * l + 1] = share;))    \
    FXI_POOL_PAIRS(pair_pick_##S, const T, T, const T,                                             \
                   FXI_POOL_PAIR_FIND(S, T, I)                                                     \
                       FXI_POOL_EACH(const T a = at[l] & 1 ? v[0][2 * l + 1] : v[0][2 * l];        \
                                     const T b = at[l] & 1 ? v[1][2 * l + 1] : v[1][2 * l];        \
                                     y[l] = at[l] & 2 ? b : a;))

FXI_POOL_FLOAT_PAIRS(f32, float, int32_t)
FXI_POOL_FLOAT_PAIRS(f64, double, int64_t)
#define FXI_POOL_PAIR_TABLE(S)                                                                     \
    {                                                                                              \
        [FX_POOL_MAX] = pair_max_##S, [FX_POOL_MEAN] = pair_mean_##S,                              \
        [FX_POOL_MAX_GRAD] = pair_max_grad_##S, [FX_POOL_MEAN_GRAD] = pair_mean_grad_##S,          \
        [FX_POOL_MAX_PICK] = pair_pick_##S                                                         \
    }

FXI_POOL_MAXIMA(f32, float, -__builtin_inff())
FXI_POOL_MAXIMA(f64, double, -__builtin_inf())
FXI_POOL_MAXIMA(i32, int32_t, INT32_MIN)
FXI_POOL_MAXIMA(i64, int64_t, INT64_MIN)
FXI_POOL_MAXIMA(u8, uint8_t, 0)
FXI_POOL_SUM(f32, float)
FXI_POOL_SUM(f64, double)

/* Integers have no means and no gradients. A Bool is a byte, 0 or 1. */
static const fxi_pool_core tile_pool[FXI_C_COUNT] = {
    [FXI_C_F32] = {pool_low_f32, pool_max_f32, pool_sum_f32, pool_spread_f32,
                   FXI_POOL_PAIR_TABLE(f32)},
    [FXI_C_F64] = {pool_low_f64, pool_max_f64, pool_sum_f64, pool_spread_f64,
                   FXI_POOL_PAIR_TABLE(f64)},
    [FXI_C_I32] = {pool_low_i32, pool_max_i32, NULL, NULL, {0}},
    [FXI_C_I64] = {pool_low_i64, pool_max_i64, NULL, NULL, {0}},
    [FXI_C_U8] = {pool_low_u8, pool_max_u8, NULL, NULL, {0}},
    [FXI_C_BOOL] = {pool_low_u8, pool_max_u8, NULL, NULL, {0}},
};
