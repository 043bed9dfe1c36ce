// Pooling: see gpu_pool.c. A kernel consists of definitions, the macros BEGIN, EACH and END for
// taps or windows, and the loop over windows or over positions of x.

// OVER_XS(d, n) divides n, which is not negative, by XS(d), and so on.
// NaN is larger than every number, and the first of several equal elements stays.
//// pool_definitions
@parameters@
#define STORED @stored@
#define VALUE @value@
#define LOWEST @lowest@
#define LARGER(a, b) @larger@
#define LOAD(x, i) FX_LOAD_@name@(x, i)
#define STORE(x, i, v) FX_STORE_@name@(x, i, v)
#define LENGTH P(0)
#define REACH(d) ((TAPS(d) - 1) * DILATION(d))
#define LOW(d, p) ((p) < REACH(d) ? 0 : OVER_STRIDE(d, (p) - REACH(d) + STRIDE(d) - 1))
#define HIGH(d, p) (OVER_STRIDE(d, p) < YS(d) ? OVER_STRIDE(d, p) : YS(d) - 1)
#define TAP (k0 + TAPS(0) * (k1 + TAPS(1) * k2))
#define COUNT ((VALUE)(TAPS(0) * TAPS(1) * TAPS(2)))

//// pool_max
#define BEGIN VALUE top = LOWEST; fx_int best = -1;
#define EACH const VALUE v = LOAD(from, at); if (best < 0 || LARGER(v, top)) { top = v; best = at; }
#define END STORE(to, i, top);

//// pool_mean
#define BEGIN VALUE sum = 0;
#define EACH sum += LOAD(from, at);
#define END STORE(to, i, sum / COUNT);

//// pool_max_grad
#define BEGIN VALUE sum = 0;
#define EACH if (also[at] == TAP) sum += LOAD(from, at);
#define END STORE(to, i, sum);

//// pool_pick
#define BEGIN VALUE top = LOWEST; fx_int best = -1;
#define EACH const VALUE v = LOAD(from, at); if (best < 0 || LARGER(v, top)) { top = v; best = at; }
#define END to[i] = best < 0 ? (STORED)0 : also[best];

//// pool_tap
#define BEGIN VALUE top = LOWEST; fx_int best = -1;
#define EACH const VALUE v = LOAD(from, at); if (best < 0 || LARGER(v, top)) { top = v; best = TAP; }
#define END to[i] = best;

//// pool_item
FX_USE(0, const STORED, from)
FX_USE(1, @to@, to)
@also@
    const fx_int i = FX_GROUP_X * FX_GROUP + FX_ITEM;
    if (i >= LENGTH) return;

// Runs EACH for the taps of a window that are inside x: the tap's digits are k0 … k2, its position
// is `at`.
//// pool_over_windows
    const fx_int i1 = OVER_YS(0, i), i2 = OVER_YS(1, i1), o3 = OVER_YS(2, i2);
    const fx_int o0 = i - i1 * YS(0), o1 = i1 - i2 * YS(1), o2 = i2 - o3 * YS(2);
    const fx_int a0 = o0 * STRIDE(0) - BEFORE(0), a1 = o1 * STRIDE(1) - BEFORE(1),
        a2 = o2 * STRIDE(2) - BEFORE(2);
    BEGIN
    for (fx_int k2 = 0; k2 < TAPS(2); k2++) {
        const fx_int x2 = a2 + k2 * DILATION(2);
        if (x2 < 0 || x2 >= XS(2)) continue;
        for (fx_int k1 = 0; k1 < TAPS(1); k1++) {
            const fx_int x1 = a1 + k1 * DILATION(1);
            if (x1 < 0 || x1 >= XS(1)) continue;
            const fx_int row = XS(0) * (x1 + XS(1) * (x2 + XS(2) * o3));
            for (fx_int k0 = 0; k0 < TAPS(0); k0++) {
                const fx_int x0 = a0 + k0 * DILATION(0), at = row + x0;
                if (x0 >= 0 && x0 < XS(0)) { EACH }
            }
        }
    }
    END

// Runs EACH for the windows that contain a position of x: `at` is the number of the window, k0 … k2
// are the digits of the tap at this position. Along an axis the windows from LOW to HIGH can reach
// it; with dilation some of them skip it.
//// pool_over_positions
    const fx_int i1 = OVER_XS(0, i), i2 = OVER_XS(1, i1), p3 = OVER_XS(2, i2);
    const fx_int x0 = i - i1 * XS(0) + BEFORE(0), x1 = i1 - i2 * XS(1) + BEFORE(1),
        x2 = i2 - p3 * XS(2) + BEFORE(2);
    const fx_int high0 = HIGH(0, x0), high1 = HIGH(1, x1), high2 = HIGH(2, x2);
    BEGIN
    for (fx_int o2 = LOW(2, x2); o2 <= high2; o2++) {
        const fx_int k2 = OVER_DILATION(2, x2 - o2 * STRIDE(2));
        if (o2 * STRIDE(2) + k2 * DILATION(2) != x2) continue;
        for (fx_int o1 = LOW(1, x1); o1 <= high1; o1++) {
            const fx_int k1 = OVER_DILATION(1, x1 - o1 * STRIDE(1));
            if (o1 * STRIDE(1) + k1 * DILATION(1) != x1) continue;
            for (fx_int o0 = LOW(0, x0); o0 <= high0; o0++) {
                const fx_int k0 = OVER_DILATION(0, x0 - o0 * STRIDE(0));
                const fx_int at = o0 + YS(0) * (o1 + YS(1) * (o2 + YS(2) * p3));
                if (o0 * STRIDE(0) + k0 * DILATION(0) == x0) { EACH }
            }
        }
    }
    END
