/* notation_forms.h: finds layers, rules and functions by name and parses their arguments. Internal.
 */
#ifndef CFLUX_NOTATION_FORMS_H
#define CFLUX_NOTATION_FORMS_H

#include "notation_reader.h"

#include <cflux/notation.h>

/* A callable name of the notation, and the table of its arguments. */
typedef struct fxi_form {
    const char *name;
    const fx_layer_row *rows;
    size_t row_size;
    int count;
    const void *defaults; /* an option struct, which begins with its size */
    /* Constructor of a container, whose parentheses hold layers; NULL: they hold options. */
    void *(*build_list)(int n, const char *const *names, void *const *layers);
    const fx_type *type;                /* of a layer; NULL for a rule */
    void *(*make)(const void *options); /* constructor of a rule */
    fx_layer_flow flow;
} fxi_form;

/* The layer or rule with this name; false or NULL (recorded) if there is none. */
bool fxi_form_layer(fxi_reader *r, fxi_span name, fxi_form *out);
const fxi_form *fxi_form_rule(fxi_reader *r, fxi_span name);
/* Parses the arguments in parentheses and makes the object. `start` is the beginning of its name.
 * NULL on failure. */
void *fxi_form_call(fxi_reader *r, const fxi_form *form, const char *start);
/* The function with this name; NULL if there is none (recorded). cat is followed by its axis:
 * cat(dims=3). */
fx_function *fxi_form_function(fxi_reader *r, fxi_span name);
/* Reads an operator, +, -, * or .*; NULL if none follows (not recorded). */
fx_function *fxi_form_operator(fxi_reader *r);
/* Reads a layer, a function or a tuple; NULL on failure (recorded). In notation.c. */
void *fxi_notation_object(fxi_reader *r);

#endif
