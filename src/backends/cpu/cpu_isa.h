/* cpu_isa.h: the text of all inner loops, included once by each cpu_isa_*.c, which defines
 *   FXI_ISA_NAME, FXI_ISA_LABEL   the exported table and its name for people
 *   FXI_VECTOR_BYTES              size of a vector register
 *   FXI_GEMM_NR, FXI_GEMM_STEP    columns of the matrix product's register tile, and what narrower
 *                                 tiles' columns are multiples of
 *   FXI_FMA_F32/F64(a, b, c)      a·b + c on vectors, FXI_FMA1_… on numbers; fused or not, alike
 *   FXI_FUSED                     defined where FXI_FMA… rounds once
 *   FXI_MASK_…, FXI_PART_…, …     optional: masks and choices in the processor's own way (see
 *                                 cpu_isa_math.h, cpu_isa_gemm.h)
 * Everything in here is static but the table. Functions of numbers (cpu_isa_math.h,
 * cpu_isa_wide.h) and the matrix product (cpu_isa_gemm.h) are written with vector types; plain
 * loops are left to the compiler, which is told by FXI_IVDEP that they carry nothing from one
 * element to the next even when d is an input.
 */
#include "cpu_simd.h"
#include "cpu_convert.h"
#include <math.h>
#include <float.h>

#if defined(__clang__)
#define FXI_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define FXI_IVDEP _Pragma("GCC ivdep")
#endif

#include "cpu_isa_math.h"
#include "cpu_isa_wide.h"
#include "cpu_isa_ops.h"
#include "cpu_isa_reduce.h"
#include "cpu_isa_gemm.h"
#include "cpu_isa_conv.h"
#include "cpu_isa_pool.h"
#include "cpu_isa_pool_last.h"

const fxi_simd FXI_ISA_NAME = {
    .name = FXI_ISA_LABEL,
    .ops = tile_ops,
    .mixed = tile_mixed,
    .cast = tile_casts,
    .cast_odd = tile_odd,
    .round = tile_round,
    .load = tile_load,
    .store = tile_store,
    .stream = stream,
    .stream_end = stream_end,
    .reduce = tile_reducers,
    .sum_wide = &sum_wide,
    .sum_of_sqdev = &sum_of_sqdev,
    .gemm = tile_gemm,
    .conv = tile_conv,
    .pool = tile_pool,
    .pool_last = tile_pool_last,
};
