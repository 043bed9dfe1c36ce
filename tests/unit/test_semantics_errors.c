/* test_semantics_errors.c: errors poison values, not the program; the first record sticks until it
 * is taken; calls with an effect fail only for errors in their own inputs; a call that fails
 * returns an object of the expected type, filled with error arrays.
 */
#include "semantics_check.h"

#include "read_back.h"
#include "temp_file.h"

#include <pthread.h>
#include <unistd.h>

/* An error array, and no record of it. */
static fx_array *bad(void)
{
    fx_array *x = fx_add(fx_ones(2, 3), fx_ones(4));
    assert_int_equal(fx_error_take().status, FX_STATUS_SHAPE);
    return x;
}

static void never_null_and_recorded_once(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_matmul(fx_ones(2, 5), fx_ones(4));
    assert_non_null(x);
    assert_true(fx_is_error(x));
    assert_int_equal(fx_array_status(x), FX_STATUS_SHAPE);
    fx_array *y = fx_sum(fx_softmax(fx_add(fx_exp(fx_reshape(x, 7)), 1)));
    assert_int_equal(fx_array_status(y), FX_STATUS_SHAPE); /* flows through untouched */
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_SHAPE);
    assert_string_equal(e.op, "matmul");
    assert_non_null(strstr(e.message, "matmul: inner sizes differ: "));
    assert_non_null(strstr(e.message, "2×5"));
    assert_non_null(strstr(e.message, "4"));
    assert_int_equal(fx_error_take().status, FX_OK); /* cleared */
    assert_int_equal(fx_ndims(y), 0);
    assert_int_equal(fx_size(y, 0), 0);
    assert_int_equal(fx_length(y), 0);
}

static void the_first_record_sticks(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_add(fx_ones(2), fx_ones(3));
    fx_matmul(fx_ones(2, 5), fx_ones(4));
    fx_rand_dtype(FX_DTYPE_I32, 3);
    assert_int_equal(fx_error_status(), FX_STATUS_SHAPE);
    /* Each array has the status of its own failure. */
    assert_int_equal(fx_array_status(fx_rand_dtype(FX_DTYPE_I32, 3)), FX_STATUS_DTYPE);
    const int64_t large = (int64_t)1 << 40;
    assert_int_equal(fx_array_status(fx_expand(fx_ones(1, 1), large, large)), FX_STATUS_ARGUMENT);
    assert_int_equal(fx_error_status(), FX_STATUS_SHAPE); /* looking does not take it */
    expect_error(FX_STATUS_SHAPE, "add: ");
    fx_rand_dtype(FX_DTYPE_I32, 3);
    expect_error(FX_STATUS_DTYPE, "rand: ");
}

static int fail_in_scopes(int levels)
{
    FX_SCOPE;
    const int line = __LINE__ - 1;
    if (levels == 0) {
        fx_add(fx_ones(2), fx_ones(3));
        return line;
    }
    return fail_in_scopes(levels - 1);
}

/* The record moves outward as scopes close, and says where the innermost one was opened. */
static void records_move_outward(void **state)
{
    (void)state;
    FX_SCOPE;
    const int line = fail_in_scopes(5);
    {
        FX_STEP;
        fx_array *unrelated = fx_ones(2);
        assert_int_equal(fx_eval(unrelated), FX_OK);
    }
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_SHAPE);
    assert_non_null(strstr(e.file, "test_semantics_errors.c"));
    assert_int_equal(e.line, line);
}

