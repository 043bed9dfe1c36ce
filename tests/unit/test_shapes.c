/* Tests of src/ops/shapes.c and src/ops/index.c: rearrangements of the numbers 1, 2,
 * 3, … written out by hand, their gradients against central differences, one-hot arrays, indexing
 * by element, scatter, mean pooling at the border, and errors.
 */
#include "composite_check.h"

#include <cflux/mlutils.h>
#include <cflux/nn.h>

static const double nan_ = (double)NAN;

/* 1, 2, 3, … in this shape, column-major. */
#define COUNTING(...)                                                                              \
    fx_reshape(fx_range(1, 1, 1 * counted((const int64_t[]){__VA_ARGS__, -1})), __VA_ARGS__)
static int64_t counted(const int64_t *sizes)
{
    int64_t n = 1;
    for (; *sizes >= 0; sizes++)
        n *= *sizes;
    return n;
}

static fx_array *whole(int64_t n, const int64_t *v)
{
    return fxi_from(FX_DTYPE_I64, v, 1, &n);
}
#define INDICES(...) whole(COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__})

static void ranges(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *logical = fx_range_dtype(FX_DTYPE_BOOL, 1, 2, 4);
    CHECK(logical, (4), 0, 1, 3, 5, 7);
    assert_int_equal(fx_eltype(logical), FX_DTYPE_I64);
    CHECK(fx_range_dtype(FX_DTYPE_I32, 2.7, -1.5, 3), (3), 0, 2, 1, 0);
    CHECK(fx_range_dtype(FX_DTYPE_I64, nan_, nan_, 2), (2), 0, 0, 0);
    CHECK(fx_range_dtype(FX_DTYPE_I64, 1e300, 0, 1), (1), 0, 0x1p63);
    CHECK(fx_range_dtype(FX_DTYPE_I64, -1e300, 0, 1), (1), 0, -0x1p63);
    check_error(fx_range_dtype(FX_DTYPE_F32, 0, 1, -1), FX_STATUS_ARGUMENT,
                "size -1 of axis 0 is negative");
}

static void axes(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = COUNTING(2, 3);
    CHECK(fx_transpose(x), (3, 2), 0, 1, 3, 5, 2, 4, 6);
    CHECK(fx_transpose(fx_vector(1, 2)), (1, 2), 0, 1, 2);
    CHECK(fx_transpose(COUNTING(2, 2, 2)), (2, 2, 2), 0, 1, 3, 2, 4, 5, 7, 6, 8);
    CHECK(fx_flatten(COUNTING(1, 2, 3)), (2, 3), 0, 1, 2, 3, 4, 5, 6);
    check_dims("flatten", fx_flatten(fx_zeros(4, 3, 2, 0)), 2, (const int64_t[]){24, 0});
    check_dims("flatten", fx_flatten(fx_zeros(0, 3, 5)), 2, (const int64_t[]){0, 5});
    check_dims("flatten", fx_flatten(fx_vector(1, 2)), 2, (const int64_t[]){1, 2});
    CHECK(fx_vec(x), (6), 0, 1, 2, 3, 4, 5, 6);
    CHECK(fx_vec(scalar32(7)), (1), 0, 7);
    check_dims("unsqueeze", fx_unsqueeze(x, 0), 3, (const int64_t[]){1, 2, 3});
    check_dims("unsqueeze", fx_unsqueeze(x, 1), 3, (const int64_t[]){2, 1, 3});
    check_dims("unsqueeze", fx_unsqueeze(x, 2), 3, (const int64_t[]){2, 3, 1});
    check_dims("squeeze", fx_squeeze(fx_zeros(1, 2, 1, 3), FX_AXES(0, 2)), 2,
               (const int64_t[]){2, 3});
    check_dims("squeeze", fx_squeeze(fx_zeros(1, 1), FX_AXES(0, 1)), 0, NULL);
    check_error(fx_unsqueeze(x, 3), FX_STATUS_ARGUMENT, "unsqueeze: cannot insert axis 3");
    check_error(fx_squeeze(x, FX_AXES(1)), FX_STATUS_SHAPE, "squeeze: axis 1 of 2×3");
    check_error(fx_squeeze(x, FX_AXES(4)), FX_STATUS_ARGUMENT,
                "squeeze: there is no axis 4: the array has 2 axes (2×3)");
}

