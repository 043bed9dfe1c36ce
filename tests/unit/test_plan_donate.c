/* test_plan_donate.c: what an update may overwrite, and what it must not.
 *
 * Each test commits new values that are computed from the old ones in a way that forbids writing
 * over them, or that allows it, and compares every result with numbers worked out here. Where the
 * old value may be overwritten the counters say that it was.
 */
#include "evaluate.h"
#include "semantics_check.h"

enum { N = 6 };

/* 0 1 2 3 4 5 plus `from`, in memory of its own. */
static fx_array *numbers(double from)
{
    fx_array *x = fx_range_dtype(FX_DTYPE_F32, from, 1, N);
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

static void expect(const char *what, fx_array *x, double a, double b, double c, double d, double e,
                   double f)
{
    check_array(what, x, N, (const double[]){a, b, c, d, e, f}, 0, 0);
}

/* Commits, and returns how many of the values were written over old ones. */
static int commit(int n, fx_array *const *handles, fx_array *const *values)
{
    const uint64_t before = fx_stats().donations;
    assert_int_equal(fxi_commit(n, handles, values, NULL, false), FX_OK);
    return (int)(fx_stats().donations - before);
}

/* ---- many elements --------------------------------------------------------------------------- */

/* More elements than a kernel processes at a time, so that a value that is overwritten too early
 * gives a wrong result. Values are small integers; sums stay exact in Float64. */
enum { MANY = 3000 };

static double p_at(int i)
{
    return i % 7 - 3;
}
static double q_at(int i)
{
    return i * 5 % 11 - 5;
}

static fx_array *many(double (*at)(int i))
{
    static double v[MANY];
    for (int i = 0; i < MANY; i++)
        v[i] = at(i);
    fx_array *x = fxi_from(FX_DTYPE_F64, v, 1, (int64_t[]){MANY});
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

static void expect_each(const char *what, fx_array *x, double (*at)(int i))
{
    static double got[MANY];
    check_read(what, x, got, MANY);
    for (int i = 0; i < MANY; i++)
        check_value(what, i, got[i], at(i), 0, 0);
}

static fx_array *reversed(fx_array *x)
{
    return fx_flip(x, FX_AXES(0));
}

static double doubled(int i)
{
    return 2 * p_at(i);
}
static double p_backwards(int i)
{
    return 2 * p_at(MANY - 1 - i);
}
static double p_and_backwards(int i)
{
    return p_at(i) + 3 * p_at(MANY - 1 - i);
}
static double running_sum(int i)
{
    double sum = 0;
    for (int k = 0; k <= i; k++)
        sum += p_at(k);
    return sum;
}
static double q_plus_1(int i)
{
    return q_at(i) + 1;
}
static double p_plus_1(int i)
{
    return p_at(i) + 1;
}
static double p_plus_q(int i)
{
    return p_at(i) + q_at(i);
}
static double q_and_p_backwards(int i)
{
    return q_at(i) + p_at(MANY - 1 - i);
}
static double running_of_doubled_times_old(int i)
{
    return 2 * running_sum(i) * p_at(i);
}

/* In the simplest case the new value takes the memory of the old one. */
static void in_order_is_in_place(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *p = many(p_at), *next = fx_mul(p, 2);
    const void *before = address_of(p);
    assert_int_equal(commit(1, &p, &next), 1);
    assert_ptr_equal(address_of(p), before);
    expect_each("p", p, doubled);
}

static void out_of_order_is_not(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *p = many(p_at), *next = fx_mul(reversed(p), 2);
    assert_int_equal(commit(1, &p, &next), 0);
    expect_each("reversed", p, p_backwards);
    fx_array *q = many(p_at), *both = fx_add(q, fx_mul(reversed(q), 3));
    assert_int_equal(commit(1, &q, &both), 0);
    expect_each("in order and reversed", q, p_and_backwards);
    fx_array *r = many(p_at), *sums = fx_cumsum(r, 0); /* no elementwise step at all */
    assert_int_equal(commit(1, &r, &sums), 0);
    expect_each("cumsum", r, running_sum);
}

/* A step that needs the new value, so that it cannot come earlier, reads the old one too. */
static void a_later_step_reads_the_old_value(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *p = many(p_at), *next = fx_mul(p, 2);
    fx_array *later = fx_want(fx_mul(fx_cumsum(next, 0), p));
    assert_int_equal(commit(1, &p, &next), 0);
    expect_each("p", p, doubled);
    expect_each("later", later, running_of_doubled_times_old);
}

static double running_of_doubled(int i)
{
    return 2 * running_sum(i);
}

/* Steps that read the new value run after it, steps that read the old one before it. */
static void readers_of_both_values(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *p = many(p_at), *next = fx_mul(p, 2);
    fx_array *of_new = fx_want(fx_cumsum(next, 0)), *of_old = fx_want(fx_cumsum(p, 0));
    commit(1, &p, &next);
    expect_each("p", p, doubled);
    expect_each("cumsum of the new", of_new, running_of_doubled);
    expect_each("cumsum of the old", of_old, running_sum);
}

/* Each of two new values is computed from the other's old one. */
static void values_that_change_places(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        FX_SCOPE;
        fx_array *p = many(p_at), *q = many(q_at);
        fx_array *handles[] = {turned ? q : p, turned ? p : q};
        fx_array *of_q = fx_add(q, 1), *of_p = fx_add(p, 1);
        fx_array *values[] = {turned ? of_p : of_q, turned ? of_q : of_p};
        commit(2, handles, values);
        expect_each("p", p, q_plus_1);
        expect_each("q", q, p_plus_1);
    }
}

/* One new value reads what the other replaces, in order or not, whichever is committed first. */
static void values_that_read_each_other(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        FX_SCOPE;
        fx_array *p = many(p_at), *q = many(q_at), *next_p = fx_mul(p, 2);
        fx_array *next_q = fx_add(q, form / 2 ? reversed(p) : p);
        fx_array *handles[] = {form % 2 ? p : q, form % 2 ? q : p};
        fx_array *values[] = {form % 2 ? next_p : next_q, form % 2 ? next_q : next_p};
        assert_true(commit(2, handles, values) >= 1);
        expect_each("p", p, doubled);
        expect_each("q", q, form / 2 ? q_and_p_backwards : p_plus_q);
    }
}

