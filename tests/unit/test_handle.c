/* test_handle.c: the result of using a freed object. ctest: native
 *
 * Each mistake runs in a process of its own, once without records of handles and once with
 * FX_HANDLES=1. It must end in an error record, never in a crash, and with records the message
 * names the array, the line that made it and the line of the scope that freed it; these lines the
 * child prints itself, with __LINE__. Correct uses must record no error in both.
 */
#include "evaluate.h"
#include "semantics_check.h"

#include "handle.h"
#include "own_child.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int made_line, scope_line;
#define MADE(x) (made_line = __LINE__, x)
#define SCOPED(scope)                                                                              \
    scope_line = __LINE__;                                                                         \
    scope

typedef struct Box {
    fx_object base;
    fx_array *w;
} Box;
FX_FUNCTOR(Box, w);

static fx_array *global;

static fx_array *without_keep(fx_array *x)
{
    SCOPED(FX_SCOPE);
    fx_array *y = MADE(fx_add(x, 1));
    return y;
}

static fx_array *with_keep(fx_array *x)
{
    FX_SCOPE;
    fx_array *y = fx_add(x, 1);
    return fx_keep(y);
}

/* ---- mistakes: each gets an error ------------------------------------------------------------ */

static void returned_without_keep(void)
{
    fx_show(without_keep(fx_ones(2)));
}

static void global_without_set(void)
{
    {
        SCOPED(FX_SCOPE);
        global = MADE(fx_add(fx_ones(3), 2));
        fx_eval(global);
    }
    fx_show(global);
}

static void released_twice(void)
{
    fx_array *x = MADE(fx_add(fx_ones(2), 1));
    fx_release(x);
    fx_release(x);
}

static void assigned_to_a_field(void)
{
    Box *b = fx_new(Box, .w = fx_ones(2));
    {
        SCOPED(FX_SCOPE);
        b->w = MADE(fx_mul(fx_zeros(2), 3));
    }
    fx_show(b->w);
}

static void loss_after_its_step(void)
{
    fx_array *last = NULL;
    for (int i = 0; i < 3; i++) {
        SCOPED(FX_STEP);
        last = MADE(fx_pow(fx_full(i, 3), 2));
    }
    printf("%g\n", fx_item(last));
}

static void gradient_after_its_test(void)
{
    fx_array *x = fx_ones(2), *y, *g;
    {
        SCOPED(FX_TEST);
        y = MADE(fx_div(fx_ones(), 4));
    }
    fx_gradient_of(y, &x, 1, &g);
}

static void operand_after_its_scope(void)
{
    fx_array *x;
    {
        SCOPED(FX_SCOPE);
        x = MADE(fx_sub(fx_ones(2), 1));
    }
    if (!fx_is_error(fx_add(fx_exp(x), 1)))
        abort();
}

static void sizes_after_its_scope(void)
{
    fx_array *x;
    {
        SCOPED(FX_SCOPE);
        x = MADE(fx_max(fx_ones(2), 1));
    }
    if (fx_size(x, 0) != 0)
        abort();
}

static void batch_after_the_next(void)
{
    fx_loader *l = fx_dataloader(fx_rand(2, 8), .batchsize = 4);
    fx_array *first = NULL;
    for (fx_batch b = {0}; fx_next(l, &b);)
        first = first ? first : b.x;
    fx_show(first);
}

static void layer_after_its_scope(void)
{
    fx_dense_layer *m;
    {
        SCOPED(FX_SCOPE);
        m = fx_dense(2, 3);
    }
    if (!fx_is_error(fx_call(m, fx_ones(2, 1))))
        abort();
}

static void retained_too_late(void)
{
    fx_array *x;
    {
        SCOPED(FX_SCOPE);
        x = MADE(fx_min(fx_ones(2), 1));
    }
    fx_retain(x);
}

