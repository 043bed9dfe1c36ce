/* cflux/nn.h: layers, initialisers, losses; it includes the headers of further layers. Names,
 * defaults and formulas are those of Flux 0.16.
 *
 * A constructor takes the required arguments first and then named options: fx_dense(10, 5, FX_RELU,
 * .bias = false). It returns a layer that the innermost scope owns; the layer holds references to
 * its arrays and sublayers. If it fails, it returns an error layer of the same type
 * (FX_STATUS_ARGUMENT, FX_STATUS_SHAPE, FX_STATUS_MEMORY). The structs are public: model->weight is
 * an array. Call a layer with fx_call (tree.h); an input of the wrong size gives an error array:
 * "Dense: layer Dense(30 => 10) expects size(input, 1) == 30, but got 32×8 Matrix{Float32}".
 *
 * A constructor evaluates the parameters that it creates if they take at most 16 MiB, so that other
 * threads can use the layer; larger ones are evaluated at first use, or by fx_eval. */
#ifndef CFLUX_NN_H
#define CFLUX_NN_H

#include <cflux/layer.h>
#include <cflux/ops.h>

FXI_BEGIN_C

/* ---- initialisers ---------------------------------------------------------------------------- */
/* Initialisers return Float32 arrays of the given sizes from the thread's random stream (fx_seed).
 * U(±a) is uniform in (−a, a), σ a standard deviation of a normal distribution. fan_in and fan_out
 * are in and out for out×in weights, and Πk·in and Πk·out for kernels k…×in×out. Sources: Glorot,
 * Bengio, 2010; He et al., 2015; LeCun et al., 1998. */
FX_API fx_array *fx_glorot_uniform(int ndims, const int64_t *sizes); /* U(±√(6/(fan_in+fan_out))) */
FX_API fx_array *fx_glorot_normal(int ndims, const int64_t *sizes); /* σ = √(2/(fan_in+fan_out)) */
FX_API fx_array *fx_kaiming_uniform(int ndims, const int64_t *sizes); /* U(±√(6/fan_in)) */
FX_API fx_array *fx_kaiming_normal(int ndims, const int64_t *sizes);  /* σ = √(2/fan_in) */
FX_API fx_array *fx_lecun_normal(int ndims, const int64_t *sizes); /* σ = √(1/fan_in), cut at ±2σ */
FX_API fx_array *fx_truncated_normal(int ndims, const int64_t *sizes); /* σ = 1, cut at ±2 */
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
 * FX_STATUS_ARGUMENT if a layer is NULL or cannot be called. */
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
 * fx_update, or the end of the training step (of the scope outside of one, with .active), updates
 * the running statistics with momentum m: mean ← (1−m)·mean + m·μ, var ← (1−m)·var + m·σ²·n/(n−1).
 * In inference μ and σ² are the running
 * statistics. n = 1 in training is FX_STATUS_ARGUMENT. Flux.BatchNorm; Ioffe, Szegedy, 2015. */
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
    F(fx_active, active, FX_ACTIVE_AUTO) /* FX_ACTIVE_AUTO: training behaviour inside FX_STEP */
/* clang-format on */
FXI_OPTION_STRUCT(fx_batchnorm_args, FXI_BATCHNORM_ARGS);
FX_API fx_batchnorm_layer *fxi_batchnorm(const fx_batchnorm_args *a);
#define fx_batchnorm(...)                                                                          \
    FXI_CALL(fxi_batchnorm(                                                                        \
        FXI_OPTIONS(fx_batchnorm_args, FXI_BATCHNORM_ARGS(FXI_DEFAULT).channels = __VA_ARGS__)))

/* ---- LayerNorm ------------------------------------------------------------------------------- */
/* y = act(γ·(x − μ)/d + β), μ and σ² over the first axes of x, which have the sizes `size`; γ
 * (scale) and β (bias) have these sizes. Flux.LayerNorm; Ba et al., 2016. d depends on the version
 * of Flux, member `flux`:
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
    F(fx_dims, size, FXI_DIMS_NONE)    /* sizes of the first axes: FX_DIMS(5) */                   \
    F(fx_function *, act, FX_IDENTITY) /* activation */                                            \
    F(bool, affine, true)              /* false: no scale and no bias */                           \
    F(double, eps, 1e-5)               /* ε */                                                     \
    F(double, flux, 0.16)              /* which formula: 0.14, 0.15 or 0.16 */
/* clang-format on */
FXI_OPTION_STRUCT(fx_layernorm_args, FXI_LAYERNORM_ARGS);
FX_API fx_layernorm_layer *fxi_layernorm(const fx_layernorm_args *a);
#define fx_layernorm(...)                                                                          \
    FXI_CALL(fxi_layernorm(                                                                        \
        FXI_OPTIONS(fx_layernorm_args, FXI_LAYERNORM_ARGS(FXI_DEFAULT).size = __VA_ARGS__)))

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

