/* test_shared_trees.c: every public function that walks a tree of objects takes time for the
 * objects, not for the paths to them, and keeps shared objects shared. ctest: native
 *
 * A row is a function of the library with a check of its result. Each row runs on a small tree and
 * on chains in which every object holds the next one twice: 40 objects, 2^40 paths. The same checks
 * must hold for both. A row runs in a process of its own, which the system ends after SECONDS of
 * CPU time. tests/structure/check_shared_trees.py checks that every function of the headers that
 * takes a tree has a row here.
 */
#include <cflux.h>

#include "state_parts.h"
#include "temp_file.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 10, SMALL = 2, LARGE = 40, ROOM = 400 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWER = 5 };
#else
enum { SLOWER = 1 };
#endif

/* ---- trees ----------------------------------------------------------------------------------- */

typedef struct Twice {
    fx_object base;
    void *left, *right;
} Twice;
static void *first_argument(void *self, int n, void *const *args)
{
    (void)self;
    return n > 0 ? args[0] : NULL;
}
FX_LAYER(Twice, first_argument, left, right);

typedef struct Tip {
    fx_object base;
    fx_array *weight, *bias;
    void *mode; /* a Dropout */
} Tip;
FX_FUNCTOR(Tip, weight, bias, mode);

/* A tree, and a second one like it with other values. */
typedef struct tree {
    void *root, *like;
    int depth;
    bool tuples; /* made of tuples; else of the program's structs */
} tree;

static void *make_tip(double value)
{
    return fx_new(Tip, .weight = fx_full(value, 3, 2), .bias = fx_full(value, 3),
                  .mode = fx_dropout(0.5));
}

static void *make_tree(int depth, bool tuples, double value)
{
    void *x = make_tip(value);
    for (int i = 0; i < depth; i++)
        x = tuples ? fx_tuple(x, x) : (void *)fx_new(Twice, .left = x, .right = x);
    return x;
}

static void check_that(bool holds, const char *what, int line)
{
    char text[2 * ROOM];
    if (holds)
        return;
    const fx_error e = fx_error_take();
    snprintf(text, sizeof text, "line %d: %s (%.500s)\n", line, what, e.message);
    const ssize_t n = write(STDERR_FILENO, text, strlen(text));
    _exit(n < 0 ? 2 : 1);
}
#define CHECK(x) check_that((x), #x, __LINE__)

/* The objects on the leftmost path, each of which must be its parent's other child too; the last of
 * them is not a pair. */
static void *check_shared(void *x, int depth)
{
    for (int i = 0; i < depth; i++) {
        CHECK(fx_count(x) == 2 && !fx_is_error(x));
        CHECK(fx_child(x, 0) == fx_child(x, 1));
        x = fx_child(x, 0);
    }
    return x;
}

static fx_array *weight_of(void *root, int depth)
{
    return fx_child(check_shared(root, depth), 0);
}

static bool all_are(fx_array *x, double value)
{
    return !fx_is_error(x) && fx_item(fx_all(fx_eq(x, value))) != 0;
}

static fx_array *loss_of(const tree *t)
{
    Tip *tip = check_shared(t->root, t->depth);
    return fx_add(fx_sum(tip->weight), fx_sum(tip->bias));
}

static bool fails_with(const char *text)
{
    const fx_error e = fx_error_take();
    return e.status != FX_OK && strstr(e.message, text);
}

/* ---- tree.h ---------------------------------------------------------------------------------- */

static fx_array *plus_one(fx_array *x)
{
    return fx_add(x, 1);
}
static fx_array *plus_user(fx_array *x, void *user)
{
    ++*(int *)user;
    return fx_add(x, 1);
}
static fx_array *add_all(int n, fx_array *const *xs, void *user)
{
    ++*(int *)user;
    return n == 2 ? fx_add(xs[0], xs[1]) : NULL;
}
static fx_array *add_two(fx_array *x, fx_array *y)
{
    return fx_add(x, y);
}
static void *count_objects(void *object, void *user)
{
    (void)object;
    ++*(int *)user;
    return NULL;
}
static fx_array *same_array(fx_array *x, void *user)
{
    (void)user;
    return x;
}

