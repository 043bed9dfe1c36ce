/* cpu_conv_gather.c: convolution with vectors along the output's channels. It computes every
 * convolution whose rows of windows are not too long for 32-bit offsets; cpu_conv.c uses it where
 * no other method suits.
 *
 * If images are small, vectors along the windows would be partly empty; vectors along the channels
 * are full. One kernel serves the three kinds. It is a matrix product whose left matrix is never
 * made: its elements are x[row + sum], read from a scratch that holds some images with their
 * padding:
 *
 *   FORWARD  y(q, o) = Σ x(window q + tap k)·w(k, o)     rows: windows, sums: taps and channels
 *   DATA     the same over gy. With strides, positions of x with the same remainder modulo the
 *            stride form a phase: a convolution of gy with those taps that reach them. Phases are
 *            computed one after another, each with its own list of taps.
 *   WEIGHT   gw(k, o) = Σ x(tap k + window q)·gy(q, o)   rows: taps and channels, sums: windows
 *
 * The right matrix is packed into panels of one to three vectors. The result is computed in panels
 * too and then transposed into the output. A unit of work is a block of rows of one image, or a few
 * small images. The weights' gradient is summed in shares of the units. The shapes alone decide the
 * number of shares, and the shares are added in order.
 */
#include "cpu_conv.h"
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

enum {
    SCRATCH_BYTES = 384 << 10, /* bytes of a block; small images taken together may have twice as
                                  many. Both stay in the second-level cache */
    DEPTH = 128,               /* terms of a sum before the result is loaded and stored again */
    BLOCK_WINDOWS = 256,       /* windows of a block at most, unless one row has more */
    FEW_WINDOWS = 64,          /* windows of a unit at least, where images are small */
    WEIGHT_WINDOWS = 256,      /* the same for WEIGHT, which sums over the windows */
    SHARE_WINDOWS = 1024,
    MOST_SHARES = 8,
    ENOUGH_UNITS = 16,
    FEW_COLUMNS = 8, /* columns written at a time without a transpose in registers: more columns,
                        often a power of two apart, would compete for the same cache sets */
    HEAD = 64
};

/* How the windows read one spatial axis. */
typedef struct axis {
    int64_t in;                /* size of the array that is read */
    int64_t windows, distance; /* the number of windows, and the distance between two of them */
    int64_t before; /* padding before the first window's first tap; negative if it begins inside */
    int64_t taps;   /* taps that any window of this phase uses */
    int32_t *at, *tap; /* their offsets, and their indices in the kernel */
    int64_t last;      /* the largest `at` */
} axis;

/* How windows read x or gy, and how the images are divided into units. */
typedef struct reading {
    const fxi_conv_core *core;
    size_t size;
    axis axes[3];
    int64_t channels, taps, sums;
    int64_t rows, planes;   /* of windows in a block: along axis 1, and along axis 2 */
    int64_t across, blocks; /* blocks of an image: along axis 1, and all */
    int64_t windows;        /* of a full block */
    int64_t images;         /* images of a unit; 1 where an image has several blocks */
    int64_t extent[3];      /* sizes of a block in the scratch */
    int64_t channel, image; /* elements between channels and between images of the scratch */
    int32_t *sum;           /* offset of every tap of every channel */
} reading;

/* The output's channels, in panels of whole vectors. Panels are about equally wide: a narrow last
 * panel would leave registers of its tile idle. */
typedef struct columns {
    int64_t n, vectors, panels;
} columns;

/* ---- columns --------------------------------------------------------------------------------- */

static columns columns_of(const fxi_conv_core *core, int64_t n)
{
    const int64_t vectors = fxi_cpu_divide_up(n, core->lanes);
    return (columns){n, vectors, fxi_cpu_divide_up(vectors, core->gather_vectors)};
}

/* Returns a panel's first column, its width in whole vectors, and the number of columns in it that
 * exist. The others are computed from zeros, and their results are discarded. */
static int64_t panel_at(const fxi_conv_core *core, const columns *c, int64_t panel,
                        int64_t *out_width, int64_t *out_columns)
{
    int64_t from, to;
    fxi_cpu_range(c->vectors, c->panels, panel, &from, &to);
    *out_width = (to - from) * core->lanes;
    *out_columns = fxi_cpu_min(c->n, to * core->lanes) - from * core->lanes;
    return from * core->lanes;
}

/* ---- how windows read ------------------------------------------------------------------------ */

/* FORWARD and WEIGHT: tap t of window i reads x at i·distance − before + at[t]. */
static void read_x(const fxi_conv_geometry *g, int d, axis *a)
{
    a->in = g->x[d];
    a->windows = g->y[d];
    a->distance = g->stride[d];
    a->before = g->before[d];
    a->taps = g->k[d];
    a->last = (g->k[d] - 1) * g->dilation[d];
    for (int64_t t = 0; t < g->k[d]; t++) {
        a->tap[t] = (int32_t)t;
        a->at[t] = (int32_t)((g->attr->flipped ? t : g->k[d] - 1 - t) * g->dilation[d]);
    }
}

