/* torch_optim.c: recorded trajectories of optimisers, from Flux's formulas and from PyTorch.
 *
 * loss = ½·wᵀAw − bᵀw over 20 updates; row k of the recorded trajectory is w after k updates. The
 * model is a plain array, trained as in any training loop: fx_setup, then loss, gradient, fx_update
 * in a training step. PyTorch's rules that equal one of ours under another name are mapped to it.
 */
#include "torch_case.h"

#include <math.h>
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

/* The differences of a trajectory from the plain one of its rule. */
typedef struct course {
    double square; /* PyTorch's weight decay as part of the loss: ½λ|w|² gives the gradient λw */
    bool from_zero; /* the state begins with zeros instead of the rule's own values */
    double (*rate)(const torch_node *t, int64_t k); /* η of update k; NULL: constant */
} course;

static fx_status step(const torch_node *t, void *state, fx_array *w, course p)
{
    FX_STEP;
    fx_array *quadratic = fx_mul(0.5, fx_sum(fx_mul(w, fx_matmul(torch_in(t, "A"), w))));
    fx_array *loss = fx_sub(quadratic, fx_sum(fx_mul(torch_in(t, "b"), w)));
    if (p.square != 0)
        loss = fx_add(loss, fx_mul(0.5 * p.square, fx_sum(fx_square(w))));
    return fx_update(state, w, fx_gradient(loss, w));
}

/* Reads options of PyTorch that only select an implementation, or that are off. */
static void read_switches(torch_node *t)
{
    static const char *const off[] = {"amsgrad",        "maximize", "capturable",
                                      "differentiable", "fused",    "dampening"};
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        torch_only(t, off[i], 0);
}

/* Follows the trajectory; the rows are joined into one array, as recorded. */
static void follow_course(torch_node *t, fx_rule *rule, course p)
{
    read_switches(t);
    fx_array *w = torch_in(t, "w0");
    const torch_array *traj = &t->out.items[0];
    const int64_t rows = traj->recorded.ndims == 2 ? traj->recorded.sizes[1] : 0, n = fx_length(w);
    double *path = gold_alloc((size_t)(rows * n) * sizeof *path);
    void *state = fx_setup(rule, w);
    fx_status status = FX_OK;
    for (int64_t i = 0; p.from_zero && i < fx_count(state); i++)
        if (fx_is_array(fx_child(state, i)))
            fx_copy_into(fx_child(state, i), fx_zeros_like(fx_child(state, i)));
    for (int64_t k = 0; k < rows && status == FX_OK; k++) {
        status = fx_read_as(w, FX_DTYPE_F64, path + k * n, n);
        if (status == FX_OK && p.rate)
            status = fx_adjust_eta(state, p.rate(t, k));
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
    follow_course(t, rule, (course){0});
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
    follow(t, fx_optimiser_chain(fx_weight_decay(.lambda = torch_real(t, "lambda", 0)),
                                 fx_descent(.eta = eta_of(t))));
}
static void op_sign_decay(torch_node *t)
{
    follow(t, fx_optimiser_chain(fx_sign_decay(.lambda = torch_real(t, "lambda", 0)),
                                 fx_descent(.eta = eta_of(t))));
}

#define OF_ADAM(name)                                                                              \
    static void op_##name(torch_node *t)                                                           \
    {                                                                                              \
        follow(t, fx_##name(.eta = eta_of(t), .beta1 = beta_of(t, 0), .beta2 = beta_of(t, 1),      \
                            .epsilon = torch_real(t, "eps", 1e-8)));                               \
    }
OF_ADAM(nadam)
OF_ADAM(oadam)
OF_ADAM(adabelief)

static void op_rmsprop(torch_node *t)
{
    follow(t,
           fx_rmsprop(.eta = eta_of(t), .rho = torch_real(t, "rho", 0.9),
                      .epsilon = torch_real(t, "eps", 1e-8), .centred = torch_flag(t, "centred")));
}
static void op_adadelta(torch_node *t)
{
    torch_only(t, "lr", 1);
    torch_only(t, "weight_decay", 0);
    follow(t, fx_adadelta(.rho = torch_real(t, "rho", 0.9), .epsilon = torch_real(t, "eps", 1e-8)));
}

/* PyTorch's momentum after RMSprop sums what RMSprop of rate 1 gives. */
static void op_rmsprop_torch(torch_node *t)
{
    torch_only(t, "weight_decay", 0);
    const double momentum = torch_real(t, "momentum", 0), rate = eta_of(t);
    fx_rule *rule =
        fx_rmsprop(.eta = momentum == 0 ? rate : 1, .rho = torch_real(t, "alpha", 0.99),
                   .epsilon = torch_real(t, "eps", 1e-8), .centred = torch_flag(t, "centered"));
    follow(t, momentum == 0 ? rule
                            : fx_optimiser_chain(rule, fx_momentum(.eta = rate, .rho = momentum)));
}