static void row_fmap(const tree *t)
{
    CHECK(all_are(weight_of(fx_fmap(plus_one, t->root), t->depth), 2));
}
static void row_fmap_with(const tree *t)
{
    int calls = 0;
    CHECK(all_are(weight_of(fx_fmap_with(plus_user, &calls, t->root), t->depth), 2));
    CHECK(calls == 2);
}
static void row_fmap_objects(const tree *t)
{
    int objects = 0;
    CHECK(fx_fmap_objects(same_array, count_objects, &objects, t->root) == t->root);
    CHECK(objects == t->depth + 2);
}
static void row_fmap_n(const tree *t)
{
    int calls = 0;
    void *const both[] = {t->root, t->like};
    CHECK(all_are(weight_of(fx_fmap_n(add_all, &calls, 2, both), t->depth), 3));
    CHECK(calls == 2);
}
static void row_fmap2(const tree *t)
{
    CHECK(all_are(weight_of(fx_fmap2(add_two, t->root, t->like), t->depth), 3));
}
static void row_functor(const tree *t)
{
    void *children = fx_functor(t->root);
    CHECK(fx_count(children) == 2 && fx_child(children, 0) == fx_child(t->root, 1));
    void *again = fx_rebuild(t->root, children);
    check_shared(again, t->depth);
}
static void note_visit(fx_array *x, const char *path, bool trainable, void *user)
{
    CHECK(x && *path && trainable);
    ++*(int *)user;
}
static void row_visit(const tree *t)
{
    int arrays = 0;
    fx_visit(t->root, note_visit, &arrays);
    CHECK(arrays == 2);
}
static void row_trainables(const tree *t)
{
    void *arrays = fx_trainables(t->root);
    CHECK(fx_count(arrays) == 2 && fx_child(arrays, 0) == weight_of(t->root, t->depth));
}
static void row_parameter_count(const tree *t)
{
    CHECK(fx_parameter_count(t->root) == 9);
}
static void row_destructure(const tree *t)
{
    fx_array *flat = fx_destructure(t->root);
    CHECK(fx_length(flat) == 9);
    void *again = fxi_restructure(t->root, fx_mul(flat, 5));
    CHECK(all_are(weight_of(again, t->depth), 5));
}
static void row_state(const tree *t)
{
    CHECK(weight_of(fx_state(t->root), t->depth) == weight_of(t->root, t->depth));
}
static void row_loadmodel(const tree *t)
{
    fx_array *w = weight_of(t->root, t->depth);
    CHECK(fx_loadmodel(t->root, t->like) == FX_OK && all_are(w, 2));
    CHECK(fx_loadmodel(t->root, fx_state(make_tree(t->depth, t->tuples, 3))) == FX_OK);
    CHECK(all_are(w, 3));
    CHECK(fx_loadmodel(t->root, fx_flux_state(make_tree(t->depth, t->tuples, 4))) == FX_OK);
    CHECK(all_are(w, 4));
}
static void row_loadmodel_paths(const tree *t)
{
    char name[ROOM] = "";
    if (t->tuples) /* there, a tuple of arrays does not count as paths */
        return;
    for (int i = 0; i < t->depth; i++)
        strcat(name, "left.");
    const size_t n = strlen(name);
    char weight[ROOM + 8], wrong[ROOM + 8], bias[ROOM + 8];
    snprintf(weight, sizeof weight, "%.*sweight", (int)n, name);
    snprintf(bias, sizeof bias, "%.*sbias", (int)n, name);
    snprintf(wrong, sizeof wrong, "%.*swidth", (int)n, name);
    CHECK(fx_loadmodel(t->root, fx_named_tuple(weight, fx_full(7, 3, 2), bias, fx_full(7, 3))) ==
          FX_OK);
    CHECK(all_are(weight_of(t->root, t->depth), 7));
    CHECK(fx_loadmodel(t->root, fx_named_tuple(wrong, fx_full(7, 3, 2))) != FX_OK);
    CHECK(fails_with(t->depth > SMALL ? "but the model does not" : ""));
}
static void row_precision(const tree *t)
{
    fx_array *w = weight_of(fx_f64(t->root), t->depth);
    CHECK(fx_eltype(w) == FX_DTYPE_F64 && all_are(w, 1));
}
static void row_snapshot(const tree *t)
{
    void *before = fx_snapshot(t->root);
    CHECK(fx_loadmodel(t->root, t->like) == FX_OK);
    CHECK(all_are(weight_of(before, t->depth), 1));
}
static void row_show(const tree *t)
{
    char *text = malloc(1 << 20);
    const size_t n = fx_show_text(t->root, text, 1 << 20);
    CHECK(n > 10 && n < (1 << 20));
    CHECK(t->depth == SMALL || strstr(text, "shown above"));
    FILE *out = tmpfile();
    fx_show_to(out, t->root);
    CHECK((size_t)ftell(out) >= n);
    fclose(out);
    free(text);
}
static void row_summary(const tree *t)
{
    char *text = malloc(1 << 20);
    const size_t n = fx_summary(t->root, text, 1 << 20);
    CHECK(n > 10 && n < (1 << 24) + ROOM && (t->depth > SMALL || strstr(text, "Dropout")));
    free(text);
}
static void row_plan(const tree *t)
{
    char *text = malloc(1 << 20);
    fx_eval(t->root); /* arrays that are computed from numbers alone need no step */
    CHECK(fx_plan_text(fx_fmap(plus_one, t->root), text, 1 << 20) > 10);
    CHECK(strstr(text, "add"));
    FILE *out = tmpfile();
    fx_plan_show(out, fx_fmap(plus_one, t->root));
    CHECK(ftell(out) > 10);
    fclose(out);
    free(text);
}

/* ---- array.h, grad.h, nn.h, device.h --------------------------------------------------------- */

