/* test_user_mistakes.c: programs that save, load and batch with small mistakes. Either the call
 * does what its arguments say, or its error says what to write instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "temp_file.h"

static void says(fx_status status, const char *words)
{
    const fx_error error = fx_error_take();
    assert_int_equal(error.status, status);
    if (!strstr(error.message, words))
        fail_msg("no \"%s\" in: %s", words, error.message);
}

/* The rows of x and y of a first batch: x has 3, y has 2, z has 1. */
static void rows(void *data, int x, int y)
{
    fx_loader *l = fx_dataloader(data, .batchsize = 4);
    fx_batch b = {0};
    assert_true(fx_next(l, &b));
    assert_int_equal(fx_size(b.x, 0), x);
    if (y)
        assert_int_equal(fx_size(b.y, 0), y);
    else
        assert_null(b.y);
    fx_batch_end(&b);
}

static void batches_go_by_names(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(3, 8), *y = fx_ones(2, 8), *z = fx_ones(1, 8);
    rows(fx_named_tuple("x", x, "y", y), 3, 2);
    rows(fx_named_tuple("y", y, "x", x), 3, 2);
    rows(fx_named_tuple("z", z, "y", y, "x", x), 3, 2);
    rows(fx_named_tuple("label", y, "x", x), 3, 2);
    rows(fx_named_tuple("y", y, "image", x), 3, 2);
    rows(fx_named_tuple("image", x, "label", y), 3, 2);
    rows(fx_named_tuple("x", x), 3, 0);
    rows(fx_tuple(x, y, z), 3, 2);
    rows(x, 3, 0);
}

typedef struct Link {
    fx_object base;
    void *next;
} Link;
FX_FUNCTOR(Link, next);

/* Assigned to a field, not set: nothing counts the reference. */
static void objects_that_hold_themselves(void **state)
{
    (void)state;
    {
        FX_SCOPE;
        Link *own = fx_new(Link, .next = NULL), *a = fx_new(Link, .next = own),
             *b = fx_new(Link, .next = a);
        own->next = own;
        a->next = b; /* b holds a */
        assert_int_equal(fx_parameter_count(own), 0);
        says(FX_STATUS_ARGUMENT, "a Link contains itself");
    }
    says(FX_STATUS_STATE, "was freed");
}

/* A long list is freed without recursion. */
static void a_list_longer_than_the_stack_is_deep(void **state)
{
    (void)state;
    const int64_t live = fx_stats().live_bytes;
    Link *list = NULL;
    for (int i = 0; i < 500000; i++) {
        FX_SCOPE;
        void *next = i == 0 ? (void *)fx_ones(1000) : list;
        if (i == 0)
            fx_eval(next);
        fx_set(&list, fx_new(Link, .next = next));
    }
    assert_int_equal(fx_error_take().status, FX_OK);
    assert_int_equal(fx_stats().live_bytes, live + 4000);
    fx_set(&list, NULL);
    assert_int_equal(fx_stats().live_bytes, live);
}

static void nested_data(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(3, 8);
    assert_false(fx_is_error(fx_dataloader(fx_tuple(x, fx_tuple(x, x)), .batchsize = 4)));
    void *other = fx_tuple(x, fx_tuple(x, fx_ones(3, 7)));
    assert_true(fx_is_error(fx_dataloader(other, .batchsize = 4)));
    says(FX_STATUS_SHAPE, "item 0 has 8 observations, item 1.1 has 7");
    assert_true(fx_is_error(fx_dataloader(fx_tuple(x, fx_dense(2, 2)), .batchsize = 4)));
    says(FX_STATUS_ARGUMENT, "item 1 is not an array");
}

static void saving(void **state)
{
    (void)state;
    FX_SCOPE;
    void *m = fx_dense(2, 2);
    const char *path = temp_text("m.bson", "old");
    assert_int_equal(fx_save(path, m), FX_STATUS_ARGUMENT);
    says(FX_STATUS_ARGUMENT, "fx_save(path, \"model\", model); got 1 argument");
    assert_int_equal(fx_save(path, "model", m, "epochs"), FX_STATUS_ARGUMENT);
    says(FX_STATUS_ARGUMENT, "got 3 arguments");
    assert_int_equal(fx_load_into(path, m), FX_STATUS_ARGUMENT);
    says(FX_STATUS_ARGUMENT, "fx_load_into(path, \"model\", model); got 1 argument");
    assert_int_equal(fx_save(path, "model", m, "epochs", NULL), FX_STATUS_ARGUMENT);
    says(FX_STATUS_ARGUMENT, "the object \"epochs\" is NULL");
    assert_int_equal(fx_save("~/no-such-folder/m.bson", "model", m), FX_STATUS_IO);
    says(FX_STATUS_IO, "only a shell expands ~ to the home folder");
    assert_true(fx_is_error(fx_load("~/m.bson")));
    says(FX_STATUS_IO, "only a shell expands ~ to the home folder");
    assert_int_equal(fx_save(path, "model", m, "epochs", fx_string("ten")), FX_OK);
    assert_string_equal(fx_string_text(fx_load_key(path, "epochs")), "ten");
}

