/* test_mlutils.c: views, splits, folds, resampling, batches and array helpers of mlutils.h, and
 * what loaders make of them. ctest: threads
 *
 * Observation i of the data is i, so the numbers in a result are the indices that were chosen.
 * Expected lists are worked out by hand from the definitions in MLUtils.jl.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "refused.h"

enum { MOST = 64 };

#define INTS(...)                                                                                  \
    (const int64_t[])                                                                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define COUNT(...) ((int64_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
#define IS(x, ...) check_numbers((x), COUNT(__VA_ARGS__), INTS(__VA_ARGS__), __LINE__)

static void check_numbers(void *x, int64_t n, const int64_t *want, int line)
{
    int64_t got[MOST];
    x = fx_getobs(x);
    if (fx_is_error(x) || !fx_is_array(x) || fx_length(x) != n ||
        fx_read_as(x, FX_DTYPE_I64, got, n) != FX_OK)
        fail_msg("line %d: %lld numbers instead of %lld (%s)", line, (long long)fx_length(x),
                 (long long)n, fx_error_take().message);
    for (int64_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("line %d: number %lld is %lld, not %lld", line, (long long)i,
                     (long long)got[i], (long long)want[i]);
}

static void is_size(fx_array *x, int ndims, int64_t a, int64_t b, int64_t c)
{
    assert_int_equal(fx_ndims(x), ndims);
    assert_int_equal(fx_size(x, 0), a);
    assert_int_equal(fx_size(x, 1), b);
    assert_int_equal(fx_size(x, 2), c);
}

static fx_array *numbers(int64_t n)
{
    return fx_range_dtype(FX_DTYPE_I64, 0, 1, n);
}

static fx_array *labels_of(int64_t n, const int64_t *v)
{
    return fx_from(FX_DTYPE_I64, v, n);
}
#define LABELS(...) labels_of(COUNT(__VA_ARGS__), INTS(__VA_ARGS__))

static fx_array *scalar(int64_t i)
{
    return fxi_from(FX_DTYPE_I64, &i, 0, NULL);
}

static fx_array *none(void)
{
    return fx_from(FX_DTYPE_I64, NULL, 0);
}

/* 2×n: columns (i, 100 + i). */
static fx_array *pairs(int64_t n)
{
    return fx_stack(0, fx_range(0, 1, n), fx_range(100, 1, n));
}

/* Asserts that x has every number below n once. */
static void check_order(void *x, int64_t n, bool moved)
{
    int64_t got[MOST];
    bool seen[MOST] = {false}, same = true;
    x = fx_getobs(x);
    assert_int_equal(fx_length(x), n);
    assert_int_equal(fx_read_as(x, FX_DTYPE_I64, got, n), FX_OK);
    for (int64_t i = 0; i < n; i++) {
        assert_true(got[i] >= 0 && got[i] < n && !seen[got[i]]);
        seen[got[i]] = true;
        same = same && got[i] == i;
    }
    assert_int_equal(same, !moved);
}

static bool equal(void *a, void *b)
{
    return fx_item(fx_all(fx_eq(fx_getobs(a), fx_getobs(b)))) != 0;
}

/* ---- views ----------------------------------------------------------------------------------- */

static void views(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = numbers(10);
    void *v = fx_obsview(x, LABELS(7, 2, 2, 9));
    assert_int_equal(fx_num_obs(v), 4);
    IS(v, 7, 2, 2, 9);
    IS(fx_get_obs(v, LABELS(3, 0)), 9, 7);
    assert_int_equal(fx_ndims(fx_get_obs(v, scalar(1))), 0);
    IS(fx_obsview(v, LABELS(1, 3)), 2, 9);
    void *data = fx_named_tuple("x", pairs(10), "in", fx_tuple(x, x));
    void *w = fx_obsview(data, LABELS(4, 1)), *all = fx_getobs(w);
    IS(fx_vec(fx_child_named(all, "x")), 4, 104, 1, 101);
    assert_ptr_equal(fx_child(fx_child_named(all, "in"), 0),
                     fx_child(fx_child_named(all, "in"), 1));
    char text[200];
    fx_summary(v, text, sizeof text);
    assert_string_equal(text, "obsview(10-element Vector{Int64}, 4 indices)");
    refused(fx_obsview(x, LABELS(1, 10)), FX_STATUS_ARGUMENT, "index 10 is out of range");
    refused(fx_obsview(x, LABELS(-1)), FX_STATUS_ARGUMENT, "index -1");
    refused(fx_obsview(x, fx_vector(1)), FX_STATUS_DTYPE, "Float32");
    refused(fx_obsview(x, NULL), FX_STATUS_ARGUMENT, "expects an array of indices, got NULL");
    is_size(fx_obsdim(fx_zeros(3, 4, 5), 0), 3, 4, 5, 3);
    refused(fx_obsdim(x, 1), FX_STATUS_ARGUMENT, "no axis 1");
}

static void random_orders(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = numbers(30);
    check_order(fx_shuffleobs(x, 3), 30, true);
    assert_true(equal(fx_shuffleobs(x, 3), fx_shuffleobs(x, 3)));
    assert_false(equal(fx_shuffleobs(x, 3), fx_shuffleobs(x, 4)));
    fx_seed(5);
    void *drawn = fx_shuffleobs(x, FX_DRAWN);
    fx_seed(5);
    assert_true(equal(drawn, fx_shuffleobs(x, FX_DRAWN)));
    void *some = fx_randobs(x, 50, 1);
    assert_int_equal(fx_num_obs(some), 50);
    assert_true(equal(some, fx_randobs(x, 50, 1)));
    assert_true(fx_item(fx_maximum(fx_getobs(some))) < 30);
    refused(fx_randobs(fx_zeros(0), 1, 0), FX_STATUS_ARGUMENT, "cannot draw 1 of 0");
    refused(fx_randobs(x, INT64_C(1) << 58, 0), FX_STATUS_MEMORY, "out of memory");
    refused(fx_randobs(x, INT64_MAX, 0), FX_STATUS_MEMORY, "out of memory");
}

