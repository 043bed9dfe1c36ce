/* test_attention.c: dot-product attention against its formula in double, in plain C; blocks against
 * the same attention at once; masks, heads, rotary embedding, and the memory of a plan. */
#include "semantics_check.h"

#include "cpu_parallel.h"
#include "planning.h"

#include <stdlib.h>

enum { D = 4, Q = 3, K = 5, V = 6, HEADS = 2 };

/* y and α of one batch element by the formula; allowed(key, query) or NULL. */
static void by_formula(fx_array *q, fx_array *k, fx_array *v, bool (*allowed)(int, int), double *y,
                       double *alpha)
{
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < Q; i++) {
            double w[K], sum = 0;
            for (int j = 0; j < K; j++) {
                double dot = 0;
                for (int d = 0; d < D / HEADS; d++)
                    dot +=
                        fx_at(q, h * D / HEADS + d + D * i) * fx_at(k, h * D / HEADS + d + D * j);
                w[j] = !allowed || allowed(j, i) ? exp(dot / sqrt(D / HEADS)) : 0;
                sum += w[j];
            }
            for (int j = 0; j < K; j++)
                alpha[j + K * (i + Q * h)] = w[j] / sum;
            for (int d = 0; d < V / HEADS; d++) {
                double value = 0;
                for (int j = 0; j < K; j++)
                    value += w[j] / sum * fx_at(v, h * V / HEADS + d + V * j);
                y[h * V / HEADS + d + V * i] = value;
            }
        }
}

static fx_array *doubles(int64_t features, int64_t length)
{
    return fx_cast(fx_randn(features, length), FX_DTYPE_F64);
}

static bool up_to_query(int key, int query)
{
    return key <= query;
}
static bool not_the_second(int key, int query)
{
    (void)query;
    return key != 1;
}

static void follows_the_formula(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(1);
    fx_array *q = doubles(D, Q), *k = doubles(D, K), *v = doubles(V, K);
    fx_array *row = fx_reshape(fx_vector(1, 0, 1, 1, 1), K, 1);
    const struct {
        void *pair;
        bool (*allowed)(int, int);
    } rows[] = {
        {fx_dot_product_attention(q, k, v, .nheads = HEADS), NULL},
        {fx_dot_product_attention(q, k, v, .nheads = HEADS, .causal = true), up_to_query},
        {fx_dot_product_attention(q, k, v, .nheads = HEADS, .mask = fx_gt(row, 0)), not_the_second},
        {fx_dot_product_attention(q, k, v, .nheads = HEADS, .bias = fx_mul(1e9, fx_sub(row, 1))),
         not_the_second},
    };
    for (int r = 0; r < COUNT(rows); r++) {
        double y[V * Q], alpha[K * Q * HEADS];
        by_formula(q, k, v, rows[r].allowed, y, alpha);
        fx_array *got = fx_child(rows[r].pair, 0), *scores = fx_child(rows[r].pair, 1);
        assert_true(fx_ndims(got) == 2 && fx_size(got, 0) == V && fx_size(got, 1) == Q);
        assert_true(fx_ndims(scores) == 3 && fx_size(scores, 2) == HEADS);
        for (int i = 0; i < V * Q; i++)
            NEAR(fx_at(got, i), y[i], 1e-12);
        for (int i = 0; i < K * Q * HEADS; i++)
            NEAR(fx_at(scores, i), alpha[i], 1e-12);
    }
    fx_array *mask = fx_make_causal_mask(q, 1);
    for (int i = 0; i < Q * Q; i++)
        SAME(fx_at(mask, i), i % Q <= i / Q);
}

/* The largest difference, relative to the largest element of b if that is above 1. */
static double difference(fx_array *a, fx_array *b)
{
    return fx_item(fx_maximum(fx_abs(fx_sub(a, b)))) / (1 + fx_item(fx_maximum(fx_abs(b))));
}

static void same_arrays(const char *what, fx_array *a, fx_array *b)
{
    NEAR(difference(a, b), 0, 1e-12);
    assert_true(fx_length(a) == fx_length(b) && what);
}

