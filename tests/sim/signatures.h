/* signatures.h: compares the arguments that the plugins pass (gpurt_api.h) with those that a
 * vendor's header declares. Each must be passed in the same way: a pointer, or a number of the same
 * size. Device addresses, which CUDA declares as integers, are pointers in the plugins.
 */
#ifndef SIGNATURES_H
#define SIGNATURES_H

#include "gpurt_api.h"

#include <type_traits>

/* Values of two enumerations; CUDA's and HIP's names. */
#define SAME_NUMBERS(X)                                                                            \
    X(FXI_RT_ITEMS_OF_GROUP, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,                            \
      hipDeviceAttributeMaxThreadsPerBlock)                                                        \
    X(FXI_RT_GROUPS_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, hipDeviceAttributeMaxGridDimX)          \
    X(FXI_RT_GROUP_MEMORY, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,                        \
      hipDeviceAttributeMaxSharedMemoryPerBlock)                                                   \
    X(FXI_RT_WARP, CU_DEVICE_ATTRIBUTE_WARP_SIZE, hipDeviceAttributeWarpSize)                      \
    X(FXI_RT_UNITS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,                                      \
      hipDeviceAttributeMultiprocessorCount)                                                       \
    X(FXI_RT_FUNCTION_ITEMS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,                              \
      HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)                                                    \
    X(FXI_RT_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, hipErrorOutOfMemory)                         \
    X(FXI_RT_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS, hipErrorIllegalAddress)                  \
    X(FXI_RT_CONTEXT_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED, hipErrorContextIsDestroyed)       \
    X(FXI_RT_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED, hipErrorLaunchFailure)                       \
    X(FXI_RT_NON_BLOCKING, CU_STREAM_NON_BLOCKING, hipStreamNonBlocking)                           \
    X(FXI_RT_PORTABLE, CU_MEMHOSTALLOC_PORTABLE, hipHostMallocPortable)                            \
    X(FXI_RT_NO_TIMES, CU_EVENT_DISABLE_TIMING, hipEventDisableTiming)

template <class Own, class Theirs> struct same_argument {
    static constexpr bool own_pointer = std::is_pointer<Own>::value,
                          their_pointer = std::is_pointer<Theirs>::value,
                          address = own_pointer && std::is_same<Theirs, unsigned long long>::value;
    static constexpr bool value =
        sizeof(Own) == sizeof(Theirs) && (own_pointer == their_pointer || address);
};
template <> struct same_argument<void, void> {
    static constexpr bool value = true;
};
/* Pointers must point to the same type, if both sides declare one. */
template <class Own, class Theirs> struct same_argument<Own *, Theirs *> {
    static constexpr bool handle = std::is_void<Own>::value || std::is_void<Theirs>::value ||
                                   std::is_class<Own>::value || std::is_class<Theirs>::value;
    template <bool, class A, class B> struct pointee {
        static constexpr bool value = true;
    };
    template <class A, class B> struct pointee<false, A, B> {
        static constexpr bool value = same_argument<typename std::remove_cv<A>::type,
                                                    typename std::remove_cv<B>::type>::value;
    };
    static constexpr bool value = pointee<handle, Own, Theirs>::value;
};
template <class Own, class Theirs> struct same_function;
template <class R, class... A, class S, class... B> struct same_function<R(A...), S(B...)> {
    template <class...> struct list {
    };
    template <class, class> struct all {
        static constexpr bool value = false; /* the numbers of arguments differ */
    };
    template <class T> struct all<list<>, T> {
        static constexpr bool value = std::is_same<T, list<>>::value;
    };
    template <class X, class... XS, class Y, class... YS>
    struct all<list<X, XS...>, list<Y, YS...>> {
        static constexpr bool value =
            same_argument<X, Y>::value && all<list<XS...>, list<YS...>>::value;
    };
    static constexpr bool value = same_argument<R, S>::value && all<list<A...>, list<B...>>::value;
};

/* The checks, after the vendor's headers. */
#ifdef FXI_AMDGPU
#define THEIRS(cuda, hip) hip
#else
#define THEIRS(cuda, hip) cuda
#endif
#define CHECK_NUMBER(own, cuda, hip) static_assert(int(own) == int(THEIRS(cuda, hip)), #own);
#define CHECK_FUNCTION(result, member, cuda, hip, need, arguments)                                 \
    static_assert(same_function<result arguments, decltype(THEIRS(cuda, hip))>::value, #member);
#define CHECK_ALL                                                                                  \
    FXI_RT_FUNCTIONS(CHECK_FUNCTION)                                                               \
    FXI_RTC_FUNCTIONS(CHECK_FUNCTION)                                                              \
    SAME_NUMBERS(CHECK_NUMBER)

#endif
