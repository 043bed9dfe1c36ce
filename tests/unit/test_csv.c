/* test_csv.c: tables of numbers: values, headers, and errors with line and column. The shipped
 * digits are checked against the class counts their authors published (optdigits.names, test set).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comma_locale.h"
#include "each_allocation.h"
#include "memory.h"
#include "temp_file.h"

static void *read_csv(const char *path)
{
    return fx_read_csv(path);
}
static void *read_table(const char *path)
{
    return fx_read_table(path);
}
static void *read_idx(const char *path)
{
    return fx_read_idx(path);
}

static void check_table(const char *path, int64_t columns, int64_t rows, const float *expected)
{
    FX_SCOPE;
    fx_array *x = fx_read_csv(path);
    if (fx_is_error(x))
        fail_msg("%s", fx_error_take().message);
    assert_int_equal(fx_eltype(x), FX_DTYPE_F32);
    assert_int_equal(fx_ndims(x), 2);
    assert_int_equal(fx_size(x, 0), columns);
    assert_int_equal(fx_size(x, 1), rows);
    assert_memory_equal(fx_data(x), expected, (size_t)(columns * rows) * sizeof(float));
}

static void values(void **state)
{
    (void)state;
    static const float six[] = {1, 2.5f, -3, 1e-3f, 0.1f, 16777216};
    check_table(temp_text("a.csv", "1,2.5,-3\n1e-3,.1,16777216\n"), 3, 2, six);
    check_table(temp_text("b.csv", "1,2.5,-3\n1e-3,.1,16777216"), 3, 2, six);
    check_table(temp_text("c.csv", "1,2.5,-3\r\n1e-3,.1,16777216\r\n"), 3, 2, six);
    check_table(temp_text("d.csv", "\n 1 ,\t2.5, -3 \n\n1e-3,.1,16777216\n\n \n"), 3, 2, six);
    check_table(temp_text("e.csv", "\xEF\xBB\xBF"
                                   "1,2.5,-3\n1e-3,.1,16777216\n"),
                3, 2, six);
    check_table(temp_text("f.csv", "width,height\n# in metres\n1\n2.5\n-3\n"), 1, 3, six);
    check_table(temp_text("q.csv", "\"width\n1,2\",\"b\r\n1\"\n5\" disk\n1\n2.5\n-3\n"), 1, 3, six);
    /* Numbers in quotes are numbers, also in the first column. */
    check_table(
        temp_text("r.csv", "\"\",\"a\",\"b\"\r\n\"1\",2.5,-3\r\n \" 1e-3 \" ,.1,\"16777216\"\r\n"),
        3, 2, six);
    check_table(temp_text("s.csv", "\"1\" \"2.5\" -3\n1e-3 .1 \"16777216\"\n"), 3, 2, six);
    const char packed[] = "a,b,c\n1,2.5,-3\n1e-3,.1,16777216\n";
    check_table(temp_gzip("g.csv.gz", packed, sizeof packed - 1), 3, 2, six);
}

/* Longer than the window it is read through, lines crossing its border. */
static void long_lines(void **state)
{
    (void)state;
    enum { ROWS = 7, COLUMNS = 30000 };
    char *text = malloc((size_t)ROWS * COLUMNS * 8);
    float *expected = malloc((size_t)ROWS * COLUMNS * sizeof *expected);
    assert_non_null(text);
    assert_non_null(expected);
    size_t n = 0;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        expected[i] = (float)(i * 3);
        n += (size_t)sprintf(text + n, "%d%c", i * 3, i % COLUMNS == COLUMNS - 1 ? '\n' : ',');
    }
    check_table(temp_file("long.csv", text, n), COLUMNS, ROWS, expected);
    free(text);
    free(expected);
}

static void nan_and_inf(void **state)
{
    (void)state;
    FX_SCOPE;
    const float *x = fx_data(fx_read_csv(temp_text("n.csv", "1,nan\ninf,-Inf\n")));
    assert_non_null(x);
    assert_true(x[0] == 1 && isnan(x[1]) && isinf(x[2]) && x[2] > 0 && isinf(x[3]) && x[3] < 0);
}

