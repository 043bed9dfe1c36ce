/* onednn_conv.c: convolution and its two gradients with oneDNN, for channels-last arrays.
 *
 * A step is divided by images. Weights are packed once a run, in the layout that the primitive
 * prefers. oneDNN computes cross-correlation only, so the kernel of a true convolution is reversed
 * first. In the gradient of the weights every part has sums of its own, which are then added in the
 * order of the parts.
 *
 * Packed weights are not kept from run to run: they change in every training step, and packing
 * takes a few per cent of one convolution.
 */
#include "conv_infinite.h"
#include "onednn.h"
#include <string.h>

enum { X, W, Y, OPERANDS };
enum { MOST_PARTS = 32, BLOCK = 1 << 14 };
static const double PART_WORK = 32e6;      /* the fewest multiplications and additions of a part */
static const double SUM_WORK = 100e6;      /* the same, for the gradient of weights */
static const int64_t SUM_BYTES = 32 << 20; /* bytes of all sums, at most */

typedef struct conv {
    fxi_onednn_ready base;
    int kind;
    fx_conv_attr attr;
    fx_tensor inputs[2], out;
    int x_at, w_at, y_at; /* which tensor is which operand: input 0, input 1 or the output (2) */
    bool reversed;        /* the kernel is reversed */
    int64_t images, parts;
    int64_t x_image, y_image; /* bytes of one image */
    int64_t taps, size;       /* taps of a kernel; bytes of an element */
    int64_t weights;          /* elements of the weights */
    int64_t packed_bytes;
    md x[2], y[2], any, sum, plain, bias; /* x, y: for parts with fewer and with more images */
    bool biased;
    md_ref packed; /* the primitive's layout of weights */
    fxi_primitive call[2], reorder;
} conv;

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Which tensor is the x side, the kernel and the y side, by kind: 0 and 1 are inputs, 2 is the
 * output. */
static const struct {
    uint8_t x, w, y;
} kinds[] = {
    [FX_CONV_FORWARD] = {0, 1, 2}, [FX_CONV_DATA] = {2, 1, 0}, [FX_CONV_WEIGHT] = {0, 2, 1}};

/* oneDNN names axes from the slowest to the fastest: nhwc is our C×W×H×N in memory. Weights are
 * plain, W×H×in×out; several groups are an axis of their own for oneDNN, the slowest. */
static const dnnl_format_tag_t channels_last_tags[] = {dnnl_format_tag_undef, dnnl_nwc, dnnl_nhwc,
                                                       dnnl_ndhwc};
static const dnnl_format_tag_t plain_tags[2][4] = {
    {dnnl_format_tag_undef, dnnl_oiw, dnnl_oihw, dnnl_oidhw},
    {dnnl_format_tag_undef, dnnl_goiw, dnnl_goihw, dnnl_goidhw}};

/* Sizes in oneDNN's order of axes: batch, channels, then the spatial axes in reverse order. */
static void activation_sizes(const fx_tensor *t, int spatial, int64_t images, dnnl_dims_t out)
{
    out[0] = images;
    out[1] = t->shape[spatial];
    for (int d = 0; d < spatial; d++)
        out[2 + d] = t->shape[spatial - 1 - d];
}

static int weight_sizes(const fx_tensor *w, const fx_conv_attr *a, dnnl_dims_t out)
{
    const int s = a->spatial, g = a->groups > 1;
    out[0] = a->groups; /* without groups the next line replaces it */
    out[g] = w->shape[s + 1] / a->groups;
    out[g + 1] = w->shape[s];
    for (int d = 0; d < s; d++)
        out[g + 2 + d] = w->shape[s - 1 - d];
    return s + 2 + g;
}

/* The parameters of the windows. For oneDNN the padding after the array must reach exactly as far
 * as the last window reads. */
