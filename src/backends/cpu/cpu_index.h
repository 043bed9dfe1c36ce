/* cpu_index.h: loops and checks that gather and scatter by slices (cpu_index.c) and by element
 * (cpu_elements.c) share. Internal. */
#ifndef CFLUX_CPU_INDEX_H
#define CFLUX_CPU_INDEX_H

#include "step.h"

/* out[k] = x[idx[k]·stride + k·next], elements of `size` bytes: a gather only copies. */
void fxi_index_pick(void *out, const void *x, const int64_t *idx, int64_t n, int64_t stride,
                    int64_t next, size_t size);

/* out[idx[k]·stride + k·next] ⊕= src[k] */
typedef void (*fxi_index_merge_fn)(void *out, const void *src, const int64_t *idx, int64_t n,
                                   int64_t stride, int64_t next);
fxi_index_merge_fn fxi_index_merge(int kind, int dtype);
/* The neutral element: the result of an empty reduction of this kind and type. */
void fxi_index_neutral(int kind, int dtype, char value[8]);
/* Repeats an element of `size` bytes n times. */
void fxi_index_fill(void *out, const void *value, int64_t n, size_t size);

/* The position in idx of the first index that is outside an axis of n elements; −1 if there is
 * none. */
int64_t fxi_index_outside(const int64_t *idx, int64_t count, int64_t n);
fx_status fxi_index_fail(const fx_step *step, int64_t index, int axis, int64_t n);
/* Sets *out to the operand if it is dense, else to a dense copy. *copy: the copy, which the caller
 * frees, or NULL. */
fx_status fxi_index_dense(const fx_step *step, const fx_tensor *t, const void *in, const void **out,
                          void **copy);

fx_status fxi_cpu_gather_elements(const fx_step *step, const void *const *in, void *out);
fx_status fxi_cpu_scatter_elements(const fx_step *step, const void *const *in, void *out);

#endif
