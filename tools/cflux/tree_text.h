/* tree_text.h: the entries of a file as a tree: layers in Flux's notation, unknown structs by their
 * names, arrays by their sizes, numbers and texts as they are. */
#ifndef CFLUX_TOOL_TREE_TEXT_H
#define CFLUX_TOOL_TREE_TEXT_H

#include <cflux/json_out.h>
#include "object_set.h"
#include <cflux.h>

typedef enum tree_kind {
    TREE_NOTHING,
    TREE_TEXT,
    TREE_NUMBER, /* an array without axes */
    TREE_ARRAY,
    TREE_TUPLE,  /* also lists and dictionaries */
    TREE_STRUCT, /* one that this library has no type for */
    TREE_LAYER,  /* a layer or a function */
    TREE_OBJECT  /* another object of the library: the state of an optimiser */
} tree_kind;
tree_kind tree_kind_of(const void *object);

/* What was printed of a file so far; zeroed at first. */
typedef struct tree_shown {
    object_set objects;
    int64_t lines;
} tree_shown;

/* Prints "name: " (none when it is empty) and the object, with a line end. */
void tree_print(FILE *to, tree_shown *shown, const char *name, void *object, int indent);
/* The same as one JSON value: {"name", "kind", …, "children"}; "shown_above": true instead of the
 * children of an object that was printed before and is not printed again. */
void tree_json(fx_json *j, tree_shown *shown, const char *name, void *object);

/* "type" and "size" of an array. */
void tree_json_sizes(fx_json *j, const fx_array *x);

/* The name of a TREE_STRUCT, "Main.Encoder", into dst. */
void tree_struct_name(void *object, char *dst, size_t capacity);
/* A rule or a state of Flux's optimisers: a struct that is no layer the library lacks. */
bool tree_is_of_optimiser(void *object);

/* What fx_summary or fx_show_text writes, to be freed; NULL without memory. */
char *text_of(void *object, size_t (*write)(void *object, char *dst, size_t capacity));

#endif
