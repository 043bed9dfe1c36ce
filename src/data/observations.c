/* observations.c: checks data sets, and counts, selects and splits their observations (MLUtils'
 * numobs, getobs, splitobs).
 *
 * The final axis of an array counts observations. Selecting is a lazy gather and splitting a lazy
 * slice, so both are differentiable, and split data share memory with the whole.
 */
#include "observations.h"

#include <cflux/mlutils.h>
#include <math.h>
#include <string.h>

#include "identity_map.h"
#include "memory.h"

/* Deeper tuples are refused: the functions here recurse. */
enum { DEEPEST = 100, PATH = 96 };

static bool is_tuple(const void *data)
{
    const fx_type *type = fx_type_of(data);
    return type && (type->flags & FX_TYPE_TUPLE);
}

/* ---- checks ---------------------------------------------------------------------------------- */

typedef struct census {
    const char *op;
    fxi_identity_map seen;
    bool any;
    char first[PATH]; /* path of the first leaf */
    fxi_obs_info info;
} census;

/* "x" for a named item, otherwise its position: "item 1", and "item 1.0" for an item of that
 * item. */
static void path_of(const void *tuple, int64_t i, const char *parent, char out[PATH])
{
    const char *name = fx_child_name(tuple, i);
    if (name && *name)
        snprintf(out, PATH, "%s%s%s", parent, *parent ? "." : "", name);
    else
        snprintf(out, PATH, "%s%s%lld", parent, *parent ? "." : "item ", (long long)i);
}

static fx_status add_leaf(census *c, const char *path, int64_t n)
{
    if (c->any && n != c->info.n)
        return fx_fail(FX_STATUS_SHAPE, c->op, "%s has %lld observations, %s has %lld", c->first,
                       (long long)c->info.n, path, (long long)n);
    if (!c->any)
        snprintf(c->first, sizeof c->first, "%s", path);
    c->any = true;
    c->info.n = n;
    return FX_OK;
}

static fx_status inspect_array(census *c, const char *path, fx_array *x)
{
    const int axes = fx_ndims(x);
    if (axes == 0)
        return fx_fail(FX_STATUS_SHAPE, c->op, "%s has no axes, so it has no observations",
                       *path ? path : "the array");
    return add_leaf(c, path, fx_size(x, axes - 1));
}

static fx_status inspect_derived(census *c, const char *path, fxi_derived *d)
{
    fxi_obs_info inner = {0};
    fx_status status = FX_OK;
    int64_t n = 0;
    const int64_t parts = d->kind->parts ? fx_count(d->data) : 1;
    c->info.derived = true;
    c->info.functions = c->info.functions || d->kind->functions;
    for (int64_t i = 0; i < parts && status == FX_OK; i++) {
        status = fxi_obs_inspect(c->op, d->kind->parts ? fx_child(d->data, i) : d->data, &inner);
        n += inner.n;
        c->info.functions = c->info.functions || inner.functions;
    }
    if (status != FX_OK)
        return status;
    return add_leaf(c, path, d->kind->count ? d->kind->count(d, n) : n);
}

static fx_status refuse(const census *c, const char *path, const void *x)
{
    const char *kind = !x ? "NULL" : fx_type_of(x) && *path == 0 ? fx_type_of(x)->name : NULL;
    if (*path)
        return fx_fail(FX_STATUS_ARGUMENT, c->op, "%s is not an array", path);
    return fx_fail(FX_STATUS_ARGUMENT, c->op,
                   x ? "the data is a %s, expected an array, a tuple or a named tuple of arrays"
                     : "the data is %s",
                   kind ? kind : "value that is not a cflux object");
}

