/* test_table.c: tables with names and texts: values, labels, quotes, separators, and errors with
 * line and column. Expected values are written by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <string.h>

#include "each_allocation.h"
#include "memory.h"
#include "temp_file.h"

/* "name: label=rows label=rows; …" of the columns, for comparison with a text. */
static void describe(void *columns, char *out, size_t capacity)
{
    size_t n = 0;
    for (int64_t i = 0; i < fx_count(columns); i++) {
        void *labels = fx_child(columns, i);
        n += (size_t)snprintf(out + n, capacity - n, "%s%s:", i ? "; " : "",
                              fx_child_name(columns, i));
        for (int64_t k = 0; k < fx_count(labels); k++)
            n += (size_t)snprintf(out + n, capacity - n, " %s=%g", fx_child_name(labels, k),
                                  fx_item(fx_child(labels, k)));
    }
}

static void check_result(void *table, int64_t rows, const float *expected, const char *columns)
{
    char found[400] = "";
    if (fx_is_error(table))
        fail_msg("%s", fx_error_take().message);
    fx_array *values = fx_child_named(table, "values");
    describe(fx_child_named(table, "columns"), found, sizeof found);
    assert_string_equal(found, columns);
    assert_int_equal(fx_size(values, 1), rows);
    assert_memory_equal(fx_data(values), expected, (size_t)fx_length(values) * sizeof(float));
}

static void check(const char *text, int64_t rows, const float *expected, const char *columns)
{
    FX_SCOPE;
    check_result(fx_read_table(temp_text("t.csv", text)), rows, expected, columns);
    const char *packed = temp_gzip("t.csv.gz", text, strlen(text));
    check_result(fx_read_table(packed), rows, expected, columns);
}

static void names_and_numbers(void **state)
{
    (void)state;
    static const float four[] = {1, 2, 3, 4.5f};
    check("a,b\n1,2\n3,4.5\n", 2, four, "a:; b:");
    check("1,2\n3,4.5\n", 2, four, "1:; 2:");
    check(" a b , c\t\r\n\n 1 , 2\r\n3,4.5", 2, four, "a b:; c:");
    check("a,a\n1,2\n3,4.5\n", 2, four, "a:; #2:");
    check(",b\n1,2\n3,4.5\n", 2, four, "#1:; b:");
    check("b,b\n1,2\n3,4.5\n", 2, four, "b:; #2:");
    check("#2,\n1,2\n3,4.5\n", 2, four, "#2:; #2.1:");
    check("#2,#1\n1,2\n3,4.5\n", 2, four, "#2:; #1:");
    check(",#1,#1.1,,a,#4,a\n1,2,3,4,5,6,7\n", 1, (const float[]){1, 2, 3, 4, 5, 6, 7},
          "#1.2:; #1:; #1.1:; #4.1:; a:; #4:; #7:");
    check("\xEF\xBB\xBF\"a\",\"b\"\n\"1\",2\n\"3\",\"4.5\"\n", 2, four, "a:; b:");
}

/* Names that are numbers make a header when the others stand above numbers. */
static void headers_with_numbers(void **state)
{
    (void)state;
    static const float six[] = {1, 2, 3, 4, 5, 6};
    check("0,1,target\n1,2,3\n4,5,6\n", 2, six, "0:; 1:; target:");
    check("\"0\", \"1\",\"t\"\r\n\r\n1,2,\"3\"\r\n4,5,6", 2, six, "0:; 1:; t:");
    static const float labels[] = {1, 2, 0, 4, 5, 0, 7, 8, 1};
    check("1,2,ant\n4,5,ant\n7,8,bee\n", 3, labels, "1:; 2:; 3: ant=2 bee=1");
    static const float mixed[] = {1, 1, 0, 4, 0, 0};
    check("1,x,ant\n4,2,ant\n", 2, mixed, "1:; 2: 2=1 x=1; 3: ant=2");
    static const float missing[] = {1, 1, 4, 0};
    check("1,NA\n4,5\n", 2, missing, "1:; 2: 5=1 NA=1");
    static const float one[] = {1, 0};
    check("1,x\n", 1, one, "1:; 2: x=1");
}

static void check_missing(const char *text, int64_t rows, const float *expected,
                          const char *columns)
{
    FX_SCOPE;
    check_result(fx_read_table(temp_text("m.csv", text), .missing = true), rows, expected, columns);
}

