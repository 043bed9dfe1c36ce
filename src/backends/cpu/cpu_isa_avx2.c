/* cpu_isa_avx2.c: the loops of cpu_isa.h for x86-64 with AVX2 and FMA: 32-byte vectors and a
 * register tile of 16×6 Float32, whose 12 sums leave 4 of the 16 registers for the operands. Fused
 * multiply-adds are called by name, because contraction is off: the compiler must not decide how
 * often a sum is rounded. The pragmas precede every #include so that inline functions are compiled
 * for the same instruction set.
 */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#include <immintrin.h>
#define FXI_ISA_NAME         fxi_simd_avx2
#define FXI_ISA_LABEL        "avx2"
#define FXI_VECTOR_BYTES     32
#define FXI_GEMM_NR          6
#define FXI_GEMM_UNIT        2
#define FXI_FMA_F32(a, b, c) ((vf)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define FXI_FMA_F64(a, b, c) ((vd)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#define FXI_FUSED
/* One instruction, because the target has FMA; for other targets it is a call of libm. */
#define FXI_FMA1_F32(a, b, c) __builtin_fmaf((a), (b), (c))
#define FXI_FMA1_F64(a, b, c) __builtin_fma((a), (b), (c))
/* The instruction chooses its second operand where the mask is set, so a and b are exchanged. */
#define FXI_PICK_F32(m, a, b) ((vf)_mm256_blendv_ps((__m256)(b), (__m256)(a), (__m256)(m)))
#define FXI_PICK_F64(m, a, b) ((vd)_mm256_blendv_pd((__m256d)(b), (__m256d)(a), (__m256d)(m)))
#define FXI_ORDERED_F32(a, b) ((vi)_mm256_cmp_ps((__m256)(a), (__m256)(b), _CMP_ORD_Q))
#define FXI_ORDERED_F64(a, b) ((vl)_mm256_cmp_pd((__m256d)(a), (__m256d)(b), _CMP_ORD_Q))
#define FXI_MIN_F32(a, b)     ((vf)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define FXI_MAX_F32(a, b)     ((vf)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define FXI_MIN_F64(a, b)     ((vd)_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#define FXI_MAX_F64(a, b)     ((vd)_mm256_max_pd((__m256d)(a), (__m256d)(b)))
typedef __m256i gemm_part_f32, gemm_part_f64;
/* Lanes below n: AVX2 has no registers for masks, so a mask is a vector of integers. */
#define FXI_PART_F32(n)                                                                            \
    _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#define FXI_PART_F64(n)             _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3))
#define FXI_LOAD_PART_F32(m, p)     ((vf)_mm256_maskload_ps(p, m))
#define FXI_LOAD_PART_F64(m, p)     ((vd)_mm256_maskload_pd(p, m))
#define FXI_STORE_PART_F32(m, p, v) _mm256_maskstore_ps(p, m, (__m256)(v))
#define FXI_STORE_PART_F64(m, p, v) _mm256_maskstore_pd(p, m, (__m256d)(v))
/* FXI_LANES: the mask with these bits. FXI_ADD_LANES: c + a·b in the lanes of the mask, c in the
 * others; the choice is an instruction of its own. */
#define FXI_LANES_F32(bits)                                                                        \
    _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)(bits)),                            \
                                        _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128)),           \
                       _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128))
#define FXI_LANES_COST                1
#define FXI_ADD_LANES_F32(m, a, b, c) FXI_PICK_F32(m, FXI_FMA_F32(a, b, c), c)
#define FXI_STREAM(p, v)              _mm256_stream_si256((__m256i *)(p), (__m256i)(v))
/* Conversions in one instruction. gcc 12 converts its own vector types in two halves. */
#define FXI_WIDE(h)   ((vd)_mm256_cvtps_pd((__m128)(h)))
#define FXI_NARROW(v) ((vh)_mm256_cvtpd_ps((__m256d)(v)))
/* Is a byte of the vector not 0? */
#define FXI_SOME(v) (!_mm256_testz_si256((__m256i)(v), (__m256i)(v)))
/* For Philox (cpu_isa_random.h). AVX2 cannot multiply lanes of 64 bits, but it has the product of
 * their lower halves. 0x4e exchanges the two lanes of each 16 bytes. */
#define FXI_MUL_LOW(a, b) ((vl)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define FXI_SWAP_LANES(a) ((vl)_mm256_shuffle_epi32((__m256i)(a), 0x4e))
#include "cpu_isa.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
#include "cpu_simd.h"
#endif
