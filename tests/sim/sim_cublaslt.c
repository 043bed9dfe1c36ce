/* sim_cublaslt.c: the functions of cuBLASLt that the CUDA plugin uses. It refuses what cuBLASLt
 * refuses: combinations of types that are not supported, matrices whose columns overlap, an
 * algorithm with another kind of reduction than requested, addresses that are not aligned as an
 * algorithm requires, too little work space, and BFloat16 before sm_80.
 */
#include "gpurt_cublaslt.h"
#include "sim_blas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DECLARE(result, member, symbol, need, arguments)                                           \
    __attribute__((visibility("default"))) result sim_##member arguments __asm__(#symbol);
FXI_LT_FUNCTIONS(DECLARE)
#define DRIVER "libcuda.so.1"
enum { NOT_INITIALIZED = 1, ALLOC_FAILED = 3, INVALID_VALUE = 7, EXECUTION_FAILED = 13 };

struct fxi_lt_handle_object {
    int device;
};
struct fxi_lt_desc_object {
    int sum, scale, transpose_a, transpose_b, epilogue;
    const void *bias;
};
struct fxi_lt_layout_object {
    int type;
    int64_t rows, columns, ld, batch_stride;
    int32_t batches;
};
struct fxi_lt_preference_object {
    uint64_t work;
    uint32_t reductions, alignment[4];
};
/* The members of an algorithm that the heuristic returns. */
enum { MARK, WORK, ALIGNMENT };
static const uint64_t mark = 0x73696d756c617465;

