/* gpurt_dnn.c: which convolutions and gradients the vendor's library computes, and their calls; see
 * gpurt_dnn.h. docs/design/0050.
 */
#include "gpurt_dnn.h"

#include "gpu_text.h"

#include <stdio.h>

const char *fxi_rt_dnn_part(const char *name)
{
    return fxi_rt_library_part(fxi_rt_dnn.library, name);
}

/* ---- describing ------------------------------------------------------------------------------ */

/* The numbers of the operands that are x, w and y; −1: the output. */
static const struct {
    int x, w, y;
} operand_numbers[] = {
    [FX_CONV_FORWARD] = {0, 1, -1}, [FX_CONV_DATA] = {-1, 1, 0}, [FX_CONV_WEIGHT] = {0, -1, 1}};

static const fx_tensor *operand(const fx_step *s, int k)
{
    return k < 0 ? &s->out : &s->in[k];
}

/* The axes in reverse order. The libraries need at least two spatial axes: a single one gets an
 * axis of size 1 before it. */
static fxi_rt_shape reversed(const fx_tensor *t)
{
    const int more = t->ndim == 3;
    fxi_rt_shape r = {.n = t->ndim + more};
    for (int k = 0; k < t->ndim; k++) {
        const int from = t->ndim - 1 - k, to = k < 2 ? k : k + more;
        r.size[to] = (int)t->shape[from];
        r.stride[to] = (int)t->stride[from];
    }
    if (more) {
        r.size[2] = 1;
        r.stride[2] = (int)(t->shape[0] * t->stride[0]);
    }
    return r;
}

static fxi_rt_conv_about about_of(const fx_step *s)
{
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    const int n = a->spatial, more = n == 1;
    fxi_rt_conv_about o = {.x = reversed(operand(s, operand_numbers[a->kind].x)),
                           .w = reversed(operand(s, operand_numbers[a->kind].w)),
                           .y = reversed(operand(s, operand_numbers[a->kind].y)),
                           .dtype = s->out.dtype,
                           .space = n + more,
                           .stride = {1, 1, 1},
                           .dilation = {1, 1, 1},
                           .groups = a->groups,
                           .flips = !a->flipped && !fxi_rt_dnn.needs_flip,
                           .tf32 = s->out.dtype == FX_DTYPE_F32 &&
                                   fx_step_conv(s)->precision != FX_PRECISION_HIGHEST};
    /* A single spatial axis comes after the one that `reversed` adds. */
    for (int k = 0; k < n; k++) {
        o.pad[k + more] = a->before[n - 1 - k];
        o.stride[k + more] = a->stride[n - 1 - k];
        o.dilation[k + more] = a->dilation[n - 1 - k];
    }
    return o;
}

/* Only one thread at a time may use the handle, and another thread may be running a step. */
static int choose(fxi_rt_device *d, fxi_rt_conv *c)
{
    fxi_mutex_lock(&d->gpu.lock);
    const int error = fxi_rt_dnn.choose(d, c);
    fxi_mutex_unlock(&d->gpu.lock);
    return error;
}

/* ---- running --------------------------------------------------------------------------------- */

enum { FIRST, SECOND, OUT, WORK };

static void release(fx_device *device, void *state)
{
    (void)device;
    fxi_rt_dnn.release(state);
    fxi_rt_host->free(state);
}

static fx_status run(fx_device *device, void *state, void *const *buffers, const char *operation)
{
    fxi_rt_device *d = fxi_rt_of(device);
    const fxi_rt_conv *c = state;
    const fxi_rt_conv_at at = {buffers[FIRST], buffers[SECOND], buffers[OUT],
                               c->work ? buffers[WORK] : NULL};
    const char *call = "";
    const fx_status status = fxi_rt_library_enter(d, operation);
    if (status)
        return status;
    const int error = fxi_rt_dnn.run(d, c, &at, &call);
    return error ? fxi_rt_library_fail(d, operation, call, fxi_rt_dnn.error_name(error)) : FX_OK;
}

static const fxi_gpu_routine routine = {.run = run, .release = release, .captures = true};

/* ---- which steps ----------------------------------------------------------------------------- */

/* Are all strides positive, and sizes and distances small enough for 32-bit numbers? */
static bool plain(const fx_tensor *t)
{
    int64_t far = 1;
    bool ok = fx_tensor_length(t) > 0 && fx_tensor_length(t) <= INT32_MAX;
    for (int k = 0; k < t->ndim; k++) {
        ok = ok && t->shape[k] <= INT32_MAX && (t->shape[k] == 1 || t->stride[k] > 0);
        far += (t->shape[k] - 1) * (ok ? t->stride[k] : 0);
    }
    return ok && far <= INT32_MAX && t->stride[0] >= 0;
}