/* ---- losses (Flux.Losses) -------------------------------------------------------------------- */
/* Value of the option .eps of losses: the machine epsilon of ŷ's element type. */
#define FX_EPS (-1.0)
/* Options of losses: fx_mse(ŷ, y, .sum = true). ŷ and y must have the same shape (FX_STATUS_SHAPE:
 * "loss function expects size(ŷ) = (3, 4) to match size(y) = (4,)"). Integer and Bool targets are
 * converted to ŷ's type. FX_STATUS_ARGUMENT for NULL, for both .sum and .none, for an .eps, .margin
 * or .smoothing out of range, and for .weights of another length or with a loss that does not use
 * them.
 */
/* clang-format off */
#define FXI_LOSS_ARGS(F)                                                                           \
    F(fx_array *, pred, FXI_NULL)    /* ŷ, the prediction */                                       \
    F(fx_array *, target, FXI_NULL)  /* y, the target */                                           \
    F(bool, sum, false)              /* true: return the sum; Flux's agg = sum */                  \
    F(bool, none, false)             /* true: return every value; Flux's agg = identity */         \
    F(double, eps, FX_EPS)           /* ε ≥ 0; default: machine epsilon of ŷ's type */             \
    F(fx_axes, dims, FXI_AXES_OF(0)) /* axis of the classes */                                     \
    F(double, delta, 1)              /* δ of fx_huber_loss */                                      \
    F(double, smoothing, 0)          /* label smoothing α in [0, 1), cross-entropies only */       \
    F(double, gamma, 2)              /* γ of fx_focal_loss and fx_binary_focal_loss */             \
    F(double, smooth, 1)             /* s of fx_dice_coeff_loss */                                 \
    F(double, beta, 0.7)             /* β of fx_tversky_loss, in [0, 1] */                         \
    F(double, margin, 1)             /* m ≥ 0 of fx_siamese_contrastive_loss */                    \
    F(fx_array *, weights, FXI_NULL) /* one factor for each class: multiplies the terms of that    \
                                        class in crossentropy, logitcrossentropy and focal_loss;   \
                                        the mean is over all observations */
/* clang-format on */
FXI_OPTION_STRUCT(fx_loss_args, FXI_LOSS_ARGS);
/* The formulas are per element, with e = ŷ − y; Σ is over .dims (default: axis 0, the classes). The
 * result is the mean over all remaining values, a 0-d array, unless .sum or .none is set. Losses
 * with *logit* in the name expect raw scores, without softmax or sigmoid; they stay finite where
 * the others overflow. */
FX_API fx_array *fxi_mse(const fx_loss_args *a);        /* (ŷ − y)² */
FX_API fx_array *fxi_mae(const fx_loss_args *a);        /* |ŷ − y| */
FX_API fx_array *fxi_msle(const fx_loss_args *a);       /* log((ŷ + ε)/(y + ε))² */
FX_API fx_array *fxi_huber_loss(const fx_loss_args *a); /* ½e² if |e| < δ, else δ(|e| − ½δ) */
FX_API fx_array *fxi_crossentropy(const fx_loss_args *a);      /* −Σ y·log(ŷ + ε) */
FX_API fx_array *fxi_logitcrossentropy(const fx_loss_args *a); /* −Σ y·logsoftmax(ŷ) */
FX_API fx_array *fxi_binarycrossentropy(const fx_loss_args *a); /* −y·log(ŷ+ε) − (1−y)·log(1−ŷ+ε) */
FX_API fx_array *fxi_logitbinarycrossentropy(const fx_loss_args *a); /* (1−y)·ŷ − logσ(ŷ) */
FX_API fx_array *fxi_kldivergence(const fx_loss_args *a);       /* Σ y·log(y) − y·log(ŷ+ε) */
FX_API fx_array *fxi_poisson_loss(const fx_loss_args *a);       /* ŷ − y·log ŷ */
FX_API fx_array *fxi_hinge_loss(const fx_loss_args *a);         /* max(0, 1 − ŷ·y), y = ±1 */
FX_API fx_array *fxi_squared_hinge_loss(const fx_loss_args *a); /* max(0, 1 − ŷ·y)², y = ±1 */
/* −Σ y·(1−p)^γ·log p, p = ŷ + ε; Lin and others, 2017 */
FX_API fx_array *fxi_focal_loss(const fx_loss_args *a);
/* −(1−p)^γ·log p, p = y·(ŷ+ε) + (1−y)·(1−ŷ−ε) */
FX_API fx_array *fxi_binary_focal_loss(const fx_loss_args *a);
/* (1−y)·ŷ² + y·max(0, m−ŷ)², ŷ a distance; y = 1: the two inputs differ */
FX_API fx_array *fxi_siamese_contrastive_loss(const fx_loss_args *a);
/* Two losses of the whole arrays, 0-d: 1 − (2·Σ y·ŷ + s) / (Σ y² + Σ ŷ² + s), and 1 − (Σ y·ŷ + 1) /
 * (Σ y·ŷ + (1−β)·(1−y)·ŷ + β·y·(1−ŷ) + 1). A larger β weighs false negatives more, as Flux's
 * documentation says; the code of Flux 0.16 exchanges β and 1−β: pass 1−β to get its result.
 */
