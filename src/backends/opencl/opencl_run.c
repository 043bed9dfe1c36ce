/* opencl_run.c: the runtime that the shared machinery of GPU kernels works with (gpu.h): launches,
 * scratch memory, and what kernels report.
 */
#include "opencl.h"

#include <stdio.h>
#include <string.h>

static const fxi_gpu_limits *limits(fx_device *device)
{
    return &fxi_opencl_of(device)->limits;
}

static fx_status compile(fx_device *device, const char *name, const char *source, void **out_kernel)
{
    char text[320];
    *out_kernel = fxi_opencl_kernel(fxi_opencl_of(device), source, name, text, sizeof text);
    return *out_kernel ? FX_OK : fxi_opencl_host->fail(FX_STATUS_DEVICE, "compile", text);
}

/* ---- launches -------------------------------------------------------------------------------- */

static cl_int set_arguments(cl_kernel kernel, const fxi_gpu_launch *l)
{
    cl_int error = CL_SUCCESS;
    cl_uint n = (cl_uint)l->nbuffers;
    int64_t offsets[FXI_GPU_BUFFERS];
    for (cl_uint k = 0; k < n && error == CL_SUCCESS; k++) {
        cl_mem mem;
        size_t offset;
        if (!fxi_opencl_find(l->buffers[k], &mem, &offset))
            mem = NULL, offset = 0;
        offsets[k] = (int64_t)offset;
        error = fxi_cl.SetKernelArg(kernel, k, sizeof mem, &mem);
    }
    if (error == CL_SUCCESS)
        error = fxi_cl.SetKernelArg(kernel, n, l->param_bytes, l->params);
    if (error == CL_SUCCESS)
        error = fxi_cl.SetKernelArg(kernel, n + 1, n * sizeof *offsets, offsets);
    return error;
}

/* Under the device's lock: a kernel's arguments are part of it until it is queued. */
static fx_status launch(fx_device *device, const fxi_gpu_launch *l, fx_run *run)
{
    fxi_opencl_device *d = fxi_opencl_of(device);
    const cl_kernel kernel = l->kernel;
    if (l->nbuffers > FXI_GPU_BUFFERS) {
        snprintf(run->error, sizeof run->error, "a kernel of %d buffers", (int)l->nbuffers);
        return FX_STATUS_INTERNAL;
    }
    const size_t local[3] = {(size_t)l->group, 1, 1};
    const size_t global[3] = {(size_t)l->groups[0] * local[0], l->groups[1], l->groups[2]};
    cl_int error = set_arguments(kernel, l);
    const char *call = "clSetKernelArg";
    if (error == CL_SUCCESS) {
        call = "clEnqueueNDRangeKernel";
        error =
            fxi_cl.EnqueueNDRangeKernel(d->queue, kernel, 3, NULL, global, local, 0, NULL, NULL);
    }
    if (error != CL_SUCCESS)
        return fxi_opencl_why(d, call, error, run->error, sizeof run->error);
    if (l->checks)
        __atomic_store_n(&d->checks, 1, __ATOMIC_RELEASE);
    fxi_opencl_count(&fxi_opencl_counts.launches);
    return FX_OK;
}

/* ---- memory of its own ----------------------------------------------------------------------- */

static void *scratch(fx_device *device, size_t bytes)
{
    fxi_opencl_device *d = fxi_opencl_of(device);
    if (bytes <= d->scratch_bytes)
        return d->scratch;
    if (d->scratch)
        fxi_opencl_free(device, d->scratch);
    d->scratch_bytes = 0;
    d->scratch = fxi_opencl_alloc(device, bytes);
    if (d->scratch)
        d->scratch_bytes = bytes;
    return d->scratch;
}

enum { FAULT_BYTES = FXI_GPU_FAULTS * sizeof(int64_t) };

static void *faults(fx_device *device)
{
    fxi_opencl_device *d = fxi_opencl_of(device);
    void *fresh = d->faults ? NULL : fxi_opencl_alloc(device, FAULT_BYTES);
    if (fresh && fxi_opencl_fill(device, fresh, 0, FAULT_BYTES) != FX_OK) {
        fxi_opencl_free(device, fresh);
        fresh = NULL;
    }
    if (fresh)
        d->faults = fresh;
    return d->faults;
}

fx_status fxi_opencl_faults(fx_device *device, const char *operation)
{
    fxi_opencl_device *d = fxi_opencl_of(device);
    int64_t words[FXI_GPU_FAULTS] = {0};
    char text[200];
    if (!__atomic_exchange_n(&d->checks, 0, __ATOMIC_ACQUIRE))
        return FX_OK;
    fx_status status = fxi_opencl_read(device, words, d->faults, sizeof words);
    if (status != FX_OK || words[0] == 0)
        return status;
    status = fxi_opencl_fill(device, d->faults, 0, FAULT_BYTES);
    if (status != FX_OK)
        return status;
    status = fxi_gpu_fault_text(words, text, sizeof text);
    return fxi_opencl_host->fail(status, operation, text);
}

/* ---- steps ----------------------------------------------------------------------------------- */

fxi_gpu_runtime fxi_opencl_runtime = {.dialect = FXI_GPU_OPENCL,
                                      .limits = limits,
                                      .compile = compile,
                                      .launch = launch,
                                      .scratch = scratch,
                                      .faults = faults};

fx_status fxi_opencl_prepare(fx_device *device, fx_step *step)
{
    return fxi_gpu_prepare(&fxi_opencl_runtime, device, step);
}

void fxi_opencl_release(fx_device *device, fx_step *step)
{
    (void)device;
    fxi_gpu_release(&fxi_opencl_runtime, step);
}

fx_status fxi_opencl_run(fx_device *device, const fx_step *step, const void *const *in, void *out,
                         fx_run *run)
{
    fxi_opencl_device *d = fxi_opencl_of(device);
    if (!step->ready) { /* prepare has said why */
        snprintf(run->error, sizeof run->error, "%s (%s) has no kernel for it", d->label, d->name);
        return FX_STATUS_UNSUPPORTED;
    }
    pthread_mutex_lock(&d->lock);
    const fx_status status = fxi_gpu_run(&fxi_opencl_runtime, device, step, in, out, run);
    pthread_mutex_unlock(&d->lock);
    return status;
}
