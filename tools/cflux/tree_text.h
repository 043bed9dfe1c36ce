/* tree_text.h: the entries of a file as a tree: layers in Flux's notation, unknown structs by their
 * names, arrays by their sizes, numbers and texts as they are. */
#ifndef CFLUX_TOOL_TREE_TEXT_H
#define CFLUX_TOOL_TREE_TEXT_H

#include "json_out.h"
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

/* Prints "name: " (none when it is empty) and the object, with a line end. */
void tree_print(FILE *to, const char *name, void *object, int indent);
/* The same as one JSON value: {"name", "kind", …, "children"}. */
void tree_json(json_out *j, const char *name, void *object);

/* "type" and "size" of an array. */
void tree_json_sizes(json_out *j, const fx_array *x);

/* The name of a TREE_STRUCT, "Main.Encoder", into dst. */
void tree_struct_name(void *object, char *dst, size_t capacity);
/* A rule or a state of Flux's optimisers: a struct that is no layer the library lacks. */
bool tree_is_of_optimiser(void *object);

/* What fx_summary or fx_show_text writes, to be freed; NULL without memory. */
char *text_of(void *object, size_t (*write)(void *object, char *dst, size_t capacity));

#endif
