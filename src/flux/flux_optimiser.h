/* flux_optimiser.h: converts optimiser states between Flux's files and fx_update. Internal. */
#ifndef CFLUX_FLUX_OPTIMISER_H
#define CFLUX_FLUX_OPTIMISER_H

#include "formats.h"

/* Replaces each optimiser of a file that fits a model of the same file by a state for fx_update.
 * Optimisers that fit no model stay unchanged. */
fx_status fxi_flux_optimisers_in(void *file);
/* Copies what->objects to `objects` and replaces states of fx_setup by trees as Flux writes them,
 * in the structure of the model that is saved with them. A state without its model is an error. */
fx_status fxi_flux_optimisers_out(const fxi_saving *what, void **objects);

#endif
