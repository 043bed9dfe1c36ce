/* read_log.c: reads the log of a training run: see read_log.h. A table assigns each event a
 * function that updates the record. A line that is not JSON, or whose event lacks its numbers, is
 * broken: broken lines are counted, and the first one is reported.
 */
#include "read_log.h"
#include "c_text.h"
#include "memory.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

static const char *const OP = "report";

typedef struct reader {
    fxi_log_record *record;
    size_t step_capacity, epoch_capacity; /* of the arrays in the record */
    fxi_json *event;       /* event of the current line; NULL once the record owns it */
    double before;         /* seconds of all earlier runs */
    double latest_seconds; /* of the latest event of this run */
    bool same_stretch; /* the previous line of training steps belongs to the same run and epoch */
    int events, broken, unknown;
    long line, first_broken, last_broken;
    char unknown_name[40];
    bool no_memory;
    const char *name; /* of the file, for messages */
} reader;

/* ---- helpers --------------------------------------------------------------------------------- */

static void add_warning(reader *in, const char *format, ...) FXI_PRINTF(2, 3);
static void add_warning(reader *in, const char *format, ...)
{
    fxi_log_record *r = in->record;
    char text[640];
    va_list args;
    va_start(args, format);
    fxi_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *copy = fxi_strdup(text);
    if (copy && fxi_grow(&r->warnings, &r->capacity, r->nwarnings + 1, sizeof copy)) {
        r->warnings[r->nwarnings++] = copy;
        return;
    }
    fxi_free(copy);
    in->no_memory = true;
}

static double finite_member(const fxi_json *event, const char *name)
{
    return fxi_json_number_of(fxi_json_member(event, name));
}

/* Makes space for one more item at the end of an array; NULL if out of memory. */
static void *one_more(reader *in, void *array, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity)
        return array;
    const size_t wanted = *capacity ? 2 * *capacity : 256;
    void *grown = fxi_realloc(array, wanted * size);
    if (grown)
        *capacity = wanted;
    in->no_memory |= !grown;
    return grown;
}

/* ---- events: false if a required member is missing ------------------------------------------- */

/* Discards the training steps and epochs that were read so far, with their metrics and warnings. */
static void free_contents(fxi_log_record *r)
{
    for (int i = 0; i < r->nmetrics; i++)
        fxi_free(r->metrics[i]);
    for (int32_t i = 0; i < r->nwarnings; i++)
        fxi_free(r->warnings[i]);
    r->nsteps = r->nepochs = 0;
    r->nmetrics = r->nwarnings = 0;
}

/* Drops the training steps after the checkpoint: the stopped run lost them, and the resumed run
 * repeats them. */
static void go_back_to(fxi_log_record *r, double step)
{
    while (r->nsteps > 0 && r->steps[r->nsteps - 1].step > step)
        r->nsteps--;
    while (r->nepochs > 0 && r->epochs[r->nepochs - 1].step > step)
        r->nepochs--;
}

static bool take_start(reader *in, fxi_json *event)
{
    fxi_log_record *r = in->record;
    const double resumed = finite_member(event, "resumed_at_step");
    if (resumed > 0) {
        go_back_to(r, resumed);
        const double of_steps = r->nsteps > 0 ? r->steps[r->nsteps - 1].seconds : NAN;
        const double of_epochs = r->nepochs > 0 ? r->epochs[r->nepochs - 1].seconds : NAN;
        const double before =
            fmax(of_steps, of_epochs); /* fmax returns the number if the other is NaN */
        in->before = isnan(before) ? 0 : before;
        add_warning(
            in, "The run was interrupted and resumed from the checkpoint of training step %.15g.",
            resumed);
    } else {
        const bool several = r->start || r->nsteps > 0;
        free_contents(r);
        if (several)
            add_warning(in, "The log contains several runs; this is the last one.");
        in->before = 0;
    }
    in->same_stretch = false;
    fxi_json_free(r->end);
    r->end = NULL;
    fxi_json_free(r->start);
    r->start = in->event;
    in->event = NULL;
    return true;
}

