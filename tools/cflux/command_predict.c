/* command_predict.c: cflux predict: applies a saved model to data. */
#include "csv_text.h"
#include "failure.h"
#include "model_check.h"
#include "options.h"
#include "output_paths.h"
#include "system.h"
#include "text_file.h"
#include "text_parts.h"
#include "trained.h"
#include <stdlib.h>
#include <string.h>

enum { BATCH = 256 };

static data_request request;
static const char *device_text = "cpu", *out_path, *loss_text;
static bool probabilities;

static option_row options[] = {
    OPTIONS_HEADING("Data"),
    OPTION_DATA(request,
                "The observations, as in cflux train; their targets are ignored (default: standard "
                "input, as CSV or, for a model of texts, as lines of text)"),
    DATA_OPTIONS(request),
    OPTION_PART(request),
    OPTIONS_HEADING("Predictions"),
    {"out", 'O', OPTION_TEXT, &out_path, "FILE",
     "Write the predictions to FILE, .csv or .npy (default: CSV on standard output). In an .npy "
     "file, classes are numbers from 0, and predicted numbers have a row for each observation",
     0, 0},
    {"probabilities", 'P', OPTION_FLAG, &probabilities, NULL,
     "Also write the probability of each class, after the predicted class; an .npy file then has "
     "only the probabilities",
     0, 0},
    {"loss", 'l', OPTION_TEXT, &loss_text, "NAME",
     "The loss of training, for a MODEL that does not contain it. It decides how outputs become "
     "probabilities",
     0, 0},
    OPTION_DEVICE(&device_text),
    OPTIONS_END};

/* ---- computing ------------------------------------------------------------------------------- */

static bool wants_npy(void)
{
    return out_path && ends_with(out_path, ".npy");
}

/* For classes: the number of the predicted class; with --probabilities the probabilities follow it,
 * or, for an .npy file, replace it. For numbers: the outputs; with --probabilities as
 * probabilities. */
static fx_array *result_of(const problem *p, fx_array *output)
{
    fx_array *chances = probabilities ? problem_probabilities(p, output) : NULL;
    if (!p->classes || (chances && wants_npy()))
        return chances ? chances : output;
    fx_array *guess = problem_guesses(p, output);
    if (!chances)
        return guess;
    /* BFloat16 holds whole numbers only up to 256, Float16 up to 2048. */
    const fx_dtype type = fx_eltype(chances) == FX_DTYPE_F64 ? FX_DTYPE_F64 : FX_DTYPE_F32;
    guess = fx_reshape(fx_cast(guess, type), 1, fx_length(guess));
    return fx_concat(0, guess, fx_cast(chances, type));
}

/* The outputs for all batches, with observations along the final axis; NULL on failure (printed).
 */
