/* gpu_device.h: the state that all GPU backends keep for a device, and the table of a driver.
 * Internal.
 *
 * A backend provides a driver, the table fxi_gpu_driver of functions over OpenCL, CUDA, HIP or
 * Metal, and finds its devices. Everything else is shared: compiled programs in memory and on disk,
 * fault words, error messages, the gate that every call passes (gpu_gate.h), and the functions of
 * fx_backend. The backend's own struct of a device begins with an fxi_gpu_device, and `info` makes
 * fx_device.data point to it.
 *
 *     a program   the compiled form of a text: kept for a device until the process ends
 *     a kernel    a function of a program that can be launched: fxi_gpu_launch.kernel
 */
#ifndef CFLUX_GPU_DEVICE_H
#define CFLUX_GPU_DEVICE_H

#include "gpu.h"
#include "gpu_health.h"
#include "gpu_progress.h"
#include "thread.h"

#include <string.h>

typedef struct fxi_gpu_device fxi_gpu_device;

/* Why a program or a function of it could not be made. A driver fills it in; the status is
 * FX_STATUS_DEVICE unless the driver changes it, as for a lack of memory. */
typedef struct fxi_gpu_failure {
    fx_status status;
    char text[460];
    char *log; /* the compiler's log, or NULL; freed by host->free */
} fxi_gpu_failure;

/* Functions that fail with a message write it to `text`. Functions named like members of fx_backend
 * do the same as those. Only `finish` is called after the process has begun to end (gpu_gate.h);
 * for a lost device only `free`, `unmark`, `drop`, `available` and `submit` are. */
typedef struct fxi_gpu_driver {
    const char *kind;        /* fx_kernel_key.backend: "opencl" */
    fxi_gpu_runtime runtime; /* FXI_GPU_RUNTIME(…); its host is set when the plugin is opened */
    /* How well the code of a pack suits the device: from FXI_GPU_RANKS for code made for it, to 1;
     * 0 if the device cannot load it. NULL: code for d->target suits. */
    int (*rank)(const fxi_gpu_device *d, const fx_packed_kernel *kernel);
    /* Opens the compiler, and sets d->target and d->compiler. Returns "", or why nothing
     * can be compiled for the device. Called by several threads. NULL: always ready. */
    const char *(*ready)(fxi_gpu_device *d);
    /* Compiles a source text; NULL with the reason. Called by several threads, some of which cflux
     * has started: it records nothing and calls no hook. */
    void *(*compile)(fxi_gpu_device *d, const char *source, fxi_gpu_failure *why);
    /* The program's compiled form, allocated by host->alloc; NULL if there is none. */
    void *(*binary)(fxi_gpu_device *d, void *program, size_t *out_size);
    /* Makes a program from its compiled form; NULL if the driver rejects it. */
    void *(*load)(fxi_gpu_device *d, const void *bytes, size_t size);
    /* Finds a function of a program; NULL with the reason. `group`: the work-items of its groups,
     * which its text declares. Called once for each name. */
    void *(*function)(fxi_gpu_device *d, void *program, const char *name, int32_t group,
                      fxi_gpu_failure *why);
    void *(*alloc)(fx_device *device, size_t bytes);
    void (*free)(fx_device *device, void *address);
    fx_status (*write)(fx_device *device, void *to, const void *from, size_t bytes);
    fx_status (*read)(fx_device *device, void *to, const void *from, size_t bytes);
    fx_status (*copy)(fx_device *to_device, void *to, fx_device *from_device, const void *from,
                      size_t bytes);
    fx_status (*fill)(fx_device *device, void *to, uint8_t value, size_t bytes);
    int64_t (*available)(fx_device *device);
    void (*submit)(fx_device *device);
    /* Waits for all work queued on the fxi_gpu_device; returns the driver's error, 0: none. */
    int (*finish)(void *device);
    const char *finish_call; /* the name of that call: "clFinish" */
    void *(*mark)(fx_device *device);
    fx_status (*wait)(fx_device *device, void *mark);
    void (*unmark)(fx_device *device, void *mark);
    /* -- recordings, for plans as a whole (gpu_whole.c); all four NULL: plans run by steps -- */
    /* Begins a recording: work that is queued from now on, under the device's lock, is recorded and
     * does not run. */
    fx_status (*record)(fx_device *device);
    /* Ends the recording, also after a launch has failed. */
    fx_status (*recorded)(fx_device *device, void **out_recording);
    /* Queues all recorded work. */
    fx_status (*replay)(fx_device *device, void *recording);
    /* Frees a recording, which the device may still be running; also on a lost device. */
    void (*drop)(fx_device *device, void *recording);
    /* Selects a branch of the recording: the device may run branches at the same time. Work is
     * recorded in the selected branch, at first branch 0. This function and the next two are NULL
     * together: there is one branch. */
    fx_status (*branch)(fx_device *device, int32_t branch);
    /* Gives a number to the point that the branch has reached. */
    fx_status (*point)(fx_device *device, int32_t number);
    /* Work that is recorded in this branch from now on runs after that point. */
    fx_status (*after)(fx_device *device, int32_t number);
    fxi_gpu_error_kind (*error_kind)(int error);
    const char *(*error_name)(int error);
} fxi_gpu_driver;

