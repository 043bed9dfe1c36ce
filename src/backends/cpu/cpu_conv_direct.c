/* cpu_conv_direct.c: convolution with vectors along the windows, for few channels.
 *
 * One image's channels are copied into a scratch with the padding around them. There, one tap of
 * all windows is a run of consecutive elements: window (i, j) begins at i + pitch·j, so a vector of
 * windows is one load. Strides split the scratch into phases (every stride-th element), in which
 * neighbouring windows are neighbours again. Rows share their padding: where the right padding of a
 * row and the left padding of the next overlap, they are the same zeros, so pitch may be less than
 * the length that a row of windows reads. Windows between the last of a row and the first of the
 * next are computed too and their results are discarded; skipping them would break up the vectors.
 *
 *   FORWARD  y(q, o) = Σ x(q + offset(k))·w(k, o), k: taps and channels
 *   DATA     the same with gy for x and the kernel reversed, for strides of 1
 *   WEIGHT   gw(k, o) = Σ x(q + offset(k))·gy(q, o) over q and images, gy being 0 at windows that
 *            do not exist. 0·Inf is not 0: if x is not finite, the gathering method
 *            (cpu_conv_gather.c) computes it.
 * Large images are taken in blocks of rows; for WEIGHT, several small images are taken together.
 * The order of every sum depends on the shapes only, so the number of threads does not change any
 * bit of the result.
 */
#include "cpu_conv.h"
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

enum {
    SCRATCH_BYTES =
        384 << 10,         /* bytes of x or of gy; both together stay in the second-level cache */
    MOST_BYTES = 64 << 20, /* a larger scratch: the gathering method is used */
    DEPTH = 512,           /* terms of a sum before y is loaded and stored again */
    FEW_WINDOWS = 8,       /* windows of a plane; fewer do not fill a vector */
    TRANSPOSING = 16,      /* terms of a sum whose time equals that of transposing its result */
    MOST_PHASES = 1 << 16, /* of x; more take too long to list */
    FEW_VECTORS = 16 /* vectors of windows; fewer do not repay adding up a WEIGHT tile's lanes */
};

/* How the scratch is laid out, and which windows are computed from it. Axis 0 is the fastest in
 * memory. */
typedef struct layout {
    const fxi_conv_core *core;
    size_t size;
    int64_t in[3], out[3],
        k[3]; /* spatial sizes of the array that is read, of the windows, of the kernel */
    int64_t stride[3], before[3];
    int64_t dilation[3];
    bool against;           /* tap 0 reads the farthest element of a window (a true convolution) */
    int64_t channels;       /* read */
    int64_t shift[3];       /* distance of the farthest tap, in elements of a phase */
    int64_t used[3];        /* elements of a phase that windows read */
    int64_t pitch;          /* between rows */
    int64_t phases;         /* product of the strides */
    int64_t rows, planes;   /* of windows in a block */
    int64_t phase, channel; /* elements of a block's phase, between channels */
    int64_t slack;          /* elements after the last channel that may be read */
    int64_t windows;        /* of one plane of a block, in whole vectors */
} layout;

/* Some rows of windows: the first one and their number, along axes 1 and 2. */
typedef struct block {
    int64_t first1, count1, first2, count2;
} block;

/* Of the `used` elements of a phase along an axis, those in [lo, hi) are inside the image; the
 * others are padding. `first` is the first window. */
static void inside(const layout *l, int axis, int64_t phase, int64_t first, int64_t used,
                   int64_t *lo, int64_t *hi)
{
    const int64_t s = l->stride[axis], before = l->before[axis] - phase - first * s;
    *hi = fxi_cpu_min(used, fxi_cpu_divide_up(l->in[axis] + before, s));
    /* If nothing is inside, both limits are equal. */
    *lo = fxi_cpu_min(fxi_cpu_divide_up(before, s), *hi);
}

/* The distance between rows, made as short as the padding allows: fewer windows that do not exist
 * are then computed between two rows. */
static int64_t pitch_of(const layout *l)
{
    int64_t share = l->shift[0];
    for (int64_t phase = 0; phase < l->stride[0]; phase++) {
        int64_t lo, hi;
        inside(l, 0, phase, 0, l->used[0], &lo, &hi);
        /* A phase without an element of the image is all zeros: it does not limit the overlap. */
        if (lo < hi)
            share = fxi_cpu_min(share, fxi_cpu_min(lo, l->used[0] - hi));
    }
    return l->used[0] - share;
}

/* Whole planes if they fit in the scratch, else a block of rows. Neighbouring blocks both read
 * the shift[1] rows between them, so a block has more rows than that: else most of the copying
 * would be done twice. */
