/* cflux/nn.h: layers, initialisers, losses. Names, defaults and formulas are Flux's (0.16).
 *
 * Constructors take the required arguments first, then named options: fx_dense(10, 5, FX_RELU,
 * .bias = false). The structs are public: model->weight is an array. Every layer is an object
 * with a descriptor, so that gradients, moves, printing and saving need nothing more. A constructor
 * evaluates the parameters it makes if they take at most 16 MiB, so other threads may use the layer
 * at once; larger ones are evaluated when they are first used, or by fx_eval.
 */
#ifndef CFLUX_NN_H
#define CFLUX_NN_H

#include <cflux/layer.h>
#include <cflux/ops.h>

FXI_BEGIN_C

/* ---- initialisers: Float32 arrays of the given sizes ----------------------------------------- */
/* fan: for out×in weights (in, out); for kernels k…×cin×cout Πk·(cin, cout). */
FX_API fx_array *fx_glorot_uniform(int ndims, const int64_t *sizes); /* U(±√(6/(fan_in+fan_out))) */
FX_API fx_array *fx_glorot_normal(int ndims, const int64_t *sizes); /* σ = √(2/(fan_in+fan_out)) */
FX_API fx_array *fx_kaiming_uniform(int ndims, const int64_t *sizes); /* U(±√2·√(3/fan_in)) */
FX_API fx_array *fx_kaiming_normal(int ndims, const int64_t *sizes);  /* σ = √(2/fan_in) */
FX_API fx_array *fx_lecun_normal(int ndims,
                                 const int64_t *sizes); /* truncated at 2σ, σ = √(1/fan_in) */
FX_API fx_array *fx_truncated_normal(int ndims, const int64_t *sizes); /* standard, within ±2 */
FX_API fx_array *fx_zeros_init(int ndims, const int64_t *sizes);       /* 0, everywhere */
FX_API fx_array *fx_ones_init(int ndims, const int64_t *sizes);        /* 1, everywhere */

/* ---- Dense ----------------------------------------------------------------------------------- */
/* y = act(W·x .+ b), W: out×in, x: in×…, y: out×…. */
typedef struct fx_dense_layer {
    fx_object base;
    fx_array *weight, *bias; /* bias NULL with .bias = false */
    fx_function *act;
} fx_dense_layer;
/* clang-format off */
#define FXI_DENSE_ARGS(F)                                                                          \
    F(int64_t, in, 0)                                                                              \
    F(int64_t, out, 0)                                                                             \
    F(fx_function *, act, FX_IDENTITY)                                                             \
    F(int, bias, true)                    /* false: no bias */                                     \
    F(fx_init_fn, init, fx_glorot_uniform)                                                         \
    F(fx_array *, weight_array, FXI_NULL) /* used instead of init; in and out may then be 0 */     \
    F(fx_array *, bias_array, FXI_NULL)   /* used instead of zeros */
/* clang-format on */
FXI_OPTION_STRUCT(fx_dense_args, FXI_DENSE_ARGS);
FX_API fx_dense_layer *fxi_dense(const fx_dense_args *a);
#define fx_dense(...)                                                                              \
    FXI_CALL(fxi_dense(FXI_OPTIONS(fx_dense_args, FXI_DENSE_ARGS(FXI_DEFAULT).in = __VA_ARGS__)))

/* ---- Chain: layer after layer; several inputs go to the first -------------------------------- */
typedef struct fx_chain_layer {
    fx_object base;
    fx_list layers;
} fx_chain_layer;
FX_API fx_chain_layer *fxi_chain(int n, void *const *layers);
/* A chain whose layers have names: fx_chain_of("enc", fx_dense(4, 2), "dec", fx_dense(2, 4)) is
 * Chain(enc = …, dec = …). A name may be NULL; "layers" is refused, as in Flux. */
FX_API fx_chain_layer *fxi_chain_pairs(int n, const void *const *names_and_layers);
#define fx_chain(...)    fxi_chain(FXI_OBJECTS(__VA_ARGS__))
#define fx_chain_of(...) fxi_chain_pairs(FXI_PAIRS(__VA_ARGS__))

/* Total padding (k−1)·dilation of SamePad, split (⌈⌉ before, ⌊⌋ after) in the constructor. */
#define FX_SAME fxi_same_pad()
static inline fx_dims fxi_same_pad(void)
{
    fx_dims d = {-1, {0}};
    return d;
}

