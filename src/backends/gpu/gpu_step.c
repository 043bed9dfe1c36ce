/* gpu_step.c: turns steps into lists of launches, and runs these lists.
 *
 * Everything that is decided when a plan is made is in the list: kernels, grids, parameters. A
 * launch's buffers are named by their meaning for the step (operand 2, output 0, work space), and a
 * run looks up their addresses. It sets nothing else: values that change from run to run are in
 * device memory, so that a driver can record a plan and replay it (gpu_whole.c).
 */
#include "gpu_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* By class; NULL for classes without kernels: leaves, transfers, custom steps, which cflux runs
 * itself, and collective steps, which cflux runs if the transport does not. */
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
    [FX_CLASS_ATTENTION] = fxi_gpu_attention,
    [FX_CLASS_FOREACH] = fxi_gpu_foreach,
};

enum { UNDECIDED = -1 };
struct ready {
    fxi_gpu_call *first;
    int32_t way; /* the one that runs; UNDECIDED until the first run */
    int32_t nways;
    uint32_t useless; /* bits: ways that the device cannot launch or compile */
    fxi_gpu_ways ways;
};

/* ---- failures -------------------------------------------------------------------------------- */
static fx_status fail(fxi_gpu_builder *b, fx_status status, const char *format, va_list args)
{
    char text[256];
    /* Only the first failure is recorded: later ones follow from it. */
    if (b->status)
        return b->status;
    vsnprintf(text, sizeof text, format, args);
    b->status = status;
    return b->runtime->host->fail(status, fx_op_name(b->step->op), text);
}

fx_status fxi_gpu_fail(fxi_gpu_builder *b, fx_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(b, status, format, args);
    va_end(args);
    return b->status;
}

/* A fused step that is too large for the device is not an error: the planner tries smaller steps.
 */
void fxi_gpu_too_much(fxi_gpu_builder *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (fx_step_is_fused(b->step))
        b->status = b->status ? b->status : FX_STATUS_UNSUPPORTED;
    else
        fail(b, FX_STATUS_UNSUPPORTED, format, args);
    va_end(args);
}

void fxi_gpu_no_memory(fxi_gpu_builder *b)
{
    fxi_gpu_fail(b, FX_STATUS_MEMORY, "out of host memory");
}

/* ---- launches -------------------------------------------------------------------------------- */
/* Adds an entry; it, its buffers and its parameters are one allocation. NULL after a failure. */
static fxi_gpu_call *add(fxi_gpu_builder *b, int nbuffers, int nparams)
{
    const size_t refs = (size_t)nbuffers * sizeof(fxi_gpu_buffer_ref),
                 params = (size_t)nparams * sizeof(int64_t),
                 bytes = sizeof(fxi_gpu_call) + refs + params;
    fxi_gpu_call *c = b->status ? NULL : b->runtime->host->alloc(bytes);
    if (!c) {
        fxi_gpu_no_memory(b);
        /* Callers then fill in a dummy entry, so they need no test after each call. */
        b->unused = (fxi_gpu_call){.params = b->unused_params};
        return NULL;
    }
    memset(c, 0, bytes);
    c->buffers = (fxi_gpu_buffer_ref *)(void *)(c + 1);
    c->params = c->buffers + nbuffers;
    c->nbuffers = nbuffers;
    c->nparams = nparams;
    c->way = b->way;
    *b->last = c;
    b->last = &c->next;
    return c;
}

fxi_gpu_call *fxi_gpu_add(fxi_gpu_builder *b)
{
    fxi_gpu_call *c = add(b, b->nbuffers, b->nparams);
    if (!c)
        return &b->unused;
    c->kernel = b->kernel;
    c->group = b->group;
    c->asked_memory = b->asked_memory;
    c->ntable = b->ntable;
    c->wide = b->wide;
    /* One group along each axis, unless the caller sets more. */
    for (int k = 0; k < 3; k++)
        c->groups[k] = 1;
    return c;
}

