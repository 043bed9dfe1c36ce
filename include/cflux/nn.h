/* cflux/nn.h: layers, initialisers, losses. Names, defaults and formulas are Flux's (0.16).
 *
 * Constructors take the required arguments first, then named options: fx_dense(10, 5, FX_RELU,
 * .no_bias = true). The structs are public: model->weight is an array. Every layer is an object
 * with a descriptor, so that gradients, moves, printing and saving need nothing more.
 */
#ifndef CFLUX_NN_H
#define CFLUX_NN_H

#include <cflux/ops.h>
#include <cflux/tree.h>

FXI_BEGIN_C

/* Tri-state of layers that behave differently in training: by the scope's mode unless forced. */
typedef enum fx_active { FX_ACTIVE_AUTO = 0, FX_ACTIVE_ON, FX_ACTIVE_OFF } fx_active;

/* ---- initialisers: Float32 arrays of the given sizes ----------------------------------------- */
/* fan: for out×in weights (in, out); for kernels k…×cin×cout Πk·(cin, cout). */
typedef fx_array *(*fx_init_fn)(int ndims, const int64_t *dims);
FX_API fx_array *fx_glorot_uniform(int ndims, const int64_t *dims); /* U(±√(6/(fan_in+fan_out))) */
FX_API fx_array *fx_glorot_normal(int ndims, const int64_t *dims); /* σ = √(2/(fan_in+fan_out)) */
FX_API fx_array *fx_kaiming_uniform(int ndims, const int64_t *dims); /* U(±√2·√(3/fan_in)) */
FX_API fx_array *fx_kaiming_normal(int ndims, const int64_t *dims);  /* σ = √(2/fan_in) */
FX_API fx_array *fx_lecun_normal(int ndims,
                                 const int64_t *dims); /* truncated at 2σ, σ = √(1/fan_in) */
FX_API fx_array *fx_truncated_normal(int ndims, const int64_t *dims); /* standard, within ±2 */
FX_API fx_array *fx_zeros_init(int ndims, const int64_t *dims);       /* 0, everywhere */
FX_API fx_array *fx_ones_init(int ndims, const int64_t *dims);        /* 1, everywhere */

/* ---- Dense ----------------------------------------------------------------------------------- */
/* y = act(W·x .+ b), W: out×in, x: in×…, y: out×…. */
typedef struct fx_dense_layer {
    fx_object base;
    fx_array *weight, *bias; /* bias NULL with .no_bias */
    fx_function *act;
} fx_dense_layer;
typedef struct fx_dense_args {
    size_t fxi_size;
    int64_t in, out;
    fx_function *act; /* default identity */
    bool no_bias;
    fx_init_fn init;         /* default glorot_uniform */
    fx_array *weight, *bias; /* given arrays instead of init; in and out may then be 0 */
} fx_dense_args;
FX_API fx_dense_layer *fxi_dense(const fx_dense_args *a);

/* ---- Chain: layer after layer; several inputs go to the first -------------------------------- */
typedef struct fx_chain_layer {
    fx_object base;
    fx_list layers;
} fx_chain_layer;
FX_API fx_chain_layer *fxi_chain(int n, void *const *layers);
/* names[i] may be NULL; "layers" is refused, as in Flux. */
FX_API fx_chain_layer *fxi_chain_named(int n, const char *const *names, void *const *layers);

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
typedef struct fx_conv_layer_args {
    size_t fxi_size;
    fx_dims kernel; /* FX_DIMS(5, 5) */
    int64_t in, out;
    fx_function *act;
    fx_dims stride, pad,
        dilation;   /* defaults 1, 0, 1; one number holds for all axes; pad also FX_SAME */
    int64_t groups; /* default 1 */
    bool no_bias;
    fx_init_fn init; /* default glorot_uniform */
    fx_array *weight, *bias;
} fx_conv_layer_args;
FX_API fx_conv_layer *fxi_conv(const fx_conv_layer_args *a);