static void choose_block(layout *l)
{
    const int64_t row = l->channels * l->phases * l->pitch * (int64_t)l->size;
    const int64_t fit = SCRATCH_BYTES / row;
    const int64_t rows = l->out[1] + l->shift[1];
    /* Neighbouring blocks of planes share shift[2] planes. */
    l->planes = fxi_cpu_min(l->out[2], fxi_cpu_max(1, fit / rows - l->shift[2]));
    l->rows = l->out[1];
    if (rows * (1 + l->shift[2]) > fit)
        /* At least one row more than the rows that two blocks share. */
        l->rows = fxi_cpu_max(fit / (1 + l->shift[2]) - l->shift[1], l->shift[1] + 1);
    l->rows = fxi_cpu_min(l->rows, l->out[1]);
}

static void finish_layout(layout *l)
{
    const int64_t line = 64 / (int64_t)l->size;
    l->phases = l->stride[0] * l->stride[1] * l->stride[2];
    for (int d = 0; d < 3; d++) {
        l->shift[d] = (l->k[d] - 1) * l->dilation[d] / l->stride[d];
        l->used[d] = l->out[d] + l->shift[d];
    }
    l->pitch = pitch_of(l);
    choose_block(l);
    l->phase = l->pitch * (l->rows + l->shift[1]) * (l->planes + l->shift[2]);
    /* An odd number of cache lines between channels: with a power of two, all channels would
     * compete for the same cache sets. */
    l->channel = ((l->phases * l->phase + line - 1) / line | 1) * line;
    /* The last vector of windows may begin at the last window and read beyond it. */
    l->slack = l->used[0] + 2 * l->core->lanes;
    const int64_t windows = l->pitch * (l->rows - 1) + l->out[0];
    l->windows = (windows + l->core->lanes - 1) / l->core->lanes * l->core->lanes;
}

/* `data`: DATA reads gy and computes the gradient of x, with the padding with which each element of
 * x reaches all windows that read it. FORWARD and WEIGHT read x. */
static layout layout_of(const fxi_conv_geometry *g, bool data)
{
    layout l = {.core = &fxi_cpu_simd()->conv[g->dtype == FX_DTYPE_F64],
                .size = g->size,
                /* The gradient of data reads the kernel in the opposite direction. */
                .against = (g->attr->flipped != 0) == data,
                .channels = data ? g->cout : g->cin};
    for (int d = 0; d < 3; d++) {
        l.in[d] = data ? g->y[d] : g->x[d];
        l.out[d] = data ? g->x[d] : g->y[d];
        l.k[d] = g->k[d];
        l.stride[d] = g->stride[d];
        l.dilation[d] = g->dilation[d];
        l.before[d] = data ? (g->k[d] - 1) * g->dilation[d] - g->before[d] : g->before[d];
    }
    finish_layout(&l);
    return l;
}

static int64_t scratch_length(const layout *l)
{
    return l->channels * l->channel + l->slack;
}

/* The offset of tap t of channel 0 from the beginning of a window: the phase that holds the tap,
 * then the shift inside that phase. */
static int64_t tap_offset(const layout *l, int64_t t)
{
    const int64_t tap[3] = {t % l->k[0], t / l->k[0] % l->k[1], t / l->k[0] / l->k[1]};
    int64_t phase[3], shift[3];
    for (int d = 0; d < 3; d++) {
        const int64_t far = (l->against ? l->k[d] - 1 - tap[d] : tap[d]) * l->dilation[d];
        phase[d] = far % l->stride[d];
        shift[d] = far / l->stride[d];
    }
    return (phase[0] + l->stride[0] * (phase[1] + l->stride[1] * phase[2])) * l->phase + shift[0] +
           l->pitch * (shift[1] + (l->rows + l->shift[1]) * shift[2]);
}

/* Offsets of 32 bits halve the memory traffic of the inner loop's table; MOST_BYTES keeps them in
 * range. The last offset is repeated `extra` times, for tiles that read beyond the last tap. */
static void fill_offsets(const layout *l, int64_t taps, int64_t extra, int32_t *offset)
{
    const int64_t n = taps * l->channels;
    for (int64_t k = 0; k < n; k++)
        offset[k] = k < taps ? (int32_t)tap_offset(l, k) : offset[k - taps] + (int32_t)l->channel;
    for (int64_t k = n; k < n + extra; k++)
        offset[k] = offset[n - 1];
}

/* ---- filling the scratch --------------------------------------------------------------------- */
typedef struct phase_index {
    int64_t p[3];
} phase_index;

/* Copies one plane of one phase. x: a channel; d: the plane in the scratch. Only rows of padding
 * are cleared: the columns of padding are never written, so they stay zeros. */
