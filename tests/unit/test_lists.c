/* test_lists.c: every public function that takes a number of elements and a list refuses a list
 * that is NULL, a negative number, and a list whose pointers are NULL.
 *
 * check_lists.py compares the rows with the headers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <string.h>

typedef struct list_row {
    const char *function;  /* name in the headers; several rows if it takes several lists */
    const char *operation; /* the messages begin with it */
    const char *elements;  /* what the messages call the elements */
    fx_status (*call)(int n, void *list);
    bool pointers; /* the elements are pointers that must not be NULL */
} list_row;

/* The status of a call that returns an object; its record stays. */
static fx_status made(const void *object)
{
    return fx_is_error(object) ? fx_error_status() : FX_OK;
}

static fx_status no_forward(const fx_custom_op *op, int n, const fx_custom_operand *in,
                            const fx_custom_operand *out)
{
    (void)op, (void)n, (void)in, (void)out;
    return FX_OK;
}
static const fx_custom_op custom_op = {
    .fxi_size = sizeof(fx_custom_op), .name = "of_this_test", .forward = no_forward};

static fx_array *first_tree(int n, fx_array *const *x, void *user)
{
    (void)n, (void)user;
    return x[0];
}

static void *identity(void)
{
    return fx_function_new("identity", fx_relu);
}

static fx_tokenizer *tokenizer(void)
{
    return fx_tokenizer_from_merges(fxi_full(FX_DTYPE_I32, 0, 2, (const int64_t[]){2, 0}));
}

enum { MOST = 4 };
static fx_array *results[MOST];
static void *objects[MOST];
static void *const *some_objects(void)
{
    for (int i = 0; i < MOST; i++)
        objects[i] = fx_ones(2);
    return objects;
}

