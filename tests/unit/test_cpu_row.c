/* test_cpu_row.c: row steps on the CPU against plain loops in double: rows of every length around
 * the sizes of tiles, operands of every layout and type, numbers that are not finite, outputs of
 * both shapes, several threads. That the graphs become one row step is asserted from their plans.
 *
 * Every test runs once per instruction set that the machine has.
 */
#include "cpu_check.h"

#include <cflux.h>

#include "context.h"
#include "cpu_masked_sum.h"
#include "cpu_simd.h"
#include "evaluate.h"

/* Evaluates an array or a tuple in one row step. */
static void compute(void *x)
{
    static char text[4096];
    fx_plan_text(x, text, sizeof text);
    if (!strstr(text, "\n  1  row ") || strstr(text, "\n  2  "))
        fail_msg("not one row step:\n%s", text);
    assert_int_equal(fx_eval(x), FX_OK);
}

/* The elements of an evaluated array as double. */
static double *elements(fx_array *x)
{
    double *v = malloc((size_t)fx_length(x) * sizeof *v);
    assert_non_null(v);
    assert_int_equal(fx_read_as(x, FX_DTYPE_F64, v, fx_length(x)), FX_OK);
    return v;
}

typedef enum arrangement {
    PLAIN,
    TURNED,
    SPACED,
    BACKWARDS,
    ONE_ROW,
    ONE_A_ROW,
    KINDS
} arrangement;

/* m×n elements between −3 and 3 with the given order in memory. */
static fx_array *operand_of(fx_dtype t, arrangement how, int64_t m, int64_t n)
{
    static uint64_t state = 1;
    const int64_t sizes[] = {how == TURNED      ? n
                             : how == SPACED    ? 2 * m
                             : how == ONE_A_ROW ? 1
                                                : m,
                             how == TURNED    ? m
                             : how == ONE_ROW ? 1
                                              : n};
    const int64_t length = sizes[0] * sizes[1];
    double *v = malloc((size_t)length * sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < length; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        v[i] = (double)(state >> 40) * 0x6p-24 - 3;
    }
    fx_array *x = fx_cast(fxi_from(FX_DTYPE_F64, v, 2, sizes), t);
    free(v);
    assert_int_equal(fx_eval(x), FX_OK);
    return how == TURNED      ? fx_transpose(x)
           : how == SPACED    ? fx_slice_step(x, 0, 1, 2, m)
           : how == BACKWARDS ? fx_slice_step(x, 0, m - 1, -1, m)
           : how == PLAIN     ? x
                              : fx_expand(x, m, n);
}

static void near(double got, double want, double epsilon, const char *what, int64_t m, int64_t n,
                 int64_t i)
{
    if (isnan(want) ? isnan(got) : got == want || fabs(got - want) <= epsilon * (1 + fabs(want)))
        return;
    fail_msg("%s of %lld×%lld, element %lld: %.9g, expected %.9g", what, (long long)m, (long long)n,
             (long long)i, got, want);
}

/* ---- expected values ------------------------------------------------------------------------- */

static void softmax_of(const double *x, int64_t m, double *y)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < m; i++)
        most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < m; i++)
        sum += exp(x[i] - most);
    for (int64_t i = 0; i < m; i++)
        y[i] = exp(x[i] - most) / sum;
}

static void normalised(const double *x, int64_t m, double *y)
{
    long double sum = 0, squares = 0;
    for (int64_t i = 0; i < m; i++)
        sum += (long double)x[i];
    const long double mean = sum / (long double)m;
    for (int64_t i = 0; i < m; i++)
        squares += ((long double)x[i] - mean) * ((long double)x[i] - mean);
    for (int64_t i = 0; i < m; i++)
        y[i] = (double)(((long double)x[i] - mean) / sqrtl(squares / (long double)m + 1));
}

