/* test_gpurt_blas.c: matrix products by cuBLASLt and rocBLAS, and without them. They run on
 * simulated drivers and libraries (tests/sim/sim.h). ctest: simulated timeout=300
 *
 * A library is opened once in a process: every row runs in a child of its own, with its own
 * environment.
 */
#include <cflux.h>

#include "gpu_device.h"
#include "simulated_rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SIM CFLUX_BUILD_DIR "/tests/sim"

/* ---- what a child does: prints what it sees -------------------------------------------------- */

static const char *backend = "CUDA";

static void hear(int level, const char *text, void *user)
{
    (void)user;
    /* Whether compiling takes long enough to be mentioned depends on the machine. */
    if (strstr(text, "compiling kernels for the first time") == NULL)
        printf("; %d: %s; ", level, text);
}

static const fxi_gpu_counters *counters(void)
{
    return fx_backend_proc(backend, "counters");
}

static fx_device *gpu(void)
{
    return fx_device_get(backend, 0);
}

/* Numbers whose sums have rounding errors. */
static fx_array *some(fx_dtype dtype, int64_t rows, int64_t columns, int64_t batches)
{
    return fx_cast(fx_randn(rows, columns, batches), dtype);
}

/* ---- products of every form ------------------------------------------------------------------ */

typedef struct form {
    const char *name;
    int64_t m, n, k, a_batches, b_batches;
    bool transpose_a, transpose_b;
    int64_t skip; /* the operands begin this many rows inside larger arrays */
    bool taken;   /* by a library */
} form;
static const form forms[] = {{"small", 3, 4, 5, 1, 1, false, false, 0, true},
                             {"transposed", 5, 3, 7, 1, 1, true, false, 0, true},
                             {"both transposed", 4, 6, 9, 1, 1, true, true, 0, true},
                             {"column", 6, 1, 8, 1, 1, false, false, 0, true},
                             {"row", 1, 6, 8, 1, 1, false, true, 0, true},
                             {"one term", 4, 5, 1, 1, 1, false, false, 0, true},
                             {"work space", 40, 30, 400, 1, 1, true, false, 0, true},
                             {"batches", 3, 4, 5, 6, 6, false, false, 0, true},
                             {"batches, transposed", 3, 4, 5, 2, 2, true, true, 0, true},
                             {"one first factor", 3, 4, 5, 1, 7, false, false, 0, true},
                             {"one first factor, transposed", 3, 4, 4, 1, 7, false, true, 0, true},
                             {"one second factor", 3, 4, 5, 7, 1, false, true, 0, true},
                             {"part of arrays", 4, 3, 6, 1, 1, false, false, 1, true},
                             {"part of arrays, batches", 4, 3, 6, 3, 3, false, true, 3, true},
                             {"no element", 0, 3, 2, 1, 1, false, false, 0, false},
                             {"no term", 2, 3, 0, 1, 1, false, false, 0, false}};

/* A factor on the host: rows×columns of it are used. */
static fx_array *factor(fx_dtype dtype, const form *f, int64_t rows, int64_t columns,
                        int64_t batches, bool transposed)
{
    return some(dtype, (transposed ? columns : rows) + f->skip, transposed ? rows : columns,
                batches);
}

static fx_array *used(fx_device *device, const form *f, fx_array *x, bool transposed)
{
    x = fx_to(device, x);
    if (f->skip)
        x = fx_slice(x, 0, f->skip, fx_size(x, 0));
    return transposed ? fx_permute(x, 1, 0, 2) : x;
}

static fx_array *product(fx_device *device, const form *f, fx_array *a, fx_array *b)
{
    return fx_cast(
        fx_batched_mul(used(device, f, a, f->transpose_a), used(device, f, b, f->transpose_b)),
        FX_DTYPE_F64);
}

