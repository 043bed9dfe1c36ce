/* Reductions and cumulative sums on the CPU against loops in double: every axis mask, type and
 * layout, long sums, NaN, empty axes, numbers of threads. */
#include "cpu_check.h"

static double combine(int kind, double p, double q)
{
    if (kind == FX_REDUCE_SUM)
        return p + q;
    if (kind == FX_REDUCE_PROD)
        return p * q;
    if (isnan(p) || isnan(q))
        return NAN;
    return kind == FX_REDUCE_MAX ? fmax(p, q) : fmin(p, q);
}

static double neutral(int kind, int dtype)
{
    static const double low[] = {-INFINITY, -INFINITY, -2147483648.0, -0x1p63,
                                 0,         0,         -INFINITY,     -INFINITY};
    static const double high[] = {INFINITY, INFINITY, 2147483647.0, 0x1p63,
                                  255,      1,        INFINITY,     INFINITY};
    return kind == FX_REDUCE_SUM    ? 0
           : kind == FX_REDUCE_PROD ? 1
           : kind == FX_REDUCE_MAX  ? low[dtype]
                                    : high[dtype];
}

static double wrapped(double v, int dtype)
{
    if (dtype == FX_DTYPE_U8)
        return v - 256 * floor(v / 256);
    return dtype == FX_DTYPE_I32 ? v - 0x1p32 * floor(v / 0x1p32 + 0.5) : v;
}

static void reduced_shape(const operand *x, uint32_t mask, int64_t *shape)
{
    for (int d = 0; d < x->t.ndim; d++)
        shape[d] = FXI_AXIS_IN(mask, d) ? 1 : x->t.shape[d];
}

static void check_reduce(int kind, int dtype, layout l, uint32_t mask, int ndim,
                         const int64_t *shape)
{
    int64_t small[FX_MAX_DIMS];
    operand x = make_operand(dtype, l, ndim, shape);
    reduced_shape(&x, mask, small);
    operand out = make_operand(dtype, DENSE, ndim, small);
    const int64_t n = length_of(&out);
    double *want = malloc((size_t)(n + 1) * sizeof *want),
           *size = calloc((size_t)n + 1, sizeof *size);
    assert_true(want && size);
    if (kind == FX_REDUCE_PROD) /* whole powers of two: products are exact in every type */
        for (int64_t i = 0; i < length_of(&x); i++)
            set_element(&x, i, dtype == FX_DTYPE_BOOL ? next_random() % 2 : i % 601 ? 1 : 2);
    for (int64_t i = 0; i < n; i++)
        want[i] = neutral(kind, dtype);
    for (int64_t i = 0; i < length_of(&x); i++) {
        int64_t at = 0, rest = i, step = 1;
        for (int d = 0; d < ndim; d++) {
            at += small[d] == 1 ? 0 : rest % shape[d] * step;
            rest /= shape[d];
            step *= small[d];
        }
        want[at] = combine(kind, want[at], element(&x, i));
        size[at] += fabs(element(&x, i));
    }
    const fx_attr attr = {.reduce = {kind, mask}};
    assert_int_equal(
        run_step(FX_OP_REDUCE, FX_CLASS_REDUCE, attr, 1, (const operand *[]){&x}, &out).status,
        FX_OK);
    for (int64_t i = 0; i < n; i++) {
        const double eps = epsilon_of(dtype);
        if (dtype == FX_DTYPE_F16 && want[i] > 65519)
            want[i] = INFINITY;
        if (kind == FX_REDUCE_MAX || kind == FX_REDUCE_MIN)
            assert_true(element(&out, i) == want[i]);
        else
            check_close(element(&out, i), wrapped(want[i], dtype), eps, eps * size[i]);
    }
    drop_operand(&x), drop_operand(&out);
    free(want), free(size);
}

