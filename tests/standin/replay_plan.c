/* replay_plan.c: captures and replays plans of the stand-in Replay: see replay_plan.h. A capture is
 * the list of a plan's steps with their addresses. It is immutable, and lives as long as its plan
 * or a queued run uses it. */
#include "replay_plan.h"
#include "script.h"

#include <stdio.h>
#include <string.h>

extern const fx_backend example_backend;

int64_t replay_counts[REPLAY_COUNTS];
unsigned replay_stale;
static char errors[REPLAY_DEVICES][200];

/* A step and its addresses: `in`, followed by the outputs of a foreach step. */
typedef struct launch {
    const fx_step *step;
    const void **in;
    void *out;
    fx_run run;
} launch;

typedef struct capture {
    int refs;
    int32_t n;
    launch *steps;
    void **values; /* nvalues of them */
    void *streams; /* address of the random streams, and their first values */
    size_t stream_bytes;
    void *kept;
    bool has_kept;
} capture;

typedef struct record {
    struct record *next;
    const fx_plan *plan;
    capture *newest; /* NULL: the plan has not run */
} record;
static record *records;

/* ---- steps ----------------------------------------------------------------------------------- */

static int32_t foreach_outputs(const fx_step *s)
{
    return s->cls == FX_CLASS_FOREACH ? fx_step_outputs(s) : 0;
}

static bool launch_init(launch *l, const fx_step *step, const void *const *in, void *out,
                        const fx_run *run)
{
    const int32_t nin = step->nin, nout = foreach_outputs(step);
    *l = (launch){.step = step, .out = out, .run = *run};
    l->in = replay_host->alloc((size_t)(nin + nout + 1) * sizeof *l->in);
    if (!l->in)
        return false;
    if (nin)
        memcpy(l->in, in, (size_t)nin * sizeof *in);
    if (nout)
        memcpy(l->in + nin, run->outputs, (size_t)nout * sizeof *run->outputs);
    l->run.outputs = (void *const *)(l->in + nin);
    return true;
}

/* False on failure, which a later call reports. */
static bool launch_now(fx_device *device, const launch *l)
{
    fx_run run = l->run;
    char why[200] = "";
    if (l->step->work_bytes > 0)
        example_backend.fill(device, run.work, 0xA5, (size_t)l->step->work_bytes);
    if (!script_overfull(device, l->step, &run, why) &&
        example_backend.run(device, l->step, l->in, l->out, &run) == FX_OK)
        return true;
    if (!*why)
        snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, replay_host->error_take().message);
    snprintf(errors[device->id], sizeof errors[0], "%s", *why ? why : "a queued step failed");
    return false;
}

bool replay_take_error(const fx_device *device, char why[200])
{
    const bool any = *errors[device->id];
    if (any)
        memcpy(why, errors[device->id], sizeof errors[0]);
    *errors[device->id] = 0;
    return any;
}

/* ---- step by step ---------------------------------------------------------------------------- */

typedef struct step_job {
    replay_job job;
    launch launch;
} step_job;

static void run_step(replay_job *job)
{
    const step_job *j = (step_job *)job;
    launch_now(job->device, &j->launch);
}

static void drop_step(replay_job *job)
{
    replay_host->free(((step_job *)job)->launch.in);
}

/* A step without resources to release may be freed before it is done, so it runs now. */
fx_status replay_launch(fx_device *device, const fx_step *step, const void *const *in, void *out,
                        const fx_run *run)
{
    step_job *j = replay_job_new(device, sizeof *j, run_step);
    if (!j)
        return FX_STATUS_MEMORY;
    j->job.drop = drop_step;
    if (!launch_init(&j->launch, step, in, out, run)) {
        replay_host->free(j);
        return FX_STATUS_MEMORY;
    }
    replay_enter(REPLAY_WORK, &j->job);
    replay_counts[REPLAY_STEPS]++;
    if (!step->ready)
        replay_drain(device);
    return FX_OK;
}

/* ---- captures -------------------------------------------------------------------------------- */

static void capture_drop(capture *c)
{
    if (--c->refs > 0)
        return;
    for (int32_t i = 0; c->steps && i < c->n; i++)
        replay_host->free(c->steps[i].in);
    replay_host->free(c->steps);
    replay_host->free(c->values);
    replay_host->free(c->kept);
    replay_host->free(c);
}

static bool capture_step(launch *l, const fx_step *s, void *const *values, const fx_run *given)
{
    const fx_more_outputs *more = fx_step_more(s);
    const int32_t nout = foreach_outputs(s);
    fx_run run = {.streams = given->streams};
    const void **in = replay_host->alloc((size_t)(s->nin + nout + 1) * sizeof *in);
    if (!in)
        return false;
    for (int32_t k = 0; k < s->nin; k++)
        in[k] = fx_step_input_at(s, k, values);
    if (s->work_bytes > 0)
        run.work = values[s->work_value];
    for (int32_t k = 0; k < more->n; k++)
        run.more[k] = values[more->value[k]];
    for (int32_t k = 0; k < nout; k++)
        in[s->nin + k] = values[fx_step_output(s, k)];
    run.outputs = (void *const *)(in + s->nin);
    const bool ok = launch_init(l, s, in, values[s->out_value], &run);
    replay_host->free(in);
    return ok;
}