static void windows(const fx_conv_attr *a, const fx_tensor *x, const fx_tensor *w,
                    const fx_tensor *y, conv_desc *out)
{
    for (int d = 0; d < a->spatial; d++) {
        const int k = a->spatial - 1 - d;
        const int64_t reach = (w->shape[k] - 1) * a->dilation[k] + 1;
        out->stride[d] = a->stride[k];
        /* oneDNN counts the elements that a dilated kernel skips between two taps. */
        out->dilation[d] = a->dilation[k] - 1;
        out->before[d] = a->before[k];
        out->after[d] = (y->shape[k] - 1) * a->stride[k] + reach - x->shape[k] - a->before[k];
    }
}

/* Each part of the gradient of weights has sums of its own, which cost memory and additions. So
 * this gradient has fewer and larger parts. Their number is a power of two, so that two threads get
 * equally many: with three parts, one thread would compute two thirds. */
static void divide(conv *c, double work)
{
    const int64_t images = fxi_least(c->images, MOST_PARTS);
    c->parts = fxi_most(1, fxi_least((int64_t)(work / PART_WORK), images));
    if (c->kind != FX_CONV_WEIGHT)
        return;
    /* Sums are Float32, whatever the type of the weights. */
    const int64_t sums = fxi_least((int64_t)(work / SUM_WORK), SUM_BYTES / (c->weights * 4)),
                  most = fxi_least(images, sums);
    for (c->parts = 1; 2 * c->parts <= most;)
        c->parts *= 2;
}

static int64_t first_image(const conv *c, int64_t part)
{
    return part * c->images / c->parts;
}

/* ---- creating -------------------------------------------------------------------------------- */

static dnnl_status_t create_pd(const conv *c, const conv_desc *given, dnnl_primitive_desc_t *out)
{
    conv_desc desc = *given, *d = &desc;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t forward = NULL;
    dnnl_status_t s = fxi_onednn_attr(&attr);
    /* oneDNN describes a gradient with the help of its forward convolution. */
    if (!s)
        s = conv_forward_pd(c->kind == FX_CONV_FORWARD ? out : &forward, fxi_onednn_engine, d,
                            attr);
    if (!s && c->kind == FX_CONV_DATA)
        s = conv_data_pd(out, fxi_onednn_engine, d, attr, forward);
    /* The weights of the forward convolution have the type of the operands; their gradient is a
     * Float32 sum. */
    desc.w = c->sum.ref;
    if (!s && c->kind == FX_CONV_WEIGHT)
        s = conv_weight_pd(out, fxi_onednn_engine, d, attr, forward);
    if (forward)
        dnnl_primitive_desc_destroy(forward);
    dnnl_primitive_attr_destroy(attr);
    return s;
}

/* Creates the primitive for parts of `images` images. Parts differ by one image at most, so two
 * primitives are enough. */
static fx_status create(conv *c, int which, int64_t images, const fx_step *step,
                        dnnl_data_type_t type)
{
    const fx_tensor *t[] = {&step->in[0], &step->in[1], &step->out};
    const fx_conv_attr *a = &fx_step_conv(step)->attr;
    const int s = a->spatial;
    dnnl_dims_t sizes;
    activation_sizes(t[c->x_at], s, images, sizes);
    dnnl_status_t ok = md_tag(&c->x[which], s + 2, sizes, type, channels_last_tags[s]);
    activation_sizes(t[c->y_at], s, images, sizes);
    if (!ok)
        ok = md_tag(&c->y[which], s + 2, sizes, type, channels_last_tags[s]);
    conv_desc d = {.x = c->x[which].ref, .w = c->any.ref, .y = c->y[which].ref};
    if (c->biased)
        d.bias = c->bias.ref;
    windows(a, t[c->x_at], t[c->w_at], t[c->y_at], &d);
    dnnl_primitive_desc_t pd = NULL;
    if (!ok)
        ok = create_pd(c, &d, &pd);
    return ok ? fxi_onednn_status(ok) : fxi_primitive_create(&c->call[which], pd);
}

