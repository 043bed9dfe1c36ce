/* metal_plugin.c: the entry of the Metal plugin, libcflux-metal: opens the backend and describes
 * its device. The rest of the table is shared by all GPU backends (gpu_backend.c).
 *
 * The plugin is plain C and has never run on Apple hardware. Tests run it with a simulated
 * Objective-C runtime and a simulated Metal.
 */
#include "metal.h"

#include <stdio.h>

const fx_host *fxi_metal_host;

static void quiesce(void)
{
    if (fxi_metal_device_get())
        fxi_gpu_quiesce(&fxi_metal_device_get()->gpu);
}

static int open_backend(const fx_host *host, char *why, size_t size)
{
    static const fxi_gpu_opening opening = {&fxi_metal_driver, fxi_mtl_open, fxi_metal_device_open,
                                            quiesce};
    fxi_metal_host = host;
    return fxi_gpu_open(&opening, host, why, size);
}

static fx_status info(fx_device *device)
{
    fxi_metal_device *d = fxi_metal_device_get();
    /* cflux keeps the device until the process ends, and so does metal_device.c. */
    device->data = d;
    snprintf(device->info.name, sizeof device->info.name, "%s", d->gpu.name);
    snprintf(device->info.driver, sizeof device->info.driver, "%s", d->system);
    device->info.memory = d->memory;
    device->info.no_f64 = true;
    device->info.buffers = d->gpu.limits.buffers;
    return FX_OK;
}

FX_BACKEND_PLUGIN = FXI_GPU_BACKEND("Metal", open_backend, info, fxi_metal_part, NULL, NULL, NULL);
