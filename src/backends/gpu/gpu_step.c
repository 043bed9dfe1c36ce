/* gpu_step.c: steps as lists of launches: which kind makes them, and how they are run.
 *
 * All that is decided when a plan is made is in the list: kernels, grids, parameters. A launch's
 * buffers are named by what they are to the step (operand 2, output 0, scratch), and a run looks
 * their addresses up. The only parameters that a run fills in are those of random numbers.
 */
#include "gpu_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void (*const kinds[])(fxi_gpu_builder *b) = {
    [FX_CLASS_ELEMENTWISE] = fxi_gpu_elementwise,
    [FX_CLASS_GENERATOR] = fxi_gpu_generate,
    [FX_CLASS_MOVEMENT] = fxi_gpu_move,
    [FX_CLASS_COPY] = fxi_gpu_join,
    [FX_CLASS_REDUCE] = fxi_gpu_reduce,
    [FX_CLASS_ROW] = fxi_gpu_row,
    [FX_CLASS_SCAN] = fxi_gpu_scan,
    [FX_CLASS_GATHER] = fxi_gpu_gather,
    [FX_CLASS_SCATTER] = fxi_gpu_scatter,
    [FX_CLASS_MATMUL] = fxi_gpu_matmul,
    [FX_CLASS_CONV] = fxi_gpu_conv,
    [FX_CLASS_POOL] = fxi_gpu_pool,
    [FX_CLASS_FOREACH] = fxi_gpu_foreach,
};

static const char *const op_names[FX_OP_COUNT] = {
#define OP(NAME, name, inputs, cls) name,
#include <cflux/op.def>
};

struct ready {
    fxi_gpu_call *first;
    size_t scratch;
};

/* ---- failures -------------------------------------------------------------------------------- */
fx_status fxi_gpu_fail(fxi_gpu_builder *b, fx_status status, const char *format, ...)
{
    char text[256];
    va_list args;
    if (b->status)
        return b->status;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    b->status = status;
    return b->runtime->host->fail(status, op_names[b->step->op], text);
}

static void no_memory(fxi_gpu_builder *b)
{
    fxi_gpu_fail(b, FX_STATUS_MEMORY, "out of host memory");
}

/* ---- text ------------------------------------------------------------------------------------ */
static bool make_room(fxi_gpu_builder *b, size_t more)
{
    if (b->length + more < b->room)
        return true;
    const size_t room = 2 * (b->length + more);
    char *text = b->runtime->host->alloc(room);
    if (!text) {
        no_memory(b);
        return false;
    }
    if (b->text)
        memcpy(text, b->text, b->length + 1);
    b->runtime->host->free(b->text);
    b->text = text;
    b->room = room;
    return true;
}

void fxi_gpu_say_text(fxi_gpu_builder *b, const char *text)
{
    const size_t n = strlen(text);
    if (b->status || !make_room(b, n))
        return;
    memcpy(b->text + b->length, text, n + 1);
    b->length += n;
}

void fxi_gpu_say(fxi_gpu_builder *b, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text)
        fxi_gpu_fail(b, FX_STATUS_INTERNAL, "a line of a kernel's text is too long");
    fxi_gpu_say_text(b, text);
}

void fxi_gpu_begin_groups(fxi_gpu_builder *b, bool wide, int group)
{
    const fxi_gpu_dialect dialect = b->runtime->dialect;
    b->length = 0;
    b->wide = wide;
    b->group = group;
    b->kernel = NULL;
    fxi_gpu_say(b, "#define FX_GROUP %d\n%s%s%s", group, wide ? "#define FX_WIDE\n" : "",
                b->limits->f64 ? "#define FX_HAS_F64\n" : "",
                b->limits->atomic64 ? "#define FX_HAS_ATOMIC64\n" : "");
    for (int k = 0; k < 2; k++)
        fxi_gpu_say_text(b, fxi_gpu_preludes[dialect][k]);
    fxi_gpu_say_text(b, fxi_gpu_common);
    fxi_gpu_say_text(b, fxi_gpu_arithmetic);
}

