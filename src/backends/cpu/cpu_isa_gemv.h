/* cpu_isa_gemv.h: a matrix times a vector, for matrices in their own memory; part of cpu_isa.h.
 *
 * y[i] += Σ a(i, p)·x[p·xs] over p < k, one term after the other in the order of p, as in the tile
 * of the matrix product, so both give the same bits. Vectors run along the rows i:
 *
 * columns  rows are neighbours. Several columns are added in one pass over y, which stays in the
 *          first-level cache, and the matrix is read in the order of memory.
 * across   terms are neighbours. Squares are transposed in registers. A cache line of each row is
 *          used up at once: rows whose distance is a power of two share a cache set, and would
 *          evict each other.
 */
/* COLUMNS: of one pass over y. GROUPS: groups of rows at a time, if terms are neighbours, because
 * each sum waits for its previous term. */
enum { FXI_GEMV_COLUMNS = 8, FXI_GEMV_GROUPS = 2 };

/* The low and the high halves of each 16 bytes of a and b, interleaved: a₀ b₀ a₁ b₁ and a₂ b₂ a₃ b₃
 * for numbers of 4 bytes, a₀ b₀ and a₁ b₁ for those of 8. JOIN makes a vector of pieces of 16
 * bytes. */
#if FXI_VECTOR_BYTES == 64
#define FXI_LOW32(a, b)                                                                            \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define FXI_HIGH32(a, b)                                                                           \
    __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define FXI_LOW64(a, b)  __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14)
#define FXI_HIGH64(a, b) __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15)
#elif FXI_VECTOR_BYTES == 32
#define FXI_LOW32(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define FXI_HIGH32(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define FXI_LOW64(a, b)  __builtin_shufflevector(a, b, 0, 4, 2, 6)
#define FXI_HIGH64(a, b) __builtin_shufflevector(a, b, 1, 5, 3, 7)
#define FXI_JOIN32(p)    __builtin_shufflevector(p[0], p[1], 0, 1, 2, 3, 4, 5, 6, 7)
#define FXI_JOIN64(p)    __builtin_shufflevector(p[0], p[1], 0, 1, 2, 3)
#else
#define FXI_LOW32(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define FXI_HIGH32(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define FXI_LOW64(a, b)  __builtin_shufflevector(a, b, 0, 2)
#define FXI_HIGH64(a, b) __builtin_shufflevector(a, b, 1, 3)
#define FXI_JOIN32(p)    (p[0])
#define FXI_JOIN64(p)    (p[0])
#endif

/* Adds the terms of one cache line of M groups of L rows to the sums of the groups. */
#if FXI_VECTOR_BYTES == 64
/* A vector is a whole line, so each line is loaded once. These choose every second piece of 16
 * bytes, from the first or from the second on, of a and then of b: */
#define FXI_EVEN64(a, b) __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13)
#define FXI_ODD64(a, b)  __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15)
/* Piece b of part[g] (16 bytes) has one term, the same for all g, of the rows of group g.
 * out[b·step] gets piece b of the four groups: this term of all rows. */
FXI_INLINE void join_quarters(const vd *part, vd *out, int step)
{
    const vd even01 = FXI_EVEN64(part[0], part[1]), even23 = FXI_EVEN64(part[2], part[3]);
    const vd odd01 = FXI_ODD64(part[0], part[1]), odd23 = FXI_ODD64(part[2], part[3]);
    out[0] = FXI_EVEN64(even01, even23);
    out[step] = FXI_EVEN64(odd01, odd23);
    out[2 * step] = FXI_ODD64(even01, even23);
    out[3 * step] = FXI_ODD64(odd01, odd23);
}
/* A function, because gcc 12 keeps a vector in memory that memcpy has filled as part of an array.
 */
#define FXI_GEMV_LOAD(S, T, V)                                                                     \
    FXI_INLINE V gemv_load_##S(const T *from)                                                      \
    {                                                                                              \
        V v;                                                                                       \
        memcpy(&v, from, sizeof v);                                                                \
        return v;                                                                                  \
    }
