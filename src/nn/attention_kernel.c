/* attention_kernel.c: dot-product attention with the kernels of a device that has them.
 *
 * The gradient needs the logarithms of the sums of exponentials (FlashAttention: Dao et al., 2022;
 * Dao, 2023). They are an operation of their own; in a plan that also has the forward pass, they
 * are a second output of its step. The gradients of q, and those of k and v, are two operations, as
 * in attention.c; some devices compute both in one step (src/plan/merge_attention.c).
 * fx_attention_step in <cflux/backend.h> has the formulas.
 * Second gradients are rare: they differentiate the composed form.
 */
#include "attention_parts.h"
#include "fused_attention.h"
#include "own_gradient.h"

#include <cflux/grad.h>

#include <math.h>

/* The inputs of the operations, in their order; a mask, if there is one, is the last. Q to GY and
 * the mask are what the composed form needs. */
enum { Q, K, V, GY, LSE, DELTA, INPUTS };

static fx_attention_attr attr_of(fx_attention_kind kind, int64_t heads, bool causal,
                                 const fx_array *q)
{
    return (fx_attention_attr){.kind = kind,
                               .heads = heads,
                               .causal = causal,
                               .scale = 1 / sqrt((double)(fx_size(q, 0) / heads))};
}

/* `user` of an operation says whether it is causal. The number of heads is `number` of the call. */
static bool is_causal(const fx_custom_op *op)
{
    return *(const bool *)op->user;
}

/* ---- the gradient's own gradient ------------------------------------------------------------- */

/* The mask among the n inputs of an operation with its own gradient: it is after `before` other
 * inputs, and the result is after it. NULL: none. */
static fx_array *mask_among(fx_array *const *in, int n, int before)
{
    return n > before + 1 ? in[before] : NULL;
}

/* Replaces the inputs by new nodes with their values, at which a reverse sweep stops: it finds how
 * the composed form depends on each input, but not how one input depends on another. */
static fx_array *composed(const fx_custom_op *op, const fxi_own_call *call, int n,
                          fx_array *const *in, fx_array **late)
{
    for (int i = Q; i <= GY; i++)
        late[i] = fxi_after(0, NULL, in[i]);
    const fx_dot_product_attention_args a = {.query = late[Q],
                                             .key = late[K],
                                             .value = late[V],
                                             .mask = mask_among(in, n, GY + 1),
                                             .nheads = (int64_t)call->number,
                                             .causal = is_causal(op)};
    return fxi_attention_composed(&a);
}

static void query_second(const fx_custom_op *op, const fxi_own_call *call, const bool *need, int n,
                         fx_array *const *in, fx_array *g, fx_array **gx)
{
    fx_array *late[INPUTS], *dq;
    (void)need;
    fx_array *y = composed(op, call, n, in, late);
    fx_pullback(y, late[GY], &late[Q], 1, &dq);
    fx_pullback(dq, g, late, GY + 1, gx);
}

static void key_value_second(const fx_custom_op *op, const fxi_own_call *call, const bool *need,
                             int n, fx_array *const *in, fx_array *g, fx_array **gx)
{
    fx_array *late[INPUTS], *d[2];
    (void)need;
    fx_array *y = composed(op, call, n, in, late);
    fx_pullback(y, late[GY], &late[K], 2, d);
    fx_pullback(fx_concat(0, d[0], d[1]), g, late, GY + 1, gx);
}

/* ---- the gradient ---------------------------------------------------------------------------- */

static const bool yes = true, no = false;
#define CALL(causal, rule)                                                                         \
    {                                                                                              \
        .op = {.fxi_size = sizeof(fx_custom_op),                                                   \
               .name = "dot_product_attention",                                                    \
               .user = (void *)&(causal)},                                                         \
        .gradient = (rule)                                                                         \
    }
#define CALLS(rule)                                                                                \
    {                                                                                              \
        CALL(no, rule), CALL(yes, rule)                                                            \
    }
static const fxi_own_gradient_op of_query[] = CALLS(query_second),
                                 of_key_value[] = CALLS(key_value_second);

