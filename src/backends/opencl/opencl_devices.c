/* opencl_devices.c: finds the devices, lets the user choose, opens them, names what fails.
 *
 * All platforms are asked. GPUs come first, then accelerators, other devices and CPUs (PoCL's,
 * which tests run on). A device older than OpenCL 1.2, without a compiler, or that does not open is
 * left out with a message, and the others go on.
 *
 * FX_OPENCL_DEVICES chooses: a list with commas of numbers in that order and of parts of the names
 * of devices and platforms, without regard to case ("0,2", "pocl"); the devices get the order of
 * the list. "none" hides all.
 */
#include "opencl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PLATFORMS_MOST = 16, FOUND_MOST = 64 };

static fxi_opencl_device found[FOUND_MOST], chosen[FOUND_MOST];
static int nfound, nchosen;

fxi_opencl_device *fxi_opencl_device_at(int id)
{
    return &chosen[id];
}

/* ---- what fails ------------------------------------------------------------------------------ */

/* Errors after which nothing can be done with a device. */
static bool is_loss(cl_int error)
{
    enum { INVALID_CONTEXT = -34, INVALID_COMMAND_QUEUE = -36 };
    return error == CL_DEVICE_NOT_AVAILABLE || error == INVALID_CONTEXT ||
           error == INVALID_COMMAND_QUEUE;
}

fx_status fxi_opencl_why(fxi_opencl_device *d, const char *call, cl_int error, char *text,
                         size_t size)
{
    if (is_loss(error))
        __atomic_store_n(&d->lost, error, __ATOMIC_RELAXED);
    const int lost = __atomic_load_n(&d->lost, __ATOMIC_RELAXED);
    if (lost)
        snprintf(text, size, "%s (%s) is lost: %s says %s; arrays on it can no longer be read",
                 d->label, d->name, call, fxi_cl_error_name(lost));
    else
        snprintf(text, size, "%s (%s): %s failed with %s", d->label, d->name, call,
                 fxi_cl_error_name(error));
    return error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_HOST_MEMORY
               ? FX_STATUS_MEMORY
               : FX_STATUS_DEVICE;
}

fx_status fxi_opencl_check(fxi_opencl_device *d, const char *operation, const char *call,
                           cl_int error)
{
    char text[320];
    if (error == CL_SUCCESS)
        return FX_OK;
    const fx_status status = fxi_opencl_why(d, call, error, text, sizeof text);
    return fxi_opencl_host->fail(status, operation, text);
}

/* ---- finding --------------------------------------------------------------------------------- */

static void left_out(const fxi_opencl_device *d, const char *reason)
{
    char text[320];
    snprintf(text, sizeof text, "OpenCL: %s of %s is left out: %s", d->name, d->platform_name,
             reason);
    fxi_opencl_host->message(1, text);
}

/* A text of the driver's; all are read in open, which runs once. */
static const char *device_text(cl_device_id id, cl_uint what)
{
    static char text[16384];
    size_t length = 0;
    if (fxi_cl.GetDeviceInfo(id, what, sizeof text - 1, text, &length) != CL_SUCCESS)
        length = 0;
    text[length] = '\0';
    return text;
}

static uint64_t device_number(cl_device_id id, cl_uint what, size_t size)
{
    uint64_t value = 0; /* little endian: also right for 32 bits */
    return fxi_cl.GetDeviceInfo(id, what, size, &value, NULL) == CL_SUCCESS ? value : 0;
}

static bool has_extension(cl_device_id id, const char *name)
{
    return strstr(device_text(id, CL_DEVICE_EXTENSIONS), name) != NULL;
}

/* "OpenCL 1.2 …" → 102. */
static int version_of(const char *text)
{
    int major = 0, minor = 0;
    return sscanf(text, "OpenCL %d.%d", &major, &minor) == 2 ? 100 * major + minor : 0;
}

