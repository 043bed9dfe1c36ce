/* bson_shapes.c: the library's layers as the structs of Flux 0.16.
 *
 * Fields stand in the order of Flux's definitions and parameters as it declares them:
 *     Dense{F,M,B}         weight::M bias::B σ::F
 *     Conv{N,M,F,A,V}      σ::F weight::A bias::V stride::NTuple{N,Int} pad::NTuple{M,Int} …
 *     MaxPool{N,M}         k::NTuple{N,Int} pad::NTuple{M,Int} stride::NTuple{N,Int}
 *     BatchNorm{F,V,N,W}   λ::F β::V γ::V μ::W σ²::W ϵ::N momentum::N …
 *     LayerNorm{F,D,T,N}   λ::F diag::D ϵ::T size::NTuple{N,Int} affine::Bool
 *     Dropout{F,D,R}       p::F dims::D active::Union{Bool,Nothing} rng::R
 * and the rules of optimisers in those of Optimisers.jl 0.4, whose @def makes a parameter of each
 * field:
 *     Leaf{R,S}            rule::R state::S frozen::Bool
 *     Adam{E,B,P}          eta::E beta::B epsilon::P
 *     AdamW{E,B,L,P}       eta::E beta::B lambda::L epsilon::P couple::Bool
 * BSON.jl converts every field to the type that the parameters give, so both must agree.
 */
#include "bson_shapes.h"

#include <cflux/nn.h>
#include <cflux/optim.h>
#include <string.h>

static fxi_item object(const void *x)
{
    return (fxi_item){.kind = FXI_ITEM_OBJECT, .object = x};
}
static fxi_item truth(bool x)
{
    return (fxi_item){.kind = FXI_ITEM_BOOL, .integer = x};
}
static fxi_item integer(int64_t x)
{
    return (fxi_item){.kind = FXI_ITEM_INT, .integer = x};
}
static fxi_item float32(double x)
{
    return (fxi_item){.kind = FXI_ITEM_FLOAT32, .number = x};
}
static fxi_item float64(double x)
{
    return (fxi_item){.kind = FXI_ITEM_FLOAT64, .number = x};
}
static fxi_item dims(const fx_dims *d)
{
    return (fxi_item){.kind = FXI_ITEM_DIMS, .object = d};
}
static fxi_item single(const char *const *path)
{
    return (fxi_item){.kind = FXI_ITEM_SINGLE, .path = path};
}
static fxi_item act(const fx_function *f)
{
    return object(f ? f : FX_IDENTITY);
}
/* bias=false */
static fxi_item bias(const fx_array *x)
{
    return x ? object(x) : truth(false);
}
static fxi_item active(int64_t state)
{
    return state == FX_ACTIVE_AUTO ? object(NULL) : truth(state == FX_ACTIVE_ON);
}

static fxi_param number(int64_t n)
{
    return (fxi_param){-1, n};
}
static fxi_param type_of(int field)
{
    return (fxi_param){field, 0};
}

/* ---- the layers ------------------------------------------------------------------------------ */

static void dense(const void *x, fxi_shape *s)
{
    const fx_dense_layer *l = x;
    const fxi_item items[] = {object(l->weight), bias(l->bias), act(l->act)};
    const fxi_param params[] = {type_of(2), type_of(0), type_of(1)};
    memcpy(s->items, items, sizeof items);
    memcpy(s->params, params, sizeof params);
}

static void chain(const void *x, fxi_shape *s)
{
    const fx_chain_layer *l = x;
    s->items[0] = (fxi_item){.kind = FXI_ITEM_LIST, .object = &l->layers};
    s->params[0] = type_of(0);
}

static void conv(const void *x, fxi_shape *s)
{
    const fx_conv_layer *l = x;
    const fxi_item items[] = {act(l->act),       object(l->weight), bias(l->bias),
                              dims(&l->stride),  dims(&l->pad),     dims(&l->dilation),
                              integer(l->groups)};
    const fxi_param params[] = {number(l->stride.n), number(l->pad.n), type_of(0), type_of(1),
                                type_of(2)};
    memcpy(s->items, items, sizeof items);
    memcpy(s->params, params, sizeof params);
}

static void pool(const void *x, fxi_shape *s)
{
    const fx_pool_layer *l = x;
    const fxi_item items[] = {dims(&l->window), dims(&l->pad), dims(&l->stride)};
    const fxi_param params[] = {number(l->window.n), number(l->pad.n)};
    memcpy(s->items, items, sizeof items);
    memcpy(s->params, params, sizeof params);
}

