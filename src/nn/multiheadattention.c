/* multiheadattention.c: MultiHeadAttention: projections around dot-product attention (attention.c).
 * Sources: Flux's attention.jl; Vaswani et al., 2017. */
#include "nn_layer.h"

#include <inttypes.h>

enum { IN_Q, IN_K, IN_V, MID_QK, MID_V, OUT, SIZES };

/* ---- calls ----------------------------------------------------------------------------------- */

static void *attend(const fx_multiheadattention_layer *l, const fx_attend_args *a)
{
    fx_array *k = a->key ? a->key : a->query, *v = a->value ? a->value : k;
    const fx_dropout_layer *drop = l->attn_drop;
    fx_array *q = fx_call(l->q_proj, a->query);
    k = fx_call(l->k_proj, k);
    v = fx_call(l->v_proj, v);
    void *pair = fx_dot_product_attention(q, k, v, .nheads = l->nheads, .bias = a->bias,
                                          .mask = a->mask, .causal = a->causal,
                                          .dropout = fxi_is_active(drop->active) ? drop->p : 0);
    if (fx_is_error(pair))
        return pair;
    return fx_tuple(fx_call(l->out_proj, fx_child(pair, 0)), fx_child(pair, 1));
}

static void *refused(const fx_type *type, const char *what)
{
    fxi_layer_fail(type, "%s", what);
    return fx_error_array(FX_STATUS_ARGUMENT);
}

static void *attention_forward(void *self, int n, void *const *args)
{
    const fx_type *type = fx_type_of(self);
    if (type->error == self)
        return fx_error_array(FX_STATUS_ARGUMENT);
    if (n < 1 || n > 4)
        return refused(type, "expects one to four arrays: q, k, v, bias");
    for (int i = 0; i < n; i++) {
        if (!fx_is_array(args[i]))
            return refused(type, "expects arrays: q, k, v, bias");
        if (fx_is_error(args[i]))
            return args[i];
    }
    FXI_SCOPE;
    fx_attend_args a = {.fxi_size = sizeof a, .query = args[0]};
    a.key = n > 1 ? args[1] : NULL;
    a.value = n > 2 ? args[2] : NULL;
    a.bias = n > 3 ? args[3] : NULL;
    return fx_keep(attend(self, &a));
}

void *fxi_attend(const fx_attend_args *given)
{
    FXI_TAKE_OPTIONS(fx_attend_args, FXI_ATTEND_ARGS, a, "attend", given);
    FXI_SCOPE;
    if (!a_ok || !a.layer || !fx_is(a.layer, fxi_multiheadattention_type()) ||
        fx_is_error(a.layer) || !a.query) {
        char layer[200], query[100];
        if (a_ok && !(a.layer && fx_is_error(a.layer)))
            fx_fail(FX_STATUS_ARGUMENT, "attend",
                    "expects a MultiHeadAttention and an array, got %s and %s",
                    fxi_given(a.layer, layer, sizeof layer),
                    fxi_given(a.query, query, sizeof query));
        return fx_error_array(FX_STATUS_ARGUMENT);
    }
    return fx_keep(attend(a.layer, &a));
}

/* ---- construction ---------------------------------------------------------------------------- */

/* Stores the six sizes that `d` gives in one of its forms (1, 3, 4 or 6 numbers). False for another
 * count, or if a size is not positive. */
static bool all_sizes(const fx_dims *d, int64_t *out)
{
    static const int forms[][SIZES + 1] = {
        {1, 0, 0, 0, 0, 0, 0}, {3, 0, 0, 0, 1, 1, 2}, {4, 0, 0, 0, 1, 2, 3}, {6, 0, 1, 2, 3, 4, 5}};
    for (int f = 0; f < FXI_COUNT(forms); f++) {
        bool positive = true;
        for (int i = 0; i < SIZES && d->n == forms[f][0]; i++) {
            out[i] = d->v[forms[f][i + 1]];
            positive = positive && out[i] >= 1;
        }
        if (d->n == forms[f][0])
            return positive;
    }
    return false;
}

static bool make_layers(const fx_type *type, const fx_multiheadattention_args *a,
                        fx_multiheadattention_layer *l)
{
    int64_t s[SIZES];
    char got[200];
    if (!all_sizes(&a->dims, s))
        return fxi_layer_fail(type, "takes 1, 3, 4 or 6 positive sizes, got %s",
                              fxi_dims_text(&a->dims, got, sizeof got));
#define PROJECTION(in, out) fx_dense(in, out, .bias = a->bias, .init = a->init)
    l->q_proj = PROJECTION(s[IN_Q], s[MID_QK]);
    l->k_proj = PROJECTION(s[IN_K], s[MID_QK]);
    l->v_proj = PROJECTION(s[IN_V], s[MID_V]);
    l->out_proj = PROJECTION(s[MID_V], s[OUT]);
    l->attn_drop = fx_dropout(a->dropout_prob);
#undef PROJECTION
    return true;
}

