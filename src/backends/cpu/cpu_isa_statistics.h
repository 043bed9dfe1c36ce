/* cpu_isa_statistics.h: reductions whose accumulators are more than one number: sums of squared
 * deviations, and indices of extremes; part of cpu_isa_reduce.h.
 */

/* ---- sums of squared deviations -------------------------------------------------------------- */
/* One pass over memory instead of two: with p the first element, Σ(x − mean)² = Σ(x − p)² − (Σ(x −
 * p))²/n. At most a factor of n cancels, because p is one of the numbers that deviate, and all is
 * computed in double: the result is as exact as two passes give, whatever the mean. A later part is
 * added with its sums moved to the pivot of the first. Memory of n accumulators: the number of
 * terms so far, then n pivots, n sums and n sums of squares. */
typedef struct deviations {
    double *terms, *pivot, *sum, *square;
} deviations;

static inline deviations deviations_at(const void *acc, int64_t n)
{
    double *a = (double *)(uintptr_t)acc;
    return (deviations){a, a + 1, a + 1 + n, a + 1 + 2 * n};
}
static void rdev_init(void *acc, int64_t n)
{
    memset(acc, 0, (size_t)(1 + 3 * n) * sizeof(double));
}

/* Σ(x − mean)². 0 if rounding gives less, and Inf if only the squares overflow. */
static inline double deviation_square(const deviations *d, int64_t i)
{
    const double s = d->sum[i], q = d->square[i], v = q - s * (s / *d->terms);
    if (*d->terms == 0)
        return 0;
    return isinf(q) && isfinite(s) ? q : v < 0 ? 0 : v;
}

/* An infinite first element is not the pivot: Inf − Inf would hide it from the sum. */
static inline double pivot_of(double x)
{
    return isfinite(x) ? x : 0;
}

/* Σx from the same accumulators: a layer norm needs both and reads its row once. */
static void rdev_total(const void *acc, int64_t n, void *out)
{
    const deviations d = deviations_at(acc, n);
    for (int64_t i = 0; i < n; i++)
        ((double *)out)[i] = d.sum[i] + *d.terms * d.pivot[i];
}

/* Contiguous rows are vectors in registers (cpu_isa_reduce.h), which add the same terms in the same
 * order as the lanes of other rows. Rows from memory are fetched in advance, as for sums. Both use
 * fused multiply-adds where the processor has them: a product is rounded once less, and two of ten
 * instructions are saved. With columns, the first row gives a pivot for each. */
