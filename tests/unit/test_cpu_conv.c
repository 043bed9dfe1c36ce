/* Convolutions on the CPU against the defining sum in double: all three kinds, one to three axes,
 * random strides, paddings, dilations, groups and kernel directions, unused borders, 16-bit floats,
 * numbers that are not finite, the bits of threads and of batches, failing allocations. ctest:
 * timeout=300 */
#include "cpu_check.h"
#include "cpu_conv.h"
#include "cpu_parallel.h"
#include "cpu_plugin.h"

typedef struct problem {
    fx_conv_attr a;
    int64_t x[5], w[5], y[5]; /* spatial…, channels, batch; kernel…, in/groups, out */
    int ndim;
} problem;

static int64_t random_in(int64_t lo, int64_t hi)
{
    return lo + (int64_t)(next_random() % (uint32_t)(hi - lo + 1));
}

/* A random problem; extra: the x side may be larger than the windows reach. */
static problem random_problem(int spatial)
{
    problem p = {.a = {.spatial = spatial,
                       .groups = (int32_t)random_in(1, 3),
                       .flipped = (int32_t)random_in(0, 1)},
                 .ndim = spatial + 2};
    for (int d = 0; d < spatial; d++) {
        p.w[d] = random_in(1, 4);
        /* Also strides beyond the kernel and the array. */
        p.a.stride[d] = (int32_t)random_in(1, 3);
        if (random_in(0, 7) == 0)
            p.a.stride[d] = (int32_t)((int64_t)1 << random_in(2, 30));
        p.a.dilation[d] = (int32_t)random_in(1, 2);
        p.a.before[d] = (int32_t)random_in(0, 3);
        p.a.after[d] = (int32_t)random_in(0, 3);
        const int64_t reach = (p.w[d] - 1) * p.a.dilation[d] + 1;
        do
            p.x[d] = random_in(1, 9);
        while (p.x[d] + p.a.before[d] + p.a.after[d] < reach);
        p.y[d] = (p.x[d] + p.a.before[d] + p.a.after[d] - reach) / p.a.stride[d] + 1;
    }
    const int64_t in = random_in(1, 4), out = random_in(1, 5);
    p.x[spatial] = in * p.a.groups, p.y[spatial] = out * p.a.groups;
    p.w[spatial] = in, p.w[spatial + 1] = out * p.a.groups;
    p.x[spatial + 1] = p.y[spatial + 1] = random_in(1, 3);
    return p;
}

/* Calls visit for every product of the defining sum: offsets in dense x, w and y. */
static void visit_products(const problem *p, double *acc, double *size, int kind, const operand *x,
                           const operand *w, const operand *y)
{
    const int s = p->a.spatial;
    int64_t X[3] = {1, 1, 1}, K[3] = {1, 1, 1}, Y[3] = {1, 1, 1};
    for (int d = 0; d < s; d++)
        X[d] = p->x[d], K[d] = p->w[d], Y[d] = p->y[d];
    const int64_t kernel = K[0] * K[1] * K[2], cin = p->w[s], cout = p->w[s + 1] / p->a.groups;
    for (int64_t yo = 0; yo < Y[0] * Y[1] * Y[2] * p->y[s] * p->y[s + 1]; yo++) {
        const int64_t yi[3] = {yo % Y[0], yo / Y[0] % Y[1], yo / Y[0] / Y[1] % Y[2]};
        const int64_t o = yo / (Y[0] * Y[1] * Y[2]) % p->y[s],
                      n = yo / (Y[0] * Y[1] * Y[2] * p->y[s]);
        for (int64_t t = 0; t < kernel * cin; t++) {
            const int64_t ki[3] = {t % K[0], t / K[0] % K[1], t / K[0] / K[1] % K[2]};
            int64_t xo = 0, step = 1;
            bool inside = true;
            for (int d = 0; d < 3; d++) {
                const int64_t tap = p->a.flipped ? ki[d] : K[d] - 1 - ki[d];
                const int64_t at =
                    d < s ? yi[d] * p->a.stride[d] - p->a.before[d] + tap * p->a.dilation[d] : 0;
                inside = inside && at >= 0 && at < X[d];
                xo += at * step;
                step *= X[d];
            }
            if (!inside)
                continue;
            xo += step * (t / kernel + cin * (o / cout) + p->x[s] * n);
            const int64_t wo = t + kernel * cin * o;
            const int64_t to = kind == FX_CONV_FORWARD ? yo : kind == FX_CONV_DATA ? xo : wo;
            const double v = kind == FX_CONV_FORWARD ? element(x, xo) * element(w, wo)
                             : kind == FX_CONV_DATA  ? element(y, yo) * element(w, wo)
                                                     : element(x, xo) * element(y, yo);
            acc[to] += v;
            size[to] += fabs(v);
        }
    }
}

static void check_problem(const problem *p, int kind, int dtype)
{
    operand x = make_operand(dtype, DENSE, p->ndim, p->x),
            w = make_operand(dtype, DENSE, p->ndim, p->w);
    operand y = make_operand(dtype, DENSE, p->ndim, p->y);
    operand *out = kind == FX_CONV_FORWARD ? &y : kind == FX_CONV_DATA ? &x : &w;
    const operand *in[] = {kind == FX_CONV_DATA ? &y : &x, kind == FX_CONV_WEIGHT ? &y : &w};
    const size_t n = (size_t)length_of(out);
    double *want = calloc(n + 1, sizeof *want), *size = calloc(n + 1, sizeof *size);
    assert_true(want && size);
    visit_products(p, want, size, kind, &x, &w, &y);
    fx_attr attr = {.conv = p->a};
    attr.conv.kind = kind;
    assert_int_equal(run_step(FX_OP_CONV, FX_CLASS_CONV, attr, 2, in, out).status, FX_OK);
    for (size_t i = 0; i < n; i++)
        check_close(element(out, (int64_t)i), want[i], epsilon_of(dtype),
                    epsilon_of(dtype) * size[i]);
    drop_operand(&x), drop_operand(&w), drop_operand(&y);
    free(want), free(size);
}

