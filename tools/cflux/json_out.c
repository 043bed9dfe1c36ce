/* json_out.c: a writer of JSON that keeps nothing but its depth. */
#include "json_out.h"
#include "clean_text.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static void put_string(FILE *to, const char *text)
{
    putc('"', to);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        const int n = utf8_length((const char *)s);
        if (n == 0)
            fputs("\\ufffd", to);
        else if (*s == '"' || *s == '\\')
            fprintf(to, "\\%c", *s);
        else if (*s == '\n')
            fputs("\\n", to);
        else if (*s < 0x20 || *s == 0x7F)
            fprintf(to, "\\u%04x", *s);
        else
            fwrite(s, 1, (size_t)n, to);
        s += n ? n : 1;
    }
    putc('"', to);
}

static void begin_value(json_out *j, const char *key)
{
    if (j->more[j->depth])
        putc(',', j->to);
    j->more[j->depth] = true;
    if (key) {
        put_string(j->to, key);
        putc(':', j->to);
    }
}

void json_open(json_out *j, const char *key, char bracket)
{
    begin_value(j, key);
    if (j->depth == JSON_DEPTH)
        return;
    j->close[j->depth++] = bracket == '{' ? '}' : ']';
    j->more[j->depth] = false;
    putc(bracket, j->to);
}

void json_close(json_out *j)
{
    if (j->depth > 0)
        putc(j->close[--j->depth], j->to);
}

void json_text(json_out *j, const char *key, const char *text)
{
    begin_value(j, key);
    if (text)
        put_string(j->to, text);
    else
        fputs("null", j->to);
}

static const char *shortest(double x, bool narrow, char text[NUMBER_TEXT])
{
    if (!isfinite(x)) {
        snprintf(text, NUMBER_TEXT, "%s", isnan(x) ? "NaN" : x > 0 ? "Inf" : "-Inf");
        return text;
    }
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(text, NUMBER_TEXT, "%.*g", precision, x);
        if (narrow ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x)
            break;
    }
    return text;
}

const char *number_text(double x, char text[NUMBER_TEXT])
{
    return shortest(x, false, text);
}

const char *number_text_f32(float x, char text[NUMBER_TEXT])
{
    return shortest((double)x, true, text);
}

void json_number(json_out *j, const char *key, double x)
{
    char text[NUMBER_TEXT];
    begin_value(j, key);
    fputs(isfinite(x) ? number_text(x, text) : "null", j->to);
}

void json_rounded(json_out *j, const char *key, double x, int digits)
{
    begin_value(j, key);
    if (isfinite(x))
        fprintf(j->to, "%.*g", digits, x);
    else
        fputs("null", j->to);
}

void json_integer(json_out *j, const char *key, int64_t x)
{
    begin_value(j, key);
    fprintf(j->to, "%" PRId64, x);
}

void json_flag(json_out *j, const char *key, bool x)
{
    begin_value(j, key);
    fputs(x ? "true" : "false", j->to);
}

void json_end(json_out *j)
{
    while (j->depth > 0)
        json_close(j);
    putc('\n', j->to);
}
