/* opencl_devices.c: finds the devices, applies the user's choice, and opens them.
 *
 * All platforms are searched. GPUs come first, then accelerators, other devices and CPUs (PoCL's,
 * on which tests run). A device that is older than OpenCL 1.2, has no compiler or does not open is
 * ignored with a message, and the others are used.
 *
 * FX_OPENCL_DEVICES chooses: a comma-separated list of numbers in that order, and of parts of the
 * names of devices and platforms; case does not matter ("0,2", "pocl"). The devices get the order
 * of the list. "none" hides all.
 */
#include "c_text.h"
#include "opencl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The lists have fixed sizes, because devices are listed once in a process and are never freed:
 * fx_arrays point to them. */
enum { PLATFORMS_MOST = 16, FOUND_MOST = 64 };

static fxi_opencl_device found[FOUND_MOST], chosen[FOUND_MOST];
static int nfound, nchosen;

fxi_opencl_device *fxi_opencl_device_at(int id)
{
    return &chosen[id];
}

int fxi_opencl_device_count(void)
{
    return nchosen;
}

/* ---- finding --------------------------------------------------------------------------------- */

/* A message and not an error: the other devices are usable. */
static void report_ignored(const fxi_opencl_device *d, const char *reason)
{
    char text[320];
    snprintf(text, sizeof text, "OpenCL: %s of %s is ignored: %s", d->gpu.name, d->platform_name,
             reason);
    fxi_opencl_host->message(1, text);
}

/* A text from the driver. One static buffer is enough, because all texts are read in `open`, which
 * runs once. */
static const char *device_text(cl_device_id id, cl_uint what)
{
    /* The list of extensions is the longest text. */
    static char text[16384];
    size_t length = 0;
    /* A failed query is an empty text: no driver answers all of them. */
    if (fxi_cl.GetDeviceInfo(id, what, sizeof text - 1, text, &length) != CL_SUCCESS)
        length = 0;
    text[length] = '\0';
    return text;
}

static uint64_t device_number(cl_device_id id, cl_uint what, size_t size)
{
    uint64_t value = 0; /* right for an answer of 32 bits too, on little-endian machines */
    return fxi_cl.GetDeviceInfo(id, what, size, &value, NULL) == CL_SUCCESS ? value : 0;
}

static bool has_extension(cl_device_id id, const char *name)
{
    return strstr(device_text(id, CL_DEVICE_EXTENSIONS), name) != NULL;
}

/* Returns 102 for "OpenCL 1.2 …"; 0 if the text has another form. */
static int version_of(const char *text)
{
    int major = 0, minor = 0;
    return sscanf(text, "OpenCL %d.%d", &major, &minor) == 2 ? 100 * major + minor : 0;
}

/* The most work-items of a group along its first axis. */
static int64_t largest_group(cl_device_id id)
{
    size_t along[16] = {0};
    const uint64_t all = device_number(id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t));
    if (fxi_cl.GetDeviceInfo(id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof along, along, NULL))
        along[0] = 0;
    return (int64_t)(along[0] < all ? along[0] : all);
}

static const char *unfit(const fxi_opencl_device *d)
{
    /* Static for the same reason as in device_text. */
    static char reason[sizeof d->version + 40];
    if (!device_number(d->id, CL_DEVICE_AVAILABLE, sizeof(cl_bool)))
        return "it is not available";
    if (version_of(d->version) < 102) {
        snprintf(reason, sizeof reason, "it has %s, but OpenCL 1.2 is required",
                 *d->version ? d->version : "an unknown version");
        return reason;
    }
    /* Kernels are compiled on the machine where the program runs. */
    if (!device_number(d->id, CL_DEVICE_COMPILER_AVAILABLE, sizeof(cl_bool)))
        return "it has no compiler";
    /* Most kernels have groups of this size (gpu.h). */
    if (largest_group(d->id) < FXI_GPU_GROUP) {
        snprintf(reason, sizeof reason, "its work-groups have at most %lld work-items, not %d",
                 (long long)largest_group(d->id), (int)FXI_GPU_GROUP);
        return reason;
    }
    return NULL;
}

