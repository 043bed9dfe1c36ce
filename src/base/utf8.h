/* utf8.h: checks that a text is UTF-8, and measures its width on a terminal. Internal. */
#ifndef CFLUX_UTF8_H
#define CFLUX_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Are the n bytes UTF-8 without a zero byte? If not, *out_at is the position where the first wrong
 * character begins. */
bool fxi_is_utf8(const unsigned char *s, size_t n, size_t *out_at);

/* The first character of `left` ≥ 1 bytes; *out_bytes: its length. A byte that is not UTF-8 gives
 * UINT32_MAX and length 1. */
uint32_t fxi_character(const unsigned char *s, size_t left, size_t *out_bytes);

/* The number of terminal columns of the first character: 0 (a combining mark), 1 or 2 (East Asian
 * characters, emoji). *out_bytes: its length; a byte that is not UTF-8 counts as a character. */
int fxi_character_columns(const char *text, size_t *out_bytes);
int fxi_text_columns(const char *text);

#endif
