/* tree_text.h: prints the entries of a file as a tree: layers in Flux's notation, unknown structs
 * by name, arrays by size, numbers and texts as they are. */
#ifndef CFLUX_TOOL_TREE_TEXT_H
#define CFLUX_TOOL_TREE_TEXT_H

#include <cflux/json_out.h>
#include "object_set.h"
#include <cflux.h>

typedef enum tree_kind {
    TREE_NOTHING,
    TREE_TEXT,
    TREE_NUMBER, /* a 0-d array */
    TREE_ARRAY,
    TREE_TUPLE,  /* also lists and dictionaries */
    TREE_STRUCT, /* a struct for which the library has no type */
    TREE_LAYER,  /* a layer or a function */
    TREE_OBJECT  /* another object of the library, such as an optimiser's state */
} tree_kind;
tree_kind tree_kind_of(const void *object);

/* Objects of a file that were already printed; begins zeroed. */
typedef struct tree_shown {
    object_set objects;
    int64_t n; /* structs and tuples so far, repeated ones too */
} tree_shown;

/* Prints "name: " (nothing if the name is empty), the object, and a line end. */
void tree_print(FILE *to, tree_shown *shown, const char *name, void *object, int indent);
/* The same as a JSON value: {"name", "kind", …, "children"}; "shown_above": true replaces the
 * children of an object that was already printed and is only named. */
void tree_json(fx_json *j, tree_shown *shown, const char *name, void *object);

/* Writes "type" and "size" of an array. */
void tree_json_sizes(fx_json *j, const fx_array *x);

/* The name of a TREE_STRUCT, "Main.Encoder", into dst. */
void tree_struct_name(void *object, char *dst, size_t capacity);
/* True for a rule or a state of Flux's optimisers: these structs are not unknown layers. */
bool tree_is_of_optimiser(void *object);

/* The text that fx_summary or fx_show_text writes; the caller frees it. NULL if out of memory. */
char *text_of(void *object, size_t (*write)(void *object, char *dst, size_t capacity));

#endif