/* DATA: the positions phase, phase + stride, … of x are the windows. They read gy at consecutive
 * positions, so their distance is 1. */
static void read_gy(const fxi_conv_geometry *g, int d, int64_t phase, axis *a)
{
    const int64_t s = g->stride[d];
    int64_t low = INT64_MAX, high = INT64_MIN;
    a->in = g->y[d];
    a->windows = fxi_cpu_divide_up(g->x[d] - phase, s);
    a->distance = 1;
    a->taps = 0;
    for (int64_t t = 0; t < g->k[d]; t++) {
        /* By default tap 0 reads the farthest element (a true convolution); `flipped` reads in the
         * order of memory. */
        const int64_t far = (g->attr->flipped ? t : g->k[d] - 1 - t) * g->dilation[d];
        /* This tap meets the positions of another phase only. */
        if ((phase + g->before[d] - far) % s != 0)
            continue;
        const int64_t at = (phase + g->before[d] - far) / s;
        a->tap[a->taps] = (int32_t)t;
        a->at[a->taps++] = (int32_t)at;
        low = fxi_cpu_min(low, at);
        high = fxi_cpu_max(high, at);
    }
    if (a->taps == 0) /* a stride beyond the kernel: nothing reaches this phase */
        low = high = 0;
    for (int64_t t = 0; t < a->taps; t++)
        /* Offsets count from the first element that any tap reads, so none is negative. */
        a->at[t] -= (int32_t)low;
    a->before = -low;
    a->last = high - low;
}

/* Chooses the blocks, the number of images in a unit, and the layout of the scratch. windows: how
 * many a unit should have at least. Returns FX_OK, or FX_STATUS_UNSUPPORTED if the scratch would be
 * too long for 32-bit offsets. */
static fx_status lay_out(reading *r, int64_t batch, int64_t windows)
{
    const axis *a = r->axes;
    /* Elements of a cache line. */
    const int64_t line = 64 / (int64_t)r->size;
    r->extent[0] = (a[0].windows - 1) * a[0].distance + a[0].last + 1;
    r->rows = a[1].windows;
    /* Several planes in a block if they are small, as in 3-D convolutions. */
    r->planes =
        fxi_cpu_min(a[2].windows, fxi_cpu_max(1, BLOCK_WINDOWS / (a[0].windows * a[1].windows)));
    /* Blocks of one plane are cut along axis 1 so that all channels of a block fit in the scratch,
     * into blocks of about equal height. */
    if (r->planes == 1) {
        const int64_t row = fxi_mul_sizes(
            fxi_mul_sizes(r->channels * (int64_t)r->size, r->extent[0]), a[2].last + 1);
        /* Limited by the length of the block and by the rows that fit in the scratch, less those
         * that neighbouring blocks share. */
        const int64_t rows = fxi_cpu_min(BLOCK_WINDOWS / a[0].windows,
                                         (SCRATCH_BYTES / row - a[1].last - 1) / a[1].distance + 1);
        r->rows = fxi_cpu_divide_up(r->rows, fxi_cpu_divide_up(r->rows, fxi_cpu_max(rows, 1)));
    }
    r->across = fxi_cpu_divide_up(a[1].windows, r->rows);
    r->blocks = r->across * fxi_cpu_divide_up(a[2].windows, r->planes);
    r->windows = a[0].windows * r->rows * r->planes;
    r->extent[1] = (r->rows - 1) * a[1].distance + a[1].last + 1;
    r->extent[2] = (r->planes - 1) * a[2].distance + a[2].last + 1;
    /* An odd number of cache lines between channels: with a power of two, all channels would
     * compete for the same cache sets. */
    const int64_t block = fxi_mul_sizes(fxi_mul_sizes(r->extent[0], r->extent[1]), r->extent[2]);
    r->channel = (fxi_cpu_divide_up(block, line) | 1) * line;
    r->image = fxi_mul_sizes(r->channel, r->channels);
    const int64_t fit = 2 * SCRATCH_BYTES / (r->image * (int64_t)r->size);
    /* Small images are taken together until the tiles are full, large ones are cut into blocks. */
    r->images = r->blocks > 1 ? 1 : fxi_cpu_min(fxi_cpu_divide_up(windows, r->windows), fit);
    r->images = fxi_cpu_max(1, fxi_cpu_min(r->images, batch));
    r->taps = a[0].taps * a[1].taps * a[2].taps;
    r->sums = r->taps * r->channels;
    return r->image * r->images <= INT32_MAX ? FX_OK : FX_STATUS_UNSUPPORTED;
}

/* The offsets of all taps of all channels from the beginning of a window, in the order in which a
 * sum adds them. A table costs one load a term and spares the loops over three axes. */