enum { FXI_GPU_BRANCHES = 4, FXI_GPU_RANKS = 3 };

struct fxi_gpu_device {
    const fxi_gpu_driver *driver;
    char name[128], label[24]; /* "OpenCL:0" */
    /* Members of fx_kernel_key: what a compiled program depends on besides its text. `ready` sets
     * target and compiler. */
    char target[512], compiler[96], options[128];
    fxi_gpu_limits limits;
    /* FX_GPU_SYNC=1: the backend waits for the device after each step, so that an error names the
     * step that failed. */
    bool waits_for_steps;
    /* Protects the arguments of kernels until they are queued, and the members below. */
    fxi_mutex lock;
    void *faults;
    int checks;     /* atomic: work that may have written to `faults` is queued */
    uint64_t freed; /* atomic: how often memory was returned to the driver */
    fxi_gpu_health health;
    fxi_gpu_progress progress;
    /* Names of the first and the latest step that were queued since the latest wait for the device;
     * an error names them. Atomic. NULL: none. */
    const char *first_step, *last_step;
    int others; /* atomic: a step with another name than first_step was queued since then */
};

/* Counters since the process began; atomic. `fx_backend.proc("counters")` is their address, and
 * proc("launches") that of the first, as in all backends that count launches. */
typedef struct fxi_gpu_counters {
    uint64_t launches; /* kernels, and calls of a library, handed to a queue */
    uint64_t compiled; /* programs made from source */
    uint64_t loaded;   /* programs made from the files of the cache */
    uint64_t direct;   /* copies from device to device, without the host */
    uint64_t calls;    /* launches that were calls of a vendor's library */
    uint64_t captured, replayed, invalidated; /* recordings of plans: made, replayed, freed because
                                                 their addresses had become invalid */
    uint64_t packed; /* programs made from packs of kernels (fx_kernels_add) */
} fxi_gpu_counters;
extern fxi_gpu_counters fxi_gpu_counts;

static inline void fxi_gpu_count(uint64_t *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

static inline fxi_gpu_device *fxi_gpu_device_of(const fx_device *device)
{
    return device->data;
}

static inline const fx_host *fxi_gpu_host_of(const fxi_gpu_device *d)
{
    return d->driver->runtime.host;
}

/* Initialises device number k, whose driver, name and limits are set. */
void fxi_gpu_device_open(fxi_gpu_device *d, const char *backend, int k);

/* How a backend is opened. */
typedef struct fxi_gpu_opening {
    fxi_gpu_driver *driver;
    /* Loads the driver's library; false with the reason in `why`. */
    bool (*load)(char *why, size_t size);
    /* Opens the devices and returns their number; 0 with the reason in `why`. */
    int (*find)(char *why, size_t size);
    void (*quiesce)(void); /* calls fxi_gpu_quiesce for each device */
} fxi_gpu_opening;
/* Returns the number of devices; 0 with the reason in `why`. */
int fxi_gpu_open(const fxi_gpu_opening *o, const fx_host *host, char *why, size_t size);
/* Waits for a device because the process ends: drivers crash if their threads work while libraries
 * are unloaded. A lost device, which may never answer, is not waited for. */
void fxi_gpu_quiesce(fxi_gpu_device *d);

/* Declares the functions of fxi_gpu_driver that are defined in other files than the table. */
#define FXI_GPU_MEMORY_FUNCTIONS(prefix)                                                           \
    void *prefix##_alloc(fx_device *device, size_t bytes);                                         \
    void prefix##_free(fx_device *device, void *address);                                          \
    fx_status prefix##_write(fx_device *device, void *to, const void *from, size_t bytes);         \
    fx_status prefix##_read(fx_device *device, void *to, const void *from, size_t bytes);          \
    fx_status prefix##_copy(fx_device *to_device, void *to, fx_device *from_device,                \
                            const void *from, size_t bytes);                                       \
    fx_status prefix##_fill(fx_device *device, void *to, uint8_t value, size_t bytes);             \
    int64_t prefix##_available(fx_device *device)
