// HIP, appended to the text cuda_and_hip of cuda.cl: see prelude.cl. Uses built-ins of the compiler
// and names of the device library, so it needs no header. hipRTC includes one by itself, without a
// conflict.
//// hip
typedef fx_u32 fx_v16 __attribute__((vector_size(16), may_alias));
typedef fx_u32 fx_v8 __attribute__((vector_size(8), may_alias));
#define FX_DEVICE __attribute__((device))
#define FX_LOCAL(T, s, n) static __attribute__((shared, aligned(@vector@))) T s[n]
// A barrier alone does not make writes to local memory visible: the fences do.
#define FX_BARRIER (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), \
    __builtin_amdgcn_s_barrier(), __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
#define fx_shuffle(v, item) \
    ((fx_u32)__builtin_amdgcn_ds_bpermute(((item) & (FX_WARP - 1)) << 2, (fx_i32)(v)))
#define FX_FN static FX_DEVICE inline
#define FX_KERNEL extern "C" __attribute__((global)) \
    __attribute__((amdgpu_flat_work_group_size(FX_GROUP, FX_GROUP))) void
#define FX_ITEM ((fx_int)__builtin_amdgcn_workitem_id_x())
#define FX_GROUP_X ((fx_int)__builtin_amdgcn_workgroup_id_x())
#define FX_GROUP_Y ((fx_int)__builtin_amdgcn_workgroup_id_y())
#define FX_GROUP_Z ((fx_int)__builtin_amdgcn_workgroup_id_z())
#define FX_F32(f) __ocml_##f##_f32
#define FX_UNROLL _Pragma("unroll")
#define FX_LOOP _Pragma("unroll 1")
FX_FN fx_f32 fx_mad(fx_f32 x, fx_f32 y, fx_f32 z) { return __builtin_fmaf(x, y, z); }
FX_FN fx_f64 fx_mad(fx_f64 x, fx_f64 y, fx_f64 z) { return __builtin_fma(x, y, z); }
#define FX_MAD(x, y, z) fx_mad(x, y, z)
#define FX_F64(f) __ocml_##f##_f64
#define FX_FUNCTION(f) extern "C" FX_DEVICE float FX_F32(f)(float); \
    extern "C" FX_DEVICE double FX_F64(f)(double);
FX_FUNCTION(exp) FX_FUNCTION(expm1) FX_FUNCTION(log) FX_FUNCTION(log1p) FX_FUNCTION(sqrt)
FX_FUNCTION(sin) FX_FUNCTION(cos) FX_FUNCTION(tanh) FX_FUNCTION(erf) FX_FUNCTION(floor)
FX_FUNCTION(fabs)
#define FX_FUNCTION2(f) extern "C" FX_DEVICE float FX_F32(f)(float, float); \
    extern "C" FX_DEVICE double FX_F64(f)(double, double);
FX_FUNCTION2(pow) FX_FUNCTION2(atan2) FX_FUNCTION2(fmod)
#define fx_bits(x) __builtin_bit_cast(fx_u32, x)
#define fx_float(u) __builtin_bit_cast(fx_f32, (fx_u32)(u))
#define fx_bits64(x) __builtin_bit_cast(fx_u64, x)
#define fx_double(u) __builtin_bit_cast(fx_f64, (fx_u64)(u))
// Reals are added by compare and swap: whether the device can add them atomically depends on its
// architecture and on the kind of memory, and this text does not know the kind of memory.
#define FX_ADD_u32(p, v) ((void)__atomic_fetch_add(p, (fx_u32)(v), __ATOMIC_RELAXED))
#define FX_ADD_u64(p, v) ((void)__atomic_fetch_add(p, (fx_u64)(v), __ATOMIC_RELAXED))
FX_FN fx_u32 fx_cas32(fx_u32 *p, fx_u32 o, fx_u32 n) { __atomic_compare_exchange_n(p, &o, n, \
    false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); return o; }
FX_FN fx_u64 fx_cas64(fx_u64 *p, fx_u64 o, fx_u64 n) { __atomic_compare_exchange_n(p, &o, n, \
    false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); return o; }
#define FX_HALF_IN
FX_FN fx_f32 fx_f16_in(fx_u16 h) { return (fx_f32)__builtin_bit_cast(_Float16, h); }
FX_FN fx_u16 fx_f16_out(fx_f32 x) { return __builtin_bit_cast(fx_u16, (_Float16)x); }
// All work-items of a wavefront together compute a cell of 16 rows, 16 columns and 16 terms: see
// matrix.cl. AMD's manuals of instruction sets say which elements each work-item holds. On gfx90a
// these instructions treat denormal 16-bit numbers as zeros. That matters for Float16 only, so
// gfx90a computes Float16 without them.
#if FX_WARP == 64 && (defined __gfx90a__ || defined __gfx940__ || defined __gfx941__ || \
    defined __gfx942__ || defined __gfx950__)
#define FX_CELL_bf16
#ifndef __gfx90a__
#define FX_CELL_f16
#endif
#define FX_CELL_SUMS 4
typedef short fx_cell_bf16 __attribute__((vector_size(8)));
typedef _Float16 fx_cell_f16 __attribute__((vector_size(8)));
typedef fx_v8 fx_cell_a;
typedef fx_f32 fx_cell_sums __attribute__((vector_size(16)));
#define FX_CELL_ROW(lane, i) ((lane) / 16 * 4 + (i))
#define FX_CELL_A(p, s, words, lane) \
    { p = *(const fx_cell_a *)((s) + (lane) % 16 * (words) + (lane) / 16 * 2); }
#define fx_cell_call_f16(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0)
#define fx_cell_call_bf16(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0)
#elif FX_WARP == 32 && defined __GFX11__
#define FX_CELL_bf16
#define FX_CELL_f16
#define FX_CELL_SUMS 8
typedef short fx_cell_bf16 __attribute__((vector_size(32)));
typedef _Float16 fx_cell_f16 __attribute__((vector_size(32)));
typedef struct { fx_v16 v[2]; } fx_cell_a;
typedef fx_f32 fx_cell_sums __attribute__((vector_size(32)));
#define FX_CELL_ROW(lane, i) ((i) * 2 + (lane) / 16)
#define FX_CELL_A(p, s, words, lane) \
    { const fx_v16 *at = (const fx_v16 *)((s) + (lane) % 16 * (words)); p.v[0] = at[0]; p.v[1] = at[1]; }
#define fx_cell_call_f16(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c)
#define fx_cell_call_bf16(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c)
#endif
#ifdef FX_CELL_bf16
#define FX_CELL_COLUMNS 16
typedef fx_cell_a fx_cell_b;
typedef struct { fx_cell_sums v; } fx_cell_c;
#define FX_CELL_COLUMN(lane, i) ((lane) % 16)
#define FX_CELL_B(p, s, words, lane) FX_CELL_A(p, s, words, lane)
#define FX_CELL(type, c, a, b) (c).v = fx_cell_call_##type( \
    __builtin_bit_cast(fx_cell_##type, a), __builtin_bit_cast(fx_cell_##type, b), (c).v)
#endif