static void list_sums(const reading *r)
{
    const axis *a = r->axes;
    int32_t *sum = r->sum;
    for (int64_t c = 0; c < r->channels; c++)
        for (int64_t k = 0; k < a[2].taps; k++)
            for (int64_t j = 0; j < a[1].taps; j++)
                for (int64_t i = 0; i < a[0].taps; i++)
                    *sum++ = (int32_t)(c * r->channel + a[0].at[i] +
                                       r->extent[0] * (a[1].at[j] + r->extent[1] * a[2].at[k]));
}

/* The images of a unit, and the rows and planes of their windows. */
typedef struct unit {
    int64_t first, images, row, rows, plane, planes;
    int64_t windows; /* of one image */
} unit;

/* Units of one group. */
static int64_t units_of(const reading *r, int64_t batch)
{
    return fxi_cpu_divide_up(batch, r->images) * r->blocks;
}

/* Blocks of one image have consecutive numbers, so a thread's range of units covers neighbouring
 * memory. */
static unit unit_at(const reading *r, int64_t batch, int64_t number)
{
    const int64_t block = number % r->blocks;
    unit u = {.first = number / r->blocks * r->images,
              .row = block % r->across * r->rows,
              .plane = block / r->across * r->planes};
    u.images = fxi_cpu_min(r->images, batch - u.first);
    u.rows = fxi_cpu_min(r->rows, r->axes[1].windows - u.row);
    u.planes = fxi_cpu_min(r->planes, r->axes[2].windows - u.plane);
    u.windows = r->axes[0].windows * u.rows * u.planes;
    return u;
}

/* Lists where the unit's windows begin in the scratch and returns their number. Copies of the last
 * one fill the list up to a whole tile; their results are discarded. */
static int64_t list_windows(const reading *r, const unit *u, int32_t *list)
{
    const axis *a = r->axes;
    int64_t count = 0;
    for (int64_t m = 0; m < u->images; m++)
        for (int64_t k = 0; k < u->planes; k++)
            for (int64_t j = 0; j < u->rows; j++)
                for (int64_t i = 0; i < a[0].windows; i++)
                    list[count++] = (int32_t)(m * r->image + i * a[0].distance +
                                              r->extent[0] * (j * a[1].distance +
                                                              r->extent[1] * k * a[2].distance));
    for (int64_t k = count; k % r->core->gather_rows != 0; k++)
        /* A valid address: the tile reads it, and nothing stores the result. */
        list[k] = list[count - 1];
    return count;
}

/* ---- filling the scratch --------------------------------------------------------------------- */

/* The part [*lo, *hi) of a block's extent that is inside the image; the rest is padding. */
static void clip(const axis *a, int64_t first, int64_t extent, int64_t *lo, int64_t *hi)
{
    *lo = fxi_cpu_min(fxi_cpu_max(0, -first), extent);
    *hi = fxi_cpu_max(*lo, fxi_cpu_min(extent, a->in - first));
}

/* Copies the unit's rows and planes of one image into the scratch, with all channels. Rows of
 * padding are cleared; columns of padding are zeros from the start of the job and are never
 * written. */
static void fill(const reading *r, const unit *u, const char *x, char *scratch)
{
    const axis *a = r->axes;
    const int64_t in = a[0].in * a[1].in, line = r->extent[0] * (int64_t)r->size;
    const int64_t rows = (u->rows - 1) * a[1].distance + a[1].last + 1;
    const int64_t planes = (u->planes - 1) * a[2].distance + a[2].last + 1;
    const int64_t x1 = u->row * a[1].distance - a[1].before,
                  x2 = u->plane * a[2].distance - a[2].before;
    int64_t lo0, hi0, lo1, hi1, lo2, hi2;
    clip(&a[0], -a[0].before, r->extent[0], &lo0, &hi0);
    clip(&a[1], x1, rows, &lo1, &hi1);
    clip(&a[2], x2, planes, &lo2, &hi2);
    /* Rows without a gap are one copy. */
    const bool dense = hi0 - lo0 == r->extent[0] && r->extent[0] == a[0].in;
    for (int64_t c = 0; c < r->channels; c++)
        for (int64_t e = 0; e < planes; e++) {
            char *d =
                fxi_at_out(scratch, c * r->channel + e * r->extent[0] * r->extent[1], r->size);
            const bool inside = e >= lo2 && e < hi2 && lo0 < hi0;
            const int64_t lo = inside ? lo1 : rows, hi = inside ? hi1 : rows;
            const int64_t from = c * in * a[2].in + (x2 + e) * in + (x1 + lo) * a[0].in;
            /* The scratch holds the previous unit, whose rows may be where this one has padding. */
            memset(d, 0, (size_t)(lo * line));
            memset(d + hi * line, 0, (size_t)((rows - hi) * line));
            if (lo < hi)
                r->core->rows(&(fxi_conv_rows){.d = d + lo * line + lo0 * (int64_t)r->size,
                                               .s = fxi_at(x, from + lo0 - a[0].before, r->size),
                                               .dpitch = r->extent[0],
                                               .spitch = a[0].in,
                                               .stride = 1,
                                               .n = dense ? (hi - lo) * a[0].in : hi0 - lo0,
                                               .rows = dense ? 1 : hi - lo});
        }
}

