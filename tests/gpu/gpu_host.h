/* gpu_host.h: a runtime that runs kernels as C on the CPU: the C compiler makes a shared library of
 * each text. Groups run one after another. */
#ifndef GPU_HOST_H
#define GPU_HOST_H

#include "gpu.h"

extern const fx_host gpu_host_services; /* its `fail` stores the message in gpu_host_error */
extern char gpu_host_error[512];
extern fx_device gpu_host_device;
extern fxi_gpu_limits gpu_host_limits; /* a test may set others before it prepares steps */
/* Is there a C compiler? Everything here needs one. */
bool gpu_host_works(void);
extern const fxi_gpu_runtime gpu_host_runtime;
extern int64_t gpu_host_faults[FXI_GPU_FAULTS];
/* Kernels compiled and launches run so far; launches in which some work-items of a group waited at
 * a barrier that others never reached. */
extern int gpu_host_kernels, gpu_host_launches, gpu_host_divergent;

#endif
