/* cflux/dist.h: training by several processes, each with a part of the data (DistributedUtils of
 * Flux).
 *
 * A launcher starts the same program several times: mpirun -n 4 ./train. The processes average
 * their gradients in every update, so all keep the same parameters. Without a launcher the group
 * has one member: the same program runs alone, every function here works, and none of them moves
 * data or needs MPI.
 *
 * All members must call the same functions of this header in the same order. A member that calls
 * another one, or has an array of other sizes, makes the call fail on all of them with a sentence
 * that names it; one that does not come makes it fail after the time limit, and then no further
 * call succeeds. The functions that return arrays only record the operation, like other operations
 * on arrays: it runs when a value is read. They take arrays of all devices; memory of a GPU is
 * copied to the host and back. */
#ifndef CFLUX_DIST_H
#define CFLUX_DIST_H

#include <cflux/ops.h>
#include <cflux/optim.h>

FXI_BEGIN_C

typedef struct fx_dist fx_dist; /* opaque: a group of processes; never freed */
/* What moves the data. MPI is a plugin that is opened by fx_dist_init. */
typedef enum fx_dist_kind {
    FX_MPI = 1, /* memory of the host, by Open MPI or MPICH */
    FX_NCCL     /* memory of NVIDIA's GPUs; not there yet: FX_STATUS_UNSUPPORTED */
} fx_dist_kind;

/* Options of fx_dist_init. */
/* clang-format off */
#define FXI_DIST_INIT_ARGS(F)                                                                      \
    F(fx_dist_kind, kind, FX_MPI)                                                                  \
    F(double, time_limit, 60)              /* seconds that an operation waits for the others */    \
    F(const void *, communicator, FXI_NULL) /* address of an MPI_Comm of the program, which has    \
                                               initialised MPI; NULL: MPI_COMM_WORLD */            \
    F(const char *, library, FXI_NULL)      /* "openmpi" or "mpich"; NULL: that of the launcher */
/* clang-format on */
FXI_OPTION_STRUCT(fx_dist_init_args, FXI_DIST_INIT_ARGS);
/* Joins the group: fx_dist_init(FX_MPI), or fx_dist_init(FX_MPI, .time_limit = 10). Initialises MPI
 * unless the program did, and then also finalises it when the program ends. A second call does
 * nothing. FX_STATUS_UNSUPPORTED if the plugin for the launcher's MPI is not there or cannot be
 * used. DistributedUtils.initialize. */
FX_API fx_status fxi_dist_init(const fx_dist_init_args *a);
#define fx_dist_init(...)                                                                          \
    FXI_CALL(fxi_dist_init(                                                                        \
        FXI_OPTIONS(fx_dist_init_args, FXI_DIST_INIT_ARGS(FXI_DEFAULT).kind = __VA_ARGS__)))
FX_API bool fx_dist_initialized(fx_dist_kind kind); /* has fx_dist_init succeeded? */
/* The group. NULL before fx_dist_init, which is FX_STATUS_ARGUMENT: "Backend `MPI` is not
 * initialized. Call fx_dist_init(FX_MPI) first". DistributedUtils.get_distributed_backend. */
FX_API fx_dist *fx_dist_backend(fx_dist_kind kind);

/* The number of this process among all, from 0 (DistributedUtils.local_rank), and among those of
 * the same machine; the number of all processes. 0, 0 and 1 for NULL. */
FX_API int fx_dist_rank(const fx_dist *d);
FX_API int fx_dist_local_rank(const fx_dist *d);
FX_API int fx_dist_total_workers(const fx_dist *d);

/* Operations over the arrays x of all members, which have equal types and sizes. With one member
 * the result is x. fold: FX_REDUCE_SUM, MAX, MIN, PROD, or MEAN for floating-point types. Sums have
 * the same bits on all members. NULL instead of a group is an error array. */
FX_API fx_array *fx_dist_bcast(fx_dist *d, fx_array *x, int root);           /* the x of `root` */
FX_API fx_array *fx_dist_allreduce(fx_dist *d, fx_array *x, fx_reduce fold); /* for all */
/* The reduction for `root`, zeros for the others. */
FX_API fx_array *fx_dist_reduce(fx_dist *d, fx_array *x, fx_reduce fold, int root);
/* The arrays of all members along a new last axis, for all members. */
FX_API fx_array *fx_dist_gather(fx_dist *d, fx_array *x);
/* Returns when all members have called it. */
FX_API fx_status fx_dist_barrier(fx_dist *d);

/* This member's part of the observations, as a view (fx_obsview): each observation is in one part,
 * and their sizes differ by at most one. DistributedDataContainer. */
FX_API void *fx_dist_data(fx_dist *d, void *data);
/* The same with Flux's sizes: ⌈N/W⌉ for each member while there are observations. The last parts
 * are smaller, or empty, where Flux has a BoundsError. */
FX_API void *fx_dist_data_ceil(fx_dist *d, void *data);

/* Gives all members the values of `root`, in the arrays of x and the numbers of an optimiser state:
 * of a model, a state, a tuple. The handles stay valid. First the members compare names, sizes,
 * element types and order of the arrays; if they differ, nothing is changed, and FX_STATUS_ARGUMENT
 * names a member and its first array that differs. Returns x, or an error array.
 * DistributedUtils.synchronize!!. */
FX_API void *fx_dist_synchronize(fx_dist *d, void *x, int root);
/* The number of `root`; x for NULL and after a failure, which is recorded. */
FX_API double fx_dist_synchronize_number(fx_dist *d, double x, int root);
/* x itself: Flux needs FluxDistributedModel to know that it is a model. */
FX_API void *fx_dist_model(void *model);

/* A rule whose updates use the mean of the gradients of all members, as one over a batch of all
 * their observations has: fx_setup(fx_dist_optimiser(d, fx_adam()), model). Gradients travel
 * together, 25 MB at a time. A parameter without a gradient counts as one with zeros. If .guard of
 * fx_update is not finite on one member, no member updates. A MixedPrecision stays outermost.
 * DistributedOptimizer. */
FX_API fx_rule *fx_dist_optimiser(fx_dist *d, fx_rule *rule);

FXI_END_C
#endif
