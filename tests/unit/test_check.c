/* test_check.c: the checking wrapper reports mistakes of a backend or of a call, and does not
 * disturb correct ones. The faulty backend is defined here: it computes with the CPU's kernels, on
 * host memory or, as "far", on memory that the library cannot access, and makes the mistake that
 * `selected` selects. ctest: threads */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backends.h"
#include "context.h"
#include "evaluate.h"
#include "memory.h"
#include "registry.h"

/* ---- the faulty backend ---------------------------------------------------------------------- */

typedef enum mistake {
    NONE,
    WRITES_BEHIND,
    WRITES_BEFORE,
    COPIES_BEHIND, /* copies its input together with the guards */
    WRITES_NOTHING,
    WRITES_ALL_BUT_ONE,
    WRITES_MINUS_ONE, /* correct integers with the pattern of uninitialised memory */
    READS_BEHIND,
    READS_BEFORE,
    READS_FRESH,
    READS_RELEASED,
    KEEPS_OPERAND,
    WRITES_RELEASED,
    WRITES_ELSEWHERE,
    READS_WORK,
    WRITES_BEHIND_WORK,
    FAILS
} mistake;

static mistake selected;
static float *elsewhere;   /* memory that is not an operand of the step */
static int64_t work_of_it; /* bytes of work space that its steps need */
static int runs;

static void *wrong_alloc(fx_device *device, size_t bytes)
{
    (void)device;
    return bytes > SIZE_MAX / 4 ? NULL : fxi_aligned(64, bytes);
}
static void wrong_free(fx_device *device, void *ptr)
{
    (void)device;
    fxi_free(ptr);
}
static fx_status wrong_write(fx_device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    memcpy(to, from, bytes);
    return FX_OK;
}
static fx_status wrong_copy(fx_device *to_device, void *to, fx_device *from_device,
                            const void *from, size_t bytes)
{
    (void)from_device;
    return wrong_write(to_device, to, from, bytes);
}
static fx_status wrong_fill(fx_device *device, void *to, uint8_t value, size_t bytes)
{
    (void)device;
    memset(to, value, bytes);
    return FX_OK;
}

static fx_status wrong_run(fx_device *device, const fx_step *step, const void *const *in, void *out,
                           fx_run *run)
{
    const int64_t n = fx_tensor_length(&step->out);
    float *y = out, last = 0;
    const float *x = step->nin ? in[0] : NULL;
    __atomic_add_fetch(&runs, 1, __ATOMIC_RELAXED);
    if (selected == WRITES_NOTHING)
        return FX_OK;
    if (selected == FAILS) {
        return fx_fail(FX_STATUS_DEVICE, fx_op_name(step->op), "it does not want to");
    }
    if (selected == WRITES_MINUS_ONE) {
        memset(out, 0xFF, (size_t)n * fx_dtype_size((fx_dtype)step->out.dtype));
        return FX_OK;
    }
    if (selected == WRITES_ALL_BUT_ONE)
        last = y[n - 1];
    const fx_status status = fxi_cpu_backend.run(device, step, in, out, run);
    if (selected == WRITES_ALL_BUT_ONE)
        memcpy(&y[n - 1], &last, sizeof last);
    if (selected == WRITES_BEHIND)
        y[n] = 1;
    if (selected == COPIES_BEHIND)
        y[n] = 2 * x[n];
    if (selected == WRITES_BEFORE)
        y[-1] = 1;
    if (selected == READS_BEHIND)
        y[0] = 1 + x[n];
    if (selected == READS_BEFORE)
        y[0] = 1 + x[-1];
    if (selected == READS_FRESH || selected == READS_RELEASED)
        y[0] = 1 + elsewhere[1];
    if (selected == KEEPS_OPERAND)
        memcpy(&elsewhere, &in[0], sizeof elsewhere);
    if (selected == WRITES_RELEASED || selected == WRITES_ELSEWHERE)
        elsewhere[3] = 7;
    if (selected == READS_WORK)
        y[0] = 1 + ((float *)run->work)[9];
    if (selected == WRITES_BEHIND_WORK)
        ((char *)run->work)[work_of_it + 3] = 1;
    if (run->work)
        memset(run->work, 0, (size_t)work_of_it);
    return status;
}