static fx_status inspect(census *c, const char *path, void *x, int depth)
{
    void *unused;
    if (x && fx_is_error(x))
        return fx_is_array(x) ? fx_array_status(x) : FX_STATUS_ARGUMENT;
    if (x && fx_is_array(x))
        return inspect_array(c, path, x);
    if (x && fxi_derived_of(x)) {
        if (fxi_identity_get(&c->seen, x, &unused))
            return FX_OK;
        return fxi_identity_put(&c->seen, x, NULL)
                   ? inspect_derived(c, path, fxi_derived_of(x))
                   : fx_fail(FX_STATUS_MEMORY, c->op, "out of memory");
    }
    if (!x || !is_tuple(x))
        return refuse(c, path, x);
    if (fx_count(x) < 1 || fx_count(x) > INT32_MAX)
        return fx_fail(FX_STATUS_ARGUMENT, c->op, "%s is a tuple of %lld items, expected 1 to %d",
                       *path ? path : "the data", (long long)fx_count(x), INT32_MAX);
    if (depth >= DEEPEST)
        return fx_fail(FX_STATUS_ARGUMENT, c->op, "the data has tuples nested deeper than %d",
                       (int)DEEPEST);
    if (fxi_identity_get(&c->seen, x, &unused))
        return FX_OK;
    if (!fxi_identity_put(&c->seen, x, NULL))
        return fx_fail(FX_STATUS_MEMORY, c->op, "out of memory");
    fx_status status = FX_OK;
    for (int64_t i = 0; i < fx_count(x) && status == FX_OK; i++) {
        char item[PATH];
        path_of(x, i, path, item);
        status = inspect(c, item, fx_child(x, i), depth + 1);
    }
    return status;
}

fx_status fxi_obs_inspect(const char *op, void *data, fxi_obs_info *out)
{
    census c = {.op = op};
    const fx_status status = inspect(&c, "", data, 0);
    fxi_identity_free(&c.seen);
    *out = status == FX_OK ? c.info : (fxi_obs_info){0};
    return status;
}

fx_status fxi_obs_check(const char *op, void *data, int64_t *out_n)
{
    fxi_obs_info info;
    const fx_status status = fxi_obs_inspect(op, data, &info);
    *out_n = info.n;
    return status;
}

int64_t fx_num_obs(void *data)
{
    int64_t n;
    fxi_obs_check("num_obs", data, &n);
    return n;
}

/* ---- maps ------------------------------------------------------------------------------------ */

typedef struct mapping {
    fxi_identity_map made; /* tuple or leaf → its result */
    fxi_leaf_fn leaf;
    void *user;
} mapping;

void *fxi_obs_memory(const char *op)
{
    return fx_error_array(fx_fail(FX_STATUS_MEMORY, op, "out of memory"));
}

static void *map_any(mapping *m, void *x);

static void *map_tuple(mapping *m, void *x)
{
    const int n = (int)fx_count(x);
    void **items = fxi_calloc((size_t)n, sizeof *items);
    const char **names = fxi_calloc((size_t)n, sizeof *names);
    bool good = items && names, named = false;
    for (int i = 0; i < n && good; i++) {
        names[i] = fx_child_name(x, i);
        named = named || (names[i] && *names[i]);
        items[i] = map_any(m, fx_child(x, i));
        good = items[i] != NULL;
    }
    void *result = !good   ? NULL
                   : named ? fx_named_tuple_from(n, names, items)
                           : fxi_tuple(n, items);
    fxi_free(items);
    fxi_free(names);
    return result;
}

static void *map_any(mapping *m, void *x)
{
    void *y;
    if (!x)
        return NULL;
    if (fxi_identity_get(&m->made, x, &y))
        return y;
    y = is_tuple(x) ? map_tuple(m, x) : m->leaf(x, m->user);
    return y && fxi_identity_put(&m->made, x, y) ? y : NULL;
}

void *fxi_obs_map(void *data, fxi_leaf_fn leaf, void *user)
{
    mapping m = {.leaf = leaf, .user = user};
    void *y = map_any(&m, data);
    fxi_identity_free(&m.made);
    return y                            ? y
           : fx_error_status() != FX_OK ? fx_error_array(fx_error_status())
                                        : fxi_obs_memory("getobs");
}