/* The largest global size, which must fit in the device's own size_t. */
static int64_t largest_launch(cl_device_id id)
{
    return device_number(id, CL_DEVICE_ADDRESS_BITS, sizeof(cl_uint)) == 32 ? UINT32_MAX
                                                                            : INT64_MAX;
}

/* Sets everything on which compiled programs depend: parts of the key of the cache on disk, and of
 * packs. */
static void identify(fxi_opencl_device *d)
{
    char text[sizeof d->gpu.target];
    snprintf(text, sizeof text, "%s, %s, %s, %s", d->platform_name, d->gpu.name, d->driver,
             d->version);
    memcpy(d->gpu.target, text, sizeof text);
    snprintf(d->gpu.compiler, sizeof d->gpu.compiler, "the driver");
    snprintf(d->gpu.options, sizeof d->gpu.options, "%s", fxi_opencl_options(d));
}

/* The key of the cache is made last, because it contains the other texts. */
static void describe(fxi_opencl_device *d)
{
    snprintf(d->gpu.name, sizeof d->gpu.name, "%.127s", device_text(d->id, CL_DEVICE_NAME));
    snprintf(d->driver, sizeof d->driver, "%.63s", device_text(d->id, CL_DRIVER_VERSION));
    snprintf(d->version, sizeof d->version, "%.127s", device_text(d->id, CL_DEVICE_VERSION));
    d->type = device_number(d->id, CL_DEVICE_TYPE, sizeof(cl_bitfield));
    d->memory = (int64_t)device_number(d->id, CL_DEVICE_GLOBAL_MEM_SIZE, 8);
    d->largest = (int64_t)device_number(d->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 8);
    d->reports_free = has_extension(d->id, "cl_amd_device_attribute_query");
    /* OpenCL limits the bytes of all arguments, not the number of buffers. */
    d->gpu.limits = (fxi_gpu_limits){
        FXI_GPU_USUAL_LIMITS,
        .units = (int32_t)device_number(d->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(cl_uint)),
        .buffers = FXI_GPU_BUFFERS,
        .param_bytes = (int32_t)device_number(d->id, CL_DEVICE_MAX_PARAMETER_SIZE, sizeof(size_t)),
        .serial = (d->type & CL_DEVICE_TYPE_CPU) != 0,
        .items = largest_launch(d->id),
        .group_memory = (int64_t)device_number(d->id, CL_DEVICE_LOCAL_MEM_SIZE, 8),
        .rounds_division = (device_number(d->id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof(cl_bitfield)) &
                            CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0,
        .f64 = device_number(d->id, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof(cl_bitfield)) != 0,
        .atomic64 = has_extension(d->id, "cl_khr_int64_base_atomics")};
    identify(d);
}

/* The reason of the first device that is ignored is stored in `why`. */
static void find_in(cl_platform_id platform, char *why, size_t size)
{
    cl_device_id ids[FOUND_MOST];
    cl_uint n = 0;
    /* A platform without devices is not a failure: others may have some. */
    if (fxi_cl.GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, FOUND_MOST, ids, &n) != CL_SUCCESS)
        return;
    for (cl_uint k = 0; k < n && k < FOUND_MOST && nfound < FOUND_MOST; k++) {
        fxi_opencl_device *d = &found[nfound];
        *d = (fxi_opencl_device){
            .gpu.driver = &fxi_opencl_driver, .platform = platform, .id = ids[k]};
        fxi_cl.GetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof d->platform_name - 1,
                               d->platform_name, NULL);
        describe(d);
        const char *reason = unfit(d);
        if (!reason)
            nfound++;
        else
            report_ignored(d, reason);
        if (reason && !*why)
            snprintf(why, size, "%s is ignored: %s", d->gpu.name, reason);
    }
}

