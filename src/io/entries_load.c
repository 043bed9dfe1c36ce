/* entries_load.c: copies the arrays of a file into an object, matched by name: see entries_load.h.
 */
#include "entries_load.h"
#include "memory.h"
#include "tuples.h"

#include <cflux/io.h>
#include <cflux/tree.h>
#include <stdlib.h>

/* fx_loadmodel would report a wrong size too, but without the name. */
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
                                "%s: the array \"%s\" is a %s, but the object has a %s", source,
                                key->name, theirs, ours);
}

/* Passes every array of the object and its source to fx_loadmodel, as two tuples. fx_loadmodel
 * converts types, keeps ties, and changes all arrays or none. */
static fx_status load_pairs(const char *source, fxi_entries *to, fxi_entries *from)
{
    const fxi_entry **order = fxi_entries_sorted(from);
    void **both = fxi_calloc(2 * (size_t)to->n + 1, sizeof *both);
    if (!order || !both)
        to->status = fx_fail(FX_STATUS_MEMORY, to->op, "no memory for a list of arrays");
    for (int32_t i = 0; to->status == FX_OK && i < to->n; i++) {
        const fxi_entry *key = &to->items[i], *const *found =
                                                  bsearch(&key, order, (size_t)from->n,
                                                          sizeof *order, fxi_entry_by_name);
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

/* Reports the first array of `from` that the object does not have. Call it only if `to` has fewer
 * names. */
static fx_status find_left_over(const char *source, fxi_entries *to, const fxi_entries *from)
{
    const fxi_entry **order = fxi_entries_sorted(to);
    for (int32_t i = 0; order && i < from->n && to->status == FX_OK; i++) {
        const fxi_entry *key = &from->items[i];
        if (!bsearch(&key, order, (size_t)to->n, sizeof *order, fxi_entry_by_name))
            to->status =
                fx_fail(FX_STATUS_FORMAT, to->op,
                        "%s: the array \"%s\" does not exist in the object", source, key->name);
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
    if (to.status == FX_OK && from.status == FX_OK && to.n > 0 && from.n == 0) {
        char names[200];
        fxi_child_names(file, "; the file has ", names, sizeof names);
        to.status =
            fx_fail(FX_STATUS_FORMAT, op, "%s: there is no entry \"%s\"%s", path, name, names);
    }
    fxi_entries_assign(path, &to, &from);
    fxi_entries_free(&to);
    fxi_entries_free(&from);
    return to.status;
}
