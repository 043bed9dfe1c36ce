/* sim_rocblas.c: the functions of rocBLAS that the AMDGPU plugin uses. It refuses what rocBLAS
 * refuses, and fails where rocBLAS would allocate memory itself, because the plugin must give it
 * enough work space.
 */
#include "gpurt_rocblas.h"
#include "sim_blas.h"

#include <stdlib.h>

#define DECLARE(result, member, symbol, need, arguments)                                           \
    __attribute__((visibility("default"))) result sim_##member arguments __asm__(#symbol);
FXI_ROC_FUNCTIONS(DECLARE)
#define DRIVER "libamdhip64.so.7"
enum {
    INVALID_HANDLE = 1,
    INVALID_POINTER = 3,
    INVALID_SIZE = 4,
    MEMORY_ERROR = 5,
    INTERNAL_ERROR = 6,
    QUERY_MISMATCH = 8,
    INVALID_VALUE = 11
};

struct fxi_roc_handle_object {
    int device;
    fxi_rt_stream stream;
    bool asks, atomics;
    size_t asked, bytes;
    void *work;
};

#define BEGIN(symbol, handle)                                                                      \
    do {                                                                                           \
        bool lost;                                                                                 \
        const int error = sim_script(#symbol, &lost);                                              \
        if (error || !(handle))                                                                    \
            return error ? error : INVALID_HANDLE;                                                 \
    } while (0)

const char *sim_StatusName(int status)
{
    return status == INTERNAL_ERROR            ? "rocblas_status_internal_error"
           : status == MEMORY_ERROR            ? "rocblas_status_memory_error"
           : status == INVALID_HANDLE          ? "rocblas_status_invalid_handle"
           : status == FXI_ROC_NOT_IMPLEMENTED ? "rocblas_status_not_implemented"
                                               : "rocblas_status_invalid_value";
}

int sim_Create(fxi_roc_handle *out)
{
    BEGIN(rocblas_create_handle, out);
    *out = calloc(1, sizeof **out);
    if (!*out)
        return MEMORY_ERROR;
    **out = (struct fxi_roc_handle_object){.device = sim_product_device(DRIVER), .atomics = true};
    return FXI_ROC_OK;
}

int sim_SetStream(fxi_roc_handle h, fxi_rt_stream stream)
{
    BEGIN(rocblas_set_stream, h);
    h->stream = stream;
    return FXI_ROC_OK;
}

int sim_SetAtomics(fxi_roc_handle h, int allowed)
{
    BEGIN(rocblas_set_atomics_mode, h);
    h->atomics = allowed != 0;
    return FXI_ROC_OK;
}

int sim_SetWork(fxi_roc_handle h, void *work, size_t bytes)
{
    BEGIN(rocblas_set_workspace, h);
    h->work = work;
    h->bytes = bytes;
    return FXI_ROC_OK;
}

int sim_StartQuery(fxi_roc_handle h)
{
    BEGIN(rocblas_start_device_memory_size_query, h);
    if (h->asks)
        return QUERY_MISMATCH;
    h->asks = true;
    h->asked = 0;
    return FXI_ROC_OK;
}

int sim_StopQuery(fxi_roc_handle h, size_t *out)
{
    BEGIN(rocblas_stop_device_memory_size_query, h);
    if (!h->asks)
        return QUERY_MISMATCH;
    h->asks = false;
    *out = h->asked;
    return FXI_ROC_OK;
}

static sim_type type_of(int type)
{
    return type == FXI_ROC_F32    ? SIM_F32
           : type == FXI_ROC_F64  ? SIM_F64
           : type == FXI_ROC_F16  ? SIM_F16
           : type == FXI_ROC_BF16 ? SIM_BF16
                                  : SIM_TYPES;
}

static sim_matrix matrix_of(const void *address, int operation, int64_t rows, int64_t columns,
                            int64_t ld, int64_t batch_stride)
{
    const bool transposed = operation == FXI_ROC_TRANSPOSE;
    return (sim_matrix){.address = address,
                        .transposed = transposed,
                        .rows = transposed ? columns : rows,
                        .columns = transposed ? rows : columns,
                        .ld = ld,
                        .batch_stride = batch_stride};
}

/* The first call of a size loads a kernel, which a capture cannot contain. Returns false if it
 * would have to. */
static bool has_kernel(const sim_product *p, const void *stream)
{
    enum { KERNELS = 256 };
    static struct {
        int64_t m, n, k;
        int type;
    } kernels[KERNELS];
    static int n;
    for (int i = 0; i < n; i++)
        if (kernels[i].m == p->m && kernels[i].n == p->n && kernels[i].k == p->k &&
            kernels[i].type == (int)p->type)
            return true;
    if (sim_stream_captured(DRIVER, stream))
        return false;
    if (n < KERNELS) {
        kernels[n].m = p->m;
        kernels[n].n = p->n;
        kernels[n].k = p->k;
        kernels[n++].type = (int)p->type;
    }
    return true;
}

/* Answers a query of the work space, or queues the product. */
static int ask_or_run(fxi_roc_handle h, sim_product *p)
{
    /* The work space holds the sums of 16-bit numbers as Float32. */
    p->work =
        sim_type_size(p->type) == 2 ? sim_product_work(p->type, p->m, p->n, p->k, p->batches) : 0;
    if (h->asks) {
        const bool more = p->work > h->asked;
        h->asked = more ? p->work : h->asked;
        return more ? FXI_ROC_SIZE_INCREASED : FXI_ROC_SIZE_UNCHANGED;
    }
    if (!p->a.address || !p->b.address || !p->c.address)
        return INVALID_POINTER;
    if (p->work > h->bytes || h->atomics)
        return MEMORY_ERROR;
    if (!has_kernel(p, h->stream))
        return INTERNAL_ERROR;
    return sim_product_queue(DRIVER, "rocblas_gemm_strided_batched_ex", p, NULL, h->work, h->stream)
               ? INTERNAL_ERROR
               : FXI_ROC_OK;
}

int sim_Gemm(fxi_roc_handle h, int op_a, int op_b, int32_t m, int32_t n, int32_t k,
             const void *alpha, const void *a, int type_a, int32_t lda, int64_t stride_a,
             const void *b, int type_b, int32_t ldb, int64_t stride_b, const void *beta,
             const void *c, int type_c, int32_t ldc, int64_t stride_c, void *d, int type_d,
             int32_t ldd, int64_t step_d, int32_t batches, int compute, int algorithm,
             int32_t solution, uint32_t flags)
{
    BEGIN(rocblas_gemm_strided_batched_ex, h);
    sim_product p = {.type = type_of(type_d),
                     .m = m,
                     .n = n,
                     .k = k,
                     .batches = batches,
                     .a = matrix_of(a, op_a, m, k, lda, stride_a),
                     .b = matrix_of(b, op_b, k, n, ldb, stride_b),
                     .c = matrix_of(d, FXI_ROC_NONE, m, n, ldd, step_d)};
    const bool f64 = p.type == SIM_F64;
    p.alpha = f64 ? *(const double *)alpha : (double)*(const float *)alpha;
    if (m <= 0 || n <= 0 || k <= 0 || batches <= 0 || lda < p.a.rows || ldb < p.b.rows || ldd < m)
        return INVALID_SIZE;
    if (p.type == SIM_TYPES || type_a != type_d || type_b != type_d || type_c != type_d ||
        compute != (f64 ? FXI_ROC_F64 : FXI_ROC_F32))
        return FXI_ROC_NOT_IMPLEMENTED;
    if (c != d || ldc != ldd || stride_c != step_d || algorithm || solution || flags ||
        (f64 ? *(const double *)beta : (double)*(const float *)beta) != 0 ||
        h->device != sim_product_device(DRIVER))
        return INVALID_VALUE;
    return ask_or_run(h, &p);
}