static int scripted(const char *symbol)
{
    bool lost;
    return sim_script(symbol, &lost);
}
#define BEGIN(symbol)                                                                              \
    do {                                                                                           \
        const int error = scripted(#symbol);                                                       \
        if (error)                                                                                 \
            return error;                                                                          \
    } while (0)

size_t sim_Version(void)
{
    return 130100;
}

const char *sim_StatusName(int status)
{
    return status == NOT_INITIALIZED        ? "CUBLAS_STATUS_NOT_INITIALIZED"
           : status == ALLOC_FAILED         ? "CUBLAS_STATUS_ALLOC_FAILED"
           : status == INVALID_VALUE        ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == EXECUTION_FAILED     ? "CUBLAS_STATUS_EXECUTION_FAILED"
           : status == FXI_LT_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                            : "CUBLAS_STATUS_INTERNAL_ERROR";
}

/* ---- objects --------------------------------------------------------------------------------- */

static int made(void *object)
{
    return object ? FXI_LT_OK : ALLOC_FAILED;
}

int sim_Create(fxi_lt_handle *out)
{
    BEGIN(cublasLtCreate);
    const int device = sim_product_device(DRIVER);
    *out = device >= 0 ? malloc(sizeof **out) : NULL;
    if (*out)
        (*out)->device = device;
    return *out ? FXI_LT_OK : NOT_INITIALIZED;
}

int sim_DescCreate(fxi_lt_desc *out, int sum, int scale)
{
    BEGIN(cublasLtMatmulDescCreate);
    *out = calloc(1, sizeof **out);
    if (*out)
        **out = (struct fxi_lt_desc_object){.sum = sum, .scale = scale, .epilogue = 1};
    return made(*out);
}

int sim_DescSet(fxi_lt_desc d, int which, const void *value, size_t size)
{
    BEGIN(cublasLtMatmulDescSetAttribute);
    void *to = which == FXI_LT_DESC_TRANSPOSE_A   ? (void *)&d->transpose_a
               : which == FXI_LT_DESC_TRANSPOSE_B ? (void *)&d->transpose_b
               : which == FXI_LT_DESC_EPILOGUE    ? (void *)&d->epilogue
               : which == FXI_LT_DESC_BIAS        ? (void *)&d->bias
                                                  : NULL;
    if (!to || size != (which == FXI_LT_DESC_BIAS ? sizeof(void *) : sizeof(int)))
        return INVALID_VALUE;
    memcpy(to, value, size);
    return FXI_LT_OK;
}

int sim_DescDestroy(fxi_lt_desc d)
{
    free(d);
    return FXI_LT_OK;
}

int sim_LayoutCreate(fxi_lt_layout *out, int type, uint64_t rows, uint64_t columns, int64_t ld)
{
    BEGIN(cublasLtMatrixLayoutCreate);
    *out = malloc(sizeof **out);
    if (*out)
        **out = (struct fxi_lt_layout_object){.type = type,
                                              .rows = (int64_t)rows,
                                              .columns = (int64_t)columns,
                                              .ld = ld,
                                              .batches = 1};
    return made(*out);
}

int sim_LayoutSet(fxi_lt_layout l, int which, const void *value, size_t size)
{
    BEGIN(cublasLtMatrixLayoutSetAttribute);
    void *to = which == FXI_LT_LAYOUT_BATCHES        ? (void *)&l->batches
               : which == FXI_LT_LAYOUT_BATCH_STRIDE ? (void *)&l->batch_stride
                                                     : NULL;
    if (!to || size != (which == FXI_LT_LAYOUT_BATCHES ? sizeof(int32_t) : sizeof(int64_t)))
        return INVALID_VALUE;
    memcpy(to, value, size);
    return FXI_LT_OK;
}

int sim_LayoutDestroy(fxi_lt_layout l)
{
    free(l);
    return FXI_LT_OK;
}

int sim_PreferenceCreate(fxi_lt_preference *out)
{
    BEGIN(cublasLtMatmulPreferenceCreate);
    *out = malloc(sizeof **out);
    if (*out)
        **out =
            (struct fxi_lt_preference_object){.reductions = 7, .alignment = {256, 256, 256, 256}};
    return made(*out);
}

int sim_PreferenceSet(fxi_lt_preference w, int which, const void *value, size_t size)
{
    BEGIN(cublasLtMatmulPreferenceSetAttribute);
    const int k = which - FXI_LT_PREFERENCE_ALIGNMENT_A;
    void *to = which == FXI_LT_PREFERENCE_WORK         ? (void *)&w->work
               : which == FXI_LT_PREFERENCE_REDUCTIONS ? (void *)&w->reductions
               : k >= 0 && k < 4                       ? (void *)&w->alignment[k]
                                                       : NULL;
    if (!to || size != (which == FXI_LT_PREFERENCE_WORK ? sizeof(uint64_t) : sizeof(uint32_t)))
        return INVALID_VALUE;
    memcpy(to, value, size);
    return FXI_LT_OK;
}

int sim_PreferenceDestroy(fxi_lt_preference w)
{
    free(w);
    return FXI_LT_OK;
}

/* ---- products -------------------------------------------------------------------------------- */

static sim_type type_of(int type)
{
    return type == FXI_LT_R_32F    ? SIM_F32
           : type == FXI_LT_R_64F  ? SIM_F64
           : type == FXI_LT_R_16F  ? SIM_F16
           : type == FXI_LT_R_16BF ? SIM_BF16
                                   : SIM_TYPES;
}

/* Is the combination of the types of elements, sums and factors supported? */
static bool fit(const struct fxi_lt_desc_object *d, int type)
{
    const bool f64 = type == FXI_LT_R_64F;
    return d->scale == (f64 ? FXI_LT_R_64F : FXI_LT_R_32F) &&
           (d->sum == (f64 ? FXI_LT_COMPUTE_64F : FXI_LT_COMPUTE_32F) ||
            (d->sum == FXI_LT_COMPUTE_TF32 && type == FXI_LT_R_32F)) &&
           (d->epilogue == 1 || d->epilogue == FXI_LT_EPILOGUE_BIAS);
}

static sim_matrix matrix_of(const struct fxi_lt_layout_object *l, bool transposed,
                            const void *address)
{
    return (sim_matrix){.address = address,
                        .transposed = transposed,
                        .rows = l->rows,
                        .columns = l->columns,
                        .ld = l->ld,
                        .batch_stride = l->batch_stride};
}

/* Describes the product; returns an error if the descriptors contradict each other. */
static int product_of(sim_product *p, const struct fxi_lt_desc_object *d, fxi_lt_layout a,
                      fxi_lt_layout b, fxi_lt_layout c, fxi_lt_layout out)
{
    const int64_t k = d->transpose_a ? a->rows : a->columns;
    *p = (sim_product){.type = type_of(c->type),
                       .tf32 = d->sum == FXI_LT_COMPUTE_TF32,
                       .m = c->rows,
                       .n = c->columns,
                       .k = k,
                       .batches = c->batches,
                       .a = matrix_of(a, d->transpose_a, NULL),
                       .b = matrix_of(b, d->transpose_b, NULL),
                       .c = matrix_of(c, false, NULL),
                       .bias = d->epilogue == FXI_LT_EPILOGUE_BIAS};
    const bool agree = (d->transpose_a ? a->columns : a->rows) == c->rows &&
                       (d->transpose_b ? b->columns : b->rows) == k &&
                       (d->transpose_b ? b->rows : b->columns) == c->columns &&
                       a->batches == c->batches && b->batches == c->batches && c == out;
    if (!agree || a->ld < a->rows || b->ld < b->rows || c->ld < c->rows)
        return INVALID_VALUE;
    const bool known = p->type < SIM_TYPES && a->type == c->type && b->type == c->type &&
                       fit(d, c->type) &&
                       (p->type != SIM_BF16 || sim_setting("SIM_ARCHITECTURE", 90) >= 80);
    return known ? FXI_LT_OK : FXI_LT_NOT_SUPPORTED;
}

int sim_Heuristic(fxi_lt_handle h, fxi_lt_desc d, fxi_lt_layout a, fxi_lt_layout b, fxi_lt_layout c,
                  fxi_lt_layout out, fxi_lt_preference w, int most, fxi_lt_found *found, int *n)
{
    BEGIN(cublasLtMatmulAlgoGetHeuristic);
    sim_product p;
    const int error = h && most > 0 ? product_of(&p, d, a, b, c, out) : INVALID_VALUE;
    *n = 0;
    if (error)
        return error;
    const size_t work = sim_product_work(p.type, p.m, p.n, p.k, p.batches);
    const bool cut = work <= w->work && (w->reductions & FXI_LT_REDUCTION_COMPUTE_TYPE);
    *found = (fxi_lt_found){.work = cut ? work : 0};
    found->algorithm.data[MARK] = mark;
    found->algorithm.data[WORK] = found->work;
    found->algorithm.data[ALIGNMENT] = w->alignment[0];
    *n = 1;
    return FXI_LT_OK;
}

static bool aligned(const void *address, uint64_t to)
{
    return (uintptr_t)address % to == 0;
}

int sim_Matmul(fxi_lt_handle h, fxi_lt_desc d, const void *alpha, const void *a, fxi_lt_layout la,
               const void *b, fxi_lt_layout lb, const void *beta, const void *c, fxi_lt_layout lc,
               void *to, fxi_lt_layout lto, const fxi_lt_algorithm *algorithm, void *work,
               size_t bytes, fxi_rt_stream stream)
{
    BEGIN(cublasLtMatmul);
    sim_product p;
    const int error = product_of(&p, d, la, lb, lc, lto);
    const uint64_t *is = algorithm->data;
    const bool f64 = p.type == SIM_F64;
    if (error)
        return error;
    p.alpha = f64 ? *(const double *)alpha : (double)*(const float *)alpha;
    p.work = is[WORK];
    if (is[MARK] != mark || p.work > bytes || (p.work && (!work || !aligned(work, 256))) ||
        !aligned(a, is[ALIGNMENT]) || !aligned(b, is[ALIGNMENT]) || !aligned(to, is[ALIGNMENT]) ||
        c != to || (f64 ? *(const double *)beta : (double)*(const float *)beta) != 0 ||
        (p.bias && !d->bias) || h->device != sim_product_device(DRIVER))
        return INVALID_VALUE;
    /* cuBLASLt's fast kernels need leading dimensions of whole 16 bytes. */
    if (getenv("SIM_SLOW") && sim_type_size(p.type) == 2 &&
        (p.a.ld % 8 || p.b.ld % 8 || p.c.ld % 8))
        p.call.milliseconds = 40;
    p.a.address = a;
    p.b.address = b;
    p.c.address = to;
    return sim_product_queue(DRIVER, "cublasLtMatmul", &p, d->bias, work, stream) ? EXECUTION_FAILED
                                                                                  : FXI_LT_OK;
}
