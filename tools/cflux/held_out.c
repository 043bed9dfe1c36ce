/* held_out.c: selects the observations for validation: see held_out.h. */
#include "held_out.h"
#include <stdlib.h>

typedef struct division {
    int64_t n, kept, nclasses;
    int64_t *class_of; /* class of each observation */
    int64_t *counts;   /* number of observations in each class */
    int64_t *quotas;   /* number of validation observations in each class; in deal, the number of
                          the next observation of the class */
    int64_t *order;    /* the result */
} division;

static void draw_order(int64_t *order, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t k = (int64_t)(fx_rand_u64() % (uint64_t)(i + 1)), swap = order[i];
        order[i] = order[k];
        order[k] = swap;
    }
}

static double share_of(const division *d, int64_t class)
{
    return (double)d->counts[class] * (double)d->kept / (double)d->n;
}

/* The class that lacks most of its share of validation observations. A class with only one training
 * observation left is chosen last. */
static int64_t neediest(const division *d)
{
    int64_t best = -1;
    double most = 0;
    for (int64_t c = 0; c < d->nclasses; c++) {
        const int64_t left = d->counts[c] - d->quotas[c];
        const double lack = share_of(d, c) - (double)d->quotas[c] - (left == 1 ? (double)d->n : 0);
        if (left > 0 && (best < 0 || lack > most)) {
            best = c;
            most = lack;
        }
    }
    return best;
}

static void set_quotas(division *d)
{
    int64_t left = d->kept;
    for (int64_t i = 0; i < d->n; i++)
        d->counts[d->class_of[i]]++;
    for (int64_t c = 0; c < d->nclasses; c++)
        left -= d->quotas[c] = (int64_t)share_of(d, c);
    for (; left > 0; left--)
        d->quotas[neediest(d)]++;
}

/* Moves the validation observations to the front; each part keeps the order drawn. */
static void part(const division *d, const int64_t *drawn)
{
    int64_t front = 0, back = d->kept;
    for (int64_t i = 0; i < d->n; i++) {
        int64_t *quota = &d->quotas[d->class_of[drawn[i]]];
        d->order[*quota > 0 ? front++ : back++] = drawn[i];
        *quota -= *quota > 0;
    }
}

static bool read_classes(const division *d, const problem *p, fx_array *y)
{
    return !p->classes || fx_read_as(y, FX_DTYPE_I64, d->class_of, d->n) == FX_OK;
}

/* All positions, first those from `from` to before `to`. */
static fx_array *in_sequence(int64_t n, int64_t from, int64_t to)
{
    fx_array *all = fx_range_dtype(FX_DTYPE_I64, 0, 1, n);
    return fx_concat(0, fx_slice(all, 0, from, to), fx_slice(all, 0, 0, from),
                     fx_slice(all, 0, to, n));
}

fx_array *held_out_first(const problem *p, fx_array *y, int64_t n, int64_t kept)
{
    const int64_t nclasses = p->classes ? p->nclasses : 1;
    if (p->context)
        return in_sequence(n, n - kept, n);
    int64_t *all = calloc((size_t)(3 * n + 2 * nclasses), sizeof *all);
    if (!all)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, "split", "out of memory"));
    division d = {n, kept, nclasses, all, all + n, all + n + nclasses, all + n + 2 * nclasses};
    int64_t *drawn = d.order + n;
    fx_array *result;
    if (read_classes(&d, p, y)) {
        draw_order(drawn, n);
        set_quotas(&d);
        part(&d, drawn);
        result = fx_from(FX_DTYPE_I64, d.order, n);
    } else {
        result = fx_error_array(FX_STATUS_MEMORY);
    }
    free(all);
    return result;
}

/* The fold of each observation: the observations of the first class are dealt to the folds, then
 * those of the next. */
static void deal(const division *d, int64_t folds, const int64_t *drawn, int64_t *fold_of)
{
    int64_t next = 0;
    for (int64_t i = 0; i < d->n; i++)
        d->counts[d->class_of[i]]++;
    for (int64_t c = 0; c < d->nclasses; c++) {
        d->quotas[c] = next;
        next += d->counts[c];
    }
    for (int64_t i = 0; i < d->n; i++)
        fold_of[drawn[i]] = d->quotas[d->class_of[drawn[i]]]++ % folds;
}

fx_array *held_out_fold(const problem *p, fx_array *y, int64_t n, fold f, int64_t *out_kept)
{
    const int64_t nclasses = p->classes ? p->nclasses : 1;
    if (p->context) {
        const int64_t from = n * f.i / f.n, to = n * (f.i + 1) / f.n;
        *out_kept = to - from;
        return in_sequence(n, from, to);
    }
    int64_t *all = calloc((size_t)(4 * n + 2 * nclasses), sizeof *all);
    if (!all)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, "split", "out of memory"));
    division d = {n, 0, nclasses, all, all + n, all + n + nclasses, all + n + 2 * nclasses};
    int64_t *drawn = d.order + n, *fold_of = drawn + n, at = 0;
    const bool read = read_classes(&d, p, y);
    if (read) {
        draw_order(drawn, n);
        deal(&d, f.n, drawn, fold_of);
    }
    for (int64_t i = 0; i < n; i++)
        if (fold_of[drawn[i]] == f.i)
            d.order[at++] = drawn[i];
    *out_kept = at;
    for (int64_t i = 0; i < n; i++)
        if (fold_of[drawn[i]] != f.i)
            d.order[at++] = drawn[i];
    fx_array *result = read ? fx_from(FX_DTYPE_I64, d.order, n) : fx_error_array(FX_STATUS_MEMORY);
    free(all);
    return result;
}
