/* cflux/device.h: devices. The CPU is always there; "ref" is the slow, obvious float64 backend that
 * tests compare with.
 *
 * Large convolutions, and matrix products of BFloat16, go through oneDNN where its plugin is
 * installed (libcflux-cpu-onednn.so). It is opened when a computation is first large enough to
 * repay the time that takes. FX_ONEDNN=0 does without.
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

/* Loads a backend by name ("CUDA", "CPU") or by the path of its file, which contains a slash
 * ("./libcflux-example.so"). Returns FX_STATUS_DEVICE if the backend cannot be used, which is not
 * recorded as an error, so that the same program runs without a GPU; fx_why_not names every file
 * that was tried, with the reason. */
FX_API fx_status fx_use(const char *backend);
FX_API fx_status fx_use_all(void);                  /* every backend that is installed */
FX_API const char *fx_why_not(const char *backend); /* "" if it works; static storage */
FX_API bool fx_functional(const char *backend);     /* is it loaded, and does it work? */

/* A plugin's file: a backend, or a kernel library that computes some steps for a backend. */
typedef struct fx_plugin_info {
    const char *file;    /* its path */
    const char *kind;    /* "backend" or "kernel library" */
    const char *name;    /* "OpenCL", "oneDNN"; in lower case until the plugin is opened */
    const char *serves;  /* the backend that calls a kernel library, "CPU"; "" for a backend */
    const char *version; /* of the cflux that it was compiled with; "" until it is opened */
    const char *why;     /* why it is not used; "" if it is used; NULL if it was not opened yet */
} fx_plugin_info;
typedef void (*fx_plugin_fn)(const fx_plugin_info *plugin, void *user);
/* Calls visit for every plugin that was opened or rejected, and for every other one in the folders
 * of plugins, which it does not open. These folders are those of the environment variable
 * FX_PLUGIN_PATH (separated by colons), the folder of the library, its subfolder `cflux`, and the
 * folder that plugins are installed in; they are searched in this order. What `plugin` points to
 * is valid during the call. */
FX_API void fx_plugins(fx_plugin_fn visit, void *user);
/* The backends that may be preferred, in the order in which fx_get_device tries them: "CUDA",
 * "AMDGPU", "Metal", "OpenCL", "CPU"; NULL at the end. */
FX_API const char *const *fx_supported_devices(void);

/* The preferred backend: gpu_backend in LocalPreferences.toml in the folder CFLUX_PROJECT, or the
 * current one; "" when there is none. As Flux's own preference: of the table [MLDataDevices] (Flux
 * 0.14.23 and later), or, where that has none, of [Flux] (before). The file is read once. */
FX_API const char *fx_gpu_backend(void);
/* Writes the preference to LocalPreferences.toml, into the table that the library read it from
 * (default: [Flux]), and leaves the rest of the file unchanged. It takes effect when the program is
 * started again. Returns FX_STATUS_FORMAT, naming the line, if the file is corrupt; the file is
 * then not changed. */
FX_API fx_status fx_gpu_backend_set(const char *backend);

/* Options of fx_get_device. */
/* clang-format off */
#define FXI_GET_DEVICE_ARGS(F)                                                                            \
    F(bool, verbose, false) /* log which device was chosen and why */
/* clang-format on */
FXI_OPTION_STRUCT(fx_get_device_args, FXI_GET_DEVICE_ARGS);
/* The preferred backend's first device; where it is not loaded or does not work (a warning says
 * so), or there is no preference: the first of CUDA, AMDGPU, Metal, OpenCL that is loaded and
 * works, on something else than the host's processors; else the CPU. */
FX_API fx_device *fxi_get_device(const fx_get_device_args *opts);
/* A device by backend name and id from 0; an unknown one is an error and gives the CPU. */
FX_API fx_device *fx_device_get(const char *backend, int id);
FX_API fx_device *fx_cpu_device(void); /* always there */
/* A device by one text, "cuda:0", "CPU", "opencl" (the first one), in any case; loads the backend
 * where that is needed. An unknown one is an error and gives the CPU. For command lines. */
FX_API fx_device *fx_device_find(const char *name);
FX_API const char *fx_device_name(const fx_device *device); /* "CPU", "CUDA:0" */
FX_API int fx_device_id(const fx_device *device);           /* its number, from 0 */
/* The driver's name of it ("NVIDIA H100 80GB HBM3"); "" when nobody knows. */
FX_API const char *fx_device_model(const fx_device *device);
/* Waits until all work that was handed to the device is done, e.g. before a clock is read; reports
 * what failed since the last report (recorded). */
FX_API fx_status fx_synchronize(fx_device *device);
/* A function or object of the device's backend by name, for programs that know what they ask for;
 * NULL when it has none of that name. */
