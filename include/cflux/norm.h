/* cflux/norm.h: InstanceNorm, GroupNorm, RMSNorm and AlphaDropout. Included by nn.h, which has
 * BatchNorm, LayerNorm and Dropout.
 *
 * InstanceNorm and GroupNorm keep their arrays in Float32 in 16-bit models (fx_f16, fx_bf16), as
 * BatchNorm does. They compute 16-bit inputs in Float32, and round the result to the type of the
 * input. */
#ifndef CFLUX_NORM_H
#define CFLUX_NORM_H

#include <cflux/nn.h>

FXI_BEGIN_C

/* ---- InstanceNorm ---------------------------------------------------------------------------- */
/* y = act(γ·(x − μ)/√(σ² + ε) + β) with the mean μ and variance σ² of each channel of each
 * observation. x: spatial…×channels×batch with at least one spatial axis. With .track_stats = true,
 * the layer updates running statistics from the means over the batch, as BatchNorm does, and uses
 * them for μ and σ² in inference. A call in training is FX_STATUS_ARGUMENT if a channel of an
 * observation has only one number. Flux.InstanceNorm; Ulyanov et al., 2016. */
typedef fx_batchnorm_layer fx_instancenorm_layer;
/* clang-format off */
#define FXI_INSTANCENORM_ARGS(F)                                                                   \
    F(int64_t, channels, 0)              /* size of x along its channel axis */                    \
    F(fx_function *, act, FX_IDENTITY)   /* activation */                                          \
    F(bool, affine, false)               /* true: with γ and β */                                  \
    F(bool, track_stats, false)          /* true: with running statistics */                       \
    F(double, eps, 1e-5)                 /* ε */                                                   \
    F(double, momentum, 0.1)             /* weight of the latest statistics */                     \
    F(fx_active, active, FX_ACTIVE_AUTO) /* FX_ACTIVE_AUTO: training behaviour inside FX_STEP */   \
    F(fx_init_fn, init_beta, fx_zeros_init) /* initialiser of β */                                 \
    F(fx_init_fn, init_gamma, fx_ones_init) /* initialiser of γ */
/* clang-format on */
FXI_OPTION_STRUCT(fx_instancenorm_args, FXI_INSTANCENORM_ARGS);
FX_API fx_instancenorm_layer *fxi_instancenorm(const fx_instancenorm_args *a);
#define fx_instancenorm(...)                                                                       \
    FXI_CALL(fxi_instancenorm(FXI_OPTIONS(                                                         \
        fx_instancenorm_args, FXI_INSTANCENORM_ARGS(FXI_DEFAULT).channels = __VA_ARGS__)))

/* ---- GroupNorm ------------------------------------------------------------------------------- */
/* y = act(γ·(x − μ)/√(σ² + ε) + β) with the mean μ and variance σ² of each group of channels of
 * each observation; γ and β per channel. x: spatial…×channels×batch. Computes the same in training
 * and in inference; running statistics in files of Flux until 0.12 are ignored. FX_STATUS_ARGUMENT:
 * "The number of groups (3) must divide the number of channels (8)". Flux.GroupNorm; Wu, He, 2018.
 */
typedef struct fx_groupnorm_layer {
    fx_object base;
    fx_function *act;
    fx_array *beta, *gamma; /* NULL with .affine = false */
    double epsilon;
    double momentum;  /* not used, as in Flux */
    bool track_stats; /* always false */
    int64_t channels, groups;
    int64_t active; /* an fx_active; not used, as in Flux */
} fx_groupnorm_layer;
/* clang-format off */
#define FXI_GROUPNORM_ARGS(F)                                                                      \
    F(int64_t, channels, 0)              /* size of x along its channel axis */                    \
    F(int64_t, groups, 0)                /* must divide channels */                                \
    F(fx_function *, act, FX_IDENTITY)   /* activation */                                          \
    F(bool, affine, true)                /* false: no γ and no β */                                \
    F(double, eps, 1e-5)                 /* ε */                                                   \
    F(double, momentum, 0.1)             /* kept for files of Flux */                              \
    F(fx_active, active, FX_ACTIVE_AUTO) /* kept for files of Flux */                              \
    F(fx_init_fn, init_beta, fx_zeros_init) /* initialiser of β */                                 \
    F(fx_init_fn, init_gamma, fx_ones_init) /* initialiser of γ */
