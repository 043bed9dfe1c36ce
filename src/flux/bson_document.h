/* bson_document.h: the values of a BSON document, checked once and then looked at where they lie.
 * Internal.
 *
 * libbson walks the bytes. Its functions that call themselves overflow the stack on 80 KB of nested
 * brackets, so only its iterator is used, and the nesting is bounded here before anything else
 * looks at the document.
 */
#ifndef CFLUX_BSON_DOCUMENT_H
#define CFLUX_BSON_DOCUMENT_H

#include "bytes.h"

#include <bson/bson.h>

typedef enum fxi_bson_kind {
    FXI_BSON_NOTHING = 0, /* there is no such value */
    FXI_BSON_NULL,
    FXI_BSON_BOOL,
    FXI_BSON_INT,
    FXI_BSON_DOUBLE,
    FXI_BSON_STRING,
    FXI_BSON_BINARY,
    FXI_BSON_DOCUMENT,
    FXI_BSON_ARRAY
} fxi_bson_kind;

/* A value; what it points to are the bytes of the file. */
typedef struct fxi_bson {
    fxi_bson_kind kind;
    uint32_t size; /* of a string without its end, of a binary, of a document as it lies there */
    union {
        int64_t integer; /* also of a Bool */
        double number;
        const uint8_t *bytes;
        const char *text; /* UTF-8; terminated, and may have zeros inside */
    } u;
} fxi_bson;

typedef struct fxi_bson_items {
    bson_iter_t iter;
    bool open;
    const char *key; /* of the value that was last returned */
} fxi_bson_items;

/* Checks the whole document: lengths, ends, UTF-8, kinds that Flux's files have, and nesting of at
 * most FXI_BSON_MAX_NESTING. The root, or kind NOTHING: recorded. */
enum { FXI_BSON_MAX_NESTING = 400 };
fxi_bson fxi_bson_open(fxi_bytes *b);

/* The values of a document or array, one after the other. */
fxi_bson_items fxi_bson_items_of(fxi_bson container);
bool fxi_bson_next(fxi_bson_items *items, fxi_bson *out_value);
int64_t fxi_bson_count(fxi_bson container);
/* Value `key` of a document, value i of an array; kind NOTHING when it is not there. */
fxi_bson fxi_bson_get(fxi_bson document, const char *key);
fxi_bson fxi_bson_at(fxi_bson array, int64_t i);
/* Is it the text? */
bool fxi_bson_is(fxi_bson value, const char *text);

#endif
