/* cflux/device.h: backends, devices, memory, moves between devices.
 *
 * The CPU is always available. "ref" is a slow and simple Float64 backend for comparisons in tests.
 *
 * Large convolutions and large BFloat16 matrix products use oneDNN where it is faster, if its
 * plugin libcflux-cpu-onednn.so is installed. It is loaded when a computation is first large enough
 * to benefit. FX_ONEDNN=0 in the environment disables it.
 *
 * fx_use("check:CPU") provides devices "check:CPU:0", … that compute as the backend CPU does and
 * find invalid memory accesses. These are FX_STATUS_INTERNAL: accesses outside of live allocations,
 * writes beyond the end of an allocation or to freed memory, and outputs that a step does not
 * write. New memory contains NaN. With FX_CHECK=all in the environment all memory is checked after
 * each step; fx_synchronize checks it once (docs/guide/checking-memory.md). */
#ifndef CFLUX_DEVICE_H
#define CFLUX_DEVICE_H

#include <cflux/tree.h>

FXI_BEGIN_C

/* Loads a backend by name ("CUDA", "CPU") or by the path of its file, which must contain a slash
 * ("./libcflux-example.so"). Returns FX_STATUS_DEVICE if the backend cannot be used. This is not
 * recorded as an error, so that the same program runs without a GPU; fx_why_not lists every file
 * that was tried, with the reason. */
FX_API fx_status fx_use(const char *backend);
FX_API fx_status fx_use_all(void); /* loads every installed backend; always FX_OK */
/* Why a backend, or its library "CUDA:cuDNN", cannot be used; "" if it works. Static storage. */
FX_API const char *fx_why_not(const char *backend);
/* Returns true if a backend is loaded and works, or for "CUDA:cuDNN" if it can use this library. */
FX_API bool fx_functional(const char *backend);

/* A plugin file: a backend, a kernel library that computes some steps for a backend, or a transport
 * that moves data between processes. */
typedef struct fx_plugin_info {
    const char *file;    /* path of the file */
    const char *kind;    /* "backend", "kernel library" or "transport" */
    const char *name;    /* "OpenCL", "oneDNN"; in lower case until the plugin is loaded */
    const char *serves;  /* kernel library: its backend, "CPU"; for MPI: "MPI"; others: "" */
    const char *version; /* version of cflux that it was compiled with; "" until it is loaded */
    const char *why;     /* why it is not used; "" if it is used; NULL if it was not loaded yet */
} fx_plugin_info;
typedef void (*fx_plugin_fn)(const fx_plugin_info *plugin, void *user);
/* Calls visit for every plugin that was loaded or rejected, and for every other plugin in the
 * plugin folders, without loading it. The folders are searched in this order: those of the
 * environment variable FX_PLUGIN_PATH (separated by colons; on Windows by semicolons), the folder
 * of the library, its subfolder `cflux`, and the folder where plugins are installed. `plugin` is
 * valid during the call. */
FX_API void fx_plugins(fx_plugin_fn visit, void *user);
/* Returns the backends that can be preferred, in the order in which fx_get_device tries them:
 * "CUDA", "AMDGPU", "Metal", "OpenCL", "CPU", NULL. Static storage. */
FX_API const char *const *fx_supported_devices(void);

/* Returns the preferred backend, "" if none: the value of gpu_backend in LocalPreferences.toml, or
 * in JuliaLocalPreferences.toml if that file exists. The folder is that of the environment variable
 * CFLUX_PROJECT (default: the current folder). As in Flux, the value is read from the table
 * [MLDataDevices] (Flux 0.14.23 and later), or if that table has no value, from [Flux]. The file is
 * read once. */
FX_API const char *fx_gpu_backend(void);
/* Writes the preference to the file that fx_gpu_backend reads (default: LocalPreferences.toml), in
 * the table where it was found (default: [Flux]); the rest of the file is not changed. It takes
 * effect at the next start of the program. FX_STATUS_ARGUMENT for a backend that
 * fx_supported_devices does not list; FX_STATUS_FORMAT, naming the line, if the file is damaged;
 * FX_STATUS_IO. On failure the file is not changed. */
