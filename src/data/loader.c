/* loader.c: DataLoader: batches along the final axis, optionally shuffled in every pass and
 * prepared in advance by threads (MLUtils.DataLoader).
 *
 * A pass works on a snapshot of the data taken at its start: later updates of the arrays neither
 * change nor free the memory that worker threads read. A batch is collated (collate.c), passed
 * through the functions of mapobs, and moved to .device. With worker threads (ahead.c) a worker
 * does all of this, with one exception: unless .parallel allows other threads, functions of the
 * user and the work after them run in the thread that calls fx_next. Batches that change threads
 * are evaluated and have no history. Each batch is built in its own scope and retained, so neither
 * scopes opened in the loop's body nor a long loop in one scope keep old batches alive.
 *
 * There are two ways to make a batch. If the data are arrays, or functions and views of arrays, a
 * batch is gathered by copying (collate.c). Otherwise, or if .collate stacks or lists single
 * observations, it is selected from a snapshot with the operations of get_obs (`selected`).
 *
 * Order: order.h, keyed by the seed and the number of the pass. So each pass is reproducible by
 * itself and does not use the thread's random stream. Functions of mapobs draw from a stream that
 * is also keyed by the batch number, so a batch is the same in whichever thread it is made.
 *
 * All running passes of the process are in one list. A pass that the program left with `break` is
 * stopped when its loader is freed, or when the loop runs again (the same variable, zeroed, starts
 * a new pass). For this reason a batch must not be copied; a batch whose pass is no longer in the
 * list is refused. The loader does not hold the list because walks copy loader structs. During a
 * fork the list and its queues are locked; the child has no workers and makes the rest of a pass
 * itself.
 */
#include "ahead.h"
#include "collate.h"
#include "handle.h"
#include "object.h"
#include "observations.h"
#include "option_struct.h"
#include "order.h"
#include "random.h"
#include "this_process.h"
#include "thread.h"

#include <cflux/data.h>
#include <cflux/device.h>
#include <cflux/mlutils.h>
#include <string.h>

#include "memory.h"
#include "object_types.h"
#include "reads.h"

static const char *const OP = "dataloader";
enum { MAX_WORKERS = 256 };

typedef struct running {
    fx_loader *loader;
    const fx_batch *home;    /* the program's variable that drives the pass */
    fxi_collation collation; /* n, batchsize and order; the rest only if the data are arrays */
    void *data;              /* otherwise the snapshot, retained */
    fxi_ahead *ahead;
    void *items;   /* the batch handed out, retained so that it can be freed after the loop was left
                      with `break` */
    bool late;     /* functions, and the work after them, run in the thread that calls fx_next */
    uint64_t pass; /* number of the pass in its loader */
    int64_t first; /* the batch with which it began */
    int64_t next_batch;
    struct running *next;
} running;

struct fx_loader {
    fx_object base;
    void *data;
    int64_t n, batchsize, workers;
    int part, parts; /* of fx_loader_part; parts ≥ 1 */
    int64_t base_n;  /* observations of the data without functions and views (fxi_obs_base) */
    bool shuffle, drop_partial, parallel;
    bool single;    /* one observation at a time, without the final axis; batchsize is 1 */
    bool derived;   /* batches are selected, not collated */
    bool functions; /* functions of the program compute the batches */
    fx_collate collate;
    fx_obs_fn collate_with;
    void *collate_user;
    bool buffer; /* the option .buffer */
    bool eager;  /* free a batch's memory when the next is taken, even if the program holds its
                    arrays */
    uint64_t seed, passes;
    int64_t first;     /* the batch with which the next pass begins */
    fx_device *device; /* device for the batches; NULL: the device on which functions leave them */
    fx_map_user_fn each; /* how arrays move to it; NULL: by fx_array_to */
};

static fxi_mutex running_lock = FXI_MUTEX_INIT;
static running *running_list;