static void random_problems(void **state)
{
    (void)state;
    static const int types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16, FX_DTYPE_BF16};
    for (int round = 0; round < 240; round++) {
        problem p = random_problem(1 + round % 3);
        for (int kind = 0; kind < 3; kind++)
            check_problem(&p, kind, types[round / 3 % 4]);
        for (int d = 0; d < p.a.spatial;
             d++) /* outpad: the x side has more than the windows reach */
            p.x[d] += p.a.stride[d] < 4 ? p.a.stride[d] - 1 : 1;
        check_problem(&p, FX_CONV_DATA, FX_DTYPE_F32);
    }
}

static problem plain_2d(int64_t width, int64_t k, int64_t in, int64_t out, int64_t batch,
                        int32_t pad)
{
    const int64_t y = width + 2 * pad - k + 1;
    return (problem){.a = {.spatial = 2,
                           .groups = 1,
                           .stride = {1, 1},
                           .dilation = {1, 1},
                           .before = {pad, pad},
                           .after = {pad, pad}},
                     .x = {width, width, in, batch},
                     .w = {k, k, in, out},
                     .y = {y, y, out, batch},
                     .ndim = 4};
}

static void usual_shapes(void **state)
{
    (void)state;
    const problem ps[] = {
        plain_2d(28, 5, 1, 6, 2, 0),  plain_2d(12, 5, 6, 16, 2, 0),
        plain_2d(9, 1, 20, 30, 2, 0), plain_2d(32, 3, 64, 2, 1, 1) /* several chunks */,
        plain_2d(3, 3, 2, 2, 0, 1),   plain_2d(5, 3, 0, 2, 1, 1),
        plain_2d(5, 3, 2, 0, 1, 1),   plain_2d(1, 7, 1, 1, 1, 9)};
    for (size_t k = 0; k < sizeof ps / sizeof *ps; k++)
        for (int kind = 0; kind < 3; kind++)
            for (int dtype = FX_DTYPE_F32; dtype <= FX_DTYPE_F64; dtype++)
                check_problem(&ps[k], kind, dtype);
}

/* More than one block of rows, of planes, of images; strides and dilations with them. */
static void large_shapes(void **state)
{
    (void)state;
    problem planes = {.a = {.spatial = 3,
                            .groups = 2,
                            .stride = {1, 1, 1},
                            .dilation = {1, 1, 2},
                            .before = {1, 0, 2},
                            .after = {1, 0, 2}},
                      .x = {40, 41, 42, 4, 2},
                      .w = {3, 1, 3, 2, 2},
                      .y = {40, 41, 42, 2, 2},
                      .ndim = 5};
    problem strided = plain_2d(301, 3, 3, 2, 2, 1);
    strided.x[1] = 150;
    strided.a.stride[0] = 3, strided.a.stride[1] = 2;
    strided.y[0] = 101, strided.y[1] = 75;
    const problem ps[] = {planes, strided, plain_2d(190, 3, 4, 3, 1, 1),
                          plain_2d(20, 3, 30, 9, 9, 1)};
    for (size_t k = 0; k < sizeof ps / sizeof *ps; k++)
        for (int kind = 0; kind < 3; kind++)
            check_problem(&ps[k], kind, k % 2 ? FX_DTYPE_F64 : FX_DTYPE_F32);
}

/* Many channels: small images together, blocks of rows and of planes, strides whose phases have
 * taps or none, a channel for each group. */
static void many_channels(void **state)
{
    (void)state;
    problem planes = {.a = {.spatial = 3,
                            .groups = 1,
                            .stride = {1, 2, 1},
                            .dilation = {1, 1, 2},
                            .before = {1, 0, 2},
                            .after = {0, 1, 2}},
                      .x = {11, 10, 13, 17, 1},
                      .w = {2, 2, 2, 17, 19},
                      .y = {11, 5, 15, 19, 1},
                      .ndim = 5};
    problem strided = plain_2d(41, 3, 18, 20, 1, 1);
    strided.a.stride[0] = strided.a.stride[1] = 2;
    strided.y[0] = strided.y[1] = 21;
    problem gaps = plain_2d(22, 1, 20, 33, 2, 0);
    gaps.a.stride[0] = 3, gaps.a.stride[1] = 2;
    gaps.y[0] = 8, gaps.y[1] = 11;
    problem each = plain_2d(14, 3, 24, 24, 3, 1);
    each.a.groups = 24, each.w[2] = 1;
    problem each_strided = each;
    each_strided.a.stride[0] = each_strided.a.stride[1] = 2;
    each_strided.y[0] = each_strided.y[1] = 7;
    const problem ps[] = {planes,
                          strided,
                          gaps,
                          each,
                          each_strided,
                          plain_2d(30, 1, 17, 40, 1, 0),
                          plain_2d(4, 3, 20, 40, 9, 1),
                          plain_2d(2, 3, 33, 16, 9, 1),
                          plain_2d(21, 3, 16, 17, 1, 1)};
    for (size_t k = 0; k < sizeof ps / sizeof *ps; k++)
        for (int kind = 0; kind < 3; kind++)
            check_problem(&ps[k], kind, k % 2 ? FX_DTYPE_F64 : FX_DTYPE_F32);
}

