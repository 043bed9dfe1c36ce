/* nccl_transport.c: the transport over NCCL, and with FXI_RCCL defined over RCCL, AMD's library
 * with the same functions.
 *
 * The connection does not block: every call returns at once, so that the caller can give up on
 * members that are gone. The library is opened at run time, by the name that its packages install;
 * FX_NCCL_LIBRARY or FX_RCCL_LIBRARY may name another file, such as that of a Python package.
 */
#include "nccl_api.h"
#include "transport.h"

#include <stdio.h>
#include <string.h>

#ifdef FXI_RCCL
#define NAME     "RCCL"
#define FILE_OF  "librccl.so.1"
#define VARIABLE "FX_RCCL_LIBRARY"
#else
#define NAME     "NCCL"
#define FILE_OF  "libnccl.so.2"
#define VARIABLE "FX_NCCL_LIBRARY"
#endif

#define MEMBER(result, member, symbol, need, arguments) result(*member) arguments;
static struct {
    FXI_NCCL_FUNCTIONS(MEMBER)
} nccl;
static char why_not[400];

enum { OPTIONAL, NEEDED };
/* Names and pointers come from one list, so that none can be forgotten. */
static const struct {
    const char *name;
    void **to;
    int needed;
} entries[] = {
#define ENTRY(result, member, symbol, need, arguments) {#symbol, (void **)&nccl.member, need},
    FXI_NCCL_FUNCTIONS(ENTRY)
#undef ENTRY
};

/* ---- errors ---------------------------------------------------------------------------------- */

/* The library's latest message names the file, device or address that an error number does not. */
static const char *say(char *text, size_t size, const char *call, int error, fxi_nccl_comm comm)
{
    const char *what = nccl.ErrorString(error);
    const char *more = nccl.LastError ? nccl.LastError(comm) : NULL;
    snprintf(text, size, "%s failed: %s%s%.200s", call, what ? what : "an unknown error",
             more && *more ? ": " : "", more ? more : "");
    return text;
}

static const char *failed(const char *call, int error, fxi_nccl_comm comm)
{
    return say(why_not, sizeof why_not, call, error, comm);
}

/* ---- the library ----------------------------------------------------------------------------- */

static const char *take(const fxi_transport_host *host, void *library, const char *file)
{
    int version = 0;
    for (size_t k = 0; k < sizeof entries / sizeof *entries; k++) {
        *entries[k].to = host->symbol(library, entries[k].name);
        if (!*entries[k].to && entries[k].needed) {
            snprintf(why_not, sizeof why_not, "%s has no function %s: " NAME " 2.14 is needed",
                     file, entries[k].name);
            return why_not;
        }
    }
    const int error = nccl.Version(&version);
    if (error)
        return failed("ncclGetVersion", error, NULL);
    if (version >= FXI_NCCL_LEAST)
        return NULL;
    /* The number of a version up to 2.8 has one digit less: 2804 is 2.8.4, 20906 is 2.9.6. */
    const int scale = version < 10000 ? 1000 : 10000;
    snprintf(why_not, sizeof why_not, "%s is version %d.%d: " NAME " 2.14 is needed", file,
             version / scale, version % scale / 100);
    return why_not;
}

static const char *open_library(const fxi_transport_host *host)
{
    char reason[200] = "";
    const char *wanted = host->variable(VARIABLE), *file = wanted && *wanted ? wanted : FILE_OF;
    void *library = host->library(file, reason, sizeof reason);
    if (library)
        return take(host, library, file);
    if (file == wanted)
        snprintf(why_not, sizeof why_not, "%.100s, which " VARIABLE " names, cannot be opened: %s",
                 file, reason);
    else
        snprintf(why_not, sizeof why_not,
                 NAME " is not installed: there is no " FILE_OF " (%s); install it, or name its "
                      "file in " VARIABLE,
                 reason);
    return why_not;
}

/* ---- joining --------------------------------------------------------------------------------- */

static const char *new_id(fxi_device_id *out)
{
    fxi_nccl_id id = {{0}};
    const int error = nccl.NewId(&id);
    memcpy(out->bytes, id.bytes, sizeof out->bytes);
    return error ? failed("ncclGetUniqueId", error, NULL) : NULL;
}