static void row_eval(const tree *t)
{
    void *y = fx_fmap(plus_one, t->root);
    CHECK(fx_eval(y) == FX_OK && fx_is_evaluated(weight_of(y, t->depth)));
}
static void row_keep_and_set(const tree *t)
{
    void *slot = NULL;
    {
        FX_SCOPE;
        void *y = fx_fmap(plus_one, t->root);
        fx_set(&slot, y);
        fx_keep(y);
    }
    CHECK(all_are(weight_of(slot, t->depth), 2));
    fx_release(fx_retain(slot));
    fx_set(&slot, NULL);
}
static void row_gradient(const tree *t)
{
    void *g = fx_gradient(loss_of(t), t->root);
    CHECK(all_are(weight_of(g, t->depth), 1));
}
static void row_withgradient(const tree *t)
{
    double value = 0;
    void *g = fx_withgradient(loss_of(t), t->root, &value);
    CHECK(value == 9 && all_are(weight_of(g, t->depth), 1));
}
static void check_mode(const tree *t, fx_status (*set)(void *), fx_active expected)
{
    CHECK(set(t->root) == FX_OK);
    Tip *tip = check_shared(t->root, t->depth);
    CHECK(((fx_dropout_layer *)tip->mode)->active == (int64_t)expected);
}
static void row_modes(const tree *t)
{
    check_mode(t, fx_trainmode, FX_ACTIVE_ON);
    check_mode(t, fx_testmode, FX_ACTIVE_OFF);
    check_mode(t, fx_automode, FX_ACTIVE_AUTO);
}
static void row_moves(const tree *t)
{
    CHECK(fx_device_of(t->root) == fx_cpu_device());
    CHECK(weight_of(fx_cpu(t->root), t->depth) == weight_of(t->root, t->depth));
    CHECK(weight_of(fx_gpu(t->root), t->depth) != NULL);
    CHECK(weight_of(fx_to(fx_device_get("CPU", 0), t->root), t->depth) ==
          weight_of(t->root, t->depth));
}
static void row_strict_moves(const tree *t)
{
    void *strict = fx_gpu_strict(t->root), *cuda = fx_cu(t->root);
    CHECK(strict && cuda && fx_error_take().status != FX_OK);
}
typedef struct Layer {
    fx_object base;
    void *inside;
} Layer;
FX_LAYER(Layer, first_argument, inside);
static void row_call(const tree *t)
{
    fx_array *x = fx_ones(2);
    fx_chain_layer *c = fx_chain(fx_new(Layer, .inside = t->root), FX_IDENTITY);
    CHECK(fx_call(c, x) == x);
    CHECK(fx_checkpointed(c, x) == x);
    CHECK(fx_parameter_count(c) == 9 && fx_parameter_count(fx_chain_of("a", c)) == 9);
    CHECK(t->tuples ? fx_is_error(fx_call(t->root, x)) : fx_call(t->root, x) == x);
}
static void row_predict(const tree *t)
{
    void *layer = fx_new(Layer, .inside = t->root);
    void *p = fx_predictor("a file", fx_named_tuple("model", layer, "other", t->root));
    fx_array *y = fx_predict(p, fx_ones(2, 3));
    CHECK(fx_size(y, 1) == 3 && fx_item(fx_sum(y)) == 6);
    y = fx_predict_csv(p, temp_text("p.csv", "1,2\n"));
    CHECK(fx_size(y, 0) == 2 && fx_item(fx_sum(y)) == 3);
    CHECK(fx_is_error(fx_predict_texts(p, 1, (const char *[]){"a text"})));
    CHECK(fx_is_error(fx_generate(p)));
    fx_error_take();
}

/* ---- optim.h --------------------------------------------------------------------------------- */