static const char *unfit(const fxi_opencl_device *d)
{
    static char reason[160];
    if (!device_number(d->id, CL_DEVICE_AVAILABLE, sizeof(cl_bool)))
        return "it is not available now";
    if (version_of(d->version) < 102) {
        snprintf(reason, sizeof reason, "it has %s, and OpenCL 1.2 is needed",
                 *d->version ? d->version : "an unknown version");
        return reason;
    }
    if (!device_number(d->id, CL_DEVICE_COMPILER_AVAILABLE, sizeof(cl_bool)))
        return "it has no compiler";
    return device_number(d->id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t)) < FXI_GPU_GROUP
               ? "its work-groups are too small"
               : NULL;
}

static void describe(fxi_opencl_device *d)
{
    snprintf(d->name, sizeof d->name, "%.127s", device_text(d->id, CL_DEVICE_NAME));
    snprintf(d->driver, sizeof d->driver, "%.63s", device_text(d->id, CL_DRIVER_VERSION));
    snprintf(d->version, sizeof d->version, "%.127s", device_text(d->id, CL_DEVICE_VERSION));
    d->type = device_number(d->id, CL_DEVICE_TYPE, sizeof(cl_bitfield));
    d->memory = (int64_t)device_number(d->id, CL_DEVICE_GLOBAL_MEM_SIZE, 8);
    d->largest = (int64_t)device_number(d->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 8);
    d->says_free = has_extension(d->id, "cl_amd_device_attribute_query");
    d->limits = (fxi_gpu_limits){
        .units = (int32_t)device_number(d->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(cl_uint)),
        .buffers = FXI_GPU_BUFFERS,
        .param_bytes = (int32_t)device_number(d->id, CL_DEVICE_MAX_PARAMETER_SIZE, sizeof(size_t)),
        .serial = (d->type & CL_DEVICE_TYPE_CPU) != 0,
        .f64 = device_number(d->id, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof(cl_bitfield)) != 0,
        .atomic64 = has_extension(d->id, "cl_khr_int64_base_atomics")};
}

/* The first reason why a device was left out is kept in `why`. */
static void find_in(cl_platform_id platform, char *why, size_t size)
{
    cl_device_id ids[FOUND_MOST];
    cl_uint n = 0;
    if (fxi_cl.GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, FOUND_MOST, ids, &n) != CL_SUCCESS)
        return;
    for (cl_uint k = 0; k < n && k < FOUND_MOST && nfound < FOUND_MOST; k++) {
        fxi_opencl_device *d = &found[nfound];
        *d = (fxi_opencl_device){.platform = platform, .id = ids[k]};
        fxi_cl.GetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof d->platform_name - 1,
                               d->platform_name, NULL);
        describe(d);
        const char *reason = unfit(d);
        if (!reason)
            nfound++;
        else
            left_out(d, reason);
        if (reason && !*why)
            snprintf(why, size, "%s is left out: %s", d->name, reason);
    }
}

static int rank(const fxi_opencl_device *d)
{
    return d->type & CL_DEVICE_TYPE_GPU           ? 0
           : d->type & CL_DEVICE_TYPE_ACCELERATOR ? 1
           : d->type & CL_DEVICE_TYPE_CPU         ? 3
                                                  : 2;
}

/* In order of rank; devices of one rank stay as they were found. */
static void sort_found(void)
{
    for (int i = 1; i < nfound; i++)
        for (int k = i; k > 0 && rank(&found[k]) < rank(&found[k - 1]); k--) {
            const fxi_opencl_device d = found[k];
            found[k] = found[k - 1];
            found[k - 1] = d;
        }
}