#define FXI_DEVIATIONS(NAME, T, S)                                                                 \
    static inline void NAME##_add(const T *x, vd p, vd s[WIDE_VECTORS], vd q[WIDE_VECTORS])        \
    {                                                                                              \
        FXI_UNROLL                                                                                 \
        for (int k = 0; k < WIDE_VECTORS; k++) {                                                   \
            const vd v = wide_load_##S(x + k * WIDE_LANES) - p;                                    \
            s[k] += v;                                                                             \
            q[k] = vd_fma(v, v, q[k]);                                                             \
        }                                                                                          \
    }                                                                                              \
    static inline void NAME##_dense(const T *x, int64_t n, const T *next, const deviations *d)     \
    {                                                                                              \
        enum { LINE = 64 / sizeof(T) };                                                            \
        vd s[WIDE_VECTORS] = {{0}}, q[WIDE_VECTORS] = {{0}};                                       \
        const vd p = vd_splat(*d->pivot);                                                          \
        int64_t i = 0;                                                                             \
        for (; i + FXI_ADD_LANES <= n; i += FXI_ADD_LANES) {                                       \
            FXI_UNROLL                                                                             \
            for (int j = 0; j < FXI_ADD_LANES; j += LINE)                                          \
                if (next)                                                                          \
                    __builtin_prefetch(next + i + j);                                              \
            NAME##_add(x + i, p, s, q);                                                            \
        }                                                                                          \
        if (i < n) {                                                                               \
            /* Missing elements are the pivot: their deviation is 0. The pivot is an element or 0, \
             * so it is exact in T. */                                                             \
            T all[FXI_ADD_LANES];                                                                  \
            wide_rest_##S(x + i, n - i, (T)*d->pivot, all);                                        \
            NAME##_add(all, p, s, q);                                                              \
        }                                                                                          \
        *d->sum += wide_fold(s);                                                                   \
        *d->square += wide_fold(q);                                                                \
    }                                                                                              \
    static inline void NAME##_lanes(const T *x, int64_t n, const int64_t stride,                   \
                                    const deviations *d)                                           \
    {                                                                                              \
        double s[FXI_ADD_LANES] = {0}, q[FXI_ADD_LANES] = {0};                                     \
        const double p = *d->pivot;                                                                \
        int64_t i = 0;                                                                             \
        for (; i + FXI_ADD_LANES <= n; i += FXI_ADD_LANES)                                         \
            for (int j = 0; j < FXI_ADD_LANES; j++) {                                              \
                const double v = (double)x[(i + j) * stride] - p;                                  \
                s[j] += v;                                                                         \
                q[j] = FXI_FMA1_F64(v, v, q[j]);                                                   \
            }                                                                                      \
        for (int j = 0; i < n; i++, j++) {                                                         \
            const double v = (double)x[i * stride] - p;                                            \
            s[j] += v;                                                                             \
            q[j] = FXI_FMA1_F64(v, v, q[j]);                                                       \
        }                                                                                          \
        for (int w = FXI_ADD_LANES / 2; w; w /= 2)                                                 \
            for (int j = 0; j < w; j++) {                                                          \
                s[j] += s[j + w];                                                                  \
                q[j] += q[j + w];                                                                  \
            }                                                                                      \
        *d->sum += s[0];                                                                           \
        *d->square += q[0];                                                                        \
    }                                                                                              \
    /* The first element of the first part is the pivot; later parts of the row keep it, so their  \
     * sums can be added. */                                                                       \
    static inline deviations NAME##_begin(const T *x, int64_t n, void *acc)                        \
    {                                                                                              \
        const deviations d = deviations_at(acc, 1);                                                \
        if (*d.terms == 0 && n > 0)                                                                \
            *d.pivot = pivot_of((double)x[0]);                                                     \
        *d.terms += (double)n;                                                                     \
        return d;                                                                                  \
    }                                                                                              \
    static void NAME##_row(const void *xv, int64_t n, int64_t stride, void *acc)                   \
    {                                                                                              \
        const T *x = xv;                                                                           \
        const deviations d = NAME##_begin(x, n, acc);                                              \
        if (stride != 1)                                                                           \
            NAME##_lanes(x, n, stride, &d);                                                        \
        else if (n > FXI_TILE_MOST)                                                                \
            NAME##_dense(x, n, x + ROW_AHEAD / (int64_t)sizeof(T), &d);                            \
        else                                                                                       \
            NAME##_dense(x, n, NULL, &d);                                                          \
    }                                                                                              \
    static void NAME##_few(const T *x, int64_t n, int64_t rows, const deviations *d)               \
    {                                                                                              \
        enum { L = FXI_FEW_LANES };                                                                \
        double p[L * FXI_FEW], s[L * FXI_FEW], q[L * FXI_FEW];                                     \
        const int64_t whole = rows / L;                                                            \
        for (int64_t i = 0; i < n * L; i++)                                                        \
            p[i] = i < n ? d->pivot[i] : p[i - n];                                                 \
        /* Lane by lane, so that the sums of a lane stay in registers. */                          \
        for (int64_t c = 0; c < n * L; c += L) {                                                   \
            double pc[L], sc[L] = {0}, qc[L] = {0};                                                \
            memcpy(pc, p + c, sizeof pc);                                                          \
            for (int64_t k = 0; k < whole; k++)                                                    \
                for (int j = 0; j < L; j++) {                                                      \
                    const double v = (double)x[k * n * L + c + j] - pc[j];                         \
                    sc[j] += v;                                                                    \
                    qc[j] += v * v;                                                                \
                }                                                                                  \
            memcpy(s + c, sc, sizeof sc);                                                          \
            memcpy(q + c, qc, sizeof qc);                                                          \
        }                                                                                          \
        x += whole * n * L;                                                                        \
        rows -= whole * L;                                                                         \
        for (int64_t i = 0; i < n * rows; i++) {                                                   \
            const double v = (double)x[i] - p[i];                                                  \
            s[i] += v;                                                                             \
            q[i] += v * v;                                                                         \
        }                                                                                          \
        for (int64_t w = n * L / 2; w >= n; w /= 2)                                                \
            for (int64_t i = 0; i < w; i++) {                                                      \
                s[i] += s[i + w];                                                                  \
                q[i] += q[i + w];                                                                  \
            }                                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                          \
            d->sum[i] += s[i];                                                                     \
            d->square[i] += q[i];                                                                  \
        }                                                                                          \
    }                                                                                              \
    static void NAME##_col(const void *xv, int64_t n, int64_t stride, int64_t rows, int64_t pitch, \
                           void *acc)                                                              \
    {                                                                                              \
        const T *x = xv;                                                                           \
        const deviations d = deviations_at(acc, n);                                                \
        int64_t k = 0;                                                                             \
        for (int64_t i = 0; *d.terms == 0 && rows > 0 && i < n; i++)                               \
            d.pivot[i] = pivot_of((double)x[i * stride]);                                          \
        if (FXI_ARE_FEW(n, stride, rows, pitch)) {                                                 \
            *d.terms += (double)rows;                                                              \
            NAME##_few(x, n, rows, &d);                                                            \
            return;                                                                                \
        }                                                                                          \
        for (; stride == 1 && k + 4 <= rows; k += 4, x += 4 * pitch) {                             \
            FXI_IVDEP                                                                              \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const double p = d.pivot[i], e = (double)x[i] - p, f = (double)x[i + pitch] - p,   \
                             g = (double)x[i + 2 * pitch] - p, h = (double)x[i + 3 * pitch] - p;   \
                /* Four rows at a time, so that sums are loaded and stored once for all four. */   \
                d.sum[i] = d.sum[i] + e + f + g + h;                                               \
                d.square[i] = d.square[i] + e * e + f * f + g * g + h * h;                         \
            }                                                                                      \
        }                                                                                          \
        /* Rows beyond a multiple of four, and columns that are not neighbours. */                 \
        for (; k < rows; k++, x += pitch)                                                          \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const double v = (double)x[i * stride] - d.pivot[i];                               \
                d.sum[i] += v;                                                                     \
                d.square[i] += v * v;                                                              \
            }                                                                                      \
        *d.terms += (double)rows;                                                                  \
    }                                                                                              \
    static void NAME##_done(const void *acc, int64_t n, void *out)                                 \
    {                                                                                              \
        const deviations d = deviations_at(acc, n);                                                \
        for (int64_t i = 0; i < n; i++)                                                            \
            ((T *)out)[i] = (T)deviation_square(&d, i);                                            \
    }

