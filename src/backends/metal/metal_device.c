/* metal_device.c: opens the system's default device.
 */
#include "metal.h"

#include <stdio.h>
#include <string.h>

/* Never freed: arrays point to it. */
static fxi_metal_device the_device;
static bool is_open;

fxi_metal_device *fxi_metal_device_get(void)
{
    return is_open ? &the_device : NULL;
}

static void copy_text(fxi_id string, char *text, size_t size)
{
    const char *bytes = string ? FXI_SEND(utf8, string) : NULL;
    snprintf(text, size, "%s", bytes ? bytes : "unknown");
}

/* Metal does not say how many cores a GPU has; Apple's have 7 to 80. Too many groups cost little.
 */
enum { UNITS = 32 };

static void describe(fxi_metal_device *d)
{
    const bool apple = FXI_SEND_WITH(supports, d->device, FXI_MTL_FAMILY_APPLE1);
    const fxi_ns_uint memory = FXI_SEND(group_memory, d->device);
    copy_text(FXI_SEND(name, d->device), d->gpu.name, sizeof d->gpu.name);
    d->memory = (int64_t)FXI_SEND(working_set, d->device);
    d->largest = (int64_t)FXI_SEND(largest, d->device);
    d->gpu.limits =
        (fxi_gpu_limits){FXI_GPU_USUAL_LIMITS, .units = UNITS,
                         /* One of the buffers is for offsets and parameters. */
                         .buffers = FXI_MTL_BUFFERS - 1, .param_bytes = FXI_MTL_BYTES,
                         .group_memory = memory ? (int64_t)memory : FXI_MTL_GROUP_MEMORY,
                         .atomic_f32 = FXI_SEND_WITH(supports, d->device, FXI_MTL_FAMILY_METAL3)};
    /* Apple's GPUs have SIMD groups of 32 work-items. On others the width depends on the kernel, so
     * values are exchanged through local memory. */
    d->gpu.limits.warp = apple ? 32 : 1;
    snprintf(d->gpu.target, sizeof d->gpu.target, "%s", d->gpu.name);
    snprintf(d->gpu.compiler, sizeof d->gpu.compiler, "%s", d->system);
}

/* Kernels are written in Metal 3.0, which macOS 13 introduced. */
static bool is_new_enough(char *system, size_t system_size, char *why, size_t size)
{
    const fxi_id process = FXI_SEND(process, fxi_mtl.class.NSProcessInfo);
    copy_text(process ? FXI_SEND(system_text, process) : NULL, system, system_size);
    if (process && FXI_SEND_WITH(system_is, process, (fxi_ns_version){13, 0, 0}))
        return true;
    snprintf(why, size, "macOS 13 or later is required, for Metal 3.0; this is %s", system);
    return false;
}

static bool open_in_pool(fxi_metal_device *d, char *why, size_t size)
{
    if (!is_new_enough(d->system, sizeof d->system, why, size))
        return false;
    d->device = fxi_mtl.default_device();
    if (!d->device) {
        snprintf(why, size, "Metal finds no device");
        return false;
    }
    describe(d);
    d->queue = FXI_SEND(queue, d->device);
    if (d->queue)
        return true;
    snprintf(why, size, "%s: newCommandQueue failed", d->gpu.name);
    fxi_mtl.release(d->device);
    d->device = NULL;
    return false;
}

int fxi_metal_device_open(char *why, size_t size)
{
    fxi_metal_device *d = &the_device;
    *d = (fxi_metal_device){.gpu.driver = &fxi_metal_driver};
    void *pool = fxi_mtl.push();
    is_open = open_in_pool(d, why, size);
    fxi_mtl.pop(pool);
    if (!is_open)
        return 0;
    fxi_mutex_init(&d->lock);
    fxi_gpu_device_open(&d->gpu, "Metal", 0);
    return 1;
}
