/* Errors name the function that the program called, and not one of the operations that this
 * function is made of (FXI_OPERATION, base/error.h).
 */
#include "composite_check.h"

#include <cflux/attention.h>
#include <cflux/losses.h>
#include <cflux/metrics.h>
#include <cflux/mlutils.h>
#include <cflux/nn.h>
#include <cflux/resample.h>
#include <cflux/signal.h>

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
    named(how, "mse", fx_mse(x, y));
    named(how, "mae", fx_mae(x, y));
    named(how, "msle", fx_msle(x, y));
    named(how, "huber_loss", fx_huber_loss(x, y));
    named(how, "quantile_loss", fx_quantile_loss(x, y));
    named(how, "crossentropy", fx_crossentropy(x, y));
    named(how, "logitcrossentropy", fx_logitcrossentropy(x, y));
    named(how, "binarycrossentropy", fx_binarycrossentropy(x, y));
    named(how, "logitbinarycrossentropy", fx_logitbinarycrossentropy(x, y));
    named(how, "kldivergence", fx_kldivergence(x, y));
    named(how, "poisson_loss", fx_poisson_loss(x, y));
    named(how, "hinge_loss", fx_hinge_loss(x, y));
    named(how, "squared_hinge_loss", fx_squared_hinge_loss(x, y));
    named(how, "focal_loss", fx_focal_loss(x, y));
    named(how, "binary_focal_loss", fx_binary_focal_loss(x, y));
    named(how, "siamese_contrastive_loss", fx_siamese_contrastive_loss(x, y));
    named(how, "dice_coeff_loss", fx_dice_coeff_loss(x, y));
    named(how, "tversky_loss", fx_tversky_loss(x, y));
    named(how, "ctc_loss", fx_ctc_loss(x, y));
    named(how, "label_smoothing", fx_label_smoothing(x, 7, axes));
    named(how, "confusion", fx_confusion(x, y, 7));
    named(how, "accuracy", fx_accuracy(x, y));
    named(how, "precision_score", fx_precision_score(x, FX_AVERAGING_MACRO));
    named(how, "recall_score", fx_recall_score(x, FX_AVERAGING_MACRO));
    named(how, "f1_score", fx_f1_score(x, FX_AVERAGING_MACRO));
    named(how, "dft", fx_dft(x, y, 7, false));
    named(how, "stft", fx_stft(x, 4, .window = y));
    named(how, "istft", fx_istft(x, y, 4));
    named(how, "spectrogram", fx_spectrogram(x, 4, .window = y));
    named(how, "resize", fx_resize(x, .scale = FX_DIMS(7)));
    named(how, "pixel_shuffle", fx_pixel_shuffle(x, 7));
    named(how, "unfold", fx_unfold(x, FX_DIMS(7)));
    named(how, "fold", fx_fold(x, FX_DIMS(7), FX_DIMS(5)));
    named(how, "grid_sample", fx_grid_sample(x, y));
    named(how, "dot_product_attention", fx_dot_product_attention(x, y));
    named(how, "dot_product_attention_scores", fx_dot_product_attention_scores(x, y));
    named(how, "make_causal_mask", fx_make_causal_mask(x, 7));
    named(how, "rotary_embedding", fx_rotary_embedding(x));
}

enum { FUNCTIONS = 202 };

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

/* The message names the function and the text of both shapes, in the notation of the function. */
static void shapes(const char *name, const char *one, const char *other, const void *result)
{
    (void)result;
    const fx_error e = fx_error_take();
    const size_t n = strlen(name);
    if (strncmp(e.message, name, n) != 0 || !strstr(e.message, one) || !strstr(e.message, other))
        fail_msg("fx_%s says \"%s\"", name, e.message);
}

static void both_shapes_of_losses_metrics_and_signals(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(2, 3), *y = fx_ones(3, 2);
    fx_array *i = fx_cast(x, FX_DTYPE_I64), *j = fx_cast(y, FX_DTYPE_I64);
    static const struct {
        const char *name;
        fx_array *(*call)(const fx_loss_args *a);
    } losses[] = {
#define LOSS(name) {#name, fxi_##name}
        LOSS(mse),
        LOSS(mae),
        LOSS(msle),
        LOSS(huber_loss),
        LOSS(quantile_loss),
        LOSS(crossentropy),
        LOSS(logitcrossentropy),
        LOSS(binarycrossentropy),
        LOSS(logitbinarycrossentropy),
        LOSS(kldivergence),
        LOSS(poisson_loss),
        LOSS(hinge_loss),
        LOSS(squared_hinge_loss),
        LOSS(focal_loss),
        LOSS(binary_focal_loss),
        LOSS(siamese_contrastive_loss),
        LOSS(dice_coeff_loss),
        LOSS(tversky_loss),
#undef LOSS
    };
    for (size_t k = 0; k < sizeof losses / sizeof *losses; k++)
        shapes(losses[k].name, "(2, 3)", "(3, 2)", fx_call_loss(losses[k].call, x, y));
    shapes("ctc_loss", "2×3 Matrix{Float32}", "3×2 Matrix{Int64}", fx_ctc_loss(x, j));
    shapes("ctc_loss", "2-element Vector{Float32}", "3×2 Matrix{Int64}",
           fx_ctc_loss(fx_ones(2), j));
    shapes("confusion", "2×3 Matrix{Int64}", "3×2 Matrix{Int64}", fx_confusion(i, j, 2));
    shapes("accuracy", "2×3 Matrix{Int64}", "3×2 Matrix{Int64}", fx_accuracy(i, j));
    shapes("f1_score", "2×3 Matrix{Int64}", "square", fx_f1_score(i, FX_AVERAGING_NONE));
    shapes("dft", "2×3 Matrix{Float32}", "3×2 Matrix{Float32}", fx_dft(x, y, 0, false));
    shapes("istft", "2×3 Matrix{Float32}", "3×2 Matrix{Float32}", fx_istft(x, y, 4));
    shapes("istft", "2×3 Matrix{Float32}", "4×frames", fx_istft(x, x, 6));
    shapes("stft", "2×3 Matrix{Float32}", "n_fft = 4", fx_stft(fx_ones(9), 4, .window = x));
    shapes("spectrogram", "5-element Vector{Float32}", "n_fft = 4",
           fx_spectrogram(fx_ones(9), 4, .window = fx_ones(5)));
}

/* C converts every pointer to void *, so a tuple can take the place of an array. */
static void a_tuple_is_no_array(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(2, 3);
    void *pair = fx_tuple(x, x);
    static const char both[] = "got (2×3 Matrix{Float32}, 2×3 Matrix{Float32})";
    shapes("mse", "the prediction must be an array", both, fx_mse(pair, x));
    shapes("accuracy", "actual labels must be an array", both, fx_accuracy(x, pair));
    shapes("stft", "the signal must be an array", both, fx_stft(pair, 4));
    shapes("dot_product_attention", "the key must be an array", both,
           fx_dot_product_attention(x, pair));
}

/* The name ends with the function, even if the program's hook does not return. */
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
        cmocka_unit_test(both_shapes_of_losses_metrics_and_signals),
        cmocka_unit_test(a_tuple_is_no_array),
        cmocka_unit_test(the_name_ends_with_the_function),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
