/* show_parts.h: lists the parts of an object that are printed. Internal. */
#ifndef CFLUX_SHOW_PARTS_H
#define CFLUX_SHOW_PARTS_H

#include <cflux/tree.h>

/* A part that is printed: a child, an item of a list, or a plain field. */
typedef struct fxi_part {
    const fx_field *field;
    const void *at;   /* value of a plain field */
    void *object;     /* value of a child, item or shared object */
    const char *name; /* of an item; NULL if it has none */
    bool is_object;
} fxi_part;

typedef struct fxi_parts {
    const void *object;
    int field;
    int64_t item;
    bool frozen; /* lists frozen fields too */
} fxi_parts;

bool fxi_next_part(fxi_parts *p, fxi_part *out);

/* The items of a tuple; NULL if the object is not a tuple. */
const fx_list *fxi_tuple_list(const void *object);
/* True for NULL, arrays, functions, and objects that walks skip. */
bool fxi_is_leaf(const void *object);
/* True if the object would be printed over several lines if it were a layer. */
bool fxi_expands(const void *object);
/* True if the arrays of the object are parameters. False for objects with a one-line form of their
 * own that cannot be called (a data loader). */
bool fxi_has_parameters(const void *object);
/* True for a layer, a struct of the program, or a tuple that holds one. Others (an optimiser's
 * state) print no total. */
bool fxi_holds_layer(const void *object);
/* True if the object consists only of tuples, structs without a form of their own, arrays and
 * numbers. */
bool fxi_is_plain(const void *object);

#endif