static void printing_a_record(void **state)
{
    (void)state;
    FX_SCOPE;
    char text[600] = "";
    FILE *out = tmpfile();
    assert_int_equal(fx_error_print(out), 0);
    assert_int_equal(ftell(out), 0);
    fx_add(fx_ones(2), fx_ones(3));
    assert_int_equal(fx_error_print(out), 1);
    assert_int_equal(fx_error_print(out), 0);
    rewind(out);
    assert_true(fread(text, 1, sizeof text - 1, out) > 0);
    fclose(out);
    assert_non_null(strstr(text, "add: sizes do not broadcast: 2 and 3"));
    assert_non_null(strstr(text, "FX_STATUS_SHAPE"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
}

static int hooked;
static fx_error last_hooked;
static void hook(const fx_error *e, void *user)
{
    assert_ptr_equal(user, &hooked);
    hooked++;
    last_hooked = *e;
}

static void the_hook_sees_every_failure(void **state)
{
    (void)state;
    FX_SCOPE;
    hooked = 0;
    fx_error_set_hook(hook, &hooked);
    fx_array *x = fx_add(fx_ones(2), fx_ones(3));
    assert_int_equal(hooked, 1);
    fx_exp(x); /* passed on, without a second failure */
    assert_int_equal(hooked, 1);
    fx_matmul(fx_ones(2, 5), fx_ones(4));
    assert_int_equal(hooked, 2);
    assert_string_equal(last_hooked.op, "matmul");
    fx_error_set_hook(NULL, NULL);
    fx_add(fx_ones(2), fx_ones(3));
    assert_int_equal(hooked, 2);
    expect_error(FX_STATUS_SHAPE, "add: ");
}

static void long_messages_end_at_a_character(void **state)
{
    (void)state;
    char text[2000];
    for (int shift = 0; shift < 3; shift++) {
        memset(text, 'x', sizeof text);
        for (size_t i = (size_t)shift; i + 3 < sizeof text; i += 2)
            memcpy(text + i, "×", 2);
        text[sizeof text - 1] = 0;
        assert_int_equal(fx_fail(FX_STATUS_ARGUMENT, "op", "%s", text), FX_STATUS_ARGUMENT);
        const fx_error e = fx_error_take();
        const size_t n = strlen(e.message);
        assert_true(n > 400 && n < sizeof e.message);
        assert_false(((unsigned char)e.message[n - 1] & 0xC0) == 0xC0); /* no half character */
    }
}

/* ---- effects --------------------------------------------------------------------------------- */

/* A failure somewhere else in the program does not make a healthy call fail. */
static void effects_judge_their_own_inputs(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = fx_dense(2, 1);
    void *opt = fx_setup(fx_descent(), m);
    fx_array *dst = fx_ones(2);
    float f[2];
    double v;
    fx_add(fx_ones(2), fx_ones(3)); /* the failure */
    fx_array *x = fx_add(fx_ones(2), 1);
    assert_int_equal(fx_eval(x), FX_OK);
    assert_int_equal(fx_read_into(x, f, sizeof f), FX_OK);
    assert_int_equal(fx_item_get(fx_sum(x), &v), FX_OK);
    SAME(v, 4);
    assert_int_equal(fx_copy_into(dst, x), FX_OK);
    {
        FX_STEP;
        fx_array *loss = fx_sum(fx_square(fx_call(m, x)));
        assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
    }
    expect_error(FX_STATUS_SHAPE, "add: ");
}

static void effects_refuse_what_is_wrong(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = fx_dense(2, 1), *other = fx_dense(3, 1);
    fx_chain_layer *chain = fx_chain(fx_dense(2, 1));
    void *opt = fx_setup(fx_adam(), m);
    fx_array *x = bad(), *good = fx_ones(2);
    double v = 1;
    float f[2] = {7, 7}, w[2], after[2];
    fx_eval(m);
    assert_int_equal(fx_read_into(m->weight, w, sizeof w), FX_OK);
    assert_int_equal(fx_eval(x), FX_STATUS_SHAPE);
    assert_int_equal(fx_eval(fx_tuple(good, x)), FX_STATUS_SHAPE);
    assert_int_equal(fx_item_get(x, &v), FX_STATUS_SHAPE);
    assert_true(isnan(v)); /* written on every path */
    assert_true(isnan(fx_item(x)));
    assert_true(isnan(fx_at(x, 0)));
    assert_int_equal(fx_read_into(x, f, sizeof f), FX_STATUS_SHAPE);
    assert_int_equal(fx_read_as(x, FX_DTYPE_F32, f, 2), FX_STATUS_SHAPE);
    SAME(f[0], 7);
    assert_null(fx_data(x));
    assert_int_equal(fx_copy_into(good, x), FX_STATUS_SHAPE);
    CHECK(good, (2), 0, 1, 1);
    assert_int_equal(fx_copy_into(x, good), FX_STATUS_SHAPE);
    {
        FX_STEP;
        fx_array *loss = fx_mse(fx_call(m, good), x);
        assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_STATUS_SHAPE);
    }
    assert_int_equal(fx_error_status(), FX_OK); /* passed on: recorded where it happened */
    fx_dense_layer *g = fx_gradient(fx_sum(m->weight), m);
    void *wrong[][3] = {{NULL, m, g},     {opt, NULL, g}, {opt, m, NULL},  {m, m, g},
                        {opt, opt, g},    {opt, m, opt},  {opt, other, g}, {opt, m, chain},
                        {opt, chain, g},  {good, m, g},   {opt, good, g},  {opt, m, good},
                        {fx_adam(), m, g}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const fx_status s = fx_update(wrong[i][0], wrong[i][1], wrong[i][2]);
        if (s == FX_OK || fx_error_take().status != s)
            fail_msg("update of wrong arguments %d gave %s", (int)i, fx_status_name(s));
    }
    assert_int_equal(fx_read_into(m->weight, after, sizeof after), FX_OK);
    assert_memory_equal(w, after, sizeof w);
}

static void reads_of_the_wrong_size(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2, 3);
    float f[4] = {7, 7, 7, 7};
    double v = 1;
    assert_int_equal(fx_read_into(x, f, 8), FX_STATUS_SHAPE);
    expect_error(FX_STATUS_SHAPE, "read: the array has 12 bytes, the destination 8");
    assert_int_equal(fx_read_as(x, FX_DTYPE_F32, f, 4), FX_STATUS_SHAPE);
    expect_error(FX_STATUS_SHAPE, "read: the array has 3 elements, the destination 4");
    SAME(f[0], 7);
    assert_int_equal(fx_item_get(x, &v), FX_STATUS_SHAPE);
    assert_true(isnan(v));
    expect_error(FX_STATUS_SHAPE, "item: expects an array of one element, got 3");
    assert_true(isnan(fx_at(x, 3)));
    expect_error(FX_STATUS_ARGUMENT, "at: index 3 is outside 0 … 2");
    assert_true(isnan(fx_at(x, -1)));
    expect_error(FX_STATUS_ARGUMENT, "at: index -1");
    assert_true(isnan(fx_item(NULL)));
    expect_error(FX_STATUS_ARGUMENT, "item: ");
    assert_int_equal(fx_eval(NULL), FX_STATUS_ARGUMENT);
    expect_error(FX_STATUS_ARGUMENT, "eval: ");
}

