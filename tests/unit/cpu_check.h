/* cpu_check.h: what the tests of CPU kernels share: operands of every layout, steps built by hand,
 * and elements read one at a time as double, so that expected values are plain loops in the tests.
 *
 * Every test program runs its group once per instruction set that the machine has. Outputs are
 * surrounded by guard bytes.
 */
#ifndef CFLUX_CPU_CHECK_H
#define CFLUX_CPU_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cpu_simd.h"
#include "half.h"
#include "memory.h"
#include "system_memory.h"
#include "step.h"

enum { GUARD = 64 };

typedef enum layout { DENSE, REVERSED, GAPS, NEGATIVE, BROADCAST, LAYOUTS } layout;

typedef struct operand {
    fx_tensor t;
    char *memory;
    void *data; /* element 0 */
    int64_t bytes;
} operand;

static inline double load_element(int dtype, const void *p)
{
    union {
        float f32;
        double f64;
        int32_t i32;
        int64_t i64;
        uint8_t u8;
        uint16_t u16;
    } e;
    memcpy(&e, p, fxi_cpu_size(dtype));
    const double values[] = {(double)e.f32, e.f64, e.i32, (double)e.i64, e.u8, e.u8, 0, 0};
    if (dtype == FX_DTYPE_F16)
        return (double)fxi_f16_to_f32(e.u16);
    return dtype == FX_DTYPE_BF16 ? (double)fxi_bf16_to_f32(e.u16) : values[dtype];
}

/* v must be representable. */
static inline void store_element(int dtype, void *p, double v)
{
    const float f = (float)v;
    const int64_t i = v > -9e18 && v < 9e18 ? (int64_t)v : 0;
    const int32_t i32 = (int32_t)i;
    const uint8_t u8 = dtype == FX_DTYPE_BOOL ? v != 0 : (uint8_t)i;
    const uint16_t half = dtype == FX_DTYPE_F16 ? fxi_f32_to_f16(f) : fxi_f32_to_bf16(f);
    const void *const from[] = {&f, &v, &i32, &i, &u8, &u8, &half, &half};
    memcpy(p, from[dtype], fxi_cpu_size(dtype));
}

/* Offset of element `linear` in the order of the shape. */
static inline int64_t offset_of(const fx_tensor *t, int64_t linear)
{
    int64_t at = 0;
    for (int d = 0; d < t->ndim; d++) {
        at += linear % t->shape[d] * t->stride[d];
        linear /= t->shape[d];
    }
    return at;
}

static inline double element(const operand *o, int64_t linear)
{
    return load_element(o->t.dtype, (char *)o->data + offset_of(&o->t, linear) *
                                                          (int64_t)fxi_cpu_size(o->t.dtype));
}

static inline double element4(const operand *o, int64_t i, int64_t j, int64_t k, int64_t l)
{
    const int64_t at = i * o->t.stride[0] + (o->t.ndim > 1 ? j * o->t.stride[1] : 0) +
                       (o->t.ndim > 2 ? k * o->t.stride[2] : 0) +
                       (o->t.ndim > 3 ? l * o->t.stride[3] : 0);
    return load_element(o->t.dtype, (char *)o->data + at * (int64_t)fxi_cpu_size(o->t.dtype));
}

