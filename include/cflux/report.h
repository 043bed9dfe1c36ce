/* cflux/report.h: logs of training runs, and the pages that are made of them.
 *
 * A log is JSON, one event a line: start, step, epoch, end; docs/log.md lists the members. fx_train
 * writes one with .log = "run.jsonl", and fx_report("run.jsonl", "run.html") makes a page of it. A
 * program with a loop of its own, or with more to say (the data, a confusion matrix, samples,
 * layers), calls these functions:
 *
 *     fx_run_log *log = fx_run_log_open("run.jsonl", false);
 *     fx_run_log_start(log, .model = "Dense(2 => 1)", .epochs = 10);
 *     fx_run_log_step(log, step, epoch, loss, seconds);     // after every training step
 *     fx_run_log_epoch(log, .epoch = 1, .step = step, .loss = mean, .seconds = seconds);
 *     fx_run_log_end(log, .why = "finished", .step = step, .seconds = seconds);
 *     fx_run_log_close(log);
 *
 * Each line is written whole, by one call of the system, so a run that is killed leaves whole
 * lines. Training steps and epochs that follow each other within FX_RUN_LOG_GAP wait for each
 * other, and may be lost with the process. Training steps within a thousandth of the run's time (at
 * least a tenth of FX_RUN_LOG_GAP, at most all of it) share a line with their mean, least and
 * greatest loss: logging does not slow training down. Call fx_run_log_step for every training step.
 *
 * A failed write (a full disk) does not stop training: the log takes back what it wrote of the
 * line, sends one warning through the message hook, and writes nothing more. The functions return
 * the status from then on and record no error; fx_run_log_close records it. They accept NULL as a
 * log and do nothing. Texts and arrays are read during the call only. */
#ifndef CFLUX_REPORT_H
#define CFLUX_REPORT_H

#include <cflux/array.h>
#include <cflux/json_out.h>
#include <math.h>

FXI_BEGIN_C

/* Seconds that lines of training steps or epochs wait for each other at most. */
#define FX_RUN_LOG_GAP 0.01

/* An open log. */
typedef struct fx_run_log fx_run_log;

/* An observation and the model's output for it. With classes, `target` is the number of the class
 * from 0, and `output` has a probability for each class. */
typedef struct fx_run_sample {
    const double *input; /* ninput numbers, the first dimension fastest */
    int64_t ninput;
    const int64_t *shape; /* (width, height[, channels]) is shown as an image */
    int rank;
    const double *target, *output;
    int64_t ntarget, noutput;
    bool scores;   /* `output` has scores of classes that are not probabilities; then */
    int64_t guess; /* this is the number of the chosen class */
} fx_run_sample;

/* Options of fx_run_log_start, fx_run_log_epoch and fx_run_log_end. Texts that are NULL, numbers
 * that are −1 and losses that are NaN are unknown, and are not in the log. */
/* clang-format off */
#define FXI_RUN_LOG_START_ARGS(F)                                                                           \
    F(const char *, model, FXI_NULL)       /* in notation, like loss and optimiser */              \
    F(const char *, loss, FXI_NULL)                                                                \
    F(const char *, optimiser, FXI_NULL)                                                           \
    F(const char *, device, FXI_NULL)                                                              \
    F(const char *, data_path, FXI_NULL)                                                           \
    F(const char *, data_kind, FXI_NULL)   /* "idx", "csv", "npy", "npz" */                        \
    F(const char *, target, FXI_NULL)      /* the target column */                                 \
    F(int64_t, observations, -1)                                                                   \
    F(int64_t, train, -1)                  /* of these to train, */                                \
    F(int64_t, validation, -1)             /* and to validate */                                   \
    F(const char *const *, classes, FXI_NULL) /* nclasses names; NULL: a regression */             \
    F(int64_t, nclasses, 0)                                                                        \
    F(int64_t, seed, -1)                                                                           \
    F(int64_t, epochs, -1)                                                                         \
    F(int64_t, batchsize, -1)                                                                      \
    F(int64_t, parameters, -1)                                                                     \
    F(int64_t, resumed_at_step, 0)         /* > 0: the run goes on from that step of a checkpoint */
#define FXI_RUN_LOG_EPOCH_ARGS(F)                                                                           \
    F(int64_t, epoch, 0)                                                                           \
    F(int64_t, step, 0)                    /* training steps so far, all epochs */                 \
    F(double, loss, NAN)                   /* mean over the epoch's batches; NaN is null */        \
    F(double, validation_loss, NAN)                                                                \
    F(double, accuracy, NAN)               /* from 0 to 1 */                                       \
    F(double, metric, NAN)                 /* a number of the program's */                         \
    F(double, seconds, 0)                  /* since training began */
