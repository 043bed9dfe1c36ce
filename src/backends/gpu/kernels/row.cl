// Row steps: see gpu_row.c. Some lanes of a group compute one row.
//
// A lane has @packs@ packs of @elements@ elements at a time, the first one from `base` on. The
// packs of the lanes are side by side (gpu_row_divide.c). The elements of a whole pack are neighbours
// in memory, and are moved as vectors if they are aligned (near). In other packs the elements are
// `gap` apart, so that neighbouring lanes have neighbouring elements. An element that does not exist
// is loaded as the first one, and not used.

//// rows
@operands@
@local@
@lanes@
const fx_int line = FX_GROUP_X * teams + team, row = line < P(0) ? line : 0;
@range@
@walk@
@values_of_row@
const int near = @near@;
const fx_int gap = @gap@, start = first + lane * @own_elements@;
@kept@
@passes@
@outputs_of_row@

// Division of elements by a value y of the row, in nine instructions. An ordinary division has
// about fifteen: two of them are slow, and one is a branch. The divisor d is y·g, with 1 ≤ |d| < 2
// unless y is denormal or |y| ≥ 2¹²⁷, and z is 1 / d. The quotient q is corrected twice by its
// remainder, as a correctly rounded division does, so that the result has the same bits. A small x
// is multiplied by 2⁶⁴, because its remainder would underflow. (The last bit of a denormal quotient
// may differ, because it is rounded twice.) Zeros, infinite numbers and NaN have no remainder.
//// rows_division
typedef struct { fx_f32 y, d, z, g; } fx_divisor;
FX_FN fx_divisor fx_divide_by(fx_f32 y) {
    const fx_u32 e = (fx_bits(y) >> 23) & 255u;
    fx_divisor v; v.y = y; v.g = fx_float((254u - (e < 253u ? e : 253u)) << 23);
    v.d = y * v.g; v.z = 1.0f / v.d; return v; }
#ifdef FX_DIVIDES
FX_FN fx_f32 fx_over(fx_f32 x, fx_divisor v) {
    const int tiny = FX_F32(fabs)(x) < fx_float(0x0d800000u);
    const fx_f32 u = tiny ? x * fx_float(0x5f800000u) : x, g = tiny ? v.g * fx_float(0x1f800000u) : v.g;
    const fx_f32 p = u * v.z, a = FX_F32(fabs)(p), q = FX_FMA(FX_FMA(-p, v.d, u), v.z, p);
    return (a > 0 && a < FX_INF ? FX_FMA(FX_FMA(-q, v.d, u), v.z, q) : p) * g; }
#else
FX_FN fx_f32 fx_over(fx_f32 x, fx_divisor v) { return x / v.y; }
#endif

// Loads the packs.
//// rows_loads
FX_UNROLL for (fx_int c = 0; c < @packs@; c++) {
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
const fx_int at = base + (c * @elements@ + e) * gap, i = at < count ? at : first;
@walk@
@loads@
}
}

//// rows_loads_whole
FX_UNROLL for (fx_int c = 0; c < @packs@; c++) {
const fx_int at = base + c * lanes * @elements@, i = at < count ? at : first;
@walk@
if (near) {
@vector_loads@
} else {
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
@loads@
}
}
}

// The program of a pass for several elements.
//// rows_program
@collected@
FX_UNROLL for (fx_int c = 0; c < @packs@; c++) {
const fx_int at = base + c * lanes * @elements@;
@packs_out@
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
const fx_int i = at + e * gap;
const int in = @in@ < count;
@program@
}
@stores@
}
@takes@

// Adds the elements of a lane to an accumulator of squared deviations: first their mean, then the
// sum of squares around it, which needs one division for all of them. The mean is relative to the
// first element, so that numbers which differ only in their lowest bits lose nothing.
//// rows_take_deviations
{
const @value@ one = q@reg@[0];
@value@ s = 0, m2 = 0;
fx_int n = 0;
FX_UNROLL for (fx_int c = 0; c < @packs@; c++) {
const fx_int at = base + c * lanes * @elements@;
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
const fx_int i = at + e * gap;
if (@in@ < count) { n += 1; s += q@reg@[c * @elements@ + e] - one; }
}
}
s /= (@value@)(n > 0 ? n : 1);
FX_UNROLL for (fx_int c = 0; c < @packs@; c++) {
const fx_int at = base + c * lanes * @elements@;
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
const fx_int i = at + e * gap;
const @value@ d = (q@reg@[c * @elements@ + e] - one) - s;
if (@in@ < count) m2 += d * d;
}
}
const @value@ t = one + s, z = t - one;
fx_acc@n@ all;
all.n = (@value@)n; all.mean = t; all.low = (one - (t - z)) + (s - z); all.m2 = m2;
if (n > 0) { if (a@reg@.n > 0) a@reg@ = fx_join@n@(a@reg@, all); else a@reg@ = all; }
}

// Stores a pack of the outputs.
//// rows_stores
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
const fx_int i = at + e * gap;
if (i < count) {
@walk@
@stores@
}
}

//// rows_stores_whole
if (at < count) {
const fx_int i = at;
@walk@
if (near) {
@vector_stores@
} else {
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
@stores@
}
}
}

// The elements `first` to `count` − 1 of a row are a piece. Groups along Y take the pieces.
//// rows_piece
const fx_int first = FX_GROUP_Y * P(@piece@), rest = P(1) - first;
const fx_int count = line < P(0) ? first + (rest < P(@piece@) ? rest : P(@piece@)) : 0;

// The accumulator of all pieces of a row.
//// rows_found
fx_acc@n@ a@reg@ = fx_none@n@();
for (fx_int i = 0; i < P(@pieces@); i++) a@reg@ = fx_join@n@(a@reg@, w@reg@[row * P(@pieces@) + i]);
