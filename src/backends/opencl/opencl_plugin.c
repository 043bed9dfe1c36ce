/* opencl_plugin.c: the table of the OpenCL backend, libcflux-opencl.so. */
#include "opencl.h"

#include <stdio.h>
#include <string.h>

const fx_host *fxi_opencl_host;
fxi_opencl_counters fxi_opencl_counts;

static int open_backend(const fx_host *host, char *why, size_t size)
{
    fxi_opencl_host = fxi_opencl_runtime.host = host;
    return fxi_cl_open(why, size) ? fxi_opencl_devices_open(why, size) : 0;
}

static fx_status info(fx_device *device)
{
    fxi_opencl_device *d = fxi_opencl_device_at(device->id);
    device->data = d;
    snprintf(device->info.name, sizeof device->info.name, "%s", d->name);
    snprintf(device->info.driver, sizeof device->info.driver, "%s", d->driver);
    device->info.memory = d->memory;
    device->info.no_f64 = !d->limits.f64;
    device->info.on_cpu = d->limits.serial;
    return FX_OK;
}

static void submit(fx_device *device)
{
    fxi_cl.Flush(fxi_opencl_of(device)->queue);
}

static fx_status sync(fx_device *device)
{
    fxi_opencl_device *d = fxi_opencl_of(device);
    const fx_status status =
        fxi_opencl_check(d, "synchronize", "clFinish", fxi_cl.Finish(d->queue));
    return status ? status : fxi_opencl_faults(device, "synchronize");
}

static void *proc(const char *name)
{
    return strcmp(name, "counters") == 0   ? (void *)&fxi_opencl_counts
           : strcmp(name, "launches") == 0 ? &fxi_opencl_counts.launches
                                           : NULL;
}

FX_BACKEND_PLUGIN = {.abi = FX_BACKEND_ABI,
                     .sizes = FX_BACKEND_SIZES_HERE,
                     .name = "OpenCL",
                     .views = true,
                     .fuses = true,
                     .open = open_backend,
                     .info = info,
                     .alloc = fxi_opencl_alloc,
                     .free = fxi_opencl_free,
                     .write = fxi_opencl_write,
                     .read = fxi_opencl_read,
                     .copy = fxi_opencl_copy,
                     .fill = fxi_opencl_fill,
                     .available = fxi_opencl_available,
                     .prepare = fxi_opencl_prepare,
                     .release = fxi_opencl_release,
                     .run = fxi_opencl_run,
                     .submit = submit,
                     .sync = sync,
                     .proc = proc};