static fx_status wrong_prepare(fx_device *device, fx_step *step)
{
    const fx_status status = fxi_cpu_backend.prepare(device, step);
    step->work_bytes += work_of_it;
    return status;
}
static void wrong_release(fx_device *device, fx_step *step)
{
    fxi_cpu_backend.release(device, step);
}

static const fx_backend near = {.head = FX_BACKEND_HEAD("near"),
                                .views = true,
                                .fuses = true,
                                .alloc = wrong_alloc,
                                .free = wrong_free,
                                .prepare = wrong_prepare,
                                .release = wrong_release,
                                .run = wrong_run};
static fx_backend far;

static int set_up(void **state)
{
    (void)state;
    far = near;
    far.head.name = "far";
    far.write = far.read = wrong_write;
    far.copy = wrong_copy;
    far.fill = wrong_fill;
    if (fxi_backend_register(&near, 2, "") != FX_OK || fxi_backend_register(&far, 2, "") != FX_OK)
        return 1;
    return fx_use("check:NEAR") != FX_OK || fx_use("Check:far") != FX_OK ||
           fx_use("check:cpu") != FX_OK;
}

static fx_device *checked(int is_far, int id)
{
    return fx_device_get(is_far ? "check:far" : "check:near", id);
}

/* Asserts that an error is recorded whose message contains this text. */
static void said(const char *part)
{
    const fx_error e = fx_error_take();
    if (!strstr(e.message, part))
        fail_msg("\"%s\" does not say \"%s\"", e.message, part);
    assert_int_not_equal(e.status, FX_OK);
}

static void said_nothing(void)
{
    const fx_error e = fx_error_take();
    assert_string_equal(e.message, "");
}

/* ---- names ----------------------------------------------------------------------------------- */

static void names_and_reasons(void **state)
{
    (void)state;
    assert_string_equal(fx_device_name(fx_device_get("CHECK:cpu", 0)), "check:CPU:0");
    assert_string_equal(fx_device_name(fx_device_find("check:far:1")), "check:far:1");
    assert_int_equal(fx_device_count("check:near"), 2);
    assert_true(fx_functional("check:near") && fx_functional("check:CPU"));
    assert_string_equal(fx_why_not("check:near"), "");
    assert_string_equal(fx_device_model(checked(0, 0)), fx_device_model(fx_device_get("near", 0)));
    assert_null(checked(0, 0)->backend->read);
    assert_non_null(checked(1, 0)->backend->read);
    assert_null(checked(0, 0)->backend->copy);
    said_nothing();
    assert_int_equal(fx_use("check:CUDA"), FX_STATUS_DEVICE);
    said_nothing();
    assert_string_equal(fx_why_not("check:CUDA"), fx_why_not("CUDA"));
    fx_device_get("check:CUDA", 0);
    said("Unavailable backend: check:CUDA: it is not installed");
    assert_int_equal(fx_use("check:abacus"), FX_STATUS_DEVICE);
    assert_string_equal(fx_why_not("check:abacus"), fx_why_not("abacus"));
    assert_non_null(strstr(fx_why_not("check:ref"), "not loaded"));
    assert_int_equal(fx_use("check:ref"), FX_OK);
    fx_device_get("check:far", 2);
    said("check:far has 2 devices");
}

/* ---- what steps do --------------------------------------------------------------------------- */

/* exp of eight numbers; the first element of the result, or 0 with an error. */
static double eight(fx_device *device, mistake kind)
{
    FX_SCOPE;
    fx_array *x = fx_to(device, fx_vector(1, 2, 3, 4, 5, 6, 7, 8));
    selected = kind;
    fx_array *y = fx_cpu(fx_exp(x));
    const fx_status status = fx_eval(y);
    selected = NONE;
    return status == FX_OK ? fx_at(y, 0) : 0;
}

