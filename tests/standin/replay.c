/* replay.c: the backend table of the stand-in Replay: see replay.h. Memory and kernels are those of
 * the guide's example (example_backend.c); the queues call them later. */
#include "attention_loop.h"
#include "replay.h"
#include "replay_plan.h"
#include "replay_queue.h"
#include "script.h"

#include <stdio.h>
#include <string.h>

/* FRONT: bytes before each allocation, which hold its size. KEPT: freed blocks that are kept for a
 * while, as on a real device. */
enum { FRONT = 64, KEPT = 256, NAN_BYTE = 0xFF };
enum { BUFFERS = 30 }; /* maximum per kernel, the same as Metal's */

extern const fx_backend example_backend;
static fx_status answer; /* result of plan_prepare */

typedef struct state {
    int64_t used; /* bytes of live allocations */
    void *kept[KEPT];
    int nkept;
} state;
static state states[REPLAY_DEVICES];

static void enter(void)
{
    pthread_mutex_lock(&replay_lock);
}

static fx_status leave(fx_status status)
{
    pthread_mutex_unlock(&replay_lock);
    return status;
}

static fx_status refused(const char *operation, const char *why)
{
    return replay_host->fail(FX_STATUS_DEVICE, operation, why);
}

static fx_status no_memory(const char *operation)
{
    return replay_host->fail(FX_STATUS_MEMORY, operation, "no host memory for a queue of Replay");
}

