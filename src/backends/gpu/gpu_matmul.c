/* gpu_matmul.c: matrix products of all types, in batches, with an epilogue.
 *
 * One kernel text has the tile's sizes as constants. A group computes a tile of BM×BN elements: it
 * moves along the inner axis by BK elements at a time and copies its parts of both operands,
 * whatever their strides are, into local memory. From there each work-item reads what its RM×RN
 * elements need, and adds the products in registers. The elements of one work-item are TX (and TY)
 * apart, so that neighbours read and write neighbouring memory.
 *
 * On GPUs a group has 16×16 work-items (in some tiles of CUDA 16×8), and each computes one block of
 * RM×RN elements. A CPU runs the work-items of a group one after another, so there a group is a
 * single work-item with MT·NT blocks: local memory is then the cache, and the block's registers are
 * vectors. The tile is the largest with which there are enough groups to keep all units busy. If
 * the output has too few tiles but its sums have many terms, these are cut into slices
 * (gpu_slices.c).
 *
 * Devices with instructions for small matrices multiply 16-bit floats with them (matrix.cl). There
 * a warp has the block instead of a work-item. NVIDIA's devices since sm_80 also copy into local
 * memory while they compute. Their largest tile needs more local memory than a launch usually has,
 * so the launch asks for it: with smaller tiles, reading operands from the cache would limit
 * the speed.
 *
 * 16-bit floats are added in Float32, and integers modulo their width. The sum is rounded to the
 * output's type before the epilogue's first instruction, as if the product were a step of its own.
 */
#include "gpu_text.h"

#include <stdlib.h>

typedef struct tile {
    int tx, ty; /* work-items */
    int rm, rn; /* elements of a block */
    int mt, nt; /* blocks of a work-item */
    int bk;     /* 4-byte elements of the inner axis at a time */
} tile;

/* From the largest to the smallest. */
static const tile parallel_tiles[] = {
    {16, 16, 8, 8, 1, 1, 8},
    {16, 16, 4, 4, 1, 1, 16},
    {16, 16, 2, 2, 1, 1, 32},
    {16, 16, 1, 1, 1, 1, 32},
    {0},
};
/* Tiles for CUDA's devices with instructions for products of matrices: a warp computes 64×64
 * elements of a large tile, because then it loads the fewest parts for each product. The first one
 * reads an operand least often, but a group must ask for the memory of its four rounds. */
static const tile cuda_cell_tiles[] = {{16, 16, 8, 16, 1, 1, 8},
                                       {16, 8, 8, 16, 1, 1, 8},
                                       {16, 8, 4, 8, 1, 1, 16},
                                       {16, 16, 2, 2, 1, 1, 32},
                                       {0}};
static const tile serial_tiles[] = {
    {1, 1, 16, 6, 4, 8, 64}, {1, 1, 16, 6, 2, 4, 64}, {1, 1, 16, 6, 1, 2, 64}, {0}};

typedef struct product {
    const fx_step *step;
    const fxi_gpu_type *type;
    int64_t m, n, k, am, ak, bk, bn;
    int operands;                  /* of the epilogue */
    int pattern[FXI_GPU_PATTERNS]; /* the pattern of each input over the batch */
    int out;                       /* the pattern of the output over the batch; −1: it is dense */
    fxi_gpu_walk batch;
    tile tile;
    int64_t tiles_m, tiles_n, batches;
    int64_t slices, slice; /* slices of the inner axis, and the length of one */
} product;

/* ---- sizes ----------------------------------------------------------------------------------- */

