/* gpu_graph.c: records the steps of a plan as graphs of a driver. Steps that do not depend on each
 * other are recorded in different branches, which the device may run at the same time. A branch is
 * an ordered list of launches, and a launch can wait for a point of another branch.
 *
 * Two steps must keep their order if one writes bytes that the other reads or writes, by the
 * addresses of the run. So steps that use the same bytes of the arena for different values keep
 * their order too.
 */
#include "gpu_whole.h"

#include <string.h>

enum { NONE = -1 };
/* Every step is compared with those before it, so longer plans have one branch. */
enum { BRANCHED_MOST = 4096 };

/* ---- launching ------------------------------------------------------------------------------- */

/* Does the same as run_steps in src/exec/run.c, which runs plans step by step. */
static fx_status launch_step(fx_device *device, const fx_step *s, const fxi_gpu_whole *w,
                             void *const *values, fx_run *run)
{
    const fx_more_outputs *more = fx_step_more(s);
    for (int32_t k = 0; k < s->nin; k++)
        w->in[k] = (void *)(uintptr_t)fx_step_input_at(s, k, values);
    for (int32_t k = 0; k < fx_step_outputs(s); k++)
        w->out[k] = values[fx_step_output(s, k)];
    for (int32_t k = 0; s->cls != FX_CLASS_FOREACH && k < more->n; k++)
        run->more[k] = values[more->value[k]];
    run->outputs = w->out;
    run->work = s->work_bytes > 0 ? values[s->work_value] : NULL;
    return fxi_gpu_run(&fxi_gpu_device_of(device)->driver->runtime, device, s,
                       (const void *const *)w->in, w->out[0], run);
}

fx_status fxi_gpu_launch_part(fx_device *device, const fx_plan *plan, const fxi_gpu_part *part,
                              void *const *values, fx_run *run, int32_t *out_step)
{
    for (int32_t i = part->first; i < part->end; i++) {
        const fx_status status = launch_step(device, &plan->steps[i], plan->ready, values, run);
        if (status != FX_OK) {
            /* Steps after i have not been launched, so their values are intact. */
            *out_step = i;
            return status;
        }
    }
    return FX_OK;
}

/* ---- which steps need each other ------------------------------------------------------------- */

/* A step in the schedule. Steps are numbered from the part's first one. */
typedef struct entry {
    int32_t branch;
    int32_t point; /* the number of the point after it; NONE: no step waits for it */
    int32_t after[FXI_GPU_BRANCHES]; /* per branch: the step that it waits for, or NONE */
    int32_t seen[FXI_GPU_BRANCHES];  /* per branch: the latest step that is done when this one is */
} entry;

typedef struct schedule {
    const fx_plan *plan;
    const fxi_gpu_part *part;
    void *const *values;
    entry *entries;
    int32_t n;
    int32_t tail[FXI_GPU_BRANCHES]; /* the branch's last step */
    int32_t npoints;
    bool branches; /* the driver has branches */
} schedule;

typedef struct range {
    const char *from, *end;
} range;

static range range_of(const schedule *s, int32_t value)
{
    const char *at = s->values[value];
    /* A leaf of unknown size counts as one byte. That is enough: no step writes a part of its
     * array, and a value that replaces the leaf begins at the same address. */
    const int64_t bytes = s->plan->values[value].bytes;
    return (range){at, at + (bytes > 0 ? bytes : 1)};
}

static bool overlap(range a, range b)
{
    return a.from < b.end && b.from < a.end;
}

/* Does step a write what step b reads or writes? */
static bool writes_for(const schedule *s, const fx_step *a, const fx_step *b)
{
    const int32_t outputs = fx_step_outputs(a), others = fx_step_outputs(b);
    for (int32_t i = 0; i <= outputs; i++) {
        /* The work space counts as the last output. */
        if (i == outputs && a->work_bytes <= 0)
            break;
        const range r = range_of(s, i < outputs ? fx_step_output(a, i) : a->work_value);
        for (int32_t k = 0; k < b->nin; k++)
            if (overlap(r, range_of(s, b->in_value[k])))
                return true;
        for (int32_t k = 0; k < others; k++)
            if (overlap(r, range_of(s, fx_step_output(b, k))))
                return true;
        if (b->work_bytes > 0 && overlap(r, range_of(s, b->work_value)))
            return true;
    }
    return false;
}

static const fx_step *step_at(const schedule *s, int32_t i)
{
    return &s->plan->steps[s->part->first + i];
}

