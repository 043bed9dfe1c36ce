/* gpu_build.h: the functions with which a kind of step becomes text and launches. Internal.
 *
 * A kind is one function, a row of the table in gpu_step.c. It writes the text of its kernel, then
 * adds launches of it:
 *
 *     fxi_gpu_begin(b, wide);
 *     fxi_gpu_kernel(b, "fx_copy", nbuffers, nparams);
 *     fxi_gpu_set(b, "type", "fx_f32"); …
 *     const char *text = fxi_gpu_say_until(b, fxi_gpu_text_copy, "walk");
 *     fxi_gpu_say(b, …);
 *     fxi_gpu_say_part(b, text);
 *     fxi_gpu_end(b);
 *     fxi_gpu_call *c = fxi_gpu_add(b);
 *     fxi_gpu_buffer(c, 0, FXI_GPU_IN, 0); …
 *     fxi_gpu_param(c, 0, n); …
 *     c->groups[0] = …;
 *
 * A backend with a vendor's library has one more function (fxi_gpu_runtime.library). It adds calls
 * of the library instead of a kernel and its launch, between kernels or alone:
 *
 *     fxi_gpu_call *c = fxi_gpu_add_routine(b, &product, state, nbuffers);
 *     fxi_gpu_buffer(c, 2, FXI_GPU_WORK, fxi_gpu_work(b, bytes)); …
 *
 * Sizes and grids are 64-bit numbers here. If a grid is larger than the device can launch, or a
 * parameter does not fit in a 32-bit kernel, preparing the step fails; no number is truncated
 * silently.
 *
 * Callers need not check for failures: after one, all of these functions do nothing, and
 * fxi_gpu_prepare reports it.
 *
 * In the text (kernels/prelude.cl explains all of it):
 *     FX_USE(k, T, x)     declares T *x, buffer k; FX_GLOBAL is its address space in types
 *     FX_ENTRY(k)         address k of the table, a void *
 *     P(k)                parameter k, an fx_int: 32 bits, or 64 in `wide` kernels
 *     FX_GROUP            work-items of a group; FX_ITEM the work-item in it
 *     FX_GROUP_X, _Y, _Z  the group; all of these are fx_ints
 *     FX_LOCAL(T, s, n);  T s[n] shared by a group, at the kernel's outermost level, aligned to a
 *                         vector; pointers to it have the type FX_SHARED T *
 *     FX_BARRIER;         waits for the group's work-items, and their writes to local memory
 *     FX_PACK(T, n, V, m) a union of n elements and m vectors (gpu_pack.c)
 *     FX_ADDRESS(x)       the low 32 bits of a pointer's address
 *     fx_shuffle(v, item) the 32 bits v of another work-item of the warp, if FX_WARP is defined
 *     FX_UNROLL           before a loop that should be unrolled
 *     FX_MAD(x, y, z)     x·y + z of reals, rounded once where the device can
 *     FX_FN               before functions, between _begin and _kernel
 *     fx_f32 fx_i32 fx_i64 fx_u8 fx_u16 fx_u32 fx_u64; fx_f64 only where the device has it
 *     FX_LOAD_f16(x, i), FX_STORE_f16(x, i, v) …    one for each element type's short name: 16-bit
 *                         floats are fx_f32 values outside memory
 *     FX_F32(exp)(v), FX_F64(exp)(v)                functions of the math library
 */
#ifndef CFLUX_GPU_BUILD_H
#define CFLUX_GPU_BUILD_H

#include "gpu.h"

typedef struct fxi_gpu_builder fxi_gpu_builder;

enum { FXI_GPU_PARAMS = 512 }; /* parameters of a launch, at most */

/* The meaning of a launch's buffer. A run looks the address up, so a prepared step contains no
 * addresses. */
typedef enum fxi_gpu_role {
    FXI_GPU_IN,      /* the step's operand k */
    FXI_GPU_OUT,     /* the step's output k (fx_step_output) */
    FXI_GPU_WORK,    /* from byte k of the work space on */
    FXI_GPU_STREAMS, /* seeds and counters */
    FXI_GPU_FAULT    /* the fault words */
} fxi_gpu_role;

typedef struct fxi_gpu_buffer_ref {
    int64_t k;
    int64_t role;
} fxi_gpu_buffer_ref;

