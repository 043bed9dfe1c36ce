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
 */
#include "run.h"
#include "step.h"

static const fx_communicator *communicator_of(const fx_step *s)
{
    return fx_step_collective(s)->what.communicator;
}

/* Finishes the step that began first. The list is short (FXI_MOST_BEGUN), so the other entries are
 * moved. */
static fx_status finish_one(const fxi_binding *b, fxi_begun *begun, char *why, size_t size)
{
    const fx_step *s = &b->plan->steps[begun->step[0]];
    const fx_communicator *c = communicator_of(s);
    const fx_status status = c->finish(c, begun->ticket[0], why, size);
    begun->n--;
    begun->soonest = INT32_MAX;
    for (int32_t k = 0; k < begun->n; k++) {
        begun->step[k] = begun->step[k + 1];
        begun->ticket[k] = begun->ticket[k + 1];
        const int32_t until = fx_step_collective(&b->plan->steps[begun->step[k]])->until;
        begun->soonest = until < begun->soonest ? until : begun->soonest;
    }
    return status;
}

/* The same, and records a failure. */
static fx_status finish_first(const fxi_binding *b, fxi_begun *begun)
{
    const fx_step *s = &b->plan->steps[begun->step[0]];
    char why[500] = "";
    const fx_status status = finish_one(b, begun, why, sizeof why);
    return status == FX_OK ? FX_OK : fxi_collective_ended(s, status, why);
}

fx_status fxi_finish_now(const fxi_binding *b, int32_t i, fxi_begun *begun)
{
    fx_status status = FX_OK;
    while (status == FX_OK && begun->n > 0 && begun->soonest <= i)
        status = finish_first(b, begun);
    return status;
}

/* After a failure. The results are lost anyway, but other processes and the thread of the
 * communicator still use the buffers, which must not be freed before they are done. */
void fxi_finish_all(const fxi_binding *b, fxi_begun *begun)
{
    char why[500];
    while (begun->n > 0)
        finish_one(b, begun, why, sizeof why);
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
    *out_begins = false;
    if (until == 0)
        return FX_OK;
    const fx_status status = begun->n == FXI_MOST_BEGUN ? finish_first(b, begun) : FX_OK;
    if (status != FX_OK)
        return status;
    void *ticket = fx_step_collective(s)->by_backend ? device->backend->begin(device, s, in, out)
                                                     : c->begin(c, s, in, out);
    if (!ticket)
        return FX_OK;
    begun->soonest = begun->n == 0 || until < begun->soonest ? until : begun->soonest;
    begun->step[begun->n] = i;
    begun->ticket[begun->n++] = ticket;
    *out_begins = true;
    return FX_OK;
}
