/* attention.c: dot-product attention with memory linear in the length, causal masks, and rotary
 * embeddings.
 *
 * Long sequences are computed for QUERIES queries at a time, so that no array has all scores. The
 * gradient computes the scores of a block again from q and k (Rabe, Staats, 2021). fxi_own_gradient
 * gives the result this gradient. The gradient is written with public operations, so it has a
 * gradient of its own, which keeps all scores. Dropout draws a stream of random numbers for each
 * block, and the gradient draws them again.
 *
 * The gradients of q, and those of k and v, are two passes over the blocks. A plan computes nodes
 * in the order in which its outputs need them: with one pass for all three, the scores of every
 * block would stay in memory until the other gradients are computed. A reshape between the sums
 * over blocks keeps them from becoming one step that waits for all blocks.
 *
 * Inside, arrays are features×length×heads×batch. Sources: NNlib's attention.jl; Vaswani et al.,
 * 2017; Su et al., 2021 (rotary embedding).
 */
#include "attention_parts.h"
#include "error.h"
#include "own_gradient.h"
#include "memory.h"
#include "nn_layer.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    QUERIES = 256,       /* of a block */
    AT_ONCE = 512 * 512, /* the most queries times keys that are computed at once: 1 MiB of Float32
                            for each head of an observation */
    MOST_BLOCKS = 65536  /* each block is some nodes of the graph: more would fill the memory before
                            anything is computed */
};
_Static_assert(QUERIES *MOST_BLOCKS == 16777216, "the header and the message say this number");

#define OP_NAME "dot_product_attention"

/* ---- blocks ---------------------------------------------------------------------------------- */

/* q is scaled. bias and mask have four axes, each of the size of the scores or 1; NULL: none. */
typedef struct attention {
    fx_array *q, *k, *v, *bias, *mask;
    bool causal;
    double dropout;
    uint64_t stream[2]; /* of the first block; the next blocks have the next counters */
} attention;

/* The part of bias or mask for some queries. */
static fx_array *part(fx_array *x, int64_t from, int64_t to)
{
    return !x || fx_size(x, 1) == 1 ? x : fx_slice(x, 1, from, to);
}

/* keys×1 ≤ 1×queries. Both are views of one array of indices, which is one step of a plan. */
static fx_array *causal_part(int64_t keys, int64_t from, int64_t to)
{
    fx_array *index = fxi_iota(FX_DTYPE_I32, 0, 1, &(int64_t){keys > to ? keys : to});
    return fx_le(fx_slice(index, 0, 0, keys),
                 fx_reshape(fx_slice(index, 0, from, to), 1, to - from));
}

/* x, of the size of the scores of queries from … to−1, with `value` for the keys that a query does
 * not see. */
static fx_array *hidden_as(double value, const attention *a, fx_array *x, int64_t from, int64_t to)
{
    if (a->mask)
        x = fx_where(part(a->mask, from, to), x, value);
    if (a->causal)
        x = fx_where(causal_part(fx_size(a->k, 1), from, to), x, value);
    return x;
}

/* The scores α of queries from … to−1: keys×queries×heads×batch. */
static fx_array *scores(const attention *a, int64_t from, int64_t to)
{
    fx_array *kt = fx_permute(a->k, 1, 0, 2, 3);
    fx_array *x = fx_batched_mul(kt, fx_slice(a->q, 1, from, to));
    if (a->bias)
        x = fx_add(x, part(a->bias, from, to));
    return fx_softmax(hidden_as(-INFINITY, a, x, from, to));
}

/* Applies the dropout of a block: x is α, or, in the gradient, dα. The mask is a function of the
 * block. Equal to fx_dropout_apply with that mask. */
