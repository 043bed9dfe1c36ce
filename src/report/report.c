/* report.c: fx_report: the page of a training run (cflux/report.h).
 *
 * The page is a template (page/) with one placeholder for a JSON document, which the page's script
 * draws. All text from the log passes through that document and the script sets it as text, so
 * nothing in a log can become markup. Long runs are thinned here, because the page does not get the
 * whole log: of each stretch only the extremes are drawn, and the smooth curve is computed from
 * every line.
 */
#include "file_out.h"
#include "files.h"
#include "json.h"
#include "memory.h"
#include "option_struct.h"
#include "read_log.h"
#include "report_page.h"
#include "report_sample.h"
#include "run_log.h"

#include <cflux/report.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const OP = "report";

/* Maximum number of points drawn. WINDOW_PART: the smooth curve averages over this fraction (1/50)
 * of the lines. */
enum { STEPS_DRAWN = 3000, EPOCHS_DRAWN = 1500, WINDOW_PART = 50, LINES_TO_SMOOTH = 20 };

/* ---- points ---------------------------------------------------------------------------------- */

/* The lines of training steps, and the epochs, as tables of numbers. */
typedef struct points {
    const fxi_log_record *run;
    size_t n;
    double (*at)(const fxi_log_record *run, size_t i, int column);
    bool *keep; /* the rows that are drawn */
} points;

enum { STEP, STEP_EPOCH, STEP_SECONDS, STEP_LOSS, STEP_LEAST, STEP_MOST };
static double step_at(const fxi_log_record *run, size_t i, int column)
{
    const fxi_log_step *s = &run->steps[i];
    const double all[] = {s->step, s->epoch, s->seconds, s->loss, s->least, s->most};
    return all[column];
}

enum { EPOCH, EPOCH_STEP, EPOCH_SECONDS, EPOCH_METRICS };
static double epoch_at(const fxi_log_record *run, size_t i, int column)
{
    const fxi_log_epoch *e = &run->epochs[i];
    const double all[] = {e->epoch, e->step, e->seconds};
    return column < EPOCH_METRICS ? all[column] : e->metrics[column - EPOCH_METRICS];
}

/* Marks the rows with the minimum and the maximum of a column from `begin` to `end`. */
static void keep_extremes(points *p, int column, size_t begin, size_t end)
{
    size_t least = begin, greatest = begin;
    for (size_t i = begin; i < end; i++) {
        const double x = p->at(p->run, i, column);
        const double low = p->at(p->run, least, column), high = p->at(p->run, greatest, column);
        least = isnan(low) || x < low ? i : least;
        greatest = isnan(high) || x > high ? i : greatest;
    }
    p->keep[least] = p->keep[greatest] = true;
}

/* Marks the rows to draw: all of them, or the extremes of each column in equal stretches, about
 * `most` rows in total. The first and the final row are always marked. False if out of memory. */
static bool thin(points *p, int first_column, int columns, size_t most)
{
    p->keep = fxi_calloc(p->n + 1, sizeof *p->keep);
    if (!p->keep)
        return false;
    const size_t wanted = p->n <= most ? p->n : most / (2 * (size_t)columns);
    for (size_t s = 0; s < wanted; s++)
        for (int c = 0; c < columns; c++)
            keep_extremes(p, first_column + c, p->n * s / wanted, p->n * (s + 1) / wanted);
    if (p->n > 0)
        p->keep[0] = p->keep[p->n - 1] = true;
    return true;
}

static void write_column(fx_json *j, const char *key, const points *p, int column, int digits)
{
    fx_json_open(j, key, '[');
    for (size_t i = 0; i < p->n; i++)
        if (p->keep[i])
            fx_json_rounded(j, NULL, p->at(p->run, i, column), digits);
    fx_json_close(j);
}

static void write_counts(fx_json *j, const points *p)
{
    size_t drawn = 0;
    for (size_t i = 0; i < p->n; i++)
        drawn += p->keep[i];
    fx_json_integer(j, "logged", (int64_t)p->n);
    fx_json_integer(j, "drawn", (int64_t)drawn);
}

/* ---- the curves ------------------------------------------------------------------------------ */

