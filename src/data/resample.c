/* resample.c: views chosen by index lists: random orders, filters, groups, splits, folds, and
 * over- and undersampling (MLUtils).
 *
 * Most functions make a list of indices on the host and wrap the data in a view. Training parts of
 * folds are views without a list. Labels are grouped by sorting pairs (label, index), so the order
 * of groups is that of the labels.
 */
#include "observations.h"
#include "option_struct.h"
#include "order.h"

#include <cflux/mlutils.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "object_types.h"

static uint64_t seed_of(uint64_t seed)
{
    return seed == FX_DRAWN ? fx_rand_u64() : seed;
}

static fxi_draws draws_of(uint64_t seed)
{
    return (fxi_draws){.key = fxi_mix(fxi_mix(seed_of(seed)))};
}

/* A list of indices that grows; `failed` after a failed allocation. */
typedef struct indices {
    int64_t *v, n, capacity;
    bool failed;
} indices;

static void append(indices *to, int64_t n, const int64_t *v)
{
    if (to->n + n > to->capacity && !to->failed) {
        const int64_t capacity = 2 * to->capacity > to->n + n ? 2 * to->capacity : to->n + n + 16;
        int64_t *more = fxi_realloc(to->v, (size_t)capacity * sizeof *more);
        to->failed = !more;
        to->v = more ? more : to->v;
        to->capacity = more ? capacity : to->capacity;
    }
    if (to->failed)
        return;
    for (int64_t i = 0; i < n; i++)
        to->v[to->n + i] = v[i];
    to->n += n;
}

static void append_range(indices *to, int64_t start, int64_t stop)
{
    for (int64_t i = start; i < stop; i++)
        append(to, 1, &i);
}

/* The view of these indices. The list is freed. */
static void *take_view(void *data, indices *list)
{
    void *y = list->failed ? fxi_obs_memory("obsview") : fxi_obs_view(data, list->n, list->v);
    fxi_free(list->v);
    *list = (indices){0};
    return y;
}

/* ---- random orders --------------------------------------------------------------------------- */

void *fx_shuffleobs(void *data, uint64_t seed)
{
    indices all = {0};
    const fx_status failed = fxi_obs_check("shuffleobs", data, &all.n);
    if (failed != FX_OK)
        return fx_error_array(failed);
    all.v = fxi_shuffled(all.n, seed_of(seed), 0);
    all.failed = !all.v;
    return take_view(data, &all);
}

void *fx_randobs(void *data, int64_t n, uint64_t seed)
{
    int64_t count;
    indices list = {0};
    fx_status failed = fxi_obs_check("randobs", data, &count);
    if (failed == FX_OK && (n < 0 || count == 0))
        failed = fx_fail(FX_STATUS_ARGUMENT, "randobs", "cannot draw %lld of %lld observations",
                         (long long)n, (long long)count);
    if (failed != FX_OK)
        return fx_error_array(failed);
    size_t bytes = 0;
    fxi_draws draws = draws_of(seed);
    list.v = fxi_mul_size((size_t)n + 1, sizeof *list.v, &bytes) ? fxi_malloc(bytes) : NULL;
    list.failed = !list.v;
    for (; list.n < n && !list.failed; list.n++)
        list.v[list.n] = (int64_t)fxi_draw_below(&draws, (uint64_t)count);
    return take_view(data, &list);
}

/* ---- groups ---------------------------------------------------------------------------------- */

typedef struct keyed {
    int64_t key, index;
} keyed;

static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key)
                            : (x->index > y->index) - (x->index < y->index);
}

/* Indices in ascending order of their keys; group g is order[start[g] … start[g + 1] − 1]. */
typedef struct groups {
    int64_t n, count;
    int64_t *order, *start, *keys;
} groups;

static void free_groups(groups *g)
{
    fxi_free(g->order);
    fxi_free(g->start);
    fxi_free(g->keys);
}

