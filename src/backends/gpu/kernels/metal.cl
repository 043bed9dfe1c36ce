// Metal 3.0: see prelude.cl. There is no Float64; erf, expm1 and log1p are our own, further down.
//
// A kernel has at most 31 buffers, so one buffer holds the parameters and the offsets of all other
// buffers. Metal can also bind a buffer at an offset, but only at a multiple of 4 or more bytes,
// and a view may begin at any byte. FX_KERNEL states the size of a group, because the compiler may
// otherwise use more registers than a group of FX_GROUP work-items can have.
//// metal
#ifndef FX_METAL_STUB
#include <metal_stdlib>
using namespace metal;
// As in OpenCL C: results are those of the expressions in op.def.
#pragma METAL fp contract(off)
#endif
typedef float fx_f32; typedef int fx_i32; typedef long fx_i64; typedef uchar fx_u8;
typedef ushort fx_u16; typedef uint fx_u32; typedef ulong fx_u64;
typedef uint4 fx_v16; typedef uint2 fx_v8; typedef uint fx_v4;
typedef ushort fx_v2; typedef uchar fx_v1;
#define FX_ADDRESS(x) ((fx_u32)(fx_u64)(x))
#define FX_GLOBAL device
#define FX_SHARED threadgroup
#ifndef FX_LOCAL
#define FX_LOCAL(T, s, n) alignas(@vector@) threadgroup T s[n]
#endif
#define FX_BARRIER threadgroup_barrier(mem_flags::mem_threadgroup)
#define fx_shuffle(v, item) simd_shuffle(v, (fx_u16)((item) & (FX_WARP - 1)))
#define FX_FN static inline
#define FX_KERNEL [[kernel, max_total_threads_per_threadgroup(FX_GROUP)]] void
#define FX_B(k) device uchar *fx_b##k
template <class O, class P> struct fx_both { O offset; P value; };
#define FX_ARGS constant fx_both<fx_offsets, fx_params> &fx_all, uint3 fx_g [[threadgroup_position_in_grid]], \
    uint fx_t [[thread_index_in_threadgroup]]
#define fx_p fx_all.value
#define fx_o fx_all.offset
#define FX_USE(k, T, x) device T *x = (device T *)(fx_b##k + fx_o.v[k]);
#define P(k) (fx_p.v[k])
#define FX_ITEM ((fx_int)fx_t)
#define FX_GROUP_X ((fx_int)fx_g.x)
#define FX_GROUP_Y ((fx_int)fx_g.y)
#define FX_GROUP_Z ((fx_int)fx_g.z)
#define FX_F32(f) fx_own_##f
#define FX_UNROLL _Pragma("unroll")
#define FX_LOOP _Pragma("unroll 1")
#define FX_MAD(x, y, z) fma(x, y, z)
#define FX_FUNCTION(f) \
    static inline fx_f32 fx_own_##f(fx_f32 x) { return precise::f(x); }
FX_FUNCTION(exp) FX_FUNCTION(log) FX_FUNCTION(sqrt) FX_FUNCTION(sin) FX_FUNCTION(cos)
FX_FUNCTION(tanh) FX_FUNCTION(floor) FX_FUNCTION(fabs)
static inline fx_f32 fx_own_pow(fx_f32 x, fx_f32 y) { return precise::pow(x, y); }
static inline fx_f32 fx_own_fmod(fx_f32 x, fx_f32 y) { return precise::fmod(x, y); }
static inline fx_f32 fx_own_atan2(fx_f32 y, fx_f32 x) { return precise::atan2(y, x); }
#define fx_bits(x) as_type<fx_u32>(x)
#define fx_float(u) as_type<fx_f32>((fx_u32)(u))
#define FX_ADD_u32(p, v) ((void)atomic_fetch_add_explicit((device atomic_uint *)(p), (fx_u32)(v), \
    memory_order_relaxed))
#ifdef FX_HAS_ATOMIC_F32
#define FX_ADD_f32(p, v) ((void)atomic_fetch_add_explicit((device atomic_float *)(p), (fx_f32)(v), \
    memory_order_relaxed))
#endif
// The weak exchange may fail without a reason, so it is repeated while the value is the old one.
static inline fx_u32 fx_cas32(device fx_u32 *p, fx_u32 o, fx_u32 n) {
    fx_u32 e = o;
    while (!atomic_compare_exchange_weak_explicit((device atomic_uint *)p, &e, n,
        memory_order_relaxed, memory_order_relaxed) && e == o) {}
    return e; }
#define FX_HALF_IN
static inline fx_f32 fx_f16_in(fx_u16 h) { return (fx_f32)as_type<half>(h); }
static inline fx_u16 fx_f16_out(fx_f32 x) { return as_type<fx_u16>((half)x); }

// expm1 and erf with the CPU's polynomials; log1p as log(u)·x/(u − 1) (HP-15C handbook).
//// metal_functions
static inline fx_f32 fx_own_expm1(fx_f32 x) {
    // Far from 0 nothing cancels. NaN takes this path too.
    if (!(precise::fabs(x) < 0.35f)) return precise::exp(x) - 1.0f;
    fx_f32 p = 0.000199156231f;
    p = p * x + 0.00139420456f; p = p * x + 0.00833327044f; p = p * x + 0.0416663438f;
    p = p * x + 0.166666672f; p = p * x + 0.5f;
    return p * (x * x) + x; }
static inline fx_f32 fx_own_log1p(fx_f32 x) {
    const fx_f32 u = 1.0f + x;
    if (u == 1.0f || x != x) return x;
    return u > 3.0e38f ? precise::log(u) : precise::log(u) * (x / (u - 1.0f)); }
static inline fx_f32 fx_own_erf(fx_f32 x) {
    const fx_f32 a = precise::fabs(x), z = x * x;
    if (a < 1.0f) {
        fx_f32 p = 7.85386073e-05f;
        p = p * z - 0.000801019371f; p = p * z + 0.00518832775f; p = p * z - 0.026853811f;
        p = p * z + 0.112835854f; p = p * z - 0.37612626f; p = p * z + 0.128379166f;
        return p * x + x; }
    if (x != x) return x;
    const fx_f32 b = a < 4.0f ? a : 4.0f;
    fx_f32 l = -2.16867375e-05f;
    l = l * b + 0.000441334996f; l = l * b - 0.00420455448f; l = l * b + 0.0252082366f;
    l = l * b - 0.108418539f; l = l * b - 0.633219898f; l = l * b - 1.12957835f;
    l = l * b + 0.000188036109f;
    const fx_f32 y = 1.0f - precise::exp(l);
    return x < 0.0f ? -y : y; }
