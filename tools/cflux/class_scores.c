/* class_scores.c: scores and weights of classes: see class_scores.h. */
#include "class_scores.h"
#include "array_stats.h"
#include "clean_text.h"
#include "failure.h"
#include <cflux/metrics.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- scores ---------------------------------------------------------------------------------- */

typedef struct score_kind {
    const char *name;
    fx_array *(*of)(fx_array *confusion, fx_averaging average);
} score_kind;

static const score_kind score_kinds[] = {
    {"precision", fx_precision_score}, {"recall", fx_recall_score}, {"f1", fx_f1_score}};
enum { SCORE_KINDS = sizeof score_kinds / sizeof score_kinds[0] };

/* The counts of `scores` in rows of actual classes, as fx_confusion returns them. */
static fx_array *matrix_of(const problem *p, const scores *s)
{
    return fx_transpose(fx_from(FX_DTYPE_I64, s->counts, p->nclasses, p->nclasses));
}

/* Fills in one score for each class, and then their mean. If out of memory, clears the error and
 * returns false: the table is then omitted. */
static bool scores_of(const problem *p, const scores *s, const score_kind *kind, double *out)
{
    FX_SCOPE;
    fx_array *counts = matrix_of(p, s);
    fx_array *each = kind->of(counts, FX_AVERAGING_NONE);
    const bool fine = fx_read_as(each, FX_DTYPE_F64, out, p->nclasses) == FX_OK &&
                      fx_read_as(kind->of(counts, FX_AVERAGING_MACRO), FX_DTYPE_F64,
                                 out + p->nclasses, 1) == FX_OK;
    if (!fine)
        fx_error_take();
    return fine;
}

/* The scores of all classes and their mean, one kind after the other; the caller frees them. NULL
 * if out of memory. */
static double *all_scores(const problem *p, const scores *s)
{
    double *values = calloc((size_t)((p->nclasses + 1) * SCORE_KINDS), sizeof *values);
    for (int k = 0; values && k < SCORE_KINDS; k++)
        if (!scores_of(p, s, &score_kinds[k], values + k * (p->nclasses + 1))) {
            free(values);
            return NULL;
        }
    return values;
}

double mean_f1(const problem *p, const scores *s)
{
    double *values = p->classes && s->counts ? all_scores(p, s) : NULL;
    const double mean = values ? values[SCORE_KINDS * (p->nclasses + 1) - 1] : NAN;
    free(values);
    return mean;
}

static int64_t row_sum(const problem *p, const scores *s, int64_t i)
{
    int64_t sum = 0;
    for (int64_t k = 0; k < p->nclasses; k++)
        sum += s->counts[i * p->nclasses + k];
    return sum;
}

static int64_t column_sum(const problem *p, const scores *s, int64_t k)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < p->nclasses; i++)
        sum += s->counts[i * p->nclasses + k];
    return sum;
}

int put_class_name(FILE *to, const problem *p, int64_t i, int width)
{
    char text[1000];
    clean_text(class_name(p, i), text, sizeof text);
    const int columns = put_clean(NULL, text, 0);
    if (to)
        fprintf(to, "%*s%s", width > columns ? width - columns : 0, "", text);
    return columns;
}

int class_name_width(const problem *p, int least)
{
    int width = least;
    for (int64_t i = 0; i < p->nclasses; i++) {
        const int columns = put_class_name(NULL, p, i, 0);
        width = columns > width ? columns : width;
    }
    return width;
}

void print_class_scores(const problem *p, const scores *s)
{
    const int64_t n = p->nclasses;
    double *values = all_scores(p, s);
    const int width = class_name_width(p, 4);
    if (!values)
        return;
    printf("\n%*s  precision  recall     F1  observations\n", width, "");
    for (int64_t i = 0; i <= n; i++) {
        if (i < n)
            put_class_name(stdout, p, i, width);
        else
            printf("%*s", width, "mean");
        for (int k = 0; k < SCORE_KINDS; k++)
            printf("  %*.4f", k == 0 ? 9 : 6, values[k * (n + 1) + i]);
        printf(" %12lld\n", (long long)(i < n ? row_sum(p, s, i) : s->n));
    }
    free(values);
}

void put_class_scores(fx_json *j, const problem *p, const scores *s)
{
    const int64_t n = p->nclasses;
    double *values = all_scores(p, s);
    for (int k = 0; values && k < SCORE_KINDS; k++) {
        fx_json_open(j, score_kinds[k].name, '[');
        for (int64_t i = 0; i < n; i++)
            fx_json_number(j, NULL, values[k * (n + 1) + i]);
        fx_json_close(j);
    }
    if (values)
        fx_json_number(j, "mean_f1", values[SCORE_KINDS * (n + 1) - 1]);
    free(values);
}

