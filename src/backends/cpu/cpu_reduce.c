/* cpu_reduce.c: reductions over any axes, and cumulative sums.
 *
 * The input's axes are split into kept and reduced ones, each collapsed to a walk. When the reduced
 * axes hold the smaller stride, results are made one by one, row after row of memory; else a tile
 * of up to 256 neighbouring results is kept in accumulators while the reduced axes are walked
 * ("columns"), so that memory is read in order either way. The order of additions depends on shapes
 * and strides only. Float32 accumulates in Float64. An empty reduction gives the neutral element.
 */
#include "cpu_program.h"
#include "cpu_simd.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

typedef struct reduction {
    const fxi_reducer *op;
    const void *in;
    char *out;
    size_t size; /* of an element */
    fxi_walk kept, reduced;
} reduction;

static void reduce_rows(reduction *r)
{
    int64_t n, stride;
    double acc; /* room for any accumulator */
    const int64_t results = fxi_walk_length(&r->kept), all = fxi_walk_length(&r->reduced);
    fxi_walk_pop(&r->reduced, &n, &stride);
    const int64_t rows = all ? fxi_walk_length(&r->reduced) : 0;
    for (int64_t i = 0; i < results; i++) {
        r->op->init(&acc, 1);
        for (int64_t k = 0; k < rows; k++) {
            const int64_t at = r->kept.offset + r->reduced.offset;
            r->op->row(fxi_at(r->in, at, r->size), n, stride, &acc);
            fxi_walk_next(&r->reduced);
        }
        r->op->done(&acc, 1, r->out);
        r->out += r->size;
        fxi_walk_next(&r->kept);
    }
}

static void reduce_columns(reduction *r)
{
    int64_t n, stride;
    double acc[FXI_TILE];
    fxi_walk_pop(&r->kept, &n, &stride);
    const int64_t outer = n ? fxi_walk_length(&r->kept) : 0, rows = fxi_walk_length(&r->reduced);
    for (int64_t i = 0; i < outer; i++) {
        for (int64_t j = 0; j < n; j += FXI_TILE) {
            const int64_t w = n - j < FXI_TILE ? n - j : FXI_TILE;
            r->op->init(acc, w);
            for (int64_t k = 0; k < rows; k++) {
                const int64_t at = r->kept.offset + r->reduced.offset + j * stride;
                r->op->col(fxi_at(r->in, at, r->size), w, stride, acc);
                fxi_walk_next(&r->reduced);
            }
            r->op->done(acc, w, r->out);
            r->out += w * (int64_t)r->size;
        }
        fxi_walk_next(&r->kept);
    }
}

/* Columns when neighbouring results lie closer together than neighbouring terms. */
static bool by_columns(const reduction *r)
{
    if (r->kept.nd == 0 || r->reduced.nd == 0)
        return r->kept.nd > 0;
    const int64_t k = r->kept.stride[0], s = r->reduced.stride[0];
    return (k < 0 ? -k : k) < (s < 0 ? -s : s) &&
           (r->kept.shape[0] >= 8 || r->reduced.shape[0] < 8);
}

/* ---- reductions of a program ----------------------------------------------------------------- */
/* The space as reduced × kept × reduced axes (each collapsed); the planner promises that it is so.
 */
typedef struct tiles {
    const fxi_reducer *op;
    char *acc;   /* one accumulator a result */
    size_t size; /* of an element */
    int64_t inner, kept;
} tiles;

static void split_space(const fxi_tensor *t, uint32_t mask, int64_t *inner, int64_t *kept)
{
    int k = 0;
    *inner = *kept = 1;
    for (; k < t->ndim && (t->shape[k] == 1 || FXI_AXIS_IN(mask, k)); k++)
        *inner *= t->shape[k];
    for (; k < t->ndim && (t->shape[k] == 1 || !FXI_AXIS_IN(mask, k)); k++)
        *kept *= t->shape[k];
}

/* Short rows come several to a tile. */
static void take_rows(void *user, const void *const *shown, int64_t at, int n)
{
    const tiles *t = user;
    const char *x = shown[0];
    for (int64_t done = 0, m; done < n; done += m, at += m) {
        const int64_t left = t->inner - at % t->inner;
        m = left < n - done ? left : n - done;
        t->op->row(x + done * (int64_t)t->size, m, 1,
                   t->acc + at / t->inner % t->kept * (int64_t)t->op->size);
    }
}

static void take_columns(void *user, const void *const *shown, int64_t at, int n)
{
    const tiles *t = user;
    const char *x = shown[0];
    for (int64_t done = 0, m; done < n; done += m, at += m) {
        const int64_t first = at % t->kept, left = t->kept - first;
        m = left < n - done ? left : n - done;
        t->op->col(x + done * (int64_t)t->size, m, 1, t->acc + first * (int64_t)t->op->size);
    }
}

