/* begun.c: collective steps that run beside the other steps of a run (plan/overlap.c).
 *
 * The planner marks each such step with `until`, the first step that reads its result, or the
 * number of steps if none reads it. The run begins the step at its own position and finishes it
 * before step `until`, so the exchange between processes overlaps with the steps in between,
 * usually the rest of the backward pass.
 *
 * Steps are finished in the order in which they were begun, because a communicator runs its
 * operations one after the other: waiting for a later one first would gain nothing. A collective
 * step that is run at once does not wait here for the begun ones: its communicator runs all
 * operations in the order of the calls.
 *
 * If the communicator needs host memory and the device has its own, the operand is copied to the
 * host when the step is begun, and the result back when it is finished. The first copy waits for
 * the steps that compute the operand, so the device has no work until the run queues the next
 * steps.
 */
#include "memory.h"
#include "run.h"
#include "step.h"

static const fx_communicator *communicator_of(const fx_step *s)
{
    return fx_step_collective(s)->what.communicator;
}

/* Where the copy of the result begins, in bytes after that of the operand. */
static size_t result_at(const fx_step *s)
{
    enum { LINE = 64 };
    return (fxi_tensor_bytes(&s->in[0]) + LINE - 1) / LINE * LINE;
}

static void *result_in(const fx_step *s, void *copies)
{
    return (char *)copies + result_at(s);
}

/* Writes the result to the device and frees the copies. NULL: there are none. */
static fx_status take_copies(const fxi_binding *b, const fx_step *s, void *copies, fx_status status)
{
    fx_device *device = b->plan->device;
    if (copies && status == FX_OK)
        status = device->backend->write(device, b->base[s->out_value], result_in(s, copies),
                                        fxi_tensor_bytes(&s->out));
    fxi_free(copies);
    return status;
}

/* Finishes the step that began first. record: false after a failure, which stays the recorded one.
 * The list is short (FXI_MOST_BEGUN), so the other entries are moved. */
static fx_status finish_first(const fxi_binding *b, fxi_begun *begun, bool record)
{
    const fx_step *s = &b->plan->steps[begun->at[0].step];
    const fx_communicator *c = communicator_of(s);
    void *copies = begun->at[0].copies;
    char why[500] = "";
    fx_status status = c->finish(c, begun->at[0].ticket, why, sizeof why);
    begun->n--;
    begun->soonest = INT32_MAX;
    for (int32_t k = 0; k < begun->n; k++) {
        begun->at[k] = begun->at[k + 1];
        const int32_t until = fx_step_collective(&b->plan->steps[begun->at[k].step])->until;
        begun->soonest = until < begun->soonest ? until : begun->soonest;
    }
    if (!record) {
        fxi_free(copies);
        return status;
    }
    status = status == FX_OK ? FX_OK : fxi_collective_ended(s, status, why);
    return take_copies(b, s, copies, status);
}

fx_status fxi_finish_now(const fxi_binding *b, int32_t i, fxi_begun *begun)
{
    fx_status status = FX_OK;
    while (status == FX_OK && begun->n > 0 && begun->soonest <= i)
        status = finish_first(b, begun, true);
    return status;
}

/* After a failure. The results are lost anyway, but other processes and the thread of the
 * communicator still use the buffers, which must not be freed before they are done. */
void fxi_finish_all(const fxi_binding *b, fxi_begun *begun)
{
    while (begun->n > 0)
        finish_first(b, begun, false);
}

/* Begins a step on copies in host memory, *out. Without memory for them it is not begun. */
static fx_status begin_on_copies(fx_device *device, const fx_step *s, const void *in,
                                 fxi_begun_step *out)
{
    const fx_communicator *c = communicator_of(s);
    const size_t bytes = fxi_tensor_bytes(&s->in[0]);
    void *copies = fxi_malloc(result_at(s) + fxi_tensor_bytes(&s->out));
    if (!copies)
        return FX_OK;
    const fx_status status = device->backend->read(device, copies, in, bytes);
    if (status == FX_OK)
        out->ticket = c->begin(c, s, copies, result_in(s, copies));
    if (out->ticket)
        out->copies = copies;
    else
        fxi_free(copies);
    return status;
}

/* The step is run at once, like any other step, if the planner found no steps to run beside it
 * (`until` is 0), or the communicator cannot begin it. */
fx_status fxi_begin_step(const fxi_binding *b, int32_t i, fxi_begun *begun, bool *out_begins)
{
    const fx_step *s = &b->plan->steps[i];
    const int32_t until = fx_step_collective(s)->until;
    const fx_communicator *c = communicator_of(s);
    fx_device *device = b->plan->device;
    const void *in = b->at[b->plan->operands[i].in];
    void *out = b->base[s->out_value];
    fxi_begun_step one = {.step = i};
    *out_begins = false;
    if (until == 0)
        return FX_OK;
    fx_status status = begun->n == FXI_MOST_BEGUN ? finish_first(b, begun, true) : FX_OK;
    if (status != FX_OK)
        return status;
    if (fx_step_collective(s)->by_backend)
        one.ticket = device->backend->begin(device, s, in, out);
    else if (fxi_runs_on_host(device, s))
        status = begin_on_copies(device, s, in, &one);
    else
        one.ticket = c->begin(c, s, in, out);
    if (!one.ticket)
        return status;
    begun->soonest = begun->n == 0 || until < begun->soonest ? until : begun->soonest;
    begun->at[begun->n++] = one;
    *out_begins = true;
    return FX_OK;
}
