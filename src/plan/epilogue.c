/* epilogue.c: planner rule 4: a matrix product or forward convolution also does the elementwise
 * work on its result: bias, residual, activation. The result is then still in the cache, or in the
 * registers of a library's kernel, and is stored once.
 *
 * A pure function of the list of steps, after all other fusion. An elementwise step E reads the
 * product of step M, which no other step reads. A chain of instructions leads from the product to
 * the first value that E stores: additions (of a bias along the output channels, of a tensor of the
 * same shape or of a number), multiplications by a number (the scale of attention), and functions
 * that libraries know; for a convolution on the CPU also differences, products and quotients with a
 * value for each output channel (batch norm in test mode). M then computes and stores the value at
 * the end of the chain instead of the product. M moves to E's position in the list, where all
 * operands exist. If E has more instructions, they read the value that M stores. If several
 * products meet in E, the last one is chosen; the others are operands of its epilogue.
 *
 * The chain becomes M's register program. If the backend refuses it, the backend is asked again
 * without the last instruction, and so on; the removed instructions become a step of their own. An
 * epilogue rounds after each instruction, as separate steps would, so FX_EAGER=1 gives the same
 * bits. Measurements: docs/design/0005.
 */
#include "build.h"
#include <cflux/backend.h>

#include <string.h>

/* The most instructions of an epilogue: a bias, the three of batch norm, a residual, an
 * activation. */
enum { MOST = 6 };

/* The instructions of E, first to last, that become the epilogue of M. */
typedef struct chain {
    int32_t product; /* the input of E that is the product */
    int32_t n;
    uint8_t instr[MOST];
    uint8_t operand[MOST]; /* the other input of each instruction that has two inputs; of an
                              instruction with one input, this input */
} chain;

/* Can the vendors' libraries apply op to a product or convolution? Other functions stay elementwise
 * steps. */
static bool is_activation(uint8_t op)
{
    return op == FX_OP_RELU || op == FX_OP_TANH || op == FX_OP_SIGMOID;
}

/* The axis of output channels: the rows of a product, the second to last axis of a convolution
 * (W×H×C×N). */
static int channel_axis(const fx_step *m)
{
    return m->op == FX_OP_MATMUL ? 0 : m->out.ndim - 2;
}

/* Describes an operand of E as an operand of M. M's output may have another shape with the same
 * elements, or its axes in another order (channels last). An operand is translated if it is a dense
 * tensor of all elements, a number, or one value for each channel. False otherwise: kernels have no
 * loops for other broadcasts. If M stores its axes in another order (product_order.c), E reads them
 * in that order, in which there is no axis of channels. */
static bool translate(const fx_step *m, const fx_step *e, int operand, fx_tensor *out)
{
    const fx_tensor *t = &e->in[operand];
    const int to = channel_axis(m), axis = e->in_memory_order ? 0 : to;
    *out = m->out;
    /* All elements in the order of the output: the shape may differ, as in a reshape of the
     * product. */
    if (t->ndim > 0 && fxi_is_dense(t->ndim, t->shape, t->stride))
        return t->dtype == m->out.dtype;
    memset(out->stride, 0, sizeof out->stride);
    if (fxi_is_reordered(m))
        return t->dtype == m->out.dtype && fxi_is_number(t);
    for (int k = 0; k < t->ndim; k++)
        if (k != axis && t->shape[k] != 1 && t->stride[k] != 0)
            return false;
    if (t->ndim > 0) {
        if (t->ndim <= axis || t->shape[axis] != m->out.shape[to] ||
            (axis == to && fxi_length(axis, t->shape) != fxi_length(axis, m->out.shape)))
            return false;
        out->stride[to] = t->stride[axis];
    }
    return t->dtype == m->out.dtype;
}

/* The only instruction of E that reads register r; −1 if there is none, or several. With several
 * users the value of r itself would still be needed, and an epilogue does not store it. */
static int32_t only_user(const fx_step *e, int r)
{
    const fx_program *p = &fx_step_elementwise(e)->program;
    int32_t user = -1;
    for (int32_t k = 0; k < p->n; k++)
        for (int s = 0; s < p->instr[k].nsrc; s++) {
            if (p->instr[k].src[s] != r)
                continue;
            if (user >= 0)
                return -1;
            user = k;
        }
    return user;
}

/* Which output of E does register r hold? −1: the main one; k ≥ 0: further output k; −2: none. */
static int output_of(const fx_step *e, int r)
{
    const fx_elementwise_step *own = fx_step_elementwise(e);
    for (int k = 0; k < own->more.n; k++)
        if (own->more.reg[k] == r)
            return k;
    return r == e->nin + own->program.n - 1 ? -1 : -2;
}