void warn_of_unpredicted(const problem *p, const scores *s)
{
    enum { NAMED = 5 };
    const char *help = p->weights || p->kind->whole ? "" : "; --class-weights may help";
    int64_t found = 0;
    for (int64_t i = 0; p->classes && s->counts && i < p->nclasses; i++) {
        char name[200];
        const int64_t n = row_sum(p, s, i);
        if (n == 0 || column_sum(p, s, i) > 0 || ++found > NAMED)
            continue;
        clean_text(class_name(p, i), name, sizeof name);
        warn("class %s is never predicted, but %lld of %lld observations belong to it%s", name,
             (long long)n, (long long)s->n, help);
    }
    if (found > NAMED)
        warn("%lld more classes are never predicted", (long long)(found - NAMED));
}

/* ---- weights --------------------------------------------------------------------------------- */

/* (n/(k·nᵢ))^power for the nᵢ of n targets in class i. */
static bool weights_of_counts(const problem *p, fx_array *y, double power, float *weights)
{
    const int64_t n = fx_length(y);
    int64_t *of = calloc((size_t)n + 1, sizeof *of);
    int64_t *counts = calloc((size_t)p->nclasses, sizeof *counts);
    const bool fine = of && counts && fx_read_as(y, FX_DTYPE_I64, of, n) == FX_OK;
    for (int64_t i = 0; fine && i < n; i++)
        counts[of[i]]++;
    for (int64_t i = 0; fine && i < p->nclasses; i++) /* a class without targets needs no factor */
        weights[i] = counts[i]
                         ? (float)pow((double)n / ((double)p->nclasses * (double)counts[i]), power)
                         : 1;
    free(counts);
    free(of);
    return fine;
}

/* Reads numbers separated by commas. Returns how many, or −1 if one is not a number ≥ 0 that fits
 * Float32. */
static int64_t read_weights(const char *text, float *weights, int64_t most)
{
    int64_t n = 0;
    for (const char *at = text;; at++) {
        char *end;
        const double w = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !(w >= 0 && w <= FLT_MAX))
            return -1;
        if (n < most)
            weights[n] = (float)w;
        n++;
        if (!*end)
            return n;
        at = end;
    }
}

static int fill_weights(const problem *p, const char *text, fx_array *y, float *weights)
{
    const double power = strcmp(text, "balanced") == 0 ? 1 : strcmp(text, "sqrt") == 0 ? 0.5 : 0;
    if (power > 0)
        return weights_of_counts(p, y, power, weights) ? EXIT_FINE : fail_library(EXIT_FAILED);
    const int64_t n = read_weights(text, weights, p->nclasses);
    if (n < 0)
        return fail(
            EXIT_BAD_INPUT,
            "--class-weights takes \"balanced\", \"sqrt\", or a number of at least 0 for each "
            "class, such as 1,5; got \"%s\"",
            text);
    if (n != p->nclasses)
        return fail(EXIT_BAD_INPUT, "--class-weights has %lld numbers for %lld classes",
                    (long long)n, (long long)p->nclasses);
    for (int64_t i = 0; i < n; i++)
        if (weights[i] > 0)
            return EXIT_FINE;
    return fail(EXIT_BAD_INPUT, "--class-weights %s has no class with a factor above 0", text);
}

int class_weights(problem *p, const char *text, fx_array *y)
{
    if (!text)
        return EXIT_FINE;
    if (!p->classes)
        return fail(EXIT_BAD_INPUT, "--class-weights needs classes, but the targets are numbers");
    if (p->kind->whole)
        return fail(
            EXIT_BAD_INPUT,
            "--class-weights does not work with %s, which is one value for all observations",
            p->loss);
    float *weights = calloc((size_t)p->nclasses, sizeof *weights);
    int status = weights ? fill_weights(p, text, y, weights)
                         : fail(EXIT_FAILED, "out of memory for the weights of classes");
    if (status == EXIT_FINE)
        p->weights = fx_to(p->device, fx_from(FX_DTYPE_F32, weights, p->nclasses));
    free(weights);
    return status != EXIT_FINE          ? status
           : fx_error_status() == FX_OK ? EXIT_FINE
                                        : fail_library(EXIT_FAILED);
}
