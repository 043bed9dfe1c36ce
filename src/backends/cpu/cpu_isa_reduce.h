/* cpu_isa_reduce.h: sums, products, maxima and minima of rows and columns; part of cpu_isa.h.
 *
 * A row has several running results: element i is added to result i mod LANES. At the end they are
 * folded in halves, so the order of additions depends on the row's length only. Columns are taken
 * eight rows at a time, so that memory is read fast and accumulators are read and written once for
 * all eight (sums of 4096×4096 along the strided axis: 2.2 ms instead of 5.8). Float32 sums and
 * products run in double, so even a sum of millions of numbers has only the error of its last
 * rounding. max and min are NaN if any element is. Sums of contiguous floats are written with
 * vector types: of two sets of 16 lanes gcc 12 keeps one in memory, where each addition waits for
 * the previous store. Comparisons become vectors only if the compiler keeps their loop, which it
 * does for 64 lanes.
 *
 * Contiguous rows that are longer than a tile come from memory. They are one stream, of which the
 * processor fetches too little in advance, so the loops fetch it. They do it ROW_AHEAD bytes in
 * advance, whatever the rows' length, so the end of a row fetches the next one. Rejected: two rows
 * at once while the next two are fetched. On an older machine (AVX2) 4096 sums of 4096 Float32 took
 * 3.6 ms that way, and 5.1 one by one without fetching. On a newer one (Zen 5, AVX-512) they took
 * 1.66 ms that way, and take 1.24 one by one.
 */
#define FXI_ADD_LANES     16
#define FXI_COMPARE_LANES 64

/* A few neighbouring columns are too few for vectors. If their rows follow each other in memory, as
 * in a sum over the batch of a small layer, they are read as FXI_FEW_LANES times as many
 * columns, whose results are folded in halves. */
#define FXI_FEW       8 /* fewer columns than this are few */
#define FXI_FEW_LANES 8
#define FXI_ARE_FEW(N, STRIDE, ROWS, PITCH)                                                        \
    ((N) > 0 && (N) < FXI_FEW && (STRIDE) == 1 && (PITCH) == (N) && (ROWS) >= 2 * FXI_FEW_LANES)

/* T: element; A: accumulator; EXPR combines accumulators p and q. Rows of fewer than 16 elements
 * are added in order: folding the lanes would take longer than the sum. */