static double tripled(int i)
{
    return 3 * q_and_p_backwards(i);
}

/* A step that computes another result also makes the new value of q. This step comes after the one
 * that makes the new value of p, although q is committed first. */
static void committed_first_but_computed_last(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *p = many(p_at), *q = many(q_at);
    fx_array *handles[] = {q, p}, *values[] = {fx_add(q, reversed(p)), fx_mul(p, 2)};
    fx_array *other = fx_want(fx_mul(values[0], 3));
    assert_true(commit(2, handles, values) >= 1);
    expect_each("p", p, doubled);
    expect_each("q", q, q_and_p_backwards);
    expect_each("other", other, tripled);
}

/* One step makes the new value and then another result, for which it reads the old value again. */
static void a_further_output_is_in_place(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *p = many(p_at), *next = fx_mul(p, 2), *q = many(q_at);
    fx_array *other = fx_want(fx_sub(fx_add(fx_mul(next, q), fx_mul(p, q)), fx_mul(3, p)));
    commit(1, &p, &next);
    static double got[MANY];
    check_read("other", other, got, MANY);
    for (int i = 0; i < MANY; i++)
        check_value("other", i, got[i], 3 * p_at(i) * q_at(i) - 3 * p_at(i), 0, 0);
    expect_each("p", p, doubled);
}

/* Twice the same handle: the last value stays, and both are right. */
static void two_values_for_one(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *p = many(p_at), *old = many(p_at), *q = many(q_at);
    fx_array *first = fx_mul(p, 2), *second = fx_add(q, 1), *sums = fx_want(fx_cumsum(old, 0));
    fx_array *handles[] = {old, old}, *values[] = {first, second};
    assert_true(commit(2, handles, values) <= 1);
    expect_each("the first", first, doubled);
    expect_each("the second", second, q_plus_1);
    expect_each("the handle", old, q_plus_1);
    expect_each("cumsum of the old", sums, running_sum);
}