/* ---- describing ---- */
static void describe_array(const fx_array *x, fx_text *text)
{
    const int n = fx_ndims(x);
    if (fx_array_device(x) != fx_cpu_device())
        fx_text_add(text, "%s ", fx_device_name(fx_array_device(x)));
    if (n == 1 || n == 2)
        fx_text_add(text, "%s{%s}", n == 1 ? "Vector" : "Matrix", fx_dtype_name(fx_eltype(x)));
    else
        fx_text_add(text, "Array{%s, %d}", fx_dtype_name(fx_eltype(x)), n);
}

static void describe_data(void *data, fx_text *text)
{
    if (fx_is_array(data)) {
        describe_array(data, text);
        return;
    }
    if (fxi_derived_of(data)) {
        char summary[300];
        fx_summary(data, summary, sizeof summary);
        fx_text_add(text, "%s", summary);
        return;
    }
    const char *name = fx_child_name(data, 0);
    fx_text_add(text, "%s{", name && *name ? "@NamedTuple" : "Tuple");
    for (int64_t i = 0; i < fx_count(data); i++) {
        name = fx_child_name(data, i);
        fx_text_add(text, "%s%s%s", i ? ", " : "", name ? name : "", name && *name ? "::" : "");
        describe_data(fx_child(data, i), text);
    }
    fx_text_add(text, "}");
}

/* "4-element DataLoader(::Tuple{Matrix{Float32}, Vector{Int64}}, shuffle=true, batchsize=3)" */
static void describe(const void *self, fx_text *text)
{
    const fx_loader *l = self;
    fx_text_add(text, "%lld-element DataLoader(::", (long long)fx_loader_length(l));
    if (l->data)
        describe_data(fxi_obs_base(l->data), text);
    if (l->shuffle)
        fx_text_add(text, ", shuffle=true");
    if (l->batchsize != 1 || l->single)
        fx_text_add(text, ", batchsize=%lld", l->single ? -1LL : (long long)l->batchsize);
    if (l->drop_partial)
        fx_text_add(text, ", partial=false");
    if (l->parts > 1)
        fx_text_add(text, ", part=%d, parts=%d", l->part, l->parts);
    if (l->collate != FX_COLLATE_OBS && !l->collate_with)
        fx_text_add(text, ", collate=%s", l->collate == FX_COLLATE_BATCH ? "true" : "false");
    if (l->buffer)
        fx_text_add(text, ", buffer=true");
    if (l->parallel)
        fx_text_add(text, ", parallel=true");
    if (l->device)
        fx_text_add(text, ", device=%s", fx_device_name(l->device));
    fx_text_add(text, ")");
}

/* ---- the loader ---- */
static running *unlink_pass(const fx_loader *loader, const fx_batch *batch);
static void end_running(running *r);

static void finish(void *self)
{
    for (running *r; (r = unlink_pass(self, NULL));)
        end_running(r);
}

static void *move(void *self, fx_device *device, fx_map_user_fn each);

static const fx_field fields[] = {{"data", offsetof(fx_loader, data), FX_FIELD_CHILD, false}};
static fx_loader error_loader;
static const fx_type loader_type = {
    .fxi_size = sizeof(fx_type),
    .name = "DataLoader",
    .size = sizeof(fx_loader),
    .fields = fields,
    .nfields = sizeof fields / sizeof *fields,
    .describe = describe,
    .finish = finish,
    .error = &error_loader,
    .flags = FX_TYPE_ONE_LINE | FX_TYPE_INTERNAL,
    .move = move,
};

/* A loader with the same batches in the same order, on the device: gpu(loader). The data are not
 * moved. */
static void *move(void *self, fx_device *device, fx_map_user_fn each)
{
    const fx_loader *l = self;
    if (l->device == device && l->each == each)
        return self;
    fx_loader moved = *l;
    moved.device = device;
    moved.each = each;
    return fxi_new(&loader_type, &moved);
}

