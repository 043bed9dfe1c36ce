/* test_report.c: fx_report: the page of a log, from a path, a file and an open log; its document
 * parsed by cJSON; and what happens without memory, without a log, without a disk.
 */
#include "memory.h"
#include "temp_file.h"

#include <cflux.h>
#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char log_path[300], page_path[300];

static void make_log(void)
{
    snprintf(log_path, sizeof log_path, "%s", temp_text("report.jsonl", ""));
    snprintf(page_path, sizeof page_path, "%s", temp_text("report.html", "the old page"));
    fx_run_log *log = fx_run_log_open(log_path, false);
    assert_non_null(log);
    fx_run_log_start(log, .model = "Dense(1 => 1)</script>", .epochs = 2);
    for (int i = 1; i <= 4; i++) {
        fx_run_log_step(log, i, (i + 1) / 2, 1.0 / i, i);
        if (i % 2 == 0)
            fx_run_log_epoch(log, .epoch = i / 2, .step = i, .loss = 0.5, .seconds = i + 0.5);
    }
    fx_run_log_end(log, .why = "finished", .step = 4, .seconds = 5);
    assert_int_equal(fx_run_log_close(log), FX_OK);
}

static char *contents(const char *path)
{
    static char bytes[1 << 18];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, sizeof bytes - 1, f);
    fclose(f);
    bytes[n] = 0;
    return bytes;
}

/* The JSON document in a page. */
static cJSON *document(const char *page)
{
    const char *at = strstr(page, "{\"cflux\":");
    assert_non_null(at);
    cJSON *found = cJSON_Parse(at);
    assert_non_null(found);
    return found;
}

static void the_page_has_the_numbers_of_the_log(void **state)
{
    (void)state;
    make_log();
    assert_int_equal(fx_report(log_path, page_path), FX_OK);
    const char *page = contents(page_path);
    assert_int_equal(strncmp(page, "<!DOCTYPE html>", 15), 0);
    cJSON *made = document(page);
    const cJSON *steps = cJSON_GetObjectItem(made, "steps");
    const cJSON *losses = cJSON_GetObjectItem(steps, "loss");
    assert_int_equal(cJSON_GetArraySize(losses), 4);
    static const double want[] = {1, 0.5, 0.333333, 0.25};
    for (int i = 0; i < 4; i++)
        assert_true(cJSON_GetArrayItem(losses, i)->valuedouble == want[i]);
    assert_int_equal(cJSON_GetObjectItem(cJSON_GetObjectItem(made, "epochs"), "logged")->valueint,
                     2);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(made, "log")), log_path);
    const cJSON *start = cJSON_GetObjectItem(made, "start");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(start, "model")),
                        "Dense(1 => 1)</script>");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(made, "warnings")), 0);
    cJSON_Delete(made);
}

static void every_source_gives_the_same_page(void **state)
{
    (void)state;
    make_log();
    assert_int_equal(fx_report(log_path, page_path, .name = "a run"), FX_OK);
    char *want = strdup(contents(page_path));
    FILE *from = fopen(log_path, "r");
    assert_int_equal(fx_report(NULL, page_path, .name = "a run", .log_from = from), FX_OK);
    fclose(from);
    assert_string_equal(contents(page_path), want);
    fx_run_log *log = fx_run_log_open(log_path, true);
    assert_int_equal(fx_report(NULL, page_path, .name = "a run", .run = log), FX_OK);
    assert_int_equal(fx_run_log_close(log), FX_OK);
    assert_string_equal(contents(page_path), want);
    FILE *to = tmpfile();
    assert_int_equal(fx_report(log_path, .name = "a run", .page_to = to), FX_OK);
    assert_int_equal(ftell(to), strlen(want));
    fclose(to);
    free(want);
}

/* The lines of the final training steps are still in memory, because they follow quickly. */
static void an_open_log_is_read_to_its_end(void **state)
{
    (void)state;
    enum { STEPS = 7 };
    fx_run_log *log = fx_run_log_open(temp_text("open.jsonl", ""), false);
    fx_run_log_start(log, .model = "Dense(1 => 1)");
    for (int i = 1; i <= STEPS; i++)
        fx_run_log_step(log, i, 1, 1.0 / i, i < STEPS ? 0.002 * i : 0.002 * i - 0.0015);
    snprintf(page_path, sizeof page_path, "%s", temp_text("report.html", ""));
    for (int i = 0; i < 2; i++) { /* the second report repeats no line */
        assert_int_equal(fx_report(NULL, page_path, .run = log), FX_OK);
        cJSON *made = document(contents(page_path));
        const cJSON *steps = cJSON_GetObjectItem(made, "steps");
        const cJSON *numbers = cJSON_GetObjectItem(steps, "step");
        assert_int_equal(cJSON_GetArraySize(numbers), STEPS);
        for (int k = 0; k < STEPS; k++)
            assert_int_equal(cJSON_GetArrayItem(numbers, k)->valueint, k + 1);
        cJSON_Delete(made);
    }
    assert_int_equal(fx_run_log_close(log), FX_OK);
}