static void decimal_point_in_any_locale(void **state)
{
    (void)state;
    set_comma_locale();
    check_table(temp_text("l.csv", "1.5,2.25\n"), 2, 1, (const float[]){1.5f, 2.25f});
    setlocale(LC_ALL, "C");
}

static void expect_refusal(const char *path, fx_status status, const char *text)
{
    FX_SCOPE;
    const int64_t live = fxi_live_allocations();
    fx_array *x = fx_read_csv(path);
    assert_true(fx_is_error(x));
    assert_int_equal(fx_array_status(x), status);
    const fx_error e = fx_error_take();
    if (!strstr(e.message, text) || (path && !strstr(e.message, path)))
        fail_msg("\"%s\" does not say \"%s\"", e.message, text);
    assert_int_equal(fxi_live_allocations(), live);
}

static void refuse(const char *table, const char *text)
{
    expect_refusal(temp_text("bad.csv", table), FX_STATUS_FORMAT, text);
}

static void refusals(void **state)
{
    (void)state;
    refuse("1,2\n3,x\n", "line 2, column 2: expected a number, found \"x\"");
    refuse("1,2\n3,\n", "line 2, column 2: expected a number, found nothing");
    refuse("a,b\n1,2\n\n,4\n", "line 4, column 1: expected a number, found nothing");
    refuse("1,2\n3\n", "line 2: expected 2 columns as above, found 1");
    refuse("1,2\n3,4,5\n", "line 2: expected 2 columns as above, found at least 3");
    refuse("1,2\nx,4\n", "line 2, column 1"); /* headers are at the top only */
    refuse("1,2 3\n1,4\n", "line 1, column 2: expected a number, found \"2 3\"");
    refuse("1,1e99\n", "column 2: expected a number that fits Float32");
    refuse("1,2.5mm\n", "found \"2.5mm\"");
    refuse("\"a\",b\n1,\"\"\n", "line 2, column 2: expected a number, found nothing");
    refuse("1,2\n3,\"1,5\"\n", "line 2, column 2: expected a number, found \"\"1\"");
    refuse("1,2\n\"x\",3\n", "line 2, column 1: expected a number, found \"x\"");
    refuse("a,b\r1,2\r3,4\r", "line 1: found a carriage return inside of the line");
    refuse("a,b\n1,2\n3\r,4\n", "line 3: found a carriage return inside of the line");
    refuse("", "found none");
    refuse("only,names\n", "found none");
    refuse("\"a\n1\",b\n1,\"2\n", "line 3: expected a closing quote, found the end of the file");
    refuse("1,\"2\n3\n4", "line 1: expected a closing quote, found the end of the file");
    refuse("\"a\n1\",b\n1,x\n", "line 3, column 2: expected a number, found \"x\"");
    refuse(
        "1;2\n3;4;5\n",
        "in 2 lines; the first line has ';' and no ',': call fx_read_table with .separator = ';'");
    refuse("a\tb\n1,5\t2\t3\n", "found \"5\t2\t3\"; the first line has tabs");
    refuse("a\tb\n1,5\t2\n", ".decimal = ',' or .separator = ','");
    expect_refusal(temp_file("zero.csv", "1,2\0\n", 5), FX_STATUS_FORMAT, "line 1, column 2");
    /* "1\t2\r\n" and "a,b\n" in both byte orders of UTF-16, which Excel writes */
    expect_refusal(temp_file("16.txt",
                             "\xFF\xFE"
                             "1\0\t\0"
                             "2\0\r\0\n\0",
                             12),
                   FX_STATUS_FORMAT, "16.txt: the text is UTF-16, expected UTF-8");
    expect_refusal(temp_file("16.csv", "\xFE\xFF\0a\0,\0b\0\n", 10), FX_STATUS_FORMAT,
                   "16.csv: the text is UTF-16, expected UTF-8");
    expect_refusal("/nonexistent/x.csv", FX_STATUS_IO, "/nonexistent/x.csv");
    expect_refusal(NULL, FX_STATUS_ARGUMENT, "NULL");
}

/* A remark above the table does not change the errors of the table. */
static void remarks(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_true(fx_is_error(fx_read_csv(temp_text("r.csv", "# units: m; s\n1,2\n3,x\n"))));
    const fx_error e = fx_error_take();
    assert_non_null(strstr(e.message, "line 3, column 2: expected a number, found \"x\""));
    assert_null(strstr(e.message, "separator"));
}

