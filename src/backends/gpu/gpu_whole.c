/* gpu_whole.c: records plans with the driver, and replays a recording with one call (CUDA and HIP
 * call a recording a graph): fx_backend.plan_prepare, plan_run and plan_release.
 *
 * A recording contains the addresses of one run, and is replayed for runs with the same addresses.
 * The first run of a plan is launched step by step: kernels are loaded then, and libraries choose
 * theirs. From the second run on, a plan gets a recording for each new set of addresses, up to
 * four. Then the arrays whose addresses change are copied to memory of the plan (gpu_stage.c), or,
 * if copying costs more than it saves, the run is launched step by step. If the driver cannot
 * record a plan, all later runs of the plan are launched step by step.
 */
#include "gpu_whole.h"
#include "gpu_gate.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* A recording that this many runs did not use may be replaced. */
    IDLE_RUNS = 32,
    /* A part with fewer launches gets no graph. */
    LEAST_LAUNCHES = 2
};

/* ---- prepare and release --------------------------------------------------------------------- */

static bool graphs_are_off(void)
{
    const char *text = getenv("FX_GPU_GRAPHS");
    return text && strcmp(text, "0") == 0;
}

/* Divides the plan where a step cannot be recorded. Without `parts` it only counts them. */
static int32_t divide(const fx_plan *plan, fxi_gpu_part *parts)
{
    int32_t n = 0;
    fxi_gpu_part part = {0};
    for (int32_t i = 0; i < plan->nsteps; i++) {
        const fx_step *s = &plan->steps[i];
        const bool captures = fxi_gpu_captures(s);
        int32_t library;
        /* A recording is replayed as a whole, so a part has only steps that can be recorded, or
         * none. */
        if (i > part.first && captures != part.recorded) {
            if (parts)
                parts[n] = part;
            n++;
            part = (fxi_gpu_part){.first = i};
        }
        part.recorded = captures;
        part.end = i + 1;
        part.launches += fxi_gpu_count_launches(s, &library);
        part.library += library;
        part.checks |= fxi_gpu_checks(s);
        part.mixed |= s->op != plan->steps[part.first].op;
    }
    if (parts)
        parts[n] = part;
    return n + 1;
}

static bool worth_recording(const fx_device *device, const fx_plan *plan)
{
    bool any = false;
    for (int32_t i = 0; i < plan->nsteps; i++)
        any |= fxi_gpu_captures(&plan->steps[i]);
    const fxi_gpu_device *d = fxi_gpu_device_of(device);
    return any && d->driver->record && !d->waits_for_steps && !graphs_are_off();
}

static void note_uses(const fx_plan *plan, fxi_gpu_use *uses)
{
    for (int32_t i = 0; i < plan->nsteps; i++) {
        const fx_step *s = &plan->steps[i];
        for (int32_t k = 0; k < s->nin; k++)
            uses[s->in_value[k]].read = true;
        for (int32_t k = 0; k < fx_step_outputs(s); k++)
            uses[fx_step_output(s, k)].written = true;
        if (s->work_bytes > 0)
            uses[s->work_value].written = true;
    }
}

/* One allocation for all lists, so a run allocates nothing. Pointers first, for their alignment. */
static fxi_gpu_whole *new_whole(const fx_host *host, const fx_plan *plan)
{
    size_t nin = 0, nout = 0;
    for (int32_t i = 0; i < plan->nsteps; i++) {
        const size_t inputs = (size_t)plan->steps[i].nin,
                     outputs = (size_t)fx_step_outputs(&plan->steps[i]);
        nin = inputs > nin ? inputs : nin;
        nout = outputs > nout ? outputs : nout;
    }
    const int32_t nparts = divide(plan, NULL);
    const size_t values = (size_t)plan->nvalues, parts = (size_t)nparts;
    const size_t pointers = FXI_GPU_RECORDINGS * (values + parts) + nin + nout;
    const size_t bytes = sizeof(fxi_gpu_whole) + pointers * sizeof(void *) +
                         parts * sizeof(fxi_gpu_part) + values * sizeof(fxi_gpu_use);
    fxi_gpu_whole *w = host->alloc(bytes);
    if (!w)
        return NULL;
    memset(w, 0, bytes);
    void **at = (void **)(w + 1);
    for (int k = 0; k < FXI_GPU_RECORDINGS; k++) {
        w->recordings[k] = (fxi_gpu_recording){.values = at, .graphs = at + values};
        at += values + parts;
    }
    w->in = at;
    w->out = at + nin;
    w->parts = (fxi_gpu_part *)(void *)(at + nin + nout);
    w->nparts = divide(plan, w->parts);
    w->uses = (fxi_gpu_use *)(w->parts + nparts);
    note_uses(plan, w->uses);
    w->arena = -1;
    for (int32_t v = plan->nvalues - 1; v >= 0; v--)
        w->arena = plan->values[v].memory == FX_PLAN_MEMORY_ARENA ? v : w->arena;
    return w;
}