static bool is_odd(void *observation, void *io_calls)
{
    ++*(int *)io_calls;
    assert_int_equal(fx_ndims(observation), 0);
    return (int64_t)fx_item(observation) % 2;
}

static int64_t mod3(void *observation, void *user)
{
    (void)user;
    return (int64_t)fx_item(fx_child(observation, 1)) % 3 - 1;
}

static void functions_of_observations(void **state)
{
    (void)state;
    FX_SCOPE;
    int calls = 0;
    IS(fx_filterobs(is_odd, &calls, numbers(7)), 1, 3, 5);
    assert_int_equal(calls, 7);
    void *groups = fx_groupobs(mod3, NULL, fx_tuple(pairs(7), numbers(7)));
    assert_int_equal(fx_count(groups), 3);
    assert_string_equal(fx_child_name(groups, 0), "-1");
    IS(fx_child(fx_getobs(fx_child_named(groups, "-1")), 1), 0, 3, 6);
    IS(fx_child(fx_getobs(fx_child_named(groups, "1")), 1), 2, 5);
    refused(fx_filterobs(NULL, NULL, numbers(2)), FX_STATUS_ARGUMENT, "NULL");
    refused(fx_groupobs(NULL, NULL, numbers(2)), FX_STATUS_ARGUMENT, "NULL");
}

static void joins(void **state)
{
    (void)state;
    FX_SCOPE;
    void *j = fx_joinobs(numbers(3), fx_obsview(numbers(20), LABELS(12, 15)), numbers(1));
    assert_int_equal(fx_num_obs(j), 6);
    IS(j, 0, 1, 2, 12, 15, 0);
    IS(fx_get_obs(j, LABELS(4, 3, 1, 1, 5)), 15, 12, 1, 1, 0);
    IS(fx_get_obs(j, scalar(4)), 15);
    assert_int_equal(fx_length(fx_get_obs(j, none())), 0);
    refused(fx_get_obs(j, LABELS(6)), FX_STATUS_ARGUMENT, "index 6 is out of range");
    void *both = fx_joinobs(fx_tuple(pairs(2), numbers(2)), fx_tuple(pairs(3), numbers(3)));
    IS(fx_vec(fx_child(fx_get_obs(both, LABELS(1, 4)), 0)), 1, 101, 2, 102);
    refused(fx_joinobs(), FX_STATUS_ARGUMENT, "needs at least one data set, got 0");
}

static void windows(void **state)
{
    (void)state;
    FX_SCOPE;
    void *w = fx_slidingwindow(numbers(10), 4, 3);
    assert_int_equal(fx_num_obs(w), 3);
    fx_array *all = fx_getobs(w);
    is_size(all, 2, 4, 3, 1);
    IS(fx_vec(all), 0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9);
    IS(fx_get_obs(w, scalar(1)), 3, 4, 5, 6);
    is_size(fx_get_obs(fx_slidingwindow(pairs(5), 2, 1), LABELS(0, 3, 1)), 3, 2, 2, 3);
    assert_int_equal(fx_num_obs(fx_slidingwindow(numbers(3), 3, 1)), 1);
    refused(fx_slidingwindow(numbers(3), 4, 1), FX_STATUS_ARGUMENT, "too large for 3");
    refused(fx_slidingwindow(numbers(3), 0, 1), FX_STATUS_ARGUMENT, "positive");
    void *b = fx_batchview(numbers(10), 4, true);
    assert_int_equal(fx_num_obs(b), 3);
    assert_int_equal(fx_batchsize(b), 4);
    IS(fx_get_obs(b, scalar(2)), 8, 9);
    IS(fx_get_obs(b, scalar(0)), 0, 1, 2, 3);
    assert_int_equal(fx_num_obs(fx_batchview(numbers(10), 4, false)), 2);
}

/* ---- splits ---------------------------------------------------------------------------------- */

static void splits(void **state)
{
    (void)state;
    FX_SCOPE;
    void *parts = fx_splitobs(numbers(10), FX_FRACTIONS(0.5, 0.3));
    assert_int_equal(fx_count(parts), 3);
    IS(fx_child(parts, 0), 0, 1, 2, 3, 4);
    IS(fx_child(parts, 1), 5, 6, 7);
    IS(fx_child(parts, 2), 8, 9);
    IS(fx_child(fx_splitobs(numbers(10), FX_FRACTIONS(0.75)), 1), 8, 9); /* round(7.5) = 8 */
    IS(fx_child(fx_splitobs(numbers(10), FX_FRACTIONS(3)), 0), 0, 1, 2);
    assert_int_equal(fx_num_obs(fx_child(fx_splitobs(numbers(4), FX_FRACTIONS(0)), 0)), 0);
    parts = fx_splitobs(numbers(20), FX_FRACTIONS(0.5), .shuffle = true, .seed = 2);
    check_order(fx_joinobs(fx_child(parts, 0), fx_child(parts, 1)), 20, true);
    assert_true(equal(
        fx_child(parts, 1),
        fx_child(fx_splitobs(numbers(20), FX_FRACTIONS(0.5), .shuffle = true, .seed = 2), 1)));
    refused(fx_splitobs(numbers(4), FX_FRACTIONS(0.7, 0.6)), FX_STATUS_ARGUMENT, "add up to 1.3");
    refused(fx_splitobs(numbers(4), FX_FRACTIONS(-0.5)), FX_STATUS_ARGUMENT, "-0.5");
    refused(fx_splitobs(numbers(4), FX_FRACTIONS(NAN)), FX_STATUS_ARGUMENT, "nan");
    refused(fx_splitobs(numbers(4), FX_FRACTIONS(1.5)), FX_STATUS_ARGUMENT, "1.5");
    refused(fx_splitobs(numbers(4), FX_FRACTIONS(3, 2)), FX_STATUS_ARGUMENT, "more than the 4");
    refused(fx_splitobs(numbers(4)), FX_STATUS_ARGUMENT, "0 numbers");
}

