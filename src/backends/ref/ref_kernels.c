/* ref_kernels.c: the one entry of the ref backend's kernels, a table from operation to function.
 *
 * Elementwise operations share the interpreter of register programs; every other operation has its
 * own function. LEAF and CONST are values, not steps, and have none.
 */
#include "ref_kernels.h"

static fx_status custom(const fxi_step *s, const void *const *in, void *out, fxi_run *run)
{
    enum { MANY = 32 };
    const int64_t *dims[MANY];
    int ndims[MANY];
    const fx_custom_op *op = s->attr.custom;
    if (s->nin > MANY) {
        snprintf(run->error, sizeof run->error, "%s: more than %d inputs", op->name, (int)MANY);
        return FX_STATUS_UNSUPPORTED;
    }
    for (int k = 0; k < s->nin; k++) {
        dims[k] = s->in[k].shape;
        ndims[k] = s->in[k].ndim;
    }
    const fx_status status = op->forward(op, s->nin, in, dims, ndims, out);
    if (status != FX_OK)
        snprintf(run->error, sizeof run->error, "%s: its function returned %s", op->name,
                 fx_status_name(status));
    return status;
}

static const fxi_kernel kernels[FXI_OP_COUNT] = {
    [FXI_OP_IOTA] = fxi_ref_iota,       [FXI_OP_RANDOM] = fxi_ref_random,
    [FXI_OP_RESHAPE] = fxi_ref_reshape, [FXI_OP_STOP] = fxi_ref_reshape,
    [FXI_OP_PERMUTE] = fxi_ref_permute, [FXI_OP_EXPAND] = fxi_ref_expand,
    [FXI_OP_SLICE] = fxi_ref_slice,     [FXI_OP_PAD] = fxi_ref_pad,
    [FXI_OP_CONCAT] = fxi_ref_concat,   [FXI_OP_REDUCE] = fxi_ref_reduce,
    [FXI_OP_CUMSUM] = fxi_ref_cumsum,   [FXI_OP_GATHER] = fxi_ref_gather,
    [FXI_OP_SCATTER] = fxi_ref_scatter, [FXI_OP_MATMUL] = fxi_ref_matmul,
    [FXI_OP_CONV] = fxi_ref_conv,       [FXI_OP_POOL] = fxi_ref_pool,
    [FXI_OP_CUSTOM] = custom,
};

fx_status fxi_ref_run_step(const fxi_step *step, const void *const *in, void *out, fxi_run *run)
{
    if (step->cls == FXI_CLASS_ELEMENTWISE)
        return fxi_ref_elementwise(step, in, out, run);
    const fxi_kernel kernel = step->op < FXI_OP_COUNT ? kernels[step->op] : NULL;
    if (!kernel) {
        snprintf(run->error, sizeof run->error, "%s: not an operation of the ref backend",
                 step->op < FXI_OP_COUNT ? fxi_ops[step->op].name : "?");
        return FX_STATUS_UNSUPPORTED;
    }
    return kernel(step, in, out, run);
}
