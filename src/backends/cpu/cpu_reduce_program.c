/* cpu_reduce_program.c: reductions whose terms are computed by a program instead of being read.
 *
 * The reducer reads the program's tiles while they are in the cache. The planner guarantees that
 * the axes of the terms are, in this order, inner, kept and outer ones. The inner and the outer
 * axes are reduced. Each group is collapsed to one axis, which may have size 1.
 *
 * Threads share the results if there are enough of them, else the terms: each piece of the terms
 * has accumulators of its own, which are merged in order. The division depends on shapes and on the
 * program only, and so do the bits of the result.
 *
 * 16-bit terms are rounded by the program and summed in Float32's accumulators, like those of a
 * reduction without a program; the result is rounded once.
 */
#include "cpu_parallel.h"
#include "cpu_program.h"
#include "cpu_simd.h"
#include "memory.h"

enum {
    FEW = 16,  /* if there are fewer items of results, their terms are divided */
    RUN = 1024 /* elements that repay starting the program once more */
};

typedef struct reduction {
    const fxi_reducer *op;
    const fxi_program *program;
    const void *const *in;
    char *out;
    size_t size, out_size; /* of an element as the reducer reads it, and of a result in memory */
    fxi_tile_fn load;      /* converts 16-bit terms to Float32; NULL: no conversion */
    fxi_tile_fn store;     /* converts a Float32 result to 16 bits; NULL: no conversion */
    int64_t inner, kept, outer;
    int64_t pieces, parts; /* pieces of the terms; if there is only one, parts of the results */
    char *acc;             /* [piece][result] */
} reduction;

/* The accumulators to which the tiles of one run are added. */
typedef struct tiles {
    const reduction *r;
    char *acc; /* of result 0 */
} tiles;

/* The terms of a tile as the reducer reads them. */
static const char *terms_of(const reduction *r, const void *const *shown, int n, float *wide)
{
    if (!r->load)
        return shown[0];
    r->load(wide, shown, n, 0);
    return (const char *)wide;
}

/* A tile may hold several short rows, and a long row several tiles. */
static void take_rows(void *user, const void *const *shown, int64_t at, int n)
{
    const tiles *t = user;
    const reduction *r = t->r;
    float wide[FXI_TILE];
    const char *x = terms_of(r, shown, n, wide);
    for (int64_t done = 0, m; done < n; done += m, at += m) {
        const int64_t left = r->inner - at % r->inner;
        m = left < n - done ? left : n - done;
        /* The remainder, because each position of the outer axes adds to the same results. */
        r->op->row(x + done * (int64_t)r->size, m, 1,
                   t->acc + at / r->inner % r->kept * (int64_t)r->op->size);
    }
}

/* Each element of the tile is the next term of another result. */
static void take_columns(void *user, const void *const *shown, int64_t at, int n)
{
    const tiles *t = user;
    const reduction *r = t->r;
    float wide[FXI_TILE];
    const char *x = terms_of(r, shown, n, wide);
    for (int64_t done = 0, m; done < n; done += m, at += m) {
        const int64_t first = at % r->kept, left = r->kept - first;
        /* All whole rows of results are folded by one call, as a row may be short. */
        const int64_t rows = first == 0 && n - done > r->kept ? (n - done) / r->kept : 1;
        m = rows > 1 ? r->kept : left < n - done ? left : n - done;
        r->op->col(x + done * (int64_t)r->size, m, 1, rows, m,
                   t->acc + first * (int64_t)r->op->size);
        m *= rows;
    }
}

static char *accumulator(const reduction *r, int64_t piece, int64_t result)
{
    return r->acc + (piece * r->kept + result) * (int64_t)r->op->size;
}

static void run_terms(const reduction *r, char *acc, int64_t from, int64_t to)
{
    /* Without inner reduced axes, neighbouring elements are terms of different results. */
    const bool columns = r->inner == 1 && r->kept > 1;
    tiles t = {r, acc};
    const fxi_program_args args = {.in = r->in,
                                   .from = from,
                                   .to = to,
                                   .sink = columns ? take_columns : take_rows,
                                   .user = &t};
    fxi_program_run(r->program, &args);
}

/* Writes n results from result `first` on. */
static void finish(const reduction *r, int64_t first, int64_t n)
{
    char *out = r->out + first * (int64_t)r->out_size;
    const char *acc = accumulator(r, 0, first);
    if (!r->store) {
        r->op->done(acc, n, out);
        return;
    }
    float wide[FXI_TILE];
    const void *const from[] = {wide};
    for (int64_t m; n > 0;
         n -= m, acc += m * (int64_t)r->op->size, out += m * (int64_t)r->out_size) {
        m = n < FXI_TILE ? n : FXI_TILE;
        r->op->done(acc, m, wide);
        r->store(out, from, (int)m, 0);
    }
}

/* Computes one part of the results completely. If outer axes are reduced, its terms are one range
 * of elements for each of their positions. */