/* The same bits from one thread and from three. */
static void check_threads(const problem *p, int kind)
{
    const int before = fx_num_threads();
    operand in[2], out[2];
    const int64_t *const shapes[] = {p->x, p->w, p->y};
    const int a = kind == FX_CONV_DATA ? 2 : 0, b = kind == FX_CONV_WEIGHT ? 2 : 1;
    in[0] = make_operand(FX_DTYPE_F32, DENSE, p->ndim, shapes[a]);
    in[1] = make_operand(FX_DTYPE_F32, DENSE, p->ndim, shapes[b]);
    fx_attr attr = {.conv = p->a};
    attr.conv.kind = kind;
    for (int k = 0; k < 2; k++) {
        out[k] = make_operand(FX_DTYPE_F32, DENSE, p->ndim, shapes[3 - a - b]);
        fx_set_num_threads(1 + 2 * k);
        const operand *const operands[] = {&in[0], &in[1]};
        assert_int_equal(run_step(FX_OP_CONV, FX_CLASS_CONV, attr, 2, operands, &out[k]).status,
                         FX_OK);
    }
    fx_set_num_threads(before);
    assert_memory_equal(out[0].data, out[1].data, (size_t)length_of(&out[0]) * sizeof(float));
    for (int k = 0; k < 2; k++)
        drop_operand(&in[k]), drop_operand(&out[k]);
}

/* Rows whose elements are apart, as they are copied from and to them: every length up to several
 * vectors, in memory without an element more. Elements between are not written. */
static void check_rows(int dtype, int64_t n, int64_t stride)
{
    enum { ROWS = 3 };
    const fxi_conv_core *core = &fxi_cpu_simd()->conv[dtype == FX_DTYPE_F64];
    const int64_t reach = n ? (n - 1) * stride + 1 : 0, gap = reach + 2;
    operand apart = make_operand(dtype, DENSE, 1, (int64_t[]){n ? (ROWS - 1) * gap + reach : 0});
    operand dense = make_operand(dtype, DENSE, 1, (int64_t[]){ROWS * n});
    fxi_conv_rows r = {.d = dense.data,
                       .s = apart.data,
                       .dpitch = n,
                       .spitch = gap,
                       .stride = stride,
                       .n = n,
                       .rows = ROWS};
    core->rows(&r);
    for (int64_t i = 0; i < ROWS * n; i++)
        assert_true(element(&dense, i) == element(&apart, i / n * gap + i % n * stride));
    for (int64_t i = 0; i < length_of(&apart); i++)
        set_element(&apart, i, -1);
    r.d = apart.data, r.s = dense.data, r.dpitch = gap, r.spitch = n;
    core->spread(&r);
    for (int64_t i = 0; i < length_of(&apart); i++) {
        const int64_t row = i / gap, at = i % gap;
        const bool written = at < reach && at % stride == 0;
        assert_true(element(&apart, i) == (written ? element(&dense, row * n + at / stride) : -1));
    }
    drop_operand(&apart), drop_operand(&dense);
}

static void rows_apart(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 70; n++)
        for (int64_t stride = 1; stride <= 3; stride++)
            for (int dtype = FX_DTYPE_F32; dtype <= FX_DTYPE_F64; dtype++)
                check_rows(dtype, n, stride);
}

/* One tap: a matrix product of each image, few images and many, with groups and strides; one
 * position, whose images are one product. */
static void one_tap(void **state)
{
    (void)state;
    problem strided = plain_2d(23, 1, 24, 20, 3, 0), narrow = plain_2d(9, 1, 18, 12, 10, 0);
    problem wide = plain_2d(71, 1, 5, 7, 2, 0);
    wide.a.stride[0] = wide.a.stride[1] = 2;
    wide.y[0] = wide.y[1] = 36;
    strided.a.stride[0] = 2, strided.a.stride[1] = 3;
    strided.y[0] = 12, strided.y[1] = 8;
    narrow.a.groups = 6, narrow.w[2] = 3;
    problem strided_groups = narrow;
    strided_groups.a.stride[0] = strided_groups.a.stride[1] = 2;
    strided_groups.y[0] = strided_groups.y[1] = 5;
    problem line = {.a = {.spatial = 1, .groups = 1, .stride = {1}, .dilation = {1}},
                    .x = {130, 5, 40},
                    .w = {1, 5, 9},
                    .y = {130, 9, 40},
                    .ndim = 3};
    const problem ps[] = {strided,
                          wide,
                          narrow,
                          strided_groups,
                          line,
                          plain_2d(40, 1, 33, 65, 1, 0),
                          plain_2d(1, 1, 30, 17, 41, 0),
                          plain_2d(3, 1, 12, 7, 5, 0),
                          plain_2d(12, 1, 16, 16, 30, 0)};
    for (size_t k = 0; k < sizeof ps / sizeof *ps; k++)
        for (int kind = 0; kind < 3; kind++) {
            check_problem(&ps[k], kind, FX_DTYPE_F32);
            check_problem(&ps[k], kind, FX_DTYPE_F64);
            check_threads(&ps[k], kind);
        }
}

/* Few windows are one share of the gradient of weights: threads then divide the output channels. */
static void panels_of_gradients(void **state)
{
    (void)state;
    for (int64_t channels = 1; channels <= 161; channels += 16) {
        problem p = plain_2d(9, 3, 12, channels, 2, 1);
        p.a.stride[0] = p.a.stride[1] = 2;
        p.y[0] = p.y[1] = 5;
        fxi_cpu_parts_from(0);
        for (int kind = 0; kind < 3; kind++) {
            check_problem(&p, kind, channels % 32 == 1 ? FX_DTYPE_F32 : FX_DTYPE_F64);
            check_threads(&p, kind);
        }
        fxi_cpu_parts_from(FXI_PARTS_FROM);
    }
}

/* Gradients of weights are summed in shares, which two threads, and four, should divide evenly
 * (cpu_conv.h). A share has from half to twice the windows that it should have. */
