/* trained.h: saves and loads a model together with everything that a prediction needs: names, sizes
 * and scaling of its inputs, and the meaning of its outputs. The entries of the file:
 *
 *     model     the model
 *     about     texts: loss, kind (of the data), target; --shape, --transpose, --decimal , and
 *               --missing drop if given
 *     shape     the sizes of an observation
 *     columns   names of the features, texts
 *     classes   names of the classes, texts
 *     mean, std of the features, shaped like an observation (1 along axes that share a scale)
 *     fill      replaces missing values of the features, shaped like an observation
 *     merges    of the tokenizer, for texts; shape is then the number of tokens of an observation
 *
 * Only the model is required; a file written by Flux has nothing else. */
#ifndef CFLUX_TOOL_TRAINED_H
#define CFLUX_TOOL_TRAINED_H

#include "problem.h"

typedef struct trained {
    void *model;
    const char *kind, *target; /* NULL: not stored */
    const char *given_shape;   /* of --shape in training; NULL: not given */
    bool transposed;           /* --transpose was given in training */
    bool comma;                /* --decimal , was given in training */
    bool drops;                /* --missing drop was given in training */
    fx_array *shape;
    void *columns;
    const fx_tokenizer *tokenizer; /* NULL: the inputs are numbers */
} trained;

fx_status trained_save(const char *path, const trained *t, const problem *p);
/* Checks that the model can be saved and loaded again, and leaves no file
 * behind. EXIT_FINE, or the exit status of a failure (printed). */
int trained_try(const char *path, const trained *t, const problem *p);
/* Fills in t and p (without a loss formula if the file stores no loss). */
int trained_load(const char *path, trained *t, problem *p);
/* True for the model of cflux train --text. */
bool trained_is_language(const trained *t);
/* Sets the columns and the number of features that the model needs, how missing values are treated,
 * and --shape, --transpose and --decimal as in training. */
void trained_request(const trained *t, const problem *p, data_request *r);
/* Gives the observations the sizes that the model was trained on. */
int trained_shape(const char *path, const trained *t, dataset *d);

#endif
