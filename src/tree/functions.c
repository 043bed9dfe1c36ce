/* functions.c: functions as objects, and the call of a layer or function.
 *
 * The functions that layers take are static objects that are never freed. Their names are those
 * that Flux prints: NNlib's gelu is gelu_tanh, its sigmoid σ, and flatten belongs to Flux. The
 * table lists them one by one because names and C symbols follow no common rule. A function of
 * tree.h that is missing from the table causes a link error.
 */
#include "functions.h"
#include "error.h"
#include "node.h"

#include <cflux/ops.h>

static void *function_forward(void *self, int n, void *const *args)
{
    const fx_function *f = self;
    if (f->combine && n > 0)
        return f->combine(n, args);
    if (n != 1)
        fx_fail(FX_STATUS_ARGUMENT, "call", "%s takes one array, got %d arguments", f->name, n);
    else if (!fx_is_array(args[0]))
        fx_fail(FX_STATUS_ARGUMENT, "call", "%s takes an array, got a %s", f->name,
                fx_type_of(args[0])->name);
    else
        return f->apply(args[0]);
    return fx_error_array(FX_STATUS_ARGUMENT);
}

static fx_array *no_function(fx_array *x)
{
    (void)x;
    return fx_error_array(FX_STATUS_MEMORY);
}

static fx_function function_error = {.apply = no_function, .name = "error"};
const fx_type fxi_function_type = {.fxi_size = sizeof(fx_type),
                                   .name = "Function",
                                   .size = sizeof(fx_function),
                                   .forward = function_forward,
                                   .error = &function_error,
                                   .flags = FX_TYPE_FUNCTION | FX_TYPE_ONE_LINE};

static fx_array *softmax(fx_array *x)
{
    return fx_softmax(x);
}
static fx_array *logsoftmax(fx_array *x)
{
    return fx_logsoftmax(x);
}
static fx_array *only(fx_array *x)
{
    char sizes[FXI_SHAPE_TEXT];
    if (fx_is_error(x))
        return x;
    if (fx_length(x) == 1)
        return fxi_reshape(x, 0, NULL);
    return fx_error_array(fx_fail(FX_STATUS_SHAPE, "only", "expects an array of 1 element, got %s",
                                  fxi_shape_text(x->node->ndim, x->node->shape, sizes)));
}

#define FUNCTION(symbol, function, printed)                                                        \
    fx_function fxi_function_##symbol = {                                                          \
        {.type = &fxi_function_type, .refs = FXI_IMMORTAL}, function, printed, NULL};
FUNCTION(identity, fx_identity, "identity")
FUNCTION(sigmoid, fx_sigmoid, "σ")
FUNCTION(hardsigmoid, fx_hardsigmoid, "hardσ")
FUNCTION(logsigmoid, fx_logsigmoid, "logσ")
FUNCTION(tanh, fx_tanh, "tanh")
FUNCTION(hardtanh, fx_hardtanh, "hardtanh")
FUNCTION(relu, fx_relu, "relu")
FUNCTION(relu6, fx_relu6, "relu6")
FUNCTION(leakyrelu, fx_leakyrelu, "leakyrelu")
FUNCTION(rrelu, fx_rrelu, "rrelu")
FUNCTION(elu, fx_elu, "elu")
FUNCTION(celu, fx_celu, "celu")
FUNCTION(selu, fx_selu, "selu")
FUNCTION(gelu, fx_gelu, "gelu_tanh")
FUNCTION(gelu_sigmoid, fx_gelu_sigmoid, "gelu_sigmoid")
FUNCTION(gelu_erf, fx_gelu_erf, "gelu_erf")
FUNCTION(swish, fx_swish, "swish")
FUNCTION(hardswish, fx_hardswish, "hardswish")
FUNCTION(lisht, fx_lisht, "lisht")
FUNCTION(softplus, fx_softplus, "softplus")
FUNCTION(softsign, fx_softsign, "softsign")
FUNCTION(logcosh, fx_logcosh, "logcosh")
FUNCTION(mish, fx_mish, "mish")
FUNCTION(tanhshrink, fx_tanhshrink, "tanhshrink")
FUNCTION(softshrink, fx_softshrink, "softshrink")
FUNCTION(trelu, fx_trelu, "trelu")
FUNCTION(exp, fx_exp, "exp")
FUNCTION(expm1, fx_expm1, "expm1")
FUNCTION(sin, fx_sin, "sin")
FUNCTION(cos, fx_cos, "cos")
FUNCTION(tan, fx_tan, "tan")
FUNCTION(atan, fx_atan, "atan")
FUNCTION(sinh, fx_sinh, "sinh")
FUNCTION(cosh, fx_cosh, "cosh")
FUNCTION(asinh, fx_asinh, "asinh")
FUNCTION(abs, fx_abs, "abs")
FUNCTION(abs2, fx_square, "abs2")
FUNCTION(sign, fx_sign, "sign")
FUNCTION(inv, fx_reciprocal, "inv")
FUNCTION(sqrt, fx_sqrt, "sqrt")
FUNCTION(log, fx_log, "log")
FUNCTION(log1p, fx_log1p, "log1p")
FUNCTION(asin, fx_asin, "asin")
FUNCTION(acos, fx_acos, "acos")
FUNCTION(acosh, fx_acosh, "acosh")
FUNCTION(atanh, fx_atanh, "atanh")
FUNCTION(vec, fx_vec, "vec")
FUNCTION(softmax, softmax, "softmax")
FUNCTION(logsoftmax, logsoftmax, "logsoftmax")
FUNCTION(flatten, fx_flatten, "Flux.flatten")
FUNCTION(only, only, "only")
#undef FUNCTION

fx_function *fx_function_new(const char *name, fx_array *(*apply)(fx_array *x))
{
    if (!name || !apply) {
        fx_fail(FX_STATUS_ARGUMENT, "function_new", "needs a name and a function");
        return fx_error_object(&fxi_function_type);
    }
    const fx_function init = {.apply = apply, .name = name};
    return fxi_new(&fxi_function_type, &init);
}

void *fxi_call(void *model, int n, void *const *args)
{
    if (!model)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "call", "the model is NULL"));
    if (fx_is_error(model))
        return fx_error_array(fxi_object_status(model));
    const fx_type *type = fx_type_of(model);
    if (!type->forward)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "call", "%s is not a layer", type->name));
    const fx_status listed = fxi_check_list("call", "inputs", n, args);
    if (listed != FX_OK)
        return fx_error_array(listed);
    for (int i = 0; i < n; i++) {
        if (!args[i])
            return fx_error_array(
                fx_fail(FX_STATUS_ARGUMENT, "call", "input %d of %s is NULL", i + 1, type->name));
        if (fx_is_error(args[i]))
            return fx_error_array(fxi_object_status(args[i]));
    }
    void *y = type->forward(model, n, args);
    return y ? y
             : fx_error_array(fx_fail(FX_STATUS_INTERNAL, "call",
                                      "the forward function of %s returned NULL", type->name));
}
