/* cpu_isa_gemm.h: packing and the register tile of the matrix product; part of cpu_isa.h.
 *
 * A tile is two vectors of rows by up to FXI_GEMM_NR columns. It is summed over k in registers, one
 * product after the other, so an element's sum does not depend on its position in C. Rows of A
 * must be neighbours in memory; a column of A and one of C may be shorter than the tile (masks, so
 * that no element outside the matrix is touched). B is read either as rows whose columns are
 * neighbours, or as columns with any distance between them. Operands with other layouts, and those
 * whose elements are too far apart, are packed into panels: 2·L rows of A, or as many columns of B
 * as the tile has, term after term.
 */
/* Why two vectors of rows: each element of B that is spread over a vector is used twice, so loads
 * of B are half as many as multiply-adds, and the load ports keep up. */
/* Sums of at least this many terms hide the time that fetching C takes, so C is prefetched
 * first. */
#define FXI_GEMM_FAR 64
/* Bytes of packed B that are fetched in advance. A panel comes from the last-level cache, line
 * after line, so without prefetches only a few lines would be in flight at once. If B is read by
 * columns, the lines of all columns are in flight together. */
#define FXI_GEMM_AHEAD 2048

typedef float f32x16b __attribute__((vector_size(16)));
typedef double f64x16b __attribute__((vector_size(16)));

/* Loads and stores of the first n elements of a vector. The others are 0 in a load and unchanged by
 * a store. This is the form for processors without masked loads. */
#ifndef FXI_PART_F32
typedef struct gemm_part {
    int n;
} gemm_part;
#define FXI_PART_F32(count)         ((gemm_part){count})
#define FXI_PART_F64(count)         ((gemm_part){count})
#define FXI_LOAD_PART_F32(m, p)     load_part_f32(m, p)
#define FXI_LOAD_PART_F64(m, p)     load_part_f64(m, p)
#define FXI_STORE_PART_F32(m, p, v) store_part_f32(m, p, v)
#define FXI_STORE_PART_F64(m, p, v) store_part_f64(m, p, v)
typedef gemm_part gemm_part_f32, gemm_part_f64;
#define FXI_GEMM_PARTS(S, T, V)                                                                    \
    FXI_INLINE V load_part_##S(gemm_part m, const T *p)                                            \
    {                                                                                              \
        V v = {0};                                                                                 \
        for (int i = 0; i < m.n; i++)                                                              \
            v[i] = p[i];                                                                           \
        return v;                                                                                  \
    }                                                                                              \
    FXI_INLINE void store_part_##S(gemm_part m, T *p, V v)                                         \
    {                                                                                              \
        for (int i = 0; i < m.n; i++)                                                              \
            p[i] = v[i];                                                                           \
    }
FXI_GEMM_PARTS(f32, float, vf)
FXI_GEMM_PARTS(f64, double, vd)
#endif

/* Transposes a square of 16-byte vectors: d[q + r·width] = s[r + q·stride]. Every instruction set
 * has vectors of this length. */
FXI_INLINE void square_f32(float *d, int width, const float *s, int64_t stride)
{
    f32x16b a, b, c, e;
    memcpy(&a, s, sizeof a);
    memcpy(&b, s + stride, sizeof b);
    memcpy(&c, s + 2 * stride, sizeof c);
    memcpy(&e, s + 3 * stride, sizeof e);
    const f32x16b ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const f32x16b ce = __builtin_shufflevector(c, e, 0, 4, 1, 5);
    const f32x16b AB = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const f32x16b CE = __builtin_shufflevector(c, e, 2, 6, 3, 7);
    const f32x16b out[] = {
        __builtin_shufflevector(ab, ce, 0, 1, 4, 5), __builtin_shufflevector(ab, ce, 2, 3, 6, 7),
        __builtin_shufflevector(AB, CE, 0, 1, 4, 5), __builtin_shufflevector(AB, CE, 2, 3, 6, 7)};
    FXI_UNROLL
    for (int q = 0; q < 4; q++)
        memcpy(d + q * width, &out[q], sizeof out[q]);
}
FXI_INLINE void square_f64(double *d, int width, const double *s, int64_t stride)
{
    f64x16b a, b;
    memcpy(&a, s, sizeof a);
    memcpy(&b, s + stride, sizeof b);
    const f64x16b low = __builtin_shufflevector(a, b, 0, 2);
    const f64x16b high = __builtin_shufflevector(a, b, 1, 3);
    memcpy(d, &low, sizeof low);
    memcpy(d + width, &high, sizeof high);
}

