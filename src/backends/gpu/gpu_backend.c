/* gpu_backend.c: the functions of fx_backend for every GPU backend: each calls the driver
 * (gpu_device.h) after passing the gate (gpu_gate.h), so that no driver is called after the process
 * has begun to end. For a lost device only the calls are made that gpu_device.h lists.
 */
#include "gpu_device.h"
#include "gpu_gate.h"

#include <stdio.h>
#include <string.h>

static const fxi_gpu_driver *driver_of(const fx_device *device)
{
    return fxi_gpu_device_of(device)->driver;
}

bool fxi_gpu_enter_for(const fx_device *device, const char *operation)
{
    const fxi_gpu_device *d = fxi_gpu_device_of(device);
    /* The message for a lost device has precedence: it says that arrays can no longer be read. */
    const bool lost = fxi_gpu_lost(&d->health);
    const char *why = lost ? NULL : fxi_gpu_enter();
    char text[320];
    if (!lost && !why)
        return true;
    if (lost)
        fxi_gpu_say_lost(d, text, sizeof text);
    else
        snprintf(text, sizeof text, "%s (%s) %s", d->label, d->name, why);
    fxi_gpu_host_of(d)->fail(FX_STATUS_DEVICE, operation, text);
    return false;
}

/* Is the device lost, or the process ending? Then an error of the operation is recorded. */
static bool refused_by(const fx_device *device, const char *operation)
{
    const bool may = fxi_gpu_enter_for(device, operation);
    if (may)
        fxi_gpu_leave();
    return !may;
}