/* The largest difference, as a part of the largest element. */
static double apart(fx_array *x, fx_array *y)
{
    const int64_t n = fx_length(x);
    double *a = calloc((size_t)n + 1, sizeof *a), *b = calloc((size_t)n + 1, sizeof *b), most = 0,
           largest = 1e-30;
    if (fx_length(y) != n || fx_read_into(x, a, (size_t)n * sizeof *a) ||
        fx_read_into(y, b, (size_t)n * sizeof *b))
        most = INFINITY;
    for (int64_t k = 0; k < n; k++) {
        const double d = fabs(a[k] - b[k]);
        most = d > most || d != d ? d : most;
        largest = fabs(b[k]) > largest ? fabs(b[k]) : largest;
    }
    free(a);
    free(b);
    return most / largest;
}

static void multiply_all(void)
{
    static const struct {
        fx_dtype dtype;
        double near;
    } types[] = {
        {FX_DTYPE_F32, 1e-5}, {FX_DTYPE_F64, 1e-13}, {FX_DTYPE_F16, 2e-3}, {FX_DTYPE_BF16, 1e-2}};
    int wrong = 0, by_library = 0, expected = 0;
    fx_seed(5);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
            const form *f = &forms[k];
            FX_STEP;
            fx_array *a = factor(types[t].dtype, f, f->m, f->k, f->a_batches, f->transpose_a);
            fx_array *b = factor(types[t].dtype, f, f->k, f->n, f->b_batches, f->transpose_b);
            const uint64_t before = counters()->calls;
            const double d = apart(product(gpu(), f, a, b), product(fx_cpu_device(), f, a, b));
            const int calls = (int)(counters()->calls - before);
            if (!(d <= types[t].near) || calls > 1)
                printf("%s of %s is %g apart, %d calls; ", f->name, fx_dtype_name(types[t].dtype),
                       d, calls);
            wrong += !(d <= types[t].near);
            by_library += calls;
            expected += f->taken;
        }
    printf("%d wrong, %s. %s", wrong,
           by_library == expected ? "all by the library"
           : by_library == 0      ? "none by the library"
                                  : "some by the library",
           fx_error_take().message);
}

/* ---- heads of attention ---------------------------------------------------------------------- */

/* The product of values and scores of each head and observation, with its heads joined. The values
 * are a part of an array of queries, keys and values, so that heads and observations do not follow
 * each other at one distance. `turned`: the product is the transpose, whose rows are stored
 * densely.
 */
static fx_array *heads(fx_device *device, fx_array *all, fx_array *scores, int64_t n, bool turned)
{
    const int64_t width = fx_size(all, 0) / 3, t = fx_size(all, 1), batch = fx_size(all, 2);
    fx_array *x = fx_reshape(fx_to(device, all), width / n, n, 3, t, batch);
    x = fx_permute(fx_reshape(fx_slice(x, 2, 1, 2), width / n, n, t, batch), 0, 2, 1, 3);
    scores = fx_to(device, scores);
    fx_array *y =
        turned
            ? fx_permute(fx_batched_mul(fx_permute(scores, 1, 0, 2, 3), fx_permute(x, 1, 0, 2, 3)),
                         1, 2, 0, 3)
            : fx_permute(fx_batched_mul(x, scores), 0, 2, 1, 3);
    return fx_cast(fx_reshape(y, width, t, batch), FX_DTYPE_F64);
}

/* Each observation is a call of the library, which has the heads as its batches; small products are
 * one kernel. */
static void attention(void)
{
    static const struct {
        int64_t t, width, heads, batch;
        bool turned;
    } rows[] = {{512, 128, 4, 2, false}, {512, 128, 4, 2, true}, {16, 8, 2, 3, false}};
    fx_seed(7);
    for (int k = 0; k < 3; k++) {
        FX_STEP;
        const int64_t t = rows[k].t, n = rows[k].heads;
        fx_array *all = fx_randn(3 * rows[k].width, t, rows[k].batch),
                 *scores = fx_randn(t, t, n, rows[k].batch);
        const uint64_t before = counters()->calls;
        const double d = apart(heads(gpu(), all, scores, n, rows[k].turned),
                               heads(fx_cpu_device(), all, scores, n, rows[k].turned));
        printf("%s, %d calls; ", d < 1e-5 ? "near" : "far", (int)(counters()->calls - before));
    }
    printf("%s", fx_error_take().message);
}

/* Which calls of attention are one kernel (k), and which are products (p): the first of each type
 * that has one, then calls that differ from these in what the kernel lacks. */
