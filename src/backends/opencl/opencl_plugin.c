/* opencl_plugin.c: the entry of the OpenCL plugin, libcflux-opencl.so: opens the backend and
 * describes its devices. The rest of the table is shared by all GPU backends (gpu_backend.c).
 */
#include "opencl.h"

#include <stdio.h>

const fx_host *fxi_opencl_host;

static void quiesce(void)
{
    for (int k = 0; k < fxi_opencl_device_count(); k++)
        fxi_gpu_quiesce(&fxi_opencl_device_at(k)->gpu);
}

static int open_backend(const fx_host *host, char *why, size_t size)
{
    static const fxi_gpu_opening opening = {&fxi_opencl_driver, fxi_cl_open,
                                            fxi_opencl_devices_open, quiesce};
    fxi_opencl_host = host;
    return fxi_gpu_open(&opening, host, why, size);
}

static fx_status info(fx_device *device)
{
    fxi_opencl_device *d = fxi_opencl_device_at(device->id);
    /* cflux keeps the device until the process ends, and so does opencl_devices.c. */
    device->data = d;
    snprintf(device->info.name, sizeof device->info.name, "%s", d->gpu.name);
    snprintf(device->info.driver, sizeof device->info.driver, "%s", d->driver);
    device->info.memory = d->memory;
    device->info.no_f64 = !d->gpu.limits.f64;
    device->info.buffers = d->gpu.limits.buffers;
    /* cflux never chooses a CPU automatically, because its own CPU backend is faster. */
    device->info.on_cpu = d->gpu.limits.serial;
    return FX_OK;
}

FX_BACKEND_PLUGIN = FXI_GPU_BACKEND("OpenCL", open_backend, info, NULL, NULL, NULL, NULL);