static void check_rows(fx_array *got, fx_array *in,
                       void (*expected)(const double *, int64_t, double *), double epsilon,
                       const char *what)
{
    const int64_t m = fx_size(in, 0), n = fx_length(in) / m;
    double *x = elements(in), *y = elements(got), *want = malloc((size_t)m * sizeof *want);
    assert_non_null(want);
    for (int64_t r = 0; r < n; r++) {
        expected(x + r * m, m, want);
        for (int64_t i = 0; i < m; i++)
            near(y[r * m + i], want[i], epsilon, what, m, n, r * m + i);
    }
    free(x);
    free(y);
    free(want);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void every_length(void **state)
{
    (void)state;
    static const int64_t lengths[] = {2,   3,   10,  15,  16,  17,   63,   100,  128, 129,
                                      255, 256, 257, 300, 768, 1024, 1025, 3000, 8192};
    static const int64_t rows[] = {1, 2, 25, 26, 64, 65, 129};
    fxi_reclaim_all(); /* plans of another instruction set */
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            FX_SCOPE;
            const int64_t m = lengths[i], n = m > 1000 && rows[k] > 30 ? 5 : rows[k];
            const fx_dtype t = k % 2 ? FX_DTYPE_F64 : FX_DTYPE_F32;
            const double epsilon = 16 * epsilon_of((int)t);
            fx_array *x = operand_of(t, PLAIN, m, n);
            fx_array *y = fx_softmax(x), *z = fx_normalise(x, FX_AXES(0), 1);
            compute(y);
            compute(z);
            check_rows(y, x, softmax_of, epsilon, "softmax");
            check_rows(z, x, normalised, epsilon, "normalise");
        }
}

static void every_layout_and_type(void **state)
{
    (void)state;
    static const fx_dtype types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16, FX_DTYPE_BF16};
    static const int64_t sizes[][2] = {{2, 67}, {10, 64}, {100, 70}, {300, 5}, {2500, 3}};
    fxi_reclaim_all();
    for (int how = 0; how < KINDS; how++)
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < 5; i++) {
                FX_SCOPE;
                fx_array *x = operand_of(types[k], (arrangement)how, sizes[i][0], sizes[i][1]);
                fx_array *y = fx_softmax(x), *z = fx_normalise(x, FX_AXES(0), 1);
                compute(y);
                compute(z);
                assert_int_equal(fx_eltype(y), types[k]);
                check_rows(y, x, softmax_of, 16 * epsilon_of((int)types[k]), "softmax");
                check_rows(z, x, normalised, 16 * epsilon_of((int)types[k]), "normalise");
            }
}

/* y = (s·x + b) / Σ(s·x + b), s one row for all, b one value a row, both strided or not; the sum is
 * an output, too. */
static void several_operands_and_outputs(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{3, 50}, {20, 30}, {130, 40}, {2000, 7}};
    fxi_reclaim_all();
    for (int how = 0; how < KINDS; how++)
        for (int i = 0; i < 4; i++) {
            FX_SCOPE;
            const int64_t m = sizes[i][0], n = sizes[i][1];
            fx_array *x = operand_of(FX_DTYPE_F32, (arrangement)how, m, n);
            fx_array *s = operand_of(FX_DTYPE_F32, PLAIN, m, 1);
            fx_array *b = fx_add(operand_of(FX_DTYPE_F32, how % 2 ? SPACED : PLAIN, 1, n), 20);
            assert_int_equal(fx_eval(b), FX_OK);
            fx_array *t = fx_add(fx_mul(s, x), b), *sum = fx_sum(t, .dims = FX_AXES(0));
            fx_array *y = fx_div(t, sum), *root = fx_sqrt(sum);
            compute(fx_tuple(y, sum, root));
            double *xs = elements(x), *ss = elements(s), *bs = elements(b), *ys = elements(y),
                   *sums = elements(sum), *roots = elements(root);
            for (int64_t r = 0; r < n; r++) {
                double total = 0;
                for (int64_t k = 0; k < m; k++)
                    total += ss[k] * xs[r * m + k] + bs[r];
                near(sums[r], total, 1e-5, "sum", m, n, r);
                near(roots[r], sqrt(total), 1e-5, "root", m, n, r);
                for (int64_t k = 0; k < m; k++)
                    near(ys[r * m + k], (ss[k] * xs[r * m + k] + bs[r]) / total, 1e-5, "share", m,
                         n, r * m + k);
            }
            double *const all[] = {xs, ss, bs, ys, sums, roots};
            for (int k = 0; k < 6; k++)
                free(all[k]);
        }
}