static void stratified_splits(void **state)
{
    (void)state;
    FX_SCOPE;
    /* label 0 at 0, 3, 4, 6, 8, 9; label 1 at 1, 2, 5, 7 */
    fx_array *y = LABELS(0, 1, 1, 0, 0, 1, 0, 1, 0, 0);
    void *parts = fx_splitobs(numbers(10), FX_FRACTIONS(0.5), .stratified = y);
    IS(fx_child(parts, 0), 0, 3, 4, 1, 2);
    IS(fx_child(parts, 1), 6, 8, 9, 5, 7);
    parts =
        fx_splitobs(numbers(10), FX_FRACTIONS(0.5), .stratified = y, .shuffle = true, .seed = 1);
    check_order(fx_joinobs(fx_child(parts, 0), fx_child(parts, 1)), 10, true);
    assert_true(fx_item(fx_sum(fx_gather(y, fx_getobs(fx_child(parts, 0)), 0))) == 2);
    /* counts are those of all labels together: 6 : 4 of them */
    parts = fx_splitobs(numbers(10), FX_FRACTIONS(5, 2), .stratified = y);
    IS(fx_child(parts, 0), 0, 3, 4, 1, 2);
    IS(fx_child(parts, 1), 6, 5);
    IS(fx_child(parts, 2), 8, 9, 7);
    parts = fx_splitobs(numbers(10), FX_FRACTIONS(1, 0.5, 3), .stratified = y);
    IS(fx_child(parts, 0), 0);
    IS(fx_child(parts, 1), 3, 4, 6, 1, 2);
    IS(fx_child(parts, 2), 8, 9, 5);
    IS(fx_child(parts, 3), 7);
    parts = fx_splitobs(numbers(10), FX_FRACTIONS(10), .stratified = y);
    assert_int_equal(fx_num_obs(fx_child(parts, 0)), 10);
    refused(fx_splitobs(numbers(10), FX_FRACTIONS(0.9, 2), .stratified = y), FX_STATUS_ARGUMENT,
            "more than the 10");
    refused(fx_splitobs(numbers(10), FX_FRACTIONS(11), .stratified = y), FX_STATUS_ARGUMENT,
            "more than the 10");
    refused(fx_splitobs(numbers(9), FX_FRACTIONS(0.5), .stratified = y), FX_STATUS_SHAPE,
            "10 labels for 9");
    refused(fx_splitobs(numbers(2), FX_FRACTIONS(0.5), .stratified = fx_ones(2)), FX_STATUS_DTYPE,
            "Float32");
}

static void check_fold(void *folds, int64_t i, void *want_train, void *want_held)
{
    void *pair = fx_child(folds, i);
    assert_int_equal(fx_count(pair), 2);
    assert_true(equal(fx_child(pair, 0), want_train));
    assert_true(equal(fx_child(pair, 1), want_held));
}

static void folds(void **state)
{
    (void)state;
    FX_SCOPE;
    void *k = fx_kfolds(numbers(7), 3); /* parts of 3, 2 and 2 */
    assert_int_equal(fx_count(k), 3);
    check_fold(k, 0, LABELS(3, 4, 5, 6), LABELS(0, 1, 2));
    check_fold(k, 1, LABELS(0, 1, 2, 5, 6), LABELS(3, 4));
    check_fold(k, 2, LABELS(0, 1, 2, 3, 4), LABELS(5, 6));
    refused(fx_kfolds(numbers(7), 1), FX_STATUS_ARGUMENT, "expected 2 to 7");
    refused(fx_kfolds(numbers(7), 8), FX_STATUS_ARGUMENT, "expected 2 to 7");
    void *p = fx_leavepout(numbers(7), 2);
    assert_int_equal(fx_count(p), 3);
    check_fold(p, 0, LABELS(3, 4, 5, 6), LABELS(0, 1, 2));
    refused(fx_leavepout(numbers(7), 4), FX_STATUS_ARGUMENT, "expected 1 to 3");
    void *t = fx_timeseries_kfolds(numbers(8), 3); /* parts of 2 at the end */
    assert_int_equal(fx_count(t), 3);
    check_fold(t, 0, LABELS(0, 1), LABELS(2, 3));
    check_fold(t, 2, LABELS(0, 1, 2, 3, 4, 5), LABELS(6, 7));
    refused(fx_timeseries_kfolds(numbers(3), 3), FX_STATUS_ARGUMENT, "expected 1 to 2");
}

/* Every label is divided on its own, as in MLUtils 0.4.10: labels 0 at 1, 4, 6 and labels 1 at 0,
 * 2, 3, 5. */
