/* string_table.c: distinct strings of bytes: see string_table.h. Open addressing, at most half
 * full. */
#include "string_table.h"
#include "hash.h"
#include "memory.h"

#include <string.h>

const unsigned char *fxi_strings_get(const fxi_strings *table, int32_t i, size_t *out_n)
{
    const size_t start = i > 0 ? table->end[i - 1] : 0;
    *out_n = table->end[i] - start;
    return table->bytes + start;
}

/* The bucket of the string, or the empty bucket where it belongs. */
static uint32_t bucket_of(const fxi_strings *table, const void *s, size_t n)
{
    const uint32_t mask = (uint32_t)table->nbuckets - 1;
    uint32_t at = (uint32_t)fxi_hash(s, n, 0) & mask;
    for (; table->buckets[at] > 0; at = (at + 1) & mask) {
        size_t length;
        const unsigned char *other = fxi_strings_get(table, table->buckets[at] - 1, &length);
        if (length == n && memcmp(other, s, n) == 0)
            break;
    }
    return at;
}

int32_t fxi_strings_find(const fxi_strings *table, const void *s, size_t n)
{
    return table->nbuckets > 0 ? table->buckets[bucket_of(table, s, n)] - 1 : -1;
}

static bool grow_buckets(fxi_strings *table)
{
    enum { FIRST = 1024 };
    const int32_t nbuckets = table->nbuckets ? 2 * table->nbuckets : FIRST;
    int32_t *buckets = fxi_calloc((size_t)nbuckets, sizeof *buckets);
    if (!buckets)
        return false;
    fxi_free(table->buckets);
    table->buckets = buckets;
    table->nbuckets = nbuckets;
    for (int32_t i = 0; i < table->count; i++) {
        size_t n;
        const unsigned char *s = fxi_strings_get(table, i, &n);
        buckets[bucket_of(table, s, n)] = i + 1;
    }
    return true;
}

static bool grow_bytes(fxi_strings *table, size_t n)
{
    size_t capacity = table->capacity ? table->capacity : 4096;
    while (capacity < table->used + n)
        capacity *= 2;
    unsigned char *bytes =
        capacity > table->capacity ? fxi_realloc(table->bytes, capacity) : table->bytes;
    if (!bytes)
        return false;
    table->bytes = bytes;
    table->capacity = capacity;
    return true;
}

int32_t fxi_strings_add(fxi_strings *table, const void *s, size_t n)
{
    const int32_t known = fxi_strings_find(table, s, n), number = table->count;
    if (known >= 0)
        return known;
    if (number == FXI_STRINGS_MOST || (number >= table->nbuckets / 2 && !grow_buckets(table)) ||
        !grow_bytes(table, n) ||
        !fxi_grow(&table->end, &table->end_capacity, number + 1, sizeof *table->end))
        return -1;
    const uint32_t at = bucket_of(table, s, n);
    if (n > 0)
        memcpy(table->bytes + table->used, s, n);
    table->used += n;
    table->end[number] = table->used;
    table->buckets[at] = number + 1;
    table->count++;
    return number;
}

void fxi_strings_free(fxi_strings *table)
{
    fxi_free(table->bytes);
    fxi_free(table->end);
    fxi_free(table->buckets);
    *table = (fxi_strings){0};
}
