/* test_plan_text.c: golden tests of the planner: a graph in, its list of steps out. The expected
 * lists follow from the rules of src/plan/group.c and src/plan/plan.c, worked out by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "evaluate.h"
#include "memory.h"
#include "own_child.h"
#include "plan.h"
#include "plan_steps.h"

static fx_array *leaf(int64_t m, int64_t n)
{
    fx_array *x = fx_rand(m, n);
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

static void chain_is_one_step(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(4, 5);
    expect(fx_tanh(fx_add(fx_mul(x, 1.3), 0.2)), "  1  mul add tanh(x0, c0, c1) → Float32 4×5\n");
}

static void a_broadcast_is_addressing(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *W = leaf(3, 4), *b = fx_rand(3), *x = leaf(4, 5);
    fx_eval(b);
    expect(fx_relu(fx_add(fx_matmul(W, x), b)),
           "  1  matmul then add relu(x0, x1, x2′) → Float32 3×5, 0.00012 MFLOP\n");
}

static void a_value_needed_twice_leaves_its_group(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(4, 4);
    fx_array *e = fx_exp(x), *m = fx_matmul(e, e);
    /* the product needs e stored; the sum comes after the product, so e stays where it is made */
    expect(fx_add(m, e), "  1  exp(x0) → Float32 4×4\n"
                         "  2  matmul then add(1, 1, 1) → Float32 4×4, 0.000128 MFLOP\n");
}

static void results_of_one_group_leave_together(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(4, 4);
    fx_array *a = fx_mul(x, 0.9), *b = fx_sub(x, a);
    expect(fx_tuple(a, b), "  1  mul sub(x0, c0) → Float32 4×4 and 1 more\n");
}

/* A value and its gradient read x once; nothing but the results is stored. Without the rule the
 * value stores what the gradient reads: exp and the square. */
static void groups_of_one_operand_are_one_step(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(4, 5), *g = leaf(4, 5), *gx;
    fx_array *y = fx_mul(fx_exp(x), fx_tanh(x));
    assert_int_equal(fx_pullback(y, g, &x, 1, &gx), FX_OK);
    expect(fx_tuple(y, gx),
           "  1  exp tanh mul mul mul sub mul mul mul add(x0, x1, c0) → Float32 4×5 "
           "and 1 more\n");
    /* two groups that only have an operand in common, and a third that does not */
    expect(fx_tuple(fx_exp(x), fx_tanh(x), fx_cos(g)),
           "  1  exp tanh(x0) → Float32 4×5 and 1 more\n"
           "  2  cos(x1) → Float32 4×5\n");
    /* other sizes */
    fx_array *row = leaf(4, 1);
    expect(fx_tuple(fx_exp(row), fx_add(x, row)), "  1  exp(x0) → Float32 4×1\n"
                                                  "  2  add(x1, x0′) → Float32 4×5\n");
}

/* The product needs the exponential before the sine can be computed. */
static void groups_with_a_step_in_between_stay_apart(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(4, 4), *e = fx_exp(x);
    expect(fx_sub(fx_sin(x), fx_matmul(e, x)), "  1  exp(x0) → Float32 4×4\n"
                                               "  2  matmul(1, x0) → Float32 4×4, 0.000128 MFLOP\n"
                                               "  3  sin sub(x0, 2) → Float32 4×4\n");
}

/* The product reads the difference before the scaled difference is computed, as a loss does before
 * its gradient. Both are one step all the same, in front of the product, if all operands exist
 * there. */
