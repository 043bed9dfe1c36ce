/* Tests of src/optim/update.c, setup.c, updated.c and state_walk.c: the numbers of a state, which
 * parts of a model have a state, several updates at once of which one fails, and fx_updated without
 * memory. Expected values are the rules' formulas.
 */
#include "composite_check.h"
#include "memory.h"
#include "state_parts.h"

#include <cflux.h>

typedef struct Pair {
    fx_object base;
    fx_array *actor, *critic;
} Pair;
FX_STRUCT(Pair, actor, critic);

static fx_array *numbers(double first, double second)
{
    return fx_vector(first, second);
}

/* The numbers of two leaves that differ in nothing but the learning rate come back as two rates. */
static void numbers_of_a_state(void **test)
{
    (void)test;
    FX_SCOPE;
    void *model = fx_tuple(numbers(1, 2), numbers(3, 4));
    void *state = fx_setup(fx_momentum(.eta = 0.125), model);
    assert_int_equal(fx_adjust_eta(fx_child(state, 1), 0.5), FX_OK);
    double saved[64];
    const int64_t n = fxi_state_numbers(state, saved, 64);
    assert_in_range(n, 2, 64);
    void *other = fx_setup(fx_momentum(.eta = 0.25), model);
    assert_int_equal(fxi_state_numbers_set(other, saved, n, false), FX_OK);
    assert_true(fx_eta(fx_child(other, 0)) == 0.125);
    assert_true(fx_eta(fx_child(other, 1)) == 0.5);
    /* the bytes before the numbers are ignored */
    double twice[128];
    memcpy(twice, saved, (size_t)n * sizeof *saved);
    memcpy(twice + n / 2, saved, (size_t)n * sizeof *saved);
    other = fx_setup(fx_momentum(.eta = 0.25), model);
    assert_int_equal(fxi_state_numbers_set(other, twice + n / 2, n, false), FX_OK);
    assert_true(fx_eta(fx_child(other, 0)) == 0.125);
    assert_true(fx_eta(fx_child(other, 1)) == 0.5);
    assert_int_equal(fxi_state_numbers_set(other, saved, n - 1, false), FX_STATUS_ARGUMENT);
    fx_error_take();
    assert_true(fx_eta(fx_child(other, 1)) == 0.5);
}

/* Whole numbers and flags are not rounded; after an error no rule has changed. */
static void adjusting_whole_numbers(void **test)
{
    (void)test;
    FX_SCOPE;
    fx_array *x = numbers(1, 2);
    void *state = fx_setup(fx_optimiser_chain(fx_clip_norm(1), fx_accum_grad(3), fx_adamw()), x);
    const struct {
        fx_status status;
        const char *text;
    } rows[] = {{fx_adjust(state, .eta = 0.5, .n = 2.7), "AccumGrad: n must be a whole number"},
                {fx_adjust(state, .n = 1e300), "AccumGrad: n must be a whole number"},
                {fx_adjust(state, .n = 0),
                 "AccumGrad: the number of gradients n must be at least 1, got 0"},
                {fx_adjust(state, .couple = 0.5), "AdamW: couple must be 0 or 1, got 0.5"},
                {fx_adjust(state, .throws = -1), "ClipNorm: throws must be 0 or 1, got -1"}};
    for (int i = 0; i < COUNT(rows); i++)
        assert_int_equal(rows[i].status, FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, rows[0].text));
    assert_true(fx_eta(state) == 0.001);
    for (int i = 1; i < COUNT(rows); i++)
        fx_error_take();
    assert_int_equal(fx_adjust(state, .n = 2, .couple = 0, .throws = 0), FX_OK);
}

/* The state of a model without parameters has no numbers, however the model is nested; it can be
 * adjusted, frozen and saved like any other. An object that is not a state gives -1. */
