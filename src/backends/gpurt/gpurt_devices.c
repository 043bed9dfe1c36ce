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
static int driver_version;
/* Protects what is set when the compiler is opened: `compiler`, and the devices' members for it. */
static fxi_mutex compiler_lock = FXI_MUTEX_INIT;
static struct {
    bool opened;
    char why[200];
} compiler;

fxi_rt_device *fxi_rt_device_at(int id)
{
    return &devices[id];
}

int fxi_rt_device_count(void)
{
    return ndevices;
}

static int64_t attribute(const fxi_rt_device *d, int which)
{
    int value = 0;
    return fxi_rt.DeviceAttribute(&value, which, d->id) == 0 ? value : 0;
}

/* ---- the compiler ---------------------------------------------------------------------------- */

/* The caller holds the lock. */
static const char *open_compiler(void)
{
    if (!compiler.opened)
        fxi_rtc_open(fxi_rt_major(driver_version), compiler.why, sizeof compiler.why);
    compiler.opened = true;
    return compiler.why;
}

const char *fxi_rt_compiler_why(void)
{
    fxi_mutex_lock(&compiler_lock);
    const char *why = open_compiler();
    fxi_mutex_unlock(&compiler_lock);
    return why;
}

/* Sets the rest of the key of compiled programs. It contains the driver's version only if the code
 * is PTX, which the driver compiles; machine code stays valid when the driver is replaced. */
static void identify(fxi_rt_device *d)
{
    int major = 0, minor = 0;
    fxi_gpu_device *g = &d->gpu;
    fxi_rtc.Version(&major, &minor);
    snprintf(g->target, sizeof g->target, "%s", strchr(d->option, '=') + 1);
    snprintf(g->compiler, sizeof g->compiler, "%s %d.%d%s%s", fxi_rt_compiler, major, minor,
             d->intermediate ? ", " : "", d->intermediate ? d->driver : "");
}

static bool is_any(const fx_packed_kernel *kernel, void *user)
{
    (void)kernel, (void)user;
    return true;
}

/* Appends to `cannot_compile` how a pack of kernels could help, or that no pack has code for the
 * device. */
static void say_packs(fxi_rt_device *d)
{
    const size_t n = strlen(d->cannot_compile);
    const fx_kernel_key any = {.backend = fxi_rt_driver.kind};
    if (fxi_rt_host->kernel_packed(&any, is_any, NULL))
        snprintf(d->cannot_compile + n, sizeof d->cannot_compile - n,
                 "; no pack of kernels has code for %.40s that the driver (%s) loads",
                 d->architecture, d->driver);
    else
        snprintf(d->cannot_compile + n, sizeof d->cannot_compile - n,
                 "; or set CFLUX_KERNELS to a pack of kernels (docs/gpu.md)");
}

const char *fxi_rt_ready(fxi_gpu_device *device)
{
    fxi_rt_device *d = (fxi_rt_device *)device;
    fxi_mutex_lock(&compiler_lock);
    if (!d->ready) {
        const char *why = open_compiler();
        if (*why)
            snprintf(d->cannot_compile, sizeof d->cannot_compile, "%s", why);
        else
            fxi_rt_choose_target(d);
        if (!*d->cannot_compile)
            identify(d);
    }
    d->ready = true;
    fxi_mutex_unlock(&compiler_lock);
    return d->cannot_compile;
}

int fxi_rt_rank(const fxi_gpu_device *device, const fx_packed_kernel *kernel)
{
    return fxi_rt_rank_of((const fxi_rt_device *)device, kernel, fxi_rt_major(driver_version));
}

static bool suits(const fx_packed_kernel *kernel, void *user)
{
    return fxi_rt_rank(user, kernel) > 0;
}

/* A device with code in a pack is usable without a compiler, which is opened when the code of a
 * kernel is missing. Any other device needs the compiler now. */
static const char *decide(fxi_rt_device *d)
{
    const fx_kernel_key any = {.backend = fxi_rt_driver.kind};
    if (fxi_rt_host->kernel_packed(&any, suits, &d->gpu))
        return "";
    if (*fxi_rt_ready(&d->gpu))
        say_packs(d);
    return d->cannot_compile;
}

/* ---- describing ------------------------------------------------------------------------------ */

static void describe(fxi_rt_device *d, int version)
{
    size_t memory = 0;
    int64_t groups[3];
    char *options = d->gpu.options;
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
    memcpy(d->gpu.target, d->architecture, sizeof d->architecture);
    for (int k = 0; k < fxi_rt_noptions; k++)
        snprintf(options + strlen(options), sizeof d->gpu.options - strlen(options), "%s%s",
                 k ? " " : "", fxi_rt_options[k]);
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
    /* hipInit gives INVALID_DEVICE on a machine that has ROCm, but no AMD GPU. */
    else if (error && error != FXI_RT_NO_DEVICE && error != FXI_RT_INVALID_DEVICE)
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
static void report_ignored(const fxi_rt_device *d, const char *call, int error, char *why,
                           size_t size)
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
    const char *call = fxi_rt_name.DeviceGet;
    error = fxi_rt.DeviceGet(&d->id, k);
    if (error) {
        snprintf(d->gpu.name, sizeof d->gpu.name, "device %d", k);
    } else {
        describe(d, version);
        call = open_device(d, &error);
    }
    if (error) {
        report_ignored(d, call, error, why, size);
        return;
    }
    fxi_mutex_init(&d->staging);
    fxi_gpu_device_open(&d->gpu, fxi_rt_backend, ndevices++);
}

int fxi_rt_devices_open(char *why, size_t size)
{
    int n = 0;
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
    fxi_rt.DriverVersion(&driver_version);
    fxi_rt_find_graphs();
    for (int k = 0; k < n && ndevices < FXI_RT_DEVICES; k++)
        open_number(k, driver_version, why, size);
    if (ndevices > 0)
        /* If the first device has neither compiler nor pack, the devices are listed but not used.
         */
        snprintf(why, size, "%s", decide(&devices[0]));
    return ndevices;
}