/* A view of the old value is a result, and shares its memory. */
static void a_view_of_the_old_value(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *p = many(p_at), *next = fx_mul(p, 2), *view = fx_want(fx_reshape(p, 30, 100));
    assert_int_equal(commit(1, &p, &next), 0);
    expect_each("p", p, doubled);
    expect_each("view", view, p_at);
}

/* The new value is a part of a larger one. */
static void a_part_of_a_larger_value(void **state)
{
    (void)state;
    for (int from = 0; from <= MANY; from += MANY) {
        FX_SCOPE;
        fx_array *p = many(p_at),
                 *pair = fx_gather(fx_concat(0, p, fx_mul(p, 2)),
                                   fx_range_dtype(FX_DTYPE_I64, 0, 1, 2 * MANY), 0);
        fx_array *next = fx_slice(pair, 0, from, from + MANY), *all = fx_want(fx_cumsum(pair, 0));
        commit(1, &p, &next);
        expect_each("p", p, from ? doubled : p_at);
        SAME(fx_at(all, 2 * MANY - 1), 3 * running_sum(MANY - 1));
    }
}

/* Results that fail come first, and leave the old values as they were. */
static void a_failure_leaves_the_old_values(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *p = many(p_at), *q = many(q_at);
    fx_array *handles[] = {p, q}, *values[] = {fx_mul(p, 2), fx_add(q, 1)};
    fx_array *at = fx_from(FX_DTYPE_I64, ((int64_t[]){MANY + 7}), 1);
    assert_int_equal(fx_eval(at), FX_OK);
    fx_want(fx_gather(fx_cumsum(p, 0), at, 0));
    assert_int_not_equal(fxi_commit(2, handles, values, NULL, false), FX_OK);
    expect_error(FX_STATUS_ARGUMENT, "3007");
    expect_each("p", p, p_at);
    expect_each("q", q, q_at);
}

/* ---- pending results that read what is replaced ---------------------------------------------- */

/* `both` was needed for the new value of p, and nothing needs it any more; the nodes between have
 * no handles and are gone. With p replaced it cannot be computed, and reading it is an error. The
 * next update of its operands ignores it. */
static void a_lost_intermediate_stops_no_update(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *p = numbers(0), *q = numbers(10);
    fx_array *both = fx_mul(p, q), *next_p = fx_clamp(both, 11, 42), *next_q = fx_add(q, 1);
    commit(1, &p, &next_p);
    expect("p", p, 11, 11, 24, 39, 42, 42);
    commit(1, &q, &next_q);
    expect("q", q, 11, 12, 13, 14, 15, 16);
    assert_int_equal(fx_eval(both), FX_STATUS_STATE);
    expect_error(FX_STATUS_STATE, "replaced");
}

/* Such a result does not stop the evaluation that begins when too many nodes are pending, either.
 */
static void a_lost_intermediate_stops_no_flush(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *p = numbers(0), *twice = fx_mul(p, 2), *next = fx_clamp(twice, 1, 3), *y = p;
    commit(1, &p, &next);
    const uint64_t implicit = fx_stats().implicit_evals;
    enum { MOST = 1000 };
    const int64_t most = fxi_here()->most_created;
    fxi_here()->most_created = MOST;
    for (int k = 0; k < MOST; k++)
        y = fx_add(y, 1);
    fxi_here()->most_created = most;
    assert_true(fx_stats().implicit_evals > implicit);
    assert_int_equal(fx_error_status(), FX_OK);
    SAME(fx_at(y, 1), 2 + (double)MOST);
    assert_false(fx_is_evaluated(twice));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(in_order_is_in_place),
        TEST(out_of_order_is_not),
        TEST(a_later_step_reads_the_old_value),
        TEST(readers_of_both_values),
        TEST(values_that_change_places),
        TEST(values_that_read_each_other),
        TEST(committed_first_but_computed_last),
        TEST(a_further_output_is_in_place),
        TEST(two_values_for_one),
        TEST(a_view_of_the_old_value),
        TEST(a_part_of_a_larger_value),
        TEST(a_failure_leaves_the_old_values),
        TEST(a_lost_intermediate_stops_no_update),
        TEST(a_lost_intermediate_stops_no_flush),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
