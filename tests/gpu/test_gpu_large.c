/* test_gpu_large.c: sizes beyond 2³¹, launches beyond a device's limits, and division.
 *
 * Arrays of these sizes are never allocated. Steps that run have axes of stride 0, which need no
 * memory; the others are only prepared, by a runtime that compiles and launches nothing. Preparing
 * a step fails if a parameter does not fit in its 32-bit kernel, so these tests find a kind of step
 * that ignores a size. Kernels that run are compiled by the C compiler.
 * ctest: native */
#include "gpu_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GIB ((int64_t)1 << 30)

static fx_tensor tensor(int dtype, int nd, const int64_t *shape)
{
    fx_tensor t = {.dtype = (uint8_t)dtype, .ndim = (uint8_t)nd};
    int64_t step = 1;
    for (int d = 0; d < nd; d++) {
        t.shape[d] = shape[d];
        t.stride[d] = step;
        step *= shape[d];
    }
    return t;
}

/* A tensor whose elements are all the same element in memory. */
static fx_tensor repeated(int dtype, int nd, const int64_t *shape)
{
    fx_tensor t = tensor(dtype, nd, shape);
    memset(t.stride, 0, sizeof t.stride);
    return t;
}

static fx_status run_on_host(fx_step *s, const void *const *in, void *out)
{
    fx_run run = {.outputs = NULL};
    memset(gpu_host_faults, 0, sizeof gpu_host_faults);
    fx_status status = fxi_gpu_prepare(&gpu_host_runtime, &gpu_host_device, s);
    if (status)
        fail_msg("%s", gpu_host_error);
    assert_int_equal(s->work_bytes, 0);
    status = fxi_gpu_run(&gpu_host_runtime, &gpu_host_device, s, in, out, &run);
    fxi_gpu_release(&gpu_host_runtime, &gpu_host_device, s);
    return status;
}

/* ---- indices --------------------------------------------------------------------------------- */

/* y = x[idx] along an axis of 3·2³⁰ + 7 elements, all of which are one number in memory. */
static void gather(const int64_t *idx, float *y)
{
    static const float x = 2.5f;
    const int64_t axis = 3 * GIB + 7, four = 4;
    fx_tensor in[] = {repeated(FX_DTYPE_F32, 1, &axis), tensor(FX_DTYPE_I64, 1, &four)};
    const void *at[] = {&x, idx};
    fx_step s = {.op = FX_OP_GATHER, .cls = FX_CLASS_GATHER, .nin = 2, .in = in};
    s.out = tensor(FX_DTYPE_F32, 1, &four);
    assert_int_equal(run_on_host(&s, at, y), FX_OK);
}

static void indices_of_a_long_axis(void **state)
{
    (void)state;
    float y[4] = {0};
    char text[200];
    gather((const int64_t[]){0, 5, 2 * GIB + 1, 3 * GIB + 6}, y);
    assert_int_equal(gpu_host_faults[0], 0);
    for (int k = 0; k < 4; k++)
        assert_true(y[k] == 2.5f);
    gather((const int64_t[]){0, 5, 2 * GIB + 1, 3 * GIB + 7}, y);
    assert_int_not_equal(gpu_host_faults[0], 0);
    fxi_gpu_fault_text(gpu_host_faults, text, sizeof text);
    assert_string_equal(text,
                        "gather: index 3221225479 is out of range for axis 0 of size 3221225479");
    assert_true(y[0] == 2.5f && y[2] == 2.5f && y[3] == 0.0f);
    gather((const int64_t[]){-1, 0, 0, 0}, y);
    assert_true(gpu_host_faults[1] == -1);
    gather((const int64_t[]){4 * GIB, 0, 0, 0}, y); /* its low 32 bits are 0 */
    assert_true(gpu_host_faults[1] == 4 * GIB && y[0] == 0.0f);
}

/* A signal of more than 2³⁰ elements, of which three windows read a few: the first one begins in
 * the padding, and the page before the signal cannot be read. Its memory is never touched
 * elsewhere. */
