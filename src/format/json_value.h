/* json_value.h: any JSON text, read into memory. For texts whose structure is not known in advance;
 * headers of files are read piece by piece (json.h). Internal. */
#ifndef CFLUX_JSON_VALUE_H
#define CFLUX_JSON_VALUE_H

#include "bytes.h"

typedef enum fxi_json_kind {
    FXI_JSON_NULL,
    FXI_JSON_FLAG,
    FXI_JSON_NUMBER,
    FXI_JSON_TEXT,
    FXI_JSON_LIST,
    FXI_JSON_OBJECT
} fxi_json_kind;

typedef struct fxi_json {
    fxi_json_kind kind;
    bool flag;
    double number; /* infinite if the number is too large for a double */
    char *text;
    char *name;                    /* of a member of an object, otherwise NULL */
    struct fxi_json *child, *next; /* first value of a list or object; next value of the same */
} fxi_json;

/* Reads the single JSON value in the bytes. NULL on failure: FX_STATUS_FORMAT (also for nesting
 * beyond FXI_IO_MAX_DEPTH) or FX_STATUS_MEMORY is recorded. */
fxi_json *fxi_json_read(fxi_bytes *b);
void fxi_json_free(fxi_json *value); /* frees its children too; NULL is allowed */

/* The functions below accept NULL, and values of any kind. */
/* The first member with this name; NULL if there is none. */
const fxi_json *fxi_json_member(const fxi_json *object, const char *name);
const fxi_json *fxi_json_item(const fxi_json *list, size_t index); /* NULL if the list is shorter */
size_t fxi_json_length(const fxi_json *list);                /* of a list or object; otherwise 0 */
const char *fxi_json_text_of(const fxi_json *value);         /* NULL if it is not a text */
double fxi_json_number_of(const fxi_json *value);            /* NaN if it is not a finite number */
bool fxi_json_is(const fxi_json *value, fxi_json_kind kind); /* false for NULL */

#endif