/* How often the largest number occurs: comparisons, Bool and Int64 in one step. */
static void integers(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{2, 40}, {30, 20}, {200, 9}, {1500, 3}};
    fxi_reclaim_all();
    for (int i = 0; i < 4; i++) {
        FX_SCOPE;
        const int64_t m = sizes[i][0], n = sizes[i][1];
        fx_array *x = fx_cast(operand_of(FX_DTYPE_F32, PLAIN, m, n), FX_DTYPE_I32);
        assert_int_equal(fx_eval(x), FX_OK);
        fx_array *hit = fx_eq(x, fx_maximum(x, .dims = FX_AXES(0)));
        fx_array *count = fx_sum(hit, .dims = FX_AXES(0));
        compute(fx_tuple(count, hit));
        double *v = elements(x), *c = elements(count), *h = elements(hit);
        for (int64_t r = 0; r < n; r++) {
            double most = v[r * m], times = 0;
            for (int64_t k = 0; k < m; k++)
                most = v[r * m + k] > most ? v[r * m + k] : most;
            for (int64_t k = 0; k < m; k++) {
                times += v[r * m + k] == most;
                assert_true(h[r * m + k] == (v[r * m + k] == most));
            }
            assert_true(c[r] == times);
        }
        free(v);
        free(c);
        free(h);
    }
}

/* Choices between two single numbers: between the largest one of the row and −2, and between ½ and
 * −4. */
static void choices_of_two_numbers(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{3, 50}, {130, 40}, {2000, 7}};
    fxi_reclaim_all();
    for (int i = 0; i < 6; i++) {
        FX_SCOPE;
        const int64_t m = sizes[i / 2][0], n = sizes[i / 2][1];
        const fx_dtype t = i % 2 ? FX_DTYPE_F64 : FX_DTYPE_F32;
        fx_array *x = operand_of(t, PLAIN, m, n), *mask = fx_gt(operand_of(t, PLAIN, m, n), 0);
        assert_int_equal(fx_eval(mask), FX_OK);
        fx_array *top = fx_maximum(x, .dims = FX_AXES(0));
        fx_array *y = fx_add(fx_where(mask, top, -2), fx_mul(fx_where(mask, 0.5, -4), x));
        compute(y);
        double *xs = elements(x), *ys = elements(y), *hits = elements(mask);
        for (int64_t r = 0; r < n; r++) {
            double most = xs[r * m];
            for (int64_t k = 0; k < m; k++)
                most = fmax(most, xs[r * m + k]);
            for (int64_t k = r * m; k < (r + 1) * m; k++)
                near(ys[k], hits[k] != 0 ? most + 0.5 * xs[k] : -2 - 4 * xs[k],
                     4 * epsilon_of((int)t), "choice", m, n, k);
        }
        free(xs);
        free(ys);
        free(hits);
    }
}

/* Σ of x where a mask is true and of `other` elsewhere, the number of true elements, and elements
 * from which a choice of two numbers is subtracted, or to which it is added, for masks with no,
 * one, some or only true elements. All numbers are multiples of ⅛, so sums are exact. */
