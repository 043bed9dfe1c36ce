/* initial_weights.h: starts training from the weights of a saved model. */
#ifndef CFLUX_TOOL_INITIAL_WEIGHTS_H
#define CFLUX_TOOL_INITIAL_WEIGHTS_H

#include "problem.h"

/* A model whose weights are used. */
typedef struct initial_model {
    const char *path; /* NULL: none */
    void *model;
    fx_array *mean, *std;          /* the scale of its inputs; NULL: unknown */
    void *columns;                 /* the names of its inputs, texts; NULL: unknown */
    const fx_tokenizer *tokenizer; /* NULL: its inputs are numbers */
} initial_model;

/* Functions return EXIT_FINE, or the exit status of a failure (printed). */

/* Loads the model of a file. */
int initial_load(const char *path, initial_model *out);

/* True if the scale of the file fits observations like those of x. */
bool initial_scale_fits(const initial_model *from, const fx_array *x);
/* Warns if the features have other names than those that the model was trained on. */
void initial_check_columns(const initial_model *from, const void *columns);

/* Copies each array that has the same path and sizes in both models, in the element type of
 * `model`, and returns the new model in *out. Prints to stderr which arrays were not copied, if
 * `announced`. A failure if there is nothing to copy. */
int initial_copy(const initial_model *from, void *model, bool announced, void **out);

/* Freezes the first n layers of a chain in the state of the optimiser: training does not change
 * them. A failure if the other layers have no parameters. */
int freeze_layers(void *state, const void *model, int64_t n);

#endif
