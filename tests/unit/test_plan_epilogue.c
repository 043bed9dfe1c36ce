/* test_plan_epilogue.c: planner rule 4: the epilogues of matrix products and convolutions, as plans
 * in text. The results have the same bits as separate steps. The expected plans follow from
 * src/plan/epilogue.c, worked out by hand.
 *
 * A backend that refuses epilogues is the CPU's with another `prepare`.
 */
#include "evaluate.h"
#include "semantics_check.h"

#include <stdio.h>
#include <stdlib.h>

#include "backends.h"
#include "cpu_simd.h"
#include "plan.h"
#include "plan_steps.h"

static fx_array *leaf(fx_array *x)
{
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}
#define RAND(...) leaf(fx_sub(fx_rand(__VA_ARGS__), 0.5F))

static void same_bits(fx_array *got, fx_array *want)
{
    assert_int_equal(fx_eval(fx_tuple(got, want)), FX_OK);
    const size_t bytes = (size_t)fx_length(want) * fx_dtype_size(fx_eltype(want));
    assert_true(bytes > 0);
    assert_int_equal((size_t)fx_length(got) * fx_dtype_size(fx_eltype(got)), bytes);
    assert_memory_equal(fx_data(got), fx_data(want), bytes);
}

/* ---- matrix products ------------------------------------------------------------------------- */

static void bias_and_activation(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *W = RAND(37, 300), *x = RAND(300, 19), *b = RAND(37);
    fx_array *(*const acts[])(fx_array *) = {fx_relu, fx_tanh, fx_sigmoid};
    static const char *const names[] = {"relu", "tanh", "sigmoid"};
    for (int k = 0; k < 3; k++) {
        char text[200];
        fx_array *y = acts[k](fx_add(fx_matmul(W, x), b));
        snprintf(text, sizeof text,
                 "  1  matmul then add %s(x0, x1, x2′) → Float32 37×19, 0.422 MFLOP\n", names[k]);
        expect(y, text);
        same_bits(y, acts[k](leaf(fx_add(leaf(fx_matmul(W, x)), b))));
    }
}

/* Dense keeps further axes by a reshape between product and bias. */
static void a_layer_over_many_axes(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *l = fx_dense(6, 5, FX_TANH);
    fx_array *x = RAND(6, 3, 2);
    fx_eval(l);
    expect(fx_call(l, x), "  1  matmul then add tanh(x0, x1, x2′) → Float32 5×6, 0.00036 MFLOP\n");
    fx_array *z = leaf(fx_matmul(l->weight, fx_reshape(x, 6, 6)));
    same_bits(fx_call(l, x), fx_reshape(fx_tanh(leaf(fx_add(z, l->bias))), 5, 3, 2));
}

static void a_sum_of_two_products(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *W = RAND(8, 6), *U = RAND(8, 8), *x = RAND(6, 4), *h = RAND(8, 4), *b = RAND(8);
    fx_array *next = fx_tanh(fx_add(fx_add(fx_matmul(W, x), fx_matmul(U, h)), b));
    expect(next, "  1  matmul(x0, x1) → Float32 8×4, 0.000384 MFLOP\n"
                 "  2  matmul then add add tanh(x2, x3, 1, x4′) → Float32 8×4, 0.000512 MFLOP\n");
    fx_array *sum = leaf(fx_add(leaf(fx_matmul(W, x)), leaf(fx_matmul(U, h))));
    same_bits(next, fx_tanh(leaf(fx_add(sum, b))));
    /* the same product twice is one value read twice */
    fx_array *p = fx_matmul(W, x);
    expect(fx_add(p, p), "  1  matmul(x0, x1) → Float32 8×4, 0.000384 MFLOP\n"
                         "  2  add(1) → Float32 8×4\n");
}

/* Adds `d` to a product of all layouts of its factors: m×k by k×n. */
static void check_addition(int64_t m, int64_t n, int64_t k, fx_array *d, int transposed)
{
    fx_array *W = transposed & 1 ? fx_transpose(RAND(k, m)) : RAND(m, k);
    fx_array *x = transposed & 2 ? fx_transpose(RAND(n, k)) : RAND(k, n);
    /* Products that are too small for a number: their sum is −0. */
    fx_array *tiny = leaf(fx_mul(fx_sign(W), 1e-30F));
    fx_array *const all[] = {W, tiny}, *residual = RAND(m, n);
    for (int i = 0; i < 2; i++) {
        fx_array *from = i ? fx_mul(fx_sign(x), 1e-30F) : x;
        from = transposed & 2 ? fx_transpose(leaf(fx_transpose(from))) : leaf(from);
        fx_array *z = leaf(fx_matmul(all[i], from));
        same_bits(fx_add(fx_matmul(all[i], from), d), fx_add(z, d));
        same_bits(fx_add(d, fx_matmul(all[i], from)), fx_add(d, z));
        same_bits(fx_relu(fx_add(fx_add(fx_matmul(all[i], from), d), residual)),
                  fx_relu(leaf(fx_add(leaf(fx_add(z, d)), residual))));
    }
}

