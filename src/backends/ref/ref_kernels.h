/* ref_kernels.h: the kernels of the ref backend, with which tests compare all others. Internal.
 *
 * Every kernel does the same: for every element of the output it computes the multi-index, reads
 * the elements that the formula names with fxi_ref_get, computes in double (int64_t for integers
 * and Bool), and writes with fxi_ref_put. No loop is optimised or shared with another backend, so
 * that a mistake elsewhere cannot be repeated here. For ref, movements are steps of their own, so
 * their index arithmetic is checked too.
 *
 * Invariants: integers in a fxi_ref_value are always in their type's range (fxi_ref_wrap), and
 * reals in the registers of a program are values of their type (fxi_ref_round): the register of a
 * Float32 instruction holds a float. Only a sum or product of many terms has more digits, until it
 * is written.
 */
#ifndef CFLUX_REF_KERNELS_H
#define CFLUX_REF_KERNELS_H

#include "step.h"

/* An element: a real for F32, F64, F16 and BF16, an integer for I32, I64, U8 and Bool. The dtype is
 * always passed with it. */
typedef union fxi_ref_value {
    double real;
    int64_t integer;
} fxi_ref_value;

/* Runs one step; in[k] and out point at the first element. See fxi_kernel. */
fx_status fxi_ref_run_step(const fx_step *step, const void *const *in, void *out, fx_run *run);

bool fxi_ref_is_real(int dtype);
double fxi_ref_round(int dtype, double x);  /* to the nearest value of a real type, ties to even */
int64_t fxi_ref_wrap(int dtype, int64_t x); /* modulo the width of an integer type; Bool: x ≠ 0 */
fxi_ref_value fxi_ref_number(int dtype, int64_t x);               /* x as an element of dtype */
fxi_ref_value fxi_ref_convert(int to, int from, fxi_ref_value x); /* CAST */

/* Reads and writes the element at `index` elements from p. */
fxi_ref_value fxi_ref_get(int dtype, const void *p, int64_t index);
void fxi_ref_put(int dtype, void *p, int64_t index, fxi_ref_value v);

/* The multi-index of a linear (column-major) position. index has FX_MAX_DIMS entries; the unused
 * are 0. */
void fxi_ref_unravel(int64_t linear, int ndim, const int64_t *shape, int64_t *index);
/* The multi-index for three spatial axes, and the product of their sizes. */
void fxi_ref_unravel3(int64_t linear, const int64_t *size, int64_t *index);
int64_t fxi_ref_volume(const int64_t *size);
int64_t fxi_ref_length(const fx_tensor *t);
/* Offset in elements of a multi-index: Σ index_k·stride_k; axes of size 1 are broadcast. */
int64_t fxi_ref_offset(const fx_tensor *t, const int64_t *index);

/* a + b and a · b in dtype. Reals are not rounded: a sum is rounded once, when it is written. */
fxi_ref_value fxi_ref_sum2(int dtype, fxi_ref_value a, fxi_ref_value b);
fxi_ref_value fxi_ref_product2(int dtype, fxi_ref_value a, fxi_ref_value b);
/* A reduction (fx_reduce): its value for no elements, and its value with one element more. */
fxi_ref_value fxi_ref_reduce_start(int kind, int dtype);
fxi_ref_value fxi_ref_reduce_next(int kind, int dtype, fxi_ref_value sofar, fxi_ref_value x);

/* One function for each family of operations, or for one operation. */
fx_status fxi_ref_elementwise(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_reduce(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_cumsum(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_gather(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_scatter(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_matmul(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_conv(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_pool(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_iota(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_random(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_reshape(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_permute(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_expand(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_slice(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_pad(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_ref_concat(const fx_step *step, const void *const *in, void *out, fx_run *run);

#endif
