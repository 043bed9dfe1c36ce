/* dist_device.c: operations on arrays of GPUs by NCCL or RCCL (by MPI: dist_aware.c).
 *
 * The members have joined the group by MPI, and agree over MPI on every operation, so a member that
 * is missing or runs another operation is named before the GPU begins. The host then waits for the
 * GPU, because only a waiting host can give up on a connection whose other end is gone.
 */
#include "dist_group.h"

#include "c_text.h"
#include "clock.h"
#include "error.h"
#include "plugin_file.h"

#include <stdio.h>
#include <string.h>

const fxi_device_library fxi_device_libraries[FXI_DIST_DEVICES] = {
    {"nccl", "CUDA", "FX_NCCL_LIBRARY"}, {"rccl", "AMDGPU", "FX_RCCL_LIBRARY"}};

/* ---- opening --------------------------------------------------------------------------------- */

static const char *take(const fx_plugin_head *plugin, void *user)
{
    const fxi_device_transport **out = user, *t = (const fxi_device_transport *)plugin;
    if (!t->open || !t->new_id || !t->join || !t->group || !t->state || !t->run || !t->abandon)
        return "its table must have open, new_id, join, group, state, run and abandon";
    const char *why = t->open(&fxi_dist_host);
    if (!why)
        *out = t;
    return why;
}

static fxi_plugin_result find(const char *name, const fxi_device_transport **out, char *why,
                              size_t size)
{
    static const uint32_t sizes[] = FXI_DEVICE_TRANSPORT_SIZES_HERE;
    const fx_plugin_head *plugin;
    const fxi_plugin_request request = {
        .kind = FX_PLUGIN_TRANSPORT, .name = name, .sizes = sizes, .take = take, .user = out};
    return fxi_plugin_find(&request, &plugin, why, size);
}

const fxi_device_transport *fxi_device_transport_find(const char *name)
{
    char why[FXI_PLUGIN_WHY];
    const fxi_device_transport *t = NULL;
    return find(name, &t, why, sizeof why) == FXI_PLUGIN_TAKEN ? t : NULL;
}

/* Opens this member's libraries, at least one of them. */
static fx_status open_own(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    int n = 0;
    (void)m;
    for (int k = 0; k < FXI_DIST_DEVICES; k++) {
        char reason[FXI_PLUGIN_WHY];
        if (find(fxi_device_libraries[k].plugin, &d->devices[k], reason, sizeof reason) !=
                FXI_PLUGIN_TAKEN &&
            n >= 0 && (size_t)n < size)
            n += snprintf(why + n, size - (size_t)n, "%s%.130s", n ? "; " : "", reason);
    }
    return d->devices[0] || d->devices[1] ? FX_OK : FX_STATUS_UNSUPPORTED;
}

/* A library is used only if no member lacks it, because all members must run a step by the same
 * library.
 */
static fx_status keep_common(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    (void)m;
    for (int k = 0; k < FXI_DIST_DEVICES; k++)
        d->vote[k] = d->devices[k] ? 0 : 1;
    const fx_status status = fxi_dist_vote(d, FXI_DIST_DEVICES, why, size);
    bool some = false;
    for (int k = 0; k < FXI_DIST_DEVICES && status == FX_OK; k++) {
        d->devices[k] = d->votes[k] ? NULL : d->devices[k];
        some = some || d->devices[k];
    }
    if (status != FX_OK || some)
        return status;
    snprintf(why, size, "no library is usable on all members: some have NCCL, some have RCCL");
    return FX_STATUS_UNSUPPORTED;
}

fx_status fxi_dist_open_devices(fx_dist *d, char *why, size_t size)
{
    const fxi_dist_move how = {.what = &fxi_dist_no_step, .ready = open_own, .move = keep_common};
    const fx_status status = fxi_dist_operation(d, &how, why, size);
    for (int k = 0; k < FXI_DIST_DEVICES && status != FX_OK; k++)
        d->devices[k] = NULL; /* the others have none either */
    fxi_mutex_lock(&d->lock);
    d->told = false; /* fx_dist_init failed on all members; a later refusal is another failure */
    fxi_mutex_unlock(&d->lock);
    return status;
}

