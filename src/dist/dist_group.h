/* dist_group.h: a group of processes. Internal to dist. */
#ifndef CFLUX_DIST_GROUP_H
#define CFLUX_DIST_GROUP_H

#include "thread.h"
#include "transport.h"

#include <cflux/dist.h>
#include <stdio.h>

enum { FXI_DIST_WHY = 500, FXI_DIST_REASON = 300 };

enum { FXI_DIST_DEVICES = 2 };
/* The plugins that move memory of devices, each for one backend. */
typedef struct fxi_device_library {
    const char *plugin, *backend, *variable; /* variable of the environment: names the library's
                                                file, or is "off" */
} fxi_device_library;
extern const fxi_device_library fxi_device_libraries[FXI_DIST_DEVICES];
/* The number of the library for a backend's devices; FXI_DIST_DEVICES: there is none. */
int fxi_device_library_of(const char *backend);
/* The most numbers of a vote: those of fxi_dist_choose. */
enum { FXI_DIST_VOTES = 3 * FXI_DIST_DEVICES + 1 };

/* Operations that a thread of the group runs beside the steps of a plan (dist_queue.c). */
typedef struct fxi_dist_queue {
    fxi_mutex lock; /* protects the fields below */
    fxi_cond changed;
    struct fxi_dist_ticket *head, *tail; /* operations that wait */
    bool running;                        /* the thread runs one; atomic */
    int unfinished;                      /* operations that wait or run; atomic */
    bool ends;
    fx_status failed; /* status of a failed operation until the plan finishes it; FX_OK: none */
    char why[FXI_DIST_WHY];
    fxi_thread thread;
    long process; /* the process that has the thread; 0: not started */
} fxi_dist_queue;

struct fx_dist {
    fx_communicator communicator; /* the one that nodes refer to; its `user` is this group */
    const fxi_transport *transport;
    fxi_transport_group group;
    double limit;     /* seconds that a wait may take; doubled while the members compare whether a
                         connection failed */
    bool fixed_order; /* the option of fx_dist_init */
    bool narrow;      /* its option .wire is BFloat16 */
    bool busy;        /* atomic: an operation runs */
    int leaving;      /* atomic: whether the process ends (dist_leave.c) */
    fxi_mutex lock;   /* protects the fields below: one operation runs at a time */
    int64_t number;   /* operations so far, in messages and in `progress` */
    int64_t calls;    /* of the transport so far: an operation has two or more */
    double waited;    /* seconds that this member has waited for the others */
    bool broken;      /* an operation failed: members may wait in different operations */
    char why[FXI_DIST_WHY];
    /* Buffers. A transport may write to them after a failure, so they are never freed. */
    void *in, *out, *statements;
    size_t in_bytes, out_bytes;
    int64_t vote[FXI_DIST_VOTES], votes[FXI_DIST_VOTES];
    bool told; /* the latest operation failed, on all members with the same message */
    fxi_dist_queue queue;
    FILE *progress; /* where each operation is noted; NULL: nowhere */
    /* Libraries of fx_dist_init(FX_NCCL); NULL: not requested, or not on all members. */
    const fxi_device_transport *devices[FXI_DIST_DEVICES];
    const fxi_device_transport *connected; /* the library of `connection` */
    void *connection;                      /* with one device of each member; NULL: none yet */
    const void *device;                    /* that device (fx_device_queue.data) */
    /* By library: MPI moves memory of its devices (dist_aware.c). Equal on all members. `aware`
     * decides how operations are recorded and planned, so it is constant after fx_dist_init. */
    bool aware[FXI_DIST_DEVICES];
    bool wrong[FXI_DIST_DEVICES];     /* it did so wrongly: the members copy to host memory */
    bool probed[FXI_DIST_DEVICES][2]; /* [1]: a broadcast */
    struct fxi_dist_staging *staging; /* of dist_aware.c: buffers in device memory */
};

/* Fills in a group that a transport has joined; transport NULL: a group of one. */
void fxi_dist_begin(fx_dist *d, const fxi_transport *transport, const fxi_transport_group *group,
                    double limit);
/* Frees the buffers of a group that is no longer used. For tests. */
void fxi_dist_end(fx_dist *d);
/* FX_OK if d is a group and `root` one of its ranks; else the error is recorded. */
fx_status fxi_dist_check(const char *op, const fx_dist *d, int root);