static inline uint32_t next_random(void)
{
    static uint64_t state = 0x9E3779B97F4A7C15u;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

/* Small numbers that every type holds exactly: −4 … 4 in eighths for floats, whole for integers. */
static inline double small_number(int dtype)
{
    const double v = (double)((int)(next_random() % 65) - 32);
    if (dtype == FX_DTYPE_BOOL)
        return v > 0;
    if (dtype == FX_DTYPE_U8)
        return fabs(v);
    return dtype == FX_DTYPE_I32 || dtype == FX_DTYPE_I64 ? v : v / 8;
}

static inline operand make_operand(int dtype, layout l, int ndim, const int64_t *shape)
{
    operand o = {.t = {.dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim}};
    int64_t step = 1, first = 0;
    if (ndim > 0)
        memcpy(o.t.shape, shape, (size_t)ndim * sizeof *shape);
    for (int k = 0; k < ndim; k++) {
        const int d = l == REVERSED ? ndim - 1 - k : k;
        const bool still = l == BROADCAST && d == ndim - 1 && ndim > 1;
        o.t.stride[d] = still ? 0 : step * (l == GAPS ? 2 : 1);
        if (l == NEGATIVE && d == 0 && shape[0] > 0) {
            first = (shape[0] - 1) * o.t.stride[0];
            o.t.stride[0] = -o.t.stride[0];
        }
        step *= still ? 1 : shape[d] * (l == GAPS ? 2 : 1);
    }
    const int64_t size = (int64_t)fxi_cpu_size(dtype);
    o.bytes = step * size;
    o.memory = malloc((size_t)o.bytes + 2 * GUARD);
    assert_non_null(o.memory);
    memset(o.memory, 0x5A, (size_t)o.bytes + 2 * GUARD);
    o.data = o.memory + GUARD + first * size;
    for (int64_t k = 0; k < step; k++)
        store_element(dtype, o.memory + GUARD + k * size, small_number(dtype));
    return o;
}

#define SHAPE(...)                                                                                 \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static inline operand scalar_operand(int dtype, double v)
{
    operand o = make_operand(dtype, DENSE, 0, (const int64_t[]){1});
    store_element(dtype, o.data, v);
    return o;
}

static inline int64_t length_of(const operand *o)
{
    return fx_tensor_length(&o->t);
}

static inline void set_element(operand *o, int64_t linear, double v)
{
    store_element(o->t.dtype,
                  (char *)o->data + offset_of(&o->t, linear) * (int64_t)fxi_cpu_size(o->t.dtype),
                  v);
}

static inline void check_guards(const operand *o)
{
    for (int k = 0; k < GUARD; k++) {
        assert_int_equal((unsigned char)o->memory[k], 0x5A);
        assert_int_equal((unsigned char)o->memory[GUARD + o->bytes + k], 0x5A);
    }
}

static inline void drop_operand(operand *o)
{
    check_guards(o);
    free(o->memory);
}

/* Gives o the memory order of channels last: channels, the spatial axes, the batch. */
static inline void lay_last(operand *o)
{
    const int n = o->t.ndim;
    int64_t step = o->t.shape[n - 2];
    o->t.stride[n - 2] = 1;
    for (int d = 0; d < n; d++)
        if (d != n - 2) {
            o->t.stride[d] = step;
            step *= o->t.shape[d];
        }
}

typedef struct step_run {
    fx_step step;
    fx_tensor in[8];
    const void *ptr[8];
    fx_run run;
    fx_status status;
    fx_error error; /* the recorded error */
} step_run;

/* Makes a step ready, runs it once and releases it. */
static inline fx_status run_once(fx_step *step, const void *const *in, void *out, fx_run *run)
{
    fx_status status = fxi_cpu_prepare_step(step);
    run->work = step->work_bytes ? fxi_system_alloc(64, (size_t)step->work_bytes) : NULL;
    if (run->work)
        memset(run->work, 0xFF, (size_t)step->work_bytes); /* NaN */
    if (!status || status == FX_STATUS_UNSUPPORTED)        /* the error shows when the step runs */
        status = fxi_cpu_run_step(step, in, out, run);
    fxi_system_free(run->work, true);
    run->work = NULL;
    fxi_cpu_release_step(step);
    return status;
}

static inline step_run run_step_laid(fx_op op, fx_class cls, fx_attr attr, int nin,
                                     const operand *const *in, operand *out, bool channels_last)
{
    step_run b = {.step = {.op = (uint8_t)op, .cls = (uint8_t)cls, .nin = nin, .out = out->t}};
    fxi_step_set_attr(&b.step, &attr);
    if (channels_last)
        *(op == FX_OP_CONV ? &b.step.as.conv.channels_last : &b.step.as.pool.channels_last) = true;
    for (int k = 0; k < nin; k++) {
        b.in[k] = in[k]->t;
        b.ptr[k] = in[k]->data;
    }
    b.step.in = b.in;
    b.status = run_once(&b.step, b.ptr, out->data, &b.run);
    b.error = fx_error_take();
    b.step.in = NULL;
    check_guards(out);
    return b;
}

/* Runs a step over operands; `out` must be dense. */
static inline step_run run_step(fx_op op, fx_class cls, fx_attr attr, int nin,
                                const operand *const *in, operand *out)
{
    return run_step_laid(op, cls, attr, nin, in, out, false);
}

/* |got − want| ≤ rel·|want| + abs, with NaN and Inf alike. */
static inline void check_close(double got, double want, double rel, double abs_tol)
{
    if (isnan(want) ? isnan(got) : got == want)
        return;
    if (!(fabs(got - want) <= rel * fabs(want) + abs_tol))
        fail_msg("got %.17g, want %.17g (%s)", got, want, fxi_cpu_simd()->name);
}

/* Tolerance of one rounding in a type. */
static inline double epsilon_of(int dtype)
{
    static const double eps[] = {0x1p-23, 0x1p-52, 0, 0, 0, 0, 0x1p-10, 0x1p-7};
    return eps[dtype];
}

/* Runs a group once for every instruction set. */
#define RUN_ON_EVERY_ISA(tests)                                                                    \
    static int run_on_every_isa(void)                                                              \
    {                                                                                              \
        static const char *const names[] = {"base", "avx2", "avx512"};                             \
        int failed = 0;                                                                            \
        for (int k = 0; k < 3; k++) {                                                              \
            if (fxi_cpu_simd_choose(names[k]))                                                     \
                failed += cmocka_run_group_tests_name(names[k], tests, NULL, NULL);                \
            else                                                                                   \
                print_message("skipped: no %s on this machine\n", names[k]);                       \
        }                                                                                          \
        return failed;                                                                             \
    }                                                                                              \
    int main(void)                                                                                 \
    {                                                                                              \
        return run_on_every_isa();                                                                 \
    }

#endif
