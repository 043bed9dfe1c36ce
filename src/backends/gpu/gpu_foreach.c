/* gpu_foreach.c: one program over several segments, such as an optimiser's update of all
 * parameters.
 *
 * A launch computes as many segments as its arguments can hold. Parameter g is the length of
 * segment g, and parameter batch + g its first group; unused segments begin after the last group.
 * Single values that are the same in all segments (an optimiser's rates) are passed once.
 *
 * Where kernels may read addresses from memory (CUDA, HIP, C), the addresses of all segments are a
 * table, one argument by value, and a group finds its segment by binary search, in a few
 * instructions. 4 KiB of arguments hold about 100 segments of Adam. OpenCL C and Metal can use only
 * addresses that are arguments, so there a group chooses one of these.
 */
#include "gpu_map.h"

enum { SEGMENTS = 16 }; /* of a launch without a table, at most */
enum { ADDRESSES = FXI_GPU_OPERANDS + 1 + FX_MORE_OUTPUTS };

typedef struct segments {
    fxi_gpu_map p; /* the program, made for the longest segment */
    int operands;  /* inputs and outputs of one segment */
    int nshared;   /* buffers that all segments share; they come before those of segment 0, 1 … */
    int own;       /* buffers of each segment */
    int batch;     /* segments of a launch */
    bool table;
    int buffer[ADDRESSES]; /* the index of an operand's buffer: among the shared ones, or among its
                              segment's; −1: an output that is written over an input */
    bool shared[ADDRESSES];
} segments;

/* Is operand k the same memory in all segments? An optimiser's rate is one array for all
 * parameters. */
static bool same_in_all(const fx_step *s, int nin, int k)
{
    for (int32_t g = 1; g < fx_step_segments(s); g++)
        if (s->in_value[g * nin + k] != s->in_value[k] ||
            s->in_offset[g * nin + k] != s->in_offset[k])
            return false;
    return true;
}

/* The input whose memory operand k, an output, has in every segment; −1: none, or k is an input. */
static int written_over(const fx_step *s, const segments *q, int k)
{
    return k < q->p.nin ? -1 : fx_step_foreach(s)->over[k - q->p.nin] - 1;
}

/* An output that is written over an input needs no buffer of its own: a parameter of Adam then
 * takes four addresses instead of seven, and a launch holds more segments. */
static void number_buffers(const fx_step *s, segments *q)
{
    for (int k = 0; k < q->operands; k++) {
        q->shared[k] =
            k < q->p.nin && q->p.pattern[k] == FXI_GPU_SINGLE && same_in_all(s, q->p.nin, k);
        q->buffer[k] = written_over(s, q, k) >= 0 ? -1 : q->shared[k] ? q->nshared++ : q->own++;
    }
}

static int buffer_of(const segments *q, int g, int k)
{
    return q->buffer[k] + (q->shared[k] ? 0 : q->nshared + g * q->own);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* The segments of a launch: as many as the arguments can hold, or a smaller power of two that is
 * enough. Each number of segments needs a kernel of its own, so only few numbers are used. */
static int batch_of(const fxi_gpu_builder *b, const segments *q)
{
    /* OpenCL passes an offset with each address. */
    const int address = (int)sizeof(int64_t), own = q->own, params = 2 * (q->p.wide ? 8 : 4),
              bytes = b->limits->param_bytes - q->nshared * 2 * address;
    int most = q->table ? least(FXI_GPU_TABLE / own, FXI_GPU_PARAMS / 2)
                        : least((b->limits->buffers - q->nshared) / own, SEGMENTS),
        batch = 1;
    most = least(most, bytes / (own * (q->table ? address : 2 * address) + params));
    while (batch < most && batch < fx_step_segments(b->step))
        batch *= 2;
    return batch < most || most < 1 ? batch : most;
}

/* ---- text ------------------------------------------------------------------------------------ */
void fxi_gpu_say_choice(fxi_gpu_builder *b, int batch, const char *format, int first, int each)
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
                          : fxi_gpu_map_type(b->step, &q->p, k - q->p.nin)->stored;
    const int first = buffer_of(q, 0, k), each = q->shared[k] ? 0 : q->own,
              batch = q->shared[k] ? 1 : q->batch;
    const bool entry = q->table && !q->shared[k];
    const int over = written_over(b->step, q, k);
    if (over >= 0) {
        fxi_gpu_say(b, "FX_GLOBAL %s *y%d = (FX_GLOBAL %s *)x%d;\n", type, k - q->p.nin, type,
                    over);
        return;
    }
    for (int g = 0; g < batch && !entry; g++)
        fxi_gpu_say(b, "FX_USE(%d, %s%s, b%d)\n", first + g * each, is_const, type,
                    first + g * each);
    fxi_gpu_say(b, "FX_GLOBAL %s%s *%c%d = ", is_const, type, in ? 'x' : 'y',
                in ? k : k - q->p.nin);
    if (entry)
        fxi_gpu_say(b, "(%s%s *)FX_ENTRY(g * %d + %d)", is_const, type, q->own, q->buffer[k]);
    else
        fxi_gpu_say_choice(b, batch, "b%d", first, each);
    fxi_gpu_say(b, ";\n");
}

