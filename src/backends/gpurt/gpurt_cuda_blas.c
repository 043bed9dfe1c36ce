/* gpurt_cuda_blas.c: matrix products by cuBLASLt; see gpurt_blas.h.
 *
 * A step has descriptors and two algorithms, which the library's heuristic chooses once, in
 * `prepare`: one for addresses that are multiples of 16 bytes, and one for all others. A view may
 * begin at any element, so the run chooses between them by the addresses.
 */
#include "gpurt_blas.h"
#include "gpurt_cublaslt.h"

#include <stdio.h>

static struct {
#define MEMBER(result, member, symbol, need, arguments) result(*member) arguments;
    FXI_LT_FUNCTIONS(MEMBER)
#undef MEMBER
} lt;
enum { OPTIONAL, NEEDED };
static const fxi_rt_entry entries[] = {
#define ENTRY(result, member, symbol, need, arguments) {#symbol, (void **)&lt.member, need},
    FXI_LT_FUNCTIONS(ENTRY)
#undef ENTRY
};

/* A library works with the driver of its own version and with every later driver. */
static bool suits(int major, int driver)
{
    return major <= driver / 1000;
}

static void *begin(fxi_rt_device *d, char *why, size_t size)
{
    fxi_lt_handle handle = NULL;
    const int error = lt.Create(&handle);
    if (!error)
        return handle;
    snprintf(why, size, "cublasLtCreate failed with %s on %s", lt.StatusName(error), d->gpu.label);
    return NULL;
}

fxi_rt_library fxi_rt_blas = {
    .names = {"cuBLASLt", "cuBLAS"},
    .variable = "FX_CUBLASLT_LIBRARY",
    .install = "install NVIDIA's package libcublas or the CUDA toolkit, or set "
               "FX_CUBLASLT_LIBRARY=off",
    .files = {{"libcublasLt.so.13", 13}, {"libcublasLt.so.12", 12}},
    .what = "multiplies matrices",
    .slower = "cflux's own kernels compute these matrix products, which is slower, most of all "
              "for 16-bit floats",
    .suits = suits,
    .entries = entries,
    .nentries = sizeof entries / sizeof *entries,
    .begin = begin,
    .lock = FXI_MUTEX_INIT};

int64_t fxi_rt_blas_version(void)
{
    return (int64_t)lt.Version();
}

/* ---- preparing ------------------------------------------------------------------------------- */

enum { ALIGNED, ANY, ALGORITHMS };
enum { ALIGNMENT = 16 }; /* of the widest loads */
/* cuBLASLt 13 refuses a work space whose address is not a multiple of 256 bytes, although its
 * header asks for 16. The plan gives multiples of PLANNED bytes. */
enum { WORK_ALIGNMENT = 256, PLANNED = 64 };
/* The most work space that an algorithm may need; the step reserves only as much as the chosen one
 * needs. NVIDIA recommends 32 MiB for the largest devices. */
static const uint64_t most_work = 32 << 20;

typedef struct product {
    fxi_gpu_product of;
    fxi_lt_desc desc;
    fxi_lt_layout a, b, c;
    fxi_lt_algorithm algorithm[ALGORITHMS];
    size_t work; /* bytes: the larger need of the two */
    bool f64;
} product;

static const struct {
    int element, sum;
    size_t size;
} types[FX_DTYPE_COUNT] = {[FX_DTYPE_F32] = {FXI_LT_R_32F, FXI_LT_COMPUTE_32F, 4},
                           [FX_DTYPE_F64] = {FXI_LT_R_64F, FXI_LT_COMPUTE_64F, 8},
                           [FX_DTYPE_F16] = {FXI_LT_R_16F, FXI_LT_COMPUTE_32F, 2},
                           [FX_DTYPE_BF16] = {FXI_LT_R_16BF, FXI_LT_COMPUTE_32F, 2}};

static void release(fx_device *device, void *state)
{
    product *p = state;
    (void)device;
    if (p->desc)
        lt.DescDestroy(p->desc);
    if (p->a)
        lt.LayoutDestroy(p->a);
    if (p->b)
        lt.LayoutDestroy(p->b);
    if (p->c)
        lt.LayoutDestroy(p->c);
    fxi_rt_host->free(p);
}

