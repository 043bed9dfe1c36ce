/* test_cuda_signatures.cpp: the CUDA plugin calls the driver and NVRTC as their headers say. The
 * check happens when this file is compiled, where the toolkit is installed. ctest: native */
#include <cstdio>

#if __has_include(<cuda.h>) && __has_include(<nvrtc.h>)
#include "../sim/signatures.h"

#include <cuda.h>
#include <nvrtc.h>

CHECK_ALL
/* The comparison finds wrong declarations. */
static_assert(!same_function<int(void **, int), decltype(cuMemAlloc_v2)>::value, "a size");
static_assert(!same_function<int(void **), decltype(cuMemAlloc_v2)>::value, "an argument");
static_assert(!same_function<int(int *, size_t), decltype(cuMemAlloc_v2)>::value, "a pointer");

#define CHECK(own, theirs) CHECK_NUMBER(own, theirs, )
CHECK(FXI_RT_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
CHECK(FXI_RT_ASKED_MEMORY, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
CHECK(FXI_RT_FUNCTION_MEMORY, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
CHECK(FXI_RT_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
CHECK(FXI_RT_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY)
CHECK(FXI_RT_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU)
CHECK(FXI_RT_UNSUPPORTED_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
CHECK(FXI_RT_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)
static const char found[] = "the headers of CUDA agree";
#else
static const char found[] = "skipped: the headers of CUDA are not installed";
#endif

int main()
{
    return std::puts(found) < 0;
}
