/* cpu_move.c: dense copies, concatenation and padding.
 *
 * Movement depends on the size of an element only (1, 2, 4 or 8 bytes), not on its type; strided.h
 * does the copying. Concatenation and padding see the output as inner × axis × outer: the elements
 * that one input contributes to one outer index are contiguous in the output, so one read of a walk
 * copies them. A padding of several axes is computed by lines of the output. Threads divide the
 * output, not the inputs.
 */
#include "cpu_kernels.h"
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include "cpu_walk.h"
#include <string.h>

/* fxi_walk_push merges neighbouring axes, so that most walks have one or two axes. */
void fxi_walk_axes(fxi_walk *w, const fx_tensor *t, uint32_t mask, bool in)
{
    w->nd = 0;
    w->offset = 0;
    for (int d = 0; d < t->ndim; d++)
        if ((bool)FXI_AXIS_IN(mask, d) == in)
            fxi_walk_push(w, t->shape[d], t->stride[d]);
}

void fxi_cpu_transpose(void *dst, const void *src, int64_t ni, int64_t nj, int64_t si, int64_t dj,
                       size_t size)
{
    const fxi_block_fn block = fxi_cpu_simd()->transpose[size];
    const int64_t line = 64 / (int64_t)size;
    int64_t i = ni / line * line, j = nj / line * line;
    if (!block || i == 0 || j == 0)
        i = j = 0;
    else
        block(dst, src, i, j, si, dj, false);
    /* First the rest along j, for all i: everything if there is no loop for blocks. */
    if (j < nj)
        fxi_transpose(fxi_at_out(dst, j * dj, size), fxi_at(src, j, size), ni, nj - j, si, dj,
                      size);
    if (i < ni && j > 0)
        fxi_transpose(fxi_at_out(dst, i, size), fxi_at(src, i * si, size), ni - i, j, si, dj, size);
}

typedef struct copy_job {
    fxi_copy copy;
    const void *in;
    void *out;
    int64_t parts;
} copy_job;

/* The copy is cut by its shape and strides (strided.h), so the parts never write the same bytes. */
static void copy_part(void *user, int64_t part)
{
    const copy_job *j = user;
    int64_t first, last;
    fxi_cpu_range(j->copy.parts, j->parts, part, &first, &last);
    fxi_copy_parts(&j->copy, j->in, j->out, first, last);
}

/* The cost counts each byte twice: it is read and written. */
fx_status fxi_cpu_copy(const fx_tensor *src, const void *in, void *out)
{
    copy_job j = {.in = in, .out = out};
    fxi_copy_init(&j.copy, src->ndim, src->shape, src->stride, fxi_cpu_size(src->dtype));
    /* NULL for sizes without a loop. A copy without a transpose does not use it. */
    j.copy.block = fxi_cpu_simd()->transpose[j.copy.size];
    /* An empty array. */
    if (j.copy.parts == 0)
        return FX_OK;
    j.parts = fxi_cpu_parts(j.copy.parts,
                            fxi_cpu_cost(2 * (double)j.copy.length * (double)j.copy.size, 0));
    fxi_cpu_parallel(j.parts, copy_part, &j);
    return FX_OK;
}

/* Stores a view as a dense array, where the planner needs one. The input tensor already describes
 * the view by its strides. */
fx_status fxi_cpu_move(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    /* Otherwise the planner has made a mistake. */
    if (fx_tensor_length(&step->in[0]) != fx_tensor_length(&step->out))
        return fxi_cpu_fail(
            FX_STATUS_INTERNAL, step, "the input has %lld elements, but the output has %lld",
            (long long)fx_tensor_length(&step->in[0]), (long long)fx_tensor_length(&step->out));
    return fxi_cpu_copy(&step->in[0], in[0], out);
}

/* ---- concat and pad -------------------------------------------------------------------------- */

/* The dense output is seen as outer rows. A row has `inner` elements for each index of the axis. */
typedef struct join_job {
    const fx_step *step;
    const void *const *in;
    void *out;
    size_t bytes;                     /* of an element */
    int64_t inner, row, outer, parts; /* row: the elements of a row */
    void (*read)(fxi_walk *, const void *, size_t, void *, int64_t);
} join_job;