/* Makes groups of equal keys, and frees `keys`. */
static fx_status make_groups(const char *op, int64_t n, keyed *keys, groups *out)
{
    *out = (groups){.n = n};
    out->order = fxi_calloc((size_t)n + 1, sizeof(int64_t));
    out->start = fxi_calloc((size_t)n + 1, sizeof(int64_t));
    out->keys = fxi_calloc((size_t)n + 1, sizeof(int64_t));
    const bool good = keys && out->order && out->start && out->keys;
    if (good)
        qsort(keys, (size_t)n, sizeof *keys, by_key);
    for (int64_t i = 0; good && i < n; i++) {
        out->order[i] = keys[i].index;
        if (i > 0 && keys[i].key == keys[i - 1].key)
            continue;
        out->start[out->count] = i;
        out->keys[out->count++] = keys[i].key;
    }
    if (good)
        out->start[out->count] = n;
    fxi_free(keys);
    if (!good)
        free_groups(out);
    return good ? FX_OK : fx_fail(FX_STATUS_MEMORY, op, "out of memory");
}

static bool is_integer(fx_dtype t)
{
    return t == FX_DTYPE_I32 || t == FX_DTYPE_I64 || t == FX_DTYPE_U8 || t == FX_DTYPE_BOOL;
}

static fx_status group_labels(const char *op, fx_array *labels, groups *out)
{
    *out = (groups){0};
    if (!labels || !fx_is_array(labels))
        return fx_fail(FX_STATUS_ARGUMENT, op, "expects an array of labels, got %s",
                       fxi_type_name(labels));
    if (fx_is_error(labels))
        return fx_array_status(labels);
    if (!is_integer(fx_eltype(labels)))
        return fx_fail(FX_STATUS_DTYPE, op, "the labels are %s, expected integers",
                       fx_dtype_name(fx_eltype(labels)));
    const int64_t n = fx_length(labels);
    int64_t *values = fxi_calloc((size_t)n + 1, sizeof *values);
    keyed *keys = fxi_calloc((size_t)n + 1, sizeof *keys);
    fx_status status = values && keys ? fx_read_as(labels, FX_DTYPE_I64, values, n)
                                      : fx_fail(FX_STATUS_MEMORY, op, "out of memory");
    for (int64_t i = 0; status == FX_OK && i < n; i++)
        keys[i] = (keyed){values[i], i};
    fxi_free(values);
    if (status == FX_OK)
        return make_groups(op, n, keys, out);
    fxi_free(keys);
    return status;
}

static int64_t group_size(const groups *g, int64_t i)
{
    return g->start[i + 1] - g->start[i];
}

void *fx_group_counts(fx_array *labels)
{
    groups g;
    const fx_status failed = group_labels("group_counts", labels, &g);
    if (failed != FX_OK)
        return fx_error_array(failed);
    fx_array *keys = fxi_from(FX_DTYPE_I64, g.keys, 1, &g.count);
    for (int64_t i = 0; i < g.count; i++)
        g.keys[i] = group_size(&g, i);
    fx_array *counts = fxi_from(FX_DTYPE_I64, g.keys, 1, &g.count);
    free_groups(&g);
    return fx_named_tuple("labels", keys, "counts", counts);
}

void *fx_group_indices(fx_array *labels)
{
    groups g;
    const fx_status failed = group_labels("group_indices", labels, &g);
    if (failed != FX_OK)
        return fx_error_array(failed);
    fx_array *keys = fxi_from(FX_DTYPE_I64, g.keys, 1, &g.count);
    void **lists = fxi_calloc((size_t)g.count + 1, sizeof *lists);
    for (int64_t i = 0; lists && i < g.count; i++) {
        const int64_t n = group_size(&g, i);
        lists[i] = fxi_from(FX_DTYPE_I64, g.order + g.start[i], 1, &n);
    }
    void *y = lists ? fx_named_tuple("labels", keys, "indices", fxi_tuple((int)g.count, lists))
                    : fxi_obs_memory("group_indices");
    fxi_free(lists);
    free_groups(&g);
    return y;
}

