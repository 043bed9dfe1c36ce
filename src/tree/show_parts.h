/* show_parts.h: the parts of an object as they are printed. Internal. */
#ifndef CFLUX_SHOW_PARTS_H
#define CFLUX_SHOW_PARTS_H

#include <cflux/tree.h>

/* One thing that is printed: a child, an item of a list, or a plain field. */
typedef struct fxi_part {
    const fx_field *field;
    const void *at;   /* the field's value, for numbers */
    void *object;     /* children, items, shared objects */
    const char *name; /* of an item; NULL */
    bool is_object;
} fxi_part;

typedef struct fxi_parts {
    const void *object;
    int field;
    int64_t item;
    bool frozen; /* frozen fields too */
} fxi_parts;

bool fxi_next_part(fxi_parts *p, fxi_part *out);

/* The items of a tuple; NULL when the object is none. */
const fx_list *fxi_tuple_list(const void *object);
/* NULL, an array, a function, or what walks pass by. */
bool fxi_is_leaf(const void *object);
/* Is the object printed over several lines, were it a layer? */
bool fxi_expands(const void *object);
/* Are its arrays parameters? Not those of what has a one-line form of its own and cannot be called
 * (a data loader). */
bool fxi_has_parameters(const void *object);
/* Is it a layer or a struct of the program's, or a tuple with one? An optimiser's state has no
 * total. */
bool fxi_holds_layer(const void *object);
/* Is it made of tuples, structs without a form of their own, arrays and numbers alone? */
bool fxi_is_plain(const void *object);

#endif
