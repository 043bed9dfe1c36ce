/* gpu.h: the interface between the code that all GPU backends share and what each of them provides.
 *
 * The files of this folder turn steps into kernels: text in one dialect that OpenCL C, CUDA, HIP,
 * Metal and C all accept (kernels/), rendered from a step's program, and a list of launches that
 * runs the step. They are compiled into every plugin that uses them and call cflux through fx_host
 * only. They need a runtime: memory, compiling, launching. Plugins also share most of a runtime and
 * of a backend's table (gpu_device.h).
 *
 *     prepare   renders a step's kernels, decides grids, sets all parameters
 *     compile   compiles the kernels of all steps of a plan, several at the same time
 *     run       looks up addresses and launches; no allocation, no text
 *
 * Shapes and strides are parameters, so that few kernels serve all shapes: the text depends on the
 * program, the element types and how operands are walked. Groups are one-dimensional. Most have
 * FXI_GPU_GROUP work-items. Some kernels of matrix products, attention and convolution have fewer,
 * and those of matrix products have one if limits->serial. docs/design/0014, 0035 and 0040 give the
 * reasons.
 */
#ifndef CFLUX_GPU_H
#define CFLUX_GPU_H

#include <cflux/backend.h>

/* Work-items of a group. Nearly all kernels have one size, because PoCL compiles a kernel again for
 * each size, and the tiles of products and the trees of reductions are written for it. A device
 * with smaller groups is not used. */
enum { FXI_GPU_GROUP = 256 };
/* How a kernel's text begins; the number of a group's work-items follows. */
#define FXI_GPU_GROUP_LINE "#define FX_GROUP "

typedef enum fxi_gpu_dialect {
    FXI_GPU_OPENCL, /* OpenCL C 1.2; extensions: only fp64 and 64-bit atomics, where used */
    FXI_GPU_CUDA,   /* NVRTC, no headers, --fmad=false */
    FXI_GPU_HIP,    /* hipRTC or clang, no headers, -ffp-contract=off */
    FXI_GPU_METAL,  /* 3.0, fast math off */
    FXI_GPU_HOST,   /* C11: for tests */
    FXI_GPU_DIALECTS
} fxi_gpu_dialect;

enum { FXI_GPU_BUFFERS = 64 }; /* buffers of a launch, at most */
/* The most addresses in the table of a launch. The 4 KiB of arguments of CUDA and HIP hold
 * fewer. */
enum { FXI_GPU_TABLE = 1024 };

/* Properties of a device that decide the text of kernels and the division of launches. They do not
 * change while the device is in use. */
typedef struct fxi_gpu_limits {
    int32_t units;       /* compute units: the number of groups that keeps the device busy */
    int32_t param_bytes; /* total bytes of a kernel's arguments; at least 1024 */
    int32_t buffers;     /* pointers among the arguments; at most FXI_GPU_BUFFERS (Metal: 30) */
    bool serial; /* a group runs on one core of a CPU, one work-item after another, so groups of one
                    work-item are as fast */
    int32_t warp; /* work-items that execute together: a warp, wavefront or sub-group; a power of
                     two up to 64 */
    /* Bytes that a work-item loads or stores with one instruction: 8, 16 or 32. */
    int32_t vector_bytes;
    int64_t items;        /* work-items of a launch along an axis; 0: no limit */
    int64_t groups[3];    /* of a launch along an axis; below 2³¹ */
    int64_t group_memory; /* bytes that a group can share; 0: unknown */
    int64_t asked_memory; /* bytes that a group can share if the launch asks for them; 0: none */
    bool rounds_division; /* Float32 division is correctly rounded */
    bool f64;             /* Float64 works */
    bool atomic64;        /* compare and swap of 64 bits in global memory works */
    bool atomic_f32;      /* Metal: atomic addition of Float32 in global memory works; CUDA always
                             has it; OpenCL C and HIP never use it */
} fxi_gpu_limits;

/* Values of members that a device does not report: `{FXI_GPU_USUAL_LIMITS, .units = …}`. */
#define FXI_GPU_USUAL_LIMITS                                                                       \
    .warp = 32, .vector_bytes = 16, .groups = {INT32_MAX, UINT16_MAX, UINT16_MAX}

/* One kernel call. A kernel's arguments are, in this order:
 *   nbuffers pointers to global memory
 *   if ntable > 0, one struct of ntable pointers, by value; never in OpenCL C and Metal
 *   one struct of param_bytes bytes, by value
 *   OpenCL only: one struct of nbuffers 64-bit integers, by value: the offset in bytes that the
 *   kernel adds to each pointer, since a cl_mem has no addresses inside.
 * Metal has one argument for the offsets and the parameters, a `constant &` to the offsets with the
 * parameters after them: at most 31 buffers are bound. CUDA and HIP pass addresses and have no
 * offsets. The struct of parameters has no padding, so params can be passed unchanged. */
