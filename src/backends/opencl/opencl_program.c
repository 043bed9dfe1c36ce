/* opencl_program.c: kernels from text: compiled once for a device, then found in memory, and by the
 * next process on disk.
 *
 * One lock for all: who needs a kernel that another thread is compiling waits for it rather than
 * compile it again. Programs stay until the process ends; their texts do not depend on sizes, so
 * there are few.
 */
#include "opencl.h"

#include "gpu_cache.h"

#include <stdio.h>
#include <string.h>

typedef struct program {
    struct program *next; /* of the same bucket */
    const fxi_opencl_device *device;
    uint64_t hash;
    char *source;
    cl_program made;
    struct entry *entries;
} program;

typedef struct entry {
    struct entry *next;
    cl_kernel kernel;
    char name[]; /* of the function */
} entry;

enum { BUCKETS = 512 };
static struct {
    pthread_mutex_t lock;
    program *buckets[BUCKETS];
} programs = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char options[] = "-cl-std=CL1.2";

/* ---- the compiler ---------------------------------------------------------------------------- */

/* The log's first lines, or as much as fits. */
static void compiler_says(const fxi_opencl_device *d, cl_program made, cl_int error, char *text,
                          size_t size)
{
    size_t length = 0;
    char *log = NULL;
    if (fxi_cl.GetProgramBuildInfo(made, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &length) ==
        CL_SUCCESS)
        log = fxi_opencl_host->alloc(length + 1);
    if (log && fxi_cl.GetProgramBuildInfo(made, d->id, CL_PROGRAM_BUILD_LOG, length, log, NULL) ==
                   CL_SUCCESS) {
        log[length] = '\0';
        fxi_opencl_host->message(1, log);
    }
    const char *what = log ? strstr(log, "error") : NULL;
    snprintf(text, size, "%s (%s) cannot compile a kernel: %s%s%.120s", d->label, d->name,
             fxi_cl_error_name(error), what ? ": " : "", what ? what : "");
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = ' ';
    fxi_opencl_host->free(log);
}

static cl_int build(const fxi_opencl_device *d, cl_program made)
{
    return fxi_cl.BuildProgram(made, 1, &d->id, options, NULL, NULL);
}

static cl_program compile(fxi_opencl_device *d, const char *source, char *text, size_t size)
{
    cl_int error;
    cl_program made = fxi_cl.CreateProgramWithSource(d->context, 1, &source, NULL, &error);
    if (!made) {
        fxi_opencl_why(d, "clCreateProgramWithSource", error, text, size);
        return NULL;
    }
    error = build(d, made);
    if (error == CL_SUCCESS) {
        fxi_opencl_count(&fxi_opencl_counts.compiled);
        return made;
    }
    compiler_says(d, made, error, text, size);
    fxi_cl.ReleaseProgram(made);
    return NULL;
}

/* ---- the disk -------------------------------------------------------------------------------- */

/* Everything that the compiled form depends on; freed by host->free. */
static char *key_of(const fxi_opencl_device *d, const char *source)
{
    static const char form[] = "cflux %s\n%s\n%s\n%s\n%s\n%s\n%s";
    const char *version = fxi_opencl_host->version;
    const int n = snprintf(NULL, 0, form, version, d->platform_name, d->name, d->driver, d->version,
                           options, source);
    char *key = n > 0 ? fxi_opencl_host->alloc((size_t)n + 1) : NULL;
    if (key)
        snprintf(key, (size_t)n + 1, form, version, d->platform_name, d->name, d->driver,
                 d->version, options, source);
    return key;
}

static cl_program from_disk(const fxi_opencl_device *d, const char *key)
{
    size_t size = 0;
    void *bytes = fxi_gpu_cache_load(fxi_opencl_host, "opencl", key, &size);
    const unsigned char *binary = bytes;
    cl_int error, of_binary;
    if (!bytes)
        return NULL;
    cl_program made =
        fxi_cl.CreateProgramWithBinary(d->context, 1, &d->id, &size, &binary, &of_binary, &error);
    fxi_opencl_host->free(bytes);
    if (made && build(d, made) == CL_SUCCESS) {
        fxi_opencl_count(&fxi_opencl_counts.loaded);
        return made;
    }
    if (made)
        fxi_cl.ReleaseProgram(made);
    return NULL;
}

