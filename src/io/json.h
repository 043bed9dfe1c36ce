/* json.h: the JSON of file headers: read a piece at a time, without building anything. Internal to
 * src/io.
 *
 * Headers are objects of known shape, so their reader asks for what must come next. Nothing here
 * recurses. Text is checked to be UTF-8 by who opens it.
 */
#ifndef CFLUX_JSON_H
#define CFLUX_JSON_H

#include "bytes.h"

/* The next character that is no white space; 0 at the end. It stays. */
unsigned char fxi_json_peek(fxi_bytes *b);
/* Takes that character if it is c. */
bool fxi_json_take(fxi_bytes *b, unsigned char c);
/* It must be c: else recorded, "expected … ". False then. */
bool fxi_json_expect(fxi_bytes *b, unsigned char c);
/* Between the items of a list or object that ends with `close`: true when another item follows,
 * false at the end (taken) or on an error. `first`: before the first item. */
bool fxi_json_more(fxi_bytes *b, unsigned char close, bool first);
/* A string, its escapes resolved, in memory of fxi_malloc; NULL: recorded. A zero byte in it is
 * refused. */
char *fxi_json_string(fxi_bytes *b);
/* A whole number from 0 to 2^63 − 1; anything else is refused. */
uint64_t fxi_json_count(fxi_bytes *b);

/* Growing text that is written. */
typedef struct fxi_json_out {
    char *text;
    int32_t n, capacity;
    bool failed; /* memory, or more than 2 GiB */
} fxi_json_out;
void fxi_json_put(fxi_json_out *out, const char *format, ...) FXI_PRINTF(2, 3);
void fxi_json_put_string(fxi_json_out *out, const char *s); /* with quotes and escapes */

#endif
