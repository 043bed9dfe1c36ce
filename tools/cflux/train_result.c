/* train_result.c: prints and logs the results of cflux train: see train_run.h. */
#include "class_scores.h"
#include "clean_text.h"
#include "language.h"
#include "run_record.h"
#include "train_run.h"
#include <cflux/json_out.h>
#include <stdlib.h>
#include <string.h>

const char **train_class_names(const problem *p)
{
    const char **names = p->classes ? calloc((size_t)p->nclasses + 1, sizeof *names) : NULL;
    for (int64_t i = 0; names && i < p->nclasses; i++)
        names[i] = class_name(p, i);
    return names;
}

void train_log_end(train_run *r, const char *why, const char *message, const scores *last)
{
    FX_SCOPE;
    run_record record = {.nsamples = 0};
    fx_array *x = r->d.vx ? r->d.vx : r->d.x, *batch = NULL;
    if (!r->log)
        return;
    const char **names = last->n > 0 ? train_class_names(&r->p) : NULL;
    if (last->n > 0) {
        batch = r->p.tokens
                    ? NULL
                    : fx_to(r->p.device,
                            fx_slice(x, fx_ndims(x) - 1, 0,
                                     last->n < r->o->batchsize ? last->n : r->o->batchsize));
        record_fill(&record, &r->p, r->t.model, x, r->d.vx ? r->d.vy : r->d.y, last, &r->d.data);
    }
    fx_run_log_end(r->log, .why = why, .message = message, .step = r->step, .seconds = r->seconds,
                   .confusion = last->counts, .classes = names, .nclasses = r->p.nclasses,
                   .samples = record.samples, .nsamples = record.nsamples, .model = r->t.model,
                   .batch = batch, .nworst = record.nworst, .columns = record.columns,
                   .ncolumns = record.ncolumns, .scores = record.scores, .nscores = record.nscores,
                   .pairs = record.pairs, .npairs = record.npairs);
    record_free(&record);
    free(names);
}

static void print_json(const train_run *r, const char *why, const scores *last)
{
    fx_json j = {.to = stdout};
    fx_json_open(&j, NULL, '{');
    fx_json_text(&j, "why", why);
    fx_json_integer(&j, "epochs", r->epoch);
    fx_json_integer(&j, "steps", r->step);
    fx_json_number(&j, "seconds", r->seconds);
    fx_json_number(&j, "loss", r->loss);
    if (last->n > 0) {
        fx_json_text(&j, "measured_on", r->d.vx ? "validation" : "training");
        fx_json_integer(&j, "observations", last->n);
        fx_json_number(&j, "measured_loss", last->loss);
    }
    if (last->n > 0 && r->p.classes)
        fx_json_number(&j, "accuracy", accuracy_of(last));
    if (last->n > 0 && r->p.classes)
        fx_json_number(&j, "mean_f1", mean_f1(&r->p, last));
    if (last->n > 0 && r->p.context)
        put_language_scores(&j, &r->p, last);
    else if (last->n > 0 && !r->p.classes)
        put_number_scores(&j, &last->numbers);
    fx_json_text(&j, "saved", r->o->save);
    fx_json_text(&j, "report", r->o->report);
    fx_json_end(&j);
}

static void print_path(const char *what, const char *path)
{
    if (!path)
        return;
    printf("%s ", what);
    put_clean(stdout, path, 0);
    putchar('\n');
}

void train_print(const train_run *r, const char *why, const scores *last)
{
    if (r->o->as_json) {
        print_json(r, why, last);
        return;
    }
    const bool early = strcmp(why, "patience") == 0;
    printf("%s %s epoch %lld, training step %lld, %.2f s", early ? "stopped early" : why,
           early ? "at" : "after", (long long)r->epoch, (long long)r->step, r->seconds);
    if (early && r->best_epoch > 0)
        printf("; best epoch %lld", (long long)r->best_epoch);
    printf("\n");
    if (last->n > 0)
        printf("%s: loss %.6g", r->d.vx ? "validation" : "training", last->loss);
    if (last->n > 0 && r->p.classes)
        printf(", accuracy %.2f %% (%lld of %lld), mean F1 %.4f", 100 * accuracy_of(last),
               (long long)last->right, (long long)last->n, mean_f1(&r->p, last));
    if (last->n > 0 && !r->p.classes) {
        printf(", ");
        r->p.context ? print_language_scores(&r->p, last) : print_number_scores(&last->numbers);
    }
    printf(last->n > 0 ? "\n" : "");
    print_path("saved", r->o->save);
    print_path("report", r->o->report);
}