static const char *join(const fxi_device_id *id, int rank, int size, void **out_connection)
{
    fxi_nccl_comm comm = NULL;
    fxi_nccl_id own;
    fxi_nccl_config config = {
        .size = sizeof config, .magic = FXI_NCCL_MAGIC, .version = FXI_NCCL_LEAST, .blocking = 0};
    memcpy(own.bytes, id->bytes, sizeof own.bytes);
    const int error = nccl.Join(&comm, size, own, rank, &config);
    *out_connection = comm;
    if (error == FXI_NCCL_OK || error == FXI_NCCL_IN_PROGRESS)
        return comm ? NULL : "ncclCommInitRankConfig gave no connection";
    failed("ncclCommInitRankConfig", error, comm);
    return why_not;
}

static const char *group(bool begin)
{
    const int error = begin ? nccl.GroupStart() : nccl.GroupEnd();
    if (error == FXI_NCCL_OK || error == FXI_NCCL_IN_PROGRESS)
        return NULL;
    return failed(begin ? "ncclGroupStart" : "ncclGroupEnd", error, NULL);
}

static fxi_device_state state(void *connection, char *why, size_t size)
{
    int error = FXI_NCCL_OK;
    const int status = nccl.State(connection, &error);
    if (status) {
        say(why, size, "ncclCommGetAsyncError", status, connection);
        return FXI_DEVICE_FAILED;
    }
    if (error == FXI_NCCL_OK || error == FXI_NCCL_IN_PROGRESS)
        return error ? FXI_DEVICE_BUSY : FXI_DEVICE_READY;
    say(why, size, NAME, error, connection);
    return FXI_DEVICE_FAILED;
}

static void abandon(void *connection)
{
    nccl.Abort(connection);
}

/* ---- operations ------------------------------------------------------------------------------ */

static int type_of(int64_t dtype)
{
    switch (dtype) {
    case FX_DTYPE_F32:
        return FXI_NCCL_FLOAT32;
    case FX_DTYPE_F64:
        return FXI_NCCL_FLOAT64;
    case FX_DTYPE_F16:
        return FXI_NCCL_FLOAT16;
    case FX_DTYPE_BF16:
        return FXI_NCCL_BFLOAT16;
    case FX_DTYPE_I32:
        return FXI_NCCL_INT32;
    case FX_DTYPE_I64:
        return FXI_NCCL_INT64;
    default:
        return FXI_NCCL_UINT8;
    }
}

static int op_of(int64_t fold)
{
    return fold == FX_REDUCE_PROD   ? FXI_NCCL_PROD
           : fold == FX_REDUCE_MAX  ? FXI_NCCL_MAX
           : fold == FX_REDUCE_MIN  ? FXI_NCCL_MIN
           : fold == FX_REDUCE_MEAN ? FXI_NCCL_AVG
                                    : FXI_NCCL_SUM;
}

static fx_status run(void *connection, const fxi_transport_call *c, void *stream, char *why,
                     size_t size)
{
    const bool sends = c->kind == FX_COLLECTIVE_BROADCAST;
    const size_t n = (size_t)c->count;
    const int type = type_of(c->dtype);
    const int error =
        sends ? nccl.Broadcast(c->in, c->out, n, type, (int)c->root, connection, stream)
              : nccl.AllReduce(c->in, c->out, n, type, op_of(c->fold), connection, stream);
    if (error == FXI_NCCL_OK || error == FXI_NCCL_IN_PROGRESS)
        return FX_OK;
    say(why, size, sends ? "ncclBroadcast" : "ncclAllReduce", error, connection);
    return FX_STATUS_IO;
}

FX_PLUGIN_EXPORT(fxi_device_transport) = {.head = FXI_DEVICE_TRANSPORT_HEAD(NAME),
                                          .open = open_library,
                                          .new_id = new_id,
                                          .join = join,
                                          .group = group,
                                          .state = state,
                                          .run = run,
                                          .abandon = abandon};