/* The first field that is not missing decides whether a column holds texts. */
static void missing_values(void **state)
{
    (void)state;
    static const float two[] = {1, NAN, NAN, 4.5f};
    check_missing("a,b\n1,NA\n,4.5\n", 2, two, "a:; b:");
    check_missing("1,?\n-,4.5\n", 2, two, "1:; 2:");
    check_missing("a,b\n1,\"\"\nNone,4.5\n", 2, two, "a:; b:");
    check_missing("a,b\n1,nan\n#N/A,4.5\n", 2, two, "a:; b:");
    static const float texts[] = {NAN, 1, 1, NAN, NAN, 3, 0, 4};
    check_missing("kind,n\nNA,1\nred,null\n,3\nblue,4\n", 4, texts, "kind: blue=1 red=1; n:");
    static const float below[] = {NAN, 5, 3, 1, 6, 4};
    check_missing("a,2020,y\nNA,5,3\n1,6,4\n", 2, below, "a:; 2020:; y:");
    static const float lone[] = {0, 1, NAN, 2};
    check_missing("red,1\nNA,2\n", 2, lone, "1: red=1; 2:");
    static const float named[] = {1, 5, 0, 6, 0, 7};
    check_result(fx_read_table(temp_text("i.csv", "id,n\n007,5\n0,6\n0,7\n"), .text = "id"), 3,
                 named, "id: 0=2 007=1; n:");
    check_result(fx_read_table(temp_text("i.csv", "007,5\n0,6\n0,7\n"), .text = "1"), 3, named,
                 "1: 0=2 007=1; 2:");
    static const char *const absent[] = {"ID", "3", "0", "1x", ""};
    for (int i = 0; i < 5; i++) {
        char expected[100];
        snprintf(expected, sizeof expected,
                 "has no column \"%s\" (.text); it has 2, from \"id\" to "
                 "\"n\"",
                 absent[i]);
        assert_true(
            fx_is_error(fx_read_table(temp_text("i.csv", "id,n\n007,5\n"), .text = absent[i])));
        const fx_error e = fx_error_take();
        assert_int_equal(e.status, FX_STATUS_ARGUMENT);
        assert_non_null(strstr(e.message, expected));
    }
    static const float country[] = {1, 5, 0, NAN, NAN, 7};
    check_result(
        fx_read_table(temp_text("i.csv", "id,n\nNA,5\n-,NA\n,7\n"), .text = "id", .missing = true),
        3, country, "id: -=1 NA=1; n:");
    static const float none[] = {NAN, 1, NAN, 2};
    check_missing("a,b\nN/A,1\nNULL,2\n", 2, none, "a:; b:");
    FX_SCOPE;
    void *table = fx_read_table(temp_text("w.csv", "day\n20230001\nNA\n1\n"), .missing = true);
    const double *wide = fx_data(fx_child_named(fx_child_named(table, "wide"), "day"));
    assert_true(wide && wide[0] == 20230001 && isnan(wide[1]) && wide[2] == 1);
    assert_true(
        fx_is_error(fx_read_table(temp_text("t.csv", "a,b\nNA,1\n3,2\nred,3\n"), .missing = true)));
    const fx_error e = fx_error_take();
    assert_non_null(strstr(e.message, "line 4, column 1: expected a number, found \"red\""));
    assert_true(fx_is_error(fx_read_table(temp_text("t.csv", "a,b\n1,1\nNA,2\n"))));
    assert_non_null(strstr(fx_error_take().message, "line 3, column 1: expected a number (for "
                                                    "missing values: .missing = true), found"));
}

static void check_wide(const char *text, int64_t n, const double *expected, double line)
{
    FX_SCOPE;
    void *table = fx_read_table(temp_text("w.csv", text));
    assert_false(fx_is_error(table));
    assert_true(fx_item(fx_child_named(table, "line")) == line);
    void *wide = fx_child_named(table, "wide");
    assert_int_equal(fx_count(wide), n ? 1 : 0);
    fx_array *values = n ? fx_child_named(wide, "day") : NULL;
    if (!n)
        return;
    assert_int_equal(fx_eltype(values), FX_DTYPE_F64);
    assert_int_equal(fx_length(values), n);
    assert_memory_equal(fx_data(values), expected, (size_t)n * sizeof *expected);
}

