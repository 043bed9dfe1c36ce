/* plan_check.c: checks that every step of a finished plan reads the values that it is meant to
 * read.
 *
 * The check visits the steps in order and notes which value each memory holds: the bytes of the
 * arena, the buffers of leaves and the output buffers. A step may read a value if an earlier step
 * made it (or it is a leaf or a literal) and no step has written over any byte of it since. A step
 * may write over a value that it reads itself only element for element, or if it is a concatenation
 * and the value is where it would be copied to. Its work space is memory that it writes before its
 * outputs and that no other step reads. At the end the results must be intact, in memory that
 * outlives the run. The operands of attention must have the alignment that its kernels load, and
 * the outputs of a program must be different registers.
 *
 * The check shares no code with place.c, inside.c, donate.c and in_place.c (except fxi_row_reads),
 * so it finds a mistake in these files. It uses only the tensors and offsets of the steps and the
 * places of the values. Debug builds check every plan. The time is linear in the operands, apart
 * from the insertion into the sorted list of values in the arena.
 */
#include "plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Two numbers that are not numbers of steps: no step yet, and before the first step. */
enum { NEVER = -2, BEFORE = -1, ALIGNMENT = 64 };

/* The state of a value while steps are checked. */
typedef struct state {
    int32_t made;        /* the step that made it; NEVER: not made yet; BEFORE: a leaf or literal */
    int32_t spoiled;     /* the first step that has written over it, or NEVER */
    int32_t replacement; /* the value that this step wrote there, for the message */
} state;

typedef struct checking {
    const fxi_plan *p;
    char *why;
    size_t size;
    state *values;
    int32_t *arena; /* intact arena values, by offset; they do not overlap */
    int32_t narena;
    int32_t *leaf, *output; /* per buffer: the value that it holds, or -1 */
    int32_t nleaves;
} checking;

/* Writes the reason and returns false, so that a check can return it in one line. */
FXI_PRINTF(2, 3) static bool wrong(const checking *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->why, c->size, format, args);
    va_end(args);
    return false;
}

static const char *name_of(const checking *c, int32_t step)
{
    return step < 0 ? "no step" : fxi_ops[c->p->steps[step].op].name;
}

/* ---- where bytes are ------------------------------------------------------------------------- */

/* Bytes relative to the beginning of a value. */
typedef struct range {
    int64_t low, high;
} range;

static int64_t size_of(const fx_tensor *t)
{
    return (int64_t)fx_dtype_size((fx_dtype)t->dtype);
}

/* The bytes of its value that operand k reads; low = high: none. */
static range operand_range(const fx_step *s, int k)
{
    const fx_tensor *t = &s->in[k];
    range r = {s->in_offset[k], s->in_offset[k]};
    /* An empty operand reads nothing, and its strides would give a range. */
    if (fx_tensor_length(t) == 0)
        return (range){0, 0};
    for (int a = 0; a < t->ndim; a++)
        /* A negative stride reads before the first element, so each axis extends one end only. */
        *(t->stride[a] < 0 ? &r.low : &r.high) += (t->shape[a] - 1) * t->stride[a];
    return (range){r.low * size_of(t), (r.high + 1) * size_of(t)};
}

/* The bytes that the step writes to output o, by its sizes and program; the value's own size comes
 * from another source. */
