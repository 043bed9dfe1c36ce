/* test_functor.c: structs of programs: walks, taking apart and rebuilding, vectors, states,
 * loading, precision, frozen states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "evaluate.h"
#include "memory.h"
#include "object_types.h"

/* The manual's example before @functor and after it. */
typedef struct Before {
    fx_object base;
    fx_array *actor, *critic;
} Before;
FX_STRUCT(Before, actor, critic);
typedef struct ActorCritic {
    fx_object base;
    fx_array *actor, *critic;
} ActorCritic;
FX_FUNCTOR(ActorCritic, actor, critic);

/* A field of every kind. */
typedef struct Kitchen {
    fx_object base;
    fx_list layers;
    fx_array *w;
    fx_function *act;
    double rate;
    float gain;
    int64_t count;
    int heads;
    bool on;
    fx_dims size;
    const char *label;
    int hidden; /* not in the list of children: a copy shares it with the original */
} Kitchen;
FX_FUNCTOR(Kitchen, layers, w, act, rate, gain, count, heads, on, size, label);

/* Only `weight` is trained; `norm` depends on it and is made again. */
typedef struct Scaled {
    fx_object base;
    fx_array *weight, *fixed;
    double norm;
} Scaled;
static void *scaled_forward(void *self, int n, void *const *args)
{
    (void)n;
    return fx_mul(((Scaled *)self)->weight, (fx_array *)args[0]);
}
static int rebuilt;
static void *scaled_rebuild(void *copy)
{
    Scaled *s = copy;
    rebuilt++;
    s->norm = fx_item(fx_sum(fx_square(s->weight)));
    return s;
}
FX_OBJECT(Scaled, (weight, fixed, norm), .forward = scaled_forward, .trainable = "weight",
          .rebuild = scaled_rebuild);

static fx_array *twice(fx_array *x)
{
    return fx_mul(x, 2);
}

static void takes(fx_status status, const char *text)
{
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, status);
    if (text && !strstr(e.message, text))
        fail_msg("\"%s\" is not in \"%s\"", text, e.message);
}

static void values_are(fx_array *x, int n, const double *expected)
{
    double got[16];
    assert_true(n <= 16);
    assert_int_equal(fx_length(x), n);
    for (int i = 0; i < n; i++) {
        got[i] = fx_item(fx_slice(fx_vec(x), 0, i, i + 1));
        assert_true(fabs(got[i] - expected[i]) < 1e-6);
    }
}
#define VALUES(x, ...)                                                                             \
    values_are((x), (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)),                       \
               (const double[]){__VA_ARGS__})

/* ---- declarations ---------------------------------------------------------------------------- */

static void a_struct_without_children_passes(void **state)
{
    (void)state;
    FX_SCOPE;
    char text[200];
    Before *b = fx_new(Before, .actor = fx_ones(2, 2), .critic = fx_ones(2));
    assert_ptr_equal(fx_fmap(twice, b), b);
    assert_ptr_equal(fx_mapleaves(twice, b), b);
    assert_ptr_equal(fx_to(fx_cpu_device(), b), b);
    assert_int_equal(fx_parameter_count(b), 0);
    assert_int_equal(fx_count(fx_trainables(b)), 0);
    void *chain = fx_tuple(b, fx_ones(3)); /* inside other objects as well */
    void *mapped = fx_fmap(twice, chain);
    assert_ptr_not_equal(mapped, chain);
    assert_ptr_equal(fx_child(mapped, 0), b);
    fx_show_text(b, text, sizeof text);
    assert_non_null(strstr(text, "Before("));
    assert_non_null(strstr(text, "2×2 Matrix{Float32}"));
    ActorCritic *a = fx_new(ActorCritic, .actor = fx_ones(2, 2), .critic = fx_ones(2));
    ActorCritic *m = fx_fmap(twice, a);
    VALUES(m->actor, 2, 2, 2, 2);
    VALUES(m->critic, 2, 2);
    VALUES(a->critic, 1, 1);
    takes(FX_OK, NULL);
}

