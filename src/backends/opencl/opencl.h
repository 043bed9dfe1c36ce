/* opencl.h: what the files of the OpenCL backend share. Internal.
 *
 * A device is a cl_device_id with one in-order queue; the devices of a platform share a context, so
 * that buffers are copied between them without the host. Where memory is known by a number
 * (opencl_memory.c) and kernels come from (opencl_program.c) is said there.
 */
#ifndef CFLUX_OPENCL_H
#define CFLUX_OPENCL_H

#include "gpu.h"
#include "opencl_api.h"

#include <pthread.h>

typedef struct fxi_opencl_ring fxi_opencl_ring;

typedef struct fxi_opencl_device {
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    cl_bitfield type;
    char name[128], driver[64], version[128], platform_name[64];
    char label[24];          /* "OpenCL:0" */
    int64_t memory, largest; /* bytes in all; of one buffer at most */
    bool says_free;
    fxi_gpu_limits limits;
    pthread_mutex_t lock; /* of a step's launches, arguments of kernels, and what follows */
    fxi_opencl_ring *ring;
    void *scratch, *faults;
    size_t scratch_bytes;
    int checks; /* atomic: work that may have written to `faults` is queued */
    int lost;   /* atomic: the error that told so; 0: it works */
} fxi_opencl_device;

extern const fx_host *fxi_opencl_host;

/* What has happened since the process began; atomic. `fx_backend.proc("counters")` is its address,
 * and proc("launches") that of the first, as in all backends that count them. */
typedef struct fxi_opencl_counters {
    uint64_t launches; /* kernels handed to a queue */
    uint64_t compiled; /* programs made from source */
    uint64_t loaded;   /* programs made from the files of the cache */
    uint64_t direct;   /* copies from device to device within a context */
    uint64_t by_host;  /* copies by way of the host */
} fxi_opencl_counters;
extern fxi_opencl_counters fxi_opencl_counts;

static inline void fxi_opencl_count(uint64_t *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

static inline fxi_opencl_device *fxi_opencl_of(const fx_device *device)
{
    return device->data;
}

/* ---- devices (opencl_devices.c) -------------------------------------------------------------- */

/* Finds, chooses and opens the devices. Returns their number; 0 with the reason in `why`. */
int fxi_opencl_devices_open(char *why, size_t size);
fxi_opencl_device *fxi_opencl_device_at(int id);

/* What went wrong in a call, as a sentence, and its status. A device that is lost is so for good.
 */
fx_status fxi_opencl_why(fxi_opencl_device *d, const char *call, cl_int error, char *text,
                         size_t size);
/* The same, recorded as an error of `operation`; FX_OK when error is CL_SUCCESS. */
fx_status fxi_opencl_check(fxi_opencl_device *d, const char *operation, const char *call,
                           cl_int error);

/* ---- memory (opencl_memory.c) ---------------------------------------------------------------- */

/* The buffer and the byte in it that an address of the backend means; false: it means none. */
bool fxi_opencl_find(const void *address, cl_mem *out, size_t *out_offset);

void *fxi_opencl_alloc(fx_device *device, size_t bytes);
void fxi_opencl_free(fx_device *device, void *address);
fx_status fxi_opencl_write(fx_device *device, void *to, const void *from, size_t bytes);
fx_status fxi_opencl_read(fx_device *device, void *to, const void *from, size_t bytes);
fx_status fxi_opencl_copy(fx_device *to_device, void *to, fx_device *from_device, const void *from,
                          size_t bytes);
fx_status fxi_opencl_fill(fx_device *device, void *to, uint8_t value, size_t bytes);
int64_t fxi_opencl_available(fx_device *device);

/* ---- kernels (opencl_program.c) -------------------------------------------------------------- */

/* The function `name` of a program's text, made for the device; it is shared by all threads, whose
 * use of it the device's lock orders. NULL with a sentence in `text`. */
cl_kernel fxi_opencl_kernel(fxi_opencl_device *d, const char *source, const char *name, char *text,
                            size_t size);

/* ---- steps (opencl_run.c) -------------------------------------------------------------------- */

extern fxi_gpu_runtime fxi_opencl_runtime;

fx_status fxi_opencl_prepare(fx_device *device, fx_step *step);
void fxi_opencl_release(fx_device *device, fx_step *step);
fx_status fxi_opencl_run(fx_device *device, const fx_step *step, const void *const *in, void *out,
                         fx_run *run);
/* What kernels that have ended found wrong; FX_OK when nothing. */
fx_status fxi_opencl_faults(fx_device *device, const char *operation);

#endif
