// Convolution and its gradients by tiles: see gpu_conv.c. The names of the parameters are those of
// conv.cl.

// A group computes a tile of BM rows and BN columns, BK terms in each round. Local memory holds the
// factors of two rounds: the next ones are loaded while the products of the present ones are added.
// A work-item has quads of rows and quads of columns, which it loads as vectors. PAD spreads what
// neighbouring work-items write over the banks.
//
// A position in the source is one word with a field for each axis, PACKED, so that one addition and
// one comparison test all axes: in PACKED(x) + INSIDE the upper bit of a field says that x is not
// negative, and in PACKED(size - 1 - x) + INSIDE that it is below the size. Fields are large enough
// for the sum of two positions below FAR. A row or term that does not exist is FAR outside.
//// conv_tiles
@parameters@
#define TX @tx@
#define TY @ty@
#define RM 8
#define RN @rn@
#define BM (TX * RM)
#define BN (TY * RN)
#define BK @depth@
#define PAD 4
#define VALUE @value@
#define LOAD(x, i) FX_LOAD_@name@(x, i)
#define PACKED(a, b, c) (@packed@)
#define INSIDE @inside@u
#define FAR @far@u
// Neighbouring work-items load neighbouring rows of one term, or neighbouring terms of one row.
#define BY_ROWS @by_rows@
#define A_EACH (BM * BK / FX_GROUP)
#define B_EACH ((BN * BK + FX_GROUP - 1) / FX_GROUP)
#define B_HAS(q) (BN % ACROSS == 0 || b_column + (q) * ACROSS < BN)
#define A_ROWS (BY_ROWS ? 1 : A_EACH)
#define ACROSS (FX_GROUP / BK)
#define DOWN (FX_GROUP / BM)
FX_USE(0, const @stored@, source)
FX_USE(1, const @stored@, other)
FX_USE(2, @out@, y)
@operands@
    FX_LOCAL(VALUE, as, 2 * BK * (BM + PAD));
    FX_LOCAL(VALUE, bs, 2 * BK * (BN + PAD));
// The terms of the next rounds, twice as many as the group has work-items: position, address in the
// source, address in `other` (-1 after the last term).
    FX_LOCAL(fx_u32, term_at, 4 * FX_GROUP);
    FX_LOCAL(fx_int, other_at, 2 * FX_GROUP);
    fx_int rest = FX_GROUP_X;
    const fx_int left = rest % COLUMN_TILES * BN; rest /= COLUMN_TILES;
    const fx_int top = rest % ROW_TILES * BM; rest /= ROW_TILES;
    const fx_int slice = rest % SLICES; rest /= SLICES;
    @axes@
    const fx_int rows = rows0 * rows1 * rows2 * LAST_ROWS;
    const fx_int terms = taps0 * taps1 * taps2 * LAST_TERMS;
    const fx_int first = slice * LENGTH, end = terms - first < LENGTH ? terms : first + LENGTH;
    const fx_int to = rest * OUT_GROUP + slice * OUT_SLICE@phases@;
    const fx_int o = OTHER_START + rest * OTHER_GROUP + left * OTHER_COLUMN@taps@;
    const fx_u32 sizes = INSIDE + INSIDE + PACKED(SIZE(0) - 1, SIZE(1) - 1, SIZE(2) - 1);

// The digits of a number below the product of four sizes.
#define DIGITS(i, n, s0, s1, s2) \
    fx_int i##3 = n; \
    fx_int i##0 = i##3 % s0; i##3 /= s0; \
    fx_int i##1 = i##3 % s1; i##3 /= s1; \
    fx_int i##2 = i##3 % s2; i##3 /= s2;
// Every work-item writes one of the terms from number `from` on.
#define WRITE_TERMS(from, part) { \
    const fx_int k = (from) + FX_ITEM, e = (part) + FX_ITEM; \
    DIGITS(k, k < end ? k : 0, taps0, taps1, taps2) \
    const fx_int d0 = k0 * TERM_DISTANCE(0), d1 = k1 * TERM_DISTANCE(1), d2 = k2 * TERM_DISTANCE(2); \
    term_at[2 * e] = INSIDE + (k < end ? PACKED(d0, d1, d2) : 0u - FAR); \
    term_at[2 * e + 1] = (fx_u32)(d0 + SIZE(0) * (d1 + SIZE(1) * d2) + k3 * SOURCE_TERM); \
    other_at[e] = k < end ? o + k0 * OTHER(0) + k1 * OTHER(1) + k2 * OTHER(2) + k3 * OTHER_TERM : -1; }

// The rows of the source that a work-item loads.
    const fx_int a_row = BY_ROWS ? FX_ITEM % BM : FX_ITEM / BK;
    const fx_int b_column = FX_ITEM / BK, b_term = FX_ITEM % BK;
    const fx_int a_term = BY_ROWS ? FX_ITEM / BM : b_term;
    fx_u32 row_at[A_ROWS];
    fx_int row_from[A_ROWS];
    FX_UNROLL for (fx_int q = 0; q < A_ROWS; q++) {
        const fx_int m = top + a_row + q * ACROSS;
        DIGITS(m, m < rows ? m : 0, rows0, rows1, rows2)
        const fx_int p0 = from0 + m0 * ROW_DISTANCE(0), p1 = from1 + m1 * ROW_DISTANCE(1),
            p2 = from2 + m2 * ROW_DISTANCE(2);
        row_at[q] = m < rows ? PACKED(p0, p1, p2) : 0u - FAR;
        row_from[q] = p0 + SIZE(0) * (p1 + SIZE(1) * p2) + m3 * SOURCE_ROW + rest * SOURCE_GROUP;
    }
    VALUE next_a[A_EACH], next_b[B_EACH];
