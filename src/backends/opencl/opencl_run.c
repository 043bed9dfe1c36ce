/* opencl_run.c: launches kernels, and defines the table of functions that the code shared by all
 * GPU backends calls (gpu_device.h).
 */
#include "opencl.h"

#include "gpu_gate.h"

#include <stdio.h>
#include <string.h>

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
    /* Parameters and offsets follow the buffers, as in every kernel (gpu.h). */
    if (error == CL_SUCCESS)
        error = fxi_cl.SetKernelArg(kernel, n, l->param_bytes, l->params);
    if (error == CL_SUCCESS)
        error = fxi_cl.SetKernelArg(kernel, n + 1, n * sizeof *offsets, offsets);
    return error;
}

static cl_int enqueue(const fxi_opencl_device *d, const fxi_opencl_function *f,
                      const fxi_gpu_launch *l, cl_event *event)
{
    const size_t local[3] = {(size_t)l->group, 1, 1};
    /* OpenCL counts work-items; the launch counts groups. */
    const size_t global[3] = {(size_t)l->groups[0] * local[0], l->groups[1], l->groups[2]};
    return fxi_cl.EnqueueNDRangeKernel(d->queue, f->kernel, 3, NULL, global, local, 0, NULL, event);
}

/* Waits for an event; returns its error if the work failed. */
static cl_int wait_for_event(cl_event event)
{
    cl_int state = CL_COMPLETE;
    const cl_int error = fxi_cl.WaitForEvents(1, &event);
    /* WaitForEvents reports only that the work failed; the state says how. */
    const cl_int told =
        fxi_cl.GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    fxi_cl.ReleaseEvent(event);
    return told == CL_SUCCESS && state < 0 ? state : error;
}

/* Drivers for CPUs, such as PoCL, compile a kernel a second time at its first launch, in a thread
 * of their own. The first launch is therefore awaited, so that the compilation happens inside a
 * call (gpu_gate.h). */
static cl_int launch_first(fxi_opencl_device *d, const fxi_opencl_function *f,
                           const fxi_gpu_launch *l)
{
    cl_event event = NULL;
    fxi_gpu_guard guard;
    fxi_gpu_compile_begin(&d->gpu.progress);
    fxi_gpu_guard_begin(&guard);
    cl_int error = enqueue(d, f, l, &event);
    if (error == CL_SUCCESS)
        error = wait_for_event(event);
    fxi_gpu_guard_end(&guard);
    /* 0: the program was counted when it was built. */
    fxi_gpu_compile_end(&d->gpu.progress, 0);
    return error;
}

static cl_int queue_kernel(fxi_opencl_device *d, fxi_opencl_function *f, const fxi_gpu_launch *l)
{
    const cl_int error =
        d->gpu.limits.serial && !f->launched ? launch_first(d, f, l) : enqueue(d, f, l, NULL);
    /* After a failure the next launch may compile again. */
    f->launched |= error == CL_SUCCESS;
    return error;
}

/* The caller holds the device's lock, because OpenCL stores the arguments in the kernel until it is
 * queued. */
static fx_status launch(fx_device *device, const fxi_gpu_launch *l)
{
    fxi_opencl_device *d = fxi_opencl_of(device);
    fxi_opencl_function *f = l->kernel;
    /* Only a mistake in the shared code leads here: fxi_gpu_kernel checks the limit. */
    if (l->nbuffers > FXI_GPU_BUFFERS) {
        char text[64];
        snprintf(text, sizeof text, "a kernel with %d buffers; the maximum is %d", (int)l->nbuffers,
                 FXI_GPU_BUFFERS);
        return fxi_opencl_host->fail(FX_STATUS_INTERNAL, l->operation, text);
    }
    cl_int error = set_arguments(f->kernel, l);
    /* The name of the call that fails is part of the error. */
    const char *call = "clSetKernelArg";
    if (error == CL_SUCCESS) {
        call = "clEnqueueNDRangeKernel";
        error = queue_kernel(d, f, l);
    }
    if (error != CL_SUCCESS)
        return fxi_gpu_check(&d->gpu, l->operation, call, error);
    fxi_gpu_launched(&d->gpu, l);
    return FX_OK;
}

