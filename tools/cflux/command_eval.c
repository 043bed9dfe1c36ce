/* command_eval.c: cflux eval: measures a saved model on data. */
#include "class_scores.h"
#include "clean_text.h"
#include "csv_text.h"
#include "failure.h"
#include "language.h"
#include <cflux/json_out.h>
#include "model_check.h"
#include "options.h"
#include "trained.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_AT_MOST = 40 };

static data_request request;
static const char *loss_text, *device_text = "cpu";
static bool as_json;

static option_row options[] = {
    OPTIONS_HEADING("Data"),
    OPTION_DATA(request, "The data, as in cflux train. If a folder has a training part and a test "
                         "part, eval uses the test part (see --part)"),
    DATA_OPTIONS(request),
    OPTION_PART(request),
    OPTIONS_HEADING("Evaluation"),
    {"loss", 'l', OPTION_TEXT, &loss_text, "NAME",
     "The loss (default: the loss of training, or if MODEL does not contain it, as in cflux train)",
     0, 0},
    OPTION_DEVICE(&device_text),
    OPTION_JSON(&as_json),
    OPTIONS_END};

/* ---- several targets ------------------------------------------------------------------------- */

/* The name of target k of a table; otherwise its number from 1. */
static void name_target(const dataset *d, int64_t k, char *text, size_t size)
{
    const char *list = strcmp(d->kind, "csv") == 0 ? d->target : "";
    snprintf(text, size, "%lld", (long long)k + 1);
    for (int64_t i = 0; *list && i <= k; i++) {
        char *name = next_csv_text(&list);
        if (name && i == k)
            clean_text(name, text, size);
        free(name);
    }
}

static void print_targets(const dataset *d, const number_sums *sums)
{
    enum { BYTES = 200 };
    char name[BYTES];
    int width = 6;
    for (int64_t k = 0; k < sums->each; k++) {
        name_target(d, k, name, sizeof name);
        const int columns = put_clean(NULL, name, 0);
        width = columns > width ? columns : width;
    }
    printf("\n%*s           MAE          RMSE            R²\n", width, "target");
    for (int64_t k = 0; k < sums->each; k++) {
        const number_scores s = number_sums_target(sums, k);
        name_target(d, k, name, sizeof name);
        printf("%*s%s  %12.6g  %12.6g  ", width - put_clean(NULL, name, 0), "", name, s.mae,
               s.rmse);
        isnan(s.r2) ? printf("   undefined\n") : printf("%12.6g\n", s.r2);
    }
}

static void put_targets(fx_json *j, const dataset *d, const number_sums *sums)
{
    char name[200];
    fx_json_open(j, "targets", '[');
    for (int64_t k = 0; k < sums->each; k++) {
        const number_scores s = number_sums_target(sums, k);
        name_target(d, k, name, sizeof name);
        fx_json_open(j, NULL, '{');
        fx_json_text(j, "name", name);
        put_number_scores(j, &s);
        fx_json_close(j);
    }
    fx_json_close(j);
}

/* ---- the results ----------------------------------------------------------------------------- */

static void print_json(const char *path, const dataset *data, const problem *p, const scores *s)
{
    fx_json j = {.to = stdout};
    fx_json_open(&j, NULL, '{');
    fx_json_text(&j, "model", path);
    fx_json_text(&j, "data", data->path);
    fx_json_integer(&j, "observations", s->n);
    fx_json_text(&j, "loss_function", p->loss);
    fx_json_number(&j, "loss", s->loss);
    if (p->context)
        put_language_scores(&j, p, s);
    else if (!p->classes)
        put_number_scores(&j, &s->numbers);
    if (s->sums->each > 1)
        put_targets(&j, data, s->sums);
    if (p->classes) {
        fx_json_number(&j, "accuracy", accuracy_of(s));
        fx_json_open(&j, "classes", '[');
        for (int64_t i = 0; i < p->nclasses; i++)
            fx_json_text(&j, NULL, class_name(p, i));
        fx_json_close(&j);
        fx_json_open(&j, "confusion", '[');
        for (int64_t i = 0; i < p->nclasses; i++) {
            fx_json_open(&j, NULL, '[');
            for (int64_t k = 0; k < p->nclasses; k++)
                fx_json_integer(&j, NULL, s->counts[i * p->nclasses + k]);
            fx_json_close(&j);
        }
        fx_json_close(&j);
        put_class_scores(&j, p, s);
    }
    fx_json_end(&j);
}

static int width_of(const problem *p, const scores *s)
{
    int width = class_name_width(p, 3);
    for (int64_t i = 0; i < p->nclasses * p->nclasses; i++) {
        const int n = snprintf(NULL, 0, "%lld", (long long)s->counts[i]);
        width = n > width ? n : width;
    }
    return width;
}

