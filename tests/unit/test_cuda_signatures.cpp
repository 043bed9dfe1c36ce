/* test_cuda_signatures.cpp: the CUDA plugin calls the driver and NVRTC as their headers say. The
 * check happens when this file is compiled, where the toolkit is installed. ctest: native */
#include <cstdio>

#if __has_include(<cuda.h>) && __has_include(<nvrtc.h>)
#include "gpurt_api.h"
#include "../sim/signatures.h"

#include <cuda.h>
#include <nvrtc.h>

#define CHECK(result, member, theirs, hip, need, arguments)                                        \
    static_assert(same_function<result arguments, decltype(theirs)>::value, #theirs);
FXI_RT_FUNCTIONS(CHECK)
FXI_RTC_FUNCTIONS(CHECK)
/* What is wrong is found. */
static_assert(!same_function<int(void **, int), decltype(cuMemAlloc_v2)>::value, "a size");
static_assert(!same_function<int(void **), decltype(cuMemAlloc_v2)>::value, "an argument");
static_assert(!same_function<int(int *, size_t), decltype(cuMemAlloc_v2)>::value, "a pointer");

static_assert(same_number(FXI_RT_ITEMS_OF_GROUP, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) &&
                  same_number(FXI_RT_GROUPS_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) &&
                  same_number(FXI_RT_GROUP_MEMORY,
                              CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK) &&
                  same_number(FXI_RT_WARP, CU_DEVICE_ATTRIBUTE_WARP_SIZE) &&
                  same_number(FXI_RT_UNITS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) &&
                  same_number(FXI_RT_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) &&
                  same_number(FXI_RT_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) &&
                  same_number(FXI_RT_FUNCTION_ITEMS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
              "attributes");
static_assert(same_number(FXI_RT_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY) &&
                  same_number(FXI_RT_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY) &&
                  same_number(FXI_RT_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU) &&
                  same_number(FXI_RT_UNSUPPORTED_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION) &&
                  same_number(FXI_RT_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS) &&
                  same_number(FXI_RT_CONTEXT_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED) &&
                  same_number(FXI_RT_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED) &&
                  same_number(FXI_RT_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH),
              "errors");
static_assert(same_number(FXI_RT_NON_BLOCKING, CU_STREAM_NON_BLOCKING) &&
                  same_number(FXI_RT_PORTABLE, CU_MEMHOSTALLOC_PORTABLE) &&
                  same_number(FXI_RT_NO_TIMES, CU_EVENT_DISABLE_TIMING),
              "flags");
static const char found[] = "the headers of CUDA agree";
#else
static const char found[] = "skipped: the headers of CUDA are not installed";
#endif

int main()
{
    return std::puts(found) < 0;
}
