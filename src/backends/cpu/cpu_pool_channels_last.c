/* cpu_pool_channels_last.c: pooling of channels-last Float32 arrays, all kinds.
 *
 * Windows are taken one after the other, each for all channels at once: its taps inside the array
 * are runs of channels. Their offsets are listed for the loop that does the work
 * (cpu_isa_pool_channels_last.h). Where windows tile the array, gradients are stored and not added,
 * so the output needs no zeros first. Threads share the images.
 */
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

/* 4 KiB of offsets on the stack. */
enum { MOST_TAPS = 512 };

typedef struct pooling {
    const fx_pool_attr *a;
    int64_t x[3], y[3], channels, images;
    int64_t x_image, y_image; /* elements */
    fxi_pool_window window;
    float *xs, *vs, *ys; /* the first image of the arrays that the window reads and writes */
    void (*run)(const fxi_pool_window *w);
    int64_t parts;
} pooling;

/* The taps of a window along an axis that are inside the array, [*lo, *hi). Returns where tap 0
 * is. */
static int64_t inside(const pooling *p, int axis, int64_t position, int64_t *lo, int64_t *hi)
{
    /* Axes that do not exist have one tap. */
    if (axis >= p->a->spatial) {
        *lo = 0;
        *hi = 1;
        return 0;
    }
    const int64_t first = position * p->a->stride[axis] - p->a->before[axis];
    const int64_t dilation = p->a->dilation[axis], size = p->x[axis];
    *lo = first < 0 ? (-first + dilation - 1) / dilation : 0;
    *hi = first >= size ? 0 : (size - 1 - first) / dilation + 1;
    *hi = *hi < p->a->window[axis] ? *hi : p->a->window[axis];
    *lo = *lo < *hi ? *lo : *hi;
    return first;
}

static int64_t dilation(const pooling *p, int axis)
{
    return axis < p->a->spatial ? p->a->dilation[axis] : 1;
}

/* Lists the taps of the window at (i, j, k) of y that are inside, and returns their number. In the
 * order of the window, which decides between equal maxima. */
static int list_taps(const pooling *p, int64_t i, int64_t j, int64_t k, int64_t *tap)
{
    int64_t lo[3], hi[3];
    const int64_t at[3] = {inside(p, 0, i, &lo[0], &hi[0]), inside(p, 1, j, &lo[1], &hi[1]),
                           inside(p, 2, k, &lo[2], &hi[2])};
    int n = 0;
    for (int64_t c = lo[2]; c < hi[2]; c++)
        for (int64_t b = lo[1]; b < hi[1]; b++) {
            const int64_t line =
                p->x[0] * (at[1] + b * dilation(p, 1) + p->x[1] * (at[2] + c * dilation(p, 2)));
            for (int64_t a = lo[0]; a < hi[0]; a++)
                tap[n++] = (line + at[0] + a * dilation(p, 0)) * p->channels;
        }
    return n;
}

/* The taps are listed again for each window: at the border some are outside. */
static void run_image(const pooling *p, int64_t image)
{
    int64_t tap[MOST_TAPS];
    fxi_pool_window w = p->window;
    w.tap = tap;
    w.x = p->xs ? p->xs + image * p->x_image : NULL;
    w.v = p->vs ? p->vs + image * p->x_image : NULL;
    w.y = p->ys + image * p->y_image;
    for (int64_t k = 0; k < p->y[2]; k++)
        for (int64_t j = 0; j < p->y[1]; j++)
            for (int64_t i = 0; i < p->y[0]; i++, w.y += p->channels) {
                w.taps = list_taps(p, i, j, k, tap);
                p->run(&w);
            }
}

/* An image is the unit of work: its windows may overlap, and then their gradients must be added in
 * order. */
static void run_part(void *user, int64_t part)
{
    const pooling *p = user;
    int64_t from, to;
    fxi_cpu_range(p->images, p->parts, part, &from, &to);
    for (int64_t image = from; image < to; image++)
        run_image(p, image);
}

/* Do the windows cover each element of x exactly once? */
static bool tiles(const pooling *p)
{
    bool all = true;
    for (int d = 0; d < p->a->spatial; d++)
        all = all && p->a->stride[d] == p->a->window[d] && p->a->before[d] == 0 &&
              p->a->dilation[d] == 1 && p->y[d] * p->a->stride[d] == p->x[d];
    return all;
}

/* Tensors keep the logical order of axes (W, H, C, N), also in channels-last memory. */
static void set_sizes(pooling *p, const fx_tensor *x, const fx_tensor *y)
{
    p->window.count = 1;
    for (int d = 0; d < 3; d++) {
        const bool used = d < p->a->spatial;
        p->x[d] = used ? x->shape[d] : 1;
        p->y[d] = used ? y->shape[d] : 1;
        p->window.count *= used ? p->a->window[d] : 1;
    }
    p->channels = p->window.channels = x->shape[p->a->spatial];
    p->images = x->shape[p->a->spatial + 1];
    p->x_image = fxi_length(3, p->x) * p->channels;
    p->y_image = fxi_length(3, p->y) * p->channels;
}

/* Larger windows would not fit the list on the stack; they are computed in the usual order. */
bool fxi_cpu_pools_channels_last(const fx_step *step)
{
    const fx_pool_attr *a = &fx_step_pool(step)->attr;
    int64_t taps = 1;
    for (int d = 0; d < a->spatial; d++)
        taps *= a->window[d];
    const bool type = step->out.dtype == FX_DTYPE_F32 || fxi_cpu_is_half(step->out.dtype);
    return type && taps <= MOST_TAPS;
}

void fxi_cpu_pool_channels_last(const fx_step *step, const void *const *in, void *out)
{
    const int kind = fx_step_pool(step)->attr.kind;
    const bool grad = kind == FX_POOL_MAX_GRAD || kind == FX_POOL_MEAN_GRAD;
    float *const first = (float *)(uintptr_t)in[0], *const last = /* inputs are only read */
                                                    (float *)(uintptr_t)in[step->nin - 1];
    pooling p = {.a = &fx_step_pool(step)->attr, .run = fxi_cpu_simd()->pool_channels_last[kind]};
    set_sizes(&p, grad ? &step->out : &step->in[0], grad ? &step->in[0] : &step->out);
    /* The gradient of a mean needs no x, and the operand with x's sizes is the last input of the
     * other kinds. */
    p.xs = kind == FX_POOL_MEAN_GRAD ? NULL : last;
    p.ys = grad ? first : out;
    p.vs = grad ? out : kind == FX_POOL_MAX_PICK ? first : NULL;
    p.window.adds = grad && !tiles(&p);
    if (p.window.adds)
        /* Overlapping windows add to the output. */
        memset(out, 0, (size_t)(p.images * p.x_image) * sizeof(float));
    const double bytes = (double)(p.images * (p.x_image + p.y_image)) * sizeof(float);
    p.parts = fxi_cpu_parts(p.images, fxi_cpu_cost(bytes, bytes));
    fxi_cpu_parallel(p.parts, run_part, &p);
}