static bool is_dense(const fx_tensor *t)
{
    return fxi_is_dense(t->ndim, t->shape, t->stride);
}

/* A library pads both ends by the same number and computes the size of y itself, so other steps are
 * refused. In the gradient of the weights a library multiplies the zeros of the padding by gy,
 * which gives NaN if gy is infinite; cflux promises not to use these terms, so kernels after the
 * call look for such numbers and then compute the weights again. */
static bool takes(const fx_step *s)
{
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    const fx_tensor *x = operand(s, operand_numbers[a->kind].x),
                    *w = operand(s, operand_numbers[a->kind].w),
                    *y = operand(s, operand_numbers[a->kind].y);
    const int type = s->out.dtype;
    bool ok = type == FX_DTYPE_F64 || type == FX_DTYPE_F32 || type == FX_DTYPE_F16 ||
              type == FX_DTYPE_BF16;
    ok = ok && plain(x) && plain(y) && plain(w) && is_dense(w);
    ok = ok && (!fxi_rt_dnn.needs_dense || (is_dense(x) && is_dense(y)));
    for (int k = 0; k < a->spatial; k++) {
        const int64_t over =
            x->shape[k] + 2 * (int64_t)a->before[k] - (w->shape[k] - 1) * a->dilation[k] - 1;
        ok = ok && over >= 0 && over / a->stride[k] + 1 == y->shape[k];
    }
    return ok && (!fxi_gpu_repairs(s) || fxi_gpu_can_repair(s));
}

/* If the windows of the weights must be reversed, returns the number of elements of a window, which
 * are neighbours in memory. Otherwise returns 0. */
