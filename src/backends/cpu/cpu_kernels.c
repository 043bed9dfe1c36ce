/* cpu_kernels.c: finds the kernel that runs a step, and holds what all kernels share: errors, the
 * choice of the instruction set, and the conversion of 16-bit floats.
 *
 * One table, made from op.def, gives each operation the kernel of its class. Kernels that sum or
 * compare (reduce, cumsum, scatter, conv, pool) have no loops for 16-bit floats: around them the
 * inputs are converted to dense Float32 and the result back, with one rounding at the end.
 * Elementwise steps round after every instruction and do so themselves; movement copies bytes.
 */
#include "cpu_simd.h"
#include "cpu_walk.h"
#include "memory.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static fx_status run_leaf(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)in, (void)out, (void)run;
    return fxi_cpu_fail(FX_STATUS_INTERNAL, step, "a leaf is not a step");
}

/* KERNEL_<class of op.def>: the kernel, and whether 16-bit floats are converted around it. */
#define KERNEL_LEAF                                                                                \
    {                                                                                              \
        run_leaf, false                                                                            \
    }
#define KERNEL_ELEMENTWISE                                                                         \
    {                                                                                              \
        fxi_cpu_elementwise, false                                                                 \
    }
#define KERNEL_GENERATOR                                                                           \
    {                                                                                              \
        fxi_cpu_generate, false                                                                    \
    }
#define KERNEL_MOVEMENT                                                                            \
    {                                                                                              \
        fxi_cpu_move, false                                                                        \
    }
#define KERNEL_COPY                                                                                \
    {                                                                                              \
        fxi_cpu_join, false                                                                        \
    }
#define KERNEL_REDUCE                                                                              \
    {                                                                                              \
        fxi_cpu_reduce, true                                                                       \
    }
#define KERNEL_SCAN                                                                                \
    {                                                                                              \
        fxi_cpu_cumsum, true                                                                       \
    }
/* A gather copies bytes. */
#define KERNEL_GATHER                                                                              \
    {                                                                                              \
        fxi_cpu_gather, false                                                                      \
    }
#define KERNEL_SCATTER                                                                             \
    {                                                                                              \
        fxi_cpu_scatter, true                                                                      \
    }
/* The product converts 16-bit operands as it packs them (cpu_gemm.c). */
#define KERNEL_MATMUL                                                                              \
    {                                                                                              \
        fxi_cpu_matmul, false                                                                      \
    }
/* fxi_cpu_has_attention refuses 16-bit floats. */
#define KERNEL_ATTENTION                                                                           \
    {                                                                                              \
        fxi_cpu_attention, false                                                                   \
    }
/* The evaluator moves arrays between devices; no backend runs such a step. */
#define KERNEL_TRANSFER                                                                            \
    {                                                                                              \
        NULL, false                                                                                \
    }
#define KERNEL_CONV                                                                                \
    {                                                                                              \
        fxi_cpu_conv, true                                                                         \
    }
#define KERNEL_POOL                                                                                \
    {                                                                                              \
        fxi_cpu_pool, true                                                                         \
    }
/* This one and the next are run by host_step.c, in host memory. */
#define KERNEL_CUSTOM                                                                              \
    {                                                                                              \
        fxi_run_custom, false                                                                      \
    }
#define KERNEL_COLLECTIVE                                                                          \
    {                                                                                              \
        fxi_run_collective, false                                                                  \
    }
static const struct {
    fxi_kernel run;
    bool widen; /* 16-bit floats are converted around the kernel */
} kernels[FX_OP_COUNT] = {
#define OP(NAME, name, inputs, cls, words, gradient) KERNEL_##cls,
#include <cflux/op.def>
};

/* Classes of steps whose kernel decides something once, when the plan is made; for the others
 * step->ready is NULL. */
static const struct {
    fx_status (*prepare)(fx_step *step);
    void (*release)(fx_step *step);
} preparations[] = {
    [FX_CLASS_ELEMENTWISE] = {fxi_cpu_elementwise_prepare, fxi_cpu_program_release},
    [FX_CLASS_REDUCE] = {fxi_cpu_reduce_prepare, fxi_cpu_reduce_release},
    [FX_CLASS_ROW] = {fxi_cpu_row_prepare, fxi_cpu_row_release},
    [FX_CLASS_MATMUL] = {fxi_cpu_matmul_prepare, fxi_cpu_matmul_release},
    [FX_CLASS_CONV] = {fxi_cpu_epilogue_prepare, fxi_cpu_program_release},
    [FX_CLASS_FOREACH] = {fxi_cpu_foreach_prepare, fxi_cpu_foreach_release},
};