/* clang-format on */
FXI_OPTION_STRUCT(fx_groupnorm_args, FXI_GROUPNORM_ARGS);
FX_API fx_groupnorm_layer *fxi_groupnorm(const fx_groupnorm_args *a);
#define fx_groupnorm(...)                                                                          \
    FXI_CALL(fxi_groupnorm(                                                                        \
        FXI_OPTIONS(fx_groupnorm_args, FXI_GROUPNORM_ARGS(FXI_DEFAULT).channels = __VA_ARGS__)))

/* ---- RMSNorm --------------------------------------------------------------------------------- */
/* y = act(γ·x/√(mean(x²) + ε)), the mean over the first axes of x, which have the sizes `size`; γ
 * (scale) has these sizes. 16-bit inputs are computed in Float32. Flux has no such layer, so it
 * cannot be saved as BSON; PyTorch's name is torch.nn.RMSNorm. Zhang, Sennrich, 2019. */
typedef struct fx_rmsnorm_layer {
    fx_object base;
    fx_function *act;
    fx_array *scale; /* NULL with .affine = false */
    fx_dims size;
    double epsilon;
} fx_rmsnorm_layer;
/* clang-format off */
#define FXI_RMSNORM_ARGS(F)                                                                        \
    F(fx_dims, size, FXI_DIMS_NONE)    /* sizes of the first axes: 5, or FX_DIMS(5, 4) */          \
    F(fx_function *, act, FX_IDENTITY) /* activation */                                            \
    F(bool, affine, true)              /* false: no γ */                                           \
    F(double, eps, 1e-5)               /* ε */
/* clang-format on */
FXI_OPTION_STRUCT(fx_rmsnorm_args, FXI_RMSNORM_ARGS);
FX_API fx_rmsnorm_layer *fxi_rmsnorm(const fx_rmsnorm_args *a);
#define fx_rmsnorm(...)                                                                            \
    FXI_CALL(fxi_rmsnorm(FXI_OPTIONS(fx_rmsnorm_args, FXI_RMSNORM_ARGS(FXI_DEFAULT).size =         \
                                                          FXI_SIZES_FIRST(__VA_ARGS__))))

/* ---- AlphaDropout ---------------------------------------------------------------------------- */
/* In training, y = A·x + B with probability 1 − p per element, otherwise A·α′ + B, where α′ =
 * −1.7580993408473766, A = 1/√((1 − p)(1 + p·α′²)), B = −A·α′·p: the mean and the variance of
 * normal inputs stay 0 and 1. p = 1 gives zeros. In inference y = x. p outside [0, 1] is
 * FX_STATUS_ARGUMENT. Flux.AlphaDropout; Klambauer et al., 2017. */
typedef struct fx_alphadropout_layer {
    fx_object base;
    double p;
    int64_t active; /* an fx_active */
} fx_alphadropout_layer;
/* clang-format off */
#define FXI_ALPHADROPOUT_ARGS(F)                                                                   \
    F(double, p, 0)                      /* probability of α′ */                                   \
    F(fx_active, active, FX_ACTIVE_AUTO) /* FX_ACTIVE_AUTO: active inside FX_STEP */
/* clang-format on */
FXI_OPTION_STRUCT(fx_alphadropout_args, FXI_ALPHADROPOUT_ARGS);
FX_API fx_alphadropout_layer *fxi_alphadropout(const fx_alphadropout_args *a);
#define fx_alphadropout(...)                                                                       \
    FXI_CALL(fxi_alphadropout(                                                                     \
        FXI_OPTIONS(fx_alphadropout_args, FXI_ALPHADROPOUT_ARGS(FXI_DEFAULT).p = __VA_ARGS__)))

FXI_END_C
#endif