static fx_status check_args(const fx_dataloader_args *a, fxi_obs_info *out)
{
    const fx_status status = fxi_obs_inspect(OP, a->data, out);
    if (status != FX_OK)
        return status;
    if (a->batchsize == 0 || a->batchsize < -1)
        return fx_fail(
            FX_STATUS_ARGUMENT, OP,
            "batchsize is %lld, expected a positive number, or -1 for single observations",
            (long long)a->batchsize);
    if (a->batchsize < 0 && (a->collate != FX_COLLATE_OBS || a->collate_with))
        return fx_fail(FX_STATUS_ARGUMENT, OP,
                       "collate makes batches, but batchsize = -1 gives single observations");
    if (a->workers < FX_WORKERS_AUTO || a->workers > MAX_WORKERS)
        return fx_fail(FX_STATUS_ARGUMENT, OP,
                       "workers is %d, expected 0 to %d, or FX_WORKERS_AUTO", a->workers,
                       (int)MAX_WORKERS);
    if (a->parallel && a->workers == 0)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "parallel needs workers, but workers is 0");
    if ((unsigned)a->collate > FX_COLLATE_BATCH)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "collate is %d, expected an FX_COLLATE_ constant",
                       (int)a->collate);
    return fx_eval(a->data);
}

static bool is_mapped(void *data)
{
    return fxi_obs_base(data) != data;
}

/* The size of batches of n observations: `asked` (−1: 1), or n with a warning if n is less. */
static int64_t batchsize_of(int64_t asked, int64_t n)
{
    if (asked < 0 || n >= asked)
        return asked < 0 ? 1 : asked;
    fx_message(1, "Number of observations less than batch-size, decreasing the batch-size to %lld",
               (long long)n);
    return n > 0 ? n : 1;
}

fx_loader *fxi_dataloader(const fx_dataloader_args *given)
{
    FXI_TAKE_OPTIONS(fx_dataloader_args, FXI_DATALOADER_ARGS, a, OP, given);
    fxi_obs_info info, base = {0};
    if (!a_ok || check_args(&a, &info) != FX_OK ||
        fxi_obs_inspect(OP, fxi_obs_base(a.data), &base) != FX_OK)
        return fx_error_object(&loader_type);
    const bool functions = info.functions || a.collate_with, draws = a.shuffle || functions;
    const fx_loader init = {.data = a.data,
                            .n = info.n,
                            .base_n = base.n,
                            .batchsize = batchsize_of(a.batchsize, info.n),
                            .single = a.batchsize < 0,
                            .workers = a.workers,
                            .parts = 1,
                            .shuffle = a.shuffle,
                            .drop_partial = !a.partial,
                            .parallel = a.parallel,
                            .collate = a.collate,
                            .collate_with = a.collate_with,
                            .collate_user = a.collate_user,
                            .derived =
                                base.derived || a.collate != FX_COLLATE_OBS || a.collate_with,
                            .functions = functions,
                            .buffer = a.buffer,
                            .eager = a.buffer,
                            .seed = a.seed != FX_DRAWN ? a.seed
                                    : draws            ? fx_rand_u64()
                                                       : 0,
                            .device = a.device};
    return fxi_new(&loader_type, &init);
}

fx_loader *fx_eachobs(void *data)
{
    return fx_dataloader(data, .batchsize = -1);
}

int64_t fx_batchsize(const void *loader)
{
    if (!fx_is(loader, &loader_type))
        return fxi_batchview_size(loader);
    const fx_loader *l = loader;
    return l->single ? -1 : l->batchsize;
}

fx_loader *fx_cu_iterator(fx_loader *loader)
{
    if (!fx_is(loader, &loader_type) || loader == &error_loader) {
        fx_fail(FX_STATUS_ARGUMENT, "cu_iterator", "expects a DataLoader, got %s",
                fxi_type_name(loader));
        return fx_error_object(&loader_type);
    }
    fx_loader eager = *loader;
    eager.device = fx_gpu_device();
    eager.each = NULL;
    eager.eager = true;
    return fxi_new(&loader_type, &eager);
}

fx_loader *fx_loader_part(fx_loader *loader, int part, int parts)
{
    static const char name[] = "loader_part";
    const bool good = fx_is(loader, &loader_type) && loader != &error_loader;
    if (!good)
        fx_fail(FX_STATUS_ARGUMENT, name, "expects a DataLoader, got %s", fxi_type_name(loader));
    else if (loader->parts > 1)
        fx_fail(FX_STATUS_ARGUMENT, name, "the loader is already part %d of %d", loader->part,
                loader->parts);
    else if (part < 0 || part >= parts)
        fx_fail(FX_STATUS_ARGUMENT, name, "part %d of %d, expected a part from 0 to %d", part,
                parts, parts - 1);
    else {
        fx_loader divided = *loader;
        divided.part = part;
        divided.parts = parts;
        return fxi_new(&loader_type, &divided);
    }
    return fx_error_object(&loader_type);
}

