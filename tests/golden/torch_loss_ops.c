/* torch_loss_ops.c: recorded losses, mean or sum, with the gradient by the prediction.
 *
 * The recorded ε is Float32's in both precisions, so it is always passed. Losses that cflux does
 * not have yet (focal, contrastive) are written from operations after Flux's formulas.
 */
#include "torch_case.h"

#include "option_struct.h"

#include <string.h>

static fx_loss_args args_of(const torch_node *t)
{
    FXI_DEFAULT_OPTIONS(fx_loss_args, FXI_LOSS_ARGS, a);
    a.pred = torch_in(t, "yhat");
    a.target = torch_in(t, "y");
    a.sum = !strcmp(torch_text(t, "agg", "mean"), "sum");
    a.eps = torch_real(t, "eps", FX_EPS);
    a.delta = torch_real(t, "delta", 1);
    a.smoothing = torch_real(t, "alpha", 0);
    return a;
}

#define LOSS(name)                                                                                 \
    static void op_##name(torch_node *t)                                                           \
    {                                                                                              \
        const fx_loss_args args = args_of(t);                                                      \
        torch_out(t, "y", fxi_##name(&args));                                                      \
    }
LOSS(mse)
LOSS(mae)
LOSS(msle)
LOSS(huber_loss)
LOSS(crossentropy)
LOSS(logitcrossentropy)
LOSS(binarycrossentropy)
LOSS(logitbinarycrossentropy)
LOSS(kldivergence)
LOSS(poisson_loss)
LOSS(hinge_loss)
LOSS(squared_hinge_loss)

/* Sum, or mean over the columns or elements of `values`. */
static void aggregate(torch_node *t, fx_array *values)
{
    torch_out(t, "y", args_of(t).sum ? fx_sum(values) : fx_mean(values));
}

/* PyTorch's nll_loss of log-softmaxed predictions. */
static void op_nll(torch_node *t)
{
    fx_array *log_prob = fx_logsoftmax(torch_in(t, "yhat"));
    aggregate(t, fx_neg(fx_sum(fx_mul(torch_in(t, "y"), log_prob), .dims = FX_AXES(0))));
}

/* Huber's loss at δ = 1. */
static void op_smooth_l1(torch_node *t)
{
    fx_loss_args args = args_of(t);
    args.delta = 1;
    torch_out(t, "y", fxi_huber_loss(&args));
}

/* −Σ y·(1−p)^γ·log p, p = ŷ + ε */
static void op_focal(torch_node *t)
{
    fx_array *y = torch_in(t, "y"), *p = fx_add(torch_in(t, "yhat"), torch_real(t, "eps", 0));
    fx_array *weight = fx_pow(fx_sub(1, p), torch_real(t, "gamma", 2));
    aggregate(t, fx_neg(fx_sum(fx_mul(fx_mul(y, weight), fx_log(p)), .dims = FX_AXES(0))));
}

/* −(1−p)^γ·log p, p = y·(ŷ+ε) + (1−y)·(1−ŷ−ε) */
static void op_binary_focal(torch_node *t)
{
    fx_array *y = torch_in(t, "y"), *q = fx_add(torch_in(t, "yhat"), torch_real(t, "eps", 0));
    fx_array *p = fx_add(fx_mul(y, q), fx_mul(fx_sub(1, y), fx_sub(1, q)));
    aggregate(t, fx_neg(fx_mul(fx_pow(fx_sub(1, p), torch_real(t, "gamma", 2)), fx_log(p))));
}

/* (1−y)·ŷ² + y·max(0, margin − ŷ)² */
static void op_siamese(torch_node *t)
{
    fx_array *y = torch_in(t, "y"), *d = torch_in(t, "yhat");
    fx_array *apart = fx_square(fx_max(0, fx_sub(torch_real(t, "margin", 1), d)));
    aggregate(t, fx_add(fx_mul(fx_sub(1, y), fx_square(d)), fx_mul(y, apart)));
}

#define SUM(Name, f)                                                                               \
    {                                                                                              \
        Name, GOLD_CONTRACTION, f, NULL                                                            \
    }
const torch_op torch_loss_ops[] = {
    SUM("mse", op_mse),
    SUM("mae", op_mae),
    SUM("msle", op_msle),
    SUM("huber_d1", op_huber_loss),
    SUM("huber_d05", op_huber_loss),
    SUM("crossentropy", op_crossentropy),
    SUM("crossentropy_soft", op_crossentropy),
    SUM("logitcrossentropy", op_logitcrossentropy),
    SUM("logitcrossentropy_soft", op_logitcrossentropy),
    SUM("label_smoothing_01_logit", op_logitcrossentropy),
    SUM("binarycrossentropy", op_binarycrossentropy),
    SUM("logitbinarycrossentropy", op_logitbinarycrossentropy),
    SUM("logitbinarycrossentropy_extreme", op_logitbinarycrossentropy),
    SUM("kldivergence", op_kldivergence),
    SUM("poisson", op_poisson_loss),
    SUM("hinge", op_hinge_loss),
    SUM("squared_hinge", op_squared_hinge_loss),
    SUM("nll", op_nll),
    SUM("smooth_l1", op_smooth_l1),
    SUM("focal_g2", op_focal),
    SUM("binary_focal_g2", op_binary_focal),
    SUM("siamese_contrastive_m1", op_siamese),
    SUM("siamese_contrastive_m2", op_siamese),
    {NULL, GOLD_POINTWISE, NULL, NULL},
};