static fx_array *dropped(const attention *a, fx_array *x, int64_t from)
{
    int64_t sizes[4];
    const uint64_t stream[2] = {a->stream[0], a->stream[1] + (uint64_t)(from / QUERIES)};
    if (a->dropout == 0)
        return x;
    for (int i = 0; i < 4; i++)
        sizes[i] = fx_size(x, i);
    fx_array *keep = fx_gt(fxi_rand_of(stream, 4, sizes), a->dropout);
    return fx_where(keep, fx_mul(x, a->dropout < 1 ? 1 / (1 - a->dropout) : 0.0), 0);
}

static int64_t block_end(int64_t from, int64_t queries)
{
    return queries - from > QUERIES ? from + QUERIES : queries;
}

static int64_t blocks_of(const fx_array *q)
{
    return (fx_size(q, 1) + QUERIES - 1) / QUERIES;
}

/* Divides, because a product of the lengths could overflow. */
static bool is_short(const attention *a)
{
    const int64_t keys = fx_size(a->k, 1);
    return keys == 0 || fx_size(a->q, 1) <= AT_ONCE / keys;
}

/* Joins one array per block along the queries. */
typedef fx_array *(*block_fn)(const attention *a, fx_array *gy, int64_t from, int64_t to);
static fx_array *over_blocks(const attention *a, fx_array *gy, block_fn f)
{
    const int64_t queries = fx_size(a->q, 1), n = blocks_of(a->q);
    fx_array **parts = fxi_calloc((size_t)n, sizeof *parts);
    if (!parts)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, OP_NAME, "no memory for a list of blocks"));
    for (int64_t i = 0; i < n; i++)
        parts[i] = f(a, gy, i * QUERIES, block_end(i * QUERIES, queries));
    fx_array *y = fxi_concat(1, (int)n, parts);
    fxi_free(parts);
    return y;
}

/* ---- forward --------------------------------------------------------------------------------- */

static fx_array *scores_block(const attention *a, fx_array *gy, int64_t from, int64_t to)
{
    (void)gy;
    return dropped(a, scores(a, from, to), from);
}

