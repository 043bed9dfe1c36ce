/* json.c: reads the JSON of file headers (RFC 8259): see json.h. */
#include "json.h"
#include "memory.h"

#include <string.h>

unsigned char fxi_json_peek(fxi_bytes *b)
{
    while (b->status == FX_OK && b->at < b->size && strchr(" \t\r\n", b->data[b->at]) &&
           b->data[b->at])
        b->at++;
    return b->status == FX_OK && b->at < b->size ? b->data[b->at] : 0;
}

bool fxi_json_take(fxi_bytes *b, unsigned char c)
{
    const bool there = fxi_json_peek(b) == c;
    b->at += there;
    return there;
}

static void unexpected(fxi_bytes *b, const char *expected)
{
    const unsigned char c = fxi_json_peek(b);
    if (b->at >= b->size)
        fxi_bytes_fail(b, b->at, "expected %s, found the end of the text", expected);
    else
        fxi_bytes_fail(b, b->at,
                       c > 32 && c < 127 ? "expected %s, found '%c'"
                                         : "expected %s, found the byte %d",
                       expected, c);
}

bool fxi_json_expect(fxi_bytes *b, unsigned char c)
{
    const char text[] = {'\'', (char)c, '\'', 0};
    if (fxi_json_take(b, c))
        return true;
    unexpected(b, text);
    return false;
}

bool fxi_json_more(fxi_bytes *b, unsigned char close, bool first)
{
    if (fxi_json_take(b, close) || b->status != FX_OK)
        return false;
    return first || fxi_json_expect(b, ',');
}

/* Reads four hexadecimal digits; −1 on failure (recorded). */
static int32_t hex4(fxi_bytes *b)
{
    int32_t v = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned char *p = fxi_bytes_take(b, 1, "an escaped character");
        const char *digits = "0123456789abcdef", *at = NULL;
        if (p && *p)
            at = strchr(digits, *p >= 'A' && *p <= 'F' ? *p + 32 : *p);
        if (!at) {
            fxi_bytes_fail(b, b->at - (p != NULL), "expected four hexadecimal digits");
            return -1;
        }
        v = v * 16 + (int32_t)(at - digits);
    }
    return v;
}

/* Reads the character code after \u; two such codes (surrogates) form a character beyond U+FFFF. −1
 * on failure (recorded). */
static int32_t escaped_code(fxi_bytes *b)
{
    const size_t at = b->at;
    int32_t c = hex4(b);
    if (c >= 0xD800 && c < 0xDC00 && fxi_bytes_left(b) > 1 && b->data[b->at] == '\\' &&
        b->data[b->at + 1] == 'u') {
        b->at += 2;
        const int32_t low = hex4(b);
        if (low >= 0xDC00 && low < 0xE000)
            return 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    if (c == 0 || (c >= 0xD800 && c < 0xE000)) {
        fxi_bytes_fail(b, at, "the escape \\u%04X is not allowed", (unsigned)c);
        return -1;
    }
    return c;
}

static char *put_utf8(char *to, int32_t c)
{
    const int extra = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const int lead[] = {0, 0xC0, 0xE0, 0xF0};
    *to++ = (char)(lead[extra] | c >> 6 * extra);
    for (int i = extra - 1; i >= 0; i--)
        *to++ = (char)(0x80 | (c >> 6 * i & 0x3F));
    return to;
}

/* Writes the character for the escape after a backslash. */
static char *put_escaped(fxi_bytes *b, char *to)
{
    static const char from[] = "\"\\/bfnrt", as[] = "\"\\/\b\f\n\r\t";
    const unsigned char *p = fxi_bytes_take(b, 1, "an escaped character");
    if (p && *p == 'u') {
        const int32_t c = escaped_code(b);
        return c < 0 ? to : put_utf8(to, c);
    }
    const char *known = p && *p ? strchr(from, *p) : NULL;
    if (known)
        *to++ = as[known - from];
    else
        fxi_bytes_fail(b, b->at - 1, "an unknown escape in a string");
    return to;
}

/* The length of the string's text in the file, up to its closing quote; recorded if the quote is
 * missing. */
static size_t raw_length(fxi_bytes *b)
{
    size_t i = b->at;
    while (i < b->size && b->data[i] != '"' && b->data[i] >= 32)
        i += b->data[i] == '\\' ? 2 : 1;
    if (i >= b->size)
        fxi_bytes_fail(b, b->size, "a string is not closed");
    else if (b->data[i] != '"')
        fxi_bytes_fail(b, i, "a string contains the byte %d", b->data[i]);
    return b->status == FX_OK ? i - b->at : 0;
}

char *fxi_json_string(fxi_bytes *b)
{
    if (!fxi_json_take(b, '"')) {
        unexpected(b, "a string");
        return NULL;
    }
    const size_t n = raw_length(b), end = b->at + n;
    char *s = b->status == FX_OK ? fxi_malloc(n + 1) : NULL, *to = s;
    if (!s && b->status == FX_OK)
        b->status = fx_fail(FX_STATUS_MEMORY, b->op, "%s: no memory for a string", b->path);
    while (b->status == FX_OK && b->at < end) {
        const unsigned char c = b->data[b->at++];
        if (c == '\\')
            to = put_escaped(b, to);
        else
            *to++ = (char)c;
    }
    if (b->status != FX_OK) {
        fxi_free(s);
        return NULL;
    }
    b->at = end + 1;
    *to = 0;
    return s;
}

uint64_t fxi_json_count(fxi_bytes *b)
{
    const unsigned char first = fxi_json_peek(b);
    const size_t at = b->at;
    uint64_t v = 0;
    if (first < '0' || first > '9') {
        unexpected(b, "a whole number");
        return 0;
    }
    for (; b->at < b->size && b->data[b->at] >= '0' && b->data[b->at] <= '9'; b->at++) {
        const uint64_t digit = b->data[b->at] - (uint64_t)'0';
        if (v > (INT64_MAX - digit) / 10) {
            fxi_bytes_fail(b, at, "a number is larger than 2^63 - 1");
            return 0;
        }
        v = v * 10 + digit;
    }
    const unsigned char next = b->at < b->size ? b->data[b->at] : 0;
    if ((first == '0' && b->at > at + 1) || (next && strchr(".eE", next))) {
        fxi_bytes_fail(b, at, "expected an integer without leading zeros, fraction or exponent");
        return 0;
    }
    return v;
}