static void broken_gzip(void **state)
{
    (void)state;
    char text[4001], packed[8000];
    for (int i = 0; i < 1000; i++)
        snprintf(text + 4 * i, 5, "%03d\n", i * i / 4 % 1000);
    FILE *f = fopen(temp_gzip("w.gz", text, 4000), "rb");
    assert_non_null(f);
    const size_t n = fread(packed, 1, sizeof packed, f);
    fclose(f);
    expect_refusal(temp_file("cut.gz", packed, n / 2), FX_STATUS_FORMAT, "line ");
    expect_refusal(temp_file("cut.gz", packed, n - 1), FX_STATUS_FORMAT, "gzip");
}

/* A small file that decompresses to more than the limit is refused when the limit is reached. */
static void bombs(void **state)
{
    (void)state;
    enum { LINES = 2 << 20, LIMIT = 1 << 20 };
    char *text = malloc(2 * LINES);
    assert_non_null(text);
    for (int i = 0; i < LINES; i++)
        memcpy(text + 2 * i, "1\n", 2);
    const char *rows = temp_gzip("rows.csv.gz", text, 2 * LINES);
    for (int i = 0; i < LINES; i++)
        memcpy(text + 2 * i, "1,", 2);
    text[2 * LINES - 1] = '\n';
    const char *line = temp_gzip("line.csv.gz", text, 2 * LINES);
    memset(text, 0, 2 * LINES);
    memcpy(text, "\0\0\x08\x01\0\x3F\0\0", 8); /* 0x3F0000 bytes */
    const char *idx = temp_gzip("zeros.idx.gz", text, 8 + 0x3F0000);
    free(text);
    void *(*const readers[])(const char *) = {read_csv, read_table, read_csv, read_table, read_idx};
    const char *const paths[] = {rows, rows, line, line, idx};
    for (int i = 0; i < 5; i++) {
        FX_SCOPE;
        if (fx_is_error(readers[i](paths[i]))) /* without a limit */
            fail_msg("%d: %s", i, fx_error_take().message);
    }
    fx_set_memory_limit(fx_cpu_device(), LIMIT);
    for (int i = 0; i < 5; i++) {
        FX_SCOPE;
        assert_true(fx_is_error(readers[i](paths[i])));
        const fx_error e = fx_error_take();
        assert_int_equal(e.status, FX_STATUS_MEMORY);
        if (!strstr(e.message, paths[i]) || !strstr(e.message, "of at most 1048576"))
            fail_msg("%s", e.message);
    }
    fx_set_memory_limit(fx_cpu_device(), 0);
}

static void each_allocation_fails(void **state)
{
    (void)state;
    each_allocation_of(read_csv, temp_text("small.csv", "a,b\n1,2\n3,4\n"), 5);
}

static void digits(void **state)
{
    (void)state;
    static const int counts[10] = {178, 182, 177, 183, 181, 182, 181, 179, 174, 180};
    FX_SCOPE;
    fx_array *table = fx_read_csv(CFLUX_SOURCE_DATA_DIR "/digits.csv.gz");
    assert_false(fx_is_error(table));
    assert_int_equal(fx_size(table, 0), 65);
    assert_int_equal(fx_size(table, 1), 1797);
    const float *x = fx_data(table);
    int found[10] = {0};
    for (int i = 0; i < 1797; i++, x += 65) {
        for (int k = 0; k < 64; k++)
            assert_true(x[k] >= 0 && x[k] <= 16 && x[k] == floorf(x[k]));
        assert_in_range((int)x[64], 0, 9);
        found[(int)x[64]]++;
    }
    for (int i = 0; i < 10; i++)
        assert_int_equal(found[i], counts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),      cmocka_unit_test(long_lines),
        cmocka_unit_test(nan_and_inf), cmocka_unit_test(decimal_point_in_any_locale),
        cmocka_unit_test(refusals),    cmocka_unit_test(remarks),
        cmocka_unit_test(broken_gzip), cmocka_unit_test(each_allocation_fails),
        cmocka_unit_test(digits),      cmocka_unit_test(bombs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
