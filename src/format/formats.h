/* formats.h: the interface of a file format to fx_save and fx_load. Internal.
 *
 * To add a format, write a file that defines one fxi_format, and add a line to the table in io.c.
 */
#ifndef CFLUX_FORMATS_H
#define CFLUX_FORMATS_H

#include "bytes.h"
#include "file_out.h"

#include <cflux/io.h>

/* The arguments of a save: names and objects, and texts for the header (NULL: none). */
typedef struct fxi_saving {
    const char *op;
    int n;
    const char *const *names;
    void *const *objects;
    const void *metadata; /* see metadata.h */
} fxi_saving;

typedef struct fxi_format {
    const char *name;      /* name for messages */
    const char *extension; /* with its dot */
    bool arrays;           /* stores arrays by name, and nothing else of an object */
    /* True if the first bytes of the file are those of this format. */
    bool (*sniff)(const fxi_bytes *file);
    /* The contents of the file as a named tuple (or an array), owned by the scope. An error array
     * on failure, which is recorded: by fxi_bytes_fail if the file is malformed. */
    void *(*load)(fxi_bytes *file);
    /* Writes into `out`, which the caller opens and closes. */
    fx_status (*save)(fxi_file_out *out, const fxi_saving *what);
    /* Fills in what the file states about its origin, or a more precise name of the format; NULL:
     * the format states nothing.
     */
    fx_status (*about)(fxi_bytes *file, fx_file_info *out);
} fxi_format;

extern const fxi_format fxi_format_bson, fxi_format_safetensors, fxi_format_npy, fxi_format_npz;

#endif
