/* test_semantics_handles.c: handles that updates rebind, reads that store, the values that an
 * update evaluates, layer state, work done once, guards, copies.
 *
 * Plain gradient descent on small models is computed by hand; the counters show which evaluations
 * ran.
 */
#include "evaluate.h"
#include "semantics_check.h"

/* y = w·x (1×2 · 2), x = (3, 5); loss y²/2: dw = y·x. */
static fx_dense_layer *small_model(void)
{
    fx_dense_layer *m = fx_dense(
        0, 0, .weight_array = fx_from(FX_DTYPE_F32, ((float[]){1, 2}), 1, 2), .bias = false);
    fx_eval(m);
    return m;
}

static fx_array *small_input(void)
{
    return fx_vector(3, 5);
}

static fx_array *half_square(fx_array *y)
{
    return fx_mul(0.5, fx_sum(fx_square(y)));
}

static fx_array *small_loss(fx_dense_layer *m)
{
    return half_square(fx_call(m, small_input()));
}

/* One update of small_model at rate eta. */
static void update_once(void *opt, fx_dense_layer *m)
{
    assert_int_equal(fx_update(opt, m, fx_gradient(small_loss(m), m)), FX_OK);
}

static void *fail_nothing(void *opt)
{
    assert_false(fx_is_error(opt));
    return opt;
}

/* ---- handles --------------------------------------------------------------------------------- */

static void handles_stay_and_see_the_new_value(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = small_model();
    fx_array *alias = m->weight;
    void *t = fx_tuple(m->weight, m), *opt = fail_nothing(fx_setup(fx_descent(.eta = 0.25), m));
    FX_STEP;
    update_once(opt, m); /* y = 13, dw = (39, 65) */
    assert_ptr_equal(m->weight, alias);
    assert_ptr_equal(fx_child(t, 0), alias);
    CHECK(alias, (1, 2), 0, 1 - 9.75, 2 - 16.25);
    CHECK(fx_call(m, fx_vector(1, 0)), (1), 0, -8.75);
}

static void operations_capture_the_value(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2), *y = fx_mul(x, 10), *z = fx_mul(x, 10);
    fx_eval(y);
    assert_int_equal(fx_copy_into(x, fx_vector(7, 8)), FX_OK);
    CHECK(y, (2), 0, 10, 20);
    CHECK(z, (2), 0, 10, 20); /* pending then */
    CHECK(fx_mul(x, 10), (2), 0, 70, 80);
}

static void updated_leaves_its_arguments_valid(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = small_model();
    void *opt = fx_setup(fx_momentum(.eta = 0.25, .rho = 0.5), m);
    fx_dense_layer *g = fx_gradient(small_loss(m), m);
    void *first = fx_updated(opt, m, g), *again = fx_updated(opt, m, g);
    fx_dense_layer *m1 = fx_child(first, 1), *m2 = fx_child(again, 1);
    assert_ptr_not_equal(m1, m);
    CHECK(m1->weight, (1, 2), 0, 1 - 9.75, 2 - 16.25);
    CHECK(m2->weight, (1, 2), 0, 1 - 9.75, 2 - 16.25);
    CHECK(m->weight, (1, 2), 0, 1, 2);
    CHECK(g->weight, (1, 2), 0, 39, 65);
    /* the new pair continues with its own state: v = 0.5·(39, 65)·0.25 + 0.25·g′ */
    void *second = fx_updated(fx_child(first, 0), m1, fx_gradient(small_loss(m1), m1));
    const double y1 = 3 * -8.75 + 5 * -14.25;
    CHECK(((fx_dense_layer *)fx_child(second, 1))->weight, (1, 2), 1e-6,
          -8.75 - (0.5 * 9.75 + 0.25 * y1 * 3), -14.25 - (0.5 * 16.25 + 0.25 * y1 * 5));
    CHECK(m1->weight, (1, 2), 0, -8.75, -14.25);
    update_once(opt, m); /* the old pair continues too, in place */
    CHECK(m->weight, (1, 2), 0, -8.75, -14.25);
}

/* Unchanged arrays are not shared either: thawing and updating the new pair does not change the old
 * one. */