fxi_gpu_call *fxi_gpu_add_routine(fxi_gpu_builder *b, const fxi_gpu_routine *routine, void *state,
                                  int nbuffers)
{
    if (nbuffers > FXI_GPU_BUFFERS)
        fxi_gpu_fail(b, FX_STATUS_INTERNAL, "a library call with %d buffers; the maximum is %d",
                     nbuffers, FXI_GPU_BUFFERS);
    fxi_gpu_call *c = add(b, nbuffers, 0);
    if (!c) {
        /* The entry would have owned the state. */
        routine->release(b->device, state);
        return &b->unused;
    }
    c->routine = routine;
    c->state = state;
    c->calls = 1;
    return c;
}

fxi_gpu_call *fxi_gpu_add_each(fxi_gpu_builder *b, int64_t n)
{
    fxi_gpu_call *c = fxi_gpu_add(b);
    fxi_gpu_param(c, 0, n);
    c->groups[0] = fxi_gpu_divide_up(n, (int64_t)fxi_gpu_each(b) * FXI_GPU_GROUP);
    return c;
}

void fxi_gpu_buffer(fxi_gpu_call *c, int buffer, fxi_gpu_role role, int64_t k)
{
    if (buffer < c->nbuffers)
        c->buffers[buffer] = (fxi_gpu_buffer_ref){.k = k, .role = role};
    /* After a launch that may write fault words, the next call that waits reads them. */
    c->checks |= role == FXI_GPU_FAULT;
}

void fxi_gpu_param(fxi_gpu_call *c, int param, int64_t value)
{
    if (param >= c->nparams)
        return;
    if (c->wide) {
        ((int64_t *)c->params)[param] = value;
        return;
    }
    ((int32_t *)c->params)[param] = (int32_t)value;
    /* Reported in check_call, as a wrong choice of the index type. */
    c->too_large |= value != (int32_t)value;
}

/* Sign-extended for 32-bit kernels: a value beyond int32_t would count as too large. */
void fxi_gpu_bits(fxi_gpu_call *c, int param, uint32_t bits)
{
    fxi_gpu_param(c, param, c->wide ? (int64_t)bits : (int64_t)(int32_t)bits);
}

int64_t fxi_gpu_work(fxi_gpu_builder *b, int64_t bytes)
{
    int64_t *way = &b->ways.work[b->way];
    const int64_t at = *way;
    /* Multiples of 64 bytes, so every array in work space is aligned like a buffer. */
    *way += (bytes + 63) / 64 * 64;
    return at;
}

/* ---- ways ------------------------------------------------------------------------------------ */
/* `name` is that of the first way. */
static void set_key(fxi_gpu_builder *b, const char *key, int32_t name)
{
    const size_t size = strlen(key) + 1;
    b->ways.key = b->status ? NULL : b->runtime->host->alloc(size);
    if (!b->ways.key) {
        fxi_gpu_no_memory(b);
        return;
    }
    memcpy(b->ways.key, key, size);
    b->ways.names[0] = name;
}

void fxi_gpu_compare(fxi_gpu_builder *b, const fxi_gpu_trial *trial, const char *key, int32_t name)
{
    set_key(b, key, name);
    b->ways.trial = trial;
}

void fxi_gpu_follow(fxi_gpu_builder *b, const char *key, int32_t instead)
{
    set_key(b, key, instead);
    b->ways.followed = true;
}

/* More ways than FXI_GPU_WAYS are left out: the list of names is a part of the builder. */
void fxi_gpu_other_way(fxi_gpu_builder *b, int32_t name)
{
    if (!b->status && b->way + 1 < FXI_GPU_WAYS)
        b->ways.names[++b->way] = name;
}

/* ---- prepare and release --------------------------------------------------------------------- */
/* Calls of libraries whose states stay until the process ends, because the gate is closed. The list
 * keeps them reachable, so that tools do not report them as leaks. */
