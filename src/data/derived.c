/* derived.c: the derived data sets: functions of observations, views, windows and joins.
 *
 * Each kind answers two questions: how many observations it has, and which they are for an array of
 * indices. A selection is a graph of operations on index arrays, so the data stay on their device.
 * Three selections read the indices. A join needs them to find the data set of each observation. A
 * view without a list counts how many of the indices that it leaves out are below each index. A
 * single window may be the final one, which may be shorter. Functions may be called again for the
 * same observations: nothing is cached.
 */
#include "observations.h"

#include <cflux/mlutils.h>
#include <string.h>

#include "error.h"
#include "memory.h"
#include "object_types.h"

/* ---- mapobs ---------------------------------------------------------------------------------- */

typedef struct mapped {
    fxi_derived of;
    fx_obs_fn f;
    void *user;
    fx_map_fn each; /* instead of f: called for every array */
} mapped;

static void *call(const mapped *m, void *inner)
{
    void *y = m->f ? m->f(inner, m->user) : fxi_fmap(m->each, inner);
    return y ? y
             : fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "mapobs", "the function returned NULL"));
}

static void *get_mapped(fxi_derived *self, fx_array *idx)
{
    return call((const mapped *)self, fxi_obs_get(self->data, idx));
}

static const fxi_derived_kind mapped_kind = {.get = get_mapped, .functions = true};

static void describe_inner(const void *self, fx_text *text, const char *before, const char *after)
{
    char inner[300];
    fx_summary(((const fxi_derived *)self)->data, inner, sizeof inner);
    fx_text_add(text, "%s%s%s", before, inner, after);
}

static void describe_mapped(const void *self, fx_text *text)
{
    describe_inner(self, text, "mapobs(f, ", ")");
}

#define DATA                                                                                       \
    {                                                                                              \
        "data", offsetof(fxi_derived, data), FX_FIELD_CHILD, false                                 \
    }
#define DERIVED(T, NAME, DESCRIBE, ...)                                                            \
    static const fx_field T##_fields[] = {__VA_ARGS__};                                            \
    static T T##_error;                                                                            \
    static const fx_type T##_type = {.fxi_size = sizeof(fx_type),                                  \
                                     .name = NAME,                                                 \
                                     .size = sizeof(T),                                            \
                                     .fields = T##_fields,                                         \
                                     .nfields = sizeof T##_fields / sizeof *T##_fields,            \
                                     .describe = DESCRIBE,                                         \
                                     .error = &T##_error,                                          \
                                     .flags = FX_TYPE_ONE_LINE | FX_TYPE_INTERNAL}
DERIVED(mapped, "MappedData", describe_mapped, DATA);

static void *make_mapped(const mapped *init)
{
    int64_t n;
    if (!init->f && !init->each)
        fx_fail(FX_STATUS_ARGUMENT, "mapobs", "the function is NULL");
    else if (fxi_obs_check("mapobs", init->of.data, &n) == FX_OK)
        return fxi_new(&mapped_type, init);
    return fx_error_object(&mapped_type);
}

void *fx_mapobs_with(fx_obs_fn f, void *user, void *data)
{
    return make_mapped(
        &(const mapped){.of = {.kind = &mapped_kind, .data = data}, .f = f, .user = user});
}

void *fxi_mapobs(fx_map_fn f, void *data)
{
    return make_mapped(&(const mapped){.of = {.kind = &mapped_kind, .data = data}, .each = f});
}

/* ---- views ----------------------------------------------------------------------------------- */

typedef struct view {
    fxi_derived of;
    fx_array *indices; /* Int64, evaluated, on the CPU */
} view;

static int64_t count_view(const fxi_derived *self, int64_t n)
{
    (void)n;
    return fx_length(((const view *)self)->indices);
}

static void *get_view(fxi_derived *self, fx_array *idx)
{
    fx_array *own = ((view *)self)->indices;
    return fxi_obs_get(self->data, fx_gather(own, fx_array_to(fx_array_device(own), idx), 0));
}

static const fxi_derived_kind view_kind = {.count = count_view, .get = get_view};