static void windows_of_a_long_axis(void **state)
{
    (void)state;
    enum { PAGE = 1 << 16 };
    const int64_t n = GIB + 100, sizes[3][3] = {{n, 1, 1}, {3, 1, 1}, {3, 1, 1}};
    const size_t bytes = PAGE + (size_t)n * sizeof(float);
    char *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory + PAGE, bytes - PAGE, PROT_READ | PROT_WRITE), 0);
    float *x = (float *)(void *)(memory + PAGE), y[3] = {0};
    const float w[3] = {1, 10, 100};
    x[0] = 1, x[1] = 2, x[GIB / 2 - 1] = 3, x[GIB / 2] = 4, x[GIB / 2 + 1] = 5, x[GIB] = 6;
    fx_tensor in[] = {tensor(FX_DTYPE_F32, 3, sizes[0]), tensor(FX_DTYPE_F32, 3, sizes[1])};
    fx_step s = {.op = FX_OP_CONV, .cls = FX_CLASS_CONV, .nin = 2, .in = in};
    s.out = tensor(FX_DTYPE_F32, 3, sizes[2]);
    s.as.conv.attr = (fx_conv_attr){.kind = FX_CONV_FORWARD,
                                    .groups = 1,
                                    .spatial = 1,
                                    .flipped = 1,
                                    .stride = {(int32_t)(GIB / 2), 1, 1},
                                    .dilation = {1, 1, 1},
                                    .before = {1}};
    assert_int_equal(run_on_host(&s, (const void *[]){x, w}, y), FX_OK);
    assert_true(y[0] == 210 && y[1] == 543 && y[2] == 60);
    munmap(memory, bytes);
}

/* ---- steps that are only prepared ------------------------------------------------------------ */

static int wide, narrow; /* numbers of 64-bit and 32-bit kernels of the latest step */
static char sentence[256];
static int64_t items, groups;

static fx_status record(fx_status status, const char *operation, const char *text)
{
    snprintf(sentence, sizeof sentence, "%s: %s", operation, text);
    return status;
}

static const fxi_gpu_limits *limits(fx_device *device)
{
    static fxi_gpu_limits l;
    (void)device;
    l = (fxi_gpu_limits){
        FXI_GPU_USUAL_LIMITS, .units = 132, .param_bytes = 4096, .buffers = FXI_GPU_BUFFERS,
        .items = items,       .f64 = true,  .atomic64 = true};
    if (groups > 0)
        l.groups[0] = groups;
    return &l;
}

static fx_status count(fx_device *device, const char *name, const char *source, void **out_kernel)
{
    (void)device, (void)name;
    *(strstr(source, "#define FX_WIDE\n") ? &wide : &narrow) += 1;
    *out_kernel = &wide;
    return FX_OK;
}

static const fx_host host = {.version = "test", .alloc = malloc, .free = free, .fail = record};
static const fxi_gpu_runtime runtime = {
    .dialect = FXI_GPU_CUDA, .host = &host, .limits = limits, .kernel = count};

static fx_status prepare(const char *name, fx_step *s)
{
    wide = narrow = 0;
    sentence[0] = '\0';
    const fx_status status = fxi_gpu_prepare(&runtime, &gpu_host_device, s);
    fxi_gpu_release(&runtime, &gpu_host_device, s);
    if (status == FX_STATUS_INTERNAL)
        fail_msg("%s: %s", name, sentence);
    return status;
}

/* A kind of step, and the function that makes one whose tensors have the sizes a and b. If a tensor
 * has 2³¹ elements or more, the step needs a kernel with 64-bit indices. */
typedef struct kind {
    const char *name;
    void (*make)(fx_step *s, fx_tensor *in, int64_t a, int64_t b);
} kind;

