/* test_rows_around.c: row steps whose rows are columns, lie around kept axes (batch norm), or are
 * longer than a cache: the values of the CPU and of OpenCL beside those of the reference device.
 * Pieces of rows that do not fill vectors, several outputs, views, broadcast operands, and
 * reductions of the last pass. ctest: timeout=400 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPERANDS = 4, RESULTS = 6, MOST = 1 << 20 };

/* A computation on x, y of one shape W×H×C×N and on scale, bias of C elements. */
typedef struct around {
    const char *name;
    int (*make)(fx_array *const in[OPERANDS], fx_array *out[RESULTS]);
    int64_t size[4];
    bool opencl; /* PoCL takes seconds to compile a kernel, so it gets a few cases only */
    fx_dtype dtype;
    float precision; /* relative; 0: that of Float32 */
} around;

static fx_array *channels(fx_array *v)
{
    return fx_reshape(v, 1, 1, fx_length(v), 1);
}

static fx_array *mean(fx_array *x)
{
    return fx_mean(x, .dims = FX_AXES(0, 1, 3));
}

static fx_array *norm(fx_array *const in[])
{
    fx_array *m = mean(in[0]), *v = mean(fx_square(fx_sub(in[0], m)));
    fx_array *unit = fx_div(fx_sub(in[0], m), fx_sqrt(fx_add(v, 1e-3)));
    return fx_add(fx_mul(unit, channels(in[2])), channels(in[3]));
}

static int batch_norm(fx_array *const in[], fx_array *out[])
{
    out[0] = fx_relu(norm(in));
    return 1;
}

/* The gradients of scale and bias are reductions of the same pass. */
static int with_gradients(fx_array *const in[], fx_array *out[])
{
    fx_array *const of[] = {in[0], in[2], in[3]};
    out[0] = fx_relu(norm(in));
    assert_int_equal(fx_pullback(out[0], in[1], of, 3, out + 1), FX_OK);
    return 4;
}

/* Batch norm in test mode: the statistics are given, and only the gradients reduce anything. */
static int frozen(fx_array *const in[], fx_array *out[])
{
    fx_array *const of[] = {in[2], in[3]};
    fx_array *unit = fx_div(fx_sub(in[0], 0.25), 1.5);
    out[0] = fx_relu(fx_add(fx_mul(unit, channels(in[2])), channels(in[3])));
    assert_int_equal(fx_pullback(out[0], in[1], of, 2, out + 1), FX_OK);
    return 3;
}

static int softmax(fx_array *const in[], fx_array *out[])
{
    out[0] = fx_softmax(fx_mul(in[0], in[1]), .dims = FX_AXES(0, 1, 3));
    return 1;
}

/* A permuted operand, one that repeats with every row, and a reduction after the last elements. */
static int views(fx_array *const in[], fx_array *out[])
{
    const int64_t w = fx_size(in[0], 0), h = fx_size(in[0], 1), n = fx_size(in[0], 3);
    fx_array *turned = fx_permute(fx_reshape(in[1], h, w, fx_size(in[0], 2), n), 1, 0, 2, 3);
    fx_array *every = fx_slice(in[1], 2, 0, 1);
    fx_array *far =
        fx_sub(fx_add(fx_mul(in[0], turned), every), fx_maximum(in[0], .dims = FX_AXES(0, 1, 3)));
    out[0] = far;
    out[1] = fx_sum(fx_exp(fx_div(far, 8)), .dims = FX_AXES(0, 1, 3));
    out[2] = mean(in[0]);
    return 3;
}

/* Contiguous rows that are too long for one group: the values of a row, a value of each element,
 * and a loss with its gradient. */
static int long_rows(fx_array *const in[], fx_array *out[])
{
    fx_array *d = fx_sub(in[0], in[1]);
    out[0] = fx_softmax(in[0], .dims = FX_AXES(0, 1));
    out[1] = fx_mean(fx_square(d));
    assert_int_equal(fx_pullback(out[1], fx_scalar(3), &d, 1, out + 2), FX_OK);
    return 3;
}

/* Contiguous rows longer than the first-level cache, with operands that differ from row to row, as
 * in group norm, and the gradient. */
