/* bson_objects.h: the objects that a BSON document of Julia's describes. Internal. */
#ifndef CFLUX_BSON_OBJECTS_H
#define CFLUX_BSON_OBJECTS_H

#include "bson_julia.h"

/* The named tuple of what a BSON file holds, owned by the scope; an error array when it cannot be
 * read (recorded). */
void *fxi_bson_load(fxi_bytes *b);

/* The object of a value; NULL for nothing, and when something is wrong (recorded in j->b). What a
 * reference stands for is made once. */
void *fxi_bson_object(fxi_julia *j, fxi_bson v, int depth);

/* Objects and their names, which grow one by one. */
typedef struct fxi_bson_list {
    void **items;
    const char **names;
    int32_t n, items_capacity, names_capacity;
} fxi_bson_list;
/* Makes the objects of all values of a container; names are its keys. */
void fxi_bson_list_fill(fxi_julia *j, fxi_bson_list *list, fxi_bson container, int depth);
/* The place of a name that is there twice, −1: none; false: no memory, not recorded. */
bool fxi_bson_list_unique(const fxi_bson_list *list, int32_t *out_twice);
void fxi_bson_list_free(fxi_bson_list *list);

/* Adds one; false: no memory (recorded). The name is not copied. */
bool fxi_bson_list_push(fxi_julia *j, fxi_bson_list *list, const char *name, void *object);

/* Where a value begins in the file, for messages. */
size_t fxi_bson_place(const fxi_julia *j, fxi_bson v);
/* An array of these sizes whose bytes are `data`; NULL: recorded. */
void *fxi_bson_elements(fxi_julia *j, const fxi_file_type *type, fxi_bson data,
                        const fx_dims *size);
/* The text of a string or symbol; NULL: it is neither. */
const char *fxi_bson_key_text(const fxi_julia *j, fxi_bson v);

/* The dictionary that a struct is. */
void *fxi_bson_dictionary(fxi_julia *j, fxi_bson v, int depth);
/* A Dict{Symbol,Any} of these entries. Frees the list. */
void *fxi_bson_symbols(fxi_julia *j, fxi_bson_list *list);

/* The layer that a struct of this type describes, or NULL: the library has none like it, or
 * something is wrong (recorded in j->b). */
void *fxi_bson_layer(fxi_julia *j, const char *type, fxi_bson v, int depth);
/* The names of the fields of a struct of Flux, "σ weight bias"; NULL when they are not known. */
const char *fxi_bson_field_names(const char *type, int nfields);

/* The layer that an anonymous function is, recognised by its lowered form; NULL: none. */
void *fxi_bson_closure(fxi_julia *j, fxi_bson v);
/* The type, I64, F64 or F32, in which a number of a closure is written again. */
fx_dtype fxi_closure_literal(fxi_bson v, double number);

#endif
