/* test_option_structs.c: every option struct of the public headers, by one table.
 *
 * A row has a struct, its members as the header lists them, and a function that makes the call with
 * the struct and writes the result as text. For each row:
 *   - A struct that ends at any of its members, as an older program passes it, gives the results of
 *     the defaults. The memory ends there too, so that a sanitizer finds a read beyond it.
 *   - A longer struct whose tail is zero gives the same results; any other tail is refused.
 *   - Each member whose default is not zero can be set to zero, and gives another result.
 * tests/structure/check_options.py checks that no struct and no function is missing here.
 */
#include "run_log.h"
#include "semantics_check.h"

#include "state_parts.h"
#include "temp_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEXT = 4096 };

typedef struct member {
    const char *name;
    size_t offset, size;
    bool pointer;
} member;

typedef struct subject {
    const char *name;
    size_t size;
    const void *defaults;
    const member *members;
    int count, required;     /* the first `required` members are set by prepare */
    void (*prepare)(void *); /* NULL: none is required */
    void (*observe)(const void *, char *);
    const char *unseen; /* members whose zero shows elsewhere: a name, or NULL */
} subject;

static void add(char *text, const char *format, ...) FXI_PRINTF(2, 3);
static void add(char *text, const char *format, ...)
{
    const size_t n = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + n, TEXT - n, format, arguments);
    va_end(arguments);
}

/* Writes the printed form of an object and the recorded error. */
static void add_object(char *text, void *object)
{
    char shown[600];
    fx_eval(object);
    fx_show_text(object, shown, sizeof shown);
    add(text, "%s; %s\n", fx_is_error(object) ? "error" : shown, fx_error_take().message);
}

/* ---- layers ---------------------------------------------------------------------------------- */

static void prepare_dense(void *args)
{
    fx_dense_args *a = args;
    a->in = 2, a->out = 3;
}
static void observe_dense(const void *args, char *text)
{
    fx_seed(1);
    fx_dense_layer *l = fxi_dense(args);
    add_object(text, l);
    if (!fx_is_error(l))
        add_object(text, l->weight);
}

static void prepare_conv_layer(void *args)
{
    fx_conv_args *a = args;
    a->kernel = FX_DIMS(3, 2), a->in = 2, a->out = 2;
}
static void observe_conv_layer(const void *args, char *text)
{
    fx_seed(1);
    fx_conv_layer *l = fxi_conv(args);
    add_object(text, l);
    if (!fx_is_error(l))
        add_object(text, fx_call(l, fx_ones(4, 4, 2, 1)));
}

static void prepare_crosscor(void *args)
{
    fx_crosscor_args *a = args;
    a->kernel = FX_DIMS(3, 2), a->in = 2, a->out = 2;
}
static void observe_crosscor(const void *args, char *text)
{
    fx_seed(1);
    fx_crosscor_layer *l = fxi_crosscor(args);
    add_object(text, l);
    if (!fx_is_error(l))
        add_object(text, fx_call(l, fx_ones(4, 4, 2, 1)));
}

static void prepare_convtranspose(void *args)
{
    fx_convtranspose_args *a = args;
    a->kernel = FX_DIMS(3, 2), a->in = 2, a->out = 2;
}
static void observe_convtranspose(const void *args, char *text)
{
    fx_seed(1);
    fx_convtranspose_layer *l = fxi_convtranspose(args);
    add_object(text, l);
    if (!fx_is_error(l))
        add_object(text, fx_call(l, fx_ones(4, 4, 2, 1)));
}
static void observe_depthwiseconv(const void *args, char *text)
{
    fx_seed(1);
    add_object(text, fxi_depthwiseconv(args));
}

static void prepare_pool_layer(void *args)
{
    fx_maxpool_args *a = args;
    a->window = FX_DIMS(2, 2);
}
static void observe_pool_layer(const void *args, char *text)
{
    fx_array *x = fx_reshape(fx_range(0, 1, 16), 4, 4, 1, 1);
    add_object(text, fx_call(fxi_maxpool(args), x));
    add_object(text, fx_call(fxi_meanpool(args), x));
}

static void prepare_adaptive_pool(void *args)
{
    ((fx_adaptivemaxpool_args *)args)->out = FX_DIMS(3);
}
static void observe_adaptive_pool(const void *args, char *text)
{
    fx_array *x = fx_reshape(fx_range(0, 1, 8), 8, 1, 1);
    add_object(text, fx_call(fxi_adaptivemaxpool(args), x));
    add_object(text, fx_call(fxi_adaptivemeanpool(args), x));
}

static void prepare_lpnormpool(void *args)
{
    ((fx_lpnormpool_args *)args)->window = FX_DIMS(2);
}
static void observe_lpnormpool(const void *args, char *text)
{
    add_object(text, fx_call(fxi_lpnormpool(args), fx_reshape(fx_range(0, 1, 8), 8, 1, 1)));
}

static void prepare_upsample(void *args)
{
    fx_upsample_args *a = args;
    a->mode = FX_UPSAMPLE_MODE_NEAREST, a->scale = FX_DIMS(2);
}
static void observe_upsample(const void *args, char *text)
{
    add_object(text, fx_call(fxi_upsample(args), fx_reshape(fx_range(0, 1, 3), 3, 1, 1)));
}

static void prepare_pixelshuffle(void *args)
{
    ((fx_pixelshuffle_args *)args)->r = 2;
}
static void observe_pixelshuffle(const void *args, char *text)
{
    add_object(text, fx_call(fxi_pixelshuffle(args), fx_reshape(fx_range(0, 1, 4), 2, 2, 1)));
}

static void prepare_batchnorm(void *args)
{
    ((fx_batchnorm_args *)args)->channels = 2;
}
static void observe_batchnorm(const void *args, char *text)
{
    const fx_batchnorm_layer *l = fxi_batchnorm(args);
    add(text, "%g %g %d %d %d; %s\n", l->epsilon, l->momentum, (int)l->active, l->gamma != NULL,
        l->mean != NULL, fx_error_take().message);
}

static void prepare_layernorm(void *args)
{
    ((fx_layernorm_args *)args)->size = FX_DIMS(2);
}
static void observe_layernorm(const void *args, char *text)
{
    const fx_layernorm_layer *l = fxi_layernorm(args);
    add(text, "%g %d; %s\n", l->epsilon, l->scale != NULL, fx_error_take().message);
}

static void prepare_dropout(void *args)
{
    ((fx_dropout_args *)args)->p = 0.5;
}
static void observe_dropout(const void *args, char *text)
{
    add_object(text, fxi_dropout(args));
}

