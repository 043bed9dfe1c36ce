/* loader.c: DataLoader: batches along the last axis, shuffled anew every pass, perhaps prefetched
 * (MLUtils.DataLoader).
 *
 * A pass works on a snapshot of the data taken when it starts, as host memory: later updates of the
 * arrays neither change nor free what worker threads read. Batches are made on the host and moved
 * to .device by the thread that asks for them. Each batch is built in a scope of its own and
 * retained, so that neither scopes opened in the loop's body nor long loops in one scope hold on to
 * old batches.
 *
 * Order: Fisher–Yates with SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), a counter-based generator
 * keyed by the seed and the number of the pass: passes are reproducible one by one and take nothing
 * from the thread's stream.
 *
 * Running passes are in one list of the process. A pass left by `break` is stopped when its loader
 * goes, or when the loop runs again (the same variable, zeroed, starts a new pass): hence a batch
 * must not be copied. A batch whose pass is not in the list any more is refused. The list is not
 * kept in the loader, because walks copy that struct.
 */
#include "batch_pass.h"
#include "lend.h"
#include "observations.h"

#include <cflux/data.h>
#include <cflux/device.h>
#include <pthread.h>
#include <string.h>

static const char *const OP = "dataloader";
enum { MAX_WORKERS = 256 };

typedef struct running {
    fx_loader *loader;
    const fx_batch *home; /* the variable that drives the pass */
    void *data;           /* the snapshot, retained */
    fxi_source *sources;
    void **blocks; /* of the batch being handed over */
    fx_array **arrays;
    void *items; /* the batch handed out, retained here: a loop left by `break` forgets it */
    int narrays;
    int64_t *order;
    int64_t next_batch;
    fxi_pass *pass;
    struct running *next;
} running;

struct fx_loader {
    fx_object base;
    void *data;
    int64_t n, batchsize, workers;
    bool shuffle, drop_partial;
    bool eager; /* a batch's memory is freed when the next is taken, whoever holds its arrays */
    uint64_t seed, passes;
    fx_device *device;
};

static pthread_mutex_t running_lock = PTHREAD_MUTEX_INITIALIZER;
static running *running_list;

/* ---- describing ---- */
static void describe_array(const fx_array *x, fx_text *text)
{
    const int n = fx_ndims(x);
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
    const char *name = fx_child_name(data, 0);
    fx_text_add(text, "%s{", name && *name ? "@NamedTuple" : "Tuple");
    for (int64_t i = 0; i < fx_count(data); i++) {
        name = fx_child_name(data, i);
        fx_text_add(text, "%s%s%s", i ? ", " : "", name ? name : "", name && *name ? "::" : "");
        describe_array(fx_child(data, i), text);
    }
    fx_text_add(text, "}");
}

/* "4-element DataLoader(::Tuple{Matrix{Float32}, Vector{Int64}}, shuffle=true, batchsize=3)" */
static void describe(const void *self, fx_text *text)
{
    const fx_loader *l = self;
    fx_text_add(text, "%lld-element DataLoader(::", (long long)fx_loader_length(l));
    if (l->data)
        describe_data(fxi_obs_plain(l->data), text);
    if (l->shuffle)
        fx_text_add(text, ", shuffle=true");
    if (l->batchsize != 1)
        fx_text_add(text, ", batchsize=%lld", (long long)l->batchsize);
    if (l->drop_partial)
        fx_text_add(text, ", partial=false");
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

static void *move(void *self, fx_device *device);

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
    .flags = FX_TYPE_ONE_LINE,
    .move = move,
};

/* A loader of the same batches in the same order, on the device: gpu(loader). The data stay. */
static void *move(void *self, fx_device *device)
{
    const fx_loader *l = self;
    if (l->device == device)
        return self;
    fx_loader moved = *l;
    moved.device = device;
    return fxi_new(&loader_type, &moved);
}

static fx_status check_args(const fx_loader_args *a, int64_t *out_n)
{
    int arrays;
    const fx_status status = fxi_obs_check(OP, a->data, out_n, &arrays);
    if (status != FX_OK)
        return status;
    if (a->batchsize < 0)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "batchsize is %lld, expected a positive number",
                       (long long)a->batchsize);
    if (a->workers < 0 || a->workers > MAX_WORKERS)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "workers is %d, expected 0 to %d", a->workers,
                       (int)MAX_WORKERS);
    return fx_eval(a->data);
}

