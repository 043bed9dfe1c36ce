/* test_reads.c: every way of reading an array agrees with every other, for views in a random order
 * of axes, steps and directions, on the host and on a device whose memory the host cannot address.
 * The expected elements come from a list of positions that each view permutes in the same way.
 */
#include "composite_check.h"

#include "away.h"
#include "memory.h"
#include "reads.h"

#include <cflux.h>

#include <math.h>
#include <stdlib.h>

enum { MOST = 5 * 4 * 3 * 4 };

static uint32_t dice;

static int64_t roll(int64_t sides)
{
    dice = dice * 1664525 + 1013904223;
    return (int64_t)(dice >> 8) % sides;
}

/* An array and, for each of its elements, the position in the array that it was taken from. */
typedef struct view {
    fx_array *x;
    int ndims;
    int64_t shape[4], from[MOST];
} view;

static int64_t length(const view *v)
{
    int64_t n = 1;
    for (int k = 0; k < v->ndims; k++)
        n *= v->shape[k];
    return n;
}

/* The view of v with these axes; along each axis it has the elements from `first` on in steps of
 * `step`. */
static void take(view *v, const int64_t *perm, const int64_t *first, const int64_t *step,
                 const int64_t *shape)
{
    const view old = *v;
    int64_t stride[4] = {1, 1, 1, 1};
    for (int k = 1; k < old.ndims; k++)
        stride[k] = stride[k - 1] * old.shape[k - 1];
    memcpy(v->shape, shape, sizeof v->shape);
    for (int64_t i = 0; i < length(v); i++) {
        int64_t rest = i, at = 0;
        for (int k = 0; k < v->ndims; k++) {
            at += (first[k] + rest % shape[k] * step[k]) * stride[perm[k]];
            rest /= shape[k];
        }
        v->from[i] = old.from[at];
    }
}

static const int64_t in_order[4] = {0, 1, 2, 3}, zeros[4] = {0}, ones[4] = {1, 1, 1, 1};

static void permuted(view *v)
{
    int64_t perm[4] = {0, 1, 2, 3}, shape[4];
    for (int k = v->ndims - 1; k > 0; k--) {
        const int64_t other = roll(k + 1), kept = perm[k];
        perm[k] = perm[other];
        perm[other] = kept;
    }
    for (int k = 0; k < 4; k++)
        shape[k] = v->shape[perm[k]];
    v->x = fxi_permute(v->x, v->ndims, perm);
    take(v, perm, zeros, ones, shape);
}

static void sliced(view *v)
{
    const int axis = (int)roll(v->ndims);
    const int64_t size = v->shape[axis];
    int64_t first[4] = {0}, step[4] = {1, 1, 1, 1}, shape[4];
    memcpy(shape, v->shape, sizeof shape);
    first[axis] = roll(size);
    step[axis] = roll(2) ? 1 + roll(2) : -1 - roll(2);
    const int64_t most = step[axis] > 0 ? size - 1 - first[axis] : first[axis];
    shape[axis] = 1 + roll(most / llabs(step[axis]) + 1);
    v->x = fx_slice_step(v->x, axis, first[axis], step[axis], shape[axis]);
    take(v, in_order, first, step, shape);
}

static fx_status collect(const void *data, size_t bytes, void *user)
{
    char **at = user;
    memcpy(*at, data, bytes);
    *at += bytes;
    return FX_OK;
}

