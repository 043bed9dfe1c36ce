/* report.c: see report.h.
 *
 * The page is a template (report/) with one hole, for a JSON document that its script draws. All
 * that comes from the log goes through that document and is set as text by the script, so nothing
 * in a log can become markup. Long runs are thinned here, where all of the log is at hand: what is
 * drawn of a stretch are its extremes, and the smooth curve is made from every line.
 */
#include "report.h"

#include "failure.h"
#include "json_out.h"
#include "read_log.h"
#include "report_page.h"
#include "report_sample.h"
#include "text_file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How many points are drawn at most; the smooth curve is a mean over a part of the lines. */
enum { STEPS_DRAWN = 3000, EPOCHS_DRAWN = 1500, WINDOW_PART = 50, LINES_TO_SMOOTH = 20 };

/* ---- points ---------------------------------------------------------------------------------- */

/* The lines of steps, and the epochs, as tables of numbers. */
typedef struct points {
    const log_record *run;
    size_t n;
    double (*at)(const log_record *run, size_t i, int column);
    bool *keep; /* which are drawn */
} points;

enum { STEP, STEP_EPOCH, STEP_SECONDS, STEP_LOSS, STEP_LEAST, STEP_MOST };
static double step_at(const log_record *run, size_t i, int column)
{
    const log_step *s = &run->steps[i];
    const double all[] = {s->step, s->epoch, s->seconds, s->loss, s->least, s->most};
    return all[column];
}

enum { EPOCH, EPOCH_STEP, EPOCH_SECONDS, EPOCH_METRICS };
static double epoch_at(const log_record *run, size_t i, int column)
{
    const log_epoch *e = &run->epochs[i];
    const double all[] = {e->epoch, e->step, e->seconds};
    return column < EPOCH_METRICS ? all[column] : e->metrics[column - EPOCH_METRICS];
}

/* Marks where a column has its least and its greatest number from `begin` to `end`. */
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

/* Marks what is drawn: all, or of so many stretches the extremes of each of the columns that about
 * `most` are marked, and always the first and the last. False without memory. */