static void set_without_null(void)
{
    uintptr_t rubbish = 0x12345678;
    fx_array *acc;
    memcpy(&acc, &rubbish, sizeof acc);
    fx_set(&acc, fx_zeros());
    if (fx_item(acc) != 0) /* reads the new value */
        abort();
    fx_set(&acc, NULL);
}

static void batch_not_zeroed(void)
{
    fx_batch b;
    memset(&b, 0x5a, sizeof b);
    fx_loader *l = fx_dataloader(fx_rand(2, 8));
    while (fx_next(l, &b))
        ;
}

/* ---- uses that are right --------------------------------------------------------------------- */

static void kept(void)
{
    fx_show(with_keep(fx_ones(2)));
}

static void set_in_a_field(void)
{
    Box *b = fx_new(Box, .w = fx_ones(2));
    {
        FX_SCOPE;
        fx_set(&b->w, fx_full(7, 2));
    }
    fx_show(b->w);
}

static void running_total(void)
{
    fx_array *acc = NULL;
    for (int i = 0; i < 3; i++) {
        FX_SCOPE;
        fx_set(&acc, acc ? fx_add(acc, 1) : fx_zeros());
    }
    if (fx_item(acc) != 2)
        abort();
    fx_set(&acc, NULL);
}

static void retained_to_the_end(void)
{
    FX_SCOPE;
    fx_retain(fx_ones(1000));
}

/* Threads make, keep and free handles at the same time; each leaves one. */
enum { THREADS = 4 };

static void *make_and_free(void *left)
{
    for (int i = 0; i < 100000; i++) {
        FX_SCOPE;
        fx_scalar(i);
    }
    FX_SCOPE;
    *(fx_array **)left = fx_retain(fx_ones(1));
    fx_eval(*(fx_array **)left);
    return NULL;
}

