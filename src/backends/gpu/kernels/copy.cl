// Copies between any strides: see gpu_copy.c. @type@ is an unsigned type of the size of an element.

//// copy
FX_USE(0, const @type@, x)
FX_USE(1, @type@, y)
for (fx_int each = 0; each < @each@; each++) {
const fx_int i = (FX_GROUP_X * @each@ + each) * FX_GROUP + FX_ITEM;
if (i >= P(0)) return;
@walk@
y[o@to@ + P(1)] = x[o@from@];
}

// Copies a matrix of P(2) rows and P(3) columns. The columns are P(4) apart, those of the copy are
// P(1) apart, and P(5) elements of each column are written. Elements outside the first matrix are 0.
// A work-item has several loads in flight.
//// copy_matrix
FX_USE(0, const @type@, x)
FX_USE(1, @type@, y)
@type@ v[@each@];
const fx_int first = FX_GROUP_X * @each@ * FX_GROUP + FX_ITEM;
FX_UNROLL for (fx_int each = 0; each < @each@; each++) {
const fx_int i = first + each * FX_GROUP, column = FX_DIV(i, 5), row = i - column * P(5);
v[each] = row < P(2) && column < P(3) ? x[column * P(4) + row] : 0;
}
FX_UNROLL for (fx_int each = 0; each < @each@; each++) {
const fx_int i = first + each * FX_GROUP, column = FX_DIV(i, 5);
if (i < P(0)) y[column * P(1) + i - column * P(5)] = v[each];
}

// Copies square tiles, as wide as a warp, along axes a and b through local memory.
//// transpose
FX_USE(0, const @type@, x)
FX_USE(1, @type@, y)
FX_LOCAL(@type@, s, @tile@ * @pitch@);
const fx_int lane = FX_ITEM % @tile@, first = FX_ITEM / @tile@, tile = FX_GROUP_X;
const fx_int t1 = FX_DIV(tile, 6), a0 = (tile - t1 * P(6)) * @tile@;
const fx_int t2 = FX_DIV(t1, 9), b0 = (t1 - t2 * P(9)) * @tile@;
@walk@
for (fx_int r = first; r < @tile@; r += @rows@)
    if (a0 + r < P(2) && b0 + lane < P(3))
        s[r * @pitch@ + lane] = x[o@from@ + (a0 + r) * P(4) + b0 + lane];
FX_BARRIER;
for (fx_int r = first; r < @tile@; r += @rows@)
    if (b0 + r < P(3) && a0 + lane < P(2))
        y[o@to@ + P(1) + (b0 + r) * P(5) + a0 + lane] = s[lane * @pitch@ + r];
