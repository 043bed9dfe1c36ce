/* synchronize.c: copies the values of one member to all members, after a check that all of them
 * have the same arrays.
 *
 * Without the check, members with other arrays of the same sizes would accept the values: if two
 * programs had their layers in different orders, they would train with wrong parameters. One small
 * operation compares a hash. Only if the hashes differ do the members search for the first array
 * that differs.
 */
#include "dist_group.h"

#include "error.h"
#include "evaluate.h"
#include "hash.h"
#include "memory.h"
#include "state_parts.h"
#include "ties.h"

#include <stdio.h>
#include <string.h>

enum { TEXT = 200 };

typedef struct arrays {
    fx_array **items, **values;
    int64_t *hashes;
    char (*texts)[TEXT]; /* "layers.0.weight, 3×2 Float32" */
    int64_t n, capacity;
    fx_array **own; /* arrays of divided states, in the order of the walk: not exchanged */
    int32_t nown, own_capacity, at_own;
    bool no_memory;
} arrays;

/* ---- what this member has -------------------------------------------------------------------- */

static bool grow(arrays *a)
{
    if (a->n < a->capacity)
        return true;
    const size_t n = a->capacity ? 2 * (size_t)a->capacity : 64;
    fx_array **items = fxi_realloc(a->items, n * sizeof *items);
    a->items = items ? items : a->items;
    fx_array **values = fxi_realloc(a->values, n * sizeof *values);
    a->values = values ? values : a->values;
    int64_t *hashes = fxi_realloc(a->hashes, n * sizeof *hashes);
    a->hashes = hashes ? hashes : a->hashes;
    char(*texts)[TEXT] = fxi_realloc(a->texts, n * sizeof *texts);
    a->texts = texts ? texts : a->texts;
    if (items && values && hashes && texts)
        a->capacity = (int64_t)n;
    return items && values && hashes && texts;
}

/* Lists the arrays of divided states. */
static fx_walk find_own(const fx_spot *at, void *user)
{
    arrays *a = user;
    fxi_leaf leaf;
    if (!fxi_leaf_divided(at->objects[0]))
        return fx_has_children(at->objects[0]) ? FX_WALK_ENTER : FX_WALK_PASS;
    fxi_leaf_of(at->objects[0], &leaf);
    for (int i = 0; i < leaf.nstates; i++) {
        a->no_memory |= !fxi_grow(&a->own, &a->own_capacity, a->nown + 1, sizeof *a->own);
        if (a->no_memory)
            return FX_WALK_STOP;
        a->own[a->nown++] = leaf.states[i];
    }
    return FX_WALK_PASS;
}

/* "3×2 Float32", without the device, because each member may use another one. */
static void describe(const fx_array *x, char *text, size_t size)
{
    char sizes[FXI_SHAPE_TEXT];
    if (fx_is_error(x))
        snprintf(text, size, "an error array");
    else
        snprintf(text, size, "%s %s", fxi_shape_text(x->node->ndim, x->node->shape, sizes),
                 fx_dtype_name(fx_eltype(x)));
}

static void note(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)trainable;
    arrays *a = user;
    char what[FXI_SHAPE_TEXT + 20];
    if (a->at_own < a->nown && a->own[a->at_own] == x) {
        a->at_own++;
        return;
    }
    if (a->no_memory || !grow(a)) {
        a->no_memory = true;
        return;
    }
    describe(x, what, sizeof what);
    char *text = a->texts[a->n];
    memset(text, 0, TEXT);
    snprintf(text, TEXT, "%s, %s", *path ? path : "an array", what);
    const uint64_t hash = fxi_hash(path, strlen(path), 0);
    a->hashes[a->n] = (int64_t)(fxi_hash(what, strlen(what), hash) >> 2);
    a->items[a->n++] = x;
}

static void done(arrays *a)
{
    fxi_free(a->own);
    fxi_free(a->items);
    fxi_free(a->values);
    fxi_free(a->hashes);
    fxi_free(a->texts);
}

/* ---- the comparison -------------------------------------------------------------------------- */

/* Replaces n numbers by those of `root`, or by the maxima over all members (root −1). */
static fx_status exchange(fx_dist *d, fx_dtype type, void *io, int64_t n, int root)
{
    FXI_SCOPE;
    fx_array *x = fxi_from(type, io, 1, &n);
    fx_array *y = root < 0 ? fx_dist_allreduce(d, x, FX_REDUCE_MAX) : fx_dist_bcast(d, x, root);
    return fx_read_as(y, type, io, n);
}

/* Finds the first array that differs from the array of `root` with the same index; n if none does.
 */
static fx_status first_difference(fx_dist *d, const arrays *a, int root, int64_t n, int64_t *out)
{
    int64_t theirs = a->n;
    fx_status status = exchange(d, FX_DTYPE_I64, &theirs, 1, root);
    if (status != FX_OK)
        return status;
    int64_t *hashes = fxi_calloc((size_t)theirs + 1, sizeof *hashes), i = 0;
    if (!hashes)
        return fx_fail(FX_STATUS_MEMORY, "synchronize", "out of memory");
    for (; i < theirs && i < a->n; i++)
        hashes[i] = a->hashes[i];
    if (theirs > 0)
        status = exchange(d, FX_DTYPE_I64, hashes, theirs, root);
    for (i = 0; i < theirs && i < a->n && hashes[i] == a->hashes[i];)
        i++;
    *out = i == theirs && i == a->n ? n : i;
    fxi_free(hashes);
    return status;
}

