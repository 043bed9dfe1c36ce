/* train_loop.c: trains with fx_train, and logs each training step and epoch: see train_run.h. */
#include "clean_text.h"
#include "failure.h"
#include "language.h"
#include "members.h"
#include "layer_precision.h"
#include "system.h"
#include "target_scale.h"
#include "train_run.h"
#include <math.h>
#include <stdlib.h>

static int open_log(train_run *r)
{
    const bool resumes = r->o->checkpoint && fx_checkpoint_exists(r->o->checkpoint);
    if (!r->o->log && !r->o->report)
        return EXIT_FINE;
    r->log = fx_run_log_open(r->o->log, resumes);
    if (r->log)
        return EXIT_FINE;
    const fx_error e = fx_error_take();
    return fail(EXIT_BAD_INPUT, "--log: %s", failure_sentence(&e));
}

static fx_array *batch_loss(void *model, const fx_batch *b, void *user)
{
    const train_run *r = user;
    void *input = problem_input(&r->p, augmented(&r->augment, b->x));
    return problem_output_loss(&r->p, precision_outputs(r->o->precision, model, input), b->y);
}

static fx_flow on_start(const fx_progress *now)
{
    train_run *r = now->user;
    r->started = true;
    r->step = now->step;
    r->epoch = now->epoch;
    r->best_epoch = now->best_epoch;
    r->loss = NAN; /* no training step yet */
    if (now->step > 0 && !r->o->quiet) {
        fputs("resuming from ", stderr);
        put_clean(stderr, r->o->checkpoint, 0);
        fprintf(stderr, " at epoch %lld, training step %lld\n", (long long)now->epoch + 1,
                (long long)now->step);
    }
    r->status = open_log(r); /* only now: a wrong checkpoint must leave the log unchanged */
    if (!r->log)
        return r->status == EXIT_FINE ? FX_FLOW_CONTINUE : FX_FLOW_STOP;
    const char **names = train_class_names(&r->p);
    fx_run_log_start(r->log, .model = r->o->model, .loss = r->p.loss, .optimiser = r->o->optimiser,
                     .device = fx_device_name(r->p.device), .precision = r->o->precision,
                     .data_path = r->d.data.path, .data_kind = r->d.data.kind,
                     .target = r->d.data.target, .observations = r->d.ntrain + r->d.nvalidation,
                     .train = r->d.ntrain, .validation = r->d.nvalidation, .classes = names,
                     .nclasses = r->p.nclasses, .seed = r->o->seed, .epochs = r->o->epochs,
                     .batchsize = r->o->batchsize, .parameters = fx_parameter_count(now->model),
                     .resumed_at_step = now->step);
    free(names);
    return FX_FLOW_CONTINUE;
}

static fx_flow on_batch(const fx_progress *now)
{
    train_run *r = now->user;
    r->step = now->step;
    r->best_epoch = now->best_epoch;
    r->seconds = now->seconds;
    r->loss = now->mean_loss;
    fx_run_log_step(r->log, now->step, now->epoch, now->loss, now->seconds);
    return interrupt_caught() ? FX_FLOW_STOP : FX_FLOW_CONTINUE;
}

static fx_flow on_epoch(const fx_progress *now)
{
    train_run *r = now->user;
    r->epoch = now->epoch;
    r->best_epoch = now->best_epoch;
    r->loss = now->mean_loss;
    if (r->d.vx) { /* if one member cannot measure the model, all of them stop */
        members_hold();
        r->status =
            members_agree(problem_scores(&r->p, now->model, r->d.vx, r->vy, &r->validation));
    }
    const bool measured = r->d.vx != NULL;
    fx_run_log_epoch(r->log, .epoch = now->epoch, .step = now->step, .loss = now->mean_loss,
                     .validation_loss = measured ? r->validation.loss : NAN,
                     .accuracy = measured && r->p.classes ? accuracy_of(&r->validation) : NAN,
                     .seconds = now->seconds);
    return r->status != EXIT_FINE ? FX_FLOW_STOP : FX_FLOW_CONTINUE;
}

static double validation_loss(void *model, void *user)
{
    const train_run *r = user;
    (void)model;
    return r->validation.loss;
}

static void epoch_note(const fx_progress *now, char *text, size_t capacity)
{
    const train_run *r = now->user;
    if (!r->d.vx)
        return;
    const int n = snprintf(text, capacity, "validation %.4g", r->validation.loss);
    if (r->p.context && n > 0 && (size_t)n < capacity)
        snprintf(text + n, capacity - (size_t)n, "  perplexity %.4g",
                 perplexity_of(&r->validation));
    if (r->p.classes && n > 0 && (size_t)n < capacity)
        snprintf(text + n, capacity - (size_t)n, "  accuracy %.2f %%",
                 100 * accuracy_of(&r->validation));
    const double r2 = r->validation.numbers.r2;
    if (!r->p.classes && !r->p.context && !isnan(r2) && n > 0 && (size_t)n < capacity)
        snprintf(text + n, capacity - (size_t)n, "  R² %.4g", r2);
}

fx_status train_loop(train_run *r)
{
    fx_loader *batches =
        fx_dataloader(fx_tuple(r->d.x, r->y),
                      .batchsize = r->o->batchsize < r->d.ntrain ? r->o->batchsize : r->d.ntrain,
                      .shuffle = true, .partial = !r->o->drop_partial, .device = r->p.device);
    const fx_status status = fx_train(
        batch_loss, r->t.model, batches, r->state, .epochs = r->o->epochs, .progress = !r->o->quiet,
        .on_start = on_start, .on_batch = on_batch, .on_epoch = on_epoch, .epoch_note = epoch_note,
        .patience = r->o->patience, .keep_best = r->o->patience != FX_NEVER,
        .metric = r->d.vx ? validation_loss : NULL, .user = r, .checkpoint = r->o->checkpoint,
        .checkpoint_every = r->o->checkpoint_every, .settings = r->settings,
        .schedule = r->schedule, .schedule_steps = r->schedule_steps, .clip_norm = r->o->clip_norm,
        .dist = members());
    if (status == FX_OK && r->status == EXIT_FINE)
        r->status = unscale_model(r);
    return status;
}
