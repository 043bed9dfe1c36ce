// Pooling: see gpu_pool.c. A kernel consists of definitions, its macros, and the loop over windows
// (BEGIN, EACH and END) or over positions of x (FIND, HAS and END). The numbers of a small window
// are constants in the text, so its loops are unrolled.

// OVER_XS(d, n) divides n, which is not negative, by XS(d); OVER_YS, OVER_STRIDE and OVER_DILATION
// likewise. Along axis 0, OVER_XS divides by the number of packs in a row of x: a work-item over
// positions has PACK neighbours. In pool_tiles, OVER_YS(0, n) divides by YS(0) / WINDOWS.
// SPAN(d): the most windows that contain one position or, along axis 0, a position of one pack.
// INSIDE(d): no window reaches into the padding along the axis.
// NaN is larger than every number, and the first of several equal elements stays.
//// pool_definitions
@parameters@
#define STORED @stored@
#define VALUE @value@
#define LOWEST @lowest@
#define PACK @elements@
#define UNROLL @unroll@
#define LARGER(a, b) @larger@
#define LOAD(x, i) FX_LOAD_@name@(x, i)
#define STORE(x, i, v) FX_STORE_@name@(x, i, v)
#define LENGTH P(0)
#define REACH(d) ((TAPS(d) - 1) * DILATION(d))
#define LOW(d, p) ((p) < REACH(d) ? 0 : OVER_STRIDE(d, (p) - REACH(d) + STRIDE(d) - 1))
#define HIGH(d, p) (OVER_STRIDE(d, p) < YS(d) ? OVER_STRIDE(d, p) : YS(d) - 1)
#define MEETS(d, p) (INSIDE(d) || ((p) >= 0 && (p) < XS(d)))
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

// Over positions. FIND computes what HAS needs to know of a window. HAS(far): does the window add to
// the position that is `far` after its first one?
//// pool_max_grad
#define FIND const fx_int k0 = also[at] - TAPS(0) * (k1 + TAPS(1) * k2); \
    const fx_int hit = k0 >= 0 && k0 < TAPS(0) ? k0 * DILATION(0) : -1;
#define HAS(far) ((far) >= 0 && (far) == hit)
#define END(sum) (sum)

//// pool_mean_grad
#define FIND
#define HAS(far) ((far) >= 0 && (far) <= REACH(0) && OVER_DILATION(0, far) * DILATION(0) == (far))
#define END(sum) ((sum) / COUNT)

//// pool_pick
#define BEGIN VALUE top = LOWEST; fx_int best = -1;
#define EACH const VALUE v = LOAD(from, at); if (best < 0 || LARGER(v, top)) { top = v; best = at; }
#define END to[i] = best < 0 ? (STORED)0 : also[best];

//// pool_tap
#define BEGIN VALUE top = LOWEST; fx_int best = -1;
#define EACH const VALUE v = LOAD(from, at); if (best < 0 || LARGER(v, top)) { top = v; best = TAP; }
#define END to[i] = (@to@)best;

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
    UNROLL for (fx_int k2 = 0; k2 < TAPS(2); k2++) {
        const fx_int x2 = a2 + k2 * DILATION(2);
        if (!MEETS(2, x2)) continue;
        UNROLL for (fx_int k1 = 0; k1 < TAPS(1); k1++) {
            const fx_int x1 = a1 + k1 * DILATION(1);
            if (!MEETS(1, x1)) continue;
            const fx_int row = XS(0) * (x1 + XS(1) * (x2 + XS(2) * o3));
            UNROLL for (fx_int k0 = 0; k0 < TAPS(0); k0++) {
                const fx_int x0 = a0 + k0 * DILATION(0), at = row + x0;
                if (MEETS(0, x0)) { EACH }
            }
        }
    }
    END

