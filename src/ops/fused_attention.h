/* fused_attention.h: attention as one operation, for devices that have a kernel for it. Internal.
 * fx_attention_step in <cflux/backend.h> has the formulas and the shapes. */
#ifndef CFLUX_FUSED_ATTENTION_H
#define CFLUX_FUSED_ATTENTION_H

#include <cflux/backend.h>
#include <cflux/ops.h>

/* Does the device compute attention of q, k and v, and of the mask if it is not NULL, with one
 * kernel? q, k and v have at least two axes, the mask has the four of the scores, and their sizes
 * match. attr->kind is not used. Records no error. */
bool fxi_has_attention(const fx_attention_attr *attr, const fx_array *q, const fx_array *k,
                       const fx_array *v, const fx_array *mask);

/* The result of the kind attr->kind on its n inputs, which have three axes; the mask, the last one
 * if it is Bool, has four. The caller guarantees that fxi_has_attention is true for q, k, v and the
 * mask, and that the types and shapes of the other inputs fit. No gradient flows through the result
 * (see fxi_own_gradient). */
fx_array *fxi_attention_node(const fx_attention_attr *attr, int n, fx_array *const *in);

#endif
