/* run_record.c: records sample predictions for the log: see run_record.h. */
#include "run_record.h"
#include "class_scores.h"
#include "language.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS_AT_MOST = 12 * 1024 };

/* The numbers of observation i, which is along the final axis of x. */
static double *numbers_of(fx_array *x, int64_t i, int64_t *n)
{
    fx_array *one = fx_slice(x, fx_ndims(x) - 1, i, i + 1);
    *n = fx_length(one);
    double *values = calloc((size_t)*n + 1, sizeof *values);
    if (values && fx_read_as(one, FX_DTYPE_F64, values, *n) == FX_OK)
        return values;
    free(values);
    *n = 0;
    return NULL;
}

/* A model's outputs for some observations. */
typedef struct answers {
    fx_array *output;
    fx_array *guesses; /* if the outputs are class scores; otherwise NULL */
} answers;

static answers ask(const problem *p, void *model, fx_array *inputs)
{
    fx_array *output = fx_call(model, fx_to(p->device, inputs));
    if (problem_has_probabilities(p))
        return (answers){fx_cpu(problem_probabilities(p, output)), NULL};
    return (answers){fx_cpu(output), p->classes ? fx_cpu(problem_guesses(p, output)) : NULL};
}

static void add_sample(run_record *r, fx_array *raw, fx_array *y, const answers *a, int64_t i)
{
    fx_run_sample *s = &r->samples[r->nsamples];
    int64_t *shape = calloc(FX_MAX_DIMS, sizeof *shape);
    s->rank = fx_ndims(raw) - 1;
    for (int k = 0; shape && k < s->rank; k++)
        shape[k] = fx_size(raw, k);
    s->shape = shape;
    s->input = numbers_of(raw, i, &s->ninput);
    s->target = numbers_of(y, i, &s->ntarget);
    s->output = numbers_of(a->output, i, &s->noutput);
    s->scores = a->guesses != NULL;
    s->guess = a->guesses ? (int64_t)fx_item(fx_slice(a->guesses, 0, i, i + 1)) : 0;
    r->nsamples += shape && s->input && s->target && s->output;
}

/* Positions spread evenly over the data. */
static fx_array *spread(int64_t n, int64_t count)
{
    int64_t at[RECORD_SAMPLES];
    for (int64_t i = 0; i < count; i++)
        at[i] = i * n / count;
    return fx_from(FX_DTYPE_I64, at, count);
}

/* Undoes the scaling of inputs. Values that differ from 0 only by rounding become 0. */
static fx_array *unscaled(const problem *p, fx_array *x)
{
    if (!p->mean)
        return x;
    fx_array *raw = fx_add(fx_mul(x, p->std), p->mean);
    return fx_where(fx_lt(fx_abs(raw), fx_mul(p->std, 1e-5)), 0.0, raw);
}

/* Adds the observations at `positions`. Returns how many were added. */
static int64_t add_samples(run_record *r, const problem *p, void *model, void *all,
                           fx_array *positions)
{
    FX_TEST;
    const int64_t before = r->nsamples;
    void *some = fx_get_obs(all, positions);
    fx_array *inputs = fx_child(some, 0), *raw = unscaled(p, inputs);
    const answers a = ask(p, model, inputs);
    for (int64_t i = 0; i < fx_length(positions) && !fx_is_error(a.output); i++)
        add_sample(r, raw, fx_child(some, 1), &a, i);
    return r->nsamples - before;
}

/* ---- mistakes -------------------------------------------------------------------------------- */

/* The observations with the largest mistakes so far, the largest first. */
typedef struct mistakes {
    double size[RECORD_WORST];
    int64_t at[RECORD_WORST], n;
} mistakes;

static void add_mistake(mistakes *m, double size, int64_t at)
{
    if (!(size > 0) || (m->n == RECORD_WORST && size <= m->size[RECORD_WORST - 1]))
        return;
    int64_t i = m->n < RECORD_WORST ? m->n++ : RECORD_WORST - 1;
    for (; i > 0 && m->size[i - 1] < size; i--) {
        m->size[i] = m->size[i - 1];
        m->at[i] = m->at[i - 1];
    }
    m->size[i] = size;
    m->at[i] = at;
}

/* The mistake in the k outputs of an observation. Numbers: the sum of the squared errors. Classes:
 * 0 for the right class; otherwise how much larger the output of the predicted class is than that
 * of the target, or, with one output, its distance from the target. */
static double mistake_of(const problem *p, const double *output, const double *target, int64_t k,
                         bool right)
{
    double sum = 0;
    for (int64_t i = 0; !p->classes && i < k; i++)
        sum += (output[i] - target[i]) * (output[i] - target[i]);
    if (!p->classes || right)
        return sum;
    if (k == 1)
        return fabs(output[0] - target[0]);
    double most = output[0];
    for (int64_t i = 1; i < k; i++)
        most = output[i] > most ? output[i] : most;
    return most - output[(int64_t)target[0]];
}