static bool thin(points *p, int first_column, int columns, size_t most)
{
    p->keep = calloc(p->n + 1, sizeof *p->keep);
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

static void write_column(json_out *j, const char *key, const points *p, int column, int digits)
{
    json_open(j, key, '[');
    for (size_t i = 0; i < p->n; i++)
        if (p->keep[i])
            json_rounded(j, NULL, p->at(p->run, i, column), digits);
    json_close(j);
}

static void write_counts(json_out *j, const points *p)
{
    size_t drawn = 0;
    for (size_t i = 0; i < p->n; i++)
        drawn += p->keep[i];
    json_integer(j, "logged", (int64_t)p->n);
    json_integer(j, "drawn", (int64_t)drawn);
}

/* ---- the curves ------------------------------------------------------------------------------ */

enum { DIGITS = 6, DIGITS_EXACT = 17 };

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The mean loss of the lines around one, each counting for its steps; near the ends of fewer, as
 * many on both sides. Sums are made anew each time: a loss of 1e30 somewhere must not swallow the
 * rest. */
static double smooth_loss(const log_record *run, size_t middle, size_t most)
{
    const size_t half = least_of(most, least_of(middle, run->nsteps - 1 - middle));
    double sum = 0, count = 0;
    for (const log_step *s = run->steps + middle - half; s <= run->steps + middle + half; s++)
        if (!isnan(s->loss)) {
            sum += s->loss * s->steps;
            count += s->steps;
        }
    return count > 0 ? sum / count : NAN;
}

static void write_smooth(json_out *j, const points *p)
{
    if (p->n < LINES_TO_SMOOTH)
        return;
    const size_t half = p->n / WINDOW_PART / 2 + 1;
    json_integer(j, "window", (int64_t)(2 * half + 1));
    json_open(j, "smooth", '[');
    for (size_t i = 0; i < p->n; i++)
        if (p->keep[i])
            json_rounded(j, NULL, smooth_loss(p->run, i, half), DIGITS);
    json_close(j);
}

static bool write_steps(json_out *j, const log_record *run)
{
    points p = {run, run->nsteps, step_at, NULL};
    if (!thin(&p, STEP_LEAST, 2, STEPS_DRAWN))
        return false;
    bool shared = false;
    for (size_t i = 0; i < run->nsteps; i++)
        shared = shared || run->steps[i].steps > 1;
    json_open(j, "steps", '{');
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
    json_close(j);
    free(p.keep);
    return true;
}

static bool write_epochs(json_out *j, const log_record *run)
{
    points p = {run, run->nepochs, epoch_at, NULL};
    /* Without a metric, the extremes of the epoch's number. */
    const int first = run->nmetrics > 0 ? EPOCH_METRICS : EPOCH;
    if (!thin(&p, first, run->nmetrics > 0 ? run->nmetrics : 1, EPOCHS_DRAWN))
        return false;
    json_open(j, "epochs", '{');
    write_counts(j, &p);
    write_column(j, "epoch", &p, EPOCH, DIGITS_EXACT);
    write_column(j, "step", &p, EPOCH_STEP, DIGITS_EXACT);
    write_column(j, "seconds", &p, EPOCH_SECONDS, DIGITS);
    json_open(j, "metrics", '[');
    for (int m = 0; m < run->nmetrics; m++) {
        json_open(j, NULL, '{');
        json_text(j, "name", run->metrics[m]);
        write_column(j, "values", &p, EPOCH_METRICS + m, DIGITS);
        json_close(j);
    }
    json_close(j);
    json_close(j);
    free(p.keep);
    return true;
}

/* ---- time per step --------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const double x = (*(const log_step *const *)a)->each, y = (*(const log_step *const *)b)->each;
    return (x > y) - (x < y);
}

/* The time that a part of the steps does not exceed. `sorted` is not empty. */
static double quantile(const log_step *const *sorted, size_t n, double part)
{
    double total = 0, so_far = 0;
    for (size_t i = 0; i < n; i++)
        total += sorted[i]->steps;
    for (size_t i = 0; i < n; i++)
        if ((so_far += sorted[i]->steps) >= part * total)
            return sorted[i]->each;
    return sorted[n - 1]->each;
}

static bool write_times(json_out *j, const log_record *run)
{
    const log_step **sorted = malloc((run->nsteps + 1) * sizeof *sorted);
    size_t n = 0;
    if (!sorted)
        return false;
    for (size_t i = 0; i < run->nsteps; i++)
        if (!isnan(run->steps[i].each))
            sorted[n++] = &run->steps[i];
    qsort(sorted, n, sizeof *sorted, by_time);
    if (n > 0) {
        json_open(j, "times", '{');
        json_rounded(j, "median", quantile(sorted, n, 0.5), DIGITS);
        json_rounded(j, "p95", quantile(sorted, n, 0.95), DIGITS);
        json_rounded(j, "greatest", sorted[n - 1]->each, DIGITS);
        json_integer(j, "lines", (int64_t)n);
        json_close(j);
    }
    free(sorted);
    return true;
}

/* ---- what is shown as it is ------------------------------------------------------------------ */

/* Bounds: whatever a log holds, the page stays small. */
enum { TEXT_MOST = 4000, MEMBERS_MOST = 256, DEPTH_MOST = 4, CLASSES_MOST = 100 };

static void write_text(json_out *j, const char *key, const char *text)
{
    if (strlen(text) <= TEXT_MOST) {
        json_text(j, key, text);
        return;
    }
    char cut[TEXT_MOST + sizeof "…"];
    size_t n = TEXT_MOST;
    while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--; /* not in the middle of a letter */
    memcpy(cut, text, n);
    strcpy(cut + n, "…");
    json_text(j, key, cut);
}

static void write_item(json_out *j, const char *key, const cJSON *item, int depth)
{
    const bool list = cJSON_IsArray(item), object = cJSON_IsObject(item);
    if (cJSON_IsString(item))
        write_text(j, key, item->valuestring);
    else if (cJSON_IsNumber(item))
        json_number(j, key, item->valuedouble);
    else if (cJSON_IsBool(item))
        json_flag(j, key, cJSON_IsTrue(item));
    else if ((!list && !object) || depth == DEPTH_MOST)
        json_text(j, key, NULL);
    else {
        json_open(j, key, object ? '{' : '[');
        int left = MEMBERS_MOST;
        for (const cJSON *child = item->child; child && left-- > 0; child = child->next)
            write_item(j, object ? child->string : NULL, child, depth + 1);
        json_close(j);
    }
}

static void write_member(json_out *j, const char *name, const cJSON *event)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(event, name);
    if (item)
        write_item(j, name, item, 0);
}

/* The names of the classes: a list of texts at the end or the start; NULL: there are none. */
static const cJSON *find_classes(const log_record *run)
{
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(run->end, "classes");
    if (!found)
        found = cJSON_GetObjectItemCaseSensitive(
            cJSON_GetObjectItemCaseSensitive(run->start, "data"), "classes");
    for (const cJSON *name = found ? found->child : NULL; name; name = name->next)
        if (!cJSON_IsString(name))
            return NULL;
    return cJSON_IsArray(found) ? found : NULL;
}