static void defects_of_kernels_are_found(void **state)
{
    (void)state;
    static const struct {
        mistake kind;
        const char *sentence;
    } cases[] = {
        {WRITES_BEHIND, "exp: on %s byte 32 of an allocation of 32 bytes was written"},
        {WRITES_BEFORE, "exp: on %s byte -4 of an allocation of 32 bytes was written"},
        {COPIES_BEHIND, "exp: on %s byte 32 of an allocation of 32 bytes was written"},
        {WRITES_NOTHING, "exp: 8 of the 8 elements of output 0 on %s were not written"},
        {WRITES_ALL_BUT_ONE, "exp: 1 of the 8 elements of output 0 on %s were not written"},
        {FAILS, "exp: it does not want to"},
    };
    for (int is_far = 0; is_far < 2; is_far++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            char sentence[200];
            snprintf(sentence, sizeof sentence, cases[i].sentence,
                     fx_device_name(checked(is_far, 1)));
            eight(checked(is_far, 1), cases[i].kind);
            said(sentence);
            fxi_reclaim_all();
            fx_error_take(); /* the step has damaged a guard, which is reported here */
            assert_float_equal(eight(checked(is_far, 1), NONE), exp(1), 1e-6);
            said_nothing();
        }
}

static void reads_of_what_nobody_wrote_are_nan(void **state)
{
    (void)state;
    for (int is_far = 0; is_far < 2; is_far++) {
        fx_device *d = checked(is_far, 0);
        assert_true(isnan(eight(d, READS_BEHIND)));
        assert_true(isnan(eight(d, READS_BEFORE)));
        elsewhere = d->backend->alloc(d, 32);
        assert_true(isnan(eight(d, READS_FRESH)));
        memset(elsewhere, 0, 32);
        assert_float_equal(eight(d, READS_FRESH), 1, 0);
        d->backend->free(d, elsewhere);
        assert_true(isnan(eight(d, READS_RELEASED)));
        said_nothing();
    }
}

static bool is_nan(fx_dtype type, const void *at)
{
    static const struct {
        uint64_t exponent, fraction;
    } parts[FX_DTYPE_COUNT] = {[FX_DTYPE_F32] = {0x7F800000, 0x7FFFFF},
                               [FX_DTYPE_F64] = {0x7FF0000000000000, 0xFFFFFFFFFFFFF},
                               [FX_DTYPE_F16] = {0x7C00, 0x3FF},
                               [FX_DTYPE_BF16] = {0x7F80, 0x7F}};
    uint64_t bits = 0;
    memcpy(&bits, at, fx_dtype_size(type)); /* little-endian, as the library is */
    return (bits & parts[type].exponent) == parts[type].exponent && (bits & parts[type].fraction);
}

static void fresh_memory_and_guards_are_nan_in_every_type(void **state)
{
    (void)state;
    static const fx_dtype types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16, FX_DTYPE_BF16};
    fx_device *d = checked(0, 0);
    int looked_at = 0;
    for (int i = 0; i < 200; i++) {
        char *x = d->backend->alloc(d, 64);
        for (int t = 0; t < 4; t++)
            for (int at = -256; at < 64 + 256; at += (int)fx_dtype_size(types[t]), looked_at++)
                if (!is_nan(types[t], x + at))
                    fail_msg("allocation %d, type %d, byte %d", i, t, at);
        d->backend->free(d, x);
    }
    assert_true(looked_at > 200 * 64 * 5);
    said_nothing();
}

