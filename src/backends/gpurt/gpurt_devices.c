/* gpurt_devices.c: finds, describes and opens the devices.
 *
 * The driver itself hides devices according to its variables (CUDA_VISIBLE_DEVICES), and numbers
 * the others from 0. A device that cannot be opened is ignored with a message, and the others are
 * used.
 */
#include "gpurt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fxi_rt_device devices[FXI_RT_DEVICES];
static int ndevices;
char fxi_rtc_why[200];

fxi_rt_device *fxi_rt_device_at(int id)
{
    return &devices[id];
}

int fxi_rt_device_count(void)
{
    return ndevices;
}

/* ---- describing ------------------------------------------------------------------------------ */

static int64_t attribute(const fxi_rt_device *d, int which)
{
    int value = 0;
    return fxi_rt.DeviceAttribute(&value, which, d->id) == 0 ? value : 0;
}

/* Makes the text of everything that compiled programs depend on, a part of the key of the cache on
 * disk. It contains the driver's version only if the code is PTX, which the driver compiles;
 * machine code stays valid when the driver is replaced. */
static void identify(fxi_rt_device *d)
{
    char text[sizeof d->gpu.identity], options[64] = "";
    int major = 0, minor = 0;
    if (!*fxi_rtc_why)
        fxi_rtc.Version(&major, &minor);
    for (int k = 0; k < fxi_rt_noptions; k++) {
        strncat(options, " ", sizeof options - strlen(options) - 1);
        strncat(options, fxi_rt_options[k], sizeof options - strlen(options) - 1);
    }
    snprintf(text, sizeof text, "%s %d.%d\n%s\n%s%s\n%s", fxi_rt_compiler, major, minor,
             d->architecture, d->target, options, d->intermediate ? d->driver : "");
    memcpy(d->gpu.identity, text, sizeof text);
}

static void describe(fxi_rt_device *d, int version)
{
    size_t memory = 0;
    int64_t groups[3];
    fxi_rt.DeviceName(d->gpu.name, (int)sizeof d->gpu.name - 1, d->id);
    fxi_rt.DeviceMemory(&memory, d->id);
    d->memory = (int64_t)memory;
    for (int k = 0; k < 3; k++) {
        groups[k] = attribute(d, FXI_RT_GROUPS_X + k);
        /* AMD reports 2³¹ − 1 along all axes for some devices. A smaller limit is always correct.
         */
        groups[k] = groups[k] <= 0 || (k > 0 && groups[k] > UINT16_MAX) ? UINT16_MAX : groups[k];
    }
    d->gpu.limits = (fxi_gpu_limits){FXI_GPU_USUAL_LIMITS,
                                     .units = (int32_t)attribute(d, FXI_RT_UNITS),
                                     .buffers = FXI_GPU_BUFFERS,
                                     .param_bytes = 4096,
                                     .group_memory = attribute(d, FXI_RT_GROUP_MEMORY),
                                     .rounds_division = true,
                                     .f64 = true,
                                     .atomic64 = true};
    memcpy(d->gpu.limits.groups, groups, sizeof groups);
    fxi_rt_describe(d, version);
    if (*fxi_rtc_why)
        snprintf(d->cannot_compile, sizeof d->cannot_compile, "%s", fxi_rtc_why);
    else
        fxi_rt_choose_target(d);
    identify(d);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The reason for an error of the driver's first calls. */
static void say_none(int error, const char *call, char *why, size_t size)
{
    const char *hider = fxi_rt_hider();
    if (error == FXI_RT_STUB_LIBRARY)
        snprintf(why, size,
                 "the library found is the toolkit's stub, not a driver: remove its "
                 "folder from LD_LIBRARY_PATH");
    else if (error == FXI_RT_DRIVER_MISMATCH)
        snprintf(why, size,
                 "the driver was updated, but its kernel module was not: restart the "
                 "machine");
    else if (error && error != FXI_RT_NO_DEVICE)
        snprintf(why, size, "%s failed with %s", call, fxi_rt_error_name(error));
    else if (hider)
        snprintf(why, size,
                 "the driver reports no device: %s=%.60s hides all devices, or there are none",
                 hider, getenv(hider));
    else
        snprintf(why, size, "the driver reports no device");
}

/* The driver rejects a device that another process uses exclusively, for example. */
static const char *open_device(fxi_rt_device *d, int *out_error)
{
    const char *call = "opening";
    *out_error = fxi_rt_begin(d);
    if (!*out_error) {
        call = fxi_rt_name.StreamCreate;
        *out_error = fxi_rt.StreamCreate(&d->work, FXI_RT_NON_BLOCKING);
    }
    if (!*out_error)
        *out_error = fxi_rt.StreamCreate(&d->upload, FXI_RT_NON_BLOCKING);
    d->launches = d->work;
    return call;
}

/* Sends a message instead of an error, because the other devices are usable. Keeps the first
 * reason. */
static void left_out(const fxi_rt_device *d, const char *call, int error, char *why, size_t size)
{
    char text[320];
    snprintf(text, sizeof text, "%s: %s is ignored: %s failed with %s", fxi_rt_backend, d->gpu.name,
             call, fxi_rt_error_name(error));
    fxi_rt_host->message(1, text);
    if (!*why)
        snprintf(why, size, "%.60s is ignored: %s failed with %.60s", d->gpu.name, call,
                 fxi_rt_error_name(error));
}

static void open_number(int k, int version, char *why, size_t size)
{
    fxi_rt_device *d = &devices[ndevices];
    int error;
    *d = (fxi_rt_device){.gpu.driver = &fxi_rt_driver};
    if (fxi_rt.DeviceGet(&d->id, k) != 0)
        return;
    describe(d, version);
    const char *call = open_device(d, &error);
    if (error) {
        left_out(d, call, error, why, size);
        return;
    }
    fxi_mutex_init(&d->staging);
    fxi_gpu_device_open(&d->gpu, fxi_rt_backend, ndevices++);
}

int fxi_rt_devices_open(char *why, size_t size)
{
    int n = 0, version = 0;
    const char *call = fxi_rt_name.Init;
    int error = fxi_rt.Init(0);
    *why = '\0';
    if (!error) {
        call = fxi_rt_name.DeviceCount;
        error = fxi_rt.DeviceCount(&n);
    }
    if (error || n == 0) {
        say_none(error, call, why, size);
        return 0;
    }
    fxi_rt.DriverVersion(&version);
    fxi_rt_find_graphs();
    fxi_rtc_open(fxi_rt_major(version), fxi_rtc_why, sizeof fxi_rtc_why);
    for (int k = 0; k < n && ndevices < FXI_RT_DEVICES; k++)
        open_number(k, version, why, size);
    if (ndevices > 0)
        /* If nothing can be compiled for the first device, the devices are listed but not used. */
        snprintf(why, size, "%s", devices[0].cannot_compile);
    return ndevices;
}
