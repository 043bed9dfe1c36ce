/* gpu_fold.c: accumulators of reductions, as text.
 *
 * A sum of reals carries what its roundings lost (Knuth's TwoSum), so that a Float32 sum is as good
 * as one in Float64, which many devices have not, or slowly. Squared deviations are Welford's: how
 * many, their mean and the sum around it, joined as Chan, Golub and LeVeque do. MAX and MIN keep
 * the first NaN they meet. ARGMAX and ARGMIN order values by NaN, then size, then number, so that
 * any order of joining gives the same index.
 */
#include "gpu_text.h"

#include <stdio.h>

/* T: the element's type, A: the type to accumulate in, U: an unsigned one; NONE: the least or
 * greatest value; BETTER(p, q): the comparison; IS_NAN(v): is it one? */
typedef struct fold {
    const char *members; /* of the accumulator a */
    int fields;          /* of A's size, at most */
    const char *none, *take, *join, *result;
} fold;

static const fold sum_reals = {
    "A s, c;",
    2,
    "a.s = 0; a.c = 0;",
    "const A t = a.s + x, z = t - a.s; a.c += (a.s - (t - z)) + (x - z); a.s = t;",
    "const A t = a.s + b.s, z = t - a.s; a.c += (a.s - (t - z)) + (b.s - z) + b.c; a.s = t;",
    "(T)(a.c == a.c ? a.s + a.c : a.s)"};
static const fold product_reals = {"A s;", 1, "a.s = 1;", "a.s *= (A)x;", "a.s *= b.s;", "(T)a.s"};
static const fold sum_whole = {
    "A s;", 1, "a.s = 0;", "a.s = (A)((U)a.s + (U)x);", "a.s = (A)((U)a.s + (U)b.s);", "a.s"};
static const fold product_whole = {
    "A s;", 1, "a.s = 1;", "a.s = (A)((U)a.s * (U)x);", "a.s = (A)((U)a.s * (U)b.s);", "a.s"};
static const fold extreme = {"A s;",
                             1,
                             "a.s = NONE;",
                             "if (BETTER(x, a.s) || IS_NAN(x)) a.s = x;",
                             "if (BETTER(b.s, a.s) || IS_NAN(b.s)) a.s = b.s;",
                             "a.s"};
static const fold deviations = {
    "A n, mean, m2;",
    3,
    "a.n = 0; a.mean = 0; a.m2 = 0;",
    "a.n += 1; const A d = x - a.mean; a.mean += d / a.n; a.m2 += d * (x - a.mean);",
    "if (b.n > 0) { const A n = a.n + b.n, d = b.mean - a.mean, f = b.n / n;"
    " a.mean += d * f; a.m2 += b.m2 + d * d * (a.n * f); a.n = n; }",
    "(T)a.m2"};
#define IS_FIRST(v, n)                                                                             \
    "if (" n " >= 0 && (a.i < 0 || (IS_NAN(" v ") ? !IS_NAN(a.s) || " n " < a.i : !IS_NAN(a.s)"    \
    " && (BETTER(" v ", a.s) || (" v " == a.s && " n " < a.i))))) { a.s = " v "; a.i = " n "; }"
static const fold place = {"A s; fx_int i;",       3,
                           "a.s = 0; a.i = -1;",   IS_FIRST("x", "i"),
                           IS_FIRST("b.s", "b.i"), "(fx_i64)a.i"};

/* By kind; [1]: of integers. */
static const fold *const folds[FX_FOLDS][2] = {
    [FX_FOLD_SUM] = {&sum_reals, &sum_whole}, [FX_FOLD_MAX] = {&extreme, &extreme},
    [FX_FOLD_MIN] = {&extreme, &extreme},     [FX_FOLD_PROD] = {&product_reals, &product_whole},
    [FX_FOLD_SQDEV] = {&deviations, NULL},    [FX_FOLD_ARGMAX] = {&place, &place},
    [FX_FOLD_ARGMIN] = {&place, &place},
};

/* A product of many numbers leaves Float32's range on its way more easily than a sum. */
static const char *accumulates_in(const fxi_gpu_builder *b, int kind, const fxi_gpu_type *t)
{
    return kind == FX_FOLD_PROD && t->math && b->limits->f64 ? "fx_f64" : t->value;
}