static void numbers_of_nothing(void **test)
{
    (void)test;
    FX_SCOPE;
    double saved[4];
    void *const models[] = {FX_RELU, fx_chain(FX_RELU), fx_chain(FX_RELU, fx_chain(FX_TANH)),
                            fx_tuple(fx_tuple(), fx_tuple(fx_tuple(fx_tuple())))};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        void *state = fx_setup(fx_descent(), models[i]);
        assert_int_equal(fxi_state_numbers(state, saved, 4), 0);
        assert_int_equal(fxi_state_numbers_set(state, saved, 0, false), FX_OK);
        assert_int_equal(fx_adjust_eta(state, 0.5), FX_OK);
        assert_int_equal(fx_freeze(state), FX_OK);
        assert_int_equal(fx_thaw(state), FX_OK);
    }
    assert_int_equal(fxi_state_numbers(fx_tuple(numbers(1, 2)), saved, 4), -1);
    assert_int_equal(fxi_state_numbers(fx_tuple(fx_tuple(), FX_RELU), saved, 4), -1);
    assert_int_equal(fxi_state_numbers(fx_chain(FX_RELU), saved, 4), -1);
    assert_int_equal(fxi_state_numbers(NULL, saved, 4), -1);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Older files have the numbers of a tied array once for every path to it: with w on
 * three paths and b on one that is w, b, w, w. */
static void numbers_of_tied_arrays(void **test)
{
    (void)test;
    FX_SCOPE;
    enum { EACH = 11, ETA = 1, FROZEN = 10 };
    fx_array *w = numbers(1, 2), *b = numbers(3, 4);
    void *model = fx_tuple(fx_tuple(w, b), fx_tuple(w, w));
    void *state = fx_setup(fx_momentum(.eta = 0.25), model);
    double now[2 * EACH], old[4 * EACH];
    assert_int_equal(fxi_state_numbers(state, now, 2 * EACH), 2 * EACH);
    now[ETA] = 0.5;         /* of w */
    now[EACH + FROZEN] = 1; /* b */
    const int order[] = {0, 1, 0, 0};
    for (int i = 0; i < 4; i++)
        memcpy(old + i * EACH, now + order[i] * EACH, EACH * sizeof *old);
    assert_int_equal(fxi_state_numbers_set(state, old, 3 * EACH, false), FX_STATUS_ARGUMENT);
    assert_int_equal(fxi_state_numbers_set(state, old, 5 * EACH, false), FX_STATUS_ARGUMENT);
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_int_equal(fxi_state_numbers_set(state, old, 4 * EACH, false), FX_OK);
    fxi_leaf first, second;
    assert_true(fxi_leaf_of(fx_child(fx_child(state, 0), 0), &first));
    assert_true(fxi_leaf_of(fx_child(fx_child(state, 0), 1), &second));
    assert_true(fx_eta(fx_child(fx_child(state, 0), 0)) == 0.5 && !first.frozen);
    assert_true(fx_eta(fx_child(fx_child(state, 0), 1)) == 0.25 && second.frozen);
}

/* Trees of different structures are refused, and nothing is updated. */
static void other_structures_are_refused(void **test)
{
    (void)test;
    FX_SCOPE;
    fx_array *x = fx_ones(2, 1);
    fx_dense_layer *first = fx_dense(2, 2), *second = fx_dense(2, 2);
    void *two = fx_chain(first, second), *one = fx_chain(first), *deep = fx_chain(two),
         *deep_one = fx_chain(one);
    void *const models[] = {one, two, deep, deep_one};
    fx_eval(deep);
    const double before = fx_item(fx_sum(first->weight));
    int refused = 0;
    for (int m = 0; m < 4; m++)
        for (int s = 0; s < 4; s++)
            for (int g = 0; g < 4; g++) {
                FX_SCOPE;
                void *state = fx_setup(fx_descent(), models[s]);
                void *gradient = fx_gradient(fx_sum(fx_call(models[g], x)), models[g]);
                const bool fits = m == s && m == g;
                if (fits)
                    continue;
                assert_int_equal(fx_update(state, models[m], gradient), FX_STATUS_ARGUMENT);
                assert_non_null(
                    strstr(fx_error_take().message, "does not have the model's structure"));
                assert_true(fx_item(fx_sum(first->weight)) == before);
                refused++;
            }
    assert_int_equal(refused, 60);
    static const struct {
        int state, model, gradient;
        const char *message;
    } rows[] = {
        {1, 1, 0, "the gradient does not have the model's structure: 1 child instead of 2"},
        {2, 2, 3,
         "the gradient does not have the model's structure at \"layers.0\": 1 child instead of 2"},
        {3, 2, 2,
         "the state does not have the model's structure at \"layers.0\": 1 child instead of 2"},
        {2, 2, 1, "the gradient does not have the model's structure: 2 children instead of 1"},
        {1, 1, 4, "the gradient does not have the model's structure: Dense instead of Chain"},
    };
    void *const all[] = {one, two, deep, deep_one, first};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        FX_SCOPE;
        void *from = all[rows[i].gradient], *model = all[rows[i].model];
        assert_int_equal(fx_update(fx_setup(fx_descent(), all[rows[i].state]), model,
                                   fx_gradient(fx_sum(fx_call(from, x)), from)),
                         FX_STATUS_ARGUMENT);
        assert_non_null(strstr(fx_error_take().message, rows[i].message));
    }
    fx_array *loss = fx_sum(fx_call(one, x)); /* as PyTorch's optimisers, without a gradient */
    assert_int_equal(fx_update(fx_setup(fx_descent(), one), one, loss), FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message,
                           "needs the gradient fx_gradient(loss, model), got 0-dimensional"));
    assert_int_equal(fx_error_status(), FX_OK);
}

