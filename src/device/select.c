/* select.c: chooses the device that a program uses, with the order, preferences and messages of
 * Flux 0.14.
 *
 * The preference comes from the project's file, if any. It is followed if its backend is loaded and
 * works. Otherwise a warning says why not. The choice is then the first backend in the list that is
 * loaded, works, and does not compute on the host's processor. If there is none, the choice is the
 * CPU, which always works. Flux's messages name packages and Julia sessions; these name fx_use and
 * this program.
 */
#include "context.h"
#include "handle.h"
#include "load.h"
#include "option_struct.h"
#include "preferences.h"
#include "registry.h"
#include "thread.h"

#include <cflux/device.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- backends -------------------------------------------------------------------------------- */

const char *const *fx_supported_devices(void)
{
    return fxi_backend_order;
}

/* "CUDA:cuDNN" → the entry of CUDA and "cuDNN"; without a part, *part is NULL. "check:CPU" is one
 * name, and may have a part as well. */
static const fxi_registered *split(const char *name, const char **part)
{
    const fxi_registered *r = fxi_registered_find(name);
    const char *colon = r || !name ? NULL : strrchr(name, ':');
    char backend[64];
    *part = NULL;
    if (colon && (size_t)(colon - name) < sizeof backend) {
        snprintf(backend, sizeof backend, "%.*s", (int)(colon - name), name);
        r = fxi_registered_find(backend);
        *part = colon + 1;
    }
    return r;
}

/* Why a wrapper is missing: the reason of the wrapped backend, or that the program did not ask for
 * the wrapper. */
static const char *why_no_check(const char *inner)
{
    const char *why = fx_why_not(inner);
    return *why ? why : "it is not loaded: call fx_use with its name";
}

const char *fx_why_not(const char *name)
{
    fxi_plugin_name storage;
    name = fxi_backend_of(name, &storage);
    const char *part, *inner = fxi_checked_name(name);
    const fxi_registered *r = split(name, &part);
    if (!r && inner)
        return why_no_check(inner);
    if (!r && strchr(name ? name : "", '/'))
        return "unknown backend; the file of a backend has a name such as libcflux-example.so";
    if (!r)
        return "unknown backend; known are CUDA, AMDGPU, Metal, OpenCL, CPU";
    if (!part || !fxi_works(r))
        return r->why;
    const char *why = r->backend->part ? r->backend->part(part) : NULL;
    return why ? why : "the backend has no part of that name";
}

bool fx_functional(const char *name)
{
    const char *part;
    fxi_plugin_name storage;
    const fxi_registered *r = split(fxi_backend_of(name, &storage), &part);
    return fxi_works(r) && (!part || !*fx_why_not(name));
}

fx_status fx_use(const char *name)
{
    fxi_backend_load(name);
    return fx_functional(name) ? FX_OK : FX_STATUS_DEVICE;
}

fx_status fx_use_all(void)
{
    fxi_backend_load_all();
    return FX_OK;
}

/* ---- the preference -------------------------------------------------------------------------- */

const char *fx_gpu_backend(void)
{
    return fxi_preferred_backend();
}

fx_status fx_gpu_backend_set(const char *backend)
{
    if (!backend || !fxi_is_preferable(backend))
        return fx_fail(FX_STATUS_ARGUMENT, "gpu_backend_set",
                       "Unsupported GPU backend: %s. Supported backends are: %s.",
                       backend ? backend : "NULL", fxi_backend_list());
    if (strcmp(backend, fxi_preferred_backend()) == 0) {
        fx_message(0, "GPU backend is already set to: %s.\nNo need to do anything else.", backend);
        return FX_OK;
    }
    const fx_status status = fxi_preference_store(backend);
    if (status == FX_OK)
        fx_message(0,
                   "New GPU backend set: %s.\nRestart your program for this change to take effect!",
                   backend);
    return status;
}

/* Did fx_use fail to load the backend? Then the message gives the reason of that failure. */
static bool failed_to_load(const fxi_registered *r)
{
    return r && !fxi_loaded(r) && __atomic_load_n(&r->tried, __ATOMIC_ACQUIRE);
}

/* The preference of the project. Flux once called AMDGPU "AMD". */
static const char *preference(void)
{
    static bool warned;
    const char *name = fxi_preferred_backend();
    if (strcmp(name, "AMD") != 0)
        return name;
    if (!__atomic_test_and_set(&warned, __ATOMIC_RELAXED))
        fx_message(1, "\"AMD\" backend is deprecated. Please use \"AMDGPU\" instead.");
    return "AMDGPU";
}

/* The preferred device. NULL: there is no preference, or it cannot be followed, and a message has
 * said why. */