static void fill_plane(const layout *l, const block *b, phase_index ph, const char *x, int64_t x2,
                       char *d)
{
    const int64_t rows = b->count1 + l->shift[1], line = l->pitch * (int64_t)l->size;
    int64_t lo0, hi0, lo1, hi1;
    inside(l, 0, ph.p[0], 0, l->used[0], &lo0, &hi0);
    inside(l, 1, ph.p[1], b->first1, rows, &lo1, &hi1);
    memset(d, 0, (size_t)(lo1 * line));
    memset(d + hi1 * line, 0, (size_t)((rows - hi1) * line));
    /* The element of the image at the first position that is inside. */
    const int64_t x0 = lo0 * l->stride[0] + ph.p[0] - l->before[0];
    const int64_t x1 = (b->first1 + lo1) * l->stride[1] + ph.p[1] - l->before[1];
    if (lo0 < hi0 && lo1 < hi1)
        l->core->rows(
            &(fxi_conv_rows){.d = d + lo1 * line + lo0 * (int64_t)l->size,
                             .s = fxi_at(x, x0 + l->in[0] * (x1 + l->in[1] * x2), l->size),
                             .dpitch = l->pitch,
                             .spitch = l->in[0] * l->stride[1],
                             .stride = l->stride[0],
                             .n = hi0 - lo0,
                             .rows = hi1 - lo1});
}

/* A plane outside the image is all padding. */
static void fill_phase(const layout *l, const block *b, phase_index ph, const char *x, char *d)
{
    const int64_t rows = l->rows + l->shift[1];
    for (int64_t j = 0; j < b->count2 + l->shift[2]; j++, d += l->pitch * rows * (int64_t)l->size) {
        const int64_t x2 = (b->first2 + j) * l->stride[2] + ph.p[2] - l->before[2];
        if (x2 < 0 || x2 >= l->in[2])
            memset(d, 0, (size_t)(l->pitch * (b->count1 + l->shift[1])) * l->size);
        else
            fill_plane(l, b, ph, x, x2, d);
    }
}

/* Fills the scratch for one block of one image, every phase of every channel. Columns of padding
 * are zeros from the start of the job and are never written. */
static void fill(const layout *l, const block *b, const char *x, char *scratch)
{
    const int64_t in = fxi_length(3, l->in);
    for (int64_t c = 0; c < l->channels; c++)
        for (int64_t p = 0; p < l->phases; p++) {
            const phase_index ph = {{p % l->stride[0], p / l->stride[0] % l->stride[1],
                                     p / l->stride[0] / l->stride[1]}};
            fill_phase(l, b, ph, fxi_at(x, c * in, l->size),
                       fxi_at_out(scratch, c * l->channel + p * l->phase, l->size));
        }
}

/* Blocks of one image; the last ones along an axis may be smaller. */
static int64_t blocks_of(const layout *l)
{
    return fxi_cpu_divide_up(l->out[1], l->rows) * fxi_cpu_divide_up(l->out[2], l->planes);
}

/* The kernel gets the size of the block, so nothing is computed for rows that do not exist. */
static block block_at(const layout *l, int64_t number)
{
    const int64_t across = fxi_cpu_divide_up(l->out[1], l->rows);
    const int64_t first1 = number % across * l->rows, first2 = number / across * l->planes;
    return (block){.first1 = first1,
                   .first2 = first2,
                   .count1 = fxi_cpu_min(l->rows, l->out[1] - first1),
                   .count2 = fxi_cpu_min(l->planes, l->out[2] - first2)};
}

/* Whole vectors that cover the windows of a block, including those between rows. */
static int64_t vectors_of(const layout *l, const block *b)
{
    return (l->pitch * (b->count1 - 1) + l->out[0] + l->core->lanes - 1) / l->core->lanes;
}

/* The offset of plane j of a block in a channel of the scratch. */
static int64_t plane_at(const layout *l, int64_t j)
{
    return j * l->pitch * (l->rows + l->shift[1]);
}

/* Copies existing windows of a block between n columns of the output and their scratch. In the
 * scratch, windows that do not exist are between the rows. */
static void copy_windows(const layout *l, const block *b, char *out, char *scratch, int64_t n,
                         bool to_scratch)
{
    const int64_t length = fxi_length(3, l->out);
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < b->count2; k++) {
            const int64_t at = j * length + l->out[0] * (b->first1 + l->out[1] * (b->first2 + k));
            char *o = fxi_at_out(out, at, l->size);
            char *s = fxi_at_out(scratch, (j * l->planes + k) * l->windows, l->size);
            l->core->rows(&(fxi_conv_rows){.d = to_scratch ? s : o,
                                           .s = to_scratch ? o : s,
                                           .dpitch = to_scratch ? l->pitch : l->out[0],
                                           .spitch = to_scratch ? l->out[0] : l->pitch,
                                           .stride = 1,
                                           .n = l->out[0],
                                           .rows = b->count1});
        }
}

