/* opencl_memory.c: the memory of OpenCL devices, with addresses to which the library can add
 * offsets.
 *
 * OpenCL 1.2 has buffer objects and no addresses. An address of this backend is a number: the upper
 * 24 bits are the number of a slot in a table, from 1 on, so that no address is NULL; the lower 40
 * are the byte in the slot's buffer. So the buffer of an address is found by one look into the
 * table, without a lock. Host memory may have the same address: an address means something only
 * together with its device. Slots are allocated in blocks that are never moved or freed. A slot is
 * written before its address is returned to the library, and again only after it has been freed.
 *
 * Short writes are copied to a ring of host memory first, so that they need not wait for the work
 * that is queued before them.
 */
#include "opencl.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(void *) == 8, "addresses have 64 bits");

/* 40 bits are 1 TiB, more than a buffer can have; the table's 2²³ slots fit in the other 24 bits.
 */
enum { OFFSET_BITS = 40, BLOCK_BITS = 12, BLOCK = 1 << BLOCK_BITS, BLOCKS = 1 << 11 };

typedef struct slot {
    cl_mem mem;    /* atomic; NULL: not in use */
    uint32_t next; /* the next free slot's number plus one; 0: none */
} slot;

static struct {
    fxi_mutex lock;       /* held to allocate or free a slot */
    slot *blocks[BLOCKS]; /* atomic */
    uint32_t used, free;  /* slots used so far; number of the first freed slot plus one, or 0 */
} table = {.lock = FXI_MUTEX_INIT};

static slot *slot_at(uint64_t number)
{
    /* A number beyond the table comes from an address that is not ours. */
    slot *block = number >> BLOCK_BITS < BLOCKS
                      ? __atomic_load_n(&table.blocks[number >> BLOCK_BITS], __ATOMIC_ACQUIRE)
                      : NULL;
    return block ? &block[number & (BLOCK - 1)] : NULL;
}

bool fxi_opencl_find(const void *address, cl_mem *out, size_t *out_offset)
{
    const uint64_t a = (uint64_t)(uintptr_t)address, number = (a >> OFFSET_BITS) - 1;
    const slot *s = slot_at(number);
    *out = s ? __atomic_load_n(&s->mem, __ATOMIC_ACQUIRE) : NULL;
    /* The lower bits are the byte in the buffer, so the library can add offsets to an address. */
    *out_offset = a & ((UINT64_C(1) << OFFSET_BITS) - 1);
    return *out != NULL;
}

static bool more_slots(void)
{
    const uint32_t block = table.used >> BLOCK_BITS;
    slot *fresh = block < BLOCKS ? fxi_opencl_host->alloc(BLOCK * sizeof *fresh) : NULL;
    if (!fresh)
        return false;
    /* The block is complete before its address is published, because readers take no lock. */
    memset(fresh, 0, BLOCK * sizeof *fresh);
    __atomic_store_n(&table.blocks[block], fresh, __ATOMIC_RELEASE);
    return true;
}

/* Allocates a slot for a buffer and returns its address; NULL if no slot is left. */
static void *take_slot(cl_mem mem)
{
    fxi_mutex_lock(&table.lock);
    uint32_t number = table.free;
    /* Freed slots first: the table then grows only with the buffers that exist at once. */
    if (number)
        table.free = slot_at(number - 1)->next;
    else if ((table.used & (BLOCK - 1)) != 0 || more_slots())
        number = ++table.used;
    if (number)
        __atomic_store_n(&slot_at(number - 1)->mem, mem, __ATOMIC_RELEASE);
    fxi_mutex_unlock(&table.lock);
    return (void *)(uintptr_t)((uint64_t)number << OFFSET_BITS);
}

