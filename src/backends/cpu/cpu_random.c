/* cpu_random.c: the generators: uniform random numbers, and the index along an axis.
 *
 * Random numbers are counter-based (philox.h): an element depends on the step's seed and counter
 * and on its index only, so any division between threads gives the same bits. 16-bit floats use as
 * many random bits as they can represent below 1 (11 and 8), so that no value rounds up to 1.
 */
#include "cpu_kernels.h"
#include "half.h"
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include <string.h>

/* 16-bit floats are computed in tiles of Float32. */
static void random_half(const uint64_t stream[2], int64_t from, int64_t to, int dtype,
                        uint16_t *out)
{
    const fxi_simd *simd = fxi_cpu_simd();
    const bool bf16 = dtype == FX_DTYPE_BF16;
    float tile[FXI_TILE];
    for (int64_t i = from; i < to; i += FXI_TILE) {
        const int64_t n = to - i < FXI_TILE ? to - i : FXI_TILE;
        const void *const in[] = {tile};
        simd->random->f32(stream, (uint64_t)i / 4, n, bf16 ? 8 : 11, tile);
        simd->store[bf16](out + i, in, (int)n, 0);
    }
}

/* One step's numbers, which the parts share. */
typedef struct randoms {
    const uint64_t *stream; /* seed and counter */
    int64_t n, parts;
    int dtype;
    void *out;
} randoms;

/* Philox makes 128 bits for each counter: four Float32, or two Float64. Parts begin at whole blocks
 * of four elements, so that no block of Philox is computed twice. 24 of 32 bits become a Float32,
 * because its mantissa has no more: the number is exact and below 1. */
static void random_part(void *user, int64_t part)
{
    const randoms *r = user;
    int64_t from, to;
    fxi_cpu_range((r->n + 3) / 4, r->parts, part, &from, &to);
    from *= 4;
    to = 4 * to < r->n ? 4 * to : r->n;
    const fxi_random_core *core = fxi_cpu_simd()->random;
    if (r->dtype == FX_DTYPE_F32)
        core->f32(r->stream, (uint64_t)from / 4, to - from, 24, (float *)r->out + from);
    else if (r->dtype == FX_DTYPE_F64)
        core->f64(r->stream, (uint64_t)from / 2, to - from, (double *)r->out + from);
    else
        random_half(r->stream, from, to, r->dtype, r->out);
}

static fx_status run_random(const fx_step *step, void *out, fx_run *run)
{
    /* Time of an element with the slowest instruction set. */
    static const double NANOSECONDS = 1;
    const int64_t n = fx_tensor_length(&step->out);
    const int dtype = step->out.dtype;
    if (dtype != FX_DTYPE_F32 && dtype != FX_DTYPE_F64 && !fxi_cpu_is_half(dtype))
        return fxi_cpu_no_dtype(step, dtype);
    /* The step has only the number of its stream; seed and counter belong to the run. */
    randoms r = {.stream = run->streams[fx_step_generator(step)->stream],
                 .n = n,
                 .dtype = dtype,
                 .out = out};
    r.parts = fxi_cpu_parts((n + 3) / 4, NANOSECONDS * (double)n);
    fxi_cpu_parallel(r.parts, random_part, &r);
    return FX_OK;
}

/* Writes the number v in an element type. Iota counts in int64_t and rounds each number once, so a
 * long Float32 range has no error that adds up. */
static void encode(int64_t v, int dtype, void *out)
{
    const union {
        float f32;
        double f64;
        int32_t i32;
        int64_t i64;
        uint8_t u8;
        uint16_t u16;
    } e[FX_DTYPE_COUNT] = {
        [FX_DTYPE_F32] = {.f32 = (float)v},
        [FX_DTYPE_F64] = {.f64 = (double)v},
        [FX_DTYPE_I32] = {.i32 = (int32_t)v},
        [FX_DTYPE_I64] = {.i64 = v},
        [FX_DTYPE_U8] = {.u8 = (uint8_t)v},
        [FX_DTYPE_BOOL] = {.u8 = v != 0},
        /* To 16 bits in one rounding (half.h). */
        [FX_DTYPE_F16] = {.u16 = fxi_f32_to_f16(fxi_i64_to_odd(v))},
        [FX_DTYPE_BF16] = {.u16 = fxi_f32_to_bf16(fxi_i64_to_odd(v))},
    };
    memcpy(out, &e[dtype], fxi_cpu_size(dtype));
}

/* Writes the first inner×axis block value by value, then copies it to the others. */
static fx_status run_iota(const fx_step *step, void *out)
{
    const fx_tensor *t = &step->out;
    const int axis = fx_step_generator(step)->axis;
    const size_t size = fxi_cpu_size(t->dtype);
    const size_t inner = (size_t)fxi_length(axis, t->shape) * size;
    const size_t row = inner * (size_t)t->shape[axis];
    const size_t total = (size_t)fx_tensor_length(t) * size;
    char *p = out;
    /* If another axis is empty, nothing may be written. */
    for (int64_t v = 0; v < t->shape[axis] && total > 0; v++) {
        char *start = p;
        encode(v, t->dtype, p);
        /* All elements of the inner axes at one index are equal. */
        for (p += size; p < start + inner; p += size)
            memcpy(p, start, size);
    }
    /* One block is written, and all outer indices repeat it. */
    for (size_t done = row; done < total; done += row)
        memcpy((char *)out + done, out, row);
    return FX_OK;
}

fx_status fxi_cpu_generate(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)in;
    return step->op == FX_OP_RANDOM ? run_random(step, out, run) : run_iota(step, out);
}
