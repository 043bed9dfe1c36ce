/* script.c: scripted failures and counters of the stand-in devices: see script.h and standin.h. */
#include "script.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_DEVICES = 64 };

typedef struct script {
    pthread_mutex_t lock;
    int64_t calls[STANDIN_CALLS], bytes[STANDIN_CALLS], blocks;
    unsigned which, lacks;
    int64_t after, times, lost_after, capacity, work, precision;
    bool lost, failed;
} script;
static script scripts[MOST_DEVICES];
static int buffers; /* maximum per kernel; 0: no limit */

void script_open(int most)
{
    const char *setting = getenv("STANDIN_BUFFERS");
    buffers = setting ? atoi(setting) : most;
    for (int i = 0; i < MOST_DEVICES; i++) {
        scripts[i] = (script){.lost_after = -1, .work = 100, .precision = -1};
        pthread_mutex_init(&scripts[i].lock, NULL);
    }
}

/* ---- for the plugins ------------------------------------------------------------------------- */

bool script_fails(const fx_device *device, standin_call call, size_t bytes, char why[200])
{
    static const char *const names[STANDIN_CALLS] = {"an allocation", "a release", "a copy",
                                                     "a copy",        "a copy",    "a fill",
                                                     "a launch",      "a marker",  "a wait"};
    script *s = &scripts[device->id];
    pthread_mutex_lock(&s->lock);
    s->calls[call]++;
    s->bytes[call] += (int64_t)bytes;
    if (call != STANDIN_FREE && s->lost_after >= 0 && s->lost_after-- == 0)
        s->lost = true;
    const bool hit = s->which & 1u << call && s->times > 0 && s->after-- <= 0;
    s->times -= hit;
    s->failed |= hit || s->lost;
    const bool bad = hit || s->lost;
    if (s->lost)
        snprintf(why, 200, "%s is lost", device->name);
    else if (hit)
        snprintf(why, 200, "%s: %s failed", device->name, names[call]);
    pthread_mutex_unlock(&s->lock);
    return bad;
}

bool script_lost(const fx_device *device)
{
    script *s = &scripts[device->id];
    pthread_mutex_lock(&s->lock);
    const bool lost = s->lost;
    pthread_mutex_unlock(&s->lock);
    return lost;
}

int64_t script_capacity(const fx_device *device)
{
    script *s = &scripts[device->id];
    pthread_mutex_lock(&s->lock);
    const int64_t bytes = s->capacity ? s->capacity : device->info.memory;
    pthread_mutex_unlock(&s->lock);
    return bytes;
}

int64_t script_work(const fx_device *device)
{
    script *s = &scripts[device->id];
    pthread_mutex_lock(&s->lock);
    const int64_t bytes = s->work;
    pthread_mutex_unlock(&s->lock);
    return bytes;
}

void script_block(const fx_device *device, int change)
{
    script *s = &scripts[device->id];
    pthread_mutex_lock(&s->lock);
    s->blocks += change;
    pthread_mutex_unlock(&s->lock);
}

int script_buffers(void)
{
    return buffers;
}

/* Counts the pointers that a kernel would receive, independently of the header's own function. */
static int pointers_of(const fx_step *step, const fx_run *run)
{
    if (step->op == FX_OP_CONCAT || step->cls == FX_CLASS_CUSTOM)
        return 0; /* concat copies one input after another; the host computes custom steps */
    const int segments = step->cls == FX_CLASS_FOREACH ? step->as.foreach.nsegments : 1;
    return step->nin / segments + fx_step_outputs(step) / segments + (run->work != NULL) +
           (step->op == FX_OP_RANDOM);
}

bool script_overfull(const fx_device *device, const fx_step *step, const fx_run *run, char why[200])
{
    const int n = pointers_of(step, run);
    if (buffers == 0 || n <= buffers)
        return false;
    snprintf(why, 200, "a kernel of %d buffers, and %s takes %d", n, device->name, buffers);
    return true;
}

bool script_refuses(const fx_device *device, const fx_step *step)
{
    script *s = &scripts[device->id];
    pthread_mutex_lock(&s->lock);
    if (step->cls == FX_CLASS_MATMUL)
        s->precision = step->as.matmul.precision;
    if (step->cls == FX_CLASS_CONV)
        s->precision = step->as.conv.precision;
    const bool lacks = s->lacks >> step->cls & 1;
    pthread_mutex_unlock(&s->lock);
    return lacks;
}

/* ---- for tests ------------------------------------------------------------------------------- */

static void refuse(int device, unsigned which, int64_t n, int64_t times)
{
    script *s = &scripts[device];
    pthread_mutex_lock(&s->lock);
    s->which = which;
    s->after = n;
    s->times = times;
    s->failed = false;
    pthread_mutex_unlock(&s->lock);
}

static void lose(int device, int64_t n)
{
    script *s = &scripts[device];
    pthread_mutex_lock(&s->lock);
    s->lost_after = n;
    s->lost = s->failed = false;
    pthread_mutex_unlock(&s->lock);
}

static void capacity(int device, int64_t bytes)
{
    script *s = &scripts[device];
    pthread_mutex_lock(&s->lock);
    s->capacity = bytes;
    pthread_mutex_unlock(&s->lock);
}

static void lacks(int device, unsigned classes)
{
    script *s = &scripts[device];
    pthread_mutex_lock(&s->lock);
    s->lacks = classes;
    pthread_mutex_unlock(&s->lock);
}

static void work(int device, int64_t bytes)
{
    script *s = &scripts[device];
    pthread_mutex_lock(&s->lock);
    s->work = bytes;
    pthread_mutex_unlock(&s->lock);
}

/* Reads a number under the lock. */
static int64_t number(script *s, const int64_t *at)
{
    pthread_mutex_lock(&s->lock);
    const int64_t n = *at;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static bool failed(int device)
{
    script *s = &scripts[device];
    pthread_mutex_lock(&s->lock);
    const bool any = s->failed;
    pthread_mutex_unlock(&s->lock);
    return any;
}

static int64_t calls(int device, standin_call call)
{
    return number(&scripts[device], &scripts[device].calls[call]);
}

static int64_t bytes(int device, standin_call call)
{
    return number(&scripts[device], &scripts[device].bytes[call]);
}

static int64_t blocks(int device)
{
    return number(&scripts[device], &scripts[device].blocks);
}

static int precision(int device)
{
    return (int)number(&scripts[device], &scripts[device].precision);
}

static int collectives_taken; /* atomic */

static void collectives(bool taken)
{
    __atomic_store_n(&collectives_taken, taken, __ATOMIC_RELAXED);
}

bool script_collectives(void)
{
    return __atomic_load_n(&collectives_taken, __ATOMIC_RELAXED);
}

const standin script_table = {.collectives = collectives,
                              .refuse = refuse,
                              .lose = lose,
                              .failed = failed,
                              .capacity = capacity,
                              .work = work,
                              .calls = calls,
                              .bytes = bytes,
                              .blocks = blocks,
                              .lacks = lacks,
                              .precision = precision};