static void shares_of_gradients(void **state)
{
    (void)state;
    for (int64_t windows = 1; windows < 40000; windows += 7)
        for (int64_t most = 8; most <= 16; most *= 2) {
            const int64_t shares = fxi_conv_shares(windows, 1024, most);
            assert_true(shares >= 1 && shares <= most);
            assert_int_equal(shares & (shares - 1), 0);
            assert_true(shares == 1 || 2 * windows >= 1024 * shares);
            assert_true(shares == most || windows < 2 * 1024 * shares);
        }
}

/* Signals of one axis that are longer than a thread's scratch memory. */
static void long_signals(void **state)
{
    (void)state;
    for (int32_t stride = 1; stride <= 2; stride++) {
        const problem p = {.a = {.spatial = 1,
                                 .groups = 2,
                                 .stride = {stride},
                                 .dilation = {3},
                                 .before = {4},
                                 .after = {2}},
                           .x = {7001, 32, 1},
                           .w = {3, 16, 48},
                           .y = {stride == 1 ? 7001 : 3501, 48, 1},
                           .ndim = 3};
        for (int kind = 0; kind < 3; kind++)
            check_threads(&p, kind);
        for (int kind = 0; kind < 3; kind++)
            check_problem(&p, kind, FX_DTYPE_F32);
    }
}

/* A window whose taps are farther apart than the kernels can count is refused with the reason, not
 * with FX_STATUS_MEMORY. */
static void taps_far_apart(void **state)
{
    (void)state;
    const int64_t sizes[3][3] = {{4, 1, 1}, {2, 1, 1}, {4, 1, 1}};
    operand x = make_operand(FX_DTYPE_F32, DENSE, 3, sizes[0]);
    operand w = make_operand(FX_DTYPE_F32, DENSE, 3, sizes[1]);
    operand y = make_operand(FX_DTYPE_F32, DENSE, 3, sizes[2]);
    const operand *const in[] = {&x, &w};
    const fx_attr attr = {.conv = {.spatial = 1,
                                   .groups = 1,
                                   .stride = {1},
                                   .dilation = {INT32_MAX},
                                   .before = {INT32_MAX}}};
    const step_run b = run_step(FX_OP_CONV, FX_CLASS_CONV, attr, 2, in, &y);
    assert_int_equal(b.status, FX_STATUS_UNSUPPORTED);
    assert_string_equal(b.error.message,
                        "conv: one row of windows reads more than the CPU's maximum of 2147483647 "
                        "elements, padding and all channels included");
    drop_operand(&x), drop_operand(&w), drop_operand(&y);
}

/* Images of every length, also odd: the data after them in the scratch memory is aligned anyway. */
static void images_of_odd_lengths(void **state)
{
    (void)state;
    for (int64_t width = 3; width < 19; width++)
        for (int64_t channels = 1; channels <= 3; channels += 2) {
            const problem p = plain_2d(width, 3, channels, 2, 1, 0);
            for (int kind = 0; kind < 3; kind++)
                check_problem(&p, kind, FX_DTYPE_F32);
        }
}

/* An infinite element of x reaches the taps that meet it, and no others. */
static void infinite_numbers(void **state)
{
    (void)state;
    const problem p = plain_2d(9, 3, 2, 3, 5, 0);
    operand x = make_operand(FX_DTYPE_F32, DENSE, 4, p.x);
    operand w = make_operand(FX_DTYPE_F32, DENSE, 4, p.w);
    operand y = make_operand(FX_DTYPE_F32, DENSE, 4, p.y);
    for (int64_t i = 0; i < length_of(&y); i++)
        ((float *)y.data)[i] = 1 + (float)(i % 3);
    ((float *)x.data)[8] = INFINITY; /* the last column: for one column of taps only */
    double want[54] = {0}, size[54] = {0};
    visit_products(&p, want, size, FX_CONV_WEIGHT, &x, &w, &y);
    fx_attr attr = {.conv = p.a};
    attr.conv.kind = FX_CONV_WEIGHT;
    const operand *in[] = {&x, &y};
    assert_int_equal(run_step(FX_OP_CONV, FX_CLASS_CONV, attr, 2, in, &w).status, FX_OK);
    for (int64_t i = 0; i < 54; i++)
        if (isinf(want[i]))
            assert_true(isinf(element(&w, i)));
        else
            check_close(element(&w, i), want[i], 1e-6, 1e-6 * size[i]);
    drop_operand(&x), drop_operand(&w), drop_operand(&y);
}

/* The same for an infinite weight: every output of its channel is infinite, and no other. */
static void infinite_weights(void **state)
{
    (void)state;
    const problem p = plain_2d(9, 3, 2, 3, 5, 0);
    operand x = make_operand(FX_DTYPE_F32, DENSE, 4, p.x);
    operand w = make_operand(FX_DTYPE_F32, DENSE, 4, p.w);
    operand y = make_operand(FX_DTYPE_F32, DENSE, 4, p.y);
    const int64_t channel = p.y[0] * p.y[1];
    for (int64_t i = 0; i < length_of(&x); i++)
        ((float *)x.data)[i] = 1 + (float)(i % 3);
    ((float *)w.data)[18] = INFINITY; /* of the second output channel */
    fx_attr attr = {.conv = p.a};
    const operand *in[] = {&x, &w};
    assert_int_equal(run_step(FX_OP_CONV, FX_CLASS_CONV, attr, 2, in, &y).status, FX_OK);
    for (int64_t i = 0; i < length_of(&y); i++)
        assert_true(i / channel % 3 == 1 ? isinf(element(&y, i)) : isfinite(element(&y, i)));
    drop_operand(&x), drop_operand(&w), drop_operand(&y);
}

/* Fails every allocation of one kind in turn; many channels, few channels and one tap are computed
 * in three ways. */
