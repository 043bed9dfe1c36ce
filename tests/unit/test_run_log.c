/* test_run_log.c: the log of a training run, written by the library and parsed by cJSON: every
 * member that was given is there, only complete lines, after any failure; and the log that fx_train
 * writes.
 */
#include "memory.h"
#include "run_log.h"
#include "temp_file.h"

#include <cflux.h>
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

static fx_run_log *open_new(const char **out_path)
{
    *out_path = temp_text("run.jsonl", "what was here before");
    fx_run_log *log = fx_run_log_open(*out_path, false);
    assert_non_null(log);
    return log;
}

/* Dense(2 => 3, tanh) and Dense(3 => 2), called with 32 observations. */
static void check_layers(const cJSON *table)
{
    assert_int_equal(cJSON_GetArraySize(table), 2);
    static const char *const notation[] = {"Dense(2 => 3, tanh)", "Dense(3 => 2)"};
    static const double outputs[] = {3, 2}, parameters[] = {9, 8};
    for (int i = 0; i < 2; i++) {
        const cJSON *layer = cJSON_GetArrayItem(table, i), *sizes = member(layer, "output");
        assert_string_equal(text(layer, "layer"), notation[i]);
        assert_true(cJSON_GetArrayItem(sizes, 0)->valuedouble == outputs[i]);
        assert_true(cJSON_GetArrayItem(sizes, 1)->valuedouble == 32);
        assert_true(number(layer, "parameters") == parameters[i]);
        assert_true(number(layer, "bytes") == 4 * parameters[i]); /* of Float32 */
        assert_true(number(layer, "seconds") > 0 && number(layer, "seconds") < 10);
    }
}

static void every_member_is_written(void **state)
{
    (void)state;
    static const char *const classes[] = {"cat", "\"dog\"\n</script>"};
    const int64_t shape[] = {2, 1}, confusion[] = {5, 1, 2, 7};
    const double input[] = {0.25, NAN}, target[] = {1}, guess[] = {0.125, 0.875};
    const fx_run_sample samples[] = {{input, 2, shape, 2, target, guess, 1, 2, false, 0},
                                     {input, 2, shape, 2, target, guess, 1, 2, true, 1}};
    FX_SCOPE;
    void *model = fx_chain(fx_dense(2, 3, FX_TANH), fx_dense(3, 2));
    const char *path;
    fx_run_log *log = open_new(&path);
    assert_int_equal(fx_run_log_start(log, .model = "Chain(Dense(2 => 2))",
                                      .loss = "logitcrossentropy", .optimiser = "Adam(0.001)",
                                      .device = "cpu", .data_path = "a b.csv", .data_kind = "csv",
                                      .observations = 100, .train = 80, .validation = 20,
                                      .classes = classes, .nclasses = 2, .seed = 7, .epochs = 3,
                                      .batchsize = 32, .parameters = 6, .resumed_at_step = 12),
                     0);
    assert_int_equal(fx_run_log_step(log, 13, 2, 0.5, 1.5), 0);
    assert_int_equal(fx_run_log_epoch(log, .epoch = 2, .step = 13, .loss = 0.5, .accuracy = 0.75,
                                      .seconds = 2.5),
                     0);
    assert_int_equal(fx_run_log_end(log, .why = "finished", .step = 13, .seconds = 3,
                                    .confusion = confusion, .classes = classes, .nclasses = 2,
                                    .samples = samples, .nsamples = 2, .model = model,
                                    .batch = fx_ones(2, 32)),
                     0);
    assert_int_equal(fx_run_log_close(log), 0);

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
    check_layers(member(end, "layers"));
    release();
}

/* The results of layers may be tuples: the second of four layers returns one. */
static void layers_after_a_tuple(void **state)
{
    (void)state;
    FX_SCOPE;
    void *model =
        fx_chain(fx_dense(2, 3), fx_pairwisefusion(FX_ADD, fx_dense(3, 3), fx_dense(3, 3)),
                 fx_parallel(FX_ADD, fx_dense(3, 5), fx_dense(3, 5)), fx_dense(5, 1));
    static const int outputs[] = {3, 3, 5, 1};
    const char *path;
    fx_run_log *log = open_new(&path);
    assert_int_equal(fx_run_log_start(log, .model = "m", .loss = "mse"), 0);
    assert_int_equal(fx_run_log_end(log, .why = "finished", .model = model, .batch = fx_ones(2, 6)),
                     0);
    assert_int_equal(fx_run_log_close(log), 0);
    assert_int_equal(parse(path), 0);
    const cJSON *table = member(lines[nlines - 1], "layers");
    assert_int_equal(cJSON_GetArraySize(table), 4);
    for (int i = 0; i < 4; i++) {
        const cJSON *sizes = member(cJSON_GetArrayItem(table, i), "output");
        assert_int_equal(cJSON_GetArraySize(sizes), 2);
        for (int k = 0; k < (i == 1 ? 2 : 1); k++) {
            const cJSON *one = i == 1 ? cJSON_GetArrayItem(sizes, k) : sizes;
            assert_true(cJSON_GetArrayItem(one, 0)->valuedouble == outputs[i]);
            assert_true(cJSON_GetArrayItem(one, 1)->valuedouble == 6);
        }
    }
    release();
}

