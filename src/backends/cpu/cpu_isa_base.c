/* cpu_isa_base.c: the loops of cpu_isa.h for the instructions that every machine of the
 * architecture has, in 16-byte vectors. On x86-64 that is SSE2, which has no fused multiply-add:
 * each product is rounded before it is added. On 64-bit ARM it is NEON, which has one.
 */
#define FXI_ISA_NAME     fxi_simd_base
#define FXI_ISA_LABEL    "base"
#define FXI_VECTOR_BYTES 16
#define FXI_GEMM_NR      4
#define FXI_GEMM_UNIT    2
#if defined(__aarch64__)
#include <arm_neon.h>
/* NEON's instruction adds to its first operand, so c comes first. */
#define FXI_FMA_F32(a, b, c) ((vf)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define FXI_FMA_F64(a, b, c) ((vd)vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b)))
#define FXI_FUSED
#define FXI_FMA1_F32(a, b, c) __builtin_fmaf((a), (b), (c))
#define FXI_FMA1_F64(a, b, c) __builtin_fma((a), (b), (c))
#define FXI_MUL_LOW(a, b)     ((vl)vmull_u32(vmovn_u64((uint64x2_t)(a)), vmovn_u64((uint64x2_t)(b))))
#else
/* Two roundings for vectors and for single numbers alike, so that the ends of arrays give the same
 * bits. */
#define FXI_FMA_F32(a, b, c)  ((a) * (b) + (c))
#define FXI_FMA_F64(a, b, c)  ((a) * (b) + (c))
#define FXI_FMA1_F32(a, b, c) ((a) * (b) + (c))
#define FXI_FMA1_F64(a, b, c) ((a) * (b) + (c))
#endif
#if defined(__SSE2__)
#include <emmintrin.h>
#define FXI_MIN_F32(a, b) ((vf)_mm_min_ps((__m128)(a), (__m128)(b)))
#define FXI_MAX_F32(a, b) ((vf)_mm_max_ps((__m128)(a), (__m128)(b)))
#define FXI_MIN_F64(a, b) ((vd)_mm_min_pd((__m128d)(a), (__m128d)(b)))
#define FXI_MAX_F64(a, b) ((vd)_mm_max_pd((__m128d)(a), (__m128d)(b)))
#define FXI_MUL_LOW(a, b) ((vl)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#endif
#include "cpu_isa.h"
