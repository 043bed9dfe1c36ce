/* test_plan_foreach.c: planner rule 5: which steps become segments of one, and that results are
 * those of one step for each parameter. Expected lists follow from the rules of src/plan/foreach.c,
 * expected numbers from plain loops.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "evaluate.h"
#include "plan.h"
#include "plan_steps.h"

static fx_array *leaf(fx_array *x)
{
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

static void one_program_over_several_tensors(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = leaf(fx_rand(4, 5)), *b = leaf(fx_rand(3)), *c = leaf(fx_rand(1, 1));
    fx_array *rate = fx_scalar(0.5);
    expect(fx_tuple(fx_sub(a, fx_mul(a, rate)), fx_sub(b, fx_mul(b, rate)),
                    fx_sub(c, fx_mul(c, rate))),
           "  1  foreach of 3: mul sub(x0, c0; x1, c0; x2, c0) → Float32 20, 3, 1\n");
}

static void types_programs_and_layouts_differ(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = leaf(fx_rand(2, 3)), *b = leaf(fx_cast(fx_rand(2, 3), FX_DTYPE_F64));
    expect(fx_tuple(fx_exp(a), fx_exp(b)), "  1  exp(x0) → Float32 2×3\n"
                                           "  2  exp(x1) → Float64 2×3\n");
    fx_array *c = leaf(fx_rand(5));
    expect(fx_tuple(fx_exp(a), fx_tanh(c)), "  1  exp(x0) → Float32 2×3\n"
                                            "  2  tanh(x1) → Float32 5\n");
    expect(fx_tuple(fx_exp(a), fx_exp(fx_transpose(a))), "  1  exp(x0) → Float32 2×3\n"
                                                         "  2  exp(x0′) → Float32 3×2\n");
    /* exponents are structure */
    expect(fx_tuple(fx_pow(a, 2), fx_pow(c, 3)), "  1  powi(x0) → Float32 2×3\n"
                                                 "  2  powi(x1) → Float32 5\n");
}

static void what_is_read_stays_where_it_is(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = leaf(fx_rand(3, 3)), *b = leaf(fx_rand(2));
    fx_array *e = fx_exp(a);
    expect(fx_tuple(fx_matmul(e, e), fx_exp(b)), "  1  exp(x0) → Float32 3×3\n"
                                                 "  2  matmul(1, 1) → Float32 3×3, 5.4e-05 MFLOP\n"
                                                 "  3  exp(x1) → Float32 2\n");
}

/* A single value fits where others have a tensor and where they have a single value, but a group is
 * one or the other. */
static void single_values_fit_either_way(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *s = leaf(fx_rand(1)), *k = leaf(fx_sum(fx_rand(2), .dims = FX_AXES(0)));
    fx_array *a = leaf(fx_rand(4)), *b = leaf(fx_rand(4)), *c = leaf(fx_rand(7));
    expect(fx_tuple(fx_mul(s, k), fx_mul(a, b), fx_mul(c, k)),
           "  1  foreach of 2: mul(x0, x1; x2, x3) → Float32 1, 4\n"
           "  2  mul(x4, x1′) → Float32 7\n");
    expect(fx_tuple(fx_mul(s, k), fx_mul(c, k), fx_mul(a, k)),
           "  1  foreach of 3: mul(x0, x1; x2, x1′; x3, x1′) → Float32 1, 7, 4\n");
}

/* ---- updates --------------------------------------------------------------------------------- */

typedef struct Pair {
    fx_object base;
    fx_array *p, *q;
} Pair;
FX_FUNCTOR(Pair, p, q);

static void check(fx_array *x, const float *want, int n)
{
    for (int i = 0; i < n; i++)
        assert_true(fabs(fx_at(fx_vec(x), i) - (double)want[i]) <=
                    2e-6 * fabs((double)want[i]) + 1e-7);
}

enum { P = 700, Q = 3, STEPS = 4 };

/* Adam's formulas over one array. */
static void adam_by_hand(float *x, float *m, float *v, int n, int step)
{
    const double c1 = 1 - pow(0.9, step), c2 = 1 - pow(0.999, step);
    for (int i = 0; i < n; i++) {
        const float g = 2 * x[i];
        m[i] = 0.9F * m[i] + 0.1F * g;
        v[i] = 0.999F * v[i] + 0.001F * g * g;
        x[i] -= (float)(0.01 * (m[i] / c1) / (sqrt(v[i] / c2) + 1e-8));
    }
}