/* ---- Conv ------------------------------------------------------------------------------------ */
/* A true convolution (kernel flipped) over x: spatial…×in×batch, weight: kernel…×in/groups×out. */
typedef struct fx_conv_layer {
    fx_object base;
    fx_array *weight, *bias;
    fx_function *act;
    fx_dims stride, pad,
        dilation; /* per spatial axis; pad also (before, after) per axis, as it was given */
    int64_t groups;
} fx_conv_layer;
/* clang-format off */
#define FXI_CONV_ARGS(F)                                                                     \
    F(fx_dims, kernel, FXI_DIMS_NONE)     /* FX_DIMS(5, 5) */                                      \
    F(int64_t, in, 0)                                                                              \
    F(int64_t, out, 0)                                                                             \
    F(fx_function *, act, FX_IDENTITY)                                                             \
    F(fx_dims, stride, FXI_DIMS_ONE)      /* one number holds for all axes */                      \
    F(fx_dims, pad, FXI_DIMS_ZERO)        /* also FX_SAME, or (before, after) for each axis */     \
    F(fx_dims, dilation, FXI_DIMS_ONE)    /* one number holds for all axes */                      \
    F(int64_t, groups, 1)                                                                          \
    F(int, bias, true)                    /* false: no bias */                                     \
    F(fx_init_fn, init, fx_glorot_uniform)                                                         \
    F(fx_array *, weight_array, FXI_NULL) /* used instead of init; in and out may then be 0 */     \
    F(fx_array *, bias_array, FXI_NULL)   /* used instead of zeros */
/* clang-format on */
FXI_OPTION_STRUCT(fx_conv_args, FXI_CONV_ARGS);
FX_API fx_conv_layer *fxi_conv(const fx_conv_args *a);
#define fx_conv(...)                                                                               \
    FXI_CALL(fxi_conv(FXI_OPTIONS(fx_conv_args, FXI_CONV_ARGS(FXI_DEFAULT).kernel = __VA_ARGS__)))

/* ---- pooling layers: window FX_DIMS(2, 2); stride defaults to the window --------------------- */
/* MaxPool; MeanPool has the same struct and options. */
typedef struct fx_maxpool_layer {
    fx_object base;
    fx_dims window, pad, stride;
} fx_maxpool_layer;
typedef fx_maxpool_layer fx_meanpool_layer;
/* clang-format off */
#define FXI_MAXPOOL_ARGS(F)                                                                     \
    F(fx_dims, window, FXI_DIMS_NONE)     /* FX_DIMS(2, 2) */                                      \
    F(fx_dims, pad, FXI_DIMS_ZERO)        /* also FX_SAME */                                       \
    F(fx_dims, stride, FXI_DIMS_NONE)     /* an empty list: the window */
/* clang-format on */
FXI_OPTION_STRUCT(fx_maxpool_args, FXI_MAXPOOL_ARGS);
typedef fx_maxpool_args fx_meanpool_args;
FX_API fx_maxpool_layer *fxi_maxpool(const fx_maxpool_args *a);
FX_API fx_meanpool_layer *fxi_meanpool(const fx_meanpool_args *a);
#define fx_maxpool(...)                                                                            \
    FXI_CALL(fxi_maxpool(                                                                          \
        FXI_OPTIONS(fx_maxpool_args, FXI_MAXPOOL_ARGS(FXI_DEFAULT).window = __VA_ARGS__)))
#define fx_meanpool(...)                                                                           \
    FXI_CALL(fxi_meanpool(                                                                         \
        FXI_OPTIONS(fx_meanpool_args, FXI_MAXPOOL_ARGS(FXI_DEFAULT).window = __VA_ARGS__)))

/* ---- BatchNorm: y = act(γ·(x − μ)/√(σ² + ε) + β), channels on the axis before the last ------- */
/* In training μ and σ² are the batch's (biased), and the running ones move: μ ←
 * (1−m)μ + m·mean, σ² ← (1−m)σ² + m·var·n/(n−1), committed by the step's update. One value per
 * channel in training is an error. */
