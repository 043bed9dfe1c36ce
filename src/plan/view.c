/* view.c: expresses reshape, permute, expand and slice as another offset and strides over the same
 * memory, without a copy.
 */
#include "build.h"

#include <string.h>

/* The strides of a reshape that moves no element; false if there are none. Old and new axes are
 * matched in groups of equal length. The old axes of a group must be evenly spaced in memory, like
 * one long axis; then any division of that axis has strides. */
static bool reshape_strides(const fxi_node *from, const int64_t *old, const fxi_node *to,
                            int64_t *stride)
{
    /* An axis of size 0 would match no group, and without elements any strides are right. */
    if (fxi_length(to->ndim, to->shape) == 0) {
        fxi_dense_strides(to->ndim, to->shape, stride);
        return true;
    }
    int i = 0, k = 0;
    while (k < to->ndim) {
        int64_t have = i < from->ndim ? from->shape[i] : 1, want = to->shape[k];
        int i1 = i + 1, k1 = k + 1;
        /* The smaller side takes another axis until both groups hold equally many elements. Both
         * shapes have the same length, so neither runs out of axes. */
        while (have != want) {
            if (have < want)
                have *= from->shape[i1++];
            else
                want *= to->shape[k1++];
        }
        int64_t run = 0, next = -1; /* run: the stride of the first axis in the group; next: the
                                       stride that its next axis must have */
        for (int a = i; a < i1 && a < from->ndim; a++) {
            if (from->shape[a] == 1)
                continue;
            if (next >= 0 && old[a] != next)
                return false;
            if (next < 0)
                run = old[a];
            next = old[a] * from->shape[a];
            if (next < 0 && a + 1 < i1) /* a reversed axis cannot be joined with the next one */
                return false;
        }
        for (int a = k; a < k1; a++) {
            stride[a] = run;
            run *= to->shape[a];
        }
        i = i1;
        k = k1;
    }
    return true;
}

bool fxi_view(const fxi_node *n, const fxi_place *from, fxi_place *to)
{
    const fxi_node *x = n->in[0];
    *to = (fxi_place){.value = from->value, .dense = -1, .offset = from->offset};
    memcpy(to->stride, from->stride, sizeof to->stride);
    switch (n->op) {
    case FX_OP_RESHAPE:
        return reshape_strides(x, from->stride, n, to->stride);
    case FX_OP_PERMUTE:
        for (int i = 0; i < n->ndim; i++)
            to->stride[i] = from->stride[n->attr.permutation[i]];
        return true;
    /* A broadcast axis has stride 0: all its indices read one element. */
    case FX_OP_EXPAND:
        for (int i = 0; i < n->ndim; i++)
            if (n->shape[i] != x->shape[i])
                to->stride[i] = 0;
        return true;
    /* A negative step gives a negative stride. `start` is then the highest index. */
    case FX_OP_SLICE:
        to->offset += n->attr.slice.start * from->stride[n->attr.slice.axis];
        to->stride[n->attr.slice.axis] *= n->attr.slice.step;
        return true;
    /* Other movements keep every element where it is. */
    default:
        return true;
    }
}
