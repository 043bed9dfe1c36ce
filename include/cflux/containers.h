/* cflux/containers.h: layers that contain or combine other layers, and layers that look up columns.
 * Names, defaults and formulas are those of Flux 0.16; see nn.h for constructors in general.
 *
 * A connection combines the results of layers. It is a function object of several arrays (FX_ADD,
 * FX_VCAT, … in tree.h), or any layer that takes several inputs, such as Bilinear. */
#ifndef CFLUX_CONTAINERS_H
#define CFLUX_CONTAINERS_H

#include <cflux/nn.h>

FXI_BEGIN_C

/* ---- Parallel -------------------------------------------------------------------------------- */
/* fx_parallel(connection, a, b, …):
 *   one input x           connection(a(x), b(x), …)
 *   one input per layer   connection(a(x₁), b(x₂), …)
 *   one layer, n inputs   connection(a(x₁), a(x₂), …)
 * If the only input is a tuple, its items are the inputs. FX_STATUS_ARGUMENT for another number of
 * inputs, a missing connection, no layers, a child that cannot be called, two equal names, and the
 * names "connection" and "layers". Flux.Parallel. */
typedef struct fx_parallel_layer {
    fx_object base;
    void *connection;
    fx_list layers;
} fx_parallel_layer;
FX_API fx_parallel_layer *fxi_parallel(int n, void *const *connection_and_layers);
/* Layers with names: fx_parallel_of(FX_ADD, "a", fx_dense(2, 3), "b", fx_dense(2, 3)) is
 * Parallel(+, a = …, b = …) in Flux. */
FX_API fx_parallel_layer *fxi_parallel_pairs(void *connection, int n,
                                             const void *const *names_and_layers);
#define fx_parallel(...)                fxi_parallel(FXI_OBJECTS(__VA_ARGS__))
#define fx_parallel_of(connection, ...) fxi_parallel_pairs((connection), FXI_PAIRS(__VA_ARGS__))

/* ---- PairwiseFusion -------------------------------------------------------------------------- */
/* fx_pairwisefusion(connection, a, b, …): y₁ = a(x₁), y₂ = b(connection(y₁, x₂)), …; returns the
 * tuple (y₁, y₂, …). Takes one input, which is used for every x, or one input per layer; if the
 * only input is a tuple, its items are the inputs. Errors as for Parallel. Flux.PairwiseFusion. */
typedef struct fx_pairwisefusion_layer {
    fx_object base;
    void *connection;
    fx_list layers;
} fx_pairwisefusion_layer;
FX_API fx_pairwisefusion_layer *fxi_pairwisefusion(int n, void *const *connection_and_layers);
FX_API fx_pairwisefusion_layer *fxi_pairwisefusion_pairs(void *connection, int n,
                                                         const void *const *names_and_layers);
#define fx_pairwisefusion(...) fxi_pairwisefusion(FXI_OBJECTS(__VA_ARGS__))
/* Layers with names, as fx_parallel_of. */
#define fx_pairwisefusion_of(connection, ...)                                                      \
    fxi_pairwisefusion_pairs((connection), FXI_PAIRS(__VA_ARGS__))

/* ---- Maxout ---------------------------------------------------------------------------------- */
/* fx_maxout(a, b, …): the elementwise maximum of a(x), b(x), …, which have one shape. Errors as for
 * Parallel. Flux.Maxout; Goodfellow et al., 2013. */
typedef struct fx_maxout_layer {
    fx_object base;
    fx_list layers;
} fx_maxout_layer;
FX_API fx_maxout_layer *fxi_maxout(int n, void *const *layers);
/* Maxout of n layers, each made by a call make(user). FX_STATUS_ARGUMENT if make is NULL or n is
 * not positive. Flux's Maxout(f, n). */
FX_API fx_maxout_layer *fx_maxout_from(void *(*make)(void *user), void *user, int n);
#define fx_maxout(...) fxi_maxout(FXI_OBJECTS(__VA_ARGS__))

/* ---- SkipConnection -------------------------------------------------------------------------- */
/* y = connection(layers(x), x). FX_STATUS_ARGUMENT if one of the two is missing or cannot be
 * called. Flux.SkipConnection; He et al., 2015. */