static void check_masked(int64_t m, int64_t n, int density, int axis, double other)
{
    FX_SCOPE;
    const int64_t dims[] = {axis ? n : m, axis ? m : n};
    float *v = malloc((size_t)(m * n) * sizeof *v);
    uint8_t *mask = malloc((size_t)(m * n));
    assert_true(v && mask);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < m; i++) {
            const int64_t at = axis ? i * n + r : r * m + i, key = (i * 37 + r * 11) % 101;
            const bool one = i == (r * 97 + 5) % m;
            v[at] = (float)(key - 50) / 8;
            mask[at] = density == 0 ? false : density == 1 ? one : density == 2 ? key < 6 : true;
            /* Elements that are not chosen do not count, whatever they are. */
            if (!mask[at] && key == 13)
                v[at] = -INFINITY;
        }
    fx_array *x = fxi_from(FX_DTYPE_F32, v, 2, dims), *y = fxi_from(FX_DTYPE_BOOL, mask, 2, dims);
    assert_int_equal(fx_eval(fx_tuple(x, y)), FX_OK);
    const fx_axes axes = {1u << axis};
    fx_array *top = fx_maximum(x, .dims = axes), *d = fx_sub(x, top);
    fx_array *picked = fx_sum(fx_where(y, d, other), .dims = axes);
    fx_array *count = fx_sum(fx_cast(y, FX_DTYPE_F32), .dims = axes);
    fx_array *sum = fx_add(picked, fx_mul(top, count));
    fx_array *less = fx_sub(fx_mul(x, 2), fx_where(y, count, other));
    fx_array *more = fx_add(fx_where(y, 0.25, other), d);
    compute(fx_tuple(sum, count, less, more));
    double *sums = elements(sum), *counts = elements(count), *lesses = elements(less),
           *mores = elements(more);
    for (int64_t r = 0; r < n; r++) {
        double chosen = 0, want = 0, most = -INFINITY;
        for (int64_t i = 0; i < m; i++) {
            const int64_t at = axis ? i * n + r : r * m + i;
            chosen += mask[at];
            want += mask[at] ? (double)v[at] : other;
            most = fmax(most, (double)v[at]);
        }
        near(counts[r], chosen, 0, "count", m, n, r);
        near(sums[r], want, 0, "masked sum", m, n, r);
        for (int64_t i = 0; i < m; i++) {
            const int64_t at = axis ? i * n + r : r * m + i;
            const double own = (double)v[at];
            near(lesses[at], 2 * own - (mask[at] ? chosen : other), 0, "less", m, n, at);
            near(mores[at], (mask[at] ? 0.25 : other) + (own - most), 0, "more", m, n, at);
        }
    }
    free(v);
    free(mask);
    free(lesses);
    free(mores);
    free(sums);
    free(counts);
}

/* The order of additions is that of the reducer: here sums depend on it. */
static void sparse_sums_have_the_bits_of_the_reducer(void **state)
{
    (void)state;
    enum { MOST = 1100 };
    float x[MOST], terms[MOST];
    uint8_t mask[MOST];
    int compared = 0;
    for (int n = FXI_MASKED_LEAST; n < MOST; n += 37) {
        for (int i = 0; i < n; i++) {
            x[i] = ldexpf((float)(i * 7919 % 1009) / 3 - 150, i * 31 % 60 - 30);
            mask[i] = i * 37 % n < 12;
            terms[i] = mask[i] ? x[i] : 0;
        }
        double want = 0, got = 0;
        fxi_cpu_reducer(FX_REDUCE_SUM, FX_DTYPE_F32, FX_DTYPE_F32)->row(terms, n, 1, &want);
        if (!fxi_cpu_sparse_sum(mask, x, n, &got))
            continue;
        assert_memory_equal(&got, &want, sizeof got);
        compared++;
    }
    assert_true(compared >= 20);
}

static void masked_sums(void **state)
{
    (void)state;
    static const int64_t lengths[] = {3, 10, 16, 17, 63, 100, 130, 300, 1000, 1031, 2500};
    fxi_reclaim_all();
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int density = 0; density < 4; density++) {
            check_masked(lengths[i], 37, density, 0, 0);
            check_masked(lengths[i], 5, density, 0, 2.5);
            if (lengths[i] < 2000) /* longer columns are reduced in several steps */
                check_masked(lengths[i], 33, density, 1, 0);
        }
}

