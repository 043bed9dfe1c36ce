/* c_text_windows.c: text functions on Windows; see c_text.h. MinGW's own strtod is correctly
 * rounded, which the C library of Windows does not promise. */
#include "c_text.h"
#include "system_memory.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MinGW's strtod reads the decimal point of the program's locale. If that is not a dot,
 * the number is copied with the locale's point instead of the dot. Without memory for the copy,
 * the number is read unchanged. */
typedef struct localised {
    char few[64];
    char *text;    /* few, or a larger block; NULL: the number is not copied */
    size_t at, by; /* the copy is longer by this many bytes after this offset */
} localised;

static void localise(localised *l, const char *text)
{
    const char *point = localeconv()->decimal_point;
    *l = (localised){.text = NULL};
    if (strcmp(point, ".") == 0)
        return;
    const size_t n = strspn(text, " \t\n\v\f\r+-.0123456789abcdefinptxyABCDEFINPTXY"),
                 width = strlen(point);
    char *copy = n + width < sizeof l->few ? l->few : fxi_system_alloc(0, n + width + 1);
    if (!copy)
        return;
    const char *whole = memchr(text, '.', n);
    const size_t before = whole ? (size_t)(whole - text) : n;
    memcpy(copy, text, before);
    char *end = copy + before;
    if (before < n) {
        memcpy(end, point, width);
        memcpy(end + width, text + before + 1, n - before - 1);
        end += width + n - before - 1;
    }
    *end = 0;
    l->text = copy;
    l->at = before;
    l->by = width - 1;
}

/* Frees the copy. `end`: where reading ended in it. */
static void finish(localised *l, const char *text, const char *end, char **out_end)
{
    const size_t read = (size_t)(end - (l->text ? l->text : text));
    if (out_end)
        *out_end = (char *)text + read - (l->text && read > l->at ? l->by : 0);
    if (l->text != l->few)
        fxi_system_free(l->text, false);
}

double fxi_strtod(const char *text, char **out_end)
{
    localised l;
    char *end;
    localise(&l, text);
    const double value = __mingw_strtod(l.text ? l.text : text, &end);
    finish(&l, text, end, out_end);
    return value;
}

float fxi_strtof(const char *text, char **out_end)
{
    localised l;
    char *end;
    localise(&l, text);
    const float value = __mingw_strtof(l.text ? l.text : text, &end);
    finish(&l, text, end, out_end);
    return value;
}

/* The thread gets a locale of its own for the call if the program's has another decimal point. */
int fxi_vsnprintf(char *to, size_t size, const char *format, va_list args)
{
    char own[128] = "";
    int mode = 0;
    if (strcmp(localeconv()->decimal_point, ".") != 0) {
        mode = _configthreadlocale(_ENABLE_PER_THREAD_LOCALE);
        snprintf(own, sizeof own, "%s", setlocale(LC_NUMERIC, NULL));
        setlocale(LC_NUMERIC, "C");
    }
    const int n = vsnprintf(to, size, format, args);
    if (*own) {
        setlocale(LC_NUMERIC, own);
        _configthreadlocale(mode);
    }
    return n;
}

bool fxi_same_ignoring_case(const char *a, const char *b)
{
    return _stricmp(a, b) == 0;
}

bool fxi_same_start_ignoring_case(const char *a, const char *b, size_t n)
{
    return _strnicmp(a, b, n) == 0;
}

bool fxi_contains_ignoring_case(const char *text, const char *part)
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
