/* checkpoint_about.h: what a checkpoint says of itself. Internal. */
#ifndef CFLUX_CHECKPOINT_ABOUT_H
#define CFLUX_CHECKPOINT_ABOUT_H

#include "formats.h"

/* Of a safetensors file: whether it is a checkpoint, and then whether its sum is right. */
fx_status fxi_checkpoint_about(fxi_bytes *b, fx_file_info *out);

#endif
