/* test_states.c: loads states of models, made here or read from files, into models.
 *
 * The expected values are the arrays of the model that the state was made of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "temp_file.h"

typedef struct Pair {
    fx_object base;
    void *first, *rest;
} Pair;
FX_FUNCTOR(Pair, first, rest);

static void *with_numbers(void *model)
{
    void *list = fx_trainables(model);
    for (int64_t i = 0; i < fx_count(list); i++) {
        fx_array *x = fx_child(list, i);
        assert_int_equal(fx_copy_into(x, fx_add(x, fx_scalar((double)i + 1.5))), FX_OK);
    }
    return model;
}

/* ---- every layer ----------------------------------------------------------------------------- */

static void *conv_model(void)
{
    return fx_chain(fx_conv(FX_DIMS(3, 3), 1, 2, FX_RELU, .pad = FX_SAME),
                    fx_conv(FX_DIMS(3, 3), 2, 2, .bias = false), fx_maxpool(FX_DIMS(2, 2)),
                    fx_meanpool(FX_DIMS(1, 1)), FX_FLATTEN);
}
static void *norm_model(void)
{
    return fx_chain(fx_batchnorm(4, FX_RELU), fx_batchnorm(4, .affine = false),
                    fx_batchnorm(4, .track_stats = false), fx_layernorm(FX_DIMS(4), FX_TANH),
                    fx_layernorm(FX_DIMS(4), FX_RELU, .affine = false));
}
static void *dense_model(void)
{
    return fx_chain(fx_dense(4, 4, FX_RELU), fx_dense(4, 4, .bias = false), fx_dropout(0.25),
                    fx_dropout(0.5, .dims = FX_AXES(0)), FX_SOFTMAX);
}
static void *named_model(void)
{
    return fx_chain_of("in", fx_dense(4, 3), "out", fx_chain(fx_dense(3, 2)));
}
static void *single_layer(void)
{
    return fx_dense(4, 2, FX_RELU);
}
static void *single_norm(void)
{
    return fx_batchnorm(3);
}
static void *tied_model(void)
{
    void *d = fx_dense(3, 3);
    return fx_chain(d, fx_batchnorm(3), d);
}
static void *nested_chain(void)
{
    return fx_chain(fx_chain(fx_chain(fx_dense(2, 2))));
}

static void *(*const models[])(void) = {conv_model,   norm_model,  dense_model, named_model,
                                        single_layer, single_norm, tied_model,  nested_chain};
enum { MODELS = sizeof models / sizeof *models };

typedef struct seen {
    fx_array *items[40];
    int n;
} seen;

static void note(fx_array *x, const char *path, bool trainable, void *user)
{
    seen *s = user;
    (void)path, (void)trainable;
    assert_true(s->n < 40);
    s->items[s->n++] = x;
}

static int same_arrays(void *a, void *b)
{
    seen x = {.n = 0}, y = {.n = 0};
    fx_visit(a, note, &x);
    fx_visit(b, note, &y);
    assert_int_equal(x.n, y.n);
    for (int i = 0; i < x.n; i++)
        assert_true(fx_item(fx_all(fx_eq(x.items[i], y.items[i]))) == 1);
    return x.n;
}

static int loads(void *model, void *other, void *state)
{
    if (fx_is_error(state) || fx_loadmodel(other, state) != FX_OK)
        fail_msg("%s", fx_error_take().message);
    return same_arrays(model, other);
}

/* The state through a file of this name, or as it is. */
static int goes_through(void *(*make)(void), void *(*state_of)(void *), const char *file)
{
    FX_SCOPE;
    void *model = with_numbers(make()), *state = state_of(model);
    if (!file)
        return loads(model, make(), state);
    const char *path = temp_text(file, "");
    if (fx_save(path, "state", state) != FX_OK)
        fail_msg("%s", fx_error_take().message);
    return loads(model, make(), fx_load_key(path, "state"));
}

static void *itself(void *model)
{
    return model;
}