/* The following functions return the library's error, as the library's functions do. */
static int describe_product(product *p)
{
    const fxi_gpu_product *of = &p->of;
    const int transposed = FXI_LT_OP_T, bias = FXI_LT_EPILOGUE_BIAS;
    const int sum =
        of->may_tf32 && of->dtype == FX_DTYPE_F32 ? FXI_LT_COMPUTE_TF32 : types[of->dtype].sum;
    int error = lt.DescCreate(&p->desc, sum, p->f64 ? FXI_LT_R_64F : FXI_LT_R_32F);
    if (!error && of->transpose_a)
        error = lt.DescSet(p->desc, FXI_LT_DESC_TRANSPOSE_A, &transposed, sizeof transposed);
    if (!error && of->transpose_b)
        error = lt.DescSet(p->desc, FXI_LT_DESC_TRANSPOSE_B, &transposed, sizeof transposed);
    if (!error && of->bias)
        error = lt.DescSet(p->desc, FXI_LT_DESC_EPILOGUE, &bias, sizeof bias);
    return error;
}

/* A matrix in memory, before it is transposed. */
static int describe_matrix(fxi_lt_layout *out, const fxi_gpu_product *of, bool transposed,
                           int64_t rows, int64_t columns, int64_t ld, int which)
{
    const int32_t batches = (int32_t)of->batch.n;
    const int64_t batch_stride = of->batch.stride[which];
    int error =
        lt.LayoutCreate(out, types[of->dtype].element, (uint64_t)(transposed ? columns : rows),
                        (uint64_t)(transposed ? rows : columns), ld);
    if (!error && batches > 1)
        error = lt.LayoutSet(*out, FXI_LT_LAYOUT_BATCHES, &batches, sizeof batches);
    if (!error && batches > 1)
        error = lt.LayoutSet(*out, FXI_LT_LAYOUT_BATCH_STRIDE, &batch_stride, sizeof batch_stride);
    return error;
}

static int describe(product *p)
{
    const fxi_gpu_product *of = &p->of;
    int error = describe_product(p);
    if (!error)
        error = describe_matrix(&p->a, of, of->transpose_a, of->m, of->k, of->lda, FXI_GPU_A);
    if (!error)
        error = describe_matrix(&p->b, of, of->transpose_b, of->k, of->n, of->ldb, FXI_GPU_B);
    if (!error)
        error = describe_matrix(&p->c, of, false, of->m, of->n, of->ldc, FXI_GPU_C);
    return error;
}

/* Partial sums are added in the type of sums, never as 16-bit numbers: a sum is rounded once. */
static int choose(fxi_rt_device *d, product *p, int which, uint32_t alignment)
{
    const uint32_t reductions = FXI_LT_REDUCTION_COMPUTE_TYPE;
    fxi_lt_preference preference = NULL;
    fxi_lt_found found;
    int n = 0, error = lt.PreferenceCreate(&preference);
    if (!error)
        error = lt.PreferenceSet(preference, FXI_LT_PREFERENCE_WORK, &most_work, sizeof most_work);
    if (!error)
        error = lt.PreferenceSet(preference, FXI_LT_PREFERENCE_REDUCTIONS, &reductions,
                                 sizeof reductions);
    for (int k = 0; k < 4 && !error; k++)
        error = lt.PreferenceSet(preference, FXI_LT_PREFERENCE_ALIGNMENT_A + k, &alignment,
                                 sizeof alignment);
    if (!error)
        error = lt.Heuristic(d->blas.object, p->desc, p->a, p->b, p->c, p->c, preference, 1, &found,
                             &n);
    if (!error && n < 1)
        error = FXI_LT_NOT_SUPPORTED;
    if (!error)
        error = found.status;
    if (!error) {
        p->algorithm[which] = found.algorithm;
        p->work = found.work > p->work ? found.work : p->work;
    }
    if (preference)
        lt.PreferenceDestroy(preference);
    return error;
}

/* ---- running --------------------------------------------------------------------------------- */

/* The buffers of the call after the matrices. They follow only if they are needed. */
enum { BIAS = FXI_GPU_MATRICES };

static void *aligned_work(void *address)
{
    return (void *)(((uintptr_t)address + WORK_ALIGNMENT - 1) / WORK_ALIGNMENT * WORK_ALIGNMENT);
}

