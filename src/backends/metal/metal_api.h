/* metal_api.h: declares the part of Metal and of the Objective-C runtime that the backend uses, so
 * that neither Apple's headers nor an Objective-C compiler are needed to build it. Internal.
 *
 * A method is called by `objc_msgSend`, cast to the method's own signature: the runtime jumps to
 * the method with all arguments where the caller put them, so a call with another signature passes
 * wrong values. One table, FXI_MTL_MESSAGES, has a row for each method; its rows make the types of
 * the casts and the selectors. No method in it returns a structure, because for those x86-64 needs
 * another function than `objc_msgSend`. Constants have the values of Apple's documentation.
 *
 *     FXI_SEND(end, encoder)                     [encoder endEncoding]
 *     FXI_SEND_WITH(buffer, device, 64, 0)       [device newBufferWithLength:64 options:0]
 *
 * Methods whose names begin with "new" return an object that the caller releases. Other objects
 * belong to the innermost autorelease pool of the thread.
 */
#ifndef CFLUX_METAL_API_H
#define CFLUX_METAL_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fxi_objc_object *fxi_id;
typedef struct fxi_objc_selector *fxi_sel;
typedef unsigned long fxi_ns_uint;
typedef struct fxi_mtl_size {
    fxi_ns_uint width, height, depth;
} fxi_mtl_size;
typedef struct fxi_ns_range {
    fxi_ns_uint location, length;
} fxi_ns_range;
typedef struct fxi_ns_version {
    long major, minor, patch;
} fxi_ns_version;

enum {
    FXI_MTL_STORAGE_SHARED = 0, /* MTLResourceStorageModeShared */
    FXI_MTL_MATH_SAFE = 0,      /* MTLMathModeSafe */
    FXI_MTL_LANGUAGE_3_0 = 3 << 16,
    FXI_MTL_FAMILY_APPLE1 = 1001, /* any of Apple's own GPUs */
    FXI_MTL_FAMILY_METAL3 = 5001,
    FXI_MTL_STATUS_ERROR = 5,         /* MTLCommandBufferStatusError */
    FXI_MTL_BUFFERS = 31,             /* buffers of a kernel */
    FXI_MTL_BYTES = 4096,             /* most bytes of setBytes:length:atIndex: */
    FXI_MTL_GROUP_MEMORY = 32768,     /* bytes that a group can share on every GPU */
    FXI_MPS_FLOAT32 = 0x10000000 | 32 /* MPSDataTypeFloat32 */
};

/* X(name in the table, result, name in the library, arguments) */
#define FXI_OBJC_FUNCTIONS(X)                                                                      \
    X(send, void, objc_msgSend, (void))                                                            \
    X(class_of, fxi_id, objc_getClass, (const char *))                                             \
    X(selector, fxi_sel, sel_registerName, (const char *))                                         \
    X(retain, fxi_id, objc_retain, (fxi_id))                                                       \
    X(release, void, objc_release, (fxi_id))                                                       \
    X(push, void *, objc_autoreleasePoolPush, (void))                                              \
    X(pop, void, objc_autoreleasePoolPop, (void *))                                                \
    X(default_device, fxi_id, MTLCreateSystemDefaultDevice, (void))

/* X(name in the table, result, selector, arguments after the object and the selector, each with a
 * comma before it) */
