/* gpurt_run.c: launches kernels, and defines the table of functions that the code shared by all
 * GPU backends calls (gpu_device.h).
 */
#include "gpurt.h"

#include "gpurt_blas.h"
#include "gpurt_dnn.h"

#include <stdio.h>

/* The caller holds the device's lock. */
static fx_status launch(fx_device *device, const fxi_gpu_launch *l)
{
    fxi_rt_device *d = fxi_rt_of(device);
    void *arguments[FXI_GPU_BUFFERS + 2];
    int n = 0;
    /* Only a mistake in the shared code leads here: fxi_gpu_kernel checks the limit. */
    if (l->nbuffers > FXI_GPU_BUFFERS) {
        char text[64];
        snprintf(text, sizeof text, "a kernel with %d buffers; the maximum is %d", (int)l->nbuffers,
                 FXI_GPU_BUFFERS);
        return fxi_rt_host->fail(FX_STATUS_INTERNAL, l->operation, text);
    }
    /* The driver reads the arguments during the call: addresses, a struct of addresses, then the
     * parameters. */
    while (n < l->nbuffers) {
        arguments[n] = (void *)(uintptr_t)&l->buffers[n];
        n++;
    }
    if (l->ntable > 0)
        arguments[n++] = (void *)(uintptr_t)&l->buffers[l->nbuffers];
    arguments[n] = (void *)(uintptr_t)l->params;
    const char *call = "selecting the device";
    int error = fxi_rt_select(d);
#ifndef FXI_AMDGPU
    /* CUDA refuses launches with over 48 KiB of local memory until the function allows them. */
    if (!error && l->asked_memory > 0) {
        call = fxi_rt_name.FunctionSet;
        error = fxi_rt.FunctionSet(l->kernel, FXI_RT_FUNCTION_MEMORY, l->asked_memory);
    }
#endif
    if (!error) {
        call = fxi_rt_name.Launch;
        error =
            fxi_rt.Launch(l->kernel, l->groups[0], l->groups[1], l->groups[2], (unsigned)l->group,
                          1, 1, (unsigned)l->asked_memory, d->launches, arguments, NULL);
    }
    if (error)
        return fxi_gpu_check(&d->gpu, l->operation, call, error);
    fxi_gpu_launched(&d->gpu, l);
    return FX_OK;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Returns the driver's error unchanged: the caller (fxi_gpu_check) decides what it means. */
static int finish(void *device)
{
    fxi_rt_device *d = device;
    const int error = fxi_rt_select(d);
    return error ? error : fxi_rt.StreamSync(d->work);
}

/* After errors that mean a loss the context is unusable, according to the driver's
 * documentation. */
static fxi_gpu_error_kind kind_of(int error)
{
    switch (error) {
    case FXI_RT_OUT_OF_MEMORY:
        return FXI_GPU_ERROR_MEMORY;
    case FXI_RT_DEINITIALIZED:
    case FXI_RT_DEVICE_UNAVAILABLE:
    case FXI_RT_INVALID_CONTEXT:
    case FXI_RT_ECC:
    case FXI_RT_LAUNCH_TIMEOUT:
    case FXI_RT_CONTEXT_DESTROYED:
        return FXI_GPU_ERROR_LOSS;
    default:
        break;
    }
    /* Errors from "assertion failed" to "unspecified launch failure" mean that a kernel failed. */
    return error == FXI_RT_ILLEGAL_ADDRESS ||
                   (error > FXI_RT_CONTEXT_DESTROYED && error <= FXI_RT_LAUNCH_FAILED)
               ? FXI_GPU_ERROR_LOSS
               : FXI_GPU_ERROR_OTHER;
}

/* Streams start their work by themselves. */
static void submit(fx_device *device)
{
    (void)device;
}

/* ---- marks ----------------------------------------------------------------------------------- */

static void unmark(fx_device *device, void *mark)
{
    if (fxi_rt_select(fxi_rt_of(device)) == 0)
        fxi_rt.EventDestroy(mark);
}

/* A mark is an event in the stream `work`. */
static void *mark(fx_device *device)
{
    fxi_rt_device *d = fxi_rt_of(device);
    fxi_rt_event event = NULL;
    fx_status status = fxi_gpu_check(&d->gpu, "mark", "selecting the device", fxi_rt_select(d));
    if (!status)
        status = FXI_RT_TRY(d, "mark", EventCreate, (&event, FXI_RT_NO_TIMES));
    if (status)
        return NULL;
    if (FXI_RT_TRY(d, "mark", EventRecord, (event, d->work)) == FX_OK)
        return event;
    unmark(device, event);
    return NULL;
}

static fx_status wait_for_mark(fx_device *device, void *mark)
{
    fxi_rt_device *d = fxi_rt_of(device);
    /* If the driver has no copies between devices, cflux copies through the host. */
    if (!fxi_rt.PeerCopy)
        return FX_STATUS_UNSUPPORTED;
    const fx_status status =
        fxi_gpu_check(&d->gpu, "wait", "selecting the device", fxi_rt_select(d));
    return status ? status : FXI_RT_TRY(d, "wait", StreamWait, (d->work, mark, 0));
}

#ifdef FXI_AMDGPU
#define DIALECT FXI_GPU_HIP
#define KIND    "amdgpu"
#define WAIT    "hipStreamSynchronize"
#else
#define DIALECT FXI_GPU_CUDA
#define KIND    "cuda"
#define WAIT    "cuStreamSynchronize"
#endif

/* Libraries of the vendor compute products and convolutions where they can. */
static bool library(fxi_gpu_builder *b)
{
    switch (b->step->cls) {
    case FX_CLASS_MATMUL:
        return fxi_rt_blas_step(b);
    case FX_CLASS_CONV:
        return fxi_rt_dnn_step(b);
    default:
        return b->step->cls == FX_CLASS_COLLECTIVE && fxi_rt_collective(b);
    }
}

fxi_gpu_driver fxi_rt_driver = {.kind = KIND,
                                .runtime = FXI_GPU_RUNTIME(DIALECT, launch, library),
                                .rank = fxi_rt_rank,
                                .ready = fxi_rt_ready,
                                .compile = fxi_rt_compile,
                                .binary = fxi_rt_binary,
                                .load = fxi_rt_load,
                                .function = fxi_rt_function_of,
                                .alloc = fxi_rt_alloc,
                                .free = fxi_rt_free,
                                .write = fxi_rt_write,
                                .read = fxi_rt_read,
                                .copy = fxi_rt_copy,
                                .fill = fxi_rt_fill,
                                .available = fxi_rt_available,
                                .submit = submit,
                                .finish = finish,
                                .finish_call = WAIT,
                                .mark = mark,
                                .wait = wait_for_mark,
                                .unmark = unmark,
                                .error_kind = kind_of,
                                .error_name = fxi_rt_error_name};
