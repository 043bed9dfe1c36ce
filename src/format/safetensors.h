/* safetensors.h: the pieces of the safetensors format that checkpoints are made of too. Internal.
 */
#ifndef CFLUX_SAFETENSORS_H
#define CFLUX_SAFETENSORS_H

#include "entries.h"
#include "file_out.h"

/* Writes these arrays, with texts for the header (NULL: none). `sum`: a last array of 4 bytes,
 * FXI_SUM_NAME, holds the CRC-32 of all bytes before it. */
fx_status fxi_safetensors_write(fxi_file_out *out, fxi_entries *e, const void *metadata, bool sum);
#define FXI_SUM_NAME "__crc32__"
enum { FXI_SUM_BYTES = 4 };

#endif