static void check_reads(const view *v)
{
    const int64_t n = length(v);
    double as_double[MOST];
    float as_float[MOST], pieces[MOST];
    char *end = (char *)pieces;
    assert_int_equal(fx_length(v->x), n);
    assert_int_equal(fx_read_as(v->x, FX_DTYPE_F64, as_double, n), FX_OK);
    assert_int_equal(fx_read_into(v->x, as_float, (size_t)n * sizeof(float)), FX_OK);
    assert_int_equal(fxi_read_pieces(v->x, collect, &end), FX_OK);
    assert_ptr_equal(end, (char *)pieces + (size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        const double want = (double)v->from[i];
        if (as_double[i] != want || as_float[i] != (float)want || pieces[i] != (float)want ||
            fx_at(v->x, i) != want)
            fail_msg("element %lld of %lld is %g, %g, %g and %g, not %g", (long long)i,
                     (long long)n, as_double[i], (double)as_float[i], (double)pieces[i],
                     fx_at(v->x, i), want);
    }
    if (n == 1)
        assert_true(fx_item(v->x) == (double)v->from[0]);
    const float *data = fx_data(v->x);
    assert_non_null(data);
    assert_memory_equal(data, as_float, (size_t)n * sizeof(float));
    assert_ptr_equal(fx_data(v->x), data);
}

static void check_views(fx_device *device)
{
    for (int round = 0; round < 300; round++) {
        FX_SCOPE;
        view v = {.ndims = 1 + (int)roll(4), .shape = {1, 1, 1, 1}};
        static const int64_t most[4] = {5, 4, 3, 4};
        for (int k = 0; k < v.ndims; k++)
            v.shape[k] = 1 + roll(most[k]);
        for (int64_t i = 0; i < MOST; i++)
            v.from[i] = i;
        fx_array *line = fx_range(0, 1, length(&v));
        v.x = fx_array_to(device, fxi_reshape(line, v.ndims, v.shape));
        fx_eval(v.x);
        for (int64_t k = roll(4); k >= 0; k--) {
            if (roll(2))
                permuted(&v);
            else
                sliced(&v);
            if (roll(2))
                fx_eval(v.x);
        }
        check_reads(&v);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

static void views_on_the_host(void **state)
{
    (void)state;
    dice = 1;
    check_views(fx_cpu_device());
}

static void views_on_a_device(void **state)
{
    (void)state;
    dice = 2;
    fx_allowscalar(true);
    check_views(away_register("Away", 1));
}

/* A read of a view takes from the device what the view spans: 7 of 10 elements, in both directions.
 */
static void a_view_is_read_as_far_as_it_spans(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_array_to(fx_device_get("Away", 0), fx_range(0, 1, 10));
    fx_array *const views[] = {fx_slice_step(x, 0, 2, 2, 4), fx_slice_step(x, 0, 8, -2, 4)};
    static const float want[2][4] = {{2, 4, 6, 8}, {8, 6, 4, 2}};
    for (int i = 0; i < 2; i++) {
        float got[4];
        fx_eval(views[i]);
        const int64_t before = away.bytes_read;
        assert_int_equal(fx_read_into(views[i], got, sizeof got), FX_OK);
        assert_int_equal(away.bytes_read - before, 7 * sizeof(float));
        assert_memory_equal(got, want[i], sizeof got);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* If a piece could not be read, the function is not called for it. */
static void a_failed_read_hands_nothing_on(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_array_to(fx_device_get("Away", 0), fx_range(0, 1, 10));
    float numbers[10];
    char *end = (char *)numbers;
    assert_int_equal(fx_eval(x), FX_OK);
    away_copy_fails = 1;
    assert_int_equal(fxi_read_pieces(x, collect, &end), FX_STATUS_DEVICE);
    assert_ptr_equal(end, (char *)numbers);
    assert_int_equal(fx_error_take().status, FX_STATUS_DEVICE);
    assert_int_equal(fxi_read_pieces(x, collect, &end), FX_OK);
    assert_ptr_equal(end, (char *)(numbers + 10));
}

/* If there is no memory for a dense copy, the read fails; the next attempt makes the copy. */
static void data_without_memory(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_slice_step(fx_range(0, 1, 10), 0, 9, -3, 3);
    assert_int_equal(fx_eval(x), FX_OK);
    fx_array *y = fx_slice_step(x, 0, 2, -1, 3);
    assert_int_equal(fx_eval(y), FX_OK);
    fxi_fault_set(0);
    assert_null(fx_data(y));
    fxi_fault_set(-1);
    assert_int_equal(fx_error_take().status, FX_STATUS_MEMORY);
    const float *data = fx_data(y);
    assert_non_null(data);
    assert_true(data[0] == 3 && data[1] == 6 && data[2] == 9);
}

/* A copy is refused exactly if the sizes differ, and then changes nothing. */
static void copies_need_equal_sizes(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fx_dims shapes[] = {{0, {0}},       {1, {1}},       {1, {6}},       {2, {2, 3}},
                                     {2, {3, 2}},    {2, {6, 1}},    {2, {1, 6}},    {3, {1, 2, 3}},
                                     {3, {2, 3, 1}}, {3, {2, 1, 3}}, {3, {3, 2, 1}}, {2, {2, 4}}};
    enum { SHAPES = sizeof shapes / sizeof shapes[0] };
    for (int i = 0; i < SHAPES; i++)
        for (int k = 0; k < SHAPES; k++) {
            FX_SCOPE;
            fx_array *to = fxi_full(FX_DTYPE_F64, 1, (int)shapes[i].n, shapes[i].v);
            fx_array *from = fxi_full(FX_DTYPE_F32, 2, (int)shapes[k].n, shapes[k].v);
            fx_eval(to);
            assert_int_equal(fx_copy_into(to, from), i == k ? FX_OK : FX_STATUS_SHAPE);
            fx_error_take();
            assert_int_equal(fx_eltype(to), FX_DTYPE_F64);
            assert_int_equal(fx_ndims(to), shapes[i].n);
            assert_true(fx_item(fx_mean(to)) == (i == k ? 2 : 1));
        }
}

/* Reads convert numbers as fx_cast does, which rounds once: a number beside the middle of two
 * Float32, Float16 or BFloat16 may not become that middle on the way. */
static void reads_round_as_casts(void **state)
{
    (void)state;
    enum { N = 400 };
    static const int bits[] = {24, 11, 8}; /* of a Float32, Float16 and BFloat16 */
    FX_SCOPE;
    int64_t whole[N];
    double real[N];
    int differ = 0;
    for (int i = 0; i < N; i++) {
        const int64_t middle = ((roll(1 << 7) | 1 << 7) << (bits[i % 3] - 7)) | 1;
        const int more = (int)roll(62 - bits[i % 3]); /* bits below the middle */
        whole[i] = (middle << more) + roll(3) - 1;
        real[i] = ldexp((double)middle + ldexp((double)roll(3) - 1, -20), (int)roll(20) - 10);
        whole[i] *= 1 - 2 * (i & 1);
        real[i] *= 1 - 2 * (i & 1);
    }
    fx_array *const from[] = {fx_from(FX_DTYPE_I64, whole, N), fx_from(FX_DTYPE_F64, real, N)};
    static const fx_dtype to[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16, FX_DTYPE_BF16};
    for (int k = 0; k < 2; k++)
        for (int t = 0; t < 4; t++) {
            char as[N][8], cast[N][8];
            assert_int_equal(fx_read_as(from[k], to[t], as, N), FX_OK);
            assert_int_equal(fx_read_into(fx_cast(from[k], to[t]), cast, N * fx_dtype_size(to[t])),
                             FX_OK);
            differ += memcmp(as, cast, N * fx_dtype_size(to[t])) != 0;
        }
    for (int i = 0; i < N; i++) {
        float as;
        assert_int_equal(fx_read_as(fx_slice(from[0], 0, i, i + 1), FX_DTYPE_F32, &as, 1), FX_OK);
        differ += as != (float)whole[i]; /* C rounds once */
    }
    assert_int_equal(differ, 0);
}

/* Reads of too much or too little are refused, as are positions outside. */
static void reads_need_the_right_size(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_add(fx_ones(2, 3), 1);
    float numbers[8];
    for (int64_t n = 0; n < 8; n++) {
        memset(numbers, 0, sizeof numbers);
        assert_int_equal(fx_read_as(x, FX_DTYPE_F32, numbers, n), n == 6 ? FX_OK : FX_STATUS_SHAPE);
        fx_error_take();
        assert_true(numbers[0] == (n == 6 ? 2 : 0));
        memset(numbers, 0, sizeof numbers);
        assert_int_equal(fx_read_into(x, numbers, (size_t)n * 4), n == 6 ? FX_OK : FX_STATUS_SHAPE);
        fx_error_take();
        assert_true(numbers[0] == (n == 6 ? 2 : 0));
    }
    assert_int_equal(fx_read_as(x, FX_DTYPE_COUNT, numbers, 6), FX_STATUS_ARGUMENT);
    assert_string_equal(fx_error_take().message, "read: 8 is not an element type");
    for (int64_t i = -2; i < 9; i++) {
        const double v = fx_at(x, i);
        const fx_error e = fx_error_take();
        assert_int_equal(e.status, i >= 0 && i < 6 ? FX_OK : FX_STATUS_ARGUMENT);
        assert_true(e.status == FX_OK ? v == 2 : isnan(v));
        assert_true(e.status == FX_OK || strstr(e.message, "is outside 0 … 5"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_on_the_host),
        cmocka_unit_test(views_on_a_device),
        cmocka_unit_test(a_view_is_read_as_far_as_it_spans),
        cmocka_unit_test(a_failed_read_hands_nothing_on),
        cmocka_unit_test(data_without_memory),
        cmocka_unit_test(copies_need_equal_sizes),
        cmocka_unit_test(reads_round_as_casts),
        cmocka_unit_test(reads_need_the_right_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
