/* 3×3 convolutions with few multiplications on the CPU against the defining sum in double: every
 * padding, odd sizes, several images in a unit, numbers that are not finite, sums that overflow on
 * the way, epilogues, the bits of threads and of batches. ctest: timeout=300 */
#include "cpu_check.h"
#include "cpu_conv.h"
#include "cpu_parallel.h"

typedef struct problem {
    int64_t x[2], in, out, batch;
    int32_t before[2], after[2], flipped;
    int32_t dilation[2]; /* 0: 1 */
} problem;

static int32_t dilation_of(const problem *p, int d)
{
    return p->dilation[d] ? p->dilation[d] : 1;
}

static fx_attr attr_of(const problem *p, int kind)
{
    return (fx_attr){.conv = {.kind = kind,
                              .spatial = 2,
                              .groups = 1,
                              .flipped = p->flipped,
                              .stride = {1, 1},
                              .dilation = {dilation_of(p, 0), dilation_of(p, 1)},
                              .before = {p->before[0], p->before[1]},
                              .after = {p->after[0], p->after[1]}}};
}

static int64_t windows(const problem *p, int d)
{
    return p->x[d] + p->before[d] + p->after[d] - 2 * dilation_of(p, d);
}

/* The geometry as far as the choice of the method reads it. */
static bool suits(const problem *p, int kind)
{
    const fx_attr attr = attr_of(p, kind);
    const int64_t y[] = {windows(p, 0), windows(p, 1)};
    const fxi_conv_geometry g = {.attr = &attr.conv,
                                 .dtype = FX_DTYPE_F32,
                                 .x = {p->x[0], p->x[1], 1},
                                 .k = {3, 3, 1},
                                 .y = {y[0], y[1], 1},
                                 .stride = {1, 1, 1},
                                 .before = {p->before[0], p->before[1]},
                                 .dilation = {dilation_of(p, 0), dilation_of(p, 1), 1},
                                 .groups = 1,
                                 .cin = p->in,
                                 .cout = p->out,
                                 .positions = y[0] * y[1]};
    return fxi_cpu_conv_winograd_suits(&g, kind);
}

/* x, w and y. Their elements are small numbers, whose sums are exact in Float32, transformed or
 * not. */
static void make_operands(const problem *p, operand out[3])
{
    out[0] = make_operand(FX_DTYPE_F32, DENSE, SHAPE(p->x[0], p->x[1], p->in, p->batch));
    out[1] = make_operand(FX_DTYPE_F32, DENSE, SHAPE(3, 3, p->in, p->out));
    out[2] =
        make_operand(FX_DTYPE_F32, DENSE, SHAPE(windows(p, 0), windows(p, 1), p->out, p->batch));
}

static void drop_operands(operand all[3])
{
    for (int k = 0; k < 3; k++)
        drop_operand(&all[k]);
}

/* Real numbers in [−1, 1). */
static void fill_real(operand *o)
{
    for (int64_t i = 0; i < length_of(o); i++)
        ((float *)o->data)[i] = (float)((double)(next_random() >> 7) * 0x1p-23 - 1);
}

/* The defining sum of FORWARD or DATA; taps outside x contribute nothing. */
static double *defined(const problem *p, int kind, const operand all[3])
{
    const float *x = all[0].data, *w = all[1].data, *y = all[2].data;
    const int64_t Y0 = windows(p, 0), Y1 = windows(p, 1), xs = p->x[0] * p->x[1], ys = Y0 * Y1;
    double *want = calloc((size_t)(kind == FX_CONV_DATA ? length_of(&all[0]) : length_of(&all[2])),
                          sizeof *want);
    assert_non_null(want);
    for (int64_t n = 0; n < p->batch; n++)
        for (int64_t o = 0; o < p->out; o++)
            for (int64_t c = 0; c < p->in; c++)
                for (int64_t k = 0; k < 9; k++) {
                    const int64_t a = p->flipped ? k % 3 : 2 - k % 3;
                    const int64_t b = p->flipped ? k / 3 : 2 - k / 3;
                    const double tap = (double)w[k + 9 * (c + p->in * o)];
                    /* The windows whose tap is inside x. */
                    const int64_t s = a * dilation_of(p, 0) - p->before[0];
                    const int64_t t = b * dilation_of(p, 1) - p->before[1];
                    const int64_t from = s < 0 ? -s : 0, to = Y0 < p->x[0] - s ? Y0 : p->x[0] - s;
                    for (int64_t j = 0; j < Y1; j++) {
                        if (j + t < 0 || j + t >= p->x[1])
                            continue;
                        const int64_t xo = s + p->x[0] * (j + t) + xs * (c + p->in * n);
                        const int64_t yo = Y0 * j + ys * (o + p->out * n);
                        for (int64_t i = from; i < to; i++)
                            if (kind == FX_CONV_DATA)
                                want[xo + i] += (double)y[yo + i] * tap;
                            else
                                want[yo + i] += (double)x[xo + i] * tap;
                    }
                }
    return want;
}