static bool is_square(const cJSON *matrix, int n)
{
    for (const cJSON *row = matrix->child; row; row = row->next) {
        if (!cJSON_IsArray(row) || cJSON_GetArraySize(row) != n)
            return false;
        for (const cJSON *count = row->child; count; count = count->next)
            if (!cJSON_IsNumber(count) || !(count->valuedouble >= 0 && count->valuedouble < 1e15))
                return false;
    }
    return cJSON_IsArray(matrix) && n > 0;
}

static const char *write_confusion(json_out *j, const log_record *run, const cJSON *classes)
{
    const cJSON *matrix = cJSON_GetObjectItemCaseSensitive(run->end, "confusion");
    const int n = cJSON_GetArraySize(matrix);
    if (!matrix)
        return NULL;
    if (!is_square(matrix, n))
        return "The confusion matrix is not a square of counts, and was left out.";
    if (n > CLASSES_MOST)
        return "The confusion matrix was left out: it has more than 100 classes.";
    json_open(j, "confusion", '[');
    for (const cJSON *row = matrix->child; row; row = row->next)
        write_item(j, NULL, row, 0);
    json_close(j);
    json_open(j, "classes", '[');
    for (int i = 0; i < n; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(classes, i));
        write_text(j, NULL, name ? name : number);
    }
    json_close(j);
    return NULL;
}

static void write_warnings(json_out *j, const log_record *run, const char *more)
{
    json_open(j, "warnings", '[');
    for (const cJSON *text = run->warnings->child; text; text = text->next)
        write_item(j, NULL, text, 0);
    if (more)
        json_text(j, NULL, more);
    json_close(j);
}

static bool write_document(json_out *j, const log_record *run, const char *name)
{
    static const char *const of_end[] = {"why", "message", "step", "seconds"};
    const cJSON *classes = find_classes(run);
    json_open(j, NULL, '{');
    json_text(j, "cflux", fx_version());
    write_text(j, "log", name);
    if (run->start)
        write_item(j, "start", run->start, 0);
    if (run->end) {
        json_open(j, "end", '{');
        for (size_t i = 0; i < sizeof of_end / sizeof of_end[0]; i++)
            write_member(j, of_end[i], run->end);
        json_close(j);
    }
    const bool good = write_steps(j, run) && write_epochs(j, run) && write_times(j, run);
    write_warnings(j, run, write_confusion(j, run, classes));
    write_member(j, "layers", run->end);
    json_open(j, "samples", '[');
    const bool samples = report_samples(j, run->end, classes);
    json_close(j);
    json_end(j);
    return good && samples;
}

/* ---- the page -------------------------------------------------------------------------------- */

/* The template with the document in its hole. A "<" would end the script element that the document
 * stands in if "/script" came after it: in JSON it may always be written as an escape. */
static void write_page(FILE *to, const char *document, size_t n)
{
    const char *page = (const char *)report_page, *hole = strstr(page, REPORT_HOLE);
    fwrite(page, 1, (size_t)(hole - page), to);
    for (const char *c = document; c < document + n; c++)
        if (*c == '<')
            fputs("\\u003c", to);
        else
            putc(*c, to);
    fputs(hole + strlen(REPORT_HOLE), to);
}

static int save_page(const char *path, const char *document, size_t n)
{
    text_file f;
    const int status = text_file_open(&f, path);
    if (status != EXIT_FINE)
        return status;
    write_page(f.to, document, n);
    return text_file_close(&f, status);
}

static int report(FILE *log, const char *name, const char *out)
{
    log_record run;
    char *document = NULL;
    size_t n = 0;
    int status = read_log(log, name, &run);
    FILE *memory = status == EXIT_FINE ? open_memstream(&document, &n) : NULL;
    json_out j = {.to = memory};
    if (status == EXIT_FINE) {
        const bool good = memory && write_document(&j, &run, name) && !ferror(memory);
        if (!memory || fclose(memory) != 0 || !good)
            status = fail(EXIT_FAILED, "%s: out of memory", name);
    }
    if (status == EXIT_FINE)
        status = save_page(out, document, n);
    free(document);
    log_record_release(&run);
    return status;
}

int report_file(const char *log, const char *out)
{
    const bool standard = strcmp(log, "-") == 0;
    FILE *file = standard ? stdin : fopen(log, "r");
    if (!file)
        return fail(EXIT_BAD_INPUT, "cannot read %s: %s", log, strerror(errno));
    const int status = report(file, standard ? "standard input" : log, out);
    if (!standard)
        fclose(file);
    return status;
}

int report_run(const run_log *log, const char *out)
{
    const int fd = dup(run_log_descriptor(log));
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!file) {
        const int why = errno;
        if (fd >= 0)
            close(fd);
        return fail(EXIT_FAILED, "cannot read the log again: %s", strerror(why));
    }
    rewind(file);
    const int status = report(file, "the log", out);
    fclose(file);
    return status;
}
