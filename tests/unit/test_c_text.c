/* test_c_text.c: functions for text that have different names on different systems. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <string.h>

#include "comma_locale.h"
#include "c_text.h"

static void read_some_numbers(void)
{
    char *end;
    const char text[] = "1.5,";
    assert_true(fxi_strtod(text, &end) == 1.5 && end == text + 3);
    assert_true(fxi_strtof(text, &end) == 1.5f && end == text + 3);
    assert_true(fxi_strtod("0.1", NULL) == 0.1);
    assert_true(fxi_strtof("16777217", NULL) == 16777216.0f); /* the nearest one */
    assert_true(fxi_strtod("nothing", &end) == 0 && *end == 'n');
    assert_true(fxi_strtod("1,5", &end) == 1 && *end == ',');
    const char many[] = " 0.1000000000000000055511151231257827021181583404541015625000000e+0,2";
    assert_true(fxi_strtod(many, &end) == 0.1 && end == many + sizeof many - 3);
    errno = 0;
    assert_true(isinf(fxi_strtod("1e999", NULL)));
    assert_int_equal(errno, ERANGE);
}

/* A locale with a decimal comma, where one is installed. */
static void numbers_are_read_in_the_c_locale(void **state)
{
    (void)state;
    read_some_numbers();
    set_comma_locale();
    read_some_numbers();
    setlocale(LC_ALL, "C");
}

static void small_and_capital_letters_are_the_same(void **state)
{
    (void)state;
    assert_true(fxi_same_ignoring_case("OpenCL", "opencl") && fxi_same_ignoring_case("", ""));
    assert_false(fxi_same_ignoring_case("opencl", "opencl2") || fxi_same_ignoring_case("a", "b"));
    assert_true(fxi_same_start_ignoring_case("check:cpu", "CHECK:", 6));
    assert_false(fxi_same_start_ignoring_case("chec", "CHECK:", 6));
    assert_true(fxi_contains_ignoring_case("NVIDIA GeForce", "geforce"));
    assert_false(fxi_contains_ignoring_case("NVIDIA GeForce", "radeon"));
}

static void words_are_cut_off(void **state)
{
    (void)state;
    char text[] = "Flux.Losses..Dense", *rest = text;
    assert_string_equal(fxi_cut_word(".", &rest), "Flux");
    assert_string_equal(fxi_cut_word(".", &rest), "Losses");
    assert_string_equal(fxi_cut_word(".", &rest), "Dense");
    assert_null(fxi_cut_word(".", &rest));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_in_the_c_locale),
        cmocka_unit_test(small_and_capital_letters_are_the_same),
        cmocka_unit_test(words_are_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
