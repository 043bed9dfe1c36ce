/* opencl_plugin.c: the entry of the OpenCL plugin, libcflux-opencl.so: opens the backend and
 * describes its devices. The rest of the table is shared by all GPU backends (gpu_backend.c).
 */
#include "opencl.h"

#include "gpu_gate.h"

#include <stdio.h>

const fx_host *fxi_opencl_host;

/* Called when the process ends: waits for the devices, because drivers crash if their threads work
 * while libraries are unloaded. A lost device may never answer. */
static void quiesce(void)
{
    for (int k = 0; k < fxi_opencl_device_count(); k++)
        if (!fxi_gpu_lost(&fxi_opencl_device_at(k)->gpu.health))
            fxi_cl.Finish(fxi_opencl_device_at(k)->queue);
}

static int open_backend(const fx_host *host, char *why, size_t size)
{
    fxi_gpu_guard guard;
    fxi_opencl_host = fxi_opencl_driver.runtime.host = host;
    /* Before any call that uses threads: plugins of a statically linked program have none. */
    if (!fxi_cl_open(why, size))
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
    const int n = fxi_opencl_devices_open(why, size);
    fxi_gpu_guard_end(&guard);
    fxi_gpu_leave();
    return n;
}

static fx_status info(fx_device *device)
{
    fxi_opencl_device *d = fxi_opencl_device_at(device->id);
    /* The library keeps the device for the life of the process, as `chosen` does. */
    device->data = d;
    snprintf(device->info.name, sizeof device->info.name, "%s", d->gpu.name);
    snprintf(device->info.driver, sizeof device->info.driver, "%s", d->driver);
    device->info.memory = d->memory;
    device->info.no_f64 = !d->gpu.limits.f64;
    device->info.buffers = d->gpu.limits.buffers;
    /* The library never chooses such a device by itself: its own CPU backend is faster. */
    device->info.on_cpu = d->gpu.limits.serial;
    return FX_OK;
}

FX_BACKEND_PLUGIN = FXI_GPU_BACKEND("OpenCL", open_backend, info, NULL);
