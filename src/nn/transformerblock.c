/* transformerblock.c: TransformerBlock: attention and two Dense layers with shortcuts and norms,
 * like PyTorch's TransformerEncoderLayer. The members have PyTorch's names. Sources: Vaswani et
 * al., 2017; Xiong et al., 2020, for norm_first. */
#include "nn_layer.h"

#include <inttypes.h>

static fx_array *attended(const fx_transformerblock_layer *l, fx_array *x, fx_array *mask)
{
    void *pair = fx_attend(l->self_attn, x, .mask = mask, .causal = l->causal);
    return fx_is_error(pair) ? pair : fx_call(l->dropout, fx_child(pair, 0));
}

static fx_array *fed_forward(const fx_transformerblock_layer *l, fx_array *x)
{
    fx_array *hidden = fx_call(l->dropout, fx_call(l->linear1, x));
    return fx_call(l->dropout, fx_call(l->linear2, hidden));
}

static void *block_forward(void *self, int n, void *const *args)
{
    const fx_transformerblock_layer *l = self;
    FXI_SCOPE;
    fx_array *x = fxi_layer_input(self, n == 2 ? 1 : n, args);
    if (fx_is_error(x))
        return fx_keep(x);
    fx_array *mask = n == 2 ? args[1] : NULL;
    if (l->norm_first) {
        x = fx_add(x, attended(l, fx_call(l->norm1, x), mask));
        return fx_keep(fx_add(x, fed_forward(l, fx_call(l->norm2, x))));
    }
    x = fx_call(l->norm1, fx_add(x, attended(l, x, mask)));
    return fx_keep(fx_call(l->norm2, fx_add(x, fed_forward(l, x))));
}

static bool block_build(const fx_type *type, const void *options, void *self)
{
    const fx_transformerblock_args *a = options;
    fx_transformerblock_layer *l = self;
    if (a->size < 1 || a->hidden < 0 || a->size > INT64_MAX / 4)
        return fxi_layer_fail(type, "sizes must be positive, got %" PRId64 " and hidden %" PRId64,
                              a->size, a->hidden);
    const int64_t hidden = a->hidden ? a->hidden : 4 * a->size;
    l->self_attn = fx_multiheadattention(a->size, .nheads = a->nheads, .bias = true,
                                         .init = a->init, .dropout_prob = a->dropout_prob);
    l->linear1 = fx_dense(a->size, hidden, a->act, .init = a->init);
    l->linear2 = fx_dense(hidden, a->size, .init = a->init);
    l->norm1 = fx_layernorm(a->size, .eps = a->eps);
    l->norm2 = fx_layernorm(a->size, .eps = a->eps);
    l->dropout = fx_dropout(a->dropout_prob);
    void *const all[] = {l->self_attn, l->linear1, l->linear2, l->norm1, l->norm2, l->dropout};
    for (int i = 0; i < FXI_COUNT(all); i++)
        if (fx_is_error(all[i]))
            return false;
    return true;
}

static bool block_recover(const void *self, void *options)
{
    const fx_transformerblock_layer *l = self;
    const fx_dense_layer *first = l->linear1;
    fx_transformerblock_args *a = options;
    if (!first || !first->weight)
        return false;
    a->size = fx_size(first->weight, 1);
    a->hidden = fx_size(first->weight, 0) == 4 * a->size ? 0 : fx_size(first->weight, 0);
    a->act = first->act;
    a->nheads = ((const fx_multiheadattention_layer *)l->self_attn)->nheads;
    a->dropout_prob = ((const fx_dropout_layer *)l->dropout)->p;
    a->eps = ((const fx_layernorm_layer *)l->norm1)->epsilon;
    return true;
}

/* clang-format off */
#define PART(M, name) M(name, CHILD, .torch = #name)
#define ROWS(M, O, F)                                                                              \
    O(size, SIZE, .positional = "a size", .least = 1, .required = true)                            \
    O(act, FUNCTION, .positional = "a function")                                                   \
    O(nheads, INTEGER, .names = "nheads", .least = 1, .shown = true)                               \
    O(hidden, INTEGER, .names = "hidden", .least = 0)                                              \
    M(norm_first, FLAG, FX_FROM(norm_first, FLAG), .names = "norm_first")                          \
    M(causal, FLAG, FX_FROM(causal, FLAG), .names = "causal")                                      \
    O(dropout_prob, REAL, .names = "dropout_prob")                                                 \
    O(eps, REAL, .names = "eps ϵ epsilon")                                                         \
    O(init, INIT, .names = "init")                                                                 \
    PART(M, self_attn) PART(M, linear1) PART(M, linear2) PART(M, norm1) PART(M, norm2) PART(M, dropout)
/* clang-format on */
FX_LAYER_TYPE(transformerblock, fx_transformerblock_layer, fx_transformerblock_args,
              FXI_TRANSFORMERBLOCK_ARGS, ROWS,
              (.name = "TransformerBlock", .forward = block_forward, .layout_bytes = 8,
               .flags = FX_TYPE_ONE_LINE),
              .build = block_build, .recover = block_recover, .semicolon = true);
FXI_LIBRARY_LAYER(transformerblock, fx_transformerblock_layer, fx_transformerblock_args)
