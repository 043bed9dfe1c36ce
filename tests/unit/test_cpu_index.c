/* Gather and scatter on the CPU against loops over single elements: every axis, layout and type,
 * both index types, indices of several axes, order of sums, indices out of range, failing
 * allocations. */
#include "cpu_check.h"

static void fill_indices(operand *idx, int64_t n)
{
    for (int64_t k = 0; k < length_of(idx); k++)
        set_element(idx, k, (double)(next_random() % (uint32_t)n));
}

/* Shape x[:axis] × idx × x[axis+1:] */
static int joined_shape(const fx_tensor *x, int axis, const fx_tensor *idx, int64_t *shape)
{
    int nd = 0;
    for (int d = 0; d < axis; d++)
        shape[nd++] = x->shape[d];
    for (int d = 0; d < idx->ndim; d++)
        shape[nd++] = idx->shape[d];
    for (int d = axis + 1; d < x->ndim; d++)
        shape[nd++] = x->shape[d];
    return nd;
}

typedef struct split {
    int64_t inner, n, outer; /* n: indices */
} split;

static split split_at(const fx_tensor *x, int axis, const operand *idx)
{
    return (split){fxi_length(axis, x->shape), length_of(idx),
                   fxi_length(x->ndim - axis - 1, x->shape + axis + 1)};
}

static void check_gather(int dtype, int idx_type, layout l, int axis, int ndim,
                         const int64_t *shape)
{
    int64_t joined[FX_MAX_DIMS];
    operand x = make_operand(dtype, l, ndim, shape), idx = make_operand(idx_type, l, SHAPE(4, 3));
    fill_indices(&idx, shape[axis]);
    const int nd = joined_shape(&x.t, axis, &idx.t, joined);
    operand out = make_operand(dtype, DENSE, nd, joined);
    const fx_attr attr = {.axis = axis};
    assert_int_equal(
        run_step(FX_OP_GATHER, FX_CLASS_GATHER, attr, 2, (const operand *[]){&x, &idx}, &out)
            .status,
        FX_OK);
    const split s = split_at(&x.t, axis, &idx);
    for (int64_t i = 0; i < length_of(&out); i++) {
        const int64_t inner = i % s.inner, k = i / s.inner % s.n, outer = i / s.inner / s.n;
        const int64_t from = inner + s.inner * ((int64_t)element(&idx, k) + shape[axis] * outer);
        assert_true(element(&out, i) == element(&x, from));
    }
    drop_operand(&x), drop_operand(&idx), drop_operand(&out);
}

static void gathers(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int axis = 0; axis < 3; axis++) {
                check_gather(dtype, FX_DTYPE_I32, (layout)l, axis, SHAPE(5, 6, 7));
                check_gather(dtype, FX_DTYPE_I64, (layout)l, axis, SHAPE(1, 9, 3));
                check_gather(dtype, FX_DTYPE_I64, DENSE, axis,
                             SHAPE(axis == 1 ? 0 : 2, axis == 1 ? 3 : 2, axis == 1 ? 2 : 2));
            }
}

static double combine(int kind, double p, double q)
{
    return kind == FX_REDUCE_SUM    ? p + q
           : kind == FX_REDUCE_PROD ? p * q
           : kind == FX_REDUCE_MAX  ? fmax(p, q)
                                    : fmin(p, q);
}

