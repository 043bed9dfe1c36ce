/* cflux/predict.h: predictions of models that the command line trained and saved. */
#ifndef CFLUX_PREDICT_H
#define CFLUX_PREDICT_H

#include <cflux/tree.h>

FXI_BEGIN_C

/* A predictor is the content of a file of `cflux train --save`, a named tuple of:
 *
 *     model       the model
 *     about       texts: loss; kind, the format of the data ("csv", "idx", "images", "npy", "npz",
 *                 "text"; "language" for a language model); target; decimal, "," if numbers of a
 *                 table have a decimal comma; shape and transpose, the options of the command if
 *                 they were given
 *     shape       the sizes of an observation, an Int64 vector
 *     columns     names of the features, a tuple of texts
 *     classes     names of the classes, a tuple of texts
 *     mean, std   of the features, with the sizes of an observation (an axis may have size 1)
 *     fill        replacements for missing values, with sizes as mean and std
 *     merges      for texts: the tokenizer, see fx_tokenizer_merges; shape then has one element,
 *                 the number of tokens of a text that are used, or the context of a language model
 *
 * Only the model is required. fx_predict skips a computation whose entry is missing. */

/* Loads a predictor from a file that `cflux train --save` or `cflux convert` wrote: .bson,
 * .safetensors or .npz. The scope owns it; it is a named tuple, so fx_gpu, fx_keep and fx_show
 * accept it. Errors: FX_STATUS_FORMAT if the file has no model, or an entry does not have the form
 * above; those of fx_load_entries. Returns an error object on failure. */
FX_API void *fx_load_predictor(const char *path);

/* The entries of a file as a named tuple, which the scope owns. A BSON file holds models
 * completely. Other files hold arrays under their paths, "model.layers.0.weight", and texts
 * (fx_metadata), from which the entries are made:
 *
 *     notation.NAME   an entry that has layers, in Flux's notation
 *     text.PATH       a text of an entry, "text.classes.0"
 *     tuple.NAME      an entry that is a tuple, a list or a dictionary of arrays
 *     pytorch.NAME    like notation.NAME; the arrays of the file have PyTorch's names and layouts
 *     array.PATH      an array as text: "Float32 2x3: 0 1 2 3 4 5", the first axis varies fastest
 *
 * Arrays that belong to no notation become entries under their own names; an .npy file gives the
 * entry "array". The remaining texts become the entry "__metadata__". `notation`: the model to
 * which the arrays belong, which becomes the entry "model" and overrides the file (the arrays are
 * named "model.…", or by their paths, or as in PyTorch). NULL: the notation in the file. Returns an
 * error array on failure: FX_STATUS_FORMAT if arrays do not fit their notation; the errors of
 * fx_load and fx_parse_model. */
FX_API void *fx_load_entries(const char *path, const char *notation);
/* Internal: the beginnings of these keys, for the command line, which writes them. */
#define FXI_ENTRIES_METADATA "__metadata__"
#define FXI_ENTRIES_NOTATION "notation."
#define FXI_ENTRIES_TEXT     "text."
#define FXI_ENTRIES_TUPLE    "tuple."
#define FXI_ENTRIES_PYTORCH  "pytorch."
#define FXI_ENTRIES_ARRAY    "array."

/* Makes a predictor from a named tuple, such as the result of fx_load or fx_load_bytes; models of
 * safetensors and npz files are made as by fx_load_entries. Checks the entries listed above and
 * drops all others. If there is no layer "model", the model is the only entry that is a
 * layer. `path`: the file, for messages; NULL: unknown. Ownership and errors: as
 * fx_load_predictor. */
FX_API void *fx_predictor(const char *path, void *entries);

