/* problem.c: classes or numbers, losses, and scaling of features: see problem.h. One table holds
 * all differences between losses. */
#include "problem.h"
#include "array_stats.h"
#include <cflux/metrics.h>
#include "failure.h"
#include "language.h"
#include "nearest.h"
#include "sorted_names.h"
#include "text_parts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES_AT_MOST = 1000, BATCH = 256, NUMBER_BYTES = 32 };

static const loss_kind kinds[] = {
    {"logitcrossentropy", TASK_CLASSES, false, false, false, false},
    {"crossentropy", TASK_CLASSES, false, false, false, false},
    {"logitbinarycrossentropy", TASK_CLASSES, true, false, true, false},
    {"binarycrossentropy", TASK_CLASSES, true, false, true, false},
    {"hinge_loss", TASK_CLASSES, true, true, false, false},
    {"squared_hinge_loss", TASK_CLASSES, true, true, false, false},
    {"kldivergence", TASK_CLASSES, false, false, false, false},
    {"focal_loss", TASK_CLASSES, false, false, false, false},
    {"binary_focal_loss", TASK_CLASSES, true, false, true, false},
    {"dice_coeff_loss", TASK_CLASSES, true, false, true, true},
    {"tversky_loss", TASK_CLASSES, true, false, true, true},
    {"mse", TASK_NUMBERS, true, false, false, false},
    {"mae", TASK_NUMBERS, true, false, false, false},
    {"msle", TASK_NUMBERS, true, false, false, false},
    {"huber_loss", TASK_NUMBERS, true, false, false, false},
    {"poisson_loss", TASK_NUMBERS, true, false, false, false},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const loss_kind *kind_named(const char *name)
{
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

/* Why a loss needs a program in C. */
static const char *why_not_here(const char *loss)
{
    if (strcmp(loss, "ctc_loss") == 0)
        return "its targets are sequences of labels of different lengths, and the data of this "
               "command has one class, or numbers, for each observation";
    if (strcmp(loss, "quantile_loss") == 0)
        return "its quantile is an option of fx_quantile_loss; use --loss mae to learn the median";
    return "it compares two inputs of the model, and the data of this command has one for each "
           "observation";
}

int problem_loss(problem *p, const char *text)
{
    const char *names[KINDS];
    if (!text)
        return EXIT_FINE;
    const char *name = strrchr(text, '.') ? strrchr(text, '.') + 1 : text;
    p->kind = kind_named(name);
    for (int i = 0; i < KINDS; i++)
        names[i] = kinds[i].name;
    const char *near = nearest(name, names, KINDS);
    if (!p->kind && near)
        return fail(EXIT_BAD_INPUT, "unknown loss \"%s\"; did you mean %s?", text, near);
    p->formula = fx_parse_loss(text);
    if (fx_error_status() != FX_OK)
        return fail_library(EXIT_BAD_INPUT);
    if (!p->kind)
        return fail(EXIT_BAD_INPUT, "the loss %s needs a program in C: %s", name,
                    why_not_here(name));
    p->loss = p->kind->name;
    return EXIT_FINE;
}

/* ---- classes --------------------------------------------------------------------------------- */

const char *class_name(const problem *p, int64_t i)
{
    return fx_child_name(p->classes, i);
}

static const double EXACT = 9007199254740992; /* 2^53: below it whole numbers are exact */

/* Prints a number with all its digits. Different texts are different classes. */
static void print_number(char text[NUMBER_BYTES], double x)
{
    const bool whole = x == floor(x) && fabs(x) < EXACT;
    const bool single = (double)(float)x == x;
    snprintf(text, NUMBER_BYTES, whole ? "%.0f" : single ? "%.9g" : "%.17g", x);
}

/* All values of y, without −0; the caller frees them. NULL on failure (printed). */
static double *values_of(const dataset *d, int64_t *n)
{
    *n = fx_length(d->y);
    double *values = calloc((size_t)*n + 1, sizeof *values);
    if (!values || fx_read_as(d->y, FX_DTYPE_F64, values, *n) != FX_OK) {
        values ? fail_library(EXIT_FAILED) : fail(EXIT_FAILED, "out of memory");
        free(values);
        return NULL;
    }
    for (int64_t i = 0; i < *n; i++)
        values[i] = values[i] == 0 ? 0 : values[i];
    return values;
}

/* Moves the distinct values, sorted, to the front. *broken: a value that is not a whole number, NaN
 * if none. */
static int64_t distinct(double *values, int64_t n, double *broken)
{
    int64_t kept = 0;
    *broken = NAN;
    qsort(values, (size_t)n, sizeof *values, compare_numbers);
    for (int64_t i = 0; i < n; i++) {
        if (values[i] != floor(values[i]))
            *broken = values[i];
        if (i == 0 || values[i] != values[kept - 1])
            values[kept++] = values[i];
    }
    return kept;
}

/* Class names with their numbers, as an object whose names files can store. */
static void *class_tuple(const char *const *names, int64_t n)
{
    void **numbers = calloc((size_t)n + 1, sizeof *numbers);
    for (int64_t i = 0; numbers && i < n; i++)
        numbers[i] = fxi_from(FX_DTYPE_I64, &i, 0, NULL);
    void *tuple = numbers ? fx_named_tuple_from((int)n, names, numbers) : memory_error();
    free(numbers);
    return tuple;
}

static void *classes_of_numbers(const double *values, int64_t n)
{
    char(*texts)[NUMBER_BYTES] = calloc((size_t)n + 1, sizeof *texts);
    const char **names = calloc((size_t)n + 1, sizeof *names);
    for (int64_t i = 0; texts && names && i < n; i++) {
        print_number(texts[i], values[i]);
        names[i] = texts[i];
    }
    void *tuple = texts && names ? class_tuple(names, n) : memory_error();
    free(names);
    free(texts);
    return tuple;
}

/* The texts of the targets, without those whose rows were all left out because of missing values.
 */
static void *classes_of_labels(const dataset *d)
{
    int64_t n, used = 0, labels = fx_count(d->labels);
    double *values = values_of(d, &n);
    const char **names = calloc((size_t)labels + 1, sizeof *names);
    for (int64_t i = 0; values && names && i < n; i++)
        names[(int64_t)values[i]] = fx_child_name(d->labels, (int64_t)values[i]);
    for (int64_t i = 0; names && i < labels; i++)
        if (names[i])
            names[used++] = names[i];
    void *tuple = values && names ? class_tuple(names, used) : memory_error();
    free(names);
    free(values);
    return tuple;
}

static int take_classes(problem *p, const dataset *d, void *classes)
{
    if (fx_is_error(classes))
        return fail_library(EXIT_FAILED);
    p->classes = classes;
    p->nclasses = fx_count(classes);
    return p->nclasses >= 2
               ? EXIT_FINE
               : fail(EXIT_BAD_INPUT,
                      "%s: every target is \"%s\", but a model for classes needs at least two%s",
                      d->path, class_name(p, 0), d->labels ? "" : "; --regression learns numbers");
}

/* By default, whole numbers are classes if they have at most two distinct values, or each occurs
 * at least ten times on average. */
static int classes_from_numbers(problem *p, const dataset *d, task asked, bool by_loss)
{
    double broken, *values;
    int64_t n;
    values = values_of(d, &n);
    if (!values)
        return EXIT_FAILED;
    const int64_t k = distinct(values, n, &broken);
    const bool whole = isnan(broken);
    const bool alike = whole && (k <= 2 || k <= n / 10) && k <= CLASSES_AT_MOST;
    int status = EXIT_FINE;
    if (asked == TASK_CLASSES && by_loss && !whole)
        status = fail(EXIT_BAD_INPUT,
                      "%s: the loss %s is for classes, but %s contains numbers such as %.6g; use "
                      "%s to learn numbers, or --classes to treat them as names",
                      d->path, p->loss, d->target, broken,
                      p->kind->shares ? "--regression" : "--loss mse");
    else if (asked == TASK_CLASSES && k > CLASSES_AT_MOST)
        status = fail(EXIT_BAD_INPUT,
                      "%s: %s has %lld distinct values, too many for classes; use --loss mse to "
                      "learn numbers",
                      d->path, d->target, (long long)k);
    else if ((asked == TASK_CLASSES || alike) && (values[0] <= -EXACT || values[k - 1] >= EXACT))
        status = fail(
            EXIT_BAD_INPUT,
            "%s: %s contains %.17g: numbers of 2^53 and more are rounded and cannot be classes",
            d->path, d->target, values[0] <= -EXACT ? values[0] : values[k - 1]);
    else if (asked == TASK_CLASSES || alike)
        status = take_classes(p, d, classes_of_numbers(values, k));
    free(values);
    return status;
}

/* A text in the first row, such as NA, makes the whole column text. If all other values are
 * numbers, the text marks a missing value. A first number after many texts is probably a mistake in
 * the file. */
int problem_check_texts(const dataset *d)
{
    char where[1200];
    if (!d->labels)
        return EXIT_FINE;
    const char *first = first_text(d->y, d->labels);
    const int64_t n = fx_count(d->labels), row = first_row(d->y, d->labels, true);
    int64_t numbers = 0;
    for (int64_t i = 0; i < n; i++)
        numbers += is_number_text(fx_child_name(d->labels, i));
    const bool late = d->line && row >= LATE_ROW;
    dataset_location(d, late ? row : 0, where, sizeof where);
    if (late)
        return fail(
            EXIT_BAD_INPUT,
            "%s: %s is the number \"%s\", but it is a text in the %lld rows above; --classes "
            "treats every value as the name of a class",
            where, d->target, text_of_row(d->y, d->labels, row), (long long)row);
    return numbers > 0 && numbers == n - 1 && !is_number_text(first)
               ? fail(EXIT_BAD_INPUT,
                      "%s: %s is \"%s\" here but a number elsewhere: if it marks a missing value, "
                      "such as NA, --missing drop leaves out the row; --classes treats every text "
                      "as a class",
                      where, d->target, first)
               : EXIT_FINE;
}

static int default_loss(problem *p)
{
    return p->kind ? EXIT_FINE : problem_loss(p, p->classes ? "logitcrossentropy" : "mse");
}

int problem_classes(problem *p, const dataset *d, task asked)
{
    int status = EXIT_FINE;
    const bool several = fx_length(d->y) > d->n;
    /* An array of size n × 1 still has one target per row, so it does not change the task. */
    if (asked != TASK_NUMBERS && !several && fx_ndims(d->y) > 1) {
        dataset flat = *d;
        flat.y = fx_vec(d->y);
        return problem_classes(p, &flat, asked);
    }
    const bool by_loss = asked == TASK_BY_DATA && p->kind && !d->labels;
    if (by_loss)
        asked = p->kind->means;
    if (asked == TASK_NUMBERS && d->labels)
        return fail(EXIT_BAD_INPUT, "%s: %s contains text, such as \"%s\"; expected numbers",
                    d->path, d->target, first_text(d->y, d->labels));
    if (asked == TASK_CLASSES && !by_loss && several)
        return fail(EXIT_BAD_INPUT,
                    "--classes: %s has %lld targets per observation; a class needs exactly one",
                    d->path, (long long)(fx_length(d->y) / d->n));
    if (d->labels && fx_count(d->labels) > CLASSES_AT_MOST)
        return fail(EXIT_BAD_INPUT,
                    "%s: %s has %lld distinct texts; the maximum number of classes is %d", d->path,
                    d->target, (long long)fx_count(d->labels), CLASSES_AT_MOST);
    if (d->labels)
        status = take_classes(p, d, classes_of_labels(d));
    else if (asked != TASK_NUMBERS && !several)
        status = classes_from_numbers(p, d, asked, by_loss);
    return status == EXIT_FINE ? default_loss(p) : status;
}

/* ---- targets --------------------------------------------------------------------------------- */

static int unknown_class(const problem *p, const dataset *d, int64_t row, const char *name)
{
    char where[1200], column[200] = "";
    dataset_location(d, row, where, sizeof where);
    if (strcmp(d->kind, "csv") == 0)
        snprintf(column, sizeof column, ", column \"%s\"", d->target);
    return fail(EXIT_BAD_INPUT,
                "%s%s: class \"%s\" is not one of the %lld known, from \"%s\" to \"%s\"", where,
                column, name, (long long)p->nclasses, class_name(p, 0),
                class_name(p, p->nclasses - 1));
}

/* The class number of each value of y. Consecutive values are often equal, so the previous result
 * is tried first. */
static int number_classes(const problem *p, const dataset *d, const sorted_name *classes,
                          const double *values, int64_t *out, int64_t n)
{
    char name[NUMBER_BYTES];
    double last = NAN;
    int64_t number = -1;
    for (int64_t i = 0; i < n; i++) {
        const char *text = d->labels ? fx_child_name(d->labels, (int64_t)values[i]) : name;
        if (values[i] != last) {
            print_number(name, values[i]);
            number = index_of_name(classes, p->nclasses, text);
            last = values[i];
        }
        if (number < 0)
            return unknown_class(p, d, i, text);
        out[i] = number;
    }
    return EXIT_FINE;
}

static int class_targets(const problem *p, const dataset *d, fx_array **out)
{
    int64_t n, *numbers = calloc((size_t)d->n + 1, sizeof *numbers);
    double *values = values_of(d, &n);
    sorted_name *classes = sorted_names(p->classes);
    int status = !values              ? EXIT_FAILED
                 : numbers && classes ? EXIT_FINE
                                      : fail(EXIT_FAILED, "out of memory");
    if (status == EXIT_FINE && n != d->n)
        status =
            fail(EXIT_BAD_INPUT, "%s has %lld targets for %lld observations: a class is one target",
                 d->path, (long long)n, (long long)d->n);
    if (status == EXIT_FINE)
        status = number_classes(p, d, classes, values, numbers, n);
    if (status == EXIT_FINE)
        *out = fx_from(FX_DTYPE_I64, numbers, n);
    free(classes);
    free(numbers);
    free(values);
    return status;
}

static int check_shares(const problem *p, const dataset *d)
{
    int64_t n, bad = 0;
    double *values = values_of(d, &n);
    int status = values ? EXIT_FINE : EXIT_FAILED;
    while (values && bad < n && values[bad] >= 0 && values[bad] <= 1)
        bad++;
    if (values && bad < n) {
        char where[1200];
        dataset_location(d, bad / (n / d->n), where, sizeof where);
        status =
            fail(EXIT_BAD_INPUT, "%s: the loss %s takes targets from 0 to 1, but this one is %.6g",
                 where, p->loss, values[bad]);
    }
    free(values);
    return status;
}

int problem_targets(const problem *p, const dataset *d, fx_array **out)
{
    if (p->context) {
        *out = d->y;
        return EXIT_FINE;
    }
    if (p->classes)
        return class_targets(p, d, out);
    if (d->labels)
        return fail(EXIT_BAD_INPUT, "%s: %s contains text, such as \"%s\"; expected numbers",
                    d->path, d->target, first_text(d->y, d->labels));
    fx_array *y = fx_ndims(d->y) == 1 ? fx_reshape(d->y, 1, d->n) : d->y;
    *out = fx_cast(y, FX_DTYPE_F32);
    return p->kind->shares ? check_shares(p, d) : EXIT_FINE;
}

/* ---- scale ----------------------------------------------------------------------------------- */

static fx_array *in_float64(fx_array *x)
{
    return fx_cast(x, FX_DTYPE_F64);
}

/* Computed in Float64, because squares of Float32 numbers may overflow or underflow in Float32.
 * Each statistic is evaluated alone and casts the data again, so that no Float64 copy of all data
 * is kept. */
void standard_scale(fx_array *x, fx_axes dims, fx_array **out_mean, fx_array **out_std)
{
    fx_array *least = fx_minimum(x, .dims = dims), *mean = fx_mean(in_float64(x), .dims = dims);
    /* A constant feature is only shifted, to exactly 0 for any rounding of its mean. */
    fx_array *constant = fx_eq(least, fx_maximum(x, .dims = dims));
    mean = fx_where(constant, in_float64(least), mean);
    fx_eval(mean);
    fx_array *squares = fx_sum(fx_square(fx_sub(in_float64(x), mean)), .dims = dims);
    const double freedom = (double)(fx_length(x) / fx_length(mean) - 1);
    *out_mean = mean;
    *out_std = fx_where(constant, 1.0, fx_sqrt(fx_div(squares, freedom)));
    fx_eval(*out_std);
}

void problem_scale(problem *p, fx_array *x, bool channels)
{
    const int last = fx_ndims(x) - 1;
    int64_t axes[FX_MAX_DIMS];
    int n = 0;
    for (int i = 0; i <= last; i++)
        if (i == last || (channels && i < last - 1))
            axes[n++] = i;
    standard_scale(x, fx_axes_of(n, axes), &p->mean, &p->std);
    p->mean = fx_squeeze(p->mean, FX_AXES(last));
    p->std = fx_squeeze(p->std, FX_AXES(last));
    fx_eval(fx_tuple(p->mean, p->std));
}

fx_array *problem_filled(const problem *p, fx_array *x)
{
    return p->fill ? fx_where(fx_isnan(x), fx_unsqueeze(p->fill, fx_ndims(p->fill)), x) : x;
}

fx_array *problem_scaled(const problem *p, fx_array *x)
{
    x = problem_filled(p, x);
    if (!p->mean)
        return x;
    return fx_cast(fx_div(fx_sub(in_float64(x), p->mean), p->std), FX_DTYPE_F32);
}

void *problem_input(const problem *p, fx_array *x)
{
    const bool bags = p->tokens && !p->context;
    return bags ? fx_to(p->device, fx_token_bags(x)) : (void *)x;
}

/* ---- outputs --------------------------------------------------------------------------------- */

static fx_array *target_of(const problem *p, fx_array *y)
{
    if (p->context)
        return fx_onehot(y, p->tokens);
    if (!p->classes)
        return y;
    fx_array *truth = p->single ? fx_reshape(fx_cast(y, FX_DTYPE_F32), 1, fx_length(y))
                                : fx_onehot(y, p->nclasses);
    return p->kind->signs ? fx_sub(fx_mul(2, fx_cast(truth, FX_DTYPE_F32)), 1) : truth;
}

fx_array *problem_output_loss(const problem *p, fx_array *output, fx_array *y)
{
    if (!p->weights)
        return fx_call_loss(p->formula, output, target_of(p, y));
    fx_array *each = fx_call_loss(p->formula, output, target_of(p, y), .none = true);
    fx_array *factors = fx_reshape(fx_gather(p->weights, y, 0), 1, fx_length(y));
    return fx_mean(fx_mul(each, factors));
}

fx_array *problem_guesses(const problem *p, fx_array *output)
{
    return fx_output_classes(p->loss, p->nclasses, output);
}

bool problem_has_probabilities(const problem *p)
{
    return p->classes ? fx_loss_output(p->loss) != FX_OUTPUT_SCORES
                      : !p->context && p->kind->shares;
}

fx_array *problem_probabilities(const problem *p, fx_array *output)
{
    if (p->classes)
        return fx_output_probabilities(p->loss, p->nclasses, output);
    return fx_loss_output(p->loss) == FX_OUTPUT_LOGITS ? fx_sigmoid(output) : output;
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Guesses that are counted at once. */
typedef struct guesses {
    int64_t v[64 * BATCH], n;
} guesses;

/* Adds the latest observations to the confusion matrix, whose diagonal counts the correct guesses.
 */
static int count_guesses(const problem *p, guesses *g, fx_array *truths, scores *out)
{
    fx_array *actual = fx_slice(fx_vec(truths), 0, out->n - g->n, out->n);
    fx_array *guessed = fx_from(FX_DTYPE_I64, g->v, g->n);
    fx_array *counts = fx_confusion(guessed, fx_to(fx_cpu_device(), actual), p->nclasses);
    const int64_t *rows = fx_data(fx_transpose(counts));
    if (!rows)
        return fail_library(EXIT_FAILED);
    for (int64_t i = 0; i < p->nclasses; i++)
        out->right += rows[i * p->nclasses + i];
    for (int64_t i = 0; out->counts && i < p->nclasses * p->nclasses; i++)
        out->counts[i] += rows[i];
    g->n = 0;
    return EXIT_FINE;
}

/* Predicted numbers on the scale of the targets: after a logit loss the probabilities, which cflux
 * predict writes only with --probabilities. */
static fx_array *numbers_of(const problem *p, fx_array *output)
{
    return problem_has_probabilities(p) ? problem_probabilities(p, output) : output;
}

/* Of targets that are not classes: adds the errors of predicted numbers or, for a language model,
 * the number of characters. */
static fx_status add_others(const problem *p, fx_array *output, fx_array *y, number_sums *sums,
                            scores *out)
{
    double characters = 0;
    if (!p->context)
        return number_sums_add(sums, numbers_of(p, output), y);
    const fx_status status = fx_item_get(language_characters(p, y), &characters);
    out->characters += characters;
    return status;
}

/* The number of observations that the model gets at once: fewer if they have many scores. */
static int64_t batch_of(const problem *p, int64_t n)
{
    const int64_t each = p->context ? p->context * p->tokens : 1,
                  most = (1 << 23) / each < BATCH ? (1 << 23) / each : BATCH;
    return most < 1 ? 1 : n < most ? n : most;
}

/* Adds the loss of a batch, and its guesses if there are classes, else its errors. */
static int score_batch(const problem *p, void *model, const fx_batch *b, guesses *g,
                       number_sums *sums, scores *out)
{
    FX_TEST;
    double loss;
    fx_array *output = fx_call(model, problem_input(p, b->x)),
             *mean = problem_output_loss(p, output, b->y);
    fx_array *guess = p->classes ? problem_guesses(p, output) : NULL;
    if (fx_eval(guess ? fx_tuple(mean, guess) : mean) != FX_OK ||
        fx_item_get(mean, &loss) != FX_OK ||
        (guess && fx_read_as(guess, FX_DTYPE_I64, g->v + g->n, b->size) != FX_OK))
        return fail_library(EXIT_FAILED);
    if (!guess && add_others(p, output, b->y, sums, out) != FX_OK)
        return fail_library(EXIT_FAILED);
    g->n += guess ? b->size : 0;
    out->loss += loss * (double)b->size;
    out->n += b->size;
    return EXIT_FINE;
}

int problem_scores(const problem *p, void *model, fx_array *x, fx_array *y, scores *out)
{
    FX_SCOPE;
    static guesses g;
    int status = EXIT_FINE;
    const int64_t n = fx_size(x, fx_ndims(x) - 1), most = sizeof g.v / sizeof *g.v;
    fx_loader *batches =
        fx_dataloader(fx_tuple(x, y), .batchsize = batch_of(p, n), .device = p->device);
    fx_batch b = {0};
    *out = (scores){.counts = out->counts, .sums = out->sums};
    g.n = 0;
    number_sums sums = {.n = 0};
    if (!p->classes && !p->context && number_sums_begin(&sums, y) != FX_OK)
        status = fail_library(EXIT_FAILED);
    while (status == EXIT_FINE && fx_next(batches, &b)) {
        status = score_batch(p, model, &b, &g, &sums, out);
        if (status == EXIT_FINE && (g.n == most || (g.n > 0 && out->n == n)))
            status = count_guesses(p, &g, y, out);
    }
    fx_batch_end(&b);
    if (status == EXIT_FINE && fx_error_status() != FX_OK)
        status = fail_library(EXIT_FAILED);
    out->loss = out->n ? out->loss / (double)out->n : NAN;
    out->numbers = number_sums_scores(&sums);
    if (out->sums)
        *out->sums = sums;
    else
        number_sums_free(&sums);
    return status;
}

double accuracy_of(const scores *s)
{
    return s->n ? (double)s->right / (double)s->n : NAN;
}
