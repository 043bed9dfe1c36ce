/* fused_attention.h: attention as one operation, for devices that have a kernel for it. Internal.
 * fx_attention_step in <cflux/backend.h> has the formulas and the shapes. */
#ifndef CFLUX_FUSED_ATTENTION_H
#define CFLUX_FUSED_ATTENTION_H

#include <cflux/backend.h>
#include <cflux/ops.h>

/* Does the device compute attention of q, k and v with one kernel? They have at least two axes, and
 * their sizes match. attr->kind is not used. Records no error. */
bool fxi_has_attention(const fx_attention_attr *attr, const fx_array *q, const fx_array *k,
                       const fx_array *v);

/* The result of the kind attr->kind on its n inputs, which have three axes. The caller guarantees
 * that fxi_has_attention is true for q, k and v, and that the types and shapes of the other inputs
 * fit. No gradient flows through the result (see fxi_own_gradient). */
fx_array *fxi_attention_node(const fx_attention_attr *attr, int n, fx_array *const *in);

#endif
