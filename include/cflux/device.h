/* cflux/device.h: devices. The CPU is always there; "ref" is the slow, obvious float64 backend that
 * tests compare with.
 *
 * Large convolutions, and matrix products of BFloat16, go through oneDNN where its plugin is
 * installed (libcflux-onednn.so). It is looked for in the folders of the environment variable
 * FX_PLUGIN_PATH, beside the library, in a folder cflux there, and where it was installed; it is
 * opened when a computation is first large enough to repay that. FX_ONEDNN=0 does without.
 *
 * "check:" before a backend's name, fx_use("check:CPU"), gives devices "check:CPU:0" and so on that
 * compute as that backend's do and look at what is done to their memory: accesses outside live
 * allocations, writes beyond an end or after release, outputs that are not written. What is found
 * is an error, FX_STATUS_INTERNAL; fresh memory reads as NaN. FX_CHECK=all looks at all memory
 * after each step, and fx_synchronize does so once (docs/guide/checking-memory.md). */
#ifndef CFLUX_DEVICE_H
#define CFLUX_DEVICE_H

#include <cflux/tree.h>

FXI_BEGIN_C

/* Loads a backend by name ("CUDA", "CPU"). FX_STATUS_DEVICE when it is not there; that is not
 * recorded as an error, so that the same program runs without a GPU. fx_why_not says why. */
FX_API fx_status fx_use(const char *backend);
FX_API fx_status fx_use_all(void);                  /* every backend that is installed */
FX_API const char *fx_why_not(const char *backend); /* "" when it works; static storage */
FX_API bool fx_functional(const char *backend);
/* The backends that may be preferred, in the order in which fx_get_device tries them: "CUDA",
 * "AMDGPU", "Metal", "OpenCL", "CPU"; NULL at the end. */
FX_API const char *const *fx_supported_devices(void);

/* The preferred backend: gpu_backend in table [Flux] of LocalPreferences.toml (as Flux's own
 * preference) in the folder CFLUX_PROJECT, or the current one; "" when there is none. The file is
 * read once. */
FX_API const char *fx_gpu_backend(void);
/* Writes the preference and keeps everything else in the file; takes effect when the program is
 * started again. FX_STATUS_FORMAT, naming the line, when the file is corrupt; it is then left as it
 * is. */
FX_API fx_status fx_gpu_backend_set(const char *backend);

typedef struct fx_dev_opts {
    size_t fxi_size;
    bool verbose; /* log which device was chosen and why */
} fx_dev_opts;
/* The preferred backend's first device; where it is not loaded or does not work (a warning says
 * so), or there is no preference: the first of CUDA, AMDGPU, Metal, OpenCL that is loaded and
 * works; else the CPU. */
FX_API fx_device *fxi_get_device(const fx_dev_opts *opts);
/* A device by backend name and id from 0; an unknown one is an error and gives the CPU. */
FX_API fx_device *fx_device_get(const char *backend, int id);
FX_API fx_device *fx_cpu_device(void);
/* A device by one text, "cuda:0", "CPU", "opencl" (the first one), in any case; loads the backend
 * where that is needed. An unknown one is an error and gives the CPU. For command lines. */
FX_API fx_device *fx_device_find(const char *name);
FX_API const char *fx_device_name(const fx_device *device); /* "CPU", "CUDA:0" */
FX_API int fx_device_id(const fx_device *device);
/* The driver's name of it ("NVIDIA H100 80GB HBM3"); "" when nobody knows. */
FX_API const char *fx_device_model(const fx_device *device);
/* Waits until all work that was handed to the device is done, e.g. before a clock is read; reports
 * what failed since the last report (recorded). */
FX_API fx_status fx_synchronize(fx_device *device);
/* A function or object of the device's backend by name, for programs that know what they ask for;
 * NULL when it has none of that name. */
FX_API void *fx_backend_proc(const char *backend, const char *name);
FX_API int fx_device_count(const char *backend); /* 0 when it is not loaded or does not work */

/* The most bytes of arrays and work space that may live on a device; 0, the default, is no limit.
 * An evaluation that would need more first gives back what is kept for speed, then fails with
 * FX_STATUS_MEMORY, and every array stays as it was. What lives already is not touched. */
FX_API void fx_set_memory_limit(fx_device *device, int64_t bytes);
/* Gives back what is kept for speed: the calling thread's cached memory and work space, and plans
 * that no evaluation uses. The next evaluations take their time again. */
FX_API void fx_reclaim(void);

/* Moves every array of an object; returns the same object when all are there already. */
FX_API void *fxi_to(fx_device *device, void *object);
/* To the preferred or first GPU; without one returns its argument and says once why. Float64
 * becomes Float32 on the way to an accelerator. */
FX_API void *fxi_gpu(void *object);
FX_API void *fxi_cpu(void *object);
#ifndef __cplusplus
FX_API fx_array *(fx_cu)(fx_array *x); /* as functions, for fx_fmap and fx_mapobs */
FX_API fx_array *(fx_gpu)(fx_array *x);
FX_API fx_array *(fx_cpu)(fx_array *x);
#endif
/* Where fx_gpu moves to: the preferred backend's first device, else the first GPU that works, else
 * the CPU (said once). */
FX_API fx_device *fx_gpu_device(void);
/* Reading single elements of an array on an accelerator (fx_at) warns once by default: each is a
 * copy. false makes it an error, true silent: CUDA.allowscalar. */
FX_API void fx_allowscalar(bool allow);
FXI_END_C
#ifdef __cplusplus
inline fx_device *fx_get_device(bool verbose = false)
{
    const fx_dev_opts o = {sizeof(fx_dev_opts), verbose};
    return fxi_get_device(&o);
}
template <class T> inline T *fx_to(fx_device *d, T *x)
{
    return static_cast<T *>(fxi_to(d, x));
}
template <class T> inline T *fx_gpu(T *x)
{
    return static_cast<T *>(fxi_gpu(x));
}
template <class T> inline T *fx_cu(T *x)
{
    return static_cast<T *>(fxi_gpu(x));
}
template <class T> inline T *fx_cpu(T *x)
{
    return static_cast<T *>(fxi_cpu(x));
}
#else
#define fx_get_device(...)                                                                         \
    fxi_get_device(&(const fx_dev_opts){.fxi_size = sizeof(fx_dev_opts), __VA_ARGS__})
#define fx_to(device, x) ((__typeof__(x))fxi_to((device), (x)))
#define fx_gpu(x)        ((__typeof__(x))fxi_gpu(x))
#define fx_cu(x)         ((__typeof__(x))fxi_gpu(x))
#define fx_cpu(x)        ((__typeof__(x))fxi_cpu(x))
#endif
#endif
