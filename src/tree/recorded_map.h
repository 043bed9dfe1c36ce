/* recorded_map.h: gradients of models in a recorded training step (value/tape.h). Internal. While
 * the model holds the same arrays as in the recorded training step, its trained arrays are known
 * without a walk, and the object with their gradients is made without a walk too. */
#ifndef CFLUX_RECORDED_MAP_H
#define CFLUX_RECORDED_MAP_H

#include "tape.h"

typedef struct fxi_recorded_map fxi_recorded_map;

/* The recorded gradient of this model that begins at the current entry of the tape; NULL: the model
 * must be walked. */
const fxi_recorded_map *fxi_map_event(const fxi_context *c, void *model);
/* Computes the gradients and returns them in the structure of the model. NULL: the sweep failed. */
void *fxi_map_again(const fxi_recorded_map *r, fx_array *loss, fx_status *out_status);

/* The gradient of a model: the arrays, their gradients, and the object that holds these. */
typedef struct fxi_map_result {
    int32_t n;
    fx_array *const *trained, *const *gradients;
    void *tree;
} fxi_map_result;
/* Notes a gradient that began at entry `first`. */
void fxi_note_map(fxi_context *c, int32_t first, void *model, const fxi_map_result *made);

/* While a training step is recorded: the number of the trained array x, whose gradient is dx; −1:
 * `gradient` is not the noted gradient of this model, or has another dx. */
int32_t fxi_map_find(const fxi_context *c, const void *model, const void *gradient,
                     const fx_array *x, const fx_array *dx);
/* Fills in *out for `gradient`: arrays have the numbers that fxi_map_find returns. False:
 * `gradient` is not what the recorded training step made of this model, or one of the two has
 * changed since. */
bool fxi_map_read(const fxi_context *c, const void *model, void *gradient, fxi_map_result *out);

#endif