/* ---- expected types -------------------------------------------------------------------------- */

static void constructors_keep_their_type(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *d = fx_dense(-1, 2);
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(d));
    assert_ptr_equal(fx_type_of(d), fx_type_of(fx_dense(1, 1)));
    assert_true(fx_is_error(d->weight)); /* safe to look into */
    assert_int_equal(fx_array_status(d->weight), FX_STATUS_ARGUMENT);
    fx_array *y = fx_call(d, fx_ones(1));
    assert_int_equal(fx_array_status(y), FX_STATUS_ARGUMENT);
    fx_error_take();
    fx_conv_layer *c = fx_conv(FX_DIMS(3, 3), 0, -4);
    assert_true(fx_is_error(c));
    assert_true(fx_is_error(c->weight));
    fx_error_take();
    fx_batchnorm_layer *b = fx_batchnorm(-3);
    assert_true(fx_is_error(b));
    assert_true(fx_is_error(b->mean));
    fx_error_take();
    void *t = fx_tuple(fx_ones(1), bad());
    assert_int_equal(fx_count(t), 2);
    assert_true(fx_is_error(fx_child(t, 1)));
    fx_rule *r = fx_adam(.eta = -1);
    assert_true(fx_is_error(r));
    expect_error(FX_STATUS_ARGUMENT, "learning rate must be at least 0, got eta = -1");
}

static fx_array *to_error(fx_array *x)
{
    return fx_reshape(x, 999);
}

