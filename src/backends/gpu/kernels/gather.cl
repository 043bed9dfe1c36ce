// Gather, and the check of its indices and of scatter's: see gpu_gather.c.

// Checks every index before an element is read or written through it.
//// check_indices
FX_USE(0, const @index@, x)
FX_USE(1, fx_i64, fault)
for (fx_int each = 0; each < @each@; each++) {
const fx_int i = (FX_GROUP_X * @each@ + each) * FX_GROUP + FX_ITEM;
if (i >= P(0)) return;
@walk@
const fx_i64 v = x[o0];
if ((v < 0 || v >= P(1)) && fault[0] == 0) {
fault[1] = v; fault[2] = P(2); fault[3] = P(1); fault[0] = P(3); }
}

//// gather
FX_USE(0, const @stored@, x)
FX_USE(1, const @index@, idx)
FX_USE(2, @stored@, y)
for (fx_int each = 0; each < @each@; each++) {
const fx_int i = (FX_GROUP_X * @each@ + each) * FX_GROUP + FX_ITEM;
if (i >= P(0)) return;
@walk@
const fx_i64 v = idx[o1];
y[i] = v < 0 || v >= P(1) ? (@stored@)0 : x[o0 + (fx_int)v * P(2)];
}

// Rows of vectors: i, the walk's strides and P(2) count vectors. All loads of a work-item come
// before its first store.
//// gather_vectors
FX_USE(0, const @stored@, x)
FX_USE(1, const @index@, idx)
FX_USE(2, @stored@, y)
const fx_i32 whole = (FX_ADDRESS(x) | FX_ADDRESS(y)) % 16 == 0;
FX_PACK(@stored@, @elements@, fx_v16, 1) part[@each@];
FX_UNROLL for (fx_int each = 0; each < @each@; each++) {
const fx_int i = (FX_GROUP_X * @each@ + each) * FX_GROUP + FX_ITEM;
if (i >= P(0)) continue;
@walk@
const fx_i64 v = idx[o1];
const FX_GLOBAL @stored@ *at = x + (o0 + (fx_int)v * P(2)) * @elements@;
if (v < 0 || v >= P(1)) FX_UNROLL for (fx_int q = 0; q < @elements@; q++) part[each].e[q] = 0;
else if (whole) part[each].v[0] = *(const FX_GLOBAL fx_v16 *)at;
else FX_UNROLL for (fx_int q = 0; q < @elements@; q++) part[each].e[q] = at[q];
}
FX_UNROLL for (fx_int each = 0; each < @each@; each++) {
const fx_int i = (FX_GROUP_X * @each@ + each) * FX_GROUP + FX_ITEM;
if (i >= P(0)) continue;
FX_GLOBAL @stored@ *to = y + i * @elements@;
if (whole) *(FX_GLOBAL fx_v16 *)to = part[each].v[0];
else FX_UNROLL for (fx_int q = 0; q < @elements@; q++) to[q] = part[each].e[q];
}
