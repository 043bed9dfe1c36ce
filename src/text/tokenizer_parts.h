/* tokenizer_parts.h: the parts of a tokenizer, for the files that learn, load and save one.
 * Internal. */
#ifndef CFLUX_TOKENIZER_PARTS_H
#define CFLUX_TOKENIZER_PARTS_H

#include <cflux/tokenizer.h>
#include <cflux/tree.h>

#include "pair_map.h"
#include "string_table.h"

typedef struct fxi_merge {
    int32_t a, b, joined; /* ids: the bytes of `joined` are those of a and b */
} fxi_merge;

struct fx_tokenizer {
    fx_object base;
    fxi_strings tokens; /* the bytes of each token, by its id */
    fxi_merge *merges;  /* in their order: the first is applied first */
    int32_t nmerges, merges_capacity;
    fxi_pair_map ranks;    /* pair → position in merges */
    int32_t byte_ids[256]; /* the token of each byte */
};

/* Functions with an argument `op` record a failure under that name and return false. */
/* Adds a merge at the end; *out_id is the id of the joined token, which is added if it is new. */
bool fxi_tokenizer_add_merge(fx_tokenizer *parts, const char *op, int32_t a, int32_t b,
                             int32_t *out_id);
/* Adds the 256 bytes in the order of their characters, as in GPT-2's vocabulary. False: out of
 * memory. */
bool fxi_tokenizer_add_bytes(fx_tokenizer *parts);
/* Finds the tokens of the bytes. Returns the first byte that has none; 256: all have one. */
int fxi_tokenizer_find_bytes(fx_tokenizer *parts);
/* The object that owns the parts, or the error object if they are not `good` (recorded). Frees the
 * parts if it fails. */
fx_tokenizer *fxi_tokenizer_finish(fx_tokenizer *parts, bool good);

/* True if the object is a tokenizer. If not, records that under the name `op`, unless it is an
 * error object, which was recorded. */
bool fxi_tokenizer_check(const fx_tokenizer *t, const char *op);

/* GPT-2's printable character for a byte: a byte that prints is its own character, the others are
 * U+0100 to U+0143 in their order. */
uint32_t fxi_byte_character(unsigned char byte);
/* The byte whose printable character is c; −1 if there is none. */
int fxi_character_byte(uint32_t c);

#endif
