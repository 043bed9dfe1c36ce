/* gpu_steps_folds.c: the steps of reductions, scans and rows in the list of gpu_steps.h. */
#include "gpu_cases.h"

#include <stdio.h>
#include <string.h>

/* ---- reductions ------------------------------------------------------------------------------ */
/* Can a step have this kind of reduction? fx_argmax, for example, first converts 16-bit floats. */
static bool folds(int kind, int dtype)
{
    const bool half = dtype == FX_DTYPE_F16 || dtype == FX_DTYPE_BF16;
    if (kind == FX_REDUCE_SQDEV)
        return gpu_is_real(dtype);
    if (kind == FX_REDUCE_ARGMAX || kind == FX_REDUCE_ARGMIN)
        return !half;
    return dtype != FX_DTYPE_BOOL || kind != FX_REDUCE_SUM;
}

static fx_tensor reduced(int dtype, int nd, const int64_t *shape, uint32_t mask)
{
    int64_t s[FX_MAX_DIMS];
    for (int d = 0; d < nd; d++)
        s[d] = mask >> d & 1 ? 1 : shape[d];
    return gpu_dense(dtype, nd, s);
}

static void reduction(gpu_visits *v, int kind, int dtype, gpu_sizes space, uint32_t mask,
                      gpu_layout how)
{
    const bool index = kind == FX_REDUCE_ARGMAX || kind == FX_REDUCE_ARGMIN;
    gpu_case c = {.step = {.op = FX_OP_REDUCE, .cls = FX_CLASS_REDUCE, .nin = 1}};
    c.in[0] = gpu_laid(dtype, space.nd, space.shape, how);
    c.step.as.reduce.fold = kind;
    c.step.as.reduce.mask = mask;
    c.step.out = reduced(index ? FX_DTYPE_I64 : dtype, space.nd, space.shape, mask);
    c.specials = gpu_is_real(dtype) && (index || kind == FX_REDUCE_MAX || kind == FX_REDUCE_MIN);
    snprintf(c.name, sizeof c.name, "reduce.%d.%s.%dd.%x.%s", kind, gpu_type_names[dtype], space.nd,
             (unsigned)mask, gpu_layout_names[how]);
    gpu_show(v, &c);
}

static void reductions(gpu_visits *v)
{
    static const int64_t rows[] = {1300, 3}, columns[] = {70, 500}, all[] = {40000};
    static const int64_t none[] = {0, 4};
    for (int kind = 0; kind <= FX_REDUCE_ARGMIN; kind++) {
        const bool index = kind == FX_REDUCE_ARGMAX || kind == FX_REDUCE_ARGMIN;
        for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++) {
            if (!folds(kind, dtype))
                continue;
            reduction(v, kind, dtype, gpu_spaces[1], 2, DENSE);
            reduction(v, kind, dtype, (gpu_sizes){1, all}, 1, DENSE);
        }
        reduction(v, kind, FX_DTYPE_F32, (gpu_sizes){2, rows}, 1, DENSE);
        reduction(v, kind, FX_DTYPE_F32, (gpu_sizes){2, columns}, 2, DENSE);
        reduction(v, kind, FX_DTYPE_F32, (gpu_sizes){2, columns}, 2, TURNED);
        reduction(v, kind, FX_DTYPE_F32, gpu_spaces[1], 4, BACKWARDS);
        for (int how = 0; how < SINGLE && !index; how++) {
            reduction(v, kind, FX_DTYPE_F32, gpu_spaces[2], 0x15, (gpu_layout)how);
            reduction(v, kind, FX_DTYPE_F32, gpu_spaces[3], 0x6a, (gpu_layout)how);
        }
        if (!index)
            reduction(v, kind, FX_DTYPE_F32, (gpu_sizes){2, none}, 1, DENSE);
    }
}

