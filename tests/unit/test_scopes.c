/* test_scopes.c: which scope owns an object, and when the object is freed.
 *
 * Releases are observed from outside: an array over borrowed memory calls its release function when
 * the last value that reads it is freed. Live nodes and bytes are counted over a thousand training
 * steps. Expected numbers of the recurrent cell are the same recursion in double.
 */
#include "semantics_check.h"

#include <pthread.h>
#include <setjmp.h>

static int released; /* arrays of `tracked` that are gone */
static float tracked_memory[4] = {1, 2, 3, 4};

static void count_release(void *data, void *user)
{
    assert_ptr_equal(data, tracked_memory);
    (void)user;
    __atomic_fetch_add(&released, 1, __ATOMIC_RELAXED);
}

static fx_array *tracked(void)
{
    return fx_borrow(FX_DTYPE_F32, tracked_memory, count_release, NULL, 4);
}

static int start_counting(void **state)
{
    released = 0;
    return clean_start(state);
}

/* ---- freed early ----------------------------------------------------------------------------- */

/* An object that is released without being retained belonged to the scope: it is freed at once, and
 * its neighbours in the scope remain. */
static void released_before_the_scope(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *kept = fx_vector(1, 2);
    {
        FX_SCOPE;
        fx_array *first = fx_vector(1, 2), *gone = tracked(), *last = fx_vector(3, 4);
        void *text = fx_string("a"), *pair = fx_tuple(first, last);
        fx_release(gone);
        assert_int_equal(released, 1);
        fx_release(text);
        fx_release(kept); /* of the scope around */
        fx_array *sum = fx_add(first, last);
        assert_true(fx_at(sum, 1) == 6 && fx_count(pair) == 2);
        fx_release(pair);
    }
    assert_int_equal(released, 1);
    fx_array *again = tracked();
    fx_release(fx_keep(again));
    assert_int_equal(released, 2);
}

/* ---- modes ----------------------------------------------------------------------------------- */

static void modes_nest_either_way(void **state)
{
    (void)state;
    assert_false(fx_training()); /* the root infers */
    {
        FX_SCOPE;
        assert_false(fx_training());
    }
    {
        FX_STEP;
        assert_true(fx_training());
        {
            FX_SCOPE;
            assert_true(fx_training()); /* inherited */
            {
                FX_TEST;
                assert_false(fx_training());
                {
                    FX_SCOPE;
                    assert_false(fx_training());
                }
                {
                    FX_STEP;
                    assert_true(fx_training());
                }
                assert_false(fx_training());
            }
            assert_true(fx_training());
        }
        {
            FX_STEP;
            assert_true(fx_training());
        }
        assert_true(fx_training());
    }
    assert_false(fx_training());
}

/* A layer asks for the mode when it is called, not when its result is computed. */
static void a_layer_reads_the_mode_when_called(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dropout_layer *drop = fx_dropout(0.5);
    fx_array *x = fx_ones(1000), *trained, *tested;
    {
        FX_STEP;
        trained = fx_keep(fx_call(drop, x));
        {
            FX_TEST;
            tested = fx_keep(fx_call(drop, x));
        }
        tested = fx_keep(tested);
    }
    {
        FX_STEP; /* the mode at evaluation does not matter */
        SAME(fx_item(fx_minimum(tested)), 1);
    }
    SAME(fx_item(fx_minimum(trained)), 0);
    SAME(fx_item(fx_maximum(trained)), 2);
}

static void *mode_of_a_new_thread(void *out)
{
    *(int *)out = fx_training();
    return NULL;
}

static void new_threads_infer(void **state)
{
    (void)state;
    FX_STEP;
    pthread_t thread;
    int training = -1;
    assert_int_equal(pthread_create(&thread, NULL, mode_of_a_new_thread, &training), 0);
    pthread_join(thread, NULL);
    assert_int_equal(training, 0);
    assert_true(fx_training());
}

/* ---- ways out of a block --------------------------------------------------------------------- */

static int leave_by_return(int early)
{
    FX_STEP;
    tracked();
    if (early) {
        FX_SCOPE;
        tracked();
        return 1;
    }
    tracked();
    return 2;
}

