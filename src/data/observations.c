/* observations.c: counts, selects and splits the observations of a data set (MLUtils' numobs,
 * getobs, splitobs).
 *
 * The final axis counts observations. Selecting is a lazy gather and splitting a lazy slice, so
 * both are differentiable, and split data share memory with the whole.
 */
#include "observations.h"

#include <cflux/data.h>
#include <cflux/ops.h>
#include <math.h>

#include "memory.h"

static bool is_tuple(const void *data)
{
    const fx_type *type = fx_type_of(data);
    return type && (type->flags & FX_TYPE_TUPLE);
}

/* ---- mapobs ---------------------------------------------------------------------------------- */

typedef struct mapped {
    fx_object base;
    void *data;
    fx_obs_fn f;
    void *user;
    fx_map_fn each; /* instead of f: called for every array */
} mapped;

static void describe(const void *self, fx_text *text)
{
    char inner[300];
    fx_summary(((const mapped *)self)->data, inner, sizeof inner);
    fx_text_add(text, "mapobs(f, %s)", inner);
}

static const fx_field mapped_fields[] = {{"data", offsetof(mapped, data), FX_FIELD_CHILD, false}};
static mapped mapped_error;
static const fx_type mapped_type = {.fxi_size = sizeof(fx_type),
                                    .name = "MappedData",
                                    .size = sizeof(mapped),
                                    .fields = mapped_fields,
                                    .nfields = 1,
                                    .describe = describe,
                                    .error = &mapped_error,
                                    .flags = FX_TYPE_ONE_LINE | FX_TYPE_INTERNAL};

static void *make_mapped(const mapped *init)
{
    int64_t n;
    int arrays;
    if (!init->f && !init->each)
        fx_fail(FX_STATUS_ARGUMENT, "mapobs", "the function is NULL");
    else if (fxi_obs_check("mapobs", init->data, &n, &arrays) == FX_OK)
        return fxi_new(&mapped_type, init);
    return fx_error_object(&mapped_type);
}

void *fx_mapobs_with(fx_obs_fn f, void *user, void *data)
{
    return make_mapped(&(const mapped){.f = f, .user = user, .data = data});
}

void *fxi_mapobs(fx_map_fn f, void *data)
{
    return make_mapped(&(const mapped){.each = f, .data = data});
}

void *fxi_obs_plain(void *data)
{
    while (fx_is(data, &mapped_type) && data != &mapped_error)
        data = ((mapped *)data)->data;
    return data;
}

void *fxi_obs_apply(void *data, void *observations)
{
    if (!fx_is(data, &mapped_type))
        return observations;
    const mapped *m = data;
    void *inner = fxi_obs_apply(m->data, observations);
    void *y = m->f ? m->f(inner, m->user) : fxi_fmap(m->each, inner);
    return y ? y
             : fx_error_array(
                   fx_fail(FX_STATUS_ARGUMENT, "mapobs", "the function returned nothing"));
}

/* ---- checks ---------------------------------------------------------------------------------- */

fx_array *fxi_obs_array(void *data, int i)
{
    data = fxi_obs_plain(data);
    return fx_is_array(data) ? data : fx_child(data, i);
}

/* "x" for a named item, otherwise its position. */
static const char *item_name(const void *data, int64_t i, char *text, size_t capacity)
{
    const char *name = is_tuple(data) ? fx_child_name(data, i) : "";
    if (name && *name)
        return name;
    snprintf(text, capacity, "item %lld", (long long)i);
    return text;
}

static fx_status check_item(const char *op, void *data, int64_t i, void *item, int64_t *io_n)
{
    char own[32], first[32];
    const char *name = item_name(data, i, own, sizeof own);
    if (item && !fx_is_array(item) && is_tuple(item))
        return fx_fail(FX_STATUS_ARGUMENT, op,
                       "%s is a tuple, expected an array: data is one tuple of arrays, such as "
                       "fx_tuple(x, y, z) for fx_tuple(x, fx_tuple(y, z))",
                       name);
    if (!item || !fx_is_array(item))
        return fx_fail(FX_STATUS_ARGUMENT, op, "%s is not an array", name);
    if (fx_is_error(item))
        return fx_array_status(item);
    const int axes = fx_ndims(item);
    if (axes == 0)
        return fx_fail(FX_STATUS_SHAPE, op, "%s has no axes, so it has no observations", name);
    const int64_t n = fx_size(item, axes - 1);
    if (i > 0 && n != *io_n)
        return fx_fail(FX_STATUS_SHAPE, op, "%s has %lld observations, %s has %lld",
                       item_name(data, 0, first, sizeof first), (long long)*io_n, name,
                       (long long)n);
    *io_n = n;
    return FX_OK;
}