/* A layer was replaced by one of another size after fx_setup. The update must not broadcast the
 * state's arrays, and nothing changes, not even the layer in front. */
static void state_of_another_size(void **test)
{
    (void)test;
    FX_SCOPE;
    fx_dense_layer *a = fx_dense(2, 2, .init = fx_ones_init);
    fx_rule *const rules[] = {fx_adam(), fx_momentum(),
                              fx_optimiser_chain(fx_accum_grad(2), fx_descent())};
    for (int r = 0; r < 3; r++) {
        void *state = fx_setup(rules[r], fx_chain(a, fx_dense(2, 1, .bias = false)));
        void *other = fx_chain(a, fx_dense(2, 3, .bias = false));
        for (int i = 0; i < 2; i++) {
            FX_SCOPE;
            void *gradient = fx_gradient(fx_sum(fx_call(other, fx_ones(2, 1))), other);
            assert_int_equal(fx_update(state, other, gradient), FX_STATUS_SHAPE);
            assert_string_equal(
                fx_error_take().message,
                "update: the state was made for a parameter of size 1×2, but the parameter is a "
                "3×2 Matrix{Float32}; make a state for this model with fx_setup");
            assert_true(fx_is_error(fx_child(fx_updated(state, other, gradient), 1)));
            assert_int_equal(fx_error_take().status, FX_STATUS_SHAPE);
        }
        assert_true(fx_item(fx_sum(a->weight)) == 4);
    }
    /* A state of a 0-d parameter; then a rule without arrays, whose state fits every size. */
    fx_array *one = fx_ones(), *two = fx_ones(2);
    assert_int_equal(fx_update(fx_setup(fx_adam(), one), two, fx_ones(2)), FX_STATUS_SHAPE);
    assert_non_null(
        strstr(fx_error_take().message, "of size (), but the parameter is a 2-element"));
    assert_int_equal(fx_update(fx_setup(fx_descent(1), one), two, fx_ones(2)), FX_OK);
    assert_true(fx_item(fx_sum(two)) == 0);
}

/* A rule that could not be made has recorded its reason; any other object is reported as not a
 * rule. */
static void setup_without_a_rule(void **test)
{
    (void)test;
    FX_SCOPE;
    void *model = fx_dense(2, 2), *error = fx_error_array(FX_STATUS_MEMORY);
    fx_fail(FX_STATUS_MEMORY, "adam", "no memory for the rule");
    assert_int_equal(fx_array_status(fx_setup(error, model)), FX_STATUS_MEMORY);
    assert_string_equal(fx_error_take().message, "adam: no memory for the rule");
    void *const others[] = {error, model, NULL};
    const char *const got[] = {"an error object", "Dense", "NULL"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fx_array_status(fx_setup(others[i], model)), FX_STATUS_ARGUMENT);
        char text[100];
        snprintf(text, sizeof text, "setup: expects an optimiser rule, got %s", got[i]);
        assert_string_equal(fx_error_take().message, text);
    }
}

/* A plain struct is opaque: it has no state, and its arrays are not updated. */
static void structs_have_no_state(void **test)
{
    (void)test;
    FX_SCOPE;
    Pair *pair = fx_new(Pair, .actor = numbers(1, 2), .critic = numbers(3, 4));
    fx_array *free_one = numbers(5, 6);
    void *state = fx_setup(fx_descent(.eta = 1), fx_tuple(pair, free_one));
    assert_int_equal(fx_count(state), 2);
    assert_int_equal(fx_count(fx_child(state, 0)), 0);
    assert_true(fx_eta(fx_child(state, 1)) == 1);
}

