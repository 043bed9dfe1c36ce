/* gpu_steps.c: the list of steps; see gpu_steps.h. Each elementwise program computes as many
 * operations as a step has outputs, so that few steps cover all operations in all types. */
#include "gpu_steps.h"

#include <stdio.h>
#include <string.h>

static const char *const type_names[FX_DTYPE_COUNT] = {
    [FX_DTYPE_F32] = "f32", [FX_DTYPE_F64] = "f64",  [FX_DTYPE_I32] = "i32",
    [FX_DTYPE_I64] = "i64", [FX_DTYPE_U8] = "u8",    [FX_DTYPE_BOOL] = "bool",
    [FX_DTYPE_F16] = "f16", [FX_DTYPE_BF16] = "bf16"};

typedef struct visit {
    gpu_visitor visit;
    void *user;
    int count;
} visit;

static bool is_real(int dtype)
{
    return dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F64 || dtype == FX_DTYPE_F16 ||
           dtype == FX_DTYPE_BF16;
}

/* The program of a step, which is in another member for each class. */
static fx_program *program_of(fx_step *s)
{
    return s->cls == FX_CLASS_MATMUL    ? &s->as.matmul.epilogue
           : s->cls == FX_CLASS_REDUCE  ? &s->as.reduce.program
           : s->cls == FX_CLASS_ROW     ? &s->as.row.program
           : s->cls == FX_CLASS_FOREACH ? &s->as.foreach.program
                                        : &s->as.elementwise.program;
}

static void show(visit *v, gpu_case *c)
{
    c->step.in = c->in;
    c->step.in_value = c->in_value;
    c->step.in_offset = c->in_offset;
    if (c->ninstr)
        *program_of(&c->step) = (fx_program){c->program, c->ninstr};
    for (int g = 0; c->each[0].nin && g < c->step.as.foreach.nsegments; g++) {
        fx_step *e = &c->each[g];
        e->in = c->in + g * e->nin;
        e->in_value = c->in_value + g * e->nin;
        e->in_offset = c->in_offset + g * e->nin;
        e->as.reduce.program = c->step.as.foreach.program;
    }
    v->visit(v->user, c);
    v->count++;
}

/* ---- tensors --------------------------------------------------------------------------------- */
typedef enum layout { DENSE, TURNED, SPREAD, BACKWARDS, FAR, SINGLE, LAYOUTS } layout;
static const char *const layout_names[LAYOUTS] = {"dense",     "turned", "spread",
                                                  "backwards", "far",    "single"};

static fx_tensor dense(int dtype, int nd, const int64_t *shape)
{
    fx_tensor t = {.dtype = (uint8_t)dtype, .ndim = (uint8_t)nd};
    int64_t step = 1;
    for (int d = 0; d < nd; d++) {
        t.shape[d] = shape[d];
        t.stride[d] = step;
        step *= shape[d];
    }
    return t;
}

/* A tensor of these sizes in another layout. TURNED: the last axis is the fastest. SPREAD: the
 * first axis is repeated. BACKWARDS: every stride is negative. FAR: the last axis spans more than
 * 2³¹ elements. SINGLE: one value for all. */
static fx_tensor laid(int dtype, int nd, const int64_t *shape, layout how)
{
    fx_tensor t = dense(dtype, nd, shape);
    int64_t step = 1;
    for (int d = nd - 1; d >= 0 && how == TURNED; d--) {
        t.stride[d] = step;
        step *= shape[d];
    }
    for (int d = 0; d < nd; d++) {
        if (how == SPREAD)
            t.stride[d] = d == 0 ? 0 : t.stride[d] / shape[0];
        if (how == BACKWARDS)
            t.stride[d] = -t.stride[d];
    }
    if (how == FAR && shape[nd - 1] > 1)
        t.stride[nd - 1] = ((int64_t)1 << 31) / (shape[nd - 1] - 1) + 1;
    if (how == SINGLE)
        t.ndim = 0;
    return t;
}

static const int64_t matrix[] = {37, 41}, brick[] = {5, 33, 7}, five[] = {3, 2, 5, 4, 3},
                     eight[] = {2, 3, 2, 2, 3, 2, 2, 2};
typedef struct sizes_of {
    int nd;
    const int64_t *shape;
} sizes_of;
static const sizes_of spaces[] = {{2, matrix}, {3, brick}, {5, five}, {8, eight}};
enum { SPACES = sizeof spaces / sizeof *spaces };

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

