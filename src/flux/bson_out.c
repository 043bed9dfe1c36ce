/* bson_out.c: counts or writes the bytes of a BSON document: see bson_out.h.
 *
 * The library writes these bytes itself for two reasons: libbson's writer aborts the process when
 * it runs out of memory, and libbson's allocator is global, so a library must not replace it while
 * the program may use libbson too.
 *
 * The format (bsonspec.org): a document is its length (32 bits, little endian), its elements and a
 * zero byte; the length counts all of them. An element is a type byte, its zero-terminated key, and
 * its value.
 */
#include "bson_out.h"

#include <string.h>

enum {
    TYPE_DOUBLE = 1,
    TYPE_TEXT = 2,
    TYPE_DOCUMENT = 3,
    TYPE_ARRAY = 4,
    TYPE_BINARY = 5,
    TYPE_BOOL = 8,
    TYPE_NULL = 10,
    TYPE_INT32 = 16,
    TYPE_INT64 = 18
};

/* The address of the next n bytes; NULL while only counting, or if they do not fit. */
static uint8_t *take(fxi_bson_out *o, int64_t n)
{
    const int64_t at = o->at;
    o->at += n;
    return o->bytes && o->at <= o->capacity ? o->bytes + at : NULL;
}

static void put(fxi_bson_out *o, const void *data, size_t n)
{
    uint8_t *to = take(o, (int64_t)n);
    if (to)
        memcpy(to, data, n);
}

static void store(uint8_t *to, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(v >> 8 * i);
}

static void number(fxi_bson_out *o, uint64_t v, int bytes)
{
    uint8_t *to = take(o, bytes);
    if (to)
        store(to, v, bytes);
}

static void element(fxi_bson_out *o, int type, const char *key)
{
    number(o, (uint64_t)type, 1);
    put(o, key, strlen(key) + 1);
}

int64_t fxi_bson_begin(fxi_bson_out *o, const char *key, bool array)
{
    if (key)
        element(o, array ? TYPE_ARRAY : TYPE_DOCUMENT, key);
    const int64_t begun = o->at;
    number(o, 0, 4); /* length, filled in by fxi_bson_end */
    return begun;
}

void fxi_bson_end(fxi_bson_out *o, int64_t begun)
{
    number(o, 0, 1);
    if (o->bytes && o->at <= o->capacity)
        store(o->bytes + begun, (uint64_t)(o->at - begun), 4);
}

void fxi_bson_null(fxi_bson_out *o, const char *key)
{
    element(o, TYPE_NULL, key);
}

void fxi_bson_bool(fxi_bson_out *o, const char *key, bool v)
{
    element(o, TYPE_BOOL, key);
    number(o, v, 1);
}

void fxi_bson_int32(fxi_bson_out *o, const char *key, int32_t v)
{
    element(o, TYPE_INT32, key);
    number(o, (uint32_t)v, 4);
}

void fxi_bson_int64(fxi_bson_out *o, const char *key, int64_t v)
{
    element(o, TYPE_INT64, key);
    number(o, (uint64_t)v, 8);
}

void fxi_bson_double(fxi_bson_out *o, const char *key, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    element(o, TYPE_DOUBLE, key);
    number(o, bits, 8);
}

void fxi_bson_text(fxi_bson_out *o, const char *key, const char *text)
{
    const size_t n = strlen(text) + 1;
    element(o, TYPE_TEXT, key);
    number(o, n, 4);
    put(o, text, n);
}

void *fxi_bson_binary(fxi_bson_out *o, const char *key, int64_t n)
{
    element(o, TYPE_BINARY, key);
    number(o, (uint64_t)n, 4);
    number(o, 0, 1); /* subtype: generic bytes */
    return take(o, n);
}
