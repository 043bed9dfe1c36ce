// Row steps: see gpu_row.c. Some lanes of a group compute one row.

//// rows
@operands@
@local@
@lanes@
const fx_int line = FX_GROUP_X * slots + slot, row = line < P(0) ? line : 0;
const fx_int count = line < P(0) ? P(1) : 0;
@walk@
@values_of_row@
@passes@
@outputs_of_row@

// The elements of a row in one pass.
//// rows_elements
for (fx_int i = lane; i < count; i += lanes) {
@walk@
@program@
}

// The result of accumulator a@reg@ at the end of a pass. Reductions of one kind use the same local
// memory, one after the other. prefix: of the name of the result, which is rounded if it has 16 bits.
//// rows_reduced
@tree@
const @value@ @prefix@@reg@ = fx_done@n@(s@n@[slot]);
FX_BARRIER;
