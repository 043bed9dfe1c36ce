/* notation_forms.h: layers, rules and functions by name, and the arguments in their parentheses.
 * Internal. */
#ifndef CFLUX_NOTATION_FORMS_H
#define CFLUX_NOTATION_FORMS_H

#include "notation_reader.h"

#include <cflux/notation.h>

/* What the notation calls, and the rows of its arguments. */
typedef struct fxi_form {
    const char *name;
    const fx_layer_row *rows;
    size_t row_size;
    int count;
    const void *defaults; /* an option struct, which begins with its size */
    /* What holds layers in its parentheses; NULL: options are there. */
    void *(*build_list)(int n, const char *const *names, void *const *layers);
    const fx_type *type;                /* of a layer; NULL: a rule */
    void *(*make)(const void *options); /* of a rule */
} fxi_form;

/* The layer or rule of that name; false or NULL (recorded) if there is none. */
bool fxi_form_layer(fxi_reader *r, fxi_span name, fxi_form *out);
const fxi_form *fxi_form_rule(fxi_reader *r, fxi_span name);
/* Reads the arguments in parentheses and makes the object; `start` is where its name begins. NULL
 * when it failed. */
void *fxi_form_call(fxi_reader *r, const fxi_form *form, const char *start);
/* The function of that name; NULL (recorded). */
fx_function *fxi_form_function(fxi_reader *r, fxi_span name);

#endif
