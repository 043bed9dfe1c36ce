/* test_nccl_signatures.cpp: the transport calls NCCL as its header says. The compiler does the
 * check, if the headers of NCCL and CUDA are installed. ctest: native */
#include <cstddef>
#include <cstdio>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include "../../src/dist/nccl/nccl_api.h"
#include "../sim/signatures.h"

#include <nccl.h>

/* The id is passed by value: its size and alignment must agree, not only that of a pointer. */
template <> struct same_argument<fxi_nccl_id, ncclUniqueId> {
    static constexpr bool value = sizeof(fxi_nccl_id) == sizeof(ncclUniqueId) &&
                                  alignof(fxi_nccl_id) == alignof(ncclUniqueId);
};
#define SAME(result, member, symbol, need, arguments)                                              \
    static_assert(same_function<result arguments, decltype(symbol)>::value, #symbol);
FXI_NCCL_FUNCTIONS(SAME)
#define CHECK(own, theirs) static_assert(int(own) == int(theirs), #own);
CHECK(FXI_NCCL_OK, ncclSuccess)
CHECK(FXI_NCCL_IN_PROGRESS, ncclInProgress)
CHECK(FXI_NCCL_INT8, ncclInt8)
CHECK(FXI_NCCL_UINT8, ncclUint8)
CHECK(FXI_NCCL_INT32, ncclInt32)
CHECK(FXI_NCCL_INT64, ncclInt64)
CHECK(FXI_NCCL_FLOAT16, ncclFloat16)
CHECK(FXI_NCCL_FLOAT32, ncclFloat32)
CHECK(FXI_NCCL_FLOAT64, ncclFloat64)
CHECK(FXI_NCCL_BFLOAT16, ncclBfloat16)
CHECK(FXI_NCCL_SUM, ncclSum)
CHECK(FXI_NCCL_PROD, ncclProd)
CHECK(FXI_NCCL_MAX, ncclMax)
CHECK(FXI_NCCL_MIN, ncclMin)
CHECK(FXI_NCCL_AVG, ncclAvg)
CHECK(FXI_NCCL_LEAST, NCCL_VERSION(2, 14, 0))
constexpr ncclConfig_t defaults =
    NCCL_CONFIG_INITIALIZER; /* older headers do not name its magic number */
static_assert(unsigned(FXI_NCCL_MAGIC) == defaults.magic, "magic");
CHECK(offsetof(fxi_nccl_config, magic), offsetof(ncclConfig_t, magic))
CHECK(offsetof(fxi_nccl_config, version), offsetof(ncclConfig_t, version))
CHECK(offsetof(fxi_nccl_config, blocking), offsetof(ncclConfig_t, blocking))
static const char found[] = "the header of NCCL agrees";
#else
static const char found[] = "skipped: the header of NCCL is not installed";
#endif

int main()
{
    return std::puts(found) < 0;
}
