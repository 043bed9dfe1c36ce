/* Reductions and cumulative sums on the CPU against loops in double: every axis mask, type and
 * layout, long sums, NaN, empty axes. */
#include "cpu_check.h"

static double combine(int kind, double p, double q)
{
    if (kind == FXI_SUM)
        return p + q;
    if (kind == FXI_PROD)
        return p * q;
    if (isnan(p) || isnan(q))
        return NAN;
    return kind == FXI_MAX ? fmax(p, q) : fmin(p, q);
}

static double neutral(int kind, int dtype)
{
    static const double low[] = {-INFINITY, -INFINITY, -2147483648.0, -0x1p63,
                                 0,         0,         -INFINITY,     -INFINITY};
    static const double high[] = {INFINITY, INFINITY, 2147483647.0, 0x1p63,
                                  255,      1,        INFINITY,     INFINITY};
    return kind == FXI_SUM ? 0 : kind == FXI_PROD ? 1 : kind == FXI_MAX ? low[dtype] : high[dtype];
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
    if (kind == FXI_PROD) /* whole powers of two: products are exact in every type */
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
    const fxi_attr attr = {.i = {kind, mask}};
    assert_int_equal(
        run_step(FXI_OP_REDUCE, FXI_CLASS_REDUCE, attr, 1, (const operand *[]){&x}, &out).status,
        FX_OK);
    for (int64_t i = 0; i < n; i++) {
        const double eps = epsilon_of(dtype);
        if (dtype == FX_DTYPE_F16 && want[i] > 65519)
            want[i] = INFINITY;
        if (kind == FXI_MAX || kind == FXI_MIN)
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
    for (int kind = FXI_SUM; kind <= FXI_PROD; kind++)
        for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
            for (int l = 0; l < LAYOUTS; l++) {
                if (dtype == FX_DTYPE_BOOL && kind == FXI_SUM)
                    continue; /* sums of Bool are made of integers */
                for (uint32_t mask = 0; mask < 16; mask++)
                    check_reduce(kind, dtype, (layout)l, mask, SHAPE(5, 1, 17, 3));
                for (uint32_t mask = 0; mask < 4; mask++) {
                    check_reduce(kind, dtype, (layout)l, mask, SHAPE(300, 21));
                    check_reduce(kind, dtype, (layout)l, mask, SHAPE(2, 40));
                    check_reduce(kind, dtype, DENSE, mask, SHAPE(0, 4));
                    check_reduce(kind, dtype, DENSE, mask, SHAPE(4, 0));
                }
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
            const fxi_attr attr = {.i = {FXI_SUM, 1 << axis}};
            run_step(FXI_OP_REDUCE, FXI_CLASS_REDUCE, attr, 1, (const operand *[]){&x}, &out);
            for (int k = 0; k < 2; k++)
                check_close(element(&out, k), (double)want[k], dtype == FX_DTYPE_F32 ? 6e-8 : 1e-12,
                            0);
            drop_operand(&x), drop_operand(&out);
        }
}

static void nan_wins(void **state)
{
    (void)state;
    for (int kind = FXI_SUM; kind <= FXI_PROD; kind++)
        for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
            for (int64_t at = 0; at < 40 && (dtype < 2 || fxi_cpu_is_half(dtype)); at++)
                for (int axis = 0; axis < 2; axis++) {
                    operand x = make_operand(dtype, axis ? REVERSED : DENSE, SHAPE(40, 40));
                    operand out =
                        make_operand(dtype, DENSE, 2,
                                     axis ? (const int64_t[]){40, 1} : (const int64_t[]){1, 40});
                    set_element(&x, axis ? 7 + 40 * at : at + 40 * 7, NAN);
                    const fxi_attr attr = {.i = {kind, 1 << axis}};
                    run_step(FXI_OP_REDUCE, FXI_CLASS_REDUCE, attr, 1, (const operand *[]){&x},
                             &out);
                    for (int64_t i = 0; i < 40; i++)
                        assert_true(isnan(element(&out, i)) == (i == 7));
                    drop_operand(&x), drop_operand(&out);
                }
}

static void check_cumsum(int dtype, layout l, int axis, bool from_end, int ndim,
                         const int64_t *shape)
{
    operand x = make_operand(dtype, l, ndim, shape), out = make_operand(dtype, DENSE, ndim, shape);
    const fxi_attr attr = {.i = {axis, from_end}};
    assert_int_equal(
        run_step(FXI_OP_CUMSUM, FXI_CLASS_SCAN, attr, 1, (const operand *[]){&x}, &out).status,
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
            }
}

static void failing_allocations(void **state)
{
    (void)state;
    const fxi_attr attr = {.i = {FXI_SUM, 1}};
    for (int64_t nth = 0; nth < 2; nth++) {
        operand x = make_operand(FX_DTYPE_F16, DENSE, SHAPE(4, 4)),
                out = make_operand(FX_DTYPE_F16, DENSE, SHAPE(1, 4));
        const int64_t live = fxi_live_allocations();
        fxi_fault_set(nth);
        const bench b =
            run_step(FXI_OP_REDUCE, FXI_CLASS_REDUCE, attr, 1, (const operand *[]){&x}, &out);
        fxi_fault_set(-1);
        assert_int_equal(b.status, FX_STATUS_MEMORY);
        assert_string_equal(b.run.error, "reduce: out of memory");
        assert_int_equal(fxi_live_allocations(), live);
        drop_operand(&x), drop_operand(&out);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_mask_type_and_layout),
    cmocka_unit_test(long_sums_are_accurate),
    cmocka_unit_test(nan_wins),
    cmocka_unit_test(cumulative_sums),
    cmocka_unit_test(failing_allocations),
};
RUN_ON_EVERY_ISA(tests)
