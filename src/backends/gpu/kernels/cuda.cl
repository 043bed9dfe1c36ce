// CUDA, and definitions that it shares with HIP: see prelude.cl.
//// cuda_and_hip
typedef float fx_f32; typedef int fx_i32; typedef long long fx_i64;
typedef unsigned char fx_u8; typedef unsigned short fx_u16; typedef unsigned fx_u32;
typedef unsigned long long fx_u64; typedef double fx_f64;
typedef fx_u32 fx_v4; typedef fx_u16 fx_v2; typedef fx_u8 fx_v1;
#define FX_ADDRESS(x) ((fx_u32)(fx_u64)(x))
#define FX_GLOBAL
#define FX_SHARED
#define FX_B(k) void *fx_b##k
#define FX_ARGS const fx_params fx_p
#define FX_USE(k, T, x) T *x = (T *)fx_b##k;
#define FX_TABLE const fx_table fx_t
#define FX_ENTRY(k) (fx_t.v[k])
#define P(k) (fx_p.v[k])

//// cuda
typedef uint4 fx_v16; typedef uint2 fx_v8;
#define FX_LOCAL(T, s, n) __shared__ __attribute__((aligned(@vector@))) T s[n]
#define FX_BARRIER __syncthreads()
#define fx_shuffle(v, item) __shfl_sync(0xffffffffu, v, (item) & (FX_WARP - 1))
#define FX_FN static __device__ __forceinline__
// Memory whose size each launch states; it may be larger than that of FX_LOCAL.
#ifndef FX_LOCAL_ASKED
#define FX_LOCAL_ASKED(T, s, n) extern __shared__ __attribute__((aligned(@vector@))) T s[]
#endif
// Two groups can share a unit, so a work-item in a group of 256 has at most 128 registers. It may
// have twice as many with 64-bit indices, whose registers would spill, and in a group that asks for
// local memory (FX_ALONE).
#if defined FX_WIDE || defined FX_ALONE
#define FX_TOGETHER 1
#else
#define FX_TOGETHER 2
#endif
#define FX_KERNEL extern "C" __global__ __launch_bounds__(FX_GROUP, FX_TOGETHER) void
#define FX_ITEM ((fx_int)threadIdx.x)
#define FX_GROUP_X ((fx_int)blockIdx.x)
#define FX_GROUP_Y ((fx_int)blockIdx.y)
#define FX_GROUP_Z ((fx_int)blockIdx.z)
#define FX_F32(name) name##f
#define FX_F64(f) f
#define FX_UNROLL _Pragma("unroll")
#define FX_LOOP _Pragma("unroll 1")
#define FX_MAD(x, y, z) fma(x, y, z)
#define fx_bits(x) __float_as_uint(x)
#define fx_float(u) __uint_as_float(u)
#define fx_bits64(x) ((fx_u64)__double_as_longlong(x))
#define fx_double(u) __longlong_as_double((fx_i64)(u))
// In global memory, the atomic addition of Float32 numbers flushes denormal operands and results to
// zero. From sm_90 on one instruction adds four of them, at a multiple of 16 bytes; each addition
// is atomic by itself.
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ >= 13
#define FX_ADD4_f32(p, a, b, c, d) asm volatile("{.reg .b64 to; cvta.to.global.u64 to, %0; " \
    "red.global.add.v4.f32 [to], {%1, %2, %3, %4};}" \
    : : "l"(p), "f"(a), "f"(b), "f"(c), "f"(d) : "memory")
#endif
#define FX_ADD_f32(p, v) atomicAdd((fx_f32 *)(p), v)
#define FX_ADD_f64(p, v) atomicAdd((fx_f64 *)(p), v)
#define FX_ADD_u32(p, v) atomicAdd(p, (fx_u32)(v))
#define FX_ADD_u64(p, v) atomicAdd(p, (fx_u64)(v))
#define fx_cas32(p, old, new) atomicCAS(p, old, new)
#define fx_cas64(p, old, new) atomicCAS(p, old, new)
// Inline assembly: __half is declared in a header, and texts are compiled without headers. Other
// compilers of this text, such as that of the tests' simulated driver, use the shared conversions.
#ifdef __CUDA_ARCH__
#define FX_HALF_IN
FX_FN fx_f32 fx_f16_in(fx_u16 h)
{ fx_f32 x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h)); return x; }
FX_FN fx_u16 fx_f16_out(fx_f32 x)
{ fx_u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h; }
#endif
// The compiler's division has a branch for divisors whose reciprocal over- or underflows. fx_part
// divides by numbers from 1 to 2 only (prelude.cl), so it needs no branch.
#ifdef __CUDA_ARCH__
#define FX_PART
FX_FN fx_f32 fx_part_f32(fx_f32 x, fx_f32 y) {
    fx_f32 r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
    const fx_f32 q = x * r;
    return fma(fma(-q, y, x), r, q); }
