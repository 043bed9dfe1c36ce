/* c_text.h: functions on text that the C library has under another name on every system. Internal.
 */
#ifndef CFLUX_C_TEXT_H
#define CFLUX_C_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* strtod and strtof in the C locale, whatever the program's locale is: correctly rounded, with a
 * point before the decimals, errno ERANGE if the number is too large or too small. */
double fxi_strtod(const char *text, char **out_end);
float fxi_strtof(const char *text, char **out_end);

/* Are the texts equal, small and capital letters being the same? The second one looks at `n` bytes
 * at most. */
bool fxi_same_letters(const char *a, const char *b);
bool fxi_same_first_letters(const char *a, const char *b, size_t n);
/* Does the text contain the part, in the same sense? */
bool fxi_contains_letters(const char *text, const char *part);

/* Cuts the next word off a text, as strtok does: *io_rest, the text, becomes what follows the word.
 * NULL: there is none. */
char *fxi_cut_word(const char *separators, char **io_rest);

#endif