static void flips(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = COUNTING(2, 3);
    CHECK(fx_flip(x, FX_AXES(0)), (2, 3), 0, 2, 1, 4, 3, 6, 5);
    CHECK(fx_flip(x, FX_AXES(1)), (2, 3), 0, 5, 6, 3, 4, 1, 2);
    CHECK(fx_flip(x, FX_AXES(0, 1)), (2, 3), 0, 6, 5, 4, 3, 2, 1);
    check_dims("flip", fx_flip(fx_zeros(0, 2), FX_AXES(0)), 2, (const int64_t[]){0, 2});
    check_error(fx_flip(x, FX_AXES(2)), FX_STATUS_ARGUMENT,
                "flip: there is no axis 2: the array has 2 axes (2×3)");
}

static void paddings(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2, 3, 4);
    CHECK(fx_pad_reflect(x, 0, 2, 3), (9), 0, 3, 2, 1, 2, 3, 4, 3, 2, 1);
    CHECK(fx_pad_symmetric(x, 0, 2, 4), (10), 0, 2, 1, 1, 2, 3, 4, 4, 3, 2, 1);
    CHECK(fx_pad_circular(x, 0, 1, 2), (7), 0, 4, 1, 2, 3, 4, 1, 2);
    CHECK(fx_pad_repeat(x, 0, 2, 1), (7), 0, 1, 1, 1, 2, 3, 4, 4);
    CHECK(fx_pad_repeat(x, 0, 0, 5), (9), 0, 1, 2, 3, 4, 4, 4, 4, 4, 4);
    CHECK(fx_pad_reflect(COUNTING(2, 3), 1, 1, 0), (2, 4), 0, 3, 4, 1, 2, 3, 4, 5, 6);
    CHECK(fx_pad_circular(x, 0, 0, 0), (4), 0, 1, 2, 3, 4);
    check_error(fx_pad_reflect(x, 0, 4, 0), FX_STATUS_ARGUMENT, "pad_reflect: 4 and 0 elements");
    check_error(fx_pad_symmetric(x, 0, 0, 5), FX_STATUS_ARGUMENT, "pad_symmetric");
    check_error(fx_pad_circular(x, 0, 5, 0), FX_STATUS_ARGUMENT, "pad_circular");
    check_error(fx_pad_repeat(x, 0, -1, 0), FX_STATUS_ARGUMENT, "pad_repeat: counts of -1 and 0");
    check_error(fx_pad_repeat(fx_zeros(0), 0, 1, 0), FX_STATUS_ARGUMENT, "pad_repeat");
    check_error(fx_pad_reflect(fx_zeros(0), 0, 1, 0), FX_STATUS_ARGUMENT, "pad_reflect");
    check_error(fx_pad_reflect(x, 1, 1, 1), FX_STATUS_ARGUMENT,
                "pad_reflect: there is no axis 1: the array has 1 axis (");
}

