/* test_read_log.c: the reader of logs, with good lines, broken ones, and what no log should hold.
 */
#include "memory.h"
#include "read_log.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define START  "{\"event\":\"start\",\"model\":\"Dense(2 => 1)\"}\n"
#define END    "{\"event\":\"end\",\"why\":\"finished\"}\n"
#define STEP_1 "{\"event\":\"step\",\"step\":1,\"epoch\":1,\"loss\":4,\"seconds\":0.5}\n"
#define STEP_2 "{\"event\":\"step\",\"step\":2,\"epoch\":1,\"loss\":2,\"seconds\":0.75}\n"

static fxi_log_record record;

static fx_status read_bytes(const char *bytes, size_t n)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    rewind(file);
    const fx_status status = fxi_read_log(file, "a log", &record);
    fclose(file);
    return status;
}

/* Reads a log that must be taken, and which gives this number of warnings. */
static void take(const char *text, int warnings)
{
    assert_int_equal(read_bytes(text, strlen(text)), FX_OK);
    for (int32_t i = 0; record.nwarnings != warnings && i < record.nwarnings; i++)
        print_error("%s\n", record.warnings[i]);
    assert_int_equal(record.nwarnings, warnings);
}

static const char *warning(int i)
{
    return record.warnings[i];
}

static void whole_logs_are_read(void **state)
{
    (void)state;
    take(
        START STEP_1 STEP_2
        "{\"event\":\"epoch\",\"epoch\":1,\"step\":2,\"loss\":3,\"accuracy\":0.5,\"seconds\":1}\r\n"
        "\n"
        "{\"event\":\"step\",\"step\":5,\"epoch\":2,\"loss\":1,\"least\":0.5,\"most\":2,\"steps\":"
        "3,"
        "\"seconds\":2}\n"
        "{\"event\":\"step\",\"step\":9,\"epoch\":2,\"loss\":1,\"steps\":4,\"seconds\":3}\n" END,
        0);
    assert_int_equal(record.nsteps, 4);
    const fxi_log_step *s = record.steps;
    assert_true(s[0].step == 1 && s[0].loss == 4 && s[0].steps == 1 && isnan(s[0].each));
    assert_true(s[1].each == 0.25 && s[1].least == 2 && s[1].most == 2);
    assert_true(isnan(s[2].each)); /* an epoch is between them */
    assert_true(s[2].least == 0.5 && s[2].most == 2 && s[2].steps == 3);
    assert_true(s[3].each == 0.25);
    assert_int_equal(record.nepochs, 1);
    assert_int_equal(record.nmetrics, 2);
    assert_string_equal(record.metrics[1], "accuracy");
    assert_true(record.epochs[0].metrics[0] == 3 && record.epochs[0].metrics[1] == 0.5);
    assert_string_equal(fxi_json_text_of(fxi_json_member(record.start, "model")), "Dense(2 => 1)");
    fxi_log_free(&record);
}

static void broken_lines_are_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int steps;
        const char *warning;
    } cases[] = {
        {START STEP_1 "{\"event\":\"step\",\"step\":2,\"lo", 1,
         "The last line of the log is damaged"},
        {START STEP_1 "{\"event\":\"end\"", 1, "The last line of the log is damaged"},
        {START "{\"event\":\"st\n" STEP_1 END, 1, "ignored: 1, the first is line "},
        {START "[1]\n" STEP_1 "17\nnull\n" END, 1, "ignored: 3, the first is line "},
        {START "{\"event\":17}\n{}\n" STEP_1 END, 1, "ignored: 2, the first is line "},
        {START "{\"event\":\"step\",\"loss\":1}\n" STEP_1 END, 1, "ignored: 1, the first is line "},
        {START "{\"event\":\"step\",\"step\":\"1\",\"loss\":1}\n" STEP_1 END, 1,
         "ignored: 1, the first is line "},
        {START "{\"event\":\"step\",\"step\":null,\"loss\":1}\n" STEP_1 END, 1,
         "ignored: 1, the first is line "},
        {START "{\"event\":\"step\",\"step\":1e999,\"loss\":1}\n" STEP_1 END, 1,
         "ignored: 1, the first is line "},
        {START "{\"event\":\"step\",\"step\":7,\"loss\":NaN}\n" STEP_1 END, 1,
         "ignored: 1, the first is line "},
        {START "{\"event\":\"step\",\"step\":7}\n" STEP_1 END, 1, "ignored: 1, the first is line "},
        {START "{\"event\":\"epoch\",\"epoch\":1}\n" STEP_1 END, 1,
         "ignored: 1, the first is line "},
        {START STEP_1 "{\"event\":\"end\"} {\"event\":\"end\"}\n" END, 1,
         "ignored: 1, the first is line "},
        {START STEP_1 "\xff\xfe\x01\n" END, 1, "ignored: 1, the first is line "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        take(cases[i].text, strstr(cases[i].text, END) ? 1 : 2);
        assert_int_equal(record.nsteps, cases[i].steps);
        if (!strstr(warning(0), cases[i].warning))
            fail_msg("case %zu: %s", i, warning(0));
        fxi_log_free(&record);
    }
}