FX_API fx_status fx_gpu_backend_set(const char *backend);

/* Returns the value of a key in the table [Flux] of the project's preferences, the file that
 * fx_gpu_backend reads: a text, or a boolean or number as text ("true"). "" if the key has no
 * value. Each key is read once; the result is valid until the program ends. A damaged file, or a
 * value of another kind, counts as "", with a warning that names the line. FX_STATUS_ARGUMENT if
 * the key is not 1 to 63 letters, digits, _ and -. `@load_preference` of Julia. The library reads
 * gpu_backend (as fx_gpu_backend does, first from the table [MLDataDevices]),
 * FluxDistributedMPICUDAAware and FluxDistributedMPIROCMAware (fx_dist_init). */
FX_API const char *fx_preference(const char *key);
/* Writes a preference to this file: "true" and "false" as booleans, all other values as texts. The
 * rest of the file is not changed. It takes effect at the next start of the program. Errors as for
 * fx_gpu_backend_set; FX_STATUS_ARGUMENT also for a value with quotes, backslashes or control
 * characters, that is not UTF-8, or of more than 197 bytes; FX_STATUS_FORMAT also if the key is a
 * table. `@set_preferences!`. */
FX_API fx_status fx_preference_set(const char *key, const char *value);

/* Options of fx_get_device. */
/* clang-format off */
#define FXI_GET_DEVICE_ARGS(F)                                                                     \
    F(bool, verbose, false) /* true: log which device was chosen, and why */
/* clang-format on */
FXI_OPTION_STRUCT(fx_get_device_args, FXI_GET_DEVICE_ARGS);
/* fx_get_device(): the first device of the preferred backend, if it is loaded and works (otherwise
 * a warning); else the first of CUDA, AMDGPU, Metal, OpenCL that is loaded, works and is not a CPU;
 * otherwise the CPU. */
FX_API fx_device *fxi_get_device(const fx_get_device_args *opts);
/* A device by backend name and id, from 0. If the device does not exist, records FX_STATUS_DEVICE
 * and returns the CPU. */
FX_API fx_device *fx_device_get(const char *backend, int id);
FX_API fx_device *fx_cpu_device(void); /* the CPU */
/* A device by name: "cuda:0", "CPU", "opencl" (its first device), upper or lower case. Loads the
 * backend if needed. If the device does not exist, does the same as fx_device_get. */
FX_API fx_device *fx_device_find(const char *name);
FX_API const char *fx_device_name(const fx_device *device); /* "CPU" (also for NULL), "CUDA:0" */
FX_API int fx_device_id(const fx_device *device);           /* its id, from 0; 0 for NULL */
/* The driver's name of the device ("NVIDIA H100 80GB HBM3"); "" if unknown. */
FX_API const char *fx_device_model(const fx_device *device);
/* Waits until all work submitted to the device is complete, e.g. before reading a clock. Returns,
 * and records, an error that the device reported since the previous call. FX_OK for the CPU
 * (NULL). */
FX_API fx_status fx_synchronize(fx_device *device);
/* For backend-specific extensions: returns a function or object of a backend by name; NULL if the
 * backend is not loaded or has none with this name. */
FX_API void *fx_backend_proc(const char *backend, const char *name);
/* Returns the number of devices of a backend; 0 if it is not loaded or does not work. */
FX_API int fx_device_count(const char *backend);
/* The devices of a backend (NULL: of all) as an object that the scope owns. fx_count returns their
 * number, fx_child one of them. fx_show prints a line for each, with its memory if known: "CUDA
 * device 0: NVIDIA H100 80GB HBM3, 78.113 GiB of 79.647 GiB free"; without a device it prints the
 * reason. */
FX_API void *fx_devices(const char *backend);

/* ---- compiled kernels ------------------------------------------------------------------------ */
/* GPU backends compile kernels when a program first needs them, and cache them on disk. A pack is
 * one file with compiled kernels, for machines that have a device and its driver, but no compiler
 * (docs/gpu.md). Packs serve CUDA, AMDGPU and OpenCL; they are searched before the cache and before
 * a compiler is opened. A pack contains code that devices run: use only packs that you trust. */