static Kitchen *kitchen(void)
{
    void *layers[] = {fx_dense(2, 3, FX_RELU), fx_dense(3, 1)};
    return fx_new(Kitchen, .layers = {2, layers, NULL}, .w = fx_ones(2), .act = FX_TANH,
                  .rate = 0.5, .gain = 0.1f, .count = 7, .heads = 8, .on = true,
                  .size = FX_DIMS(3, 4), .label = "a \"b\"", .hidden = 11);
}

static void fields_of_every_kind(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fx_field_kind kinds[] = {
        FX_FIELD_LIST,    FX_FIELD_CHILD, FX_FIELD_CHILD, FX_FIELD_NUMBER, FX_FIELD_FLOAT,
        FX_FIELD_INTEGER, FX_FIELD_INT,   FX_FIELD_FLAG,  FX_FIELD_DIMS,   FX_FIELD_STRING};
    const fx_type *type = fxi_type_Kitchen();
    assert_int_equal(type->nfields, 10);
    for (int i = 0; i < 10; i++)
        assert_int_equal(type->fields[i].kind, kinds[i]);
    Kitchen *k = kitchen();
    char text[400];
    fx_summary(k, text, sizeof text);
    assert_string_equal(text,
                        "Kitchen(Dense(2 => 3, relu), Dense(3 => 1), 2-element "
                        "Vector{Float32}, tanh, 0.5, 0.1f0, 7, 8, true, (3, 4), \"a \\\"b\\\"\")");
    Kitchen *m = fx_fmap(twice, k);
    assert_ptr_not_equal(m, k);
    assert_ptr_equal(m->act, FX_TANH); /* functions, numbers and strings are unchanged */
    assert_ptr_equal(m->label, k->label);
    assert_int_equal(m->hidden, 11);
    assert_int_equal(m->heads, 8);
    assert_true(m->gain == 0.1f && m->rate == 0.5 && m->on && m->size.v[1] == 4);
    VALUES(m->w, 2, 2);
    assert_ptr_not_equal(m->layers.items[0], k->layers.items[0]);
    assert_int_equal(fx_parameter_count(k), 2 * 3 + 3 + 3 + 1 + 2);
    takes(FX_OK, NULL);
}

/* The list of trainable fields is made of whole words. It may begin at any address: bytes before it
 * in memory are ignored. */
static void trainable_is_a_list_of_words(void **state)
{
    (void)state;
    static const char *const words[] = {"w", "ww", "b", "bias", "bia", "ias", "w1", "rate"};
    static const char *const between[] = {",", ", ", " "};
    enum { WORDS = sizeof words / sizeof words[0] };
    uint32_t dice = 7;
    for (int round = 0; round < 300; round++) {
        char text[80] = "w",
             *list = text + round % 2; /* after a letter, or at the very beginning */
        bool in[WORDS] = {false};
        *list = 0;
        for (int n = 0; n < 3; n++) {
            dice = dice * 1664525 + 1013904223;
            const uint32_t i = (dice >> 16) % WORDS;
            in[i] = true;
            strcat(list, n ? between[(dice >> 24) % 3] : "");
            strcat(list, words[i]);
        }
        const fx_type type = {.trainable = list};
        for (int i = 0; i < WORDS; i++) {
            const fx_field field = {.name = words[i]}, frozen = {.name = words[i], .frozen = true};
            if (fxi_field_frozen(&type, &field) == in[i])
                fail_msg("\"%s\" in \"%s\"", words[i], list);
            assert_true(fxi_field_frozen(&type, &frozen));
        }
    }
}

