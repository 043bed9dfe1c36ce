/* gpurt_upload.c: writes to a device through pinned memory, so that they do not wait for the work
 * that is queued before them.
 *
 * A short write is copied to a ring buffer of pinned memory and queued in the stream `work`.
 *
 * A long write is cut into pieces. Each piece uses pinned memory on the host and memory of the
 * backend on the device. The stream `upload` copies it to the device immediately, while the device
 * still computes queued work; the stream `work` waits for it and copies it to its final address. So
 * a loader's next batch is copied during a training step, and later work still sees it in the order
 * of the calls.
 *
 * Events tell when the device has read a part of the ring buffer, or a piece, so that it may be
 * used again.
 */
#include "gpurt.h"

#include <string.h>

/* A half of the ring holds several short writes, so few of them wait for the device. Four pieces:
 * two are copied to the device while two are copied to their final addresses. */
enum { HALVES = 2, HALF = 1 << 20, SHORT = HALF / 4, PIECES = 4, PIECE = 4 << 20 };

/* Pinned memory, for pieces also memory of the device, and the event after which both may be used
 * again. */
typedef struct staging_buffer {
    char *host;
    void *device; /* NULL in halves */
    fxi_rt_event free;
    bool busy; /* `free` was recorded */
} staging_buffer;

struct fxi_rt_ring {
    staging_buffer halves[HALVES], pieces[PIECES];
    int half, piece;
    size_t used; /* bytes of the half */
    fxi_rt_event arrived;
    bool no_halves, no_pieces; /* there is no memory for them */
};

/* ---- pinned memory --------------------------------------------------------------------------- */

static bool open_staging(staging_buffer *p, size_t bytes, bool on_device)
{
    void *memory = NULL;
    if (!p->host && fxi_rt.HostAlloc(&memory, bytes, FXI_RT_PORTABLE) == 0)
        p->host = memory;
    if (p->host && on_device && !p->device && fxi_rt.MemAlloc(&memory, bytes) == 0)
        p->device = memory;
    return p->host && (!on_device || p->device) &&
           (p->free || fxi_rt.EventCreate(&p->free, FXI_RT_NO_TIMES) == 0);
}

/* Allocates all buffers of a list. After a failure, buffers that were allocated are kept, but not
 * used. */
static bool open_all(staging_buffer *list, int n, size_t bytes, bool on_device)
{
    for (int k = 0; k < n; k++)
        if (!open_staging(&list[k], bytes, on_device))
            return false;
    return true;
}

static fxi_rt_ring *ring_of(fxi_rt_device *d)
{
    if (d->ring || !(d->ring = fxi_rt_host->alloc(sizeof *d->ring)))
        return d->ring;
    memset(d->ring, 0, sizeof *d->ring);
    d->ring->no_halves = !open_all(d->ring->halves, HALVES, HALF, false);
    return d->ring;
}

/* Allocated at the first long write, which small programs never make: they save 32 MiB. */
static bool open_pieces(fxi_rt_ring *r)
{
    if (r->arrived || r->no_pieces)
        return !r->no_pieces;
    r->no_pieces = !open_all(r->pieces, PIECES, PIECE, true) ||
                   fxi_rt.EventCreate(&r->arrived, FXI_RT_NO_TIMES) != 0;
    return !r->no_pieces;
}

/* Waits until the device has read what the memory contained. */
static fx_status claim(fxi_rt_device *d, staging_buffer *p)
{
    const bool busy = p->busy;
    p->busy = false;
    return busy ? FXI_RT_TRY(d, "write", EventSync, (p->free)) : FX_OK;
}

static fx_status release(fxi_rt_device *d, staging_buffer *p)
{
    const fx_status status = FXI_RT_TRY(d, "write", EventRecord, (p->free, d->work));
    p->busy = !status;
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static fx_status write_short(fxi_rt_device *d, fxi_rt_ring *r, void *to, const char *from,
                             size_t bytes)
{
    fx_status status = FX_OK;
    if (r->used + bytes > HALF) {
        status = release(d, &r->halves[r->half]);
        r->half = (r->half + 1) % HALVES;
        r->used = 0;
        if (!status)
            status = claim(d, &r->halves[r->half]);
    }
    if (status)
        return status;
    char *here = r->halves[r->half].host + r->used;
    memcpy(here, from, bytes);
    r->used += (bytes + 63) / 64 * 64;
    return FXI_RT_TRY(d, "write", WriteAsync, (to, here, bytes, d->work));
}

static fx_status write_piece(fxi_rt_device *d, fxi_rt_ring *r, char *to, const char *from,
                             size_t bytes)
{
    staging_buffer *p = &r->pieces[r->piece];
    r->piece = (r->piece + 1) % PIECES;
    fx_status status = claim(d, p);
    if (status)
        return status;
    memcpy(p->host, from, bytes);
    status = FXI_RT_TRY(d, "write", WriteAsync, (p->device, p->host, bytes, d->upload));
    if (!status)
        status = FXI_RT_TRY(d, "write", EventRecord, (r->arrived, d->upload));
    if (!status)
        status = FXI_RT_TRY(d, "write", StreamWait, (d->work, r->arrived, 0));
    if (!status)
        status = FXI_RT_TRY(d, "write", CopyAsync, (to, p->device, bytes, d->work));
    return status ? status : release(d, p);
}

static fx_status write_long(fxi_rt_device *d, fxi_rt_ring *r, char *to, const char *from,
                            size_t bytes)
{
    fx_status status = FX_OK;
    for (size_t done = 0, n; done < bytes && !status; done += n) {
        n = bytes - done < PIECE ? bytes - done : PIECE;
        status = write_piece(d, r, to + done, from + done, n);
    }
    return status;
}

bool fxi_rt_upload(fxi_rt_device *d, void *to, const void *from, size_t bytes,
                   fx_status *out_status)
{
    /* This is not the device's lock, because handling an error waits for the device and may call a
     * hook. */
    fxi_mutex_lock(&d->staging);
    fxi_rt_ring *r = ring_of(d);
    const bool is_short = bytes <= SHORT;
    const bool can = r && (is_short ? !r->no_halves : open_pieces(r));
    if (can)
        *out_status =
            is_short ? write_short(d, r, to, from, bytes) : write_long(d, r, to, from, bytes);
    fxi_mutex_unlock(&d->staging);
    return can;
}
