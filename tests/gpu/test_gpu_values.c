/* test_gpu_values.c: runs GPU kernels as C on the CPU (gpu_host.h) and compares the results with
 * the CPU backend, for every step of gpu_steps.h. An unreadable page follows every operand and
 * output. The bytes around an output must stay unchanged. Every step runs twice: with operands that
 * end at that page, and with operands that are aligned as those of devices are.
 *
 * ctest: full native timeout=600 */
#include "gpu_host.h"
#include "gpu_steps.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#include "backends.h"
#include "half.h"
#include "temp_file.h"

static const uint8_t sizes[FX_DTYPE_COUNT] = {
    [FX_DTYPE_F32] = 4, [FX_DTYPE_F64] = 8,  [FX_DTYPE_I32] = 4, [FX_DTYPE_I64] = 8,
    [FX_DTYPE_U8] = 1,  [FX_DTYPE_BOOL] = 1, [FX_DTYPE_F16] = 2, [FX_DTYPE_BF16] = 2};

static bool is_real(int dtype)
{
    return dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F64 || dtype == FX_DTYPE_F16 ||
           dtype == FX_DTYPE_BF16;
}

/* ---- memory ---------------------------------------------------------------------------------- */
enum { MARK = 0xa5, MARGIN = 64, BUFFERS = 128 };
static size_t alignment = 1; /* of all buffers, in bytes */
typedef struct buffer {
    char *map, *data;
    size_t mapped, bytes;
} buffer;

/* Allocates bytes that end at an unreadable page, or up to an alignment before it, with a margin
 * before them. Some operands span more than the machine's memory; pages that are never touched take
 * none. */
static buffer make_buffer(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE),
                 pages = (bytes + MARGIN + page - 1) / page * page;
    buffer b = {.mapped = pages + page, .bytes = bytes};
    b.map = mmap(NULL, b.mapped, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(b.map, MAP_FAILED);
    assert_int_equal(mprotect(b.map + pages, page, PROT_NONE), 0);
    b.data = b.map + (pages - bytes) / alignment * alignment;
    return b;
}

static bool marks_stand(const buffer *b)
{
    const char *end = b->map + b->mapped - (size_t)sysconf(_SC_PAGESIZE);
    for (const char *p = b->map; p < end; p = p + 1 == b->data ? b->data + b->bytes : p + 1)
        if ((uint8_t)*p != MARK)
            return false;
    return true;
}

/* ---- values ---------------------------------------------------------------------------------- */
static uint64_t state = 1;
static double uniform(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state >> 11) * 0x1p-53;
}

static void put(int dtype, char *p, double v)
{
    const float f = (float)v;
    const int64_t i = (int64_t)(v == v && fabs(v) < 1e9 ? v : 0);
    const int32_t i32 = (int32_t)i;
    const uint8_t u8 = dtype == FX_DTYPE_BOOL ? (i & 1) : (uint8_t)i;
    const uint16_t half = dtype == FX_DTYPE_F16 ? fxi_f32_to_f16(f) : fxi_f32_to_bf16(f);
    const void *const from[FX_DTYPE_COUNT] = {
        [FX_DTYPE_F32] = &f,    [FX_DTYPE_F64] = &v,    [FX_DTYPE_I32] = &i32,
        [FX_DTYPE_I64] = &i,    [FX_DTYPE_U8] = &u8,    [FX_DTYPE_BOOL] = &u8,
        [FX_DTYPE_F16] = &half, [FX_DTYPE_BF16] = &half};
    memcpy(p, from[dtype], sizes[dtype]);
}

static double get(int dtype, const char *p)
{
    union {
        float f32;
        double f64;
        int32_t i32;
        int64_t i64;
        uint8_t u8;
        uint16_t u16;
    } e;
    memcpy(&e, p, sizes[dtype]);
    switch (dtype) {
    case FX_DTYPE_F32:
        return (double)e.f32;
    case FX_DTYPE_F64:
        return e.f64;
    case FX_DTYPE_I32:
        return e.i32;
    case FX_DTYPE_I64:
        return (double)e.i64;
    case FX_DTYPE_F16:
        return (double)fxi_f16_to_f32(e.u16);
    case FX_DTYPE_BF16:
        return (double)fxi_bf16_to_f32(e.u16);
    default:
        return e.u8;
    }
}

static double value(const gpu_case *c, int k, int dtype)
{
    static const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.0, 3e9, -3e20};
    if (c->index_size && k == 1)
        return floor(uniform() * (double)c->index_size);
    if (c->specials && uniform() < 0.1)
        return special[(int)(uniform() * 8)];
    if (!is_real(dtype))
        return floor(uniform() * 9) - (dtype == FX_DTYPE_U8 || dtype == FX_DTYPE_BOOL ? 0 : 4);
    return k == 0 ? 0.05 + 1.5 * uniform() : 4 * uniform() - 2;
}

