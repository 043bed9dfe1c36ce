/* gpu_steps.c: the list of steps; see gpu_steps.h. Each elementwise program computes as many
 * operations as a step has outputs, so that few steps cover all operations in all types. */
#include "gpu_cases.h"

#include <stdio.h>
#include <string.h>

/* ---- elementwise ----------------------------------------------------------------------------- */
typedef struct op_row {
    uint8_t op, nsrc;
    bool integer, boolean;
} op_row;
#define TAKES_REAL    false, false
#define TAKES_COUNT   true, false
#define TAKES_KEEP    true, true
#define TAKES_COMPARE true, true
static const op_row ops[] = {
#define ELEMENTWISE(NAME, name, inputs, rule, gradient, real, whole)                               \
    {FX_OP_##NAME, inputs, TAKES_##rule},
#include <cflux/op.def>
};
enum { OPS = sizeof ops / sizeof *ops };

static bool compares(int op)
{
    return op >= FX_OP_LT && op <= FX_OP_NE;
}

/* Makes every result an output. The result of the last instruction is the main output. */
static void all_outputs(gpu_case *c)
{
    fx_step *s = &c->step;
    fx_more_outputs *more = &s->as.elementwise.more;
    more->n = c->ninstr - 1;
    s->op = c->program[c->ninstr - 1].op;
    s->out.dtype = c->program[c->ninstr - 1].dtype;
    for (int k = 0; k < more->n; k++)
        more->reg[k] = (uint8_t)(s->nin + k);
}

static void begin_elementwise(gpu_case *c, int dtype, gpu_sizes space, gpu_layout a, gpu_layout b,
                              const char *what)
{
    memset(c, 0, sizeof *c);
    snprintf(c->name, sizeof c->name, "elementwise.%s.%s.%dd.%s.%s", what, gpu_type_names[dtype],
             space.nd, gpu_layout_names[a], gpu_layout_names[b]);
    c->step.cls = FX_CLASS_ELEMENTWISE;
    c->step.nin = 3;
    c->step.out = gpu_dense(dtype, space.nd, space.shape);
    c->in[0] = gpu_laid(dtype, space.nd, space.shape, a);
    c->in[1] = gpu_laid(dtype, space.nd, space.shape, b);
    c->in[2] = gpu_laid(FX_DTYPE_BOOL, space.nd, space.shape, DENSE);
    c->specials = gpu_is_real(dtype);
}

static void end_elementwise(gpu_visits *v, gpu_case *c)
{
    if (c->ninstr == 0)
        return;
    all_outputs(c);
    gpu_show(v, c);
}

/* All operations of a type, eight in a step. Operations of one argument read operand `unary`. */
static void operations(gpu_visits *v, int dtype, gpu_sizes space, gpu_layout a, gpu_layout b,
                       int unary)
{
    gpu_case c;
    begin_elementwise(&c, dtype, space, a, b, "ops");
    for (int k = 0; k < OPS; k++) {
        if ((!gpu_is_real(dtype) && !ops[k].integer) || (dtype == FX_DTYPE_BOOL && !ops[k].boolean))
            continue;
        gpu_add_instr(&c, ops[k].op, compares(ops[k].op) ? FX_DTYPE_BOOL : dtype, dtype,
                      ops[k].nsrc, ops[k].nsrc == 1 ? unary : 0, 1, 0);
        if (c.ninstr == 8) {
            end_elementwise(v, &c);
            begin_elementwise(&c, dtype, space, a, b, "ops");
        }
    }
    end_elementwise(v, &c);
}

static void powers_and_choice(gpu_visits *v, int dtype)
{
    static const int64_t exponents[] = {0, 1, 2, 3, 7, -2};
    gpu_case c;
    begin_elementwise(&c, dtype, gpu_spaces[0], DENSE, DENSE, "powi");
    for (int k = 0; k < 6 && dtype != FX_DTYPE_BOOL; k++) {
        gpu_add_instr(&c, FX_OP_POWI, dtype, dtype, 1, 0, 0, 0);
        c.program[k].attr = exponents[k];
    }
    gpu_add_instr(&c, FX_OP_SELECT, dtype, dtype, 3, 2, 0, 1);
    end_elementwise(v, &c);
}

static void casts(gpu_visits *v, int from)
{
    gpu_case c;
    begin_elementwise(&c, from, gpu_spaces[0], DENSE, DENSE, "cast");
    for (int to = 0; to < FX_DTYPE_COUNT; to++)
        if (to != from)
            gpu_add_instr(&c, FX_OP_CAST, to, from, 1, 1, 0, 0);
    c.exact = true;
    end_elementwise(v, &c);
}

/* A sum of 24 operands, whose strides do not fit in the arguments of a kernel. */
static void many_operands(gpu_visits *v)
{
    gpu_case c;
    begin_elementwise(&c, FX_DTYPE_F32, gpu_spaces[3], DENSE, DENSE, "many");
    c.specials = false;
    c.step.nin = 24;
    for (int k = 0; k < 24; k++) {
        c.in[k] = gpu_dense(FX_DTYPE_F32, 8, gpu_spaces[3].shape);
        for (int d = 0; d < 8; d++)
            if (k >> (d % 5) & 1 || d == k % 8)
                c.in[k].stride[d] = 0;
    }
    for (int k = 0; k < 23; k++)
        gpu_add_instr(&c, FX_OP_ADD, FX_DTYPE_F32, FX_DTYPE_F32, 2, k == 0 ? 0 : 24 + k - 1, k + 1,
                      0);
    c.step.op = FX_OP_ADD;
    gpu_show(v, &c);
}

static void elementwise(gpu_visits *v)
{
    gpu_case c;
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++) {
        operations(v, dtype, gpu_spaces[0], DENSE, DENSE, 0);
        operations(v, dtype, gpu_spaces[1], BACKWARDS, SPREAD, 1);
        powers_and_choice(v, dtype);
        casts(v, dtype);
    }
    for (int k = 0; k < GPU_SPACES; k++)
        for (int how = 0; how < LAYOUTS; how++) {
            begin_elementwise(&c, FX_DTYPE_F32, gpu_spaces[k], (gpu_layout)how, TURNED, "layout");
            gpu_add_instr(&c, FX_OP_SUB, FX_DTYPE_F32, FX_DTYPE_F32, 2, 0, 1, 0);
            end_elementwise(v, &c);
        }
    many_operands(v);
    for (int how = 0; how < 2; how++) {
        const int64_t large[] = {(int64_t)1 << 20, (int64_t)1 << 13};
        begin_elementwise(&c, FX_DTYPE_F32, (gpu_sizes){2, large}, DENSE, how ? TURNED : SINGLE,
                          "wide");
        gpu_add_instr(&c, FX_OP_ADD, FX_DTYPE_F32, FX_DTYPE_F32, 2, 0, 1, 0);
        c.too_large = true;
        end_elementwise(v, &c);
    }
}