/* ---- functions of observations --------------------------------------------------------------- */

void *fx_filterobs(fx_obs_test_fn keep, void *user, void *data)
{
    int64_t n;
    indices list = {0};
    fx_status failed = fxi_obs_check("filterobs", data, &n);
    if (failed == FX_OK && !keep)
        failed = fx_fail(FX_STATUS_ARGUMENT, "filterobs", "the function is NULL");
    for (int64_t i = 0; i < n && failed == FX_OK; i++) {
        FXI_OPEN_AT(FXI_SCOPE_INHERIT, NULL, 0);
        void *one = fxi_obs_one(data, i);
        failed = fx_eval(one);
        if (failed == FX_OK && keep(one, user))
            append(&list, 1, &i);
    }
    if (failed == FX_OK)
        return take_view(data, &list);
    fxi_free(list.v);
    return fx_error_array(failed);
}

/* One view per group, named after its key. */
static void *view_groups(void *data, const groups *g)
{
    enum { NAME = 24 };
    void **views = fxi_calloc((size_t)g->count + 1, sizeof *views);
    const char **names = fxi_calloc((size_t)g->count + 1, sizeof *names);
    char *text = fxi_calloc((size_t)g->count + 1, NAME);
    for (int64_t i = 0; views && names && text && i < g->count; i++) {
        snprintf(text + i * NAME, NAME, "%lld", (long long)g->keys[i]);
        names[i] = text + i * NAME;
        views[i] = fxi_obs_view(data, group_size(g, i), g->order + g->start[i]);
    }
    void *y = views && names && text ? fx_named_tuple_from((int)g->count, names, views)
                                     : fxi_obs_memory("groupobs");
    fxi_free(views);
    fxi_free(names);
    fxi_free(text);
    return y;
}

void *fx_groupobs(fx_obs_key_fn key, void *user, void *data)
{
    int64_t n;
    groups g;
    fx_status failed = fxi_obs_check("groupobs", data, &n);
    if (failed == FX_OK && !key)
        failed = fx_fail(FX_STATUS_ARGUMENT, "groupobs", "the function is NULL");
    keyed *keys = failed == FX_OK ? fxi_calloc((size_t)n + 1, sizeof *keys) : NULL;
    if (failed == FX_OK && !keys)
        failed = fx_fail(FX_STATUS_MEMORY, "groupobs", "out of memory");
    for (int64_t i = 0; i < n && failed == FX_OK; i++) {
        FXI_OPEN_AT(FXI_SCOPE_INHERIT, NULL, 0);
        void *one = fxi_obs_one(data, i);
        failed = fx_eval(one);
        keys[i] = (keyed){failed == FX_OK ? key(one, user) : 0, i};
    }
    if (failed != FX_OK) {
        fxi_free(keys);
        return fx_error_array(failed);
    }
    failed = make_groups("groupobs", n, keys, &g);
    if (failed != FX_OK)
        return fx_error_array(failed);
    void *y = view_groups(data, &g);
    free_groups(&g);
    return y;
}

/* ---- splitobs -------------------------------------------------------------------------------- */

enum { PARTS = 9 };

static fx_status too_few(int64_t n)
{
    return fx_fail(FX_STATUS_ARGUMENT, "splitobs",
                   "the parts in .at need more than the %lld observations of the data",
                   (long long)n);
}

/* The sizes of the parts of n observations; the last one is the rest. */
static fx_status part_sizes(const fx_fractions *at, int64_t n, int64_t out[PARTS])
{
    int64_t left = n;
    if (at->n < 1 || at->n > PARTS - 1)
        return fx_fail(FX_STATUS_ARGUMENT, "splitobs", ".at has %lld numbers, expected 1 to %d",
                       (long long)at->n, PARTS - 1);
    for (int64_t i = 0; i < at->n; i++) {
        const double f = at->v[i];
        const double size = f < 1 ? nearbyint(f * (double)n) : f;
        if (!(f >= 0) || f > 9e15 || size != floor(size))
            return fx_fail(FX_STATUS_ARGUMENT, "splitobs",
                           "number %lld of .at is %g, expected a fraction from 0 to 1, or a count",
                           (long long)i, f);
        if (f >= 1 && (int64_t)size > left)
            return too_few(n);
        out[i] = (int64_t)size < left ? (int64_t)size : left;
        left -= out[i];
    }
    out[at->n] = left;
    return FX_OK;
}

