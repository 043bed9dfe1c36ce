// Row steps: see gpu_row.c. Some lanes of a group compute one row.
//
// A lane has @packs@ packs of @elements@ elements at a time, the first one from `base` on. The
// packs of the lanes are side by side (gpu_row_divide.c), in two ways. Whole packs are neighbours in
// memory, and are moved as vectors if they are aligned (near). In other packs the elements are
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

// The elements of a piece of a row: from `first` to before `count`. Groups along Y take the pieces.
//// rows_piece
const fx_int first = FX_GROUP_Y * P(@piece@), rest = P(1) - first;
const fx_int count = line < P(0) ? first + (rest < P(@piece@) ? rest : P(@piece@)) : 0;

// The accumulator of all pieces of a row.
//// rows_found
fx_acc@n@ a@reg@ = fx_none@n@();
for (fx_int i = 0; i < P(@pieces@); i++) a@reg@ = fx_join@n@(a@reg@, w@reg@[row * P(@pieces@) + i]);