/* width: elements of a row of the first axis. */
static void check_scatter(int kind, int dtype, layout l, int axis, int64_t n, int64_t width)
{
    static const double low[] = {-INFINITY, -INFINITY, -2147483648.0, -0x1p63,
                                 0,         0,         -INFINITY,     -INFINITY};
    static const double high[] = {INFINITY, INFINITY, 2147483647.0, 0x1p63,
                                  255,      1,        INFINITY,     INFINITY};
    int64_t shape[] = {width, 3, 5}, joined[FX_MAX_DIMS];
    shape[axis] = n;
    operand out = make_operand(dtype, DENSE, 3, shape),
            idx = make_operand(FX_DTYPE_I64, l, SHAPE(2, 3));
    fill_indices(&idx, n);
    const int nd = joined_shape(&out.t, axis, &idx.t, joined);
    operand src = make_operand(dtype, l, nd, joined);
    const split s = split_at(&out.t, axis, &idx);
    double *want = malloc((size_t)length_of(&out) * sizeof *want);
    assert_non_null(want);
    const double start[] = {[FX_REDUCE_SUM] = 0,
                            [FX_REDUCE_MAX] = low[dtype],
                            [FX_REDUCE_MIN] = high[dtype],
                            [FX_REDUCE_PROD] = 1};
    for (int64_t i = 0; i < length_of(&out); i++)
        want[i] = start[kind];
    for (int64_t i = 0; i < length_of(&src); i++) {
        if (kind == FX_REDUCE_PROD)
            set_element(&src, i, 1 + (double)(next_random() % 2));
        const int64_t k = (int64_t)element(&idx, i / s.inner % s.n);
        const int64_t to = i % s.inner + s.inner * (k + n * (i / s.inner / s.n));
        want[to] = combine(kind, want[to], element(&src, i));
        if (l == BROADCAST && kind == FX_REDUCE_PROD)
            break; /* writing changed several elements at once: only check that it runs */
    }
    const fx_attr attr = {.scatter = {kind, axis}};
    assert_int_equal(
        run_step(FX_OP_SCATTER, FX_CLASS_SCATTER, attr, 2, (const operand *[]){&src, &idx}, &out)
            .status,
        FX_OK);
    for (int64_t i = 0; i < length_of(&out) && !(l == BROADCAST && kind == FX_REDUCE_PROD); i++)
        check_close(element(&out, i), dtype == FX_DTYPE_U8 ? fmod(want[i], 256) : want[i],
                    4 * epsilon_of(dtype), 8 * epsilon_of(dtype));
    free(want);
    drop_operand(&out), drop_operand(&idx), drop_operand(&src);
}

static void scatters(void **state)
{
    (void)state;
    for (int kind = FX_REDUCE_SUM; kind <= FX_REDUCE_PROD; kind++)
        for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
            for (int l = 0; l < LAYOUTS && dtype != FX_DTYPE_BOOL; l++)
                for (int axis = 0; axis < 3; axis++) {
                    check_scatter(kind, dtype, (layout)l, axis, 3, 4);
                    check_scatter(kind, dtype, (layout)l, axis, 40, 4);
                }
}

/* Rows of at least a cache line are sorted, and computed in pieces if they are very long. */
static void scatters_of_long_rows(void **state)
{
    (void)state;
    for (int kind = FX_REDUCE_SUM; kind <= FX_REDUCE_PROD; kind++)
        for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
            for (int axis = 1; axis < 3 && dtype != FX_DTYPE_BOOL; axis++) {
                check_scatter(kind, dtype, DENSE, axis, 4, 70);
                check_scatter(kind, dtype, DENSE, axis, 4, axis == 1 ? 1500 : 470);
            }
    /* An output that is written past the caches. */
    check_scatter(FX_REDUCE_SUM, FX_DTYPE_F32, DENSE, 1, 6600, 64);
    check_scatter(FX_REDUCE_MAX, FX_DTYPE_F64, DENSE, 2, 5500, 64);
}

/* By element: x and the indices differ in size along the axis only, and each element has an
 * index. */
static void check_elements(int dtype, int idx_type, layout l, int axis, int64_t n,
                           const int64_t *shape)
{
    int64_t sizes[] = {shape[0], shape[1], shape[2]};
    sizes[axis] = n;
    operand x = make_operand(dtype, l, SHAPE(sizes[0], sizes[1], sizes[2])),
            idx = make_operand(idx_type, l, SHAPE(shape[0], shape[1], shape[2])),
            y = make_operand(dtype, DENSE, SHAPE(shape[0], shape[1], shape[2])),
            sum = make_operand(dtype, DENSE, SHAPE(sizes[0], sizes[1], sizes[2]));
    double *want = calloc((size_t)length_of(&sum) + 1, sizeof *want);
    assert_non_null(want);
    fill_indices(&idx, n);
    step_run b = run_step(FX_OP_GATHER, FX_CLASS_GATHER, (fx_attr){.axis = axis}, 2,
                          (const operand *[]){&x, &idx}, &y);
    assert_int_equal(b.status, FX_OK);
    const int64_t inner = fxi_length(axis, shape), m = shape[axis];
    for (int64_t i = 0; i < length_of(&y); i++) {
        const int64_t k = (int64_t)element(&idx, i),
                      at = i % inner + inner * (k + n * (i / inner / m));
        assert_true(element(&y, i) == element(&x, at));
        want[at] += element(&y, i);
    }
    if (dtype != FX_DTYPE_BOOL) {
        b = run_step(FX_OP_SCATTER, FX_CLASS_SCATTER, (fx_attr){.scatter = {FX_REDUCE_SUM, axis}},
                     2, (const operand *[]){&y, &idx}, &sum);
        assert_int_equal(b.status, FX_OK);
        for (int64_t i = 0; i < length_of(&sum); i++)
            check_close(element(&sum, i), dtype == FX_DTYPE_U8 ? fmod(want[i], 256) : want[i],
                        8 * epsilon_of(dtype), 32 * epsilon_of(dtype));
    }
    free(want);
    drop_operand(&x), drop_operand(&idx), drop_operand(&y), drop_operand(&sum);
}

