/* gpurt_cuda.c: the functions of the CUDA plugin that differ from those of AMDGPU; see gpurt.h. */
#include "gpurt.h"

#include <stdio.h>
#include <stdlib.h>

const char fxi_rt_backend[] = "CUDA", fxi_rt_hiders[] = "CUDA_VISIBLE_DEVICES",
           fxi_rt_compiler[] = "NVRTC";
/* Products are not fused with sums, so that all backends round alike. */
const char *const fxi_rt_options[] = {"--fmad=false"};
const int fxi_rt_noptions = 1;

const char *fxi_rt_hider(void)
{
    return getenv(fxi_rt_hiders) ? fxi_rt_hiders : NULL;
}

int fxi_rt_select(const fxi_rt_device *d)
{
    return fxi_rt.ContextSet(d->context);
}

/* Uses the primary context, as other libraries in the process do: memory and streams can be shared
 * with them, and no second context takes device memory. */
int fxi_rt_begin(fxi_rt_device *d)
{
    const int error = fxi_rt.ContextRetain(&d->context, d->id);
    return error ? error : fxi_rt.ContextSet(d->context);
}

static int attribute(const fxi_rt_device *d, int which)
{
    int value = 0;
    return fxi_rt.DeviceAttribute(&value, which, d->id) == 0 ? value : 0;
}

int fxi_rt_major(int version)
{
    return version / 1000;
}

void fxi_rt_describe(fxi_rt_device *d, int version)
{
    snprintf(d->driver, sizeof d->driver, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    snprintf(d->architecture, sizeof d->architecture, "sm_%d%d", attribute(d, FXI_RT_MAJOR),
             attribute(d, FXI_RT_MINOR));
    d->gpu.limits.warp = 32;
    if (fxi_rt.FunctionSet)
        d->gpu.limits.asked_memory = attribute(d, FXI_RT_ASKED_MEMORY);
}

/* The compiler makes machine code for the architectures that it lists. For a device with another
 * architecture it makes PTX for the newest earlier one: devices run PTX of every earlier
 * architecture. */
void fxi_rt_choose_target(fxi_rt_device *d)
{
    enum { MOST = 128 };
    const int own = 10 * attribute(d, FXI_RT_MAJOR) + attribute(d, FXI_RT_MINOR);
    int archs[MOST], n = 0, best = 0, least = 0;
    if (fxi_rtc.ArchCount(&n) != 0 || n <= 0 || n > MOST || fxi_rtc.Archs(archs) != 0)
        n = 0;
    for (int k = 0; k < n; k++) {
        best = archs[k] <= own && archs[k] > best ? archs[k] : best;
        least = least == 0 || archs[k] < least ? archs[k] : least;
    }
    int major = 0, minor = 0;
    fxi_rtc.Version(&major, &minor);
    if (n == 0) {
        snprintf(d->cannot_compile, sizeof d->cannot_compile,
                 "NVRTC %d.%d does not report the architectures that it supports", major, minor);
        return;
    }
    if (best == 0) {
        snprintf(d->cannot_compile, sizeof d->cannot_compile,
                 "NVRTC %d.%d compiles for sm_%d and later, but the device is %s; install an older "
                 "NVRTC and set FX_NVRTC_LIBRARY to it",
                 major, minor, least, d->architecture);
        return;
    }
    d->intermediate = best != own;
    snprintf(d->option, sizeof d->option, "--gpu-architecture=%s_%d",
             d->intermediate ? "compute" : "sm", best);
}

/* Machine code runs on its own architecture and on later ones of the same major version, PTX on its
 * own and all later ones. The driver takes PTX as a text that ends with a zero byte. */
int fxi_rt_rank_of(const fxi_rt_device *d, const fx_packed_kernel *k, int newest)
{
    int own = 0, made = 0, compiler = 0;
    sscanf(d->architecture, "sm_%d", &own);
    if (sscanf(k->compiler, "NVRTC %d", &compiler) == 1 && newest && compiler > newest)
        return 0;
    if (sscanf(k->target, "sm_%d", &made) == 1)
        return made == own ? FXI_GPU_RANKS : made / 10 == own / 10 && made < own ? 2 : 0;
    return sscanf(k->target, "compute_%d", &made) == 1 && made <= own &&
           ((const char *)k->code)[k->size - 1] == '\0';
}

fxi_rt_form fxi_rt_form_of(const fxi_rt_device *d)
{
    return d->intermediate ? (fxi_rt_form){fxi_rtc.PTXSize, fxi_rtc.PTX}
                           : (fxi_rt_form){fxi_rtc.CodeSize, fxi_rtc.Code};
}

const char *fxi_rt_error_name(int error)
{
    static _Thread_local char number[32];
    const char *name = NULL;
    if (fxi_rt.ErrorName(error, &name) == 0 && name)
        return name;
    snprintf(number, sizeof number, "error %d", error);
    return number;
}

int fxi_rt_peer_enable(const fxi_rt_device *other)
{
    return fxi_rt.PeerEnable(other->context, 0);
}

int fxi_rt_peer_copy(fxi_rt_device *to, void *address, const fxi_rt_device *from, void *source,
                     size_t bytes)
{
    return fxi_rt.PeerCopy(address, to->context, source, from->context, bytes, to->work);
}
