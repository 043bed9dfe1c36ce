/* train_sweep.c: trains several models and prints the mean and the spread of their scores: see
 * train_run.h. */
#include "array_stats.h"
#include "class_scores.h"
#include "failure.h"
#include "language.h"
#include "leaks.h"
#include "system.h"
#include "target_scale.h"
#include "train_run.h"
#include <cflux/json_out.h>
#include <math.h>
#include <stdlib.h>

enum { SCORES_AT_MOST = 4 };

/* A score: its name in JSON and in text. Of classes, of numbers, or of language models. */
typedef struct score_name {
    const char *key, *title;
} score_name;
static const score_name of_classes[] = {
    {"loss", "loss"}, {"accuracy", "accuracy"}, {"mean_f1", "mean F1"}, {NULL, NULL}};
static const score_name of_numbers[] = {
    {"loss", "loss"}, {"mae", "MAE"}, {"rmse", "RMSE"}, {"r2", "R²"}};

static const score_name of_language[] = {{"loss", "loss"},
                                         {"perplexity", "perplexity"},
                                         {"nats_per_character", "nats per character"},
                                         {NULL, NULL}};

typedef struct sweep {
    const train_options *o;
    const score_name *names;
    int nscores;
    int64_t n;      /* runs so far */
    double *values; /* nscores for each run */
    fx_json json;
} sweep;

static void keep_scores(sweep *s, const problem *p, const scores *last)
{
    double *v = s->values + s->n++ * s->nscores;
    v[0] = last->loss;
    if (p->classes) {
        v[1] = accuracy_of(last);
        v[2] = mean_f1(p, last);
    } else if (p->context) {
        v[1] = perplexity_of(last);
        v[2] = nats_per_character(p, last);
    } else {
        v[1] = last->numbers.mae;
        v[2] = last->numbers.rmse;
        v[3] = last->numbers.r2;
    }
}

static void put_scores(sweep *s, const char *key, const double *values)
{
    fx_json_open(&s->json, key, '{');
    for (int k = 0; k < s->nscores; k++)
        fx_json_number(&s->json, s->names[k].key, values[k]);
    fx_json_close(&s->json);
}

static void begin_json(sweep *s, const char *measured_on)
{
    fx_json_open(&s->json, NULL, '{');
    fx_json_text(&s->json, "measured_on", measured_on);
    fx_json_open(&s->json, "runs", '[');
}

/* The latest run. The first one also begins the JSON, so that bad input prints none. */
static void print_run(sweep *s, const train_run *r, int64_t seed, fold f)
{
    const double *values = s->values + (s->n - 1) * s->nscores;
    if (s->o->as_json) {
        if (s->n == 1)
            begin_json(s, r->d.vx ? "validation" : "training");
        fx_json_open(&s->json, NULL, '{');
        fx_json_integer(&s->json, "seed", seed);
        if (f.n > 0)
            fx_json_integer(&s->json, "fold", f.i + 1);
        put_scores(s, "scores", values);
        fx_json_close(&s->json);
        return;
    }
    printf("seed %lld", (long long)seed);
    if (f.n > 0)
        printf(", fold %lld of %lld", (long long)f.i + 1, (long long)f.n);
    for (int k = 0; k < s->nscores; k++) {
        printf("%s %s ", k ? "," : ":", s->names[k].title);
        isnan(values[k]) ? printf("undefined") : printf("%.4g", values[k]);
    }
    printf("\n");
    fflush(stdout);
}

/* The mean and the standard deviation (dividing by n − 1) of each score. */
static void print_summary(sweep *s)
{
    double mean[SCORES_AT_MOST] = {0}, std[SCORES_AT_MOST] = {0};
    const double n = (double)s->n;
    for (int64_t i = 0; i < s->n * s->nscores; i++)
        mean[i % s->nscores] += s->values[i] / n;
    for (int64_t i = 0; i < s->n * s->nscores; i++) {
        const double away = s->values[i] - mean[i % s->nscores];
        std[i % s->nscores] += away * away / (n - 1);
    }
    for (int k = 0; k < s->nscores; k++)
        std[k] = sqrt(std[k]);
    if (s->o->as_json) {
        fx_json_close(&s->json);
        put_scores(s, "mean", mean);
        put_scores(s, "std", std);
        fx_json_end(&s->json);
        return;
    }
    printf("mean ± standard deviation of %lld runs", (long long)s->n);
    for (int k = 0; k < s->nscores; k++) {
        printf("%s %s ", k ? "," : ":", s->names[k].title);
        isnan(mean[k]) ? printf("undefined") : printf("%.4g ± %.2g", mean[k], std[k]);
    }
    printf("\n");
}

static int one_run(sweep *s, const train_run *base, int64_t seed, fold f)
{
    FX_SCOPE;
    train_run r = *base;
    scores last = {.n = 0};
    fx_seed((uint64_t)seed);
    int status = training_data_divide(&r.o->data, &r.p, &r.init, f, &r.d);
    if (status == EXIT_FINE)
        status = train_model(&r);
    if (status == EXIT_FINE && s->n == 0) {
        warn_of_leaks(&r.p, &r.d);
        warn_of_target_scale(&r);
    }
    if (status == EXIT_FINE)
        status = train_loop(&r) == FX_OK ? r.status : fail_library(EXIT_FAILED);
    if (status == EXIT_FINE && interrupt_caught())
        status = 128 + interrupt_caught();
    if (status != EXIT_FINE)
        return status;
    last.counts =
        r.p.classes ? calloc((size_t)(r.p.nclasses * r.p.nclasses), sizeof *last.counts) : NULL;
    status =
        problem_scores(&r.p, r.t.model, r.d.vx ? r.d.vx : r.d.x, r.d.vx ? r.d.vy : r.d.y, &last);
    if (status == EXIT_FINE) {
        keep_scores(s, &r.p, &last);
        print_run(s, &r, seed, f);
    }
    free(last.counts);
    return status;
}

int train_sweep(const train_run *run)
{
    const train_options *o = run->o;
    const int64_t folds = o->folds ? o->folds : 1, seeds = o->seeds ? o->seeds : 1;
    sweep s = {.o = o,
               .names = run->p.classes   ? of_classes
                        : run->p.context ? of_language
                                         : of_numbers,
               .nscores = run->p.classes || run->p.context ? 3 : 4,
               .json = {.to = stdout}};
    if (folds > run->d.data.n)
        return fail(EXIT_BAD_INPUT,
                    "--folds %lld needs at least as many observations; the data has %lld",
                    (long long)folds, (long long)run->d.data.n);
    s.values = calloc((size_t)(folds * seeds * s.nscores), sizeof *s.values);
    int status = s.values ? EXIT_FINE : fail(EXIT_FAILED, "no memory for the scores");
    interrupt_begin(); /* also between the runs, where a signal must not cut the JSON */
    for (int64_t i = 0; status == EXIT_FINE && i < folds * seeds; i++) {
        const fold f = {o->folds, i % folds};
        status = one_run(&s, run, o->seed + i / folds, f);
    }
    if (status == EXIT_FINE)
        print_summary(&s);
    else if (s.n > 0 && o->as_json)
        fx_json_end(&s.json); /* the runs that ended, without their mean */
    interrupt_end();
    free(s.values);
    return status;
}