static void an_update_is_one_step_in_place(void **state)
{
    (void)state;
    FX_SCOPE;
    static float p[P], q[Q], pm[P], qm[Q], pv[P], qv[Q];
    for (int i = 0; i < P; i++)
        p[i] = (float)sin(i);
    for (int i = 0; i < Q; i++)
        q[i] = (float)cos(i);
    Pair *model = fx_new(Pair, .p = fx_mul(1, FX_FROM_C(p)), .q = fx_mul(1, FX_FROM_C(q)));
    assert_int_equal(fx_eval(model), FX_OK);
    void *opt = fx_setup(fx_adam(.eta = 0.01), model);
    const void *at = NULL;
    for (int k = 1; k <= STEPS; k++) {
        FX_STEP;
        /* the gradients are programs of their own, so that only the update is alike */
        Pair *g =
            fx_new(Pair, .p = leaf(fx_mul(2, model->p)), .q = leaf(fx_add(model->q, model->q)));
        const fx_counters before = fx_stats();
        assert_int_equal(fx_update(opt, model, g), FX_OK);
        const fx_counters after = fx_stats();
        adam_by_hand(p, pm, pv, P, k);
        adam_by_hand(q, qm, qv, Q, k);
        if (k > 2) { /* states are there, and theirs alone */
            assert_int_equal(after.steps_run - before.steps_run, 1);
            assert_int_equal(after.donations - before.donations, 6);
            assert_ptr_equal(model->p->node->data->buffer->ptr, at);
        }
        at = model->p->node->data->buffer->ptr;
    }
    check(model->p, p, P);
    check(model->q, q, Q);
}

/* p ← p − η·q and q ← q − η·p, each with the other's old value, over and over. */
static void parameters_that_read_each_other(void **state)
{
    (void)state;
    FX_SCOPE;
    static float p[P], q[P];
    for (int i = 0; i < P; i++) {
        p[i] = (float)sin(i);
        q[i] = (float)cos(i);
    }
    Pair *model = fx_new(Pair, .p = fx_mul(1, FX_FROM_C(p)), .q = fx_mul(1, FX_FROM_C(q)));
    assert_int_equal(fx_eval(model), FX_OK);
    void *opt = fx_setup(fx_descent(.eta = 0.5), model);
    for (int k = 0; k < STEPS; k++) {
        FX_STEP;
        Pair *g = fx_new(Pair, .p = fx_mul(1, model->q), .q = fx_mul(1, model->p));
        assert_int_equal(fx_update(opt, model, g), FX_OK);
        for (int i = 0; i < P; i++) {
            const float old = p[i];
            p[i] -= 0.5F * q[i];
            q[i] -= 0.5F * old;
        }
    }
    check(model->p, p, P);
    check(model->q, q, P);
}

/* An update of w overwrites what a step of a group reads. So this group, also after another step
 * has joined it, is not merged with a later step, which needs the new value of w. */
static void a_group_stays_before_an_update(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = leaf(fx_rand(4, 4)), *apart = leaf(fx_rand(2, 2)), *next = fx_mul(w, 2);
    fx_array *p = leaf(fx_rand(4, 1)), *q = leaf(fx_rand(2, 1)), *handles[] = {p, q, w};
    float old[16], first[4];
    assert_int_equal(fx_read_into(w, old, sizeof old), FX_OK);
    fx_array *values[] = {fx_slice(fx_exp(fx_slice(w, 1, 0, 2)), 1, 0, 1),
                          fx_slice(fx_exp(apart), 1, 0, 1), next};
    fx_want(fx_exp(fx_cumsum(next, 0)));
    const uint64_t donated = fx_stats().donations;
    assert_int_equal(fxi_commit(3, handles, values, NULL, false), FX_OK);
    assert_int_equal(fx_stats().donations - donated, 1);
    for (int i = 0; i < 4; i++)
        first[i] = expf(old[i]);
    check(p, first, 4);
}

/* A few elements in all: a kernel may compute all segments as one. Each segment reads another value
 * for all its elements. */
static void each_segment_has_its_own_value(void **state)
{
    (void)state;
    FX_SCOPE;
    const float p[] = {1, 2, 3}, q[] = {4, 5, 6, 7, 8}, values[] = {10, 20, 30};
    fx_array *a = leaf(fx_mul(1, FX_FROM_C(p))), *b = leaf(fx_mul(1, FX_FROM_C(q))),
             *all = leaf(fx_mul(1, FX_FROM_C(values)));
    fx_array *x = fx_mul(a, fx_slice(all, 0, 1, 2)), *y = fx_mul(b, fx_slice(all, 0, 2, 3));
    expect(fx_tuple(x, y), "  1  foreach of 2: mul(x0, x1′; x2, x1′) → Float32 3, 5\n");
    assert_int_equal(fx_eval(fx_tuple(x, y)), FX_OK);
    check(x, (const float[]){20, 40, 60}, 3);
    check(y, (const float[]){120, 150, 180, 210, 240}, 5);
}

int main(void)
{
    unsetenv("FX_EAGER");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_program_over_several_tensors),
        cmocka_unit_test(types_programs_and_layouts_differ),
        cmocka_unit_test(what_is_read_stays_where_it_is),
        cmocka_unit_test(single_values_fit_either_way),
        cmocka_unit_test(each_segment_has_its_own_value),
        cmocka_unit_test(an_update_is_one_step_in_place),
        cmocka_unit_test(parameters_that_read_each_other),
        cmocka_unit_test(a_group_stays_before_an_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