/* ---- forward and data ------------------------------------------------------------------------ */
/* The data of FORWARD and DATA that all threads share. A unit of work is one block of one image and
 * group. Where units are few, the columns (output channels) are cut into slices as well; each slice
 * fills its own scratch, which takes little time compared with its sums. */
typedef struct window_job {
    layout l;
    int64_t batch, groups, columns, taps, depth;
    int64_t tap_stride, column_stride; /* of the kernel: between channels read, between columns */
    int64_t slices, units, parts;
    const char *in, *w;
    char *out;
    const fxi_conv_geometry *g;
    char *panels;             /* the kernel, group after group, column panel after column panel */
    char *epilogue_values;    /* of the instructions that tiles apply */
    const fxi_finish *finish; /* any other epilogue; NULL: none */
    int32_t *offset;
    size_t scratch_bytes;
} window_job;

/* With fewer units, columns are cut into slices, so that all threads have work. */
enum { ENOUGH_UNITS = 16 };

/* Panels of about equal width: tiles of full width and one narrow rest would leave registers idle
 * in the rest. */
static int64_t panel_width(int64_t columns, int most, int64_t first)
{
    const int64_t panels = (columns - first + most - 1) / most;
    return (columns - first + panels - 1) / panels;
}

/* Copies a group's kernel so that the inner loop reads it in order: for each term the n columns of
 * a panel. Packed at every run, because in training the kernel changes between runs. */
#define PACK(S, T)                                                                                 \
    static void pack_##S(const window_job *s, int64_t group)                                       \
    {                                                                                              \
        const T *w = (const T *)(const void *)s->w + group * s->depth * s->columns;                \
        T *d = (T *)(void *)s->panels + group * s->depth * s->columns;                             \
        for (int64_t c = 0, n; c < s->columns; c += n) {                                           \
            n = panel_width(s->columns, s->l.core->columns, c);                                    \
            for (int64_t k = 0; k < s->depth; k++, d += n) {                                       \
                const int64_t at =                                                                 \
                    k % s->taps + k / s->taps * s->tap_stride + c * s->column_stride;              \
                for (int64_t j = 0; j < n; j++)                                                    \
                    d[j] = w[at + j * s->column_stride];                                           \
            }                                                                                      \
        }                                                                                          \
    }
PACK(f32, float)
PACK(f64, double)

/* A thread's memory. It begins with `ready` because fxi_cpu_parallel_scratch clears the first 64
 * bytes of a thread's scratch before a job. */
typedef struct workspace {
    int64_t ready; /* the padding in x is cleared */
    char *x, *y;
} workspace;

static int64_t window_length(const layout *l)
{
    return l->core->columns * l->planes * l->windows;
}

/* Only x is cleared: every element of y that is read has been written before. */
static workspace *workspace_in(const window_job *s, void *memory)
{
    workspace *w = memory;
    w->x = (char *)memory + 64;
    w->y = w->x + (size_t)scratch_length(&s->l) * s->l.size;
    if (!w->ready)
        memset(w->x, 0, (size_t)scratch_length(&s->l) * s->l.size);
    w->ready = 1;
    return w;
}

/* The slice of the kernel for DEPTH terms is read again for every tile of windows: 512 terms of 8
 * Float32 columns are 16 KiB, which the first-level cache holds. */
static void run_panel(const window_job *s, const workspace *w, const block *b, int64_t group,
                      int64_t first, int64_t n)
{
    const layout *l = &s->l;
    const char *panel = fxi_at(s->panels, (group * s->columns + first) * s->depth, l->size);
    fxi_conv_instr instr[FXI_CONV_INSTRUCTIONS];
    const int count =
        fxi_conv_epilogue_at(s->g, s->columns, s->epilogue_values, group, first, instr);
    for (int64_t k = 0; k < s->depth; k += DEPTH)
        for (int64_t j = 0; j < b->count2; j++)
            l->core->forward[n - 1](
                &(fxi_conv_forward){.x = fxi_at(w->x, plane_at(l, j), l->size),
                                    .w = fxi_at(panel, k * n, l->size),
                                    .y = fxi_at_out(w->y, j * l->windows, l->size),
                                    .offset = s->offset + k,
                                    .k = fxi_cpu_min(DEPTH, s->depth - k),
                                    .vectors = vectors_of(l, b),
                                    .ypitch = l->planes * l->windows,
                                    .accumulate = k > 0});
    for (int64_t j = 0; j < b->count2 && count; j++)
        l->core->finish(&(fxi_conv_sums){.y = fxi_at_out(w->y, j * l->windows, l->size),
                                         .rows = n,
                                         .vectors = vectors_of(l, b),
                                         .pitch = l->planes * l->windows,
                                         .n = count,
                                         .instr = instr});
}