static void trainable_restricts_optimisers_only(void **state)
{
    (void)state;
    FX_SCOPE;
    rebuilt = 0;
    Scaled *s = fx_new(Scaled, .weight = fx_full(2.0, 3), .fixed = fx_ones(4), .norm = 12);
    assert_int_equal(fx_parameter_count(s), 3);
    assert_int_equal(fx_count(fx_trainables(s)), 1);
    Scaled *m = fx_fmap(twice, s); /* the map visits both fields */
    VALUES(m->weight, 4, 4, 4);
    VALUES(m->fixed, 2, 2, 2, 2);
    assert_true(m->norm == 48 && s->norm == 12);
    assert_int_equal(rebuilt, 1);
    fx_array *loss = fx_sum(fx_call(s, fx_ones(3)));
    Scaled *g = fx_gradient(loss, s);
    VALUES(g->weight, 1, 1, 1);
    assert_null(g->fixed);
    void *opt = fx_setup(fx_descent(.eta = 0.5), s);
    assert_int_equal(fx_update(opt, s, g), FX_OK);
    VALUES(s->weight, 1.5, 1.5, 1.5);
    VALUES(s->fixed, 1, 1, 1, 1);
    takes(FX_OK, NULL);
}

/* ---- functor and rebuild --------------------------------------------------------------------- */

static void functor_and_rebuild(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *d = fx_dense(2, 3, FX_RELU, .bias = false);
    void *children = fx_functor(d);
    assert_int_equal(fx_count(children), 2);
    assert_string_equal(fx_child_name(children, 0), "weight");
    assert_string_equal(fx_child_name(children, 1), "bias");
    assert_ptr_equal(fx_child(children, 0), d->weight);
    assert_null(fx_child(children, 1));
    fx_array *w = fx_ones(3, 2), *b = fx_zeros(3);
    fx_dense_layer *e = fx_rebuild(d, fx_named_tuple("weight", w, "bias", b));
    assert_ptr_equal(e->weight, w);
    assert_ptr_equal(e->bias, b); /* also where the original had no bias */
    assert_ptr_equal(e->act, FX_RELU);
    assert_null(d->bias);
    Kitchen *k = kitchen();
    void *parts = fx_functor(k);
    assert_int_equal(fx_count(parts), 4); /* two layers, w, act */
    Kitchen *again = fx_rebuild(k, parts);
    assert_ptr_not_equal(again, k);
    assert_ptr_equal(again->layers.items[1], k->layers.items[1]);
    assert_int_equal(again->hidden, 11);
    assert_int_equal(fx_count(fx_functor(w)), 0);
    assert_int_equal(fx_count(fx_functor(FX_RELU)), 0);
    assert_ptr_equal(fx_rebuild(w, fx_tuple()), w);
    takes(FX_OK, NULL);
    assert_true(fx_is_error(fx_rebuild(d, fx_tuple(w))));
    takes(FX_STATUS_ARGUMENT, "Dense has 2 children, got 1");
    assert_true(fx_is_error(fx_functor(NULL)));
    takes(FX_STATUS_ARGUMENT, "the object is NULL");
}

/* ---- vectors --------------------------------------------------------------------------------- */