enum { DIGITS = 6, DIGITS_EXACT = 17 };

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The mean loss of the lines around `middle`, weighted by their numbers of training steps. Near the
 * ends the window shrinks on both sides. Each sum is computed separately: in a running sum, one
 * loss of 1e30 would destroy the digits of all later values. */
static double smooth_loss(const fxi_log_record *run, size_t middle, size_t most)
{
    const size_t half = least_of(most, least_of(middle, run->nsteps - 1 - middle));
    double sum = 0, count = 0;
    for (const fxi_log_step *s = run->steps + middle - half; s <= run->steps + middle + half; s++)
        if (!isnan(s->loss)) {
            sum += s->loss * s->steps;
            count += s->steps;
        }
    return count > 0 ? sum / count : NAN;
}

static void write_smooth(fx_json *j, const points *p)
{
    if (p->n < LINES_TO_SMOOTH)
        return;
    const size_t half = p->n / WINDOW_PART / 2 + 1;
    fx_json_integer(j, "window", (int64_t)(2 * half + 1));
    fx_json_open(j, "smooth", '[');
    for (size_t i = 0; i < p->n; i++)
        if (p->keep[i])
            fx_json_rounded(j, NULL, smooth_loss(p->run, i, half), DIGITS);
    fx_json_close(j);
}

static bool write_steps(fx_json *j, const fxi_log_record *run)
{
    points p = {run, run->nsteps, step_at, NULL};
    if (!thin(&p, STEP_LEAST, 2, STEPS_DRAWN))
        return false;
    bool shared = false;
    for (size_t i = 0; i < run->nsteps; i++)
        shared = shared || run->steps[i].steps > 1;
    fx_json_open(j, "steps", '{');
    write_counts(j, &p);
    write_column(j, "step", &p, STEP, DIGITS_EXACT);
    write_column(j, "epoch", &p, STEP_EPOCH, DIGITS_EXACT);
    write_column(j, "seconds", &p, STEP_SECONDS, DIGITS);
    write_column(j, "loss", &p, STEP_LOSS, DIGITS);
    if (shared) {
        write_column(j, "least", &p, STEP_LEAST, DIGITS);
        write_column(j, "most", &p, STEP_MOST, DIGITS);
    }
    write_smooth(j, &p);
    fx_json_close(j);
    fxi_free(p.keep);
    return true;
}

static bool write_epochs(fx_json *j, const fxi_log_record *run)
{
    points p = {run, run->nepochs, epoch_at, NULL};
    /* Without metrics, the column of epoch numbers takes their place. */
    const int first = run->nmetrics > 0 ? EPOCH_METRICS : EPOCH;
    if (!thin(&p, first, run->nmetrics > 0 ? run->nmetrics : 1, EPOCHS_DRAWN))
        return false;
    fx_json_open(j, "epochs", '{');
    write_counts(j, &p);
    write_column(j, "epoch", &p, EPOCH, DIGITS_EXACT);
    write_column(j, "step", &p, EPOCH_STEP, DIGITS_EXACT);
    write_column(j, "seconds", &p, EPOCH_SECONDS, DIGITS);
    fx_json_open(j, "metrics", '[');
    for (int m = 0; m < run->nmetrics; m++) {
        fx_json_open(j, NULL, '{');
        fx_json_text(j, "name", run->metrics[m]);
        write_column(j, "values", &p, EPOCH_METRICS + m, DIGITS);
        fx_json_close(j);
    }
    fx_json_close(j);
    fx_json_close(j);
    fxi_free(p.keep);
    return true;
}

/* ---- time per training step ------------------------------------------------------------------ */

static int by_time(const void *a, const void *b)
{
    const double x = (*(const fxi_log_step *const *)a)->each,
                 y = (*(const fxi_log_step *const *)b)->each;
    return (x > y) - (x < y);
}

/* The time that a fraction `part` of the training steps does not exceed. Requires a non-empty,
 * sorted list. */
static double quantile(const fxi_log_step *const *sorted, size_t n, double part)
{
    double total = 0, so_far = 0;
    for (size_t i = 0; i < n; i++)
        total += sorted[i]->steps;
    for (size_t i = 0; i < n; i++)
        if ((so_far += sorted[i]->steps) >= part * total)
            return sorted[i]->each;
    return sorted[n - 1]->each;
}

