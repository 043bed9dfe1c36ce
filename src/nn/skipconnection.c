/* skipconnection.c: SkipConnection, y = connection(layers(x), x). */
#include "nn_layer.h"

static void *skip_forward(void *self, int n, void *const *args)
{
    const fx_skipconnection_layer *l = self;
    if (fx_type_of(self)->error == self)
        return fx_error_array(FX_STATUS_ARGUMENT);
    if (n != 1)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, "SkipConnection", "takes one input, got %d", n));
    FXI_SCOPE;
    void *y = fxi_call(l->layers, 1, args);
    return fx_keep(fxi_call(l->connection, 2, (void *const[]){y, args[0]}));
}

/* Refuses what cannot be called. An error object recorded its error when it was made. */
static bool fits(const fx_type *type, const char *name, void *child)
{
    char got[100];
    if (child && fx_is_error(child))
        return false;
    if (fxi_is_callable(child))
        return true;
    return fxi_layer_fail(type, "the %s is not a function or a layer: %s", name,
                          fxi_given(child, got, sizeof got));
}

static bool skip_build(const fx_type *type, const void *options, void *self)
{
    const fx_skipconnection_layer *l = self;
    (void)options;
    return fits(type, "layer", l->layers) && fits(type, "connection", l->connection);
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    M(layers, CHILD, FX_FROM(layers, LAYER), .positional = "a layer", .required = true,                 \
      .flux = "layers")                                                                            \
    M(connection, CHILD, FX_FROM(connection, CONNECTION), .positional = "a connection",                 \
      .required = true, .flux = "connection")
/* clang-format on */
static const fx_flux_form forms[] = {{"layers connection", "layers connection", 0, 0}, {0}};
FX_LAYER_TYPE(skipconnection, fx_skipconnection_layer, fx_skipconnection_args,
              FXI_SKIPCONNECTION_ARGS, ROWS,
              (.name = "SkipConnection", .forward = skip_forward, .flags = FX_TYPE_SEQUENCE),
              .build = skip_build, .flux = "Flux.SkipConnection", .forms = forms);
FXI_LIBRARY_LAYER(skipconnection, fx_skipconnection_layer, fx_skipconnection_args)