static void op_rprop(torch_node *t)
{
    const cJSON *ell = gold_list(t->attrs, "etas"), *gamma = gold_list(t->attrs, "step_sizes");
    follow(t, fx_rprop(.eta = eta_of(t), .ell1 = cJSON_GetArrayItem(ell, 0)->valuedouble,
                       .ell2 = cJSON_GetArrayItem(ell, 1)->valuedouble,
                       .gamma1 = cJSON_GetArrayItem(gamma, 0)->valuedouble,
                       .gamma2 = cJSON_GetArrayItem(gamma, 1)->valuedouble));
}

/* PyTorch's sum of squares begins with 0, Optimisers.jl's with ε. */
static void op_adagrad_torch(torch_node *t)
{
    torch_only(t, "lr_decay", 0);
    torch_only(t, "weight_decay", 0);
    torch_only(t, "initial_accumulator_value", 0);
    follow_course(t, fx_adagrad(.eta = eta_of(t), .epsilon = torch_real(t, "eps", 1e-10)),
                  (course){.from_zero = true});
}

/* PyTorch's ASGD: w is multiplied by 1 − λη before the update, and η falls. The average of w that
 * it also keeps is not in the trajectory. */
static double asgd_rate(const torch_node *t, int64_t k)
{
    const double lr = eta_of(t), lambda = torch_real(t, "lambd", 1e-4);
    /* PyTorch keeps the rate in Float32 */
    return (float)(lr / pow(1 + lambda * lr * (double)k, torch_real(t, "alpha", 0.75)));
}
static void op_asgd(torch_node *t)
{
    torch_only(t, "weight_decay", 0);
    torch_only(t, "t0", 1e6);
    fx_rule *decay = fx_weight_decay(.lambda = torch_real(t, "lambd", 1e-4));
    follow_course(t, fx_optimiser_chain(decay, fx_descent(.eta = eta_of(t))),
                  (course){.rate = asgd_rate});
}

static void op_adam(torch_node *t)
{
    follow_course(t,
                  fx_adam(.eta = eta_of(t), .beta1 = beta_of(t, 0), .beta2 = beta_of(t, 1),
                          .epsilon = torch_real(t, "eps", 1e-8)),
                  (course){.square = torch_real(t, "weight_decay", 0)});
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
    const course p = {.square = torch_real(t, "weight_decay", 0)};
    const bool nesterov = torch_flag(t, "nesterov");
    fx_rule *rule = rho == 0   ? fx_descent(.eta = eta_of(t))
                    : nesterov ? fx_nesterov(.eta = eta_of(t), .rho = rho)
                               : fx_momentum(.eta = eta_of(t), .rho = rho);
    follow_course(t, rule, p);
}

/* The recorded rates of 30 steps. */
static void op_schedule(torch_node *t)
{
    const double base = torch_real(t, "base_lr", 1);
    fx_schedule *s = !strcmp(t->op, "cosine_T30") ? fx_schedule_cosine(base, 0, 30, false)
                     : !strcmp(t->op, "poly_2")   ? fx_schedule_poly(base, 2, 30)
                                                  : fx_schedule_step(base, 0.5, 10);
    double rates[30];
    for (int k = 0; k < 30; k++)
        rates[k] = fx_schedule_at(s, k);
    torch_out(t, "lr", fx_cast(fx_from(FX_DTYPE_F64, rates, 30), t->real));
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
    RUN("AdaBelief", op_adabelief),
    RUN("AdaDelta", op_adadelta),
    RUN("Adadelta", op_adadelta),
    RUN("Adagrad", op_adagrad_torch),
    RUN("ASGD", op_asgd),
    RUN("NAdam", op_nadam),
    RUN("OAdam", op_oadam),
    RUN("RMSProp", op_rmsprop),
    RUN("RMSProp_centred", op_rmsprop),
    RUN("RMSprop", op_rmsprop_torch),
    RUN("Rprop", op_rprop),
    RUN("cosine_T30", op_schedule),
    RUN("poly_2", op_schedule),
    RUN("step10_05", op_schedule),
    RUN("SignDecay_Descent", op_sign_decay),
    RUN("WeightDecay_Descent", op_weight_decay),
    {NULL, GOLD_POINTWISE, NULL, NULL},
};