/* The walks of all inputs over the batch's axes. An axis of size 1 is repeated. */
static void walk_batch(product *p, const fx_step *s)
{
    fxi_gpu_layout l = {.nd = s->out.ndim - 2};
    for (int d = 0; d < l.nd; d++)
        l.shape[d] = s->out.shape[d + 2];
    for (int i = 0; i < s->nin; i++) {
        const fx_tensor *t = &s->in[i];
        int64_t strides[FX_MAX_DIMS] = {0};
        for (int d = 2; d < t->ndim; d++)
            strides[d - 2] = t->shape[d] != 1 ? t->stride[d] : 0;
        p->pattern[i] = fxi_gpu_layout_add(&l, strides);
    }
    p->out = fxi_gpu_is_ordered(&s->out) ? fxi_gpu_layout_add(&l, s->out.stride + 2) : -1;
    p->batch = fxi_gpu_walk_over(&l, UINT32_MAX);
    p->batches = fxi_gpu_walk_length(&p->batch);
}

/* A transposed operand only exchanges its strides: the kernel copies tiles of any strides. */
static product product_of(const fx_step *s)
{
    const fx_tensor *a = &s->in[0], *b = &s->in[1];
    const bool ta = fx_step_matmul(s)->transpose_a, tb = fx_step_matmul(s)->transpose_b;
    product p = {.step = s,
                 .type = &fxi_gpu_types[s->out.dtype],
                 .m = s->out.shape[0],
                 .n = s->out.shape[1],
                 .k = a->shape[!ta],
                 .am = fxi_gpu_stride(a, ta),
                 .ak = fxi_gpu_stride(a, !ta),
                 .bk = fxi_gpu_stride(b, tb),
                 .bn = fxi_gpu_stride(b, !tb),
                 .operands = s->nin - 2};
    walk_batch(&p, s);
    return p;
}

static int64_t tiles_of(product *p, const tile *t)
{
    p->tiles_m = fxi_gpu_divide_up(p->m, t->tx * t->rm * t->mt);
    p->tiles_n = fxi_gpu_divide_up(p->n, t->ty * t->rn * t->nt);
    return p->tiles_m * p->tiles_n * p->batches;
}

/* The limits of slices. On an inner axis of fewer than CUT_LEAST terms, slices would save less time
 * than the second kernel takes. Storing the sums of a slice of SLICE_LEAST terms costs less than
 * loading its operands. */
enum { CUT_LEAST = 512, SLICE_LEAST = 128, SLICE_UNIT = 32, SLICED_MOST = 1 << 26 };

/* Cuts the inner axis into slices until the device is busy, if the axis is long enough. The length
 * of a slice is a multiple of the BK of every tile. */
static void cut(product *p, int64_t tiles, const fxi_gpu_limits *limits)
{
    const int64_t want = fxi_gpu_divide_up(limits->units, tiles),
                  most = SLICED_MOST / fx_tensor_length(&p->step->out),
                  longest = p->k / SLICE_LEAST;
    int64_t slices = want < longest ? want : longest;
    slices = slices < most ? slices : most;
    if (limits->serial || p->k < CUT_LEAST || slices < 2)
        slices = 1;
    p->slice = fxi_gpu_divide_up(fxi_gpu_divide_up(p->k, slices), SLICE_UNIT) * SLICE_UNIT;
    /* Rounding up may leave fewer slices. A product without terms has one slice. */
    p->slices = p->k > 0 ? fxi_gpu_divide_up(p->k, p->slice) : 1;
}

/* May the device have instructions for products of matrices of the type? The text asks its compiler
 * (matrix.cl), because only the compiler knows. */
static bool has_cells(const fxi_gpu_builder *b, const fxi_gpu_type *t)
{
    return t->math && t->size == 2 && fxi_gpu_warp(b) > 0;
}

static bool has_async(const fxi_gpu_builder *b, const fxi_gpu_type *t)
{
    return has_cells(b, t) && b->runtime->dialect == FXI_GPU_CUDA;
}

/* The bytes for which a group with the largest tile asks: both operands of four rounds (matrix.cl).
 * A device where a group can have this much, and 1 KiB for the driver, has asynchronous copies. */
enum { ROUNDS = 4, ASKED = ROUNDS * (128 + 256) * 32 * 2, DRIVER = 1024 };
static bool asks(const tile *t)
{
    return t->tx * t->ty * t->rm * t->rn > 128 * 128;
}

