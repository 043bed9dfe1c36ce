/* bson_objects.h: makes objects from the values of a BSON document that Julia wrote. Internal. */
#ifndef CFLUX_BSON_OBJECTS_H
#define CFLUX_BSON_OBJECTS_H

#include "bson_julia.h"

/* The contents of a BSON file as a named tuple, owned by the scope; an error array if it cannot be
 * read (recorded). */
void *fxi_bson_load(fxi_bytes *b);

/* The object for a value; NULL for Julia's nothing, and on failure (recorded in j->b). The object
 * of a reference is made once. */
void *fxi_bson_object(fxi_julia *j, fxi_bson v, int depth);

/* A growing list of objects and their names. */
typedef struct fxi_bson_list {
    void **items;
    const char **names;
    int32_t n, items_capacity, names_capacity;
} fxi_bson_list;
/* Makes the objects of all values of a container; its keys are the names. */
void fxi_bson_list_fill(fxi_julia *j, fxi_bson_list *list, fxi_bson container, int depth);
/* *out_twice: the position of a duplicate name, −1 if there is none. False if out of memory, not
 * recorded. */
bool fxi_bson_list_unique(const fxi_bson_list *list, int32_t *out_twice);
void fxi_bson_list_free(fxi_bson_list *list);

/* Appends an object; false if out of memory (recorded). The name is not copied. */
bool fxi_bson_list_push(fxi_julia *j, fxi_bson_list *list, const char *name, void *object);

/* The file offset of a value, for messages. */
size_t fxi_bson_offset(const fxi_julia *j, fxi_bson v);
/* An array of these sizes with the bytes of `data`; NULL on failure (recorded). */
void *fxi_bson_elements(fxi_julia *j, const fxi_file_type *type, fxi_bson data,
                        const fx_dims *size);
/* The text of a string or symbol; NULL for other values. */
const char *fxi_bson_key_text(const fxi_julia *j, fxi_bson v);

/* The dictionary that a struct represents. */
void *fxi_bson_dictionary(fxi_julia *j, fxi_bson v, int depth);
/* Makes a Dict{Symbol,Any} of these entries. Frees the list. */
void *fxi_bson_symbols(fxi_julia *j, fxi_bson_list *list);

/* The layer that a struct of this type describes; NULL if the library has no such layer, or on
 * failure (recorded in j->b). */
void *fxi_bson_layer(fxi_julia *j, const char *type, fxi_bson v, int depth);
/* The field names of a Flux struct, "σ weight bias"; NULL if unknown. */
const char *fxi_bson_field_names(const char *type, int nfields);

/* The layer that an anonymous function computes, recognised by its lowered form; NULL if it is none
 * of the known patterns. */
void *fxi_bson_closure(fxi_julia *j, fxi_bson v);
/* The same for the activation of a layer, which gets numbers: x -> x^2. */
fx_function *fxi_bson_closure_of_number(fxi_julia *j, fxi_bson v);
/* The type (I64, F64 or F32) in which a number of a closure is written back. */
fx_dtype fxi_closure_literal(fxi_bson v, double number);

#endif