fx_loader *fxi_dataloader(const fx_loader_args *given)
{
    fx_loader_args a = {0};
    memcpy(&a, given, given->fxi_size < sizeof a ? given->fxi_size : sizeof a);
    int64_t n;
    if (check_args(&a, &n) != FX_OK)
        return fxi_error_object(&loader_type);
    int64_t batchsize = a.batchsize ? a.batchsize : 1;
    if (n < batchsize) {
        fx_message(1,
                   "Number of observations less than batch-size, decreasing the batch-size to %lld",
                   (long long)n);
        batchsize = n > 0 ? n : 1;
    }
    const fx_loader init = {.data = a.data,
                            .n = n,
                            .batchsize = batchsize,
                            .workers = a.workers,
                            .shuffle = a.shuffle,
                            .drop_partial = a.drop_partial,
                            .seed = a.seed || !a.shuffle ? a.seed : fx_rand_u64(),
                            .device = a.device};
    return fxi_new(&loader_type, &init);
}

fx_loader *fx_cu_iterator(fx_loader *loader)
{
    if (!fx_is(loader, &loader_type) || loader == &error_loader) {
        fx_fail(FX_STATUS_ARGUMENT, "cu_iterator", "takes a DataLoader");
        return fxi_error_object(&loader_type);
    }
    fx_loader eager = *loader;
    eager.device = fx_gpu_device();
    eager.eager = true;
    return fxi_new(&loader_type, &eager);
}

int64_t fx_loader_length(const fx_loader *l)
{
    if (!l || fx_is_error(l) || l->batchsize < 1)
        return 0;
    return l->n / l->batchsize + (!l->drop_partial && l->n % l->batchsize != 0);
}

/* ---- order ---- */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Uniform in [0, bound): the lowest 2^64 mod bound values are drawn again, as they would favour
 * some. */
static uint64_t below(uint64_t bound, uint64_t key, uint64_t *io_counter)
{
    const uint64_t unfair = (0 - bound) % bound;
    uint64_t r;
    do
        r = mix(key + ++*io_counter * 0x9E3779B97F4A7C15u);
    while (r < unfair);
    return r % bound;
}

static int64_t *shuffled(int64_t n, uint64_t seed, uint64_t pass)
{
    int64_t *order = fxi_calloc(n ? (size_t)n : 1, sizeof *order);
    const uint64_t key = mix(mix(seed) + pass);
    uint64_t counter = 0;
    for (int64_t i = 0; order && i < n; i++) {
        const int64_t j = (int64_t)below((uint64_t)i + 1, key, &counter);
        order[i] = order[j];
        order[j] = i;
    }
    return order;
}

/* ---- passes ---- */
static bool concerns(const running *r, const fx_loader *loader, const fx_batch *batch)
{
    return (!loader || r->loader == loader) && (!batch || r->home == batch);
}

/* Takes a pass of that loader and that batch (NULL: any) out of the list. */
static running *unlink_pass(const fx_loader *loader, const fx_batch *batch)
{
    pthread_mutex_lock(&running_lock);
    running **link = &running_list;
    while (*link && !concerns(*link, loader, batch))
        link = &(*link)->next;
    running *found = *link;
    if (found)
        *link = found->next;
    pthread_mutex_unlock(&running_lock);
    return found;
}

static void link_pass(running *r)
{
    pthread_mutex_lock(&running_lock);
    r->next = running_list;
    running_list = r;
    pthread_mutex_unlock(&running_lock);
}

/* The i-th array of a batch; a function of mapobs may have made anything of it. */
static fx_array *array_of(void *items, int64_t i)
{
    if (fx_is_array(items))
        return i == 0 ? items : NULL;
    void *x = i < fx_count(items) ? fx_child(items, i) : NULL;
    return x && fx_is_array(x) ? x : NULL;
}

/* Ends the batch that was handed out before. */
static void drop_items(running *r)
{
    for (int64_t i = 0; r->items && r->loader->eager && array_of(r->items, i); i++)
        fxi_array_give_up(array_of(r->items, i));
    fx_release(r->items);
    r->items = NULL;
}

/* Of a pass that is not in the list. */
static void end_running(running *r)
{
    fxi_pass_stop(r->pass);
    drop_items(r);
    fx_release(r->data);
    fxi_free(r->sources);
    fxi_free(r->blocks);
    fxi_free(r->arrays);
    fxi_free(r->order);
    fxi_free(r);
}

static fx_status fill_sources(running *r)
{
    for (int i = 0; i < r->narrays; i++) {
        fx_array *x = fxi_obs_array(r->data, i);
        const int64_t n = fx_size(x, fx_ndims(x) - 1);
        r->sources[i].bytes = fx_data(x);
        r->sources[i].obs_bytes = n ? (size_t)(fx_length(x) / n) * fx_dtype_size(fx_eltype(x)) : 0;
        if (!r->sources[i].bytes && fx_length(x) > 0)
            return fx_error_status();
    }
    return FX_OK;
}

