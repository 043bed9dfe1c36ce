// Row steps: see gpu_row.c. Some lanes of a group compute one row.
//
// A lane has @elements@ elements at a time, from `base` on and `gap` apart: neighbours, which are
// loaded as vectors, where all operands are dense and aligned (near). An element that does not
// exist is loaded as the first one, and not used.

//// rows
@operands@
@local@
@lanes@
const fx_int line = FX_GROUP_X * teams + team, row = line < P(0) ? line : 0;
@range@
@walk@
@values_of_row@
const int near = @near@;
const fx_int gap = near ? 1 : lanes, start = first + (near ? lane * @elements@ : lane);
@kept@
@passes@
@outputs_of_row@

// Loads the packs of several elements.
//// rows_loads
if (near && count - base >= @elements@) {
@vector_loads@
} else {
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
const fx_int i = base + e * gap < count ? base + e * gap : 0;
@walk@
@loads@
}
}

// The program of a pass for several elements.
//// rows_program
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
const fx_int i = base + e * gap;
if (i < count) {
@program@
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
