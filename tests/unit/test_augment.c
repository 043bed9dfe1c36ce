/* test_augment.c: random flips, crops, shifts and noise, on every device.
 *
 * The images carry their positions: element (i, j, c, b) is 1000·b + 100·c + 10·j + i. So each
 * element of a result shows its origin. Many observations must show every possible choice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <string.h>

#include "every_device.h"
#include "refused.h"

enum { W = 5, H = 4, C = 2, N = 64 };

static float at(int i, int j, int c, int b)
{
    return (float)(1000 * b + 100 * c + 10 * j + i);
}

static fx_array *images(void)
{
    static float v[W * H * C * N];
    float *p = v;
    for (int b = 0; b < N; b++)
        for (int c = 0; c < C; c++)
            for (int j = 0; j < H; j++)
                for (int i = 0; i < W; i++)
                    *p++ = at(i, j, c, b);
    return fx_array_to(device, fx_from(FX_DTYPE_F32, v, W, H, C, N));
}

static const float *numbers_of(fx_array *x, int64_t w, int64_t h)
{
    static float v[W * H * C * N];
    assert_ptr_equal(fx_array_device(x), device);
    assert_int_equal(fx_size(x, 0), w);
    assert_int_equal(fx_size(x, 1), h);
    if (fx_read_into(x, v, (size_t)(w * h * C * N) * sizeof *v) != FX_OK)
        fail_msg("%s", fx_error_take().message);
    return v;
}

static bool same(fx_array *a, fx_array *b)
{
    return fx_item(fx_all(fx_eq(a, b))) != 0;
}

static void flips(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(3);
    fx_array *x = images();
    const float *v = numbers_of(fx_random_flip(x, .dims = FX_AXES(0, 1), .always = true), W, H);
    int seen[2][2] = {{0}};
    for (int b = 0; b < N; b++) {
        const int fi = v[b * W * H * C] != at(0, (int)(v[b * W * H * C] / 10) % 10, 0, b);
        const int fj = (int)(v[b * W * H * C] / 10) % 10 != 0;
        seen[fi][fj]++;
        for (int k = 0; k < W * H * C; k++) {
            const int i = k % W, j = k / W % H, c = k / (W * H);
            assert_true(v[b * W * H * C + k] == at(fi ? W - 1 - i : i, fj ? H - 1 - j : j, c, b));
        }
    }
    assert_true(seen[0][0] > 3 && seen[0][1] > 3 && seen[1][0] > 3 && seen[1][1] > 3);
    assert_true(same(fx_random_flip(x, .p = 0, .always = true), x));
    assert_true(same(fx_random_flip(x, .p = 1, .always = true), fx_flip(x, FX_AXES(0))));
    refused(fx_random_flip(x, .p = 1.5), FX_STATUS_ARGUMENT, "p = 1.5");
    refused(fx_random_flip(x, .dims = FX_AXES(2)), FX_STATUS_ARGUMENT, "not spatial");
    refused(fx_random_flip(fx_ones(2, 3)), FX_STATUS_SHAPE, "2 axes");
    refused(fx_random_flip(NULL), FX_STATUS_ARGUMENT, "NULL");
}

static void crops(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(4);
    fx_array *x = images();
    const float *v = numbers_of(fx_random_crop(x, FX_DIMS(3, 2), .always = true), 3, 2);
    int seen[3][3] = {{0}};
    for (int b = 0; b < N; b++) {
        const int first = (int)v[b * 3 * 2 * C] - 1000 * b, oi = first % 10, oj = first / 10;
        assert_in_range(oi, 0, 2);
        assert_in_range(oj, 0, 2);
        seen[oi][oj]++;
        for (int k = 0; k < 3 * 2 * C; k++)
            assert_true(v[b * 3 * 2 * C + k] == at(oi + k % 3, oj + k / 3 % 2, k / 6, b));
    }
    for (int i = 0; i < 9; i++)
        assert_true(seen[i / 3][i % 3] > 0);
    assert_true(same(fx_random_crop(x, FX_DIMS(2, 3)), fx_slice(fx_slice(x, 0, 1, 3), 1, 0, 3)));
    refused(fx_random_crop(x, FX_DIMS(6, 2)), FX_STATUS_ARGUMENT,
            "size 6 for axis 0, expected 1 to ");
    refused(fx_random_crop(x, FX_DIMS(0)), FX_STATUS_ARGUMENT, "size 0");
    refused(fx_random_shift(x, FX_DIMS(-1)), FX_STATUS_ARGUMENT,
            "size -1 for axis 0, expected 0 to 2147483647");
    refused(fx_random_crop(x), FX_STATUS_ARGUMENT, "0 sizes for 2 spatial axes");
}

static void shifts(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(5);
    fx_array *x = images();
    const float *v =
        numbers_of(fx_random_shift(x, FX_DIMS(1, 0), .fill = -7, .always = true), W, H);
    int seen[3] = {0};
    for (int b = 0; b < N; b++) {
        const float *o = v + b * W * H * C;
        const int d = o[0] == -7 ? 1 : (int)o[0] - 1000 * b == 0 ? 0 : -1; /* to the right */
        seen[d + 1]++;
        for (int k = 0; k < W * H * C; k++) {
            const int i = k % W - d;
            assert_true(o[k] == (i < 0 || i >= W ? -7 : at(i, k / W % H, k / (W * H), b)));
        }
    }
    assert_true(seen[0] > 5 && seen[1] > 5 && seen[2] > 5);
    refused(fx_random_shift(x, FX_DIMS(-1)), FX_STATUS_ARGUMENT, "size -1");
}

