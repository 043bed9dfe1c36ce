/* test_hip_signatures.cpp: the AMDGPU plugin calls HIP and hipRTC as their headers say. The check
 * happens when this file is compiled, where the headers are installed. ctest: native */
#include <cstdio>

#if __has_include(<hip/hip_runtime_api.h>) && __has_include(<hip/hiprtc.h>)
#define FXI_AMDGPU
#include "gpurt_api.h"
#include "../sim/signatures.h"

#define __HIP_PLATFORM_AMD__          1
#define __HIP_DISABLE_CPP_FUNCTIONS__ 1
#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>
#include <hip/hiprtc.h>

#if HIP_VERSION_MAJOR < 6
extern "C" hipError_t hipGetDevicePropertiesR0600(void *, int);
#endif
#define CHECK(result, member, cuda, theirs, need, arguments)                                       \
    static_assert(same_function<result arguments, decltype(theirs)>::value, #theirs);
FXI_RT_FUNCTIONS(CHECK)
FXI_RTC_FUNCTIONS(CHECK)

static_assert(same_number(FXI_RT_ITEMS_OF_GROUP, hipDeviceAttributeMaxThreadsPerBlock) &&
                  same_number(FXI_RT_GROUPS_X, hipDeviceAttributeMaxGridDimX) &&
                  same_number(FXI_RT_GROUP_MEMORY, hipDeviceAttributeMaxSharedMemoryPerBlock) &&
                  same_number(FXI_RT_WARP, hipDeviceAttributeWarpSize) &&
                  same_number(FXI_RT_UNITS, hipDeviceAttributeMultiprocessorCount) &&
                  same_number(FXI_RT_FUNCTION_ITEMS, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
              "attributes");
static_assert(same_number(FXI_RT_OUT_OF_MEMORY, hipErrorOutOfMemory) &&
                  same_number(FXI_RT_ILLEGAL_ADDRESS, hipErrorIllegalAddress) &&
                  same_number(FXI_RT_CONTEXT_DESTROYED, hipErrorContextIsDestroyed) &&
                  same_number(FXI_RT_LAUNCH_FAILED, hipErrorLaunchFailure),
              "errors");
static_assert(same_number(FXI_RT_NON_BLOCKING, hipStreamNonBlocking) &&
                  same_number(FXI_RT_PORTABLE, hipHostMallocPortable) &&
                  same_number(FXI_RT_NO_TIMES, hipEventDisableTiming),
              "flags");
static const char found[] = "the headers of HIP agree";
#else
static const char found[] = "skipped: the headers of HIP are not installed";
#endif

int main()
{
    return std::puts(found) < 0;
}