FX_API void *fx_backend_proc(const char *backend, const char *name);
FX_API int fx_device_count(const char *backend); /* 0 when it is not loaded or does not work */
/* The devices of a backend (NULL: all there are) as an object of the scope: fx_count counts them,
 * fx_child gives one, fx_show prints a line for each, with its memory where that is known:
 * "CUDA device 0: NVIDIA H100 80GB HBM3, 78.113 GiB of 79.647 GiB free". An empty one says why. */
FX_API void *fx_devices(const char *backend);

/* ---- memory ---------------------------------------------------------------------------------- */
/* Memory that arrays no longer need is kept for the next ones: of a device with memory of its own
 * in a pool of the device, on the CPU by thread.
 *
 * When memory is out, what is kept is given back, the device's work is waited for, plans that no
 * evaluation uses are dropped, and one more try is made. Then it is an error, FX_STATUS_MEMORY,
 * that says how much was asked for, what is live, kept and free, and which arrays are the largest;
 * every array and model stays as it was, and the program can go on. An evaluation knows its need:
 * where that cannot fit, nothing of it runs and nothing is allocated.
 *
 * Two variables of the environment hold for devices when they are first used: FX_MEMORY_LIMIT and
 * FX_MEMORY_CACHE, lists such as "8GiB" (of every device with memory of its own), "CUDA=8GiB,
 * CUDA:1=500MB,CPU=2GiB" without spaces. What is no size is left out with a warning.
 *
 * In these functions NULL stands for the CPU. */

/* The most bytes of arrays and work space that may live on a device, with what is kept on a device
 * with memory of its own; 0, the default, is no limit. What lives already is not touched. */
FX_API void fx_set_memory_limit(fx_device *device, int64_t bytes);
/* The most bytes that are kept on a device with memory of its own; 0 keeps none. −1, the default:
 * half of the most that was ever live there, or 64 MiB if that is more. */
FX_API void fx_set_memory_cache(fx_device *device, int64_t bytes);
/* Gives back what is kept for speed: cached memory of the devices and of the calling thread, its
 * work space, and plans that no evaluation uses; then returns the process's free memory to the
 * system. The next evaluations take their time again. */
FX_API void fx_reclaim(void);
/* The same of one device; plans stay. */
FX_API void fx_reclaim_device(fx_device *device);

/* The memory of a device, in bytes. */
typedef struct fx_memory {
    size_t fxi_size;
    int64_t live;   /* of arrays and work space, in whole blocks of the device */
    int64_t cached; /* kept for the next ones; on the CPU by all threads, for all uses */
    int64_t free;   /* on the device or the machine, for all programs; −1: unknown */
    int64_t total;  /* what it has; 0: unknown */
    int64_t limit;  /* 0: none */
    int64_t peak;   /* the most that was ever live */
} fx_memory;
FX_API void fxi_memory_status(fx_device *device, fx_memory *out);
static inline fx_memory fx_memory_status(fx_device *device)
{
    fx_memory m;
    m.fxi_size = sizeof m;
    fxi_memory_status(device, &m);
    return m;
}
/* The same for a person, as CUDA.memory_status(): to stdout, or into dst as fx_show_text does. */
FX_API void fx_memory_show(fx_device *device);
FX_API size_t fx_memory_text(fx_device *device, char *dst, size_t capacity);

/* Moves every array of an object; returns the same object when all are there already. Gradients
 * flow back through the move of an array, and inside a step through that of a whole model; outside
 * of one the model that was moved is a new one, which keeps nothing of the old. */
FX_API void *fxi_to(fx_device *device, void *object);
/* To the preferred or first GPU; without one returns its argument and says once why. Float64
 * becomes Float32 on the way to an accelerator; fx_cpu does not turn it back. */
FX_API void *fxi_gpu(void *object);
/* fx_gpu_strict(x): the same, but without a GPU it is an error that says why:
 * gpu_device(force=true). */
FX_API void *fxi_gpu_strict(void *object);
/* fx_cu(x): to the first CUDA device, whatever GPU the project prefers: CUDA.cu. Float64 becomes
 * Float32. Without a CUDA device that works it returns its argument and says once why, so that the
 * same program runs on the CPU (CUDA.jl's is an error there). */
FX_API void *fxi_cu(void *object);
FX_API void *fxi_cpu(void *object);    /* back to the CPU */
FX_API fx_array *(fx_cu)(fx_array *x); /* as functions, for fx_fmap and fx_mapobs */
FX_API fx_array *(fx_gpu)(fx_array *x);
FX_API fx_array *(fx_cpu)(fx_array *x);
/* Where fx_gpu moves to: the preferred backend's first device; where that does not work (a warning
 * says so once), or there is no preference, the first GPU that works, in fx_get_device's order;
 * else the CPU (a message says once why). */
FX_API fx_device *fx_gpu_device(void);
/* Reading single elements of an array on an accelerator (fx_at) warns once by default: each is a
 * copy. false makes it an error, true silent: CUDA.allowscalar. */
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