static void prepare_skipconnection(void *args)
{
    ((fx_skipconnection_args *)args)->layers = FX_RELU;
    ((fx_skipconnection_args *)args)->connection = FX_ADD;
}
static void observe_skipconnection(const void *args, char *text)
{
    add_object(text, fxi_skipconnection(args));
}
static void prepare_outputsize(void *args)
{
    ((fx_outputsize_args *)args)->model = FX_RELU;
    ((fx_outputsize_args *)args)->size = FX_DIMS(2, 3);
}
static void observe_outputsize(const void *args, char *text)
{
    const fx_dims d = fxi_outputsize(args);
    add(text, "%d %d %d; %s\n", (int)d.n, (int)d.v[0], (int)d.v[2], fx_error_take().message);
}
static void prepare_weightnorm(void *args)
{
    ((fx_weightnorm_args *)args)->layer = fx_dense(2, 3);
}
static void observe_weightnorm(const void *args, char *text)
{
    add_object(text, fxi_weightnorm(args));
}
static void prepare_embedding(void *args)
{
    ((fx_embedding_args *)args)->in = 3;
    ((fx_embedding_args *)args)->out = 2;
}
static void observe_embedding(const void *args, char *text)
{
    fx_seed(1);
    fx_embedding_layer *l = fxi_embedding(args);
    add_object(text, l);
    if (!fx_is_error(l))
        add_object(text, l->weight);
}
static void prepare_embeddingbag(void *args)
{
    ((fx_embeddingbag_args *)args)->in = 3;
    ((fx_embeddingbag_args *)args)->out = 2;
}
static void observe_embeddingbag(const void *args, char *text)
{
    add_object(text, fxi_embeddingbag(args));
}
static void prepare_scale(void *args)
{
    ((fx_scale_args *)args)->size = FX_DIMS(2);
}
static void observe_scale(const void *args, char *text)
{
    add_object(text, fxi_scale(args));
}
static void prepare_bilinear(void *args)
{
    ((fx_bilinear_args *)args)->in = FX_DIMS(2, 3);
    ((fx_bilinear_args *)args)->out = 4;
}
static void observe_bilinear(const void *args, char *text)
{
    add_object(text, fxi_bilinear(args));
}

static void prepare_instancenorm(void *args)
{
    ((fx_instancenorm_args *)args)->channels = 2;
}
static void observe_instancenorm(const void *args, char *text)
{
    const fx_instancenorm_layer *l = fxi_instancenorm(args);
    add(text, "%g %g %d %d %d; %s\n", l->epsilon, l->momentum, (int)l->active, l->gamma != NULL,
        l->mean != NULL, fx_error_take().message);
}
static void prepare_groupnorm(void *args)
{
    fx_groupnorm_args *a = args;
    a->channels = 4, a->groups = 2;
}
static void observe_groupnorm(const void *args, char *text)
{
    const fx_groupnorm_layer *l = fxi_groupnorm(args);
    add(text, "%g %g %d %d; %s\n", l->epsilon, l->momentum, (int)l->active, l->gamma != NULL,
        fx_error_take().message);
}
static void prepare_rmsnorm(void *args)
{
    ((fx_rmsnorm_args *)args)->size = FX_DIMS(2);
}
static void observe_rmsnorm(const void *args, char *text)
{
    const fx_rmsnorm_layer *l = fxi_rmsnorm(args);
    add(text, "%g %d; %s\n", l->epsilon, l->scale != NULL, fx_error_take().message);
}
static void prepare_alphadropout(void *args)
{
    ((fx_alphadropout_args *)args)->p = 0.5;
}
static void observe_alphadropout(const void *args, char *text)
{
    add_object(text, fxi_alphadropout(args));
}

static void prepare_attention(void *args)
{
    fx_dot_product_attention_args *a = args;
    a->query = fx_reshape(fx_range(0, 0.1, 6), 2, 3);
    a->key = fx_reshape(fx_range(1, -0.2, 6), 2, 3);
    a->value = fx_reshape(fx_range(0, 1, 6), 2, 3);
}
static void observe_attention(const void *args, char *text)
{
    fx_seed(1);
    void *pair = fxi_dot_product_attention(args);
    add_object(text, fx_is_error(pair) ? pair : fx_child(pair, 0));
    fx_seed(1);
    add_object(text, fxi_dot_product_attention_scores(args));
}
static void prepare_rotary(void *args)
{
    ((fx_rotary_embedding_args *)args)->x = fx_reshape(fx_range(0, 1, 12), 4, 3);
}
static void observe_rotary(const void *args, char *text)
{
    add_object(text, fxi_rotary_embedding(args));
}
static void prepare_multiheadattention(void *args)
{
    fx_multiheadattention_args *a = args;
    a->dims = FX_DIMS(8);
}
static void observe_multiheadattention(const void *args, char *text)
{
    fx_seed(1);
    fx_multiheadattention_layer *l = fxi_multiheadattention(args);
    add_object(text, l);
    if (!fx_is_error(l))
        add_object(text, ((fx_dense_layer *)l->q_proj)->weight);
}
static void prepare_attend(void *args)
{
    fx_attend_args *a = args;
    fx_seed(1);
    a->layer = fx_multiheadattention(FX_DIMS(8));
    a->query = fx_reshape(fx_range(0, 0.1, 16), 8, 2);
}
static void observe_attend(const void *args, char *text)
{
    void *pair = fxi_attend(args);
    add_object(text, fx_is_error(pair) ? pair : fx_child(pair, 0));
}

static void prepare_transformerblock(void *args)
{
    ((fx_transformerblock_args *)args)->size = 8;
}
static void observe_transformerblock(const void *args, char *text)
{
    fx_seed(1);
    fx_transformerblock_layer *l = fxi_transformerblock(args);
    add_object(text, l);
    if (!fx_is_error(l))
        add_object(text, ((fx_dense_layer *)l->linear1)->weight);
}

