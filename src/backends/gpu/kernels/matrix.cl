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
#define UNIT(rows, k_stride) \
    const fx_int e = q * FX_GROUP + FX_ITEM; \
    const fx_int r = k_stride == 1 ? e / (DEPTH / 8) : e % rows; \
    const fx_int k = (k_stride == 1 ? e % (DEPTH / 8) : e / rows) * 8;
#define FETCH(x, o, first, rows, most, row_stride, k_stride) \
    FX_UNROLL for (fx_int q = 0; q < (UNITS(rows) + FX_GROUP - 1) / FX_GROUP; q++) { \
        UNIT(rows, k_stride) \
        const fx_int left = e < UNITS(rows) && first + r < most ? to - at - k : 0; \
        const fx_int i = o + (first + r) * row_stride + (at + k) * k_stride; \
        if (x##_whole && left >= 8) next_##x[q].v[0] = *(const FX_GLOBAL fx_v16 *)(x + i); \
        else FX_UNROLL for (fx_int j = 0; j < 8; j++) \
            next_##x[q].e[j] = j < left ? x[i + j * k_stride] : (fx_u16)0; }
#define PUT(s, x, rows, k_stride) \
    FX_UNROLL for (fx_int q = 0; q < (UNITS(rows) + FX_GROUP - 1) / FX_GROUP; q++) { \
        UNIT(rows, k_stride) \
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
#undef UNIT
#undef FETCH
#undef PUT
#else

// The same tile on devices that copy from global to local memory while they compute (FX_ASYNC). A
// dialect that defines FX_ASYNC has cells of 8 columns, FX_MMA, and
//     fx_async(to, from, bytes)    copies `bytes` of 16 bytes, and makes the others zeros
//     FX_ASYNC_CLOSE               ends a set of copies
//     FX_ASYNC_WAIT(n)             waits for all sets of the work-item but the n latest
//     fx_parts(p, at)              loads four matrices of 8 by 8 16-bit numbers from the addresses
//                                  of all work-items of the warp; fx_parts_across: transposed
//     fx_near, fx_near_of(p)       an address in local memory
// Each warp computes half of the tile's rows and WN columns. The tiles of STAGES rounds are in
// local memory at the same time: one is multiplied while the next ones arrive. The parts of cells
// are loaded 16 terms before they are multiplied.
//
// An operand is copied in units of eight neighbours: of terms, or of rows if its rows are
// neighbours in memory (ACROSS). Local memory has the same order. Exclusive or spreads the units
// that a warp loads together over all banks. An operand with other strides, or that is not aligned,
// is copied element by element.
//// matrix_async
#ifdef FX_ASYNC
#define DEPTH 32
#define STAGES @stages@
#define WN (BN * 2 * FX_WARP / FX_GROUP)
#define BYTES(rows) ((rows) * DEPTH * 2)
#define STAGE (BYTES(BM) + BYTES(BN))
#define A_ACROSS @a_across@
#define B_ACROSS @b_across@
// The first row and term of a unit, its position in local memory, and the number of units.
#define UNIT_ROW(across, rows, u) (across ? (u) % (rows / 8) * 8 : (u) / (DEPTH / 8))
#define UNIT_TERM(across, rows, u) (across ? (u) / (rows / 8) : (u) % (DEPTH / 8) * 8)
#define OFFSET(across, rows, r, k) (across ? (k) * (rows * 2) + ((r) / 8 ^ (k) % 8) * 16 : \
    (r) * (DEPTH * 2) + ((k) / 8 ^ (r) / 2 % 4) * 16)
#define UNITS(rows) ((rows) * DEPTH / 8)
// A work-item copies every FX_GROUP-th unit: START computes the first one and the distance.
#define START(x, o, first, rows, across, row_stride, k_stride) \
    const fx_i32 x##_whole = (across ? row_stride == 1 && k_stride % 8 == 0 \
        : k_stride == 1 && row_stride % 8 == 0) && FX_ADDRESS(x + o) % 16 == 0; \
    const fx_u32 x##_r = UNIT_ROW(across, rows, item), x##_k = UNIT_TERM(across, rows, item); \
    const fx_u32 x##_dr = across ? 0 : FX_GROUP * 8 / DEPTH, \
        x##_dk = across ? FX_GROUP * 8 / rows : 0; \
    const fx_int x##_far = across ? (fx_int)x##_dk * k_stride : (fx_int)x##_dr * row_stride; \
    const fx_u32 x##_offset = OFFSET(across, rows, x##_r, x##_k); \
    fx_int x##_at = o + (first + (fx_int)x##_r) * row_stride + (from + (fx_int)x##_k) * k_stride;
// The bytes of a unit that are inside the operand: those of its first `here` numbers, or none
// unless `there`.
#define INSIDE(here, there) ((there) && (here) > 0 ? (here) < 8 ? (fx_u32)(here) * 2 : 16u : 0u)
#define FETCH(x, start, first, rows, most, across, row_stride, k_stride) \
    if (x##_whole && first + rows <= most && at + DEPTH <= to) \
        FX_UNROLL for (fx_u32 q = 0; q < UNITS(rows) / FX_GROUP; q++) \
            fx_async(near + start + x##_offset + q * (FX_GROUP * 16), \
                x + x##_at + (fx_int)q * x##_far, 16); \
    else FX_UNROLL for (fx_u32 q = 0; q < UNITS(rows) / FX_GROUP; q++) { \
        const fx_int r = most - first - (fx_int)(x##_r + q * x##_dr); \
        const fx_int k = to - at - (fx_int)(x##_k + q * x##_dk); \
        const fx_int i = x##_at + (fx_int)q * x##_far, here = across ? r : k; \
        const fx_i32 there = across ? k > 0 : r > 0; \
        if (x##_whole) \
            fx_async(near + start + x##_offset + q * (FX_GROUP * 16), x + i, INSIDE(here, there)); \
        else { \
            FX_PACK(fx_u16, 8, fx_v16, 1) unit; \
            FX_UNROLL for (fx_int j = 0; j < 8; j++) unit.e[j] = there && j < here ? \
                x[i + j * (across ? row_stride : k_stride)] : (fx_u16)0; \
            tiles[(start + x##_offset) / 16 + q * FX_GROUP] = unit.v[0]; } } \
    x##_at += DEPTH * k_stride;
#define FETCH_BOTH(start) \
    if (at < to) { \
        FETCH(a, start, m0, BM, ROWS, A_ACROSS, A_ROW, A_INNER) \
        FETCH(b, start + BYTES(BM), n0, BN, COLUMNS, B_ACROSS, B_COLUMN, B_INNER) } \
    at += DEPTH; \
    FX_ASYNC_CLOSE;
// Each work-item gives the address of one unit: `row` and `term` are its position in a block of 16
// rows and 16 terms. AIM computes the addresses for blocks that are not at equal distances.
#define AIM(aim, start, rows, across, first, row, term) \
    fx_near aim[4]; \
    FX_UNROLL for (fx_u32 q = 0; q < 4; q++) aim[q] = near + start + (across \
        ? OFFSET(1, rows, first + q * 16 + row * 8, lane % 8 + term * 8) \
        : OFFSET(0, rows, first + lane % 8 + row * 8, q % 2 * 16 + term * 8));
#define LOAD_PARTS(p, aim, n, rows, across, k) \
    FX_UNROLL for (fx_u32 x = 0; x < n; x++) \
        if (across) fx_parts_across(p[x], aim[x] + k * (16 * rows * 2)); \
        else fx_parts(p[x], aim[k] + x * (16 * DEPTH * 2));
#define LOAD_BOTH(k) \
    LOAD_PARTS(left[k], a_aim, BM / 32, BM, A_ACROSS, k) \
    LOAD_PARTS(right[k], b_aim, WN / 16, BN, B_ACROSS, k)
#define MULTIPLY(k) \
    FX_UNROLL for (fx_u32 y = 0; y < WN / 8; y++) \
        FX_UNROLL for (fx_u32 x = 0; x < BM / 32; x++) \
            FX_MMA(@name@, sum[y][x], left[k][x], right[k][y / 2] + y % 2 * 2);
    @tiles@(fx_v16, tiles, STAGES * STAGE / 16);
    const fx_near near = fx_near_of(tiles);
    const fx_u32 item = (fx_u32)FX_ITEM, lane = item % FX_WARP, warp = item / FX_WARP;
    const fx_u32 wm = warp % 2 * (BM / 2), wn = warp / 2 * WN;
    fx_f32 sum[WN / 8][BM / 32][4];
    FX_UNROLL for (fx_u32 y = 0; y < WN / 8; y++)
        FX_UNROLL for (fx_u32 x = 0; x < BM / 32; x++)
            FX_UNROLL for (fx_u32 i = 0; i < 4; i++) sum[y][x][i] = 0;
// Each side has four parts. In a cell's left side, the second part has the rows from 8 on, the third
// the terms from 8 on, the fourth both. In the right side of two cells, the second part has the terms
// from 8 on, the third the second cell, the fourth both.
    AIM(a_aim, 0, BM, A_ACROSS, wm, lane / 8 % 2, lane / 16)
    AIM(b_aim, BYTES(BM), BN, B_ACROSS, wn, lane / 16, lane / 8 % 2)
    fx_u32 left[2][BM / 32][4], right[2][WN / 16][4];
    fx_int at = from;
    START(a, oa, m0, BM, A_ACROSS, A_ROW, A_INNER)
    START(b, ob, n0, BN, B_ACROSS, B_COLUMN, B_INNER)
    fx_near read = 0;
    fx_u32 write = 0;
    FX_LOOP for (; write < (STAGES - 1) * STAGE; write += STAGE) {
        FETCH_BOTH(write)
    }
    FX_ASYNC_WAIT(STAGES - 2);
    FX_BARRIER;
    LOAD_BOTH(0)
    FX_LOOP for (fx_int done = from; done < to; done += DEPTH) {
        LOAD_BOTH(1)
// Before the previous barrier, all warps have loaded their parts of the tile that this overwrites.
        FETCH_BOTH(write)
        write = write == (STAGES - 1) * STAGE ? 0 : write + STAGE;
        MULTIPLY(0)
        FX_ASYNC_WAIT(STAGES - 2);
        FX_BARRIER;
        const fx_near step = read == (STAGES - 1) * STAGE ? 0 - read : STAGE;
        read += step;
        FX_UNROLL for (fx_u32 q = 0; q < 4; q++) { a_aim[q] += step; b_aim[q] += step; }
// After the last round these are terms of an earlier one, which are not used.
        LOAD_BOTH(0)
        MULTIPLY(1)
    }
    FX_ASYNC_WAIT(0);
// The sums pass through local memory, WN columns at a time, so that neighbouring work-items store
// neighbouring rows. HIGH is the distance of columns with which a warp's sums are in different banks.
#define HIGH (BM + 4)
    FX_SHARED fx_f32 *sums = (FX_SHARED fx_f32 *)tiles;
    FX_LOOP for (fx_u32 part = 0; part < BN / WN; part++) {
        FX_BARRIER;
        if (warp / 2 == part) FX_UNROLL for (fx_u32 y = 0; y < WN / 8; y++)
            FX_UNROLL for (fx_u32 x = 0; x < BM / 32; x++)
                FX_UNROLL for (fx_u32 i = 0; i < 4; i++)
                    sums[(y * 8 + FX_CELL_COLUMN(lane, i)) * HIGH + wm + x * 16 +
                        FX_CELL_ROW(lane, i)] = sum[y][x][i];
        FX_BARRIER;
        for (fx_u32 e = item; e < BM * WN; e += FX_GROUP) {
            const fx_int m = m0 + (fx_int)(e % BM), n = n0 + (fx_int)(part * WN + e / BM);
            if (m >= ROWS || n >= COLUMNS) continue;
            const SUM total = sums[e / BM * HIGH + e % BM];
            @result@
        }
    }
#undef HIGH
#undef WN
#undef DEPTH
#undef STAGES
#undef BYTES
#undef STAGE
#undef A_ACROSS
#undef B_ACROSS
#undef UNIT_ROW
#undef UNIT_TERM
#undef OFFSET
#undef UNITS
#undef START
#undef INSIDE
#undef FETCH
#undef FETCH_BOTH
#undef AIM
#undef LOAD_PARTS
#undef LOAD_BOTH
#undef MULTIPLY
#else

//// matrix_end
#endif
