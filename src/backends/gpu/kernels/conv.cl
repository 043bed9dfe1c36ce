// Convolution and its gradients: see gpu_conv.c. Names in capitals are parameters and sizes of the
// tile. A work-item computes several rows m, numbered by r, and columns from n0 on.

//// conv
@parameters@
#define ITEMS @items@
#define LANES @lanes@
#define EACH @each@
#define WIDTH @width@
#define DEPTH @depth@
#define TERMS (LANES * DEPTH)
#define ROW @row@
#define LANE @lane@
#define VALUE @value@
#define BELOW(x, n) ((@unsigned@)(x) < (@unsigned@)(n))
#define FAR ((fx_int)1 << (8 * (int)sizeof(fx_int) - 2))
#define LOAD(x, i) FX_LOAD_@name@(x, i)
FX_USE(0, const @stored@, source)
FX_USE(1, const @stored@, other)
FX_USE(2, @out@, y)
@operands@

// Local memory holds for each term its position along the axes and in the source, its position in
// `other` (−1 after the last term), and a row of factors.
    FX_LOCAL(fx_int, position, TERMS * 4);
    FX_LOCAL(fx_int, other_at, TERMS);
    FX_LOCAL(VALUE, factor, TERMS * WIDTH);
    fx_int rest = FX_GROUP_X;
    const fx_int m = rest % ROW_TILES * (ITEMS * EACH) + ROW; rest /= ROW_TILES;
    const fx_int n0 = rest % COLUMN_TILES * WIDTH; rest /= COLUMN_TILES;
    const fx_int slice = rest % SLICES * LANES; rest /= SLICES;
    @axes@
    const fx_int rows = rows0 * rows1 * rows2 * LAST_ROWS;
    const fx_int terms = taps0 * taps1 * taps2 * LAST_TERMS;
    const fx_int length = terms > 0 ? LENGTH : 0;
    const fx_int to = n0 * OUT_COLUMN + rest * OUT_GROUP + (slice + LANE) * OUT_SLICE@phases@;
    @rows@
    const fx_int o = OTHER_START + rest * OTHER_GROUP + n0 * OTHER_COLUMN@taps@;

// The sums, and TERM(j), which adds term j of a lane to all of them.
    @sums@
    for (fx_int done = 0; done < length; done += DEPTH) {
        if (FX_ITEM < TERMS) {
            const fx_int k = (slice + FX_ITEM / DEPTH) * LENGTH + done + FX_ITEM % DEPTH;
            const fx_int e = 4 * FX_ITEM;
            fx_int k3 = k < terms ? k : 0;
            const fx_int k0 = k3 % taps0; k3 /= taps0;
            const fx_int k1 = k3 % taps1; k3 /= taps1;
            const fx_int k2 = k3 % taps2; k3 /= taps2;
            const fx_int d0 = k0 * TERM_DISTANCE(0), d1 = k1 * TERM_DISTANCE(1),
                d2 = k2 * TERM_DISTANCE(2);
            position[e] = k < terms ? d0 : FAR;
            position[e + 1] = d1;
            position[e + 2] = d2;
            position[e + 3] = d0 + SIZE(0) * (d1 + SIZE(1) * d2) + k3 * SOURCE_TERM;
            other_at[FX_ITEM] = k < terms ? o + k0 * OTHER(0) + k1 * OTHER(1)
                + k2 * OTHER(2) + k3 * OTHER_TERM : -1;
        }
        FX_BARRIER;
        for (fx_int i = FX_ITEM; i < TERMS * WIDTH; i += FX_GROUP) {
            const fx_int e = i % TERMS, n = i / TERMS, from = other_at[e];
            factor[e * WIDTH + n] = from >= 0 && n0 + n < COLUMNS
                ? LOAD(other, from + n * OTHER_COLUMN) : (VALUE)0;
        }
        FX_BARRIER;
        @terms@
        FX_BARRIER;
    }
    @outputs@

// Spatial axis number d without phases: all rows and taps.
//// conv_axis
    const fx_int rows@d@ = ROWS(@d@), taps@d@ = TAPS(@d@), from@d@ = FROM(@d@);

// Spatial axis number d with phases: the rows and taps of one phase. Its first tap is found by
// trying.
//// conv_axis_of_phase
    const fx_int phase@d@ = rest % PHASES(@d@); rest /= PHASES(@d@);
    const fx_int rows@d@ = (ROWS(@d@) - phase@d@ + STRIDE(@d@) - 1) / STRIDE(@d@);
    fx_int tap@d@ = 0;
    while (tap@d@ < TAPS(@d@) && (FROM(@d@) + phase@d@ - tap@d@ * DILATION(@d@)) % STRIDE(@d@) != 0)
        tap@d@++;
    const fx_int taps@d@ = tap@d@ < TAPS(@d@)
        ? (TAPS(@d@) - tap@d@ + EVERY(@d@) - 1) / EVERY(@d@) : 0;
    const fx_int from@d@ = (FROM(@d@) + phase@d@ - tap@d@ * DILATION(@d@)) / STRIDE(@d@);

// Computes the position of one row in the source and in the output; −1 if the row does not exist.
// The digits of m are not kept: with sixteen sums for each row they would not fit in registers.
//// conv_row
    const fx_int m@r@ = m + @r@ * ITEMS;
    fx_int m@r@_3 = m@r@ < rows ? m@r@ : 0;
    const fx_int m@r@_0 = m@r@_3 % rows0; m@r@_3 /= rows0;
    const fx_int m@r@_1 = m@r@_3 % rows1; m@r@_3 /= rows1;
    const fx_int m@r@_2 = m@r@_3 % rows2; m@r@_3 /= rows2;
    const fx_int p@r@_0 = from0 + m@r@_0 * ROW_DISTANCE(0), p@r@_1 = from1 + m@r@_1 * ROW_DISTANCE(1),
        p@r@_2 = from2 + m@r@_2 * ROW_DISTANCE(2);
    const fx_int p@r@ = p@r@_0 + SIZE(0) * (p@r@_1 + SIZE(1) * p@r@_2) + m@r@_3 * SOURCE_ROW
        + rest * SOURCE_GROUP;
    const fx_int to@r@ = m@r@ < rows ? to + m@r@_0 * OUT(0) + m@r@_1 * OUT(1) + m@r@_2 * OUT(2)
        + m@r@_3 * OUT_ROW : -1;

// A term's element of the source for one row, in TERM.
//// conv_term
    const fx_int x@r@_0 = p@r@_0 + position[q], x@r@_1 = p@r@_1 + position[q + 1]; \
    const fx_int x@r@_2 = p@r@_2 + position[q + 2], x@r@ = p@r@ + position[q + 3]; \
    const int in@r@ = BELOW(x@r@_0, SIZE(0)) & BELOW(x@r@_1, SIZE(1)) & BELOW(x@r@_2, SIZE(2)); \
    const VALUE loaded@r@ = LOAD(source, in@r@ ? x@r@ : 0), v@r@ = in@r@ ? loaded@r@ : (VALUE)0; \

// Stores one row of sums.
//// conv_out
    if (to@r@ >= 0) {
    @columns@
    }
