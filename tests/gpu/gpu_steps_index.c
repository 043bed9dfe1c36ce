/* gpu_steps_index.c: the steps of gather and scatter in the list of gpu_steps.h. */
#include "gpu_cases.h"

#include <stdio.h>

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

static void gathers(gpu_visits *v)
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
            c.in[0] = gpu_laid(dtype, 3, x, (gpu_layout)(dtype % SINGLE));
            c.in[1] = gpu_laid(dtype % 2 ? FX_DTYPE_I32 : FX_DTYPE_I64, 2, idx,
                               dtype % 3 ? DENSE : TURNED);
            c.step.out = gpu_dense(dtype, 4, shape);
            snprintf(c.name, sizeof c.name, "gather.%s.%d", gpu_type_names[dtype], axis);
            gpu_show(v, &c);
        }
}

/* Rows that are moved as vectors: along the second axis, out of a longer one, as embeddings are. */
static void gathers_of_rows(gpu_visits *v)
{
    static const int dtypes[] = {FX_DTYPE_F32, FX_DTYPE_BF16, FX_DTYPE_U8, FX_DTYPE_F64};
    static const int64_t x[] = {32, 7, 2}, idx[] = {5}, out[] = {32, 5, 2};
    for (int k = 0; k < 4; k++) {
        gpu_case c = {.step = {.op = FX_OP_GATHER, .cls = FX_CLASS_GATHER, .nin = 2},
                      .exact = true,
                      .index_size = x[1]};
        c.step.as.gather.axis = 1;
        c.in[0] = gpu_dense(dtypes[k], 3, x);
        c.in[1] = gpu_dense(FX_DTYPE_I64, 1, idx);
        c.step.out = gpu_dense(dtypes[k], 3, out);
        snprintf(c.name, sizeof c.name, "gather.rows.%s", gpu_type_names[dtypes[k]]);
        gpu_show(v, &c);
    }
}

static void scatter(gpu_visits *v, int kind, int dtype, int axis, bool large)
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
    c.in[0] = gpu_laid(dtype, 4, shape, axis == 1 ? TURNED : axis == 2 ? FAR : DENSE);
    c.in[1] = gpu_laid(axis == 1 ? FX_DTYPE_I32 : FX_DTYPE_I64, 2, large ? many : idx,
                       axis == 2 ? TURNED : DENSE);
    c.step.out = gpu_dense(dtype, 3, out);
    snprintf(c.name, sizeof c.name, "scatter.%d.%s.%d.%s", kind, gpu_type_names[dtype], axis,
             large ? "atomic" : "looks");
    gpu_show(v, &c);
}

static void scatters(gpu_visits *v)
{
    for (int kind = FX_REDUCE_SUM; kind <= FX_REDUCE_PROD; kind++)
        for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
            for (int large = 0; large < 2 && dtype != FX_DTYPE_BOOL; large++)
                scatter(v, kind, dtype, (kind + dtype) % 3, large);
}

/* Rows that are read as vectors: the gradient of an embedding, folded by atomic operations. */
static void scatters_of_rows(gpu_visits *v)
{
    static const struct {
        int kind, dtype;
    } all[] = {{FX_REDUCE_SUM, FX_DTYPE_F32}, {FX_REDUCE_SUM, FX_DTYPE_BF16},
               {FX_REDUCE_SUM, FX_DTYPE_I64}, {FX_REDUCE_MAX, FX_DTYPE_F16},
               {FX_REDUCE_MIN, FX_DTYPE_F64}, {FX_REDUCE_MAX, FX_DTYPE_U8}};
    static const int64_t src[] = {32, 600, 2}, idx[] = {600}, out[] = {32, 120, 2};
    for (int k = 0; k < (int)(sizeof all / sizeof *all); k++) {
        gpu_case c = {.step = {.op = FX_OP_SCATTER, .cls = FX_CLASS_SCATTER, .nin = 2},
                      .index_size = out[1]};
        c.step.as.scatter.fold = all[k].kind;
        c.step.as.scatter.axis = 1;
        c.in[0] = gpu_dense(all[k].dtype, 3, src);
        c.in[1] = gpu_dense(FX_DTYPE_I64, 1, idx);
        c.step.out = gpu_dense(all[k].dtype, 3, out);
        snprintf(c.name, sizeof c.name, "scatter.rows.%d.%s", all[k].kind,
                 gpu_type_names[all[k].dtype]);
        gpu_show(v, &c);
    }
}

void gpu_visit_index(gpu_visits *v)
{
    gathers(v);
    gathers_of_rows(v);
    scatters(v);
    scatters_of_rows(v);
}