/* May the largest tile be used? Not if all of these tiles together cover over an eighth more
 * elements than tiles of the next size would: the additional elements are outside the output.
 */
static bool can_ask(product *p, const fxi_gpu_limits *limits)
{
    const tile *t = cuda_cell_tiles;
    return limits->asked_memory >= ASKED + DRIVER &&
           8 * 2 * tiles_of(p, t) <= 9 * tiles_of(p, t + 1);
}

/* A large tile reads each operand less often, but gives fewer groups; an idle unit costs more than
 * the extra reads. */
static void choose_tile(product *p, const fxi_gpu_builder *b)
{
    const fxi_gpu_limits *limits = b->limits;
    const tile *t = limits->serial          ? serial_tiles
                    : has_async(b, p->type) ? cuda_cell_tiles
                                            : parallel_tiles;
    if (t == cuda_cell_tiles && !can_ask(p, limits))
        t++;
    const bool long_elements = p->type->size == 8;
    if (long_elements && !limits->serial)
        t++; /* the largest tile needs too many registers */
    for (;; t++) {
        const int64_t tiles = tiles_of(p, t);
        cut(p, tiles, limits);
        if (tiles * p->slices >= limits->units || t[1].tx == 0)
            break;
        if (has_cells(b, p->type) && t[1].rm == 1)
            break; /* less than a cell (matrix.cl) for each warp */
    }
    p->tile = *t;
    /* 8-byte elements: half as many, so the tile takes the same local memory and registers. */
    if (long_elements) {
        p->tile.bk /= 2;
        if (limits->serial) {
            p->tile.rm /= 2;
            p->tile.mt *= 2;
        }
    }
}

/* How far beyond the operand's end a work-item may compute addresses, because a tile and the next
 * parts of the inner axis may begin there. */
static int64_t beyond(int64_t row_stride, int64_t inner_stride)
{
    enum { TILE_MOST = 256 };
    return TILE_MOST * llabs(row_stride) + 2 * SLICE_UNIT * llabs(inner_stride);
}

/* Is an operand, the output or the inner axis too large for 32-bit indices? */
static bool is_wide(const product *p)
{
    const fx_step *s = p->step;
    bool wide = fxi_gpu_wide(fx_tensor_length(&s->out) * p->slices) || fxi_gpu_wide(p->k);
    for (int i = 0; i < s->nin; i++) {
        const fx_tensor *t = &s->in[i];
        /* The distance from the first element to the last one that the operand reaches. */
        int64_t far = 0;
        for (int d = 0; d < t->ndim; d++)
            far += (t->shape[d] - 1) * (t->stride[d] < 0 ? -t->stride[d] : t->stride[d]);
        /* A work-item also computes addresses beyond the operand, but does not read there. */
        if (i < 2)
            far += i == 0 ? beyond(p->am, p->ak) : beyond(p->bn, p->bk);
        wide |= fxi_gpu_wide(far);
    }
    return wide;
}

/* ---- the text -------------------------------------------------------------------------------- */

/* Parameters. Two for each operand of the epilogue, two for an output in another order, and those
 * of the batch follow. */
enum {
    ROWS,
    COLUMNS,
    INNER,
    A_ROW,
    A_INNER,
    B_INNER,
    B_COLUMN,
    TILES_M,
    TILES_N,
    BATCHES,
    SLICE,
    OPERANDS
};
static int strides_of_output(const product *p)
{
    return OPERANDS + (p->slices > 1 ? 0 : 2 * p->operands);
}
static int first_of_batch(const product *p)
{
    return strides_of_output(p) + (p->slices > 1 || p->out < 0 ? 0 : 2);
}

/* Integers are summed in an unsigned type, so that overflow wraps; U8 in one of 32 bits. */
static const char *sum_type(const product *p)
{
    return p->type->wrapping ? p->type->wrapping : p->type->value;
}