/* The output is divided at multiples of ITEM elements. Short rows are written in blocks of about
 * ITEM elements, input after input, so that their cache lines are written once. */
enum { ITEM = 8192 };

/* Writes elements [first, last) of the output, as far as they are those of one input: the `run`
 * elements from `start` on in each row. The walk has the input's elements in the output's order. */
static void put(const join_job *j, fxi_walk *w, const void *in, int64_t start, int64_t run,
                int64_t first, int64_t last)
{
    bool found = false;
    for (int64_t o = first / j->row; run > 0 && o * j->row + start < last; o++) {
        const int64_t begin = o * j->row + start, from = fxi_cpu_max(begin, first),
                      to = fxi_cpu_min(begin + run, last);
        if (from >= to)
            continue;
        /* Each read continues where the previous one ended. */
        if (!found)
            fxi_walk_seek(w, o * run + from - begin);
        found = true;
        j->read(w, in, j->bytes, fxi_at_out(j->out, from, j->bytes), to - from);
    }
}

/* Is input k in the output already, because the step that computes it has written it there
 * (plan/inside.c)? */
static bool is_in_output(const join_job *j, int k, int64_t start)
{
    return j->step->op == FX_OP_CONCAT && j->outer == 1 &&
           j->in[k] == fxi_at_out(j->out, start * j->inner, j->bytes);
}

static void put_input(const join_job *j, int k, int64_t start, int64_t first, int64_t last)
{
    const fx_tensor *t = &j->step->in[k];
    fxi_walk w;
    if (is_in_output(j, k, start))
        return;
    fxi_walk_init(&w, t->ndim, t->shape, t->stride);
    const int axis = fx_step_copy(j->step)->axis;
    put(j, &w, j->in[k], start * j->inner, t->shape[axis] * j->inner, first, last);
}

/* A stride of 0 repeats the value. */
static void put_value(const join_job *j, int64_t start, int64_t count, int64_t first, int64_t last)
{
    const int64_t run = count * j->inner;
    fxi_walk w = {0};
    fxi_walk_push(&w, run * j->outer, 0);
    put(j, &w, j->in[1], start * j->inner, run, first, last);
}

/* CONCAT has one input after the other, PAD the value, the input and the value. */
static void join_range(const join_job *j, int64_t first, int64_t last)
{
    const fx_step *s = j->step;
    const fx_copy_step *c = fx_step_copy(s);
    if (s->op == FX_OP_PAD) {
        const int64_t end = c->before + s->in[0].shape[c->axis];
        put_value(j, 0, c->before, first, last);
        put_input(j, 0, c->before, first, last);
        put_value(j, end, c->after, first, last);
        return;
    }
    int64_t start = 0;
    for (int k = 0; k < s->nin; start += s->in[k++].shape[c->axis])
        put_input(j, k, start, first, last);
}

/* ---- paddings of several axes ---------------------------------------------------------------- */

/* A line is the output's elements along axis 0. Of the lines, those inside the input have a run of
 * its elements. All that is between two runs is one fill. */
typedef struct pad_lines {
    int64_t before[FX_MAX_DIMS], index[FX_MAX_DIMS]; /* index: of the current line */
    fxi_walk input;
    bool begun;   /* the walk is at the first element that the block reads */
    int64_t done; /* elements of the output before this one are written */
} pad_lines;

/* A block of the output begins in any line, so the index is computed once, and then counted up. */
static pad_lines pad_lines_at(const join_job *j, int64_t line)
{
    const fx_step *s = j->step;
    pad_lines l = {.begun = false};
    fxi_pad_before(s, l.before);
    for (int d = 1; d < s->out.ndim; d++) {
        l.index[d] = line % s->out.shape[d];
        line /= s->out.shape[d];
    }
    fxi_walk_init(&l.input, s->in[0].ndim, s->in[0].shape, s->in[0].stride);
    return l;
}

/* Is the line inside the input? *out_number: its number among the input's lines. */
static bool is_inside(const join_job *j, const pad_lines *l, int64_t *out_number)
{
    const fx_tensor *in = &j->step->in[0];
    bool inside = in->shape[0] > 0;
    *out_number = 0;
    for (int d = in->ndim - 1; d > 0; d--) {
        const int64_t i = l->index[d] - l->before[d];
        inside = inside && i >= 0 && i < in->shape[d];
        *out_number = *out_number * in->shape[d] + i;
    }
    return inside;
}

