/* Matrix products on the CPU against the triple loop in double: sizes around every block edge, all
 * transposes, layouts and types, batches with broadcasting, empty sizes, equal bits whatever the
 * batch. */
#include "cpu_check.h"

static operand matrix(int dtype, layout l, int64_t rows, int64_t columns, bool transposed)
{
    const int64_t shape[] = {transposed ? columns : rows, transposed ? rows : columns};
    return make_operand(dtype, l, 2, shape);
}

static double wrapped(double v, int dtype)
{
    return dtype == FX_DTYPE_U8 ? v - 256 * floor(v / 256) : v;
}

static void check_product(int dtype, layout la, layout lb, bool ta, bool tb, int64_t m, int64_t n,
                          int64_t k)
{
    operand a = matrix(dtype, la, m, k, ta), b = matrix(dtype, lb, k, n, tb),
            out = matrix(dtype, DENSE, m, n, false);
    const fx_attr attr = {.matmul = {ta, tb}};
    assert_int_equal(
        run_step(FX_OP_MATMUL, FX_CLASS_MATMUL, attr, 2, (const operand *[]){&a, &b}, &out).status,
        FX_OK);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double want = 0, size = 0;
            for (int64_t p = 0; p < k; p++) {
                const double x = ta ? element4(&a, p, i, 0, 0) : element4(&a, i, p, 0, 0);
                const double y = tb ? element4(&b, j, p, 0, 0) : element4(&b, p, j, 0, 0);
                want += x * y;
                size += fabs(x * y);
            }
            const double eps = epsilon_of(dtype);
            check_close(element4(&out, i, j, 0, 0), wrapped(want, dtype), eps, eps * size);
        }
    drop_operand(&a), drop_operand(&b), drop_operand(&out);
}

static void types_layouts_and_transposes(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
        for (int l = 0; l < LAYOUTS && dtype != FX_DTYPE_BOOL; l++)
            for (int t = 0; t < 4; t++) {
                check_product(dtype, (layout)l, (layout)((l + 1) % LAYOUTS), t & 1, t & 2, 37, 29,
                              41);
                check_product(dtype, (layout)l, DENSE, t & 1, t & 2, 5, 3, 4);
            }
}

static void sizes_at_the_edges(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 7, 16, 33, 70};
    static const int64_t depths[] = {0, 1, 5, 255, 256, 257, 515};
    for (int dtype = FX_DTYPE_F32; dtype <= FX_DTYPE_F64; dtype++)
        for (size_t i = 0; i < 6; i++)
            for (size_t j = 0; j < 6; j++)
                for (size_t k = 0; k < 7; k++)
                    check_product(dtype, DENSE, DENSE, (i + k) % 2, (j + k) % 2, sizes[i], sizes[j],
                                  depths[k]);
    check_product(FX_DTYPE_F32, DENSE, DENSE, false, false, 140, 1020, 9);
    check_product(FX_DTYPE_F32, DENSE, DENSE, false, false, 10, 64, 256);
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
        if (dtype != FX_DTYPE_BOOL) {
            check_product(dtype, DENSE, DENSE, false, false, 0, 3, 2);
            check_product(dtype, DENSE, DENSE, false, false, 3, 0, 2);
            check_product(dtype, DENSE, DENSE, false, false, 3, 2, 0);
        }
}

/* Sizes that take every way to divide and pack: some elements against the sum in double, and the
 * same bits from any number of threads. */
