/* cflux/train.h: a ready-made training loop. */
#ifndef CFLUX_TRAIN_H
#define CFLUX_TRAIN_H

#include <cflux/data.h>
#include <cflux/dist.h>
#include <cflux/optim.h>
#include <cflux/schedule.h>

FXI_BEGIN_C

/* Returns the loss of a model on a batch, a one-element array. fx_train calls it inside FX_RECORD
 * (array.h): a training step that makes the same calls as the previous one repeats its
 * recording. */
typedef fx_array *(*fx_loss_fn)(void *model, const fx_batch *batch, void *user);

/* State of the training, passed to callbacks. */
typedef struct fx_progress {
    int64_t epoch, epochs;  /* current epoch, from 1; number of epochs */
    int64_t step;           /* updates so far, in all epochs */
    int64_t batch, batches; /* current batch of the epoch, from 1; batches per epoch */
    double loss;            /* loss of this batch */
    double mean_loss;       /* mean loss of the epoch so far */
    double seconds;         /* seconds since fx_train was called */
    double best;            /* lowest .metric (or mean loss) of an epoch. Set after the callbacks of
                               the epoch, with .patience or .keep_best only; Inf before */
    int64_t best_epoch;     /* the epoch of `best`, from 1; 0: none */
    void *model, *state;
    void *user; /* the option .user */
} fx_progress;
/* Returned by a callback: continue or end the training. */
typedef enum fx_flow { FX_FLOW_CONTINUE = 0, FX_FLOW_STOP = 1 } fx_flow;
typedef fx_flow (*fx_callback_fn)(const fx_progress *progress);

/* Writes additional text for an epoch's progress line to `text`, at most `capacity` bytes. */
typedef void (*fx_note_fn)(const fx_progress *progress, char *text, size_t capacity);
/* Returns a number to minimise, e.g. a validation loss. */
typedef double (*fx_metric_fn)(void *model, void *user);
/* Value of .patience: no early stopping. */
#define FX_NEVER (-1)

/* Options of fx_train.
 *
 * .progress: a bar with batches per second, remaining time and running loss. If the output is not a
 * terminal, one plain line is printed per epoch. After the first 20 lines, at most ten lines are
 * printed per second; the line of epoch number .epochs is always printed.
 *
 * .checkpoint: a file (cflux/io.h) that is written regularly, and when a callback or .patience ends
 * the training. If the file exists, training resumes from it: model, state, random stream, position
 * in the data, counts and patience are restored, and the results are bit-identical to those without
 * the interruption. The program must restore what .user points to.
 *
 * .settings: settings of the program that affect the results and are not options of fx_train, one
 * line of text each. A checkpoint stores them. Training resumes only if the checkpoint's settings
 * are equal, or if one of the two has none; otherwise FX_STATUS_ARGUMENT names the first line that
 * differs, and model and state have the checkpoint's values.
 *
 * .dist: a group of processes (cflux/dist.h) that train one model. All of them call fx_train with
 * the same options. Each process gets its part of every batch of the loader (fx_dist_loader), so
 * the batch size counts the observations of all processes together. If the loss is a mean over the
 * observations, the parameters are the same as in one process, up to rounding. Gradients are
 * averaged before .clip_norm; the rule of `state` need not be an fx_dist_optimiser. Losses, and the
 * decisions of .patience and .keep_best, are the same on all members. Rank 0 shows progress and
 * writes the log and the checkpoint. All members read the checkpoint. A callback that stops one
 * member stops all of them, after one more training step. Random numbers of layers (dropout) are
 * different in each member. If a member fails, all fail, with its reason.
 *
 * .log: a file for the log of the run (cflux/report.h): start, training steps, epochs (with
 * .metric, if .patience or .keep_best computes it), and end. Training that resumes from a
 * checkpoint appends to the file. A failed write does not stop training; fx_train returns
 * FX_STATUS_IO at the end. */