bool fxi_gpu_has_fold(fxi_gpu_builder *b, int kind, int dtype)
{
    const fxi_gpu_type *t = &fxi_gpu_types[dtype];
    if (folds[kind][!t->math] && !(kind == FX_FOLD_SUM && dtype == FX_DTYPE_BOOL))
        return true;
    fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED, "no reduction of this kind for element type %s",
                 t->name);
    return false;
}

int fxi_gpu_say_fold(fxi_gpu_builder *b, int n, int kind, int dtype)
{
    const fxi_gpu_type *t = &fxi_gpu_types[dtype];
    const fold *f = folds[kind][!t->math];
    const bool greatest = kind == FX_FOLD_MAX || kind == FX_FOLD_ARGMAX, index = f == &place;
    fxi_gpu_say(b, "#define T %s\n#define A %s\n", t->value, accumulates_in(b, kind, t));
    fxi_gpu_say(b, "#define U %s\n#define NONE %s\n", t->wrapping ? t->wrapping : t->value,
                greatest ? t->low : t->high);
    fxi_gpu_say(b, "#define BETTER(p, q) ((p) %c (q))\n#define IS_NAN(v) %s\n",
                greatest ? '>' : '<', t->math ? "((v) != (v))" : "0");
    fxi_gpu_say(b, "typedef struct { %s } fx_acc%d;\n", f->members, n);
    fxi_gpu_say(b, "FX_FN fx_acc%d fx_none%d(void) { fx_acc%d a; %s return a; }\n", n, n, n,
                f->none);
    fxi_gpu_say(b, "FX_FN fx_acc%d fx_take%d(fx_acc%d a, T x, fx_int i) { %s%s return a; }\n", n, n,
                n, index ? "" : "(void)i; ", f->take);
    fxi_gpu_say(b, "FX_FN fx_acc%d fx_join%d(fx_acc%d a, fx_acc%d b) { %s return a; }\n", n, n, n,
                n, f->join);
    fxi_gpu_say(b, "FX_FN %s fx_done%d(fx_acc%d a) { return %s; }\n", index ? "fx_i64" : "T", n, n,
                f->result);
    fxi_gpu_say(b, "#undef T\n#undef A\n#undef U\n#undef NONE\n#undef BETTER\n#undef IS_NAN\n");
    return f->fields * (int)sizeof(double);
}

/* ---- the work-items of a group --------------------------------------------------------------- */
int32_t fxi_gpu_power(int64_t n)
{
    int32_t power = 1;
    while (power < n && power < FXI_GPU_GROUP)
        power *= 2;
    return power;
}

void fxi_gpu_lanes_fill(fxi_gpu_lanes l, fxi_gpu_call *c, int first)
{
    int log = 0;
    while (1 << log < l.lanes)
        log++;
    fxi_gpu_param(c, first, l.lanes);
    fxi_gpu_param(c, first + 1, log);
    fxi_gpu_param(c, first + 2, l.columns);
}

void fxi_gpu_say_lanes(fxi_gpu_builder *b, int first)
{
    fxi_gpu_say(b, "const fx_int lanes = P(%d), slots = FX_GROUP >> P(%d);\n", first, first + 1);
    fxi_gpu_say(b, "const fx_int lane = P(%d) ? FX_ITEM >> (8 - P(%d)) : FX_ITEM & (lanes - 1);\n",
                first + 2, first + 1);
    fxi_gpu_say(b, "const fx_int slot = P(%d) ? FX_ITEM & (slots - 1) : FX_ITEM >> P(%d);\n",
                first + 2, first + 1);
    fxi_gpu_say(b, "const fx_int own = slot + lane * slots;\n");
}

void fxi_gpu_say_tree(fxi_gpu_builder *b, int n, int acc)
{
    fxi_gpu_say(b, "s%d[own] = a%d;\nFX_BARRIER;\n", n, acc);
    fxi_gpu_say(b,
                "for (fx_int half_of = lanes / 2; half_of > 0; half_of /= 2) {\n"
                "    if (lane < half_of)\n"
                "        s%d[own] = fx_join%d(s%d[own], s%d[own + half_of * slots]);\n"
                "    FX_BARRIER;\n}\n",
                n, n, n, n);
}