/* Programs are made for one device, so there is one binary. (With a context of several devices the
 * others' have size 0.) */
static void to_disk(const fxi_opencl_device *d, const char *key, cl_program made)
{
    enum { MOST = 64 };
    size_t sizes[MOST] = {0}, total = 0;
    unsigned char *binaries[MOST] = {NULL};
    (void)d;
    if (fxi_cl.GetProgramInfo(made, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, NULL))
        return;
    for (int k = 0; k < MOST; k++)
        total += sizes[k];
    unsigned char *bytes = total ? fxi_opencl_host->alloc(total) : NULL;
    size_t used = 0;
    for (int k = 0; k < MOST && bytes; k++) {
        binaries[k] = sizes[k] ? bytes + used : NULL;
        used += sizes[k];
    }
    if (bytes && !fxi_cl.GetProgramInfo(made, CL_PROGRAM_BINARIES, sizeof binaries, binaries, NULL))
        fxi_gpu_cache_store(fxi_opencl_host, "opencl", key, bytes, total);
    fxi_opencl_host->free(bytes);
}

static cl_program make(fxi_opencl_device *d, const char *source, char *text, size_t size)
{
    char *key = key_of(d, source);
    cl_program made = key ? from_disk(d, key) : NULL;
    if (!made) {
        made = compile(d, source, text, size);
        if (made && key)
            to_disk(d, key, made);
    }
    fxi_opencl_host->free(key);
    return made;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static program *find_program(fxi_opencl_device *d, const char *source, uint64_t hash)
{
    program *p = programs.buckets[hash % BUCKETS];
    while (p && (p->hash != hash || p->device != d || strcmp(p->source, source) != 0))
        p = p->next;
    return p;
}

static program *new_program(fxi_opencl_device *d, const char *source, uint64_t hash, char *text,
                            size_t size)
{
    const size_t n = strlen(source) + 1;
    cl_program made = make(d, source, text, size);
    program *p = made ? fxi_opencl_host->alloc(sizeof *p + n) : NULL;
    if (!p) {
        if (made) {
            snprintf(text, size, "no memory for a kernel of %s", d->label);
            fxi_cl.ReleaseProgram(made);
        }
        return NULL;
    }
    *p = (program){.next = programs.buckets[hash % BUCKETS],
                   .device = d,
                   .hash = hash,
                   .source = (char *)(p + 1),
                   .made = made};
    memcpy(p->source, source, n);
    programs.buckets[hash % BUCKETS] = p;
    return p;
}

static cl_kernel kernel_of(fxi_opencl_device *d, program *p, const char *name, char *text,
                           size_t size)
{
    cl_int error;
    entry *e = p->entries;
    while (e && strcmp(e->name, name) != 0)
        e = e->next;
    if (e)
        return e->kernel;
    e = fxi_opencl_host->alloc(sizeof *e + strlen(name) + 1);
    if (!e) {
        snprintf(text, size, "no memory for a kernel of %s", d->label);
        return NULL;
    }
    e->kernel = fxi_cl.CreateKernel(p->made, name, &error);
    if (!e->kernel) {
        fxi_opencl_why(d, "clCreateKernel", error, text, size);
        fxi_opencl_host->free(e);
        return NULL;
    }
    memcpy(e->name, name, strlen(name) + 1);
    e->next = p->entries;
    p->entries = e;
    return e->kernel;
}

cl_kernel fxi_opencl_kernel(fxi_opencl_device *d, const char *source, const char *name, char *text,
                            size_t size)
{
    const uint64_t hash = fxi_gpu_hash(source, strlen(source), (uint64_t)(uintptr_t)d);
    pthread_mutex_lock(&programs.lock);
    program *p = find_program(d, source, hash);
    if (!p)
        p = new_program(d, source, hash, text, size);
    cl_kernel kernel = p ? kernel_of(d, p, name, text, size) : NULL;
    pthread_mutex_unlock(&programs.lock);
    return kernel;
}
