/* standin.c: the stand-in devices: see standin.h. Every call is forwarded to the guide's example
 * (example_backend.c, which the build extracts from the page), unless the device's script makes it
 * fail.
 *
 * With a queue, `run` and `free` add a job and return; all other calls wait until the queue is
 * empty. Data that the caller keeps only during the call (the lists of addresses) are copied for
 * the queue's thread. The next call that can fail reports a step that failed in the queue.
 */
#include "attention_loop.h"
#include "script.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MOST_DEVICES = 64 };

extern const fx_backend example_backend;
static const fx_host *host;
static bool queued; /* set by open */

/* A delayed call: a step, or the release of `out`. */
typedef struct job {
    struct job *next;
    const fx_step *step; /* NULL: free `out` */
    const void **in;
    void *out;
    fx_run run;
} job;

typedef struct device_state {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_thread, busy;
    job *first, **end;
    char error[200]; /* error of a step that failed in the queue */
} device_state;
static device_state states[MOST_DEVICES];

static device_state *state_of(const fx_device *device)
{
    return &states[device->id];
}

static fx_status refused(const char *operation, const char *why)
{
    return host->fail(FX_STATUS_DEVICE, operation, why);
}

/* ---- the queue ------------------------------------------------------------------------------- */

static void job_free(job *j)
{
    host->free(j->in);
    host->free(j);
}

static fx_status run_now(fx_device *device, const fx_step *step, const void *const *in, void *out,
                         fx_run *run)
{
    const fx_status status = step->work_bytes == 0 ? FX_OK
                                                   : example_backend.fill(device, run->work, 0xA5,
                                                                          (size_t)step->work_bytes);
    return status == FX_OK ? example_backend.run(device, step, in, out, run) : status;
}

static void work(fx_device *device, job *j)
{
    device_state *s = state_of(device);
    if (!j->step) {
        example_backend.free(device, j->out);
        return;
    }
    const fx_status status = run_now(device, j->step, j->in, j->out, &j->run);
    if (status == FX_OK)
        return;
    const fx_error error = host->error_take(); /* recorded in the thread of the device's queue */
    pthread_mutex_lock(&s->lock);
    snprintf(s->error, sizeof s->error, "%.*s", (int)sizeof s->error - 1,
             *error.message ? error.message : "a queued step failed");
    pthread_mutex_unlock(&s->lock);
}

static void *work_off(void *user)
{
    fx_device *device = user;
    device_state *s = state_of(device);
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first)
            pthread_cond_wait(&s->changed, &s->lock);
        job *j = s->first;
        s->first = j->next;
        if (!s->first)
            s->end = &s->first;
        s->busy = true;
        pthread_mutex_unlock(&s->lock);
        work(device, j);
        job_free(j);
        pthread_mutex_lock(&s->lock);
        s->busy = false;
        pthread_cond_broadcast(&s->changed);
    }
    return NULL;
}