/* Calls with the list `p` and the number `n`. OF: a function that takes several lists. */
/* clang-format off */
#define ROWS(ROW, OF) \
    ROW(fxi_full, "full", "sizes", false, made(fxi_full(FX_DTYPE_F32, 1, n, p))) \
    ROW(fxi_rand, "rand", "sizes", false, made(fxi_rand(FX_DTYPE_F32, n, p))) \
    ROW(fxi_randn, "rand", "sizes", false, made(fxi_randn(FX_DTYPE_F32, n, p))) \
    ROW(fxi_vector, "vector", "values", false, made(fxi_vector(n, p))) \
    ROW(fxi_from, "from", "sizes", false, made(fxi_from(FX_DTYPE_F32, "1234", n, p))) \
    ROW(fxi_borrow, "borrow", "sizes", false, made(fxi_borrow(FX_DTYPE_F32, results, NULL, NULL, n, p))) \
    ROW(fxi_from_c, "from_c", "sizes", false, made(fxi_from_c(FX_DTYPE_F32, results, n, p))) \
    ROW(fx_nfan, "nfan", "sizes", false, (fx_nfan(n, p, &(double){0}, &(double){0}), fx_error_status())) \
    ROW(fx_glorot_uniform, "init", "sizes", false, made(fx_glorot_uniform(n, p))) \
    ROW(fx_glorot_normal, "init", "sizes", false, made(fx_glorot_normal(n, p))) \
    ROW(fx_kaiming_uniform, "init", "sizes", false, made(fx_kaiming_uniform(n, p))) \
    ROW(fx_kaiming_normal, "init", "sizes", false, made(fx_kaiming_normal(n, p))) \
    ROW(fx_lecun_normal, "init", "sizes", false, made(fx_lecun_normal(n, p))) \
    ROW(fx_truncated_normal, "init", "sizes", false, made(fx_truncated_normal(n, p))) \
    ROW(fx_orthogonal, "init", "sizes", false, made(fx_orthogonal(n, p))) \
    ROW(fx_sparse_init, "init", "sizes", false, made(fx_sparse_init(n, p))) \
    ROW(fx_identity_init, "init", "sizes", false, made(fx_identity_init(n, p))) \
    ROW(fx_rand_init, "init", "sizes", false, made(fx_rand_init(n, p))) \
    ROW(fx_randn_init, "init", "sizes", false, made(fx_randn_init(n, p))) \
    ROW(fx_zeros_init, "init", "sizes", false, made(fx_zeros_init(n, p))) \
    ROW(fx_ones_init, "init", "sizes", false, made(fx_ones_init(n, p))) \
    ROW(fxi_reshape, "reshape", "sizes", false, made(fxi_reshape(fx_ones(4), n, p))) \
    ROW(fxi_permute, "permute", "axes", false, made(fxi_permute(fx_ones(2, 2), n, p))) \
    ROW(fxi_expand, "expand", "sizes", false, made(fxi_expand(fx_ones(1), n, p))) \
    ROW(fxi_repeat, "repeat", "counts", false, made(fxi_repeat(fx_ones(2, 2), n, p))) \
    ROW(fxi_concat, "concat", "arrays", true, made(fxi_concat(0, n, p))) \
    ROW(fxi_stack, "stack", "arrays", true, made(fxi_stack(0, n, p))) \
    ROW(fx_custom, "of_this_test", "inputs", true, made(fx_custom(&custom_op, n, p, FX_DTYPE_F32, FX_DIMS(1)))) \
    OF(gradient_arrays, fx_gradient_of, "gradient", "arrays", true, \
       fx_gradient_of(fx_sum(fx_ones(2)), p, n, results)) \
    OF(gradient_results, fx_gradient_of, "gradient", "gradients", false, \
       fx_gradient_of(fx_sum(fx_ones(2)), (fx_array *const *)some_objects(), n, p)) \
    OF(pullback_arrays, fx_pullback, "gradient", "arrays", true, \
       fx_pullback(fx_ones(2), fx_ones(2), p, n, results)) \
    OF(pullback_results, fx_pullback, "gradient", "gradients", false, \
       fx_pullback(fx_ones(2), fx_ones(2), (fx_array *const *)some_objects(), n, p)) \
    ROW(fxi_parallel, "Parallel", "layers", true, made(fxi_parallel(n, p))) \
    ROW(fxi_parallel_pairs, "Parallel", "names and layers", true, made(fxi_parallel_pairs(identity(), n, p))) \
    ROW(fxi_pairwisefusion, "PairwiseFusion", "layers", true, made(fxi_pairwisefusion(n, p))) \
    ROW(fxi_pairwisefusion_pairs, "PairwiseFusion", "names and layers", true, \
        made(fxi_pairwisefusion_pairs(identity(), n, p))) \
    ROW(fxi_maxout, "Maxout", "layers", true, made(fxi_maxout(n, p))) \
    ROW(fxi_chain, "Chain", "layers", true, made(fxi_chain(n, p))) \
    ROW(fxi_chain_pairs, "Chain", "names and layers", true, made(fxi_chain_pairs(n, p))) \
    ROW(fxi_activations, "activations", "inputs", true, made(fxi_activations(fx_chain(fx_dense(2, 2)), n, p))) \
    ROW(fxi_call, "call", "inputs", true, made(fxi_call(fx_dense(2, 2), n, p))) \
    ROW(fxi_checkpointed, "checkpointed", "inputs", true, made(fxi_checkpointed(fx_dense(2, 2), n, p))) \
    ROW(fxi_save, "save", "names and objects", true, fxi_save("never-written.npz", n, p)) \
    ROW(fx_save_try, "save", "names and objects", true, fx_save_try("never-written.npz", n, p, &(void *){NULL})) \
    ROW(fxi_load_into, "load_into", "names and objects", true, fxi_load_into("never-written.npz", n, p)) \
    ROW(fxi_metadata, "metadata", "keys and texts", true, made(fxi_metadata(n, p))) \
    ROW(fxi_joinobs, "joinobs", "data sets", true, made(fxi_joinobs(n, p))) \
    ROW(fxi_optimiser_chain, "OptimiserChain", "rules", true, made(fxi_optimiser_chain(n, p))) \
    ROW(fx_average, "average", "gradients", true, fx_average(n, p)) \
    OF(update_states, fx_update_all, "update_all", "states", true, fx_update_all(n, p, some_objects(), some_objects())) \
    OF(update_models, fx_update_all, "update_all", "models", true, fx_update_all(n, some_objects(), p, some_objects())) \
    OF(update_gradients, fx_update_all, "update_all", "gradients", true, fx_update_all(n, some_objects(), some_objects(), p)) \
    OF(sequence_parts, fx_schedule_sequence, "Sequence", "schedules", true, \
        made(fx_schedule_sequence(n, p, (const int64_t[]){1, 2, 3, 4}))) \
    OF(sequence_steps, fx_schedule_sequence, "Sequence", "steps", false, \
        made(fx_schedule_sequence(n, (fx_schedule *[]){fx_schedule_exp(1, 0.5), fx_schedule_exp(1, 0.5)}, p))) \
    ROW(fx_schedule_composed, "ComposedSchedule", "numbers", true, \
        made(fx_schedule_composed(fx_schedule_exp(1, 0.5), n, p))) \
    ROW(fx_tokenizer_learn, "tokenizer_learn", "files", true, made(fx_tokenizer_learn(n, p, 300, 2))) \
    ROW(fx_tokenizer_encode_texts, "tokenizer_encode_texts", "texts", true, \
        made(fx_tokenizer_encode_texts(tokenizer(), n, p, 4))) \
    ROW(fxi_tuple, "tuple", "items", false, made(fxi_tuple(n, p))) \
    OF(tuple_names, fx_named_tuple_from, "named_tuple", "names", true, made(fx_named_tuple_from(n, p, some_objects()))) \
    OF(tuple_items, fx_named_tuple_from, "named_tuple", "items", false, \
        made(fx_named_tuple_from(n, (const char *const[]){"a", "b"}, p))) \
    ROW(fxi_named_pairs, "named_tuple", "names and objects", true, made(fxi_named_pairs(n, p))) \
    ROW(fx_fmap_n, "fmap", "trees", true, made(fx_fmap_n(first_tree, NULL, n, p)))