/* 600 positions are computed in blocks; the scores alone, as one array, give the same. */
static void blocks_give_the_same_gradients(void **state)
{
    (void)state;
    enum { N = 600, F = 4 };
    for (int form = 0; form < 4; form++) {
        FX_SCOPE;
        fx_array *x[4], *blocks[4], *whole[4];
        for (int i = 0; i < 3; i++)
            x[i] = doubles(F, N);
        x[3] = fx_cast(fx_randn(N, N), FX_DTYPE_F64);
        fx_eval(fx_tuple(x[0], x[1], x[2], x[3]));
        const int n = form & 1 ? 4 : 3;
        fx_array *bias = form & 1 ? x[3] : NULL, *mask = form & 2 ? fx_gt(x[3], -1) : NULL;
        const bool causal = form == 2;
        fx_array *w = fx_cos(fx_reshape(fx_range_dtype(FX_DTYPE_F64, 0, 1, F * N), F, N));
        void *pair = fx_dot_product_attention(x[0], x[1], x[2], .bias = bias, .mask = mask,
                                              .causal = causal, .nheads = 2);
        fx_array *alpha = fx_dot_product_attention_scores(
            x[0], x[1], x[2], .bias = bias, .mask = mask, .causal = causal, .nheads = 2);
        fx_array *v = fx_permute(fx_reshape(x[2], F / 2, 2, N), 0, 2, 1);
        fx_array *y = fx_reshape(fx_permute(fx_batched_mul(v, alpha), 0, 2, 1), F, N);
        same_arrays("y", fx_child(pair, 0), y);
        fx_array *one = fx_sum(fx_mul(fx_child(pair, 0), w)), *other = fx_sum(fx_mul(y, w));
        assert_int_equal(fx_gradient_of(one, x, n, blocks), FX_OK);
        assert_int_equal(fx_gradient_of(other, x, n, whole), FX_OK);
        for (int i = 0; i < n; i++)
            same_arrays("gradient", blocks[i], whole[i]);
    }
}

/* A query that sees no key adds 0 to the gradients of query, key and bias, and makes no part of
 * them NaN. They equal those of a query that sees a key and whose y the loss does not read. */
static void blind_query_changes_three_gradients_by_0(void **state)
{
    (void)state;
    enum { N = 600, F = 4, BLIND = 300 };
    for (int form = 0; form < 4; form++) {
        FX_SCOPE;
        const bool causal = form & 1;
        const fx_dtype type = form & 2 ? FX_DTYPE_F32 : FX_DTYPE_F64;
        const double tolerance = form & 2 ? 1e-5 : 1e-12;
        fx_array *x[4], *g[3][4];
        fx_seed(10);
        for (int i = 0; i < 4; i++)
            x[i] = fx_cast(i < 3 ? fx_randn(F, N) : fx_randn(N, N), type);
        fx_eval(fx_tuple(x[0], x[1], x[2], x[3]));
        fx_array *key = fx_reshape(fx_range(0, 1, N), N, 1), *query = fx_reshape(key, 1, N);
        fx_array *blind = fx_eq(query, BLIND), *seen = fx_gt(fx_stop_gradient(x[3]), -1);
        /* With .causal each of the two masks shows some keys to the query, but both together
         * none. */
        fx_array *left = causal ? fx_gt(key, query) : fx_lt(key, 0);
        fx_array *mask = fx_where(blind, left, seen);
        fx_array *w = fx_cast(fx_cos(fx_reshape(fx_range(0, 1, F * N), F, N)), type);
        const struct {
            fx_array *mask, *w;
        } rows[] = {
            {mask, w}, {mask, w}, {fx_where(blind, fx_eq(key, 0), seen), fx_where(blind, 0, w)}};
        for (int r = 0; r < COUNT(rows); r++) {
            /* The first in blocks, the others at once. */
            fx_array *y =
                r == 0 ? fx_child(fx_dot_product_attention(x[0], x[1], x[2], .bias = x[3],
                                                           .mask = rows[r].mask, .causal = causal),
                                  0)
                       : fx_matmul(x[2], fx_reshape(fx_dot_product_attention_scores(
                                                        x[0], x[1], .bias = x[3],
                                                        .mask = rows[r].mask, .causal = causal),
                                                    N, N));
            assert_int_equal(fx_pullback(y, rows[r].w, x, 4, g[r]), FX_OK);
            SAME(fx_item(fx_all(fx_eq(fx_isnan(y), r < 2 ? blind : fx_lt(query, 0)))), 1);
        }
        for (int i = 0; i < 4; i++) {
            if (i != 2) /* the gradient of the value is NaN */
                for (int r = 1; r < 3; r++)
                    NEAR(difference(g[0][i], g[r][i]), 0, tolerance);
            SAME(fx_item(fx_any(fx_isnan(g[0][i]))), i == 2);
        }
        SAME(fx_item(fx_maximum(fx_abs(fx_slice(g[0][0], 1, BLIND, BLIND + 1)))), 0);
    }
}