static void large_products_in_threads(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{300, 1030, 2100}, {1100, 40, 700}, {40, 1300, 530},
                                       {700, 96, 1100},   {1, 3000, 900},  {3000, 1, 900},
                                       {97, 200, 65},     {520, 530, 70},  {10, 2000, 300},
                                       {280, 30, 1024},   {129, 1100, 77}, {150, 1100, 77}};
    const int before = fx_num_threads();
    static const int types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16, FX_DTYPE_BF16};
    for (int type = 0; type < 4; type++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const int dtype = types[type];
            const int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
            const bool ta = s % 2, tb = (s + (size_t)type) % 2;
            operand a = matrix(dtype, DENSE, m, k, ta), b = matrix(dtype, DENSE, k, n, tb),
                    one = matrix(dtype, DENSE, m, n, false),
                    more = matrix(dtype, DENSE, m, n, false);
            const fx_attr attr = {.matmul = {ta, tb}};
            const operand *const in[] = {&a, &b};
            fx_set_num_threads(1);
            run_step(FX_OP_MATMUL, FX_CLASS_MATMUL, attr, 2, in, &one);
            fx_set_num_threads(3);
            run_step(FX_OP_MATMUL, FX_CLASS_MATMUL, attr, 2, in, &more);
            assert_memory_equal(one.data, more.data, (size_t)(m * n) * fxi_cpu_size(dtype));
            for (int64_t e = 0; e < m * n; e += 1 + m * n / 311) {
                double want = 0, size = 0;
                for (int64_t p = 0; p < k; p++) {
                    const double v = element(&a, ta ? p + e % m * k : e % m + p * m) *
                                     element(&b, tb ? e / m + p * n : p + e / m * k);
                    want += v, size += fabs(v);
                }
                check_close(element(&one, e), want, epsilon_of(dtype), epsilon_of(dtype) * size);
            }
            drop_operand(&a), drop_operand(&b), drop_operand(&one), drop_operand(&more);
        }
    fx_set_num_threads(before);
}

/* Rows of A whose distance is a multiple of 4096 bytes are packed by blocks, and the terms and rows
 * that are left by squares or one by one (cpu_isa_gemm.h). */
static void rows_of_the_same_cache_sets(void **state)
{
    (void)state;
    enum { M = 70, N = 19, K = 1001, APART = 1024 };
    for (int dtype = FX_DTYPE_F32; dtype <= FX_DTYPE_F64; dtype++) {
        operand a = matrix(dtype, DENSE, M, APART, true), b = matrix(dtype, DENSE, K, N, false),
                out = matrix(dtype, DENSE, M, N, false);
        a.t.shape[0] = K;
        const fx_attr attr = {.matmul = {true, false}};
        assert_int_equal(
            run_step(FX_OP_MATMUL, FX_CLASS_MATMUL, attr, 2, (const operand *[]){&a, &b}, &out)
                .status,
            FX_OK);
        for (int64_t e = 0; e < M * N; e++) {
            double want = 0, size = 0;
            for (int64_t p = 0; p < K; p++) {
                const double v = element4(&a, p, e % M, 0, 0) * element4(&b, p, e / M, 0, 0);
                want += v, size += fabs(v);
            }
            check_close(element(&out, e), want, epsilon_of(dtype), epsilon_of(dtype) * size);
        }
        drop_operand(&a), drop_operand(&b), drop_operand(&out);
    }
}

/* Sums so long that packed B exceeds the last-level cache: it is packed for a part of the sum at a
 * time, and in the second case also for some columns at a time. Some elements against the sum in
 * double; the same bits from any number of threads, and as in a product of the first columns alone,
 * whose packed B fits in the cache. */
