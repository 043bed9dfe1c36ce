/* gpurt_dnn.h: convolutions by the vendor's library. AMDGPU uses none yet. Internal. */
#ifndef CFLUX_GPURT_DNN_H
#define CFLUX_GPURT_DNN_H

#include "gpu_build.h"
#include "gpurt_library.h"

/* Adds the call of a convolution, as `library` of the runtime does (gpu.h). */
bool fxi_rt_dnn_step(fxi_gpu_builder *b);
/* For fx_functional: NULL if it is not a name of the library, "" if the library works. */
const char *fxi_rt_dnn_part(const char *name);

#endif