static int grouped(fx_array *const in[], fx_array *out[])
{
    const fx_axes dims = FX_AXES(0, 1);
    fx_array *scale = channels(in[2]), *far = fx_sub(in[0], fx_mean(in[0], .dims = dims));
    fx_array *v = fx_mean(fx_square(far), .dims = dims);
    out[0] = fx_add(fx_mul(fx_div(far, fx_sqrt(fx_add(v, 1e-3))), scale), channels(in[3]));
    assert_int_equal(fx_pullback(out[0], in[1], in, 1, out + 1), FX_OK);
    return 2;
}

/* ---- sums across rows: the gradients of scale and bias of contiguous rows ---- */

/* A norm over axis 0 and, if x has four axes, axis 1 of x, with its gradients. */
static int scaled_norm(fx_array *x, fx_array *g, fx_array *scale, fx_array *bias, fx_array *out[])
{
    fx_axes axes = fx_ndims(x) == 4 ? FX_AXES(0, 1) : FX_AXES(0);
    fx_array *of[] = {x, scale, bias};
    fx_array *y = fx_add(fx_mul(fx_normalise(x, axes, 1e-3), scale), bias);
    /* The norm of Float64 has more operations, and a row step has at most 64. */
    out[0] = fx_eltype(x) == FX_DTYPE_F64 ? y : fx_tanh(y);
    assert_int_equal(fx_pullback(out[0], g, of, 3, out + 1), FX_OK);
    return 4;
}

/* Each row is an image. */
static int layer_norm(fx_array *const in[], fx_array *out[])
{
    const int64_t n = fx_size(in[0], 3), row = fx_length(in[0]) / n;
    fx_array *x = fx_reshape(in[0], row, n), *g = fx_reshape(in[1], row, n);
    return scaled_norm(x, g, fx_slice(g, 1, 0, 1), fx_slice(g, 1, 1, 2), out);
}

/* Each row is a channel of an image, and has a scale of its own for each element. */
static int channel_norm(fx_array *const in[], fx_array *out[])
{
    const int64_t c = fx_size(in[0], 2), n = fx_size(in[0], 3), row = fx_length(in[0]) / (c * n);
    fx_array *x = fx_reshape(in[0], row, c, n), *g = fx_reshape(in[1], row, c, n);
    return scaled_norm(x, g, fx_slice(g, 2, 0, 1), fx_slice(g, 2, 1, 2), out);
}

/* Each row is half of the channels of an image, and each channel has one scale. */
static int group_norm(fx_array *const in[], fx_array *out[])
{
    const int64_t wh = fx_size(in[0], 0) * fx_size(in[0], 1), c = fx_size(in[0], 2),
                  n = fx_size(in[0], 3);
    fx_array *x = fx_reshape(in[0], wh, c / 2, 2, n), *g = fx_reshape(in[1], wh, c / 2, 2, n);
    return scaled_norm(x, g, fx_reshape(in[2], 1, c / 2, 2, 1), fx_reshape(in[3], 1, c / 2, 2, 1),
                       out);
}

/* ---- columns: the axes before the row are kept ---- */

/* A norm over the channels, with its gradients. The scale and the bias repeat in every column. */
static int column_norm(fx_array *const in[], fx_array *out[])
{
    fx_array *const of[] = {in[0]};
    fx_array *m = fx_mean(in[0], .dims = FX_AXES(2));
    fx_array *v = fx_mean(fx_square(fx_sub(in[0], m)), .dims = FX_AXES(2));
    fx_array *unit = fx_div(fx_sub(in[0], m), fx_sqrt(fx_add(v, 1e-2)));
    out[0] = fx_relu(fx_add(fx_mul(unit, channels(in[2])), channels(in[3])));
    out[1] = v;
    assert_int_equal(fx_pullback(out[0], in[1], of, 1, out + 2), FX_OK);
    return 3;
}

static int column_softmax(fx_array *const in[], fx_array *out[])
{
    out[0] = fx_softmax(fx_mul(in[0], in[1]), .dims = FX_AXES(2));
    return 1;
}

/* Operands that are not dense: permuted, the same for all images, for all columns, for a row; and
 * values of the row, one of them before the first pass. */
