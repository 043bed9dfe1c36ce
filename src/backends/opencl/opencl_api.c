/* opencl_api.c: opens the OpenCL library and names OpenCL's errors; see opencl_api.h. */
#include "opencl_api.h"
#include "shared_library.h"
#include "this_process.h"

#include <stdio.h>

fxi_cl_api fxi_cl;

static const struct {
    const char *name;
    void **to;
} functions[] = {
/* Names and pointers come from one list, so that none can be forgotten. */
#define ENTRY(result, name, arguments) {"cl" #name, (void **)&fxi_cl.name},
    FXI_CL_FUNCTIONS(ENTRY)
#undef ENTRY
};

bool fxi_cl_open(char *why, size_t size)
{
    /* Ignored in programs with raised privileges: the file is code that the process runs. */
    const char *wanted = fxi_trusted_variable("FX_OPENCL_LIBRARY");
    /* The name without a number belongs to development packages, which users do not have. */
    const char *file =
        wanted && *wanted ? wanted : FXI_LIBRARY_FILE("libOpenCL.so.1", "OpenCL.dll");
    char reason[256];
    void *library = fxi_library_open(file, reason, sizeof reason);
    if (!library) {
        snprintf(why, size, "%s cannot be opened: %s", file, reason);
        return false;
    }
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        /* All functions at once, so that an old library is refused here and not at the first call.
         */
        *functions[k].to = fxi_library_symbol(library, functions[k].name);
        if (!*functions[k].to) {
            snprintf(why, size, "%s has no %s: OpenCL 1.2 is required", file, functions[k].name);
            return false;
        }
    }
    return true;
}

/* The codes of OpenCL 1.2 run from 0 to −19 and from −30 to −68. Users search for these names, so
 * messages contain them and not the numbers. */
static const char *const first_names[] = {"CL_SUCCESS",
                                          "CL_DEVICE_NOT_FOUND",
                                          "CL_DEVICE_NOT_AVAILABLE",
                                          "CL_COMPILER_NOT_AVAILABLE",
                                          "CL_MEM_OBJECT_ALLOCATION_FAILURE",
                                          "CL_OUT_OF_RESOURCES",
                                          "CL_OUT_OF_HOST_MEMORY",
                                          "CL_PROFILING_INFO_NOT_AVAILABLE",
                                          "CL_MEM_COPY_OVERLAP",
                                          "CL_IMAGE_FORMAT_MISMATCH",
                                          "CL_IMAGE_FORMAT_NOT_SUPPORTED",
                                          "CL_BUILD_PROGRAM_FAILURE",
                                          "CL_MAP_FAILURE",
                                          "CL_MISALIGNED_SUB_BUFFER_OFFSET",
                                          "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
                                          "CL_COMPILE_PROGRAM_FAILURE",
                                          "CL_LINKER_NOT_AVAILABLE",
                                          "CL_LINK_PROGRAM_FAILURE",
                                          "CL_DEVICE_PARTITION_FAILED",
                                          "CL_KERNEL_ARG_INFO_NOT_AVAILABLE"};
static const char *const second_names[] = {"VALUE",
                                           "DEVICE_TYPE",
                                           "PLATFORM",
                                           "DEVICE",
                                           "CONTEXT",
                                           "QUEUE_PROPERTIES",
                                           "COMMAND_QUEUE",
                                           "HOST_PTR",
                                           "MEM_OBJECT",
                                           "IMAGE_FORMAT_DESCRIPTOR",
                                           "IMAGE_SIZE",
                                           "SAMPLER",
                                           "BINARY",
                                           "BUILD_OPTIONS",
                                           "PROGRAM",
                                           "PROGRAM_EXECUTABLE",
                                           "KERNEL_NAME",
                                           "KERNEL_DEFINITION",
                                           "KERNEL",
                                           "ARG_INDEX",
                                           "ARG_VALUE",
                                           "ARG_SIZE",
                                           "KERNEL_ARGS",
                                           "WORK_DIMENSION",
                                           "WORK_GROUP_SIZE",
                                           "WORK_ITEM_SIZE",
                                           "GLOBAL_OFFSET",
                                           "EVENT_WAIT_LIST",
                                           "EVENT",
                                           "OPERATION",
                                           "GL_OBJECT",
                                           "BUFFER_SIZE",
                                           "MIP_LEVEL",
                                           "GLOBAL_WORK_SIZE",
                                           "PROPERTY",
                                           "IMAGE_DESCRIPTOR",
                                           "COMPILER_OPTIONS",
                                           "LINKER_OPTIONS",
                                           "DEVICE_PARTITION_COUNT"};

enum {
    FIRST = sizeof first_names / sizeof *first_names,
    SECOND = sizeof second_names / sizeof *second_names,
    SECOND_FROM = 30
};

const char *fxi_cl_error_name(cl_int error)
{
    /* Valid until the next call in the same thread. */
    static _Thread_local char text[48];
    const int k = -(int)error;
    if (k >= 0 && k < FIRST)
        return first_names[k];
    /* All names of the second range begin with CL_INVALID_. */
    if (k >= SECOND_FROM && k < SECOND_FROM + SECOND)
        snprintf(text, sizeof text, "CL_INVALID_%s", second_names[k - SECOND_FROM]);
    else
        snprintf(text, sizeof text, "OpenCL error %d", (int)error);
    return text;
}
