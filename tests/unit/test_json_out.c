/* test_json_out.c: the writer of JSON, read back by cJSON, and its numbers by strtod.
 */
#include "comma_locale.h"
#include "json.h"
#include "memory.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void values_are_read_back(void **state)
{
    (void)state;
    static const char nasty[] =
        "\"\\/\b\f\n\r\t\x01\x1f\x7f \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80</script>";
    fx_json j = {.to = NULL};
    fx_json_open(&j, NULL, '{');
    fx_json_text(&j, "text", nasty);
    fx_json_text(&j, nasty, "key");
    fx_json_text(&j, "none", NULL);
    fx_json_number(&j, "nan", NAN);
    fx_json_rounded(&j, "inf", INFINITY, 6);
    fx_json_rounded(&j, "third", 1.0 / 3, 3);
    fx_json_integer(&j, "least", INT64_MIN);
    fx_json_open(&j, "list", '[');
    fx_json_flag(&j, NULL, true);
    fx_json_flag(&j, NULL, false);
    fx_json_open(&j, NULL, '[');
    fx_json_end(&j);
    assert_false(j.failed || j.not_utf8);
    assert_int_equal(j.n, strlen(j.text));
    assert_int_equal(j.text[j.n - 1], '\n');
    cJSON *read = cJSON_Parse(j.text);
    assert_non_null(read);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(read, "text")), nasty);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(read, nasty)), "key");
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(read, "none")));
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(read, "nan")));
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(read, "inf")));
    assert_true(cJSON_GetObjectItem(read, "third")->valuedouble == 0.333);
    assert_non_null(strstr(j.text, "\"least\":-9223372036854775808,"));
    const cJSON *list = cJSON_GetObjectItem(read, "list");
    assert_int_equal(cJSON_GetArraySize(list), 3);
    assert_true(cJSON_IsTrue(cJSON_GetArrayItem(list, 0)));
    assert_true(cJSON_IsFalse(cJSON_GetArrayItem(list, 1)));
    assert_true(cJSON_IsArray(cJSON_GetArrayItem(list, 2)));
    cJSON_Delete(read);
    fxi_free(j.text);
}

static void bytes_that_are_not_utf8_are_replaced(void **state)
{
    (void)state;
    static const char *const bad[] = {"\xff",     "a\xc3",        "\xe2\x82",
                                      "\xc0\x80", "\xed\xa0\x80", "x\xf5y"};
    static const int replaced[] = {1, 1, 2, 2, 3, 1};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fx_json j = {.to = NULL};
        fx_json_text(&j, NULL, bad[i]);
        assert_true(j.not_utf8);
        int found = 0;
        for (const char *at = j.text; (at = strstr(at, "\\ufffd")); at++)
            found++;
        assert_int_equal(found, replaced[i]);
        cJSON *read = cJSON_Parse(j.text);
        assert_true(cJSON_IsString(read));
        cJSON_Delete(read);
        fxi_free(j.text);
    }
}

/* A stream of doubles of all sizes: each reads back, under a locale with a comma too. */
static void numbers_read_back_in_every_locale(void **state)
{
    (void)state;
    int tried = 0;
    for (int k = 0; k < 2; k++) {
        char texts[1000][FX_SHORTEST_TEXT];
        double x[1000];
        uint64_t bits = 88172645463325252u;
        const bool there = k == 0 || set_comma_locale();
        for (int i = 0; i < 1000; i++) {
            bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
            memcpy(&x[i], &bits, sizeof bits);
            fx_shortest(x[i], texts[i]);
        }
        setlocale(LC_ALL, "C");
        for (int i = 0; i < 1000; i++) {
            assert_null(strchr(texts[i], ','));
            tried += isfinite(x[i]) && there;
            if (isfinite(x[i]))
                assert_true(strtod(texts[i], NULL) == x[i]);
        }
    }
    char text[FX_SHORTEST_TEXT];
    assert_true(tried >= 990);
    assert_string_equal(fx_shortest(0.1, text), "0.1");
    assert_string_equal(fx_shortest_f32(0.1f, text), "0.1");
    assert_string_equal(fx_shortest((double)0.1f, text), "0.10000000149011612");
    assert_string_equal(fx_shortest(-INFINITY, text), "-Inf");
    assert_string_equal(fx_shortest(NAN, text), "NaN");
}

/* Deeper than FX_JSON_DEPTH: nothing is written beyond the struct. */
static void depth_is_bounded(void **state)
{
    (void)state;
    fx_json j = {.to = NULL};
    for (int i = 0; i < 2 * FX_JSON_DEPTH; i++)
        fx_json_open(&j, NULL, '[');
    assert_int_equal(j.depth, FX_JSON_DEPTH);
    fx_json_end(&j);
    assert_int_equal(j.depth, 0);
    fx_json_close(&j);
    assert_int_equal(j.depth, 0);
    fxi_free(j.text);
}

static void a_file_gets_the_same(void **state)
{
    (void)state;
    char read[100] = "";
    FILE *to = tmpfile();
    assert_non_null(to);
    fx_json j = {.to = to};
    fx_json_open(&j, NULL, '{');
    fx_json_number(&j, "loss", 0.25);
    fx_json_text(&j, "a", "b");
    fx_json_end(&j);
    rewind(to);
    assert_non_null(fgets(read, sizeof read, to));
    assert_string_equal(read, "{\"loss\":0.25,\"a\":\"b\"}\n");
    fclose(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read_back),
        cmocka_unit_test(bytes_that_are_not_utf8_are_replaced),
        cmocka_unit_test(numbers_read_back_in_every_locale),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(a_file_gets_the_same),
    };
    return cmocka_run_group_tests_name("json_out", tests, NULL, NULL);
}