/* Applies the epilogue to n columns of a block while they are in the cache. `first`: the first
 * element of the first column. Where the block is the whole image, the columns are one run of
 * elements. */
static void finish_panel(const window_job *s, const block *b, int64_t first, int64_t n)
{
    const int64_t *out = s->l.out, length = fxi_length(3, out);
    if (b->count1 * b->count2 == out[1] * out[2]) {
        fxi_cpu_finish_range(s->finish, first, first + n * length);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < b->count2; k++) {
            const int64_t at = first + j * length + out[0] * (b->first1 + out[1] * (b->first2 + k));
            fxi_cpu_finish_range(s->finish, at, at + out[0] * b->count1);
        }
}

/* Windows are summed in the thread's own scratch, not in the output, because the sums also have
 * windows that do not exist, between the rows. */
static void run_unit(const window_job *s, int64_t unit, const workspace *w)
{
    const layout *l = &s->l;
    const int64_t blocks = blocks_of(l), slice = unit % s->slices, at = unit / s->slices / blocks;
    const int64_t in = fxi_length(3, l->in) * l->channels, length = fxi_length(3, l->out);
    const block b = block_at(l, unit / s->slices % blocks);
    char *out = fxi_at_out(s->out, at * length * s->columns, l->size);
    int64_t from, to;
    fxi_cpu_range(s->columns, s->slices, slice, &from, &to);
    fill(l, &b, fxi_at(s->in, at * in, l->size), w->x);
    for (int64_t c = 0, n; c < to; c += n) {
        n = panel_width(s->columns, l->core->columns, c);
        if (c < from)
            continue; /* a panel belongs to the slice in which it begins */
        run_panel(s, w, &b, at % s->groups, c, n);
        copy_windows(l, &b, fxi_at_out(out, c * length, l->size), w->y, n, false);
        if (s->finish)
            finish_panel(s, &b, (at * s->columns + c) * length, n);
    }
}

/* The scratch is cleared once for each thread and job, not for each unit. */
static void run_units(void *user, int64_t part, void *memory)
{
    const window_job *s = user;
    const workspace *w = workspace_in(s, memory);
    int64_t from, to;
    fxi_cpu_range(s->units, s->parts, part, &from, &to);
    for (int64_t unit = from; unit < to; unit++)
        run_unit(s, unit, w);
}

/* Allocates one block for n arrays, each beginning on a cache line. */
static char *take_memory(size_t size, int n, const int64_t *lengths, char **out_parts)
{
    size_t bytes = 0, begin[4];
    for (int i = 0; i < n; i++) {
        begin[i] = bytes;
        bytes += ((size_t)lengths[i] * size + 63) / 64 * 64;
    }
    char *memory = fxi_aligned(64, bytes);
    for (int i = 0; memory && i < n; i++)
        out_parts[i] = memory + begin[i];
    return memory;
}

/* The cost decides how many threads take part; memory traffic is left out because the sums
 * dominate. */
static double cost_of(const fxi_conv_geometry *g)
{
    const double flops = 2.0 * (double)g->depth * (double)g->cout * (double)g->positions;
    return fxi_cpu_cost(0, flops * (double)(g->batch * g->groups));
}

static fx_status run_windows(const fxi_conv_geometry *g, bool data, window_job *s)
{
    s->batch = g->batch;
    s->groups = g->groups;
    s->columns = data ? g->cin : g->cout;
    s->taps = g->taps;
    s->depth = g->taps * s->l.channels;
    /* The kernel is taps × cin × cout. */
    s->tap_stride = data ? g->depth : g->taps;
    s->column_stride = data ? g->taps : g->depth;
    s->units = s->batch * s->groups * blocks_of(&s->l);
    /* A batch of one image has few units; its columns then keep the threads busy. */
    s->slices = s->units < ENOUGH_UNITS ? fxi_cpu_divide_up(s->columns, s->l.core->columns) : 1;
    s->units *= s->slices;
    s->g = g;
    s->finish = g->epilogue.n ? NULL : g->finish;
    s->parts = fxi_cpu_parts(s->units, cost_of(g));
    const int64_t lengths[] = {s->depth * s->columns * s->groups, s->depth,
                               g->epilogue.n * s->columns * s->groups};
    char *parts[3];
    char *memory = take_memory(s->l.size, 3, lengths, parts);
    if (!memory)
        return FX_STATUS_MEMORY;
    s->panels = parts[0];
    s->offset = (int32_t *)(void *)parts[1];
    s->epilogue_values = parts[2];
    fill_offsets(&s->l, s->taps, 0, s->offset);
    fxi_conv_epilogue_put(g, s->columns, s->epilogue_values);
    for (int64_t group = 0; group < s->groups; group++)
        s->l.size == sizeof(double) ? pack_f64(s, group) : pack_f32(s, group);
    const size_t bytes = 64 + (size_t)(scratch_length(&s->l) + window_length(&s->l)) * s->l.size;
    const fx_status status = fxi_cpu_parallel_scratch(s->parts, bytes, run_units, s);
    fxi_free(memory);
    return status;
}

