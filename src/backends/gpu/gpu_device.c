/* gpu_device.c: the state of a device that all GPU backends share: error messages, limits and fault
 * words; see gpu_device.h. */
#include "gpu_device.h"
#include "gpu_gate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fxi_gpu_counters fxi_gpu_counts;

void fxi_gpu_device_open(fxi_gpu_device *d, const char *backend, int k)
{
    snprintf(d->label, sizeof d->label, "%s:%d", backend, k);
    fxi_mutex_init(&d->lock);
    fxi_gpu_progress_init(&d->progress);
    const char *sync = getenv("FX_GPU_SYNC");
    d->waits_for_steps = sync && *sync && strcmp(sync, "0") != 0;
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* "", " after the step exp", " after the steps exp to sum": kernels run after the call that queues
 * them, so the driver's error does not tell which one failed. */
static void say_steps(const fxi_gpu_device *d, char *text, size_t size)
{
    const char *first = __atomic_load_n(&d->first_step, __ATOMIC_RELAXED),
               *last = __atomic_load_n(&d->last_step, __ATOMIC_RELAXED);
    *text = '\0';
    if (first && last && __atomic_load_n(&d->others, __ATOMIC_RELAXED))
        snprintf(text, size, " after the steps %.32s to %.32s (set FX_GPU_SYNC=1 to find the step)",
                 first, last);
    else if (first)
        snprintf(text, size, " after the step %.32s", first);
}

void fxi_gpu_say_lost(const fxi_gpu_device *d, char *text, size_t size)
{
    char steps[128];
    say_steps(d, steps, sizeof steps);
    snprintf(text, size, "%s (%s) failed: %s returned %s%s; arrays on it can no longer be read",
             d->label, d->name, d->health.call, d->driver->error_name(fxi_gpu_lost(&d->health)),
             steps);
}

fx_status fxi_gpu_why(fxi_gpu_device *d, const char *call, int error, char *text, size_t size)
{
    const fxi_gpu_driver *driver = d->driver;
    /* Waits for the device to find out whether the error stays. */
    const fxi_gpu_verdict v =
        fxi_gpu_judge(&d->health, call, error, driver->error_kind(error), driver->finish, d);
    if (v == FXI_GPU_LOST) {
        fxi_gpu_say_lost(d, text, size);
    } else {
        char steps[128] = "";
        /* Work that was queued earlier failed, and not this call. */
        if (strcmp(call, driver->finish_call) == 0)
            say_steps(d, steps, sizeof steps);
        snprintf(text, size, "%s (%s): %s failed with %s%s", d->label, d->name, call,
                 driver->error_name(error), steps);
    }
    return v == FXI_GPU_NO_MEMORY ? FX_STATUS_MEMORY : FX_STATUS_DEVICE;
}

void fxi_gpu_no_host_memory(const fxi_gpu_device *d, fxi_gpu_failure *why)
{
    why->status = FX_STATUS_MEMORY;
    snprintf(why->text, sizeof why->text, "out of host memory for a kernel of %s", d->label);
}

bool fxi_gpu_group_fits(const fxi_gpu_device *d, const char *name, int64_t items, int32_t group,
                        fxi_gpu_failure *why)
{
    if (items >= group)
        return true;
    snprintf(why->text, sizeof why->text,
             "%s (%s) runs %s in groups of at most %lld work-items, but the kernel needs %d",
             d->label, d->name, name, (long long)items, (int)group);
    return false;
}

fx_status fxi_gpu_check(fxi_gpu_device *d, const char *operation, const char *call, int error)
{
    char text[320];
    /* 0 is success in every driver's interface. */
    if (error == 0)
        return FX_OK;
    const fx_status status = fxi_gpu_why(d, call, error, text, sizeof text);
    return fxi_gpu_host_of(d)->fail(status, operation, text);
}

/* ---- limits and fault words ------------------------------------------------------------------ */

const fxi_gpu_limits *fxi_gpu_device_limits(fx_device *device)
{
    return &fxi_gpu_device_of(device)->limits;
}

enum { FAULT_BYTES = FXI_GPU_FAULTS * sizeof(int64_t) };

/* Allocated at the first launch that may write to it; kernels without indices need none. */
void *fxi_gpu_device_faults(fx_device *device)
{
    fxi_gpu_device *d = fxi_gpu_device_of(device);
    void *fresh = d->faults ? NULL : d->driver->alloc(device, FAULT_BYTES);
    /* The first word says whether a fault is recorded, so it must start at 0. */
    if (fresh && d->driver->fill(device, fresh, 0, FAULT_BYTES) != FX_OK) {
        d->driver->free(device, fresh);
        fresh = NULL;
    }
    if (fresh)
        d->faults = fresh;
    return d->faults;
}

fx_status fxi_gpu_device_found(fx_device *device, const char *operation)
{
    fxi_gpu_device *d = fxi_gpu_device_of(device);
    int64_t words[FXI_GPU_FAULTS] = {0};
    char text[200];
    /* Reading the words waits for the device, so they are read only if a kernel may have written
     * them. */
    if (!__atomic_exchange_n(&d->checks, 0, __ATOMIC_ACQUIRE))
        return FX_OK;
    fx_status status = d->driver->read(device, words, d->faults, sizeof words);
    if (status != FX_OK || words[0] == 0)
        return status;
    /* Cleared, so the same fault is not reported again. */
    status = d->driver->fill(device, d->faults, 0, FAULT_BYTES);
    if (status != FX_OK)
        return status;
    status = fxi_gpu_fault_text(words, text, sizeof text);
    return fxi_gpu_host_of(d)->fail(status, operation, text);
}

/* ---- opening and ending ---------------------------------------------------------------------- */

void fxi_gpu_quiesce(fxi_gpu_device *d)
{
    if (!fxi_gpu_lost(&d->health))
        d->driver->finish(d);
}

int fxi_gpu_open(const fxi_gpu_opening *o, const fx_host *host, char *why, size_t size)
{
    fxi_gpu_guard guard;
    o->driver->runtime.host = host;
    /* `load` must come before any call that uses threads: it fails in a program that is linked with
     * -static, in which plugins cannot use threads. */
    if (!o->load(why, size))
        return 0;
    /* This must come before the first call of a driver, so that the exit handler covers all calls.
     */
    if (!fxi_gpu_gate_open(o->quiesce)) {
        snprintf(why, size, "out of host memory");
        return 0;
    }
    if (fxi_gpu_enter()) {
        snprintf(why, size, "the process is ending");
        return 0;
    }
    fxi_gpu_guard_begin(&guard);
    const int n = o->find(why, size);
    fxi_gpu_guard_end(&guard);
    fxi_gpu_leave();
    return n;
}
