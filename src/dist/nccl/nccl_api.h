/* nccl_api.h: the functions of NCCL that the transport calls, so that no header of a vendor is
 * needed to build it. RCCL, AMD's library, has the same functions with the same names. Internal.
 *
 *    X(result, member, symbol, NEEDED or OPTIONAL, arguments)
 *
 * tests/unit/test_nccl_signatures.cpp compares the table with NVIDIA's header where that is
 * installed. RCCL's functions are as in its manual, and are not compared.
 */
#ifndef CFLUX_NCCL_API_H
#define CFLUX_NCCL_API_H

#include <stddef.h>

typedef struct fxi_nccl_comm_object *fxi_nccl_comm;
/* Passed by value, like the library's own. */
typedef struct fxi_nccl_id {
    char bytes[128];
} fxi_nccl_id;

/* The members that the configuration had in version 2.14. A later library takes the others from its
 * own defaults, because `size` and `version` say that they are missing. */
typedef struct fxi_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} fxi_nccl_config;

enum {
    FXI_NCCL_OK = 0,
    FXI_NCCL_IN_PROGRESS = 7,
    FXI_NCCL_INT8 = 0,
    FXI_NCCL_UINT8 = 1,
    FXI_NCCL_INT32 = 2,
    FXI_NCCL_INT64 = 4,
    FXI_NCCL_FLOAT16 = 6,
    FXI_NCCL_FLOAT32 = 7,
    FXI_NCCL_FLOAT64 = 8,
    FXI_NCCL_BFLOAT16 = 9,
    FXI_NCCL_SUM = 0,
    FXI_NCCL_PROD = 1,
    FXI_NCCL_MAX = 2,
    FXI_NCCL_MIN = 3,
    FXI_NCCL_AVG = 4,
    FXI_NCCL_LEAST = 21400 /* the first version with connections that do not block */
};
#define FXI_NCCL_MAGIC 0xcafebeefU

#define FXI_NCCL_FUNCTIONS(X)                                                                      \
    X(int, Version, ncclGetVersion, NEEDED, (int *))                                               \
    X(int, NewId, ncclGetUniqueId, NEEDED, (fxi_nccl_id *))                                        \
    X(int, Join, ncclCommInitRankConfig, NEEDED,                                                   \
      (fxi_nccl_comm *, int, fxi_nccl_id, int, fxi_nccl_config *))                                 \
    X(int, GroupStart, ncclGroupStart, NEEDED, (void))                                             \
    X(int, GroupEnd, ncclGroupEnd, NEEDED, (void))                                                 \
    X(int, State, ncclCommGetAsyncError, NEEDED, (fxi_nccl_comm, int *))                           \
    X(int, Abort, ncclCommAbort, NEEDED, (fxi_nccl_comm))                                          \
    X(int, AllReduce, ncclAllReduce, NEEDED,                                                       \
      (const void *, void *, size_t, int, int, fxi_nccl_comm, void *))                             \
    X(int, Broadcast, ncclBroadcast, NEEDED,                                                       \
      (const void *, void *, size_t, int, int, fxi_nccl_comm, void *))                             \
    X(const char *, ErrorString, ncclGetErrorString, NEEDED, (int))                                \
    X(const char *, LastError, ncclGetLastError, OPTIONAL, (fxi_nccl_comm))

#endif
