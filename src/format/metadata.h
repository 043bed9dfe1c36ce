/* metadata.h: texts by key, as an object that is saved with arrays. Internal. */
#ifndef CFLUX_METADATA_H
#define CFLUX_METADATA_H

#include "json.h"

#include <cflux/io.h>

extern const fx_type fxi_metadata_type;
#define FXI_METADATA_NAME "__metadata__"

/* Writes the texts as a JSON object: {"key": "text", …}. */
void fxi_metadata_put(fx_json *out, const char *name, const void *object);
/* Reads an object of this form, owned by the scope; NULL if it has no texts, or on failure (see the
 * status of b). FX_STATUS_FORMAT if a key occurs twice. */
void *fxi_metadata_read(fxi_bytes *b);

#endif
