/* gpu_compile.c: kernels from text: compiled once for a device, then found in memory, and by the
 * next process on disk.
 *
 * Different programs are compiled at the same time. A thread that needs a program which another
 * thread is compiling waits for it; after a failure it compiles for itself. Programs stay until the
 * process ends; their texts do not depend on sizes, so there are few.
 */
#include "gpu_cache.h"
#include "gpu_device.h"
#include "gpu_gate.h"

#include <stdio.h>
#include <string.h>

typedef struct function {
    struct function *next; /* of the same program */
    void *kernel;
    char name[];
} function;

typedef struct program {
    struct program *next; /* of the same bucket */
    const fxi_gpu_device *device;
    uint64_t hash;
    char *source;
    bool making; /* a thread compiles it */
    void *made;  /* NULL: not yet, or the last attempt failed */
    function *functions;
} program;

enum { BUCKETS = 512 };
static struct {
    fxi_mutex lock;
    fxi_cond ready; /* a program is no longer being made */
    program *buckets[BUCKETS];
} programs = {.lock = FXI_MUTEX_INIT, .ready = FXI_COND_INIT};

static void no_memory(const fxi_gpu_device *d, char *text, size_t size)
{
    snprintf(text, size, "no memory for a kernel of %s", d->label);
}

/* ---- making a program ------------------------------------------------------------------------ */

/* Everything that the compiled form depends on; freed by host->free. */
static char *key_of(const fxi_gpu_device *d, const char *source)
{
    static const char form[] = "cflux %s\n%s\n%s";
    const fx_host *host = fxi_gpu_host_of(d);
    const int n = snprintf(NULL, 0, form, host->version, d->identity, source);
    char *key = n > 0 ? host->alloc((size_t)n + 1) : NULL;
    if (key)
        snprintf(key, (size_t)n + 1, form, host->version, d->identity, source);
    return key;
}

static void *from_disk(fxi_gpu_device *d, const char *key)
{
    const fxi_gpu_driver *driver = d->driver;
    size_t size = 0;
    void *bytes = fxi_gpu_cache_load(fxi_gpu_host_of(d), driver->kind, key, &size);
    void *made = bytes ? driver->load(d, bytes, size) : NULL;
    fxi_gpu_host_of(d)->free(bytes);
    if (made)
        fxi_gpu_count(&fxi_gpu_counts.loaded);
    return made;
}

static void to_disk(fxi_gpu_device *d, const char *key, void *made)
{
    const fxi_gpu_driver *driver = d->driver;
    size_t size = 0;
    fxi_gpu_guard guard;
    fxi_gpu_guard_begin(&guard); /* PoCL compiles the program a second time to answer */
    void *bytes = driver->binary(d, made, &size);
    fxi_gpu_guard_end(&guard);
    if (bytes)
        fxi_gpu_cache_store(fxi_gpu_host_of(d), driver->kind, key, bytes, size);
    fxi_gpu_host_of(d)->free(bytes);
}

static void *compile(fxi_gpu_device *d, const char *source, char *text, size_t size)
{
    fxi_gpu_guard guard;
    fxi_gpu_compile_begin(&d->progress);
    fxi_gpu_guard_begin(&guard);
    void *made = d->driver->compile(d, source, text, size);
    fxi_gpu_guard_end(&guard);
    fxi_gpu_compile_end(&d->progress, made != NULL);
    fxi_gpu_progress_say(&d->progress, fxi_gpu_host_of(d), d->label);
    if (made)
        fxi_gpu_count(&fxi_gpu_counts.compiled);
    return made;
}

static void *make(fxi_gpu_device *d, const char *source, char *text, size_t size)
{
    char *key = fxi_gpu_cache_on() ? key_of(d, source) : NULL;
    void *made = key ? from_disk(d, key) : NULL;
    if (!made) {
        made = compile(d, source, text, size);
        if (made && key)
            to_disk(d, key, made);
    }
    fxi_gpu_host_of(d)->free(key);
    return made;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* The entry of a text, a new one if there is none; NULL: no memory. */
static program *entry_of(fxi_gpu_device *d, const char *source)
{
    const size_t n = strlen(source) + 1;
    const uint64_t hash = fxi_gpu_hash(source, n - 1, (uint64_t)(uintptr_t)d);
    program **bucket = &programs.buckets[hash % BUCKETS], *p = *bucket;
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

/* Under the lock, which it gives up while it compiles and while it waits. */
static void make_program(fxi_gpu_device *d, program *p, char *text, size_t size)
{
    while (p->making)
        fxi_cond_wait(&programs.ready, &programs.lock);
    if (p->made)
        return;
    p->making = true;
    fxi_mutex_unlock(&programs.lock);
    void *made = make(d, p->source, text, size);
    fxi_mutex_lock(&programs.lock);
    p->made = made;
    p->making = false;
    fxi_cond_wake_all(&programs.ready);
}

static void *function_of(fxi_gpu_device *d, program *p, const char *name, char *text, size_t size)
{
    function *f = p->functions;
    while (f && strcmp(f->name, name) != 0)
        f = f->next;
    if (f)
        return f->kernel;
    f = fxi_gpu_host_of(d)->alloc(sizeof *f + strlen(name) + 1);
    if (!f) {
        no_memory(d, text, size);
        return NULL;
    }
    *f = (function){.next = p->functions,
                    .kernel = d->driver->function(d, p->made, name, text, size)};
    if (!f->kernel) {
        fxi_gpu_host_of(d)->free(f);
        return NULL;
    }
    memcpy(f->name, name, strlen(name) + 1);
    p->functions = f;
    return f->kernel;
}

fx_status fxi_gpu_device_compile(fx_device *device, const char *name, const char *source,
                                 void **out_kernel)
{
    fxi_gpu_device *d = fxi_gpu_device_of(device);
    char text[320];
    *out_kernel = NULL;
    fxi_mutex_lock(&programs.lock);
    program *p = entry_of(d, source);
    if (!p)
        no_memory(d, text, sizeof text);
    else
        make_program(d, p, text, sizeof text);
    if (p && p->made)
        *out_kernel = function_of(d, p, name, text, sizeof text);
    fxi_mutex_unlock(&programs.lock);
    return *out_kernel ? FX_OK : fxi_gpu_host_of(d)->fail(FX_STATUS_DEVICE, "compile", text);
}
