/* gpurt_plugin.c: the entry of the plugins libcflux-cuda.so and libcflux-amdgpu.so: opens the
 * backend and describes its devices. The rest of the table is shared by all GPU backends
 * (gpu_backend.c).
 */
#include "gpurt.h"

#include "c_text.h"
#include "gpu_gate.h"

#include <stdio.h>

const fx_host *fxi_rt_host;

/* Called when the process ends: waits for the devices. A lost device may never answer. */
static void quiesce(void)
{
    for (int k = 0; k < fxi_rt_device_count(); k++) {
        fxi_rt_device *d = fxi_rt_device_at(k);
        if (!fxi_gpu_lost(&d->gpu.health))
            fxi_rt_driver.finish(d);
    }
}

static int open_backend(const fx_host *host, char *why, size_t size)
{
    fxi_gpu_guard guard;
    fxi_rt_host = fxi_rt_driver.runtime.host = host;
    /* Before any call that uses threads: plugins of a statically linked program have none. */
    if (!fxi_rt_open(why, size))
        return 0;
    /* Before the first call of a driver, so that the handler at exit covers all of them. */
    if (!fxi_gpu_gate_open(quiesce)) {
        snprintf(why, size, "out of host memory");
        return 0;
    }
    if (fxi_gpu_enter()) {
        snprintf(why, size, "the process is ending");
        return 0;
    }
    fxi_gpu_guard_begin(&guard);
    const int n = fxi_rt_devices_open(why, size);
    fxi_gpu_guard_end(&guard);
    fxi_gpu_leave();
    return n;
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

/* Libraries of the vendor by which a program may ask for a fast backend. */
static const char *part(const char *name)
{
    if (fxi_same_letters(name, fxi_rt_compiler))
        return fxi_rtc_why;
    if (fxi_same_letters(name, fxi_rt_library))
        return "cflux has kernels of its own for what this library computes, and does not use it";
    return NULL;
}

#ifdef FXI_AMDGPU
FX_BACKEND_PLUGIN = FXI_GPU_BACKEND("AMDGPU", open_backend, info, part);
#else
FX_BACKEND_PLUGIN = FXI_GPU_BACKEND("CUDA", open_backend, info, part);
#endif
