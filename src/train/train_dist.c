/* train_dist.c: see train_dist.h.
 *
 * All members must make the same updates. So all members decide with the same values whether to
 * continue: the mean of their losses, the metric of rank 0, and the requests of all callbacks to
 * stop. The losses and the requests are sent together with the first gradients, which avoids a
 * separate operation. Therefore a stop takes effect one training step later than in one process.
 */
#include "train_dist.h"
#include "clock.h"
#include "dist_update.h"
#include "error.h"
#include "memory.h"

#include <cflux/device.h>
#include <cflux/io.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const OP = "train";

static bool alone(const fxi_together *g)
{
    return fx_dist_total_workers(g->d) < 2;
}

bool fxi_together_writes(const fxi_together *g)
{
    return fx_dist_rank(g->d) == 0;
}

/* ---- comparing ------------------------------------------------------------------------------- */

typedef struct number {
    const char *name;
    double value;
} number;
enum { NUMBERS = 16 };

/* Fails on a member that has another number than rank 0. The others fail in their next operation:
 * fxi_together_end tells them that this member cannot continue. */
static fx_status compare(const fxi_together *g, int n, const number *mine)
{
    FXI_OPEN_AT(FXI_SCOPE_INHERIT, NULL, 0);
    double values[NUMBERS], theirs[NUMBERS];
    for (int i = 0; i < n; i++)
        values[i] = mine[i].value;
    fx_array *first = fx_dist_bcast(g->d, fx_from(FX_DTYPE_F64, values, n), 0);
    const fx_status status = fx_read_as(first, FX_DTYPE_F64, theirs, n);
    if (status != FX_OK)
        return status;
    for (int i = 0; i < n; i++)
        if (values[i] != theirs[i] && !(isnan(values[i]) && isnan(theirs[i])))
            return fx_fail(FX_STATUS_ARGUMENT, OP, "%s is %.9g on rank %d, but %.9g on rank 0",
                           mine[i].name, values[i], fx_dist_rank(g->d), theirs[i]);
    return FX_OK;
}

fx_status fxi_together_begin(fxi_together *g, fx_train_args *io)
{
    if (alone(g))
        return FX_OK;
    const number options[] = {
        {"the number of epochs", (double)io->epochs},
        {"the number of batches", (double)fx_loader_length(io->data)},
        {"patience", (double)io->patience},
        {"keep_best", io->keep_best},
        {"clip_norm", io->clip_norm},
        {"checkpoint_every", (double)io->checkpoint_every},
        {"the number of files for checkpoints", io->checkpoint != NULL},
        {"the number of schedules", io->schedule != NULL},
        {"schedule_steps", io->schedule_steps},
        {"the number of existing checkpoints (all members read that of rank 0: its folder must be "
         "shared)",
         io->checkpoint && fx_checkpoint_exists(io->checkpoint)},
    };
    const fx_status status = compare(g, sizeof options / sizeof *options, options);
    if (status != FX_OK)
        return status;
    io->data = fx_dist_loader(g->d, io->data);
    if (!fxi_together_writes(g)) {
        io->progress = false;
        io->log = NULL;
    }
    return fx_is_error(io->data) ? fx_error_status() : FX_OK;
}

fx_status fxi_together_start(fxi_together *g, const fx_train_args *a, const fx_progress *p)
{
    if (alone(g))
        return FX_OK;
    const fx_loader_position at = fx_loader_tell(a->data, NULL);
    const number counts[] = {{"the epoch", (double)p->epoch},
                             {"the training step", (double)p->step},
                             {"the batch", (double)p->batch},
                             {"the best epoch", (double)p->best_epoch},
                             {"the pass over the data", (double)at.pass}};
    const fx_status status = compare(g, sizeof counts / sizeof *counts, counts);
    if (status != FX_OK)
        return status;
    if (fx_is_error(fx_dist_synchronize(g->d, a->model, 0)) ||
        fx_is_error(fx_dist_synchronize(g->d, a->state, 0)))
        return fx_error_status();
    FXI_OPEN_AT(FXI_SCOPE_INHERIT, NULL, 0);
    int64_t seed = (int64_t)fxi_random_now().seed;
    const fx_status got =
        fx_read_as(fx_dist_bcast(g->d, fx_from(FX_DTYPE_I64, &seed, 1), 0), FX_DTYPE_I64, &seed, 1);
    g->key = (uint64_t)seed;
    g->asked_at = fxi_clock();
    g->waited_before = fxi_dist_waited(g->d);
    return got;
}