static bool is_leaf(void *object)
{
    fxi_leaf leaf;
    return fxi_leaf_of(object, &leaf);
}
static void *setup(const tree *t)
{
    void *state = fx_setup(fx_adam(0.1), t->root);
    CHECK(is_leaf(weight_of(state, t->depth)));
    return state;
}
static void row_setup(const tree *t)
{
    setup(t);
}
static fx_status fill_leaf(fx_array *x, fxi_leaf *out, void *user)
{
    (void)x;
    *out = (fxi_leaf){.rule = user};
    return FX_OK;
}
static void row_setup_with(const tree *t)
{
    void *state = fxi_setup_with(t->root, fill_leaf, fx_descent(0.5));
    CHECK(is_leaf(weight_of(state, t->depth)));
}
/* Adam's first step is η. */
static void row_update(const tree *t)
{
    void *state = setup(t), *g = fx_gradient(loss_of(t), t->root);
    CHECK(fx_update(state, t->root, g) == FX_OK);
    fx_array *w = weight_of(t->root, t->depth);
    CHECK(fabs(fx_at(w, 0) - 0.9) < 1e-6);
}
static void row_update_all(const tree *t)
{
    void *state = setup(t), *g = fx_gradient(loss_of(t), t->root), *model = t->root;
    CHECK(fx_update_all(1, &state, &model, &g) == FX_OK);
    CHECK(fabs(fx_at(weight_of(t->root, t->depth), 0) - 0.9) < 1e-6);
}
/* A gradient of which the shared object has two different copies: they are added once each. */
static void row_update_with_two(const tree *t)
{
    void *state = fx_setup(fx_descent(1), t->root), *zero[2];
    for (int k = 0; k < 2; k++)
        zero[k] = make_tree(t->depth - 1, t->tuples, k + 1);
    void *g = t->tuples ? fx_tuple(zero[0], zero[1])
                        : (void *)fx_new(Twice, .left = zero[0], .right = zero[1]);
    CHECK(fx_update(state, t->root, g) == FX_OK);
    CHECK(all_are(weight_of(t->root, t->depth), 1 - 1 - 2));
}
static void row_updated(const tree *t)
{
    void *state = setup(t), *g = fx_gradient(loss_of(t), t->root);
    void *both = fx_updated(state, t->root, g);
    CHECK(fabs(fx_at(weight_of(fx_child(both, 1), t->depth), 0) - 0.9) < 1e-6);
    fxi_leaf leaf;
    CHECK(fxi_leaf_of(weight_of(fx_child(both, 0), t->depth), &leaf));
    CHECK(fabs(leaf.numbers[0] - 0.81) < 1e-6); /* β₁² */
    CHECK(fxi_leaf_of(weight_of(state, t->depth), &leaf) && fabs(leaf.numbers[0] - 0.9) < 1e-6);
}
static void row_adjust(const tree *t)
{
    void *state = setup(t);
    CHECK(fx_adjust_eta(state, 0.25) == FX_OK && fx_eta(state) == 0.25);
    CHECK(fx_adjust(state, .beta1 = 0.5) == FX_OK && fx_eta(state) == 0.25);
    fxi_leaf a, b;
    CHECK(fxi_leaf_of(weight_of(state, t->depth), &a));
    CHECK(fxi_leaf_of(fx_child(check_shared(state, t->depth), 1), &b) && a.rule == b.rule);
    CHECK(fx_adjust_eta(t->root, 0.25) != FX_OK && fails_with("must not be applied to a model"));
    CHECK(fx_eta(t->root) == 0 && fx_loss_scale(t->root) == 0);
}
/* A leaf counts once: the norm of the gradient is that of its distinct arrays. */
static void row_global_norm(const tree *t)
{
    CHECK(fx_eval(fx_global_norm(t->root)) == FX_OK);
    CHECK(fx_eval(check_shared(fx_clip_global_norm(t->root, 1), t->depth)) == FX_OK);
}
static void row_freeze(const tree *t)
{
    void *state = setup(t);
    fxi_leaf leaf;
    CHECK(fx_freeze(state) == FX_OK && fxi_leaf_of(weight_of(state, t->depth), &leaf));
    CHECK(leaf.frozen && fx_thaw(state) == FX_OK);
    CHECK(fxi_leaf_of(weight_of(state, t->depth), &leaf) && !leaf.frozen);
    CHECK(fx_freeze(t->root) != FX_OK && fx_thaw(t->root) != FX_OK);
}
/* No rule divides this state: the copy has copies of its arrays, each once. */
static void row_states_whole(const tree *t)
{
    void *state = setup(t), *whole = fxi_states_whole(state);
    fxi_leaf before, after;
    CHECK(fxi_leaf_of(weight_of(whole, t->depth), &after) && whole != state);
    CHECK(fxi_leaf_of(weight_of(state, t->depth), &before) && before.states[0] != after.states[0]);
    CHECK(!fxi_leaf_divided(weight_of(whole, t->depth)) && !fxi_leaf_divided(t->root));
    CHECK(fxi_states_divide(state, whole) == FX_OK);
    CHECK(fxi_states_divide(state, t->root) != FX_OK);
}
/* 11 numbers for each array's leaf, once. */
static void row_state_numbers(const tree *t)
{
    double numbers[2 * 11];
    void *state = setup(t);
    CHECK(fxi_state_numbers(state, numbers, 22) == 22 && numbers[1] == 0.1);
    numbers[1] = numbers[12] = 0.5;
    CHECK(fxi_state_numbers_set(state, numbers, 22, false) == FX_OK && fx_eta(state) == 0.5);
    CHECK(fxi_state_numbers(t->root, NULL, 0) == -1);
}
static void row_rules(const tree *t)
{
    CHECK(!fxi_is_rule(t->root) && !is_leaf(t->root));
    CHECK(fx_is_error(fxi_optimiser_chain(1, &t->root)) && fails_with("expects optimiser rules"));
    CHECK(fx_is_error(fx_setup(t->root, t->root)) && fails_with("expects an optimiser rule, got "));
}

/* ---- io.h ------------------------------------------------------------------------------------ */

