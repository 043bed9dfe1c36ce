// Products of 16-bit floats with the instructions that devices have for products of small matrices:
// see gpu_matmul.c. A dialect may define
//     FX_CELL_f16, FX_CELL_bf16   if there are such instructions for the type
//     FX_CELL_COLUMNS             the number of columns of a cell; it has 16 rows and 16 terms
//     fx_cell_a, fx_cell_b, fx_cell_c          the parts of a work-item, in registers
//     FX_CELL_A(p, s, words, lane)             loads p from 16 rows of `words` words in local memory
//     FX_CELL_B(p, s, words, lane)             the same for columns; a word has two terms
//     FX_CELL(type, c, a, b)                   c += a * b; all work-items of the warp take part
//     FX_CELL_SUMS, FX_CELL_ROW(lane, i), FX_CELL_COLUMN(lane, i)    the elements c.v[i]
// This text is put between matmul and matmul_tiles. matmul_tiles computes the same tile without
// these instructions.
//// matrix
#ifdef FX_CELL_@name@
// Each warp computes CM·CN cells: half of the tile's rows, and its share of the columns. In a small
// tile the last warps may have no columns. Local memory holds both operands as 16-bit numbers, with
// neighbouring terms in one word; four more words in a row spread the rows over the banks.
#define SHARES (FX_GROUP / FX_WARP / 2 < BN / FX_CELL_COLUMNS ? FX_GROUP / FX_WARP / 2 : BN / FX_CELL_COLUMNS)
#define CM (BM / 32)
#define CN (BN / SHARES / FX_CELL_COLUMNS)
#define DEPTH 32
#define WORDS (DEPTH / 2 + 4)
// A work-item copies eight neighbouring terms of a row at a time, as a vector if they are
// neighbours and aligned in the operand.
#define UNITS(rows) ((rows) * DEPTH / 8)
#define START(x, o, first, rows, row_stride, k_stride) \
    const fx_i32 x##_whole = k_stride == 1 && row_stride % 8 == 0 && FX_ADDRESS(x + o) % 16 == 0; \
    FX_PACK(fx_u16, 8, fx_v16, 1) next_##x[(UNITS(rows) + FX_GROUP - 1) / FX_GROUP];
#define PLACE(rows, k_stride) \
    const fx_int e = q * FX_GROUP + FX_ITEM; \
    const fx_int r = k_stride == 1 ? e / (DEPTH / 8) : e % rows; \
    const fx_int k = (k_stride == 1 ? e % (DEPTH / 8) : e / rows) * 8;
#define FETCH(x, o, first, rows, most, row_stride, k_stride) \
    FX_UNROLL for (fx_int q = 0; q < (UNITS(rows) + FX_GROUP - 1) / FX_GROUP; q++) { \
        PLACE(rows, k_stride) \
        const fx_int left = e < UNITS(rows) && first + r < most ? to - at - k : 0; \
        const fx_int i = o + (first + r) * row_stride + (at + k) * k_stride; \
        if (x##_whole && left >= 8) next_##x[q].v[0] = *(const FX_GLOBAL fx_v16 *)(x + i); \
        else FX_UNROLL for (fx_int j = 0; j < 8; j++) \
            next_##x[q].e[j] = j < left ? x[i + j * k_stride] : (fx_u16)0; }
#define PUT(s, x, rows, k_stride) \
    FX_UNROLL for (fx_int q = 0; q < (UNITS(rows) + FX_GROUP - 1) / FX_GROUP; q++) { \
        PLACE(rows, k_stride) \
        if (e < UNITS(rows)) *(FX_SHARED fx_v16 *)(s + r * WORDS + k / 2) = next_##x[q].v[0]; }
    FX_LOCAL(fx_u32, as, BM * WORDS);
    FX_LOCAL(fx_u32, bs, BN * WORDS);
    fx_cell_c sum[CN][CM];
    const fx_int lane = FX_ITEM % FX_WARP, warp = FX_ITEM / FX_WARP;
    const fx_int wm = warp % 2 * CM * 16, wn = warp / 2 * CN * FX_CELL_COLUMNS;
    const fx_i32 works = warp / 2 < SHARES;
    FX_UNROLL for (fx_int y = 0; y < CN; y++)
        FX_UNROLL for (fx_int x = 0; x < CM; x++)
            FX_UNROLL for (fx_int i = 0; i < FX_CELL_SUMS; i++) sum[y][x].v[i] = 0;
    fx_int at = from;
    START(a, oa, m0, BM, A_ROW, A_INNER)
    START(b, ob, n0, BN, B_COLUMN, B_INNER)
    FETCH(a, oa, m0, BM, ROWS, A_ROW, A_INNER)
    FETCH(b, ob, n0, BN, COLUMNS, B_COLUMN, B_INNER)
    while (at < to) {
        PUT(as, a, BM, A_INNER)
        PUT(bs, b, BN, B_INNER)
        FX_BARRIER;
        at += DEPTH;
        if (at < to) {
            FETCH(a, oa, m0, BM, ROWS, A_ROW, A_INNER)
            FETCH(b, ob, n0, BN, COLUMNS, B_COLUMN, B_INNER)
        }
        if (works) FX_UNROLL for (fx_int k = 0; k < DEPTH / 2; k += 8) {
            fx_cell_a left[CM];
            FX_UNROLL for (fx_int x = 0; x < CM; x++)
                FX_CELL_A(left[x], as + (wm + 16 * x) * WORDS + k, WORDS, lane)
            FX_UNROLL for (fx_int y = 0; y < CN; y++) {
                fx_cell_b right;
                FX_CELL_B(right, bs + (wn + FX_CELL_COLUMNS * y) * WORDS + k, WORDS, lane)
                FX_UNROLL for (fx_int x = 0; x < CM; x++)
                    FX_CELL(@name@, sum[y][x], left[x], right);
            }
        }
        // The next tiles overwrite what other warps may still read.
        FX_BARRIER;
    }
    if (works) FX_UNROLL for (fx_int y = 0; y < CN; y++)
        FX_UNROLL for (fx_int x = 0; x < CM; x++)
            FX_UNROLL for (fx_int i = 0; i < FX_CELL_SUMS; i++) {
                const fx_int m = m0 + wm + x * 16 + FX_CELL_ROW(lane, i);
                const fx_int n = n0 + wn + y * FX_CELL_COLUMNS + FX_CELL_COLUMN(lane, i);
                if (m >= ROWS || n >= COLUMNS) continue;
                const SUM total = sum[y][x].v[i];
                @result@
            }
#undef SHARES
#undef CM
#undef CN
#undef DEPTH
#undef WORDS
#undef UNITS
#undef START
#undef PLACE
#undef FETCH
#undef PUT
#else

//// matrix_end
#endif