static void destructure_and_restructure(void **state)
{
    (void)state;
    FX_SCOPE;
    static const float four[] = {1, 2, 3, 4}, two[] = {5, 6};
    fx_array *w = fx_from(FX_DTYPE_F32, four, 2, 2), *b = fx_from(FX_DTYPE_F32, two, 2);
    fx_dense_layer *d = fx_dense(2, 2, FX_IDENTITY, .weight_array = w, .bias_array = b);
    void *model = fx_chain(d, d,
                           fx_dense(2, 1, FX_IDENTITY, .weight_array = fx_full(9.0, 1, 2),
                                    .bias = false)); /* d is tied */
    fx_array *flat = fx_destructure(model);
    VALUES(flat, 1, 2, 3, 4, 5, 6, 9, 9);
    fx_chain_layer *m = fx_restructure((fx_chain_layer *)model, fx_mul(flat, 10));
    fx_dense_layer *first = fx_child(m, 0);
    assert_ptr_equal(first, fx_child(m, 1)); /* still tied */
    VALUES(first->weight, 10, 20, 30, 40);
    VALUES(first->bias, 50, 60);
    VALUES(((fx_dense_layer *)fx_child(m, 2))->weight, 90, 90);
    assert_int_equal(fx_parameter_count(m), 8);
    /* d/dflat of y = 9·Σ(W(W·x + b) + b), x = (1, 1), W = [1 3; 2 4], b = (5, 6). With s = Wᵀ·(1,
     * 1) = (3, 7), h = W·x + b = (9, 12), g = 9: ∂W = g·(1 hᵀ + s xᵀ), ∂b = g·(1 + s), and for the
     * last weights, of the second output y₂ = W·h + b = (50, 72), y₂ itself. */
    fx_chain_layer *same = fx_restructure((fx_chain_layer *)model, flat);
    fx_array *g = fx_gradient(fx_sum(fx_call(same, fx_ones(2, 1))), flat);
    VALUES(g, 9 * (9 + 3), 9 * (9 + 7), 9 * (12 + 3), 9 * (12 + 7), 9 * (1 + 3), 9 * (1 + 7), 50,
           72);
    takes(FX_OK, NULL);
    assert_true(fx_is_error(fx_restructure((fx_chain_layer *)model, fx_ones(7))));
    takes(FX_STATUS_SHAPE, "Rebuild expected a vector of length 8, got 7");
    assert_int_equal(fx_length(fx_destructure(fx_tuple())), 0);
    takes(FX_OK, NULL);
}

static void restructure_keeps_types(void **state)
{
    (void)state;
    FX_SCOPE;
    ActorCritic *a = fx_new(ActorCritic, .actor = fx_full_dtype(FX_DTYPE_F64, 1, 2),
                            .critic = fx_full_dtype(FX_DTYPE_F16, 3, 1));
    fx_array *flat = fx_destructure(a);
    assert_int_equal(fx_eltype(flat), FX_DTYPE_F64);
    ActorCritic *b = fx_restructure(a, flat);
    assert_int_equal(fx_eltype(b->actor), FX_DTYPE_F64);
    assert_int_equal(fx_eltype(b->critic), FX_DTYPE_F16);
    VALUES(b->critic, 3);
    takes(FX_OK, NULL);
}

/* ---- state and loading ----------------------------------------------------------------------- */

static void state_and_loadmodel(void **state)
{
    (void)state;
    FX_SCOPE;
    void *src = fx_chain(fx_dense(2, 3, FX_TANH), fx_batchnorm(3), fx_dense(3, 1));
    void *dst = fx_chain(fx_dense(2, 3, FX_TANH), fx_batchnorm(3), fx_dense(3, 1));
    void *s = fx_state(src);
    fx_array *x = fx_ones(2, 4);
    fx_array *handle = ((fx_dense_layer *)fx_child(dst, 0))->weight;
    assert_ptr_equal(fx_child_named(fx_child(s, 0), "weight"),
                     ((fx_dense_layer *)fx_child(src, 0))->weight);
    assert_ptr_equal(fx_child_named(fx_child(s, 1), "mean"),
                     ((fx_batchnorm_layer *)fx_child(src, 1))->mean);
    assert_true(fx_item(fx_all(fx_eq(fx_call(src, x), fx_call(dst, x)))) == 0);
    assert_int_equal(fx_loadmodel(dst, s), FX_OK);
    assert_true(fx_item(fx_all(fx_eq(fx_call(src, x), fx_call(dst, x)))) == 1);
    assert_ptr_equal(((fx_dense_layer *)fx_child(dst, 0))->weight, handle);
    assert_int_equal(fx_loadmodel(dst, src), FX_OK); /* the source may also be a model */
    /* Training the copy does not touch the source. */
    const double before = fx_item(fx_sum(((fx_dense_layer *)fx_child(src, 0))->weight));
    void *opt = fx_setup(fx_descent(.eta = 0.5), dst);
    for (int i = 0; i < 3; i++) {
        FX_STEP;
        fx_update(opt, dst, fx_gradient(fx_mean(fx_square(fx_call(dst, x))), dst));
    }
    assert_true(fx_item(fx_sum(((fx_dense_layer *)fx_child(src, 0))->weight)) == before);
    takes(FX_OK, NULL);
}