static void batchnorm(const void *x, fxi_shape *s)
{
    const fx_batchnorm_layer *l = x;
    const fxi_item items[] = {act(l->act),          object(l->beta),        object(l->gamma),
                              object(l->mean),      object(l->var),         float32(l->epsilon),
                              float32(l->momentum), truth(l->beta != NULL), truth(l->mean != NULL),
                              active(l->active),    integer(l->channels)};
    const fxi_param params[] = {type_of(0), type_of(1), type_of(5), type_of(3)};
    memcpy(s->items, items, sizeof items);
    memcpy(s->params, params, sizeof params);
}

static void layernorm(const void *x, fxi_shape *s)
{
    const fx_layernorm_layer *l = x;
    fxi_item diag = act(l->act);
    if (l->scale)
        diag = (fxi_item){.kind = FXI_ITEM_SCALE, .object = l};
    else if (diag.object != FX_IDENTITY)
        diag = (fxi_item){.kind = FXI_ITEM_BROADCAST, .object = l};
    const fxi_item items[] = {act(l->act), diag, float32(l->epsilon), dims(&l->size),
                              truth(l->scale != NULL)};
    const fxi_param params[] = {type_of(0), type_of(1), type_of(2), number(l->size.n)};
    memcpy(s->items, items, sizeof items);
    memcpy(s->params, params, sizeof params);
}

static const char *const colon[] = {"Main", "Base", "Colon", NULL};
static const char *const rng[] = {"Random", "TaskLocalRNG", NULL};
static const char *const broadcast[] = {"Main", "Base", "Broadcast", "#broadcast", NULL};

static void dropout(const void *x, fxi_shape *s)
{
    const fx_dropout_layer *l = x;
    /* axes are counted from 0 here: the writer adds the one */
    const fxi_item items[] = {float64(l->p), l->dims.n ? dims(&l->dims) : single(colon),
                              active(l->active), single(rng)};
    const fxi_param params[] = {type_of(0), type_of(1), type_of(3)};
    memcpy(s->items, items, sizeof items);
    if (l->dims.n)
        s->items[1].integer = 1;
    memcpy(s->params, params, sizeof params);
}

static void scale(const void *x, fxi_shape *s)
{
    const fx_layernorm_layer *l = x;
    const fxi_item items[] = {object(l->scale), object(l->bias), act(l->act)};
    const fxi_param params[] = {type_of(2), type_of(0), type_of(1)};
    memcpy(s->items, items, sizeof items);
    memcpy(s->params, params, sizeof params);
}

static void fix1(const void *x, fxi_shape *s)
{
    const fx_layernorm_layer *l = x;
    const fxi_item items[] = {single(broadcast), act(l->act)};
    const fxi_param params[] = {type_of(0), type_of(1)};
    memcpy(s->items, items, sizeof items);
    memcpy(s->params, params, sizeof params);
}

/* ---- optimisers ------------------------------------------------------------------------------ */

static fxi_item two(fx_dtype type, double a, double b)
{
    return object(
        fxi_tuple(2, (void *const[]){fxi_full(type, a, 0, NULL), fxi_full(type, b, 0, NULL)}));
}

/* The fields of our rules are Flux's in its order, but for the two numbers of beta. */
static void rule(const void *x, fxi_shape *s)
{
    const fx_type *type = fx_type_of(x);
    int n = 0;
    for (int i = 0; i < type->nfields; i++) {
        const fx_field *f = &type->fields[i];
        const char *at = (const char *)x + f->offset;
        double v = 0, next = 0;
        if (f->kind == FX_FIELD_FLAG) {
            s->items[n++] = truth(*(const bool *)at);
            continue;
        }
        memcpy(&v, at, sizeof v);
        if (strcmp(f->name, "beta1") == 0) {
            memcpy(&next, (const char *)x + type->fields[++i].offset, sizeof next);
            s->items[n++] = two(FX_DTYPE_F64, v, next);
        } else {
            s->items[n++] = float64(v);
        }
    }
    for (int i = 0; i < s->nparams; i++)
        s->params[i] = type_of(i);
}

