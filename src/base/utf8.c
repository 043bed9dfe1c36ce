/* utf8.c: checks that a text is UTF-8, and measures its width on a terminal. The widths are those
 * of Unicode Standard Annex 11 (wide and fullwidth characters) and of the general categories Mn, Me
 * and Cf, in whole blocks.
 */
#include "utf8.h"

#include <stdint.h>

/* The length of a character that begins with this byte; 0 if none does (RFC 3629). */
static size_t utf8_length(unsigned char c)
{
    return c == 0                  ? 0
           : c < 0x80              ? 1
           : c >= 0xC2 && c < 0xE0 ? 2
           : c >= 0xE0 && c < 0xF0 ? 3
                                   : (size_t)(c >= 0xF0 && c < 0xF5) * 4;
}

/* Overlong forms, surrogates and characters above U+10FFFF are detected by the second byte. */
static bool second_fits(const unsigned char *s)
{
    return !(s[0] == 0xE0 && s[1] < 0xA0) && !(s[0] == 0xED && s[1] >= 0xA0) &&
           !(s[0] == 0xF0 && s[1] < 0x90) && !(s[0] == 0xF4 && s[1] >= 0x90);
}

/* The length of the character at s, of which `left` bytes exist; 0 if it is not UTF-8. */
static size_t valid_length(const unsigned char *s, size_t left)
{
    const size_t length = left > 0 ? utf8_length(*s) : 0;
    bool good = length > 0 && length <= left && (length < 2 || second_fits(s));
    for (size_t k = 1; good && k < length; k++)
        good = (s[k] & 0xC0) == 0x80;
    return good ? length : 0;
}

bool fxi_is_utf8(const unsigned char *s, size_t n, size_t *out_at)
{
    size_t i = 0;
    for (size_t length; (length = valid_length(s + i, n - i)) > 0;)
        i += length;
    *out_at = i;
    return i == n;
}

uint32_t fxi_character(const unsigned char *s, size_t left, size_t *out_bytes)
{
    const size_t n = valid_length(s, left);
    *out_bytes = n > 0 ? n : 1;
    if (n < 2)
        return n == 1 || *s == 0 ? *s : UINT32_MAX;
    uint32_t c = *s & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (s[i] & 0x3Fu);
    return c;
}

static const struct {
    uint32_t first, last;
    int columns;
} widths[] = {
    {0x0300, 0x036F, 0},   {0x0483, 0x0489, 0},   {0x0591, 0x05BD, 0},   {0x0610, 0x061A, 0},
    {0x064B, 0x065F, 0},   {0x0E34, 0x0E3A, 0},   {0x1100, 0x115F, 2},   {0x1AB0, 0x1AFF, 0},
    {0x1DC0, 0x1DFF, 0},   {0x200B, 0x200F, 0},   {0x20D0, 0x20FF, 0},   {0x2E80, 0x303E, 2},
    {0x3041, 0xA4CF, 2},   {0xA960, 0xA97F, 2},   {0xAC00, 0xD7A3, 2},   {0xF900, 0xFAFF, 2},
    {0xFE00, 0xFE0F, 0},   {0xFE10, 0xFE1F, 2},   {0xFE20, 0xFE2F, 0},   {0xFE30, 0xFE6F, 2},
    {0xFF00, 0xFF60, 2},   {0xFFE0, 0xFFE6, 2},   {0x16FE0, 0x18DFF, 2}, {0x1AFF0, 0x1B2FF, 2},
    {0x1F300, 0x1F64F, 2}, {0x1F680, 0x1F6FF, 2}, {0x1F900, 0x1F9FF, 2}, {0x1FA70, 0x1FAFF, 2},
    {0x20000, 0x3FFFD, 2}, {0xE0100, 0xE01EF, 0}};

int fxi_character_columns(const char *text, size_t *out_bytes)
{
    size_t left = 0;
    while (left < 4 && text[left])
        left++;
    const uint32_t c = fxi_character((const unsigned char *)text, left, out_bytes);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (c >= widths[i].first && c <= widths[i].last)
            return widths[i].columns;
    return 1;
}

int fxi_text_columns(const char *text)
{
    int columns = 0;
    size_t bytes;
    for (; *text; text += bytes)
        columns += fxi_character_columns(text, &bytes);
    return columns;
}
