/* test_tokenizer.c: byte-pair tokenizers against PyPI's `tokenizers`, and the errors of their
 * files.
 *
 * tests/recorded/tokenizer.npz was made by tests/support/make_tokenizer.py: a text, the files that
 * `tokenizers` learned from it, and the ids that it gave to 10,000 random strings.
 */
#include "each_allocation.h"
#include "memory.h"
#include "temp_file.h"

#include <cflux.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "refused.h"

enum { VOCABULARY = 1500, MIN_FREQUENCY = 2, STRINGS = 10000, MERGES = 1244 };

/* ---- the recorded results -------------------------------------------------------------------- */

static void *recorded;

static const void *entry(const char *name, size_t *out_bytes)
{
    fx_array *x = fx_child_named(recorded, name);
    *out_bytes = (size_t)fx_length(x) * (fx_eltype(x) == FX_DTYPE_U8 ? 1 : sizeof(int32_t));
    const void *data = fx_data(x);
    assert_non_null(data);
    return data;
}

static int load_recorded(void **state)
{
    (void)state;
    fx_set(&recorded, fx_load("tests/recorded/tokenizer.npz"));
    return fx_error_print(stderr);
}

static int drop_recorded(void **state)
{
    (void)state;
    fx_set(&recorded, NULL);
    return 0;
}

static const char *recorded_file(const char *name)
{
    char file[64];
    size_t n;
    const void *data = entry(name, &n);
    snprintf(file, sizeof file, "recorded-%s", name);
    return temp_file(file, data, n);
}

static fx_tokenizer *learn_recorded(void)
{
    const char *path = recorded_file("text");
    return fx_tokenizer_learn(1, &path, VOCABULARY, MIN_FREQUENCY);
}

/* The file has exactly the recorded bytes. */
static void check_file(const char *path, const char *name)
{
    size_t n, got;
    const char *expected = entry(name, &n);
    char *text = malloc(n + 2);
    FILE *f = fopen(path, "rb");
    assert_true(text && f);
    got = fread(text, 1, n + 2, f);
    fclose(f);
    assert_int_equal(got, n);
    assert_memory_equal(text, expected, n);
    free(text);
}

/* Encodes and decodes every recorded string. */
static void check_strings(const fx_tokenizer *t)
{
    size_t n;
    const char *strings = entry("strings", &n);
    const int32_t *ends = entry("string_ends", &n), *ids = entry("ids", &n),
                  *id_ends = entry("id_ends", &n);
    int64_t compared = 0;
    assert_int_equal(n / sizeof *ends, STRINGS);
    for (int i = 0; i < STRINGS; i++) {
        FX_SCOPE;
        char back[1024];
        const int32_t start = i ? ends[i - 1] : 0, id_start = i ? id_ends[i - 1] : 0;
        const size_t length = (size_t)(ends[i] - start), count = (size_t)(id_ends[i] - id_start);
        fx_array *got = fx_tokenizer_encode(t, strings + start, length);
        assert_int_equal(fx_eltype(got), FX_DTYPE_I64);
        assert_int_equal(fx_length(got), count);
        const int64_t *values = fx_data(got);
        for (size_t k = 0; k < count; k++, compared++)
            assert_int_equal(values[k], ids[id_start + (int32_t)k]);
        size_t bytes;
        assert_int_equal(fx_tokenizer_decode(t, got, back, sizeof back, &bytes), FX_OK);
        assert_int_equal(bytes, length);
        assert_memory_equal(back, strings + start, length);
        assert_int_equal(back[length], 0);
    }
    print_message("%lld equal ids in %d strings\n", (long long)compared, STRINGS);
    assert_true(compared > 80000);
}

static void test_learns_as_tokenizers(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_tokenizer *t = learn_recorded();
    assert_int_equal(fx_tokenizer_count(t), 256 + MERGES);
    const char *vocab = temp_text("learned-vocab.json", ""),
               *merges = temp_text("learned-merges.txt", "");
    assert_int_equal(fx_tokenizer_save(t, vocab, merges), FX_OK);
    check_file(merges, "merges");
    check_strings(t);
    fx_tokenizer *again = fx_tokenizer_load(vocab, merges);
    assert_int_equal(fx_tokenizer_count(again), 256 + MERGES);
    check_strings(again);
    assert_int_equal(fx_error_take().status, FX_OK);
}