/* Finds the layout of packed weights, on which both primitives must agree. */
static fx_status create_packing(conv *c)
{
    const dnnl_query_t what =
        c->kind == FX_CONV_WEIGHT ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    c->packed = dnnl_primitive_desc_query_md(c->call[0].pd, what, 0);
    if (!dnnl_memory_desc_equal(c->packed, dnnl_primitive_desc_query_md(c->call[1].pd, what, 0)))
        return FX_STATUS_UNSUPPORTED;
    c->packed_bytes = ((int64_t)dnnl_memory_desc_get_size(c->packed) + 63) / 64 * 64;
    return c->kind == FX_CONV_WEIGHT ? fxi_reorder_create(&c->reorder, c->packed, c->plain.ref)
                                     : fxi_reorder_create(&c->reorder, c->plain.ref, c->packed);
}

static fx_status create_all(conv *c, const fx_step *step, dnnl_data_type_t type)
{
    const fx_conv_attr *a = &fx_step_conv(step)->attr;
    const fx_tensor *w = c->kind == FX_CONV_WEIGHT ? &step->out : &step->in[1];
    dnnl_dims_t sizes;
    const int n = weight_sizes(w, a, sizes);
    /* The sums are Float32 even for 16-bit weights, and are rounded when all have been added. */
    if (md_tag(&c->any, n, sizes, type, dnnl_format_tag_any) ||
        md_tag(&c->sum, n, sizes, dnnl_f32, dnnl_format_tag_any) ||
        md_tag(&c->plain, n, sizes, type, plain_tags[a->groups > 1][a->spatial]))
        return FX_STATUS_UNSUPPORTED;
    const dnnl_dims_t channels = {step->out.shape[a->spatial]};
    if (c->biased && md_tag(&c->bias, 1, channels, type, dnnl_a))
        return FX_STATUS_UNSUPPORTED;
    const int64_t few = c->images / c->parts, more = (c->images + c->parts - 1) / c->parts;
    fx_status status = create(c, 0, few, step, type);
    if (!status)
        status = create(c, 1, more, step, type);
    return status ? status : create_packing(c);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Copies weights with the taps of every kernel in reverse order. */
static void reverse_kernels(const conv *c, const void *from, void *to)
{
    const int64_t kernels = c->weights / c->taps, n = c->taps;
    for (int64_t k = 0; k < kernels; k++)
        for (int64_t t = 0; t < n; t++)
            if (c->size == 4)
                ((float *)to)[k * n + t] = ((const float *)from)[k * n + n - 1 - t];
            else
                ((uint16_t *)to)[k * n + t] = ((const uint16_t *)from)[k * n + n - 1 - t];
}

/* A step's work space: weights as they are in memory, oneDNN's packed weights (the sums of all
 * parts in the gradient of weights), and scratch of the conversion between them. */
typedef struct work_space {
    int64_t plain, packed, scratch; /* bytes; the first two are multiples of 64 */
} work_space;

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static work_space work_space_of(const conv *c)
{
    const bool sums = c->kind == FX_CONV_WEIGHT, converts = c->reorder.call;
    return (work_space){.plain = c->reversed ? round_up(c->weights * c->size) : 0,
                        .packed = sums       ? round_up(c->parts * c->packed_bytes)
                                  : converts ? round_up(c->packed_bytes)
                                             : 0,
                        .scratch = converts ? c->reorder.scratch : 0};
}

static fx_status reorder(const conv *c, md_ref from_md, const void *from, md_ref to_md, void *to,
                         char *work)
{
    const fxi_onednn_arg args[] = {{DNNL_ARG_FROM, from_md, (void *)(uintptr_t)from},
                                   {DNNL_ARG_TO, to_md, to}};
    const work_space s = work_space_of(c);
    return fxi_primitive_run(&c->reorder, 2, args, s.scratch ? work + s.plain + s.packed : NULL);
}

/* Packs the weights. *out_packed is the caller's own memory if its layout is the packed one, else
 * an address in the work space. */
static fx_status pack(const conv *c, const void *w, char *work, void **out_packed)
{
    *out_packed = (void *)(uintptr_t)w; /* only read */
    if (c->reversed) {
        reverse_kernels(c, w, work);
        *out_packed = work;
    }
    if (!c->reorder.call)
        return FX_OK;
    const void *from = *out_packed;
    *out_packed = work + work_space_of(c).plain;
    return reorder(c, c->plain.ref, from, c->packed, *out_packed, work);
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct call {
    const conv *c;
    char *x, *w, *y; /* w: packed weights; for WEIGHT the sums, one after the other */
    char *bias;
} call;

static fx_status run_part(void *user, int64_t k, void *scratch)
{
    static const int names[][OPERANDS] = {
        [FX_CONV_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        [FX_CONV_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
        [FX_CONV_WEIGHT] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
    const call *q = user;
    const conv *c = q->c;
    const int64_t first = first_image(c, k), images = first_image(c, k + 1) - first;
    /* 1: a part with one image more. */
    const int which = images > c->images / c->parts;
    const int64_t own_sum = c->kind == FX_CONV_WEIGHT ? k * c->packed_bytes : 0;
    const fxi_onednn_arg args[] = {{names[c->kind][X], c->x[which].ref, q->x + first * c->x_image},
                                   {names[c->kind][W], c->packed, q->w + own_sum},
                                   {names[c->kind][Y], c->y[which].ref, q->y + first * c->y_image},
                                   {DNNL_ARG_BIAS, c->bias.ref, q->bias}};
    /* oneDNN 2.6 reads scratch that it has not written, in the gradient of 16-bit weights, if a
     * window reaches beyond the padding of a short image. */
    if (c->kind == FX_CONV_WEIGHT && c->size == 2)
        memset(scratch, 0, (size_t)c->call[which].scratch);
    return fxi_primitive_run(&c->call[which], OPERANDS + c->biased, args, scratch);
}

static fx_status run_parts(call *q)
{
    const conv *c = q->c;
    return fxi_onednn_parts(c->parts, fxi_most(c->call[0].scratch, c->call[1].scratch), run_part,
                            q);
}

/* Adds block k of the sums of all parts to the first part's, in the order of the parts. */
static fx_status add_block(void *user, int64_t k, void *scratch)
{
    (void)scratch;
    const call *q = user;
    const int64_t n = q->c->packed_bytes / 4, end = fxi_least(n, (k + 1) * BLOCK);
    float *sum = (float *)(void *)q->w;
    for (int64_t part = 1; part < q->c->parts; part++)
        for (int64_t i = k * BLOCK; i < end; i++)
            sum[i] += sum[part * n + i];
    return FX_OK;
}

static fx_status run_with_weights(const conv *c, call *q, const void *w, char *work)
{
    void *packed;
    const fx_status status = pack(c, w, work, &packed);
    q->w = packed;
    return status ? status : run_parts(q);
}

/* The sums are in oneDNN's layout and in Float32; the result is plain, in its own type. One
 * conversion changes both; there is none if nothing differs. */
static fx_status run_for_weights(const conv *c, call *q, void *out, char *work)
{
    char *sums = work + work_space_of(c).plain;
    q->w = sums;
    fx_status status = run_parts(q);
    if (!status && c->parts > 1)
        status = fxi_onednn_parts((c->packed_bytes / 4 + BLOCK - 1) / BLOCK, 0, add_block, q);
    void *plain = sums;
    if (!status && c->reorder.call) {
        plain = c->reversed ? work : out;
        status = reorder(c, c->packed, sums, c->plain.ref, plain, work);
    }
    if (!status && c->reversed)
        reverse_kernels(c, plain, out);
    else if (!status && plain != out)
        memcpy(out, plain, (size_t)(c->weights * c->size));
    return status;
}

static fx_status run(const void *self, const void *const *in, void *out, void *work);

/* A gradient of weights whose gy is not finite; conv_infinite.h explains it. */
static fx_status run_with_infinite_gy(const conv *c, const void *const *in, void *out, void *work)
{
    const fx_tensor *y = &c->inputs[1];
    const int64_t n = fxi_length(y->ndim, y->shape);
    const fx_step step = {.cls = FX_CLASS_CONV,
                          .as.conv = {.attr = c->attr, .channels_last = true},
                          .in = (fx_tensor *)(uintptr_t)c->inputs, /* only read */
                          .out = c->out};
    void *finite = fxi_onednn_host->alloc(64, (size_t)(n * c->size));
    if (!finite)
        return FX_STATUS_MEMORY;
    fxi_conv_finite_part(y->dtype, finite, in[1], n);
    /* `run` finds only finite numbers now, so it does not call this function again. */
    const fx_status status = run(c, (const void *[]){in[0], finite}, out, work);
    if (!status)
        fxi_conv_add_infinite(&step, in[0], in[1], out);
    fxi_onednn_host->free(finite);
    return status;
}

static fx_status run(const void *self, const void *const *in, void *out, void *work)
{
    const conv *c = self;
    if (fxi_conv_must_test_gy(&c->attr) &&
        !fxi_conv_finite(c->inputs[1].dtype, in[1],
                         fxi_length(c->inputs[1].ndim, c->inputs[1].shape)))
        return run_with_infinite_gy(c, in, out, work);
    /* Inputs are only read. */
    void *const at[] = {(void *)(uintptr_t)in[0], (void *)(uintptr_t)in[1], out};
    call q = {.c = c, .x = at[c->x_at], .y = at[c->y_at]};
    if (c->biased)
        q.bias = (char *)(uintptr_t)in[2];
    return c->kind == FX_CONV_WEIGHT ? run_for_weights(c, &q, out, work)
                                     : run_with_weights(c, &q, in[1], work);
}

/* Called also if `prepare` fails: members that were not created are zero. */
static void release(void *self)
{
    conv *c = self;
    md *const all[] = {&c->x[0], &c->x[1], &c->y[0],  &c->y[1],
                       &c->any,  &c->sum,  &c->plain, &c->bias};
    fxi_primitive_free(&c->call[0]);
    fxi_primitive_free(&c->call[1]);
    fxi_primitive_free(&c->reorder);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        md_free(all[i]);
}

/* ---- which steps ----------------------------------------------------------------------------- */

fx_status fxi_onednn_conv_prepare(const fx_step *step, fxi_kernel_ready **out)
{
    const fx_conv_attr *a = &fx_step_conv(step)->attr;
    const dnnl_data_type_t type = fxi_onednn_type(step->out.dtype);
    if (type == dnnl_data_type_undef || !fx_step_conv(step)->channels_last ||
        !fxi_onednn_epilogue(step, a->spatial))
        return FX_STATUS_UNSUPPORTED;
    conv *c = fxi_onednn_host->alloc(64, sizeof *c);
    if (!c)
        return FX_STATUS_MEMORY;
    const fx_tensor *t[] = {&step->in[0], &step->in[1], &step->out};
    const fx_tensor *x = t[kinds[a->kind].x], *w = t[kinds[a->kind].w], *y = t[kinds[a->kind].y];
    memset(c, 0, sizeof *c);
    c->base.run = run;
    c->base.release = release;
    c->kind = a->kind;
    c->attr = *a;
    c->inputs[0] = step->in[0];
    c->inputs[1] = step->in[1];
    c->out = step->out;
    c->biased = fx_step_has_epilogue(step);
    c->x_at = kinds[a->kind].x, c->w_at = kinds[a->kind].w, c->y_at = kinds[a->kind].y;
    c->size = type == dnnl_f32 ? 4 : 2;
    c->images = x->shape[a->spatial + 1];
    c->x_image = fxi_length(a->spatial + 1, x->shape) * c->size;
    c->y_image = fxi_length(a->spatial + 1, y->shape) * c->size;
    c->taps = fxi_length(a->spatial, w->shape);
    c->weights = fxi_length(w->ndim, w->shape);
    /* A kernel of one tap is its own reverse. */
    c->reversed = !a->flipped && c->taps > 1;
    divide(c,
           2 * (double)fxi_length(y->ndim, y->shape) * (double)fxi_length(w->ndim - 1, w->shape));
    const fx_status status = create_all(c, step, type);
    if (status) {
        release(c);
        fxi_onednn_host->free(c);
        return status;
    }
    const work_space s = work_space_of(c);
    c->base.base.work_bytes = s.plain + s.packed + s.scratch;
    *out = &c->base.base;
    return FX_OK;
}