/* ---- a step on both sides: 0: GPU kernels, 1: the CPU backend -------------------------------- */
typedef struct operands {
    buffer in[BUFFERS], out[2][BUFFERS], work[2];
    const void *at[BUFFERS];
    void *to[2][BUFFERS];
    int nout;
} operands;

static int output_dtype(const gpu_case *c, int k)
{
    const fx_step *s = &c->step;
    const fx_more_outputs *more = fx_step_more(s);
    const int nin = s->nin / fx_step_segments(s), j = k % (1 + more->n);
    return j == 0 ? s->out.dtype : c->program[more->reg[j - 1] - nin].dtype;
}

static int64_t output_length(const gpu_case *c, int k)
{
    const fx_step *s = &c->step;
    if (s->cls == FX_CLASS_FOREACH)
        return c->segments[k / (1 + fx_step_more(s)->n)].length;
    if (s->cls != FX_CLASS_ROW)
        return fx_tensor_length(&s->out);
    const fx_row_step *row = fx_step_row(s);
    const int reg = k == 0 ? row->out_reg : row->more.reg[k - 1];
    int64_t n = fx_tensor_length(&row->space);
    for (int d = 0; d < row->space.ndim && c->program[reg - s->nin].row; d++)
        n /= fx_row_has_axis(row, d) ? row->space.shape[d] : 1;
    return n;
}

static void make_input(operands *o, const gpu_case *c, int k)
{
    const fx_tensor *t = &c->in[k];
    int64_t low = 0, high = 0;
    for (int d = 0; d < t->ndim; d++) {
        const int64_t reach = t->stride[d] * (t->shape[d] - 1);
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
    }
    const bool empty = fx_tensor_length(t) == 0;
    const int64_t n = empty ? 0 : high - low + 1;
    o->in[k] = make_buffer((size_t)n * sizes[t->dtype]);
    o->at[k] = o->in[k].data - (empty ? 0 : low) * sizes[t->dtype];
    for (int64_t i = 0; i < fx_tensor_length(t); i++) {
        int64_t at = 0, rest = i;
        for (int d = 0; d < t->ndim; rest /= t->shape[d++])
            at += rest % t->shape[d] * t->stride[d];
        const bool counted =
            c->step.cls == FX_CLASS_ROW && (fx_step_row(&c->step)->counted >> k & 1);
        const bool infinite = c->infinite && k == 1 && i == 0;
        put(t->dtype, (char *)(uintptr_t)o->at[k] + at * sizes[t->dtype],
            counted    ? (double)at
            : infinite ? INFINITY
                       : value(c, k, t->dtype));
    }
}

/* The first operand with the same memory. */
static int same_input(const gpu_case *c, int k)
{
    for (int j = 0; j < k && c->step.cls == FX_CLASS_FOREACH; j++)
        if (c->in_value[j] == c->in_value[k])
            return j;
    return k;
}

static void make_operands(operands *o, const gpu_case *c)
{
    memset(o, 0, sizeof *o);
    for (int k = 0; k < c->step.nin; k++) {
        const int same = same_input(c, k);
        if (same < k)
            o->at[k] = o->at[same];
        else
            make_input(o, c, k);
    }
    o->nout = fx_step_outputs(&c->step);
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < o->nout; k++) {
            o->out[side][k] = make_buffer((size_t)output_length(c, k) * sizes[output_dtype(c, k)]);
            o->to[side][k] = o->out[side][k].data;
            memset(o->out[side][k].map, MARK,
                   o->out[side][k].mapped - (size_t)sysconf(_SC_PAGESIZE));
        }
}

static void free_buffer(buffer *b)
{
    if (b->map)
        munmap(b->map, b->mapped);
}

static void free_operands(operands *o)
{
    for (int k = 0; k < BUFFERS; k++)
        free_buffer(&o->in[k]);
    for (int side = 0; side < 2; side++) {
        free_buffer(&o->work[side]);
        for (int k = 0; k < BUFFERS; k++)
            free_buffer(&o->out[side][k]);
    }
}

/* Prepares a run. The work space holds arbitrary bytes and ends at an unreadable page. */
static void begin_run(fx_run *run, operands *o, const fx_step *step, int side)
{
    static const uint64_t streams[][2] = {{1, 2}, {0x123456789abcdef0, 0xfedcba9876543210}};
    *run = (fx_run){.streams = streams, .outputs = o->to[side]};
    if (step->work_bytes > 0) {
        o->work[side] = make_buffer((size_t)step->work_bytes);
        run->work = memset(o->work[side].data, 0x5a, (size_t)step->work_bytes);
    }
    for (int k = 1; k < o->nout && k <= FX_MORE_OUTPUTS; k++)
        run->more[k - 1] = o->to[side][k];
}