static void fail_each(int kind, int32_t stride, int64_t channels, int64_t taps, int32_t groups)
{
    problem p = plain_2d(28, taps, channels, channels, 1, 0);
    p.a.groups = groups, p.w[2] = channels / groups;
    p.a.stride[0] = p.a.stride[1] = stride;
    p.y[0] = p.y[1] = (28 - taps) / stride + 1;
    operand x = make_operand(FX_DTYPE_F32, DENSE, 4, p.x);
    operand w = make_operand(FX_DTYPE_F32, DENSE, 4, p.w);
    operand y = make_operand(FX_DTYPE_F32, DENSE, 4, p.y);
    operand *out = kind == FX_CONV_FORWARD ? &y : kind == FX_CONV_DATA ? &x : &w;
    const operand *in[] = {kind == FX_CONV_DATA ? &y : &x, kind == FX_CONV_WEIGHT ? &y : &w};
    fx_attr attr = {.conv = p.a};
    attr.conv.kind = kind;
    const int64_t live = fxi_live_allocations();
    int64_t nth = 0;
    for (bool reached = true; reached; nth++) {
        fxi_fault_set(nth);
        const step_run b = run_step(FX_OP_CONV, FX_CLASS_CONV, attr, 2, in, out);
        reached = fxi_fault_seen() > nth;
        fxi_fault_set(-1);
        const int status = (int)b.status;
        assert_int_equal(fxi_live_allocations(), live);
        if (status != FX_OK)
            assert_int_equal(status, FX_STATUS_MEMORY);
        if (status != FX_OK)
            assert_string_equal(b.error.message, "conv: out of memory");
    }
    assert_true(nth > 1);
    drop_operand(&x), drop_operand(&w), drop_operand(&y);
}

static void failing_allocations(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (int32_t stride = 1; stride <= 2; stride++)
            for (int64_t channels = 6; channels <= 16; channels += 10)
                fail_each(kind, stride, channels, 5, 1);
    for (int kind = 0; kind < 3; kind++)
        fail_each(kind, 1, 6, 5, 3);
    fail_each(FX_CONV_FORWARD, 2, 40, 1, 1);
    fail_each(FX_CONV_DATA, 2, 40, 1, 1);
    fail_each(FX_CONV_WEIGHT, 1, 40, 1, 1);
}

/* ---- groups, read in place ------------------------------------------------------------------- */

/* Kernels of the heights that this method has; also paddings beyond the kernel, dilations, rows of
 * windows shorter than a vector and longer than two. */
static problem random_groups(void)
{
    static const int64_t heights[] = {3, 5, 7};
    problem p = {.a = {.spatial = 2,
                       .groups = (int32_t)random_in(2, 4),
                       .flipped = (int32_t)random_in(0, 1)},
                 .ndim = 4};
    const int32_t stride = (int32_t)random_in(1, 2);
    p.w[0] = random_in(1, 7), p.w[1] = heights[random_in(0, 2)];
    for (int d = 0; d < 2; d++) {
        p.a.stride[d] = stride;
        p.a.dilation[d] = stride == 1 ? (int32_t)random_in(1, 3) : 1;
        p.a.before[d] = (int32_t)random_in(0, random_in(0, 3) ? 3 : 9);
        p.a.after[d] = (int32_t)random_in(0, 4);
        const int64_t reach = (p.w[d] - 1) * p.a.dilation[d] + 1;
        do
            p.x[d] = random_in(1, d ? 19 : 45);
        while (p.x[d] + p.a.before[d] + p.a.after[d] < reach);
        p.y[d] = (p.x[d] + p.a.before[d] + p.a.after[d] - reach) / stride + 1;
    }
    const int64_t in = random_in(0, 1) ? 1 : random_in(1, 3);
    const int64_t out = random_in(0, 1) ? 1 : random_in(1, 3);
    p.x[2] = in * p.a.groups, p.y[2] = out * p.a.groups;
    p.w[2] = in, p.w[3] = out * p.a.groups;
    p.x[3] = p.y[3] = random_in(1, 2);
    return p;
}

/* Does the method take this problem? */
static bool in_place(const problem *p, int kind)
{
    fx_tensor t[3];
    const int64_t *shapes[] = {p->x, p->w, p->y};
    for (int k = 0; k < 3; k++) {
        t[k] = (fx_tensor){.dtype = FX_DTYPE_F32, .ndim = (uint8_t)p->ndim};
        memcpy(t[k].shape, shapes[k], (size_t)p->ndim * sizeof(int64_t));
    }
    fx_tensor in[] = {t[kind == FX_CONV_DATA ? 2 : 0], t[kind == FX_CONV_WEIGHT ? 2 : 1]};
    const fx_step step = {.op = FX_OP_CONV,
                          .cls = FX_CLASS_CONV,
                          .nin = 2,
                          .in = in,
                          .out = t[kind == FX_CONV_FORWARD ? 2
                                   : kind == FX_CONV_DATA  ? 0
                                                           : 1],
                          .as.conv = {.attr = p->a}};
    fx_step of_kind = step;
    of_kind.as.conv.attr.kind = kind;
    return fxi_cpu_conv_reads_in_place(&of_kind);
}

static void groups_in_place(void **state)
{
    (void)state;
    int taken = 0, all = 0;
    for (int round = 0; round < 60; round++) {
        const problem p = random_groups();
        for (int kind = 0; kind < 3; kind++, all++) {
            check_problem(&p, kind, FX_DTYPE_F32);
            taken += in_place(&p, kind);
        }
    }
    assert_true(fxi_cpu_simd()->conv_masked ? taken > all / 4 : taken == 0);
}

/* A group of 16 channels; a wide kernel; tiles of seven and of eight rows and rows that fill none.
 */
