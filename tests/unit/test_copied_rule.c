/* test_copied_rule.c: src/optim/copied_rule.c. Whatever the rule and the parameters, an update of a
 * model has the bits of separate updates of its parameters, and the graph that the formulas make
 * without copies. Also which applications are copied.
 */
#include <cflux.h>

#include "semantics_check.h"
#include "update_items.h"

#include "same_bits.h"

enum { RULES = 24, MOST = 6 };

static fx_rule *rule_of(int i)
{
    switch (i) {
    case 0:
        return fx_descent(0.1);
    case 1:
        return fx_momentum();
    case 2:
        return fx_nesterov();
    case 3:
        return fx_rprop();
    case 4:
        return fx_rmsprop();
    case 5:
        return fx_rmsprop(.centred = true);
    case 6:
        return fx_adam();
    case 7:
        return fx_adamw(.lambda = 0.1);
    case 8:
        return fx_adamw(.lambda = 0.1, .couple = false);
    case 9:
        return fx_adamax();
    case 10:
        return fx_nadam();
    case 11:
        return fx_radam();
    case 12:
        return fx_amsgrad();
    case 13:
        return fx_oadam();
    case 14:
        return fx_adabelief();
    case 15:
        return fx_adagrad();
    case 16:
        return fx_adadelta();
    case 17:
        return fx_lion();
    case 18:
        return fx_optimiser_chain(fx_weight_decay(0.1), fx_clip_grad(0.5), fx_adam());
    case 19:
        return fx_optimiser_chain(fx_accum_grad(2), fx_sign_decay(0.1), fx_momentum());
    case 20:
        return fx_mixed_precision(fx_adam());
    case 21:
        return fx_optimiser_chain(fx_clip_norm(0.5), fx_adam());
    case 22:
        return fx_optimiser_chain(fx_clip_norm(0.5, .throws = false), fx_descent(0.1));
    default:
        return fx_mixed_precision(fx_adam(), .growth = 2, .scale = 8);
    }
}

/* Three arrays of different sizes. special: also one without axes, an empty one, and one of another
 * type. Returns their number. */
static int parameters(fx_dtype type, bool special, fx_array **out)
{
    static const float data[] = {0.5f, -1, 0.25f, 2, -0.75f, 0.1f, 1, -3, 0.3f, 0.9f, -0.2f, 0.6f};
    const fx_dtype other = type == FX_DTYPE_F64 ? FX_DTYPE_F32 : FX_DTYPE_F64;
    int n = 0;
    out[n++] = fx_cast(fx_from(FX_DTYPE_F32, data, 3, 2), type);
    out[n++] = fx_cast(fx_from(FX_DTYPE_F32, data + 4, 5), type);
    out[n++] = fx_cast(fx_from(FX_DTYPE_F32, data, 2, 3, 2), type);
    if (special) {
        out[n++] = fx_cast(fxi_from(FX_DTYPE_F32, data + 3, 0, NULL), type);
        out[n++] = fx_cast(fx_from(FX_DTYPE_F32, data, 3, 0), type);
        out[n++] = fx_cast(fx_from(FX_DTYPE_F32, data + 2, 4), other);
    }
    for (int i = 0; i < n; i++)
        out[i] = fx_mul(out[i], 1);
    fx_eval(fxi_tuple(n, (void **)out));
    return n;
}