static void every_mask_type_and_layout(void **state)
{
    (void)state;
    for (int kind = FX_REDUCE_SUM; kind <= FX_REDUCE_PROD; kind++)
        for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
            for (int l = 0; l < LAYOUTS; l++) {
                if (dtype == FX_DTYPE_BOOL && kind == FX_REDUCE_SUM)
                    continue; /* sums of Bool are made of integers */
                for (uint32_t mask = 0; mask < 16; mask++)
                    check_reduce(kind, dtype, (layout)l, mask, SHAPE(5, 1, 17, 3));
                for (uint32_t mask = 0; mask < 8; mask++)
                    check_reduce(kind, dtype, (layout)l, mask, SHAPE(4, 24, 3));
                for (uint32_t mask = 0; mask < 4; mask++) {
                    check_reduce(kind, dtype, (layout)l, mask, SHAPE(300, 21));
                    check_reduce(kind, dtype, (layout)l, mask, SHAPE(2, 40));
                    check_reduce(kind, dtype, (layout)l, mask, SHAPE(3, 64));
                    check_reduce(kind, dtype, (layout)l, mask, SHAPE(7, 12));
                    check_reduce(kind, dtype, DENSE, mask, SHAPE(0, 4));
                    check_reduce(kind, dtype, DENSE, mask, SHAPE(4, 0));
                }
                if (l == DENSE) /* several tiles of columns, even of bytes */
                    check_reduce(kind, dtype, DENSE, 2, SHAPE(17000, 2));
                check_reduce(kind, dtype, (layout)l, 0, 0, NULL);
            }
}

static void long_sums_are_accurate(void **state)
{
    (void)state;
    enum { N = 1000000 };
    for (int dtype = FX_DTYPE_F32; dtype <= FX_DTYPE_F64; dtype++)
        for (int axis = 0; axis < 2; axis++) {
            int64_t shape[2] = {axis ? 2 : N, axis ? N : 2};
            operand x = make_operand(dtype, DENSE, 2, shape);
            long double want[2] = {0, 0};
            for (int64_t i = 0; i < 2 * N; i++) {
                set_element(&x, i, (double)(float)((next_random() % 1000 + 1) / 1000.0));
                want[axis ? i % 2 : i / N] += element(&x, i);
            }
            shape[axis] = 1;
            operand out = make_operand(dtype, DENSE, 2, shape);
            const fx_attr attr = {.reduce = {FX_REDUCE_SUM, 1 << axis}};
            run_step(FX_OP_REDUCE, FX_CLASS_REDUCE, attr, 1, (const operand *[]){&x}, &out);
            for (int k = 0; k < 2; k++)
                check_close(element(&out, k), (double)want[k], dtype == FX_DTYPE_F32 ? 6e-8 : 1e-12,
                            0);
            drop_operand(&x), drop_operand(&out);
        }
}

static void nan_wins(void **state)
{
    (void)state;
    for (int kind = FX_REDUCE_SUM; kind <= FX_REDUCE_PROD; kind++)
        for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
            for (int64_t at = 0; at < 40 && (dtype < 2 || fxi_cpu_is_half(dtype)); at++)
                for (int axis = 0; axis < 2; axis++) {
                    operand x = make_operand(dtype, axis ? REVERSED : DENSE, SHAPE(40, 40));
                    operand out =
                        make_operand(dtype, DENSE, 2,
                                     axis ? (const int64_t[]){40, 1} : (const int64_t[]){1, 40});
                    set_element(&x, axis ? 7 + 40 * at : at + 40 * 7, NAN);
                    const fx_attr attr = {.reduce = {kind, 1 << axis}};
                    run_step(FX_OP_REDUCE, FX_CLASS_REDUCE, attr, 1, (const operand *[]){&x}, &out);
                    for (int64_t i = 0; i < 40; i++)
                        assert_true((isnan(element(&out, i)) != 0) == (i == 7));
                    drop_operand(&x), drop_operand(&out);
                }
}

/* ---- long rows, which are reduced a few at a time -------------------------------------------- */
/* Numbers whose sums are not exact, and a NaN in every third row. */
static void fill_rows(operand *x)
{
    const int64_t n = x->t.shape[0];
    for (int64_t i = 0; i < length_of(x); i++)
        set_element(x, i, ldexp(small_number(FX_DTYPE_F64), (int)(next_random() % 60) - 30));
    for (int64_t r = 0; r < x->t.shape[1]; r += 3)
        set_element(x, r * n + r * 7919 % n, NAN);
}

