/* cpu_isa_avx512.c: the loops of cpu_isa.h for x86-64 with AVX-512 (F, BW, DQ, VL): 64-byte vectors
 * and a register tile of 32×12 Float32, whose 24 sums leave 8 of the 32 registers for the operands.
 * Masks are the processor's own mask registers (cpu_isa_math.h gives the reason). As in
 * cpu_isa_avx2.c, the pragmas precede every #include.
 */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))),    \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")
#endif
#include <immintrin.h>
#define FXI_ISA_NAME         fxi_simd_avx512
#define FXI_ISA_LABEL        "avx512"
#define FXI_VECTOR_BYTES     64
#define FXI_GEMM_NR          12
#define FXI_GEMM_UNIT        4
#define FXI_FMA_F32(a, b, c) ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define FXI_FMA_F64(a, b, c) ((vd)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#define FXI_FUSED
#define FXI_FMA1_F32(a, b, c) __builtin_fmaf((a), (b), (c))
#define FXI_FMA1_F64(a, b, c) __builtin_fma((a), (b), (c))
#define FXI_MASK_F32          __mmask16
#define FXI_MASK_F64          __mmask8
/* Ordered and quiet comparisons: false for NaN, as in C, and without an exception. */
#define FXI_LESS_F32(a, b)    _mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_LT_OQ)
#define FXI_SAME_F32(a, b)    _mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_EQ_OQ)
#define FXI_LESS_F64(a, b)    _mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_LT_OQ)
#define FXI_SAME_F64(a, b)    _mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_EQ_OQ)
#define FXI_ORDERED_F32(a, b) _mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_ORD_Q)
#define FXI_ORDERED_F64(a, b) _mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_ORD_Q)
/* The instruction chooses its second operand where the mask is set, so a and b are exchanged. */
#define FXI_PICK_F32(m, a, b) ((vf)_mm512_mask_blend_ps((m), (__m512)(b), (__m512)(a)))
#define FXI_PICK_F64(m, a, b) ((vd)_mm512_mask_blend_pd((m), (__m512d)(b), (__m512d)(a)))
#define FXI_MIN_F32(a, b)     ((vf)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define FXI_MAX_F32(a, b)     ((vf)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define FXI_MIN_F64(a, b)     ((vd)_mm512_min_pd((__m512d)(a), (__m512d)(b)))
#define FXI_MAX_F64(a, b)     ((vd)_mm512_max_pd((__m512d)(a), (__m512d)(b)))
/* A masked load or store does not touch memory where the mask is 0. */
typedef __mmask16 gemm_part_f32;
typedef __mmask8 gemm_part_f64;
#define FXI_PART_F32(n)             ((__mmask16)((1u << (n)) - 1))
#define FXI_PART_F64(n)             ((__mmask8)((1u << (n)) - 1))
#define FXI_LOAD_PART_F32(m, p)     ((vf)_mm512_maskz_loadu_ps(m, p))
#define FXI_LOAD_PART_F64(m, p)     ((vd)_mm512_maskz_loadu_pd(m, p))
#define FXI_STORE_PART_F32(m, p, v) _mm512_mask_storeu_ps(p, m, (__m512)(v))
#define FXI_STORE_PART_F64(m, p, v) _mm512_mask_storeu_pd(p, m, (__m512d)(v))
/* FXI_LANES: the mask with these bits. FXI_ADD_LANES: c + a·b in the lanes of the mask, c in the
 * others, in one instruction. */
#define FXI_LANES_F32(bits) ((__mmask16)(bits))
#define FXI_LANES_COST      0
#define FXI_ADD_LANES_F32(m, a, b, c)                                                              \
    ((vf)_mm512_mask3_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c), m))
/* x·2ⁿ for whole n, rounded once: it underflows gradually and overflows to Inf. */
#define FXI_SCALE_F32(x, n) ((vf)_mm512_scalef_ps((__m512)(x), (__m512)(n)))
#define FXI_STREAM(p, v)    _mm512_stream_si512((__m512i *)(p), (__m512i)(v))
#define FXI_WIDE(h)         ((vd)_mm512_cvtps_pd((__m256)(h)))
#define FXI_NARROW(v)       ((vh)_mm512_cvtpd_ps((__m512d)(v)))
/* The true bytes of a block of 64 as bits. */
#define FXI_MASK_BITS(p) _mm512_cmpneq_epu8_mask(_mm512_loadu_si512(p), _mm512_setzero_si512())
/* Is a byte of the vector not 0? */
#define FXI_SOME(v) (_mm512_test_epi64_mask((__m512i)(v), (__m512i)(v)) != 0)
/* For Philox, as in cpu_isa_avx2.c: the product of lower halves needs no mask on its operands. */
#define FXI_MUL_LOW(a, b) ((vl)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define FXI_SWAP_LANES(a) ((vl)_mm512_shuffle_epi32((__m512i)(a), 0x4e))
#include "cpu_isa.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
#include "cpu_simd.h"
#endif
