/* tuples.c: tuples, named tuples, and access to the children of any object by number or name.
 *
 * A tuple is an object with one list. The children of an object are, in field order, its child
 * fields and the items of its lists; items of a list without names have no name. Numbers, flags and
 * shared functions are not children. Children are borrowed: they live as long as the object.
 */
#include "tuples.h"
#include "check_arguments.h"
#include "error.h"
#include "object_types.h"

#include <stdlib.h>
#include <string.h>

static const fx_field tuple_fields[] = {
    {"items", offsetof(fx_tuple_object, items), FX_FIELD_LIST, false}};
static fx_tuple_object tuple_error;
const fx_type fxi_tuple_type = {.fxi_size = sizeof(fx_type),
                                .name = "Tuple",
                                .size = sizeof(fx_tuple_object),
                                .fields = tuple_fields,
                                .nfields = 1,
                                .error = &tuple_error,
                                .flags = FX_TYPE_TUPLE};

/* ---- making them ----------------------------------------------------------------------------- */

static void *make(const char *op, int n, char **names, void *const *items)
{
    if (fxi_check_list(op, "items", n, items) != FX_OK)
        return fx_error_object(&fxi_tuple_type);
    const fx_tuple_object init = {
        .items = {.n = n, .items = (void **)(uintptr_t)items, .names = names}};
    return fxi_new(&fxi_tuple_type, &init);
}

void *fxi_tuple(int n, void *const *items)
{
    if (items && fxi_check_objects("tuple", 0, n, (const void *const *)items) != FX_OK)
        return fx_error_object(&fxi_tuple_type);
    return make("tuple", n, NULL, items);
}

int fxi_by_name(const void *a, const void *b)
{
    const char *const *const *x = a, *const *const *y = b;
    const int order = strcmp(**x, **y);
    return order ? order : (*x > *y) - (*x < *y);
}

/* Sorts the names, because a file may contain too many to compare every pair. */
int fxi_repeated_name(int n, const char *const *names)
{
    int bad = -1;
    const char *const **sorted = n > 0 ? fxi_calloc((size_t)n, sizeof *sorted) : NULL;
    if (n > 0 && !sorted)
        return -2;
    for (int i = 0; i < n; i++)
        sorted[i] = &names[i];
    if (n > 0)
        qsort((void *)sorted, (size_t)n, sizeof *sorted, fxi_by_name);
    for (int i = 1; i < n && bad < 0; i++)
        if (strcmp(*sorted[i - 1], *sorted[i]) == 0)
            bad = (int)(sorted[i] - names);
    fxi_free((void *)sorted);
    return bad;
}

/* The number of a name that is empty or repeated, −1 if there is none, −2 if out of memory. */
static int bad_name(int n, const char *const *names)
{
    for (int i = 0; i < n; i++)
        if (!names[i] || !names[i][0])
            return i;
    return fxi_repeated_name(n, names);
}

void *fx_named_tuple_from(int n, const char *const *names, void *const *items)
{
    if (fxi_check_list("named_tuple", "names", n, names) != FX_OK)
        return fx_error_object(&fxi_tuple_type);
    const int bad = bad_name(n, names);
    if (bad == -1)
        return make("named_tuple", n, (char **)(uintptr_t)names, items);
    if (bad == -2)
        fx_fail(FX_STATUS_MEMORY, "named_tuple", "no memory for %d names", n);
    else
        fx_fail(FX_STATUS_ARGUMENT, "named_tuple", "name %d, \"%s\", is empty or appears twice",
                bad, names[bad] ? names[bad] : "");
    return fx_error_object(&fxi_tuple_type);
}

