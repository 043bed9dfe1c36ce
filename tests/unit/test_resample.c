/* test_resample.c: resizing, pixel shuffle, unfold, fold, grid sampling: numbers by hand, gradients
 * of first and second order against central differences, unfold against convolution, refusals.
 */
#include "composite_check.h"

#include <cflux.h>

/* An array of these sizes with 0, 1, 2, … . */
static fx_array *counting(int n, const int64_t *sizes)
{
    int64_t count = 1;
    for (int i = 0; i < n; i++)
        count *= sizes[i];
    return fxi_reshape(fx_range(0, 1, count), n, sizes);
}
#define COUNTING(...)                                                                              \
    counting((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

/* ---- resize ---------------------------------------------------------------------------------- */

static void repeats_the_nearest(void **state)
{
    FX_SCOPE;
    (void)state;
    CHECK(fx_resize(COUNTING(3, 1, 1), .scale = FX_DIMS(2)), (6, 1, 1), 0, 0, 0, 1, 1, 2, 2);
    CHECK(fx_resize(COUNTING(2, 2, 1, 1), .scale = FX_DIMS(1, 2)), (2, 4, 1, 1), 0, 0, 1, 0, 1, 2,
          3, 2, 3);
    CHECK(fx_resize(COUNTING(2, 1, 1, 1), .size = FX_DIMS(2, 3)), (2, 3, 1, 1), 0, 0, 1, 0, 1, 0,
          1);
    CHECK(fx_resize(COUNTING(1, 1, 2, 1, 1), .scale = FX_DIMS(2)), (2, 2, 4, 1, 1), 0, 0, 0, 0, 0,
          0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
}

/* With aligned corners 0 1 2 at 5 positions is 0 ½ 1 1½ 2. Without, the positions of 4 outputs over
 * 2 inputs are −¼ ¼ ¾ 1¼, of which the outer two are moved to 0 and 1. */
static void interpolates(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *x = COUNTING(3, 1, 1);
    CHECK(fx_resize(x, FX_RESIZE_MODE_LINEAR, .size = FX_DIMS(5)), (5, 1, 1), 1e-7, 0, 0.5, 1, 1.5,
          2);
    CHECK(fx_resize(x, FX_RESIZE_MODE_LINEAR, .size = FX_DIMS(2)), (2, 1, 1), 0, 0, 2);
    CHECK(fx_resize(x, FX_RESIZE_MODE_LINEAR, .size = FX_DIMS(1)), (1, 1, 1), 0, 0);
    fx_array *two = COUNTING(2, 1, 1);
    CHECK(fx_resize(two, FX_RESIZE_MODE_LINEAR, .scale = FX_DIMS(2), .align_corners = false),
          (4, 1, 1), 1e-7, 0, 0.25, 0.75, 1);
    CHECK(fx_resize(COUNTING(4, 1, 1), FX_RESIZE_MODE_LINEAR, .size = FX_DIMS(2),
                    .align_corners = false),
          (2, 1, 1), 1e-7, 0.5, 2.5);
    CHECK(fx_resize(COUNTING(2, 2, 1, 1), FX_RESIZE_MODE_LINEAR, .size = FX_DIMS(3, 3)),
          (3, 3, 1, 1), 1e-7, 0, 0.5, 1, 1, 1.5, 2, 2, 2.5, 3);
    fx_array *f16 = fx_resize(fx_cast(x, FX_DTYPE_F16), FX_RESIZE_MODE_LINEAR, .size = FX_DIMS(5));
    assert_int_equal(fx_eltype(f16), FX_DTYPE_F16);
    CHECK(f16, (5, 1, 1), 1e-3, 0, 0.5, 1, 1.5, 2);
    CHECK(fx_resize(fx_cast(x, FX_DTYPE_I64), FX_RESIZE_MODE_LINEAR, .size = FX_DIMS(5)), (5, 1, 1),
          1e-7, 0, 0.5, 1, 1.5, 2);
}

/* Sizes that are not multiples, and factors that are not whole. */
static void any_sizes(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *x = COUNTING(4, 1, 1);
    CHECK(fx_resize(x, .size = FX_DIMS(5)), (5, 1, 1), 0, 0, 0, 1, 2, 3); /* ⌊i·4/5⌋ */
    CHECK(fx_resize(x, .size = FX_DIMS(3)), (3, 1, 1), 0, 0, 1, 2);       /* ⌊i·4/3⌋ */
    CHECK(fx_resize(fx_cast(x, FX_DTYPE_U8), .factors = FX_FRACTIONS(1.5)), (6, 1, 1), 0, 0, 0, 1,
          2, 2, 3);
    CHECK(fx_resize(x, FX_RESIZE_MODE_LINEAR, .factors = FX_FRACTIONS(0.6)), (2, 1, 1), 0, 0, 3);
    CHECK(fx_resize(x, FX_RESIZE_MODE_LINEAR, .factors = FX_FRACTIONS(1.9)), (7, 1, 1), 1e-6, 0,
          0.5, 1, 1.5, 2, 2.5, 3);
    assert_int_equal(fx_length(fx_resize(x, .factors = FX_FRACTIONS(0.1))), 0);
    /* Keys' kernel halfway: −3/32, 19/32, 19/32, −3/32; the edges are repeated */
    CHECK(fx_resize(x, FX_RESIZE_MODE_CUBIC, .size = FX_DIMS(7)), (7, 1, 1), 1e-6, 0,
          (19 - 3 * 2) / 32.0, 1, 1.5, 2, (19 * 5 - 3 * (1 + 3)) / 32.0, 3);
}

static void refuses_sizes(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *x = COUNTING(3, 1, 1);
    static const char *const one = "expects exactly one of .scale, .size and .factors, got ";
    check_error(fx_resize(x, FX_RESIZE_MODE_LINEAR), FX_STATUS_ARGUMENT, one);
    check_error(fx_resize(x, .scale = FX_DIMS(2), .size = FX_DIMS(2)), FX_STATUS_ARGUMENT, one);
    check_error(fx_resize(x, .scale = FX_DIMS(2), .factors = FX_FRACTIONS(2)), FX_STATUS_ARGUMENT,
                one);
    check_error(fx_resize(x, .factors = FX_FRACTIONS(1.5, 2)), FX_STATUS_ARGUMENT,
                "factors has 2 numbers for 1 spatial axes");
    check_error(fx_resize(x, .factors = FX_FRACTIONS(-1.5)), FX_STATUS_ARGUMENT,
                "factor is -1.5, expected a number above 0");
    check_error(fx_resize(x, .factors = FX_FRACTIONS((double)NAN)), FX_STATUS_ARGUMENT,
                "factor is nan, expected a number above 0");
    check_error(fx_resize(fx_zeros(0, 1, 1), .size = FX_DIMS(2)), FX_STATUS_SHAPE,
                "axis 0 of x has no elements");
    check_error(fx_resize(x, .scale = FX_DIMS(0)), FX_STATUS_ARGUMENT,
                "scale is 0, expected 1 to 2147483647");
    check_error(fx_resize(x, .scale = FX_DIMS(2, 2)), FX_STATUS_ARGUMENT,
                "scale has 2 numbers for 1 spatial axes");
    check_error(fx_resize(fx_ones(2, 2), .scale = FX_DIMS(2)), FX_STATUS_SHAPE,
                "takes 1 to 3 spatial axes");
    check_error(fx_resize(x, (fx_resize_mode)7, .scale = FX_DIMS(2)), FX_STATUS_ARGUMENT,
                "mode 7 is not supported");
    check_error(fx_resize(fx_ones(0, 1, 1), FX_RESIZE_MODE_LINEAR, .size = FX_DIMS(2)),
                FX_STATUS_SHAPE, "axis 0 of x has no elements");
    check_error(fx_resize(NULL, .scale = FX_DIMS(2)), FX_STATUS_ARGUMENT, "NULL");
}

static void resizes_nothing_to_nothing(void **state)
{
    static const fx_resize_mode modes[] = {FX_RESIZE_MODE_NEAREST, FX_RESIZE_MODE_LINEAR,
                                           FX_RESIZE_MODE_CUBIC};
    FX_SCOPE;
    (void)state;
    for (size_t i = 0; i < COUNT(modes); i++)
        check_dims("resize", fx_resize(fx_ones(0, 3, 2, 1), modes[i], .scale = FX_DIMS(2)), 4,
                   (const int64_t[]){0, 6, 2, 1});
}

/* ---- pixel shuffle --------------------------------------------------------------------------- */

static void shuffles_pixels(void **state)
{
    FX_SCOPE;
    (void)state;
    /* one axis: elements of channel 0 and 1 alternate */
    CHECK(fx_pixel_shuffle(COUNTING(2, 4, 1), 2), (4, 2, 1), 0, 0, 2, 1, 3, 4, 6, 5, 7);
    /* two axes, one pixel: channels 0 … 3 become the pixels in their order */
    CHECK(fx_pixel_shuffle(COUNTING(1, 1, 4, 1), 2), (2, 2, 1, 1), 0, 0, 1, 2, 3);
    check_dims("3-D", fx_pixel_shuffle(fx_ones(2, 3, 1, 16, 2), 2), 5,
               (const int64_t[]){4, 6, 2, 2, 2});
    check_error(fx_pixel_shuffle(fx_ones(2, 2, 6, 1), 2), FX_STATUS_SHAPE,
                "expected channel dimension to be divisible by r^d = 4, where d=2 is the number of "
                "spatial dimensions. Given r=2, input size(x) = 2×2×6×1");
    check_error(fx_pixel_shuffle(fx_ones(2, 2, 6, 1), 0), FX_STATUS_ARGUMENT,
                "the factor is 0, expected at least 1");
    check_error(fx_pixel_shuffle(fx_ones(2, 2, 6, 1), (int64_t)1 << 32), FX_STATUS_ARGUMENT,
                "the factor is 4294967296, which is too large");
    check_error(fx_pixel_shuffle(fx_ones(2, 2), 1), FX_STATUS_SHAPE, "takes 1 to 3 spatial axes");
}

/* ---- patches --------------------------------------------------------------------------------- */

static void takes_patches(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *x = fx_reshape(fx_vector(1, 2, 3, 4), 4, 1, 1);
    CHECK(fx_unfold(x, FX_DIMS(2), .flipped = true), (3, 2, 1), 0, 1, 2, 3, 2, 3, 4);
    CHECK(fx_unfold(x, FX_DIMS(2), .flipped = false), (3, 2, 1), 0, 2, 3, 4, 1, 2, 3);
    CHECK(fx_unfold(x, FX_DIMS(2), .flipped = true, .stride = FX_DIMS(2), .pad = FX_DIMS(1, 0)),
          (2, 2, 1), 0, 0, 2, 1, 3);
    CHECK(fx_unfold(x, FX_DIMS(2), .flipped = true, .dilation = FX_DIMS(2)), (2, 2, 1), 0, 1, 2, 3,
          4);
    CHECK(fx_fold(fx_ones(3, 2, 1), FX_DIMS(4), FX_DIMS(2)), (4, 1, 1), 0, 1, 2, 2, 1);
    CHECK(fx_fold(fx_reshape(fx_vector(1, 2, 3, 10, 20, 30), 3, 2, 1), FX_DIMS(4), FX_DIMS(2),
                  .flipped = true),
          (4, 1, 1), 0, 1, 12, 23, 30);
    CHECK(fx_fold(fx_ones(5, 2, 1), FX_DIMS(4), FX_DIMS(2), .pad = FX_DIMS(1)), (4, 1, 1), 0, 2, 2,
          2, 2);
}

/* The example in NNlib's documentation of unfold and fold, which has no keyword arguments. */
static void has_the_defaults_of_nnlib(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *x = fx_reshape(fx_vector(100, 2, 3, 40, 5, 6, 700), 7, 1, 1);
    fx_array *y = fx_unfold(x, FX_DIMS(3));
    CHECK(y, (5, 3, 1), 0, 100, 2, 3, 40, 5, 2, 3, 40, 5, 6, 3, 40, 5, 6, 700);
    CHECK(fx_fold(y, FX_DIMS(7), FX_DIMS(3)), (7, 1, 1), 0, 100, 4, 9, 120, 15, 12, 700);
}

/* The product of the patches and the kernel as a matrix is the convolution, for every option. */
static void unfolds_as_convolutions_see(void **state)
{
    (void)state;
    for (int c = 1; c <= 3; c++)
        for (int flipped = 0; flipped < 2; flipped++) {
            FX_SCOPE;
            fx_dims pad = {.n = 2 * c}, k = {.n = c}, stride = {.n = c}, dilation = {.n = c};
            int64_t xs[5], ws[5], rows = 1;
            for (int i = 0; i < c; i++) {
                xs[i] = 5 + i;
                ws[i] = k.v[i] = 2 + i % 2;
                stride.v[i] = 1 + (i + 1) % 2;
                dilation.v[i] = 1 + i % 2;
                pad.v[2 * i] = 1;
                pad.v[2 * i + 1] = i;
                rows *= k.v[i];
            }
            xs[c] = ws[c] = 2;
            xs[c + 1] = 3;
            ws[c + 1] = 4;
            fx_array *x = fxi_randn(FX_DTYPE_F64, c + 2, xs),
                     *w = fxi_randn(FX_DTYPE_F64, c + 2, ws);
            fx_array *y = fx_convolve(x, w, .stride = stride, .pad = pad, .dilation = dilation,
                                      .flipped = flipped);
            fx_array *u = fx_unfold(x, k, .stride = stride, .pad = pad, .dilation = dilation,
                                    .flipped = flipped);
            fx_array *product = fx_batched_mul(u, fx_reshape(w, rows * 2, 4));
            double want[4096], got[4096];
            assert_true(fx_length(y) <= 4096);
            check_read("convolution", y, want, fx_length(y));
            check_read("product", product, got, fx_length(y));
            for (int64_t i = 0; i < fx_length(y); i++)
                check_value("product", i, got[i], want[i], 1e-12, 1e-12);
        }
}

static void refuses_patches(void **state)
{
    FX_SCOPE;
    (void)state;
    check_error(fx_unfold(fx_ones(2, 1, 1), FX_DIMS(3)), FX_STATUS_SHAPE,
                "a patch of 3 does not fit into 2");
    check_error(fx_unfold(fx_ones(2, 1), FX_DIMS(1)), FX_STATUS_SHAPE, "takes 1 to 3 spatial axes");
    check_error(fx_unfold(fx_ones(2, 2, 1, 1), FX_DIMS(1, 1, 1)), FX_STATUS_ARGUMENT,
                "kernel has 3");
    check_error(fx_fold(fx_ones(4, 2, 1), FX_DIMS(4), FX_DIMS(2)), FX_STATUS_SHAPE,
                "expects (3 windows)×(2 elements of a patch, times channels)×batch, got 4×2×1");
    check_error(fx_fold(fx_ones(3, 3, 1), FX_DIMS(4), FX_DIMS(2)), FX_STATUS_SHAPE, "got 3×3×1");
    check_error(fx_fold(fx_ones(3, 2, 1), FX_DIMS(INT64_MAX), FX_DIMS(2), .pad = FX_DIMS(1)),
                FX_STATUS_SHAPE, "windows)×(2 elements");
    check_error(fx_fold(fx_ones(3, 3, 1), FX_DIMS(), FX_DIMS(2)), FX_STATUS_SHAPE, "got 0");
}

/* ---- grid sampling --------------------------------------------------------------------------- */

static fx_array *at(const double *v, int64_t n)
{
    return fx_reshape(vector64(v, n), 1, -1, 1);
}
#define AT(...)                                                                                    \
    at((double[]){__VA_ARGS__}, (int64_t)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)))

/* x = 1 2 3 has its elements at −1, 0 and 1; beyond them it is 0, or its border. Without aligned
 * corners position 0 is the middle and 1 half an element after the last. */
static void samples(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *x = fx_reshape(fx_vector(1, 2, 3), 3, 1, 1);
    CHECK(fx_grid_sample(x, AT(-1, -0.5, 0, 1)), (4, 1, 1), 1e-6, 1, 1.5, 2, 3);
    CHECK(fx_grid_sample(x, AT(-1.5, 1.5, 3)), (3, 1, 1), 1e-6, 0.5, 1.5, 0);
    CHECK(fx_grid_sample(x, AT(-1.5, 1.5, 3), FX_GRID_PADDING_BORDER), (3, 1, 1), 1e-6, 1, 3, 3);
    CHECK(fx_grid_sample(x, AT(0, 1, -1), .align_corners = false), (3, 1, 1), 1e-6, 2, 1.5, 0.5);
    CHECK(fx_grid_sample(x, AT(-0.6, -0.4, 1.4, 2), .nearest = true), (4, 1, 1), 1e-6, 1, 2, 3, 0);
    /* two axes, two images, two channels: the middle of each is its mean */
    fx_array *y = fx_grid_sample(COUNTING(2, 2, 2, 2), fx_zeros(2, 1, 1, 2));
    CHECK(y, (1, 1, 2, 2), 1e-6, 1.5, 5.5, 9.5, 13.5);
    CHECK(fx_grid_sample(COUNTING(2, 2, 2, 1, 1), fx_zeros(3, 1, 1, 1, 1)), (1, 1, 1, 1, 1), 1e-6,
          3.5);
    /* the first coordinate is that of axis 0 */
    fx_array *corner = fx_reshape(fx_vector(1, -1), 2, 1, 1, 1);
    CHECK(fx_grid_sample(COUNTING(2, 2, 1, 1), corner), (1, 1, 1, 1), 1e-6, 1);
}

/* Outside the image the value is 0 whatever the border holds, and no gradient flows. */
static void samples_beyond_the_border(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *x = fx_reshape(fx_vector(NAN, 2, INFINITY), 3, 1, 1), *grid = AT(-3, 3, 0), *g[2];
    for (int nearest = 0; nearest < 2; nearest++)
        CHECK(fx_grid_sample(x, AT(-3, 3), .nearest = nearest), (2, 1, 1), 0, 0, 0);
    x = fx_reshape(fx_vector(NAN, 2, 3), 3, 1, 1);
    fx_array *y = fx_grid_sample(x, grid);
    assert_int_equal(fx_gradient_of(fx_sum(y), (fx_array *const[]){x, grid}, 2, g), FX_OK);
    CHECK(g[0], (3, 1, 1), 0, 0, 1, 0);
    CHECK(g[1], (1, 3, 1), 0, 0, 0, 1);
    fx_array *none = fx_grid_sample(fx_ones(3, 3, 2, 0), fx_ones(2, 4, 5, 0));
    CHECK(fx_sum(none), (), 0, 0);
    assert_int_equal(fx_size(none, 1), 5);
}

static void refuses_grids(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *x = fx_ones(3, 4, 1, 2);
    check_error(fx_grid_sample(x, fx_zeros(3, 2, 2, 2)), FX_STATUS_SHAPE, "grid is 3×2×2×2");
    check_error(fx_grid_sample(x, fx_zeros(2, 2, 2, 1)), FX_STATUS_SHAPE, "grid is 2×2×2×1");
    check_error(fx_grid_sample(x, fx_zeros(2, 2, 2)), FX_STATUS_SHAPE, "grid is 2×2×2");
    check_error(fx_grid_sample(fx_ones(0, 4, 1, 2), fx_zeros(2, 1, 1, 2)), FX_STATUS_SHAPE,
                "not empty");
    check_error(fx_grid_sample(x, fx_zeros(2, 1, 1, 2), (fx_grid_padding)5), FX_STATUS_ARGUMENT,
                "padding 5 is not supported");
    check_error(fx_grid_sample(x, NULL), FX_STATUS_ARGUMENT, "NULL");
}

/* ---- gradients ------------------------------------------------------------------------------- */

static fx_array *resize_nearest(fx_array *x)
{
    return fx_square(fx_resize(x, .scale = FX_DIMS(2, 3)));
}
static fx_array *resize_linear(fx_array *x)
{
    return fx_square(fx_resize(x, FX_RESIZE_MODE_LINEAR, .size = FX_DIMS(5, 2)));
}
static fx_array *resize_edges(fx_array *x)
{
    return fx_square(
        fx_resize(x, FX_RESIZE_MODE_LINEAR, .size = FX_DIMS(2, 5), .align_corners = false));
}
static fx_array *shuffle(fx_array *x)
{
    return fx_square(fx_pixel_shuffle(fx_reshape(x, 1, 3, 4, 1), 2));
}
static fx_array *unfold(fx_array *x)
{
    return fx_square(fx_unfold(x, FX_DIMS(2, 2), .pad = FX_DIMS(1, 0), .stride = FX_DIMS(1, 2)));
}
static fx_array *fold(fx_array *x)
{
    return fx_square(fx_fold(fx_reshape(x, 3, 4, 1), FX_DIMS(4), FX_DIMS(2)));
}
static fx_array *fixed_grid(void)
{
    return fx_reshape(fx_vector(-1.2f, 0.3f, 0.1f, -0.7f, 0.45f, 1.1f, -0.35f, 0.2f), 2, 2, 2, 1);
}
static fx_array *sample_image(fx_array *x)
{
    return fx_square(fx_grid_sample(x, fixed_grid()));
}
static fx_array *sample_border(fx_array *x)
{
    return fx_square(
        fx_grid_sample(x, fixed_grid(), FX_GRID_PADDING_BORDER, .align_corners = false));
}
static fx_array *sample_nearest(fx_array *x)
{
    return fx_square(fx_grid_sample(x, fixed_grid(), .nearest = true));
}
static fx_array *image(void)
{
    return fx_reshape(
        fx_cast(fx_vector(0.3f, 1, -0.4f, 2, 0.7f, -1, 0.9f, 0.2f, 1.5f, -0.6f, 0.8f, 0.1f),
                FX_DTYPE_F64),
        3, 4, 1, 1);
}
static fx_array *sample_positions(fx_array *grid)
{
    return fx_square(fx_grid_sample(image(), fx_reshape(grid, 2, 3, 2, 1)));
}
static fx_array *sample_clamped(fx_array *grid)
{
    return fx_square(fx_grid_sample(image(), fx_reshape(grid, 2, 3, 2, 1), FX_GRID_PADDING_BORDER));
}

static void have_gradients(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unary_fn f;
    } rows[] = {
        {"resize nearest", resize_nearest},
        {"resize linear", resize_linear},
        {"resize edges", resize_edges},
        {"pixel shuffle", shuffle},
        {"unfold", unfold},
        {"fold", fold},
        {"sample image", sample_image},
        {"sample border", sample_border},
        {"sample nearest", sample_nearest},
        {"sample positions", sample_positions},
        {"sample clamped", sample_clamped},
    };
    const double values[] = {0.31, -0.52, 0.83, 0.14,  -0.25, 0.76,
                             0.47, 1.28,  0.9,  -0.11, 0.62,  -0.73};
    for (int64_t i = 0; i < COUNT(rows); i++)
        check_gradients(rows[i].name, rows[i].f, values, 4, (const int64_t[]){3, 4, 1, 1}, 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeats_the_nearest),
        cmocka_unit_test(interpolates),
        cmocka_unit_test(any_sizes),
        cmocka_unit_test(refuses_sizes),
        cmocka_unit_test(resizes_nothing_to_nothing),
        cmocka_unit_test(shuffles_pixels),
        cmocka_unit_test(takes_patches),
        cmocka_unit_test(has_the_defaults_of_nnlib),
        cmocka_unit_test(unfolds_as_convolutions_see),
        cmocka_unit_test(refuses_patches),
        cmocka_unit_test(samples),
        cmocka_unit_test(samples_beyond_the_border),
        cmocka_unit_test(refuses_grids),
        cmocka_unit_test(have_gradients),
    };
    return cmocka_run_group_tests_name("resample", tests, NULL, NULL);
}