static fxi_gpu_call *kept;

static void keep(fxi_gpu_call *c)
{
    c->next = __atomic_load_n(&kept, __ATOMIC_RELAXED);
    while (
        !__atomic_compare_exchange_n(&kept, &c->next, c, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
}

/* device NULL: the gate is closed, so no library may be called. */
static void free_calls(const fxi_gpu_runtime *runtime, fx_device *device, fxi_gpu_call *c)
{
    for (fxi_gpu_call *next; c; c = next) {
        next = c->next;
        if (c->routine && !device) {
            keep(c);
            continue;
        }
        if (c->routine)
            c->routine->release(device, c->state);
        runtime->host->free(c);
    }
}

/* Checked before any text is built, so that the message names the device and not a compiler's
 * error. */
static bool has_f64(const fx_step *s)
{
    bool f64 = s->out.dtype == FX_DTYPE_F64;
    for (int32_t k = 0; k < s->nin; k++)
        f64 |= s->in[k].dtype == FX_DTYPE_F64;
    const fx_program p = fx_step_program(s);
    for (int32_t k = 0; k < p.n; k++)
        f64 |= p.instr[k].dtype == FX_DTYPE_F64;
    return f64;
}

static void build(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    if (has_f64(s) && !b->limits->f64)
        fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED, "%s has no Float64", b->device->name);
    /* The vendor library first: it may also leave the step to the kernels. */
    else if (b->runtime->library && b->runtime->library(b))
        return;
    else if (s->cls >= sizeof kinds / sizeof *kinds || !kinds[s->cls])
        fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED, "%s does not support this operation",
                     b->device->name);
    else
        kinds[s->cls](b);
}

/* Verifies the sizes of a launch: more groups than the device can launch would fail only when it
 * runs. */
static void check_call(fxi_gpu_builder *b, const fxi_gpu_call *c)
{
    if (c->too_large)
        fxi_gpu_fail(b, FX_STATUS_INTERNAL,
                     "a parameter of a kernel with 32-bit indices does not fit in 32 bits");
    for (int k = 0; k < 3 && !c->routine; k++) {
        const int64_t items = k == 0 ? c->group : 1;
        if (c->groups[k] < 1)
            fxi_gpu_fail(b, FX_STATUS_INTERNAL, "a launch without groups");
        if (c->groups[k] > b->limits->groups[k] ||
            (b->limits->items > 0 && c->groups[k] > b->limits->items / items))
            fxi_gpu_too_much(b,
                             "%lld groups of %d work-items are too many for one launch on %s: "
                             "compute the operation in parts",
                             (long long)c->groups[k], (int)c->group, b->device->name);
    }
}

/* The same limits as check_call's, without a failure: the first way computes the step anyway. */
static bool can_launch(const fxi_gpu_builder *b, const fxi_gpu_call *c)
{
    bool can = !c->too_large;
    for (int k = 0; k < 3 && !c->routine; k++)
        can = can && c->groups[k] >= 1 && c->groups[k] <= b->limits->groups[k] &&
              (b->limits->items <= 0 || c->groups[k] <= b->limits->items / (k ? 1 : c->group));
    return can;
}

/* Returns bits of the ways that cannot be launched or have no launch. The first way must work. */
static uint32_t check_calls(fxi_gpu_builder *b)
{
    uint32_t useless = 0;
    for (int32_t way = 1; way <= b->way; way++) {
        const fxi_gpu_call *c = b->first;
        while (c && c->way != way)
            c = c->next;
        useless |= c ? 0 : 1u << way;
    }
    for (const fxi_gpu_call *c = b->first; c; c = c->next)
        if (c->way == 0)
            check_call(b, c);
        else if (!can_launch(b, c))
            useless |= 1u << c->way;
    return useless;
}