static bool attention_build(const fx_type *type, const void *options, void *self)
{
    const fx_multiheadattention_args *a = options;
    fx_multiheadattention_layer *l = self;
    char got[200];
    if (!l->q_proj && (l->k_proj || l->v_proj || l->attn_drop || l->out_proj))
        return fxi_layer_fail(type, "takes all five layers or none, but q_proj is missing");
    if (!l->q_proj && !make_layers(type, a, l))
        return false;
    const fx_dense_layer *all[] = {l->q_proj, l->k_proj, l->v_proj, l->out_proj};
    for (int i = 0; i < FXI_COUNT(all); i++) {
        if (all[i] && fx_is_error(all[i]))
            return false;
        if (!all[i] || !fx_is(all[i], fxi_dense_type()) || !all[i]->weight)
            return fxi_layer_fail(type, "its projections must be Dense layers, got %s",
                                  fxi_given(all[i], got, sizeof got));
    }
    if (l->attn_drop && fx_is_error(l->attn_drop))
        return false;
    if (!l->attn_drop || !fx_is(l->attn_drop, fxi_dropout_type()))
        return fxi_layer_fail(type, "attn_drop must be a Dropout, got %s",
                              fxi_given(l->attn_drop, got, sizeof got));
    if (((const fx_dropout_layer *)l->attn_drop)->dims.n > 0)
        return fxi_layer_fail(type, "attn_drop must drop single elements, without dims, got %s",
                              fxi_given(l->attn_drop, got, sizeof got));
    const int64_t qk = fx_size(all[0]->weight, 0), v = fx_size(all[2]->weight, 0);
    if (l->nheads < 1 || qk % l->nheads || v % l->nheads)
        return fxi_layer_fail(type,
                              "qk_dim and v_dim should be divisible by nheads, got %" PRId64
                              ", %" PRId64 " and %" PRId64,
                              qk, v, l->nheads);
    return true;
}

static bool attention_recover(const void *self, void *options)
{
    const fx_multiheadattention_layer *l = self;
    const fx_dense_layer *q = l->q_proj, *k = l->k_proj, *v = l->v_proj, *out = l->out_proj;
    fx_multiheadattention_args *a = options;
    if (!q || !q->weight || !k->weight || !v->weight || !out->weight)
        return false;
    a->dims =
        (fx_dims){.n = SIZES,
                  .v = {fx_size(q->weight, 1), fx_size(k->weight, 1), fx_size(v->weight, 1),
                        fx_size(q->weight, 0), fx_size(v->weight, 0), fx_size(out->weight, 0)}};
    a->bias = q->bias != NULL;
    a->dropout_prob = ((const fx_dropout_layer *)l->attn_drop)->p;
    return true;
}

/* clang-format off */
#define LAYER_ROW(M, name, ...) M(name, CHILD, FX_FROM(name, LAYER), .flux = #name, __VA_ARGS__)
#define PART(M, name, i)        LAYER_ROW(M, name, .torch = #name "|in_proj_" #i)
#define ROWS(M, O, F)                                                                              \
    O(dims, ATTENTION, .positional = "sizes", .least = 1, .required = true)                             \
    M(nheads, INTEGER, FX_FROM(nheads, INTEGER), .names = "nheads", .least = 1, .shown = true,     \
      .flux = "nheads")                                                                            \
    O(bias, BIAS, .names = "bias")                                                                 \
    O(init, INIT, .names = "init")                                                                 \
    O(dropout_prob, REAL, .names = "dropout_prob")                                                 \
    PART(M, q_proj, 0) PART(M, k_proj, 1) PART(M, v_proj, 2)                                       \
    LAYER_ROW(M, attn_drop, .torch = NULL) LAYER_ROW(M, out_proj, .torch = NULL)
/* clang-format on */
static const fx_flux_form forms[] = {
    {"nheads q_proj k_proj v_proj attn_drop out_proj", "q_proj attn_drop out_proj", 1307, 0}, {0}};
FX_LAYER_TYPE(multiheadattention, fx_multiheadattention_layer, fx_multiheadattention_args,
              FXI_MULTIHEADATTENTION_ARGS, ROWS,
              (.name = "MultiHeadAttention", .forward = attention_forward, .layout_bytes = 8,
               .flags = FX_TYPE_ONE_LINE),
              .build = attention_build, .recover = attention_recover, .semicolon = true,
              .flux = "Flux.MultiHeadAttention", .forms = forms);
FXI_LIBRARY_LAYER(multiheadattention, fx_multiheadattention_layer, fx_multiheadattention_args)