#define FXI_GPU_PROGRAM_FUNCTIONS(prefix)                                                          \
    void *prefix##_compile(fxi_gpu_device *device, const char *source, fxi_gpu_failure *why);      \
    void *prefix##_binary(fxi_gpu_device *device, void *program, size_t *out_size);                \
    void *prefix##_load(fxi_gpu_device *device, const void *bytes, size_t size);                   \
    void *prefix##_function_of(fxi_gpu_device *device, void *program, const char *name,            \
                               int32_t group, fxi_gpu_failure *why)

/* ---- errors ---------------------------------------------------------------------------------- */

/* Writes the error of a call as a message and returns its status: FX_STATUS_MEMORY if device memory
 * is exhausted, else FX_STATUS_DEVICE. */
fx_status fxi_gpu_why(fxi_gpu_device *d, const char *call, int error, char *text, size_t size);
/* The message for a lost device. */
void fxi_gpu_say_lost(const fxi_gpu_device *d, char *text, size_t size);
/* Sets the reason for a program or function for which host memory ran out. */
void fxi_gpu_no_host_memory(const fxi_gpu_device *d, fxi_gpu_failure *why);
/* Can the kernel `name` run, whose groups have `group` work-items, if the driver allows at most
 * `items`? False with the reason. A kernel may need so many registers that the driver allows fewer
 * than the device. A driver may also report no more than the size that the text declares, so
 * `items` must not be compared with any other size. */
bool fxi_gpu_group_fits(const fxi_gpu_device *d, const char *name, int64_t items, int32_t group,
                        fxi_gpu_failure *why);
/* fxi_gpu_why, recorded as an error of `operation`; FX_OK if error is 0. */
fx_status fxi_gpu_check(fxi_gpu_device *d, const char *operation, const char *call, int error);
/* Records the faults that finished kernels found; FX_OK if there are none. `read` calls it at its
 * end. */
fx_status fxi_gpu_device_found(fx_device *device, const char *operation);

/* ---- fxi_gpu_runtime ------------------------------------------------------------------------- */

const fxi_gpu_limits *fxi_gpu_device_limits(fx_device *device);
/* gpu_compile.c */
fx_status fxi_gpu_device_kernel(fx_device *device, const char *name, const char *source,
                                void **out_kernel);
fx_status fxi_gpu_device_compile(fx_device *device, void **kernels, int n, int *out_failed);
void *fxi_gpu_device_faults(fx_device *device);
/* `launch` and `library` are the driver's. `launch` runs under the device's lock, and ends with
 * fxi_gpu_launched. */
#define FXI_GPU_RUNTIME(its_dialect, its_launch, its_library)                                      \
    {                                                                                              \
        .dialect = its_dialect, .limits = fxi_gpu_device_limits, .kernel = fxi_gpu_device_kernel,  \
        .compile = fxi_gpu_device_compile, .launch = its_launch, .library = its_library,           \
        .faults = fxi_gpu_device_faults                                                            \
    }
/* Called when a recording has been queued. `first` and `last` are operations; others: not all of
 * its steps have the operation `first`. */
static inline void fxi_gpu_queued(fxi_gpu_device *d, const char *first, const char *last,
                                  bool others, bool checks)
{
    const char *earlier = __atomic_load_n(&d->first_step, __ATOMIC_RELAXED);
    if (checks)
        __atomic_store_n(&d->checks, 1, __ATOMIC_RELEASE);
    if (!earlier)
        __atomic_store_n(&d->first_step, first, __ATOMIC_RELAXED);
    if (others || (earlier && strcmp(earlier, first) != 0))
        __atomic_store_n(&d->others, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&d->last_step, last, __ATOMIC_RELAXED);
}
/* Called when a kernel has been queued. */
static inline void fxi_gpu_launched(fxi_gpu_device *d, const fxi_gpu_launch *l)
{
    fxi_gpu_count(&fxi_gpu_counts.launches);
    fxi_gpu_queued(d, l->operation, l->operation, false, l->checks);
}
/* Called when everything queued has been computed without an error. */
static inline void fxi_gpu_waited(fxi_gpu_device *d)
{
    __atomic_store_n(&d->first_step, NULL, __ATOMIC_RELAXED);
    __atomic_store_n(&d->others, 0, __ATOMIC_RELAXED);
}