/* Returns the outputs of the model for raw observations: model((x − mean) / std), where `fill`
 * first replaces each NaN in x. The final axis of x counts observations (N). The product of its
 * other sizes must be that of the predictor's `shape`. If about.transpose is set, x has its axes in
 * the order of the data files: the first two sizes of `shape` are exchanged. Input of other types
 * than Float64 is first converted to Float32. The scaling is computed in Float64. The model then
 * gets Float64 if one of its arrays is Float64, otherwise Float32. Computes in inference mode, 256
 * observations at a time, on the device of the model. The result is evaluated and on the CPU, of
 * shape (outputs, N) for a model that ends in a dense layer; the scope owns it. For a model of
 * texts, x contains ids of fx_tokenizer_encode_texts; fx_predict_texts is simpler. For a language
 * model, x contains ids, context×N, and the result has a score for each token, tokens×context×N.
 * Errors: FX_STATUS_SHAPE for other sizes or no observations; FX_STATUS_ARGUMENT if `predictor` is
 * not a predictor; those of the model. */
FX_API fx_array *fx_predict(void *predictor, fx_array *x);

/* fx_predict for the rows of a CSV file, plain or gzip. The separator is found as fx_read_table
 * finds it; numbers have a decimal comma if about.decimal is ",". Columns are found by their names.
 * A file without names must have the columns of the training data in the same order, with or
 * without the target. Missing values are allowed if the predictor has `fill`. Errors: those of
 * fx_read_table, fx_table_features and fx_predict. */
FX_API fx_array *fx_predict_csv(void *predictor, const char *path);

/* fx_predict for n texts, in UTF-8, without labels. Errors: those of fx_tokenizer_encode_texts and
 * fx_predict; FX_STATUS_ARGUMENT if the model was not trained on texts, and for a language model
 * (fx_generate). */
FX_API fx_array *fx_predict_texts(void *predictor, int64_t n, const char *const *texts);

/* The predicted class of each observation, an Int64 vector of positions in the predictor's classes.
 * `y` is the result of fx_predict. If y has an output for each class, the class with the largest
 * output; if it has one output for two classes, the second class where the output is above the
 * threshold of the loss (0 for logits and hinge losses, otherwise 0.5). FX_STATUS_ARGUMENT if the
 * predictor has no classes; FX_STATUS_SHAPE if y does not fit them: crossentropy,
 * logitcrossentropy, kldivergence and focal_loss need an output for each class. */
FX_API fx_array *fx_predicted_classes(void *predictor, fx_array *y);

/* The probabilities of the classes, of shape (classes, N): softmax(y) or σ(y) if the model's
 * outputs are logits, y itself if the loss takes probabilities. Errors: as fx_predicted_classes;
 * FX_STATUS_ARGUMENT if the outputs of models trained with this loss are not probabilities. */
FX_API fx_array *fx_predicted_probabilities(void *predictor, fx_array *y);

/* The name of class number k, from 0; NULL if there is none. Valid while the predictor exists. */
FX_API const char *fx_class_name(const void *predictor, int64_t k);

/* ---- language models ------------------------------------------------------------------------- */
/* A predictor whose about.kind is "language" predicts the next token of a text: the model maps ids
 * of shape (T, N) to scores (logits) of shape (tokens, T, N), where the scores at position t depend
 * only on the ids up to t. T is the context, the element of `shape`. */

/* Receives the n bytes of each new token. Returns false to end the text. */
typedef bool (*fx_token_fn)(const char *bytes, size_t n, void *user);

/* Options of fx_generate. */
/* clang-format off */
#define FXI_GENERATE_ARGS(F)                                                                       \
    F(void *, predictor, FXI_NULL)     /* from fx_load_predictor */                                \
    F(const char *, prompt, FXI_NULL)  /* the beginning of the text; NULL or "": a line end */     \
    F(int64_t, length, 200)            /* number of tokens to add */                               \
    F(double, temperature, 1)          /* in softmax(scores / temperature); 0: always the token    \
                                          with the largest score */                                \
    F(int64_t, top_k, 0)               /* draw among the tokens with the k largest scores;         \
                                          0: among all */                                          \
    F(fx_token_fn, on_token, FXI_NULL) /* called for every new token; NULL: not called */          \
    F(void *, user, FXI_NULL)          /* passed to on_token */