/* Can M's epilogue apply op with this operand? Multiplications by tensors stay in elementwise
 * steps: most are parts of longer gradients, which would be divided. One value for each channel is
 * not part of a gradient, and the CPU's convolutions apply it while the result is in the cache. */
static bool applies(const fxi_planner *how, const fx_step *m, uint8_t op, const fx_tensor *operand)
{
    const bool number = fxi_is_number(operand);
    if (op == FX_OP_ADD || (op == FX_OP_MUL && number))
        return true;
    return (op == FX_OP_SUB || op == FX_OP_MUL || op == FX_OP_DIV) && m->cls == FX_CLASS_CONV &&
           how->is_cpu && (number || !fxi_is_dense(operand->ndim, operand->shape, operand->stride));
}

/* May instruction k of E, which reads register r, be in M's epilogue? All types must equal the type
 * of the product: the kernels of epilogues do not convert. */
static bool fits(const fxi_planner *how, const fx_step *m, const fx_step *e, int32_t k, int r,
                 uint8_t *out_operand)
{
    const fx_instr *ins = &fx_step_elementwise(e)->program.instr[k];
    fx_tensor t;
    *out_operand = (uint8_t)r;
    if (ins->dtype != m->out.dtype || ins->from != m->out.dtype)
        return false;
    if (is_activation(ins->op))
        return true;
    if (ins->nsrc != 2)
        return false;
    *out_operand = ins->src[0] == r ? ins->src[1] : ins->src[0];
    return *out_operand < e->nin && applies(how, m, ins->op, &e->in[*out_operand]) &&
           translate(m, e, *out_operand, &t);
}

/* Follows the product through the instructions of E to the first value that E stores. */
static bool find_chain(const fxi_planner *how, const fx_step *m, const fx_step *e, int32_t product,
                       chain *out)
{
    int32_t most = how->buffers - fx_step_buffers(m);
    const fx_tensor *t = &e->in[product];
    *out = (chain){.product = product};
    /* E must read the whole product, element for element: a part or a permutation has no position
     * in the loop that stores the product. */
    if (e->in_offset[product] != 0 || t->ndim == 0 || !fxi_is_dense(t->ndim, t->shape, t->stride) ||
        fxi_length(t->ndim, t->shape) != fxi_length(m->out.ndim, m->out.shape))
        return false;
    int r = product;
    do {
        const int32_t k = out->n < MOST ? only_user(e, r) : -1;
        if (k < 0 || !fits(how, m, e, k, r, &out->operand[out->n]))
            return false;
        most -= out->operand[out->n] != r;
        if (most < 0)
            return false;
        out->instr[out->n++] = (uint8_t)k;
        r = e->nin + k;
    } while (output_of(e, r) == -2);
    /* The chain is all of E, or it ends in a further output of E. */
    return output_of(e, r) >= 0 || out->n == fx_step_elementwise(e)->program.n;
}

/* ---- moving instructions --------------------------------------------------------------------- */

/* Extends the lists of inputs by n. A list that grew is kept also if the next allocation fails, so
 * the step can still be freed. */
static bool more_inputs(fx_step *s, int n)
{
    const size_t capacity = (size_t)(s->nin + n) + 1;
    fx_tensor *in = fxi_realloc(s->in, capacity * sizeof *in);
    s->in = in ? in : s->in;
    int32_t *value = fxi_realloc(s->in_value, capacity * sizeof *value);
    s->in_value = value ? value : s->in_value;
    int64_t *offset = fxi_realloc(s->in_offset, capacity * sizeof *offset);
    s->in_offset = offset ? offset : s->in_offset;
    return in && value && offset;
}

/* The epilogue of a convolution or a product. No other class has one. */
static fx_program *epilogue_of(fx_step *m)
{
    return m->cls == FX_CLASS_CONV ? &m->as.conv.epilogue : &m->as.matmul.epilogue;
}

