/* metadata.h: texts by key, as an object that is saved along. Internal to src/io. */
#ifndef CFLUX_METADATA_H
#define CFLUX_METADATA_H

#include <cflux/io.h>

extern const fx_type fxi_metadata_type;
#define FXI_METADATA_NAME "__metadata__"

#endif