static void noises(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(6);
    fx_array *x = fx_array_to(device, fx_ones(16, 16, 1, 16));
    fx_array *y = fx_random_noise(x, .std = 0.5, .always = true);
    assert_true(fabs(fx_item(fx_mean(y)) - 1) < 0.05);
    assert_true(fabs(fx_item(fx_std(y)) - 0.5) < 0.05);
    refused(fx_random_noise(x, .std = -1), FX_STATUS_ARGUMENT, "std = -1");
    refused(fx_random_noise(fx_cast(x, FX_DTYPE_U8)), FX_STATUS_DTYPE, "UInt8");
}

static void modes_and_seeds(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = images();
    assert_ptr_equal(fx_random_flip(x), x);
    assert_ptr_equal(fx_random_shift(x, FX_DIMS(1)), x);
    assert_ptr_equal(fx_random_noise(x), x);
    fx_array *a = fx_random_noise(x, .always = true, .seed = 5), *twice, *other;
    {
        FX_STEP;
        assert_ptr_not_equal(fx_random_noise(x), x);
        twice = fx_keep(fx_random_noise(x, .seed = 5));
        other = fx_keep(fx_random_noise(x, .seed = 6));
        fx_eval(fx_tuple(twice, other));
    }
    assert_true(same(a, twice));
    assert_false(same(a, other));
    fx_array *dx;
    fx_array *flipped = fx_random_flip(x, .always = true, .seed = 1);
    assert_int_equal(fx_pullback(flipped, flipped, &x, 1, &dx), FX_OK);
    assert_true(same(dx, x)); /* a permutation, so its transpose undoes it */
}

/* A quarter turn of a square image about its centre permutes its elements; NNlib's example moves
 * element (1, 1) of a 4×4 image to (1, 2). */
static void rotations(void **state)
{
    (void)state;
    FX_SCOPE;
    double v[16], back[16];
    for (int i = 0; i < 16; i++)
        v[i] = i == 5 ? 50 : i;
    fx_array *x = fx_array_to(device, fx_cast(fx_from(FX_DTYPE_F64, v, 4, 4, 1, 1), FX_DTYPE_F32));
    for (int nearest = 0; nearest < 2; nearest++) {
        fx_array *y = fx_imrotate(x, acos(0), nearest);
        assert_int_equal(fx_read_as(y, FX_DTYPE_F64, back, 16), FX_OK);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) /* from (−x, y): i′ = 3 − j, j′ = i */
                assert_true(fabs(back[i + 4 * j] - v[3 - j + 4 * i]) < 1e-4);
        assert_true(fabs(back[1 + 4 * 2] - 50) < 1e-4);
    }
    fx_array *same_image = fx_imrotate(x, 0, false);
    assert_true(fx_item(fx_maximum(fx_abs(fx_sub(same_image, x)))) < 1e-4);
    /* 45°: corner (3, 0) reads from (1.5 + 1.5·√2, 1.5), 0.62 outside, between 7 and 11. */
    const double part = 1 - (1.5 * sqrt(2) - 1.5);
    assert_true(fabs(fx_at(fx_imrotate(x, acos(0) / 2, false), 3) - part * 9) < 1e-4);
    fx_array *none = fx_imrotate(fx_zeros(4, 4, 3, 0), 1, false),
             *narrow = fx_imrotate(fx_full_dtype(FX_DTYPE_U8, 0, 0, 4, 3, 2), 1, false);
    assert_int_equal(fx_eval(none), FX_OK);
    assert_int_equal(fx_eval(narrow), FX_OK);
    assert_true(fx_size(none, 0) == 4 && fx_size(none, 3) == 0 && fx_ndims(narrow) == 4);
    assert_int_equal(fx_eltype(narrow), FX_DTYPE_F32);
    assert_true(fx_at(fx_imrotate(x, acos(0) / 2, true), 3) == 0);
    fx_array *bytes = fx_cast(fx_mod(x, 200), FX_DTYPE_U8);
    fx_array *turned = fx_imrotate(bytes, 0, false);
    assert_true(fx_item(fx_maximum(fx_abs(fx_sub(turned, fx_cast(bytes, FX_DTYPE_F32))))) < 1e-4);
    refused(fx_imrotate(fx_ones(3, 2, 1), 1, false), FX_STATUS_SHAPE, "3 axes");
    refused(fx_imrotate(x, NAN, false), FX_STATUS_ARGUMENT, "nan");
}

static int run(const char *name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flips),  cmocka_unit_test(crops),           cmocka_unit_test(shifts),
        cmocka_unit_test(noises), cmocka_unit_test(modes_and_seeds), cmocka_unit_test(rotations),
    };
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    return run_on_every_device(run);
}
