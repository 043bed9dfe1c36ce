/* run_record.h: the end event of a run's log: sample predictions, the worst mistakes, pairs of true
 * and predicted numbers, scores and names of inputs. */
#ifndef CFLUX_TOOL_RUN_RECORD_H
#define CFLUX_TOOL_RUN_RECORD_H

#include "problem.h"

#include <cflux/report.h>

enum { RECORD_SAMPLES = 12, RECORD_WORST = 8, RECORD_PAIRS = 500, RECORD_SCORES = 3 };

typedef struct run_record {
    fx_run_sample samples[RECORD_SAMPLES + RECORD_WORST];
    int64_t nsamples, nworst; /* the worst mistakes are the final samples */
    double pairs[2 * RECORD_PAIRS];
    int64_t npairs;
    fx_run_score scores[RECORD_SCORES];
    int64_t nscores;
    const char **columns; /* NULL: no names */
    int64_t ncolumns;
} run_record;

/* Records samples spread evenly over x and y, and the observations with the largest mistakes, with
 * the model's outputs in inference mode. x is scaled; the recorded inputs have the original scale.
 * `names`: of the inputs, or NULL. */
void record_fill(run_record *out, const problem *p, void *model, fx_array *x, fx_array *y,
                 const scores *s, const dataset *names);
void record_free(run_record *record);

#endif
