/* json_out.c: a writer of JSON that keeps nothing but its depth. */
#include "json_out.h"
#include "clean_text.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* A character that a text of JSON cannot hold as it is; n: its bytes, 0: none of UTF-8. */
static void put_escape(FILE *to, unsigned char c, int n)
{
    if (n == 0)
        fputs("\\ufffd", to);
    else if (c == '"' || c == '\\')
        fprintf(to, "\\%c", c);
    else if (c == '\n')
        fputs("\\n", to);
    else
        fprintf(to, "\\u%04x", c);
}

static void put_string(FILE *to, const char *text)
{
    const char *plain = text; /* what is not written yet, up to s, and goes as it is */
    putc('"', to);
    for (const char *s = text; *s;) {
        const int n = utf8_length(s);
        const unsigned char c = (unsigned char)*s;
        const bool as_it_is = n > 0 && c != '"' && c != '\\' && c >= 0x20 && c != 0x7F;
        if (!as_it_is) {
            fwrite(plain, 1, (size_t)(s - plain), to);
            put_escape(to, c, n);
        }
        s += n ? n : 1;
        plain = as_it_is ? plain : s;
    }
    fputs(plain, to);
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
