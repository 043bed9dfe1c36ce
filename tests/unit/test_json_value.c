/* test_json_value.c: the reader of JSON values against cJSON, a reader that others wrote, on texts
 * made at random, and the grammar of RFC 8259 by hand.
 */
#include "comma_locale.h"
#include "json_value.h"
#include "memory.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static fxi_json *read_bytes(const char *text, size_t n, bool quiet, fx_status *out_status)
{
    fxi_bytes b = {.data = (const unsigned char *)text,
                   .size = n,
                   .op = "test",
                   .format = "json",
                   .path = "a text",
                   .quiet = quiet};
    fxi_json *value = fxi_json_read(&b);
    assert_int_equal(value == NULL, b.status != FX_OK);
    *out_status = b.status;
    return value;
}

static fxi_json *read_text(const char *text)
{
    fx_status status;
    return read_bytes(text, strlen(text), true, &status);
}

/* Compares a value with cJSON's, and counts the comparisons. */
static void compare(const fxi_json *a, const cJSON *b, int *io_count)
{
    assert_true(fxi_json_is(a, FXI_JSON_NULL) == (bool)cJSON_IsNull(b));
    assert_true(fxi_json_is(a, FXI_JSON_FLAG) == (bool)cJSON_IsBool(b));
    assert_true(fxi_json_is(a, FXI_JSON_NUMBER) == (bool)cJSON_IsNumber(b));
    assert_true(fxi_json_is(a, FXI_JSON_TEXT) == (bool)cJSON_IsString(b));
    assert_true(fxi_json_is(a, FXI_JSON_LIST) == (bool)cJSON_IsArray(b));
    if (cJSON_IsBool(b))
        assert_true(a->flag == (bool)cJSON_IsTrue(b));
    if (cJSON_IsNumber(b))
        assert_true(a->number == b->valuedouble);
    if (cJSON_IsString(b))
        assert_string_equal(a->text, b->valuestring);
    if (b->string)
        assert_string_equal(a->name, b->string);
    ++*io_count;
    assert_int_equal(fxi_json_length(a), cJSON_GetArraySize(b));
    const fxi_json *x = a->child;
    for (const cJSON *y = b->child; y; y = y->next, x = x->next)
        compare(x, y, io_count);
}

static uint64_t bits = 1;
static int draw(int n)
{
    bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
    return (int)(bits % (uint64_t)n);
}

static char made[1 << 16];
static size_t length;
static void put(const char *s)
{
    const size_t n = strlen(s);
    if (length + n < sizeof made) {
        memcpy(made + length, s, n + 1);
        length += n;
    }
}

static void make_value(int depth)
{
    static const char *const simple[] = {"null",
                                         "true",
                                         "false",
                                         "0",
                                         "-0",
                                         "17",
                                         "-1.5e-3",
                                         "1e300",
                                         "0.1",
                                         "123456789012345678",
                                         "1E+2",
                                         "\"\"",
                                         "\"a b\"",
                                         "\"\\u00e9\\n\\\"\\\\\\/\"",
                                         "\"\\ud83d\\ude00\"",
                                         "\"\xc3\xa9\""};
    static const char *const spaces[] = {"", "", "", " ", "\t", "\r\n"};
    const int kind = depth < 5 ? draw(4) : 3, n = draw(4);
    put(spaces[draw(6)]);
    if (kind >= 2)
        put(simple[draw(16)]);
    else
        put(kind ? "{" : "[");
    for (int i = 0; kind < 2 && i < n; i++) {
        put(i ? "," : "");
        put(kind ? (const char *[]){"\"a\":", "\"b\" : ", "\"\\u0041\":"}[draw(3)] : "");
        make_value(depth + 1);
    }
    if (kind < 2)
        put(kind ? "}" : "]");
    put(spaces[draw(6)]);
}

static void values_are_what_another_reader_reads(void **state)
{
    (void)state;
    int count = 0;
    for (int i = 0; i < 3000; i++) {
        length = 0;
        make_value(0);
        cJSON *want = cJSON_Parse(made);
        fxi_json *got = read_text(made);
        if (!want || !got)
            fail_msg("not read: %s", made);
        compare(got, want, &count);
        cJSON_Delete(want);
        fxi_json_free(got);
    }
    assert_true(count > 9000);
}