static cl_mem give_slot(const void *address)
{
    const uint32_t number = (uint32_t)((uint64_t)(uintptr_t)address >> OFFSET_BITS);
    slot *s = number ? slot_at(number - 1) : NULL;
    if (!s)
        return NULL;
    fxi_mutex_lock(&table.lock);
    /* A second free of the same address finds NULL and does nothing. */
    const cl_mem mem = __atomic_exchange_n(&s->mem, NULL, __ATOMIC_ACQ_REL);
    if (mem) {
        s->next = table.free;
        table.free = number;
    }
    fxi_mutex_unlock(&table.lock);
    return mem;
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* Handles a failed allocation. For lack of memory, which drivers report with several errors,
 * nothing is recorded, because the library frees its caches and asks again. Other errors are
 * recorded. */
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
    if (bytes > (uint64_t)d->largest || bytes >> OFFSET_BITS)
        return NULL;
    /* OpenCL has no buffers of 0 bytes, but an empty array needs an address too. */
    cl_mem mem =
        fxi_cl.CreateBuffer(d->context, CL_MEM_READ_WRITE, bytes ? bytes : 1, NULL, &error);
    if (!mem) {
        refused(d, error);
        return NULL;
    }
    void *address = take_slot(mem);
    /* The table is full, or host memory is: the caller sees a lack of memory. */
    if (!address)
        fxi_cl.ReleaseMemObject(mem);
    return address;
}

/* OpenCL keeps the buffer until the queued work that uses it is done. */
void fxi_opencl_free(fx_device *device, void *address)
{
    (void)device;
    cl_mem mem = give_slot(address);
    if (mem)
        fxi_cl.ReleaseMemObject(mem);
}

/* −1 unless the driver has AMD's extension; the library then knows only what it has allocated
 * itself. */
int64_t fxi_opencl_available(fx_device *device)
{
    const fxi_opencl_device *d = fxi_opencl_of(device);
    size_t kib[2] = {0};
    if (!d->says_free ||
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

/* The library passes only addresses that `alloc` returned, so another address is a mistake in it.
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
 * holds several short writes, so only few writes wait for the device. */
enum { HALF = 1 << 20, SHORT = HALF / 4 };
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
static cl_int next_half(fxi_opencl_device *d, fxi_opencl_ring *r)
{
    cl_int error = fxi_cl.EnqueueMarkerWithWaitList(d->queue, 0, NULL, &r->read[r->half]);
    if (error != CL_SUCCESS)
        return error;
    /* The marker tells when all writes from this half are done. */
    r->half ^= 1;
    r->used = 0;
    if (r->read[r->half]) {
        error = fxi_cl.WaitForEvents(1, &r->read[r->half]);
        fxi_cl.ReleaseEvent(r->read[r->half]);
        r->read[r->half] = NULL;
    }
    return error;
}

/* The caller holds the device's lock. */
static cl_int write_short(fxi_opencl_device *d, fxi_opencl_ring *r, const location *to,
                          const void *from, size_t bytes)
{
    cl_int error = r->used + bytes > HALF ? next_half(d, r) : CL_SUCCESS;
    if (error != CL_SUCCESS)
        return error;
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
    fxi_opencl_ring *ring = NULL;
    /* A longer write would fill the ring and wait for the device anyway. */
    if (bytes <= SHORT) {
        fxi_mutex_lock(&d->gpu.lock);
        ring = ring_of(d);
        if (ring)
            error = write_short(d, ring, &p, from, bytes);
        fxi_mutex_unlock(&d->gpu.lock);
    }
    /* Long writes, and short ones if there is no memory for a ring, wait until the device has read
     * them. */
    if (!ring)
        error =
            fxi_cl.EnqueueWriteBuffer(d->queue, p.mem, true, p.offset, bytes, from, 0, NULL, NULL);
    return fxi_gpu_check(&d->gpu, "write", "clEnqueueWriteBuffer", error);
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

/* Copies between devices of one context. For other devices `wait` returns UNSUPPORTED, and the
 * library does not call this. */
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
    /* Tests count copies that did not go through the host. */
    if (d != s)
        fxi_gpu_count(&fxi_gpu_counts.direct);
    return fxi_gpu_check(&d->gpu, "copy", "clEnqueueCopyBuffer",
                         fxi_cl.EnqueueCopyBuffer(d->queue, out.mem, into.mem, out.offset,
                                                  into.offset, bytes, 0, NULL, NULL));
}