fx_status fxi_cpu_reduce_prepare(fxi_step *step)
{
    if (step->ninstr == 0)
        return FX_OK;
    const fxi_program_spec spec = {.instr = step->program,
                                   .ninstr = step->ninstr,
                                   .nin = step->nin,
                                   .nout = 1,
                                   .in = step->in,
                                   .length = fxi_tensor_length(&step->space),
                                   .out = {(uint8_t)(step->nin + step->ninstr - 1)}};
    return fxi_program_make(&spec, &step->ready);
}

static fx_status reduce_program(const fxi_step *step, const void *const *in, void *out,
                                fxi_run *run)
{
    tiles t = {.op = &fxi_cpu_simd()->reduce[step->attr.i[0]][fxi_compute_type(step->out.dtype)],
               .size = fxi_cpu_size(step->out.dtype)};
    const int64_t results = fxi_tensor_length(&step->out);
    if (!t.op->size || !step->ready)
        return fxi_cpu_no_dtype(run, step, step->out.dtype);
    if (results == 0)
        return FX_OK;
    t.acc = fxi_aligned(64, (size_t)results * t.op->size);
    if (!t.acc)
        return fxi_cpu_no_memory(run, step);
    split_space(&step->space, (uint32_t)step->attr.i[1], &t.inner, &t.kept);
    t.op->init(t.acc, results);
    const bool columns = t.inner == 1 && t.kept > 1;
    const fxi_program_args args = {.in = in,
                                   .to = fxi_tensor_length(&step->space),
                                   .sink = columns ? take_columns : take_rows,
                                   .user = &t};
    fxi_program_run(step->ready, &args);
    t.op->done(t.acc, results, out);
    fxi_free(t.acc);
    return FX_OK;
}

fx_status fxi_cpu_reduce(const fxi_step *step, const void *const *in, void *out, fxi_run *run)
{
    if (step->ninstr > 0)
        return reduce_program(step, in, out, run);
    const fxi_tensor *t = &step->in[0];
    const uint32_t mask = (uint32_t)step->attr.i[1];
    if (t->dtype != step->out.dtype)
        return fxi_cpu_fail(run, FX_STATUS_INTERNAL, step, "element types differ");
    reduction r = {.op = &fxi_cpu_simd()->reduce[step->attr.i[0]][fxi_compute_type(t->dtype)],
                   .in = in[0],
                   .out = out,
                   .size = fxi_cpu_size(t->dtype)};
    if (!r.op->size)
        return fxi_cpu_no_dtype(run, step, t->dtype);
    if (fxi_tensor_length(&step->out) == 0)
        return FX_OK;
    fxi_walk_axes(&r.kept, t, mask, false);
    fxi_walk_axes(&r.reduced, t, mask, true);
    if (by_columns(&r))
        reduce_columns(&r);
    else
        reduce_rows(&r);
    return FX_OK;
}

/* ---- cumulative sums ------------------------------------------------------------------------- */
/* In place over inner × n: acc[i] is the running sum of element i of the inner axis. */
#define SCAN(NAME, T, A)                                                                           \
    static void NAME(void *data, int64_t inner, int64_t n, bool from_end)                          \
    {                                                                                              \
        A acc[FXI_TILE];                                                                           \
        for (int64_t i0 = 0; i0 < inner; i0 += FXI_TILE) {                                         \
            const int64_t w = inner - i0 < FXI_TILE ? inner - i0 : FXI_TILE;                       \
            memset(acc, 0, sizeof acc);                                                            \
            for (int64_t k = 0; k < n; k++) {                                                      \
                T *row = (T *)data + i0 + (from_end ? n - 1 - k : k) * inner;                      \
                for (int64_t i = 0; i < w; i++) {                                                  \
                    acc[i] = (A)(acc[i] + (A)row[i]);                                              \
                    row[i] = (T)acc[i];                                                            \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
SCAN(scan_f32, float, double)
SCAN(scan_f64, double, double)
SCAN(scan_i32, int32_t, uint32_t)
SCAN(scan_i64, int64_t, uint64_t)
SCAN(scan_u8, uint8_t, uint8_t)

fx_status fxi_cpu_cumsum(const fxi_step *step, const void *const *in, void *out, fxi_run *run)
{
    static void (*const scans[FXI_C_COUNT])(void *, int64_t, int64_t, bool) = {
        scan_f32, scan_f64, scan_i32, scan_i64, scan_u8, NULL};
    const fxi_tensor *t = &step->out;
    const int axis = (int)step->attr.i[0];
    const int64_t inner = fxi_length(axis, t->shape), n = t->shape[axis];
    const int64_t length = fxi_tensor_length(t);
    char *p = out;
    if (t->dtype >= FX_DTYPE_BOOL)
        return fxi_cpu_no_dtype(run, step, t->dtype);
    const fx_status status = fxi_cpu_copy(&step->in[0], in[0], out);
    if (status)
        return status;
    for (int64_t done = 0; done < length; done += inner * n)
        scans[t->dtype](p + done * (int64_t)fxi_cpu_size(t->dtype), inner, n, step->attr.i[1] != 0);
    return FX_OK;
}