static const problem groups_of_each[] = {
    {.a = {.spatial = 2, .groups = 3, .stride = {1, 1}, .dilation = {1, 1}, .before = {1, 1}},
     .x = {28, 14, 48, 3},
     .w = {3, 3, 16, 48},
     .y = {27, 13, 48, 3},
     .ndim = 4},
    {.a = {.spatial = 2, .groups = 2, .stride = {2, 2}, .dilation = {1, 1}, .before = {7, 3}},
     .x = {41, 17, 2, 5},
     .w = {16, 7, 1, 6},
     .y = {17, 7, 6, 5},
     .ndim = 4},
    {.a = {.spatial = 2, .groups = 4, .stride = {1, 1}, .dilation = {2, 3}, .before = {4, 6}},
     .x = {33, 29, 12, 2},
     .w = {5, 5, 3, 4},
     .y = {29, 23, 4, 2},
     .ndim = 4}};

/* The same bits from threads, and from each image alone. */
static void bits_of_groups(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof groups_of_each / sizeof *groups_of_each; k++) {
        const problem *p = &groups_of_each[k];
        for (int kind = 0; kind < 3; kind++) {
            const fxi_conv_masked_core *core = fxi_cpu_simd()->conv_masked;
            assert_true(in_place(p, kind) == (core && p->w[2] <= core->channels &&
                                              p->w[3] / p->a.groups <= core->channels));
            check_problem(p, kind, FX_DTYPE_F32);
            check_threads(p, kind);
            fxi_cpu_parts_from(0);
            check_threads(p, kind);
            fxi_cpu_parts_from(FXI_PARTS_FROM);
        }
        problem one = *p;
        one.x[3] = one.y[3] = 1;
        operand x = make_operand(FX_DTYPE_F32, DENSE, 4, p->x);
        operand w = make_operand(FX_DTYPE_F32, DENSE, 4, p->w);
        operand y = make_operand(FX_DTYPE_F32, DENSE, 4, p->y);
        const operand *in[] = {&x, &w};
        const fx_attr attr = {.conv = p->a};
        assert_int_equal(run_step(FX_OP_CONV, FX_CLASS_CONV, attr, 2, in, &y).status, FX_OK);
        for (int64_t n = 0; n < p->x[3]; n++) {
            operand image = make_operand(FX_DTYPE_F32, DENSE, 4, one.x);
            operand alone = make_operand(FX_DTYPE_F32, DENSE, 4, one.y);
            const size_t from = (size_t)length_of(&image) * sizeof(float),
                         to = (size_t)length_of(&alone) * sizeof(float);
            memcpy(image.data, (const char *)x.data + (size_t)n * from, from);
            const operand *of_one[] = {&image, &w};
            assert_int_equal(run_step(FX_OP_CONV, FX_CLASS_CONV, attr, 2, of_one, &alone).status,
                             FX_OK);
            assert_memory_equal(alone.data, (const char *)y.data + (size_t)n * to, to);
            drop_operand(&image), drop_operand(&alone);
        }
        drop_operand(&x), drop_operand(&w), drop_operand(&y);
    }
}

/* Infinities and NaN of every operand reach the products they belong to, and no others, although
 * the windows have padding. */
static void odd_numbers_of_groups(void **state)
{
    (void)state;
    if (!fxi_cpu_simd()->conv_masked)
        return;
    for (int round = 0; round < 40; round++) {
        const problem p = random_groups();
        const int64_t *const shapes[] = {p.x, p.w, p.y};
        for (int kind = 0; kind < 3; kind++) {
            operand all[3];
            for (int k = 0; k < 3; k++) {
                all[k] = make_operand(FX_DTYPE_F32, DENSE, 4, shapes[k]);
                for (int64_t i = 0; i < length_of(&all[k]); i++)
                    ((float *)all[k].data)[i] = (float)random_in(1, 9);
                const int64_t at = random_in(0, length_of(&all[k]) - 1);
                if ((round + k) % 3)
                    set_element(&all[k], at, round % 2 ? INFINITY : (double)NAN);
            }
            operand *out = &all[kind == FX_CONV_FORWARD ? 2 : kind == FX_CONV_DATA ? 0 : 1];
            const operand *in[] = {&all[kind == FX_CONV_DATA ? 2 : 0],
                                   &all[kind == FX_CONV_WEIGHT ? 2 : 1]};
            const size_t n = (size_t)length_of(out);
            double *want = calloc(n, sizeof *want), *size = calloc(n, sizeof *size);
            fx_attr attr = {.conv = p.a};
            assert_true(want && size);
            attr.conv.kind = kind;
            visit_products(&p, want, size, kind, &all[0], &all[1], &all[2]);
            assert_int_equal(run_step(FX_OP_CONV, FX_CLASS_CONV, attr, 2, in, out).status, FX_OK);
            for (size_t i = 0; i < n && in_place(&p, kind); i++)
                check_close(element(out, (int64_t)i), want[i], 1e-5, 0);
            free(want), free(size);
            for (int k = 0; k < 3; k++)
                drop_operand(&all[k]);
        }
    }
}

/* Epilogues that the tiles apply, and one of another function. */
static void epilogues_of_groups(void **state)
{
    (void)state;
    fx_error_take(); /* of the tests before */
    setenv("FX_ONEDNN", "0", 1);
    for (int k = 0; k < 3; k++) {
        FX_SCOPE;
        fx_seed(17);
        fx_device *ref = fx_device_find("ref");
        fx_array *of[4] = {fx_randn(37, 19, 6, 2), fx_randn(3, 5, 2, 9), fx_randn(1, 1, 9, 1),
                           fx_randn(1, 1, 9, 1)};
        fx_array *y[2];
        for (int d = 0; d < 2; d++) {
            fx_array *a[4];
            for (int i = 0; i < 4; i++)
                a[i] = d ? fx_array_to(ref, of[i]) : of[i];
            y[d] = fx_convolve(a[0], a[1], .pad = FX_DIMS(1, 2), .groups = 3);
            y[d] = fx_add(k ? fx_mul(fx_sub(y[d], a[3]), a[2]) : y[d], a[2]);
            y[d] = fx_cpu(k == 2 ? fx_tanh(y[d]) : fx_relu(y[d]));
        }
        fx_eval(fx_tuple(y[0], y[1]));
        const double apart = fx_item(fx_maximum(fx_abs(fx_sub(y[0], y[1]))));
        const double most = fx_item(fx_maximum(y[1]));
        assert_int_equal(fx_error_print(stderr), 0);
        assert_true(most > 0.9);
        assert_true(apart <= 1e-5 * most);
    }
    unsetenv("FX_ONEDNN");
}