/* Σ (x − y)·x over the first or the last axes, of operands of different strides. */
static void program_reductions(gpu_visits *v)
{
    static const uint8_t types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_I32};
    for (int k = 0; k < 3; k++)
        for (uint32_t mask = 1; mask < 8; mask++) {
            gpu_case c = {.step = {.op = FX_OP_REDUCE, .cls = FX_CLASS_REDUCE, .nin = 3}};
            if (mask == 5 || mask == 2) /* the planner makes reduced × kept × reduced at most */
                continue;
            c.step.as.reduce.space = gpu_dense(types[k], 3, gpu_spaces[1].shape);
            c.in[0] = gpu_laid(types[k], 3, gpu_spaces[1].shape, DENSE);
            c.in[1] = gpu_laid(types[k], 3, gpu_spaces[1].shape, SPREAD);
            c.in[2] = gpu_laid(types[k], 3, gpu_spaces[1].shape, SINGLE);
            gpu_add_instr(&c, FX_OP_SUB, types[k], types[k], 2, 0, 1, 0);
            gpu_add_instr(&c, FX_OP_MUL, types[k], types[k], 2, 3, 2, 0);
            c.step.as.reduce.fold = FX_REDUCE_SUM;
            c.step.as.reduce.mask = mask;
            c.step.out = reduced(types[k], 3, gpu_spaces[1].shape, mask);
            snprintf(c.name, sizeof c.name, "reduce.program.%s.%x", gpu_type_names[types[k]],
                     (unsigned)mask);
            gpu_show(v, &c);
        }
}

/* Σ (x − m)·x over the second axis, as in the gradient of a layer norm's scale: m has one number
 * for all results. */
static void column_program(gpu_visits *v, int dtype)
{
    static const int64_t shape[] = {64, 500};
    gpu_case c = {.step = {.op = FX_OP_REDUCE, .cls = FX_CLASS_REDUCE, .nin = 2}};
    c.step.as.reduce.space = gpu_dense(FX_DTYPE_F32, 2, shape);
    c.in[0] = gpu_laid(dtype, 2, shape, DENSE);
    c.in[1] = gpu_dense(FX_DTYPE_F32, 2, shape);
    c.in[1].stride[0] = 0;
    c.in[1].stride[1] = 1;
    gpu_add_instr(&c, FX_OP_CAST, dtype, FX_DTYPE_F32, 1, 0, 0, 0);
    gpu_add_instr(&c, FX_OP_SUB, FX_DTYPE_F32, FX_DTYPE_F32, 2, 2, 1, 0);
    gpu_add_instr(&c, FX_OP_MUL, FX_DTYPE_F32, FX_DTYPE_F32, 2, 3, 2, 0);
    c.step.as.reduce.fold = FX_REDUCE_SUM;
    c.step.as.reduce.mask = 2;
    c.step.out = reduced(FX_DTYPE_F32, 2, shape, 2);
    snprintf(c.name, sizeof c.name, "reduce.column_program.%s", gpu_type_names[dtype]);
    gpu_show(v, &c);
}

/* Several reductions that are one step: bias gradients of several sizes, with other reduced axes
 * among them, one that is too large to share a launch, and one without results. */
static void several_reductions(gpu_visits *v, int count, int dtype, bool program)
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
        e->as.reduce.space = gpu_dense(dtype, 2, shape);
        for (int k = 0; k < nin; k++) {
            c.in[g * nin + k] = gpu_laid(dtype, 2, shape, g % 4 == 3 ? TURNED : DENSE);
            c.in_value[g * nin + k] = g * nin + k;
        }
        e->out = c.step.out = reduced(dtype, 2, shape, masks[g % 6]);
        c.segments[g].length = fx_tensor_length(&e->out);
    }
    if (program)
        gpu_add_instr(&c, FX_OP_MUL, dtype, dtype, 2, 0, 1, 0);
    snprintf(c.name, sizeof c.name, "reduce.several.%d.%s%s", count, gpu_type_names[dtype],
             program ? ".program" : "");
    gpu_show(v, &c);
}

static void all_several_reductions(gpu_visits *v)
{
    several_reductions(v, 2, FX_DTYPE_F32, false);
    several_reductions(v, 5, FX_DTYPE_F32, true);
    several_reductions(v, GPU_SEGMENTS, FX_DTYPE_F32, false);
    several_reductions(v, 6, FX_DTYPE_F64, false);
    several_reductions(v, 8, FX_DTYPE_BF16, false);
    several_reductions(v, 3, FX_DTYPE_I32, true);
}