/* Σ(x − p) and Σ(x − p)² of the later part, moved from its pivot to that of `acc`: each term grows
 * by the distance of the pivots. */
static void rdev_merge(void *acc, const void *later, int64_t n)
{
    const deviations a = deviations_at(acc, n), b = deviations_at(later, n);
    const double na = *a.terms, nb = *b.terms;
    /* An empty part has no pivot, so the later part replaces it. */
    if (na == 0)
        memcpy(acc, later, (size_t)(1 + 3 * n) * sizeof(double));
    for (int64_t i = 0; i < n && na > 0 && nb > 0; i++) {
        const double shift = b.pivot[i] - a.pivot[i];
        a.square[i] += b.square[i] + shift * (2 * b.sum[i] + nb * shift);
        a.sum[i] += b.sum[i] + nb * shift;
    }
    if (na > 0)
        *a.terms = na + nb;
}
FXI_DEVIATIONS(rdev_f32, float, f32)
FXI_DEVIATIONS(rdev_f64, double, f64)

/* ---- the index of an extreme ----------------------------------------------------------------- */
/* The index of the first NaN if there is one, else of the first element that no other exceeds.
 * Blocks are reduced with the plain maximum, which is fast; only the block that holds the best
 * value is searched for its index, once at the end. Memory of n accumulators: the number of terms
 * so far, then n indices, then the n elements at these indices. */