/* ---- through the plugin ---------------------------------------------------------------------- */

/* The plugin is tested once, because the instruction set of our kernels does not change it. */
static bool plugin_there(void)
{
    if (strcmp(fxi_cpu_simd()->name, "base") != 0)
        return false;
    setenv("FX_ONEDNN", "all", 1);
    setenv("FX_PLUGIN_PATH", CFLUX_BUILD_DIR, 1);
    if (fxi_cpu_plugin_name(true))
        return true;
    print_message("skipped: the oneDNN plugin is not built\n");
    return false;
}

/* Runs a step that the plugin may decline; returns false if it did. If `failing`, every allocation
 * fails in turn first. */
static bool run_plugin(fx_attr attr, const operand *a, const operand *b, operand *out,
                       const operand *bias, bool failing)
{
    fx_instr add = {.op = FX_OP_ADD, .dtype = out->t.dtype, .from = out->t.dtype, .nsrc = 2};
    add.src[1] = 1;
    fx_tensor in[3] = {a->t, b->t};
    const void *at[] = {a->data, b->data, bias ? bias->data : NULL};
    fx_step step = {.op = FX_OP_CONV,
                    .cls = FX_CLASS_CONV,
                    .nin = 2,
                    .in = in,
                    .out = out->t,
                    .as.conv = {.attr = attr.conv, .channels_last = true}};
    if (bias) {
        in[2] = out->t;
        memset(in[2].stride, 0, sizeof in[2].stride);
        in[2].stride[attr.conv.spatial] = in[2].shape[attr.conv.spatial] > 1;
        step.nin = 3;
        step.as.conv.epilogue = (fx_program){&add, 1};
    }
    const int64_t live = fxi_live_allocations();
    fx_run run = {0};
    fx_status status = FX_STATUS_MEMORY;
    bool reached = true;
    for (int64_t nth = failing ? 0 : -1; reached; nth++) {
        fxi_kernel_ready *ready = NULL;
        fxi_fault_set(nth);
        status = fxi_cpu_plugin_prepare(&step, &ready);
        if (!status) {
            const size_t bytes = (size_t)ready->work_bytes;
            uint8_t *work = malloc(bytes + GUARD);
            memset(work, 0xA5, bytes + GUARD);
            run.work = work;
            status = fxi_cpu_plugin_run(ready, &step, at, out->data, &run);
            for (size_t k = 0; k < GUARD; k++)
                assert_int_equal(work[bytes + k], 0xA5);
            free(work);
            fxi_cpu_plugin_release(ready);
        }
        reached = failing && fxi_fault_seen() > nth;
        fxi_fault_set(-1);
        assert_int_equal(fxi_live_allocations(), live);
    }
    assert_true(status == FX_OK || status == FX_STATUS_UNSUPPORTED);
    check_guards(out);
    return status == FX_OK;
}

static bool check_plugin(const problem *p, int kind, int dtype, bool biased, bool failing)
{
    operand x = make_operand(dtype, DENSE, p->ndim, p->x),
            w = make_operand(dtype, DENSE, p->ndim, p->w);
    operand y = make_operand(dtype, DENSE, p->ndim, p->y);
    operand bias = make_operand(dtype, DENSE, 1, &p->y[p->a.spatial]);
    lay_last(&x), lay_last(&y);
    operand *out = kind == FX_CONV_FORWARD ? &y : kind == FX_CONV_DATA ? &x : &w;
    const size_t n = (size_t)length_of(out);
    double *want = calloc(n + 1, sizeof *want), *size = calloc(n + 1, sizeof *size);
    assert_true(want && size);
    fx_attr attr = {.conv = p->a};
    attr.conv.kind = kind;
    const bool ran =
        run_plugin(attr, kind == FX_CONV_DATA ? &y : &x, kind == FX_CONV_WEIGHT ? &y : &w, out,
                   biased ? &bias : NULL, failing);
    const int64_t inner = fxi_length(p->a.spatial, p->y);
    if (ran) /* the sums take longer than the plugin */
        visit_products(p, want, size, kind, &x, &w, &y);
    for (size_t i = 0; i < n && biased; i++)
        want[i] += element(&bias, (int64_t)i / inner % p->y[p->a.spatial]);
    for (size_t i = 0; i < n && ran; i++)
        check_close(element(out, (int64_t)i), want[i], epsilon_of(dtype),
                    4 * epsilon_of(FX_DTYPE_F32) * size[i] + epsilon_of(FX_DTYPE_F32));
    drop_operand(&x), drop_operand(&w), drop_operand(&y), drop_operand(&bias);
    free(want), free(size);
    return ran;
}

/* oneDNN computes with BFloat16 on processors with AVX-512. With fewer instructions it also has
 * fewer algorithms, and takes fewer problems. */