/* A thread's memory. It begins with `ready` because fxi_cpu_parallel_scratch clears the first 64
 * bytes (HEAD) of a thread's scratch before a job. */
typedef struct workspace {
    int64_t ready; /* the padding is cleared */
    char *x, *panel;
    int32_t *list;
} workspace;

static size_t workspace_bytes(const reading *r, size_t panel)
{
    const int64_t windows = r->images * r->windows + r->core->gather_rows;
    return HEAD + (size_t)(r->images * r->image) * r->size + panel +
           (size_t)windows * sizeof(int32_t);
}

/* Clears the memory once for each thread and job: the padding, and the columns of panels that
 * nothing fills. */
static workspace *workspace_in(const reading *r, size_t panel, void *memory)
{
    const size_t x = (size_t)(r->images * r->image) * r->size;
    workspace *p = memory;
    p->x = (char *)memory + HEAD;
    p->panel = p->x + x;
    p->list = (int32_t *)(void *)(p->panel + panel);
    if (!p->ready)
        memset(p->x, 0, x + panel);
    p->ready = 1;
    return p;
}

static void fill_unit(const reading *r, const fxi_conv_geometry *g, const unit *u, int64_t group,
                      const char *in, char *scratch)
{
    const int64_t image = r->axes[0].in * r->axes[1].in * r->axes[2].in * r->channels;
    for (int64_t m = 0; m < u->images; m++)
        fill(r, u, fxi_at(in, ((u->first + m) * g->groups + group) * image, r->size),
             fxi_at_out(scratch, m * r->image, r->size));
}

/* ---- forward and data ------------------------------------------------------------------------ */

typedef struct window_job {
    reading r;
    const fxi_conv_geometry *g;
    columns columns;
    int64_t phase[3], stride[3],
        out[3]; /* window (i, …) gives element phase + stride·i of the output */
    int64_t tap_stride, column_stride; /* of the kernel: between channels read, between columns */
    int64_t tasks, slices,
        parts; /* where units are few, a task computes only a slice of the panels */
    size_t panel_bytes;
    const char *in, *w;
    char *result;
    char *panels;
    char *epilogue_values;    /* of the instructions that tiles apply */
    const fxi_finish *finish; /* any other epilogue; NULL: none */
} window_job;

/* Columns of one group, in whole vectors. */
static int64_t padded(const window_job *s)
{
    return s->columns.vectors * s->r.core->lanes;
}

/* Elements of one group's packed kernel. */
static int64_t packed_length(const window_job *s)
{
    return padded(s) * s->r.sums;
}

static int64_t tap_index(const window_job *s, int64_t t)
{
    const axis *a = s->r.axes;
    const int64_t i = t % a[0].taps, j = t / a[0].taps % a[1].taps, k = t / a[0].taps / a[1].taps;
    return a[0].tap[i] + s->g->k[0] * (a[1].tap[j] + s->g->k[1] * a[2].tap[k]);
}

/* Packs one panel of one group's kernel, transposed, so that the inner loop reads it in order. A
 * phase of DATA may use only some taps; these are copied one by one. */
static void pack_panel(void *user, int64_t number)
{
    const window_job *s = user;
    const reading *r = &s->r;
    const int64_t group = number / s->columns.panels, panel = number % s->columns.panels;
    int64_t width, n;
    const int64_t first = panel_at(r->core, &s->columns, panel, &width, &n);
    /* Taps of a channel are neighbours in the kernel, and for FORWARD the channels too: one
     * transposition copies neighbours. */
    const bool all = r->taps == s->g->taps;
    const int64_t channels = all && s->tap_stride == r->taps ? r->channels : 1;
    const int64_t whole = (all ? r->taps : 1) * channels;
    const char *w =
        fxi_at(s->w, group * s->g->depth * s->g->cout + first * s->column_stride, r->size);
    char *d = fxi_at_out(s->panels, group * packed_length(s) + first * r->sums, r->size);
    if (n < width)
        memset(d, 0, (size_t)(width * r->sums) * r->size);
    for (int64_t c = 0; c < r->channels; c += channels)
        for (int64_t t = 0; t < r->taps; t += whole)
            fxi_cpu_transpose(fxi_at_out(d, (c * r->taps + t) * width, r->size),
                              fxi_at(w, c * s->tap_stride + (all ? 0 : tap_index(s, t)), r->size),
                              n, whole, s->column_stride, width, r->size);
}

/* Copies n columns of one image's windows from a panel of the result into the output. `transposed`:
 * memory for as many columns. */