typedef struct fxi_gpu_call fxi_gpu_call;
struct fxi_gpu_call {
    fxi_gpu_call *next;
    void *kernel; /* from fxi_gpu_runtime.kernel; after `compile` one that can be launched */
    /* A library call, with its state. NULL: a kernel is launched. */
    const fxi_gpu_routine *routine;
    void *state;
    int32_t calls; /* of the library, in one run of the routine */
    int32_t way;   /* the launch belongs to this way (fxi_gpu_other_way) */
    int64_t groups[3];
    int32_t group; /* work-items of a group */
    int32_t asked_memory;
    int32_t nbuffers, nparams;
    int32_t ntable; /* how many of the buffers, the last ones, are passed as a table */
    bool wide, checks;
    bool too_large; /* a parameter does not fit in 32 bits */
    fxi_gpu_buffer_ref *buffers;
    void *params; /* int32_t, or int64_t when wide */
};

/* The value of a placeholder in a text. */
typedef struct fxi_gpu_value {
    const char *name, *text; /* NULL: a number */
    int64_t number;
} fxi_gpu_value;
enum { FXI_GPU_VALUES = 32 };

/* How the first run of a step finds the fastest of its ways. */
typedef struct fxi_gpu_trial {
    /* May a run be measured now? Not while a driver records. */
    bool (*can)(fx_device *device);
    /* `stop` waits for the device, and sets the seconds that the work queued since `start` took on
     * the device's clock. Both return the driver's error, 0: none. */
    int (*start)(fx_device *device);
    int (*stop)(fx_device *device, double *out_seconds);
} fxi_gpu_trial;
enum { FXI_GPU_WAYS = 8 };

typedef struct fxi_gpu_ways {
    char *key;     /* of the decision; allocated; NULL: there is only one way */
    bool followed; /* the step has only the way that was decided; names[0]: the way to use if it
                      fails */
    const fxi_gpu_trial *trial;
    int32_t names[FXI_GPU_WAYS];
    int64_t work[FXI_GPU_WAYS]; /* bytes of each way's work space */
} fxi_gpu_ways;

struct fxi_gpu_builder {
    const fxi_gpu_runtime *runtime;
    fx_device *device;
    const fxi_gpu_limits *limits;
    const fx_step *step;
    fx_status status; /* the first failure, recorded; later calls do nothing */
    char *text;       /* source text of the current kernel */
    size_t length, capacity;
    fxi_gpu_value values[FXI_GPU_VALUES];
    int nvalues;
    const char *name;
    int32_t nbuffers, nparams, ntable;
    bool wide;
    /* The text before a parameter's number: "from + " if the text is for several reductions of one
     * launch (`from` is a variable of the kernel), otherwise "". */
    const char *own;
    int32_t group; /* work-items of a group of the current kernel */
    int32_t asked_memory;
    void *kernel; /* the kernel of the latest complete text */
    fxi_gpu_call *first, **last;
    fxi_gpu_call unused; /* a dummy that is returned after a failure */
    int64_t unused_params[FXI_GPU_PARAMS];
    int32_t way; /* the number of the way that is built, from 0 on */
    fxi_gpu_ways ways;
};

/* The work-items that exchange values without a barrier (FX_WARP, fx_shuffle): 32 or 64; 0: none
 * do. OpenCL 1.2 has no function for this, and the work-items of a CPU do not execute together. */
static inline int32_t fxi_gpu_warp(const fxi_gpu_builder *b)
{
    const bool can = b->runtime->dialect != FXI_GPU_OPENCL && !b->limits->serial;
    return can && b->limits->warp >= 32 ? b->limits->warp : 0;
}
/* Begins a source text. Functions may follow, then the kernel. */
void fxi_gpu_begin_groups(fxi_gpu_builder *b, bool wide, int group);
static inline void fxi_gpu_begin(fxi_gpu_builder *b, bool wide)
{
    fxi_gpu_begin_groups(b, wide, FXI_GPU_GROUP);
}
/* fxi_gpu_begin_groups, and each launch asks for `asked_memory` bytes of local memory
 * (FX_LOCAL_ASKED). A work-item may then have more registers, as if its group had a unit alone. */
void fxi_gpu_begin_large_groups(fxi_gpu_builder *b, bool wide, int group, int asked_memory);
/* Sets the value of the placeholder @name@ until it is set again or the next fxi_gpu_begin. The
 * string is not copied. */
void fxi_gpu_set(fxi_gpu_builder *b, const char *name, const char *value);
void fxi_gpu_set_number(fxi_gpu_builder *b, const char *name, int64_t value);
/* Appends a text of kernels/, all of whose placeholders have values. */
void fxi_gpu_say_part(fxi_gpu_builder *b, const char *text);
/* Appends a text up to a placeholder that the caller fills by appending more; returns the rest of
 * the text. */
