// Accumulators of reductions: see gpu_fold.c. A fold consists of definitions, a type, four
// functions and the end of the definitions. n is its number in the kernel.
//
// T: type of an element; R: type of the result of a sum of reals; A: type of the accumulator; U:
// its unsigned type; NONE: the least or greatest value; BETTER(p, q): the comparison of an extreme;
// IS_NAN(v): is v NaN?
//// fold_begin
#define T @value@
#define A @accumulated@
#define R @out@
#define U @wrapping@
#define NONE @none@
#define BETTER(p, q) ((p) @better@ (q))
#define IS_NAN(v) @is_nan@

// A sum also keeps the part that its roundings lost.
//// fold_sum_reals
typedef struct { A s, c; } fx_acc@n@;
FX_FN fx_acc@n@ fx_none@n@(void) { fx_acc@n@ a; a.s = 0; a.c = 0; return a; }
FX_FN fx_acc@n@ fx_take@n@(fx_acc@n@ a, T x, fx_int i) { (void)i; const A t = a.s + x, z = t - a.s; a.c += (a.s - (t - z)) + (x - z); a.s = t; return a; }
FX_FN fx_acc@n@ fx_join@n@(fx_acc@n@ a, fx_acc@n@ b) { const A t = a.s + b.s, z = t - a.s; a.c += (a.s - (t - z)) + (b.s - z) + b.c; a.s = t; return a; }
FX_FN @out@ fx_done@n@(fx_acc@n@ a) { return a.c == a.c ? (R)a.s + (R)a.c : (R)a.s; }

//// fold_product_reals
typedef struct { A s; } fx_acc@n@;
FX_FN fx_acc@n@ fx_none@n@(void) { fx_acc@n@ a; a.s = 1; return a; }
FX_FN fx_acc@n@ fx_take@n@(fx_acc@n@ a, T x, fx_int i) { (void)i; a.s *= (A)x; return a; }
FX_FN fx_acc@n@ fx_join@n@(fx_acc@n@ a, fx_acc@n@ b) { a.s *= b.s; return a; }
FX_FN @out@ fx_done@n@(fx_acc@n@ a) { return (T)a.s; }

//// fold_sum_integers
typedef struct { A s; } fx_acc@n@;
FX_FN fx_acc@n@ fx_none@n@(void) { fx_acc@n@ a; a.s = 0; return a; }
FX_FN fx_acc@n@ fx_take@n@(fx_acc@n@ a, T x, fx_int i) { (void)i; a.s = (A)((U)a.s + (U)x); return a; }
FX_FN fx_acc@n@ fx_join@n@(fx_acc@n@ a, fx_acc@n@ b) { a.s = (A)((U)a.s + (U)b.s); return a; }
FX_FN @out@ fx_done@n@(fx_acc@n@ a) { return a.s; }

//// fold_product_integers
typedef struct { A s; } fx_acc@n@;
FX_FN fx_acc@n@ fx_none@n@(void) { fx_acc@n@ a; a.s = 1; return a; }
FX_FN fx_acc@n@ fx_take@n@(fx_acc@n@ a, T x, fx_int i) { (void)i; a.s = (A)((U)a.s * (U)x); return a; }
FX_FN fx_acc@n@ fx_join@n@(fx_acc@n@ a, fx_acc@n@ b) { a.s = (A)((U)a.s * (U)b.s); return a; }
FX_FN @out@ fx_done@n@(fx_acc@n@ a) { return a.s; }

//// fold_extreme
typedef struct { A s; } fx_acc@n@;
FX_FN fx_acc@n@ fx_none@n@(void) { fx_acc@n@ a; a.s = NONE; return a; }
FX_FN fx_acc@n@ fx_take@n@(fx_acc@n@ a, T x, fx_int i) { (void)i; if (BETTER(x, a.s) || IS_NAN(x)) a.s = x; return a; }
FX_FN fx_acc@n@ fx_join@n@(fx_acc@n@ a, fx_acc@n@ b) { if (BETTER(b.s, a.s) || IS_NAN(b.s)) a.s = b.s; return a; }
FX_FN @out@ fx_done@n@(fx_acc@n@ a) { return a.s; }

// Squared deviations: the count, the mean in two parts, and the sum of squares around the mean.
//// fold_deviations
typedef struct { A n, mean, low, m2; } fx_acc@n@;
FX_FN fx_acc@n@ fx_none@n@(void) { fx_acc@n@ a; a.n = 0; a.mean = 0; a.low = 0; a.m2 = 0; return a; }
FX_FN fx_acc@n@ fx_take@n@(fx_acc@n@ a, T x, fx_int i) { (void)i; a.n += 1; const A d = (x - a.mean) - a.low, l = a.low + d / a.n, m = a.mean + l; a.low = l - (m - a.mean); a.mean = m; a.m2 += d * ((x - a.mean) - a.low); return a; }
FX_FN fx_acc@n@ fx_join@n@(fx_acc@n@ a, fx_acc@n@ b) { if (b.n > 0) { const A n = a.n + b.n, d = (b.mean - a.mean) + (b.low - a.low), f = b.n / n; const A l = a.low + d * f, m = a.mean + l; a.low = l - (m - a.mean); a.mean = m; a.m2 += b.m2 + d * d * (a.n * f); a.n = n; } return a; }
FX_FN @out@ fx_done@n@(fx_acc@n@ a) { return (T)a.m2; }

