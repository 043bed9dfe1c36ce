/* options.cc: option structs as C++ programs of every standard from C++11 to C++20 see them.
 * ctest: quick
 *
 * This file is compiled once for each standard. For every option struct it compares the layout with
 * that of the struct in C, which is written down here again from the same list of members, and
 * tries to reach what is private. Then it makes layers with the form that the standard offers:
 * members, setters, and, in C++20, designated initialisers. A failed check is printed with its
 * line; the exit status is the number of failed checks, at most 99.
 */
#include <cflux.h>

#include <cstdio>
#include <cstring>
#include <type_traits>

namespace
{

int failures = 0, structs = 0, members = 0;

void check(bool ok, const char *what, int line)
{
    if (ok)
        return;
    failures++;
    std::fprintf(stderr, "options.cc:%d: %s\n", line, what);
}

#define CHECK(...) check((__VA_ARGS__), #__VA_ARGS__, __LINE__)

/* Can a program name T::fxi_size? */
template <class T> auto shows_size(int) -> decltype(T().fxi_size, std::true_type());
template <class T> std::false_type shows_size(...);

#define IN_C(type, name, value) alignas(8) type name;
#define SAME_PLACE(type, name, value)                                                              \
    members++;                                                                                     \
    CHECK(reinterpret_cast<const char *>(&sized.options().name) - start ==                         \
          static_cast<std::ptrdiff_t>(offsetof(c_form, name)));
/* Does C++ fill the same struct as C: does the library get its size, and the members at their
 * offsets? */
#define ROW(T, MEMBERS)                                                                            \
    {                                                                                              \
        struct c_form {                                                                            \
            size_t fxi_size;                                                                       \
            MEMBERS(IN_C)                                                                          \
        };                                                                                         \
        const fxi_sized<T> sized{T()};                                                             \
        const T *pointer = sized;                                                                  \
        const char *start = reinterpret_cast<const char *>(pointer);                               \
        size_t first;                                                                              \
        std::memcpy(&first, start, sizeof first);                                                  \
        structs++;                                                                                 \
        MEMBERS(SAME_PLACE)                                                                        \
        CHECK(sizeof sized == sizeof(c_form) && first == sizeof(c_form));                          \
        CHECK(!decltype(shows_size<T>(0))::value && std::is_standard_layout<T>::value);            \
    }

void layout()
{
    ROW(fx_read_table_args, FXI_READ_TABLE_ARGS)
    ROW(fx_dataloader_args, FXI_DATALOADER_ARGS)
    ROW(fx_splitobs_args, FXI_SPLITOBS_ARGS)
    ROW(fx_kfolds_args, FXI_KFOLDS_ARGS)
    ROW(fx_timeseries_kfolds_args, FXI_TIMESERIES_KFOLDS_ARGS)
    ROW(fx_augment_args, FXI_AUGMENT_ARGS)
    ROW(fx_stft_args, FXI_STFT_ARGS)
    ROW(fx_istft_args, FXI_ISTFT_ARGS)
    ROW(fx_get_device_args, FXI_GET_DEVICE_ARGS)
    ROW(fx_checkpoint_args, FXI_CHECKPOINT_ARGS)
    ROW(fx_dense_args, FXI_DENSE_ARGS)
    ROW(fx_conv_args, FXI_CONV_ARGS)
    ROW(fx_crosscor_args, FXI_CROSSCOR_ARGS)
    ROW(fx_convtranspose_args, FXI_CONVTRANSPOSE_ARGS)
    ROW(fx_adaptivemaxpool_args, FXI_ADAPTIVEMAXPOOL_ARGS)
    ROW(fx_lpnormpool_args, FXI_LPNORMPOOL_ARGS)
    ROW(fx_upsample_args, FXI_UPSAMPLE_ARGS)
    ROW(fx_pixelshuffle_args, FXI_PIXELSHUFFLE_ARGS)
    ROW(fx_resize_args, FXI_RESIZE_ARGS)
    ROW(fx_unfold_args, FXI_UNFOLD_ARGS)
    ROW(fx_fold_args, FXI_FOLD_ARGS)
    ROW(fx_grid_sample_args, FXI_GRID_SAMPLE_ARGS)
    ROW(fx_maxpool_args, FXI_MAXPOOL_ARGS)
    ROW(fx_batchnorm_args, FXI_BATCHNORM_ARGS)
    ROW(fx_layernorm_args, FXI_LAYERNORM_ARGS)
    ROW(fx_skipconnection_args, FXI_SKIPCONNECTION_ARGS)
    ROW(fx_scale_args, FXI_SCALE_ARGS)
    ROW(fx_outputsize_args, FXI_OUTPUTSIZE_ARGS)
    ROW(fx_weightnorm_args, FXI_WEIGHTNORM_ARGS)
    ROW(fx_embedding_args, FXI_EMBEDDING_ARGS)
    ROW(fx_embeddingbag_args, FXI_EMBEDDINGBAG_ARGS)
    ROW(fx_bilinear_args, FXI_BILINEAR_ARGS)
    ROW(fx_dropout_args, FXI_DROPOUT_ARGS)
    ROW(fx_dot_product_attention_args, FXI_DOT_PRODUCT_ATTENTION_ARGS)
    ROW(fx_rotary_embedding_args, FXI_ROTARY_EMBEDDING_ARGS)
    ROW(fx_multiheadattention_args, FXI_MULTIHEADATTENTION_ARGS)
    ROW(fx_attend_args, FXI_ATTEND_ARGS)
    CHECK(fx_multiheadattention(FX_DIMS(8))->nheads == 8);
    ROW(fx_transformerblock_args, FXI_TRANSFORMERBLOCK_ARGS)
    CHECK(!fx_transformerblock(8)->causal);
    ROW(fx_instancenorm_args, FXI_INSTANCENORM_ARGS)
    ROW(fx_groupnorm_args, FXI_GROUPNORM_ARGS)
    ROW(fx_rmsnorm_args, FXI_RMSNORM_ARGS)
    ROW(fx_alphadropout_args, FXI_ALPHADROPOUT_ARGS)
    CHECK(fx_instancenorm(2)->gamma == nullptr && fx_groupnorm(4, 2)->groups == 2);
    CHECK(fx_rmsnorm(FX_DIMS(3))->size.n == 1 && fx_alphadropout(0.5)->p == 0.5);
    ROW(fx_rnncell_args, FXI_RNNCELL_ARGS)
    ROW(fx_lstmcell_args, FXI_LSTMCELL_ARGS)
    ROW(fx_rnn_args, FXI_RNN_ARGS)
    ROW(fx_lstm_args, FXI_LSTM_ARGS)
    ROW(fx_recurrence_args, FXI_RECURRENCE_ARGS)
    ROW(fx_bidirectional_args, FXI_BIDIRECTIONAL_ARGS)
    ROW(fx_recur_args, FXI_RECUR_ARGS)
    CHECK(fx_size(fx_lstmcell(2, 3)->wi, 0) == 12 && fx_size(fx_grucell(2, 3)->wi, 0) == 9);
    CHECK(fx_gruv3cell(2, 3)->wh_new != nullptr && fx_rnncell(2, 3)->act == FX_TANH);
    CHECK(fx_lstm(2, 3)->cell != nullptr && fx_gru(2, 3)->cell != nullptr);
    CHECK(fx_rnn(2, 3)->cell != nullptr && fx_gruv3(2, 3)->cell != nullptr);
    CHECK(!fx_recurrence(fx_rnncell(2, 3))->return_state);
    CHECK(!fx_bidirectional(fx_rnn(2, 3), fx_gru(2, 3))->return_state);
    CHECK(fx_size(static_cast<fx_array *>(
                      fx_recur(fx_recur_args().with_layer(fx_rnn(2, 3)).with_x(fx_ones(2, 4, 5)))),
                  1) == 4);
    ROW(fx_loss_args, FXI_LOSS_ARGS)
    ROW(fx_reduce_args, FXI_REDUCE_ARGS)
    ROW(fx_var_args, FXI_VAR_ARGS)
    ROW(fx_softmax_args, FXI_SOFTMAX_ARGS)
    ROW(fx_convolve_args, FXI_CONVOLVE_ARGS)
    ROW(fx_pool_args, FXI_POOL_ARGS)
    ROW(fx_init_args, FXI_INIT_ARGS)
    ROW(fx_descent_args, FXI_DESCENT_ARGS)
    ROW(fx_momentum_args, FXI_MOMENTUM_ARGS)
    ROW(fx_nesterov_args, FXI_NESTEROV_ARGS)
    ROW(fx_adam_args, FXI_ADAM_ARGS)
    ROW(fx_adamw_args, FXI_ADAMW_ARGS)
    ROW(fx_rprop_args, FXI_RPROP_ARGS)
    ROW(fx_rmsprop_args, FXI_RMSPROP_ARGS)
    ROW(fx_adamax_args, FXI_ADAM_ARGS)
    ROW(fx_nadam_args, FXI_ADAM_ARGS)
    ROW(fx_radam_args, FXI_ADAM_ARGS)
    ROW(fx_amsgrad_args, FXI_ADAM_ARGS)
    ROW(fx_oadam_args, FXI_OADAM_ARGS)
    ROW(fx_adabelief_args, FXI_ADABELIEF_ARGS)
    ROW(fx_adagrad_args, FXI_ADAGRAD_ARGS)
    ROW(fx_adadelta_args, FXI_ADADELTA_ARGS)
    ROW(fx_lion_args, FXI_LION_ARGS)
    ROW(fx_weight_decay_args, FXI_WEIGHT_DECAY_ARGS)
    ROW(fx_sign_decay_args, FXI_SIGN_DECAY_ARGS)
    ROW(fx_clip_grad_args, FXI_CLIP_GRAD_ARGS)
    ROW(fx_clip_norm_args, FXI_CLIP_NORM_ARGS)
    ROW(fx_accum_grad_args, FXI_ACCUM_GRAD_ARGS)
    ROW(fx_mixed_precision_args, FXI_MIXED_PRECISION_ARGS)
    ROW(fx_adjust_args, FXI_ADJUST_ARGS)
    ROW(fx_update_args, FXI_UPDATE_ARGS)
    ROW(fx_dist_init_args, FXI_DIST_INIT_ARGS)
    ROW(fx_dist_optimiser_args, FXI_DIST_OPTIMISER_ARGS)
    ROW(fx_train_args, FXI_TRAIN_ARGS)
    ROW(fx_generate_args, FXI_GENERATE_ARGS)
    ROW(fx_report_args, FXI_REPORT_ARGS)
    ROW(fx_run_log_start_args, FXI_RUN_LOG_START_ARGS)
    ROW(fx_run_log_epoch_args, FXI_RUN_LOG_EPOCH_ARGS)
    ROW(fx_run_log_end_args, FXI_RUN_LOG_END_ARGS)
    CHECK(structs >= 28 && members >= 100);
}

/* y = sum(W·1) of a Dense layer of ones without a bias, 2 => 3. */
bool six(fx_dense_layer *d)
{
    fx_array *y = fx_call(d, fx_ones(2));
    return d->bias == nullptr && d->act == FX_RELU && fx_length(y) == 3 && fx_item(fx_sum(y)) == 6;
}

void forms()
{
    FX_SCOPE;
    fx_dense_args a{};
    a.in = 2;
    a.out = 3;
    a.act = FX_RELU;
    a.bias = false;
    a.init = fx_ones_init;
    CHECK(six(fx_dense(a)));
    CHECK(six(
        fx_dense(fx_dense_args().with_in(2).with_out(3).with_act(FX_RELU).with_bias(0).with_init(
            fx_ones_init))));
    const fx_dense_args copy = a;
    CHECK(six(fx_dense(copy)));
#if __cplusplus >= 202002L
    CHECK(six(fx_dense({.in = 2, .out = 3, .act = FX_RELU, .bias = 0, .init = fx_ones_init})));
    fx_array *x = fx_reshape(fx_vector(1, 2, 3, 4, 5, 6), 2, 3);
    fx_array *s = fx_sum({.x = x, .dims = FX_AXES(1), .drop = true});
    CHECK(fx_ndims(s) == 1 && fx_at(s, 0) == 9 && fx_at(s, 1) == 12);
    static_assert(std::is_aggregate<fx_dense_args>::value, "designated initialisers");
#endif
    CHECK(fx_error_print(stderr) == 0);
}

fx_array *loss(void *m, const fx_batch *b, void *)
{
    return fx_mse(fx_call(m, b->x), b->y);
}

/* A struct that is filled member by member contains its size: training and loading work. */
void training()
{
    FX_SCOPE;
    fx_dense_layer *m = fx_dense(2, 1);
    fx_dataloader_args l{};
    l.data = fx_tuple(fx_ones(2, 8), fx_zeros(1, 8));
    l.batchsize = 4;
    fx_train_args a{};
    a.loss = loss;
    a.model = m;
    a.data = fx_dataloader(l);
    a.state = fx_setup(fx_adam(), m);
    a.epochs = 3;
    CHECK(fx_train(a) == FX_OK && fx_error_print(stderr) == 0);
}

} // namespace

int main()
{
    layout();
    forms();
    training();
    std::printf("C++ %ld: %d structs, %d members\n", static_cast<long>(__cplusplus), structs,
                members);
    return failures < 99 ? failures : 99;
}