/* NaN and Inf stay in their row. */
static void not_finite(void **state)
{
    (void)state;
    static const int64_t lengths[] = {3, 20, 150, 1100};
    fxi_reclaim_all();
    for (int i = 0; i < 4; i++) {
        FX_SCOPE;
        const int64_t m = lengths[i], n = 5, dims[] = {m, n};
        float *v = malloc((size_t)(m * n) * sizeof *v);
        assert_non_null(v);
        for (int64_t k = 0; k < m * n; k++)
            v[k] = (float)(k % 7);
        v[m + m / 2] = NAN;
        v[2 * m + m - 1] = INFINITY;
        for (int64_t k = 0; k < m; k++)
            v[3 * m + k] = -INFINITY;
        fx_array *x = fxi_from(FX_DTYPE_F32, v, 2, dims);
        assert_int_equal(fx_eval(x), FX_OK);
        fx_array *y = fx_logsumexp(x, .dims = FX_AXES(0)), *z = fx_softmax(x);
        compute(y);
        compute(z);
        double *got = elements(y), *soft = elements(z), *want = malloc((size_t)m * sizeof *want),
               *row = malloc((size_t)m * sizeof *row);
        assert_non_null(want);
        assert_non_null(row);
        assert_true(isnan(got[1]) && got[2] == (double)INFINITY && got[3] == -(double)INFINITY);
        for (int64_t r = 0; r < n; r += 4) {
            double sum = 0;
            for (int64_t k = 0; k < m; k++) {
                row[k] = (double)v[r * m + k];
                sum += exp(row[k]);
            }
            softmax_of(row, m, want);
            near(got[r], log(sum), 1e-6, "logsumexp", m, n, r);
            for (int64_t k = 0; k < m; k++)
                near(soft[r * m + k], want[k], 1e-6, "softmax", m, n, k);
        }
        for (int64_t k = 0; k < m; k++)
            assert_true(isnan(soft[m + k]) && isnan(soft[3 * m + k]));
        free(v);
        free(got);
        free(soft);
        free(want);
        free(row);
    }
}

/* An output that is written past the cache, by one thread and by three. */
static void large_and_on_threads(void **state)
{
    (void)state;
    const int before = fx_num_threads();
    fxi_reclaim_all();
    FX_SCOPE;
    fx_array *x = operand_of(FX_DTYPE_F32, PLAIN, 1000, 2200), *y[2];
    for (int k = 0; k < 2; k++) {
        assert_int_equal(fx_set_num_threads(k ? 3 : 1), FX_OK);
        y[k] = fx_softmax(x);
        compute(y[k]);
    }
    assert_int_equal(fx_set_num_threads(before), FX_OK);
    check_rows(y[0], x, softmax_of, 1e-6, "softmax");
    assert_memory_equal(fx_data(y[0]), fx_data(y[1]), 1000 * 2200 * sizeof(float));
}

/* A norm of rows of w×c elements with a scale and a shift for each of the c channels, and its
 * gradients: of x, scale and shift. */
typedef struct scaled_norm {
    fx_array *x, *g, *scale, *shift, *y, *gradient[3];
} scaled_norm;

static scaled_norm scaled(int64_t w, int64_t c, int64_t n)
{
    const int64_t of_x[] = {w, c, n}, of_scale[] = {1, c, 1};
    scaled_norm s = {
        .x = fxi_reshape(operand_of(FX_DTYPE_F32, PLAIN, w * c, n), 3, of_x),
        .g = fxi_reshape(operand_of(FX_DTYPE_F32, PLAIN, w * c, n), 3, of_x),
        .scale = fxi_reshape(operand_of(FX_DTYPE_F32, PLAIN, c, 1), 3, of_scale),
        .shift = fxi_reshape(operand_of(FX_DTYPE_F32, PLAIN, c, 1), 3, of_scale),
    };
    assert_int_equal(fx_eval(fx_tuple(s.x, s.g, s.scale, s.shift)), FX_OK);
    s.y = fx_add(fx_mul(s.scale, fx_normalise(s.x, FX_AXES(0, 1), 1)), s.shift);
    fx_array *const by[] = {s.x, s.scale, s.shift};
    assert_int_equal(fx_pullback(s.y, s.g, by, 3, s.gradient), FX_OK);
    return s;
}

