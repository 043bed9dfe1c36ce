/* problem.h: what is learned: classes or numbers, by which loss, from features in which scale; and
 * how well a model does it. */
#ifndef CFLUX_TOOL_PROBLEM_H
#define CFLUX_TOOL_PROBLEM_H

#include "dataset.h"

typedef struct loss_kind loss_kind;

typedef struct problem {
    const char *loss; /* its name, without a module */
    const loss_kind *kind;
    fx_formula_fn formula;
    void *classes; /* a named tuple, name to number; NULL: the target is numbers */
    int64_t nclasses;
    bool single;          /* two classes, and a model with one output */
    fx_array *mean, *std; /* of the features in training, shaped like an observation, sizes that do
                             not vary 1; NULL: features are taken as they are */
    fx_device *device;
} problem;

typedef enum task { TASK_BY_DATA = 0, TASK_CLASSES, TASK_NUMBERS } task;

/* Functions that return an int give EXIT_FINE or the exit status of what was printed. */

/* The loss by its text; NULL: the one that fits the target, once it is known. */
int problem_loss(problem *p, const char *text);
/* May targets of text be learned as they are, or do they say that a number is missing? */
int problem_check_texts(const dataset *d);
/* Are the targets classes, and which? */
int problem_classes(problem *p, const dataset *d, task asked);
/* The targets as the loss takes them: class numbers (Int64), or Float32 numbers. */
int problem_targets(const problem *p, const dataset *d, fx_array **out);

/* From the features of the training part: of each feature, or of each channel (the axis before the
 * last). */
void problem_scale(problem *p, fx_array *x, bool channels);
fx_array *problem_scaled(const problem *p, fx_array *x);

/* Does the model take such observations and give what the loss wants? One observation goes through
 * it; what does not fit is said by layer. Sets p->single. y NULL: targets are unknown. */
int problem_check(problem *p, void *model, const char *data, fx_array *x, fx_array *y);

/* The loss of a batch, for training. */
fx_array *problem_batch_loss(const problem *p, void *model, fx_array *x, fx_array *y);
/* Do outputs that such a loss trained say probabilities, of classes or as numbers from 0 to 1? A
 * margin or another number does not. */
bool problem_has_probabilities(const problem *p);
/* Of the model's outputs, where they say probabilities: one for each class or number. */
fx_array *problem_probabilities(const problem *p, fx_array *output);
/* The number of the class that is chosen. */
fx_array *problem_guesses(const problem *p, fx_array *output);

typedef struct scores {
    int64_t n;
    double loss;     /* mean over the observations */
    int64_t right;   /* guesses; 0 without classes */
    int64_t *counts; /* if not NULL: nclasses × nclasses, [truth * nclasses + guess], added to */
} scores;
/* Runs the model over all observations in batches, in inference mode. */
int problem_scores(const problem *p, void *model, fx_array *x, fx_array *y, scores *out);
double accuracy_of(const scores *s);
const char *class_name(const problem *p, int64_t i);

#endif