static void kernels(void)
{
    static const struct {
        fx_dtype dtype;
        int64_t features, value_features, queries, keys;
    } calls[] = {{FX_DTYPE_F16, 16, 16, 64, 64},    {FX_DTYPE_BF16, 128, 128, 64, 64},
                 {FX_DTYPE_F32, 16, 16, 64, 64},    {FX_DTYPE_F16, 12, 16, 64, 64},
                 {FX_DTYPE_F16, 16, 12, 64, 64},    {FX_DTYPE_BF16, 136, 128, 64, 64},
                 {FX_DTYPE_BF16, 128, 128, 63, 64}, {FX_DTYPE_F16, 16, 16, 64, 63}};
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        static char plan[8192];
        FX_STEP;
        const fx_dtype type = calls[k].dtype;
        fx_array *q = fx_to(gpu(), some(type, calls[k].features, calls[k].queries, 1)),
                 *x = fx_to(gpu(), some(type, calls[k].features, calls[k].keys, 1)),
                 *v = fx_to(gpu(), some(type, calls[k].value_features, calls[k].keys, 1));
        fx_plan_text(fx_child(fx_dot_product_attention(q, x, v), 0), plan, sizeof plan);
        printf("%s", strstr(plan, "attention") ? "k" : strstr(plan, "matmul") ? "p" : plan);
    }
    printf(". %s", fx_error_take().message);
}

/* ---- odd leading dimensions ------------------------------------------------------------------ */

/* Products of which A, B, C or no matrix has an odd leading dimension. Prints the
 * library calls and launches of three runs. */
static void odd(void)
{
    static const struct {
        int64_t m, n, k;
        bool transpose_a, transpose_b;
    } rows[] = {{288, 280, 129, true, true},
                {280, 288, 129, false, false},
                {131, 288, 272, true, false},
                {128, 256, 272, true, false}};
    fx_seed(11);
    for (int i = 0; i < 4; i++) {
        const form f = {.transpose_a = rows[i].transpose_a, .transpose_b = rows[i].transpose_b};
        fx_array *a = factor(FX_DTYPE_BF16, &f, rows[i].m, rows[i].k, 1, f.transpose_a);
        fx_array *b = factor(FX_DTYPE_BF16, &f, rows[i].k, rows[i].n, 1, f.transpose_b);
        fx_array *cpu = product(fx_cpu_device(), &f, a, b), *x = fx_to(gpu(), a),
                 *y = fx_to(gpu(), b);
        fx_eval(fx_tuple(x, y));
        for (int k = 0; k < 3; k++) {
            FX_STEP;
            const uint64_t calls = counters()->calls, launches = counters()->launches;
            fx_array *z = fx_batched_mul(used(gpu(), &f, x, f.transpose_a),
                                         used(gpu(), &f, y, f.transpose_b));
            fx_eval(z);
            printf("%d/%d ", (int)(counters()->calls - calls),
                   (int)(counters()->launches - launches));
            if (apart(fx_cast(z, FX_DTYPE_F64), cpu) > 1e-2)
                printf("wrong ");
        }
        printf("; ");
    }
    printf("%s", fx_error_take().message);
}

/* ---- ends of steps, precision, integers ------------------------------------------------------ */

/* Counts launches and library calls since the call before. */
static void count(const char *what)
{
    static uint64_t launches, calls;
    printf("%s: %d launches, %d calls; ", what, (int)(counters()->launches - launches),
           (int)(counters()->calls - calls));
    launches = counters()->launches;
    calls = counters()->calls;
}