static void reduce_results(void *user, int64_t part)
{
    const reduction *r = user;
    int64_t from, to;
    fxi_cpu_range(r->kept, r->parts, part, &from, &to);
    r->op->init(accumulator(r, 0, from), to - from);
    for (int64_t k = 0; k < r->outer && r->parts > 1; k++)
        run_terms(r, r->acc, (k * r->kept + from) * r->inner, (k * r->kept + to) * r->inner);
    if (r->parts == 1)
        run_terms(r, r->acc, 0, r->inner * r->kept * r->outer);
    finish(r, from, to - from);
}

/* Adds one piece of the terms to its own accumulators. */
static void reduce_piece(void *user, int64_t piece)
{
    const reduction *r = user;
    const int64_t length = r->inner * r->kept * r->outer;
    int64_t from, to;
    /* In whole tiles, so that only the last piece has a shorter one. */
    fxi_cpu_range((length + FXI_TILE - 1) / FXI_TILE, r->pieces, piece, &from, &to);
    from *= FXI_TILE;
    to = to * FXI_TILE < length ? to * FXI_TILE : length;
    r->op->init(accumulator(r, piece, 0), r->kept);
    run_terms(r, accumulator(r, piece, 0), from, to);
}

static void split_space(reduction *r, const fx_tensor *t, uint32_t mask)
{
    int k = 0;
    r->inner = r->kept = r->outer = 1;
    /* An axis of size 1 fits in any group. */
    for (; k < t->ndim && (t->shape[k] == 1 || FXI_AXIS_IN(mask, k)); k++)
        r->inner *= t->shape[k];
    for (; k < t->ndim && (t->shape[k] == 1 || !FXI_AXIS_IN(mask, k)); k++)
        r->kept *= t->shape[k];
    for (; k < t->ndim; k++)
        r->outer *= t->shape[k];
}

/* Divides the results if they make at least FEW items. If outer axes are reduced, the program
 * starts once for each of their positions, so an item then has at least RUN elements. Otherwise
 * divides the terms, in pieces that are at least eight times as large as their accumulators: one
 * thread merges these. */
static void divide(reduction *r)
{
    const int64_t block = r->inner * r->kept, length = block * r->outer,
                  most = r->outer == 1 ? r->kept : block / RUN,
                  items = most < r->kept ? most : r->kept,
                  least = 8 * r->kept > 4 * RUN ? 8 * r->kept : 4 * RUN;
    const double cost = fxi_program_cost(r->program) * (double)length;
    r->pieces = r->parts = 1;
    if (items >= FEW)
        r->parts = fxi_cpu_parts(items, cost);
    else
        r->pieces = fxi_cpu_parts(length / least < 2 * FEW ? length / least : 2 * FEW, cost);
}

/* The last instruction of the program computes the terms. */
fx_status fxi_cpu_reduce_program_prepare(fx_step *step)
{
    const fx_reduce_step *r = fx_step_reduce(step);
    const fxi_program_spec spec = {.program = r->program,
                                   .nin = step->nin,
                                   .nout = 1,
                                   .in = step->in,
                                   .length = fx_tensor_length(&r->space),
                                   .out = {(uint8_t)(step->nin + r->program.n - 1)}};
    return fxi_program_make(&spec, &step->ready);
}

fx_status fxi_cpu_reduce_program(const fx_step *step, const void *const *in, void *out)
{
    const fx_reduce_step *own = fx_step_reduce(step);
    const int dtype = own->program.instr[own->program.n - 1].dtype;
    const bool half = fxi_cpu_is_half(dtype), bfloat = dtype == FX_DTYPE_BF16;
    reduction r = {.op = fxi_cpu_reducer(own->fold, dtype, step->out.dtype),
                   .program = step->ready,
                   .in = in,
                   .out = out,
                   .size = half ? sizeof(float) : fxi_cpu_size(dtype),
                   .out_size = fxi_cpu_size(step->out.dtype),
                   .load = half ? fxi_cpu_simd()->load[bfloat] : NULL,
                   .store = half ? fxi_cpu_simd()->store[bfloat] : NULL};
    /* The type has no such reduction, or an instruction has no loop. */
    if (!r.op->size || !r.program)
        return fxi_cpu_no_dtype(step, step->out.dtype);
    split_space(&r, &own->space, own->mask);
    if (r.kept == 0)
        return FX_OK;
    divide(&r);
    /* All accumulators at once: if outer axes are reduced, every result gets terms until the end.
     */
    r.acc = fxi_aligned(64, (size_t)(r.pieces * r.kept) * r.op->size);
    if (!r.acc)
        return fxi_cpu_no_memory(step);
    if (r.pieces > 1) {
        fxi_cpu_parallel(r.pieces, reduce_piece, &r);
        /* In the order of the pieces, whichever thread was first. */
        for (int64_t k = 1; k < r.pieces; k++)
            r.op->merge(accumulator(&r, 0, 0), accumulator(&r, k, 0), r.kept);
        finish(&r, 0, r.kept);
    } else {
        fxi_cpu_parallel(r.parts, reduce_results, &r);
    }
    fxi_free(r.acc);
    return FX_OK;
}
