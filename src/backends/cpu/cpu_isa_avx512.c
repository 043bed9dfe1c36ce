/* cpu_isa_avx512.c: the loops of cpu_isa.h for x86-64 with AVX-512 (F, BW, DQ, VL): 64-byte vectors
 * and a register tile of 32×12 Float32, which 32 vector registers hold with room for the operands.
 */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))),    \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")
#endif
#include <immintrin.h>
#define FXI_ISA_NAME          fxi_simd_avx512
#define FXI_ISA_LABEL         "avx512"
#define FXI_VECTOR_BYTES      64
#define FXI_GEMM_NR           12
#define FXI_FMA_F32(a, b, c)  ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define FXI_FMA_F64(a, b, c)  ((vd)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#define FXI_FMA1_F32(a, b, c) __builtin_fmaf((a), (b), (c))
#define FXI_FMA1_F64(a, b, c) __builtin_fma((a), (b), (c))
#include "cpu_isa.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
#include "cpu_simd.h"
#endif