/* The CPU adds a matrix or a bias when it stores the product: whole tiles and parts of them, sums
 * of one block and of several, packed operands and others, all instruction sets, several threads.
 * The addend may be a part of a larger array, and hold NaN and −0. */
static void an_addition_in_the_product(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},     {3, 2, 5},     {16, 1, 64},   {1, 70, 9},
                                       {37, 29, 41},  {64, 24, 512}, {64, 24, 513}, {129, 40, 130},
                                       {300, 70, 33}, {10, 260, 12}};
    static const char *const isa[] = {"base", "avx2", "avx512"};
    const int before = fx_num_threads();
    for (int s = 0; s < 3; s++) {
        if (!fxi_cpu_simd_choose(isa[s])) {
            printf("skipped: no %s on this machine\n", isa[s]);
            continue;
        }
        fxi_reclaim_all();
        for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++) {
            FX_SCOPE;
            const int64_t m = sizes[c][0], n = sizes[c][1], k = sizes[c][2];
            fx_set_num_threads(1 + 2 * (int)(c % 2));
            fx_array *part = fx_slice(RAND(m, n, 3), 2, 1, 2);
            fx_array *odd = fx_where(fx_gt(RAND(m, n), 0.4F), NAN, fx_mul(RAND(m, n), -0.0F));
            fx_array *const addends[] = {RAND(m, n), RAND(m), RAND(m, 1), fx_reshape(part, m, n),
                                         leaf(odd)};
            for (size_t i = 0; i < sizeof addends / sizeof *addends; i++)
                check_addition(m, n, k, addends[i], (int)((c + i) % 4));
        }
    }
    fxi_cpu_simd_choose(NULL);
    fxi_reclaim_all();
    fx_set_num_threads(before);
}

/* gelu's gradient needs what the bias was added to: that is what the product stores. */
static void a_value_that_is_stored_ends_the_chain(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *W = RAND(8, 6), *x = RAND(6, 4), *b = RAND(8);
    fx_array *z = fx_add(fx_matmul(W, x), b), *y = fx_mul(fx_sigmoid(z), 3);
    expect(fx_tuple(y, z), "  1  matmul then add(x0, x1, x2′) → Float32 8×4, 0.000384 MFLOP\n"
                           "  2  sigmoid mul(1, c0) → Float32 8×4\n");
    same_bits(y, fx_mul(fx_sigmoid(leaf(fx_add(leaf(fx_matmul(W, x)), b))), 3));
}

static void others_read_the_product(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *W = RAND(8, 6), *x = RAND(6, 4), *b = RAND(8), *row = RAND(1, 4);
    fx_array *p = fx_matmul(W, x);
    expect(fx_tuple(fx_add(p, b), p), "  1  matmul(x0, x1) → Float32 8×4, 0.000384 MFLOP\n"
                                      "  2  add(1, x2′) → Float32 8×4\n");
    /* a bias along the columns; a transposed product is stored in the order of its reader */
    expect(fx_add(fx_matmul(W, x), row), "  1  matmul(x0, x1) → Float32 8×4, 0.000384 MFLOP\n"
                                         "  2  add(1, x2′) → Float32 8×4\n");
    expect(fx_tanh(fx_transpose(fx_matmul(W, x))),
           "  1  matmul then tanh(x0, x1) → Float32 8×4, 0.000384 MFLOP\n");
}

/* Attention scales the query after its bias. A product with a tensor stays a step. */
static void a_product_is_scaled(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *W = RAND(8, 6), *x = RAND(6, 4), *b = RAND(8), *y = RAND(8, 4);
    fx_array *z = fx_mul(fx_add(fx_matmul(W, x), b), 0.125);
    expect(z, "  1  matmul then add mul(x0, x1, x2′, c0) → Float32 8×4, 0.000384 MFLOP\n");
    same_bits(z, fx_mul(leaf(fx_add(leaf(fx_matmul(W, x)), b)), 0.125));
    expect(fx_mul(fx_matmul(W, x), y), "  1  matmul(x0, x1) → Float32 8×4, 0.000384 MFLOP\n"
                                       "  2  mul(1, x2) → Float32 8×4\n");
}

