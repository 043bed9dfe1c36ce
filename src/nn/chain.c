/* chain.c: Chain, which calls its layers one after another.
 *
 * Several inputs go to the first layer. An empty chain returns its input, several inputs as a
 * tuple. The scope of a call frees the handles of intermediate results when the chain returns.
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

static void *chain_build(int n, const char *const *names, void *const *layers)
{
    const fx_type *type = fxi_chain_type();
    for (int i = 0; names && i < n; i++)
        if (names[i] && strcmp(names[i], "layers") == 0) {
            fxi_layer_fail(type, "a Chain cannot have a named layer called `layers`");
            return fx_error_object(type);
        }
    return n > 0 ? fxi_container(type, n, names, layers) : fxi_new(type, &(fx_chain_layer){0});
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
