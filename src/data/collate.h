/* collate.h: gathers the observations of a data set into batches. Internal to src/data.
 *
 * Works on a snapshot of the data from the start of a pass, so several threads may collate at the
 * same time, and later changes of the program's arrays have no effect. Batch k holds the
 * observations order[k·batchsize …], or a part of them.
 */
#ifndef CFLUX_COLLATE_H
#define CFLUX_COLLATE_H

#include <cflux/array.h>

typedef struct fxi_source {
    fx_array *leaf;             /* of the snapshot */
    fx_array *array;            /* the leaf, on the CPU unless its device has its own memory;
                                   retained */
    const unsigned char *bytes; /* observation i is at bytes + i·obs_bytes; NULL if on a device with
                                   its own memory */
    size_t obs_bytes;
    fx_device *to; /* device for the batches */
} fxi_source;

typedef struct fxi_collation {
    void *data; /* the snapshot, retained */
    fxi_source *sources;
    int nsources;
    int64_t n, batchsize; /* of a pass; views may have more or fewer observations than the data */
    int64_t data_n;       /* expected number of observations in the data */
    int64_t *order;       /* NULL: in order; owned by this struct, from memory.h */
    int64_t part, parts;  /* which part of each batch is wanted, of how many; parts ≥ 1 */
    bool own;             /* batches must not share memory with the data */
} fxi_collation;

/* Fills in data, sources and nsources, and `order` if slices would share memory although `own` is
 * set; the caller has set the other members. `on_data_device`: batches return to the device of the
 * data. Otherwise they are on the CPU, unless that device has its own memory. */
fx_status fxi_collation_open(fxi_collation *c, void *data, bool on_data_device);
void fxi_collation_close(fxi_collation *c);

/* Number of observations in batch k, over all parts. */
int64_t fxi_collation_total(const fxi_collation *c, int64_t k);
/* The observations of the wanted part: their number, and the index of the first in the order. A
 * batch with fewer observations than parts is not divided: each part is the whole batch. */
int64_t fxi_collation_size(const fxi_collation *c, int64_t k);
int64_t fxi_collation_start(const fxi_collation *c, int64_t k);
/* Batch k, possibly pending, in the structure of the data; owned by the scope. NULL on failure
 * (recorded). */
void *fxi_collate(const fxi_collation *c, int64_t k);

/* True if the device's memory is separate from the host's. */
bool fxi_own_memory(const fx_device *device);

#endif