#define FETCH(round) { \
    FX_UNROLL for (fx_int q = 0; q < A_EACH; q++) { \
        const fx_int e = 2 * ((round) + a_term + (BY_ROWS ? q * DOWN : 0)); \
        const fx_u32 x = row_at[BY_ROWS ? 0 : q] + term_at[e]; \
        next_a[q] = (x & (sizes - x) & INSIDE) == INSIDE ? \
            LOAD(source, row_from[BY_ROWS ? 0 : q] + (fx_int)term_at[e + 1]) : (VALUE)0; \
    } \
    const fx_int from = other_at[(round) + b_term]; \
    FX_UNROLL for (fx_int q = 0; q < B_EACH; q++) \
        next_b[q] = from >= 0 && B_HAS(q) && b_column + q * ACROSS < COLUMNS - left ? \
            LOAD(other, from + (b_column + q * ACROSS) * OTHER_COLUMN) : (VALUE)0; }
#define PUT \
    FX_UNROLL for (fx_int q = 0; q < A_EACH; q++) \
        as[(parity * BK + a_term + (BY_ROWS ? q * DOWN : 0)) * (BM + PAD) \
            + a_row + (BY_ROWS ? 0 : q * ACROSS)] = next_a[q]; \
    FX_UNROLL for (fx_int q = 0; q < B_EACH; q++) \
        if (B_HAS(q)) bs[(parity * BK + b_term) * (BN + PAD) + b_column + q * ACROSS] = next_b[q];

// Four neighbours have other columns, and the next ones other rows, so that the work-items of a
// warp read few different vectors.
    const fx_int tm = FX_ITEM / 4 % TX * 4, tn = (FX_ITEM % 4 + FX_ITEM / (4 * TX) * 4) * 4;
    VALUE sum[RN][RM];
    FX_UNROLL for (fx_int v = 0; v < RN; v++)
        FX_UNROLL for (fx_int u = 0; u < RM; u++) sum[v][u] = 0;
    if (first < end) WRITE_TERMS(first, 0)
    FX_BARRIER;
    if (first < end) FETCH(0)
    fx_int parity = 0, round = 0;
    for (fx_int at = first; at < end; at += BK) {
        // Writes the next terms over the half of term_at whose last reader was the previous round.
        if (round == 0) WRITE_TERMS(at + FX_GROUP, FX_GROUP)
        if (round == FX_GROUP) WRITE_TERMS(at + FX_GROUP, 0)
        PUT
        // Both tiles are complete, and all work-items have read the previous two.
        FX_BARRIER;
        round = round + BK < 2 * FX_GROUP ? round + BK : 0;
        if (at + BK < end) FETCH(round)
        const fx_int ta = parity * BK * (BM + PAD) + tm, tb = parity * BK * (BN + PAD) + tn;
        FX_UNROLL for (fx_int k = 0; k < BK; k++) {
            VALUE a[RM], b[RN];
            FX_UNROLL for (fx_int u = 0; u < RM; u++)
                a[u] = as[ta + k * (BM + PAD) + u / 4 * (BM / (RM / 4)) + u % 4];
            FX_UNROLL for (fx_int v = 0; v < RN; v++)
                b[v] = bs[tb + k * (BN + PAD) + v / 4 * (BN / (RN / 4)) + v % 4];
            FX_UNROLL for (fx_int v = 0; v < RN; v++)
                FX_UNROLL for (fx_int u = 0; u < RM; u++)
                    sum[v][u] = FX_MAD(a[u], b[v], sum[v][u]);
        }
        parity = 1 - parity;
    }
    FX_UNROLL for (fx_int h = 0; h < RM / 4; h++) {
        const fx_int m = top + tm + h * (BM / (RM / 4));
        DIGITS(i, m < rows ? m : 0, rows0, rows1, rows2)
        fx_int row_to[4];
        FX_UNROLL for (fx_int u = 0; u < 4; u++) {
            row_to[u] = m + u < rows ? to + i0 * OUT(0) + i1 * OUT(1) + i2 * OUT(2) + i3 * OUT_ROW : -1;
            if (++i0 == rows0) { i0 = 0; if (++i1 == rows1) { i1 = 0; if (++i2 == rows2) { i2 = 0; i3++; } } }
        }
        @vectors@
        FX_UNROLL for (fx_int v = 0; v < RN; v++)
            FX_UNROLL for (fx_int u = 0; u < 4; u++) {
                const fx_int n = left + tn + v / 4 * (BN / (RN / 4)) + v % 4;
                if (row_to[u] < 0 || n >= COLUMNS) continue;
                const fx_int i = row_to[u] + n * OUT_COLUMN;
                const VALUE total = sum[v][4 * h + u];
                @result@
            }
    }

// Stores a quad of rows as a vector, if they are neighbours and aligned.
//// conv_tiles_vectors
        if (row_to[3] - row_to[0] == 3 && row_to[1] - row_to[0] == 1 && row_to[2] - row_to[0] == 2
            && row_to[0] >= 0 && row_to[0] % 4 == 0 && OUT_COLUMN % 4 == 0 && FX_ADDRESS(y) % 16 == 0) {
            FX_UNROLL for (fx_int v = 0; v < RN; v++) {
                const fx_int n = left + tn + v / 4 * (BN / (RN / 4)) + v % 4;
                FX_PACK(VALUE, 4, fx_v16, 1) quad;
                FX_UNROLL for (fx_int u = 0; u < 4; u++) quad.e[u] = sum[v][4 * h + u];
                if (n < COLUMNS) { FX_STORE_PACK(quad, y + row_to[0] + n * OUT_COLUMN, fx_v16, 1) }
            }
            continue;
        }