void fxi_gpu_kernel(fxi_gpu_builder *b, const char *name, int nbuffers, int nparams)
{
    b->name = name;
    b->nbuffers = nbuffers;
    b->nparams = nparams;
    const int bytes = nbuffers * (int)(2 * sizeof(int64_t)) + nparams * (b->wide ? 8 : 4);
    if (nbuffers > b->limits->buffers || nparams > FXI_GPU_PARAMS || bytes > b->limits->param_bytes)
        fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED,
                     "%d operands and outputs of their strides are too many for a kernel of %s",
                     nbuffers, b->device->name);
    fxi_gpu_say(b, "typedef struct { fx_int v[%d]; } fx_params;\n", nparams);
    fxi_gpu_say(b, "typedef struct { fx_i64 v[%d]; } fx_offsets;\n", nbuffers);
    fxi_gpu_say(b, "FX_KERNEL %s(", name);
    for (int k = 0; k < nbuffers; k++)
        fxi_gpu_say(b, "FX_B(%d), ", k);
    fxi_gpu_say(b, "FX_ARGS)\n{\n");
}

void fxi_gpu_end(fxi_gpu_builder *b)
{
    fxi_gpu_say(b, "}\n");
    if (!b->status)
        b->status = b->runtime->compile(b->device, b->name, b->text, &b->kernel);
}

/* ---- launches -------------------------------------------------------------------------------- */
/* The launch, its buffers and its parameters are one piece of memory. */
fxi_gpu_call *fxi_gpu_add(fxi_gpu_builder *b)
{
    const size_t refs = (size_t)b->nbuffers * sizeof(fxi_gpu_buffer_ref),
                 params = (size_t)b->nparams * sizeof(int64_t),
                 bytes = sizeof(fxi_gpu_call) + refs + params;
    fxi_gpu_call *c = b->status ? NULL : b->runtime->host->alloc(bytes);
    if (!c) {
        no_memory(b);
        b->lost = (fxi_gpu_call){.params = b->lost_memory};
        return &b->lost;
    }
    memset(c, 0, bytes);
    c->buffers = (fxi_gpu_buffer_ref *)(void *)(c + 1);
    c->params = c->buffers + b->nbuffers;
    c->kernel = b->kernel;
    c->group = b->group;
    c->nbuffers = b->nbuffers;
    c->nparams = b->nparams;
    c->wide = b->wide;
    c->stream = -1;
    for (int k = 0; k < 3; k++)
        c->groups[k] = 1;
    *b->last = c;
    b->last = &c->next;
    return c;
}

void fxi_gpu_buffer(fxi_gpu_call *c, int buffer, fxi_gpu_place place, int64_t k)
{
    if (buffer < c->nbuffers)
        c->buffers[buffer] = (fxi_gpu_buffer_ref){.k = k, .place = place};
    c->checks |= place == FXI_GPU_FAULT;
}

void fxi_gpu_param(fxi_gpu_call *c, int param, int64_t value)
{
    if (param >= c->nparams)
        return;
    if (c->wide)
        ((int64_t *)c->params)[param] = value;
    else
        ((int32_t *)c->params)[param] = (int32_t)value;
}

int64_t fxi_gpu_scratch(fxi_gpu_builder *b, int64_t bytes)
{
    const size_t at = b->scratch;
    b->scratch += ((size_t)bytes + 63) / 64 * 64;
    return (int64_t)at;
}

/* ---- prepare and release --------------------------------------------------------------------- */
static void free_calls(const fxi_gpu_runtime *runtime, fxi_gpu_call *c)
{
    for (fxi_gpu_call *next; c; c = next) {
        next = c->next;
        runtime->host->free(c);
    }
}

static bool has_f64(const fx_step *s)
{
    bool f64 = s->out.dtype == FX_DTYPE_F64;
    for (int32_t k = 0; k < s->nin; k++)
        f64 |= s->in[k].dtype == FX_DTYPE_F64;
    for (int32_t k = 0; k < s->ninstr; k++)
        f64 |= s->program[k].dtype == FX_DTYPE_F64;
    return f64;
}

static void build(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    if (has_f64(s) && !b->limits->f64)
        fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED, "%s has no Float64", b->device->name);
    else if (s->cls >= sizeof kinds / sizeof *kinds || !kinds[s->cls])
        fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED, "%s has no such operation", b->device->name);
    else
        kinds[s->cls](b);
}

