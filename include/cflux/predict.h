/* cflux/predict.h: predictions of models that the command line trained and saved. */
#ifndef CFLUX_PREDICT_H
#define CFLUX_PREDICT_H

#include <cflux/tree.h>

FXI_BEGIN_C

/* A predictor is what `cflux train --save` writes, a named tuple of:
 *
 *     model       the model
 *     about       texts: loss, kind (of the data), target
 *     shape       the sizes of an observation, an Int64 vector
 *     columns     names of the features, a tuple of texts
 *     classes     names of the classes, a tuple of texts
 *     mean, std   of the features, shaped like an observation
 *     fill        replaces missing values of the features, shaped like an observation
 *
 * Only the model is required. Entries that are absent are not applied. */

/* Loads a predictor from a .bson file. The scope owns it; it is a named tuple, so fx_gpu, fx_keep
 * and fx_show accept it. An error object on failure: FX_STATUS_FORMAT if the file has no model (a
 * .safetensors file must be converted: cflux convert m.safetensors m.bson), or if an entry does not
 * have the form above; otherwise the errors of fx_load. */
FX_API void *fx_load_predictor(const char *path);

/* Checks the entries of a model file, a named tuple with any further entries, and returns a
 * predictor of those listed above. Without an entry "model" the only entry that can be called is
 * the model. `path` is for messages. Otherwise as fx_load_predictor. */
FX_API void *fx_predictor(const char *path, void *entries);

/* The outputs of the model for raw observations: model((x − mean) / std), where NaN in x is first
 * replaced by `fill`. The final axis of x counts observations (N); the other sizes must multiply to
 * those of the predictor's shape. Computed in inference mode, 256 observations at a time, on the
 * device of the model. Returns evaluated values on the CPU, of shape (outputs, N) for a model that
 * ends in a dense layer; the scope owns them. Errors: FX_STATUS_SHAPE for other sizes or no
 * observations, FX_STATUS_ARGUMENT if the predictor is not one; those of the model. */
FX_API fx_array *fx_predict(void *predictor, fx_array *x);

/* fx_predict for the rows of a CSV file, plain or gzip, separated by commas. Columns are found by
 * their names; a file without names must have the columns of the training data in their order, with
 * or without the target. Missing values are allowed if the predictor has `fill`. Errors: those of
 * fx_read_table, fx_table_features and fx_predict. */
FX_API fx_array *fx_predict_csv(void *predictor, const char *path);

/* The predicted class of each observation, an Int64 vector of positions in the predictor's classes.
 * `y` is the result of fx_predict. With an output for each class it is the largest; with one output
 * for two classes, the second class if the output is above the threshold of the loss (0 for logits
 * and hinge losses, otherwise 0.5). FX_STATUS_ARGUMENT if the predictor has no classes;
 * FX_STATUS_SHAPE if y does not fit them. */
FX_API fx_array *fx_predicted_classes(void *predictor, fx_array *y);

/* The probabilities of the classes, of shape (classes, N): softmax(y) or σ(y) if the model's
 * outputs are logits, y itself if the loss takes probabilities. Errors: as fx_predicted_classes;
 * FX_STATUS_ARGUMENT if the outputs of models trained with this loss are not probabilities. */
FX_API fx_array *fx_predicted_probabilities(void *predictor, fx_array *y);

/* The name of class number k, from 0; NULL if there is none. Valid while the predictor exists. */
FX_API const char *fx_class_name(const void *predictor, int64_t k);

/* ---- features of tables ---------------------------------------------------------------------- */
/* The features of a table from fx_read_table. A column of numbers is one feature, with its name. A
 * text column is one feature for each of its texts, named "color=red": 1 in the rows with this
 * text, otherwise 0; a missing text is NaN in all of them. */

/* The column of each feature: an Int64 vector with the position in table's columns of each name in
 * `features`, a tuple of texts. A name is that of a column, a column's number from 1, or that of a
 * text; −1: there is no such column. */
FX_API fx_array *fx_table_columns(void *table, void *features);

/* The values of the features, Float32, of shape (features, rows). Columns are found by their names.
 * A table without names must have the columns of the features in their order. `skip`: positions of
 * columns to leave out with their features, an Int64 vector; NULL: none. `path`: the file, for
 * messages. The scope owns the result. FX_STATUS_FORMAT if a column is missing, has text instead of
 * numbers or numbers instead of text, or has a text for which there is no feature. */
FX_API fx_array *fx_table_features(void *table, void *features, fx_array *skip, const char *path);

/* True if the columns of a table, except those in `skip`, are as many as the features, in their
 * order: then no column of a table without names is a target. */
FX_API bool fx_table_fits(void *table, void *features, fx_array *skip);

/* ---- outputs of models ----------------------------------------------------------------------- */
/* What the outputs of models are that are trained with a loss. */
typedef enum fx_output_kind {
    FX_OUTPUT_SCORES = 0,    /* numbers that are not probabilities */
    FX_OUTPUT_PROBABILITIES, /* probabilities */
    FX_OUTPUT_LOGITS         /* softmax or σ turns them into probabilities */
} fx_output_kind;
/* The kind for a loss by its name without modules, "mse". FX_OUTPUT_SCORES for an unknown loss. */
FX_API fx_output_kind fx_loss_output(const char *loss);
/* fx_predicted_classes and fx_predicted_probabilities for a loss and a number of classes. `loss`
 * may be NULL if `y` has an output for each class and probabilities are not asked for. */
FX_API fx_array *fx_output_classes(const char *loss, int64_t classes, fx_array *y);
FX_API fx_array *fx_output_probabilities(const char *loss, int64_t classes, fx_array *y);

FXI_END_C
#endif