/* The mask of dropout, as α shows it, gives the same values and gradients as one product. */
static void blocks_with_dropout(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { N = 600, F = 4 };
    fx_array *x[3], *blocks[3], *whole[3];
    fx_seed(5);
    for (int i = 0; i < 3; i++)
        x[i] = doubles(F, N);
    fx_eval(fx_tuple(x[0], x[1], x[2]));
    void *pair = fx_dot_product_attention(x[0], x[1], x[2], .dropout = 0.25, .causal = true);
    fx_array *alpha = fx_child(pair, 1);
    fx_eval(alpha);
    fx_array *kept = fx_ne(fx_reshape(fx_stop_gradient(alpha), N, N), 0);
    NEAR(fx_item(fx_sum(fx_cast(kept, FX_DTYPE_F64))) / (N * (N + 1) / 2), 0.75, 0.01);
    fx_array *s = fx_dot_product_attention_scores(x[0], x[1], .causal = true);
    fx_array *dropped = fx_where(kept, fx_div(fx_reshape(s, N, N), 0.75), 0);
    same_arrays("α", fx_reshape(alpha, N, N), dropped);
    fx_array *y = fx_matmul(x[2], dropped);
    same_arrays("y", fx_child(pair, 0), y);
    fx_array *w = fx_cos(fx_reshape(fx_range_dtype(FX_DTYPE_F64, 0, 1, F * N), F, N));
    fx_gradient_of(fx_sum(fx_mul(fx_child(pair, 0), w)), x, 3, blocks);
    fx_gradient_of(fx_sum(fx_mul(y, w)), x, 3, whole);
    for (int i = 0; i < 3; i++)
        same_arrays("gradient", blocks[i], whole[i]);
    fx_array *other = fx_child(fx_dot_product_attention(x[0], x[1], x[2], .dropout = 0.25), 1);
    const double same =
        fx_item(fx_sum(fx_cast(fx_eq(fx_ne(other, 0), fx_reshape(kept, N, N, 1)), FX_DTYPE_F64)));
    assert_true(same < 0.8 * N * N); /* another call has another mask */
}

/* The distance between two arrays, relative to the second. */
static double distance(fx_array *a, fx_array *b)
{
    fx_array *x = fx_cast(a, FX_DTYPE_F64), *y = fx_cast(b, FX_DTYPE_F64);
    return sqrt(fx_item(fx_sum(fx_square(fx_sub(x, y)))) / fx_item(fx_sum(fx_square(y))));
}

/* The gradients of keys and values are sums over 256 blocks. Those of 16-bit arrays are as exact as
 * their elements, 2^-8: the sums are not rounded after every block. */
static void many_blocks_of_16_bits(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { QUERIES = 65536, KEYS = 5, F = 2 };
    fx_array *x[4], *g[2][3];
    fx_seed(6);
    for (int i = 0; i < 4; i++)
        x[i] = fx_cast(fx_add(fx_randn(F, i % 3 ? KEYS : QUERIES), 0.5), FX_DTYPE_BF16);
    fx_eval(fx_tuple(x[0], x[1], x[2], x[3]));
    for (int wide = 0; wide < 2; wide++) {
        const fx_dtype type = wide ? FX_DTYPE_F32 : FX_DTYPE_BF16;
        fx_array *in[4];
        for (int i = 0; i < 4; i++)
            in[i] = fx_cast(x[i], type);
        fx_array *y = fx_child(fx_dot_product_attention(in[0], in[1], in[2]), 0);
        assert_int_equal(fx_pullback(y, in[3], in, 3, g[wide]), FX_OK);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fx_eltype(g[0][i]), FX_DTYPE_BF16);
        NEAR(distance(g[0][i], g[1][i]), 0, 0.01);
    }
}

