/* gpu_whole.c: plans that a driver records once and then replays with one call, called graphs by
 * CUDA and HIP: fx_backend.plan_prepare, plan_run and plan_release.
 *
 * A recording contains the addresses of one run. A run with the addresses of the previous run is
 * recorded; later runs with these addresses are replayed. A run with other addresses launches step
 * by step, because recording costs more than that. Training has the same addresses from its second
 * training step on. If the driver cannot record a plan, the plan is launched step by step from then
 * on.
 */
#include "gpu_device.h"
#include "gpu_gate.h"

#include <string.h>

typedef struct whole {
    void *recording; /* NULL: nothing is recorded */
    bool refused;    /* the driver has failed to record it */
    bool checks;     /* a kernel may write to the fault words */
    bool known;      /* the members below are those of the previous run */
    const void *streams;
    void **values;
    void **in, **out; /* space for the addresses of one step */
} whole;

/* ---- prepare and release --------------------------------------------------------------------- */

/* One step that cannot be recorded makes the whole plan run step by step. */
static bool can_record(const fx_device *device, const fx_plan *plan)
{
    bool can = fxi_gpu_device_of(device)->driver->record && !fxi_gpu_waits_for_steps();
    for (int32_t i = 0; i < plan->nsteps && can; i++)
        can = fxi_gpu_captures(&plan->steps[i]);
    return can;
}

static whole *new_whole(const fx_host *host, const fx_plan *plan)
{
    size_t nin = 0, nout = 0;
    bool checks = false;
    for (int32_t i = 0; i < plan->nsteps; i++) {
        const fx_step *s = &plan->steps[i];
        const size_t inputs = (size_t)s->nin, outputs = (size_t)fx_step_outputs(s);
        nin = inputs > nin ? inputs : nin;
        nout = outputs > nout ? outputs : nout;
        checks |= fxi_gpu_checks(s);
    }
    /* One allocation for all lists, so a run allocates nothing. */
    const size_t addresses = (size_t)plan->nvalues + nin + nout;
    whole *w = host->alloc(sizeof *w + addresses * sizeof(void *));
    if (!w)
        return NULL;
    *w = (whole){.checks = checks, .values = (void **)(w + 1)};
    w->in = w->values + plan->nvalues;
    w->out = w->in + nin;
    return w;
}

/* Nothing is recorded here: the addresses are known only when the plan runs. */
fx_status fxi_gpu_backend_plan_prepare(fx_device *device, fx_plan *plan)
{
    const fx_host *host = fxi_gpu_host_of(fxi_gpu_device_of(device));
    if (!can_record(device, plan))
        return FX_STATUS_UNSUPPORTED;
    plan->ready = new_whole(host, plan);
    return plan->ready ? FX_OK : host->fail(FX_STATUS_MEMORY, "plan", "out of host memory");
}

static void drop(fx_device *device, whole *w)
{
    if (w->recording)
        fxi_gpu_device_of(device)->driver->drop(device, w->recording);
    w->recording = NULL;
}

/* If the process is ending, the recording is freed with it. */
void fxi_gpu_backend_plan_release(fx_device *device, fx_plan *plan)
{
    if (!fxi_gpu_enter()) {
        drop(device, plan->ready);
        fxi_gpu_leave();
    }
    fxi_gpu_host_of(fxi_gpu_device_of(device))->free(plan->ready);
    plan->ready = NULL;
}

/* ---- run ------------------------------------------------------------------------------------- */

/* What run_steps in src/exec/run.c does for plans that run step by step. */
static fx_status launch_step(fx_device *device, const fx_step *s, const whole *w,
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

static fx_status launch_steps(fx_device *device, const fx_plan *plan, void *const *values,
                              fx_run *run, int32_t *out_step)
{
    for (int32_t i = 0; i < plan->nsteps; i++) {
        const fx_status status = launch_step(device, &plan->steps[i], plan->ready, values, run);
        if (status != FX_OK) {
            /* Steps behind i have not been launched, so their values are intact. */
            *out_step = i;
            return status;
        }
    }
    return FX_OK;
}

static void record(fx_device *device, const fx_plan *plan, void *const *values, fx_run *run)
{
    const fxi_gpu_driver *driver = fxi_gpu_device_of(device)->driver;
    whole *w = plan->ready;
    int32_t step;
    const fx_host *host = driver->runtime.host;
    /* An error that the program has not read yet must survive a failed recording. */
    const fx_error earlier = host->error_take();
    w->refused = driver->record(device) != FX_OK;
    if (!w->refused) {
        const bool launched = launch_steps(device, plan, values, run, &step) == FX_OK;
        /* A recording that was begun must be ended, also after a failed launch. */
        w->refused = driver->recorded(device, &w->recording) != FX_OK || !launched;
        if (w->refused)
            drop(device, w);
    }
    /* Errors of recording are dropped, because the plan then runs step by step. */
    host->error_take();
    host->error_put(&earlier);
}

/* A recording contains addresses, so it is valid only for a run in which all of them are equal. */
static bool same_addresses(const fx_plan *plan, void *const *values, const fx_run *run)
{
    const whole *w = plan->ready;
    return w->known && w->streams == run->streams &&
           memcmp(w->values, values, (size_t)plan->nvalues * sizeof *values) == 0;
}

/* The recording contains the previous addresses, so it is freed. */
static void remember_addresses(fx_device *device, const fx_plan *plan, void *const *values,
                               const fx_run *run)
{
    whole *w = plan->ready;
    drop(device, w);
    w->known = true;
    w->streams = run->streams;
    memcpy(w->values, values, (size_t)plan->nvalues * sizeof *values);
}

static fx_status replay(fx_device *device, const whole *w)
{
    fxi_gpu_device *d = fxi_gpu_device_of(device);
    /* Replayed kernels set no flag by themselves. */
    if (w->checks)
        __atomic_store_n(&d->checks, 1, __ATOMIC_RELEASE);
    return d->driver->replay(device, w->recording);
}

/* The caller holds the device's lock, which orders the runs of several threads. */
static fx_status run_plan(fx_device *device, const fx_plan *plan, void *const *values, fx_run *run,
                          int32_t *out_step)
{
    whole *w = plan->ready;
    if (!same_addresses(plan, values, run))
        remember_addresses(device, plan, values, run);
    else if (!w->recording && !w->refused)
        record(device, plan, values, run);
    return w->recording ? replay(device, w) : launch_steps(device, plan, values, run, out_step);
}

fx_status fxi_gpu_backend_plan_run(fx_device *device, const fx_plan *plan, void *const *values,
                                   fx_run *run, int32_t *out_step)
{
    fxi_gpu_device *d = fxi_gpu_device_of(device);
    if (!fxi_gpu_enter_for(device, "plan")) {
        /* Nothing was launched: all values are as they were. */
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