static fx_device *preferred(bool verbose)
{
    static bool warned; /* once, like Flux's maxlog = 1 */
    const char *name = preference();
    if (!*name)
        return NULL;
    if (!fxi_is_preferable(name)) {
        if (!__atomic_test_and_set(&warned, __ATOMIC_RELAXED))
            fx_message(1,
                       "`gpu_backend` preference is set to %s, which is not allowed.\n"
                       "Defaulting to automatic device selection.",
                       name);
        return NULL;
    }
    if (verbose)
        fx_message(0, "Using backend set in preferences: %s.", name);
    const fxi_registered *r = fxi_registered_find(name);
    if (failed_to_load(r))
        fx_message(1,
                   "Trying to use backend: %s but it could not be loaded: %s.\n"
                   "Defaulting to automatic device selection.",
                   name, r->why);
    else if (!fxi_loaded(r))
        fx_message(1,
                   "Trying to use backend: %s but it is not loaded.\n"
                   "Please call fx_use(\"%s\") and this function again to respect the preferences "
                   "backend.",
                   name, name);
    else if (!fxi_works(r))
        fx_message(
            1,
            "Backend: %s from the set preferences is not functional: %s.\nDefaulting to automatic "
            "device selection.",
            name, r->why);
    return fxi_works(r) ? r->devices[0] : NULL;
}

static bool is_cpu(const fxi_registered *r)
{
    return r->count > 0 && r->devices[0] == fx_cpu_device();
}

/* The first working backend whose device does not compute on the host's CPU. If there is none, the
 * last in the order, which is the CPU itself. */
static const fxi_registered *automatic_backend(void)
{
    const fxi_registered *r = NULL;
    for (int i = 0; fxi_backend_order[i]; i++) {
        r = fxi_registered_find(fxi_backend_order[i]);
        if (fxi_works(r) && !r->devices[0]->info.on_cpu)
            break;
    }
    return r;
}

/* ---- one device ------------------------------------------------------------------------------ */

fx_device *fx_device_get(const char *backend, int id)
{
    const fxi_registered *r = fxi_registered_find(backend);
    const bool untried = r && !fxi_loaded(r) && !failed_to_load(r);
    if (!r && fxi_checked_name(backend))
        fx_fail(FX_STATUS_DEVICE, "device", "Unavailable backend: %s: %s", backend,
                fx_why_not(backend));
    else if (!r)
        fx_fail(FX_STATUS_DEVICE, "device", "Unsupported backend: %s. Supported backends are %s.",
                backend ? backend : "NULL", fxi_backend_list());
    else if (!fxi_works(r))
        fx_fail(FX_STATUS_DEVICE, "device", "Unavailable backend: %s: %s.%s%s%s", r->name, r->why,
                untried ? " Try loading it with fx_use(\"" : "", untried ? r->name : "",
                untried ? "\")" : "");
    else if (id < 0 || id >= r->count)
        fx_fail(FX_STATUS_DEVICE, "device", "%s has %d device%s, so there is no id %d", r->name,
                r->count, r->count == 1 ? "" : "s", id);
    else
        return r->devices[id];
    return fx_cpu_device();
}

int fx_device_count(const char *backend)
{
    const fxi_registered *r = fxi_registered_find(backend);
    return fxi_works(r) ? r->count : 0;
}

fx_device *fx_device_find(const char *name)
{
    const char *colon = name ? strrchr(name, ':') : NULL;
    const bool numbered = colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1);
    char backend[64];
    const int n = name ? (int)(numbered ? colon - name : (int)strlen(name)) : 0;
    if (n == 0 || n >= (int)sizeof backend)
        return fx_device_get(name, 0);
    snprintf(backend, sizeof backend, "%.*s", n, name);
    fx_use(backend);
    const long id = numbered ? strtol(colon + 1, NULL, 10) : 0;
    return fx_device_get(backend, id > INT_MAX ? INT_MAX : (int)id);
}

const char *fx_device_model(const fx_device *device)
{
    return device ? device->info.name : "";
}

fx_status fx_synchronize(fx_device *device)
{
    return device && device->backend->sync ? device->backend->sync(device) : FX_OK;
}

void *fx_backend_proc(const char *backend, const char *name)
{
    const fxi_registered *r = fxi_registered_find(backend);
    return fxi_loaded(r) && r->backend->proc ? r->backend->proc(name) : NULL;
}

const char *fx_device_name(const fx_device *device)
{
    return device ? device->name : "CPU";
}

/* A pending value made only of literals and generators belongs to no device yet. It is computed on
 * the device of the array that it meets, or on the CPU. */
fx_device *fx_array_device(const fx_array *x)
{
    fx_device *device = fxi_has_node(x) ? fxi_node_device(x->node) : NULL;
    return device ? device : fx_cpu_device();
}

int fx_device_id(const fx_device *device)
{
    return device ? device->id : 0;
}

/* ---- the GPU --------------------------------------------------------------------------------- */

