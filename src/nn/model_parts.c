/* model_parts.c: parts of chains, results of their layers, and sizes of results. */
#include "error.h"
#include "memory.h"
#include "nn_layer.h"
#include "option_struct.h"

#include <inttypes.h>

/* ---- chains ---------------------------------------------------------------------------------- */

fx_chain_layer *fx_chain_slice(fx_chain_layer *chain, int64_t from, int64_t to)
{
    const fx_type *type = fxi_chain_type();
    if (!fx_is(chain, type) || chain == type->error) {
        char got[100];
        fxi_layer_fail(type, "expects a chain to slice, got %s", fxi_given(chain, got, sizeof got));
        return fx_error_object(type);
    }
    const fx_list *l = &chain->layers;
    if (from < 0 || from > to || to > l->n) {
        fxi_layer_fail(type,
                       "a chain of %" PRId64 " layers has no layers from %" PRId64 " to %" PRId64,
                       l->n, from, to - 1);
        return fx_error_object(type);
    }
    return fx_layer_of(type)->build_list(
        (int)(to - from), l->names ? (const char *const *)l->names + from : NULL, l->items + from);
}

void *fxi_activations(fx_chain_layer *chain, int n, void *const *args)
{
    const fx_type *type = fxi_chain_type();
    if (!fx_is(chain, type) || chain == type->error) {
        char got[100];
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "activations", "expects a chain, got %s",
                                      fxi_given(chain, got, sizeof got)));
    }
    const fx_status listed = fxi_check_list("activations", "inputs", n, args);
    if (listed != FX_OK)
        return fx_error_array(listed);
    FXI_SCOPE;
    const int64_t layers = chain->layers.n;
    void **y = fxi_calloc((size_t)layers + 1, sizeof *y);
    if (!y)
        return fx_error_array(
            fx_fail(FX_STATUS_MEMORY, "activations", "no memory for %" PRId64 " results", layers));
    for (int64_t i = 0; i < layers; i++)
        y[i] = i ? fxi_call(chain->layers.items[i], 1, &y[i - 1])
                 : fxi_call(chain->layers.items[i], n, args);
    void *all = fxi_tuple((int)layers, y);
    fxi_free(y);
    return fx_keep(all);
}

/* ---- modules --------------------------------------------------------------------------------- */

typedef struct found {
    void **items;
    int32_t n, capacity;
    bool failed;
} found;

static fx_walk note(const fx_spot *at, void *user)
{
    found *f = user;
    void *object = at->objects[0];
    if (!fx_has_children(object))
        return FX_WALK_PASS;
    f->failed = !fxi_grow(&f->items, &f->capacity, f->n + 1, sizeof *f->items);
    if (f->failed)
        return FX_WALK_STOP;
    f->items[f->n++] = object;
    return FX_WALK_ENTER;
}

void *fx_modules(void *model)
{
    if (!model)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "modules", "the model is NULL"));
    found f = {0};
    const fx_tree_walker how = {.op = "modules", .meet = note, .user = &f};
    fx_status status = fx_tree_walk(&how, &model);
    if (f.failed)
        status = fx_fail(FX_STATUS_MEMORY, "modules", "no memory for a list of layers");
    void *all = status == FX_OK ? fxi_tuple(f.n, f.items) : fx_error_array(status);
    fxi_free(f.items);
    return all;
}

/* ---- sizes of results ------------------------------------------------------------------------ */

/* A pending array of these sizes, which is never computed. */
static fx_array *input_of(const fx_outputsize_args *a, const fx_dims *size)
{
    fx_dims d = *size;
    if (a->padbatch && d.n >= FX_MAX_DIMS)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "outputsize",
                                      "%" PRId64 " sizes leave no axis for the batch", d.n));
    if (a->padbatch)
        d.v[d.n++] = 1;
    return fxi_full(a->dtype, 0, (int)d.n, d.v);
}

static fx_dims sizes_of(void *y)
{
    fx_dims d = {.n = -1};
    char got[100];
    if (fx_is_error(y))
        return d;
    if (!fx_is_array(y)) {
        fx_summary(y, got, sizeof got);
        fx_fail(FX_STATUS_ARGUMENT, "outputsize", "the result is not an array, but %s", got);
        return d;
    }
    d.n = fx_ndims(y);
    for (int i = 0; i < fx_ndims(y); i++)
        d.v[i] = fx_size(y, i);
    return d;
}

fx_dims fxi_outputsize(const fx_outputsize_args *given)
{
    static const fx_outputsize_args defaults = {.fxi_size = sizeof defaults,
                                                FXI_OUTPUTSIZE_ARGS(FXI_DEFAULT)};
    FXI_SCOPE;
    fx_outputsize_args a = defaults;
    if (!fxi_take_options("outputsize", &a, sizeof a, given))
        return (fx_dims){.n = -1};
    if (!a.model || a.size.n < 0 || a.second.n < 0) {
        fx_fail(FX_STATUS_ARGUMENT, "outputsize",
                a.model ? "the sizes of the input are missing" : "the model is NULL");
        return (fx_dims){.n = -1};
    }
    void *args[] = {input_of(&a, &a.size), a.second.n ? input_of(&a, &a.second) : NULL};
    return sizes_of(fxi_call_for_shape(a.model, a.second.n ? 2 : 1, args));
}