/* Float32 makes 20230000 and 20230004 of the first two. */
static void numbers_that_float32_rounds(void **state)
{
    (void)state;
    static const double days[] = {1, 20230001, -20230003, (double)0.1f, 9007199254740991};
    check_wide("a,day\n1,1\n1,20230001\n1,-20230003\n2,0.1\n3,9007199254740991\n", 5, days, 2);
    check_wide("\n\na,day\n\n1,1\n1,nan\n1,16777216\n2,0.1\n3,inf\n", 0, NULL, 5);
    char text[8000] = "day\n20230001\n";
    double many[401] = {20230001};
    for (int i = 1; i < 401; i++) {
        many[i] = 20230001 + 2 * i;
        snprintf(text + strlen(text), 20, "%.0f\n", many[i]);
    }
    check_wide(text, 401, many, 2);
}

static void texts(void **state)
{
    (void)state;
    static const float labels[] = {1, 2, 2, 0, 3, 2, 4, 1};
    check("x,kind\n1,wolf\n2,ant\n3,wolf\n4,bee\n", 4, labels, "x:; kind: ant=1 bee=1 wolf=2");
    check("1,wolf\n2,ant\n3,wolf\n4,bee\n", 4, labels, "1:; 2: ant=1 bee=1 wolf=2");
    static const float quoted[] = {1, 0, 2, 1, 3, 2};
    check("x,kind\n1,\"a, b\"\n2, \"say \"\"yes\"\"\" \n3,z\n", 3, quoted,
          "x:; kind: a, b=1 say \"yes\"=1 z=1");
    static const float prefixes[] = {0, 1, 2, 1};
    check("k\nab\nabc\nb\nabc\n", 4, prefixes, "k: ab=1 abc=2 b=1");
}

/* Every text occurs twice, not in alphabetical order. */
static void many_texts(void **state)
{
    (void)state;
    enum { TEXTS = 5000, ROWS = 2 * TEXTS };
    static char text[8 * ROWS + 8] = "k\n";
    size_t at = 2;
    for (int i = 0; i < ROWS; i++)
        at += (size_t)sprintf(text + at, "n%04d\n", i * 7919 % TEXTS);
    FX_SCOPE;
    void *table = fx_read_table(temp_text("many.csv", text));
    assert_false(fx_is_error(table));
    void *labels = fx_child(fx_child_named(table, "columns"), 0);
    assert_int_equal(fx_count(labels), TEXTS);
    for (int i = 0; i < TEXTS; i++) {
        sprintf(text, "n%04d", i);
        assert_string_equal(fx_child_name(labels, i), text);
        assert_true(fx_item(fx_child(labels, i)) == 2);
    }
    const float *codes = fx_data(fx_child_named(table, "values"));
    for (int i = 0; i < ROWS; i++)
        assert_true(codes[i] == (float)(i * 7919 % TEXTS));
}

/* RFC 4180: a quoted field may continue on the next line, and lines are still counted. */
static void line_breaks_in_quotes(void **state)
{
    (void)state;
    static const float two[] = {1, 0, 2, 1};
    check("x,\"kind\n(as seen)\"\n1,\"ant\nor bee\"\n2,\"cow\r\n\r\n\"\r\n", 2, two,
          "x:; kind\n(as seen): ant\nor bee=1 cow\r\n\r\n=1");
    check("x,k\n1,\"a\"\"\n\"\"b,\"\n2 , \"\nc\" ", 2, (const float[]){1, 1, 2, 0},
          "x:; k: \nc=1 a\"\n\"b,=1");
    check("\"a\n1\",2\n\"b\nc\",3\n", 2, (const float[]){0, 2, 1, 3}, "1: a\n1=1 b\nc=1; 2:");
    check("x,k\n1,\"\n5\"\n2,3\n", 2, (const float[]){1, 0, 2, 1}, "x:; k: \n5=1 3=1");
    static const float inches[] = {0, 1, 1, 2};
    check("size,n\n5\" disk,1\n8\" disk,2\n", 2, inches, "size: 5\" disk=1 8\" disk=1; n:");
    FX_SCOPE;
    check_result(fx_read_table(temp_text("b.txt", " \"a\nb\"\t1 \n\"c d\"  2"), .separator = ' '),
                 2, (const float[]){0, 1, 1, 2}, "1: a\nb=1 c d=1; 2:");
    check_result(fx_read_table(temp_text("t.tsv", "\t\"b\n\"\n1\t2\n"), .separator = '\t'), 1,
                 (const float[]){1, 2}, "#1:; b\n:");
    check_wide("a,day\n\"1\n\",20230001\n2,20230001\n", 2, (const double[]){20230001, 20230001}, 2);
    check_wide("\"a\n\n\",day\n1,20230001\n", 1, (const double[]){20230001}, 4);
    char text[200100] = "x,y\n1,\"";
    for (int i = 0; i < 200000; i++)
        text[7 + i] = i % 3 ? 'x' : '\n';
    strcpy(text + 200007, "\"\n2,a\n3,\n");
    assert_true(fx_is_error(fx_read_table(temp_text("long.csv", text))));
    assert_non_null(strstr(fx_error_take().message, "line 66671, column 2: expected a text"));
}

