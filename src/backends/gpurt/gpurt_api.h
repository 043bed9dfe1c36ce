/* gpurt_api.h: the functions of NVIDIA's and AMD's drivers and run-time compilers that the plugins
 * use, so that no header of a vendor is needed to build them. Internal.
 *
 * The sources of this folder are compiled twice: as they are for CUDA, and with FXI_AMDGPU defined
 * for AMDGPU. Each row of the tables below is a member of a struct of function pointers, which
 * fxi_rt_open and fxi_rtc_open fill:
 *
 *   X(result, member, CUDA's name, HIP's name, NEEDED or OPTIONAL, arguments)
 *
 * A library without a needed function is refused; a pointer to an optional one may be NULL. CUDA's
 * names are those of symbols, such as cuMemAlloc_v2: the name cuMemAlloc is a macro of CUDA's
 * header.
 */
#ifndef CFLUX_GPURT_API_H
#define CFLUX_GPURT_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Handles are pointers to types that only the driver defines. Each kind has its own type, so that
 * the compiler reports exchanged arguments. Device addresses are pointers in HIP and integers of
 * the same size in CUDA; all 64-bit systems pass both in the same way. */
typedef struct fxi_rt_context_object *fxi_rt_context;
typedef struct fxi_rt_stream_object *fxi_rt_stream;
typedef struct fxi_rt_event_object *fxi_rt_event;
typedef struct fxi_rt_module_object *fxi_rt_module;
typedef struct fxi_rt_function_object *fxi_rt_function;
typedef struct fxi_rt_graph_object *fxi_rt_graph;
typedef struct fxi_rt_exec_object *fxi_rt_exec; /* a graph that can be launched */
typedef struct fxi_rtc_program_object *fxi_rtc_program;

/* Values that are the same in both interfaces. */
enum {
    FXI_RT_OUT_OF_MEMORY = 2,
    FXI_RT_DEINITIALIZED = 4,
    FXI_RT_STUB_LIBRARY = 34,
    FXI_RT_DEVICE_UNAVAILABLE = 46,
    FXI_RT_NO_DEVICE = 100,
    FXI_RT_INVALID_DEVICE = 101,
    FXI_RT_INVALID_IMAGE = 200,
    FXI_RT_INVALID_CONTEXT = 201,
    FXI_RT_NO_BINARY = 209,
    FXI_RT_ECC = 214,
    FXI_RT_UNSUPPORTED_PTX = 222,
    FXI_RT_NOT_READY = 600,
    FXI_RT_ILLEGAL_ADDRESS = 700,
    FXI_RT_LAUNCH_TIMEOUT = 702,
    FXI_RT_PEER_ALREADY = 704,
    FXI_RT_CONTEXT_DESTROYED = 709,
    FXI_RT_LAUNCH_FAILED = 719,
    FXI_RT_DRIVER_MISMATCH = 803,

    FXI_RT_NON_BLOCKING = 1,    /* a stream that does not wait for the default one */
    FXI_RT_PORTABLE = 1,        /* pinned memory that all devices can use */
    FXI_RT_NO_TIMES = 2,        /* an event without times, which is faster */
    FXI_RT_THREAD_LOCAL = 1,    /* a capture that forbids calls in its own thread only */
    FXI_RT_FUNCTION_ITEMS = 0,  /* attribute of a function: most work-items of a group */
    FXI_RT_FUNCTION_MEMORY = 8, /* attribute of a function: most bytes that a launch may ask for */
};

/* Attributes of a device. */
#ifdef FXI_AMDGPU
enum {
    FXI_RT_ITEMS_OF_GROUP = 56,
    FXI_RT_GROUPS_X = 29,
    FXI_RT_GROUP_MEMORY = 74,
    FXI_RT_WARP = 87,
    FXI_RT_UNITS = 63
};
#else
enum {
    FXI_RT_ITEMS_OF_GROUP = 1,
    FXI_RT_GROUPS_X = 5,
    FXI_RT_GROUP_MEMORY = 8,
    FXI_RT_WARP = 10,
    FXI_RT_UNITS = 16,
    FXI_RT_ASKED_MEMORY = 97,
    FXI_RT_MAJOR = 75,
    FXI_RT_MINOR = 76
};
#endif