/* The first layer's activation is stored, its pre-activation is not: tanh's gradient is a function
 * of the output. */
static void a_training_step(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_chain_layer *m = fx_chain(fx_dense(6, 5, FX_TANH), fx_dense(5, 5, FX_RELU), fx_dense(5, 2));
    fx_eval(m);
    fx_array *x = RAND(6, 4), *y = RAND(2, 4);
    const char *plan = plan_of(fx_gradient(fx_sum(fx_mul(fx_call(m, x), y)), m));
    assert_non_null(strstr(plan, "matmul then add tanh("));
    assert_non_null(strstr(plan, "matmul then add relu("));
    assert_null(strstr(strstr(plan, "tanh(") + 1, "tanh")); /* once: not computed again */
    assert_null(strstr(plan, "more"));                      /* and no mask is stored */
}

/* ---- convolutions ---------------------------------------------------------------------------- */

static void convolution(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_conv_layer *l = fx_conv(FX_DIMS(3, 3), 2, 4, FX_RELU, .pad = FX_SAME, .bias_array = RAND(4));
    fx_eval(l);
    fx_array *x = RAND(7, 6, 2, 3);
    expect(fx_call(l, x),
           "  1  conv forward then add relu(x0, x1, x2′) → Float32 7×6×4×3, 0.0181 MFLOP\n");
    fx_array *z = leaf(fx_convolve(x, l->weight, .pad = FX_DIMS(1, 1)));
    same_bits(fx_call(l, x), fx_relu(leaf(fx_add(z, fx_reshape(l->bias, 1, 1, 4, 1)))));
}

/* Whole images, blocks of large ones, slices of channels, groups, three axes, one axis. */
static void convolutions_of_all_sizes(void **state)
{
    (void)state;
    static const struct {
        int64_t x[5];
        int spatial;
        int64_t kernel[3], out, groups;
    } cases[] = {
        {{9, 8, 3, 5}, 2, {3, 3}, 10, 1},
        {{300, 210, 4, 1}, 2, {5, 5}, 12, 1},
        {{40, 30, 8, 2}, 2, {3, 3}, 40, 2},
        {{12, 11, 10, 2, 3}, 3, {2, 3, 2}, 9, 1},
        {{70, 60, 50, 1, 1}, 3, {3, 3, 3}, 3, 1},
        {{4, 4, 6, 3}, 2, {3, 3}, 7, 1},
        {{500, 3, 4}, 1, {7}, 5, 1},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        FX_SCOPE;
        const int s = cases[k].spatial;
        int64_t w[5], b[5] = {1, 1, 1, 1, 1};
        memcpy(w, cases[k].kernel, sizeof cases[k].kernel);
        w[s] = cases[k].x[s] / cases[k].groups;
        w[s + 1] = b[s] = cases[k].out;
        fx_array *x = leaf(fx_sub(fxi_rand(FX_DTYPE_F32, s + 2, cases[k].x), 0.5));
        fx_array *W = leaf(fx_sub(fxi_rand(FX_DTYPE_F32, s + 2, w), 0.5));
        fx_array *bias = leaf(fxi_rand(FX_DTYPE_F32, s + 2, b));
        fx_array *z = fx_convolve(x, W, .groups = cases[k].groups);
        fx_array *y = fx_tanh(fx_add(fx_add(z, bias), 0.25));
        assert_non_null(strstr(plan_of(y), "conv forward then add add tanh("));
        fx_eval(y);
        z = leaf(fx_convolve(x, W, .groups = cases[k].groups));
        same_bits(y, fx_tanh(leaf(fx_add(leaf(fx_add(z, bias)), 0.25))));
    }
}

/* Batch norm in test mode, after a convolution with a bias, is applied where the sums are; so is a
 * residual. In training the statistics are read first, and a batch norm of a Dense layer is an
 * elementwise step: its product would be torn from longer gradients. */