static bool close_to(const gpu_case *c, int dtype, double a, double b)
{
    static const double relative[FX_DTYPE_COUNT] = {[FX_DTYPE_F32] = 4e-6,
                                                    [FX_DTYPE_F64] = 1e-12,
                                                    [FX_DTYPE_F16] = 1e-3,
                                                    [FX_DTYPE_BF16] = 8e-3};
    if ((isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b)))
        return true;
    if (a == b && !c->exact)
        return true;
    return !c->exact && fabs(a - b) <= relative[dtype] * fmax(fabs(b), fmax(c->scale, 0.1));
}

typedef struct tally {
    const char *only;
    int cases, elements, failures, works;
} tally;

static void compare(tally *t, const gpu_case *c, operands *o)
{
    for (int k = 0; k < o->nout; k++) {
        const int dtype = output_dtype(c, k);
        const int64_t n = output_length(c, k);
        bool same = marks_stand(&o->out[0][k]);
        if (!same)
            print_message("%s: wrote outside of output %d\n", c->name, k);
        for (int64_t i = 0; i < n && same; i++) {
            const double a = get(dtype, o->out[0][k].data + i * sizes[dtype]),
                         b = get(dtype, o->out[1][k].data + i * sizes[dtype]);
            same = close_to(c, dtype, a, b);
            if (!same)
                print_message("%s: element %d of output %d is %.9g, expected %.9g\n", c->name,
                              (int)i, k, a, b);
        }
        t->failures += !same;
        t->elements += (int)n;
    }
}

static void check_once(void *user, const gpu_case *c)
{
    tally *t = user;
    operands o;
    fx_run run;
    fx_step here = c->step, there = c->step;
    if (c->too_large || (t->only && !strstr(c->name, t->only)))
        return;
    make_operands(&o, c);
    assert_int_equal(fxi_cpu_backend.prepare(NULL, &there), FX_OK);
    begin_run(&run, &o, &there, 1);
    assert_int_equal(fxi_cpu_backend.run(NULL, &there, o.at, o.to[1][0], &run), FX_OK);
    fxi_cpu_backend.release(NULL, &there);
    if (fxi_gpu_prepare(&gpu_host_runtime, &gpu_host_device, &here)) {
        print_message("%s: %s\n", c->name, gpu_host_error);
        t->failures++;
    } else {
        begin_run(&run, &o, &here, 0);
        assert_int_equal(
            fxi_gpu_run(&gpu_host_runtime, &gpu_host_device, &here, o.at, o.to[0][0], &run), FX_OK);
        compare(t, c, &o);
        t->works += here.work_bytes > 0;
        fxi_gpu_release(&gpu_host_runtime, &gpu_host_device, &here);
    }
    free_operands(&o);
    t->cases++;
}

static void check(void *user, const gpu_case *c)
{
    static const size_t alignments[] = {1, 64};
    for (int k = 0; k < 2; k++) {
        alignment = alignments[k];
        check_once(user, c);
    }
}

static void test_steps(void **unused)
{
    tally t = {.only = getenv("GPU_CASE")};
    (void)unused;
    if (!gpu_host_works()) {
        print_message("skipped: there is no C compiler to run kernels with\n");
        return;
    }
    const int visited = gpu_visit(check, &t);
    print_message("%d steps of %d, %d kernels, %d launches, %d elements, %d with work space\n",
                  t.cases, visited, gpu_host_kernels, gpu_host_launches, t.elements, t.works);
    assert_int_equal(t.failures, 0);
    assert_int_equal(gpu_host_divergent, 0);
    assert_int_equal(gpu_host_faults[0], 0);
    assert_true(t.only || (t.cases >= 1480 && gpu_host_kernels >= 440 && t.works >= 80));
}

/* Devices with wider or narrower warps and vectors get the same results. Tests the kinds of steps
 * whose texts depend on these widths. */
static void test_widths(void **unused)
{
    static const struct {
        int32_t warp, vector_bytes;
    } widths[] = {{64, 32}, {8, 8}};
    static const char *const kinds[] = {
        "move.f32",           "conv.weight.3d.type0", "conv.forward.channels", "reduce.0.f32.1d",
        "reduce.program.f32", "rows.softmax.f32",     "rows.two_sums"};
    const fxi_gpu_limits usual = gpu_host_limits;
    tally t = {.only = NULL};
    (void)unused;
    for (size_t w = 0; gpu_host_works() && w < sizeof widths / sizeof *widths; w++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            gpu_host_limits.warp = widths[w].warp;
            gpu_host_limits.vector_bytes = widths[w].vector_bytes;
            t.only = kinds[k];
            gpu_visit(check, &t);
        }
    gpu_host_limits = usual;
    assert_int_equal(t.failures, 0);
    assert_int_equal(gpu_host_divergent, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_widths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