/* Results with the pattern of uninitialised memory are accepted. */
static void poison_may_be_a_result(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_to(checked(0, 0), fx_range_dtype(FX_DTYPE_I32, 0, 1, 6));
    runs = 0;
    selected = WRITES_MINUS_ONE;
    assert_int_equal(fx_eval(fx_neg(x)), FX_OK);
    selected = NONE;
    assert_int_equal(runs, 2); /* the step ran once more, so that the pattern can be compared */
    said_nothing();
}

static void writes_to_other_memory_are_found(void **state)
{
    (void)state;
    for (int is_far = 0; is_far < 2; is_far++) {
        fx_device *d = checked(is_far, 0), *other = checked(is_far, 1);
        elsewhere = d->backend->alloc(d, 32);
        assert_float_equal(eight(d, NONE), exp(1), 1e-6);
        d->backend->free(d, elsewhere);
        assert_float_equal(eight(d, WRITES_RELEASED), exp(1), 1e-6);
        said_nothing();
        assert_int_equal(fx_synchronize(d), FX_STATUS_INTERNAL);
        said("byte 12 of an allocation of 32 bytes that was freed 1 step ago, after exp was "
             "written");
        fxi_check_reclaim(d); /* frees the held memory, and reports the damage */
        said("byte 12 of an allocation of 32 bytes that was freed");
        assert_int_equal(fx_synchronize(d), FX_OK);
        float *theirs = other->backend->alloc(other, 4);
        elsewhere = theirs; /* 12 bytes further: after the other device's memory */
        eight(d, WRITES_ELSEWHERE);
        assert_int_equal(fx_synchronize(other), FX_STATUS_INTERNAL);
        said("byte 12 of an allocation of 4 bytes was written");
        other->backend->free(other, theirs);
        said("byte 12 of an allocation of 4 bytes was written");
        other->backend->free(other, theirs);
        said("an allocation of 4 bytes that was freed 0 steps ago, after exp is freed twice");
        other->backend->free(other, theirs + 1);
        said("is freed, but no allocation starts there");
        fxi_check_reclaim(other);
        said_nothing();
    }
}

/* Released memory reaches the wrapper at once, because the library caches nothing for a checking
 * device. */
static void released_arrays_are_watched(void **state)
{
    (void)state;
    for (int is_far = 0; is_far < 2; is_far++) {
        fx_device *d = checked(is_far, 0);
        assert_float_equal(eight(d, KEEPS_OPERAND), exp(1), 1e-6);
        assert_float_equal(eight(d, WRITES_RELEASED), exp(1), 1e-6);
        assert_int_equal(fx_synchronize(d), FX_STATUS_INTERNAL);
        said("byte 12 of an allocation of 32 bytes that was freed");
        fxi_check_reclaim(d);
        said("byte 12 of an allocation of 32 bytes that was freed");
    }
}

/* Work space holds NaN when a step begins, and has a guard after it. */
static void work_space_is_watched(void **state)
{
    (void)state;
    char sentence[200];
    work_of_it = 40;
    fxi_reclaim_all(); /* frees plans that were made without work space */
    for (int is_far = 0; is_far < 2; is_far++) {
        fx_device *d = checked(is_far, 0);
        assert_float_equal(eight(d, NONE), exp(1), 1e-6);
        assert_true(isnan(eight(d, READS_WORK)));
        said_nothing();
        eight(d, WRITES_BEHIND_WORK);
        snprintf(sentence, sizeof sentence,
                 "exp: on %s, byte 3 after a work space of 40 bytes was written",
                 fx_device_name(d));
        said(sentence);
        assert_float_equal(eight(d, NONE), exp(1), 1e-6);
        said_nothing();
    }
    work_of_it = 0;
    fxi_reclaim_all();
}

/* ---- what callers do ------------------------------------------------------------------------- */

static fx_instr negate = {
    .op = FX_OP_NEG, .dtype = FX_DTYPE_F32, .from = FX_DTYPE_F32, .nsrc = 1, .src = {0}};

static void *work; /* of the step */