/* The status is that of the object, not that of an earlier failure that is still recorded. */
static void status_of_error_objects(void **test)
{
    (void)test;
    FX_SCOPE;
    fx_array *x = numbers(1, 2);
    void *state = fx_setup(fx_descent(.eta = 0.5), x);
    void *layer = fx_chain(fx_error_array(FX_STATUS_DEVICE));
    assert_false(fx_is_array(layer));
    assert_true(fx_is_error(layer));
    fx_error_take();
    fx_fail(FX_STATUS_IO, "load", "an earlier failure");
    assert_int_equal(fx_update(layer, x, x), FX_STATUS_ARGUMENT);
    assert_int_equal(fx_update(state, layer, x), FX_STATUS_ARGUMENT);
    assert_int_equal(fx_update(state, x, layer), FX_STATUS_ARGUMENT);
    assert_int_equal(fx_update(state, x, fx_error_array(FX_STATUS_SHAPE)), FX_STATUS_SHAPE);
    assert_string_equal(fx_error_take().message, "load: an earlier failure");
    assert_int_equal(fx_update(state, layer, x), FX_STATUS_ARGUMENT);
    assert_string_equal(fx_error_take().message, "update: the model is an error object");
    check_array("x", x, 2, (const double[]){1, 2}, 0, 0);
}

/* A parameter without a gradient is unchanged. */
static void parts_without_gradient(void **test)
{
    (void)test;
    FX_SCOPE;
    fx_array *x = numbers(1, 2), *y = numbers(3, 4);
    void *model = fx_tuple(x, y), *state = fx_setup(fx_descent(.eta = 0.5), model);
    assert_int_equal(fx_update(state, model, fxi_tuple(2, (void *[]){NULL, numbers(1, 2)})), FX_OK);
    check_array("x", x, 2, (const double[]){1, 2}, 0, 0);
    check_array("y", y, 2, (const double[]){2.5, 3}, 0, 0);
}

/* The first failure is the one that is returned, and nothing is updated. */
static void first_failure_of_several(void **test)
{
    (void)test;
    FX_SCOPE;
    fx_array *x = numbers(1, 2), *y = numbers(3, 4);
    void *good = fx_setup(fx_descent(.eta = 1), x);
    void *const states[] = {good, fx_error_array(fx_fail(FX_STATUS_SHAPE, "test", "on purpose"))};
    void *const models[] = {x, y}, *const gradients[] = {fx_tuple(numbers(1, 1)), numbers(1, 1)};
    fx_error_take();
    assert_int_equal(fx_update_all(2, states, models, gradients), FX_STATUS_ARGUMENT);
    fx_error_take();
    check_array("x", x, 2, (const double[]){1, 2}, 0, 0);
    check_array("y", y, 2, (const double[]){3, 4}, 0, 0);
}

/* A gradient that the program has put together may have another element type. If the new parameter
 * or state would have another type than the old one, both functions refuse it. */
static void types_of_gradients(void **test)
{
    (void)test;
    static const fx_dtype types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16, FX_DTYPE_BF16};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            FX_SCOPE;
            fx_array *x = fx_cast(numbers(1, 2), types[i]), *g = fx_cast(numbers(1, 1), types[k]);
            fx_rule *rule = i % 2 ? fx_descent(0.5) : fx_momentum(0.5);
            void *state = fx_setup(rule, x), *both = fx_updated(state, x, g);
            fx_array *new = fx_child(both, 1);
            const fx_error e = fx_error_take();
            const fx_status status = fx_update(state, x, g);
            assert_int_equal(e.status, status);
            assert_int_equal(fx_is_error(new), status != FX_OK);
            if (status == FX_OK) {
                assert_int_equal(fx_eltype(new), types[i]);
                check_array("x", x, 2, (const double[]){0.5, 1.5}, 0, 0);
                check_array("new x", new, 2, (const double[]){0.5, 1.5}, 0, 0);
            } else {
                assert_int_not_equal(types[i], types[k]);
                assert_string_equal(e.message, fx_error_take().message);
                check_array("x", x, 2, (const double[]){1, 2}, 0, 0);
            }
        }
}

