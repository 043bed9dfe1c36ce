/* opencl.h: shared by the files of the OpenCL backend. Internal.
 *
 * A device is a cl_device_id with one in-order queue. The devices of a platform share a context, so
 * that buffers are copied between them without the host. opencl_memory.c explains how buffers get
 * addresses, opencl_program.c how kernels are compiled.
 */
#ifndef CFLUX_OPENCL_H
#define CFLUX_OPENCL_H

#include "gpu_device.h"
#include "opencl_api.h"

typedef struct fxi_opencl_ring fxi_opencl_ring;

typedef struct fxi_opencl_device {
    fxi_gpu_device gpu; /* first member: shared code casts between the two */
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    cl_bitfield type;
    /* Texts of the driver, for messages and for the key of the cache on disk. */
    char driver[64], version[128], platform_name[64];
    int64_t memory, largest; /* total bytes; most bytes of one buffer */
    /* The driver reports free memory (cl_amd_device_attribute_query); OpenCL itself has no such
     * query. */
    bool reports_free;
    fxi_opencl_ring *ring; /* protected by the device's lock */
} fxi_opencl_device;

extern const fx_host *fxi_opencl_host;

static inline fxi_opencl_device *fxi_opencl_of(const fx_device *device)
{
    return device->data;
}

/* ---- devices (opencl_devices.c) -------------------------------------------------------------- */

/* Finds, chooses and opens the devices. Returns their number; 0 with the reason in `why`. */
int fxi_opencl_devices_open(char *why, size_t size);
fxi_opencl_device *fxi_opencl_device_at(int id);
int fxi_opencl_device_count(void);

/* ---- memory (opencl_memory.c) ---------------------------------------------------------------- */

/* Finds the buffer, and the offset in it, of an address of this backend; false if it is not an
 * address of this backend. */
bool fxi_opencl_find(const void *address, cl_mem *out, size_t *out_offset);

FXI_GPU_MEMORY_FUNCTIONS(fxi_opencl);

/* ---- programs (opencl_program.c) ------------------------------------------------------------- */

/* A kernel of a program: fxi_gpu_launch.kernel. All threads share it, and use it only while they
 * hold the device's lock. It is not freed before the process ends. */
typedef struct fxi_opencl_function {
    cl_kernel kernel;
    bool launched; /* at least once; protected by the device's lock */
} fxi_opencl_function;

const char *fxi_opencl_options(const fxi_opencl_device *d);
FXI_GPU_PROGRAM_FUNCTIONS(fxi_opencl);

/* ---- the driver (opencl_run.c) --------------------------------------------------------------- */

extern fxi_gpu_driver fxi_opencl_driver;

#endif