/* Adds a pack, until the process ends. Call it before fx_use: a backend decides when it is loaded
 * whether its devices can be used without a compiler. The environment variable CFLUX_KERNELS does
 * the same; it names files, separated by colons (on Windows by semicolons), and a file that cannot
 * be used is ignored with a warning. FX_STATUS_IO; FX_STATUS_FORMAT if the file is not a pack, is
 * damaged, or was packed by another version of cflux. */
FX_API fx_status fx_kernels_add(const char *path);
/* Writes a pack with all cached kernels that this version of cflux compiled. On failure an existing
 * file is unchanged. FX_STATUS_STATE if the cache has no such kernels; FX_STATUS_IO. */
FX_API fx_status fx_kernels_pack(const char *path);

/* Compiled kernels of the same kind. */
typedef struct fx_kernels_info {
    const char *backend;  /* "cuda", "amdgpu", "opencl" */
    const char *target;   /* "sm_90"; "compute_90" for PTX; "gfx90a"; OpenCL: device and driver */
    const char *compiler; /* "NVRTC 13.0" */
    int64_t count;        /* compiled sources: usually one for each kernel */
    int64_t bytes;        /* total size of their code */
} fx_kernels_info;
typedef void (*fx_kernels_fn)(const fx_kernels_info *kernels, void *user);
/* Calls visit for each kind of kernels in a pack, or in the cache if path is NULL, sorted by
 * backend, target, compiler. `kernels` is valid during the call. Fails as fx_kernels_add does;
 * FX_STATUS_ARGUMENT if visit is NULL. */
FX_API fx_status fx_kernels_list(const char *path, fx_kernels_fn visit, void *user);

/* ---- memory ---------------------------------------------------------------------------------- */
/* Freed memory of arrays is cached for reuse. Each device with its own memory has a pool; on the
 * CPU each thread has a cache.
 *
 * If an allocation fails, the library frees its caches, waits for the device, frees plans that are
 * not in use, and tries once more. If that fails too, the call fails with FX_STATUS_MEMORY; the
 * message says how much was requested, how much is live, cached and free, and which arrays are the
 * largest. Arrays and models are unchanged, and the program can continue. An evaluation knows its
 * memory use in advance: if it cannot fit, nothing is computed, and, if the device has a limit or
 * its own memory, nothing is allocated.
 *
 * Environment variables FX_MEMORY_LIMIT and FX_MEMORY_CACHE set the two limits below when a device
 * is first used: "8GiB" (every device with its own memory), or a list without spaces,
 * "CUDA=8GiB,CUDA:1=500MB,CPU=2GiB". Malformed sizes are ignored with a warning.
 *
 * In the functions below NULL means the CPU. */

/* Limits the bytes of arrays and work space on a device, including cached memory if the device has
 * its own memory. 0 (default): no limit. Exception: for the CPU on Linux, the default is the memory
 * of the machine, or the limit of the cgroup if that is less, plus the swap space, minus the other
 * memory of the process and a reserve of at most 16 MiB. Memory in use is not affected. */
FX_API void fx_set_memory_limit(fx_device *device, int64_t bytes);
/* Limits the cached bytes of a device with its own memory. 0: no caching; less than 0 (default):
 * half of the peak of live bytes, at least 64 MiB. */
FX_API void fx_set_memory_cache(fx_device *device, int64_t bytes);
/* Frees the cached memory of all devices, the caches, work space and recordings (FX_RECORD) of the
 * calling thread, and plans that are not in use; then returns free memory of the process to the
 * operating system. Other threads keep their caches and the plan of their latest evaluation. The
 * next evaluations are slower. */
FX_API void fx_reclaim(void);
/* Frees the cached memory of one device; for the CPU, that of the calling thread. Plans are kept.
 */
FX_API void fx_reclaim_device(fx_device *device);

