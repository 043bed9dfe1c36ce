/* bson_out.h: counts or writes the bytes of a BSON document. Internal.
 *
 * The caller makes the same calls twice: first without memory, to count the bytes, then with a
 * buffer of exactly that size. Nothing here allocates, so nothing here can run out of memory.
 */
#ifndef CFLUX_BSON_OUT_H
#define CFLUX_BSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fxi_bson_out {
    uint8_t *bytes;   /* NULL: only count the bytes */
    int64_t capacity; /* of bytes */
    int64_t at;       /* bytes of the document so far; more than the capacity if it did not fit */
} fxi_bson_out;

/* Begins a nested document or array: everything put before fxi_bson_end belongs to it. `key` is
 * NULL for the root document. */
int64_t fxi_bson_begin(fxi_bson_out *o, const char *key, bool array);
void fxi_bson_end(fxi_bson_out *o, int64_t begun);

void fxi_bson_null(fxi_bson_out *o, const char *key);
void fxi_bson_bool(fxi_bson_out *o, const char *key, bool v);
void fxi_bson_int32(fxi_bson_out *o, const char *key, int32_t v);
void fxi_bson_int64(fxi_bson_out *o, const char *key, int64_t v);
void fxi_bson_double(fxi_bson_out *o, const char *key, double v);
void fxi_bson_text(fxi_bson_out *o, const char *key, const char *text);
/* Adds n bytes. Returns their address, which the caller fills in; NULL while only counting, or if
 * they do not fit. */
void *fxi_bson_binary(fxi_bson_out *o, const char *key, int64_t n);

#endif