int64_t fx_loader_length(const fx_loader *l)
{
    if (!l || fx_is_error(l) || l->batchsize < 1)
        return 0;
    return l->n / l->batchsize + (!l->drop_partial && l->n % l->batchsize != 0);
}

/* ---- passes ---- */
static bool concerns(const running *r, const fx_loader *loader, const fx_batch *batch)
{
    return (!loader || r->loader == loader) && (!batch || r->home == batch);
}

/* Removes the pass of this loader and batch (NULL: any) from the list and returns it. */
static running *unlink_pass(const fx_loader *loader, const fx_batch *batch)
{
    fxi_mutex_lock(&running_lock);
    running **link = &running_list;
    while (*link && !concerns(*link, loader, batch))
        link = &(*link)->next;
    running *found = *link;
    if (found)
        *link = found->next;
    fxi_mutex_unlock(&running_lock);
    return found;
}

static void link_pass(running *r)
{
    fxi_mutex_lock(&running_lock);
    r->next = running_list;
    running_list = r;
    fxi_mutex_unlock(&running_lock);
}

/* The i-th array of a batch. Checks the type, because a function of mapobs may return any object.
 */
static fx_array *array_of(void *items, int64_t i)
{
    if (fx_is_array(items))
        return i == 0 ? items : NULL;
    void *x = i < fx_count(items) ? fx_child(items, i) : NULL;
    return x && fx_is_array(x) ? x : NULL;
}

static bool is_called(void *items, int64_t i, const char *name)
{
    return !fx_is_array(items) && strcmp(fx_child_name(items, i), name) == 0;
}

/* The index of the array with this name. If no array has it: the first that does not have the other
 * name and is not `taken`. */
static int64_t index_of(void *items, const char *name, const char *other, int64_t taken)
{
    int64_t first = -1;
    const int64_t n = fx_is_array(items) ? 1 : fx_count(items);
    for (int64_t i = 0; i < n; i++) {
        if (is_called(items, i, name))
            return i;
        if (first < 0 && i != taken && !is_called(items, i, other))
            first = i;
    }
    return first;
}

static void give_up(void *x, void *unused)
{
    (void)unused;
    if (fx_is_array(x))
        fxi_array_give_up(x);
}

static void hand_out(void *x, void *unused)
{
    (void)unused;
    if (fx_is_array(x))
        fxi_hand_out(x);
}

/* Releases the latest batch handed out. */
static void drop_items(running *r)
{
    if (r->items && r->loader->eager)
        fxi_obs_each(r->items, give_up, NULL);
    fxi_release_because(r->items, "when fx_next moved to the next batch, or its pass ended");
    r->items = NULL;
}

/* Requires that the pass is not in the list. */
static void end_running(running *r)
{
    fxi_ahead_stop(r->ahead);
    drop_items(r);
    fxi_collation_close(&r->collation);
    fx_release(r->data);
    fxi_free(r);
}

/* ---- forks ---- */
static void before_fork(void)
{
    fxi_mutex_lock(&running_lock);
    for (running *r = running_list; r; r = r->next)
        fxi_ahead_freeze(r->ahead);
}

static void after_fork(void (*each)(fxi_ahead *))
{
    for (running *r = running_list; r; r = r->next)
        each(r->ahead);
    fxi_mutex_unlock(&running_lock);
}

static void in_parent(void)
{
    after_fork(fxi_ahead_thaw);
}

static void in_child(void)
{
    after_fork(fxi_ahead_alone);
}

static bool forks_handled;
static void handle_forks(void)
{
    forks_handled = fxi_process_on_fork(before_fork, in_parent, in_child);
}

/* ---- batches ---- */

/* An eager loader may only hand out arrays whose memory it can free. */
static void only_array(void *x, void *io_good)
{
    *(bool *)io_good = *(bool *)io_good && fx_is_array(x);
}

