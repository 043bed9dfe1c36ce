/* metal.h: shared by the files of the Metal backend. Internal.
 *
 * The backend has one device, the system's default one, with one command queue. Work is encoded
 * into one open command buffer. It is committed when it is full, by `submit` and `mark`, and by
 * every function that waits. Buffers have shared storage: their memory is also the host's, which
 * may access it only after the device has finished. gpu_addresses.c makes addresses for buffers.
 */
#ifndef CFLUX_METAL_H
#define CFLUX_METAL_H

#include "gpu_build.h"
#include "gpu_device.h"
#include "metal_api.h"

/* The most committed command buffers that have not been waited for. Metal's queue holds 64
 * unfinished ones; if it is full, the call that makes another one waits. */
enum { FXI_METAL_COMMITTED = 32 };

typedef struct fxi_metal_device {
    fxi_gpu_device gpu; /* first member: shared code casts between the two */
    fxi_id device, queue;
    char system[64];         /* the version of macOS */
    int64_t memory, largest; /* total bytes; most bytes of one buffer */
    /* Protects all members below. It is not `gpu.lock`, which callers may hold. */
    fxi_mutex lock;
    fxi_id command;                /* the open command buffer, or NULL */
    fxi_id compute, blit;          /* its open encoder: at most one of them is not NULL */
    fxi_id bound[FXI_MTL_BUFFERS]; /* buffers that the compute encoder has at each index */
    int encoded;                   /* pieces of work in the open command buffer */
    fxi_id committed[FXI_METAL_COMMITTED];
    int ncommitted;
    int error;      /* the first error since `finish` returned one; 0: none */
    double seconds; /* the GPU's time for the command buffers that ended since it was last read */
} fxi_metal_device;

extern const fx_host *fxi_metal_host;

static inline fxi_metal_device *fxi_metal_of(const fx_device *device)
{
    return device->data;
}

/* ---- the device (metal_device.c) ------------------------------------------------------------- */

/* Opens the device. Returns 1; 0 with the reason in `why`. */
int fxi_metal_device_open(char *why, size_t size);
/* The device; NULL if none is open. */
fxi_metal_device *fxi_metal_device_get(void);

/* ---- memory (metal_memory.c) ----------------------------------------------------------------- */

FXI_GPU_MEMORY_FUNCTIONS(fxi_metal);

/* ---- programs (metal_program.c) -------------------------------------------------------------- */

FXI_GPU_PROGRAM_FUNCTIONS(fxi_metal);

/* ---- the queue (metal_queue.c) --------------------------------------------------------------- */

/* Return the open encoder of the kind; NULL if Metal returns none. The caller holds the device's
 * `lock`, and encodes one piece of work. */
fxi_id fxi_metal_compute(fxi_metal_device *d);
fxi_id fxi_metal_blit(fxi_metal_device *d);
/* The same for work that makes its own encoder: returns the open command buffer, without an open
 * encoder. */
fxi_id fxi_metal_command(fxi_metal_device *d);
/* Commits the open command buffer, if there is one. */
void fxi_metal_commit(fxi_metal_device *d);
/* Commits and waits for everything; returns the first error of a command buffer. */
int fxi_metal_finish(void *device);
#define FXI_METAL_FINISH "waitUntilCompleted"

extern fxi_gpu_driver fxi_metal_driver;

/* ---- matrix products by MPS (metal_product.c) ------------------------------------------------ */

/* fxi_gpu_runtime.library */
bool fxi_metal_product_step(fxi_gpu_builder *b);
/* fx_backend.part: why MPS is not used; "": it is; NULL: another name. */
const char *fxi_metal_part(const char *name);

#endif