static void every_way_out_closes(void **state)
{
    (void)state;
    FX_SCOPE;
    for (int i = 0; i < 10; i++) {
        FX_STEP;
        tracked();
        if (i == 3)
            continue;
        if (i == 6)
            break;
    }
    assert_int_equal(released, 7);
    assert_false(fx_training());
    assert_int_equal(leave_by_return(1), 1);
    assert_int_equal(released, 9);
    assert_int_equal(leave_by_return(0), 2);
    assert_int_equal(released, 11);
    assert_false(fx_training());
    for (int i = 0; i < 3; i++) {
        FX_SCOPE;
        tracked();
        {
            FX_TEST;
            tracked();
            goto out;
        }
    }
out:
    assert_int_equal(released, 13);
}

static jmp_buf back;

static void jump_out(int levels)
{
    FX_STEP;
    tracked();
    if (levels > 0)
        jump_out(levels - 1);
    if (levels == 0)
        longjmp(back, 1);
}

static void try_to_jump(void)
{
    FX_SCOPE;
    tracked();
    if (setjmp(back) == 0)
        jump_out(40);
    assert_int_equal(released, 0); /* no scope has closed yet */
    {
        FX_TEST; /* scopes still work */
        tracked();
        assert_false(fx_training());
    }
    assert_int_equal(released, 1);
}

/* Scopes close by depth: what longjmp left open closes with the scope around it. */
static void longjmp_recovers(void **state)
{
    (void)state;
    FX_SCOPE;
    tracked();
    try_to_jump();
    assert_int_equal(released, 1 + 41 + 1);
    assert_false(fx_training());
    {
        FX_SCOPE;
        tracked();
    }
    assert_int_equal(released, 44);
}

/* ---- fx_keep --------------------------------------------------------------------------------- */

static fx_array *deep(fx_array *x, int levels)
{
    FX_SCOPE;
    tracked();
    fx_array *y = fx_add(levels ? deep(x, levels - 1) : x, 1);
    return fx_keep(y);
}

static void keep_hands_outward_still_pending(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *y;
    {
        FX_SCOPE;
        y = deep(tracked(), 99);
        assert_int_equal(released, 100);
        assert_false(fx_is_evaluated(y));
        assert_ptr_equal(fx_keep(y), y);
    }
    assert_int_equal(released, 100); /* y still reads the array at its bottom */
    assert_false(fx_is_evaluated(y));
    CHECK(y, (4), 0, 101, 102, 103, 104);
}

static void keep_leaves_others_in_place(void **state)
{
    (void)state;
    FX_SCOPE;
    {
        FX_SCOPE;
        fx_array *x = tracked();
        {
            FX_SCOPE;
            assert_ptr_equal(fx_keep(x), x); /* owned by an outer scope: unchanged */
        }
        assert_int_equal(released, 0);
        CHECK(x, (4), 0, 1, 2, 3, 4);
    }
    assert_int_equal(released, 1);
    assert_null(fx_keep((fx_array *)NULL));
    fx_array *e = fx_error_array(FX_STATUS_SHAPE);
    assert_ptr_equal(fx_keep(e), e);
}

static void keep_takes_whole_objects(void **state)
{
    (void)state;
    {
        FX_SCOPE;
        fx_dense_layer *m;
        {
            FX_SCOPE;
            m = fx_keep(fx_dense(0, 0, .weight_array = fx_reshape(tracked(), 2, 2), .bias = false));
        }
        assert_int_equal(released, 0);
        CHECK(fx_call(m, fx_ones(2)), (2), 0, 4, 6);
    }
    assert_int_equal(released, 1);
}

/* Only the tuple holds its first item: the item's scope has ended. */
static void *tuple_of_a_function(void)
{
    FX_SCOPE;
    return fx_keep(fx_tuple(fx_add(tracked(), 1), fx_vector(5, 6)));
}