typedef struct fx_batchnorm_layer {
    fx_object base;
    fx_function *act;
    fx_array *beta, *gamma; /* NULL with .affine = false */
    fx_array *mean, *var;   /* running; NULL with .track_stats = false */
    double epsilon, momentum;
    int64_t channels;
    int64_t active; /* fx_active */
} fx_batchnorm_layer;
/* clang-format off */
#define FXI_BATCHNORM_ARGS(F)                                                                      \
    F(int64_t, channels, 0)                                                                        \
    F(fx_function *, act, FX_IDENTITY)                                                             \
    F(bool, affine, true)       /* false: no scale γ and no bias β */                              \
    F(bool, track_stats, true)  /* false: no running statistics, also in inference */              \
    F(double, eps, 1e-5)                                                                           \
    F(double, momentum, 0.1)                                                                       \
    F(fx_active, active, FX_ACTIVE_AUTO)
/* clang-format on */
FXI_OPTION_STRUCT(fx_batchnorm_args, FXI_BATCHNORM_ARGS);
FX_API fx_batchnorm_layer *fxi_batchnorm(const fx_batchnorm_args *a);
#define fx_batchnorm(...)                                                                          \
    FXI_CALL(fxi_batchnorm(                                                                        \
        FXI_OPTIONS(fx_batchnorm_args, FXI_BATCHNORM_ARGS(FXI_DEFAULT).channels = __VA_ARGS__)))

/* ---- LayerNorm: normalises over the first axes of the given size, then γ·x + β --------------- */
/* What x − μ is divided by depends on the version of Flux whose formula the layer has, `flux`:
 *   0.16   √(σ² + ε), of Flux 0.16.11 and later, and of PyTorch
 *   0.15   √(σ² + ε²), of Flux 0.15 to 0.16.10
 *   0.14   σ + ε, of Flux 0.14 and before */
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
    F(fx_dims, size, FXI_DIMS_NONE)  /* FX_DIMS(5): the first axis has 5 elements */               \
    F(fx_function *, act, FX_IDENTITY)                                                             \
    F(bool, affine, true)            /* false: no scale and no bias */                             \
    F(double, eps, 1e-5)                                                                           \
    F(double, flux, 0.16)            /* whose formula: 0.14, 0.15 or 0.16 */
/* clang-format on */
FXI_OPTION_STRUCT(fx_layernorm_args, FXI_LAYERNORM_ARGS);
FX_API fx_layernorm_layer *fxi_layernorm(const fx_layernorm_args *a);
#define fx_layernorm(...)                                                                          \
    FXI_CALL(fxi_layernorm(                                                                        \
        FXI_OPTIONS(fx_layernorm_args, FXI_LAYERNORM_ARGS(FXI_DEFAULT).size = __VA_ARGS__)))

/* ---- Dropout: in training each element is 0 with probability p, else x/(1−p) ----------------- */
typedef struct fx_dropout_layer {
    fx_object base;
    double p;
    fx_dims dims; /* the mask varies along these axes only; empty: all */
    int64_t active;
} fx_dropout_layer;
/* clang-format off */
#define FXI_DROPOUT_ARGS(F)                                                                        \
    F(double, p, 0)                                                                                \
    F(fx_axes, dims, FXI_AXES_ALL)   /* the mask varies along these axes only */                   \
    F(fx_active, active, FX_ACTIVE_AUTO)
/* clang-format on */
FXI_OPTION_STRUCT(fx_dropout_args, FXI_DROPOUT_ARGS);
FX_API fx_dropout_layer *fxi_dropout(const fx_dropout_args *a);
#define fx_dropout(...)                                                                            \
    FXI_CALL(                                                                                      \
        fxi_dropout(FXI_OPTIONS(fx_dropout_args, FXI_DROPOUT_ARGS(FXI_DEFAULT).p = __VA_ARGS__)))

/* Forces or frees the training behaviour of every dropout and batch norm in the model: Flux's
 * trainmode!(m), testmode!(m), testmode!(m, :auto). */
FX_API fx_status fx_trainmode(void *model);
FX_API fx_status fx_testmode(void *model);
FX_API fx_status fx_automode(void *model);

/* ---- losses (Flux.Losses): mean over all but what the formula sums, unless .sum or .none ----- */
/* The option .eps of losses: the machine epsilon of ŷ's element type. */
#define FX_EPS (-1.0)
/* ŷ and y must have the same size: "loss function expects size(ŷ) = (3, 4) to
 * match size(y) = (4,)". */