/* Transposes 16 rows of 4 terms: vectors of AVX-512 hold four squares. With shorter vectors this
 * gains nothing. */
#if FXI_VECTOR_BYTES == 64
FXI_INLINE void wide_f32(float *d, int width, const float *s, int64_t stride)
{
    vf x[4];
    FXI_UNROLL
    for (int i = 0; i < 4; i++, s += stride) {
        f32x16b r0, r4, r8, r12;
        memcpy(&r0, s, sizeof r0);
        memcpy(&r4, s + 4 * stride, sizeof r4);
        memcpy(&r8, s + 8 * stride, sizeof r8);
        memcpy(&r12, s + 12 * stride, sizeof r12);
        x[i] = __builtin_shufflevector(__builtin_shufflevector(r0, r4, 0, 1, 2, 3, 4, 5, 6, 7),
                                       __builtin_shufflevector(r8, r12, 0, 1, 2, 3, 4, 5, 6, 7), 0,
                                       1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    const vf ab = __builtin_shufflevector(x[0], x[1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12,
                                          28, 13, 29);
    const vf ce = __builtin_shufflevector(x[2], x[3], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12,
                                          28, 13, 29);
    const vf AB = __builtin_shufflevector(x[0], x[1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27,
                                          14, 30, 15, 31);
    const vf CE = __builtin_shufflevector(x[2], x[3], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27,
                                          14, 30, 15, 31);
    const vf out[] = {
        __builtin_shufflevector(ab, ce, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
        __builtin_shufflevector(ab, ce, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31),
        __builtin_shufflevector(AB, CE, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
        __builtin_shufflevector(AB, CE, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30,
                                31)};
    FXI_UNROLL
    for (int q = 0; q < 4; q++)
        memcpy(d + q * width, &out[q], sizeof out[q]);
}
enum { WIDE_f32 = 16, WIDE_f64 = 2 };
#else
#define wide_f32 square_f32
enum { WIDE_f32 = 4, WIDE_f64 = 2 };
#endif
#define wide_f64 square_f64

/* The rows of a panel share so few sets of a first-level cache of 32 KB that they evict each other,
 * if their distance is a multiple of this many bytes: 2048 with AVX-512, whose panels have 32 rows
 * of Float32, and 4096 with AVX2. A cache line of a row is then used at once. By squares of 16
 * bytes it would be fetched four times, and packing 128×512 numbers took 14.5 µs in place of 6.7.
 * For other rows squares are faster: 5.1 µs in place of 5.9. */
#define FXI_SAME_SETS (131072 / FXI_VECTOR_BYTES)
/* Packs whole blocks of cpu_isa_transpose.h and returns the number of terms; 0 for other rows.
 * Distances are in bytes; `size`: bytes of an element, a constant at every call. */
#if FXI_VECTOR_BYTES >= 32
FXI_INLINE int64_t pack_blocks(char *d, int64_t width, const char *s, int64_t stride, int count,
                               int64_t depth, bool next, const int size)
{
    const int line = TRANSPOSE_LINE / size, n = FXI_VECTOR_BYTES / size;
    int64_t p = 0;
    if (stride % FXI_SAME_SETS != 0 || count % line != 0)
        return 0;
    for (; p + n <= depth; p += n, s += FXI_VECTOR_BYTES, d += n * width) {
        for (int r = 0; next && p % line == 0 && r < count; r++)
            __builtin_prefetch(s + (count + r) * stride);
        for (int r = 0; r < count; r += line)
            transpose_block(d + r * size, s + r * stride, stride, width, size, false);
    }
    return p;
}
#else
#define pack_blocks(d, width, s, stride, count, depth, next, size) 0
#endif

/* S: suffix; T and V: number and vector; H: vector of 16 bytes; NAME: F32 or F64. VN, N, part and
 * columns are constants at every call, so each combination becomes a loop without branches. If B is
 * read by columns, the first column is read instead of one that does not exist, and its sum is not
 * stored. `rest` masks the rows that do not exist. A panel is packed in squares where its terms are
 * neighbours in memory; rows and terms that do not fill a square are copied one by one. */
#define FXI_GEMM(S, NAME, T, V, H)                                                                 \
    FXI_INLINE void store_##S(T *to, int64_t ccs, const T *d, int64_t dcs, V(*sum)[2], int n,      \
                              gemm_part_##S rest, const int VN, const int N, const bool part,      \
                              const bool accumulate)                                               \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T) };                                                        \
        FXI_UNROLL                                                                                 \
        for (int j = 0; j < N; j++, to += ccs, d += dcs) {                                         \
            /* Columns that do not exist were summed too, because a loop of constant length stays  \
             * in registers. */                                                                    \
            if (j >= n)                                                                            \
                break;                                                                             \
            FXI_UNROLL                                                                             \
            for (int i = 0; i < VN; i++) {                                                         \
                /* Only the last vector of rows can be incomplete. */                              \
                const bool masked = part && i == VN - 1;                                           \
                /* A sum of −0 becomes 0, so that adding D in the tile gives the bits of a       \
                 * separate addition. */                                                           \
                V y = sum[j][i] + (V){0}, old;                                                     \
                if (accumulate && masked)                                                          \
                    y += FXI_LOAD_PART_##NAME(rest, d + i * L);                                    \
                else if (accumulate) {                                                             \
                    memcpy(&old, d + i * L, sizeof(V));                                            \
                    y += old;                                                                      \
                }                                                                                  \
                if (masked)                                                                        \
                    FXI_STORE_PART_##NAME(rest, to + i * L, y);                                    \
                else                                                                               \
                    memcpy(to + i * L, &y, sizeof(V));                                             \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    FXI_INLINE void tile_##S(const fxi_gemm_tiles *t, const T *a, const T *b, T *c, const T *d,    \
                             int n, gemm_part_##S rest, const int VN, const int N,                 \
                             const bool part, const bool columns)                                  \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T) };                                                        \
        const T *column[FXI_GEMM_NR];                                                              \
        const int64_t acs = t->acs, brs = t->brs, ccs = t->ccs;                                    \
        V sum[FXI_GEMM_NR][2];                                                                     \
        FXI_UNROLL                                                                                 \
        for (int j = 0; j < N; j++) {                                                              \
            column[j] = !columns ? b + j : j == 0 || j >= n ? b : column[j - 1] + t->bcs;          \
            /* Always two vectors of sums: if VN is 1, the compiler removes the second. */         \
            sum[j][0] = sum[j][1] = (V){0};                                                        \
        }                                                                                          \
        if (t->k >= FXI_GEMM_FAR)                                                                  \
            for (int j = 0; j < n; j++)                                                            \
                for (int i = 0; i < VN; i++)                                                       \
                    __builtin_prefetch(c + j * ccs + i * L, 1);                                    \
        int64_t at = 0;                                                                            \
        for (int64_t p = 0; p < t->k; p++, a += acs, at += brs) {                                  \
            V x[2];                                                                                \
            if (!columns)                                                                          \
                __builtin_prefetch((const char *)(b + at) + FXI_GEMM_AHEAD);                       \
            if (VN > 1)                                                                            \
                memcpy(&x[0], a, sizeof(V));                                                       \
            if (part)                                                                              \
                x[VN - 1] = FXI_LOAD_PART_##NAME(rest, a + (VN - 1) * L);                          \
            else                                                                                   \
                memcpy(&x[VN - 1], a + (VN - 1) * L, sizeof(V));                                   \
            FXI_UNROLL                                                                             \
            for (int j = 0; j < N; j++) {                                                          \
                /* Spreads one number of B over a vector. Subtracting 0 keeps −0; adding 0 would \
                 * not. */                                                                         \
                const V y = (columns ? column[j][at] : column[0][at + j]) - (V){0};                \
                FXI_UNROLL                                                                         \
                for (int i = 0; i < VN; i++)                                                       \
                    sum[j][i] = FXI_FMA_##NAME(x[i], y, sum[j][i]);                                \
            }                                                                                      \
        }                                                                                          \
        /* Two calls with a constant, so that the loop over the columns does not test it for every \
         * vector. */                                                                              \
        if (t->accumulate)                                                                         \
            store_##S(c, ccs, d, t->dcs, sum, n, rest, VN, N, part, true);                         \
        else                                                                                       \
            store_##S(c, ccs, c, 0, sum, n, rest, VN, N, part, false);                             \
    }                                                                                              \
    /* The tiles of a panel of B follow each other, so that it stays in the first-level cache. The \
     * copy of the description cannot be the memory that the tiles write, so its fields stay in    \
     * registers. */                                                                               \
    FXI_INLINE void tiles_##S(const fxi_gemm_tiles *given, const int VN, const int N,              \
                              const bool part, const bool columns)                                 \
    {                                                                                              \
        const int lanes = (int)(sizeof(V) / sizeof(T)), rows = VN * lanes;                         \
        fxi_gemm_tiles t = *given;                                                                 \
        if (!t.d)                                                                                  \
            t.d = t.c, t.dcs = t.ccs;                                                              \
        const gemm_part_##S rest = FXI_PART_##NAME(part ? (int)t.m - (VN - 1) * lanes : lanes);    \
        const T *b = t.b;                                                                          \
        const T *d = t.d;                                                                          \
        T *c = t.c;                                                                                \
        for (int64_t j = 0; j < t.n; j += N, b += t.bnext, c += N * t.ccs, d += N * t.dcs) {       \
            const int n = t.n - j < N ? (int)(t.n - j) : N;                                        \
            const T *a = t.a;                                                                      \
            int64_t i = 0;                                                                         \
            do {                                                                                   \
                tile_##S(&t, a, b, c + i, d + i, n, rest, VN, N, part, columns);                   \
                i += rows, a += t.anext;                                                           \
            } while (!part && i < t.m);                                                            \
        }                                                                                          \
    }                                                                                              \
    /* d[r + p·width] = s[r·stride + p], r < count, p < depth */                                 \
    static void pack_across_##S(T *d, int width, const T *s, int64_t stride, int count,            \
                                int64_t depth, bool next)                                          \
    {                                                                                              \
        enum { H_N = sizeof(H) / sizeof(T), LINE = 64 / sizeof(T) };                               \
        const int wide = count / WIDE_##S * WIDE_##S, whole = count / H_N * H_N;                   \
        int64_t p = pack_blocks((char *)d, width * (int64_t)sizeof(T), (const char *)s,            \
                                stride * (int64_t)sizeof(T), count, depth, next, sizeof(T));       \
        s += p, d += p * width;                                                                    \
        for (; p + H_N <= depth; p += H_N, s += H_N, d += H_N * width) {                           \
            for (int r = 0; next && p % LINE == 0 && r < count; r++)                               \
                __builtin_prefetch(s + (count + r) * stride);                                      \
            for (int r = 0; r < wide; r += WIDE_##S)                                               \
                wide_##S(d + r, width, s + r * stride, stride);                                    \
            for (int r = wide; r < whole; r += H_N)                                                \
                square_##S(d + r, width, s + r * stride, stride);                                  \
            /* Rows that do not fill a square. */                                                  \
            for (int r = whole; r < count; r++)                                                    \
                for (int q = 0; q < H_N; q++)                                                      \
                    d[r + q * width] = s[r * stride + q];                                          \
        }                                                                                          \
        for (; p < depth; p++, s++, d += width)                                                    \
            for (int r = 0; r < count; r++)                                                        \
                d[r] = s[r * stride];                                                              \
    }                                                                                              \
    static void pack_##S(int width, const void *sv, int64_t stride, int64_t depth_stride,          \
                         int count, int64_t depth, bool next, void *dv)                            \
    {                                                                                              \
        const T *s = sv;                                                                           \
        T *d = dv;                                                                                 \
        /* Missing rows or columns are zeros, so tiles need no other loop for them. */             \
        if (count < width)                                                                         \
            memset(d, 0, (size_t)(width * depth) * sizeof(T));                                     \
        /* The panel runs across the memory order, so squares are transposed in registers. */      \
        if (depth_stride == 1 && stride != 1)                                                      \
            pack_across_##S(d, width, s, stride, count, depth, next);                              \
        else if (stride != 1 || count < width)                                                     \
            for (int64_t p = 0; p < depth; p++)                                                    \
                for (int r = 0; r < count; r++)                                                    \
                    d[p * width + r] = s[r * stride + p * depth_stride];                           \
        /* A constant length becomes two loads and stores. */                                      \
        else if ((size_t)width == 2 * sizeof(V) / sizeof(T))                                       \
            for (int64_t p = 0; p < depth; p++)                                                    \
                memcpy(d + p * width, s + p * depth_stride, 2 * sizeof(V));                        \
        else                                                                                       \
            for (int64_t p = 0; p < depth; p++)                                                    \
                for (int r = 0; r < width; r += FXI_GEMM_UNIT)                                     \
                    memcpy(d + p * width + r, s + p * depth_stride + r,                            \
                           FXI_GEMM_UNIT * sizeof(T));                                             \
    }