static void text_of(const arrays *a, int64_t i, char text[TEXT])
{
    memset(text, 0, TEXT);
    snprintf(text, TEXT, "%s", i < a->n ? a->texts[i] : "no such array");
}

/* Finds and reports the first difference. All members get the same message. */
static fx_status report_difference(fx_dist *d, const arrays *a, int root)
{
    char theirs[TEXT], ours[TEXT];
    int64_t at = 0, found[2]; /* the negative of the lowest rank that differs, because the exchange
                                 takes maxima */
    fx_status status = first_difference(d, a, root, INT64_MAX, &at);
    found[0] = at == INT64_MAX ? -INT64_MAX : -(int64_t)d->group.rank;
    if (status == FX_OK)
        status = exchange(d, FX_DTYPE_I64, found, 1, -1);
    const int other = status == FX_OK ? (int)-found[0] : 0;
    if (status == FX_OK)
        status = exchange(d, FX_DTYPE_I64, &at, 1, other);
    text_of(a, at, theirs);
    text_of(a, at, ours);
    if (status == FX_OK)
        status = exchange(d, FX_DTYPE_U8, theirs, TEXT, other);
    if (status == FX_OK)
        status = exchange(d, FX_DTYPE_U8, ours, TEXT, root);
    if (status != FX_OK)
        return status;
    return fx_fail(FX_STATUS_ARGUMENT, "synchronize",
                   "the members differ: array %lld on rank %d is %s, but on rank %d it is %s",
                   (long long)at + 1, other, theirs, root, ours);
}

static fx_status compare(fx_dist *d, const arrays *a, int root)
{
    const uint64_t hash = fxi_hash(a->hashes, (size_t)a->n * sizeof *a->hashes, 0);
    const int64_t all = (int64_t)(hash >> 2);
    int64_t extremes[] = {all, -all};
    const fx_status status = exchange(d, FX_DTYPE_I64, extremes, 2, -1);
    if (status != FX_OK)
        return status;
    return extremes[0] == -extremes[1] ? FX_OK : report_difference(d, a, root);
}

/* ---- the values ------------------------------------------------------------------------------ */

/* If array i is a view of another array of the list, returns the same view of the new value of that
 * array; otherwise NULL. */
static fx_array *view_of_new(const arrays *a, int64_t i)
{
    fx_array *y = NULL;
    for (int64_t k = 0; k < a->n && !y; k++)
        if (k != i && a->values[k])
            y = fxi_view_again(a->items[i], a->items[k], a->values[k]);
    return y;
}

static fx_status send_arrays(fx_dist *d, const arrays *a, int root)
{
    FXI_SCOPE;
    for (int64_t i = 0; i < a->n; i++)
        a->values[i] = fxi_is_view(a->items[i]) ? NULL : fx_dist_bcast(d, a->items[i], root);
    for (int64_t i = 0; i < a->n; i++)
        if (!a->values[i])
            a->values[i] = view_of_new(a, i);
    for (int64_t i = 0; i < a->n; i++) {
        if (!a->values[i])
            a->values[i] = fx_dist_bcast(d, a->items[i], root);
        if (fx_is_error(a->values[i]))
            return fx_array_status(a->values[i]);
    }
    return fxi_commit((int)a->n, a->items, a->values, NULL, false);
}

/* Sends the numbers of an optimiser state: powers of β, counts, learning rates. */
static fx_status send_numbers(fx_dist *d, void *x, int root)
{
    const int64_t n = fx_is_array(x) ? 0 : fxi_state_numbers(x, NULL, 0);
    if (n <= 0)
        return n == -2 ? fx_error_status() : FX_OK;
    double *numbers = fxi_malloc((size_t)n * sizeof *numbers);
    if (!numbers)
        return fx_fail(FX_STATUS_MEMORY, "synchronize", "out of memory");
    fxi_state_numbers(x, numbers, n);
    fx_status status = exchange(d, FX_DTYPE_F64, numbers, n, root);
    if (status == FX_OK)
        status = fxi_state_numbers_set(x, numbers, n, false);
    fxi_free(numbers);
    return status;
}

void *fx_dist_model(void *model)
{
    return model;
}

void *fx_dist_synchronize(fx_dist *d, void *x, int root)
{
    fx_status status = fxi_dist_check("synchronize", d, root);
    if (status == FX_OK && !x)
        status = fx_fail(FX_STATUS_ARGUMENT, "synchronize", "the object is NULL");
    if (status != FX_OK)
        return fx_error_array(status);
    if (d->group.size == 1 || fx_is_error(x))
        return x;
    arrays a = {0};
    const fx_tree_walker how = {.op = "synchronize", .meet = find_own, .user = &a};
    status = fx_tree_walk(&how, &x);
    if (status == FX_OK && !a.no_memory)
        fx_visit(x, note, &a);
    status = status != FX_OK ? status
             : a.no_memory   ? fx_fail(FX_STATUS_MEMORY, "synchronize", "out of memory")
                             : FX_OK;
    if (status == FX_OK)
        status = compare(d, &a, root);
    if (status == FX_OK && a.n > 0)
        status = send_arrays(d, &a, root);
    if (status == FX_OK)
        status = send_numbers(d, x, root);
    done(&a);
    return status == FX_OK ? x : fx_error_array(status);
}

double fx_dist_synchronize_number(fx_dist *d, double x, int root)
{
    double y = x;
    if (fxi_dist_check("synchronize", d, root) != FX_OK || d->group.size == 1)
        return x;
    return exchange(d, FX_DTYPE_F64, &y, 1, root) == FX_OK ? y : x;
}