/* The bits are those of each row alone, and a NaN stays in its row. */
static void check_rows(int kind, const operand *x)
{
    const size_t size = fxi_cpu_size(x->t.dtype);
    operand out = make_operand(x->t.dtype, DENSE, SHAPE(1, x->t.shape[1])),
            alone = make_operand(x->t.dtype, DENSE, SHAPE(1, 1)), row = *x;
    const fx_attr attr = {.reduce = {kind, 1}};
    run_step(FX_OP_REDUCE, FX_CLASS_REDUCE, attr, 1, (const operand *[]){x}, &out);
    row.t.shape[1] = 1;
    for (int64_t r = 0; r < x->t.shape[1];
         r++, row.data = (char *)row.data + x->t.stride[1] * (int64_t)size) {
        run_step(FX_OP_REDUCE, FX_CLASS_REDUCE, attr, 1, (const operand *[]){&row}, &alone);
        assert_memory_equal((char *)out.data + (size_t)r * size, alone.data, size);
        assert_true(isnan(element(&out, r)) == isnan(element(&alone, 0)));
        /* The rows may be in reverse order. */
        assert_true((isnan(element(&out, r)) != 0) ==
                    ((x->t.stride[1] > 0 ? r : x->t.shape[1] - 1 - r) % 3 == 0));
    }
    drop_operand(&out), drop_operand(&alone);
}

static void long_rows(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1024, 128}, {1055, 259}, {1030, 1027}, {2100, 131}};
    for (int dtype = FX_DTYPE_F32; dtype <= FX_DTYPE_F64; dtype++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            operand x = make_operand(dtype, DENSE, 2, shapes[k]);
            fill_rows(&x);
            for (int back = 0; back < 2; back++) {
                for (int kind = FX_REDUCE_SUM; kind <= FX_REDUCE_MIN; kind++)
                    check_rows(kind, &x);
                x.data = (char *)x.data +
                         (shapes[k][1] - 1) * x.t.stride[1] * (int64_t)fxi_cpu_size(dtype);
                x.t.stride[1] = -x.t.stride[1];
            }
            drop_operand(&x);
        }
    for (int kind = FX_REDUCE_SUM; kind <= FX_REDUCE_PROD; kind++)
        for (int l = 0; l < LAYOUTS; l++)
            check_reduce(kind, FX_DTYPE_F32, (layout)l, 1, SHAPE(1055, 2, 131));
}

/* Rows of zeros of both signs: equal rows have equal extremes, wherever they are. */
static void signs_of_zero(void **state)
{
    (void)state;
    enum { N = 1030, ROWS = 259 };
    for (int dtype = FX_DTYPE_F32; dtype <= FX_DTYPE_F64; dtype++)
        for (int kind = FX_REDUCE_MAX; kind <= FX_REDUCE_MIN; kind++) {
            operand x = make_operand(dtype, DENSE, SHAPE(N, ROWS)),
                    out = make_operand(dtype, DENSE, SHAPE(1, ROWS));
            for (int64_t i = 0; i < N * ROWS; i++)
                set_element(&x, i, i % N % 7 == 3 ? 0.0 : -0.0);
            const fx_attr attr = {.reduce = {kind, 1}};
            run_step(FX_OP_REDUCE, FX_CLASS_REDUCE, attr, 1, (const operand *[]){&x}, &out);
            for (int64_t r = 1; r < ROWS; r++)
                assert_memory_equal(out.data, (char *)out.data + (size_t)r * fxi_cpu_size(dtype),
                                    fxi_cpu_size(dtype));
            drop_operand(&x), drop_operand(&out);
        }
}

/* ---- squared deviations and indices of extremes ---------------------------------------------- */
/* Every result of a 2-d operand, from its row or column by plain loops. */
typedef double (*expected_fn)(const double *x, int64_t n, int kind);

static double deviations_of(const double *x, int64_t n, int kind)
{
    (void)kind;
    long double mean = 0, sum = 0;
    for (int64_t i = 0; i < n; i++)
        mean += (long double)x[i] / (long double)n;
    for (int64_t i = 0; i < n; i++)
        sum += ((long double)x[i] - mean) * ((long double)x[i] - mean);
    return (double)sum;
}

