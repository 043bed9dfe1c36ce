/* gpu_map.c: kernels with one value for every element of the output: elementwise programs, the same
 * over several segments, generators, and gather.
 *
 * A work-item computes fxi_gpu_each elements, a group's width apart, so that neighbours read
 * neighbouring memory. An operand is one value, or has the output's layout and is read at the
 * element's own index, or is walked (gpu_walk.c). All operands of an element are read before its
 * outputs are written, because outputs may have the memory of operands.
 */
#include "gpu_text.h"

/* ---- elementwise ----------------------------------------------------------------------------- */
enum { SINGLE = -1, OWN = -2 }; /* instead of a pattern: one value, or the output's layout */
enum { OPERANDS = 32 };

/* The tensors of one program over one space. */
typedef struct program {
    const fx_tensor *in;
    int nin, nout;
    uint8_t out[1 + FX_MORE_OUTPUTS]; /* registers */
    int pattern[OPERANDS];
    fxi_gpu_buffer_ref from[OPERANDS];
    fxi_gpu_layout layout;
    fxi_gpu_walk walk;
    int64_t length;
    bool wide;
} program;

static void set_patterns(program *p, const fx_tensor *space)
{
    p->layout = (fxi_gpu_layout){.nd = space->ndim};
    for (int d = 0; d < space->ndim; d++)
        p->layout.shape[d] = space->shape[d];
    for (int k = 0; k < p->nin; k++) {
        const fx_tensor *t = &p->in[k];
        /* An operand that was copied to work space is dense. */
        p->pattern[k] = p->from[k].role == FXI_GPU_WORK ? OWN
                        : fxi_gpu_is_scalar(t)          ? SINGLE
                        : fxi_is_dense(t->ndim, t->shape, t->stride)
                            ? OWN
                            : fxi_gpu_layout_add(&p->layout, t->stride);
    }
    p->walk = fxi_gpu_walk_over(&p->layout, UINT32_MAX);
    p->wide = fxi_gpu_layout_wide(&p->layout);
}

/* Do the kernel's arguments need more bytes than the device has? */
static bool too_many(const fxi_gpu_builder *b, const program *p)
{
    const int buffers = (p->nin + p->nout) * (int)(2 * sizeof(int64_t)),
              params = (1 + fxi_gpu_walk_params(&p->walk)) * (p->wide ? 8 : 4);
    return buffers + params > b->limits->param_bytes;
}

/* Copies operands to work space until the arguments fit: every different set of strides takes
 * parameters. */
static void fit(fxi_gpu_builder *b, program *p, const fx_tensor *space)
{
    for (int k = 0; k < p->nin && too_many(b, p); k++)
        /* Dense operands and single values take no parameters. */
        if (p->pattern[k] >= 0) {
            p->from[k] = (fxi_gpu_buffer_ref){fxi_gpu_densify(b, k), FXI_GPU_WORK};
            set_patterns(p, space);
        }
}

/* Before any output is stored, because an output may have the memory of an operand. */
static void say_loads(fxi_gpu_builder *b, const program *p)
{
    for (int k = 0; k < p->nin; k++) {
        const fxi_gpu_type *t = &fxi_gpu_types[p->in[k].dtype];
        char at[16] = "0";
        if (p->pattern[k] == OWN)
            at[0] = 'i';
        else if (p->pattern[k] >= 0)
            snprintf(at, sizeof at, "o%d", p->pattern[k]);
        fxi_gpu_say(b, "const %s r%d = FX_LOAD_%s(x%d, %s);\n", t->value, k, t->name, k, at);
    }
}

/* The element type of output k in memory. */
static const fxi_gpu_type *type_out(const fx_step *s, const program *p, int k)
{
    return &fxi_gpu_types[fx_step_program(s).instr[p->out[k] - p->nin].dtype];
}

