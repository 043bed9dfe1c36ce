/* metal_memory.c: the memory of the Metal device. Storage is shared, so a read or write waits for
 * the queued work and copies on the host; nothing is copied twice.
 */
#include "metal.h"

#include "gpu_addresses.h"

#include <stdio.h>
#include <string.h>

/* ---- buffers --------------------------------------------------------------------------------- */

/* Metal also allocates beyond the recommended size, but then the whole system swaps. So a request
 * beyond that size is refused here; cflux then frees its caches and retries. */
void *fxi_metal_alloc(fx_device *device, size_t bytes)
{
    fxi_metal_device *d = fxi_metal_of(device);
    if (bytes > (uint64_t)d->largest || bytes >= FXI_GPU_ADDRESS_BYTES ||
        (int64_t)bytes > fxi_metal_available(device))
        return NULL;
    /* Metal has no buffers of 0 bytes, but an empty array needs an address too. */
    const fxi_id buffer =
        FXI_SEND_WITH(buffer, d->device, bytes ? bytes : 1, FXI_MTL_STORAGE_SHARED);
    if (!buffer)
        return NULL;
    void *address = fxi_gpu_address_new(fxi_metal_host, buffer);
    /* The table of addresses is full, or host memory ran out. The caller treats both as a lack of
     * device memory. */
    if (!address)
        fxi_mtl.release(buffer);
    return address;
}

/* Command buffers retain the buffers of their work, so a buffer lives until that work ends. */
void fxi_metal_free(fx_device *device, void *address)
{
    const fxi_id buffer = fxi_gpu_address_end(address);
    (void)device;
    if (buffer)
        fxi_mtl.release(buffer);
}

int64_t fxi_metal_available(fx_device *device)
{
    const fxi_metal_device *d = fxi_metal_of(device);
    const int64_t free = d->memory - (int64_t)FXI_SEND(allocated, d->device);
    return free > 0 ? free : 0;
}

/* ---- transfers ------------------------------------------------------------------------------- */

typedef struct location {
    fxi_id buffer;
    size_t offset;
} location;

/* cflux passes only addresses that `alloc` returned, so another address is a mistake in cflux.
 */
static fx_status find(const fxi_metal_device *d, const char *operation, const void *address,
                      location *out)
{
    char text[200];
    out->buffer = fxi_gpu_address_find(address, &out->offset);
    if (out->buffer)
        return FX_OK;
    snprintf(text, sizeof text, "%p is not an address on %s (%s), or was freed", address,
             d->gpu.label, d->gpu.name);
    return fxi_metal_host->fail(FX_STATUS_INTERNAL, operation, text);
}

static char *host_address(const location *l)
{
    return (char *)FXI_SEND(contents, l->buffer) + l->offset;
}

static fx_status finish(fxi_metal_device *d, const char *operation)
{
    return fxi_gpu_check(&d->gpu, operation, FXI_METAL_FINISH, fxi_metal_finish(d));
}

fx_status fxi_metal_write(fx_device *device, void *to, const void *from, size_t bytes)
{
    fxi_metal_device *d = fxi_metal_of(device);
    location p;
    if (bytes == 0)
        return FX_OK;
    fx_status status = find(d, "write", to, &p);
    if (!status)
        status = finish(d, "write");
    if (!status)
        memcpy(host_address(&p), from, bytes);
    return status;
}

fx_status fxi_metal_read(fx_device *device, void *to, const void *from, size_t bytes)
{
    fxi_metal_device *d = fxi_metal_of(device);
    location p;
    if (bytes == 0)
        return FX_OK;
    fx_status status = find(d, "read", from, &p);
    if (!status)
        status = finish(d, "read");
    if (status)
        return status;
    memcpy(to, host_address(&p), bytes);
    return fxi_gpu_device_found(device, "read");
}

/* On macOS, Metal copies and fills only multiples of 4 bytes at multiples of 4. The host copies and
 * fills the rest, which is short or rare. */
static bool encoder_can(size_t offsets_and_bytes)
{
    return offsets_and_bytes % 4 == 0;
}

fx_status fxi_metal_fill(fx_device *device, void *to, uint8_t value, size_t bytes)
{
    fxi_metal_device *d = fxi_metal_of(device);
    location p;
    if (bytes == 0)
        return FX_OK;
    fx_status status = find(d, "fill", to, &p);
    if (status)
        return status;
    if (!encoder_can(p.offset | bytes)) {
        status = finish(d, "fill");
        if (!status)
            memset(host_address(&p), value, bytes);
        return status;
    }
    fxi_mutex_lock(&d->lock);
    const fxi_id encoder = fxi_metal_blit(d);
    if (encoder)
        FXI_SEND_WITH(fill, encoder, p.buffer, (fxi_ns_range){p.offset, bytes}, value);
    fxi_mutex_unlock(&d->lock);
    return fxi_gpu_check(&d->gpu, "fill", "blitCommandEncoder", encoder ? 0 : FXI_MTL_NO_COMMAND);
}

/* There is one device, so both addresses are on it. */
fx_status fxi_metal_copy(fx_device *to_device, void *to, fx_device *from_device, const void *from,
                         size_t bytes)
{
    fxi_metal_device *d = fxi_metal_of(to_device);
    location into, out;
    (void)from_device;
    if (bytes == 0)
        return FX_OK;
    fx_status status = find(d, "copy", to, &into);
    if (!status)
        status = find(d, "copy", from, &out);
    if (status)
        return status;
    if (!encoder_can(into.offset | out.offset | bytes)) {
        status = finish(d, "copy");
        if (!status)
            memmove(host_address(&into), host_address(&out), bytes);
        return status;
    }
    fxi_mutex_lock(&d->lock);
    const fxi_id encoder = fxi_metal_blit(d);
    if (encoder)
        FXI_SEND_WITH(copy, encoder, out.buffer, out.offset, into.buffer, into.offset, bytes);
    fxi_mutex_unlock(&d->lock);
    return fxi_gpu_check(&d->gpu, "copy", "blitCommandEncoder", encoder ? 0 : FXI_MTL_NO_COMMAND);
}
