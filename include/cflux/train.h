/* cflux/train.h: the training loop, ready made. */
#ifndef CFLUX_TRAIN_H
#define CFLUX_TRAIN_H

#include <cflux/data.h>
#include <cflux/optim.h>

FXI_BEGIN_C

/* The loss of a model on a batch: a one-element array. Called inside FX_STEP. */
typedef fx_array *(*fx_loss_fn)(void *model, const fx_batch *batch, void *user);

/* What a callback sees. */
typedef struct fx_progress {
    int64_t epoch, epochs;  /* epoch from 1 */
    int64_t step;           /* updates so far, all epochs */
    int64_t batch, batches; /* batch from 1 within the epoch */
    double loss;            /* of this batch */
    double mean_loss;       /* over the epoch so far */
    double seconds;         /* since fx_train began */
    double best;            /* .metric (or mean loss) of the best epoch, Inf before the first; */
    int64_t best_epoch;     /* known from the epoch after it on, with patience or keep_best */
    void *model, *state;
    void *user;
} fx_progress;
/* What a callback says: go on, or end training. */
typedef enum fx_flow { FX_CONTINUE = 0, FX_STOP = 1 } fx_flow;
typedef fx_flow (*fx_callback)(const fx_progress *progress);

/* Options of fx_train. */
typedef struct fx_train_args {
    size_t fxi_size;
    fx_loss_fn loss;
    void *model;
    fx_loader *data;
    void *state;
    int64_t epochs; /* default 1 */
    bool progress;  /* a bar with rate, time left and running loss on stderr; plain lines when
                       it is not a terminal; a line for an epoch, but no more than ten a second
                       after the first 20, and always one for the last */
    /* With progress: writes what else stands on an epoch's line; called after on_epoch. */
    void (*epoch_note)(const fx_progress *progress, char *text, size_t capacity);
    FILE *progress_to;    /* default stderr */
    fx_callback on_batch; /* after every update; FX_STOP ends training */
    fx_callback on_epoch; /* after every epoch */
    fx_callback on_start; /* before the first batch; after a checkpoint epoch and step are its */
    int64_t patience; /* stop when the epoch's mean loss (or .metric) has not improved for this many
                         epochs; 0: never */
    double (*metric)(void *model, void *user); /* to minimise, for patience and keep_best; default
                                                  the mean loss */
    bool keep_best; /* when training ends without an error, the model gets the values it had after
                       the epoch with the best metric; a checkpoint holds both */
    void *user;     /* for loss, callbacks, metric */
    /* A file (cflux/io.h) that is written as training goes on, and when a callback or `patience`
     * ends it. Where it is there already, training goes on from it: model, state, random stream,
     * position in the data, counts and patience are as they were, and the results the same bits as
     * without the interruption. What `user` holds is the program's. NULL: none. */
    const char *checkpoint;
    int64_t checkpoint_every; /* updates from one to the next; 0: at the end of every epoch */
    int checkpoint_keep;      /* files: the newest and those before it, path.1, …; default 2 */
    /* What the program set that decides the results and is in none of the above, a line of text for
     * each: a checkpoint keeps it, and training goes on only from one that has the same
     * (FX_STATUS_ARGUMENT, naming the first line that differs, model and state then as the
     * checkpoint has them; one that keeps none passes). NULL: none. */
    const char *settings;
} fx_train_args;
/* Trains. A loss that is NaN or Inf stops it: FX_STATUS_NONFINITE, "train: loss is NaN on batch 17
 * of epoch 2", parameters and state as before that batch. Any other error stops it too, the same
 * way. Flux.train!. */
FX_API fx_status fxi_train(const fx_train_args *a);
FXI_END_C
#ifdef __cplusplus
inline fx_status fx_train(const fx_train_args &a)
{
    return fxi_train(&a);
}
#else
/* fx_train(loss_fn, model, loader, opt, .epochs = 10, .progress = true) */
#define fx_train(...)                                                                              \
    fxi_train(&(const fx_train_args){.fxi_size = sizeof(fx_train_args), .loss = __VA_ARGS__})
#endif
#endif
