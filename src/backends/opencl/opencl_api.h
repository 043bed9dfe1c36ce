/* opencl_api.h: declares the part of OpenCL 1.2 that the backend uses, so that no OpenCL header is
 * needed to build it. Internal.
 *
 * One table, FXI_CL_FUNCTIONS, makes the struct of function pointers, which fxi_cl_open fills.
 * Constants have the values of the OpenCL 1.2 specification.
 */
#ifndef CFLUX_OPENCL_API_H
#define CFLUX_OPENCL_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Handles are pointers to types that only the driver knows. Each kind has a type of its own, so
 * that the compiler finds exchanged arguments. */
typedef struct fxi_cl_platform *cl_platform_id;
typedef struct fxi_cl_device *cl_device_id;
typedef struct fxi_cl_context *cl_context;
typedef struct fxi_cl_queue *cl_command_queue;
typedef struct fxi_cl_mem *cl_mem;
typedef struct fxi_cl_program *cl_program;
typedef struct fxi_cl_kernel *cl_kernel;
typedef struct fxi_cl_event *cl_event;
typedef int32_t cl_int;
typedef uint32_t cl_uint, cl_bool;
typedef uint64_t cl_bitfield;

enum {
    CL_SUCCESS = 0,
    CL_DEVICE_NOT_FOUND = -1,
    CL_DEVICE_NOT_AVAILABLE = -2,
    CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
    CL_OUT_OF_RESOURCES = -5,
    CL_OUT_OF_HOST_MEMORY = -6,
    CL_INVALID_BUFFER_SIZE = -61,
    CL_PLATFORM_NOT_FOUND_KHR = -1001,

    CL_PLATFORM_VERSION = 0x0901,
    CL_PLATFORM_NAME = 0x0902,

    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005,
    CL_DEVICE_ADDRESS_BITS = 0x100D,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_MAX_PARAMETER_SIZE = 0x1017,
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_AVAILABLE = 0x1027,
    CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
    CL_DEVICE_NAME = 0x102B,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_VERSION = 0x102F,
    CL_DEVICE_EXTENSIONS = 0x1030,
    CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
    /* An extension (cl_amd_device_attribute_query); without it the free memory is unknown. */
    CL_DEVICE_GLOBAL_FREE_MEMORY_AMD = 0x4039,

    CL_DEVICE_TYPE_CPU = 1 << 1,
    CL_DEVICE_TYPE_GPU = 1 << 2,
    CL_DEVICE_TYPE_ACCELERATOR = 1 << 3,

    CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7,

    CL_MEM_READ_WRITE = 1 << 0,
    CL_CONTEXT_PLATFORM = 0x1084,

    CL_COMPLETE = 0,
    CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3,

    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183,

    CL_KERNEL_WORK_GROUP_SIZE = 0x11B0,
    CL_KERNEL_LOCAL_MEM_SIZE = 0x11B2
};
#define CL_DEVICE_TYPE_ALL UINT64_C(0xFFFFFFFF)

/* X(result, name without "cl", arguments) */
#define FXI_CL_FUNCTIONS(X)                                                                        \
    X(cl_int, GetPlatformIDs, (cl_uint, cl_platform_id *, cl_uint *))                              \
    X(cl_int, GetPlatformInfo, (cl_platform_id, cl_uint, size_t, void *, size_t *))                \
    X(cl_int, GetDeviceIDs, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id *, cl_uint *))     \
    X(cl_int, GetDeviceInfo, (cl_device_id, cl_uint, size_t, void *, size_t *))                    \
    X(cl_context, CreateContext,                                                                   \
      (const intptr_t *, cl_uint, const cl_device_id *,                                            \
       void (*)(const char *, const void *, size_t, void *), void *, cl_int *))                    \
    X(cl_command_queue, CreateCommandQueue, (cl_context, cl_device_id, cl_bitfield, cl_int *))     \
    X(cl_mem, CreateBuffer, (cl_context, cl_bitfield, size_t, void *, cl_int *))                   \
    X(cl_int, ReleaseMemObject, (cl_mem))                                                          \
    X(cl_program, CreateProgramWithSource,                                                         \
      (cl_context, cl_uint, const char **, const size_t *, cl_int *))                              \
    X(cl_program, CreateProgramWithBinary,                                                         \
      (cl_context, cl_uint, const cl_device_id *, const size_t *, const unsigned char **,          \
       cl_int *, cl_int *))                                                                        \
    X(cl_int, BuildProgram,                                                                        \
      (cl_program, cl_uint, const cl_device_id *, const char *, void (*)(cl_program, void *),      \
       void *))                                                                                    \
    X(cl_int, GetProgramInfo, (cl_program, cl_uint, size_t, void *, size_t *))                     \
    X(cl_int, GetProgramBuildInfo, (cl_program, cl_device_id, cl_uint, size_t, void *, size_t *))  \
    X(cl_int, ReleaseProgram, (cl_program))                                                        \
    X(cl_kernel, CreateKernel, (cl_program, const char *, cl_int *))                               \
    X(cl_int, GetKernelWorkGroupInfo,                                                              \
      (cl_kernel, cl_device_id, cl_uint, size_t, void *, size_t *))                                \
    X(cl_int, ReleaseKernel, (cl_kernel))                                                          \
    X(cl_int, SetKernelArg, (cl_kernel, cl_uint, size_t, const void *))                            \
    X(cl_int, EnqueueNDRangeKernel,                                                                \
      (cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *,       \
       cl_uint, const cl_event *, cl_event *))                                                     \
    X(cl_int, EnqueueReadBuffer,                                                                   \
      (cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint, const cl_event *,       \
       cl_event *))                                                                                \
    X(cl_int, EnqueueWriteBuffer,                                                                  \
      (cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint, const cl_event *, \
       cl_event *))                                                                                \
    X(cl_int, EnqueueCopyBuffer,                                                                   \
      (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, const cl_event *,        \
       cl_event *))                                                                                \
    X(cl_int, EnqueueFillBuffer,                                                                   \
      (cl_command_queue, cl_mem, const void *, size_t, size_t, size_t, cl_uint, const cl_event *,  \
       cl_event *))                                                                                \
    X(cl_int, EnqueueMarkerWithWaitList,                                                           \
      (cl_command_queue, cl_uint, const cl_event *, cl_event *))                                   \
    X(cl_int, EnqueueBarrierWithWaitList,                                                          \
      (cl_command_queue, cl_uint, const cl_event *, cl_event *))                                   \
    X(cl_int, WaitForEvents, (cl_uint, const cl_event *))                                          \
    X(cl_int, GetEventInfo, (cl_event, cl_uint, size_t, void *, size_t *))                         \
    X(cl_int, ReleaseEvent, (cl_event))                                                            \
    X(cl_int, Flush, (cl_command_queue))                                                           \
    X(cl_int, Finish, (cl_command_queue))

typedef struct fxi_cl_api {
#define FXI_CL_MEMBER(result, name, arguments) result(*name) arguments;
    FXI_CL_FUNCTIONS(FXI_CL_MEMBER)
#undef FXI_CL_MEMBER
} fxi_cl_api;
extern fxi_cl_api fxi_cl;

/* Opens libOpenCL.so.1, or the file that the environment variable FX_OPENCL_LIBRARY names, and
 * fills fxi_cl. Returns false with the reason in `why`. */
bool fxi_cl_open(char *why, size_t size);
/* The name of an error, such as "CL_OUT_OF_RESOURCES"; its number if it has no name. */
const char *fxi_cl_error_name(cl_int error);

#endif