static fx_status check_fractions(const fx_fractions *at)
{
    double sum = 0;
    for (int64_t i = 0; i < at->n && i < PARTS - 1; i++)
        sum += at->v[i] < 1 ? at->v[i] : 0;
    return sum <= 1 + 1e-9 ? FX_OK
                           : fx_fail(FX_STATUS_ARGUMENT, "splitobs",
                                     "the fractions in .at add up to %g, expected at most 1", sum);
}

/* Distributes n indices to parts of these sizes. */
static void deal(int64_t nparts, const int64_t sizes[PARTS], const int64_t *order,
                 indices out[PARTS])
{
    for (int64_t i = 0; i < nparts; i++) {
        append(&out[i], sizes[i], order);
        order += sizes[i];
    }
}

/* How the observations of a label are divided. */
typedef struct label_parts {
    int64_t left; /* not yet in a part */
    int64_t sizes[PARTS];
} label_parts;

/* Divides a count among the labels in proportion to their sizes. Each label gets its share rounded
 * down; the labels with the largest remainders get one observation more. Requires that at least
 * `count` observations are left. keys: scratch, one for each label. */
static void share(int64_t count, int64_t n, const groups *g, keyed *keys, label_parts *labels,
                  int64_t part)
{
    int64_t rest = count;
    for (int64_t k = 0; k < g->count; k++) {
        const double due = (double)count * (double)group_size(g, k) / (double)n;
        const int64_t whole = (int64_t)floor(due), left = labels[k].left;
        labels[k].sizes[part] = whole < left ? whole : left;
        labels[k].left -= labels[k].sizes[part];
        rest -= labels[k].sizes[part];
        keys[k] = (keyed){(int64_t)((floor(due) - due) * 0x1p52), k};
    }
    qsort(keys, (size_t)g->count, sizeof *keys, by_key);
    for (int64_t i = 0; rest > 0; i = (i + 1) % g->count) {
        label_parts *label = &labels[keys[i].index];
        if (label->left == 0)
            continue;
        label->sizes[part]++;
        label->left--;
        rest--;
    }
}

/* A part that is a fraction of every label. */
static void take_fraction(double fraction, const groups *g, label_parts *labels, int64_t part)
{
    for (int64_t k = 0; k < g->count; k++) {
        const int64_t size = (int64_t)nearbyint(fraction * (double)group_size(g, k));
        labels[k].sizes[part] = size < labels[k].left ? size : labels[k].left;
        labels[k].left -= labels[k].sizes[part];
    }
}

/* The sizes of the parts of each label. A fraction applies to each label's observations; a count is
 * divided among the labels. */
static fx_status divide_labels(const fx_fractions *at, int64_t n, const groups *g, keyed *keys,
                               label_parts *labels)
{
    int64_t total[PARTS], left = n;
    const fx_status status = part_sizes(at, n, total);
    for (int64_t k = 0; k < g->count; k++)
        labels[k].left = group_size(g, k);
    for (int64_t i = 0; i < at->n && status == FX_OK; i++) {
        if (at->v[i] >= 1 && total[i] > left)
            return too_few(n);
        if (at->v[i] >= 1)
            share(total[i], n, g, keys, labels, i);
        else
            take_fraction(at->v[i], g, labels, i);
        for (int64_t k = 0; k < g->count; k++)
            left -= labels[k].sizes[i];
    }
    for (int64_t k = 0; k < g->count; k++)
        labels[k].sizes[at->n] = labels[k].left;
    return status;
}

/* Distributes the observations of each label separately, in the order of `order`. keys: one for
 * each observation. */