static int column_views(fx_array *const in[], fx_array *out[])
{
    const int64_t w = fx_size(in[0], 0), h = fx_size(in[0], 1), n = fx_size(in[0], 3);
    fx_array *turned = fx_permute(fx_reshape(in[1], h, w, fx_size(in[0], 2), n), 1, 0, 2, 3);
    fx_array *image = fx_slice(in[1], 3, 0, 1), *column = fx_slice(in[1], 0, 0, 1);
    fx_array *each = fx_slice(in[0], 2, 1, 2), *peak = fx_maximum(in[0], .dims = FX_AXES(2));
    fx_array *far = fx_sub(fx_add(fx_mul(in[0], turned), fx_mul(image, column)), fx_exp(peak));
    out[0] = fx_add(far, fx_square(each));
    out[1] = fx_sum(fx_exp(fx_div(out[0], 8)), .dims = FX_AXES(2));
    out[2] = fx_minimum(fx_mul(out[0], out[1]), .dims = FX_AXES(2));
    return 3;
}

static const around cases[] = {
    {"contiguous rows of 65 KiB", grouped, {131, 127, 2, 8}, false, FX_DTYPE_F32, 0},
    {"layer norm", layer_norm, {16, 4, 3, 700}, false, FX_DTYPE_F32, 0},
    {"layer norm of long rows", layer_norm, {33, 31, 3, 16}, false, FX_DTYPE_F32, 0},
    {"layer norm of short rows", layer_norm, {3, 5, 2, 701}, false, FX_DTYPE_F32, 0},
    {"layer norm of Float64", layer_norm, {16, 4, 3, 40}, false, FX_DTYPE_F64, 0},
    {"layer norm of Float16", layer_norm, {16, 4, 5, 40}, false, FX_DTYPE_F16, 0.02f},
    {"layer norm of BFloat16", layer_norm, {3, 5, 2, 41}, false, FX_DTYPE_BF16, 0.1f},
    {"channel norm", channel_norm, {17, 9, 5, 200}, false, FX_DTYPE_F32, 0},
    {"channel norm of short rows", channel_norm, {3, 3, 7, 501}, false, FX_DTYPE_F32, 0},
    {"group norm", group_norm, {17, 15, 6, 40}, false, FX_DTYPE_F32, 0},
    {"group norm of short rows", group_norm, {2, 3, 8, 900}, false, FX_DTYPE_F32, 0},
    {"group norm of Float64", group_norm, {7, 5, 10, 30}, false, FX_DTYPE_F64, 0},
    {"group norm of BFloat16", group_norm, {17, 15, 6, 17}, false, FX_DTYPE_BF16, 0.1f},
    {"narrow columns", column_norm, {5, 3, 11, 4}, true, FX_DTYPE_F32, 0},
    {"three columns", column_softmax, {3, 1, 300, 5}, false, FX_DTYPE_F32, 0},
    {"columns in tiles", column_norm, {16, 4, 21, 3}, false, FX_DTYPE_F32, 0},
    {"wide columns", column_norm, {31, 13, 10, 3}, false, FX_DTYPE_F32, 0},
    {"columns of the last axis", column_softmax, {37, 33, 40, 1}, true, FX_DTYPE_F32, 0},
    {"long columns", column_softmax, {9, 2, 2000, 1}, false, FX_DTYPE_F32, 0},
    {"narrow views", column_views, {6, 5, 18, 3}, false, FX_DTYPE_F32, 0},
    {"wide views", column_views, {33, 31, 8, 3}, false, FX_DTYPE_F32, 0},
    {"columns of Float64", column_views, {16, 11, 9, 3}, false, FX_DTYPE_F64, 0},
    {"columns of BFloat16", column_softmax, {23, 7, 17, 3}, false, FX_DTYPE_BF16, 0.02f},
    {"columns of Float16", column_norm, {8, 8, 16, 4}, false, FX_DTYPE_F16, 0.01f},
    {"views of BFloat16", column_views, {33, 31, 8, 3}, false, FX_DTYPE_BF16, 0.1f},
    {"batch norm", batch_norm, {8, 8, 16, 4}, false, FX_DTYPE_F32, 0},
    {"gradients", with_gradients, {8, 8, 16, 4}, false, FX_DTYPE_F32, 0},
    {"odd gradients", with_gradients, {7, 5, 19, 3}, false, FX_DTYPE_F32, 0},
    {"long rows", with_gradients, {33, 31, 16, 7}, false, FX_DTYPE_F32, 0},
    {"frozen", frozen, {33, 31, 16, 7}, true, FX_DTYPE_F32, 0},
    {"softmax", softmax, {5, 7, 17, 3}, false, FX_DTYPE_F32, 0},
    {"views", views, {6, 5, 18, 3}, false, FX_DTYPE_F32, 0},
    {"long views", views, {33, 31, 16, 7}, true, FX_DTYPE_F32, 0},
    {"one image of two axes", views, {6, 6, 20, 2}, false, FX_DTYPE_F32, 0},
    /* Operands and results are converted; each operation rounds to 16 bits. */
    {"BFloat16", softmax, {5, 7, 17, 3}, false, FX_DTYPE_BF16, 0.02f},
    {"Float16", batch_norm, {8, 8, 16, 4}, false, FX_DTYPE_F16, 0.01f},
    {"views of Float16", views, {33, 31, 16, 7}, false, FX_DTYPE_F16, 0.01f},
};

