/* cpu_foreach.c: runs one program over many segments, such as an optimiser over all parameters of a
 * model; and several reductions that are one step.
 *
 * On one thread the segments run one after another. If they have a few elements only, starting the
 * program takes longer than the elements: then it runs once, on copies of all segments. For several
 * threads the elements of all segments are divided into pieces of one size, with consecutive
 * numbers, so that threads share even a model with one very large parameter.
 *
 * Reductions run one after another, each in the same way as a step of its own, so that merging
 * changes no bit. The planner merges reductions only for devices with memory of their own; such a
 * device may run the step with these kernels.
 */
#include "cpu_parallel.h"
#include "cpu_program.h"
#include "cpu_simd.h"
#include "memory.h"

#include <string.h>

/* Elements. Whole tiles, as in cpu_program.c. */
enum { PIECE = 16 * FXI_TILE };
/* Elements of all segments together: up to this number they are copied and computed in one run. */
enum { FEW_ELEMENTS = 64 };

/* ---- reductions ------------------------------------------------------------------------------ */

/* The result of preparing each reduction is in a list that belongs to this backend and not in
 * `each`: another backend may prepare the same step too. All reductions use one work space, one
 * after another. */
static fx_status prepare_reductions(fx_step *step)
{
    const fx_foreach_step *f = fx_step_foreach(step);
    void **ready = fxi_calloc((size_t)f->nsegments, sizeof *ready);
    fx_status status = ready ? FX_OK : fxi_cpu_no_memory(step);
    step->ready = ready;
    for (int32_t k = 0; k < f->nsegments && !status; k++) {
        fx_step one = f->each[k];
        status = fxi_cpu_prepare_step(&one);
        ready[k] = one.ready;
        step->work_bytes = one.work_bytes > step->work_bytes ? one.work_bytes : step->work_bytes;
    }
    if (status)
        fxi_cpu_release_step(step);
    return status;
}

static void release_reductions(fx_step *step)
{
    void **ready = step->ready;
    for (int32_t k = 0; k < fx_step_foreach(step)->nsegments; k++) {
        fx_step one = fx_step_foreach(step)->each[k];
        one.ready = ready[k];
        fxi_cpu_release_step(&one);
    }
    fxi_free(ready);
}

static fx_status run_reductions(const fx_step *step, const void *const *in, fx_run *run)
{
    const fx_foreach_step *f = fx_step_foreach(step);
    void *const *ready = step->ready;
    fx_status status = FX_OK;
    for (int32_t k = 0; k < f->nsegments && !status; k++) {
        fx_step one = f->each[k];
        one.ready = ready[k];
        status = fxi_cpu_run_step(&one, in + k * one.nin, run->outputs[k], run);
    }
    return status;
}

/* ---- programs -------------------------------------------------------------------------------- */

/* The program is made for the longest segment. In a segment of one element, dense operands and
 * scalars have the same layout, so a program made for it could read an array as one value. */
static int32_t longest_of(const fx_foreach_step *f)
{
    int32_t longest = 0;
    for (int32_t s = 1; s < f->nsegments; s++)
        if (f->segments[s].length > f->segments[longest].length)
            longest = s;
    return longest;
}

static fx_status prepare_program(fx_step *step)
{
    const fx_foreach_step *f = fx_step_foreach(step);
    const int nin = step->nin / f->nsegments;
    const int32_t longest = longest_of(f);
    fxi_program_spec spec = {.program = f->program,
                             .nin = nin,
                             .nout = 1 + f->more.n,
                             .in = step->in + longest * nin,
                             .length = f->segments[longest].length,
                             .out = {(uint8_t)(nin + f->program.n - 1)}};
    for (int k = 0; k < f->more.n; k++)
        spec.out[1 + k] = f->more.reg[k];
    return fxi_program_make(&spec, &step->ready);
}

fx_status fxi_cpu_foreach_prepare(fx_step *step)
{
    return fx_step_foreach(step)->each ? prepare_reductions(step) : prepare_program(step);
}

void fxi_cpu_foreach_release(fx_step *step)
{
    if (fx_step_foreach(step)->each)
        release_reductions(step);
    else
        fxi_cpu_program_release(step);
}

typedef struct job {
    const fx_step *step;
    const fx_foreach_step *own;
    const void *const *in;
    void *const *out;
    int64_t pieces, parts;
} job;

/* No piece crosses the end of a segment, so each call of the program has one set of operands. */
static int64_t pieces_of(const fx_segment *s)
{
    return (s->length + PIECE - 1) / PIECE;
}

/* Operands and outputs are lists of all segments, one segment after another. */
static void run_segment(const job *j, int32_t s, int64_t from, int64_t to)
{
    const fx_step *step = j->step;
    const fxi_program_args args = {.in = j->in + s * (step->nin / j->own->nsegments),
                                   .out = j->out + s * (1 + j->own->more.n),
                                   .from = from,
                                   .to = to};
    fxi_program_run(step->ready, &args);
}

/* Finds the segments that the pieces from … to−1 belong to. The walk over the table takes little
 * time compared with a piece of 4096 elements. */