/* clang-format on */

#define CALL_OF(tag, function, operation, elements, pointers, result)                              \
    static fx_status call_##tag(int n, void *p)                                                    \
    {                                                                                              \
        return result;                                                                             \
    }
#define CALL(function, ...) CALL_OF(function, function, __VA_ARGS__)
ROWS(CALL, CALL_OF)

#define OF(tag, function, operation, elements, pointers, result)                                   \
    {#function, operation, elements, call_##tag, pointers},
#define ROW(function, ...) OF(function, function, __VA_ARGS__)
static const list_row rows[] = {ROWS(ROW, OF)};
enum { NROWS = sizeof rows / sizeof rows[0] };

/* Takes the error of a call that must have failed with a sentence of the row's operation. */
static fx_error refusal(const list_row *row, const char *what, fx_status status)
{
    const fx_error e = fx_error_take();
    const size_t n = strlen(row->operation);
    if (status != FX_STATUS_ARGUMENT || e.status != status)
        fail_msg("%s of %s: %s, expected FX_STATUS_ARGUMENT: %s", what, row->function,
                 fx_status_name(status), e.message);
    if (strncmp(e.message, row->operation, n) != 0 || e.message[n] != ':')
        fail_msg("%s of %s: the message does not name %s: %s", what, row->function, row->operation,
                 e.message);
    return e;
}

static void a_list_that_is_null(void **state)
{
    (void)state;
    for (int i = 0; i < NROWS; i++) {
        FX_SCOPE;
        char words[80];
        snprintf(words, sizeof words, "the list of 2 %s is NULL", rows[i].elements);
        const fx_error e = refusal(&rows[i], "a NULL list", rows[i].call(2, NULL));
        if (!strstr(e.message, words))
            fail_msg("%s: \"%s\" does not say \"%s\"", rows[i].function, e.message, words);
    }
}

static void a_negative_number(void **state)
{
    (void)state;
    static void *nothing[MOST];
    for (int i = 0; i < NROWS; i++) {
        FX_SCOPE;
        refusal(&rows[i], "a negative number", rows[i].call(-2, nothing));
    }
}

static void a_list_of_null_pointers(void **state)
{
    (void)state;
    static void *nothing[MOST];
    for (int i = 0; i < NROWS; i++) {
        FX_SCOPE;
        /* fx_activations returns a tuple of errors */
        if (rows[i].pointers && rows[i].call(2, nothing) == FX_OK && fx_error_status() == FX_OK)
            fail_msg("%s takes a list of NULL pointers", rows[i].function);
        fx_error_take();
    }
}

/* ---- memory with a number of bytes or elements ----------------------------------------------- */

static fx_status read_into_null(void)
{
    return fx_read_into(fx_ones(2), NULL, 8);
}
static fx_status read_as_null(void)
{
    return fx_read_as(fx_ones(2), FX_DTYPE_F32, NULL, 2);
}
static fx_status from_null(void)
{
    return made(fxi_from(FX_DTYPE_F32, NULL, 1, (const int64_t[]){2}));
}
static fx_status borrow_null(void)
{
    return made(fxi_borrow(FX_DTYPE_F32, NULL, NULL, NULL, 1, (const int64_t[]){2}));
}
static fx_status from_c_null(void)
{
    return made(fxi_from_c(FX_DTYPE_F32, NULL, 1, (const size_t[]){8}));
}
static fx_status load_bytes_null(void)
{
    return made(fx_load_bytes(NULL, 8, NULL, NULL));
}
static fx_status encode_null(void)
{
    return made(fx_tokenizer_encode(tokenizer(), NULL, 8));
}
static fx_status id_null(void)
{
    assert_int_equal(fx_tokenizer_id(tokenizer(), NULL, 8), -1);
    return FX_OK;
}

static const struct {
    const char *function;
    fx_status (*call)(void), expected;
} memory_rows[] = {
    {"fx_read_into", read_into_null, FX_STATUS_ARGUMENT},
    {"fx_read_as", read_as_null, FX_STATUS_ARGUMENT},
    {"fxi_from", from_null, FX_STATUS_ARGUMENT},
    {"fxi_borrow", borrow_null, FX_STATUS_ARGUMENT},
    {"fxi_from_c", from_c_null, FX_STATUS_ARGUMENT},
    {"fx_load_bytes", load_bytes_null, FX_STATUS_ARGUMENT},
    {"fx_tokenizer_encode", encode_null, FX_STATUS_ARGUMENT},
    {"fx_tokenizer_id", id_null, FX_OK},
};

static void memory_that_is_null(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof memory_rows / sizeof memory_rows[0]; i++) {
        FX_SCOPE;
        const fx_status status = memory_rows[i].call();
        const fx_error e = fx_error_take();
        if (status != memory_rows[i].expected || e.status != status)
            fail_msg("%s: %s, %s", memory_rows[i].function, fx_status_name(status), e.message);
        if (status != FX_OK && !strstr(e.message, "NULL"))
            fail_msg("%s: the message does not say NULL: %s", memory_rows[i].function, e.message);
    }
}

