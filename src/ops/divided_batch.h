/* divided_batch.h: statistics of a batch that is divided among the members of a group.
 *
 * fx_dist_sync_norms names the group of a thread. Layers add up their sums over its members.
 */
#ifndef CFLUX_DIVIDED_BATCH_H
#define CFLUX_DIVIDED_BATCH_H

#include <cflux/backend.h>

/* The group of the calling thread; NULL: batches are not divided. */
const fx_communicator *fxi_members(void);
/* Sets the group of the calling thread (NULL: none) and returns the previous one. */
const fx_communicator *fxi_members_set(const fx_communicator *c);
/* The sum of x over all members, which record the same sums in the same order. */
fx_array *fxi_over_members(fx_array *x);

#endif