static void loadmodel_with_and_without_bias(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *with =
        fx_dense(2, 2, FX_IDENTITY, .weight_array = fx_ones(2, 2), .bias_array = fx_ones(2));
    fx_dense_layer *none =
        fx_dense(2, 2, FX_IDENTITY, .weight_array = fx_full(3.0, 2, 2), .bias = false);
    assert_int_equal(fx_loadmodel(none, with),
                     FX_STATUS_ARGUMENT); /* an array of ones is not a missing bias */
    takes(FX_STATUS_ARGUMENT, "structures do not match");
    VALUES(none->weight, 3, 3, 3, 3);
    assert_int_equal(fx_loadmodel(with, none), FX_OK);
    VALUES(with->weight, 3, 3, 3, 3);
    VALUES(with->bias, 0, 0);
    assert_int_equal(fx_copy_into(with->weight, fx_ones(2, 2)), FX_OK);
    assert_int_equal(fx_loadmodel(none, with), FX_OK);
    VALUES(none->weight, 1, 1, 1, 1);
    takes(FX_OK, NULL);
}

static void loadmodel_refuses(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_chain_layer *dst = fx_chain(fx_dense(2, 3), fx_dense(3, 1));
    fx_array *w = ((fx_dense_layer *)fx_child(dst, 0))->weight;
    const double before = fx_item(fx_sum(w));
    assert_int_equal(fx_loadmodel(dst, fx_chain(fx_dense(2, 3), fx_dense(4, 1))), FX_STATUS_SHAPE);
    takes(FX_STATUS_SHAPE, "Tried to load size (1, 4) array into size (1, 3)");
    assert_true(fx_item(fx_sum(w)) == before); /* nothing was loaded */
    assert_int_equal(fx_loadmodel(dst, fx_chain(fx_dense(2, 3))), FX_STATUS_ARGUMENT);
    takes(FX_STATUS_ARGUMENT, "structures do not match");
    assert_int_equal(fx_loadmodel(NULL, dst), FX_STATUS_ARGUMENT);
    takes(FX_STATUS_ARGUMENT, "the model is NULL");
    fx_dense_layer *d = fx_dense(2, 2);
    void *tied = fx_chain(d, d);
    assert_int_equal(fx_loadmodel(tied, fx_chain(fx_dense(2, 2), fx_dense(2, 2))),
                     FX_STATUS_ARGUMENT);
    takes(FX_STATUS_ARGUMENT, "tied destination parameters with untied");
    fx_dense_layer *e = fx_dense(2, 2);
    assert_int_equal(fx_loadmodel(tied, fx_chain(e, e)), FX_OK);
    takes(FX_OK, NULL);
}

/* ---- precision ------------------------------------------------------------------------------- */

static void precision_of_a_model(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_chain_layer *m = fx_chain(fx_dense(2, 3), fx_batchnorm(3), fx_dense(3, 1));
    fx_chain_layer *h = fx_bf16(m);
    assert_int_equal(fx_eltype(((fx_dense_layer *)fx_child(h, 0))->weight), FX_DTYPE_BF16);
    fx_batchnorm_layer *b = fx_child(h, 1);
    assert_ptr_equal(b, fx_child(m, 1)); /* in Float32, the same object */
    assert_int_equal(fx_eltype(b->mean), FX_DTYPE_F32);
    fx_chain_layer *d = fx_f64(m);
    assert_int_equal(fx_eltype(((fx_batchnorm_layer *)fx_child(d, 1))->mean), FX_DTYPE_F64);
    fx_chain_layer *f = fx_f16(d);
    assert_int_equal(fx_eltype(((fx_batchnorm_layer *)fx_child(f, 1))->gamma), FX_DTYPE_F32);
    assert_ptr_equal(fx_f32(m), m);
    fx_array *index = fxi_full(FX_DTYPE_I64, 3, 0, NULL);
    assert_ptr_equal(fx_f16(index), index);
    VALUES(fx_f16(fx_full(0.1, 1)), 0.0999755859375);
    takes(FX_OK, NULL);
}