static fx_status deal_groups(const fx_fractions *at, int64_t n, const int64_t *order,
                             const groups *g, indices out[PARTS], keyed *keys)
{
    int64_t *rank = fxi_calloc((size_t)n + 1, sizeof *rank);
    label_parts *labels = fxi_calloc((size_t)g->count + 1, sizeof *labels);
    fx_status status = rank && labels ? divide_labels(at, n, g, keys, labels)
                                      : fx_fail(FX_STATUS_MEMORY, "splitobs", "out of memory");
    for (int64_t i = 0; i < n && status == FX_OK; i++)
        rank[order[i]] = i;
    for (int64_t k = 0; k < g->count && status == FX_OK; k++) {
        const int64_t size = group_size(g, k);
        int64_t *own = g->order + g->start[k];
        for (int64_t i = 0; i < size; i++)
            keys[i] = (keyed){rank[own[i]], own[i]};
        qsort(keys, (size_t)size, sizeof *keys, by_key);
        for (int64_t i = 0; i < size; i++)
            own[i] = keys[i].index;
        deal(at->n + 1, labels[k].sizes, own, out);
    }
    fxi_free(rank);
    fxi_free(labels);
    return status;
}

static fx_status deal_labels(const fx_splitobs_args *a, int64_t n, const int64_t *order,
                             indices out[PARTS])
{
    groups g;
    if (fx_length(a->stratified) != n)
        return fx_fail(FX_STATUS_SHAPE, "splitobs", "%lld labels for %lld observations",
                       (long long)fx_length(a->stratified), (long long)n);
    fx_status status = group_labels("splitobs", a->stratified, &g);
    if (status != FX_OK)
        return status;
    keyed *keys = fxi_calloc((size_t)n + 1, sizeof *keys);
    status = keys ? deal_groups(&a->at, n, order, &g, out, keys)
                  : fx_fail(FX_STATUS_MEMORY, "splitobs", "out of memory");
    fxi_free(keys);
    free_groups(&g);
    return status;
}

/* Distributes n indices in the order of `order`. */
static fx_status deal_all(const fx_splitobs_args *a, int64_t n, const int64_t *order,
                          indices out[PARTS])
{
    int64_t sizes[PARTS];
    if (a->stratified)
        return deal_labels(a, n, order, out);
    const fx_status status = part_sizes(&a->at, n, sizes);
    if (status == FX_OK)
        deal(a->at.n + 1, sizes, order, out);
    return status;
}

static void *take_parts(void *data, int64_t n, indices parts[PARTS])
{
    void *views[PARTS];
    for (int64_t i = 0; i < n; i++)
        views[i] = take_view(data, &parts[i]);
    return fxi_tuple((int)n, views);
}

void *fxi_splitobs(const fx_splitobs_args *given)
{
    FXI_TAKE_OPTIONS(fx_splitobs_args, FXI_SPLITOBS_ARGS, a, "splitobs", given);
    int64_t n;
    indices parts[PARTS] = {{0}}, all = {0};
    if (!a_ok)
        return fx_error_array(FX_STATUS_ARGUMENT);
    fx_status status = fxi_obs_check("splitobs", a.data, &n);
    if (status == FX_OK)
        status = check_fractions(&a.at);
    if (status != FX_OK)
        return fx_error_array(status);
    if (a.shuffle)
        all = (indices){.v = fxi_shuffled(n, seed_of(a.seed), 0), .n = n};
    else
        append_range(&all, 0, n);
    if (all.failed || (n > 0 && !all.v))
        status = fx_fail(FX_STATUS_MEMORY, "splitobs", "out of memory");
    else
        status = deal_all(&a, n, all.v, parts);
    fxi_free(all.v);
    if (status == FX_OK)
        return take_parts(a.data, a.at.n + 1, parts);
    for (int i = 0; i < PARTS; i++)
        fxi_free(parts[i].v);
    return fx_error_array(status);
}