static void elementwise(fx_step *s, fx_tensor *in, int64_t a, int64_t b)
{
    static fx_instr add = {
        .op = FX_OP_ADD, .dtype = FX_DTYPE_F32, .from = FX_DTYPE_F32, .nsrc = 2, .src = {0, 1}};
    const int64_t shape[] = {a, b};
    s->op = FX_OP_ADD, s->cls = FX_CLASS_ELEMENTWISE, s->nin = 2;
    in[0] = tensor(FX_DTYPE_F32, 2, shape);
    in[1] = repeated(FX_DTYPE_F32, 2, shape);
    s->out = in[0];
    s->as.elementwise.program = (fx_program){&add, 1};
}

static void copy(fx_step *s, fx_tensor *in, int64_t a, int64_t b)
{
    const int64_t shape[] = {a, b}, turned[] = {b, a};
    s->op = FX_OP_PERMUTE, s->cls = FX_CLASS_MOVEMENT, s->nin = 1;
    s->out = tensor(FX_DTYPE_F32, 2, shape);
    in[0] = tensor(FX_DTYPE_F32, 2, turned);
    const fx_tensor t = in[0];
    in[0].shape[0] = a, in[0].shape[1] = b;
    in[0].stride[0] = t.stride[1], in[0].stride[1] = t.stride[0];
}

static void iota(fx_step *s, fx_tensor *in, int64_t a, int64_t b)
{
    (void)in;
    s->op = FX_OP_IOTA, s->cls = FX_CLASS_GENERATOR;
    s->out = tensor(FX_DTYPE_I64, 2, (const int64_t[]){a, b});
    s->as.generator.axis = 1;
}

static void sum(fx_step *s, fx_tensor *in, int64_t a, int64_t b)
{
    s->op = FX_OP_REDUCE, s->cls = FX_CLASS_REDUCE, s->nin = 1;
    in[0] = tensor(FX_DTYPE_F32, 2, (const int64_t[]){a, b});
    s->out = tensor(FX_DTYPE_F32, 2, (const int64_t[]){1, b});
    s->as.reduce.fold = FX_REDUCE_SUM, s->as.reduce.mask = 1;
}

static void scan(fx_step *s, fx_tensor *in, int64_t a, int64_t b)
{
    s->op = FX_OP_CUMSUM, s->cls = FX_CLASS_SCAN, s->nin = 1;
    in[0] = tensor(FX_DTYPE_F32, 2, (const int64_t[]){a, b});
    s->out = in[0];
}

static void take(fx_step *s, fx_tensor *in, int64_t a, int64_t b)
{
    s->op = FX_OP_GATHER, s->cls = FX_CLASS_GATHER, s->nin = 2;
    in[0] = tensor(FX_DTYPE_F32, 2, (const int64_t[]){a, b});
    in[1] = tensor(FX_DTYPE_I64, 1, (const int64_t[]){9});
    s->out = tensor(FX_DTYPE_F32, 2, (const int64_t[]){9, b});
}

/* A gather along a repeated axis: only its size is large, no offset is. */
static void take_repeated(fx_step *s, fx_tensor *in, int64_t a, int64_t b)
{
    take(s, in, a, b);
    in[0] = repeated(FX_DTYPE_F32, 2, (const int64_t[]){a, b});
    s->out = tensor(FX_DTYPE_F32, 2, (const int64_t[]){9, 1});
    in[0].shape[0] = a < b ? b : a, in[0].shape[1] = 1;
}

static void put(fx_step *s, fx_tensor *in, int64_t a, int64_t b)
{
    s->op = FX_OP_SCATTER, s->cls = FX_CLASS_SCATTER, s->nin = 2;
    in[0] = tensor(FX_DTYPE_F32, 2, (const int64_t[]){9, b});
    in[1] = tensor(FX_DTYPE_I64, 1, (const int64_t[]){9});
    s->out = tensor(FX_DTYPE_F32, 2, (const int64_t[]){a, b});
    s->as.scatter.fold = FX_REDUCE_SUM, s->as.scatter.axis = 0;
}