static void folds_by_label(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *y = LABELS(1, 0, 1, 1, 0, 1, 0);
    void *k = fx_kfolds(numbers(7), 2, .stratified = y);
    check_fold(k, 0, LABELS(3, 5, 6), LABELS(0, 1, 2, 4));
    check_fold(k, 1, LABELS(0, 1, 2, 4), LABELS(3, 5, 6));
    k = fx_kfolds(numbers(7), 3, .stratified = y);
    assert_int_equal(fx_count(k), 3);
    check_fold(k, 0, LABELS(3, 4, 5, 6), LABELS(0, 1, 2));
    check_fold(k, 1, LABELS(0, 1, 2, 5, 6), LABELS(3, 4));
    check_fold(k, 2, LABELS(0, 1, 2, 3, 4), LABELS(5, 6));
    refused(fx_kfolds(numbers(7), 4, .stratified = y), FX_STATUS_ARGUMENT,
            "k is 4, but label 0 has only 3 observations");
    refused(fx_kfolds(numbers(6), 2, .stratified = y), FX_STATUS_SHAPE, "7 labels for 6");
    refused(fx_kfolds(numbers(2), 2, .stratified = fx_ones(2)), FX_STATUS_DTYPE, "Float32");
}

/* Shuffled folds: every observation is held out once, and the labels move with the data. */
static void shuffled_folds(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { N = 60, K = 6 };
    fx_array *y = fx_floor(fx_div(fx_range_dtype(FX_DTYPE_F32, 0, 1, N), N / 2));
    y = fx_cast(y, FX_DTYPE_I64); /* 30 times 0, 30 times 1 */
    for (int stratified = 0; stratified < 2; stratified++) {
        void *k = fx_kfolds(fx_tuple(numbers(N), y), K, .shuffle = true, .seed = 7,
                            .stratified = stratified ? y : NULL);
        double held[N] = {0};
        bool ascending = true;
        for (int i = 0; i < K; i++) {
            void *train = fx_getobs(fx_child(fx_child(k, i), 0)),
                 *test = fx_getobs(fx_child(fx_child(k, i), 1));
            assert_int_equal(fx_length(fx_child(train, 0)), N - N / K);
            assert_int_equal(fx_length(fx_child(test, 0)), N / K);
            if (stratified)
                assert_true(fx_item(fx_sum(fx_child(test, 1))) == N / K / 2);
            for (int j = 0; j < N / K; j++) {
                const int at = (int)fx_at(fx_child(test, 0), j);
                held[at]++;
                assert_true(fx_at(fx_child(test, 1), j) == at / (N / 2));
                ascending &= j == 0 || at > (int)fx_at(fx_child(test, 0), j - 1);
            }
            for (int j = 0; j < N - N / K; j++) /* never in both parts */
                for (int m = 0; m < N / K; m++)
                    assert_true(fx_at(fx_child(train, 0), j) != fx_at(fx_child(test, 0), m));
        }
        assert_false(ascending);
        for (int j = 0; j < N; j++)
            assert_true(held[j] == 1);
    }
}

static void folds_in_time(void **state)
{
    (void)state;
    FX_SCOPE;
    /* MLUtils: timeseries_kfolds(10; k = 3, gap = 1, max_train_size = 4) */
    void *t = fx_timeseries_kfolds(numbers(10), 3, .gap = 1, .max_train_size = 4);
    assert_int_equal(fx_count(t), 3);
    check_fold(t, 0, LABELS(0, 1, 2), LABELS(4, 5));
    check_fold(t, 1, LABELS(1, 2, 3, 4), LABELS(6, 7));
    check_fold(t, 2, LABELS(3, 4, 5, 6), LABELS(8, 9));
    t = fx_timeseries_kfolds(numbers(10), 3, .gap = 3);
    check_fold(t, 0, LABELS(0), LABELS(4, 5));
    check_fold(t, 2, LABELS(0, 1, 2, 3, 4), LABELS(8, 9));
    refused(fx_timeseries_kfolds(numbers(10), 3, .gap = 4), FX_STATUS_ARGUMENT,
            "gap is 4, expected 0 to 3");
    refused(fx_timeseries_kfolds(numbers(10), 3, .gap = -1), FX_STATUS_ARGUMENT, "gap is -1");
    refused(fx_timeseries_kfolds(numbers(10), 3, .max_train_size = -1), FX_STATUS_ARGUMENT,
            "max_train_size is -1");
}

/* The parts behave as other views: in loaders, in views of views, for single observations, and for
 * indices that they do not have. */
static void folds_are_views(void **state)
{
    (void)state;
    FX_SCOPE;
    void *fold = fx_child(fx_kfolds(numbers(9), 3), 1), *train = fx_child(fold, 0);
    fx_batch b = {0};
    fx_loader *l = fx_dataloader(train, .batchsize = 4);
    assert_true(fx_next(l, &b));
    assert_true(equal(b.x, LABELS(0, 1, 2, 6)));
    assert_true(fx_next(l, &b));
    assert_true(equal(b.x, LABELS(7, 8)));
    assert_false(fx_next(l, &b));
    assert_true(equal(fx_obsview(train, LABELS(5, 0, 3)), LABELS(8, 0, 6)));
    assert_true(fx_item(fx_getobs(fx_child(fx_unbatch(train), 4))) == 7);
    void *inner = fx_child(fx_child(fx_kfolds(train, 2), 0), 0);
    assert_true(equal(inner, LABELS(6, 7, 8)));
    refused(fx_get_obs(train, LABELS(6)), FX_STATUS_ARGUMENT, "index 6 is out of range");
    refused(fx_get_obs(train, LABELS(-1)), FX_STATUS_ARGUMENT, "index -1 is out of range");
    char text[200];
    fx_summary(train, text, sizeof text);
    assert_non_null(strstr(text, "6 indices"));
}