/* Only one way runs at a time, so they share the memory. */
static void set_work(fx_step *step)
{
    const struct ready *r = step->ready;
    step->work_bytes = 0;
    for (int32_t way = 0; way < r->nways; way++)
        if (!(r->useless & 1u << way) && r->ways.work[way] > step->work_bytes)
            step->work_bytes = r->ways.work[way];
}

fx_status fxi_gpu_prepare(const fxi_gpu_runtime *runtime, fx_device *device, fx_step *step)
{
    fxi_gpu_builder b = {
        .runtime = runtime, .device = device, .limits = runtime->limits(device), .step = step};
    b.last = &b.first;
    step->ready = NULL;
    build(&b);
    const uint32_t useless = check_calls(&b);
    /* The texts of all kernels of the step were built in this memory. */
    runtime->host->free(b.text);
    struct ready *r = b.status ? NULL : runtime->host->alloc(sizeof *r);
    if (!r) {
        fxi_gpu_no_memory(&b);
        /* The planner may prepare a smaller step next; nothing of this one is kept. */
        free_calls(runtime, device, b.first);
        runtime->host->free(b.ways.key);
        return b.status;
    }
    *r = (struct ready){.first = b.first,
                        .way = b.way > 0 ? UNDECIDED : 0,
                        .nways = b.way + 1,
                        .useless = useless,
                        .ways = b.ways};
    step->ready = r;
    set_work(step);
    return FX_OK;
}

/* ---- compile --------------------------------------------------------------------------------- */
static fxi_gpu_call *calls_of(const fx_step *step)
{
    const struct ready *r = step->ready;
    return r ? r->first : NULL;
}

/* The first launch of a kernel of the step from c on. Library calls have nothing to compile, and
 * useless ways are never launched. */
static fxi_gpu_call *kernel_from(const fx_step *step, fxi_gpu_call *c)
{
    const struct ready *r = step->ready;
    while (c && (c->routine || r->useless & 1u << c->way))
        c = c->next;
    return c;
}

static fxi_gpu_call *first_kernel(const fx_step *step)
{
    return kernel_from(step, calls_of(step));
}

static int count_kernels(const fx_step *steps, int32_t n)
{
    int count = 0;
    for (const fx_step *s = steps; s < steps + n; s++)
        for (const fxi_gpu_call *c = first_kernel(s); c; c = kernel_from(s, c->next))
            count++;
    return count;
}

static void list_kernels(const fx_step *steps, int32_t n, void **kernels)
{
    for (const fx_step *s = steps; s < steps + n; s++)
        for (const fxi_gpu_call *c = first_kernel(s); c; c = kernel_from(s, c->next))
            *kernels++ = c->kernel;
}

static void put_kernels(const fx_step *steps, int32_t n, void *const *kernels)
{
    for (const fx_step *s = steps; s < steps + n; s++)
        for (fxi_gpu_call *c = first_kernel(s); c; c = kernel_from(s, c->next))
            c->kernel = *kernels++;
}

/* The launch of kernel k, counted over all steps, and its step. Needed only after a failure, so it
 * counts again, and no list of owners is kept. */
static const fxi_gpu_call *launch_of(const fx_step *steps, int k, int32_t *out_step)
{
    int32_t i = 0;
    while (k >= count_kernels(&steps[i], 1))
        k -= count_kernels(&steps[i++], 1);
    *out_step = i;
    const fxi_gpu_call *c = first_kernel(&steps[i]);
    while (k-- > 0)
        c = kernel_from(&steps[i], c->next);
    return c;
}

