/* read_log.c: see read_log.h.
 *
 * A table says what each event does to the record. A line that is not JSON, or whose event lacks
 * its numbers, is broken: it is counted, and the first one is named.
 */
#include "read_log.h"

#include "failure.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    log_record *record;
    size_t room_steps, room_epochs; /* how many the arrays have room for */
    double before;                  /* seconds of the runs before this one */
    double last_seconds;            /* of the last event of this run */
    bool same_stretch;              /* the step before belongs to the same run and epoch */
    int events, broken, unknown;
    long line, first_broken, last_broken;
    char unknown_name[40];
    bool no_memory;
} reader;

/* ---- small things ---------------------------------------------------------------------------- */

static void add_warning(log_record *r, const char *format, ...) FXI_PRINTF(2, 3);
static void add_warning(log_record *r, const char *format, ...)
{
    char text[640];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cJSON_AddItemToArray(r->warnings, cJSON_CreateString(text));
}

static double finite_member(const cJSON *event, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(event, name);
    return cJSON_IsNumber(item) && isfinite(item->valuedouble) ? item->valuedouble : NAN;
}

/* Room for one more at the end of an array; NULL without memory. */
static void *one_more(reader *in, void *array, size_t n, size_t *room, size_t size)
{
    if (n < *room)
        return array;
    const size_t wanted = *room ? 2 * *room : 256;
    void *grown = realloc(array, wanted * size);
    if (grown)
        *room = wanted;
    in->no_memory |= !grown;
    return grown;
}

/* ---- events: false where one lacks what it must have ------------------------------------------
 */

static void release_numbers(log_record *r)
{
    for (int i = 0; i < r->nmetrics; i++)
        free(r->metrics[i]);
    r->nsteps = r->nepochs = 0;
    r->nmetrics = 0;
}

/* What was done after the checkpoint was lost with the run, and is done again. */
static void go_back_to(log_record *r, double step)
{
    while (r->nsteps > 0 && r->steps[r->nsteps - 1].step > step)
        r->nsteps--;
    while (r->nepochs > 0 && r->epochs[r->nepochs - 1].step > step)
        r->nepochs--;
}

static bool take_start(reader *in, cJSON *event)
{
    log_record *r = in->record;
    const double resumed = finite_member(event, "resumed_at_step");
    if (resumed > 0) {
        go_back_to(r, resumed);
        const double of_steps = r->nsteps > 0 ? r->steps[r->nsteps - 1].seconds : NAN;
        const double of_epochs = r->nepochs > 0 ? r->epochs[r->nepochs - 1].seconds : NAN;
        const double before = fmax(of_steps, of_epochs); /* the one that is a number, if any */
        in->before = isnan(before) ? 0 : before;
        add_warning(r, "The run was interrupted, and went on from the checkpoint of step %.15g.",
                    resumed);
    } else {
        if (r->start || r->nsteps > 0)
            add_warning(r, "The log holds several runs; this is the last.");
        release_numbers(r);
        in->before = 0;
    }
    in->same_stretch = false;
    cJSON_Delete(r->end);
    r->end = NULL;
    cJSON_Delete(r->start);
    r->start = cJSON_Duplicate(event, true);
    in->no_memory |= !r->start;
    return true;
}

static bool take_step(reader *in, cJSON *event)
{
    log_record *r = in->record;
    log_step s = {.step = finite_member(event, "step"),
                  .epoch = finite_member(event, "epoch"),
                  .steps = finite_member(event, "steps"),
                  .loss = finite_member(event, "loss"),
                  .least = finite_member(event, "least"),
                  .most = finite_member(event, "most"),
                  .seconds = in->before + finite_member(event, "seconds"),
                  .each = NAN};
    if (isnan(s.step) || !cJSON_HasObjectItem(event, "loss"))
        return false;
    s.steps = s.steps >= 1 ? s.steps : 1;
    s.least = isnan(s.least) ? s.loss : s.least;
    s.most = isnan(s.most) ? s.loss : s.most;
    log_step *grown = one_more(in, r->steps, r->nsteps, &in->room_steps, sizeof *grown);
    if (!grown)
        return true;
    r->steps = grown;
    const log_step *before = r->nsteps > 0 ? &grown[r->nsteps - 1] : NULL;
    /* Between two epochs there is more than a step: validation, a checkpoint. */
    if (before && in->same_stretch && before->epoch == s.epoch && s.seconds >= before->seconds)
        s.each = (s.seconds - before->seconds) / s.steps;
    in->same_stretch = true;
    grown[r->nsteps++] = s;
    return true;
}

/* The place of a metric in the record; −1 when there is no room for one more. */
static int metric_place(reader *in, const char *name)
{
    static const char *const others[] = {"epoch", "step", "seconds"};
    log_record *r = in->record;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(name, others[i]) == 0)
            return -1;
    for (int i = 0; i < r->nmetrics; i++)
        if (strcmp(name, r->metrics[i]) == 0)
            return i;
    if (r->nmetrics == LOG_METRICS)
        return -1;
    char *copy = strdup(name);
    in->no_memory |= !copy;
    if (!copy)
        return -1;
    for (size_t i = 0; i < r->nepochs; i++)
        r->epochs[i].metrics[r->nmetrics] = NAN;
    r->metrics[r->nmetrics] = copy;
    return r->nmetrics++;
}

