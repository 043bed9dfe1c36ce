/* run_record.h: records some observations and the trained model's outputs for them, for the log. */
#ifndef CFLUX_TOOL_RUN_RECORD_H
#define CFLUX_TOOL_RUN_RECORD_H

#include "problem.h"
#include <cflux/report.h>

enum { RECORD_SAMPLES = 12 };

typedef struct run_record {
    fx_run_sample samples[RECORD_SAMPLES];
    int64_t nsamples;
} run_record;

/* Runs a few observations through the model. Omits large observations. */
void record_fill(run_record *out, const problem *p, void *model, fx_array *x, fx_array *y);
void record_free(run_record *record);

#endif
