/* cpu_isa_base.c: the loops of cpu_isa.h for what every machine of the architecture has (SSE2 on
 * x86-64, NEON on 64-bit ARM). 16-byte vectors and no fused multiply-add: products are rounded, so
 * that this build is also the portable yardstick for the others.
 */
#define FXI_ISA_NAME          fxi_simd_base
#define FXI_ISA_LABEL         "base"
#define FXI_VECTOR_BYTES      16
#define FXI_GEMM_NR           4
#define FXI_GEMM_STEP         2
#define FXI_FMA_F32(a, b, c)  ((a) * (b) + (c))
#define FXI_FMA_F64(a, b, c)  ((a) * (b) + (c))
#define FXI_FMA1_F32(a, b, c) ((a) * (b) + (c))
#define FXI_FMA1_F64(a, b, c) ((a) * (b) + (c))
#if defined(__SSE2__)
#include <emmintrin.h>
#define FXI_MIN_F32(a, b) ((vf)_mm_min_ps((__m128)(a), (__m128)(b)))
#define FXI_MAX_F32(a, b) ((vf)_mm_max_ps((__m128)(a), (__m128)(b)))
#define FXI_MIN_F64(a, b) ((vd)_mm_min_pd((__m128d)(a), (__m128d)(b)))
#define FXI_MAX_F64(a, b) ((vd)_mm_max_pd((__m128d)(a), (__m128d)(b)))
#endif
#include "cpu_isa.h"