/* With z the normalised row and u = g·scale, the gradients are (u − mean(u) − z·mean(u·z))/σ, Σ g·z
 * and Σ g. */
static void check_scaled(const scaled_norm *s, bool gradients, double epsilon)
{
    const int64_t w = fx_size(s->x, 0), c = fx_size(s->x, 1), n = fx_size(s->x, 2), m = w * c;
    double *x = elements(s->x), *g = elements(s->g), *scale = elements(s->scale),
           *shift = elements(s->shift), *y = elements(s->y), *z = malloc((size_t)m * sizeof *z),
           *sums = calloc((size_t)(2 * c), sizeof *sums);
    double *got[3] = {NULL, NULL, NULL};
    assert_non_null(z);
    assert_non_null(sums);
    for (int k = 0; k < 3 && gradients; k++)
        got[k] = elements(s->gradient[k]);
    for (int64_t r = 0; r < n; r++) {
        double mean = 0, squares = 0, u_mean = 0, uz_mean = 0;
        normalised(x + r * m, m, z);
        for (int64_t i = 0; i < m; i++)
            mean += x[r * m + i] / (double)m;
        for (int64_t i = 0; i < m; i++)
            squares += (x[r * m + i] - mean) * (x[r * m + i] - mean) / (double)m;
        for (int64_t i = 0; i < m; i++) {
            const double gi = g[r * m + i], u = gi * scale[i / w];
            near(y[r * m + i], z[i] * scale[i / w] + shift[i / w], epsilon, "y", m, n, r * m + i);
            u_mean += u / (double)m;
            uz_mean += u * z[i] / (double)m;
            sums[i / w] += gi * z[i];
            sums[c + i / w] += gi;
        }
        for (int64_t i = 0; i < m && gradients; i++)
            near(got[0][r * m + i],
                 (g[r * m + i] * scale[i / w] - u_mean - z[i] * uz_mean) / sqrt(squares + 1),
                 epsilon, "gradient of x", m, n, r * m + i);
    }
    for (int64_t i = 0; i < 2 * c && gradients; i++)
        near(got[1 + i / c][i % c], sums[i], epsilon * (double)(w * n), "a sum across rows", m, n,
             i);
    for (int k = 0; k < 3; k++)
        free(got[k]);
    free(x), free(g), free(scale), free(shift), free(y), free(z), free(sums);
}

static void scaled_norms_and_gradients(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 129, 64}, {1, 144, 1},   {1, 256, 5},   {1, 257, 65},
                                       {1, 768, 70}, {1, 1030, 66}, {1, 3000, 64}, {40, 5, 67},
                                       {10, 20, 65}, {300, 4, 64},  {7, 300, 66}};
    fxi_reclaim_all();
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        FX_SCOPE;
        scaled_norm s = scaled(sizes[k][0], sizes[k][1], sizes[k][2]);
        compute(s.y);
        check_scaled(&s, false, 4e-6);
        s = scaled(sizes[k][0], sizes[k][1], sizes[k][2]);
        void *all = fx_tuple(s.y, s.gradient[0], s.gradient[1], s.gradient[2]);
        /* Sums over a few rows are steps of their own. */
        if (sizes[k][2] < 64)
            assert_int_equal(fx_eval(all), FX_OK);
        else
            compute(all);
        check_scaled(&s, true, 4e-6);
    }
}