static void observe_cell(fx_cell_layer *l, char *text)
{
    add_object(text, l);
    if (fx_is_error(l))
        return;
    add_object(text, l->wi);
    add_object(text, l->wh);
}
static void prepare_rnncell(void *args)
{
    fx_rnncell_args *a = args;
    a->in = 2, a->out = 3;
}
static void observe_rnncell(const void *args, char *text)
{
    fx_seed(1);
    observe_cell(fxi_rnncell(args), text);
}
static void prepare_lstmcell(void *args)
{
    fx_lstmcell_args *a = args;
    a->in = 2, a->out = 1;
}
static void observe_lstmcell(const void *args, char *text)
{
    static fx_cell_layer *(*const all[])(const fx_lstmcell_args *) = {fxi_lstmcell, fxi_grucell,
                                                                      fxi_gruv3cell};
    for (int i = 0; i < COUNT(all); i++) {
        fx_seed(1);
        observe_cell(all[i](args), text);
    }
}
static void prepare_rnn(void *args)
{
    fx_rnn_args *a = args;
    a->in = 2, a->out = 3;
}
static void observe_rnn(const void *args, char *text)
{
    fx_seed(1);
    fx_recurrent_layer *l = fxi_rnn(args);
    add_object(text, l);
    if (!fx_is_error(l))
        observe_cell(l->cell, text);
}
static void prepare_lstm(void *args)
{
    fx_lstm_args *a = args;
    a->in = 2, a->out = 1;
}
static void observe_lstm(const void *args, char *text)
{
    static fx_recurrent_layer *(*const all[])(const fx_lstm_args *) = {fxi_lstm, fxi_gru,
                                                                       fxi_gruv3};
    for (int i = 0; i < COUNT(all); i++) {
        fx_seed(1);
        fx_recurrent_layer *l = all[i](args);
        add_object(text, l);
        if (!fx_is_error(l))
            observe_cell(l->cell, text);
    }
}
static void prepare_recurrence(void *args)
{
    ((fx_recurrence_args *)args)->cell = fx_rnncell(2, 3);
}
static void observe_recurrence(const void *args, char *text)
{
    add_object(text, fxi_recurrence(args));
}
static void prepare_bidirectional(void *args)
{
    fx_bidirectional_args *a = args;
    a->forward = fx_rnn(2, 3), a->backward = fx_gru(2, 3);
}
static void observe_bidirectional(const void *args, char *text)
{
    add_object(text, fxi_bidirectional(args));
}
static void prepare_recur(void *args)
{
    fx_recur_args *a = args;
    fx_seed(1);
    a->layer = fx_rnn(2, 3);
    a->x = fx_reshape(fx_range(0, 0.1, 8), 2, 2, 2);
}
static void observe_recur(const void *args, char *text)
{
    add_object(text, fxi_recur(args));
}

/* ---- operations ------------------------------------------------------------------------------ */

static fx_array *matrix(void)
{
    return fx_reshape(fx_vector(0.25f, 3, 0, 1, 2, 0.5f), 2, 3);
}
static void prepare_reduce(void *args)
{
    ((fx_reduce_args *)args)->x = matrix();
}
static void observe_reduce(const void *args, char *text)
{
    static fx_array *(*const all[])(const fx_reduce_args *) = {
        fxi_sum,  fxi_prod,      fxi_mean,   fxi_maximum, fxi_minimum,
        fxi_norm, fxi_logsumexp, fxi_argmax, fxi_argmin,  fxi_mean_rest};
    for (int i = 0; i < COUNT(all); i++)
        add_object(text, all[i](args));
}
static void prepare_truth(void *args)
{
    ((fx_reduce_args *)args)->x = fx_gt(matrix(), 1);
}
static void observe_truth(const void *args, char *text)
{
    add_object(text, fxi_any_true(args));
    add_object(text, fxi_all_true(args));
}
static void prepare_var(void *args)
{
    ((fx_var_args *)args)->x = matrix();
}
static void observe_var(const void *args, char *text)
{
    add_object(text, fxi_var(args));
    add_object(text, fxi_std(args));
}
static void prepare_softmax(void *args)
{
    ((fx_softmax_args *)args)->x = matrix();
}
static void observe_softmax(const void *args, char *text)
{
    add_object(text, fxi_softmax(args));
    add_object(text, fxi_logsoftmax(args));
}

static void prepare_conv(void *args)
{
    fx_convolve_args *a = args;
    a->x = fx_reshape(fx_range(0, 1, 6), 6, 1, 1);
    a->w = fx_reshape(fx_vector(1, 10), 2, 1, 1);
}
static void observe_conv(const void *args, char *text)
{
    add_object(text, fxi_convolve(args));
    add_object(text, fxi_convolve_transposed(args));
}
static void prepare_pool(void *args)
{
    fx_pool_args *a = args;
    a->x = fx_reshape(fx_range(0, 1, 6), 6, 1, 1);
    a->window = FX_DIMS(2);
}
static void observe_pool(const void *args, char *text)
{
    add_object(text, fxi_pool_max(args));
    add_object(text, fxi_pool_mean(args));
    add_object(text, fxi_pool_lpnorm(args));
}

static void prepare_resize(void *args)
{
    fx_resize_args *a = args;
    a->x = fx_reshape(fx_range(0, 1, 3), 3, 1, 1);
    a->mode = FX_RESIZE_MODE_LINEAR;
    a->scale = FX_DIMS(2);
}
static void observe_resize(const void *args, char *text)
{
    add_object(text, fxi_resize(args));
}
static void prepare_unfold(void *args)
{
    fx_unfold_args *a = args;
    a->x = fx_reshape(fx_range(0, 1, 4), 4, 1, 1);
    a->kernel = FX_DIMS(2);
}
static void observe_unfold(const void *args, char *text)
{
    add_object(text, fxi_unfold(args));
}
static void prepare_fold(void *args)
{
    fx_fold_args *a = args;
    a->x = fx_reshape(fx_range(0, 1, 6), 3, 2, 1);
    a->size = FX_DIMS(4);
    a->kernel = FX_DIMS(2);
}
static void observe_fold(const void *args, char *text)
{
    add_object(text, fxi_fold(args));
}
static void prepare_grid_sample(void *args)
{
    fx_grid_sample_args *a = args;
    a->x = fx_reshape(fx_range(0, 1, 3), 3, 1, 1);
    a->grid = fx_reshape(fx_vector(-0.5f, 0.25f), 1, 2, 1);
}
static void observe_grid_sample(const void *args, char *text)
{
    add_object(text, fxi_grid_sample(args));
}

static void prepare_loss(void *args)
{
    fx_loss_args *a = args;
    a->pred = matrix();
    a->target = fx_reshape(fx_vector(1, 0, 1, 0, 0.5f, 0.5f), 2, 3);
}
static void observe_loss(const void *args, char *text)
{
    static fx_array *(*const all[])(const fx_loss_args *) = {
        fxi_mse,
        fxi_mae,
        fxi_msle,
        fxi_huber_loss,
        fxi_quantile_loss,
        fxi_crossentropy,
        fxi_logitcrossentropy,
        fxi_binarycrossentropy,
        fxi_logitbinarycrossentropy,
        fxi_kldivergence,
        fxi_poisson_loss,
        fxi_hinge_loss,
        fxi_squared_hinge_loss,
        fxi_focal_loss,
        fxi_binary_focal_loss,
        fxi_siamese_contrastive_loss,
        fxi_dice_coeff_loss,
        fxi_tversky_loss,
        fxi_ctc_loss,
    };
    for (int i = 0; i < COUNT(all); i++)
        add_object(text, all[i](args));
}