/* ---- pooling layers: window FX_DIMS(2, 2); stride defaults to the window --------------------- */
typedef struct fx_pool_layer {
    fx_object base;
    fx_dims window, pad, stride;
} fx_pool_layer;
typedef struct fx_pool_layer_args {
    size_t fxi_size;
    fx_dims window, pad, stride; /* pad also FX_SAME */
} fx_pool_layer_args;
FX_API fx_pool_layer *fxi_maxpool(const fx_pool_layer_args *a);
FX_API fx_pool_layer *fxi_meanpool(const fx_pool_layer_args *a);

/* ---- BatchNorm: y = act(γ·(x − μ)/√(σ² + ε) + β), channels on the axis before the last ------- */
/* In training μ and σ² are the batch's (biased), and the running ones move: μ ←
 * (1−m)μ + m·mean, σ² ← (1−m)σ² + m·var·n/(n−1), committed by the step's update. One value per
 * channel in training is an error. */
typedef struct fx_batchnorm_layer {
    fx_object base;
    fx_function *act;
    fx_array *beta, *gamma; /* NULL with .no_affine */
    fx_array *mean, *var;   /* running; NULL with .no_track */
    double epsilon, momentum;
    int64_t channels;
    int64_t active; /* fx_active */
} fx_batchnorm_layer;
typedef struct fx_batchnorm_args {
    size_t fxi_size;
    int64_t channels;
    fx_function *act;
    bool no_affine, no_track;
    double epsilon, momentum; /* defaults 1e-5, 0.1 */
    fx_active active;
} fx_batchnorm_args;
FX_API fx_batchnorm_layer *fxi_batchnorm(const fx_batchnorm_args *a);

/* ---- LayerNorm: normalises over the first axes of the given size, then γ·x + β --------------- */
typedef struct fx_layernorm_layer {
    fx_object base;
    fx_function *act;
    fx_array *scale, *bias; /* NULL with .no_affine */
    fx_dims size;
    double epsilon;
} fx_layernorm_layer;
typedef struct fx_layernorm_args {
    size_t fxi_size;
    fx_dims size;
    fx_function *act;
    bool no_affine;
    double epsilon; /* default 1e-5 */
} fx_layernorm_args;
FX_API fx_layernorm_layer *fxi_layernorm(const fx_layernorm_args *a);

/* ---- Dropout: in training each element is 0 with probability p, else x/(1−p) ----------------- */
typedef struct fx_dropout_layer {
    fx_object base;
    double p;
    fx_dims dims; /* the mask varies along these axes only; default all */
    int64_t active;
} fx_dropout_layer;
typedef struct fx_dropout_args {
    size_t fxi_size;
    double p;
    fx_dims dims;
    fx_active active;
} fx_dropout_args;
FX_API fx_dropout_layer *fxi_dropout(const fx_dropout_args *a);

/* Forces or frees the training behaviour of every dropout and batch norm in the model: Flux's
 * trainmode!(m), testmode!(m), testmode!(m, :auto). */
FX_API fx_status fx_trainmode(void *model);
FX_API fx_status fx_testmode(void *model);
FX_API fx_status fx_automode(void *model);

/* Total padding (k−1)·dilation of SamePad, split (⌈⌉ before, ⌊⌋ after) in the constructor. */
#define FX_SAME fxi_same_pad()
static inline fx_dims fxi_same_pad(void)
{
    fx_dims d = {-1, {0}};
    return d;
}

/* ---- losses (Flux.Losses): mean over all but what the formula sums, unless .sum or .none ----- */
/* ŷ and y must have the same size: "loss function expects size(ŷ) = (3, 4) to
 * match size(y) = (4,)". */
typedef struct fx_loss_args {
    size_t fxi_size;
    fx_array *pred, *target;
    bool sum;         /* agg = sum */
    bool none;        /* agg = identity: the per-observation values */
    double epsilon;   /* where the formula has one; default the element type's eps */
    unsigned dims;    /* the class axis of cross-entropies; default axis 0 */
    double delta;     /* huber; default 1 */
    double smoothing; /* cross-entropies: label smoothing α in [0, 1) */
} fx_loss_args;
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
FX_API fx_array *fx_normalise(fx_array *x, unsigned dims, double epsilon);
/* Dropout as a function, always active; the mask varies along all axes. */
FX_API fx_array *fx_dropout_apply(fx_array *x, double p);
/* A chain whose layers have names: fx_chain_of("enc", fx_dense(4, 2), "dec", fx_dense(2, 4)) is
 * Chain(enc = …, dec = …). */