static operand *run_conv(const problem *p, int kind, operand all[3])
{
    const bool data = kind == FX_CONV_DATA;
    const operand *in[] = {&all[data ? 2 : 0], &all[1]};
    operand *out = &all[data ? 0 : 2];
    assert_true(suits(p, kind)); /* else another method would be tested */
    assert_int_equal(run_step(FX_OP_CONV, FX_CLASS_CONV, attr_of(p, kind), 2, in, out).status,
                     FX_OK);
    return out;
}

/* Equal numbers if the operands are small, else a small mean squared error. */
static void check_problem(const problem *p, int kind, bool real)
{
    operand all[3];
    make_operands(p, all);
    for (int k = 0; k < 3 && real; k++)
        fill_real(&all[k]);
    double *want = defined(p, kind, all), wrong = 0, size = 0;
    const operand *out = run_conv(p, kind, all);
    for (int64_t i = 0; i < length_of(out); i++) {
        const double got = element(out, i);
        if (!real && got != want[i])
            fail_msg("element %lld: got %.9g, want %.9g (%s)", (long long)i, got, want[i],
                     fxi_cpu_simd()->name);
        wrong += (got - want[i]) * (got - want[i]);
        size += want[i] * want[i];
    }
    /* The limit of the conformance tests for Float32. */
    assert_true(wrong <= 1e-11 * size);
    free(want);
    drop_operands(all);
}

static void every_padding(void **state)
{
    (void)state;
    for (int32_t k = 0; k < 27; k++) {
        const problem p = {.x = {17, 19},
                           .in = 80,
                           .out = 80 + k % 4,
                           .batch = 1,
                           .before = {k % 3, k / 3 % 3},
                           .after = {k / 9, (k + k / 9) % 3},
                           .flipped = k % 2};
        check_problem(&p, k / 2 % 2 ? FX_CONV_DATA : FX_CONV_FORWARD, false);
    }
}

/* Widths below and above a vector, units of several images and several units of an image, panels of
 * all widths, many channels. */
static void shapes(void **state)
{
    (void)state;
    const problem ps[] = {
        {.x = {8, 28}, .in = 49, .out = 55, .batch = 4, .before = {1, 1}, .after = {1, 1}},
        {.x = {9, 24}, .in = 60, .out = 72, .batch = 3, .before = {1, 1}, .after = {1, 1}},
        {.x = {16, 16}, .in = 35, .out = 67, .batch = 3, .before = {1, 1}, .after = {1, 1}},
        {.x = {37, 21}, .in = 48, .out = 52, .batch = 2, .before = {0, 1}, .after = {2, 0}},
        {.x = {131, 9}, .in = 64, .out = 64, .batch = 1, .before = {1, 2}, .after = {1, 1}},
        {.x = {2, 128}, .in = 60, .out = 62, .batch = 2, .before = {1, 1}, .after = {1, 1}}};
    for (size_t k = 0; k < sizeof ps / sizeof *ps; k++)
        for (int kind = FX_CONV_FORWARD; kind <= FX_CONV_DATA; kind++) {
            check_problem(&ps[k], kind, false);
            check_problem(&ps[k], kind, true);
        }
    const problem deep = {
        .x = {16, 16}, .in = 530, .out = 33, .batch = 1, .before = {1, 1}, .after = {1, 1}};
    check_problem(&deep, FX_CONV_FORWARD, true);
}

