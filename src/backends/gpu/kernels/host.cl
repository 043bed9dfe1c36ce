// C11, for tests: see prelude.cl. The test that runs a kernel defines the position of the work-item
// and the barrier.
//// host
#include <math.h>
#include <stdint.h>
typedef float fx_f32; typedef double fx_f64; typedef int32_t fx_i32; typedef int64_t fx_i64;
typedef uint8_t fx_u8; typedef uint16_t fx_u16; typedef uint32_t fx_u32;
typedef uint64_t fx_u64;
typedef fx_u32 fx_v16 __attribute__((vector_size(16), may_alias));
typedef fx_u32 fx_v8 __attribute__((vector_size(8), may_alias));
typedef fx_u32 fx_v4 __attribute__((may_alias));
typedef fx_u16 fx_v2 __attribute__((may_alias)); typedef fx_u8 fx_v1;
#define FX_ADDRESS(x) ((fx_u32)(uintptr_t)(x))
extern uint32_t fx_host_item, fx_host_group[3];
extern void (*fx_host_barrier)(void);
extern fx_u32 (*fx_host_shuffle)(fx_u32 v, fx_u32 item);
#define fx_shuffle(v, item) fx_host_shuffle(v, (fx_u32)((item) & (FX_WARP - 1)))
#define FX_GLOBAL
#define FX_SHARED
// Groups run one after another, so one array serves all of them.
#define FX_LOCAL(T, s, n) static T s[n]
#define FX_BARRIER fx_host_barrier()
#define FX_FN static inline
#define FX_KERNEL void
#define FX_B(k) void *fx_b##k
#define FX_ARGS const fx_params *fx_p
#define FX_USE(k, T, x) T *x = (T *)fx_b##k;
#define FX_TABLE const fx_table *fx_t
#define FX_ENTRY(k) (fx_t->v[k])
#define P(k) (fx_p->v[k])
#define FX_ITEM ((fx_int)fx_host_item)
#define FX_GROUP_X ((fx_int)fx_host_group[0])
#define FX_GROUP_Y ((fx_int)fx_host_group[1])
#define FX_GROUP_Z ((fx_int)fx_host_group[2])
#define FX_F32(name) name##f
#define FX_F64(f) f
#define FX_UNROLL
#define FX_LOOP
#define FX_MAD(x, y, z) ((x) * (y) + (z))
#define FX_FMA(x, y, z) fmaf(x, y, z)
FX_FN fx_u32 fx_bits(fx_f32 x) { union { fx_f32 f; fx_u32 u; } v = {x}; return v.u; }
FX_FN fx_f32 fx_float(fx_u32 x) { union { fx_u32 u; fx_f32 f; } v = {x}; return v.f; }
FX_FN fx_u64 fx_bits64(fx_f64 x) { union { fx_f64 f; fx_u64 u; } v = {x}; return v.u; }
FX_FN fx_f64 fx_double(fx_u64 x) { union { fx_u64 u; fx_f64 f; } v = {x}; return v.f; }
#define FX_ADD_f32(p, v) (*(p) = fx_bits(fx_float(*(p)) + (v)))
#define FX_ADD_f64(p, v) (*(p) = fx_bits64(fx_double(*(p)) + (v)))
#define FX_ADD_u32(p, v) (*(p) += (fx_u32)(v))
#define FX_ADD_u64(p, v) (*(p) += (fx_u64)(v))
FX_FN fx_u32 fx_cas32(fx_u32 *p, fx_u32 o, fx_u32 n)
{ const fx_u32 was = *p; if (was == o) *p = n; return was; }
FX_FN fx_u64 fx_cas64(fx_u64 *p, fx_u64 o, fx_u64 n)
{ const fx_u64 was = *p; if (was == o) *p = n; return was; }
