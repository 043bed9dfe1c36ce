/* model_check.h: checks that a model fits the data and the loss, before it is trained or used. */
#ifndef CFLUX_TOOL_MODEL_CHECK_H
#define CFLUX_TOOL_MODEL_CHECK_H

#include "problem.h"

/* Passes one observation through the model, and checks that the loss accepts its outputs. Sets
 * p->single. y NULL: targets are unknown. Returns EXIT_FINE, or the exit status of a failure
 * (printed, with the layer's name). */
int model_check(problem *p, void *model, const char *data, fx_array *x, fx_array *y);

/* Warns if the model ends in the function that the loss applies itself, such as softmax before
 * logitcrossentropy. */
void model_check_ending(const problem *p, const void *model);

#endif