/* Appends g, the segment on which a group works, its length and its first group. */
static const char *say_segment(fxi_gpu_builder *b, const segments *q)
{
    fxi_gpu_set_number(b, "batch", q->batch);
    if (q->table) {
        int half = 1;
        while (2 * half < q->batch)
            half *= 2;
        fxi_gpu_set_number(b, "half", q->batch > 1 ? half : 0);
        return fxi_gpu_say_until(b, fxi_gpu_text_segments_table, "operands");
    }
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_segments_choice, "later_segments");
    for (int g = 1; g < q->batch; g++)
        /* The number of later segments that begin at or before this group is the number of its
         * segment. */
        fxi_gpu_say(b, " + (FX_GROUP_X >= P(%d))", q->batch + g);
    text = fxi_gpu_say_until(b, text, "length");
    fxi_gpu_say_choice(b, q->batch, "P(%d)", 0, 1);
    text = fxi_gpu_say_until(b, text, "first");
    fxi_gpu_say_choice(b, q->batch, "P(%d)", q->batch, 1);
    return fxi_gpu_say_until(b, text, "operands");
}

static void say_segments(fxi_gpu_builder *b, const segments *q)
{
    const int buffers = q->nshared + q->batch * q->own;
    if (!fxi_gpu_known(b))
        return;
    fxi_gpu_begin(b, q->p.wide);
    fxi_gpu_kernel_with_table(b, "fx_segments", buffers, q->table ? buffers - q->nshared : 0,
                              2 * q->batch);
    fxi_gpu_set_number(b, "elements", q->p.elements);
    const char *text = say_segment(b, q);
    for (int k = 0; k < q->operands; k++)
        say_operand(b, q, k);
    fxi_gpu_say_part(b, text);
    const bool several = q->p.elements > 1;
    text = fxi_gpu_say_until(
        b, several ? fxi_gpu_text_segments_vectors : fxi_gpu_text_segments_each, "program");
    if (several)
        fxi_gpu_map_say_elements(b, &q->p);
    else
        fxi_gpu_map_say_element(b, &q->p);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
}

/* ---- launches -------------------------------------------------------------------------------- */
/* Adds a launch of segments from g on; returns the first segment that it does not compute. */
static int32_t add_segments(fxi_gpu_builder *b, const segments *q, int32_t g)
{
    const fx_step *s = b->step;
    const int nin = q->p.nin;
    fxi_gpu_call *c = fxi_gpu_add(b);
    const int64_t each =
        (int64_t)(q->p.elements > 1 ? q->p.elements : fxi_gpu_each(b)) * FXI_GPU_GROUP;
    int64_t groups = 0;
    int done = 0;
    for (; done < q->batch && g < fx_step_segments(s); g++) {
        const int64_t n = fx_step_foreach(s)->segments[g].length;
        if (n == 0)
            continue;
        /* A launch has a limited number of groups; the rest becomes another launch. */
        if (done > 0 && groups + fxi_gpu_divide_up(n, each) >= b->limits->groups[0])
            break;
        fxi_gpu_param(c, done, n);
        fxi_gpu_param(c, q->batch + done, groups);
        for (int k = 0; k < q->operands; k++)
            if (q->buffer[k] >= 0)
                fxi_gpu_buffer(c, buffer_of(q, done, k), k < nin ? FXI_GPU_IN : FXI_GPU_OUT,
                               k < nin ? g * nin + k : g * q->p.nout + k - nin);
        groups += fxi_gpu_divide_up(n, each);
        done++;
    }
    for (; done < q->batch; done++)
        /* No group has this number, so no group chooses an unused segment. */
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
    if (f->each) {
        fxi_gpu_reductions(b);
        return;
    }
    const int nin = s->nin / f->nsegments;
    int32_t longest = 0, last = -1;
    for (int32_t g = 0; g < f->nsegments; g++) {
        if (f->segments[g].length > f->segments[longest].length)
            longest = g;
        if (f->segments[g].length > 0)
            last = g;
    }
    /* No segment has elements. */
    if (last < 0)
        return;
    segments q = {
        .p = {.in = s->in + longest * nin, .nin = nin, .length = f->segments[longest].length},
        .table = fxi_gpu_reads_addresses(b)};
    fxi_gpu_map *p = &q.p;
    fxi_gpu_map_outputs(p, s);
    for (int k = 0; k < nin; k++)
        p->pattern[k] =
            p->length > 1 && fxi_gpu_is_scalar(&p->in[k]) ? FXI_GPU_SINGLE : FXI_GPU_OWN;
    p->wide = fxi_gpu_wide(p->length);
    q.operands = nin + p->nout;
    number_buffers(s, &q);
    q.batch = batch_of(b, &q);
    fxi_gpu_map_count(b, p);
    say_segments(b, &q);
    for (int32_t g = 0; g <= last && !b->status;)
        g = add_segments(b, &q, g);
}