static void run_part(void *user, int64_t part)
{
    const job *j = user;
    int64_t from, to, first = 0; /* the segment's first piece */
    fxi_cpu_range(j->pieces, j->parts, part, &from, &to);
    for (int32_t s = 0; s < j->own->nsegments && first < to; s++) {
        const fx_segment *g = &j->own->segments[s];
        const int64_t n = pieces_of(g), a = from > first ? from - first : 0,
                      b = to - first < n ? to - first : n;
        if (a < b)
            run_segment(j, s, a * PIECE, b * PIECE < g->length ? b * PIECE : g->length);
        first += n;
    }
}

/* The segments of a step as one: all elements of an operand or an output follow each other. */
typedef struct gathered {
    const void *in[FXI_PROGRAM_OPERANDS];
    void *out[FXI_PROGRAM_OUTPUTS];
    /* Words of 8 bytes, the largest size of an element, so that every operand has the same space
     * whatever its type. */
    _Alignas(64) uint64_t memory[(FXI_PROGRAM_OPERANDS + FXI_PROGRAM_OUTPUTS) * FEW_ELEMENTS];
} gathered;

/* Do all segments read this operand at the same address? Equal numbers at two addresses count as
 * different; the segments are then computed one by one, with the same bits. */
static bool is_shared(const void *const *in, int nin, int32_t nsegments)
{
    bool same = true;
    for (int32_t s = 1; s < nsegments; s++)
        same &= in[s * nin] == *in;
    return same;
}

/* Copies the operands. False: an operand that is one value differs from segment to segment. The
 * longest segment tells arrays and values apart. */
static bool gather(const job *j, gathered *g)
{
    const fx_foreach_step *f = j->own;
    const int nin = j->step->nin / f->nsegments;
    const fx_tensor *longest = j->step->in + longest_of(f) * nin;
    for (int k = 0; k < nin; k++) {
        const void *const *in = j->in + k;
        g->in[k] = *in;
        if (fxi_cpu_is_scalar(&longest[k])) {
            if (!is_shared(in, nin, f->nsegments))
                return false;
            continue;
        }
        const size_t size = fxi_cpu_size(longest[k].dtype);
        char *to = (char *)(g->memory + k * FEW_ELEMENTS);
        g->in[k] = to;
        for (int32_t s = 0; s < f->nsegments; s++, in += nin) {
            const size_t bytes = (size_t)f->segments[s].length * size;
            if (bytes > 0)
                memcpy(to, *in, bytes);
            to += bytes;
        }
    }
    return true;
}

/* Elements are independent of each other, so the results have the same bits as those of a run for
 * each segment. */
static void run_gathered(const job *j, gathered *g, int64_t length)
{
    const fx_foreach_step *f = j->own;
    const int nin = j->step->nin / f->nsegments;
    for (int k = 0; k <= f->more.n; k++)
        g->out[k] = g->memory + (nin + k) * FEW_ELEMENTS;
    fxi_program_run(j->step->ready, &(fxi_program_args){.in = g->in, .out = g->out, .to = length});
    for (int k = 0; k <= f->more.n; k++) {
        const int last = k ? f->more.reg[k - 1] - nin : f->program.n - 1;
        const size_t size = fxi_cpu_size(f->program.instr[last].dtype);
        const char *from = g->out[k];
        for (int32_t s = 0; s < f->nsegments; s++) {
            const size_t bytes = (size_t)f->segments[s].length * size;
            if (bytes > 0)
                memcpy(j->out[s * (1 + f->more.n) + k], from, bytes);
            from += bytes;
        }
    }
}

fx_status fxi_cpu_foreach(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)out;
    if (!step->ready)
        return fxi_cpu_no_dtype(step, step->out.dtype);
    const fx_foreach_step *f = fx_step_foreach(step);
    if (f->each)
        return run_reductions(step, in, run);
    job j = {.step = step, .own = f, .in = in, .out = run->outputs};
    int64_t length = 0, longest = 0;
    for (int32_t s = 0; s < f->nsegments; s++) {
        const int64_t n = f->segments[s].length;
        length += n;
        longest = n > longest ? n : longest;
        j.pieces += pieces_of(&f->segments[s]);
    }
    /* Where all segments have one element, arrays cannot be told from values. */
    gathered g;
    if (f->nsegments > 1 && longest > 1 && length <= FEW_ELEMENTS && gather(&j, &g)) {
        run_gathered(&j, &g, length);
        return FX_OK;
    }
    /* The cost counts all segments: an optimiser of many small parameters may use threads too. */
    j.parts = fxi_cpu_parts(j.pieces, fxi_program_cost(step->ready) * (double)length);
    if (j.parts > 1)
        fxi_cpu_parallel(j.parts, run_part, &j);
    else
        /* One thread has nothing to share, so a segment is one run of the program and not a run for
         * each piece. */
        for (int32_t s = 0; s < f->nsegments; s++)
            run_segment(&j, s, 0, f->segments[s].length);
    return FX_OK;
}