/* Is the step computed with Float32 copies of its 16-bit operands and of its output? Row steps and
 * reductions of a program are not: they convert a block of rows or a tile at a time themselves. If
 * several reductions are one step, this function is called for each of them. */
static bool is_widened(const fx_step *step)
{
    if (step->cls == FX_CLASS_ROW || step->cls == FX_CLASS_FOREACH ||
        (step->cls == FX_CLASS_REDUCE && fx_step_reduce(step)->program.n > 0))
        return false;
    return kernels[step->op].widen && fxi_cpu_is_half(step->out.dtype);
}

/* Bytes of a Float32 copy. A multiple of 64, so that the copy after it begins at a cache line, as
 * arrays do; never 0, even for an empty tensor. */
static int64_t copy_bytes(const fx_tensor *t)
{
    return (fx_tensor_length(t) * (int64_t)sizeof(float) + 64) / 64 * 64;
}

/* Bytes of all copies of a step. */
static int64_t copies_bytes(const fx_step *step)
{
    int64_t bytes = copy_bytes(&step->out);
    for (int k = 0; k < step->nin; k++)
        bytes += fxi_cpu_is_half(step->in[k].dtype) ? copy_bytes(&step->in[k]) : 0;
    return bytes;
}

/* The copies are work space of the plan and not allocated by the kernel: limits of memory then
 * count them, and a plan that does not fit fails before its first step (docs/design/0036). */
fx_status fxi_cpu_prepare_step(fx_step *step)
{
    step->work_bytes = is_widened(step) ? copies_bytes(step) : 0;
    return preparations[step->cls].prepare ? preparations[step->cls].prepare(step) : FX_OK;
}

void fxi_cpu_release_step(fx_step *step)
{
    /* Most classes prepare nothing. */
    if (step->ready)
        preparations[step->cls].release(step);
    step->ready = NULL;
}

/* Errors of all kernels name the operation. */
fx_status fxi_cpu_fail(fx_status status, const fx_step *step, const char *format, ...)
{
    char text[160];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fx_fail(status, fx_op_name(step->op), "%s", text);
}

fx_status fxi_cpu_no_memory(const fx_step *step)
{
    return fxi_cpu_fail(FX_STATUS_MEMORY, step, "out of memory");
}

fx_status fxi_cpu_no_dtype(const fx_step *step, int dtype)
{
    return fxi_cpu_fail(FX_STATUS_UNSUPPORTED, step, "the CPU has no kernel for element type %s",
                        fx_dtype_name((fx_dtype)dtype));
}

size_t fxi_cpu_size(int dtype)
{
    /* In the order of fx_dtype. */
    static const uint8_t sizes[FX_DTYPE_COUNT] = {4, 8, 4, 8, 1, 1, 2, 2};
    return sizes[dtype];
}

/* ---- the instruction set --------------------------------------------------------------------- */
/* Lists the tables, the best first; NULL where the machine lacks the instructions. */
static void list_simd(const fxi_simd *tables[3])
{
    tables[0] = tables[1] = NULL;
    tables[2] = &fxi_simd_base;
#if defined(__x86_64__)
    /* The machine must have all instructions for which cpu_isa_avx2.c and cpu_isa_avx512.c are
     * compiled. */
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    tables[0] = avx2 && avx512 ? &fxi_simd_avx512 : NULL;
    tables[1] = avx2 ? &fxi_simd_avx2 : NULL;
#endif
}

/* Returns the table called `name`, or the best one if name is NULL; NULL if the machine has none of
 * that name. */
static const fxi_simd *find_simd(const char *name)
{
    const fxi_simd *tables[3];
    list_simd(tables);
    for (int k = 0; k < 3; k++)
        if (tables[k] && (!name || strcmp(name, tables[k]->name) == 0))
            return tables[k];
    return NULL;
}

/* Atomic; NULL until the first use. Several threads may choose at the same time: all find the same
 * table. */
static const fxi_simd *chosen_simd;

bool fxi_cpu_simd_choose(const char *name)
{
    const fxi_simd *s = find_simd(name);
    if (s)
        __atomic_store_n(&chosen_simd, s, __ATOMIC_RELEASE);
    return s != NULL;
}

const fxi_simd *fxi_cpu_simd(void)
{
    const fxi_simd *s = __atomic_load_n(&chosen_simd, __ATOMIC_ACQUIRE);
    if (s)
        return s;
    /* An unknown name is ignored: a script that names avx512 still runs on an older machine. */
    const char *want = getenv("FX_CPU_ISA");
    if (!want || !fxi_cpu_simd_choose(want))
        fxi_cpu_simd_choose(NULL);
    return __atomic_load_n(&chosen_simd, __ATOMIC_ACQUIRE);
}