typedef struct visiting {
    fxi_identity_map seen;
    fxi_leaf_visit_fn visit;
    void *user;
} visiting;

static void visit_any(visiting *v, void *x, int depth)
{
    void *unused;
    if (!x || fxi_identity_get(&v->seen, x, &unused) || !fxi_identity_put(&v->seen, x, NULL))
        return;
    if (!is_tuple(x))
        v->visit(x, v->user);
    else if (depth < DEEPEST)
        for (int64_t i = 0; i < fx_count(x); i++)
            visit_any(v, fx_child(x, i), depth + 1);
}

void fxi_obs_each(void *data, fxi_leaf_visit_fn visit, void *user)
{
    visiting v = {.visit = visit, .user = user};
    visit_any(&v, data, 0);
    fxi_identity_free(&v.seen);
}

/* ---- joins ----------------------------------------------------------------------------------- */

/* A finished join. It is kept because tuples can share parts: few tuples may have very many paths
 * to the same part. */
typedef struct joined {
    struct joined *next, *older; /* lists: of the joins that begin with the same object; of all,
                                    the latest first */
    void *result;
    void *data[];
} joined;
typedef struct joining {
    fxi_identity_map made; /* first object → its latest join */
    joined *newest;
    int n;
    bool along_final;
} joining;

static void *join_level(joining *j, void *const *data, int depth);

static void *join_tuples(joining *j, void *const *data, int depth)
{
    const int count = (int)fx_count(data[0]);
    void **items = fxi_calloc((size_t)count + 1, sizeof *items);
    void **same = fxi_calloc((size_t)j->n, sizeof *same);
    const char **names = fxi_calloc((size_t)count + 1, sizeof *names);
    void *result = items && same && names ? NULL : fxi_obs_memory("batch");
    bool named = false;
    for (int i = 0; i < count && !result; i++) {
        for (int k = 0; k < j->n; k++)
            same[k] = fx_child(data[k], i);
        names[i] = fx_child_name(data[0], i);
        named = named || *names[i];
        items[i] = join_level(j, same, depth + 1);
        result = fx_is_error(items[i]) ? items[i] : NULL;
    }
    if (!result)
        result = named ? fx_named_tuple_from(count, names, items) : fxi_tuple(count, items);
    fxi_free(items);
    fxi_free(same);
    fxi_free(names);
    return result;
}

static bool alike(const void *a, const void *b)
{
    bool same = a && b && fx_is_array(a) == fx_is_array(b) && is_tuple(a) == is_tuple(b) &&
                (fx_is_array(a) || fx_count(a) == fx_count(b));
    for (int64_t i = 0; same && is_tuple(a) && i < fx_count(a); i++)
        same = strcmp(fx_child_name(a, i), fx_child_name(b, i)) == 0;
    return same;
}

static void *join_new(joining *j, void *const *data, int depth)
{
    for (int k = 0; k < j->n; k++) {
        if (data[k] && fx_is_error(data[k]) && fx_is_array(data[k]))
            return data[k];
        if (!alike(data[0], data[k]) || depth > DEEPEST ||
            !(fx_is_array(data[k]) || is_tuple(data[k])))
            return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "batch",
                                          "the observations must be arrays, or tuples of arrays of "
                                          "one structure; number %d differs",
                                          k));
    }
    if (is_tuple(data[0]))
        return join_tuples(j, data, depth);
    const int axis = fx_ndims(data[0]) - j->along_final;
    return j->along_final ? fxi_concat(axis, j->n, (fx_array *const *)data)
                          : fxi_stack(axis, j->n, (fx_array *const *)data);
}

static void *join_level(joining *j, void *const *data, int depth)
{
    const size_t bytes = (size_t)j->n * sizeof *data;
    void *found = NULL;
    if (data[0])
        fxi_identity_get(&j->made, data[0], &found);
    for (joined *old = found; old; old = old->next)
        if (memcmp(old->data, data, bytes) == 0)
            return old->result;
    void *result = join_new(j, data, depth);
    if (fx_is_error(result))
        return result;
    joined *own = fxi_malloc(sizeof *own + bytes);
    if (!own || !fxi_identity_put(&j->made, data[0], own)) {
        fxi_free(own);
        return fxi_obs_memory("batch");
    }
    *own = (joined){.next = found, .older = j->newest, .result = result};
    memcpy(own->data, data, bytes);
    j->newest = own;
    return result;
}

