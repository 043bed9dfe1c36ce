/* csv_text.h: fields of a line of CSV: quotes and lists of names. */
#ifndef CFLUX_TOOL_CSV_TEXT_H
#define CFLUX_TOOL_CSV_TEXT_H

#include <stdio.h>

/* Writes a text as a field, in quotes if needed. */
void put_csv_text(FILE *to, const char *text);

/* The next name of a list such as `height,"a, b"`. *io_at moves to the name after it, or to the end
 * of the list. The caller frees the name; NULL if out of memory. If the closing quote is
 * missing, the quote is part of the name. */
char *next_csv_text(const char **io_at);

#endif