static void product(fx_step *s, fx_tensor *in, int64_t a, int64_t b)
{
    s->op = FX_OP_MATMUL, s->cls = FX_CLASS_MATMUL, s->nin = 2;
    in[0] = tensor(FX_DTYPE_F32, 2, (const int64_t[]){a, 3});
    in[1] = tensor(FX_DTYPE_F32, 2, (const int64_t[]){3, b});
    s->out = tensor(FX_DTYPE_F32, 2, (const int64_t[]){a, b});
}

/* A product of repeated operands with a long inner axis. */
static void inner_product(fx_step *s, fx_tensor *in, int64_t a, int64_t b)
{
    const int64_t k = a < b ? b : a;
    s->op = FX_OP_MATMUL, s->cls = FX_CLASS_MATMUL, s->nin = 2;
    in[0] = repeated(FX_DTYPE_F32, 2, (const int64_t[]){1, k});
    in[1] = repeated(FX_DTYPE_F32, 2, (const int64_t[]){k, 1});
    s->out = tensor(FX_DTYPE_F32, 2, (const int64_t[]){1, 1});
}

static void pooling(fx_step *s, fx_tensor *in, int64_t a, int64_t b)
{
    s->op = FX_OP_POOL, s->cls = FX_CLASS_POOL, s->nin = 1;
    s->as.pool.attr = (fx_pool_attr){.kind = FX_POOL_MEAN,
                                     .spatial = 1,
                                     .window = {2, 1, 1},
                                     .stride = {2, 1, 1},
                                     .dilation = {1, 1, 1}};
    in[0] = tensor(FX_DTYPE_F32, 3, (const int64_t[]){a, 1, b});
    s->out = tensor(FX_DTYPE_F32, 3, (const int64_t[]){a / 2, 1, b});
}

static void convolution(fx_step *s, fx_tensor *in, int64_t a, int64_t b)
{
    s->op = FX_OP_CONV, s->cls = FX_CLASS_CONV, s->nin = 2;
    s->as.conv.attr = (fx_conv_attr){.kind = FX_CONV_FORWARD,
                                     .groups = 1,
                                     .spatial = 1,
                                     .stride = {1, 1, 1},
                                     .dilation = {1, 1, 1}};
    in[0] = tensor(FX_DTYPE_F32, 3, (const int64_t[]){a, 2, b});
    in[1] = tensor(FX_DTYPE_F32, 3, (const int64_t[]){3, 2, 4});
    s->out = tensor(FX_DTYPE_F32, 3, (const int64_t[]){a - 2, 4, b});
}

static const kind kinds[] = {{"elementwise", elementwise},
                             {"copy", copy},
                             {"iota", iota},
                             {"sum", sum},
                             {"scan", scan},
                             {"gather", take},
                             {"gather of a repeated axis", take_repeated},
                             {"scatter", put},
                             {"matmul", product},
                             {"matmul of a long inner axis", inner_product},
                             {"pool", pooling},
                             {"conv", convolution}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* The number of elements of the step's largest tensor, by its sizes. */
static int64_t extent(const fx_step *s)
{
    int64_t most = fx_tensor_length(&s->out);
    for (int k = 0; k < s->nin; k++)
        most = fx_tensor_length(&s->in[k]) > most ? fx_tensor_length(&s->in[k]) : most;
    return most;
}

static void every_kind_is_wide_enough(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{2 * GIB, 1},       {2 * GIB + 5, 2}, {3 * GIB + 7, 1},
                                       {7 * GIB, 3},       {70000, 70000},   {5, GIB},
                                       {17, 4 * GIB + 1},  {4 * GIB, 1},     {9 * GIB - 1, 7},
                                       {46341 * 7, 46341}, {GIB + 1, 2}};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    int prepared = 0, all_large = 0;
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < SIZES; i++) {
            fx_step s = {0};
            fx_tensor in[2] = {{0}};
            s.in = in;
            kinds[k].make(&s, in, sizes[i][0], sizes[i][1]);
            if (prepare(kinds[k].name, &s) != FX_OK)
                fail_msg("%s of %lld × %lld: %s", kinds[k].name, (long long)sizes[i][0],
                         (long long)sizes[i][1], sentence);
            const bool large = extent(&s) > INT32_MAX;
            if (wide + narrow == 0 || (large && wide == 0))
                fail_msg("%s of %lld × %lld: %d wide kernels, %d narrow ones", kinds[k].name,
                         (long long)sizes[i][0], (long long)sizes[i][1], wide, narrow);
            all_large += large;
            prepared++;
        }
    assert_int_equal(prepared, KINDS * SIZES);
    assert_true(all_large >= (KINDS - 2) * SIZES);
}