/* n·k indices would be 128 MB. */
static void folds_need_little_memory(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { N = 8000, K = 2000 };
    fx_array *x = numbers(N), *y = fx_mod(fx_range_dtype(FX_DTYPE_I64, 0, 1, N), 2);
    fx_eval(x);
    const int64_t before = fx_stats().live_bytes;
    void *out = fx_leavepout(x, N / K), *folds = fx_kfolds(x, K, .stratified = y),
         *time = fx_timeseries_kfolds(x, K);
    assert_int_equal(fx_count(out), K);
    assert_int_equal(fx_count(folds), K);
    assert_int_equal(fx_count(time), K);
    assert_true(fx_stats().live_bytes - before < 1 << 20);
}

static void labels(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *y = LABELS(5, 0, 5, -2, 5, 0);
    void *counts = fx_group_counts(y), *lists = fx_group_indices(y);
    IS(fx_child_named(counts, "labels"), -2, 0, 5);
    IS(fx_child_named(counts, "counts"), 1, 2, 3);
    IS(fx_child(fx_child_named(lists, "indices"), 0), 3);
    IS(fx_child(fx_child_named(lists, "indices"), 2), 0, 2, 4);
    refused(fx_group_counts(fx_ones(3)), FX_STATUS_DTYPE, "Float32");

    void *over = fx_oversample(numbers(6), y, 1, false, 1);
    counts = fx_group_counts(fx_getobs(fx_child(over, 1)));
    IS(fx_child_named(counts, "counts"), 3, 3, 3);
    int64_t first[9];
    fx_array *chosen = fx_getobs(fx_child(over, 0));
    assert_int_equal(fx_read_as(chosen, FX_DTYPE_I64, first, 9), FX_OK);
    for (int64_t i = 0; i < 6; i++)
        assert_int_equal(first[i], i);
    assert_int_equal(first[6], 3);
    assert_int_equal(first[7], 3);
    assert_int_equal(first[8], 1); /* MLUtils: inds_for_lbl[1:num_extra_needed] */
    for (uint64_t seed = 0; seed < 9; seed++) {
        IS(fx_getobs(
               fx_child(fx_oversample(numbers(6), LABELS(0, 0, 0, 0, 1, 1), 1, false, seed), 0)),
           0, 1, 2, 3, 4, 5, 4, 5);
        IS(fx_getobs(
               fx_child(fx_oversample(numbers(7), LABELS(0, 0, 0, 0, 1, 1, 1), 1, false, seed), 0)),
           0, 1, 2, 3, 4, 5, 6, 4);
        IS(fx_getobs(fx_child(fx_undersample(numbers(6), y, false, seed), 0)), 0, 1, 3);
    }
    assert_true(equal(fx_gather(y, chosen, 0), fx_child(over, 1)));
    over = fx_oversample(numbers(6), y, 0.5, true, 1); /* round(1.5) = 2 */
    counts = fx_group_counts(fx_getobs(fx_child(over, 1)));
    IS(fx_child_named(counts, "counts"), 2, 2, 3);

    void *under = fx_undersample(numbers(6), y, false, 7);
    assert_int_equal(fx_num_obs(fx_child(under, 0)), 3);
    IS(fx_child_named(fx_group_counts(fx_getobs(fx_child(under, 1))), "counts"), 1, 1, 1);
    assert_int_equal(fx_read_as(fx_getobs(fx_child(under, 0)), FX_DTYPE_I64, first, 3), FX_OK);
    assert_true(first[0] < first[1] && first[1] < first[2]);
    refused(fx_undersample(numbers(5), y, true, 1), FX_STATUS_SHAPE, "each of the 5");
    refused(fx_undersample(numbers(5), (void *)fx_dense(1, 1), true, 1), FX_STATUS_ARGUMENT,
            "undersample: expects an array of labels, got Dense");
    refused(fx_oversample(numbers(6), y, -1, true, 1), FX_STATUS_ARGUMENT, "fraction is -1");
}

/* ---- batches and arrays ---------------------------------------------------------------------- */

static void batches(void **state)
{
    (void)state;
    FX_SCOPE;
    void *list = fx_unbatch(fx_tuple(pairs(3), numbers(3)));
    assert_int_equal(fx_count(list), 3);
    IS(fx_child(fx_child(list, 2), 0), 2, 102);
    void *again = fx_batchobs(list);
    IS(fx_vec(fx_child(again, 0)), 0, 100, 1, 101, 2, 102);
    IS(fx_child(again, 1), 0, 1, 2);
    refused(fx_batchobs(fx_tuple(fx_ones(2), fx_tuple(fx_ones(2)))), FX_STATUS_ARGUMENT,
            "number 1 differs");
    refused(fx_batchobs(fx_ones(2)), FX_STATUS_ARGUMENT, "a tuple");
    void *seqs = fx_tuple(LABELS(1, 2, 3), LABELS(4), LABELS(5, 6));
    fx_array *all = fx_batch_sequence(seqs, -1);
    is_size(all, 2, 3, 3, 1);
    IS(fx_vec(all), 1, 2, 3, 4, -1, -1, 5, 6, -1);
    void *steps = fx_batchseq(seqs, 0);
    assert_int_equal(fx_count(steps), 3);
    IS(fx_child(steps, 0), 1, 4, 5);
    IS(fx_child(steps, 2), 3, 0, 0);
    steps = fx_batchseq(fx_tuple(pairs(2), pairs(1)), 7);
    IS(fx_vec(fx_child(steps, 1)), 1, 101, 7, 7);
}