/* Gives M the instructions and operands of the chain. */
static bool extend(fx_step *m, const fx_step *e, const chain *c)
{
    const fx_instr *old = fx_step_elementwise(e)->program.instr;
    fx_program *epilogue = epilogue_of(m);
    /* At most one new operand for each instruction, hence space for c->n inputs. */
    epilogue->instr = fxi_calloc((size_t)c->n, sizeof *epilogue->instr);
    if (!epilogue->instr || !more_inputs(m, c->n))
        return false;
    uint8_t operand[MOST] = {0};
    for (int k = 0; k < c->n; k++) {
        const int from = c->operand[k];
        if (old[c->instr[k]].nsrc < 2)
            continue;
        operand[k] = (uint8_t)(m->nin - 1);
        translate(m, e, from, &m->in[m->nin]);
        m->in_value[m->nin] = e->in_value[from];
        m->in_offset[m->nin++] = e->in_offset[from];
    }
    /* Register 0 of an epilogue is the product, 1 … are the added inputs, then the results of its
     * instructions. The loop runs second because register numbers depend on the number of inputs.
     */
    for (int k = 0; k < c->n; k++) {
        fx_instr *ins = &epilogue->instr[k];
        *ins = old[c->instr[k]];
        const int before = k ? c->instr[k - 1] + e->nin : c->product;
        for (int s = 0; s < ins->nsrc; s++)
            ins->src[s] = ins->src[s] != before ? operand[k] : k ? (uint8_t)(m->nin - 2 + k) : 0;
    }
    epilogue->n = c->n;
    return true;
}

/* Removes the chain from E: the input that was the product becomes the value that M now computes.
 * Inputs that only the chain read are dropped, and all register numbers move down. */
static void shorten(fx_step *e, const chain *c, int32_t value)
{
    uint8_t map[UINT8_MAX + 1] = {0};
    bool used[UINT8_MAX + 1] = {false};
    fx_program *p = &e->as.elementwise.program;
    fx_more_outputs *more = &e->as.elementwise.more;
    const int end = e->nin + c->instr[c->n - 1], old = e->nin;
    int ninstr = 0;
    for (int32_t k = 0, next = 0; k < p->n; k++) {
        if (next < c->n && c->instr[next] == k) {
            next++;
            continue;
        }
        for (int s = 0; s < p->instr[k].nsrc; s++)
            used[p->instr[k].src[s]] = true;
        /* Counts from the first instruction. The number of inputs is added below, when it is known.
         */
        map[old + k] = (uint8_t)ninstr;
        p->instr[ninstr++] = p->instr[k];
    }
    e->in_value[c->product] = value;
    e->nin = 0;
    for (int i = 0; i < old; i++) {
        if (!used[i] && i != c->product)
            continue;
        e->in[e->nin] = e->in[i];
        e->in_value[e->nin] = e->in_value[i];
        e->in_offset[e->nin] = e->in_offset[i];
        map[i] = (uint8_t)e->nin++;
    }
    for (int r = old; r < old + p->n; r++)
        map[r] = (uint8_t)(map[r] + e->nin);
    /* Readers of the end of the chain now read the input that was the product. */
    map[end] = map[c->product];
    for (int k = 0; k < ninstr; k++)
        for (int s = 0; s < p->instr[k].nsrc; s++)
            p->instr[k].src[s] = map[p->instr[k].src[s]];
    int nmore = 0;
    for (int k = 0; k < more->n; k++) {
        /* M stores this output now. */
        if (more->reg[k] == end)
            continue;
        more->reg[nmore] = map[more->reg[k]];
        more->value[nmore++] = more->value[k];
    }
    more->n = nmore;
    p->n = ninstr;
}

/* ---- the rule -------------------------------------------------------------------------------- */

typedef struct survey {
    int32_t *producer; /* per value: the product or convolution that computes it, or −1 */
    int32_t *readers;  /* per value: how often steps read it */
    int32_t *before;   /* per step: the product or convolution that moves in front of it, or −1 */
    bool *gone;        /* per step: it moved, or all its instructions were taken */
} survey;

/* Can step s get an epilogue? Only products and forward convolutions can, and each only once. */
static bool can_have_epilogue(const fx_step *s)
{
    return !fx_step_has_epilogue(s) &&
           (s->cls == FX_CLASS_MATMUL ||
            (s->cls == FX_CLASS_CONV && fx_step_conv(s)->attr.kind == FX_CONV_FORWARD));
}

/* Notes who computes and who reads each value. Only arena values qualify: an output of the plan
 * must be stored. */