static void updated_shares_nothing(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = fx_vector(1, 2), *b = fx_vector(3, 4);
    void *m = fx_named_tuple("w", w, "b", b), *opt = fx_setup(fx_descent(1), m);
    assert_int_equal(fx_freeze(fx_child_named(opt, "b")), FX_OK);
    void *g = fx_named_tuple("w", fx_ones(2), "b", fx_ones(2));
    void *both = fx_updated(opt, m, g), *opt1 = fx_child(both, 0), *m1 = fx_child(both, 1);
    assert_int_equal(fx_thaw(opt1), FX_OK);
    assert_int_equal(fx_update(opt1, m1, g), FX_OK);
    CHECK(fx_child_named(m1, "w"), (2), 0, -1, 0);
    CHECK(fx_child_named(m1, "b"), (2), 0, 2, 3);
    CHECK(w, (2), 0, 1, 2);
    CHECK(b, (2), 0, 3, 4);
    assert_int_equal(fx_update(opt, m, g), FX_OK); /* b is still frozen here */
    CHECK(w, (2), 0, 0, 1);
    CHECK(b, (2), 0, 3, 4);
}

/* ---- reads ----------------------------------------------------------------------------------- */

static void reads_store_and_keep_history(void **state)
{
    (void)state;
    FX_SCOPE;
    double d[3];
    float f[3];
    char text[200];
    FILE *out = tmpfile();
    for (int how = 0; how < 8; how++) {
        FX_STEP;
        fx_array *x = fx_vector(1, 2, 3), *y = fx_square(x), *s = fx_sum(y);
        const uint64_t before = fx_stats().evals;
        for (int twice = 0; twice < 2; twice++) {
            SAME(how == 0 ? fx_item(s) : 14, 14);
            assert_int_equal(how == 1 ? fx_item_get(s, d) : FX_OK, FX_OK);
            SAME(how == 2 ? fx_at(y, 1) : 4, 4);
            if (how == 3)
                fx_show_to(out, y);
            if (how == 4)
                fx_show_text(y, text, sizeof text);
            assert_int_equal(how == 5 ? fx_read_into(y, f, sizeof f) : FX_OK, FX_OK);
            assert_int_equal(how == 6 ? fx_read_as(y, FX_DTYPE_F64, d, 3) : FX_OK, FX_OK);
            if (how == 7)
                assert_non_null(fx_data(y));
            assert_int_equal(fx_stats().evals, before + 1); /* the second read found the value */
        }
        assert_int_equal((how < 2 ? s : y)->node->nin, 1);
        CHECK(gradient1(s, x), (3), 0, 2, 4, 6);
    }
    fclose(out);
}

/* ---- what an update evaluates ---------------------------------------------------------------- */

static void one_plan_loss_and_sinks(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = small_model(), *frozen = small_model();
    void *opt = fx_setup(fx_descent(.eta = 0.25), m);
    FX_STEP;
    fx_array *y = fx_call(m, small_input()), *loss = half_square(y), *wanted = fx_exp(fx_neg(y));
    fx_array *user_of_wanted = fx_add(wanted, fx_ones(1)), *accuracy = fx_sum(fx_gt(y, 0)),
             *slot = NULL;
    fx_array *norm = fx_norm(m->weight);
    fx_array *independent = fx_sum(small_input());
    fx_dense_layer *gf = fx_gradient(fx_sum(fx_square(frozen->weight)), frozen);
    fx_dense_layer *unapplied = fx_gradient(fx_sum(fx_square(fx_call(m, fx_ones(2)))), m);
    fx_want(wanted);
    fx_set(&slot, fx_mul(y, 2));
    const fx_counters before = fx_stats();
    assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
    assert_int_equal(fx_stats().evals, before.evals + 1);
    assert_true(fx_is_evaluated(loss));
    assert_true(fx_is_evaluated(wanted));
    assert_true(fx_is_evaluated(accuracy));
    assert_true(fx_is_evaluated(norm));
    assert_true(fx_is_evaluated(slot));
    assert_true(fx_is_evaluated(user_of_wanted));
    assert_true(fx_is_evaluated(unapplied->weight)); /* a gradient tree not yet applied */
    assert_false(fx_is_evaluated(independent));
    assert_false(fx_is_evaluated(gf->weight)); /* its model is not the one updated */
    SAME(fx_item(loss), 84.5);
    SAME(fx_item(accuracy), 1);
    NEAR(fx_item(norm), sqrt(5), 1e-6);
    CHECK(slot, (1), 0, 26);
    NEAR(fx_item(wanted), exp(-13), 1e-6);
    CHECK(unapplied->weight, (1, 2), 0, 6, 6); /* computed from the old weights: (1, 2)·1 = 3 */
    assert_int_equal(fx_stats().evals, before.evals + 1);
    /* the gradient tree can still be applied */
    assert_int_equal(fx_update(opt, m, unapplied), FX_OK);
    CHECK(m->weight, (1, 2), 0, -8.75 - 1.5, -14.25 - 1.5);
    CHECK(gf->weight, (1, 2), 0, 2, 4);
    SAME(fx_item(independent), 8);
    fx_set(&slot, NULL);
}