/* Bytes of the largest value of a plan, and of its arena, as its text shows them. */
static void memory_is_linear_in_the_length(void **state)
{
    (void)state;
    static char text[2000000];
    enum { N = 4096, F = 64 };
    for (int with_dropout = 0; with_dropout < 2; with_dropout++) {
        FX_SCOPE;
        fx_array *q = fx_randn(F, N), *k = fx_randn(F, N), *v = fx_randn(F, N), *g[3];
        fx_eval(fx_tuple(q, k, v));
        fx_array *y = fx_child(
            fx_dot_product_attention(q, k, v, .causal = true, .dropout = 0.1 * with_dropout), 0);
        fx_array *loss = fx_sum(fx_square(y));
        assert_int_equal(fx_gradient_of(loss, (fx_array *const[]){q, k, v}, 3, g), FX_OK);
        fx_plan_text(fx_tuple(loss, g[0], g[1], g[2]), text, sizeof text);
        const char *at = strstr(text, " saved, ");
        assert_non_null(at);
        char *unit;
        const double arena = strtod(at + strlen(" saved, "), &unit);
        print_message("arena: %.1f%.4s\n", arena, unit);
        assert_true(strncmp(unit, " MiB", 4) == 0 && arena < 32); /* 4096² scores: 64 MiB */
        assert_null(strstr(text, "4096×4096"));
    }
}

/* Value and gradients of causal attention of three arrays of Float32; gy is cos y. */
static void all_of(fx_array *const *x, fx_array **out)
{
    out[0] = fx_child(fx_dot_product_attention(x[0], x[1], x[2], .causal = true, .nheads = 2), 0);
    assert_int_equal(fx_pullback(out[0], fx_cos(out[0]), x, 3, out + 1), FX_OK);
    assert_int_equal(fx_eval(fx_tuple(out[0], out[1], out[2], out[3])), FX_OK);
}

/* The CPU has kernels of attention for Float32. The bits do not depend on the division between
 * threads, and a key that is NaN reaches only the queries that see it. */
static void floats_are_computed_by_kernels(void **state)
{
    (void)state;
    enum { N = 300, F = 24, HIDDEN = 100 };
    static char text[20000];
    FX_SCOPE;
    fx_seed(8);
    fx_array *x[3], *one[4], *several[4];
    for (int i = 0; i < 3; i++)
        x[i] = fx_randn(F, N, 2);
    assert_int_equal(fx_eval(fx_tuple(x[0], x[1], x[2])), FX_OK);
    all_of(x, one);
    fx_array *y = fx_child(fx_dot_product_attention(x[0], x[1], x[2]), 0);
    fx_plan_text(y, text, sizeof text);
    assert_non_null(strstr(text, "  1  attention forward(x0, x1, x2) → Float32 24×300×2"));
    fxi_cpu_parts_from(0);
    all_of(x, several);
    fxi_cpu_parts_from(FXI_PARTS_FROM);
    for (int i = 0; i < 4; i++)
        SAME(difference(several[i], one[i]), 0);
    fx_array *at = fx_reshape(fx_range_dtype(FX_DTYPE_F32, 0, 1, N), 1, N);
    x[1] = fx_where(fx_eq(at, HIDDEN), NAN, x[1]);
    all_of(x, several);
    fx_array *right = fx_eq(fx_isnan(several[0]), fx_ge(at, HIDDEN));
    SAME(fx_item(fx_all(right)), 1);
    y = fx_slice(several[0], 1, 0, HIDDEN);
    SAME(difference(y, fx_slice(one[0], 1, 0, HIDDEN)), 0);
}

/* All three gradients in one step need 9 buffers, so a device that allows 8 computes them in two
 * steps. The check of plans counts the buffers of every step. */
