/* cpu_kernels.h: the CPU's kernels, for the backend and for each other. Internal.
 *
 * fxi_cpu_run_step runs any step: it finds the kernel by the step's operation, or by its class for
 * row and foreach steps. It converts the types around kernels that have no loops for Float16 and
 * BFloat16 (they compute in Float32). Kernels return a status; a failing one has recorded an error.
 * No kernel keeps memory between calls, and all are deterministic: sums have a fixed order, which
 * depends on the step (shapes, strides, program) and on the instruction set only.
 */
#ifndef CFLUX_CPU_KERNELS_H
#define CFLUX_CPU_KERNELS_H

#include "strided.h"
#include "step.h"

fx_status fxi_cpu_run_step(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_cpu_elementwise_prepare(fx_step *step);
fx_status fxi_cpu_foreach_prepare(fx_step *step);
void fxi_cpu_foreach_release(fx_step *step);
fx_status fxi_cpu_reduce_prepare(fx_step *step);
void fxi_cpu_reduce_release(fx_step *step);
fx_status fxi_cpu_reduce_program_prepare(fx_step *step);
fx_status fxi_cpu_epilogue_prepare(fx_step *step);
/* Makes the epilogue without its first instruction, an addition of input `added` that the product
 * computes (0: with all instructions). If no instruction remains, no program is made, and
 * step->ready stays NULL. */
fx_status fxi_cpu_epilogue_prepare_rest(fx_step *step, int added);
void fxi_cpu_program_release(fx_step *step);
fx_status fxi_cpu_matmul_prepare(fx_step *step);
void fxi_cpu_matmul_release(fx_step *step);
/* The program of the epilogue of a prepared matrix product; NULL: it has none, or the product adds
 * all of it. */
const void *fxi_cpu_matmul_epilogue(const fx_step *step);

/* Make and free step->ready: what the step's kernel decides once, when the plan is made
 * (backend.h). */
fx_status fxi_cpu_prepare_step(fx_step *step);
void fxi_cpu_release_step(fx_step *step);

/* Copies a tensor of any strides to a dense array with the same sizes. */
fx_status fxi_cpu_copy(const fx_tensor *src, const void *in, void *out);

fx_status fxi_cpu_elementwise(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_cpu_foreach(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_cpu_generate(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_cpu_move(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_cpu_join(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_cpu_reduce(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_cpu_reduce_program(const fx_step *step, const void *const *in, void *out);
fx_status fxi_cpu_row(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_cpu_row_prepare(fx_step *step);
void fxi_cpu_row_release(fx_step *step);
fx_status fxi_cpu_cumsum(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_cpu_gather(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_cpu_scatter(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_cpu_matmul(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_cpu_conv(const fx_step *step, const void *const *in, void *out, fx_run *run);
fx_status fxi_cpu_attention(const fx_step *step, const void *const *in, void *out, fx_run *run);
/* fx_backend.attention */
bool fxi_cpu_has_attention(fx_device *device, const fx_step *step);
fx_status fxi_cpu_pool(const fx_step *step, const void *const *in, void *out, fx_run *run);

/* Pooling of channels-last arrays. fxi_cpu_pools_channels_last: is there a kernel for this step? */
bool fxi_cpu_pools_channels_last(const fx_step *step);
void fxi_cpu_pool_channels_last(const fx_step *step, const void *const *in, void *out);

/* The last part of a matrix product or convolution whose result is in `out`: its epilogue, if it
 * has one. */
typedef struct fxi_finish {
    const fx_step *step;
    const void *const *in;
    void *out;
} fxi_finish;
void fxi_cpu_finish(const fxi_finish *f);
/* Applies the epilogue to elements from … to−1, in the calling thread. */
void fxi_cpu_finish_range(const fxi_finish *f, int64_t from, int64_t to);

/* Records an error of the step's operation and returns its status. */
fx_status fxi_cpu_fail(fx_status status, const fx_step *step, const char *format, ...)
    FXI_PRINTF(3, 4);
fx_status fxi_cpu_no_memory(const fx_step *step);
fx_status fxi_cpu_no_dtype(const fx_step *step, int dtype);

size_t fxi_cpu_size(int dtype); /* bytes of an element */
/* True if all elements are one value. */
static inline bool fxi_cpu_is_scalar(const fx_tensor *t)
{
    return fxi_is_single(t->ndim, t->shape, t->stride);
}

static inline bool fxi_cpu_is_half(int dtype)
{
    return dtype == FX_DTYPE_F16 || dtype == FX_DTYPE_BF16;
}

/* C (m×n) = A·B, or C += A·B: the blocked product of cpu_gemm.c for floats. 16-bit types cannot
 * accumulate. Strides are in elements: rs between rows, cs between columns; the rows of C are
 * neighbours in memory. k = 0 gives zeros. If `d` is not NULL, C = A·B + D; this needs a plan
 * (fxi_cpu_gemm_adds). */
typedef struct fxi_gemm {
    int64_t m, n, k;
    const void *a, *b, *d;
    void *c;
    int64_t rsa, csa, rsb, csb, csc, csd;
    bool accumulate;
} fxi_gemm;
fx_status fxi_cpu_gemm(int dtype, const fxi_gemm *g);
/* A plan for many products of the same sizes and strides, with everything that follows from these.
 * fxi_cpu_gemm_prepare returns NULL if the allocation fails; free it with fxi_free.
 */
typedef struct fxi_gemm_plan fxi_gemm_plan;
fxi_gemm_plan *fxi_cpu_gemm_prepare(int dtype, const fxi_gemm *g);
/* d: NULL, or the D of C = A·B + D, if fxi_cpu_gemm_adds returns true for the plan. */
fx_status fxi_cpu_gemm_run(const fxi_gemm_plan *p, const void *a, const void *b, const void *d,
                           void *c);
/* Can products of this plan add a D whose rows are neighbours and whose columns are the plan's
 * `csd` apart (0: one column for all)? The bits are those of a separate addition. */
bool fxi_cpu_gemm_adds(const fxi_gemm_plan *p);
/* A prepared product in the calling thread alone, with memory of fxi_cpu_gemm_plan_bytes bytes,
 * aligned to 64. Several threads may use one plan. */
size_t fxi_cpu_gemm_plan_bytes(const fxi_gemm_plan *p);
void fxi_cpu_gemm_run_alone(const fxi_gemm_plan *p, const void *a, const void *b, void *c,
                            void *memory);
/* A product in the calling thread alone, with memory of fxi_cpu_gemm_bytes bytes, aligned to 64. */
size_t fxi_cpu_gemm_bytes(int dtype, const fxi_gemm *g);
void fxi_cpu_gemm_alone(int dtype, const fxi_gemm *g, void *memory);

#endif
