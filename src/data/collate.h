/* collate.h: the observations of a data set, gathered into batches. Internal to src/data.
 *
 * Works on the data as they were when a pass began: several threads may collate at the same time,
 * and what the program does with its arrays meanwhile does not matter. Batch k holds the
 * observations order[k·batchsize …].
 */
#ifndef CFLUX_COLLATE_H
#define CFLUX_COLLATE_H

#include <cflux/array.h>

typedef struct fxi_source {
    fx_array *array;            /* of the snapshot */
    const unsigned char *bytes; /* observation i is at bytes + i·obs_bytes; NULL: its device's
                                   memory is not the host's */
    size_t obs_bytes;
    fx_device *to; /* where batches are put */
} fxi_source;

typedef struct fxi_collation {
    void *data; /* the snapshot, retained */
    fxi_source *sources;
    int nsources;
    int64_t n, batchsize;
    int64_t *order; /* NULL: as they come; taken over, from memory.h */
    bool own;       /* no batch may share memory with the data */
} fxi_collation;

/* Fills in data, sources and nsources; the other members are the caller's. Batches lie where the
 * data lie, or where the host made them. */
fx_status fxi_collation_open(fxi_collation *c, void *data, bool where_it_was);
void fxi_collation_close(fxi_collation *c);

/* Observations in batch k. */
int64_t fxi_collation_size(const fxi_collation *c, int64_t k);
/* Batch k, perhaps pending, in the structure of the data; owned by the scope. NULL: recorded. */
void *fxi_collate(const fxi_collation *c, int64_t k);

/* Is there a copy between it and the host? */
bool fxi_own_memory(const fx_device *device);

#endif