/* ---- texts that functions write -------------------------------------------------------------- */

static size_t show(char *dst, size_t capacity)
{
    return fx_show_text(fx_ones(2), dst, capacity);
}
static size_t summary(char *dst, size_t capacity)
{
    return fx_summary(fx_ones(2), dst, capacity);
}
static size_t plan(char *dst, size_t capacity)
{
    FX_SCOPE;
    return fx_plan_text(fx_add(fx_ones(2), 1), dst, capacity);
}
static size_t memory(char *dst, size_t capacity)
{
    return fx_memory_text(NULL, dst, capacity);
}
static size_t decode(char *dst, size_t capacity)
{
    size_t bytes;
    assert_int_equal(fx_tokenizer_decode(tokenizer(),
                                         fx_zeros_like(fx_cast(fx_ones(3), FX_DTYPE_I32)), dst,
                                         capacity, &bytes),
                     FX_OK);
    return bytes;
}
static fx_walk write_path(const fx_spot *at, void *user)
{
    struct {
        char *dst;
        size_t capacity, length;
    } *text = user;
    if (at->parent)
        text->length = fx_spot_path(at, NULL, text->dst, text->capacity);
    return FX_WALK_ENTER;
}
static size_t path(char *dst, size_t capacity)
{
    struct {
        char *dst;
        size_t capacity, length;
    } text = {dst, capacity, 0};
    void *model = fx_chain(fx_dense(2, 2));
    const fx_tree_walker walker = {.op = "path", .trees = 1, .meet = write_path, .user = &text};
    assert_int_equal(fx_tree_walk(&walker, &model), FX_OK);
    return text.length;
}

static const struct {
    const char *function;
    size_t (*write)(char *dst, size_t capacity);
} text_rows[] = {
    {"fx_show_text", show},     {"fx_summary", summary},         {"fx_plan_text", plan},
    {"fx_memory_text", memory}, {"fx_tokenizer_decode", decode}, {"fx_spot_path", path},
};

/* With NULL the length is returned, whatever the capacity. */
static void no_memory_for_a_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof text_rows / sizeof text_rows[0]; i++) {
        FX_SCOPE;
        char text[1000];
        const size_t n = text_rows[i].write(text, sizeof text);
        if (n == 0 || text_rows[i].write(NULL, sizeof text) != n ||
            text_rows[i].write(NULL, 0) != n)
            fail_msg("%s returns another length with NULL than %zu", text_rows[i].function, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_that_is_null),     cmocka_unit_test(a_negative_number),
        cmocka_unit_test(a_list_of_null_pointers), cmocka_unit_test(memory_that_is_null),
        cmocka_unit_test(no_memory_for_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