/* Counts the index up, as an odometer does. */
static void next_line(const join_job *j, pad_lines *l)
{
    const fx_tensor *out = &j->step->out;
    for (int d = 1; d < out->ndim; d++) {
        if (++l->index[d] < out->shape[d])
            return;
        l->index[d] = 0;
    }
}

/* Writes the padding's value to all elements before `end` that are not written yet: the end of a
 * line, lines of the border, and the beginning of the next line, as one run. */
static void fill_to(const join_job *j, pad_lines *l, int64_t end)
{
    fxi_walk w = {0};
    if (end <= l->done)
        return;
    fxi_walk_push(&w, end - l->done, 0);
    j->read(&w, j->in[1], j->bytes, fxi_at_out(j->out, l->done, j->bytes), end - l->done);
    l->done = end;
}

/* Writes elements [first, last) of the output. Lines may be as short as one element; the walk of
 * the input then costs more than the copies. */
static void pad_range(const join_job *j, int64_t first, int64_t last)
{
    const int64_t run = j->step->in[0].shape[0];
    int64_t line = first / j->row, number;
    pad_lines l = pad_lines_at(j, line);
    l.done = first;
    for (; line * j->row < last; line++, next_line(j, &l)) {
        if (!is_inside(j, &l, &number))
            continue;
        const int64_t begin = line * j->row + l.before[0], from = fxi_cpu_max(begin, first),
                      to = fxi_cpu_min(begin + run, last);
        if (from >= to)
            continue;
        fill_to(j, &l, from);
        /* Each read continues where the previous one ended. */
        if (!l.begun)
            fxi_walk_seek(&l.input, number * run + from - begin);
        l.begun = true;
        j->read(&l.input, j->in[0], j->bytes, fxi_at_out(j->out, from, j->bytes), to - from);
        l.done = to;
    }
    fill_to(j, &l, last);
}

/* ---- both ------------------------------------------------------------------------------------ */

static void join_part(void *user, int64_t part)
{
    const join_job *j = user;
    const int64_t length = j->row * j->outer, block = fxi_cpu_max(j->row, ITEM);
    int64_t first, last;
    fxi_cpu_range((length + ITEM - 1) / ITEM, j->parts, part, &first, &last);
    last = fxi_cpu_min(last * ITEM, length);
    for (first *= ITEM; first < last; first += block)
        (fx_step_copy(j->step)->axis == FXI_PAD_AXES ? pad_range : join_range)(
            j, first, fxi_cpu_min(first + block, last));
}

/* The number of elements that must be copied. */
static int64_t missing(const join_job *j, int axis)
{
    int64_t start = 0, n = j->row * j->outer;
    for (int k = 0; k < j->step->nin && j->step->op == FX_OP_CONCAT; k++) {
        n -= is_in_output(j, k, start) ? fx_tensor_length(&j->step->in[k]) : 0;
        start += j->step->in[k].shape[axis];
    }
    return n;
}

/* The cost counts each byte twice: it is read and written. */
fx_status fxi_cpu_join(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    const fx_tensor *t = &step->out;
    /* Lines of a padding of several axes are rows along axis 0. */
    const int axis = fx_step_copy(step)->axis == FXI_PAD_AXES ? 0 : fx_step_copy(step)->axis;
    join_job j = {step, in, out, .bytes = fxi_cpu_size(t->dtype)};
    j.inner = fxi_length(axis, t->shape);
    j.row = j.inner * t->shape[axis];
    j.outer = fxi_length(t->ndim - axis - 1, t->shape + axis + 1);
    const int64_t length = j.row * j.outer, bytes = missing(&j, axis) * (int64_t)j.bytes;
    /* An empty array, or all inputs are in the output already. */
    if (bytes == 0)
        return FX_OK;
    j.read = bytes >= FXI_STREAM_BYTES ? fxi_walk_stream : fxi_walk_read;
    j.parts = fxi_cpu_parts((length + ITEM - 1) / ITEM, fxi_cpu_cost(2 * (double)bytes, 0));
    fxi_cpu_parallel(j.parts, join_part, &j);
    return FX_OK;
}
