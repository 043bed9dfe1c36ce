// The sums of slices, for products and convolutions: see gpu_slices.c.

// Adds up slices. A group computes COLUMNS neighbouring elements; FX_GROUP / COLUMNS work-items share
// the slices of each element.
//// slices
#define VALUE @value@
#define COLUMNS @columns@
FX_USE(0, const @value@, slices)
FX_USE(1, @stored@, y)
@operands@
    FX_LOCAL(VALUE, part, FX_GROUP);
    const fx_int i = FX_GROUP_X * COLUMNS + FX_ITEM % COLUMNS;
    VALUE own = 0;
    for (fx_int s = FX_ITEM / COLUMNS; i < P(0) && s < P(1); s += FX_GROUP / COLUMNS)
        own += slices[s * P(0) + i];
    part[FX_ITEM] = own;
    FX_BARRIER;
    if (FX_ITEM < COLUMNS && i < P(0)) {
        VALUE sum = part[FX_ITEM];
        for (fx_int s = FX_ITEM + COLUMNS; s < FX_GROUP; s += COLUMNS)
            sum += part[s];
        @finish@
    }
