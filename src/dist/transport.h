/* transport.h: the interface between src/dist and a transport, a plugin that moves data between
 * processes (libcflux-mpi-openmpi.so). Internal.
 *
 * A transport knows nothing of arrays, plans and error records: it gets buffers, and returns a
 * status and a message. After a failure the buffers stay valid until the process ends, unless it
 * `shares` the operation. Of the library it calls only the functions of fxi_transport_host.
 */
#ifndef CFLUX_TRANSPORT_H
#define CFLUX_TRANSPORT_H

#include <cflux/backend.h>

/* Kinds of collective operations that only transports have. GATHER: `out` gets the elements of all
 * members, in the order of their ranks. EXCHANGE: `in` has an equal part for each member; every
 * member gets its part from each of the others, in the order of their ranks. */
enum { FXI_COLLECTIVE_GATHER = FX_COLLECTIVE_BROADCAST + 1, FXI_COLLECTIVE_EXCHANGE };
/* The largest number of elements that GATHER and EXCHANGE take. */
enum { FXI_EXCHANGE_MOST = 1 << 27 };

/* One collective operation. */
typedef struct fxi_transport_call {
    int64_t kind; /* fx_collective_kind, FXI_COLLECTIVE_GATHER or EXCHANGE */
    int64_t fold; /* FX_REDUCE_SUM, MAX, MIN or PROD; all members must get the same bits. NaN in one
                   member gives NaN */
    int64_t root; /* a rank; ignored by ALL_REDUCE, GATHER and EXCHANGE */
    int64_t dtype;  /* fx_dtype; a reduction never has Float16 or BFloat16 */
    int64_t count;  /* elements of `in` */
    int64_t number; /* number of the call, from 1 on; equal in all members */
    double limit;   /* seconds to wait for the other members */
    bool beside;    /* other threads of this member compute meanwhile: they need the processors */
    const void *in;
    void *out; /* as large as `in`; for GATHER as large as `in` times the number of members; does
                  not overlap `in`, except if `shares` is true: then it may be `in` */
} fxi_transport_call;

/* The group that a transport joined. */
typedef struct fxi_transport_group {
    int32_t rank, size;             /* among all processes */
    int32_t local_rank, local_size; /* among those of this machine */
    bool any_thread;                /* `run` may be called by any thread, by one at a time */
    char library[120];              /* "Open MPI v4.1.4" */
    void *data;                     /* private to the transport */
} fxi_transport_group;

/* Functions of the library that a transport may call. */
typedef struct fxi_transport_host {
    void *(*alloc)(size_t bytes); /* never freed; NULL if memory is exhausted */
    void (*sleep)(int microseconds);
    void (*yield)(void);   /* lets another thread run on this processor */
    long (*process)(void); /* the number of the calling process: a child has another one */
    void *(*library)(const char *file, char *why,
                     size_t size);                    /* opens a library; NULL with the reason */
    void *(*symbol)(void *library, const char *name); /* NULL if the library does not export it */
    const char *(*variable)(
        const char *name); /* of the environment; NULL in programs with raised privileges */
} fxi_transport_host;

/* One member makes this id, and all members join a connection with it: an ncclUniqueId. */
typedef struct fxi_device_id {
    char bytes[128];
} fxi_device_id;

/* The structs of this file, whose sizes are compared when a plugin is loaded. */
typedef struct fxi_transport_structs {
    fxi_transport_call call;
    fxi_transport_group group;
    fxi_transport_host host;
    fxi_device_id id;
} fxi_transport_structs;