static void few_buffers(void **state)
{
    (void)state;
    enum { N = 64, F = 24, BATCH = 16 };
    static char text[20000];
    const bool checked = fxi_plans_checked();
    FX_SCOPE;
    fx_seed(9);
    fx_array *x[3], *all[4], *two[4];
    for (int i = 0; i < 3; i++)
        x[i] = fx_randn(F, N, BATCH);
    assert_int_equal(fx_eval(fx_tuple(x[0], x[1], x[2])), FX_OK);
    fx_array *y = fx_child(fx_dot_product_attention(x[0], x[1], x[2]), 0), *g[3];
    assert_int_equal(fx_pullback(y, y, x, 3, g), FX_OK);
    fx_plan_text(fx_tuple(g[0], g[1], g[2]), text, sizeof text);
    assert_non_null(strstr(text, "attention gradients("));
    all_of(x, all);
    fxi_plans_reclaim();
    fxi_plans_checked_set(true);
    fx_cpu_device()->info.buffers = 8;
    all_of(x, two);
    fx_cpu_device()->info.buffers = 0;
    fxi_plans_checked_set(checked);
    fxi_plans_reclaim();
    for (int i = 0; i < 4; i++)
        assert_true(difference(two[i], all[i]) < 1e-5);
}

/* Nor are they computed when a thread evaluates by itself, because many results are pending. */
static void automatic_evaluations_leave_out_the_scores(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { LENGTH = 600, FEW = 1000 };
    const int64_t most = fxi_here()->most_created;
    fx_array *x = fx_randn(8, LENGTH), *y = fx_scalar(0);
    assert_int_equal(fx_eval(x), FX_OK);
    void *pair = fx_dot_product_attention(x, x, x);
    fx_array *squares = fx_square(fx_child(pair, 0)), *scores = fx_child(pair, 1);
    const uint64_t before = fx_stats().implicit_evals;
    fxi_here()->most_created = FEW;
    for (int i = 0; i < 2 * FEW; i++)
        y = fx_sin(y);
    fxi_here()->most_created = most;
    assert_true(fx_stats().implicit_evals > before);
    assert_true(fx_is_evaluated(squares) && !fx_is_evaluated(scores));
    NEAR(fx_item(fx_sum(scores)), LENGTH, 1e-3);
}

/* ---- rotary embedding ------------------------------------------------------------------------ */

static void rotary_embedding_rotates_pairs(void **state)
{
    (void)state;
    for (int halves = 0; halves < 2; halves++) {
        FX_SCOPE;
        fx_array *x = doubles(4, 3);
        fx_array *y = fx_rotary_embedding(x, .base = 100, .offset = 2, .halves = halves);
        for (int p = 0; p < 3; p++)
            for (int i = 0; i < 2; i++) {
                const int a = (halves ? i : 2 * i) + 4 * p, b = a + (halves ? 2 : 1);
                const double angle = (p + 2) * pow(100, -2.0 * i / 4);
                NEAR(fx_at(y, a), fx_at(x, a) * cos(angle) - fx_at(x, b) * sin(angle), 1e-12);
                NEAR(fx_at(y, b), fx_at(x, a) * sin(angle) + fx_at(x, b) * cos(angle), 1e-12);
            }
    }
    FX_SCOPE;
    assert_true(fx_is_error(fx_rotary_embedding(fx_ones(3, 2))));
    expect_error(FX_STATUS_SHAPE, "expects an even number of features");
    fx_array *whole = fx_full_dtype(FX_DTYPE_I32, 2, 4, 3); /* integers: a sine is not an integer */
    same_arrays("y", fx_rotary_embedding(whole), fx_rotary_embedding(fx_cast(whole, FX_DTYPE_F32)));
}

/* ---- MultiHeadAttention ---------------------------------------------------------------------- */