/* Parts that are too short are launched step by step. */
static void count_launches(fxi_gpu_whole *w)
{
    for (int32_t k = 0; k < w->nparts; k++) {
        fxi_gpu_part *p = &w->parts[k];
        p->recorded &= p->launches >= LEAST_LAUNCHES;
        w->launches += p->recorded ? p->launches : 0;
    }
}

/* Nothing is recorded here: the addresses are known only when the plan runs. */
fx_status fxi_gpu_backend_plan_prepare(fx_device *device, fx_plan *plan)
{
    const fx_host *host = fxi_gpu_host_of(fxi_gpu_device_of(device));
    if (!worth_recording(device, plan))
        return FX_STATUS_UNSUPPORTED;
    fxi_gpu_whole *w = new_whole(host, plan);
    if (!w)
        return host->fail(FX_STATUS_MEMORY, "plan", "out of host memory");
    count_launches(w);
    if (w->launches == 0) {
        host->free(w);
        return FX_STATUS_UNSUPPORTED;
    }
    plan->ready = w;
    return FX_OK;
}

/* If the process is ending, recordings and device memory are freed with it. */
void fxi_gpu_backend_plan_release(fx_device *device, fx_plan *plan)
{
    fxi_gpu_whole *w = plan->ready;
    const fx_host *host = fxi_gpu_host_of(fxi_gpu_device_of(device));
    const bool may = !fxi_gpu_enter();
    for (int32_t k = 0; k < w->nrecordings && may; k++)
        fxi_gpu_drop(device, w, &w->recordings[k]);
    fxi_gpu_stage_free(may ? device : NULL, w, &w->stage, host);
    if (may)
        fxi_gpu_leave();
    host->free(w);
    plan->ready = NULL;
}

/* ---- recordings ------------------------------------------------------------------------------ */

/* Does the recording have the addresses of this run, for each value that the steps use and for the
 * random streams? */
static bool same_addresses(const fx_plan *plan, const fxi_gpu_recording *r, void *const *values,
                           const fx_run *run)
{
    const fxi_gpu_whole *w = plan->ready;
    bool same = r->streams == run->streams;
    for (int32_t v = 0; v < plan->nvalues && same; v++)
        same = r->values[v] == values[v] || !fxi_gpu_is_used(&w->uses[v]);
    return same;
}

static fxi_gpu_recording *find(const fx_plan *plan, void *const *values, const fx_run *run)
{
    fxi_gpu_whole *w = plan->ready;
    for (int32_t k = 0; k < w->nrecordings; k++)
        if (same_addresses(plan, &w->recordings[k], values, run))
            return &w->recordings[k];
    return NULL;
}

/* Frees recording k; the last one gets its number. */
static void forget(fx_device *device, fxi_gpu_whole *w, int32_t k, fx_run *run)
{
    fxi_gpu_recording *r = &w->recordings[k], *last = &w->recordings[--w->nrecordings];
    w->useless += !r->replayed;
    w->refused |= w->useless >= FXI_GPU_USELESS;
    fxi_gpu_drop(device, w, r);
    const fxi_gpu_recording empty = *r;
    *r = *last;
    *last = empty;
    run->invalidated++;
    fxi_gpu_count(&fxi_gpu_counts.invalidated);
}

/* Memory was returned to the driver since the previous run, perhaps memory that a recording uses.
 * The addresses of this run exist, so a recording with the same ones remains valid. */
