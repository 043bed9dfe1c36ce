/* gpt_model.h: a GPT, a transformer that predicts the next token from the tokens before it. Used by
 * gpt.c, gpt2.c and bench/. Source: A. Radford et al., Language models are unsupervised multitask
 * learners, 2019; A. Karpathy, nanoGPT. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <cflux.h>

enum { MOST_BLOCKS = 48 };

typedef struct sizes {
    int64_t vocabulary, context, width, heads, blocks;
} sizes;
typedef struct Block {
    fx_object base;
    void *norm1;
    fx_multiheadattention_layer *attention;
    void *norm2, *feedforward;
} Block;

/* x + attention(norm(x)), then x + feedforward(norm(x)); a position sees itself and earlier ones.
 * The scope frees what only this function uses, such as the scores of attention. */
static void *block_forward(void *self, int n, void *const *args)
{
    FX_SCOPE;
    const Block *b = self;
    (void)n;
    fx_array *x = args[0];
    x = fx_add(x, fx_child(fx_attend(b->attention, fx_call(b->norm1, x), .causal = true), 0));
    return fx_keep(fx_add(x, fx_call(b->feedforward, fx_call(b->norm2, x))));
}
FX_LAYER(Block, block_forward, norm1, attention, norm2, feedforward);

static inline void *block(const sizes *s)
{
    return fx_new(
        Block, .norm1 = fx_layernorm(FX_DIMS(s->width)),
        .attention = fx_multiheadattention(FX_DIMS(s->width), .nheads = s->heads, .bias = true),
        .norm2 = fx_layernorm(FX_DIMS(s->width)),
        .feedforward =
            fx_chain(fx_dense(s->width, 4 * s->width, FX_GELU), fx_dense(4 * s->width, s->width)));
}

typedef struct Gpt {
    fx_object base;
    fx_embedding_layer *tokens, *positions;
    fx_list blocks;
    void *norm;
} Gpt;

/* Tokens T×B → scores V×T×B of each next token. The embedding matrix also computes the scores. */
static void *gpt_forward(void *self, int n, void *const *args)
{
    const Gpt *m = self;
    (void)n;
    const int64_t t = fx_size(args[0], 0), batch = fx_size(args[0], 1);
    fx_array *where = fx_call(m->positions, fx_range_dtype(FX_DTYPE_I64, 0, 1, t));
    fx_array *x = fx_add(fx_call(m->tokens, args[0]), where);
    for (int64_t i = 0; i < m->blocks.n; i++)
        x = fx_call(m->blocks.items[i], x);
    fx_array *weight = m->tokens->weight;
    x = fx_reshape(fx_call(m->norm, x), fx_size(weight, 0), t * batch);
    return fx_reshape(fx_matmul(fx_transpose(weight), x), fx_size(weight, 1), t, batch);
}
FX_LAYER(Gpt, gpt_forward, tokens, positions, blocks, norm);

static fx_array *small_normal(int ndims, const int64_t *shape)
{
    return fx_mul(0.02, fx_randn_init(ndims, shape));
}

static inline Gpt *gpt(const sizes *s)
{
    void *blocks[MOST_BLOCKS];
    for (int64_t i = 0; i < s->blocks && i < MOST_BLOCKS; i++)
        blocks[i] = block(s);
    return fx_new(Gpt, .tokens = fx_embedding(s->vocabulary, s->width, .init = small_normal),
                  .positions = fx_embedding(s->context, s->width, .init = small_normal),
                  .blocks = {.n = s->blocks, .items = blocks},
                  .norm = fx_layernorm(FX_DIMS(s->width)));
}

/* The cross-entropy of the predictions of the tokens 1, 2, … of each column. */
static inline fx_array *loss_of(void *model, fx_array *tokens, int64_t vocabulary)
{
    const int64_t t = fx_size(tokens, 0) - 1;
    fx_array *next = fx_slice(tokens, 0, 1, t + 1);
    fx_array *scores = fx_call(model, fx_slice(tokens, 0, 0, t));
    return fx_logitcrossentropy(scores, fx_onehot(next, vocabulary));
}

#endif