/* ---- operations (dist_group.c) --------------------------------------------------------------- */

/* The description of an operation. It must be equal on all members. */
typedef struct fxi_dist_header {
    int64_t kind, fold, root, dtype, ndim, shape[FX_MAX_DIMS];
    int64_t device; /* 1: in device memory */
    int64_t fixed;  /* 1: in the order of ranks */
    int64_t narrow; /* this many of the first elements are sent as BFloat16 */
} fxi_dist_header;

/* This member's part of an operation. */
typedef struct fxi_dist_move {
    const fxi_dist_header *what;
    int64_t n; /* elements */
    const void *in;
    void *out;
    const fx_device_queue *queue; /* NULL: in host memory */
    bool shared;                  /* by memory that all members share (fxi_transport.shares) */
    /* Not FX_OK: this member cannot take part, for this reason; `ready` is not called. */
    fx_status refuses;
    const char *reason;
    /* Called before the members agree: allocates buffers, or waits for earlier work of the GPU. If
     * it fails, the operation fails on all members with its reason. */
    fx_status (*ready)(fx_dist *d, const struct fxi_dist_move *m, char *why, size_t size);
    fx_status (*move)(fx_dist *d, const struct fxi_dist_move *m, char *why, size_t size);
} fxi_dist_move;
/* Describes fx_dist_init(FX_NCCL) and refusals, which belong to no step. */
extern const fxi_dist_header fxi_dist_no_step;
/* Describes an operation of dist_measure.c. `fold`: 1 for the link; `shape`: elements and runs. */
extern const fxi_dist_header fxi_dist_measurement;
/* Runs an operation: the members agree on it, then all call `move`. */
fx_status fxi_dist_operation(fx_dist *d, const fxi_dist_move *m, char *why, size_t size);
/* Runs the collective operation of a step; `how` has the functions, the operands and the queue. */
fx_status fxi_dist_step(const fx_communicator *self, const fx_step *step, fxi_dist_move how,
                        char *why, size_t size);
/* The functions of the library that plugins get. */
extern const fxi_transport_host fxi_dist_host;
/* Grows the buffers to at least `bytes`. */
fx_status fxi_dist_buffers(fx_dist *d, size_t bytes, char *why, size_t size);
/* Reduces the elements of a move that are sent as BFloat16 (dist_narrow.c). The group's buffers
 * must have at least fxi_dist_narrow_bytes bytes. */
fx_status fxi_dist_narrow(fx_dist *d, const fxi_dist_move *m, char *why, size_t size);
size_t fxi_dist_narrow_bytes(const fx_dist *d, const fxi_dist_move *m);
/* The functions `ready` and `move` of operations in host memory. */
fx_status fxi_dist_ready_on_host(fx_dist *d, const fxi_dist_move *m, char *why, size_t size);
fx_status fxi_dist_move_on_host(fx_dist *d, const fxi_dist_move *m, char *why, size_t size);
/* Runs an operation in host memory in the calling thread. */
fx_status fxi_dist_run_now(const fx_communicator *self, const fx_step *step, const void *in,
                           void *out, char *why, size_t size);
bool fxi_dist_queue_init(fx_dist *d);
void fxi_dist_queue_end(fx_dist *d); /* for tests */
/* Waits until the thread of the group has run all operations. Returns the failure of one of them
 * that the plan has not finished yet. */
fx_status fxi_dist_queue_empty(fx_dist *d, char *why, size_t size);
/* The functions of the communicator (fx_communicator). */
void *fxi_dist_operation_begin(const fx_communicator *self, const fx_step *step, const void *in,
                               void *out);
void *fxi_dist_operation_begin_on(const fx_communicator *self, const fx_device_queue *queue,
                                  const fx_step *step, const void *in, void *out);
fx_status fxi_dist_operation_finish(const fx_communicator *self, void *begun, char *why,
                                    size_t size);
fx_status fxi_dist_run(const fx_communicator *self, const fx_step *step, const void *in, void *out,
                       char *why, size_t size);
void fxi_dist_refuse(const fx_communicator *self, fx_status status, const char *reason);

/* ---- the end of the process (dist_leave.c) --------------------------------------------------- */