/* clang-format off */
#define FXI_TRAIN_ARGS(F)                                                                          \
    F(fx_loss_fn, loss, FXI_NULL)         /* the loss */                                           \
    F(void *, model, FXI_NULL)            /* the model */                                          \
    F(fx_loader *, data, FXI_NULL)        /* the loader */                                         \
    F(void *, state, FXI_NULL)            /* from fx_setup */                                      \
    F(int64_t, epochs, 1)                 /* passes over the data */                               \
    F(bool, progress, false)              /* true: show progress */                                \
    F(fx_note_fn, epoch_note, FXI_NULL)   /* text for the progress line of an epoch; called after  \
                                             on_epoch, if the epoch gets a line */                 \
    F(FILE *, progress_to, FXI_NULL)      /* output of .progress; NULL: stderr */                  \
    F(fx_callback_fn, on_batch, FXI_NULL) /* called after every update; FX_FLOW_STOP ends          \
                                             training */                                           \
    F(fx_callback_fn, on_epoch, FXI_NULL) /* called after every epoch */                           \
    F(fx_callback_fn, on_start, FXI_NULL) /* called before the first batch; epoch and step are     \
                                             those of the checkpoint if training resumes */        \
    F(int64_t, patience, FX_NEVER)        /* stop if .metric (or the mean loss) has not            \
                                             improved for this many epochs; 0 counts as 1 */       \
    F(fx_metric_fn, metric, FXI_NULL)     /* for .patience and .keep_best; NULL: the mean loss     \
                                             of the epoch */                                       \
    F(bool, keep_best, false)             /* true: at the end the model gets the values of the     \
                                             epoch with the lowest .metric, unless an error        \
                                             ends the training; checkpoints store these values     \
                                             and the current ones */                               \
    F(void *, user, FXI_NULL)             /* passed to loss, callbacks and metric */               \
    F(const char *, checkpoint, FXI_NULL) /* path of the checkpoint; NULL: none */                 \
    F(int64_t, checkpoint_every, 0)       /* updates between checkpoints; 0: one per epoch */      \
    F(int, checkpoint_keep, 2)            /* files to keep: path, path.1, … */                     \
    F(const char *, settings, FXI_NULL)   /* see above; NULL: none */                              \
    F(const char *, log, FXI_NULL)        /* path of the log; NULL: none */                        \
    F(fx_schedule *, schedule, FXI_NULL)  /* learning rate of each epoch; NULL: that of `state` */ \
    F(bool, schedule_steps, false)        /* true: .schedule counts updates, not epochs */         \
    F(double, clip_norm, 0)               /* largest norm of all gradients together                \
                                             (fx_clip_global_norm); 0: no limit */               \
    F(fx_dist *, dist, FXI_NULL)          /* processes that train together; NULL: only this one */
/* clang-format on */
FXI_OPTION_STRUCT(fx_train_args, FXI_TRAIN_ARGS);
/* fx_train(loss, model, loader, state, .epochs = 10, .progress = true): for every batch computes
 * the loss and its gradient in a training step, and updates the model. Training stops at the first
 * error, whose status is returned. FX_STATUS_ARGUMENT if the loss, model, loader or state is NULL,
 * or a number is out of range; FX_STATUS_FORMAT if .checkpoint was not written by fx_train. A loss
 * of NaN or Inf is FX_STATUS_NONFINITE, "train: loss is NaN on batch 17 of epoch 2"; parameters and
 * state are those before that batch. With .clip_norm or fx_clip_norm, gradients that are not finite
 * end training in the same way. With fx_mixed_precision and a .scale or .growth, training skips the
 * update of these gradients and continues. With .growth the loss is multiplied by
 * fx_loss_scale(state), which the reported loss and .clip_norm do not include. Flux.train!. */
FX_API fx_status fxi_train(const fx_train_args *a);
#define fx_train(...)                                                                              \
    FXI_CALL(fxi_train(FXI_OPTIONS(fx_train_args, FXI_TRAIN_ARGS(FXI_DEFAULT).loss = __VA_ARGS__)))

/* Returns the loss of a model on a batch, or a tuple whose first item is the loss; the other items
 * are auxiliary outputs: arrays, or tuples of arrays. */
typedef void *(*fx_outputs_fn)(void *model, const fx_batch *batch, void *user);
/* One training step, for a loop of your own: calls loss(model, batch, user) in FX_RECORD, computes
 * the gradient, and updates the model. Returns the result of `loss`, evaluated in the plan of the
 * update; the scope of the caller owns it. `batch` is passed on and may be NULL.
 *
 * On failure: an error array. A loss of NaN or Inf is FX_STATUS_NONFINITE, and model and state do
 * not change; with fx_mixed_precision and a .scale or .growth, the call skips an update whose
 * gradients are not finite, and succeeds. FX_STATUS_ARGUMENT if `loss`, `model` or `state` is NULL,
 * or if `loss` returns neither an array nor such a tuple. Flux.trainstep!. */
FX_API void *fx_trainstep(fx_outputs_fn loss, void *model, const fx_batch *batch, void *state,
                          void *user);
/* fx_trainstep that returns a named tuple "outputs", "gradient": the result of `loss`, and its
 * gradient, an object of the model's type. Flux.trainstep_withgradient!. */
FX_API void *fx_trainstep_withgradient(fx_outputs_fn loss, void *model, const fx_batch *batch,
                                       void *state, void *user);

FXI_END_C
#endif
