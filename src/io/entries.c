/* entries.c: the arrays of objects under the names of their paths: see entries.h.
 *
 * Looking up goes by a sorted list: files may have a million names.
 */
#include "entries.h"
#include "bytes.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 4096 };

fx_status fxi_status_of_error(const void *object)
{
    const fx_status recorded = fx_error_status();
    return fx_is_array(object) ? fx_array_status(object)
           : recorded != FX_OK ? recorded
                               : FX_STATUS_ARGUMENT;
}

static fx_status no_memory(fxi_entries *e)
{
    return e->status = fx_fail(FX_STATUS_MEMORY, e->op, "no memory for a list of arrays");
}

fx_status fxi_entries_add(fxi_entries *e, const char *name, fx_array *array)
{
    if (e->status != FX_OK)
        return e->status;
    if (fx_is_error(array))
        return e->status = fxi_status_of_error(array);
    if (e->n >= FXI_IO_MAX_ARRAYS)
        return e->status = fx_fail(FX_STATUS_UNSUPPORTED, e->op, "there are more than %d arrays",
                                   (int)FXI_IO_MAX_ARRAYS);
    char *copy = fxi_strdup(name);
    if (!copy || !fxi_grow(&e->items, &e->capacity, e->n + 1, sizeof *e->items)) {
        fxi_free(copy);
        return no_memory(e);
    }
    e->items[e->n++] = (fxi_entry){.name = copy, .array = array};
    return FX_OK;
}

/* ---- walking --------------------------------------------------------------------------------- */

typedef struct walking {
    fxi_entries *e;
    char path[MAX_NAME];
    size_t length;
} walking;

static void walk(walking *w, void *x, const fx_type *owner, int depth);

/* Adds a part to the path, unless it is empty; the length before it. */
static size_t enter(walking *w, const char *part)
{
    const size_t before = w->length;
    if (!*part)
        return before;
    const int n =
        snprintf(w->path + before, sizeof w->path - before, "%s%s", before ? "." : "", part);
    if (n < 0 || before + (size_t)n >= sizeof w->path)
        w->e->status = fx_fail(FX_STATUS_UNSUPPORTED, w->e->op,
                               "the name of an array is longer "
                               "than %d bytes",
                               (int)MAX_NAME - 1);
    else
        w->length = before + (size_t)n;
    return before;
}

static void leave(walking *w, size_t length)
{
    w->length = length;
    w->path[length] = 0;
}

static void walk_list(walking *w, const fx_list *list, const fx_type *owner, int depth)
{
    for (int64_t i = 0; i < list->n && w->e->status == FX_OK; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)i);
        const bool named = list->names && list->names[i];
        const size_t before = enter(w, named ? list->names[i] : number);
        walk(w, list->items[i], owner, depth);
        leave(w, before);
    }
}

static void walk_field(walking *w, char *x, const fx_type *type, const fx_field *f, int depth)
{
    void *at = x + f->offset;
    if (f->kind != FX_FIELD_CHILD && f->kind != FX_FIELD_LIST)
        return;
    /* A tuple's items are its own, not those of a field. */
    const char *name = type->flags & FX_TYPE_TUPLE ? ""
                       : w->e->naming              ? w->e->naming(type, f->name)
                                                   : f->name;
    const size_t before = enter(w, name);
    if (f->kind == FX_FIELD_LIST)
        walk_list(w, at, type, depth);
    else
        walk(w, *(void **)at, type, depth);
    leave(w, before);
}

static void walk(walking *w, void *x, const fx_type *owner, int depth)
{
    if (!x || w->e->status != FX_OK)
        return;
    if (fx_is_array(x)) {
        if (fxi_entries_add(w->e, w->path, x) == FX_OK)
            w->e->items[w->e->n - 1].owner = owner;
        return;
    }
    const fx_type *type = fx_type_of(x);
    if (type->flags & (FX_TYPE_FUNCTION | FX_TYPE_LEAF))
        return;
    if (depth >= FXI_IO_MAX_DEPTH) {
        w->e->status = fx_fail(FX_STATUS_UNSUPPORTED, w->e->op,
                               "%s: objects lie more than %d deep in each other", w->path,
                               (int)FXI_IO_MAX_DEPTH);
        return;
    }
    for (int i = 0; i < type->nfields && w->e->status == FX_OK; i++)
        walk_field(w, x, type, &type->fields[i], depth + 1);
}