static void parts_of_arrays(void **state)
{
    (void)state;
    FX_SCOPE;
    void *rows = fx_unstack(pairs(3), 0);
    assert_int_equal(fx_count(rows), 2);
    IS(fx_child(rows, 1), 100, 101, 102);
    void *chunks = fx_chunk(numbers(10), 3, 0); /* of ⌈10/3⌉ = 4 */
    assert_int_equal(fx_count(chunks), 3);
    IS(fx_child(chunks, 2), 8, 9);
    assert_int_equal(fx_count(fx_chunk(numbers(4), 3, 0)), 2);
    IS(fx_child(fx_chunk_size(numbers(10), 3, 0), 3), 9);
    refused(fx_chunk(numbers(4), 0, 0), FX_STATUS_ARGUMENT, "n is 0");
    refused(fx_unstack(numbers(4), 1), FX_STATUS_ARGUMENT, "no axis 1");
    IS(fx_rpad_constant(numbers(3), 5, -1, FX_ALL), 0, 1, 2, -1, -1);
    IS(fx_rpad_constant(numbers(3), 2, -1, FX_ALL), 0, 1, 2);
    is_size(fx_rpad_constant(fx_ones(2, 3), 4, 0, FX_AXES(0)), 2, 4, 3, 1);
    refused(fx_rpad_constant(fx_ones(2), 4, 0, FX_AXES(1)), FX_STATUS_ARGUMENT, "axis");
}

static void arrays_like_another(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_cast(pairs(3), FX_DTYPE_F64);
    assert_int_equal(fx_eltype(fx_ones_like(x)), FX_DTYPE_F64);
    assert_true(fx_item(fx_sum(fx_full_like(x, 2.5))) == 15);
    assert_true(fx_item(fx_sum(fx_full_like(numbers(3), 2))) == 6);
    assert_int_equal(fx_eltype(fx_full_like(numbers(3), 2.5)), FX_DTYPE_I64);
    assert_int_equal(fx_eltype(fx_trues_like(x)), FX_DTYPE_BOOL);
    assert_true(fx_item(fx_sum(fx_trues_like(x))) == 6);
    assert_true(fx_item(fx_sum(fx_falses_like(x))) == 0);
    fx_array *r = fx_rand_like(x), *n = fx_randn_like(numbers(50));
    assert_int_equal(fx_eltype(r), FX_DTYPE_F64);
    is_size(r, 2, 2, 3, 1);
    assert_true(fx_item(fx_minimum(r)) >= 0 && fx_item(fx_maximum(r)) < 1);
    assert_int_equal(fx_eltype(n), FX_DTYPE_F32);
    assert_true(fx_item(fx_minimum(n)) < 0);
}

static void values(void **state)
{
    (void)state;
    FX_SCOPE;
    IS(fx_mul(fx_rescale(fx_vector(2, 4, 6), FX_ALL, 0), 100), 0, 50, 100);
    fx_array *x = fx_from(FX_DTYPE_F32, ((const float[]){3, 1, NAN, 9, 9, 5}), 3, 2);
    void *top = fx_topk(x, 2, 0);
    IS(fx_vec(fx_child(top, 1)), 2, 0, 0, 1);
    assert_true(isnan(fx_at(fx_child(top, 0), 0)) && fx_at(fx_child(top, 0), 1) == 3);
    IS(fx_vec(fx_child(fx_topk(x, 1, 1), 1)), 1, 1, 0);
    refused(fx_topk(x, 4, 0), FX_STATUS_ARGUMENT, "expected 0 to 3");
    fx_array *a = fx_reshape(fx_vector(1, 3, 3, 7), 4, 1),
             *v = fx_reshape(fx_vector(0, 3, 8), 3, 1);
    IS(fx_vec(fx_batched_searchsortedfirst(a, v)), 0, 1, 4);
    IS(fx_vec(fx_batched_searchsortedlast(a, v)), -1, 2, 3);
    refused(fx_batched_searchsortedfirst(a, fx_ones(3, 2)), FX_STATUS_SHAPE, "columns");
    /* a vector is searched for every number; the first line is MLUtils' own example */
    fx_array *vector = fx_vector(1, 3, 5, 7, 9);
    IS(fx_batched_searchsortedfirst(vector, fx_vector(4, 5, 8)), 2, 2, 4);
    IS(fx_batched_searchsortedlast(vector, fx_vector(4, 5, 8)), 1, 2, 3);
    fx_array *table = fx_batched_searchsortedlast(vector, fx_reshape(fx_vector(0, 9, 1, 6), 2, 2));
    IS(fx_vec(table), -1, 4, 0, 2);
    assert_int_equal(fx_ndims(table), 2);
    assert_int_equal(fx_size(table, 1), 2);
    IS(fx_batched_searchsortedfirst(vector, fx_scalar(10)), 5);
    assert_int_equal(fx_ndims(fx_batched_searchsortedfirst(vector, fx_scalar(10))), 0);
    refused(fx_batched_searchsortedfirst(a, fx_vector(4)), FX_STATUS_SHAPE, "columns");
}

/* ---- loaders --------------------------------------------------------------------------------- */