/* ---- the driver ------------------------------------------------------------------------------ */

#define FXI_RT_OF_BOTH(X)                                                                          \
    X(int, Init, cuInit, hipInit, NEEDED, (unsigned))                                              \
    X(int, DriverVersion, cuDriverGetVersion, hipRuntimeGetVersion, NEEDED, (int *))               \
    X(int, DeviceCount, cuDeviceGetCount, hipGetDeviceCount, NEEDED, (int *))                      \
    X(int, DeviceGet, cuDeviceGet, hipDeviceGet, NEEDED, (int *, int))                             \
    X(int, DeviceName, cuDeviceGetName, hipDeviceGetName, NEEDED, (char *, int, int))              \
    X(int, DeviceAttribute, cuDeviceGetAttribute, hipDeviceGetAttribute, NEEDED,                   \
      (int *, int, int))                                                                           \
    X(int, DeviceMemory, cuDeviceTotalMem_v2, hipDeviceTotalMem, NEEDED, (size_t *, int))          \
    X(int, DeviceCanAccess, cuDeviceCanAccessPeer, hipDeviceCanAccessPeer, OPTIONAL,               \
      (int *, int, int))                                                                           \
    X(int, MemAlloc, cuMemAlloc_v2, hipMalloc, NEEDED, (void **, size_t))                          \
    X(int, MemFree, cuMemFree_v2, hipFree, NEEDED, (void *))                                       \
    X(int, MemInfo, cuMemGetInfo_v2, hipMemGetInfo, NEEDED, (size_t *, size_t *))                  \
    X(int, HostAlloc, cuMemHostAlloc, hipHostMalloc, NEEDED, (void **, size_t, unsigned))          \
    X(int, HostFree, cuMemFreeHost, hipHostFree, NEEDED, (void *))                                 \
    X(int, WriteAsync, cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync, NEEDED,                           \
      (void *, const void *, size_t, fxi_rt_stream))                                               \
    X(int, ReadAsync, cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync, NEEDED,                            \
      (void *, void *, size_t, fxi_rt_stream))                                                     \
    X(int, CopyAsync, cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync, NEEDED,                            \
      (void *, void *, size_t, fxi_rt_stream))                                                     \
    X(int, FillAsync, cuMemsetD8Async, hipMemsetD8Async, NEEDED,                                   \
      (void *, unsigned char, size_t, fxi_rt_stream))                                              \
    X(int, StreamCreate, cuStreamCreate, hipStreamCreateWithFlags, NEEDED,                         \
      (fxi_rt_stream *, unsigned))                                                                 \
    X(int, StreamSync, cuStreamSynchronize, hipStreamSynchronize, NEEDED, (fxi_rt_stream))         \
    X(int, StreamQuery, cuStreamQuery, hipStreamQuery, NEEDED, (fxi_rt_stream))                    \
    X(int, StreamWait, cuStreamWaitEvent, hipStreamWaitEvent, NEEDED,                              \
      (fxi_rt_stream, fxi_rt_event, unsigned))                                                     \
    X(int, EventCreate, cuEventCreate, hipEventCreateWithFlags, NEEDED,                            \
      (fxi_rt_event *, unsigned))                                                                  \
    X(int, EventRecord, cuEventRecord, hipEventRecord, NEEDED, (fxi_rt_event, fxi_rt_stream))      \
    X(int, EventSync, cuEventSynchronize, hipEventSynchronize, NEEDED, (fxi_rt_event))             \
    X(int, EventDestroy, cuEventDestroy_v2, hipEventDestroy, NEEDED, (fxi_rt_event))               \
    X(int, EventElapsed, cuEventElapsedTime, hipEventElapsedTime, OPTIONAL,                        \
      (float *, fxi_rt_event, fxi_rt_event))                                                       \
    X(int, CaptureBegin, cuStreamBeginCapture_v2, hipStreamBeginCapture, OPTIONAL,                 \
      (fxi_rt_stream, int))                                                                        \
    X(int, CaptureEnd, cuStreamEndCapture, hipStreamEndCapture, OPTIONAL,                          \
      (fxi_rt_stream, fxi_rt_graph *))                                                             \
    X(int, GraphInstantiate, cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags, OPTIONAL,  \
      (fxi_rt_exec *, fxi_rt_graph, unsigned long long))                                           \
    X(int, GraphLaunch, cuGraphLaunch, hipGraphLaunch, OPTIONAL, (fxi_rt_exec, fxi_rt_stream))     \
    X(int, GraphDestroy, cuGraphDestroy, hipGraphDestroy, OPTIONAL, (fxi_rt_graph))                \
    X(int, ExecDestroy, cuGraphExecDestroy, hipGraphExecDestroy, OPTIONAL, (fxi_rt_exec))          \
    X(int, ModuleLoad, cuModuleLoadData, hipModuleLoadData, NEEDED,                                \
      (fxi_rt_module *, const void *))                                                             \
    X(int, ModuleFunction, cuModuleGetFunction, hipModuleGetFunction, NEEDED,                      \
      (fxi_rt_function *, fxi_rt_module, const char *))                                            \
    X(int, FunctionAttribute, cuFuncGetAttribute, hipFuncGetAttribute, OPTIONAL,                   \
      (int *, int, fxi_rt_function))                                                               \
    X(int, Launch, cuLaunchKernel, hipModuleLaunchKernel, NEEDED,                                  \
      (fxi_rt_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,      \
       fxi_rt_stream, void **, void **))

