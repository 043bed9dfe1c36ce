/* gpurt.h: shared by the files of the CUDA and AMDGPU plugins, which are compiled from one source
 * (gpurt_api.h). Internal.
 *
 * A device has up to three streams. All work runs in order in the stream `work`. The stream
 * `upload` copies long writes to memory of the backend on the device while earlier work still runs;
 * a copy in `work` then moves them to their final addresses (gpurt_upload.c). The stream `exchange`
 * runs collective operations beside the work (gpurt_collective.c). gpurt_cuda.c and gpurt_hip.c
 * have the code that differs between the two drivers: choosing a device for the calling thread,
 * describing a device, compiler options, copies between devices.
 */
#ifndef CFLUX_GPURT_H
#define CFLUX_GPURT_H

#include "gpu_device.h"
#include "gpurt_api.h"

typedef struct fxi_rt_ring fxi_rt_ring;
typedef struct fxi_rt_recorder fxi_rt_recorder;

enum { FXI_RT_DEVICES = 64 };

/* A device's handle of a vendor's library (gpurt_library.h). */
typedef struct fxi_rt_library_handle {
    void *object; /* NULL: not made yet */
    bool refused; /* the library could not make a handle */
    /* fxi_rt_library.follow */
    int (*follow)(void *object, fxi_rt_stream stream);
} fxi_rt_library_handle;

typedef struct fxi_rt_device {
    fxi_gpu_device gpu; /* first member: shared code casts between the two */
    int id;             /* its number in the driver */
    fxi_rt_context context;
    fxi_rt_stream work, upload;
    fxi_rt_stream exchange; /* NULL: not made yet. Protected by the device's lock */
    /* The stream of launches and library calls: `work`, or one that records. Protected by the
     * device's lock. */
    fxi_rt_stream launches;
    fxi_rt_recorder *recorder; /* NULL: nothing was recorded yet */
    char driver[64];           /* "CUDA 12.8" */
    char architecture[80];     /* "sm_90", "gfx90a:sramecc+:xnack-" */
    char option[112];          /* the compiler's option for the target: "--NAME=TARGET" */
    bool intermediate;         /* the compiler makes PTX, which the driver compiles */
    fxi_rt_event trial[2];     /* around a run that is measured; NULL before the first */
    int64_t memory;
    bool ready;                      /* fxi_rt_ready has searched for the compiler */
    char cannot_compile[320];        /* why nothing can be compiled for the device; "" if it can */
    uint64_t peers;                  /* atomic: a bit for each device that `connect` has handled */
    fxi_rt_library_handle blas, dnn; /* for products; for convolutions */
    fxi_rt_ring *ring;               /* protected by `staging` */
    fxi_mutex staging;
} fxi_rt_device;

extern const fx_host *fxi_rt_host;
extern fxi_gpu_driver fxi_rt_driver;
/* Opens the compiler once. Returns "", or why there is none. */
const char *fxi_rt_compiler_why(void);

static inline fxi_rt_device *fxi_rt_of(const fx_device *device)
{
    return device->data;
}

/* Calls a function of the driver and records its error: status = FXI_RT_TRY(d, "write", StreamSync,
 * (d->work)). */
#define FXI_RT_TRY(d, operation, function, arguments)                                              \
    fxi_gpu_check(&(d)->gpu, operation, fxi_rt_name.function, fxi_rt.function arguments)

/* ---- what differs (gpurt_cuda.c, gpurt_hip.c) ------------------------------------------------ */

extern const char fxi_rt_backend[];  /* "CUDA" */
extern const char fxi_rt_hiders[];   /* the variables that hide devices, for messages */
extern const char fxi_rt_compiler[]; /* "NVRTC" */
/* Returns the name of one of these variables that is set, or NULL. */
const char *fxi_rt_hider(void);
/* Selects a device for the calling thread's calls of the driver. Every call of the backend begins
 * with it, because a program or another library may have chosen another device. */
int fxi_rt_select(const fxi_rt_device *d);
/* Makes the device usable. The caller has set d->id. Returns the driver's error. */
int fxi_rt_begin(fxi_rt_device *d);
/* Reads what only this driver reports: architecture and limits. version: the driver's. */
void fxi_rt_describe(fxi_rt_device *d, int version);
/* Returns the highest major version of the compiler whose code the driver loads; 0: any. */
int fxi_rt_major(int version);
/* fxi_gpu_driver.rank. newest: the highest major version of the compiler whose code the driver
 * loads; 0: any. */
int fxi_rt_rank_of(const fxi_rt_device *d, const fx_packed_kernel *kernel, int newest);
/* Sets option and intermediate, or cannot_compile. The compiler is open. */
void fxi_rt_choose_target(fxi_rt_device *d);
/* Options after the target. */
extern const char *const fxi_rt_options[];
extern const int fxi_rt_noptions;
/* The compiler's functions for the form of code that the device loads. */
typedef struct fxi_rt_form {
    int (*size)(fxi_rtc_program, size_t *);
    int (*code)(fxi_rtc_program, char *);
} fxi_rt_form;
fxi_rt_form fxi_rt_form_of(const fxi_rt_device *d);
const char *fxi_rt_error_name(int error);
/* Lets a device read and write another's memory directly. */
int fxi_rt_peer_enable(const fxi_rt_device *other);
int fxi_rt_peer_copy(fxi_rt_device *to, void *address, const fxi_rt_device *from, void *source,
                     size_t bytes);

/* ---- devices (gpurt_devices.c) --------------------------------------------------------------- */

/* Finds and opens the devices. Returns their number; 0 with the reason in `why`. */
int fxi_rt_devices_open(char *why, size_t size);
/* fxi_gpu_driver.rank and .ready */
int fxi_rt_rank(const fxi_gpu_device *device, const fx_packed_kernel *kernel);
const char *fxi_rt_ready(fxi_gpu_device *device);
fxi_rt_device *fxi_rt_device_at(int id);
int fxi_rt_device_count(void);

/* ---- memory (gpurt_memory.c, gpurt_upload.c) ------------------------------------------------- */

FXI_GPU_MEMORY_FUNCTIONS(fxi_rt);
/* Queues a write through pinned memory, after which `from` may change. False: there is no pinned
 * memory, and nothing was queued. The device is selected. */
bool fxi_rt_upload(fxi_rt_device *d, void *to, const void *from, size_t bytes,
                   fx_status *out_status);

/* ---- recordings (gpurt_graph.c) -------------------------------------------------------------- */

/* Sets the functions of recordings in fxi_rt_driver, if the driver has graphs. */
void fxi_rt_find_graphs(void);
/* ---- collective steps (gpurt_collective.c) --------------------------------------------------- */

/* Does the step's communicator work on memory of these devices? fx_backend.collective. */
bool fxi_rt_takes(fx_device *device, const fx_step *step);
/* fx_backend.begin */
void *fxi_rt_collective_begin(fx_device *device, const fx_step *step, const void *in, void *out);
/* Adds the call of the communicator for such a step. */
bool fxi_rt_collective(struct fxi_gpu_builder *b);

/* ---- programs (gpurt_program.c) -------------------------------------------------------------- */

FXI_GPU_PROGRAM_FUNCTIONS(fxi_rt);

#endif