/* The search at the end reads one block, so shorter blocks would shorten it, but each block begins
 * a new reduction. Columns are taken WIDTH at a time, because their tables are on the stack, in
 * blocks of as many rows as `_col` reads at a time. */
enum { FXI_EXTREME_BLOCK = 4096, FXI_EXTREME_WIDTH = 512, FXI_EXTREME_ROWS = 8 };
#define FXI_EXTREME(NAME, REDUCER, T, EXCEEDS)                                                     \
    static inline bool NAME##_replaces(T x, T best)                                                \
    {                                                                                              \
        return EXCEEDS;                                                                            \
    }                                                                                              \
    static void NAME##_init(void *acc, int64_t n)                                                  \
    {                                                                                              \
        int64_t *a = acc;                                                                          \
        /* Index 0 if no element replaces the neutral one, as in a row of −Inf alone. */         \
        memset(a, 0, (size_t)(1 + n) * sizeof *a);                                                 \
        REDUCER##_init(a + 1 + n, n);                                                              \
    }                                                                                              \
    static inline bool NAME##_alike(T x, T best)                                                   \
    {                                                                                              \
        /* NaN equals nothing, but a row of NaN has an index too. */                               \
        return (x == best) | ((x != x) & (best != best));                                          \
    }                                                                                              \
    /* The first element from i on that equals `best` (NaN if `best` is NaN). It exists. */        \
    static int64_t NAME##_find(const T *x, int64_t i, int64_t n, int64_t stride, T best)           \
    {                                                                                              \
        /* 64 elements are compared without branches, and only the block that has a match is       \
         * searched. */                                                                            \
        for (; stride == 1 && i + 64 <= n; i += 64) {                                              \
            int32_t found = 0;                                                                     \
            for (int j = 0; j < 64; j++)                                                           \
                found |= NAME##_alike(x[i + j], best);                                             \
            if (found)                                                                             \
                break;                                                                             \
        }                                                                                          \
        while (!NAME##_alike(x[i * stride], best))                                                 \
            i++;                                                                                   \
        return i;                                                                                  \
    }                                                                                              \
    static void NAME##_row(const void *xv, int64_t n, int64_t stride, void *acc)                   \
    {                                                                                              \
        const T *x = xv;                                                                           \
        int64_t *a = acc, block = -1;                                                              \
        T *best = (T *)(void *)(a + 2);                                                            \
        for (int64_t i = 0; i < n; i += FXI_EXTREME_BLOCK) {                                       \
            const int64_t m = n - i < FXI_EXTREME_BLOCK ? n - i : FXI_EXTREME_BLOCK;               \
            /* Constant strides in calls of their own, as in FXI_REDUCER. */                       \
            const T top = stride == 1 ? REDUCER##_lanes(x + i, m, 1)                               \
                                      : REDUCER##_lanes(x + i * stride, m, stride);                \
            if (NAME##_replaces(top, *best)) {                                                     \
                *best = top;                                                                       \
                block = i;                                                                         \
            }                                                                                      \
        }                                                                                          \
        if (block >= 0)                                                                            \
            /* a[0]: the terms of earlier tiles of the row. */                                     \
            a[1] = a[0] + NAME##_find(x, block, n, stride, *best);                                 \
        a[0] += n;                                                                                 \
    }                                                                                              \
    static void NAME##_tile(const T *x, int64_t w, int64_t stride, int64_t rows, int64_t pitch,    \
                            T *best, int64_t *at, int64_t first)                                   \
    {                                                                                              \
        /* Blocks of rows: only the block of the best value is searched later. */                  \
        T top[FXI_EXTREME_WIDTH];                                                                  \
        int32_t block[FXI_EXTREME_WIDTH];                                                          \
        memset(block, -1, sizeof block);                                                           \
        for (int64_t k = 0; k < rows; k += FXI_EXTREME_ROWS) {                                     \
            const int64_t m = rows - k < FXI_EXTREME_ROWS ? rows - k : FXI_EXTREME_ROWS;           \
            REDUCER##_init(top, w);                                                                \
            REDUCER##_col(x + k * pitch, w, stride, m, pitch, top);                                \
            FXI_IVDEP                                                                              \
            for (int64_t i = 0; i < w; i++) {                                                      \
                const T t = top[i], u = best[i];                                                   \
                block[i] = NAME##_replaces(t, u) ? (int32_t)(k / FXI_EXTREME_ROWS) : block[i];     \
                best[i] = NAME##_replaces(t, u) ? t : u;                                           \
            }                                                                                      \
        }                                                                                          \
        for (int64_t i = 0; i < w; i++)                                                            \
            /* Below 0: an earlier tile has the best value. */                                     \
            if (block[i] >= 0)                                                                     \
                at[i] = first + NAME##_find(x + i * stride, block[i] * (int64_t)FXI_EXTREME_ROWS,  \
                                            rows, pitch, best[i]);                                 \
    }                                                                                              \
    static void NAME##_col(const void *xv, int64_t n, int64_t stride, int64_t rows, int64_t pitch, \
                           void *acc)                                                              \
    {                                                                                              \
        int64_t *a = acc;                                                                          \
        T *best = (T *)(void *)(a + 1 + n);                                                        \
        for (int64_t j = 0; j < n; j += FXI_EXTREME_WIDTH)                                         \
            NAME##_tile((const T *)xv + j * stride,                                                \
                        n - j < FXI_EXTREME_WIDTH ? n - j : FXI_EXTREME_WIDTH, stride, rows,       \
                        pitch, best + j, a + 1 + j, a[0]);                                         \
        a[0] += rows;                                                                              \
    }                                                                                              \
    static void NAME##_merge(void *acc, const void *later, int64_t n)                              \
    {                                                                                              \
        int64_t *a = acc;                                                                          \
        const int64_t *b = later;                                                                  \
        T *best = (T *)(void *)(a + 1 + n);                                                        \
        const T *other = (const T *)(const void *)(b + 1 + n);                                     \
        for (int64_t i = 0; i < n; i++)                                                            \
            /* Only a better element replaces: of equal ones the earlier part has the lower        \
             * index. */                                                                           \
            if (NAME##_replaces(other[i], best[i])) {                                              \
                best[i] = other[i];                                                                \
                a[1 + i] = a[0] + b[1 + i];                                                        \
            }                                                                                      \
        a[0] += b[0];                                                                              \
    }
/* The result is the index; the element stored with it was needed only for comparisons. */
static void extreme_done(const void *acc, int64_t n, void *out)
{
    memcpy(out, (const int64_t *)acc + 1, (size_t)n * sizeof(int64_t));
}

#define FXI_EXTREMES(S, T)                                                                         \
    FXI_EXTREME(argmax_##S, rmax_##S, T, (x > best) | ((x != x) & (best == best)))                 \
    FXI_EXTREME(argmin_##S, rmin_##S, T, (x < best) | ((x != x) & (best == best)))
FXI_EXTREMES(f32, float)
FXI_EXTREMES(f64, double)
FXI_EXTREMES(i32, int32_t)
FXI_EXTREMES(i64, int64_t)
FXI_EXTREMES(u8, uint8_t)

#define FXI_EXTREME_OF(NAME)                                                                       \
    {                                                                                              \
        3 * sizeof(int64_t), NAME##_init, NAME##_row, NAME##_col, NAME##_merge, extreme_done       \
    }
