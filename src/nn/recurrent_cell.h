/* recurrent_cell.h: the arithmetic of the library's recurrent cells, for the layers that apply them
 * to a sequence. Internal to nn. */
#ifndef CFLUX_RECURRENT_CELL_H
#define CFLUX_RECURRENT_CELL_H

#include "nn_layer.h"

/* States of a cell, out×batch or out×1. NULL: zeros. */
typedef struct fxi_states {
    fx_array *h, *c;
} fxi_states;

/* True if the object is one of the library's cells. */
bool fxi_is_cell(const void *object);
/* Number of inputs and outputs of a cell. */
int64_t fxi_cell_in(const fx_cell_layer *cell);
int64_t fxi_cell_out(const fx_cell_layer *cell);
/* Reads the argument `state` of a call (NULL: the cell's initial state); `layer` is named in
 * errors. */
fx_status fxi_cell_states(const fx_cell_layer *cell, void *layer, void *state, int64_t batch,
                          fxi_states *out);
/* The states as a call returns them; with `vector`, as vectors. */
void *fxi_cell_state_object(const fx_cell_layer *cell, const fxi_states *states, bool vector);
/* The initial state as a call takes it. */
void *fxi_cell_initial(const fx_cell_layer *cell);
/* Wi·x + b for in×N. */
fx_array *fxi_cell_project(const fx_cell_layer *cell, fx_array *x);
/* Replaces the states by those after the time step with the projected input p. */
void fxi_cell_time_step(const fx_cell_layer *cell, fx_array *p, fxi_states *io);

#endif
