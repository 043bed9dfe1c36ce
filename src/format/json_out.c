/* json_out.c: writes JSON: see cflux/json_out.h. The writer keeps only its nesting depth. It writes
 * to a file, or to growing memory if the file is NULL. */
#include "json.h"
#include "c_text.h"
#include "memory.h"
#include "utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void fxi_json_bytes(fx_json *j, const char *s, size_t n)
{
    if (j->to) {
        fwrite(s, 1, n, j->to);
        return;
    }
    const size_t available = (size_t)(INT32_MAX - 1 - j->n);
    if (j->failed || n > available || !fxi_grow(&j->text, &j->capacity, j->n + (int32_t)n + 1, 1)) {
        j->failed = true;
        return;
    }
    memcpy(j->text + j->n, s, n);
    j->n += (int32_t)n;
    j->text[j->n] = 0;
}

void fxi_json_raw(fx_json *j, const char *text)
{
    fxi_json_bytes(j, text, strlen(text));
}

static bool is_plain(unsigned char c)
{
    return c != '"' && c != '\\' && c >= 0x20 && c != 0x7F;
}

static void put_escape(fx_json *j, unsigned char c)
{
    char text[8];
    if (c == '"' || c == '\\')
        snprintf(text, sizeof text, "\\%c", c);
    else if (c == '\n')
        snprintf(text, sizeof text, "\\n");
    else
        snprintf(text, sizeof text, "\\u%04x", c);
    fxi_json_raw(j, text);
}

/* Writes n bytes that are known to be UTF-8. */
static void put_characters(fx_json *j, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t plain = i;
        while (plain < n && is_plain((unsigned char)s[plain]))
            plain++;
        fxi_json_bytes(j, s + i, plain - i);
        if (plain < n)
            put_escape(j, (unsigned char)s[plain++]);
        i = plain;
    }
}

static void put_string(fx_json *j, const char *s)
{
    size_t left = strlen(s), bad;
    fxi_json_bytes(j, "\"", 1);
    while (!fxi_is_utf8((const unsigned char *)s, left, &bad)) {
        put_characters(j, s, bad);
        fxi_json_raw(j, "\\ufffd");
        j->not_utf8 = true;
        s += bad + 1;
        left -= bad + 1;
    }
    put_characters(j, s, left);
    fxi_json_bytes(j, "\"", 1);
}

static void begin_value(fx_json *j, const char *key)
{
    if (j->more[j->depth])
        fxi_json_bytes(j, ",", 1);
    j->more[j->depth] = true;
    if (key) {
        put_string(j, key);
        fxi_json_bytes(j, ":", 1);
    }
}

void fx_json_open(fx_json *j, const char *key, char bracket)
{
    begin_value(j, key);
    if (j->depth == FX_JSON_DEPTH)
        return;
    j->close[j->depth++] = bracket == '{' ? '}' : ']';
    j->more[j->depth] = false;
    fxi_json_bytes(j, &bracket, 1);
}

void fx_json_close(fx_json *j)
{
    if (j->depth > 0)
        fxi_json_bytes(j, &j->close[--j->depth], 1);
}

void fx_json_text(fx_json *j, const char *key, const char *text)
{
    begin_value(j, key);
    if (text)
        put_string(j, text);
    else
        fxi_json_raw(j, "null");
}

static const char *shortest(double x, bool narrow, char text[FX_SHORTEST_TEXT])
{
    if (!isfinite(x)) {
        snprintf(text, FX_SHORTEST_TEXT, "%s", isnan(x) ? "NaN" : x > 0 ? "Inf" : "-Inf");
        return text;
    }
    for (int precision = 6; precision <= 17; precision++) {
        fxi_snprintf(text, FX_SHORTEST_TEXT, "%.*g", precision, x);
        if (narrow ? fxi_strtof(text, NULL) == (float)x : fxi_strtod(text, NULL) == x)
            break;
    }
    return text;
}

const char *fx_shortest(double x, char text[FX_SHORTEST_TEXT])
{
    return shortest(x, false, text);
}

const char *fx_shortest_f32(float x, char text[FX_SHORTEST_TEXT])
{
    return shortest((double)x, true, text);
}

void fx_json_number(fx_json *j, const char *key, double x)
{
    char text[FX_SHORTEST_TEXT];
    begin_value(j, key);
    fxi_json_raw(j, isfinite(x) ? fx_shortest(x, text) : "null");
}

void fx_json_rounded(fx_json *j, const char *key, double x, int digits)
{
    char text[FX_SHORTEST_TEXT];
    begin_value(j, key);
    fxi_snprintf(text, sizeof text, "%.*g", digits < 17 ? digits : 17, x);
    fxi_json_raw(j, isfinite(x) ? text : "null");
}

void fx_json_integer(fx_json *j, const char *key, int64_t x)
{
    char text[FX_SHORTEST_TEXT];
    begin_value(j, key);
    snprintf(text, sizeof text, "%" PRId64, x);
    fxi_json_raw(j, text);
}

void fx_json_flag(fx_json *j, const char *key, bool x)
{
    begin_value(j, key);
    fxi_json_raw(j, x ? "true" : "false");
}

void fx_json_end(fx_json *j)
{
    while (j->depth > 0)
        fx_json_close(j);
    fxi_json_bytes(j, "\n", 1);
}
