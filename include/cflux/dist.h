/* cflux/dist.h: training with several processes, each on a part of the data (DistributedUtils of
 * Flux).
 *
 * A launcher starts the same program several times: mpirun -n 4 ./train. These processes are the
 * members of a group. In every update they average their gradients, so that all members keep the
 * same parameters. Without a launcher the group has one member: the same program runs alone, all
 * functions work, and no data is moved. It then does not need MPI.
 *
 * All members must call the same functions of this header in the same order. If a member calls
 * another function, or has an array of another size, the call fails on all members with
 * FX_STATUS_ARGUMENT, and the message names this member. If a member does not call the function
 * within the time limit, the call fails on the others with FX_STATUS_IO, and so do all later calls.
 *
 * Functions that return arrays record an operation, which runs when its value is read, or before
 * the next operation. They accept arrays of all devices. If NCCL, RCCL or MPI would move the arrays
 * of GPUs, an array on a GPU and one on the CPU of another member count as different operations.
 * With FX_MPI, GPU memory is copied to the host and back, unless a preference allows MPI to use it
 * (fx_dist_init). With FX_NCCL, each process uses one GPU, and these operations run on the GPUs:
 * fx_dist_bcast and fx_dist_gather; sums, means and products of Float32, Float64, Int32 and Int64;
 * maxima and minima of Int32 and Int64. All other operations copy GPU memory to the host and back:
 * NCCL adds 16-bit floats with less precision, and ignores NaN in maxima and minima. */
#ifndef CFLUX_DIST_H
#define CFLUX_DIST_H

#include <cflux/data.h>
#include <cflux/ops.h>
#include <cflux/optim.h>

FXI_BEGIN_C

typedef struct fx_dist fx_dist; /* opaque: a group of processes; never freed */
/* The library that moves the data. MPI is used through a plugin, which fx_dist_init loads. */
typedef enum fx_dist_kind {
    FX_MPI = 1, /* Open MPI or MPICH; moves host memory, and GPU memory if a preference allows it */
    FX_NCCL,    /* moves GPU memory with NCCL or RCCL, and host memory with MPI */
    FX_DIST_AUTO /* the one that the environment variable FX_DIST_BACKEND of rank 0 names: mpi or
                    nccl, in upper or lower case (default: mpi) */
} fx_dist_kind;

/* Options of fx_dist_init. */
/* clang-format off */
#define FXI_DIST_INIT_ARGS(F)                                                                      \
    F(fx_dist_kind, kind, FX_MPI)          /* the library that moves the data */                   \
    F(double, time_limit, 60)              /* seconds that an operation waits for other members */ \
    F(const void *, communicator, FXI_NULL) /* address of an MPI_Comm of the program, which has    \
                                               initialised MPI; NULL: MPI_COMM_WORLD */            \
    F(const char *, library, FXI_NULL)      /* "openmpi" or "mpich"; NULL: the launcher's library */ \
    F(bool, fixed_order, false)             /* true: reduce in the order of the ranks */           \
    F(fx_dtype, wire, FX_DTYPE_F32)         /* FX_DTYPE_BF16: send gradients as BFloat16 */