static bool only_arrays(const fx_loader *l, void *items)
{
    bool good = true;
    fxi_obs_each(items, only_array, &good);
    if (!good)
        fx_fail(FX_STATUS_ARGUMENT, l->buffer ? OP : "cu_iterator",
                "%sa batch must be an array, a tuple or a named tuple of arrays",
                l->buffer ? "with .buffer " : "");
    return good;
}

static fx_array *forget_history(fx_array *x, void *unused)
{
    (void)unused;
    fxi_array_cut(x);
    return x;
}

/* Evaluates a batch; its arrays are constants from now on. NULL on failure (recorded). */
static void *settle(void *items)
{
    if (!items || fx_is_error(items) || fx_eval(items) != FX_OK)
        return NULL;
    items = fx_fmap_with(forget_history, NULL, items);
    return fx_is_error(items) ? NULL : items;
}

/* Selects the observations of batch k from the snapshot and combines them as the option .collate
 * requests. */
static void *select_batch(const running *r, int64_t k)
{
    const fx_loader *l = r->loader;
    const fxi_collation *c = &r->collation;
    const int64_t size = fxi_collation_size(c, k), start = fxi_collation_start(c, k);
    int64_t *asked = fxi_calloc((size_t)size + 1, sizeof *asked);
    void **list = fxi_calloc((size_t)size + 1, sizeof *list), *items;
    for (int64_t i = 0; asked && i < size; i++)
        asked[i] = c->order ? c->order[start + i] : start + i;
    if (!asked || !list)
        items = fxi_obs_memory(OP);
    else if (l->single)
        items = fxi_obs_one(r->data, asked[0]);
    else if (l->collate == FX_COLLATE_OBS && !l->collate_with)
        items = fxi_obs_get(r->data, fxi_from(FX_DTYPE_I64, asked, 1, &size));
    else {
        for (int64_t i = 0; i < size; i++)
            list[i] = fxi_obs_one(r->data, asked[i]);
        items = fxi_tuple((int)size, list);
        if (l->collate_with)
            items = settle(items) ? l->collate_with(items, l->collate_user) : NULL;
        else if (l->collate == FX_COLLATE_BATCH)
            items = fx_batchobs(items);
    }
    fxi_free(asked);
    fxi_free(list);
    return items;
}

/* The key of the random numbers of a batch. The parts of a batch (fx_loader_part) have different
 * keys. */
static uint64_t key_of_batch(const running *r, int64_t k)
{
    const fx_loader *l = r->loader;
    const uint64_t key = fxi_mix(fxi_mix(fxi_mix(l->seed) + r->pass) + (uint64_t)k);
    return l->part ? fxi_mix(key + (uint64_t)l->part) : key;
}

/* select_batch with the random numbers of this batch. */
static void *selected(const running *r, int64_t k)
{
    const fxi_random_state before = fxi_random_enter(key_of_batch(r, k));
    void *items = select_batch(r, k);
    fxi_random_leave(before);
    if (!items && fx_error_status() == FX_OK)
        fx_fail(FX_STATUS_ARGUMENT, OP, "the function .collate_with returned NULL");
    return settle(items);
}

static void *without_final_axis(void *x, void *unused)
{
    (void)unused;
    return fx_squeeze(x, fx_axes_of(1, &(int64_t){fx_ndims(x) - 1}));
}

/* Gathers a batch of arrays, before the functions. */
static void *gathered(const running *r, int64_t k)
{
    void *items = fxi_collate(&r->collation, k);
    if (items && r->loader->single)
        items = fxi_obs_map(items, without_final_axis, NULL);
    return settle(items);
}

static void *apply_functions(const running *r, int64_t k, void *items)
{
    const fxi_random_state before = fxi_random_enter(key_of_batch(r, k));
    items = fxi_obs_apply(r->loader->data, items);
    fxi_random_leave(before);
    return settle(items);
}

static fx_array *to_device(fx_array *x, void *device)
{
    return fx_array_to(device, x);
}