static void add_instr(gpu_case *c, int op, int dtype, int from, int nsrc, int s0, int s1, int s2)
{
    c->program[c->ninstr++] = (fx_instr){.op = (uint8_t)op,
                                         .dtype = (uint8_t)dtype,
                                         .from = (uint8_t)from,
                                         .nsrc = (uint8_t)nsrc,
                                         .src = {(uint8_t)s0, (uint8_t)s1, (uint8_t)s2}};
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

static void begin_elementwise(gpu_case *c, int dtype, sizes_of space, layout a, layout b,
                              const char *what)
{
    memset(c, 0, sizeof *c);
    snprintf(c->name, sizeof c->name, "elementwise.%s.%s.%dd.%s.%s", what, type_names[dtype],
             space.nd, layout_names[a], layout_names[b]);
    c->step.cls = FX_CLASS_ELEMENTWISE;
    c->step.nin = 3;
    c->step.out = dense(dtype, space.nd, space.shape);
    c->in[0] = laid(dtype, space.nd, space.shape, a);
    c->in[1] = laid(dtype, space.nd, space.shape, b);
    c->in[2] = laid(FX_DTYPE_BOOL, space.nd, space.shape, DENSE);
    c->specials = is_real(dtype);
}

static void end_elementwise(visit *v, gpu_case *c)
{
    if (c->ninstr == 0)
        return;
    all_outputs(c);
    show(v, c);
}

/* All operations of a type, eight in a step. Operations of one argument read operand `unary`. */
static void operations(visit *v, int dtype, sizes_of space, layout a, layout b, int unary)
{
    gpu_case c;
    begin_elementwise(&c, dtype, space, a, b, "ops");
    for (int k = 0; k < OPS; k++) {
        if ((!is_real(dtype) && !ops[k].integer) || (dtype == FX_DTYPE_BOOL && !ops[k].boolean))
            continue;
        add_instr(&c, ops[k].op, compares(ops[k].op) ? FX_DTYPE_BOOL : dtype, dtype, ops[k].nsrc,
                  ops[k].nsrc == 1 ? unary : 0, 1, 0);
        if (c.ninstr == 8) {
            end_elementwise(v, &c);
            begin_elementwise(&c, dtype, space, a, b, "ops");
        }
    }
    end_elementwise(v, &c);
}

static void powers_and_choice(visit *v, int dtype)
{
    static const int64_t exponents[] = {0, 1, 2, 3, 7, -2};
    gpu_case c;
    begin_elementwise(&c, dtype, spaces[0], DENSE, DENSE, "powi");
    for (int k = 0; k < 6 && dtype != FX_DTYPE_BOOL; k++) {
        add_instr(&c, FX_OP_POWI, dtype, dtype, 1, 0, 0, 0);
        c.program[k].attr = exponents[k];
    }
    add_instr(&c, FX_OP_SELECT, dtype, dtype, 3, 2, 0, 1);
    end_elementwise(v, &c);
}

static void casts(visit *v, int from)
{
    gpu_case c;
    begin_elementwise(&c, from, spaces[0], DENSE, DENSE, "cast");
    for (int to = 0; to < FX_DTYPE_COUNT; to++)
        if (to != from)
            add_instr(&c, FX_OP_CAST, to, from, 1, 1, 0, 0);
    c.exact = true;
    end_elementwise(v, &c);
}

/* A sum of 24 operands, whose strides do not fit in the arguments of a kernel. */
static void many_operands(visit *v)
{
    gpu_case c;
    begin_elementwise(&c, FX_DTYPE_F32, spaces[3], DENSE, DENSE, "many");
    c.specials = false;
    c.step.nin = 24;
    for (int k = 0; k < 24; k++) {
        c.in[k] = dense(FX_DTYPE_F32, 8, eight);
        for (int d = 0; d < 8; d++)
            if (k >> (d % 5) & 1 || d == k % 8)
                c.in[k].stride[d] = 0;
    }
    for (int k = 0; k < 23; k++)
        add_instr(&c, FX_OP_ADD, FX_DTYPE_F32, FX_DTYPE_F32, 2, k == 0 ? 0 : 24 + k - 1, k + 1, 0);
    c.step.op = FX_OP_ADD;
    show(v, &c);
}

static void elementwise(visit *v)
{
    gpu_case c;
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++) {
        operations(v, dtype, spaces[0], DENSE, DENSE, 0);
        operations(v, dtype, spaces[1], BACKWARDS, SPREAD, 1);
        powers_and_choice(v, dtype);
        casts(v, dtype);
    }
    for (int k = 0; k < SPACES; k++)
        for (int how = 0; how < LAYOUTS; how++) {
            begin_elementwise(&c, FX_DTYPE_F32, spaces[k], (layout)how, TURNED, "layout");
            add_instr(&c, FX_OP_SUB, FX_DTYPE_F32, FX_DTYPE_F32, 2, 0, 1, 0);
            end_elementwise(v, &c);
        }
    many_operands(v);
    for (int how = 0; how < 2; how++) {
        const int64_t large[] = {(int64_t)1 << 20, (int64_t)1 << 13};
        begin_elementwise(&c, FX_DTYPE_F32, (sizes_of){2, large}, DENSE, how ? TURNED : SINGLE,
                          "wide");
        add_instr(&c, FX_OP_ADD, FX_DTYPE_F32, FX_DTYPE_F32, 2, 0, 1, 0);
        c.too_large = true;
        end_elementwise(v, &c);
    }
}