FX_API fx_chain_layer *fxi_chain_pairs(int n, const void *const *names_and_layers);

FXI_END_C
#ifdef __cplusplus
inline fx_dense_layer *fx_dense(const fx_dense_args &a)
{
    return fxi_dense(&a);
}
inline fx_dense_layer *fx_dense(int64_t in, int64_t out, fx_function *act = nullptr,
                                bool no_bias = false)
{
    fx_dense_args a = {};
    a.fxi_size = sizeof a, a.in = in, a.out = out, a.act = act, a.no_bias = no_bias;
    return fxi_dense(&a);
}
template <class... L> inline fx_chain_layer *fx_chain(L *...l)
{
    void *const items[] = {nullptr, static_cast<void *>(l)...};
    return fxi_chain(static_cast<int>(sizeof...(l)), items + 1);
}
template <class... A> inline fx_chain_layer *fx_chain_of(A... names_and_layers)
{
    const void *const pairs[] = {nullptr, static_cast<const void *>(names_and_layers)...};
    return fxi_chain_pairs(static_cast<int>(sizeof...(A)), pairs + 1);
}
inline fx_conv_layer *fx_conv(const fx_conv_layer_args &a)
{
    return fxi_conv(&a);
}
inline fx_conv_layer *fx_conv(fx_dims kernel, int64_t in, int64_t out, fx_function *act = nullptr)
{
    fx_conv_layer_args a = {};
    a.fxi_size = sizeof a, a.kernel = kernel, a.in = in, a.out = out, a.act = act;
    return fxi_conv(&a);
}
inline fx_pool_layer *fx_maxpool(const fx_pool_layer_args &a)
{
    return fxi_maxpool(&a);
}
inline fx_pool_layer *fx_meanpool(const fx_pool_layer_args &a)
{
    return fxi_meanpool(&a);
}
inline fx_pool_layer *fx_maxpool(fx_dims window)
{
    fx_pool_layer_args a = {};
    a.fxi_size = sizeof a, a.window = window;
    return fxi_maxpool(&a);
}
inline fx_pool_layer *fx_meanpool(fx_dims window)
{
    fx_pool_layer_args a = {};
    a.fxi_size = sizeof a, a.window = window;
    return fxi_meanpool(&a);
}
inline fx_batchnorm_layer *fx_batchnorm(const fx_batchnorm_args &a)
{
    return fxi_batchnorm(&a);
}
inline fx_batchnorm_layer *fx_batchnorm(int64_t channels, fx_function *act = nullptr)
{
    fx_batchnorm_args a = {};
    a.fxi_size = sizeof a, a.channels = channels, a.act = act;
    return fxi_batchnorm(&a);
}
inline fx_layernorm_layer *fx_layernorm(const fx_layernorm_args &a)
{
    return fxi_layernorm(&a);
}
inline fx_layernorm_layer *fx_layernorm(fx_dims size)
{
    fx_layernorm_args a = {};
    a.fxi_size = sizeof a, a.size = size;
    return fxi_layernorm(&a);
}
inline fx_dropout_layer *fx_dropout(const fx_dropout_args &a)
{
    return fxi_dropout(&a);
}
inline fx_dropout_layer *fx_dropout(double p)
{
    fx_dropout_args a = {};
    a.fxi_size = sizeof a, a.p = p;
    return fxi_dropout(&a);
}
#define FXI_CXX_LOSS(name)                                                                         \
    inline fx_array *fx_##name(const fx_loss_args &a)                                              \
    {                                                                                              \
        return fxi_##name(&a);                                                                     \
    }                                                                                              \
    inline fx_array *fx_##name(fx_array *pred, fx_array *target)                                   \
    {                                                                                              \
        fx_loss_args a = {};                                                                       \
        a.fxi_size = sizeof a, a.pred = pred, a.target = target;                                   \
        return fxi_##name(&a);                                                                     \
    }
