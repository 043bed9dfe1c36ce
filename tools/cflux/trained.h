/* trained.h: a model in a file with all that predicting needs: what its inputs were, in which scale
 * they came, and what its outputs mean.
 *
 *     model     the model
 *     about     texts: loss, kind (of the data), target
 *     shape     the sizes of an observation
 *     columns   names of the features, texts
 *     classes   names of the classes, texts
 *     mean, std of the features, shaped like an observation
 *
 * The model is always there, the others where they apply; a file of Flux's has it alone. */
#ifndef CFLUX_TOOL_TRAINED_H
#define CFLUX_TOOL_TRAINED_H

#include "problem.h"

typedef struct trained {
    void *model;
    const char *kind, *target; /* NULL: not said */
    fx_array *shape;
    void *columns;
} trained;

fx_status trained_save(const char *path, const trained *t, const problem *p);
/* Could this be saved there, and read again? Tries it beside the file: EXIT_FINE, or what was
 * printed. */
int trained_try(const char *path, const trained *t, const problem *p);
/* Fills in t and p (no formula where the file says no loss). */
int trained_load(const char *path, trained *t, problem *p);
/* What to read for a model: fills in what the file says and the options do not. */
void trained_request(const trained *t, data_request *r);
/* Gives the observations the sizes that the model was trained on. */
int trained_shape(const char *path, const trained *t, dataset *d);

#endif