static void what_the_grammar_forbids_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",         " ",     "nul",       "nullx",   "True",     "01",        "-",
        "1.",       ".5",    "+1",        "1e",      "1e+",      "0x1",       "NaN",
        "Infinity", "-Inf",  "[",         "[1",      "[1,",      "[1,]",      "[,1]",
        "[1 2]",    "{",     "{\"a\"",    "{\"a\":", "{\"a\":1", "{\"a\":1,", "{\"a\":1,}",
        "{a:1}",    "{1:2}", "{\"a\" 1}", "\"",      "\"\\x\"",  "\"\\u12\"", "\"\\ud800\"",
        "\"\n\"",   "1 2",   "{} {}",     "[]]",     "'a'",      "//",        "\"\\u0000\""};
    const int64_t live = fxi_live_allocations();
    int refused = 0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fx_status status;
        if (read_bytes(bad[i], strlen(bad[i]), true, &status))
            fail_msg("%s is read", bad[i]);
        assert_int_equal(status, FX_STATUS_FORMAT);
        assert_int_equal(fx_error_status(), FX_OK);
        assert_null(read_bytes(bad[i], strlen(bad[i]), false, &status));
        assert_int_equal(fx_error_take().status, FX_STATUS_FORMAT);
        refused++;
    }
    assert_int_equal(refused, 42);
    assert_int_equal(fxi_live_allocations(), live);
}

/* The reader does not look at the bytes after the end of the text. */
static void a_text_ends_where_its_size_says(void **state)
{
    (void)state;
    static const char text[] = "\"\\ud83d\\ude00\"";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        fx_status status;
        assert_null(read_bytes(text, n, false, &status));
        assert_int_equal(fx_error_take().status, FX_STATUS_FORMAT);
    }
}

static void depth_is_bounded(void **state)
{
    (void)state;
    char text[2 * FXI_IO_MAX_DEPTH + 10] = "";
    for (int depth = FXI_IO_MAX_DEPTH; depth <= FXI_IO_MAX_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = 0;
        fxi_json *value = read_text(text);
        assert_int_equal(value != NULL, depth == FXI_IO_MAX_DEPTH);
        fxi_json_free(value);
    }
}

static void numbers_do_not_depend_on_the_locale(void **state)
{
    (void)state;
    set_comma_locale();
    fxi_json *list = read_text("[0.5, 1e999, -1e999, 0.1e1, "
                               "0.30000000000000000000000000000000000000000000000000000000000000000"
                               "00000000000000000000000000000000000000001]");
    setlocale(LC_ALL, "C");
    assert_non_null(list);
    assert_true(fxi_json_number_of(fxi_json_item(list, 0)) == 0.5);
    assert_true(fxi_json_item(list, 1)->number == INFINITY);
    assert_true(isnan(fxi_json_number_of(fxi_json_item(list, 1))));
    assert_true(fxi_json_number_of(fxi_json_item(list, 3)) == 1);
    assert_true(fxi_json_number_of(fxi_json_item(list, 4)) == 0.3);
    assert_null(fxi_json_item(list, 5));
    fxi_json_free(list);
}

static void without_memory_there_is_an_error(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":[1,\"b\",{\"c\":null}]}";
    const int64_t live = fxi_live_allocations();
    int failures = 0;
    for (int64_t nth = 0; nth < 20; nth++) {
        fx_status status;
        fxi_fault_set(nth);
        fxi_json *value = read_bytes(text, sizeof text - 1, true, &status);
        fxi_fault_set(-1);
        failures += status == FX_STATUS_MEMORY;
        assert_true(status == FX_OK || status == FX_STATUS_MEMORY);
        assert_int_equal(fx_error_take().status, status);
        fxi_json_free(value);
        assert_int_equal(fxi_live_allocations(), live);
    }
    assert_in_range(failures, 9, 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_what_another_reader_reads),
        cmocka_unit_test(what_the_grammar_forbids_is_refused),
        cmocka_unit_test(a_text_ends_where_its_size_says),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(numbers_do_not_depend_on_the_locale),
        cmocka_unit_test(without_memory_there_is_an_error),
    };
    return cmocka_run_group_tests_name("json_value", tests, NULL, NULL);
}