/* Dilations that divide the sizes and that do not, one axis without a dilation, parts of several
 * images in a unit, every remainder of the padding. */
static void dilations(void **state)
{
    (void)state;
    const problem ps[] = {
        {.x = {32, 30}, .before = {2, 2}, .after = {2, 2}, .dilation = {2, 2}},
        {.x = {33, 31}, .before = {1, 3}, .after = {4, 0}, .dilation = {2, 2}},
        {.x = {37, 26}, .before = {3, 1}, .after = {2, 0}, .dilation = {3, 1}, .flipped = 1},
        {.x = {30, 41}, .before = {0, 8}, .after = {2, 5}, .dilation = {1, 4}},
        {.x = {47, 46}, .before = {4, 0}, .after = {0, 6}, .dilation = {2, 3}, .flipped = 1},
        {.x = {64, 8}, .before = {7, 4}, .after = {8, 4}, .dilation = {4, 2}}};
    for (size_t k = 0; k < sizeof ps / sizeof *ps; k++)
        for (int kind = FX_CONV_FORWARD; kind <= FX_CONV_DATA; kind++) {
            problem p = ps[k];
            p.in = 60 + (int64_t)k, p.out = 63 - (int64_t)k, p.batch = 2;
            check_problem(&p, kind, false);
            check_problem(&p, kind, true);
        }
}

/* The same bits from one thread and from three, and from each image alone. */
static void check_bits(int32_t dilation)
{
    const int before = fx_num_threads();
    for (int kind = FX_CONV_FORWARD; kind <= FX_CONV_DATA; kind++) {
        const bool data = kind == FX_CONV_DATA;
        const problem p = {.x = {16, 13},
                           .in = 51,
                           .out = 60,
                           .batch = 5,
                           .before = {dilation, dilation},
                           .after = {dilation, dilation},
                           .dilation = {dilation, dilation}};
        problem one = p;
        one.batch = 1;
        operand all[3], each[3];
        make_operands(&p, all);
        fill_real(&all[0]), fill_real(&all[1]), fill_real(&all[2]);
        fx_set_num_threads(1);
        const operand *out = run_conv(&p, kind, all);
        const size_t bytes = (size_t)length_of(out) * sizeof(float);
        void *alone = malloc(bytes);
        memcpy(alone, out->data, bytes);
        fx_set_num_threads(3);
        fxi_cpu_parts_from(0);
        run_conv(&p, kind, all);
        fxi_cpu_parts_from(FXI_PARTS_FROM);
        assert_memory_equal(out->data, alone, bytes);
        const char *in = all[data ? 2 : 0].data;
        for (int64_t n = 0; n < p.batch; n++) {
            make_operands(&one, each);
            const size_t size = (size_t)length_of(&each[data ? 2 : 0]) * sizeof(float);
            memcpy(each[data ? 2 : 0].data, in + (size_t)n * size, size);
            memcpy(each[1].data, all[1].data, (size_t)length_of(&all[1]) * sizeof(float));
            const operand *y = run_conv(&one, kind, each);
            const size_t part = bytes / (size_t)p.batch;
            assert_memory_equal(y->data, (char *)alone + (size_t)n * part, part);
            drop_operands(each);
        }
        free(alone);
        drop_operands(all);
    }
    fx_set_num_threads(before);
}

static void bits_of_threads_and_batches(void **state)
{
    (void)state;
    check_bits(1);
    check_bits(2);
}

/* NaN and infinities reach the windows over them, and nothing else. Other images keep their bits.
 */