static void wait_for(const fx_device *device)
{
    device_state *s = state_of(device);
    pthread_mutex_lock(&s->lock);
    while (s->first || s->busy)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* Returns the error of a step in the queue, once. */
static bool take_error(const fx_device *device, char why[200])
{
    device_state *s = state_of(device);
    pthread_mutex_lock(&s->lock);
    const bool any = *s->error;
    if (any)
        memcpy(why, s->error, sizeof s->error);
    *s->error = 0;
    pthread_mutex_unlock(&s->lock);
    return any;
}

static void enter(const fx_device *device, job *j)
{
    device_state *s = state_of(device);
    pthread_mutex_lock(&s->lock);
    *s->end = j;
    s->end = &j->next;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Copies everything that is only valid during the call of `run`. */
static job *job_new(const fx_step *step, const void *const *in, void *out, const fx_run *run)
{
    const int32_t nin = step ? step->nin : 0,
                  nout = step && step->cls == FX_CLASS_FOREACH ? fx_step_outputs(step) : 0;
    job *j = host->alloc(sizeof *j);
    if (!j)
        return NULL;
    *j = (job){.step = step, .out = out};
    if (!step)
        return j;
    j->run = *run;
    j->in = host->alloc((size_t)(nin + nout + 1) * sizeof *j->in);
    if (!j->in) {
        job_free(j);
        return NULL;
    }
    if (nin)
        memcpy(j->in, in, (size_t)nin * sizeof *in);
    if (nout)
        memcpy(j->in + nin, run->outputs, (size_t)nout * sizeof *run->outputs);
    j->run.outputs = (void *const *)(j->in + nin);
    return j;
}

/* ---- the table ------------------------------------------------------------------------------- */

static int open_standin(const fx_host *library, char *why, size_t size)
{
    const char *setting = getenv("STANDIN_ASYNC");
    host = library;
    queued = setting && atoi(setting) > 0;
    script_open(0);
    for (int i = 0; i < MOST_DEVICES; i++) {
        states[i] = (device_state){.end = &states[i].first};
        pthread_mutex_init(&states[i].lock, NULL);
        pthread_cond_init(&states[i].changed, NULL);
    }
    return example_backend.open(attention_loop_host(library), why, size);
}

static fx_status describe(fx_device *device)
{
    const fx_status status = example_backend.info(device);
    device_state *s = state_of(device);
    snprintf(device->info.name, sizeof device->info.name,
             "stand-in %d for a " STANDIN_NAME " device", device->id);
    device->info.buffers = script_buffers();
    pthread_t thread;
    if (status == FX_OK && queued && !s->has_thread) {
        if (pthread_create(&thread, NULL, work_off, device) != 0)
            return refused("use", "no thread for a stand-in device");
        pthread_detach(thread);
        s->has_thread = true;
    }
    return status;
}

/* Two kernel libraries: STANDIN_PART, in the folder of this plugin (head_plugin.c), and one that is
 * not installed. */
static const char *part(const char *name)
{
    static const uint32_t sizes[] = FX_PLUGIN_SIZES_HERE(fx_plugin_head, fx_host);
    static _Thread_local char why[500];
    if (strcasecmp(name, STANDIN_PART) != 0 && strcasecmp(name, "absent") != 0)
        return NULL;
    return host->kernel_library(STANDIN_NAME, name, sizes, why, sizeof why) ? "" : why;
}

static int64_t used(fx_device *device)
{
    return device->info.memory - example_backend.available(device);
}

/* If memory is short, queued frees may release some. */
static void *take(fx_device *device, size_t bytes)
{
    char why[200];
    if (script_fails(device, STANDIN_ALLOC, bytes, why)) {
        if (script_lost(device))
            refused("alloc", why);
        return NULL;
    }
    if (used(device) + (int64_t)bytes > script_capacity(device))
        wait_for(device);
    void *p = used(device) + (int64_t)bytes > script_capacity(device)
                  ? NULL
                  : example_backend.alloc(device, bytes);
    script_block(device, p != NULL);
    return p;
}

static void give_back(fx_device *device, void *address)
{
    char why[200];
    script_fails(device, STANDIN_FREE, 0, why);
    script_block(device, -1);
    job *j = queued ? job_new(NULL, NULL, address, NULL) : NULL;
    if (j) {
        enter(device, j);
        return;
    }
    wait_for(device);
    example_backend.free(device, address);
}

/* Begins every call except the queued ones. */
static fx_status begin(const char *operation, const fx_device *device, standin_call call,
                       size_t bytes)
{
    char why[200];
    wait_for(device);
    const bool bad = script_fails(device, call, bytes, why) || take_error(device, why);
    return bad ? refused(operation, why) : FX_OK;
}

static fx_status write_bytes(fx_device *device, void *to, const void *from, size_t bytes)
{
    const fx_status s = begin("write", device, STANDIN_WRITE, bytes);
    return s == FX_OK ? example_backend.write(device, to, from, bytes) : s;
}

static fx_status read_bytes(fx_device *device, void *to, const void *from, size_t bytes)
{
    const fx_status s = begin("read", device, STANDIN_READ, bytes);
    return s == FX_OK ? example_backend.read(device, to, from, bytes) : s;
}

static fx_status copy_bytes(fx_device *to_device, void *to, fx_device *from_device,
                            const void *from, size_t bytes)
{
    wait_for(from_device);
    const fx_status s = begin("copy", to_device, STANDIN_COPY, bytes);
    return s == FX_OK ? example_backend.copy(to_device, to, from_device, from, bytes) : s;
}

static fx_status fill_bytes(fx_device *device, void *to, uint8_t value, size_t bytes)
{
    const fx_status s = begin("fill", device, STANDIN_FILL, bytes);
    return s == FX_OK ? example_backend.fill(device, to, value, bytes) : s;
}

static int64_t available(fx_device *device)
{
    return script_capacity(device) - used(device);
}

static bool channels_last(fx_device *device, const fx_step *step)
{
    return host->cpu->channels_last(device, step);
}

/* Every step requests more work space than its kernel needs, and a run overwrites all of it, so
 * that shared work space is detected. */
static fx_status prepare(fx_device *device, fx_step *step)
{
    if (script_refuses(device, step))
        return fx_step_is_fused(step) ? FX_STATUS_UNSUPPORTED
                                      : host->fail(FX_STATUS_UNSUPPORTED, "prepare",
                                                   "the stand-in lacks such a kernel");
    const fx_status status = example_backend.prepare(device, step);
    step->work_bytes += script_work(device);
    return status;
}

static void release(fx_device *device, fx_step *step)
{
    wait_for(device);
    example_backend.release(device, step);
}

static fx_status launch(fx_device *device, const fx_step *step, const void *const *in, void *out,
                        fx_run *run)
{
    char why[200];
    if (script_fails(device, STANDIN_LAUNCH, 0, why) || take_error(device, why)) {
        return host->fail(FX_STATUS_DEVICE, fx_op_name(step->op), why);
    }
    if (script_overfull(device, step, run, why))
        return host->fail(FX_STATUS_INTERNAL, fx_op_name(step->op), why);
    if (!queued)
        return run_now(device, step, in, out, run);
    job *j = job_new(step, in, out, run);
    if (!j)
        return FX_STATUS_MEMORY;
    enter(device, j);
    return FX_OK;
}

static fx_status wait_and_report(fx_device *device)
{
    char why[200];
    wait_for(device);
    if (take_error(device, why))
        return refused("synchronize", why);
    snprintf(why, sizeof why, "%s is lost", device->name);
    return script_lost(device) ? refused("synchronize", why) : FX_OK;
}

static bool takes_collective(fx_device *device, const fx_step *step)
{
    (void)device, (void)step;
    return script_collectives();
}

static void *proc(const char *name)
{
    return strcmp(name, "standin") == 0 ? (void *)(uintptr_t)&script_table : NULL;
}

FX_BACKEND_PLUGIN = {.head = FX_BACKEND_HEAD(STANDIN_NAME),
                     .views = true,
                     .fuses = true,
                     .open = open_standin,
                     .info = describe,
                     .part = part,
                     .alloc = take,
                     .free = give_back,
                     .write = write_bytes,
                     .read = read_bytes,
                     .copy = copy_bytes,
                     .fill = fill_bytes,
                     .available = available,
                     .channels_last = channels_last,
                     .attention = attention_loop_takes,
                     .collective = takes_collective,
                     .prepare = prepare,
                     .release = release,
                     .run = launch,
                     .sync = wait_and_report,
                     .proc = proc};
