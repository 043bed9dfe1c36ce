/* reads.h: reads arrays and moves them between devices, for other folders. Internal. */
#ifndef CFLUX_READS_H
#define CFLUX_READS_H

#include "elements.h"

/* Evaluates x and passes its bytes on in pieces: see fxi_elements_pieces. */
fx_status fxi_read_pieces(fx_array *x, fxi_piece_fn take, void *user);
/* A new handle on the same value, evaluated and pinned: no update reuses its memory in place. */
fx_array *fxi_array_snapshot(fx_array *x);
/* Like fx_array_to, but a copy of a value without history does not keep x as its input: no gradient
 * flows back to x. */
fx_array *fxi_array_to_alone(fx_device *device, fx_array *x);
/* Frees the memory of an evaluated array now. Reading it, or a view of it, is an error from then
 * on. Iterators that free eagerly do this to their previous batch. */
void fxi_array_give_up(fx_array *x);
/* Makes an evaluated array a constant: it forgets its history. Has no effect if the array is
 * pending, or was computed in another thread. */
void fxi_array_cut(fx_array *x);

#endif
