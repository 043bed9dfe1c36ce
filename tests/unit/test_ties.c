/* Ties through views: a model that holds W and its transpose, reshape or slice moves, maps, trains,
 * loads and counts it once. ctest: threads */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "away.h"

typedef struct Tied {
    fx_object base;
    fx_array *back, *w; /* the view comes first */
} Tied;
FX_FUNCTOR(Tied, back, w);

static fx_device *d[3];

static int setup(void **state)
{
    (void)state;
    away_register("CUDA", 3);
    for (int i = 0; i < 3; i++)
        d[i] = fx_device_get("CUDA", i);
    return 0;
}

static bool same(fx_array *a, fx_array *b)
{
    return fx_item(fx_all(fx_eq(fx_cpu(a), fx_cpu(b)))) == 1;
}

/* Is `back` the transpose of `w`, and still tied to it? */
static void is_tied(const Tied *m)
{
    assert_true(same(m->back, fx_transpose(m->w)));
    assert_ptr_equal(fx_array_device(m->back), fx_array_device(m->w));
    assert_int_equal(fx_count(fx_trainables((void *)(uintptr_t)m)), 1);
    assert_int_equal(fx_parameter_count((void *)(uintptr_t)m), fx_length(m->w));
}

static const float weights[] = {0.5f, -1, 2, 0.25f, 3, -0.125f};

static Tied *tied(void)
{
    fx_array *w = fx_from(FX_DTYPE_F32, weights, 2, 3);
    return fx_new(Tied, .back = fx_transpose(w), .w = w);
}

/* An autoencoder with tied weights. */
static fx_array *loss_of(fx_array *w, fx_array *back, fx_array *x)
{
    return fx_sum(fx_square(fx_sub(fx_matmul(back, fx_tanh(fx_matmul(w, x))), x)));
}

static fx_array *input(fx_device *device)
{
    return fx_to(device, fx_reshape(fx_div(fx_range(1, 1, 12), 7), 3, 4));
}

/* ---- walks ----------------------------------------------------------------------------------- */

static fx_array *twice(fx_array *x)
{
    return fx_mul(x, 2);
}
static fx_array *column_sums(fx_array *x)
{
    return fx_sum(x, .dims = FX_AXES(0));
}

