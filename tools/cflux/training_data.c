/* training_data.c: see training_data.h. */
#include "training_data.h"
#include "class_scores.h"
#include "dataset_text.h"
#include "failure.h"
#include "held_out.h"
#include "language.h"
#include "missing.h"
#include "system.h"
#include <stdlib.h>
#include <string.h>

/* True if the argument is a number, which is a share; other arguments are data files. */
bool training_share(const data_options *o, double *out)
{
    char *end;
    *out = o->validation ? strtod(o->validation, &end) : 0;
    return !o->validation || (end != o->validation && !*end);
}

int training_share_check(const data_options *o)
{
    double share;
    const bool shared = training_share(o, &share);
    /* 20% and 0,2 are mistakes for 0.2, unless there is a file of this name. */
    const bool is_file = !shared && (o->validation[strspn(o->validation, "0123456789.,%")] ||
                                     kind_of_path(o->validation) != PATH_ABSENT);
    return is_file || (shared && share >= 0 && share < 1)
               ? EXIT_FINE
               : fail(EXIT_BAD_INPUT,
                      "--validation takes a share from 0 to less than 1, such as 0.2, or a file, "
                      "got \"%s\"",
                      o->validation);
}

static bool fills_missing(const data_options *o)
{
    return strcmp(o->missing, "mean") == 0 || strcmp(o->missing, "median") == 0;
}

static int check_targets(const dataset *data, const dataset *other)
{
    const int64_t n = fx_length(data->y) / data->n, m = fx_length(other->y) / other->n;
    return n == m ? EXIT_FINE
                  : fail(EXIT_BAD_INPUT, "%s has %lld target%s for an observation, %s has %lld",
                         other->path, (long long)m, m == 1 ? "" : "s", data->path, (long long)n);
}

/* Learns the tokenizer of texts, unless the initial model has one. The tokens of a language model
 * are bytes by default. */
static int find_texts(data_options *o)
{
    enum { BYTES = 256, PIECES_OF_WORDS = 8000, CONTEXT = 64 };
    const bool texts = o->text || holds_labelled_text(o->request.path);
    const int64_t most = o->vocabulary ? o->vocabulary : o->text ? BYTES : PIECES_OF_WORDS;
    if (o->context && !o->text)
        return fail(EXIT_BAD_INPUT, "--context needs --text");
    if (o->vocabulary && !texts)
        return fail(EXIT_BAD_INPUT, "--vocabulary needs texts, but %s is other data",
                    o->request.path);
    if (o->vocabulary && o->request.tokenizer)
        return fail(EXIT_BAD_INPUT,
                    "--vocabulary and --init exclude each other: the saved model has a vocabulary");
    if (texts && (strcmp(o->missing, "error") != 0 || strcmp(o->normalise, "auto") != 0))
        return fail(EXIT_BAD_INPUT, "--%s is for numbers, but %s is texts",
                    strcmp(o->missing, "error") != 0 ? "missing" : "normalise", o->request.path);
    o->request.context = !o->text ? 0 : o->context ? o->context : CONTEXT;
    if (!texts)
        o->request.tokenizer = NULL;
    return texts && !o->request.tokenizer ? learn_tokenizer(&o->request, most) : EXIT_FINE;
}

static int read_data(data_options *o, training_data *d)
{
    double share;
    const bool shared = training_share(o, &share);
    const int files = dataset_files(&o->request);
    o->request.other = shared ? NULL : o->validation;
    data_request other = o->request;
    other.path = o->validation;
    if (!shared && !dataset_is_csv(other.path)) { /* the options are for the files of --data */
        other.id = other.separator = NULL;
        other.skip = 0;
    }
    other.first = files;
    other.more = 0;
    other.test = true;
    o->request.missing = fills_missing(o)                  ? MISSING_KEPT
                         : strcmp(o->missing, "drop") == 0 ? MISSING_DROPPED
                                                           : MISSING_REFUSED;
    other.missing = o->request.missing;
    o->request.files = other.files = files + (shared ? 0 : dataset_files(&other));
    int status = find_texts(o);
    if (status == EXIT_FINE)
        status = dataset_read(&o->request, &d->data);
    if (status != EXIT_FINE || shared)
        return status;
    other.tokenizer = o->request.tokenizer;
    other.context = o->request.context;
    other.columns = d->data.columns;
    other.column = strcmp(d->data.kind, "csv") == 0 ? d->data.target : NULL;
    status = dataset_read(&other, &d->other);
    if (status == EXIT_FINE && !other.tokenizer &&
        fx_length(d->other.x) / d->other.n != fx_length(d->data.x) / d->data.n)
        status = fail(EXIT_BAD_INPUT, "%s has %lld numbers for an observation, %s has %lld",
                      d->other.path, (long long)(fx_length(d->other.x) / d->other.n), d->data.path,
                      (long long)(fx_length(d->data.x) / d->data.n));
    return status == EXIT_FINE ? check_targets(&d->data, &d->other) : status;
}