static void put_windows(const window_job *s, const unit *u, const char *y, int64_t width,
                        char *transposed, char *out, int64_t n)
{
    const reading *r = &s->r;
    const int64_t *o = s->out, length = fxi_length(3, o), line = r->axes[0].windows;
    if (s->stride[0] * s->stride[1] * s->stride[2] == 1) {
        const int64_t each =
            fxi_cpu_simd()->transpose[r->size] ? 64 / (int64_t)r->size : FEW_COLUMNS;
        for (int64_t c = 0; c < n; c += each)
            fxi_cpu_transpose(
                fxi_at_out(out, c * length + o[0] * (u->row + o[1] * u->plane), r->size),
                fxi_at(y, c, r->size), u->windows, fxi_cpu_min(each, n - c), width, length,
                r->size);
        return;
    }
    /* With strides (DATA) the elements of a phase are apart from each other in the output. They are
     * first transposed in the cache, because elements of one column, a row of the output, can then
     * be stored by vectors. */
    fxi_cpu_transpose(transposed, y, u->windows, n, width, u->windows, r->size);
    for (int64_t c = 0; c < n; c++)
        for (int64_t k = 0; k < u->planes; k++) {
            const int64_t second = s->phase[1] + u->row * s->stride[1];
            const int64_t third = s->phase[2] + (u->plane + k) * s->stride[2];
            const int64_t at = s->phase[0] + o[0] * (second + o[1] * third);
            r->core->spread(&(fxi_conv_rows){
                .d = fxi_at_out(out, c * length + at, r->size),
                .s = fxi_at(transposed, c * u->windows + k * u->rows * line, r->size),
                .dpitch = o[0] * s->stride[1],
                .spitch = line,
                .stride = s->stride[0],
                .n = line,
                .rows = u->rows});
        }
}

/* Applies the epilogue to the columns that put_windows has just copied, while they are in the
 * cache. out: the element where the first column begins. */
static void finish_windows(const window_job *s, const unit *u, int64_t out, int64_t n)
{
    const int64_t length = fxi_length(3, s->out);
    /* Whole images: the columns follow each other without a gap. */
    if (u->windows == length)
        fxi_cpu_finish_range(s->finish, out, out + n * length);
    for (int64_t c = 0; c < n && u->windows < length; c++) {
        const int64_t at = out + c * length + s->out[0] * (u->row + s->out[1] * u->plane);
        fxi_cpu_finish_range(s->finish, at, at + u->windows);
    }
}

/* Sums are taken DEPTH terms at a time, so that the panel's rows for those terms stay in the
 * first-level cache while all windows use them. */
static void run_panel(const window_job *s, const workspace *p, int64_t group, int64_t first,
                      int64_t width, int64_t windows)
{
    const reading *r = &s->r;
    const char *panel = fxi_at(s->panels, group * packed_length(s) + first * r->sums, r->size);
    fxi_conv_instr instr[FXI_CONV_INSTRUCTIONS];
    const int count =
        fxi_conv_epilogue_at(s->g, padded(s), s->epilogue_values, group, first, instr);
    for (int64_t k = 0; k < r->sums; k += DEPTH)
        r->core->gather[width / r->core->lanes - 1](
            &(fxi_conv_gather){.x = p->x,
                               .b = fxi_at(panel, k * width, r->size),
                               .y = p->panel,
                               .row = p->list,
                               .sum = r->sum + k,
                               .rows = windows,
                               .sums = fxi_cpu_min(DEPTH, r->sums - k),
                               .accumulate = k > 0});
    if (count)
        r->core->finish(&(fxi_conv_sums){.y = p->panel,
                                         .rows = fxi_cpu_round_up(windows, r->core->gather_rows),
                                         .vectors = width / r->core->lanes,
                                         .pitch = width,
                                         .across = true,
                                         .n = count,
                                         .instr = instr});
}

/* Computes a slice of the columns for one unit of one group. */
static void run_task(const window_job *s, const workspace *p, int64_t task)
{
    const reading *r = &s->r;
    const fxi_conv_geometry *g = s->g;
    const int64_t group = task / s->slices % g->groups, length = fxi_length(3, s->out);
    const unit u = unit_at(r, g->batch, task / s->slices / g->groups);
    const int64_t windows = list_windows(r, &u, p->list);
    int64_t from, to;
    fxi_cpu_range(s->columns.panels, s->slices, task % s->slices, &from, &to);
    /* Each slice of a unit fills the scratch itself, which takes little time compared with its
     * sums. */
    fill_unit(r, g, &u, group, s->in, p->x);
    for (int64_t panel = from; panel < to; panel++) {
        int64_t width, n;
        const int64_t first = panel_at(r->core, &s->columns, panel, &width, &n);
        run_panel(s, p, group, first, width, windows);
        for (int64_t m = 0; m < u.images; m++) {
            const int64_t image = (u.first + m) * g->groups + group;
            const int64_t out = (image * s->columns.n + first) * length;
            put_windows(s, &u, fxi_at(p->panel, m * u.windows * width, r->size), width,
                        p->panel + s->panel_bytes / 2, fxi_at_out(s->result, out, r->size), n);
            if (s->finish)
                finish_windows(s, &u, out, n);
        }
    }
}

