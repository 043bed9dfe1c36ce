/* test_run_log.c: the log of a training run, written and parsed by cJSON: every member that was
 * given is there, whole lines only, whatever stops the writing.
 */
#include "run_log.h"
#include "temp_file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_LINES = 4096 };
static cJSON *lines[MOST_LINES]; /* NULL: not JSON */
static int nlines;

/* Every line of the file, parsed; the count of those that are not JSON. */
static int parse(const char *path)
{
    static char text[1 << 16];
    int bad = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (nlines = 0; fgets(text, sizeof text, f); nlines++) {
        assert_true(nlines < MOST_LINES);
        lines[nlines] = strchr(text, '\n') ? cJSON_Parse(text) : NULL;
        bad += lines[nlines] == NULL;
    }
    fclose(f);
    return bad;
}

static void release(void)
{
    for (int i = 0; i < nlines; i++)
        cJSON_Delete(lines[i]);
    nlines = 0;
}

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!cJSON_IsNumber(item))
        fail_msg("no number \"%s\"", name);
    return item->valuedouble;
}

static const char *text(const cJSON *object, const char *name)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    if (!value)
        fail_msg("no text \"%s\"", name);
    return value;
}

static const cJSON *member(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static run_log *open_new(const char **out_path)
{
    *out_path = temp_text("run.jsonl", "what was here before");
    run_log *log = run_log_open(*out_path, false);
    assert_non_null(log);
    return log;
}

static void every_member_is_written(void **state)
{
    (void)state;
    static const char *const classes[] = {"cat", "\"dog\"\n</script>"};
    const int64_t shape[] = {2, 1}, output[] = {2, 32}, confusion[] = {5, 1, 2, 7};
    const double input[] = {0.25, NAN}, target[] = {1}, guess[] = {0.125, 0.875};
    const run_sample samples[] = {{input, 2, shape, 2, target, guess, 1, 2, false, 0},
                                  {input, 2, shape, 2, target, guess, 1, 2, true, 1}};
    const run_layer layer = {"Dense(2 => 2)", output, 2, 6, 24, NAN};
    const char *path;
    run_log *log = open_new(&path);
    assert_int_equal(run_log_start(log, &(run_start){.model = "Chain(Dense(2 => 2))",
                                                     .loss = "logitcrossentropy",
                                                     .optimiser = "Adam(0.001)",
                                                     .device = "cpu",
                                                     .data = {.path = "a b.csv",
                                                              .kind = "csv",
                                                              .observations = 100,
                                                              .train = 80,
                                                              .validation = 20,
                                                              .classes = classes,
                                                              .nclasses = 2},
                                                     .seed = 7,
                                                     .epochs = 3,
                                                     .batchsize = 32,
                                                     .parameters = 6,
                                                     .resumed_at_step = 12}),
                     0);
    assert_int_equal(run_log_step(log, 13, 2, 0.5, 1.5), 0);
    assert_int_equal(run_log_epoch(log, &(run_epoch){2, 13, 0.5, NAN, 0.75, 2.5}), 0);
    assert_int_equal(run_log_end(log, &(run_end){.why = "finished",
                                                 .step = 13,
                                                 .seconds = 3,
                                                 .confusion = confusion,
                                                 .classes = classes,
                                                 .nclasses = 2,
                                                 .samples = samples,
                                                 .nsamples = 2,
                                                 .layers = &layer,
                                                 .nlayers = 1}),
                     0);
    assert_int_equal(run_log_close(log), 0);

    assert_int_equal(parse(path), 0);
    assert_int_equal(nlines, 4);
    const cJSON *start = lines[0], *data = member(start, "data");
    assert_string_equal(text(start, "event"), "start");
    assert_string_equal(text(start, "model"), "Chain(Dense(2 => 2))");
    assert_string_equal(text(data, "path"), "a b.csv");
    assert_null(member(data, "target"));
    assert_string_equal(cJSON_GetArrayItem(member(data, "classes"), 1)->valuestring, classes[1]);
    assert_true(number(start, "resumed_at_step") == 12 && number(start, "seed") == 7);
    assert_int_equal(strlen(text(start, "time")), strlen("2026-11-21T20:00:00Z"));
    assert_true(number(lines[1], "step") == 13 && number(lines[1], "loss") == 0.5);
    assert_null(member(lines[2], "validation_loss"));
    assert_true(number(lines[2], "accuracy") == 0.75);
    const cJSON *end = lines[3], *row = cJSON_GetArrayItem(member(end, "confusion"), 1);
    assert_true(cJSON_GetArrayItem(row, 0)->valueint == 2);
    const cJSON *shown = cJSON_GetArrayItem(member(end, "samples"), 0);
    assert_true(cJSON_IsNull(cJSON_GetArrayItem(member(shown, "input"), 1)));
    assert_true(number(shown, "target") == 1);
    assert_true(cJSON_GetArrayItem(member(shown, "output"), 1)->valuedouble == 0.875);
    assert_true(!member(shown, "scores") && !member(shown, "guess"));
    const cJSON *scored = cJSON_GetArrayItem(member(end, "samples"), 1);
    assert_true(cJSON_GetArrayItem(member(scored, "scores"), 1)->valuedouble == 0.875);
    assert_true(number(scored, "guess") == 1 && !member(scored, "output"));
    const cJSON *table = cJSON_GetArrayItem(member(end, "layers"), 0);
    assert_true(number(table, "bytes") == 24 && !member(table, "seconds"));
    release();
}

/* Steps of a tenth of a millisecond: ten or eleven share a line, and every step is counted in one.
 */
static void fast_steps_share_lines(void **state)
{
    (void)state;
    const char *path;
    run_log *log = open_new(&path);
    double total = 0, by_lines = 0;
    for (int i = 1; i <= 1000; i++) {
        const double loss = (double)(i * 7919 % 1000) / 8;
        total += loss;
        assert_int_equal(run_log_step(log, i, i <= 500 ? 1 : 2, loss, i * 1e-4), 0);
    }
    assert_int_equal(run_log_close(log), 0);
    assert_int_equal(parse(path), 0);
    assert_in_range(nlines, 90, 103);
    int64_t steps = 0;
    for (int i = 0; i < nlines; i++) {
        const double n = member(lines[i], "steps") ? number(lines[i], "steps") : 1;
        const double loss = number(lines[i], "loss");
        steps += (int64_t)n;
        by_lines += n * loss;
        assert_true(number(lines[i], "step") == (double)steps);
        assert_true(number(lines[i], "epoch") == (steps <= 500 ? 1 : 2));
        if (n > 1)
            assert_true(number(lines[i], "least") <= loss && loss <= number(lines[i], "most"));
    }
    assert_int_equal(steps, 1000);
    assert_true(fabs(by_lines - total) < 1e-3);
    release();
}

/* Steps of a millisecond after 4.5 seconds share a line by fives, after ten by tens. */
static void long_runs_have_fewer_lines(void **state)
{
    (void)state;
    const char *path;
    run_log *log = open_new(&path);
    for (int i = 1; i <= 400; i++)
        run_log_step(log, i, 1, 0.5, i <= 200 ? 4.5 + i * 1.001e-3 : 10 + i * 1.001e-3);
    assert_int_equal(run_log_close(log), 0);
    assert_int_equal(parse(path), 0);
    assert_in_range(nlines, 40 + 20, 40 + 20 + 3);
    release();
}

/* Epochs of a second are in the file when they are told, right behind the line of a step; short
 * ones wait. */
static void slow_epochs_are_written_at_once(void **state)
{
    (void)state;
    const char *path;
    run_log *log = open_new(&path);
    for (int i = 1; i <= 5; i++) {
        run_log_step(log, i, i, 0.5, i);
        run_log_epoch(log, &(run_epoch){i, i, 0.5, NAN, NAN, i + 0.001});
        assert_int_equal(parse(path), 0);
        assert_int_equal(nlines, 2 * i);
        release();
    }
    for (int i = 1; i <= 50; i++)
        run_log_epoch(log, &(run_epoch){5 + i, 5, 0.5, NAN, NAN, 6 + i * 1e-4});
    assert_int_equal(parse(path), 0);
    assert_in_range(nlines, 10, 12);
    release();
    assert_int_equal(run_log_close(log), 0);
    assert_int_equal(parse(path), 0);
    assert_int_equal(nlines, 60);
    release();
}

static void slow_steps_have_a_line_each(void **state)
{
    (void)state;
    const char *path;
    run_log *log = open_new(&path);
    for (int i = 1; i <= 100; i++)
        run_log_step(log, i, 1, i == 50 ? HUGE_VAL : (double)i, i * 0.011);
    assert_int_equal(run_log_close(log), 0);
    assert_int_equal(parse(path), 0);
    assert_int_equal(nlines, 100);
    assert_true(cJSON_IsNull(member(lines[49], "loss")));
    assert_true(number(lines[99], "loss") == 100);
    release();
}

/* A loss that is no number is seen at once, and does not spoil a mean. */
static void a_loss_of_nan_has_its_own_line(void **state)
{
    (void)state;
    const char *path;
    run_log *log = open_new(&path);
    const double losses[] = {4, 1, 3, NAN};
    for (int i = 0; i < 4; i++)
        run_log_step(log, i + 1, 1, losses[i], i * 1e-4);
    assert_int_equal(parse(path), 0); /* before the log is closed */
    assert_int_equal(nlines, 3);
    assert_true(number(lines[1], "loss") == 2 && number(lines[1], "steps") == 2);
    assert_true(number(lines[1], "least") == 1 && number(lines[1], "most") == 3);
    assert_true(cJSON_IsNull(member(lines[2], "loss")) && number(lines[2], "step") == 4);
    release();
    assert_int_equal(run_log_close(log), 0);
}

static void a_log_that_was_cut_off_goes_on(void **state)
{
    (void)state;
    const char *path = temp_text("cut.jsonl", "{\"event\":\"start\"}\n{\"event\":\"st");
    run_log *log = run_log_open(path, true);
    assert_non_null(log);
    assert_int_equal(run_log_start(log, &(run_start){.resumed_at_step = 3}), 0);
    assert_int_equal(run_log_close(log), 0);
    assert_int_equal(parse(path), 1);
    assert_int_equal(nlines, 3);
    assert_true(lines[0] && !lines[1] && number(lines[2], "resumed_at_step") == 3);
    release();
}

/* The disk is full after every number of bytes: what is there are whole lines. */
static void a_full_disk_leaves_whole_lines(void **state)
{
    (void)state;
    struct rlimit was;
    getrlimit(RLIMIT_FSIZE, &was);
    signal(SIGXFSZ, SIG_IGN);
    int whole = 0;
    for (rlim_t room = 0; room < 400; room += 7) {
        const char *path = temp_text("full.jsonl", "");
        run_log *log = run_log_open(path, false);
        assert_non_null(log);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){room, was.rlim_max});
        int failed = 0;
        for (int i = 1; i <= 20 && !failed; i++)
            failed = run_log_step(log, i, 1, 0.5, i);
        setrlimit(RLIMIT_FSIZE, &was);
        assert_int_equal(failed, EFBIG);
        assert_int_equal(run_log_step(log, 21, 1, 0.5, 21), EFBIG); /* and it stays so */
        assert_int_equal(run_log_close(log), EFBIG);
        assert_int_equal(parse(path), 0);
        whole += nlines;
        release();
    }
    signal(SIGXFSZ, SIG_DFL);
    assert_true(whole > 100);
}

static void failures_to_open_say_why(void **state)
{
    (void)state;
    assert_null(run_log_open("/nowhere/run.jsonl", false));
    assert_int_equal(errno, ENOENT);
    run_log *log = run_log_open(NULL, false);
    assert_non_null(log);
    assert_int_equal(run_log_start(log, &(run_start){.epochs = 1}), 0);
    char head[16];
    assert_int_equal(pread(run_log_descriptor(log), head, 16, 0), 16);
    assert_memory_equal(head, "{\"event\":\"start\"", 16);
    assert_int_equal(run_log_close(log), 0);
    assert_int_equal(run_log_close(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_is_written),
        cmocka_unit_test(fast_steps_share_lines),
        cmocka_unit_test(slow_epochs_are_written_at_once),
        cmocka_unit_test(slow_steps_have_a_line_each),
        cmocka_unit_test(long_runs_have_fewer_lines),
        cmocka_unit_test(a_loss_of_nan_has_its_own_line),
        cmocka_unit_test(a_log_that_was_cut_off_goes_on),
        cmocka_unit_test(a_full_disk_leaves_whole_lines),
        cmocka_unit_test(failures_to_open_say_why),
    };
    return cmocka_run_group_tests_name("run_log", tests, NULL, NULL);
}