static void bytes_of_zero_break_their_line_only(void **state)
{
    (void)state;
    static const char bytes[] = START "{\"event\":\"end\"}\0{}\n" STEP_1 END;
    assert_int_equal(read_bytes(bytes, sizeof bytes - 1), FX_OK);
    assert_int_equal(record.nsteps, 1);
    assert_int_equal(record.nwarnings, 1);
    fxi_log_free(&record);
}

static void a_line_nested_deeply_is_broken(void **state)
{
    (void)state;
    enum { DEPTH = 200000 };
    char *text = malloc(sizeof START + DEPTH + sizeof END + 1);
    assert_non_null(text);
    char *end = stpcpy(text, START);
    memset(end, '[', DEPTH);
    strcpy(stpcpy(end + DEPTH, "\n"), END);
    take(text, 1);
    free(text);
    fxi_log_free(&record);
}

static void other_events_are_passed_by(void **state)
{
    (void)state;
    take(START "{\"event\":\"note\",\"text\":1}\n{\"event\":\"gpu\"}\n" STEP_1 END, 1);
    assert_string_equal(warning(0), "Unknown events were ignored: 2, the first is \"note\".");
    assert_int_equal(record.nsteps, 1);
    fxi_log_free(&record);
}

static void numbers_that_are_none_are_nan(void **state)
{
    (void)state;
    take(START
         "{\"event\":\"step\",\"step\":1,\"epoch\":1,\"loss\":null,\"seconds\":null}\n"
         "{\"event\":\"step\",\"step\":2,\"epoch\":1,\"loss\":1e999,\"seconds\":-1e999}\n"
         "{\"event\":\"step\",\"step\":1e300,\"epoch\":1e300,\"loss\":1e308,\"seconds\":1e300,"
         "\"steps\":1e300}\n"
         "{\"event\":\"epoch\",\"epoch\":1,\"step\":2,\"loss\":null,\"accuracy\":1e999}\n" END,
         1);
    assert_string_equal(warning(0), "The loss was not a finite number at training step 1.");
    assert_int_equal(record.nsteps, 3);
    for (int i = 0; i < 2; i++)
        assert_true(isnan(record.steps[i].loss) && isnan(record.steps[i].seconds));
    assert_true(record.steps[2].step == 1e300 && record.steps[2].loss == 1e308);
    assert_true(isnan(record.epochs[0].metrics[0]));
    fxi_log_free(&record);
}

