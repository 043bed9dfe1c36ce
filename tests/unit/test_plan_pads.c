/* test_plan_pads.c: paddings of several axes with one number are one step on the CPU, and have the
 * elements of paddings one after another, which the test writes itself. Plans in text, worked out
 * by hand from src/plan/merge_pads.c.
 */
#include "cpu_parallel.h"
#include "semantics_check.h"

#include <stdlib.h>

enum { MOST_PADS = 4 };

typedef struct padding {
    int axis;
    int64_t before, after;
    double value;
} padding;

typedef struct problem {
    int64_t x[4];
    int n, steps;
    padding pads[MOST_PADS];
} problem;

/* One padding of an array of four axes. */
static double *naive(const double *x, const padding *p, int64_t *shape)
{
    int64_t in[4], at[4];
    memcpy(in, shape, sizeof in);
    shape[p->axis] += p->before + p->after;
    const int64_t n = shape[0] * shape[1] * shape[2] * shape[3];
    double *y = malloc((size_t)(n + 1) * sizeof *y);
    assert_non_null(y);
    for (int64_t i = 0; i < n; i++) {
        at[0] = i % shape[0], at[1] = i / shape[0] % shape[1];
        at[2] = i / (shape[0] * shape[1]) % shape[2], at[3] = i / (shape[0] * shape[1] * shape[2]);
        at[p->axis] -= p->before;
        const bool inside = at[p->axis] >= 0 && at[p->axis] < in[p->axis];
        y[i] = inside ? x[at[0] + in[0] * (at[1] + in[1] * (at[2] + in[2] * at[3]))] : p->value;
    }
    return y;
}

static fx_array *padded(fx_array *x, const problem *p)
{
    for (int k = 0; k < p->n; k++)
        x = fx_pad(x, p->pads[k].axis, p->pads[k].before, p->pads[k].after, p->pads[k].value);
    return x;
}

static long steps_of(void *x)
{
    char text[4096];
    assert_true(fx_plan_text(x, text, sizeof text) < sizeof text);
    const char *in = strstr(text, " nodes in ");
    assert_non_null(in);
    return strtol(in + strlen(" nodes in "), NULL, 10);
}

/* Whole numbers below 256 and the values of the problems are exact in every type. */
static fx_array *leaf(const problem *p, fx_dtype type)
{
    fx_array *x = fx_floor(fx_mul(fx_rand(p->x[0], p->x[1], p->x[2], p->x[3]), 200));
    x = fx_cast(x, type);
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

static void check_elements(const problem *p, fx_array *x, fx_array *y)
{
    int64_t shape[4];
    memcpy(shape, p->x, sizeof shape);
    fx_array *from = fx_f64(x), *got = fx_f64(y);
    assert_int_equal(fx_eval(fx_tuple(from, got)), FX_OK);
    const int64_t n = fx_length(from);
    double *want = malloc((size_t)(n + 1) * sizeof *want);
    assert_non_null(want);
    memcpy(want, fx_data(from), (size_t)n * sizeof *want);
    for (int k = 0; k < p->n; k++) {
        double *next = naive(want, &p->pads[k], shape);
        free(want);
        want = next;
    }
    assert_int_equal(fx_length(got), shape[0] * shape[1] * shape[2] * shape[3]);
    assert_memory_equal(fx_data(got), want, (size_t)fx_length(got) * sizeof *want);
    free(want);
}

static const problem problems[] = {
    {{9, 7, 1, 1}, 2, 1, {{0, 1, 1, 0}, {1, 1, 1, 0}}},
    {{9, 7, 1, 1}, 2, 1, {{1, 2, 3, 0.5}, {0, 4, 1, 0.5}}},
    {{5, 4, 3, 2}, 4, 1, {{2, 1, 0, 2}, {0, 0, 3, 2}, {3, 2, 2, 2}, {1, 1, 1, 2}}},
    /* the same axis twice; nothing before or nothing after */
    {{5, 4, 3, 2}, 3, 1, {{1, 1, 0, 3}, {1, 0, 2, 3}, {3, 0, 1, 3}}},
    /* a line of one element, and of one axis only */
    {{1, 6, 5, 1}, 2, 1, {{1, 1, 1, 7}, {2, 1, 2, 7}}},
    /* no elements in x */
    {{3, 0, 2, 1}, 2, 1, {{0, 1, 1, 7}, {1, 1, 2, 7}}},
    /* other numbers, also among equal ones, and a zero with another sign */
    {{9, 7, 1, 1}, 2, 2, {{0, 1, 1, 0}, {1, 1, 1, 1}}},
    {{9, 7, 2, 1}, 3, 2, {{0, 1, 1, 0}, {1, 1, 1, 0}, {2, 1, 1, 1}}},
    {{9, 7, 1, 1}, 2, 2, {{0, 1, 1, 0.0}, {1, 1, 1, -0.0}}},
    /* threads divide lines; blocks begin and end in lines and in the border */
    {{611, 40, 3, 2}, 3, 1, {{0, 700, 9, 1}, {1, 3, 30, 1}, {3, 1, 1, 1}}},
    {{3, 1201, 7, 1}, 2, 1, {{1, 2, 3, 4}, {2, 4, 5, 4}}},
};

static void borders(void **state)
{
    (void)state;
    static const fx_dtype types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16, FX_DTYPE_BF16};
    for (size_t k = 0; k < sizeof problems / sizeof *problems; k++)
        for (int t = 0; t < 4; t++) {
            FX_SCOPE;
            const problem *p = &problems[k];
            fx_array *x = leaf(p, types[t]);
            assert_int_equal(steps_of(padded(x, p)), p->steps);
            check_elements(p, x, padded(x, p));
            /* of a view: the input has strides */
            problem turned = *p;
            turned.x[0] = p->x[1], turned.x[1] = p->x[0];
            fx_array *view = fx_permute(x, 1, 0, 2, 3);
            check_elements(&turned, view, padded(view, &turned));
        }
}

