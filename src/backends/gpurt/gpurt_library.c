/* gpurt_library.c: opens the vendors' libraries, and measures their calls; see gpurt_library.h. */
#include "gpurt_library.h"

#include "c_text.h"
#include "shared_library.h"
#include "this_process.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening --------------------------------------------------------------------------------- */

void fxi_rt_library_warn(fxi_rt_library *l, const char *why)
{
    char text[640];
    if (__atomic_exchange_n(&l->warned, 1, __ATOMIC_RELAXED))
        return;
    snprintf(text, sizeof text, "%s: %s; %s", fxi_rt_backend, why, l->slower);
    fxi_rt_host->message(1, text);
}

static bool take(fxi_rt_library *l, void *library, const char *file)
{
    return library && fxi_rt_take(library, file, l->entries, l->nentries, l->why, sizeof l->why);
}

/* A library for another version of the driver would load a second driver, or refuse this one. */
static void take_one(fxi_rt_library *l, int driver)
{
    char reason[256];
    const char *newer = NULL;
    for (int k = 0; k < FXI_RT_FILES && l->files[k].file; k++) {
        const fxi_rt_library_file *f = &l->files[k];
        void *library = fxi_rt_open_file(f->file, reason, sizeof reason);
        if (library && !l->suits(f->major, driver))
            newer = f->file;
        else if (take(l, library, f->file)) {
            *l->why = '\0'; /* an earlier library in the list was damaged, but this one works */
            return;
        }
    }
    if (newer)
        snprintf(l->why, sizeof l->why, "%s does not work with this driver, version %d; %s", newer,
                 driver, l->install);
    else if (!*l->why)
        snprintf(l->why, sizeof l->why, "%s, which %s, is not installed: there is no %s; %s",
                 l->names[0], l->what, l->files[0].file, l->install);
}

static void open_library(fxi_rt_library *l)
{
    const char *wanted = fxi_trusted_variable(l->variable);
    char reason[160];
    int driver = 0;
    fxi_rt.DriverVersion(&driver);
    if (!wanted || !*wanted) {
        take_one(l, driver);
        return;
    }
    if (strcmp(wanted, "off") == 0) {
        snprintf(l->why, sizeof l->why, "%s=off", l->variable);
        /* The user asked for this, so there is no warning. */
        __atomic_store_n(&l->warned, 1, __ATOMIC_RELAXED);
        return;
    }
    void *library = fxi_library_open(wanted, reason, sizeof reason);
    if (!library)
        snprintf(l->why, sizeof l->why, "%.80s, which %s names, cannot be opened: %.100s", wanted,
                 l->variable, reason);
    take(l, library, wanted);
}

const char *fxi_rt_library_why(fxi_rt_library *l)
{
    fxi_mutex_lock(&l->lock);
    if (!l->opened)
        open_library(l);
    l->opened = true;
    fxi_mutex_unlock(&l->lock);
    return l->why;
}

const char *fxi_rt_library_part(fxi_rt_library *l, const char *name)
{
    for (int k = 0; k < 2; k++)
        if (l->names[k] && fxi_same_ignoring_case(name, l->names[k]))
            return fxi_rt_library_why(l);
    return NULL;
}

bool fxi_rt_library_has(fxi_rt_library *l, fxi_rt_device *d, fxi_rt_library_handle *handle)
{
    char why[200];
    if (*fxi_rt_library_why(l)) {
        fxi_rt_library_warn(l, l->why);
        return false;
    }
    fxi_mutex_lock(&l->lock);
    if (!handle->object && !handle->refused && fxi_rt_select(d) == 0) {
        handle->follow = l->follow;
        handle->object = l->begin(d, why, sizeof why);
        /* A failure is remembered: the next step would wait for the same failure. */
        handle->refused = !handle->object;
        if (handle->refused)
            fxi_rt_library_warn(l, why);
    }
    const bool has = handle->object != NULL;
    fxi_mutex_unlock(&l->lock);
    return has;
}

/* ---- calls ----------------------------------------------------------------------------------- */

fx_status fxi_rt_library_fail(fxi_rt_device *d, const char *operation, const char *call,
                              const char *error)
{
    char text[320];
    snprintf(text, sizeof text, "%s (%s): %s failed with %s", d->gpu.label, d->gpu.name, call,
             error ? error : "an unknown error");
    return fxi_rt_host->fail(FX_STATUS_DEVICE, operation, text);
}

fx_status fxi_rt_library_enter(fxi_rt_device *d, const char *operation)
{
    const fxi_gpu_launch launch = {.operation = operation};
    const fx_status status =
        fxi_gpu_check(&d->gpu, operation, "selecting the device", fxi_rt_select(d));
    if (!status) {
        fxi_gpu_launched(&d->gpu, &launch);
        fxi_gpu_count(&fxi_gpu_counts.calls);
    }
    return status;
}

/* ---- several ways ---------------------------------------------------------------------------- */

/* While launches are recorded (in another stream), nothing runs, so there are no times. */
static bool can_measure(fx_device *device)
{
    const fxi_rt_device *d = fxi_rt_of(device);
    return d->launches == d->work;
}

static int start(fx_device *device)
{
    fxi_rt_device *d = fxi_rt_of(device);
    int error = fxi_rt_select(d);
    for (int k = 0; k < 2 && !error; k++)
        if (!d->trial[k])
            /* These events measure times, so FXI_RT_NO_TIMES is not set. */
            error = fxi_rt.EventCreate(&d->trial[k], 0);
    return error ? error : fxi_rt.EventRecord(d->trial[0], d->work);
}

static int stop(fx_device *device, double *out_seconds)
{
    const fxi_rt_device *d = fxi_rt_of(device);
    float milliseconds = 0;
    int error = fxi_rt_select(d);
    if (!error)
        error = fxi_rt.EventRecord(d->trial[1], d->work);
    if (!error)
        error = fxi_rt.EventSync(d->trial[1]);
    if (!error)
        error = fxi_rt.EventElapsed(&milliseconds, d->trial[0], d->trial[1]);
    *out_seconds = 1e-3 * (double)milliseconds;
    return error;
}

const fxi_gpu_trial fxi_rt_trial = {.can = can_measure, .start = start, .stop = stop};

bool fxi_rt_measures(fxi_rt_device *d)
{
    const char *text = getenv("FX_GPU_MEASURE");
    return (!text || strcmp(text, "0") != 0) && fxi_rt.EventElapsed && !*fxi_rt_ready(&d->gpu);
}

void fxi_rt_append(char *key, const char *format, ...)
{
    const size_t length = strlen(key);
    va_list args;
    va_start(args, format);
    vsnprintf(key + length, FXI_RT_KEY_BYTES - length, format, args);
    va_end(args);
}
