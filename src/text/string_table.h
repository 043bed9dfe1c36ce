/* string_table.h: distinct strings of bytes, numbered from 0 in the order in which they were added.
 * Internal. A zeroed struct is an empty table.
 */
#ifndef CFLUX_STRING_TABLE_H
#define CFLUX_STRING_TABLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct fxi_strings {
    unsigned char *bytes;
    size_t used, capacity;
    size_t *end; /* end[i]: where string i ends in `bytes`; it begins where string i − 1 ends */
    int32_t count, end_capacity;
    int32_t *buckets; /* hash table of number + 1; 0: empty */
    int32_t nbuckets; /* 0 or a power of two, at least twice count */
} fxi_strings;

enum { FXI_STRINGS_MOST = 1 << 29 };

/* The string's number; −1 if it is not in the table. */
int32_t fxi_strings_find(const fxi_strings *table, const void *s, size_t n);
/* The number of the string, which is added if it is new. −1 if there is no memory for it, or if the
 * table has FXI_STRINGS_MOST strings. */
int32_t fxi_strings_add(fxi_strings *table, const void *s, size_t n);
/* The bytes of string i, and their number. */
const unsigned char *fxi_strings_get(const fxi_strings *table, int32_t i, size_t *out_n);
void fxi_strings_free(fxi_strings *table);

#endif