/* The item of a tuple outlives the tuple, in each order of the two calls. */
static void keep_takes_children(void **state)
{
    (void)state;
    for (int evaluated = 0; evaluated < 2; evaluated++) {
        FX_SCOPE;
        fx_array *first;
        {
            FX_SCOPE;
            void *pair = tuple_of_a_function();
            first = fx_keep(fx_child(pair, 0));
            assert_ptr_equal(fx_keep(first), first); /* once: it has a scope now */
            if (evaluated)
                fx_eval(pair);
        }
        CHECK(first, (4), 0, 2, 3, 4, 5);
        {
            FX_SCOPE;
            fx_keep(first); /* of an outer scope */
        }
        CHECK(first, (4), 0, 2, 3, 4, 5);
    }
    assert_int_equal(released, 2); /* freed with the scope that it was kept in */
}

/* A model's array is kept, and the model is released before the scope ends. */
static void keep_takes_fields(void **state)
{
    (void)state;
    fx_dense_layer *m;
    {
        FX_SCOPE;
        m = fx_retain(fx_dense(0, 0, .weight_array = fx_reshape(tracked(), 2, 2), .bias = false));
    }
    {
        FX_SCOPE;
        fx_array *w;
        {
            FX_SCOPE;
            w = fx_keep(m->weight);
        }
        CHECK(w, (2, 2), 0, 1, 2, 3, 4);
        fx_release(m);
        assert_int_equal(released, 0);
        CHECK(w, (2, 2), 0, 1, 2, 3, 4);
    }
    assert_int_equal(released, 1);
}

static void *keeps_often(void *model)
{
    for (int i = 0; i < 1000; i++) {
        FX_SCOPE;
        FX_SCOPE;
        fx_array *w = fx_keep(((fx_dense_layer *)model)->weight);
        if (fx_size(w, 0) != 2)
            return model;
    }
    return NULL;
}

/* Threads that share a model may keep its arrays at the same time. */
static void threads_keep_one_array(void **state)
{
    (void)state;
    pthread_t threads[4];
    fx_dense_layer *m;
    {
        FX_SCOPE;
        m = fx_retain(fx_dense(2, 2));
        fx_eval(m);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keeps_often, m), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    FX_SCOPE;
    assert_int_equal(fx_size(m->weight, 0), 2);
    fx_release(m);
}

static void retain_outlives_scopes(void **state)
{
    (void)state;
    fx_array *x;
    {
        FX_SCOPE;
        x = fx_retain(tracked());
        assert_ptr_equal(fx_retain(x), x);
    }
    assert_int_equal(released, 0);
    CHECK(x, (4), 0, 1, 2, 3, 4);
    fx_release(x);
    assert_int_equal(released, 0);
    fx_release(x);
    assert_int_equal(released, 1);
    fx_release(NULL);
    fx_array *e = fx_error_array(FX_STATUS_SHAPE);
    fx_release(e);
    fx_release(fx_retain(e));
    assert_int_equal(fx_array_status(e), FX_STATUS_SHAPE);
}

/* Plain assignment never transfers ownership: the variable dangles, the scope still owns. */
static void assignment_owns_nothing(void **state)
{
    (void)state;
    {
        FX_SCOPE;
        fx_array *x = tracked();
        x = tracked();
        (void)x;
        assert_int_equal(released, 0);
    }
    assert_int_equal(released, 2);
}

/* ---- fx_set ---------------------------------------------------------------------------------- */

static void set_stores_and_replaces(void **state)
{
    (void)state;
    fx_array *slot = NULL;
    {
        FX_SCOPE;
        fx_set(&slot, tracked());
    }
    assert_int_equal(released, 0);
    {
        FX_SCOPE;
        /* The old value is freed; the new one is computed when the scope closes. */
        fx_set(&slot, fx_add(tracked(), 1));
        assert_int_equal(released, 0 + 1);
    }
    assert_int_equal(released, 2); /* the value is a constant now, so nothing reads the array */
    assert_true(fx_is_evaluated(slot));
    CHECK(slot, (4), 0, 2, 3, 4, 5);
    fx_set(&slot, NULL);
    assert_null(slot);
}

static void set_of_the_same_array(void **state)
{
    (void)state;
    fx_array *slot = NULL;
    {
        FX_SCOPE;
        fx_set(&slot, tracked());
        fx_set(&slot, slot);
        fx_set(&slot, slot);
    }
    assert_int_equal(released, 0);
    CHECK(slot, (4), 0, 1, 2, 3, 4);
    fx_set(&slot, NULL);
    assert_int_equal(released, 1);
}