/* Steps of a tenth of a millisecond: ten or eleven share a line, and every step is counted in one.
 */
static void fast_steps_share_lines(void **state)
{
    (void)state;
    const char *path;
    fx_run_log *log = open_new(&path);
    double total = 0, by_lines = 0;
    for (int i = 1; i <= 1000; i++) {
        const double loss = (double)(i * 7919 % 1000) / 8;
        total += loss;
        assert_int_equal(fx_run_log_step(log, i, i <= 500 ? 1 : 2, loss, i * 1e-4), 0);
    }
    assert_int_equal(fx_run_log_close(log), 0);
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
    fx_run_log *log = open_new(&path);
    for (int i = 1; i <= 400; i++)
        fx_run_log_step(log, i, 1, 0.5, i <= 200 ? 4.5 + i * 1.001e-3 : 10 + i * 1.001e-3);
    assert_int_equal(fx_run_log_close(log), 0);
    assert_int_equal(parse(path), 0);
    assert_in_range(nlines, 40 + 20, 40 + 20 + 3);
    release();
}

/* An epoch of a second is written at once, directly after the line of a training step; lines of
 * short epochs are collected. */
static void slow_epochs_are_written_at_once(void **state)
{
    (void)state;
    const char *path;
    fx_run_log *log = open_new(&path);
    for (int i = 1; i <= 5; i++) {
        fx_run_log_step(log, i, i, 0.5, i);
        fx_run_log_epoch(log, .epoch = i, .step = i, .loss = 0.5, .seconds = i + 0.001);
        assert_int_equal(parse(path), 0);
        assert_int_equal(nlines, 2 * i);
        release();
    }
    for (int i = 1; i <= 50; i++)
        fx_run_log_epoch(log, .epoch = 5 + i, .step = 5, .loss = 0.5, .seconds = 6 + i * 1e-4);
    assert_int_equal(parse(path), 0);
    assert_in_range(nlines, 10, 12);
    release();
    assert_int_equal(fx_run_log_close(log), 0);
    assert_int_equal(parse(path), 0);
    assert_int_equal(nlines, 60);
    release();
}

static void slow_steps_have_a_line_each(void **state)
{
    (void)state;
    const char *path;
    fx_run_log *log = open_new(&path);
    for (int i = 1; i <= 100; i++)
        fx_run_log_step(log, i, 1, i == 50 ? HUGE_VAL : (double)i, i * 0.011);
    assert_int_equal(fx_run_log_close(log), 0);
    assert_int_equal(parse(path), 0);
    assert_int_equal(nlines, 100);
    assert_true(cJSON_IsNull(member(lines[49], "loss")));
    assert_true(number(lines[99], "loss") == 100);
    release();
}

/* A loss that is NaN is written at once, and does not affect a mean. */
static void a_loss_of_nan_has_its_own_line(void **state)
{
    (void)state;
    const char *path;
    fx_run_log *log = open_new(&path);
    const double losses[] = {4, 1, 3, NAN};
    for (int i = 0; i < 4; i++)
        fx_run_log_step(log, i + 1, 1, losses[i], i * 1e-4);
    assert_int_equal(parse(path), 0); /* before the log is closed */
    assert_int_equal(nlines, 3);
    assert_true(number(lines[1], "loss") == 2 && number(lines[1], "steps") == 2);
    assert_true(number(lines[1], "least") == 1 && number(lines[1], "most") == 3);
    assert_true(cJSON_IsNull(member(lines[2], "loss")) && number(lines[2], "step") == 4);
    release();
    assert_int_equal(fx_run_log_close(log), 0);
}