/* All kernels of a plan are compiled in one call, so that several threads can share them. */
static fx_status compile_all(const fxi_gpu_runtime *runtime, fx_device *device, fx_step *steps,
                             int32_t n, int *out_failed)
{
    /* Drivers without `compile` have compiled each kernel in fxi_gpu_prepare. */
    const int count = runtime->compile ? count_kernels(steps, n) : 0;
    if (count == 0)
        return FX_OK;
    void **kernels = runtime->host->alloc((size_t)count * sizeof *kernels);
    if (!kernels)
        return runtime->host->fail(FX_STATUS_MEMORY, "compile", "out of host memory");
    list_kernels(steps, n, kernels);
    const fx_status status = runtime->compile(device, kernels, count, out_failed);
    if (status == FX_OK)
        put_kernels(steps, n, kernels);
    runtime->host->free(kernels);
    return status;
}

/* A kernel of the step cannot be compiled: leaves its way out, or prepares the step in another way.
 * Returns the failure if there is no other way. */
static fx_status do_without(const fxi_gpu_runtime *runtime, fx_device *device, fx_step *step,
                            int32_t way, fx_status failure)
{
    struct ready *r = step->ready;
    if (way == 0 &&
        !(r->ways.followed && fxi_gpu_way_change(runtime->host, r->ways.key, r->ways.names[0])))
        return failure;
    runtime->host->error_take();
    if (way > 0) {
        r->useless |= 1u << way;
        set_work(step);
        return FX_OK;
    }
    fxi_gpu_release(runtime, device, step);
    return fxi_gpu_prepare(runtime, device, step);
}

/* If a kernel cannot be compiled but its step can do without it, all kernels are compiled again. */
fx_status fxi_gpu_compile(const fxi_gpu_runtime *runtime, fx_device *device, fx_step *steps,
                          int32_t n, int32_t *out_step)
{
    const fx_error earlier = runtime->host->error_take();
    fx_status status;
    for (;;) {
        int failed = -1;
        status = compile_all(runtime, device, steps, n, &failed);
        if (!status || failed < 0)
            break;
        const int32_t way = launch_of(steps, failed, out_step)->way;
        status = do_without(runtime, device, &steps[*out_step], way, status);
        if (status)
            break;
    }
    /* A thread's error record has its first failure. */
    if (!status || earlier.status)
        runtime->host->error_take();
    if (earlier.status)
        runtime->host->error_put(&earlier);
    return status;
}

void fxi_gpu_release(const fxi_gpu_runtime *runtime, fx_device *device, fx_step *step)
{
    struct ready *r = step->ready;
    if (r) {
        free_calls(runtime, device, r->first);
        runtime->host->free(r->ways.key);
    }
    runtime->host->free(r);
    step->ready = NULL;
}

/* A library call may do more than queue work, such as wait, and then a driver cannot record it. */
bool fxi_gpu_captures(const fx_step *step)
{
    bool all = true;
    for (const fxi_gpu_call *c = calls_of(step); c; c = c->next)
        all &= !c->routine || c->routine->captures;
    return all;
}

int32_t fxi_gpu_count_launches(const fx_step *step, int32_t *out_library)
{
    const struct ready *r = step->ready;
    const int32_t way = r && r->way != UNDECIDED ? r->way : 0;
    int32_t kernels = 0;
    *out_library = 0;
    for (const fxi_gpu_call *c = calls_of(step); c; c = c->next) {
        if (c->way != way)
            continue;
        kernels += !c->routine;
        *out_library += c->calls;
    }
    return kernels + *out_library;
}

bool fxi_gpu_checks(const fx_step *step)
{
    bool any = false;
    for (const fxi_gpu_call *c = calls_of(step); c; c = c->next)
        any |= c->checks;
    return any;
}

/* ---- run ------------------------------------------------------------------------------------- */
typedef struct run_buffers {
    const fx_step *step;
    const void *const *in;
    void *out;
    const fx_run *run;
    void *faults;
} run_buffers;

static void *output(const run_buffers *p, int64_t k)
{
    /* Foreach steps have a list of outputs; other steps one output and further ones. */
    if (p->step->cls == FX_CLASS_FOREACH)
        return p->run->outputs[k];
    return k == 0 ? p->out : p->run->more[k - 1];
}