/* Divides the data: the first `kept` observations of the order are for validation. */
static void take_parts(training_data *d, fx_array *y, fx_array *order, int64_t kept)
{
    void *all = fx_tuple(d->data.x, y);
    void *part = fx_get_obs(all, fx_slice(order, 0, kept, d->data.n));
    void *held = fx_get_obs(all, fx_slice(order, 0, 0, kept));
    d->x = fx_child(part, 0);
    d->y = fx_child(part, 1);
    d->vx = fx_child(held, 0);
    d->vy = fx_child(held, 1);
}

static int split(const data_options *o, const problem *p, fold f, training_data *d, fx_array *y)
{
    double share;
    if (f.n > 0) {
        int64_t first;
        fx_array *folded = held_out_fold(p, y, d->data.n, f, &first);
        take_parts(d, y, folded, first);
        return EXIT_FINE;
    }
    if (!training_share(o, &share)) {
        d->x = d->data.x;
        d->y = y;
        d->vx = d->other.x;
        return problem_targets(p, &d->other, &d->vy);
    }
    const int64_t n = d->data.n, kept = (int64_t)(share * (double)n + 0.5);
    if (kept >= n || (share > 0 && kept == 0))
        return fail(EXIT_BAD_INPUT, "--validation %s of %lld observations leaves %s", o->validation,
                    (long long)n, kept == 0 ? "none for validation" : "none for training");
    if (kept == 0) {
        d->x = d->data.x;
        d->y = y;
        return EXIT_FINE;
    }
    take_parts(d, y, held_out_first(p, y, n, kept), kept);
    return EXIT_FINE;
}

static void scale(const data_options *o, problem *p, const initial_model *init, training_data *d)
{
    const bool images = fx_ndims(d->x) == 4, by_data = strcmp(o->normalise, "auto") == 0;
    if (p->tokens)
        return;
    if (by_data && initial_scale_fits(init, d->x)) {
        p->mean = init->mean;
        p->std = init->std;
    } else if (strcmp(o->normalise, "none") != 0) {
        problem_scale(p, problem_filled(p, d->x),
                      by_data ? images : strcmp(o->normalise, "channels") == 0);
    }
    d->x = problem_scaled(p, d->x);
    d->vx = d->vx ? problem_scaled(p, d->vx) : NULL;
}

int training_data_read(data_options *o, problem *p, training_data *d)
{
    const task asked = o->classes ? TASK_CLASSES : o->numbers ? TASK_NUMBERS : TASK_BY_DATA;
    int status = read_data(o, d);
    const fx_tokenizer *texts = o->request.tokenizer;
    p->tokens = texts ? fx_tokenizer_count(texts) : 0;
    if (status == EXIT_FINE && o->text)
        status = language_problem(p, texts, o->request.context);
    if (status == EXIT_FINE && o->text)
        return problem_targets(p, &d->data, &d->targets);
    if (status == EXIT_FINE && asked != TASK_CLASSES && !texts)
        status = problem_check_texts(&d->data);
    if (status == EXIT_FINE)
        status = problem_classes(p, &d->data, asked);
    if (status == EXIT_FINE)
        status = problem_targets(p, &d->data, &d->targets);
    return status;
}

int training_data_divide(const data_options *o, problem *p, const initial_model *init, fold f,
                         training_data *d)
{
    int status = split(o, p, f, d, d->targets);
    if (status != EXIT_FINE)
        return status;
    if (fills_missing(o))
        status = missing_fill(o->missing, d->x, &d->data, &p->fill);
    if (status == EXIT_FINE)
        status = class_weights(p, o->weights, d->y);
    if (status != EXIT_FINE)
        return status;
    scale(o, p, init, d);
    d->ntrain = fx_size(d->x, fx_ndims(d->x) - 1);
    d->nvalidation = d->vx ? fx_size(d->vx, fx_ndims(d->vx) - 1) : 0;
    void *all = d->vx ? fx_tuple(d->x, d->y, d->vx, d->vy) : fx_tuple(d->x, d->y);
    return fx_eval(all) == FX_OK ? EXIT_FINE : fail_library(EXIT_FAILED);
}