static bool write_times(fx_json *j, const fxi_log_record *run)
{
    const fxi_log_step **sorted = fxi_malloc((run->nsteps + 1) * sizeof *sorted);
    size_t n = 0;
    if (!sorted)
        return false;
    for (size_t i = 0; i < run->nsteps; i++)
        if (!isnan(run->steps[i].each))
            sorted[n++] = &run->steps[i];
    qsort(sorted, n, sizeof *sorted, by_time);
    if (n > 0) {
        fx_json_open(j, "times", '{');
        fx_json_rounded(j, "median", quantile(sorted, n, 0.5), DIGITS);
        fx_json_rounded(j, "p95", quantile(sorted, n, 0.95), DIGITS);
        fx_json_rounded(j, "greatest", sorted[n - 1]->each, DIGITS);
        fx_json_integer(j, "lines", (int64_t)n);
        fx_json_close(j);
    }
    fxi_free(sorted);
    return true;
}

/* ---- values copied from the log -------------------------------------------------------------- */

/* Limits that keep the page small for any log. */
enum {
    TEXT_MOST = 4000,
    MEMBERS_MOST = 256,
    DEPTH_MOST = 4,
    CLASSES_MOST = 100,
    PAIRS_MOST = 1000
};

static void write_text(fx_json *j, const char *key, const char *text)
{
    if (strlen(text) <= TEXT_MOST) {
        fx_json_text(j, key, text);
        return;
    }
    char cut[TEXT_MOST + sizeof "…"];
    size_t n = TEXT_MOST;
    while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--; /* do not cut inside a UTF-8 character */
    memcpy(cut, text, n);
    strcpy(cut + n, "…");
    fx_json_text(j, key, cut);
}

static void write_item(fx_json *j, const char *key, const fxi_json *item, int depth)
{
    const bool list = fxi_json_is(item, FXI_JSON_LIST), object = fxi_json_is(item, FXI_JSON_OBJECT);
    if (fxi_json_is(item, FXI_JSON_TEXT))
        write_text(j, key, item->text);
    else if (fxi_json_is(item, FXI_JSON_NUMBER))
        fx_json_number(j, key, item->number);
    else if (fxi_json_is(item, FXI_JSON_FLAG))
        fx_json_flag(j, key, item->flag);
    else if ((!list && !object) || depth == DEPTH_MOST)
        fx_json_text(j, key, NULL);
    else {
        fx_json_open(j, key, object ? '{' : '[');
        int left = MEMBERS_MOST;
        for (const fxi_json *child = item->child; child && left-- > 0; child = child->next)
            write_item(j, object ? child->name : NULL, child, depth + 1);
        fx_json_close(j);
    }
}

static void write_member(fx_json *j, const char *name, const fxi_json *event)
{
    const fxi_json *item = fxi_json_member(event, name);
    if (item)
        write_item(j, name, item, 0);
}

/* The names of the classes: a list of texts in the end event or the start event; NULL if there is
 * none. */
static const fxi_json *find_classes(const fxi_log_record *run)
{
    const fxi_json *found = fxi_json_member(run->end, "classes");
    if (!found)
        found = fxi_json_member(fxi_json_member(run->start, "data"), "classes");
    for (const fxi_json *name = found ? found->child : NULL; name; name = name->next)
        if (!fxi_json_is(name, FXI_JSON_TEXT))
            return NULL;
    return fxi_json_is(found, FXI_JSON_LIST) ? found : NULL;
}

static bool is_square(const fxi_json *matrix, int n)
{
    for (const fxi_json *row = matrix->child; row; row = row->next) {
        if (!fxi_json_is(row, FXI_JSON_LIST) || (int)fxi_json_length(row) != n)
            return false;
        for (const fxi_json *count = row->child; count; count = count->next)
            if (!fxi_json_is(count, FXI_JSON_NUMBER) ||
                !(count->number >= 0 && count->number < 1e15))
                return false;
    }
    return fxi_json_is(matrix, FXI_JSON_LIST) && n > 0;
}