/* A kill can cut off the last line after every byte: the resumed run removes this line only. */
static void a_log_that_was_cut_off_goes_on(void **state)
{
    (void)state;
    char whole[1500];
    int n =
        snprintf(whole, sizeof whole, "{\"event\":\"start\"}\n{\"event\":\"end\",\"message\":\"");
    const int first = (int)(strchr(whole, '\n') - whole) + 1;
    memset(whole + n, '}', 1200);
    n += snprintf(whole + n + 1200, sizeof whole - (size_t)n - 1200, "\"}\n") + 1200;
    for (int cut = 0; cut <= n; cut++) {
        char start[sizeof whole];
        snprintf(start, sizeof start, "%.*s", cut, whole);
        const char *path = temp_text("cut.jsonl", start);
        fx_run_log *log = fx_run_log_open(path, true);
        assert_non_null(log);
        assert_int_equal(fx_run_log_start(log, .resumed_at_step = 3), 0);
        assert_int_equal(fx_run_log_close(log), 0);
        assert_int_equal(parse(path), 0);
        assert_int_equal(nlines, (cut >= first) + (cut == n) + 1);
        assert_true(number(lines[nlines - 1], "resumed_at_step") == 3);
        release();
    }
}

/* The last line of a file that is not a log is kept. */
static void another_text_is_kept(void **state)
{
    (void)state;
    const char *path = temp_text("notes.txt", "{\"event\":\"start\"}\n{\"events\":3");
    fx_run_log *log = fx_run_log_open(path, true);
    assert_non_null(log);
    assert_int_equal(fx_run_log_start(log, .resumed_at_step = 3), 0);
    assert_int_equal(fx_run_log_close(log), 0);
    assert_int_equal(parse(path), 1);
    assert_int_equal(nlines, 3);
    assert_true(lines[0] && !lines[1] && number(lines[2], "resumed_at_step") == 3);
    release();
}

static int nmessages;
static char message[300];
static void count_message(int level, const char *said, void *user)
{
    (void)level;
    (void)user;
    nmessages++;
    snprintf(message, sizeof message, "%s", said);
}

/* The disk is full after every number of bytes: the file contains only complete lines. */
static void a_full_disk_leaves_whole_lines(void **state)
{
    (void)state;
    struct rlimit was;
    getrlimit(RLIMIT_FSIZE, &was);
    signal(SIGXFSZ, SIG_IGN);
    int whole = 0;
    fx_message_set_hook(count_message, NULL);
    for (rlim_t limit = 0; limit < 400; limit += 7) {
        const char *path = temp_text("full.jsonl", "");
        fx_run_log *log = fx_run_log_open(path, false);
        assert_non_null(log);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){limit, was.rlim_max});
        fx_status failed = FX_OK;
        for (int i = 1; i <= 20 && !failed; i++)
            failed = fx_run_log_step(log, i, 1, 0.5, i);
        setrlimit(RLIMIT_FSIZE, &was);
        assert_int_equal(failed, FX_STATUS_IO);
        assert_int_equal(fx_run_log_step(log, 21, 1, 0.5, 21),
                         FX_STATUS_IO); /* later calls return the first failure */
        assert_int_equal(fx_error_status(), FX_OK);
        assert_int_equal(fx_run_log_close(log), FX_STATUS_IO);
        const fx_error e = fx_error_take();
        assert_non_null(strstr(e.message, path));
        assert_non_null(strstr(e.message, strerror(EFBIG)));
        assert_int_equal(nmessages, 1);
        assert_non_null(strstr(message, "is incomplete from now on: "));
        nmessages = 0;
        assert_int_equal(parse(path), 0);
        whole += nlines;
        release();
    }
    fx_message_set_hook(NULL, NULL);
    signal(SIGXFSZ, SIG_DFL);
    assert_true(whole > 100);
}

static void failures_to_open_say_why(void **state)
{
    (void)state;
    assert_null(fx_run_log_open("/nowhere/run.jsonl", false));
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_IO);
    assert_string_equal(
        e.message, "run_log: cannot open the log /nowhere/run.jsonl: No such file or directory");
    fx_run_log *log = fx_run_log_open(NULL, false);
    assert_non_null(log);
    assert_int_equal(fx_run_log_start(log, .epochs = 1), 0);
    char head[16];
    assert_int_equal(pread(fxi_run_log_descriptor(log), head, 16, 0), 16);
    assert_memory_equal(head, "{\"event\":\"start\"", 16);
    assert_int_equal(fx_run_log_close(log), 0);
    assert_int_equal(fx_run_log_close(NULL), 0);
}