static void separators(void **state)
{
    (void)state;
    static const float six[] = {1, 2, 3, 4, 5, 6};
    FX_SCOPE;
    check_result(fx_read_table(temp_text("s.csv", "a;b;c\n1;2;3\n4; 5;6\n"), .separator = ';'), 2,
                 six, "a:; b:; c:");
    check_result(
        fx_read_table(temp_text("t.tsv", "a\tb\tc\n1\t2\t3\n4\t5\t6\n"), .separator = '\t'), 2, six,
        "a:; b:; c:");
    check_result(
        fx_read_table(temp_text("t.tsv", "a\tb\t\n1\t2\t3 \n \r\n4\t5\t6\n"), .separator = '\t'), 2,
        six, "a:; b:; #3:");
    assert_true(
        fx_is_error(fx_read_table(temp_text("t.tsv", "a\tb\n1\t2\n\t\n"), .separator = '\t')));
    assert_non_null(strstr(fx_error_take().message, "line 3, column 1: expected a number"));
    check_result(fx_read_table(temp_text("b.txt", "  1 2   3\n4\t5  6 \n"), .separator = ' '), 2,
                 six, "1:; 2:; 3:");
    check_result(fx_read_table(temp_text("k.csv", "150,4,x\nnote\n1,2,3\n4,5,6\n"), .skip = 2), 2,
                 six, "1:; 2:; 3:");
}

/* The numbers of the lines of the rows: an empty tuple if they are consecutive. */
static void lines_of_rows(void **state)
{
    (void)state;
    FX_SCOPE;
    void *table = fx_read_table(temp_text("l.csv", "\na,b\n1,2\n3,4\n"));
    assert_true(fx_item(fx_child_named(table, "line")) == 3);
    assert_false(fx_is_array(fx_child_named(table, "lines")));
    table = fx_read_table(temp_text("l.csv", "a,b\n1,\"x\ny\"\n\n3,z\n4,z\n"));
    fx_array *lines = fx_child_named(table, "lines");
    static const int64_t want[] = {2, 5, 6};
    assert_int_equal(fx_length(lines), 3);
    assert_memory_equal(fx_data(lines), want, sizeof want);
    static char text[100000];
    size_t n = (size_t)sprintf(text, "1\n\n");
    for (int i = 0; i < 20000; i++)
        n += (size_t)sprintf(text + n, "%d\n", i % 10);
    lines = fx_child_named(fx_read_table(temp_text("l.csv", text)), "lines");
    assert_int_equal(fx_length(lines), 20001);
    assert_true(fx_at(lines, 0) == 1 && fx_at(lines, 1) == 3 && fx_at(lines, 20000) == 20002);
}

static void refuse(const char *text, const char *expected)
{
    FX_SCOPE;
    const int64_t live = fxi_live_allocations();
    void *table = fx_read_table(temp_text("bad.csv", text));
    assert_true(fx_is_error(table));
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_FORMAT);
    if (!strstr(e.message, expected) || !strstr(e.message, "bad.csv"))
        fail_msg("\"%s\" does not say \"%s\"", e.message, expected);
    assert_int_equal(fxi_live_allocations(), live);
}