static void small_steps_stay_narrow(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        fx_step s = {0};
        fx_tensor in[2] = {{0}};
        s.in = in;
        kinds[k].make(&s, in, 1000, 70);
        assert_int_equal(prepare(kinds[k].name, &s), FX_OK);
        assert_int_equal(wide, 0);
        assert_true(narrow > 0);
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

static uint64_t random_state = 1;

/* A number below 2^bits; small ones are as likely as large ones. */
static int64_t random_number(int bits)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    const int own = (int)(random_state >> 33) % (bits + 1);
    return (int64_t)((random_state >> 20) & (((uint64_t)1 << own) - 1));
}

/* Random sizes, strides, dilations and paddings of the windows of a convolution or of pooling. */
typedef struct window {
    int spatial;
    int64_t x[5], w[5], y[5];
    int32_t stride[3], dilation[3], before[3], after[3];
} window;

static window random_window(void)
{
    window v = {.spatial = 1 + (int)random_number(8) % 3};
    for (int d = 0; d < v.spatial; d++) {
        int64_t span;
        v.w[d] = 1 + random_number(4);
        v.stride[d] = (int32_t)(1 + random_number(30));
        v.dilation[d] = (int32_t)(1 + random_number(random_number(3) ? 3 : 27));
        do {
            v.x[d] = 1 + random_number(14);
            v.before[d] = (int32_t)random_number(30), v.after[d] = (int32_t)random_number(30);
            span = v.x[d] + v.before[d] + v.after[d] - (v.w[d] - 1) * v.dilation[d] - 1;
        } while (span < 0);
        v.y[d] = span / v.stride[d] + 1;
    }
    const int c = v.spatial;
    v.x[c] = v.w[c] = 1 + random_number(5);
    v.y[c] = v.w[c + 1] = 1 + random_number(5);
    v.x[c + 1] = v.y[c + 1] = 1 + random_number(3);
    return v;
}

static void convolve_window(const window *v, int which)
{
    const int nd = v->spatial + 2;
    const fx_tensor t[] = {tensor(FX_DTYPE_F32, nd, v->x), tensor(FX_DTYPE_F32, nd, v->w),
                           tensor(FX_DTYPE_F32, nd, v->y)};
    fx_tensor in[] = {t[which == FX_CONV_DATA ? 2 : 0], t[which == FX_CONV_WEIGHT ? 2 : 1]};
    fx_step s = {.op = FX_OP_CONV, .cls = FX_CLASS_CONV, .nin = 2, .in = in};
    fx_conv_attr *a = &s.as.conv.attr;
    *a = (fx_conv_attr){.kind = which, .groups = 1, .spatial = v->spatial};
    memcpy(a->stride, v->stride, sizeof a->stride);
    memcpy(a->dilation, v->dilation, sizeof a->dilation);
    memcpy(a->before, v->before, sizeof a->before);
    memcpy(a->after, v->after, sizeof a->after);
    s.out = t[which == FX_CONV_FORWARD ? 2 : which == FX_CONV_DATA ? 0 : 1];
    prepare("conv", &s);
}

