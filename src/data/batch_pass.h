/* batch_pass.h: the batches of one pass over a data set, as raw memory, prepared by worker threads
 * or on demand. Internal to src/data.
 *
 * Nothing here knows arrays or scopes: a pass reads host memory that its owner keeps alive and
 * fills fresh blocks. That is what lets threads do it. Batch k holds the observations
 * order[k·batchsize …], so contents depend neither on the number of workers nor on their timing.
 */
#ifndef CFLUX_BATCH_PASS_H
#define CFLUX_BATCH_PASS_H

#include <cflux/base.h>

typedef struct fxi_source {
    const unsigned char *bytes; /* observation i is at bytes + i·obs_bytes */
    size_t obs_bytes;
} fxi_source;

typedef struct fxi_pass_spec {
    const fxi_source *sources; /* outlive the pass */
    int nsources;
    int64_t n, batchsize, nbatches;
    const int64_t *order; /* NULL: as they come; outlives the pass */
    int workers;          /* 0: every batch is made when it is taken */
} fxi_pass_spec;

typedef struct fxi_pass fxi_pass;

/* NULL, recorded, when memory or threads are out. */
fxi_pass *fxi_pass_start(const fxi_pass_spec *spec);
/* Observations in batch k. */
int64_t fxi_pass_batch_size(const fxi_pass *pass, int64_t k);
/* The next batch in order, one block from memory.h per source, now the caller's. Waits for the
 * worker that has it. FX_STATUS_MEMORY, not recorded, when it could not be made; blocks are then
 * NULL. */
fx_status fxi_pass_take(fxi_pass *pass, void **blocks);
/* Stops and joins the workers and frees what nobody took. NULL is allowed. */
void fxi_pass_stop(fxi_pass *pass);

#endif
