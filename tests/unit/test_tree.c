/* Objects, tuples, functions, and the walk: identity, sharing, ownership, errors. ctest: threads */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "memory.h"
#include "tuples.h"

typedef struct Pair {
    fx_object base;
    fx_array *left, *right;
    fx_array *outside; /* not a child */
    int tag;
} Pair;
FX_FUNCTOR(Pair, left, right);

static void *halve_forward(void *self, int n, void *const *args);
typedef struct Halver {
    fx_object base;
    fx_array *factor;
} Halver;
FX_LAYER(Halver, halve_forward, factor);
static void *halve_forward(void *self, int n, void *const *args)
{
    (void)n;
    return fx_mul(((Halver *)self)->factor, (fx_array *)args[0]);
}

typedef struct Mixed {
    fx_object base;
    fx_list parts;
    fx_array *frozen, *index;
    fx_function *act;
} Mixed;
static Mixed mixed_error;
static int finished;
static void mixed_finish(void *self)
{
    (void)self;
    finished++;
}
static const fx_field mixed_fields[] = {{"parts", offsetof(Mixed, parts), FX_FIELD_LIST, false},
                                        {"frozen", offsetof(Mixed, frozen), FX_FIELD_CHILD, true},
                                        {"index", offsetof(Mixed, index), FX_FIELD_CHILD, false},
                                        {"act", offsetof(Mixed, act), FX_FIELD_SHARED, false}};
static const fx_type mixed_type = {.fxi_size = sizeof(fx_type),
                                   .name = "Mixed",
                                   .size = sizeof(Mixed),
                                   .fields = mixed_fields,
                                   .nfields = 4,
                                   .finish = mixed_finish,
                                   .error = &mixed_error};

static Mixed *mixed(void)
{
    void *items[] = {fx_ones(2), fx_tuple(fx_ones(3), fx_ones(4))};
    char *names[] = {(char[]){"a"}, NULL};
    const Mixed init = {.parts = {2, items, names},
                        .frozen = fx_ones(5),
                        .index = fxi_full(FX_DTYPE_I64, 1, 1, (const int64_t[]){6}),
                        .act = FX_RELU};
    return fxi_new(&mixed_type, &init);
}

static fx_array *negative(fx_array *x)
{
    return fx_neg(x);
}
static fx_array *same(fx_array *x)
{
    return x;
}
static fx_array *nothing(fx_array *x)
{
    (void)x;
    return NULL;
}

static void takes_status(fx_status status)
{
    assert_int_equal(fx_error_take().status, status);
}

/* ---- objects --------------------------------------------------------------------------------- */

static void objects_own_their_children(void **state)
{
    (void)state;
    FX_SCOPE;
    Pair *p;
    {
        FX_SCOPE;
        p = fx_keep(fx_new(Pair, .left = fx_ones(2), .right = fx_zeros(3), .tag = 7));
    }
    assert_int_equal(fx_length(p->left), 2); /* their scope is closed */
    assert_int_equal(fx_length(p->right), 3);
    assert_int_equal(p->tag, 7);
    assert_ptr_equal(fx_type_of(p), fxi_type_Pair());
    assert_true(fx_is(p, fxi_type_Pair()));
    assert_false(fx_is(p, fxi_type_Halver()));
    assert_false(fx_is(NULL, fxi_type_Pair()));
    assert_false(fx_is(fx_error_array(FX_STATUS_SHAPE), fxi_type_Pair()));
    assert_true(fx_is_array(p->left));
    assert_false(fx_is_array(p));
    assert_false(fx_is_array(NULL));
    assert_null(fx_type_of(NULL));
    fx_type elsewhere = *fxi_type_Pair(); /* the descriptor as another source file has it */
    assert_true(fx_is(p, &elsewhere));
    takes_status(FX_OK);
}

static void lists_are_copied(void **state)
{
    (void)state;
    finished = 0;
    {
        FX_SCOPE;
        Mixed *m;
        {
            FX_SCOPE;
            m = fx_keep(mixed());
        }
        assert_int_equal(m->parts.n, 2);
        assert_string_equal(m->parts.names[0], "a");
        assert_null(m->parts.names[1]);
        assert_int_equal(fx_length(m->parts.items[0]), 2);
        assert_int_equal(fx_count(m->parts.items[1]), 2);
        assert_int_equal(finished, 0);
    }
    assert_int_equal(finished, 1);
}