/* ---- Float16 and BFloat16 around a Float32 kernel -------------------------------------------- */
enum { WIDEN_MAX_IN = 4 };

/* A channels-last tensor as a vector of its elements in memory order. Its copy must keep that
 * order, while strides describe the tensor in the order of its axes. */
static fx_tensor flat(const fx_tensor *t)
{
    return (fx_tensor){.dtype = t->dtype, .ndim = 1, .shape = {fx_tensor_length(t)}, .stride = {1}};
}

/* Converts the elements of t to Float32, densely. A walk gathers a tile of them first, because the
 * conversion works on vectors. */
static void widen(const fx_tensor *t, const void *src, float *dst)
{
    const fxi_tile_fn load = fxi_cpu_simd()->load[t->dtype == FX_DTYPE_BF16];
    const int64_t n = fx_tensor_length(t);
    uint16_t tile[FXI_TILE];
    const void *const from[] = {tile};
    fxi_walk w;
    fxi_walk_init(&w, t->ndim, t->shape, t->stride);
    for (int64_t i = 0; i < n; i += FXI_TILE) {
        const int m = n - i < FXI_TILE ? (int)(n - i) : FXI_TILE;
        fxi_walk_read(&w, src, sizeof *tile, tile, m);
        load(dst + i, from, m, 0);
    }
}

/* A tile at a time: a tile function takes at most FXI_TILE_MOST elements. */
static void narrow(const float *src, int64_t n, int dtype, uint16_t *dst)
{
    const fxi_tile_fn store = fxi_cpu_simd()->store[dtype == FX_DTYPE_BF16];
    for (int64_t i = 0; i < n; i += FXI_TILE) {
        const void *const from[] = {src + i};
        store(dst + i, from, n - i < FXI_TILE ? (int)(n - i) : FXI_TILE, 0);
    }
}

/* Is the step channels last? Steps of other classes have their axes in memory order instead
 * (layout.c in src/plan), so their strides are enough. */
static bool is_channels_last(const fx_step *s)
{
    return s->cls == FX_CLASS_CONV   ? fx_step_conv(s)->channels_last
           : s->cls == FX_CLASS_POOL ? fx_step_pool(s)->channels_last
                                     : false;
}

/* Runs a kernel on Float32 copies in the step's work space: those of the inputs, then that of the
 * output. */
static fx_status run_widened(fxi_kernel kernel, const fx_step *step, const void *const *in,
                             void *out, fx_run *run)
{
    fx_tensor tensors[WIDEN_MAX_IN];
    const void *ptrs[WIDEN_MAX_IN] = {NULL};
    char *at = run->work;
    const bool channels_last = is_channels_last(step);
    /* A step with more inputs is a mistake of the planner. */
    if (step->nin > WIDEN_MAX_IN)
        return fxi_cpu_fail(FX_STATUS_INTERNAL, step,
                            "%d inputs, but 16-bit inputs are converted for at most %d",
                            (int)step->nin, (int)WIDEN_MAX_IN);
    for (int k = 0; k < step->nin; k++) {
        tensors[k] = step->in[k];
        ptrs[k] = in[k];
        /* Other operands, such as the indices of a scatter, are passed on unchanged. */
        if (!fxi_cpu_is_half(tensors[k].dtype))
            continue;
        const fx_tensor all = channels_last ? flat(&tensors[k]) : tensors[k];
        ptrs[k] = at;
        widen(&all, in[k], (float *)(void *)at);
        at += copy_bytes(&tensors[k]);
        tensors[k].dtype = FX_DTYPE_F32;
        /* A channels-last copy has the memory order of the original, and so its strides. */
        if (!channels_last)
            fxi_dense_strides(tensors[k].ndim, tensors[k].shape, tensors[k].stride);
    }
    float *result = (float *)(void *)at;
    fx_step wide = *step;
    wide.in = tensors;
    wide.out.dtype = FX_DTYPE_F32;
    const fx_status status = kernel(&wide, ptrs, result, run);
    /* After a failure the Float32 result is incomplete. */
    if (!status)
        narrow(result, fx_tensor_length(&step->out), step->out.dtype, out);
    return status;
}

/* The kernels of row and foreach steps are found by the step's class, all others by its
 * operation. */
fx_status fxi_cpu_run_step(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    if (step->cls == FX_CLASS_ROW)
        return fxi_cpu_row(step, in, out, run);
    const fxi_kernel kernel =
        step->cls == FX_CLASS_FOREACH ? fxi_cpu_foreach : kernels[step->op].run;
    if (is_widened(step))
        return run_widened(kernel, step, in, out, run);
    return kernel(step, in, out, run);
}