static bool take_step(reader *in, fxi_json *event)
{
    fxi_log_record *r = in->record;
    fxi_log_step s = {.step = finite_member(event, "step"),
                      .epoch = finite_member(event, "epoch"),
                      .steps = finite_member(event, "steps"),
                      .loss = finite_member(event, "loss"),
                      .least = finite_member(event, "least"),
                      .most = finite_member(event, "most"),
                      .seconds = in->before + finite_member(event, "seconds"),
                      .each = NAN};
    if (isnan(s.step) || !fxi_json_member(event, "loss"))
        return false;
    s.steps = s.steps >= 1 ? s.steps : 1;
    s.least = isnan(s.least) ? s.loss : s.least;
    s.most = isnan(s.most) ? s.loss : s.most;
    fxi_log_step *grown = one_more(in, r->steps, r->nsteps, &in->step_capacity, sizeof *grown);
    if (!grown)
        return true;
    r->steps = grown;
    const fxi_log_step *before = r->nsteps > 0 ? &grown[r->nsteps - 1] : NULL;
    /* Only within an epoch: between two epochs the time also includes validation or a checkpoint.
     */
    if (before && in->same_stretch && before->epoch == s.epoch && s.seconds >= before->seconds)
        s.each = (s.seconds - before->seconds) / s.steps;
    in->same_stretch = true;
    grown[r->nsteps++] = s;
    return true;
}

/* The index of a metric in the record; −1 if the name is not a metric, or the record is full. */
static int metric_index(reader *in, const char *name)
{
    static const char *const others[] = {"epoch", "step", "seconds"};
    fxi_log_record *r = in->record;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(name, others[i]) == 0)
            return -1;
    for (int i = 0; i < r->nmetrics; i++)
        if (strcmp(name, r->metrics[i]) == 0)
            return i;
    if (r->nmetrics == FXI_LOG_METRICS)
        return -1;
    char *copy = fxi_strdup(name);
    in->no_memory |= !copy;
    if (!copy)
        return -1;
    for (size_t i = 0; i < r->nepochs; i++)
        r->epochs[i].metrics[r->nmetrics] = NAN;
    r->metrics[r->nmetrics] = copy;
    return r->nmetrics++;
}

static bool take_epoch(reader *in, fxi_json *event)
{
    fxi_log_record *r = in->record;
    fxi_log_epoch e = {.step = finite_member(event, "step"),
                       .epoch = finite_member(event, "epoch"),
                       .seconds = in->before + finite_member(event, "seconds")};
    if (isnan(e.step) || isnan(e.epoch))
        return false;
    for (int i = 0; i < FXI_LOG_METRICS; i++)
        e.metrics[i] = NAN;
    for (const fxi_json *item = event->child; item; item = item->next) {
        const int metric = fxi_json_is(item, FXI_JSON_NUMBER) ? metric_index(in, item->name) : -1;
        if (metric >= 0 && isfinite(item->number))
            e.metrics[metric] = item->number;
    }
    in->same_stretch = false;
    fxi_log_epoch *grown = one_more(in, r->epochs, r->nepochs, &in->epoch_capacity, sizeof *grown);
    if (!grown)
        return true;
    r->epochs = grown;
    grown[r->nepochs++] = e;
    return true;
}

static bool take_end(reader *in, fxi_json *event)
{
    fxi_json_free(in->record->end);
    in->record->end = event;
    in->event = NULL;
    return true;
}

static const struct {
    const char *name;
    bool (*take)(reader *in, fxi_json *event);
} events[] = {{"start", take_start}, {"step", take_step}, {"epoch", take_epoch}, {"end", take_end}};
enum { EVENTS = sizeof events / sizeof events[0] };

/* ---- lines ----------------------------------------------------------------------------------- */

static void note_unknown(reader *in, const char *name)
{
    if (in->unknown++ == 0)
        snprintf(in->unknown_name, sizeof in->unknown_name, "%s", name);
}

static bool take_event(reader *in, fxi_json *event)
{
    const fxi_json *item = fxi_json_member(event, "event");
    const char *name = fxi_json_text_of(item);
    if (!name)
        return false;
    for (int i = 0; i < EVENTS; i++)
        if (strcmp(name, events[i].name) == 0)
            return events[i].take(in, event);
    note_unknown(in, name);
    return true;
}

static void take_line(reader *in, const char *text, size_t n)
{
    in->line++;
    if (n == 0)
        return;
    fxi_bytes b = {
        .data = (const unsigned char *)text, .size = n, .op = OP, .path = in->name, .quiet = true};
    in->event = fxi_json_read(&b);
    in->no_memory |= b.status == FX_STATUS_MEMORY;
    if (in->no_memory)
        return;
    if (fxi_json_is(in->event, FXI_JSON_OBJECT) && take_event(in, in->event)) {
        in->events++;
    } else {
        in->first_broken = in->broken++ == 0 ? in->line : in->first_broken;
        in->last_broken = in->line;
    }
    fxi_json_free(in->event);
    in->event = NULL;
}

