/* onednn_matmul.c: matrix products with oneDNN, batched.
 *
 * oneDNN's last axis is the fastest, so for oneDNN our column-major C = A·B is Cᵀ = Bᵀ·Aᵀ: its
 * source is Bᵀ, its weights are Aᵀ, and a transpose is another order of strides. The product is
 * divided along one axis of C: the last batch axis or else the longer side. All parts have the same
 * size, but the last one may be shorter.
 */
#include "onednn.h"
#include "strided.h"
#include <string.h>

enum { SOURCE, WEIGHTS, RESULT, BIAS, OPERANDS };
static const double PART_WORK = 32e6; /* the fewest multiplications and additions of a part */
enum { MOST_PARTS = 32, LEAST_SIDE = 64 };

/* Sizes and strides: batch axes from the last to the first, then rows and columns in oneDNN's
 * order. */
typedef struct operand {
    dnnl_dims_t sizes, strides;
    int64_t part_stride; /* elements between two parts; 0 if all parts share the operand */
} operand;

typedef struct product {
    fxi_onednn_ready base;
    int n;        /* axes */
    int operands; /* number of operands: with or without a bias */
    int64_t parts, size;
    operand o[OPERANDS];
    md md[2][OPERANDS]; /* [0] for whole parts, [1] for the last one */
    fxi_primitive call[2];
} product;

/* ---- operands -------------------------------------------------------------------------------- */

static void add_axis(operand *o, int at, int64_t size, int64_t stride)
{
    o->sizes[at] = size;
    o->strides[at] = stride;
}

/* Makes strides that oneDNN accepts: one axis of the matrices has stride 1, and the stride of the
 * other is at least the size of the first. Axes of size 1 may have any stride in cflux and get
 * those of a dense array. False if other strides do not fit. */
static bool settle_strides(operand *o, int n)
{
    const int r = n - 2, c = n - 1;
    if (o->sizes[c] == 1)
        o->strides[c] = o->strides[r] == 1 ? fxi_most(o->sizes[r], 1) : 1;
    if (o->sizes[r] == 1)
        o->strides[r] = o->strides[c] == 1 ? fxi_most(o->sizes[c], 1) : 1;
    const int unit = o->strides[c] == 1 ? c : r, other = unit == c ? r : c;
    int64_t span = o->strides[other] * o->sizes[other];
    bool ok = o->strides[unit] == 1 && o->strides[other] >= o->sizes[unit];
    for (int d = r - 1; d >= 0 && ok; d--) {
        if (o->sizes[d] == 1)
            o->strides[d] = span;
        ok = o->strides[d] >= span;
        span = o->strides[d] * o->sizes[d];
    }
    return ok;
}