static void test_loads_files_of_tokenizers(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_tokenizer *t = fx_tokenizer_load(recorded_file("vocab"), recorded_file("merges"));
    assert_int_equal(fx_tokenizer_count(t), 256 + MERGES);
    check_strings(t);
    const char *vocab = temp_text("saved-vocab.json", ""),
               *merges = temp_text("saved-merges.txt", "");
    assert_int_equal(fx_tokenizer_save(t, vocab, merges), FX_OK);
    check_file(merges, "merges");
    assert_int_equal(fx_error_take().status, FX_OK);
}

/* A tokenizer of the recorded one's merges gives the same ids, and so do all strings at once. */
static void test_arrays_as_tokenizers(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *merges = fx_tokenizer_merges(learn_recorded());
    assert_int_equal(fx_size(merges, 0), 2);
    assert_int_equal(fx_size(merges, 1), MERGES);
    fx_tokenizer *t = fx_tokenizer_from_merges(fx_cast(merges, FX_DTYPE_I64));
    assert_int_equal(fx_tokenizer_count(t), 256 + MERGES);
    check_strings(t);
    assert_int_equal(fx_error_take().status, FX_OK);
}

/* ---- small texts ----------------------------------------------------------------------------- */

static fx_tokenizer *learn_text(const char *text, int64_t vocabulary, int64_t min_frequency)
{
    const char *path = temp_text("learn.txt", text);
    return fx_tokenizer_learn(1, &path, vocabulary, min_frequency);
}

static void check_ids(const fx_tokenizer *t, const char *text, size_t bytes, int n, const int *ids)
{
    fx_array *got = fx_tokenizer_encode(t, text, bytes);
    assert_int_equal(fx_length(got), n);
    for (int i = 0; i < n; i++)
        assert_int_equal(((const int64_t *)fx_data(got))[i], ids[i]);
}

/* The ids of GPT-2's vocabulary: "!" 0, "a" 64, newline 198, blank 220; 187 is the byte 0xFF. */
static void test_bytes(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_tokenizer *t = learn_text("aaaa", 256, 1);
    assert_int_equal(fx_tokenizer_count(t), 256);
    check_ids(t, "!a \n\xFF", 5, 5, (const int[]){0, 64, 220, 198, 187});
    check_ids(t, "", 0, 0, NULL);
    check_ids(t, "\0", 1, 1, (const int[]){188});
    char back[300], all[256];
    size_t bytes;
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    fx_array *ids = fx_tokenizer_encode(t, all, 256);
    assert_int_equal(fx_tokenizer_decode(t, ids, back, sizeof back, &bytes), FX_OK);
    assert_int_equal(bytes, 256);
    assert_memory_equal(back, all, 256);
}

/* By hand: "ab" occurs 3 times, " ab" once more often than "abab", which no word has twice. */
static void test_merges_by_hand(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_tokenizer *t = learn_text("ab ab\nab", 1000, 1);
    assert_int_equal(fx_tokenizer_count(t), 258);
    assert_int_equal(fx_tokenizer_id(t, "ab", 2), 256);
    assert_int_equal(fx_tokenizer_id(t, " ab", 3), 257);
    assert_int_equal(fx_tokenizer_id(t, "b\n", 2), -1);
    check_ids(t, "ab abab\xFF", 8, 4, (const int[]){256, 257, 256, 187});
    assert_int_equal(fx_tokenizer_count(learn_text("ab ab\nab", 1000, 2)), 257);
    assert_int_equal(fx_tokenizer_count(learn_text("ab ab\nab", 257, 1)), 257);
    char text[100];
    fx_show_text(t, text, sizeof text);
    assert_non_null(strstr(text, "258 tokens, 2 merges"));
    assert_int_equal(fx_error_take().status, FX_OK);
}

/* A word of a megabyte takes n log n steps: seconds would be quadratic time. */
static void test_long_word(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { N = 1 << 20 };
    fx_tokenizer *t = learn_text("aaaaaaaa aaaaaaaa", 1000, 1);
    char *word = malloc(N), *back = malloc(N + 1);
    assert_true(word && back);
    memset(word, 'a', N);
    fx_array *ids = fx_tokenizer_encode(t, word, N);
    assert_int_equal(fx_length(ids), N / 8);
    size_t bytes;
    assert_int_equal(fx_tokenizer_decode(t, ids, back, N + 1, &bytes), FX_OK);
    assert_int_equal(bytes, N);
    assert_memory_equal(back, word, N);
    free(word);
    free(back);
}

