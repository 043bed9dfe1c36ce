/* toml.h: reads and changes one value in a TOML file. Internal. A preference file belongs to the
 * user and to other programs, so everything except the one value stays the same, byte for byte.
 * Hence this is a scanner of TOML 1.0 that finds locations, not a reader and writer of the whole
 * file.
 */
#ifndef CFLUX_TOML_H
#define CFLUX_TOML_H

#include <stdbool.h>
#include <stddef.h>

typedef struct fxi_toml_error {
    int line; /* from 1; 0: no error */
    char text[120];
    bool of_value; /* the text is TOML, but the value is not one that the function reads */
} fxi_toml_error;

/* Copies the string at table.key into value; `found`: whether it exists. False if the text is not
 * TOML, or the value is not a string or does not fit (error is filled in). */
bool fxi_toml_string(const char *text, size_t n, const char *table, const char *key, char *value,
                     size_t capacity, bool *found, fxi_toml_error *error);

/* As fxi_toml_string, also for values that are not strings: copies `true`, `false`, a number or a
 * date as it is written. False for arrays, tables and values with a time of day. */
bool fxi_toml_text(const char *text, size_t n, const char *table, const char *key, char *value,
                   size_t capacity, bool *found, fxi_toml_error *error);

/* Returns the text with table.key = value, in memory of fxi_malloc; `value` is TOML, such as true
 * or "CUDA" with its quotes. NULL: the text is not TOML, table.key is a table, or `table` is not a
 * table (error is filled in), or the allocation fails (error->line is 0). */
char *fxi_toml_set_raw(const char *text, size_t n, const char *table, const char *key,
                       const char *value, size_t *out_n, fxi_toml_error *error);

#endif