static void set_constants(fxi_gpu_builder *b, const product *p)
{
    const tile *t = &p->tile;
    const fxi_gpu_type *type = p->type;
    fxi_gpu_set_number(b, "tx", t->tx);
    fxi_gpu_set_number(b, "ty", t->ty);
    fxi_gpu_set_number(b, "rm", t->rm);
    fxi_gpu_set_number(b, "rn", t->rn);
    fxi_gpu_set_number(b, "mt", t->mt);
    fxi_gpu_set_number(b, "nt", t->nt);
    fxi_gpu_set_number(b, "bk", t->bk);
    fxi_gpu_set(b, "sum", sum_type(p));
    fxi_gpu_set(b, "mad", type->math ? "FX_MAD(x, y, z)" : "(SUM)((x) * (y) + (z))");
    fxi_gpu_set(b, "name", type->name);
    fxi_gpu_set(b, "stored", type->stored);
    fxi_gpu_set(b, "out", p->slices > 1 ? sum_type(p) : type->stored);
    fxi_gpu_set_number(b, "of_a", p->pattern[0]);
    fxi_gpu_set_number(b, "of_b", p->pattern[1]);
    fxi_gpu_set(b, "tiles", asks(t) ? "FX_LOCAL_ASKED" : "FX_LOCAL");
    fxi_gpu_set_number(b, "stages", asks(t) ? ROUNDS : 3);
    /* 16 bytes are copied at a time, along the axis on which the operand's elements are neighbours.
     * If that is not the inner axis, parts are transposed as they are loaded (matrix.cl). */
    fxi_gpu_set_number(b, "a_across", p->am == 1 && p->ak != 1);
    fxi_gpu_set_number(b, "b_across", p->bn == 1 && p->bk != 1);
}

/* Appends the instructions between the sum and the stored element: register r0 is the product, the
 * next ones are the epilogue's operands, the others results of instructions. */
static void say_result(fxi_gpu_builder *b, const product *p)
{
    const fxi_gpu_type *type = p->type;
    if (p->slices > 1) {
        fxi_gpu_say(b, "c[(zs * COLUMNS + n) * ROWS + m] = total;\n");
        return;
    }
    /* 16-bit products are rounded before the epilogue reads them. */
    const bool narrow = type->math && type->size == 2;
    fxi_gpu_say(b, "const %s r0 = %s%s%s(total);\n", type->value, narrow ? "fx_round_" : "(",
                narrow ? type->name : type->value, narrow ? "" : ")");
    for (int i = 0; i < p->operands; i++)
        fxi_gpu_say(b, "const %s r%d = FX_LOAD_%s(x%d, o%d + m * P(%d) + n * P(%d));\n",
                    type->value, 1 + i, type->name, 1 + i, p->pattern[2 + i], OPERANDS + 2 * i,
                    OPERANDS + 2 * i + 1);
    const int result = fxi_gpu_say_program(b, 1 + p->operands);
    const int at = strides_of_output(p);
    if (p->out < 0)
        fxi_gpu_say(b, "FX_STORE_%s(c, (z * COLUMNS + n) * ROWS + m, r%d);\n", type->name, result);
    else
        fxi_gpu_say(b, "FX_STORE_%s(c, o%d + m * P(%d) + n * P(%d), r%d);\n", type->name, p->out,
                    at, at + 1, result);
}

static void say_sums(fxi_gpu_builder *b, const product *p, const char *text)
{
    text = fxi_gpu_say_until(b, text, "result");
    say_result(b, p);
    fxi_gpu_say_part(b, text);
}