/* Segments with a single value each, or with one that all share. */
static void segments(visit *v, int count, bool shared)
{
    static const int64_t lengths[] = {1, 700, 0, 5000, 1024, 1025, 3};
    gpu_case c;
    begin_elementwise(&c, FX_DTYPE_F32, spaces[0], DENSE, DENSE, "segments");
    snprintf(c.name, sizeof c.name, "segments.%d.%s", count, shared ? "shared" : "own");
    c.step.cls = FX_CLASS_FOREACH;
    c.step.as.foreach =
        (fx_foreach_step){.more = {.n = 1, .reg = {3}}, .segments = c.segments, .nsegments = count};
    c.step.nin = 3 * count;
    for (int g = 0; g < count; g++) {
        c.segments[g].length = lengths[g % 7];
        for (int k = 0; k < 3; k++) {
            c.in[3 * g + k] = laid(FX_DTYPE_F32, 1, &lengths[g % 7], k == 2 ? SINGLE : DENSE);
            c.in_value[3 * g + k] = k == 2 && shared ? 0 : 1 + 3 * g + k;
        }
    }
    add_instr(&c, FX_OP_MUL, FX_DTYPE_F32, FX_DTYPE_F32, 2, 1, 2, 0);
    add_instr(&c, FX_OP_SUB, FX_DTYPE_F32, FX_DTYPE_F32, 2, 0, 3, 0);
    c.step.op = FX_OP_SUB;
    show(v, &c);
}

/* One segment, a few, and more than one launch can compute. */
static void foreach (visit *v)
{
    static const int counts[] = {1, 4, GPU_SEGMENTS};
    for (int i = 0; i < (int)(sizeof counts / sizeof *counts); i++)
        for (int shared = 0; shared < 2; shared++)
            segments(v, counts[i], shared);
}

/* ---- generators, copies ---------------------------------------------------------------------- */
static void generators(visit *v)
{
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++) {
        gpu_case c = {.step = {.op = FX_OP_IOTA, .cls = FX_CLASS_GENERATOR}, .exact = true};
        c.step.out = dense(dtype, 3, brick);
        c.step.as.generator.axis = 1;
        snprintf(c.name, sizeof c.name, "iota.%s", type_names[dtype]);
        show(v, &c);
        if (!is_real(dtype))
            continue;
        c.step.op = FX_OP_RANDOM;
        c.step.as.generator.stream = 1;
        snprintf(c.name, sizeof c.name, "random.%s", type_names[dtype]);
        show(v, &c);
    }
}

static void moves(visit *v)
{
    static const uint8_t of_size[] = {FX_DTYPE_U8, FX_DTYPE_F16, FX_DTYPE_F32, FX_DTYPE_F64};
    static const int64_t batch[] = {40, 3, 70};
    for (int k = 0; k < 4; k++)
        for (int how = 0; how < SINGLE; how++)
            for (int space = 0; space < 3; space++) {
                gpu_case c = {.step = {.op = FX_OP_PERMUTE, .cls = FX_CLASS_MOVEMENT, .nin = 1},
                              .exact = true};
                const sizes_of s = space == 2 ? (sizes_of){3, batch} : spaces[space];
                c.step.out = dense(of_size[k], s.nd, s.shape);
                c.in[0] = laid(of_size[k], s.nd, s.shape, (layout)how);
                snprintf(c.name, sizeof c.name, "move.%s.%d.%s", type_names[of_size[k]], space,
                         layout_names[how]);
                show(v, &c);
            }
}