static void refusals(void **state)
{
    (void)state;
    refuse("\xFF\xFE"
           "a\tb\n1\t2\n",
           "the text is UTF-16, expected UTF-8");
    refuse("a,b\n1,2\n3,x\n", "line 3, column 2: expected a number, found \"x\"");
    refuse("a,b\n1,2\n3,\n",
           "line 3, column 2: expected a number (for missing values: .missing = true), found "
           "nothing");
    refuse(
        "a,b\n1,x\n3,\n",
        "line 3, column 2: expected a text (for missing values: .missing = true), found nothing");
    refuse("a,b\r1,x\r3,y\r", "line 1: found a carriage return inside of the line");
    refuse("a,b\n\"1\r\n2\",\"\r\"\n3,\"x\"\ry\n",
           "line 4: found a carriage return inside of the line");
    refuse("a,b\n1,2\n3\n", "line 3: expected 2 columns as above, found 1");
    refuse("1,x\n1\n", "line 2: expected 2 columns as above, found 1");
    refuse("0,1,y\n1,2,3\n1,2,x\n", "line 3, column 3: expected a number, found \"x\"");
    refuse("a,b\n1,\n2,3\n",
           "line 2, column 2: expected a number or a text (for missing values: .missing = "
           "true), found nothing");
    refuse("a,b\n1,caf\xE9\n", "line 2, column 2: the text is not UTF-8");
    refuse("a,caf\xE9\n1,2\n", "line 1, column 2: the text is not UTF-8");
    refuse("1,2\n1,caf\xE9\n", "line 2, column 2: expected a number");
    refuse("a,b\n1,2,3\n", "line 2: expected 2 columns as above, found 3; to begin the table here, "
                           "call fx_read_table with .skip = 1; texts that contain ',' need quotes");
    refuse("a,b\n1,x\n1,x\n1,x, y\n",
           "line 4: expected 2 columns as above, found 3; texts that contain ',' need quotes");
    refuse("a,b\n1,\"x\n", "line 2: expected a closing quote, found the end of the file");
    refuse("a,b\n\"1\n\",\"x\n,y\n\n", "line 3: expected a closing quote");
    refuse("a,\"b\"\"\n1,2\n", "line 1: expected a closing quote");
    refuse(
        "a,b\n1,\"x\n2,\"y\"\n",
        "line 3, column 2: expected a separator after the quotes that open in line 2, found \"y");
    refuse("a,b\n\"1\n\",x\n2,caf\xE9\n", "line 4, column 2: the text is not UTF-8");
    refuse("a,b,c\n0,k,0\n1,\"\n2\n\",x\n", "line 5, column 3: expected a number, found \"x\"");
    refuse("a,b\n1,2\n1,\"2\nx\"\n", "line 3, column 2: expected a number, found \"2\"");
    refuse("a,b\n1,2\n1,\"\nx\"\n", "line 3, column 2: expected a number, found a line break");
    refuse("a,b\n\"\n1\",2\n3\n", "line 4: expected 2 columns as above, found 1");
    refuse("a,b\n1,\"x\"y\n", "line 2, column 2: expected a separator after a quote, found \"y\"");
    refuse("a,b\n1,1e99\n", "line 2, column 2: expected a number that fits Float32");
    refuse("a,b\n", "expected rows, found none in 1 line");
    refuse("", "expected rows, found none in 0 lines");
    assert_true(fx_is_error(fx_read_table("/nonexistent/x.csv")));
    assert_int_equal(fx_error_take().status, FX_STATUS_IO);
    assert_true(fx_is_error(fx_read_table(temp_text("s.csv", "1,2\n"), .separator = '1')));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
}

/* A file that is read with commas, and whose first line has none. */
static void hints(void **state)
{
    (void)state;
    refuse("made 2024-01-02\na,b,y\n1,2,3\n",
           "line 2: expected 1 columns as above, found 3; to begin the "
           "table here, call fx_read_table with .skip = 1");
    refuse("2024\n\na,b,y\n1,2,3\n",
           "line 3: expected 1 columns as above, found 3; to begin the table "
           "here, call fx_read_table with .skip = 2");
    refuse("a;b\n1,5;2,5;3\n",
           "found 3; the first line has ';' and no ',': call fx_read_table with .separator = ';'");
    refuse("\na\tb\n1\t2\t3,4\n",
           "has tabs and no ',': call fx_read_table with .separator = '\\t'");
    FX_SCOPE;
    assert_true(fx_is_error(fx_read_table(temp_text("s.csv", "a;b\n1;2;3\n"), .separator = ';')));
    assert_null(strstr(fx_error_take().message, "separator"));
    assert_true(fx_is_error(fx_read_table(temp_text("s.csv", "a;b,c\n1\n"))));
    assert_null(strstr(fx_error_take().message, "separator"));
}

