/* gpu_cases.c: values and functions that the lists of steps share; see gpu_cases.h. */
#include "gpu_cases.h"

#include <string.h>

const char *const gpu_type_names[FX_DTYPE_COUNT] = {
    [FX_DTYPE_F32] = "f32", [FX_DTYPE_F64] = "f64",  [FX_DTYPE_I32] = "i32",
    [FX_DTYPE_I64] = "i64", [FX_DTYPE_U8] = "u8",    [FX_DTYPE_BOOL] = "bool",
    [FX_DTYPE_F16] = "f16", [FX_DTYPE_BF16] = "bf16"};

bool gpu_is_real(int dtype)
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

void gpu_show(gpu_visits *v, gpu_case *c)
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
const char *const gpu_layout_names[LAYOUTS] = {"dense",     "turned", "spread",
                                               "backwards", "far",    "single"};

fx_tensor gpu_dense(int dtype, int nd, const int64_t *shape)
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

fx_tensor gpu_laid(int dtype, int nd, const int64_t *shape, gpu_layout how)
{
    fx_tensor t = gpu_dense(dtype, nd, shape);
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
const gpu_sizes gpu_spaces[GPU_SPACES] = {{2, matrix}, {3, brick}, {5, five}, {8, eight}};

void gpu_add_instr(gpu_case *c, int op, int dtype, int from, int nsrc, int s0, int s1, int s2)
{
    c->program[c->ninstr++] = (fx_instr){.op = (uint8_t)op,
                                         .dtype = (uint8_t)dtype,
                                         .from = (uint8_t)from,
                                         .nsrc = (uint8_t)nsrc,
                                         .src = {(uint8_t)s0, (uint8_t)s1, (uint8_t)s2}};
}