/* The data as they are now, on the host, out of reach of later updates. */
static fx_status take_snapshot(running *r)
{
    FX_SCOPE;
    int64_t n;
    fx_status status = fx_eval(r->loader->data);
    if (status != FX_OK)
        return status;
    void *copy = fx_to(fx_cpu_device(), fx_snapshot(fxi_obs_plain(r->loader->data)));
    status = fxi_obs_check(OP, copy, &n, &r->narrays);
    if (status != FX_OK)
        return status;
    if (n != r->loader->n)
        return fx_fail(FX_STATUS_STATE, OP, "the data had %lld observations and now has %lld",
                       (long long)r->loader->n, (long long)n);
    r->data = fx_retain(copy);
    return FX_OK;
}

static fx_status prepare(running *r)
{
    fx_loader *l = r->loader;
    fx_status status = take_snapshot(r);
    if (status != FX_OK)
        return status;
    const size_t n = (size_t)r->narrays;
    r->sources = fxi_calloc(n, sizeof *r->sources);
    r->blocks = fxi_calloc(n, sizeof *r->blocks);
    r->arrays = fxi_calloc(n, sizeof *r->arrays);
    r->order = l->shuffle ? shuffled(l->n, l->seed, l->passes) : NULL;
    if (!r->sources || !r->blocks || !r->arrays || (l->shuffle && !r->order))
        return fx_fail(FX_STATUS_MEMORY, OP, "out of memory for a pass over %lld observations",
                       (long long)l->n);
    status = fill_sources(r);
    if (status != FX_OK)
        return status;
    const fxi_pass_spec spec = {.sources = r->sources,
                                .nsources = r->narrays,
                                .n = l->n,
                                .batchsize = l->batchsize,
                                .nbatches = fx_loader_length(l),
                                .order = r->order,
                                .workers = (int)l->workers};
    r->pass = fxi_pass_start(&spec);
    return r->pass ? FX_OK : FX_STATUS_MEMORY;
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
    return r;
}

/* The pass a batch is in, out of the list while it is worked on. */
static running *resume_pass(const fx_loader *l, const fx_batch *batch)
{
    running *r = unlink_pass(l, batch);
    if (!r)
        fx_fail(FX_STATUS_STATE, OP,
                "this batch is another loader's or a copy, or its pass has ended");
    return r;
}

/* ---- batches ---- */
static fx_array *batch_array(const running *r, int i, int64_t count)
{
    const fx_array *whole = fxi_obs_array(r->data, i);
    const int axes = fx_ndims(whole);
    int64_t dims[FX_MAX_DIMS];
    for (int axis = 0; axis < axes; axis++)
        dims[axis] = axis == axes - 1 ? count : fx_size(whole, axis);
    fx_array *x = fxi_lend(fx_eltype(whole), r->blocks[i], axes, dims);
    r->blocks[i] = NULL;
    fx_device *to = r->loader->device;
    return fx_array_to(to ? to : fx_array_device(fxi_obs_array(r->loader->data, i)), x);
}

/* What an eager loader hands out must be its own to free. */
static bool flat(void *items)
{
    int64_t n = 0;
    while (array_of(items, n))
        n++;
    if (fx_is_array(items) || n == fx_count(items))
        return true;
    fx_fail(FX_STATUS_ARGUMENT, "cu_iterator",
            "a batch must be an array, a tuple or a named tuple of arrays");
    return false;
}

static bool hand_over(running *r, fx_batch *batch)
{
    FX_SCOPE;
    batch->size = fxi_pass_batch_size(r->pass, r->next_batch);
    bool good = true;
    for (int i = 0; i < r->narrays; i++) {
        r->arrays[i] = batch_array(r, i, batch->size);
        good = good && !fx_is_error(r->arrays[i]);
    }
    void *items = good ? fxi_obs_rebuild(r->data, r->narrays, r->arrays) : NULL;
    if (items && !fx_is_error(items))
        items = fxi_obs_apply(r->loader->data, items);
    if (!items || fx_is_error(items) || fx_eval(items) != FX_OK ||
        (r->loader->eager && !flat(items)))
        return false;
    batch->items = r->items = fx_retain(items);
    batch->x = array_of(items, 0);
    batch->y = array_of(items, 1);
    batch->index = r->next_batch++;
    batch->fxi_pass = r;
    link_pass(r);
    return true;
}

static bool next_batch(running *r, fx_batch *batch)
{
    if (r->next_batch >= fx_loader_length(r->loader))
        return false;
    if (fxi_pass_take(r->pass, r->blocks) != FX_OK) {
        fx_fail(FX_STATUS_MEMORY, OP, "out of memory for batch %lld", (long long)r->next_batch);
        return false;
    }
    return hand_over(r, batch);
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
        fx_fail(FX_STATUS_ARGUMENT, OP, "not a DataLoader");
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