const char *fxi_gpu_say_until(fxi_gpu_builder *b, const char *text, const char *placeholder);
/* Appends formatted text of at most 1000 bytes. */
void fxi_gpu_say(fxi_gpu_builder *b, const char *format, ...) FXI_PRINTF(2, 3);
/* Appends the head of a kernel; the caller appends its body. */
void fxi_gpu_kernel(fxi_gpu_builder *b, const char *name, int nbuffers, int nparams);
/* The same for a kernel that finds the last `ntable` of its buffers in a table: FX_ENTRY(k). */
void fxi_gpu_kernel_with_table(fxi_gpu_builder *b, const char *name, int nbuffers, int ntable,
                               int nparams);
/* May kernels have a table, and follow addresses that they read from it? */
static inline bool fxi_gpu_reads_addresses(const fxi_gpu_builder *b)
{
    return b->runtime->dialect != FXI_GPU_OPENCL && b->runtime->dialect != FXI_GPU_METAL;
}
/* Closes the body. The kernel's text is then complete. */
void fxi_gpu_end(fxi_gpu_builder *b);
/* Adds a launch of that kernel after those before; a kernel may have several. It has one group, all
 * parameters 0, and operand 0 for all buffers. Never NULL: after a failure it returns a dummy that
 * is discarded. */
fxi_gpu_call *fxi_gpu_add(fxi_gpu_builder *b);
/* Adds a call of a vendor's library, in order like a launch; the caller may set `calls`. The step
 * owns the state from now on, also after a failure, when the state may already be released on
 * return. */
fxi_gpu_call *fxi_gpu_add_routine(fxi_gpu_builder *b, const fxi_gpu_routine *routine, void *state,
                                  int nbuffers);
/* The number of elements that a work-item of simple kernels computes: as many Float32 values as a
 * vector holds. In all texts the placeholder @each@ is this number and @vector@ the bytes of a
 * vector. */
static inline int32_t fxi_gpu_each(const fxi_gpu_builder *b)
{
    return b->limits->vector_bytes / 4;
}
/* Adds a launch for n elements; n is parameter 0. Each work-item computes `each` elements, a
 * group's width apart, so that neighbouring work-items access neighbouring memory. */
fxi_gpu_call *fxi_gpu_add_each(fxi_gpu_builder *b, int64_t n);
static inline int64_t fxi_gpu_divide_up(int64_t n, int64_t each)
{
    return n / each + (n % each != 0);
}
/* Ways: a step may have several lists of launches that compute the same result, such as a call of a
 * library and kernels. The first run measures them, and this run and all later ones use the
 * fastest. The decision is remembered in memory and on disk under `key`, a text with everything on
 * which it depends. The names of ways are numbers that never change their meaning.
 *
 *     fxi_gpu_compare(b, &trial, key, LIBRARY); … fxi_gpu_other_way(b, KERNELS); …
 */
void fxi_gpu_compare(fxi_gpu_builder *b, const fxi_gpu_trial *trial, const char *key, int32_t name);
/* Launches that are added from now on are another way. A way that the device cannot launch is left
 * out, except the first. */
void fxi_gpu_other_way(fxi_gpu_builder *b, int32_t name);
/* Is the decision known? */
bool fxi_gpu_way_known(const fx_host *host, const char *key, int32_t *out_name);
void fxi_gpu_way_remember(const fx_host *host, const char *key, int32_t name);
/* Changes the decision for the rest of this process. False if an allocation fails. */
bool fxi_gpu_way_change(const fx_host *host, const char *key, int32_t name);
/* The step's only way is the one that is remembered under `key`. If a kernel of it cannot be
 * compiled, the decision changes to `instead`, and the step is prepared again. */
void fxi_gpu_follow(fxi_gpu_builder *b, const char *key, int32_t instead);
void fxi_gpu_buffer(fxi_gpu_call *c, int buffer, fxi_gpu_role role, int64_t k);
void fxi_gpu_param(fxi_gpu_call *c, int param, int64_t value);
/* Sets 32 bits that are not a number; a kernel that is not wide gets them unchanged. */
void fxi_gpu_bits(fxi_gpu_call *c, int param, uint32_t bits);
/* Adds bytes to the step's work space; returns their offset, a multiple of 64. */
int64_t fxi_gpu_work(fxi_gpu_builder *b, int64_t bytes);
void fxi_gpu_no_memory(fxi_gpu_builder *b);
/* Records the message and returns its status. */
fx_status fxi_gpu_fail(fxi_gpu_builder *b, fx_status status, const char *format, ...)
    FXI_PRINTF(3, 4);
/* The step needs more than the device has: FX_STATUS_UNSUPPORTED. It is recorded only if the step
 * is not fused; for a fused one the planner makes smaller steps. */
void fxi_gpu_too_much(fxi_gpu_builder *b, const char *format, ...) FXI_PRINTF(2, 3);

#endif