/* Segments with a single value each, or with one that all share. */
static void segments(gpu_visits *v, int count, bool shared)
{
    static const int64_t lengths[] = {1, 700, 0, 5000, 1024, 1025, 3};
    gpu_case c;
    begin_elementwise(&c, FX_DTYPE_F32, gpu_spaces[0], DENSE, DENSE, "segments");
    snprintf(c.name, sizeof c.name, "segments.%d.%s", count, shared ? "shared" : "own");
    c.step.cls = FX_CLASS_FOREACH;
    c.step.as.foreach =
        (fx_foreach_step){.more = {.n = 1, .reg = {3}}, .segments = c.segments, .nsegments = count};
    c.step.nin = 3 * count;
    for (int g = 0; g < count; g++) {
        c.segments[g].length = lengths[g % 7];
        for (int k = 0; k < 3; k++) {
            c.in[3 * g + k] = gpu_laid(FX_DTYPE_F32, 1, &lengths[g % 7], k == 2 ? SINGLE : DENSE);
            c.in_value[3 * g + k] = k == 2 && shared ? 0 : 1 + 3 * g + k;
        }
    }
    gpu_add_instr(&c, FX_OP_MUL, FX_DTYPE_F32, FX_DTYPE_F32, 2, 1, 2, 0);
    gpu_add_instr(&c, FX_OP_SUB, FX_DTYPE_F32, FX_DTYPE_F32, 2, 0, 3, 0);
    c.step.op = FX_OP_SUB;
    gpu_show(v, &c);
}

/* One segment, a few, and more than one launch can compute. */
static void foreach (gpu_visits *v)
{
    static const int counts[] = {1, 4, GPU_SEGMENTS};
    for (int i = 0; i < (int)(sizeof counts / sizeof *counts); i++)
        for (int shared = 0; shared < 2; shared++)
            segments(v, counts[i], shared);
}