/* ---- fx_train -------------------------------------------------------------------------------- */

enum { OBSERVATIONS = 6, BATCHES = 3 };

static fx_array *squared_error(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_mse(fx_call(model, b->x), b->y);
}

/* The losses that fx_train passes to a callback, for comparison with the log. */
static double losses[64];
static int64_t stop_at; /* the training step after which a callback stops; 0: none */
static fx_flow remember(const fx_progress *p)
{
    losses[p->step] = p->loss;
    return p->step == stop_at ? FX_FLOW_STOP : FX_FLOW_CONTINUE;
}
static double constant_metric(void *model, void *user)
{
    (void)model;
    (void)user;
    return 0.125;
}

static fx_loader *batches(void)
{
    static const float x[OBSERVATIONS] = {0, 1, 2, 3, 4, 5}, y[OBSERVATIONS] = {1, 3, 5, 7, 9, 11};
    void *data = fx_tuple(fx_from(FX_DTYPE_F32, x, 1, OBSERVATIONS),
                          fx_from(FX_DTYPE_F32, y, 1, OBSERVATIONS));
    return fx_dataloader(data, .batchsize = OBSERVATIONS / BATCHES);
}
/* `model` is a name. */
#define TRAIN(model, ...)                                                                          \
    fx_train(squared_error, model, batches(), fx_setup(fx_descent(.eta = 0.01), model),            \
             .on_batch = remember, __VA_ARGS__)

/* The events of a log by kind, each as often as it must be; the training steps of all lines. */
static void count_events(int starts, int epochs, int ends, int64_t steps)
{
    int seen[3] = {0};
    int64_t total = 0;
    for (int i = 0; i < nlines; i++) {
        const char *event = text(lines[i], "event");
        seen[0] += strcmp(event, "start") == 0;
        seen[1] += strcmp(event, "epoch") == 0;
        seen[2] += strcmp(event, "end") == 0;
        if (strcmp(event, "step") == 0)
            total += member(lines[i], "steps") ? (int64_t)number(lines[i], "steps") : 1;
    }
    assert_int_equal(seen[0], starts);
    assert_int_equal(seen[1], epochs);
    assert_int_equal(seen[2], ends);
    assert_int_equal(total, steps);
}

static void fx_train_writes_a_log(void **state)
{
    (void)state;
    FX_SCOPE;
    void *model = fx_dense(1, 1);
    const char *path = temp_text("train.jsonl", "what was here before");
    assert_int_equal(
        TRAIN(model, .epochs = 4, .log = path, .metric = constant_metric, .patience = 20), FX_OK);
    assert_int_equal(parse(path), 0);
    count_events(1, 4, 1, 4 * BATCHES);
    assert_string_equal(text(lines[0], "event"), "start");
    assert_string_equal(text(lines[0], "model"), "Dense(1 => 1)");
    assert_string_equal(text(lines[0], "device"), "CPU");
    assert_true(number(lines[0], "parameters") == 2 && number(lines[0], "epochs") == 4);
    assert_null(member(lines[0], "resumed_at_step"));
    assert_null(member(lines[0], "data"));
    int64_t epoch = 0;
    for (int i = 0; i < nlines; i++) {
        if (strcmp(text(lines[i], "event"), "epoch") != 0)
            continue;
        const int64_t last = ++epoch * BATCHES;
        const double mean = (losses[last - 2] + losses[last - 1] + losses[last]) / BATCHES;
        assert_true(number(lines[i], "epoch") == (double)epoch);
        assert_true(number(lines[i], "step") == (double)last);
        assert_true(fabs(number(lines[i], "loss") - mean) <= 1e-8 * mean);
        assert_true(number(lines[i], "metric") == 0.125);
    }
    const cJSON *end = lines[nlines - 1];
    assert_string_equal(text(end, "why"), "finished");
    assert_true(number(end, "step") == 4 * BATCHES && number(end, "seconds") > 0);
    release();
}