static fx_array *values_block(const attention *a, fx_array *gy, int64_t from, int64_t to)
{
    return fx_batched_mul(a->v, scores_block(a, gy, from, to));
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The gradient of the scores before softmax: α⊙(dα − Σ α⊙dα), dα = vᵀ·gy, with dropout's mask. The
 * gradient of a hidden score is 0. Its α is also 0, except for a query that sees no key, which only
 * a mask can cause: then α is NaN. */
static fx_array *score_gradient(const attention *a, fx_array *gy, fx_array *alpha, int64_t from)
{
    fx_array *d = dropped(a, fx_batched_mul(fx_permute(a->v, 1, 0, 2, 3), gy), from);
    fx_array *sum = fx_sum(fx_mul(alpha, d), .dims = FX_AXES(0));
    d = fx_mul(alpha, fx_sub(d, sum));
    return a->mask ? hidden_as(0, a, d, from, from + fx_size(gy, 1)) : d;
}

static fx_array *query_block(const attention *a, fx_array *gy, int64_t from, int64_t to)
{
    fx_array *d = score_gradient(a, fx_slice(gy, 1, from, to), scores(a, from, to), from);
    return fx_batched_mul(a->k, d);
}

/* dk and dv of the queries of one block, joined along the features. */
static fx_array *key_value_block(const attention *a, fx_array *gy, int64_t from, int64_t to)
{
    fx_array *alpha = scores(a, from, to), *g = fx_slice(gy, 1, from, to);
    fx_array *d = score_gradient(a, g, alpha, from), *q = fx_slice(a->q, 1, from, to);
    return fx_concat(0, fx_batched_mul(q, fx_permute(d, 1, 0, 2, 3)),
                     fx_batched_mul(g, fx_permute(dropped(a, alpha, from), 1, 0, 2, 3)));
}

/* x with the sizes of y, which has four axes. */
static fx_array *like(fx_array *x, const fx_array *y)
{
    return fx_reshape(x, fx_size(y, 0), fx_size(y, 1), fx_size(y, 2), fx_size(y, 3));
}

/* Sums of 16-bit blocks are Float32: rounded after every block, they would lose most of what later
 * blocks add. */
static fx_array *key_value_gradient(const attention *a, fx_array *gy)
{
    const int64_t queries = fx_size(a->q, 1);
    fx_dtype type = fx_eltype(a->k);
    fx_array *sum = NULL;
    for (int64_t i = 0; i < queries; i += QUERIES) {
        fx_array *next = key_value_block(a, gy, i, block_end(i, queries));
        type = fx_eltype(next);
        next = queries > QUERIES ? fxi_wide_enough(next) : next;
        if (!sum)
            sum = next;
        else if (i / QUERIES % 2) /* the shapes alternate: see the head of the file */
            sum = fx_add(fx_vec(sum), fx_vec(next));
        else
            sum = fx_add(like(sum, next), next);
    }
    sum = fx_reshape(sum, fx_size(a->k, 0) + fx_size(a->v, 0), fx_size(a->k, 1), fx_size(a->k, 2),
                     fx_size(a->k, 3));
    return fx_cast(sum, type);
}

/* Sums over the axes along which x was repeated. */
static fx_array *unbroadcast(fx_array *g, const fx_array *x)
{
    unsigned mask = 0;
    for (int i = 0; i < 4; i++)
        if (fx_size(x, i) == 1 && fx_size(g, i) != 1)
            mask |= 1u << (unsigned)i;
    return mask ? fx_sum(g, .dims = FXI_AXES(mask)) : g;
}

static fx_array *bias_block(const attention *a, fx_array *gy, int64_t from, int64_t to)
{
    fx_array *d = score_gradient(a, fx_slice(gy, 1, from, to), scores(a, from, to), from);
    return unbroadcast(d, a->bias);
}

/* The kind of a call. Its inputs are q, k, v, bias and mask if it has them, and the result whose
 * gradient the operation replaces (own_gradient.h). */
typedef struct shape_of_call {
    bool bias, mask, causal;
} shape_of_call;

static attention attention_of(const fx_custom_op *op, const fxi_own_call *call, fx_array *const *in)
{
    const shape_of_call *s = op->user;
    attention a = {
        .q = in[0], .k = in[1], .v = in[2], .causal = s->causal, .dropout = call->number};
    memcpy(a.stream, call->stream, sizeof a.stream);
    a.bias = s->bias ? in[3] : NULL;
    a.mask = s->mask ? in[3 + s->bias] : NULL;
    return a;
}

static void attention_gradient(const fx_custom_op *op, const fxi_own_call *call, const bool *need,
                               int n, fx_array *const *in, fx_array *gy, fx_array **gx)
{
    const attention a = attention_of(op, call, in);
    (void)need, (void)n;
    fx_array *both = key_value_gradient(&a, gy);
    const int64_t rows = fx_size(a.k, 0);
    gx[0] = over_blocks(&a, gy, query_block);
    gx[1] = fx_slice(both, 0, 0, rows);
    gx[2] = fx_slice(both, 0, rows, rows + fx_size(a.v, 0));
    if (a.bias) {
        fx_array *g = over_blocks(&a, gy, bias_block);
        gx[3] = unbroadcast(g, a.bias);
    }
}

/* One static operation per combination of bias, mask and causal. */
#define CALL(b, m, c)                                                                              \
    {                                                                                              \
        .op = {.fxi_size = sizeof(fx_custom_op),                                                   \
               .name = OP_NAME,                                                                    \
               .user = &(shape_of_call){b, m, c}},                                                 \
        .gradient = attention_gradient                                                             \
    }
static const fxi_own_gradient_op calls[8] = {CALL(false, false, false), CALL(true, false, false),
                                             CALL(false, true, false),  CALL(true, true, false),
                                             CALL(false, false, true),  CALL(true, false, true),
                                             CALL(false, true, true),   CALL(true, true, true)};

/* v·α in blocks, whose gradient computes α again. */
static fx_array *in_blocks(const attention *a)
{
    attention still = *a;
    still.q = fx_stop_gradient(a->q);
    still.k = fx_stop_gradient(a->k);
    still.v = fx_stop_gradient(a->v);
    still.bias = a->bias ? fx_stop_gradient(a->bias) : NULL;
    int n = 3;
    fx_array *in[6] = {a->q, a->k, a->v};
    if (a->bias)
        in[n++] = a->bias;
    if (a->mask)
        in[n++] = a->mask;
    in[n++] = over_blocks(&still, NULL, values_block);
    fxi_own_call call = {.number = a->dropout};
    memcpy(call.stream, a->stream, sizeof call.stream);
    return fxi_own_gradient(&calls[(a->bias != NULL) + 2 * (a->mask != NULL) + 4 * a->causal],
                            &call, n, in);
}

/* ---- checks and heads ------------------------------------------------------------------------ */

static fx_array *fail(fx_status status, const char *what, const fx_dot_product_attention_args *a)
{
    char q[100], k[100], v[100];
    fx_summary(a->query, q, sizeof q);
    fx_summary(a->key, k, sizeof k);
    fx_summary(a->value ? a->value : a->key, v, sizeof v);
    return fx_error_array(
        fx_fail(status, OP_NAME, "%s: query %s, key %s, value %s", what, q, k, v));
}

/* Reports a bias or mask that does not broadcast to the scores of q, of which `scores` has the
 * first three sizes. */
static fx_array *fail_to_broadcast(const char *name, const fx_array *x, const fx_array *q,
                                   const int64_t *scores)
{
    char text[100], batch[24 * FX_MAX_DIMS] = "", hint[120] = "";
    size_t n = 0;
    fx_summary((void *)(uintptr_t)x, text, sizeof text);
    if (fx_ndims(q) == 3 && fx_ndims(x) == 2 && fx_size(x, 0) == scores[0] &&
        fx_size(x, 1) == fx_size(q, 2))
        snprintf(hint, sizeof hint,
                 "; for a %s of the keys of each sequence, pass fx_reshape(%s, %lld, 1, 1, %lld)",
                 name, name, (long long)scores[0], (long long)fx_size(q, 2));
    for (int i = 2; i < fx_ndims(q) && n < sizeof batch; i++)
        n += (size_t)snprintf(batch + n, sizeof batch - n, "×%lld", (long long)fx_size(q, i));
    return fx_error_array(fx_fail(
        FX_STATUS_SHAPE, OP_NAME,
        "the %s must broadcast to keys×queries×heads×batch = %lld×%lld×%lld%s, but got %s%s", name,
        (long long)scores[0], (long long)scores[1], (long long)scores[2], n ? batch : "×1", text,
        hint));
}

static bool same_batch(const fx_array *x, const fx_array *y)
{
    bool same = true;
    for (int i = 2; i < fx_ndims(x); i++)
        same = same && fx_size(x, i) == fx_size(y, i);
    return same;
}

static int64_t batch_of(const fx_array *x)
{
    int64_t n = 1;
    for (int i = 2; i < fx_ndims(x); i++)
        n *= fx_size(x, i);
    return n;
}

/* (features·heads)×length×batch… to features×length×heads×batch. */
static fx_array *split(fx_array *x, int64_t heads)
{
    fx_array *y = fx_reshape(x, fx_size(x, 0) / heads, heads, fx_size(x, 1), batch_of(x));
    return fx_permute(y, 0, 2, 1, 3);
}

/* Does a bias or mask broadcast to the scores of q, keys×queries×heads×batch…? `full` has the
 * first three sizes. */
static bool broadcasts(const fx_array *x, const fx_array *q, const int64_t *full)
{
    for (int i = 0; i < fx_ndims(x); i++)
        if (fx_size(x, i) != 1 && fx_size(x, i) != (i < 3 ? full[i] : fx_size(q, i - 1)))
            return false;
    return true;
}

/* bias or mask as keys×queries×heads×batch, each of full size or 1. The batch axes become one, so
 * they are repeated first if some have size 1 and others do not. */
static fx_array *four_axes(fx_array *x, const fx_array *q)
{
    int64_t sizes[4] = {1, 1, 1, 1}, wide[FX_MAX_DIMS];
    const int nd = fx_ndims(x), all = fx_ndims(q) + 1, axes = nd > all ? nd : all;
    int64_t own = 1;
    for (int i = 3; i < nd; i++)
        own *= fx_size(x, i);
    for (int i = 0; i < axes && i < FX_MAX_DIMS; i++)
        wide[i] = i < 3 ? fx_size(x, i) : fx_size(q, i - 1);
    if (own != 1 && own != batch_of(q))
        x = fxi_expand(x, axes, wide);
    for (int i = 0; i < 4; i++)
        sizes[i] = i < 3 ? fx_size(x, i) : own == 1 ? 1 : batch_of(q);
    return fxi_reshape(x, 4, sizes);
}

/* Draws one counter of the random stream for every block of a long sequence. A short one needs
 * none: fx_dropout_apply draws its counter. */
static void draw_streams(attention *a)
{
    uint64_t stream[2];
    if (a->dropout == 0 || is_short(a))
        return;
    fxi_random_next(a->stream);
    for (int64_t i = 1; i < blocks_of(a->q); i++)
        fxi_random_next(stream);
}

/* Fills in `out`. Returns NULL on success, else an error array. */
static fx_array *prepare(const fx_dot_product_attention_args *a, attention *out)
{
    fx_array *v = a->value ? a->value : a->key;
    const fx_array *const all[] = {a->query, a->key, v, a->bias, a->mask};
    static const char *const names[] = {"the query", "the key", "the value", "the bias",
                                        "the mask"};
    for (int i = 0; i < 5; i++) {
        const bool absent = i >= 3 && !all[i];
        const fx_status s = absent ? FX_OK : fxi_expect_array(OP_NAME, names[i], all[i]);
        if (s != FX_OK)
            return fx_error_array(s);
    }
    const int64_t heads = a->nheads;
    if (fx_ndims(a->query) < 2 || fx_ndims(a->key) != fx_ndims(a->query) ||
        fx_ndims(v) != fx_ndims(a->query))
        return fail(FX_STATUS_SHAPE, "expects arrays with the same number of axes, at least 2", a);
    if (fx_size(a->query, 0) != fx_size(a->key, 0) || fx_size(a->key, 1) != fx_size(v, 1) ||
        !same_batch(a->query, a->key) || !same_batch(a->query, v))
        return fail(FX_STATUS_SHAPE,
                    "query and key need the same features, key and value the same length, and all "
                    "three the same batch sizes",
                    a);
    if (heads < 1 || fx_size(a->query, 0) % heads || fx_size(v, 0) % heads) {
        char what[100];
        snprintf(what, sizeof what,
                 "nheads is %lld, expected a divisor of both numbers of features",
                 (long long)heads);
        return fail(FX_STATUS_ARGUMENT, what, a);
    }
    if (!(a->dropout >= 0 && a->dropout <= 1))
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, OP_NAME, "dropout is %g, expected 0 to 1", a->dropout));
    const int64_t full[] = {fx_size(a->key, 1), fx_size(a->query, 1), heads};
    if (a->bias && !broadcasts(a->bias, a->query, full))
        return fail_to_broadcast("bias", a->bias, a->query, full);
    if (a->mask && !broadcasts(a->mask, a->query, full))
        return fail_to_broadcast("mask", a->mask, a->query, full);
    const double scale = 1 / sqrt((double)(fx_size(a->query, 0) / heads));
    /* Scaled before the heads are split: the step that scales the gradient then also writes it in
     * the order of the query, and no other copy is needed. */
    *out = (attention){.q = split(fx_mul(a->query, scale), heads),
                       .k = split(a->key, heads),
                       .v = split(v, heads),
                       .bias = a->bias ? four_axes(a->bias, a->query) : NULL,
                       .mask = a->mask ? four_axes(a->mask, a->query) : NULL,
                       .causal = a->causal,
                       .dropout = a->dropout};
    if (!is_short(out) && blocks_of(out->q) > MOST_BLOCKS)
        return fail(FX_STATUS_UNSUPPORTED, "a long sequence may have at most 16,777,216 queries",
                    a);
    draw_streams(out);
    if (out->mask && fx_eltype(out->mask) != FX_DTYPE_BOOL)
        return fx_error_array(fx_fail(FX_STATUS_DTYPE, OP_NAME, "the mask is %s, expected Bool",
                                      fx_dtype_name(fx_eltype(out->mask))));
    return NULL;
}