static int64_t reversed_window(const fx_step *s)
{
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    const fx_tensor *w = operand(s, operand_numbers[a->kind].w);
    int64_t window = 1;
    for (int k = 0; k < a->spatial; k++)
        window *= w->shape[k];
    return fxi_rt_dnn.needs_flip && !a->flipped && window > 1 ? window : 0;
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* Strides of channels-last memory: C, then the spatial axes, then N. The same for weights. */
static void channels_last_strides(const fx_tensor *t, int64_t *stride)
{
    const int channels = t->ndim - 2;
    int64_t next = t->shape[channels];
    stride[channels] = 1;
    for (int k = 0; k < t->ndim; k++)
        if (k != channels) {
            stride[k] = next;
            next *= t->shape[k];
        }
}

/* Copies between an operand or the output and work space with channels last. */
static void copy_channels_last(fxi_gpu_builder *b, fxi_gpu_buffer_ref at, fxi_gpu_buffer_ref work)
{
    const fx_tensor *t = operand(b->step, at.role == FXI_GPU_OUT ? -1 : (int)at.k);
    int64_t channels_last[FX_MAX_DIMS];
    channels_last_strides(t, channels_last);
    const fxi_gpu_side own = {.buffer = at, .stride = t->stride},
                       copy = {.buffer = work, .stride = channels_last};
    const bool out = at.role == FXI_GPU_OUT;
    fxi_gpu_copy(b, t->ndim, t->shape, fxi_gpu_size(t->dtype), out ? &copy : &own,
                 out ? &own : &copy);
}

/* Adds the call, with copies of both operands and of the output in channels-last order. */
static void add_channels_last(fxi_gpu_builder *b, fxi_rt_conv *c)
{
    static const fxi_gpu_buffer_ref own[] = {
        [FIRST] = {0, FXI_GPU_IN}, [SECOND] = {1, FXI_GPU_IN}, [OUT] = {0, FXI_GPU_OUT}};
    const int64_t bytes = (int64_t)c->work;
    fxi_gpu_buffer_ref work[OUT + 1];
    for (int k = FIRST; k <= OUT; k++) {
        const fx_tensor *t = operand(b->step, k == OUT ? -1 : k);
        const int64_t size = fx_tensor_length(t) * (int64_t)fxi_gpu_size(t->dtype);
        work[k] = (fxi_gpu_buffer_ref){fxi_gpu_work(b, size), FXI_GPU_WORK};
        if (k != OUT)
            copy_channels_last(b, own[k], work[k]);
    }
    fxi_gpu_call *call = fxi_gpu_add_routine(b, &routine, c, WORK + (bytes > 0));
    for (int k = FIRST; k <= OUT; k++)
        fxi_gpu_buffer(call, k, FXI_GPU_WORK, work[k].k);
    if (bytes > 0)
        fxi_gpu_buffer(call, WORK, FXI_GPU_WORK, fxi_gpu_work(b, bytes));
    copy_channels_last(b, own[OUT], work[OUT]);
    if (fxi_gpu_repairs(b->step))
        fxi_gpu_repair(b);
}

/* Adds the call. It uses the step's own buffer of w or a reversed copy; a gradient of the weights
 * is reversed after the call. */
static void add(fxi_gpu_builder *b, fxi_rt_conv *c)
{
    const fx_step *s = b->step;
    const int64_t window = reversed_window(s);
    const fx_tensor *w = operand(s, operand_numbers[c->kind].w);
    const int64_t length = fx_tensor_length(w);
    const int64_t copy = window ? fxi_gpu_work(b, length * (int64_t)fxi_gpu_size(w->dtype)) : 0;
    const fxi_gpu_buffer_ref reversed_w = {copy, FXI_GPU_WORK};
    if (window && c->kind != FX_CONV_WEIGHT)
        fxi_gpu_reverse(b, (fxi_gpu_buffer_ref){1, FXI_GPU_IN}, reversed_w, length, window);
    fxi_gpu_call *call = fxi_gpu_add_routine(b, &routine, c, WORK + (c->work > 0));
    fxi_gpu_buffer(call, FIRST, FXI_GPU_IN, 0);
    fxi_gpu_buffer(call, SECOND, FXI_GPU_IN, 1);
    fxi_gpu_buffer(call, OUT, FXI_GPU_OUT, 0);
    if (window)
        fxi_gpu_buffer(call, c->kind == FX_CONV_WEIGHT ? OUT : SECOND, FXI_GPU_WORK, copy);
    if (c->work > 0)
        fxi_gpu_buffer(call, WORK, FXI_GPU_WORK, fxi_gpu_work(b, (int64_t)c->work));
    if (window && c->kind == FX_CONV_WEIGHT)
        fxi_gpu_reverse(b, reversed_w, (fxi_gpu_buffer_ref){0, FXI_GPU_OUT}, length, window);
    if (fxi_gpu_repairs(s))
        fxi_gpu_repair(b);
}

/* ---- the library or kernels ------------------------------------------------------------------ */

/* The names of the ways to compute a step (fxi_gpu_compare). */
enum { BY_KERNELS, BY_LIBRARY, CHANNELS_LAST };

/* May cflux's kernel be faster than the library's? It uses no matrix units, so only for Float64 and
 * exact Float32, or where few channels leave these units idle. */
static bool competes(fxi_rt_device *d, const fx_step *s)
{
    enum { FEW_CHANNELS = 16 };
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    const fx_tensor *w = operand(s, operand_numbers[a->kind].w);
    const bool exact = s->out.dtype == FX_DTYPE_F64 ||
                       (s->out.dtype == FX_DTYPE_F32 &&
                        fx_step_conv(s)->precision == FX_PRECISION_HIGHEST),
               few = w->shape[a->spatial] < FEW_CHANNELS ||
                     w->shape[a->spatial + 1] / a->groups < FEW_CHANNELS;
    return (exact || few) && fxi_rt_measures(d);
}

static void append_numbers(char *text, const char *name, const int *numbers, int n)
{
    fxi_rt_append(text, " %s", name);
    for (int k = 0; k < n; k++)
        fxi_rt_append(text, "%c%d", k ? ',' : ' ', numbers[k]);
}

static void append_shape(char *text, const char *name, const fxi_rt_shape *t)
{
    append_numbers(text, name, t->size, t->n);
    append_numbers(text, "by", t->stride, t->n);
}

/* May the library be faster with channels last? Its kernels for exact Float32 with channels first
 * are slow, most of all those of the gradient of the weights. The copies take at most a sixteenth
 * of the device's memory. */
static bool tries_channels_last(const fxi_rt_device *d, const fx_step *s)
{
    enum { MANY_CHANNELS = 32 };
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    const fx_tensor *w = operand(s, operand_numbers[a->kind].w);
    const int64_t elements =
        fx_tensor_length(&s->out) + fx_tensor_length(&s->in[0]) + fx_tensor_length(&s->in[1]);
    return s->out.dtype == FX_DTYPE_F32 && fx_step_conv(s)->precision == FX_PRECISION_HIGHEST &&
           !fxi_rt_dnn.needs_dense && a->spatial == 2 && a->groups == 1 &&
           w->shape[a->spatial] >= MANY_CHANNELS && w->shape[a->spatial + 1] >= MANY_CHANNELS &&
           elements * (int64_t)sizeof(float) <= d->memory / 16;
}

/* The same convolution with channels last. Axes of the library: N, C, H, W. */
static fxi_rt_conv_about about_channels_last(const fxi_rt_conv_about *about)
{
    fxi_rt_conv_about a = *about;
    fxi_rt_shape *const t[] = {&a.x, &a.y};
    a.channels_last = true;
    for (int k = 0; k < 2; k++) {
        int next = t[k]->size[1];
        t[k]->stride[1] = 1;
        for (int d = t[k]->n - 1; d >= 0; d--)
            if (d != 1) {
                t[k]->stride[d] = next;
                next *= t[k]->size[d];
            }
    }
    return a;
}

/* Everything on which the fastest way depends. */
static void write_key(const fxi_rt_device *d, const fx_step *s, const fxi_rt_conv_about *a,
                      char text[FXI_RT_KEY_BYTES])
{
    const long long version = fxi_rt_dnn.version ? (long long)fxi_rt_dnn.version() : 0;
    snprintf(text, FXI_RT_KEY_BYTES,
             "convolution %d, %s, driver %s, %s %lld, type %d, groups %d, flips %d, tf32 %d,",
             (int)fx_step_conv(s)->attr.kind, d->gpu.name, d->driver, fxi_rt_dnn.library->names[0],
             version, a->dtype, a->groups, a->flips, a->tf32);
    append_shape(text, "x", &a->x);
    append_shape(text, "w", &a->w);
    append_shape(text, "y", &a->y);
    append_numbers(text, "pad", a->pad, a->space);
    append_numbers(text, "stride", a->stride, a->space);
    append_numbers(text, "dilation", a->dilation, a->space);
}

static void say_unprepared(int error)
{
    char why[160];
    snprintf(why, sizeof why, "%s cannot prepare a convolution (%s)", fxi_rt_dnn.library->names[0],
             fxi_rt_dnn.error_name(error));
    fxi_rt_library_warn(fxi_rt_dnn.library, why);
}

/* Adds the library's call. False, with nothing added, if the library cannot compute the step. */
static bool add_library(fxi_gpu_builder *b, const fxi_rt_conv_about *about)
{
    fxi_rt_device *d = fxi_rt_of(b->device);
    fxi_rt_conv *c = fxi_rt_select(d) == 0 ? fxi_rt_host->alloc(sizeof *c) : NULL;
    if (!c)
        return false;
    *c = (fxi_rt_conv){.kind = fx_step_conv(b->step)->attr.kind,
                       .f64 = b->step->out.dtype == FX_DTYPE_F64};
    int error = fxi_rt_dnn.describe(c, about);
    if (!error)
        error = choose(d, c);
    if (!error) {
        (about->channels_last ? add_channels_last : add)(b, c);
        return true;
    }
    if (!about->channels_last && !fxi_rt_dnn.unsupported(error))
        say_unprepared(error);
    release(b->device, c);
    return false;
}

/* Adds the other ways; the library's way has been added first. */
static void add_ways(fxi_gpu_builder *b, const fxi_rt_conv_about *about, const char *key)
{
    fxi_gpu_compare(b, &fxi_rt_trial, key, BY_LIBRARY);
    fxi_gpu_other_way(b, BY_KERNELS);
    fxi_gpu_conv(b);
    if (!tries_channels_last(fxi_rt_of(b->device), b->step))
        return;
    const fxi_rt_conv_about channels_last = about_channels_last(about);
    fxi_gpu_other_way(b, CHANNELS_LAST);
    /* If the library refuses the convolution, the way is empty and is left out. */
    (void)add_library(b, &channels_last);
}

bool fxi_rt_dnn_step(fxi_gpu_builder *b)
{
    fxi_rt_device *d = fxi_rt_of(b->device);
    char key[FXI_RT_KEY_BYTES];
    int32_t way = BY_LIBRARY;
    if (!takes(b->step) || !fxi_rt_library_has(fxi_rt_dnn.library, d, &d->dnn))
        return false;
    fxi_rt_conv_about about = about_of(b->step);
    const bool compares = competes(d, b->step);
    if (compares)
        write_key(d, b->step, &about, key);
    const bool known = compares && fxi_gpu_way_known(fxi_rt_host, key, &way);
    if (known && way == BY_KERNELS) {
        /* The caller adds the kernels. If one of them cannot be compiled, the library computes. */
        fxi_gpu_follow(b, key, BY_LIBRARY);
        return false;
    }
    if (fx_step_has_epilogue(b->step)) {
        /* The planner then makes a step of the convolution and one of the epilogue
         * (fxi_gpu_too_much), so no kernels are added here. */
        fxi_gpu_too_much(b, "an epilogue that the library does not compute");
        return true;
    }
    const fxi_rt_conv_about channels_last = about_channels_last(&about);
    if (known && way == CHANNELS_LAST && tries_channels_last(d, b->step) &&
        add_library(b, &channels_last)) {
        fxi_gpu_follow(b, key, BY_LIBRARY);
        return true;
    }
    if (!add_library(b, &about))
        return false;
    if (compares && !known)
        add_ways(b, &about, key);
    return true;
}