static bool survey_steps(const fxi_plan *p, survey *s)
{
    const size_t values = (size_t)p->nvalues + 1, steps = (size_t)p->nsteps + 1;
    s->producer = fxi_malloc(values * sizeof *s->producer);
    s->readers = fxi_calloc(values, sizeof *s->readers);
    s->before = fxi_malloc(steps * sizeof *s->before);
    s->gone = fxi_calloc(steps, sizeof *s->gone);
    if (!s->producer || !s->readers || !s->before || !s->gone)
        return false;
    memset(s->producer, -1, values * sizeof *s->producer);
    memset(s->before, -1, steps * sizeof *s->before);
    for (int32_t i = 0; i < p->nsteps; i++) {
        const fx_step *step = &p->steps[i];
        if (can_have_epilogue(step) && p->values[step->out_value].kind == FXI_VALUE_ARENA)
            s->producer[step->out_value] = i;
        for (int k = 0; k < step->nin; k++)
            s->readers[step->in_value[k]]++;
    }
    return true;
}

/* The last product or convolution before step e that can take a chain from e; −1: none. */
static int32_t find_product(const fxi_planner *how, const fxi_plan *p, const survey *s, int32_t e,
                            chain *out)
{
    const fx_step *step = &p->steps[e];
    int32_t best = -1;
    for (int k = 0; k < step->nin && step->cls == FX_CLASS_ELEMENTWISE; k++) {
        const int32_t v = step->in_value[k], m = s->producer[v];
        chain c;
        /* With another reader the bare product is needed too, and M stores only one value. */
        if (m > best && !s->gone[m] && s->readers[v] == 1 &&
            find_chain(how, &p->steps[m], step, k, &c)) {
            best = m;
            *out = c;
        }
    }
    return best;
}

/* Moves the chain from step e to step m, and with it the output at the end of the chain. */
static bool fuse(fxi_plan *p, survey *s, int32_t m, int32_t e, const chain *c)
{
    fx_step *from = &p->steps[e], *to = &p->steps[m];
    if (!extend(to, from, c))
        return false;
    const int output = output_of(from, from->nin + c->instr[c->n - 1]);
    /* The value keeps its number: its readers need no change. */
    to->out_value = fx_step_output(from, output + 1);
    s->before[e] = m;
    s->gone[m] = true;
    s->gone[e] = output < 0;
    if (output >= 0)
        shorten(from, c, to->out_value);
    return true;
}

/* Writes the list of steps in its new order: each product moves to the step whose chain it took,
 * because operands of the chain may be computed between the two. */
static bool reorder(fxi_plan *p, const survey *s)
{
    fx_step *steps = fxi_malloc(((size_t)p->nsteps + 1) * sizeof *steps);
    int32_t n = 0;
    if (!steps)
        return false;
    for (int32_t i = 0; i < p->nsteps; i++) {
        if (s->before[i] >= 0)
            steps[n++] = p->steps[s->before[i]];
        if (!s->gone[i])
            steps[n++] = p->steps[i];
        else if (s->before[i] >= 0)
            fxi_step_free(&p->steps[i]);
    }
    fxi_free(p->steps);
    p->steps = steps;
    p->step_capacity = p->nsteps + 1;
    p->nsteps = n;
    return true;
}

bool fxi_add_epilogues(const fxi_planner *how, fxi_plan *p)
{
    survey s = {0};
    bool ok = survey_steps(p, &s), any = false;
    for (int32_t e = 0; e < p->nsteps && ok; e++) {
        chain c = {0};
        const int32_t m = find_product(how, p, &s, e, &c);
        ok = m < 0 || fuse(p, &s, m, e, &c);
        any |= m >= 0;
    }
    ok = ok && (!any || reorder(p, &s));
    fxi_free(s.producer);
    fxi_free(s.readers);
    fxi_free(s.before);
    fxi_free(s.gone);
    return ok;
}

/* ---- stripping ------------------------------------------------------------------------------- */

/* Cuts the epilogue of step s to its first n instructions, with the inputs that they read. The
 * removed inputs stay in the list, after the first `nin`, for add_rest. */
static void trim(fx_step *s, int32_t n)
{
    fx_program *p = epilogue_of(s);
    int nin = 2;
    for (int32_t k = 0; k < n; k++)
        nin += p->instr[k].nsrc > 1;
    /* Registers from nin − 1 on are results of instructions (extend). With fewer inputs, their
     * numbers are lower. */
    for (int32_t k = 0; k < n; k++)
        for (int i = 0; i < p->instr[k].nsrc; i++)
            if (p->instr[k].src[i] >= s->nin - 1)
                p->instr[k].src[i] = (uint8_t)(p->instr[k].src[i] - (s->nin - nin));
    s->nin = nin;
    p->n = n;
}