#define FXI_REDUCER(NAME, T, A, LANES, INIT, EXPR)                                                 \
    static inline A NAME##_op(A p, A q)                                                            \
    {                                                                                              \
        return (A)(EXPR);                                                                          \
    }                                                                                              \
    static inline A NAME##_lanes(const T *x, int64_t n, int64_t stride)                            \
    {                                                                                              \
        A one = INIT;                                                                              \
        for (int64_t k = 0; n < 16 && k < n; k++)                                                  \
            one = NAME##_op(one, (A)x[k * stride]);                                                \
        if (n < 16)                                                                                \
            return one;                                                                            \
        /* Longer rows: lanes are independent, so additions need not wait for each other. */       \
        A l[LANES];                                                                                \
        for (int j = 0; j < LANES; j++)                                                            \
            l[j] = INIT;                                                                           \
        int64_t i = 0;                                                                             \
        for (; i + LANES <= n; i += LANES)                                                         \
            for (int j = 0; j < LANES; j++)                                                        \
                l[j] = NAME##_op(l[j], (A)x[(i + j) * stride]);                                    \
        /* The remaining elements go to the first lanes, as if the row continued. */               \
        for (int j = 0; i < n; i++, j++)                                                           \
            l[j] = NAME##_op(l[j], (A)x[i * stride]);                                              \
        for (int w = LANES / 2; w; w /= 2)                                                         \
            for (int j = 0; j < w; j++)                                                            \
                l[j] = NAME##_op(l[j], l[j + w]);                                                  \
        return l[0];                                                                               \
    }                                                                                              \
    static void NAME##_row(const void *x, int64_t n, int64_t stride, void *acc)                    \
    {                                                                                              \
        A *a = acc;                                                                                \
        /* Written twice, so that the compiler makes a loop for the constant stride 1. */          \
        *a = NAME##_op(*a, stride == 1 ? NAME##_lanes(x, n, 1) : NAME##_lanes(x, n, stride));      \
    }                                                                                              \
    static void NAME##_few(const T *x, int64_t n, int64_t rows, A *a)                              \
    {                                                                                              \
        enum { L = FXI_FEW_LANES };                                                                \
        A l[L * FXI_FEW];                                                                          \
        const int64_t whole = rows / L;                                                            \
        /* L of the n·L columns at a time, so that their sums stay in registers. */               \
        for (int64_t c = 0; c < n; c++) {                                                          \
            A s[L];                                                                                \
            for (int j = 0; j < L; j++)                                                            \
                s[j] = INIT;                                                                       \
            for (int64_t k = 0; k < whole; k++)                                                    \
                for (int j = 0; j < L; j++)                                                        \
                    s[j] = NAME##_op(s[j], (A)x[(k * n + c) * L + j]);                             \
            memcpy(l + c * L, s, sizeof s);                                                        \
        }                                                                                          \
        x += whole * n * L;                                                                        \
        rows -= whole * L;                                                                         \
        for (int64_t i = 0; i < n * rows; i++)                                                     \
            l[i] = NAME##_op(l[i], (A)x[i]);                                                       \
        for (int64_t w = n * L / 2; w >= n; w /= 2)                                                \
            for (int64_t i = 0; i < w; i++)                                                        \
                l[i] = NAME##_op(l[i], l[i + w]);                                                  \
        for (int64_t i = 0; i < n; i++)                                                            \
            a[i] = NAME##_op(a[i], l[i]);                                                          \
    }                                                                                              \
    /* a[i] combined with x[2·i] and x[2·i + 1], as for the scores of two classes. A loop of its \
     * own, which the compiler vectorises. */                                                      \
    static void NAME##_pairs(const T *x, int64_t n, A *a)                                          \
    {                                                                                              \
        FXI_IVDEP                                                                                  \
        for (int64_t i = 0; i < n; i++)                                                            \
            a[i] = NAME##_op(NAME##_op(a[i], (A)x[2 * i]), (A)x[2 * i + 1]);                       \
    }                                                                                              \
    static void NAME##_col(const void *xv, int64_t n, int64_t stride, int64_t rows, int64_t pitch, \
                           void *acc)                                                              \
    {                                                                                              \
        const T *x = xv;                                                                           \
        A *a = acc;                                                                                \
        int64_t k = 0;                                                                             \
        if (FXI_ARE_FEW(n, stride, rows, pitch)) {                                                 \
            NAME##_few(x, n, rows, a);                                                             \
            return;                                                                                \
        }                                                                                          \
        if (stride == 2 && rows == 2 && pitch == 1) {                                              \
            NAME##_pairs(x, n, a);                                                                 \
            return;                                                                                \
        }                                                                                          \
        /* Eight rows at a time, so that accumulators are loaded and stored once for all. */       \
        for (; stride == 1 && k + 8 <= rows; k += 8, x += 8 * pitch) {                             \
            const T *y = x + 4 * pitch;                                                            \
            FXI_IVDEP                                                                              \
            for (int64_t i = 0; i < n; i++) {                                                      \
                A t = NAME##_op(a[i], (A)x[i]);                                                    \
                t = NAME##_op(t, (A)x[i + pitch]);                                                 \
                t = NAME##_op(t, (A)x[i + 2 * pitch]);                                             \
                t = NAME##_op(t, (A)x[i + 3 * pitch]);                                             \
                t = NAME##_op(t, (A)y[i]);                                                         \
                t = NAME##_op(t, (A)y[i + pitch]);                                                 \
                t = NAME##_op(t, (A)y[i + 2 * pitch]);                                             \
                a[i] = NAME##_op(t, (A)y[i + 3 * pitch]);                                          \
            }                                                                                      \
        }                                                                                          \
        /* The remaining rows are combined in the same order as groups of eight, so the bits do    \
         * not depend on which rows are in a group. */                                             \
        for (; k < rows; k++, x += pitch)                                                          \
            if (stride == 1)                                                                       \
                for (int64_t i = 0; i < n; i++)                                                    \
                    a[i] = NAME##_op(a[i], (A)x[i]);                                               \
            else                                                                                   \
                for (int64_t i = 0; i < n; i++)                                                    \
                    a[i] = NAME##_op(a[i], (A)x[i * stride]);                                      \
    }                                                                                              \
    static void NAME##_merge(void *acc, const void *later, int64_t n)                              \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            ((A *)acc)[i] = NAME##_op(((A *)acc)[i], ((const A *)later)[i]);                       \
    }                                                                                              \
    static void NAME##_init(void *acc, int64_t n)                                                  \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            ((A *)acc)[i] = INIT;                                                                  \
    }                                                                                              \
    static void NAME##_done(const void *acc, int64_t n, void *out)                                 \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            /* The only rounding to the type of the elements. */                                   \
            ((T *)out)[i] = (T)((const A *)acc)[i];                                                \
    }

