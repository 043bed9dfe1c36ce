/* text.c: builds texts in memory; see text.h. Everything that is shown is built in memory first:
 * the padding of a column depends on all its entries, and a failed allocation must not leave half a
 * model on the screen. The text grows by doubling, in bytes. Widths count UTF-8 lead bytes, like
 * Julia's length.
 */
#include "text.h"
#include "c_text.h"
#include "julia_number.h"
#include "memory.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool reserve(fx_text *text, size_t more)
{
    if (text->failed)
        return false;
    if (text->capacity - text->length > more)
        return true;
    size_t capacity = text->capacity ? text->capacity : 256;
    while (capacity - text->length <= more)
        capacity *= 2;
    char *grown = fxi_realloc(text->data, capacity);
    if (!grown) {
        text->failed = true;
        return false;
    }
    text->data = grown;
    text->capacity = capacity;
    return true;
}

void fx_text_add(fx_text *text, const char *format, ...)
{
    char small[128];
    va_list args;
    va_start(args, format);
    const int n = fxi_vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (n < 0 || !reserve(text, (size_t)n))
        return;
    if ((size_t)n < sizeof small) {
        memcpy(text->data + text->length, small, (size_t)n + 1);
    } else {
        va_start(args, format);
        fxi_vsnprintf(text->data + text->length, (size_t)n + 1, format, args);
        va_end(args);
    }
    text->length += (size_t)n;
}

void fxi_text_put(fx_text *text, const char *s)
{
    const size_t n = strlen(s);
    if (!reserve(text, n))
        return;
    memcpy(text->data + text->length, s, n + 1);
    text->length += n;
}

/* `before`: characters that get a backslash. */
static void put_escaped(fx_text *text, const char *s, const char *before)
{
    static const char controls[] = "\a\b\t\n\v\f\r\033", letters[] = "abtnvfre";
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s, next = (unsigned char)s[1];
        const char *control = strchr(controls, *s);
        if (strchr(before, *s))
            fx_text_add(text, "\\%c", *s);
        else if (control)
            fx_text_add(text, "\\%c", letters[control - controls]);
        else if (c < 0x20 || c == 0x7F)
            fx_text_add(text, "\\x%02x", c);
        else if (c == 0xC2 && next >= 0x80 && next < 0xA0) { /* C1 control characters */
            const bool more = isxdigit((unsigned char)s[2]); /* would be read as a digit of it */
            fx_text_add(text, more ? "\\u%04x" : "\\u%02x", next);
            s++;
        } else
            fx_text_add(text, "%c", *s);
    }
}

void fxi_text_put_escaped(fx_text *text, const char *s)
{
    put_escaped(text, s, "");
}

void fxi_text_put_quoted(fx_text *text, const char *s)
{
    fxi_text_put(text, "\"");
    put_escaped(text, s, "\"\\$");
    fxi_text_put(text, "\"");
}

void fxi_text_pad(fx_text *text, int64_t spaces)
{
    if (spaces <= 0 || !reserve(text, (size_t)spaces))
        return;
    memset(text->data + text->length, ' ', (size_t)spaces);
    text->length += (size_t)spaces;
    text->data[text->length] = 0;
}

void fxi_text_cut(fx_text *text, size_t length)
{
    if (length >= text->length)
        return;
    text->length = length;
    text->data[length] = 0;
}

void fxi_text_free(fx_text *text)
{
    fxi_free(text->data);
    *text = (fx_text){0};
}

int64_t fxi_utf8_width(const char *s)
{
    int64_t width = 0;
    for (; *s; s++)
        width += ((unsigned char)*s & 0xC0) != 0x80;
    return width;
}

int64_t fxi_text_width(const fx_text *text, size_t from)
{
    return from < text->length ? fxi_utf8_width(text->data + from) : 0;
}

void fxi_text_bytes(fx_text *text, int64_t bytes)
{
    char number[FXI_NUMBER_TEXT];
    fxi_text_put(text, fxi_bytes_text(bytes, number));
}

static bool complete(fx_text *text)
{
    if (text->failed)
        fx_fail(FX_STATUS_MEMORY, "show", "out of memory for the text");
    return !text->failed;
}

size_t fxi_text_hand_over(fx_text *text, char *dst, size_t capacity)
{
    const size_t length = complete(text) ? text->length : 0;
    capacity = dst ? capacity : 0;
    size_t n = length < capacity ? length : capacity ? capacity - 1 : 0;
    while (n > 0 && n < length && ((unsigned char)text->data[n] & 0xC0) == 0x80)
        n--;
    if (n > 0)
        memcpy(dst, text->data, n);
    if (capacity > 0)
        dst[n] = 0;
    fxi_text_free(text);
    return length;
}

void fxi_text_print(fx_text *text, FILE *out)
{
    fxi_text_put(text, "\n");
    if (complete(text) && fwrite(text->data, 1, text->length, out) != text->length)
        fx_fail(FX_STATUS_IO, "show", "the text could not be written");
    fxi_text_free(text);
}
