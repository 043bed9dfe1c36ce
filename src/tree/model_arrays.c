/* model_arrays.c: the arrays of a whole model as one vector, as a state, in another precision, and
 * taken from another model.
 *
 * A vector and its way back are ordinary operations, so gradients go through both. Loading collects
 * all pairs of arrays before it changes one, and hands them to one commit: all are loaded or none.
 */
#include "identity_map.h"
#include "memory.h"
#include "object_types.h"
#include "tuples.h"

#include <cflux/ops.h>

/* ---- lists of arrays ------------------------------------------------------------------------- */

typedef struct arrays {
    fx_array **items;
    int32_t n, capacity;
    fx_status status;
    const char *op;
} arrays;

static void add_array(arrays *a, fx_array *x)
{
    if (a->status != FX_OK)
        return;
    if (fx_is_error(x))
        a->status = fx_array_status(x);
    else if (!fxi_grow(&a->items, &a->capacity, a->n + 1, sizeof *a->items))
        a->status = fx_fail(FX_STATUS_MEMORY, a->op, "no memory for a list of %d arrays", a->n + 1);
    else
        a->items[a->n++] = x;
}

static void add_trainable(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path;
    if (trainable)
        add_array(user, x);
}

static arrays trainables(const char *op, void *model)
{
    arrays a = {.op = op};
    if (!model || fx_is_error(model))
        a.status =
            model ? fxi_object_status(model) : fx_fail(FX_STATUS_ARGUMENT, op, "there is no model");
    else
        fx_visit(model, add_trainable, &a);
    return a;
}

/* ---- a vector and back ----------------------------------------------------------------------- */

fx_array *fx_destructure(void *model)
{
    FXI_SCOPE;
    arrays a = trainables("destructure", model);
    for (int32_t i = 0; i < a.n && a.status == FX_OK; i++)
        a.items[i] = fx_vec(a.items[i]);
    fx_array *flat = a.status != FX_OK ? fx_error_array(a.status)
                     : a.n             ? fxi_concat(0, a.n, a.items)
                                       : fx_zeros(0);
    fxi_free(a.items);
    return fx_keep(flat);
}

typedef struct pieces {
    fxi_identity_map of; /* array → its piece of the vector */
} pieces;

static fx_array *piece_or_same(fx_array *x, void *user)
{
    const pieces *p = user;
    void *y;
    return fxi_identity_get(&p->of, x, &y) ? y : x;
}

/* Cuts the vector; false when memory is out. */
static bool cut(const arrays *a, fx_array *flat, pieces *out)
{
    int64_t at = 0;
    for (int32_t i = 0; i < a->n; i++) {
        fx_array *x = a->items[i];
        const int64_t n = fx_length(x);
        int64_t dims[FX_MAX_DIMS];
        for (int k = 0; k < fx_ndims(x); k++)
            dims[k] = fx_size(x, k);
        fx_array *y = fxi_reshape(fx_slice(flat, 0, at, at + n), fx_ndims(x), dims);
        if (!fxi_identity_put(&out->of, x, fx_cast(y, fx_eltype(x))))
            return false;
        at += n;
    }
    return true;
}

static fx_status check_vector(const arrays *a, const fx_array *flat)
{
    int64_t n = 0;
    for (int32_t i = 0; i < a->n; i++)
        n += fx_length(a->items[i]);
    if (!flat || fx_is_error(flat))
        return flat ? fx_array_status(flat)
                    : fx_fail(FX_STATUS_ARGUMENT, "restructure", "there is no vector");
    if (fx_ndims(flat) == 1 && fx_length(flat) == n)
        return FX_OK;
    return fx_fail(FX_STATUS_SHAPE, "restructure",
                   "Rebuild expected a vector of length %lld, got %lld%s", (long long)n,
                   (long long)fx_length(flat), fx_ndims(flat) == 1 ? "" : " in other than 1 axis");
}

void *fxi_restructure(void *model, fx_array *flat)
{
    FXI_SCOPE;
    arrays a = trainables("restructure", model);
    if (a.status == FX_OK)
        a.status = check_vector(&a, flat);
    pieces p = {{0}};
    if (a.status == FX_OK && !cut(&a, flat, &p))
        a.status = fx_fail(FX_STATUS_MEMORY, "restructure", "no memory for %d arrays", a.n);
    void *y = a.status == FX_OK ? fx_fmap_with(piece_or_same, &p, model)
                                : fxi_error_object(fx_type_of(model));
    fxi_identity_free(&p.of);
    fxi_free(a.items);
    return fx_keep(y);
}

