/* run_record.h: what a log keeps of the trained model itself: its layers with sizes and times, and
 * some observations with what it makes of them. */
#ifndef CFLUX_TOOL_RUN_RECORD_H
#define CFLUX_TOOL_RUN_RECORD_H

#include "problem.h"
#include "run_log.h"

enum { RECORD_LAYERS = 256, RECORD_SAMPLES = 12 };

typedef struct run_record {
    run_layer layers[RECORD_LAYERS];
    run_sample samples[RECORD_SAMPLES];
    int64_t nlayers, nsamples;
} run_record;

/* Runs a batch through the layers, and a few observations through the model. What does not fit
 * (more layers, large observations) is left out. */
void record_fill(run_record *out, const problem *p, void *model, fx_array *x, fx_array *y,
                 int64_t batchsize);
void record_free(run_record *record);

#endif