/* In an inner FX_SCOPE of a step the value is due when the step closes, not before. */
static void set_is_due_at_the_close_of_the_step(void **state)
{
    (void)state;
    fx_array *slot = NULL;
    {
        FX_STEP;
        {
            FX_SCOPE;
            fx_set(&slot, fx_add(tracked(), 1));
        }
        assert_false(fx_is_evaluated(slot));
        assert_int_equal(slot->node->nin, 2);
    }
    assert_true(fx_is_evaluated(slot));
    assert_int_equal(slot->node->nin, 0);
    assert_int_equal(released, 1);
    fx_set(&slot, NULL);
}

static void set_is_due_at_an_update(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *slot = NULL;
    fx_dense_layer *m = fx_dense(2, 1), *other = fx_dense(2, 1);
    void *opt = fx_setup(fx_descent(), m);
    FX_STEP;
    fx_set(&slot, fx_add(tracked(), 1));
    fx_array *g = fx_sum(fx_square(m->weight));
    assert_int_equal(fx_eval(other), FX_OK);
    assert_int_equal(fx_update(opt, m, fx_gradient(g, m)), FX_OK);
    assert_true(fx_is_evaluated(slot));
    fx_set(&slot, NULL);
}

/* A value that fx_set stored is a constant afterwards: no gradient flows into the step before. */
static void set_makes_constants(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = scalar64(0.5), *h = NULL, *g = NULL;
    {
        FX_STEP;
        fx_set(&h, fx_mul(w, 3));
    }
    {
        FX_STEP;
        fx_array *y = fx_mul(w, h); /* dy/dw = h alone */
        fx_gradient_of(y, &w, 1, &g);
        SAME(fx_item(g), 1.5);
    }
    fx_set(&h, NULL);
}

typedef struct Cell {
    fx_object base;
    fx_array *w, *u;
    fx_array *state; /* not a child */
} Cell;
FX_FUNCTOR(Cell, w, u);

enum { STEPS = 1000 };

/* One step of h ← tanh(w·h + u·x), by hand: in place, with the gradient of ½Σ(h − ½)² taken with
 * the old h as a constant. */
static void step_by_hand(double *w, double *u, double *h, double x, double eta)
{
    const double new_h = tanh(*w * *h + *u * x), d = (new_h - 0.5) * (1 - new_h * new_h);
    const double gw = d * *h, gu = d * x;
    *w -= eta * gw;
    *u -= eta * gu;
    *h = new_h;
}

static void recurrent_state_stays_bounded(void **state)
{
    (void)state;
    FX_SCOPE;
    double w = 0.9, u = -0.4, h = 0.1;
    Cell *m = fx_new(Cell, .w = scalar64(w), .u = scalar64(u));
    void *opt = fx_setup(fx_descent(.eta = 0.05), m);
    fx_set(&m->state, scalar64(h));
    int64_t bytes = 0, live = 0;
    for (int k = 0; k < STEPS; k++) {
        const double x = sin(0.1 * k);
        {
            FX_STEP;
            fx_array *new_h = fx_tanh(fx_add(fx_mul(m->w, m->state), fx_mul(m->u, x)));
            fx_set(&m->state, new_h);
            fx_array *loss = fx_mul(0.5, fx_sum(fx_square(fx_sub(new_h, 0.5))));
            assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
        }
        step_by_hand(&w, &u, &h, x, 0.05);
        assert_int_equal(m->state->node->nin, 0); /* without history */
        if (k == 9) {
            bytes = fx_stats().live_bytes;
            live = fxi_live_allocations();
        }
    }
    assert_int_equal(fx_stats().live_bytes, bytes);
    assert_int_equal(fxi_live_allocations(), live);
    NEAR(fx_item(m->w), w, 1e-12);
    NEAR(fx_item(m->u), u, 1e-12);
    NEAR(fx_item(m->state), h, 1e-12);
    fx_set(&m->state, NULL);
}