FXI_GEMV_LOAD(f32, float, vf)
FXI_GEMV_LOAD(f64, double, vd)

/* out[t]: term t of the line of 16 rows. */
FXI_INLINE void line_f32(const float *a, int64_t stride, vf *out)
{
    vd part[4][4], all[16];
    FXI_UNROLL
    for (int g = 0; g < 4; g++) {
        const float *row = a + 4 * g * stride;
        const vf p0 = gemv_load_f32(row), p1 = gemv_load_f32(row + stride),
                 p2 = gemv_load_f32(row + 2 * stride), p3 = gemv_load_f32(row + 3 * stride);
        const vd low01 = (vd)FXI_LOW32(p0, p1), low23 = (vd)FXI_LOW32(p2, p3);
        const vd high01 = (vd)FXI_HIGH32(p0, p1), high23 = (vd)FXI_HIGH32(p2, p3);
        part[0][g] = FXI_LOW64(low01, low23);
        part[1][g] = FXI_HIGH64(low01, low23);
        part[2][g] = FXI_LOW64(high01, high23);
        part[3][g] = FXI_HIGH64(high01, high23);
    }
    FXI_UNROLL
    for (int j = 0; j < 4; j++)
        join_quarters(part[j], all + j, 4);
    FXI_UNROLL
    for (int t = 0; t < 16; t++)
        out[t] = (vf)all[t];
}
/* out[t]: term t of the line of 8 rows. */
FXI_INLINE void line_f64(const double *a, int64_t stride, vd *out)
{
    vd part[2][4];
    FXI_UNROLL
    for (int g = 0; g < 4; g++) {
        const double *row = a + 2 * g * stride;
        const vd p0 = gemv_load_f64(row), p1 = gemv_load_f64(row + stride);
        part[0][g] = FXI_LOW64(p0, p1);
        part[1][g] = FXI_HIGH64(p0, p1);
    }
    join_quarters(part[0], out, 2);
    join_quarters(part[1], out + 1, 2);
}
/* The terms of the groups are added alternately, because each sum waits for its previous term. */
#define FXI_GEMV_LINES(S, NAME, T, V, N)                                                           \
    FXI_INLINE void add_lines_##S(const T *a, int64_t stride, const T *x, int64_t xs, V *sum,      \
                                  const int M)                                                     \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T) };                                                        \
        V t[FXI_GEMV_GROUPS][L];                                                                   \
        FXI_UNROLL                                                                                 \
        for (int g = 0; g < M; g++)                                                                \
            line_##S(a + g * L * stride, stride, t[g]);                                            \
        FXI_UNROLL                                                                                 \
        for (int q = 0; q < L; q++) {                                                              \
            const V b = x[q * xs] - (V){0};                                                        \
            FXI_UNROLL                                                                             \
            for (int g = 0; g < M; g++)                                                            \
                sum[g] = FXI_FMA_##NAME(t[g][q], b, sum[g]);                                       \
        }                                                                                          \
    }
#else
/* Only shuffles within 16 bytes are used, which take one cycle on every processor; those across a
 * whole vector take three.
 *
 * A piece has 16 bytes of every fourth row (Float64: of every second), so that transpositions
 * within 16 bytes put the rows in order. out[t] has term t of L rows. */
#define FXI_GEMV_SQUARES(S, T, V, H, N, JOIN)                                                      \
    FXI_INLINE V piece_##S(const T *a, int64_t stride)                                             \
    {                                                                                              \
        H part[sizeof(V) / sizeof(H)];                                                             \
        FXI_UNROLL                                                                                 \
        for (size_t g = 0; g < sizeof(V) / sizeof(H); g++)                                         \
            memcpy(&part[g], a + (int64_t)g * N * stride, sizeof(H));                              \
        return JOIN(part);                                                                         \
    }
FXI_GEMV_SQUARES(f32, float, vf, f32x16b, 4, FXI_JOIN32)
FXI_GEMV_SQUARES(f64, double, vd, f64x16b, 2, FXI_JOIN64)

/* Four terms of 4-byte numbers: pairs of rows first, then pairs of pairs, whose 8 bytes are moved
 * as one Float64. */
