/* ref_kernels.c: the one entry of the ref backend's kernels, a table from operation to function.
 *
 * Elementwise operations share the interpreter of register programs; every other operation has its
 * own function. LEAF and CONST are values, not steps, and have none.
 */
#include "ref_kernels.h"

static const fxi_kernel kernels[FXI_OP_COUNT] = {
    [FXI_OP_IOTA] = fxi_ref_iota,       [FXI_OP_RANDOM] = fxi_ref_random,
    [FXI_OP_RESHAPE] = fxi_ref_reshape, [FXI_OP_STOP] = fxi_ref_reshape,
    [FXI_OP_PERMUTE] = fxi_ref_permute, [FXI_OP_EXPAND] = fxi_ref_expand,
    [FXI_OP_SLICE] = fxi_ref_slice,     [FXI_OP_PAD] = fxi_ref_pad,
    [FXI_OP_CONCAT] = fxi_ref_concat,   [FXI_OP_REDUCE] = fxi_ref_reduce,
    [FXI_OP_CUMSUM] = fxi_ref_cumsum,   [FXI_OP_GATHER] = fxi_ref_gather,
    [FXI_OP_SCATTER] = fxi_ref_scatter, [FXI_OP_MATMUL] = fxi_ref_matmul,
    [FXI_OP_CONV] = fxi_ref_conv,       [FXI_OP_POOL] = fxi_ref_pool,
    [FXI_OP_CUSTOM] = fxi_run_custom,
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
