/* Errors name the function that the program called, and not one of the operations that this
 * function is made of (FXI_OPERATION, base/error.h).
 */
#include "composite_check.h"

#include <cflux/mlutils.h>
#include <cflux/nn.h>

static int failures;

/* If the call failed, its message begins with the name of the function, without fx_. */
static void named(const char *how, const char *name, const void *result)
{
    (void)result;
    const fx_error e = fx_error_take();
    const size_t n = strlen(name);
    if (e.status == FX_OK)
        return;
    failures++;
    if (strcmp(e.op, name) != 0 || strncmp(e.message, name, n) != 0 || e.message[n] != ':')
        fail_msg("fx_%s of %s says \"%s\"", name, how, e.message);
}

static void every_function(const char *how, fx_array *x, fx_array *y)
{
    FX_SCOPE;
    const fx_axes axes = FX_AXES(5);
    failures = 0;
    named(how, "add", fx_add(x, y));
    named(how, "sub", fx_sub(x, y));
    named(how, "mul", fx_mul(x, y));
    named(how, "div", fx_div(x, y));
    named(how, "fld", fx_fld(x, y));
    named(how, "mod", fx_mod(x, y));
    named(how, "rem", fx_rem(x, y));
    named(how, "pow", fx_pow(x, y));
    named(how, "max", fx_max(x, y));
    named(how, "min", fx_min(x, y));
    named(how, "atan2", fx_atan2(x, y));
    named(how, "lt", fx_lt(x, y));
    named(how, "le", fx_le(x, y));
    named(how, "gt", fx_gt(x, y));
    named(how, "ge", fx_ge(x, y));
    named(how, "eq", fx_eq(x, y));
    named(how, "ne", fx_ne(x, y));
    named(how, "and", fx_and(x, y));
    named(how, "or", fx_or(x, y));
    named(how, "xor", fx_xor(x, y));
    named(how, "where", fx_where(x, y, y));
    named(how, "clamp", fx_clamp(x, y, y));
    named(how, "xlogy", fx_xlogy(x, y));
    named(how, "neg", fx_neg(x));
    named(how, "abs", fx_abs(x));
    named(how, "sign", fx_sign(x));
    named(how, "square", fx_square(x));
    named(how, "sqrt", fx_sqrt(x));
    named(how, "rsqrt", fx_rsqrt(x));
    named(how, "reciprocal", fx_reciprocal(x));
    named(how, "exp", fx_exp(x));
    named(how, "expm1", fx_expm1(x));
    named(how, "log", fx_log(x));
    named(how, "log1p", fx_log1p(x));
    named(how, "sin", fx_sin(x));
    named(how, "cos", fx_cos(x));
    named(how, "tan", fx_tan(x));
    named(how, "asin", fx_asin(x));
    named(how, "acos", fx_acos(x));
    named(how, "atan", fx_atan(x));
    named(how, "sinh", fx_sinh(x));
    named(how, "cosh", fx_cosh(x));
    named(how, "asinh", fx_asinh(x));
    named(how, "acosh", fx_acosh(x));
    named(how, "atanh", fx_atanh(x));
    named(how, "erf", fx_erf(x));
    named(how, "floor", fx_floor(x));
    named(how, "ceil", fx_ceil(x));
    named(how, "round", fx_round(x));
    named(how, "trunc", fx_trunc(x));
    named(how, "isnan", fx_isnan(x));
    named(how, "isinf", fx_isinf(x));
    named(how, "isfinite", fx_isfinite(x));
    named(how, "not", fx_not(x));
    named(how, "cast", fx_cast(x, FX_DTYPE_F32));
    named(how, "stop_gradient", fx_stop_gradient(x));
    named(how, "identity", fx_identity(x));
    named(how, "sigmoid", fx_sigmoid(x));
    named(how, "hardsigmoid", fx_hardsigmoid(x));
    named(how, "logsigmoid", fx_logsigmoid(x));
    named(how, "tanh", fx_tanh(x));
    named(how, "hardtanh", fx_hardtanh(x));
    named(how, "relu", fx_relu(x));
    named(how, "relu6", fx_relu6(x));
    named(how, "leakyrelu", fx_leakyrelu(x));
    named(how, "leakyrelu_slope", fx_leakyrelu_slope(x, 7));
    named(how, "rrelu", fx_rrelu(x));
    named(how, "elu", fx_elu(x));
    named(how, "elu_alpha", fx_elu_alpha(x, 7));
    named(how, "celu", fx_celu(x));
    named(how, "celu_alpha", fx_celu_alpha(x, 7));
    named(how, "selu", fx_selu(x));
    named(how, "gelu", fx_gelu(x));
    named(how, "gelu_sigmoid", fx_gelu_sigmoid(x));
    named(how, "gelu_erf", fx_gelu_erf(x));
    named(how, "swish", fx_swish(x));
    named(how, "hardswish", fx_hardswish(x));
    named(how, "lisht", fx_lisht(x));
    named(how, "softplus", fx_softplus(x));
    named(how, "softsign", fx_softsign(x));
    named(how, "logcosh", fx_logcosh(x));
    named(how, "mish", fx_mish(x));
    named(how, "tanhshrink", fx_tanhshrink(x));
    named(how, "softshrink", fx_softshrink(x));
    named(how, "softshrink_lambda", fx_softshrink_lambda(x, 7));
    named(how, "trelu", fx_trelu(x));
    named(how, "trelu_theta", fx_trelu_theta(x, 7));
    named(how, "glu", fx_glu(x, 7));
    named(how, "sum", fx_sum(x, .dims = axes));
    named(how, "prod", fx_prod(x, .dims = axes));
    named(how, "mean", fx_mean(x, .dims = axes));
    named(how, "var", fx_var(x, .dims = axes));
    named(how, "std", fx_std(x, .dims = axes));
    named(how, "maximum", fx_maximum(x, .dims = axes));
    named(how, "minimum", fx_minimum(x, .dims = axes));
    named(how, "any", fx_any(x, .dims = axes));
    named(how, "all", fx_all(x, .dims = axes));
    named(how, "norm", fx_norm(x, .dims = axes));
    named(how, "softmax", fx_softmax(x, .dims = axes));
    named(how, "logsoftmax", fx_logsoftmax(x, .dims = axes));
    named(how, "logsumexp", fx_logsumexp(x, .dims = axes));
    named(how, "argmax", fx_argmax(x, .dims = axes));
    named(how, "argmin", fx_argmin(x, .dims = axes));
    named(how, "cumsum", fx_cumsum(x, 7));
    named(how, "cumsum_reverse", fx_cumsum_reverse(x, 7));
    named(how, "matmul", fx_matmul(x, y));
    named(how, "batched_mul", fx_batched_mul(x, y));
    named(how, "reshape", fx_reshape(x, 5, 7));
    named(how, "permute", fx_permute(x, 0, 7));
    named(how, "expand", fx_expand(x, 5));
    named(how, "repeat", fx_repeat(x, -1, 2));
    named(how, "concat", fx_concat(7, x, y));
    named(how, "stack", fx_stack(7, x, y));
    /* The messages have NNlib's names. */
    named(how, "conv", fx_convolve(x, y));
    named(how, "conv_transpose", fx_convolve_transposed(x, y));
    named(how, "maxpool", fx_pool_max(x, FX_DIMS(2)));
    named(how, "meanpool", fx_pool_mean(x, FX_DIMS(2)));
    named(how, "meanpool", fx_pool_mean(x, FX_DIMS(2), .pad = FX_DIMS(1), .exclude_pad = true));
    named(how, "lpnormpool", fx_pool_lpnorm(x, FX_DIMS(2)));
    named(how, "transpose", fx_transpose(x));
    named(how, "flatten", fx_flatten(x));
    named(how, "vec", fx_vec(x));
    named(how, "unsqueeze", fx_unsqueeze(x, 7));
    named(how, "squeeze", fx_squeeze(x, axes));
    named(how, "slice", fx_slice(x, 7, 2, 7));
    named(how, "slice_step", fx_slice_step(x, 7, 2, 7, 7));
    named(how, "flip", fx_flip(x, axes));
    named(how, "pad", fx_pad(x, 7, 2, 7, 7));
    named(how, "pad_reflect", fx_pad_reflect(x, 7, 2, 7));
    named(how, "pad_symmetric", fx_pad_symmetric(x, 7, 2, 7));
    named(how, "pad_repeat", fx_pad_repeat(x, 7, 2, 7));
    named(how, "pad_circular", fx_pad_circular(x, 7, 2, 7));
    named(how, "repeat_inner", fx_repeat_inner(x, 7, 7));
    named(how, "tril", fx_tril(x, 7));
    named(how, "triu", fx_triu(x, 7));
    named(how, "gather", fx_gather(x, y, 7));
    named(how, "gather_elements", fx_gather_elements(x, y, 7));
    named(how, "scatter", fx_scatter(FX_REDUCE_SUM, x, y, 7, 7));
    named(how, "scatter_elements", fx_scatter_elements(x, y, y, 7));
    named(how, "zeros_like", fx_zeros_like(x));
    named(how, "onehot", fx_onehot(x, 7));
    named(how, "onehotbatch", fx_onehotbatch(x, 7));
    named(how, "onecold", fx_onecold(x));
    named(how, "obsdim", fx_obsdim(x, 7));
    named(how, "group_counts", fx_group_counts(x));
    named(how, "group_indices", fx_group_indices(x));
    named(how, "unstack", fx_unstack(x, 7));
    named(how, "chunk", fx_chunk(x, 7, 7));
    named(how, "chunk_size", fx_chunk_size(x, 7, 7));
    named(how, "rpad_constant", fx_rpad_constant(x, 7, 2, axes));
    named(how, "ones_like", fx_ones_like(x));
    named(how, "full_like", fx_full_like(x, 7));
    named(how, "rand_like", fx_rand_like(x));
    named(how, "randn_like", fx_randn_like(x));
    named(how, "falses_like", fx_falses_like(x));
    named(how, "trues_like", fx_trues_like(x));
    named(how, "rescale", fx_rescale(x, axes, 7));
    named(how, "topk", fx_topk(x, 7, 7));
    named(how, "batched_searchsortedfirst", fx_batched_searchsortedfirst(x, y));
    named(how, "batched_searchsortedlast", fx_batched_searchsortedlast(x, y));
    named(how, "normalise", fx_normalise(x, axes, 7));
    named(how, "dropout_apply", fx_dropout_apply(x, 7));
    named(how, "jacobian", fx_jacobian(x, y));
    named(how, "withjacobian", fx_withjacobian(x, y));
}