fx_status fxi_entries_walk(fxi_entries *e, const char *name, void *object)
{
    walking w = {.e = e};
    if (e->status != FX_OK)
        return e->status;
    if (!object)
        return e->status = fx_fail(FX_STATUS_ARGUMENT, e->op, "there is no object \"%s\"", name);
    if (!fx_is_array(object) && fx_is_error(object))
        return e->status = fxi_status_of_error(object);
    if (name && *name)
        enter(&w, name);
    walk(&w, object, NULL, 0);
    return e->status;
}

/* ---- the list as a whole --------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const fxi_entry *const *)a)->name, (*(const fxi_entry *const *)b)->name);
}

/* Pointers to the entries in the order of their names; NULL, recorded, when memory is out. */
static const fxi_entry **sorted(fxi_entries *e)
{
    const fxi_entry **order = fxi_calloc((size_t)e->n + 1, sizeof *order);
    if (!order) {
        no_memory(e);
        return NULL;
    }
    for (int32_t i = 0; i < e->n; i++)
        order[i] = &e->items[i];
    qsort(order, (size_t)e->n, sizeof *order, by_name);
    return order;
}

fx_status fxi_entries_unique(fxi_entries *e)
{
    const fxi_entry **order = e->status == FX_OK ? sorted(e) : NULL;
    if (order && e->n && !order[0]->name[0])
        e->status = fx_fail(FX_STATUS_ARGUMENT, e->op, "an array has no name");
    for (int32_t i = 1; order && i < e->n && e->status == FX_OK; i++)
        if (strcmp(order[i - 1]->name, order[i]->name) == 0)
            e->status = fx_fail(FX_STATUS_ARGUMENT, e->op, "two arrays would be called \"%s\"",
                                order[i]->name);
    fxi_free((void *)order);
    return e->status;
}

void *fxi_entries_tuple(fxi_entries *e)
{
    void **both = e->status == FX_OK ? fxi_calloc(2 * (size_t)e->n + 1, sizeof *both) : NULL;
    if (!both && e->status == FX_OK)
        no_memory(e);
    for (int32_t i = 0; both && i < e->n; i++) {
        both[i] = e->items[i].name;
        both[e->n + i] = e->items[i].array;
    }
    void *tuple = both ? fxi_named_tuple(e->n, (const char *const *)both, both + e->n) : NULL;
    fxi_free(both);
    return tuple ? tuple : fx_error_array(e->status);
}

const fxi_entry *fxi_entries_find(const fxi_entries *e, const char *name)
{
    for (int32_t i = 0; i < e->n; i++)
        if (strcmp(e->items[i].name, name) == 0)
            return &e->items[i];
    return NULL;
}

void fxi_entries_free(fxi_entries *e)
{
    for (int32_t i = 0; i < e->n; i++)
        fxi_free(e->items[i].name);
    fxi_free(e->items);
    e->items = NULL;
    e->n = e->capacity = 0;
}

static fx_status write_piece(const void *data, size_t bytes, void *out)
{
    return fxi_file_out_write(out, data, bytes);
}

fx_status fxi_write_elements(fxi_file_out *out, fx_array *x)
{
    return fxi_read_pieces(x, write_piece, out);
}

/* ---- taking from a file ---------------------------------------------------------------------- */

static bool belongs(const char *entry, const char *name)
{
    const size_t n = strlen(name);
    return n == 0 || (strncmp(entry, name, n) == 0 && (entry[n] == '.' || entry[n] == 0));
}

fxi_entries fxi_entries_of(const char *op, void *file, const char *name)
{
    fxi_entries e = {.op = op};
    for (int64_t i = 0; i < fx_count(file); i++)
        if (fx_is_array(fx_child(file, i)) && belongs(fx_child_name(file, i), name))
            fxi_entries_add(&e, fx_child_name(file, i), fx_child(file, i));
    return e;
}