/* ---- generators, copies ---------------------------------------------------------------------- */
static void generators(gpu_visits *v)
{
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++) {
        gpu_case c = {.step = {.op = FX_OP_IOTA, .cls = FX_CLASS_GENERATOR}, .exact = true};
        c.step.out = gpu_dense(dtype, 3, gpu_spaces[1].shape);
        c.step.as.generator.axis = 1;
        snprintf(c.name, sizeof c.name, "iota.%s", gpu_type_names[dtype]);
        gpu_show(v, &c);
        if (!gpu_is_real(dtype))
            continue;
        c.step.op = FX_OP_RANDOM;
        c.step.as.generator.stream = 1;
        snprintf(c.name, sizeof c.name, "random.%s", gpu_type_names[dtype]);
        gpu_show(v, &c);
    }
}

static void moves(gpu_visits *v)
{
    static const uint8_t of_size[] = {FX_DTYPE_U8, FX_DTYPE_F16, FX_DTYPE_F32, FX_DTYPE_F64};
    static const int64_t batch[] = {40, 3, 70};
    for (int k = 0; k < 4; k++)
        for (int how = 0; how < SINGLE; how++)
            for (int space = 0; space < 3; space++) {
                gpu_case c = {.step = {.op = FX_OP_PERMUTE, .cls = FX_CLASS_MOVEMENT, .nin = 1},
                              .exact = true};
                const gpu_sizes s = space == 2 ? (gpu_sizes){3, batch} : gpu_spaces[space];
                c.step.out = gpu_dense(of_size[k], s.nd, s.shape);
                c.in[0] = gpu_laid(of_size[k], s.nd, s.shape, (gpu_layout)how);
                snprintf(c.name, sizeof c.name, "move.%s.%d.%s", gpu_type_names[of_size[k]], space,
                         gpu_layout_names[how]);
                gpu_show(v, &c);
            }
}

static void joins(gpu_visits *v)
{
    for (int axis = 0; axis < 3; axis++) {
        gpu_case c = {.step = {.op = FX_OP_CONCAT, .cls = FX_CLASS_COPY, .nin = 3}, .exact = true};
        int64_t shape[3] = {5, 33, 7};
        c.step.as.copy.axis = axis;
        shape[axis] = 0;
        for (int k = 0; k < 3; k++) {
            int64_t part[3] = {5, 33, 7};
            part[axis] = 4 * k;
            shape[axis] += part[axis];
            c.in[k] = gpu_laid(FX_DTYPE_F32, 3, part, k == 1 ? TURNED : DENSE);
        }
        c.step.out = gpu_dense(FX_DTYPE_F32, 3, shape);
        snprintf(c.name, sizeof c.name, "concat.%d", axis);
        gpu_show(v, &c);
        c.step.op = FX_OP_PAD;
        c.step.nin = 2;
        c.in[0] = gpu_laid(FX_DTYPE_U8, 3, gpu_spaces[1].shape, SPREAD);
        c.in[1] = gpu_laid(FX_DTYPE_U8, 0, NULL, SINGLE);
        c.step.as.copy.before = axis;
        c.step.as.copy.after = 2;
        memcpy(shape, gpu_spaces[1].shape, sizeof shape);
        shape[axis] += axis + 2;
        c.step.out = gpu_dense(FX_DTYPE_U8, 3, shape);
        snprintf(c.name, sizeof c.name, "pad.%d", axis);
        gpu_show(v, &c);
    }
}

/* ---- matrix products ------------------------------------------------------------------------- */
/* 35×18 · 18×21, alone or in a batch of 2×3, along whose second axis operand b is repeated. The
 * epilogue adds a bias along the rows and applies relu. */
