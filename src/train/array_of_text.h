/* array_of_text.h: a small array as one line of text, "Float32 2x3: 0 1 2 3 4 5", sizes and
 * elements in Julia's order (the first axis varies fastest). A 0-d array is "Float32: 0.5". The
 * command line writes it (array_text.c). Internal. */
#ifndef CFLUX_ARRAY_OF_TEXT_H
#define CFLUX_ARRAY_OF_TEXT_H

#include <cflux/array.h>

/* The array of a text, owned by the scope; NULL if the text is not an array (not recorded). */
fx_array *fxi_array_of_text(const char *text);

#endif
