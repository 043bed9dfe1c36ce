/* state_numbers.h: the numbers of the optimiser states in an object, as an array. Internal.
 *
 * An optimiser state has arrays and numbers: those of its rules, Adam's powers of β, frozen flags.
 * With the arrays alone training would continue differently, so they are saved and loaded together.
 */
#ifndef CFLUX_STATE_NUMBERS_H
#define CFLUX_STATE_NUMBERS_H

#include <cflux/array.h>

/* A Float64 vector that the scope owns; NULL if the object contains no optimiser state, an error
 * array if memory is exhausted. */
fx_array *fxi_numbers_of(const char *op, void *object);
/* Gives all states in the object these numbers, or changes nothing; frozen flags are unchanged.
 * If they are the numbers of other rules or ties, a message says that nothing has changed. */
fx_status fxi_numbers_assign(const char *op, void *object, fx_array *numbers);
/* The name of the numbers of an object that fx_save writes as `name`: "state.cflux.numbers". The
 * scope owns the text; NULL if memory is exhausted. */
const char *fxi_numbers_name(const char *name);
bool fxi_is_numbers_name(const char *name);

#endif