static void *address(const run_buffers *p, const fxi_gpu_buffer_ref *ref)
{
    switch (ref->role) {
    case FXI_GPU_IN:
        return (void *)(uintptr_t)p->in[ref->k];
    case FXI_GPU_OUT:
        return output(p, ref->k);
    case FXI_GPU_WORK:
        return (char *)p->run->work + ref->k;
    case FXI_GPU_STREAMS:
        return (void *)(uintptr_t)p->run->streams;
    default:
        return p->faults;
    }
}

static fx_status launch(const fxi_gpu_runtime *runtime, fx_device *device, const fxi_gpu_call *c,
                        const run_buffers *p)
{
    /* On the stack, so that a run allocates nothing. */
    void *buffers[FXI_GPU_BUFFERS + FXI_GPU_TABLE];
    for (int32_t k = 0; k < c->nbuffers; k++)
        buffers[k] = address(p, &c->buffers[k]);
    if (c->routine)
        return c->routine->run(device, c->state, buffers, fx_op_name(p->step->op));
    fxi_gpu_launch l = {
        .operation = fx_op_name(p->step->op),
        .kernel = c->kernel,
        .groups = {(uint32_t)c->groups[0], (uint32_t)c->groups[1], (uint32_t)c->groups[2]},
        .group = c->group,
        .nbuffers = c->nbuffers - c->ntable,
        .buffers = buffers,
        .ntable = c->ntable,
        .params = c->params,
        .param_bytes = (size_t)c->nparams * (c->wide ? sizeof(int64_t) : sizeof(int32_t)),
        .checks = c->checks,
        .asked_memory = c->asked_memory};
    return runtime->launch(device, &l);
}

