/* sim_module.c: loads the programs of the simulated compiler (sim_compiler.c): texts that name a
 * shared library.
 */
#include "sim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number of an architecture: 90 of "sm_90" and "compute_90", hexadecimal of "gfx90a". */
static long number(const char *architecture)
{
    const char *digits = strpbrk(architecture, "0123456789");
    return digits ? strtol(digits, NULL, strncmp(architecture, "gfx", 3) == 0 ? 16 : 10) : 0;
}

/* Can the device run the program? Machine code is for one architecture, NVIDIA's also for later
 * ones of the same major version; PTX is for an architecture and all later ones. */
static int fits(const char *form, const char *architecture, long version)
{
    const bool is_amd = strncmp(architecture, "gfx", 3) == 0;
    const char *own = getenv("SIM_ARCHITECTURE");
    own = own && *own ? own : is_amd ? "gfx90a" : "90";
    if (!is_amd && version > (long)sim_setting("SIM_VERSION", 13000))
        return SIM_UNSUPPORTED_PTX;
    const bool later = number(architecture) <= number(own),
               major = number(architecture) / 10 == number(own) / 10;
    const bool fit = strcmp(form, "PTX") == 0 ? later
                     : is_amd                 ? number(architecture) == number(own)
                                              : later && major;
    return fit ? SIM_OK : SIM_NO_BINARY;
}

int sim_module_load(sim_device *d, const char *image, sim_module **out)
{
    char form[16], architecture[80], path[600];
    long version;
    if (strncmp(image, "simulated ", 10) != 0 || sscanf(image, "simulated %15s %79s %ld\n%599[^\n]",
                                                        form, architecture, &version, path) != 4)
        return SIM_INVALID_IMAGE;
    const int error = fits(form, architecture, version);
    if (error)
        return error;
    /* The folder may have such a name too. */
    const char *id = strrchr(path, '/');
    if (!id || strncmp(id, "/sim-", 5) != 0)
        return SIM_INVALID_IMAGE;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    sim_module *m = library || sim_setting("SIM_COLLECT", 0) ? malloc(sizeof *m) : NULL;
    if (!m) {
        if (library)
            dlclose(library);
        return SIM_INVALID_IMAGE;
    }
    *m = (sim_module){.library = library, .device = d};
    snprintf(m->id, sizeof m->id, "%.16s", id + 5);
    *out = m;
    return SIM_OK;
}

/* Finds a symbol of the text; a library may have several texts (sim_build.c). */
static void *find(const sim_module *m, const char *name)
{
    char symbol[300];
    snprintf(symbol, sizeof symbol, "%s_%s", name, m->id);
    return dlsym(m->library, symbol);
}

static bool find_kernel(const sim_module *m, const char *name, sim_kernel *k)
{
    char symbol[256];
    const int *(*sizes)(void);
    snprintf(symbol, sizeof symbol, "sim_enter_%s", name);
    *(void **)&k->entry = find(m, symbol);
    snprintf(symbol, sizeof symbol, "sim_sizes_%s", name);
    *(void **)&sizes = find(m, symbol);
    char *const *from = find(m, "sim_shared_from"), *const *to = find(m, "sim_shared_to");
    if (!k->entry || !sizes || !from || !to)
        return false;
    k->shared = *from;
    k->shared_bytes = (size_t)(*to - *from);
    k->positions = dlsym(m->library, "sim_positions");
    k->calls = dlsym(m->library, "sim_functions");
    k->warp = *(const int *)dlsym(m->library, "sim_warp");
    k->sizes = sizes();
    const unsigned *group = find(m, "sim_group");
    k->group_most = group ? *group : SIM_GROUP_MOST;
    return true;
}

unsigned sim_kernel_items(const sim_kernel *k)
{
    const unsigned most = (unsigned)sim_setting("SIM_ITEMS", SIM_GROUP_MOST);
    return k->group_most < most ? k->group_most : most;
}

int sim_module_function(const sim_module *m, const char *name, sim_kernel **out)
{
    static const int none[] = {0};
    sim_kernel k = {
        .name = strdup(name), .device = m->device, .sizes = none, .group_most = SIM_GROUP_MOST};
    /* A text that was collected has no library yet. */
    if ((m->library && !find_kernel(m, name, &k)) || !(*out = malloc(sizeof **out))) {
        free((char *)(uintptr_t)k.name);
        return SIM_NOT_FOUND;
    }
    **out = k;
    return SIM_OK;
}
