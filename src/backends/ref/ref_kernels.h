/* ref_kernels.h: the ref backend, the oracle of all tests.
 *
 * One way of doing everything: for every element of the output compute its multi-index, read what
 * the formula names through fxi_ref_get, compute in double (int64_t for integers and Bool), write
 * through fxi_ref_put. No loop is blocked, hoisted or shared with another backend; the planner
 * hands movement operations over as steps of their own, so that their index arithmetic is checked
 * here as well.
 *
 * Invariants: integers in a fxi_ref_value are always in their type's range (fxi_ref_wrap), reals
 * are always values of their type (fxi_ref_round): the register of a Float32 instruction holds a
 * float.
 */
#ifndef CFLUX_REF_KERNELS_H
#define CFLUX_REF_KERNELS_H

#include "step.h"

/* A real for F32, F64, F16 and BF16, an integer for I32, I64, U8 and Bool: the dtype beside it
 * tells. */
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

/* The element at `index` elements from p. */
fxi_ref_value fxi_ref_get(int dtype, const void *p, int64_t index);
void fxi_ref_put(int dtype, void *p, int64_t index, fxi_ref_value v);

/* Multi-index of the linear (column-major) position; index has FX_MAX_DIMS entries, the rest 0. */
void fxi_ref_unravel(int64_t linear, int ndim, const int64_t *shape, int64_t *index);
/* The same for three spatial axes, and the product of their sizes. */
void fxi_ref_unravel3(int64_t linear, const int64_t *size, int64_t *index);
int64_t fxi_ref_volume(const int64_t *size);
int64_t fxi_ref_length(const fx_tensor *t);
/* Offset in elements of a multi-index: Σ index_k·stride_k; axes of size 1 are broadcast. */
int64_t fxi_ref_offset(const fx_tensor *t, const int64_t *index);

/* a + b and a · b in dtype. Reals are not rounded: sums are rounded once, when they are written. */
fxi_ref_value fxi_ref_sum2(int dtype, fxi_ref_value a, fxi_ref_value b);
fxi_ref_value fxi_ref_product2(int dtype, fxi_ref_value a, fxi_ref_value b);
/* The value of a reduction (fx_reduce) of nothing, and one more element for it. */
fxi_ref_value fxi_ref_reduce_start(int kind, int dtype);
fxi_ref_value fxi_ref_reduce_next(int kind, int dtype, fxi_ref_value sofar, fxi_ref_value x);

/* The families. */
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
