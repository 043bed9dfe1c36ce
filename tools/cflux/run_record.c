/* run_record.c: records sample predictions for the log: see run_record.h. */
#include "run_record.h"
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

static void fill_samples(run_record *r, const problem *p, void *model, fx_array *x, fx_array *y)
{
    FX_TEST;
    const int64_t n = fx_size(x, fx_ndims(x) - 1), each = fx_length(x) / n;
    int64_t count = n < RECORD_SAMPLES ? n : RECORD_SAMPLES;
    count = count * each > NUMBERS_AT_MOST ? NUMBERS_AT_MOST / each : count;
    if (count == 0 || p->tokens) /* ids of tokens say nothing to a reader */
        return;
    void *some = fx_get_obs(fx_tuple(x, y), spread(n, count));
    fx_array *inputs = fx_child(some, 0), *raw = unscaled(p, inputs);
    const answers a = ask(p, model, inputs);
    for (int64_t i = 0; i < count && !fx_is_error(a.output); i++)
        add_sample(r, raw, fx_child(some, 1), &a, i);
}

void record_fill(run_record *out, const problem *p, void *model, fx_array *x, fx_array *y)
{
    FX_SCOPE;
    memset(out, 0, sizeof *out);
    fill_samples(out, p, model, x, y);
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
}
