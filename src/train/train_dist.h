/* train_dist.h: fx_train with several processes (its option .dist). Internal to src/train.
 *
 * Without a group, every function succeeds and changes nothing.
 */
#ifndef CFLUX_TRAIN_DIST_H
#define CFLUX_TRAIN_DIST_H

#include "random.h"

#include <cflux/dist.h>
#include <cflux/train.h>

typedef struct fxi_together {
    fx_dist *d;    /* NULL: one process */
    uint64_t key;  /* seed of the members' random numbers */
    bool stopping; /* a callback of this member asked to stop */
    /* The waiting between the two latest calls of fxi_together_any: */
    double asked_at, waited_before; /* time of the earlier call; seconds waited until then */
    int slowest;                    /* the rank that waited least for the others */
    double wait; /* how much longer the others waited, per second of training; 0: unknown */
} fxi_together;

/* Compares the options of all members, gives `io->data` the part of this member, and leaves output
 * to rank 0. */
fx_status fxi_together_begin(fxi_together *g, fx_train_args *io);
/* Call it after a checkpoint, if there is one, was loaded. Compares the members' progress, and
 * gives all of them the model, the state and the random stream of rank 0. */
fx_status fxi_together_start(fxi_together *g, const fx_train_args *a, const fx_progress *p);
/* True for the member that writes files and shows progress. */
bool fxi_together_writes(const fxi_together *g);

/* The loss of this member's part, so that the mean over all members is the loss of the batch. */
fx_array *fxi_together_share(const fxi_together *g, const fx_batch *batch, fx_array *loss);
/* The update of a training step. *io_loss and the gradient become their means over all members.
 * *out_stop: a number that is positive if a member asked to stop; NULL without a group. With a
 * clip_norm > 0 the mean is limited to that norm, so it is exchanged in every training step;
 * otherwise an AccumGrad adds up this member's gradients first. */
fx_status fxi_together_update(const fxi_together *g, const fx_train_args *a, double clip_norm,
                              void *gradient, fx_array **io_loss, fx_array **out_stop);
/* Before rank 0 saves the state: gives all members the same state. */
fx_status fxi_together_settle(const fxi_together *g, const fx_train_args *a);
/* The state as a checkpoint has it: whole arrays if they are divided among the members. All members
 * call it. An error object on failure. */
void *fxi_together_saved(const fxi_together *g, const fx_train_args *a);
/* Takes over the state that was loaded into `saved`, the result of fxi_together_saved. */
fx_status fxi_together_loaded(const fxi_together *g, const fx_train_args *a, void *saved);
/* Returns true if this training step is the final one. `asked`: a callback of this member has just
 * asked to stop. `told`: fxi_together_update reported a request of any member. */
bool fxi_together_stops(fxi_together *g, bool asked, bool told);
/* *io_stop becomes true on all members if it is true on one of them. Finds the slowest member. */
fx_status fxi_together_any(fxi_together *g, bool *io_stop);
/* Adds "rank 2 is slow: the others wait 12 % of the time" to a note of progress, if that is at
 * least 5 %. */
void fxi_together_note(const fxi_together *g, char *note, size_t capacity);
/* *io_x becomes that of rank 0. */
fx_status fxi_together_number(const fxi_together *g, double *io_x);
/* Ends the training with the status of this member. If one member fails, even after the final
 * training step, all fail, and their messages give its reason. */
fx_status fxi_together_end(const fxi_together *g, fx_status status);

/* The state of the thread before fxi_together_enter, which fxi_together_leave restores. */
typedef struct fxi_outside {
    fxi_random_state random;
    fx_dist *group;
} fxi_outside;
/* Between the two calls, each member has a random stream of its own, which is the same in every run
 * with the same seed and number of members, and batch norms compute their statistics over the whole
 * batch. */
fxi_outside fxi_together_enter(const fxi_together *g, const fx_batch *batch, int64_t step);
void fxi_together_leave(const fxi_together *g, fxi_outside before);

#endif
