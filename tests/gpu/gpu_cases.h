/* gpu_cases.h: values and functions that the lists of steps share (gpu_steps.c,
 * gpu_steps_attention.c, gpu_steps_folds.c, gpu_steps_index.c).
 */
#ifndef GPU_CASES_H
#define GPU_CASES_H

#include "gpu_steps.h"

typedef struct gpu_visits {
    gpu_visitor visit;
    void *user;
    int count;
} gpu_visits;

/* Completes a step and passes it to the visitor. */
void gpu_show(gpu_visits *v, gpu_case *c);
void gpu_add_instr(gpu_case *c, int op, int dtype, int from, int nsrc, int s0, int s1, int s2);

extern const char *const gpu_type_names[FX_DTYPE_COUNT];
bool gpu_is_real(int dtype);

/* ---- tensors --------------------------------------------------------------------------------- */
typedef enum gpu_layout { DENSE, TURNED, SPREAD, BACKWARDS, FAR, SINGLE, LAYOUTS } gpu_layout;
extern const char *const gpu_layout_names[LAYOUTS];

typedef struct gpu_sizes {
    int nd;
    const int64_t *shape;
} gpu_sizes;
enum { GPU_SPACES = 4 };
/* A matrix, and shapes of three, five and eight axes. */
extern const gpu_sizes gpu_spaces[GPU_SPACES];

fx_tensor gpu_dense(int dtype, int nd, const int64_t *shape);
/* A tensor of these sizes in another gpu_layout. TURNED: the last axis is the fastest. SPREAD: the
 * first axis is repeated. BACKWARDS: every stride is negative. FAR: the last axis spans more than
 * 2³¹ elements. SINGLE: one value for all. */
fx_tensor gpu_laid(int dtype, int nd, const int64_t *shape, gpu_layout how);

/* ---- lists ----------------------------------------------------------------------------------- */
/* Gathers and scatters. */
void gpu_visit_index(gpu_visits *v);
/* Reductions, scans and rows. */
void gpu_visit_folds(gpu_visits *v);

#endif