/* ---- which steps ----------------------------------------------------------------------------- */

int fxi_device_library_of(const char *backend)
{
    int k = 0;
    while (k < FXI_DIST_DEVICES &&
           !fxi_same_ignoring_case(fxi_device_libraries[k].backend, backend))
        k++;
    return k;
}

static const fxi_device_transport *library_for(const fx_dist *d, const char *backend)
{
    const int k = fxi_device_library_of(backend);
    return k < FXI_DIST_DEVICES ? d->devices[k] : NULL;
}

/* Takes a step only if the library computes it as the host does. NCCL adds 16-bit floats in 16
 * bits, and its maxima and minima ignore NaN; MPI cannot apply cflux's maxima and minima to device
 * memory, and has no mean. A reduction to one member is left to the host because it is rare. */
bool fxi_dist_takes(const fx_communicator *self, const char *backend, const fx_step *step)
{
    const fx_dist *d = self->user;
    const fx_collective *w = &fx_step_collective(step)->what;
    const int type = step->out.dtype;
    const bool floats = type == FX_DTYPE_F32 || type == FX_DTYPE_F64,
               whole = type == FX_DTYPE_I32 || type == FX_DTYPE_I64, nccl = library_for(d, backend);
    if (d->fixed_order || w->kind == FX_COLLECTIVE_REDUCE || !(nccl || fxi_dist_aware(d, backend)))
        return false;
    return w->kind == FX_COLLECTIVE_BROADCAST ||
           (w->fold == FX_REDUCE_MAX || w->fold == FX_REDUCE_MIN ? whole
            : w->fold == FX_REDUCE_MEAN                          ? nccl && floats
                                                                 : whole || floats);
}

