/* utf8.c: is a text UTF-8? */
#include "utf8.h"

/* The length of the character that begins with this byte, 0 for none (RFC 3629). */
static size_t utf8_length(unsigned char c)
{
    return c == 0                  ? 0
           : c < 0x80              ? 1
           : c >= 0xC2 && c < 0xE0 ? 2
           : c >= 0xE0 && c < 0xF0 ? 3
                                   : (size_t)(c >= 0xF0 && c < 0xF5) * 4;
}

/* Longer forms than needed, surrogates and what lies above U+10FFFF show in the second byte. */
static bool second_fits(const unsigned char *s)
{
    return !(s[0] == 0xE0 && s[1] < 0xA0) && !(s[0] == 0xED && s[1] >= 0xA0) &&
           !(s[0] == 0xF0 && s[1] < 0x90) && !(s[0] == 0xF4 && s[1] >= 0x90);
}

bool fxi_is_utf8(const unsigned char *s, size_t n, size_t *out_at)
{
    size_t i = 0;
    while (i < n) {
        const size_t length = utf8_length(s[i]);
        bool good = length > 0 && length <= n - i && (length < 2 || second_fits(s + i));
        for (size_t k = 1; good && k < length; k++)
            good = (s[i + k] & 0xC0) == 0x80;
        if (!good)
            break;
        i += length;
    }
    *out_at = i;
    return i == n;
}
