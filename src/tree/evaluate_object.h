/* evaluate_object.h: evaluates arrays of an object although the program did not ask for it.
 * Internal.
 */
#ifndef CFLUX_EVALUATE_OBJECT_H
#define CFLUX_EVALUATE_OBJECT_H

#include <cflux/array.h>

typedef bool (*fxi_chosen_fn)(const fx_array *x, void *user);

/* Parameters of at most this many bytes are evaluated when their layer (or a model read from text)
 * is made, so that every thread can use them at once. Larger ones are evaluated at first use, so
 * that a model that is only printed allocates no memory for them. */
enum { FXI_EVALUATED_AT_ONCE = 16 << 20 };

/* Evaluates in one plan the pending arrays of an object that `chosen` selects (NULL: all), unless
 * they take more than FXI_EVALUATED_AT_ONCE bytes. The warning about loops without a scope does not
 * count this evaluation. */
fx_status fxi_evaluate_new(void *object, fxi_chosen_fn chosen, void *user);
/* Between suspend and resume, fxi_evaluate_new does nothing in this thread: a text may describe
 * thousands of small layers, and the limit applies to the whole model. Calls nest. */
void fxi_evaluate_new_suspend(void);
void fxi_evaluate_new_resume(void);

/* Between suspend and resume, a large number of pending nodes starts no evaluation in the calling
 * thread: their shapes may not fit in any memory. resume takes the value that suspend returned. */
bool fxi_implicit_suspend(void);
void fxi_implicit_resume(bool before);

/* Calls a model for the shape of its result: in inference mode, without new layer states (fx_stage)
 * and without random numbers of the thread's stream. The result is pending and must not be
 * evaluated; the scope owns it. */
void *fxi_call_for_shape(void *model, int n, void *const *args);

#endif