static void error_objects(void **state)
{
    (void)state;
    FX_SCOPE;
    Pair *p = fx_error_object(fxi_type_Pair());
    assert_true(fx_is_error(p));
    assert_true(fx_is(p, fxi_type_Pair()));
    assert_int_equal(fx_array_status(p->left), FX_STATUS_MEMORY);
    fx_fail(FX_STATUS_SHAPE, "test", "a failure");
    assert_ptr_equal(fx_error_object(fxi_type_Pair()), p); /* one per type */
    assert_int_equal(fx_array_status(p->right), FX_STATUS_SHAPE);
    fx_release(p); /* static: both are ignored */
    assert_ptr_equal(fx_retain(p), p);
    takes_status(FX_STATUS_SHAPE);
    assert_true(fx_is_error(fxi_new(NULL, p)));
    takes_status(FX_STATUS_ARGUMENT);
    static const fx_type small = {.fxi_size = sizeof small, .name = "Small", .size = 8};
    assert_true(fx_is_error(fxi_new(&small, p)));
    assert_string_equal(fx_error_take().message, "new: type->size is too small");
    assert_ptr_equal(fx_fmap(negative, p), p);
    takes_status(FX_OK);
}

static void *make_errors(void *unused)
{
    (void)unused;
    for (int i = 0; i < 1000; i++)
        if (!fx_is_error(fx_error_object(fxi_type_Halver())))
            return NULL;
    return fx_error_object(fxi_type_Halver());
}

static void error_objects_of_many_threads(void **state)
{
    (void)state;
    pthread_t t[4];
    void *result[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, make_errors, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], &result[i]);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(result[i], fx_error_object(fxi_type_Halver()));
}

/* ---- tuples ---------------------------------------------------------------------------------- */

static void tuples(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(2), *y = fx_ones(3);
    void *t = fx_tuple(x, y, NULL);
    assert_int_equal(fx_count(t), 3);
    assert_ptr_equal(fx_child(t, 0), x);
    assert_ptr_equal(fx_child(t, 1), y);
    assert_null(fx_child(t, 2));
    assert_string_equal(fx_child_name(t, 0), "");
    assert_int_equal(fx_count(fx_tuple()), 0);
    takes_status(FX_OK);
    assert_true(fx_is_error(fx_child(t, 3)));
    takes_status(FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fx_child(t, -1)));
    takes_status(FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fx_child(NULL, 0)));
    takes_status(FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fxi_tuple(-1, NULL)));
    takes_status(FX_STATUS_ARGUMENT);
}

static void named_tuples(void **state)
{
    (void)state;
    FX_SCOPE;
    char name[] = "first";
    fx_array *x = fx_ones(2);
    void *t = fx_named_tuple(name, x, "second", FX_RELU);
    name[0] = 'F'; /* names are copied */
    assert_int_equal(fx_count(t), 2);
    assert_ptr_equal(fx_child_named(t, "first"), x);
    assert_ptr_equal(fx_child_named(t, "second"), FX_RELU);
    assert_string_equal(fx_child_name(t, 1), "second");
    assert_true(fx_is_error(fx_child_named(t, "third")));
    const fx_error e = fx_error_take();
    assert_string_equal(e.message, "child_named: Tuple has no child named \"third\"; it has "
                                   "\"first\", \"second\"");
    assert_true(fx_is_error(fx_child_named(fx_tuple(x), "third")));
    assert_string_equal(fx_error_take().message, "child_named: Tuple has no child named \"third\"");
    assert_true(fx_is_error(fx_named_tuple("a", x, "a", x)));
    takes_status(FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fx_named_tuple("a", x, "b")));
    takes_status(FX_STATUS_ARGUMENT);
    /* children of a layer: its fields */
    fx_dense_layer *d = fx_dense(2, 3, .bias = false);
    assert_int_equal(fx_count(d), 2);
    assert_ptr_equal(fx_child_named(d, "weight"), d->weight);
    assert_string_equal(fx_child_name(d, 1), "bias");
    assert_null(fx_child(d, 1));
}