/* ---- optimiser states ------------------------------------------------------------------------ */

static void freeze_thaw_adjust(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_chain_layer *m =
        fx_chain(fx_dense(1, 1, FX_IDENTITY, .weight_array = fx_ones(1, 1), .bias = false),
                 fx_dense(1, 1, FX_IDENTITY, .weight_array = fx_ones(1, 1), .bias = false));
    fx_dense_layer *a = fx_child(m, 0), *b = fx_child(m, 1);
    void *opt = fx_setup(fx_descent(.eta = 0.25), m);
    assert_int_equal(fx_freeze(fx_child(opt, 0)), FX_OK);
    assert_int_equal(fx_update(opt, m, fx_gradient(fx_sum(fx_call(m, fx_ones(1, 1))), m)), FX_OK);
    VALUES(a->weight, 1);
    VALUES(b->weight, 0.75);
    assert_int_equal(fx_thaw(opt), FX_OK);
    assert_int_equal(fx_adjust(opt, .eta = 0.5), FX_OK);
    assert_true(fx_eta(opt) == 0.5);
    assert_int_equal(fx_update(opt, m, fx_gradient(fx_sum(fx_call(m, fx_ones(1, 1))), m)), FX_OK);
    VALUES(a->weight, 1 - 0.5 * 0.75);
    VALUES(b->weight, 0.75 - 0.5);
    takes(FX_OK, NULL);
    assert_int_equal(fx_freeze(NULL), FX_STATUS_ARGUMENT);
    takes(FX_STATUS_ARGUMENT, "freeze: the optimiser state is NULL");
    assert_int_equal(fx_freeze(m), FX_STATUS_ARGUMENT);
    takes(FX_STATUS_ARGUMENT, "only to the state tree");
    assert_int_equal(fx_thaw(NULL), FX_STATUS_ARGUMENT);
    takes(FX_STATUS_ARGUMENT, "thaw: the optimiser state is NULL");
    assert_int_equal(fx_thaw(m), FX_STATUS_ARGUMENT);
    takes(FX_STATUS_ARGUMENT, "only to the state tree");
    assert_int_equal(fx_adjust(opt, .eta = -1), FX_STATUS_ARGUMENT);
    takes(FX_STATUS_ARGUMENT, "learning rate must be at least 0");
    char text[300];
    void *adam = fx_setup(fx_adam(), a);
    assert_int_equal(fx_adjust(adam, .beta1 = 0.8, .rho = 0.1), FX_STATUS_ARGUMENT);
    takes(FX_STATUS_ARGUMENT, "Adam");
    assert_int_equal(fx_adjust(adam, .beta1 = 0.8), FX_OK);
    fx_freeze(adam);
    fx_summary(fx_child(adam, 0), text, sizeof text);
    assert_string_equal(text,
                        "Leaf(Adam(eta=0.001, beta=(0.8, 0.999), epsilon=1.0e-8), (1×1 "
                        "Matrix{Float32}, 1×1 Matrix{Float32}, (0.9, 0.999)), frozen = true)");
    takes(FX_OK, NULL);
}

/* ---- without memory -------------------------------------------------------------------------- */

