/* cflux/json_out.h: writes JSON: logs, reports, file headers, and output of programs. */
#ifndef CFLUX_JSON_OUT_H
#define CFLUX_JSON_OUT_H

#include <cflux/base.h>

FXI_BEGIN_C

/* Maximum nesting of arrays and objects. */
enum { FX_JSON_DEPTH = 256 };

/* A JSON document that is being written. Set `to` and leave the other members zero:
 *
 *     fx_json j = {.to = stdout};
 *     fx_json_open(&j, NULL, '{');
 *     fx_json_number(&j, "loss", 0.25);
 *     fx_json_end(&j);                       // {"loss":0.25}
 *
 * Numbers do not depend on the locale. NaN and infinite numbers are written as null, because JSON
 * cannot represent them. A byte that is not UTF-8 becomes U+FFFD. The functions do not report
 * errors: check ferror(to) at the end. */
typedef struct fx_json {
    FILE *to; /* the output */
    /* The members below are private. */
    int depth;
    char close[FX_JSON_DEPTH];
    bool more[FX_JSON_DEPTH + 1]; /* a value was written at this depth: a comma is next */
    char *text;                   /* with to == NULL: the text so far; the library frees it */
    int32_t n, capacity;
    bool failed, not_utf8;
} fx_json;

/* Each function below writes one value: with a key in an object, with key NULL in an array. */
/* Begins an object (bracket '{') or an array (bracket '['). Beyond FX_JSON_DEPTH it writes nothing,
 * and the output is not valid JSON. */
FX_API void fx_json_open(fx_json *j, const char *key, char bracket);
/* Ends the innermost object or array. */
FX_API void fx_json_close(fx_json *j);
/* Writes a string; null if text is NULL. */
FX_API void fx_json_text(fx_json *j, const char *key, const char *text);
/* Writes the shortest number that reads back as x. */
FX_API void fx_json_number(fx_json *j, const char *key, double x);
/* Writes a number rounded to `digits` significant digits: shorter and faster than
 * fx_json_number. */
FX_API void fx_json_rounded(fx_json *j, const char *key, double x, int digits);
FX_API void fx_json_integer(fx_json *j, const char *key, int64_t x); /* writes an integer */
FX_API void fx_json_flag(fx_json *j, const char *key, bool x);       /* writes true or false */
/* Closes all open objects and arrays and ends the line. */
FX_API void fx_json_end(fx_json *j);

/* Size in bytes of the buffer for fx_shortest. */
enum { FX_SHORTEST_TEXT = 40 };
/* Writes the shortest text that reads back as the same number, as fx_json_number; "NaN", "Inf" or
 * "-Inf". Returns `text`. */
FX_API const char *fx_shortest(double x, char text[FX_SHORTEST_TEXT]);
FX_API const char *fx_shortest_f32(float x, char text[FX_SHORTEST_TEXT]);

FXI_END_C
#endif