static void describe_view(const void *self, fx_text *text)
{
    char after[60];
    snprintf(after, sizeof after, ", %lld indices)", (long long)count_view(self, 0));
    describe_inner(self, text, "obsview(", after);
}

DERIVED(view, "ObsView", describe_view, DATA,
        {"indices", offsetof(view, indices), FX_FIELD_CHILD, false});

/* The part of one process. It differs from a view in what it prints. */
typedef view shard;

/* DistributedDataContainer(data, [1, 2, 3]), numbered from 1 as in Julia; of a long list only the
 * ends are printed. */
static void describe_shard(const void *self, fx_text *text)
{
    enum { SHOWN = 20 };
    const view *v = self;
    const int64_t n = count_view(&v->of, 0);
    int64_t ends[2] = {0};
    char after[40 + 12 * SHOWN] = ", [";
    size_t at = strlen(after);
    FXI_SCOPE;
    for (int64_t i = 0; i < n; i++) {
        if (n > SHOWN && i >= 2 && i < n - 2)
            continue;
        fx_read_as(fx_slice(v->indices, 0, i, i + 1), FX_DTYPE_I64, ends, 1);
        at += (size_t)snprintf(after + at, sizeof after - at, "%s%s%lld", i ? ", " : "",
                               n > SHOWN && i == n - 2 ? "…, " : "", (long long)ends[0] + 1);
    }
    snprintf(after + at, sizeof after - at, "])");
    describe_inner(self, text, "Flux.DistributedUtils.DistributedDataContainer(", after);
}

DERIVED(shard, "DistributedDataContainer", describe_shard, DATA,
        {"indices", offsetof(view, indices), FX_FIELD_CHILD, false});

void *fxi_obs_shard(void *data, int64_t first, int64_t end)
{
    const view init = {.of = {.kind = &view_kind, .data = data},
                       .indices = fx_range_dtype(FX_DTYPE_I64, (double)first, 1, end - first)};
    if (fx_eval(init.indices) != FX_OK)
        return fx_error_array(fx_array_status(init.indices));
    return fxi_new(&shard_type, &init);
}

void *fxi_obs_view_of(void *data, fx_array *indices)
{
    const view init = {.of = {.kind = &view_kind, .data = data}, .indices = indices};
    return fx_is_error(indices) ? (void *)indices : fxi_new(&view_type, &init);
}

void *fxi_obs_view(void *data, int64_t n, const int64_t *indices)
{
    return fxi_obs_view_of(data, fxi_from(FX_DTYPE_I64, indices, 1, &n));
}

static fx_status check_indices(fx_array *idx, int64_t n, int64_t count, const int64_t *indices)
{
    (void)idx;
    for (int64_t i = 0; i < count; i++)
        if (indices[i] < 0 || indices[i] >= n)
            return fx_fail(FX_STATUS_ARGUMENT, "obsview",
                           "index %lld is out of range: the data has %lld observations",
                           (long long)indices[i], (long long)n);
    return FX_OK;
}

void *fx_obsview(void *data, fx_array *idx)
{
    int64_t n;
    fx_status status = fxi_obs_check("obsview", data, &n);
    if (status == FX_OK && (!idx || !fx_is_array(idx)))
        status = fx_fail(FX_STATUS_ARGUMENT, "obsview", "expects an array of indices, got %s",
                         fxi_type_name(idx));
    if (status == FX_OK)
        status = fx_array_status(idx);
    if (status == FX_OK && fx_eltype(idx) != FX_DTYPE_I64 && fx_eltype(idx) != FX_DTYPE_I32 &&
        fx_eltype(idx) != FX_DTYPE_U8)
        status = fx_fail(FX_STATUS_DTYPE, "obsview", "the indices are %s, expected integers",
                         fx_dtype_name(fx_eltype(idx)));
    if (status != FX_OK)
        return fx_error_array(status);
    const int64_t count = fx_length(idx);
    int64_t *indices = fxi_calloc((size_t)count + 1, sizeof *indices);
    if (!indices)
        return fxi_obs_memory("obsview");
    status = fx_read_as(idx, FX_DTYPE_I64, indices, count);
    if (status == FX_OK)
        status = check_indices(idx, n, count, indices);
    void *y = status == FX_OK ? fxi_obs_view(data, count, indices) : fx_error_array(status);
    fxi_free(indices);
    return y;
}