/* "a" is 64, "b" 65, blank 220, "ab" 256 and " ab" 257. */
static void test_several_texts(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_tokenizer *t = learn_text("ab ab\nab", 1000, 1);
    const char *texts[] = {"ab b", " \tab\r\n", "b"};
    static const int32_t expected[] = {257, 220, 65, 257, -1, -1, 220, 65, -1};
    fx_array *ids = fx_tokenizer_encode_texts(t, 3, texts, 0);
    assert_true(fx_eltype(ids) == FX_DTYPE_I32 && fx_size(ids, 0) == 3 && fx_size(ids, 1) == 3);
    assert_memory_equal(fx_data(ids), expected, sizeof expected);
    void *bags = fx_token_bags(ids);
    static const int64_t data[] = {257, 220, 65, 257, 220, 65}, at[] = {0, 3, 4};
    assert_int_equal(fx_length(fx_child(bags, 0)), 6);
    assert_memory_equal(fx_data(fx_child(bags, 0)), data, sizeof data);
    assert_int_equal(fx_length(fx_child(bags, 1)), 3);
    assert_memory_equal(fx_data(fx_child(bags, 1)), at, sizeof at);
    static const int32_t first[] = {257, 220, 257, -1, 220, 65};
    ids = fx_tokenizer_encode_texts(t, 3, texts, 2);
    assert_int_equal(fx_size(ids, 0), 2);
    assert_memory_equal(fx_data(ids), first, sizeof first);
    texts[1] = " \n";
    refused(fx_tokenizer_encode_texts(t, 3, texts, 0), FX_STATUS_ARGUMENT, "text 2 is empty");
    texts[1] = NULL;
    refused(fx_tokenizer_encode_texts(t, 3, texts, 0), FX_STATUS_ARGUMENT, "text 2 is NULL");
    refused(fx_tokenizer_encode_texts(t, 0, texts, 0), FX_STATUS_ARGUMENT, "at least one text");
    refused(fx_tokenizer_encode_texts(t, 3, NULL, 0), FX_STATUS_ARGUMENT, "list of 3 texts");
    refused(fx_tokenizer_encode_texts(NULL, 3, texts, 0), FX_STATUS_ARGUMENT, "NULL");
}

static void test_refused_arrays(void **state)
{
    (void)state;
    FX_SCOPE;
    static const int32_t late[] = {64, 65, 257, 64}, none[] = {64, -1};
    refused(fx_tokenizer_from_merges(fx_from(FX_DTYPE_I32, late, 2, 2)), FX_STATUS_ARGUMENT,
            "merge 2 joins tokens 257 and 64, but there are only 257 tokens");
    refused(fx_tokenizer_from_merges(fx_from(FX_DTYPE_I32, late, 4, 1)), FX_STATUS_ARGUMENT,
            "2 rows");
    refused(fx_tokenizer_from_merges(fx_zeros(2, 3)), FX_STATUS_ARGUMENT, "a matrix of integers");
    /* Each merge doubles the last token: the tokens would have 2⁵¹ bytes. */
    int32_t doubling[100] = {0};
    for (int32_t i = 2; i < 100; i++)
        doubling[i] = 256 + i / 2 - 1;
    refused(fx_tokenizer_from_merges(fx_from(FX_DTYPE_I32, doubling, 2, 50)), FX_STATUS_ARGUMENT,
            "the tokens of 50 merges have more than");
    refused(fx_tokenizer_merges(NULL), FX_STATUS_ARGUMENT, "NULL");
    refused(fx_token_bags(fx_zeros(2, 3)), FX_STATUS_ARGUMENT, "a matrix of integers");
    refused(fx_token_bags(fx_from(FX_DTYPE_I32, late, 4)), FX_STATUS_ARGUMENT, "a matrix");
    refused(fx_token_bags(fx_transpose(fx_from(FX_DTYPE_I32, none, 2, 1))), FX_STATUS_ARGUMENT,
            "a text has no ids");
    const char *vocab = temp_text("w.json", ""), *merges = temp_text("n.txt", "");
    fx_tokenizer *t = learn_text("ab ab\nab", 1000, 1);
    assert_int_equal(fx_tokenizer_save(t, vocab, merges), FX_OK);
    t = fx_tokenizer_load(vocab, temp_text("one.txt", "a b\n"));
    refused(fx_tokenizer_merges(t), FX_STATUS_ARGUMENT, "do not follow from its merges");
    assert_int_equal(fx_length(fx_tokenizer_merges(learn_text("a", 256, 1))), 0);
}

