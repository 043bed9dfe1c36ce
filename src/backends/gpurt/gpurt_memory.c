/* gpurt_memory.c: memory of devices, and copies to, from and between them. All work is queued in
 * the stream `work`, in the order of the calls.
 */
#include "gpurt.h"

#include <stdio.h>

/* Handles a failed allocation. If memory ran out, nothing is recorded, because cflux frees its
 * caches and retries. */
static void refused(fxi_rt_device *d, const char *call, int error)
{
    char text[320];
    const fx_status status = fxi_gpu_why(&d->gpu, call, error, text, sizeof text);
    if (status != FX_STATUS_MEMORY || fxi_gpu_lost(&d->gpu.health))
        fxi_rt_host->fail(status, "alloc", text);
}

void *fxi_rt_alloc(fx_device *device, size_t bytes)
{
    fxi_rt_device *d = fxi_rt_of(device);
    void *address = NULL;
    int error = fxi_rt_select(d);
    /* The driver cannot allocate 0 bytes, but an empty array needs an address too. */
    if (!error)
        error = fxi_rt.MemAlloc(&address, bytes ? bytes : 1);
    if (!error)
        return address;
    refused(d, fxi_rt_name.MemAlloc, error);
    return NULL;
}

/* Waits, because queued work may still use the memory. Drivers wait too, but their documentation
 * does not promise it. cflux keeps freed memory for reuse, so this call is rare. */
void fxi_rt_free(fx_device *device, void *address)
{
    fxi_rt_device *d = fxi_rt_of(device);
    if (!address || fxi_rt_select(d) != 0)
        return;
    /* Memory of a lost device is freed with the process. */
    if (!fxi_gpu_lost(&d->gpu.health) && fxi_rt.StreamSync(d->work) == 0)
        fxi_rt.MemFree(address);
}

int64_t fxi_rt_available(fx_device *device)
{
    size_t available = 0, all = 0;
    fxi_rt_device *d = fxi_rt_of(device);
    return fxi_rt_select(d) == 0 && fxi_rt.MemInfo(&available, &all) == 0 ? (int64_t)available : -1;
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* Without pinned memory the driver may read `from` after the call, so the host waits. */
static fx_status write_waiting(fxi_rt_device *d, void *to, const void *from, size_t bytes)
{
    const fx_status status = FXI_RT_TRY(d, "write", WriteAsync, (to, from, bytes, d->work));
    return status ? status : FXI_RT_TRY(d, "write", StreamSync, (d->work));
}

fx_status fxi_rt_write(fx_device *device, void *to, const void *from, size_t bytes)
{
    fxi_rt_device *d = fxi_rt_of(device);
    fx_status status = FX_OK;
    if (bytes == 0)
        return FX_OK;
    status = fxi_gpu_check(&d->gpu, "write", "selecting the device", fxi_rt_select(d));
    if (!status && !fxi_rt_upload(d, to, from, bytes, &status))
        status = write_waiting(d, to, from, bytes);
    return status;
}

/* The read waits for all work that is queued before it, so afterwards all faults that kernels found
 * have been written. */
fx_status fxi_rt_read(fx_device *device, void *to, const void *from, size_t bytes)
{
    fxi_rt_device *d = fxi_rt_of(device);
    if (bytes == 0)
        return FX_OK;
    fx_status status = fxi_gpu_check(&d->gpu, "read", "selecting the device", fxi_rt_select(d));
    if (!status)
        status = FXI_RT_TRY(d, "read", ReadAsync, (to, (void *)(uintptr_t)from, bytes, d->work));
    if (!status)
        status = FXI_RT_TRY(d, "read", StreamSync, (d->work));
    return status ? status : fxi_gpu_device_found(device, "read");
}

fx_status fxi_rt_fill(fx_device *device, void *to, uint8_t value, size_t bytes)
{
    fxi_rt_device *d = fxi_rt_of(device);
    if (bytes == 0)
        return FX_OK;
    const fx_status status =
        fxi_gpu_check(&d->gpu, "fill", "selecting the device", fxi_rt_select(d));
    return status ? status : FXI_RT_TRY(d, "fill", FillAsync, (to, value, bytes, d->work));
}

/* ---- between devices ------------------------------------------------------------------------- */

/* Requests direct copies once for each pair of devices. If two devices have no connection, the
 * driver's copy uses host memory. */
static void connect(fxi_rt_device *to, const fxi_rt_device *from)
{
    const uint64_t bit = UINT64_C(1) << (from - fxi_rt_device_at(0));
    int can = 0;
    if (__atomic_fetch_or(&to->peers, bit, __ATOMIC_ACQ_REL) & bit || !fxi_rt.PeerEnable ||
        !fxi_rt.DeviceCanAccess)
        return;
    /* An error only makes the copy slower. FXI_RT_PEER_ALREADY: another library has made the same
     * request. */
    if (fxi_rt.DeviceCanAccess(&can, to->id, from->id) == 0 && can)
        (void)fxi_rt_peer_enable(from);
}

fx_status fxi_rt_copy(fx_device *to_device, void *to, fx_device *from_device, const void *from,
                      size_t bytes)
{
    fxi_rt_device *d = fxi_rt_of(to_device), *s = fxi_rt_of(from_device);
    void *source = (void *)(uintptr_t)from;
    if (bytes == 0)
        return FX_OK;
    fx_status status = fxi_gpu_check(&d->gpu, "copy", "selecting the device", fxi_rt_select(d));
    if (status)
        return status;
    if (d == s)
        return FXI_RT_TRY(d, "copy", CopyAsync, (to, source, bytes, d->work));
    connect(d, s);
    /* Tests count copies that did not use cflux's host memory. */
    fxi_gpu_count(&fxi_gpu_counts.direct);
    return fxi_gpu_check(&d->gpu, "copy", fxi_rt_name.PeerCopy,
                         fxi_rt_peer_copy(d, to, s, source, bytes));
}
