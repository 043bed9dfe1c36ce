// Kernels that compute one value for every element of the output: see gpu_map.c. i is the index of
// the element.

// @program@: loads operands, computes, stores outputs.
//// elementwise
@operands@
for (fx_int each = 0; each < @each@; each++) {
const fx_int i = (FX_GROUP_X * @each@ + each) * FX_GROUP + FX_ITEM;
if (i >= P(0)) return;
@walk@
@program@
}

// The same if the work-item's elements are neighbours in all operands. They are loaded and stored as
// vectors where all of them exist and the addresses allow it.
//// elementwise_vectors
@operands@
const fx_int i = (FX_GROUP_X * FX_GROUP + FX_ITEM) * @elements@;
if (i >= P(0)) return;
const fx_int left = P(0) - i;
@walk@
@several@

// The same with walked operands: the work-item's elements are a group's width apart.
//// elementwise_apart
@operands@
const fx_int first = FX_GROUP_X * (FX_GROUP * @elements@) + FX_ITEM;
if (first >= P(0)) return;
@packs@
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
// An element that does not exist is loaded as the last one, and not stored.
const fx_int i = first + e * FX_GROUP < P(0) ? first + e * FX_GROUP : P(0) - 1;
@walk@
@loads@
}
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
const fx_int i = first + e * FX_GROUP;
if (i >= P(0)) return;
@program@
}

// The same if operands are dense along axis b instead of the output's dense axis a. A group computes
// a square tile along both axes. It reads these operands along b into local memory, and everything
// else along a. An element that does not exist is loaded as the last one, and not stored.
//// elementwise_tiles
@operands@
@tiles@
const fx_int lane = FX_ITEM % @tile@, row = FX_ITEM / @tile@, tile = FX_GROUP_X;
const fx_int t1 = FX_DIV(tile, 2), a0 = (tile - t1 * P(2)) * @tile@;
const fx_int t2 = FX_DIV(t1, 5), b0 = (t1 - t2 * P(5)) * @tile@;
const fx_int lasta = P(0) - 1 - a0, lastb = P(1) - 1 - b0;
@walk@
const fx_int a = a0 + (lane < lasta ? lane : lasta), across = b0 + (lane < lastb ? lane : lastb);
@fill@
FX_BARRIER;
@singles@
FX_LOOP for (fx_int from = row; from < @tile@; from += @rows@ * @elements@) {
@packs@
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
const fx_int r = from + e * @rows@, b = b0 + (r < lastb ? r : lastb);
@loads@
}
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
const fx_int r = from + e * @rows@;
if (lane <= lasta && r <= lastb) {
const fx_int b = b0 + r, i = @index@;
@program@
}
}
}

// Reads the tile of an operand.
//// elementwise_fill
{
@stored@ v[@steps@];
FX_UNROLL for (fx_int q = 0; q < @steps@; q++) {
const fx_int r = row + q * @rows@;
v[q] = x@k@[o@pattern@ + (a0 + (r < lasta ? r : lasta)) * P(@stride@) + across];
}
FX_UNROLL for (fx_int q = 0; q < @steps@; q++) s@k@[(row + q * @rows@) * @pitch@ + lane] = v[q];
}

// Several neighbouring elements, of which `left` exist.
//// several
@packs@
const int whole = left >= @elements@ && ((@addresses@) & @mask@u) == 0;
if (whole) {
@vector_loads@
} else {
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
const fx_int j = i + (e < left ? e : left - 1);
@loads@
}
}
@singles@
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
@program@
}
@pairs@
if (whole) {
@vector_stores@
} else {
FX_UNROLL for (fx_int e = 0; e < @elements@; e++)
if (e < left) {
@stores@
}
}

// An elementwise program over several segments (gpu_foreach.c). Segment g has `length` elements,
// which the groups from `first` on compute.
//// segments_choice
const fx_int g = 0@later_segments@;
const fx_int length = @length@;
const fx_int first = @first@;
@operands@

// The search for the last segment that begins at or before this group. All work-items of a group
// take the same path.
//// segments_table
fx_int g = 0;
for (fx_int jump = @half@; jump > 0; jump /= 2)
    if (g + jump < @batch@ && FX_GROUP_X >= P(@batch@ + g + jump)) g += jump;
const fx_int length = P(g), first = P(@batch@ + g);
@operands@

//// segments_each
for (fx_int each = 0; each < @each@; each++) {
const fx_int i = ((FX_GROUP_X - first) * @each@ + each) * FX_GROUP + FX_ITEM;
if (i >= length) return;
@program@
}

//// segments_vectors
const fx_int i = ((FX_GROUP_X - first) * FX_GROUP + FX_ITEM) * @elements@;
if (i >= length) return;
const fx_int left = length - i;
@program@

// Element i is its index along the axis: i / (the product of the sizes before the axis) mod size.
//// iota
FX_USE(0, @stored@, y)
for (fx_int each = 0; each < @each@; each++) {
const fx_int i = (FX_GROUP_X * @each@ + each) * FX_GROUP + FX_ITEM;
if (i >= P(0)) return;
const fx_int row = FX_DIV(i, 1);
const fx_i64 r0 = row - FX_DIV(row, 4) * P(4);
@cast@
FX_STORE_@name@(y, i, r@result@);
}

// Philox4x32-10 with the step's seed as key and its counter as the high half: philox.h. Its 128
// bits give four elements, or two of Float64. Parameter 1 is the number of the step's stream.
//// philox
FX_FN void fx_philox(fx_u32 k0, fx_u32 k1, fx_u32 c2, fx_u32 c3, fx_u64 block, fx_u32 w[4]) {
    fx_u32 c0 = (fx_u32)block, c1 = (fx_u32)(block >> 32);
    for (int round = 0; round < 10; round++) {
        const fx_u64 p0 = (fx_u64)0xD2511F53u * c0, p1 = (fx_u64)0xCD9E8D57u * c2;
        c0 = (fx_u32)(p1 >> 32) ^ c1 ^ k0; c1 = (fx_u32)p1;
        c2 = (fx_u32)(p0 >> 32) ^ c3 ^ k1; c3 = (fx_u32)p0;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u; }
    w[0] = c0; w[1] = c1; w[2] = c2; w[3] = c3; }

//// random
FX_USE(0, @stored@, y)
FX_USE(1, const fx_u64, streams)
fx_u32 w[4];
const fx_int block = FX_GROUP_X * FX_GROUP + FX_ITEM;
const fx_u64 seed = streams[2 * P(1)], counter = streams[2 * P(1) + 1];
fx_philox((fx_u32)seed, (fx_u32)(seed >> 32), (fx_u32)counter, (fx_u32)(counter >> 32),
    (fx_u64)block, w);
for (fx_int k = 0; k < @block@ && block * @block@ + k < P(0); k++)
    FX_STORE_@name@(y, block * @block@ + k, @uniform@);