static void pool_window(const window *v, int which)
{
    const int nd = v->spatial + 2;
    window same = *v;
    same.y[v->spatial] = v->x[v->spatial];
    const bool back = which == FX_POOL_MAX_GRAD || which == FX_POOL_MEAN_GRAD;
    const fx_tensor x = tensor(FX_DTYPE_F32, nd, same.x), y = tensor(FX_DTYPE_F32, nd, same.y);
    fx_tensor in[] = {back ? y : x, x};
    fx_step s = {.op = FX_OP_POOL, .cls = FX_CLASS_POOL, .in = in, .out = back ? x : y};
    s.nin = which == FX_POOL_MAX_GRAD || which == FX_POOL_MAX_PICK ? 2 : 1;
    fx_pool_attr *a = &s.as.pool.attr;
    *a = (fx_pool_attr){.kind = which, .spatial = v->spatial};
    for (int d = 0; d < v->spatial; d++)
        a->window[d] = (int32_t)v->w[d];
    memcpy(a->stride, v->stride, sizeof a->stride);
    memcpy(a->dilation, v->dilation, sizeof a->dilation);
    memcpy(a->before, v->before, sizeof a->before);
    memcpy(a->after, v->after, sizeof a->after);
    prepare("pool", &s);
}

/* No parameter of a kernel with 32-bit indices is too large (prepare). A device may refuse a launch
 * of too many groups. */
