/* entries.c: lists the arrays of objects under the names of their paths: see entries.h.
 *
 * A file may have a million names: for many look-ups there is fxi_entries_sorted, since
 * fxi_entries_find compares one name after the other.
 */
#include "entries.h"
#include "bytes.h"
#include "memory.h"
#include "reads.h"

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
    const char *name; /* of the whole object; may be "" */
    int64_t arrays;   /* number of paths to arrays so far */
} walking;

static fx_walk stop(walking *w, fx_status status)
{
    w->e->status = status;
    return FX_WALK_STOP;
}

/* Counts paths, not arrays: an array has one name for each path to it, and shared objects can give
 * more paths than any file can hold. */
static fx_walk count_array(const fx_spot *at, void *user)
{
    walking *w = user;
    void *x = at->objects[0];
    if (fx_has_children(x) && at->depth >= FXI_IO_MAX_DEPTH) {
        char path[MAX_NAME];
        fx_spot_path(at, w->e->naming, path, sizeof path);
        return stop(w, fx_fail(FX_STATUS_UNSUPPORTED, w->e->op,
                               "%s%s%s: objects are nested more than %d levels deep", w->name,
                               *w->name ? "." : "", path, (int)FXI_IO_MAX_DEPTH));
    }
    if (fx_has_children(x))
        return FX_WALK_ENTER;
    if (!x || !fx_is_array(x))
        return FX_WALK_PASS;
    if (++w->arrays + w->e->n > FXI_IO_MAX_ARRAYS)
        return stop(w,
                    fx_fail(FX_STATUS_UNSUPPORTED, w->e->op,
                            "%s%sthere are more than %d names of arrays: an array that several "
                            "objects share has one name for each path to it; BSON stores it once",
                            w->name, *w->name ? ": " : "", (int)FXI_IO_MAX_ARRAYS));
    return FX_WALK_TAKE;
}

static fx_walk add_array(const fx_spot *at, void *user)
{
    const walking *w = user;
    char path[MAX_NAME];
    void *x = at->objects[0];
    if (fx_has_children(x))
        return FX_WALK_ENTER;
    if (!x || !fx_is_array(x))
        return FX_WALK_PASS;
    const size_t before = (size_t)snprintf(path, sizeof path, "%s", w->name);
    const size_t dot = before > 0 && before < sizeof path && at->parent;
    if (before >= sizeof path ||
        before + dot +
                fx_spot_path(at, w->e->naming, path + before + dot, sizeof path - before - dot) >=
            sizeof path)
        return stop((walking *)user,
                    fx_fail(FX_STATUS_UNSUPPORTED, w->e->op,
                            "the name of an array is longer than %d bytes", (int)MAX_NAME - 1));
    if (dot)
        path[before] = path[before + 1] ? '.' : 0;
    if (fxi_entries_add(w->e, path, x) != FX_OK)
        return FX_WALK_STOP;
    w->e->items[w->e->n - 1].owner = at->parent ? fx_type_of(at->parent->objects[0]) : NULL;
    return FX_WALK_TAKE;
}

fx_status fxi_entries_walk(fxi_entries *e, const char *name, void *object)
{
    walking w = {.e = e, .name = name ? name : ""};
    if (e->status != FX_OK)
        return e->status;
    if (!object)
        return e->status = fx_fail(FX_STATUS_ARGUMENT, e->op, "the object%s%s is NULL",
                                   *w.name ? " " : "", w.name);
    if (!fx_is_array(object) && fx_is_error(object))
        return e->status = fxi_status_of_error(object);
    fx_tree_walker how = {.op = e->op, .every_path = true, .user = &w};
    fx_walk (*const passes[])(const fx_spot *, void *) = {count_array, add_array};
    for (int i = 0; i < 2 && e->status == FX_OK; i++) {
        how.meet = passes[i];
        const fx_status status = fx_tree_walk(&how, &object);
        if (e->status == FX_OK)
            e->status = status;
    }
    return e->status;
}

/* ---- the list as a whole --------------------------------------------------------------------- */

int fxi_entry_by_name(const void *a, const void *b)
{
    return strcmp((*(const fxi_entry *const *)a)->name, (*(const fxi_entry *const *)b)->name);
}

const fxi_entry **fxi_entries_sorted(fxi_entries *e)
{
    const fxi_entry **order = fxi_calloc((size_t)e->n + 1, sizeof *order);
    if (!order) {
        no_memory(e);
        return NULL;
    }
    for (int32_t i = 0; i < e->n; i++)
        order[i] = &e->items[i];
    qsort(order, (size_t)e->n, sizeof *order, fxi_entry_by_name);
    return order;
}

fx_status fxi_entries_unique(fxi_entries *e)
{
    const fxi_entry **order = e->status == FX_OK ? fxi_entries_sorted(e) : NULL;
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
    void *tuple = both ? fx_named_tuple_from(e->n, (const char *const *)both, both + e->n) : NULL;
    fxi_free(both);
    return tuple ? tuple : fx_error_array(e->status);
}

void fxi_entries_remove(fxi_entries *e, int32_t i)
{
    fxi_free(e->items[i].name);
    memmove(e->items + i, e->items + i + 1, (size_t)(e->n - i - 1) * sizeof *e->items);
    e->n--;
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
