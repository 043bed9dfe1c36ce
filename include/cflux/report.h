/* cflux/report.h: logs of training runs, and HTML pages made from them.
 *
 * A log is JSON, one event per line: start, step, epoch, end; docs/log.md lists the members.
 * fx_train writes a log with .log = "run.jsonl", and fx_report("run.jsonl", "run.html") makes a
 * page from it. Programs with their own training loop, or with more to log (data, a confusion
 * matrix, samples, layers), call these functions:
 *
 *     fx_run_log *log = fx_run_log_open("run.jsonl", false);
 *     fx_run_log_start(log, .model = "Dense(2 => 1)", .epochs = 10);
 *     fx_run_log_step(log, step, epoch, loss, seconds);     // after every training step
 *     fx_run_log_epoch(log, .epoch = 1, .step = step, .loss = mean, .seconds = seconds);
 *     fx_run_log_end(log, .why = "finished", .step = step, .seconds = seconds);
 *     fx_run_log_close(log);
 *
 * One system call writes each line. Only a kill during this call can leave an incomplete last line,
 * which fx_run_log_open removes with append = true. Lines of training steps and epochs that follow
 * each other within FX_RUN_LOG_GAP are buffered until a later call, and can be lost with the
 * process. Training steps that follow each other within a short interval share a line with their
 * mean, minimum and maximum loss, so that logging does not slow down training. The interval is a
 * thousandth of the elapsed time, at least FX_RUN_LOG_GAP/10 and at most FX_RUN_LOG_GAP. Call
 * fx_run_log_step for every training step.
 *
 * A failed write (e.g. a full disk) does not stop training: the log removes the incomplete line,
 * sends one warning to the message hook, and writes nothing more. From then on the functions return
 * the status without an error record; fx_run_log_close records it. All functions accept NULL as a
 * log and do nothing. Texts and arrays are only read during the call. */
#ifndef CFLUX_REPORT_H
#define CFLUX_REPORT_H

#include <cflux/array.h>
#include <cflux/json_out.h>
#include <math.h>

FXI_BEGIN_C

/* Seconds: lines of training steps or epochs that follow each other faster are buffered. */
#define FX_RUN_LOG_GAP 0.01

/* Opaque: an open log. */
typedef struct fx_run_log fx_run_log;

/* An observation and the model's output for it. For classification, `target` is the class from 0,
 * and `output` holds a probability per class. */
typedef struct fx_run_sample {
    const double *input;  /* ninput numbers, column-major */
    int64_t ninput;       /* length of input */
    const int64_t *shape; /* (width, height[, channels]) is shown as an image; NULL: none */
    int rank;             /* number of sizes in shape */
    const double *target, *output; /* correct result; result of the model */
    int64_t ntarget, noutput;      /* their lengths */
    bool scores;                   /* true: `output` holds scores that are not probabilities */
    int64_t guess;                 /* with `scores`: the predicted class */
} fx_run_sample;

/* A number that measures the model, such as {"mae", 0.5}. */
typedef struct fx_run_score {
    const char *name;
    double value;
} fx_run_score;

/* Options of fx_run_log_start, fx_run_log_epoch and fx_run_log_end. Where the default is NULL,
 * −1 or NaN, this value means unknown, and the log leaves the member out. Exception: .loss of an
 * epoch is written as null. */