static void say_kernel(fxi_gpu_builder *b, const product *p)
{
    const int operands = p->slices > 1 ? 0 : p->operands;
    const bool alone = asks(&p->tile);
    fxi_gpu_begin_large_groups(b, is_wide(p), p->tile.tx * p->tile.ty, alone ? ASKED : 0);
    fxi_gpu_kernel(b, "fx_matmul", 3 + operands,
                   first_of_batch(p) + fxi_gpu_walk_params(&p->batch));
    set_constants(b, p);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_matmul, "operands");
    for (int k = 0; k < operands; k++)
        fxi_gpu_say(b, "    FX_USE(%d, const %s, x%d)\n", 3 + k, p->type->stored, 1 + k);
    text = fxi_gpu_say_until(b, text, "batch");
    fxi_gpu_walk_say(b, &p->batch, first_of_batch(p), "z", "o", NULL);
    fxi_gpu_say_part(b, text);
    const bool cells = has_cells(b, p->type);
    /* The text has all loops that the architecture may be able to run: only the compiler knows
     * which it can. */
    const bool async = has_async(b, p->type) && p->tile.rm > 2;
    if (async)
        say_sums(b, p, fxi_gpu_text_matrix_async);
    if (cells && !alone)
        say_sums(b, p, fxi_gpu_text_matrix);
    if (!alone)
        say_sums(b, p, b->limits->serial ? fxi_gpu_text_matmul_serial : fxi_gpu_text_matmul_tiles);
    for (int k = 0; k < (cells && !alone) + async; k++)
        fxi_gpu_say_part(b, fxi_gpu_text_matrix_end);
    fxi_gpu_say_part(b, fxi_gpu_text_matmul_end);
    fxi_gpu_end(b);
}

/* ---- the step -------------------------------------------------------------------------------- */

static fxi_gpu_call *add_launch(fxi_gpu_builder *b, const product *p)
{
    fxi_gpu_call *c = fxi_gpu_add(b);
    const int64_t params[OPERANDS] = {p->m,  p->n,       p->k,       p->am,      p->ak,   p->bk,
                                      p->bn, p->tiles_m, p->tiles_n, p->batches, p->slice};
    for (int k = 0; k < OPERANDS; k++)
        fxi_gpu_param(c, k, params[k]);
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, 0);
    fxi_gpu_buffer(c, 1, FXI_GPU_IN, 1);
    fxi_gpu_buffer(c, 2, FXI_GPU_OUT, 0);
    fxi_gpu_walk_fill(&p->batch, c, first_of_batch(p));
    /* All groups along the first axis: many devices allow only 65535 groups along the others. */
    c->groups[0] = p->tiles_m * p->tiles_n * p->batches * p->slices;
    return c;
}

static void set_operands(fxi_gpu_call *c, const product *p)
{
    const fx_step *s = p->step;
    for (int i = 0; i < p->operands; i++) {
        fxi_gpu_buffer(c, 3 + i, FXI_GPU_IN, 2 + i);
        fxi_gpu_param(c, OPERANDS + 2 * i, fxi_gpu_stride(&s->in[2 + i], 0));
        fxi_gpu_param(c, OPERANDS + 2 * i + 1, fxi_gpu_stride(&s->in[2 + i], 1));
    }
    for (int d = 0; d < 2 && p->out >= 0; d++)
        fxi_gpu_param(c, strides_of_output(p) + d, s->out.stride[d]);
}

void fxi_gpu_matmul(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    if (s->out.dtype == FX_DTYPE_BOOL) {
        fxi_gpu_fail(b, FX_STATUS_DTYPE, "matmul does not support Bool");
        return;
    }
    if (fx_tensor_length(&s->out) == 0)
        return;
    product p = product_of(s);
    choose_tile(&p, b);
    say_kernel(b, &p);
    fxi_gpu_call *call = add_launch(b, &p);
    if (p.slices == 1) {
        set_operands(call, &p);
        return;
    }
    /* The sums of a slice are not complete, so the launch that adds them applies the epilogue. */
    const fxi_gpu_finish f = fxi_gpu_finish_of(s);
    const fxi_gpu_slices slices = {.sum = sum_type(&p),
                                   .n = p.slices,
                                   .length = fx_tensor_length(&s->out),
                                   .wide = is_wide(&p)};
    const int64_t work = fxi_gpu_slices_work(b, &slices);
    fxi_gpu_buffer(call, 2, FXI_GPU_WORK, work);
    fxi_gpu_slices_add(b, &slices, &f, work);
}