static fx_array *predict(const problem *p, void *model, fx_array *x)
{
    FX_TEST;
    const int64_t n = fx_size(x, fx_ndims(x) - 1), batches = (n + BATCH - 1) / BATCH;
    fx_array **parts = calloc((size_t)batches, sizeof *parts), *all = NULL;
    for (int64_t i = 0; parts && i < batches; i++) {
        FX_TEST;
        const int64_t end = (i + 1) * BATCH < n ? (i + 1) * BATCH : n;
        fx_array *part_x = fx_slice(x, fx_ndims(x) - 1, i * BATCH, end);
        parts[i] = fx_keep(
            fx_cpu(result_of(p, fx_call(model, fx_to(p->device, problem_input(p, part_x))))));
        if (fx_eval(parts[i]) != FX_OK)
            break;
    }
    if (parts && fx_error_status() == FX_OK)
        all = fxi_concat(fx_ndims(parts[0]) - 1, (int)batches, parts);
    free(parts);
    if (!all || fx_eval(all) != FX_OK) {
        fail_library(EXIT_FAILED);
        return NULL;
    }
    return fx_keep(all);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Turns "7" into "class_7", because programs would read a header of numbers as a
 * row of data. */
static void put_class(FILE *to, const char *name)
{
    char *end;
    strtod(name, &end);
    if (*name && !*end)
        fputs("class_", to);
    put_csv_text(to, name);
}

/* Writes the names of several targets. A name that is a number becomes "prediction_2", because
 * programs would read a header of numbers as a row of data. Writes nothing and returns false if
 * the list does not have `columns` names, or if out of memory. */
static bool put_names(FILE *to, const char *list, int64_t columns)
{
    int64_t n = 0;
    for (const char *at = list; *at; n++) {
        char *name = next_csv_text(&at);
        if (!name)
            return false;
        free(name);
    }
    for (int64_t k = 0; n == columns && k < n; k++) {
        char *name = next_csv_text(&list);
        if (k)
            fputc(',', to);
        if (!name || is_number_text(name))
            fprintf(to, "prediction_%lld", (long long)k + 1);
        else
            put_csv_text(to, name);
        free(name);
    }
    return n == columns;
}

/* Writes the line of names, none of which is a number: see put_names. */
static void put_header(FILE *to, const problem *p, const trained *t, const dataset *d,
                       int64_t columns)
{
    const bool named = t->target && t->columns;
    if (d->ids) {
        put_csv_text(to, is_number_text(d->id_name) ? "id" : d->id_name);
        fputc(',', to);
    }
    if (!p->classes && columns > 1) {
        const bool written = named && put_names(to, t->target, columns);
        for (int64_t k = 0; !written && k < columns; k++)
            fprintf(to, "%sprediction_%lld", k ? "," : "", (long long)k + 1);
    } else {
        put_csv_text(to, named && !is_number_text(t->target) ? t->target : "prediction");
        for (int64_t k = 1; k < columns; k++) {
            fputc(',', to);
            put_class(to, class_name(p, k - 1));
        }
    }
    fputc('\n', to);
}

/* Writes the line of an observation. */
static void put_line(FILE *to, const problem *p, const char *id, const double *values,
                     int64_t columns)
{
    if (id) {
        put_csv_text(to, id);
        fputc(',', to);
    }
    for (int64_t k = 0; k < columns; k++) {
        if (p->classes && k == 0)
            put_csv_text(to, class_name(p, (int64_t)values[k]));
        else
            fprintf(to, "%.9g", values[k]);
        fputc(k + 1 < columns ? ',' : '\n', to);
    }
}

static int write_csv(const problem *p, const trained *t, const dataset *d, fx_array *result)
{
    text_file f;
    const int64_t n = d->n, columns = fx_length(result) / n;
    const float *ids = d->ids ? fx_data(d->id) : NULL;
    if (d->ids && !ids)
        return fail_library(EXIT_FAILED);
    double *values = calloc((size_t)fx_length(result) + 1, sizeof *values);
    int status = !values ? fail(EXIT_FAILED, "no memory for %lld predictions", (long long)n)
                 : fx_read_as(result, FX_DTYPE_F64, values, fx_length(result)) == FX_OK
                     ? text_file_open(&f, out_path)
                     : fail_library(EXIT_FAILED);
    if (status == EXIT_FINE) {
        put_header(f.to, p, t, d, columns);
        for (int64_t i = 0; i < n; i++)
            put_line(f.to, p, ids ? fx_child_name(d->ids, (int64_t)ids[i]) : NULL,
                     values + i * columns, columns);
        status = text_file_close(&f, status);
    }
    free(values);
    return status;
}

static int write_result(const problem *p, const trained *t, const dataset *d, fx_array *result)
{
    if (!wants_npy())
        return write_csv(p, t, d, result);
    return fx_save(out_path, "predictions", result) == FX_OK ? EXIT_FINE
                                                             : fail_library(EXIT_FAILED);
}

/* ---- the command ----------------------------------------------------------------------------- */

static int check_options(const problem *p)
{
    if (out_path && !wants_npy() && !ends_with(out_path, ".csv") &&
        strncmp(out_path, "/dev/", 5) != 0)
        return fail(EXIT_BAD_INPUT, "--out %s: predictions are written as .csv or .npy", out_path);
    if (!probabilities || (p->kind && problem_has_probabilities(p)))
        return EXIT_FINE;
    if (!p->classes)
        return fail(EXIT_BAD_INPUT, "--probabilities: the model has no classes");
    if (!p->kind)
        return fail(EXIT_BAD_INPUT,
                    "--probabilities: the file contains no loss; give it with --loss");
    return fail(EXIT_BAD_INPUT,
                "--probabilities: outputs of a model trained with %s are not probabilities",
                p->loss);
}

/* Outputs are written unchanged if the file does not store their meaning. */
static int prepare(const char *path, trained *t, problem *p, dataset *d)
{
    int status = problem_loss(p, loss_text);
    p->device = fx_device_find(device_text);
    if (status == EXIT_FINE && fx_error_status() != FX_OK)
        status = fail_library(EXIT_BAD_INPUT);
    if (status == EXIT_FINE)
        status = trained_load(path, t, p);
    if (status == EXIT_FINE && p->context)
        status = fail(EXIT_BAD_INPUT,
                      "%s is a language model: cflux generate continues texts with it", path);
    if (status == EXIT_FINE)
        status = check_options(p);
    if (status != EXIT_FINE)
        return status;
    trained_request(t, p, &request);
    request.test = !request.part || strcmp(request.part, "test") == 0;
    request.unlabelled = true;
    request.no_target = !request.column && request.targets.n == 0 && !t->shape;
    status = dataset_read(&request, d);
    if (status == EXIT_FINE)
        status = trained_shape(path, t, d);
    if (status != EXIT_FINE)
        return status;
    d->x = problem_scaled(p, d->x);
    return model_check(p, t->model, d->path, d->x, NULL);
}

/* Checks that --out is none of the inputs: the operands, the data files and the target files. */
static int check_files(int n, char **operands)
{
    const output_path output = {out_path, "--out"};
    int status = check_outputs(&output, 1, request.data.items, request.data.n);
    if (status == EXIT_FINE)
        status = check_outputs(&output, 1, (const char *const *)operands, n);
    return status == EXIT_FINE ? check_outputs(&output, 1, request.targets.items, request.targets.n)
                               : status;
}

static int run_predict(int n, char **operands)
{
    FX_SCOPE;
    if (request.data.n == 0 && n == 1 && !is_own_terminal("/dev/stdin"))
        request.data.items[request.data.n++] = "-";
    dataset_inputs(&request, n - 1, operands + 1);
    trained t;
    problem p = {0};
    dataset d;
    if (!request.path)
        return no_data();
    int status = check_files(n, operands);
    if (status == EXIT_FINE)
        status = prepare(operands[0], &t, &p, &d);
    if (status != EXIT_FINE)
        return status;
    fx_array *result = predict(&p, fx_to(p.device, t.model), d.x);
    return result ? write_result(&p, &t, &d, result) : EXIT_FAILED;
}

const command command_predict = {
    .name = "predict",
    .summary = "Write the predictions of a model for data",
    .operands = "MODEL [FILE]…",
    .least = 1,
    .most = -1,
    .examples = "cflux predict digits.bson --data digits.csv --out predictions.csv\n"
                "cflux predict digits.bson --probabilities < digits.csv\n",
    .about =
        "Writes one line for each observation: the name of its class, or the predicted numbers. "
        "The inputs are scaled as in training. Columns are found by their names; a CSV file "
        "without names must have the columns of the training data in their order. If it also "
        "contains the target, give the number of that column with --target.\n"
        "\n"
        "A missing value is an error, unless the model was trained with --missing mean or median.",
    .options = options,
    .run = run_predict,
};