/* Appends the program for element i and the storing of all its outputs. */
static void say_element(fxi_gpu_builder *b, const program *p)
{
    const fx_step *s = b->step;
    say_loads(b, p);
    fxi_gpu_say_program(b, p->nin);
    for (int k = 0; k < p->nout; k++)
        fxi_gpu_say(b, "FX_STORE_%s(y%d, i, r%d);\n", type_out(s, p, k)->name, k, p->out[k]);
}

static void say_program(fxi_gpu_builder *b, const program *p)
{
    const fx_step *s = b->step;
    if (!fxi_gpu_known(b))
        return;
    fxi_gpu_begin(b, p->wide);
    fxi_gpu_kernel(b, "fx_elementwise", p->nin + p->nout, 1 + fxi_gpu_walk_params(&p->walk));
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_elementwise, "operands");
    for (int k = 0; k < p->nin; k++)
        fxi_gpu_say(b, "FX_USE(%d, const %s, x%d)\n", k, fxi_gpu_types[p->in[k].dtype].stored, k);
    for (int k = 0; k < p->nout; k++)
        fxi_gpu_say(b, "FX_USE(%d, %s, y%d)\n", p->nin + k, type_out(s, p, k)->stored, k);
    text = fxi_gpu_say_until(b, text, "walk");
    fxi_gpu_walk_say(b, &p->walk, 1, "i", "o", NULL);
    text = fxi_gpu_say_until(b, text, "program");
    say_element(b, p);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
}

static void set_outputs(program *p, const fx_step *s)
{
    const fx_more_outputs *more = fx_step_more(s);
    p->nout = 1 + more->n;
    p->out[0] = (uint8_t)(p->nin + fx_step_program(s).n - 1);
    for (int k = 0; k < more->n; k++)
        p->out[1 + k] = more->reg[k];
}

void fxi_gpu_elementwise(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    program p = {.in = s->in, .nin = s->nin, .length = fx_tensor_length(&s->out)};
    if (s->nin > OPERANDS) {
        fxi_gpu_fail(b, FX_STATUS_INTERNAL, "%d operands", (int)s->nin);
        return;
    }
    if (p.length == 0)
        return;
    set_outputs(&p, s);
    for (int k = 0; k < s->nin; k++)
        p.from[k] = (fxi_gpu_buffer_ref){k, FXI_GPU_IN};
    set_patterns(&p, &s->out);
    fit(b, &p, &s->out);
    say_program(b, &p);
    fxi_gpu_call *c = fxi_gpu_add_each(b, p.length);
    for (int k = 0; k < p.nin; k++)
        fxi_gpu_buffer(c, k, (fxi_gpu_role)p.from[k].role, p.from[k].k);
    for (int k = 0; k < p.nout; k++)
        fxi_gpu_buffer(c, p.nin + k, FXI_GPU_OUT, k);
    fxi_gpu_walk_fill(&p.walk, c, 1);
}

/* ---- segments -------------------------------------------------------------------------------- */
/* Kernels cannot read addresses from memory on all devices (OpenCL), so a launch computes as many
 * segments as its arguments can hold: Adam over 16 arrays takes 5 launches, not 18. Single values
 * that are the same in all segments (an optimiser's rates) are passed once. Segment g of a launch
 * has parameter g, its length, and batch + g, its first group. Unused segments begin after the last
 * group. */
enum { SEGMENTS = 16 }; /* of a launch, at most */

typedef struct segments {
    program p;    /* the program, made for the longest segment */
    int operands; /* inputs and outputs of one segment */
    int nshared;  /* buffers that all segments share; they come before those of segment 0, 1 … */
    int batch;    /* segments of a launch */
    int buffer[OPERANDS + 1 + FX_MORE_OUTPUTS]; /* the index of an operand's buffer: among the
                                                   shared ones, or among its segment's */
    bool shared[OPERANDS + 1 + FX_MORE_OUTPUTS];
} segments;

/* The same value of the plan at the same offset: an optimiser's rate is one array for all
 * parameters. */
