/* object_path.c: finds a part of a loaded file by its path: see object_path.h. */
#include "object_path.h"
#include "tuples.h"

#include <stdio.h>
#include <string.h>

/* Where a path leaves the tree: `object` has no part that `rest`, the end of the path, names. */
typedef struct path_end {
    void *object;
    const char *rest;
} path_end;

/* The rest of a path after `part` and a dot; "" if the path equals `part`; otherwise NULL. */
static const char *below(const char *path, const char *part)
{
    const size_t n = strlen(part);
    if (n == 0 || strncmp(path, part, n) != 0 || (path[n] && path[n] != '.'))
        return NULL;
    return path[n] == '.' && !path[n + 1] ? NULL : path + n + (path[n] == '.');
}

static const char *below_child(const void *x, int64_t i, const char *path)
{
    char number[24];
    const char *name = fx_child_name(x, i);
    snprintf(number, sizeof number, "%lld", (long long)i);
    return below(path, *name ? name : number);
}

/* The path without the name of a list field of x, if it begins with one. */
static const char *without_list(const void *x, const char *path)
{
    const fx_type *type = fx_type_of(x);
    for (int i = 0; i < type->nfields && !(type->flags & FX_TYPE_TUPLE); i++)
        if (type->fields[i].kind == FX_FIELD_LIST && below(path, type->fields[i].name))
            return below(path, type->fields[i].name);
    return path;
}

/* A child with the whole path as its name comes first, because names may contain dots. */
static void *object_at(void *x, const char *path, path_end *end)
{
    if (strlen(path) < strlen(end->rest))
        *end = (path_end){x, path};
    if (!*path || !x || fx_is_array(x))
        return *path ? NULL : x;
    path = without_list(x, path);
    void *found = *path ? NULL : x;
    for (int whole = 1; whole >= 0 && !found; whole--)
        for (int64_t i = 0; i < fx_count(x) && !found; i++) {
            const char *rest = below_child(x, i, path);
            if (rest && (*rest == 0) == (whole == 1))
                found = object_at(fx_child(x, i), rest, end);
        }
    return found;
}

void *fxi_object_at(void *x, const char *path)
{
    path_end end = {x, path};
    return object_at(x, path, &end);
}

/* Describes the object where a path leaves the tree: "; "model" has "encoder", "head"". */
static void describe_end(const path_end *end, const char *name, char *text, size_t size)
{
    const int length = (int)(strlen(name) - strlen(end->rest)) - (*end->rest != 0); /* a dot */
    const int64_t n = fx_count(end->object);
    char names[200], got[100];
    fxi_child_names(end->object, "has ", names, sizeof names);
    if (*names)
        snprintf(text, size, "; \"%.*s\" %s", length, name, names);
    else if (n > 0)
        snprintf(text, size, "; \"%.*s\" has the parts 0 to %lld", length, name, (long long)n - 1);
    else
        snprintf(text, size, "; \"%.*s\" is %s", length, name,
                 end->object && fx_summary(end->object, got, sizeof got) > 0 ? got : "nothing");
}

fx_status fxi_no_entry(fx_status status, const char *op, const char *path, void *file,
                       const char *name)
{
    path_end end = {file, name};
    char text[400] = "";
    object_at(file, name, &end);
    if (end.object == file)
        fxi_child_names(file, "; the file has ", text, sizeof text);
    else
        describe_end(&end, name, text, sizeof text);
    return fx_fail(status, op, "%s: there is no entry \"%s\"%s", path, name, text);
}