static void walks_and_gradients_keep_the_type(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_chain_layer *m = fx_chain(fx_dense(2, 3), fx_dense(3, 1));
    fx_chain_layer *mapped = fx_fmap(to_error, m);
    expect_error(FX_STATUS_SHAPE, "reshape: ");
    assert_ptr_equal(fx_type_of(mapped), fx_type_of(m));
    assert_int_equal(fx_array_status(((fx_dense_layer *)fx_child(mapped, 1))->weight),
                     FX_STATUS_SHAPE);
    fx_chain_layer *g = fx_gradient(bad(), m);
    assert_ptr_equal(fx_type_of(g), fx_type_of(m));
    const fx_dense_layer *g1 = fx_child(g, 1);
    assert_int_equal(fx_array_status(g1->weight), FX_STATUS_SHAPE);
    assert_int_equal(fx_array_status(g1->bias), FX_STATUS_SHAPE);
    double value;
    assert_ptr_equal(fx_type_of(fx_withgradient(bad(), m, &value)), fx_type_of(m));
    assert_true(isnan(value));
    void *both = fx_updated(fx_setup(fx_adam(), m), m, g);
    assert_int_equal(fx_count(both), 2);
    assert_true(fx_is_error(fx_child(both, 0)));
    assert_true(fx_is_error(fx_child(both, 1)));
    fx_error_take();
}

/* Every void * is looked at before it is used. */
static void type_tags_are_checked(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(2);
    fx_dense_layer *d = fx_dense(2, 1);
    void *rule = fx_adam(), *tuple = fx_tuple(x, x), *no_layers[] = {NULL, x, rule, tuple};
    for (size_t i = 0; i < 4; i++) {
        fx_array *y = fx_call(no_layers[i], x);
        assert_true(fx_is_error(y));
        assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
        assert_true(fx_is_error(fx_call(fx_chain(d, no_layers[i]), x)));
        assert_int_not_equal(fx_error_take().status, FX_OK);
    }
    void *no_arguments[] = {NULL, d, rule, tuple};
    for (size_t i = 0; i < 4; i++) {
        assert_true(fx_is_error(fx_call(d, (fx_array *)no_arguments[i])));
        assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
        assert_true(fx_is_error(fx_add((fx_array *)no_arguments[i], x)));
        assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
        assert_true(fx_is_error(fx_add(no_arguments[i], x))); /* a void * as an operand */
        assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
        assert_true(fx_is_error(fx_sum((fx_array *)no_arguments[i])));
        assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
        assert_true(fx_is_error(fx_matmul(x, (fx_array *)no_arguments[i])));
        assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
        assert_true(fx_is_error(fx_concat(0, x, (fx_array *)no_arguments[i])));
        assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
        assert_true(fx_is_error(fx_mse((fx_array *)no_arguments[i], x)));
        assert_int_not_equal(fx_error_take().status, FX_OK);
        assert_true(isnan(fx_item((fx_array *)no_arguments[i])));
        assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
        assert_true(fx_is_error(fx_array_to(fx_cpu_device(), (fx_array *)no_arguments[i])));
        assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
        assert_int_equal(fx_copy_into((fx_array *)no_arguments[i], x), FX_STATUS_ARGUMENT);
        assert_non_null(strstr(fx_error_take().message, "must be an array, got "));
        assert_int_equal(fx_length((fx_array *)no_arguments[i]), 0);
    }
    void *no_rules[] = {NULL, x, d, tuple};
    for (size_t i = 0; i < 4; i++) {
        assert_true(fx_is_error(fx_setup(no_rules[i], d)));
        assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    }
    assert_true(fx_is_error(fx_setup(rule, NULL)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fx_fmap(fx_neg, (void *)NULL)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_int_equal(fx_adjust_eta(d, 0.1), FX_STATUS_ARGUMENT); /* a model is not a state */
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_int_equal(fx_adjust_eta(NULL, 0.1), FX_STATUS_ARGUMENT);
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fx_child(d, 99)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_false(fx_is(NULL, fx_type_of(d)));
    assert_false(fx_is_array(d));
    assert_false(fx_is_array(NULL));
    assert_true(fx_is_error(NULL));
    assert_int_equal(fx_array_status(NULL), FX_STATUS_ARGUMENT);
}

/* ---- kernels, devices ------------------------------------------------------------------------ */

/* Errors that are found only when the value is computed are reported in the same way. */
static void errors_of_kernels(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2, 3), *y = fx_gather(x, fx_range_dtype(FX_DTYPE_I32, 1, 1, 3), 0);
    fx_array *z = fx_sum(y), *fine = fx_mul(x, 2);
    assert_false(fx_is_error(z)); /* not yet known */
    assert_int_equal(fx_error_status(), FX_OK);
    assert_true(isnan(fx_item(z)));
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_ARGUMENT);
    assert_non_null(strstr(e.message, "gather: index 3 is out of range for axis 0 of size 3"));
    CHECK(fine, (3), 0, 2, 4, 6);
    assert_int_equal(fx_eval(z), FX_STATUS_ARGUMENT);
    expect_error(FX_STATUS_ARGUMENT, "gather: ");
}