static void joins(visit *v)
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
            c.in[k] = laid(FX_DTYPE_F32, 3, part, k == 1 ? TURNED : DENSE);
        }
        c.step.out = dense(FX_DTYPE_F32, 3, shape);
        snprintf(c.name, sizeof c.name, "concat.%d", axis);
        show(v, &c);
        c.step.op = FX_OP_PAD;
        c.step.nin = 2;
        c.in[0] = laid(FX_DTYPE_U8, 3, brick, SPREAD);
        c.in[1] = laid(FX_DTYPE_U8, 0, NULL, SINGLE);
        c.step.as.copy.before = axis;
        c.step.as.copy.after = 2;
        memcpy(shape, brick, sizeof shape);
        shape[axis] += axis + 2;
        c.step.out = dense(FX_DTYPE_U8, 3, shape);
        snprintf(c.name, sizeof c.name, "pad.%d", axis);
        show(v, &c);
    }
}

/* ---- gather and scatter ---------------------------------------------------------------------- */
/* The shape of 6×9×5 with one axis replaced by the indices' 4×3. */
static void index_shape(int axis, int64_t *shape)
{
    static const int64_t x[] = {6, 9, 5};
    int n = 0;
    for (int d = 0; d < 3; d++)
        if (d == axis) {
            shape[n++] = 4;
            shape[n++] = 3;
        } else {
            shape[n++] = x[d];
        }
}

static void gathers(visit *v)
{
    static const int64_t x[] = {6, 9, 5}, idx[] = {4, 3};
    for (int axis = 0; axis < 3; axis++)
        for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++) {
            gpu_case c = {.step = {.op = FX_OP_GATHER, .cls = FX_CLASS_GATHER, .nin = 2},
                          .exact = true,
                          .index_size = x[axis]};
            int64_t shape[4];
            index_shape(axis, shape);
            c.step.as.gather.axis = axis;
            c.in[0] = laid(dtype, 3, x, (layout)(dtype % SINGLE));
            c.in[1] =
                laid(dtype % 2 ? FX_DTYPE_I32 : FX_DTYPE_I64, 2, idx, dtype % 3 ? DENSE : TURNED);
            c.step.out = dense(dtype, 4, shape);
            snprintf(c.name, sizeof c.name, "gather.%s.%d", type_names[dtype], axis);
            show(v, &c);
        }
}

/* Rows that are moved as vectors: along the second axis, out of a longer one, as embeddings are. */
static void gathers_of_rows(visit *v)
{
    static const int dtypes[] = {FX_DTYPE_F32, FX_DTYPE_BF16, FX_DTYPE_U8, FX_DTYPE_F64};
    static const int64_t x[] = {32, 7, 2}, idx[] = {5}, out[] = {32, 5, 2};
    for (int k = 0; k < 4; k++) {
        gpu_case c = {.step = {.op = FX_OP_GATHER, .cls = FX_CLASS_GATHER, .nin = 2},
                      .exact = true,
                      .index_size = x[1]};
        c.step.as.gather.axis = 1;
        c.in[0] = dense(dtypes[k], 3, x);
        c.in[1] = dense(FX_DTYPE_I64, 1, idx);
        c.step.out = dense(dtypes[k], 3, out);
        snprintf(c.name, sizeof c.name, "gather.rows.%s", type_names[dtypes[k]]);
        show(v, &c);
    }
}

static void scatter(visit *v, int kind, int dtype, int axis, bool large)
{
    static const int64_t idx[] = {4, 3}, many[] = {500, 5};
    gpu_case c = {.step = {.op = FX_OP_SCATTER, .cls = FX_CLASS_SCATTER, .nin = 2}};
    int64_t shape[4], out[3] = {6, 9, 5};
    index_shape(axis, shape);
    if (large) {
        shape[axis] = 500;
        shape[axis + 1] = 5;
        out[axis] = 400;
    }
    c.step.as.scatter.fold = kind;
    c.step.as.scatter.axis = axis;
    c.index_size = out[axis];
    c.in[0] = laid(dtype, 4, shape, axis == 1 ? TURNED : axis == 2 ? FAR : DENSE);
    c.in[1] = laid(axis == 1 ? FX_DTYPE_I32 : FX_DTYPE_I64, 2, large ? many : idx,
                   axis == 2 ? TURNED : DENSE);
    c.step.out = dense(dtype, 3, out);
    snprintf(c.name, sizeof c.name, "scatter.%d.%s.%d.%s", kind, type_names[dtype], axis,
             large ? "atomic" : "looks");
    show(v, &c);
}

