/* cflux/json_out.h: writes JSON: logs, reports, file headers, and what programs print. */
#ifndef CFLUX_JSON_OUT_H
#define CFLUX_JSON_OUT_H

#include <cflux/base.h>

FXI_BEGIN_C

/* How deep arrays and objects may be nested. */
enum { FX_JSON_DEPTH = 256 };

/* A document that is being written. It is ready when it is zero but for the file:
 *
 *     fx_json j = {.to = stdout};
 *     fx_json_open(&j, NULL, '{');
 *     fx_json_number(&j, "loss", 0.25);
 *     fx_json_end(&j);                       // {"loss":0.25}
 *
 * Numbers do not depend on the locale. NaN and infinite numbers are written as null, because JSON
 * has none. A byte that is not UTF-8 becomes U+FFFD. The functions report nothing: ask ferror(to)
 * at the end. */
typedef struct fx_json {
    FILE *to;
    /* The members from here on are the library's. */
    int depth;
    char close[FX_JSON_DEPTH];
    bool more[FX_JSON_DEPTH + 1]; /* a value was written at this depth: a comma comes first */
    char *text;                   /* with to == NULL: what was written, in memory of the library */
    int32_t n, capacity;
    bool failed, not_utf8;
} fx_json;

/* Each function below writes one value. In an object a value has a key, in an array the key is
 * NULL. */
/* Begins an object ('{') or an array ('['). */
FX_API void fx_json_open(fx_json *j, const char *key, char bracket);
/* Ends the innermost object or array. */
FX_API void fx_json_close(fx_json *j);
/* A string; null if text is NULL. */
FX_API void fx_json_text(fx_json *j, const char *key, const char *text);
/* The shortest number that reads back as x. */
FX_API void fx_json_number(fx_json *j, const char *key, double x);
/* A number, rounded to so many significant digits: shorter and faster to write. */
FX_API void fx_json_rounded(fx_json *j, const char *key, double x, int digits);
FX_API void fx_json_integer(fx_json *j, const char *key, int64_t x); /* A whole number. */
FX_API void fx_json_flag(fx_json *j, const char *key, bool x);       /* true or false. */
/* Closes everything that is open and ends the line. */
FX_API void fx_json_end(fx_json *j);

/* Bytes that the text of a number takes. */
enum { FX_SHORTEST_TEXT = 40 };
/* The shortest text that reads back as the same number, as fx_json_number writes it; "NaN", "Inf"
 * or "-Inf". Returns text. */
FX_API const char *fx_shortest(double x, char text[FX_SHORTEST_TEXT]);
FX_API const char *fx_shortest_f32(float x, char text[FX_SHORTEST_TEXT]);

FXI_END_C
#endif