/* ---- training -------------------------------------------------------------------------------- */

static fx_array *count_up(int ndims, const int64_t *sizes)
{
    return fxi_full(FX_DTYPE_F32, 1, ndims, sizes);
}
static void prepare_init(void *args)
{
    fx_init_args *a = args;
    a->init = count_up;
    a->sizes = FX_DIMS(2);
}
/* Options that the initialiser does not have are refused, so each shows with several. */
static void observe_init(const void *args, char *text)
{
    static const fx_init_fn all[] = {fx_glorot_normal, fx_truncated_normal, fx_sparse_init,
                                     fx_identity_init};
    fx_seed(1);
    add_object(text, fxi_init(args));
    for (int i = 0; i < COUNT(all); i++) {
        memcpy((char *)(uintptr_t)args + offsetof(fx_init_args, init), &all[i], sizeof all[i]);
        add_object(text, fxi_init(args));
    }
}

#define OBSERVE_RULE(name, make)                                                                   \
    static void observe_##name(const void *args, char *text)                                       \
    {                                                                                              \
        add_object(text, make(args));                                                              \
    }
OBSERVE_RULE(descent, fxi_descent)
OBSERVE_RULE(momentum, fxi_momentum)
OBSERVE_RULE(nesterov, fxi_nesterov)
OBSERVE_RULE(adam, fxi_adam)
OBSERVE_RULE(adamw, fxi_adamw)
OBSERVE_RULE(rprop, fxi_rprop)
OBSERVE_RULE(rmsprop, fxi_rmsprop)
OBSERVE_RULE(adamax, fxi_adamax)
OBSERVE_RULE(nadam, fxi_nadam)
OBSERVE_RULE(radam, fxi_radam)
OBSERVE_RULE(amsgrad, fxi_amsgrad)
OBSERVE_RULE(oadam, fxi_oadam)
OBSERVE_RULE(adabelief, fxi_adabelief)
OBSERVE_RULE(adagrad, fxi_adagrad)
OBSERVE_RULE(adadelta, fxi_adadelta)
OBSERVE_RULE(lion, fxi_lion)
OBSERVE_RULE(weight_decay, fxi_weight_decay)
OBSERVE_RULE(sign_decay, fxi_sign_decay)
OBSERVE_RULE(clip_grad, fxi_clip_grad)
OBSERVE_RULE(clip_norm, fxi_clip_norm)
OBSERVE_RULE(accum_grad, fxi_accum_grad)
OBSERVE_RULE(mixed_precision, fxi_mixed_precision)

static void prepare_mixed_precision(void *args)
{
    ((fx_mixed_precision_args *)args)->rule = fx_adam();
}

static void observe_adjust(const void *args, char *text)
{
    fx_rule *all[] = {fx_rprop(.eta = 0.5, .ell1 = 0.25),
                      fx_momentum(.eta = 0.5, .rho = 0.25),
                      fx_adamw(.eta = 2, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 3, .lambda = 4),
                      fx_clip_grad(3),
                      fx_clip_norm(.omega = 2, .p = 3),
                      fx_accum_grad(5)};
    fx_rule *rule =
        fx_mixed_precision(fxi_optimiser_chain(COUNT(all), (void *const *)all), .scale = 2);
    void *state = fx_setup(rule, fx_vector(1));
    double numbers[128];
    const fx_status status = fxi_adjust(state, args);
    const int64_t n = fxi_state_numbers(state, numbers, COUNT(numbers));
    add(text, "%s:", fx_status_name(status));
    for (int64_t k = 0; k < n && k < COUNT(numbers); k++)
        add(text, " %g", numbers[k]);
    add(text, " %s\n", fx_error_take().message);
}

static fx_array *sink;
static void prepare_update(void *args)
{
    fx_update_args *a = args;
    fx_dense_layer *m = fx_dense(0, 0, .weight_array = fx_ones(1, 2), .bias = false);
    fx_eval(m);
    a->state = fx_setup(fx_descent(.eta = 0.5), m);
    a->model = m;
    a->gradient = fx_gradient(fx_sum(fx_square(m->weight)), m);
    sink = fx_sum(fx_abs(m->weight));
}
static void observe_update(const void *args, char *text)
{
    FX_STEP;
    fx_update_args whole;
    prepare_update(&whole); /* the arrays that an earlier call has updated cannot be used again */
    memcpy((char *)(uintptr_t)args + sizeof(size_t), (char *)&whole + sizeof(size_t),
           3 * sizeof(void *));
    const fx_status status = fxi_update(args);
    add(text, "%s %d %s\n", fx_status_name(status), fx_is_evaluated(sink), fx_error_take().message);
    if (status == FX_OK)
        add_object(text, ((fx_dense_layer *)whole.model)->weight);
}

static void prepare_dist_init(void *args)
{
    ((fx_dist_init_args *)args)->kind = FX_MPI;
}
static void observe_dist_init(const void *args, char *text)
{
    const fx_status status = fxi_dist_init(args);
    add(text, "%s %s\n", fx_status_name(status), fx_error_take().message);
}

static void prepare_dist_optimiser(void *args)
{
    ((fx_dist_optimiser_args *)args)->rule = fx_adam();
}
static void observe_dist_optimiser(const void *args, char *text)
{
    fx_dist_init(FX_MPI);
    add_object(text, fxi_dist_optimiser(fx_dist_backend(FX_MPI), args));
}

static void prepare_table(void *args)
{
    static const char csv[] = "1,2;5\n3,4;6\n";
    ((fx_read_table_args *)args)->path = temp_file("options.csv", csv, sizeof csv - 1);
}
static void observe_table(const void *args, char *text)
{
    void *table = fxi_read_table(args);
    add(text, "%d %s\n", fx_is_error(table), fx_error_take().message);
    if (!fx_is_error(table))
        add_object(text, fx_child_named(table, "values"));
}

static void *same(void *observations, void *user)
{
    (void)user;
    return observations;
}
static void prepare_loader(void *args)
{
    ((fx_dataloader_args *)args)->data = fx_mapobs_with(same, NULL, fx_ones(2, 5));
}
static void observe_loader(const void *args, char *text)
{
    fx_seed(1);
    fx_loader *l = fxi_dataloader(args);
    add(text, "%" PRId64 " batches, seed %" PRIu64 "\n", fx_loader_length(l),
        fx_is_error(l) ? 0 : fx_loader_tell(l, NULL).seed);
    add_object(text, l);
}

