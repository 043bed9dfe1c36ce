/* flux_optimiser.h: optimiser states between Flux's files and fx_update. Internal. */
#ifndef CFLUX_FLUX_OPTIMISER_H
#define CFLUX_FLUX_OPTIMISER_H

#include "formats.h"

/* Puts a state for fx_update in the place of each optimiser of a file that fits a model of the same
 * file. What fits none stays. */
fx_status fxi_flux_optimisers_in(void *file);
/* objects[i] = what->objects[i], but the states of fx_setup among them as trees of Flux's, in the
 * shape of the model that is saved beside them; none there is an error. */
fx_status fxi_flux_optimisers_out(const fxi_saving *what, void **objects);

#endif