typedef struct fx_skipconnection_layer {
    fx_object base;
    void *layers;     /* one layer, usually a chain */
    void *connection; /* called with layers(x) and x */
} fx_skipconnection_layer;
/* clang-format off */
#define FXI_SKIPCONNECTION_ARGS(F)                                                                 \
    F(void *, layers, FXI_NULL)     /* a layer */                                                  \
    F(void *, connection, FXI_NULL) /* a function of two arrays */
/* clang-format on */
FXI_OPTION_STRUCT(fx_skipconnection_args, FXI_SKIPCONNECTION_ARGS);
FX_API fx_skipconnection_layer *fxi_skipconnection(const fx_skipconnection_args *a);
#define fx_skipconnection(...)                                                                     \
    FXI_CALL(fxi_skipconnection(FXI_OPTIONS(                                                       \
        fx_skipconnection_args, FXI_SKIPCONNECTION_ARGS(FXI_DEFAULT).layers = __VA_ARGS__)))

/* ---- Scale ----------------------------------------------------------------------------------- */
/* y = act(scale .* x .+ bias): scale and bias have the given sizes and broadcast against x.
 * Flux.Scale. */
typedef struct fx_scale_layer {
    fx_object base;
    fx_array *scale, *bias; /* bias is NULL with .bias = false */
    fx_function *act;
} fx_scale_layer;
/* clang-format off */
#define FXI_SCALE_ARGS(F)                                                                          \
    F(fx_dims, size, FXI_DIMS_NONE)       /* sizes of scale and bias: 4, or FX_DIMS(1, 4) */      \
    F(fx_function *, act, FX_IDENTITY)    /* activation */                                         \
    F(int, bias, true)                    /* false: no bias */                                     \
    F(fx_init_fn, init, fx_ones_init)     /* initialiser of scale */                               \
    F(fx_array *, scale_array, FXI_NULL)  /* scale itself, instead of init; size may be empty */   \
    F(fx_array *, bias_array, FXI_NULL)   /* bias itself, instead of zeros */
/* clang-format on */
FXI_OPTION_STRUCT(fx_scale_args, FXI_SCALE_ARGS);
FX_API fx_scale_layer *fxi_scale(const fx_scale_args *a);
#define fx_scale(...)                                                                              \
    FXI_CALL(fxi_scale(FXI_OPTIONS(fx_scale_args, FXI_SCALE_ARGS(FXI_DEFAULT).size =               \
                                                      FXI_SIZES_FIRST(__VA_ARGS__))))

/* ---- Bilinear -------------------------------------------------------------------------------- */
/* y[i] = act(xᵀ·W[i,:,:]·z + b[i]) for x: in1×…, z: in2×…, W: out×in1×in2, y: out×…. With one input
 * array, z = x; a tuple (x, z) counts as two inputs. Flux.Bilinear. */
typedef struct fx_bilinear_layer {
    fx_object base;
    fx_array *weight, *bias; /* bias is NULL with .bias = false */
    fx_function *act;
} fx_bilinear_layer;
/* clang-format off */
#define FXI_BILINEAR_ARGS(F)                                                                       \
    F(fx_dims, in, FXI_DIMS_NONE)          /* sizes of x and z along axis 0: FX_DIMS(in1, in2);    \
                                              FX_DIMS(n): n for both */                            \
    F(int64_t, out, 0)                     /* size of y along axis 0 */                            \
    F(fx_function *, act, FX_IDENTITY)     /* activation */                                        \
    F(int, bias, true)                     /* false: no bias */                                    \
    F(fx_init_fn, init, fx_glorot_uniform) /* initialiser of W */                                  \
    F(fx_array *, weight_array, FXI_NULL)  /* W itself, instead of init; in and out may be 0 */    \
    F(fx_array *, bias_array, FXI_NULL)    /* b itself, instead of zeros */
/* clang-format on */
FXI_OPTION_STRUCT(fx_bilinear_args, FXI_BILINEAR_ARGS);
FX_API fx_bilinear_layer *fxi_bilinear(const fx_bilinear_args *a);
#define fx_bilinear(...)                                                                           \
    FXI_CALL(fxi_bilinear(FXI_OPTIONS(fx_bilinear_args, FXI_BILINEAR_ARGS(FXI_DEFAULT).in =        \
                                                            FXI_DIMS_FIRST(__VA_ARGS__))))

