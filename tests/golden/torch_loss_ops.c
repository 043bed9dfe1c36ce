/* torch_loss_ops.c: recorded losses, mean or sum, with the gradient with respect to the prediction.
 *
 * The recorded ε is Float32's in both precisions, so it is always passed.
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
    a.gamma = torch_real(t, "gamma", 2);
    a.margin = torch_real(t, "margin", 1);
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

LOSS(focal_loss)
LOSS(binary_focal_loss)
LOSS(siamese_contrastive_loss)

/* PyTorch's blank is class 0 and its scores are classes×batch×times; here the blank is the last
 * class. */
static void op_ctc(torch_node *t)
{
    torch_only(t, "blank", 0);
    torch_text(t, "note", NULL);
    fx_array *x = fx_permute(torch_in(t, "logits"), 0, 2, 1);
    const int64_t n = fx_size(x, 0);
    fx_array *blank_last = fx_concat(0, fx_slice(x, 0, 1, n), fx_slice(x, 0, 0, 1));
    torch_out(t, "y", fx_ctc_loss(blank_last, fx_sub(torch_in(t, "targets"), 1), .none = true));
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
    SUM("focal_g2", op_focal_loss),
    SUM("binary_focal_g2", op_binary_focal_loss),
    SUM("siamese_contrastive_m1", op_siamese_contrastive_loss),
    SUM("siamese_contrastive_m2", op_siamese_contrastive_loss),
    SUM("ctc", op_ctc),
    {NULL, GOLD_POINTWISE, NULL, NULL},
};