/* ---- views without a list -------------------------------------------------------------------- */
/* The training parts of k folds of n observations have (k−1)·n indices together, too many to
 * store. */

typedef struct rest {
    fxi_derived of;
    fx_array *held; /* Int64, ascending, evaluated; NULL: none */
    int64_t first, end;
} rest;

static int64_t count_held(const rest *r)
{
    return r->held ? fx_length(r->held) : 0;
}

static int64_t count_rest(const fxi_derived *self, int64_t n)
{
    (void)n;
    const rest *r = (const rest *)self;
    return r->end - r->first - count_held(r);
}

/* Replaces n positions by the indices of the data. Position t becomes first + t plus the number of
 * held indices below the result. */
static fx_status find_rest(const rest *r, int64_t n, int64_t *io_at)
{
    FXI_SCOPE;
    const int64_t m = count_held(r), count = count_rest(&r->of, 0);
    const int64_t *held = m > 0 ? fx_data(fx_cpu(r->held)) : NULL;
    if (m > 0 && !held)
        return fx_error_status();
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = io_at[i];
        int64_t from = 0, to = m;
        if (t < 0 || t >= count)
            return fx_fail(FX_STATUS_ARGUMENT, "getobs",
                           "index %lld is out of range: the data has %lld observations",
                           (long long)t, (long long)count);
        while (from < to) {
            const int64_t middle = from + (to - from) / 2;
            if (held[middle] - r->first - middle <= t)
                from = middle + 1;
            else
                to = middle;
        }
        io_at[i] = r->first + t + from;
    }
    return FX_OK;
}

static void *get_rest(fxi_derived *self, fx_array *idx)
{
    const int64_t n = fx_length(idx), sizes[] = {n};
    int64_t *at = fxi_calloc((size_t)n + 1, sizeof *at);
    if (!at)
        return fxi_obs_memory("getobs");
    fx_status status = fx_read_as(idx, FX_DTYPE_I64, at, n);
    if (status == FX_OK)
        status = find_rest((const rest *)self, n, at);
    fx_array *indices = status == FX_OK ? fxi_from(FX_DTYPE_I64, at, fx_ndims(idx) > 0, sizes)
                                        : fx_error_array(status);
    fxi_free(at);
    return fx_is_error(indices) ? (void *)indices : fxi_obs_get(self->data, indices);
}

static const fxi_derived_kind rest_kind = {.count = count_rest, .get = get_rest};

static void describe_rest(const void *self, fx_text *text)
{
    char after[60];
    snprintf(after, sizeof after, ", %lld indices)", (long long)count_rest(self, 0));
    describe_inner(self, text, "obsview(", after);
}

DERIVED(rest, "ObsView", describe_rest, DATA,
        {"held", offsetof(rest, held), FX_FIELD_CHILD, false});

void *fxi_obs_rest(void *data, int64_t first, int64_t end, fx_array *held)
{
    if (held && fx_is_error(held))
        return held;
    return fxi_new(&rest_type, &(const rest){.of = {.kind = &rest_kind, .data = data},
                                             .held = held,
                                             .first = first,
                                             .end = end});
}

/* ---- windows --------------------------------------------------------------------------------- */

typedef struct windows {
    fxi_derived of;
    int64_t size, stride;
    bool partial; /* the last window may be smaller */
    bool batches; /* made by fx_batchview */
} windows;

static int64_t count_windows(const fxi_derived *self, int64_t n)
{
    const windows *w = (const windows *)self;
    const int64_t whole = n < w->size ? 0 : (n - w->size) / w->stride + 1;
    return whole + (w->partial && n > whole * w->stride);
}