FXI_INLINE void terms_f32(const float *a, int64_t stride, vf *out)
{
    const vf p0 = piece_f32(a, stride), p1 = piece_f32(a + stride, stride),
             p2 = piece_f32(a + 2 * stride, stride), p3 = piece_f32(a + 3 * stride, stride);
    const vd low01 = (vd)FXI_LOW32(p0, p1), low23 = (vd)FXI_LOW32(p2, p3);
    const vd high01 = (vd)FXI_HIGH32(p0, p1), high23 = (vd)FXI_HIGH32(p2, p3);
    out[0] = (vf)FXI_LOW64(low01, low23);
    out[1] = (vf)FXI_HIGH64(low01, low23);
    out[2] = (vf)FXI_LOW64(high01, high23);
    out[3] = (vf)FXI_HIGH64(high01, high23);
}
/* Two terms of 8-byte numbers. */
FXI_INLINE void terms_f64(const double *a, int64_t stride, vd *out)
{
    const vd p0 = piece_f64(a, stride), p1 = piece_f64(a + stride, stride);
    out[0] = FXI_LOW64(p0, p1);
    out[1] = FXI_HIGH64(p0, p1);
}
#define FXI_GEMV_LINES(S, NAME, T, V, N)                                                           \
    FXI_INLINE void add_lines_##S(const T *a, int64_t stride, const T *x, int64_t xs, V *sum,      \
                                  const int M)                                                     \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T) };                                                        \
        FXI_UNROLL                                                                                 \
        for (int g = 0; g < M; g++)                                                                \
            FXI_UNROLL                                                                             \
        for (int b = 0; b < (int)(64 / sizeof(T)); b += N) {                                       \
            V t[N];                                                                                \
            terms_##S(a + g * L * stride + b, stride, t);                                          \
            FXI_UNROLL                                                                             \
            for (int q = 0; q < N; q++)                                                            \
                sum[g] = FXI_FMA_##NAME(t[q], x[(b + q) * xs] - (V){0}, sum[g]);                   \
        }                                                                                          \
    }
#endif
FXI_GEMV_LINES(f32, F32, float, vf, 4)
FXI_GEMV_LINES(f64, F64, double, vd, 2)

/* gcc would keep an address for each of the 32 rows in AVX-512's long loop, more than there are
 * registers, and vectors would wait in memory: a matrix of 256×256 took 3.3 µs in place of 2.5. */
#if FXI_VECTOR_BYTES == 64 && !defined(__clang__)
#define FXI_GEMV_ADDRESSES __attribute__((optimize("no-ivopts")))
#else
#define FXI_GEMV_ADDRESSES
#endif

/* S: suffix; T, V: number and vector; NAME: F32 or F64. */
/* Addresses and lengths are copied before the loops: the compiler must assume that a store changes
 * *p. Reading the fields again after each store took a third of the time. */
