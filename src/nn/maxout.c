/* maxout.c: Maxout, the elementwise maximum of several layers. */
#include "memory.h"
#include "nn_layer.h"

static void *maxout_forward(void *self, int n, void *const *args)
{
    const fx_maxout_layer *l = self;
    if (fx_type_of(self)->error == self)
        return fx_error_array(FX_STATUS_ARGUMENT);
    FXI_SCOPE;
    fx_array *y = fxi_call(l->layers.items[0], n, args);
    for (int64_t i = 1; i < l->layers.n; i++)
        y = fx_max(y, (fx_array *)fxi_call(l->layers.items[i], n, args));
    return fx_keep(y);
}

static void *maxout_build(int n, const char *const *names, void *const *items)
{
    for (int i = 0; names && i < n; i++)
        if (names[i]) {
            fxi_layer_fail(fxi_maxout_type(), "the layers of a Maxout have no names, got `%s`",
                           names[i]);
            return fx_error_object(fxi_maxout_type());
        }
    return fxi_container(fxi_maxout_type(), n, NULL, items);
}

/* clang-format off */
#define ROWS(M, O, F) M(layers, LIST, .kind = FX_OPTION_LAYERS, .flux = "layers")
/* clang-format on */
static const fx_flux_form forms[] = {{"layers", "layers", 0, 0}, {0}};
FX_LAYER_TYPE(maxout, fx_maxout_layer, fx_no_options, FX_NO_OPTIONS, ROWS,
              (.name = "Maxout", .forward = maxout_forward, .flags = FX_TYPE_SEQUENCE),
              .build_list = maxout_build, .flux = "Flux.Maxout", .forms = forms);

const fx_type *fxi_maxout_type(void)
{
    return fxi_type_maxout();
}

fx_maxout_layer *fxi_maxout(int n, void *const *layers)
{
    return fxi_container_of(fxi_maxout_type(), n, layers);
}

fx_maxout_layer *fx_maxout_from(void *(*make)(void *user), void *user, int n)
{
    FXI_SCOPE;
    void **layers = make && n > 0 ? fxi_calloc((size_t)n, sizeof *layers) : NULL;
    fx_maxout_layer *made = fx_error_object(fxi_maxout_type());
    if (!make || n < 1)
        fxi_layer_fail(fxi_maxout_type(),
                       make ? "the number of layers must be positive, got %d"
                            : "the function that makes a layer is NULL",
                       n);
    else if (!layers)
        fx_fail(FX_STATUS_MEMORY, "Maxout", "no memory for %d layers", n);
    for (int i = 0; layers && i < n; i++)
        layers[i] = make(user);
    if (layers)
        made = fxi_maxout(n, layers);
    fxi_free(layers);
    return fx_keep(made);
}
