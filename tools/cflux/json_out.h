/* json_out.h: JSON as it is written: documents of --json, and the lines of a log.
 *
 * Numbers do not depend on the locale and are the shortest text that reads back as the same double;
 * NaN and Inf, which JSON has not, are null. Bytes that are not UTF-8 become U+FFFD. */
#ifndef CFLUX_TOOL_JSON_OUT_H
#define CFLUX_TOOL_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { JSON_DEPTH = 256 };
typedef struct json_out {
    FILE *to;
    int depth;
    char close[JSON_DEPTH];
    bool more[JSON_DEPTH + 1]; /* something was written at this depth: a comma comes first */
} json_out;

/* A zeroed json_out with a file is ready: json_out j = {.to = stdout}. In an object every value has
 * a key, in an array it is NULL. */
void json_open(json_out *j, const char *key, char bracket);     /* '{' or '[' */
void json_close(json_out *j);                                   /* the innermost one */
void json_text(json_out *j, const char *key, const char *text); /* NULL: null */
void json_number(json_out *j, const char *key, double x);
/* Rounded: more digits than mean something make a log long and slow to write. */
void json_rounded(json_out *j, const char *key, double x, int digits);
void json_integer(json_out *j, const char *key, int64_t x);
void json_flag(json_out *j, const char *key, bool x);
/* The shortest text that reads back as x; "NaN", "Inf", "-Inf". Returns text. */
enum { NUMBER_TEXT = 40 };
const char *number_text(double x, char text[NUMBER_TEXT]);
const char *number_text_f32(float x, char text[NUMBER_TEXT]); /* as the same float */
/* Closes what is open and ends the line. */
void json_end(json_out *j);

#endif
