/* bson_layers.c: layers from the structs that Flux 0.6 to 0.16 wrote for them.
 *
 * A struct in a file is a list of fields without names; which they are follows from the type and
 * from how many there are, because every version that changed a layer changed that number too (or
 * kept the positions). One table says it for all layers; those that the library has name the
 * function that builds them, the others become nodes with these names.
 */
#include "bson_objects.h"
#include "bson_version.h"

#include <cflux/nn.h>
#include <cflux/ops.h>
#include <math.h>
#include <string.h>

typedef struct fields {
    fxi_julia *j;
    fxi_bson v[FXI_JULIA_FIELDS];
    int n;
    int depth;
} fields;

/* ---- values of fields ------------------------------------------------------------------------ */

static bool is_array_of(const void *object, int ndims)
{
    return object && fx_is_array(object) && (ndims < 0 || fx_ndims(object) == ndims);
}

/* The array of a field; NULL when it is something else or has another number of axes (−1: any). */
static fx_array *array_at(fields *f, int i, int ndims)
{
    void *object = i < f->n ? fxi_bson_object(f->j, f->v[i], f->depth + 1) : NULL;
    return is_array_of(object, ndims) ? object : NULL;
}

static bool is_nothing(fields *f, int i)
{
    char type[FXI_JULIA_NAME];
    const fxi_bson v = fxi_julia_value(f->j, f->v[i]);
    fxi_julia_struct_name(f->j, v, type);
    return v.kind == FXI_BSON_NULL || (v.kind == FXI_BSON_BOOL && !v.u.integer) ||
           strcmp(type, "Flux.Zeros") == 0;
}

/* A vector, or no bias: false, nothing, and the Zeros of Flux 0.11. */
static bool bias_at(fields *f, int i, fx_array **out, bool *out_none)
{
    *out_none = is_nothing(f, i);
    *out = *out_none ? NULL : array_at(f, i, 1);
    return *out_none || *out;
}

static fx_function *function_at(fields *f, int i)
{
    return fxi_julia_function(f->j, f->v[i]);
}

static bool bool_at(fields *f, int i, bool *out)
{
    const fxi_bson v = fxi_julia_value(f->j, f->v[i]);
    *out = v.kind == FXI_BSON_BOOL && v.u.integer;
    return v.kind == FXI_BSON_BOOL;
}

/* Whether a layer trains. Before Flux 0.10 the field was a Bool, true from the start, and meant
 * "unless testmode! says otherwise": that is automatic now. Later versions with as many fields have
 * nothing there until they are told. */
