/* parts.c: offers a plan to the backend, which may then run it with one call instead of one for
 * each step. Steps that the library runs itself, such as custom operations on a device with its own
 * memory, divide the plan: the backend could not call the library between its own steps. For the
 * same reason a collective step that is begun divides it, and so does the step before which it is
 * finished (overlap.c).
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

/* Does the library run the step itself, or begin it? */
static bool is_outside(const fxi_plan *p, int32_t i)
{
    const fx_step *s = &p->steps[i];
    return fxi_runs_on_host(p->device, s) ||
           (s->cls == FX_CLASS_COLLECTIVE && s->as.collective.until != 0);
}

/* Marks the steps before which a collective step is finished, in a list of a byte for each step.
 * NULL: the allocation failed. */
static bool *find_finishes(const fxi_plan *p)
{
    bool *finishes = fxi_calloc((size_t)p->nsteps + 1, sizeof *finishes);
    for (int32_t i = 0; finishes && i < p->nsteps; i++)
        if (p->steps[i].cls == FX_CLASS_COLLECTIVE)
            finishes[p->steps[i].as.collective.until] = true;
    return finishes;
}

/* The end of the part that begins at step i: the next step that is in no part, or before which a
 * collective step is finished, or the end of the plan. */
static int32_t end_of_part(const fxi_plan *p, const bool *finishes, int32_t i)
{
    const int32_t first = i;
    while (i < p->nsteps && !is_outside(p, i) && (i == first || !finishes[i]))
        i++;
    return i;
}

/* The step after the part that ends at `end`. */
static int32_t next_part(const fxi_plan *p, int32_t end)
{
    return end < p->nsteps && is_outside(p, end) ? end + 1 : end;
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

/* The parts, of one step or more, that `finishes` and the steps outside of parts leave. */
static int32_t count_parts(const fxi_plan *p, const bool *finishes)
{
    int32_t n = 0;
    for (int32_t i = 0, end; i < p->nsteps; i = next_part(p, end)) {
        end = end_of_part(p, finishes, i);
        n += end > i;
    }
    return n;
}

static fx_status offer_all(const fxi_planner *how, fxi_plan *p, const bool *finishes)
{
    fx_status status = FX_OK;
    for (int32_t i = 0, end; i < p->nsteps && status == FX_OK; i = next_part(p, end)) {
        end = end_of_part(p, finishes, i);
        /* A plan with only one step is offered too, if the library does not run that step itself.
         */
        if (end - i >= LEAST_STEPS || end - i == p->nsteps)
            status = offer(how, p, i, end);
    }
    return status;
}

fx_status fxi_offer_parts(const fxi_planner *how, fxi_plan *p)
{
    /* The CPU has no plan_prepare, and its plans need no walk over the steps. */
    if (!how->plan_prepare)
        return FX_OK;
    bool *finishes = find_finishes(p);
    const int32_t n = finishes ? count_parts(p, finishes) : 1;
    fx_status status = FX_OK;
    if (n > 0) {
        p->parts = fxi_calloc((size_t)n, sizeof *p->parts);
        p->plan_release = how->plan_release;
        status = finishes && p->parts && show_values(p)
                     ? offer_all(how, p, finishes)
                     : fx_fail(FX_STATUS_MEMORY, "plan", "no memory for the parts of a plan");
    }
    fxi_free(finishes);
    return status;
}
