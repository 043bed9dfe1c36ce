/* checkpoint_about.h: describes a checkpoint file. Internal. */
#ifndef CFLUX_CHECKPOINT_ABOUT_H
#define CFLUX_CHECKPOINT_ABOUT_H

#include "formats.h"

/* For a safetensors file: says whether it is a checkpoint, and if so, whether its CRC-32 is right.
 */
fx_status fxi_checkpoint_about(fxi_bytes *b, fx_file_info *out);

#endif
