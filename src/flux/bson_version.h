/* bson_version.h: determines which versions of Flux and Julia wrote a BSON document. Internal. */
#ifndef CFLUX_BSON_VERSION_H
#define CFLUX_BSON_VERSION_H

#include "bson_julia.h"

#include <cflux/io.h>

/* A range of Flux versions, both ends included: 1206 is 0.12.6, 1299 the latest 0.12. */
enum { FXI_FLUX_FIRST = 600, FXI_FLUX_LAST = 9999 };
typedef struct fxi_flux_range {
    int since, until;
} fxi_flux_range;

/* The versions in which a layer of this type had this field count; all versions if unknown. */
fxi_flux_range fxi_bson_layer_range(const char *type, int nfields);

/* The versions of Flux that may have written a document, or the version that the program set. */
fxi_flux_range fxi_bson_flux_range(fxi_julia *j);
/* Fills in the programs and versions that wrote a document; returns the status of its bytes. */
fx_status fxi_bson_about(fxi_bytes *b, fx_file_info *out);

#endif