/* Rows that do not begin at cache lines, written past the cache. */
static void large_norms(void **state)
{
    (void)state;
    const int before = fx_num_threads();
    float *first[4] = {NULL};
    fxi_reclaim_all();
    FX_SCOPE;
    const scaled_norm s = scaled(1, 770, 2800);
    for (int k = 0; k < 2; k++) {
        FX_SCOPE;
        assert_int_equal(fx_set_num_threads(k ? 3 : 1), FX_OK);
        scaled_norm t = s;
        t.y = fx_add(fx_mul(s.scale, fx_normalise(s.x, FX_AXES(0, 1), 1)), s.shift);
        fx_array *const by[] = {s.x, s.scale, s.shift};
        assert_int_equal(fx_pullback(t.y, s.g, by, 3, t.gradient), FX_OK);
        compute(fx_tuple(t.y, t.gradient[0], t.gradient[1], t.gradient[2]));
        fx_array *const all[] = {t.y, t.gradient[0], t.gradient[1], t.gradient[2]};
        for (int i = 0; i < 4; i++) {
            const size_t bytes = (size_t)fx_length(all[i]) * sizeof(float);
            if (k > 0) {
                assert_memory_equal(first[i], fx_data(all[i]), bytes);
                free(first[i]);
                continue;
            }
            first[i] = malloc(bytes);
            assert_non_null(first[i]);
            memcpy(first[i], fx_data(all[i]), bytes);
        }
        if (k == 0)
            check_scaled(&t, true, 4e-6);
    }
    assert_int_equal(fx_set_num_threads(before), FX_OK);
    compute(s.y);
    check_scaled(&s, false, 4e-6);
}

/* The mean of a repeated number: no instruction needs a tile, so the plan has no bytes of tiles. */
static void without_tiles(void **state)
{
    (void)state;
    static const int64_t lengths[] = {255, 300, 1031, 5000};
    for (int k = 0; k < 4; k++) {
        FX_SCOPE;
        fx_array *one = fx_full(1.5, 1);
        assert_int_equal(fx_eval(one), FX_OK);
        fx_array *mean = fx_mean(fx_expand(one, lengths[k]));
        compute(mean);
        double *v = elements(mean);
        assert_true(v[0] == 1.5);
        free(v);
    }
}

/* Counts and runs of masks against loops over single bytes. */
static void masks(void **state)
{
    (void)state;
    enum { MOST = 40000 };
    static const int lengths[] = {1,   7,   8,   15,  16,   17,   63,    64,    65,  100,
                                  127, 128, 191, 255, 1000, 4097, 16321, 20000, MOST};
    static const int every[] = {1, 2, 63, 64, 200, 1023, MOST};
    const fxi_simd *simd = fxi_cpu_simd();
    uint8_t *mask = malloc(MOST);
    assert_non_null(mask);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t k = 0; k < sizeof every / sizeof *every; k++) {
            const int n = lengths[i];
            int64_t count = 0;
            for (int j = 0; j < n; j++)
                count += mask[j] = j % every[k] == every[k] - 1;
            assert_int_equal(simd->mask_count(mask, n), count);
            enum { FEW = 16 };
            int64_t list[FEW + 64];
            const int listed = simd->mask_list(mask, n, FEW, list);
            assert_true(count > FEW ? listed > FEW && listed <= FEW + 64 : listed == count);
            for (int j = 0; j < listed; j++)
                assert_int_equal(list[j], (j + 1) * every[k] - 1);
            for (int from = 0, end; from < n; from = end) {
                bool some, want = false, next = false;
                end = from + (int)simd->mask_run(mask + from, n - from, &some);
                assert_true(end > from && end <= n && (end == n || (end - from) % 64 == 0));
                for (int block = from; block < end; block += 64) {
                    want = false;
                    for (int j = block; j < block + 64 && j < end; j++)
                        want |= mask[j];
                    assert_int_equal(want, some);
                }
                for (int j = end; j < end + 64 && j < n; j++)
                    next |= mask[j];
                assert_true(end == n || next != some);
            }
        }
    free(mask);
}

