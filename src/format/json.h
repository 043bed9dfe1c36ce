/* json.h: reads the JSON of file headers piece by piece, without building a tree. Internal.
 *
 * Headers are objects of known structure, so the caller asks for the next expected piece. Nothing
 * here recurses. The caller that opens the text has checked that it is UTF-8.
 */
#ifndef CFLUX_JSON_H
#define CFLUX_JSON_H

#include "bytes.h"

#include <cflux/json_out.h>

/* The next character after white space, not consumed; 0 at the end. */
unsigned char fxi_json_peek(fxi_bytes *b);
/* Consumes the next character if it is c. */
bool fxi_json_take(fxi_bytes *b, unsigned char c);
/* Consumes c; false if the next character is another one (recorded: "expected …"). */
bool fxi_json_expect(fxi_bytes *b, unsigned char c);
/* Call between the items of a list or object that ends with `close`: true if another item follows,
 * false at the end (consumed) or on an error. `first`: before the first item. */
bool fxi_json_more(fxi_bytes *b, unsigned char close, bool first);
/* A string with its escapes resolved, allocated with fxi_malloc; NULL on failure (recorded). A zero
 * byte in it is refused. */
char *fxi_json_string(fxi_bytes *b);
/* A whole number from 0 to 2^63 − 1; other values are refused. */
uint64_t fxi_json_count(fxi_bytes *b);

/* cflux/json_out.h writes JSON text. An fx_json without a file writes to memory: `n` bytes at
 * `text`, to be freed with fxi_free. `failed`: out of memory, or more than 2 GiB; `not_utf8`: a
 * string was not UTF-8. */
void fxi_json_bytes(fx_json *j, const char *s, size_t n); /* writes the bytes unchanged */
void fxi_json_raw(fx_json *j, const char *text);          /* writes the text unchanged */

#endif