/* keys×queries×heads×batch…, with the batch axes of q. */
static fx_array *public_scores(fx_array *alpha, const fx_array *q)
{
    int64_t sizes[FX_MAX_DIMS + 1];
    const int nd = fx_ndims(q) + 1;
    for (int i = 0; i < 3; i++)
        sizes[i] = fx_size(alpha, i);
    for (int i = 3; i < nd; i++)
        sizes[i] = fx_size(q, i - 1);
    return fxi_reshape(alpha, nd, sizes);
}

/* features×length×heads×batch to (features·heads)×length×batch…. */
static fx_array *joined(fx_array *y, const fx_array *q)
{
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(q); i++)
        sizes[i] = fx_size(q, i);
    sizes[0] = fx_size(y, 0) * fx_size(y, 2);
    return fxi_reshape(fx_permute(y, 0, 2, 1, 3), fx_ndims(q), sizes);
}

/* ---- public functions ------------------------------------------------------------------------ */

/* All scores as one array, with dropout. Those of a long sequence are computed block by block,
 * because each block draws a mask of its own. */
static fx_array *all_scores(const attention *a)
{
    if (a->dropout > 0 && !is_short(a))
        return over_blocks(a, NULL, scores_block);
    fx_array *alpha = scores(a, 0, fx_size(a->q, 1));
    return a->dropout > 0 ? fx_dropout_apply(alpha, a->dropout) : alpha;
}