static void batch_norms(void **state)
{
    (void)state;
    FX_SCOPE;
    static const int64_t sizes[][4] = {
        {9, 8, 3, 10}, {33, 32, 3, 32}, {16, 16, 32, 40}, {8, 8, 64, 33}, {4, 4, 16, 7}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const int64_t in = sizes[k][2], n = sizes[k][3];
        fx_conv_layer *c = fx_conv(FX_DIMS(3, 3), in, n, .pad = FX_SAME, .bias_array = RAND(n));
        fx_batchnorm_layer *l = fx_batchnorm(n, FX_RELU);
        fx_set(&l->mean, RAND(n));
        fx_set(&l->beta, RAND(n));
        fx_set(&l->gamma, RAND(n));
        fx_array *x = RAND(sizes[k][0], sizes[k][1], in, 3);
        fx_eval(c), fx_eval(l);
        FX_TEST;
        fx_array *y = fx_call(l, fx_call(c, x));
        assert_non_null(strstr(plan_of(y), "conv forward then add sub mul add relu("));
        same_bits(y, fx_call(l, leaf(fx_call(c, x))));
        fx_array *rest = RAND(sizes[k][0], sizes[k][1], n, 3);
        fx_array *sum =
            fx_relu(fx_add(fx_div(fx_call(c, x), fx_reshape(l->gamma, 1, 1, n, 1)), rest));
        assert_non_null(strstr(plan_of(sum), "conv forward then add div add relu("));
        same_bits(
            sum, fx_relu(fx_add(leaf(fx_div(leaf(fx_call(c, x)), fx_reshape(l->gamma, 1, 1, n, 1))),
                                rest)));
    }
    fx_array *W = RAND(5, 6), *x = RAND(6, 4), *scale = RAND(5, 1);
    expect(fx_mul(fx_matmul(W, x), scale), "  1  matmul(x0, x1) → Float32 5×4, 0.00024 MFLOP\n"
                                           "  2  mul(1, x2′) → Float32 5×4\n");
}

/* Operands that the tiles of a convolution do not apply: a difference from the product, a value of
 * each image. The values of NaN and −0 are those of separate steps. */
static void other_channel_values(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = RAND(12, 11, 4, 3), *w = RAND(3, 3, 4, 9), *c = RAND(1, 1, 9, 1);
    fx_array *image = RAND(1, 1, 1, 3);
    fx_array *z = leaf(fx_convolve(x, w));
    fx_array *from = fx_relu(fx_sub(c, fx_convolve(x, w)));
    assert_non_null(strstr(plan_of(from), "conv forward then sub relu("));
    same_bits(from, fx_relu(leaf(fx_sub(c, z))));
    fx_array *by_image = fx_mul(fx_convolve(x, w), image);
    assert_null(strstr(plan_of(by_image), "then"));
    same_bits(by_image, fx_mul(z, image));
    fx_array *odd = leaf(fx_reshape(
        fx_vector(-0.0, 0.0, NAN, INFINITY, -INFINITY, 1e-30, -1e38, 1e38, -1.0), 1, 1, 9, 1));
    fx_array *y = fx_relu(fx_div(fx_sub(fx_mul(fx_convolve(x, w), odd), 0.0F), odd));
    assert_non_null(strstr(plan_of(y), "conv forward then mul sub div relu("));
    same_bits(y, fx_relu(leaf(fx_div(leaf(fx_sub(leaf(fx_mul(z, odd)), 0.0F)), odd))));
}

/* ---- stripping ------------------------------------------------------------------------------- */

static int most; /* instructions of an epilogue */
static fx_status prepare_at_most(fx_device *device, fx_step *s)
{
    if (s->cls == FX_CLASS_ELEMENTWISE || fx_step_program(s).n <= most)
        return fxi_cpu_backend.prepare(device, s);
    s->work_bytes = INT64_C(1) << 50; /* not the work space of the step that is finally accepted */
    return FX_STATUS_UNSUPPORTED;
}