static void ends(void)
{
    float back[6];
    float nan_inside[] = {1, NAN, 2, 3};
    fx_array *w = fx_to(gpu(), fx_from(FX_DTYPE_F32, nan_inside, 2, 2));
    fx_array *x = fx_to(gpu(), fx_ones(2, 3)), *bias = fx_to(gpu(), fx_vector(10, -100));
    fx_array *full = fx_to(gpu(), fx_ones(2, 3));
    fx_array *const all[] = {w, x, bias, full};
    for (int k = 0; k < 4; k++)
        fx_eval(all[k]);
    count("moved");
    fx_read_into(fx_add(fx_matmul(w, x), bias), back, sizeof back);
    count("bias");
    printf("%g %s; ", (double)back[4], isnan(back[5]) ? "NaN" : "lost");
    fx_read_into(fx_relu(fx_add(fx_matmul(w, x), bias)), back, sizeof back);
    count("relu");
    printf("%g %s; ", (double)back[4], isnan(back[5]) ? "NaN" : "lost");
    fx_read_into(fx_add(fx_matmul(w, x), full), back, sizeof back);
    count("sum");
    printf("%g; ", (double)back[2]);
    /* 257 is rounded to 256, and again after 1 is added. */
    fx_array *first = fx_cast(fx_from(FX_DTYPE_F32, ((float[]){256, 1}), 1, 2), FX_DTYPE_BF16),
             *second = fx_cast(fx_ones(2, 3), FX_DTYPE_BF16),
             *one = fx_cast(fx_ones(1), FX_DTYPE_BF16);
    fx_array *sum = fx_add(fx_matmul(fx_to(gpu(), first), fx_to(gpu(), second)), fx_to(gpu(), one));
    fx_eval(sum);
    fx_read_into(fx_cast(sum, FX_DTYPE_F32), back, 3 * sizeof *back);
    printf("rounded to %g. %s", (double)back[2], fx_error_take().message);
}

static void precision(void)
{
    fx_seed(3);
    fx_array *a = some(FX_DTYPE_F32, 8, 30, 1), *b = some(FX_DTYPE_F32, 30, 8, 1);
    const form f = {.name = ""};
    fx_array *exact = product(fx_cpu_device(), &f, a, b);
    const double highest = apart(product(gpu(), &f, a, b), exact);
    fx_set_matmul_precision(FX_PRECISION_HIGH);
    const double high = apart(product(gpu(), &f, a, b), exact);
    printf("highest %s, high %s. %s", highest < 1e-6 ? "near" : "far",
           high < 1e-6   ? "is as near"
           : high < 1e-2 ? "is rounded"
                         : "is far",
           fx_error_take().message);
}

static void integers(void)
{
    const int32_t numbers[] = {1, 2, 3, 4};
    int32_t back[4] = {0};
    fx_array *x = fx_to(gpu(), fx_from(FX_DTYPE_I32, numbers, 2, 2));
    fx_read_into(fx_matmul(x, x), back, sizeof back);
    printf("%d %d, %d calls. %s", back[0], back[3], (int)counters()->calls,
           fx_error_take().message);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Computes one product and prints the messages. */
static void multiply(void)
{
    float back[4] = {0};
    const fx_dtype dtype = getenv("OF_BF16") ? FX_DTYPE_BF16 : FX_DTYPE_F32;
    fx_array *x = fx_to(gpu(), fx_cast(fx_ones(2, 2), dtype));
    for (int k = 0; k < 2; k++) {
        const bool ok =
            fx_read_into(fx_cast(fx_matmul(x, x), FX_DTYPE_F32), back, sizeof back) == FX_OK &&
            back[3] == 2;
        const fx_error e = ok ? (fx_error){.message = ""} : fx_error_take();
        printf("; %s %s, %d calls", ok ? "right" : fx_status_name(e.status), e.message,
               (int)counters()->calls);
    }
}

static bool library_is_loaded(void)
{
    char line[1024];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, "libcublasLt") || strstr(line, "librocblas");
    if (maps)
        fclose(maps);
    return found;
}

/* The library is opened by the first product, not before. */
static void open_late(void)
{
    float back[2];
    fx_array *x = fx_to(gpu(), fx_ones(2));
    fx_read_into(fx_exp(x), back, sizeof back);
    printf("after exp: %s", library_is_loaded() ? "open" : "closed");
    multiply();
    printf("; after matmul: %s", library_is_loaded() ? "open" : "closed");
}

static void parts(void)
{
    const char *own = strcmp(backend, "CUDA") == 0 ? "CUDA:cuBLAS" : "AMDGPU:rocBLAS",
               *other = strcmp(backend, "CUDA") == 0 ? "CUDA:rocBLAS" : "AMDGPU:cuBLAS";
    printf("%d, why: %s; ", fx_functional(own), fx_why_not(own));
    printf("%d, why: %s", fx_functional(other), fx_why_not(other));
}

