/* cpu_isa_base.c: the loops of cpu_isa.h for what every machine of the architecture has (SSE2 on
 * x86-64, NEON on 64-bit ARM). 16-byte vectors and no fused multiply-add: products are rounded, so
 * that this build is also the portable yardstick for the others.
 */
#define FXI_ISA_NAME          fxi_simd_base
#define FXI_ISA_LABEL         "base"
#define FXI_VECTOR_BYTES      16
#define FXI_GEMM_NR           4
#define FXI_FMA_F32(a, b, c)  ((a) * (b) + (c))
#define FXI_FMA_F64(a, b, c)  ((a) * (b) + (c))
#define FXI_FMA1_F32(a, b, c) ((a) * (b) + (c))
#define FXI_FMA1_F64(a, b, c) ((a) * (b) + (c))
#include "cpu_isa.h"
