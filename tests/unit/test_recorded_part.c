/* test_recorded_part.c: layers and losses whose calls a recorded training step skips
 * (ops/recorded_part.h). Whatever changes between the training steps (members of layers, functions,
 * options of losses, modes, callers of the same operations), the bits are those of FX_STEP. */
#include "recorded_part.h"
#include "semantics_check.h"

#include <cflux.h>
#include <string.h>

/* ---- a part of the test ---------------------------------------------------------------------- */

/* y = a·x + b, where a is a literal. Returns true if its calls were skipped. */
static bool line(fx_function *f, double a, fx_array *x, fx_array *b, fx_array **out_y)
{
    fxi_part p = {.what = "line", .function = f, .numbers = {a}, .in = {x, b}};
    const bool skipped = fxi_part_repeat(&p);
    if (!skipped) {
        FX_SCOPE;
        p.out[0] = fx_keep(fx_add(fx_mul(a, x), b));
        fxi_part_note(&p);
    }
    *out_y = p.out[0];
    return skipped;
}

static fx_array *own_function(fx_array *x)
{
    return fx_neg(x);
}

static void calls_are_skipped_if_everything_is_equal(void **state)
{
    (void)state;
    enum { STEPS = 16 };
    FX_SCOPE;
    fx_array *x = fx_ones(4), *w = fx_ones(4), *b = fx_full(0.5, 4), *other = fx_full(7, 4);
    fx_function *own = fx_function_new("own", own_function);
    fx_eval(fx_tuple(x, w, b, other));
    /* Each of the training steps 3, 6, 9 and 12 differs from the previous and from the next one. */
    for (int i = 0; i < STEPS; i++) {
        const double a = i == 3 ? 3 : 2;
        fx_array *shift = i == 6 ? x : b;
        fx_array *y;
        bool skipped;
        double got;
        {
            FX_RECORD;
            fx_array *u = i == 9 ? fx_mul(x, other) : fx_mul(x, w);
            skipped = line(i == 12 ? own : FX_TANH, a, u, shift, &y);
            got = fx_item(fx_sum(y));
        }
        assert_true(got == 4 * (a * (i == 9 ? 7 : 1) + (i == 6 ? 1 : 0.5)));
        /* A step that leaves the recording is noted, and the next one repeats that. Step 9 has
         * other leaves in the same roles, so it repeats; 3 and 12 make the calls of the part. */
        if (i == 0 || i == 3 || i == 6 || i == 7 || i == 12)
            assert_false(skipped);
        else
            assert_true(skipped);
    }
}

/* The call after the part reads a new leaf, and then another operand than the recorded one. */
static void the_call_after_a_part_changes(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(4), *w = fx_ones(4), *b = fx_full(0.5, 4), *v = fx_full(7, 4);
    fx_eval(fx_tuple(x, w, b, v));
    for (int i = 0; i < 6; i++) {
        fx_array *y;
        bool skipped;
        FX_RECORD;
        fx_array *u = fx_mul(x, w);
        skipped = line(FX_TANH, 2, u, b, &y);
        assert_true(fx_item(fx_sum(fx_add(v, i < 2 ? y : u))) == (i < 2 ? 38 : 32));
        assert_true(skipped == (i > 0));
    }
}

static void a_part_that_reads_another_array_is_made_again(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(4), *hidden = fx_full(2, 4);
    fx_eval(fx_tuple(x, hidden));
    for (int i = 0; i < 4; i++) {
        FX_RECORD;
        fxi_part p = {.what = "hidden", .in = {x}};
        assert_false(fxi_part_repeat(&p));
        p.out[0] = fx_mul(x, hidden);
        fxi_part_note(&p);
        assert_true(fx_item(fx_sum(p.out[0])) == 8);
    }
}

/* The literal of the part differs from step to step, and a call after the part uses it again. */
static void literals_of_a_part_may_change(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(4), *b = fx_full(0.5, 4);
    fx_eval(fx_tuple(x, b));
    for (int i = 0; i < 8; i++) {
        const double a = 2 + i / 2;
        FX_RECORD;
        fxi_part p = {.what = "scaled", .in = {x, b}, .literals = &a, .nliterals = 1};
        const bool skipped = fxi_part_repeat(&p);
        fx_array *own = skipped ? fxi_part_literal(p.first, 0) : fx_scalar(a);
        if (!skipped) {
            FX_SCOPE;
            p.out[0] = fx_keep(fx_add(fx_mul(own, x), b));
            fxi_part_note(&p);
        }
        assert_true(skipped == (i > 0));
        assert_non_null(own);
        assert_true(fx_item(fx_sum(fx_add(p.out[0], fx_mul(own, b)))) == 4 * (1.5 * a + 0.5));
    }
}