/* The number of observations of the window with index idx. */
static int64_t window_size(const windows *w, fx_array *idx)
{
    double k;
    int64_t n;
    if (!w->partial || fx_ndims(idx) > 0 || fxi_obs_check("batchview", w->of.data, &n) != FX_OK ||
        fx_item_get(idx, &k) != FX_OK)
        return w->size;
    const int64_t left = n - (int64_t)k * w->stride;
    return left < 1 || left > w->size ? w->size : left;
}

static void *get_windows(fxi_derived *self, fx_array *idx)
{
    const windows *w = (const windows *)self;
    fx_array *within = fx_range_dtype(FX_DTYPE_I64, 0, 1, window_size(w, idx));
    if (fx_ndims(idx) > 1)
        return fx_error_array(fx_fail(FX_STATUS_SHAPE, "slidingwindow",
                                      "the indices have %d axes, expected 0 or 1", fx_ndims(idx)));
    fx_array *starts = fx_mul(fx_cast(idx, FX_DTYPE_I64), w->stride);
    if (fx_ndims(idx) == 1)
        starts = fx_unsqueeze(starts, 0);
    return fxi_obs_get(self->data, fx_add(within, starts));
}

static const fxi_derived_kind windows_kind = {.count = count_windows, .get = get_windows};

static void describe_windows(const void *self, fx_text *text)
{
    const windows *w = self;
    char after[100];
    if (w->batches)
        snprintf(after, sizeof after, ", %lld)", (long long)w->size);
    else
        snprintf(after, sizeof after, ", %lld, %lld)", (long long)w->size, (long long)w->stride);
    describe_inner(self, text, w->batches ? "batchview(" : "slidingwindow(", after);
}

DERIVED(windows, "Windows", describe_windows, DATA);

static void *make_windows(const char *op, const windows *init)
{
    int64_t n;
    const fx_status status = fxi_obs_check(op, init->of.data, &n);
    if (status != FX_OK)
        return fx_error_array(status);
    if (init->size < 1 && init->batches)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, op,
                                      "batchsize is %lld, expected at least 1",
                                      (long long)init->size));
    if (init->size < 1 || init->stride < 1)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, op,
                                      "size %lld and stride %lld must be positive",
                                      (long long)init->size, (long long)init->stride));
    if (init->size > n && !init->batches)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, op,
                                      "a window of %lld observations is too large for %lld",
                                      (long long)init->size, (long long)n));
    return fxi_new(&windows_type, init);
}

void *fx_slidingwindow(void *data, int64_t size, int64_t stride)
{
    return make_windows("slidingwindow",
                        &(const windows){.of = {.kind = &windows_kind, .data = data},
                                         .size = size,
                                         .stride = stride});
}

void *fx_batchview(void *data, int64_t batchsize, bool partial)
{
    return make_windows("batchview", &(const windows){.of = {.kind = &windows_kind, .data = data},
                                                      .size = batchsize,
                                                      .stride = batchsize,
                                                      .partial = partial,
                                                      .batches = true});
}

int64_t fxi_batchview_size(const void *x)
{
    return fx_is(x, &windows_type) ? ((const windows *)x)->size : 0;
}

/* ---- joins ----------------------------------------------------------------------------------- */

typedef struct joined {
    fxi_derived of; /* data: a tuple of the data sets */
} joined;

/* The data set of observation i; *io_i becomes its index there. NULL if i is out of range. */
static void *owner(void *parts, int64_t *io_i)
{
    for (int64_t k = 0; k < fx_count(parts); k++) {
        const int64_t n = fx_num_obs(fx_child(parts, k));
        if (*io_i >= 0 && *io_i < n)
            return fx_child(parts, k);
        *io_i -= n;
    }
    return NULL;
}

/* The observations at[from … to−1] of one part. */
static void *get_run(void *part, const int64_t *at, int64_t from, int64_t to)
{
    const int64_t n = to - from;
    return fxi_obs_get(part, fxi_from(FX_DTYPE_I64, at + from, 1, &n));
}