static void maps_keep_the_tie(void **state)
{
    (void)state;
    FX_SCOPE;
    Tied *m = tied();
    is_tied(m);
    Tied *t = fx_fmap(twice, m);
    assert_true(same(t->w, fx_mul(m->w, 2)));
    is_tied(t);
    is_tied(fx_fmap(twice, t));
    is_tied(fx_f64(m));
    is_tied(fx_bf16(m));
    is_tied(fx_snapshot(m));
    assert_true(fx_is_evaluated(fx_snapshot(m)->back)); /* for readers in other threads */
    assert_ptr_equal(fx_f32(m), m);
    Tied *other = fx_fmap(column_sums, m); /* the sizes change, so each array is mapped by itself */
    assert_int_equal(fx_length(other->w), 3);
    assert_int_equal(fx_length(other->back), 2);
    assert_int_equal(fx_length(fx_destructure(m)), 6);
    Tied *again = fx_restructure(m, fx_mul(fx_destructure(m), 3));
    assert_true(same(again->w, fx_mul(m->w, 3)));
    assert_true(same(again->back, fx_transpose(again->w)));
    assert_int_equal(fx_parameter_count(again), 6);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void views_of_every_kind(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = fx_randn(4, 6, 2);
    void *all =
        fx_tuple(fx_transpose(w), fx_reshape(w, 8, 6), fx_slice(w, 1, 2, 5), fx_permute(w, 2, 0, 1),
                 fx_flip(w, FX_AXES(0)), fx_slice(fx_transpose(fx_slice(w, 2, 1, 2)), 0, 1, 3), w);
    assert_int_equal(fx_parameter_count(all), 48);
    const fx_counters before = fx_stats();
    void *there = fx_to(d[1], all);
    assert_int_equal(fx_stats().transfers - before.transfers, 1);
    assert_int_equal(fx_stats().bytes_transferred - before.bytes_transferred, 48 * sizeof(float));
    for (int i = 0; i < 7; i++) {
        assert_ptr_equal(fx_array_device(fx_child(there, i)), d[1]);
        assert_true(same(fx_child(there, i), fx_child(all, i)));
    }
    assert_int_equal(fx_parameter_count(there), 48);
    assert_int_equal(fx_parameter_count(fx_tuple(fx_transpose(w))), 48); /* alone: one of its own */
    void *zeros = fx_tuple(fx_zeros(3), fx_zeros(3), fx_ones(1, 1), fx_ones(1, 1));
    assert_int_equal(fx_parameter_count(zeros), 8); /* literals tie nothing */
    fx_array *z = fx_zeros(2, 3);
    assert_int_equal(fx_parameter_count(fx_tuple(z, fx_transpose(z))), 6);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- moves ----------------------------------------------------------------------------------- */

static void moves_copy_once(void **state)
{
    (void)state;
    FX_SCOPE;
    Tied *m = tied();
    fx_eval(m);
    fx_counters before = fx_stats();
    Tied *there = fx_to(d[0], m);
    assert_int_equal(fx_stats().transfers - before.transfers, 1);
    is_tied(there);
    assert_ptr_equal(fx_to(d[0], there), there);
    before = fx_stats();
    Tied *next = fx_to(d[2], there);
    assert_int_equal(fx_stats().transfers - before.transfers, 1);
    is_tied(next);
    before = fx_stats();
    Tied *here = fx_cpu(next);
    assert_int_equal(fx_stats().transfers - before.transfers, 1);
    is_tied(here);
    assert_true(same(here->w, m->w));
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- training -------------------------------------------------------------------------------- */

/* The tied pair against one array, from which the transpose is made in the loss. */
static void trains_as_one(fx_device *device, bool steps)
{
    fx_array *x = input(device);
    Tied *m = fx_to(device, tied());
    void *one = fx_tuple(fx_to(device, tied())->w);
    void *opt = fx_setup(fx_adam(.eta = 0.1), m), *opt_one = fx_setup(fx_adam(.eta = 0.1), one);
    double loss = INFINITY;
    for (int i = 0; i < 5; i++) {
        const int scope =
            fxi_scope_open(steps ? FXI_SCOPE_STEP : FXI_SCOPE_INHERIT, __FILE__, __LINE__);
        fx_array *w = fx_child(one, 0), *l = loss_of(m->w, m->back, x),
                 *expected = loss_of(w, fx_transpose(w), x);
        Tied *g = fx_gradient(l, m);
        void *g_one = fx_gradient(expected, one);
        assert_true(same(g->back, fx_transpose(g->w)));
        const double now = fx_item(l);
        assert_true(now < loss && now == fx_item(expected));
        loss = now;
        assert_int_equal(fx_update(opt, m, g), FX_OK);
        assert_int_equal(fx_update(opt_one, one, g_one), FX_OK);
        assert_true(fx_is_evaluated(m->back));
        fxi_scope_close(scope);
        is_tied(m);
        assert_true(same(m->w, fx_child(one, 0)));
    }
    Tied *moved = fx_to(d[1], m); /* the copies are tied, too */
    is_tied(moved);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void training_keeps_the_tie(void **state)
{
    (void)state;
    FX_SCOPE;
    trains_as_one(fx_cpu_device(), false);
    trains_as_one(fx_cpu_device(), true);
    trains_as_one(d[0], true);
    trains_as_one(fx_device_get("ref", 0), true);
}

/* Moved inside a step and kept: the tie outlives the step. */
static void a_tie_outlives_its_step(void **state)
{
    (void)state;
    FX_SCOPE;
    Tied *m = tied(), *there;
    {
        FX_STEP;
        there = fx_keep(fx_to(d[0], m));
    }
    is_tied(there);
    {
        FX_STEP;
        void *opt = fx_setup(fx_descent(.eta = 0.1), there);
        fx_array *l = loss_of(there->w, there->back, input(d[0]));
        assert_int_equal(fx_update(opt, there, fx_gradient(l, there), .guard = l), FX_OK);
    }
    is_tied(there);
    assert_false(same(there->w, m->w));
    assert_int_equal(fx_error_status(), FX_OK);
}

static void states_have_one_leaf(void **state)
{
    (void)state;
    FX_SCOPE;
    char text[300];
    Tied *m = tied();
    void *opt = fx_setup(fx_momentum(), m);
    assert_int_equal(fx_count(fx_child_named(opt, "back")), 0);
    fx_summary(opt, text, sizeof text);
    assert_string_equal(text,
                        "(back = (), w = Leaf(Momentum(eta=0.01, rho=0.9), 2×3 Matrix{Float32}))");
    Tied *g = fx_gradient(loss_of(m->w, m->back, input(NULL)), m);
    void *both = fx_updated(opt, m, g);
    Tied *n = fx_child(both, 1);
    is_tied(n);
    is_tied(m);
    assert_false(same(n->w, m->w));
    /* frozen: the array does not change, so its view does not either */
    Tied *before = fx_snapshot(m);
    assert_int_equal(fx_freeze(opt), FX_OK);
    assert_int_equal(fx_update(opt, m, g), FX_OK);
    assert_true(same(before->back, m->back));
    is_tied(m);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* A gradient that the program has put together: the view follows the array although the view's own
 * gradient is NULL. */
static void views_follow_without_a_gradient(void **state)
{
    (void)state;
    FX_SCOPE;
    Tied *m = tied();
    void *opt = fx_setup(fx_descent(.eta = 1), m);
    Tied *g = fx_new(Tied, .back = NULL, .w = fx_ones(2, 3));
    assert_int_equal(fx_update(opt, m, g), FX_OK);
    assert_true(same(m->w, fx_sub(fx_from(FX_DTYPE_F32, weights, 2, 3), 1)));
    is_tied(m);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* The views were made by another thread: their part of the gradient is not lost. */
static void *train_elsewhere(void *user)
{
    FX_SCOPE;
    Tied *m = user;
    fx_array *x = input(NULL), *w = fx_from(FX_DTYPE_F32, weights, 2, 3);
    Tied *g = fx_gradient(loss_of(m->w, m->back, x), m);
    void *expected = fx_gradient(loss_of(w, fx_transpose(w), x), fx_tuple(w));
    bool ok = fx_item(fx_maximum(fx_abs(fx_sub(g->w, fx_child(expected, 0))))) < 1e-5;
    void *opt = fx_setup(fx_descent(.eta = 0.01), m);
    ok = ok && fx_update(opt, m, g) == FX_OK && same(m->back, fx_transpose(m->w)) &&
         fx_is_evaluated(m->back) && fx_parameter_count(m) == 6;
    return ok && fx_error_print(stderr) == 0 ? m : NULL;
}

static void another_thread_trains(void **state)
{
    (void)state;
    FX_SCOPE;
    Tied *m = tied();
    assert_int_equal(fx_eval(m), FX_OK);
    for (int i = 0; i < 2; i++) { /* the second one meets what the first one made */
        if (i)
            assert_int_equal(fx_copy_into(m->w, fx_from(FX_DTYPE_F32, weights, 2, 3)), FX_OK);
        if (i)
            m = fx_new(Tied, .back = fx_transpose(m->w), .w = m->w), fx_eval(m);
        pthread_t t;
        void *ok;
        assert_int_equal(pthread_create(&t, NULL, train_elsewhere, m), 0);
        pthread_join(t, &ok);
        assert_ptr_equal(ok, m);
        is_tied(m);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- fx_copy_into ---------------------------------------------------------------------------- */

/* Only the handle that is filled changes: its views keep the old value, and so does the array that
 * it is a view of. They are arrays of their own then, each with its gradient. */
static void copy_into_unties(void **state)
{
    (void)state;
    FX_SCOPE;
    for (int filled = 0; filled < 2; filled++)
        for (int evaluated = 0; evaluated < 2; evaluated++) {
            Tied *m = tied();
            if (evaluated)
                fx_eval(m);
            is_tied(m);
            fx_array *dst = filled ? m->back : m->w, *kept = filled ? m->w : m->back;
            fx_array *old = fx_mul(kept, 1), *product = fx_matmul(m->w, m->back);
            fx_array *norm = fx_sum(fx_square(fx_from(FX_DTYPE_F32, weights, 6)));
            fx_array *fresh = fx_reshape(fx_range(1, 1, 6), fx_size(dst, 0), fx_size(dst, 1));
            void *twice = fx_tuple(dst, dst);
            assert_int_equal(fx_copy_into(dst, fresh), FX_OK);
            assert_true(same(dst, fresh));
            assert_true(same(fx_child(twice, 1), fresh));
            assert_true(same(kept, old));
            /* captured before: tr(W·Wᵀ) = Σ w² */
            assert_true(fx_at(product, 0) + fx_at(product, 3) == fx_item(norm));
            assert_int_equal(fx_count(fx_trainables(m)), 2);
            assert_int_equal(fx_parameter_count(m), 12);
            if (filled == 0) { /* the view's history leads to the value that was */
                Tied *none = fx_gradient(loss_of(m->w, m->back, input(NULL)), m);
                assert_true(fx_is_error(none->w));
                assert_int_equal(fx_error_take().status, FX_STATUS_STATE);
                assert_int_equal(fx_copy_into(m->back, fx_mul(kept, 1)), FX_OK);
                assert_true(same(kept, old));
            }
            Tied *g = fx_gradient(fx_sum(fx_matmul(m->w, m->back)), m);
            assert_true(same(g->w, fx_matmul(fx_ones(2, 2), fx_transpose(m->back))));
            assert_true(same(g->back, fx_matmul(fx_transpose(m->w), fx_ones(2, 2))));
            /* from the array itself: a copy, whatever is a view of what */
            assert_int_equal(fx_copy_into(m->back, fx_transpose(m->w)), FX_OK);
            assert_true(same(m->back, fx_transpose(m->w)));
            assert_int_equal(fx_count(fx_trainables(m)), 2);
        }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- loading --------------------------------------------------------------------------------- */

static void loading_keeps_the_tie(void **state)
{
    (void)state;
    FX_SCOPE;
    Tied *m = fx_to(d[0], tied()), *src = fx_fmap(twice, tied());
    assert_int_equal(fx_loadmodel(m, src), FX_OK);
    assert_true(same(m->w, src->w));
    is_tied(m);
    assert_int_equal(fx_loadmodel(m, fx_state(tied())), FX_OK);
    is_tied(m);
    fx_array *before = fx_snapshot(m)->w;
    Tied *wrong = fx_new(Tied, .back = fx_ones(3, 2), .w = fx_zeros(2, 3));
    assert_int_equal(fx_loadmodel(m, wrong), FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "Encountered tied destination parameters with "
                                                    "untied and mismatched sources."));
    assert_true(same(before, m->w));
    Tied *apart = fx_new(Tied, .back = fx_zeros(3, 2), .w = fx_zeros(2, 3));
    assert_int_equal(fx_loadmodel(apart, m), FX_OK); /* into one that is not tied */
    assert_true(same(apart->back, m->back));
    assert_int_equal(fx_parameter_count(apart), 12);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- printing -------------------------------------------------------------------------------- */

static void printed_once(void **state)
{
    (void)state;
    FX_SCOPE;
    char text[500];
    fx_dense_layer *in = fx_dense(2, 3, FX_TANH);
    fx_chain_layer *m = fx_chain(in, fx_dense(3, 2, .weight_array = fx_transpose(in->weight)));
    fx_eval(m);
    fx_show_text(fx_to(d[1], m), text, sizeof text);
    assert_non_null(strstr(text, "# Total: 3 arrays, 11 parameters, 44 bytes on CUDA:1."));
    assert_int_equal(fx_error_status(), FX_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_keep_the_tie),
        cmocka_unit_test(views_of_every_kind),
        cmocka_unit_test(moves_copy_once),
        cmocka_unit_test(training_keeps_the_tie),
        cmocka_unit_test(a_tie_outlives_its_step),
        cmocka_unit_test(states_have_one_leaf),
        cmocka_unit_test(views_follow_without_a_gradient),
        cmocka_unit_test(another_thread_trains),
        cmocka_unit_test(copy_into_unties),
        cmocka_unit_test(loading_keeps_the_tie),
        cmocka_unit_test(printed_once),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
