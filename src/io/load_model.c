/* load_model.c: copies the arrays of one model from another model or from a state: Flux.loadmodel!.
 *
 * All pairs of arrays are collected first and committed together: all are loaded or none. A pair of
 * objects that was already walked is not walked again, so the cost is proportional to the number of
 * objects even if they are shared.
 *
 * A state has one of two structures: that of fx_state, with the field names of this library, or
 * that of fx_flux_state, with Flux's. fx_state is tried first. If it does not fit, the structure
 * that matches more objects before its first difference is used, and the error reports that
 * difference. A file of arrays holds a state as a list of arrays whose names are paths, in either
 * structure.
 */
#include "array_list.h"
#include "evaluate.h"
#include "identity_map.h"
#include "memory.h"
#include "object_path.h"
#include "object_types.h"
#include "state_numbers.h"
#include "ties.h"

#include <cflux/io.h>
#include <cflux/ops.h>
#include <string.h>

enum { PATH = 400 };

typedef fxi_array_list arrays;

/* A pair of objects that was walked. */
typedef struct met_pair {
    const void *src;
    int32_t next; /* position, from 1, of the next pair with the same destination; 0: none */
} met_pair;

typedef struct loading {
    arrays to, from;
    arrays views, view_sources; /* arrays that may be views of others, and the sources for them */
    fxi_identity_map source;    /* source of each array that is loaded */
    fxi_identity_map first_met; /* object of the destination → its first position in `met` */
    met_pair *met;
    int32_t nmet, met_capacity;
    bool dry;       /* only measure how far the structures agree */
    int64_t walked; /* number of objects and arrays before the first difference */
    char path[PATH];
} loading;

static fx_status no_memory(void)
{
    return fx_fail(FX_STATUS_MEMORY, "loadmodel", "no memory for the list of loaded arrays");
}

