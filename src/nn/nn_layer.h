/* nn_layer.h: functions that the built-in layers share. Internal to nn.
 *
 * A layer is a forward function, a build function for checks and for members that no option sets,
 * and the table of FX_LAYER_TYPE, in one .c file. A constructor that fails returns the type's error
 * object (static storage). A forward function that gets this object passes on its error, so a wrong
 * model only affects its own results.
 */
#ifndef CFLUX_NN_LAYER_H
#define CFLUX_NN_LAYER_H

#include <cflux/nn.h>

#include "evaluate_object.h"
#include "option_struct.h"

#define FXI_COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

/* Defines fxi_ID, the constructor of a library layer, and the function that layers.def lists. */
#define FXI_LIBRARY_LAYER(id, T, options)                                                          \
    const fx_type *fxi_##id##_type(void)                                                           \
    {                                                                                              \
        return fxi_type_##id();                                                                    \
    }                                                                                              \
    T *fxi_##id(const options *a)                                                                  \
    {                                                                                              \
        return fx_layer_make(fxi_type_##id(), a);                                                  \
    }
#define LAYER(id) const fx_type *fxi_##id##_type(void);
#include "layers.def"
#undef LAYER

/* Records FX_STATUS_ARGUMENT with the name of the type; returns false. */
bool fxi_layer_fail(const fx_type *type, const char *format, ...) FXI_PRINTF(2, 3);

/* A description of an argument for messages: writes its summary, or "NULL", to `text` and returns
 * `text`. */
const char *fxi_given(const void *object, char *text, size_t size);
/* The same for a list of sizes, as a tuple in Julia: "(3, 3)". */
const char *fxi_dims_text(const fx_dims *d, char *text, size_t size);

/* ---- tables of layers ------------------------------------------------------------------------ */

/* Row i of a table. Its rows may be shorter or longer than this library's, because the program may
 * be built with another version of cflux. */
static inline const fx_layer_row *fxi_layer_row(const fx_layer *layer, int i)
{
    return (const fx_layer_row *)(const void *)((const char *)layer->rows +
                                                (size_t)i * layer->row_size);
}
static inline size_t fxi_options_size(const fx_layer *layer)
{
    return *(const size_t *)layer->defaults;
}

/* True for a layer type of the library, false for one of the program. */
bool fxi_is_library_layer(const fx_type *type);

/* ---- containers ------------------------------------------------------------------------------ */

/* True for a layer or a function. */
bool fxi_is_callable(const void *object);
/* The function `build_list` of a layer whose table has rows of kind LAYER, CONNECTION and LAYERS
 * only: takes the items in the order of the rows. Fails for fewer items than rows, items that
 * cannot be called, equal names, and names of the layer's own fields. `build_list` receives no
 * type, so each layer wraps this function. */
void *fxi_container(const fx_type *type, int n, const char *const *names, void *const *items);
/* Constructors by `build_list`: from items without names, or from the connection (NULL if the layer
 * has none) and then names and items, alternating. */
void *fxi_container_of(const fx_type *type, int n, void *const *items);
void *fxi_container_pairs(const fx_type *type, void *connection, int n,
                          const void *const *names_and_items);
/* The inputs of a layer that takes several: if the only input is a tuple, its items are the inputs.
 */
typedef struct fxi_inputs {
    int n;
    void *const *items;
} fxi_inputs;
fxi_inputs fxi_inputs_of(int n, void *const *args);

/* ---- arguments ------------------------------------------------------------------------------- */

/* The status of an array. Records "`op`: `what` is NULL", or that `x` is another object. */
fx_status fxi_expect_array(const char *op, const char *what, const fx_array *x);

/* ---- forward --------------------------------------------------------------------------------- */

/* The single array that a layer was called with, or an error array (recorded, unless the input was
 * an error array). */
fx_array *fxi_layer_input(const void *layer, int n, void *const *args);

/* Records "layer L expects <expectation>, but got S" and returns status. */
fx_status fxi_layer_mismatch(void *layer, fx_array *x, fx_status status, const char *expectation);
/* Fails unless x has this size along the axis. The message has Julia's axis, as in Flux: "layer L
 * expects size(input, axis + 1) == size, but got S". */
fx_status fxi_expect_size(void *layer, fx_array *x, int axis, int64_t size);
/* fxi_expect_size for the first axes of x, one for each size. */
fx_status fxi_expect_sizes(void *layer, fx_array *x, const fx_dims *sizes);
/* False (recorded) unless the list has 1 to FX_MAX_DIMS sizes, all positive. */
bool fxi_positive_sizes(const fx_type *type, const fx_dims *sizes);
/* "layer L expects ndims(input) == ndims, but got S". */
fx_status fxi_expect_ndims(void *layer, fx_array *x, int ndims);

/* Converts x to the parameters' element type if that is a float. Float64 to Float32 and Float32 to
 * Float16 warn once per process; all other conversions are silent. */
fx_array *fxi_match_type(fx_array *parameter, fx_array *x);

/* fxi_layer_input for a layer with a weight; also an error array if the weight is one. */
fx_array *fxi_weighted_input(const void *layer, int n, void *const *args, fx_array *weight);
/* W·x along the first axis of x, for any number of other axes. */
fx_array *fxi_weighted(fx_array *weight, fx_array *x);
/* y .+ bias along `axis`; y itself if the bias is NULL or y is an error array. */
fx_array *fxi_biased(fx_array *y, fx_array *bias, int axis);
/* act(x). */
fx_array *fxi_activate(fx_function *act, fx_array *x);
/* True if a layer with this member `active` behaves as in training now. */
static inline bool fxi_is_active(int64_t active)
{
    return active == FX_ACTIVE_AUTO ? fx_training() : active == FX_ACTIVE_ON;
}

/* ---- building: each returns false after a failure that it recorded --------------------------- */

/* If *io_weight is NULL, init makes it; otherwise it must have the sizes (0: any). */
bool fxi_weight(const fx_type *type, fx_array **io_weight, fx_init_fn init, int ndims,
                const int64_t *sizes);
/* Sets *io_bias if `wanted`: a given bias, or n zeros, in the element type of weight. */
bool fxi_bias(const fx_type *type, fx_array **io_bias, bool wanted, fx_array *weight, int64_t n);
/* A Float32 array with `value` in every element. */
bool fxi_filled(fx_array **out, double value, int ndims, const int64_t *sizes);

/* Expands a per-axis option: `spatial` numbers stay unchanged, one number is copied `spatial`
 * times. False (recorded) for another count or an entry below `least`. */
bool fxi_spread_option(const fx_type *type, const char *name, const fx_dims *given, int spatial,
                       int64_t least, fx_dims *out);
/* Expands padding: FX_SAME and one number become (before, after) per axis; N or 2N numbers stay
 * unchanged. */
bool fxi_spread_padding(const fx_type *type, const fx_dims *given, const fx_dims *kernel,
                        const fx_dims *dilation, fx_dims *out);

/* True if both lists have the same numbers. */
bool fxi_same_dims(const fx_dims *a, const fx_dims *b);

/* The versions of Flux whose formulas of LayerNorm differ: see fx_layernorm_layer. */
#define FXI_FLUX_14 0.14
#define FXI_FLUX_15 0.15
#define FXI_FLUX_16 0.16
/* (x − mean)/deviation over the axes; `flux` as in fx_layernorm_layer. */
fx_array *fxi_normalised(fx_array *x, fx_axes dims, double eps, double flux);
/* Converts x to an element type in which means and squares are safe: Float32 for 16-bit floats and
 * integers. */
fx_array *fxi_wide_enough(fx_array *x);
/* y in the type `input` if that is a 16-bit float, otherwise y: the result of a layer that computed
 * in Float32. */
fx_array *fxi_as_narrow(fx_array *y, fx_dtype input);
bool fxi_is_half(fx_dtype type);     /* Float16, BFloat16 */
bool fxi_is_floating(fx_dtype type); /* Float16, BFloat16, Float32, Float64 */
/* The distance from 1 to the next larger number; Float32's for types that are not floats. */
double fxi_epsilon(fx_dtype type);

/* Sets each element of x to 0 with probability p and the others to x/(1−p). The mask varies along
 * dims (none: all).
 */
fx_array *fxi_dropped(fx_array *x, double p, const fx_dims *dims);

#endif