/* ---- functions ------------------------------------------------------------------------------- */

static fx_array *twice(fx_array *x)
{
    return fx_mul(2, x);
}

static void functions_are_layers(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(-1, 2);
    assert_true(fx_at(fx_call(FX_RELU, x), 0) == 0);
    assert_true(fx_at(fx_call(FX_RELU, x), 1) == 2);
    assert_ptr_equal(fx_call(FX_IDENTITY, x), x);
    const double e = exp(3.0); /* softmax of (−1, 2) */
    assert_true(fabs(fx_at(fx_call(FX_SOFTMAX, x), 1) - e / (1 + e)) < 1e-6);
    assert_true(fabs(fx_at(fx_call(FX_LOGSOFTMAX, x), 1) - (3 - log(1 + e))) < 1e-6);
    assert_int_equal(fx_size(fx_call(FX_FLATTEN, fx_ones(2, 3, 4)), 0), 6);
    assert_true(fx_at(fx_call(fx_function_new("twice", twice), x), 1) == 4);
    assert_true(fx_at(fx_call(fx_new(Halver, .factor = fx_scalar(0.5)), x), 1) == 1);
    assert_string_equal(FX_SIGMOID->name, "σ");
    assert_string_equal(FX_GELU->name, "gelu_tanh");
    assert_string_equal(FX_FLATTEN->name, "Flux.flatten");
    fx_release(FX_RELU);
    assert_ptr_equal(fx_retain(FX_RELU), FX_RELU);
    takes_status(FX_OK);
}

static void calls_that_fail(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(-1, 2);
    void *t = fx_tuple(x, x);
    assert_true(fx_is_error(fx_call(t, x)));
    assert_string_equal(fx_error_take().message, "call: Tuple is not a layer");
    assert_true(fx_is_error(fx_call(x, x)));
    assert_string_equal(fx_error_take().message, "call: Array is not a layer");
    assert_true(fx_is_error(fx_call(FX_RELU, x, x)));
    assert_string_equal(fx_error_take().message, "call: relu takes one array, got 2 arguments");
    assert_true(fx_is_error(fx_call(FX_RELU, t)));
    assert_string_equal(fx_error_take().message, "call: relu takes an array, got a Tuple");
    assert_true(fx_is_error(fx_call(NULL, x)));
    takes_status(FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fx_call(FX_RELU, NULL)));
    takes_status(FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fx_function_new("none", NULL)));
    takes_status(FX_STATUS_ARGUMENT);
    /* errors in arguments are returned without another record */
    assert_int_equal(fx_array_status(fx_call(FX_RELU, fx_error_array(FX_STATUS_SHAPE))),
                     FX_STATUS_SHAPE);
    assert_int_equal(fx_array_status(fx_call(fx_error_array(FX_STATUS_DTYPE), x)), FX_STATUS_DTYPE);
    assert_true(fx_is_error(fx_call(fx_error_object(fxi_type_Halver()), x)));
    takes_status(FX_OK);
}

/* ---- map ------------------------------------------------------------------------------------- */

static void map_replaces_arrays(void **state)
{
    (void)state;
    FX_SCOPE;
    Pair *p =
        fx_new(Pair, .left = fx_ones(2), .right = fx_ones(3), .outside = fx_ones(4), .tag = 7);
    Pair *q = fx_fmap(negative, p);
    assert_ptr_not_equal(p, q);
    assert_ptr_equal(fx_type_of(q), fx_type_of(p));
    assert_true(fx_at(q->left, 1) == -1 && fx_at(q->right, 2) == -1 && fx_at(p->left, 0) == 1);
    assert_ptr_equal(q->outside, p->outside); /* not a child: shared with the original */
    assert_int_equal(q->tag, 7);
    Mixed *m = mixed(), *n = fx_mapleaves(negative, m);
    assert_string_equal(n->parts.names[0], "a");
    assert_true(fx_at(fx_child(n->parts.items[1], 1), 3) == -1 && fx_at(n->index, 5) == -1);
    assert_ptr_equal(n->act, FX_RELU);
    assert_ptr_equal(fx_fmap(negative, FX_RELU), FX_RELU);
    assert_true(fx_at(fx_fmap(negative, p->left), 0) == -1);
    takes_status(FX_OK);
}