/* Training steps that a killed run did after its checkpoint are dropped, and the time continues. */
static void a_run_that_goes_on_replaces_what_was_lost(void **state)
{
    (void)state;
    take(START STEP_1 STEP_2
         "{\"event\":\"epoch\",\"epoch\":1,\"step\":2,\"loss\":3,\"seconds\":1}\n"
         "{\"event\":\"step\",\"step\":3,\"epoch\":2,\"loss\":9,\"seconds\":1.5}\n"
         "{\"event\":\"epoch\",\"epoch\":2,\"step\":3,\"loss\":9,\"seconds\":2}\n"
         "{\"event\":\"start\",\"resumed_at_step\":2}\n"
         "{\"event\":\"step\",\"step\":3,\"epoch\":2,\"loss\":1,\"seconds\":0.25}\n" END,
         1);
    assert_int_equal(record.nsteps, 3);
    assert_true(record.steps[2].loss == 1 && record.steps[2].seconds == 1.25);
    assert_true(isnan(record.steps[2].each));
    assert_int_equal(record.nepochs, 1);
    assert_non_null(strstr(warning(0), "checkpoint of training step 2"));
    fxi_log_free(&record);
}

static void of_several_runs_the_last_counts(void **state)
{
    (void)state;
    take(START STEP_1 STEP_2 END "{\"event\":\"start\",\"seed\":5}\n" STEP_1, 2);
    assert_int_equal(record.nsteps, 1);
    assert_null(record.end);
    assert_non_null(strstr(warning(0), "several runs"));
    assert_non_null(strstr(warning(1), "no end"));
    assert_true(fxi_json_number_of(fxi_json_member(record.start, "seed")) == 5);
    fxi_log_free(&record);
    /* The warnings of earlier runs do not concern it. */
    take(START STEP_1 "{\"event\":\"start\",\"resumed_at_step\":1}\n" STEP_2 END START STEP_1 END
             START STEP_1 END,
         1);
    assert_non_null(strstr(warning(0), "several runs"));
    fxi_log_free(&record);
}

static void metrics_may_come_late_and_are_bounded(void **state)
{
    (void)state;
    take("{\"event\":\"epoch\",\"epoch\":1,\"step\":2,\"loss\":3}\n"
         "{\"event\":\"epoch\",\"epoch\":2,\"step\":4,\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,"
         "\"f\":6,"
         "\"g\":7,\"h\":8,\"i\":9,\"text\":\"x\"}\n",
         2);
    assert_int_equal(record.nmetrics, FXI_LOG_METRICS);
    assert_true(isnan(record.epochs[0].metrics[1]) && isnan(record.epochs[1].metrics[0]));
    assert_true(record.epochs[1].metrics[7] == 7);
    fxi_log_free(&record);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "\n\n",
                                        "a,b\n1,2\n",
                                        "{\"event\":\"note\"}\n",
                                        "{\"loss\":1}\n",
                                        "{\"event\":\"step\",\"step\":1}\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(read_bytes(texts[i], strlen(texts[i])), FX_STATUS_FORMAT);
        assert_non_null(strstr(fx_error_take().message, "is not the log of a training run"));
        fxi_log_free(&record);
    }
}

static void many_steps_are_read(void **state)
{
    (void)state;
    enum { STEPS = 20000 };
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    fputs(START, f);
    for (int i = 1; i <= STEPS; i++)
        fprintf(f, "{\"event\":\"step\",\"step\":%d,\"epoch\":1,\"loss\":%d,\"seconds\":%d}\n", i,
                i % 17, i);
    fputs(END, f);
    fclose(f);
    take(text, 0);
    assert_int_equal(record.nsteps, STEPS);
    for (int i = 0; i < STEPS; i++)
        assert_true(record.steps[i].step == i + 1 && record.steps[i].loss == (i + 1) % 17);
    free(text);
    fxi_log_free(&record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_logs_are_read),
        cmocka_unit_test(broken_lines_are_left_out),
        cmocka_unit_test(bytes_of_zero_break_their_line_only),
        cmocka_unit_test(a_line_nested_deeply_is_broken),
        cmocka_unit_test(other_events_are_passed_by),
        cmocka_unit_test(numbers_that_are_none_are_nan),
        cmocka_unit_test(a_run_that_goes_on_replaces_what_was_lost),
        cmocka_unit_test(of_several_runs_the_last_counts),
        cmocka_unit_test(metrics_may_come_late_and_are_bounded),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(many_steps_are_read),
    };
    return cmocka_run_group_tests_name("read_log", tests, NULL, NULL);
}