/* Names and objects in the wrong order: the compiler sees void pointers. */
static void swapped_arguments(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *dense = fx_dense(2, 2);
    void *m = dense;
    const char *path = temp_text("m.bson", "old");
    assert_int_equal(fx_save(path, m, "model"), FX_STATUS_ARGUMENT);
    says(FX_STATUS_ARGUMENT, "save: argument 2 is an object, Dense(2 => 2); expected a name");
    assert_int_equal(fx_save(path, "model", m, m, "again"), FX_STATUS_ARGUMENT);
    says(FX_STATUS_ARGUMENT, "argument 4 is an object, Dense(2 => 2); expected a name");
    assert_int_equal(fx_save(path, "model", "m"), FX_STATUS_ARGUMENT);
    says(FX_STATUS_ARGUMENT, "argument 3 is not an object of this library");
    assert_int_equal(fx_save(m, "m.bson", m), FX_STATUS_ARGUMENT);
    says(FX_STATUS_ARGUMENT, "argument 1 is an object, Dense(2 => 2); expected a path");
    assert_int_equal(fx_load_into(path, m, "model"), FX_STATUS_ARGUMENT);
    says(FX_STATUS_ARGUMENT, "load_into: argument 2 is an object, Dense(2 => 2)");
    assert_int_equal(fx_load_into(m, path, m), FX_STATUS_ARGUMENT);
    says(FX_STATUS_ARGUMENT, "load_into: argument 1 is an object");
    assert_true(fx_is_error(fx_load(m)));
    says(FX_STATUS_ARGUMENT, "load: argument 1 is an object");
    assert_true(fx_is_error(fx_load_key(path, m)));
    says(FX_STATUS_ARGUMENT, "load_key: argument 2 is an object");
    assert_true(fx_is_error(fx_named_tuple(m, "weight")));
    says(FX_STATUS_ARGUMENT, "named_tuple: argument 1 is an object");
    assert_true(fx_is_error(fx_named_tuple("weight", "seven")));
    says(FX_STATUS_ARGUMENT, "named_tuple: argument 2 is not an object");
    assert_true(fx_is_error(fx_chain_of(m, "first")));
    says(FX_STATUS_ARGUMENT, "Chain: argument 1 is an object");
    assert_true(fx_is_error(fx_chain(m, "first")));
    says(FX_STATUS_ARGUMENT, "Chain: argument 2 is not an object");
    assert_true(fx_is_error(fx_tuple(m, "first")));
    says(FX_STATUS_ARGUMENT, "tuple: argument 2 is not an object");
    assert_true(fx_is_error(fx_metadata("author", m)));
    says(FX_STATUS_ARGUMENT, "metadata: argument 2 is an object");
    assert_true(fx_is_error(fx_metadata(m, "me")));
    says(FX_STATUS_ARGUMENT, "metadata: argument 1 is an object");
    assert_int_equal(fx_checkpoint_save(m, m), FX_STATUS_ARGUMENT);
    says(FX_STATUS_ARGUMENT, "checkpoint_save: argument 1 is an object");
    fx_checkpoint_args io = {.model = m};
    assert_int_equal(fx_checkpoint_load(m, &io), FX_STATUS_ARGUMENT);
    says(FX_STATUS_ARGUMENT, "checkpoint_load: argument 1 is an object");
}

/* Texts of every length up to 40, at every alignment, are recognised as names, also under the
 * address sanitizer. */
static void names_of_all_lengths(void **state)
{
    (void)state;
    FX_SCOPE;
    int taken = 0;
    for (int n = 1; n <= 40; n++)
        for (int shift = 0; shift < 8; shift++) {
            char *text = malloc((size_t)(shift + n + 1));
            memset(text, 'a' + (n + shift) % 26, (size_t)(shift + n));
            text[shift + n] = 0;
            taken += !fx_is_error(fx_named_tuple(text + shift, FX_RELU));
            free(text);
        }
    assert_int_equal(taken, 320);
    taken = 0;
    for (int c = 1; c < 256; c++) { /* texts of one byte look like small addresses */
        char *text = calloc(1, 8);
        text[0] = (char)c;
        taken += !fx_is_error(fx_named_tuple(text, FX_RELU));
        memset(text, c, 7);
        taken += !fx_is_error(fx_named_tuple(text, FX_RELU));
        free(text);
    }
    assert_int_equal(taken, 510);
}

/* A layer that is twice in a model is still one layer after saving and loading in each format that
 * holds models. */
static void ties_through_bson(void **state)
{
    (void)state;
    FX_SCOPE;
    void *d = fx_dense(4, 4, FX_RELU);
    const char *path = temp_text("ties.bson", "");
    assert_int_equal(fx_save(path, "model", fx_chain(d, d)), FX_OK);
    void *back = fx_load_key(path, "model");
    assert_ptr_equal(fx_child(back, 0), fx_child(back, 1));
    assert_int_equal(fx_parameter_count(back), 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(objects_that_hold_themselves),
                                       cmocka_unit_test(a_list_longer_than_the_stack_is_deep),
                                       cmocka_unit_test(batches_go_by_names),
                                       cmocka_unit_test(nested_data),
                                       cmocka_unit_test(saving),
                                       cmocka_unit_test(swapped_arguments),
                                       cmocka_unit_test(names_of_all_lengths),
                                       cmocka_unit_test(ties_through_bson)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
