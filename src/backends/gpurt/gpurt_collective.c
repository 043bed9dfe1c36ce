/* gpurt_collective.c: collective steps whose communicator works on device memory: with NCCL, RCCL
 * or an MPI that supports it.
 *
 * The backend calls none of these libraries: it passes a stream to the communicator. The
 * communicator runs the operation after the work that is queued there, and waits until the
 * operation has ended: only a waiting host can give up on members that are gone.
 *
 * For a step that runs at once this is the stream `work`. A step that is begun has the stream
 * `exchange`, and a thread of the communicator waits instead. That thread makes `exchange` wait for
 * the operand when it begins the operation, not when the plan begins the step: otherwise an
 * operation would also wait for the operands of later ones.
 */
#include "gpurt.h"

#include "gpu_build.h"
#include "gpu_gate.h"
#include "gpurt_library.h"

#include <stdio.h>

bool fxi_rt_takes(fx_device *device, const fx_step *step)
{
    const fx_communicator *c = fx_step_collective(step)->what.communicator;
    (void)device;
    return c->takes && c->run_on && fx_tensor_length(&step->out) > 0 &&
           c->takes(c, fxi_rt_backend, step);
}

/* Returns 0 if error is 0; otherwise writes the reason and returns −1. */
static int checked(fxi_rt_device *d, const char *call, int error, char *why, size_t size)
{
    if (error != 0)
        (void)fxi_gpu_why(&d->gpu, call, error, why, size);
    return error ? -1 : 0;
}

static int select_device(const fx_device_queue *queue, char *why, size_t size)
{
    fxi_rt_device *d = fxi_rt_of(queue->data);
    return checked(d, "selecting the device", fxi_rt_select(d), why, size);
}

static int pending(const fx_device_queue *queue, char *why, size_t size)
{
    if (select_device(queue, why, size))
        return -1;
    const int error = fxi_rt.StreamQuery(queue->stream);
    return error == FXI_RT_NOT_READY
               ? 1
               : checked(fxi_rt_of(queue->data), fxi_rt_name.StreamQuery, error, why, size);
}

static fx_status read_memory(const fx_device_queue *queue, void *to, const void *from, size_t bytes)
{
    return fxi_rt_read((fx_device *)(uintptr_t)queue->data, to, from, bytes);
}

static fx_status write_memory(const fx_device_queue *queue, void *to, const void *from,
                              size_t bytes)
{
    return fxi_rt_write((fx_device *)(uintptr_t)queue->data, to, from, bytes);
}

static void *alloc(const fx_device_queue *queue, size_t bytes)
{
    return fxi_rt_alloc((fx_device *)(uintptr_t)queue->data, bytes);
}

static fx_status copy_memory(const fx_device_queue *queue, void *to, const void *from, size_t bytes,
                             char *why, size_t size)
{
    fxi_rt_device *d = fxi_rt_of(queue->data);
    if (select_device(queue, why, size))
        return FX_STATUS_DEVICE;
    const int error = fxi_rt.CopyAsync(to, (void *)(uintptr_t)from, bytes, queue->stream);
    return error ? fxi_gpu_why(&d->gpu, fxi_rt_name.CopyAsync, error, why, size) : FX_OK;
}

/* ---- in the communicator's thread ------------------------------------------------------------ */

/* Makes the stream wait for the operand. */
static int wait_for_mark(const fx_device_queue *queue, char *why, size_t size)
{
    fxi_rt_device *d = fxi_rt_of(queue->data);
    if (fxi_gpu_lost(&d->gpu.health)) {
        fxi_gpu_say_lost(&d->gpu, why, size);
        return -1;
    }
    if (select_device(queue, why, size)) {
        fxi_rt.EventDestroy(queue->mark);
        return -1;
    }
    const int error = fxi_rt.StreamWait(queue->stream, queue->mark, 0);
    fxi_rt.EventDestroy(queue->mark);
    return checked(d, fxi_rt_name.StreamWait, error, why, size);
}

static int enter(const fx_device_queue *queue, char *why, size_t size)
{
    const fxi_gpu_device *d = &fxi_rt_of(queue->data)->gpu;
    const char *closed = fxi_gpu_enter();
    if (closed) {
        snprintf(why, size, "%s (%s) %s", d->label, d->name, closed);
        return -1;
    }
    const int entered = wait_for_mark(queue, why, size);
    if (entered != 0)
        fxi_gpu_leave();
    return entered;
}