/* Memory of a device, in bytes. */
typedef struct fx_memory {
    size_t fxi_size;
    int64_t live;   /* arrays and work space, in whole blocks of the device */
    int64_t cached; /* cached for reuse; on the CPU: by all threads, for all uses */
    int64_t free;   /* free on the device or the machine, for all programs; on Linux at most
                       what cgroups and RLIMIT_AS leave; −1: unknown */
    int64_t total;  /* size of the memory, on Linux at most the limits of cgroups and
                       RLIMIT_AS; 0: unknown */
    int64_t limit;  /* fx_set_memory_limit; 0: no limit */
    int64_t peak;   /* maximum of `live` so far */
    int64_t plans;  /* host memory of the cached plans for this device; not part of `live` */
} fx_memory;
FX_API void fxi_memory_status(fx_device *device, fx_memory *out);
/* Returns the memory of a device (NULL: the CPU). */
static inline fx_memory fx_memory_status(fx_device *device)
{
    fx_memory m;
    m.fxi_size = sizeof m;
    fxi_memory_status(device, &m);
    return m;
}
/* Prints the memory of a device to stdout, as CUDA.memory_status(); fx_memory_text writes to dst as
 * fx_show_text does. */
FX_API void fx_memory_show(fx_device *device);
FX_API size_t fx_memory_text(fx_device *device, char *dst, size_t capacity);

/* The device that holds all arrays of an object; NULL if it has no arrays. Arrays on different
 * devices are FX_STATUS_DEVICE ("Objects are on different devices: CPU and OpenCL:0."), and the
 * result is NULL. MLDataDevices.get_device. */
FX_API fx_device *fx_device_of(void *object);
/* fx_to(device, x): x with all arrays moved to a device; x itself if they are there already. The
 * scope owns the result. Gradients flow back through the move of an array, and inside a training
 * step through the move of a model. Outside of a training step a moved model is independent of the
 * original. */
FX_API void *fxi_to(fx_device *device, void *object);
/* fx_gpu(x): fx_to the device of fx_gpu_device. Without a GPU it returns x and prints the reason
 * once; if the preferred backend is "CPU", it is fx_cpu(x). Float64 becomes Float32; fx_cpu does
 * not convert it back. Flux.gpu. */
FX_API void *fxi_gpu(void *object);
/* fx_gpu_strict(x): fx_gpu, but without a GPU an error object, and FX_STATUS_DEVICE with the
 * reason. Flux's gpu_device(force=true). */
FX_API void *fxi_gpu_strict(void *object);
/* fx_cu(x): fx_to the first CUDA device, whichever GPU is preferred. Float64 becomes Float32.
 * Without a working CUDA device it returns x and prints the reason once (CUDA.jl's cu fails).
 * CUDA.cu. */
FX_API void *fxi_cu(void *object);
FX_API void *fxi_cpu(void *object); /* fx_cpu(x): fx_to the CPU; Flux.cpu */
/* fx_cu, fx_gpu and fx_cpu as functions instead of macros, for fx_fmap and fx_mapobs. */
FX_API fx_array *(fx_cu)(fx_array *x);
FX_API fx_array *(fx_gpu)(fx_array *x);
FX_API fx_array *(fx_cpu)(fx_array *x);
/* The device that fx_gpu moves to: the first device of the preferred backend, if it works
 * (otherwise one warning); else the first GPU that works, in the order of fx_get_device; otherwise
 * the CPU (one message says why). */
FX_API fx_device *fx_gpu_device(void);
/* Sets whether fx_at may read arrays on devices with their own memory, where each read is a copy.
 * true: allowed; false: FX_STATUS_STATE. Default: allowed, with one warning. CUDA.allowscalar. */
FX_API void fx_allowscalar(bool allow);
#define fx_get_device(...)                                                                         \
    FXI_CALL(fxi_get_device(                                                                       \
        FXI_OPTIONS(fx_get_device_args, FXI_GET_DEVICE_ARGS(FXI_DEFAULT) __VA_ARGS__)))
#define fx_to(device, x) ((__typeof__(x))fxi_to((device), (x)))
#define fx_gpu(x)        ((__typeof__(x))fxi_gpu(x))
#define fx_gpu_strict(x) ((__typeof__(x))fxi_gpu_strict(x))
#define fx_cu(x)         ((__typeof__(x))fxi_cu(x))
#define fx_cpu(x)        ((__typeof__(x))fxi_cpu(x))

FXI_END_C
#endif
