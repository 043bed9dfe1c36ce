/* fake_opencl.c: a libOpenCL for tests: one platform with a GPU and a CPU that keep memory and
 * compute nothing. The environment variable FAKE_OPENCL is a list of words. Each causes a failure
 * or changes the devices, only the GPU if possible: no_icd, no_platform, no_device, old (1.1),
 * no_compiler, no_context, no_queue, no_build, build_memory, no_launch, lost (the first launch ends
 * the device), faulted (the first launch is accepted, and then every function of the device fails
 * with another error, as on NVIDIA's devices after an invalid access to memory), hiccup (the first
 * launch and the next wait fail), small_items (groups of 64 along an axis), small_groups (groups of
 * 64 for a kernel; otherwise a kernel reports no more than the size that its text declares),
 * small_local (kernels need more local memory than the device has), rounds (division is correctly
 * rounded if the compiler's option asks for it), slow (compiling takes 0.6 s), no_memory,
 * copies_fail, no_marker, no_barrier, no_f64, two_platforms (the devices have one each),
 * other_driver, large (64 units with 32 KiB of local memory), meets (a compilation waits up to 20 s
 * until another one has begun). FAKE_OPENCL_REFUSES is a list of texts, separated by '|': a program
 * that contains one of them does not compile. For the first text of the list this failure takes 0.3
 * s. */
#include "opencl_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT                           __attribute__((visibility("default")))
#define DECLARE(result, name, arguments) EXPORT result cl##name arguments;
FXI_CL_FUNCTIONS(DECLARE)

enum { GPU, CPU, DEVICES };
struct fxi_cl_platform {
    int number;
};
struct fxi_cl_device {
    int number;
};
struct fxi_cl_context {
    int unused;
};
struct fxi_cl_queue {
    int device;
    cl_context context;
};
struct fxi_cl_mem {
    size_t size;
    char bytes[];
};
struct fxi_cl_program {
    int kernels; /* number of kernels; 0: the program has not been compiled, or its binary is
                    damaged */
    int from_source;
    int group;        /* work-items of a group that the text declares */
    char refused[64]; /* the text that makes the compilation fail */
};
struct fxi_cl_kernel {
    int group;
};
struct fxi_cl_event {
    cl_context context;
};

static struct fxi_cl_platform platforms[2] = {{0}, {1}};
static struct fxi_cl_device devices[DEVICES] = {{GPU}, {CPU}};
static struct fxi_cl_context contexts[DEVICES]; /* by the first device of each */
static struct fxi_cl_queue queues[DEVICES] = {{GPU, NULL}, {CPU, NULL}};
static int is_lost, is_faulted, hiccups, events, waited;
static const char binary[] = "the fake binary";