fx_status fxi_gpu_prepare(const fxi_gpu_runtime *runtime, fx_device *device, fx_step *step)
{
    fxi_gpu_builder b = {
        .runtime = runtime, .device = device, .limits = runtime->limits(device), .step = step};
    b.last = &b.first;
    step->ready = NULL;
    build(&b);
    runtime->host->free(b.text);
    struct ready *r = b.status ? NULL : runtime->host->alloc(sizeof *r);
    if (!r) {
        no_memory(&b);
        free_calls(runtime, b.first);
        return b.status;
    }
    *r = (struct ready){.first = b.first, .scratch = b.scratch};
    step->ready = r;
    return FX_OK;
}

void fxi_gpu_release(const fxi_gpu_runtime *runtime, fx_step *step)
{
    struct ready *r = step->ready;
    if (r)
        free_calls(runtime, r->first);
    runtime->host->free(r);
    step->ready = NULL;
}

/* ---- run ------------------------------------------------------------------------------------- */
typedef struct places {
    const fx_step *step;
    const void *const *in;
    void *out;
    const fx_run *run;
    char *scratch;
    void *faults;
} places;

static void *output(const places *p, int64_t k)
{
    if (p->step->segments)
        return p->run->outputs[k];
    return k == 0 ? p->out : p->run->more[k - 1];
}

static void *address(const places *p, const fxi_gpu_buffer_ref *ref)
{
    switch (ref->place) {
    case FXI_GPU_IN:
        return (void *)(uintptr_t)p->in[ref->k];
    case FXI_GPU_OUT:
        return output(p, ref->k);
    case FXI_GPU_SCRATCH:
        return p->scratch + ref->k;
    default:
        return p->faults;
    }
}

/* A copy of the parameters with the halves of seed and counter; in 32-bit kernels the bits. */
static const void *with_stream(const fxi_gpu_call *c, const uint64_t stream[2], int64_t *copy)
{
    memcpy(copy, c->params, (size_t)c->nparams * (c->wide ? sizeof(int64_t) : sizeof(int32_t)));
    fxi_gpu_call own = *c;
    own.params = copy;
    for (int k = 0; k < 4; k++)
        fxi_gpu_param(&own, c->stream + k, (int64_t)(uint32_t)(stream[k / 2] >> 32 * (k % 2)));
    return copy;
}

static fx_status launch(const fxi_gpu_runtime *runtime, fx_device *device, const fxi_gpu_call *c,
                        const places *p, fx_run *run)
{
    void *buffers[FXI_GPU_BUFFERS];
    int64_t copy[16];
    for (int32_t k = 0; k < c->nbuffers; k++)
        buffers[k] = address(p, &c->buffers[k]);
    fxi_gpu_launch l = {.kernel = c->kernel,
                        .groups = {c->groups[0], c->groups[1], c->groups[2]},
                        .group = c->group,
                        .nbuffers = c->nbuffers,
                        .buffers = buffers,
                        .params = c->params,
                        .param_bytes =
                            (size_t)c->nparams * (c->wide ? sizeof(int64_t) : sizeof(int32_t)),
                        .checks = c->checks};
    if (c->stream >= 0)
        l.params = with_stream(c, run->streams[p->step->slot], copy);
    return runtime->launch(device, &l, run);
}

fx_status fxi_gpu_run(const fxi_gpu_runtime *runtime, fx_device *device, const fx_step *step,
                      const void *const *in, void *out, fx_run *run)
{
    const struct ready *r = step->ready;
    places p = {.step = step, .in = in, .out = out, .run = run};
    fx_status status = FX_OK;
    if (r->scratch) {
        p.scratch = runtime->scratch(device, r->scratch);
        if (!p.scratch) {
            snprintf(run->error, sizeof run->error, "%s: out of memory on %s", op_names[step->op],
                     device->name);
            return FX_STATUS_MEMORY;
        }
    }
    for (const fxi_gpu_call *c = r->first; c && !status; c = c->next) {
        p.faults = c->checks ? runtime->faults(device) : NULL;
        status = launch(runtime, device, c, &p, run);
    }
    return status;
}

/* ---- faults ---------------------------------------------------------------------------------- */
/* Words: 1 + the operation, the index, the axis, the size. */
fx_status fxi_gpu_fault_text(const int64_t words[FXI_GPU_FAULTS], char *text, size_t size)
{
    snprintf(text, size, "%s: index %lld is out of range for axis %lld of size %lld",
             op_names[words[0] - 1], (long long)words[1], (long long)words[2], (long long)words[3]);
    return FX_STATUS_ARGUMENT;
}