/* clang-format off */
#define FXI_RUN_LOG_START_ARGS(F)                                                                  \
    F(const char *, model, FXI_NULL)          /* the model in Flux's notation */                   \
    F(const char *, loss, FXI_NULL)           /* the loss in Flux's notation */                    \
    F(const char *, optimiser, FXI_NULL)      /* the rule in Flux's notation */                    \
    F(const char *, device, FXI_NULL)         /* name of the device */                             \
    F(const char *, data_path, FXI_NULL)      /* path of the data */                               \
    F(const char *, data_kind, FXI_NULL)      /* "csv", "idx", "images", "npy", "npz", "text",     \
                                                 "language" */                                     \
    F(const char *, target, FXI_NULL)         /* name of the target column */                      \
    F(int64_t, observations, -1)              /* number of observations */                         \
    F(int64_t, train, -1)                     /* number of observations for training */            \
    F(int64_t, validation, -1)                /* number of observations for validation */          \
    F(const char *const *, classes, FXI_NULL) /* nclasses names; NULL: regression */               \
    F(int64_t, nclasses, 0)                   /* number of classes */                              \
    F(int64_t, seed, -1)                      /* random seed */                                    \
    F(int64_t, epochs, -1)                    /* planned epochs */                                 \
    F(int64_t, batchsize, -1)                 /* observations per batch */                         \
    F(int64_t, parameters, -1)                /* number of trainable elements */                   \
    F(int64_t, resumed_at_step, 0)            /* > 0: the run resumes at this training step of     \
                                                 a checkpoint */                                   \
    F(const char *, precision, FXI_NULL)      /* type in which the layers compute: "bf16" */
#define FXI_RUN_LOG_EPOCH_ARGS(F)                                                                  \
    F(int64_t, epoch, 0)                            /* the epoch, from 1 */                        \
    F(int64_t, step, 0)                             /* training steps so far, in all epochs */     \
    F(double, loss, FXI_TO(double, NAN))            /* mean loss of the epoch's batches */         \
    F(double, validation_loss, FXI_TO(double, NAN)) /* mean loss of the validation data */         \
    F(double, accuracy, FXI_TO(double, NAN))        /* fraction of correct predictions, 0 to 1 */  \
    F(double, metric, FXI_TO(double, NAN))          /* a number chosen by the program */           \
    F(double, seconds, 0)                           /* seconds since training began */
#define FXI_RUN_LOG_END_ARGS(F)                                                                    \
    F(const char *, why, FXI_NULL)              /* "finished", "patience", "interrupted",          \
                                                   "error" */                                      \
    F(const char *, message, FXI_NULL)          /* a sentence, e.g. the error */                   \
    F(int64_t, step, 0)                         /* training steps in all epochs */                 \
    F(double, seconds, 0)                       /* seconds since training began */                 \
    F(const int64_t *, confusion, FXI_NULL)     /* counts, [actual * nclasses + predicted] */      \
    F(const char *const *, classes, FXI_NULL)   /* nclasses names */                               \
    F(int64_t, nclasses, 0)                     /* number of classes */                            \
    F(const fx_run_sample *, samples, FXI_NULL) /* nsamples examples */                            \
    F(int64_t, nsamples, 0)                     /* number of samples */                            \
    F(void *, model, FXI_NULL)                  /* with .batch: the model whose layers are         \
                                                   measured and logged */                          \
    F(fx_array *, batch, FXI_NULL)              /* inputs for .model, on its device */             \
    F(int64_t, nworst, 0)                       /* number of samples at the end of .samples that   \
                                                   are the worst mistakes, the worst first */      \
    F(const char *const *, columns, FXI_NULL)   /* ncolumns names of the numbers of an input */    \
    F(int64_t, ncolumns, 0)                     /* number of names */                              \
    F(const fx_run_score *, scores, FXI_NULL)   /* nscores numbers */                              \
    F(int64_t, nscores, 0)                      /* number of scores */                             \
    F(const double *, pairs, FXI_NULL)          /* npairs pairs: a target, then its prediction */  \
    F(int64_t, npairs, 0)                       /* number of pairs, for regression */
/* clang-format on */
/* Options of fx_report. Give the log as one of .log, .run and .log_from, and the page as .page or
 * .page_to. */
/* clang-format off */
#define FXI_REPORT_ARGS(F)                                                                         \
    F(const char *, log, FXI_NULL)       /* path of the log */                                     \
    F(const char *, page, FXI_NULL)      /* path of the page; it is written completely or not      \
                                            at all */                                              \
    F(const char *, name, FXI_NULL)      /* name of the log in the page and in messages; NULL:     \
                                            its path */                                            \
    F(fx_run_log *, run, FXI_NULL)       /* an open log of this program; its buffered lines are    \
                                            written first */                                       \
    F(FILE *, log_from, FXI_NULL)        /* an open file, read to its end */                       \
    F(FILE *, page_to, FXI_NULL)         /* an open file for the page; check ferror afterwards */  \
    F(const char *, other, FXI_NULL)     /* path of a second log: the page compares both runs */