#define FXI_FLOAT_REDUCERS(S, T)                                                                   \
    FXI_REDUCER(rsum_##S, T, double, FXI_ADD_LANES, 0, p + q)                                      \
    FXI_REDUCER(rprod_##S, T, double, FXI_ADD_LANES, 1, p *q)                                      \
    FXI_REDUCER(rmax_##S, T, T, FXI_COMPARE_LANES, (T)-INFINITY, ((q > p) | (q != q)) ? q : p)     \
    FXI_REDUCER(rmin_##S, T, T, FXI_COMPARE_LANES, (T)INFINITY, ((q < p) | (q != q)) ? q : p)
FXI_FLOAT_REDUCERS(f32, float)
FXI_FLOAT_REDUCERS(f64, double)

/* Is a byte of the vector not 0? */
#ifndef FXI_SOME
#define FXI_SOME(v) (((v)[0] | (v)[1]) != 0) /* vectors of 16 bytes */
#endif

/* Bytes that a row is fetched ahead. Of the distances from 2 to 24 KiB this one is the fastest:
 * 4096 sums of 4096 Float32 take 1.65 ms with 2 KiB, 1.28 with 8, 1.24 with 12, 1.30 with 16,
 * and 1.38 with 24 (Zen 5, AVX-512). */
enum { ROW_AHEAD = 12 << 10 };

/* Extremes of whole vectors of a row, four at a time; the last ones may overlap others, which
 * changes no extreme. Each vector is copied by itself: gcc 12 copies an array of vectors through
 * memory, 16 bytes at a time (with AVX2 a maximum took 2.3 times as long). Vector comparisons lose
 * track of NaN, so a row with a NaN is left to the loops above. With those loops alone, maxima took
 * more than a third of the time of a softmax. */
#define FXI_EXTREME_ROW(NAME, T, V, EXCEEDS)                                                       \
    /* The extreme of all lanes; false if a lane is not ok. */                                     \
    static inline bool NAME##_fold(V all, V##_mask ok, T *extreme)                                 \
    {                                                                                              \
        enum { L = FXI_VECTOR_BYTES / sizeof(T) };                                                 \
        T lanes[L];                                                                                \
        /* Masks have another type on each instruction set, so they become numbers. */             \
        const V bad = V##_pick(ok, V##_splat(0), V##_splat(1));                                    \
        if (FXI_SOME((vl)bad))                                                                     \
            return false;                                                                          \
        memcpy(lanes, &all, sizeof lanes);                                                         \
        FXI_UNROLL                                                                                 \
        for (int w = L / 2; w; w /= 2) {                                                           \
            FXI_UNROLL                                                                             \
            for (int j = 0; j < w; j++)                                                            \
                /* No lane is NaN. So this is one instruction for each pair of lanes: a test for   \
                 * NaN would make branches of it, which are mispredicted (a row of 1000 took 32    \
                 * ns, and takes 24). */                                                           \
                lanes[j] = lanes[j + w] EXCEEDS lanes[j] ? lanes[j + w] : lanes[j];                \
        }                                                                                          \
        *extreme = lanes[0];                                                                       \
        return true;                                                                               \
    }                                                                                              \
    static inline bool NAME##_vectors(const T *x, int64_t n, int64_t ahead, T *extreme)            \
    {                                                                                              \
        enum { L = FXI_VECTOR_BYTES / sizeof(T), ALL = 4 * L, LINE = 64 / sizeof(T) };             \
        V m[4], v[4];                                                                              \
        FXI_UNROLL                                                                                 \
        for (int j = 0; j < 4; j++)                                                                \
            memcpy(&m[j], x + j * L, sizeof m[j]);                                                 \
        V##_mask ok = V##_ordered(m[0], m[1]) & V##_ordered(m[2], m[3]);                           \
        for (int64_t i = ALL; i < n; i += ALL) {                                                   \
            /* The last load ends with the row and may repeat elements, so there is no remainder.  \
             */                                                                                    \
            const T *four = x + (i < n - ALL ? i : n - ALL);                                       \
            FXI_UNROLL                                                                             \
            for (int j = 0; j < ALL; j += LINE)                                                    \
                if (ahead)                                                                         \
                    __builtin_prefetch(four + j + ahead);                                          \
            FXI_UNROLL                                                                             \
            for (int j = 0; j < 4; j++) {                                                          \
                memcpy(&v[j], four + j * L, sizeof v[j]);                                          \
                m[j] = NAME##_vector(v[j], m[j]);                                                  \
            }                                                                                      \
            ok &= V##_ordered(v[0], v[1]) & V##_ordered(v[2], v[3]);                               \
        }                                                                                          \
        return NAME##_fold(NAME##_vector(NAME##_vector(m[0], m[1]), NAME##_vector(m[2], m[3])),    \
                           ok, extreme);                                                           \
    }                                                                                              \
    /* ahead: the distance of the elements that are fetched, 0 for none. */                        \
    static inline void NAME##_ahead(const T *x, int64_t n, int64_t ahead, T *a)                    \
    {                                                                                              \
        T extreme;                                                                                 \
        /* Shorter rows do not fill the four vectors. */                                           \
        if (n >= (int64_t)(4 * FXI_VECTOR_BYTES / sizeof(T)) &&                                    \
            NAME##_vectors(x, n, ahead, &extreme))                                                 \
            *a = NAME##_op(*a, extreme);                                                           \
        else                                                                                       \
            NAME##_row(x, n, 1, a);                                                                \
    }                                                                                              \
    static void NAME##_fast_row(const void *x, int64_t n, int64_t stride, void *acc)               \
    {                                                                                              \
        if (stride != 1)                                                                           \
            NAME##_row(x, n, stride, acc);                                                         \
        else                                                                                       \
            /* Rows that are longer than a tile come from memory. */                               \
            NAME##_ahead(x, n, n > FXI_TILE_MOST ? ROW_AHEAD / (int64_t)sizeof(T) : 0, acc);       \
    }                                                                                              \
    /* a[i] combined with eight rows. The extremes of vectors keep a NaN of their second operand,  \
     * the accumulator. A NaN of a row is found by a test of its own, for two vectors at once. */  \
    static inline void NAME##_eight(const T *x, int64_t n, int64_t pitch, T *a)                    \
    {                                                                                              \
        enum { L = FXI_VECTOR_BYTES / sizeof(T) };                                                 \
        const int64_t whole = n / L * L;                                                           \
        for (int64_t i = 0; i < whole; i += L) {                                                   \
            V t, v[8];                                                                             \
            memcpy(&t, a + i, sizeof t);                                                           \
            FXI_UNROLL                                                                             \
            for (int k = 0; k < 8; k++) {                                                          \
                memcpy(&v[k], x + i + k * pitch, sizeof v[k]);                                     \
                t = NAME##_vector(v[k], t);                                                        \
            }                                                                                      \
            const V##_mask ok = V##_ordered(v[0], v[1]) & V##_ordered(v[2], v[3]) &                \
                                V##_ordered(v[4], v[5]) & V##_ordered(v[6], v[7]);                 \
            t = V##_pick(ok, t, V##_splat((T)NAN));                                                \
            memcpy(a + i, &t, sizeof t);                                                           \
        }                                                                                          \
        for (int64_t i = whole; i < n; i++)                                                        \
            for (int k = 0; k < 8; k++)                                                            \
                a[i] = NAME##_op(a[i], x[i + k * pitch]);                                          \
    }                                                                                              \
    static void NAME##_fast_col(const void *xv, int64_t n, int64_t stride, int64_t rows,           \
                                int64_t pitch, void *acc)                                          \
    {                                                                                              \
        const T *x = xv;                                                                           \
        if (stride != 1 || n < FXI_FEW) {                                                          \
            NAME##_col(xv, n, stride, rows, pitch, acc);                                           \
            return;                                                                                \
        }                                                                                          \
        for (; rows >= 8; rows -= 8, x += 8 * pitch)                                               \
            NAME##_eight(x, n, pitch, acc);                                                        \
        NAME##_col(x, n, 1, rows, pitch, acc);                                                     \
    }
#define rmax_f32_vector vf_max
#define rmin_f32_vector vf_min
#define rmax_f64_vector vd_max
#define rmin_f64_vector vd_min
FXI_EXTREME_ROW(rmax_f32, float, vf, >)
FXI_EXTREME_ROW(rmin_f32, float, vf, <)
FXI_EXTREME_ROW(rmax_f64, double, vd, >)
FXI_EXTREME_ROW(rmin_f64, double, vd, <)

/* ---- sums of contiguous floats --------------------------------------------------------------- */
/* The lanes of FXI_REDUCER as vectors in registers, with the same additions in the same order. */
enum { WIDE_LANES = FXI_VECTOR_BYTES / 8, WIDE_VECTORS = FXI_ADD_LANES / WIDE_LANES };

static inline vd wide_load_f32(const float *x)
{
    vh v;
    memcpy(&v, x, sizeof v);
    return vd_wide(v);
}
static inline vd wide_load_f64(const double *x)
{
    vd v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* The sum of all lanes, folded in halves. */
static inline double wide_fold(vd s[WIDE_VECTORS])
{
    double lanes[WIDE_LANES];
    FXI_UNROLL
    for (int w = WIDE_VECTORS / 2; w; w /= 2) {
        FXI_UNROLL
        for (int k = 0; k < w; k++)
            s[k] += s[k + w];
    }
    memcpy(lanes, &s[0], sizeof lanes);
    for (int w = WIDE_LANES / 2; w; w /= 2)
        for (int j = 0; j < w; j++)
            lanes[j] += lanes[j + w];
    return lanes[0];
}

/* The remaining elements go to the first lanes. The others get `rest`, which changes no sum. */
#define FXI_WIDE_SUM(S, T)                                                                         \
    static inline void wide_rest_##S(const T *x, int64_t n, T rest, T all[FXI_ADD_LANES])          \
    {                                                                                              \
        for (int j = 0; j < FXI_ADD_LANES; j++)                                                    \
            all[j] = rest;                                                                         \
        for (int64_t j = 0; j < n; j++)                                                            \
            all[j] = x[j];                                                                         \
    }                                                                                              \
    static inline void wide_add_##S(const T *x, vd s[WIDE_VECTORS])                                \
    {                                                                                              \
        FXI_UNROLL                                                                                 \
        for (int k = 0; k < WIDE_VECTORS; k++)                                                     \
            s[k] += wide_load_##S(x + k * WIDE_LANES);                                             \
    }                                                                                              \
    /* `ahead`: the distance of the elements that are fetched, 0 for none. */                      \
    static inline void rsum_##S##_ahead(const T *x, int64_t n, int64_t ahead, double *a)           \
    {                                                                                              \
        enum { LINE = 64 / sizeof(T) };                                                            \
        vd s[WIDE_VECTORS] = {{0}};                                                                \
        int64_t i = 0;                                                                             \
        for (; i + FXI_ADD_LANES <= n; i += FXI_ADD_LANES) {                                       \
            FXI_UNROLL                                                                             \
            for (int j = 0; j < FXI_ADD_LANES; j += LINE)                                          \
                if (ahead)                                                                         \
                    __builtin_prefetch(x + i + j + ahead);                                         \
            wide_add_##S(x + i, s);                                                                \
        }                                                                                          \
        if (i < n) {                                                                               \
            T all[FXI_ADD_LANES];                                                                  \
            wide_rest_##S(x + i, n - i, 0, all);                                                   \
            wide_add_##S(all, s);                                                                  \
        }                                                                                          \
        *a += wide_fold(s);                                                                        \
    }                                                                                              \
    static void rsum_##S##_fast_row(const void *x, int64_t n, int64_t stride, void *acc)           \
    {                                                                                              \
        /* Rows of fewer than 16 elements are added in order. */                                   \
        if (stride != 1 || n < FXI_ADD_LANES)                                                      \
            rsum_##S##_row(x, n, stride, acc);                                                     \
        else if (n > FXI_TILE_MOST)                                                                \
            /* Rows that are longer than a tile come from memory. */                               \
            rsum_##S##_ahead(x, n, ROW_AHEAD / (int64_t)sizeof(T), acc);                           \
        else                                                                                       \
            rsum_##S##_ahead(x, n, 0, acc);                                                        \
    }                                                                                              \
    /* a[i] += x[i] + x[i + pitch] + … over `rows` rows, a constant. The same additions in the   \
     * same order as in FXI_REDUCER: there gcc 12 loads a whole vector of Float32 and extracts its \
     * halves, which takes 1.5 times as many instructions. */                                      \
    static inline void wide_columns_##S(const T *x, int64_t n, int rows, int64_t pitch, double *a) \
    {                                                                                              \
        const int64_t whole = n / WIDE_LANES * WIDE_LANES;                                         \
        FXI_FOUR                                                                                   \
        for (int64_t i = 0; i < whole; i += WIDE_LANES) {                                          \
            vd t;                                                                                  \
            memcpy(&t, a + i, sizeof t);                                                           \
            FXI_UNROLL                                                                             \
            for (int k = 0; k < rows; k++)                                                         \
                t += wide_load_##S(x + i + k * pitch);                                             \
            memcpy(a + i, &t, sizeof t);                                                           \
        }                                                                                          \
        for (int64_t i = whole; i < n; i++)                                                        \
            for (int k = 0; k < rows; k++)                                                         \
                a[i] += (double)x[i + k * pitch];                                                  \
    }                                                                                              \
    static void rsum_##S##_fast_col(const void *xv, int64_t n, int64_t stride, int64_t rows,       \
                                    int64_t pitch, void *acc)                                      \
    {                                                                                              \
        const T *x = xv;                                                                           \
        if (stride != 1 || n < FXI_FEW) {                                                          \
            rsum_##S##_col(xv, n, stride, rows, pitch, acc);                                       \
            return;                                                                                \
        }                                                                                          \
        for (; rows >= 8; rows -= 8, x += 8 * pitch)                                               \
            wide_columns_##S(x, n, 8, pitch, acc);                                                 \
        for (; rows > 0; rows--, x += pitch)                                                       \
            wide_columns_##S(x, n, 1, pitch, acc);                                                 \
    }
FXI_WIDE_SUM(f32, float)
FXI_WIDE_SUM(f64, double)

/* Sums and products run in the unsigned type, in which overflow wraps instead of being undefined.
 */
#define FXI_INTEGER_REDUCERS(S, T, U, LOW, HIGH)                                                   \
    FXI_REDUCER(rsum_##S, T, U, FXI_ADD_LANES, 0, p + q)                                           \
    FXI_REDUCER(rprod_##S, T, U, FXI_ADD_LANES, 1, p *q)                                           \
    FXI_REDUCER(rmax_##S, T, T, FXI_COMPARE_LANES, LOW, q > p ? q : p)                             \
    FXI_REDUCER(rmin_##S, T, T, FXI_COMPARE_LANES, HIGH, q < p ? q : p)
FXI_INTEGER_REDUCERS(i32, int32_t, uint32_t, INT32_MIN, INT32_MAX)
FXI_INTEGER_REDUCERS(i64, int64_t, uint64_t, INT64_MIN, INT64_MAX)
FXI_INTEGER_REDUCERS(u8, uint8_t, uint8_t, 0, UINT8_MAX)
/* Bool: the maximum is "any", the minimum and the product are "all". */
FXI_REDUCER(rany, uint8_t, uint8_t, FXI_COMPARE_LANES, 0, p | q)
FXI_REDUCER(rall, uint8_t, uint8_t, FXI_COMPARE_LANES, 1, p &q)

#include "cpu_isa_statistics.h"

#define FXI_REDUCER_OF(NAME, A)                                                                    \
    {                                                                                              \
        sizeof(A), NAME##_init, NAME##_row, NAME##_col, NAME##_merge, NAME##_done                  \
    }
#define FXI_FAST_OF(NAME, T)                                                                       \
    {                                                                                              \
        sizeof(T), NAME##_init, NAME##_fast_row, NAME##_fast_col, NAME##_merge, NAME##_done        \
    }
#define FXI_WIDE_OF(NAME)                                                                          \
    {                                                                                              \
        sizeof(double), NAME##_init, NAME##_fast_row, NAME##_fast_col, NAME##_merge, NAME##_done   \
    }
/* A size of 0 marks a reduction that the type does not have. */
#define FXI_REDUCER_NONE                                                                           \
    {                                                                                              \
        0, NULL, NULL, NULL, NULL, NULL                                                            \
    }
/* A sum of Float32 with a Float64 result leaves out the last rounding. */
static const fxi_reducer sum_wide = {sizeof(double),    rsum_f32_init,  rsum_f32_fast_row,
                                     rsum_f32_fast_col, rsum_f32_merge, rsum_f64_done};
static const fxi_reducer sum_of_sqdev = {4 * sizeof(double), rdev_init,  rdev_f32_row,
                                         rdev_f32_col,       rdev_merge, rdev_total};
static const fxi_reducer tile_reducers[FX_REDUCE_COUNT][FXI_C_COUNT] = {
    [FX_REDUCE_SUM] = {FXI_WIDE_OF(rsum_f32), FXI_WIDE_OF(rsum_f64),
                       FXI_REDUCER_OF(rsum_i32, uint32_t), FXI_REDUCER_OF(rsum_i64, uint64_t),
                       FXI_REDUCER_OF(rsum_u8, uint8_t), FXI_REDUCER_NONE},
    [FX_REDUCE_MAX] = {FXI_FAST_OF(rmax_f32, float), FXI_FAST_OF(rmax_f64, double),
                       FXI_REDUCER_OF(rmax_i32, int32_t), FXI_REDUCER_OF(rmax_i64, int64_t),
                       FXI_REDUCER_OF(rmax_u8, uint8_t), FXI_REDUCER_OF(rany, uint8_t)},
    [FX_REDUCE_MIN] = {FXI_FAST_OF(rmin_f32, float), FXI_FAST_OF(rmin_f64, double),
                       FXI_REDUCER_OF(rmin_i32, int32_t), FXI_REDUCER_OF(rmin_i64, int64_t),
                       FXI_REDUCER_OF(rmin_u8, uint8_t), FXI_REDUCER_OF(rall, uint8_t)},
    [FX_REDUCE_PROD] = {FXI_REDUCER_OF(rprod_f32, double), FXI_REDUCER_OF(rprod_f64, double),
                        FXI_REDUCER_OF(rprod_i32, uint32_t), FXI_REDUCER_OF(rprod_i64, uint64_t),
                        FXI_REDUCER_OF(rprod_u8, uint8_t), FXI_REDUCER_OF(rall, uint8_t)},
    [FX_REDUCE_SQDEV] = {{4 * sizeof(double), rdev_init, rdev_f32_row, rdev_f32_col, rdev_merge,
                          rdev_f32_done},
                         {4 * sizeof(double), rdev_init, rdev_f64_row, rdev_f64_col, rdev_merge,
                          rdev_f64_done},
                         FXI_REDUCER_NONE,
                         FXI_REDUCER_NONE,
                         FXI_REDUCER_NONE,
                         FXI_REDUCER_NONE},
    [FX_REDUCE_ARGMAX] = {FXI_EXTREME_OF(argmax_f32), FXI_EXTREME_OF(argmax_f64),
                          FXI_EXTREME_OF(argmax_i32), FXI_EXTREME_OF(argmax_i64),
                          FXI_EXTREME_OF(argmax_u8), FXI_EXTREME_OF(argmax_u8)},
    [FX_REDUCE_ARGMIN] = {FXI_EXTREME_OF(argmin_f32), FXI_EXTREME_OF(argmin_f64),
                          FXI_EXTREME_OF(argmin_i32), FXI_EXTREME_OF(argmin_i64),
                          FXI_EXTREME_OF(argmin_u8), FXI_EXTREME_OF(argmin_u8)},
};