/* Adds a pair for each `by`-th number, so that the pairs are spread over the data. */
static void add_pairs(run_record *r, const double *target, const double *output, int64_t first,
                      int64_t n, int64_t by)
{
    for (int64_t i = 0; i < n; i++)
        if ((first + i) % by == 0 && r->npairs < RECORD_PAIRS) {
            r->pairs[2 * r->npairs] = target[i];
            r->pairs[2 * r->npairs++ + 1] = output[i];
        }
}

/* Takes the mistakes and pairs of a batch whose first observation is number `first`. */
static void take_batch(run_record *r, mistakes *m, const problem *p, void *model, const fx_batch *b,
                       int64_t first, int64_t total)
{
    FX_TEST;
    const answers a = ask(p, model, b->x);
    fx_array *guess = p->classes
                          ? a.guesses ? a.guesses : fx_cpu(problem_guesses(p, fx_call(model, b->x)))
                          : NULL;
    fx_array *output = fx_cast(a.output, FX_DTYPE_F64);
    fx_array *y = fx_cpu(fx_cast(b->y, FX_DTYPE_F64));
    const double *outputs = fx_data(output), *targets = fx_data(y);
    const int64_t *guesses = guess ? fx_data(guess) : NULL;
    const int64_t k = fx_length(output) / b->size, each = fx_length(y) / b->size;
    const int64_t by = (total * each + RECORD_PAIRS - 1) / RECORD_PAIRS;
    if (!outputs || !targets || (guess && !guesses) || (!guess && k != each))
        return;
    for (int64_t i = 0; i < b->size; i++)
        add_mistake(m,
                    mistake_of(p, outputs + i * k, targets + i * each, k,
                               guesses && guesses[i] == (int64_t)targets[i * each]),
                    first + i);
    if (!guess)
        add_pairs(r, targets, outputs, first * each, b->size * each, by);
}

static void find_mistakes(run_record *r, mistakes *m, const problem *p, void *model, void *all,
                          int64_t n)
{
    enum { BATCH = 256 };
    fx_loader *batches =
        fx_dataloader(all, .batchsize = n < BATCH ? n : BATCH, .device = p->device);
    int64_t first = 0;
    fx_batch b = {0};
    while (fx_next(batches, &b)) {
        take_batch(r, m, p, model, &b, first, n);
        first += b.size;
    }
    fx_batch_end(&b);
}

/* ---- the record ------------------------------------------------------------------------------ */

static void fill_samples(run_record *r, const problem *p, void *model, fx_array *x, fx_array *y)
{
    const int64_t n = fx_size(x, fx_ndims(x) - 1), each = fx_length(x) / n;
    int64_t count = n < RECORD_SAMPLES ? n : RECORD_SAMPLES;
    mistakes m = {.n = 0};
    count = count * each > NUMBERS_AT_MOST ? NUMBERS_AT_MOST / each : count;
    if (count == 0 || p->tokens) /* ids of tokens say nothing to a reader */
        return;
    void *all = fx_tuple(x, y);
    add_samples(r, p, model, all, spread(n, count));
    find_mistakes(r, &m, p, model, all, n);
    const int64_t worst = m.n * each > NUMBERS_AT_MOST ? NUMBERS_AT_MOST / each : m.n;
    if (worst > 0)
        r->nworst = add_samples(r, p, model, all, fx_from(FX_DTYPE_I64, m.at, worst));
}

static void add_score(run_record *r, const char *name, double value)
{
    r->scores[r->nscores++] = (fx_run_score){name, value};
}

static void fill_scores(run_record *r, const problem *p, const scores *s)
{
    if (p->classes) {
        add_score(r, "mean_f1", mean_f1(p, s));
    } else if (p->context) {
        add_score(r, "perplexity", perplexity_of(s));
        add_score(r, "nats_per_character", nats_per_character(p, s));
    } else {
        add_score(r, "mae", s->numbers.mae);
        add_score(r, "rmse", s->numbers.rmse);
        add_score(r, "r2", s->numbers.r2);
    }
}

static void fill_columns(run_record *r, const dataset *names)
{
    const int64_t n = names->columns ? fx_count(names->columns) : 0;
    r->columns = n > 0 ? calloc((size_t)n, sizeof *r->columns) : NULL;
    for (int64_t k = 0; r->columns && k < n; k++)
        r->columns[k] = dataset_column(names, k);
    r->ncolumns = r->columns ? n : 0;
}

void record_fill(run_record *out, const problem *p, void *model, fx_array *x, fx_array *y,
                 const scores *s, const dataset *names)
{
    FX_SCOPE;
    memset(out, 0, sizeof *out);
    fill_samples(out, p, model, x, y);
    fill_scores(out, p, s);
    fill_columns(out, names);
    fx_error_take(); /* samples that could not be computed are left out of the log */
}

void record_free(run_record *record)
{
    for (int64_t i = 0; i < record->nsamples; i++) {
        free((void *)(uintptr_t)record->samples[i].shape);
        free((void *)(uintptr_t)record->samples[i].input);
        free((void *)(uintptr_t)record->samples[i].target);
        free((void *)(uintptr_t)record->samples[i].output);
    }
    free(record->columns);
}
