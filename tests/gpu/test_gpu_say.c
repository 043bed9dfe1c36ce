/* test_gpu_say.c: texts with placeholders (gpu_say.c): their values, placeholders on lines of their
 * own, and the errors if a text and its C code do not match. */
#include "gpu_host.h"
#include "gpu_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static fx_step step = {.op = FX_OP_ADD};
static fxi_gpu_builder b;

static int begin(void **unused)
{
    (void)unused;
    b = (fxi_gpu_builder){.runtime = &gpu_host_runtime, .device = &gpu_host_device, .step = &step};
    gpu_host_error[0] = '\0';
    return 0;
}

static int end(void **unused)
{
    (void)unused;
    free(b.text);
    return 0;
}

static void test_values(void **unused)
{
    (void)unused;
    fxi_gpu_set(&b, "type", "fx_f32");
    fxi_gpu_set_number(&b, "n", -3);
    fxi_gpu_set(&b, "none", "");
    fxi_gpu_say_part(&b, "@type@ x@n@ = @n@;@none@\n");
    fxi_gpu_set(&b, "type", "fx_i64"); /* replaces the value above */
    fxi_gpu_set_number(&b, "none", 0); /* a number replaces a string */
    fxi_gpu_say_part(&b, "@type@@none@\n");
    assert_int_equal(b.status, FX_OK);
    assert_string_equal(b.text, "fx_f32 x-3 = -3;\nfx_i640\n");
    assert_int_equal(b.length, strlen(b.text));
}

/* A placeholder on a line of its own is replaced with its line; any other leaves the rest of the
 * line. */
static void test_lines(void **unused)
{
    static const char text[] = "first\n    @lines@\nx = @sum@;\n@last@\n";
    (void)unused;
    for (int lines = 0; lines <= 2; lines++) {
        b.length = 0;
        const char *rest = fxi_gpu_say_until(&b, text, "lines");
        for (int k = 0; k < lines; k++)
            fxi_gpu_say(&b, "line %d\n", k);
        rest = fxi_gpu_say_until(&b, rest, "sum");
        fxi_gpu_say(&b, "1 + 2");
        rest = fxi_gpu_say_until(&b, rest, "last");
        fxi_gpu_say_part(&b, rest);
        assert_string_equal(b.text, lines == 0   ? "first\nx = 1 + 2;\n"
                                    : lines == 1 ? "first\nline 0\nx = 1 + 2;\n"
                                                 : "first\nline 0\nline 1\nx = 1 + 2;\n");
    }
}

/* Blanks before a placeholder are kept, unless fxi_gpu_say_until finds it alone on its line. A line
 * with another placeholder before it is not such a line. */
static void test_blanks(void **unused)
{
    (void)unused;
    fxi_gpu_set(&b, "x", "x");
    fxi_gpu_say_part(&b, "    @x@\n");
    const char *rest = fxi_gpu_say_until(&b, "@x@  @more@\n", "more");
    fxi_gpu_say(&b, "y");
    fxi_gpu_say_part(&b, rest);
    assert_string_equal(b.text, "    x\nx  y\n");
}

static void expect(const char *sentence)
{
    assert_int_equal(b.status, FX_STATUS_INTERNAL);
    assert_non_null(strstr(gpu_host_error, sentence));
    const size_t length = b.length;
    fxi_gpu_say_part(&b, "more"); /* does nothing after a failure */
    assert_int_equal(b.length, length);
}

static void test_no_value(void **unused)
{
    (void)unused;
    fxi_gpu_set(&b, "type", "fx_f32");
    fxi_gpu_say_part(&b, "@type@ @typ@ @types@\n");
    expect("a placeholder without a value: typ");
}

static void test_no_placeholder(void **unused)
{
    (void)unused;
    fxi_gpu_set(&b, "walker", "");
    assert_string_equal(fxi_gpu_say_until(&b, "@walker@\n", "walk"), "");
    expect("no placeholder walk");
}

static void test_not_closed(void **unused)
{
    (void)unused;
    fxi_gpu_set(&b, "x", "");
    fxi_gpu_say_part(&b, "@x@ a@b\n");
    expect("a placeholder without a value: b");
}

static void test_too_many(void **unused)
{
    static char names[FXI_GPU_VALUES + 1][16];
    (void)unused;
    for (int k = 0; k <= FXI_GPU_VALUES; k++) {
        assert_int_equal(b.status, FX_OK);
        snprintf(names[k], sizeof names[k], "n%d", k);
        fxi_gpu_set_number(&b, names[k], k);
    }
    snprintf(names[0], sizeof names[0], "more than %d", FXI_GPU_VALUES);
    expect(names[0]);
    expect(" placeholders");
}

/* fxi_gpu_begin forgets all values. */
static void test_begin(void **unused)
{
    static const fxi_gpu_limits limits = {FXI_GPU_USUAL_LIMITS, .units = 1};
    (void)unused;
    b.limits = &limits;
    fxi_gpu_set(&b, "type", "fx_f32");
    fxi_gpu_begin(&b, false);
    assert_int_equal(b.status, FX_OK);
    assert_non_null(strstr(b.text, fxi_gpu_text_host));
    assert_non_null(strstr(b.text, fxi_gpu_text_arithmetic));
    fxi_gpu_say_part(&b, "@each@");
    assert_string_equal(b.text + b.length - 1, "4");
    fxi_gpu_say_part(&b, "@type@");
    expect("a placeholder without a value: type");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_values),         TEST(test_lines),      TEST(test_blanks),   TEST(test_no_value),
        TEST(test_no_placeholder), TEST(test_not_closed), TEST(test_too_many), TEST(test_begin)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