/* ---- Embedding ------------------------------------------------------------------------------- */
/* Columns of W (out×in): for integers i of any shape, y = W[:, i], out×(sizes of i)…; for a one-hot
 * array (Bool, in×…), y = W·x, out×…. Integers count from 0; an integer outside 0 … in−1 is
 * FX_STATUS_ARGUMENT when y is computed. Other element types are FX_STATUS_DTYPE. In a new layer
 * without .weight_array, the numbers of column padding_idx are 0. The result for padding_idx is
 * always 0, and so is its gradient. Flux.Embedding. */
typedef struct fx_embedding_layer {
    fx_object base;
    fx_array *weight;
    int64_t padding_idx; /* −1: none */
} fx_embedding_layer;
/* clang-format off */
#define FXI_EMBEDDING_ARGS(F)                                                                      \
    F(int64_t, in, 0)                     /* number of columns of W */                             \
    F(int64_t, out, 0)                    /* size of y along axis 0 */                             \
    F(int64_t, padding_idx, -1)           /* index of padding, from 0; -1: none */                 \
    F(fx_init_fn, init, fx_randn_init)    /* initialiser of W */                                   \
    F(fx_array *, weight_array, FXI_NULL) /* W itself, instead of init; in and out may be 0 */
/* clang-format on */
FXI_OPTION_STRUCT(fx_embedding_args, FXI_EMBEDDING_ARGS);
FX_API fx_embedding_layer *fxi_embedding(const fx_embedding_args *a);
#define fx_embedding(...)                                                                          \
    FXI_CALL(fxi_embedding(                                                                        \
        FXI_OPTIONS(fx_embedding_args, FXI_EMBEDDING_ARGS(FXI_DEFAULT).in = __VA_ARGS__)))

/* ---- EmbeddingBag ---------------------------------------------------------------------------- */
/* Columns of W (out×in), reduced per bag. Inputs:
 *   k integers           one bag: y has out elements
 *   integers, k×bags…    one bag per column: y is out×bags…
 *   data, at             two vectors of integers: bag b is data[at[b]] … data[at[b+1]−1], and the
 *                        last bag extends to the end of data; y is out×bags. Evaluates `at`
 *   Bool, in×k, in×k×…   one-hot columns instead of integers
 * A tuple (data, at) counts as two inputs. Integers count from 0, as in Embedding.
 * FX_STATUS_ARGUMENT for a single integer (0-d), and for an `at` that does not begin with 0, is not
 * increasing, or has an element that is not an index of data. Flux.EmbeddingBag. */
typedef struct fx_embeddingbag_layer {
    fx_object base;
    fx_array *weight;
    fx_function *reduction; /* FX_MEAN, FX_SUM, FX_MAXIMUM or FX_MINIMUM */
} fx_embeddingbag_layer;
/* clang-format off */
#define FXI_EMBEDDINGBAG_ARGS(F)                                                                   \
    F(int64_t, in, 0)                     /* number of columns of W */                             \
    F(int64_t, out, 0)                    /* size of y along axis 0 */                             \
    F(fx_function *, reduction, FX_MEAN)  /* FX_MEAN, FX_SUM, FX_MAXIMUM or FX_MINIMUM */          \
    F(fx_init_fn, init, fx_randn_init)    /* initialiser of W */                                   \
    F(fx_array *, weight_array, FXI_NULL) /* W itself, instead of init; in and out may be 0 */
/* clang-format on */
FXI_OPTION_STRUCT(fx_embeddingbag_args, FXI_EMBEDDINGBAG_ARGS);
FX_API fx_embeddingbag_layer *fxi_embeddingbag(const fx_embeddingbag_args *a);
#define fx_embeddingbag(...)                                                                       \
    FXI_CALL(fxi_embeddingbag(                                                                     \
        FXI_OPTIONS(fx_embeddingbag_args, FXI_EMBEDDINGBAG_ARGS(FXI_DEFAULT).in = __VA_ARGS__)))

/* ---- WeightNorm ------------------------------------------------------------------------------ */
/* Calls `layer` after replacing one of its arrays, v, by g·v/√(Σv² + ε). `which` is the name of v
 * in the layer. The sum is along `dims`; ε is the machine epsilon of v's type. v and g are trained.
 * A new layer has g = √(Σv² + ε), so that it computes the same as `layer`. The constructor
 * evaluates v. FX_STATUS_ARGUMENT if v contains only zeros, because it then has no direction.
 * Flux.WeightNorm; Salimans, Kingma, 2016. */
