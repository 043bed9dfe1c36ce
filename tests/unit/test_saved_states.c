/* test_saved_states.c: optimiser states in files that fx_save writes. Training that continues from
 * the file is compared with training that was not interrupted: without the numbers of a state
 * (powers of β, counts, learning rate) its next updates would be different.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <string.h>

#include "temp_file.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static fx_array *x, *y;

static void *network(void)
{
    return fx_chain(fx_dense(3, 4, FX_TANH), fx_dense(4, 1));
}

static void train(void *model, void *state, int updates)
{
    for (int i = 0; i < updates; i++) {
        FX_STEP;
        fx_array *loss = fx_mse(fx_call(model, x), y);
        assert_int_equal(fx_update(state, model, fx_gradient(loss, model)), FX_OK);
    }
}

static double difference(void *a, void *b)
{
    return fx_item(fx_maximum(fx_abs(fx_sub(fx_destructure(a), fx_destructure(b)))));
}

static fx_rule *adam(void)
{
    return fx_adam(.eta = 0.1);
}
static fx_rule *radam(void)
{
    return fx_radam(.eta = 0.1);
}
static fx_rule *chained(void)
{
    return fx_optimiser_chain(fx_clip_grad(.delta = 1), fx_weight_decay(.lambda = 0.01),
                              fx_adamw(.eta = 0.1));
}
static fx_rule *descent(void)
{
    return fx_descent(.eta = 0.1);
}

static fx_rule *(*const rules[])(void) = {adam, radam, chained, descent};

/* Ten updates, a file, ten updates. `whole`: model and state are one object. */
static double continued(const char *file, fx_rule *(*rule)(void), bool whole)
{
    FX_SCOPE;
    const char *path = temp_text(file, "");
    void *m = network(), *s = fx_setup(rule(), m);
    train(m, s, 10);
    if (whole)
        assert_int_equal(fx_save(path, "run", fx_named_tuple("m", m, "s", s)), FX_OK);
    else
        assert_int_equal(fx_save(path, "model", m, "opt", s), FX_OK);

    void *n = network(), *t = fx_setup(rule(), n);
    fx_adjust_eta(t, 0.5); /* another learning rate, which the file replaces */
    const fx_status status = whole ? fx_load_into(path, "run", fx_named_tuple("m", n, "s", t))
                                   : fx_load_into(path, "model", n, "opt", t);
    if (status != FX_OK)
        fail_msg("%s", fx_error_take().message);
    train(m, s, 10);
    train(n, t, 10);
    return difference(m, n);
}

static void training_continues(void **state)
{
    (void)state;
    static const char *const files[] = {"s.safetensors", "s.npz", "s.bson"};
    for (int f = 0; f < COUNT(files); f++)
        for (int r = 0; r < COUNT(rules); r++)
            for (int whole = 0; whole < (f == 2 ? 1 : 2); whole++) {
                /* Optimisers.jl keeps the powers of β in Float32, and so do BSON files. Without
                 * the numbers the difference is about 0.1, a step of Adam. */
                const double most = f == 2 ? 1e-3 : 0;
                const double d = continued(files[f], rules[r], whole);
                if (!(d <= most))
                    fail_msg("%s, rule %d, %s: %g", files[f], r, whole ? "whole" : "two", d);
            }
}

static void a_state_from_another(void **state)
{
    (void)state;
    FX_SCOPE;
    void *m = network(), *s = fx_setup(adam(), m), *n = network(), *t = fx_setup(adam(), n);
    train(m, s, 10);
    assert_int_equal(fx_loadmodel(n, m), FX_OK);
    assert_int_equal(fx_loadmodel(t, s), FX_OK);
    train(m, s, 10);
    train(n, t, 10);
    assert_true(difference(m, n) == 0);
}

static void the_state_of_a_checkpoint(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_text("run.safetensors", "");
    void *m = network(), *s = fx_setup(adam(), m), *n = network(), *t = fx_setup(adam(), n);
    train(m, s, 10);
    assert_int_equal(fx_checkpoint_save(path, m, .state = s), FX_OK);
    assert_int_equal(fx_load_into(path, "model", n, "state", t), FX_OK);
    train(m, s, 10);
    train(n, t, 10);
    assert_true(difference(m, n) == 0);
}

static void keep_message(int level, const char *text, void *user)
{
    (void)level;
    snprintf(user, 300, "%s", text);
}

/* The arrays of a file without the last one, as earlier versions wrote it. */
static void *without_numbers(const char *path)
{
    const char *names[20];
    void *file = fx_load(path), *arrays[20];
    const int n = (int)fx_count(file) - 1;
    assert_true(n > 0 && n <= COUNT(arrays));
    assert_string_equal(fx_child_name(file, n), "opt.cflux.numbers");
    for (int i = 0; i < n; i++)
        names[i] = fx_child_name(file, i), arrays[i] = fx_child(file, i);
    return fx_named_tuple_from(n, names, arrays);
}

