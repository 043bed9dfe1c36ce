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
typedef enum fx_flow { FX_FLOW_CONTINUE = 0, FX_FLOW_STOP = 1 } fx_flow;
typedef fx_flow (*fx_callback_fn)(const fx_progress *progress);

/* Writes what else an epoch's line says, into text. */
typedef void (*fx_note_fn)(const fx_progress *progress, char *text, size_t capacity);
/* A number of the model to minimise. */
typedef double (*fx_metric_fn)(void *model, void *user);
/* Value of .patience: training never stops because the loss no longer improves. */
#define FX_NEVER (-1)

/* Options of fx_train.
 *
 * .progress: a bar with rate, time left and running loss; plain lines if the output is not a
 * terminal, one for an epoch, but no more than ten a second after the first 20, and always one for
 * the last.
 *
 * .checkpoint: a file (cflux/io.h) that is written as training goes on, and when a callback or
 * `patience` ends it. If it exists already, training goes on from it: model, state, random stream,
 * position in the data, counts and patience are as they were, and the results the same bits as
 * without the interruption. What `user` holds is the program's.
 *
 * .settings: what the program set that decides the results and is in none of the other options, a
 * line of text for each. A checkpoint keeps it. Training resumes only if the checkpoint has the
 * same settings or none; otherwise it is FX_STATUS_ARGUMENT, naming the first line that differs,
 * and model and state are then as the checkpoint has them.
 *
 * .log: a file for the log of the run (cflux/report.h): its start, the training steps, the epochs
 * with their .metric, and how it ended. Training that resumes from a checkpoint appends to the
 * file. A failed write does not stop training; fx_train returns it at the end (FX_STATUS_IO). */
/* clang-format off */
#define FXI_TRAIN_ARGS(F)                                                                          \
    F(fx_loss_fn, loss, FXI_NULL)                                                                  \
    F(void *, model, FXI_NULL)                                                                     \
    F(fx_loader *, data, FXI_NULL)                                                                 \
    F(void *, state, FXI_NULL)                                                                     \
    F(int64_t, epochs, 1)                                                                          \
    F(bool, progress, false)                                                                       \
    F(fx_note_fn, epoch_note, FXI_NULL)    /* with progress; called after on_epoch */              \
    F(FILE *, progress_to, FXI_NULL)       /* NULL: stderr */                                      \
    F(fx_callback_fn, on_batch, FXI_NULL)     /* after every update; FX_FLOW_STOP ends training */         \
    F(fx_callback_fn, on_epoch, FXI_NULL)     /* after every epoch */                                 \
    F(fx_callback_fn, on_start, FXI_NULL)     /* before the first batch; epoch and step are those of  \
                                              the checkpoint that training goes on from */         \
    F(int64_t, patience, FX_NEVER)         /* stop when the epoch's mean loss, or .metric, has not \
                                              improved for this many epochs */                     \
    F(fx_metric_fn, metric, FXI_NULL)      /* for patience and keep_best; NULL: the mean loss */   \
    F(bool, keep_best, false)              /* when training ends without an error, the model gets  \
                                              the values it had after the epoch with the best      \
                                              metric; a checkpoint holds both */                   \
    F(void *, user, FXI_NULL)              /* for loss, callbacks, metric */                       \
    F(const char *, checkpoint, FXI_NULL)  /* the file; NULL: none */                              \
    F(int64_t, checkpoint_every, 0)        /* updates between two; 0: at the end of every epoch */ \
    F(int, checkpoint_keep, 2)             /* files: the newest and those before it, path.1, … */  \
    F(const char *, settings, FXI_NULL)    /* NULL: none */                                        \
    F(const char *, log, FXI_NULL)         /* a file for the log; NULL: none */
/* clang-format on */
FXI_OPTION_STRUCT(fx_train_args, FXI_TRAIN_ARGS);
/* Trains. A loss that is NaN or Inf stops it: FX_STATUS_NONFINITE, "train: loss is NaN on batch 17
 * of epoch 2", parameters and state as before that batch. Any other error stops it too, the same
 * way. Flux.train!. */
FX_API fx_status fxi_train(const fx_train_args *a);
/* fx_train(loss_fn, model, loader, opt, .epochs = 10, .progress = true) */
#define fx_train(...)                                                                              \
    FXI_CALL(fxi_train(FXI_OPTIONS(fx_train_args, FXI_TRAIN_ARGS(FXI_DEFAULT).loss = __VA_ARGS__)))

FXI_END_C
#endif
