/* gpurt_hip.c: the functions of the AMDGPU plugin that differ from those of CUDA; see gpurt.h. */
#include "gpurt.h"

#include "shared_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char fxi_rt_backend[] = "AMDGPU",
           fxi_rt_hiders[] = "HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES",
           fxi_rt_compiler[] = "hipRTC";
/* Products are not fused with sums, so that all backends round alike. */
const char *const fxi_rt_options[] = {"-ffp-contract=off"};
const int fxi_rt_noptions = 1;

const char *fxi_rt_hider(void)
{
    static const char *const names[] = {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                        "CUDA_VISIBLE_DEVICES"};
    for (int k = 0; k < 3; k++)
        if (getenv(names[k]))
            return names[k];
    return NULL;
}

int fxi_rt_select(const fxi_rt_device *d)
{
    return fxi_rt.DeviceSet(d->id);
}

int fxi_rt_begin(fxi_rt_device *d)
{
    return fxi_rt.DeviceSet(d->id);
}

/* There is no version to compare: a driver loads code objects of any version of hipRTC if it knows
 * their format. */
int fxi_rt_major(int version)
{
    (void)version;
    return 0;
}

/* The architecture is a member of a struct that ROCm 6 changed. The function with a number in its
 * name fills the new struct; a library without this function is that of ROCm 5. */
void fxi_rt_describe(fxi_rt_device *d, int version)
{
    /* BYTES: more than any version of the struct has. */
    enum { NAME_IN_6 = 1160, NAME_IN_5 = 396, NAME_BYTES = 256, BYTES = 8192 };
    char *properties = fxi_rt_host->alloc(BYTES);
    int warp = 0;
    snprintf(d->driver, sizeof d->driver, "ROCm %d.%d", version / 10000000, version / 100000 % 100);
    if (properties)
        memset(properties, 0, BYTES);
    if (properties && fxi_rt.Properties6 && fxi_rt.Properties6(properties, d->id) == 0)
        snprintf(d->architecture, sizeof d->architecture, "%.79s", properties + NAME_IN_6);
    else if (properties && fxi_rt.Properties5 && fxi_rt.Properties5(properties, d->id) == 0)
        snprintf(d->architecture, sizeof d->architecture, "%.79s", properties + NAME_IN_5);
    fxi_rt_host->free(properties);
    fxi_rt.DeviceAttribute(&warp, FXI_RT_WARP, d->id);
    d->gpu.limits.warp = warp == 32 ? 32 : 64;
    /* A launch has fewer than 2³² work-items along an axis. */
    d->gpu.limits.items = UINT32_MAX;
}

/* ---- the compiler ---------------------------------------------------------------------------- */

/* hipRTC ends the process if it compiles for an architecture that its compiler, comgr, does not
 * support. So this asks comgr first. If comgr cannot be opened, every architecture counts as
 * supported. */
static bool compiler_knows(const char *architecture)
{
    static const char *const files[] = {"libamd_comgr.so.3", "libamd_comgr.so.2"};
    static const char prefix[] = "amdgcn-amd-amdhsa--";
    int (*count)(size_t *) = NULL;
    int (*name)(size_t, const char **) = NULL;
    const size_t length = strcspn(architecture, ":");
    char why[128];
    void *library = NULL;
    size_t n = 0;
    for (int k = 0; k < 2 && !library; k++)
        library = fxi_library_open(files[k], why, sizeof why);
    if (library) {
        *(void **)&count = fxi_library_symbol(library, "amd_comgr_get_isa_count");
        *(void **)&name = fxi_library_symbol(library, "amd_comgr_get_isa_name");
    }
    if (!count || !name || count(&n) != 0)
        return true;
    for (size_t k = 0; k < n; k++) {
        const char *isa = NULL;
        if (name(k, &isa) == 0 && isa && strncmp(isa, prefix, sizeof prefix - 1) == 0 &&
            strncmp(isa + sizeof prefix - 1, architecture, length) == 0 &&
            (isa[sizeof prefix - 1 + length] == '\0' || isa[sizeof prefix - 1 + length] == ':'))
            return true;
    }
    return false;
}

void fxi_rt_choose_target(fxi_rt_device *d)
{
    int major = 0, minor = 0;
    fxi_rtc.Version(&major, &minor);
    if (!*d->architecture)
        snprintf(d->cannot_compile, sizeof d->cannot_compile,
                 "the driver does not report the device's architecture");
    else if (!compiler_knows(d->architecture))
        snprintf(d->cannot_compile, sizeof d->cannot_compile,
                 "hipRTC %d.%d does not know the architecture %s; install a ROCm that supports the "
                 "device",
                 major, minor, d->architecture);
    else
        snprintf(d->option, sizeof d->option, "--offload-arch=%s", d->architecture);
}

/* A code object is made for an architecture with its features. */
int fxi_rt_rank_of(const fxi_rt_device *d, const fx_packed_kernel *k, int newest)
{
    (void)newest;
    return *d->architecture && strcmp(k->target, d->architecture) == 0 ? FXI_GPU_RANKS : 0;
}

fxi_rt_form fxi_rt_form_of(const fxi_rt_device *d)
{
    (void)d;
    return (fxi_rt_form){fxi_rtc.CodeSize, fxi_rtc.Code};
}

const char *fxi_rt_error_name(int error)
{
    const char *name = fxi_rt.ErrorName(error);
    return name ? name : "an unknown error";
}

/* ---- several devices ------------------------------------------------------------------------- */

int fxi_rt_peer_enable(const fxi_rt_device *other)
{
    return fxi_rt.PeerEnable(other->id, 0);
}

int fxi_rt_peer_copy(fxi_rt_device *to, void *address, const fxi_rt_device *from, void *source,
                     size_t bytes)
{
    return fxi_rt.PeerCopy(address, to->id, source, from->id, bytes, to->work);
}
