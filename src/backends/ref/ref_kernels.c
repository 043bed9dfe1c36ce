/* ref_kernels.c: runs a step with the ref backend: a table from operation to function.
 *
 * Elementwise operations share the interpreter of register programs. Other operations have a
 * function, unless they never become steps of this backend: LEAF and CONST are values; the library
 * runs TRANSFER; the planner replaces OWN_GRADIENT by a copy of its last input; ATTENTION is only
 * for backends with a kernel for it.
 */
#include "ref_kernels.h"

static const fxi_kernel kernels[FX_OP_COUNT] = {
    [FX_OP_IOTA] = fxi_ref_iota,       [FX_OP_RANDOM] = fxi_ref_random,
    [FX_OP_RESHAPE] = fxi_ref_reshape, [FX_OP_STOP] = fxi_ref_reshape,
    [FX_OP_PERMUTE] = fxi_ref_permute, [FX_OP_EXPAND] = fxi_ref_expand,
    [FX_OP_SLICE] = fxi_ref_slice,     [FX_OP_PAD] = fxi_ref_pad,
    [FX_OP_CONCAT] = fxi_ref_concat,   [FX_OP_REDUCE] = fxi_ref_reduce,
    [FX_OP_CUMSUM] = fxi_ref_cumsum,   [FX_OP_GATHER] = fxi_ref_gather,
    [FX_OP_SCATTER] = fxi_ref_scatter, [FX_OP_MATMUL] = fxi_ref_matmul,
    [FX_OP_CONV] = fxi_ref_conv,       [FX_OP_POOL] = fxi_ref_pool,
    [FX_OP_CUSTOM] = fxi_run_custom,   [FX_OP_COLLECTIVE] = fxi_run_collective,
};

fx_status fxi_ref_run_step(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    if (step->cls == FX_CLASS_ELEMENTWISE)
        return fxi_ref_elementwise(step, in, out, run);
    const fxi_kernel kernel = step->op < FX_OP_COUNT ? kernels[step->op] : NULL;
    if (!kernel) {
        return fx_fail(FX_STATUS_UNSUPPORTED, step->op < FX_OP_COUNT ? fxi_ops[step->op].name : "?",
                       "not an operation of the ref backend");
    }
    return kernel(step, in, out, run);
}
