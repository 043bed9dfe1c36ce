/* bson_document.h: checks a BSON document once and then reads its values in place. Internal.
 *
 * libbson parses the bytes. Its recursive functions overflow the stack on 80 KB of nested brackets,
 * so only its iterator is used, and the nesting depth is limited before anything else reads the
 * document.
 */
#ifndef CFLUX_BSON_DOCUMENT_H
#define CFLUX_BSON_DOCUMENT_H

#include "bytes.h"

#include <bson/bson.h>

typedef enum fxi_bson_kind {
    FXI_BSON_NOTHING = 0, /* the value does not exist */
    FXI_BSON_NULL,
    FXI_BSON_BOOL,
    FXI_BSON_INT,
    FXI_BSON_DOUBLE,
    FXI_BSON_STRING,
    FXI_BSON_BINARY,
    FXI_BSON_DOCUMENT,
    FXI_BSON_ARRAY
} fxi_bson_kind;

/* A value. Its pointers point into the file. */
typedef struct fxi_bson {
    fxi_bson_kind kind;
    uint32_t size; /* of an integer, a string without its end, a binary, a whole document */
    union {
        int64_t integer; /* also for a Bool */
        double number;
        const uint8_t *bytes;
        const char *text; /* UTF-8; terminated, may contain zero bytes */
    } u;
} fxi_bson;

typedef struct fxi_bson_items {
    bson_iter_t iter;
    bool open;
    const char *key; /* of the value returned most recently */
} fxi_bson_items;

/* Checks the whole document: lengths, terminators, UTF-8, element types that Flux's files use,
 * nesting of at most FXI_BSON_MAX_NESTING, and at most FXI_BSON_MAX_TAGGED keys in a document with
 * the key "tag": a file can refer to such a document very often. Returns the root, or kind NOTHING
 * on failure (recorded). */
enum { FXI_BSON_MAX_NESTING = 400, FXI_BSON_MAX_TAGGED = 16 };
fxi_bson fxi_bson_open(fxi_bytes *b);

/* Iterates over the values of a document or array. */
fxi_bson_items fxi_bson_items_of(fxi_bson container);
bool fxi_bson_next(fxi_bson_items *items, fxi_bson *out_value);
int64_t fxi_bson_count(fxi_bson container);
/* The value with this key in a document, or value i of an array; kind NOTHING if missing. */
fxi_bson fxi_bson_get(fxi_bson document, const char *key);
fxi_bson fxi_bson_at(fxi_bson array, int64_t i);
/* The value with the key "tag" in a checked document. Takes no longer for a document of many keys.
 */
fxi_bson fxi_bson_tag(fxi_bson document);
/* True if the value is this text. */
bool fxi_bson_is(fxi_bson value, const char *text);

#endif