/* Describes a tensor by one axis. It must be dense, or a number that is expanded (stride 0). */
static void one_axis(fx_tensor *t)
{
    const fx_tensor old = *t;
    *t = (fx_tensor){.dtype = old.dtype, .ndim = 1, .shape = {fx_tensor_length(&old)}};
    t->stride[0] = !fxi_is_number(&old);
}

/* Lets an elementwise step whose tensors all have one order of axes run over them as one axis. */
static void run_over_memory(fx_step *e)
{
    one_axis(&e->out);
    for (int k = 0; k < e->nin; k++)
        one_axis(&e->in[k]);
}

/* Adds a step after step i for the instructions of `whole` from number n on. The new step writes
 * the old output; step i writes a new arena value. */
static bool add_rest(fxi_plan *p, int32_t i, const fx_step *whole, const fx_instr *program,
                     int32_t n)
{
    const int32_t total = fx_step_program(whole).n, count = total - n,
                  v = fxi_add_value(p, FXI_VALUE_ARENA, 0, 0);
    if (v < 0 || !fxi_grow(&p->steps, &p->step_capacity, p->nsteps + 1, sizeof *p->steps))
        return false;
    fx_step *m = &p->steps[i], *e = m + 1;
    memmove(e + 1, e, (size_t)(p->nsteps++ - i - 1) * sizeof *e);
    *e = (fx_step){.op = program[total - 1].op,
                   .cls = FX_CLASS_ELEMENTWISE,
                   .nin = 1,
                   .out = m->out,
                   .out_value = m->out_value};
    /* All instructions of an epilogue keep the type of the product, so the new value is as large as
     * the old one. */
    p->values[v].bytes = p->values[m->out_value].bytes;
    fx_program *rest = &e->as.elementwise.program;
    rest->instr = fxi_calloc((size_t)count, sizeof *rest->instr);
    if (!rest->instr || !more_inputs(e, count))
        return false;
    e->in[0] = m->out;
    e->in_value[0] = m->out_value = v;
    e->in_offset[0] = 0;
    e->nin = whole->nin - m->nin + 1;
    for (int k = 1; k < e->nin; k++) {
        e->in[k] = m->in[m->nin + k - 1];
        e->in_value[k] = m->in_value[m->nin + k - 1];
        e->in_offset[k] = m->in_offset[m->nin + k - 1];
    }
    for (int k = 0; k < count; k++) {
        fx_instr *ins = &rest->instr[rest->n++];
        *ins = program[n + k];
        for (int s = 0; s < ins->nsrc; s++) {
            const int r = ins->src[s], before = n + k ? whole->nin - 2 + n + k : 0;
            ins->src[s] = (uint8_t)(r != before ? r - (m->nin - 2) : k ? e->nin + k - 1 : 0);
        }
    }
    p->values[v].channels_last = p->values[e->out_value].channels_last;
    /* The new step reads memory in the order in which M writes it. */
    if (fxi_is_reordered(m))
        run_over_memory(e);
    if (m->cls == FX_CLASS_CONV && fx_step_conv(m)->channels_last)
        fxi_permute_axes(e);
    return true;
}

/* Prepares step i with the longest epilogue that the backend takes. Returns the status of
 * `prepare`. The program is copied first, because trim changes it. */
static fx_status settle(const fxi_planner *how, fxi_plan *p, int32_t i)
{
    const fx_step whole = p->steps[i];
    fx_instr program[MOST];
    const fx_program epilogue = fx_step_program(&whole);
    memcpy(program, epilogue.instr, (size_t)epilogue.n * sizeof *program);
    int32_t n = epilogue.n;
    fx_status status = fxi_prepare_step(how, p, &p->steps[i]);
    /* `prepare` is called at most MOST + 1 times, the last time with the bare product. */
    while (status == FX_STATUS_UNSUPPORTED && n > 0) {
        trim(&p->steps[i], --n);
        status = fxi_prepare_step(how, p, &p->steps[i]);
    }
    const bool stripped = n < epilogue.n;
    if (status != FX_STATUS_MEMORY && stripped && !add_rest(p, i, &whole, program, n))
        return FX_STATUS_MEMORY;
    return status;
}

bool fxi_settle_epilogues(const fxi_planner *how, fxi_plan *p)
{
    fx_status status = FX_OK;
    for (int32_t i = 0; how->prepare && i < p->nsteps && status != FX_STATUS_MEMORY; i++)
        /* The step that add_rest inserts after step i has no epilogue, so the loop skips it.
         */
        if (fx_step_has_epilogue(&p->steps[i]))
            status = settle(how, p, i);
    return status != FX_STATUS_MEMORY;
}
