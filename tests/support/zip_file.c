/* zip_file.c: writes ZIP archives: see zip_file.h. */
#include "zip_file.h"
#include "temp_file.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef struct bytes {
    unsigned char *data;
    size_t n, capacity;
} bytes;

static void add(bytes *b, const void *data, size_t n)
{
    if (b->n + n > b->capacity) {
        b->capacity = 2 * (b->n + n);
        b->data = realloc(b->data, b->capacity);
        assert(b->data);
    }
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put(bytes *b, uint64_t value, int n)
{
    for (int i = 0; i < n; i++)
        add(b, &(unsigned char){(unsigned char)(value >> 8 * i)}, 1);
}

static size_t deflated(const zip_member *m, unsigned char *to, size_t capacity)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)m->data,
                  .avail_in = (uInt)m->size,
                  .next_out = to,
                  .avail_out = (uInt)capacity};
    int code = deflateInit2(&z, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY);
    assert(code == Z_OK);
    code = deflate(&z, Z_FINISH);
    assert(code == Z_STREAM_END);
    deflateEnd(&z);
    (void)code;
    return capacity - z.avail_out;
}

/* Writes the fields that a member's header shares with its directory entry. */
static void put_common(bytes *b, const zip_member *m, size_t packed)
{
    put(b, 20, 2);
    put(b, 0x800, 2); /* flag: names are UTF-8 */
    put(b, Z_DEFLATED, 2);
    put(b, 0x210000, 4);
    put(b, (uint32_t)crc32_z(0, m->data, m->size), 4);
    put(b, (uint32_t)packed, 4);
    put(b, m->declared ? m->declared : (uint32_t)m->size, 4);
    put(b, (uint32_t)strlen(m->name), 2);
    put(b, 0, 2);
}

const char *temp_zip(const char *name, const zip_member *members, int n, size_t *out_bytes)
{
    bytes file = {0}, directory = {0};
    for (int i = 0; i < n; i++) {
        const zip_member *m = &members[i];
        const size_t capacity = m->size + m->size / 100 + 1000, at = file.n;
        unsigned char *packed = malloc(capacity);
        assert(packed);
        const size_t size = deflated(m, packed, capacity);
        put(&file, 0x04034b50, 4);
        put_common(&file, m, size);
        add(&file, m->name, strlen(m->name));
        add(&file, packed, size);
        free(packed);
        put(&directory, 0x02014b50, 4);
        put(&directory, 20, 2);
        put_common(&directory, m, size);
        put(&directory, 0, 6);
        put(&directory, 0, 4);
        put(&directory, (uint32_t)at, 4);
        add(&directory, m->name, strlen(m->name));
    }
    const size_t begin = file.n;
    add(&file, directory.data, directory.n);
    put(&file, 0x06054b50, 4);
    put(&file, 0, 4);
    put(&file, (uint32_t)n, 2);
    put(&file, (uint32_t)n, 2);
    put(&file, (uint32_t)directory.n, 4);
    put(&file, (uint32_t)begin, 4);
    put(&file, 0, 2);
    const char *path = temp_file(name, file.data, file.n);
    *out_bytes = file.n;
    free(file.data);
    free(directory.data);
    return path;
}