static void row_bson(const tree *t)
{
    const char *path = temp_file("tree.bson", "", 0);
    CHECK(fx_save(path, "model", t->root) == FX_OK);
    void *file = fx_load(path), *model = fx_load_key(path, "model");
    CHECK(!fx_is_error(file) && fx_count(file) == 1);
    CHECK(all_are(weight_of(model, t->depth), 1));
    CHECK(fx_load_into(path, "model", t->like) == FX_OK);
    CHECK(all_are(weight_of(t->like, t->depth), 1));
}
/* The state and the model in one file, which loads as a state of that model. */
static void row_bson_state(const tree *t)
{
    if (t->tuples) /* no model for Flux */
        return;
    const char *path = temp_file("state.bson", "", 0);
    CHECK(fx_save(path, "model", t->root, "opt", setup(t)) == FX_OK);
    void *file = fx_load(path);
    CHECK(!fx_is_error(file) && fx_count(file) == 2);
    void *opt = fx_child_named(file, "opt");
    CHECK(weight_of(opt, t->depth) &&
          is_leaf(weight_of(fx_flux_optimiser(opt, t->root), t->depth)));
}
static void row_flux_optimiser(const tree *t)
{
    void *state = setup(t);
    CHECK(fx_flux_optimiser(state, t->root) == state);
    CHECK(fx_is_error(fx_flux_optimiser(t->like, t->root)));
}
static void row_flux_state(const tree *t)
{
    CHECK(weight_of(fx_flux_state(t->root), t->depth) == weight_of(t->root, t->depth));
}
/* Files of arrays name every path: 2^40 of them are refused, and the message says what to do. */
static void check_arrays_file(const tree *t, const char *path)
{
    void *loaded;
    fx_status status = fx_save_try(path, 2, (const void *[]){"model", t->root}, &loaded);
    if (t->depth > SMALL) {
        CHECK(status == FX_STATUS_UNSUPPORTED && !loaded && fails_with("share"));
        CHECK(fx_save(path, "model", t->root) == FX_STATUS_UNSUPPORTED && fails_with("share"));
        return;
    }
    CHECK(status == FX_OK && fx_count(loaded) == 8);
    status = fx_save(path, "model", t->root);
    CHECK(status == FX_OK && fx_count(fx_load(path)) == 8);
    CHECK(fx_load_into(path, "model", t->like) == FX_OK);
    CHECK(all_are(weight_of(t->like, t->depth), 1));
}
static void row_safetensors(const tree *t)
{
    check_arrays_file(t, temp_file("tree.safetensors", "", 0));
}
static void row_npz(const tree *t)
{
    check_arrays_file(t, temp_file("tree.npz", "", 0));
}
static void row_load_into(const tree *t)
{
    const char *path = temp_file("two.safetensors", "", 0);
    CHECK(fx_save(path, "model.w", fx_ones(2)) == FX_OK);
    CHECK(fx_load_into(path, "model", t->root) != FX_OK && fx_error_take().status != FX_OK);
}
static void row_torch(const tree *t)
{
    void *state = fx_torch_state(t->root);
    if (t->depth > SMALL) {
        CHECK(fx_is_error(state) && fails_with("share"));
        state = fx_named_tuple("weight", fx_ones(3));
        CHECK(fx_load_torch_state(t->root, state) != FX_OK && fails_with("share"));
        return;
    }
    CHECK(fx_count(state) == 8 && fx_load_torch_state(t->like, state) == FX_OK);
    CHECK(all_are(weight_of(t->like, t->depth), 1));
}
/* Names every path, as files of arrays do. */
static void check_matching(const tree *t, void *report)
{
    if (t->depth > SMALL) {
        CHECK(fx_is_error(report) && fails_with("share"));
        return;
    }
    for (int i = 0; i < 3; i++)
        CHECK(fx_count(fx_child(report, i)) == 0);
    CHECK(all_are(weight_of(t->like, t->depth), 1));
}
static void row_load_matching(const tree *t)
{
    /* In BSON the members of the program's structs have no names. */
    const char *path = temp_file(t->depth > SMALL ? "matching.bson" : "matching.npz", "", 0);
    CHECK(fx_save(path, "model", t->root) == FX_OK);
    check_matching(t, fx_load_matching(path, "model", t->like));
}
static void row_torch_matching(const tree *t)
{
    void *state = t->depth > SMALL ? fx_named_tuple("weight", fx_ones(3)) : fx_torch_state(t->root);
    check_matching(t, fx_load_torch_matching(t->like, state));
}
static void row_checkpoint(const tree *t)
{
    char path[ROOM];
    void *state = setup(t);
    snprintf(path, sizeof path, "%s.new", temp_file("run.safetensors", "", 0));
    const fx_status status = fx_checkpoint_save(path, t->root, .state = state);
    fx_checkpoint_args io = {.model = t->root, .state = state};
    if (t->depth > SMALL) {
        CHECK(status == FX_STATUS_UNSUPPORTED && fails_with("share"));
        return;
    }
    CHECK(status == FX_OK && fx_loadmodel(t->root, t->like) == FX_OK);
    CHECK(fx_checkpoint_load(path, &io) == FX_OK && all_are(weight_of(t->root, t->depth), 1));
    unlink(path);
}
/* A struct that BSON files name has fields of one type. */
typedef struct Knot {
    fx_object base;
    void *left, *right;
    fx_array *weight;
} Knot;
FX_FUNCTOR(Knot, left, right, weight);

static void row_julia_name(const tree *t)
{
    Knot *k = fx_new(Knot, .weight = fx_ones(2));
    for (int i = 0; i < t->depth; i++)
        k = fx_new(Knot, .left = k, .right = k, .weight = fx_full(i, 2));
    const char *path = temp_file("knots.bson", "", 0);
    CHECK(fx_julia_name(k, "Trees.Knot") == FX_OK);
    CHECK(fx_save(path, "model", k) == FX_OK);
    const Knot *model = fx_load_key(path, "model");
    for (int i = t->depth - 1; i >= 0; i--, model = model->left) {
        CHECK(fx_is(model, fxi_type_Knot()) && model->left == model->right);
        CHECK(all_are(model->weight, i));
    }
    CHECK(!model->left && all_are(model->weight, 1));
}
static void row_texts(const tree *t)
{
    CHECK(!fx_string_text(t->root) && fx_metadata_count(t->root) == 0);
}

