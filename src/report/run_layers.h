/* run_layers.h: the table of a model's layers, measured while it is written. Internal to
 * src/report.
 */
#ifndef CFLUX_RUN_LAYERS_H
#define CFLUX_RUN_LAYERS_H

#include <cflux/array.h>
#include <cflux/json_out.h>

/* Runs a batch through the model, a layer at a time if it is a Chain, and writes the member
 * "layers": of each its notation, the sizes of its output, parameters, bytes, and the least time of
 * a few forward passes. It ends before the first layer that fails; no error is recorded. */
void fxi_write_layers(fx_json *j, void *model, fx_array *batch);

#endif
