/* layer.h: what the built-in layers share. Internal to nn.
 *
 * A layer is a struct with a descriptor; its constructor checks the options, makes the arrays and
 * hands an init struct to fxi_new. Failing constructors return the type's error object (static
 * storage); a forward function that meets it passes the error on, so a wrong model poisons its
 * results only.
 */
#ifndef CFLUX_LAYER_H
#define CFLUX_LAYER_H

#include <cflux/nn.h>

#include <math.h>

#define FXI_COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))
#define FXI_LAYER_FIELD(T, field, k)                                                               \
    {                                                                                              \
        .name = #field, .offset = offsetof(T, field), .kind = FX_FIELD_##k                         \
    }
#define FXI_LAYER_FROZEN(T, field)                                                                 \
    {                                                                                              \
        .name = #field, .offset = offsetof(T, field), .kind = FX_FIELD_CHILD, .frozen = true       \
    }

/* The layers that fx_trainmode and its kin know. */
extern const fx_type fxi_batchnorm_type, fxi_dropout_type;

/* An option's value: 0 means the default, FX_ZERO zero. */
static inline double fxi_or_default(double v, double otherwise)
{
    return v != 0 ? v : signbit(v) ? 0.0 : otherwise;
}

/* Records FX_STATUS_ARGUMENT in the name of the type and returns its error object. */
void *fxi_refuse(const fx_type *type, const char *format, ...) FXI_PRINTF(2, 3);

/* The one array a layer was called with, or an error array (recorded, unless an error came in). */
fx_array *fxi_layer_input(const void *layer, int n, void *const *args);

/* Records "layer L expects <expectation>, but got S" and returns status. */
fx_status fxi_layer_mismatch(void *layer, fx_array *x, fx_status status, const char *expectation);
/* "layer L expects size(input, axis + 1) == size, but got S": Julia's axis in the text, as in Flux.
 */
fx_status fxi_expect_size(void *layer, fx_array *x, int axis, int64_t size);
/* "layer L expects ndims(input) == ndims, but got S". */
fx_status fxi_expect_ndims(void *layer, fx_array *x, int ndims);

/* x in the parameters' element type when that is a float: Float64 into Float32 and Float32 into
 * Float16 warn once per process, everything else converts silently. */
fx_array *fxi_match_type(fx_array *parameter, fx_array *x);

/* act(x). */
fx_array *fxi_activate(fx_function *act, fx_array *x);
/* ", relu", or nothing for the identity. */
void fxi_describe_act(fx_text *text, const fx_function *act);
/* "(3, 3)", "(5,)". */
void fxi_describe_dims(fx_text *text, const fx_dims *d);
/* ", pad=1": nothing when all entries are `silent`, one number when all are equal, else the tuple.
 */
void fxi_describe_option(fx_text *text, const char *name, const fx_dims *d, int64_t silent);

/* Array arguments of a constructor: true when one was given and is in error. */
static inline bool fxi_given_error(const fx_array *x)
{
    return x && fx_is_error(x);
}
/* A vector of n parameters: `given`, which must have that size and gets element type t, or `value`
 * everywhere. NULL when the size is wrong (recorded in the name of the type). */
fx_array *fxi_parameter_vector(const fx_type *type, fx_array *given, fx_dtype t, int64_t n,
                               double value);

/* An option of per-axis numbers made explicit: n entries (default `otherwise`), or `spatial` copies
 * of one. False (recorded) for another count or an entry below `least`. */
bool fxi_spread_option(const fx_type *type, const char *name, const fx_dims *given, int spatial,
                       int64_t otherwise, int64_t least, fx_dims *out);
/* Padding made explicit: FX_SAME and one number give (before, after) per axis, N or 2N numbers stay
 * as they are. */
bool fxi_spread_padding(const fx_type *type, const fx_dims *given, const fx_dims *kernel,
                        const fx_dims *dilation, fx_dims *out);

/* x with each element 0 with probability p, else x/(1−p); the mask varies along dims (none: all).
 */
fx_array *fxi_dropped(fx_array *x, double p, const fx_dims *dims);

#endif
