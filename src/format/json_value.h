/* json_value.h: any JSON text, read into memory. For texts whose shape is not known beforehand;
 * headers of files are read piece by piece (json.h). */
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
    double number; /* infinite if it is too large for a double */
    char *text;
    char *name;                    /* of a member of an object, else NULL */
    struct fxi_json *child, *next; /* the first of a list's or object's values; the one after it */
} fxi_json;

/* The one value that the bytes hold. NULL: FX_STATUS_FORMAT (also for more than FXI_IO_MAX_DEPTH
 * lists and objects within each other) or FX_STATUS_MEMORY is recorded. */
fxi_json *fxi_json_read(fxi_bytes *b);
void fxi_json_free(fxi_json *value); /* with all that it holds; NULL is allowed */

/* The functions below accept NULL, and values of any kind. */
/* The first member of this name; NULL if there is none. */
const fxi_json *fxi_json_member(const fxi_json *object, const char *name);
const fxi_json *fxi_json_item(const fxi_json *list, size_t index); /* NULL: it is shorter */
size_t fxi_json_length(const fxi_json *list);        /* values of a list or object; of others 0 */
const char *fxi_json_text_of(const fxi_json *value); /* NULL: not a text */
double fxi_json_number_of(const fxi_json *value);    /* NaN: not a finite number */
bool fxi_json_is(const fxi_json *value, fxi_json_kind kind); /* false for NULL */

#endif