static void layer_takes_one_to_four_inputs(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_multiheadattention_layer *l = fx_multiheadattention(FX_DIMS(4, 6, 3), .nheads = 2);
    fx_array *q = fx_randn(4, 3, 2), *kv = fx_randn(4, 5, 2);
    void *pair = fx_call(l, q, kv), *other = fx_call(l, q, kv, kv);
    fx_array *y = fx_child(pair, 0), *alpha = fx_child(pair, 1);
    assert_true(fx_size(y, 0) == 3 && fx_size(y, 1) == 3 && fx_size(y, 2) == 2);
    assert_true(fx_ndims(alpha) == 4 && fx_size(alpha, 0) == 5 && fx_size(alpha, 2) == 2);
    same_arrays("y", y, fx_child(other, 0));
    pair = fx_attend(l, q, .causal = true);
    other = fx_attend(l, q, .mask = fx_make_causal_mask(q, 1));
    /* Without a mask a kernel of the CPU computes Float32, and its sums have another order. */
    NEAR(difference(fx_child(pair, 0), fx_child(other, 0)), 0, 1e-6);
    SAME(fx_at(fx_child(pair, 1), 1), 0); /* the first query does not see the second key */
    fx_array *bias = fx_where(fx_make_causal_mask(q, 1), 0, -1e9);
    same_arrays("y", fx_child(other, 0), fx_child(fx_call(l, q, q, q, bias), 0));
}

static void mistakes_are_errors(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_true(fx_is_error(fx_multiheadattention(FX_DIMS(4), .nheads = 3)));
    expect_error(FX_STATUS_ARGUMENT, "qk_dim and v_dim should be divisible by nheads");
    assert_true(fx_is_error(fx_multiheadattention(FX_DIMS(4, 4))));
    expect_error(FX_STATUS_ARGUMENT, "takes 1, 3, 4 or 6 positive sizes, got (");
    fx_array *x = fx_ones(4, 3);
    assert_true(fx_is_error(fx_dot_product_attention(x, fx_ones(2, 3), x)));
    expect_error(FX_STATUS_SHAPE, "query and key need the same features");
    /* Batch axes with the same product are not the same batch. */
    fx_array *wide = fx_ones(4, 3, 2, 3), *high = fx_ones(4, 3, 3, 2);
    assert_true(fx_is_error(fx_dot_product_attention(wide, high, high)));
    expect_error(FX_STATUS_SHAPE, "all three the same batch sizes");
    assert_true(fx_is_error(fx_dot_product_attention(wide, wide, high)));
    expect_error(FX_STATUS_SHAPE, "all three the same batch sizes");
    assert_true(
        fx_is_error(fx_dot_product_attention(wide, wide, wide, .bias = fx_ones(3, 3, 1, 3, 2))));
    expect_error(FX_STATUS_SHAPE,
                 "the bias must broadcast to keys×queries×heads×batch = 3×3×1×2×3, "
                 "but got 3×3×1×3×2 Array{Float32, 5}");
    /* A joined batch axis of 2·3 is ambiguous. */
    assert_true(
        fx_is_error(fx_dot_product_attention(wide, wide, wide, .bias = fx_ones(3, 3, 1, 6))));
    expect_error(FX_STATUS_SHAPE, "= 3×3×1×2×3, but got 3×3×1×6 Array{Float32, 4}");
    /* 2^60 scores, and 2^66, which no integer holds. Nothing is computed. */
    for (int bits = 30; bits <= 33; bits += 3) {
        fx_array *endless = fx_zeros(8, (int64_t)1 << bits);
        assert_true(fx_is_error(fx_dot_product_attention(endless, endless)));
        expect_error(FX_STATUS_UNSUPPORTED, "at most 16,777,216 queries");
    }
    /* Three queries are one block even with 2^33 keys. */
    fx_array *y = fx_child(fx_dot_product_attention(x, fx_zeros(4, (int64_t)1 << 33)), 0);
    assert_true(!fx_is_error(y) && fx_size(y, 0) == 4 && fx_size(y, 1) == 3);
    assert_true(fx_is_error(fx_dot_product_attention(x, x, x, .nheads = 3)));
    expect_error(FX_STATUS_ARGUMENT, "expected a divisor of both numbers of features");
    assert_true(fx_is_error(fx_dot_product_attention(x, x, x, .mask = fx_ones(3, 3))));
    expect_error(FX_STATUS_DTYPE, "the mask is Float32, expected Bool");
    assert_true(fx_is_error(fx_dot_product_attention(x, x, x, .bias = fx_ones(2, 3))));
    expect_error(FX_STATUS_SHAPE, "the bias must broadcast to keys×queries×heads×batch = 3×3×1×1, "
                                  "but got 2×3 Matrix{Float32}");
    fx_array *mask = fx_gt(fx_ones(3, 3, 1, 2), 0);
    assert_true(fx_is_error(fx_dot_product_attention(x, x, x, .mask = mask)));
    expect_error(FX_STATUS_SHAPE, "the mask must broadcast to keys×queries×heads×batch = 3×3×1×1, "
                                  "but got 3×3×1×2 Array{Bool, 4}");
    fx_array *sequences = fx_ones(4, 3, 2), *keys = fx_gt(fx_ones(3, 2), 0);
    assert_true(fx_is_error(fx_dot_product_attention(sequences, sequences, .mask = keys)));
    expect_error(FX_STATUS_SHAPE, "= 3×3×1×2, but got 3×2 Matrix{Bool}; for a mask of the keys of "
                                  "each sequence, pass fx_reshape(mask, 3, 1, 1, 2)");
    keys = fx_reshape(keys, 3, 1, 1, 2);
    assert_false(fx_is_error(fx_dot_product_attention(sequences, sequences, .mask = keys)));
    const double outside[] = {-0.5, 1.5, NAN};
    for (int i = 0; i < 3; i++) {
        assert_true(fx_is_error(fx_dot_product_attention(x, x, x, .dropout = outside[i])));
        expect_error(FX_STATUS_ARGUMENT, "expected 0 to 1");
    }
    assert_true(fx_is_error(fx_multiheadattention(FX_DIMS(8), .k_proj = fx_dense(8, 8))));
    expect_error(FX_STATUS_ARGUMENT, "takes all five layers or none");
    assert_true(fx_is_error(fx_make_causal_mask(x, 2)));
    expect_error(FX_STATUS_ARGUMENT, "there is no axis 2: the array is a");
    assert_true(fx_is_error(fx_attend(NULL, x)));
    expect_error(FX_STATUS_ARGUMENT,
                 "expects a MultiHeadAttention and an array, got NULL and 4×3 Matrix{Float32}");
    fx_dense_layer *d = fx_dense(2, 2);
    assert_true(
        fx_is_error(fx_multiheadattention(FX_DIMS(2), .q_proj = d, .k_proj = d, .v_proj = d,
                                          .out_proj = d, .attn_drop = (void *)fx_dense(2, 1))));
    expect_error(FX_STATUS_ARGUMENT, "attn_drop must be a Dropout, got Dense(2 => 1)");
    void *rows = fx_dropout(0.5, .dims = FX_AXES(0));
    assert_true(fx_is_error(fx_multiheadattention(FX_DIMS(2), .nheads = 1, .q_proj = d, .k_proj = d,
                                                  .v_proj = d, .out_proj = d, .attn_drop = rows)));
    expect_error(FX_STATUS_ARGUMENT,
                 "attn_drop must drop single elements, without dims, got Dropout(0.5, dims=1)");
}