/* The loss is evaluated even when its own gradient, or something else, consumes it. */
static void the_loss_is_evaluated_when_consumed(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *total = NULL;
    for (int how = 0; how < 4; how++) {
        fx_dense_layer *m = small_model();
        void *opt = fx_setup(fx_descent(.eta = 0.25), m);
        FX_STEP;
        fx_array *y = fx_call(m, small_input()), *loss = half_square(y);
        if (how == 1) /* d√l = 0.5/√l: the gradient takes the loss itself */
            loss = fx_sqrt(loss);
        fx_dense_layer *g = fx_gradient(loss, m);
        if (how == 2)
            fx_set(&total, fx_add(loss, 1));
        if (how == 3)
            g = fx_fmap(fx_neg, g), loss = fx_mul(loss, 1),
            g = fx_gradient(fx_exp(fx_mul(loss, 1e-3)), m);
        assert_int_equal(fx_update(opt, m, g), FX_OK);
        if (how < 3)
            assert_true(fx_is_evaluated(loss));
        if (how < 3)
            NEAR(fx_item(loss), how == 1 ? sqrt(84.5) : 84.5, 1e-6);
    }
    SAME(fx_item(total), 85.5);
    fx_set(&total, NULL);
}

static void sinks_false_turns_the_rule_off(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = small_model();
    void *opt = fx_setup(fx_descent(.eta = 0.25), m);
    FX_STEP;
    fx_array *loss = small_loss(m), *norm = fx_norm(m->weight), *ahead = fx_sum(fx_abs(m->weight));
    fx_want(ahead);
    assert_int_equal(fx_update(opt, m, fx_gradient(loss, m), .sinks = false), FX_OK);
    assert_false(fx_is_evaluated(norm));
    assert_true(fx_is_evaluated(ahead));
    SAME(fx_item(ahead), 3);
    assert_true(isnan(fx_item(norm)));
    expect_error(FX_STATUS_STATE, "fx_update has replaced");
}

static void consumed_intermediates_are_errors_when_read(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = small_model();
    void *opt = fx_setup(fx_descent(.eta = 0.25), m);
    FX_STEP;
    fx_array *y = fx_call(m, small_input()), *loss = half_square(y);
    assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
    if (!fx_is_evaluated(y)) {
        assert_true(isnan(fx_item(y)));
        expect_error(FX_STATUS_STATE, "fx_want");
        fx_array *after = fx_add(y, 1); /* the error is passed on */
        assert_int_equal(fx_eval(after), FX_STATUS_STATE);
        expect_error(FX_STATUS_STATE, "fx_want");
    }
    SAME(fx_item(loss), 84.5);
    CHECK(fx_call(m, small_input()), (1), 0, 3 * -8.75 + 5 * -14.25); /* a new call works */
}

static void update_all_takes_several(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *a = small_model(), *b = small_model();
    void *oa = fx_setup(fx_descent(.eta = 0.25), a), *ob = fx_setup(fx_descent(.eta = 0.5), b);
    FX_STEP;
    fx_array *ya = fx_call(a, small_input()), *yb = fx_call(b, fx_vector(1, 1));
    fx_array *la = fx_mul(ya, yb), *lb = fx_sub(yb, ya); /* each reads both */
    const uint64_t evals = fx_stats().evals;
    assert_int_equal(
        fx_update_all(2, (void *[]){oa, ob}, (void *[]){a, b},
                      (void *[]){fx_gradient(fx_sum(la), a), fx_gradient(fx_sum(lb), b)}),
        FX_OK);
    assert_int_equal(fx_stats().evals, evals + 1);
    /* Both are computed from the old values. */
    CHECK(a->weight, (1, 2), 0, 1 - 0.25 * 3 * 3, 2 - 0.25 * 3 * 5);
    CHECK(b->weight, (1, 2), 0, 0.5, 1.5);
}