FXI_CXX_LOSS(mse)
FXI_CXX_LOSS(mae)
FXI_CXX_LOSS(msle)
FXI_CXX_LOSS(huber_loss)
FXI_CXX_LOSS(crossentropy)
FXI_CXX_LOSS(logitcrossentropy)
FXI_CXX_LOSS(binarycrossentropy)
FXI_CXX_LOSS(logitbinarycrossentropy)
FXI_CXX_LOSS(kldivergence)
FXI_CXX_LOSS(poisson_loss)
FXI_CXX_LOSS(hinge_loss)
FXI_CXX_LOSS(squared_hinge_loss)
#else
#define fx_dense(...)                                                                              \
    fxi_dense(&(const fx_dense_args){.fxi_size = sizeof(fx_dense_args), .in = __VA_ARGS__})
#define fx_chain(...)    fxi_chain(FXI_OBJECTS(__VA_ARGS__))
#define fx_chain_of(...) fxi_chain_pairs(FXI_PAIRS(__VA_ARGS__))
#define fx_conv(...)                                                                               \
    fxi_conv(&(const fx_conv_layer_args){.fxi_size = sizeof(fx_conv_layer_args),                   \
                                         .kernel = __VA_ARGS__})
#define fx_maxpool(...)                                                                            \
    fxi_maxpool(&(const fx_pool_layer_args){.fxi_size = sizeof(fx_pool_layer_args),                \
                                            .window = __VA_ARGS__})
#define fx_meanpool(...)                                                                           \
    fxi_meanpool(&(const fx_pool_layer_args){.fxi_size = sizeof(fx_pool_layer_args),               \
                                             .window = __VA_ARGS__})
#define fx_batchnorm(...)                                                                          \
    fxi_batchnorm(&(const fx_batchnorm_args){.fxi_size = sizeof(fx_batchnorm_args),                \
                                             .channels = __VA_ARGS__})
#define fx_layernorm(...)                                                                          \
    fxi_layernorm(                                                                                 \
        &(const fx_layernorm_args){.fxi_size = sizeof(fx_layernorm_args), .size = __VA_ARGS__})
#define fx_dropout(...)                                                                            \
    fxi_dropout(&(const fx_dropout_args){.fxi_size = sizeof(fx_dropout_args), .p = __VA_ARGS__})
#define FXI_LOSS(...)                   (&(const fx_loss_args){.fxi_size = sizeof(fx_loss_args), .pred = __VA_ARGS__})
#define fx_mse(...)                     fxi_mse(FXI_LOSS(__VA_ARGS__)) /* fx_mse(ŷ, y, .sum = true) */
#define fx_mae(...)                     fxi_mae(FXI_LOSS(__VA_ARGS__))
#define fx_msle(...)                    fxi_msle(FXI_LOSS(__VA_ARGS__))
#define fx_huber_loss(...)              fxi_huber_loss(FXI_LOSS(__VA_ARGS__))
#define fx_crossentropy(...)            fxi_crossentropy(FXI_LOSS(__VA_ARGS__))
#define fx_logitcrossentropy(...)       fxi_logitcrossentropy(FXI_LOSS(__VA_ARGS__))
#define fx_binarycrossentropy(...)      fxi_binarycrossentropy(FXI_LOSS(__VA_ARGS__))
#define fx_logitbinarycrossentropy(...) fxi_logitbinarycrossentropy(FXI_LOSS(__VA_ARGS__))
#define fx_kldivergence(...)            fxi_kldivergence(FXI_LOSS(__VA_ARGS__))
#define fx_poisson_loss(...)            fxi_poisson_loss(FXI_LOSS(__VA_ARGS__))
#define fx_hinge_loss(...)              fxi_hinge_loss(FXI_LOSS(__VA_ARGS__))
#define fx_squared_hinge_loss(...)      fxi_squared_hinge_loss(FXI_LOSS(__VA_ARGS__))
#endif
#endif