static void windows_of_any_numbers(void **state)
{
    (void)state;
    for (int round = 0; round < 1500; round++) {
        const window v = random_window();
        double elements = 1;
        for (int d = 0; d < v.spatial + 2; d++)
            elements *= (double)v.y[d];
        if (elements > 1e12) /* no device has this much memory */
            continue;
        for (int k = FX_CONV_FORWARD; k <= FX_CONV_WEIGHT; k++)
            convolve_window(&v, k);
        for (int k = FX_POOL_MAX; k <= FX_POOL_MAX_PICK; k++)
            pool_window(&v, k);
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

static void launches_have_limits(void **state)
{
    (void)state;
    fx_step s = {0};
    fx_tensor in[2] = {{0}};
    s.in = in;
    items = UINT32_MAX; /* a device whose size_t has 32 bits */
    elementwise(&s, in, 8 * GIB, 1);
    assert_int_equal(prepare("8 GiB", &s), FX_OK);
    elementwise(&s, in, 17 * GIB, 1);
    assert_int_equal(prepare("17 GiB", &s), FX_STATUS_UNSUPPORTED);
    assert_string_equal(sentence, "add: 17825792 groups of 256 work-items are too many for one "
                                  "launch on host: compute the operation in parts");
    items = 0;
    assert_int_equal(prepare("17 GiB", &s), FX_OK);
    elementwise(&s, in, 4096 * GIB, 1); /* 2³² groups: the low 32 bits are 0 */
    assert_int_equal(prepare("4 TiB", &s), FX_STATUS_UNSUPPORTED);
    assert_non_null(strstr(sentence, "4294967296 groups"));
    groups = 1000;
    elementwise(&s, in, 1000 * 1024, 1);
    assert_int_equal(prepare("1000 groups", &s), FX_OK);
    elementwise(&s, in, 1001 * 1024, 1);
    assert_int_equal(prepare("1001 groups", &s), FX_STATUS_UNSUPPORTED);
    groups = 0;
}

/* ---- division -------------------------------------------------------------------------------- */

/* A division that is wrong by up to two units in the last place, as on some devices. */
static const char rough[] =
    "static inline float fx_rough(float x, float y) {\n"
    "    union { float f; unsigned u; } q = {x / y}, s = {x};\n"
    "    if ((q.u & 0x7f800000u) != 0x7f800000u && (q.u & 0x7f800000u)) q.u += s.u % 5 - 2;\n"
    "    return q.f; }\n"
    "#define FX_DIVIDE_F32(x, y) fx_rough(x, y)\n";

static fx_status compile_roughly(fx_device *device, const char *name, const char *source,
                                 void **out_kernel)
{
    char *text = malloc(sizeof rough + strlen(source));
    assert_non_null(text);
    strcpy(text, rough);
    strcat(text, source);
    const fx_status status = gpu_host_runtime.kernel(device, name, text, out_kernel);
    free(text);
    return status;
}

enum { QUOTIENTS = 60000 };
static float over[QUOTIENTS], under[QUOTIENTS], floors[QUOTIENTS];

static void make_quotients(void)
{
    uint64_t state = 7;
    for (int k = 0; k < QUOTIENTS; k++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const int whole = (int)(state >> 40 & 0xfff) - 2048, way = (int)(state >> 20 & 7);
        const float y = (float)((double)(state >> 33) * 0x1p-20 + 0.01);
        under[k] = k % 3 ? y : -y;
        over[k] = under[k] * (float)whole; /* a multiple of `under`, or a neighbour of one */
        if (way == 1)
            over[k] = nextafterf(over[k], INFINITY);
        if (way == 2)
            over[k] = nextafterf(over[k], -INFINITY);
        if (way == 3)
            under[k] = (float)(1 + whole * whole), over[k] = under[k] * (float)(whole % 97);
        if (way == 4)
            over[k] *= 1e-25f, under[k] *= 1e-25f;
        if (way == 5)
            over[k] *= 1e30f, under[k] *= 1e30f;
    }
    const float special[][2] = {{1, 0},         {-1, 0},        {0, 0},  {INFINITY, 2},
                                {3, INFINITY},  {-3, INFINITY}, {0, -5}, {NAN, 1},
                                {1, NAN},       {6, 3},         {-7, 7}, {1e-40f, 1e-40f},
                                {3e38f, 1e-3f}, {3e38f, 3e38f}};
    for (size_t k = 0; k < sizeof special / sizeof *special; k++)
        over[k] = special[k][0], under[k] = special[k][1];
}

/* fld must be the floor of the correctly rounded quotient, although the division is not correctly
 * rounded. */
static void floors_of_quotients(void **state)
{
    (void)state;
    static fx_instr fld = {
        .op = FX_OP_FLD, .dtype = FX_DTYPE_F32, .from = FX_DTYPE_F32, .nsrc = 2, .src = {0, 1}};
    const int64_t n = QUOTIENTS;
    fx_tensor in[] = {tensor(FX_DTYPE_F32, 1, &n), tensor(FX_DTYPE_F32, 1, &n)};
    fx_step s = {.op = FX_OP_FLD, .cls = FX_CLASS_ELEMENTWISE, .nin = 2, .in = in};
    fx_run run = {.outputs = NULL};
    fxi_gpu_runtime r = gpu_host_runtime;
    int wrong = 0;
    s.out = in[0];
    s.as.elementwise.program = (fx_program){&fld, 1};
    r.kernel = compile_roughly;
    make_quotients();
    assert_int_equal(fxi_gpu_prepare(&r, &gpu_host_device, &s), FX_OK);
    assert_int_equal(
        fxi_gpu_run(&r, &gpu_host_device, &s, (const void *[]){over, under}, floors, &run), FX_OK);
    fxi_gpu_release(&r, &gpu_host_device, &s);
    for (int k = 0; k < QUOTIENTS; k++) {
        const float want = floorf(over[k] / under[k]);
        const bool same = floors[k] == want || (floors[k] != floors[k] && want != want);
        if (!same && wrong++ < 10)
            print_message("fld(%a, %a) is %.9g, expected %.9g\n", (double)over[k], (double)under[k],
                          (double)floors[k], (double)want);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest host_tests[] = {cmocka_unit_test(indices_of_a_long_axis),
                                            cmocka_unit_test(windows_of_a_long_axis),
                                            cmocka_unit_test(floors_of_quotients)},
                            tests[] = {cmocka_unit_test(every_kind_is_wide_enough),
                                       cmocka_unit_test(small_steps_stay_narrow),
                                       cmocka_unit_test(windows_of_any_numbers),
                                       cmocka_unit_test(launches_have_limits)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (gpu_host_works())
        return failed + cmocka_run_group_tests(host_tests, NULL, NULL);
    print_message("skipped: there is no C compiler to run kernels with\n");
    return failed;
}
