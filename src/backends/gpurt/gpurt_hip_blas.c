/* gpurt_hip_blas.c: matrix products by rocBLAS; see gpurt_blas.h.
 *
 * rocBLAS chooses its kernel in each call, by sizes and types. `prepare` asks the library for the
 * work space that the call needs, so that it is in the plan's arena.
 */
#include "gpurt_blas.h"
#include "gpurt_rocblas.h"

#include <stdio.h>

static struct {
#define MEMBER(result, member, symbol, need, arguments) result(*member) arguments;
    FXI_ROC_FUNCTIONS(MEMBER)
#undef MEMBER
} roc;
enum { OPTIONAL, NEEDED };
static const fxi_rt_entry entries[] = {
#define ENTRY(result, member, symbol, need, arguments) {#symbol, (void **)&roc.member, need},
    FXI_ROC_FUNCTIONS(ENTRY)
#undef ENTRY
};

/* rocBLAS is linked with the driver's library of its own version of ROCm. A rocBLAS of another
 * version would load a second driver. */
static bool suits(int major, int driver)
{
    return major == driver / 10000000;
}

/* Atomics are switched off: with them the order of a sum differs between runs, and 16-bit sums are
 * rounded at each addition.
 */
static void *begin(fxi_rt_device *d, char *why, size_t size)
{
    enum { NOT_ALLOWED = 0 };
    fxi_roc_handle handle = NULL;
    const char *call = "rocblas_create_handle";
    int error = roc.Create(&handle);
    if (!error) {
        call = "rocblas_set_stream";
        error = roc.SetStream(handle, d->work);
    }
    if (!error) {
        call = "rocblas_set_atomics_mode";
        error = roc.SetAtomics(handle, NOT_ALLOWED);
    }
    if (!error)
        return handle;
    snprintf(why, size, "%s failed with %s on %s", call, roc.StatusName(error), d->gpu.label);
    return NULL;
}

static int follow(void *handle, fxi_rt_stream stream)
{
    return roc.SetStream(handle, stream);
}

fxi_rt_library fxi_rt_blas = {
    .names = {"rocBLAS"},
    .variable = "FX_ROCBLAS_LIBRARY",
    .install = "install ROCm's package rocblas, or set FX_ROCBLAS_LIBRARY=off",
    .files = {{"librocblas.so.5", 7},
              {"librocblas.so.4", 6},
              {"librocblas.so.3", 5},
              {"librocblas.so.0", 5}},
    .what = "multiplies matrices",
    .slower = "cflux's own kernels compute these matrix products, which is slower, most of all "
              "for 16-bit floats",
    .suits = suits,
    .follow = follow,
    .entries = entries,
    .nentries = sizeof entries / sizeof *entries,
    .begin = begin,
    .lock = FXI_MUTEX_INIT};

/* 0: unknown. The key of a decision contains the driver's version, and rocBLAS belongs to the same
 * ROCm. */
int64_t fxi_rt_blas_version(void)
{
    return 0;
}

typedef struct product {
    fxi_gpu_product of;
    size_t work; /* bytes; 0: the call needs none */
} product;

enum { WORK = FXI_GPU_MATRICES };

/* `at`: the addresses of the matrices. */
static int gemm(fxi_rt_device *d, const fxi_gpu_product *p, char *const *at)
{
    static const float one = 1, zero = 0;
    static const double one64 = 1, zero64 = 0;
    static const int types[FX_DTYPE_COUNT] = {[FX_DTYPE_F32] = FXI_ROC_F32,
                                              [FX_DTYPE_F64] = FXI_ROC_F64,
                                              [FX_DTYPE_F16] = FXI_ROC_F16,
                                              [FX_DTYPE_BF16] = FXI_ROC_BF16};
    const int type = types[p->dtype];
    const bool f64 = p->dtype == FX_DTYPE_F64;
    const int64_t *stride = p->batch.stride;
    return roc.Gemm(d->blas.object, p->transpose_a ? FXI_ROC_TRANSPOSE : FXI_ROC_NONE,
                    p->transpose_b ? FXI_ROC_TRANSPOSE : FXI_ROC_NONE, (int32_t)p->m, (int32_t)p->n,
                    (int32_t)p->k, f64 ? (const void *)&one64 : &one, at[FXI_GPU_A], type,
                    (int32_t)p->lda, stride[FXI_GPU_A], at[FXI_GPU_B], type, (int32_t)p->ldb,
                    stride[FXI_GPU_B], f64 ? (const void *)&zero64 : &zero, at[FXI_GPU_C], type,
                    (int32_t)p->ldc, stride[FXI_GPU_C], at[FXI_GPU_C], type, (int32_t)p->ldc,
                    stride[FXI_GPU_C], (int32_t)p->batch.n, f64 ? FXI_ROC_F64 : FXI_ROC_F32, 0, 0,
                    0);
}