static fx_array *slope_of(fx_array *x, int step)
{
    fx_array *g = fx_cast(fx_cos(fx_add(fx_mul(x, 3), step)), fx_eltype(x));
    fx_eval(g);
    return g;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void check_alone(fx_rule *rule, fx_dtype type, bool special)
{
    enum { STEPS = 5 };
    FX_SCOPE;
    fx_array *together[MOST], *alone[MOST], *g[MOST];
    void *own[MOST];
    const int n = parameters(type, special, together);
    parameters(type, special, alone);
    void *model = fxi_tuple(n, (void **)together), *state = fx_setup(rule, model);
    for (int i = 0; i < n; i++)
        own[i] = fx_setup(rule, alone[i]);
    for (int k = 0; k < STEPS; k++) {
        for (int i = 0; i < n; i++) {
            g[i] = slope_of(alone[i], k);
            assert_int_equal(fx_update(own[i], alone[i], g[i]), FX_OK);
        }
        assert_int_equal(fx_update(state, model, fxi_tuple(n, (void **)g)), FX_OK);
        for (int i = 0; i < n; i++)
            same_bits(together[i], alone[i]);
    }
}

static void an_update_has_the_bits_of_separate_ones(void **state)
{
    (void)state;
    static const fx_dtype types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16};
    for (int i = 0; i < RULES; i++)
        for (int t = 0; t < 3; t++) {
            FX_SCOPE;
            check_alone(rule_of(i), types[t], false);
            check_alone(rule_of(i), types[t], true);
        }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- applications ---------------------------------------------------------------------------- */

typedef struct outcome {
    int copied;     /* applications; −1: an allocation failed */
    uint64_t nodes; /* of all applications */
    uint64_t plans; /* built to compute the new values */
} outcome;

static outcome apply(bool may_copy, bool evaluate, fx_rule *rule, int n, fx_array **x, fx_array **g)
{
    FX_SCOPE;
    void *model = fxi_tuple(n, (void **)x), *state = fx_setup(rule, model), *values[MOST * 4];
    int nvalues = 0;
    outcome r = {.copied = 0};
    fxi_items s = {0};
    fxi_literals literals = {0};
    fxi_checks norms = {0};
    fxi_copied_rule copied;
    copied.from = NULL;
    fxi_items_gather(&s, state, model, fxi_tuple(n, (void **)g));
    const fx_counters before = fx_stats();
    for (int64_t i = 0; i < s.n && s.status == FX_OK; i++) {
        if (!may_copy)
            copied.from = NULL;
        s.status = fxi_item_apply(&s.all[i], &literals, &norms, &copied);
        r.copied += s.status == FX_OK && s.all[i].nodes[0];
    }
    r.nodes = fx_stats().nodes - before.nodes;
    for (int64_t i = 0; i < s.n && evaluate; i++)
        for (int64_t k = 0; k <= s.all[i].leaf->states.n; k++)
            if (fxi_item_value(&s.all[i], k))
                values[nvalues++] = s.all[i].values[k];
    if (evaluate) {
        assert_int_equal(s.status, FX_OK);
        assert_int_equal(fx_eval(fxi_tuple(nvalues, values)), FX_OK);
        r.plans = fx_stats().plans_built - before.plans_built;
    }
    r.copied = s.status == FX_OK ? r.copied : -1;
    fxi_free(norms.all);
    fxi_items_done(&s);
    return r;
}

static void the_graph_is_that_of_the_formulas(void **state)
{
    (void)state;
    for (int i = 0; i < RULES; i++) {
        FX_SCOPE;
        fx_array *x[MOST], *g[MOST];
        const int n = parameters(FX_DTYPE_F32, true, x);
        for (int k = 0; k < n; k++)
            g[k] = slope_of(x[k], 1);
        const outcome called = apply(false, true, rule_of(i), n, x, g);
        const outcome copied = apply(true, true, rule_of(i), n, x, g);
        assert_int_equal(called.copied, 0);
        assert_int_equal(copied.nodes, called.nodes);
        assert_int_equal(copied.plans, 0);
    }
}

static int copies(fx_rule *rule, int n, fx_array **x, fx_array **g)
{
    return apply(true, false, rule, n, x, g).copied;
}

static int copies_of(fx_rule *rule, int n, fx_array **x)
{
    fx_array *g[MOST];
    for (int i = 0; i < n; i++)
        g[i] = slope_of(x[i], 1);
    return copies(rule, n, x, g);
}

static void elementwise_rules_are_copied(void **state)
{
    (void)state;
    for (int i = 0; i < RULES; i++) {
        FX_SCOPE;
        fx_array *x[MOST];
        const int n = parameters(FX_DTYPE_F32, false, x);
        /* Rule 19 only adds to a sum in its first update, so no parameter changes. The last rules
         * compute norms. */
        assert_int_equal(copies_of(rule_of(i), n, x), i == 19 || i > 20 ? 0 : n - 1);
    }
}

static void special_parameters_are_not_copied(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x[MOST], *g[MOST];
    parameters(FX_DTYPE_F32, true, x);
    /* After two matrices: a number, an empty array, and another type. */
    assert_int_equal(copies_of(fx_adam(), 6, x), 2);
    assert_int_equal(copies_of(fx_adam(), 3, (fx_array *[]){x[3], x[0], x[1]}), 0);
    assert_int_equal(copies_of(fx_adam(), 3, (fx_array *[]){x[4], x[0], x[1]}), 0);
    assert_int_equal(copies_of(fx_adam(), 3, (fx_array *[]){x[5], x[0], x[1]}), 1);
    /* A parameter that is its own gradient, first and later. */
    for (int i = 0; i < 3; i++)
        g[i] = slope_of(x[i], 1);
    g[0] = x[0];
    assert_int_equal(copies(fx_adam(), 3, x, g), 0);
    g[0] = slope_of(x[0], 1);
    g[1] = x[1];
    assert_int_equal(copies(fx_adam(), 3, x, g), 2);
    /* The gradient of a parameter that the loss does not use is on no device. */
    g[1] = fx_full(0, 5);
    assert_int_equal(copies(fx_adam(), 3, x, g), 1);
    /* Parameters of literals are on no device either, like their gradients. */
    fx_array *a = fx_mul(fx_ones(3), 2), *b = fx_mul(fx_ones(2, 2), 3);
    fx_eval(fx_tuple(a, b));
    assert_int_equal(copies_of(fx_adam(), 3, (fx_array *[]){a, b, x[0]}), 2);
}

static void long_rules_are_not_copied(void **state)
{
    (void)state;
    FX_SCOPE;
    void *parts[8];
    fx_array *x[MOST];
    const int n = parameters(FX_DTYPE_F32, false, x);
    /* Each part has three literals and five other nodes. */
    for (int i = 0; i < 8; i++)
        parts[i] = fx_sign_decay(0.5);
    assert_int_equal(copies_of(fxi_optimiser_chain(4, parts), n, x), n - 1);
    assert_int_equal(copies_of(fxi_optimiser_chain(8, parts), n, x), 0);
}

static void failed_copies_leave_nothing(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x[MOST], *g[MOST];
    const int n = parameters(FX_DTYPE_F32, false, x);
    for (int i = 0; i < n; i++)
        g[i] = slope_of(x[i], 1);
    fx_rule *rule = fx_adam();
    const int64_t live = fxi_live_allocations();
    for (int64_t k = 0, made = -1; made < 0; k++) {
        fxi_fault_set(k);
        made = copies(rule, n, x, g);
        fxi_fault_set(-1);
        assert_int_equal(fx_error_take().status, made < 0 ? FX_STATUS_MEMORY : FX_OK);
        assert_int_equal(fxi_live_allocations(), live);
        assert_true(made < 0 || (made == n - 1 && k > 40));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update_has_the_bits_of_separate_ones),
        cmocka_unit_test(the_graph_is_that_of_the_formulas),
        cmocka_unit_test(elementwise_rules_are_copied),
        cmocka_unit_test(special_parameters_are_not_copied),
        cmocka_unit_test(long_rules_are_not_copied),
        cmocka_unit_test(failed_copies_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