static const struct act {
    const char *name;
    void (*run)(void);
} acts[] = {{"all", multiply_all},  {"attention", attention}, {"odd", odd},
            {"ends", ends},         {"precision", precision}, {"integers", integers},
            {"multiply", multiply}, {"late", open_late},      {"parts", parts},
            {"kernels", kernels}};

static int child(const char *name)
{
    if (strncmp(name, "amdgpu-", 7) == 0) {
        backend = "AMDGPU";
        name += 7;
    }
    fx_message_set_hook(hear, NULL);
    fx_use(backend);
    for (size_t k = 0; k < sizeof acts / sizeof *acts; k++)
        if (strcmp(acts[k].name, name) == 0)
            acts[k].run();
    /* At the end of the process, plans leave what a library made for them. */
    fx_reclaim();
    return 0;
}

/* ---- the parent ------------------------------------------------------------------------------ */

#define SLOWER  "cflux's own kernels compute these matrix products"
#define KERNELS "; right , 0 calls; right , 0 calls"

static const simulated_row rows[] = {
    {"", "all", {"0 wrong, all by the library. ", "!" SLOWER}},
    {"", "amdgpu-all", {"0 wrong, all by the library. ", "!" SLOWER}},
    {"SIM_DEFER=1", "all", {"0 wrong, all by the library. "}},
    {"SIM_DEFER=1", "amdgpu-all", {"0 wrong, all by the library. "}},
    {"FX_CUBLASLT_LIBRARY=off", "all", {"0 wrong, none by the library. ", "!" SLOWER}},
    {"FX_ROCBLAS_LIBRARY=off", "amdgpu-all", {"0 wrong, none by the library. ", "!" SLOWER}},
    {"", "attention", {"near, 2 calls; near, 2 calls; near, 0 calls; ", "!" SLOWER}},
    {"SIM_DEFER=1", "amdgpu-attention", {"near, 2 calls; near, 2 calls; near, 0 calls; "}},
    {"", "kernels", {"kkpppppp. "}},
    {"FX_GPU_ATTENTION=0", "kernels", {"pppppppp. "}},
    {"SIM_ARCHITECTURE=75", "kernels", {"pppppppp. "}},
    {"", "amdgpu-kernels", {"pppppppp. "}},
    /* Two matrices have the odd size, and are copied before the call, C after it. */
    {"FX_GPU_MEASURE=0", "odd", {"1/1 1/1 1/1 ; 1/1 1/1 1/1 ; 1/1 1/1 1/1 ; 1/1 1/1 1/1 ; "}},
    {"SIM_SLOW=1",
     "odd",
     {"7/15 1/3 1/3 ; 7/15 1/3 1/3 ; 7/15 1/3 1/3 ; 1/1 1/1 1/1 ; ", "!wrong"}},
    {"SIM_SLOW=1 SIM_DEFER=1", "odd", {"; 1/1 1/1 1/1 ; ", "!wrong"}},
    {"", "amdgpu-odd", {"; 1/1 1/1 1/1 ; ", "!wrong"}},
    /* NaN goes through a ReLU, and 16-bit sums are rounded before the bias, as without a library */
    {"",
     "ends",
     {"bias: 1 launches, 1 calls; 13 NaN; ", "relu: 2 launches, 1 calls; 13 NaN; ",
      "sum: 2 launches, 1 calls; 4; ", "rounded to 256. "}},
    {"",
     "amdgpu-ends",
     {"bias: 2 launches, 1 calls; 13 NaN; ", "relu: 2 launches, 1 calls; 13 NaN; ",
      "sum: 2 launches, 1 calls; 4; ", "rounded to 256. "}},
    {"FX_CUBLASLT_LIBRARY=off",
     "ends",
     {"bias: 1 launches, 0 calls; 13 NaN; ", "relu: 1 launches, 0 calls; 13 NaN; ",
      "sum: 1 launches, 0 calls; 4; ", "rounded to 256. "}},
    {"", "precision", {"highest near, high is rounded. "}},
    {"", "amdgpu-precision", {"highest near, high is as near. "}},
    {"", "integers", {"7 22, 0 calls. ", "!" SLOWER}},
    {"", "late", {"after exp: closed; right , 1 calls; right , 2 calls; after matmul: open"}},
    {"", "amdgpu-late", {"after exp: closed; right ", "after matmul: open"}},
    {"", "parts", {"1, why: ; 0, why: the backend has no part of that name"}},
    {"", "amdgpu-parts", {"1, why: ; 0, why: the backend has no part of that name"}},
    {"FX_CUBLASLT_LIBRARY=off", "parts", {"0, why: FX_CUBLASLT_LIBRARY=off; "}},
    /* no library, or one that cannot be used */
    {"FX_CUBLASLT_LIBRARY=/none.so",
     "multiply",
     {"; 1: CUDA: /none.so, which FX_CUBLASLT_LIBRARY names, cannot be opened", SLOWER, KERNELS}},
    {"FX_CUBLASLT_LIBRARY=" SIM "/libsim-old.so",
     "multiply",
     {"libsim-old.so has no function cublasLtGetVersion: it is too old or damaged", SLOWER,
      KERNELS}},
    {"FX_ROCBLAS_LIBRARY=" SIM "/libsim-old.so",
     "amdgpu-multiply",
     {"libsim-old.so has no function rocblas_status_to_string", SLOWER, KERNELS}},
    {"SIM_VERSION=70100000",
     "amdgpu-multiply",
     {"librocblas.so.4 does not work with this driver, version 7", SLOWER, KERNELS}},
    /* failures of calls */
    {"SIM_FAIL=cublasLtCreate@1=1",
     "multiply",
     {"cublasLtCreate failed with CUBLAS_STATUS_NOT_INITIALIZED on CUDA:0", SLOWER, KERNELS}},
    {"SIM_FAIL=rocblas_create_handle@1=6",
     "amdgpu-multiply",
     {"rocblas_create_handle failed with rocblas_status_internal_error on AMDGPU:0", KERNELS}},
    {"SIM_FAIL=cublasLtMatmulAlgoGetHeuristic@0=14",
     "multiply",
     {"cuBLASLt cannot prepare a product (CUBLAS_STATUS_INTERNAL_ERROR)", SLOWER, KERNELS}},
    {"SIM_FAIL=cublasLtMatrixLayoutCreate@2=3",
     "multiply",
     {"cuBLASLt cannot prepare a product (CUBLAS_STATUS_ALLOC_FAILED)", "; right , 0 calls"}},
    {"SIM_FAIL=rocblas_start_device_memory_size_query@0=6",
     "amdgpu-multiply",
     {"rocBLAS cannot prepare a product (rocblas_status_internal_error)", KERNELS}},
    {"SIM_FAIL=cublasLtMatmul@1=13",
     "multiply",
     {"FX_STATUS_DEVICE matmul: CUDA:0 (Simulated NVIDIA GPU 0): cublasLtMatmul failed with "
      "CUBLAS_STATUS_EXECUTION_FAILED, 1 calls; right , 2 calls",
      "!" SLOWER}},
    {"SIM_FAIL=rocblas_gemm_strided_batched_ex@2=6",
     "amdgpu-multiply",
     {"FX_STATUS_DEVICE matmul: AMDGPU:0 (Simulated AMD GPU 0): rocblas_gemm_strided_batched_ex "
      "failed with rocblas_status_internal_error, 1 calls; right , 2 calls",
      "!" SLOWER}},
    /* the device is too old for BFloat16: the library declines, which is not a failure */
    {"SIM_ARCHITECTURE=75 OF_BF16=1", "multiply", {KERNELS, "!" SLOWER}},
    {"SIM_ARCHITECTURE=80 OF_BF16=1",
     "multiply",
     {"; right , 1 calls; right , 2 calls", "!" SLOWER}}};

static void test_rows(void **unused)
{
    (void)unused;
    simulated_rows("", rows, sizeof rows / sizeof *rows);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return argc > 1 ? child(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
