/* Dense copies, concatenation, padding and custom steps on the CPU, element by element. */
#include "cpu_check.h"
#include "cpu_parallel.h"

static void check_copy(int dtype, layout l, int ndim, const int64_t *shape)
{
    operand x = make_operand(dtype, l, ndim, shape), out = make_operand(dtype, DENSE, ndim, shape);
    assert_int_equal(
        run_step(FX_OP_RESHAPE, FX_CLASS_MOVEMENT, (fx_attr){0}, 1, (const operand *[]){&x}, &out)
            .status,
        FX_OK);
    for (int64_t i = 0; i < length_of(&out); i++)
        assert_true(element(&out, i) == element(&x, i));
    drop_operand(&x), drop_operand(&out);
}

static void copies_of_every_layout(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
        for (int l = 0; l < LAYOUTS; l++) {
            check_copy(dtype, (layout)l, SHAPE(70, 33));
            check_copy(dtype, (layout)l, SHAPE(9, 2, 40, 3));
            check_copy(dtype, (layout)l, SHAPE(2, 3, 1, 2, 3, 2, 1, 2));
            check_copy(dtype, (layout)l, SHAPE(3, 0));
            check_copy(dtype, (layout)l, 0, NULL);
        }
}

/* A permutation whose contiguous axis comes second or third: the blocked path with outer axes. */
static void copies_of_permutations(void **state)
{
    (void)state;
    static const int orders[][3] = {{1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}, {0, 2, 1}};
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
        for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
            operand x = make_operand(dtype, DENSE, SHAPE(37, 40, 11)), p = x;
            for (int d = 0; d < 3; d++) {
                p.t.shape[d] = x.t.shape[orders[k][d]];
                p.t.stride[d] = x.t.stride[orders[k][d]];
            }
            operand out = make_operand(dtype, DENSE, 3, p.t.shape);
            assert_int_equal(fxi_cpu_copy(&p.t, p.data, out.data), FX_OK);
            for (int64_t i = 0; i < length_of(&out); i++)
                assert_true(element(&out, i) == element(&p, i));
            drop_operand(&x), drop_operand(&out);
        }
}

/* Transposes of more than FXI_STREAM_BYTES in elements of 4 and 8 bytes, and two smaller ones:
 * whole and incomplete cache lines along both axes, divided between threads. */
static void large_transposes(void **state)
{
    (void)state;
    static const struct {
        int dtype;
        int64_t ni, nj;
    } cases[] = {{FX_DTYPE_F32, 2064, 1037}, {FX_DTYPE_F32, 1037, 2064}, {FX_DTYPE_F64, 1032, 1021},
                 {FX_DTYPE_F64, 1021, 1032}, {FX_DTYPE_F32, 130, 530},   {FX_DTYPE_F64, 136, 75}};
    const int before = fx_num_threads();
    fx_set_num_threads(3);
    fxi_cpu_parts_from(0);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int64_t ni = cases[k].ni, nj = cases[k].nj;
        operand x = make_operand(cases[k].dtype, DENSE, SHAPE(nj, ni)), p = x,
                out = make_operand(cases[k].dtype, DENSE, SHAPE(ni, nj));
        p.t.shape[0] = ni, p.t.stride[0] = nj;
        p.t.shape[1] = nj, p.t.stride[1] = 1;
        assert_int_equal(fxi_cpu_copy(&p.t, p.data, out.data), FX_OK);
        for (int64_t i = 0; i < ni * nj; i++)
            assert_true(element(&out, i) == element(&x, i % ni * nj + i / ni));
        drop_operand(&x), drop_operand(&out);
    }
    fxi_cpu_parts_from(FXI_PARTS_FROM);
    fx_set_num_threads(before);
}

/* Joins `n` inputs with these sizes along the axis; their layouts follow each other from l on. */
static void check_concat(int dtype, layout l, const int64_t *sizes, int axis, int n,
                         const int64_t *along)
{
    int64_t total[3], shape[3];
    memcpy(total, sizes, sizeof total);
    total[axis] = 0;
    operand in[4];
    const operand *ptrs[4];
    for (int k = 0; k < n; k++) {
        memcpy(shape, sizes, sizeof shape);
        shape[axis] = along[k];
        total[axis] += along[k];
        in[k] = make_operand(dtype, (layout)(((int)l + k) % LAYOUTS), 3, shape);
        ptrs[k] = &in[k];
    }
    operand out = make_operand(dtype, DENSE, 3, total);
    assert_int_equal(
        run_step(FX_OP_CONCAT, FX_CLASS_COPY, (fx_attr){.axis = axis}, n, ptrs, &out).status,
        FX_OK);
    for (int64_t i = 0; i < length_of(&out); i++) {
        int64_t at[] = {i % total[0], i / total[0] % total[1], i / total[0] / total[1]};
        int k = 0;
        while (at[axis] >= in[k].t.shape[axis])
            at[axis] -= in[k++].t.shape[axis];
        assert_true(element(&out, i) == element4(&in[k], at[0], at[1], at[2], 0));
    }
    for (int k = 0; k < n; k++)
        drop_operand(&in[k]);
    drop_operand(&out);
}

static void concatenations(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
        for (int axis = 0; axis < 3; axis++)
            for (int l = 0; l < LAYOUTS; l++)
                check_concat(dtype, (layout)l, (int64_t[]){3, 4, 5}, axis, 4,
                             (int64_t[]){2, 0, 3, 1});
}