static bool find_all(char *why, size_t size)
{
    cl_platform_id platforms[PLATFORMS_MOST];
    cl_uint n = 0;
    const cl_int error = fxi_cl.GetPlatformIDs(PLATFORMS_MOST, platforms, &n);
    if (error != CL_SUCCESS && error != CL_PLATFORM_NOT_FOUND_KHR) {
        snprintf(why, size, "clGetPlatformIDs failed with %s", fxi_cl_error_name(error));
        return false;
    }
    if (error != CL_SUCCESS || n == 0) {
        snprintf(why, size,
                 "no OpenCL platform is installed: there is a loader, but no driver "
                 "(ICD)");
        return false;
    }
    for (cl_uint k = 0; k < n && k < PLATFORMS_MOST; k++)
        find_in(platforms[k], why, size);
    sort_found();
    if (nfound == 0 && !*why)
        snprintf(why, size, "the OpenCL platforms have no device");
    return nfound > 0;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static void choose(int k)
{
    for (int i = 0; i < nchosen; i++)
        if (chosen[i].id == found[k].id)
            return;
    chosen[nchosen++] = found[k];
}

/* The devices that one item of the list means. */
static void choose_item(const char *item)
{
    char *end;
    const long number = strtol(item, &end, 10);
    if (end != item && !*end) {
        if (number >= 0 && number < nfound)
            choose((int)number);
        return;
    }
    for (int k = 0; k < nfound; k++)
        if (strcasestr(found[k].name, item) || strcasestr(found[k].platform_name, item))
            choose(k);
}

static bool choose_all(char *why, size_t size)
{
    const char *list = getenv("FX_OPENCL_DEVICES");
    const bool given = list && *list;
    for (int k = 0; k < nfound && !given; k++)
        choose(k);
    while (given && *list) {
        char item[64];
        const size_t n = strcspn(list, ",");
        snprintf(item, sizeof item, "%.*s", (int)n, list);
        if (*item && strcmp(item, "none") != 0)
            choose_item(item);
        list += n + (list[n] == ',');
    }
    if (nchosen == 0)
        snprintf(why, size, "FX_OPENCL_DEVICES=%s leaves none of the %d devices",
                 getenv("FX_OPENCL_DEVICES"), nfound);
    return nchosen > 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* One context for the chosen devices of the platform of chosen[first]. */
static cl_int open_context(int first)
{
    cl_device_id ids[FOUND_MOST];
    cl_uint n = 0;
    cl_int error;
    const cl_platform_id platform = chosen[first].platform;
    for (int k = first; k < nchosen; k++)
        if (chosen[k].platform == platform)
            ids[n++] = chosen[k].id;
    const intptr_t properties[] = {CL_CONTEXT_PLATFORM, (intptr_t)platform, 0};
    const cl_context context = fxi_cl.CreateContext(properties, n, ids, NULL, NULL, &error);
    for (int k = first; k < nchosen && context; k++)
        if (chosen[k].platform == platform)
            chosen[k].context = context;
    return error;
}

static bool open_device(int k, char *why, size_t size)
{
    fxi_opencl_device *d = &chosen[k];
    cl_int error = d->context ? CL_SUCCESS : open_context(k);
    const char *call = "clCreateContext";
    if (d->context) {
        call = "clCreateCommandQueue";
        d->queue = fxi_cl.CreateCommandQueue(d->context, d->id, 0, &error);
    }
    if (d->queue)
        return true;
    char reason[128];
    snprintf(reason, sizeof reason, "%s failed with %s", call, fxi_cl_error_name(error));
    left_out(d, reason);
    snprintf(why, size, "%s: %s", d->name, reason);
    return false;
}

int fxi_opencl_devices_open(char *why, size_t size)
{
    int n = 0;
    *why = '\0';
    if (!find_all(why, size) || !choose_all(why, size))
        return 0;
    for (int k = 0; k < nchosen; k++) {
        if (!open_device(k, why, size))
            continue;
        chosen[n] = chosen[k];
        snprintf(chosen[n].label, sizeof chosen[n].label, "OpenCL:%d", n);
        pthread_mutex_init(&chosen[n].lock, NULL);
        n++;
    }
    nchosen = n;
    return n;
}