static void scatters(visit *v)
{
    for (int kind = FX_REDUCE_SUM; kind <= FX_REDUCE_PROD; kind++)
        for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
            for (int large = 0; large < 2 && dtype != FX_DTYPE_BOOL; large++)
                scatter(v, kind, dtype, (kind + dtype) % 3, large);
}

/* ---- reductions ------------------------------------------------------------------------------ */
/* Can a step have this kind of reduction? fx_argmax, for example, first converts 16-bit floats. */
static bool folds(int kind, int dtype)
{
    const bool half = dtype == FX_DTYPE_F16 || dtype == FX_DTYPE_BF16;
    if (kind == FX_REDUCE_SQDEV)
        return is_real(dtype);
    if (kind == FX_REDUCE_ARGMAX || kind == FX_REDUCE_ARGMIN)
        return !half;
    return dtype != FX_DTYPE_BOOL || kind != FX_REDUCE_SUM;
}

static fx_tensor reduced(int dtype, int nd, const int64_t *shape, uint32_t mask)
{
    int64_t s[FX_MAX_DIMS];
    for (int d = 0; d < nd; d++)
        s[d] = mask >> d & 1 ? 1 : shape[d];
    return dense(dtype, nd, s);
}

static void reduction(visit *v, int kind, int dtype, sizes_of space, uint32_t mask, layout how)
{
    const bool index = kind == FX_REDUCE_ARGMAX || kind == FX_REDUCE_ARGMIN;
    gpu_case c = {.step = {.op = FX_OP_REDUCE, .cls = FX_CLASS_REDUCE, .nin = 1}};
    c.in[0] = laid(dtype, space.nd, space.shape, how);
    c.step.as.reduce.fold = kind;
    c.step.as.reduce.mask = mask;
    c.step.out = reduced(index ? FX_DTYPE_I64 : dtype, space.nd, space.shape, mask);
    c.specials = is_real(dtype) && (index || kind == FX_REDUCE_MAX || kind == FX_REDUCE_MIN);
    snprintf(c.name, sizeof c.name, "reduce.%d.%s.%dd.%x.%s", kind, type_names[dtype], space.nd,
             (unsigned)mask, layout_names[how]);
    show(v, &c);
}

static void reductions(visit *v)
{
    static const int64_t rows[] = {1300, 3}, columns[] = {70, 500}, all[] = {40000};
    static const int64_t none[] = {0, 4};
    for (int kind = 0; kind <= FX_REDUCE_ARGMIN; kind++) {
        const bool index = kind == FX_REDUCE_ARGMAX || kind == FX_REDUCE_ARGMIN;
        for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++) {
            if (!folds(kind, dtype))
                continue;
            reduction(v, kind, dtype, spaces[1], 2, DENSE);
            reduction(v, kind, dtype, (sizes_of){1, all}, 1, DENSE);
        }
        reduction(v, kind, FX_DTYPE_F32, (sizes_of){2, rows}, 1, DENSE);
        reduction(v, kind, FX_DTYPE_F32, (sizes_of){2, columns}, 2, DENSE);
        reduction(v, kind, FX_DTYPE_F32, (sizes_of){2, columns}, 2, TURNED);
        reduction(v, kind, FX_DTYPE_F32, spaces[1], 4, BACKWARDS);
        for (int how = 0; how < SINGLE && !index; how++) {
            reduction(v, kind, FX_DTYPE_F32, spaces[2], 0x15, (layout)how);
            reduction(v, kind, FX_DTYPE_F32, spaces[3], 0x6a, (layout)how);
        }
        if (!index)
            reduction(v, kind, FX_DTYPE_F32, (sizes_of){2, none}, 1, DENSE);
    }
}