/* A training step; returns the bytes that its update moves. The scores can be read afterwards,
 * whether fx_want asked for them or not. */
static uint64_t step_with_scores(void *layer, void *opt, fx_array *x, double expected, bool want)
{
    void *pair = fx_call(layer, x);
    fx_array *loss = fx_mean(fx_square(fx_child(pair, 0))), *scores = fx_child(pair, 1);
    if (want)
        fx_want(scores);
    const uint64_t before = fx_stats().bytes_moved;
    assert_int_equal(fx_update(opt, layer, fx_gradient(loss, layer)), FX_OK);
    const uint64_t moved = fx_stats().bytes_moved - before;
    const double sum = fx_item(fx_sum(fx_square(scores)));
    assert_true(fabs(sum - expected) < 1e-4 * expected);
    return moved;
}

static uint64_t some_steps(bool want, bool record)
{
    enum { LENGTH = 600, STEPS = 3 };
    FX_SCOPE;
    fx_seed(9);
    void *layer = fx_multiheadattention(FX_DIMS(8), .nheads = HEADS);
    void *opt = fx_setup(fx_descent(0.1), layer);
    fx_array *x = fx_randn(8, LENGTH, 1);
    uint64_t moved = 0;
    fx_eval(fx_tuple(x, layer));
    for (int k = 0; k < STEPS; k++) {
        const double expected = fx_item(fx_sum(fx_square(fx_child(fx_call(layer, x), 1))));
        if (record) {
            FX_RECORD;
            moved = step_with_scores(layer, opt, x, expected, want);
        } else {
            FX_STEP;
            moved = step_with_scores(layer, opt, x, expected, want);
        }
    }
    return moved;
}