/* clang-format on */
FXI_OPTION_STRUCT(fx_dist_init_args, FXI_DIST_INIT_ARGS);
/* fx_dist_init(FX_MPI), or fx_dist_init(FX_MPI, .time_limit = 10): joins the group. If the program
 * has not initialised MPI, the call does, and MPI is finalised when the program ends. After a
 * success, further calls do nothing, except that FX_NCCL after FX_MPI also loads NCCL or RCCL.
 *
 * If all members are on one machine, fx_dist_allreduce and updates reduce arrays of the host in
 * memory that the members share, 1,036 KiB for each of them. MPI allocates this memory. If that
 * fails, or with FX_DIST_SHARED_MEMORY=off in the environment of one member, MPI moves the arrays.
 *
 * With .fixed_order, sums, means and products combine the members' elements in the order of their
 * ranks. A run with the same number of members then gives the same bits on any network and with any
 * MPI. Each of n members receives the arrays of all others: (n−1)·S bytes instead of about 2·S for
 * an array of S bytes. If all members are on one machine, fx_dist_allreduce and updates use the
 * order of the ranks without this option, and the option costs nothing. Arrays of GPUs are copied
 * to the host and back.
 *
 * With .wire = FX_DTYPE_BF16, members send each other gradients of Float32, Float16 and BFloat16 as
 * BFloat16, half the bytes of Float32. This applies to updates by fx_dist_optimiser and by fx_train
 * without .clip_norm. The gradients are added as Float32, in the order of the ranks. They are
 * rounded twice: before they are sent, and after they are added. The error of a mean is at most 2⁻⁸
 * of the mean of the absolute values. All members get the same bits. Float64 gradients, losses,
 * .guard, .observations, all other operations, and arrays that NCCL moves are not rounded.
 *
 * If the preference FluxDistributedMPICUDAAware is true (fx_preference; for AMD's GPUs
 * FluxDistributedMPIROCMAware), MPI itself moves arrays of GPUs in fx_dist_bcast, fx_dist_gather,
 * sums, means and products of Float32, Float64, Int32 and Int64, and maxima and minima of Int32 and
 * Int64, unless NCCL moves them or .fixed_order is set. The preference must be true on all members,
 * and the MPI library must be built for it: members ask it (MPIX_Query_cuda_support) and compare
 * the first elements of the first results with a computation on the host. If one of these fails,
 * rank 0 warns and arrays are copied as without the preference. After the time limit of such an
 * operation, a thread may still wait in MPI until the process ends. A program that has initialised
 * MPI itself must then not call MPI any more, also not MPI_Finalize: it ends by _exit, or its
 * launcher ends it. If it has initialised MPI with a thread level below MPI_THREAD_SERIALIZED, such
 * an operation has no time limit once all members have called it.
 *
 * With FX_DIST_AUTO, all members use what FX_DIST_BACKEND of rank 0 names. Pass FX_DIST_AUTO to
 * fx_dist_backend too: it returns the group, whichever library it uses.
 *
 * Errors: FX_STATUS_UNSUPPORTED if the plugin for the launcher's MPI is not installed or cannot be
 * used, or if MPI does not connect all processes that the launcher started; FX_STATUS_ARGUMENT if
 * .communicator is set, but neither .library nor a launcher names the MPI; FX_STATUS_ARGUMENT on
 * all members if FX_DIST_BACKEND has another value; FX_STATUS_UNSUPPORTED on all members, for
 * FX_NCCL, unless all of them have NCCL or all of them have RCCL; FX_STATUS_ARGUMENT if an option
 * is out of range. If the members have joined, but then fail to agree, all later calls return the
 * same error; if MPI connects other processes than the launcher started, all later calls for this
 * .library do. DistributedUtils.initialize. */
FX_API fx_status fxi_dist_init(const fx_dist_init_args *a);
#define fx_dist_init(...)                                                                          \
    FXI_CALL(fxi_dist_init(                                                                        \
        FXI_OPTIONS(fx_dist_init_args, FXI_DIST_INIT_ARGS(FXI_DEFAULT).kind = __VA_ARGS__)))
/* True after fx_dist_init has succeeded; FX_DIST_AUTO: with any library. FX_MPI: also after
 * fx_dist_init(FX_NCCL) has failed only because of NCCL and RCCL. */
FX_API bool fx_dist_initialized(fx_dist_kind kind);
/* Returns the group. Before fx_dist_init: NULL, with FX_STATUS_ARGUMENT "Backend `MPI` is not
 * initialized. Call fx_dist_init(FX_MPI) first". DistributedUtils.get_distributed_backend. */
FX_API fx_dist *fx_dist_backend(fx_dist_kind kind);

/* Rank of this member in the group, from 0; 0 for NULL. DistributedUtils.local_rank. */
FX_API int fx_dist_rank(const fx_dist *d);
FX_API int fx_dist_local_rank(const fx_dist *d);    /* rank among the members on this machine */
FX_API int fx_dist_total_workers(const fx_dist *d); /* number of members; 1 for NULL */

/* Operations on the arrays x of all members, which must have equal element types and sizes. With
 * one member the result is x itself (fx_dist_gather adds an axis). `fold` is FX_REDUCE_SUM, MAX,
 * MIN, PROD, or for floating-point types MEAN; it combines elements with the same index. All
 * members get the same bits. Errors: FX_STATUS_ARGUMENT for NULL, a root that is not a member, and
 * another fold; FX_STATUS_DTYPE for a reduction of Bool or a mean of integers in a group of several
 * members. */