// Adds to a pack of positions of x what the windows contribute that contain them, in the order of
// the windows: `at` is the number of the window, k1 and k2 are digits of its taps in this row. Along
// an axis the windows from LOW to HIGH can reach a position; with dilation some of them skip it.
//// pool_over_positions
    const fx_int i1 = OVER_XS(0, i), i2 = OVER_XS(1, i1), p3 = OVER_XS(2, i2);
    const fx_int x0 = (i - i1 * (XS(0) / PACK)) * PACK + BEFORE(0), x1 = i1 - i2 * XS(1) + BEFORE(1),
        x2 = i2 - p3 * XS(2) + BEFORE(2);
    const fx_int low0 = LOW(0, x0), high0 = HIGH(0, x0 + PACK - 1), low1 = LOW(1, x1),
        high1 = HIGH(1, x1), low2 = LOW(2, x2), high2 = HIGH(2, x2);
    VALUE sum[PACK];
    UNROLL for (fx_int e = 0; e < PACK; e++) sum[e] = 0;
    UNROLL for (fx_int j2 = 0; j2 < SPAN(2); j2++) {
        const fx_int o2 = low2 + j2;
        if (o2 > high2) continue;
        const fx_int k2 = OVER_DILATION(2, x2 - o2 * STRIDE(2));
        if (o2 * STRIDE(2) + k2 * DILATION(2) != x2) continue;
        UNROLL for (fx_int j1 = 0; j1 < SPAN(1); j1++) {
            const fx_int o1 = low1 + j1;
            if (o1 > high1) continue;
            const fx_int k1 = OVER_DILATION(1, x1 - o1 * STRIDE(1));
            if (o1 * STRIDE(1) + k1 * DILATION(1) != x1) continue;
            UNROLL for (fx_int j0 = 0; j0 < SPAN(0); j0++) {
                const fx_int o0 = low0 + j0, at = o0 + YS(0) * (o1 + YS(1) * (o2 + YS(2) * p3));
                if (o0 > high0) continue;
                const VALUE v = LOAD(from, at);
                FIND
                UNROLL for (fx_int e = 0; e < PACK; e++)
                    if (HAS(x0 + e - o0 * STRIDE(0))) sum[e] += v;
            }
        }
    }
@store@

// The gradient of the maximum if the windows are tiles of x: each position is in one window, so the
// work-item of a window finds the maximum and writes all positions. It has WINDOWS neighbouring
// windows along axis 0, whose taps are PACK positions.
//// pool_tiles
#define WINDOWS (PACK / TAPS(0))
FX_USE(0, const STORED, from)
FX_USE(1, STORED, to)
FX_USE(2, const STORED, also)
    const fx_int i = FX_GROUP_X * FX_GROUP + FX_ITEM;
    if (i >= LENGTH) return;
    const fx_int i1 = OVER_YS(0, i), i2 = OVER_YS(1, i1), o3 = OVER_YS(2, i2);
    const fx_int o0 = (i - i1 * (YS(0) / WINDOWS)) * WINDOWS, o1 = i1 - i2 * YS(1), o2 = i2 - o3 * YS(2);
    const fx_int first = o0 * STRIDE(0) + XS(0) * (o1 * STRIDE(1) + XS(1) * (o2 * STRIDE(2) + XS(2) * o3));
    VALUE top[WINDOWS];
    fx_int best[WINDOWS];
    UNROLL for (fx_int o = 0; o < WINDOWS; o++) { top[o] = LOWEST; best[o] = -1; }
    UNROLL for (fx_int k2 = 0; k2 < TAPS(2); k2++) {
        UNROLL for (fx_int k1 = 0; k1 < TAPS(1); k1++) {
            const fx_int row = first + XS(0) * (k1 + XS(1) * k2);
@load@
            UNROLL for (fx_int o = 0; o < WINDOWS; o++)
                UNROLL for (fx_int k0 = 0; k0 < TAPS(0); k0++) {
                    const VALUE v = LOAD(x.e, o * TAPS(0) + k0);
                    if (best[o] < 0 || LARGER(v, top[o])) { top[o] = v; best[o] = TAP; }
                }
        }
    }
    UNROLL for (fx_int k2 = 0; k2 < TAPS(2); k2++) {
        UNROLL for (fx_int k1 = 0; k1 < TAPS(1); k1++) {
            const fx_int row = first + XS(0) * (k1 + XS(1) * k2);
@pack@
            UNROLL for (fx_int o = 0; o < WINDOWS; o++)
                UNROLL for (fx_int k0 = 0; k0 < TAPS(0); k0++)
                    z.e[o * TAPS(0) + k0] = best[o] == TAP ? from[o0 + o + YS(0) * i1] : (STORED)0;
@store@
        }
    }