static void a_second_log_is_a_second_run(void **state)
{
    (void)state;
    make_log();
    char other[300];
    snprintf(other, sizeof other, "%s",
             temp_text("second.jsonl", "{\"event\":\"step\",\"step\":1,\"epoch\":1,\"loss\":8}\n"));
    assert_int_equal(fx_report(log_path, page_path, .other = other), FX_OK);
    cJSON *made = document(contents(page_path));
    const cJSON *second = cJSON_GetObjectItem(made, "other");
    const cJSON *losses = cJSON_GetObjectItem(cJSON_GetObjectItem(second, "steps"), "loss");
    assert_int_equal(cJSON_GetArraySize(losses), 1);
    assert_true(cJSON_GetArrayItem(losses, 0)->valuedouble == 8);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(second, "log")), other);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(made, "log")), log_path);
    cJSON_Delete(made);
    char *page = strdup(contents(page_path));
    assert_int_equal(fx_report(log_path, page_path, .other = "/nowhere/b.jsonl"), FX_STATUS_IO);
    assert_non_null(strstr(fx_error_take().message, "cannot read /nowhere/b.jsonl"));
    assert_int_equal(fx_report(log_path, page_path, .other = page_path), FX_STATUS_FORMAT);
    assert_int_equal(fx_error_take().status, FX_STATUS_FORMAT);
    assert_int_equal(fx_report(log_path, other, .other = other), FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "would overwrite its log"));
    assert_string_equal(contents(page_path), page);
    free(page);
}

/* The least pixel becomes 0 and the greatest 255, even if their difference or its reciprocal
 * overflows. */
static void pixels_may_be_of_any_size(void **state)
{
    static const struct {
        const char *input, *pixels;
    } rows[] = {{"[-1e308,0,1e308,1e308]", "AID//w=="},
                {"[0,2e-310,2e-310,0]", "AP//AA=="},
                {"[1e308,null,0,1e308]", "/wAA/w=="},
                {"[7,7,7,7]", "AAAAAA=="}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char log[300], path[300];
        snprintf(log, sizeof log,
                 "{\"event\":\"start\"}\n{\"event\":\"end\",\"why\":\"finished\",\"samples\":"
                 "[{\"input\":%s,\"shape\":[2,2],\"target\":1,\"output\":1}]}\n",
                 rows[i].input);
        snprintf(path, sizeof path, "%s", temp_text("pixels.jsonl", log));
        snprintf(page_path, sizeof page_path, "%s", temp_text("report.html", ""));
        assert_int_equal(fx_report(path, page_path), FX_OK);
        cJSON *made = document(contents(page_path));
        const cJSON *sample = cJSON_GetArrayItem(cJSON_GetObjectItem(made, "samples"), 0);
        assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(sample, "pixels")),
                            rows[i].pixels);
        cJSON_Delete(made);
    }
}

static void failures_leave_the_old_page(void **state)
{
    (void)state;
    make_log();
    assert_int_equal(fx_report("/nowhere/run.jsonl", page_path), FX_STATUS_IO);
    assert_non_null(strstr(fx_error_take().message, "cannot read /nowhere/run.jsonl"));
    assert_int_equal(fx_report(NULL, page_path), FX_STATUS_ARGUMENT);
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_int_equal(fx_report(log_path), FX_STATUS_ARGUMENT);
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_int_equal(fx_report(page_path, page_path), FX_STATUS_FORMAT);
    assert_non_null(strstr(fx_error_take().message, "is not the log of a training run"));
    char *log = strdup(contents(log_path));
    assert_int_equal(fx_report(log_path, log_path), FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "would overwrite its log"));
    assert_string_equal(contents(log_path), log);
    free(log);
    assert_int_equal(fx_report(log_path, "/nowhere/run.html"), FX_STATUS_IO);
    assert_int_equal(fx_error_take().status, FX_STATUS_IO);
    assert_string_equal(contents(page_path), "the old page");
}

static void without_memory_there_is_an_error(void **state)
{
    (void)state;
    make_log();
    const int64_t live = fxi_live_allocations();
    int failures = 0;
    bool reached = true;
    const char *other = temp_text("second.jsonl", "{\"event\":\"end\",\"why\":\"finished\"}\n");
    for (int64_t nth = 0; reached; nth++) {
        temp_text("report.html", "the old page");
        fxi_fault_set(nth);
        const fx_status status = fx_report(log_path, page_path, .other = other);
        reached = fxi_fault_seen() > nth;
        fxi_fault_set(-1);
        assert_true(reached || status == FX_OK);
        assert_int_equal(fx_error_take().status, status);
        assert_true(status == FX_OK || status == FX_STATUS_MEMORY);
        assert_int_equal(fxi_live_allocations(), live);
        if (status != FX_OK)
            assert_string_equal(contents(page_path), "the old page");
        failures += status != FX_OK;
    }
    print_message("%d allocations failed\n", failures);
    assert_true(failures > 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_has_the_numbers_of_the_log),
        cmocka_unit_test(every_source_gives_the_same_page),
        cmocka_unit_test(an_open_log_is_read_to_its_end),
        cmocka_unit_test(a_second_log_is_a_second_run),
        cmocka_unit_test(pixels_may_be_of_any_size),
        cmocka_unit_test(failures_leave_the_old_page),
        cmocka_unit_test(without_memory_there_is_an_error),
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