static void a_file_without_numbers(void **state)
{
    (void)state;
    FX_SCOPE;
    char message[300] = "";
    const char *path = temp_text("arrays.safetensors", "");
    void *m = network(), *s = fx_setup(adam(), m), *t = fx_setup(adam(), m);
    train(m, s, 1);
    assert_int_equal(fx_save(path, "opt", s), FX_OK);
    assert_int_equal(fx_save(path, "", without_numbers(path)), FX_OK);
    fx_message_set_hook(keep_message, message);
    assert_int_equal(fx_load_into(path, "opt", t), FX_OK);
    fx_message_set_hook(NULL, NULL);
    assert_non_null(strstr(message, "has no numbers of the optimiser state \"opt\", only arrays"));
}

/* The numbers of another rule, or of tied arrays, do not fit: the arrays are loaded with a message.
 */
static void the_state_of_another_rule(void **state)
{
    (void)state;
    FX_SCOPE;
    char message[300] = "";
    const char *path = temp_text("rule.safetensors", "");
    void *m = network(), *s = fx_setup(adam(), m), *t = fx_setup(fx_adamw(.eta = 0.1), m);
    fx_array *w = fx_randn(3);
    void *tied = fx_setup(adam(), fx_tuple(w, w)),
         *two = fx_setup(adam(), fx_tuple(w, fx_add(w, 0)));
    train(m, s, 3);
    assert_int_equal(fx_save(path, "opt", s), FX_OK);
    fx_message_set_hook(keep_message, message);
    assert_int_equal(fx_load_into(path, "opt", t), FX_OK);
    assert_non_null(strstr(message, "are unchanged"));
    assert_true(difference(s, t) == 0);
    *message = '\0';
    assert_int_equal(fx_loadmodel(two, tied), FX_OK);
    assert_non_null(strstr(message, "are unchanged"));
    fx_message_set_hook(NULL, NULL);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void matches(const char *path, const char *name, void *object, const char *report)
{
    char text[600] = "";
    void *found = fx_load_matching(path, name, object);
    if (fx_is_error(found))
        fail_msg("%s %s: %s", path, name, fx_error_take().message);
    fx_show_text(found, text, sizeof text);
    assert_string_equal(text, report);
}

/* fx_load_matching loads the numbers too if all arrays match: training continues. */
static void matching_continues(void **state)
{
    (void)state;
    static const char *const files[] = {"m.safetensors", "m.npz", "m.bson"};
    for (int f = 0; f < COUNT(files); f++)
        for (int r = 0; r < COUNT(rules); r++) {
            FX_SCOPE;
            const char *path = temp_text(files[f], "");
            void *m = network(), *s = fx_setup(rules[r](), m);
            void *n = network(), *t = fx_setup(rules[r](), n);
            train(m, s, 10);
            assert_int_equal(fx_save(path, "model", m, "opt", s), FX_OK);
            fx_adjust_eta(t, 0.5);
            matches(path, "model", n, "all arrays match");
            matches(path, "opt", t, "all arrays match");
            train(m, s, 10);
            train(n, t, 10);
            if (!(difference(m, n) <= (f == 2 ? 1e-3 : 0))) /* as in training_continues */
                fail_msg("%s, rule %d: %g", files[f], r, difference(m, n));
        }
    FX_SCOPE;
    const char *path = temp_text("run.safetensors", "");
    void *m = network(), *s = fx_setup(adam(), m), *n = network(), *t = fx_setup(adam(), n);
    train(m, s, 10);
    assert_int_equal(fx_checkpoint_save(path, m, .state = s), FX_OK);
    matches(path, "model", n, "all arrays match");
    matches(path, "state", t, "all arrays match");
    train(m, s, 10);
    train(n, t, 10);
    assert_true(difference(m, n) == 0);
}

/* If only some arrays match, or if the file has no numbers or those of another rule, the numbers
 * are unchanged and a message says why. */
static void matching_in_part(void **state)
{
    (void)state;
    FX_SCOPE;
    char message[300] = "";
    const char *path = temp_text("part.npz", ""), *bson = temp_text("part.bson", "");
    void *m = network(), *s = fx_setup(adam(), m);
    train(m, s, 10);
    fx_adjust_eta(s, 0.25);
    assert_int_equal(fx_save(path, "opt", s), FX_OK);
    assert_int_equal(fx_save(bson, "model", m, "opt", s), FX_OK);
    void *other = fx_chain(fx_dense(3, 4, FX_TANH), fx_dense(4, 2));
    fx_message_set_hook(keep_message, message);
    for (int i = 0; i < 2; i++) {
        void *t = fx_setup(adam(), other), *report;
        *message = '\0';
        report = fx_load_matching(i ? bson : path, "opt", t);
        assert_false(fx_is_error(report));
        assert_int_equal(fx_count(fx_child_named(report, "other_sizes")),
                         4); /* moments of 2 arrays */
        assert_int_equal(fx_count(fx_child_named(report, "unused")), i ? 0 : 1); /* the numbers */
        assert_non_null(strstr(message,
                               "\"opt\", such as its learning rate, are unchanged, because "
                               "only some of its arrays match"));
        assert_true(fx_eta(t) == 0.1);
    }
    void *w = fx_setup(fx_adamw(.eta = 0.1), m);
    *message = '\0';
    matches(path, "opt", w, "all arrays match");
    assert_non_null(strstr(message, "are unchanged"));
    assert_true(fx_eta(w) == 0.1 && difference(s, w) == 0);
    assert_int_equal(fx_save(path, "", without_numbers(path)), FX_OK);
    *message = '\0';
    matches(path, "opt", fx_setup(adam(), m), "all arrays match");
    assert_non_null(strstr(message, "has no numbers of the optimiser state \"opt\", only arrays"));
    fx_message_set_hook(NULL, NULL);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* A parameter that was frozen before the file is loaded stays frozen. */
static void frozen_parameters_stay_frozen(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_text("frozen.safetensors", "");
    void *m = network(), *s = fx_setup(adam(), m), *t = fx_setup(adam(), m);
    train(m, s, 3);
    assert_int_equal(fx_save(path, "opt", s), FX_OK);
    for (int way = 0; way < 2; way++) {
        assert_int_equal(fx_freeze(t), FX_OK);
        assert_int_equal(way ? fx_loadmodel(t, s) : fx_load_into(path, "opt", t), FX_OK);
        fx_array *before = fx_destructure(m);
        fx_eval(before);
        train(m, t, 2);
        assert_true(fx_item(fx_maximum(fx_abs(fx_sub(before, fx_destructure(m))))) == 0);
    }
}

/* States that were saved as several objects, or as one, and are loaded otherwise. */
static void other_names(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_text("names.safetensors", "");
    void *m = network(), *s = fx_setup(adam(), m), *n = network(), *t = fx_setup(adam(), n);
    train(m, s, 3);
    assert_int_equal(fx_save(path, "model", m, "state", s), FX_OK);
    assert_int_equal(fx_load_into(path, "", fx_named_tuple("model", n, "state", t)), FX_OK);
    assert_true(difference(m, n) == 0 && difference(s, t) == 0);
    /* Two objects with one name, as the parts of a GAN. */
    void *k = network(), *u = fx_setup(adam(), k);
    assert_int_equal(
        fx_save(path, "", fx_named_tuple("g", m, "gopt", s), "", fx_named_tuple("d", k, "dopt", u)),
        FX_OK);
    assert_int_equal(fx_load_into(path, "g", n, "gopt", t), FX_OK);
    /* The state of a single array. */
    fx_array *w = fx_randn(3);
    void *one = fx_setup(adam(), w);
    assert_int_equal(fx_save(path, "", one), FX_OK);
    assert_int_equal(fx_loadmodel(one, fx_load(path)), FX_OK);
}

/* Nothing changes if an array does not fit. */
static void nothing_is_half_loaded(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_text("other.safetensors", "");
    void *m = network(), *s = fx_setup(adam(), m);
    train(m, s, 3);
    assert_int_equal(fx_save(path, "opt", s), FX_OK);

    void *wide = fx_chain(fx_dense(3, 5, FX_TANH), fx_dense(5, 1)),
         *again = fx_chain(fx_dense(3, 5, FX_TANH), fx_dense(5, 1));
    assert_int_equal(fx_loadmodel(again, wide), FX_OK);
    void *v = fx_setup(adam(), wide), *w = fx_setup(adam(), again);
    assert_int_equal(fx_load_into(path, "opt", v), FX_STATUS_SHAPE);
    fx_error_take();
    train(wide, v, 3);
    train(again, w, 3);
    assert_true(difference(wide, again) == 0);
}

int main(void)
{
    fx_seed(1);
    x = fx_randn(3, 20), y = fx_sum(x, .dims = FX_AXES(0));
    fx_eval(x), fx_eval(y);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_continues),
        cmocka_unit_test(a_state_from_another),
        cmocka_unit_test(the_state_of_a_checkpoint),
        cmocka_unit_test(a_file_without_numbers),
        cmocka_unit_test(nothing_is_half_loaded),
        cmocka_unit_test(the_state_of_another_rule),
        cmocka_unit_test(matching_continues),
        cmocka_unit_test(matching_in_part),
        cmocka_unit_test(other_names),
        cmocka_unit_test(frozen_parameters_stay_frozen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