/* ---- folds ----------------------------------------------------------------------------------- */

/* Where fold i of k begins, if n observations are divided in order: the first n mod k folds have
 * one observation more. */
static int64_t fold_start(int64_t n, int64_t k, int64_t i)
{
    return i * (n / k) + (i < n % k ? i : n % k);
}

/* The k pairs (training, validation). Fold i validates on the observations start[i] ≤ j < start[i +
 * 1] of `members`, which are ascending within a fold. Both views of a pair share their list, so the
 * memory of all folds is proportional to n + k. */
static void *pair_folds(const char *op, void *data, int64_t n, int64_t k, const int64_t *members,
                        const int64_t *start)
{
    void **folds = fxi_calloc((size_t)k, sizeof *folds);
    if (!folds)
        return fxi_obs_memory(op);
    for (int64_t i = 0; i < k; i++) {
        const int64_t size = start[i + 1] - start[i];
        fx_array *held = fxi_from(FX_DTYPE_I64, members + start[i], 1, &size);
        void *train = fxi_obs_rest(data, 0, n, held), *test = fxi_obs_view_of(data, held);
        folds[i] = fx_tuple(train, test);
    }
    void *y = fxi_tuple((int)k, folds);
    fxi_free(folds);
    return y;
}

/* Sorts the observations by fold: fold_of[j] is that of observation j; NULL: in order. */
static void *make_folds(const char *op, void *data, int64_t n, int64_t k, const int64_t *fold_of)
{
    int64_t *start = fxi_calloc((size_t)k + 2, sizeof *start);
    int64_t *members = fxi_calloc((size_t)n + 1, sizeof *members);
    void *y = NULL;
    if (start && members) {
        for (int64_t j = 0; fold_of && j < n; j++)
            start[fold_of[j] + 2]++;
        for (int64_t i = 0; i <= k; i++)
            start[i + 1] = fold_of ? start[i + 1] + start[i] : fold_start(n, k, i);
        /* start[i + 1]: the position of the next observation of fold i; at the end the start of
         * fold i + 1 */
        for (int64_t j = 0; j < n; j++)
            members[fold_of ? start[fold_of[j] + 1]++ : j] = j;
        y = pair_folds(op, data, n, k, members, fold_of ? start : start + 1);
    }
    fxi_free(start);
    fxi_free(members);
    return y ? y : fxi_obs_memory(op);
}

/* Divides the observations of each label among the folds, in their order. */
static fx_status stratify(const groups *g, int64_t k, int64_t *fold_of)
{
    for (int64_t l = 0; l < g->count; l++) {
        const int64_t size = group_size(g, l), *own = g->order + g->start[l];
        if (k > size)
            return fx_fail(FX_STATUS_ARGUMENT, "kfolds",
                           "k is %lld, but label %lld has only %lld observations", (long long)k,
                           (long long)g->keys[l], (long long)size);
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = fold_start(size, k, i); j < fold_start(size, k, i + 1); j++)
                fold_of[own[j]] = i;
    }
    return FX_OK;
}

static void *stratified_folds(void *data, int64_t n, int64_t k, fx_array *labels)
{
    groups g;
    fx_status status = group_labels("kfolds", labels, &g);
    if (status != FX_OK)
        return fx_error_array(status);
    int64_t *fold_of = fxi_calloc((size_t)n + 1, sizeof *fold_of);
    status =
        fold_of ? stratify(&g, k, fold_of) : fx_fail(FX_STATUS_MEMORY, "kfolds", "out of memory");
    void *y = status == FX_OK ? make_folds("kfolds", data, n, k, fold_of) : fx_error_array(status);
    fxi_free(fold_of);
    free_groups(&g);
    return y;
}