/* The first device is the default one, so GPUs come before CPUs. */
static int rank(const fxi_opencl_device *d)
{
    return d->type & CL_DEVICE_TYPE_GPU           ? 0
           : d->type & CL_DEVICE_TYPE_ACCELERATOR ? 1
           : d->type & CL_DEVICE_TYPE_CPU         ? 3
                                                  : 2;
}

/* Sorts by rank; devices of one rank keep the order in which they were found. */
static void sort_found(void)
{
    /* Insertion sort, because it is stable and the list is short. */
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
    /* The loader without a driver returns PLATFORM_NOT_FOUND. */
    if (error != CL_SUCCESS || n == 0) {
        snprintf(why, size,
                 "no OpenCL platform is installed: the loader was found, but no driver (ICD)");
        return false;
    }
    for (cl_uint k = 0; k < n && k < PLATFORMS_MOST; k++)
        find_in(platforms[k], why, size);
    sort_found();
    if (nfound == 0 && !*why)
        snprintf(why, size, "the OpenCL platforms have no devices");
    return nfound > 0;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static void choose(int k)
{
    for (int i = 0; i < nchosen; i++)
        /* An item may name a device that an earlier item has chosen. */
        if (chosen[i].id == found[k].id)
            return;
    chosen[nchosen++] = found[k];
}

/* Chooses the devices that one item of the list names. */
static void choose_item(const char *item)
{
    char *end;
    const long number = strtol(item, &end, 10);
    /* A number that names no device is ignored, like a name that no device has. */
    if (end != item && !*end) {
        if (number >= 0 && number < nfound)
            choose((int)number);
        return;
    }
    for (int k = 0; k < nfound; k++)
        if (fxi_contains_ignoring_case(found[k].gpu.name, item) ||
            fxi_contains_ignoring_case(found[k].platform_name, item))
            choose(k);
}

static bool choose_all(char *why, size_t size)
{
    const char *list = getenv("FX_OPENCL_DEVICES");
    const bool given = list && *list;
    /* Without a list all devices are chosen. */
    for (int k = 0; k < nfound && !given; k++)
        choose(k);
    while (given && *list) {
        char item[64];
        const size_t n = strcspn(list, ",");
        snprintf(item, sizeof item, "%.*s", (int)n, list);
        /* "none" names no device, so a list of it alone hides all. */
        if (*item && strcmp(item, "none") != 0)
            choose_item(item);
        list += n + (list[n] == ',');
    }
    if (nchosen == 0)
        snprintf(why, size, "FX_OPENCL_DEVICES=%s matches none of the %d devices",
                 getenv("FX_OPENCL_DEVICES"), nfound);
    return nchosen > 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Creates one context for all chosen devices of the platform of chosen[first]. */
static cl_int open_context(int first)
{
    cl_device_id ids[FOUND_MOST];
    cl_uint n = 0;
    cl_int error;
    const cl_platform_id platform = chosen[first].platform;
    /* Devices before `first` have been opened or reported already. */
    for (int k = first; k < nchosen; k++)
        /* A context cannot span platforms. */
        if (chosen[k].platform == platform)
            ids[n++] = chosen[k].id;
    /* The platform is named, because a loader with several platforms may choose another one. */
    const intptr_t properties[] = {CL_CONTEXT_PLATFORM, (intptr_t)platform, 0};
    const cl_context context = fxi_cl.CreateContext(properties, n, ids, NULL, NULL, &error);
    for (int k = first; k < nchosen && context; k++)
        if (chosen[k].platform == platform)
            chosen[k].context = context;
    return error;
}

/* If a platform's context cannot be created, each of its devices tries again and is reported. */
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
    report_ignored(d, reason);
    snprintf(why, size, "%s: %s", d->gpu.name, reason);
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
        /* Opened devices move forward in the list, so their numbers have no gaps. */
        chosen[n] = chosen[k];
        fxi_gpu_device_open(&chosen[n].gpu, "OpenCL", n);
        n++;
    }
    nchosen = n;
    /* If a device works, the reasons why others do not are messages only. */
    if (n > 0)
        *why = '\0';
    return n;
}