static bool take_epoch(reader *in, cJSON *event)
{
    log_record *r = in->record;
    log_epoch e = {.step = finite_member(event, "step"),
                   .epoch = finite_member(event, "epoch"),
                   .seconds = in->before + finite_member(event, "seconds")};
    if (isnan(e.step) || isnan(e.epoch))
        return false;
    for (int i = 0; i < LOG_METRICS; i++)
        e.metrics[i] = NAN;
    for (const cJSON *item = event->child; item; item = item->next) {
        const int place = cJSON_IsNumber(item) ? metric_place(in, item->string) : -1;
        if (place >= 0 && isfinite(item->valuedouble))
            e.metrics[place] = item->valuedouble;
    }
    in->same_stretch = false;
    log_epoch *grown = one_more(in, r->epochs, r->nepochs, &in->room_epochs, sizeof *grown);
    if (!grown)
        return true;
    r->epochs = grown;
    grown[r->nepochs++] = e;
    return true;
}

static bool take_end(reader *in, cJSON *event)
{
    cJSON_Delete(in->record->end);
    in->record->end = cJSON_Duplicate(event, true);
    in->no_memory |= !in->record->end;
    return true;
}

static const struct {
    const char *name;
    bool (*take)(reader *in, cJSON *event);
} events[] = {{"start", take_start}, {"step", take_step}, {"epoch", take_epoch}, {"end", take_end}};
enum { EVENTS = sizeof events / sizeof events[0] };

/* ---- lines ----------------------------------------------------------------------------------- */

static void note_unknown(reader *in, const char *name)
{
    if (in->unknown++ == 0)
        snprintf(in->unknown_name, sizeof in->unknown_name, "%s", name);
}

static bool take_event(reader *in, cJSON *event)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(event, "event");
    const char *name = cJSON_GetStringValue(item);
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
    cJSON *event = strlen(text) == n ? cJSON_ParseWithOpts(text, NULL, true) : NULL;
    if (cJSON_IsObject(event) && take_event(in, event)) {
        in->events++;
    } else {
        in->first_broken = in->broken++ == 0 ? in->line : in->first_broken;
        in->last_broken = in->line;
    }
    cJSON_Delete(event);
}

static void warn_of_lines(const reader *in, const char *name)
{
    if (in->broken == 1 && in->last_broken == in->line)
        add_warning(in->record, "The last line of the log is broken and was left out.");
    else if (in->broken > 0)
        add_warning(in->record, "Broken lines of the log were left out: %d, the first is line %ld.",
                    in->broken, in->first_broken);
    if (in->broken > 0)
        warn("%s: line %ld is not an event of a log%s", name, in->first_broken,
             in->broken == 1 ? "; it is left out" : ", nor are others; they are left out");
    if (in->unknown > 0)
        add_warning(in->record, "Events of other kinds were left out: %d, the first is \"%s\".",
                    in->unknown, in->unknown_name);
}

static void warn_of_run(log_record *r)
{
    size_t bad = 0;
    double first = 0;
    for (size_t i = 0; i < r->nsteps; i++)
        if (isnan(r->steps[i].loss) && bad++ == 0)
            first = r->steps[i].step;
    if (bad > 0)
        add_warning(r, "The loss was not a finite number at step %.15g.", first);
    const char *why = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(r->end, "why"));
    const char *message = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(r->end, "message"));
    if (why && strcmp(why, "interrupted") == 0)
        add_warning(r, "The run was interrupted before its end.");
    if (why && strcmp(why, "error") == 0)
        add_warning(r, "The run failed: %s", message ? message : "the log does not say why.");
    if (!r->start)
        add_warning(r, "The log has no start: its settings are not known.");
    if (!r->end)
        add_warning(r, "The log has no end: the run still goes on, or was killed.");
}

int read_log(FILE *file, const char *name, log_record *out)
{
    *out = (log_record){.warnings = cJSON_CreateArray()};
    reader in = {.record = out, .no_memory = !out->warnings};
    char *text = NULL;
    size_t room = 0;
    errno = 0;
    for (ssize_t n; !in.no_memory && (n = getline(&text, &room, file)) >= 0;) {
        if (n > 0 && text[n - 1] == '\n')
            text[--n] = '\0';
        take_line(&in, text, (size_t)n);
    }
    const bool unread = ferror(file) != 0;
    const int why = errno;
    free(text);
    if (in.no_memory || (!unread && why == ENOMEM))
        return fail(EXIT_FAILED, "%s: out of memory", name);
    if (unread)
        return fail(EXIT_BAD_INPUT, "%s: %s", name, strerror(why));
    if (in.events == in.unknown)
        return fail(EXIT_BAD_INPUT, "%s is not the log of a training run: %s", name,
                    in.line == 0 ? "it is empty" : "no line of it is a start, step, epoch or end");
    warn_of_lines(&in, name);
    warn_of_run(out);
    return EXIT_FINE;
}

void log_record_release(log_record *r)
{
    release_numbers(r);
    free(r->steps);
    free(r->epochs);
    cJSON_Delete(r->start);
    cJSON_Delete(r->end);
    cJSON_Delete(r->warnings);
    *r = (log_record){0};
}
