/* dist_group.h: a group of processes. Internal to dist. */
#ifndef CFLUX_DIST_GROUP_H
#define CFLUX_DIST_GROUP_H

#include "thread.h"
#include "transport.h"

#include <cflux/dist.h>

enum { FXI_DIST_WHY = 400 };

struct fx_dist {
    fx_communicator communicator; /* the one that nodes refer to; its `user` is this group */
    const fxi_transport *transport;
    fxi_transport_group group;
    double limit;
    fxi_mutex lock; /* protects the members below: one operation runs at a time */
    int64_t number; /* operations so far */
    bool broken;    /* an operation failed: members may wait for each other in different ones */
    char why[FXI_DIST_WHY];
    /* Operands and results. After a failure the transport may still write to them. */
    void *in, *out;
    size_t in_bytes, out_bytes;
};

/* Fills in a group that a transport has joined; transport NULL: a group of one. */
void fxi_dist_begin(fx_dist *d, const fxi_transport *transport, const fxi_transport_group *group,
                    double limit);
/* Frees the buffers of a group that is no longer used. For tests. */
void fxi_dist_end(fx_dist *d);
/* The function of the communicator (fx_communicator.run). */
fx_status fxi_dist_run(const fx_communicator *self, const fx_step *step, const void *in, void *out,
                       char *why, size_t size);
/* FX_OK for a group of this process; else the error is recorded. */
fx_status fxi_dist_check(const char *op, const fx_dist *d, int root);

#endif
