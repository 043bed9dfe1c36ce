/* clean_text.c: makes texts safe to print: see clean_text.h. */
#include "clean_text.h"
#include "system.h"
#include <stdbool.h>
#include <string.h>

int utf8_length(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80)
        return 1;
    const int n = s[0] >= 0xF0 && s[0] < 0xF5 ? 4 : s[0] >= 0xE0 ? 3 : s[0] >= 0xC2 ? 2 : 0;
    if (n == 0 || s[0] >= 0xF5)
        return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    /* Overlong encodings, surrogates, and values beyond the last code point. */
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] >= 0xA0) ||
        (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] >= 0x90))
        return 0;
    return n;
}

enum { PIECE = 8 };

/* The next character in printable form, and its length in the text. */
static int next_piece(const char *text, char piece[PIECE])
{
    const int n = utf8_length(text);
    const unsigned char c = (unsigned char)*text;
    const bool control = c < 0x20 || c == 0x7F || (c == 0xC2 && (unsigned char)text[1] < 0xA0);
    if (n == 0)
        snprintf(piece, PIECE, "\xEF\xBF\xBD");
    else if (control)
        snprintf(piece, PIECE, "\\x%02x", n == 2 ? (unsigned char)text[1] : c);
    else
        snprintf(piece, PIECE, "%.*s", n, text);
    return n ? n : 1;
}

void clean_text(const char *text, char *dst, size_t size)
{
    char piece[PIECE];
    size_t n = 0;
    while (*text) {
        text += next_piece(text, piece);
        const size_t length = strlen(piece);
        if (n + length >= size)
            break;
        memcpy(dst + n, piece, length);
        n += length;
    }
    dst[n] = 0;
}

/* The width of a piece in columns; an escape sequence is as wide as it is long. */
static int piece_columns(const char *piece)
{
    if (piece[0] == '\\')
        return (int)strlen(piece);
    const int columns = character_columns(piece, strlen(piece));
    return columns >= 0 ? columns : 1;
}

int put_clean(FILE *to, const char *text, int indent)
{
    char piece[PIECE];
    int columns = 0;
    while (*text) {
        if (*text == '\n' && to)
            fprintf(to, "\n%*s", indent, "");
        text += *text == '\n' ? (piece[0] = 0, 1) : next_piece(text, piece);
        columns += *piece ? piece_columns(piece) : 0;
        if (to)
            fputs(piece, to);
    }
    return columns;
}