static void a_group_moves_to_an_earlier_one(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(4, 4), *t = leaf(4, 4), *W = leaf(4, 4), *row = leaf(4, 1);
    fx_array *d = fx_sub(x, t), *m = fx_matmul(W, d);
    expect(fx_tuple(m, fx_mul(fx_mul(d, 0.7), row)),
           "  1  sub mul mul(x1, x2, c0, x3′) → Float32 4×4 and 1 more\n"
           "  2  matmul(x0, 1) → Float32 4×4, 0.000128 MFLOP\n");
    /* a loss whose gradient is part of the step of its differences */
    fx_array *wide = leaf(300, 100), *e = fx_sub(wide, 0.1), *g;
    fx_array *y = fx_mean(fx_square(e));
    assert_int_equal(fx_pullback(y, fx_scalar(1), &e, 1, &g), FX_OK);
    expect(fx_tuple(y, g), "  1  sub mul mul(x0, c0, c6, c5) → Float32 300×100 and 1 more\n"
                           "  2  reduce sum of powi(1) → Float64 1×1\n"
                           "  3  div cast(2, c1) → Float32 1×1\n");
    /* an operand is computed from the product */
    expect(fx_tuple(m, fx_mul(d, fx_sum(m))), "  1  sub(x1, x2) → Float32 4×4\n"
                                              "  2  matmul(x0, 1) → Float32 4×4, 0.000128 MFLOP\n"
                                              "  3  reduce sum(2) → Float32 1×1\n"
                                              "  4  mul(1, 3) → Float32 4×4\n");
    /* a view of the difference has to be in memory */
    expect(fx_tuple(m, fx_mul(d, fx_transpose(d))),
           "  1  sub(x1, x2) → Float32 4×4\n"
           "  2  matmul(x0, 1) → Float32 4×4, 0.000128 MFLOP\n"
           "  3  mul(1, 1′) → Float32 4×4\n");
}

/* 1 / 20 takes no step; the literals of its parts come before its own. */
static void literals_are_computed_on_the_host(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(4, 5), *part = fx_div(fx_cast(fx_ones(1, 1), FX_DTYPE_F64), 20);
    fx_array *wide = fx_expand(fx_reshape(fx_cast(part, FX_DTYPE_F32), 1, 1), 4, 5);
    expect(fx_mul(x, wide), "  1  mul(x0, c4) → Float32 4×5\n");
    fx_array *y = fx_mul(fx_ones(4, 5), wide);
    assert_float_equal(fx_item(fx_sum(y)), 1, 1e-6);
    /* integers are not computed on the host */
    fx_array *three = fx_add(fx_cast(fx_ones(1, 1), FX_DTYPE_I64), 2);
    assert_int_equal(fx_item(three), 3);
    /* the result may be all that a program asks for */
    assert_float_equal(fx_item(fx_sqrt(fx_sub(fx_neg(fx_ones(1, 1)), -5))), 2, 0);
}

static void a_reduction_takes_its_producers(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(4, 5), *y = leaf(4, 5);
    expect(fx_sum(fx_square(fx_sub(x, y))), "  1  reduce sum of sub powi(x0, x1) → Float32 1×1\n");
    expect(fx_maximum(fx_exp(x), .dims = FX_AXES(1)), "  1  reduce max of exp(x0) → Float32 4×1\n");
    /* kept, reduced and kept axes: tiles in memory order would need accumulators for all results,
     * so this is two steps */
    fx_array *z = fx_rand(2, 3, 4);
    fx_eval(z);
    expect(fx_sum(fx_exp(z), .dims = FX_AXES(1)), "  1  exp(x0) → Float32 2×3×4\n"
                                                  "  2  reduce sum(1) → Float32 2×1×4\n");
}

static void what_a_reduction_takes_is_not_needed_elsewhere(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(4, 5), *e = fx_exp(x);
    expect(fx_div(e, fx_sum(e, .dims = FX_AXES(1))), "  1  exp(x0) → Float32 4×5\n"
                                                     "  2  reduce sum(1) → Float32 4×1\n"
                                                     "  3  div(1, 2′) → Float32 4×5\n");
}

static void transposes_and_slices_cost_nothing(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(4, 4);
    expect(fx_exp(fx_slice(fx_transpose(x), 0, 1, 3)), "  1  exp(x0′) → Float32 2×4\n");
}

static void a_reshape_of_a_transpose_is_a_copy(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(4, 6);
    expect(fx_exp(fx_reshape(fx_transpose(x), 24)), "  1  copy(x0′) → Float32 6×4\n"
                                                    "  2  exp(1) → Float32 24\n");
}

static void groups_respect_their_budgets(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(2, 2), *y = x;
    for (int i = 0; i < 100; i++)
        y = fx_tanh(y);
    char text[8192];
    fx_plan_text(y, text, sizeof text);
    int steps = 0;
    for (const char *at = strchr(text, '\n') + 1; *at; at = strchr(at, '\n') + 1)
        steps++;
    assert_int_equal(steps, 2); /* 64 instructions and 36 */
}

