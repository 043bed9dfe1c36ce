/* run_layers.h: measures a model's layers and writes them as a table. Internal to src/report. */
#ifndef CFLUX_RUN_LAYERS_H
#define CFLUX_RUN_LAYERS_H

#include <cflux/array.h>
#include <cflux/json_out.h>

/* Runs a batch through the model (layer by layer for a Chain) and writes the member "layers": for
 * each layer its notation, output sizes (of a tuple: those of each item), parameters, bytes, and
 * the minimum time of a few forward passes. The table ends before the first layer that fails; no
 * error is recorded. */
void fxi_write_layers(fx_json *j, void *model, fx_array *batch);

#endif