static void prepare_augment(void *args)
{
    ((fx_augment_args *)args)->x = fx_reshape(fx_range(1, 1, 16), 2, 1, 1, 8);
    ((fx_augment_args *)args)->sizes = FX_DIMS(1, 1);
}
static void observe_augment(const void *args, char *text)
{
    fx_seed(1);
    FX_STEP;
    add_object(text, fx_vec(fxi_random_flip(args)));
    add_object(text, fx_vec(fxi_random_crop(args)));
    add_object(text, fx_vec(fxi_random_shift(args)));
    add_object(text, fx_vec(fxi_random_noise(args)));
    add(text, "%s\n", fx_error_take().message);
}

static void prepare_stft(void *args)
{
    ((fx_stft_args *)args)->x = fx_range(1, 1, 12);
    ((fx_stft_args *)args)->n_fft = 4;
}
static void observe_stft(const void *args, char *text)
{
    add_object(text, fx_vec(fxi_spectrogram(args)));
    void *parts = fxi_stft(args);
    for (int64_t i = 0; i < fx_count(parts); i++)
        add_object(text, fx_vec(fx_child(parts, i)));
    add(text, "%s\n", fx_error_take().message);
}
static void prepare_istft(void *args)
{
    fx_istft_args *a = args;
    a->re = fx_reshape(fx_range(1, 1, 12), 3, 4);
    a->im = fx_reshape(fx_range(12, -1, 12), 3, 4);
    a->n_fft = 4;
}
static void observe_istft(const void *args, char *text)
{
    add_object(text, fxi_istft(args));
    add(text, "%s\n", fx_error_take().message);
}

static void prepare_split(void *args)
{
    fx_splitobs_args *a = args;
    a->data = fx_range(0, 1, 10);
    a->at = FX_FRACTIONS(0.5, 0.2);
}
static void observe_split(const void *args, char *text)
{
    void *parts = fxi_splitobs(args);
    add(text, "%s\n", fx_error_take().message);
    for (int64_t i = 0; i < fx_count(parts); i++)
        add_object(text, fx_getobs(fx_child(parts, i)));
}

static void prepare_kfolds(void *args)
{
    fx_kfolds_args *a = args;
    a->data = fx_range(0, 1, 12);
}
static void observe_kfolds(const void *args, char *text)
{
    void *folds = fxi_kfolds(args);
    add(text, "%s\n", fx_error_take().message);
    for (int64_t i = 0; i < fx_count(folds); i++)
        add_object(text, fx_getobs(fx_child(fx_child(folds, i), 1)));
}

static void prepare_series(void *args)
{
    fx_timeseries_kfolds_args *a = args;
    a->data = fx_range(0, 1, 40);
}
static void observe_series(const void *args, char *text)
{
    void *folds = fxi_timeseries_kfolds(args);
    add(text, "%s\n", fx_error_take().message);
    for (int64_t i = 0; i < fx_count(folds); i++)
        add_object(text, fx_getobs(fx_child(fx_child(folds, i), 0)));
}

static fx_array *loss(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_mse(fx_call(model, b->x), fx_zeros(1, fx_size(b->x, 1)));
}
static void prepare_train(void *args)
{
    fx_train_args *a = args;
    a->loss = loss;
    a->model = fx_dense(2, 1, .init = fx_ones_init);
    a->data = fx_dataloader(fx_ones(2, 4), .batchsize = 2);
    a->state = fx_setup(fx_descent(), a->model);
}
static void observe_train(const void *args, char *text)
{
    fx_train_args whole;
    prepare_train(&whole);
    memcpy((char *)(uintptr_t)args + sizeof(size_t), (char *)&whole + sizeof(size_t),
           4 * sizeof(void *));
    add(text, "%s %s\n", fx_status_name(fxi_train(args)), fx_error_take().message);
    add_object(text, ((fx_dense_layer *)whole.model)->weight);
}

static void prepare_generate(void *args)
{
    static const int64_t context = 2;
    ((fx_generate_args *)args)->predictor =
        fx_predictor(NULL, fx_named_tuple("model", fx_embedding(256, 256), "about",
                                          fx_named_tuple("kind", fx_string("language")), "merges",
                                          fx_from(FX_DTYPE_I32, (const int32_t[]){0}, 2, 0),
                                          "shape", fx_from(FX_DTYPE_I64, &context, 1)));
}
static void observe_generate(const void *args, char *text)
{
    fx_seed(1);
    fx_array *ids = fxi_generate(args);
    add(text, "%s, sum %g\n", fx_error_take().message,
        fx_is_error(ids) ? -1 : fx_item(fx_sum(ids)));
}

static void prepare_checkpoint(void *args)
{
    ((fx_checkpoint_args *)args)->model = fx_vector(1, 2);
}
static void observe_checkpoint(const void *args, char *text)
{
    const char *path = temp_file("options.checkpoint", "", 0);
    const fx_status status = fxi_checkpoint_save(path, args);
    add(text, "%s %s\n", fx_status_name(status), fx_error_take().message);
}

/* The lines of a log, but for the time of day. */
static void add_log(fx_run_log *log, fx_status status, char *text)
{
    char lines[1000] = "";
    const ssize_t n = pread(fxi_run_log_descriptor(log), lines, sizeof lines - 1, 0);
    char *time = strstr(lines, "\"time\":\"");
    if (time)
        memset(time + 8, '0', 20);
    add(text, "%d %s %s", (int)n, fx_status_name(status), lines);
    fx_run_log_close(log);
    add(text, " %s\n", fx_error_take().message);
}
static const int64_t counts[] = {3, 1, 0, 4};
static const char *const names[] = {"a", "b"};
static const fx_run_sample a_sample = {(double[]){1}, 1, counts, 1,     (double[]){2},
                                       (double[]){3}, 1, 1,      false, 0};
static const fx_run_score a_score = {"mae", 0.5};
static const double a_pair[] = {1, 2};
static void prepare_run_start(void *args)
{
    ((fx_run_log_start_args *)args)->model = "relu";
}
static void observe_run_start(const void *args, char *text)
{
    fx_run_log *log = fx_run_log_open(NULL, false);
    add_log(log, fxi_run_log_start(log, args), text);
}
static void prepare_run_epoch(void *args)
{
    ((fx_run_log_epoch_args *)args)->epoch = 3;
}
static void observe_run_epoch(const void *args, char *text)
{
    fx_run_log *log = fx_run_log_open(NULL, false);
    add_log(log, fxi_run_log_epoch(log, args), text);
}
static void prepare_run_end(void *args)
{
    fx_run_log_end_args *e = args;
    e->why = "finished";
}
static void observe_run_end(const void *args, char *text)
{
    fx_run_log_end_args whole = {.fxi_size = sizeof whole, FXI_RUN_LOG_END_ARGS(FXI_DEFAULT)};
    fx_run_log *log = fx_run_log_open(NULL, false);
    add_log(log, fxi_run_log_end(log, args), text);
    log = fx_run_log_open(NULL, false); /* and all members at once */
    whole.confusion = counts, whole.classes = names, whole.nclasses = 2;
    whole.samples = &a_sample, whole.nsamples = 1;
    whole.columns = names, whole.ncolumns = 2;
    whole.scores = &a_score, whole.nscores = 1;
    whole.pairs = a_pair, whole.npairs = 1;
    add_log(log, fxi_run_log_end(log, &whole), text);
}

