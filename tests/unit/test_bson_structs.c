/* test_bson_structs.c: structs of a program in BSON files.
 *
 * make_bson.py writes files after BSON.jl's rules for structs, check_bson.py judges what the
 * library writes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "python_run.h"
#include "read_back.h"
#include "temp_file.h"

typedef struct Inner {
    fx_object base;
    fx_array *x;
    double scale;
} Inner;
FX_FUNCTOR(Inner, x, scale);

typedef struct Encoder {
    fx_object base;
    fx_array *weight, *bias;
    fx_function *act;
    Inner *inner;
    double rate;
    int64_t steps;
    int small;
    float single;
    bool on;
    fx_dims size;
    const char *title;
    fx_list layers;
} Encoder;

static void *forward(void *self, int n, void *const *args)
{
    const Encoder *e = self;
    (void)n;
    return fx_call(e->act, fx_matmul(e->weight, args[0]));
}
FX_LAYER(Encoder, forward, weight, bias, act, inner, rate, steps, small, single, on, size, title,
         layers);

typedef struct Unnamed {
    fx_object base;
    fx_array *x;
} Unnamed;
FX_FUNCTOR(Unnamed, x);

typedef struct Link {
    fx_object base;
    struct Link *next;
} Link;
FX_FUNCTOR(Link, next);

static Inner *inner(fx_array *x)
{
    return fx_new(Inner, .x = x, .scale = 0.25);
}

static Encoder *encoder(void)
{
    void *layers[] = {fx_dense(2, 2, FX_RELU), FX_RELU};
    return fx_new(Encoder, .weight = fx_randn(2, 3), .act = FX_RELU, .inner = inner(fx_ones(2)),
                  .rate = 0.125, .steps = 7, .small = -3, .single = 0.5F, .on = true,
                  .size = FX_DIMS(4, 5), .title = "an encoder",
                  .layers = {.n = 2, .items = layers});
}

/* Registers the names of both types, once for all tests. */
static int name_types(void **state)
{
    (void)state;
    FX_SCOPE;
    return fx_julia_name(encoder(), "Models.Encoder") != FX_OK ||
           fx_julia_name(inner(fx_ones(1)), NULL) != FX_OK ||
           fx_julia_name(fx_new(Link, .next = fx_new(Link, .next = NULL)), "Models.Link") != FX_OK;
}

static void check_numbers(const Encoder *e)
{
    assert_true(fx_is(e, fxi_type_Encoder()));
    assert_null(e->bias);
    assert_ptr_equal(e->act, FX_RELU);
    assert_true(fx_is(e->inner, fxi_type_Inner()) && e->inner->scale == 0.25);
    assert_true(e->rate == 0.125 && e->steps == 7 && e->small == -3 && e->single == 0.5F && e->on);
    assert_true(e->size.n == 2 && e->size.v[0] == 4 && e->size.v[1] == 5);
    assert_string_equal(e->title, "an encoder");
    assert_int_equal(e->layers.n, 2);
    assert_string_equal(fx_type_of(e->layers.items[0])->name, "Dense");
    assert_ptr_equal(e->layers.items[1], FX_RELU);
}

static void a_file_of_julia(void **state)
{
    (void)state;
    FX_TEST;
    char text[100];
    void *file = fx_load(made_bson("own.bson"));
    assert_false(fx_is_error(file));
    const Encoder *e = fx_child_named(file, "model");
    check_numbers(e);
    assert_true(fx_size(e->weight, 0) == 2 && fx_at(e->weight, 1) == 5.125);
    assert_true(fx_at(e->inner->x, 1) == 6.25);
    assert_int_equal(fx_size(fx_call((void *)(uintptr_t)e, fx_ones(3, 4)), 1), 4);
    const Inner *bare = fx_child_named(file, "bare"); /* named without modules: of every module */
    assert_true(fx_is(bare, fxi_type_Inner()) && fx_at(bare->x, 0) == 1);
    fx_summary(fx_child_named(file, "unknown"), text, sizeof text);
    assert_string_equal(text, "Main.Stranger(…)");
    void *tied = fx_child_named(file, "tied");
    const Inner *a = fx_child(tied, 0), *b = fx_child(tied, 1);
    assert_true(a->x == b->x && a != b);
}

static void written_and_read(void **state)
{
    (void)state;
    FX_TEST;
    char line[400];
    Encoder *e = encoder();
    Inner *in = inner(e->weight);
    void *m = fx_tuple(e, in, in);
    const char *path = temp_file("own_written.bson", "", 0);
    if (fx_save(path, "model", m, "chain", fx_chain(e)) != FX_OK)
        fail_msg("%s", fx_error_take().message);
    python_bson("check_bson.py", "load", path, NULL, line, sizeof line);
    assert_true(atoi(line) >= 5);
    python_bson("check_bson.py", "selftest", path, NULL, line, sizeof line);
    assert_true(atoi(line) >= 10);
    void *back = fx_load_key(path, "model");
    const Encoder *f = fx_child(back, 0);
    const Inner *g = fx_child(back, 1);
    check_numbers(f);
    assert_true(fx_item(fx_all(fx_eq(e->weight, f->weight))) == 1);
    assert_ptr_equal(g, fx_child(back, 2)); /* the shared object is shared after loading, too */
    assert_ptr_equal(g->x, f->weight);
    fx_array *x = fx_randn(3, 2);
    void *chain = fx_load_key(path, "chain");
    assert_true(fx_item(fx_all(fx_eq(fx_call(e, x), fx_call(chain, x)))) == 1);
}