/* ---- weight ---------------------------------------------------------------------------------- */
/* The data of WEIGHT that all threads share. A unit of work is a block of some images that are
 * taken together. The units of a group are divided into shares, by the shapes alone. Each share has
 * its own sums, and these are added in order: any number of threads gives the same bits. */
typedef struct weight_job {
    layout l;
    const fxi_conv_geometry *g;
    const char *x, *y;
    char *w;
    int64_t images; /* taken together */
    int64_t xs, ys; /* elements of one image in the scratches */
    int64_t units, shares, parts;
    char *sums; /* the sums of all shares but the first, whose sums are in w */
    int32_t *offset;
    bool infinite; /* atomic: some x is not finite */
} weight_job;

typedef struct weight_workspace { /* a thread's memory; `ready` as in workspace */
    int64_t ready;
    char *x, *gy;
    fxi_conv_segment *segments;
} weight_workspace;

enum {
    SHARE_WINDOWS = 512, /* windows of a share */
    MOST_SHARES = 16,    /* each has sums as large as the result */
    SHARE_COST = 40000,  /* a group that takes fewer nanoseconds is one share */
    ENOUGH_VECTORS = 64
};

/* Fills the scratches with a block of n images from `first` on; false if x is not finite. The test
 * reads the scratch while it is in the cache. */
static bool fill_images(const weight_job *w, const weight_workspace *t, const block *b,
                        int64_t group, int64_t first, int64_t n)
{
    const layout *l = &w->l;
    const fxi_conv_geometry *g = w->g;
    const int64_t columns = g->cout * l->planes;
    const int64_t used = l->pitch * (b->count1 - 1) + l->out[0];
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (first + i) * g->groups + group;
        char *gy = fxi_at_out(t->gy, i * w->ys, l->size);
        fill(l, b, fxi_at(w->x, at * g->cin * g->xs, l->size),
             fxi_at_out(t->x, i * w->xs, l->size));
        copy_windows(l, b,
                     fxi_at_out((char *)(uintptr_t)w->y, at * g->cout * g->positions, l->size), gy,
                     g->cout, true);
        /* The last block of an image may be smaller than the previous block, whose windows must be
         * cleared from gy: they would be counted again. */
        for (int64_t c = 0; b->count1 < l->rows && c < columns; c++)
            memset(fxi_at_out(gy, c * l->windows + used, l->size), 0,
                   (size_t)(l->windows - used) * l->size);
    }
    /* Padding is 0 and passes the test. */
    return l->core->finite(t->x, n * w->xs);
}

/* The images and planes of a unit become segments of one sum, so that a tile adds up its lanes once
 * for all of them. */
static void sum_images(const weight_job *w, const weight_workspace *t, const block *b, char *sums,
                       int64_t n)
{
    const layout *l = &w->l;
    const fxi_conv_geometry *g = w->g;
    for (int64_t i = 0; i < n * b->count2; i++)
        t->segments[i] =
            (fxi_conv_segment){.x = i / b->count2 * w->xs + plane_at(l, i % b->count2),
                               .g = i / b->count2 * w->ys + i % b->count2 * l->windows};
    for (int64_t c = 0, m; c < g->cout; c += m) {
        m = panel_width(g->cout, l->core->weight_columns, c);
        l->core->weight[m - 1](
            &(fxi_conv_weight){.x = t->x,
                               .g = fxi_at(t->gy, c * l->planes * l->windows, l->size),
                               .w = fxi_at_out(sums, c * g->depth, l->size),
                               .offset = w->offset,
                               .segment = t->segments,
                               .k = g->depth,
                               .segments = n * b->count2,
                               .vectors = vectors_of(l, b),
                               .gpitch = l->planes * l->windows,
                               .wpitch = g->depth});
    }
}

static int64_t gradient_length(const fxi_conv_geometry *g, const layout *l)
{
    return g->cout * l->planes * l->windows;
}

/* The number of images taken together: limited by the cache, and by the number of shares, each of
 * which needs a unit. Tiles with too few vectors cost more than idle shares, so ENOUGH_VECTORS has
 * precedence over the second limit. */