static fx_array *negate_pairs(fx_array *x)
{
    return fx_length(x) == 2 ? fx_neg(x) : x;
}

static void map_keeps_what_stays(void **state)
{
    (void)state;
    FX_SCOPE;
    Mixed *m = mixed();
    assert_ptr_equal(fx_fmap(same, m), m);
    /* one branch changes: the other is the same object */
    fx_array *x = fx_ones(2);
    void *left = fx_tuple(x), *right = fx_tuple(fx_ones(3));
    void *both = fx_tuple(left, right);
    void *moved = fx_fmap(negate_pairs, both);
    assert_ptr_not_equal(fx_child(moved, 0), left);
    assert_ptr_equal(fx_child(moved, 1), right);
    Pair *p = fx_fmap(nothing, fx_new(Pair, .left = x, .right = x));
    assert_null(p->left);
    assert_null(p->right);
    assert_null(fx_fmap(nothing, x));
    takes_status(FX_OK);
    assert_true(fx_is_error(fxi_fmap(NULL, x)));
    takes_status(FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fxi_fmap(same, NULL)));
    takes_status(FX_STATUS_ARGUMENT);
}

static int calls;
static fx_array *counted(fx_array *x)
{
    calls++;
    return fx_neg(x);
}

/* More children than a walk has space for without an allocation, between others. */
static void map_of_many_children(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { MANY = 200 };
    void *items[MANY];
    for (int i = 0; i < MANY; i++)
        items[i] = fx_full(i, 1);
    void *t = fx_tuple(fx_full(1000, 1), fxi_tuple(MANY, items), fx_full(2000, 1));
    void *u = fx_fmap(counted, t), *many = fx_child(u, 1);
    assert_int_equal(fx_count(many), MANY);
    assert_true(fx_at(fx_child(u, 0), 0) == -1000);
    assert_true(fx_at(fx_child(u, 2), 0) == -2000);
    for (int i = 0; i < MANY; i++)
        assert_true(fx_at(fx_child(many, i), 0) == -i);
}

static void map_keeps_ties(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(2);
    Pair *shared = fx_new(Pair, .left = x, .right = x);
    void *t = fx_tuple(shared, x, shared);
    calls = 0;
    void *u = fx_fmap(counted, t);
    assert_int_equal(calls, 1);
    Pair *s = fx_child(u, 0);
    assert_ptr_equal(s, fx_child(u, 2));
    assert_ptr_equal(s->left, s->right);
    assert_ptr_equal(s->left, fx_child(u, 1));
    /* 2⁶⁰ paths to one array */
    void *d = x;
    for (int i = 0; i < 60; i++)
        d = fx_tuple(d, d);
    calls = 0;
    assert_false(fx_is_error(fx_fmap(counted, d)));
    assert_int_equal(calls, 1);
    assert_int_equal(fx_parameter_count(d), 2);
}

typedef struct Average {
    fx_object base;
    fx_array *mean;
    Pair *inside;
} Average;
FX_OBJECT(Average, (mean, inside), .trainable = "none");

static void count_trained(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path;
    int *counts = user;
    counts[0]++;
    counts[1] += trainable && fx_length(x) == 3;
}

/* An array that is frozen on the path which the walk takes first, and trained on another, is
 * trained: Flux's trainables follow every field that is trained. */
static void frozen_on_one_path(void **state)
{
    (void)state;
    FX_SCOPE;
    Pair *shared = fx_new(Pair, .left = fx_ones(3), .right = fx_ones(3));
    Average *average = fx_new(Average, .mean = fx_ones(2), .inside = shared);
    int counts[2] = {0};
    fx_visit(fx_tuple(average, shared), count_trained, counts);
    assert_int_equal(counts[0], 3);
    assert_int_equal(counts[1], 2);
    assert_int_equal(fx_parameter_count(fx_tuple(average, shared)), 6);
    assert_int_equal(fx_parameter_count(fx_tuple(shared, average)), 6);
    assert_int_equal(fx_parameter_count(average), 0);
    void *model = fx_tuple(average, shared->left);
    assert_int_equal(fx_parameter_count(model), 3);
    void *updated = fx_fmap(fx_neg, model);
    assert_ptr_equal(((Average *)fx_child(updated, 0))->inside->left, fx_child(updated, 1));
}

