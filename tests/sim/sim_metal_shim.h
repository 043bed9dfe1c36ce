/* sim_metal_shim.h: put before a kernel's text, so that the host's C++ compiler can compile Metal's
 * language. The text is the one that a Mac would get. */
#include "sim_shim.h"

#define FX_METAL_STUB
#define device
#define threadgroup
#define constant const
/* A kernel's attributes; sim_metal.c has the limits. */
#define kernel
#define max_total_threads_per_threadgroup(n)
#define FX_LOCAL(T, s, n) static __attribute__((section(SIM_SHARED), aligned(16))) T s[n]
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
struct uint3 {
    uint x, y, z;
};

enum class mem_flags { mem_none, mem_device, mem_threadgroup };
static inline void threadgroup_barrier(mem_flags)
{
    sim_functions->barrier();
}
static inline uint simd_shuffle(uint value, ushort lane)
{
    return sim_exchange(value, lane);
}
template <class To, class From> static inline To as_type(From x)
{
    return sim_bits<To>(x);
}
namespace precise
{
#define SIM_PRECISE(name)                                                                          \
    static inline float name(float x)                                                              \
    {                                                                                              \
        return __builtin_##name##f(x);                                                             \
    }
SIM_PRECISE(exp)
SIM_PRECISE(log)
SIM_PRECISE(sqrt)
SIM_PRECISE(sin)
SIM_PRECISE(cos)
SIM_PRECISE(tanh)
SIM_PRECISE(floor)
SIM_PRECISE(fabs)
#define SIM_PRECISE2(name)                                                                         \
    static inline float name(float x, float y)                                                     \
    {                                                                                              \
        return __builtin_##name##f(x, y);                                                          \
    }
SIM_PRECISE2(pow)
SIM_PRECISE2(atan2)
SIM_PRECISE2(fmod)
} // namespace precise

/* Work-items run one after another, so plain loads and stores are atomic. */
enum sim_order { memory_order_relaxed };
struct atomic_uint {
    uint value;
} __attribute__((may_alias));
struct atomic_float {
    float value;
} __attribute__((may_alias));
static inline uint atomic_fetch_add_explicit(atomic_uint *p, uint x, sim_order)
{
    return atomicAdd(&p->value, x);
}
static inline float atomic_fetch_add_explicit(atomic_float *p, float x, sim_order)
{
    return atomicAdd(&p->value, x);
}
/* The weak exchange may fail without a reason, and does so now and then. */
static inline bool atomic_compare_exchange_weak_explicit(atomic_uint *p, uint *expected, uint fresh,
                                                         sim_order, sim_order)
{
    static unsigned calls;
    if (++calls % 7 == 0)
        return false;
    const uint was = p->value;
    if (was == *expected)
        p->value = fresh;
    const bool same = was == *expected;
    *expected = was;
    return same;
}

/* ---- what the simulator calls: see sim_shim.h ------------------------------------------------ */
/* Arguments are buffers, one structure by reference, the position of the group, and that of the
 * work-item. A size of 0 ends the list that the simulator reads. */
template <class T> struct sim_argument;
template <class T> struct sim_argument<T *> {
    static const int size = -(int)sizeof(T *);
    static T *get(void *const *a, int k) { return *(T **)a[k]; }
};
template <class T> struct sim_argument<const T &> {
    static const int size = (int)sizeof(T);
    static const T &get(void *const *a, int k) { return *(const T *)a[k]; }
};
template <> struct sim_argument<uint3> {
    static const int size = 0;
    static uint3 get(void *const *, int)
    {
        return {sim_positions[1].x, sim_positions[1].y, sim_positions[1].z};
    }
};
template <> struct sim_argument<uint> {
    static const int size = 0;
    static uint get(void *const *, int) { return sim_positions[0].x; }
};
template <class... A, int... k>
static inline void sim_enter_metal(void (*f)(A...), void *const *a, sim_numbers<k...>)
{
    f(sim_argument<A>::get(a, k)...);
}
template <class... A> static inline void sim_call_metal(void (*f)(A...), void *const *a)
{
    sim_enter_metal(f, a, typename sim_count<(int)sizeof...(A)>::type());
}
template <class... A> static const int *sim_sizes_of_metal(void (*)(A...))
{
    static const int sizes[] = {sim_argument<A>::size...};
    return sizes;
}
#undef SIM_KERNEL
#define SIM_KERNEL(name, id)                                                                       \
    extern "C" __attribute__((visibility("default"))) void sim_enter_##name##_##id(void *const *a) \
    {                                                                                              \
        sim_call_metal(name, a);                                                                   \
    }                                                                                              \
    extern "C" __attribute__((visibility("default"))) const int *sim_sizes_##name##_##id(void)     \
    {                                                                                              \
        return sim_sizes_of_metal(name);                                                           \
    }