/* Units are about equally large, so equal ranges of tasks keep the threads equally busy. */
static void run_tasks(void *user, int64_t part, void *memory)
{
    const window_job *s = user;
    const workspace *p = workspace_in(&s->r, s->panel_bytes, memory);
    int64_t from, to;
    fxi_cpu_range(s->tasks, s->parts, part, &from, &to);
    for (int64_t task = from; task < to; task++)
        run_task(s, p, task);
}

/* Computes the whole output of FORWARD, or one phase of DATA. The kernel is packed at every run,
 * because in training it changes between runs. */
static fx_status run_phase(window_job *s)
{
    reading *r = &s->r;
    const fxi_conv_geometry *g = s->g;
    const fx_status fits = lay_out(r, g->batch, FEW_WINDOWS);
    if (fits)
        return fits;
    const int64_t units = units_of(r, g->batch) * g->groups;
    const int64_t width = r->core->lanes * r->core->gather_vectors;
    const int64_t windows = fxi_cpu_round_up(r->images * r->windows, r->core->gather_rows);
    const double flops = 2.0 * (double)(r->sums * s->columns.n) * (double)(g->batch * g->groups) *
                         (double)(r->axes[0].windows * r->axes[1].windows * r->axes[2].windows);
    /* Rounded up, so that the list of offsets after them is aligned. */
    const size_t kernel = ((size_t)(packed_length(s) * g->groups) * r->size + 63) / 64 * 64;
    const size_t packed = kernel + (fxi_conv_epilogue_bytes(g, padded(s)) + 63) / 64 * 64;
    s->panel_bytes = 2 * (size_t)(windows * width) * r->size;
    s->slices = units < ENOUGH_UNITS ? s->columns.panels : 1;
    s->tasks = units * s->slices;
    s->parts = fxi_cpu_parts(s->tasks, fxi_cpu_cost(0, flops));
    s->panels = fxi_aligned(64, packed + (size_t)r->sums * sizeof(int32_t));
    if (!s->panels)
        return FX_STATUS_MEMORY;
    s->epilogue_values = s->panels + kernel;
    fxi_conv_epilogue_put(g, padded(s), s->epilogue_values);
    r->sum = (int32_t *)(void *)(s->panels + packed);
    list_sums(r);
    /* A job that is too short for several threads is packed by the caller. */
    if (s->parts > 1)
        fxi_cpu_parallel(g->groups * s->columns.panels, pack_panel, s);
    else
        for (int64_t k = 0; k < g->groups * s->columns.panels; k++)
            pack_panel(s, k);
    const fx_status status =
        fxi_cpu_parallel_scratch(s->parts, workspace_bytes(r, s->panel_bytes), run_tasks, s);
    fxi_free(s->panels);
    return status;
}

static fx_status run_forward(window_job *s)
{
    const fxi_conv_geometry *g = s->g;
    s->r.channels = g->cin;
    s->columns = columns_of(s->r.core, g->cout);
    s->tap_stride = g->taps; /* the kernel is taps × cin × cout */
    s->column_stride = g->depth;
    s->finish = g->epilogue.n ? NULL : g->finish;
    for (int d = 0; d < 3; d++) {
        read_x(g, d, &s->r.axes[d]);
        s->stride[d] = 1;
        s->out[d] = g->y[d];
    }
    return run_phase(s);
}

/* Do the windows read every element of x? Where strides are larger than the kernel, or the stride
 * and the dilation have a common divisor above 1, some phases have no taps. */
static bool reaches_all(const fxi_conv_geometry *g, axis *axes)
{
    for (int d = 0; d < 3; d++)
        for (int64_t phase = 0; phase < fxi_cpu_min(g->stride[d], g->x[d]); phase++) {
            read_gy(g, d, phase, &axes[d]);
            if (axes[d].taps == 0)
                return false;
        }
    return true;
}

/* No phase writes the positions that no window reaches. They must be zeros. */
static fx_status run_data(window_job *s)
{
    const fxi_conv_geometry *g = s->g;
    int64_t phases[3];
    fx_status status = FX_OK;
    s->r.channels = g->cout;
    s->columns = columns_of(s->r.core, g->cin);
    s->tap_stride = g->depth;
    s->column_stride = g->taps;
    /* Rare: such a forward convolution ignores elements of x. */
    if (!reaches_all(g, s->r.axes))
        memset(s->result, 0, (size_t)(g->batch * g->groups * g->cin * g->xs) * g->size);
    /* A phase from the size of x on has no positions. */
    for (int d = 0; d < 3; d++)
        phases[d] = fxi_cpu_min(g->stride[d], g->x[d]);
    for (int64_t p = 0; p < fxi_length(3, phases) && !status; p++) {
        bool any = true;
        int64_t rest = p;
        for (int d = 0; d < 3; d++) {
            s->stride[d] = g->stride[d];
            s->out[d] = g->x[d];
            s->phase[d] = rest % phases[d];
            rest /= phases[d];
            read_gy(g, d, s->phase[d], &s->r.axes[d]);
            /* A phase without taps or positions has no work; its extent would be meaningless. */
            any = any && s->r.axes[d].taps > 0 && s->r.axes[d].windows > 0;
        }
        status = any ? run_phase(s) : FX_OK;
    }
    return status;
}

