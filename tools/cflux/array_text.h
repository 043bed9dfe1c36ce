/* array_text.h: a small array as one line of text, without loss: "Float32 2x3: 0 1 2 3 4 5", the
 * sizes and elements in the order of Julia (the first axis runs fastest); without axes "Float32:
 * 0.5". */
#ifndef CFLUX_TOOL_ARRAY_TEXT_H
#define CFLUX_TOOL_ARRAY_TEXT_H

#include <cflux.h>

/* To be freed; NULL: the array cannot be read, or memory is out (recorded). */
char *array_to_text(fx_array *x);

/* The array of such a text, owned by the scope; NULL when the text is none, which is not recorded.
 */
fx_array *array_of_text(const char *text);

#endif