/* −x of n numbers with a stride, as a step made by hand. */
static fx_status call(fx_device *d, int64_t n, int64_t stride, const float *x, float *y, char *why)
{
    fx_tensor in = {.dtype = FX_DTYPE_F32, .ndim = 1, .shape = {n}, .stride = {stride}};
    fx_step step = {.op = FX_OP_NEG,
                    .cls = FX_CLASS_ELEMENTWISE,
                    .nin = 1,
                    .out = {.dtype = FX_DTYPE_F32, .ndim = 1, .shape = {n}, .stride = {1}},
                    .in = &in,
                    .as.elementwise.program = {&negate, 1}};
    fx_run run = {.work = work};
    const void *ins[] = {x};
    assert_int_equal(d->backend->prepare(d, &step), FX_OK);
    const fx_status status = d->backend->run(d, &step, ins, y, &run);
    d->backend->release(d, &step);
    snprintf(why, 200, "%.199s", fx_error_take().message);
    return status;
}

static void wrong(fx_device *d, int64_t n, int64_t stride, const float *x, float *y,
                  const char *format, ...)
{
    char expected[300], why[300];
    va_list args;
    va_start(args, format);
    vsnprintf(expected, sizeof expected, format, args);
    va_end(args);
    const int before = runs;
    assert_int_equal(call(d, n, stride, x, y, why), FX_STATUS_INTERNAL);
    if (!strstr(why, expected))
        fail_msg("\"%s\" does not say \"%s\"", why, expected);
    assert_int_equal(runs, before); /* the kernel has not run */
}

