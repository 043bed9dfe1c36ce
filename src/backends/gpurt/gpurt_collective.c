/* gpurt_collective.c: collective steps whose communicator works on device memory: with NCCL, RCCL
 * or an MPI that supports it.
 *
 * The backend calls none of these libraries: it passes its stream to the communicator. The
 * communicator runs the operation after the work that is queued there, and waits until the
 * operation has ended: only a waiting host can give up on members that are gone.
 */
#include "gpurt.h"

#include "gpu_build.h"
#include "gpurt_library.h"

#include <stdio.h>

bool fxi_rt_takes(fx_device *device, const fx_step *step)
{
    const fx_communicator *c = fx_step_collective(step)->what.communicator;
    (void)device;
    return c->takes && c->run_on && fx_tensor_length(&step->out) > 0 &&
           c->takes(c, fxi_rt_backend, step);
}

/* If the query fails, the next call that waits for the device reports the error with its name. */
static int pending(const fx_device_queue *queue)
{
    const fxi_rt_device *d = fxi_rt_of(queue->data);
    const int error = fxi_rt_select(d) ? -1 : fxi_rt.StreamQuery(d->work);
    return error == 0 ? 0 : error == FXI_RT_NOT_READY ? 1 : -1;
}

static int select_device(const fx_device_queue *queue)
{
    return fxi_rt_select(fxi_rt_of(queue->data)) ? -1 : 0;
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

static fx_status copy_memory(const fx_device_queue *queue, void *to, const void *from, size_t bytes)
{
    fx_device *device = (fx_device *)(uintptr_t)queue->data;
    return fxi_rt_copy(device, to, device, from, bytes);
}

static fx_status run(fx_device *device, void *state, void *const *buffers, const char *operation)
{
    fxi_rt_device *d = fxi_rt_of(device);
    const fx_step *step = state;
    const fx_communicator *c = fx_step_collective(step)->what.communicator;
    const fx_device_queue queue = {.backend = fxi_rt_backend,
                                   .stream = d->work,
                                   .data = device,
                                   .pending = pending,
                                   .select = select_device,
                                   .read = read_memory,
                                   .write = write_memory,
                                   .alloc = alloc,
                                   .copy = copy_memory};
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