/* ---- calls ----------------------------------------------------------------------------------- */
/* Begins a call of the driver for the device. If true, the caller ends it with fxi_gpu_leave. If
 * false, an error of the operation is recorded: the device is lost, or the process is ending. */
bool fxi_gpu_enter_for(const fx_device *device, const char *operation);

/* ---- fx_backend (gpu_backend.c, and gpu_whole.c for plan_*) ---------------------------------- */

void *fxi_gpu_backend_alloc(fx_device *device, size_t bytes);
void fxi_gpu_backend_free(fx_device *device, void *address);
fx_status fxi_gpu_backend_write(fx_device *device, void *to, const void *from, size_t bytes);
fx_status fxi_gpu_backend_read(fx_device *device, void *to, const void *from, size_t bytes);
fx_status fxi_gpu_backend_copy(fx_device *to_device, void *to, fx_device *from_device,
                               const void *from, size_t bytes);
fx_status fxi_gpu_backend_fill(fx_device *device, void *to, uint8_t value, size_t bytes);
int64_t fxi_gpu_backend_available(fx_device *device);
fx_status fxi_gpu_backend_prepare(fx_device *device, fx_step *step);
bool fxi_gpu_backend_attention(fx_device *device, const fx_step *step);
fx_status fxi_gpu_backend_compile(fx_device *device, fx_step *steps, int32_t n, int32_t *out_step);
void fxi_gpu_backend_release(fx_device *device, fx_step *step);
fx_status fxi_gpu_backend_run(fx_device *device, const fx_step *step, const void *const *in,
                              void *out, fx_run *run);
fx_status fxi_gpu_backend_plan_prepare(fx_device *device, fx_plan *plan);
fx_status fxi_gpu_backend_plan_run(fx_device *device, const fx_plan *plan, void *const *values,
                                   fx_run *run, int32_t *out_step);
void fxi_gpu_backend_plan_release(fx_device *device, fx_plan *plan);
void fxi_gpu_backend_submit(fx_device *device);
fx_status fxi_gpu_backend_sync(fx_device *device);
void *fxi_gpu_backend_mark(fx_device *device);
fx_status fxi_gpu_backend_wait(fx_device *device, void *mark);
void fxi_gpu_backend_unmark(fx_device *device, void *mark);
void *fxi_gpu_backend_proc(const char *name);

/* The plugin's table: FX_BACKEND_PLUGIN = FXI_GPU_BACKEND("OpenCL", open, info, part, NULL, NULL,
 * NULL). its_collective, its_begin: fx_backend.collective and .begin; NULL if `library` computes no
 * collective steps. its_attention: fxi_gpu_backend_attention; NULL if the dialect has no kernels
 * for attention. */
#define FXI_GPU_BACKEND(its_name, its_open, its_info, its_part, its_collective, its_begin,         \
                        its_attention)                                                             \
    {                                                                                              \
        .head = FX_BACKEND_HEAD(its_name), .views = true, .fuses = true, .open = its_open,         \
        .info = its_info, .part = its_part, .collective = its_collective, .begin = its_begin,      \
        .alloc = fxi_gpu_backend_alloc, .free = fxi_gpu_backend_free,                              \
        .write = fxi_gpu_backend_write, .read = fxi_gpu_backend_read,                              \
        .copy = fxi_gpu_backend_copy, .fill = fxi_gpu_backend_fill,                                \
        .available = fxi_gpu_backend_available, .attention = its_attention,                        \
        .prepare = fxi_gpu_backend_prepare, .compile = fxi_gpu_backend_compile,                    \
        .release = fxi_gpu_backend_release, .run = fxi_gpu_backend_run,                            \
        .plan_prepare = fxi_gpu_backend_plan_prepare, .plan_run = fxi_gpu_backend_plan_run,        \
        .plan_release = fxi_gpu_backend_plan_release, .submit = fxi_gpu_backend_submit,            \
        .sync = fxi_gpu_backend_sync, .mark = fxi_gpu_backend_mark, .wait = fxi_gpu_backend_wait,  \
        .unmark = fxi_gpu_backend_unmark, .proc = fxi_gpu_backend_proc                             \
    }

#endif