static double extreme_of(const double *x, int64_t n, int kind)
{
    int64_t at = 0;
    for (int64_t i = 1; i < n && !isnan(x[at]); i++)
        if (isnan(x[i]) || (kind == FX_REDUCE_ARGMAX ? x[i] > x[at] : x[i] < x[at]))
            at = i;
    return (double)at;
}

static void check_each(int kind, const operand *x, int axis, expected_fn expected, double rel)
{
    int64_t shape[2] = {x->t.shape[0], x->t.shape[1]};
    const int64_t n = shape[axis], results = shape[!axis];
    shape[axis] = 1;
    operand out =
        make_operand(kind == FX_REDUCE_SQDEV ? x->t.dtype : FX_DTYPE_I64, DENSE, 2, shape);
    const fx_attr attr = {.reduce = {kind, 1 << axis}};
    assert_int_equal(
        run_step(FX_OP_REDUCE, FX_CLASS_REDUCE, attr, 1, (const operand *[]){x}, &out).status,
        FX_OK);
    double *terms = malloc((size_t)(n + 1) * sizeof *terms);
    assert_non_null(terms);
    for (int64_t r = 0; r < results; r++) {
        for (int64_t i = 0; i < n; i++)
            terms[i] = axis ? element4(x, r, i, 0, 0) : element4(x, i, r, 0, 0);
        check_close(element(&out, r), expected(terms, n, kind), rel, 1e-25);
    }
    free(terms);
    drop_operand(&out);
}

static void squared_deviations(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1},   {2, 9},    {5, 37},  {17, 40},
                                        {40, 17}, {600, 21}, {9, 1030}};
    for (int dtype = FX_DTYPE_F32; dtype <= FX_DTYPE_F64; dtype++)
        for (int l = 0; l < LAYOUTS; l++)
            for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
                for (int axis = 0; axis < 2; axis++) {
                    operand x = make_operand(dtype, (layout)l, 2, shapes[k]);
                    check_each(FX_REDUCE_SQDEV, &x, axis, deviations_of, 4 * epsilon_of(dtype));
                    drop_operand(&x);
                }
}

/* Far from zero, and with a first element that is far from all others. In pieces as well. */
static void deviations_from_a_large_mean(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1000, 9}, {9, 1000}, {100000, 2}, {2, 100000}};
    for (int dtype = FX_DTYPE_F32; dtype <= FX_DTYPE_F64; dtype++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            for (int outlier = 0; outlier < 2; outlier++)
                for (int axis = 0; axis < 2; axis++) {
                    operand x = make_operand(dtype, DENSE, 2, shapes[k]);
                    for (int64_t i = 0; i < length_of(&x); i++)
                        set_element(&x, i,
                                    outlier && i == 0 ? -3e7 : 1e6 + next_random() % 64 / 8.0);
                    check_each(FX_REDUCE_SQDEV, &x, axis, deviations_of,
                               dtype == FX_DTYPE_F32 ? 1e-6 : 1e-9);
                    drop_operand(&x);
                }
}

static void deviations_that_are_not_numbers(void **state)
{
    (void)state;
    for (int dtype = FX_DTYPE_F32; dtype <= FX_DTYPE_F64; dtype++)
        for (int axis = 0; axis < 2; axis++)
            for (int64_t at = 0; at < 40; at++) {
                operand x = make_operand(dtype, axis ? REVERSED : DENSE, SHAPE(40, 40));
                operand out = make_operand(
                    dtype, DENSE, 2, axis ? (const int64_t[]){40, 1} : (const int64_t[]){1, 40});
                set_element(&x, axis ? 7 + 40 * at : at + 40 * 7, at % 2 ? NAN : INFINITY);
                const fx_attr attr = {.reduce = {FX_REDUCE_SQDEV, 1 << axis}};
                run_step(FX_OP_REDUCE, FX_CLASS_REDUCE, attr, 1, (const operand *[]){&x}, &out);
                for (int64_t i = 0; i < 40; i++)
                    assert_true((isnan(element(&out, i)) != 0) == (i == 7));
                drop_operand(&x), drop_operand(&out);
            }
}

