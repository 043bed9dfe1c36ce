/* parts.c: offers a plan to the backend, which may then run it with one call instead of one for
 * each step. Steps that the library runs itself, such as custom operations on a device with its own
 * memory, divide the plan: the backend could not call the library between its own steps.
 */
#include "build.h"

/* A part of one step would be no faster than the step itself. */
enum { LEAST_STEPS = 2 };

static fx_plan_memory memory_of(const fxi_value *v)
{
    return v->kind == FXI_VALUE_LEAF      ? FX_PLAN_MEMORY_LEAF
           : v->kind == FXI_VALUE_OUTPUT  ? FX_PLAN_MEMORY_RESULT
           : v->kind == FXI_VALUE_DONATED ? FX_PLAN_MEMORY_REPLACES
                                          : FX_PLAN_MEMORY_ARENA;
}

/* Fills in the values that the backend sees. False if the allocation fails. */
static bool show_values(fxi_plan *p)
{
    p->shown = fxi_calloc((size_t)p->nvalues + 1, sizeof *p->shown);
    for (int32_t k = 0; p->shown && k < p->nvalues; k++) {
        const fxi_value *v = &p->values[k];
        p->shown[k] =
            (fx_plan_value){.memory = (uint8_t)memory_of(v), .bytes = v->strided ? 0 : v->bytes};
    }
    return p->shown;
}

/* The end of the part that begins at step i: the first step that the library runs itself, or the
 * end of the plan. */
static int32_t end_of_part(const fxi_plan *p, int32_t i)
{
    while (i < p->nsteps && !fxi_runs_on_host(p->device, &p->steps[i]))
        i++;
    return i;
}

static fx_status offer(const fxi_planner *how, fxi_plan *p, int32_t first, int32_t end)
{
    fxi_part *part = &p->parts[p->nparts];
    *part = (fxi_part){.whole = {.steps = p->steps + first,
                                 .nsteps = end - first,
                                 .nvalues = p->nvalues,
                                 .nstreams = p->nstreams,
                                 .values = p->shown},
                       .first = first};
    const fx_status status = how->plan_prepare(p->device, &part->whole);
    /* Only a part that the backend has taken needs plan_release: a backend keeps nothing of a plan
     * that it refuses. */
    p->nparts += status == FX_OK;
    return status == FX_STATUS_UNSUPPORTED ? FX_OK : status;
}

fx_status fxi_offer_parts(const fxi_planner *how, fxi_plan *p)
{
    int32_t most = 0;
    /* The CPU has no plan_prepare, and its plans need no walk over the steps. */
    if (!how->plan_prepare)
        return FX_OK;
    for (int32_t i = 0, end; i < p->nsteps; i = end + 1) {
        end = end_of_part(p, i);
        most += end > i;
    }
    if (most == 0)
        return FX_OK;
    p->parts = fxi_calloc((size_t)most, sizeof *p->parts);
    if (!p->parts || !show_values(p))
        return fx_fail(FX_STATUS_MEMORY, "plan", "no memory for the parts of a plan");
    p->plan_release = how->plan_release;
    fx_status status = FX_OK;
    for (int32_t i = 0, end; i < p->nsteps && status == FX_OK; i = end + 1) {
        end = end_of_part(p, i);
        /* A plan with only one step is offered too, if the library does not run that step itself.
         */
        if (end - i >= LEAST_STEPS || end - i == p->nsteps)
            status = offer(how, p, i, end);
    }
    return status;
}