static bool need_order(const schedule *s, int32_t a, int32_t b)
{
    return writes_for(s, step_at(s, a), step_at(s, b)) ||
           writes_for(s, step_at(s, b), step_at(s, a));
}

static void reach(int32_t *all, const int32_t *more)
{
    for (int l = 0; l < FXI_GPU_BRANCHES; l++)
        all[l] = more[l] > all[l] ? more[l] : all[l];
}

/* Finds the steps that step i must wait for. need: per branch, the latest of them. past: per
 * branch, the latest step that has ended when all steps in `need` have. Steps up to `past` are not
 * compared. */
static void find_needs(const schedule *s, int32_t i, int32_t *need, int32_t *past)
{
    for (int l = 0; l < FXI_GPU_BRANCHES; l++)
        need[l] = past[l] = NONE;
    for (int32_t j = i - 1; j >= 0; j--) {
        const entry *e = &s->entries[j];
        if (past[e->branch] >= j || !need_order(s, j, i))
            continue;
        need[e->branch] = j;
        reach(past, e->seen);
    }
}

/* Prefers a branch whose last step is in `past`, because step i then waits only for steps that it
 * needs; of several, the branch with the latest step. If there is none, the branch of the latest
 * step that it needs. */
static int32_t choose_branch(const schedule *s, const fx_step *step, const int32_t *past)
{
    int32_t best = NONE, needed = 0;
    /* A handle of a library has one stream, so all its calls stay in branch 0. */
    if (!s->branches || fxi_gpu_calls_library(step))
        return 0;
    for (int32_t l = 0; l < FXI_GPU_BRANCHES; l++) {
        if (past[l] >= s->tail[l] && (best == NONE || s->tail[l] > s->tail[best]))
            best = l;
        needed = past[l] > past[needed] ? l : needed;
    }
    return best != NONE ? best : needed;
}

/* Has need[l] ended in any case, because the previous step of this branch or another step in `need`
 * has waited for it? */
static bool is_implied(const schedule *s, int32_t branch, const int32_t *need, int32_t l)
{
    bool known = s->tail[branch] != NONE && s->entries[s->tail[branch]].seen[l] >= need[l];
    for (int32_t k = 0; k < FXI_GPU_BRANCHES; k++)
        known |= k != l && need[k] != NONE && s->entries[need[k]].seen[l] >= need[l];
    return known;
}

/* Only a step for which another branch waits gets a point. When step i has ended, so have the steps
 * that it waits for and all that these have seen (`past`), and what the previous step of its branch
 * has seen. */
static void schedule_step(schedule *s, int32_t i)
{
    int32_t need[FXI_GPU_BRANCHES], past[FXI_GPU_BRANCHES];
    entry *e = &s->entries[i];
    find_needs(s, i, need, past);
    *e = (entry){.branch = choose_branch(s, step_at(s, i), past), .point = NONE};
    for (int32_t l = 0; l < FXI_GPU_BRANCHES; l++) {
        const bool waits = need[l] != NONE && l != e->branch && !is_implied(s, e->branch, need, l);
        e->after[l] = waits ? need[l] : NONE;
        if (waits && s->entries[need[l]].point == NONE)
            s->entries[need[l]].point = s->npoints++;
    }
    memcpy(e->seen, past, sizeof past);
    if (s->tail[e->branch] != NONE)
        reach(e->seen, s->entries[s->tail[e->branch]].seen);
    e->seen[e->branch] = i;
    s->tail[e->branch] = i;
}

/* False: no memory for it. */
static bool make_schedule(schedule *s, const fx_host *host)
{
    s->entries = host->alloc((size_t)s->n * sizeof *s->entries);
    if (!s->entries)
        return false;
    for (int l = 0; l < FXI_GPU_BRANCHES; l++)
        s->tail[l] = NONE;
    s->npoints = 1; /* 0: where the recording begins */
    for (int32_t i = 0; i < s->n; i++)
        schedule_step(s, i);
    /* The recording ends in branch 0, which must wait for all other branches. */
    const entry *end = &s->entries[s->tail[0]];
    for (int l = 1; l < FXI_GPU_BRANCHES; l++)
        if (s->tail[l] != NONE && end->seen[l] < s->tail[l] && s->entries[s->tail[l]].point == NONE)
            s->entries[s->tail[l]].point = s->npoints++;
    return true;
}

/* ---- recording ------------------------------------------------------------------------------- */

