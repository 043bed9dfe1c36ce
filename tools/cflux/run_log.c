/* run_log.c: see run_log.h.
 *
 * Every event is made in memory, between begin() and put(), which writes it with its newline in one
 * go. Only steps are many: they are gathered in the struct, and a line is made of them when one is
 * due. Lines of steps and epochs that follow each other within RUN_LOG_GAP are written together.
 */
#include "run_log.h"

#include "json_out.h"

#include <cflux/base.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct run_log {
    int fd;
    int failed;   /* errno of the first failure */
    FILE *memory; /* where lines are made, and what it made */
    char *lines;
    size_t bytes;
    bool held; /* lines were made that are not written yet */
    json_out json;
    double gathered_at; /* when the last line of steps was made, in seconds of the run; −1: none */
    double epoch_at;    /* the last line of an epoch */
    double written;     /* and when lines were written */
    struct {
        int64_t n, step, epoch;
        double sum, least, most, seconds;
    } gathered; /* steps that are not written yet */
};

/* ---- lines ----------------------------------------------------------------------------------- */

/* Writes it all or takes back what it wrote. Returns 0 or errno. */
static int write_whole(int fd, const char *text, size_t n)
{
    size_t done = 0;
    while (done < n) {
        const ssize_t wrote = write(fd, text + done, n - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            break;
        done += (size_t)wrote;
    }
    if (done == n)
        return 0;
    const int why = errno;
    struct stat now;
    /* Where nothing can be taken back (a pipe) readers see a line that is cut off. */
    const bool file = done > 0 && fstat(fd, &now) == 0 && S_ISREG(now.st_mode);
    return file && ftruncate(fd, now.st_size - (off_t)done) != 0 ? errno : why;
}

static json_out *begin(run_log *log, const char *event)
{
    if (!log->held)
        rewind(log->memory);
    log->json = (json_out){.to = log->memory};
    json_open(&log->json, NULL, '{');
    json_text(&log->json, "event", event);
    return &log->json;
}

static int write_held(run_log *log)
{
    if (!log->failed && (fflush(log->memory) != 0 || ferror(log->memory)))
        log->failed = ENOMEM;
    if (!log->failed && log->held)
        log->failed = write_whole(log->fd, log->lines, log->bytes);
    log->held = false;
    return log->failed;
}

static int put(run_log *log)
{
    json_end(&log->json);
    log->held = true;
    return write_held(log);
}

/* The same for lines that may be many, with the time of the line of their kind before: where those
 * come fast they wait for each other, since a call of the system takes longer than is allowed. */
static int put_at(run_log *log, double seconds, double before)
{
    const bool fast = before >= 0 && seconds - before < RUN_LOG_GAP;
    json_end(&log->json);
    log->held = true;
    if (fast && log->written >= 0 && seconds - log->written < RUN_LOG_GAP)
        return log->failed;
    log->written = seconds;
    return write_held(log);
}

enum { DIGITS_SHOWN = 6, DIGITS_FLOAT = 9 };

static void text_if_any(json_out *j, const char *key, const char *text)
{
    if (text)
        json_text(j, key, text);
}

static void number_if_any(json_out *j, const char *key, double number)
{
    if (!isnan(number))
        json_rounded(j, key, number, DIGITS_FLOAT);
}

static void integers(json_out *j, const char *key, const int64_t *numbers, int64_t n)
{
    json_open(j, key, '[');
    for (int64_t i = 0; i < n; i++)
        json_integer(j, NULL, numbers[i]);
    json_close(j);
}

static void texts(json_out *j, const char *key, const char *const *words, int64_t n)
{
    json_open(j, key, '[');
    for (int64_t i = 0; i < n; i++)
        json_text(j, NULL, words[i]);
    json_close(j);
}

/* One number, or a list of them. */
static void values(json_out *j, const char *key, const double *numbers, int64_t n)
{
    if (n == 1) {
        json_rounded(j, key, numbers[0], DIGITS_SHOWN);
        return;
    }
    json_open(j, key, '[');
    for (int64_t i = 0; i < n; i++)
        json_rounded(j, NULL, numbers[i], DIGITS_SHOWN);
    json_close(j);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Does the file end in the middle of a line? */
static bool is_cut_off(int fd)
{
    struct stat now;
    char last = '\n';
    if (fstat(fd, &now) != 0 || !S_ISREG(now.st_mode) || now.st_size == 0)
        return false;
    return pread(fd, &last, 1, now.st_size - 1) == 1 && last != '\n';
}

static int open_file(const char *path, bool append)
{
    if (path)
        return open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC), 0666);
    char name[512];
    const char *folder = getenv("TMPDIR");
    snprintf(name, sizeof name, "%s/cflux-log-XXXXXX", folder && *folder ? folder : P_tmpdir);
    const int fd = mkostemp(name, O_APPEND | O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    return fd;
}

run_log *run_log_open(const char *path, bool append)
{
    run_log *log = calloc(1, sizeof *log);
    if (!log)
        return NULL;
    log->written = log->gathered_at = log->epoch_at = -1;
    log->fd = open_file(path, append);
    log->memory = log->fd >= 0 ? open_memstream(&log->lines, &log->bytes) : NULL;
    if (!log->memory) {
        const int why = errno;
        if (log->fd >= 0)
            close(log->fd);
        free(log);
        errno = why;
        return NULL;
    }
    if (append && is_cut_off(log->fd))
        log->failed = write_whole(log->fd, "\n", 1);
    return log;
}

static void write_data(json_out *j, const run_start *s)
{
    json_open(j, "data", '{');
    text_if_any(j, "path", s->data.path);
    text_if_any(j, "kind", s->data.kind);
    text_if_any(j, "target", s->data.target);
    json_integer(j, "observations", s->data.observations);
    json_integer(j, "train", s->data.train);
    json_integer(j, "validation", s->data.validation);
    if (s->data.classes)
        texts(j, "classes", s->data.classes, s->data.nclasses);
    json_close(j);
}

int run_log_start(run_log *log, const run_start *s)
{
    const time_t now = time(NULL);
    struct tm utc;
    char when[32] = "";
    if (gmtime_r(&now, &utc))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_out *j = begin(log, "start");
    json_text(j, "cflux", fx_version());
    json_text(j, "time", when);
    text_if_any(j, "model", s->model);
    text_if_any(j, "loss", s->loss);
    text_if_any(j, "optimiser", s->optimiser);
    write_data(j, s);
    text_if_any(j, "device", s->device);
    json_number(j, "seed", (double)s->seed); /* as exact as JSON is */
    json_integer(j, "epochs", s->epochs);
    json_integer(j, "batchsize", s->batchsize);
    json_integer(j, "parameters", s->parameters);
    if (s->resumed_at_step > 0)
        json_integer(j, "resumed_at_step", s->resumed_at_step);
    return put(log);
}

static int put_steps(run_log *log)
{
    const int64_t n = log->gathered.n;
    if (n == 0)
        return log->failed;
    json_out *j = begin(log, "step");
    json_integer(j, "step", log->gathered.step);
    json_integer(j, "epoch", log->gathered.epoch);
    json_rounded(j, "loss", log->gathered.sum / (double)n, DIGITS_FLOAT);
    json_rounded(j, "seconds", log->gathered.seconds, DIGITS_FLOAT);
    if (n > 1) {
        json_integer(j, "steps", n);
        json_rounded(j, "least", log->gathered.least, DIGITS_FLOAT);
        json_rounded(j, "most", log->gathered.most, DIGITS_FLOAT);
    }
    const double before = log->gathered_at;
    log->gathered_at = log->gathered.seconds;
    log->gathered.n = 0;
    return put_at(log, log->gathered_at, before);
}

/* How far lines of steps are apart at least: short runs are looked at closely, and logs of long
 * ones stay small. */
static double step_gap(double seconds)
{
    return fmin(RUN_LOG_GAP, fmax(RUN_LOG_GAP / 10, seconds / 1000));
}

int run_log_step(run_log *log, int64_t step, int64_t epoch, double loss, double seconds)
{
    /* A loss that is no number is not averaged with others, nor are steps of two epochs. */
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
    return isfinite(loss) ? log->failed : write_held(log);
}

int run_log_epoch(run_log *log, const run_epoch *e)
{
    put_steps(log);
    json_out *j = begin(log, "epoch");
    json_integer(j, "epoch", e->epoch);
    json_integer(j, "step", e->step);
    json_rounded(j, "loss", e->loss, DIGITS_FLOAT);
    number_if_any(j, "validation_loss", e->validation_loss);
    number_if_any(j, "accuracy", e->accuracy);
    json_rounded(j, "seconds", e->seconds, DIGITS_FLOAT);
    const double before = log->epoch_at;
    log->epoch_at = e->seconds;
    return put_at(log, e->seconds, before);
}

static void write_confusion(json_out *j, const run_end *e)
{
    json_open(j, "confusion", '[');
    for (int64_t truth = 0; truth < e->nclasses; truth++)
        integers(j, NULL, e->confusion + truth * e->nclasses, e->nclasses);
    json_close(j);
}

static void write_samples(json_out *j, const run_sample *samples, int64_t n)
{
    json_open(j, "samples", '[');
    for (const run_sample *s = samples; s < samples + n; s++) {
        json_open(j, NULL, '{');
        values(j, "input", s->input, s->ninput);
        integers(j, "shape", s->shape, s->rank);
        values(j, "target", s->target, s->ntarget);
        values(j, s->scores ? "scores" : "output", s->output, s->noutput);
        if (s->scores)
            json_integer(j, "guess", s->guess);
        json_close(j);
    }
    json_close(j);
}

static void write_layers(json_out *j, const run_layer *layers, int64_t n)
{
    json_open(j, "layers", '[');
    for (const run_layer *l = layers; l < layers + n; l++) {
        json_open(j, NULL, '{');
        json_text(j, "layer", l->layer);
        integers(j, "output", l->output, l->rank);
        json_integer(j, "parameters", l->parameters);
        json_integer(j, "bytes", l->bytes);
        number_if_any(j, "seconds", l->seconds);
        json_close(j);
    }
    json_close(j);
}

int run_log_end(run_log *log, const run_end *e)
{
    put_steps(log);
    json_out *j = begin(log, "end");
    text_if_any(j, "why", e->why);
    text_if_any(j, "message", e->message);
    json_integer(j, "step", e->step);
    json_rounded(j, "seconds", e->seconds, DIGITS_FLOAT);
    if (e->confusion && e->nclasses > 0)
        write_confusion(j, e);
    if (e->classes && e->nclasses > 0)
        texts(j, "classes", e->classes, e->nclasses);
    if (e->nsamples > 0)
        write_samples(j, e->samples, e->nsamples);
    if (e->nlayers > 0)
        write_layers(j, e->layers, e->nlayers);
    return put(log);
}

int run_log_descriptor(const run_log *log)
{
    return log->fd;
}

int run_log_close(run_log *log)
{
    if (!log)
        return 0;
    put_steps(log);
    write_held(log);
    if (close(log->fd) != 0 && !log->failed)
        log->failed = errno;
    const int failed = log->failed;
    fclose(log->memory);
    free(log->lines);
    free(log);
    return failed;
}