/* The data, and the labels if there are any, in a random order. */
static fx_status shuffle_both(int64_t n, uint64_t seed, void **io_data, fx_array **io_labels)
{
    int64_t *order = fxi_shuffled(n, seed_of(seed), 0);
    if (!order)
        return fx_fail(FX_STATUS_MEMORY, "kfolds", "out of memory");
    fx_array *idx = fxi_from(FX_DTYPE_I64, order, 1, &n);
    fxi_free(order);
    *io_data = fxi_obs_view_of(*io_data, idx);
    if (*io_labels)
        *io_labels = fx_gather(fx_vec(*io_labels), idx, 0);
    return fx_array_status(idx);
}

void *fxi_kfolds(const fx_kfolds_args *given)
{
    FXI_TAKE_OPTIONS(fx_kfolds_args, FXI_KFOLDS_ARGS, a, "kfolds", given);
    int64_t n;
    if (!a_ok)
        return fx_error_array(FX_STATUS_ARGUMENT);
    fx_status failed = fxi_obs_check("kfolds", a.data, &n);
    if (failed == FX_OK && (a.k < 2 || a.k > n))
        failed = fx_fail(FX_STATUS_ARGUMENT, "kfolds", "k is %lld, expected 2 to %lld",
                         (long long)a.k, (long long)(n > 2 ? n : 2));
    if (failed == FX_OK && a.stratified && fx_is_error(a.stratified))
        failed = fx_array_status(a.stratified);
    if (failed == FX_OK && a.stratified && fx_length(a.stratified) != n)
        failed = fx_fail(FX_STATUS_SHAPE, "kfolds", "%lld labels for %lld observations",
                         (long long)fx_length(a.stratified), (long long)n);
    FXI_SCOPE;
    if (failed == FX_OK && a.shuffle)
        failed = shuffle_both(n, a.seed, &a.data, &a.stratified);
    if (failed != FX_OK)
        return fx_error_array(failed);
    return fx_keep(a.stratified ? stratified_folds(a.data, n, a.k, a.stratified)
                                : make_folds("kfolds", a.data, n, a.k, NULL));
}

void *fx_leavepout(void *data, int64_t p)
{
    int64_t n;
    fx_status failed = fxi_obs_check("leavepout", data, &n);
    if (failed == FX_OK && (p < 1 || p > n / 2))
        failed = fx_fail(FX_STATUS_ARGUMENT, "leavepout", "p is %lld, expected 1 to %lld",
                         (long long)p, (long long)(n / 2));
    return failed == FX_OK ? make_folds("leavepout", data, n, n / p, NULL) : fx_error_array(failed);
}

static fx_status check_series(const fx_timeseries_kfolds_args *a, int64_t n)
{
    static const char op[] = "timeseries_kfolds";
    if (a->k < 1 || a->k >= n)
        return fx_fail(FX_STATUS_ARGUMENT, op, "k is %lld, expected 1 to %lld", (long long)a->k,
                       (long long)(n - 1));
    const int64_t before = n - a->k * (n / (a->k + 1)); /* where the first validation part begins */
    if (a->gap < 0 || a->gap >= before)
        return fx_fail(FX_STATUS_ARGUMENT, op,
                       "gap is %lld, expected 0 to %lld: fold 0 validates from observation %lld on",
                       (long long)a->gap, (long long)(before - 1), (long long)before);
    if (a->max_train_size < 0)
        return fx_fail(FX_STATUS_ARGUMENT, op, "max_train_size is %lld, expected at least 0",
                       (long long)a->max_train_size);
    return FX_OK;
}

void *fxi_timeseries_kfolds(const fx_timeseries_kfolds_args *given)
{
    FXI_TAKE_OPTIONS(fx_timeseries_kfolds_args, FXI_TIMESERIES_KFOLDS_ARGS, a, "timeseries_kfolds",
                     given);
    int64_t n;
    if (!a_ok)
        return fx_error_array(FX_STATUS_ARGUMENT);
    fx_status failed = fxi_obs_check("timeseries_kfolds", a.data, &n);
    if (failed == FX_OK)
        failed = check_series(&a, n);
    void **folds = failed == FX_OK ? fxi_calloc((size_t)a.k, sizeof *folds) : NULL;
    if (!folds)
        return failed == FX_OK ? fxi_obs_memory("timeseries_kfolds") : fx_error_array(failed);
    const int64_t size = n / (a.k + 1), most = a.max_train_size;
    for (int64_t i = 0; i < a.k; i++) {
        const int64_t start = n - (a.k - i) * size, end = start - a.gap;
        void *train = fxi_obs_rest(a.data, most > 0 && end > most ? end - most : 0, end, NULL);
        void *test = fxi_obs_rest(a.data, start, start + size, NULL);
        folds[i] = fx_tuple(train, test);
    }
    void *y = fxi_tuple((int)a.k, folds);
    fxi_free(folds);
    return y;
}

