// OpenCL C 1.2: see prelude.cl.
//// opencl
// No fused multiply-add by the compiler: results are those of the expressions in op.def.
#pragma OPENCL FP_CONTRACT OFF
typedef float fx_f32; typedef int fx_i32; typedef long fx_i64; typedef uchar fx_u8;
typedef ushort fx_u16; typedef uint fx_u32; typedef ulong fx_u64;
typedef uint4 fx_v16; typedef uint2 fx_v8; typedef uint fx_v4;
typedef ushort fx_v2; typedef uchar fx_v1;
#define FX_ADDRESS(x) ((fx_u32)(uintptr_t)(x))
#define FX_GLOBAL __global
#define FX_SHARED __local
#define FX_LOCAL(T, s, n) __local T s[n] __attribute__((aligned(@vector@)))
#define FX_BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define FX_FN static
#define FX_KERNEL __kernel __attribute__((reqd_work_group_size(FX_GROUP, 1, 1))) void
#define FX_B(k) __global void *fx_b##k
#define FX_ARGS const fx_params fx_p, const fx_offsets fx_o
// Buffers have no addresses in OpenCL 1.2: the byte offset of the view is an argument.
#define FX_USE(k, T, x) __global T *x = (__global T *)((__global char *)fx_b##k + fx_o.v[k]);
#define P(k) (fx_p.v[k])
#define FX_ITEM ((fx_int)get_local_id(0))
#define FX_GROUP_X ((fx_int)get_group_id(0))
#define FX_GROUP_Y ((fx_int)get_group_id(1))
#define FX_GROUP_Z ((fx_int)get_group_id(2))
#define FX_F32(f) f
#define FX_UNROLL _Pragma("unroll")
#define FX_LOOP _Pragma("unroll 1")
#define FX_MAD(x, y, z) fma(x, y, z)
// Written without a mask: the compiler would leave the mask out where the lower half of y is 0, for
// example after a relu, and then NVIDIA's assembler turns the relu into a maximum, whose NaN has a
// lower half.
#define FX_UPPER_HALVES(x, y) as_uint((ushort2)((ushort)((x) >> 16), (ushort)((y) >> 16)))
#define fx_bits(x) as_uint(x)
#define fx_float(u) as_float(u)
#define FX_ADD_u32(p, v) ((void)atomic_add((volatile __global uint *)(p), (uint)(v)))
#define fx_cas32(p, old, new) atomic_cmpxchg((volatile __global uint *)(p), old, new)
// Types and functions of 64 bits exist only where the device has them.
#ifdef FX_HAS_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double fx_f64;
#define FX_F64(f) f
#define fx_bits64(x) as_ulong(x)
#define fx_double(u) as_double(u)
#endif
#ifdef FX_HAS_ATOMIC64
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#define FX_ADD_u64(p, v) ((void)atom_add((volatile __global ulong *)(p), (ulong)(v)))
#define fx_cas64(p, old, new) atom_cmpxchg((volatile __global ulong *)(p), old, new)
#endif
#define FX_HALF_IN
static fx_f32 fx_f16_in(fx_u16 h) { return vload_half(0, (const half *)&h); }
static fx_u16 fx_f16_out(fx_f32 x) { fx_u16 h; vstore_half_rte(x, 0, (half *)&h); return h; }