/* After a failure: destroying a connection whose other end is gone could block forever. */
static void abandon(fx_dist *d)
{
    if (d->connection)
        d->connected->abandon(d->connection);
    d->connection = NULL;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Without a time limit: work of this GPU alone is not a part of the operation. */
fx_status fxi_dist_wait_for_own_work(const fx_device_queue *queue, char *why, size_t size)
{
    int pending;
    const double begin = fxi_clock();
    while ((pending = queue->pending(queue, why, size)) == 1)
        if (fxi_clock() - begin > 0.0005) /* a short step is not worth a sleep */
            fxi_sleep_microseconds(100);
    return pending == 0 ? FX_OK : FX_STATUS_DEVICE;
}

void fxi_dist_say_unfinished(const char *library, double limit, char *why, size_t size)
{
    fxi_snprintf(why, size,
                 "all ranks called the operation, but %s did not complete it within %g s: a GPU, a "
                 "link or a process has stopped",
                 library, limit);
}

/* Waits until the connection takes calls and, with a queue, until the queue is empty. On failure it
 * abandons the connection. */
static fx_status wait_for_all(fx_dist *d, const fx_device_queue *queue, char *why, size_t size)
{
    const double begin = fxi_clock();
    for (;;) {
        const fxi_device_state state = d->connected->state(d->connection, why, size);
        const int pending =
            state == FXI_DEVICE_READY && queue ? queue->pending(queue, why, size) : 0;
        if (state == FXI_DEVICE_READY && pending == 0)
            return FX_OK;
        const double waited = fxi_clock() - begin;
        const bool failed = state == FXI_DEVICE_FAILED || pending < 0;
        if (!failed && waited > d->limit)
            fxi_dist_say_unfinished(d->connected->head.name, d->limit, why, size);
        else if (!failed) {
            if (waited > 0.002)
                fxi_sleep_milliseconds(1);
            continue;
        }
        abandon(d);
        return FX_STATUS_IO;
    }
}

/* ---- connecting ------------------------------------------------------------------------------ */

static fx_status new_id(fx_dist *d, const fxi_device_transport *t, fxi_device_id *id, char *why,
                        size_t size)
{
    const char *failed = d->group.rank == 0 ? t->new_id(id) : NULL;
    return fxi_dist_share(d, failed ? FX_STATUS_UNSUPPORTED : FX_OK, failed, why, size);
}

/* Sends the id of rank 0 to all members. */
static fx_status send_id(fx_dist *d, fxi_device_id *id, char *why, size_t size)
{
    memcpy(d->in, id, sizeof *id);
    fxi_transport_call c = {.kind = FX_COLLECTIVE_BROADCAST,
                            .dtype = FX_DTYPE_U8,
                            .count = (int64_t)sizeof *id,
                            .in = d->in,
                            .out = d->out};
    const fx_status status = fxi_dist_call(d, &c, why, size);
    memcpy(id, d->out, sizeof *id);
    return status;
}

/* All members connect, or all fail with the reason of the first member that failed. */
static fx_status connect(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    const fxi_device_transport *t = library_for(d, m->queue->backend);
    char reason[FXI_DIST_REASON] = "";
    fxi_device_id id = {{0}};
    fx_status status = new_id(d, t, &id, why, size);
    if (status == FX_OK)
        status = send_id(d, &id, why, size);
    if (status != FX_OK)
        return status;
    const char *failed = t->join(&id, d->group.rank, d->group.size, &d->connection);
    d->connected = t;
    d->device = m->queue->data;
    if (failed)
        d->connection = NULL;
    /* A member that could not begin says so before the others wait for it. */
    status = fxi_dist_share(d, failed ? FX_STATUS_UNSUPPORTED : FX_OK, failed, why, size);
    if (status == FX_OK) {
        const fx_status own = wait_for_all(d, NULL, reason, sizeof reason);
        /* Some members may learn only at their time limit that the connection of another failed. */
        d->limit *= 2;
        status = fxi_dist_share(d, own == FX_OK ? FX_OK : FX_STATUS_UNSUPPORTED, reason, why, size);
        d->limit /= 2;
    }
    if (status != FX_OK)
        abandon(d);
    return status;
}

/* ---- operations ------------------------------------------------------------------------------ */

static fx_status ready(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    const fx_status status = fxi_dist_buffers(d, sizeof(fxi_device_id), why, size);
    if (status != FX_OK)
        return status;
    if (d->connection && d->device != m->queue->data) {
        snprintf(why, size,
                 "this array is on another GPU than the first one: a process can use one GPU");
        return FX_STATUS_ARGUMENT;
    }
    return fxi_dist_wait_for_own_work(m->queue, why, size);
}

fxi_transport_call fxi_dist_call_of(const fx_dist *d, const fxi_dist_move *m)
{
    return (fxi_transport_call){.kind = m->what->kind,
                                .fold = m->what->fold,
                                .root = m->what->root,
                                .dtype = m->what->dtype,
                                .count = m->n,
                                .number = d->calls,
                                .limit = d->limit,
                                .in = m->in,
                                .out = m->out};
}

static fx_status move(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    fx_status status = d->connection ? FX_OK : connect(d, m, why, size);
    if (status != FX_OK)
        return status;
    const fxi_transport_call c = fxi_dist_call_of(d, m);
    status = d->connected->run(d->connection, &c, m->queue->stream, why, size);
    if (status == FX_OK)
        status = wait_for_all(d, m->queue, why, size);
    if (status != FX_OK)
        abandon(d);
    d->broken = d->broken || status != FX_OK; /* other members may still wait in this operation */
    return status;
}

bool fxi_dist_begins_on(const fx_dist *d, const fx_device_queue *queue, const fx_step *step)
{
    return library_for(d, queue->backend) || fxi_dist_aware_proven(d, queue, step);
}

fx_status fxi_dist_run_on_now(const fx_communicator *self, const fx_device_queue *queue,
                              const fx_step *step, const void *in, void *out, char *why,
                              size_t size)
{
    const fxi_dist_move how = {.in = in, .out = out, .queue = queue, .ready = ready, .move = move};
    return library_for(self->user, queue->backend)
               ? fxi_dist_step(self, step, how, why, size)
               : fxi_dist_run_aware(self, queue, step, in, out, why, size);
}

fx_status fxi_dist_run_on(const fx_communicator *self, const fx_device_queue *queue,
                          const fx_step *step, const void *in, void *out, char *why, size_t size)
{
    const fx_status failed = fxi_dist_queue_empty((fx_dist *)(uintptr_t)self->user, why, size);
    return failed == FX_OK ? fxi_dist_run_on_now(self, queue, step, in, out, why, size) : failed;
}