/* ---- weight ---------------------------------------------------------------------------------- */

/* The data of WEIGHT that all threads share. */
typedef struct weight_job {
    reading r;
    const fxi_conv_geometry *g;
    columns columns;
    const char *x, *gy;
    char *w;
    int64_t units, shares, parts;
    int64_t blocks; /* of the panels of a share; different threads sum them */
    int64_t depth;  /* rows of the result, in whole tiles */
    size_t panel_bytes;
    char *sums; /* partial sums: by group, then share, then panel */
} weight_job;

static int64_t sums_length(const weight_job *w)
{
    return w->depth * w->columns.vectors * w->r.core->lanes;
}

static char *sums_of(const weight_job *w, int64_t group, int64_t share, int64_t column)
{
    return fxi_at_out(w->sums, (group * w->shares + share) * sums_length(w) + column * w->depth,
                      w->r.size);
}

/* Packs the unit's windows of gy: for each window the columns of a panel, which the kernel then
 * loads as vectors. */
static void pack_gy(const weight_job *w, const unit *u, int64_t group, int64_t first, int64_t width,
                    int64_t n, char *panel)
{
    const reading *r = &w->r;
    const fxi_conv_geometry *g = w->g;
    const int64_t row = r->axes[0].windows * (u->row + r->axes[1].windows * u->plane);
    for (int64_t m = 0; m < u->images; m++) {
        const int64_t image = (u->first + m) * g->groups + group;
        const int64_t at = (image * g->cout + first) * g->positions + row;
        fxi_cpu_transpose(fxi_at_out(panel, m * u->windows * width, r->size),
                          fxi_at(w->gy, at, r->size), n, u->windows, g->positions, width, r->size);
    }
}

/* Here the roles are exchanged: the offsets of taps are the rows of the product and the windows are
 * its terms, so the same kernel sums over the windows. */
static void sum_share(const weight_job *w, const workspace *p, int64_t group, int64_t share,
                      int64_t block)
{
    const reading *r = &w->r;
    int64_t from, to, panel_from, panel_to;
    fxi_cpu_range(w->units, w->shares, share, &from, &to);
    fxi_cpu_range(w->columns.panels, w->blocks, block, &panel_from, &panel_to);
    for (int64_t k = from; k < to; k++) {
        const unit u = unit_at(r, w->g->batch, k);
        const int64_t windows = list_windows(r, &u, p->list);
        fill_unit(r, w->g, &u, group, w->x, p->x);
        for (int64_t panel = panel_from; panel < panel_to; panel++) {
            int64_t width, n;
            const int64_t first = panel_at(r->core, &w->columns, panel, &width, &n);
            pack_gy(w, &u, group, first, width, n, p->panel);
            r->core->gather[width / r->core->lanes - 1](
                &(fxi_conv_gather){.x = p->x,
                                   .b = p->panel,
                                   .y = sums_of(w, group, share, first),
                                   .row = r->sum,
                                   .sum = p->list,
                                   .rows = r->sums,
                                   .sums = windows,
                                   .accumulate = k > from});
        }
    }
}

/* The windows of a share are never divided: its sums are added in the order of its units. */
static void sum_shares(void *user, int64_t part, void *memory)
{
    const weight_job *w = user;
    const workspace *p = workspace_in(&w->r, w->panel_bytes, memory);
    int64_t from, to;
    fxi_cpu_range(w->g->groups * w->shares * w->blocks, w->parts, part, &from, &to);
    for (int64_t k = from; k < to; k++) {
        const int64_t share = k / w->blocks;
        sum_share(w, p, share / w->shares, share % w->shares, k % w->blocks);
    }
}

#define ADD(S, T)                                                                                  \
    static void add_##S(void *to, const void *from, int64_t n)                                     \
    {                                                                                              \
        T *d = to;                                                                                 \
        const T *s = from;                                                                         \
        for (int64_t i = 0; i < n; i++)                                                            \
            d[i] += s[i];                                                                          \
    }
ADD(f32, float)
ADD(f64, double)

/* Adds up the shares of one panel of one group, in order, and writes it into the kernel's
 * gradient. */
static void put_panel(void *user, int64_t number)
{
    const weight_job *w = user;
    const reading *r = &w->r;
    const int64_t group = number / w->columns.panels;
    int64_t width, n;
    const int64_t first = panel_at(r->core, &w->columns, number % w->columns.panels, &width, &n);
    /* The first share collects the others. */
    char *sums = sums_of(w, group, 0, first);
    for (int64_t share = 1; share < w->shares; share++)
        (r->size == sizeof(double) ? add_f64 : add_f32)(sums, sums_of(w, group, share, first),
                                                        r->sums * width);
    fxi_cpu_transpose(fxi_at_out(w->w, (group * w->g->cout + first) * w->g->depth, r->size), sums,
                      r->sums, n, width, w->g->depth, r->size);
}

