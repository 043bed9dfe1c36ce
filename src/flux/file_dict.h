/* file_dict.h: a dictionary read from a Julia file. Internal.
 *
 * All code but BSON sees it as a named tuple whose names are the keys (numbers as text). BSON
 * writes it as a dictionary again.
 */
#ifndef CFLUX_FILE_DICT_H
#define CFLUX_FILE_DICT_H

#include <cflux/tree.h>

typedef enum fxi_dict_keys { FXI_KEYS_SYMBOL, FXI_KEYS_STRING, FXI_KEYS_INT } fxi_dict_keys;

typedef struct fxi_dict_object {
    fx_object base;
    fx_list items; /* same member as in fx_tuple_object */
    fxi_dict_keys keys;
    bool by_identity; /* an IdDict, which compares keys by identity */
} fxi_dict_object;

/* Makes a dictionary. Copies names and children. */
void *fxi_file_dict(const fxi_dict_object *init);
/* NULL if the object is not a dictionary. */
const fxi_dict_object *fxi_file_dict_of(const void *object);

#endif