static void prepare_report(void *args)
{
    static const char log[] = "{\"event\":\"start\"}\n";
    fx_report_args *a = args;
    a->log = temp_file("options.jsonl", log, sizeof log - 1);
    a->page = temp_file("options.html", "", 0);
}
static void observe_report(const void *args, char *text)
{
    char page[100] = "";
    const fx_status status = fxi_report(args);
    FILE *f = fopen(((const fx_report_args *)args)->page, "r");
    const size_t n = f ? fread(page, 1, sizeof page - 1, f) : 0;
    if (f)
        fclose(f);
    add(text, "%s %zu %s %s\n", fx_status_name(status), n, page, fx_error_take().message);
}

static void observe_device(const void *args, char *text)
{
    fx_device *device = fxi_get_device(args);
    add(text, "%s %s\n", fx_device_name(device), fx_error_take().message);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* For a pointer, NULL has the meaning in the member's comment and is not a zero. */
#define IS_POINTER(x)                                                                              \
    _Generic((x), bool : 0, int : 0, int64_t : 0, uint64_t : 0, double : 0, char : 0,              \
             unsigned : 0, fx_dims : 0, fx_axes : 0, default : 1)
#define ROWS(F)                                                                                    \
    F(dense, fx_dense_args, FXI_DENSE_ARGS, 2, prepare_dense, NULL)                                \
    F(conv_layer, fx_conv_args, FXI_CONV_ARGS, 3, prepare_conv_layer, NULL)                        \
    F(crosscor, fx_crosscor_args, FXI_CROSSCOR_ARGS, 3, prepare_crosscor, NULL)                    \
    F(convtranspose, fx_convtranspose_args, FXI_CONVTRANSPOSE_ARGS, 3, prepare_convtranspose,      \
      NULL)                                                                                        \
    F(depthwiseconv, fx_conv_args, FXI_CONV_ARGS, 3, prepare_conv_layer, NULL)                     \
    F(pool_layer, fx_maxpool_args, FXI_MAXPOOL_ARGS, 1, prepare_pool_layer, NULL)                  \
    F(adaptive_pool, fx_adaptivemaxpool_args, FXI_ADAPTIVEMAXPOOL_ARGS, 1, prepare_adaptive_pool,  \
      NULL)                                                                                        \
    F(lpnormpool, fx_lpnormpool_args, FXI_LPNORMPOOL_ARGS, 1, prepare_lpnormpool, NULL)            \
    F(upsample, fx_upsample_args, FXI_UPSAMPLE_ARGS, 2, prepare_upsample, NULL)                    \
    F(pixelshuffle, fx_pixelshuffle_args, FXI_PIXELSHUFFLE_ARGS, 1, prepare_pixelshuffle, NULL)    \
    F(batchnorm, fx_batchnorm_args, FXI_BATCHNORM_ARGS, 1, prepare_batchnorm, NULL)                \
    F(layernorm, fx_layernorm_args, FXI_LAYERNORM_ARGS, 1, prepare_layernorm, NULL)                \
    F(skipconnection, fx_skipconnection_args, FXI_SKIPCONNECTION_ARGS, 2, prepare_skipconnection,  \
      NULL)                                                                                        \
    F(outputsize, fx_outputsize_args, FXI_OUTPUTSIZE_ARGS, 2, prepare_outputsize, NULL)            \
    F(weightnorm, fx_weightnorm_args, FXI_WEIGHTNORM_ARGS, 1, prepare_weightnorm, NULL)            \
    F(embedding, fx_embedding_args, FXI_EMBEDDING_ARGS, 2, prepare_embedding, NULL)                \
    F(embeddingbag, fx_embeddingbag_args, FXI_EMBEDDINGBAG_ARGS, 2, prepare_embeddingbag, NULL)    \
    F(scale, fx_scale_args, FXI_SCALE_ARGS, 1, prepare_scale, NULL)                                \
    F(bilinear, fx_bilinear_args, FXI_BILINEAR_ARGS, 2, prepare_bilinear, NULL)                    \
    F(dropout, fx_dropout_args, FXI_DROPOUT_ARGS, 1, prepare_dropout, NULL)                        \
    F(attention, fx_dot_product_attention_args, FXI_DOT_PRODUCT_ATTENTION_ARGS, 3,                 \
      prepare_attention, NULL)                                                                     \
    F(rotary, fx_rotary_embedding_args, FXI_ROTARY_EMBEDDING_ARGS, 1, prepare_rotary, NULL)        \
    F(multiheadattention, fx_multiheadattention_args, FXI_MULTIHEADATTENTION_ARGS, 1,              \
      prepare_multiheadattention, NULL)                                                            \
    F(attend, fx_attend_args, FXI_ATTEND_ARGS, 2, prepare_attend, NULL)                            \
    F(transformerblock, fx_transformerblock_args, FXI_TRANSFORMERBLOCK_ARGS, 1,                    \
      prepare_transformerblock, NULL)                                                              \
    F(instancenorm, fx_instancenorm_args, FXI_INSTANCENORM_ARGS, 1, prepare_instancenorm, NULL)    \
    F(groupnorm, fx_groupnorm_args, FXI_GROUPNORM_ARGS, 2, prepare_groupnorm, NULL)                \
    F(rmsnorm, fx_rmsnorm_args, FXI_RMSNORM_ARGS, 1, prepare_rmsnorm, NULL)                        \
    F(alphadropout, fx_alphadropout_args, FXI_ALPHADROPOUT_ARGS, 1, prepare_alphadropout, NULL)    \
    F(rnncell, fx_rnncell_args, FXI_RNNCELL_ARGS, 2, prepare_rnncell, NULL)                        \
    F(lstmcell, fx_lstmcell_args, FXI_LSTMCELL_ARGS, 2, prepare_lstmcell, NULL)                    \
    F(rnn, fx_rnn_args, FXI_RNN_ARGS, 2, prepare_rnn, NULL)                                        \
    F(lstm, fx_lstm_args, FXI_LSTM_ARGS, 2, prepare_lstm, NULL)                                    \
    F(recurrence, fx_recurrence_args, FXI_RECURRENCE_ARGS, 1, prepare_recurrence, NULL)            \
    F(bidirectional, fx_bidirectional_args, FXI_BIDIRECTIONAL_ARGS, 2, prepare_bidirectional,      \
      NULL)                                                                                        \
    F(recur, fx_recur_args, FXI_RECUR_ARGS, 2, prepare_recur, NULL)                                \
    F(reduce, fx_reduce_args, FXI_REDUCE_ARGS, 1, prepare_reduce, NULL)                            \
    F(truth, fx_reduce_args, FXI_REDUCE_ARGS, 1, prepare_truth, NULL)                              \
    F(var, fx_var_args, FXI_VAR_ARGS, 1, prepare_var, NULL)                                        \
    F(softmax, fx_softmax_args, FXI_SOFTMAX_ARGS, 1, prepare_softmax, NULL)                        \
    F(conv, fx_convolve_args, FXI_CONVOLVE_ARGS, 2, prepare_conv, NULL)                            \
    F(pool, fx_pool_args, FXI_POOL_ARGS, 2, prepare_pool, NULL)                                    \
    F(resize, fx_resize_args, FXI_RESIZE_ARGS, 3, prepare_resize, NULL)                            \
    F(unfold, fx_unfold_args, FXI_UNFOLD_ARGS, 2, prepare_unfold, NULL)                            \
    F(fold, fx_fold_args, FXI_FOLD_ARGS, 3, prepare_fold, NULL)                                    \
    F(grid_sample, fx_grid_sample_args, FXI_GRID_SAMPLE_ARGS, 2, prepare_grid_sample, NULL)        \
    F(loss, fx_loss_args, FXI_LOSS_ARGS, 2, prepare_loss, NULL)                                    \
    F(init, fx_init_args, FXI_INIT_ARGS, 2, prepare_init, NULL)                                    \
    F(descent, fx_descent_args, FXI_DESCENT_ARGS, 0, NULL, NULL)                                   \
    F(momentum, fx_momentum_args, FXI_MOMENTUM_ARGS, 0, NULL, NULL)                                \
    F(nesterov, fx_nesterov_args, FXI_NESTEROV_ARGS, 0, NULL, NULL)                                \
    F(adam, fx_adam_args, FXI_ADAM_ARGS, 0, NULL, NULL)                                            \
    F(adamw, fx_adamw_args, FXI_ADAMW_ARGS, 0, NULL, NULL)                                         \
    F(rprop, fx_rprop_args, FXI_RPROP_ARGS, 0, NULL, NULL)                                         \
    F(rmsprop, fx_rmsprop_args, FXI_RMSPROP_ARGS, 0, NULL, NULL)                                   \
    F(adamax, fx_adamax_args, FXI_ADAM_ARGS, 0, NULL, NULL)                                        \
    F(nadam, fx_nadam_args, FXI_ADAM_ARGS, 0, NULL, NULL)                                          \
    F(radam, fx_radam_args, FXI_ADAM_ARGS, 0, NULL, NULL)                                          \
    F(amsgrad, fx_amsgrad_args, FXI_ADAM_ARGS, 0, NULL, NULL)                                      \
    F(oadam, fx_oadam_args, FXI_OADAM_ARGS, 0, NULL, NULL)                                         \
    F(adabelief, fx_adabelief_args, FXI_ADABELIEF_ARGS, 0, NULL, NULL)                             \
    F(adagrad, fx_adagrad_args, FXI_ADAGRAD_ARGS, 0, NULL, NULL)                                   \
    F(adadelta, fx_adadelta_args, FXI_ADADELTA_ARGS, 0, NULL, NULL)                                \
    F(lion, fx_lion_args, FXI_LION_ARGS, 0, NULL, NULL)                                            \
    F(weight_decay, fx_weight_decay_args, FXI_WEIGHT_DECAY_ARGS, 0, NULL, NULL)                    \
    F(sign_decay, fx_sign_decay_args, FXI_SIGN_DECAY_ARGS, 0, NULL, NULL)                          \
    F(clip_grad, fx_clip_grad_args, FXI_CLIP_GRAD_ARGS, 0, NULL, NULL)                             \
    F(clip_norm, fx_clip_norm_args, FXI_CLIP_NORM_ARGS, 0, NULL, NULL)                             \
    F(accum_grad, fx_accum_grad_args, FXI_ACCUM_GRAD_ARGS, 0, NULL, NULL)                          \
    F(mixed_precision, fx_mixed_precision_args, FXI_MIXED_PRECISION_ARGS, 1,                       \
      prepare_mixed_precision, NULL)                                                               \
    F(adjust, fx_adjust_args, FXI_ADJUST_ARGS, 0, NULL, NULL)                                      \
    F(update, fx_update_args, FXI_UPDATE_ARGS, 3, prepare_update, NULL)                            \
    F(dist_init, fx_dist_init_args, FXI_DIST_INIT_ARGS, 1, prepare_dist_init, NULL)                \
    F(dist_optimiser, fx_dist_optimiser_args, FXI_DIST_OPTIMISER_ARGS, 1, prepare_dist_optimiser,  \
      NULL)                                                                                        \
    F(table, fx_read_table_args, FXI_READ_TABLE_ARGS, 1, prepare_table, NULL)                      \
    F(loader, fx_dataloader_args, FXI_DATALOADER_ARGS, 1, prepare_loader, "workers")               \
    F(augment, fx_augment_args, FXI_AUGMENT_ARGS, 2, prepare_augment, NULL)                        \
    F(stft, fx_stft_args, FXI_STFT_ARGS, 2, prepare_stft, NULL)                                    \
    F(istft, fx_istft_args, FXI_ISTFT_ARGS, 3, prepare_istft, NULL)                                \
    F(split, fx_splitobs_args, FXI_SPLITOBS_ARGS, 2, prepare_split, "seed")                        \
    F(kfolds, fx_kfolds_args, FXI_KFOLDS_ARGS, 1, prepare_kfolds, "seed")                          \
    F(series, fx_timeseries_kfolds_args, FXI_TIMESERIES_KFOLDS_ARGS, 1, prepare_series, NULL)      \
    F(train, fx_train_args, FXI_TRAIN_ARGS, 4, prepare_train, "patience checkpoint_keep")          \
    F(generate, fx_generate_args, FXI_GENERATE_ARGS, 1, prepare_generate, NULL)                    \
    F(checkpoint, fx_checkpoint_args, FXI_CHECKPOINT_ARGS, 1, prepare_checkpoint, NULL)            \
    F(run_start, fx_run_log_start_args, FXI_RUN_LOG_START_ARGS, 1, prepare_run_start, NULL)        \
    F(run_epoch, fx_run_log_epoch_args, FXI_RUN_LOG_EPOCH_ARGS, 1, prepare_run_epoch, NULL)        \
    F(run_end, fx_run_log_end_args, FXI_RUN_LOG_END_ARGS, 1, prepare_run_end, NULL)                \
    F(report, fx_report_args, FXI_REPORT_ARGS, 2, prepare_report, NULL)                            \
    F(device, fx_get_device_args, FXI_GET_DEVICE_ARGS, 0, NULL, NULL)

#define MEMBER(type, m, value)                                                                     \
    {#m, offsetof(THIS, m), sizeof(((THIS *)0)->m), IS_POINTER(((THIS *)0)->m)},
#define TABLES(id, T, MEMBERS, required, prepare, unseen)                                          \
    static const T id##_defaults = {.fxi_size = sizeof(T), MEMBERS(FXI_DEFAULT)};                  \
    static int id##_members(member *out)                                                           \
    {                                                                                              \
        typedef T THIS;                                                                            \
        static const member all[] = {MEMBERS(MEMBER)};                                             \
        if (out)                                                                                   \
            memcpy(out, all, sizeof all);                                                          \
        return COUNT(all);                                                                         \
    }
ROWS(TABLES)

enum { MOST = 24 };
static int all_subjects(subject *out, member (*members)[MOST])
{
    int n = 0;
#define ADD(id, T, MEMBERS, needs, set, hidden)                                                    \
    assert_true(id##_members(NULL) <= MOST);                                                       \
    out[n] = (subject){.name = #T,                                                                 \
                       .size = sizeof(T),                                                          \
                       .defaults = &id##_defaults,                                                 \
                       .members = members[n],                                                      \
                       .count = id##_members(members[n]),                                          \
                       .required = (needs),                                                        \
                       .prepare = (set),                                                           \
                       .observe = observe_##id,                                                    \
                       .unseen = (hidden)};                                                        \
    n++;
    ROWS(ADD)
#undef ADD
    return n;
}

/* Makes the call with the first `size` bytes of a struct, in memory of that size, and writes the
 * result. */
static void observe(const subject *s, const char *bytes, size_t size, char *text)
{
    char *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    memcpy(copy, &size, sizeof size);
    text[0] = '\0';
    s->observe(copy, text);
    free(copy);
}

static void begin(const subject *s, char *bytes)
{
    memcpy(bytes, s->defaults, s->size);
    if (s->prepare)
        s->prepare(bytes);
}

enum { BYTES = 2048 };

static void older_structs_get_defaults(const subject *s, int *io_checks)
{
    FX_SCOPE;
    char bytes[BYTES] = {0}, want[TEXT], got[TEXT];
    begin(s, bytes);
    observe(s, bytes, s->size, want);
    for (int k = s->required > 0 ? s->required : 1; k < s->count; k++) {
        observe(s, bytes, s->members[k].offset, got);
        if (strcmp(got, want) != 0)
            fail_msg("%s that ends before %s gives\n%sinstead of\n%s", s->name, s->members[k].name,
                     got, want);
        ++*io_checks;
    }
}

static void newer_structs_are_understood_or_refused(const subject *s)
{
    FX_SCOPE;
    char bytes[BYTES] = {0}, want[TEXT], got[TEXT];
    begin(s, bytes);
    observe(s, bytes, s->size, want);
    observe(s, bytes, s->size + 16, got);
    assert_string_equal(got, want);
    bytes[s->size + 8] = 1;
    observe(s, bytes, s->size + 16, got);
    if (!strstr(got, "the program was compiled for a newer cflux"))
        fail_msg("%s with an unknown option gives\n%s", s->name, got);
    observe(s, bytes, s->size + 4, got);
    if (!strstr(got, "must begin with its size"))
        fail_msg("%s of %zu bytes gives\n%s", s->name, s->size + 4, got);
}

static bool is_zero(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

static void zero_is_a_value(const subject *s, int *io_checks)
{
    for (int k = s->required; k < s->count; k++) {
        FX_SCOPE;
        const member *m = &s->members[k];
        char bytes[BYTES] = {0}, standard[TEXT], got[TEXT];
        begin(s, bytes);
        if (m->pointer || is_zero(bytes + m->offset, m->size) ||
            (s->unseen && strstr(s->unseen, m->name)))
            continue;
        observe(s, bytes, s->size, standard);
        memset(bytes + m->offset, 0, m->size);
        observe(s, bytes, s->size, got);
        if (strcmp(got, standard) == 0)
            fail_msg("%s: .%s = 0 gives the same as the default:\n%s", s->name, m->name, got);
        ++*io_checks;
    }
}

static void every_struct_honours_its_size(void **state)
{
    (void)state;
    static subject all[128];
    static member members[128][MOST];
    const int n = all_subjects(all, members);
    int older = 0, zeros = 0;
    for (int i = 0; i < n; i++) {
        assert_true(all[i].size + 64 <= BYTES);
        older_structs_get_defaults(&all[i], &older);
        newer_structs_are_understood_or_refused(&all[i]);
        zero_is_a_value(&all[i], &zeros);
    }
    printf("%d structs, %d shorter ones, %d members set to zero\n", n, older, zeros);
    assert_true(n >= 25 && older >= 80 && zeros >= 40);
}

/* Members aligned to 8 bytes are never in the padding of an older struct. */
static void members_are_aligned(void **state)
{
    (void)state;
    static subject all[128];
    static member members[128][MOST];
    const int n = all_subjects(all, members);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < all[i].count; k++)
            assert_int_equal(all[i].members[k].offset % 8, 0);
}

/* A checkpoint is filled in as far as the caller's struct goes. */
static void loading_honours_the_size(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_file("size.checkpoint", "", 0);
    fx_array *x = fx_vector(1, 2);
    assert_int_equal(fx_checkpoint_save(path, x, .epoch = 3, .step = 7), FX_OK);
    const size_t size = offsetof(fx_checkpoint_args, step);
    const fx_checkpoint_args given = {.fxi_size = size, .model = x};
    char *c = malloc(size); /* ends where an older struct ends */
    int64_t epoch;
    assert_non_null(c);
    memcpy(c, &given, size);
    assert_int_equal(fxi_checkpoint_load(path, (fx_checkpoint_args *)(void *)c), FX_OK);
    memcpy(&epoch, c + offsetof(fx_checkpoint_args, epoch), sizeof epoch);
    assert_int_equal(epoch, 3);
    free(c);
    fx_checkpoint_args whole = {.model = x};
    assert_int_equal(fx_checkpoint_load(path, &whole), FX_OK);
    assert_int_equal(whole.step, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_struct_honours_its_size),
        TEST(members_are_aligned),
        TEST(loading_honours_the_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
