/* cflux/nn.h: layers and initialisers; it includes the headers of further layers and of losses.
 * Names, defaults and formulas are those of Flux 0.16.
 *
 * A constructor takes the required arguments first and then named options: fx_dense(10, 5, FX_RELU,
 * .bias = false). The first argument has no name: fx_dropout(0.5), not fx_dropout(.p = 0.5). A
 * constructor returns a layer that the innermost scope owns; the layer holds references to its
 * arrays and sublayers. If it fails, it returns an error layer of the same type
 * (FX_STATUS_ARGUMENT, FX_STATUS_SHAPE, FX_STATUS_MEMORY). The structs are public: model->weight is
 * an array. Call a layer with fx_call (tree.h); an input of the wrong size gives an error array:
 * "Dense: layer Dense(30 => 10) expects size(input, 1) == 30, but got 32×8 Matrix{Float32}".
 *
 * A constructor evaluates the parameters that it creates if they take at most 16 MiB, so that other
 * threads can use the layer; larger ones are evaluated at first use, or by fx_eval.
 *
 * Element types: Dense, Bilinear, Scale, convolutions and recurrent layers convert an input to the
 * type of their weight (Float64 to Float32, and Float32 to Float16, with one warning each per
 * process). The result of a norm has the common type of the layer's arrays and the input, where
 * integers count as Float32. For a 16-bit input, BatchNorm, InstanceNorm and GroupNorm return the
 * type of the input. */
#ifndef CFLUX_NN_H
#define CFLUX_NN_H

#include <cflux/layer.h>
#include <cflux/ops.h>

FXI_BEGIN_C

/* ---- initialisers ---------------------------------------------------------------------------- */
/* Initialisers return Float32 arrays of the given sizes from the thread's random stream (fx_seed).
 * U(±a) is uniform in [−a, a); σ is the standard deviation of a normal distribution with mean 0.
 * |x| ≤ b: the distribution is truncated (not clipped) to −b … b, which makes its standard
 * deviation smaller than σ. fan_in and fan_out are in and out for out×in weights, and Πk·in and
 * Πk·out for kernels k…×in×out. Sources: Glorot, Bengio, 2010; He et al., 2015; LeCun et al.,
 * 1998. */
FX_API fx_array *fx_glorot_uniform(int ndims, const int64_t *sizes); /* U(±√(6/(fan_in+fan_out))) */
FX_API fx_array *fx_glorot_normal(int ndims, const int64_t *sizes); /* σ = √(2/(fan_in+fan_out)) */
FX_API fx_array *fx_kaiming_uniform(int ndims, const int64_t *sizes); /* U(±√(6/fan_in)) */
FX_API fx_array *fx_kaiming_normal(int ndims, const int64_t *sizes);  /* σ = √(2/fan_in) */
FX_API fx_array *fx_lecun_normal(int ndims, const int64_t *sizes); /* σ = √(1/fan_in), |x| ≤ 2 */
FX_API fx_array *fx_truncated_normal(int ndims, const int64_t *sizes); /* σ = 1, |x| ≤ 2 */
FX_API fx_array *fx_rand_init(int ndims, const int64_t *sizes);  /* uniform in [0, 1): rand32 */
FX_API fx_array *fx_randn_init(int ndims, const int64_t *sizes); /* σ = 1: randn32 */
FX_API fx_array *fx_zeros_init(int ndims, const int64_t *sizes); /* all 0 */
FX_API fx_array *fx_ones_init(int ndims, const int64_t *sizes);  /* all 1 */

/* ---- Dense ----------------------------------------------------------------------------------- */
/* y = act(W·x + b) with W: out×in, x: in×…, y: out×…. Flux.Dense. */
typedef struct fx_dense_layer {
    fx_object base;
    fx_array *weight, *bias; /* bias is NULL with .bias = false */
    fx_function *act;
} fx_dense_layer;
/* clang-format off */
#define FXI_DENSE_ARGS(F)                                                                          \
    F(int64_t, in, 0)                      /* size of x along axis 0 */                            \
    F(int64_t, out, 0)                     /* size of y along axis 0 */                            \
    F(fx_function *, act, FX_IDENTITY)     /* activation */                                        \
    F(int, bias, true)                     /* false: no bias */                                    \
    F(fx_init_fn, init, fx_glorot_uniform) /* initialiser of W */                                  \
    F(fx_array *, weight_array, FXI_NULL)  /* W itself, instead of init; in and out may be 0 */    \
    F(fx_array *, bias_array, FXI_NULL)    /* b itself, instead of zeros */
