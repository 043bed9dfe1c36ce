/* csv_text.c: see csv_text.h. */
#include "csv_text.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Readers drop blanks around a field without quotes. */
static bool needs_quotes(const char *text)
{
    const size_t n = strlen(text);
    return strpbrk(text, ",\"\r\n") ||
           (n > 0 && (strchr(" \t", *text) || strchr(" \t", text[n - 1])));
}

void put_csv_text(FILE *to, const char *text)
{
    if (!needs_quotes(text)) {
        fputs(text, to);
        return;
    }
    fputc('"', to);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', to);
        fputc(*text, to);
    }
    fputc('"', to);
}

/* Copies the name inside the quotes that begin the list. Returns the text after them; NULL if they
 * do not end before a comma or the end of the list. */
static const char *read_quoted(const char *at, char *out)
{
    for (at++; *at && (at[0] != '"' || at[1] == '"'); at++) {
        at += *at == '"';
        *out++ = *at;
    }
    *out = 0;
    return *at && (!at[1] || at[1] == ',') ? at + 1 : NULL;
}

char *next_csv_text(const char **io_at)
{
    const char *at = *io_at, *end = NULL;
    char *name = malloc(strlen(at) + 1);
    if (!name)
        return NULL;
    if (*at == '"')
        end = read_quoted(at, name);
    if (!end) {
        end = at + strcspn(at, ",");
        memcpy(name, at, (size_t)(end - at));
        name[end - at] = 0;
    }
    *io_at = end + (*end == ',');
    return name;
}