static void forget_freed(fx_device *device, const fx_plan *plan, void *const *values, fx_run *run)
{
    fxi_gpu_whole *w = plan->ready;
    const uint64_t freed = __atomic_load_n(&fxi_gpu_device_of(device)->freed, __ATOMIC_RELAXED);
    if (w->freed == freed)
        return;
    w->freed = freed;
    for (int32_t k = w->nrecordings - 1; k >= 0; k--)
        if (!same_addresses(plan, &w->recordings[k], values, run))
            forget(device, w, k, run);
}

/* Another arena: the thread's arena has grown, or another thread runs the plan. */
static bool other_arena(const fxi_gpu_whole *w, const fxi_gpu_recording *r, void *const *values)
{
    return w->arena >= 0 && r->values[w->arena] != values[w->arena];
}

/* Returns the number of the recording that may be replaced: among those that have another arena or
 * that IDLE_RUNS runs did not use, the one that was used least recently; −1: none. */
static int32_t replaceable(const fxi_gpu_whole *w, void *const *values)
{
    int32_t oldest = -1;
    for (int32_t k = 0; k < w->nrecordings; k++) {
        const fxi_gpu_recording *r = &w->recordings[k];
        if ((other_arena(w, r, values) || w->runs - r->used > IDLE_RUNS) &&
            (oldest < 0 || r->used < w->recordings[oldest].used))
            oldest = k;
    }
    return oldest;
}

/* The first run may have chosen ways with other launches (fxi_gpu_compare). */
static void recount(fxi_gpu_whole *w, const fx_plan *plan)
{
    for (int32_t k = 0; k < w->nparts; k++) {
        fxi_gpu_part *part = &w->parts[k];
        part->launches = part->library = 0;
        for (int32_t i = part->first; i < part->end; i++) {
            int32_t library;
            part->launches += fxi_gpu_count_launches(&plan->steps[i], &library);
            part->library += library;
        }
    }
}

/* Records the plan with the addresses of this run. NULL: none of its four recordings may be
 * replaced, recording has been given up, or the driver cannot record it. */
static fxi_gpu_recording *record(fx_device *device, const fx_plan *plan, void *const *values,
                                 fx_run *run)
{
    fxi_gpu_whole *w = plan->ready;
    if (w->refused)
        return NULL;
    if (w->nrecordings == FXI_GPU_RECORDINGS) {
        const int32_t old = replaceable(w, values);
        if (old < 0)
            return NULL;
        forget(device, w, old, run); /* may give up recording */
        if (w->refused)
            return NULL;
    }
    fxi_gpu_recording *r = &w->recordings[w->nrecordings];
    r->streams = run->streams;
    r->replayed = false;
    recount(w, plan);
    memcpy(r->values, values, (size_t)plan->nvalues * sizeof *values);
    w->refused = !fxi_gpu_record(device, plan, values, run, r);
    w->nrecordings += !w->refused;
    return w->refused ? NULL : r;
}

/* ---- run ------------------------------------------------------------------------------------- */

/* The driver may need device memory for a graph's first replay. If there is none, the part is
 * launched, and nothing more is recorded. */
static fx_status replay_part(fx_device *device, const fx_plan *plan, const fxi_gpu_part *part,
                             void *graph, void *const *values, fx_run *run, int32_t *out_step)
{
    fxi_gpu_device *d = fxi_gpu_device_of(device);
    fxi_gpu_queued(d, fx_op_name(plan->steps[part->first].op),
                   fx_op_name(plan->steps[part->end - 1].op), part->mixed, part->checks);
    const fx_status status = d->driver->replay(device, graph);
    if (status != FX_STATUS_MEMORY) {
        /* If the replay failed, nothing of this part was queued. */
        *out_step = part->first - 1;
        return status;
    }
    const fx_error e = fxi_gpu_host_of(d)->error_take();
    /* An earlier error that the program has not read yet stays. */
    if (e.status != FX_STATUS_MEMORY)
        fxi_gpu_host_of(d)->error_put(&e);
    ((fxi_gpu_whole *)plan->ready)->refused = true;
    return fxi_gpu_launch_part(device, plan, part, values, run, out_step);
}