typedef struct fx_weightnorm_layer {
    fx_object base;
    void *layer;
    fx_array *g;
    const char *which; /* name of a field of the layer; static storage */
    fx_dims dims;
} fx_weightnorm_layer;
/* clang-format off */
#define FXI_WEIGHTNORM_ARGS(F)                                                                     \
    F(void *, layer, FXI_NULL)         /* a layer with an array of that name */                    \
    F(const char *, which, "weight")   /* name of the array in the C struct or in Flux */          \
    F(fx_axes, dims, FXI_AXES_ALL)     /* axes of the sum; FX_ALL (default): the last axis of v */
/* clang-format on */
FXI_OPTION_STRUCT(fx_weightnorm_args, FXI_WEIGHTNORM_ARGS);
FX_API fx_weightnorm_layer *fxi_weightnorm(const fx_weightnorm_args *a);
#define fx_weightnorm(...)                                                                         \
    FXI_CALL(fxi_weightnorm(                                                                       \
        FXI_OPTIONS(fx_weightnorm_args, FXI_WEIGHTNORM_ARGS(FXI_DEFAULT).layer = __VA_ARGS__)))
/* A copy of a model without WeightNorm: each WeightNorm is replaced by its layer, which gets the
 * current value of g·v/√(Σv² + ε). Other arrays are shared. The scope owns the copy.
 * FX_STATUS_ARGUMENT for NULL. Flux.remove_weight_norms. */
FX_API void *fx_remove_weight_norms(void *model);

/* ---- parts of models ------------------------------------------------------------------------- */

/* A chain of layers `from` to `to` − 1 of `chain`, with their names; the layers are not copied.
 * Flux's chain[from+1:to]; fx_child and fx_child_named return single layers. FX_STATUS_ARGUMENT
 * unless 0 ≤ from ≤ to ≤ the number of layers. */
FX_API fx_chain_layer *fx_chain_slice(fx_chain_layer *chain, int64_t from, int64_t to);
/* fx_activations(chain, x, …): the results of all layers of a chain as a tuple; the last one is the
 * result of the chain. The scope owns the tuple. FX_STATUS_ARGUMENT if it is not a chain.
 * Flux.activations. */
FX_API void *fxi_activations(fx_chain_layer *chain, int n, void *const *args);
#define fx_activations(chain, ...) fxi_activations((chain), FXI_OBJECTS(__VA_ARGS__))
/* The model and all objects inside it that are not arrays or functions, as a tuple: depth first, a
 * shared object once. The scope owns the tuple. FX_STATUS_ARGUMENT for NULL. Flux.modules. */
FX_API void *fx_modules(void *model);
/* clang-format off */
#define FXI_OUTPUTSIZE_ARGS(F)                                                                     \
    F(void *, model, FXI_NULL)        /* the model */                                              \
    F(fx_dims, size, FXI_DIMS_NONE)   /* sizes of the input: FX_DIMS(28, 28, 1, 32) */             \
    F(fx_dims, second, FXI_DIMS_NONE) /* sizes of a second input; default: one input */            \
    F(bool, padbatch, false)          /* true: add an axis of size 1 at the end of each input */   \
    F(fx_dtype, dtype, FX_DTYPE_F32)  /* element type of the inputs: FX_DTYPE_I64 for indices */
/* clang-format on */
FXI_OPTION_STRUCT(fx_outputsize_args, FXI_OUTPUTSIZE_ARGS);
/* fx_outputsize(model, FX_DIMS(28, 28, 1, 32)): sizes of the model's result for inputs of these
 * sizes. Nothing is computed: the call builds the operations and reads their shapes, in inference
 * mode, without changing layer states or the thread's random numbers. On failure, and for a result
 * that is a tuple, n is −1 and there is an error record. Flux.outputsize. */
FX_API fx_dims fxi_outputsize(const fx_outputsize_args *a);
#define fx_outputsize(...)                                                                         \
    FXI_CALL(fxi_outputsize(                                                                       \
        FXI_OPTIONS(fx_outputsize_args, FXI_OUTPUTSIZE_ARGS(FXI_DEFAULT).model = __VA_ARGS__)))

FXI_END_C
#endif
