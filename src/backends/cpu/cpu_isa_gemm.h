/* cpu_isa_gemm.h: packing and the register tile of the matrix product; part of cpu_isa.h.
 *
 * The tile is mr rows (two vectors) by nr columns and is summed over k in registers, one product
 * after the other. Packed panels make its operands contiguous: A in panels of mr rows, B in panels
 * of nr columns, k after k, the last panel filled up with zeros. An element's sum therefore does
 * not depend on where it lies in a block. The unpacked product for tiny sizes adds in the same
 * order.
 */
#define FXI_SMALL_ROWS 64

#define FXI_GEMM(S, T, V, FMA, FMA1, MR)                                                           \
    static void pack_##S(int width, const void *sv, int64_t stride, int64_t depth_stride,          \
                         int64_t count, int64_t depth, void *dv)                                   \
    {                                                                                              \
        T *d = dv;                                                                                 \
        for (int64_t i = 0; i < count; i += width, d += (int64_t)width * depth) {                  \
            const int w = count - i < width ? (int)(count - i) : width;                            \
            const T *s = (const T *)sv + i * stride;                                               \
            if (w < width)                                                                         \
                memset(d, 0, (size_t)((int64_t)width * depth) * sizeof(T));                        \
            if (stride == 1 && w == MR && width == MR)                                             \
                for (int64_t p = 0; p < depth; p++)                                                \
                    memcpy(d + p * MR, s + p * depth_stride, MR * sizeof(T));                      \
            else if (stride == 1)                                                                  \
                for (int64_t p = 0; p < depth; p++)                                                \
                    for (int r = 0; r < w; r++)                                                    \
                        d[p * width + r] = s[p * depth_stride + r];                                \
            else                                                                                   \
                for (int r = 0; r < w; r++)                                                        \
                    for (int64_t p = 0; p < depth; p++)                                            \
                        d[p * width + r] = s[r * stride + p * depth_stride];                       \
        }                                                                                          \
    }                                                                                              \
    static void tile_##S(int64_t k, const void *ap, const void *bp, void *cv, int64_t rsc,         \
                         int64_t csc, int m, int n, bool accumulate)                               \
    {                                                                                              \
        const T *a = ap, *b = bp;                                                                  \
        T *c = cv;                                                                                 \
        V t[FXI_GEMM_NR][2];                                                                       \
        for (int j = 0; j < FXI_GEMM_NR; j++)                                                      \
            t[j][0] = t[j][1] = (V){0};                                                            \
        for (int64_t p = 0; p < k; p++, a += MR, b += FXI_GEMM_NR) {                               \
            V a0, a1;                                                                              \
            memcpy(&a0, a, sizeof a0);                                                             \
            memcpy(&a1, a + MR / 2, sizeof a1);                                                    \
            FXI_UNROLL                                                                             \
            for (int j = 0; j < FXI_GEMM_NR; j++) {                                                \
                const V s = b[j] - (V){0};                                                         \
                t[j][0] = FMA(a0, s, t[j][0]);                                                     \
                t[j][1] = FMA(a1, s, t[j][1]);                                                     \
            }                                                                                      \
        }                                                                                          \
        if (m == MR && n == FXI_GEMM_NR && rsc == 1) {                                             \
            FXI_UNROLL                                                                             \
            for (int j = 0; j < FXI_GEMM_NR; j++) {                                                \
                V old[2] = {{0}, {0}};                                                             \
                if (accumulate)                                                                    \
                    memcpy(old, c + j * csc, sizeof old);                                          \
                old[0] += t[j][0];                                                                 \
                old[1] += t[j][1];                                                                 \
                memcpy(c + j * csc, old, sizeof old);                                              \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        T flat[FXI_GEMM_NR * MR];                                                                  \
        memcpy(flat, t, sizeof flat);                                                              \
        for (int j = 0; j < n; j++)                                                                \
            for (int i = 0; i < m; i++) {                                                          \
                T *at = c + i * rsc + j * csc;                                                     \
                *at = (accumulate ? *at : 0) + flat[j * MR + i];                                   \
            }                                                                                      \
    }                                                                                              \
    static void small_##S(const fxi_gemm *g)                                                       \
    {                                                                                              \
        for (int64_t j = 0; j < g->n; j++)                                                         \
            for (int64_t i0 = 0; i0 < g->m; i0 += FXI_SMALL_ROWS) {                                \
                const int w = g->m - i0 < FXI_SMALL_ROWS ? (int)(g->m - i0) : FXI_SMALL_ROWS;      \
                const T *a = (const T *)g->a + i0 * g->rsa, *b = (const T *)g->b + j * g->csb;     \
                T sum[FXI_SMALL_ROWS] = {0}, *c = (T *)g->c + i0 * g->rsc + j * g->csc;            \
                for (int64_t p = 0; p < g->k; p++, a += g->csa, b += g->rsb) {                     \
                    const T s = *b;                                                                \
                    if (g->rsa == 1)                                                               \
                        for (int i = 0; i < w; i++)                                                \
                            sum[i] = FMA1(a[i], s, sum[i]);                                        \
                    else                                                                           \
                        for (int i = 0; i < w; i++)                                                \
                            sum[i] = FMA1(a[i * g->rsa], s, sum[i]);                               \
                }                                                                                  \
                for (int i = 0; i < w; i++)                                                        \
                    c[i * g->rsc] = (g->accumulate ? c[i * g->rsc] : 0) + sum[i];                  \
            }                                                                                      \
    }

#if defined(__clang__)
#define FXI_UNROLL _Pragma("clang loop unroll(full)")
#else
#define FXI_UNROLL _Pragma("GCC unroll 16")
#endif
FXI_GEMM(f32, float, vf, FXI_FMA_F32, FXI_FMA1_F32, (2 * FXI_VECTOR_BYTES / 4))
FXI_GEMM(f64, double, vd, FXI_FMA_F64, FXI_FMA1_F64, (2 * FXI_VECTOR_BYTES / 8))

static const fxi_gemm_core tile_gemm[2] = {
    {2 * FXI_VECTOR_BYTES / 4, FXI_GEMM_NR, pack_f32, tile_f32, small_f32},
    {2 * FXI_VECTOR_BYTES / 8, FXI_GEMM_NR, pack_f64, tile_f64, small_f64},
};
