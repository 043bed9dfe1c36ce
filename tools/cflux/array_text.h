/* array_text.h: a small array as one line of text, without loss: "Float32 2x3: 0 1 2 3 4 5", sizes
 * and elements in Julia's order (the first axis varies fastest). A 0-d array is "Float32: 0.5". */
#ifndef CFLUX_TOOL_ARRAY_TEXT_H
#define CFLUX_TOOL_ARRAY_TEXT_H

#include <cflux.h>

/* The caller frees the text. NULL if the array cannot be read, or if out of memory (recorded). */
char *array_to_text(fx_array *x);

#endif