// The index of the extreme; −1: no element yet.
//// fold_index
typedef struct { A s; fx_int i; } fx_acc@n@;
FX_FN fx_acc@n@ fx_none@n@(void) { fx_acc@n@ a; a.s = 0; a.i = -1; return a; }
FX_FN fx_acc@n@ fx_take@n@(fx_acc@n@ a, T x, fx_int i) { if (i >= 0 && (a.i < 0 || (IS_NAN(x) ? !IS_NAN(a.s) || i < a.i : !IS_NAN(a.s) && (BETTER(x, a.s) || (x == a.s && i < a.i))))) { a.s = x; a.i = i; } return a; }
FX_FN fx_acc@n@ fx_join@n@(fx_acc@n@ a, fx_acc@n@ b) { if (b.i >= 0 && (a.i < 0 || (IS_NAN(b.s) ? !IS_NAN(a.s) || b.i < a.i : !IS_NAN(a.s) && (BETTER(b.s, a.s) || (b.s == a.s && b.i < a.i))))) { a.s = b.s; a.i = b.i; } return a; }
FX_FN @out@ fx_done@n@(fx_acc@n@ a) { return (fx_i64)a.i; }

//// fold_end
#undef T
#undef A
#undef R
#undef U
#undef NONE
#undef BETTER
#undef IS_NAN

// Divides the work-items of a group into teams: the `lanes` of a team, a power of two, compute one
// result.
//// lanes
const fx_int lanes = P(@own@@lanes@), teams = FX_GROUP >> P(@own@@log@);
const fx_int lane = P(@own@@columns@) ? FX_ITEM >> (8 - P(@own@@log@)) : FX_ITEM & (lanes - 1);
const fx_int team = P(@own@@columns@) ? FX_ITEM & (teams - 1) : FX_ITEM >> P(@own@@log@);
const fx_int own = team + lane * teams;

// Joins the lanes' accumulators: `a` of every work-item of the team becomes the accumulator of all
// its lanes. @again@ is a barrier if the previous tree used the same array, because other
// work-items may not have read its result yet.
//// tree
@again@
s@n@[own] = a@reg@;
FX_BARRIER;
for (fx_int half_of = lanes / 2; half_of > 0; half_of /= 2) {
    if (lane < half_of)
        s@n@[own] = fx_join@n@(s@n@[own], s@n@[own + half_of * teams]);
    FX_BARRIER;
}
a@reg@ = s@n@[team];

// The accumulator of another work-item of the warp. FX_WARP work-items execute together, and
// exchange 32 bits without a barrier.
//// fold_from
FX_FN fx_acc@n@ fx_from@n@(fx_acc@n@ a, fx_int item) {
    union { fx_u32 w[(sizeof(fx_acc@n@) + 3) / 4]; fx_acc@n@ a; } p;
    p.w[0] = 0; p.a = a;
    FX_UNROLL for (int k = 0; k < (int)((sizeof(fx_acc@n@) + 3) / 4); k++) p.w[k] = fx_shuffle(p.w[k], item);
    return p.a; }

// The same as the tree, for lanes that are neighbours. The lanes of a warp are joined first. If a
// result has the lanes of several warps, each warp then joins the results of all of them, which are
// in local memory. Lanes join in different orders, which may give different bits, so all of them
// take the accumulator of the first one.
//// tree_of_warps
FX_UNROLL for (fx_int apart = FX_WARP / 2; apart > 0; apart /= 2)
    if (apart < lanes) a@reg@ = fx_join@n@(a@reg@, fx_from@n@(a@reg@, FX_ITEM ^ apart));
if (lanes > FX_WARP) {
    @again@
    if (FX_ITEM % FX_WARP == 0) s@n@[FX_ITEM / FX_WARP] = a@reg@;
    FX_BARRIER;
    const fx_int warps = lanes / FX_WARP;
    a@reg@ = s@n@[team * warps + (FX_ITEM & (warps - 1))];
    FX_UNROLL for (fx_int apart = FX_GROUP / FX_WARP / 2; apart > 0; apart /= 2)
        if (apart < warps) a@reg@ = fx_join@n@(a@reg@, fx_from@n@(a@reg@, FX_ITEM ^ apart));
}
a@reg@ = fx_from@n@(a@reg@, FX_ITEM & ~(lanes - 1));