enum { FUNCTIONS = 164 };

static void null_arrays(void **state)
{
    (void)state;
    FX_SCOPE;
    every_function("NULL", NULL, NULL);
    assert_int_equal(failures, FUNCTIONS);
}

static void other_shapes_and_types(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_zeros(2, 3), *y = fx_zeros(4);
    every_function("2×3 and 4", x, y);
    assert_true(failures > 30);
    every_function("Bool", fx_falses_like(x), fx_falses_like(y));
    assert_true(failures > 30);
    every_function("no elements", fx_zeros(0, 3, 0, 3, 0, 2), fx_zeros(2, 0));
    assert_true(failures > 10);
}

/* The name ends with the function, also if the program's hook leaves by longjmp. */
static jmp_buf out;
static void leave(const fx_error *e, void *user)
{
    (void)e, (void)user;
    longjmp(out, 1);
}

static void the_name_ends_with_the_function(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_error_set_hook(leave, NULL);
    if (!setjmp(out))
        fx_clamp((fx_array *)NULL, 0, 1);
    fx_error_set_hook(NULL, NULL);
    assert_string_equal(fx_error_take().op, "clamp");
    fx_lt((fx_array *)NULL, 1);
    assert_string_equal(fx_error_take().op, "lt");
    fx_clamp((fx_array *)NULL, 0, 1);
    assert_string_equal(fx_error_take().op, "clamp");
    fx_lt((fx_array *)NULL, 1);
    assert_string_equal(fx_error_take().op, "lt");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_arrays),
        cmocka_unit_test(other_shapes_and_types),
        cmocka_unit_test(the_name_ends_with_the_function),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