static int64_t active_at(fields *f, int i, bool always_bool)
{
    bool active;
    if (i >= f->n || !bool_at(f, i, &active))
        return FX_ACTIVE_AUTO;
    return !active ? FX_ACTIVE_OFF : always_bool ? FX_ACTIVE_AUTO : FX_ACTIVE_ON;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static void *dense(fields *f)
{
    fx_dense_args a = {.fxi_size = sizeof a, .act = function_at(f, 2), .weight = array_at(f, 0, 2)};
    if (!a.act || !a.weight || !bias_at(f, 1, &a.bias, &a.no_bias))
        return NULL;
    return fxi_dense(&a);
}

static bool callable(const void *object)
{
    const fx_type *type = object ? fx_type_of(object) : NULL;
    return type && (type->forward || (type->flags & FX_TYPE_FUNCTION));
}

/* A tuple of layers, a named tuple, and in Flux 0.6 and for long chains a list. */
static void *chain(fields *f)
{
    const bool in_list = fxi_julia_value(f->j, f->v[0]).kind == FXI_BSON_ARRAY;
    f->j->lists += in_list;
    void *all = fxi_bson_object(f->j, f->v[0], f->depth + 1);
    f->j->lists -= in_list;
    if (!all || !fx_type_of(all) || !(fx_type_of(all)->flags & FX_TYPE_TUPLE))
        return NULL;
    const fx_list *list = &((const fx_tuple_object *)all)->items;
    for (int64_t i = 0; i < list->n; i++)
        if (!callable(list->items[i]))
            return NULL;
    return fxi_chain_named((int)list->n, (const char *const *)list->names, list->items);
}

static void *conv(fields *f)
{
    fx_conv_layer_args a = {.fxi_size = sizeof a, .act = function_at(f, 0), .groups = 1};
    fxi_julia *j = f->j;
    a.weight = array_at(f, 1, -1);
    if (!a.act || !a.weight || !bias_at(f, 2, &a.bias, &a.no_bias) ||
        !fxi_julia_dims(j, f->v[3], &a.stride) || !fxi_julia_dims(j, f->v[4], &a.pad) ||
        !fxi_julia_dims(j, f->v[5], &a.dilation) ||
        (f->n > 6 && !fxi_julia_integer(j, f->v[6], &a.groups)))
        return NULL;
    return fxi_conv(&a);
}

static void *pool(fields *f, fx_pool_layer *(*make)(const fx_pool_layer_args *a))
{
    fx_pool_layer_args a = {.fxi_size = sizeof a};
    if (!fxi_julia_dims(f->j, f->v[0], &a.window) || !fxi_julia_dims(f->j, f->v[1], &a.pad) ||
        !fxi_julia_dims(f->j, f->v[2], &a.stride))
        return NULL;
    return make(&a);
}

static void *maxpool(fields *f)
{
    return pool(f, fxi_maxpool);
}
static void *meanpool(fields *f)
{
    return pool(f, fxi_meanpool);
}

/* Flux 0.6 kept the standard deviation, ϵ under its root, and its chains were lists, which no chain
 * was again before BatchNorm had other fields. */
static fx_array *variance(const fields *f, fx_array *kept, double epsilon)
{
    const bool deviation = kept && f->n == 8 && f->j->lists > 0;
    return deviation ? fx_sub(fx_mul(kept, kept), epsilon) : kept;
}

/* λ, β, γ, μ, σ², ϵ, momentum, then nothing, active, or affine, track_stats, active, chs. */
static void *batchnorm(fields *f)
{
    fx_batchnorm_args a = {.fxi_size = sizeof a, .act = function_at(f, 0)};
    fx_array *parts[4];
    int64_t n = -1;
    double epsilon, momentum;
    for (int i = 0; i < 4; i++) {
        parts[i] = is_nothing(f, i + 1) ? NULL : array_at(f, i + 1, 1);
        if (!parts[i] && !is_nothing(f, i + 1))
            return NULL;
        n = parts[i] ? fx_length(parts[i]) : n;
    }
    if (f->n == 11 && !fxi_julia_integer(f->j, f->v[10], &n))
        return NULL;
    a.no_affine = !parts[0];
    a.no_track = !parts[2];
    a.channels = n;
    bool good = a.act && !parts[0] == !parts[1] && !parts[2] == !parts[3];
    for (int i = 0; i < 4 && good; i++)
        good = !parts[i] || fx_length(parts[i]) == n;
    if (!good || n < 1 || !fxi_julia_number(f->j, f->v[5], &epsilon) ||
        !fxi_julia_number(f->j, f->v[6], &momentum))
        return NULL;
    fx_batchnorm_layer *l = fxi_batchnorm(&a);
    if (fx_is_error(l))
        return l;
    parts[3] = variance(f, parts[3], epsilon);
    fx_array **const slots[] = {&l->beta, &l->gamma, &l->mean, &l->var};
    for (int i = 0; i < 4; i++)
        if (parts[i])
            fxi_set(slots[i], parts[i]);
    l->epsilon = epsilon;
    l->momentum = momentum;
    l->active = active_at(f, f->n == 11 ? 9 : 7, f->n == 8);
    return l;
}

/* The scale and bias of a LayerNorm: Flux.Scale or Flux.Diagonal. */
static bool affine_at(fields *f, int i, fx_array *out[2])
{
    char type[FXI_JULIA_NAME];
    fields g = {.j = f->j, .depth = f->depth + 1};
    fxi_julia_struct_name(f->j, f->v[i], type);
    if (strcmp(type, "Flux.Scale") != 0 && strcmp(type, "Flux.Diagonal") != 0)
        return false;
    g.n = fxi_julia_fields(f->j, f->v[i], g.v);
    out[0] = array_at(&g, 0, -1);
    out[1] = array_at(&g, 1, -1);
    return out[0] && out[1];
}

/* λ, diag, ϵ, size, affine; until 0.11 diag only, whose ϵ was added to the standard deviation. */
static void *layernorm(fields *f)
{
    const bool old = f->n == 1;
    fx_array *parts[2] = {NULL, NULL};
    fx_layernorm_args a = {.fxi_size = sizeof a, .act = old ? FX_IDENTITY : function_at(f, 0)};
    bool affine = true;
    double epsilon = 1e-10; /* (1e-5)²: the same where the variance is 0 */
    if (!a.act || (!old && (!bool_at(f, 4, &affine) || !fxi_julia_number(f->j, f->v[2], &epsilon) ||
                            !fxi_julia_dims(f->j, f->v[3], &a.size))))
        return NULL;
    if (affine && !affine_at(f, !old, parts))
        return NULL;
    if (old)
        a.size = (fx_dims){.n = 1, .v = {fx_size(parts[0], 0)}};
    a.no_affine = !affine;
    for (int i = 0; i < 2 && affine; i++) {
        bool fits = fx_ndims(parts[i]) == a.size.n;
        for (int64_t k = 0; k < a.size.n && fits; k++)
            fits = fx_size(parts[i], (int)k) == a.size.v[k];
        if (!fits)
            return NULL;
    }
    fx_layernorm_layer *l = fxi_layernorm(&a);
    if (fx_is_error(l))
        return l;
    if (affine) {
        fxi_set(&l->scale, parts[0]);
        fxi_set(&l->bias, parts[1]);
    }
    l->epsilon = epsilon;
    return l;
}

/* p, active; p, dims; p, dims, active; p, dims, active, rng. */
static void *dropout(fields *f)
{
    fx_dropout_args a = {.fxi_size = sizeof a};
    fx_dims dims = {.n = 0};
    char type[FXI_JULIA_NAME];
    bool second;
    if (!fxi_julia_number(f->j, f->v[0], &a.p))
        return NULL;
    if (f->n == 2 && bool_at(f, 1, &second)) {
        a.active = (fx_active)active_at(f, 1, true);
        return fxi_dropout(&a);
    }
    fxi_julia_struct_name(f->j, f->v[1], type);
    if (strcmp(type, "Colon") != 0 && !fxi_julia_dims(f->j, f->v[1], &dims)) {
        dims.n = 1;
        if (!fxi_julia_integer(f->j, f->v[1], &dims.v[0]))
            return NULL;
    }
    for (int64_t i = 0; i < dims.n; i++) /* Julia counts axes from 1 */
        dims.v[i]--;
    a.dims = dims;
    a.active = (fx_active)active_at(f, 2, f->n == 3);
    return fxi_dropout(&a);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define NORM       "λ β γ μ σ² ϵ momentum"
#define CONV       "σ weight bias stride pad dilation"
#define OPTIMISERS "Optimisers."
#define OPTIMISE   "Flux.Optimise." /* until Flux 0.14 */
enum { FIRST = FXI_FLUX_FIRST, LAST = FXI_FLUX_LAST };
static const struct {
    const char *type;
    int n; /* of fields */
    const char *names;
    void *(*build)(fields *f); /* NULL: the library has no such layer */
    fxi_flux_range range;      /* the versions that wrote it so */
} layers[] = {
    {"Flux.Dense", 3, "weight bias σ", dense, {FIRST, LAST}},
    {"Flux.Chain", 1, "layers", chain, {FIRST, LAST}},
    {"Flux.Conv", 6, CONV, conv, {FIRST, 1205}},
    {"Flux.Conv", 7, CONV " groups", conv, {1206, LAST}},
    {"Flux.MaxPool", 3, "k pad stride", maxpool, {700, LAST}},
    {"Flux.MeanPool", 3, "k pad stride", meanpool, {700, LAST}},
    {"Flux.BatchNorm", 7, NORM, batchnorm, {1000, 1001}},
    {"Flux.BatchNorm", 8, NORM " active", batchnorm, {FIRST, 1199}},
    {"Flux.BatchNorm", 11, NORM " affine track_stats active chs", batchnorm, {1200, LAST}},
    {"Flux.LayerNorm", 1, "diag", layernorm, {FIRST, 1199}},
    {"Flux.LayerNorm", 5, "λ diag ϵ size affine", layernorm, {1200, LAST}},
    {"Flux.Dropout", 2, "p dims", dropout, {FIRST, 1001}},
    {"Flux.Dropout", 3, "p dims active", dropout, {900, 1299}},
    {"Flux.Dropout", 4, "p dims active rng", dropout, {1300, LAST}},
    {"Flux.AlphaDropout", 2, "p active", NULL, {FIRST, LAST}},
    {"Flux.AlphaDropout", 3, "p active rng", NULL, {FIRST, LAST}},
    {"Flux.ConvTranspose", 6, CONV, NULL, {800, 1207}},
    {"Flux.ConvTranspose", 7, CONV " groups", NULL, {1208, 1416}},
    {"Flux.ConvTranspose",
     8,
     "σ weight bias stride pad outpad dilation groups",
     NULL,
     {1417, LAST}},
    {"Flux.CrossCor", 6, CONV, NULL, {900, LAST}},
    {"Flux.DepthwiseConv", 6, CONV, NULL, {700, 1299}},
    {"Flux.InstanceNorm", 7, NORM, NULL, {1000, 1001}},
    {"Flux.InstanceNorm", 8, NORM " active", NULL, {FIRST, 1199}},
    {"Flux.InstanceNorm", 11, NORM " affine track_stats active chs", NULL, {1200, LAST}},
    {"Flux.GroupNorm", 8, "G " NORM, NULL, {1000, 1001}},
    {"Flux.GroupNorm", 9, "G " NORM " active", NULL, {FIRST, 1199}},
    {"Flux.GroupNorm", 12, "G " NORM " affine track_stats active chs", NULL, {1200, LAST}},
    {"Flux.Diagonal", 2, "α β", NULL, {FIRST, 1299}},
    {"Flux.Scale", 3, "scale bias σ", NULL, {1300, LAST}},
    {"Flux.Bilinear", 3, "weight bias σ", NULL, {FIRST, LAST}},
    {"Flux.Embedding", 1, "weight", NULL, {1205, 1610}},
    {"Flux.Embedding", 2, "weight padding_idx", NULL, {1611, LAST}},
    {"Flux.EmbeddingBag", 2, "weight reduction", NULL, {FIRST, LAST}},
    {"Flux.SkipConnection", 2, "layers connection", NULL, {FIRST, LAST}},
    {"Flux.Parallel", 2, "connection layers", NULL, {FIRST, LAST}},
    {"Flux.PairwiseFusion", 2, "connection layers", NULL, {FIRST, LAST}},
    {"Flux.Maxout", 1, "layers", NULL, {FIRST, LAST}},
    {"Flux.AdaptiveMaxPool", 1, "out", NULL, {FIRST, LAST}},
    {"Flux.AdaptiveMeanPool", 1, "out", NULL, {FIRST, LAST}},
    {"Flux.Upsample", 2, "scale size", NULL, {FIRST, LAST}},
    {"Flux.PixelShuffle", 1, "r", NULL, {FIRST, LAST}},
    {"Flux.Recur", 2, "cell state", NULL, {1200, 1499}},
    {"Flux.Recur", 3, "cell init state", NULL, {FIRST, 1199}},
    {"Flux.RNN", 1, "cell", NULL, {1500, LAST}},
    {"Flux.LSTM", 1, "cell", NULL, {1500, LAST}},
    {"Flux.GRU", 1, "cell", NULL, {1500, LAST}},
    {"Flux.GRUv3", 1, "cell", NULL, {1500, LAST}},
    {"Flux.RNNCell", 4, "σ Wi Wh bias", NULL, {1500, LAST}},
    {"Flux.RNNCell", 5, "σ Wi Wh b state0", NULL, {FIRST, 1499}},
    {"Flux.LSTMCell", 3, "Wi Wh bias", NULL, {1500, LAST}},
    {"Flux.LSTMCell", 4, "Wi Wh b state0", NULL, {1200, 1499}},
    {"Flux.LSTMCell", 5, "Wi Wh b h c", NULL, {FIRST, 1199}},
    {"Flux.GRUCell", 3, "Wi Wh b", NULL, {1500, LAST}},
    {"Flux.GRUCell", 4, "Wi Wh b state0", NULL, {FIRST, 1499}},
    {"Fix1", 2, "f x", NULL, {FIRST, LAST}},
    /* optimisers: flux_optimiser.c makes states of them */
    {OPTIMISERS "Leaf", 2, "rule state", NULL, {FIRST, LAST}},
    {OPTIMISERS "Leaf", 3, "rule state frozen", NULL, {FIRST, LAST}},
    {OPTIMISERS "Descent", 1, "eta", NULL, {FIRST, LAST}},
    {OPTIMISERS "Momentum", 2, "eta rho", NULL, {FIRST, LAST}},
    {OPTIMISERS "Nesterov", 2, "eta rho", NULL, {FIRST, LAST}},
    {OPTIMISERS "RMSProp", 4, "eta rho epsilon centred", NULL, {FIRST, LAST}},
    {OPTIMISERS "Adam", 3, "eta beta epsilon", NULL, {FIRST, LAST}},
    {OPTIMISERS "AdamW", 5, "eta beta lambda epsilon couple", NULL, {FIRST, LAST}},
    {OPTIMISERS "WeightDecay", 1, "lambda", NULL, {FIRST, LAST}},
    {OPTIMISERS "ClipGrad", 1, "delta", NULL, {FIRST, LAST}},
    {OPTIMISERS "ClipNorm", 3, "omega p throw", NULL, {FIRST, LAST}},
    {OPTIMISERS "OptimiserChain", 1, "opts", NULL, {FIRST, LAST}},
    {OPTIMISE "Descent", 1, "eta", NULL, {FIRST, 1499}},
    {OPTIMISE "Momentum", 3, "eta rho velocity", NULL, {FIRST, 1499}},
    {OPTIMISE "Nesterov", 3, "eta rho velocity", NULL, {FIRST, 1499}},
    {OPTIMISE "RMSProp", 3, "eta rho acc", NULL, {FIRST, 1499}},
    {OPTIMISE "RMSProp", 4, "eta rho epsilon acc", NULL, {FIRST, 1499}},
    {OPTIMISE "ADAM", 3, "eta beta state", NULL, {FIRST, 1499}},
    {OPTIMISE "ADAM", 4, "eta beta epsilon state", NULL, {FIRST, 1499}},
    {OPTIMISE "Adam", 4, "eta beta epsilon state", NULL, {FIRST, 1499}},
    {OPTIMISE "WeightDecay", 1, "wd", NULL, {FIRST, 1499}},
    {OPTIMISE "Optimiser", 1, "os", NULL, {FIRST, 1499}},
};
enum { NLAYERS = sizeof layers / sizeof layers[0] };

static int row_of(const char *type, int n)
{
    for (int i = 0; i < NLAYERS; i++)
        if (layers[i].n == n && strcmp(layers[i].type, type) == 0)
            return i;
    return -1;
}

const char *fxi_bson_field_names(const char *type, int nfields)
{
    const int i = row_of(type, nfields);
    return i < 0 ? NULL : layers[i].names;
}

fxi_flux_range fxi_bson_layer_range(const char *type, int nfields)
{
    const int i = row_of(type, nfields);
    return i < 0 ? (fxi_flux_range){FIRST, LAST} : layers[i].range;
}

void *fxi_bson_layer(fxi_julia *j, const char *type, fxi_bson v, int depth)
{
    fields f = {.j = j, .depth = depth};
    f.n = fxi_julia_fields(j, v, f.v);
    const int i = row_of(type, f.n);
    if (i < 0 || !layers[i].build)
        return NULL;
    const bool clean = fx_error_status() == FX_OK;
    void *layer = layers[i].build(&f);
    if (layer && fx_is_error(layer) && fx_error_status() == FX_STATUS_MEMORY) {
        j->b->status = FX_STATUS_MEMORY;
        return NULL;
    }
    if (layer && fx_is_error(layer) && j->b->status == FX_OK) {
        const fx_error e = clean ? fx_error_take() : (fx_error){.message = "does not fit together"};
        fxi_bytes_bad(j->b, (size_t)(v.u.bytes - j->b->data), "a %s: %s", type, e.message);
        return NULL;
    }
    return layer;
}