/* Processes a batch after collation. NULL on failure (recorded). */
static void *complete(const running *r, int64_t k, void *items)
{
    const fx_loader *l = r->loader;
    if (l->derived)
        items = selected(r, k);
    else if (is_mapped(l->data))
        items = apply_functions(r, k, items);
    if (items && l->device)
        items = settle(fx_fmap_with(l->each ? l->each : to_device, l->device, items));
    return items && (!l->eager || only_arrays(l, items)) ? items : NULL;
}

/* Makes the pass's batch number i, or the part of the work that a worker may do; retained. */
static void *make(void *user, int64_t i)
{
    FXI_OPEN_AT(FXI_SCOPE_INHERIT, NULL, 0);
    const running *r = user;
    const int64_t k = r->first + i;
    void *items = r->loader->derived ? r->data : gathered(r, k);
    if (items && !r->late)
        items = complete(r, k, items);
    return fx_retain(items);
}

/* Does the work that a worker left to the thread that calls fx_next. Takes over the reference. */
static void *finish_late(const running *r, int64_t k, void *items)
{
    FXI_OPEN_AT(FXI_SCOPE_INHERIT, NULL, 0);
    void *done = fx_retain(complete(r, k, items));
    fx_release(items);
    return done;
}

/* ---- passes ---- */

/* Default: one thread with .parallel, or if batches without functions are copied to a device with
 * its own memory; otherwise none. */
static int threads_of(const running *r)
{
    const fx_loader *l = r->loader;
    bool moves = false;
    for (int i = 0; l->device && i < r->collation.nsources; i++)
        moves = moves || (fxi_own_memory(l->device) && r->collation.sources[i].to != l->device);
    return !forks_handled                  ? 0
           : l->workers != FX_WORKERS_AUTO ? (int)l->workers
                                           : l->parallel || (moves && !r->late);
}

/* Shuffles the observations, and replaces positions in views by positions in the viewed arrays. */
static fx_status prepare_order(running *r)
{
    const fx_loader *l = r->loader;
    const bool views = !l->derived && is_mapped(l->data);
    if (!l->shuffle && !views)
        return FX_OK;
    int64_t *order = l->shuffle ? fxi_shuffled(l->n, l->seed, l->passes)
                                : fxi_calloc((size_t)l->n + 1, sizeof *order);
    if (!order)
        return fx_fail(FX_STATUS_MEMORY, OP, "out of memory for a pass over %lld observations",
                       (long long)l->n);
    for (int64_t i = 0; i < l->n && !l->shuffle; i++)
        order[i] = i;
    r->collation.order = order;
    return views ? fxi_obs_order(l->data, l->n, order) : FX_OK;
}

static fx_status prepare_data(running *r)
{
    const fx_loader *l = r->loader;
    if (!l->derived)
        return fxi_collation_open(&r->collation, fxi_obs_base(l->data), l->functions || !l->device);
    FXI_SCOPE;
    const fx_status status = fx_eval(l->data);
    void *copy = status == FX_OK ? fxi_snapshot(l->data) : NULL;
    if (!copy || fx_is_error(copy))
        return status != FX_OK ? status : fx_error_status();
    r->data = fx_retain(copy);
    return FX_OK;
}

static fx_status prepare(running *r)
{
    static fxi_once once = FXI_ONCE_INIT;
    const fx_loader *l = r->loader;
    fxi_call_once(&once, handle_forks);
    r->pass = l->passes;
    r->first = r->next_batch = l->first;
    r->late = l->functions && !l->parallel;
    r->collation = (fxi_collation){.n = l->n,
                                   .batchsize = l->batchsize,
                                   .part = l->part,
                                   .parts = l->parts,
                                   .own = l->eager,
                                   .data_n = l->base_n};
    fx_status status = prepare_order(r);
    if (status == FX_OK)
        status = prepare_data(r);
    if (status != FX_OK)
        return status;
    const fxi_ahead_spec spec = {.make = make,
                                 .drop = fx_release,
                                 .user = r,
                                 .count = fx_loader_length(l) - r->first,
                                 .threads = threads_of(r)};
    r->ahead = fxi_ahead_start(&spec);
    return r->ahead ? FX_OK : fx_error_status();
}

