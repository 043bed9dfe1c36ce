/* torch_optim.c: recorded trajectories of optimisers, from Flux's formulas and from PyTorch.
 *
 * loss = ½·wᵀAw − bᵀw over 20 steps; row k of the recorded trajectory is w after k steps. The model
 * is a plain array, driven as in any training loop: fx_setup, then loss, gradient, fx_update in a
 * step. PyTorch's rules that are the same as one of ours by other names are mapped to it.
 */
#include "torch_case.h"

#include <stdlib.h>
#include <string.h>

static double eta_of(const torch_node *t)
{
    return torch_real(t, "eta", torch_real(t, "lr", 0));
}
static double beta_of(const torch_node *t, int i)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(t->attrs, "beta");
    if (!list)
        list = cJSON_GetObjectItemCaseSensitive(t->attrs, "betas");
    const cJSON *item = cJSON_GetArrayItem(list, i);
    return item ? item->valuedouble : 0;
}

static fx_status step(const torch_node *t, void *state, fx_array *w)
{
    FX_STEP;
    fx_array *quadratic = fx_mul(0.5, fx_sum(fx_mul(w, fx_matmul(torch_in(t, "A"), w))));
    fx_array *loss = fx_sub(quadratic, fx_sum(fx_mul(torch_in(t, "b"), w)));
    return fx_update(state, w, fx_gradient(loss, w));
}

/* Follows the trajectory; the rows are joined into one array, as recorded. */
static void follow(torch_node *t, fx_rule *rule)
{
    fx_array *w = torch_in(t, "w0");
    const torch_array *traj = &t->out.items[0];
    const int64_t rows = traj->recorded.ndims == 2 ? traj->recorded.dims[1] : 0, n = fx_length(w);
    double *path = gold_alloc((size_t)(rows * n) * sizeof *path);
    void *state = fx_setup(rule, w);
    fx_status status = FX_OK;
    for (int64_t k = 0; k < rows && status == FX_OK; k++) {
        status = fx_read_as(w, FX_DTYPE_F64, path + k * n, n);
        if (status == FX_OK && k + 1 < rows)
            status = step(t, state, w);
    }
    torch_out(t, traj->name, fx_cast(fx_from(FX_DTYPE_F64, path, n, rows), t->real));
    fx_eval(traj->array);
    free(path);
    t->gradients_taken = true;
}

static void op_descent(torch_node *t)
{
    follow(t, fx_descent(.eta = eta_of(t)));
}
static void op_momentum(torch_node *t)
{
    follow(t, fx_momentum(.eta = eta_of(t), .rho = torch_real(t, "rho", 0)));
}
static void op_nesterov(torch_node *t)
{
    follow(t, fx_nesterov(.eta = eta_of(t), .rho = torch_real(t, "rho", 0)));
}

static void op_adam(torch_node *t)
{
    if (torch_real(t, "weight_decay", 0) != 0 || torch_flag(t, "amsgrad"))
        t->variant = torch_flag(t, "amsgrad") ? "amsgrad" : "weight_decay";
    else
        follow(t, fx_adam(.eta = eta_of(t), .beta1 = beta_of(t, 0), .beta2 = beta_of(t, 1),
                          .epsilon = torch_real(t, "eps", 0)));
}

static void adamw(torch_node *t, double lambda, bool no_couple)
{
    follow(t,
           fx_adamw(.eta = eta_of(t), .beta1 = beta_of(t, 0), .beta2 = beta_of(t, 1),
                    .epsilon = torch_real(t, "eps", 0), .lambda = lambda, .no_couple = no_couple));
}
static void op_adamw_couple(torch_node *t)
{
    adamw(t, torch_real(t, "lambda", 0), false);
}
static void op_adamw_decoupled(torch_node *t)
{
    adamw(t, torch_real(t, "lambda", 0), true);
}
static void op_adamw_torch(torch_node *t)
{
    adamw(t, torch_real(t, "weight_decay", 0), false);
}

/* PyTorch's momentum sums gradients and multiplies by the rate afterwards: the same path for a
 * constant rate. */
static void op_sgd(torch_node *t)
{
    const double rho = torch_real(t, "momentum", 0);
    if (torch_real(t, "weight_decay", 0) != 0)
        t->variant = "weight_decay";
    else if (torch_real(t, "dampening", 0) != 0)
        t->variant = "dampening";
    else if (rho == 0)
        follow(t, fx_descent(.eta = eta_of(t)));
    else if (torch_flag(t, "nesterov"))
        follow(t, fx_nesterov(.eta = eta_of(t), .rho = rho));
    else
        follow(t, fx_momentum(.eta = eta_of(t), .rho = rho));
}

#define RUN(Name, f)                                                                               \
    {                                                                                              \
        Name, GOLD_CONTRACTION, f, NULL                                                            \
    }
const torch_op torch_optim_ops[] = {
    RUN("Descent", op_descent),
    RUN("Momentum", op_momentum),
    RUN("Nesterov", op_nesterov),
    RUN("Adam", op_adam),
    RUN("AdamW", op_adamw_torch),
    RUN("AdamW_couple", op_adamw_couple),
    RUN("AdamW_decoupled", op_adamw_decoupled),
    RUN("SGD", op_sgd),
    {NULL, GOLD_POINTWISE, NULL, NULL},
};
