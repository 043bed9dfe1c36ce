/* gpu_fold.c: the accumulators of reductions, as text (kernels/fold.cl).
 *
 * A sum of reals keeps what its roundings lost (Knuth's TwoSum), so that a Float32 sum is nearly as
 * exact as one in Float64, which many devices lack or compute slowly. Squared deviations are
 * Welford's: the count, the mean in two parts (the mean of numbers that differ only in their lowest
 * bits may not be a Float32 number) and the sum around it, joined as Chan, Golub and LeVeque do.
 * MAX and MIN keep the first NaN that they meet. ARGMAX and ARGMIN order values by NaN, then size,
 * then index, so that any order of joining gives the same index.
 */
#include "gpu_text.h"

typedef struct fold {
    const char *text;
    int fields; /* fields of an accumulator, of at most 8 bytes */
    bool index; /* the result is the element's index, not its value */
} fold;

static const fold sum_reals = {fxi_gpu_text_fold_sum_reals, 2, false},
                  sum_integers = {fxi_gpu_text_fold_sum_integers, 1, false},
                  product_reals = {fxi_gpu_text_fold_product_reals, 1, false},
                  product_integers = {fxi_gpu_text_fold_product_integers, 1, false},
                  extreme = {fxi_gpu_text_fold_extreme, 1, false},
                  deviations = {fxi_gpu_text_fold_deviations, 4, false},
                  index_of_extreme = {fxi_gpu_text_fold_index, 3, true};

/* By kind: [0] for reals, [1] for integers; NULL if there is none. */
static const fold *const folds[FX_REDUCE_COUNT][2] = {
    [FX_REDUCE_SUM] = {&sum_reals, &sum_integers},
    [FX_REDUCE_MAX] = {&extreme, &extreme},
    [FX_REDUCE_MIN] = {&extreme, &extreme},
    [FX_REDUCE_PROD] = {&product_reals, &product_integers},
    [FX_REDUCE_SQDEV] = {&deviations, NULL},
    [FX_REDUCE_ARGMAX] = {&index_of_extreme, &index_of_extreme},
    [FX_REDUCE_ARGMIN] = {&index_of_extreme, &index_of_extreme},
};

/* A product uses Float64 where the device has it: intermediate products leave Float32's range more
 * easily than sums do. */
static const char *accumulates_in(const fxi_gpu_builder *b, int kind, const fxi_gpu_type *t)
{
    return kind == FX_REDUCE_PROD && t->math && b->limits->f64 ? "fx_f64" : t->value;
}

/* Bools are converted before they are summed (src/ops), so sums of Bool do not occur. */
bool fxi_gpu_has_fold(fxi_gpu_builder *b, int kind, int dtype)
{
    const fxi_gpu_type *t = &fxi_gpu_types[dtype];
    if (folds[kind][!t->math] && !(kind == FX_REDUCE_SUM && dtype == FX_DTYPE_BOOL))
        return true;
    fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED, "no reduction of this kind for element type %s",
                 t->name);
    return false;
}

int fxi_gpu_say_fold(fxi_gpu_builder *b, int n, int kind, int dtype, int result)
{
    const fxi_gpu_type *t = &fxi_gpu_types[dtype];
    const fold *f = folds[kind][!t->math];
    const bool greatest = kind == FX_REDUCE_MAX || kind == FX_REDUCE_ARGMAX;
    fxi_gpu_set_number(b, "n", n);
    fxi_gpu_set(b, "value", t->value);
    fxi_gpu_set(b, "accumulated", accumulates_in(b, kind, t));
    fxi_gpu_set(b, "out", fxi_gpu_types[f->index ? FX_DTYPE_I64 : result].value);
    fxi_gpu_set(b, "wrapping", t->wrapping ? t->wrapping : t->value);
    /* The neutral element of an extreme; texts of other folds do not use it. */
    fxi_gpu_set(b, "none", greatest ? t->low : t->high);
    fxi_gpu_set(b, "better", greatest ? ">" : "<");
    fxi_gpu_set(b, "is_nan", t->math ? "((v) != (v))" : "0");
    fxi_gpu_say_part(b, fxi_gpu_text_fold_begin);
    fxi_gpu_say_part(b, f->text);
    fxi_gpu_say_part(b, fxi_gpu_text_fold_end);
    if (fxi_gpu_warp(b) > 0)
        fxi_gpu_say_part(b, fxi_gpu_text_fold_from);
    /* An upper bound: fields of narrower types take less. */
    return f->fields * (int)sizeof(double);
}

/* ---- the work-items of a group --------------------------------------------------------------- */
/* A tree needs a power of two. */
int32_t fxi_gpu_power(int64_t n)
{
    int32_t power = 1;
    while (power < n && power < FXI_GPU_GROUP)
        power *= 2;
    return power;
}

/* The logarithm is a parameter too, because kernels shift instead of dividing by the number of
 * lanes. */
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
    fxi_gpu_set_number(b, "lanes", first);
    fxi_gpu_set_number(b, "log", first + 1);
    fxi_gpu_set_number(b, "columns", first + 2);
    fxi_gpu_say_part(b, fxi_gpu_text_lanes);
}

void fxi_gpu_say_tree(fxi_gpu_builder *b, int n, int acc, bool columns, bool again)
{
    const bool warps = fxi_gpu_warp(b) > 0 && !columns;
    fxi_gpu_set_number(b, "n", n);
    fxi_gpu_set_number(b, "reg", acc);
    fxi_gpu_set(b, "again", again ? "FX_BARRIER;" : "");
    fxi_gpu_say_part(b, warps ? fxi_gpu_text_tree_of_warps : fxi_gpu_text_tree);
}