FXI_GEMM(f32, F32, float, vf, f32x16b)
FXI_GEMM(f64, F64, double, vd, f64x16b)

/* By the tile's rows: all of them (whole), more than one vector (two), at most one vector (one). W:
 * columns in units of FXI_GEMM_UNIT. A loop for each number of columns would be two to four times
 * the code; instead, the sums of columns that do not exist are computed and not stored. */
#define FXI_GEMM_KINDS(S, W)                                                                       \
    static void tiles_##S##_##W##_whole(const fxi_gemm_tiles *t)                                   \
    {                                                                                              \
        t->columns ? tiles_##S(t, 2, W *FXI_GEMM_UNIT, false, true)                                \
                   : tiles_##S(t, 2, W *FXI_GEMM_UNIT, false, false);                              \
    }                                                                                              \
    static void tiles_##S##_##W##_two(const fxi_gemm_tiles *t)                                     \
    {                                                                                              \
        t->columns ? tiles_##S(t, 2, W *FXI_GEMM_UNIT, true, true)                                 \
                   : tiles_##S(t, 2, W *FXI_GEMM_UNIT, true, false);                               \
    }                                                                                              \
    static void tiles_##S##_##W##_one(const fxi_gemm_tiles *t)                                     \
    {                                                                                              \
        t->columns ? tiles_##S(t, 1, W *FXI_GEMM_UNIT, true, true)                                 \
                   : tiles_##S(t, 1, W *FXI_GEMM_UNIT, true, false);                               \
    }