static bool same_in_all(const fx_step *s, int nin, int k)
{
    for (int32_t g = 1; g < fx_step_segments(s); g++)
        if (s->in_value[g * nin + k] != s->in_value[k] ||
            s->in_offset[g * nin + k] != s->in_offset[k])
            return false;
    return true;
}

static void number_buffers(const fx_step *s, segments *q)
{
    int own = 0;
    for (int k = 0; k < q->operands; k++) {
        q->shared[k] = k < q->p.nin && q->p.pattern[k] == SINGLE && same_in_all(s, q->p.nin, k);
        q->buffer[k] = q->shared[k] ? q->nshared++ : own++;
    }
}

static int buffer_of(const segments *q, int g, int k)
{
    return q->buffer[k] + (q->shared[k] ? 0 : q->nshared + g * (q->operands - q->nshared));
}

/* The segments of a launch: as many as the arguments can hold, or a smaller power of two that is
 * enough. Each number of segments needs a kernel of its own, so only few numbers are used. */
static int batch_of(const fxi_gpu_builder *b, const segments *q)
{
    enum { ADDRESS = 2 * sizeof(int64_t) };
    const int own = q->operands - q->nshared, params = 2 * (q->p.wide ? 8 : 4),
              bytes = b->limits->param_bytes - q->nshared * ADDRESS;
    /* Two limits: the number of buffers, and the bytes of all arguments. */
    int most = (b->limits->buffers - q->nshared) / own, batch = 1;
    if (most > bytes / (own * ADDRESS + params))
        most = bytes / (own * ADDRESS + params);
    if (most > SEGMENTS)
        most = SEGMENTS;
    while (batch < most && batch < fx_step_segments(b->step))
        batch *= 2;
    return batch < most || most < 1 ? batch : most;
}

/* Appends the choice of the segment on which a group works: "g == 0 ? name0 : …". */
static void say_choice(fxi_gpu_builder *b, int batch, const char *format, int first, int each)
{
    for (int g = 0; g < batch; g++) {
        if (g < batch - 1)
            fxi_gpu_say(b, "g == %d ? ", g);
        fxi_gpu_say(b, format, first + g * each);
        if (g < batch - 1)
            fxi_gpu_say(b, " : ");
    }
}

/* Appends operand k of the segment on which a group works: x for inputs, y for outputs. */
static void say_operand(fxi_gpu_builder *b, const segments *q, int k)
{
    const bool in = k < q->p.nin;
    const char *is_const = in ? "const " : "",
               *type = in ? fxi_gpu_types[q->p.in[k].dtype].stored
                          : type_out(b->step, &q->p, k - q->p.nin)->stored;
    const int first = buffer_of(q, 0, k), each = q->shared[k] ? 0 : q->operands - q->nshared;
    for (int g = 0; g < (q->shared[k] ? 1 : q->batch); g++)
        fxi_gpu_say(b, "FX_USE(%d, %s%s, b%d)\n", first + g * each, is_const, type,
                    first + g * each);
    fxi_gpu_say(b, "FX_GLOBAL %s%s *%c%d = ", is_const, type, in ? 'x' : 'y',
                in ? k : k - q->p.nin);
    say_choice(b, q->shared[k] ? 1 : q->batch, "b%d", first, each);
    fxi_gpu_say(b, ";\n");
}

static void say_segments(fxi_gpu_builder *b, const segments *q)
{
    if (!fxi_gpu_known(b))
        return;
    fxi_gpu_begin(b, q->p.wide);
    fxi_gpu_kernel(b, "fx_segments", buffer_of(q, q->batch - 1, q->operands - 1) + 1, 2 * q->batch);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_segments, "later_segments");
    for (int g = 1; g < q->batch; g++)
        /* The number of later segments that begin at or before this group is the number of its
         * segment. */
        fxi_gpu_say(b, " + (FX_GROUP_X >= P(%d))", q->batch + g);
    text = fxi_gpu_say_until(b, text, "length");
    say_choice(b, q->batch, "P(%d)", 0, 1);
    text = fxi_gpu_say_until(b, text, "first");
    say_choice(b, q->batch, "P(%d)", q->batch, 1);
    text = fxi_gpu_say_until(b, text, "operands");
    for (int k = 0; k < q->operands; k++)
        say_operand(b, q, k);
    text = fxi_gpu_say_until(b, text, "program");
    say_element(b, &q->p);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
}