/* ---- a training step ------------------------------------------------------------------------- */

fx_array *fxi_together_share(const fxi_together *g, const fx_batch *batch, fx_array *loss)
{
    const int64_t n = fx_dist_total_workers(g->d);
    /* A batch that is not divided is the same on all members. */
    const bool divided = batch->total >= n;
    return !alone(g) && divided && n * batch->size != batch->total
               ? fx_mul(loss, (double)(n * batch->size) / (double)batch->total)
               : loss;
}

/* Replaces the loss, the request to stop and the gradient with their means over all members. */
static void average(const fxi_together *g, fx_array *numbers[2], void **io_gradient)
{
    void *mean = fx_dist_average(g->d, fx_tuple(numbers[0], numbers[1], *io_gradient));
    const bool failed = fx_is_error(mean);
    numbers[0] = failed ? mean : fx_child(mean, 0);
    numbers[1] = failed ? mean : fx_want(fx_child(mean, 1));
    *io_gradient = failed ? mean : fx_child(mean, 2);
}

/* Clips the gradient, which is that of all members. */
static fx_status update_clipped(const fx_train_args *a, double clip_norm, void *gradient,
                                fx_array *loss)
{
    fx_want(loss);
    /* before clipping, which hides the zeros */
    fxi_dist_note_constant(a->state, a->model, gradient);
    /* NaN if either is not finite */
    fx_array *guard = fx_add(loss, fx_mul(0, fx_global_norm(gradient)));
    gradient = fxi_clip_global_norm(gradient, clip_norm);
    return fx_update(a->state, a->model, gradient, .guard = guard);
}

fx_status fxi_together_update(const fxi_together *g, const fx_train_args *a, double clip_norm,
                              void *gradient, fx_array **io_loss, fx_array **out_stop)
{
    *out_stop = NULL;
    if (alone(g))
        return clip_norm > 0 ? update_clipped(a, clip_norm, gradient, *io_loss)
                             : fx_update(a->state, a->model, gradient, .guard = fx_want(*io_loss));
    fx_array *numbers[] = {*io_loss,
                           fx_to(fx_array_device(*io_loss),
                                 fx_full_dtype(fx_eltype(*io_loss), g->stopping ? 1 : 0, 1))};
    const fx_update_args trees = {.state = a->state, .model = a->model, .gradient = gradient};
    fx_status status;
    if (clip_norm > 0) {
        fxi_dist_name_unused(g->d, &trees);
        average(g, numbers, &gradient);
        status = update_clipped(a, clip_norm, gradient, numbers[0]);
    } else {
        status = fxi_dist_update(g->d, &trees, 2, numbers);
    }
    *io_loss = numbers[0];
    *out_stop = numbers[1];
    return status;
}

fx_status fxi_together_settle(const fxi_together *g, const fx_train_args *a)
{
    /* With clip_norm the members' states are always the same. */
    return alone(g) || a->clip_norm > 0 ? FX_OK : fxi_dist_settle(g->d, a->state);
}

void *fxi_together_saved(const fxi_together *g, const fx_train_args *a)
{
    return alone(g) || !fxi_dist_divided(a->state) ? a->state : fx_dist_whole(g->d, a->state);
}

fx_status fxi_together_loaded(const fxi_together *g, const fx_train_args *a, void *saved)
{
    return saved == a->state ? FX_OK : fx_dist_divide(g->d, a->state, saved);
}