/* The result for the query q; `alpha` has all scores. */
static fx_array *composed(const attention *a, fx_array *alpha, const fx_array *q)
{
    return joined(is_short(a) ? fx_batched_mul(a->v, alpha) : in_blocks(a), q);
}

static fx_array *failed(void)
{
    return fx_error_array(FX_STATUS_ARGUMENT);
}

fx_array *fxi_dot_product_attention_scores(const fx_dot_product_attention_args *given)
{
    FXI_OPERATION("dot_product_attention_scores");
    FXI_TAKE_OPTIONS(fx_dot_product_attention_args, FXI_DOT_PRODUCT_ATTENTION_ARGS, o, OP_NAME,
                     given);
    FXI_SCOPE;
    attention a;
    fx_array *error = o_ok ? prepare(&o, &a) : failed();
    return fx_keep(error ? error : public_scores(all_scores(&a), o.query));
}

void *fxi_dot_product_attention(const fx_dot_product_attention_args *given)
{
    FXI_OPERATION(OP_NAME);
    FXI_TAKE_OPTIONS(fx_dot_product_attention_args, FXI_DOT_PRODUCT_ATTENTION_ARGS, o, OP_NAME,
                     given);
    FXI_SCOPE;
    attention a;
    fx_array *error = o_ok ? prepare(&o, &a) : failed();
    if (error)
        return fx_keep(error);
    o.mask = a.mask;
    fx_array *alpha = all_scores(&a), *scores = public_scores(alpha, o.query),
             *y = fxi_attention_in_one_kernel(&o);
    /* Most programs do not read the scores, whose memory grows with the square of the length. */
    if (y || !is_short(&a))
        fxi_on_demand(scores);
    if (!y)
        y = composed(&a, alpha, o.query);
    return fx_keep(fx_tuple(y, scores));
}