static void *made_layer(void *user)
{
    return fx_new(Layer, .inside = user);
}
static void row_containers(const tree *t)
{
    void *l = fx_new(Layer, .inside = t->root);
    CHECK(fx_parameter_count(fx_parallel(FX_ADD, l, l)) == 9);
    CHECK(fx_parameter_count(fx_parallel_of(FX_ADD, "a", l)) == 9);
    CHECK(fx_parameter_count(fx_pairwisefusion(FX_ADD, l)) == 9);
    CHECK(fx_parameter_count(fx_pairwisefusion_of(FX_ADD, "a", l)) == 9);
    CHECK(fx_parameter_count(fx_maxout(l, l)) == 9);
    CHECK(fx_parameter_count(fx_maxout_from(made_layer, t->root, 2)) == 9);
    CHECK(fx_parameter_count(fx_skipconnection(l, FX_ADD)) == 9);
}

static void row_recurrent(const tree *t)
{
    void *l = fx_new(Layer, .inside = t->root);
    CHECK(fx_parameter_count(fx_recurrence(l)) == 9);
    CHECK(fx_is_error(fx_rnn(0, 0, .cell = l)) && fx_error_take().status != FX_OK);
    CHECK(fx_is_error(fx_lstm(0, 0, .cell = l)) && fx_error_take().status != FX_OK);
    CHECK(fx_is_error(fx_gru(0, 0, .cell = l)) && fx_error_take().status != FX_OK);
    CHECK(fx_is_error(fx_gruv3(0, 0, .cell = l)) && fx_error_take().status != FX_OK);
    CHECK(fx_is_error(fx_initialstates(l)) && fx_error_take().status != FX_OK);
}

/* A cell whose output is its input, and whose state does not change. */
static void *same_state(void *self, int n, void *const *args)
{
    (void)self;
    return n == 2 ? fx_tuple(args[0], args[1]) : NULL;
}
typedef struct Constant {
    fx_object base;
    void *inside;
} Constant;
FX_LAYER(Constant, same_state, inside);

static void row_bidirectional(const tree *t)
{
    void *l = fx_recurrence(fx_new(Constant, .inside = t->root)), *both = fx_bidirectional(l, l);
    CHECK(fx_parameter_count(both) == 9);
    CHECK(fx_is_error(fx_bidirectional(t->root, t->root)) && fx_error_take().status != FX_OK);
    CHECK(fx_is_error(fx_recur(t->root, fx_ones(2, 3))) && fx_error_take().status != FX_OK);
    fx_array *x = fx_ones(2, 3, 1), *y = fx_recur(both, x, .state = fx_tuple(t->root, t->like));
    CHECK(fx_size(y, 0) == 4 && all_are(y, 1));
    fx_recurrence_layer *one = fx_recurrence(((fx_recurrence_layer *)l)->cell);
    one->return_state = true;
    void *pair = fx_recur(one, x, .state = t->root, .lengths = fx_vector(2));
    CHECK(all_are(weight_of(fx_child(pair, 1), t->depth), 1));
}

static void row_model_parts(const tree *t)
{
    void *l = fx_new(Layer, .inside = t->root);
    CHECK(fx_outputsize(l, FX_DIMS(2, 3)).n >= -1);
    fx_error_take();
    CHECK(fx_is_error(fx_weightnorm(l)) && fx_error_take().status == FX_STATUS_ARGUMENT);
    CHECK(fx_remove_weight_norms(t->root) == (void *)t->root);
    CHECK(fx_count(fx_modules(t->root)) >= t->depth);
    CHECK(fx_count(fx_activations(fx_chain(FX_RELU, FX_TANH), fx_ones(2))) == 2);
}

static void row_attention(const tree *t)
{
    void *l = fx_new(Layer, .inside = t->root);
    CHECK(fx_is_error(fx_multiheadattention(FX_DIMS(8), .q_proj = l)) &&
          fx_error_take().status != FX_OK);
    CHECK(fx_is_error(fx_attend(l, fx_ones(8, 2))) && fx_error_take().status != FX_OK);
}

/* ---- data.h, train.h ------------------------------------------------------------------------- */

static void row_observations(const tree *t)
{
    CHECK(fx_num_obs(t->root) == 0 && fx_error_take().status != FX_OK);
    CHECK(fx_get_obs(t->root, fx_ones(1)) && fx_error_take().status != FX_OK);
    CHECK(fx_split_obs(t->root, 0.5) && fx_error_take().status != FX_OK);
    CHECK(fx_is_error(fx_dataloader(t->root)) && fx_error_take().status != FX_OK);
    CHECK(fx_mapobs(plus_one, t->root));
    fx_error_take();
}
static bool test_obs(void *observation, void *user)
{
    return observation == user;
}
static int64_t key_obs(void *observation, void *user)
{
    return observation == user;
}
/* The trees end in structs, which are not data: every call is refused without visiting the whole
 * tree. */