/* Squares beyond the type, of numbers within it. */
static void deviations_that_overflow(void **state)
{
    (void)state;
    static const double huge[] = {1e30, 1e300};
    for (int dtype = FX_DTYPE_F32; dtype <= FX_DTYPE_F64; dtype++)
        for (int axis = 0; axis < 2; axis++) {
            operand x = make_operand(dtype, axis ? REVERSED : DENSE, SHAPE(20, 20));
            operand out = make_operand(dtype, DENSE, 2,
                                       axis ? (const int64_t[]){20, 1} : (const int64_t[]){1, 20});
            set_element(&x, axis ? 20 * 3 : 3, huge[dtype]);
            const fx_attr attr = {.reduce = {FX_REDUCE_SQDEV, 1 << axis}};
            run_step(FX_OP_REDUCE, FX_CLASS_REDUCE, attr, 1, (const operand *[]){&x}, &out);
            for (int64_t i = 0; i < 20; i++)
                assert_true((element(&out, i) == INFINITY) == (i == 0));
            drop_operand(&x), drop_operand(&out);
        }
}

static void indices_of_extremes(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1},    {3, 9},    {33, 40},    {40, 33},   {7, 37},
                                        {5000, 9}, {9, 5000}, {2, 100000}, {100000, 2}};
    for (int kind = FX_REDUCE_ARGMAX; kind <= FX_REDUCE_ARGMIN; kind++)
        for (int dtype = 0; dtype <= FX_DTYPE_BOOL; dtype++)
            for (int l = 0; l < LAYOUTS; l++)
                for (size_t k = 0; k < (l == DENSE && dtype % 4 == 0 ? 9 : 5); k++)
                    for (int axis = 0; axis < 2; axis++) {
                        operand x = make_operand(dtype, (layout)l, 2, shapes[k]);
                        if (dtype <= FX_DTYPE_F64)
                            for (int64_t i = 11; i < length_of(&x); i += 977)
                                set_element(&x, i, i % 3 ? NAN : -INFINITY);
                        check_each(kind, &x, axis, extreme_of, 0);
                        drop_operand(&x);
                    }
}

/* One extreme at each position of a row or column; and rows of nothing but the neutral element.
 */
static void extremes_at_every_place(void **state)
{
    (void)state;
    for (int kind = FX_REDUCE_ARGMAX; kind <= FX_REDUCE_ARGMIN; kind++) {
        const double far = kind == FX_REDUCE_ARGMAX ? 100 : -100;
        for (int64_t at = 0; at < 90; at++)
            for (int axis = 0; axis < 2; axis++) {
                operand x = make_operand(FX_DTYPE_F32, DENSE, SHAPE(90, 90));
                set_element(&x, axis ? 5 + 90 * at : at + 90 * 5, far);
                check_each(kind, &x, axis, extreme_of, 0);
                for (int64_t i = 0; i < length_of(&x); i++)
                    set_element(&x, i, kind == FX_REDUCE_ARGMAX ? -INFINITY : INFINITY);
                check_each(kind, &x, axis, extreme_of, 0);
                drop_operand(&x);
            }
    }
}

/* Few results of many terms: in pieces, which are the same for any number of threads. */
static void pieces_do_not_depend_on_threads(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1000000, 1}, {3, 500000}, {500000, 3}, {2000, 700}};
    const int before = fx_num_threads();
    for (int kind = 0; kind <= FX_REDUCE_ARGMIN; kind++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            for (uint32_t mask = 1; mask < 4; mask++) {
                if (kind >= FX_REDUCE_ARGMAX && mask == 3)
                    continue;
                int64_t shape[2];
                operand x = make_operand(FX_DTYPE_F32, DENSE, 2, shapes[k]);
                reduced_shape(&x, mask, shape);
                operand out[2];
                for (int t = 0; t < 2; t++) {
                    fx_set_num_threads(t ? 3 : 1);
                    out[t] = make_operand(kind >= FX_REDUCE_ARGMAX ? FX_DTYPE_I64 : FX_DTYPE_F32,
                                          DENSE, 2, shape);
                    const fx_attr attr = {.reduce = {kind, mask}};
                    run_step(FX_OP_REDUCE, FX_CLASS_REDUCE, attr, 1, (const operand *[]){&x},
                             &out[t]);
                }
                assert_memory_equal(out[0].data, out[1].data, (size_t)out[0].bytes);
                drop_operand(&out[0]), drop_operand(&out[1]), drop_operand(&x);
            }
    fx_set_num_threads(before);
}