/* The table of functions. */
typedef struct fxi_transport {
    fx_plugin_head head; /* FXI_TRANSPORT_HEAD("OpenMPI", "MPI") */
    /* Joins the group; called once. `communicator`: the program's own (an MPI_Comm *), or NULL for
     * all processes of the launcher. Returns NULL on success, otherwise the reason as a text. */
    const char *(*open)(const fxi_transport_host *host, const void *communicator,
                        fxi_transport_group *out_group);
    /* Runs an operation. On failure it writes a message without a full stop to `why`, and the group
     * is not used any more. */
    fx_status (*run)(const fxi_transport_group *group, const fxi_transport_call *call, char *why,
                     size_t size);
    /* Returns true if `run` reduces this operation (kind, fold and dtype are read) in memory that
     * all members share. Then it reduces in the order of the ranks, `fold` may be MEAN, `out` may
     * be `in`, and nothing writes to `out` after `run` has returned. All members get the same
     * answer. NULL: always false. */
    bool (*shares)(const fxi_transport_group *group, const fxi_transport_call *call);
    /* Returns why the library cannot read and write memory of this backend's devices ("CUDA",
     * "AMDGPU"); NULL if it says that it can, or has no function that says it. */
    const char *(*query_devices)(const char *backend);
    /* As `run`, for ALL_REDUCE and BROADCAST with `in` and `out` in device memory, but without a
     * time limit. All members have come to the operation. If `any_thread`, another thread than that
     * of `run` may call it. After the time limit the library calls only `give_up` and `shares`. */
    fx_status (*run_on_devices)(const fxi_transport_group *group, const fxi_transport_call *call,
                                char *why, size_t size);
    /* Tells the transport that an operation on memory of devices failed on this member, at the time
     * limit or outside the transport: the others may still wait in it. A call of run_on_devices
     * that has not begun yet fails. Never waits. */
    void (*give_up)(const fxi_transport_group *group);
    /* Times `runs` calls of the library's own function for this operation, or if `link` of its
     * function for messages: `in` to the next rank, `out` from the previous one. No time limit. */
    fx_status (*measure)(const fxi_transport_group *group, const fxi_transport_call *call,
                         bool link, int64_t runs, double *out_seconds, char *why, size_t size);
} fxi_transport;

/* The state of a connection. */
typedef enum fxi_device_state {
    FXI_DEVICE_READY, /* takes the next call */
    FXI_DEVICE_BUSY,  /* the previous call is still in progress: retry */
    FXI_DEVICE_FAILED
} fxi_device_state;

/* The table of a transport that moves memory of devices (libcflux-nccl.so), among the members of a
 * group that another transport has joined, or among the devices of one process. No function waits.
 * All are called by one thread at a time, which has selected the device. */
typedef struct fxi_device_transport {
    fx_plugin_head head; /* FXI_DEVICE_TRANSPORT_HEAD("NCCL") */
    /* Opens the vendor's library, once. NULL on success, else the reason. */
    const char *(*open)(const fxi_transport_host *host);
    /* Called by one member. NULL on success, else the reason. */
    const char *(*new_id)(fxi_device_id *out);
    /* Begins a connection of all members, with the calling thread's device. NULL on success. */
    const char *(*join)(const fxi_device_id *id, int rank, int size, void **out_connection);
    /* Between group(true) and group(false), `join` and `run` are called for each of several devices
     * of this process, and begin together. NULL on success, else the reason. */
    const char *(*group)(bool begin);
    /* The state of the connection. If it is FAILED, `why` gets the reason. */
    fxi_device_state (*state)(void *connection, char *why, size_t size);
    /* Queues ALL_REDUCE or BROADCAST in a stream; `in` and `out` are in device memory. `fold` may
     * be MEAN. Afterwards the library calls `state` until it is READY. */
    fx_status (*run)(void *connection, const fxi_transport_call *call, void *stream, char *why,
                     size_t size);
    /* Ends the queued operations, and frees the connection. */
    void (*abandon)(void *connection);
} fxi_device_transport;

#define FXI_DEVICE_TRANSPORT_SIZES_HERE                                                            \
    FX_PLUGIN_SIZES_HERE(fxi_device_transport, fxi_transport_structs)
#define FXI_DEVICE_TRANSPORT_HEAD(its_name)                                                        \
    {                                                                                              \
        .abi = FX_PLUGIN_ABI, .kind = FX_PLUGIN_TRANSPORT,                                         \
        .sizes = FXI_DEVICE_TRANSPORT_SIZES_HERE, .version = FX_VERSION_STRING, .name = (its_name) \
    }

#define FXI_TRANSPORT_SIZES_HERE FX_PLUGIN_SIZES_HERE(fxi_transport, fxi_transport_structs)
#define FXI_TRANSPORT_HEAD(its_name, interface)                                                    \
    {                                                                                              \
        .abi = FX_PLUGIN_ABI, .kind = FX_PLUGIN_TRANSPORT, .sizes = FXI_TRANSPORT_SIZES_HERE,      \
        .version = FX_VERSION_STRING, .name = (its_name), .serves = (interface)                    \
    }

#endif