/* The product and the softmax of all scores read and write at least this. */
static void updates_leave_out_the_scores(void **state)
{
    const uint64_t scores = sizeof(float) * 600 * 600 * HEADS;
    (void)state;
    for (int record = 0; record < 2; record++)
        assert_true(some_steps(false, record) + 2 * scores < some_steps(true, record));
}

/* The same vector subtracted from all keys lowers all scores of a query equally, to about −150, and
 * so changes neither the result nor the gradients. Keys that only fill up vectors have score 0. */
static void low_scores_change_nothing(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(4);
    enum { F = 16, LONG = 41, GROUPS = 4 };
    fx_array *q = fx_add(fx_abs(fx_randn(F, Q, GROUPS)), 1), *k = fx_randn(F, LONG, GROUPS),
             *v = fx_randn(F, LONG, GROUPS), *gy = fx_randn(F, Q, GROUPS), *g[2][3];
    assert_int_equal(fx_eval(fx_tuple(q, k, v, gy)), FX_OK);
    for (int low = 0; low < 2; low++) {
        fx_array *x[] = {q, low ? fx_sub(k, 30) : k, v};
        void *pair = fx_dot_product_attention(x[0], x[1], x[2], .nheads = HEADS);
        assert_int_equal(fx_pullback(fx_child(pair, 0), gy, x, 3, g[low]), FX_OK);
        assert_int_equal(fx_eval(fx_tuple(g[low][0], g[low][1], g[low][2])), FX_OK); /* one plan */
    }
    for (int i = 0; i < 3; i++)
        NEAR(distance(g[1][i], g[0][i]), 0, 1e-3);
}

/* A bias of size 1 along one of two batch axes is repeated there. The batch elements are computed
 * one by one for comparison. */
static void bias_broadcasts_over_batch_axes(void **state)
{
    enum { B0 = 2, B1 = 3 };
    (void)state;
    FX_SCOPE;
    fx_seed(2);
    fx_array *x = fx_randn(D, K, B0, B1), *bias = fx_randn(K, K, 1, 1, B1);
    void *whole = fx_dot_product_attention(x, x, x, .nheads = HEADS, .bias = bias);
    for (int i = 0; i < B0; i++)
        for (int j = 0; j < B1; j++) {
            fx_array *part = fx_slice(fx_slice(x, 2, i, i + 1), 3, j, j + 1);
            fx_array *own = fx_reshape(fx_slice(bias, 4, j, j + 1), K, K);
            void *alone = fx_dot_product_attention(part, part, part, .nheads = HEADS, .bias = own);
            fx_array *y = fx_slice(fx_slice(fx_child(whole, 0), 2, i, i + 1), 3, j, j + 1);
            fx_array *apart = fx_maximum(fx_abs(fx_sub(y, fx_child(alone, 0))));
            assert_true(fx_item(apart) < 1e-6);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(follows_the_formula),
        TEST(blocks_give_the_same_gradients),
        TEST(blind_query_changes_three_gradients_by_0),
        TEST(blocks_with_dropout),
        TEST(many_blocks_of_16_bits),
        TEST(memory_is_linear_in_the_length),
        TEST(floats_are_computed_by_kernels),
        TEST(few_buffers),
        TEST(updates_leave_out_the_scores),
        TEST(automatic_evaluations_leave_out_the_scores),
        TEST(rotary_embedding_rotates_pairs),
        TEST(layer_takes_one_to_four_inputs),
        TEST(bias_broadcasts_over_batch_axes),
        TEST(low_scores_change_nothing),
        TEST(mistakes_are_errors),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
