/* opencl_memory.c: the memory of OpenCL devices. OpenCL 1.2 has buffer objects and no addresses;
 * gpu_addresses.c makes addresses for them.
 *
 * Short writes are copied to a ring of host memory first, so that they need not wait for the work
 * that is queued before them.
 */
#include "opencl.h"

#include "gpu_addresses.h"

#include <stdio.h>
#include <string.h>

bool fxi_opencl_find(const void *address, cl_mem *out, size_t *out_offset)
{
    *out = fxi_gpu_address_find(address, out_offset);
    return *out != NULL;
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* Handles a failed allocation. For lack of memory, which drivers report with several errors,
 * nothing is recorded, because cflux frees its caches and retries. Other errors are recorded. */
static void refused(fxi_opencl_device *d, cl_int error)
{
    char text[320];
    const fx_status status = fxi_gpu_why(&d->gpu, "clCreateBuffer", error, text, sizeof text);
    const bool memory = status == FX_STATUS_MEMORY || error == CL_OUT_OF_RESOURCES ||
                        error == CL_INVALID_BUFFER_SIZE;
    if (!memory || fxi_gpu_lost(&d->gpu.health))
        fxi_opencl_host->fail(status, "alloc", text);
}

/* Drivers allocate a buffer when it is first used, so a size that the device cannot hold is refused
 * here. */
void *fxi_opencl_alloc(fx_device *device, size_t bytes)
{
    fxi_opencl_device *d = fxi_opencl_of(device);
    cl_int error = CL_SUCCESS;
    if (bytes > (uint64_t)d->largest || bytes >= FXI_GPU_ADDRESS_BYTES)
        return NULL;
    /* OpenCL has no buffers of 0 bytes, but an empty array needs an address too. */
    cl_mem mem =
        fxi_cl.CreateBuffer(d->context, CL_MEM_READ_WRITE, bytes ? bytes : 1, NULL, &error);
    if (!mem) {
        refused(d, error);
        return NULL;
    }
    void *address = fxi_gpu_address_new(fxi_opencl_host, mem);
    /* The table of addresses is full, or host memory ran out. The caller treats both as a lack of
     * device memory. */
    if (!address)
        fxi_cl.ReleaseMemObject(mem);
    return address;
}

/* OpenCL keeps the buffer until the queued work that uses it is done. */
void fxi_opencl_free(fx_device *device, void *address)
{
    (void)device;
    cl_mem mem = fxi_gpu_address_end(address);
    if (mem)
        fxi_cl.ReleaseMemObject(mem);
}

/* −1 unless the driver has AMD's extension; cflux then knows only how much it has allocated itself.
 */
int64_t fxi_opencl_available(fx_device *device)
{
    const fxi_opencl_device *d = fxi_opencl_of(device);
    size_t kib[2] = {0};
    if (!d->reports_free ||
        fxi_cl.GetDeviceInfo(d->id, CL_DEVICE_GLOBAL_FREE_MEMORY_AMD, sizeof kib, kib, NULL))
        return -1;
    /* Two numbers in KiB: all free memory, and the largest free block. */
    return (int64_t)kib[0] * 1024;
}

/* ---- transfers ------------------------------------------------------------------------------- */

typedef struct location {
    cl_mem mem;
    size_t offset;
} location;

/* cflux passes only addresses that `alloc` returned, so another address is a mistake in cflux.
 */
static fx_status find(const fxi_opencl_device *d, const char *operation, const void *address,
                      location *out)
{
    char text[200];
    if (fxi_opencl_find(address, &out->mem, &out->offset))
        return FX_OK;
    snprintf(text, sizeof text, "%p is not an address on %s (%s), or was freed", address,
             d->gpu.label, d->gpu.name);
    return fxi_opencl_host->fail(FX_STATUS_INTERNAL, operation, text);
}

/* A ring of two halves, filled alternately. An event tells when the device has read a half. A half
 * holds several short writes, so few of them wait for the device. */
enum { HALF = 1 << 20, SHORT = HALF / 4 };
#define WRITE_CALL "clEnqueueWriteBuffer"
struct fxi_opencl_ring {
    cl_event read[2];
    int half;
    size_t used;
    char bytes[2][HALF];
};

/* Allocated at the first short write. Only the head is cleared: the bytes are written before they
 * are read. */
static fxi_opencl_ring *ring_of(fxi_opencl_device *d)
{
    if (!d->ring && (d->ring = fxi_opencl_host->alloc(sizeof *d->ring)) != NULL)
        memset(d->ring, 0, offsetof(fxi_opencl_ring, bytes));
    return d->ring;
}

/* Changes to the other half, and waits until the device has read it. */
static cl_int next_half(fxi_opencl_device *d, fxi_opencl_ring *r, const char **out_call)
{
    /* The marker tells when all writes from this half are done. */
    *out_call = "clEnqueueMarkerWithWaitList";
    cl_int error = fxi_cl.EnqueueMarkerWithWaitList(d->queue, 0, NULL, &r->read[r->half]);
    if (error != CL_SUCCESS)
        return error;
    r->half ^= 1;
    r->used = 0;
    if (r->read[r->half]) {
        *out_call = "clWaitForEvents";
        error = fxi_cl.WaitForEvents(1, &r->read[r->half]);
        fxi_cl.ReleaseEvent(r->read[r->half]);
        r->read[r->half] = NULL;
    }
    return error;
}

/* The caller holds the device's lock. *out_call: the call of OpenCL that failed. */
static cl_int write_short(fxi_opencl_device *d, fxi_opencl_ring *r, const location *to,
                          const void *from, size_t bytes, const char **out_call)
{
    cl_int error = r->used + bytes > HALF ? next_half(d, r, out_call) : CL_SUCCESS;
    if (error != CL_SUCCESS)
        return error;
    *out_call = WRITE_CALL;
    char *here = r->bytes[r->half] + r->used;
    memcpy(here, from, bytes);
    r->used += (bytes + 63) / 64 * 64;
    /* Not blocking: `here` stays unchanged until the half is used again. */
    return fxi_cl.EnqueueWriteBuffer(d->queue, to->mem, false, to->offset, bytes, here, 0, NULL,
                                     NULL);
}

fx_status fxi_opencl_write(fx_device *device, void *to, const void *from, size_t bytes)
{
    fxi_opencl_device *d = fxi_opencl_of(device);
    location p;
    if (bytes == 0)
        return FX_OK;
    const fx_status status = find(d, "write", to, &p);
    if (status)
        return status;
    cl_int error = CL_SUCCESS;
    const char *call = WRITE_CALL;
    fxi_opencl_ring *ring = NULL;
    /* A longer write would fill the ring and wait for the device anyway. */
    if (bytes <= SHORT) {
        fxi_mutex_lock(&d->gpu.lock);
        ring = ring_of(d);
        if (ring)
            error = write_short(d, ring, &p, from, bytes, &call);
        fxi_mutex_unlock(&d->gpu.lock);
    }
    /* Long writes, and short ones if there is no memory for a ring, wait until the device has read
     * them. */
    if (!ring)
        error =
            fxi_cl.EnqueueWriteBuffer(d->queue, p.mem, true, p.offset, bytes, from, 0, NULL, NULL);
    return fxi_gpu_check(&d->gpu, "write", call, error);
}

/* The read waits for all work that is queued before it, so afterwards all faults that kernels found
 * have been written. */
fx_status fxi_opencl_read(fx_device *device, void *to, const void *from, size_t bytes)
{
    fxi_opencl_device *d = fxi_opencl_of(device);
    location p;
    if (bytes == 0)
        return FX_OK;
    const fx_status status = find(d, "read", from, &p);
    if (status)
        return status;
    const cl_int error =
        fxi_cl.EnqueueReadBuffer(d->queue, p.mem, true, p.offset, bytes, to, 0, NULL, NULL);
    return error ? fxi_gpu_check(&d->gpu, "read", "clEnqueueReadBuffer", error)
                 : fxi_gpu_device_found(device, "read");
}

/* Fills with the longest pattern of that byte by which both offset and size are divisible, as
 * OpenCL requires. */
fx_status fxi_opencl_fill(fx_device *device, void *to, uint8_t value, size_t bytes)
{
    fxi_opencl_device *d = fxi_opencl_of(device);
    location p;
    if (bytes == 0)
        return FX_OK;
    const fx_status status = find(d, "fill", to, &p);
    if (status)
        return status;
    uint8_t pattern[16];
    memset(pattern, value, sizeof pattern);
    size_t length = sizeof pattern;
    /* The loop ends at 1 byte, by which every size is divisible. */
    while ((p.offset | bytes) % length != 0)
        length /= 2;
    return fxi_gpu_check(
        &d->gpu, "fill", "clEnqueueFillBuffer",
        fxi_cl.EnqueueFillBuffer(d->queue, p.mem, pattern, length, p.offset, bytes, 0, NULL, NULL));
}

/* Copies between devices of one context. For other devices `wait` returns UNSUPPORTED, and cflux
 * does not call this function. */
fx_status fxi_opencl_copy(fx_device *to_device, void *to, fx_device *from_device, const void *from,
                          size_t bytes)
{
    fxi_opencl_device *d = fxi_opencl_of(to_device), *s = fxi_opencl_of(from_device);
    location into, out;
    if (bytes == 0)
        return FX_OK;
    fx_status status = find(d, "copy", to, &into);
    if (status == FX_OK)
        status = find(s, "copy", from, &out);
    if (status)
        return status;
    /* Tests count copies that did not use host memory. */
    if (d != s)
        fxi_gpu_count(&fxi_gpu_counts.direct);
    return fxi_gpu_check(&d->gpu, "copy", "clEnqueueCopyBuffer",
                         fxi_cl.EnqueueCopyBuffer(d->queue, out.mem, into.mem, out.offset,
                                                  into.offset, bytes, 0, NULL, NULL));
}