/* Without .separator: the same tables with every separator. */
static void found_separators(void **state)
{
    (void)state;
    static const float six[] = {1, 2, 3, 4, 5, 6};
    static const struct {
        const char *text, *columns;
    } tables[] = {
        {"a,b,c\n1,2,3\n4,5,6\n", "a:; b:; c:"},
        {"a;b;c\n1;2;3\n4;5;6\n", "a:; b:; c:"},
        {"1;2;3\r\n4;5;6\r\n", "1:; 2:; 3:"},
        {"a|b|c\n1|2|3\n4|5|6", "a:; b:; c:"},
        {"a b\tc,d\te\n1\t2\t3\n4\t5\t6\n", "a b:; c,d:; e:"},
        {"a b c\n1 2 3\n4 5 6\n", "a:; b:; c:"},
        {"  1   2.0  3\n 4\t5 \t6  \n\n", "1:; 2:; 3:"},
        {"  1 2 3\n\n4 5 6", "1:; 2:; 3:"},
        {"\"a, b; c\" \"x y\" z\n1 2 3\n4 5 6\n", "a, b; c:; x y:; z:"},
        {"\"a\nb\";c;d\n1;2;3\n4;5;6\n", "a\nb:; c:; d:"},
        {"a;b,c;d,e\n1,2,3\n4,5,6\n", "a;b:; c;d:; e:"},
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        FX_SCOPE;
        check_result(fx_read_table(temp_text("s.csv", tables[i].text)), 2, six, tables[i].columns);
    }
    FX_SCOPE;
    /* Texts keep their blanks, semicolons and commas. */
    static const float codes[] = {1, 0, 0, 1}, zeros[] = {0, 0};
    check_result(fx_read_table(temp_text("s.csv", "New York;1,x\nOslo;2,y\n")), 1, zeros,
                 "New York;1: Oslo;2=1; x: y=1");
    check_result(fx_read_table(temp_text("s.csv", "k\nNew York\nLos Angeles\n")), 2, codes,
                 "k: Los Angeles=1 New York=1");
    /* A line longer than the window, and lines skipped at the top. */
    enum { WIDE = 40000 };
    static char text[4 * WIDE + 100];
    size_t n = (size_t)sprintf(text, "made by; hand\n");
    for (int row = 0; row < 2; row++)
        for (int i = 0; i < WIDE; i++)
            n += (size_t)sprintf(text + n, "%d%c", i % 10, i + 1 < WIDE ? ' ' : '\n');
    fx_array *values = fx_child_named(fx_read_table(temp_text("w.txt", text), .skip = 1), "values");
    assert_int_equal(fx_size(values, 0), WIDE);
    assert_int_equal(fx_size(values, 1), 2);
    assert_true(fx_at(values, WIDE + 77) == 7);
    values = fx_read_csv(temp_text("b.txt", "a b c\n 1   2\t3\n4 5  6 \n"));
    assert_int_equal(fx_size(values, 0), 3);
    assert_true(fx_at(values, 4) == 5);
}

static void ambiguous_separators(void **state)
{
    (void)state;
    refuse("a;b\n1,5;2,5\n",
           "line 2: the commas in \"1,5;2,5\" can be decimal commas or separators: call "
           "fx_read_table with .decimal = ',' or .separator = ','");
    refuse("1,5 -2,5\n3 4\n3,5 4\n", "line 1: the commas in \"1,5 -2,5\" can be decimal commas");
    /* Quotes do not hide a decimal comma, or the first row would become a header. */
    refuse("\"1,5\";2\n3;4\n", "line 1: the commas in \"\"1,5\";2\" can be decimal commas");
    refuse("a;b|c;d\n1;2|3;4\n", ".separator = ';' or '|'");
    refuse("1\t\t2\n3\t\t4\n", ".separator = '\\t' or ' '");
    FX_SCOPE;
    assert_false(
        fx_is_error(fx_read_table(temp_text("s.csv", "a;b\n1,5;2,5\n"), .separator = ';')));
    static const char *const tables[] = {"1,5;2,5\n", "\"1,5\";2\n", "3;\" 1,5 \"\n3;4\n"};
    for (int i = 0; i < 3; i++) {
        assert_true(fx_is_error(fx_read_csv(temp_text("s.csv", tables[i]))));
        assert_non_null(strstr(fx_error_take().message, ".decimal = ',' or .separator = ','"));
    }
    fx_array *values = fx_read_csv(temp_text("s.csv", "\"1\" \"2\"\n3 \"4\"\n"));
    assert_int_equal(fx_size(values, 0), 2); /* quoted numbers count as numbers */
}

