/* collectives.c: collective operations on arrays and objects, and the optimiser that averages
 * gradients. */
#include "dist_group.h"
#include "dist_update.h"

#include "context.h"
#include "error.h"
#include "evaluate.h"
#include "divided_batch.h"
#include "memory.h"
#include "option_struct.h"
#include "primitives.h"
#include "update_items.h"

fx_status fxi_dist_check(const char *op, const fx_dist *d, int root)
{
    if (!d)
        return fx_fail(FX_STATUS_ARGUMENT, op,
                       "the group is NULL. Call fx_dist_init first, then fx_dist_backend");
    if (root < 0 || root >= d->group.size)
        return fx_fail(FX_STATUS_ARGUMENT, op, "the root is %d, expected a rank below %d", root,
                       (int)d->group.size);
    return FX_OK;
}

static bool known(fx_reduce fold)
{
    return fold == FX_REDUCE_SUM || fold == FX_REDUCE_MAX || fold == FX_REDUCE_MIN ||
           fold == FX_REDUCE_PROD || fold == FX_REDUCE_MEAN;
}

/* Removes the order between the previous operation and the next one. */
static void forget_previous(void)
{
    fxi_context *here = fxi_here();
    if (here->collective)
        fxi_node_release(here->collective);
    here->collective = NULL;
}

/* The next operation must not first repeat a previous one that failed on all members. */
static void forget_failed(fx_dist *d)
{
    fxi_mutex_lock(&d->lock);
    const bool failed = d->told;
    fxi_mutex_unlock(&d->lock);
    if (failed)
        forget_previous();
}

/* A group of one member also gets the checks; the result is then x itself. */
static fx_array *collective(const char *op, fx_dist *d, fx_array *x, fx_collective_kind kind,
                            fx_reduce fold, int root)
{
    fx_status status = fxi_dist_check(op, d, root);
    if (status == FX_OK)
        status = fxi_check_array(op, x);
    if (status == FX_OK && !known(fold))
        status = fx_fail(FX_STATUS_ARGUMENT, op,
                         "the reduction is %d, expected sum, mean, max, min or prod", (int)fold);
    if (status != FX_OK)
        return fx_error_array(status);
    if (d->group.size == 1)
        return x;
    forget_failed(d);
    status = fxi_run_previous_collective(x);
    return status != FX_OK ? fx_error_array(status)
                           : fxi_collective(&(const fx_collective){.communicator = &d->communicator,
                                                                   .kind = kind,
                                                                   .fold = fold,
                                                                   .root = root},
                                            x);
}

fx_array *fx_dist_bcast(fx_dist *d, fx_array *x, int root)
{
    return collective("bcast", d, x, FX_COLLECTIVE_BROADCAST, FX_REDUCE_SUM, root);
}

fx_array *fx_dist_allreduce(fx_dist *d, fx_array *x, fx_reduce fold)
{
    return collective("allreduce", d, x, FX_COLLECTIVE_ALL_REDUCE, fold, 0);
}

fx_array *fx_dist_reduce(fx_dist *d, fx_array *x, fx_reduce fold, int root)
{
    return collective("reduce", d, x, FX_COLLECTIVE_REDUCE, fold, root);
}

/* Broadcasts the array of each member in turn. A single gather operation would be faster, but
 * programs gather rarely. */
fx_array *fx_dist_gather(fx_dist *d, fx_array *x)
{
    fx_status status = fxi_dist_check("gather", d, 0);
    if (status == FX_OK)
        status = fxi_check_array("gather", x);
    if (status == FX_OK && fx_ndims(x) >= FX_MAX_DIMS)
        status = fx_fail(FX_STATUS_SHAPE, "gather", "the array has %d axes, expected fewer than %d",
                         fx_ndims(x), FX_MAX_DIMS);
    fx_array **all = status == FX_OK ? fxi_malloc((size_t)d->group.size * sizeof *all) : NULL;
    if (status == FX_OK && !all)
        status = fx_fail(FX_STATUS_MEMORY, "gather", "out of memory");
    if (status != FX_OK)
        return fx_error_array(status);
    int64_t sizes[FX_MAX_DIMS];
    const int n = fx_ndims(x);
    for (int i = 0; i < n; i++)
        sizes[i] = fx_size(x, i);
    sizes[n] = 1;
    fx_array *one = fxi_reshape(x, n + 1, sizes);
    for (int i = 0; i < d->group.size; i++)
        all[i] = fx_dist_bcast(d, one, i);
    fx_array *y = fxi_concat(n, d->group.size, all);
    fxi_free(all);
    return y;
}

fx_status fx_dist_barrier(fx_dist *d)
{
    FXI_SCOPE;
    const fx_status status = fxi_dist_check("barrier", d, 0);
    return status != FX_OK ? status : fx_eval(fx_dist_allreduce(d, fx_zeros(1), FX_REDUCE_SUM));
}

/* ---- objects --------------------------------------------------------------------------------- */

/* The floating-point arrays of an object, in the order of its walk. */
typedef struct listed {
    fx_array **items;
    int64_t n, capacity, at;
    bool no_memory;
} listed;