/* Σ (x − y)·x over the first or the last axes, of operands of different strides. */
static void program_reductions(visit *v)
{
    static const uint8_t types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_I32};
    for (int k = 0; k < 3; k++)
        for (uint32_t mask = 1; mask < 8; mask++) {
            gpu_case c = {.step = {.op = FX_OP_REDUCE, .cls = FX_CLASS_REDUCE, .nin = 3}};
            if (mask == 5 || mask == 2) /* the planner makes reduced × kept × reduced at most */
                continue;
            c.step.as.reduce.space = dense(types[k], 3, brick);
            c.in[0] = laid(types[k], 3, brick, DENSE);
            c.in[1] = laid(types[k], 3, brick, SPREAD);
            c.in[2] = laid(types[k], 3, brick, SINGLE);
            add_instr(&c, FX_OP_SUB, types[k], types[k], 2, 0, 1, 0);
            add_instr(&c, FX_OP_MUL, types[k], types[k], 2, 3, 2, 0);
            c.step.as.reduce.fold = FX_REDUCE_SUM;
            c.step.as.reduce.mask = mask;
            c.step.out = reduced(types[k], 3, brick, mask);
            snprintf(c.name, sizeof c.name, "reduce.program.%s.%x", type_names[types[k]],
                     (unsigned)mask);
            show(v, &c);
        }
}

/* Several reductions that are one step: bias gradients of several sizes, with other reduced axes
 * among them, one that is too large to share a launch, and one without results. */
static void several_reductions(visit *v, int count, int dtype, bool program)
{
    static const int64_t shapes[][2] = {{37, 41}, {256, 30}, {5, 9000}, {64, 64}, {1, 7}, {0, 4}};
    static const uint32_t masks[] = {2, 2, 1, 2, 2, 2};
    gpu_case c = {.step = {.op = FX_OP_REDUCE, .cls = FX_CLASS_FOREACH}};
    const int nin = program ? 2 : 1;
    c.step.nin = nin * count;
    c.step.as.foreach =
        (fx_foreach_step){.segments = c.segments, .nsegments = count, .each = c.each};
    for (int g = 0; g < count; g++) {
        const int64_t *shape = shapes[g % 6];
        fx_step *e = &c.each[g];
        *e = (fx_step){.op = FX_OP_REDUCE, .cls = FX_CLASS_REDUCE, .nin = nin};
        e->as.reduce.fold = FX_REDUCE_SUM;
        e->as.reduce.mask = masks[g % 6];
        e->as.reduce.space = dense(dtype, 2, shape);
        for (int k = 0; k < nin; k++) {
            c.in[g * nin + k] = laid(dtype, 2, shape, g % 4 == 3 ? TURNED : DENSE);
            c.in_value[g * nin + k] = g * nin + k;
        }
        e->out = c.step.out = reduced(dtype, 2, shape, masks[g % 6]);
        c.segments[g].length = fx_tensor_length(&e->out);
    }
    if (program)
        add_instr(&c, FX_OP_MUL, dtype, dtype, 2, 0, 1, 0);
    snprintf(c.name, sizeof c.name, "reduce.several.%d.%s%s", count, type_names[dtype],
             program ? ".program" : "");
    show(v, &c);
}

static void all_several_reductions(visit *v)
{
    several_reductions(v, 2, FX_DTYPE_F32, false);
    several_reductions(v, 5, FX_DTYPE_F32, true);
    several_reductions(v, GPU_SEGMENTS, FX_DTYPE_F32, false);
    several_reductions(v, 6, FX_DTYPE_F64, false);
    several_reductions(v, 8, FX_DTYPE_BF16, false);
    several_reductions(v, 3, FX_DTYPE_I32, true);
}

static void scans(visit *v)
{
    static const int64_t line[] = {3000}, lines[] = {5, 900};
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
        for (int way = 0; way < 2 && dtype != FX_DTYPE_BOOL; way++) {
            const sizes_of all[] = {{1, line}, {2, lines}, spaces[1],
                                    spaces[1], spaces[1],  spaces[2]};
            for (int k = 0; k < 6; k++) {
                gpu_case c = {.step = {.op = FX_OP_CUMSUM, .cls = FX_CLASS_SCAN, .nin = 1}};
                c.step.as.scan.axis = k < 2 ? all[k].nd - 1 : k - 2;
                c.step.as.scan.reverse = way;
                c.in[0] = laid(dtype, all[k].nd, all[k].shape, (layout)(k % SINGLE));
                c.step.out = dense(dtype, all[k].nd, all[k].shape);
                snprintf(c.name, sizeof c.name, "cumsum.%s.%d.%d", type_names[dtype], k, way);
                show(v, &c);
            }
        }
}

