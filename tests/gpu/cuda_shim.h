/* cuda_shim.h: names that are built into NVRTC; clang would get them from the toolkit's headers. */
#define __global__             __attribute__((global))
#define __device__             __attribute__((device))
#define __shared__             __attribute__((shared))
#define __forceinline__        __inline__ __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
struct stub_index {
    unsigned x, y, z;
};
struct __attribute__((aligned(16), may_alias)) uint4 {
    unsigned x, y, z, w;
};
struct __attribute__((aligned(8), may_alias)) uint2 {
    unsigned x, y;
};
extern __device__ const stub_index threadIdx, blockIdx;
__device__ void __syncthreads();
__device__ inline unsigned __shfl_sync(unsigned members, unsigned v, int lane)
{
    return (unsigned)__nvvm_shfl_sync_idx_i32(members, (int)v, lane, 31);
}
__device__ unsigned __float_as_uint(float);
__device__ float __uint_as_float(unsigned);
__device__ long long __double_as_longlong(double);
__device__ double __longlong_as_double(long long);
__device__ unsigned atomicCAS(unsigned *, unsigned, unsigned);
__device__ unsigned long long atomicCAS(unsigned long long *, unsigned long long,
                                        unsigned long long);
__device__ float atomicAdd(float *, float);
__device__ double atomicAdd(double *, double);
__device__ unsigned atomicAdd(unsigned *, unsigned);
__device__ unsigned long long atomicAdd(unsigned long long *, unsigned long long);
#define STUB_FUNCTION(name)                                                                        \
    __device__ float name##f(float);                                                               \
    __device__ double name(double);
STUB_FUNCTION(exp)
STUB_FUNCTION(expm1)
STUB_FUNCTION(log)
STUB_FUNCTION(log1p)
STUB_FUNCTION(sqrt)
STUB_FUNCTION(sin)
STUB_FUNCTION(cos)
STUB_FUNCTION(tanh)
STUB_FUNCTION(erf)
STUB_FUNCTION(floor)
STUB_FUNCTION(fabs)
__device__ float powf(float, float);
__device__ double pow(double, double);
__device__ float fmodf(float, float);
__device__ double fmod(double, double);
__device__ float atan2f(float, float);
__device__ double atan2(double, double);
__device__ float fma(float, float, float);
__device__ double fma(double, double, double);