static void scans(gpu_visits *v)
{
    static const int64_t line[] = {3000}, lines[] = {5, 900};
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
        for (int way = 0; way < 2 && dtype != FX_DTYPE_BOOL; way++) {
            const gpu_sizes all[] = {{1, line},     {2, lines},    gpu_spaces[1],
                                     gpu_spaces[1], gpu_spaces[1], gpu_spaces[2]};
            for (int k = 0; k < 6; k++) {
                gpu_case c = {.step = {.op = FX_OP_CUMSUM, .cls = FX_CLASS_SCAN, .nin = 1}};
                c.step.as.scan.axis = k < 2 ? all[k].nd - 1 : k - 2;
                c.step.as.scan.reverse = way;
                c.in[0] = gpu_laid(dtype, all[k].nd, all[k].shape, (gpu_layout)(k % SINGLE));
                c.step.out = gpu_dense(dtype, all[k].nd, all[k].shape);
                snprintf(c.name, sizeof c.name, "cumsum.%s.%d.%d", gpu_type_names[dtype], k, way);
                gpu_show(v, &c);
            }
        }
}

/* ---- rows ------------------------------------------------------------------------------------ */
static void row_instr(gpu_case *c, int op, int dtype, int nsrc, int s0, int s1, bool row, int pass,
                      int64_t attr)
{
    gpu_add_instr(c, op, dtype, dtype, nsrc, s0, s1, 0);
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
    c->step.as.row.space = gpu_dense(dtype, row_axes + 1, shape);
    c->step.as.row.row_axes = row_axes;
    snprintf(c->name, sizeof c->name, "rows.%s.%s.%d.%d", what, gpu_type_names[dtype], row_axes,
             (int)n);
}

/* Dense rows of one axis, which are read from operand 0 and written to the output. */
static void begin_dense(gpu_case *c, const char *what, int dtype, int64_t n)
{
    begin_rows(c, what, dtype, 1, n, 9);
    const fx_tensor *space = &c->step.as.row.space;
    c->in[0] = c->step.out = gpu_dense(dtype, space->ndim, space->shape);
}

/* Rows that are `columns` neighbouring columns. */
static void begin_columns(gpu_case *c, int dtype, int64_t columns, int64_t n)
{
    const int64_t shape[] = {columns, n, 3};
    begin_rows(c, "columns", dtype, 1, n, 9);
    c->step.as.row.space = gpu_dense(dtype, 3, shape);
    c->step.as.row.column_axes = 1;
    snprintf(c->name, sizeof c->name, "rows.columns.%s.%d.%d", gpu_type_names[dtype], (int)columns,
             (int)n);
}

/* log Σ exp and the softmax of a row whose elements are first multiplied by weights, of a case that
 * has its space. */
static void finish_softmax(gpu_visits *v, gpu_case *begun, gpu_layout how)
{
    gpu_case c = *begun;
    const fx_tensor *space = &c.step.as.row.space;
    const int dtype = space->dtype;
    uint32_t mask = 0;
    c.step.nin = 3;
    c.in[0] = gpu_laid(dtype, space->ndim, space->shape, how);
    c.in[1] = gpu_laid(dtype, space->ndim, space->shape, DENSE); /* the weights */
    for (int d = 0; d < space->ndim; d++)
        if (fx_row_has_axis(&c.step.as.row, d))
            mask |= 1u << d;
        else
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
    c.step.out = gpu_dense(dtype, space->ndim, space->shape);
    c.step.as.row.out_reg = 11;
    c.step.as.row.more = (fx_more_outputs){.n = 3, .reg = {10, 13, 5}};
    gpu_show(v, &c);
}

static void softmax(gpu_visits *v, int dtype, int row_axes, int64_t n, gpu_layout how)
{
    gpu_case c;
    begin_rows(&c, "softmax", dtype, row_axes, n, 9);
    finish_softmax(v, &c, how);
}

static void column_softmax(gpu_visits *v, int dtype, int64_t columns, int64_t n, gpu_layout how)
{
    gpu_case c;
    begin_columns(&c, dtype, columns, n);
    finish_softmax(v, &c, how);
}