/* Selects the branch of the step, and makes the branch wait for the steps that it needs. */
static fx_status enter_step(fx_device *device, const schedule *s, const entry *e, bool first)
{
    const fxi_gpu_driver *driver = fxi_gpu_device_of(device)->driver;
    bool waits = false;
    fx_status status = driver->branch(device, e->branch);
    for (int l = 0; l < FXI_GPU_BRANCHES && !status; l++)
        if (e->after[l] != NONE) {
            waits = true;
            status = driver->after(device, s->entries[e->after[l]].point);
        }
    /* A branch belongs to the recording only from its first wait for another one. */
    return !status && first && e->branch > 0 && !waits ? driver->after(device, 0) : status;
}

static fx_status join_branches(fx_device *device, const schedule *s)
{
    const fxi_gpu_driver *driver = fxi_gpu_device_of(device)->driver;
    const entry *end = &s->entries[s->tail[0]];
    fx_status status = driver->branch(device, 0);
    for (int l = 1; l < FXI_GPU_BRANCHES && !status; l++)
        if (s->tail[l] != NONE && end->seen[l] < s->tail[l])
            status = driver->after(device, s->entries[s->tail[l]].point);
    return status;
}

static fx_status launch_branches(fx_device *device, const schedule *s, fx_run *run)
{
    const fxi_gpu_driver *driver = fxi_gpu_device_of(device)->driver;
    bool used[FXI_GPU_BRANCHES] = {false};
    fx_status status = driver->point(device, 0);
    for (int32_t i = 0; i < s->n && !status; i++) {
        const entry *e = &s->entries[i];
        status = enter_step(device, s, e, !used[e->branch]);
        used[e->branch] = true;
        if (!status)
            status = launch_step(device, step_at(s, i), s->plan->ready, s->values, run);
        if (!status && e->point != NONE)
            status = driver->point(device, e->point);
    }
    return status ? status : join_branches(device, s);
}

static fx_status launch_recorded(fx_device *device, const fx_plan *plan, const fxi_gpu_part *part,
                                 void *const *values, fx_run *run)
{
    const fxi_gpu_driver *driver = fxi_gpu_device_of(device)->driver;
    schedule s = {.plan = plan,
                  .part = part,
                  .values = values,
                  .n = part->end - part->first,
                  .branches = driver->branch != NULL};
    int32_t step;
    /* One branch is right for every plan, because it keeps the order of the list. */
    if (!s.branches || s.n > BRANCHED_MOST || !make_schedule(&s, driver->runtime.host))
        return fxi_gpu_launch_part(device, plan, part, values, run, &step);
    const fx_status status = launch_branches(device, &s, run);
    driver->runtime.host->free(s.entries);
    return status;
}

static bool record_part(fx_device *device, const fx_plan *plan, const fxi_gpu_part *part,
                        void *const *values, fx_run *run, void **out_graph)
{
    const fxi_gpu_driver *driver = fxi_gpu_device_of(device)->driver;
    if (driver->record(device) != FX_OK)
        return false;
    const bool launched = launch_recorded(device, plan, part, values, run) == FX_OK;
    /* A recording that was begun must be ended, also after a failed launch. */
    return driver->recorded(device, out_graph) == FX_OK && launched;
}

bool fxi_gpu_record(fx_device *device, const fx_plan *plan, void *const *values, fx_run *run,
                    fxi_gpu_recording *out)
{
    const fxi_gpu_whole *w = plan->ready;
    const fx_host *host = fxi_gpu_host_of(fxi_gpu_device_of(device));
    /* An error that the program has not read yet must survive a failed recording. */
    const fx_error earlier = host->error_take();
    bool done = true;
    for (int32_t k = 0; k < w->nparts && done; k++)
        done = !w->parts[k].recorded ||
               record_part(device, plan, &w->parts[k], values, run, &out->graphs[k]);
    if (!done)
        fxi_gpu_drop(device, w, out);
    /* Errors of recording are dropped, because the plan then runs step by step. */
    host->error_take();
    host->error_put(&earlier);
    return done;
}

void fxi_gpu_drop(fx_device *device, const fxi_gpu_whole *w, fxi_gpu_recording *r)
{
    for (int32_t k = 0; k < w->nparts; k++) {
        if (r->graphs[k])
            fxi_gpu_device_of(device)->driver->drop(device, r->graphs[k]);
        r->graphs[k] = NULL;
    }
}
