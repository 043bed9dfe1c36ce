// Scatter with atomics: see gpu_scatter.c.

// Sets every element of y to the start value of the fold.
//// scatter_clear
FX_USE(0, @stored@, y)
for (fx_int each = 0; each < @each@; each++) {
const fx_int i = (FX_GROUP_X * @each@ + each) * FX_GROUP + FX_ITEM;
if (i >= P(0)) return;
FX_STORE_@name@(y, i, fx_done0(fx_none0()));
}

// Folds q into the value at `at`: a sum by the device's own atomic addition if it has one for the
// type, anything else by compare and swap of the bits.
//// scatter_fold
#define T @value@
#define U @wrapping@
#if @sums@ && defined FX_ADD_@added@
FX_FN void fx_fold(FX_GLOBAL fx_u@bits@ *at, T q) { FX_ADD_@added@(at, q); }
#else
FX_FN void fx_fold(FX_GLOBAL fx_u@bits@ *at, T q) {
    fx_u@bits@ was = *at;
    for (;;) {
        const T p = @from_bits@(was);
        const fx_u@bits@ now = @to_bits@((T)(@merged@));
// No exchange if the value stays the same, as often with MAX and MIN.
        const fx_u@bits@ seen = now == was ? was : fx_cas@bits@(at, was, now);
        if (seen == was) return;
        was = seen; } }
#endif
#undef T
#undef U

//// scatter
FX_USE(0, const @stored@, x)
FX_USE(1, const @index@, idx)
FX_USE(2, fx_u@bits@, y)
for (fx_int each = 0; each < @each@; each++) {
const fx_int i = (FX_GROUP_X * @each@ + each) * FX_GROUP + FX_ITEM;
if (i >= P(0)) return;
@walk@
const fx_i64 v = idx[o1];
if (v >= 0 && v < P(1))
    fx_fold(y + o0 + (fx_int)v * P(2), (@value@)FX_LOAD_@name@(x, o@from@));
}

// Rows of vectors: i, the walk's strides and P(2) count vectors. A work-item loads all of its vectors
// and their indices before it folds the first element: no load waits for an atomic operation.
//// scatter_vectors
FX_USE(0, const @stored@, x)
FX_USE(1, const @index@, idx)
FX_USE(2, fx_u@bits@, y)
const fx_i32 whole = FX_ADDRESS(x) % 16 == 0;
FX_PACK(@stored@, @elements@, fx_v16, 1) part[@each@];
fx_int to[@each@];
FX_UNROLL for (fx_int each = 0; each < @each@; each++) {
const fx_int i = (FX_GROUP_X * @each@ + each) * FX_GROUP + FX_ITEM;
to[each] = -1;
if (i >= P(0)) continue;
@walk@
const fx_i64 v = idx[o1];
if (v < 0 || v >= P(1)) continue;
to[each] = (o0 + (fx_int)v * P(2)) * @elements@;
const FX_GLOBAL @stored@ *at = x + o@from@ * @elements@;
if (whole) part[each].v[0] = *(const FX_GLOBAL fx_v16 *)at;
else FX_UNROLL for (fx_int q = 0; q < @elements@; q++) part[each].e[q] = at[q];
}
FX_UNROLL for (fx_int each = 0; each < @each@; each++) {
if (to[each] < 0) continue;
#if @sums@ && defined FX_ADD4_@added@
if (FX_ADDRESS(y) % 16 == 0) {
    FX_UNROLL for (fx_int q = 0; q < @elements@; q += 4)
        FX_ADD4_@added@(y + to[each] + q, FX_LOAD_@name@(part[each].e, q),
            FX_LOAD_@name@(part[each].e, q + 1), FX_LOAD_@name@(part[each].e, q + 2),
            FX_LOAD_@name@(part[each].e, q + 3));
    continue;
}
#endif
FX_UNROLL for (fx_int q = 0; q < @elements@; q++)
    fx_fold(y + to[each] + q, (@value@)FX_LOAD_@name@(part[each].e, q));
}

// Rounds the elements in work space to the shorter type of the output.
//// scatter_narrow
FX_USE(0, const @from@, x)
FX_USE(1, @stored@, y)
for (fx_int each = 0; each < @each@; each++) {
const fx_int i = (FX_GROUP_X * @each@ + each) * FX_GROUP + FX_ITEM;
if (i >= P(0)) return;
FX_STORE_@name@(y, i, (@value@)x[i]);
}