/* ---- state ----------------------------------------------------------------------------------- */

static void *state_of(void *x, int depth)
{
    if (!x || fx_is_array(x) || depth > FXI_MAX_DEPTH)
        return x;
    void *t = fx_functor(x);
    for (int64_t i = 0; i < fx_count(t); i++)
        fxi_child_set(t, i, state_of(fx_child(t, i), depth + 1));
    return t;
}

void *fx_state(void *model)
{
    FXI_SCOPE;
    if (!model)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "state", "there is no model"));
    return fx_keep(state_of(model, 0));
}

/* ---- loading --------------------------------------------------------------------------------- */

typedef struct loading {
    arrays to, from;
    arrays views, view_sources; /* arrays that may be views of others, and what to load there */
    fxi_identity_map source;    /* of each array that is loaded */
} loading;

static fx_status no_match(const void *dst, const void *src)
{
    char a[200], b[200];
    fx_summary((void *)(uintptr_t)src, a, sizeof a);
    fx_summary((void *)(uintptr_t)dst, b, sizeof b);
    return fx_fail(FX_STATUS_ARGUMENT, "loadmodel",
                   "Tried to load %s into %s but the structures do not match.", a, b);
}

static void size_text(const fx_array *x, char *text, size_t capacity)
{
    size_t n = 0;
    text[0] = 0;
    for (int k = 0; k < fx_ndims(x) && n < capacity; k++)
        n += (size_t)snprintf(text + n, capacity - n, k ? ", %lld" : "%lld",
                              (long long)fx_size(x, k));
}

static bool all_zero(fx_array *x)
{
    return fx_item(fx_all(fx_eq(x, 0))) != 0;
}
static bool same_values(fx_array *a, fx_array *b) /* of the same sizes */
{
    return fx_item(fx_all(fx_eq(a, b))) != 0;
}

static fx_status untied(void)
{
    return fx_fail(FX_STATUS_ARGUMENT, "loadmodel",
                   "Encountered tied destination parameters with untied and mismatched sources.");
}

static fx_status add_pair(arrays *to, arrays *from, fx_array *dst, fx_array *src)
{
    add_array(to, dst);
    add_array(from, src);
    return to->status != FX_OK ? to->status : from->status;
}

static fx_status load_array(loading *l, fx_array *dst, fx_array *src)
{
    bool same = fx_ndims(dst) == fx_ndims(src);
    for (int k = 0; k < fx_ndims(dst) && same; k++)
        same = fx_size(dst, k) == fx_size(src, k);
    if (!same) {
        char a[160], b[160];
        size_text(src, a, sizeof a);
        size_text(dst, b, sizeof b);
        return fx_fail(FX_STATUS_SHAPE, "loadmodel", "Tried to load size (%s) array into size (%s)",
                       a, b);
    }
    void *first;
    if (fxi_identity_get(&l->source, dst, &first)) {
        return first == src || same_values(first, src) ? FX_OK : untied();
    }
    if (!fxi_identity_put(&l->source, dst, src))
        return fx_fail(FX_STATUS_MEMORY, "loadmodel", "no memory to remember what was loaded");
    const bool view = fxi_is_view(dst);
    return add_pair(view ? &l->views : &l->to, view ? &l->view_sources : &l->from, dst,
                    fx_array_to(fx_array_device(dst), fx_cast(src, fx_eltype(dst))));
}

/* A view of an array that is loaded takes its new values from there; any other is loaded itself. */
static fx_status load_views(loading *l)
{
    fx_status status = FX_OK;
    const int32_t n = l->to.n;
    for (int32_t i = 0; i < l->views.n && status == FX_OK; i++) {
        fx_array *view = l->views.items[i], *src = l->view_sources.items[i], *y = NULL;
        for (int32_t k = 0; k < n && !y; k++)
            y = fxi_view_again(view, l->to.items[k], l->from.items[k]);
        status =
            y && !same_values(y, src) ? untied() : add_pair(&l->to, &l->from, view, y ? y : src);
    }
    return status;
}

