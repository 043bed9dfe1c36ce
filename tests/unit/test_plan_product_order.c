/* test_plan_product_order.c: a batched product that is read after a permutation and a reshape, and
 * a product that an elementwise step reads transposed, store their axes in that order. Plans in
 * text, worked out by hand from src/plan/product_order.c, and the same bits as separate steps.
 */
#include "semantics_check.h"

#include <stdlib.h>

/* Integers in every type, so that sums of products are exact in all but 16-bit floats, where both
 * ways round alike. */
static fx_array *leaf(fx_dtype type, int64_t a, int64_t b, int64_t c, int64_t d)
{
    fx_array *x = fx_cast(fx_floor(fx_mul(fx_rand(a, b, c, d), 9)), type);
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

static void expect(void *x, const char *steps)
{
    char text[4096];
    assert_true(fx_plan_text(x, text, sizeof text) < sizeof text);
    const char *first = strchr(text, '\n');
    assert_non_null(first);
    assert_string_equal(first + 1, steps);
}

static void same_bits(fx_array *got, fx_array *want)
{
    assert_int_equal(fx_eval(fx_tuple(got, want)), FX_OK);
    const size_t bytes = (size_t)fx_length(want) * fx_dtype_size(fx_eltype(want));
    assert_true(bytes > 0 && fx_length(got) == fx_length(want));
    assert_memory_equal(fx_data(got), fx_data(want), bytes);
}

/* The heads of attention: features×length×heads×batch become (features·heads)×(length·batch). */
static fx_array *join_heads(fx_array *x)
{
    return fx_reshape(fx_permute(x, 0, 2, 1, 3), fx_size(x, 0) * fx_size(x, 2),
                      fx_size(x, 1) * fx_size(x, 3));
}
/* The same of length×features×heads×batch. */
static fx_array *join_transposed(fx_array *x)
{
    fx_array *y = fx_permute(fx_permute(x, 1, 0, 2, 3), 0, 2, 1, 3);
    y = fx_reshape(y, fx_size(x, 1) * fx_size(x, 2), fx_size(x, 0), fx_size(x, 3));
    return fx_reshape(y, fx_size(y, 0), fx_size(y, 1) * fx_size(y, 2));
}

static void heads_are_joined_without_a_copy(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = leaf(FX_DTYPE_F32, 8, 5, 3, 2), *b = leaf(FX_DTYPE_F32, 5, 7, 3, 2),
             *w = leaf(FX_DTYPE_F32, 6, 24, 1, 1);
    w = fx_reshape(w, 6, 24);
    assert_int_equal(fx_eval(w), FX_OK);
    expect(fx_matmul(w, join_heads(fx_batched_mul(a, b))),
           "  1  matmul(x1, x2) → Float32 8×7×3×2, 0.00336 MFLOP\n"
           "  2  matmul(x0, 1) → Float32 6×14, 0.00403 MFLOP\n");
    fx_array *at = fx_permute(b, 1, 0, 2, 3), *bt = fx_permute(a, 1, 0, 2, 3);
    expect(fx_matmul(w, join_transposed(fx_batched_mul(at, bt))),
           "  1  matmul(x1′, x2′) → Float32 7×8×3×2, 0.00336 MFLOP\n"
           "  2  matmul(x0, 1) → Float32 6×14, 0.00403 MFLOP\n");
}

/* A number that scales the product is its epilogue; a tensor is not. */
static void a_scale_is_the_epilogue(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = leaf(FX_DTYPE_F32, 8, 5, 3, 2), *b = leaf(FX_DTYPE_F32, 5, 8, 3, 2),
             *bias = leaf(FX_DTYPE_F32, 24, 1, 1, 1);
    expect(fx_mul(join_heads(fx_batched_mul(a, b)), 0.5F),
           "  1  matmul then mul(x0, x1, c0) → Float32 8×8×3×2, 0.00384 MFLOP\n");
    expect(fx_add(join_heads(fx_batched_mul(a, b)), fx_reshape(bias, 24)),
           "  1  matmul(x0, x1) → Float32 8×8×3×2, 0.00384 MFLOP\n"
           "  2  add(1, x2′) → Float32 24×16\n");
}

/* A result of the graph is column-major; so is a product that another node reads as it is. */
static void other_readers_need_the_usual_order(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = leaf(FX_DTYPE_F32, 8, 5, 3, 2), *b = leaf(FX_DTYPE_F32, 5, 7, 3, 2);
    fx_array *p = fx_batched_mul(a, b);
    expect(fx_tuple(fx_relu(p), fx_relu(join_heads(p))),
           "  1  matmul(x0, x1) → Float32 8×7×3×2, 0.00336 MFLOP\n"
           "  2  copy(1′) → Float32 8×3×7×2\n"
           "  3  foreach of 2: relu(1; 2) → Float32 336, 336\n");
}

static fx_array *turned(fx_array *x)
{
    return fx_permute(x, 1, 0, 2, 3);
}

/* A product with a tensor cannot be an epilogue: a step reads the product, without a stride (1, not
 * 1′). The gradient of a matrix that was transposed before a product is read in this way. */
static void an_elementwise_step_reads_no_transposed_product(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = leaf(FX_DTYPE_F32, 8, 5, 3, 2), *b = leaf(FX_DTYPE_F32, 5, 7, 3, 2),
             *c = leaf(FX_DTYPE_F32, 7, 8, 3, 2);
    expect(fx_mul(turned(fx_batched_mul(a, b)), c),
           "  1  matmul(x0, x1) → Float32 8×7×3×2, 0.00336 MFLOP\n"
           "  2  mul(1, x2) → Float32 7×8×3×2\n");
    fx_array *m = fx_reshape(leaf(FX_DTYPE_F32, 8, 5, 1, 1), 8, 5),
             *x = fx_reshape(leaf(FX_DTYPE_F32, 5, 7, 1, 1), 5, 7),
             *w = fx_reshape(leaf(FX_DTYPE_F32, 7, 8, 1, 1), 7, 8);
    assert_int_equal(fx_eval(fx_tuple(m, x, w)), FX_OK);
    expect(fx_mul(fx_transpose(fx_matmul(m, x)), w),
           "  1  matmul(x0, x1) → Float32 8×7, 0.00056 MFLOP\n"
           "  2  mul(1, x2) → Float32 7×8\n");
    /* The product is a result, too. */
    fx_array *p = fx_matmul(m, x);
    expect(fx_tuple(p, fx_mul(fx_transpose(p), w)),
           "  1  matmul(x0, x1) → Float32 8×7, 0.00056 MFLOP\n"
           "  2  mul(1′, x2) → Float32 7×8\n");
}

static fx_array *(*const joins[])(fx_array *) = {join_heads, join_transposed, turned};

/* Every type, all orders, one and several threads' work, and an epilogue that the CPU refuses for
 * 16-bit floats and then computes as a step of its own. */
static void the_bits_are_those_of_separate_steps(void **state)
{
    (void)state;
    static const fx_dtype types[] = {FX_DTYPE_F32,  FX_DTYPE_F64, FX_DTYPE_F16,
                                     FX_DTYPE_BF16, FX_DTYPE_I32, FX_DTYPE_U8};
    static const int64_t sizes[][3] = {{8, 5, 7}, {1, 4, 3}, {4, 3, 1}, {33, 70, 40}};
    for (int t = 0; t < 6; t++)
        for (int k = 0; k < 12; k++) {
            FX_SCOPE;
            const int64_t *n = sizes[k / 3];
            fx_array *a = leaf(types[t], n[0], n[1], 3, 4), *b = leaf(types[t], n[1], n[2], 3, 1);
            fx_array *p = fx_batched_mul(a, b);
            assert_int_equal(fx_eval(p), FX_OK);
            same_bits(fx_abs(joins[k % 3](fx_batched_mul(a, b))), fx_abs(joins[k % 3](p)));
            same_bits(fx_mul(joins[k % 3](fx_batched_mul(a, b)), fx_cast(fx_scalar(3), types[t])),
                      fx_mul(joins[k % 3](p), fx_cast(fx_scalar(3), types[t])));
        }
}

int main(void)
{
    unsetenv("FX_EAGER");
#define TEST(f) cmocka_unit_test_setup_teardown(f, clean_start, clean_end)
    const struct CMUnitTest tests[] = {
        TEST(heads_are_joined_without_a_copy),
        TEST(a_scale_is_the_epilogue),
        TEST(other_readers_need_the_usual_order),
        TEST(an_elementwise_step_reads_no_transposed_product),
        TEST(the_bits_are_those_of_separate_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