bool fxi_together_stops(fxi_together *g, bool asked, bool told)
{
    g->stopping = g->stopping || asked;
    return alone(g) ? asked : told;
}

/* Finds the member that waited least. `waited` has the seconds of each member. */
static void find_slowest(fxi_together *g, const double *waited, double seconds)
{
    const int n = fx_dist_total_workers(g->d);
    double sum = 0;
    g->slowest = 0;
    for (int r = 0; r < n; r++) {
        sum += waited[r];
        if (waited[r] < waited[g->slowest])
            g->slowest = r;
    }
    const double others = (sum - waited[g->slowest]) / (n - 1);
    g->wait = seconds > 0 ? (others - waited[g->slowest]) / seconds : 0;
}

fx_status fxi_together_any(fxi_together *g, bool *io_stop)
{
    if (alone(g))
        return FX_OK;
    FXI_OPEN_AT(FXI_SCOPE_INHERIT, NULL, 0);
    /* One operation: whether to stop, then the time that each member has waited. */
    const int64_t n = 1 + fx_dist_total_workers(g->d);
    double *numbers = fxi_calloc((size_t)n, sizeof *numbers);
    if (!numbers)
        return fx_fail(FX_STATUS_MEMORY, OP, "out of memory");
    const double waited = fxi_dist_waited(g->d), now = fxi_clock();
    numbers[0] = *io_stop || g->stopping ? 1 : 0;
    numbers[1 + fx_dist_rank(g->d)] = waited - g->waited_before;
    fx_array *mine = fxi_from(FX_DTYPE_F64, numbers, 1, &n);
    const fx_status status =
        fx_read_as(fx_dist_allreduce(g->d, mine, FX_REDUCE_MAX), FX_DTYPE_F64, numbers, n);
    if (status == FX_OK) {
        *io_stop = numbers[0] > 0;
        find_slowest(g, numbers + 1, g->asked_at > 0 ? now - g->asked_at : 0);
        g->asked_at = now;
        g->waited_before = fxi_dist_waited(g->d);
    }
    fxi_free(numbers);
    return status;
}

void fxi_together_note(const fxi_together *g, char *note, size_t capacity)
{
    const size_t used = strlen(note);
    if (g->wait >= 0.05)
        snprintf(note + used, capacity - used,
                 "%srank %d is slow: the others wait %.0f %% of the time", used ? "  " : "",
                 g->slowest, 100 * g->wait);
}

fx_status fxi_together_number(const fxi_together *g, double *io_x)
{
    if (alone(g))
        return FX_OK;
    FXI_OPEN_AT(FXI_SCOPE_INHERIT, NULL, 0);
    return fx_read_as(fx_dist_bcast(g->d, fx_from(FX_DTYPE_F64, io_x, 1), 0), FX_DTYPE_F64, io_x,
                      1);
}

fx_status fxi_together_end(const fxi_together *g, fx_status status)
{
    if (alone(g))
        return status;
    if (status == FX_OK)
        return fx_dist_barrier(g->d);
    fx_dist_refuse(g->d, status);
    return status;
}

/* ---- layers ---------------------------------------------------------------------------------- */

fxi_outside fxi_together_enter(const fxi_together *g, const fx_batch *batch, int64_t step)
{
    if (alone(g))
        return (fxi_outside){.group = NULL};
    const int n = fx_dist_total_workers(g->d);
    const uint64_t call = (uint64_t)step * (uint64_t)n + (uint64_t)fx_dist_rank(g->d) + 1;
    return (fxi_outside){.random = fxi_random_enter(g->key + call * 0x9E3779B97F4A7C15u),
                         .group = fx_dist_sync_norms(batch->total < n ? NULL : g->d)};
}

void fxi_together_leave(const fxi_together *g, fxi_outside before)
{
    if (alone(g))
        return;
    fxi_random_leave(before.random);
    fx_dist_sync_norms(before.group);
}