static void two_devices(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *here = fx_vector(1, 2), *there = fx_to(fx_device_get("ref", 0), fx_vector(3, 4));
    fx_array *y = fx_add(here, there);
    assert_int_equal(fx_array_status(y), FX_STATUS_DEVICE);
    const fx_error e = fx_error_take();
    assert_non_null(strstr(e.message, "add: "));
    assert_non_null(strstr(e.message, "CPU"));
    assert_non_null(strstr(e.message, "ref"));
    CHECK(fx_add(there, 1), (2), 0, 4, 5);
    fx_device *d = fx_device_get("no such backend", 0);
    expect_error(FX_STATUS_DEVICE, "no such backend");
    assert_ptr_equal(d, fx_cpu_device());
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *fail_in_a_thread(void *out)
{
    const bool clean = fx_error_status() == FX_OK; /* the other thread's is not seen here */
    fx_add(fx_ones(2), fx_ones(3));
    *(fx_status *)out = clean ? fx_error_status() : FX_STATUS_INTERNAL;
    return NULL;
}

static void records_are_the_threads_own(void **state)
{
    (void)state;
    FX_SCOPE;
    pthread_t thread;
    fx_status there = FX_OK;
    fx_matmul(fx_ones(2, 5), fx_ones(4));
    assert_int_equal(pthread_create(&thread, NULL, fail_in_a_thread, &there), 0);
    pthread_join(thread, NULL);
    assert_int_equal(there, FX_STATUS_SHAPE);
    expect_error(FX_STATUS_SHAPE, "matmul: ");
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Workers hand theirs to the call that waits for them: a batch that could not be made. */
static void workers_hand_theirs_over(void **state)
{
    (void)state;
    FX_SCOPE;
    int failed = 0;
    for (int64_t n = 0; n < 200; n++) {
        fx_loader *loader = fx_dataloader(fx_ones(4, 64), .batchsize = 4, .workers = 2);
        int64_t batches = 0;
        fxi_fault_set(n);
        for (fx_batch b = {0}; fx_next(loader, &b);)
            batches++;
        const bool past = fxi_fault_seen() <= n;
        fxi_fault_set(-1);
        const fx_error e = fx_error_take();
        assert_true(batches == 16 ? e.status == FX_OK : e.status == FX_STATUS_MEMORY);
        failed += batches < 16;
        if (past)
            break;
    }
    assert_true(failed > 10);
}

static int heard;

static void hear_and_say(int level, const char *text, void *user)
{
    (void)level, (void)text, (void)user;
    if (++heard < 100) /* ends the recursion that this test is about */
        fx_message(1, "the hook got \"%s\"", text);
}

/* A message of the hook itself goes to stderr. */
static void messages_of_the_hook(void **state)
{
    (void)state;
    const char *path = temp_text("stderr.txt", "");
    fflush(stderr);
    const int before = dup(STDERR_FILENO);
    assert_non_null(freopen(path, "w", stderr));
    fx_message_set_hook(hear_and_say, NULL);
    fx_message(0, "one");
    fx_message(0, "two");
    fx_message_set_hook(NULL, NULL);
    fflush(stderr);
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    close(before);
    assert_int_equal(heard, 2);
    assert_file_is(path, "[ Warning: the hook got \"one\"\n[ Warning: the hook got \"two\"\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(never_null_and_recorded_once),
        TEST(the_first_record_sticks),
        TEST(records_move_outward),
        TEST(printing_a_record),
        TEST(the_hook_sees_every_failure),
        TEST(long_messages_end_at_a_character),
        TEST(effects_judge_their_own_inputs),
        TEST(effects_refuse_what_is_wrong),
        TEST(reads_of_the_wrong_size),
        TEST(constructors_keep_their_type),
        TEST(walks_and_gradients_keep_the_type),
        TEST(type_tags_are_checked),
        TEST(errors_of_kernels),
        TEST(two_devices),
        TEST(records_are_the_threads_own),
        TEST(workers_hand_theirs_over),
        TEST(messages_of_the_hook),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