/* Leaves the group before exit handlers that were registered earlier run. False: no memory. */
bool fxi_dist_leave_at_exit(fx_dist *d);
/* Waits until the operation that runs has ended and queued ones are refused; later ones fail. */
void fxi_dist_leave(fx_dist *d);
/* Must queued operations be refused? */
bool fxi_dist_refuses(const fx_dist *d);
/* Called before an operation, with d->lock held; false: the process has left the group. Otherwise
 * fxi_dist_done is called after it. */
bool fxi_dist_enter(fx_dist *d);
void fxi_dist_done(fx_dist *d);

/* ---- what the members tell each other (dist_agree.c) ----------------------------------------- */

fxi_dist_header fxi_dist_header_of(const fx_step *step);
void fxi_dist_describe(const fxi_dist_header *h, char *text, size_t size);
/* Runs an operation of the transport. After a failure the group is broken. */
fx_status fxi_dist_call(fx_dist *d, fxi_transport_call *c, char *why, size_t size);
/* The maxima over the members of the first n numbers of d->vote, in d->votes. */
fx_status fxi_dist_vote(fx_dist *d, int64_t n, char *why, size_t size);
/* FX_OK if all members run the operation and none refuses; else the same status and message on
 * all. */
fx_status fxi_dist_agree(fx_dist *d, const fxi_dist_header *mine, fx_status refusal,
                         const char *reason, char *why, size_t size);
/* Returns on all members the failure of the first member that has one. */
fx_status fxi_dist_share(fx_dist *d, fx_status mine, const char *reason, char *why, size_t size);
/* FX_OK if all members have the version `mine` of the library; else the same failure on all. The
 * form of this operation must stay as it is, because members of different versions run it. */
fx_status fxi_dist_same_version(fx_dist *d, const char *mine, char *why, size_t size);
/* The bytes of fx_dist.statements. */
size_t fxi_dist_statements_bytes(int size);

/* ---- in device memory (dist_device.c) -------------------------------------------------------- */

/* The plugin "nccl" or "rccl", with its library open. NULL if no file of that name can be used;
 * each file that exists is named in a warning with the reason. */
const fxi_device_transport *fxi_device_transport_find(const char *name);
/* Opens the libraries for devices, on all members the same ones. */
fx_status fxi_dist_open_devices(fx_dist *d, char *why, size_t size);
bool fxi_dist_takes(const fx_communicator *self, const char *backend, const fx_step *step);
/* Can the thread of the group run such a step? */
bool fxi_dist_begins_on(const fx_dist *d, const fx_device_queue *queue, const fx_step *step);
fx_status fxi_dist_run_on(const fx_communicator *self, const fx_device_queue *queue,
                          const fx_step *step, const void *in, void *out, char *why, size_t size);
/* Runs an operation in device memory in the calling thread. */
fx_status fxi_dist_run_on_now(const fx_communicator *self, const fx_device_queue *queue,
                              const fx_step *step, const void *in, void *out, char *why,
                              size_t size);
/* The call that moves the operands of m where they are, in device memory. */
fxi_transport_call fxi_dist_call_of(const fx_dist *d, const fxi_dist_move *m);
/* Waits for the work in the queue of this member's GPU. */
fx_status fxi_dist_wait_for_own_work(const fx_device_queue *queue, char *why, size_t size);
/* The message after the time limit of an operation in device memory. */
void fxi_dist_say_unfinished(const char *library, double limit, char *why, size_t size);

/* ---- in device memory, by MPI (dist_aware.c) ------------------------------------------------- */

/* Decides on all members whether MPI moves memory of devices, by preferences and queries; warns if
 * it cannot. *io_code: rank 0's number, which all members get. Called once, by all members. */
fx_status fxi_dist_choose(fx_dist *d, int64_t *io_code, char *why, size_t size);
/* Does MPI move memory of this backend's devices? */
bool fxi_dist_aware(const fx_dist *d, const char *backend);
/* Has it done so rightly for an operation of the same kind on this device? */
bool fxi_dist_aware_proven(const fx_dist *d, const fx_device_queue *queue, const fx_step *step);
fx_status fxi_dist_run_aware(const fx_communicator *self, const fx_device_queue *queue,
                             const fx_step *step, const void *in, void *out, char *why,
                             size_t size);
void fxi_dist_aware_end(fx_dist *d); /* for tests */

#endif