/* One of several is wrong: none is updated. */
static void update_all_is_all_or_nothing(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *a = small_model(), *b = small_model();
    void *oa = fx_setup(fx_descent(.eta = 0.25), a), *ob = fx_setup(fx_descent(.eta = 0.5), b);
    FX_STEP;
    fx_array *bad = fx_add(fx_call(b, small_input()), fx_ones(4, 5, 6));
    bad = fx_matmul(bad, bad);
    fx_error_take();
    fx_dense_layer *ga = fx_gradient(small_loss(a), a), *gb = fx_gradient(bad, b);
    fx_error_take();
    assert_int_not_equal(fx_update_all(2, (void *[]){oa, ob}, (void *[]){a, b}, (void *[]){ga, gb}),
                         FX_OK);
    fx_error_take();
    CHECK(a->weight, (1, 2), 0, 1, 2);
    CHECK(b->weight, (1, 2), 0, 1, 2);
    assert_int_equal(fx_update(oa, a, ga), FX_OK); /* the next update works */
    CHECK(a->weight, (1, 2), 0, -8.75, -14.25);
}

/* ---- layer state ----------------------------------------------------------------------------- */

/* Batch norm over one channel, fed (0, 4): mean 2, var 4, corrected 8; momentum 0.1. */
static fx_array *norm_input(void)
{
    return fx_from(FX_DTYPE_F32, ((float[]){0, 4}), 1, 2);
}

static void any_update_commits_staged_state(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_batchnorm_layer *bn = fx_batchnorm(1);
    fx_dense_layer *other = small_model();
    void *opt = fx_setup(fx_descent(.eta = 0.25), other);
    const fx_array *mean = bn->mean;
    {
        FX_STEP;
        fx_call(bn, norm_input());
        SAME(fx_item(bn->mean), 0); /* staged, not yet assigned */
        update_once(opt, other);    /* an update of an unrelated model */
        assert_true(fx_is_evaluated(bn->mean));
        NEAR(fx_item(bn->mean), 0.2, 1e-7);
        NEAR(fx_item(bn->var), 0.9 + 0.8, 1e-6);
    }
    NEAR(fx_item(bn->mean), 0.2, 1e-7); /* once */
    assert_ptr_equal(bn->mean, mean);
}

/* Pending results that read the old statistics are computed too, because these are replaced in
 * place. */
static void readers_of_the_old_state_come_along(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_batchnorm_layer *bn = fx_batchnorm(1);
    fx_dense_layer *other = small_model();
    void *opt = fx_setup(fx_descent(.eta = 0.25), other);
    for (int k = 0; k < 3; k++) {
        FX_STEP;
        fx_array *old = fx_mul(bn->mean, 3);
        fx_call(bn, norm_input());
        update_once(opt, other);
        NEAR(fx_item(old), 3 * 2 * (1 - pow(0.9, k)), 1e-6);
    }
}

static void the_close_commits_staged_state(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_batchnorm_layer *bn = fx_batchnorm(1);
    for (int k = 1; k <= 3; k++) {
        {
            FX_STEP;
            {
                FX_SCOPE;
                fx_call(bn, norm_input());
            }
            NEAR(fx_item(bn->mean), 2 * (1 - pow(0.9, k - 1)), 1e-6);
        }
        NEAR(fx_item(bn->mean), 2 * (1 - pow(0.9, k)), 1e-6);
        assert_int_equal(bn->mean->node->nin, 0);
    }
    {
        FX_TEST;
        fx_call(bn, norm_input());
    }
    NEAR(fx_item(bn->mean), 2 * (1 - pow(0.9, 3)), 1e-6);
}

static void an_error_drops_staged_state(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_batchnorm_layer *bn = fx_batchnorm(1);
    fx_dense_layer *other = small_model();
    void *opt = fx_setup(fx_descent(.eta = 0.25), other);
    {
        FX_STEP;
        fx_call(bn, norm_input());
        fx_array *bad = fx_matmul(other->weight, fx_ones(7));
        assert_int_equal(fx_update(opt, other, fx_gradient(bad, other)), FX_STATUS_SHAPE);
        expect_error(FX_STATUS_SHAPE, "matmul");
    }
    SAME(fx_item(bn->mean), 0);
    SAME(fx_item(bn->var), 1);
    CHECK(other->weight, (1, 2), 0, 1, 2);
    {
        FX_STEP;
        fx_call(bn, norm_input());
        update_once(opt, other);
    }
    NEAR(fx_item(bn->mean), 0.2, 1e-7);
}