static void loading_free(loading *l)
{
    fxi_identity_free(&l->source);
    fxi_identity_free(&l->first_met);
    fxi_free(l->met);
    fxi_free(l->to.items);
    fxi_free(l->from.items);
    fxi_free(l->views.items);
    fxi_free(l->view_sources.items);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Formats ` at "layers.0.bias"`; empty at the top level. */
static const char *location(const loading *l, char text[PATH + 8])
{
    text[0] = 0;
    if (l->path[0])
        snprintf(text, PATH + 8, " at \"%s\"", l->path);
    return text;
}

static fx_status no_match(const loading *l, const void *dst, const void *src)
{
    char a[200], b[200], at[PATH + 8];
    if (l->dry)
        return FX_STATUS_ARGUMENT;
    fx_summary((void *)(uintptr_t)src, a, sizeof a);
    fx_summary((void *)(uintptr_t)dst, b, sizeof b);
    return fx_fail(FX_STATUS_ARGUMENT, "loadmodel",
                   "Tried to load %s into %s%s but the structures do not match.",
                   src ? a : "nothing", dst ? b : "nothing", location(l, at));
}

static void size_text(const fx_array *x, char *text, size_t capacity)
{
    size_t n = 0;
    text[0] = 0;
    for (int k = 0; k < fx_ndims(x) && n < capacity; k++)
        n += (size_t)snprintf(text + n, capacity - n, k ? ", %lld" : "%lld",
                              (long long)fx_size(x, k));
}

static fx_status untied(const loading *l)
{
    char at[PATH + 8];
    return fx_fail(FX_STATUS_ARGUMENT, "loadmodel",
                   "Encountered tied destination parameters with untied and mismatched sources%s.",
                   location(l, at));
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static bool all_zero(fx_array *x)
{
    return fx_item(fx_all(fx_eq(x, 0))) != 0;
}
static bool same_values(fx_array *a, fx_array *b) /* requires equal sizes */
{
    return fx_item(fx_all(fx_eq(a, b))) != 0;
}

static fx_status add_pair(arrays *to, arrays *from, fx_array *dst, fx_array *src)
{
    fxi_array_list_add(to, dst);
    fxi_array_list_add(from, src);
    return to->status != FX_OK ? to->status : from->status;
}

static fx_status load_array(loading *l, fx_array *dst, fx_array *src)
{
    char a[160], b[160], at[PATH + 8];
    void *first;
    if (l->dry)
        return FX_OK;
    if (!fxi_same_sizes(dst, src)) {
        size_text(src, a, sizeof a);
        size_text(dst, b, sizeof b);
        return fx_fail(FX_STATUS_SHAPE, "loadmodel",
                       "Tried to load size (%s) array into size (%s)%s", a, b, location(l, at));
    }
    if (fxi_identity_get(&l->source, dst, &first))
        return first == src || same_values(first, src) ? FX_OK : untied(l);
    if (!fxi_identity_put(&l->source, dst, src))
        return no_memory();
    const bool view = fxi_is_view(dst);
    return add_pair(view ? &l->views : &l->to, view ? &l->view_sources : &l->from, dst,
                    fx_array_to(fx_array_device(dst), fx_cast(src, fx_eltype(dst))));
}

/* A view of a loaded array gets its values through that array; any other view is loaded itself. */
static fx_status load_views(loading *l)
{
    fx_status status = FX_OK;
    const int32_t n = l->to.n;
    l->path[0] = 0;
    for (int32_t i = 0; i < l->views.n && status == FX_OK; i++) {
        fx_array *view = l->views.items[i], *src = l->view_sources.items[i], *y = NULL;
        for (int32_t k = 0; k < n && !y; k++)
            y = fxi_view_again(view, l->to.items[k], l->from.items[k]);
        status =
            y && !same_values(y, src) ? untied(l) : add_pair(&l->to, &l->from, view, y ? y : src);
    }
    return status;
}

/* ---- two trees side by side ------------------------------------------------------------------ */

static bool is_flag(void *x)
{
    return x && fx_is_array(x) && !fx_is_error(x) && fx_ndims(x) == 0 &&
           fx_eltype(x) == FX_DTYPE_BOOL;
}

/* True if src was already walked beside dst; otherwise records the pair. */
static bool walked_before(loading *l, const void *dst, const void *src, fx_status *out)
{
    void *first;
    const bool known = fxi_identity_get(&l->first_met, dst, &first);
    const int32_t head = known ? (int32_t)(intptr_t)first : 0;
    for (int32_t i = head; i; i = l->met[i - 1].next)
        if (l->met[i - 1].src == src)
            return true;
    if (!fxi_grow(&l->met, &l->met_capacity, l->nmet + 1, sizeof *l->met) ||
        !fxi_identity_put(&l->first_met, dst, (void *)(intptr_t)(l->nmet + 1)))
        *out = no_memory();
    else
        l->met[l->nmet++] = (met_pair){src, head};
    return false;
}

static fx_status load(loading *l, void *dst, void *src, int depth);

static fx_status load_child(loading *l, void *dst, void *src, int64_t i, int depth)
{
    const size_t length = strlen(l->path);
    const char *name = fx_child_name(dst, i), *other = fx_child_name(src, i);
    if (*name && *other && strcmp(name, other) != 0)
        return no_match(l, dst, src);
    if (*name || *other)
        snprintf(l->path + length, PATH - length, "%s%s", length ? "." : "", *name ? name : other);
    else
        snprintf(l->path + length, PATH - length, "%s%lld", length ? "." : "", (long long)i);
    const fx_status status = load(l, fx_child(dst, i), fx_child(src, i), depth + 1);
    l->path[length] = 0;
    return status;
}

static bool is_tuple(const void *x)
{
    return !fx_is_array(x) && (fx_type_of(x)->flags & FX_TYPE_TUPLE) != 0;
}

/* True for a layer's padding that is one number per axis in one state, and (before, after) per axis
 * in the other: pad=(1, 1) and pad=1 of Flux. Paddings are options, so their values are not
 * loaded. */
static bool is_padding_of_two_forms(const loading *l, const void *dst, const void *src)
{
    const char *dot = strrchr(l->path, '.');
    const int64_t n = fx_count(dst), m = fx_count(src);
    return strcmp(dot ? dot + 1 : l->path, "pad") == 0 && is_tuple(dst) && is_tuple(src) &&
           (n == 2 * m || m == 2 * n);
}

static fx_status load_object(loading *l, void *dst, void *src, int depth)
{
    const unsigned leaf = FX_TYPE_FUNCTION | FX_TYPE_LEAF;
    fx_status status = FX_OK;
    if ((fx_type_of(dst)->flags & leaf) || (fx_type_of(src)->flags & leaf))
        return FX_OK;
    const int64_t n = fx_count(dst);
    if (is_padding_of_two_forms(l, dst, src))
        return FX_OK;
    if (fx_count(src) != n)
        return no_match(l, dst, src);
    if (walked_before(l, dst, src, &status))
        return FX_OK;
    for (int64_t i = 0; i < n && status == FX_OK; i++)
        status = load_child(l, dst, src, i, depth);
    return status;
}

/* Loads src into dst if at least one of them is an array; the other one may be NULL, a flag or an
 * object. */
static fx_status load_leaf(loading *l, void *dst, void *src)
{
    if (is_flag(dst) && is_flag(src))
        return load_array(l, dst, src);
    if ((is_flag(dst) && !src) ||
        (is_flag(src) && !dst)) /* Flux's `active` field: nothing or a Bool */
        return FX_OK;
    /* Flux's bias=false, in files and in states */
    dst = is_flag(dst) && fx_item(dst) == 0 ? NULL : dst;
    src = is_flag(src) && fx_item(src) == 0 ? NULL : src;
    const bool to_array = dst && fx_is_array(dst), from_array = src && fx_is_array(src);
    if (to_array && from_array)
        return load_array(l, dst, src);
    if (to_array && !src) /* a missing bias means a bias of zeros */
        return load_array(l, dst, fx_zeros_like(dst));
    if ((from_array && !dst && (l->dry || all_zero(src))) || (!from_array && !to_array))
        return FX_OK;
    return no_match(l, dst, src);
}

static fx_status load(loading *l, void *dst, void *src, int depth)
{
    fx_status status = FX_OK;
    if ((dst && fx_is_array(dst)) || (src && fx_is_array(src)))
        status = load_leaf(l, dst, src);
    else if (dst && src && depth <= FXI_MAX_DEPTH)
        status = load_object(l, dst, src, depth);
    l->walked += status == FX_OK;
    return status;
}

/* ---- structure of a state -------------------------------------------------------------------- */

/* Matches a list of parameters (Flux.params in a file), which is loaded into a model's trainable
 * arrays in order. */
static bool is_parameter_list(const void *dst, const void *src)
{
    bool list = !fx_is_array(dst) && !is_tuple(dst) && is_tuple(src) && fx_count(src) > 0;
    for (int64_t i = 0; list && i < fx_count(src); i++) {
        const void *x = fx_child(src, i);
        list = x && fx_is_array(x) && !fx_child_name(src, i)[0];
    }
    return list;
}

/* Measures how far the structures agree. *out: FX_OK if they agree to the end, FX_STATUS_ARGUMENT
 * at a difference (not recorded), or another failure. */
static int64_t same_until(void *dst, void *src, fx_status *out)
{
    loading l = {.dry = true};
    *out = load(&l, dst, src, 0);
    const int64_t walked = l.walked;
    loading_free(&l);
    return walked;
}

/* Returns the model, or its state with Flux's names, whichever has the structure of the source;
 * *out_fits: one of them does. An error object on failure. */
static void *like_source(void *dst, void *src, bool *out_fits)
{
    fx_status own = FX_OK, flux = FX_OK;
    *out_fits = true;
    if (fx_is_array(dst) || !is_tuple(src))
        return dst;
    const int64_t n = same_until(dst, src, &own);
    void *state = own == FX_STATUS_ARGUMENT ? fx_flux_state(dst) : dst;
    if (own != FX_STATUS_ARGUMENT || fx_is_error(state))
        return own == FX_OK || fx_is_error(state) ? state : fx_error_array(own);
    const int64_t m = same_until(state, src, &flux);
    if (flux != FX_OK && flux != FX_STATUS_ARGUMENT)
        return fx_error_array(flux);
    *out_fits = flux == FX_OK;
    return *out_fits || m > n ? state : dst;
}

/* ---- arrays by their paths ------------------------------------------------------------------- */

/* True for named arrays, as a file of arrays has them: "layers.0.weight". */
static bool is_list_of_paths(const void *dst, const void *src)
{
    bool list = !fx_is_array(dst) && !is_tuple(dst) && is_tuple(src) && fx_count(src) > 0;
    for (int64_t i = 0; list && i < fx_count(src); i++) {
        const void *x = fx_child(src, i);
        list = x && fx_is_array(x) && fx_child_name(src, i)[0];
    }
    return list;
}

static fx_array *array_at(void *x, const char *path)
{
    void *found = fxi_object_at(x, path);
    return found && fx_is_array(found) ? found : NULL;
}

static int64_t count_found(void *dst, void *src)
{
    int64_t n = 0;
    for (int64_t i = 0; i < fx_count(src); i++)
        n += array_at(dst, fx_child_name(src, i)) != NULL;
    return n;
}

typedef struct missing {
    const loading *l;
    fx_status status;
} missing;

static void check_source(fx_array *x, const char *path, bool trainable, void *user)
{
    missing *m = user;
    void *unused;
    (void)trainable;
    if (m->status == FX_OK && !fxi_identity_get(&m->l->source, x, &unused))
        m->status = fx_fail(FX_STATUS_ARGUMENT, "loadmodel",
                            "the state has no array for \"%s\" of the model", path);
}

static fx_status load_by_path(loading *l, void *model, void *src)
{
    void *dst = model;
    fx_status status = FX_OK;
    if (count_found(dst, src) < fx_count(src)) {
        void *flux = fx_flux_state(dst);
        if (!fx_is_error(flux) && count_found(flux, src) > count_found(dst, src))
            dst = flux;
    }
    for (int64_t i = 0; i < fx_count(src) && status == FX_OK; i++) {
        const char *name = fx_child_name(src, i);
        fx_array *to = array_at(dst, name);
        if (!to && fxi_is_numbers_name(name))
            continue;
        snprintf(l->path, PATH, "%s", name);
        status = to ? load_leaf(l, to, fx_child(src, i))
                    : fx_fail(FX_STATUS_ARGUMENT, "loadmodel",
                              "the state has an array \"%s\", but the model does not", name);
    }
    missing m = {.l = l, .status = status};
    if (status == FX_OK)
        fx_visit(model, check_source, &m);
    return m.status;
}

/* ---- entry point ----------------------------------------------------------------------------- */

static fx_status load_any(loading *l, void *dst, void *src)
{
    bool fits;
    if (is_parameter_list(dst, src))
        dst = fx_trainables(dst);
    void *to = like_source(dst, src, &fits);
    if (!fits && is_list_of_paths(dst, src))
        return load_by_path(l, dst, src);
    return fx_is_error(to) ? fxi_object_status(to) : load(l, to, src, 0);
}

fx_status fx_loadmodel(void *dst, void *src)
{
    FXI_SCOPE;
    void *const both[] = {dst, src};
    for (int i = 0; i < 2; i++) {
        if (!both[i])
            return fx_fail(FX_STATUS_ARGUMENT, "loadmodel", "the %s is NULL",
                           i ? "source" : "model");
        if (fx_is_error(both[i]))
            return fxi_object_status(both[i]);
    }
    static const arrays none = {.op = "loadmodel"};
    loading l = {.to = none, .from = none, .views = none, .view_sources = none};
    fx_array *before = fxi_numbers_of(none.op, dst);
    fx_array *numbers = before ? fxi_numbers_of(none.op, src) : NULL;
    if (numbers && (fx_is_error(before) || fx_is_error(numbers)))
        return fx_array_status(fx_is_error(before) ? before : numbers);
    fx_status status = load_any(&l, dst, src);
    if (status == FX_OK)
        status = load_views(&l);
    if (status == FX_OK && numbers) /* optimiser states */
        status = fxi_numbers_assign(none.op, dst, numbers);
    if (status == FX_OK) {
        status = fxi_commit(l.to.n, l.to.items, l.from.items, NULL, true);
        if (status != FX_OK && numbers)
            fxi_numbers_assign(none.op, dst, before);
    }
    loading_free(&l);
    return status;
}