static bool all_of_it(void)
{
    FX_SCOPE;
    fx_chain_layer *m = fx_chain(fx_dense(2, 3), fx_batchnorm(3));
    fx_chain_layer *other = fx_chain(fx_dense(2, 3), fx_batchnorm(3));
    fx_chain_layer *half = fx_f16(m);
    fx_array *flat = fx_destructure(m);
    fx_chain_layer *back = fx_restructure(m, flat);
    void *parts = fx_functor(m);
    void *same = fx_rebuild(m, parts), *s = fx_state(m);
    fx_array *w = fx_ones(2, 3);
    void *tied = fx_fmap(twice, fx_tuple(fx_transpose(w), w));
    if (fx_is_error(tied) && fx_error_status() == FX_OK) /* each failure leaves a record */
        abort();
    return !fx_is_error(half) && !fx_is_error(flat) && !fx_is_error(back) && !fx_is_error(same) &&
           !fx_is_error(s) && fx_loadmodel(other, s) == FX_OK && !fx_is_error(tied) &&
           fx_eval(fx_tuple(half, back)) == FX_OK;
}

/* Runs in a thread of its own, whose memory is freed with it. */
static void *with_faults(void *user)
{
    int *failures = user;
    for (int64_t nth = 0;; nth++) {
        fxi_fault_set(nth);
        const bool ok = all_of_it();
        const bool reached = fxi_fault_seen() > nth;
        fxi_fault_set(-1);
        *failures += !ok;
        fx_error_take();

        if (!reached)
            return ok ? user : NULL; /* if no allocation failed, the result must be complete */
    }
}

static void every_allocation_fails(void **state)
{
    (void)state;
    fxi_reclaim_all();
    const int64_t live = fxi_live_allocations();
    int failures = 0;
    pthread_t t;
    void *complete;
    assert_int_equal(pthread_create(&t, NULL, with_faults, &failures), 0);
    pthread_join(t, &complete);
    fxi_reclaim_all();
    assert_non_null(complete);
    assert_true(failures >= 100);
    assert_int_equal(fxi_live_allocations(), live);
}

/* ---- the most fields of a struct ------------------------------------------------------------- */

typedef struct {
    fx_object base;
    fx_array *f0, *f1, *f2, *f3, *f4, *f5, *f6, *f7, *f8, *f9, *f10, *f11, *f12, *f13, *f14, *f15,
        *f16, *f17, *f18, *f19, *f20, *f21, *f22, *f23, *f24, *f25, *f26, *f27, *f28, *f29, *f30,
        *f31;
} Wide;
FX_FUNCTOR(Wide, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
           f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31);

static fx_array *tripled(fx_array *x)
{
    return fx_mul(x, 3);
}

static void test_32_fields(void **state)
{
    (void)state;
    FX_SCOPE;
    Wide *m = fx_new(Wide, .f0 = fx_vector(1), .f12 = fx_vector(2), .f31 = fx_vector(3));
    m = fx_fmap(tripled, m);
    assert_true(fx_item(m->f0) == 3 && fx_item(m->f12) == 6 && fx_item(m->f31) == 9);
    assert_int_equal(fx_parameter_count(m), 3);
    assert_int_equal(fx_type_of(m)->nfields, 32);
    assert_string_equal(fx_type_of(m)->fields[31].name, "f31");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_32_fields),
        cmocka_unit_test(a_struct_without_children_passes),
        cmocka_unit_test(fields_of_every_kind),
        cmocka_unit_test(trainable_restricts_optimisers_only),
        cmocka_unit_test(trainable_is_a_list_of_words),
        cmocka_unit_test(functor_and_rebuild),
        cmocka_unit_test(destructure_and_restructure),
        cmocka_unit_test(restructure_keeps_types),
        cmocka_unit_test(state_and_loadmodel),
        cmocka_unit_test(loadmodel_with_and_without_bias),
        cmocka_unit_test(loadmodel_refuses),
        cmocka_unit_test(precision_of_a_model),
        cmocka_unit_test(freeze_thaw_adjust),
        cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
