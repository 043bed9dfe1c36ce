/* text_parts.h: checks how a text ends, and whether it is a number, and parses sizes. */
#ifndef CFLUX_TOOL_TEXT_PARTS_H
#define CFLUX_TOOL_TEXT_PARTS_H

#include <cflux.h>

bool ends_with(const char *text, const char *end);

/* True if the whole text is a number. */
bool is_number_text(const char *text);

/* A text column is an array of positions in the named tuple `labels`. Returns the first row whose
 * text is a number (`number` is true) or is not a number (false); −1 if there is none. */
int64_t first_row(fx_array *column, void *labels, bool number);
/* The text of a row; NULL if it is missing. */
const char *text_of_row(fx_array *column, void *labels, int64_t row);
/* From this row on, counted from 0, the first number of a text column counts as a mistake. */
enum { LATE_ROW = 1000 };

/* Parses "28x28x1", separated by x, ×, a comma or *, into `sizes`. Returns their number, at most
 * FX_MAX_DIMS − 1, so that the caller can append the number of observations; 0 if the text is not a
 * list of sizes. */
int read_sizes(const char *text, int64_t sizes[FX_MAX_DIMS]);

#endif