static void print_confusion(const problem *p, const scores *s)
{
    const int width = width_of(p, s);
    printf("\nrows: actual, columns: predicted\n%*s ", width, "");
    for (int64_t k = 0; k < p->nclasses; k++) {
        putchar(' ');
        put_class_name(stdout, p, k, width);
    }
    for (int64_t i = 0; i < p->nclasses; i++) {
        putchar('\n');
        put_class_name(stdout, p, i, width);
        putchar(' ');
        for (int64_t k = 0; k < p->nclasses; k++) {
            const int64_t count = s->counts[i * p->nclasses + k];
            count ? printf(" %*lld", width, (long long)count) : printf(" %*s", width, ".");
        }
    }
    printf("\n");
}

static void print_scores(const char *path, const dataset *data, const problem *p, const scores *s)
{
    put_clean(stdout, path, 0);
    printf(" on ");
    put_clean(stdout, data->path, 0);
    printf(": %lld observations\n%s %.6g\n", (long long)s->n, p->loss, s->loss);
    if (!p->classes) {
        p->context ? print_language_scores(p, s) : print_number_scores(&s->numbers);
        printf("\n");
        if (s->sums->each > 1 && s->sums->each <= ROWS_AT_MOST)
            print_targets(data, s->sums);
        return;
    }
    printf("accuracy %.2f %% (%lld of %lld)\n", 100 * accuracy_of(s), (long long)s->right,
           (long long)s->n);
    if (p->nclasses <= ROWS_AT_MOST)
        print_confusion(p, s);
    print_class_scores(p, s);
}

/* Flux's files store neither loss nor classes; then the data determine them. */
static int prepare(const char *path, trained *t, problem *p, dataset *d, fx_array **y)
{
    int status = problem_loss(p, loss_text);
    p->device = fx_device_find(device_text);
    if (status == EXIT_FINE && fx_error_status() != FX_OK)
        status = fail_library(EXIT_BAD_INPUT);
    if (status == EXIT_FINE)
        status = trained_load(path, t, p);
    if (status != EXIT_FINE)
        return status;
    trained_request(t, p, &request);
    request.test = !request.part || strcmp(request.part, "test") == 0;
    status = dataset_read(&request, d);
    if (status == EXIT_FINE)
        status = trained_shape(path, t, d);
    if (status == EXIT_FINE && !(p->kind && t->shape))
        status = problem_classes(p, d, TASK_BY_DATA);
    if (status == EXIT_FINE)
        status = problem_targets(p, d, y);
    if (status == EXIT_FINE)
        d->x = problem_scaled(p, d->x);
    return status == EXIT_FINE ? model_check(p, t->model, d->path, d->x, *y) : status;
}

static int run_eval(int n, char **operands)
{
    FX_SCOPE;
    dataset_inputs(&request, n - 1, operands + 1);
    trained t;
    problem p = {0};
    dataset d;
    fx_array *y;
    number_sums sums = {.n = 0};
    scores s = {.sums = &sums};
    if (!request.path)
        return no_data();
    int status = prepare(operands[0], &t, &p, &d, &y);
    if (status != EXIT_FINE)
        return status;
    s.counts = calloc((size_t)(p.nclasses * p.nclasses) + 1, sizeof *s.counts);
    status = s.counts ? EXIT_FINE
                      : fail(EXIT_FAILED, "no memory for the counts of %lld classes",
                             (long long)p.nclasses);
    if (status == EXIT_FINE)
        model_check_ending(&p, t.model);
    if (status == EXIT_FINE)
        status = problem_scores(&p, fx_to(p.device, t.model), d.x, y, &s);
    if (status == EXIT_FINE)
        (as_json ? print_json : print_scores)(operands[0], &d, &p, &s);
    if (status == EXIT_FINE)
        warn_of_unpredicted(&p, &s);
    free(s.counts);
    number_sums_free(&sums);
    return status;
}

const command command_eval = {
    .name = "eval",
    .summary = "Evaluate a model on data",
    .operands = "MODEL [FILE]…",
    .least = 1,
    .most = -1,
    .examples = "cflux eval digits.bson --data digits.csv\n",
    .about =
        "Prints the loss. For classes it also prints the accuracy, the precision, recall and F1 "
        "score of each class, and for at most 40 classes the confusion matrix (the number of "
        "observations by actual and predicted class). For numbers it also prints the mean absolute "
        "error (MAE), the root of the mean squared error (RMSE) and the coefficient of "
        "determination (R²); for 2 to 40 targets, also those of each target. For a language model "
        "it also prints the perplexity and the loss per character.\n"
        "\n"
        "If the model was trained with --missing, missing values are treated as in training: drop "
        "leaves out observations with a missing value, mean and median replace missing features "
        "and leave out observations without a target. A message counts those that are left out.",
    .options = options,
    .run = run_eval,
};