/* The document that Julia would write is the one that the library writes. */
static void the_same_document(void **state)
{
    (void)state;
    FX_TEST;
    char line[400];
    const char *path = temp_file("own_inner.bson", "", 0);
    assert_int_equal(fx_save(path, "x", inner(fx_ones(2)), "y", fx_new(Unnamed, .x = NULL)), FX_OK);
    python_bson("make_bson.py", "struct", path, NULL, line, sizeof line);
    assert_string_equal(line, "Main.Inner 2 Main.Unnamed 1\n");
    char text[100];
    /* A type without a Julia name becomes a node. */
    fx_summary(fx_load_key(path, "y"), text, sizeof text);
    assert_string_equal(text, "Main.Unnamed(…)");
}

static void what_does_not_fit(void **state)
{
    static const struct {
        const char *file, *words;
    } cases[] = {
        {"count", "a Models.Encoder has 1 fields in the file, but 12 in the program's Encoder"},
        {"weight", "the field weight of a Models.Encoder"},
        {"inner", "the field inner of a Models.Encoder"},
        {"bias", "the field bias of a Models.Encoder"}, /* the example has none */
        {"act", "the field act of a Models.Encoder"},
        {"rate", "the field rate of a Models.Encoder"},
        {"small", "the field small of a Models.Encoder"},
        {"on", "the field on of a Models.Encoder"},
        {"layers", "the field layers of a Models.Encoder"},
        {"title", "the field title of a Models.Encoder"},
        {"size", "the field size of a Models.Encoder"},
        {"type", "a struct without a type"},
    };
    (void)state;
    FX_TEST;
    int n = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++, n++) {
        char name[100];
        snprintf(name, sizeof name, "own_bad_%s.bson", cases[i].file);
        assert_true(fx_is_error(fx_load(made_bson(name))));
        const fx_error e = fx_error_take();
        if (e.status != FX_STATUS_FORMAT || !strstr(e.message, cases[i].words) ||
            !strstr(e.message, name))
            fail_msg("%s: %s", name, e.message);
    }
    assert_int_equal(n, 12);
}

/* At most 64 nested structs, in every form in which they can be written. */
static void nesting_is_bounded(void **state)
{
    static const char *const kinds[] = {"inside", "linked"};
    (void)state;
    FX_TEST;
    for (int k = 0; k < 2; k++) {
        char name[100];
        int levels = 0;
        snprintf(name, sizeof name, "own_%s_60.bson", kinds[k]);
        for (const Link *l = fx_load_key(made_bson(name), "model"); l; l = l->next)
            levels++;
        assert_int_equal(levels, 60);
        snprintf(name, sizeof name, "own_%s_70.bson", kinds[k]);
        assert_true(fx_is_error(fx_load(made_bson(name))));
        const fx_error e = fx_error_take();
        assert_int_equal(e.status, FX_STATUS_FORMAT);
        if (!strstr(e.message, "objects nested deeper than 64"))
            fail_msg("%s", e.message);
    }
}

static void names(void **state)
{
    static const char *const bad[] = {
        "",          ".Encoder", "Models.",         "A..B",
        "Base.Dict", "A B",      "Main.Core.Tuple", "A.B.C.D.E.F.G.H.I"};
    (void)state;
    FX_TEST;
    Encoder *e = encoder();
    int n = 0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++, n++) {
        assert_int_equal(fx_julia_name(e, bad[i]), FX_STATUS_ARGUMENT);
        assert_non_null(strstr(fx_error_take().message, "is not a type name"));
    }
    assert_int_equal(n, 8);
    void *const none[] = {NULL, fx_ones(2), FX_RELU, fx_dense(2, 2), fx_tuple(e), fx_adam()};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_int_equal(fx_julia_name(none[i], "A.B"), FX_STATUS_ARGUMENT);
        fx_error_take();
    }
    assert_int_equal(fx_julia_name(inner(fx_ones(1)), "Models.Encoder"), FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "the name of another type"));
}

int main(void)
{
    fx_message_set_hook(NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_of_julia),    cmocka_unit_test(written_and_read),
        cmocka_unit_test(the_same_document),  cmocka_unit_test(what_does_not_fit),
        cmocka_unit_test(nesting_is_bounded), cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, name_types, NULL);
}
