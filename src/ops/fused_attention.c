/* fused_attention.c: attention and the parts of its gradient as single operations.
 *
 * The composed form needs no primitive: products, softmax and a product again
 * (src/nn/attention.c). But it writes and reads the scores, queries×keys for each head, and on a
 * GPU that takes far more time than the arithmetic. A kernel that keeps the scores in registers or
 * in the first-level cache reads only q, k and v. Only devices with such a kernel get these nodes,
 * so the other backends need no code.
 */
#include "fused_attention.h"
#include "operands.h"
#include "registry.h"
#include "step.h"

#include <string.h>

enum { MOST_INPUTS = 7, MOST_BUFFERS = MOST_INPUTS + 2 }; /* fx_step_buffers of masked gradients */

/* A dense tensor of features×length×batch. */
static fx_tensor three_axes(const fxi_node *n)
{
    const int batch = n->ndim - 2;
    fx_tensor t = {.dtype = n->dtype,
                   .ndim = 3,
                   .shape = {n->shape[0], n->shape[1], fxi_length(batch, n->shape + 2)}};
    fxi_dense_strides(t.ndim, t.shape, t.stride);
    return t;
}

/* A mask as a dense tensor of keys×queries×heads×batch. */
static fx_tensor four_axes(const fxi_node *n)
{
    fx_tensor t = {.dtype = n->dtype, .ndim = 4};
    memcpy(t.shape, n->shape, 4 * sizeof *t.shape);
    fxi_dense_strides(t.ndim, t.shape, t.stride);
    return t;
}

/* Type and sizes of the result of a kind. */
static fx_tensor result_of(const fx_attention_attr *attr, const fx_tensor *in)
{
    fx_tensor y = in[0];
    switch ((fx_attention_kind)attr->kind) {
    case FX_ATTENTION_FORWARD:
        y.shape[0] = in[2].shape[0];
        break;
    case FX_ATTENTION_LOGSUMEXP:
        y.dtype = FX_DTYPE_F32;
        y.shape[0] = attr->heads;
        break;
    case FX_ATTENTION_GRADIENT_QUERY:
        break;
    case FX_ATTENTION_GRADIENT_KEY_VALUE:
    case FX_ATTENTION_GRADIENTS:
        y.shape[0] = in[1].shape[0] + in[2].shape[0];
        y.shape[1] = in[1].shape[1];
        break;
    }
    fxi_dense_strides(y.ndim, y.shape, y.stride);
    return y;
}

/* The device that computes attention of n operands; NULL: none, or they are on two devices.
 * Operands made of literals and generators alone belong to no device, but whether there is a kernel
 * depends on the device. If the process has no other devices, it is the CPU. */
static fx_device *device_of(int n, fxi_node *const *nodes)
{
    fx_device *device = NULL;
    for (int i = 0; i < n; i++) {
        if (device && nodes[i]->device && nodes[i]->device != device)
            return NULL;
        device = device ? device : nodes[i]->device;
    }
    return device || fxi_has_more_devices() ? device : fx_cpu_device();
}

bool fxi_has_attention(const fx_attention_attr *attr, const fx_array *q, const fx_array *k,
                       const fx_array *v, const fx_array *mask)
{
    fxi_node *const nodes[] = {q->node, k->node, v->node, mask ? mask->node : NULL};
    const int n = 3 + (mask != NULL);
    fx_device *device = device_of(n, nodes);
    fx_tensor in[4];
    if (!device || !device->backend->attention ||
        (device->info.buffers > 0 && device->info.buffers < MOST_BUFFERS - !mask))
        return false;
    for (int i = 0; i < 3; i++) {
        in[i] = three_axes(nodes[i]);
        if (in[i].dtype != in[0].dtype || fx_tensor_length(&in[i]) == 0)
            return false;
    }
    if (mask)
        in[3] = four_axes(nodes[3]);
    fx_step step = {.op = FX_OP_ATTENTION, .cls = FX_CLASS_ATTENTION, .nin = n, .in = in};
    fx_attr a = {.attention = *attr};
    a.attention.kind = FX_ATTENTION_FORWARD;
    fxi_step_set_attr(&step, &a);
    fxi_step_set_attention_sizes(&step);
    step.out = result_of(&a.attention, in);
    return device->backend->attention(device, &step);
}

fx_array *fxi_attention_node(const fx_attention_attr *attr, int n, fx_array *const *in)
{
    fxi_node *nodes[MOST_INPUTS];
    fx_tensor tensors[3] = {{0}};
    for (int i = 0; i < n; i++) {
        const fx_status s = fxi_check_operand("attention", in[i]);
        if (s != FX_OK)
            return fx_error_array(s);
        nodes[i] = in[i]->node;
        if (i < 3)
            tensors[i] = three_axes(nodes[i]);
    }
    fx_attr a = {.words = {0}};
    a.attention = *attr;
    const fx_tensor y = result_of(attr, tensors);
    return fxi_array_take(fxi_node_new(fxi_here(), FX_OP_ATTENTION, (fx_dtype)y.dtype, y.ndim,
                                       y.shape, device_of(n, nodes), &a, n, nodes));
}