static void evaluated_arrays_need_no_plan(void **state)
{
    (void)state;
    FX_SCOPE;
    char text[64];
    fx_plan_text(leaf(2, 2), text, sizeof text);
    assert_string_equal(text, "nothing is pending\n");
}

/* Without memory there is an error and no text, never a part of the text. */
static void without_memory_there_is_no_text(void **state)
{
    (void)state;
    FX_SCOPE;
    char want[4000], text[4000];
    fx_array *x = leaf(4, 5), *y = x;
    for (int i = 0; i < 30; i++)
        y = fx_cumsum(y, i % 2);
    const size_t n = fx_plan_text(y, want, sizeof want);
    int failed = 0;
    for (int64_t nth = 1, left = 1; left > 0; nth++) {
        strcpy(text, "old");
        fxi_reclaim_all();
        fxi_fault_set(nth);
        const size_t got = fx_plan_text(y, text, sizeof text);
        left = fxi_fault_seen() - nth + 1;
        fxi_fault_set(-1);
        const fx_error e = fx_error_take();
        failed += e.status == FX_STATUS_MEMORY;
        assert_true(e.status == FX_OK || e.status == FX_STATUS_MEMORY);
        assert_int_equal(got, e.status == FX_OK ? n : 0);
        assert_string_equal(text, e.status == FX_OK ? want : "");
    }
    assert_true(failed > 5);
    FILE *full = fopen("/dev/full", "w");
    if (!full)
        return;
    setvbuf(full, NULL, _IONBF, 0);
    fx_plan_show(full, y);
    assert_int_equal(fx_error_take().status, FX_STATUS_IO);
    fclose(full);
}

/* ---- FX_EAGER -------------------------------------------------------------------------------- */

/* This program with --steps: prints the steps of three operations in a chain. */
static int print_steps(void)
{
    FX_SCOPE;
    char text[1000];
    const size_t n = fx_plan_text(fx_tanh(fx_add(fx_mul(leaf(4, 5), 1.3), 0.2)), text, sizeof text);
    int lines = 0;
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    printf("%d", lines - 1);
    return 0;
}

/* The steps of a process with this FX_EAGER; NULL: without it. */
static int steps_with(const char *value)
{
    char environment[50] = "unset FX_EAGER;", out[200];
    int steps = 0;
    if (value)
        snprintf(environment, sizeof environment, "FX_EAGER='%s'", value);
    assert_int_equal(own_child(environment, "--steps", out, sizeof out), 0);
    assert_int_equal(sscanf(out, "%d", &steps), 1);
    return steps;
}

static void the_environment_switches_groups_off(void **state)
{
    (void)state;
    assert_int_equal(steps_with(NULL), 1);
    assert_int_equal(steps_with(""), 1);
    assert_int_equal(steps_with("0"), 1);
    assert_int_equal(steps_with("1"), 3);
    assert_int_equal(steps_with("yes"), 3);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--steps") == 0)
        return print_steps();
    unsetenv("FX_EAGER");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chain_is_one_step),
        cmocka_unit_test(a_broadcast_is_addressing),
        cmocka_unit_test(a_value_needed_twice_leaves_its_group),
        cmocka_unit_test(results_of_one_group_leave_together),
        cmocka_unit_test(groups_of_one_operand_are_one_step),
        cmocka_unit_test(groups_with_a_step_in_between_stay_apart),
        cmocka_unit_test(a_group_moves_to_an_earlier_one),
        cmocka_unit_test(literals_are_computed_on_the_host),
        cmocka_unit_test(a_reduction_takes_its_producers),
        cmocka_unit_test(what_a_reduction_takes_is_not_needed_elsewhere),
        cmocka_unit_test(transposes_and_slices_cost_nothing),
        cmocka_unit_test(a_reshape_of_a_transpose_is_a_copy),
        cmocka_unit_test(groups_respect_their_budgets),
        cmocka_unit_test(evaluated_arrays_need_no_plan),
        cmocka_unit_test(without_memory_there_is_no_text),
        cmocka_unit_test(the_environment_switches_groups_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
