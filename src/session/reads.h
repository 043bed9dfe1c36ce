/* reads.h: reads and moves that the rooms above use. Internal. */
#ifndef CFLUX_READS_H
#define CFLUX_READS_H

#include "elements.h"

/* Evaluates x and passes its bytes on in pieces: see fxi_elements_pieces. */
fx_status fxi_read_pieces(fx_array *x, fxi_piece_fn take, void *user);
/* A new handle on the same value, evaluated and pinned: its memory is never reused in place. */
fx_array *fxi_array_snapshot(fx_array *x);
/* As fx_array_to, but the copy of a value without a history does not keep x: no gradient flows back
 * to it. */
fx_array *fxi_array_to_alone(fx_device *device, fx_array *x);
/* Frees the memory of an evaluated array now; reading it, or a view of it, is an error from then on
 * (what an iterator that frees eagerly does to its last batch). */
void fxi_array_give_up(fx_array *x);
/* Makes an evaluated array a constant: its history is forgotten. Only the thread that computed it
 * may do this; in other threads nothing happens. */
void fxi_array_cut(fx_array *x);

#endif
