/* mpi_window.h: reductions in memory that the ranks of one machine share. Internal to the plugins
 * for MPI.
 */
#ifndef CFLUX_MPI_WINDOW_H
#define CFLUX_MPI_WINDOW_H

#include "transport.h"

#include <mpi.h>

typedef struct fxi_window {
    MPI_Win memory;  /* a segment of each rank; MPI_WIN_NULL: none */
    char **segments; /* by rank */
    int rank, size;
    int64_t met;    /* the latest meeting to which this rank has come */
    int64_t smalls; /* small arrays so far: each uses the other one of two buffers */
} fxi_window;

/* Allocates the segments; called by all ranks, which must be on one machine. If a rank has no
 * memory for it, or has FX_DIST_SHARED_MEMORY=off in its environment, then no rank has a window. */
void fxi_window_open(fxi_window *w, MPI_Comm comm, const fxi_transport_host *host);
/* Frees the segments; called by all ranks. */
void fxi_window_close(fxi_window *w);
/* Does fxi_window_reduce support this operation? */
bool fxi_window_takes(const fxi_window *w, const fxi_transport_call *c);
/* ALL_REDUCE in the order of the ranks. `out` may be `in`. After it has returned, nothing writes to
 * `out`. */
fx_status fxi_window_reduce(fxi_window *w, const fxi_transport_call *c, char *why, size_t size);
/* Have all ranks come to the latest meeting? */
bool fxi_window_met(const fxi_window *w);

/* Waits until fxi_window_met (mpi_transport.c). At the time limit the ranks that sent no notice are
 * named. */
fx_status fxi_window_wait(fxi_window *w, const fxi_transport_call *c, double bytes, char *why,
                          size_t size);

#endif