static int64_t images_of(const fxi_conv_geometry *g, const layout *l)
{
    const int64_t one = (scratch_length(l) + gradient_length(g, l)) * (int64_t)l->size;
    /* Images until a tile has enough vectors to repay adding up its lanes. */
    const int64_t enough =
        fxi_cpu_divide_up(ENOUGH_VECTORS * l->core->lanes, l->planes * l->windows);
    const int64_t images = fxi_cpu_max(enough, fxi_cpu_divide_up(g->batch, MOST_SHARES));
    return fxi_cpu_max(1, fxi_cpu_min(fxi_cpu_min(2 * SCRATCH_BYTES / one, images), g->batch));
}

/* The offset of the segments in a thread's memory: after the scratches, whose end need not be
 * aligned for them. */
static size_t segments_at(const weight_job *w)
{
    const size_t align = _Alignof(fxi_conv_segment),
                 end = 64 + (size_t)(w->images * (w->xs + w->ys)) * w->l.size;
    return (end + align - 1) / align * align;
}

static size_t weight_workspace_bytes(const weight_job *w)
{
    return segments_at(w) + (size_t)(w->images * w->l.planes) * sizeof(fxi_conv_segment);
}

/* gy is cleared too, because its vectors read the windows between two rows, which copy_windows does
 * not write. */
static weight_workspace *weight_workspace_in(const weight_job *w, void *memory)
{
    weight_workspace *t = memory;
    const size_t x = (size_t)(w->images * w->xs) * w->l.size;
    const size_t gy = (size_t)(w->images * w->ys) * w->l.size;
    t->x = (char *)memory + 64;
    t->gy = t->x + x;
    t->segments = (fxi_conv_segment *)(void *)((char *)memory + segments_at(w));
    if (!t->ready)
        memset(t->x, 0, x + gy);
    t->ready = 1;
    return t;
}

static int64_t kernel_length(const fxi_conv_geometry *g)
{
    return g->depth * g->cout;
}

/* The memory of a share's sums. The first share sums in the result itself. */
static char *sums_of(const weight_job *w, int64_t group, int64_t share)
{
    const int64_t n = kernel_length(w->g);
    return share == 0 ? fxi_at_out(w->w, group * n, w->l.size)
                      : fxi_at_out(w->sums, (group * (w->shares - 1) + share - 1) * n, w->l.size);
}

/* As soon as any x is not finite, every share stops: the gathering method computes the whole
 * gradient again. */
static void sum_share(weight_job *w, const weight_workspace *t, int64_t group, int64_t share)
{
    const fxi_conv_geometry *g = w->g;
    const int64_t blocks = blocks_of(&w->l);
    char *sums = sums_of(w, group, share);
    int64_t from, to;
    fxi_cpu_range(w->units, w->shares, share, &from, &to);
    /* In the share's own thread, which adds to the sums next. */
    memset(sums, 0, (size_t)kernel_length(g) * w->l.size);
    for (int64_t unit = from; unit < to; unit++) {
        const block b = block_at(&w->l, unit % blocks);
        const int64_t first = unit / blocks * w->images,
                      n = fxi_cpu_min(w->images, g->batch - first);
        if (!fill_images(w, t, &b, group, first, n))
            __atomic_store_n(&w->infinite, true, __ATOMIC_RELAXED);
        if (__atomic_load_n(&w->infinite, __ATOMIC_RELAXED))
            return;
        sum_images(w, t, &b, sums, n);
    }
}

/* A share is never divided: its sums are added in the order of its units. */
static void sum_shares(void *user, int64_t part, void *memory)
{
    weight_job *w = user;
    const weight_workspace *t = weight_workspace_in(w, memory);
    int64_t from, to;
    fxi_cpu_range(w->g->groups * w->shares, w->parts, part, &from, &to);
    for (int64_t i = from; i < to; i++)
        sum_share(w, t, i / w->shares, i % w->shares);
}

/* Adds in the order of the shares, never in the order in which threads finished. */
#define ADD_SHARES(S, T)                                                                           \
    static void add_shares_##S(void *user, int64_t group)                                          \
    {                                                                                              \
        const weight_job *w = user;                                                                \
        T *to = (T *)(void *)sums_of(w, group, 0);                                                 \
        for (int64_t share = 1; share < w->shares; share++) {                                      \
            const T *from = (const T *)(const void *)sums_of(w, group, share);                     \
            for (int64_t i = 0; i < kernel_length(w->g); i++)                                      \
                to[i] += from[i];                                                                  \
        }                                                                                          \
    }
ADD_SHARES(f32, float)
ADD_SHARES(f64, double)

