/* load.c: opens backends: those in plugins, and wrappers around other backends. plugin_file.h finds
 * and checks a plugin. This file opens it and registers its devices, or keeps the reason for
 * fx_why_not. Plugins are never unloaded.
 */
#include "load.h"
#include "backends.h"
#include "c_text.h"
#include "error.h"
#include "kernel_cache.h"
#include "kernel_pack.h"
#include "memory.h"
#include "plugin_file.h"
#include "thread.h"

#include <stdio.h>
#include <string.h>

static fxi_mutex lock = FXI_MUTEX_INIT; /* one backend at a time */

/* ---- the library's side ---------------------------------------------------------------------- */

static void host_message(int level, const char *text)
{
    fx_message(level, "%s", text);
}

static const fx_plugin_head *host_kernel_library(const char *serves, const char *name,
                                                 const uint32_t sizes[FX_PLUGIN_SIZES], char *why,
                                                 size_t size)
{
    const fxi_plugin_request request = {
        .kind = FX_PLUGIN_KERNEL_LIBRARY, .name = name, .serves = serves, .sizes = sizes};
    const fx_plugin_head *plugin;
    fxi_plugin_find(&request, &plugin, why, size);
    return plugin;
}

static const fx_host host = {.version = FX_VERSION_STRING,
                             .alloc = fxi_malloc,
                             .free = fxi_free,
                             .fail = fxi_fail_text,
                             .error_take = fx_error_take,
                             .error_put = fxi_error_carry,
                             .message = host_message,
                             .cpu = &fxi_cpu_backend,
                             .kernel_library = host_kernel_library,
                             .kernels_cached = fxi_kernels_cached,
                             .kernel_load = fxi_kernel_load,
                             .kernel_store = fxi_kernel_store,
                             .kernel_packed = fxi_kernel_packed};

/* ---- a plugin -------------------------------------------------------------------------------- */

/* Are one or two of the three entries present? The backend must have all of them or none. */
static bool part_of(bool a, bool b, bool c)
{
    return a + b + c == 1 || a + b + c == 2;
}

/* Names the entries that a backend's table lacks, or NULL. */
static const char *missing(const fx_backend *b)
{
    if (!b->alloc || !b->free || !b->run)
        return "its table must have alloc, free and run";
    if (!b->write != !b->read)
        return "its table must have both read and write, or neither";
    if (!b->prepare != !b->release)
        return "its table must have both prepare and release, or neither";
    if (part_of(b->plan_prepare, b->plan_run, b->plan_release))
        return "its table must have all of plan_prepare, plan_run and plan_release, or none";
    if (part_of(b->mark, b->wait, b->unmark))
        return "its table must have all of mark, wait and unmark, or none";
    return NULL;
}

/* Opens and registers a backend. One without a device, or whose devices cannot be used, is
 * registered with the reason. */
static const char *take(const fx_plugin_head *plugin, void *user)
{
    (void)user;
    const fx_backend *b = (const fx_backend *)plugin;
    const char *lack = missing(b);
    if (lack)
        return lack;
    char reason[400] = "";
    fxi_kernel_packs_from_environment();
    int n = b->open ? b->open(&host, reason, sizeof reason) : 1;
    n = n < 0 ? 0 : n > FXI_DEVICES_MOST ? FXI_DEVICES_MOST : n;
    if (n == 0 && !*reason)
        snprintf(reason, sizeof reason, "it found no device");
    fxi_backend_register(b, n, reason); /* failures are recorded */
    fxi_registered_plugin(b->head.name);
    return NULL;
}

/* The beginning of the reason if the plugin cannot be installed on this system, else "". */
static const char *needs_system(const char *name)
{
#ifndef __APPLE__
    if (fxi_same_ignoring_case(name, "Metal"))
        return "it needs macOS; ";
#endif
    (void)name;
    return "";
}

/* path: the only file to try, or NULL. */
static void load(const char *name, const char *path)
{
    static const uint32_t sizes[] = FX_PLUGIN_SIZES_HERE(fx_backend, fx_host);
    const fxi_plugin_request request = {
        .kind = FX_PLUGIN_BACKEND, .name = name, .sizes = sizes, .path = path, .take = take};
    const fx_plugin_head *plugin;
    char why[FXI_PLUGIN_WHY];
    const fxi_plugin_result result = fxi_plugin_find(&request, &plugin, why, sizeof why);
    if (result == FXI_PLUGIN_TAKEN)
        return;
    const bool found = path || result == FXI_PLUGIN_REJECTED;
    char told[FXI_PLUGIN_WHY + 32];
    snprintf(told, sizeof told, "%s%s", found ? "" : needs_system(name), why);
    fxi_registered_why(name, told, found);
}

/* ---- wrappers -------------------------------------------------------------------------------- */

/* "check:CPU" is a backend that wraps the backend CPU. */
static const struct wrapper {
    const char *prefix;
    const fx_backend *(*around)(const fx_backend *inner, fx_device *const *devices, int count);
} wrappers[] = {{"check:", fxi_check_backend}};
enum { WRAPPERS = sizeof wrappers / sizeof wrappers[0] };

static const struct wrapper *wrapper_of(const char *name)
{
    for (int i = 0; name && i < WRAPPERS; i++)
        if (fxi_same_start_ignoring_case(name, wrappers[i].prefix, strlen(wrappers[i].prefix)))
            return &wrappers[i];
    return NULL;
}

const char *fxi_checked_name(const char *name)
{
    const struct wrapper *w = wrapper_of(name);
    return w ? name + strlen(w->prefix) : NULL;
}

/* Registers the wrapper around a backend that is loaded and works. */
static void wrap(const char *name)
{
    const fxi_registered *r = fxi_registered_find(fxi_checked_name(name));
    const fx_backend *b =
        fxi_works(r) ? wrapper_of(name)->around(r->backend, r->devices, r->count) : NULL;
    if (b)
        fxi_backend_register(b, r->count, "");
    if (b && r->plugin)
        fxi_registered_plugin(name);
}

/* ---- by name --------------------------------------------------------------------------------- */

const char *fxi_backend_of(const char *name, fxi_plugin_name *storage)
{
    const bool path = name && strchr(name, '/') && fxi_plugin_name_of(name, storage);
    return path && storage->kind == FX_PLUGIN_BACKEND ? storage->name : name;
}

void fxi_backend_load(const char *name)
{
    fxi_plugin_name storage;
    const char *short_name = fxi_backend_of(name, &storage), *inner = fxi_checked_name(short_name);
    const char *path = short_name != name ? name : NULL, *own = inner ? inner : short_name;
    if (!name || !*own || strlen(short_name) >= FXI_PLUGIN_NAME || strpbrk(own, "/:. -"))
        return;
    if (inner)
        fxi_backend_load(inner);
    fxi_mutex_lock(&lock);
    if (!fxi_loaded(fxi_registered_find(short_name)))
        inner ? wrap(short_name) : load(short_name, path);
    fxi_mutex_unlock(&lock);
}

static void load_file(const char *path, const fxi_plugin_name *name, void *user)
{
    (void)path, (void)user;
    if (name->kind == FX_PLUGIN_BACKEND)
        fxi_backend_load(name->name);
}

void fxi_backend_load_all(void)
{
    fxi_plugin_each(load_file, NULL);
}