/* What Optimisers.jl remembers: nothing, an array, or two and the powers of β in their type. */
static void leaf(const void *x, fxi_shape *s)
{
    fxi_leaf l;
    fxi_leaf_of(x, &l);
    fxi_item state = object(l.nstates ? l.states[0] : NULL);
    if (l.nstates == 2) {
        const fxi_item powers = two(fx_eltype(l.states[0]), l.numbers[0], l.numbers[1]);
        state = object(fxi_tuple(
            3, (void *const[]){l.states[0], l.states[1], (void *)(uintptr_t)powers.object}));
    }
    const fxi_item items[] = {object(l.rule), state, truth(l.frozen)};
    const fxi_param params[] = {type_of(0), type_of(1)};
    memcpy(s->items, items, sizeof items);
    memcpy(s->params, params, sizeof params);
}

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct layer_row {
    const char *name;  /* of the library's type; the path's last part too */
    size_t size;       /* 0: the library keeps it to itself */
    const char *first; /* its first field: a user's type may have the name */
    const char *const path[4];
    int nitems, nparams;
    void (*fill)(const void *layer, fxi_shape *s);
} layer_row;

static const layer_row rows[] = {
    {"Dense", sizeof(fx_dense_layer), "weight", {"Flux", "Dense"}, 3, 3, dense},
    {"Chain", sizeof(fx_chain_layer), "layers", {"Flux", "Chain"}, 1, 1, chain},
    {"Conv", sizeof(fx_conv_layer), "weight", {"Flux", "Conv"}, 7, 5, conv},
    {"MaxPool", sizeof(fx_pool_layer), "window", {"Flux", "MaxPool"}, 3, 2, pool},
    {"MeanPool", sizeof(fx_pool_layer), "window", {"Flux", "MeanPool"}, 3, 2, pool},
    {"BatchNorm", sizeof(fx_batchnorm_layer), "beta", {"Flux", "BatchNorm"}, 11, 4, batchnorm},
    {"LayerNorm", sizeof(fx_layernorm_layer), "scale", {"Flux", "LayerNorm"}, 5, 4, layernorm},
    {"Dropout", sizeof(fx_dropout_layer), "p", {"Flux", "Dropout"}, 4, 3, dropout},
    {"Leaf", 0, "rule", {"Optimisers", "Leaf"}, 3, 2, leaf},
    {"Descent", 0, "eta", {"Optimisers", "Descent"}, 1, 1, rule},
    {"Momentum", 0, "eta", {"Optimisers", "Momentum"}, 2, 2, rule},
    {"Nesterov", 0, "eta", {"Optimisers", "Nesterov"}, 2, 2, rule},
    {"Adam", 0, "eta", {"Optimisers", "Adam"}, 3, 3, rule},
    {"AdamW", 0, "eta", {"Optimisers", "AdamW"}, 5, 4, rule},
};
static const layer_row scale_row = {
    .path = {"Flux", "Scale"}, .nitems = 3, .nparams = 3, .fill = scale};
static const layer_row fix1_row = {
    .path = {"Main", "Base", "Fix1"}, .nitems = 2, .nparams = 2, .fill = fix1};

static bool fill(const layer_row *row, const void *x, fxi_shape *out)
{
    *out = (fxi_shape){.path = row->path, .nitems = row->nitems, .nparams = row->nparams};
    row->fill(x, out);
    return true;
}

static bool has_field(const fx_type *type, const char *name)
{
    for (int i = 0; i < type->nfields; i++)
        if (strcmp(type->fields[i].name, name) == 0)
            return true;
    return false;
}

/* A program's own type may have the name of a rule or a leaf. */
static bool is_the_librarys(const void *x, const layer_row *row)
{
    fxi_leaf l;
    if (row->size)
        return fx_type_of(x)->size == row->size;
    return row->fill == leaf ? fxi_leaf_of(x, &l) : fxi_is_rule(x);
}

bool fxi_shape_of(const void *x, fxi_shape *out)
{
    const fx_type *type = x ? fx_type_of(x) : NULL;
    for (size_t i = 0; type && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(type->name, rows[i].name) == 0 && has_field(type, rows[i].first) &&
            is_the_librarys(x, &rows[i]))
            return fill(&rows[i], x, out);
    return false;
}

bool fxi_shape_of_item(const fxi_item *item, fxi_shape *out)
{
    if (item->kind == FXI_ITEM_SCALE || item->kind == FXI_ITEM_BROADCAST)
        return fill(item->kind == FXI_ITEM_SCALE ? &scale_row : &fix1_row, item->object, out);
    return item->kind == FXI_ITEM_OBJECT && fxi_shape_of(item->object, out);
}
