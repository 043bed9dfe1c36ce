/* vendor.c: a backend with a simulated vendor library: see vendor.h. */
#include "vendor.h"

#include "gpu_build.h"
#include "gpu_device.h"
#include "gpu_gate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fxi_gpu_driver driver;
static fxi_gpu_device the_device;
static vendor_control control;

static void count(int *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* ---- recordings ------------------------------------------------------------------------------ */

/* The state that a library keeps for a product of these sizes: descriptors and an algorithm. */
typedef struct product {
    int64_t m, n, k, am, ak, bk, bn;
} product;

/* A call with its addresses at the time of recording. */
typedef struct recorded_call {
    struct recorded_call *next;
    const product *product;
    void *buffers[4];
} recorded_call;

typedef struct recording {
    recorded_call *first, **last;
} recording;
static recording *open_recording;

static bool record_call(const product *p, void *const *buffers)
{
    recorded_call *c = malloc(sizeof *c);
    if (!c)
        return false;
    *c = (recorded_call){.product = p};
    memcpy(c->buffers, buffers, sizeof c->buffers);
    *open_recording->last = c;
    open_recording->last = &c->next;
    return true;
}

static void drop(fx_device *device, void *dropped)
{
    recording *r = dropped;
    (void)device;
    for (recorded_call *c = r->first, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(r);
    control.recordings--;
}

static fx_status record(fx_device *device)
{
    (void)device;
    recording *r = calloc(1, sizeof *r);
    if (!r)
        return FX_STATUS_MEMORY;
    r->last = &r->first;
    open_recording = r;
    control.recordings++;
    return FX_OK;
}

static fx_status recorded(fx_device *device, void **out_recording)
{
    recording *r = open_recording;
    open_recording = NULL;
    control.recorded++;
    if (!control.record_fails) {
        *out_recording = r;
        return FX_OK;
    }
    drop(device, r);
    return FX_STATUS_DEVICE;
}

/* ---- the vendor's library -------------------------------------------------------------------- */

/* Writes the product to the work space first, as libraries do when they split a product into
 * slices. */
static void multiply(const product *p, void *const *buffers)
{
    const float *a = buffers[0], *b = buffers[1];
    float *work = buffers[2];
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t i = 0; i < p->m; i++) {
            float sum = 0;
            for (int64_t l = 0; l < p->k; l++)
                sum += a[i * p->am + l * p->ak] * b[l * p->bk + j * p->bn];
            work[i + j * p->m] = sum;
        }
    memcpy(buffers[3], work, (size_t)(p->m * p->n) * sizeof *work);
    count(&control.calls);
}

static fx_status call(fx_device *device, void *state, void *const *buffers, const char *operation)
{
    (void)device;
    if ((uintptr_t)buffers[2] % 64 != 0)
        return driver.runtime.host->fail(FX_STATUS_INTERNAL, operation,
                                         "the work space is not aligned");
    if (open_recording)
        return record_call(state, buffers) ? FX_OK : FX_STATUS_MEMORY;
    multiply(state, buffers);
    return FX_OK;
}

static fx_status replay(fx_device *device, void *recording_of_plan)
{
    const recording *r = recording_of_plan;
    (void)device;
    for (const recorded_call *c = r->first; c; c = c->next)
        multiply(c->product, c->buffers);
    control.replayed++;
    return FX_OK;
}

static void forget(fx_device *device, void *state)
{
    (void)device;
    count(&control.freed);
    driver.runtime.host->free(state);
}

static const fxi_gpu_routine routines[] = {
    {.run = call, .release = forget, .captures = false},
    {.run = call, .release = forget, .captures = true},
};

static product *product_of(const fx_step *s)
{
    const fx_tensor *a = &s->in[0], *b = &s->in[1];
    const bool ta = fx_step_matmul(s)->transpose_a, tb = fx_step_matmul(s)->transpose_b;
    product *p = driver.runtime.host->alloc(sizeof *p);
    if (p)
        *p = (product){.m = s->out.shape[0],
                       .n = s->out.shape[1],
                       .k = a->shape[!ta],
                       .am = a->stride[ta],
                       .ak = a->stride[!ta],
                       .bk = b->stride[tb],
                       .bn = b->stride[!tb]};
    return p;
}

static bool takes(const fx_step *s)
{
    return s->cls == FX_CLASS_MATMUL && s->out.dtype == FX_DTYPE_F32 && s->out.ndim == 2 &&
           s->in[0].ndim == 2 && s->in[1].ndim == 2 && fx_tensor_length(&s->out) > 0;
}

static bool library(fxi_gpu_builder *b)
{
    if (!takes(b->step))
        return false;
    if (fx_step_program(b->step).n > 0) {
        fxi_gpu_too_much(b, "no epilogues");
        return true;
    }
    product *p = product_of(b->step);
    if (!p) {
        fxi_gpu_no_memory(b);
        return true;
    }
    count(&control.made);
    const int64_t work = fxi_gpu_work(b, p->m * p->n * (int64_t)sizeof(float));
    fxi_gpu_call *c = fxi_gpu_add_routine(b, &routines[!control.captures_nothing], p, 4);
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, 0);
    fxi_gpu_buffer(c, 1, FXI_GPU_IN, 1);
    fxi_gpu_buffer(c, 2, FXI_GPU_WORK, work);
    fxi_gpu_buffer(c, 3, FXI_GPU_OUT, 0);
    if (control.made == control.refuse_from)
        fxi_gpu_fail(b, FX_STATUS_DEVICE, "the library was told to refuse it");
    return true;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *alloc_bytes(fx_device *device, size_t bytes)
{
    (void)device;
    return aligned_alloc(64, (bytes + 64) / 64 * 64);
}
static void free_bytes(fx_device *device, void *address)
{
    (void)device;
    free(address);
}
static fx_status write_bytes(fx_device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    memcpy(to, from, bytes);
    return FX_OK;
}
static fx_status read_bytes(fx_device *device, void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return fxi_gpu_device_found(device, "read");
}
static fx_status copy_bytes(fx_device *to_device, void *to, fx_device *from_device,
                            const void *from, size_t bytes)
{
    (void)to_device, (void)from_device;
    memmove(to, from, bytes);
    return FX_OK;
}
static fx_status fill_bytes(fx_device *device, void *to, uint8_t value, size_t bytes)
{
    (void)device;
    memset(to, value, bytes);
    return FX_OK;
}
static int64_t available(fx_device *device)
{
    (void)device;
    return -1;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void *compile(fxi_gpu_device *d, const char *source, fxi_gpu_failure *why)
{
    (void)source;
    if (!control.compiles_nothing)
        return d;
    snprintf(why->text, sizeof why->text, "%s was told to compile nothing", d->label);
    return NULL;
}
static void *binary(fxi_gpu_device *d, void *program, size_t *out_size)
{
    (void)d, (void)program, (void)out_size;
    return NULL;
}
static void *load(fxi_gpu_device *d, const void *bytes, size_t size)
{
    (void)d, (void)bytes, (void)size;
    return NULL;
}
static void *function(fxi_gpu_device *d, void *program, const char *name, int32_t group,
                      fxi_gpu_failure *why)
{
    (void)d, (void)name, (void)group, (void)why;
    return program;
}
static fx_status launch(fx_device *device, const fxi_gpu_launch *l)
{
    count(&control.kernels);
    fxi_gpu_launched(fxi_gpu_device_of(device), l);
    return FX_OK;
}

/* ---- queues ---------------------------------------------------------------------------------- */

static void submit(fx_device *device)
{
    (void)device;
}
static int finish(void *device)
{
    (void)device;
    return 0;
}
static void *mark(fx_device *device)
{
    return device;
}
static fx_status wait_for(fx_device *device, void *at)
{
    (void)device, (void)at;
    return FX_OK;
}
static void unmark(fx_device *device, void *at)
{
    (void)device, (void)at;
}
static fxi_gpu_error_kind kind_of(int error)
{
    (void)error;
    return FXI_GPU_ERROR_OTHER;
}
static const char *name_of(int error)
{
    (void)error;
    return "an error";
}

/* ---- the table ------------------------------------------------------------------------------- */

static fxi_gpu_driver driver = {.kind = "vendor",
                                .runtime = FXI_GPU_RUNTIME(FXI_GPU_HOST, launch, library),
                                .compile = compile,
                                .binary = binary,
                                .load = load,
                                .function = function,
                                .alloc = alloc_bytes,
                                .free = free_bytes,
                                .write = write_bytes,
                                .read = read_bytes,
                                .copy = copy_bytes,
                                .fill = fill_bytes,
                                .available = available,
                                .submit = submit,
                                .finish = finish,
                                .finish_call = "finish",
                                .mark = mark,
                                .wait = wait_for,
                                .unmark = unmark,
                                .record = record,
                                .recorded = recorded,
                                .replay = replay,
                                .drop = drop,
                                .error_kind = kind_of,
                                .error_name = name_of};

static void quiesce(void) {}

static int open_backend(const fx_host *host, char *why, size_t size)
{
    driver.runtime.host = host;
    if (!fxi_gpu_gate_open(quiesce)) {
        snprintf(why, size, "out of host memory");
        return 0;
    }
    the_device =
        (fxi_gpu_device){.driver = &driver,
                         .name = "Vendor device",
                         .target = "vendor",
                         .limits = {FXI_GPU_USUAL_LIMITS, .units = 3, .param_bytes = 1024,
                                    .buffers = FXI_GPU_BUFFERS, .f64 = true, .atomic64 = true}};
    fxi_gpu_device_open(&the_device, "Vendor", 0);
    return 1;
}

static fx_status info(fx_device *device)
{
    device->data = &the_device;
    snprintf(device->info.name, sizeof device->info.name, "%s", the_device.name);
    device->info.buffers = the_device.limits.buffers;
    return FX_OK;
}

/* The table is shared with other plugins, so tests find the control by its symbol. */
void *vendor_control_of(void);
__attribute__((visibility("default"))) void *vendor_control_of(void)
{
    return &control;
}

FX_BACKEND_PLUGIN = FXI_GPU_BACKEND("Vendor", open_backend, info, NULL, NULL, NULL, NULL);
