// HIP, behind the text cuda_and_hip of cuda.cl: see prelude.cl. Uses built-ins of the compiler and
// names of the device library, so it needs no header. hipRTC includes one, which does not conflict.
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
// Reals are exchanged: an atomic addition of reals needs a device and memory that this text does not
// know.
#define FX_ADD_u32(p, v) ((void)__atomic_fetch_add(p, (fx_u32)(v), __ATOMIC_RELAXED))
#define FX_ADD_u64(p, v) ((void)__atomic_fetch_add(p, (fx_u64)(v), __ATOMIC_RELAXED))
FX_FN fx_u32 fx_cas32(fx_u32 *p, fx_u32 o, fx_u32 n) { __atomic_compare_exchange_n(p, &o, n, \
    false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); return o; }
FX_FN fx_u64 fx_cas64(fx_u64 *p, fx_u64 o, fx_u64 n) { __atomic_compare_exchange_n(p, &o, n, \
    false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); return o; }
#define FX_HALF_IN
FX_FN fx_f32 fx_f16_in(fx_u16 h) { return (fx_f32)__builtin_bit_cast(_Float16, h); }
FX_FN fx_u16 fx_f16_out(fx_f32 x) { return __builtin_bit_cast(fx_u16, (_Float16)x); }