/* Flux's bias=false, as files and states have it. */
static void *without_false(void *x)
{
    const bool truth =
        x && fx_is_array(x) && !fx_is_error(x) && fx_ndims(x) == 0 && fx_eltype(x) == FX_DTYPE_BOOL;
    return truth && fx_item(x) == 0 ? NULL : x;
}

static fx_status load(loading *l, void *dst, void *src, int depth)
{
    dst = without_false(dst);
    src = without_false(src);
    const bool to_array = dst && fx_is_array(dst), from_array = src && fx_is_array(src);
    if (to_array && from_array)
        return load_array(l, dst, src);
    if (to_array && !src) /* false in Flux: a bias that is not there is one of zeros */
        return load_array(l, dst, fxi_zeros_like(dst));
    if (from_array && !dst && all_zero(src))
        return FX_OK;
    if (to_array || from_array)
        return no_match(dst, src);
    if (!dst || !src || depth > FXI_MAX_DEPTH)
        return FX_OK;
    const int64_t n = fx_count(dst);
    const unsigned leaf = FX_TYPE_FUNCTION | FX_TYPE_LEAF;
    if ((fx_type_of(dst)->flags & leaf) || (fx_type_of(src)->flags & leaf))
        return FX_OK;
    if (fx_count(src) != n)
        return no_match(dst, src);
    fx_status status = FX_OK;
    for (int64_t i = 0; i < n && status == FX_OK; i++)
        status = load(l, fx_child(dst, i), fx_child(src, i), depth + 1);
    return status;
}

static bool is_tuple(const void *x)
{
    return (fx_type_of(x)->flags & FX_TYPE_TUPLE) != 0;
}

/* A list of parameters (Flux.params in a file) goes into a model's trainable arrays one by one. */
static bool is_parameter_list(const void *dst, const void *src)
{
    bool list = !fx_is_array(dst) && !is_tuple(dst) && !fx_is_array(src) && is_tuple(src) &&
                fx_count(src) > 0;
    for (int64_t i = 0; list && i < fx_count(src); i++) {
        const void *x = fx_child(src, i);
        list = x && fx_is_array(x) && !fx_child_name(src, i)[0];
    }
    return list;
}

fx_status fx_loadmodel(void *dst, void *src)
{
    FXI_SCOPE;
    void *const both[] = {dst, src};
    for (int i = 0; i < 2; i++) {
        if (!both[i])
            return fx_fail(FX_STATUS_ARGUMENT, "loadmodel", "there is no %s",
                           i ? "source" : "model");
        if (fx_is_error(both[i]))
            return fxi_object_status(both[i]);
    }
    static const arrays none = {.op = "loadmodel"};
    loading l = {.to = none, .from = none, .views = none, .view_sources = none};
    fx_status status = load(&l, is_parameter_list(dst, src) ? fx_trainables(dst) : dst, src, 0);
    if (status == FX_OK)
        status = load_views(&l);
    if (status == FX_OK)
        status = fxi_commit(l.to.n, l.to.items, l.from.items, NULL, true);
    fxi_identity_free(&l.source);
    fxi_free(l.to.items);
    fxi_free(l.from.items);
    fxi_free(l.views.items);
    fxi_free(l.view_sources.items);
    return status;
}

/* ---- precision ------------------------------------------------------------------------------- */

static const bool real[FX_DTYPE_COUNT] = {
    [FX_DTYPE_F32] = true, [FX_DTYPE_F64] = true, [FX_DTYPE_F16] = true, [FX_DTYPE_BF16] = true};

static fx_array *in_precision(fx_array *x, void *user)
{
    return fx_is_error(x) || !real[fx_eltype(x)] ? x : fx_cast(x, *(const fx_dtype *)user);
}

/* In 16 bits some objects stay in Float32. */
static void *wide_in_precision(void *object, void *user)
{
    fx_dtype wide = FX_DTYPE_F32;
    (void)user;
    return fx_type_of(object)->flags & FX_TYPE_WIDE ? fx_fmap_with(in_precision, &wide, object)
                                                    : NULL;
}

void *fxi_in_precision(fx_dtype type, void *model)
{
    if (!model)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "precision", "there is no model"));
    return fx_fmap_objects(in_precision, fx_dtype_size(type) == 2 ? wide_in_precision : NULL, &type,
                           model);
}