/* Reads the file line by line. */
typedef struct lines {
    FILE *file;
    char chunk[1 << 14];
    size_t at, n; /* position and size of the chunk */
    char *text;   /* current line, without its newline */
    int32_t length, capacity;
    bool no_memory;
} lines;

static bool add_to_line(lines *l, const char *from, size_t n)
{
    l->no_memory = n > (size_t)(INT32_MAX - 1 - l->length) ||
                   !fxi_grow(&l->text, &l->capacity, l->length + (int32_t)n + 1, 1);
    if (l->no_memory)
        return false;
    memcpy(l->text + l->length, from, n);
    l->length += (int32_t)n;
    return true;
}

/* False at the end of the file, after a failed read, and if out of memory. */
static bool next_line(lines *l)
{
    bool any = false;
    l->length = 0;
    for (;;) {
        if (l->at == l->n) {
            l->at = 0;
            l->n = fread(l->chunk, 1, sizeof l->chunk, l->file);
        }
        if (l->n == 0)
            return any;
        any = true;
        const char *from = l->chunk + l->at, *end = memchr(from, '\n', l->n - l->at);
        const size_t n = end ? (size_t)(end - from) : l->n - l->at;
        l->at += n + (end != NULL);
        if (!add_to_line(l, from, n))
            return false;
        if (end)
            return true;
    }
}

static void warn_of_lines(reader *in)
{
    if (in->broken == 1 && in->last_broken == in->line)
        add_warning(in, "The last line of the log is damaged and was ignored.");
    else if (in->broken > 0)
        add_warning(in, "Damaged lines of the log were ignored: %d, the first is line %ld.",
                    in->broken, in->first_broken);
    if (in->broken > 0)
        fx_message(1, "%s: line %ld is not an event of a log%s", in->name, in->first_broken,
                   in->broken == 1 ? "; it is ignored"
                                   : "; this line and others like it are ignored");
    if (in->unknown > 0)
        add_warning(in, "Unknown events were ignored: %d, the first is \"%s\".", in->unknown,
                    in->unknown_name);
}

static void warn_of_run(reader *in)
{
    const fxi_log_record *r = in->record;
    size_t bad = 0;
    double first = 0;
    for (size_t i = 0; i < r->nsteps; i++)
        if (isnan(r->steps[i].loss) && bad++ == 0)
            first = r->steps[i].step;
    if (bad > 0)
        add_warning(in, "The loss was not a finite number at training step %.15g.", first);
    const char *why = fxi_json_text_of(fxi_json_member(r->end, "why"));
    const char *message = fxi_json_text_of(fxi_json_member(r->end, "message"));
    if (why && strcmp(why, "interrupted") == 0)
        add_warning(in, "The run was interrupted before its end.");
    if (why && strcmp(why, "error") == 0)
        add_warning(in, "The run failed: %s", message ? message : "the log does not say why.");
    if (!r->start)
        add_warning(in, "The log has no start event: its settings are unknown.");
    if (!r->end)
        add_warning(in, "The log has no end event: the run is still running, or was killed.");
}

static fx_status read_lines(reader *in, FILE *file)
{
    lines l = {.file = file};
    errno = 0;
    while (!in->no_memory && next_line(&l))
        take_line(in, l.text, (size_t)l.length);
    const int why = errno;
    in->no_memory |= l.no_memory;
    fxi_free(l.text);
    if (!in->no_memory && ferror(file))
        return fx_fail(FX_STATUS_IO, OP, "%s: %s", in->name, strerror(why));
    return FX_OK;
}

fx_status fxi_read_log(FILE *file, const char *name, fxi_log_record *out)
{
    *out = (fxi_log_record){.start = NULL};
    reader in = {.record = out, .name = name};
    fx_status status = read_lines(&in, file);
    if (status == FX_OK && !in.no_memory && in.events == in.unknown)
        status = fx_fail(FX_STATUS_FORMAT, OP, "%s is not the log of a training run: %s", name,
                         in.line == 0 ? "it is empty"
                                      : "it contains no start, step, epoch or end event");
    if (status == FX_OK && !in.no_memory) {
        warn_of_lines(&in);
        warn_of_run(&in);
    }
    return in.no_memory ? fx_fail(FX_STATUS_MEMORY, OP, "%s: out of memory", name) : status;
}

void fxi_log_free(fxi_log_record *r)
{
    free_contents(r);
    fxi_free(r->steps);
    fxi_free(r->epochs);
    fxi_json_free(r->start);
    fxi_json_free(r->end);
    fxi_free((void *)r->warnings);
    *r = (fxi_log_record){0};
}