/* Every walk reports an object that contains itself, and ends. */
static void cycles_are_errors(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_tuple_object *inner = fx_tuple(fx_ones(2), fx_ones(2)), *outer = fx_tuple(inner);
    void *second = inner->items.items[1];
    inner->items.items[1] = outer;
    assert_true(fx_is_error(fx_fmap(fx_neg, outer)));
    takes_status(FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fx_trainables(outer)));
    takes_status(FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fx_state(outer)));
    takes_status(FX_STATUS_ARGUMENT);
    inner->items.items[1] = second;
    assert_int_equal(fx_parameter_count(outer), 4);
}

static void *nested(int levels)
{
    void *x = fx_ones(2);
    for (int i = 0; i < levels; i++)
        x = fx_tuple(x);
    return x;
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_false(fx_is_error(fx_fmap(negative, nested(1000))));
    assert_int_equal(fx_parameter_count(nested(1000)), 2);
    takes_status(FX_OK);
    assert_true(fx_is_error(fx_fmap(negative, nested(1002))));
    takes_status(FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fx_trainables(nested(1002))));
    takes_status(FX_STATUS_ARGUMENT);
    static char text[1 << 16];
    assert_true(fx_show_text(nested(3000), text, sizeof text) > 1000);
    fx_error_take();
}

static fx_array *fails_for_two(fx_array *x)
{
    return fx_length(x) == 2 ? fx_error_array(FX_STATUS_DEVICE) : x;
}

static void errors_flow_through_maps(void **state)
{
    (void)state;
    FX_SCOPE;
    Pair *p = fx_fmap(fails_for_two, fx_new(Pair, .left = fx_ones(2), .right = fx_ones(3)));
    assert_false(fx_is_error(p));
    assert_int_equal(fx_array_status(p->left), FX_STATUS_DEVICE);
    assert_false(fx_is_error(p->right));
}

/* ---- visit ----------------------------------------------------------------------------------- */

static void write_down(fx_array *x, const char *path, bool trainable, void *user)
{
    char line[100];
    snprintf(line, sizeof line, "%s:%d%s ", path, (int)fx_length(x), trainable ? "" : "-");
    strcat(user, line);
}

static void visits_in_order(void **state)
{
    (void)state;
    FX_SCOPE;
    char seen[500] = "";
    fx_visit(mixed(), write_down, seen);
    assert_string_equal(seen, "parts.a:2 parts.1.0:3 parts.1.1:4 frozen:5- index:6- ");
    *seen = 0;
    fx_array *x = fx_ones(1);
    fx_visit(x, write_down, seen);
    assert_string_equal(seen, ":1 ");
    *seen = 0;
    fx_visit(fx_tuple(x, fx_named_tuple("y", x, "z", fx_ones(2)), FX_RELU, NULL), write_down, seen);
    assert_string_equal(seen, "0:1 1.z:2 ");
    *seen = 0;
    fx_visit(fx_chain(fx_dense(2, 3), FX_RELU, fx_chain_of("out", fx_batchnorm(3))), write_down,
             seen);
    assert_string_equal(
        seen,
        "layers.0.weight:6 layers.0.bias:3 layers.2.layers.out.beta:3 "
        "layers.2.layers.out.gamma:3 layers.2.layers.out.mean:3- layers.2.layers.out.var:3- ");
    takes_status(FX_OK);
    fx_visit(NULL, write_down, seen);
    takes_status(FX_STATUS_ARGUMENT);
}

typedef struct deep_paths {
    int n;
    bool as_expected;
} deep_paths;

/* Arrays are met from the innermost tuple outwards: "0.0.0", "0.0.second", "0.second", "second". */
static void check_deep_path(fx_array *x, const char *path, bool trainable, void *user)
{
    enum { DEEPEST = 40 };
    (void)trainable;
    deep_paths *d = user;
    char want[200] = "";
    const int level = DEEPEST - (d->n == 0 ? 0 : d->n - 1);
    for (int i = 1; i < level; i++)
        strcat(want, "0.");
    strcat(want, d->n == 0 ? "0" : "second");
    d->as_expected &= strcmp(path, want) == 0 && fx_length(x) == d->n + 1;
    d->n++;
}