/* ---- rows ------------------------------------------------------------------------------------ */
static void row_instr(gpu_case *c, int op, int dtype, int nsrc, int s0, int s1, bool row, int pass,
                      int64_t attr)
{
    add_instr(c, op, dtype, dtype, nsrc, s0, s1, 0);
    c->program[c->ninstr - 1].row = row;
    c->program[c->ninstr - 1].pass = (uint8_t)pass;
    c->program[c->ninstr - 1].attr = attr;
}

static void begin_rows(gpu_case *c, const char *what, int dtype, int row_axes, int64_t n,
                       int64_t rows)
{
    const int64_t shape[] = {n, row_axes == 2 ? 3 : rows, rows};
    memset(c, 0, sizeof *c);
    c->step.op = FX_OP_REDUCE;
    c->step.cls = FX_CLASS_ROW;
    c->step.as.row.space = dense(dtype, row_axes + 1, shape);
    c->step.as.row.row_axes = row_axes;
    snprintf(c->name, sizeof c->name, "rows.%s.%s.%d.%d", what, type_names[dtype], row_axes,
             (int)n);
}

/* log Σ exp and the softmax of a row whose elements are first multiplied by weights. */
static void softmax(visit *v, int dtype, int row_axes, int64_t n, layout how)
{
    gpu_case c;
    begin_rows(&c, "softmax", dtype, row_axes, n, 9);
    const fx_tensor *space = &c.step.as.row.space;
    const uint32_t mask = (1u << row_axes) - 1;
    c.step.nin = 3;
    c.in[0] = laid(dtype, space->ndim, space->shape, how);
    c.in[1] = laid(dtype, space->ndim, space->shape, DENSE); /* the weights */
    for (int d = row_axes; d < space->ndim; d++)
        c.in[1].stride[d] = 0;
    c.in[2] = reduced(dtype, space->ndim, space->shape, mask);
    row_instr(&c, FX_OP_MUL, dtype, 2, 0, 1, false, 0, 0);                 /* 3 */
    row_instr(&c, FX_OP_REDUCE, dtype, 1, 3, 0, true, 0, FX_REDUCE_MAX);   /* 4 */
    row_instr(&c, FX_OP_SUB, dtype, 2, 3, 4, false, 1, 0);                 /* 5 */
    row_instr(&c, FX_OP_EXP, dtype, 1, 5, 0, false, 1, 0);                 /* 6 */
    row_instr(&c, FX_OP_REDUCE, dtype, 1, 6, 0, true, 1, FX_REDUCE_SUM);   /* 7 */
    row_instr(&c, FX_OP_REDUCE, dtype, 1, 5, 0, true, 1, FX_REDUCE_SQDEV); /* 8 */
    row_instr(&c, FX_OP_LOG, dtype, 1, 7, 0, true, 2, 0);                  /* 9 */
    row_instr(&c, FX_OP_ADD, dtype, 2, 9, 2, true, 2, 0);                  /* 10 */
    row_instr(&c, FX_OP_DIV, dtype, 2, 6, 7, false, 2, 0);                 /* 11 */
    row_instr(&c, FX_OP_REDUCE, dtype, 1, 11, 0, true, 2, FX_REDUCE_MIN);  /* 12 */
    row_instr(&c, FX_OP_MUL, dtype, 2, 12, 8, true, 3, 0);                 /* 13 */
    c.step.out = dense(dtype, space->ndim, space->shape);
    c.step.as.row.out_reg = 11;
    c.step.as.row.more = (fx_more_outputs){.n = 3, .reg = {10, 13, 5}};
    show(v, &c);
}

