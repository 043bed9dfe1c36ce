/* text_parts.h: how a text ends, and sizes as text. */
#ifndef CFLUX_TOOL_TEXT_PARTS_H
#define CFLUX_TOOL_TEXT_PARTS_H

#include <cflux.h>

bool ends_with(const char *text, const char *end);

/* "28x28x1", with x, ×, a comma or * between, into sizes with room for one more; how many, 0 when
 * it is no such text. */
int read_sizes(const char *text, int64_t sizes[FX_MAX_DIMS]);

#endif