/* Because of fx_checkpointed, every training step makes the gradient again, from the operations of
 * layers whose calls it has skipped. Softmax is a quotient, which has a gradient of its own. */
static void the_gradient_of_a_skipped_quotient_has_the_same_bits(void **state)
{
    (void)state;
    enum { TRAINING_STEPS = 12 };
    float got[2][20];
    for (int recorded = 0; recorded < 2; recorded++) {
        FX_SCOPE;
        fx_seed(5);
        fx_dense_layer *first = fx_dense(3, 4, FX_SOFTMAX), *second = fx_dense(4, 5, FX_SOFTMAX);
        fx_chain_layer *model = fx_chain(first, second);
        void *opt = fx_setup(fx_descent(.eta = 0.1), model);
        fx_array *x = fx_randn(3, 6), *y = fx_rand(5, 6);
        fx_eval(fx_tuple(x, y, model));
        const uint64_t before = fx_stats().repeated_evals;
        for (int i = 0; i < TRAINING_STEPS; i++) {
            FXI_OPEN(recorded ? FXI_SCOPE_RECORD : FXI_SCOPE_STEP);
            fx_array *loss = fx_mse(fx_call(second, fx_checkpointed(first, x)), y);
            assert_int_equal(fx_update(opt, model, fx_gradient(loss, model)), FX_OK);
        }
        assert_int_equal(fx_read_into(second->weight, got[recorded], sizeof got[recorded]), FX_OK);
        assert_int_equal(fx_stats().repeated_evals - before, recorded ? TRAINING_STEPS - 2 : 0);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

/* Training steps alternate between a function with a gradient of its own and the same operations
 * without it. Both make the same calls, but their gradients are other expressions. */
static void the_same_calls_with_another_gradient(void **state)
{
    (void)state;
    float got[2][24];
    for (int recorded = 0; recorded < 2; recorded++) {
        FX_SCOPE;
        fx_seed(3);
        fx_dense_layer *first = fx_dense(4, 4, .bias = false), *second = fx_dense(4, 2);
        fx_chain_layer *model = fx_chain(first, second);
        void *opt = fx_setup(fx_descent(.eta = 0.1), model);
        fx_array *x = fx_mul(3, fx_randn(4, 8)), *y = fx_randn(2, 8);
        fx_eval(fx_tuple(x, y, model));
        for (int i = 0; i < 12; i++) {
            FXI_OPEN(recorded ? FXI_SCOPE_RECORD : FXI_SCOPE_STEP);
            const bool own = i % 3 == 1;
            fx_array *h = fx_call(first, x);
            h = own ? fx_tanhshrink(h) : fx_sub(h, fx_tanh(h));
            h = own ? fx_softsign(h) : fx_div(h, fx_add(1, fx_abs(h)));
            fx_array *loss = fx_mse(fx_call(second, h), y);
            assert_int_equal(fx_update(opt, model, fx_gradient(loss, model)), FX_OK);
        }
        assert_int_equal(fx_read_into(first->weight, got[recorded], 16 * sizeof(float)), FX_OK);
        assert_int_equal(fx_read_into(second->weight, got[recorded] + 16, 8 * sizeof(float)),
                         FX_OK);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

/* ---- programs that change -------------------------------------------------------------------- */

enum { SEEDS = 40, STEPS = 30, LOG = 8 * STEPS };

typedef struct program {
    uint64_t state;
    int mode; /* FXI_SCOPE_STEP or FXI_SCOPE_RECORD */
    int choice[10];
    fx_chain_layer *model;
    void *opt;
    fx_array *x, *y, *old;
    double log[LOG];
    int n;
} program;

static unsigned pick(program *p, unsigned n)
{
    p->state = p->state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(p->state >> 33) % n;
}

/* A choice that is mostly the same as in the previous training step. */
static int habit(program *p, int i, unsigned n)
{
    if (pick(p, 4) == 0)
        p->choice[i] = (int)pick(p, n);
    return p->choice[i];
}

static void note(program *p, double v)
{
    assert_true(p->n < LOG);
    p->log[p->n++] = v;
}

static int calls_of_own;
/* Alternates between two operations, so it must be called in every training step. */
static fx_array *alternating(fx_array *x)
{
    return calls_of_own++ % 2 ? fx_relu(x) : fx_square(x);
}

static void open_program(program *p, uint64_t seed, int mode)
{
    memset(p, 0, sizeof *p);
    p->state = seed;
    p->mode = mode;
    calls_of_own = 0;
    fx_seed(seed);
    p->model = fx_chain(fx_dense(3, 4, FX_TANH), fx_batchnorm(4), fx_dense(4, 4), fx_dense(4, 2));
    p->opt = fx_setup(fx_adam(.eta = 1e-2), p->model);
    p->x = fx_randn(3, 6);
    p->y = fx_abs(fx_randn(2, 6));
    fx_eval(fx_tuple(p->x, p->y, p->model));
}

static void change_layers(program *p, fx_function *own)
{
    fx_function *const functions[] = {FX_TANH, FX_RELU, own, FX_IDENTITY, FX_SIGMOID};
    fx_dense_layer *first = p->model->layers.items[0];
    fx_batchnorm_layer *norm = p->model->layers.items[1];
    first->act = functions[habit(p, 0, 5)];
    norm->act = functions[habit(p, 1, 5)];
    norm->epsilon = habit(p, 2, 2) ? 1e-5 : 1e-3;
    norm->momentum = habit(p, 3, 2) ? 0.1 : 0.25;
    norm->active = habit(p, 4, 6) == 1 ? FX_ACTIVE_OFF : FX_ACTIVE_AUTO;
}

/* The third layer by itself, or the same operations made by hand, some of whose results the program
 * reads after the update. */
static fx_array *third(program *p, fx_array *h, fx_array **kept)
{
    fx_dense_layer *l = p->model->layers.items[2];
    const int how = habit(p, 5, 4);
    if (how < 2)
        return fx_call(l, how == 1 ? fx_mul(h, 0.5 + pick(p, 2)) : h);
    *kept = fx_matmul(l->weight, h);
    return fx_add(*kept, fx_reshape(l->bias, 4, 1));
}

static fx_array *loss_of(program *p, fx_array *out)
{
    const int kind = habit(p, 6, 5);
    const double eps = habit(p, 7, 2) ? 1e-3 : 1e-6;
    return kind == 0   ? fx_mse(out, p->y)
           : kind == 1 ? fx_mse(out, p->y, .sum = true)
           : kind == 2 ? fx_msle(fx_abs(out), p->y, .eps = eps)
           : kind == 3 ? fx_huber_loss(out, p->y, .delta = eps * 1e3)
                       : fx_logitcrossentropy(out, p->y);
}

static void step(program *p, fx_function *own)
{
    change_layers(p, own);
    FXI_OPEN(p->mode);
    fx_array *kept = NULL, *h;
    void **layers = p->model->layers.items;
    if (habit(p, 8, 5) == 1) {
        FX_TEST;
        h = fx_keep(fx_call(layers[1], fx_call(layers[0], p->x)));
    } else {
        h = fx_call(layers[1], fx_call(layers[0], p->x));
    }
    if (habit(p, 9, 6) == 1) /* the statistics move twice */
        h = fx_add(h, fx_call(layers[1], h));
    fx_array *out = fx_call(layers[3], third(p, h, &kept));
    fx_array *loss = loss_of(p, out);
    if (pick(p, 4) == 0)
        fx_want(out);
    fx_update(p->opt, p->model, fx_gradient(loss, p->model));
    note(p, fx_item(loss));
    if (kept)
        note(p, fx_item(fx_sum(kept)));
    note(p, fx_error_take().status);
    fx_batchnorm_layer *norm = layers[1];
    note(p, fx_item(fx_sum(norm->mean)));
    note(p, fx_item(fx_sum(norm->var)));
    note(p, fx_item(fx_sum(norm->gamma)));
}

static void run_program(program *p, uint64_t seed, int mode)
{
    FX_SCOPE;
    fx_reclaim(); /* also frees the recordings of the previous program */
    open_program(p, seed, mode);
    fx_function *own = fx_function_new("alternating", alternating);
    for (int i = 0; i < STEPS; i++)
        step(p, own);
    ((fx_dense_layer *)p->model->layers.items[0])->act = NULL;
    ((fx_batchnorm_layer *)p->model->layers.items[1])->act = NULL;
}

/* Compares programs with recorded training steps with the same programs without. */
static void compare_programs(void (*run)(program *p, uint64_t seed, int mode), int part)
{
    static program a, b;
    int64_t repeated = 0, numbers = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run(&a, seed, FXI_SCOPE_STEP);
        const uint64_t before = fx_stats().repeated_evals;
        run(&b, seed, FXI_SCOPE_RECORD);
        repeated += (int64_t)(fx_stats().repeated_evals - before);
        numbers += a.n;
        assert_int_equal(a.n, b.n);
        for (int i = 0; i < a.n; i++)
            if (memcmp(&a.log[i], &b.log[i], sizeof a.log[i]) != 0 &&
                !(a.log[i] != a.log[i] && b.log[i] != b.log[i]))
                fail_msg("seed %d: number %d of %d is %.9g, with FX_STEP %.9g", (int)seed, i, a.n,
                         b.log[i], a.log[i]);
    }
    printf("%d evaluations repeated, %d numbers\n", (int)repeated, (int)numbers);
    assert_true(repeated > SEEDS * STEPS / part);
    assert_true(numbers > 2 * SEEDS * STEPS);
}

static void random_programs_compute_the_same_bits(void **state)
{
    (void)state;
    compare_programs(run_program, 16);
}

/* ---- values that an update replaces ---------------------------------------------------------- */

/* Uses of a parameter beside its update: to read it before or after, keep a pending
 * product or a view of it across updates, copy into it, pin it, update twice, or put another array
 * in its place right after the update. */
static void step_with_values(program *p)
{
    FXI_OPEN(p->mode);
    fx_dense_layer *l = p->model->layers.items[0];
    const int before = habit(p, 0, 8), after = habit(p, 1, 9);
    fx_array *loss = fx_mse(fx_call(p->model, p->x), p->y);
    fx_array *product = before == 1 ? fx_mul(l->weight, l->weight) : NULL;
    if (before == 2)
        note(p, fx_item(fx_sum(l->weight)));
    if (before == 3)
        fx_set(&p->old, fx_reshape(l->weight, 12));
    if (before == 4)
        fx_copy_into(l->bias, fx_full(0.25, 4));
    fx_update(p->opt, p->model, fx_gradient(loss, p->model));
    if (product)
        note(p, fx_item(fx_sum(product)));
    if (habit(p, 2, 6) == 1)
        fx_update(p->opt, p->model, fx_gradient(fx_mse(fx_call(p->model, p->x), p->y), p->model));
    if (after == 1)
        fx_set(&p->old, fx_mul(l->weight, 2));
    if (after == 2)
        note(p, fx_item(fx_sum(l->weight)));
    if (after == 3)
        fx_set(&l->weight, fx_mul(l->weight, 0.5));
    if (after == 4)
        note(p, ((const float *)fx_data(l->weight))[1]);
    if (after == 5)
        fx_copy_into(l->weight, fx_mul(l->weight, 0.75));
    if (after == 6) /* an error */
        note(p, fx_is_error(fx_gradient(loss, l->weight)));
    if (after == 7) { /* an error */
        fx_array *g;
        note(p, fx_pullback(loss, fx_scalar(1), &l->weight, 1, &g));
    }
    if (p->old && habit(p, 3, 4) == 1)
        note(p, fx_item(fx_sum(p->old)));
    note(p, fx_item(loss));
    note(p, fx_error_take().status);
}

static void run_with_values(program *p, uint64_t seed, int mode)
{
    FX_SCOPE;
    fx_reclaim();
    open_program(p, seed, mode);
    for (int i = 0; i < STEPS; i++) {
        step_with_values(p);
        if (pick(p, 5) == 0)
            note(p, fx_item(fx_sum(((fx_dense_layer *)p->model->layers.items[2])->weight)));
    }
    fx_set(&p->old, NULL);
}

static void replaced_values_are_the_same_bits(void **state)
{
    (void)state;
    compare_programs(run_with_values, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_skipped_if_everything_is_equal),
        cmocka_unit_test(the_call_after_a_part_changes),
        cmocka_unit_test(a_part_that_reads_another_array_is_made_again),
        cmocka_unit_test(literals_of_a_part_may_change),
        cmocka_unit_test(the_gradient_of_a_skipped_quotient_has_the_same_bits),
        cmocka_unit_test(the_same_calls_with_another_gradient),
        cmocka_unit_test(random_programs_compute_the_same_bits),
        cmocka_unit_test(replaced_values_are_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