typedef struct fxi_gpu_launch {
    const char *operation; /* of the step, for errors */
    void *kernel;          /* a kernel that `compile` made */
    uint32_t groups[3];    /* at least 1, at most limits->groups */
    int32_t group;         /* work-items of a group: at most FXI_GPU_GROUP; declared by the text */
    int32_t nbuffers;
    void *const *buffers; /* device addresses, as cflux knows them: of arrays, views into
                             them, work space, streams and faults */
    int32_t ntable;       /* the table's addresses follow the buffers: &buffers[nbuffers] is the
                             struct */
    const void *params;
    size_t param_bytes;
    bool checks;          /* the kernel may write to `faults` */
    int32_t asked_memory; /* bytes for FX_LOCAL_ASKED; only with limits->asked_memory */
} fxi_gpu_launch;

/* A kind of call of a vendor's library, such as a product of cuBLAS, which may be one of a step's
 * launches. Its state is what the vendor's library needs for one step (descriptors, an algorithm).
 * The runtime's function `library` makes the state when the step is prepared; the state is released
 * once, with the step. */
typedef struct fxi_gpu_routine {
    /* Queues the call after all work that is queued on the device. `buffers` are addresses as for a
     * launch, including work space. Several threads may run the plan with the same state; each
     * holds the device's lock. `operation` is for error messages. */
    fx_status (*run)(fx_device *device, void *state, void *const *buffers, const char *operation);
    /* Frees the state; also on a lost device, but not when the process ends. */
    void (*release)(fx_device *device, void *state);
    bool captures; /* a driver's recording may contain the call: `run` then only queues work */
} fxi_gpu_routine;

struct fxi_gpu_builder;

typedef struct fxi_gpu_runtime {
    fxi_gpu_dialect dialect;
    const fx_host *host; /* NULL until the plugin is open */
    /* The limits of a device: never NULL, and the same at every call. */
    const fxi_gpu_limits *(*limits)(fx_device *device);
    /* Returns a kernel, the function `name` of a complete source text. The runtime owns kernels and
     * keeps them by device and source at least until the process ends; every plan requests the same
     * sources again. Called by several threads. A failure is recorded, with the compiler's log. */
    fx_status (*kernel)(fx_device *device, const char *name, const char *source, void **out_kernel);
    /* Replaces each of n kernels of one plan, which `kernel` named, by one that can be launched. A
     * failure is recorded in the calling thread, and *out_failed is the first kernel that fails.
     * NULL: the kernels that `kernel` returns can be launched directly. */
    fx_status (*compile)(fx_device *device, void **kernels, int n, int *out_failed);
    /* Adds calls of a vendor's library for a step, and kernels if the step needs some
     * (gpu_build.h). Returns false, with nothing added, if kernels alone are to compute the step.
     * NULL: no library. */
    bool (*library)(struct fxi_gpu_builder *b);
    /* Queues one kernel call after all work that is queued on the device. */
    fx_status (*launch)(fx_device *device, const fxi_gpu_launch *launch);
    /* Returns device memory of FXI_GPU_FAULTS Int64 words, zero at first. A kernel that finds an
     * index out of range writes there, since a kernel cannot return an error. After launches that
     * may write, the runtime reads it when it waits for the device (sync, read); if word 0 is not
     * zero, it fails with the message of fxi_gpu_fault_text and clears the words. */
    void *(*faults)(fx_device *device);
} fxi_gpu_runtime;

enum { FXI_GPU_FAULTS = 4 };
fx_status fxi_gpu_fault_text(const int64_t words[FXI_GPU_FAULTS], char *text, size_t size);

/* Makes step->ready. Returns FX_STATUS_UNSUPPORTED, without recording it, if a fused step exceeds
 * the device's limits; the planner then makes smaller steps. Other failures are recorded: an
 * element type that the device lacks, a kernel that does not compile, no memory. */
fx_status fxi_gpu_prepare(const fxi_gpu_runtime *runtime, fx_device *device, fx_step *step);
/* Does the device have kernels for attention steps with the types and sizes of this one
 * (fx_backend.attention)? */
bool fxi_gpu_has_attention(const fxi_gpu_runtime *runtime, fx_device *device, const fx_step *step);
/* Compiles the kernels of n prepared steps (fx_backend.compile); those without `ready` have none.
 */
fx_status fxi_gpu_compile(const fxi_gpu_runtime *runtime, fx_device *device, fx_step *steps,
                          int32_t n, int32_t *out_step);
/* device NULL: the process is ending, and states of library calls are not released. */
void fxi_gpu_release(const fxi_gpu_runtime *runtime, fx_device *device, fx_step *step);
/* Can a driver record all launches of a prepared step? And may one of its kernels write to
 * `faults`? */
bool fxi_gpu_captures(const fx_step *step);
bool fxi_gpu_checks(const fx_step *step);
/* The number of launches of a prepared step; *out_library of them are calls of a library. */
int32_t fxi_gpu_count_launches(const fx_step *step, int32_t *out_library);
static inline bool fxi_gpu_calls_library(const fx_step *step)
{
    int32_t library;
    fxi_gpu_count_launches(step, &library);
    return library > 0;
}
/* Queues the launches of a prepared step. The launches exchange data in the step's work space,
 * which no other run uses. The caller holds a lock of the device, because OpenCL stores a kernel's
 * arguments in the kernel until it is queued. */
fx_status fxi_gpu_run(const fxi_gpu_runtime *runtime, fx_device *device, const fx_step *step,
                      const void *const *in, void *out, fx_run *run);

#endif
