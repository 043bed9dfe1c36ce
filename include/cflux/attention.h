/* cflux/attention.h: dot-product attention, MultiHeadAttention, rotary embedding. Included by nn.h.
 *
 * Arrays are features×length×batch…, as in Flux, and scores keys×queries×heads×batch…. */
#ifndef CFLUX_ATTENTION_H
#define CFLUX_ATTENTION_H

#include <cflux/nn.h>

FXI_BEGIN_C

/* ---- attention as a function ----------------------------------------------------------------- */
/* Arrays and options of attention. */
/* clang-format off */
#define FXI_DOT_PRODUCT_ATTENTION_ARGS(F)                                                          \
    F(fx_array *, query, FXI_NULL) /* queries: features×queries×batch… */                           \
    F(fx_array *, key, FXI_NULL) /* keys: features×keys×batch… */                                 \
    F(fx_array *, value, FXI_NULL) /* values: (value features)×keys×batch…; NULL: key */           \
    F(int64_t, nheads, 1)         /* number of heads, divides both numbers of features */          \
    F(fx_array *, bias, FXI_NULL) /* added to the scores, broadcast over them */                   \
    F(fx_array *, mask, FXI_NULL) /* Bool, broadcast over the scores; false: no attention */       \
    F(bool, causal, false)        /* true: only keys up to the query's own position */             \
    F(double, dropout, 0)         /* probability with which an element of α is dropped */
/* clang-format on */
FXI_OPTION_STRUCT(fx_dot_product_attention_args, FXI_DOT_PRODUCT_ATTENTION_ARGS);
/* fx_dot_product_attention(q, k, v, …) returns the tuple (y, α), for every head:
 *   α = softmax(kᵀ·q/√(features/nheads) + bias), over the keys; −Inf where the mask is false
 *   y = v·α, (value features)×queries×batch…
 * With .dropout = p each element of α then becomes 0 with probability p, otherwise α/(1−p), outside
 * of training too. A query whose keys are all masked gives NaN. α is computed only when it is read
 * or evaluated; fx_update leaves it out where y is not computed from it, unless fx_want requests
 * it. y and its gradients are computed by kernels of attention if bias and dropout are unused and
 * the device has these kernels (the CPU for Float32 without a mask, CUDA for 16-bit floats),
 * otherwise with products and softmax. Products for more than 512² scores (queries × keys) take 256
 * queries at a time, and their gradients compute the scores again. In both cases, memory grows only
 * linearly with the length. FX_STATUS_SHAPE if the sizes of the arrays do not match, or
 * bias or mask does not broadcast; FX_STATUS_ARGUMENT if nheads does not divide the features, or
 * dropout is not from 0 to 1; FX_STATUS_DTYPE for a mask that is not Bool; FX_STATUS_UNSUPPORTED
 * for more than 2²⁴ queries if queries × keys exceeds 512². NNlib.dot_product_attention; Vaswani et
 * al., 2017; Rabe, Staats, 2021. */
FX_API void *fxi_dot_product_attention(const fx_dot_product_attention_args *a);
/* α alone. NNlib.dot_product_attention_scores. */
FX_API fx_array *fxi_dot_product_attention_scores(const fx_dot_product_attention_args *a);
#define FXI_ATTENTION(f, ...)                                                                      \
    FXI_CALL((f)(FXI_OPTIONS(fx_dot_product_attention_args,                                        \
                             FXI_DOT_PRODUCT_ATTENTION_ARGS(FXI_DEFAULT).query = __VA_ARGS__)))
#define fx_dot_product_attention(...) FXI_ATTENTION(fxi_dot_product_attention, __VA_ARGS__)
#define fx_dot_product_attention_scores(...)                                                       \
    FXI_ATTENTION(fxi_dot_product_attention_scores, __VA_ARGS__)

/* A Bool n×n matrix with true where key ≤ query. n is the size of x along `axis`, the axis of the
 * positions (axis 1 of features×length×batch). FX_STATUS_ARGUMENT if x does not have it.
 * NNlib.make_causal_mask. */
FX_API fx_array *fx_make_causal_mask(fx_array *x, int axis);