static void every_state_of_every_layer(void **state)
{
    (void)state;
    static void *(*const kinds[])(void *) = {fx_flux_state, fx_state, itself};
    static const char *const files[] = {NULL, "s.bson", "s.safetensors", "s.npz"};
    int pairs = 0, arrays = 0;
    for (int m = 0; m < MODELS; m++)
        for (int k = 0; k < 3; k++)
            for (int f = 0; f < 4; f++, pairs++)
                arrays += goes_through(models[m], kinds[k], files[f]);
    printf("%d pairs of models and states, %d arrays\n", pairs, arrays);
    assert_true(pairs >= 96 && arrays >= 400);
}

/* The numbers of a state that no array of a model holds are not loaded, as in Flux. */
static void modes_and_settings_stay(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_batchnorm_layer *a = fx_batchnorm(3, .active = FX_ACTIVE_OFF), *b = fx_batchnorm(3);
    assert_int_equal(fx_copy_into(a->mean, fx_ones(3)), FX_OK);
    assert_int_equal(fx_loadmodel(b, fx_flux_state(a)), FX_OK);
    assert_true(fx_item(fx_sum(b->mean)) == 3 && b->active == FX_ACTIVE_AUTO);
    assert_int_equal(fx_loadmodel(a, fx_flux_state(fx_batchnorm(3))), FX_OK);
    assert_true(fx_item(fx_sum(a->mean)) == 0 && a->active == FX_ACTIVE_OFF);
}

static void own_structs(void **state)
{
    (void)state;
    FX_SCOPE;
    Pair *a = fx_new(Pair, .first = fx_dense(2, 2), .rest = fx_batchnorm(2));
    Pair *b = fx_new(Pair, .first = fx_dense(2, 2), .rest = fx_batchnorm(2));
    with_numbers(a);
    void *s = fx_flux_state(a);
    assert_non_null(fx_child_named(fx_child_named(s, "rest"), "γ"));
    assert_int_equal(loads(a, b, s), 6);
}

/* The names of the children, "weight bias σ". */
static const char *names_of(const void *object, char text[200])
{
    *text = 0;
    for (int64_t i = 0; i < fx_count(object); i++)
        snprintf(text + strlen(text), 200 - strlen(text), "%s%s", i ? " " : "",
                 fx_child_name(object, i));
    return text;
}

/* A layer inside of another one has the fields that Flux's Flux.state gives it, and one state,
 * however often it is reached. */