static void count_errors(const fx_error *e, void *user)
{
    (void)e;
    ++*(int *)user;
}

/* An object with several children beyond the greatest depth is one error. */
static void too_deep_is_one_error(void **state)
{
    (void)state;
    FX_SCOPE;
    int errors = 0;
    void *x = fx_new(Pair, .left = fx_ones(1), .right = fx_ones(1));
    for (int k = 0; k < 1001; k++)
        x = fx_tuple(x);
    fx_error_set_hook(count_errors, &errors);
    fx_visit(x, check_deep_path, &(deep_paths){.as_expected = true});
    fx_error_set_hook(NULL, NULL);
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_int_equal(errors, 1);
    /* The length of a path without space for it, and a map of an object without children. */
    assert_int_equal(fx_spot_path(&(fx_spot){.objects = &x}, NULL, NULL, 0), 0);
    void *without = fx_chain(fx_dropout(0.5), FX_RELU);
    assert_ptr_equal(fx_fmap(fx_neg, without), without);
}

/* Paths are right at any depth, and after the walk has left deeper objects. */
static void visits_deep_objects(void **state)
{
    (void)state;
    FX_SCOPE;
    deep_paths d = {.as_expected = true};
    void *x = fx_ones(1);
    for (int i = 0; i < 40; i++)
        x = fx_named_tuple("0", x, "second", fx_ones(i + 2));
    fx_visit(x, check_deep_path, &d);
    assert_int_equal(d.n, 41);
    assert_true(d.as_expected);
}

/* A list of many or long names ends with an ellipsis. */
static void lists_of_names_are_cut(void **state)
{
    (void)state;
    FX_SCOPE;
    char text[200], long_name[300];
    const char *names[20];
    void *values[20] = {NULL};
    for (int i = 0; i < 20; i++)
        names[i] = &"abcdefghijklmnopqrst"[19 - i];
    fxi_child_names(fx_named_tuple_from(20, names, values), "; it has ", text, sizeof text);
    assert_non_null(strstr(text, "; it has \"t\", \"st\", \"rst\", "));
    assert_string_equal(text + strlen(text) - strlen("\"ijklmnopqrst\", …"), "\"ijklmnopqrst\", …");
    for (size_t size = 1; size < 100; size++) {
        fxi_child_names(fx_named_tuple_from(20, names, values), "", text, size);
        assert_true(strlen(text) < size && strlen(text) != 1);
    }
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    fxi_child_names(fx_named_tuple(long_name, fx_ones(1)), "", text, sizeof text);
    assert_string_equal(text, "");
}

/* A message names the function that the program has called. */
static void null_models(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_int_equal(fx_parameter_count(NULL), 0);
    assert_string_equal(fx_error_take().message, "parameter_count: the object is NULL");
    assert_true(fx_is_error(fx_trainables(NULL)));
    assert_string_equal(fx_error_take().message, "trainables: the object is NULL");
    assert_true(fx_is_error(fx_snapshot((void *)NULL)));
    assert_string_equal(fx_error_take().message, "snapshot: the model is NULL");
}

static void trainable_arrays(void **state)
{
    (void)state;
    FX_SCOPE;
    Mixed *m = mixed();
    void *t = fx_trainables(m);
    assert_int_equal(fx_count(t), 3);
    assert_ptr_equal(fx_child(t, 0), m->parts.items[0]);
    assert_int_equal(fx_parameter_count(m), 9);
    assert_int_equal(fx_count(fx_trainables(FX_RELU)), 0);
    fx_array *w = fx_ones(2, 2); /* a tie counts once */
    assert_int_equal(fx_parameter_count(fx_tuple(w, w)), 4);
    assert_int_equal(fx_parameter_count(fx_cast(w, FX_DTYPE_BF16)), 4);
    assert_int_equal(fx_parameter_count(fx_cast(w, FX_DTYPE_BOOL)), 0);
}

