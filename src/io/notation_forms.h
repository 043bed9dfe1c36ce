/* notation_forms.h: layers, rules and functions by name, and the arguments in their parentheses.
 * Internal. */
#ifndef CFLUX_NOTATION_FORMS_H
#define CFLUX_NOTATION_FORMS_H

#include "notation_reader.h"

#include <cflux/notation.h>

typedef struct fxi_form fxi_form;

/* The layer or rule of that name; NULL (recorded) when there is none. */
const fxi_form *fxi_form_layer(fxi_reader *r, fxi_span name);
const fxi_form *fxi_form_rule(fxi_reader *r, fxi_span name);
/* Reads the arguments in parentheses and makes the object; `start` is where its name begins. NULL
 * when it failed. */
void *fxi_form_call(fxi_reader *r, const fxi_form *form, const char *start);
/* The function of that name; NULL (recorded). */
fx_function *fxi_form_function(fxi_reader *r, fxi_span name);

#endif
