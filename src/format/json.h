/* json.h: the JSON of file headers: read a piece at a time, without building anything. Internal.
 *
 * Headers are objects of known shape, so their reader asks for what must come next. Nothing here
 * recurses. Text is checked to be UTF-8 by who opens it.
 */
#ifndef CFLUX_JSON_H
#define CFLUX_JSON_H

#include "bytes.h"

#include <cflux/json_out.h>

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

/* Text is written by cflux/json_out.h. An fx_json without a file writes to memory: `text` of `n`
 * bytes, freed with fxi_free. `failed`: no memory, or more than 2 GiB; `not_utf8`: a string was not
 * UTF-8. */
void fxi_json_bytes(fx_json *j, const char *s, size_t n); /* as they are */
void fxi_json_raw(fx_json *j, const char *text);          /* as it is */

#endif