/* The sums of a row and of its squares: one after the other they use the same local memory. */
static void two_sums(visit *v, int dtype, int64_t n)
{
    gpu_case c;
    begin_rows(&c, "two_sums", dtype, 1, n, 9);
    const fx_tensor *space = &c.step.as.row.space;
    c.step.nin = 1;
    c.in[0] = dense(dtype, space->ndim, space->shape);
    row_instr(&c, FX_OP_MUL, dtype, 2, 0, 0, false, 0, 0);               /* 1 */
    row_instr(&c, FX_OP_REDUCE, dtype, 1, 0, 0, true, 0, FX_REDUCE_SUM); /* 2 */
    row_instr(&c, FX_OP_REDUCE, dtype, 1, 1, 0, true, 0, FX_REDUCE_SUM); /* 3 */
    row_instr(&c, FX_OP_MUL, dtype, 2, 0, 2, false, 1, 0);               /* 4 */
    row_instr(&c, FX_OP_ADD, dtype, 2, 4, 3, false, 1, 0);               /* 5 */
    c.step.out = dense(dtype, space->ndim, space->shape);
    c.step.as.row.out_reg = 5;
    show(v, &c);
}

static void rows(visit *v)
{
    static const int64_t lengths[] = {1, 3, 10, 100, 1000, 3001};
    for (int k = 0; k < 6; k++)
        for (int axes = 1; axes <= 2; axes++) {
            softmax(v, FX_DTYPE_F32, axes, lengths[k], DENSE);
            softmax(v, FX_DTYPE_F32, axes, lengths[k], TURNED);
            softmax(v, FX_DTYPE_F32, axes, lengths[k], FAR);
            softmax(v, FX_DTYPE_F64, axes, lengths[k], DENSE);
        }
    two_sums(v, FX_DTYPE_F32, 1000);
    two_sums(v, FX_DTYPE_F64, 3001);
    softmax(v, FX_DTYPE_F16, 1, 100, DENSE);
    softmax(v, FX_DTYPE_BF16, 2, 10, DENSE);
}

/* ---- matrix products ------------------------------------------------------------------------- */
/* 35×18 · 18×21, alone or in a batch of 2×3, along whose second axis operand b is repeated. The
 * epilogue adds a bias along the rows and applies relu. */
static void product(visit *v, int dtype, int64_t k, int turns, bool batch, bool epilogue)
{
    const int64_t m = 35, n = 21, nd = batch ? 4 : 2;
    const bool ta = turns & 1, tb = turns & 2;
    const int64_t a[] = {ta ? k : m, ta ? m : k, 2, 3}, b[] = {tb ? n : k, tb ? k : n, 2, 1},
                  out[] = {m, n, 2, 3};
    gpu_case c = {.step = {.op = FX_OP_MATMUL, .cls = FX_CLASS_MATMUL, .nin = 2},
                  .scale = k > 500 ? 64 : 1};
    c.step.as.matmul.transpose_a = ta;
    c.step.as.matmul.transpose_b = tb;
    c.in[0] = dense(dtype, (int)nd, a);
    c.in[1] = laid(dtype, (int)nd, b, batch ? TURNED : DENSE);
    c.step.out = dense(dtype, (int)nd, out);
    if (epilogue) {
        c.step.nin = 3;
        c.in[2] = laid(dtype, (int)nd, out, DENSE);
        for (int d = 1; d < nd; d++)
            c.in[2].stride[d] = 0;
        add_instr(&c, FX_OP_ADD, dtype, dtype, 2, 0, 1, 0);
        add_instr(&c, FX_OP_RELU, dtype, dtype, 1, 2, 0, 0);
    }
    snprintf(c.name, sizeof c.name, "matmul.%s.%d.%s.%s%s", type_names[dtype], turns,
             batch ? "batch" : "one", epilogue ? "relu" : "plain", k > 500 ? ".long" : "");
    show(v, &c);
}

/* Products that are large enough for the larger tiles and for 64-bit indices. */
static void large_product(visit *v, int dtype, int64_t n)
{
    const int64_t shape[] = {n, n};
    gpu_case c = {.step = {.op = FX_OP_MATMUL, .cls = FX_CLASS_MATMUL, .nin = 2},
                  .too_large = true};
    c.in[0] = c.in[1] = c.step.out = dense(dtype, 2, shape);
    snprintf(c.name, sizeof c.name, "matmul.%s.%d", type_names[dtype], (int)n);
    show(v, &c);
}

static void products(visit *v)
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
    visit v = {visitor, user, 0};
    elementwise(&v);
    foreach (&v)
        ;
    generators(&v);
    moves(&v);
    joins(&v);
    gathers(&v);
    gathers_of_rows(&v);
    scatters(&v);
    reductions(&v);
    program_reductions(&v);
    all_several_reductions(&v);
    scans(&v);
    rows(&v);
    products(&v);
    return v.count + gpu_visit_windows(visitor, user);
}
