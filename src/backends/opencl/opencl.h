/* opencl.h: what the files of the OpenCL backend share. Internal.
 *
 * A device is a cl_device_id with one in-order queue; the devices of a platform share a context, so
 * that buffers are copied between them without the host. Where memory is known by a number
 * (opencl_memory.c) and kernels come from (opencl_program.c) is said there.
 */
#ifndef CFLUX_OPENCL_H
#define CFLUX_OPENCL_H

#include "gpu_device.h"
#include "opencl_api.h"

typedef struct fxi_opencl_ring fxi_opencl_ring;

typedef struct fxi_opencl_device {
    fxi_gpu_device gpu; /* comes first */
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    cl_bitfield type;
    char driver[64], version[128], platform_name[64];
    int64_t memory, largest; /* bytes in all; of one buffer at most */
    bool says_free;
    fxi_opencl_ring *ring; /* under the device's lock */
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

/* ---- programs (opencl_program.c) ------------------------------------------------------------- */

/* A function of a program: fxi_gpu_launch.kernel. It is shared by all threads, whose use of it the
 * device's lock orders, and stays until the process ends. */
typedef struct fxi_opencl_function {
    cl_kernel kernel;
    bool launched; /* under the device's lock */
} fxi_opencl_function;

const char *fxi_opencl_options(const fxi_opencl_device *d);
void *fxi_opencl_compile(fxi_gpu_device *device, const char *source, char *text, size_t size,
                         char **out_log);
void *fxi_opencl_binary(fxi_gpu_device *device, void *program, size_t *out_size);
void *fxi_opencl_load(fxi_gpu_device *device, const void *bytes, size_t size);
void *fxi_opencl_function_of(fxi_gpu_device *device, void *program, const char *name, char *text,
                             size_t size);

/* ---- the driver (opencl_run.c) --------------------------------------------------------------- */

extern fxi_gpu_driver fxi_opencl_driver;

#endif