static fx_status run_weight(weight_job *w, bool *out_finite)
{
    const layout *l = &w->l;
    const fxi_conv_geometry *g = w->g;
    /* A tile computes weight_rows taps; the last tile may read up to weight_rows − 1 offsets after
     * the end of the list. */
    const int extra = l->core->weight_rows - 1;
    const int64_t windows = g->batch * g->positions;
    w->xs = scratch_length(l);
    w->ys = gradient_length(g, l);
    w->images = images_of(g, l);
    w->units = fxi_cpu_divide_up(g->batch, w->images) * blocks_of(l);
    w->shares = fxi_cpu_min(w->units, fxi_conv_shares(windows, SHARE_WINDOWS, MOST_SHARES));
    /* A small gradient takes less time on one thread than adding the sums of several shares. */
    w->shares = cost_of(g) / (double)g->groups < SHARE_COST ? 1 : w->shares;
    w->parts = fxi_cpu_parts(g->groups * w->shares, cost_of(g));
    const int64_t lengths[] = {(w->shares - 1) * g->groups * kernel_length(g), g->depth + extra};
    char *parts[2];
    char *memory = take_memory(l->size, 2, lengths, parts);
    if (!memory)
        return FX_STATUS_MEMORY;
    w->sums = parts[0];
    w->offset = (int32_t *)(void *)parts[1];
    fill_offsets(l, g->taps, extra, w->offset);
    const fx_status status =
        fxi_cpu_parallel_scratch(w->parts, weight_workspace_bytes(w), sum_shares, w);
    *out_finite = !w->infinite;
    if (status == FX_OK && *out_finite && w->shares > 1)
        fxi_cpu_parallel(g->groups, l->size == sizeof(double) ? add_shares_f64 : add_shares_f32, w);
    fxi_free(memory);
    return status;
}

/* ---- the choice ------------------------------------------------------------------------------ */
/* The efficiency of the gathering method, at most 1: how full its vectors along the channels would
 * be, times the part of its time that is sums and not transpositions. */
static double gather_efficiency(const fxi_conv_geometry *g, const layout *l, int kind)
{
    const int64_t columns = kind == FX_CONV_DATA ? g->cin : g->cout;
    const int64_t filled = fxi_cpu_divide_up(columns, l->core->lanes) * l->core->lanes;
    const double depth = (double)(kind == FX_CONV_DATA ? g->taps * g->cout : g->depth);
    return (double)columns / (double)filled * depth / (depth + TRANSPOSING);
}

/* The efficiency of this method, at most 1: the part of its vectors that holds windows which exist.
 */
static double direct_efficiency(const layout *l)
{
    return (double)(l->out[0] * l->rows) / (double)l->windows;
}

/* True if the sizes of the layout fit in 64 bits, and its phases are few enough to list. A stride
 * may be far beyond the size of x, and the taps of a dilated kernel may be far apart in the
 * padding. */
static bool in_range(const fxi_conv_geometry *g)
{
    double phases = 1, scratch = (double)fxi_cpu_max(g->cin, g->cout);
    for (int d = 0; d < 3; d++) {
        phases *= (double)g->stride[d];
        scratch *= (double)fxi_cpu_max(g->x[d], g->y[d]) + (double)g->k[d] * (double)g->dilation[d];
    }
    return phases <= MOST_PHASES && phases * scratch <= 1e15;
}

/* This method must be clearly better (by the factor 0.8). It also needs enough windows to fill
 * vectors at all, and scratch memory within bounds. DATA with strides is left to the gathering
 * method: each phase of x is reached by different taps. */
static bool suits(const fxi_conv_geometry *g, const layout *l, int kind)
{
    const int64_t windows = l->planes * l->windows;
    if (kind == FX_CONV_DATA && l->phases != 1)
        return false;
    if (kind == FX_CONV_WEIGHT && images_of(g, l) * windows < FEW_VECTORS * l->core->lanes)
        return false;
    return gather_efficiency(g, l, kind) < 0.8 * direct_efficiency(l) &&
           l->out[0] * l->out[1] >= FEW_WINDOWS &&
           scratch_length(l) * (int64_t)l->size <= MOST_BYTES &&
           windows * fxi_cpu_max(g->cout, l->core->columns) * (int64_t)l->size <= MOST_BYTES;
}

bool fxi_cpu_conv_direct(const fxi_conv_geometry *g, int kind, void *x, void *w, void *y,
                         fx_status *out_status)
{
    const bool data = kind == FX_CONV_DATA;
    *out_status = FX_OK;
    if (!in_range(g))
        return false;
    const layout l = layout_of(g, data);
    if (!suits(g, &l, kind))
        return false;
    if (kind != FX_CONV_WEIGHT) {
        window_job s = {.l = l, .in = data ? y : x, .w = w, .out = data ? x : y};
        *out_status = run_windows(g, data, &s);
        return true;
    }
    bool finite = true;
    weight_job s = {.l = l, .g = g, .x = x, .y = y, .w = w};
    *out_status = run_weight(&s, &finite);
    return finite;
}