static void repeats(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = COUNTING(2, 2);
    CHECK(fx_repeat(x, 2), (4, 2), 0, 1, 2, 1, 2, 3, 4, 3, 4);
    CHECK(fx_repeat(x, 1, 2), (2, 4), 0, 1, 2, 3, 4, 1, 2, 3, 4);
    CHECK(fx_repeat(fx_vector(1, 2), 2, 2), (4, 2), 0, 1, 2, 1, 2, 1, 2, 1, 2);
    CHECK(fx_repeat(scalar32(5), 3), (3), 0, 5, 5, 5);
    CHECK(fx_repeat_inner(x, 0, 2), (4, 2), 0, 1, 1, 2, 2, 3, 3, 4, 4);
    CHECK(fx_repeat_inner(x, 1, 2), (2, 4), 0, 1, 2, 1, 2, 3, 4, 3, 4);
    check_dims("repeat", fx_repeat(x, 0), 2, (const int64_t[]){0, 2});
    check_dims("repeat", fx_repeat(fx_zeros(0, 2), 3), 2, (const int64_t[]){0, 2});
    check_dims("8 axes", fx_repeat(fx_zeros(1, 1, 1, 1, 1, 1, 1, 2), 1, 2, 1, 1, 1, 1, 1, 3), 8,
               (const int64_t[]){1, 2, 1, 1, 1, 1, 1, 6});
    check_error(fx_repeat(x, -1), FX_STATUS_ARGUMENT,
                "repeat: the count is -1, expected at least 0");
    check_error(fx_repeat(x, INT64_MAX / 2), FX_STATUS_ARGUMENT, "repeat");
    check_error(fx_repeat_inner(x, 2, 2), FX_STATUS_ARGUMENT,
                "repeat_inner: there is no axis 2: the array has 2 axes (");
}

static void stacks(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = fx_vector(1, 2), *b = fx_vector(3, 4), *c = fx_vector(5, 6);
    CHECK(fx_stack(1, a, b, c), (2, 3), 0, 1, 2, 3, 4, 5, 6);
    CHECK(fx_stack(0, a, b, c), (3, 2), 0, 1, 3, 5, 2, 4, 6);
    CHECK(fx_stack(0, scalar32(1), scalar32(2)), (2), 0, 1, 2);
    CHECK(fx_stack(0, a), (1, 2), 0, 1, 2);
    check_error(fx_stack(0, a, fx_vector(1, 2, 3)), FX_STATUS_SHAPE,
                "stack: sizes differ: 2 and 3");
    check_error(fx_stack(2, a, b), FX_STATUS_ARGUMENT, "stack: cannot insert axis 2");
    check_error(fxi_stack(0, 0, NULL), FX_STATUS_ARGUMENT,
                "stack: needs at least one array, got 0");
}

static void triangles(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = COUNTING(3, 3);
    CHECK(fx_tril(x, 0), (3, 3), 0, 1, 2, 3, 0, 5, 6, 0, 0, 9);
    CHECK(fx_tril(x, -1), (3, 3), 0, 0, 2, 3, 0, 0, 6, 0, 0, 0);
    CHECK(fx_tril(x, 1), (3, 3), 0, 1, 2, 3, 4, 5, 6, 0, 8, 9);
    CHECK(fx_triu(x, 0), (3, 3), 0, 1, 0, 0, 4, 5, 0, 7, 8, 9);
    CHECK(fx_triu(x, 1), (3, 3), 0, 0, 0, 0, 4, 0, 0, 7, 8, 0);
    CHECK(fx_triu(COUNTING(2, 3), -1), (2, 3), 0, 1, 2, 3, 4, 5, 6);
    CHECK(fx_tril(COUNTING(2, 1, 2), 0), (2, 1, 2), 0, 1, 2, 3, 4);
    CHECK(fx_tril(fx_full(NAN, 2, 2), 0), (2, 2), 0, nan_, nan_, 0, nan_);
    fx_array *i = fx_cast(x, FX_DTYPE_I32);
    assert_int_equal(fx_eltype(fx_triu(i, 0)), FX_DTYPE_I32);
    check_error(fx_tril(fx_vector(1), 0), FX_STATUS_SHAPE, "tril: takes a matrix, got 1");
}