static void check_commas(const char *text, char separator, int64_t rows, const float *expected,
                         const char *columns)
{
    FX_SCOPE;
    const char *path = temp_text("c.csv", text);
    check_result(fx_read_table(path, .separator = separator, .decimal = ','), rows, expected,
                 columns);
}

static void refuse_commas(const char *text, const char *words)
{
    FX_SCOPE;
    assert_true(fx_is_error(fx_read_table(temp_text("c.csv", text), .decimal = ',')));
    const fx_error e = fx_error_take();
    if (!strstr(e.message, words))
        fail_msg("\"%s\" is not in: %s", words, e.message);
}

/* The numbers of each table are 1.5, -2.5, 3 and 4000, whatever separates them. */
static void decimal_commas(void **state)
{
    (void)state;
    static const float four[] = {1.5f, -2.5f, 3, 4000};
    check_commas("a;b\n1,5;-2,5\n3;4e3\n", 0, 2, four, "a:; b:");
    check_commas("1,5;-2,5\n3,0;4,0E+3\n", 0, 2, four, "1:; 2:");
    check_commas("a\tb\n1,5\t-2,5\n3,\t4000,00\n", 0, 2, four, "a:; b:");
    check_commas(" 1,5  -2,5\n 3,0   4000\n", 0, 2, four, "1:; 2:");
    check_commas("a|b\n\"1,5\"| -2,5 \n3|\"4000\"\n", 0, 2, four, "a:; b:");
    check_commas("a\n1,5\n-2,5\n3\n4000\n", 0, 4, four, "a:");
    check_commas("1,5\n-2,5\n3\n4000\n", 0, 4, four, "1:");
    check_commas("\"1,5\",\"-2,5\"\n3,\"4000,0\"\n", ',', 2, four, "1:; 2:");
    /* Texts keep their commas, and a number above 2^24 all of its digits. */
    static const float mixed[] = {0, 16777218, 1, 2.5f};
    check_commas("kind;b\nx,5 y;16777217,25\nz,5;2,5\n", 0, 2, mixed, "kind: x,5 y=1 z,5=1; b:");
    FX_SCOPE;
    void *table = fx_read_table(temp_text("w.csv", "b;c\n16777217,25;1\n2,5;1\n"), .decimal = ',');
    fx_array *wide = fx_child_named(fx_child_named(table, "wide"), "b");
    assert_true(fx_at(wide, 0) == 16777217.25 && fx_at(wide, 1) == 2.5);
    /* A number cannot contain a point, which groups thousands. */
    refuse_commas("a;b\n1,5;2\n1.234,5;2\n",
                  "line 3, column 1: expected a number with a decimal comma, found \"1.234,5\"");
    refuse_commas("a;b\n1,5;2\n.5;2\n", "a number with a decimal comma, found \".5\"");
    refuse_commas("a;b\n1,5;2\n1,5,2;2\n", "a number with a decimal comma, found \"1,5,2\"");
    refuse_commas("a;b\n1,5;2\n1,5;1e99\n", "a number that fits Float32");
    assert_true(fx_is_error(fx_read_table("c.csv", .decimal = ';')));
    assert_non_null(strstr(fx_error_take().message, "the decimal mark is ';', expected . or ,"));
}

static void *read_file(const char *path)
{
    return fx_read_table(path);
}

static void each_allocation_fails(void **state)
{
    (void)state;
    each_allocation_of(read_file, temp_text("small.csv", "a,a\n1,x\n\n20230001,\"y\n\"\n"), 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_numbers),
        cmocka_unit_test(headers_with_numbers),
        cmocka_unit_test(missing_values),
        cmocka_unit_test(decimal_commas),
        cmocka_unit_test(numbers_that_float32_rounds),
        cmocka_unit_test(texts),
        cmocka_unit_test(many_texts),
        cmocka_unit_test(line_breaks_in_quotes),
        cmocka_unit_test(separators),
        cmocka_unit_test(lines_of_rows),
        cmocka_unit_test(found_separators),
        cmocka_unit_test(ambiguous_separators),
        cmocka_unit_test(refusals),
        cmocka_unit_test(hints),
        cmocka_unit_test(each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