static void check_long_sum(int dtype, bool tb, const int64_t *size)
{
    enum { FEW = 5 };
    const int64_t m = size[0], n = size[1], k = size[2];
    operand a = matrix(dtype, DENSE, m, k, false), b = matrix(dtype, DENSE, k, n, tb),
            one = matrix(dtype, DENSE, m, n, false), more = matrix(dtype, DENSE, m, n, false),
            few = matrix(dtype, DENSE, m, FEW, false), first = b;
    first.t.shape[!tb] = FEW;
    const fx_attr attr = {.matmul = {false, tb}};
    fx_set_num_threads(1);
    run_step(FX_OP_MATMUL, FX_CLASS_MATMUL, attr, 2, (const operand *[]){&a, &b}, &one);
    run_step(FX_OP_MATMUL, FX_CLASS_MATMUL, attr, 2, (const operand *[]){&a, &first}, &few);
    fx_set_num_threads(3);
    run_step(FX_OP_MATMUL, FX_CLASS_MATMUL, attr, 2, (const operand *[]){&a, &b}, &more);
    assert_memory_equal(one.data, more.data, (size_t)(m * n) * fxi_cpu_size(dtype));
    assert_memory_equal(one.data, few.data, (size_t)(m * FEW) * fxi_cpu_size(dtype));
    for (int64_t e = 0; e < m * n; e += 1 + m * n / 19) {
        double want = 0, magnitude = 0;
        for (int64_t p = 0; p < k; p++) {
            const double v =
                element4(&a, e % m, p, 0, 0) * element4(&b, tb ? e / m : p, tb ? p : e / m, 0, 0);
            want += v, magnitude += fabs(v);
        }
        check_close(element(&one, e), want, epsilon_of(dtype), epsilon_of(dtype) * magnitude);
    }
    drop_operand(&a), drop_operand(&b), drop_operand(&one), drop_operand(&more), drop_operand(&few);
}

static void long_sums(void **state)
{
    (void)state;
    /* 13 MB and 25.5 MB of packed B. If the columns of B are not neighbours, it is packed only for
     * many rows. */
    const int before = fx_num_threads();
    check_long_sum(FX_DTYPE_F32, true, (const int64_t[]){70, 1100, 5801});
    check_long_sum(FX_DTYPE_F64, false, (const int64_t[]){260, 1024, 1601});
    check_long_sum(FX_DTYPE_F16, false, (const int64_t[]){260, 1024, 3201});
    check_long_sum(FX_DTYPE_BF16, true, (const int64_t[]){70, 1100, 5801});
    fx_set_num_threads(before);
}

/* A matrix times a vector: either factor, both layouts of the matrix, strides of the vector,
 * lengths around every block. The same bits as in a product of several columns, which is computed
 * in another way, and from any number of threads. */
static void check_vector(int dtype, bool ta, bool swapped, int64_t rows, int64_t k)
{
    enum { MORE = 3 };
    const size_t size = fxi_cpu_size(dtype);
    operand a = matrix(dtype, DENSE, rows, k, ta), x = matrix(dtype, DENSE, k, MORE, false),
            many = matrix(dtype, DENSE, rows, MORE, false);
    operand one = matrix(dtype, DENSE, swapped ? 1 : rows, swapped ? rows : 1, false), first = x;
    first.t.shape[1] = 1;
    const fx_attr plain = {.matmul = {ta, false}}, exchanged = {.matmul = {true, !ta}};
    run_step(FX_OP_MATMUL, FX_CLASS_MATMUL, plain, 2, (const operand *[]){&a, &x}, &many);
    const operand *const in[] = {swapped ? &first : &a, swapped ? &a : &first};
    const int before = fx_num_threads();
    for (int threads = 1; threads <= 3; threads += 2) {
        fx_set_num_threads(threads);
        memset(one.data, 0x55, (size_t)rows * size);
        assert_int_equal(
            run_step(FX_OP_MATMUL, FX_CLASS_MATMUL, swapped ? exchanged : plain, 2, in, &one)
                .status,
            FX_OK);
        assert_memory_equal(one.data, many.data, (size_t)rows * size);
    }
    fx_set_num_threads(before);
    for (int64_t i = 0; i < rows; i++) {
        double want = 0, magnitude = 0;
        for (int64_t p = 0; p < k; p++) {
            const double v = element(&a, ta ? p + i * k : i + p * rows) * element(&x, p);
            want += v, magnitude += fabs(v);
        }
        check_close(element(&one, i), want, epsilon_of(dtype), epsilon_of(dtype) * magnitude);
    }
    drop_operand(&a), drop_operand(&x), drop_operand(&many), drop_operand(&one);
}