void *fxi_obs_joined(int n, void *const *data, bool along_final)
{
    joining j = {.n = n, .along_final = along_final};
    void *result = join_level(&j, data, 0);
    fxi_identity_free(&j.made);
    while (j.newest) {
        joined *old = j.newest;
        j.newest = old->older;
        fxi_free(old);
    }
    return result;
}

/* ---- selections ------------------------------------------------------------------------------ */

static void *get_leaf(void *leaf, void *idx)
{
    fxi_derived *d = fxi_derived_of(leaf);
    if (d)
        return d->kind->get(d, idx);
    return fx_gather(leaf, fx_array_to(fx_array_device(leaf), idx), fx_ndims(leaf) - 1);
}

void *fxi_obs_get(void *data, fx_array *idx)
{
    return fx_is_error(idx) ? idx : fxi_obs_map(data, get_leaf, idx);
}

void *fxi_obs_one(void *data, int64_t i)
{
    return fxi_obs_get(data, fxi_from(FX_DTYPE_I64, &i, 0, NULL));
}

void *fx_get_obs(void *data, fx_array *idx)
{
    int64_t n;
    const fx_status failed = fxi_obs_check("get_obs", data, &n);
    if (failed != FX_OK)
        return fx_error_array(failed);
    if (!idx)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "get_obs", "the indices are NULL"));
    return fxi_obs_get(data, idx);
}

static void *all_of(void *leaf, void *unused)
{
    (void)unused;
    int64_t n;
    fxi_derived *d = fxi_derived_of(leaf);
    if (!d)
        return leaf;
    return fxi_obs_check("getobs", leaf, &n) == FX_OK
               ? d->kind->get(d, fx_range_dtype(FX_DTYPE_I64, 0, 1, n))
               : NULL;
}

void *fx_getobs(void *data)
{
    int64_t n;
    if (data && fx_is_array(data))
        return data;
    const fx_status failed = fxi_obs_check("getobs", data, &n);
    return failed == FX_OK ? fxi_obs_map(data, all_of, NULL) : fx_error_array(failed);
}

typedef struct range {
    int64_t start, stop;
} range;

static void *range_leaf(void *leaf, void *user)
{
    const range *r = user;
    if (!fxi_derived_of(leaf))
        return fx_slice(leaf, fx_ndims(leaf) - 1, r->start, r->stop);
    const int64_t n = r->stop - r->start;
    int64_t *indices = fxi_calloc((size_t)n + 1, sizeof *indices);
    for (int64_t i = 0; indices && i < n; i++)
        indices[i] = r->start + i;
    void *view = indices ? fxi_obs_view(leaf, n, indices) : fxi_obs_memory("obsview");
    fxi_free(indices);
    return view;
}

void *fxi_obs_range(void *data, int64_t start, int64_t stop)
{
    return fxi_obs_map(data, range_leaf, &(range){start, stop});
}

void *fx_split_obs(void *data, double at)
{
    int64_t n;
    fx_status failed = fxi_obs_check("split_obs", data, &n);
    if (failed == FX_OK && !(at > 0 && at < 1))
        failed = fx_fail(FX_STATUS_ARGUMENT, "split_obs",
                         "at is %g, expected a number between 0 and 1", at);
    const int64_t cut = failed == FX_OK ? (int64_t)floor(at * (double)n) : 0;
    void *both[2];
    for (int i = 0; i < 2; i++)
        both[i] = failed != FX_OK ? fx_error_array(failed)
                                  : fxi_obs_range(data, i ? cut : 0, i ? n : cut);
    return fxi_tuple(2, both);
}