/* Begins every call that may fail. FX_OK: the lock is held. */
static fx_status begin(const char *operation, const fx_device *device, standin_call call,
                       size_t bytes)
{
    char why[200];
    enter();
    if (!script_fails(device, call, bytes, why) && !replay_take_error(device, why))
        return FX_OK;
    leave(FX_OK);
    return refused(operation, why);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void poison(fx_device *device, char *at, size_t bytes)
{
    example_backend.fill(device, at, NAN_BYTE, bytes);
}

static void let_go(fx_device *device)
{
    state *s = &states[device->id];
    while (s->nkept > 0)
        example_backend.free(device, s->kept[--s->nkept]);
}

static char *take_block(fx_device *device, size_t bytes)
{
    char *p = example_backend.alloc(device, bytes + FRONT);
    if (p)
        return p;
    replay_drain(device);
    let_go(device);
    return example_backend.alloc(device, bytes + FRONT);
}

static void *take(fx_device *device, size_t bytes)
{
    char why[200];
    state *s = &states[device->id];
    if (script_fails(device, STANDIN_ALLOC, bytes, why)) {
        if (script_lost(device))
            refused("alloc", why);
        return NULL;
    }
    enter();
    const bool fits = s->used + (int64_t)bytes <= script_capacity(device);
    char *p = fits ? take_block(device, bytes) : NULL;
    if (p) {
        example_backend.write(device, p, &bytes, sizeof bytes);
        poison(device, p + FRONT, bytes);
        s->used += (int64_t)bytes;
        script_block(device, 1);
    }
    leave(FX_OK);
    return p ? p + FRONT : NULL;
}

static size_t size_of(fx_device *device, const char *p)
{
    size_t bytes = 0;
    example_backend.read(device, &bytes, p - FRONT, sizeof bytes);
    return bytes;
}

typedef struct free_job {
    replay_job job;
    char *address;
} free_job;

static void give_back_now(replay_job *job)
{
    state *s = &states[job->device->id];
    char *p = ((free_job *)job)->address;
    poison(job->device, p, size_of(job->device, p));
    if (s->nkept == KEPT)
        let_go(job->device);
    s->kept[s->nkept++] = p - FRONT;
}

static void give_back(fx_device *device, void *address)
{
    char why[200];
    script_fails(device, STANDIN_FREE, 0, why);
    enter();
    states[device->id].used -= (int64_t)size_of(device, address);
    script_block(device, -1);
    free_job *j = replay_job_new(device, sizeof *j, give_back_now);
    if (j) {
        j->address = address;
        replay_enter(REPLAY_WORK, &j->job);
    } else {
        replay_drain(device);
        example_backend.free(device, (char *)address - FRONT);
    }
    leave(FX_OK);
}

static int64_t available(fx_device *device)
{
    enter();
    const int64_t bytes = script_capacity(device) - states[device->id].used;
    leave(FX_OK);
    return bytes;
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* Bytes to write, copy or fill. */
typedef struct bytes_job {
    replay_job job;
    void *to;
    fx_device *from_device;
    const void *from;
    size_t bytes;
    uint8_t value;
    char copy[]; /* the bytes to write */
} bytes_job;

static void write_now(replay_job *job)
{
    const bytes_job *j = (bytes_job *)job;
    example_backend.write(job->device, j->to, j->copy, j->bytes);
}

static fx_status write_bytes(fx_device *device, void *to, const void *from, size_t bytes)
{
    const fx_status status = begin("write", device, STANDIN_WRITE, bytes);
    if (status != FX_OK)
        return status;
    bytes_job *j = replay_job_new(device, sizeof *j + bytes, write_now);
    if (!j) {
        leave(FX_OK);
        return no_memory("write");
    }
    j->to = to;
    j->bytes = bytes;
    memcpy(j->copy, from, bytes);
    replay_enter(REPLAY_TRANSFERS, &j->job);
    return leave(FX_OK);
}

static fx_status read_bytes(fx_device *device, void *to, const void *from, size_t bytes)
{
    char why[200];
    const fx_status status = begin("read", device, STANDIN_READ, bytes);
    if (status != FX_OK)
        return status;
    replay_drain(device);
    const bool failed = replay_take_error(device, why);
    const fx_status read = failed ? FX_OK : example_backend.read(device, to, from, bytes);
    leave(FX_OK);
    return failed ? refused("read", why) : read;
}

static void copy_now(replay_job *job)
{
    const bytes_job *j = (bytes_job *)job;
    example_backend.copy(job->device, j->to, j->from_device, j->from, j->bytes);
}

static void fill_now(replay_job *job)
{
    const bytes_job *j = (bytes_job *)job;
    example_backend.fill(job->device, j->to, j->value, j->bytes);
}

/* Queues a copy or a fill. */
static fx_status put_off(const char *operation, replay_lane lane, const bytes_job *job)
{
    bytes_job *j = replay_job_new(job->job.device, sizeof *j, job->job.act);
    if (j) {
        const replay_job head = j->job;
        *j = *job;
        j->job = head;
        replay_enter(lane, &j->job);
    }
    leave(FX_OK);
    return j ? FX_OK : no_memory(operation);
}

static fx_status copy_bytes(fx_device *to_device, void *to, fx_device *from_device,
                            const void *from, size_t bytes)
{
    const fx_status status = begin("copy", to_device, STANDIN_COPY, bytes);
    const bytes_job job = {.job = {.device = to_device, .act = copy_now},
                           .to = to,
                           .from_device = from_device,
                           .from = from,
                           .bytes = bytes};
    return status == FX_OK ? put_off("copy", REPLAY_TRANSFERS, &job) : status;
}

static fx_status fill_bytes(fx_device *device, void *to, uint8_t value, size_t bytes)
{
    const fx_status status = begin("fill", device, STANDIN_FILL, bytes);
    const bytes_job job = {
        .job = {.device = device, .act = fill_now}, .to = to, .bytes = bytes, .value = value};
    return status == FX_OK ? put_off("fill", REPLAY_WORK, &job) : status;
}

/* ---- work ------------------------------------------------------------------------------------ */

static bool channels_last(fx_device *device, const fx_step *step)
{
    return replay_host->cpu->channels_last(device, step);
}

/* Every step requests more work space than its kernel needs, and a run overwrites all of it, so
 * that shared work space is detected. */
static fx_status prepare(fx_device *device, fx_step *step)
{
    if (script_refuses(device, step))
        return fx_step_is_fused(step) ? FX_STATUS_UNSUPPORTED
                                      : replay_host->fail(FX_STATUS_UNSUPPORTED, "prepare",
                                                          "the stand-in lacks such a kernel");
    const fx_status status = example_backend.prepare(device, step);
    step->work_bytes += script_work(device);
    return status;
}

static void release(fx_device *device, fx_step *step)
{
    enter();
    replay_drain(device);
    replay_step_released(step);
    leave(FX_OK);
    example_backend.release(device, step);
}

/* True if the launch of a step fails (recorded). */
static bool launch_fails(const fx_device *device, const fx_step *step)
{
    char why[200];
    if (!script_fails(device, STANDIN_LAUNCH, 0, why) && !replay_take_error(device, why))
        return false;
    replay_host->fail(FX_STATUS_DEVICE, fx_op_name(step->op), why);
    return true;
}

static fx_status launch(fx_device *device, const fx_step *step, const void *const *in, void *out,
                        fx_run *run)
{
    enter();
    return leave(launch_fails(device, step) ? FX_STATUS_DEVICE
                                            : replay_launch(device, step, in, out, run));
}

static fx_status plan_prepare(fx_device *device, fx_plan *plan)
{
    (void)device;
    enter();
    const fx_status status = answer == FX_OK ? replay_plan_prepare(plan) : answer;
    leave(FX_OK);
    return answer == FX_OK || answer == FX_STATUS_UNSUPPORTED
               ? status
               : replay_host->fail(status, "plan", "Replay was told to refuse it");
}

/* The failing step has written part of its output; the steps after it have not begun. */
static fx_status plan_run(fx_device *device, const fx_plan *plan, void *const *values, fx_run *run,
                          int32_t *out_step)
{
    enter();
    int32_t fine = 0;
    while (fine < plan->nsteps && !launch_fails(device, &plan->steps[fine]))
        fine++;
    const bool failed = fine < plan->nsteps;
    fx_status status = replay_plan_launch(device, plan, values, run, fine + failed);
    if (status != FX_OK || failed)
        *out_step = status != FX_OK ? -1 : fine;
    if (status == FX_OK && failed)
        status = FX_STATUS_DEVICE;
    return leave(status);
}

static void plan_release(fx_device *device, fx_plan *plan)
{
    enter();
    replay_drain(device);
    replay_plan_release(plan);
    leave(FX_OK);
}

/* ---- queues ---------------------------------------------------------------------------------- */

static fx_status wait_and_report(fx_device *device)
{
    char why[200];
    enter();
    replay_drain(device);
    const bool failed = replay_take_error(device, why);
    leave(FX_OK);
    if (failed)
        return refused("synchronize", why);
    snprintf(why, sizeof why, "%s is lost", device->name);
    return script_lost(device) ? refused("synchronize", why) : FX_OK;
}

static void *mark(fx_device *device)
{
    if (begin("mark", device, STANDIN_MARK, 0) != FX_OK)
        return NULL;
    void *m = replay_mark_new(device);
    leave(FX_OK);
    if (!m)
        no_memory("mark");
    return m;
}

static fx_status wait_for(fx_device *device, void *m)
{
    const fx_status status = begin("wait", device, STANDIN_WAIT, 0);
    if (status != FX_OK)
        return status;
    const bool ok = replay_stale & REPLAY_STALE_MARKS || replay_follow(device, m);
    leave(FX_OK);
    return ok ? FX_OK : no_memory("wait");
}

static void unmark(fx_device *device, void *m)
{
    (void)device;
    enter();
    replay_mark_drop(m);
    leave(FX_OK);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int open_replay(const fx_host *library, char *why, size_t size)
{
    const char *setting = getenv("STANDIN_STALE");
    const int n = example_backend.open(attention_loop_host(library), why, size);
    replay_queues_open(library);
    script_open(BUFFERS);
    replay_stale = setting ? (unsigned)atoi(setting) : 0;
    return n < REPLAY_DEVICES ? n : REPLAY_DEVICES;
}

static fx_status describe(fx_device *device)
{
    const fx_status status = example_backend.info(device);
    device->info.buffers = script_buffers();
    snprintf(device->info.name, sizeof device->info.name, "stand-in %d of plans", device->id);
    return status;
}

static void set_stale(unsigned which)
{
    enter();
    replay_stale = which;
    leave(FX_OK);
}

static void set_answer(fx_status status)
{
    enter();
    answer = status;
    leave(FX_OK);
}

static int64_t count(replay_count which)
{
    enter();
    const int64_t n = which == REPLAY_MARKS ? replay_marks() : replay_counts[which];
    leave(FX_OK);
    return n;
}

static void *proc(const char *name)
{
    static const replay table = {.stale = set_stale, .answer = set_answer, .count = count};
    return strcmp(name, "standin") == 0  ? (void *)(uintptr_t)&script_table
           : strcmp(name, "replay") == 0 ? (void *)(uintptr_t)&table
                                         : NULL;
}

FX_BACKEND_PLUGIN = {.head = FX_BACKEND_HEAD("Replay"),
                     .views = true,
                     .fuses = true,
                     .open = open_replay,
                     .info = describe,
                     .alloc = take,
                     .free = give_back,
                     .write = write_bytes,
                     .read = read_bytes,
                     .copy = copy_bytes,
                     .fill = fill_bytes,
                     .available = available,
                     .channels_last = channels_last,
                     .attention = attention_loop_takes,
                     .prepare = prepare,
                     .release = release,
                     .run = launch,
                     .plan_prepare = plan_prepare,
                     .plan_run = plan_run,
                     .plan_release = plan_release,
                     .sync = wait_and_report,
                     .mark = mark,
                     .wait = wait_for,
                     .unmark = unmark,
                     .proc = proc};