/* The same without an update: the closes of FX_SCOPE and FX_TEST compute the state. */
static void running_totals_stay_bounded(void **state)
{
    (void)state;
    fx_array *total = NULL;
    int64_t bytes = 0, live = 0;
    {
        FX_SCOPE;
        fx_set(&total, fx_zeros());
    }
    for (int k = 0; k < STEPS; k++) {
        if (k % 2) {
            FX_TEST;
            fx_set(&total, fx_add(total, k));
        } else {
            FX_SCOPE;
            fx_set(&total, fx_add(total, k));
        }
        assert_true(fx_is_evaluated(total));
        if (k == 9) {
            bytes = fx_stats().live_bytes;
            live = fxi_live_allocations();
        }
    }
    assert_int_equal(fx_stats().live_bytes, bytes);
    assert_int_equal(fxi_live_allocations(), live);
    SAME(fx_item(total), STEPS * (STEPS - 1) / 2);
    fx_set(&total, NULL);
}

/* ---- history --------------------------------------------------------------------------------- */

static void reads_do_not_cut_the_close_of_the_step_does(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *y, *g;
    {
        FX_STEP;
        fx_array *x = tracked();
        y = fx_retain(fx_square(x));
        SAME(fx_at(y, 3), 16);
        assert_int_equal(y->node->nin, 1);
        fx_gradient_of(fx_sum(y), &x, 1, &g);
        CHECK(g, (4), 0, 2, 4, 6, 8);
    }
    assert_int_equal(y->node->nin, 0);
    assert_int_equal(released, 1); /* the operands of the value have been freed */
    CHECK(y, (4), 0, 1, 4, 9, 16);
    fx_release(y);
}

static void what_keep_moved_out_is_cut_too(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *y, *z;
    {
        FX_STEP;
        y = fx_keep(fx_square(tracked()));
        z = fx_keep(fx_add(y, 1));
        fx_eval(y);
    }
    assert_int_equal(released, 1);
    assert_int_equal(y->node->nin, 0);
    CHECK(z, (4), 0, 2, 5, 10, 17); /* was still pending, and is computed from y */
}

/* Only the step that holds it cuts: neither an inner FX_SCOPE nor an inner FX_TEST, whose results
 * may be part of the step's loss. */
static void inner_scopes_do_not_cut(void **state)
{
    (void)state;
    FX_SCOPE;
    FX_STEP;
    fx_array *x = fx_vector(1, 2, 3), *a, *b, *g;
    {
        FX_SCOPE;
        a = fx_keep(fx_square(x));
        fx_eval(a);
    }
    {
        FX_TEST;
        b = fx_keep(fx_mul(x, 5));
        fx_eval(b);
    }
    fx_gradient_of(fx_sum(fx_add(a, b)), &x, 1, &g);
    CHECK(g, (3), 0, 7, 9, 11);
}

/* Arrays older than the step keep their history: it is not theirs that the step holds. */
static void a_step_cuts_only_its_own(void **state)
{
    (void)state;
    FX_SCOPE;
    FX_STEP;
    fx_array *x = fx_vector(1, 2, 3), *y = fx_square(x), *g;
    {
        FX_STEP;
        fx_eval(y);
        fx_eval(fx_add(y, 1));
    }
    fx_gradient_of(fx_sum(y), &x, 1, &g);
    CHECK(g, (3), 0, 2, 4, 6);
}

/* ---- many, and no memory --------------------------------------------------------------------- */

enum { DEEP = 10000 };

static fx_array *nested(int levels, fx_array *x)
{
    FX_SCOPE;
    assert_true(fx_training());
    x = fx_add(x, 1);
    if (levels % 100 == 0)
        tracked();
    return levels == 0 ? fx_keep(x) : fx_keep(nested(levels - 1, x));
}

static void ten_thousand_scopes(void **state)
{
    (void)state;
    FX_SCOPE;
    FX_STEP;
    fx_array *y = nested(DEEP - 1, fx_zeros());
    assert_int_equal(released, DEEP / 100);
    SAME(fx_item(y), DEEP);
}

/* Opening cannot fail: if there is no memory for a scope after the 32nd, its objects belong to the
 * nearest open scope, and depth and mode are correct. */