static void matrix_times_vector(void **state)
{
    (void)state;
    static const int types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16, FX_DTYPE_BF16};
    static const int64_t sizes[][2] = {{32, 128}, {33, 127}, {45, 515}, {64, 64},
                                       {300, 17}, {1500, 3}, {4099, 5}};
    for (int type = 0; type < 4; type++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int way = 0; way < 4; way++)
                check_vector(types[type], way & 1, way & 2, sizes[s][0], sizes[s][1]);
}

/* A vector with a stride, infinite and missing numbers, a sum of negative zeros. */
static void odd_vectors(void **state)
{
    (void)state;
    enum { ROWS = 70, K = 64 };
    for (int ta = 0; ta < 2; ta++) {
        operand a = matrix(FX_DTYPE_F32, DENSE, ROWS, K, ta),
                x = matrix(FX_DTYPE_F32, DENSE, 2, K, false),
                out = matrix(FX_DTYPE_F32, DENSE, ROWS, 1, false);
        float *p = a.data;
        for (int64_t i = 0; i < ROWS * K; i++)
            p[i] = 1;
        for (int64_t q = 0; q < 2 * K; q++)
            ((float *)x.data)[q] = q % 2 ? NAN : 2; /* every second number is not read */
        for (int64_t q = 0; q < K; q++)
            p[ta ? q + 5 * K : 5 + q * ROWS] = -0.0f;
        p[ta ? 3 + 7 * K : 7 + 3 * ROWS] = INFINITY;
        p[ta ? 60 + 69 * K : 69 + 60 * ROWS] = NAN;
        x.t.shape[0] = 1;
        const fx_attr attr = {.matmul = {ta, true}};
        assert_int_equal(
            run_step(FX_OP_MATMUL, FX_CLASS_MATMUL, attr, 2, (const operand *[]){&a, &x}, &out)
                .status,
            FX_OK);
        const float *y = out.data;
        for (int64_t i = 0; i < ROWS; i++)
            assert_true(i == 69 ? isnan(y[i]) : y[i] == (i == 7 ? INFINITY : i == 5 ? 0 : 2 * K));
        assert_false(signbit(y[5]));
        drop_operand(&a), drop_operand(&x), drop_operand(&out);
    }
}

static void check_batch(int dtype, layout l, int64_t m, int64_t n, int64_t k, const int64_t *ba,
                        const int64_t *bb, const int64_t *batch)
{
    operand a = make_operand(dtype, l, SHAPE(m, k, ba[0], ba[1])),
            b = make_operand(dtype, l, SHAPE(k, n, bb[0], bb[1]));
    operand out = make_operand(dtype, DENSE, SHAPE(m, n, batch[0], batch[1])),
            one = matrix(dtype, DENSE, m, n, false);
    const fx_attr attr = {.matmul = {0, 0}};
    assert_int_equal(
        run_step(FX_OP_MATMUL, FX_CLASS_MATMUL, attr, 2, (const operand *[]){&a, &b}, &out).status,
        FX_OK);
    for (int64_t q = 0; q < batch[1]; q++)
        for (int64_t p = 0; p < batch[0]; p++) {
            /* the same item alone: the same bits */
            operand sa = a, sb = b;
            sa.t.ndim = sb.t.ndim = 2;
            const int64_t size = (int64_t)fxi_cpu_size(dtype);
            sa.data =
                (char *)a.data + size * (p % ba[0] * a.t.stride[2] + q % ba[1] * a.t.stride[3]);
            sb.data =
                (char *)b.data + size * (p % bb[0] * b.t.stride[2] + q % bb[1] * b.t.stride[3]);
            run_step(FX_OP_MATMUL, FX_CLASS_MATMUL, attr, 2, (const operand *[]){&sa, &sb}, &one);
            for (int64_t i = 0; i < m * n; i++) {
                double want = 0, magnitude = 0;
                for (int64_t r = 0; r < k; r++) {
                    const double v = element4(&sa, i % m, r, 0, 0) * element4(&sb, r, i / m, 0, 0);
                    want += v, magnitude += fabs(v);
                }
                const double got = element(&out, i + m * n * (p + batch[0] * q));
                check_close(got, want, epsilon_of(dtype), epsilon_of(dtype) * magnitude);
                assert_true(got == element(&one, i));
            }
        }
    drop_operand(&a), drop_operand(&b), drop_operand(&out), drop_operand(&one);
}

