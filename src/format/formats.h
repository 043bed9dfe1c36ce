/* formats.h: what a file format is to fx_save and fx_load. Internal.
 *
 * A new format is a file that defines one fxi_format, and a line in the table of io.c.
 */
#ifndef CFLUX_FORMATS_H
#define CFLUX_FORMATS_H

#include "bytes.h"
#include "file_out.h"

#include <cflux/io.h>

/* What is saved: names and objects, and texts for the header (NULL: none). */
typedef struct fxi_saving {
    const char *op;
    int n;
    const char *const *names;
    void *const *objects;
    const void *metadata; /* see metadata.h */
} fxi_saving;

typedef struct fxi_format {
    const char *name;      /* for messages */
    const char *extension; /* with its dot */
    /* Is it this format, by its first bytes? */
    bool (*sniff)(const fxi_bytes *file);
    /* A named tuple of what the file holds (or an array), owned by the scope. An error array when
     * that fails; the failure is recorded, by fxi_bytes_fail if it is the file's. */
    void *(*load)(fxi_bytes *file);
    /* Writes into `out`, which the caller opened and will close. */
    fx_status (*save)(fxi_file_out *out, const fxi_saving *what);
    /* Fills in what the bytes say of their origin, or a closer name of the format; NULL: nothing.
     */
    fx_status (*about)(fxi_bytes *file, fx_file_info *out);
} fxi_format;

extern const fxi_format fxi_format_bson, fxi_format_safetensors, fxi_format_npy, fxi_format_npz;

#endif