/* clang-format on */
FXI_OPTION_STRUCT(fx_dense_args, FXI_DENSE_ARGS);
FX_API fx_dense_layer *fxi_dense(const fx_dense_args *a);
#define fx_dense(...)                                                                              \
    FXI_CALL(fxi_dense(FXI_OPTIONS(fx_dense_args, FXI_DENSE_ARGS(FXI_DEFAULT).in = __VA_ARGS__)))

/* ---- Chain ----------------------------------------------------------------------------------- */
/* Flux.Chain: fx_chain(a, b, c) computes c(b(a(x))). Only the first layer may take several inputs.
 * A chain without layers returns its input. FX_STATUS_ARGUMENT if a layer is NULL or cannot be
 * called. */
typedef struct fx_chain_layer {
    fx_object base;
    fx_list layers;
} fx_chain_layer;
FX_API fx_chain_layer *fxi_chain(int n, void *const *layers);
/* A chain whose layers have names: fx_chain_of("enc", fx_dense(4, 2), "dec", fx_dense(2, 4)) is
 * Chain(enc = …, dec = …) in Flux. A name may be NULL. Two equal names, and the name "layers", are
 * FX_STATUS_ARGUMENT, as in Flux. */
FX_API fx_chain_layer *fxi_chain_pairs(int n, const void *const *names_and_layers);
#define fx_chain(...)    fxi_chain(FXI_OBJECTS(__VA_ARGS__))
#define fx_chain_of(...) fxi_chain_pairs(FXI_PAIRS(__VA_ARGS__))

/* ---- BatchNorm ------------------------------------------------------------------------------- */
/* y = act(γ·(x − μ)/√(σ² + ε) + β) per channel; channels are the axis before the last. In training,
 * μ and σ² are the mean and the variance Σ(x − μ)²/n of the batch, with n values per channel.
 * fx_update, or the end of the training step, updates the running statistics with momentum m: mean
 * ← (1−m)·mean + m·μ, var ← (1−m)·var + m·σ²·n/(n−1). Outside of a training step, with .active =
 * FX_ACTIVE_ON, the end of the scope updates them. In inference μ and σ² are the running
 * statistics. n = 1 in training is FX_STATUS_ARGUMENT. For a 16-bit x, y is computed in Float32 and
 * rounded to the type of x. Flux.BatchNorm; Ioffe, Szegedy, 2015. */
typedef struct fx_batchnorm_layer {
    fx_object base;
    fx_function *act;
    fx_array *beta, *gamma; /* NULL with .affine = false */
    fx_array *mean, *var;   /* running statistics; NULL with .track_stats = false */
    double epsilon, momentum;
    int64_t channels;
    int64_t active; /* an fx_active */
} fx_batchnorm_layer;
/* clang-format off */
#define FXI_BATCHNORM_ARGS(F)                                                                      \
    F(int64_t, channels, 0)              /* size of x along its channel axis */                    \
    F(fx_function *, act, FX_IDENTITY)   /* activation */                                          \
    F(bool, affine, true)                /* false: no γ and no β */                                \
    F(bool, track_stats, true)           /* false: use the batch's statistics in inference too */  \
    F(double, eps, 1e-5)                 /* ε */                                                   \
    F(double, momentum, 0.1)             /* m */                                                   \
    F(fx_active, active, FX_ACTIVE_AUTO) /* FX_ACTIVE_AUTO: training behaviour inside FX_STEP */   \
    F(fx_init_fn, init_beta, fx_zeros_init) /* initialiser of β */                                 \
    F(fx_init_fn, init_gamma, fx_ones_init) /* initialiser of γ */
/* clang-format on */
FXI_OPTION_STRUCT(fx_batchnorm_args, FXI_BATCHNORM_ARGS);
FX_API fx_batchnorm_layer *fxi_batchnorm(const fx_batchnorm_args *a);
#define fx_batchnorm(...)                                                                          \
    FXI_CALL(fxi_batchnorm(                                                                        \
        FXI_OPTIONS(fx_batchnorm_args, FXI_BATCHNORM_ARGS(FXI_DEFAULT).channels = __VA_ARGS__)))

