// Matrix products: see gpu_matmul.c. The sum is sum[t][y][x], element (m, n) of the output.

//// matmul
#define TX @tx@
#define TY @ty@
#define RM @rm@
#define RN @rn@
#define MT @mt@
#define NT @nt@
#define BK @bk@
#define BM (TX * RM * MT)
#define BN (TY * RN * NT)
#define EACH@unroll@
#define SUM @sum@
#define LOAD(x, i) (SUM)FX_LOAD_@name@(x, i)
#define MAD(x, y, z) @mad@
    FX_USE(0, const @stored@, a)
    FX_USE(1, const @stored@, b)
    FX_USE(2, @stored@, c)
    @operands@
// Sizes and strides are parameters, so one text serves all sizes.
#define ROWS P(0)
#define COLUMNS P(1)
#define INNER P(2)
#define A_ROW P(3)
#define A_INNER P(4)
#define B_INNER P(5)
#define B_COLUMN P(6)
#define TILES_M P(7)
#define TILES_N P(8)

// Copies a tile of `rows` rows and BK elements of the inner axis; elements outside the operand are
// 0. Neighbouring work-items copy elements that are neighbours in memory.
#define COPY(s, x, o, first, rows, most, row_stride, k_stride) \
    if (k_stride == 1) for (fx_int e = FX_ITEM; e < rows * BK; e += TX * TY) { \
        const fx_int k = e % BK, r = e / BK; \
        s[k * rows + r] = first + r < most && k < left ? \
            LOAD(x, o + (first + r) * row_stride + at + k) : (SUM)0; \
    } else for (fx_int e = FX_ITEM; e < rows * BK; e += TX * TY) { \
        const fx_int r = e % rows, k = e / rows; \
        s[k * rows + r] = first + r < most && k < left ? \
            LOAD(x, o + (first + r) * row_stride + (at + k) * k_stride) : (SUM)0; \
    }
    FX_LOCAL(SUM, as, BK * BM);
    FX_LOCAL(SUM, bs, BK * BN);
    SUM sum[MT * NT][RN][RM];
    const fx_int tm = FX_ITEM % TX, tn = FX_ITEM / TX;
    const fx_int m0 = FX_GROUP_X % TILES_M * BM, z = FX_GROUP_X / TILES_M / TILES_N;
    const fx_int n0 = FX_GROUP_X / TILES_M % TILES_N * BN;
    @batch@
const fx_int oa = o@of_a@, ob = o@of_b@;
    for (fx_int t = 0; t < MT * NT; t++)
        EACH for (fx_int y = 0; y < RN; y++)
            EACH for (fx_int x = 0; x < RM; x++) sum[t][y][x] = 0;
    for (fx_int at = 0; at < INNER; at += BK) {
        const fx_int left = INNER - at;
        COPY(as, a, oa, m0, BM, ROWS, A_ROW, A_INNER)
        COPY(bs, b, ob, n0, BN, COLUMNS, B_COLUMN, B_INNER)
        // Both tiles are complete before any work-item reads them.
        FX_BARRIER;
        for (fx_int t = 0; t < MT * NT; t++) {
            const fx_int m = t / NT * TX * RM + tm, n = t % NT * TY * RN + tn;
            // Blocks outside the output. No barrier is inside this loop, so they may be skipped.
            if (m0 + m >= ROWS || n0 + n >= COLUMNS) continue;
            // A copy with constant indices, which compilers keep in registers.
            SUM r[RN][RM];
            FX_UNROLL for (fx_int y = 0; y < RN; y++)
                FX_UNROLL for (fx_int x = 0; x < RM; x++) r[y][x] = sum[t][y][x];
            for (fx_int k = 0; k < BK; k++)
                FX_UNROLL for (fx_int y = 0; y < RN; y++)
                    FX_UNROLL for (fx_int x = 0; x < RM; x++)
                        r[y][x] = MAD(as[k * BM + m + x * TX], bs[k * BN + n + y * TY],
                            r[y][x]);
            FX_UNROLL for (fx_int y = 0; y < RN; y++)
                FX_UNROLL for (fx_int x = 0; x < RM; x++) sum[t][y][x] = r[y][x];
        }
        // The next tiles overwrite what other work-items may still read.
        FX_BARRIER;
    }
    for (fx_int t = 0; t < MT * NT; t++)
        EACH for (fx_int y = 0; y < RN; y++)
            EACH for (fx_int x = 0; x < RM; x++) {
                const fx_int m = m0 + t / NT * TX * RM + tm + x * TX;
                const fx_int n = n0 + t % NT * TY * RN + tn + y * TY;
                if (m >= ROWS || n >= COLUMNS) continue;
                @result@
            }

// Other kernels in the same source define these names again.
#undef TX
#undef TY
#undef RM
#undef RN
#undef MT
#undef NT
#undef BK
#undef BM
#undef BN
#undef EACH
#undef SUM
#undef LOAD
#undef MAD
#undef COPY
#undef ROWS
#undef COLUMNS
#undef INNER
#undef A_ROW
#undef A_INNER
#undef B_INNER
#undef B_COLUMN
#undef TILES_M
#undef TILES_N
