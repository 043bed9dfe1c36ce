/* clean_text.h: texts of files and arguments, as they may be shown: whatever they hold, a terminal
 * does nothing but print them. */
#ifndef CFLUX_TOOL_CLEAN_TEXT_H
#define CFLUX_TOOL_CLEAN_TEXT_H

#include <stddef.h>
#include <stdio.h>

/* How many bytes of UTF-8 begin here, from 1 to 4; 0 when they are none. */
int utf8_length(const char *text);

/* The text with control characters written as \x1b and bytes that are no UTF-8 as U+FFFD. dst is
 * terminated; what does not fit is cut off between characters. */
void clean_text(const char *text, char *dst, size_t size);

/* The same to a file (NULL: nowhere); lines after the first are indented. How many columns of a
 * terminal it takes, if it is one line. */
int put_clean(FILE *to, const char *text, int indent);

#endif