/* ---- LayerNorm ------------------------------------------------------------------------------- */
/* y = act(γ·(x − μ)/d + β). μ and σ² are the mean and the variance, divided by n, of the n numbers
 * along the first axes of x. These axes, γ (scale) and β (bias) have the sizes `size`.
 * Flux.LayerNorm; Ba et al., 2016. d depends on the version of Flux, member `flux`:
 *   0.16   √(σ² + ε): Flux 0.16.11 and later, PyTorch
 *   0.15   √(σ² + ε²): Flux 0.15 to 0.16.10
 *   0.14   σ + ε: Flux 0.14 and earlier */
typedef struct fx_layernorm_layer {
    fx_object base;
    fx_function *act;
    fx_array *scale, *bias; /* NULL with .affine = false */
    fx_dims size;
    double epsilon;
    double flux;
} fx_layernorm_layer;
/* clang-format off */
#define FXI_LAYERNORM_ARGS(F)                                                                      \
    F(fx_dims, size, FXI_DIMS_NONE)    /* sizes of the first axes: 5, or FX_DIMS(5, 4) */          \
    F(fx_function *, act, FX_IDENTITY) /* activation */                                            \
    F(bool, affine, true)              /* false: no scale and no bias */                           \
    F(double, eps, 1e-5)               /* ε */                                                     \
    F(double, flux, 0.16)              /* which formula: 0.14, 0.15 or 0.16 */
/* clang-format on */
FXI_OPTION_STRUCT(fx_layernorm_args, FXI_LAYERNORM_ARGS);
FX_API fx_layernorm_layer *fxi_layernorm(const fx_layernorm_args *a);
#define fx_layernorm(...)                                                                          \
    FXI_CALL(fxi_layernorm(FXI_OPTIONS(fx_layernorm_args, FXI_LAYERNORM_ARGS(FXI_DEFAULT).size =   \
                                                              FXI_SIZES_FIRST(__VA_ARGS__))))

/* ---- Dropout --------------------------------------------------------------------------------- */
/* In training, y = 0 with probability p per element, otherwise x/(1−p); in inference y = x. p
 * outside [0, 1] is FX_STATUS_ARGUMENT. Flux.Dropout; Srivastava et al., 2014. */
typedef struct fx_dropout_layer {
    fx_object base;
    double p;
    fx_dims dims;   /* as the option; empty: all axes */
    int64_t active; /* an fx_active */
} fx_dropout_layer;
/* clang-format off */
#define FXI_DROPOUT_ARGS(F)                                                                        \
    F(double, p, 0)                      /* probability of 0 */                                    \
    F(fx_axes, dims, FXI_AXES_ALL)       /* random along these axes, equal along others */         \
    F(fx_active, active, FX_ACTIVE_AUTO) /* FX_ACTIVE_AUTO: active inside FX_STEP */
/* clang-format on */
FXI_OPTION_STRUCT(fx_dropout_args, FXI_DROPOUT_ARGS);
FX_API fx_dropout_layer *fxi_dropout(const fx_dropout_args *a);
#define fx_dropout(...)                                                                            \
    FXI_CALL(                                                                                      \
        fxi_dropout(FXI_OPTIONS(fx_dropout_args, FXI_DROPOUT_ARGS(FXI_DEFAULT).p = __VA_ARGS__)))

/* Sets `active` of every layer that has it, such as dropout and batch norm: always active, never,
 * or inside FX_STEP only. Flux's trainmode!(m), testmode!(m), testmode!(m, :auto).
 * FX_STATUS_ARGUMENT for NULL. */
FX_API fx_status fx_trainmode(void *model);
FX_API fx_status fx_testmode(void *model);
FX_API fx_status fx_automode(void *model);

/* ---- functions ------------------------------------------------------------------------------- */
/* y = (x − μ)/√(σ² + eps) with mean μ and variance σ² (divided by n) over the given axes.
 * Flux.normalise. */
FX_API fx_array *fx_normalise(fx_array *x, fx_axes dims, double eps);
/* Dropout as a function that is always active, with one random number per element. Returns x itself
 * if p = 0. FX_STATUS_ARGUMENT if p is outside [0, 1]. */
FX_API fx_array *fx_dropout_apply(fx_array *x, double p);

FXI_END_C

#include <cflux/conv.h>
#include <cflux/containers.h>
#include <cflux/init.h>
#include <cflux/losses.h>
#include <cflux/attention.h>
#include <cflux/recurrent.h>
#include <cflux/norm.h>
#endif