#define FXI_GEMV(S, NAME, T, V)                                                                    \
    FXI_INLINE void add_columns_##S(T *y, const T *a, int64_t rows, int64_t stride, const T *x,    \
                                    int64_t xs, const int M)                                       \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T) };                                                        \
        const T *column[FXI_GEMV_COLUMNS];                                                         \
        T one[FXI_GEMV_COLUMNS];                                                                   \
        V s[FXI_GEMV_COLUMNS];                                                                     \
        FXI_UNROLL                                                                                 \
        for (int j = 0; j < M; j++) {                                                              \
            column[j] = a + j * stride;                                                            \
            one[j] = x[j * xs];                                                                    \
            s[j] = one[j] - (V){0};                                                                \
        }                                                                                          \
        int64_t i = 0;                                                                             \
        for (; i + L <= rows; i += L) {                                                            \
            V sum, v;                                                                              \
            memcpy(&sum, y + i, sizeof sum);                                                       \
            FXI_UNROLL                                                                             \
            for (int j = 0; j < M; j++) {                                                          \
                memcpy(&v, column[j] + i, sizeof v);                                               \
                sum = FXI_FMA_##NAME(v, s[j], sum);                                                \
            }                                                                                      \
            memcpy(y + i, &sum, sizeof sum);                                                       \
        }                                                                                          \
        for (; i < rows; i++)                                                                      \
            for (int j = 0; j < M; j++)                                                            \
                y[i] = FXI_FMA1_##NAME(column[j][i], one[j], y[i]);                                \
    }                                                                                              \
    static void gemv_columns_##S(const fxi_gemv *p)                                                \
    {                                                                                              \
        const int64_t rows = p->rows, stride = p->stride, xs = p->xs;                              \
        const T *a = p->a, *x = p->x;                                                              \
        int64_t k = 0;                                                                             \
        for (; k + FXI_GEMV_COLUMNS <= p->k; k += FXI_GEMV_COLUMNS)                                \
            add_columns_##S(p->y, a + k * stride, rows, stride, x + k * xs, xs, FXI_GEMV_COLUMNS); \
        for (; k + FXI_GEMV_COLUMNS / 2 <= p->k; k += FXI_GEMV_COLUMNS / 2)                        \
            add_columns_##S(p->y, a + k * stride, rows, stride, x + k * xs, xs,                    \
                            FXI_GEMV_COLUMNS / 2);                                                 \
        for (; k < p->k; k++)                                                                      \
            add_columns_##S(p->y, a + k * stride, rows, stride, x + k * xs, xs, 1);                \
    }                                                                                              \
    /* Terms from k on of n rows, one by one. */                                                   \
    FXI_INLINE void add_rest_##S(const fxi_gemv *p, int64_t i, int64_t n, int64_t k)               \
    {                                                                                              \
        const T *a = (const T *)p->a + i * p->stride, *x = p->x;                                   \
        T *y = (T *)p->y + i;                                                                      \
        for (; n > 0; n--, a += p->stride, y++) {                                                  \
            T sum = *y;                                                                            \
            for (int64_t q = k; q < p->k; q++)                                                     \
                sum = FXI_FMA1_##NAME(a[q], x[q * p->xs], sum);                                    \
            *y = sum;                                                                              \
        }                                                                                          \
    }                                                                                              \
    /* The terms of M groups of L rows. */                                                         \
    FXI_INLINE void add_rows_##S(const fxi_gemv *p, int64_t i, const int M)                        \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T), LINE = 64 / sizeof(T) };                                 \
        const int64_t stride = p->stride, xs = p->xs, terms = p->k;                                \
        const T *a = (const T *)p->a + i * stride, *x = p->x;                                      \
        V sum[FXI_GEMV_GROUPS];                                                                    \
        FXI_UNROLL                                                                                 \
        for (int g = 0; g < M; g++)                                                                \
            memcpy(&sum[g], (T *)p->y + i + g * L, sizeof *sum);                                   \
        int64_t k = 0;                                                                             \
        for (; k + LINE <= terms; k += LINE)                                                       \
            add_lines_##S(a + k, stride, x + k * xs, xs, sum, M);                                  \
        FXI_UNROLL                                                                                 \
        for (int g = 0; g < M; g++)                                                                \
            memcpy((T *)p->y + i + g * L, &sum[g], sizeof *sum);                                   \
        add_rest_##S(p, i, M *L, k);                                                               \
    }                                                                                              \
    static FXI_GEMV_ADDRESSES void gemv_across_##S(const fxi_gemv *p)                              \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T) };                                                        \
        int64_t i = 0;                                                                             \
        for (; i + FXI_GEMV_GROUPS * L <= p->rows; i += FXI_GEMV_GROUPS * L)                       \
            add_rows_##S(p, i, FXI_GEMV_GROUPS);                                                   \
        for (; i + L <= p->rows; i += L)                                                           \
            add_rows_##S(p, i, 1);                                                                 \
        add_rest_##S(p, i, p->rows - i, 0);                                                        \
    }
FXI_GEMV(f32, F32, float, vf)
FXI_GEMV(f64, F64, double, vd)

static const fxi_gemv_core tile_gemv[2] = {{gemv_columns_f32, gemv_across_f32},
                                           {gemv_columns_f64, gemv_across_f64}};
