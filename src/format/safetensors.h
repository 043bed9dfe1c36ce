/* safetensors.h: the functions of the safetensors format that checkpoints also use. Internal. */
#ifndef CFLUX_SAFETENSORS_H
#define CFLUX_SAFETENSORS_H

#include "entries.h"
#include "file_out.h"

/* Writes these arrays, with texts for the header (NULL: none). `sum`: append an array of 4 bytes,
 * named FXI_SUM_NAME, with the CRC-32 of all bytes before it. */
fx_status fxi_safetensors_write(fxi_file_out *out, fxi_entries *e, const void *metadata, bool sum);
#define FXI_SUM_NAME "__crc32__"
enum { FXI_SUM_BYTES = 4 };

#endif