static void leave(const fx_device_queue *queue)
{
    (void)queue;
    fxi_gpu_leave();
}

static void forget(const fx_device_queue *queue)
{
    if (fxi_gpu_enter())
        return;
    if (fxi_rt_select(fxi_rt_of(queue->data)) == 0)
        fxi_rt.EventDestroy(queue->mark);
    fxi_gpu_leave();
}

static fx_device_queue queue_of(const fx_device *device, fxi_rt_stream stream)
{
    return (fx_device_queue){.backend = fxi_rt_backend,
                             .stream = stream,
                             .data = device,
                             .pending = pending,
                             .select = select_device,
                             .read = read_memory,
                             .write = write_memory,
                             .alloc = alloc,
                             .copy = copy_memory,
                             .enter = enter,
                             .leave = leave,
                             .forget = forget};
}

static fx_status run(fx_device *device, void *state, void *const *buffers, const char *operation)
{
    fxi_rt_device *d = fxi_rt_of(device);
    const fx_step *step = state;
    const fx_communicator *c = fx_step_collective(step)->what.communicator;
    const fx_device_queue queue = queue_of(device, d->work);
    char why[500] = "", text[700];
    fx_status status = fxi_rt_library_enter(d, operation);
    if (status)
        return status;
    status = c->run_on(c, &queue, step, buffers[0], buffers[1], why, sizeof why);
    if (!status)
        return FX_OK;
    snprintf(text, sizeof text, "%s, rank %d of %d: %s", c->name, (int)c->rank, (int)c->size, why);
    return fxi_rt_host->fail(status, operation, text);
}

static void release(fx_device *device, void *state)
{
    (void)device;
    fxi_rt_host->free(state);
}

/* The call waits for the device, so no recording may contain it. */
static const fxi_gpu_routine routine = {.run = run, .release = release, .captures = false};

bool fxi_rt_collective(fxi_gpu_builder *b)
{
    fx_step *copy = fxi_rt_host->alloc(sizeof *copy);
    if (!copy) {
        fxi_gpu_no_memory(b);
        return true;
    }
    /* A copy, because the planner may move the step in memory. A run needs only these members. */
    *copy = (fx_step){.op = b->step->op, .cls = b->step->cls, .out = b->step->out};
    copy->as.collective = b->step->as.collective;
    fxi_gpu_call *c = fxi_gpu_add_routine(b, &routine, copy, 2);
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, 0);
    fxi_gpu_buffer(c, 1, FXI_GPU_OUT, 0);
    return true;
}

/* ---- beginning ------------------------------------------------------------------------------- */

/* Makes the stream `exchange`, and an event after the work that is queued now. NULL: one of them
 * failed. */
static fxi_rt_event mark_operand(fxi_rt_device *d)
{
    fxi_rt_event mark = NULL;
    if (fxi_rt_select(d) != 0 ||
        (!d->exchange && fxi_rt.StreamCreate(&d->exchange, FXI_RT_NON_BLOCKING) != 0) ||
        fxi_rt.EventCreate(&mark, FXI_RT_NO_TIMES) != 0)
        return NULL;
    if (fxi_rt.EventRecord(mark, d->work) == 0)
        return mark;
    fxi_rt.EventDestroy(mark);
    return NULL;
}

/* Errors are not recorded: cflux then runs the step at once, which finds them again. */
void *fxi_rt_collective_begin(fx_device *device, const fx_step *step, const void *in, void *out)
{
    fxi_rt_device *d = fxi_rt_of(device);
    const fx_communicator *c = fx_step_collective(step)->what.communicator;
    void *ticket = NULL;
    if (fxi_gpu_lost(&d->gpu.health) || fxi_gpu_enter())
        return NULL;
    fxi_mutex_lock(&d->gpu.lock);
    fxi_rt_event mark = mark_operand(d);
    fxi_mutex_unlock(&d->gpu.lock);
    if (mark) {
        fx_device_queue queue = queue_of(device, d->exchange);
        queue.mark = mark;
        ticket = c->begin_on(c, &queue, step, in, out);
        if (!ticket)
            fxi_rt.EventDestroy(mark);
    }
    fxi_gpu_leave();
    return ticket;
}