static running *start_pass(fx_loader *l, const fx_batch *home)
{
    for (running *abandoned; (abandoned = unlink_pass(l, home));)
        end_running(abandoned);
    running *r = fxi_calloc(1, sizeof *r);
    if (!r) {
        fx_fail(FX_STATUS_MEMORY, OP, "out of memory");
        return NULL;
    }
    *r = (running){.loader = l, .home = home};
    if (prepare(r) != FX_OK) {
        end_running(r);
        return NULL;
    }
    l->passes++;
    l->first = 0;
    return r;
}

/* Removes the pass of a batch from the list while it is in use. */
static running *resume_pass(const fx_loader *l, const fx_batch *batch)
{
    running *r = unlink_pass(l, batch);
    if (!r)
        fx_fail(FX_STATUS_STATE, OP,
                "this batch belongs to another loader, is a copy, or its pass has ended");
    return r;
}

static bool next_batch(running *r, fx_batch *batch)
{
    const int64_t k = r->next_batch++;
    if (k >= fx_loader_length(r->loader))
        return false;
    void *items = fxi_ahead_take(r->ahead);
    if (items && r->late)
        items = finish_late(r, k, items);
    if (!items)
        return false;
    fxi_hand_out(items);
    fxi_obs_each(items, hand_out, NULL);
    const int64_t x = index_of(items, "x", "y", -1), y = index_of(items, "y", "x", x);
    *batch = (fx_batch){.x = x < 0 ? NULL : array_of(items, x),
                        .y = y < 0 ? NULL : array_of(items, y),
                        .items = items,
                        .index = k,
                        .size = fxi_collation_size(&r->collation, k),
                        .total = fxi_collation_total(&r->collation, k),
                        .fxi_pass = r};
    r->items = items;
    link_pass(r);
    return true;
}

fx_loader_position fx_loader_tell(const fx_loader *l, const fx_batch *batch)
{
    if (!l || !fx_is(l, &loader_type))
        return (fx_loader_position){0};
    fx_loader_position at = {.seed = l->seed, .pass = l->passes, .batch = l->first};
    running *r = batch && batch->fxi_pass ? unlink_pass(l, batch) : NULL;
    if (r) {
        const bool over = r->next_batch == fx_loader_length(l);
        at.pass = r->pass + over;
        at.batch = over ? 0 : r->next_batch;
        link_pass(r);
    }
    return at;
}

fx_status fx_loader_seek(fx_loader *l, fx_loader_position to)
{
    if (!l || !fx_is(l, &loader_type) || l == &error_loader)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "expects a DataLoader, got %s", fxi_type_name(l));
    if (to.batch < 0 || to.batch > fx_loader_length(l))
        return fx_fail(FX_STATUS_ARGUMENT, OP, "there is no batch %lld: a pass has %lld batches",
                       (long long)to.batch, (long long)fx_loader_length(l));
    l->seed = to.seed;
    l->passes = to.pass;
    l->first = to.batch;
    return FX_OK;
}

bool fx_next(fx_loader *loader, fx_batch *batch)
{
    if (!batch || !loader) {
        fx_fail(FX_STATUS_ARGUMENT, OP, "the %s is NULL", batch ? "loader" : "batch");
        return false;
    }
    if (fx_is_error(loader)) {
        fx_batch_end(batch);
        return false;
    }
    if (!fx_is(loader, &loader_type)) {
        fx_fail(FX_STATUS_ARGUMENT, OP, "expects a DataLoader, got %s", fxi_type_name(loader));
        return false;
    }
    running *r = batch->fxi_pass ? resume_pass(loader, batch) : start_pass(loader, batch);
    memset(batch, 0, sizeof *batch);
    if (!r)
        return false;
    drop_items(r);
    if (next_batch(r, batch))
        return true;
    end_running(r);
    memset(batch, 0, sizeof *batch);
    return false;
}

void fx_batch_end(fx_batch *batch)
{
    if (!batch)
        return;
    running *r = batch->fxi_pass ? unlink_pass(NULL, batch) : NULL;
    if (r)
        end_running(r);
    memset(batch, 0, sizeof *batch);
}