static void open_without_memory(int levels)
{
    FX_STEP;
    if (levels > 0) {
        open_without_memory(levels - 1);
        assert_true(fx_training());
        return;
    }
    for (int64_t n = 0; n < 2; n++) {
        fxi_fault_set(n);
        FX_TEST;
        fxi_fault_set(-1);
        assert_false(fx_training());
        tracked();
        {
            FX_STEP;
            assert_true(fx_training());
            tracked();
            {
                FX_SCOPE;
                assert_true(fx_training());
            }
        }
        assert_false(fx_training());
    }
    assert_true(fx_training());
}

static void scopes_cannot_fail(void **state)
{
    (void)state;
    {
        FX_SCOPE;
        open_without_memory(40);
        assert_int_equal(released, 4);
        assert_false(fx_training());
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Of the first scopes without memory each keeps its mode, also while more are open. */
static void modes_without_memory(void **state)
{
    (void)state;
    enum { REMEMBERED = 64, OPEN = REMEMBERED + 100 };
    static const int modes[] = {FXI_SCOPE_INHERIT, FXI_SCOPE_STEP, FXI_SCOPE_TEST};
    int before[OPEN];
    bool training[OPEN];
    uint32_t dice = 1;
    const int first = fxi_scope_open(FXI_SCOPE_STEP, __FILE__, __LINE__);
    for (int i = 1; i < FXI_INLINE_SCOPES; i++)
        fxi_scope_open(FXI_SCOPE_INHERIT, __FILE__, __LINE__);
    fxi_fault_set(0);
    for (int i = 0; i < OPEN; i++) {
        dice = dice * 1664525 + 1013904223;
        const int mode = modes[(dice >> 16) % 3];
        const bool inherited = i == 0 || training[i - 1];
        training[i] = mode == FXI_SCOPE_STEP || (mode == FXI_SCOPE_INHERIT && inherited);
        before[i] = fxi_scope_open(mode, __FILE__, __LINE__);
        if (i < REMEMBERED)
            assert_int_equal(fx_training(), training[i]);
    }
    fxi_fault_set(-1);
    for (int i = OPEN - 1; i >= 0; i--) {
        if (i < REMEMBERED)
            assert_int_equal(fx_training(), training[i]);
        fxi_scope_close(before[i]);
    }
    assert_true(fx_training());
    fxi_scope_close(first);
    assert_false(fx_training());
}

/* What was made since a scope opened is freed, except what was kept or retained. Scopes that a
 * longjmp left open inside are closed. */
static void an_emptied_scope_stays_open(void **state)
{
    (void)state;
    FX_SCOPE;
    tracked();
    const int scope = fxi_scope_open(FXI_SCOPE_QUIET, NULL, 0);
    for (int round = 1; round <= 3; round++) {
        tracked();
        fxi_scope_open(FXI_SCOPE_STEP, __FILE__, __LINE__);
        tracked();
        fxi_scope_empty(scope);
        assert_int_equal(released, 2 * round);
        assert_false(fx_training());
    }
    fx_array *kept = fx_keep(tracked()), *held = fx_retain(tracked());
    fxi_scope_empty(scope);
    fxi_scope_close(scope);
    assert_int_equal(released, 6);
    assert_true(fx_at(kept, 1) == 2 && fx_at(held, 2) == 3);
    fx_release(held);
    assert_int_equal(released, 7);
}

/* The objects of a scope without memory belong to the scope around it, which keeps them. */
static void emptied_without_memory(void **state)
{
    (void)state;
    FX_SCOPE;
    const int first = fxi_scope_open(FXI_SCOPE_INHERIT, __FILE__, __LINE__);
    for (int i = 2; i < FXI_INLINE_SCOPES; i++)
        fxi_scope_open(FXI_SCOPE_INHERIT, __FILE__, __LINE__);
    fx_array *before = tracked();
    fxi_fault_set(0);
    const int scope = fxi_scope_open(FXI_SCOPE_QUIET, NULL, 0);
    fxi_fault_set(-1);
    tracked();
    fxi_scope_empty(scope);
    assert_int_equal(released, 0);
    assert_true(fx_at(before, 0) == 1);
    fxi_scope_close(scope);
    assert_int_equal(released, 0);
    fxi_scope_close(first);
    assert_int_equal(released, 2);
}

/* A value that is evaluated already, or can never be evaluated, is not computed at the close. */
static void only_what_is_pending_is_wanted(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *there = fx_ones(2), *pending = fx_add(there, 1), *bad = fx_add(there, fx_ones(3));
    fx_eval(there);
    expect_error(FX_STATUS_SHAPE, "add");
    const int before = fxi_here()->npromises;
    assert_ptr_equal(fx_want(there), there);
    assert_ptr_equal(fx_want(bad), bad);
    assert_int_equal(fxi_here()->npromises, before);
    assert_ptr_equal(fx_want(pending), pending);
    assert_int_equal(fxi_here()->npromises, before + 1);
}

static fx_array *left_behind;

/* Leaves a pending result that is older than all values that the update replaces. */
static void *leaves_a_result_at_rest(void *unused)
{
    (void)unused;
    FX_SCOPE;
    left_behind = fx_retain(fx_add(fx_ones(2), 1));
    fx_dense_layer *m = fx_dense(2, 1);
    void *opt = fx_setup(fx_descent(.eta = 0.1), m);
    {
        FX_STEP;
        fx_array *loss = fx_sum(fx_call(m, fx_ones(2, 1)));
        if (fx_update(opt, m, fx_gradient(loss, m)) != FX_OK)
            return NULL;
    }
    return fxi_here()->resting.next == left_behind->node ? &left_behind : NULL;
}

/* Releasing it must not touch the list of the thread, which is gone. */
static void what_rests_outlives_its_thread(void **state)
{
    (void)state;
    pthread_t thread;
    void *fine = NULL;
    assert_int_equal(pthread_create(&thread, NULL, leaves_a_result_at_rest, NULL), 0);
    pthread_join(thread, &fine);
    assert_ptr_equal(fine, &left_behind);
    assert_null(left_behind->node->next);
    assert_null(left_behind->node->prev);
    fx_release(left_behind);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void *in_the_root_scope(void *unused)
{
    (void)unused;
    tracked(); /* the thread has opened no scope, so the root scope owns it */
    fx_array *x = tracked();
    fx_error_array(FX_STATUS_SHAPE);
    return fx_eval(fx_add(x, 1)) == FX_OK && released == 0 ? &released : NULL;
}

static void the_root_scope_ends_with_its_thread(void **state)
{
    (void)state;
    pthread_t thread;
    void *fine = NULL;
    assert_int_equal(pthread_create(&thread, NULL, in_the_root_scope, NULL), 0);
    pthread_join(thread, &fine);
    assert_ptr_equal(fine, &released);
    assert_int_equal(released, 2);
}

#undef TEST
#define TEST(f) cmocka_unit_test_setup_teardown(f, start_counting, clean_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(released_before_the_scope),
        TEST(modes_nest_either_way),
        TEST(a_layer_reads_the_mode_when_called),
        TEST(new_threads_infer),
        TEST(every_way_out_closes),
        TEST(longjmp_recovers),
        TEST(keep_hands_outward_still_pending),
        TEST(keep_leaves_others_in_place),
        TEST(keep_takes_whole_objects),
        TEST(keep_takes_children),
        TEST(keep_takes_fields),
        TEST(threads_keep_one_array),
        TEST(retain_outlives_scopes),
        TEST(assignment_owns_nothing),
        TEST(set_stores_and_replaces),
        TEST(set_of_the_same_array),
        TEST(set_is_due_at_the_close_of_the_step),
        TEST(set_is_due_at_an_update),
        TEST(set_makes_constants),
        TEST(recurrent_state_stays_bounded),
        TEST(running_totals_stay_bounded),
        TEST(reads_do_not_cut_the_close_of_the_step_does),
        TEST(what_keep_moved_out_is_cut_too),
        TEST(inner_scopes_do_not_cut),
        TEST(a_step_cuts_only_its_own),
        TEST(ten_thousand_scopes),
        TEST(scopes_cannot_fail),
        TEST(modes_without_memory),
        TEST(an_emptied_scope_stays_open),
        TEST(emptied_without_memory),
        TEST(only_what_is_pending_is_wanted),
        TEST(what_rests_outlives_its_thread),
        TEST(the_root_scope_ends_with_its_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
