// Reverses the windows of a convolution's weights: see gpu_reverse.c.

// Each window of P(1) neighbouring elements is written in the opposite order. P(0): all elements.
//// reverse
FX_USE(0, const @stored@, from)
FX_USE(1, @stored@, to)
    const fx_int i = FX_GROUP_X * FX_GROUP + FX_ITEM;
    if (i < P(0)) to[i] = from[i + P(1) - 1 - 2 * (i % P(1))];
