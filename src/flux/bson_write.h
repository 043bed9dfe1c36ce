/* bson_write.h: writes objects as BSON that Flux can read. Internal. */
#ifndef CFLUX_BSON_WRITE_H
#define CFLUX_BSON_WRITE_H

#include "formats.h"

fx_status fxi_bson_save(fxi_file_out *out, const fxi_saving *what);

#endif