static bool plugin_has_bf16(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

/* Checks a problem of BFloat16, which the plugin must take if the processor allows it. */
static void check_bf16(const problem *p, int kind)
{
    const bool ran = check_plugin(p, kind, FX_DTYPE_BF16, false, false);
    assert_true(ran || !plugin_has_bf16());
}

static void plugin_problems(void **state)
{
    (void)state;
    int ran = 0, all = 0;
    if (!plugin_there())
        return;
    /* A window that reaches past the padding: this was once a sum over scratch memory that was
     * never written. */
    const problem reach = {.ndim = 3,
                           .x = {2, 16, 1},
                           .w = {3, 16, 18},
                           .y = {1, 18, 1},
                           .a = {.groups = 1,
                                 .spatial = 1,
                                 .stride = {3},
                                 .before = {1},
                                 .after = {2},
                                 .dilation = {1}}};
    check_bf16(&reach, FX_CONV_WEIGHT);
    for (int round = 0; round < 60; round++) {
        problem p = random_problem(1 + round % 3);
        const int64_t in = random_in(1, 40), out = random_in(1, 40);
        const int g = p.a.groups, s = p.a.spatial;
        p.w[s] = in, p.w[s + 1] = out * g;
        p.x[s] = in * g, p.y[s] = out * g;
        for (int kind = 0; kind < 3; kind++) {
            ran += check_plugin(&p, kind, round % 4 ? FX_DTYPE_F32 : FX_DTYPE_BF16, false, false);
            all++;
        }
        check_plugin(&p, FX_CONV_FORWARD, FX_DTYPE_F32, true, false);
    }
    print_message("the plugin took %d of %d problems\n", ran, all);
    assert_true(ran >= (plugin_has_bf16() ? all / 4 : all / 8));
}

/* Several parts, of two sizes; more than the 16 channels of a vector and not a multiple of it. */
static void plugin_parts(void **state)
{
    (void)state;
    if (!plugin_there())
        return;
    const problem p = plain_2d(32, 3, 20, 33, 7, 1);
    for (int kind = 0; kind < 3; kind++) {
        assert_true(check_plugin(&p, kind, FX_DTYPE_F32, false, true));
        check_bf16(&p, kind);
    }
    assert_true(check_plugin(&p, FX_CONV_FORWARD, FX_DTYPE_F32, true, true));
}

/* NaN and Inf in one channel of one pixel reach the windows over it, and nothing else. */
static void plugin_odd_numbers(void **state)
{
    (void)state;
    if (!plugin_there())
        return;
    for (int64_t channels = 3; channels <= 35; channels += 16) {
        const problem p = plain_2d(9, 3, channels, 20, 2, 1);
        operand x = make_operand(FX_DTYPE_F32, DENSE, 4, p.x);
        operand w = make_operand(FX_DTYPE_F32, DENSE, 4, p.w);
        operand y = make_operand(FX_DTYPE_F32, DENSE, 4, p.y);
        lay_last(&x), lay_last(&y);
        for (int64_t i = 0; i < length_of(&w); i++)
            set_element(&w, i, 1);
        set_element(&x, 4 + 9 * 4, INFINITY);
        set_element(&x, 8 + 9 * 8 + 81 * channels, NAN);
        fx_attr attr = {.conv = p.a};
        assert_true(run_plugin(attr, &x, &w, &y, NULL, false));
        for (int64_t i = 0; i < length_of(&y); i++) {
            const int64_t c = i % 9, r = i / 9 % 9, image = i / (81 * 20);
            const bool inf = image == 0 && llabs(c - 4) <= 1 && llabs(r - 4) <= 1;
            const bool nan = image == 1 && c >= 7 && r >= 7;
            const double v = element(&y, i);
            assert_true(inf ? v == INFINITY : nan ? isnan(v) : isfinite(v));
        }
        drop_operand(&x), drop_operand(&w), drop_operand(&y);
    }
}

/* Images that are computed in several blocks, with a bias and a function after each. */
static void check_epilogue(int64_t taps, int64_t images)
{
    fx_error_take(); /* of the tests before */
    setenv("FX_ONEDNN", "0", 1);
    {
        FX_SCOPE;
        fx_seed(17);
        fx_device *ref = fx_device_find("ref");
        fx_array *x = fx_randn(64, 48, 64, images), *w = fx_randn(taps, taps, 64, 32);
        fx_array *b = fx_randn(1, 1, 32, 1), *y = fx_relu(fx_add(fx_convolve(x, w), b));
        fx_array *want = fx_cpu(fx_relu(
            fx_add(fx_convolve(fx_array_to(ref, x), fx_array_to(ref, w)), fx_array_to(ref, b))));
        fx_eval(y);
        fx_eval(want);
        const double apart = fx_item(fx_maximum(fx_abs(fx_sub(y, want))));
        const double most = fx_item(fx_maximum(want));
        assert_int_equal(fx_error_print(stderr), 0);
        assert_true(most > 1);
        assert_true(apart <= 1e-5 * most);
    }
    unsetenv("FX_ONEDNN");
}

static void epilogues_of_large_images(void **state)
{
    (void)state;
    check_epilogue(3, 1);
    check_epilogue(1, 1);
    check_epilogue(1, 9);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_problems),
    cmocka_unit_test(usual_shapes),
    cmocka_unit_test(large_shapes),
    cmocka_unit_test(images_of_odd_lengths),
    cmocka_unit_test(long_signals),
    cmocka_unit_test(taps_far_apart),
    cmocka_unit_test(infinite_numbers),
    cmocka_unit_test(infinite_weights),
    cmocka_unit_test(failing_allocations),
    cmocka_unit_test(many_channels),
    cmocka_unit_test(groups_in_place),
    cmocka_unit_test(bits_of_groups),
    cmocka_unit_test(odd_numbers_of_groups),
    cmocka_unit_test(epilogues_of_groups),
    cmocka_unit_test(plugin_problems),
    cmocka_unit_test(plugin_parts),
    cmocka_unit_test(plugin_odd_numbers),
    cmocka_unit_test(epilogues_of_large_images),
    cmocka_unit_test(one_tap),
    cmocka_unit_test(shares_of_gradients),
    cmocka_unit_test(panels_of_gradients),
    cmocka_unit_test(rows_apart),
};
RUN_ON_EVERY_ISA(tests)