static void check_pad(int dtype, layout l, const int64_t *sizes, int axis)
{
    int64_t shape[3];
    memcpy(shape, sizes, sizeof shape);
    const int64_t n = shape[axis];
    operand x = make_operand(dtype, n ? l : DENSE, 3, shape), v = scalar_operand(dtype, 1);
    shape[axis] = n + 5;
    operand out = make_operand(dtype, DENSE, 3, shape);
    const fx_attr attr = {.pad = {axis, 2, 3}};
    assert_int_equal(
        run_step(FX_OP_PAD, FX_CLASS_COPY, attr, 2, (const operand *[]){&x, &v}, &out).status,
        FX_OK);
    for (int64_t i = 0; i < length_of(&out); i++) {
        int64_t at[] = {i % shape[0], i / shape[0] % shape[1], i / shape[0] / shape[1]};
        at[axis] -= 2;
        const bool inside = at[axis] >= 0 && at[axis] < n;
        assert_true(element(&out, i) == (inside ? element4(&x, at[0], at[1], at[2], 0) : 1));
    }
    drop_operand(&x), drop_operand(&v), drop_operand(&out);
}

static void paddings(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
        for (int axis = 0; axis < 3; axis++)
            for (int l = 0; l < LAYOUTS; l++)
                for (int64_t n = 0; n < 4; n += 3) {
                    int64_t sizes[] = {4, 4, 4};
                    sizes[axis] = n;
                    check_pad(dtype, (layout)l, sizes, axis);
                }
}

/* Arrays that threads divide: rows shorter and longer than a block, of elements of every size. The
 * outputs of the last shape are written past the cache. */
static void joins_by_several_threads(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{3, 5, 1101}, {1103, 3, 5}, {4, 9001, 2}, {1301, 807, 1}};
    static const int types[] = {FX_DTYPE_U8, FX_DTYPE_F16, FX_DTYPE_F32, FX_DTYPE_F64};
    const int before = fx_num_threads();
    fx_set_num_threads(3);
    fxi_cpu_parts_from(0);
    for (int k = 0; k < 4; k++)
        for (int axis = 0; axis < 3 - (k == 3); axis++) {
            /* 8 bytes an element: more than FXI_STREAM_BYTES */
            const int dtype = k == 3 ? FX_DTYPE_F64 : types[(k + axis) % 4];
            check_pad(dtype, axis ? DENSE : (layout)(k % LAYOUTS), shapes[k], axis);
            check_concat(dtype, (layout)(axis % LAYOUTS), shapes[k], axis, 3,
                         (int64_t[]){shapes[k][axis], 1, 2});
        }
    fxi_cpu_parts_from(FXI_PARTS_FROM);
    fx_set_num_threads(before);
}

static fx_status add_first(const fx_custom_op *op, int n, const fx_custom_operand *in,
                           const fx_custom_operand *out)
{
    const double *a = in[0].data, *b = in[1].data;
    if (n != 2 || in[0].ndims != 1 || in[1].ndims != 2 || in[1].sizes[1] != 2)
        return FX_STATUS_SHAPE;
    if (in[0].dtype != FX_DTYPE_F64 || out->dtype != FX_DTYPE_F64 ||
        out->sizes[0] != in[0].sizes[0])
        return FX_STATUS_DTYPE;
    for (int64_t i = 0; i < in[0].sizes[0]; i++)
        ((double *)out->data)[i] = a[i] + b[i] + *(double *)op->user;
    return FX_OK;
}

static void custom_steps(void **state)
{
    (void)state;
    double ten = 10;
    const fx_custom_op op = {
        .fxi_size = sizeof op, .name = "add_first", .forward = add_first, .user = &ten};
    operand a = make_operand(FX_DTYPE_F64, DENSE, SHAPE(6)),
            b = make_operand(FX_DTYPE_F64, DENSE, SHAPE(6, 2)),
            out = make_operand(FX_DTYPE_F64, DENSE, SHAPE(6));
    const fx_attr attr = {.custom = &op};
    assert_int_equal(
        run_step(FX_OP_CUSTOM, FX_CLASS_CUSTOM, attr, 2, (const operand *[]){&a, &b}, &out).status,
        FX_OK);
    for (int64_t i = 0; i < 6; i++)
        assert_true(element(&out, i) == element(&a, i) + element(&b, i) + 10);
    step_run r =
        run_step(FX_OP_CUSTOM, FX_CLASS_CUSTOM, attr, 2, (const operand *[]){&b, &a}, &out);
    assert_int_equal(r.status, FX_STATUS_SHAPE);
    assert_string_equal(r.error.message,
                        "custom: add_first: its function returned FX_STATUS_SHAPE");
    fxi_fault_set(0);
    r = run_step(FX_OP_CUSTOM, FX_CLASS_CUSTOM, attr, 2, (const operand *[]){&a, &b}, &out);
    fxi_fault_set(-1);
    assert_int_equal(r.status, FX_STATUS_MEMORY);
    assert_int_equal(fxi_live_allocations(), 0);
    drop_operand(&a), drop_operand(&b), drop_operand(&out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(copies_of_every_layout),
    cmocka_unit_test(copies_of_permutations),
    cmocka_unit_test(large_transposes),
    cmocka_unit_test(concatenations),
    cmocka_unit_test(paddings),
    cmocka_unit_test(joins_by_several_threads),
    cmocka_unit_test(custom_steps),
};
RUN_ON_EVERY_ISA(tests)