/* Launches that were counted when they were recorded are not counted again by the first replay. */
static void count_replay(const fxi_gpu_part *part, fx_run *run, bool fresh)
{
    if (fresh)
        return;
    run->replayed++;
    fxi_gpu_count(&fxi_gpu_counts.replayed);
    __atomic_fetch_add(&fxi_gpu_counts.launches, (uint64_t)part->launches, __ATOMIC_RELAXED);
    __atomic_fetch_add(&fxi_gpu_counts.calls, (uint64_t)part->library, __ATOMIC_RELAXED);
}

/* Replays a recording, `fresh` if this run has made it. Parts without a graph are launched. */
static fx_status play(fx_device *device, const fx_plan *plan, fxi_gpu_recording *r,
                      void *const *values, fx_run *run, bool fresh, int32_t *out_step)
{
    fxi_gpu_whole *w = plan->ready;
    fx_status status = FX_OK;
    r->used = w->runs;
    r->replayed |= !fresh;
    for (int32_t k = 0; k < w->nparts && !status; k++) {
        const fxi_gpu_part *part = &w->parts[k];
        if (!r->graphs[k])
            status = fxi_gpu_launch_part(device, plan, part, values, run, out_step);
        else
            status = replay_part(device, plan, part, r->graphs[k], values, run, out_step);
        if (!status && r->graphs[k])
            count_replay(part, run, fresh);
    }
    return status;
}

static fx_status launch_all(fx_device *device, const fx_plan *plan, void *const *values,
                            fx_run *run, int32_t *out_step)
{
    const fxi_gpu_part all = {.end = plan->nsteps};
    return fxi_gpu_launch_part(device, plan, &all, values, run, out_step);
}

static fx_status play_stage(fx_device *device, const fx_plan *plan, void *const *values,
                            fx_run *run, int32_t *out_step)
{
    fxi_gpu_whole *w = plan->ready;
    fxi_gpu_stage *s = &w->stage;
    const bool fresh = run->captured > 0;
    fx_status status = fxi_gpu_stage_copy(device, s, values, false);
    /* If this copy fails, no step has begun: a replaced value changes only when it is copied
     * back. */
    if (status)
        *out_step = -1;
    else
        status = play(device, plan, &s->made, s->values, run, fresh, out_step);
    if (status)
        return status;
    /* If a copy back fails, any value that the steps replace may have been overwritten. */
    *out_step = plan->nsteps - 1;
    return fxi_gpu_stage_copy(device, s, values, true);
}

/* The caller holds the device's lock, which orders the runs of several threads. */
static fx_status run_plan(fx_device *device, const fx_plan *plan, void *const *values, fx_run *run,
                          int32_t *out_step)
{
    fxi_gpu_whole *w = plan->ready;
    w->runs++;
    forget_freed(device, plan, values, run);
    fxi_gpu_recording *r = find(plan, values, run);
    if (r)
        return play(device, plan, r, values, run, false, out_step);
    if (w->runs == 1) {
        const fx_status status = launch_all(device, plan, values, run, out_step);
        /* A failed run does not count: a step that did not run has not chosen its way yet, and a
         * step cannot choose while it is recorded.
         */
        w->runs = status ? 0 : 1;
        return status;
    }
    r = record(device, plan, values, run);
    if (r) {
        run->captured++;
        fxi_gpu_count(&fxi_gpu_counts.captured);
        return play(device, plan, r, values, run, true, out_step);
    }
    return fxi_gpu_stage_for(device, plan, values, run)
               ? play_stage(device, plan, values, run, out_step)
               : launch_all(device, plan, values, run, out_step);
}

fx_status fxi_gpu_backend_plan_run(fx_device *device, const fx_plan *plan, void *const *values,
                                   fx_run *run, int32_t *out_step)
{
    fxi_gpu_device *d = fxi_gpu_device_of(device);
    if (!fxi_gpu_enter_for(device, "plan")) {
        /* Nothing was launched: all values are unchanged. */
        *out_step = -1;
        return FX_STATUS_DEVICE;
    }
    fxi_mutex_lock(&d->lock);
    const fx_status status = run_plan(device, plan, values, run, out_step);
    fxi_mutex_unlock(&d->lock);
    fxi_gpu_progress_say(&d->progress, fxi_gpu_host_of(d), d->label);
    fxi_gpu_leave();
    return status;
}
