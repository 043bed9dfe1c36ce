/* model_text.c: checks whether a notation is enough to make a model again: see model_text.h. */
#include "model_text.h"
#include "tree_text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 512 };

/* Equal after rounding to Float32, because Flux stores some numbers as Float32. */
static bool same_number(double a, double b)
{
    return (float)a == (float)b || (isnan(a) && isnan(b));
}

static bool same_field(const fx_field *field, const void *a, const void *b)
{
    const char *x = (const char *)a + field->offset, *y = (const char *)b + field->offset;
    switch (field->kind) {
    case FX_FIELD_NUMBER:
        return same_number(*(const double *)(const void *)x, *(const double *)(const void *)y);
    case FX_FIELD_FLOAT:
        return same_number(*(const float *)(const void *)x, *(const float *)(const void *)y);
    case FX_FIELD_INTEGER:
        return *(const int64_t *)(const void *)x == *(const int64_t *)(const void *)y;
    case FX_FIELD_INT:
        return *(const int *)(const void *)x == *(const int *)(const void *)y;
    case FX_FIELD_FLAG:
        return *(const bool *)(const void *)x == *(const bool *)(const void *)y;
    default: /* shown by the text, or compared by the walk */
        return true;
    }
}

typedef struct difference {
    char *what; /* receives a description of at most `size` bytes */
    size_t size;
    bool found;
} difference;

static fx_walk compare(const fx_spot *at, void *user)
{
    difference *d = user;
    void *a = at->objects[0], *b = at->objects[1];
    const fx_type *type = a ? fx_type_of(a) : NULL;
    if (!a || !b || fx_is_array(a) || fx_type_of(b) != type || (type->flags & FX_TYPE_FUNCTION))
        return FX_WALK_PASS;
    for (int i = 0; i < type->nfields && !d->found; i++)
        if (!same_field(&type->fields[i], a, b)) {
            snprintf(d->what, d->size, "Flux's notation cannot express %s of %s",
                     type->fields[i].name, type->name);
            d->found = true;
        }
    return d->found ? FX_WALK_STOP : FX_WALK_ENTER;
}

/* TEXT_ALL if all settings are equal; otherwise describes the first difference in `what`. Requires
 * equal texts. */
static text_worth compare_settings(void *a, void *b, char *what, size_t size)
{
    void *const both[] = {a, b};
    difference d = {.what = what, .size = size};
    const fx_tree_walker how = {.op = "save", .trees = 2, .meet = compare, .user = &d};
    if (fx_tree_walk(&how, both) != FX_OK)
        return TEXT_NO_MEMORY;
    return d.found ? TEXT_MOST : TEXT_ALL;
}

typedef struct path_list {
    char *text;
    size_t n, capacity;
    bool failed;
} path_list;

static void put_path(path_list *l, const char *path, const fx_array *x)
{
    char line[PATH_BYTES + 256];
    size_t n = (size_t)snprintf(line, sizeof line, "%.*s", PATH_BYTES, path);
    for (int k = 0; k < fx_ndims(x); k++)
        n += (size_t)snprintf(line + n, sizeof line - n, " %lld", (long long)fx_size(x, k));
    line[n++] = '\n';
    if (l->n + n + 1 > l->capacity) {
        const size_t capacity = 2 * l->capacity + sizeof line;
        char *more = realloc(l->text, capacity);
        l->failed = l->failed || !more;
        l->text = more ? more : l->text;
        l->capacity = more ? capacity : l->capacity;
    }
    if (!l->failed) {
        memcpy(l->text + l->n, line, n);
        l->n += n;
    }
}

static void visit_path(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)trainable;
    put_path(user, path, x);
}

/* TEXT_ALL if the distinct arrays have the same paths and sizes. They do not if the model shares an
 * array, because the text makes an array for each use. */
static text_worth compare_arrays(void *a, void *b)
{
    path_list l = {0}, m = {0};
    const fx_status before = fx_error_status();
    fx_visit(a, visit_path, &l);
    fx_visit(b, visit_path, &m);
    const bool failed = l.failed || m.failed || fx_error_status() != before;
    const bool same = l.n == m.n && (l.n == 0 || memcmp(l.text, m.text, l.n) == 0);
    free(l.text);
    free(m.text);
    return failed ? TEXT_NO_MEMORY : same ? TEXT_ALL : TEXT_USELESS;
}

text_worth model_text_worth(void *model, const char *text, char *what, size_t size)
{
    FX_SCOPE;
    const fx_status before = fx_error_status();
    void *again = fx_parse_model(text);
    if (fx_is_error(again) && fx_array_status(again) == FX_STATUS_MEMORY)
        return TEXT_NO_MEMORY;
    if (fx_is_error(again)) {
        const fx_error why = before == FX_OK ? fx_error_take() : (fx_error){0};
        snprintf(what, size, "its notation, %.200s, cannot be read back: %.*s", text,
                 (int)strcspn(why.message, ";"), why.message);
        return TEXT_USELESS;
    }
    char *second = text_of(again, fx_summary);
    if (!second)
        return TEXT_NO_MEMORY;
    const bool same_text = strcmp(text, second) == 0;
    free(second);
    if (!same_text) {
        snprintf(what, size, "its notation, %.200s, changes when it is read back", text);
        return TEXT_USELESS;
    }
    const text_worth arrays = compare_arrays(model, again);
    if (arrays == TEXT_USELESS)
        snprintf(what, size, "Flux's notation cannot express which of its arrays are shared");
    return arrays == TEXT_ALL ? compare_settings(model, again, what, size) : arrays;
}