/* clang-format on */
FXI_OPTION_STRUCT(fx_report_args, FXI_REPORT_ARGS);
FXI_OPTION_STRUCT(fx_run_log_start_args, FXI_RUN_LOG_START_ARGS);
FXI_OPTION_STRUCT(fx_run_log_epoch_args, FXI_RUN_LOG_EPOCH_ARGS);
FXI_OPTION_STRUCT(fx_run_log_end_args, FXI_RUN_LOG_END_ARGS);

/* Opens a log: creates the file, or with `append` continues it (a resumed run). path NULL: a
 * temporary file. Close it with fx_run_log_close. On failure: NULL and an error record
 * (FX_STATUS_IO, FX_STATUS_MEMORY). */
FX_API fx_run_log *fx_run_log_open(const char *path, bool append);
/* fx_run_log_start(log, .model = "Dense(2 => 1)", .epochs = 10): writes the event "start". Call it
 * before the first training step. */
FX_API fx_status fxi_run_log_start(fx_run_log *log, const fx_run_log_start_args *start);
/* Logs a training step: its number and epoch, from 1; its loss; seconds since training began. */
FX_API fx_status fx_run_log_step(fx_run_log *log, int64_t step, int64_t epoch, double loss,
                                 double seconds);
/* fx_run_log_epoch(log, .epoch = 1, .step = 20, .loss = 0.5, .seconds = 1.5): writes the event
 * "epoch". */
FX_API fx_status fxi_run_log_epoch(fx_run_log *log, const fx_run_log_epoch_args *epoch);
/* fx_run_log_end(log, .why = "finished", .step = 20, .seconds = 1.5): writes the event "end" of a
 * run. */
FX_API fx_status fxi_run_log_end(fx_run_log *log, const fx_run_log_end_args *end);
/* Writes buffered lines, closes the log and frees it. Returns and records the log's first
 * failure. */
FX_API fx_status fx_run_log_close(fx_run_log *log);

/* fx_report("run.jsonl", "run.html"): makes a page from a log: one HTML file without external
 * resources, with curves, confusion matrix, samples and layers (docs/log.md). With .other =
 * "run2.jsonl", the page compares two runs: their curves in the same figures, their scores, and the
 * settings that differ. A run may have ended, been killed, or still be running. Lines that are not
 * events are skipped, with a warning in the page and to the message hook. FX_STATUS_FORMAT if there
 * are no events; FX_STATUS_ARGUMENT without a log or a page, or if the page would overwrite the
 * log; FX_STATUS_IO, FX_STATUS_MEMORY. */
FX_API fx_status fxi_report(const fx_report_args *a);
#define fx_report(...)                                                                             \
    FXI_CALL(                                                                                      \
        fxi_report(FXI_OPTIONS(fx_report_args, FXI_REPORT_ARGS(FXI_DEFAULT).log = __VA_ARGS__)))
#define fx_run_log_start(log, ...)                                                                 \
    FXI_CALL(                                                                                      \
        fxi_run_log_start((log), FXI_OPTIONS(fx_run_log_start_args,                                \
                                             FXI_RUN_LOG_START_ARGS(FXI_DEFAULT) __VA_ARGS__)))
#define fx_run_log_epoch(log, ...)                                                                 \
    FXI_CALL(                                                                                      \
        fxi_run_log_epoch((log), FXI_OPTIONS(fx_run_log_epoch_args,                                \
                                             FXI_RUN_LOG_EPOCH_ARGS(FXI_DEFAULT) __VA_ARGS__)))
#define fx_run_log_end(log, ...)                                                                   \
    FXI_CALL(fxi_run_log_end(                                                                      \
        (log), FXI_OPTIONS(fx_run_log_end_args, FXI_RUN_LOG_END_ARGS(FXI_DEFAULT) __VA_ARGS__)))

FXI_END_C
#endif
