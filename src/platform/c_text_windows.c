/* c_text_windows.c: text functions on Windows; see c_text.h. MinGW's own strtod is correctly
 * rounded and always reads a point, which the C library of Windows does not promise. */
#include "c_text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

double fxi_strtod(const char *text, char **out_end)
{
    return __mingw_strtod(text, out_end);
}

float fxi_strtof(const char *text, char **out_end)
{
    return __mingw_strtof(text, out_end);
}

bool fxi_same_letters(const char *a, const char *b)
{
    return _stricmp(a, b) == 0;
}

bool fxi_same_first_letters(const char *a, const char *b, size_t n)
{
    return _strnicmp(a, b, n) == 0;
}

bool fxi_contains_letters(const char *text, const char *part)
{
    const size_t n = strlen(part);
    for (; *text; text++)
        if (_strnicmp(text, part, n) == 0)
            return true;
    return n == 0;
}

char *fxi_cut_word(const char *separators, char **io_rest)
{
    char *word = *io_rest + strspn(*io_rest, separators);
    char *end = word + strcspn(word, separators);
    *io_rest = end + (*end != 0);
    *end = 0;
    return *word ? word : NULL;
}