/* clang-format on */
FXI_OPTION_STRUCT(fx_generate_args, FXI_GENERATE_ARGS);
/* fx_generate(predictor, .prompt = "ROMEO:", .length = 100): continues a text. Draws each next
 * token with the probabilities softmax(scores / temperature), where the model sees the latest
 * tokens, at most its context. The random numbers are those of fx_seed. Returns the ids of the new
 * tokens, an Int64 vector on the CPU, which the scope owns; fx_predicted_text turns them into a
 * text. Computes in inference mode, on the device of the model. Errors: FX_STATUS_ARGUMENT if
 * `predictor` is not a language model, or if length, temperature or top_k is negative, length is 0
 * or temperature is not finite; FX_STATUS_SHAPE if the model returns other sizes;
 * FX_STATUS_NONFINITE if a score is NaN or +∞, or all are −∞; those of the model. */
FX_API fx_array *fxi_generate(const fx_generate_args *a);
#define fx_generate(...)                                                                           \
    FXI_CALL(fxi_generate(                                                                         \
        FXI_OPTIONS(fx_generate_args, FXI_GENERATE_ARGS(FXI_DEFAULT).predictor = __VA_ARGS__)))

/* Writes the text of ids: fx_tokenizer_decode with the tokenizer of the predictor, with the same
 * arguments and errors. FX_STATUS_ARGUMENT if the predictor has no tokenizer. */
FX_API fx_status fx_predicted_text(void *predictor, fx_array *ids, char *dst, size_t capacity,
                                   size_t *out_bytes);

/* ---- features of tables ---------------------------------------------------------------------- */
/* The features of a table from fx_read_table. A column of numbers is one feature, with its name. A
 * text column is one feature for each of its texts, named "color=red": 1 in the rows with this
 * text, otherwise 0; a missing text is NaN in all of them. */

/* Returns the column of each feature: an Int64 vector of positions in the table, from 0; −1 if the
 * column is missing. `features` is a tuple of texts: the name of a column, its number from 1, or
 * the name of a text feature such as "color=red". Errors: FX_STATUS_ARGUMENT if `table` is not from
 * fx_read_table or `features` is not a tuple of texts. */
FX_API fx_array *fx_table_columns(void *table, void *features);

/* Returns the values of the features, Float32, of shape (features, rows). Columns are found by
 * their names. A table without names must have the columns in the order of the features. `skip`:
 * positions of columns to leave out with their features, an Int64 vector; NULL: none. `path`: the
 * file, for messages. The scope owns the result. FX_STATUS_FORMAT if a column is missing, has text
 * instead of numbers or numbers instead of text, or has a text for which there is no feature. */
FX_API fx_array *fx_table_features(void *table, void *features, fx_array *skip, const char *path);

/* For a table without names: true if its columns, except those in `skip`, give as many features as
 * `features` has, in the same order. The table then has no target column. False on errors too. */
FX_API bool fx_table_fits(void *table, void *features, fx_array *skip);

/* ---- outputs of models ----------------------------------------------------------------------- */
/* The meaning of the outputs of a model, which depends on the loss of its training. */
typedef enum fx_output_kind {
    FX_OUTPUT_SCORES = 0,    /* numbers that are not probabilities */
    FX_OUTPUT_PROBABILITIES, /* probabilities */
    FX_OUTPUT_LOGITS         /* softmax or σ turns them into probabilities */
} fx_output_kind;
/* Returns the kind for the name of a loss without its module, "mse"; FX_OUTPUT_SCORES for an
 * unknown loss. */
FX_API fx_output_kind fx_loss_output(const char *loss);
/* fx_predicted_classes and fx_predicted_probabilities without a predictor: for the name of a loss
 * and the number of classes. fx_output_classes accepts NULL for `loss` if `y` has an output for
 * each class. */
FX_API fx_array *fx_output_classes(const char *loss, int64_t classes, fx_array *y);
FX_API fx_array *fx_output_probabilities(const char *loss, int64_t classes, fx_array *y);

FXI_END_C
#endif