static fx_status run_call(fxi_rt_device *d, const product *p, int64_t call, void *const *buffers,
                          const char *operation)
{
    /* The library multiplies by these numbers in the type that describe_product names. */
    static const float one = 1, zero = 0;
    static const double one64 = 1, zero64 = 0;
    char *at[FXI_GPU_MATRICES];
    fxi_gpu_product_addresses(&p->of, call, buffers, at);
    const uintptr_t all =
        (uintptr_t)at[FXI_GPU_A] | (uintptr_t)at[FXI_GPU_B] | (uintptr_t)at[FXI_GPU_C];
    const fx_status status = fxi_rt_library_enter(d, operation);
    if (status)
        return status;
    const int error =
        lt.Matmul(d->blas.object, p->desc, p->f64 ? (const void *)&one64 : &one, at[FXI_GPU_A],
                  p->a, at[FXI_GPU_B], p->b, p->f64 ? (const void *)&zero64 : &zero, at[FXI_GPU_C],
                  p->c, at[FXI_GPU_C], p->c, &p->algorithm[all % ALIGNMENT ? ANY : ALIGNED],
                  p->work ? aligned_work(buffers[BIAS + p->of.bias]) : NULL, p->work, d->launches);
    return error ? fxi_rt_library_fail(d, operation, "cublasLtMatmul", lt.StatusName(error))
                 : FX_OK;
}

static fx_status run(fx_device *device, void *state, void *const *buffers, const char *operation)
{
    fxi_rt_device *d = fxi_rt_of(device);
    product *p = state;
    /* The bias's address is part of the descriptor, which runs of other threads use too: the caller
     * holds the device's lock (gpu.h). */
    const int error =
        p->of.bias ? lt.DescSet(p->desc, FXI_LT_DESC_BIAS, &buffers[BIAS], sizeof(void *)) : 0;
    if (error)
        return fxi_rt_library_fail(d, operation, "cublasLtMatmulDescSetAttribute",
                                   lt.StatusName(error));
    fx_status status = FX_OK;
    for (int64_t call = 0; call < p->of.calls && !status; call++)
        status = run_call(d, p, call, buffers, operation);
    return status;
}

/* The library gets its work space from the plan, so a call only queues work and a driver can record
 * it. */
static const fxi_gpu_routine routine = {.run = run, .release = release, .captures = true};

static void add(fxi_gpu_builder *b, product *p)
{
    /* Copies, because fxi_gpu_add_routine frees the state if it fails. */
    fxi_gpu_product of = p->of;
    const int64_t bytes = (int64_t)p->work;
    const int work = BIAS + of.bias;
    fxi_rt_blas_before(b, &of);
    fxi_gpu_call *c = fxi_gpu_add_routine(b, &routine, p, work + (bytes > 0));
    c->calls = (int32_t)of.calls;
    for (int k = 0; k < FXI_GPU_MATRICES; k++)
        fxi_gpu_buffer(c, k, (fxi_gpu_role)of.at[k].role, of.at[k].k);
    if (of.bias)
        fxi_gpu_buffer(c, BIAS, FXI_GPU_IN, 2);
    if (bytes > 0)
        fxi_gpu_buffer(c, work, FXI_GPU_WORK, fxi_gpu_work(b, bytes + WORK_ALIGNMENT - PLANNED));
    fxi_rt_blas_after(b, &of);
}

bool fxi_rt_blas_product(fxi_gpu_builder *b, const fxi_gpu_product *of)
{
    fxi_rt_device *d = fxi_rt_of(b->device);
    if (of->batch.n > INT32_MAX || fxi_rt_select(d) != 0)
        return false;
    product *p = fxi_rt_host->alloc(sizeof *p);
    if (!p) {
        fxi_gpu_no_memory(b);
        return true;
    }
    *p = (product){.of = *of, .f64 = of->dtype == FX_DTYPE_F64};
    int error = describe(p);
    if (!error)
        error = choose(d, p, ALIGNED, ALIGNMENT);
    if (!error)
        error = choose(d, p, ANY, (uint32_t)types[of->dtype].size);
    if (!error) {
        add(b, p);
        return true;
    }
    /* NOT_SUPPORTED is not a failure: the device has no algorithm for this product. */
    if (error != FXI_LT_NOT_SUPPORTED) {
        char why[160];
        snprintf(why, sizeof why, "cuBLASLt cannot prepare a product (%s)", lt.StatusName(error));
        fxi_rt_library_warn(&fxi_rt_blas, why);
    }
    release(b->device, p);
    return false;
}
