/* utf8.h: is a text UTF-8, and how wide is it on a terminal? Internal. */
#ifndef CFLUX_UTF8_H
#define CFLUX_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Are n bytes UTF-8 without a zero byte? *out_at: where they are not. */
bool fxi_is_utf8(const unsigned char *s, size_t n, size_t *out_at);

/* The columns of a terminal that the first character of the text takes: 0 (a combining mark), 1 or
 * 2 (East Asian characters, emoji). *out_bytes: its length; a byte that is no UTF-8 is a character.
 */
int fxi_character_columns(const char *text, size_t *out_bytes);
int fxi_text_columns(const char *text);

#endif