/* ---- the driver ------------------------------------------------------------------------------ */

/* Returns the driver's error unchanged: the caller (fxi_gpu_check) decides what it means. */
static int finish(void *device)
{
    return fxi_cl.Finish(((fxi_opencl_device *)device)->queue);
}

/* NVIDIA's driver returns ILLEGAL_ACCESS after a kernel has accessed memory that is not its own.
 * The device cannot be used after that. */
static fxi_gpu_error_kind kind_of(cl_int error)
{
    enum { INVALID_DEVICE = -33, INVALID_CONTEXT = -34, INVALID_COMMAND_QUEUE = -36 };
    enum { ILLEGAL_ACCESS = -9999 };
    switch (error) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
        return FXI_GPU_ERROR_MEMORY;
    case CL_DEVICE_NOT_AVAILABLE:
    case INVALID_DEVICE:
    case INVALID_CONTEXT:
    case INVALID_COMMAND_QUEUE:
    case ILLEGAL_ACCESS:
        return FXI_GPU_ERROR_LOSS;
    default:
        return FXI_GPU_ERROR_OTHER;
    }
}

static void submit(fx_device *device)
{
    /* Drivers may hold commands back until they are asked for results. */
    fxi_cl.Flush(fxi_opencl_of(device)->queue);
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* A mark: the event of a marker in a device's queue. The context tells which queues can wait for
 * it. */
typedef struct point {
    cl_event event;
    cl_context context;
} point;

static void unmark(fx_device *device, void *mark)
{
    (void)device;
    /* NULL if making the mark failed. */
    if (((point *)mark)->event)
        fxi_cl.ReleaseEvent(((point *)mark)->event);
    fxi_opencl_host->free(mark);
}

/* Makes a mark. The queue is flushed, because other queues can wait only for an event that was
 * submitted to the device. */
static void *mark(fx_device *device)
{
    fxi_opencl_device *d = fxi_opencl_of(device);
    point *p = fxi_opencl_host->alloc(sizeof *p);
    if (!p) {
        fxi_opencl_host->fail(FX_STATUS_MEMORY, "mark", "no host memory for a mark in a queue");
        return NULL;
    }
    *p = (point){.context = d->context};
    const char *call = "clEnqueueMarkerWithWaitList";
    cl_int error = fxi_cl.EnqueueMarkerWithWaitList(d->queue, 0, NULL, &p->event);
    if (error == CL_SUCCESS) {
        call = "clFlush";
        error = fxi_cl.Flush(d->queue);
    }
    if (fxi_gpu_check(&d->gpu, "mark", call, error) == FX_OK)
        return p;
    unmark(device, p);
    return NULL;
}

/* Makes the device's queue wait for a mark. Events belong to one context, so for queues of two
 * contexts the host must wait. */
static fx_status wait_for_mark(fx_device *device, void *mark)
{
    fxi_opencl_device *d = fxi_opencl_of(device);
    const point *p = mark;
    return p->context != d->context
               ? FX_STATUS_UNSUPPORTED
               : fxi_gpu_check(&d->gpu, "wait", "clEnqueueBarrierWithWaitList",
                               fxi_cl.EnqueueBarrierWithWaitList(d->queue, 1, &p->event, NULL));
}

fxi_gpu_driver fxi_opencl_driver = {.kind = "opencl",
                                    .runtime = FXI_GPU_RUNTIME(FXI_GPU_OPENCL, launch, NULL),
                                    .compile = fxi_opencl_compile,
                                    .binary = fxi_opencl_binary,
                                    .load = fxi_opencl_load,
                                    .function = fxi_opencl_function_of,
                                    .alloc = fxi_opencl_alloc,
                                    .free = fxi_opencl_free,
                                    .write = fxi_opencl_write,
                                    .read = fxi_opencl_read,
                                    .copy = fxi_opencl_copy,
                                    .fill = fxi_opencl_fill,
                                    .available = fxi_opencl_available,
                                    .submit = submit,
                                    .finish = finish,
                                    .finish_call = "clFinish",
                                    .mark = mark,
                                    .wait = wait_for_mark,
                                    .unmark = unmark,
                                    .error_kind = kind_of,
                                    .error_name = fxi_cl_error_name};
