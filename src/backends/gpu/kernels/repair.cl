// The gradient of a convolution's weights after the padding was multiplied: see gpu_repair.c.

// odd[g]: 1 if group g finds an infinite number or NaN in y. P(0): elements of y; P(1): work-items.
//// repair_look
FX_USE(0, const @stored@, y)
FX_USE(1, fx_i32, odd)
FX_LOCAL(fx_i32, found, FX_GROUP);
    fx_i32 own = 0;
    for (fx_int i = FX_GROUP_X * FX_GROUP + FX_ITEM; i < P(0); i += P(1)) {
        const @value@ v = FX_LOAD_@name@(y, i);
        own |= !(v - v == 0);
    }
    found[FX_ITEM] = own;
    FX_BARRIER;
    if (FX_ITEM == 0) {
        for (fx_int k = 1; k < FX_GROUP; k++) own |= found[k];
        odd[FX_GROUP_X] = own;
    }

// If one was found, computes every weight again, without the terms of the padding.
//// repair_weights
@parameters@
FX_USE(0, const @stored@, x)
FX_USE(1, const @stored@, y)
FX_USE(2, @stored@, w)
FX_USE(3, const fx_i32, odd)
FX_LOCAL(fx_i32, found, FX_GROUP);
    fx_i32 any = 0;
    for (fx_int k = FX_ITEM; k < GROUPS; k += FX_GROUP) any |= odd[k];
    found[FX_ITEM] = any;
    FX_BARRIER;
    for (fx_int k = 0; k < FX_GROUP; k++) any |= found[k];
    if (!any) return;
    for (fx_int i = FX_GROUP_X * FX_GROUP + FX_ITEM; i < WEIGHTS; i += APART) {
        fx_int k3 = i;
        const fx_int k0 = k3 % TAPS(0); k3 /= TAPS(0);
        const fx_int k1 = k3 % TAPS(1); k3 /= TAPS(1);
        const fx_int k2 = k3 % TAPS(2); k3 /= TAPS(2);
        const fx_int out = k3 / CHANNELS, in = k3 % CHANNELS + out / OUTS * CHANNELS;
        const fx_int a0 = FIRST(0, k0), a1 = FIRST(1, k1), a2 = FIRST(2, k2);
        @value@ sum = 0;
        for (fx_int b = 0; b < BATCHES; b++)
            for (fx_int o2 = 0; o2 < YS(2); o2++) {
                const fx_int x2 = a2 + o2 * STRIDE(2);
                if (x2 < 0 || x2 >= XS(2)) continue;
                for (fx_int o1 = 0; o1 < YS(1); o1++) {
                    const fx_int x1 = a1 + o1 * STRIDE(1);
                    if (x1 < 0 || x1 >= XS(1)) continue;
                    for (fx_int o0 = 0; o0 < YS(0); o0++) {
                        const fx_int x0 = a0 + o0 * STRIDE(0);
                        if (x0 < 0 || x0 >= XS(0)) continue;
                        sum += FX_LOAD_@name@(x, x0 * XSTRIDE(0) + x1 * XSTRIDE(1) + x2 * XSTRIDE(2)
                                                 + in * XSTRIDE(3) + b * XSTRIDE(4))
                            * FX_LOAD_@name@(y, o0 * YSTRIDE(0) + o1 * YSTRIDE(1) + o2 * YSTRIDE(2)
                                                + out * YSTRIDE(3) + b * YSTRIDE(4));
                    }
                }
            }
        FX_STORE_@name@(w, i, sum);
    }