/* Collects the numbers of all batches; b.x or the whole item. */
static int64_t collect(fx_loader *l, int64_t *out)
{
    int64_t n = 0;
    for (fx_batch b = {0}; fx_next(l, &b);) {
        fx_array *x = fx_is_array(b.items) ? b.items : fx_child(b.items, 0);
        assert_int_equal(fx_read_as(x, FX_DTYPE_I64, out + n, fx_length(x)), FX_OK);
        n += fx_length(x);
    }
    assert_int_equal(fx_error_status(), FX_OK);
    return n;
}

static void *plus_one(void *observations, void *user)
{
    (void)user;
    return fx_add(observations, 1);
}

static void loaders_of_views(void **state)
{
    (void)state;
    FX_SCOPE;
    int64_t got[MOST], more[MOST];
    void *v = fx_obsview(numbers(40), LABELS(9, 8, 30, 1, 1));
    assert_int_equal(collect(fx_dataloader(v, .batchsize = 2), got), 5);
    assert_memory_equal(got, INTS(9, 8, 30, 1, 1), sizeof(int64_t[5]));
    void *mapped =
        fx_obsview(fx_mapobs_with(plus_one, NULL, fx_obsview(v, LABELS(4, 2, 0))), LABELS(1, 0));
    for (int workers = 0; workers < 3; workers++) {
        assert_int_equal(collect(fx_dataloader(mapped, .batchsize = 2, .workers = workers), got),
                         2);
        assert_memory_equal(got, INTS(31, 2), sizeof(int64_t[2]));
    }
    fx_loader *l = fx_dataloader(v, .shuffle = true, .seed = 3, .workers = 2);
    assert_int_equal(collect(l, got), 5);
    assert_int_equal(collect(fx_dataloader(v, .shuffle = true, .seed = 3), more), 5);
    assert_memory_equal(got, more, sizeof(int64_t[5]));
    char text[300];
    fx_summary(fx_dataloader(v, .batchsize = -1), text, sizeof text);
    assert_string_equal(text, "5-element DataLoader(::Vector{Int64}, batchsize=-1)");
}

static void loaders_of_derived_data(void **state)
{
    (void)state;
    FX_SCOPE;
    int64_t got[MOST];
    void *data = fx_tuple(fx_slidingwindow(numbers(5), 2, 1),
                          fx_tuple(fx_mapobs_with(plus_one, NULL, numbers(4)), pairs(4)));
    for (int workers = 0; workers < 2; workers++)
        for (int parallel = 0; parallel <= workers; parallel++) {
            fx_loader *l =
                fx_dataloader(data, .batchsize = 3, .workers = workers, .parallel = parallel);
            assert_int_equal(collect(l, got), 8);
            assert_memory_equal(got, INTS(0, 1, 1, 2, 2, 3, 3, 4), sizeof(int64_t[8]));
            fx_batch b = {0};
            assert_true(fx_next(l, &b));
            is_size(b.x, 2, 2, 3, 1);
            assert_null(b.y);
            IS(fx_child(fx_child(b.items, 1), 0), 1, 2, 3);
            fx_batch_end(&b);
        }
    assert_int_equal(
        collect(fx_dataloader(fx_joinobs(numbers(2), numbers(3)), .batchsize = 4, .workers = 1),
                got),
        5);
    assert_memory_equal(got, INTS(0, 1, 0, 1, 2), sizeof(int64_t[5]));
}

static void *count_list(void *list, void *user)
{
    int *calls = user;
    ++*calls;
    assert_int_equal(fx_ndims(fx_child(fx_child(list, 0), 1)), 0);
    return fx_full((double)fx_count(list), 1);
}

static void *nothing(void *list, void *user)
{
    (void)list;
    return user;
}

static void collation(void **state)
{
    (void)state;
    FX_SCOPE;
    int calls = 0;
    void *data = fx_tuple(pairs(5), numbers(5));
    fx_batch b = {0};
    fx_loader *l = fx_dataloader(data, .batchsize = 3, .collate = FX_COLLATE_NONE);
    assert_true(fx_next(l, &b));
    assert_int_equal(fx_count(b.items), 3);
    IS(fx_child(fx_child(b.items, 2), 0), 2, 102);
    assert_true(fx_next(l, &b));
    assert_int_equal(fx_count(b.items), 2);
    assert_false(fx_next(l, &b));
    l = fx_dataloader(data, .batchsize = 3, .collate = FX_COLLATE_BATCH, .workers = 1);
    assert_true(fx_next(l, &b));
    is_size(b.x, 2, 2, 3, 1);
    IS(b.y, 0, 1, 2);
    fx_batch_end(&b);
    int64_t got[MOST];
    l = fx_dataloader(data, .batchsize = 3, .collate_with = count_list, .collate_user = &calls);
    assert_int_equal(collect(l, got), 2);
    assert_int_equal(calls, 2);
    assert_true(got[0] == 3 && got[1] == 2);
    l = fx_dataloader(data, .collate_with = nothing);
    assert_false(fx_next(l, &b));
    assert_non_null(strstr(fx_error_take().message, ".collate_with returned NULL"));
    char text[300];
    fx_summary(fx_dataloader(data, .collate = FX_COLLATE_NONE), text, sizeof text);
    assert_non_null(strstr(text, "collate=false"));
}

static void single_observations(void **state)
{
    (void)state;
    FX_SCOPE;
    int64_t n = 0;
    fx_loader *l = fx_eachobs(fx_tuple(pairs(3), numbers(3)));
    assert_int_equal(fx_batchsize(l), -1);
    assert_int_equal(fx_batchsize(fx_dataloader(numbers(3), .batchsize = 2)), 2);
    for (fx_batch b = {0}; fx_next(l, &b); n++) {
        assert_int_equal(fx_ndims(b.x), 1);
        IS(b.x, n, 100 + n);
        assert_int_equal(fx_ndims(b.y), 0);
        assert_true(fx_item(b.y) == (double)n);
    }
    assert_int_equal(n, 3);
    n = 0;
    l = fx_eachobs(fx_slidingwindow(numbers(4), 3, 1));
    for (fx_batch b = {0}; fx_next(l, &b); n++)
        IS(b.x, n, n + 1, n + 2);
    assert_int_equal(n, 2);
}

