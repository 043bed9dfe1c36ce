/* metal_queue.c: the open command buffer and its encoders. One open encoder runs its work in the
 * order in which it is encoded, and command buffers run in the order of their commits, so the queue
 * is in order as a whole.
 *
 * Metal returns command buffers and encoders that belong to an autorelease pool. They are retained
 * within a pool that ends at once, so threads of the program need no pool.
 */
#include "metal.h"

#include <string.h>

/* The most pieces of work in one command buffer. A full one is committed early, so that the device
 * begins with it. */
enum { ENCODED_MOST = 256 };

/* ---- encoders -------------------------------------------------------------------------------- */

/* Like all static functions of this file, this is called with the lock held. */
static void end_encoder(fxi_id *encoder)
{
    if (!*encoder)
        return;
    FXI_SEND(end, *encoder);
    fxi_mtl.release(*encoder);
    *encoder = NULL;
}

/* Remembers the first error of a finished command buffer, and releases the buffer. */
static void finish_command(fxi_metal_device *d, fxi_id command)
{
    FXI_SEND(await, command);
    d->seconds += FXI_SEND(gpu_end, command) - FXI_SEND(gpu_start, command);
    if (FXI_SEND(status, command) == FXI_MTL_STATUS_ERROR && d->error == 0) {
        void *pool = fxi_mtl.push();
        const fxi_id error = FXI_SEND(error, command);
        const long code = error ? FXI_SEND(code, error) : 0;
        fxi_mtl.pop(pool);
        /* 0 would be success. */
        d->error = code > 0 && code < FXI_MTL_UNKNOWN ? (int)code : FXI_MTL_UNKNOWN;
    }
    fxi_mtl.release(command);
}

static void commit(fxi_metal_device *d)
{
    if (!d->command)
        return;
    end_encoder(&d->compute);
    end_encoder(&d->blit);
    if (d->ncommitted == FXI_METAL_COMMITTED) {
        finish_command(d, d->committed[0]);
        d->ncommitted--;
        memmove(d->committed, d->committed + 1, (size_t)d->ncommitted * sizeof *d->committed);
    }
    FXI_SEND(commit, d->command);
    d->committed[d->ncommitted++] = d->command;
    d->command = NULL;
    d->encoded = 0;
}

/* Makes a command buffer if none is open. */
static void open_command(fxi_metal_device *d)
{
    void *pool = fxi_mtl.push();
    if (!d->command)
        d->command = fxi_mtl.retain(FXI_SEND(command, d->queue));
    fxi_mtl.pop(pool);
}

static void open_encoder(fxi_metal_device *d, fxi_id *encoder)
{
    open_command(d);
    void *pool = fxi_mtl.push();
    if (d->command)
        *encoder = fxi_mtl.retain(encoder == &d->compute ? FXI_SEND(compute, d->command)
                                                         : FXI_SEND(blit, d->command));
    fxi_mtl.pop(pool);
    /* An encoder begins without buffers. */
    memset(d->bound, 0, sizeof d->bound);
}

static fxi_id encoder_of(fxi_metal_device *d, fxi_id *encoder, fxi_id *other)
{
    if (d->encoded == ENCODED_MOST)
        commit(d);
    end_encoder(other);
    if (!*encoder)
        open_encoder(d, encoder);
    d->encoded++;
    return *encoder;
}

fxi_id fxi_metal_compute(fxi_metal_device *d)
{
    return encoder_of(d, &d->compute, &d->blit);
}

fxi_id fxi_metal_blit(fxi_metal_device *d)
{
    return encoder_of(d, &d->blit, &d->compute);
}

fxi_id fxi_metal_command(fxi_metal_device *d)
{
    if (d->encoded == ENCODED_MOST)
        commit(d);
    end_encoder(&d->compute);
    end_encoder(&d->blit);
    open_command(d);
    d->encoded++;
    return d->command;
}

/* ---- waiting --------------------------------------------------------------------------------- */

void fxi_metal_commit(fxi_metal_device *d)
{
    fxi_mutex_lock(&d->lock);
    commit(d);
    fxi_mutex_unlock(&d->lock);
}

/* Waits with the lock held: other threads could only add work after it. */
int fxi_metal_finish(void *device)
{
    fxi_metal_device *d = device;
    fxi_mutex_lock(&d->lock);
    commit(d);
    for (int k = 0; k < d->ncommitted; k++)
        finish_command(d, d->committed[k]);
    d->ncommitted = 0;
    const int error = d->error;
    d->error = 0;
    fxi_mutex_unlock(&d->lock);
    return error;
}