FX_API fx_array *fxi_dice_coeff_loss(const fx_loss_args *a);
FX_API fx_array *fxi_tversky_loss(const fx_loss_args *a);
/* Connectionist temporal classification. ŷ: raw scores, classes×times or classes×times×batch; the
 * last class is the blank. y: labels from 0 as integers, a vector or length×batch; a negative label
 * ends a shorter sequence. One value for each sequence; Inf if there are too few time steps for
 * the labels. The labels are read (evaluated) by the call. NNlib.ctc_loss. */
FX_API fx_array *fxi_ctc_loss(const fx_loss_args *a);
/* y·(1−α) + α/n for the n classes along `dims`, α/2 if `dims` has no axis (two classes); 0 < α < 1.
 * Integer and Bool targets become Float32. Flux.label_smoothing. */
FX_API fx_array *fx_label_smoothing(fx_array *y, double alpha, fx_axes dims);

/* y = (x − μ)/√(σ² + eps) with mean μ and variance σ² (divided by n) over the given axes.
 * Flux.normalise. */
FX_API fx_array *fx_normalise(fx_array *x, fx_axes dims, double eps);
/* Dropout as a function that is always active, with one random number per element. Returns x itself
 * if p = 0. FX_STATUS_ARGUMENT if p is outside [0, 1]. */
FX_API fx_array *fx_dropout_apply(fx_array *x, double p);

/* Calls a loss through a pointer, e.g. from fx_parse_loss: fx_call_loss(formula, ŷ, y, .sum =
 * true). */
#define fx_call_loss(formula, ...)                                                                 \
    FXI_CALL((formula)(FXI_OPTIONS(fx_loss_args, FXI_LOSS_ARGS(FXI_DEFAULT).pred = __VA_ARGS__)))
#define fx_mse(...)                      fx_call_loss(fxi_mse, __VA_ARGS__)
#define fx_mae(...)                      fx_call_loss(fxi_mae, __VA_ARGS__)
#define fx_msle(...)                     fx_call_loss(fxi_msle, __VA_ARGS__)
#define fx_huber_loss(...)               fx_call_loss(fxi_huber_loss, __VA_ARGS__)
#define fx_crossentropy(...)             fx_call_loss(fxi_crossentropy, __VA_ARGS__)
#define fx_logitcrossentropy(...)        fx_call_loss(fxi_logitcrossentropy, __VA_ARGS__)
#define fx_binarycrossentropy(...)       fx_call_loss(fxi_binarycrossentropy, __VA_ARGS__)
#define fx_logitbinarycrossentropy(...)  fx_call_loss(fxi_logitbinarycrossentropy, __VA_ARGS__)
#define fx_kldivergence(...)             fx_call_loss(fxi_kldivergence, __VA_ARGS__)
#define fx_poisson_loss(...)             fx_call_loss(fxi_poisson_loss, __VA_ARGS__)
#define fx_hinge_loss(...)               fx_call_loss(fxi_hinge_loss, __VA_ARGS__)
#define fx_squared_hinge_loss(...)       fx_call_loss(fxi_squared_hinge_loss, __VA_ARGS__)
#define fx_focal_loss(...)               fx_call_loss(fxi_focal_loss, __VA_ARGS__)
#define fx_binary_focal_loss(...)        fx_call_loss(fxi_binary_focal_loss, __VA_ARGS__)
#define fx_siamese_contrastive_loss(...) fx_call_loss(fxi_siamese_contrastive_loss, __VA_ARGS__)
#define fx_dice_coeff_loss(...)          fx_call_loss(fxi_dice_coeff_loss, __VA_ARGS__)
#define fx_tversky_loss(...)             fx_call_loss(fxi_tversky_loss, __VA_ARGS__)
#define fx_ctc_loss(...)                 fx_call_loss(fxi_ctc_loss, __VA_ARGS__)

FXI_END_C

#include <cflux/conv.h>
#include <cflux/containers.h>
#include <cflux/init.h>
#include <cflux/attention.h>
#include <cflux/recurrent.h>
#include <cflux/norm.h>
#endif
