/* toml.h: one value in a TOML file, read and changed in place. Internal.
 *
 * A preference file belongs to the user and to other programs: everything but the one value stays
 * as it is, byte for byte. So this is a scanner of TOML 1.0 that knows where things are, not a
 * reader that builds a tree and a writer that prints it again.
 */
#ifndef CFLUX_TOML_H
#define CFLUX_TOML_H

#include <stdbool.h>
#include <stddef.h>

typedef struct fxi_toml_error {
    int line; /* from 1; 0: no error */
    char text[120];
} fxi_toml_error;

/* The string at table.key: copied into value, `found` says whether it is there. False when the text
 * is no TOML, or when the value is no string or does not fit (error is filled in). */
bool fxi_toml_string(const char *text, size_t n, const char *table, const char *key, char *value,
                     size_t capacity, bool *found, fxi_toml_error *error);

/* The same text with table.key = "value", in memory of fxi_malloc; value must need no escapes.
 * NULL: the text is no TOML (error is filled in) or memory is out (error->line stays 0). */
char *fxi_toml_set(const char *text, size_t n, const char *table, const char *key,
                   const char *value, size_t *out_n, fxi_toml_error *error);

#endif
