/* problem.h: the learning problem: classes or numbers, the loss, the scaling of features, and the
 * scores of a model. */
#ifndef CFLUX_TOOL_PROBLEM_H
#define CFLUX_TOOL_PROBLEM_H

#include "dataset.h"
#include "number_scores.h"

typedef enum task { TASK_BY_DATA = 0, TASK_CLASSES, TASK_NUMBERS } task;

typedef struct loss_kind {
    const char *name;
    task means;  /* kind of targets by default; TASK_BY_DATA if the loss allows both */
    bool binary; /* one output is enough for two classes */
    bool signs;  /* targets are −1 and 1, not 0 and 1 */
    bool shares; /* targets may also be numbers from 0 to 1 */
    bool whole;  /* one value for all observations together: classes cannot be weighted */
} loss_kind;

typedef struct problem {
    const char *loss; /* name without a module */
    const loss_kind *kind;
    fx_formula_fn formula;
    void *classes; /* a named tuple of names and numbers; NULL: the targets are numbers */
    int64_t nclasses;
    fx_array *fill;       /* replaces the missing values of each feature; NULL: none is missing */
    fx_array *weights;    /* factors of the classes in the loss, Float32; NULL: all are 1 */
    bool single;          /* two classes, and the model has one output */
    fx_array *mean, *std; /* of the training features, with the shape of an observation (size 1
                             along axes that share a scale); NULL: features are not scaled */
    int64_t tokens;       /* of the tokenizer of texts; 0: the inputs are numbers */
    int64_t context;      /* of a language model: tokens of an observation; 0: another problem */
    fx_array *characters; /* of a language model: the number of characters of each token */
    fx_device *device;
} problem;

/* Functions that return an int return EXIT_FINE or the exit status of a failure (printed). */

/* Sets the loss from its text; NULL: chosen later, according to the targets. */
int problem_loss(problem *p, const char *text);
/* Checks whether text targets are classes, or mark a missing number (refused). */
int problem_check_texts(const dataset *d);
/* Determines whether the targets are classes, and the names of the classes. */
int problem_classes(problem *p, const dataset *d, task asked);
/* The targets in the form that the loss expects: class numbers (Int64), or Float32 numbers. */
int problem_targets(const problem *p, const dataset *d, fx_array **out);

/* The mean and the standard deviation of x over `dims`, Float64, evaluated. The standard deviation
 * divides by n − 1; it is 1 where x is constant. */
void standard_scale(fx_array *x, fx_axes dims, fx_array **out_mean, fx_array **out_std);
/* Sets mean and std from the features of the training part: per feature, or per channel (the axis
 * before the last). */
void problem_scale(problem *p, fx_array *x, bool channels);
/* Replaces missing values. */
fx_array *problem_filled(const problem *p, fx_array *x);
/* Replaces missing values, then scales. */
fx_array *problem_scaled(const problem *p, fx_array *x);

/* The input of the model for observations: texts with a label become bags of tokens, see
 * fx_token_bags. */
void *problem_input(const problem *p, fx_array *x);
/* The loss of the model's outputs, the mean over the observations: Σ w[yᵢ]·lᵢ / n with the weights
 * of classes. */
fx_array *problem_output_loss(const problem *p, fx_array *output, fx_array *y);
/* True if the outputs of a model trained with this loss can be converted to probabilities of
 * classes, or to targets from 0 to 1. False for margins and other numbers. */
bool problem_has_probabilities(const problem *p);
/* The model's outputs as probabilities: one for each class or number. */
fx_array *problem_probabilities(const problem *p, fx_array *output);
/* The number of the predicted class. */
fx_array *problem_guesses(const problem *p, fx_array *output);

typedef struct scores {
    int64_t n;
    double loss;     /* mean over the observations */
    int64_t right;   /* correct guesses; 0 without classes */
    int64_t *counts; /* nclasses × nclasses, indexed [truth * nclasses + guess], or NULL; counts are
                        added */
    number_scores numbers; /* of targets that are numbers */
    number_sums *sums;     /* gets the sums of each target that is a number, which the caller frees;
                              NULL: not needed */
    double characters;     /* of a language model: number of characters in the targets */
} scores;
/* Runs the model over all observations in batches, in inference mode. */
int problem_scores(const problem *p, void *model, fx_array *x, fx_array *y, scores *out);
double accuracy_of(const scores *s);
const char *class_name(const problem *p, int64_t i);

#endif