/* On devices with memory of their own. Two rows of 20,480 elements each, and one of all. */
static const around long_case = {"long contiguous rows", long_rows, {160, 128, 1, 2}, true,
                                 FX_DTYPE_F32,           0};

static float *const_data(int64_t n, unsigned seed)
{
    float *p = malloc((size_t)n * sizeof *p);
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
    }
    return p;
}

/* Writes all results one after the other and returns how many numbers they have. `rows`: the plan
 * must have a row step. */
static int64_t results_on(const around *c, fx_device *device, bool rows, float *to)
{
    FX_SCOPE;
    fx_array *in[OPERANDS], *out[RESULTS] = {NULL};
    const int64_t all = c->size[0] * c->size[1] * c->size[2] * c->size[3];
    for (int k = 0; k < OPERANDS; k++) {
        float *from = const_data(all, (unsigned)k + 1);
        in[k] = k < 2 ? fx_from(FX_DTYPE_F32, from, c->size[0], c->size[1], c->size[2], c->size[3])
                      : fx_from(FX_DTYPE_F32, from, c->size[2]);
        in[k] = fx_to(device, fx_cast(in[k], c->dtype));
        assert_int_equal(fx_eval(in[k]), FX_OK);
        free(from);
    }
    const int n = c->make(in, out);
    if (rows) {
        char text[8192];
        fx_plan_text(fxi_tuple(n, (void *const *)out), text, sizeof text);
        if (!strstr(text, "row "))
            fail_msg("%s: no row step in\n%s", c->name, text);
        const bool across =
            c->make == layer_norm || c->make == channel_norm || c->make == group_norm;
        if (across && (!strstr(text, "sum across") || strstr(text, "reduce")))
            fail_msg("%s: a sum across rows is a step of its own in\n%s", c->name, text);
    }
    assert_int_equal(fx_eval(fxi_tuple(n, (void *const *)out)), FX_OK);
    int64_t at = 0;
    for (int k = 0; k < n; k++) {
        const int64_t length = fx_length(out[k]);
        assert_true(at + length <= MOST);
        assert_int_equal(
            fx_read_into(fx_cast(out[k], FX_DTYPE_F32), to + at, (size_t)length * sizeof *to),
            FX_OK);
        at += length;
    }
    return at;
}

static void compare(const around *c, fx_device *device, bool rows)
{
    static float want[MOST], got[MOST];
    const int64_t n = results_on(c, fx_device_get("ref", 0), false, want);
    assert_int_equal(results_on(c, device, rows, got), n);
    const float precision = c->precision > 0 ? c->precision : 2e-5f;
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= precision * (1 + fabsf(want[i]))))
            fail_msg("%s on %s: number %d is %g, not %g", c->name, fx_device_name(device), (int)i,
                     (double)got[i], (double)want[i]);
}

static void the_cpu(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        compare(&cases[k], fx_cpu_device(), true);
}

static void opencl(void **state)
{
    (void)state;
    if (fx_use("OpenCL") != FX_OK) {
        printf("skipped: OpenCL: %s\n", fx_why_not("OpenCL"));
        return;
    }
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        if (cases[k].opencl)
            compare(&cases[k], fx_device_get("OpenCL", 0), true);
    compare(&long_case, fx_device_get("OpenCL", 0), true);
}

int main(void)
{
    unsetenv("FX_EAGER");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cpu),
        cmocka_unit_test(opencl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