static fx_status run_weight(weight_job *w)
{
    reading *r = &w->r;
    const fxi_conv_geometry *g = w->g;
    r->channels = g->cin;
    w->columns = columns_of(r->core, g->cout);
    for (int d = 0; d < 3; d++)
        read_x(g, d, &r->axes[d]);
    const fx_status fits = lay_out(r, g->batch, WEIGHT_WINDOWS);
    if (fits)
        return fits;
    const int64_t width = r->core->lanes * r->core->gather_vectors;
    const double flops = 2.0 * (double)(g->depth * g->cout) * (double)(g->batch * g->positions);
    /* The tile computes whole groups of rows, so the sums include them. */
    w->depth = fxi_cpu_round_up(r->sums, r->core->gather_rows);
    w->units = units_of(r, g->batch);
    /* Each share has its own copy of the sums, so few windows get few shares. */
    w->shares =
        fxi_cpu_min(w->units, fxi_conv_shares(g->batch * g->positions, SHARE_WINDOWS, MOST_SHARES));
    /* Each block copies the share's windows of x again, so there are only as many blocks as the
     * threads need. Their number may depend on the threads, because the bits do not depend on the
     * blocks. */
    w->blocks =
        fxi_cpu_min(w->columns.panels, fxi_cpu_divide_up(fx_num_threads(), g->groups * w->shares));
    w->parts = fxi_cpu_parts(g->groups * w->shares * w->blocks,
                             fxi_cpu_cost(0, flops * (double)g->groups));
    w->panel_bytes = (size_t)(r->images * r->windows * width) * r->size;
    const size_t sums = (size_t)(g->groups * w->shares * sums_length(w)) * r->size;
    w->sums = fxi_aligned(64, sums + (size_t)w->depth * sizeof(int32_t));
    if (!w->sums)
        return FX_STATUS_MEMORY;
    r->sum = (int32_t *)(void *)(w->sums + sums);
    list_sums(r);
    /* Rows beyond the last fill up a tile; their sums are not copied out. */
    for (int64_t k = r->sums; k < w->depth; k++)
        r->sum[k] = r->sum[r->sums - 1];
    const fx_status status =
        fxi_cpu_parallel_scratch(w->parts, workspace_bytes(r, w->panel_bytes), sum_shares, w);
    for (int64_t k = 0; k < g->groups * w->columns.panels && !status && w->parts == 1; k++)
        put_panel(w, k);
    if (status == FX_OK && w->parts > 1)
        fxi_cpu_parallel(g->groups * w->columns.panels, put_panel, w);
    fxi_free(w->sums);
    return status;
}

/* ---- the three kinds ------------------------------------------------------------------------- */

/* Blocks are cut along axes 1 and 2 only, so one row of windows is always in one block. Where a row
 * with all channels would not fit in the scratch and is the whole image (one spatial axis), axes 0
 * and 1 are exchanged, which does not change the order in memory. */
static fxi_conv_geometry cut_along_rows(const fxi_conv_geometry *given, int kind)
{
    fxi_conv_geometry g = *given;
    const bool data = kind == FX_CONV_DATA;
    const int64_t *in = data ? g.y : g.x;
    if (fxi_mul_sizes((data ? g.cout : g.cin) * (int64_t)g.size, in[0]) <= SCRATCH_BYTES ||
        g.attr->spatial > 1)
        return g;
    int64_t *const axes[] = {g.x, g.k, g.y, g.stride, g.before, g.dilation};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        const int64_t first = axes[i][0];
        axes[i][0] = axes[i][1];
        axes[i][1] = first;
    }
    return g;
}

fx_status fxi_cpu_conv_gather(const fxi_conv_geometry *given, int kind, void *x, void *w, void *y)
{
    const fxi_conv_geometry exchanged = cut_along_rows(given, kind), *g = &exchanged;
    const reading r = {.core = &fxi_cpu_simd()->conv[g->dtype == FX_DTYPE_F64], .size = g->size};
    const int64_t taps = g->k[0] + g->k[1] + g->k[2];
    int32_t *lists = fxi_malloc(2 * (size_t)taps * sizeof *lists);
    if (!lists)
        return FX_STATUS_MEMORY;
    window_job s = {.r = r,
                    .g = g,
                    .w = w,
                    .in = kind == FX_CONV_DATA ? y : x,
                    .result = kind == FX_CONV_DATA ? x : y};
    weight_job v = {.r = r, .g = g, .x = x, .gy = y, .w = w};
    axis *axes = kind == FX_CONV_WEIGHT ? v.r.axes : s.r.axes;
    /* One list of taps serves all phases: each phase fills it again. */
    for (int64_t d = 0, at = 0; d < 3; at += 2 * g->k[d++]) {
        axes[d].at = lists + at;
        axes[d].tap = lists + at + g->k[d];
    }
    const fx_status status = kind == FX_CONV_WEIGHT    ? run_weight(&v)
                             : kind == FX_CONV_FORWARD ? run_forward(&s)
                                                       : run_data(&s);
    fxi_free(lists);
    return status;
}