void *fxi_entries_below(const char *op, void *file, const char *name)
{
    fxi_entries all = fxi_entries_of(op, file, name), below = {.op = op, .status = all.status};
    const size_t skip = *name ? strlen(name) + 1 : 0;
    for (int32_t i = 0; i < all.n; i++)
        if (strlen(all.items[i].name) > skip)
            fxi_entries_add(&below, all.items[i].name + skip, all.items[i].array);
    const bool none = below.n == 0 && below.status == FX_OK;
    void *tuple = none ? NULL : fxi_entries_tuple(&below);
    fxi_entries_free(&all);
    fxi_entries_free(&below);
    return tuple;
}

/* fx_loadmodel looks at sizes too, but knows no names. */
static fx_status check_size(const char *source, fxi_entries *to, const fxi_entry *key,
                            fx_array *found)
{
    const int n = fx_ndims(found);
    bool same = n == fx_ndims(key->array);
    for (int k = 0; k < n && same; k++)
        same = fx_size(found, k) == fx_size(key->array, k);
    if (same)
        return to->status;
    char theirs[200], ours[200];
    fx_summary(found, theirs, sizeof theirs);
    fx_summary(key->array, ours, sizeof ours);
    return to->status = fx_fail(FX_STATUS_SHAPE, to->op,
                                "%s: the array \"%s\" is a %s there, and a %s in the object",
                                source, key->name, theirs, ours);
}

/* Every array of the object with its source: two tuples for fx_loadmodel, which converts, keeps
 * ties, and changes all or nothing. */
static fx_status load_pairs(const char *source, fxi_entries *to, fxi_entries *from)
{
    const fxi_entry **order = sorted(from);
    void **both = fxi_calloc(2 * (size_t)to->n + 1, sizeof *both);
    if (!order || !both)
        no_memory(to);
    for (int32_t i = 0; to->status == FX_OK && i < to->n; i++) {
        const fxi_entry *key = &to->items[i], *const *found = bsearch(&key, order, (size_t)from->n,
                                                                      sizeof *order, by_name);
        if (!found)
            to->status = fx_fail(FX_STATUS_FORMAT, to->op, "%s: there is no array \"%s\"", source,
                                 key->name);
        both[i] = key->array;
        both[to->n + i] = found ? (*found)->array : NULL;
    }
    for (int32_t i = 0; to->status == FX_OK && i < to->n; i++)
        check_size(source, to, &to->items[i], both[to->n + i]);
    if (to->status == FX_OK)
        to->status = fx_loadmodel(fxi_tuple(to->n, both), fxi_tuple(to->n, both + to->n));
    fxi_free((void *)order);
    fxi_free(both);
    return to->status;
}

/* The first array of `from` that the object has not: `to` has fewer names. */
static fx_status find_left_over(const char *source, fxi_entries *to, const fxi_entries *from)
{
    const fxi_entry **order = sorted(to);
    for (int32_t i = 0; order && i < from->n && to->status == FX_OK; i++) {
        const fxi_entry *key = &from->items[i];
        if (!bsearch(&key, order, (size_t)to->n, sizeof *order, by_name))
            to->status = fx_fail(FX_STATUS_FORMAT, to->op,
                                 "%s: there is an array \"%s\", which the object has not", source,
                                 key->name);
    }
    fxi_free((void *)order);
    return to->status;
}

fx_status fxi_entries_assign(const char *source, fxi_entries *to, fxi_entries *from)
{
    if (to->status == FX_OK)
        to->status = from->status;
    if (to->status == FX_OK && to->n < from->n)
        find_left_over(source, to, from);
    return to->status == FX_OK ? load_pairs(source, to, from) : to->status;
}

fx_status fxi_entries_load(const char *op, const char *path, void *file, const char *name,
                           void *object)
{
    FXI_SCOPE;
    fxi_entries to = {.op = op}, from = fxi_entries_of(op, file, name);
    fxi_entries_walk(&to, name, object);
    fxi_entries_assign(path, &to, &from);
    fxi_entries_free(&to);
    fxi_entries_free(&from);
    return to.status;
}