/* The sums of a row and of its squares: one after the other they use the same local memory. */
static void two_sums(gpu_visits *v, int dtype, int64_t n)
{
    gpu_case c;
    begin_dense(&c, "two_sums", dtype, n);
    c.step.nin = 1;
    row_instr(&c, FX_OP_MUL, dtype, 2, 0, 0, false, 0, 0);               /* 1 */
    row_instr(&c, FX_OP_REDUCE, dtype, 1, 0, 0, true, 0, FX_REDUCE_SUM); /* 2 */
    row_instr(&c, FX_OP_REDUCE, dtype, 1, 1, 0, true, 0, FX_REDUCE_SUM); /* 3 */
    row_instr(&c, FX_OP_MUL, dtype, 2, 0, 2, false, 1, 0);               /* 4 */
    row_instr(&c, FX_OP_ADD, dtype, 2, 4, 3, false, 1, 0);               /* 5 */
    c.step.as.row.out_reg = 5;
    gpu_show(v, &c);
}

/* The cross-entropy of scores and a label for each row, and its gradient. Operand 2 has the numbers
 * of the classes. */
static void crossentropy(gpu_visits *v, int dtype, int64_t n)
{
    gpu_case c;
    begin_dense(&c, "crossentropy", dtype, n);
    const fx_tensor *space = &c.step.as.row.space;
    c.step.nin = 3;
    c.in[1] = reduced(FX_DTYPE_I64, space->ndim, space->shape, 1);
    c.in[2] = gpu_dense(FX_DTYPE_I64, space->ndim, space->shape);
    c.in[2].stride[1] = 0;
    c.step.as.row.counted = 1u << 2;
    gpu_add_instr(&c, FX_OP_EQ, FX_DTYPE_BOOL, FX_DTYPE_I64, 2, 2, 1, 0); /* 3 */
    gpu_add_instr(&c, FX_OP_CAST, dtype, FX_DTYPE_BOOL, 1, 3, 0, 0);      /* 4 */
    row_instr(&c, FX_OP_REDUCE, dtype, 1, 0, 0, true, 0, FX_REDUCE_MAX);  /* 5 */
    row_instr(&c, FX_OP_SUB, dtype, 2, 0, 5, false, 1, 0);                /* 6 */
    row_instr(&c, FX_OP_EXP, dtype, 1, 6, 0, false, 1, 0);                /* 7 */
    row_instr(&c, FX_OP_REDUCE, dtype, 1, 7, 0, true, 1, FX_REDUCE_SUM);  /* 8 */
    row_instr(&c, FX_OP_LOG, dtype, 1, 8, 0, true, 2, 0);                 /* 9 */
    row_instr(&c, FX_OP_SUB, dtype, 2, 6, 9, false, 2, 0);                /* 10 */
    row_instr(&c, FX_OP_MUL, dtype, 2, 4, 10, false, 2, 0);               /* 11 */
    row_instr(&c, FX_OP_REDUCE, dtype, 1, 11, 0, true, 2, FX_REDUCE_SUM); /* 12 */
    row_instr(&c, FX_OP_DIV, dtype, 2, 7, 8, false, 2, 0);                /* 13 */
    row_instr(&c, FX_OP_SUB, dtype, 2, 13, 4, false, 2, 0);               /* 14 */
    row_instr(&c, FX_OP_NEG, dtype, 1, 12, 0, true, 3, 0);                /* 15 */
    c.step.as.row.out_reg = 14;
    c.step.as.row.more = (fx_more_outputs){.n = 1, .reg = {15}};
    gpu_show(v, &c);
}

static void rows(gpu_visits *v)
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
    column_softmax(v, FX_DTYPE_F32, 5, 70, DENSE);
    column_softmax(v, FX_DTYPE_F32, 100, 3, TURNED);
    column_softmax(v, FX_DTYPE_F64, 40, 1000, DENSE);
    column_softmax(v, FX_DTYPE_BF16, 17, 33, FAR);
    softmax(v, FX_DTYPE_F16, 1, 100, DENSE);
    softmax(v, FX_DTYPE_BF16, 2, 10, DENSE);
    crossentropy(v, FX_DTYPE_F32, 1000);
    crossentropy(v, FX_DTYPE_BF16, 10);
    crossentropy(v, FX_DTYPE_BF16, 4096);
    crossentropy(v, FX_DTYPE_BF16, 16385);
}

void gpu_visit_folds(gpu_visits *v)
{
    reductions(v);
    program_reductions(v);
    column_program(v, FX_DTYPE_F32);
    column_program(v, FX_DTYPE_BF16);
    all_several_reductions(v);
    scans(v);
    rows(v);
}