static void test_decode_into_little_memory(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_tokenizer *t = learn_text("ab", 256, 1);
    fx_array *ids = fx_tokenizer_encode(t, "abc", 3);
    char back[4] = "....";
    size_t bytes = 9;
    assert_int_equal(fx_tokenizer_decode(t, ids, NULL, 0, &bytes), FX_OK);
    assert_int_equal(bytes, 3);
    assert_int_equal(fx_tokenizer_decode(t, ids, back, 2, &bytes), FX_OK);
    assert_int_equal(bytes, 3);
    assert_memory_equal(back, "ab..", 4);
    assert_int_equal(fx_tokenizer_decode(t, fx_cast(ids, FX_DTYPE_I32), back, 4, &bytes), FX_OK);
    assert_string_equal(back, "abc");
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void check_failure(fx_status got, fx_status status, const char *part)
{
    const fx_error e = fx_error_take();
    assert_int_equal(got, status);
    assert_int_equal(e.status, status);
    if (!strstr(e.message, part))
        fail_msg("\"%s\" does not contain \"%s\"", e.message, part);
}

static void test_refused_texts(void **state)
{
    (void)state;
    FX_SCOPE;
    const struct {
        const char *text, *part;
        int64_t vocabulary;
        fx_status status;
    } rows[] = {{"good\nb\xC3(d\n", "line 2: byte 2 (0xC3) is not UTF-8", 300, FX_STATUS_FORMAT},
                {"", "has no text", 300, FX_STATUS_FORMAT},
                {"abc", "expected a vocabulary of 256 to", 255, FX_STATUS_ARGUMENT}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        refused(learn_text(rows[i].text, rows[i].vocabulary, 1), rows[i].status, rows[i].part);
    const char *missing = "no/such/text";
    refused(fx_tokenizer_learn(1, &missing, 300, 1), FX_STATUS_IO, missing);
    refused(fx_tokenizer_learn(0, &missing, 300, 1), FX_STATUS_ARGUMENT, "at least one file");
    refused(fx_tokenizer_learn(1, NULL, 300, 1), FX_STATUS_ARGUMENT, "the list of 1 files is NULL");
}

/* Replaces the first `from` of a text by `to`. */
static const char *changed(const char *text, const char *from, const char *to)
{
    static char out[1 << 16];
    const char *at = strstr(text, from);
    assert_non_null(at);
    snprintf(out, sizeof out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return temp_text("changed", out);
}

static char *text_of(const char *path)
{
    static char text[2][1 << 14];
    static int turn;
    char *out = text[turn++ % 2];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    out[fread(out, 1, sizeof text[0] - 1, f)] = 0;
    fclose(f);
    return out;
}

static void test_refused_files(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *vocab = temp_text("v.json", ""), *merges = temp_text("m.txt", "");
    assert_int_equal(fx_tokenizer_save(learn_text("ab ab\nab", 1000, 1), vocab, merges), FX_OK);
    const char *v = text_of(vocab), *m = text_of(merges);
    assert_string_equal(m, "#version: 0.2\na b\n\xC4\xA0 ab\n");
    const struct {
        const char *text, *from, *to, *part;
    } rows[] = {
        {v, "\"a\":64", "\"a\":63", "id 63 occurs twice"},
        {v, "\"a\":64", "\"a\":258", "id 258 is too large"},
        {v, "\"a\":64", "\"aa\":64", "the byte 97 has no token"},
        {v, "\"a\":64", "\"b\":64", "two tokens have the same bytes"},
        {v, "\"a\":64", "\"a\":6.5", "expected an integer"},
        {v, "}\n", "", "the end of the text"},
        {v, "}\n", "} x", "text after the object"},
        {v, "\"a\"", "\"\xC3\"", "not UTF-8"},
        {m, "a b", "ab", "line 2: expected two tokens"},
        {m, "a b", "a b c", "line 2: expected two tokens"},
        {m, "a b", "a ", "line 2: expected two tokens"},
        {m, "a b", "a bb", "line 2: the second token is not in the vocabulary"},
        {m, "a b", "aa b", "line 2: the first token is not in the vocabulary"},
        {m, "a b", "b a", "line 2: the joined token is not in the vocabulary"},
        {m, "\xC4\xA0", "\xC4", "not UTF-8"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *path = changed(rows[i].text, rows[i].from, rows[i].to);
        fx_tokenizer *t =
            rows[i].text == v ? fx_tokenizer_load(path, merges) : fx_tokenizer_load(vocab, path);
        refused(t, FX_STATUS_FORMAT, rows[i].part);
    }
    refused(fx_tokenizer_load("no/such", merges), FX_STATUS_IO, "no/such");
    refused(fx_tokenizer_load(NULL, merges), FX_STATUS_ARGUMENT, "NULL");
    const fx_tokenizer *end = fx_tokenizer_load(changed(v, "}\n", ",\"<|endoftext|>\":258}"),
                                                temp_text("crlf.txt", "a b\r\n\r\n"));
    assert_int_equal(fx_tokenizer_id(end, "<|endoftext|>", 13), 258);
    assert_int_equal(fx_error_take().status, FX_OK);
}

static void test_refused_calls(void **state)
{
    (void)state;
    FX_SCOPE;
    size_t bytes;
    char back[8];
    fx_tokenizer *t = learn_text("ab", 256, 1);
    check_failure(fx_tokenizer_decode(t, fx_full_dtype(FX_DTYPE_I64, 256, 2), back, 8, &bytes),
                  FX_STATUS_ARGUMENT, "id 256 at position 0 is not from 0 to 255");
    check_failure(fx_tokenizer_decode(t, fx_zeros(2), back, 8, &bytes), FX_STATUS_DTYPE, "Float32");
    assert_int_equal(bytes, 0);
    refused(fx_tokenizer_encode(t, NULL, 1), FX_STATUS_ARGUMENT, "NULL");
    refused(fx_tokenizer_encode(NULL, "a", 1), FX_STATUS_ARGUMENT, "NULL");
    refused(fx_tokenizer_encode((void *)fx_dense(1, 1), "a", 1), FX_STATUS_ARGUMENT,
            "expects a tokenizer, got Dense");
    fx_array *failed = fx_tokenizer_encode(NULL, "a", 1);
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_int_not_equal(fx_tokenizer_decode(t, failed, back, 8, &bytes), FX_OK);
    fx_error_take();
    check_failure(fx_tokenizer_save(t, "no/such/folder/v", "m"), FX_STATUS_IO, "no/such");
    check_failure(fx_tokenizer_save(NULL, "v", "m"), FX_STATUS_ARGUMENT,
                  "expects a tokenizer, got NULL");
    assert_int_equal(fx_tokenizer_count(NULL), 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *learn_file(const char *path)
{
    return fx_tokenizer_learn(1, &path, 300, 1);
}

static const char *saved_vocab, *saved_merges;

static void *load_and_use(const char *path)
{
    (void)path;
    fx_tokenizer *t = fx_tokenizer_load(saved_vocab, saved_merges);
    fx_array *ids = fx_tokenizer_encode(t, "a text of ab, abab", 18);
    char back[32];
    size_t bytes;
    const fx_status status = fx_tokenizer_decode(t, ids, back, sizeof back, &bytes);
    if (status == FX_OK)
        assert_int_equal(bytes, 18);
    return status == FX_OK ? (void *)t : fx_error_array(status);
}

static void *encode_arrays(const char *path)
{
    const char *texts[] = {"ab abab", "b"};
    fx_tokenizer *t = fx_tokenizer_from_merges(fx_tokenizer_merges(learn_file(path)));
    return fx_token_bags(fx_tokenizer_encode_texts(t, 2, texts, 0));
}

static void test_each_allocation(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *text = temp_text("alloc.txt", "a text of ab, abab and a text of its own\n");
    each_allocation_of(learn_file, text, 40);
    each_allocation_of(encode_arrays, text, 50);
    saved_vocab = temp_text("alloc.json", "");
    saved_merges = temp_text("alloc-merges.txt", "");
    assert_int_equal(fx_tokenizer_save(learn_file(text), saved_vocab, saved_merges), FX_OK);
    each_allocation_of(load_and_use, saved_vocab, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns_as_tokenizers),
        cmocka_unit_test(test_loads_files_of_tokenizers),
        cmocka_unit_test(test_arrays_as_tokenizers),
        cmocka_unit_test(test_several_texts),
        cmocka_unit_test(test_refused_arrays),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_merges_by_hand),
        cmocka_unit_test(test_long_word),
        cmocka_unit_test(test_decode_into_little_memory),
        cmocka_unit_test(test_refused_texts),
        cmocka_unit_test(test_refused_files),
        cmocka_unit_test(test_refused_calls),
        cmocka_unit_test(test_each_allocation),
    };
    return cmocka_run_group_tests(tests, load_recorded, drop_recorded);
}
