/* cflux/init.h: initialisers with options, and initialisers that nn.h does not list. Names,
 * defaults and formulas are those of Flux 0.16.
 *
 * An initialiser is a function of sizes, for the option .init of layers. fx_init calls one with
 * options:
 *
 *     fx_dense(4, 8, .init = fx_orthogonal);
 *     fx_dense(4, 8, .weight_array = fx_init(fx_orthogonal, FX_DIMS(8, 4), .gain = 1.4));
 */
#ifndef CFLUX_INIT_H
#define CFLUX_INIT_H

#include <cflux/layer.h>

FXI_BEGIN_C

/* Value of an option of fx_init: use the initialiser's own default. */
#define FX_OWN_DEFAULT __builtin_nan("")
/* Options of fx_init, with the default that each initialiser has. FX_STATUS_ARGUMENT for an option
 * that the initialiser does not have, for a .std of fx_truncated_normal that is not positive, for
 * .lo above .hi, and for a .sparsity outside [0, 1]. */
/* clang-format off */
#define FXI_INIT_ARGS(F)                                                                           \
    F(fx_init_fn, init, FXI_NULL)            /* the initialiser */                                 \
    F(fx_dims, sizes, FXI_DIMS_NONE)         /* of the result */                                   \
    F(double, gain, FX_OWN_DEFAULT)          /* factor: 1; of fx_kaiming_uniform and               \
                                                fx_kaiming_normal: √2 */                           \
    F(double, mean, FX_OWN_DEFAULT)          /* of fx_truncated_normal: 0 */                       \
    F(double, std, FX_OWN_DEFAULT)           /* of fx_truncated_normal: 1; of fx_sparse_init: 0.01 \
                                                */                                                 \
    F(double, lo, FX_OWN_DEFAULT)            /* least value of fx_truncated_normal: −2 */          \
    F(double, hi, FX_OWN_DEFAULT)            /* largest value of fx_truncated_normal: 2 */         \
    F(double, sparsity, FX_OWN_DEFAULT)      /* of fx_sparse_init: fraction of each column that is \
                                                0; no default */                                   \
    F(fx_dims, shift, FXI_DIMS_NONE)         /* of fx_identity_init: by how many elements the      \
                                                result is rotated along each axis;                 \
                                                default: 0 */                                      \
    F(int64_t, seed, -1)                     /* −1: the thread's random stream (fx_seed);          \
                                                otherwise the numbers depend on the seed alone */
/* clang-format on */
FXI_OPTION_STRUCT(fx_init_args, FXI_INIT_ARGS);
/* fx_init(fx_truncated_normal, FX_DIMS(3, 4), .std = 0.02): calls an initialiser with options. Any
 * other function of sizes can be called with .seed only. The scope owns the result. */
FX_API fx_array *fxi_init(const fx_init_args *a);
#define fx_init(...)                                                                               \
    FXI_CALL(fxi_init(FXI_OPTIONS(fx_init_args, FXI_INIT_ARGS(FXI_DEFAULT).init = __VA_ARGS__)))

/* Stores fan_in and fan_out: (1, n) for a vector of n numbers, (in, out) for an out×in weight,
 * (Πk·in, Πk·out) for a kernel k…×in×out. Flux.nfan. FX_STATUS_ARGUMENT, and NaN, if ndims is
 * negative, or positive with `sizes` NULL. */
FX_API void fx_nfan(int ndims, const int64_t *sizes, double *out_in, double *out_out);

/* gain·Q with orthonormal columns, or orthonormal rows if there are fewer rows. The rows are all
 * axes but the final one, the columns the final axis. Q is from the QR decomposition of a matrix of
 * normal numbers, with a positive diagonal of R. The call computes Q on the host, with about
 * rows·columns·min(rows, columns) operations. FX_STATUS_SHAPE for no axes. Saxe et al., 2014. */
FX_API fx_array *fx_orthogonal(int ndims, const int64_t *sizes);
/* A matrix of normal numbers, σ = std, in which ⌈sparsity·rows⌉ random elements of each column are
 * 0. FX_STATUS_SHAPE unless it has two axes. Needs fx_init with .sparsity. Martens, 2010. */
FX_API fx_array *fx_sparse_init(int ndims, const int64_t *sizes);
/* A weight with which a layer computes gain·x: a matrix has gain on its diagonal; a kernel
 * k…×in×out has gain at its centre where the indices of in and out are equal. All other elements,
 * and all elements of a vector, are 0. */
FX_API fx_array *fx_identity_init(int ndims, const int64_t *sizes);

FXI_END_C
#endif