#define FXI_ARGUMENTS(...) , __VA_ARGS__
#define FXI_NONE
#define FXI_MTL_MESSAGES(X)                                                                        \
    /* NSObject, NSString, NSError, NSProcessInfo */                                               \
    X(make, fxi_id, "new", FXI_NONE)                                                               \
    X(allocate, fxi_id, "alloc", FXI_NONE)                                                         \
    X(responds, bool, "respondsToSelector:", FXI_ARGUMENTS(fxi_sel))                               \
    X(string, fxi_id, "stringWithUTF8String:", FXI_ARGUMENTS(const char *))                        \
    X(utf8, const char *, "UTF8String", FXI_NONE)                                                  \
    X(described, fxi_id, "localizedDescription", FXI_NONE)                                         \
    X(code, long, "code", FXI_NONE)                                                                \
    X(process, fxi_id, "processInfo", FXI_NONE)                                                    \
    X(system_text, fxi_id, "operatingSystemVersionString", FXI_NONE)                               \
    X(system_is, bool, "isOperatingSystemAtLeastVersion:", FXI_ARGUMENTS(fxi_ns_version))          \
    /* MTLDevice */                                                                                \
    X(name, fxi_id, "name", FXI_NONE)                                                              \
    X(supports, bool, "supportsFamily:", FXI_ARGUMENTS(long))                                      \
    X(working_set, uint64_t, "recommendedMaxWorkingSetSize", FXI_NONE)                             \
    X(allocated, fxi_ns_uint, "currentAllocatedSize", FXI_NONE)                                    \
    X(largest, fxi_ns_uint, "maxBufferLength", FXI_NONE)                                           \
    X(group_memory, fxi_ns_uint, "maxThreadgroupMemoryLength", FXI_NONE)                           \
    X(queue, fxi_id, "newCommandQueue", FXI_NONE)                                                  \
    X(buffer, fxi_id, "newBufferWithLength:options:", FXI_ARGUMENTS(fxi_ns_uint, fxi_ns_uint))     \
    X(library, fxi_id,                                                                             \
      "newLibraryWithSource:options:error:", FXI_ARGUMENTS(fxi_id, fxi_id, fxi_id *))              \
    X(pipeline, fxi_id,                                                                            \
      "newComputePipelineStateWithFunction:error:", FXI_ARGUMENTS(fxi_id, fxi_id *))               \
    /* MTLCompileOptions */                                                                        \
    X(set_math, void, "setMathMode:", FXI_ARGUMENTS(long))                                         \
    X(set_fast, void, "setFastMathEnabled:", FXI_ARGUMENTS(bool))                                  \
    X(set_language, void, "setLanguageVersion:", FXI_ARGUMENTS(fxi_ns_uint))                       \
    /* MTLLibrary, MTLComputePipelineState */                                                      \
    X(function, fxi_id, "newFunctionWithName:", FXI_ARGUMENTS(fxi_id))                             \
    X(pipeline_items, fxi_ns_uint, "maxTotalThreadsPerThreadgroup", FXI_NONE)                      \
    X(pipeline_warp, fxi_ns_uint, "threadExecutionWidth", FXI_NONE)                                \
    X(pipeline_memory, fxi_ns_uint, "staticThreadgroupMemoryLength", FXI_NONE)                     \
    /* MTLBuffer */                                                                                \
    X(contents, void *, "contents", FXI_NONE)                                                      \
    /* MTLCommandQueue, MTLCommandBuffer */                                                        \
    X(command, fxi_id, "commandBuffer", FXI_NONE)                                                  \
    X(compute, fxi_id, "computeCommandEncoder", FXI_NONE)                                          \
    X(blit, fxi_id, "blitCommandEncoder", FXI_NONE)                                                \
    X(commit, void, "commit", FXI_NONE)                                                            \
    X(await, void, "waitUntilCompleted", FXI_NONE)                                                 \
    X(status, fxi_ns_uint, "status", FXI_NONE)                                                     \
    X(error, fxi_id, "error", FXI_NONE)                                                            \
    X(gpu_start, double, "GPUStartTime", FXI_NONE)                                                 \
    X(gpu_end, double, "GPUEndTime", FXI_NONE)                                                     \
    /* MTLCommandEncoder, MTLComputeCommandEncoder, MTLBlitCommandEncoder */                       \
    X(end, void, "endEncoding", FXI_NONE)                                                          \
    X(set_pipeline, void, "setComputePipelineState:", FXI_ARGUMENTS(fxi_id))                       \
    X(set_buffer, void,                                                                            \
      "setBuffer:offset:atIndex:", FXI_ARGUMENTS(fxi_id, fxi_ns_uint, fxi_ns_uint))                \
    X(set_bytes, void,                                                                             \
      "setBytes:length:atIndex:", FXI_ARGUMENTS(const void *, fxi_ns_uint, fxi_ns_uint))           \
    X(dispatch, void,                                                                              \
      "dispatchThreadgroups:threadsPerThreadgroup:", FXI_ARGUMENTS(fxi_mtl_size, fxi_mtl_size))    \
    X(copy, void, "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:",                  \
      FXI_ARGUMENTS(fxi_id, fxi_ns_uint, fxi_id, fxi_ns_uint, fxi_ns_uint))                        \
    X(fill, void, "fillBuffer:range:value:", FXI_ARGUMENTS(fxi_id, fxi_ns_range, uint8_t))         \
    /* MPSMatrixDescriptor, MPSMatrix, MPSMatrixMultiplication */                                  \
    X(layout, fxi_id, "matrixDescriptorWithRows:columns:rowBytes:dataType:",                       \
      FXI_ARGUMENTS(fxi_ns_uint, fxi_ns_uint, fxi_ns_uint, uint32_t))                              \
    X(matrix, fxi_id,                                                                              \
      "initWithBuffer:offset:descriptor:", FXI_ARGUMENTS(fxi_id, fxi_ns_uint, fxi_id))             \
    X(multiplication, fxi_id,                                                                      \
      "initWithDevice:transposeLeft:transposeRight:resultRows:resultColumns:interiorColumns:"      \
      "alpha:beta:",                                                                               \
      FXI_ARGUMENTS(fxi_id, bool, bool, fxi_ns_uint, fxi_ns_uint, fxi_ns_uint, double, double))    \
    X(multiply, void, "encodeToCommandBuffer:leftMatrix:rightMatrix:resultMatrix:",                \
      FXI_ARGUMENTS(fxi_id, fxi_id, fxi_id, fxi_id))

