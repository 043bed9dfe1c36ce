/* notation_closure.h: anonymous functions in the notation of models. Internal. */
#ifndef CFLUX_NOTATION_CLOSURE_H
#define CFLUX_NOTATION_CLOSURE_H

#include "notation_reader.h"

#include <cflux/tree.h>

/* Reads the body of x -> …, whose arrow has been read, and makes a layer or function of it. NULL on
 * failure (recorded). */
void *fxi_notation_closure(fxi_reader *r, fxi_span argument);
/* The same for the activation of a layer, where x is a number. */
fx_function *fxi_notation_activation(fxi_reader *r, fxi_span argument);

#endif