static void check_cumsum(int dtype, layout l, int axis, bool from_end, int ndim,
                         const int64_t *shape)
{
    operand x = make_operand(dtype, l, ndim, shape), out = make_operand(dtype, DENSE, ndim, shape);
    const fx_attr attr = {.scan = {axis, from_end}};
    assert_int_equal(
        run_step(FX_OP_CUMSUM, FX_CLASS_SCAN, attr, 1, (const operand *[]){&x}, &out).status,
        FX_OK);
    const int64_t step = out.t.stride[axis], n = shape[axis];
    for (int64_t i = 0; i < length_of(&out); i++) {
        const int64_t k = i / step % n, base = i - k * step;
        double want = 0, size = 0;
        for (int64_t j = from_end ? k : 0; j <= (from_end ? n - 1 : k); j++) {
            want += element(&x, base + j * step);
            size += fabs(element(&x, base + j * step));
        }
        check_close(element(&out, i), wrapped(want, dtype), epsilon_of(dtype),
                    epsilon_of(dtype) * size);
    }
    drop_operand(&x), drop_operand(&out);
}

static void cumulative_sums(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
        for (int l = 0; l < LAYOUTS && dtype != FX_DTYPE_BOOL; l++)
            for (int from_end = 0; from_end < 2; from_end++) {
                for (int axis = 0; axis < 3; axis++) {
                    check_cumsum(dtype, (layout)l, axis, from_end, SHAPE(6, 7, 5));
                    check_cumsum(dtype, DENSE, axis, from_end, SHAPE(3, 0, 2));
                }
                check_cumsum(dtype, (layout)l, 1, from_end, SHAPE(300, 4));
                /* Vectors along the axis and a rest; sums of few inner elements in registers. */
                for (int64_t inner = 1; inner <= 5; inner++)
                    check_cumsum(dtype, (layout)l, 1, from_end, SHAPE(inner, 37, 2));
            }
}

/* Each allocation of a long sum fails in turn. 16-bit elements are converted in work space. */
static void failing_allocations(void **state)
{
    (void)state;
    static const uint8_t dtypes[] = {FX_DTYPE_F32, FX_DTYPE_F16};
    const fx_attr attr = {.reduce = {FX_REDUCE_SUM, 1}};
    for (int k = 0; k < 2; k++) {
        operand x = make_operand(dtypes[k], DENSE, SHAPE(1 << 18)),
                out = make_operand(dtypes[k], DENSE, SHAPE(1));
        const int64_t live = fxi_live_allocations();
        int64_t failed = 0;
        for (fx_status status = FX_STATUS_MEMORY; status == FX_STATUS_MEMORY; failed++) {
            fxi_fault_set(failed);
            const step_run b =
                run_step(FX_OP_REDUCE, FX_CLASS_REDUCE, attr, 1, (const operand *[]){&x}, &out);
            fxi_fault_set(-1);
            status = b.status;
            assert_string_equal(b.error.message, status ? "reduce: out of memory" : "");
            assert_int_equal(fxi_live_allocations(), live);
        }
        assert_true(failed > 1); /* the last attempt gave the correct result */
        drop_operand(&x), drop_operand(&out);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_mask_type_and_layout),
    cmocka_unit_test(long_sums_are_accurate),
    cmocka_unit_test(nan_wins),
    cmocka_unit_test(long_rows),
    cmocka_unit_test(signs_of_zero),
    cmocka_unit_test(squared_deviations),
    cmocka_unit_test(deviations_from_a_large_mean),
    cmocka_unit_test(deviations_that_are_not_numbers),
    cmocka_unit_test(deviations_that_overflow),
    cmocka_unit_test(indices_of_extremes),
    cmocka_unit_test(extremes_at_every_place),
    cmocka_unit_test(pieces_do_not_depend_on_threads),
    cmocka_unit_test(cumulative_sums),
    cmocka_unit_test(failing_allocations),
};
RUN_ON_EVERY_ISA(tests)
