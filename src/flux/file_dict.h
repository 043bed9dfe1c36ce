/* file_dict.h: a dictionary of Julia's. Internal.
 *
 * It is a named tuple to everything but BSON, which writes it as a dictionary again: the names are
 * its keys, numbers as text.
 */
#ifndef CFLUX_FILE_DICT_H
#define CFLUX_FILE_DICT_H

#include <cflux/tree.h>

typedef enum fxi_dict_keys { FXI_KEYS_SYMBOL, FXI_KEYS_STRING, FXI_KEYS_INT } fxi_dict_keys;

typedef struct fxi_dict_object {
    fx_object base;
    fx_list items; /* as in fx_tuple_object */
    fxi_dict_keys keys;
    bool by_identity; /* an IdDict */
} fxi_dict_object;

/* Names and children are copied. */
void *fxi_file_dict(const fxi_dict_object *init);
/* NULL when the object is none. */
const fxi_dict_object *fxi_file_dict_of(const void *object);

#endif