static capture *capture_new(const fx_plan *plan, void *const *values, const fx_run *run)
{
    capture *c = replay_host->alloc(sizeof *c);
    if (!c)
        return NULL;
    *c = (capture){.refs = 1,
                   .streams = (void *)(uintptr_t)run->streams,
                   .stream_bytes = (size_t)plan->nstreams * sizeof *run->streams};
    c->values = replay_host->alloc(((size_t)plan->nvalues + 1) * sizeof *c->values);
    c->kept = replay_host->alloc(c->stream_bytes + 1);
    c->steps = replay_host->alloc((size_t)plan->nsteps * sizeof *c->steps);
    bool ok = c->values && c->kept && c->steps;
    if (ok)
        memcpy(c->values, values, (size_t)plan->nvalues * sizeof *values);
    for (; ok && c->n < plan->nsteps; c->n += ok)
        ok = capture_step(&c->steps[c->n], &plan->steps[c->n], values, run);
    if (ok)
        return c;
    capture_drop(c);
    return NULL;
}

static bool same(const capture *c, const fx_plan *plan, void *const *values, const fx_run *run)
{
    return memcmp(c->values, values, (size_t)plan->nvalues * sizeof *values) == 0 &&
           c->streams == (const void *)run->streams;
}

/* The capture that a run replays; NULL if out of memory. */
static capture *capture_for(const fx_plan *plan, void *const *values, const fx_run *run)
{
    record *r = plan->ready;
    const bool fits =
        r->newest && (replay_stale & REPLAY_STALE_ADDRESSES || same(r->newest, plan, values, run));
    replay_counts[fits ? REPLAY_REPLAYS : REPLAY_CAPTURES]++;
    if (fits)
        return r->newest;
    capture *c = capture_new(plan, values, run);
    if (c && r->newest)
        capture_drop(r->newest);
    if (c)
        r->newest = c;
    return c;
}

/* ---- plans ----------------------------------------------------------------------------------- */

typedef struct plan_job {
    replay_job job;
    capture *capture;
    int32_t n;
} plan_job;

/* Keeps the streams of the first run, for tests with stale streams. */
static void settle_streams(fx_device *device, capture *c)
{
    if (c->stream_bytes == 0)
        return;
    if (!c->has_kept)
        example_backend.read(device, c->kept, c->streams, c->stream_bytes);
    else if (replay_stale & REPLAY_STALE_STREAMS)
        example_backend.write(device, c->streams, c->kept, c->stream_bytes);
    c->has_kept = true;
}

static void run_plan(replay_job *job)
{
    const plan_job *j = (plan_job *)job;
    settle_streams(job->device, j->capture);
    for (int32_t i = 0; i < j->n && launch_now(job->device, &j->capture->steps[i]); i++)
        ;
}

static void drop_plan(replay_job *job)
{
    capture_drop(((plan_job *)job)->capture);
}

fx_status replay_plan_launch(fx_device *device, const fx_plan *plan, void *const *values,
                             const fx_run *run, int32_t n)
{
    plan_job *j = replay_job_new(device, sizeof *j, run_plan);
    if (!j)
        return FX_STATUS_MEMORY;
    j->job.drop = drop_plan;
    j->n = n;
    j->capture = capture_for(plan, values, run);
    if (!j->capture) {
        replay_host->free(j);
        return FX_STATUS_MEMORY;
    }
    j->capture->refs++;
    replay_enter(REPLAY_WORK, &j->job);
    return FX_OK;
}

fx_status replay_plan_prepare(fx_plan *plan)
{
    record *r = replay_host->alloc(sizeof *r);
    if (!r)
        return replay_host->fail(FX_STATUS_MEMORY, "plan", "no memory for a plan of Replay");
    *r = (record){.next = records, .plan = plan};
    records = r;
    plan->ready = r;
    replay_counts[REPLAY_PLANS]++;
    return FX_OK;
}

void replay_plan_release(fx_plan *plan)
{
    record *r = plan->ready, **at = &records;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    if (r->newest)
        capture_drop(r->newest);
    replay_host->free(r);
    replay_counts[REPLAY_PLANS]--;
}

void replay_step_released(const fx_step *step)
{
    for (const record *r = records; r; r = r->next)
        replay_counts[REPLAY_EARLY] +=
            step >= r->plan->steps && step < r->plan->steps + r->plan->nsteps;
}