static fx_status run_way(const fxi_gpu_runtime *runtime, fx_device *device, int32_t way,
                         run_buffers *p)
{
    const struct ready *r = p->step->ready;
    fx_status status = FX_OK;
    for (const fxi_gpu_call *c = r->first; c && !status; c = c->next) {
        if (c->way != way)
            continue;
        /* Only launches that check indices need the fault words, which are allocated on first use.
         */
        p->faults = c->checks ? runtime->faults(device) : NULL;
        status = launch(runtime, device, c, p);
    }
    return status;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Rounds, of which the fastest counts, and the runs of a round, which are measured together:
 * several runs are queued before the host waits, so that its own time counts little. When the
 * rounds of all ways have taken LIMIT seconds, each of the remaining ways has a single round. A way
 * other than the first is left out if its first run, in which a library may load kernels, takes
 * LONGEST seconds. */
enum { ROUNDS = 2, MEASURED = 2 };
#define LIMIT   0.05
#define LONGEST 1.0

/* Measures `runs` runs together. False if the device failed, which the caller's next call reports.
 */
static bool time_round(const fxi_gpu_runtime *runtime, fx_device *device, int32_t way, int runs,
                       run_buffers *p, fx_status *out_status, double *out_seconds)
{
    const struct ready *r = p->step->ready;
    bool ok = r->ways.trial->start(device) == 0;
    *out_status = FX_OK;
    for (int k = 0; k < runs && ok; k++) {
        *out_status = run_way(runtime, device, way, p);
        ok = !*out_status;
    }
    return ok && r->ways.trial->stop(device, out_seconds) == 0;
}

/* The time of the fastest round in seconds; less than 0 if the device failed or the way is left
 * out. Adds what all rounds take to *spent. */
static double time_runs(const fxi_gpu_runtime *runtime, fx_device *device, int32_t way,
                        run_buffers *p, double *spent, fx_status *out_status)
{
    double best = -1, seconds;
    /* The first run does not count: drivers and libraries load kernels in it. */
    if (!time_round(runtime, device, way, 1, p, out_status, &seconds) ||
        (way > 0 && seconds >= LONGEST))
        return -1;
    for (int round = 0; round < ROUNDS && (round == 0 || *spent < LIMIT); round++) {
        if (!time_round(runtime, device, way, MEASURED, p, out_status, &seconds))
            return -1;
        *spent += seconds;
        best = best < 0 || seconds < best ? seconds : best;
    }
    return best;
}

/* A library may refuse a call that it has prepared. Without the first way the step fails; others
 * are left out, and their error is dropped. */
static double time_way(const fxi_gpu_runtime *runtime, fx_device *device, int32_t way,
                       run_buffers *p, double *spent, fx_status *out_status)
{
    if (way == 0)
        return time_runs(runtime, device, way, p, spent, out_status);
    const fx_error earlier = runtime->host->error_take();
    const double seconds = time_runs(runtime, device, way, p, spent, out_status);
    runtime->host->error_take();
    runtime->host->error_put(&earlier);
    *out_status = FX_OK;
    return seconds;
}

/* A later way must save a tenth of the time, so that processes decide alike where ways are equal.
 */
static bool is_faster(double seconds, double best)
{
    return seconds >= 0 && (best < 0 || seconds < 0.9 * best);
}

/* Another step may have decided since this one was prepared. */
static bool already_decided(const fxi_gpu_runtime *runtime, struct ready *r)
{
    int32_t name;
    if (!fxi_gpu_way_known(runtime->host, r->ways.key, &name))
        return false;
    for (int32_t way = 0; way < r->nways; way++)
        if (r->ways.names[way] == name && !(r->useless & 1u << way))
            r->way = way;
    return r->way != UNDECIDED;
}

/* Measures all ways with the buffers of this run, whose output the caller then computes again. */
static fx_status measure(const fxi_gpu_runtime *runtime, fx_device *device, run_buffers *p)
{
    struct ready *r = p->step->ready;
    double best = -1, spent = 0;
    int32_t fastest = 0;
    for (int32_t way = 0; way < r->nways; way++) {
        fx_status status;
        if (r->useless & 1u << way)
            continue;
        const double seconds = time_way(runtime, device, way, p, &spent, &status);
        if (status)
            return status;
        if (is_faster(seconds, best)) {
            best = seconds;
            fastest = way;
        }
    }
    if (best >= 0)
        fxi_gpu_way_remember(runtime->host, r->ways.key, r->ways.names[fastest]);
    /* Another device may have decided meanwhile. */
    if (best < 0 || !already_decided(runtime, r))
        r->way = fastest;
    return FX_OK;
}

static fx_status decide(const fxi_gpu_runtime *runtime, fx_device *device, run_buffers *p)
{
    struct ready *r = p->step->ready;
    if (already_decided(runtime, r))
        return FX_OK;
    /* Waiting for the device is an error while a driver records. */
    if (r->ways.trial->can(device))
        return measure(runtime, device, p);
    /* A driver records. run_plan records a plan only after a complete run, in which every step has
     * chosen its way; if a step is recorded before that, it uses the first way. */
    r->way = 0;
    return FX_OK;
}

fx_status fxi_gpu_run(const fxi_gpu_runtime *runtime, fx_device *device, const fx_step *step,
                      const void *const *in, void *out, fx_run *run)
{
    const struct ready *r = step->ready;
    run_buffers p = {.step = step, .in = in, .out = out, .run = run};
    const fx_status status = r->way == UNDECIDED ? decide(runtime, device, &p) : FX_OK;
    return status ? status : run_way(runtime, device, r->way, &p);
}

/* ---- faults ---------------------------------------------------------------------------------- */
/* The words are 1 + the operation, the index, the axis, and the size. */
fx_status fxi_gpu_fault_text(const int64_t words[FXI_GPU_FAULTS], char *text, size_t size)
{
    snprintf(text, size, "%s: index %lld is out of range for axis %lld of size %lld",
             fx_op_name((int)words[0] - 1), (long long)words[1], (long long)words[2],
             (long long)words[3]);
    return FX_STATUS_ARGUMENT;
}