static void row_mlutils(const tree *t)
{
    fx_array *idx = fx_from(FX_DTYPE_I64, ((const int64_t[]){0}), 1);
#define REFUSED(x) CHECK(fx_is_error(x) && fx_error_take().status != FX_OK)
    REFUSED(fx_getobs(t->root));
    REFUSED(fx_obsview(t->root, idx));
    REFUSED(fx_shuffleobs(t->root, 1));
    REFUSED(fx_randobs(t->root, 1, 1));
    REFUSED(fx_filterobs(test_obs, NULL, t->root));
    REFUSED(fx_groupobs(key_obs, NULL, t->root));
    REFUSED(fx_joinobs(t->root, t->root));
    REFUSED(fx_slidingwindow(t->root, 1, 1));
    REFUSED(fx_batchview(t->root, 1, true));
    REFUSED(fx_eachobs(t->root));
    REFUSED(fx_splitobs(t->root, FX_FRACTIONS(0.5)));
    REFUSED(fx_kfolds(t->root, 2));
    REFUSED(fx_leavepout(t->root, 1));
    REFUSED(fx_timeseries_kfolds(t->root, 1));
    REFUSED(fx_oversample(t->root, idx, 1, true, 1));
    REFUSED(fx_undersample(t->root, idx, true, 1));
    REFUSED(fx_batchobs(t->root));
    REFUSED(fx_unbatch(t->root));
    REFUSED(fx_batch_sequence(t->root, 0));
    REFUSED(fx_batchseq(t->root, 0));
    CHECK(fx_batchsize(t->root) == 0);
}
static fx_array *train_loss(void *model, const fx_batch *batch, void *user)
{
    (void)batch;
    const tree t = {.root = model, .depth = *(int *)user};
    return loss_of(&t);
}
static void *step_outputs(void *model, const fx_batch *batch, void *user)
{
    return train_loss(model, batch, user);
}
static void row_trainstep(const tree *t)
{
    int depth = t->depth;
    void *opt = fx_setup(fx_descent(0.1), t->root);
    CHECK(!fx_is_error(fx_trainstep(step_outputs, t->root, NULL, opt, &depth)));
    void *out = fx_trainstep_withgradient(step_outputs, t->root, NULL, opt, &depth);
    CHECK(!fx_is_error(out) && fx_count(out) == 2);
    CHECK(!fx_is_error(weight_of(fx_child(out, 1), t->depth)));
}
static bool file_has(const char *path, const char *words)
{
    static char text[1 << 18];
    FILE *f = fopen(path, "r");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    return n > 0 && strstr(text, words);
}

static void row_train(const tree *t)
{
    int depth = t->depth;
    void *state = setup(t);
    fx_loader *data = fx_dataloader(fx_ones(1, 2), .batchsize = 1);
    const char *log = temp_text("train.jsonl", "");
    CHECK(fx_train(train_loss, t->root, data, state, .epochs = 1, .user = &depth, .keep_best = true,
                   .log = log) == FX_OK);
    CHECK(fabs(fx_at(weight_of(t->root, t->depth), 0) - 0.8) < 1e-5);
    CHECK(file_has(log, "\"model\":") ==
          (t->depth == SMALL)); /* a text of 2^40 objects is too long */
    CHECK(file_has(log, "\"parameters\":9}") && file_has(log, "\"why\":\"finished\""));
}