FX_API fx_array *fx_dist_bcast(fx_dist *d, fx_array *x, int root);           /* x of `root` */
FX_API fx_array *fx_dist_allreduce(fx_dist *d, fx_array *x, fx_reduce fold); /* the reduction */
/* The reduction on `root`, zeros on the other members. */
FX_API fx_array *fx_dist_reduce(fx_dist *d, fx_array *x, fx_reduce fold, int root);
/* The arrays of all members, stacked along a new last axis in the order of their ranks.
 * FX_STATUS_SHAPE if x has FX_MAX_DIMS axes. */
FX_API fx_array *fx_dist_gather(fx_dist *d, fx_array *x);
/* Returns when all members have called it. */
FX_API fx_status fx_dist_barrier(fx_dist *d);

/* For benchmarks: the mean number of seconds of `runs` calls of the MPI library's own functions,
 * with n Float32 in host memory. fx_dist_time_sum: MPI_Allreduce of a sum. fx_dist_time_link:
 * MPI_Sendrecv, a message to the next rank while one of the previous rank arrives. All members must
 * call them, with equal arguments; they have no time limit. NaN on failure: FX_STATUS_ARGUMENT for
 * NULL, n < 1, n > 2^27 or runs < 1; FX_STATUS_UNSUPPORTED with one member. */
FX_API double fx_dist_time_sum(fx_dist *d, int64_t n, int64_t runs);
FX_API double fx_dist_time_link(fx_dist *d, int64_t n, int64_t runs);

/* This member's part of the observations, as a view (fx_obsview). Each observation is in exactly
 * one part, and the sizes of the parts differ by at most one. DistributedDataContainer. */
FX_API void *fx_dist_data(fx_dist *d, void *data);
/* fx_dist_data with the sizes of Flux: ⌈N/W⌉ of N observations for each of W members. The last
 * parts can be smaller or empty; Flux throws a BoundsError for an empty part. */
FX_API void *fx_dist_data_ceil(fx_dist *d, void *data);

/* This member's part of every batch of `loader` (fx_loader_part), in the order of rank 0. `loader`
 * must have the data of all members, and its batch size counts the observations of all members
 * together. All members get equally many batches. Returns an error object if a check of
 * fx_loader_part fails. */
FX_API fx_loader *fx_dist_loader(fx_dist *d, fx_loader *loader);

/* Copies the values of `root` to all members: the arrays of x (a model, an optimiser state, a
 * tuple), and the numbers of an optimiser state. The handles stay valid. First the members compare
 * the names, sizes, element types and order of their arrays. If they differ, nothing is changed,
 * and FX_STATUS_ARGUMENT names a member and its first array that differs. Returns x, or an error
 * array. DistributedUtils.synchronize!!. */
FX_API void *fx_dist_synchronize(fx_dist *d, void *x, int root);
/* Returns the x that `root` passed. If d is NULL or the call fails, records the error and returns
 * this member's x. */
FX_API double fx_dist_synchronize_number(fx_dist *d, double x, int root);
/* Returns the model itself. For programs from Flux, which marks a model with
 * FluxDistributedModel. */
FX_API void *fx_dist_model(void *model);

/* Returns a copy of x (an array, a gradient, a tuple) in which each floating-point array is
 * replaced by its mean over all members. The copy has the type and the structure of x, and shares
 * the other arrays with x. The scope owns the copy. With one member: returns x itself. Arrays of
 * one type are joined in groups of a sixteenth of all bytes, at least 1 MiB and at most 25 MiB; an
 * operation averages a group. Errors: FX_STATUS_ARGUMENT if d or x is NULL; an error object if x
 * contains an error or memory is exhausted. */
FX_API void *fx_dist_average(fx_dist *d, void *x);
/* Tells the other members that this one cannot continue: their next operation, or the one in which
 * they wait, fails with `status` and "rank 2 cannot continue: " and the message of this member's
 * error record. Without this call they would wait until the time limit. Returns when they have
 * received it. Does nothing with one member, or after an operation that failed on all members. */
