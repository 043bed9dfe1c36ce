/* cpu_backend.c: the CPU as a backend: host memory and the kernels of this folder. */
#include "backend.h"
#include "backends.h"
#include "cpu_kernels.h"
#include "memory.h"

static void *cpu_alloc(fx_device *device, size_t bytes)
{
    (void)device;
    return fxi_aligned(64, bytes);
}

static void cpu_free(fx_device *device, void *ptr)
{
    (void)device;
    fxi_free(ptr);
}

static fx_status cpu_prepare(fx_device *device, fxi_step *step)
{
    (void)device;
    return fxi_cpu_prepare_step(step);
}

static void cpu_release(fx_device *device, fxi_step *step)
{
    (void)device;
    fxi_cpu_release_step(step);
}

static fx_status cpu_run(fx_device *device, const fxi_step *step, const void *const *in, void *out,
                         fxi_run *run)
{
    (void)device;
    return fxi_cpu_run_step(step, in, out, run);
}

const fxi_backend fxi_cpu_backend = {.name = "CPU",
                                     .views = true,
                                     .fuses = true,
                                     .alloc = cpu_alloc,
                                     .free = cpu_free,
                                     .prepare = cpu_prepare,
                                     .release = cpu_release,
                                     .run = cpu_run};
