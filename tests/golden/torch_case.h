/* torch_case.h: one recorded PyTorch case as its operator function sees it.
 *
 * A function sets the outputs, built from the inputs by name. Then torch_gradients computes the
 * gradients of Σ output·gy with respect to every input that has a recorded gradient, unless the
 * function computed them itself (layers whose state moves when the training step closes).
 */
#ifndef TORCH_CASE_H
#define TORCH_CASE_H

#include "golden.h"

enum { TORCH_MAX_ARRAYS = 16 };

typedef struct torch_array {
    const char *name;
    gold_tensor recorded; /* inputs: what was loaded; outputs and gradients: what is expected */
    fx_array *array;      /* inputs: the same for cflux; outputs and gradients: the result */
    bool used;            /* inputs: the operator's function asked for it */
} torch_array;

typedef struct torch_list {
    torch_array items[TORCH_MAX_ARRAYS];
    int n;
} torch_list;

typedef struct torch_node {
    const char *group, *op;
    const cJSON *attrs;
    fx_dtype real; /* Float32 or Float64 */
    torch_list in, out, grad;
    bool gradients_taken;
    const char *variant; /* set by a function that meets a form which is not built */
} torch_node;

/* Every row of an operator's name is run: an operation, and the layer that wraps it. */
typedef struct torch_op {
    const char *name;
    gold_kind kind;
    void (*run)(torch_node *t);
    fx_array *(*unary)(fx_array *x); /* y = unary(x) instead of run */
} torch_op;

/* Tables end with a row without a name. */
extern const torch_op torch_array_ops[], torch_layer_ops[], torch_loss_ops[];
/* Trajectories of optimisers: groups optim_flux and optim_torch. */
extern const torch_op torch_optim_ops[];

fx_array *torch_in(const torch_node *t, const char *name); /* NULL when there is no such input */
void torch_out(torch_node *t, const char *name, fx_array *x);
void torch_gradients(torch_node *t);

/* Reads an attribute of which one value is built; another is the form `attr` that is not. */
void torch_only(torch_node *t, const char *attr, double value);
bool torch_has(const torch_node *t, const char *attr); /* does not count as reading it */
bool torch_flag(const torch_node *t, const char *attr);
double torch_real(const torch_node *t, const char *attr, double otherwise);
const char *torch_text(const torch_node *t, const char *attr, const char *otherwise);
/* One number per spatial axis (or one for all), in our order. */
fx_dims torch_spatial(const torch_node *t, const char *attr, int nd, int64_t otherwise);

#endif
