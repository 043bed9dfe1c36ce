/* Pooling on the CPU against loops over the unclipped window: all five kinds, one to three axes,
 * random windows, strides, paddings and dilations, ties, NaN, windows wholly in the padding. */
#include "cpu_check.h"

#ifdef CFLUX_EMULATED /* fewer on an emulated processor */
enum { PROBLEMS = 50 };
#else
enum { PROBLEMS = 300 };
#endif

typedef struct problem {
    fx_pool_attr a;
    int64_t x[5], y[5];
    int ndim;
} problem;

static int64_t random_in(int64_t lo, int64_t hi)
{
    return lo + (int64_t)(next_random() % (uint32_t)(hi - lo + 1));
}

static problem random_problem(int spatial)
{
    problem p = {.a = {.spatial = spatial}, .ndim = spatial + 2};
    for (int d = 0; d < spatial; d++) {
        p.a.window[d] = (int32_t)random_in(1, 3);
        p.a.stride[d] = (int32_t)random_in(1, 3);
        p.a.dilation[d] = (int32_t)random_in(1, 2);
        p.a.before[d] = (int32_t)random_in(0, 3);
        p.a.after[d] = (int32_t)random_in(0, 3);
        const int64_t reach = (p.a.window[d] - 1) * p.a.dilation[d] + 1;
        do
            p.x[d] = random_in(1, 7);
        while (p.x[d] + p.a.before[d] + p.a.after[d] < reach);
        p.y[d] = (p.x[d] + p.a.before[d] + p.a.after[d] - reach) / p.a.stride[d] + 1;
    }
    p.x[spatial] = p.y[spatial] = random_in(1, 3);
    p.x[spatial + 1] = p.y[spatial + 1] = random_in(1, 2);
    return p;
}

/* The offsets in x of one window, in column-major order of the window; −1 for padding. */
static int window_offsets(const problem *p, int64_t yo, int64_t at[27])
{
    int64_t X[3] = {1, 1, 1}, Y[3] = {1, 1, 1}, W[3] = {1, 1, 1};
    for (int d = 0; d < p->a.spatial; d++)
        X[d] = p->x[d], Y[d] = p->y[d], W[d] = p->a.window[d];
    const int64_t yi[3] = {yo % Y[0], yo / Y[0] % Y[1], yo / Y[0] / Y[1] % Y[2]},
                  plane = yo / (Y[0] * Y[1] * Y[2]);
    const int n = (int)(W[0] * W[1] * W[2]);
    for (int t = 0; t < n; t++) {
        const int64_t ti[3] = {t % W[0], t / W[0] % W[1], t / W[0] / W[1]};
        int64_t step = 1;
        at[t] = 0;
        bool inside = true;
        for (int d = 0; d < p->a.spatial; d++) {
            const int64_t i = yi[d] * p->a.stride[d] - p->a.before[d] + ti[d] * p->a.dilation[d];
            inside = inside && i >= 0 && i < X[d];
            at[t] += i * step;
            step *= X[d];
        }
        at[t] = inside ? at[t] + plane * X[0] * X[1] * X[2] : -1;
    }
    return n;
}

static int64_t first_largest(const operand *x, const int64_t *at, int n)
{
    int64_t best = -1;
    for (int t = 0; t < n; t++) {
        if (at[t] < 0 || (best >= 0 && isnan(element(x, best))))
            continue;
        if (best < 0 || element(x, at[t]) > element(x, best) || isnan(element(x, at[t])))
            best = at[t];
    }
    return best;
}

static void expect(const problem *p, int kind, const operand *a, const operand *x, int dtype,
                   double *want)
{
    static const double low[] = {-INFINITY, -INFINITY, -2147483648.0, -0x1p63,
                                 0,         0,         -INFINITY,     -INFINITY};
    int64_t at[27], windows = 1;
    for (int d = 0; d < p->ndim; d++)
        windows *= p->y[d];
    for (int64_t w = 0; w < windows; w++) {
        const int n = window_offsets(p, w, at);
        const bool mean = kind == FX_POOL_MEAN || kind == FX_POOL_MEAN_GRAD;
        const int64_t top = mean ? -1 : first_largest(x, at, n);
        if (kind == FX_POOL_MAX)
            want[w] = top < 0 ? low[dtype] : element(x, top);
        else if (kind == FX_POOL_MAX_PICK)
            want[w] = top < 0 ? 0 : element(a, top);
        else if (kind == FX_POOL_MAX_GRAD && top >= 0)
            want[top] += element(a, w);
        for (int t = 0; t < n && mean; t++) {
            if (at[t] >= 0 && kind == FX_POOL_MEAN)
                want[w] += element(a, at[t]) / n;
            else if (at[t] >= 0)
                want[at[t]] += element(a, w) / n;
        }
    }
}

