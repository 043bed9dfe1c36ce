/* dist_update.h: updates by all members of a group, for fx_train. Internal. */
#ifndef CFLUX_DIST_UPDATE_H
#define CFLUX_DIST_UPDATE_H

#include <cflux/dist.h>

/* fx_update with the means of all members' gradients. The n numbers of io_means (n ≥ 1) are
 * replaced by their means too, which are read after the update; the first one is the guard. */
fx_status fxi_dist_update(fx_dist *d, const fx_update_args *a, int n, fx_array **io_means);
/* Names the parameters on which this member's loss does not depend, each once. Only needed before
 * fx_dist_average: fxi_dist_update names them itself. */
void fxi_dist_name_unused(fx_dist *d, const fx_update_args *a);
/* Logs that the loss does not depend on the model. Only needed before a gradient is changed:
 * fx_update logs it itself. */
void fxi_dist_note_constant(void *state, void *model, void *gradient);
/* Gives all members the same sums of AccumGrads, so that one of them can save the state. */
fx_status fxi_dist_settle(fx_dist *d, void *state);

/* The seconds that this member has waited so far for the others at operations. */
double fxi_dist_waited(fx_dist *d);

/* Has the state arrays that are divided among the members? */
bool fxi_dist_divided(void *state);

#endif