static void elements(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int axis = 0; axis < 3; axis++) {
                if (l != BROADCAST) { /* writing an index would change several */
                    check_elements(dtype, FX_DTYPE_I32, (layout)l, axis, 6,
                                   (const int64_t[]){5, 4, 3});
                    check_elements(dtype, FX_DTYPE_I64, (layout)l, axis, 2,
                                   (const int64_t[]){1, 4, 3});
                }
                check_elements(dtype, FX_DTYPE_I64, DENSE, axis, 3,
                               (const int64_t[]){2, axis == 1 ? 0 : 2, 2});
            }
    /* Several tiles of indices, several pieces, and outputs that are written past the caches. */
    for (int axis = 0; axis < 2; axis++)
        check_elements(FX_DTYPE_F32, FX_DTYPE_I32, DENSE, axis, 70, (const int64_t[]){2100, 8, 2});
    check_elements(FX_DTYPE_I64, FX_DTYPE_I64, DENSE, 0, 2048, (const int64_t[]){2048, 513, 1});
}

static void sums_are_taken_in_index_order(void **state)
{
    (void)state;
    const double values[] = {1e8, 1, -1e8, 1}; /* Float32: ((1e8 + 1) − 1e8) + 1 = 1 */
    operand src = make_operand(FX_DTYPE_F32, DENSE, SHAPE(4)),
            idx = make_operand(FX_DTYPE_I32, DENSE, SHAPE(4));
    operand out = make_operand(FX_DTYPE_F32, DENSE, SHAPE(2));
    for (int k = 0; k < 4; k++)
        set_element(&src, k, values[k]), set_element(&idx, k, 1);
    const fx_attr attr = {.scatter = {FX_REDUCE_SUM, 0}};
    run_step(FX_OP_SCATTER, FX_CLASS_SCATTER, attr, 2, (const operand *[]){&src, &idx}, &out);
    assert_true(element(&out, 0) == 0 && element(&out, 1) == 1);
    set_element(&src, 2, NAN);
    const fx_attr max = {.scatter = {FX_REDUCE_MAX, 0}};
    run_step(FX_OP_SCATTER, FX_CLASS_SCATTER, max, 2, (const operand *[]){&src, &idx}, &out);
    assert_true(element(&out, 0) == -INFINITY && isnan(element(&out, 1)));
    drop_operand(&src), drop_operand(&idx), drop_operand(&out);
}

/* −0 is below 0 in every order, as for fx_max and fx_min of two arrays and for `ref`. */
static void zeros_keep_their_order(void **state)
{
    (void)state;
    for (int dtype = FX_DTYPE_F32; dtype <= FX_DTYPE_F64; dtype++)
        for (int first = 0; first < 2; first++)
            for (int min = 0; min < 2; min++) {
                operand src = make_operand(dtype, DENSE, SHAPE(2)),
                        idx = make_operand(FX_DTYPE_I32, DENSE, SHAPE(2)),
                        out = make_operand(dtype, DENSE, SHAPE(1));
                set_element(&src, first, 0.0), set_element(&src, 1 - first, -0.0);
                set_element(&idx, 0, 0), set_element(&idx, 1, 0);
                const fx_attr attr = {.scatter = {min ? FX_REDUCE_MIN : FX_REDUCE_MAX, 0}};
                run_step(FX_OP_SCATTER, FX_CLASS_SCATTER, attr, 2, (const operand *[]){&src, &idx},
                         &out);
                assert_true(element(&out, 0) == 0);
                assert_int_equal(signbit(element(&out, 0)) != 0, min);
                drop_operand(&src), drop_operand(&idx), drop_operand(&out);
            }
}