static const char *write_confusion(fx_json *j, const fxi_log_record *run, const fxi_json *classes)
{
    const fxi_json *matrix = fxi_json_member(run->end, "confusion");
    const int n = (int)fxi_json_length(matrix);
    if (!matrix)
        return NULL;
    if (!is_square(matrix, n))
        return "The confusion matrix is not a square of counts and was left out.";
    if (n > CLASSES_MOST)
        return "The confusion matrix was left out: it has more than 100 classes.";
    fx_json_open(j, "confusion", '[');
    for (const fxi_json *row = matrix->child; row; row = row->next)
        write_item(j, NULL, row, 0);
    fx_json_close(j);
    fx_json_open(j, "classes", '[');
    for (int i = 0; i < n; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        const char *name = fxi_json_text_of(fxi_json_item(classes, (size_t)i));
        write_text(j, NULL, name ? name : number);
    }
    fx_json_close(j);
    return NULL;
}

/* Pairs of a target and a prediction that are numbers; others are left out. */
static void write_pairs(fx_json *j, const fxi_json *end)
{
    const fxi_json *pairs = fxi_json_member(end, "pairs");
    int left = PAIRS_MOST;
    if (!fxi_json_is(pairs, FXI_JSON_LIST))
        return;
    fx_json_open(j, "pairs", '[');
    for (const fxi_json *pair = pairs->child; pair && left-- > 0; pair = pair->next) {
        const fxi_json *target = fxi_json_item(pair, 0), *predicted = fxi_json_item(pair, 1);
        if (!fxi_json_is(target, FXI_JSON_NUMBER) || !fxi_json_is(predicted, FXI_JSON_NUMBER))
            continue;
        fx_json_open(j, NULL, '[');
        fx_json_rounded(j, NULL, target->number, DIGITS);
        fx_json_rounded(j, NULL, predicted->number, DIGITS);
        fx_json_close(j);
    }
    fx_json_close(j);
}

static void write_warnings(fx_json *j, const fxi_log_record *run, const char *more)
{
    fx_json_open(j, "warnings", '[');
    for (int32_t i = 0; i < run->nwarnings; i++)
        write_text(j, NULL, run->warnings[i]);
    if (more)
        fx_json_text(j, NULL, more);
    fx_json_close(j);
}

/* Writes the members of one run into the open object. */
static bool write_run(fx_json *j, const fxi_log_record *run, const char *name)
{
    static const char *const of_end[] = {"why", "message", "step", "seconds"};
    const fxi_json *classes = find_classes(run);
    write_text(j, "log", name);
    if (run->start)
        write_item(j, "start", run->start, 0);
    if (run->end) {
        fx_json_open(j, "end", '{');
        for (size_t i = 0; i < sizeof of_end / sizeof of_end[0]; i++)
            write_member(j, of_end[i], run->end);
        fx_json_close(j);
    }
    const bool good = write_steps(j, run) && write_epochs(j, run) && write_times(j, run);
    write_warnings(j, run, write_confusion(j, run, classes));
    write_member(j, "layers", run->end);
    write_member(j, "columns", run->end);
    write_member(j, "scores", run->end);
    write_pairs(j, run->end);
    fx_json_open(j, "samples", '[');
    const bool samples = fxi_report_samples(j, run->end, classes);
    fx_json_close(j);
    return good && samples;
}

/* A log, and the run that was read from it. */
typedef struct source {
    FILE *file;
    const char *name;
    fxi_log_record run;
} source;

static bool write_document(fx_json *j, const source *first, const source *other)
{
    fx_json_open(j, NULL, '{');
    fx_json_text(j, "cflux", fx_version());
    bool good = write_run(j, &first->run, first->name);
    if (other->file) {
        fx_json_open(j, "other", '{');
        good = write_run(j, &other->run, other->name) && good;
        fx_json_close(j);
    }
    fx_json_end(j);
    return good;
}

/* ---- the page -------------------------------------------------------------------------------- */

/* Writes the template with the document in place of the placeholder. The document is inside a
 * script element, which "</script" would end; so every "<" is written as a JSON escape. */
