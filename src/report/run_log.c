/* run_log.c: writes the logs of training runs: see cflux/report.h.
 *
 * Every event is built in memory between begin() and put(), and put() writes it with its newline in
 * one system call. Only training steps are numerous: they are collected in the struct and written
 * as one line when it is due. Lines of training steps and epochs that follow each other within
 * FX_RUN_LOG_GAP are written together.
 */
#include "run_log.h"
#include "clock.h"
#include "files.h"
#include "memory.h"
#include "option_struct.h"
#include "run_layers.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const char *const OP = "run_log";

struct fx_run_log {
    int fd;
    int failed;         /* errno of the first failure */
    char *path;         /* for messages */
    fx_json json;       /* builds lines in memory */
    bool held;          /* some lines are not written yet */
    double gathered_at; /* time of the latest line of training steps, in seconds of the run; −1:
                           none */
    double epoch_at;    /* time of the latest line of an epoch */
    double written;     /* time of the latest write */
    struct {
        int64_t n, step, epoch;
        double sum, least, most, seconds;
    } gathered; /* training steps that are not yet in a line */
};

/* ---- lines ----------------------------------------------------------------------------------- */

/* Writes the whole text, or undoes a partial write. Returns 0 or errno. */
static int write_whole(int fd, const char *text, size_t n)
{
    size_t done = 0;
    while (done < n) {
        const int64_t wrote = fxi_os_write(fd, text + done, n - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            break;
        done += (size_t)wrote;
    }
    if (done == n)
        return 0;
    const int why = errno;
    fxi_os_facts now;
    /* A partial write to a pipe cannot be undone; readers then see a truncated line. */
    const bool file = done > 0 && fxi_os_facts_of(fd, &now) == 0 && now.regular;
    return file && fxi_os_resize(fd, now.bytes - (int64_t)done) != 0 ? errno : why;
}

static fx_json *begin(fx_run_log *log, const char *event)
{
    if (!log->held)
        log->json.n = 0;
    log->json.depth = 0;
    log->json.more[0] = false;
    fx_json_open(&log->json, NULL, '{');
    fx_json_text(&log->json, "event", event);
    return &log->json;
}

static fx_status status_of(const fx_run_log *log)
{
    return !log->failed ? FX_OK : log->failed == ENOMEM ? FX_STATUS_MEMORY : FX_STATUS_IO;
}

/* The first failure ends the log. */
static void note_failure(fx_run_log *log, int failed)
{
    if (failed && !log->failed) {
        log->failed = failed;
        fx_message(1, "the log %s is incomplete from now on: %s", log->path, strerror(failed));
    }
}

static fx_status write_held(fx_run_log *log)
{
    if (log->json.failed)
        note_failure(log, ENOMEM);
    if (!log->failed && log->held)
        note_failure(log, write_whole(log->fd, log->json.text, (size_t)log->json.n));
    log->held = false;
    return status_of(log);
}

static fx_status put(fx_run_log *log)
{
    fx_json_end(&log->json);
    log->held = true;
    return write_held(log);
}

/* Like put(), for lines that may come often. `before` is the time of the previous line of the same
 * kind: if lines follow quickly they are collected, because a system call for each would exceed the
 * time allowed for logging. */
static fx_status put_at(fx_run_log *log, double seconds, double before)
{
    const bool fast = before >= 0 && seconds - before < FX_RUN_LOG_GAP;
    fx_json_end(&log->json);
    log->held = true;
    if (fast && log->written >= 0 && seconds - log->written < FX_RUN_LOG_GAP)
        return status_of(log);
    log->written = seconds;
    return write_held(log);
}

enum { DIGITS_SHOWN = 6, DIGITS_FLOAT = 9 };

static void text_if_any(fx_json *j, const char *key, const char *text)
{
    if (text)
        fx_json_text(j, key, text);
}

static void number_if_any(fx_json *j, const char *key, double number)
{
    if (!isnan(number))
        fx_json_rounded(j, key, number, DIGITS_FLOAT);
}

static void count_if_any(fx_json *j, const char *key, int64_t count)
{
    if (count >= 0)
        fx_json_integer(j, key, count);
}

static void integers(fx_json *j, const char *key, const int64_t *numbers, int64_t n)
{
    fx_json_open(j, key, '[');
    for (int64_t i = 0; i < n; i++)
        fx_json_integer(j, NULL, numbers[i]);
    fx_json_close(j);
}

static void texts(fx_json *j, const char *key, const char *const *words, int64_t n)
{
    fx_json_open(j, key, '[');
    for (int64_t i = 0; i < n; i++)
        fx_json_text(j, NULL, words[i]);
    fx_json_close(j);
}

/* Writes one number, or a list of numbers. */
static void values(fx_json *j, const char *key, const double *numbers, int64_t n)
{
    if (n == 1) {
        fx_json_rounded(j, key, numbers[0], DIGITS_SHOWN);
        return;
    }
    fx_json_open(j, key, '[');
    for (int64_t i = 0; i < n; i++)
        fx_json_rounded(j, NULL, numbers[i], DIGITS_SHOWN);
    fx_json_close(j);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Length of the file up to its last newline; −1: a read failed. */
static int64_t bytes_of_whole_lines(int fd, int64_t bytes)
{
    char part[512];
    errno = EIO; /* if a read returns fewer bytes, because the file was made shorter */
    while (bytes > 0) {
        int64_t n = bytes < (int64_t)sizeof part ? bytes : (int64_t)sizeof part;
        bytes -= n;
        if (fxi_os_read_at(fd, part, (size_t)n, bytes) != n)
            return -1;
        for (; n > 0; n--)
            if (part[n - 1] == '\n')
                return bytes + n;
    }
    return 0;
}

/* A kill during a write can cut off the last line: Linux stops a write at the next page of the
 * file. Such a line is removed. If it does not begin like an event, the file is not a log: its text
 * is kept, and gets its newline. Returns 0 or errno. */
static int remove_cut_line(int fd)
{
    static const char event[] = "{\"event\":";
    fxi_os_facts now;
    if (fxi_os_facts_of(fd, &now) != 0 || !now.regular)
        return 0;
    const int64_t whole = bytes_of_whole_lines(fd, now.bytes), cut = now.bytes - whole;
    if (whole < 0)
        return errno;
    if (cut == 0)
        return 0;
    char begins[sizeof event - 1];
    errno = EIO;
    const size_t n = cut < (int64_t)sizeof begins ? (size_t)cut : sizeof begins;
    if (fxi_os_read_at(fd, begins, n, whole) != (int64_t)n)
        return errno;
    if (memcmp(begins, event, n) != 0)
        return write_whole(fd, "\n", 1);
    return fxi_os_resize(fd, whole) != 0 ? errno : 0;
}

static int open_file(const char *path, bool append)
{
    const int mode =
        FXI_OS_READ_WRITE | FXI_OS_CREATE | FXI_OS_APPEND | (append ? 0 : FXI_OS_EMPTY);
    return path ? fxi_os_open(path, mode) : fxi_os_open_temporary();
}

/* NULL if out of memory. */
static fx_run_log *new_log(const char *path)
{
    fx_run_log *log = fxi_calloc(1, sizeof *log);
    char *name = log ? fxi_strdup(path ? path : "of a temporary file") : NULL;
    if (!name) {
        fxi_free(log);
        return NULL;
    }
    log->path = name;
    log->written = log->gathered_at = log->epoch_at = -1;
    return log;
}

static void free_log(fx_run_log *log)
{
    fxi_free(log->json.text);
    fxi_free(log->path);
    fxi_free(log);
}

fx_run_log *fx_run_log_open(const char *path, bool append)
{
    fx_run_log *log = new_log(path);
    if (!log) {
        fx_fail(FX_STATUS_MEMORY, OP, "no memory for the log %s", path ? path : "");
        return NULL;
    }
    log->fd = open_file(path, append);
    if (log->fd < 0) {
        fx_fail(FX_STATUS_IO, OP, "cannot open the log %s: %s", log->path, strerror(errno));
        free_log(log);
        return NULL;
    }
    if (append)
        note_failure(log, remove_cut_line(log->fd));
    return log;
}

static void write_data(fx_json *j, const fx_run_log_start_args *s)
{
    const bool texts_known = s->data_path || s->data_kind || s->target || s->classes;
    if (!texts_known && s->observations < 0 && s->train < 0 && s->validation < 0)
        return;
    fx_json_open(j, "data", '{');
    text_if_any(j, "path", s->data_path);
    text_if_any(j, "kind", s->data_kind);
    text_if_any(j, "target", s->target);
    count_if_any(j, "observations", s->observations);
    count_if_any(j, "train", s->train);
    count_if_any(j, "validation", s->validation);
    if (s->classes)
        texts(j, "classes", s->classes, s->nclasses);
    fx_json_close(j);
}

static void write_time(fx_json *j)
{
    char when[32];
    fxi_clock_utc(when, sizeof when);
    fx_json_text(j, "time", when);
}

static void write_start(fx_json *j, const fx_run_log_start_args *s)
{
    fx_json_text(j, "cflux", fx_version());
    write_time(j);
    text_if_any(j, "model", s->model);
    text_if_any(j, "loss", s->loss);
    text_if_any(j, "optimiser", s->optimiser);
    text_if_any(j, "precision", s->precision);
    write_data(j, s);
    text_if_any(j, "device", s->device);
    count_if_any(j, "seed", s->seed);
    count_if_any(j, "epochs", s->epochs);
    count_if_any(j, "batchsize", s->batchsize);
    count_if_any(j, "parameters", s->parameters);
    if (s->resumed_at_step > 0)
        fx_json_integer(j, "resumed_at_step", s->resumed_at_step);
}

fx_status fxi_run_log_start(fx_run_log *log, const fx_run_log_start_args *given)
{
    FXI_TAKE_OPTIONS(fx_run_log_start_args, FXI_RUN_LOG_START_ARGS, s, OP, given);
    if (!s_ok || !log)
        return s_ok ? FX_OK : FX_STATUS_ARGUMENT;
    write_start(begin(log, "start"), &s);
    return put(log);
}

static fx_status put_steps(fx_run_log *log)
{
    const int64_t n = log->gathered.n;
    if (n == 0)
        return status_of(log);
    fx_json *j = begin(log, "step");
    fx_json_integer(j, "step", log->gathered.step);
    fx_json_integer(j, "epoch", log->gathered.epoch);
    fx_json_rounded(j, "loss", log->gathered.sum / (double)n, DIGITS_FLOAT);
    fx_json_rounded(j, "seconds", log->gathered.seconds, DIGITS_FLOAT);
    if (n > 1) {
        fx_json_integer(j, "steps", n);
        fx_json_rounded(j, "least", log->gathered.least, DIGITS_FLOAT);
        fx_json_rounded(j, "most", log->gathered.most, DIGITS_FLOAT);
    }
    const double before = log->gathered_at;
    log->gathered_at = log->gathered.seconds;
    log->gathered.n = 0;
    return put_at(log, log->gathered_at, before);
}

/* The minimum time between lines of training steps: small at first, so that short runs are logged
 * in detail, and growing, so that logs of long runs stay small. */
static double step_gap(double seconds)
{
    return fmin(FX_RUN_LOG_GAP, fmax(FX_RUN_LOG_GAP / 10, seconds / 1000));
}

fx_status fx_run_log_step(fx_run_log *log, int64_t step, int64_t epoch, double loss, double seconds)
{
    if (!log)
        return FX_OK;
    /* A loss that is not finite is not averaged with others, and neither are training steps of two
     * epochs. */
    if (log->gathered.n > 0 && (!isfinite(loss) || epoch != log->gathered.epoch))
        put_steps(log);
    const bool first = log->gathered.n++ == 0;
    log->gathered.step = step;
    log->gathered.epoch = epoch;
    log->gathered.seconds = seconds;
    log->gathered.sum = first ? loss : log->gathered.sum + loss;
    log->gathered.least = first || loss < log->gathered.least ? loss : log->gathered.least;
    log->gathered.most = first || loss > log->gathered.most ? loss : log->gathered.most;
    const bool due = seconds - log->gathered_at >= step_gap(seconds) || log->gathered_at < 0;
    if (due || !isfinite(loss))
        put_steps(log);
    return isfinite(loss) ? status_of(log) : write_held(log);
}

fx_status fxi_run_log_epoch(fx_run_log *log, const fx_run_log_epoch_args *given)
{
    FXI_TAKE_OPTIONS(fx_run_log_epoch_args, FXI_RUN_LOG_EPOCH_ARGS, e, OP, given);
    if (!e_ok || !log)
        return e_ok ? FX_OK : FX_STATUS_ARGUMENT;
    put_steps(log);
    fx_json *j = begin(log, "epoch");
    fx_json_integer(j, "epoch", e.epoch);
    fx_json_integer(j, "step", e.step);
    fx_json_rounded(j, "loss", e.loss, DIGITS_FLOAT);
    number_if_any(j, "validation_loss", e.validation_loss);
    number_if_any(j, "accuracy", e.accuracy);
    number_if_any(j, "metric", e.metric);
    fx_json_rounded(j, "seconds", e.seconds, DIGITS_FLOAT);
    const double before = log->epoch_at;
    log->epoch_at = e.seconds;
    return put_at(log, e.seconds, before);
}

static void write_confusion(fx_json *j, const fx_run_log_end_args *e)
{
    fx_json_open(j, "confusion", '[');
    for (int64_t truth = 0; truth < e->nclasses; truth++)
        integers(j, NULL, e->confusion + truth * e->nclasses, e->nclasses);
    fx_json_close(j);
}

/* Numbers that measure the model, as an object. */
static void write_scores(fx_json *j, const fx_run_score *scores, int64_t n)
{
    fx_json_open(j, "scores", '{');
    for (int64_t i = 0; i < n; i++)
        fx_json_rounded(j, scores[i].name, scores[i].value, DIGITS_FLOAT);
    fx_json_close(j);
}

/* Lists of a target and its prediction. */
static void write_pairs(fx_json *j, const double *pairs, int64_t n)
{
    fx_json_open(j, "pairs", '[');
    for (int64_t i = 0; i < n; i++)
        values(j, NULL, pairs + 2 * i, 2);
    fx_json_close(j);
}

static void write_samples(fx_json *j, const fx_run_sample *samples, int64_t n, int64_t worst)
{
    fx_json_open(j, "samples", '[');
    for (const fx_run_sample *s = samples; s < samples + n; s++) {
        fx_json_open(j, NULL, '{');
        values(j, "input", s->input, s->ninput);
        integers(j, "shape", s->shape, s->rank);
        values(j, "target", s->target, s->ntarget);
        values(j, s->scores ? "scores" : "output", s->output, s->noutput);
        if (s->scores)
            fx_json_integer(j, "guess", s->guess);
        if (s - samples >= n - worst)
            fx_json_flag(j, "worst", true);
        fx_json_close(j);
    }
    fx_json_close(j);
}

fx_status fxi_run_log_end(fx_run_log *log, const fx_run_log_end_args *given)
{
    FXI_TAKE_OPTIONS(fx_run_log_end_args, FXI_RUN_LOG_END_ARGS, e, OP, given);
    if (!e_ok || !log)
        return e_ok ? FX_OK : FX_STATUS_ARGUMENT;
    put_steps(log);
    fx_json *j = begin(log, "end");
    text_if_any(j, "why", e.why);
    text_if_any(j, "message", e.message);
    fx_json_integer(j, "step", e.step);
    fx_json_rounded(j, "seconds", e.seconds, DIGITS_FLOAT);
    if (e.confusion && e.nclasses > 0)
        write_confusion(j, &e);
    if (e.classes && e.nclasses > 0)
        texts(j, "classes", e.classes, e.nclasses);
    if (e.samples && e.nsamples > 0)
        write_samples(j, e.samples, e.nsamples, e.nworst);
    if (e.columns && e.ncolumns > 0)
        texts(j, "columns", e.columns, e.ncolumns);
    if (e.scores && e.nscores > 0)
        write_scores(j, e.scores, e.nscores);
    if (e.pairs && e.npairs > 0)
        write_pairs(j, e.pairs, e.npairs);
    if (e.model && e.batch)
        fxi_write_layers(j, e.model, e.batch);
    return put(log);
}

fx_status fxi_run_log_flush(fx_run_log *log)
{
    put_steps(log);
    return write_held(log);
}

int fxi_run_log_descriptor(const fx_run_log *log)
{
    return log->fd;
}

fx_status fx_run_log_close(fx_run_log *log)
{
    if (!log)
        return FX_OK;
    fxi_run_log_flush(log);
    if (fxi_os_close(log->fd) != 0)
        note_failure(log, errno);
    const fx_status status = status_of(log);
    if (status != FX_OK)
        fx_fail(status, OP, "the log %s is incomplete: %s", log->path, strerror(log->failed));
    free_log(log);
    return status;
}
