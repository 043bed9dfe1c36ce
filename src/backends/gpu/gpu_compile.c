/* gpu_compile.c: compiles kernels from text once for a device, keeps them in memory, and on disk
 * for later processes. Packs of kernels (fx_host.kernel_packed) are searched first.
 *
 * Preparing a step only names its kernels (fxi_gpu_device_kernel). When all steps of a plan are
 * prepared, several threads compile the missing programs, in the order of the plan. Then the
 * calling thread takes the results in that order: kernels, errors and the compiler's log are the
 * same as if one thread had compiled one program after the other. A compiler takes from 10 ms to
 * half a second for a program, and LeNet's first training step needs 19 of them (docs/design/0040).
 *
 * A thread that needs a program which another thread is compiling waits for that thread; if the
 * other thread fails, the waiting one compiles the program itself. Programs are kept until the
 * process ends; their texts do not depend on sizes, so there are few.
 */
#include "cores.h"
#include "gpu_device.h"
#include "gpu_gate.h"
#include "hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct program program;

typedef struct function {
    struct function *next; /* next function of the same program */
    program *program;
    void *kernel; /* NULL: not created yet */
    char name[];
} function;

struct program {
    struct program *next; /* next program of the same bucket */
    const fxi_gpu_device *device;
    uint64_t hash;
    char *source;
    bool making; /* a thread is compiling it */
    void *made;  /* NULL: not yet, or the latest attempt failed */
    function *functions;
};

enum { BUCKETS = 512 };
static struct {
    fxi_mutex lock;
    fxi_cond ready; /* signalled when a program has been compiled, or has failed */
    program *buckets[BUCKETS];
} programs = {.lock = FXI_MUTEX_INIT, .ready = FXI_COND_INIT};

/* Called without a lock, because the program's hooks may do anything. */
static fx_status report(const fxi_gpu_device *d, fxi_gpu_failure *why)
{
    const fx_host *host = fxi_gpu_host_of(d);
    /* The log is a message: it may be longer than an error holds. */
    if (why->log)
        host->message(1, why->log);
    host->free(why->log);
    return host->fail(why->status, "compile", why->text);
}

/* ---- making a program ------------------------------------------------------------------------ */

static fx_kernel_key key_of(const fxi_gpu_device *d, const char *source)
{
    return (fx_kernel_key){d->driver->kind, d->target, d->compiler, d->options, source};
}

/* A search of the packs for code of one rank; the best rank is searched first. */
typedef struct search {
    fxi_gpu_device *device;
    int rank;
    void *made;
} search;

static int rank_of(const fxi_gpu_device *d, const fx_packed_kernel *k)
{
    return d->driver->rank                     ? d->driver->rank(d, k)
           : strcmp(k->target, d->target) == 0 ? FXI_GPU_RANKS
                                               : 0;
}

/* Code that the driver rejects is skipped. */
static bool try_packed(const fx_packed_kernel *k, void *user)
{
    search *s = user;
    if (rank_of(s->device, k) == s->rank)
        s->made = s->device->driver->load(s->device, k->code, k->size);
    return s->made;
}

static void *from_packs(fxi_gpu_device *d, const char *source)
{
    const fx_kernel_key key = key_of(d, source);
    search s = {.device = d, .rank = FXI_GPU_RANKS};
    while (s.rank > 0 && !fxi_gpu_host_of(d)->kernel_packed(&key, try_packed, &s))
        s.rank--;
    if (s.made)
        fxi_gpu_count(&fxi_gpu_counts.packed);
    return s.made;
}

/* A file that the driver rejects is not an error: the program is compiled again, and the new file
 * replaces it. */
static void *from_disk(fxi_gpu_device *d, const fx_kernel_key *key)
{
    const fxi_gpu_driver *driver = d->driver;
    size_t size = 0;
    void *bytes = fxi_gpu_host_of(d)->kernel_load(key, &size);
    void *made = bytes ? driver->load(d, bytes, size) : NULL;
    fxi_gpu_host_of(d)->free(bytes);
    if (made)
        fxi_gpu_count(&fxi_gpu_counts.loaded);
    return made;
}

static void to_disk(fxi_gpu_device *d, const fx_kernel_key *key, void *made)
{
    const fxi_gpu_driver *driver = d->driver;
    size_t size = 0;
    fxi_gpu_guard guard;
    fxi_gpu_guard_begin(&guard); /* PoCL compiles the program again to return its binary */
    void *bytes = driver->binary(d, made, &size);
    fxi_gpu_guard_end(&guard);
    if (bytes)
        fxi_gpu_host_of(d)->kernel_store(key, bytes, size);
    fxi_gpu_host_of(d)->free(bytes);
}

/* Between begin and end the guard moves the handler at exit to the front again and again, because
 * compilers register destructors (gpu_gate.h). */