static void odd_numbers(void **state)
{
    (void)state;
    const problem p = {
        .x = {16, 13}, .in = 64, .out = 65, .batch = 4, .before = {1, 1}, .after = {1, 1}};
    enum { WIDTH = 16, HEIGHT = 13, IMAGE = WIDTH * HEIGHT };
    for (int kind = FX_CONV_FORWARD; kind <= FX_CONV_DATA; kind++) {
        const bool data = kind == FX_CONV_DATA;
        operand all[3];
        make_operands(&p, all);
        operand *in = &all[data ? 2 : 0];
        const int64_t channels = data ? p.out : p.in, columns = data ? p.in : p.out;
        for (int64_t i = 0; i < length_of(&all[1]); i++)
            ((float *)all[1].data)[i] = (float)(1 + i % 7);
        const operand *out = run_conv(&p, kind, all);
        const size_t part = IMAGE * (size_t)columns * sizeof(float);
        void *first = malloc(part);
        memcpy(first, out->data, part);
        set_element(in, 4 + WIDTH * 5 + IMAGE * (3 + channels), INFINITY);
        set_element(in, IMAGE - 1 + IMAGE * (32 + 2 * channels), (double)NAN);
        set_element(in, IMAGE * (7 + 3 * channels), -(double)INFINITY);
        run_conv(&p, kind, all);
        assert_memory_equal(out->data, first, part);
        for (int64_t i = 0; i < length_of(out); i++) {
            const int64_t c = i % WIDTH, r = i / WIDTH % HEIGHT, n = i / IMAGE / columns;
            const double v = element(out, i);
            if (n == 1 && llabs(c - 4) <= 1 && llabs(r - 5) <= 1)
                assert_true(v == (double)INFINITY);
            else if (n == 2 && c >= WIDTH - 2 && r >= HEIGHT - 2)
                assert_true(isnan(v));
            else if (n == 3 && c <= 1 && r <= 1)
                assert_true(v == -(double)INFINITY);
            else
                assert_true(isfinite(v));
        }
        free(first);
        drop_operands(all);
    }
}

/* The forward convolution against the defining sum, then releases the operands. */
static void check_defined(const problem *p, operand all[3], double relative, double absolute)
{
    double *want = defined(p, FX_CONV_FORWARD, all);
    const operand *out = run_conv(p, FX_CONV_FORWARD, all);
    for (int64_t i = 0; i < length_of(out); i++)
        check_close(element(out, i), want[i], relative, absolute);
    free(want);
    drop_operands(all);
}

/* Numbers whose transformed tiles or kernels overflow, although the results do not. */
static void large_numbers(void **state)
{
    (void)state;
    const problem p = {
        .x = {16, 16}, .in = 32, .out = 32, .batch = 2, .before = {1, 1}, .after = {1, 1}};
    for (int64_t which = 0; which < 2; which++) {
        operand all[3];
        make_operands(&p, all);
        for (int k = 0; k < 2; k++)
            for (int64_t i = 0; i < length_of(&all[k]); i++)
                ((float *)all[k].data)[i] = k == which ? 0 : 0.25f;
        float *large = all[which].data;
        if (which == 0) /* a difference of two elements */
            large[26] = 3e38f, large[28] = -3e38f;
        else /* the sum of three taps */
            large[0] = 3e38f, large[1] = -3e38f, large[2] = 3e38f;
        check_defined(&p, all, 1e-6, 1e32);
    }
}

/* Positive numbers, so that infinities among them give infinite sums. */
static void make_positive(const problem *p, operand all[3])
{
    make_operands(p, all);
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < length_of(&all[k]); i++)
            ((float *)all[k].data)[i] = (float)(1 + i % (k ? 7 : 3));
}

/* Infinite inputs of which only the upper or only the lower outputs of a tile depend; and an
 * infinite weight, which spoils its own column of every image. */
static void infinite_numbers(void **state)
{
    (void)state;
    const problem p = {.x = {18, 18}, .in = 32, .out = 34, .batch = 3};
    operand all[3];
    make_positive(&p, all);
    set_element(&all[0], 1, INFINITY);
    set_element(&all[0], 6 + 18 * 17 + 18 * 18 * (4 + 2 * 32), INFINITY);
    check_defined(&p, all, 0, 0);
    make_positive(&p, all);
    set_element(&all[1], 9 * (2 + 32 * 5) + 4, INFINITY);
    check_defined(&p, all, 0, 0);
    const problem apart = {.x = {36, 36}, .in = 32, .out = 34, .batch = 2, .dilation = {2, 2}};
    make_positive(&apart, all);
    set_element(&all[0], 7 + 36 * 21 + 36 * 36 * (4 + 32), INFINITY);
    check_defined(&apart, all, 0, 0);
}