static void reused_memory(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_loader *l =
        fx_dataloader(fx_tuple(pairs(4), fx_tuple(numbers(4))), .batchsize = 2, .buffer = true);
    fx_batch b = {0};
    assert_true(fx_next(l, &b));
    fx_array *kept = fx_retain(fx_child(fx_child(b.items, 1), 0));
    IS(kept, 0, 1);
    assert_true(fx_next(l, &b));
    assert_int_equal(fx_eval(fx_add(kept, 1)), FX_STATUS_STATE);
    fx_error_take();
    fx_release(kept);
    fx_batch_end(&b);
}

/* Tuples that hold the next one twice: 40 objects, 2^40 paths. */
static void shared_tuples(void **state)
{
    (void)state;
    FX_SCOPE;
    void *data = numbers(6);
    for (int i = 0; i < 40; i++)
        data = fx_tuple(data, data);
    assert_int_equal(fx_num_obs(data), 6);
    int batches_seen = 0;
    for (fx_batch b = {0}; fx_next(fx_dataloader(data, .batchsize = 6), &b); batches_seen++) {
        void *x = b.items;
        for (int i = 0; i < 40; i++)
            x = fx_child(x, 0);
        IS(x, 0, 1, 2, 3, 4, 5);
        fx_batch_end(&b);
        break;
    }
    void *joined = fx_batchobs(fx_tuple(data, data));
    for (int i = 0; i < 40; i++)
        joined = fx_child(joined, i % 2);
    assert_true(fx_ndims(joined) == 2 && fx_size(joined, 1) == 2);
    void *half = fx_child(fx_split_obs(fx_getobs(fx_obsview(data, LABELS(3, 1))), 0.5), 0);
    for (int i = 0; i < 40; i++)
        half = fx_child(half, i % 2);
    IS(half, 3);
    for (int i = 0; i < 100; i++)
        data = fx_tuple(data);
    assert_int_equal(fx_num_obs(data), 0);
    assert_non_null(strstr(fx_error_take().message, "nested deeper than 100"));
}

static fx_array *zero_d(int64_t i)
{
    return fxi_from(FX_DTYPE_I64, &i, 0, NULL);
}

static void data_in_many_places(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_range_dtype(FX_DTYPE_I64, 0, 1, 2);
    void *joined = x, *pairs = x;
    for (int i = 0; i < 60; i++) {
        joined = fx_joinobs(joined, x);
        pairs = fx_obsview(fx_tuple(pairs, pairs), x);
    }
    assert_int_equal(fx_num_obs(joined), 122);
    assert_int_equal(fx_num_obs(pairs), 2);
}

static void names_of_observations(void **state)
{
    (void)state;
    FX_SCOPE;
    void *a = fx_named_tuple("x", fx_ones(2), "y", fx_zeros(2));
    void *b = fx_named_tuple("y", fx_zeros(2), "x", fx_ones(2));
    assert_true(fx_is_error(fx_batchobs(fx_tuple(a, b))));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_false(fx_is_error(fx_batchobs(fx_tuple(a, a))));
}

static void batches_behind_the_last(void **state)
{
    (void)state;
    FX_SCOPE;
    void *batches = fx_batchview(fx_range_dtype(FX_DTYPE_I64, 0, 1, 6), 2, true);
    IS(fx_get_obs(batches, zero_d(2)), 4, 5);
    assert_int_not_equal(fx_eval(fx_get_obs(batches, zero_d(3))), FX_OK);
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
}

static void large_integers(void **state)
{
    (void)state;
    FX_SCOPE;
    IS(fx_full_like(fx_range_dtype(FX_DTYPE_I64, 0, 1, 2), 16777217), 16777217, 16777217);
    const int64_t v[] = {9007199254740992, 9007199254740993, -9007199254740993};
    IS(fx_child(fx_topk(fx_from(FX_DTYPE_I64, v, 3), 3, 0), 1), 1, 0, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_in_many_places),
        cmocka_unit_test(names_of_observations),
        cmocka_unit_test(batches_behind_the_last),
        cmocka_unit_test(large_integers),
        cmocka_unit_test(views),
        cmocka_unit_test(random_orders),
        cmocka_unit_test(functions_of_observations),
        cmocka_unit_test(joins),
        cmocka_unit_test(windows),
        cmocka_unit_test(splits),
        cmocka_unit_test(stratified_splits),
        cmocka_unit_test(folds),
        cmocka_unit_test(folds_by_label),
        cmocka_unit_test(shuffled_folds),
        cmocka_unit_test(folds_in_time),
        cmocka_unit_test(folds_are_views),
        cmocka_unit_test(folds_need_little_memory),
        cmocka_unit_test(labels),
        cmocka_unit_test(batches),
        cmocka_unit_test(parts_of_arrays),
        cmocka_unit_test(arrays_like_another),
        cmocka_unit_test(values),
        cmocka_unit_test(loaders_of_views),
        cmocka_unit_test(loaders_of_derived_data),
        cmocka_unit_test(collation),
        cmocka_unit_test(single_observations),
        cmocka_unit_test(reused_memory),
        cmocka_unit_test(shared_tuples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