/* x − η·dx in a new model, or an error when any one allocation fails. */
static void updated_without_memory(void **test)
{
    (void)test;
    int failures = 0;
    for (int64_t k = 0;; k++) {
        FX_SCOPE;
        fx_array *x = numbers(1, 2), *y = numbers(3, 4);
        void *model = fx_tuple(x, y), *state = fx_setup(fx_adam(.eta = 0.5), model);
        void *gradient = fx_tuple(numbers(1, 1), numbers(1, 1));
        fxi_fault_set(k);
        void *both = fx_updated(state, model, gradient);
        const bool reached = fxi_fault_seen() > k;
        fxi_fault_set(-1);
        if (!reached) {
            assert_false(fx_is_error(both));
            check_array("x", fx_child(fx_child(both, 1), 0), 2, (const double[]){0.5, 1.5}, 1e-6,
                        0);
            break;
        }
        failures++;
        if (fx_is_error(both) || fx_is_error(fx_child(both, 0)) || fx_is_error(fx_child(both, 1)))
            assert_int_equal(fx_error_take().status, FX_STATUS_MEMORY);
        check_array("the old x", x, 2, (const double[]){1, 2}, 0, 0);
    }
    assert_in_range(failures, 20, 100000);
}

/* Each allocation fails in turn: the status is that of memory, never that of a wrong argument. */
static void adjusted_without_memory(void **test)
{
    (void)test;
    int failures = 0;
    for (int64_t k = 0;; k++) {
        FX_SCOPE;
        void *model = fx_tuple(numbers(1, 2), numbers(3, 4)), *nested = model;
        for (int i = 0; i < 80; i++)
            nested = fx_tuple(nested);
        void *state = fx_setup(fx_adam(.eta = 0.5), nested);
        fxi_fault_set(k);
        const fx_status status = fx_adjust(state, .eta = 0.25);
        const bool reached = fxi_fault_seen() > k;
        fxi_fault_set(-1);
        if (!reached) {
            assert_int_equal(status, FX_OK);
            break;
        }
        failures++;
        assert_int_equal(status, FX_STATUS_MEMORY);
        assert_int_equal(fx_error_take().status, FX_STATUS_MEMORY);
    }
    assert_in_range(failures, 3, 10000);
}

/* ---- a loss that does not depend on the model ------------------------------------------------ */

static int warnings;
static void count_warnings(int level, const char *text, void *user)
{
    (void)user;
    warnings += level == 1 && strstr(text, "the loss does not depend on any parameter") != NULL;
}

static fx_array *squares_of_data(void *model, const fx_batch *b, void *user)
{
    (void)model, (void)user;
    return fx_mean(fx_square(b->x));
}
static fx_array *squares(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_mean(fx_square(fx_call(model, b->x)));
}

/* Three training steps. uses: the loss is that of the model's output. */
static int warnings_of_steps(fx_chain_layer *m, void *opt, bool uses)
{
    warnings = 0;
    for (int i = 0; i < 3; i++) {
        FX_RECORD;
        fx_array *x = fx_ones(2, 4);
        fx_array *loss = fx_sum(fx_square(uses ? fx_call(m, x) : x));
        assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
    }
    return warnings;
}

static void loss_without_the_model(void **test)
{
    (void)test;
    FX_SCOPE;
    fx_message_set_hook(count_warnings, NULL);
    fx_chain_layer *m = fx_chain(fx_dense(2, 3), fx_dense(3, 1));
    void *opt = fx_setup(fx_adam(), m);
    assert_int_equal(warnings_of_steps(m, opt, true), 0);
    assert_int_equal(warnings_of_steps(m, opt, false), 1);
    assert_int_equal(warnings_of_steps(m, opt, false), 0); /* once for a state */
    /* one array of four is enough */
    fx_dense_layer *second = fx_child(m, 1);
    fx_array *loss = fx_sum(second->bias);
    opt = fx_setup(fx_descent(), m);
    warnings = 0;
    assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
    assert_int_equal(warnings, 0);
    /* only frozen ones are not */
    fx_freeze(fx_child(opt, 1));
    loss = fx_sum(second->weight);
    assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
    assert_int_equal(warnings, 1);
    /* fx_train, also where it clips the gradient */
    for (int clipped = 0; clipped < 2; clipped++)
        for (int uses = 0; uses < 2; uses++) {
            warnings = 0;
            fx_loader *data = fx_dataloader(fx_ones(2, 8), .batchsize = 4);
            assert_int_equal(fx_train(uses ? squares : squares_of_data, m, data,
                                      fx_setup(fx_descent(), m), .epochs = 2,
                                      .clip_norm = clipped ? 1 : 0),
                             FX_OK);
            assert_int_equal(warnings, 1 - uses);
        }
    fx_message_set_hook(NULL, NULL);
}