static void product(gpu_visits *v, int dtype, int64_t k, int turns, bool batch, bool epilogue)
{
    const int64_t m = 35, n = 21, nd = batch ? 4 : 2;
    const bool ta = turns & 1, tb = turns & 2;
    const int64_t a[] = {ta ? k : m, ta ? m : k, 2, 3}, b[] = {tb ? n : k, tb ? k : n, 2, 1},
                  out[] = {m, n, 2, 3};
    gpu_case c = {.step = {.op = FX_OP_MATMUL, .cls = FX_CLASS_MATMUL, .nin = 2},
                  .scale = k > 500 ? 64 : 1};
    c.step.as.matmul.transpose_a = ta;
    c.step.as.matmul.transpose_b = tb;
    c.in[0] = gpu_dense(dtype, (int)nd, a);
    c.in[1] = gpu_laid(dtype, (int)nd, b, batch ? TURNED : DENSE);
    c.step.out = gpu_dense(dtype, (int)nd, out);
    if (epilogue) {
        c.step.nin = 3;
        c.in[2] = gpu_laid(dtype, (int)nd, out, DENSE);
        for (int d = 1; d < nd; d++)
            c.in[2].stride[d] = 0;
        gpu_add_instr(&c, FX_OP_ADD, dtype, dtype, 2, 0, 1, 0);
        gpu_add_instr(&c, FX_OP_RELU, dtype, dtype, 1, 2, 0, 0);
    }
    snprintf(c.name, sizeof c.name, "matmul.%s.%d.%s.%s%s", gpu_type_names[dtype], turns,
             batch ? "batch" : "one", epilogue ? "relu" : "plain", k > 500 ? ".long" : "");
    gpu_show(v, &c);
}

/* 8×k · k×6 in a batch of 2 whose output has another order of axes, scaled by a number: either
 * of its matrix axes is the first in memory. If k is large, the sums are cut into slices. */
static void ordered_product(gpu_visits *v, int dtype, int64_t k, bool transposed)
{
    const int64_t a[] = {8, k, 2, 1}, b[] = {k, 6, 2, 1}, out[] = {8, 6, 2, 1};
    gpu_case c = {.step = {.op = FX_OP_MATMUL, .cls = FX_CLASS_MATMUL, .nin = 3},
                  .scale = k > 500 ? 64 : 1};
    c.in[0] = gpu_dense(dtype, 4, a);
    c.in[1] = gpu_dense(dtype, 4, b);
    c.in[2] = gpu_dense(dtype, 4, out);
    memset(c.in[2].stride, 0, sizeof c.in[2].stride);
    c.step.out = gpu_dense(dtype, 4, out);
    c.step.out.stride[0] = transposed ? 6 * 2 : 1;
    c.step.out.stride[1] = transposed ? 1 : 8 * 2;
    c.step.out.stride[2] = transposed ? 6 : 8;
    gpu_add_instr(&c, FX_OP_MUL, dtype, dtype, 2, 0, 1, 0);
    snprintf(c.name, sizeof c.name, "matmul.%s.ordered.%d%s", gpu_type_names[dtype], transposed,
             k > 500 ? ".long" : "");
    gpu_show(v, &c);
}

/* Products that are large enough for the larger tiles and for 64-bit indices. */
static void large_product(gpu_visits *v, int dtype, int64_t n)
{
    const int64_t shape[] = {n, n};
    gpu_case c = {.step = {.op = FX_OP_MATMUL, .cls = FX_CLASS_MATMUL, .nin = 2},
                  .too_large = true};
    c.in[0] = c.in[1] = c.step.out = gpu_dense(dtype, 2, shape);
    snprintf(c.name, sizeof c.name, "matmul.%s.%d", gpu_type_names[dtype], (int)n);
    gpu_show(v, &c);
}

static void products(gpu_visits *v)
{
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++) {
        /* The CPU has epilogues only for these types. */
        const bool full = dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F64;
        if (dtype == FX_DTYPE_BOOL)
            continue;
        for (int turns = 0; turns < 4; turns++)
            product(v, dtype, 18, turns, turns == 3, turns == 1 && full);
        product(v, dtype, 18, 0, true, full);
        /* An inner axis that is cut into slices. */
        product(v, dtype, 700, 1, false, full);
        for (int t = 0; t < 2 && full; t++) {
            ordered_product(v, dtype, 18, t);
            ordered_product(v, dtype, 700, t);
        }
    }
    for (int64_t n = 512; n <= 65536; n *= n < 4096 ? 2 : 16) {
        large_product(v, FX_DTYPE_F32, n);
        large_product(v, FX_DTYPE_F64, n);
    }
    for (int64_t n = 512; n <= 2048; n *= 2) {
        large_product(v, FX_DTYPE_F16, n);
        large_product(v, FX_DTYPE_BF16, n);
    }
    product(v, FX_DTYPE_F32, 1030, 2, true, true);
}

int gpu_visit(gpu_visitor visitor, void *user)
{
    gpu_visits v = {visitor, user, 0};
    elementwise(&v);
    foreach (&v)
        ;
    generators(&v);
    moves(&v);
    joins(&v);
    gpu_visit_index(&v);
    gpu_visit_folds(&v);
    products(&v);
    return v.count + gpu_visit_windows(visitor, user);
}
