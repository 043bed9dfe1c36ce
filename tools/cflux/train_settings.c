/* train_settings.c: the settings that a checkpoint must match: see train_run.h. */
#include "clean_text.h"
#include "data_sum.h"
#include "failure.h"
#include "system.h"
#include "train_run.h"
#include "tree_text.h"
#include <stdlib.h>
#include <string.h>

void describe_target(const problem *p, char *text, size_t size)
{
    char first[100], last[100];
    if (p->context)
        snprintf(text, size, "the next of %lld tokens", (long long)p->tokens);
    else
        snprintf(text, size, "numbers");
    if (!p->classes)
        return;
    clean_text(class_name(p, 0), first, sizeof first);
    clean_text(class_name(p, p->nclasses - 1), last, sizeof last);
    snprintf(text, size, "%lld classes, from %s to %s", (long long)p->nclasses, first, last);
}

/* Prints an option as the library prints its value, so that spaces and explicit defaults make no
 * difference. */
static void put_notation(FILE *to, const char *option, void *object)
{
    char *text = text_of(object, fx_summary);
    fprintf(to, "%s %s\n", option, text ? text : "");
    free(text);
}

/* Replaces the first occurrence of a word from `at` on, in place. Returns what follows it. */
static char *replace(char *at, const char *word, const char *by)
{
    at = strstr(at, word);
    if (!at)
        return NULL;
    memmove(at + strlen(by), at + strlen(word), strlen(at + strlen(word)) + 1);
    memcpy(at, by, strlen(by));
    return at + strlen(by);
}

/* Removes the names of numbers from some rules, because earlier versions did not print them: so
 * training can be resumed from checkpoints of these versions. The text becomes shorter. */
static void cut_names(char *text)
{
    static const struct {
        const char *rule, *words[4];
    } rules[] = {{"WeightDecay(", {"lambda="}},
                 {"SignDecay(", {"lambda="}},
                 {"ClipGrad(", {"delta="}},
                 {"RMSProp(", {"eta=", "rho=", "epsilon=", ", centred="}}};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        for (char *at = strstr(text, rules[i].rule); at; at = strstr(at, rules[i].rule)) {
            for (int k = 0; k < 4 && at && rules[i].words[k]; k++)
                at = replace(at, rules[i].words[k], k < 3 ? "" : "; centred = ");
            if (!at)
                break;
        }
}

static void put_optimiser(FILE *to, const char *notation)
{
    char *text = text_of(fx_parse_optimiser(notation), fx_summary);
    if (text)
        cut_names(text);
    fprintf(to, "--optimiser %s\n", text ? text : "");
    free(text);
}

/* The name of the target column or entry. A target file has no name, so that it may be renamed. */
static const char *name_of_target(const dataset *d)
{
    const bool named = strcmp(d->kind, "csv") == 0 || strcmp(d->kind, "npz") == 0;
    return named && d->target ? d->target : "";
}

/* Prints all options that affect the bits of a training step, one per line. */
static void put_settings(const train_run *r, FILE *to)
{
    char sizes[100], target[CLASSES_TEXT];
    double share;
    describe_sizes(r->d.data.x, true, sizes, sizeof sizes);
    describe_target(&r->p, target, sizeof target);
    fprintf(to, "--data of %lld observations of %s, CRC-32 %08x\n", (long long)r->d.data.n, sizes,
            data_sum(&r->d.data));
    fprintf(to, "--target %s: %s\n", name_of_target(&r->d.data), target);
    if (r->o->data.weights)
        fprintf(to, "--class-weights %s\n", r->o->data.weights);
    fprintf(to, "--loss %s\n--seed %lld\n", r->p.loss, (long long)r->o->seed);
    if (training_share(&r->o->data, &share))
        fprintf(to, "--validation %.9g\n", share);
    else
        fprintf(to, "--validation of other data, %lld observations, CRC-32 %08x\n",
                (long long)r->d.other.n, data_sum(&r->d.other));
    fprintf(to, "--batchsize %lld\n%s\n--normalise %s\n", (long long)r->o->batchsize,
            r->o->drop_partial ? "--drop-partial" : "no --drop-partial", r->o->data.normalise);
    if (strcmp(r->o->data.missing, "error") != 0)
        fprintf(to, "--missing %s\n", r->o->data.missing);
    if (r->target_std || (r->o->raw_targets && !r->p.classes))
        fprintf(to, "%s--raw-targets\n", r->o->raw_targets ? "" : "no ");
    put_optimiser(to, r->o->optimiser);
    if (r->schedule) {
        put_notation(to, "--schedule", r->schedule);
        fprintf(to, "%s--schedule-steps\n", r->schedule_steps ? "" : "no ");
    }
    if (r->o->frozen_layers > 0)
        fprintf(to, "--freeze %lld\n", (long long)r->o->frozen_layers);
    if (r->o->init)
        fprintf(to, "--init of weights, CRC-32 %08x\n", model_sum(r->t.model));
    if (strcmp(r->o->precision, "f32") != 0)
        fprintf(to, "--precision %s\n", r->o->precision);
    if (r->o->augment)
        fprintf(to, "--augment %s\n", r->o->augment);
    if (r->o->clip_norm > 0)
        fprintf(to, "--clip-norm %.9g\n", r->o->clip_norm);
    put_notation(to, "--model", r->t.model);
}

int train_settings(train_run *r)
{
    text_stream t;
    open_text(&t);
    if (t.to)
        put_settings(r, t.to);
    r->settings = close_text(&t);
    if (!r->settings)
        return fail(EXIT_FAILED, "out of memory for the settings");
    return fx_error_status() == FX_OK ? EXIT_FINE : fail_library(EXIT_FAILED);
}
