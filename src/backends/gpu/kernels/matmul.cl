// Matrix products: see gpu_matmul.c. `total` is the sum of element (m, n) of the output.

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
#define SUM @sum@
#define LOAD(x, i) (SUM)FX_LOAD_@name@(x, i)
#define MAD(x, y, z) @mad@
    FX_USE(0, const @stored@, a)
    FX_USE(1, const @stored@, b)
    FX_USE(2, @out@, c)
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
#define BATCHES P(9)
#define SLICE P(10)
// The groups that run at the same time compute a block of the output that is BAND tiles high, because
// then they read the fewest different parts of both operands.
#define BAND 16
    const fx_int tile = FX_GROUP_X % (TILES_M * TILES_N), band = tile / (BAND * TILES_N) * BAND;
    const fx_int high = TILES_M - band < BAND ? TILES_M - band : BAND, along = tile - band * TILES_N;
    const fx_int m0 = (band + along % high) * BM, n0 = along / high * BN;
// zs numbers the pairs of a batch and a slice of the terms; the batch changes faster.
    const fx_int zs = FX_GROUP_X / (TILES_M * TILES_N), z = zs % BATCHES, from = zs / BATCHES * SLICE;
    const fx_int to = INNER - from < SLICE ? INNER : from + SLICE;
    @batch@
    const fx_int oa = o@of_a@, ob = o@of_b@;

// A group of one work-item, on a CPU.
//// matmul_serial
// Copies a tile of `rows` rows and BK elements of the inner axis, in the order of memory; elements
// outside the operand are 0.
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
    for (fx_int t = 0; t < MT * NT; t++)
        for (fx_int y = 0; y < RN; y++)
            for (fx_int x = 0; x < RM; x++) sum[t][y][x] = 0;
    for (fx_int at = from; at < to; at += BK) {
        const fx_int left = to - at;
        COPY(as, a, oa, m0, BM, ROWS, A_ROW, A_INNER)
        COPY(bs, b, ob, n0, BN, COLUMNS, B_COLUMN, B_INNER)
        // Both tiles are complete before any work-item reads them.
        FX_BARRIER;
        for (fx_int t = 0; t < MT * NT; t++) {
            const fx_int m = t / NT * TX * RM + tm, n = t % NT * TY * RN + tn;
            // Blocks outside the output are skipped. This is allowed because the loop has no barrier.
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
        for (fx_int y = 0; y < RN; y++)
            for (fx_int x = 0; x < RM; x++) {
                const fx_int m = m0 + t / NT * TX * RM + tm + x * TX;
                const fx_int n = n0 + t % NT * TY * RN + tn + y * TY;
                if (m >= ROWS || n >= COLUMNS) continue;
                const SUM total = sum[t][y][x];
                @result@
            }
#undef COPY

// A block of RM·RN elements for each work-item of a GPU. The next tiles are loaded while the
// products of the present ones are computed, and the two tiles in local memory alternate, so that
// one barrier for each round along k is enough. PAD spreads what neighbouring work-items write over
// the banks.
//// matmul_tiles
#define PAD 4
// A work-item copies several elements of a tile. START computes the position of the first one and
// the distances to the others. Neighbouring work-items copy elements that are neighbours in memory.
#define START(x, o, first, rows, row_stride, k_stride) \
    const fx_int x##_r = k_stride == 1 ? FX_ITEM / BK : FX_ITEM % rows; \
    const fx_int x##_k = k_stride == 1 ? FX_ITEM % BK : FX_ITEM / rows; \
    const fx_int x##_dr = k_stride == 1 ? FX_GROUP / BK : 0; \
    const fx_int x##_dk = k_stride == 1 ? 0 : FX_GROUP / rows; \
    const fx_int x##_far = x##_dr * row_stride + x##_dk * k_stride; \
    fx_int x##_at = o + (first + x##_r) * row_stride + (from + x##_k) * k_stride; \
    SUM next_##x[rows * BK / FX_GROUP];
#define FETCH(x, first, rows, most, k_stride) \
    FX_UNROLL for (fx_int q = 0; q < rows * BK / FX_GROUP; q++) \
        next_##x[q] = first + x##_r + q * x##_dr < most && at + x##_k + q * x##_dk < to ? \
            LOAD(x, x##_at + q * x##_far) : (SUM)0; \
    x##_at += BK * k_stride;
#define PUT(s, x, rows) \
    FX_UNROLL for (fx_int q = 0; q < rows * BK / FX_GROUP; q++) \
        s[(parity * BK + x##_k + q * x##_dk) * (rows + PAD) + x##_r + q * x##_dr] = next_##x[q];
    FX_LOCAL(SUM, as, 2 * BK * (BM + PAD));
    FX_LOCAL(SUM, bs, 2 * BK * (BN + PAD));
    SUM sum[RN][RM];
    const fx_int tm = FX_ITEM % TX, tn = FX_ITEM / TX;
    FX_UNROLL for (fx_int y = 0; y < RN; y++)
        FX_UNROLL for (fx_int x = 0; x < RM; x++) sum[y][x] = 0;
    fx_int at = from;
    START(a, oa, m0, BM, A_ROW, A_INNER)
    START(b, ob, n0, BN, B_COLUMN, B_INNER)
    FETCH(a, m0, BM, ROWS, A_INNER)
    FETCH(b, n0, BN, COLUMNS, B_INNER)
    for (fx_int parity = 0; at < to; parity = 1 - parity) {
        PUT(as, a, BM)
        PUT(bs, b, BN)
        // Both tiles are complete, and all work-items have read the previous two.
        FX_BARRIER;
        at += BK;
        if (at < to) {
            FETCH(a, m0, BM, ROWS, A_INNER)
            FETCH(b, n0, BN, COLUMNS, B_INNER)
        }
        const fx_int ta = parity * BK * (BM + PAD) + tm, tb = parity * BK * (BN + PAD) + tn;
        for (fx_int k = 0; k < BK; k++)
            FX_UNROLL for (fx_int y = 0; y < RN; y++)
                FX_UNROLL for (fx_int x = 0; x < RM; x++)
                    sum[y][x] = MAD(as[ta + k * (BM + PAD) + x * TX],
                        bs[tb + k * (BN + PAD) + y * TY], sum[y][x]);
    }
    FX_UNROLL for (fx_int y = 0; y < RN; y++)
        FX_UNROLL for (fx_int x = 0; x < RM; x++) {
            const fx_int m = m0 + tm + x * TX, n = n0 + tn + y * TY;
            if (m >= ROWS || n >= COLUMNS) continue;
            const SUM total = sum[y][x];
            @result@
        }
#undef PAD
#undef START
#undef FETCH
#undef PUT

//// matmul_end
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
#undef SUM
#undef LOAD
#undef MAD
#undef ROWS
#undef COLUMNS
#undef INNER
#undef A_ROW
#undef A_INNER
#undef B_INNER
#undef B_COLUMN
#undef TILES_M
#undef TILES_N
#undef BATCHES
#undef BAND
#undef SLICE