/* Adds a launch of segments from g on; returns the first segment that it does not compute. */
static int32_t add_segments(fxi_gpu_builder *b, const segments *q, int32_t g)
{
    const fx_step *s = b->step;
    const int nin = q->p.nin;
    fxi_gpu_call *c = fxi_gpu_add(b);
    const int64_t each = (int64_t)fxi_gpu_each(b) * FXI_GPU_GROUP;
    int64_t groups = 0;
    int done = 0;
    for (; done < q->batch && g < fx_step_segments(s); g++) {
        const int64_t n = fx_step_foreach(s)->segments[g].length;
        if (n == 0)
            continue;
        /* A launch has a limited number of groups; the rest becomes another launch. */
        if (done > 0 && groups + fxi_gpu_groups(n, each) >= b->limits->groups[0])
            break;
        fxi_gpu_param(c, done, n);
        fxi_gpu_param(c, q->batch + done, groups);
        for (int k = 0; k < q->operands; k++)
            fxi_gpu_buffer(c, buffer_of(q, done, k), k < nin ? FXI_GPU_IN : FXI_GPU_OUT,
                           k < nin ? g * nin + k : g * q->p.nout + k - nin);
        groups += fxi_gpu_groups(n, each);
        done++;
    }
    for (; done < q->batch; done++)
        /* No group has a number as large, so no group chooses an unused segment. */
        fxi_gpu_param(c, q->batch + done, INT32_MAX);
    c->groups[0] = groups;
    return g;
}

/* In a segment of one element, dense operands and single values have the same layout: the longest
 * segment decides which they are. */
void fxi_gpu_foreach(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const fx_foreach_step *f = fx_step_foreach(s);
    const int nin = s->nin / f->nsegments;
    int32_t longest = 0, last = -1;
    for (int32_t g = 0; g < f->nsegments; g++) {
        if (f->segments[g].length > f->segments[longest].length)
            longest = g;
        if (f->segments[g].length > 0)
            last = g;
    }
    /* Segments without elements at the end need no launch; here all are empty. */
    if (last < 0)
        return;
    segments q = {
        .p = {.in = s->in + longest * nin, .nin = nin, .length = f->segments[longest].length}};
    program *p = &q.p;
    set_outputs(p, s);
    for (int k = 0; k < nin; k++)
        p->pattern[k] = p->length > 1 && fxi_gpu_is_scalar(&p->in[k]) ? SINGLE : OWN;
    p->wide = fxi_gpu_wide(p->length);
    q.operands = nin + p->nout;
    number_buffers(s, &q);
    q.batch = batch_of(b, &q);
    say_segments(b, &q);
    for (int32_t g = 0; g <= last && !b->status;)
        g = add_segments(b, &q, g);
}

/* ---- generators ------------------------------------------------------------------------------ */
/* Element i of the index along an axis is i / inner mod size. */
static void iota(fxi_gpu_builder *b, int64_t n)
{
    const fx_tensor *t = &b->step->out;
    const fxi_gpu_type *type = &fxi_gpu_types[t->dtype];
    const int axis = fx_step_generator(b->step)->axis;
    int64_t strides[FX_MAX_DIMS];
    const fx_instr cast = {.op = FX_OP_CAST, .dtype = t->dtype, .from = FX_DTYPE_I64};
    fxi_dense_strides(t->ndim, t->shape, strides);
    fxi_gpu_begin(b, fxi_gpu_wide(n));
    fxi_gpu_kernel(b, "fx_iota", 1, 7);
    fxi_gpu_set(b, "stored", type->stored);
    fxi_gpu_set(b, "name", type->name);
    fxi_gpu_set_number(b, "result", t->dtype != FX_DTYPE_I64);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_iota, "cast");
    /* The kernel computes the index as Int64 and converts it to other types. */
    if (t->dtype != FX_DTYPE_I64)
        fxi_gpu_say_instr(b, &cast, 1);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
    fxi_gpu_call *c = fxi_gpu_add_each(b, n);
    fxi_gpu_buffer(c, 0, FXI_GPU_OUT, 0);
    /* The kernel divides by these two sizes for every element. */
    fxi_gpu_divisor(c, 1, strides[axis]);
    fxi_gpu_divisor(c, 4, t->shape[axis]);
}

