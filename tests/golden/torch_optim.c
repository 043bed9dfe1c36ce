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
    const cJSON *list = gold_list(t->attrs, gold_has(t->attrs, "beta") ? "beta" : "betas");
    const cJSON *item = cJSON_GetArrayItem(list, i);
    return item ? item->valuedouble : 0;
}

/* What the rule's weight decay adds to the loss: ½λ|w|² gives the gradient λw, λ|w|₁ gives λ·sign
 * w. */
typedef struct penalty {
    double square, sign;
} penalty;

static fx_status step(const torch_node *t, void *state, fx_array *w, penalty p)
{
    FX_STEP;
    fx_array *quadratic = fx_mul(0.5, fx_sum(fx_mul(w, fx_matmul(torch_in(t, "A"), w))));
    fx_array *loss = fx_sub(quadratic, fx_sum(fx_mul(torch_in(t, "b"), w)));
    if (p.square != 0)
        loss = fx_add(loss, fx_mul(0.5 * p.square, fx_sum(fx_square(w))));
    if (p.sign != 0)
        loss = fx_add(loss, fx_mul(p.sign, fx_sum(fx_abs(w))));
    return fx_update(state, w, fx_gradient(loss, w));
}

/* Switches of PyTorch that say how it computes, or that are off. */
static void read_switches(torch_node *t)
{
    static const char *const off[] = {"amsgrad",        "maximize", "capturable",
                                      "differentiable", "fused",    "dampening"};
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        torch_only(t, off[i], 0);
}

/* Follows the trajectory; the rows are joined into one array, as recorded. */
static void follow_penalised(torch_node *t, fx_rule *rule, penalty p)
{
    read_switches(t);
    fx_array *w = torch_in(t, "w0");
    const torch_array *traj = &t->out.items[0];
    const int64_t rows = traj->recorded.ndims == 2 ? traj->recorded.sizes[1] : 0, n = fx_length(w);
    double *path = gold_alloc((size_t)(rows * n) * sizeof *path);
    void *state = fx_setup(rule, w);
    fx_status status = FX_OK;
    for (int64_t k = 0; k < rows && status == FX_OK; k++) {
        status = fx_read_as(w, FX_DTYPE_F64, path + k * n, n);
        if (status == FX_OK && k + 1 < rows)
            status = step(t, state, w, p);
    }
    torch_out(t, traj->name, fx_cast(fx_from(FX_DTYPE_F64, path, n, rows), t->real));
    fx_eval(traj->array);
    free(path);
    t->gradients_taken = true;
}

static void follow(torch_node *t, fx_rule *rule)
{
    follow_penalised(t, rule, (penalty){0});
}

static void op_descent(torch_node *t)
{
    follow(t, fx_descent(.eta = eta_of(t)));
}
static void op_momentum(torch_node *t)
{
    follow(t, fx_momentum(.eta = eta_of(t), .rho = torch_real(t, "rho", 0.9)));
}
static void op_nesterov(torch_node *t)
{
    follow(t, fx_nesterov(.eta = eta_of(t), .rho = torch_real(t, "rho", 0.9)));
}

/* Optimisers.jl's WeightDecay and SignDecay before Descent. */
static void op_weight_decay(torch_node *t)
{
    follow_penalised(t, fx_descent(.eta = eta_of(t)),
                     (penalty){.square = torch_real(t, "lambda", 0)});
}
static void op_sign_decay(torch_node *t)
{
    follow_penalised(t, fx_descent(.eta = eta_of(t)),
                     (penalty){.sign = torch_real(t, "lambda", 0)});
}

static void op_adam(torch_node *t)
{
    follow_penalised(t,
                     fx_adam(.eta = eta_of(t), .beta1 = beta_of(t, 0), .beta2 = beta_of(t, 1),
                             .epsilon = torch_real(t, "eps", 1e-8)),
                     (penalty){.square = torch_real(t, "weight_decay", 0)});
}

static void adamw(torch_node *t, double lambda, bool couple)
{
    follow(t, fx_adamw(.eta = eta_of(t), .beta1 = beta_of(t, 0), .beta2 = beta_of(t, 1),
                       .epsilon = torch_real(t, "eps", 1e-8), .lambda = lambda, .couple = couple));
}
static void op_adamw_couple(torch_node *t)
{
    adamw(t, torch_real(t, "lambda", 0), true);
}
static void op_adamw_decoupled(torch_node *t)
{
    adamw(t, torch_real(t, "lambda", 0), false);
}
static void op_adamw_torch(torch_node *t)
{
    adamw(t, torch_real(t, "weight_decay", 0), true);
}

/* PyTorch's momentum sums gradients and multiplies by the rate afterwards: the same path for a
 * constant rate. */
static void op_sgd(torch_node *t)
{
    const double rho = torch_real(t, "momentum", 0);
    const penalty p = {.square = torch_real(t, "weight_decay", 0)};
    const bool nesterov = torch_flag(t, "nesterov");
    fx_rule *rule = rho == 0   ? fx_descent(.eta = eta_of(t))
                    : nesterov ? fx_nesterov(.eta = eta_of(t), .rho = rho)
                               : fx_momentum(.eta = eta_of(t), .rho = rho);
    follow_penalised(t, rule, p);
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
    RUN("SignDecay_Descent", op_sign_decay),
    RUN("WeightDecay_Descent", op_weight_decay),
    {NULL, GOLD_POINTWISE, NULL, NULL},
};