/* clang-format off */
#define FXI_LOSS_ARGS(F)                                                                           \
    F(fx_array *, pred, FXI_NULL)                                                                  \
    F(fx_array *, target, FXI_NULL)                                                                \
    F(bool, sum, false)            /* agg = sum */                                                 \
    F(bool, none, false)           /* agg = identity: the values of the observations */            \
    F(double, eps, FX_EPS)         /* ε, where the formula has one */                              \
    F(fx_axes, dims, FXI_AXES_OF(0)) /* the class axis of cross-entropies */                       \
    F(double, delta, 1)            /* δ of huber_loss */                                           \
    F(double, smoothing, 0)        /* cross-entropies: label smoothing α in [0, 1) */
/* clang-format on */
FXI_OPTION_STRUCT(fx_loss_args, FXI_LOSS_ARGS);
FX_API fx_array *fxi_mse(const fx_loss_args *a);        /* (ŷ−y)² */
FX_API fx_array *fxi_mae(const fx_loss_args *a);        /* |ŷ−y| */
FX_API fx_array *fxi_msle(const fx_loss_args *a);       /* log((ŷ+ε)/(y+ε))² */
FX_API fx_array *fxi_huber_loss(const fx_loss_args *a); /* ½e² for |e| < δ, else δ(|e| − ½δ) */
FX_API fx_array *fxi_crossentropy(const fx_loss_args *a);      /* −Σ y·log(ŷ+ε) along dims */
FX_API fx_array *fxi_logitcrossentropy(const fx_loss_args *a); /* −Σ y·logsoftmax(ŷ) */
FX_API fx_array *fxi_binarycrossentropy(const fx_loss_args *a); /* −y·log(ŷ+ε) − (1−y)·log(1−ŷ+ε) */
FX_API fx_array *fxi_logitbinarycrossentropy(const fx_loss_args *a); /* (1−y)·ŷ − logσ(ŷ) */
FX_API fx_array *fxi_kldivergence(const fx_loss_args *a);       /* Σ y·log(y) − y·log(ŷ+ε) */
FX_API fx_array *fxi_poisson_loss(const fx_loss_args *a);       /* ŷ − y·log ŷ */
FX_API fx_array *fxi_hinge_loss(const fx_loss_args *a);         /* max(0, 1 − ŷ·y) */
FX_API fx_array *fxi_squared_hinge_loss(const fx_loss_args *a); /* max(0, 1 − ŷ·y)² */

/* (x − mean)/√(var + ε) over the given axes, biased variance: Flux.normalise. */
FX_API fx_array *fx_normalise(fx_array *x, fx_axes dims, double eps);
/* Dropout as a function, always active; the mask varies along all axes. */
FX_API fx_array *fx_dropout_apply(fx_array *x, double p);

/* Calls a loss by a pointer, such as fx_parse_loss returns: fx_call_loss(formula, ŷ, y, .sum =
 * true). */
#define fx_call_loss(formula, ...)                                                                 \
    FXI_CALL((formula)(FXI_OPTIONS(fx_loss_args, FXI_LOSS_ARGS(FXI_DEFAULT).pred = __VA_ARGS__)))
#define fx_mse(...)                     fx_call_loss(fxi_mse, __VA_ARGS__) /* fx_mse(ŷ, y, .sum = true) */
#define fx_mae(...)                     fx_call_loss(fxi_mae, __VA_ARGS__)
#define fx_msle(...)                    fx_call_loss(fxi_msle, __VA_ARGS__)
#define fx_huber_loss(...)              fx_call_loss(fxi_huber_loss, __VA_ARGS__)
#define fx_crossentropy(...)            fx_call_loss(fxi_crossentropy, __VA_ARGS__)
#define fx_logitcrossentropy(...)       fx_call_loss(fxi_logitcrossentropy, __VA_ARGS__)
#define fx_binarycrossentropy(...)      fx_call_loss(fxi_binarycrossentropy, __VA_ARGS__)
#define fx_logitbinarycrossentropy(...) fx_call_loss(fxi_logitbinarycrossentropy, __VA_ARGS__)
#define fx_kldivergence(...)            fx_call_loss(fxi_kldivergence, __VA_ARGS__)
#define fx_poisson_loss(...)            fx_call_loss(fxi_poisson_loss, __VA_ARGS__)
#define fx_hinge_loss(...)              fx_call_loss(fxi_hinge_loss, __VA_ARGS__)
#define fx_squared_hinge_loss(...)      fx_call_loss(fxi_squared_hinge_loss, __VA_ARGS__)

FXI_END_C
#endif