/* ---- equal counts of labels ------------------------------------------------------------------ */

static fx_status check_labels(const char *op, void *data, fx_array *labels, groups *out)
{
    int64_t n;
    *out = (groups){0};
    fx_status status = fxi_obs_check(op, data, &n);
    if (status == FX_OK)
        status = group_labels(op, labels, out);
    if (status == FX_OK && (out->n != n || fx_ndims(labels) != 1)) {
        free_groups(out);
        return fx_fail(FX_STATUS_SHAPE, op,
                       "the labels must be a vector with one label for each "
                       "of the %lld observations",
                       (long long)n);
    }
    return status;
}

/* Views of data and labels at these indices, in random order if `shuffle` is true. */
static void *take_both(void *data, fx_array *labels, indices *list, bool shuffle, fxi_draws *draws)
{
    if (shuffle && !list->failed)
        fxi_draw_order(draws, list->n, list->v);
    indices copy = {0};
    append(&copy, list->n, list->v);
    void *first = take_view(data, list), *second = take_view(labels, &copy);
    return fx_tuple(first, second);
}

void *fx_oversample(void *data, fx_array *labels, double fraction, bool shuffle, uint64_t seed)
{
    groups g;
    indices list = {0};
    fx_status failed = check_labels("oversample", data, labels, &g);
    if (failed == FX_OK && !(fraction >= 0 && fraction <= 1e6)) {
        free_groups(&g);
        failed = fx_fail(FX_STATUS_ARGUMENT, "oversample", "fraction is %g, expected 0 to 1e6",
                         fraction);
    }
    if (failed != FX_OK)
        return fx_error_array(failed);
    fxi_draws draws = draws_of(seed);
    int64_t most = 0;
    for (int64_t k = 0; k < g.count; k++)
        most = group_size(&g, k) > most ? group_size(&g, k) : most;
    const int64_t want = (int64_t)nearbyint(fraction * (double)most);
    append_range(&list, 0, g.n);
    for (int64_t k = 0; k < g.count; k++) {
        const int64_t size = group_size(&g, k);
        int64_t *own = g.order + g.start[k], missing = want - size;
        for (; missing > size; missing -= size)
            append(&list, size, own);
        if (missing > 0 && shuffle)
            fxi_draw_order(&draws, size, own);
        if (missing > 0)
            append(&list, missing, own);
    }
    free_groups(&g);
    return take_both(data, labels, &list, shuffle, &draws);
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void *fx_undersample(void *data, fx_array *labels, bool shuffle, uint64_t seed)
{
    groups g;
    indices list = {0};
    const fx_status failed = check_labels("undersample", data, labels, &g);
    if (failed != FX_OK)
        return fx_error_array(failed);
    fxi_draws draws = draws_of(seed);
    int64_t least = g.n;
    for (int64_t k = 0; k < g.count; k++)
        least = group_size(&g, k) < least ? group_size(&g, k) : least;
    for (int64_t k = 0; k < g.count; k++) {
        if (shuffle)
            fxi_draw_order(&draws, group_size(&g, k), g.order + g.start[k]);
        append(&list, least, g.order + g.start[k]);
    }
    free_groups(&g);
    if (!shuffle && list.n)
        qsort(list.v, (size_t)list.n, sizeof *list.v, ascending);
    return take_both(data, labels, &list, shuffle, &draws);
}