/* Gets n observations in runs, each from one part, and joins the runs in order. */
static void *get_runs(void *parts, int64_t n, int64_t *at, void **runs)
{
    int count = 0;
    void *part = NULL;
    for (int64_t i = 0, from = 0; i <= n; i++) {
        const int64_t asked = i < n ? at[i] : 0;
        void *next = i < n ? owner(parts, &at[i]) : NULL;
        if (i < n && !next)
            return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "joinobs",
                                          "index %lld is out of range", (long long)asked));
        if (next == part && i < n)
            continue;
        if (part)
            runs[count++] = get_run(part, at, from, i);
        part = next;
        from = i;
    }
    return count ? fxi_obs_joined(count, runs, true) : get_run(fx_child(parts, 0), at, 0, 0);
}

static void *get_joined(fxi_derived *self, fx_array *idx)
{
    const int64_t n = fx_length(idx);
    int64_t *at = fxi_calloc((size_t)n + 1, sizeof *at);
    void **runs = fxi_calloc((size_t)n + 1, sizeof *runs), *y;
    if (!at || !runs)
        y = fxi_obs_memory("joinobs");
    else if (fx_read_as(idx, FX_DTYPE_I64, at, n) != FX_OK)
        y = fx_error_array(fx_error_status());
    else if (fx_ndims(idx) > 0)
        y = get_runs(self->data, n, at, runs);
    else {
        void *part = owner(self->data, at);
        y = part ? fxi_obs_one(part, at[0])
                 : fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "joinobs",
                                          "there is no observation %lld", (long long)at[0]));
    }
    fxi_free(at);
    fxi_free(runs);
    return y;
}

static const fxi_derived_kind joined_kind = {.get = get_joined, .parts = true};

static void describe_joined(const void *self, fx_text *text)
{
    describe_inner(self, text, "joinobs", "");
}

DERIVED(joined, "JoinedData", describe_joined, DATA);

void *fxi_joinobs(int n, void *const *data)
{
    if (n < 1)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, "joinobs", "needs at least one data set, got %d", n));
    fx_status status = fxi_check_list("joinobs", "data sets", n, data);
    if (status != FX_OK)
        return fx_error_array(status);
    for (int i = 0; i < n; i++) {
        int64_t count;
        status = fxi_obs_check("joinobs", data[i], &count);
        if (status != FX_OK)
            return fx_error_array(status);
    }
    return fxi_new(&joined_type,
                   &(const joined){.of = {.kind = &joined_kind, .data = fxi_tuple(n, data)}});
}

/* ---- all kinds ------------------------------------------------------------------------------- */

fxi_derived *fxi_derived_of(void *data)
{
    static const fx_type *const types[] = {&mapped_type, &view_type,    &rest_type,
                                           &shard_type,  &windows_type, &joined_type};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (data && fx_is(data, types[i]) && data != types[i]->error)
            return data;
    return NULL;
}

/* The derived data set, if it only adds functions or a view: these do not change which arrays hold
 * the observations. NULL for other data. */
static fxi_derived *around(void *data)
{
    return fx_is(data, &mapped_type) || fx_is(data, &view_type) || fx_is(data, &rest_type) ||
                   fx_is(data, &shard_type)
               ? fxi_derived_of(data)
               : NULL;
}

void *fxi_obs_base(void *data)
{
    for (fxi_derived *d; (d = around(data));)
        data = d->data;
    return data;
}

void *fxi_obs_apply(void *data, void *observations)
{
    fxi_derived *d = around(data);
    if (!d)
        return observations;
    void *inner = fxi_obs_apply(d->data, observations);
    return d->kind == &mapped_kind ? call((const mapped *)d, inner) : inner;
}

fx_status fxi_obs_order(void *data, int64_t n, int64_t *io_order)
{
    for (fxi_derived *d; (d = around(data)); data = d->data) {
        if (d->kind == &rest_kind) {
            const fx_status status = find_rest((const rest *)d, n, io_order);
            if (status != FX_OK)
                return status;
        }
        if (d->kind != &view_kind)
            continue;
        const int64_t *indices = fx_data(((view *)d)->indices);
        if (!indices && n > 0)
            return fx_error_status();
        for (int64_t i = 0; i < n; i++)
            io_order[i] = indices[io_order[i]];
    }
    return FX_OK;
}