/* The loop over differences and their exponentials gives the bits of the separate loops. */
static void exponentials_in_one_loop(void **state)
{
    (void)state;
    enum { MOST = 1024 };
    static const float odd[] = {INFINITY, -INFINITY, NAN,   -103.97f, -87.5f, 88.7f, 88.73f,
                                0.0f,     -0.0f,     1e30f, -1e30f,   -95.0f, 89.5f, 200.0f};
    const fxi_simd *simd = fxi_cpu_simd();
    float x[MOST], d[MOST + 1], e[MOST + 1], want_d[MOST], want_e[MOST];
    for (int n = 1; n <= MOST && simd->fused->exponentials; n += n < 130 ? 1 : 149)
        for (int k = 0; k < 8; k++) {
            float m = k & 1 ? 0.0f : 1.75f;
            for (int i = 0; i < n; i++)
                x[i] = i % 5 || k < 4 ? (float)(i * 7919 % 1009) / 7 - 140 : odd[(i + n) % 14];
            simd->mixed[FX_OP_SUB][FXI_C_F32][0](want_d, (const void *[]){x, &m}, n, 0);
            simd->ops[FX_OP_EXP][FXI_C_F32](want_e, (const void *[]){want_d}, n, 0);
            d[n] = e[n] = 12345;
            const fxi_fused_tile t = {.at = {e, x, &m, k & 2 ? d : NULL, x}, .n = n};
            simd->fused->exponentials(&t);
            assert_memory_equal(e, want_e, (size_t)n * sizeof *e);
            assert_true(!(k & 2) || !memcmp(d, want_d, (size_t)n * sizeof *d));
            assert_true(d[n] == 12345 && e[n] == 12345);
        }
}

/* Operands with one value for each channel of w elements, which also differs from row to row. */
static void values_of_channels(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{255, 5, 9},  {256, 3, 7},  {257, 6, 5}, {1000, 3, 4},
                                       {1024, 2, 3}, {2000, 4, 3}, {300, 4, 1}};
    fxi_reclaim_all();
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int type = 0; type < 2; type++) {
            FX_SCOPE;
            const int64_t w = sizes[k][0], c = sizes[k][1], n = sizes[k][2], of_x[] = {w, c, n},
                          of_scale[] = {1, c, n}, of_shift[] = {1, c, 1};
            const fx_dtype t = type ? FX_DTYPE_F16 : FX_DTYPE_F32;
            fx_array *x = fxi_reshape(operand_of(t, PLAIN, w * c, n), 3, of_x);
            fx_array *scale = fxi_reshape(operand_of(t, PLAIN, c, n), 3, of_scale);
            fx_array *shift = fxi_reshape(operand_of(t, PLAIN, c, 1), 3, of_shift);
            assert_int_equal(fx_eval(fx_tuple(x, scale, shift)), FX_OK);
            fx_array *y = fx_normalise(fx_add(fx_mul(x, scale), shift), FX_AXES(0, 1), 1);
            fx_array *z = fx_mul(fx_add(y, scale), shift);
            compute(z);
            double *xs = elements(x), *scales = elements(scale), *shifts = elements(shift),
                   *zs = elements(z), *row = malloc((size_t)(w * c) * sizeof *row),
                   *want = malloc((size_t)(w * c) * sizeof *want);
            assert_true(row && want);
            for (int64_t r = 0; r < n; r++) {
                for (int64_t i = 0; i < w * c; i++)
                    row[i] = xs[r * w * c + i] * scales[r * c + i / w] + shifts[i / w];
                normalised(row, w * c, want);
                for (int64_t i = 0; i < w * c; i++)
                    near(zs[r * w * c + i], (want[i] + scales[r * c + i / w]) * shifts[i / w],
                         type ? 2e-2 : 2e-5, "channels", w * c, n, i);
            }
            double *const all[] = {xs, scales, shifts, zs, row, want};
            for (int i = 0; i < 6; i++)
                free(all[i]);
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(masks),
    cmocka_unit_test(exponentials_in_one_loop),
    cmocka_unit_test(values_of_channels),
    cmocka_unit_test(without_tiles),
    cmocka_unit_test(every_length),
    cmocka_unit_test(every_layout_and_type),
    cmocka_unit_test(several_operands_and_outputs),
    cmocka_unit_test(integers),
    cmocka_unit_test(choices_of_two_numbers),
    cmocka_unit_test(masked_sums),
    cmocka_unit_test(sparse_sums_have_the_bits_of_the_reducer),
    cmocka_unit_test(not_finite),
    cmocka_unit_test(large_and_on_threads),
    cmocka_unit_test(scaled_norms_and_gradients),
    cmocka_unit_test(large_norms),
};
RUN_ON_EVERY_ISA(tests)