static void by_several_threads(void **state)
{
    const int before = fx_num_threads();
    fx_set_num_threads(3);
    fxi_cpu_parts_from(0);
    borders(state);
    fxi_cpu_parts_from(FXI_PARTS_FROM);
    fx_set_num_threads(before);
}

/* More than FXI_STREAM_BYTES, which are written past the cache. */
static void large_borders(void **state)
{
    (void)state;
    FX_SCOPE;
    const problem p = {{1501, 1499, 1, 1}, 2, 1, {{0, 1, 1, 0}, {1, 1, 1, 0}}};
    fx_array *x = leaf(&p, FX_DTYPE_F32);
    check_elements(&p, x, padded(x, &p));
}

/* What is between two paddings is a result, or has another reader, or is read in part: it is
 * computed. */
static void used_between(void **state)
{
    (void)state;
    FX_SCOPE;
    const problem p = {{9, 7, 2, 1}, 2, 2, {{0, 1, 1, 3}, {1, 2, 1, 3}}};
    fx_array *x = leaf(&p, FX_DTYPE_F32);
    fx_array *inner = fx_pad(x, 0, 1, 1, 3), *outer = fx_pad(inner, 1, 2, 1, 3);
    assert_int_equal(steps_of(fx_tuple(inner, outer)), 2);
    assert_int_equal(steps_of(fx_tuple(fx_sum(inner), outer)), 3);
    fx_array *part = fx_slice(fx_pad(x, 0, 1, 1, 3), 0, 1, 11), *wide = fx_pad(part, 1, 2, 1, 3);
    assert_int_equal(steps_of(wide), 2);
    check_elements(&p, x, outer);
    const problem less = {{10, 7, 2, 1}, 1, 1, {{1, 2, 1, 3}}};
    check_elements(&less, part, wide);
}

/* A recorded training step, whose numbers change, and that pads with different numbers later. The
 * border of `p` gets the gradient 0. */
static void in_recorded_steps(void **state)
{
    (void)state;
    for (int k = 0; k < 8; k++) {
        FX_RECORD;
        const double a = k / 2, b = k < 5 ? a : a + 1;
        const problem p = {{4, 3, 1, 1}, 2, 0, {{0, 1, 2, a}, {1, 2, 1, b}}};
        fx_array *x = leaf(&p, FX_DTYPE_F32), *y = padded(x, &p);
        fx_array *loss = fx_sum(fx_mul(y, y)), *g = fx_gradient(loss, x);
        assert_int_equal(fx_eval(fx_tuple(y, g)), FX_OK);
        check_elements(&p, x, y);
        const float *xs = fx_data(x), *gs = fx_data(g);
        for (int i = 0; i < 12; i++)
            assert_true(gs[i] == 2 * xs[i]);
    }
}

int main(void)
{
    unsetenv("FX_EAGER");
#define TEST(f) cmocka_unit_test_setup_teardown(f, clean_start, clean_end)
    const struct CMUnitTest tests[] = {TEST(borders), TEST(by_several_threads), TEST(large_borders),
                                       TEST(used_between), TEST(in_recorded_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
