// Gather, and the check of its indices and of scatter's: see gpu_map.c.

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