FX_API void fx_dist_refuse(fx_dist *d, fx_status status);

/* After this call, BatchNorm and InstanceNorm layers that this thread calls in training mode
 * compute their statistics over the batches of all members of d, as if these were one batch. d =
 * NULL restores the default: statistics of this process's batch. All members must call the same
 * layers in the same order. Each call of a BatchNorm then exchanges two small arrays in the forward
 * pass and two in the backward pass. If the batches differ in size, multiply the loss of a member
 * by its number of observations times the number of members divided by the number of all
 * observations, and update without .observations. fx_train with .dist does both. Returns the
 * previous group. PyTorch's SyncBatchNorm. */
FX_API fx_dist *fx_dist_sync_norms(fx_dist *d);

/* Options of fx_dist_optimiser. */
/* clang-format off */
#define FXI_DIST_OPTIMISER_ARGS(F)                                                                 \
    F(fx_rule *, rule, FXI_NULL) /* the rule to apply to the mean gradient */                      \
    F(bool, shard, false)        /* true: each member keeps a part of the state */
/* clang-format on */
FXI_OPTION_STRUCT(fx_dist_optimiser_args, FXI_DIST_OPTIMISER_ARGS);
/* A rule whose updates use the mean of the gradients of all members: fx_setup(fx_dist_optimiser(d,
 * fx_adam()), model). If the members have equally large batches, this is the gradient of one batch
 * with all their observations. Gradients are sent in groups of a sixteenth of all bytes, at least 1
 * MiB and at most 25 MiB, those of the last layers first. Groups in host memory are sent while the
 * backward pass computes the next ones. If the loss of a member does not depend on a parameter,
 * zeros are used as its gradient, and a warning (fx_message_set_hook) names the rank and the
 * parameter, once. If .guard of fx_update is not finite on one member, no member updates. If `rule`
 * is a MixedPrecision, it stays the outermost rule of the result. The scope owns the result.
 * DistributedOptimizer.
 *
 * If `rule` is an AccumGrad with n, or a chain that begins with one, each member adds up its own
 * gradients, and only the complete sum is exchanged: in every n-th update. The other updates
 * exchange nothing, or one number if they have .guard or .observations. Save the state only after
 * an n-th update: between these updates the members have different sums. If a MixedPrecision with
 * .scale or .growth contains the rule, every gradient is exchanged, because the update checks the
 * mean of each gradient.
 *
 * With .shard = true, each of n members keeps 1/n of the arrays of the state (ZeRO-1): of each
 * parameter, an equal part of its elements. An update applies the rule to this part, and the
 * members then send each other the new parts of the parameters: S bytes for parameters of S bytes,
 * in addition to the gradients. The parameters have the same bits as with an undivided state.
 * FX_STATUS_UNSUPPORTED for ClipNorm, AccumGrad and MixedPrecision. Set up the state after
 * fx_dist_synchronize of the model; fx_dist_synchronize of the state then compares and sends only
 * its numbers. Save fx_dist_whole(d, state). */
FX_API fx_rule *fxi_dist_optimiser(fx_dist *d, const fx_dist_optimiser_args *a);
#define fx_dist_optimiser(d, ...)                                                                  \
    FXI_CALL(fxi_dist_optimiser(                                                                   \
        (d), FXI_OPTIONS(fx_dist_optimiser_args,                                                   \
                         FXI_DIST_OPTIMISER_ARGS(FXI_DEFAULT).rule = __VA_ARGS__)))

/* Returns a copy of an optimiser state in which the arrays of divided states (.shard) are whole,
 * and whose rules do not divide it. Save this copy: a group of any size can load it. All members
 * must call it, and each gets the copy. The scope owns it; an error array on failure. With one
 * member, and for states that are not divided, it copies the state. */
FX_API void *fx_dist_whole(fx_dist *d, void *state);
/* Copies this member's parts of `whole`, and its numbers, to the divided `state`: after
 * `whole = fx_dist_whole(d, state)` and a load into `whole`. Moves no data. FX_STATUS_ARGUMENT if
 * the states belong to different models or rules. */
FX_API fx_status fx_dist_divide(fx_dist *d, void *state, void *whole);

FXI_END_C
#endif