static void several_threads(void)
{
    pthread_t threads[THREADS];
    static fx_array *left[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, make_and_free, &left[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

typedef struct usage {
    const char *name;
    void (*run)(void);
    const char *plain, *told; /* parts of the message; NULL: there is no error */
    bool made, scope;         /* with records it also has these lines */
} usage;
static const usage usages[] = {
    {"returned", returned_without_keep, "the array was freed", "the array (2 Float32, add) made",
     true, true},
    {"global", global_without_set, "the array was freed", "the array (3 Float32, add) made", true,
     true},
    {"twice", released_twice, "release: the array was freed", "was freed by fx_release near", true,
     false},
    {"field", assigned_to_a_field, "the array was freed", "the array (2 Float32, mul) made", true,
     true},
    {"loss", loss_after_its_step, "item: the array was freed", "when the FX_STEP at", true, true},
    {"gradient", gradient_after_its_test, "the array was freed", "when the FX_TEST at", true, true},
    {"operand", operand_after_its_scope, "exp: the array was freed", "exp: the array (2 Float32",
     true, true},
    {"sizes", sizes_after_its_scope, "the array was freed", "the array (2 Float32, max)", true,
     true},
    {"batch", batch_after_the_next, "the array was freed",
     "the array (2×4 Float32, leaf) made near", false, false},
    {"layer", layer_after_its_scope, "the object was freed", "the Dense made", false, true},
    {"retain", retained_too_late, "retain: the array was freed", "when the FX_SCOPE at", true,
     true},
    {"set", set_without_null, "the variable holds 0x12345678, which is not an object",
     "the variable holds 0x12345678, which is not an object", false, false},
    {"batch-not-zeroed", batch_not_zeroed, "its pass has ended", "its pass has ended", false,
     false},
    {"kept", kept, NULL, NULL, false, false},
    {"set-field", set_in_a_field, NULL, NULL, false, false},
    {"total", running_total, NULL, NULL, false, false},
    {"retained", retained_to_the_end, NULL, NULL, false, false},
    {"threads", several_threads, NULL, NULL, false, false},
};
enum { USAGES = sizeof usages / sizeof usages[0] };

/* The child's part: status, lines and message. */
static int run_usage(const char *name)
{
    for (int i = 0; i < USAGES; i++)
        if (strcmp(usages[i].name, name) == 0) {
            usages[i].run();
            const fx_error e = fx_error_take();
            printf("\nRESULT %d %d %d %s\n", (int)e.status, made_line, scope_line, e.message);
            return 0;
        }
    return 1;
}

/* Some of the mistakes are leaks, which the address sanitizer must not report. */
#define LEAKS_PASS " ASAN_OPTIONS=detect_leaks=0"

static void expect_text(const usage *u, const char *output, const char *text)
{
    if (!strstr(output, text))
        fail_msg("%s: \"%s\" is not in: %s", u->name, text, output);
}

static void check_usage(const usage *u, const char *environment, bool records)
{
    char out[4096], line[300];
    int status = -1, made = 0, scope = 0;
    const int ended = own_child(environment, u->name, out, sizeof out);
    const char *result = strstr(out, "\nRESULT ");
    if (ended != 0 || !result || sscanf(result, "\nRESULT %d %d %d", &status, &made, &scope) != 3)
        fail_msg("%s (%s) ended with %d: %s", u->name, environment, ended, out);
    if (!u->plain) {
        if (status != FX_OK)
            fail_msg("%s: %s", u->name, out);
        return;
    }
    assert_int_not_equal(status, FX_OK);
    expect_text(u, result, records ? u->told : u->plain);
    if (!records)
        return;
    snprintf(line, sizeof line, "made near %s:%d", __FILE__, made);
    if (u->made)
        expect_text(u, result, line);
    snprintf(line, sizeof line, " at %s:%d closed", __FILE__, scope);
    if (u->scope)
        expect_text(u, result, line);
}

static void each_is_an_error(void **state)
{
    (void)state;
    for (int i = 0; i < USAGES; i++)
        check_usage(&usages[i], "FX_HANDLES=0" LEAKS_PASS, false);
}

static void each_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < USAGES; i++)
        check_usage(&usages[i], "FX_HANDLES=1" LEAKS_PASS, true);
}

static void debug_builds_name_them_by_themselves(void **state)
{
    (void)state;
#ifdef CFLUX_DEBUG_CHECKS
    const bool records = true;
#else
    const bool records = false;
#endif
    check_usage(&usages[0], "", records);
}

/* With FX_HANDLES=1 the end of the process names what is still retained, and only that. */
static void the_end_names_what_is_retained(void **state)
{
    char out[4096];
    (void)state;
    assert_int_equal(own_child("FX_HANDLES=1", "retained", out, sizeof out), 0);
    assert_non_null(strstr(out, "keeps 1 object until the process ends"));
    assert_non_null(strstr(out, "the array (1000 Float32, expand) made near"));
    assert_int_equal(own_child("FX_HANDLES=1", "threads", out, sizeof out), 0);
    assert_non_null(strstr(out, "keeps 4 objects until the process ends"));
    assert_int_equal(own_child("FX_HANDLES=1", "total", out, sizeof out), 0);
    assert_null(strstr(out, "to the end of the process"));
    assert_int_equal(own_child("", "retained", out, sizeof out), 0);
    assert_null(strstr(out, "to the end of the process"));
}

/* A tombstone lasts until FXI_TOMBSTONES others have followed; then its memory is used again, so
 * that a million handles need no more than a thousand do. */
static void memory_is_used_again(void **state)
{
    (void)state;
    fx_array *x, *y = NULL;
    {
        FX_SCOPE;
        x = fx_ones(2);
    }
    for (int i = 0; i < FXI_TOMBSTONES / 2; i++) {
        FX_SCOPE;
        y = fx_scalar(i);
    }
    assert_true(fx_is_error(x) && fx_is_error(y));
    expect_error(FX_STATUS_STATE, "was freed");
    fxi_reclaim_all();
    const int64_t live = fxi_live_allocations();
    uint64_t system = 0;
    for (int i = 0; i < 1000000; i++) {
        FX_SCOPE;
        if (i == 200000)
            system = fx_stats().allocations;
        fx_scalar(i);
    }
    fxi_reclaim_all();
    assert_int_equal(fxi_live_allocations(), live);
    if (!fxi_handles_recorded)
        assert_in_range(fx_stats().allocations - system, 0, 100);
}

/* The steps after the first ones allocate nothing: handles of freed layers and arrays are used
 * again, in blocks of their own sizes. */
static void a_training_step_allocates_nothing(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { FIRST = 200, STEPS = 300 };
    void *model = fx_chain(fx_dense(20, 8, FX_RELU), fx_dense(8, 3)),
         *opt = fx_setup(fx_adam(), model);
    fx_array *x = fx_rand(20, 4);
    uint64_t before = 0;
    void *block = fxi_aligned(64, 100);
    fxi_free(block);
    const bool keeps = fxi_memory_cached() > 0; /* with a sanitizer nothing is kept */
    for (int i = 0; i < STEPS; i++) {
        FX_STEP;
        before = i == FIRST ? fx_stats().allocations : before;
        fx_array *loss = fx_mean(fx_square(fx_call(model, x)));
        assert_int_equal(fx_update(opt, model, fx_gradient(loss, model)), FX_OK);
    }
    if (keeps && !fxi_handles_recorded)
        assert_int_equal(fx_stats().allocations, before);
}

/* A pointer that is tested for being an object may point anywhere: at texts whose first bytes look
 * like an address, at memory that must not be read, at the last bytes of readable memory. */
static void no_object_is_read(void **state)
{
    (void)state;
    FX_SCOPE;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(two != MAP_FAILED);
    assert_int_equal(mprotect(two + page, page, PROT_NONE), 0);
    void *guard = two + page, *words[3] = {guard, guard, guard};
    assert_false(fxi_handle_is_object(words));
    assert_false(fxi_handle_is_object(guard));
    assert_false(fxi_handle_is_object(two + page - sizeof(void *)));
    static const union {
        char text[16];
        void *aligned;
    } names[] = {{""}, {"a"}, {"ab"}, {"abc"}, {"abcd"}, {"abcde"}, {"abcdef"}, {"abcdefg"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_false(fxi_handle_is_object(names[i].text));
    assert_true(fxi_handle_is_object(fx_ones(2)));
    munmap(two, 2 * page);
}

/* The bytes after a short text may complete it to the address of any memory: only a descriptor that
 * is valid in every part makes an object. */
static void no_other_memory_is_a_type(void **state)
{
    (void)state;
    FX_SCOPE;
    const fx_type good = *fx_type_of(fx_tuple(fx_ones(2)));
    fx_type type = good;
    const fx_object object = {.type = &type, .refs = 1};
    assert_true(good.nfields > 0 && fxi_handle_is_object(&object));
#define EXPECT_NONE(change)                                                                        \
    type = good;                                                                                   \
    change;                                                                                        \
    assert_false(fxi_handle_is_object(&object))
    EXPECT_NONE(type.name = NULL);
    EXPECT_NONE(type.name = "");
    EXPECT_NONE(type.name = (const char *)8);
    EXPECT_NONE(type.nfields = -1);
    EXPECT_NONE(type.nfields = 1 << 20);
    EXPECT_NONE(type.fields = NULL);
    EXPECT_NONE(type.size = sizeof object - 1);
    EXPECT_NONE(type.fxi_size = 0);
    EXPECT_NONE(type.fxi_size = 1 << 16);
#undef EXPECT_NONE
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return run_usage(argv[1]);
    const struct CMUnitTest tests[] = {
        TEST(each_is_an_error),
        TEST(each_is_named),
        TEST(debug_builds_name_them_by_themselves),
        TEST(the_end_names_what_is_retained),
        TEST(memory_is_used_again),
        TEST(a_training_step_allocates_nothing),
        TEST(no_object_is_read),
        TEST(no_other_memory_is_a_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