static void operands_lie_in_live_memory(void **state)
{
    (void)state;
    char why[300];
    for (int is_far = 0; is_far < 2; is_far++) {
        fx_device *d = checked(is_far, 0), *other = checked(is_far, 1);
        const char *name = fx_device_name(d);
        float *x = d->backend->alloc(d, 32), *y = d->backend->alloc(d, 32),
              *theirs = other->backend->alloc(other, 32), mine[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        memset(x, 0, 32);
        memset(theirs, 0, 32);
        assert_int_equal(call(d, 8, 1, x, y, why), FX_OK);
        assert_int_equal(call(d, 8, -1, x + 7, y, why), FX_OK);
        assert_int_equal(call(d, 4, 2, x + 1, y, why), FX_OK);
        assert_int_equal(call(d, 8, 0, x + 7, y, why), FX_OK);
        assert_int_equal(call(d, 0, 1, NULL, NULL, why), FX_OK);
        wrong(d, 8, 1, x + 1, y, "operand 0 on %s is at bytes 4 to 35 of", name);
        wrong(d, 8, -1, x + 6, y, "operand 0 on %s is at bytes -4 to 27 of", name);
        wrong(d, 5, 2, x, y, "operand 0 on %s is at bytes 0 to 35 of", name);
        wrong(d, 8, 1, x, y - 1, "output 0 on %s is at bytes -4 to 27 of an ", name);
        wrong(d, 8, 1, theirs, y, "operand 0 on %s is in memory of %s, at bytes 0 to 31 of an",
              name, fx_device_name(other));
        if (is_far)
            wrong(d, 8, 1, mine, y, "operand 0 on %s is outside the device's memory", name);
        else
            assert_int_equal(call(d, 8, 1, mine, y, why), FX_OK);
        d->backend->free(d, x);
        wrong(d, 8, 1, x, y,
              "operand 0 on %s is at bytes 0 to 31 of an allocation of 32 bytes that was "
              "freed 1 step ago, after neg",
              name);
        d->backend->free(d, y);
        other->backend->free(other, theirs);
        said_nothing();
    }
}

static void outputs_lie_in_no_input(void **state)
{
    (void)state;
    char why[300];
    fx_device *d = checked(0, 0);
    float *x = d->backend->alloc(d, 64);
    memset(x, 0, 64);
    assert_int_equal(call(d, 8, 1, x, x, why), FX_OK); /* as an update does */
    wrong(d, 8, 1, x, x + 1, "output 0 on check:near:0 overlaps operand 0");
    wrong(d, 8, 2, x, x, "output 0 on check:near:0 overlaps operand 0");
    wrong(d, 8, -1, x + 7, x, "output 0 on check:near:0 overlaps operand 0");
    d->backend->free(d, x);
    said_nothing();
}

static void work_space_lies_in_no_operand(void **state)
{
    (void)state;
    char why[300];
    fx_device *d = checked(0, 0), *other = checked(0, 1);
    char *x = d->backend->alloc(d, 1024), *theirs = other->backend->alloc(other, 1024);
    float *in = (void *)x, *out = (void *)(x + 64);
    memset(x, 0, 1024);
    work_of_it = 40;
    work = x + 128;
    assert_int_equal(call(d, 8, 1, in, out, why), FX_OK);
    work = x;
    wrong(d, 8, 1, in, out, "work space on check:near:0 overlaps operand 0");
    work = x + 92;
    wrong(d, 8, 1, in, out, "work space on check:near:0 overlaps output 0");
    work = x + 1000;
    wrong(d, 8, 1, in, out, "work space on check:near:0 is at bytes 1000 to 1295 of");
    work = theirs;
    wrong(d, 8, 1, in, out, "work space on check:near:0 is in memory of check:near:1, at bytes");
    work_of_it = 0;
    work = NULL;
    d->backend->free(d, x);
    other->backend->free(other, theirs);
    said_nothing();
}

static void bytes_are_moved_inside_allocations(void **state)
{
    (void)state;
    fx_device *d = checked(1, 0), *other = checked(1, 1);
    const fx_backend *b = d->backend;
    char *x = b->alloc(d, 32), *y = b->alloc(other, 32), host[64] = "";
    assert_int_equal(b->write(d, x, host, 32), FX_OK);
    assert_int_equal(b->copy(other, y, d, x, 32), FX_OK);
    assert_int_equal(b->read(other, host, y, 32), FX_OK);
    assert_int_equal(b->fill(d, x + 31, 1, 1), FX_OK);
    said_nothing();
    assert_int_equal(b->write(d, x + 1, host, 32), FX_STATUS_INTERNAL);
    said("write: the range on check:far:0 is at bytes 1 to 32 of an allocation of 32 "
         "bytes");
    assert_int_equal(b->read(d, host, x, 33), FX_STATUS_INTERNAL);
    said("read: the range on check:far:0 is at bytes 0 to 32 of");
    assert_int_equal(b->fill(d, x - 1, 0, 1), FX_STATUS_INTERNAL);
    said("fill: the range on check:far:0 is at bytes -1 to -1 of");
    b->free(d, x);
    assert_int_equal(b->copy(other, y, d, x, 32), FX_STATUS_INTERNAL);
    said("copy: the range on check:far:0 is at bytes 0 to 31 of an allocation of 32 "
         "bytes that "
         "was freed");
    b->free(other, y);
    assert_null(b->alloc(d, SIZE_MAX - 100));
    assert_null(b->alloc(d, SIZE_MAX / 2));
    said_nothing();
}

/* The amount of released memory that is kept is bounded, and the kept memory is freed when memory
 * runs out. */
static void little_is_held(void **state)
{
    (void)state;
    fx_device *d = checked(0, 0);
    const fx_backend *b = d->backend;
    fxi_check_reclaim(d);
    const int64_t before = fxi_live_allocations();
    for (int i = 0; i < 20000; i++)
        b->free(d, b->alloc(d, 8));
    assert_in_range(fxi_live_allocations() - before, 1000, 10000);
    b->free(d, b->alloc(d, 100 << 20)); /* more than the wrapper may hold */
    assert_in_range(fxi_live_allocations() - before, 0, 2);
    b->free(d, b->alloc(d, 8));
    assert_null(b->alloc(d, SIZE_MAX / 2));
    assert_int_equal(fxi_live_allocations() - before, 0);
    said_nothing();
}

/* ---- what is right --------------------------------------------------------------------------- */

/* Losses of a small convolutional network that is trained on a device. */
static void train(fx_device *device, int n, double *losses)
{
    FX_SCOPE;
    fx_seed(7);
    void *model =
        fx_chain(fx_conv(FX_DIMS(3, 3), 1, 2, FX_RELU, .pad = FX_SAME), fx_batchnorm(2),
                 fx_maxpool(FX_DIMS(2, 2)), FX_FLATTEN, fx_dense(8, 3), fx_layernorm(FX_DIMS(3)));
    fx_array *x = fx_to(device, fx_rand(4, 4, 1, 6));
    fx_array *y =
        fx_to(device, fx_onehotbatch(fx_mod(fx_range_dtype(FX_DTYPE_I32, 0, 1, 6), 3), 3));
    model = fxi_to(device, model);
    void *opt = fx_setup(fx_adam(.eta = 0.01), model);
    for (int i = 0; i < n; i++) {
        FX_STEP;
        fx_array *loss = fx_logitcrossentropy(fx_call(model, x), y);
        fx_update(opt, model, fx_gradient(loss, model), .guard = loss);
        losses[i] = fx_item(loss);
    }
}

static void training_finds_nothing(void **state)
{
    (void)state;
    double want[10], got[10];
    train(fx_cpu_device(), 10, want);
    said_nothing();
    assert_true(want[9] < want[0]);
    fx_device *const devices[] = {fx_device_get("check:CPU", 0), checked(0, 1), checked(1, 1)};
    for (int i = 0; i < 3; i++) {
        train(devices[i], 10, got);
        said_nothing();
        for (int k = 0; k < 10; k++)
            assert_float_equal(got[k], want[k], (float)(1e-5 * fabs(want[k])));
        fxi_reclaim_all();
        assert_int_equal(fx_synchronize(devices[i]), FX_OK);
        fxi_check_reclaim(devices[i]);
        said_nothing();
    }
}

enum { THREADS = 4 };
static int wrong_threads; /* atomic */

static void *compute(void *device)
{
    double losses[3];
    bool ok = true;
    for (int i = 0; i < 5; i++)
        train(device, 3, losses);
    for (int i = 0; i < 200; i++) {
        FX_SCOPE;
        fx_array *x = fx_to(device, fx_full(2, 50));
        ok = ok && fx_item(fx_sum(fx_mul(x, x))) == 200;
    }
    if (!ok || fx_error_print(stderr))
        __atomic_add_fetch(&wrong_threads, 1, __ATOMIC_RELAXED);
    fxi_reclaim_all();
    return NULL;
}

static void threads_share_a_device(void **state)
{
    (void)state;
    for (int is_far = 0; is_far < 2; is_far++) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, compute, checked(is_far, 0)), 0);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(fx_synchronize(checked(is_far, 0)), FX_OK);
    }
    assert_int_equal(wrong_threads, 0);
    said_nothing();
}

int main(void)
{
    fx_message_set_hook(NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_reasons),
        cmocka_unit_test(defects_of_kernels_are_found),
        cmocka_unit_test(reads_of_what_nobody_wrote_are_nan),
        cmocka_unit_test(fresh_memory_and_guards_are_nan_in_every_type),
        cmocka_unit_test(poison_may_be_a_result),
        cmocka_unit_test(writes_to_other_memory_are_found),
        cmocka_unit_test(released_arrays_are_watched),
        cmocka_unit_test(work_space_is_watched),
        cmocka_unit_test(operands_lie_in_live_memory),
        cmocka_unit_test(work_space_lies_in_no_operand),
        cmocka_unit_test(outputs_lie_in_no_input),
        cmocka_unit_test(bytes_are_moved_inside_allocations),
        cmocka_unit_test(little_is_held),
        cmocka_unit_test(training_finds_nothing),
        cmocka_unit_test(threads_share_a_device),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
