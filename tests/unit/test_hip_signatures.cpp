/* test_hip_signatures.cpp: the AMDGPU plugin calls HIP and hipRTC as their headers say. The check
 * happens when this file is compiled, where the headers are installed. ctest: native */
#include <cstdio>

#if __has_include(<hip/hip_runtime_api.h>) && __has_include(<hip/hiprtc.h>)
#define FXI_AMDGPU
#include "../sim/signatures.h"

#define __HIP_PLATFORM_AMD__          1
#define __HIP_DISABLE_CPP_FUNCTIONS__ 1
#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>
#include <hip/hiprtc.h>

#if HIP_VERSION_MAJOR < 6
extern "C" hipError_t hipGetDevicePropertiesR0600(void *, int);
#endif
CHECK_ALL
static const char found[] = "the headers of HIP agree";
#else
static const char found[] = "skipped: the headers of HIP are not installed";
#endif

int main()
{
    return std::puts(found) < 0;
}