static void check_layout(const problem *p, int kind, int dtype, bool with_nan, bool last)
{
    const bool grad = kind == FX_POOL_MAX_GRAD || kind == FX_POOL_MEAN_GRAD;
    operand x = make_operand(dtype, DENSE, p->ndim, p->x);
    operand a = make_operand(dtype, DENSE, p->ndim, grad ? p->y : p->x);
    operand out = make_operand(dtype, DENSE, p->ndim, grad ? p->x : p->y);
    if (last)
        lay_last(&x), lay_last(&a), lay_last(&out);
    for (int64_t i = 0; i < length_of(&x); i++) { /* few values: many ties */
        set_element(&x, i, (double)random_in(0, 3));
        if (with_nan && next_random() % 8 == 0)
            set_element(&x, i, NAN);
        if (with_nan && next_random() % 4 == 0)
            set_element(&x, i, -INFINITY);
    }
    const int nin =
        kind == FX_POOL_MAX || kind == FX_POOL_MEAN || kind == FX_POOL_MEAN_GRAD ? 1 : 2;
    const operand *in[] = {kind == FX_POOL_MAX ? &x : &a, &x};
    double *want = calloc((size_t)length_of(&out) + 1, sizeof *want);
    assert_non_null(want);
    expect(p, kind, &a, &x, dtype, want);
    fx_attr attr = {.pool = p->a};
    attr.pool.kind = kind;
    const fx_status status =
        run_step_laid(FX_OP_POOL, FX_CLASS_POOL, attr, nin, in, &out, last).status;
    assert_int_equal(status, FX_OK);
    for (int64_t i = 0; i < length_of(&out); i++)
        check_close(element(&out, i), want[i], 8 * epsilon_of(dtype), 16 * epsilon_of(dtype));
    drop_operand(&x), drop_operand(&a), drop_operand(&out);
    free(want);
}

static void check_problem(const problem *p, int kind, int dtype, bool with_nan)
{
    check_layout(p, kind, dtype, with_nan, false);
}

/* Every number of channels that vectors cut differently. */
static void channels_last(void **state)
{
    (void)state;
    for (int round = 0; round < PROBLEMS; round++) {
        problem p = random_problem(1 + round % 3);
        const int64_t channels = round < PROBLEMS * 4 / 5 ? 1 + round % 40 : random_in(41, 200);
        p.x[p.a.spatial] = p.y[p.a.spatial] = channels;
        if (round % 4 == 0) /* windows that tile x */
            for (int d = 0; d < p.a.spatial; d++) {
                p.a.stride[d] = p.a.window[d], p.a.dilation[d] = 1;
                p.a.before[d] = p.a.after[d] = 0;
                p.x[d] = p.y[d] * p.a.window[d];
            }
        for (int kind = 0; kind < 5; kind++) {
            check_layout(&p, kind, FX_DTYPE_F32, round % 2, true);
            check_layout(&p, kind, FX_DTYPE_BF16, round % 2, true);
        }
    }
}

static void random_problems(void **state)
{
    (void)state;
    for (int round = 0; round < PROBLEMS; round++) {
        const problem p = random_problem(1 + round % 3);
        for (int kind = 0; kind < 5; kind++)
            for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++) {
                const bool is_float = dtype < FX_DTYPE_I32 || fxi_cpu_is_half(dtype);
                if (is_float ||
                    ((kind == FX_POOL_MAX || kind == FX_POOL_MAX_PICK) && dtype != FX_DTYPE_BOOL))
                    check_problem(&p, kind, dtype, is_float && round % 2);
            }
    }
}

/* Rows of every length that vectors cut differently, and of more than one tile; windows of 2×2 side
 * by side, with and without a rest, and others. */
static void long_rows(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 600; n += n < 40 ? 1 : 277)
        for (int kind = 0; kind < 5; kind++)
            for (int rest = 0; rest < 4; rest++) {
                problem p = {
                    .a = {.spatial = 2, .window = {2, 2}, .stride = {2, 2}, .dilation = {1, 1}},
                    .x = {2 * n + rest % 2, 6 + rest / 2, 2, 1},
                    .y = {n, 3, 2, 1},
                    .ndim = 4};
                check_problem(&p, kind, FX_DTYPE_F32, n % 3 != 0);
                check_problem(&p, kind, FX_DTYPE_F64, n % 3 != 0);
                p.a.window[0] = 3, p.a.before[0] = 1;
                check_problem(&p, kind, FX_DTYPE_F32, n % 3 != 0);
            }
}

static void nothing_in_the_window(void **state)
{
    (void)state;
    const problem p = {.a = {.spatial = 1,
                             .window = {2},
                             .stride = {2},
                             .before = {4},
                             .after = {4},
                             .dilation = {1}},
                       .x = {2, 1, 1},
                       .y = {5, 1, 1},
                       .ndim = 3};
    check_problem(&p, FX_POOL_MAX, FX_DTYPE_F32, false); /* −Inf outside */
    check_problem(&p, FX_POOL_MAX, FX_DTYPE_I32, false);
    check_problem(&p, FX_POOL_MAX_GRAD, FX_DTYPE_F64, false);
    const problem empty = {.a = {.spatial = 1, .window = {2}, .stride = {2}, .dilation = {1}},
                           .x = {4, 3, 0},
                           .y = {2, 3, 0},
                           .ndim = 3};
    for (int kind = 0; kind < 5; kind++)
        check_problem(&empty, kind, FX_DTYPE_F32, false);
}

static void integers_have_no_mean(void **state)
{
    (void)state;
    operand x = make_operand(FX_DTYPE_I32, DENSE, SHAPE(4, 1, 1)),
            y = make_operand(FX_DTYPE_I32, DENSE, SHAPE(2, 1, 1));
    const fx_attr attr = {
        .pool = {
            .kind = FX_POOL_MEAN, .spatial = 1, .window = {2}, .stride = {2}, .dilation = {1}}};
    const step_run b = run_step(FX_OP_POOL, FX_CLASS_POOL, attr, 1, (const operand *[]){&x}, &y);
    assert_int_equal(b.status, FX_STATUS_UNSUPPORTED);
    drop_operand(&x), drop_operand(&y);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_problems),
    cmocka_unit_test(channels_last),
    cmocka_unit_test(long_rows),
    cmocka_unit_test(nothing_in_the_window),
    cmocka_unit_test(integers_have_no_mean),
};
RUN_ON_EVERY_ISA(tests)