/* ---- MultiHeadAttention ---------------------------------------------------------------------- */
/* fx_call(l, q, k, v) projects its inputs, features×length×batch, applies attention with nheads
 * heads, and projects the result: it returns the tuple (y, α), y of out×queries×batch and α of
 * keys×queries×heads×batch. α is computed only when it is read or evaluated, as in
 * fx_dot_product_attention. fx_call(l, x) is self-attention, fx_call(l, q, kv) has v = k, and a
 * fourth input is the bias of the scores. Flux.MultiHeadAttention; Vaswani et al., 2017. */
typedef struct fx_multiheadattention_layer {
    fx_object base;
    int64_t nheads;
    void *q_proj, *k_proj, *v_proj; /* Dense */
    void *attn_drop;                /* Dropout of α */
    void *out_proj;                 /* Dense */
} fx_multiheadattention_layer;
/* clang-format off */
#define FXI_MULTIHEADATTENTION_ARGS(F)                                                             \
    F(fx_dims, dims, FXI_DIMS_NONE)        /* six sizes: q, k, v; the projections qk and v; out.   \
                                              Short forms: (in, qk, v, out), (in, qkv, out), and   \
                                              (n) or the number n: n for all */                    \
    F(int64_t, nheads, 8)                  /* number of heads; divides qk and v */                 \
    F(int, bias, false)                    /* true: the projections have biases */                 \
    F(fx_init_fn, init, fx_glorot_uniform) /* initialiser of the projections */                    \
    F(double, dropout_prob, 0)             /* probability with which an element of α is dropped */ \
    F(void *, q_proj, FXI_NULL)            /* projection of the queries, Dense. Set all five       \
                                              layers instead of the other options but nheads */    \
    F(void *, k_proj, FXI_NULL)            /* projection of the keys, Dense */                     \
    F(void *, v_proj, FXI_NULL)            /* projection of the values, Dense */                   \
    F(void *, attn_drop, FXI_NULL)         /* Dropout without dims */                              \
    F(void *, out_proj, FXI_NULL)          /* projection of the result, Dense */
/* clang-format on */
FXI_OPTION_STRUCT(fx_multiheadattention_args, FXI_MULTIHEADATTENTION_ARGS);
FX_API fx_multiheadattention_layer *fxi_multiheadattention(const fx_multiheadattention_args *a);
#define fx_multiheadattention(...)                                                                 \
    FXI_CALL(fxi_multiheadattention(                                                               \
        FXI_OPTIONS(fx_multiheadattention_args, FXI_MULTIHEADATTENTION_ARGS(FXI_DEFAULT).dims =    \
                                                    FXI_SIZES_FIRST(__VA_ARGS__))))

/* fx_attend(l, q, …): a call of the layer with a mask. Returns the tuple (y, α), which the scope
 * owns. FX_STATUS_ARGUMENT if the layer or the query is missing; other errors as for fx_call. */
/* clang-format off */
#define FXI_ATTEND_ARGS(F)                                                                         \
    F(fx_multiheadattention_layer *, layer, FXI_NULL) /* the layer */                              \
    F(fx_array *, query, FXI_NULL) /* features×queries×batch */                                     \
    F(fx_array *, key, FXI_NULL) /* default: query */                                                 \
    F(fx_array *, value, FXI_NULL) /* default: key */                                                 \
    F(fx_array *, bias, FXI_NULL) /* as in fx_dot_product_attention */                             \
    F(fx_array *, mask, FXI_NULL) /* as in fx_dot_product_attention */                             \
    F(bool, causal, false)        /* as in fx_dot_product_attention */
/* clang-format on */
FXI_OPTION_STRUCT(fx_attend_args, FXI_ATTEND_ARGS);
FX_API void *fxi_attend(const fx_attend_args *a);
#define fx_attend(...)                                                                             \
    FXI_CALL(                                                                                      \
        fxi_attend(FXI_OPTIONS(fx_attend_args, FXI_ATTEND_ARGS(FXI_DEFAULT).layer = __VA_ARGS__)))