void *fxi_named_pairs(int n, const void *const *names_and_objects)
{
    if (n < 0 || n % 2 != 0) {
        fx_fail(FX_STATUS_ARGUMENT, "named_tuple",
                "names and objects must alternate; got %d arguments", n);
        return fx_error_object(&fxi_tuple_type);
    }
    if (fxi_check_list("named_tuple", "names and objects", n, names_and_objects) != FX_OK ||
        fxi_check_pairs("named_tuple", 0, n, names_and_objects) != FX_OK)
        return fx_error_object(&fxi_tuple_type);
    const size_t count = (size_t)n / 2;
    void **both = fxi_calloc(2 * count + 1, sizeof *both);
    if (!both) {
        fx_fail(FX_STATUS_MEMORY, "named_tuple", "no memory for %zu names", count);
        return fx_error_object(&fxi_tuple_type);
    }
    for (size_t i = 0; i < count; i++) {
        both[i] = (void *)(uintptr_t)names_and_objects[2 * i];
        both[count + i] = (void *)(uintptr_t)names_and_objects[2 * i + 1];
    }
    void *t = fx_named_tuple_from(n / 2, (const char *const *)both, both + count);
    fxi_free(both);
    return t;
}

/* ---- children -------------------------------------------------------------------------------- */

int64_t fx_count(const void *container)
{
    const fx_type *type = fxi_type_of(container);
    int64_t n = 0;
    for (int i = 0; type && i < type->nfields; i++)
        n += fxi_field_children(container, &type->fields[i]);
    return n;
}

/* The address of a child, or NULL. *out_name (NULL: not wanted) is the child's name, or "". */
static inline __attribute__((always_inline)) void **find(const void *object, int64_t index,
                                                         const char **out_name)
{
    const fx_type *type = fxi_type_of(object);
    for (int i = 0; type && index >= 0 && i < type->nfields; i++) {
        const fx_field *f = &type->fields[i];
        const int64_t n = fxi_field_children(object, f);
        if (index >= n) {
            index -= n;
            continue;
        }
        const fx_list *list = f->kind == FX_FIELD_LIST ? fxi_field_at(object, f) : NULL;
        const char *name = list ? (list->names ? list->names[index] : NULL) : f->name;
        if (out_name)
            *out_name = name ? name : "";
        return list ? &list->items[index] : fxi_field_at(object, f);
    }
    return NULL;
}

void fxi_child_set(void *object, int64_t i, void *value)
{
    void **at = find(object, i, NULL);
    if (!at || *at == value)
        return;
    void *old = *at;
    *at = fxi_retain(value);
    fx_release(old);
}

void *fxi_child_or_null(const void *object, int64_t i)
{
    void **at = find(object, i, NULL);
    return at ? *at : NULL;
}

void *fx_child(const void *object, int64_t i)
{
    void **at = find(object, i, NULL);
    if (at)
        return *at;
    if (object && fx_is_error(object))
        return fx_error_array(fxi_object_status(object));
    fx_fail(FX_STATUS_ARGUMENT, "child", "%s has %lld children, so there is no child %lld",
            fxi_type_name(object), (long long)fx_count(object), (long long)i);
    return fx_error_array(FX_STATUS_ARGUMENT);
}

const char *fx_child_name(const void *object, int64_t i)
{
    const char *name;
    return find(object, i, &name) ? name : "";
}

void fxi_child_names(const void *object, const char *lead, char *dst, size_t capacity)
{
    enum { MOST = 12 };
    static const char more[] = ", …";
    size_t n = 0;
    int shown = 0;
    const char *name;
    *dst = 0;
    for (int64_t i = 0; find(object, i, &name); i++) {
        if (!*name)
            continue;
        const size_t room = capacity - n;
        const int length = snprintf(dst + n, room, "%s\"%s\"", shown ? ", " : lead, name);
        const bool fits = length >= 0 && (size_t)length + sizeof more <= room;
        if (shown == MOST || !fits) {
            snprintf(dst + n, room, "%s", shown ? more : "");
            return;
        }
        n += (size_t)length;
        shown++;
    }
}

void *fx_child_named(const void *object, const char *name)
{
    const char *other;
    void **at;
    for (int64_t i = 0; name && (at = find(object, i, &other)) != NULL; i++)
        if (strcmp(other, name) == 0)
            return *at;
    if (object && fx_is_error(object))
        return fx_error_array(fxi_object_status(object));
    char names[200];
    fxi_child_names(object, "; it has ", names, sizeof names);
    fx_fail(FX_STATUS_ARGUMENT, "child_named", "%s has no child named \"%s\"%s",
            fxi_type_name(object), name ? name : "", names);
    return fx_error_array(FX_STATUS_ARGUMENT);
}
