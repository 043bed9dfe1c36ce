// Row steps: see gpu_row.c. Some lanes of a group compute one row.
//
// A lane has @elements@ elements at a time, from `base` on and `gap` apart: neighbours, which are
// loaded as vectors, where all operands are dense and aligned (near). An element that does not
// exist is loaded as the first one, and not used.

//// rows
@operands@
@local@
@lanes@
const fx_int line = FX_GROUP_X * slots + slot, row = line < P(0) ? line : 0;
const fx_int count = line < P(0) ? P(1) : 0;
@walk@
@values_of_row@
const int near = @near@;
const fx_int gap = near ? 1 : lanes, start = near ? lane * @elements@ : lane;
@kept@
@passes@
@outputs_of_row@

// Loads the packs of a batch of elements.
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

// The program of a pass for a batch of elements.
//// rows_program
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
const fx_int i = base + e * gap;
if (i < count) {
@program@
}
}

// The result of accumulator a@reg@ at the end of a pass. Reductions of one kind use the same local
// memory, one after the other. prefix: of the name of the result, which is rounded if it has 16 bits.
//// rows_reduced
@tree@
const @value@ @prefix@@reg@ = fx_done@n@(a@reg@);