static void stage_and_staged(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *count = fx_zeros();
    assert_ptr_equal(fx_staged(count), count);
    {
        FX_STEP;
        fx_stage(count, fx_add(fx_staged(count), 1));
        assert_ptr_not_equal(fx_staged(count), count);
        fx_stage(count, fx_add(fx_staged(count), 1)); /* on top of each other */
        SAME(fx_item(count), 0);
    }
    SAME(fx_item(count), 2);
    {
        FX_SCOPE; /* outside a step: with the scope's close */
        fx_stage(count, fx_add(fx_staged(count), 10));
        SAME(fx_item(count), 2);
    }
    SAME(fx_item(count), 12);
    {
        FX_STEP;
        {
            FX_SCOPE;
            fx_stage(count, fx_add(fx_staged(count), 3));
        }
        assert_int_equal(fx_stage(count, fx_staged(count)), FX_OK); /* the same value again */
    }
    assert_int_equal(fx_error_status(), FX_OK);
    SAME(fx_item(count), 15);
    assert_ptr_equal(fx_staged(count), count);
    void *pair = fx_tuple(count, count);
    assert_true(fx_is_error(fx_staged(NULL)));
    expect_error(FX_STATUS_ARGUMENT, "staged: an argument is NULL");
    assert_true(fx_is_error(fx_staged(pair)));
    expect_error(FX_STATUS_ARGUMENT, "staged: takes arrays, got Tuple");
    assert_int_equal(fx_stage(NULL, count), FX_STATUS_ARGUMENT);
    expect_error(FX_STATUS_ARGUMENT, "stage: an argument is NULL");
    assert_int_equal(fx_stage(count, pair), FX_STATUS_ARGUMENT);
    expect_error(FX_STATUS_ARGUMENT, "stage: takes arrays, got Tuple");
    SAME(fx_item(count), 15);
    fx_array *bad = fx_error_array(FX_STATUS_SHAPE); /* of an error that is already recorded */
    assert_ptr_equal(fx_staged(bad), bad);
    assert_int_equal(fx_stage(count, bad), FX_STATUS_SHAPE);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Layers that rotate a vector by one position, so that each is a step of its own. */
enum { LAYERS = 20 };

static fx_array *turn(void)
{
    static const float P[3][3] = {{0, 1, 0}, {0, 0, 1}, {1, 0, 0}};
    return FX_FROM_C(P);
}

static fx_array *layers(fx_array *x)
{
    for (int i = 0; i < LAYERS; i++)
        x = fx_matmul(turn(), x);
    return x;
}

static double layers_by_hand(int power)
{
    return (double)(float)(pow(0.1f, power) + pow(0.2f, power) + pow(0.3f, power));
}

/* ---- work is done once ----------------------------------------------------------------------- */

static void two_results_of_one_network(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *h = layers(fx_vector(0.1f, 0.2f, 0.3f));
    fx_array *a = fx_sum(fx_matmul(turn(), h)), *b = fx_sum(fx_matmul(turn(), fx_square(h)));
    const uint64_t start = fx_stats().steps_run;
    NEAR(fx_item(a), layers_by_hand(1), 1e-6);
    const uint64_t first = fx_stats().steps_run - start;
    assert_true(first >= LAYERS);
    assert_true(fx_is_evaluated(h)); /* b still needs it */
    NEAR(fx_item(b), layers_by_hand(2), 1e-6);
    assert_true(fx_stats().steps_run - start - first < LAYERS);
}

/* Values that nothing needs any more are not stored. */
static void unused_values_are_not_stored(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *h = fx_tanh(fx_ones(8)), *a = fx_exp(h);
    {
        FX_SCOPE;
        fx_sin(h); /* released before anything needs it */
    }
    fx_eval(a);
    assert_false(fx_is_evaluated(h));
}

/* The documented price: reading the loss before building its gradient runs the forward pass again.
 */
static void reading_first_costs_a_second_pass(void **state)
{
    (void)state;
    FX_SCOPE;
    uint64_t steps[2];
    for (int first = 0; first < 2; first++) {
        fx_array *x = fx_vector(0.1f, 0.2f, 0.3f), *loss = fx_sum(fx_square(layers(x)));
        fx_eval(x);
        const uint64_t start = fx_stats().steps_run;
        if (first)
            fx_item(loss);
        fx_array *g = gradient1(loss, x);
        fx_eval(fx_tuple(loss, g));
        steps[first] = fx_stats().steps_run - start;
        CHECK(g, (3), 1e-6, 0.2, 0.4, 0.6); /* a rotation does not change the length */
    }
    assert_true(steps[1] >= steps[0] + LAYERS);
}

/* ---- guards, memory, failures after launch --------------------------------------------------- */

typedef struct Net {
    fx_object base;
    fx_dense_layer *first, *second;
    fx_batchnorm_layer *norm;
} Net;
FX_FUNCTOR(Net, first, second, norm);

static Net *net(void)
{
    fx_seed(3);
    Net *m = fx_new(Net, .first = fx_dense(3, 4), .second = fx_dense(4, 2, FX_TANH),
                    .norm = fx_batchnorm(4));
    fx_eval(m);
    return m;
}

static fx_array *net_loss(Net *m, fx_array *x)
{
    fx_array *h = fx_call(m->second, fx_call(m->norm, fx_call(m->first, x)));
    return fx_mean(fx_square(h));
}

static fx_array *net_input(int k)
{
    return fx_sin(fx_add(fx_reshape(fx_range(0, 1, 15), 3, 5), k));
}

typedef struct bits {
    float a[12], b[4], c[8], d[2], mean[4], var[4], gamma[4], beta[4];
} bits;

static void read_bits(const Net *m, bits *out)
{
    memset(out, 0, sizeof *out);
    assert_int_equal(fx_read_into(m->first->weight, out->a, sizeof out->a), FX_OK);
    assert_int_equal(fx_read_into(m->first->bias, out->b, sizeof out->b), FX_OK);
    assert_int_equal(fx_read_into(m->second->weight, out->c, sizeof out->c), FX_OK);
    assert_int_equal(fx_read_into(m->second->bias, out->d, sizeof out->d), FX_OK);
    assert_int_equal(fx_read_into(m->norm->mean, out->mean, sizeof out->mean), FX_OK);
    assert_int_equal(fx_read_into(m->norm->var, out->var, sizeof out->var), FX_OK);
    assert_int_equal(fx_read_into(m->norm->gamma, out->gamma, sizeof out->gamma), FX_OK);
    assert_int_equal(fx_read_into(m->norm->beta, out->beta, sizeof out->beta), FX_OK);
}

static void a_guard_keeps_everything(void **state)
{
    (void)state;
    FX_SCOPE;
    Net *m = net(), *plain = net();
    void *opt = fx_setup(fx_adam(.eta = 0.1), m), *plain_opt = fx_setup(fx_adam(.eta = 0.1), plain);
    for (int k = 0; k < 12; k++) {
        FX_SCOPE;
        const double poison = k % 4 == 1 ? NAN : k % 4 == 2 ? INFINITY : k % 4 == 3 ? -INFINITY : 0;
        bits before, after;
        read_bits(m, &before);
        {
            FX_STEP;
            fx_array *loss = net_loss(m, net_input(k));
            if (k % 4)
                loss = fx_add(loss, poison);
            Net *g = fx_gradient(loss, m);
            if (k % 4) /* poisoned as a real one would be */
                g = fx_fmap(fx_neg, g);
            const uint64_t evals = fx_stats().evals;
            assert_int_equal(fx_update(opt, m, g, .guard = loss),
                             k % 4 ? FX_STATUS_NONFINITE : FX_OK);
            assert_int_equal(fx_stats().evals, evals + 1); /* in the same plan */
            assert_int_equal(fx_error_status(), FX_OK);
            SAME(isfinite(fx_item(loss)), k % 4 == 0);
        }
        read_bits(m, &after);
        if (k % 4) {
            assert_memory_equal(&before, &after, sizeof before);
            continue;
        }
        assert_memory_not_equal(&before, &after, sizeof before);
        FX_STEP; /* the optimiser's state is as if the poisoned steps had not been */
        fx_array *loss = net_loss(plain, net_input(k));
        assert_int_equal(fx_update(plain_opt, plain, fx_gradient(loss, plain)), FX_OK);
        read_bits(plain, &before);
        assert_memory_equal(&before, &after, sizeof before);
    }
}

/* One update of m in which the n-th allocation fails; *past is set if the update makes fewer
 * allocations. */
static fx_status update_with_fault(void *opt, Net *m, fx_array *x, int64_t n, bool *past)
{
    FX_STEP;
    fx_array *loss = net_loss(m, x);
    Net *g = fx_gradient(loss, m);
    assert_int_equal(fx_error_status(), FX_OK);
    fxi_fault_set(n);
    const fx_status status = fx_update(opt, m, g);
    *past = fxi_fault_seen() <= n;
    fxi_fault_set(-1);
    return status;
}

/* Memory is reserved before the first step runs: whichever allocation of an update fails,
 * everything is as before, and the next update is the one that would have been. */
static void no_memory_changes_nothing(void **state)
{
    (void)state;
    FX_SCOPE;
    bits before, after, want;
    int failures = 0;
    bool past = false;
    for (int64_t n = -1; !past || n == 0; n++) {
        FX_SCOPE;
        Net *m = net();
        void *opt = fx_setup(fx_adam(.eta = 0.1), m);
        fx_array *x = net_input(0);
        fx_eval(fx_tuple(x, opt));
        read_bits(m, &before);
        fxi_reclaim_all();
        const fx_status status = update_with_fault(opt, m, x, n, &past);
        read_bits(m, n < 0 ? &want : &after);
        if (n >= 0 && status != FX_OK) {
            failures++;
            assert_int_equal(status, FX_STATUS_MEMORY);
            expect_error(FX_STATUS_MEMORY, "memory");
            assert_memory_equal(&before, &after, sizeof after);
            assert_int_equal(update_with_fault(opt, m, x, -1, &past), FX_OK);
            past = false;
            read_bits(m, &after);
        }
        if (n >= 0)
            assert_memory_equal(&want, &after, sizeof after);
    }
    assert_true(failures > 20);
}

/* An index out of range is found when the plan runs. Whatever had run until then: the update is
 * refused and model and state are as they were. */
static void failures_after_launch_leave_no_half_update(void **state)
{
    (void)state;
    FX_SCOPE;
    for (int where = 0; where < 3; where++) {
        Net *m = net();
        void *opt = fx_setup(fx_adam(.eta = 0.1), m);
        bits before, after;
        for (int k = 0; k < 2; k++) { /* donation needs a state that was computed */
            FX_STEP;
            fx_array *loss = net_loss(m, net_input(k));
            assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
        }
        read_bits(m, &before);
        {
            FX_STEP;
            fx_array *idx = fx_range_dtype(FX_DTYPE_I64, 3, 1, 3), *rows;
            fx_array *loss = net_loss(m, net_input(3));
            if (where == 0) /* a result computed along */
                fx_want(fx_gather(net_input(4), idx, 0));
            if (where == 1) { /* part of the loss */
                rows = fx_gather(m->first->weight, idx, 0);
                loss = fx_add(loss, fx_sum(rows));
            }
            if (where == 2) { /* state of the step, made from the old state */
                fx_array *slot = m->norm->beta;
                fx_stage(m->norm->mean, fx_mul(slot, fx_sum(fx_gather(slot, idx, 0))));
            }
            assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_STATUS_ARGUMENT);
            expect_error(FX_STATUS_ARGUMENT, "out of range");
        }
        read_bits(m, &after);
        assert_memory_equal(&before, &after, sizeof before);
        Net *plain = net();
        void *plain_opt = fx_setup(fx_adam(.eta = 0.1), plain);
        for (int k = 0; k < 3; k++) {
            for (int which = 0; which < 2; which++) {
                if (which == 0 && k < 2)
                    continue;
                FX_STEP;
                Net *now = which ? plain : m;
                fx_array *loss = net_loss(now, net_input(k));
                assert_int_equal(fx_update(which ? plain_opt : opt, now, fx_gradient(loss, now)),
                                 FX_OK);
            }
        }
        read_bits(plain, &before);
        read_bits(m, &after);
        assert_memory_equal(&before, &after, sizeof before);
    }
}