/* Fails every allocation in turn, also those of images that are computed again. */
static void failing_allocations(void **state)
{
    (void)state;
    const problem p = {
        .x = {16, 16}, .in = 32, .out = 32, .batch = 2, .before = {1, 1}, .after = {1, 1}};
    for (int kind = FX_CONV_FORWARD; kind <= FX_CONV_DATA; kind++) {
        const bool data = kind == FX_CONV_DATA;
        operand all[3];
        make_operands(&p, all);
        assert_true(suits(&p, kind));
        set_element(&all[data ? 2 : 0], 5, INFINITY);
        const operand *in[] = {&all[data ? 2 : 0], &all[1]};
        const int64_t live = fxi_live_allocations();
        int64_t nth = 0;
        for (bool reached = true; reached; nth++) {
            fxi_fault_set(nth);
            const step_run b =
                run_step(FX_OP_CONV, FX_CLASS_CONV, attr_of(&p, kind), 2, in, &all[data ? 0 : 2]);
            reached = fxi_fault_seen() > nth;
            fxi_fault_set(-1);
            assert_int_equal(fxi_live_allocations(), live);
            if (b.status != FX_OK) {
                assert_int_equal(b.status, FX_STATUS_MEMORY);
                assert_string_equal(b.error.message, "conv: out of memory");
            }
        }
        assert_true(nth > 3);
        drop_operands(all);
    }
}

static fx_array *dilated(fx_array *x, fx_array *w, int dilation)
{
    return fx_convolve(x, w, .pad = FX_DIMS(dilation), .dilation = FX_DIMS(dilation));
}

/* relu(y·s + b) is applied to panels of sums, tanh and a residual afterwards. NaN makes one of the
 * images be computed again. The same as operations that are not fused, bit for bit. */
static void epilogues(void **state)
{
    (void)state;
    setenv("FX_ONEDNN", "0", 1);
    for (int way = 0; way < 4; way++) {
        FX_SCOPE;
        const int infinite = way % 2, dilation = 1 + way / 2;
        fx_seed(23);
        fx_array *x = fx_randn(20, 24, 40, 3), *w = fx_randn(3, 3, 40, 48);
        fx_array *b = fx_randn(1, 1, 48, 1), *r = fx_randn(20, 24, 48, 3);
        if (infinite)
            x = fx_div(x, fx_f32(fx_gt(fx_abs(x), 1e-4)));
        fx_array *y = dilated(x, w, dilation);
        fx_eval(fx_tuple(x, w, b, r, y));
        fx_array *scaled = fx_relu(fx_add(fx_mul(dilated(x, w, dilation), b), b));
        fx_array *curved = fx_tanh(fx_add(dilated(x, w, dilation), r));
        fx_array *want_scaled = fx_relu(fx_add(fx_mul(y, b), b)),
                 *want_curved = fx_tanh(fx_add(y, r));
        fx_eval(fx_tuple(scaled, curved, want_scaled, want_curved));
        assert_int_equal(fx_error_print(stderr), 0);
        const size_t bytes = (size_t)(20 * 24 * 48 * 3) * sizeof(float);
        assert_memory_equal(fx_data(scaled), fx_data(want_scaled), bytes);
        assert_memory_equal(fx_data(curved), fx_data(want_curved), bytes);
    }
    unsetenv("FX_ONEDNN");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_padding),       cmocka_unit_test(shapes),
    cmocka_unit_test(odd_numbers),         cmocka_unit_test(bits_of_threads_and_batches),
    cmocka_unit_test(large_numbers),       cmocka_unit_test(infinite_numbers),
    cmocka_unit_test(failing_allocations), cmocka_unit_test(epilogues),
    cmocka_unit_test(dilations),
};
RUN_ON_EVERY_ISA(tests)
