/* chain.c: Chain, which calls its layers one after another.
 *
 * A layer can be anything callable: layers, the user's own types, function objects. A child that
 * cannot be called is refused when the chain is built, because then its position is known. Several
 * inputs go to the first layer. An empty chain returns its input, several inputs as a tuple. The
 * handles of intermediate results are released at once, so that only the next layer holds them.
 */
#include "nn_layer.h"

#include <string.h>

static void *chain_forward(void *self, int n, void *const *args)
{
    const fx_chain_layer *l = self;
    if (fx_type_of(self)->error == self)
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

static bool links_fit(int n, void *const *layers)
{
    for (int i = 0; i < n; i++) {
        if (fxi_is_callable(layers[i]))
            continue;
        char got[100] = "NULL";
        if (layers[i])
            fx_summary(layers[i], got, sizeof got);
        return fxi_layer_fail(fxi_chain_type(), "child %d is not a layer: %s", i, got);
    }
    return true;
}

static bool names_fit(int n, const char *const *names)
{
    for (int i = 0; i < n; i++) {
        if (!names[i])
            continue;
        if (strcmp(names[i], "layers") == 0)
            return fxi_layer_fail(fxi_chain_type(),
                                  "a Chain cannot have a named layer called `layers`");
        for (int j = 0; j < i; j++)
            if (names[j] && strcmp(names[i], names[j]) == 0)
                return fxi_layer_fail(fxi_chain_type(), "two layers are called `%s`", names[i]);
    }
    return true;
}

static void *chain_build(int n, const char *const *names, void *const *layers)
{
    const fx_type *type = fxi_chain_type();
    for (int i = 0; i < n; i++) /* a failed layer recorded its error; the chain passes it on */
        if (layers[i] && fx_is_error(layers[i]))
            return fx_error_object(type);
    if (!links_fit(n, layers) || (names && !names_fit(n, names)))
        return fx_error_object(type);
    fx_chain_layer init = {.layers = {.n = n}};
    memcpy(&init.layers.items, &layers, sizeof layers); /* fxi_new copies the list */
    memcpy(&init.layers.names, &names, sizeof names);
    return fxi_new(type, &init);
}

/* clang-format off */
#define ROWS(M, O, F) M(layers, LIST, .kind = FX_OPTION_LAYERS, .flux = "layers", .torch = "")
/* clang-format on */
static const fx_flux_form forms[] = {{"layers", "layers", 0, 0}, {0}};
FX_LAYER_TYPE(chain, fx_chain_layer, fx_no_options, FX_NO_OPTIONS, ROWS,
              (.name = "Chain", .forward = chain_forward, .flags = FX_TYPE_SEQUENCE),
              .build_list = chain_build, .flow = FX_LAYER_FLOW_CHAIN, .flux = "Flux.Chain",
              .forms = forms);

const fx_type *fxi_chain_type(void)
{
    return fxi_type_chain();
}

fx_chain_layer *fxi_chain(int n, void *const *layers)
{
    return fxi_container_of(fxi_chain_type(), n, layers);
}

fx_chain_layer *fxi_chain_pairs(int n, const void *const *names_and_layers)
{
    return fxi_container_pairs(fxi_chain_type(), NULL, n, names_and_layers);
}