static int64_t output_bytes(const fx_step *s, int32_t o)
{
    const fx_tensor t = fxi_step_output_tensor(s, o);
    return fx_tensor_length(&t) * size_of(&t);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Is value v complete, and not overwritten? */
static bool is_intact(const checking *c, const char *reader, int32_t v)
{
    const state *s = &c->values[v];
    if (s->made == NEVER)
        return wrong(c, "%s reads value %d before a step has made it", reader, (int)v);
    if (s->spoiled != NEVER)
        return wrong(c, "%s reads value %d, over which step %d (%s) has written value %d", reader,
                     (int)v, (int)s->spoiled, name_of(c, s->spoiled), (int)s->replacement);
    return true;
}

static bool check_operand(const checking *c, int32_t i, int k)
{
    const fx_step *s = &c->p->steps[i];
    const int32_t v = s->in_value[k];
    char reader[64];
    snprintf(reader, sizeof reader, "step %d (%s)", (int)i, name_of(c, i));
    if (!is_intact(c, reader, v))
        return false;
    const range r = operand_range(s, k);
    /* A leaf may be a view of a larger buffer, whose size the plan does not know. */
    if (c->p->values[v].kind != FXI_VALUE_LEAF && r.low < r.high &&
        (r.low < 0 || r.high > c->p->values[v].bytes))
        return wrong(c, "%s reads bytes %lld to %lld of value %d, which has %lld", reader,
                     (long long)r.low, (long long)r.high - 1, (int)v,
                     (long long)c->p->values[v].bytes);
    return true;
}

/* Some operands of attention may be views. Kernels load 16 bytes of features at once, so in a view
 * the features are neighbours, and the distances between its vectors of features are multiples of
 * 16 bytes. The mask is any view, and the other operands are dense. */
static bool check_attention_operand(const checking *c, int32_t i, int k)
{
    enum { LOADED = 16 };
    const fx_step *s = &c->p->steps[i];
    const fx_tensor *t = &s->in[k];
    if (k == fx_step_attention(s)->mask && k > 0)
        return true;
    bool view = k < FX_ATTENTION_VIEWS && (t->shape[0] == 1 || t->stride[0] == 1);
    for (int a = 1; a < t->ndim; a++)
        view = view && (t->shape[a] == 1 || t->stride[a] * size_of(t) % LOADED == 0);
    const bool begins = k >= FX_ATTENTION_VIEWS || s->in_offset[k] * size_of(t) % LOADED == 0;
    return (begins && (view || fxi_is_dense(t->ndim, t->shape, t->stride))) ||
           wrong(c, "step %d (%s) reads value %d, which is not aligned or not dense", (int)i,
                 name_of(c, i), (int)s->in_value[k]);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Notes the first write over value v; later ones do not matter. */
static void spoil(checking *c, int32_t v, int32_t i, int32_t by)
{
    if (v < 0 || c->values[v].spoiled != NEVER)
        return;
    c->values[v].spoiled = i;
    c->values[v].replacement = by;
}

/* The first entry of the arena's list that ends after an offset. Binary search: the entries are
 * sorted and do not overlap. */
static int32_t first_ending_after(const checking *c, int64_t offset)
{
    int32_t lo = 0, hi = c->narena;
    while (lo < hi) {
        const int32_t mid = (lo + hi) / 2;
        const fxi_value *v = &c->p->values[c->arena[mid]];
        if (v->offset + v->bytes <= offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Puts value w into the list of the arena and spoils all values that share a byte with it. Literals
 * and streams follow at the end, where no value may be. */
static bool write_arena(checking *c, int32_t i, int32_t w)
{
    const fxi_value *v = &c->p->values[w];
    const int64_t end = c->p->literals_bytes ? c->p->literals_offset : c->p->arena_bytes;
    if (v->offset < 0 || v->offset % ALIGNMENT != 0 || v->offset + v->bytes > end)
        return wrong(c, "value %d is at bytes %lld to %lld of an arena of %lld", (int)w,
                     (long long)v->offset, (long long)(v->offset + v->bytes) - 1, (long long)end);
    /* An empty value shares no byte with others, and the sorted list holds no two values at one
     * offset. */
    if (v->bytes == 0)
        return true;
    const int32_t from = first_ending_after(c, v->offset);
    int32_t to = from;
    for (; to < c->narena && c->p->values[c->arena[to]].offset < v->offset + v->bytes; to++)
        spoil(c, c->arena[to], i, w);
    /* The spoiled values leave the list, so it stays free of overlaps. */
    memmove(&c->arena[from + 1], &c->arena[to], (size_t)(c->narena - to) * sizeof *c->arena);
    c->narena += from + 1 - to;
    c->arena[from] = w;
    return true;
}

/* Puts value w into a buffer that holds one value, and spoils the value that was there. */
static bool write_buffer(checking *c, int32_t i, int32_t w, int32_t *holder, int32_t n,
                         const char *what)
{
    const int32_t index = c->p->values[w].index;
    if (index < 0 || index >= n)
        return wrong(c, "value %d is in %s %d of %d", (int)w, what, (int)index, (int)n);
    spoil(c, holder[index], i, w);
    holder[index] = w;
    return true;
}

/* Writes value w to its memory. Donated values must be as large as the value that they replace. */
static bool write_place(checking *c, int32_t i, int32_t w)
{
    const fxi_value *v = &c->p->values[w];
    switch (v->kind) {
    case FXI_VALUE_ARENA:
        return write_arena(c, i, w);
    case FXI_VALUE_OUTPUT:
        if (v->index >= 0 && v->index < c->p->nbuffers && c->p->buffer_bytes[v->index] < v->bytes)
            return wrong(c, "value %d has %lld bytes, its buffer %lld", (int)w, (long long)v->bytes,
                         (long long)c->p->buffer_bytes[v->index]);
        return write_buffer(c, i, w, c->output, c->p->nbuffers, "output buffer");
    case FXI_VALUE_DONATED:
        if (v->index >= 0 && v->index < c->nleaves && c->leaf[v->index] >= 0 &&
            c->p->values[c->leaf[v->index]].bytes != v->bytes)
            return wrong(c, "value %d has %lld bytes, value %d that it replaces %lld", (int)w,
                         (long long)v->bytes, (int)c->leaf[v->index],
                         (long long)c->p->values[c->leaf[v->index]].bytes);
        return write_buffer(c, i, w, c->leaf, c->nleaves, "leaf");
    default:
        return wrong(c, "step %d (%s) writes value %d, which is a leaf or a literal", (int)i,
                     name_of(c, i), (int)w);
    }
}

/* Checks output o of step i. No value may be made twice: readers could not tell which one they get.
 */
static bool check_output(checking *c, int32_t i, int32_t o)
{
    const fx_step *s = &c->p->steps[i];
    const int32_t w = fx_step_output(s, o);
    state *t = &c->values[w];
    if (t->made != NEVER)
        return wrong(c, "step %d (%s) makes value %d, which is already defined", (int)i,
                     name_of(c, i), (int)w);
    if (output_bytes(s, o) != c->p->values[w].bytes)
        return wrong(c, "step %d (%s) writes %lld bytes to value %d, which has %lld", (int)i,
                     name_of(c, i), (long long)output_bytes(s, o), (int)w,
                     (long long)c->p->values[w].bytes);
    t->made = i;
    return write_place(c, i, w);
}

/* The register of output o of an elementwise step or a row step. */
static int register_of(const fx_step *s, int32_t o)
{
    return o > 0                    ? fx_step_more(s)->reg[o - 1]
           : s->cls == FX_CLASS_ROW ? s->as.row.out_reg
                                    : s->nin + fx_step_program(s).n - 1;
}

/* Is output o of step i the value of a register that no earlier output has? A kernel may compute a
 * register in the memory of its output, so only one output would be written. */
static bool check_register(const checking *c, int32_t i, int32_t o)
{
    const fx_step *s = &c->p->steps[i];
    for (int32_t k = 0; k < o && (s->cls == FX_CLASS_ELEMENTWISE || s->cls == FX_CLASS_ROW); k++)
        if (register_of(s, k) == register_of(s, o))
            return wrong(c, "step %d (%s) stores one register as values %d and %d", (int)i,
                         name_of(c, i), (int)fx_step_output(s, k), (int)fx_step_output(s, o));
    return true;
}

/* Do the outputs of step i share no byte? Kernels may write them in any order. */
static bool outputs_are_apart(const checking *c, int32_t i)
{
    const fx_step *s = &c->p->steps[i];
    for (int32_t o = 0; o < fx_step_outputs(s); o++) {
        const state *t = &c->values[fx_step_output(s, o)];
        if (t->spoiled == i)
            return wrong(c, "step %d (%s) writes value %d over value %d, another output of it",
                         (int)i, name_of(c, i), (int)t->replacement, (int)fx_step_output(s, o));
    }
    return true;
}

/* ---- work space ------------------------------------------------------------------------------ */

/* Writes the work space of step i. No operand of the step may share a byte with it: the kernel
 * writes there while it still reads operands. */
static bool check_work(checking *c, int32_t i)
{
    const fx_step *s = &c->p->steps[i];
    const int32_t w = s->work_value;
    if (s->work_bytes <= 0)
        return true;
    /* A value that a step has made is an output and not work space. */
    if (w < 0 || w >= c->p->nvalues || c->p->values[w].kind != FXI_VALUE_ARENA ||
        c->values[w].made != NEVER || c->p->values[w].bytes < s->work_bytes)
        return wrong(c,
                     "step %d (%s) needs %lld bytes of work space, but value %d is not work space",
                     (int)i, name_of(c, i), (long long)s->work_bytes, (int)w);
    if (!write_arena(c, i, w))
        return false;
    for (int k = 0; k < s->nin; k++)
        if (c->values[s->in_value[k]].spoiled == i)
            return wrong(c,
                         "step %d (%s) has its work space, value %d, in value %d, which it reads",
                         (int)i, name_of(c, i), (int)w, (int)s->in_value[k]);
    return true;
}

/* Outputs may not share bytes with the work space either. */
static bool work_is_apart(const checking *c, int32_t i)
{
    const fx_step *s = &c->p->steps[i];
    const state *t = s->work_bytes > 0 ? &c->values[s->work_value] : NULL;
    return !t || t->spoiled != i ||
           wrong(c, "step %d (%s) writes value %d over its work space, value %d", (int)i,
                 name_of(c, i), (int)t->replacement, (int)s->work_value);
}

/* ---- in place -------------------------------------------------------------------------------- */

/* The offset of a value in its memory: only arena values share memory with others. */
static int64_t start_of(const checking *c, int32_t v)
{
    return c->p->values[v].kind == FXI_VALUE_ARENA ? c->p->values[v].offset : 0;
}

/* Does row step s compute output o from elements, and read none of them afterwards? The program is
 * in the order of execution, and each pass begins at the first element again. */
static bool is_written_last(const fx_step *s, int32_t o)
{
    const fx_row_step *row = &s->as.row;
    const int at = register_of(s, o) - s->nin;
    for (int k = at + 1; k < row->program.n; k++)
        if (fxi_row_reads(s, k))
            return false;
    return at >= 0 && !row->program.instr[at].row && row->program.instr[at].op != FX_OP_REDUCE;
}

/* Is element i of operand k at the same byte as element i of an output that begins at `start` and
 * has `bytes` bytes? Segments of a foreach step have no shape, so there only the length counts. */
static bool element_for_element(const checking *c, const fx_step *s, int k, int64_t start,
                                int64_t bytes)
{
    const fx_tensor *t = &s->in[k];
    const int64_t at = start_of(c, s->in_value[k]) + s->in_offset[k] * size_of(t);
    const bool shaped = s->cls == FX_CLASS_ELEMENTWISE || s->cls == FX_CLASS_ROW;
    const bool segments = s->cls == FX_CLASS_FOREACH && !fx_step_foreach(s)->each;
    if (!(shaped || segments) || at != start || fx_tensor_length(t) * size_of(t) != bytes)
        return false;
    int64_t run = 1; /* the stride that a dense tensor has on this axis */
    for (int a = 0; a < t->ndim; a++) {
        if (t->shape[a] != 1 && t->stride[a] != run)
            return false;
        if (shaped && (t->ndim != s->out.ndim || t->shape[a] != s->out.shape[a]))
            return false;
        run *= t->shape[a];
    }
    return true;
}

/* Is operand k of a concatenation where the step would copy it to? */
static bool is_joined_in_place(const checking *c, const fx_step *s, int k, int64_t start)
{
    const fx_tensor *t = &s->in[k], *out = &s->out;
    int64_t at = start_of(c, s->in_value[k]) + s->in_offset[k] * size_of(t) - start;
    if (s->op != FX_OP_CONCAT || !fxi_is_dense(t->ndim, t->shape, t->stride))
        return false;
    const int axis = fx_step_copy(s)->axis;
    for (int d = 0; d < out->ndim; d++)
        if (d > axis && out->shape[d] != 1)
            return false;
    for (int j = 0; j < k; j++)
        at -= fx_tensor_length(&s->in[j]) * size_of(t);
    return at == 0;
}

/* If step i writes over its own operand k: does it do so in place, element for element? */
static bool check_own_write(const checking *c, int32_t i, int k)
{
    const fx_step *s = &c->p->steps[i];
    const int32_t v = s->in_value[k], w = c->values[v].replacement;
    if (c->values[v].spoiled != i)
        return true;
    const int64_t start = start_of(c, w), bytes = c->p->values[w].bytes, from = start_of(c, v);
    const range r = operand_range(s, k);
    if (from + r.low >= start + bytes || from + r.high <= start || r.low == r.high)
        return true; /* the bytes that it reads are not overwritten */
    if (is_joined_in_place(c, s, k, start))
        return true;
    /* Segments may run at the same time, so an operand may be overwritten only by an output of its
     * own segment. */
    const int32_t segments = fx_step_segments(s), per_segment = fx_step_outputs(s) / segments,
                  first = k / (s->nin / segments) * per_segment;
    for (int32_t o = first; o < first + per_segment; o++)
        if (fx_step_output(s, o) == w && (s->cls != FX_CLASS_ROW || is_written_last(s, o)) &&
            element_for_element(c, s, k, start, bytes))
            return true;
    return wrong(c, "step %d (%s) writes value %d over value %d, which it reads in another order",
                 (int)i, name_of(c, i), (int)w, (int)v);
}

/* Does the device allow a kernel with so many buffers? */
static bool check_buffers(const checking *c, int32_t i)
{
    const int32_t most = c->p->device ? c->p->device->info.buffers : 0,
                  n = fx_step_buffers(&c->p->steps[i]);
    return most == 0 || n <= most ||
           wrong(c, "step %d (%s) may need %d buffers, and the device allows %d", (int)i,
                 name_of(c, i), (int)n, (int)most);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The order of these checks is the order of events in a step: read operands, write work space,
 * write outputs. */
static bool check_step(checking *c, int32_t i)
{
    const fx_step *s = &c->p->steps[i];
    if (!check_buffers(c, i))
        return false;
    for (int k = 0; k < s->nin; k++)
        if (!check_operand(c, i, k) ||
            (s->cls == FX_CLASS_ATTENTION && !check_attention_operand(c, i, k)))
            return false;
    if (!check_work(c, i))
        return false;
    for (int32_t o = 0; o < fx_step_outputs(s); o++)
        if (!check_output(c, i, o) || !check_register(c, i, o))
            return false;
    if (!outputs_are_apart(c, i) || !work_is_apart(c, i))
        return false;
    for (int k = 0; k < s->nin; k++)
        if (!check_own_write(c, i, k))
            return false;
    return true;
}

/* Are operand and result of each collective step intact until the step is finished? Both are used
 * until then, beside the steps in between. */
static bool check_begun(const checking *c)
{
    for (int32_t i = 0; i < c->p->nsteps; i++) {
        const fx_step *s = &c->p->steps[i];
        if (s->cls != FX_CLASS_COLLECTIVE || s->as.collective.until == 0)
            continue;
        const state *in = &c->values[s->in_value[0]], *out = &c->values[s->out_value];
        const int32_t until = s->as.collective.until;
        if (until <= i || (in->spoiled != NEVER && in->spoiled < until) ||
            (out->spoiled != NEVER && out->spoiled < until))
            return wrong(c, "step %d (%s) runs until step %d, but its memory is overwritten before",
                         (int)i, name_of(c, i), (int)until);
    }
    return true;
}

/* Results must outlive the run: the arena is used again for the next one, and literals belong to
 * the run. */
static bool check_results(const checking *c)
{
    for (int32_t k = 0; k < c->p->noutputs; k++) {
        const int32_t v = c->p->results[k].value;
        const fxi_value_kind kind = c->p->values[v].kind;
        char reader[32];
        snprintf(reader, sizeof reader, "result %d", (int)k);
        if (kind == FXI_VALUE_ARENA || kind == FXI_VALUE_LITERAL)
            return wrong(c, "%s is value %d, whose memory does not outlive the run", reader,
                         (int)v);
        if (!is_intact(c, reader, v))
            return false;
    }
    return true;
}

/* Leaves and literals exist before the first step. */
static bool prepare(checking *c)
{
    const fxi_plan *p = c->p;
    for (int32_t v = 0; v < p->nvalues; v++)
        if (p->values[v].kind == FXI_VALUE_LEAF && p->values[v].index >= c->nleaves)
            c->nleaves = p->values[v].index + 1;
    c->values = fxi_malloc(((size_t)p->nvalues + 1) * sizeof *c->values);
    c->arena = fxi_malloc(((size_t)p->nvalues + 1) * sizeof *c->arena);
    c->leaf = fxi_malloc(((size_t)c->nleaves + 1) * sizeof *c->leaf);
    c->output = fxi_malloc(((size_t)p->nbuffers + 1) * sizeof *c->output);
    if (!c->values || !c->arena || !c->leaf || !c->output)
        return false;
    memset(c->leaf, -1, (size_t)c->nleaves * sizeof *c->leaf);
    memset(c->output, -1, (size_t)p->nbuffers * sizeof *c->output);
    for (int32_t v = 0; v < p->nvalues; v++) {
        const fxi_value_kind kind = p->values[v].kind;
        const bool exists = kind == FXI_VALUE_LEAF || kind == FXI_VALUE_LITERAL;
        c->values[v] = (state){exists ? BEFORE : NEVER, NEVER, -1};
        if (kind == FXI_VALUE_LEAF)
            c->leaf[p->values[v].index] = v;
    }
    return true;
}

/* Checks the numbers of the streams, and that literals and streams are inside the arena. */
static bool check_literals(const checking *c)
{
    const fxi_plan *p = c->p;
    for (int32_t i = 0; i < p->nsteps; i++) {
        const fx_step *s = &p->steps[i];
        if (s->op == FX_OP_RANDOM &&
            (fx_step_generator(s)->stream < 0 || fx_step_generator(s)->stream >= p->nstreams))
            return wrong(c, "step %d (%s) reads stream %d of %d", (int)i, name_of(c, i),
                         (int)fx_step_generator(s)->stream, (int)p->nstreams);
    }
    if (p->literals_bytes == 0 || p->literals_offset + p->literals_bytes <= p->arena_bytes)
        return true;
    return wrong(
        c, "literals are at bytes %lld to %lld of an arena of %lld", (long long)p->literals_offset,
        (long long)(p->literals_offset + p->literals_bytes) - 1, (long long)p->arena_bytes);
}

fx_status fxi_plan_check(const fxi_plan *p, char *why, size_t size)
{
    checking c = {.p = p, .why = why, .size = size};
    fx_status status = prepare(&c) ? FX_OK : FX_STATUS_MEMORY;
    if (status == FX_OK && !check_literals(&c))
        status = FX_STATUS_INTERNAL;
    for (int32_t i = 0; i < p->nsteps && status == FX_OK; i++)
        if (!check_step(&c, i))
            status = FX_STATUS_INTERNAL;
    if (status == FX_OK && !(check_begun(&c) && check_results(&c)))
        status = FX_STATUS_INTERNAL;
    fxi_free(c.values);
    fxi_free(c.arena);
    fxi_free(c.leaf);
    fxi_free(c.output);
    return status;
}