static void *compile(fxi_gpu_device *d, const char *source, fxi_gpu_failure *why)
{
    fxi_gpu_guard guard;
    fxi_gpu_compile_begin(&d->progress);
    fxi_gpu_guard_begin(&guard);
    void *made = d->driver->compile(d, source, why);
    fxi_gpu_guard_end(&guard);
    fxi_gpu_compile_end(&d->progress, made != NULL);
    if (made)
        fxi_gpu_count(&fxi_gpu_counts.compiled);
    return made;
}

/* `name` is a kernel of the text, for the message. */
static void say_missing(const fxi_gpu_device *d, const char *name, const char *lack,
                        fxi_gpu_failure *why)
{
    snprintf(why->text, sizeof why->text,
             "%s has no compiler, and no pack of kernels has the kernel %s for %.40s: run the same "
             "program and then `cflux kernels pack FILE` on a machine with a compiler, and set "
             "CFLUX_KERNELS to that file here (%s)",
             d->label, name, d->target, lack);
}

static void *make(fxi_gpu_device *d, const char *source, const char *name, fxi_gpu_failure *why)
{
    const fx_host *host = fxi_gpu_host_of(d);
    void *made = from_packs(d, source);
    if (made)
        return made;
    /* `ready` is called before the cache on disk is read: it sets the compiler, which is a part of
     * the cache's keys (key_of). */
    const char *lack = d->driver->ready ? d->driver->ready(d) : "";
    if (*lack) {
        say_missing(d, name, lack, why);
        return NULL;
    }
    const fx_kernel_key key = key_of(d, source);
    made = host->kernels_cached() ? from_disk(d, &key) : NULL;
    if (!made) {
        made = compile(d, source, why);
        if (made && host->kernels_cached())
            to_disk(d, &key, made);
    }
    return made;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Finds or adds the entry of a text; NULL if there is no memory. */
static program *entry_of(fxi_gpu_device *d, const char *source)
{
    const size_t n = strlen(source) + 1;
    const uint64_t hash = fxi_hash(source, n - 1, (uint64_t)(uintptr_t)d);
    program **bucket = &programs.buckets[hash % BUCKETS], *p = *bucket;
    /* Texts are compared as a whole, because different texts can have equal hashes. */
    while (p && (p->hash != hash || p->device != d || strcmp(p->source, source) != 0))
        p = p->next;
    if (p)
        return p;
    p = fxi_gpu_host_of(d)->alloc(sizeof *p + n);
    if (!p)
        return NULL;
    *p = (program){.next = *bucket, .device = d, .hash = hash, .source = (char *)(p + 1)};
    memcpy(p->source, source, n);
    return *bucket = p;
}

/* Finds or adds a function of a program; NULL if there is no memory. */
static function *function_of(const fxi_gpu_device *d, program *p, const char *name)
{
    const size_t n = strlen(name) + 1;
    function *f = p->functions;
    while (f && strcmp(f->name, name) != 0)
        f = f->next;
    if (f)
        return f;
    f = fxi_gpu_host_of(d)->alloc(sizeof *f + n);
    if (!f)
        return NULL;
    *f = (function){.next = p->functions, .program = p};
    memcpy(f->name, name, n);
    return p->functions = f;
}

/* Only names the kernel. The programs of a plan are compiled together later, by several threads
 * (fxi_gpu_device_compile). */
fx_status fxi_gpu_device_kernel(fx_device *device, const char *name, const char *source,
                                void **out_kernel)
{
    fxi_gpu_device *d = fxi_gpu_device_of(device);
    fxi_mutex_lock(&programs.lock);
    program *p = entry_of(d, source);
    *out_kernel = p ? function_of(d, p, name) : NULL;
    fxi_mutex_unlock(&programs.lock);
    if (*out_kernel)
        return FX_OK;
    fxi_gpu_failure why = {.log = NULL};
    fxi_gpu_no_host_memory(d, &why);
    return report(d, &why);
}

/* ---- making a plan's kernels ----------------------------------------------------------------- */

/* The caller of the following functions holds the lock. It is released while a program is compiled,
 * and while another thread is waited for. */
static bool make_program(fxi_gpu_device *d, program *p, fxi_gpu_failure *why)
{
    /* Another plan may need the same text. */
    while (p->making)
        fxi_cond_wait(&programs.ready, &programs.lock);
    if (p->made)
        return true;
    p->making = true;
    const char *name = p->functions->name;
    fxi_mutex_unlock(&programs.lock);
    void *made = make(d, p->source, name, why);
    fxi_mutex_lock(&programs.lock);
    p->made = made;
    p->making = false;
    /* Wakes all threads, because several may wait for this program. */
    fxi_cond_wake_all(&programs.ready);
    return made;
}

/* A kernel that the plan needs, and why it could not be made. */
typedef struct job {
    function *function;
    bool failed; /* its program failed; `why` is the reason */
    fxi_gpu_failure why;
} job;

/* Shared by the threads that compile for one plan. */
typedef struct work {
    fxi_gpu_device *device;
    job *jobs;
    int n, next;
    bool stop; /* a program has failed: later ones are not needed */
} work;

static bool is_missing(const job *j)
{
    /* A program that another plan is compiling is left to that plan; make_functions waits for it.
     */
    return !j->function->program->made && !j->function->program->making;
}

/* In the order of the plan: so every program before one that fails has been taken too, and the
 * first failure of the plan is known. */
static job *next_job(work *w)
{
    while (w->next < w->n && !w->stop) {
        job *j = &w->jobs[w->next++];
        if (is_missing(j))
            return j;
    }
    return NULL;
}

static int count_missing(const work *w)
{
    int n = 0;
    for (int k = 0; k < w->n; k++)
        n += is_missing(&w->jobs[k]);
    return n;
}

/* One program for each call, because the caller reports progress between two programs and a helper
 * passes the gate again. */
static bool make_next(work *w)
{
    fxi_mutex_lock(&programs.lock);
    job *j = next_job(w);
    if (j && !make_program(w->device, j->function->program, &j->why))
        j->failed = w->stop = true;
    fxi_mutex_unlock(&programs.lock);
    return j;
}

/* A helping thread. It passes the gate for each program, so that the process can end between
 * two. */
static void *help(void *user)
{
    bool more = true;
    while (more && !fxi_gpu_enter()) {
        more = make_next(user);
        fxi_gpu_leave();
    }
    return NULL;
}

/* The most threads that compile for a plan, the calling thread included. Each needs the memory of
 * one compiler. More threads would save little: a training step of LeNet has 19 programs, which are
 * 3 rounds with 8 threads and 2 with 16. */
enum { THREADS_MOST = 8 };
/* Called without a lock. If no thread can be started, the caller compiles all programs. */
static void make_missing(work *w, int missing)
{
    fxi_gpu_device *d = w->device;
    fxi_thread helpers[THREADS_MOST - 1];
    int n = 0, most = missing > 1 ? fxi_system_cores() : 1;
    /* More threads than programs would have nothing to do. */
    most = most < missing ? most : missing;
    most = most < THREADS_MOST ? most : THREADS_MOST;
    while (n < most - 1 && fxi_thread_start(&helpers[n], help, w) == 0)
        n++;
    while (make_next(w))
        fxi_gpu_progress_say(&d->progress, fxi_gpu_host_of(d), d->label);
    for (int k = 0; k < n; k++)
        fxi_thread_join(helpers[k]);
    fxi_gpu_progress_say(&d->progress, fxi_gpu_host_of(d), d->label);
}

/* The work-items of a group, which the first line of a text declares. Texts of tests may lack it.
 */
static int32_t group_of(const program *p)
{
    enum { WORD = sizeof FXI_GPU_GROUP_LINE - 1 };
    const bool declared = strncmp(p->source, FXI_GPU_GROUP_LINE, WORD) == 0;
    return declared ? (int32_t)strtol(p->source + WORD, NULL, 10) : FXI_GPU_GROUP;
}

/* The caller holds the lock, as for make_program; while that releases it, another plan may create
 * the function. */
static bool make_function(fxi_gpu_device *d, job *j)
{
    function *f = j->function;
    if (!j->failed && make_program(d, f->program, &j->why) && !f->kernel)
        f->kernel =
            d->driver->function(d, f->program->made, f->name, group_of(f->program), &j->why);
    return f->kernel;
}

/* Takes the results in the order of the plan; returns the first that fails, or n. */
static int make_functions(work *w)
{
    int k = 0;
    fxi_mutex_lock(&programs.lock);
    while (k < w->n && make_function(w->device, &w->jobs[k]))
        k++;
    fxi_mutex_unlock(&programs.lock);
    return k;
}

/* Sets only the members that are tested: the texts of failures are large. */
static void list_jobs(work *w, void *const *kernels)
{
    for (int k = 0; k < w->n; k++) {
        w->jobs[k].function = kernels[k];
        w->jobs[k].failed = false;
        w->jobs[k].why.status = FX_STATUS_DEVICE;
        w->jobs[k].why.log = NULL;
    }
}

fx_status fxi_gpu_device_compile(fx_device *device, void **kernels, int n, int *out_failed)
{
    fxi_gpu_device *d = fxi_gpu_device_of(device);
    const fx_host *host = fxi_gpu_host_of(d);
    work w = {.device = d, .jobs = host->alloc((size_t)n * sizeof *w.jobs), .n = n};
    if (!w.jobs)
        return host->fail(FX_STATUS_MEMORY, "compile", "out of host memory");
    list_jobs(&w, kernels);
    fxi_mutex_lock(&programs.lock);
    const int missing = count_missing(&w);
    fxi_mutex_unlock(&programs.lock);
    if (missing > 0)
        make_missing(&w, missing);
    *out_failed = make_functions(&w);
    const fx_status status = *out_failed < n ? report(d, &w.jobs[*out_failed].why) : FX_OK;
    for (int k = 0; k < n && !status; k++)
        kernels[k] = w.jobs[k].function->kernel;
    for (int k = 0; k < n; k++)
        /* The log of the failure was freed by report. */
        if (k != *out_failed)
            host->free(w.jobs[k].why.log);
    host->free(w.jobs);
    return status;
}