#define FXI_RUN_LOG_END_ARGS(F)                                                                             \
    F(const char *, why, FXI_NULL)         /* "finished", "patience", "interrupted", "error" */    \
    F(const char *, message, FXI_NULL)     /* a sentence */                                        \
    F(int64_t, step, 0)                                                                            \
    F(double, seconds, 0)                                                                          \
    F(const int64_t *, confusion, FXI_NULL) /* nclasses rows: [truth * nclasses + guess] */        \
    F(const char *const *, classes, FXI_NULL) /* nclasses names */                                 \
    F(int64_t, nclasses, 0)                                                                        \
    F(const fx_run_sample *, samples, FXI_NULL)                                                    \
    F(int64_t, nsamples, 0)                                                                        \
    F(void *, model, FXI_NULL)             /* with batch: its layers are measured and listed */    \
    F(fx_array *, batch, FXI_NULL)         /* inputs, on the model's device */
/* clang-format on */
/* Options of fx_report. The log is `log`, or `run`, or `log_from`. */
/* clang-format off */
#define FXI_REPORT_ARGS(F)                                                                         \
    F(const char *, log, FXI_NULL)         /* the file of a log */                                 \
    F(const char *, page, FXI_NULL)        /* the file to write, whole or not at all */            \
    F(const char *, name, FXI_NULL)        /* what the page and messages call the log; NULL: its path */ \
    F(const fx_run_log *, run, FXI_NULL)   /* a log of this program that is open */                \
    F(FILE *, log_from, FXI_NULL)          /* a file that is read to its end */                    \
    F(FILE *, page_to, FXI_NULL)           /* a file to write the page to; ask ferror afterwards */
/* clang-format on */
FXI_OPTION_STRUCT(fx_report_args, FXI_REPORT_ARGS);
FXI_OPTION_STRUCT(fx_run_log_start_args, FXI_RUN_LOG_START_ARGS);
FXI_OPTION_STRUCT(fx_run_log_epoch_args, FXI_RUN_LOG_EPOCH_ARGS);
FXI_OPTION_STRUCT(fx_run_log_end_args, FXI_RUN_LOG_END_ARGS);

/* Opens a log: a new file, or with `append` one that a run that goes on adds to. path NULL: a
 * temporary file. NULL with an error recorded (FX_STATUS_IO, FX_STATUS_MEMORY) if it cannot. */
FX_API fx_run_log *fx_run_log_open(const char *path, bool append);
/* Writes the event "start": call it before the first training step. */
FX_API fx_status fxi_run_log_start(fx_run_log *log, const fx_run_log_start_args *start);
/* After a training step: its number and epoch, from 1; its loss; seconds since training began. */
FX_API fx_status fx_run_log_step(fx_run_log *log, int64_t step, int64_t epoch, double loss,
                                 double seconds);
/* Writes the event "epoch". */
FX_API fx_status fxi_run_log_epoch(fx_run_log *log, const fx_run_log_epoch_args *epoch);
/* Writes the event "end", the last one of a run. */
FX_API fx_status fxi_run_log_end(fx_run_log *log, const fx_run_log_end_args *end);
/* Writes the lines that wait, and closes. Returns the log's first failure and records it. */
FX_API fx_status fx_run_log_close(fx_run_log *log);

/* Makes a page of a log: one HTML file that needs no network, with curves, confusion matrix,
 * samples and layers (docs/log.md). The run may have ended, may have been killed, or may still go
 * on. Lines that are no events are left out, with a warning in the page and through the message
 * hook; a file without events is FX_STATUS_FORMAT. */
FX_API fx_status fxi_report(const fx_report_args *a);
/* fx_report("run.jsonl", "run.html") */
#define fx_report(...)                                                                             \
    FXI_CALL(                                                                                      \
        fxi_report(FXI_OPTIONS(fx_report_args, FXI_REPORT_ARGS(FXI_DEFAULT).log = __VA_ARGS__)))
/* fx_run_log_start(log, .model = "Dense(2 => 1)", .epochs = 10) */
#define fx_run_log_start(log, ...)                                                                 \
    FXI_CALL(                                                                                      \
        fxi_run_log_start((log), FXI_OPTIONS(fx_run_log_start_args,                                \
                                             FXI_RUN_LOG_START_ARGS(FXI_DEFAULT) __VA_ARGS__)))
/* fx_run_log_epoch(log, .epoch = 1, .step = 20, .loss = 0.5, .seconds = 1.5) */
#define fx_run_log_epoch(log, ...)                                                                 \
    FXI_CALL(                                                                                      \
        fxi_run_log_epoch((log), FXI_OPTIONS(fx_run_log_epoch_args,                                \
                                             FXI_RUN_LOG_EPOCH_ARGS(FXI_DEFAULT) __VA_ARGS__)))
/* fx_run_log_end(log, .why = "finished", .step = 20, .seconds = 1.5) */
#define fx_run_log_end(log, ...)                                                                   \
    FXI_CALL(fxi_run_log_end(                                                                      \
        (log), FXI_OPTIONS(fx_run_log_end_args, FXI_RUN_LOG_END_ARGS(FXI_DEFAULT) __VA_ARGS__)))

FXI_END_C
#endif