fx_array *fxi_attention_composed(const fx_dot_product_attention_args *o)
{
    attention a;
    fx_array *error = prepare(o, &a);
    return error ? error : composed(&a, all_scores(&a), o->query);
}

fx_array *fx_make_causal_mask(fx_array *x, int axis)
{
    FXI_OPERATION("make_causal_mask");
    const fx_status s = fxi_expect_array("make_causal_mask", "x", x);
    if (s != FX_OK)
        return fx_error_array(s);
    if (axis < 0 || axis >= fx_ndims(x)) {
        char got[100];
        fx_summary(x, got, sizeof got);
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "make_causal_mask",
                                      "there is no axis %d: the array is a %s", axis, got));
    }
    FXI_SCOPE;
    const int64_t n = fx_size(x, axis);
    return fx_keep(causal_part(n, 0, n));
}

/* ---- rotary embedding ------------------------------------------------------------------------ */

/* position·base^(−2i/features), 1×pairs×length: the rotation of pair i. */
static fx_array *angles(const fx_rotary_embedding_args *o, fx_dtype type)
{
    const int64_t pairs = fx_size(o->x, 0) / 2, length = fx_size(o->x, 1);
    const double step = -log(o->base) / (double)pairs;
    fx_array *speed = fx_exp(fx_range_dtype(type, 0, step, pairs));
    fx_array *position = fx_range_dtype(type, (double)o->offset, 1, length);
    return fx_mul(fx_reshape(speed, 1, pairs), fx_reshape(position, 1, 1, length));
}

