/* c_text.h: text functions that have different names on different systems. Internal. */
#ifndef CFLUX_C_TEXT_H
#define CFLUX_C_TEXT_H

#include <cflux/base.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* strtod and strtof in the C locale, whatever the program's locale is: correctly rounded, with a
 * point before the decimals, errno ERANGE if the number is too large or too small. */
double fxi_strtod(const char *text, char **out_end);
float fxi_strtof(const char *text, char **out_end);

/* vsnprintf and snprintf in the C locale: with a point before the decimals. */
int fxi_vsnprintf(char *to, size_t size, const char *format, va_list args);
FXI_PRINTF(3, 4)
static inline int fxi_snprintf(char *to, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = fxi_vsnprintf(to, size, format, args);
    va_end(args);
    return n;
}

/* Copies a text with its final 0, and returns where that 0 is: POSIX's stpcpy. */
static inline char *fxi_copy_text(char *to, const char *text)
{
    const size_t n = strlen(text);
    memcpy(to, text, n + 1);
    return to + n;
}

/* Are the texts equal, ignoring case? The second function compares only the first `n` bytes. */
bool fxi_same_ignoring_case(const char *a, const char *b);
bool fxi_same_start_ignoring_case(const char *a, const char *b, size_t n);
/* Does the text contain the part, ignoring case? */
bool fxi_contains_ignoring_case(const char *text, const char *part);

/* Splits the next word from a text, like strtok: *io_rest, the text, becomes the rest after the
 * word. NULL: no word is left. */
char *fxi_cut_word(const char *separators, char **io_rest);

#endif