#define FXI_MTL_CLASSES(X)                                                                         \
    X(NSString)                                                                                    \
    X(NSProcessInfo)                                                                               \
    X(MTLCompileOptions)
/* Those of MPS, which fxi_mps_open finds. */
#define FXI_MPS_CLASSES(X)                                                                         \
    X(MPSMatrixDescriptor)                                                                         \
    X(MPSMatrix)                                                                                   \
    X(MPSMatrixMultiplication)

#define FXI_MTL_TYPE(name, result, selector, arguments)                                            \
    typedef result (*fxi_mtl_##name)(fxi_id, fxi_sel arguments);
FXI_MTL_MESSAGES(FXI_MTL_TYPE)
#undef FXI_MTL_TYPE

typedef struct fxi_mtl_api {
#define FXI_MTL_MEMBER(name, result, symbol, arguments) result(*name) arguments;
    FXI_OBJC_FUNCTIONS(FXI_MTL_MEMBER)
#undef FXI_MTL_MEMBER
    struct {
#define FXI_MTL_MEMBER(name, result, selector, arguments) fxi_sel name;
        FXI_MTL_MESSAGES(FXI_MTL_MEMBER)
#undef FXI_MTL_MEMBER
    } sel;
    struct {
#define FXI_MTL_MEMBER(name) fxi_id name;
        FXI_MTL_CLASSES(FXI_MTL_MEMBER)
        FXI_MPS_CLASSES(FXI_MTL_MEMBER)
#undef FXI_MTL_MEMBER
    } class;
    bool (*suits_mps)(fxi_id device); /* MPSSupportsMTLDevice */
} fxi_mtl_api;
extern fxi_mtl_api fxi_mtl;

#define FXI_SEND(name, object) (((fxi_mtl_##name)fxi_mtl.send)((object), fxi_mtl.sel.name))
#define FXI_SEND_WITH(name, object, ...)                                                           \
    (((fxi_mtl_##name)fxi_mtl.send)((object), fxi_mtl.sel.name, __VA_ARGS__))

/* Opens the frameworks, or the file that the environment variable FX_METAL_LIBRARY names, and fills
 * fxi_mtl. Returns false with the reason in `why`. */
bool fxi_mtl_open(char *why, size_t size);
/* Opens Metal Performance Shaders, or the file that FX_MPS_LIBRARY or else FX_METAL_LIBRARY names.
 * FX_MPS_LIBRARY=off: it is not opened. */
bool fxi_mps_open(char *why, size_t size);
/* The name of an error of a command buffer, such as "MTLCommandBufferErrorPageFault"; its number if
 * it has no name. */
const char *fxi_mtl_error_name(int error);

/* Errors of command buffers, and our own. */
enum {
    FXI_MTL_TIMEOUT = 2,
    FXI_MTL_PAGE_FAULT = 3,
    FXI_MTL_ACCESS_REVOKED = 4,
    FXI_MTL_OUT_OF_MEMORY = 8,
    FXI_MTL_DEVICE_REMOVED = 11,
    FXI_MTL_UNKNOWN = 1000,    /* the command buffer failed without an error object */
    FXI_MTL_NO_COMMAND = 1001, /* Metal returned no command buffer or encoder */
    FXI_MTL_NO_OBJECT = 1002   /* MPS returned no object */
};

#endif