/* Functions whose arguments differ. HIP has no contexts: it chooses a device for each thread. */
#ifdef FXI_AMDGPU
#define FXI_RT_OF_ONE(X)                                                                           \
    X(int, DeviceSet, , hipSetDevice, NEEDED, (int))                                               \
    X(const char *, ErrorName, , hipGetErrorName, NEEDED, (int))                                   \
    X(int, PeerEnable, , hipDeviceEnablePeerAccess, OPTIONAL, (int, unsigned))                     \
    X(int, PeerCopy, , hipMemcpyPeerAsync, OPTIONAL,                                               \
      (void *, int, const void *, int, size_t, fxi_rt_stream))                                     \
    X(int, Properties6, , hipGetDevicePropertiesR0600, OPTIONAL, (void *, int))                    \
    X(int, Properties5, , hipGetDeviceProperties, OPTIONAL, (void *, int))
#else
#define FXI_RT_OF_ONE(X)                                                                           \
    X(int, ContextRetain, cuDevicePrimaryCtxRetain, , NEEDED, (fxi_rt_context *, int))             \
    X(int, ContextSet, cuCtxSetCurrent, , NEEDED, (fxi_rt_context))                                \
    X(int, ErrorName, cuGetErrorName, , NEEDED, (int, const char **))                              \
    X(int, FunctionSet, cuFuncSetAttribute, , OPTIONAL, (fxi_rt_function, int, int))               \
    X(int, PeerEnable, cuCtxEnablePeerAccess, , OPTIONAL, (fxi_rt_context, unsigned))              \
    X(int, PeerCopy, cuMemcpyPeerAsync, , OPTIONAL,                                                \
      (void *, fxi_rt_context, void *, fxi_rt_context, size_t, fxi_rt_stream))
#endif
#define FXI_RT_FUNCTIONS(X) FXI_RT_OF_BOTH(X) FXI_RT_OF_ONE(X)

/* ---- the compiler: NVRTC, hipRTC ------------------------------------------------------------- */

