/* recurrent_layer.h: one direction of a recurrent layer, for Bidirectional. Internal to nn. */
#ifndef CFLUX_RECURRENT_LAYER_H
#define CFLUX_RECURRENT_LAYER_H

#include "nn_layer.h"

typedef struct fxi_recurrent_call {
    fx_array *x;    /* in×len, or in×len×batch */
    void *state;    /* to start with; NULL: the initial state of the cell */
    fx_array *mask; /* len×batch, 0: the sequence skips the time step; NULL: none is skipped */
    bool backwards; /* from the last time step to the first */
} fxi_recurrent_call;

/* The status of an error object that is a state. */
static inline fx_status fxi_state_status(const void *state)
{
    return fx_is_array(state) ? fx_array_status(state) : FX_STATUS_ARGUMENT;
}

/* The tuple (y, state), or the error of one of them. */
static inline void *fxi_with_state(fx_array *y, void *state)
{
    if (fx_is_error(y) || !fx_is_error(state))
        return fx_is_error(y) ? (void *)y : fx_tuple(y, state);
    return fx_error_array(fxi_state_status(state));
}

/* True for RNN, LSTM, GRU, GRUv3 and Recurrence. */
bool fxi_is_recurrent(const void *object);
/* Computes the outputs of all time steps, in the order of x, and the state after the last one that
 * is computed. *out_y may be an error array although the status is FX_OK. */
fx_status fxi_recurrent_run(fx_recurrent_layer *l, const fxi_recurrent_call *call, fx_array **out_y,
                            void **out_state);
/* The result of a call of a Bidirectional. */
void *fxi_bidirectional_run(fx_bidirectional_layer *l, const fxi_recurrent_call *call);

#endif