static fx_array *list_array(fx_array *x, void *user)
{
    listed *l = user;
    if (!fxi_is_float((int)fx_eltype(x)))
        return x;
    if (l->n == l->capacity) {
        const int64_t more = l->capacity ? 2 * l->capacity : 64;
        fx_array **items = fxi_realloc(l->items, (size_t)more * sizeof *items);
        l->no_memory = l->no_memory || !items;
        if (!items)
            return x;
        l->items = items;
        l->capacity = more;
    }
    l->items[l->n++] = x;
    return x;
}

/* The second walk visits the same arrays in the same order. */
static fx_array *take_array(fx_array *x, void *user)
{
    listed *l = user;
    return fxi_is_float((int)fx_eltype(x)) ? l->items[l->at++] : x;
}

void *fx_dist_average(fx_dist *d, void *x)
{
    fx_status status = fxi_dist_check("dist_average", d, 0);
    if (status == FX_OK && !x)
        status = fx_fail(FX_STATUS_ARGUMENT, "dist_average", "the object is NULL");
    if (status != FX_OK)
        return fx_error_array(status);
    if (d->group.size == 1 || fx_is_error(x))
        return x;
    forget_failed(d);
    /* The first walk lists the arrays, so that they are averaged together; the second one puts the
     * means in their positions. */
    listed l = {.n = 0};
    void *walked = fx_fmap_with(list_array, &l, x);
    if (l.no_memory)
        status = fx_fail(FX_STATUS_MEMORY, "dist_average", "out of memory");
    if (status == FX_OK && !fx_is_error(walked))
        status = fxi_average_arrays(&d->communicator, l.n, l.items);
    void *mean = status != FX_OK       ? fx_error_array(status)
                 : fx_is_error(walked) ? walked
                                       : fx_fmap_with(take_array, &l, x);
    fxi_free((void *)l.items);
    return mean;
}

void fx_dist_refuse(fx_dist *d, fx_status status)
{
    if (!d || d->group.size == 1 || status == FX_OK)
        return;
    const fx_error own = fxi_error_begin();
    fxi_dist_refuse(&d->communicator, status, own.message);
    fxi_error_end(&own);
    forget_previous();
}

/* ---- batch statistics ------------------------------------------------------------------------ */

fx_dist *fx_dist_sync_norms(fx_dist *d)
{
    const fx_communicator *before = fxi_members_set(d ? &d->communicator : NULL);
    return before ? (fx_dist *)(uintptr_t)before->user : NULL;
}

/* ---- the optimiser --------------------------------------------------------------------------- */

fx_rule *fxi_dist_optimiser(fx_dist *d, const fx_dist_optimiser_args *given)
{
    FXI_TAKE_OPTIONS(fx_dist_optimiser_args, FXI_DIST_OPTIMISER_ARGS, a, "dist_optimiser", given);
    if (!a_ok || fxi_dist_check("dist_optimiser", d, 0) != FX_OK)
        return fxi_rule_distributed(NULL, NULL, false);
    return fxi_rule_distributed(&d->communicator, a.rule, a.shard);
}

static fx_walk find_divided(const fx_spot *at, void *user)
{
    bool *found = user;
    *found = *found || fxi_leaf_divided(at->objects[0]);
    return *found ? FX_WALK_STOP : fx_has_children(at->objects[0]) ? FX_WALK_ENTER : FX_WALK_PASS;
}

bool fxi_dist_divided(void *state)
{
    bool found = false;
    const fx_tree_walker how = {.op = "dist_whole", .meet = find_divided, .user = &found};
    fx_tree_walk(&how, &state);
    return found;
}

void *fx_dist_whole(fx_dist *d, void *state)
{
    fx_status status = fxi_dist_check("dist_whole", d, 0);
    if (status == FX_OK && !state)
        status = fx_fail(FX_STATUS_ARGUMENT, "dist_whole", "the state is NULL");
    if (status != FX_OK)
        return fx_error_array(status);
    forget_failed(d);
    return fxi_states_whole(state);
}

fx_status fx_dist_divide(fx_dist *d, void *state, void *whole)
{
    const fx_status status = fxi_dist_check("dist_divide", d, 0);
    if (status == FX_OK && (!state || !whole))
        return fx_fail(FX_STATUS_ARGUMENT, "dist_divide", "a state is NULL");
    return status == FX_OK ? fxi_states_divide(state, whole) : status;
}

fx_status fxi_dist_update(fx_dist *d, const fx_update_args *a, int n, fx_array **io_means)
{
    forget_failed(d);
    return fxi_update_among(&d->communicator, a, n, io_means);
}

void fxi_dist_name_unused(fx_dist *d, const fx_update_args *a)
{
    fxi_update_name_unused(&d->communicator, a);
}

void fxi_dist_note_constant(void *state, void *model, void *gradient)
{
    fxi_update_note_constant(state, model, gradient);
}

fx_status fxi_dist_settle(fx_dist *d, void *state)
{
    forget_failed(d);
    return fxi_states_settle(&d->communicator, state);
}