static void write_page(fx_json *to, const char *document)
{
    const char *page = (const char *)fxi_report_page,
               *placeholder = strstr(page, FXI_REPORT_PLACEHOLDER);
    fxi_json_bytes(to, page, (size_t)(placeholder - page));
    for (const char *c = document; *c;) {
        const size_t n = strcspn(c, "<");
        fxi_json_bytes(to, c, n);
        c += n;
        if (*c == '<')
            fxi_json_raw(to, "\\u003c");
        c += *c == '<';
    }
    fxi_json_raw(to, placeholder + strlen(FXI_REPORT_PLACEHOLDER));
}

static fx_status make_page(source *first, source *other, fx_json *page)
{
    fx_json document = {.to = NULL};
    fx_status status = fxi_read_log(first->file, first->name, &first->run);
    if (status == FX_OK && other->file)
        status = fxi_read_log(other->file, other->name, &other->run);
    if (status == FX_OK) {
        const bool good = write_document(&document, first, other) && !document.failed;
        if (good)
            write_page(page, document.text);
        if (!good || page->failed)
            status = fx_fail(FX_STATUS_MEMORY, OP, "%s: out of memory", first->name);
    }
    fxi_free(document.text);
    return status;
}

static FILE *open_path(const char *path)
{
    FILE *file = fxi_os_open_stream(path, "r");
    if (!file)
        fx_fail(FX_STATUS_IO, OP, "cannot read %s: %s", path, strerror(errno));
    return file;
}

/* Opens the log for reading; NULL on failure (recorded). */
static FILE *open_log(const fx_report_args *a)
{
    if (a->log_from)
        return a->log_from;
    if (!a->run && a->log)
        return open_path(a->log);
    if (!a->run) {
        fx_fail(FX_STATUS_ARGUMENT, OP, ".log is NULL");
        return NULL;
    }
    fxi_run_log_flush(a->run); /* if it fails, the page shows what the file has */
    const int fd = fxi_os_duplicate(fxi_run_log_descriptor(a->run));
    FILE *file = fd >= 0 ? fxi_os_stream(fd, "r") : NULL;
    if (file) {
        rewind(file);
        return file;
    }
    fx_fail(FX_STATUS_IO, OP, "cannot read %s: %s", a->log ? a->log : "the log", strerror(errno));
    if (fd >= 0)
        fxi_os_close(fd);
    return NULL;
}

/* Refuses a page that would replace one of its logs, which is possible only if it has a path. */
static fx_status check_page(const fx_report_args *a, const source *log)
{
    if (a->page_to || !log->file || !fxi_os_stream_is_named(log->file, a->page))
        return FX_OK;
    return fx_fail(FX_STATUS_ARGUMENT, OP,
                   "the page would overwrite its log %s: choose another file", a->page);
}

/* Makes the page of logs that are open, and writes it. */
static fx_status report_of(const fx_report_args *a, source *first, source *other)
{
    fx_json page = {.to = NULL};
    fx_status status = make_page(first, other, &page);
    if (status == FX_OK)
        status = check_page(a, first);
    if (status == FX_OK)
        status = check_page(a, other);
    if (status == FX_OK && a->page_to)
        fwrite(page.text, 1, (size_t)page.n, a->page_to);
    else if (status == FX_OK)
        status = fxi_file_write(OP, a->page, page.text, (size_t)page.n);
    fxi_free(page.text);
    fxi_log_free(&first->run);
    fxi_log_free(&other->run);
    return status;
}

fx_status fxi_report(const fx_report_args *given)
{
    FXI_TAKE_OPTIONS(fx_report_args, FXI_REPORT_ARGS, a, OP, given);
    if (!a_ok)
        return FX_STATUS_ARGUMENT;
    if (!a.page && !a.page_to)
        return fx_fail(FX_STATUS_ARGUMENT, OP, ".page is NULL");
    source first = {.file = open_log(&a), .name = a.name ? a.name : a.log ? a.log : "the log"};
    source other = {.file = first.file && a.other ? open_path(a.other) : NULL, .name = a.other};
    const bool ready = first.file && (!a.other || other.file);
    const fx_status status = ready ? report_of(&a, &first, &other) : fx_error_status();
    if (first.file && first.file != a.log_from)
        fclose(first.file);
    if (other.file)
        fclose(other.file);
    return status;
}