static bool asked(const char *word)
{
    const char *list = getenv("FAKE_OPENCL");
    const size_t n = strlen(word);
    for (const char *at = list; at && (at = strstr(at, word)) != NULL; at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

static void *give(cl_int *error, void *object, cl_int code)
{
    *error = object ? CL_SUCCESS : code;
    return object;
}

/* The status of the queue's device; every command first returns it if it is an error. */
static cl_int state(cl_command_queue q)
{
    return q->device != GPU ? CL_SUCCESS
           : is_lost        ? CL_DEVICE_NOT_AVAILABLE
           : is_faulted     ? CL_OUT_OF_RESOURCES
                            : CL_SUCCESS;
}

/* Live events, and the number of times that one queue has waited for another. */
EXPORT int fake_events(void);
EXPORT int fake_waits(void);
int fake_events(void)
{
    return events;
}
int fake_waits(void)
{
    return waited;
}

/* A new event of a queue. */
static cl_int event_of(cl_command_queue q, cl_event *out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return CL_OUT_OF_HOST_MEMORY;
    (*out)->context = q->context;
    events++;
    return CL_SUCCESS;
}

static cl_int answer(const void *value, size_t n, size_t size, void *out, size_t *length)
{
    if (length)
        *length = n;
    if (out && size < n)
        return -30;
    if (out)
        memcpy(out, value, n);
    return CL_SUCCESS;
}

static cl_int answer_text(const char *text, size_t size, void *out, size_t *length)
{
    return answer(text, strlen(text) + 1, size, out, length);
}

static cl_int answer_number(uint64_t number, size_t size, void *out, size_t *length)
{
    return answer(&number, size, size, out, length);
}

/* ---- platforms and devices ------------------------------------------------------------------- */

cl_int clGetPlatformIDs(cl_uint most, cl_platform_id *out, cl_uint *n)
{
    if (asked("no_icd"))
        return CL_PLATFORM_NOT_FOUND_KHR;
    *n = asked("no_platform") ? 0 : asked("two_platforms") ? 2 : 1;
    for (cl_uint k = 0; k < *n && k < most; k++)
        out[k] = &platforms[k];
    return CL_SUCCESS;
}

cl_int clGetPlatformInfo(cl_platform_id p, cl_uint what, size_t size, void *out, size_t *length)
{
    (void)p, (void)what;
    return answer_text("Fake Platform", size, out, length);
}

cl_int clGetDeviceIDs(cl_platform_id p, cl_bitfield type, cl_uint most, cl_device_id *out,
                      cl_uint *n)
{
    (void)type, (void)most;
    if (asked("no_device"))
        return CL_DEVICE_NOT_FOUND;
    *n = 0;
    /* The CPU comes first, so that the plugin must sort. */
    for (int k = DEVICES; k-- > 0;)
        if (!asked("two_platforms") || p->number == k)
            out[(*n)++] = &devices[k];
    return CL_SUCCESS;
}

cl_int clGetDeviceInfo(cl_device_id d, cl_uint what, size_t size, void *out, size_t *length)
{
    const bool gpu = d->number == GPU;
    switch (what) {
    case CL_DEVICE_NAME:
        return answer_text(gpu ? "Fake GPU" : "Fake CPU", size, out, length);
    case CL_DRIVER_VERSION:
        return answer_text(asked("other_driver") ? "2.0" : "1.0", size, out, length);
    case CL_DEVICE_VERSION:
        return answer_text(gpu && asked("old") ? "OpenCL 1.1 fake" : "OpenCL 1.2 fake", size, out,
                           length);
    case CL_DEVICE_EXTENSIONS:
        return answer_text("cl_khr_fp64", size, out, length);
    case CL_DEVICE_TYPE:
        return answer_number(gpu ? CL_DEVICE_TYPE_GPU : CL_DEVICE_TYPE_CPU, size, out, length);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
        return answer_number(1 << 30, size, out, length);
    case CL_DEVICE_MAX_WORK_ITEM_SIZES: {
        const size_t along[3] = {gpu && asked("small_items") ? 64 : 1024, 1024, 64};
        return answer(along, sizeof along, size, out, length);
    }
    case CL_DEVICE_SINGLE_FP_CONFIG:
        return answer_number(asked("rounds") ? CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT | 6 : 6, size,
                             out, length);
    case CL_DEVICE_DOUBLE_FP_CONFIG:
        return answer_number(gpu && asked("no_f64") ? 0 : 63, size, out, length);
    case CL_DEVICE_MAX_COMPUTE_UNITS:
        return answer_number(asked("large") ? 64 : 1024, size, out, length);
    case CL_DEVICE_LOCAL_MEM_SIZE:
        return answer_number(asked("large") ? 32 << 10 : 1024, size, out, length);
    case CL_DEVICE_COMPILER_AVAILABLE:
        return answer_number(!(gpu && asked("no_compiler")), size, out, length);
    default:
        return answer_number(1024, size, out, length);
    }
}

cl_context clCreateContext(const intptr_t *properties, cl_uint n, const cl_device_id *ids,
                           void (*notify)(const char *, const void *, size_t, void *), void *user,
                           cl_int *error)
{
    (void)properties, (void)n, (void)notify, (void)user;
    return give(error,
                asked("no_context") && ids[0]->number == GPU ? NULL : &contexts[ids[0]->number],
                CL_OUT_OF_RESOURCES);
}

cl_command_queue clCreateCommandQueue(cl_context c, cl_device_id d, cl_bitfield properties,
                                      cl_int *error)
{
    (void)properties;
    queues[d->number].context = c;
    return give(error, d->number == GPU && asked("no_queue") ? NULL : &queues[d->number],
                CL_OUT_OF_HOST_MEMORY);
}

/* ---- memory ---------------------------------------------------------------------------------- */

cl_mem clCreateBuffer(cl_context c, cl_bitfield flags, size_t size, void *host, cl_int *error)
{
    (void)flags, (void)host;
    if (is_faulted && c == &contexts[GPU])
        return give(error, NULL, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    cl_mem mem = asked("no_memory") ? NULL : calloc(1, sizeof *mem + size);
    if (mem)
        mem->size = size;
    return give(error, mem, CL_MEM_OBJECT_ALLOCATION_FAILURE);
}

cl_int clReleaseMemObject(cl_mem mem)
{
    free(mem);
    return CL_SUCCESS;
}

static cl_int move(cl_command_queue q, bool inside, void *to, const void *from, size_t n)
{
    const cl_int s = state(q);
    if (s || !inside)
        return s ? s : -30;
    if (asked("copies_fail") && q->device == GPU)
        return CL_OUT_OF_RESOURCES;
    memmove(to, from, n);
    return CL_SUCCESS;
}

cl_int clEnqueueReadBuffer(cl_command_queue q, cl_mem mem, cl_bool wait, size_t offset, size_t n,
                           void *to, cl_uint waits, const cl_event *list, cl_event *out)
{
    (void)wait, (void)waits, (void)list, (void)out;
    return move(q, offset + n <= mem->size, to, mem->bytes + offset, n);
}

cl_int clEnqueueWriteBuffer(cl_command_queue q, cl_mem mem, cl_bool wait, size_t offset, size_t n,
                            const void *from, cl_uint waits, const cl_event *list, cl_event *out)
{
    (void)wait, (void)waits, (void)list, (void)out;
    return move(q, offset + n <= mem->size, mem->bytes + offset, from, n);
}

cl_int clEnqueueCopyBuffer(cl_command_queue q, cl_mem from, cl_mem to, size_t from_offset,
                           size_t to_offset, size_t n, cl_uint waits, const cl_event *list,
                           cl_event *out)
{
    (void)waits, (void)list, (void)out;
    return move(q, from_offset + n <= from->size && to_offset + n <= to->size,
                to->bytes + to_offset, from->bytes + from_offset, n);
}

cl_int clEnqueueFillBuffer(cl_command_queue q, cl_mem mem, const void *pattern, size_t length,
                           size_t offset, size_t n, cl_uint waits, const cl_event *list,
                           cl_event *out)
{
    (void)waits, (void)list, (void)out;
    if (n % length != 0 || offset % length != 0)
        return -30;
    cl_int s = CL_SUCCESS;
    for (size_t at = offset; at < offset + n && s == CL_SUCCESS; at += length)
        s = move(q, at + length <= mem->size, mem->bytes + at, pattern, length);
    return s;
}

/* ---- programs -------------------------------------------------------------------------------- */

static void look_for_refused(cl_program p, const char *text)
{
    const char *at = getenv("FAKE_OPENCL_REFUSES");
    while (at && *at) {
        const size_t n = strcspn(at, "|");
        char piece[sizeof p->refused];
        snprintf(piece, sizeof piece, "%.*s", (int)n, at);
        if (strstr(text, piece)) {
            memcpy(p->refused, piece, sizeof piece);
            return;
        }
        at += n + (at[n] == '|');
    }
}

cl_program clCreateProgramWithSource(cl_context c, cl_uint n, const char **text,
                                     const size_t *length, cl_int *error)
{
    (void)c, (void)n, (void)length;
    cl_program p = calloc(1, sizeof *p);
    if (p) {
        p->kernels = p->from_source = 1;
        p->group = 256;
        sscanf(*text, "#define FX_GROUP %d", &p->group);
        look_for_refused(p, *text);
    }
    return give(error, p, CL_OUT_OF_HOST_MEMORY);
}

cl_program clCreateProgramWithBinary(cl_context c, cl_uint n, const cl_device_id *ids,
                                     const size_t *length, const unsigned char **bytes,
                                     cl_int *of_binary, cl_int *error)
{
    (void)c, (void)n, (void)ids;
    const bool right = *length == sizeof binary && memcmp(*bytes, binary, sizeof binary) == 0;
    cl_program p = calloc(1, sizeof *p);
    if (p) {
        p->kernels = right;
        p->group = 256;
    }
    *of_binary = right ? CL_SUCCESS : -42;
    return give(error, p, CL_OUT_OF_HOST_MEMORY);
}

/* The most programs that were compiled at the same time, for tests. */
EXPORT int fake_most_builds(void);
static int builds, most_builds;
int fake_most_builds(void)
{
    return __atomic_load_n(&most_builds, __ATOMIC_SEQ_CST);
}

static void sleep_tenths(int tenths)
{
    nanosleep(&(struct timespec){.tv_nsec = tenths * 100000000L}, NULL);
}

static void build_begins(void)
{
    const int n = __atomic_add_fetch(&builds, 1, __ATOMIC_SEQ_CST);
    int most = __atomic_load_n(&most_builds, __ATOMIC_SEQ_CST);
    while (n > most && !__atomic_compare_exchange_n(&most_builds, &most, n, false, __ATOMIC_SEQ_CST,
                                                    __ATOMIC_SEQ_CST))
        continue;
}

static void build_source(cl_program p)
{
    const char *refuses = getenv("FAKE_OPENCL_REFUSES");
    build_begins();
    if (asked("slow"))
        sleep_tenths(6);
    for (int k = 0; asked("meets") && k < 200 && !(fake_most_builds() > 1); k++)
        sleep_tenths(1);
    if (*p->refused && strncmp(refuses, p->refused, strlen(p->refused)) == 0)
        sleep_tenths(3);
    __atomic_sub_fetch(&builds, 1, __ATOMIC_SEQ_CST);
}

cl_int clBuildProgram(cl_program p, cl_uint n, const cl_device_id *ids, const char *options,
                      void (*notify)(cl_program, void *), void *user)
{
    (void)n, (void)notify, (void)user;
    if (asked("rounds") != (strstr(options, "-cl-fp32-correctly-rounded-divide-sqrt") != NULL))
        return -43;
    if (p->from_source)
        build_source(p);
    if (ids[0]->number == GPU && asked("build_memory"))
        return CL_OUT_OF_HOST_MEMORY;
    return p->kernels && !*p->refused && !(ids[0]->number == GPU && asked("no_build")) ? CL_SUCCESS
                                                                                       : -11;
}

cl_int clGetProgramInfo(cl_program p, cl_uint what, size_t size, void *out, size_t *length)
{
    (void)p;
    const size_t n = sizeof binary;
    if (what == CL_PROGRAM_BINARY_SIZES)
        return answer(&n, sizeof n, size, out, length);
    unsigned char *to;
    memcpy(&to, out, sizeof to);
    memcpy(to, binary, sizeof binary);
    return CL_SUCCESS;
}

cl_int clGetProgramBuildInfo(cl_program p, cl_device_id d, cl_uint what, size_t size, void *out,
                             size_t *length)
{
    char text[128];
    (void)d, (void)what;
    snprintf(text, sizeof text, "kernel.cl:3:1: error: the fake compiler is tired%s%s",
             *p->refused ? " of " : "", p->refused);
    return answer_text(text, size, out, length);
}

cl_int clReleaseProgram(cl_program p)
{
    free(p);
    return CL_SUCCESS;
}

cl_kernel clCreateKernel(cl_program p, const char *name, cl_int *error)
{
    (void)name;
    cl_kernel k = calloc(1, sizeof *k);
    if (k)
        k->group = p->group;
    return give(error, k, CL_OUT_OF_HOST_MEMORY);
}

cl_int clGetKernelWorkGroupInfo(cl_kernel k, cl_device_id d, cl_uint what, size_t size, void *out,
                                size_t *length)
{
    if (what == CL_KERNEL_LOCAL_MEM_SIZE)
        return answer_number(d->number == GPU && asked("small_local") ? 4096 : 0, size, out,
                             length);
    return answer_number(d->number == GPU && asked("small_groups") ? 64 : (uint64_t)k->group, size,
                         out, length);
}

cl_int clReleaseKernel(cl_kernel k)
{
    free(k);
    return CL_SUCCESS;
}

cl_int clSetKernelArg(cl_kernel k, cl_uint argument, size_t size, const void *value)
{
    (void)k, (void)argument;
    return size > 0 && value ? CL_SUCCESS : -51;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint axes, const size_t *offset,
                              const size_t *global, const size_t *local, cl_uint waits,
                              const cl_event *list, cl_event *out)
{
    (void)k, (void)axes, (void)offset, (void)waits, (void)list;
    if (global[0] % local[0] != 0)
        return -54;
    if (q->device == GPU && asked("lost"))
        is_lost = true;
    if (q->device == GPU && asked("faulted")) {
        is_faulted = true;
        return out ? event_of(q, out) : CL_SUCCESS;
    }
    if (q->device == GPU && asked("hiccup") && hiccups++ == 0)
        return CL_OUT_OF_RESOURCES;
    if (asked("no_launch") && q->device == GPU)
        return CL_OUT_OF_RESOURCES;
    const cl_int s = state(q);
    return s || !out ? s : event_of(q, out);
}

/* ---- order ----------------------------------------------------------------------------------- */

cl_int clEnqueueMarkerWithWaitList(cl_command_queue q, cl_uint n, const cl_event *list,
                                   cl_event *out)
{
    (void)n, (void)list;
    if (asked("no_marker") && q->device == GPU)
        return CL_OUT_OF_RESOURCES;
    const cl_int s = state(q);
    return s || !out ? s : event_of(q, out);
}

cl_int clEnqueueBarrierWithWaitList(cl_command_queue q, cl_uint n, const cl_event *list,
                                    cl_event *out)
{
    enum { INVALID_CONTEXT = -34 };
    (void)out;
    if (asked("no_barrier") && q->device == GPU)
        return CL_OUT_OF_RESOURCES;
    for (cl_uint k = 0; k < n; k++, waited++)
        if (list[k]->context != q->context)
            return INVALID_CONTEXT;
    return state(q);
}

cl_int clWaitForEvents(cl_uint n, const cl_event *list)
{
    (void)n, (void)list;
    return CL_SUCCESS;
}

cl_int clGetEventInfo(cl_event e, cl_uint what, size_t size, void *out, size_t *length)
{
    (void)e, (void)what;
    return answer_number(CL_COMPLETE, size, out, length);
}

cl_int clReleaseEvent(cl_event e)
{
    free(e);
    events--;
    return CL_SUCCESS;
}

cl_int clFlush(cl_command_queue q)
{
    return state(q);
}

cl_int clFinish(cl_command_queue q)
{
    enum { INVALID_COMMAND_QUEUE = -36 };
    if (hiccups == 1 && ++hiccups)
        return CL_OUT_OF_RESOURCES;
    return is_faulted && q->device == GPU ? INVALID_COMMAND_QUEUE : state(q);
}