static void batches_broadcast(void **state)
{
    (void)state;
    static const int64_t full[] = {3, 2}, first[] = {3, 1}, second[] = {1, 2}, none[] = {1, 1};
    const int64_t *const kinds[] = {full, first, second, none};
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
        for (int l = 0; l < LAYOUTS && dtype != FX_DTYPE_BOOL && dtype != FX_DTYPE_U8; l++)
            for (int k = 0; k < 4; k++) {
                check_batch(dtype, (layout)l, 9, 8, 7, full, kinds[k], full);
                check_batch(dtype, (layout)l, 40, 33, 17, kinds[k], full, full);
            }
}

static void failing_allocations(void **state)
{
    (void)state;
    const fx_attr attr = {.matmul = {0, 0}};
    operand a = matrix(FX_DTYPE_F32, DENSE, 200, 200, false),
            b = matrix(FX_DTYPE_F32, DENSE, 200, 200, false);
    operand out = matrix(FX_DTYPE_F32, DENSE, 200, 200, false);
    const int64_t live = fxi_live_allocations();
    fxi_fault_set(0);
    const step_run r =
        run_step(FX_OP_MATMUL, FX_CLASS_MATMUL, attr, 2, (const operand *[]){&a, &b}, &out);
    fxi_fault_set(-1);
    assert_int_equal(r.status, FX_STATUS_MEMORY);
    assert_string_equal(r.error.message, "matmul: out of memory");
    assert_int_equal(fxi_live_allocations(), live);
    drop_operand(&a), drop_operand(&b), drop_operand(&out);
}

/* The last columns taken at a time are one column, fewer than the parts of the others. The columns
 * of B are equal and have no memory of their own; A is larger than the caches. */
static void fewer_columns_than_parts(void **state)
{
    (void)state;
    enum { M = 64, K = 4200 };
    const int nr = fxi_cpu_simd()->gemm[0].nr;
    const int64_t n = nr >= 12 ? 87721 : nr >= 6 ? 174421 : 261121;
    operand a = matrix(FX_DTYPE_F32, DENSE, M, K, true),
            b = matrix(FX_DTYPE_F32, BROADCAST, K, n, false),
            out = matrix(FX_DTYPE_F32, DENSE, M, n, false);
    const fx_attr attr = {.matmul = {true, false}};
    assert_int_equal(
        run_step(FX_OP_MATMUL, FX_CLASS_MATMUL, attr, 2, (const operand *[]){&a, &b}, &out).status,
        FX_OK);
    const float *y = (const float *)(const void *)out.data;
    for (int64_t i = 0; i < M; i++) {
        double want = 0, size = 0;
        for (int64_t p = 0; p < K; p++) {
            const double v = element4(&a, p, i, 0, 0) * element4(&b, p, 0, 0, 0);
            want += v, size += fabs(v);
        }
        check_close(y[i], want, 0x1p-23, 0x1p-23 * size);
    }
    for (int64_t j = 1; j < n; j++)
        assert_memory_equal(y, y + j * M, M * sizeof *y);
    drop_operand(&a), drop_operand(&b), drop_operand(&out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(types_layouts_and_transposes),
    cmocka_unit_test(sizes_at_the_edges),
    cmocka_unit_test(large_products_in_threads),
    cmocka_unit_test(rows_of_the_same_cache_sets),
    cmocka_unit_test(long_sums),
    cmocka_unit_test(batches_broadcast),
    cmocka_unit_test(failing_allocations),
    cmocka_unit_test(matrix_times_vector),
    cmocka_unit_test(odd_vectors),
    cmocka_unit_test(fewer_columns_than_parts),
};
RUN_ON_EVERY_ISA(tests)