static void *square_of_layer(void *model, const fx_batch *batch, void *user)
{
    (void)batch;
    return fx_sum(fx_square(fx_call(fx_child(model, *(int64_t *)user), fx_ones(2, 3))));
}

/* Frozen, so that only the update with its gradient changes the model. */
static void *gradient_of_trainstep(void *m, int64_t layer)
{
    void *frozen =
        fx_setup(fx_mixed_precision(fx_descent(0), .type = FX_DTYPE_F32, .scale = 64), m);
    return fx_child_named(fx_trainstep_withgradient(square_of_layer, m, NULL, frozen, &layer),
                          "gradient");
}

/* One step of a model of two layers whose loss uses only one of them. how 1: recorded; 2: with
 * clipped gradients; 3: out of place; 4: with the mean of one gradient; 5: with the gradient of a
 * training step that scales its loss. */
static void use_one_layer(void *opt, void *m, int64_t layer, int how)
{
    FXI_OPEN(how == 1 ? FXI_SCOPE_RECORD : FXI_SCOPE_STEP);
    void *g = how == 5 ? gradient_of_trainstep(m, layer)
                       : fx_gradient(square_of_layer(m, NULL, &layer), m);
    g = how == 2 ? fx_clip_global_norm(g, 0.5) : g;
    if (how == 4)
        assert_int_equal(fx_average(1, &g), FX_OK);
    if (how != 3) {
        assert_int_equal(fx_update(opt, m, g), FX_OK);
        return;
    }
    void *both = fx_updated(opt, m, g);
    assert_int_equal(fx_loadmodel(m, fx_child(both, 1)), FX_OK);
    assert_int_equal(fx_loadmodel(opt, fx_child(both, 0)), FX_OK);
}

/* Flux's gradient of an array that the loss does not use is `nothing`, and Optimisers.jl then skips
 * the array and its state: weight decay and the momentum of earlier steps do not change it. */
static void unused_arrays_stay(void **test)
{
    (void)test;
    for (int how = 0; how < 6; how++) {
        FX_SCOPE;
        fx_dense_layer *a = fx_dense(2, 2), *b = fx_dense(2, 2);
        void *m = fx_tuple(a, b), *opt = fx_setup(fx_adamw(0.1, .lambda = 0.1), m);
        use_one_layer(opt, m, 1, how); /* gives b a momentum */
        double used = fx_at(a->weight, 3), old[4], now[4];
        fx_array *moment = fx_child(fx_child_named(fx_child(opt, 1), "weight"), 0);
        const double old_moment = fx_at(moment, 0);
        check_read("weight", b->weight, old, 4);
        for (int k = 0; k < 3; k++)
            use_one_layer(opt, m, 0, how);
        check_read("weight", b->weight, now, 4);
        for (int i = 0; i < 4; i++)
            assert_true(now[i] == old[i]);
        assert_true(fx_at(moment, 0) == old_moment);
        assert_true(fx_at(a->weight, 3) != used);
        use_one_layer(opt, m, 1, how);
        assert_true(fx_at(b->weight, 0) != old[0]);
        assert_int_equal(fx_error_status(), FX_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unused_arrays_stay),       cmocka_unit_test(numbers_of_a_state),
        cmocka_unit_test(numbers_of_nothing),       cmocka_unit_test(numbers_of_tied_arrays),
        cmocka_unit_test(structs_have_no_state),    cmocka_unit_test(other_structures_are_refused),
        cmocka_unit_test(state_of_another_size),    cmocka_unit_test(setup_without_a_rule),
        cmocka_unit_test(first_failure_of_several), cmocka_unit_test(parts_without_gradient),
        cmocka_unit_test(updated_without_memory),   cmocka_unit_test(types_of_gradients),
        cmocka_unit_test(adjusting_whole_numbers),  cmocka_unit_test(adjusted_without_memory),
        cmocka_unit_test(loss_without_the_model),   cmocka_unit_test(status_of_error_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
