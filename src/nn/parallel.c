/* parallel.c: Parallel and PairwiseFusion, which combine the results of several layers.
 *
 * Both take several inputs, also as one tuple, as Flux does. The handles of results are released
 * when the layer returns, so that only the result holds them.
 */
#include "memory.h"
#include "nn_layer.h"

/* Both structs are equal; the table of each type has its own offsets. */
typedef fx_parallel_layer combining;

static fx_array *wrong_inputs(const combining *l, const char *condition, int n)
{
    const char *name = fx_type_of(l)->name;
    const long long layers = l->layers.n;
    return fx_error_array(
        fx_fail(FX_STATUS_ARGUMENT, name,
                "%s with %lld%s sub-layers can take one input or %lld inputs, but "
                "got %d inputs",
                name, layers, condition, layers, n));
}

/* y[i] = layer(input) for `n` results. */
static void call_layers(const combining *l, fxi_inputs in, int n, void **y)
{
    for (int i = 0; i < n; i++)
        y[i] = fxi_call(l->layers.items[l->layers.n == 1 ? 0 : i], 1, &in.items[in.n == 1 ? 0 : i]);
}

static fx_array *no_memory(const combining *l, int n)
{
    return fx_error_array(
        fx_fail(FX_STATUS_MEMORY, fx_type_of(l)->name, "no memory for %d results", n));
}

static void *parallel_forward(void *self, int nargs, void *const *args)
{
    const combining *l = self;
    if (fx_type_of(self)->error == self)
        return fx_error_array(FX_STATUS_ARGUMENT);
    const fxi_inputs in = fxi_inputs_of(nargs, args);
    const int layers = (int)l->layers.n, n = layers > in.n ? layers : in.n;
    if (in.n == 0)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, "Parallel", "Parallel layer cannot take 0 inputs"));
    if (layers > 1 && in.n > 1 && in.n != layers)
        return wrong_inputs(l, " > 1", in.n);
    FXI_SCOPE;
    void **y = fxi_calloc((size_t)n, sizeof *y);
    if (!y)
        return no_memory(l, n);
    call_layers(l, in, n, y);
    void *result = fxi_call(l->connection, n, y);
    fxi_free(y);
    return fx_keep(result);
}

static void *pairwise_forward(void *self, int nargs, void *const *args)
{
    const combining *l = self;
    if (fx_type_of(self)->error == self)
        return fx_error_array(FX_STATUS_ARGUMENT);
    const fxi_inputs in = fxi_inputs_of(nargs, args);
    const int n = (int)l->layers.n;
    if (in.n != n && (nargs != 1 || in.items != args))
        return wrong_inputs(l, "", in.n);
    FXI_SCOPE;
    void **y = fxi_calloc((size_t)n, sizeof *y);
    if (!y)
        return no_memory(l, n);
    for (int i = 0; i < n; i++) {
        void *x = in.items[in.n == 1 ? 0 : i];
        if (i > 0)
            x = fxi_call(l->connection, 2, (void *const[]){y[i - 1], x});
        y[i] = fxi_call(l->layers.items[i], 1, &x);
    }
    void *result = fxi_tuple(n, y);
    fxi_free(y);
    return fx_keep(result);
}

static void *parallel_build(int n, const char *const *names, void *const *items)
{
    return fxi_container(fxi_parallel_type(), n, names, items);
}

static void *pairwise_build(int n, const char *const *names, void *const *items)
{
    return fxi_container(fxi_pairwisefusion_type(), n, names, items);
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    M(connection, CHILD, .kind = FX_OPTION_CONNECTION, .flux = "connection")                       \
    M(layers, LIST, .kind = FX_OPTION_LAYERS, .flux = "layers")
/* clang-format on */
static const fx_flux_form forms[] = {{"connection layers", "connection layers", 0, 0}, {0}};
FX_LAYER_TYPE(parallel, fx_parallel_layer, fx_no_options, FX_NO_OPTIONS, ROWS,
              (.name = "Parallel", .forward = parallel_forward, .flags = FX_TYPE_SEQUENCE),
              .build_list = parallel_build, .flux = "Flux.Parallel", .forms = forms);
FX_LAYER_TYPE(pairwisefusion, fx_pairwisefusion_layer, fx_no_options, FX_NO_OPTIONS, ROWS,
              (.name = "PairwiseFusion", .forward = pairwise_forward, .flags = FX_TYPE_SEQUENCE),
              .build_list = pairwise_build, .flow = FX_LAYER_FLOW_FIRST,
              .flux = "Flux.PairwiseFusion", .forms = forms);

const fx_type *fxi_parallel_type(void)
{
    return fxi_type_parallel();
}

const fx_type *fxi_pairwisefusion_type(void)
{
    return fxi_type_pairwisefusion();
}

fx_parallel_layer *fxi_parallel(int n, void *const *connection_and_layers)
{
    return fxi_container_of(fxi_parallel_type(), n, connection_and_layers);
}

fx_parallel_layer *fxi_parallel_pairs(void *connection, int n, const void *const *names_and_layers)
{
    return fxi_container_pairs(fxi_parallel_type(), connection, n, names_and_layers);
}

fx_pairwisefusion_layer *fxi_pairwisefusion(int n, void *const *connection_and_layers)
{
    return fxi_container_of(fxi_pairwisefusion_type(), n, connection_and_layers);
}

fx_pairwisefusion_layer *fxi_pairwisefusion_pairs(void *connection, int n,
                                                  const void *const *names_and_layers)
{
    return fxi_container_pairs(fxi_pairwisefusion_type(), connection, n, names_and_layers);
}