static fx_status refuse(const fx_custom_op *op, int n, const fx_custom_operand *in,
                        const fx_custom_operand *out)
{
    (void)op, (void)n, (void)in, (void)out;
    return FX_STATUS_ARGUMENT;
}

/* If a kernel fails after a value has been written in place, that value is an error afterwards, or
 * unchanged. */
static void what_was_overwritten_is_an_error(void **state)
{
    (void)state;
    static const fx_custom_op op = {sizeof op, "refuse", refuse, NULL, NULL};
    FX_SCOPE;
    fx_array *a = fx_vector(1, 2), *b = fx_vector(3, 4), *c = fx_vector(5, 6);
    fx_array *next_a = fx_add(a, 1), *next_b = fx_custom(&op, 1, &next_a, FX_DTYPE_F32, FX_DIMS(2));
    fx_array *handles[] = {a, b, c}, *values[] = {next_a, next_b, fx_add(c, 1)};
    assert_int_equal(fxi_commit(3, handles, values, NULL, false), FX_STATUS_ARGUMENT);
    expect_error(FX_STATUS_ARGUMENT, "custom");
    for (int i = 0; i < 3; i++) {
        double got[2];
        const double want = 1 + 2 * i;
        if (fx_read_as(handles[i], FX_DTYPE_F64, got, 2) == FX_OK) {
            SAME(got[0], want);
            SAME(got[1], want + 1);
        } else {
            expect_error(FX_STATUS_STATE, "");
        }
    }
    CHECK(b, (2), 0, 3, 4);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void copy_into_refills(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = small_model();
    const fx_array *handle = m->weight;
    fx_array *src = fx_from(FX_DTYPE_F64, ((double[]){7, 8}), 1, 2);
    assert_int_equal(fx_copy_into(m->weight, fx_mul(src, 2)), FX_OK);
    assert_ptr_equal(m->weight, handle);
    assert_int_equal(fx_eltype(m->weight), FX_DTYPE_F32); /* in dst's type */
    CHECK(m->weight, (1, 2), 0, 14, 16);
    CHECK(src, (1, 2), 0, 7, 8);
    assert_int_equal(fx_copy_into(m->weight, fx_ones(2)), FX_STATUS_SHAPE);
    expect_error(FX_STATUS_SHAPE, "copy_into: sizes differ: 2 into 1×2");
    CHECK(m->weight, (1, 2), 0, 14, 16);
}

static void moving_evaluated_models_is_immediate(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_device *ref = fx_device_get("ref", 0);
    fx_dense_layer *m = small_model();
    assert_ptr_equal(fx_to(fx_cpu_device(), m), m); /* already on the device */
    fx_dense_layer *moved = fx_to(ref, m);
    assert_ptr_not_equal(moved, m);
    assert_true(fx_is_evaluated(moved->weight));
    assert_ptr_equal(fx_array_device(moved->weight), ref);
    assert_ptr_equal(fx_array_device(m->weight), fx_cpu_device());
    CHECK(moved->weight, (1, 2), 0, 1, 2);
    fx_array *y = fx_call(moved, fx_to(ref, small_input()));
    assert_ptr_equal(fx_array_device(y), ref);
    CHECK(y, (1), 0, 13);
    check_error(fx_call(moved, small_input()), FX_STATUS_DEVICE, "matmul: ");
    CHECK(((fx_dense_layer *)fx_cpu(moved))->weight, (1, 2), 0, 1, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(handles_stay_and_see_the_new_value),
        TEST(operations_capture_the_value),
        TEST(updated_leaves_its_arguments_valid),
        TEST(updated_shares_nothing),
        TEST(reads_store_and_keep_history),
        TEST(one_plan_loss_and_sinks),
        TEST(the_loss_is_evaluated_when_consumed),
        TEST(sinks_false_turns_the_rule_off),
        TEST(consumed_intermediates_are_errors_when_read),
        TEST(update_all_takes_several),
        TEST(update_all_is_all_or_nothing),
        TEST(any_update_commits_staged_state),
        TEST(readers_of_the_old_state_come_along),
        TEST(the_close_commits_staged_state),
        TEST(an_error_drops_staged_state),
        TEST(stage_and_staged),
        TEST(two_results_of_one_network),
        TEST(unused_values_are_not_stored),
        TEST(reading_first_costs_a_second_pass),
        TEST(a_guard_keeps_everything),
        TEST(no_memory_changes_nothing),
        TEST(failures_after_launch_leave_no_half_update),
        TEST(what_was_overwritten_is_an_error),
        TEST(copy_into_refills),
        TEST(moving_evaluated_models_is_immediate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
