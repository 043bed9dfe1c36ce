/* gpurt_plugin.c: the entry of the plugins libcflux-cuda.so and libcflux-amdgpu.so: opens the
 * backend and describes its devices. The rest of the table is shared by all GPU backends
 * (gpu_backend.c).
 */
#include "gpurt.h"

#include "c_text.h"
#include "gpurt_blas.h"
#include "gpurt_dnn.h"

#include <stdio.h>

const fx_host *fxi_rt_host;

static void quiesce(void)
{
    for (int k = 0; k < fxi_rt_device_count(); k++)
        fxi_gpu_quiesce(&fxi_rt_device_at(k)->gpu);
}

static int open_backend(const fx_host *host, char *why, size_t size)
{
    static const fxi_gpu_opening opening = {&fxi_rt_driver, fxi_rt_open, fxi_rt_devices_open,
                                            quiesce};
    fxi_rt_host = host;
    return fxi_gpu_open(&opening, host, why, size);
}

static fx_status info(fx_device *device)
{
    fxi_rt_device *d = fxi_rt_device_at(device->id);
    device->data = d;
    snprintf(device->info.name, sizeof device->info.name, "%s", d->gpu.name);
    snprintf(device->info.driver, sizeof device->info.driver, "%s", d->driver);
    device->info.memory = d->memory;
    device->info.buffers = d->gpu.limits.buffers;
    return FX_OK;
}

/* Names of the vendor's libraries with which a program may ask whether the backend is fast. */
static const char *part(const char *name)
{
    if (fxi_same_ignoring_case(name, fxi_rt_compiler))
        return fxi_rt_compiler_why();
    const char *why = fxi_rt_library_part(&fxi_rt_blas, name);
    return why ? why : fxi_rt_dnn_part(name);
}

#ifdef FXI_AMDGPU
FX_BACKEND_PLUGIN = FXI_GPU_BACKEND("AMDGPU", open_backend, info, part, fxi_rt_takes,
                                    fxi_rt_collective_begin, NULL);
#else
FX_BACKEND_PLUGIN = FXI_GPU_BACKEND("CUDA", open_backend, info, part, fxi_rt_takes,
                                    fxi_rt_collective_begin, fxi_gpu_backend_attention);
#endif
