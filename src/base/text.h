/* text.h: a text that grows. Internal. After a failed allocation the text keeps its content and
 * ignores later additions. Its user checks `failed` once, at the end. A zeroed struct is an empty
 * text.
 */
#ifndef CFLUX_TEXT_H
#define CFLUX_TEXT_H

#include <cflux/tree.h>
#include <stdio.h>

struct fx_text {
    char *data; /* ends with 0; NULL while empty */
    size_t length, capacity;
    size_t limit; /* objects are cut off ("…") beyond this length; 0: never */
    bool failed;
    bool values; /* writes arrays as their elements, not as their sizes */
};

void fxi_text_put(fx_text *text, const char *s);
/* Writes control characters as Julia's escapes ("\n", "\e", "\x01"): a text from a file must not
 * control the terminal. fxi_text_put_quoted also adds quotation marks, and escapes quotation marks,
 * backslashes and dollar signs. */
void fxi_text_put_escaped(fx_text *text, const char *s);
void fxi_text_put_quoted(fx_text *text, const char *s);
void fxi_text_pad(fx_text *text, int64_t spaces); /* none when negative */
void fxi_text_cut(fx_text *text, size_t length);  /* back to an earlier length */
void fxi_text_free(fx_text *text);
void fxi_text_bytes(fx_text *text, int64_t bytes); /* as Base.format_bytes: "1.500 KiB" */

/* Two ways to end a text; both free it, and record a failed allocation. The first copies as many
 * whole characters as fit, none if dst is NULL, and returns the full length. The second prints the
 * text with a newline.
 */
size_t fxi_text_hand_over(fx_text *text, char *dst, size_t capacity);
void fxi_text_print(fx_text *text, FILE *out);

/* Characters (Unicode scalars) from byte `from` to the end: widths of columns. */
int64_t fxi_text_width(const fx_text *text, size_t from);
int64_t fxi_utf8_width(const char *s);

#endif