/* Random number k of a block of words w. 16-bit types use as many bits as they can represent below
 * 1. The factors are 2⁻²⁴, 2⁻⁵³, 2⁻¹¹ and 2⁻⁸. */
static const char *const uniforms[FX_DTYPE_COUNT] = {
    [FX_DTYPE_F32] = "(fx_f32)(w[k] >> 8) * 5.96046448e-8f",
    [FX_DTYPE_F64] = "(fx_f64)((((fx_u64)w[2 * k] << 32) | w[2 * k + 1]) >> 11) "
                     "* 1.1102230246251565e-16",
    [FX_DTYPE_F16] = "(fx_f32)(w[k] >> 21) * 4.8828125e-4f",
    [FX_DTYPE_BF16] = "(fx_f32)(w[k] >> 24) * 3.90625e-3f",
};

static void uniform(fxi_gpu_builder *b, int64_t n)
{
    /* One call of Philox gives four words: four numbers, or two of Float64. */
    const int dtype = b->step->out.dtype, block = dtype == FX_DTYPE_F64 ? 2 : 4;
    const fxi_gpu_type *type = &fxi_gpu_types[dtype];
    if (!uniforms[dtype]) {
        fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED, "no random numbers of element type %s", type->name);
        return;
    }
    fxi_gpu_begin(b, fxi_gpu_wide(n));
    fxi_gpu_say_part(b, fxi_gpu_text_philox);
    fxi_gpu_kernel(b, "fx_random", 2, 2);
    fxi_gpu_set(b, "stored", type->stored);
    fxi_gpu_set(b, "name", type->name);
    fxi_gpu_set_number(b, "block", block);
    fxi_gpu_set(b, "uniform", uniforms[dtype]);
    fxi_gpu_say_part(b, fxi_gpu_text_random);
    fxi_gpu_end(b);
    fxi_gpu_call *c = fxi_gpu_add(b);
    fxi_gpu_buffer(c, 0, FXI_GPU_OUT, 0);
    fxi_gpu_buffer(c, 1, FXI_GPU_STREAMS, 0);
    fxi_gpu_param(c, 0, n);
    fxi_gpu_param(c, 1, fx_step_generator(b->step)->stream);
    c->groups[0] = fxi_gpu_groups(n, (int64_t)block * FXI_GPU_GROUP);
}

void fxi_gpu_generate(fxi_gpu_builder *b)
{
    const int64_t n = fx_tensor_length(&b->step->out);
    if (n == 0)
        return;
    if (b->step->op == FX_OP_RANDOM)
        uniform(b, n);
    else
        iota(b, n);
}

/* ---- gather ---------------------------------------------------------------------------------- */
/* Checks every index in a launch of its own; out-of-range ones go to the fault words. A gather
 * gives zeros for them. */
