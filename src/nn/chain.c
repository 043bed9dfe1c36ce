/* chain.c: Chain, layer after layer.
 *
 * Whatever can be called is a link: layers, the user's own, function objects. A child that cannot
 * be called is refused when the chain is built, where its position is known, not at the first
 * batch. Several inputs go to the first layer; an empty chain returns its input, several as a
 * tuple. The handles of results between the links are released at once, so that nobody but their
 * consumer holds them.
 */
#include "layer.h"

#include "memory.h"

#include <string.h>

static void *chain_forward(void *self, int n, void *const *args);

static const fx_field chain_fields[] = {FXI_LAYER_FIELD(fx_chain_layer, layers, LIST)};
static fx_chain_layer chain_error;
static const fx_type chain_type = {
    .fxi_size = sizeof(fx_type),
    .name = "Chain",
    .size = sizeof(fx_chain_layer),
    .fields = chain_fields,
    .nfields = FXI_COUNT(chain_fields),
    .forward = chain_forward,
    .error = &chain_error,
    .flags = FX_TYPE_SEQUENCE,
};

static void *chain_forward(void *self, int n, void *const *args)
{
    const fx_chain_layer *l = self;
    if (self == (void *)&chain_error)
        return fx_error_array(FX_STATUS_ARGUMENT);
    if (l->layers.n == 0)
        return n == 1 ? args[0] : fxi_tuple(n, args);
    FXI_SCOPE;
    void *x = fxi_call(l->layers.items[0], n, args);
    for (int64_t i = 1; i < l->layers.n; i++)
        x = fxi_call(l->layers.items[i], 1, &x);
    return fx_keep(x);
}

/* ---- construction ----------------------------------------------------------------------- */

static bool callable(const void *object)
{
    const fx_type *type = object ? fx_type_of(object) : NULL;
    return type && (type->forward || (type->flags & FX_TYPE_FUNCTION));
}

static bool links_fit(int n, void *const *layers)
{
    for (int i = 0; i < n; i++) {
        if (callable(layers[i]))
            continue;
        char got[100] = "NULL";
        if (layers[i])
            fx_summary(layers[i], got, sizeof got);
        fxi_refuse(&chain_type, "child %d is not a layer: %s", i, got);
        return false;
    }
    return true;
}

static bool names_fit(int n, const char *const *names)
{
    for (int i = 0; i < n; i++) {
        if (!names[i])
            continue;
        if (strcmp(names[i], "layers") == 0) {
            fxi_refuse(&chain_type, "a Chain cannot have a named layer called `layers`");
            return false;
        }
        for (int j = 0; j < i; j++)
            if (names[j] && strcmp(names[i], names[j]) == 0) {
                fxi_refuse(&chain_type, "two layers are called `%s`", names[i]);
                return false;
            }
    }
    return true;
}

fx_chain_layer *fxi_chain_named(int n, const char *const *names, void *const *layers)
{
    for (int i = 0; i < n;
         i++) /* a layer that failed has its record: the chain only passes it on */
        if (layers[i] && fx_is_error(layers[i]))
            return fxi_error_object(&chain_type);
    if (!links_fit(n, layers) || (names && !names_fit(n, names)))
        return fxi_error_object(&chain_type);
    fx_chain_layer init = {.layers = {.n = n}};
    memcpy(&init.layers.items, &layers,
           sizeof layers); /* fxi_new copies the lists; their const is kept */
    memcpy(&init.layers.names, &names, sizeof names);
    return fxi_new(&chain_type, &init);
}

fx_chain_layer *fxi_chain(int n, void *const *layers)
{
    return fxi_chain_named(n, NULL, layers);
}

fx_chain_layer *fxi_chain_pairs(int n, const void *const *names_and_layers)
{
    const int count = n / 2;
    if (n % 2)
        return fxi_refuse(&chain_type, "names and layers must alternate, got %d arguments", n);
    const char **names = fxi_calloc((size_t)count + 1, sizeof *names);
    void **layers = fxi_calloc((size_t)count + 1, sizeof *layers);
    fx_chain_layer *chain = fxi_error_object(&chain_type);
    for (int i = 0; i < count && names && layers; i++) {
        names[i] = names_and_layers[2 * i];
        layers[i] = (void *)(uintptr_t)names_and_layers[2 * i + 1];
    }
    if (names && layers)
        chain = fxi_chain_named(count, names, layers);
    else
        fx_fail(FX_STATUS_MEMORY, "Chain", "no memory for %d layers", count);
    fxi_free(names);
    fxi_free(layers);
    return chain;
}
