/* onnx_train.c: ONNX's training operators, written out from their formulas.
 *
 * They are not cflux's optimisers (torch_optim.c tests these on recorded trajectories); here the
 * formulas exercise the operations. Arguments: learning rate R, step T, then all X, all G, all V
 * and, for Adam, all H; outputs in the same order without G.
 */
#include "onnx_case.h"

#include <string.h>

/* Tensor k of group g (0: X, 1: G, 2: V, 3: H) when each group has `count` tensors. */
static fx_array *argument(const onnx_node *n, int count, int g, int k)
{
    return n->in[2 + g * count + k];
}

static fx_array *regularised(const onnx_node *n, fx_array *x, fx_array *g)
{
    return fx_add(fx_mul(onnx_real(n, "norm_coefficient", 0), x), g);
}

/* r = R/(1 + T·decay); H' = H + G²; X' = X − r·G/(√H' + ε) */
static void op_adagrad(onnx_node *n)
{
    const int count = (n->nin - 2) / 3;
    fx_array *rate = fx_div(n->in[0], fx_add(1, fx_mul(onnx_real(n, "decay_factor", 0), n->in[1])));
    for (int k = 0; k < count; k++) {
        fx_array *x = argument(n, count, 0, k), *g = regularised(n, x, argument(n, count, 1, k));
        fx_array *h = fx_add(argument(n, count, 2, k), fx_square(g));
        fx_array *step = fx_div(g, fx_add(fx_sqrt(h), onnx_real(n, "epsilon", 1e-6)));
        n->out[k] = fx_sub(x, fx_mul(rate, step));
        n->out[count + k] = h;
    }
}

/* V' = αV + (1−α)G; H' = βH + (1−β)G²; X' = X − r·V'/(√H' + ε), r = R·√(1−β^T)/(1−α^T) for T > 0 */
static void op_adam(onnx_node *n)
{
    const int count = (n->nin - 2) / 4;
    const double alpha = onnx_real(n, "alpha", 0.9), beta = onnx_real(n, "beta", 0.999);
    fx_array *rate = n->in[0], *t = n->in[1];
    if (fx_item(t) > 0)
        rate =
            fx_mul(rate, fx_div(fx_sqrt(fx_sub(1, fx_pow(beta, t))), fx_sub(1, fx_pow(alpha, t))));
    for (int k = 0; k < count; k++) {
        fx_array *x = argument(n, count, 0, k), *g = regularised(n, x, argument(n, count, 1, k));
        fx_array *v = fx_add(fx_mul(alpha, argument(n, count, 2, k)), fx_mul(1 - alpha, g));
        fx_array *h =
            fx_add(fx_mul(beta, argument(n, count, 3, k)), fx_mul(1 - beta, fx_square(g)));
        fx_array *step = fx_div(v, fx_add(fx_sqrt(h), onnx_real(n, "epsilon", 1e-6)));
        x = fx_sub(x, fx_mul(rate, step));
        n->out[k] = fx_mul(1 - onnx_real(n, "norm_coefficient_post", 0), x);
        n->out[count + k] = v;
        n->out[2 * count + k] = h;
    }
}

/* V' = αV + β·G (β is 1 at T = 0); X' = X − R·V', or X − R·(G + αV') for Nesterov's form */
static void op_momentum(onnx_node *n)
{
    const int count = (n->nin - 2) / 3;
    const double alpha = onnx_real(n, "alpha", 0), later = onnx_real(n, "beta", 1),
                 beta = fx_item(n->in[1]) > 0 ? later : 1;
    const bool nesterov = !strcmp(onnx_text(n, "mode", "standard"), "nesterov");
    for (int k = 0; k < count; k++) {
        fx_array *x = argument(n, count, 0, k), *g = regularised(n, x, argument(n, count, 1, k));
        fx_array *v = fx_add(fx_mul(alpha, argument(n, count, 2, k)), fx_mul(beta, g));
        fx_array *step = nesterov ? fx_add(g, fx_mul(alpha, v)) : v;
        n->out[k] = fx_sub(x, fx_mul(n->in[0], step));
        n->out[count + k] = v;
    }
}

const onnx_op onnx_train_ops[] = {
    {"Adagrad", GOLD_POINTWISE, op_adagrad, NULL, NULL},
    {"Adam", GOLD_POINTWISE, op_adam, NULL, NULL},
    {"Momentum", GOLD_POINTWISE, op_momentum, NULL, NULL},
    {NULL, GOLD_POINTWISE, NULL, NULL, NULL},
};