static void snapshots_stay(void **state)
{
    (void)state;
    FX_SCOPE;
    Pair *p = fx_new(Pair, .left = fx_ones(2), .right = fx_ones(3));
    Pair *s = fx_snapshot(p);
    assert_int_equal(fx_copy_into(p->left, fx_vector(5, 6)), FX_OK);
    assert_true(fx_at(p->left, 0) == 5);
    assert_true(fx_at(s->left, 0) == 1);
    assert_ptr_not_equal(s->left, p->left);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Everything that takes memory here; true when no step failed. Nothing is evaluated. */
static bool build_and_walk(void)
{
    FX_SCOPE;
    void *t =
        fx_named_tuple("m", mixed(), "p", fx_new(Pair, .left = fx_ones(2), .right = fx_ones(3)),
                       "f", fx_function_new("twice", twice));
    void *u = fx_fmap(negative, fx_tuple(t, t));
    void *a = fx_trainables(u);
    char line[300];
    fx_summary(t, line, sizeof line);
    return fx_error_take().status == FX_OK && !fx_is_error(u) && fx_count(a) == 5 &&
           fx_parameter_count(u) == 14;
}

/* In a thread of its own, whose free lists go with it. */
static void *with_faults(void *user)
{
    int *failures = user;
    for (int64_t nth = 0;; nth++) {
        fxi_fault_set(nth);
        const bool ok = build_and_walk();
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
    const int64_t live = fxi_live_allocations();
    int failures = 0;
    pthread_t t;
    void *complete;
    assert_int_equal(pthread_create(&t, NULL, with_faults, &failures), 0);
    pthread_join(t, &complete);
    assert_non_null(complete);
    assert_true(failures >= 10);
    assert_int_equal(fxi_live_allocations(), live);
}

/* ---- several trees --------------------------------------------------------------------------- */

static int calls;
static fx_array *first_plus_second(fx_array *x, fx_array *y)
{
    calls++;
    return y ? fx_add(x, y) : x;
}

static fx_array *sum_of_three(int n, fx_array *const *xs, void *user)
{
    assert_int_equal(n, 3);
    ++*(int *)user;
    return fx_add(xs[0], fx_add(xs[1], xs[2]));
}

/* An object that could not be made is an error wherever it is part of another one, also if its type
 * has no field that could hold the error. */
static void errors_inside_are_found(void **state)
{
    (void)state;
    FX_SCOPE;
    void *failed[] = {fx_named_tuple_from(-1, NULL, NULL), fx_dense(-1, 2),
                      fx_chain(fx_dense(-1, 2)), fx_error_array(FX_STATUS_SHAPE)};
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    for (size_t i = 0; i < sizeof failed / sizeof *failed; i++) {
        assert_true(i == 2 || fx_is_error(failed[i]));
        assert_int_not_equal(fx_eval(failed[i]), FX_OK);
        assert_int_not_equal(fx_eval(fx_tuple(fx_ones(2), failed[i])), FX_OK);
        assert_int_not_equal(fx_eval(fx_tuple(fx_tuple(failed[i]), fx_ones(2))), FX_OK);
    }
    fx_error_take();
    assert_int_equal(fx_eval(fx_tuple(fx_ones(2), fx_tuple(), NULL)), FX_OK);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void maps_of_several_trees(void **state)
{
    (void)state;
    FX_SCOPE;
    void *x = fx_named_tuple("a", fx_ones(2), "b", fx_tuple(fx_zeros(1), FX_RELU));
    void *y = fx_named_tuple("a", fx_full(2, 2), "b", fx_tuple(fx_ones(1), FX_TANH));
    calls = 0;
    void *z = fx_fmap2(first_plus_second, x, y);
    assert_int_equal(calls, 2);
    assert_true(fx_item(fx_sum(fx_child_named(z, "a"))) == 6);
    assert_true(fx_item(fx_sum(fx_child(fx_child_named(z, "b"), 0))) == 1);
    assert_ptr_equal(fx_child(fx_child_named(z, "b"), 1), FX_RELU); /* the first tree's */
    int three = 0;
    void *const trees[] = {x, y, z};
    void *w = fx_fmap_n(sum_of_three, &three, 3, trees);
    assert_int_equal(three, 2);
    assert_true(fx_item(fx_sum(fx_child_named(w, "a"))) == 12);
    /* an array that is tied in the first tree is mapped once, with its first partner */
    fx_array *shared = fx_ones(1);
    calls = 0;
    void *tied =
        fx_fmap2(first_plus_second, fx_tuple(shared, shared), fx_tuple(fx_ones(1), fx_full(5, 1)));
    assert_int_equal(calls, 1);
    assert_ptr_equal(fx_child(tied, 0), fx_child(tied, 1));
    assert_true(fx_item(fx_sum(fx_child(tied, 0))) == 2);
    /* an array without a partner, as in a gradient */
    calls = 0;
    void *kept = fx_fmap2(first_plus_second, fx_tuple(shared, FX_RELU), fx_tuple(NULL, NULL));
    assert_int_equal(calls, 1);
    assert_ptr_equal(fx_child(kept, 0), shared);
    assert_ptr_equal(fx_child(kept, 1), FX_RELU);
    /* an absent child of the first tree stays absent */
    kept = fx_fmap2(first_plus_second, fx_tuple(NULL, shared), fx_tuple(fx_ones(1), fx_ones(1)));
    assert_int_equal(calls, 2);
    assert_null(fx_child(kept, 0));
    assert_true(fx_item(fx_child(kept, 1)) == 2);
}

static void trees_that_differ(void **state)
{
    (void)state;
    FX_SCOPE;
    void *x = fx_named_tuple("a", fx_named_tuple("b", fx_ones(1), "c", fx_tuple(fx_ones(1))));
    void *const others[] = {
        fx_named_tuple("a", fx_named_tuple("b", fx_ones(1), "d", fx_tuple(fx_ones(1)))),
        fx_named_tuple("a", fx_named_tuple("b", fx_ones(1), "c", fx_ones(1))),
        fx_named_tuple("a", fx_named_tuple("b", fx_ones(1), "c", fx_tuple(fx_tuple(fx_ones(1))))),
        fx_named_tuple("a", fx_ones(1)),
        fx_named_tuple("a", fx_named_tuple("b", fx_ones(1), "c", fx_tuple(fx_ones(1), NULL))),
        fx_named_tuple("a", fx_named_tuple("b", fx_ones(1), "c", fx_tuple())),
    };
    static const char *const paths[] = {"at \"a\"", "at \"a.c\"", "at \"a.c.0\"",
                                        "at \"a\"", "at \"a.c\"", "at \"a.c\""};
    for (int i = 0; i < 6; i++) {
        calls = 0;
        assert_true(fx_is_error(fx_fmap2(first_plus_second, x, others[i])));
        const fx_error e = fx_error_take();
        if (!strstr(e.message, paths[i]) || !strstr(e.message, "in number 2"))
            fail_msg("%d: %s", i, e.message);
        assert_int_equal(calls, 0);
    }
    assert_true(fx_is_error(fx_fmap2(NULL, x, x)));
    assert_true(fx_is_error(fx_fmap2(first_plus_second, x, (void *)NULL)));
    assert_true(fx_is_error(fx_fmap_n(sum_of_three, NULL, 9, others)));
    fx_error_take();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_of_several_trees),
        cmocka_unit_test(trees_that_differ),
        cmocka_unit_test(objects_own_their_children),
        cmocka_unit_test(lists_are_copied),
        cmocka_unit_test(error_objects),
        cmocka_unit_test(error_objects_of_many_threads),
        cmocka_unit_test(tuples),
        cmocka_unit_test(named_tuples),
        cmocka_unit_test(functions_are_layers),
        cmocka_unit_test(calls_that_fail),
        cmocka_unit_test(map_replaces_arrays),
        cmocka_unit_test(map_keeps_what_stays),
        cmocka_unit_test(map_of_many_children),
        cmocka_unit_test(map_keeps_ties),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(frozen_on_one_path),
        cmocka_unit_test(cycles_are_errors),
        cmocka_unit_test(errors_flow_through_maps),
        cmocka_unit_test(visits_in_order),
        cmocka_unit_test(visits_deep_objects),
        cmocka_unit_test(too_deep_is_one_error),
        cmocka_unit_test(lists_of_names_are_cut),
        cmocka_unit_test(null_models),
        cmocka_unit_test(trainable_arrays),
        cmocka_unit_test(snapshots_stay),
        cmocka_unit_test(errors_inside_are_found),
        cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests_name("tree", tests, NULL, NULL);
}