static void layers_inside_of_layers(void **state)
{
    (void)state;
    FX_SCOPE;
    char text[200];
    void *d = fx_dense(4, 4, FX_RELU), *attention = fx_multiheadattention(FX_DIMS(4), .nheads = 2);
    const struct {
        void *model;
        const char *names, *field, *inside;
    } rows[] = {
        {fx_skipconnection(d, FX_ADD), "layers connection", "layers", "weight bias σ"},
        {fx_skipconnection(FX_RELU, fx_bilinear(FX_DIMS(4, 4), 2)), "layers connection",
         "connection", "weight bias σ"},
        {fx_rnn(2, 3), "cell", "cell", "σ Wi Wh bias"},
        {fx_lstm(2, 3), "cell", "cell", "Wi Wh bias"},
        {fx_gruv3(2, 3), "cell", "cell", "Wi Wh b Wh_h̃"},
        {fx_weightnorm(d), "layer g which dims", "layer", "weight bias σ"},
        {attention, "nheads q_proj k_proj v_proj attn_drop out_proj", "v_proj", "weight bias σ"},
        {attention, "nheads q_proj k_proj v_proj attn_drop out_proj", "attn_drop",
         "p dims active rng"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *s = fx_flux_state(rows[i].model);
        assert_string_equal(names_of(s, text), rows[i].names);
        assert_string_equal(names_of(fx_child_named(s, rows[i].field), text), rows[i].inside);
    }
    void *both = fx_child_named(fx_flux_state(fx_chain(fx_skipconnection(d, FX_ADD), d)), "layers");
    assert_ptr_equal(fx_child_named(fx_child(both, 0), "layers"), fx_child(both, 1));
}

/* ---- what does not fit ----------------------------------------------------------------------- */

static void refuses(fx_status status, void *dst, void *src, const char *path)
{
    fx_array *w = fx_child_named(fx_child(dst, 0), "weight");
    const double before = fx_item(fx_sum(w));
    assert_int_equal(fx_loadmodel(dst, src), status);
    const fx_error error = fx_error_take();
    if (!strstr(error.message, path))
        fail_msg("no %s in: %s", path, error.message);
    assert_true(fx_item(fx_sum(w)) == before);
}

static void errors_name_the_path(void **state)
{
    (void)state;
    FX_SCOPE;
    void *dst = fx_chain(fx_dense(2, 3), fx_dense(3, 1));
    void *wide = fx_chain(fx_dense(2, 3), fx_dense(4, 1));
    void *norm = fx_chain(fx_dense(2, 3), fx_batchnorm(3));
    refuses(FX_STATUS_SHAPE, dst, fx_flux_state(wide), "size (1, 3) at \"layers.1.weight\"");
    refuses(FX_STATUS_SHAPE, dst, fx_state(wide), "size (1, 3) at \"1.weight\"");
    refuses(FX_STATUS_ARGUMENT, dst, fx_flux_state(norm), "at \"layers.1\"");
    refuses(FX_STATUS_ARGUMENT, dst, fx_state(norm), "at \"1\"");
    refuses(FX_STATUS_ARGUMENT, dst,
            fx_named_tuple("layers.0.weight", fx_ones(3, 2), "layers.0.bias", fx_ones(3),
                           "layers.1.weight", fx_ones(1, 3)),
            "no array for \"layers.1.bias\"");
    refuses(FX_STATUS_ARGUMENT, dst,
            fx_named_tuple("0.weight", fx_ones(3, 2), "0.wight", fx_ones(3)), "\"0.wight\"");
    refuses(FX_STATUS_SHAPE, dst, fx_named_tuple("0.weight", fx_ones(3, 3), "0.bias", fx_ones(3)),
            "at \"0.weight\"");
}

/* Fields are matched by name: a tuple with the same number of arrays is not a state of the layer.
 */
static void names_must_agree(void **state)
{
    (void)state;
    FX_SCOPE;
    void *dst = fx_chain(fx_dense(2, 2));
    void *turned = fx_named_tuple("bias", fx_ones(2), "weight", fx_ones(2, 2));
    refuses(FX_STATUS_ARGUMENT, dst, fx_tuple(turned), "at \"0\"");
}

static int64_t pad_length(void *model)
{
    void *layers = fx_child_named(fx_flux_state(model), "layers");
    return fx_count(fx_child_named(fx_child(layers, 1), "pad"));
}

/* pad=(1, 1) and pad=1 are tuples of two and of four numbers in Flux. */
static void paddings_of_two_forms(void **test)
{
    const fx_dims forms[] = {FX_DIMS(1, 1), FX_DIMS(1)};
    (void)test;
    for (int i = 0; i < 2; i++) {
        FX_SCOPE;
        void *both[2];
        for (int k = 0; k < 2; k++)
            both[k] = fx_chain(fx_conv(FX_DIMS(3, 3), 1, 2, .pad = forms[k]),
                               fx_maxpool(FX_DIMS(2, 2), .pad = forms[k]));
        void *from = with_numbers(both[i]), *to = both[1 - i];
        assert_int_equal(pad_length(both[0]), 2);
        assert_int_equal(pad_length(both[1]), 4);
        assert_int_equal(loads(from, to, fx_flux_state(from)), 2);
        fx_array *x = fx_randn(6, 5, 1, 2);
        assert_true(fx_item(fx_all(fx_eq(fx_call(from, x), fx_call(to, x)))) == 1);
        /* another number of axes is still an error */
        void *line = fx_chain(fx_conv(FX_DIMS(9), 1, 2, .pad = FX_DIMS(1)),
                              fx_maxpool(FX_DIMS(2), .pad = FX_DIMS(1)));
        assert_int_not_equal(fx_loadmodel(line, fx_flux_state(from)), FX_OK);
        assert_int_not_equal(fx_error_take().status, FX_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_state_of_every_layer),
                                       cmocka_unit_test(modes_and_settings_stay),
                                       cmocka_unit_test(own_structs),
                                       cmocka_unit_test(layers_inside_of_layers),
                                       cmocka_unit_test(errors_name_the_path),
                                       cmocka_unit_test(paddings_of_two_forms),
                                       cmocka_unit_test(names_must_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
