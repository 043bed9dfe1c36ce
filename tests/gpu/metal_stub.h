/* metal_stub.h: defines Metal's names in C++ for OpenCL, so that clang can check the syntax and the
 * address spaces of kernels. The kernels have never been compiled by Metal's own compiler. */
#define FX_METAL_STUB
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define device      __global
#define threadgroup __local
#define constant    __constant const
/* Functions in place of kernels: kernels of OpenCL may not take references. */
#define kernel
#define max_total_threads_per_threadgroup(n)
#define alignas(n)
#define FX_LOCAL(T, s, n) __local T *s = (__local T *)0
template <class T, class U> T as_type(U u)
{
    union {
        U from;
        T to;
    } v;
    v.from = u;
    return v.to;
}
unsigned simd_shuffle(unsigned, unsigned short);
enum class mem_flags { mem_none, mem_device, mem_threadgroup };
void threadgroup_barrier(mem_flags);
namespace precise
{
float exp(float);
float log(float);
float sqrt(float);
float sin(float);
float cos(float);
float tanh(float);
float floor(float);
float fabs(float);
float pow(float, float);
float atan2(float, float);
float fmod(float, float);
} // namespace precise
typedef unsigned stub_atomic;
#define atomic_uint          stub_atomic
#define memory_order_relaxed 0
unsigned atomic_fetch_add_explicit(__global stub_atomic *, unsigned, int);
struct stub_atomic_float {
    float value;
};
#define atomic_float stub_atomic_float
float atomic_fetch_add_explicit(__global stub_atomic_float *, float, int);
bool atomic_compare_exchange_weak_explicit(__global stub_atomic *, __private unsigned *, unsigned,
                                           int, int);