#define FXI_RTC_OF_BOTH(X)                                                                         \
    X(int, Version, nvrtcVersion, hiprtcVersion, NEEDED, (int *, int *))                           \
    X(const char *, ErrorString, nvrtcGetErrorString, hiprtcGetErrorString, NEEDED, (int))         \
    X(int, Create, nvrtcCreateProgram, hiprtcCreateProgram, NEEDED,                                \
      (fxi_rtc_program *, const char *, const char *, int, const char *const *,                    \
       const char *const *))                                                                       \
    X(int, Compile, nvrtcCompileProgram, hiprtcCompileProgram, NEEDED,                             \
      (fxi_rtc_program, int, const char *const *))                                                 \
    X(int, LogSize, nvrtcGetProgramLogSize, hiprtcGetProgramLogSize, NEEDED,                       \
      (fxi_rtc_program, size_t *))                                                                 \
    X(int, Log, nvrtcGetProgramLog, hiprtcGetProgramLog, NEEDED, (fxi_rtc_program, char *))        \
    X(int, CodeSize, nvrtcGetCUBINSize, hiprtcGetCodeSize, NEEDED, (fxi_rtc_program, size_t *))    \
    X(int, Code, nvrtcGetCUBIN, hiprtcGetCode, NEEDED, (fxi_rtc_program, char *))                  \
    X(int, Destroy, nvrtcDestroyProgram, hiprtcDestroyProgram, NEEDED, (fxi_rtc_program *))
#ifdef FXI_AMDGPU
#define FXI_RTC_OF_ONE(X)
#else
#define FXI_RTC_OF_ONE(X)                                                                          \
    X(int, PTXSize, nvrtcGetPTXSize, , NEEDED, (fxi_rtc_program, size_t *))                        \
    X(int, PTX, nvrtcGetPTX, , NEEDED, (fxi_rtc_program, char *))                                  \
    X(int, ArchCount, nvrtcGetNumSupportedArchs, , NEEDED, (int *))                                \
    X(int, Archs, nvrtcGetSupportedArchs, , NEEDED, (int *))
#endif
#define FXI_RTC_FUNCTIONS(X) FXI_RTC_OF_BOTH(X) FXI_RTC_OF_ONE(X)

/* ---- the structs ----------------------------------------------------------------------------- */

#ifdef FXI_AMDGPU
#define FXI_RT_SYMBOL(cuda, hip) #hip
#else
#define FXI_RT_SYMBOL(cuda, hip) #cuda
#endif
#define FXI_RT_MEMBER(result, member, cuda, hip, need, arguments) result(*member) arguments;
typedef struct fxi_rt_api {
    FXI_RT_FUNCTIONS(FXI_RT_MEMBER)
} fxi_rt_api;
typedef struct fxi_rtc_api {
    FXI_RTC_FUNCTIONS(FXI_RT_MEMBER)
} fxi_rtc_api;
extern fxi_rt_api fxi_rt;
extern fxi_rtc_api fxi_rtc;

/* The driver's names of its functions, for error messages: fxi_rt_name.MemAlloc. */
#define FXI_RT_NAME(result, member, cuda, hip, need, arguments) const char *member;
typedef struct fxi_rt_names {
    FXI_RT_FUNCTIONS(FXI_RT_NAME)
} fxi_rt_names;
extern const fxi_rt_names fxi_rt_name;
#undef FXI_RT_NAME
#undef FXI_RT_MEMBER

/* A function of a library, and the pointer to it. */
typedef struct fxi_rt_entry {
    const char *name;
    void **to;
    bool needed;
} fxi_rt_entry;
/* Fills the pointers of a list. False with the reason if a needed function is missing. */
bool fxi_rt_take(void *library, const char *file, const fxi_rt_entry *list, size_t n, char *why,
                 size_t size);
/* Opens a library: the system's loader searches for it first, then the folders of the toolkit are
 * tried. NULL with the reason. */
void *fxi_rt_open_file(const char *file, char *reason, size_t size);
/* Opens the driver and fills fxi_rt. False with the reason in `why`. */
bool fxi_rt_open(char *why, size_t size);
/* Opens the newest compiler whose code the driver can load, and fills fxi_rtc. `driver` is the
 * driver's major version; 0: any compiler. False with the reason in `why`: then nothing can be
 * compiled. */
bool fxi_rtc_open(int driver, char *why, size_t size);

#endif