static fx_status run_call(fxi_rt_device *d, const product *p, int64_t call, void *const *buffers,
                          const char *operation)
{
    char *at[FXI_GPU_MATRICES];
    const fx_status status = fxi_rt_library_enter(d, operation);
    if (status)
        return status;
    int error = p->work ? roc.SetWork(d->blas.object, buffers[WORK], p->work) : 0;
    if (error)
        return fxi_rt_library_fail(d, operation, "rocblas_set_workspace", roc.StatusName(error));
    fxi_gpu_product_addresses(&p->of, call, buffers, at);
    error = gemm(d, &p->of, at);
    return error && error != FXI_ROC_DEGRADED
               ? fxi_rt_library_fail(d, operation, "rocblas_gemm_strided_batched_ex",
                                     roc.StatusName(error))
               : FX_OK;
}

static fx_status run(fx_device *device, void *state, void *const *buffers, const char *operation)
{
    const product *p = state;
    fx_status status = FX_OK;
    for (int64_t call = 0; call < p->of.calls && !status; call++)
        status = run_call(fxi_rt_of(device), p, call, buffers, operation);
    return status;
}

static void release(fx_device *device, void *state)
{
    (void)device;
    fxi_rt_host->free(state);
}

/* The library may load a kernel in the first call of a size, which a recording cannot contain. The
 * first run of a plan is never recorded. */
static const fxi_gpu_routine routine = {.run = run, .release = release, .captures = true};

/* Between start and stop, the library answers with sizes instead of computing. */
static int query(fxi_rt_device *d, product *p)
{
    char *const none[FXI_GPU_MATRICES] = {NULL};
    fxi_mutex_lock(&d->gpu.lock);
    int error = roc.StartQuery(d->blas.object);
    if (!error) {
        const int answer = gemm(d, &p->of, none);
        error = roc.StopQuery(d->blas.object, &p->work);
        if (!error && answer != FXI_ROC_SIZE_INCREASED && answer != FXI_ROC_SIZE_UNCHANGED)
            error = answer;
    }
    fxi_mutex_unlock(&d->gpu.lock);
    return error;
}

bool fxi_rt_blas_product(fxi_gpu_builder *b, const fxi_gpu_product *of)
{
    fxi_rt_device *d = fxi_rt_of(b->device);
    const int64_t sizes[] = {of->m, of->n, of->k, of->lda, of->ldb, of->ldc, of->batch.n};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        /* rocBLAS's function has 32-bit sizes. */
        if (sizes[k] > INT32_MAX)
            return false;
    if (of->bias) {
        fxi_gpu_too_much(b, "rocBLAS cannot add a bias");
        return true;
    }
    product *p = fxi_rt_select(d) == 0 ? fxi_rt_host->alloc(sizeof *p) : NULL;
    if (!p)
        return false;
    *p = (product){.of = *of};
    const int error = query(d, p);
    if (error) {
        char why[160];
        snprintf(why, sizeof why, "rocBLAS cannot prepare a product (%s)", roc.StatusName(error));
        if (error != FXI_ROC_NOT_IMPLEMENTED)
            fxi_rt_library_warn(&fxi_rt_blas, why);
        release(b->device, p);
        return false;
    }
    /* Copies, because fxi_gpu_add_routine frees the state if it fails. */
    fxi_gpu_product at = p->of;
    const int64_t bytes = (int64_t)p->work;
    fxi_rt_blas_before(b, &at);
    fxi_gpu_call *c = fxi_gpu_add_routine(b, &routine, p, WORK + (bytes > 0));
    c->calls = (int32_t)at.calls;
    for (int k = 0; k < FXI_GPU_MATRICES; k++)
        fxi_gpu_buffer(c, k, (fxi_gpu_role)at.at[k].role, at.at[k].k);
    if (bytes > 0)
        fxi_gpu_buffer(c, WORK, FXI_GPU_WORK, fxi_gpu_work(b, bytes));
    fxi_rt_blas_after(b, &at);
    return true;
}