#endif
// One instruction converts two numbers to the halves of a word. With zero as the lower half, the
// word is also the rounded number as Float32.
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
#define FX_BF16_OUT
FX_FN fx_u16 fx_bf16_out(fx_f32 x)
{ fx_u16 h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h; }
FX_FN fx_u32 fx_pair_bf16(fx_f32 x, fx_f32 y)
{ fx_u32 w; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(y), "f"(x)); return w; }
#define FX_PAIR_OF(exact, rounded) (exact)
#define fx_round_bf16(x) fx_float(fx_pair_bf16(0.0f, x))
#endif
// All work-items of a warp together compute a cell of 16 rows, 8 columns and 16 terms: see
// matrix.cl. The manual of PTX says under mma.m16n8k16 which elements each work-item holds. sm_75
// has only mma.m16n8k8, for Float16. It multiplies 8 terms: the first or the second half of the
// elements that a work-item holds. So two of these instructions compute a cell. Other compilers of
// this text define FX_MMA, or FX_MMA_HALF, as a function.
#if !defined FX_MMA && defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
#define FX_MMA(type, c, a, b) asm("mma.sync.aligned.m16n8k16.row.col.f32." #type "." #type ".f32 " \
    "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
    : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3]) \
    : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]))
#elif !defined FX_MMA_HALF && defined __CUDA_ARCH__ && __CUDA_ARCH__ == 750
#define FX_MMA_HALF(c, a, b) asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 " \
    "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};" \
    : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3]) \
    : "r"((a)[0]), "r"((a)[1]), "r"((b)[0]))
#endif
#ifdef FX_MMA_HALF
#define FX_MMA(type, c, a, b) { FX_MMA_HALF(c, a, b); FX_MMA_HALF(c, (a) + 2, (b) + 1); }
#endif
#ifdef FX_MMA
#define FX_CELL_f16
#ifndef FX_MMA_HALF
#define FX_CELL_bf16
#endif
#define FX_CELL_COLUMNS 8
#define FX_CELL_SUMS 4
typedef struct { fx_u32 v[4]; } fx_cell_a;
typedef struct { fx_u32 v[2]; } fx_cell_b;
typedef struct { fx_f32 v[4]; } fx_cell_c;
#define FX_CELL_ROW(lane, i) ((lane) / 4 + (i) / 2 * 8)
#define FX_CELL_COLUMN(lane, i) ((lane) % 4 * 2 + (i) % 2)
#define FX_CELL_A(p, s, words, lane) { const fx_u32 *at = (s) + (lane) / 4 * (words) + (lane) % 4; \
    (p).v[0] = at[0]; (p).v[1] = at[8 * (words)]; (p).v[2] = at[4]; (p).v[3] = at[8 * (words) + 4]; }
#define FX_CELL_B(p, s, words, lane) { const fx_u32 *at = (s) + (lane) / 4 * (words) + (lane) % 4; \
    (p).v[0] = at[0]; (p).v[1] = at[4]; }
#define FX_CELL(type, c, a, b) FX_MMA(type, (c).v, (a).v, (b).v)
#endif
// Copies of 16 bytes from global into local memory that do not wait, and loads of four matrices of 8
// by 8 16-bit numbers: work-item number 8 * i + r of the warp gives the address of row r of matrix
// i. Other compilers of this text define all of these names.
#if !defined FX_ASYNC && defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
#define FX_ASYNC
typedef fx_u32 fx_near;
FX_FN fx_near fx_near_of(const void *p)
{ fx_u64 at; asm("cvta.to.shared.u64 %0, %1;" : "=l"(at) : "l"(p)); return (fx_near)at; }
FX_FN void fx_async(fx_near to, const void *from, fx_u32 bytes)
{ asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
    :: "r"(to), "l"(from), "r"(bytes) : "memory"); }
#define FX_ASYNC_CLOSE asm volatile("cp.async.commit_group;" ::: "memory")
#define FX_ASYNC_WAIT(n) asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory")
#define FX_PARTS(name, how) FX_FN void name(fx_u32 *p, fx_near at) \
    { asm volatile("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0,%1,%2,%3}, [%4];" \
        : "=r"(p[0]), "=r"(p[1]), "=r"(p[2]), "=r"(p[3]) : "r"(at) : "memory"); }
FX_PARTS(fx_parts, "")
FX_PARTS(fx_parts_across, ".trans")
#endif