static void one_hot(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *labels = INDICES(2, 0, 9, -1);
    CHECK(fx_onehot(labels, 3), (3, 4), 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    assert_int_equal(fx_eltype(fx_onehot(labels, 3)), FX_DTYPE_BOOL);
    CHECK(fx_onehotbatch(INDICES(1, 0), 2), (2, 2), 0, 0, 1, 1, 0);
    const uint8_t byte = 1;
    CHECK(fx_onehotbatch(fxi_from(FX_DTYPE_U8, &byte, 0, NULL), 3), (3), 0, 0, 1, 0);
    check_dims("onehot", fx_onehot(fx_reshape(INDICES(0, 1, 2, 3), 2, 2), 5), 3,
               (const int64_t[]){5, 2, 2});
    check_dims("onehotbatch", fx_onehotbatch(fx_full_dtype(FX_DTYPE_I64, 0, 0), 5), 2,
               (const int64_t[]){5, 0});
    check_error(fx_onehotbatch(labels, 3), FX_STATUS_ARGUMENT,
                "onehotbatch: Value 9 is not in labels 0 … 2");
    check_error(fx_onehotbatch(INDICES(-1), 3), FX_STATUS_ARGUMENT, "Value -1 is not in labels");
    check_error(fx_onehotbatch(INDICES(3), 3), FX_STATUS_ARGUMENT, "Value 3 is not in labels");
    check_error(fx_onehotbatch(fx_vector(1), 3), FX_STATUS_DTYPE,
                "onehotbatch: labels must be integers, got Float32");
    check_error(fx_onehotbatch(INDICES(0, 1, 0, 1, 7), 2), FX_STATUS_ARGUMENT, "Value 7");
    CHECK(fx_onehotbatch(INDICES(0, 1, 0, 1), 2), (2, 4), 0, 1, 0, 0, 1, 1, 0, 0, 1);
    check_error(fx_onehot(fx_vector(1), 3), FX_STATUS_DTYPE,
                "onehot: labels must be integers, got Float32");
    CHECK(fx_onecold(fx_onehot(INDICES(2, 0, 1), 3)), (3), 0, 2, 0, 1);
}

static void indexing_by_element(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = COUNTING(2, 3);
    fx_array *rows = fx_reshape(INDICES(1, 0, 0, 0, 1, 1), 2, 3),
             *columns = fx_reshape(INDICES(2, 0, 0, 1), 2, 2);
    CHECK(fx_gather_elements(x, rows, 0), (2, 3), 0, 2, 1, 3, 3, 6, 6);
    CHECK(fx_gather_elements(x, columns, 1), (2, 2), 0, 5, 2, 1, 4);
    CHECK(fx_gather_elements(x, fx_cast(columns, FX_DTYPE_I32), 1), (2, 2), 0, 5, 2, 1, 4);
    fx_array *src = fx_reshape(fx_vector(10, 20, 30, 40), 2, 2), *g[2];
    fx_array *placed = fx_scatter_elements(x, columns, src, 1);
    CHECK(placed, (2, 3), 0, 30, 20, 3, 40, 10, 6);
    fx_gradient_of(fx_sum(fx_mul(placed, COUNTING(2, 3))), (fx_array *const[]){x, src}, 2, g);
    CHECK(g[0], (2, 3), 0, 0, 0, 3, 0, 0, 6);
    CHECK(g[1], (2, 2), 0, 5, 2, 1, 4);
    fx_array *truth = fx_gt(x, 0);
    CHECK(fx_scatter_elements(truth, columns, fx_lt(src, 25), 1), (2, 3), 0, 0, 1, 1, 0, 1, 1);
    /* an index outside its axis is an error even where a linear index would hit another column */
    fx_array *far = fx_gather_elements(x, fx_reshape(INDICES(2, 0, 0), 1, 3), 0);
    assert_int_equal(fx_eval(far), FX_STATUS_ARGUMENT);
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    far = fx_gather_elements(x, fx_reshape(INDICES(0, -1, 0), 1, 3), 0);
    assert_int_equal(fx_eval(far), FX_STATUS_ARGUMENT);
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    check_error(fx_gather_elements(x, INDICES(0), 0), FX_STATUS_SHAPE,
                "gather_elements: indices 1 do not match 2×3 along axis 0; "
                "pass fx_unsqueeze(indices, 0)");
    check_error(fx_gather_elements(x, INDICES(0, 1), 1), FX_STATUS_SHAPE,
                "gather_elements: indices 2 do not match 2×3 along axis 1; "
                "pass fx_unsqueeze(indices, 1)");
    fx_array *one_of_each = fx_gather_elements(x, fx_unsqueeze(INDICES(0, 1), 1), 1);
    CHECK(one_of_each, (2, 1), 0, 1, 4);
    fx_gather_elements(x, INDICES(0, 1, 0), 1); /* no index for each row */
    assert_null(strstr(fx_error_take().message, "unsqueeze"));
    check_error(fx_gather_elements(x, x, 0), FX_STATUS_DTYPE,
                "gather_elements: indices must be integers");
    check_error(fx_gather_elements(x, rows, 2), FX_STATUS_ARGUMENT,
                "gather_elements: there is no axis 2");
    check_error(fx_scatter_elements(x, rows, src, 0), FX_STATUS_SHAPE,
                "scatter_elements: source 2×2 and indices 2×3");
}

static void scatters(void **state)
{
    (void)state;
    FX_SCOPE;
    const double inf = (double)INFINITY;
    fx_array *src = COUNTING(2, 3), *idx = INDICES(3, 0, 3), *g = NULL;
    CHECK(fx_scatter(FX_REDUCE_SUM, src, idx, 1, 4), (2, 4), 0, 3, 4, 0, 0, 0, 0, 6, 8);
    CHECK(fx_scatter(FX_REDUCE_MEAN, src, idx, 1, 4), (2, 4), 0, 3, 4, 0, 0, 0, 0, 3, 4);
    CHECK(fx_scatter(FX_REDUCE_MAX, src, idx, 1, 4), (2, 4), 0, 3, 4, -inf, -inf, -inf, -inf, 5, 6);
    CHECK(fx_scatter(FX_REDUCE_MIN, src, idx, 1, 4), (2, 4), 0, 3, 4, inf, inf, inf, inf, 1, 2);
    CHECK(fx_scatter(FX_REDUCE_PROD, src, idx, 1, 4), (2, 4), 0, 3, 4, 1, 1, 1, 1, 5, 12);
    CHECK(fx_scatter(FX_REDUCE_MEAN, fx_transpose(src), idx, 0, 4), (4, 2), 0, 3, 0, 0, 3, 4, 0, 0,
          4);
    CHECK(fx_scatter(FX_REDUCE_MEAN, fx_cast(src, FX_DTYPE_I32), idx, 1, 4), (2, 4), 0, 3, 4, 0, 0,
          0, 0, 3, 4);
    assert_int_equal(fx_eltype(fx_scatter(FX_REDUCE_MEAN, fx_cast(src, FX_DTYPE_F16), idx, 1, 4)),
                     FX_DTYPE_F16);
    /* a BFloat16 sum or count would stall at 256 */
    fx_array *many = fx_scatter(FX_REDUCE_MEAN, fx_full_dtype(FX_DTYPE_BF16, 3, 1000),
                                fx_full_dtype(FX_DTYPE_I32, 0, 1000), 0, 1);
    CHECK(many, (1), 0, 3);
    fx_gradient_of(fx_sum(fx_mul(fx_scatter(FX_REDUCE_MEAN, src, idx, 1, 4), COUNTING(2, 4))), &src,
                   1, &g);
    CHECK(g, (2, 3), 0, 3.5, 4, 1, 2, 3.5, 4);
    check_error(fx_scatter((fx_reduce)9, src, idx, 1, 4), FX_STATUS_ARGUMENT,
                "scatter: expected FX_REDUCE_SUM, MAX, MIN, PROD or MEAN, got 9");
    assert_int_equal(fx_array_status(fx_scatter(FX_REDUCE_MEAN, src, idx, 0, 4)), FX_STATUS_SHAPE);
    fx_error_take();
}

/* A 3×3 image of 1 … 9, window 3×3, padded by one: 4, 6 or 9 of the nine elements are inside. */
static void mean_pool_at_the_border(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = COUNTING(3, 3, 1, 1);
    const fx_dims window = FX_DIMS(3, 3), one = FX_DIMS(1, 1);
    fx_array *whole_window = fx_pool_mean(x, window, .pad = one, .stride = one);
    CHECK(whole_window, (3, 3, 1, 1), 1e-6, 12. / 9, 21. / 9, 16. / 9, 27. / 9, 45. / 9, 33. / 9,
          24. / 9, 39. / 9, 28. / 9);
    fx_array *inside = fx_pool_mean(x, window, .pad = one, .stride = one, .exclude_pad = true);
    CHECK(inside, (3, 3, 1, 1), 1e-6, 12. / 4, 21. / 6, 16. / 4, 27. / 6, 45. / 9, 33. / 6, 24. / 4,
          39. / 6, 28. / 4);
    fx_array *uneven = fx_pool_mean(COUNTING(3, 1, 1), FX_DIMS(2), .pad = FX_DIMS(1, 0),
                                    .stride = FX_DIMS(2), .exclude_pad = true);
    CHECK(uneven, (2, 1, 1), 1e-6, 1, 2.5);
    CHECK(fx_pool_mean(COUNTING(4, 1, 1), FX_DIMS(2), .exclude_pad = true), (2, 1, 1), 0, 1.5, 3.5);
    fx_array *half = fx_pool_mean(fx_cast(x, FX_DTYPE_F16), window, .pad = one, .stride = one,
                                  .exclude_pad = true);
    assert_int_equal(fx_eltype(half), FX_DTYPE_F16);
    assert_true(fx_is_error(fx_pool_mean(fx_vector(1), window, .pad = one, .exclude_pad = true)));
    assert_int_equal(fx_error_take().status, FX_STATUS_SHAPE);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static fx_array *transpose3(fx_array *x)
{
    return fx_square(fx_transpose(x));
}
static fx_array *flip01(fx_array *x)
{
    return fx_square(fx_flip(x, FX_AXES(0, 1)));
}
static fx_array *reflect(fx_array *x)
{
    return fx_square(fx_pad_reflect(x, 0, 2, 1));
}
static fx_array *symmetric(fx_array *x)
{
    return fx_square(fx_pad_symmetric(x, 1, 2, 3));
}
static fx_array *circular(fx_array *x)
{
    return fx_square(fx_pad_circular(x, 0, 3, 4));
}
static fx_array *edges(fx_array *x)
{
    return fx_square(fx_pad_repeat(x, 1, 2, 1));
}
static fx_array *tiled(fx_array *x)
{
    return fx_square(fx_repeat(x, 2, 3));
}
static fx_array *each(fx_array *x)
{
    return fx_square(fx_repeat_inner(x, 1, 3));
}
static fx_array *stacked(fx_array *x)
{
    return fx_square(fx_stack(1, x, fx_mul(x, x)));
}
static fx_array *lower(fx_array *x)
{
    return fx_square(fx_tril(x, 0));
}
static fx_array *pooled(fx_array *x)
{
    fx_array *image = fx_unsqueeze(fx_unsqueeze(fx_square(x), 2), 3);
    return fx_pool_mean(image, FX_DIMS(3, 2), .pad = FX_DIMS(1, 1), .stride = FX_DIMS(1, 1),
                        .exclude_pad = true);
}
static fx_array *picked(fx_array *x)
{
    return fx_gather_elements(fx_square(x), fx_reshape(INDICES(2, 2, 0, 1, 0, 1, 1, 2), 4, 2), 1);
}

static void gradients_match_central_differences(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unary_fn f;
    } cases[] = {{"transpose", transpose3},  {"flip", flip01},
                 {"pad_reflect", reflect},   {"pad_symmetric", symmetric},
                 {"pad_circular", circular}, {"pad_repeat", edges},
                 {"repeat", tiled},          {"repeat_inner", each},
                 {"stack", stacked},         {"tril", lower},
                 {"pool_mean", pooled},      {"gather_elements", picked}};
    static const double at[] = {0.3, -1.2, 0.7, 2.1, -0.4, 1.6, 0.9, -0.8, 1.1, 0.2, -1.7, 0.5};
    const int64_t sizes[] = {4, 3};
    for (size_t k = 0; k < COUNT(cases); k++)
        check_gradients(cases[k].name, cases[k].f, at, 2, sizes, 2e-8);
}

/* Operations that would give an array of nine axes from arrays of eight. */
static void nine_axes_are_refused(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(2, 1, 1, 1, 1, 1, 1, 1), *i = fx_cast(fx_sub(x, 1), FX_DTYPE_I64);
    fx_array *zero = fx_sum(i);
    void *const results[] = {fx_reshape(x, 2, 1, 1, 1, 1, 1, 1, 1, 1),
                             fx_expand(x, 2, 1, 1, 1, 1, 1, 1, 1, 2),
                             fx_repeat(x, 1, 1, 1, 1, 1, 1, 1, 1, 2),
                             fx_unsqueeze(x, 8),
                             fx_stack(8, x, x),
                             fx_onehot(i, 2),
                             fx_onehotbatch(i, 2),
                             fx_gather(fx_ones(2, 3), i, 0),
                             fx_gather(x, fx_reshape(i, 2, 1), 0),
                             fx_scatter(FX_REDUCE_SUM, x, zero, 0, 2),
                             fx_scatter(FX_REDUCE_MAX, x, zero, 8, 2),
                             fx_scatter(FX_REDUCE_MEAN, x, zero, 0, 2),
                             fx_scatter(FX_REDUCE_PROD, fx_gt(x, 0), zero, 0, 2),
                             fx_batchobs(fx_tuple(x, x)),
                             fx_call(fx_embedding(3, 2), i),
                             fx_dot_product_attention_scores(x, x)};
    for (size_t k = 0; k < COUNT(results); k++) {
        const fx_error e = fx_error_take();
        assert_true(fx_is_error(results[k]));
        assert_true(k > 0 || e.status != FX_OK);
    }
}

static void errors_pass(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *bad = fx_error_array(FX_STATUS_MEMORY), *x = fx_vector(1, 2);
    fx_array *const results[] = {fx_transpose(bad),
                                 fx_flatten(bad),
                                 fx_vec(bad),
                                 fx_unsqueeze(bad, 0),
                                 fx_squeeze(bad, FX_AXES(0)),
                                 fx_flip(bad, FX_AXES(0)),
                                 fx_pad_reflect(bad, 0, 1, 1),
                                 fx_pad_repeat(bad, 0, 1, 1),
                                 fx_repeat(bad, 2),
                                 fx_repeat_inner(bad, 0, 2),
                                 fx_stack(0, x, bad),
                                 fx_tril(bad, 0),
                                 fx_onehot(bad, 2),
                                 fx_onehotbatch(bad, 2),
                                 fx_onecold(bad),
                                 fx_gather_elements(x, bad, 0),
                                 fx_scatter(FX_REDUCE_MEAN, bad, x, 0, 2),
                                 fx_scatter_elements(x, INDICES(0), bad, 0)};
    for (size_t i = 0; i < COUNT(results); i++)
        assert_int_equal(fx_array_status(results[i]), FX_STATUS_MEMORY);
    assert_int_equal(fx_error_status(), FX_OK);
    check_error(fx_flip(NULL, FX_AXES(0)), FX_STATUS_ARGUMENT, "flip: an argument is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),
        cmocka_unit_test(axes),
        cmocka_unit_test(flips),
        cmocka_unit_test(paddings),
        cmocka_unit_test(repeats),
        cmocka_unit_test(stacks),
        cmocka_unit_test(triangles),
        cmocka_unit_test(one_hot),
        cmocka_unit_test(indexing_by_element),
        cmocka_unit_test(scatters),
        cmocka_unit_test(mean_pool_at_the_border),
        cmocka_unit_test(gradients_match_central_differences),
        cmocka_unit_test(nine_axes_are_refused),
        cmocka_unit_test(errors_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