fx_status fxi_obs_check(const char *op, void *data, int64_t *out_n, int *out_arrays)
{
    *out_n = 0;
    *out_arrays = 0;
    data = fxi_obs_plain(data);
    if (!data)
        return fx_fail(FX_STATUS_ARGUMENT, op, "the data is NULL");
    if (!fx_is_array(data) && !is_tuple(data))
        return fx_fail(FX_STATUS_ARGUMENT, op,
                       "the data is a %s, expected an array, a tuple or a named tuple of arrays",
                       fx_type_of(data) ? fx_type_of(data)->name
                                        : "value that is not a cflux object");
    const int64_t count = fx_is_array(data) ? 1 : fx_count(data);
    if (count < 1 || count > INT32_MAX)
        return fx_fail(FX_STATUS_ARGUMENT, op, "the data is a tuple of %lld arrays",
                       (long long)count);
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++) {
        const fx_status status =
            check_item(op, data, i, fx_is_array(data) ? data : fx_child(data, i), &n);
        if (status != FX_OK)
            return status;
    }
    *out_n = n;
    *out_arrays = (int)count;
    return FX_OK;
}

void *fxi_obs_rebuild(void *data, int n, fx_array *const *arrays)
{
    if (fx_is_array(data))
        return arrays[0];
    void **items = fxi_calloc((size_t)n, sizeof *items);
    const char **names = fxi_calloc((size_t)n, sizeof *names);
    void *result = NULL;
    if (items && names) {
        for (int i = 0; i < n; i++) {
            items[i] = arrays[i];
            names[i] = fx_child_name(data, i);
        }
        const bool named = names[0] && *names[0];
        result = named ? fx_named_tuple_from(n, names, items) : fxi_tuple(n, items);
    }
    fxi_free(items);
    fxi_free(names);
    return result ? result : fx_error_array(fx_fail(FX_STATUS_MEMORY, "tuple", "out of memory"));
}

int64_t fx_num_obs(void *data)
{
    int64_t n;
    int arrays;
    fxi_obs_check("num_obs", data, &n, &arrays);
    return n;
}

/* The selection for one array; `axis` is its final axis. */
typedef struct selection {
    fx_array *idx; /* gather these; NULL: slice as below */
    int64_t start, stop;
    fx_status failed; /* unless FX_OK, every array becomes this error */
} selection;

static fx_array *select_array(fx_array *x, const selection *s)
{
    const int axis = fx_ndims(x) - 1;
    if (s->failed != FX_OK || axis < 0)
        return fx_error_array(s->failed != FX_OK ? s->failed : FX_STATUS_SHAPE);
    return s->idx ? fx_gather(x, s->idx, axis) : fx_slice(x, axis, s->start, s->stop);
}

/* Applies the selection to every array and keeps the structure of the data. */
static void *select_all(void *data, const selection *s)
{
    if (!data || fx_is_array(data))
        return data ? select_array(data, s) : fx_error_array(s->failed);
    if (!is_tuple(data))
        return fx_error_array(s->failed);
    const int n = (int)fx_count(data);
    fx_array **arrays = fxi_calloc((size_t)n + 1, sizeof *arrays);
    if (!arrays)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, "get_obs", "out of memory"));
    for (int i = 0; i < n; i++) {
        void *item = fx_child(data, i);
        arrays[i] = item && fx_is_array(item) ? select_array(item, s) : fx_error_array(s->failed);
    }
    void *result = fxi_obs_rebuild(data, n, arrays);
    fxi_free(arrays);
    return result;
}

void *fx_get_obs(void *data, fx_array *idx)
{
    selection s = {.idx = idx};
    int64_t n;
    int arrays;
    s.failed = fxi_obs_check("get_obs", data, &n, &arrays);
    if (s.failed == FX_OK && !idx)
        s.failed = fx_fail(FX_STATUS_ARGUMENT, "get_obs", "the indices are NULL");
    void *plain = select_all(fxi_obs_plain(data), &s);
    return s.failed == FX_OK ? fxi_obs_apply(data, plain) : plain;
}

/* Applies the functions of one data set to another. */
static void *mapped_like(void *data, void *plain)
{
    if (!fx_is(data, &mapped_type))
        return plain;
    mapped init = *(mapped *)data;
    init.data = mapped_like(init.data, plain);
    return make_mapped(&init);
}

void *fx_split_obs(void *data, double at)
{
    int64_t n;
    int arrays;
    fx_status failed = fxi_obs_check("split_obs", data, &n, &arrays);
    if (failed == FX_OK && !(at > 0 && at < 1))
        failed = fx_fail(FX_STATUS_ARGUMENT, "split_obs",
                         "at is %g, expected a number between 0 and 1", at);
    const int64_t cut = failed == FX_OK ? (int64_t)floor(at * (double)n) : 0;
    const selection parts[] = {{.stop = cut, .failed = failed},
                               {.start = cut, .stop = n, .failed = failed}};
    void *both[2];
    for (int i = 0; i < 2; i++) {
        both[i] = select_all(fxi_obs_plain(data), &parts[i]);
        both[i] = failed == FX_OK ? mapped_like(data, both[i]) : both[i];
    }
    return fxi_tuple(2, both);
}
