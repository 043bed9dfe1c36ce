/* cpu_isa.h: the inner loops of all kernels, written once and compiled once for each instruction
 * set. Each cpu_isa_*.c first defines these macros and then includes this file:
 *   FXI_ISA_NAME, FXI_ISA_LABEL   the exported table, and its name in FX_CPU_ISA and reports
 *   FXI_VECTOR_BYTES              size of a vector register
 *   FXI_GEMM_NR, FXI_GEMM_UNIT    columns of the matrix product's register tile, and the number of
 *                                 which the widths of narrower tiles are multiples
 *   FXI_FMA_F32/F64(a, b, c)      a·b + c on vectors, FXI_FMA1_… on single numbers; either both are
 *                                 fused or neither, so that edges of arrays give the same bits
 *   FXI_FUSED                     defined where FXI_FMA… rounds once
 *   FXI_MASK_…, FXI_PART_…, …     optional: masks and choices as instructions of the processor (see
 *                                 cpu_isa_math.h, cpu_isa_gemm.h, cpu_isa_conv_masked.h)
 * Everything here except the table is static: the linker keeps one copy of an inline function with
 * external linkage, and that copy could use AVX-512 on a machine without it. Mathematical functions
 * (cpu_isa_math.h, cpu_isa_wide.h, cpu_isa_double.h) and the matrix product (cpu_isa_gemm.h) are
 * written with vector types. Plain loops are left to the compiler; FXI_IVDEP tells it that no
 * element depends on an earlier one, even where the output is an input's memory.
 */
#include "cpu_simd.h"
#include "half.h"
#include <math.h>
#include <float.h>

#define FXI_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define FXI_IVDEP  _Pragma("clang loop vectorize(assume_safety)")
#define FXI_UNROLL _Pragma("clang loop unroll(full)")
#else
#define FXI_IVDEP  _Pragma("GCC ivdep")
/* gcc then unrolls a loop of constant length completely, also one of 24 rounds. */
#define FXI_UNROLL _Pragma("GCC unroll 16")
#endif
/* Four vectors a round: the one or two instructions of most elementwise loops take less time than
 * counting the rounds. */
#if defined(__clang__)
#define FXI_FOUR
#else
#define FXI_FOUR _Pragma("GCC unroll 4")
#endif
/* The number of vectors whose instructions the compiler interleaves in a loop over a function
 * (FXI_VECTOR_LOOP). gcc interleaves them only if it may order instructions before it chooses
 * registers; clang 14 never does. */
#if defined(__clang__)
#define FXI_INTERLEAVE
#define FXI_INTERLEAVED 1
#else
#define FXI_INTERLEAVE  __attribute__((optimize("schedule-insns")))
#define FXI_INTERLEAVED 3
#endif

#include "cpu_isa_math.h"
#include "cpu_isa_wide.h"
#include "cpu_isa_double.h"
#include "cpu_isa_ops.h"
#include "cpu_isa_reduce.h"
#include "cpu_isa_fused.h"
#include "cpu_isa_transpose.h"
#include "cpu_isa_gemm.h"
#include "cpu_isa_gemv.h"
#include "cpu_isa_attention.h"
#include "cpu_isa_conv.h"
#include "cpu_isa_winograd.h"
#include "cpu_isa_conv_masked.h"
#include "cpu_isa_pool.h"
#include "cpu_isa_pool_channels_last.h"
#include "cpu_isa_random.h"
#include "cpu_isa_mask.h"
#include "cpu_isa_scan.h"

const fxi_simd FXI_ISA_NAME = {
    .name = FXI_ISA_LABEL,
    .ops = tile_ops,
    .mixed = tile_mixed,
    .pairs = tile_pairs,
    .fused = &tile_fused,
    .cast = tile_casts,
    .cast_odd = tile_odd,
    .round = tile_round,
    .load = tile_load,
    .store = tile_store,
    .stream = stream,
    .stream_end = stream_end,
    .streamed = tile_streamed,
    .reduce = tile_reducers,
    .sum_wide = &sum_wide,
    .sum_of_sqdev = &sum_of_sqdev,
    .gemm = tile_gemm,
    .gemv = tile_gemv,
    .attention = &tile_attention,
    .conv = tile_conv,
    .conv_masked = FXI_CONV_MASKED,
    .winograd = &tile_winograd,
    .pool = tile_pool,
    .pool_channels_last = tile_pool_channels_last,
    .random = &tile_random,
    .mask_count = mask_count,
    .mask_run = mask_run,
    .mask_list = mask_list,
    .scan = tile_scan,
    .transpose = FXI_TRANSPOSES,
};