void fxi_gpu_check_indices(fxi_gpu_builder *b, int axis, int64_t size)
{
    const fx_tensor *t = &b->step->in[1];
    const int64_t n = fx_tensor_length(t);
    fxi_gpu_layout l = {.nd = t->ndim};
    for (int d = 0; d < t->ndim; d++)
        l.shape[d] = t->shape[d];
    fxi_gpu_layout_add(&l, t->stride);
    const fxi_gpu_walk w = fxi_gpu_walk_over(&l, UINT32_MAX);
    if (t->dtype != FX_DTYPE_I32 && t->dtype != FX_DTYPE_I64)
        fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED, "indices of element type %s",
                     fxi_gpu_types[t->dtype].name);
    if (n == 0)
        return;
    fxi_gpu_begin(b, fxi_gpu_layout_wide(&l) || fxi_gpu_wide(size));
    fxi_gpu_kernel(b, "fx_check", 2, 4 + fxi_gpu_walk_params(&w));
    fxi_gpu_set(b, "index", fxi_gpu_types[t->dtype].stored);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_check_indices, "walk");
    fxi_gpu_walk_say(b, &w, 4, "i", "o", NULL);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
    fxi_gpu_call *c = fxi_gpu_add_each(b, n);
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, 1);
    fxi_gpu_buffer(c, 1, FXI_GPU_FAULT, 0);
    fxi_gpu_param(c, 1, size);
    fxi_gpu_param(c, 2, axis);
    fxi_gpu_param(c, 3, 1 + b->step->op);
    fxi_gpu_walk_fill(&w, c, 4);
}

/* The strides of x without its axis, and those of idx, over the output: x's axes before, idx's
 * axes, x's axes after. */
void fxi_gpu_index_layout(fxi_gpu_layout *l, const fx_tensor *outer, const fx_tensor *idx,
                          const fx_tensor *x, int axis)
{
    int64_t sx[FX_MAX_DIMS] = {0}, si[FX_MAX_DIMS] = {0};
    *l = (fxi_gpu_layout){.nd = outer->ndim};
    for (int d = 0; d < outer->ndim; d++) {
        const bool index = d >= axis && d < axis + idx->ndim;
        l->shape[d] = outer->shape[d];
        si[d] = index ? idx->stride[d - axis] : 0;
        sx[d] = index ? 0 : x->stride[d < axis ? d : d - idx->ndim + 1];
    }
    fxi_gpu_layout_add(l, sx);
    if (fxi_gpu_layout_add(l, si) ==
        0) { /* both have only zeros, but the caller expects two patterns */
        for (int d = 0; d < l->nd; d++)
            l->stride[1][d] = 0;
        l->npatterns = 2;
    }
}

void fxi_gpu_gather(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const fx_tensor *x = &s->in[0], *idx = &s->in[1];
    const int axis = fx_step_gather(s)->axis;
    const int64_t n = fx_tensor_length(&s->out);
    fxi_gpu_layout l;
    /* Queued before the gather, which does not wait for the answer: the error is reported by the
     * next call that waits. */
    fxi_gpu_check_indices(b, axis, x->shape[axis]);
    if (n == 0)
        return;
    fxi_gpu_index_layout(&l, &s->out, idx, x, axis);
    const fxi_gpu_walk w = fxi_gpu_walk_over(&l, UINT32_MAX);
    fxi_gpu_begin(b, fxi_gpu_layout_wide(&l) || fxi_gpu_wide(x->shape[axis]) ||
                         fxi_gpu_wide(fxi_gpu_reach(x->ndim, x->shape, x->stride)));
    fxi_gpu_kernel(b, "fx_gather", 3, 3 + fxi_gpu_walk_params(&w));
    fxi_gpu_set(b, "stored", fxi_gpu_types[x->dtype].stored);
    fxi_gpu_set(b, "index", fxi_gpu_types[idx->dtype].stored);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_gather, "walk");
    fxi_gpu_walk_say(b, &w, 3, "i", "o", NULL);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
    fxi_gpu_call *c = fxi_gpu_add_each(b, n);
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, 0);
    fxi_gpu_buffer(c, 1, FXI_GPU_IN, 1);
    fxi_gpu_buffer(c, 2, FXI_GPU_OUT, 0);
    fxi_gpu_param(c, 1, x->shape[axis]);
    fxi_gpu_param(c, 2, fxi_gpu_stride(x, axis));
    fxi_gpu_walk_fill(&w, c, 3);
}