/* Ends a call and returns its status, so that a call of the driver is one expression. */
static fx_status leave(fx_status status)
{
    fxi_gpu_leave();
    return status;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* NULL without an error means a lack of memory: cflux then frees its caches and tries again. A
 * closed gate or a lost device is recorded as an error. */
void *fxi_gpu_backend_alloc(fx_device *device, size_t bytes)
{
    if (!fxi_gpu_enter_for(device, "alloc"))
        return NULL;
    void *address = driver_of(device)->alloc(device, bytes);
    fxi_gpu_leave();
    return address;
}

/* Memory of a device that can no longer be called is freed with the process. */
void fxi_gpu_backend_free(fx_device *device, void *address)
{
    if (fxi_gpu_enter())
        return;
    driver_of(device)->free(device, address);
    /* Recordings may contain the address (gpu_whole.c). */
    fxi_gpu_count(&fxi_gpu_device_of(device)->freed);
    fxi_gpu_leave();
}

fx_status fxi_gpu_backend_write(fx_device *device, void *to, const void *from, size_t bytes)
{
    return fxi_gpu_enter_for(device, "write")
               ? leave(driver_of(device)->write(device, to, from, bytes))
               : FX_STATUS_DEVICE;
}

fx_status fxi_gpu_backend_read(fx_device *device, void *to, const void *from, size_t bytes)
{
    if (!fxi_gpu_enter_for(device, "read"))
        return FX_STATUS_DEVICE;
    const fx_status status = driver_of(device)->read(device, to, from, bytes);
    if (!status)
        fxi_gpu_waited(fxi_gpu_device_of(device));
    return leave(status);
}

fx_status fxi_gpu_backend_copy(fx_device *to_device, void *to, fx_device *from_device,
                               const void *from, size_t bytes)
{
    /* The call passes the gate for the device that copies. The other device must not be lost. */
    return !refused_by(from_device, "copy") && fxi_gpu_enter_for(to_device, "copy")
               ? leave(driver_of(to_device)->copy(to_device, to, from_device, from, bytes))
               : FX_STATUS_DEVICE;
}

fx_status fxi_gpu_backend_fill(fx_device *device, void *to, uint8_t value, size_t bytes)
{
    return fxi_gpu_enter_for(device, "fill")
               ? leave(driver_of(device)->fill(device, to, value, bytes))
               : FX_STATUS_DEVICE;
}

/* −1: unknown. Only a hint, so no error is recorded. */
int64_t fxi_gpu_backend_available(fx_device *device)
{
    if (fxi_gpu_enter())
        return -1;
    const int64_t bytes = driver_of(device)->available(device);
    fxi_gpu_leave();
    return bytes;
}

/* ---- steps ----------------------------------------------------------------------------------- */

fx_status fxi_gpu_backend_prepare(fx_device *device, fx_step *step)
{
    return fxi_gpu_enter_for(device, "prepare")
               ? leave(fxi_gpu_prepare(&driver_of(device)->runtime, device, step))
               : FX_STATUS_DEVICE;
}

bool fxi_gpu_backend_attention(fx_device *device, const fx_step *step)
{
    return fxi_gpu_has_attention(&driver_of(device)->runtime, device, step);
}

fx_status fxi_gpu_backend_compile(fx_device *device, fx_step *steps, int32_t n, int32_t *out_step)
{
    return fxi_gpu_enter_for(device, "compile")
               ? leave(fxi_gpu_compile(&driver_of(device)->runtime, device, steps, n, out_step))
               : FX_STATUS_DEVICE;
}

/* The step's own memory is freed in any case; only calls of the driver are left out if the gate is
 * closed. */
void fxi_gpu_backend_release(fx_device *device, fx_step *step)
{
    const bool may = !fxi_gpu_enter();
    fxi_gpu_release(&driver_of(device)->runtime, may ? device : NULL, step);
    if (may)
        fxi_gpu_leave();
}

static fx_status run_step(fx_device *device, const fx_step *step, const void *const *in, void *out,
                          fx_run *run)
{
    fxi_gpu_device *d = fxi_gpu_device_of(device);
    /* The launches of a step stay together: a kernel object holds its arguments until it is queued.
     */
    fxi_mutex_lock(&d->lock);
    fx_status status = fxi_gpu_run(&d->driver->runtime, device, step, in, out, run);
    fxi_mutex_unlock(&d->lock);
    if (!status && d->waits_for_steps)
        status =
            fxi_gpu_check(d, fx_op_name(step->op), d->driver->finish_call, d->driver->finish(d));
    /* Without the lock: the message may call a hook of the program. */
    fxi_gpu_progress_say(&d->progress, fxi_gpu_host_of(d), d->label);
    return status;
}

fx_status fxi_gpu_backend_run(fx_device *device, const fx_step *step, const void *const *in,
                              void *out, fx_run *run)
{
    return fxi_gpu_enter_for(device, fx_op_name(step->op))
               ? leave(run_step(device, step, in, out, run))
               : FX_STATUS_DEVICE;
}

/* Nothing to report: errors come from the next call that waits. */
void fxi_gpu_backend_submit(fx_device *device)
{
    if (fxi_gpu_enter())
        return;
    driver_of(device)->submit(device);
    fxi_gpu_leave();
}

static fx_status finish(fx_device *device)
{
    fxi_gpu_device *d = fxi_gpu_device_of(device);
    const fx_status status =
        fxi_gpu_check(d, "synchronize", d->driver->finish_call, d->driver->finish(d));
    if (!status)
        fxi_gpu_waited(d);
    /* Errors that kernels found (an index out of range) are known only when the device has
     * finished. */
    return status ? status : fxi_gpu_device_found(device, "synchronize");
}

fx_status fxi_gpu_backend_sync(fx_device *device)
{
    return fxi_gpu_enter_for(device, "synchronize") ? leave(finish(device)) : FX_STATUS_DEVICE;
}

void *fxi_gpu_backend_mark(fx_device *device)
{
    if (!fxi_gpu_enter_for(device, "mark"))
        return NULL;
    void *mark = driver_of(device)->mark(device);
    fxi_gpu_leave();
    return mark;
}

fx_status fxi_gpu_backend_wait(fx_device *device, void *mark)
{
    return fxi_gpu_enter_for(device, "wait") ? leave(driver_of(device)->wait(device, mark))
                                             : FX_STATUS_DEVICE;
}

/* A mark that cannot be freed any more is freed with the process. */
void fxi_gpu_backend_unmark(fx_device *device, void *mark)
{
    if (fxi_gpu_enter())
        return;
    driver_of(device)->unmark(device, mark);
    fxi_gpu_leave();
}

/* For tests, which count launches and copies. */
void *fxi_gpu_backend_proc(const char *name)
{
    return strcmp(name, "counters") == 0   ? (void *)&fxi_gpu_counts
           : strcmp(name, "launches") == 0 ? &fxi_gpu_counts.launches
                                           : NULL;
}