static void row_run_log(const tree *t)
{
    const char *path = temp_text("run.jsonl", "");
    fx_run_log *log = fx_run_log_open(path, false);
    CHECK(fx_run_log_end(log, .why = "finished", .model = t->root, .batch = fx_ones(2, 1)) ==
          FX_OK);
    CHECK(fx_run_log_close(log) == FX_OK);
    /* A tuple cannot be called: it has no table. */
    CHECK(file_has(path, "\"output\":[2,1],\"parameters\":9,\"bytes\":36") == !t->tuples);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* A row: a function, and the functions and option structs of the headers that it covers. */
static const struct {
    const char *covers;
    void (*run)(const tree *t);
} rows[] = {
    {"fxi_fmap", row_fmap},
    {"fx_fmap_with", row_fmap_with},
    {"fx_fmap_objects", row_fmap_objects},
    {"fx_fmap_n", row_fmap_n},
    {"fxi_fmap2", row_fmap2},
    {"fx_functor fxi_rebuild fx_count fx_child fxi_tuple fxi_new", row_functor},
    {"fx_visit", row_visit},
    {"fx_trainables", row_trainables},
    {"fx_parameter_count", row_parameter_count},
    {"fx_destructure fxi_restructure", row_destructure},
    {"fx_state", row_state},
    {"fx_loadmodel", row_loadmodel},
    {"fx_loadmodel fxi_named_pairs", row_loadmodel_paths},
    {"fxi_in_precision", row_precision},
    {"fxi_snapshot", row_snapshot},
    {"fx_show_text fx_show_to fx_show", row_show},
    {"fx_summary", row_summary},
    {"fx_plan_text fx_plan_show", row_plan},
    {"fx_eval", row_eval},
    {"fxi_keep fxi_set fxi_retain fx_release fx_is_error", row_keep_and_set},
    {"fxi_gradient", row_gradient},
    {"fx_withgradient", row_withgradient},
    {"fx_trainmode fx_testmode fx_automode", row_modes},
    {"fxi_to fxi_gpu fxi_cpu fx_device_of", row_moves},
    {"fxi_gpu_strict fxi_cu", row_strict_moves},
    {"fxi_call fxi_checkpointed fxi_chain fxi_chain_pairs", row_call},
    {"fx_predictor fx_predict fx_predict_csv fx_predict_texts fxi_generate fx_generate_args",
     row_predict},
    {"fxi_parallel fxi_parallel_pairs fxi_pairwisefusion fxi_pairwisefusion_pairs fxi_maxout "
     "fx_maxout_from fxi_skipconnection fx_skipconnection_args",
     row_containers},
    {"fxi_multiheadattention fx_multiheadattention_args", row_attention},
    {"fxi_rnn fxi_lstm fxi_gru fxi_gruv3 fxi_recurrence fx_initialstates fx_rnn_args fx_lstm_args "
     "fx_recurrence_args",
     row_recurrent},
    {"fxi_bidirectional fx_bidirectional_args fxi_recur fx_recur_args", row_bidirectional},
    {"fxi_outputsize fx_outputsize_args fx_modules fxi_activations fxi_weightnorm "
     "fx_weightnorm_args "
     "fx_remove_weight_norms",
     row_model_parts},
    {"fx_setup", row_setup},
    {"fxi_setup_with", row_setup_with},
    {"fxi_update fx_update_args", row_update},
    {"fx_update_all", row_update_all},
    {"fxi_update fx_update_args", row_update_with_two},
    {"fx_updated", row_updated},
    {"fx_adjust_eta fx_eta fx_loss_scale fxi_adjust", row_adjust},
    {"fx_global_norm fxi_clip_global_norm", row_global_norm},
    {"fx_freeze fx_thaw", row_freeze},
    {"fxi_state_numbers fxi_state_numbers_set", row_state_numbers},
    {"fxi_leaf_divided fxi_states_divide fxi_states_whole", row_states_whole},
    {"fxi_is_rule fxi_leaf_of fxi_optimiser_chain", row_rules},
    {"fxi_save fx_load fx_load_key fxi_load_into", row_bson},
    {"fxi_save fx_load", row_bson_state},
    {"fx_flux_optimiser", row_flux_optimiser},
    {"fx_flux_state", row_flux_state},
    {"fxi_save fx_save_try fxi_load_into", row_safetensors},
    {"fxi_save fxi_load_into", row_npz},
    {"fxi_load_into", row_load_into},
    {"fx_torch_state fx_load_torch_state", row_torch},
    {"fx_load_matching", row_load_matching},
    {"fx_load_torch_matching", row_torch_matching},
    {"fxi_checkpoint_save fxi_checkpoint_load fx_checkpoint_args", row_checkpoint},
    {"fx_julia_name", row_julia_name},
    {"fx_string_text fx_metadata_count", row_texts},
    {"fx_num_obs fx_get_obs fx_split_obs fxi_mapobs fxi_dataloader fx_dataloader_args",
     row_observations},
    {"fx_getobs fx_obsview fx_shuffleobs fx_randobs fx_filterobs fx_groupobs fxi_joinobs "
     "fx_slidingwindow fx_batchview fx_eachobs fx_batchsize fxi_splitobs fx_splitobs_args "
     "fxi_kfolds fx_kfolds_args fx_leavepout fxi_timeseries_kfolds fx_timeseries_kfolds_args "
     "fx_oversample fx_undersample fx_batchobs "
     "fx_unbatch fx_batch_sequence fx_batchseq",
     row_mlutils},
    {"fxi_train fx_train_args", row_train},
    {"fx_trainstep fx_trainstep_withgradient", row_trainstep},
    {"fxi_run_log_end fx_run_log_end_args", row_run_log},
};
enum { NROWS = sizeof rows / sizeof rows[0] };

/* Runs a row in a process of its own. Returns "" on success, else the reason for the failure. */
static const char *outcome(size_t row, int depth, bool tuples, char text[ROOM])
{
    const char *const kind = tuples ? "tuples" : "structs";
    const pid_t pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CPU, &(const struct rlimit){SECONDS * SLOWER, SECONDS * SLOWER});
        const tree t = {.root = make_tree(depth, tuples, 1),
                        .like = make_tree(depth, tuples, 2),
                        .depth = depth,
                        .tuples = tuples};
        rows[row].run(&t);
        _exit(0);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        snprintf(text, ROOM, "%s: cannot start a process", rows[row].covers);
    else if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL))
        snprintf(text, ROOM, "%s, %d %s: more than %d s", rows[row].covers, depth, kind,
                 SECONDS * SLOWER);
    else if (status != 0)
        snprintf(text, ROOM, "%s, %d %s: failed, see above (status %d)", rows[row].covers, depth,
                 kind, status);
    else
        text[0] = 0;
    return text;
}

static void run_rows(int depth, bool tuples)
{
    char text[ROOM];
    int failed = 0, ran = 0;
    for (size_t i = 0; i < NROWS; i++, ran++)
        if (*outcome(i, depth, tuples, text)) {
            print_error("%s\n", text);
            failed++;
        }
    assert_true(ran >= 49);
    assert_int_equal(failed, 0);
}

static void small_structs(void **state)
{
    (void)state;
    run_rows(SMALL, false);
}
static void small_tuples(void **state)
{
    (void)state;
    run_rows(SMALL, true);
}
static void large_structs(void **state)
{
    (void)state;
    run_rows(LARGE, false);
}
static void large_tuples(void **state)
{
    (void)state;
    run_rows(LARGE, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_structs), cmocka_unit_test(small_tuples),
        cmocka_unit_test(large_structs), cmocka_unit_test(large_tuples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