FXI_GEMM_KINDS(f32, 1)
FXI_GEMM_KINDS(f32, 2)
FXI_GEMM_KINDS(f64, 1)
FXI_GEMM_KINDS(f64, 2)
#define FXI_GEMM_TILES(S, W)                                                                       \
    {                                                                                              \
        tiles_##S##_##W##_one, tiles_##S##_##W##_two, tiles_##S##_##W##_whole                      \
    }
/* Tiles three units wide exist only where the registers hold their sums (AVX2, AVX-512). */
#if FXI_GEMM_NR > 2 * FXI_GEMM_UNIT
FXI_GEMM_KINDS(f32, 3)
FXI_GEMM_KINDS(f64, 3)
#define FXI_GEMM_ALL(S)                                                                            \
    {                                                                                              \
        FXI_GEMM_TILES(S, 1), FXI_GEMM_TILES(S, 2), FXI_GEMM_TILES(S, 3)                           \
    }
#else
#define FXI_GEMM_ALL(S)                                                                            \
    {                                                                                              \
        FXI_GEMM_TILES(S, 1), FXI_GEMM_TILES(S, 2)                                                 \
    }
#endif

static const fxi_gemm_core tile_gemm[2] = {
    {FXI_VECTOR_BYTES / 4, FXI_GEMM_NR, FXI_GEMM_UNIT, pack_f32, FXI_GEMM_ALL(f32)},
    {FXI_VECTOR_BYTES / 8, FXI_GEMM_NR, FXI_GEMM_UNIT, pack_f64, FXI_GEMM_ALL(f64)},
};
