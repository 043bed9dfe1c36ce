/* tree_text.c: prints the entries of a file as a tree: see tree_text.h.
 *
 * A file can refer to the same objects so often that the whole tree could never be printed. While
 * at most IN_FULL structs and tuples have been printed, each one that is met is printed; after
 * that, one that was printed before is only named.
 */
#include "tree_text.h"
#include "clean_text.h"
#include <stdlib.h>
#include <string.h>

enum { IN_FULL = 1000 };

/* True if the object should only be named, also if out of memory; otherwise marks it as printed. */
static bool only_named(tree_shown *shown, const void *object)
{
    return (shown->n++ > IN_FULL && object_set_has(&shown->objects, object)) ||
           !object_set_add(&shown->objects, object);
}

tree_kind tree_kind_of(const void *object)
{
    const fx_type *type = object ? fx_type_of(object) : NULL;
    if (!object)
        return TREE_NOTHING;
    if (fx_is_array(object))
        return fx_ndims(object) == 0 ? TREE_NUMBER : TREE_ARRAY;
    if (fx_string_text(object) || fx_metadata_count(object) > 0)
        return TREE_TEXT;
    if (type && (type->flags & FX_TYPE_TUPLE))
        return TREE_TUPLE;
    if (type && strcmp(type->name, "Node") == 0)
        return TREE_STRUCT;
    return type && (type->forward || (type->flags & FX_TYPE_FUNCTION)) ? TREE_LAYER : TREE_OBJECT;
}

void tree_struct_name(void *object, char *dst, size_t capacity)
{
    fx_summary(object, dst, capacity);
    dst[strcspn(dst, "(")] = 0;
}

bool tree_is_of_optimiser(void *object)
{
    char name[64];
    if (tree_kind_of(object) != TREE_STRUCT)
        return false;
    tree_struct_name(object, name, sizeof name);
    return strncmp(name, "Optimisers.", 11) == 0 || strncmp(name, "Flux.Optimise", 13) == 0;
}

char *text_of(void *object, size_t (*write)(void *object, char *dst, size_t capacity))
{
    const size_t n = write(object, NULL, 0);
    char *text = malloc(n + 1);
    if (text)
        write(object, text, n + 1);
    return text;
}

static void print_children(FILE *to, tree_shown *shown, const char *name, void *object, int indent)
{
    put_clean(to, name, 0);
    if (fx_count(object) == 0) {
        fputs("()\n", to);
        return;
    }
    if (only_named(shown, object)) {
        fputs("(…) shown above\n", to);
        return;
    }
    fputs("(\n", to);
    for (int64_t i = 0; i < fx_count(object); i++)
        tree_print(to, shown, fx_child_name(object, i), fx_child(object, i), indent + 2);
    fprintf(to, "%*s)\n", indent, "");
}

static void print_number(FILE *to, void *object)
{
    char text[FX_SHORTEST_TEXT];
    const double x = fx_item(object);
    const bool narrow = fx_dtype_size(fx_eltype(object)) <= sizeof(float);
    if (fx_eltype(object) == FX_DTYPE_BOOL)
        fprintf(to, "%s\n", x != 0 ? "true" : "false");
    else
        fprintf(to, "%s\n", narrow ? fx_shortest_f32((float)x, text) : fx_shortest(x, text));
}

void tree_print(FILE *to, tree_shown *shown, const char *name, void *object, int indent)
{
    const tree_kind kind = tree_kind_of(object);
    char title[200] = "", *text = NULL;
    fprintf(to, "%*s", indent, "");
    put_clean(to, name, 0);
    fputs(*name ? ": " : "", to);
    if (kind == TREE_STRUCT)
        tree_struct_name(object, title, sizeof title);
    if (kind == TREE_STRUCT || kind == TREE_TUPLE)
        print_children(to, shown, title, object, indent);
    else if (kind == TREE_NOTHING)
        fputs("nothing\n", to);
    else if (kind == TREE_NUMBER)
        print_number(to, object);
    else
        text = text_of(object, kind >= TREE_LAYER ? fx_show_text : fx_summary);
    if (text) {
        put_clean(to, text, indent);
        fputc('\n', to);
    }
    free(text);
}

void tree_json_sizes(fx_json *j, const fx_array *x)
{
    fx_json_text(j, "type", fx_dtype_name(fx_eltype(x)));
    fx_json_open(j, "size", '[');
    for (int k = 0; k < fx_ndims(x); k++)
        fx_json_integer(j, NULL, fx_size(x, k));
    fx_json_close(j);
}

static void json_children(fx_json *j, tree_shown *shown, void *object)
{
    if (fx_count(object) > 0 && only_named(shown, object)) {
        fx_json_flag(j, "shown_above", true);
        return;
    }
    fx_json_open(j, "children", '[');
    for (int64_t i = 0; i < fx_count(object); i++)
        tree_json(j, shown, fx_child_name(object, i), fx_child(object, i));
    fx_json_close(j);
}

/* Prints a text, or several texts by their keys. */
static void json_texts(fx_json *j, const void *object)
{
    if (fx_string_text(object)) {
        fx_json_text(j, "text", fx_string_text(object));
        return;
    }
    fx_json_open(j, "texts", '{');
    for (int64_t i = 0; i < fx_metadata_count(object); i++)
        fx_json_text(j, fx_metadata_key(object, i),
                     fx_metadata_text(object, fx_metadata_key(object, i)));
    fx_json_close(j);
}

static void json_layer(fx_json *j, void *object)
{
    char *text = text_of(object, fx_summary);
    fx_json_text(j, "notation", text);
    fx_json_integer(j, "parameters", fx_parameter_count(object));
    free(text);
}

void tree_json(fx_json *j, tree_shown *shown, const char *name, void *object)
{
    static const char *const kinds[] = {"nothing", "text",   "number", "array",
                                        "tuple",   "struct", "layer",  "object"};
    const tree_kind kind = tree_kind_of(object);
    char title[200];
    fx_json_open(j, NULL, '{');
    fx_json_text(j, "name", name);
    fx_json_text(j, "kind", kinds[kind]);
    if (kind == TREE_TEXT)
        json_texts(j, object);
    if (kind == TREE_NUMBER || kind == TREE_ARRAY)
        tree_json_sizes(j, object);
    if (kind == TREE_NUMBER)
        fx_json_number(j, "value", fx_item(object));
    if (kind >= TREE_LAYER)
        json_layer(j, object);
    if (kind == TREE_STRUCT) {
        tree_struct_name(object, title, sizeof title);
        fx_json_text(j, "struct", title);
    }
    if (kind == TREE_TUPLE || kind == TREE_STRUCT)
        json_children(j, shown, object);
    fx_json_close(j);
}