static void a_backend_refuses(void **state)
{
    (void)state;
    FX_SCOPE;
    static const char *const plans[] = {
        "  1  matmul(x0, x1) → Float32 8×4, 0.000384 MFLOP\n"
        "  2  matmul(x2, x3) → Float32 8×4, 0.000512 MFLOP\n"
        "  3  add add tanh(2, 1, x4′) → Float32 8×4\n",
        "  1  matmul(x0, x1) → Float32 8×4, 0.000384 MFLOP\n"
        "  2  matmul then add(x2, x3, 1) → Float32 8×4, 0.000512 MFLOP\n"
        "  3  add tanh(2, x4′) → Float32 8×4\n",
        "  1  matmul(x0, x1) → Float32 8×4, 0.000384 MFLOP\n"
        "  2  matmul then add add(x2, x3, 1, x4′) → Float32 8×4, 0.000512 MFLOP\n"
        "  3  tanh(2) → Float32 8×4\n",
    };
    fx_array *W = RAND(8, 6), *U = RAND(8, 8), *x = RAND(6, 4), *h = RAND(8, 4), *b = RAND(8);
    fx_array *want = leaf(fx_tanh(fx_add(fx_add(fx_matmul(W, x), fx_matmul(U, h)), b)));
    fx_device *cpu = fx_cpu_device();
    const fx_backend *own = cpu->backend;
    fx_backend refusing = *own;
    refusing.prepare = prepare_at_most;
    for (most = 0; most < 3; most++) {
        fxi_reclaim_all();
        cpu->backend = &refusing;
        fx_array *y = fx_tanh(fx_add(fx_add(fx_matmul(W, x), fx_matmul(U, h)), b));
        expect(y, plans[most]);
        same_bits(y, want);
        fxi_reclaim_all();
        cpu->backend = own;
    }
}

static int compilations; /* number of successful compilations */
static fx_status answer; /* of `compile`, for the last step */
static fx_status compile_no_fused(fx_device *device, fx_step *steps, int32_t n, int32_t *out_step)
{
    (void)device;
    for (*out_step = 0; *out_step < n; ++*out_step)
        if (fx_step_is_fused(&steps[*out_step]))
            return FX_STATUS_UNSUPPORTED;
    *out_step = n - 1;
    compilations += answer == FX_OK;
    return answer == FX_OK ? FX_OK : fx_fail(answer, "compile", "told to fail");
}

/* A fused step that cannot be compiled is divided, like one that cannot be prepared; a step of one
 * operation fails the plan. */
static void a_compiler_refuses(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *W = RAND(8, 6), *x = RAND(6, 4), *b = RAND(8);
    fx_array *want = leaf(fx_tanh(fx_add(leaf(fx_matmul(W, x)), b)));
    fx_device *cpu = fx_cpu_device();
    const fx_backend *own = cpu->backend;
    fx_backend refusing = *own;
    refusing.compile = compile_no_fused;
    compilations = 0;
    fxi_reclaim_all();
    cpu->backend = &refusing;
    answer = FX_STATUS_DEVICE;
    fx_array *y = fx_tanh(fx_add(fx_matmul(W, x), b));
    assert_int_equal(fx_eval(y), FX_STATUS_DEVICE);
    assert_string_equal(fx_error_take().message, "compile: told to fail");
    answer = FX_OK;
    expect(y, "  1  matmul(x0, x1) → Float32 8×4, 0.000384 MFLOP\n"
              "  2  add(1, x2′) → Float32 8×4\n"
              "  3  tanh(2) → Float32 8×4\n");
    same_bits(fx_tanh(fx_add(fx_matmul(W, x), b)), want);
    assert_true(compilations > 0);
    fxi_reclaim_all();
    cpu->backend = own;
}

/* 16-bit products are rounded once more when the bias is a step of its own. */
static void the_cpu_refuses_16_bits(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *W = leaf(fx_cast(RAND(8, 6), FX_DTYPE_BF16)),
             *x = leaf(fx_cast(RAND(6, 4), FX_DTYPE_BF16));
    fx_array *b = leaf(fx_cast(RAND(8), FX_DTYPE_BF16));
    expect(fx_relu(fx_add(fx_matmul(W, x), b)),
           "  1  matmul(x0, x1) → BFloat16 8×4, 0.000384 MFLOP\n"
           "  2  add relu(1, x2′) → BFloat16 8×4\n");
}

int main(void)
{
    unsetenv("FX_EAGER");
#define TEST(f) cmocka_unit_test_setup_teardown(f, clean_start, clean_end)
    const struct CMUnitTest tests[] = {
        TEST(bias_and_activation),
        TEST(a_layer_over_many_axes),
        TEST(a_sum_of_two_products),
        TEST(an_addition_in_the_product),
        TEST(a_value_that_is_stored_ends_the_chain),
        TEST(others_read_the_product),
        TEST(a_product_is_scaled),
        TEST(a_training_step),
        TEST(convolution),
        TEST(convolutions_of_all_sizes),
        TEST(batch_norms),
        TEST(other_channel_values),
        TEST(a_backend_refuses),
        TEST(a_compiler_refuses),
        TEST(the_cpu_refuses_16_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