/* One of the two operations of the gradient, of n inputs, with its own gradient. */
static fx_array *gradient_part(const fxi_own_gradient_op *second, const fxi_own_call *call,
                               fx_attention_kind kind, int n, fx_array *const *in)
{
    const bool causal = is_causal(&second->op);
    const fx_attention_attr attr = attr_of(kind, (int64_t)call->number, causal, in[Q]);
    fx_array *value = fxi_attention_node(&attr, n, in);
    fx_array *all[] = {in[Q], in[K], in[V], in[GY], n > INPUTS ? in[INPUTS] : value, value};
    return fxi_own_gradient(second, call, n > INPUTS ? 6 : 5, all);
}

/* x with the features of a head as an axis of its own, in Float32. */
static fx_array *by_head(fx_array *x, int64_t heads)
{
    return fx_cast(fx_reshape(x, fx_size(x, 0) / heads, heads, fx_size(x, 1), fx_size(x, 2)),
                   FX_DTYPE_F32);
}

/* heads×queries×batch: the sum of gy⊙y over the features of a head, in Float32. The products are a
 * part of the step that adds them, because no reshape separates them. */
static fx_array *delta_of(fx_array *gy, fx_array *y, int64_t heads)
{
    fx_array *sum = fx_sum(fx_mul(by_head(gy, heads), by_head(y, heads)), .dims = FX_AXES(0));
    return fx_reshape(sum, heads, fx_size(y, 1), fx_size(y, 2));
}

static void gradient(const fx_custom_op *op, const fxi_own_call *call, const bool *need, int n,
                     fx_array *const *in, fx_array *gy, fx_array **gx)
{
    const int64_t heads = (int64_t)call->number, features = fx_size(in[K], 0);
    const bool causal = is_causal(op);
    const fx_attention_attr attr = attr_of(FX_ATTENTION_LOGSUMEXP, heads, causal, in[Q]);
    fx_array *mask = mask_among(in, n, V + 1), *scored[] = {in[Q], in[K], mask};
    fx_array *all[INPUTS + 1] = {in[Q], in[K], in[V], fx_cast(gy, fx_eltype(in[Q]))};
    const int inputs = INPUTS + (mask != NULL);
    all[INPUTS] = mask;
    all[LSE] = fxi_attention_node(&attr, 2 + (mask != NULL), scored);
    all[DELTA] = delta_of(all[GY], in[n - 1], heads);
    if (need[Q])
        gx[Q] = gradient_part(&of_query[causal], call, FX_ATTENTION_GRADIENT_QUERY, inputs, all);
    if (!need[K] && !need[V])
        return;
    fx_array *both =
        gradient_part(&of_key_value[causal], call, FX_ATTENTION_GRADIENT_KEY_VALUE, inputs, all);
    gx[K] = fx_slice(both, 0, 0, features);
    gx[V] = fx_slice(both, 0, features, features + fx_size(in[V], 0));
}

/* ---- forward --------------------------------------------------------------------------------- */

static const fxi_own_gradient_op of_result[] = CALLS(gradient);

/* features×length×batch. */
static fx_array *three_axes(fx_array *x)
{
    int64_t batch = 1;
    for (int i = 2; i < fx_ndims(x); i++)
        batch *= fx_size(x, i);
    return fx_reshape(x, fx_size(x, 0), fx_size(x, 1), batch);
}

fx_array *fxi_attention_in_one_kernel(const fx_dot_product_attention_args *a)
{
    fx_array *v = a->value ? a->value : a->key;
    const fx_attention_attr attr = attr_of(FX_ATTENTION_FORWARD, a->nheads, a->causal, a->query);
    if (a->bias || a->dropout > 0 || !fxi_has_attention(&attr, a->query, a->key, v, a->mask))
        return NULL;
    fx_array *in[5] = {three_axes(a->query), three_axes(a->key), three_axes(v), a->mask};
    const fxi_own_call call = {.number = (double)a->nheads};
    const int n = 3 + (a->mask != NULL);
    in[n] = fxi_attention_node(&attr, n, in);
    fx_array *y = fxi_own_gradient(&of_result[a->causal], &call, n + 1, in);
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(a->query); i++)
        sizes[i] = fx_size(a->query, i);
    sizes[0] = fx_size(y, 0);
    return fxi_reshape(y, fx_ndims(a->query), sizes);
}