static void the_end_says_why(void **state)
{
    (void)state;
    FX_SCOPE;
    void *model = fx_dense(1, 1);
    const char *path = temp_text("why.jsonl", "");
    assert_int_equal(
        TRAIN(model, .epochs = 9, .log = path, .metric = constant_metric, .patience = 2), FX_OK);
    assert_int_equal(parse(path), 0);
    count_events(1, 3, 1, 3 * BATCHES); /* the first epoch is the best, then two are waited for */
    assert_string_equal(text(lines[nlines - 1], "why"), "patience");
    release();

    stop_at = 5;
    assert_int_equal(TRAIN(model, .epochs = 9, .log = path), FX_OK);
    stop_at = 0;
    assert_int_equal(parse(path), 0);
    count_events(1, 1, 1, 5);
    assert_string_equal(text(lines[nlines - 1], "why"), "interrupted");
    release();

    model = fx_dense(1, 1, .weight_array = fx_full(NAN, 1, 1));
    assert_int_equal(TRAIN(model, .epochs = 2, .log = path), FX_STATUS_NONFINITE);
    const fx_error e = fx_error_take();
    assert_int_equal(parse(path), 0);
    count_events(1, 0, 1, 0);
    assert_string_equal(text(lines[nlines - 1], "why"), "error");
    assert_string_equal(text(lines[nlines - 1], "message"), e.message);
    release();

    assert_int_equal(TRAIN(model, .log = "/nowhere/run.jsonl"), FX_STATUS_IO);
    assert_non_null(strstr(fx_error_take().message, "/nowhere/run.jsonl"));
}

/* Training that resumes from a checkpoint appends to its log. */
static void a_resumed_training_appends(void **state)
{
    (void)state;
    FX_SCOPE;
    void *model = fx_dense(1, 1);
    const char *path = temp_text("resumed.jsonl", "old\n");
    const char *checkpoint = temp_text("resumed.safetensors", "");
    remove(checkpoint);
    char before[300], after[300]; /* a later call of temp_text may overwrite the name */
    snprintf(before, sizeof before, "%s", path);
    snprintf(after, sizeof after, "%s", checkpoint);
    stop_at = 4;
    assert_int_equal(TRAIN(model, .epochs = 3, .log = before, .checkpoint = after), FX_OK);
    stop_at = 0;
    assert_int_equal(TRAIN(model, .epochs = 3, .log = before, .checkpoint = after), FX_OK);
    assert_int_equal(parse(before), 0);
    count_events(2, 3, 2, 3 * BATCHES);
    int second = 1;
    while (second < nlines && strcmp(text(lines[second], "event"), "start") != 0)
        second++;
    assert_true(number(lines[second], "resumed_at_step") == 4);
    release();
}

/* Every allocation and no write fails in turn: an error or a whole log. */
static void without_memory_there_is_an_error(void **state)
{
    (void)state;
    const char *path = temp_text("memory.jsonl", "");
    fx_message_set_hook(NULL, NULL);
    int failures = 0, done = 0;
    for (int64_t nth = 0; nth < 40 && done < 2; nth++) {
        const int64_t live = fxi_live_allocations();
        fxi_fault_set(nth);
        fx_run_log *log = fx_run_log_open(path, false);
        fx_status status = log ? FX_OK : FX_STATUS_MEMORY;
        if (log) {
            fx_run_log_start(log, .model = "Dense(1 => 1)", .optimiser = "Adam()");
            fx_run_log_step(log, 1, 1, 0.5, 1);
            fx_run_log_end(log, .why = "finished", .step = 1, .seconds = 1);
            status = fx_run_log_close(log);
        }
        fxi_fault_set(-1);
        assert_int_equal(status, fx_error_take().status);
        assert_true(status == FX_OK || status == FX_STATUS_MEMORY);
        assert_int_equal(fxi_live_allocations(), live);
        failures += status != FX_OK;
        done += status == FX_OK;
    }
    assert_int_equal(done, 2);
    assert_true(failures >= 3);
    assert_int_equal(parse(path), 0);
    assert_int_equal(nlines, 3);
    release();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_is_written),
        cmocka_unit_test(layers_after_a_tuple),
        cmocka_unit_test(fast_steps_share_lines),
        cmocka_unit_test(slow_epochs_are_written_at_once),
        cmocka_unit_test(slow_steps_have_a_line_each),
        cmocka_unit_test(long_runs_have_fewer_lines),
        cmocka_unit_test(a_loss_of_nan_has_its_own_line),
        cmocka_unit_test(a_log_that_was_cut_off_goes_on),
        cmocka_unit_test(another_text_is_kept),
        cmocka_unit_test(a_full_disk_leaves_whole_lines),
        cmocka_unit_test(failures_to_open_say_why),
        cmocka_unit_test(fx_train_writes_a_log),
        cmocka_unit_test(the_end_says_why),
        cmocka_unit_test(a_resumed_training_appends),
        cmocka_unit_test(without_memory_there_is_an_error),
    };
    return cmocka_run_group_tests_name("run_log", tests, NULL, NULL);
}
