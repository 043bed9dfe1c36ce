/* clean_text.h: makes texts of files and arguments safe to print: a terminal displays them and
 * never interprets them. */
#ifndef CFLUX_TOOL_CLEAN_TEXT_H
#define CFLUX_TOOL_CLEAN_TEXT_H

#include <stddef.h>
#include <stdio.h>

/* The length, 1 to 4, of the UTF-8 character that begins here; 0 if the bytes are not UTF-8. */
int utf8_length(const char *text);

/* The text with control characters written as \x1b and invalid UTF-8 as U+FFFD. dst is terminated;
 * a text that is too long is cut between characters. */
void clean_text(const char *text, char *dst, size_t size);

/* Prints the text in the same form to a file (NULL: only measures); lines after the first are
 * indented. Returns its width in columns if it is one line. */
int put_clean(FILE *to, const char *text, int indent);

#endif
