/* train_model.c: prepares the model of cflux train: see train_run.h. */
#include "dataset_text.h"
#include "failure.h"
#include "model_check.h"
#include "layer_precision.h"
#include "rate_schedule.h"
#include "target_scale.h"
#include "train_run.h"
#include <string.h>

/* The sizes of an observation before --transpose, "28x28x1", if --shape is given. */
static const char *given_shape(const train_run *r)
{
    char text[200] = "";
    size_t at = 0;
    const fx_array *x = r->d.data.x;
    const bool swapped = r->o->data.request.transpose;
    if (!r->o->data.request.shape)
        return NULL;
    for (int i = 0; i < fx_ndims(x) - 1 && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%lld", i ? "x" : "",
                               (long long)fx_size(x, swapped && i < 2 ? 1 - i : i));
    return fx_string_text(fx_string(text));
}

static void describe_trained(train_run *r)
{
    int64_t sizes[FX_MAX_DIMS];
    const int n = fx_ndims(r->d.data.x) - 1;
    for (int i = 0; i < n; i++)
        sizes[i] = fx_size(r->d.data.x, i);
    r->t.kind = r->d.data.kind;
    r->t.target = r->d.data.target;
    r->t.columns = r->d.data.columns;
    r->t.given_shape = given_shape(r);
    const char *mark = r->o->data.request.decimal;
    r->t.comma = mark && *mark == ',';
    r->t.drops = strcmp(r->o->data.missing, "drop") == 0;
    r->t.transposed = r->o->data.request.transpose;
    if (r->p.tokens && !r->p.context)
        sizes[0] = LINE_TOKENS;
    r->t.shape = fx_from(FX_DTYPE_I64, sizes, n);
    r->t.tokenizer = r->o->data.request.tokenizer;
}

/* BatchNorm needs more than one observation in a batch, and the final batch of an epoch may have
 * only one. Checked now, because otherwise the run would fail at the end of its first epoch. */
static int check_last_batch(const train_run *r)
{
    FX_STEP;
    const bool alone =
        r->d.ntrain % r->o->batchsize == 1 || r->o->batchsize == 1 || r->d.ntrain == 1;
    if (!alone || (r->o->drop_partial && r->o->batchsize > 1))
        return EXIT_FINE;
    void *probe = fx_parse_model(r->o->model); /* a copy: a training step changes it */
    if (!fx_is_error(
            fx_call(probe, problem_input(&r->p, fx_slice(r->d.x, fx_ndims(r->d.x) - 1, 0, 1)))))
        return EXIT_FINE;
    const fx_error e = fx_error_take();
    const bool all = r->o->batchsize == 1, only = r->d.ntrain == 1;
    return fail(EXIT_BAD_INPUT, "%s has one observation: %s%s",
                only  ? "the training data"
                : all ? "every batch"
                      : "the last batch of an epoch",
                failure_sentence(&e),
                only  ? ""
                : all ? "; use a larger --batchsize"
                      : "; --drop-partial leaves it out");
}

/* Setting the first rate refuses a negative one, and a rule without a rate, before training. */
static int set_schedule(train_run *r)
{
    const int64_t size = r->o->batchsize < r->d.ntrain ? r->o->batchsize : r->d.ntrain,
                  whole = r->d.ntrain / size,
                  each = whole + (!r->o->drop_partial && r->d.ntrain % size > 0);
    r->schedule_steps = r->o->schedule_steps;
    const int status = rate_schedule_make(r->o->schedule, fx_eta(r->state), r->o->epochs * each,
                                          &r->schedule, &r->schedule_steps);
    if (status == EXIT_FINE)
        fx_adjust_eta(r->state, fx_schedule_at(r->schedule, 0));
    return status;
}

int train_model(train_run *r)
{
    void *model = fx_parse_model(r->o->model);
    if (fx_is_error(model))
        return fail_library(EXIT_BAD_INPUT);
    int status = augmentation_check(&r->augment, r->d.data.path, r->d.x);
    if (status == EXIT_FINE)
        status = model_check(&r->p, model, r->d.data.path, r->d.x, r->d.y);
    if (status == EXIT_FINE) {
        model_check_ending(&r->p, model);
        status = check_last_batch(r);
    }
    const void *fresh = model;
    if (status == EXIT_FINE && r->o->init)
        status = initial_copy(&r->init, model, !r->o->quiet, &model);
    if (status == EXIT_FINE && r->o->init)
        initial_check_columns(&r->init, r->d.data.columns);
    r->t.model = model;
    describe_trained(r);
    if (status == EXIT_FINE)
        status = scale_targets(r, fresh);
    model = r->t.model;
    if (status == EXIT_FINE && r->o->save)
        status = trained_try(r->o->save, &r->t, &r->p);
    if (status == EXIT_FINE) {
        r->t.model = fx_to(r->p.device, model);
        r->state = fx_setup(precision_rule(r->o->precision, fx_parse_optimiser(r->o->optimiser)),
                            r->t.model);
        status = r->o->schedule ? set_schedule(r) : EXIT_FINE;
    }
    if (status == EXIT_FINE && r->o->frozen_layers > 0)
        status = freeze_layers(r->state, model, r->o->frozen_layers);
    return status == EXIT_FINE && fx_error_status() != FX_OK ? fail_library(EXIT_BAD_INPUT)
                                                             : status;
}
