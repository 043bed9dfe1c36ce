/* flux_rows.h: finds rows of a layer's table by the field names of Flux's structs. Internal. */
#ifndef CFLUX_FLUX_ROWS_H
#define CFLUX_FLUX_ROWS_H

#include <cflux/layer.h>

/* A word of a blank-separated list. */
typedef struct fxi_word {
    const char *from;
    int n;
} fxi_word;

/* The next word at *io_at, which then points after it; false at the end. NULL is an empty list. */
bool fxi_next_word(const char **io_at, fxi_word *out);
int fxi_count_words(const char *words);
/* The layer type whose struct in Flux has this name; NULL if there is none. */
const fx_type *fxi_type_of_flux(const char *name);
/* The same, searching from type number *io_i on; *io_i becomes the number of the found type.
 * Several types may have been one struct in an older version of Flux. */
const fx_type *fxi_next_type_of_flux(const char *name, int64_t *io_i);

/* The position of a word in a list; −1 if missing. */
int fxi_word_position(const char *words, fxi_word word);

const fx_layer_row *fxi_row(const fx_layer *layer, int i);
/* The number of the row whose field has this name in Flux; −1 if there is none. */
int fxi_row_of_flux(const fx_layer *layer, fxi_word name);
/* The number of the row with this name; −1 if there is none. */
int fxi_row_named(const fx_layer *layer, const char *name);
/* The field that holds the row's member; NULL if it has none. */
const fx_field *fxi_field_of_row(const fx_type *type, const fx_layer_row *row);
/* The address of the child, list or object pointer that is the row's member. */
void **fxi_child_address(const fx_layer_row *row, const void *layer);

#endif