static bool describe(product *p, const fx_step *s)
{
    const fx_tensor *t[] = {&s->in[1], &s->in[0], &s->out};
    const int ta = fx_step_matmul(s)->transpose_a, tb = fx_step_matmul(s)->transpose_b;
    /* A row for oneDNN is our axis 1, or axis 0 of a transposed operand. */
    const int row[] = {!tb, !ta, 1}, column[] = {tb, ta, 0};
    p->n = s->out.ndim;
    bool ok = p->n <= DNNL_MAX_NDIMS && fxi_onednn_epilogue(s, 0) &&
              fxi_is_dense(p->n, s->out.shape, s->out.stride);
    for (int i = 0; i < BIAS && ok; i++) {
        operand *o = &p->o[i];
        for (int d = 2; d < p->n; d++) {
            const bool own = d < t[i]->ndim && t[i]->shape[d] != 1;
            add_axis(o, p->n - 1 - d, own ? t[i]->shape[d] : 1, own ? t[i]->stride[d] : 0);
        }
        add_axis(o, p->n - 2, t[i]->shape[row[i]], t[i]->stride[row[i]]);
        add_axis(o, p->n - 1, t[i]->shape[column[i]], t[i]->stride[column[i]]);
        ok = settle_strides(o, p->n);
    }
    /* The bias has an element for each row of our C, which is a column for oneDNN. */
    for (int d = 0; d < p->n; d++)
        add_axis(&p->o[BIAS], d, d == p->n - 1 ? s->out.shape[0] : 1,
                 d == p->n - 1 ? 1 : s->out.shape[0]);
    p->operands = fx_step_has_epilogue(s) ? OPERANDS : BIAS;
    return ok;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Chooses the axis along which C is divided, the number of parts, and the size of a whole part.
 * Returns the axis. */
static int divide(product *p, int64_t *out_whole)
{
    const operand *c = &p->o[RESULT];
    const int r = p->n - 2;
    double work = 2 * (double)p->o[SOURCE].sizes[p->n - 1];
    for (int d = 0; d < p->n; d++)
        work *= (double)c->sizes[d];
    int axis = c->sizes[r] >= c->sizes[r + 1] ? r : r + 1;
    int64_t unit = LEAST_SIDE;
    if (p->n > 2 && c->sizes[0] > 1) {
        axis = 0;
        unit = 1;
    }
    const int64_t want = fxi_most(1, fxi_least((int64_t)(work / PART_WORK), MOST_PARTS));
    const int64_t size = (c->sizes[axis] + want - 1) / want;
    *out_whole = fxi_least(c->sizes[axis], (size + unit - 1) / unit * unit);
    p->parts = (c->sizes[axis] + *out_whole - 1) / *out_whole;
    return axis;
}

static fx_status create(product *p, int which, dnnl_data_type_t type)
{
    md *m = p->md[which];
    for (int i = 0; i < p->operands; i++)
        if (md_strides(&m[i], p->n, p->o[i].sizes, type, p->o[i].strides))
            return FX_STATUS_UNSUPPORTED;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s = fxi_onednn_attr(&attr);
    if (!s)
        s = matmul_pd(&pd, fxi_onednn_engine, m[SOURCE].ref, m[WEIGHTS].ref,
                      p->operands > BIAS ? m[BIAS].ref : NULL, m[RESULT].ref, attr);
    dnnl_primitive_attr_destroy(attr);
    return s ? fxi_onednn_status(s) : fxi_primitive_create(&p->call[which], pd);
}

static fx_status create_parts(product *p, dnnl_data_type_t type)
{
    int64_t whole;
    const int axis = divide(p, &whole);
    const int64_t all = p->o[RESULT].sizes[axis], last = all - (p->parts - 1) * whole;
    fx_status status = FX_OK;
    /* The operands describe whole parts first and then the last part; oneDNN keeps copies. */
    for (int which = 0; which < 2 && !status; which++) {
        for (int i = 0; i < OPERANDS; i++) {
            operand *o = &p->o[i];
            /* Columns of C belong to columns of the weights and of the bias, rows of C to rows of
             * the source. An operand without a batch axis is shared by the parts. */
            const bool own = axis == p->n - 1   ? i != SOURCE
                             : axis == p->n - 2 ? i == SOURCE || i == RESULT
                                                : o->sizes[axis] > 1 || i == RESULT;
            if (!own)
                continue;
            o->sizes[axis] = which ? last : whole;
            o->part_stride = whole * o->strides[axis];
        }
        status = create(p, which, type);
    }
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct call {
    const product *p;
    char *at[OPERANDS];
} call;

static fx_status run_part(void *user, int64_t k, void *scratch)
{
    const call *c = user;
    const product *p = c->p;
    const int which = k == p->parts - 1;
    fxi_onednn_arg args[OPERANDS] = {{.which = DNNL_ARG_SRC},
                                     {.which = DNNL_ARG_WEIGHTS},
                                     {.which = DNNL_ARG_DST},
                                     {.which = DNNL_ARG_BIAS}};
    for (int i = 0; i < p->operands; i++) {
        args[i].as = p->md[which][i].ref;
        args[i].at = c->at[i] + k * p->o[i].part_stride * p->size;
    }
    return fxi_primitive_run(&p->call[which], p->operands, args, scratch);
}

static fx_status run(const void *self, const void *const *in, void *out, void *work)
{
    (void)work;
    const product *p = self;
    /* Inputs are only read. */
    call c = {p, {(char *)(uintptr_t)in[1], (char *)(uintptr_t)in[0], out, NULL}};
    if (p->operands > BIAS)
        c.at[BIAS] = (char *)(uintptr_t)in[2];
    return fxi_onednn_parts(p->parts, fxi_most(p->call[0].scratch, p->call[1].scratch), run_part,
                            &c);
}

/* Called also if `prepare` fails: members that were not created are zero. */
static void release(void *self)
{
    product *p = self;
    for (int which = 0; which < 2; which++) {
        fxi_primitive_free(&p->call[which]);
        for (int i = 0; i < OPERANDS; i++)
            md_free(&p->md[which][i]);
    }
}

fx_status fxi_onednn_matmul_prepare(const fx_step *step, fxi_kernel_ready **out)
{
    const dnnl_data_type_t type = fxi_onednn_type(step->out.dtype);
    if (type == dnnl_data_type_undef)
        return FX_STATUS_UNSUPPORTED;
    product *p = fxi_onednn_host->alloc(64, sizeof *p);
    if (!p)
        return FX_STATUS_MEMORY;
    memset(p, 0, sizeof *p);
    p->base.run = run;
    p->base.release = release;
    p->size = type == dnnl_f32 ? 4 : 2;
    const fx_status status = describe(p, step) ? create_parts(p, type) : FX_STATUS_UNSUPPORTED;
    if (status) {
        release(p);
        fxi_onednn_host->free(p);
        return status;
    }
    *out = &p->base.base;
    return FX_OK;
}
