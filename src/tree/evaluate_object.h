/* evaluate_object.h: evaluation of arrays of an object that the program did not ask for. Internal.
 */
#ifndef CFLUX_EVALUATE_OBJECT_H
#define CFLUX_EVALUATE_OBJECT_H

#include <cflux/array.h>

typedef bool (*fxi_chosen_fn)(const fx_array *x, void *user);

/* Parameters of at most so many bytes are evaluated when their layer, or the model of a text, is
 * made, so that every thread may use it at once. Larger ones are evaluated where they are first
 * used: a model that is only printed takes no memory for them. */
enum { FXI_EVALUATED_AT_ONCE = 16 << 20 };

/* Evaluates the pending arrays of an object that `chosen` names (NULL: all), in one plan, unless
 * they take more than FXI_EVALUATED_AT_ONCE bytes. It does not count as an evaluation of the loop
 * that calls it. */
fx_status fxi_evaluate_new(void *object, fxi_chosen_fn chosen, void *user);
/* Between the two, fxi_evaluate_new does nothing in this thread: a text may name a million small
 * layers, and what counts is the size of the whole model. They nest. */
void fxi_evaluate_new_suspend(void);
void fxi_evaluate_new_resume(void);

#endif