/* The preferred backend; NULL if there is none, or if it is not allowed. */
static const fxi_registered *preferred_entry(void)
{
    const char *name = preference();
    return fxi_is_preferable(name) ? fxi_registered_find(name) : NULL;
}

/* The backend that a message about a missing GPU names: the preferred one; else the first that is
 * loaded and is not a working GPU; else the first that could not be loaded. NULL: the program asked
 * for none. */
static const fxi_registered *backend_to_name(void)
{
    const fxi_registered *r = preferred_entry();
    for (int i = 0; !r && fxi_backend_order[i]; i++) {
        const fxi_registered *next = fxi_registered_find(fxi_backend_order[i]);
        const bool gpu = fxi_works(next) && !next->devices[0]->info.on_cpu;
        r = fxi_loaded(next) && !gpu && !is_cpu(next) ? next : NULL;
    }
    for (int i = 0; !r && fxi_backend_order[i]; i++) {
        const fxi_registered *next = fxi_registered_find(fxi_backend_order[i]);
        r = failed_to_load(next) ? next : NULL;
    }
    return r;
}

/* Explains in sentences why there is no GPU. */
static const char *no_gpu(char *text, size_t size)
{
    const fxi_registered *r = backend_to_name();
    if (!r)
        snprintf(text, size,
                 "no GPU backend is loaded: call fx_use(\"CUDA\"), for example, or fx_use_all()");
    else if (fxi_works(r) && r->devices[0]->info.on_cpu)
        snprintf(text, size,
                 "%s computes on the CPU (%s) and is used only if it is preferred or named",
                 r->name, r->devices[0]->info.name);
    else if (fxi_works(r))
        snprintf(text, size, "the CPU is the preferred backend");
    else if (failed_to_load(r))
        snprintf(text, size, "%s could not be loaded: %s", r->name, r->why);
    else if (!fxi_loaded(r))
        snprintf(text, size, "%s, the preferred backend, cannot be used: %s", r->name, r->why);
    else
        snprintf(text, size, "%s is not functional: %s", r->name, r->why);
    return text;
}

static fx_device *automatic(bool verbose)
{
    const fxi_registered *r = automatic_backend();
    const bool cpu = is_cpu(r);
    char why[FXI_PLUGIN_WHY + 100];
    if (verbose && cpu && failed_to_load(backend_to_name()))
        fx_message(0, "Using backend: %s.\n%s.", r->name, no_gpu(why, sizeof why));
    else if (verbose)
        fx_message(0, "Using backend: %s.", r->name);
    return r->devices[0];
}

fx_device *fxi_get_device(const fx_get_device_args *given)
{
    FXI_TAKE_OPTIONS(fx_get_device_args, FXI_GET_DEVICE_ARGS, opts, "get_device", given);
    if (!opts_ok)
        return fx_cpu_device();
    fx_device *device = preferred(opts.verbose);
    return device ? device : automatic(opts.verbose);
}

/* The GPU to use; NULL: none. */
static fx_device *gpu_or_none(void)
{
    const fxi_registered *r = preferred_entry();
    if (!fxi_works(r))
        r = automatic_backend();
    return is_cpu(r) ? NULL : r->devices[0];
}

static void say_no_gpu(void)
{
    char why[FXI_PLUGIN_WHY + 100];
    fx_message(0,
               "The GPU functionality is being called but %s.\nDefaulting back to the CPU. (No "
               "action is required if you want to run on the CPU).",
               no_gpu(why, sizeof why));
}

static void say_other_gpu(void)
{
    preferred(false);
}

fx_device *fx_gpu_device(void)
{
    static fxi_once none = FXI_ONCE_INIT, other = FXI_ONCE_INIT;
    fx_device *d = gpu_or_none();
    const char *name = preference();
    if (d && *name && strcmp(name, d->backend->head.name) != 0)
        fxi_call_once(&other, say_other_gpu);
    else if (!d && strcmp(name, "CPU") != 0)
        fxi_call_once(&none, say_no_gpu);
    return d ? d : fx_cpu_device();
}

static void say_no_cuda(void)
{
    const fxi_registered *r = fxi_registered_find("CUDA");
    fx_message(1, "fx_cu needs CUDA, so arrays are not moved: %s.", r->why);
}

fx_device *fxi_cuda_or_none(void)
{
    static fxi_once once = FXI_ONCE_INIT;
    const fxi_registered *r = fxi_registered_find("CUDA");
    if (!fxi_works(r))
        fxi_call_once(&once, say_no_cuda);
    return fxi_works(r) ? r->devices[0] : NULL;
}

fx_device *fxi_gpu_required(const char *op)
{
    char why[FXI_PLUGIN_WHY + 100];
    fx_device *d = gpu_or_none();
    if (!d)
        fx_fail(FX_STATUS_DEVICE, op, "No functional GPU device found: %s",
                no_gpu(why, sizeof why));
    return d;
}