static void indices_out_of_range(void **state)
{
    (void)state;
    operand x = make_operand(FX_DTYPE_F32, DENSE, SHAPE(3, 5)),
            idx = make_operand(FX_DTYPE_I32, DENSE, SHAPE(2));
    operand out = make_operand(FX_DTYPE_F32, DENSE, SHAPE(3, 2));
    const int64_t live = fxi_live_allocations();
    set_element(&idx, 0, 4), set_element(&idx, 1, 7);
    step_run b = run_step(FX_OP_GATHER, FX_CLASS_GATHER, (fx_attr){.axis = 1}, 2,
                          (const operand *[]){&x, &idx}, &out);
    assert_int_equal(b.status, FX_STATUS_ARGUMENT);
    assert_string_equal(b.error.message, "gather: index 7 is out of range for axis 1 of size 5");
    set_element(&idx, 1, -1);
    b = run_step(FX_OP_SCATTER, FX_CLASS_SCATTER, (fx_attr){.scatter = {FX_REDUCE_SUM, 1}}, 2,
                 (const operand *[]){&out, &idx}, &x);
    assert_int_equal(b.status, FX_STATUS_ARGUMENT);
    assert_string_equal(b.error.message, "scatter: index -1 is out of range for axis 1 of size 5");
    /* By element, the first wrong index is reported. */
    operand each = make_operand(FX_DTYPE_I64, DENSE, SHAPE(3, 2));
    for (int k = 0; k < 6; k++)
        set_element(&each, k, k < 3 ? 4 : 5 + k);
    b = run_step(FX_OP_GATHER, FX_CLASS_GATHER, (fx_attr){.axis = 1}, 2,
                 (const operand *[]){&x, &each}, &out);
    assert_string_equal(b.error.message, "gather: index 8 is out of range for axis 1 of size 5");
    set_element(&each, 4, -1), set_element(&each, 3, 0);
    b = run_step(FX_OP_SCATTER, FX_CLASS_SCATTER, (fx_attr){.scatter = {FX_REDUCE_SUM, 1}}, 2,
                 (const operand *[]){&out, &each}, &x);
    assert_int_equal(b.status, FX_STATUS_ARGUMENT);
    assert_string_equal(b.error.message, "scatter: index -1 is out of range for axis 1 of size 5");
    drop_operand(&each);
    assert_int_equal(fxi_live_allocations(), live);
    drop_operand(&x), drop_operand(&idx), drop_operand(&out);
}

static void failing_allocations(void **state)
{
    (void)state;
    operand src = make_operand(FX_DTYPE_F32, GAPS, SHAPE(20, 2)),
            idx = make_operand(FX_DTYPE_I32, DENSE, SHAPE(2));
    operand out = make_operand(FX_DTYPE_F32, DENSE, SHAPE(20, 5));
    const int64_t live = fxi_live_allocations();
    fill_indices(&idx, 5);
    for (int64_t nth = 0; nth < 3; nth++) { /* indices, src, sorting */
        fxi_fault_set(nth);
        const step_run b =
            run_step(FX_OP_SCATTER, FX_CLASS_SCATTER, (fx_attr){.scatter = {FX_REDUCE_SUM, 1}}, 2,
                     (const operand *[]){&src, &idx}, &out);
        fxi_fault_set(-1);
        assert_int_equal(b.status, FX_STATUS_MEMORY);
        assert_int_equal(fxi_live_allocations(), live);
    }
    drop_operand(&src), drop_operand(&idx), drop_operand(&out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gathers),
    cmocka_unit_test(scatters),
    cmocka_unit_test(scatters_of_long_rows),
    cmocka_unit_test(elements),
    cmocka_unit_test(sums_are_taken_in_index_order),
    cmocka_unit_test(zeros_keep_their_order),
    cmocka_unit_test(indices_out_of_range),
    cmocka_unit_test(failing_allocations),
};
RUN_ON_EVERY_ISA(tests)