/* ---- TransformerBlock ------------------------------------------------------------------------ */
/* A block of a transformer for x: size×length×batch, and y of the same shape:
 *   x ← norm1(x + attention(x)),  y = norm2(x + linear2(act(linear1(x))))
 *   with .norm_first = true: x ← x + attention(norm1(x)),  y = x + linear2(act(linear1(norm2(x))))
 * In training, elements of the outputs of the attention, of act and of linear2, and of α
 * (fx_dot_product_attention), are dropped with probability .dropout_prob. fx_call(l, x, mask) takes
 * a mask as in fx_dot_product_attention; .causal = true hides later positions from each position,
 * as in a GPT. PyTorch's TransformerEncoderLayer, with the same names in state dictionaries; Flux
 * has no such layer, so it cannot be saved as BSON. Vaswani et al., 2017; Xiong et al., 2020. */
typedef struct fx_transformerblock_layer {
    fx_object base;
    void *self_attn;         /* MultiHeadAttention with biases */
    void *linear1, *linear2; /* Dense: size => hidden with act, hidden => size */
    void *norm1, *norm2;     /* LayerNorm */
    void *dropout;           /* Dropout */
    bool norm_first, causal;
} fx_transformerblock_layer;
/* clang-format off */
#define FXI_TRANSFORMERBLOCK_ARGS(F)                                                               \
    F(int64_t, size, 0)                    /* size of x along axis 0 */                            \
    F(fx_function *, act, FX_RELU)         /* activation of the hidden layer */                    \
    F(int64_t, nheads, 8)                  /* number of heads; divides size */                     \
    F(int64_t, hidden, 0)                  /* size of the hidden layer; default: 4·size */         \
    F(bool, norm_first, false)             /* true: norms before attention and linear1 */          \
    F(bool, causal, false)                 /* true: attention only up to the own position */       \
    F(double, dropout_prob, 0.1)           /* probability with which an element is dropped */      \
    F(double, eps, 1e-5)                   /* ε of the norms */                                    \
    F(fx_init_fn, init, fx_glorot_uniform) /* initialiser of the weights */
/* clang-format on */
FXI_OPTION_STRUCT(fx_transformerblock_args, FXI_TRANSFORMERBLOCK_ARGS);
FX_API fx_transformerblock_layer *fxi_transformerblock(const fx_transformerblock_args *a);
#define fx_transformerblock(...)                                                                   \
    FXI_CALL(fxi_transformerblock(FXI_OPTIONS(                                                     \
        fx_transformerblock_args, FXI_TRANSFORMERBLOCK_ARGS(FXI_DEFAULT).size = __VA_ARGS__)))

/* ---- rotary embedding ------------------------------------------------------------------------ */
/* Options of fx_rotary_embedding. */
/* clang-format off */
#define FXI_ROTARY_EMBEDDING_ARGS(F)                                                               \
    F(fx_array *, x, FXI_NULL)  /* features×length×…, an even number of features */                \
    F(double, base, 10000)      /* in the formula of θ */                                          \
    F(int64_t, offset, 0)       /* position of the first column */                                 \
    F(bool, halves, false)      /* true: pairs (i, i + features/2) instead of (2i, 2i + 1) */
/* clang-format on */
FXI_OPTION_STRUCT(fx_rotary_embedding_args, FXI_ROTARY_EMBEDDING_ARGS);
/* Rotates pair i of features (a, b) at position p by the angle θ = p·base^(−2i/features): (a·cos θ
 * − b·sin θ, a·sin θ + b·cos θ). The result has the shape of x; integers become Float32.
 * FX_STATUS_SHAPE for an odd number of features, fewer than two axes, or a base that is not
 * positive. Su et al., 2021; .halves is the order of GPT-NeoX. */
FX_API fx_array *fxi_rotary_embedding(const fx_rotary_embedding_args *a);
#define fx_rotary_embedding(...)                                                                   \
    FXI_CALL(fxi_rotary_embedding(FXI_OPTIONS(                                                     \
        fx_rotary_embedding_args, FXI_ROTARY_EMBEDDING_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))

FXI_END_C
#endif