fx_array *fxi_rotary_embedding(const fx_rotary_embedding_args *given)
{
    FXI_OPERATION("rotary_embedding");
    FXI_TAKE_OPTIONS(fx_rotary_embedding_args, FXI_ROTARY_EMBEDDING_ARGS, o, "rotary_embedding",
                     given);
    FXI_SCOPE;
    const fx_status s = o_ok ? fxi_expect_array("rotary_embedding", "x", o.x) : FX_STATUS_ARGUMENT;
    if (s != FX_OK)
        return fx_error_array(s);
    if (fx_ndims(o.x) < 2 || fx_size(o.x, 0) % 2 || !(o.base > 0)) {
        char got[100];
        fx_summary(o.x, got, sizeof got);
        return fx_error_array(fx_fail(FX_STATUS_SHAPE, "rotary_embedding",
                                      "expects an even number of features×length, and a positive "
                                      "base, got %s, base %g",
                                      got, o.base));
    }
    if (!fxi_is_half(fx_eltype(o.x)))
        o.x = fxi_wide_enough(o.x);
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(o.x); i++)
        sizes[i] = fx_size(o.x, i);
    const fx_dtype type = fx_eltype(o.x) == FX_DTYPE_F64 ? FX_DTYPE_F64 : FX_DTYPE_F32;
    const int64_t pairs = sizes[0] / 2, length = sizes[1], rest = batch_of(o.x);
    fx_array *x = o.halves ? fx_permute(fx_reshape(o.x, pairs, 2, length, rest), 1, 0, 2, 3)
                           : fx_reshape(o.x, 2, pairs, length, rest);
    fx_array *a = angles(&o, type), *first = fx_slice(x, 0, 0, 1), *second = fx_slice(x, 0, 1, 2);
    fx_array *c = fx_cast(fx_cos(a), fx_eltype(o.x)), *d = fx_cast(fx_sin(a), fx_eltype(o.x));
    fx_array *y = fx_concat(0, fx_sub(fx_mul(first, c), fx_mul(second, d)),
                            fx_add(fx_mul(first, d), fx_mul(second, c)));
    return fx_keep(fxi_reshape(o.halves ? fx_permute(y, 1, 0, 2, 3) : y, fx_ndims(o.x), sizes));
}
