/* sim_nccl.c: the functions of NCCL, or RCCL, that the transport calls (src/dist/nccl/nccl_api.h),
 * over simulated devices. Members are processes of one machine, which exchange data in a file that
 * all of them map, or the devices of one process, whose calls are in a group. It refuses what the
 * real library refuses: other members, two members with one device, a call before the previous one
 * has begun, operations that differ between members, addresses that are not the device's.
 *
 *   SIM_NCCL_VERSION=22703
 *   SIM_NCCL_ALONE=1     the other members are missing: each has the same operands
 *   SIM_FAIL=…           sim.h; "async@2=1": the second question for the state finds error 1
 *   SIM_NCCL_SLOW=3      after a call, three questions for the state find it in progress
 *   SIM_NCCL_HANGS=1000  the same, for operations only
 *   SIM_NCCL_SAYS=1      prints when a connection is aborted
 */
#include "../../src/dist/nccl/nccl_api.h"
#include "sim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define DECLARE(result, member, symbol, need, arguments)                                           \
    __attribute__((visibility("default"))) result sim_##member arguments __asm__(#symbol);
FXI_NCCL_FUNCTIONS(DECLARE)
#ifdef FXI_AMDGPU
#define DRIVER "libamdhip64.so.7"
#else
#define DRIVER "libcuda.so.1"
#endif
enum { UNHANDLED = 1, SYSTEM = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6 };
enum { MEMBERS = 8, CHUNK = 1 << 16, PATIENCE = 60 };

/* The memory that the members share. */
typedef struct meeting {
    int here, round, joined; /* atomic */
    int device[MEMBERS];
    struct {
        int kind, type, op;
        size_t count;
    } call[MEMBERS];
    char data[MEMBERS][CHUNK];
} meeting;

struct fxi_nccl_comm_object {
    int rank, size, device, gone;
    meeting *with; /* NULL: SIM_NCCL_ALONE, or all members are in this process */
    bool local;    /* all members are in this process */
    char id[128];
    int slow;  /* questions that find the previous call in progress */
    int error; /* found while an operation ran */
    struct fxi_nccl_comm_object *next;
};
/* All connections. An aborted one is not freed, because queued work may still use it. */
static fxi_nccl_comm all_comms;

static char last[200];

static int refuse(int error, const char *why)
{
    snprintf(last, sizeof last, "%s", why);
    return error;
}

static int scripted(const char *symbol)
{
    bool lost;
    const int error = sim_script(symbol, &lost);
    return error ? refuse(error, "as the script says") : 0;
}

static void *of_driver(const char *name)
{
    void *library = dlopen(DRIVER, RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}

static int current_device(void)
{
    int (*device)(void);
    *(void **)&device = of_driver("sim_current_device");
    return device ? device() : -1;
}

/* ---- meeting --------------------------------------------------------------------------------- */

/* Waits for all members. False if one of them did not call this within PATIENCE seconds. */
static bool meet(const fxi_nccl_comm c)
{
    meeting *r = c->with;
    const int round = __atomic_load_n(&r->round, __ATOMIC_ACQUIRE);
    const time_t begin = time(NULL);
    if (__atomic_add_fetch(&r->here, 1, __ATOMIC_ACQ_REL) == c->size) {
        __atomic_store_n(&r->here, 0, __ATOMIC_RELEASE);
        __atomic_add_fetch(&r->round, 1, __ATOMIC_ACQ_REL);
    }
    while (__atomic_load_n(&r->round, __ATOMIC_ACQUIRE) == round) {
        if (time(NULL) - begin > PATIENCE)
            return false;
        usleep(50);
    }
    return true;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int group_depth;

/* The calls since the group began: connections, or operations. */
static fxi_nccl_comm joining[MEMBERS];
static int njoining;
static struct operation *grouped[MEMBERS];
static void *grouped_streams[MEMBERS];
static int ngrouped;

/* ---- beginning ------------------------------------------------------------------------------- */

int sim_Version(int *out)
{
    *out = (int)sim_setting("SIM_NCCL_VERSION", 22703);
    return scripted("ncclGetVersion");
}

const char *sim_ErrorString(int error)
{
    static const char *const names[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error"};
    return error >= 0 && error <= REMOTE ? names[error] : "unknown result code";
}

const char *sim_LastError(fxi_nccl_comm comm)
{
    (void)comm;
    return last;
}

/* The id is the name of a file. The member that makes the id also creates the file. */
int sim_NewId(fxi_nccl_id *out)
{
    const char *folder = getenv("TMPDIR");
    const int error = scripted("ncclGetUniqueId");
    if (error)
        return error;
    memset(out, 0, sizeof *out);
    snprintf(out->bytes, sizeof out->bytes, "%s/sim-nccl-XXXXXX", folder ? folder : "/tmp");
    const int file = mkstemp(out->bytes);
    if (file < 0 || ftruncate(file, sizeof(meeting)) != 0)
        return refuse(SYSTEM, "no file");
    close(file);
    if (sim_setting("SIM_NCCL_ALONE", 0))
        unlink(out->bytes);
    return 0;
}

static int enter(fxi_nccl_comm c, const char *path)
{
    const int file = open(path, O_RDWR | O_CLOEXEC);
    c->with = file < 0 ? MAP_FAILED
                       : mmap(NULL, sizeof(meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (c->with == MAP_FAILED)
        return refuse(SYSTEM, "the id is not that of a running member");
    c->with->device[c->rank] = c->device;
    if (!meet(c))
        return refuse(REMOTE, "a member did not come");
    unlink(path);
    for (int k = 0; k < c->size; k++)
        if (k != c->rank && c->with->device[k] == c->device && !getenv("CUDA_VISIBLE_DEVICES"))
            return refuse(INVALID_USAGE, "Duplicate GPU detected");
    return meet(c) ? 0 : refuse(REMOTE, "a member did not come");
}

int sim_Join(fxi_nccl_comm *out, int size, fxi_nccl_id id, int rank, fxi_nccl_config *config)
{
    const int error = scripted("ncclCommInitRankConfig");
    *out = NULL;
    if (error)
        return error;
    if (config->size < sizeof *config || config->magic != FXI_NCCL_MAGIC || config->blocking != 0)
        return refuse(INVALID_ARGUMENT, "the configuration was not initialised");
    if (size > MEMBERS || rank < 0 || rank >= size || current_device() < 0)
        return refuse(INVALID_ARGUMENT, "no such rank, or no device");
    fxi_nccl_comm c = calloc(1, sizeof *c);
    if (!c)
        return refuse(SYSTEM, "no memory");
    *c = (struct fxi_nccl_comm_object){.rank = rank,
                                       .size = size,
                                       .device = current_device(),
                                       .slow = (int)sim_setting("SIM_NCCL_SLOW", 0),
                                       .next = all_comms};
    *out = all_comms = c;
    memcpy(c->id, id.bytes, sizeof c->id);
    if (group_depth > 0) {
        c->local = true;
        if (njoining == MEMBERS)
            return refuse(INVALID_USAGE, "too many members");
        joining[njoining++] = c;
    } else if (!sim_setting("SIM_NCCL_ALONE", 0))
        c->error = enter(c, id.bytes);
    return FXI_NCCL_IN_PROGRESS;
}

int sim_State(fxi_nccl_comm c, int *out)
{
    const int error = scripted("ncclCommGetAsyncError");
    if (error)
        return error;
    *out = scripted("async");
    if (!*out)
        *out = c->error ? c->error : c->slow > 0 ? FXI_NCCL_IN_PROGRESS : 0;
    c->slow -= c->slow > 0;
    return 0;
}

int sim_Abort(fxi_nccl_comm c)
{
    c->gone = 1;
    if (sim_setting("SIM_NCCL_SAYS", 0))
        printf("aborted; ");
    return scripted("ncclCommAbort");
}

/* ---- operations ------------------------------------------------------------------------------ */

typedef struct operation {
    sim_call call; /* first */
    fxi_nccl_comm comm;
    int kind, type, op; /* kind 0: all-reduce; 1 + root: broadcast */
    size_t count;
} operation;

static size_t size_of(int type)
{
    return type == FXI_NCCL_FLOAT64 || type == FXI_NCCL_INT64      ? 8
           : type == FXI_NCCL_FLOAT32 || type == FXI_NCCL_INT32    ? 4
           : type == FXI_NCCL_FLOAT16 || type == FXI_NCCL_BFLOAT16 ? 2
                                                                   : 1;
}

#define FOLD_AS(T)                                                                                 \
    for (size_t i = 0; i < n; i++) {                                                               \
        T v = ((const T *)(const void *)in[0])[i];                                                 \
        for (int k = 1; k < size; k++) {                                                           \
            const T x = ((const T *)(const void *)in[k])[i];                                       \
            v = op == FXI_NCCL_PROD  ? (T)(v * x)                                                  \
                : op == FXI_NCCL_MAX ? (x > v ? x : v)                                             \
                : op == FXI_NCCL_MIN ? (x < v ? x : v)                                             \
                                     : (T)(v + x);                                                 \
        }                                                                                          \
        ((T *)(void *)out)[i] = op == FXI_NCCL_AVG ? (T)(v / (T)size) : v;                         \
    }

static void fold(const char *const *in, int size, char *out, size_t n, int type, int op)
{
    if (type == FXI_NCCL_FLOAT32)
        FOLD_AS(float)
    else if (type == FXI_NCCL_FLOAT64)
        FOLD_AS(double)
    else if (type == FXI_NCCL_INT32)
        FOLD_AS(int32_t)
    else
        FOLD_AS(int64_t)
}

/* Computes one part of the elements: each member stores its operand, then each computes the result
 * from all operands. */
static bool exchange(operation *o, const char *in, char *out, size_t n)
{
    fxi_nccl_comm c = o->comm;
    const size_t bytes = n * size_of(o->type);
    const char *all[MEMBERS];
    for (int k = 0; k < c->size; k++)
        all[k] = c->with ? c->with->data[k] : in;
    if (c->with) {
        memcpy(c->with->data[c->rank], in, bytes);
        if (!meet(c))
            return false;
    }
    if (o->kind)
        memmove(out, all[o->kind - 1], bytes);
    else
        fold(all, c->size, out, n, o->type, o->op);
    return !c->with || meet(c);
}

static void run(sim_call *call)
{
    operation *o = (operation *)(void *)call;
    fxi_nccl_comm c = o->comm;
    const size_t each = CHUNK / size_of(o->type);
    if (c->with) {
        c->with->call[c->rank].kind = o->kind;
        c->with->call[c->rank].count = o->count;
        c->error = meet(c) ? 0 : REMOTE;
        for (int k = 0; k < c->size; k++)
            if (c->with->call[k].kind != o->kind || c->with->call[k].count != o->count)
                c->error = INVALID_USAGE;
    }
    for (size_t at = 0; at < o->count && !c->error && !c->gone; at += each) {
        const size_t n = o->count - at < each ? o->count - at : each, skip = at * size_of(o->type);
        if (!exchange(o, call->at[0] + skip, call->at[1] + skip, n))
            c->error = REMOTE;
    }
}

/* The operands of one operation of all members, which are devices of this process. */
typedef struct gathering {
    int size, users;
    char *data[MEMBERS];
} gathering;

typedef struct local_call {
    sim_call call; /* first */
    gathering *with;
    operation what;
} local_call;

static void gather(sim_call *call)
{
    local_call *l = (local_call *)(void *)call;
    memcpy(l->with->data[l->what.comm->rank], call->at[0], call->uses[0].bytes);
}

static void spread(sim_call *call)
{
    local_call *l = (local_call *)(void *)call;
    gathering *g = l->with;
    const char *all[MEMBERS];
    for (int k = 0; k < g->size; k++)
        all[k] = g->data[k];
    fold(all, g->size, call->at[0], l->what.count, l->what.type, l->what.op);
    if (--g->users > 0)
        return;
    for (int k = 0; k < g->size; k++)
        free(g->data[k]);
    free(g);
}

static sim_call *local_call_new(const operation *o, gathering *g, bool first)
{
    local_call *l = calloc(1, sizeof *l);
    if (!l)
        abort();
    *l = (local_call){
        .call = {.name = o->call.name, .run = first ? gather : spread}, .with = g, .what = *o};
    l->call.uses[0] = o->call.uses[first ? 0 : 1];
    return &l->call;
}

/* Starts the operations of a group. All members must have called the same one. */
static int start_group(void)
{
    int (*to_streams)(int, void *const *, sim_call *const *, sim_call *const *);
    sim_call *first[MEMBERS], *second[MEMBERS];
    const int n = ngrouped;
    int error = n == grouped[0]->comm->size ? 0 : INVALID_USAGE;
    for (int k = 0; k < n && !error; k++)
        if (grouped[k]->count != grouped[0]->count || grouped[k]->type != grouped[0]->type ||
            grouped[k]->op != grouped[0]->op || grouped[k]->comm->rank != k)
            error = INVALID_USAGE;
    gathering *g = calloc(1, sizeof *g);
    *(void **)&to_streams = of_driver("sim_queue_group");
    if (!g || !to_streams)
        return refuse(SYSTEM, "no memory");
    g->size = g->users = n;
    for (int k = 0; k < n && !error; k++) {
        g->data[k] = malloc(grouped[k]->call.uses[0].bytes);
        first[k] = local_call_new(grouped[k], g, true);
        second[k] = local_call_new(grouped[k], g, false);
        grouped[k]->comm->slow = (int)sim_setting("SIM_NCCL_SLOW", 0);
    }
    for (int k = 0; k < n; k++)
        free(grouped[k]);
    if (error) {
        free(g);
        return refuse(error, "the members of a group do not call the same operation");
    }
    return to_streams(n, grouped_streams, first, second) ? refuse(UNHANDLED, "the device failed")
                                                         : FXI_NCCL_IN_PROGRESS;
}

/* Connects the members that joined in a group. */
static int connect_group(void)
{
    unlink(joining[0]->id);
    for (int k = 0; k < njoining; k++) {
        if (njoining != joining[k]->size || memcmp(joining[k]->id, joining[0]->id, 128) != 0)
            return refuse(INVALID_USAGE, "members of the group are missing");
        for (int j = 0; j < k; j++)
            if (joining[j]->device == joining[k]->device || joining[j]->rank == joining[k]->rank)
                return refuse(INVALID_USAGE, "Duplicate GPU detected");
    }
    return FXI_NCCL_IN_PROGRESS;
}

int sim_GroupStart(void)
{
    const int error = scripted("ncclGroupStart");
    group_depth += !error;
    return error;
}

int sim_GroupEnd(void)
{
    if (group_depth != 1)
        return refuse(INVALID_USAGE, "no group has begun, or one in another");
    group_depth = 0;
    const int scripts = scripted("ncclGroupEnd");
    const int error = scripts ? scripts : njoining ? connect_group() : ngrouped ? start_group() : 0;
    njoining = ngrouped = 0;
    return error;
}

static int queue(const char *name, const operation *what, const void *in, void *out, void *stream)
{
    fxi_nccl_comm c = what->comm;
    int (*to_stream)(void *, sim_call *);
    const int error = scripted(name);
    if (error)
        return error;
    if (c->gone || c->slow > 0 || c->device != current_device())
        return refuse(INVALID_USAGE, "the connection is gone or busy, or of another device");
    if (c->local != (group_depth > 0) || ngrouped == MEMBERS)
        return refuse(INVALID_USAGE, "the devices of one process call operations in groups");
    *(void **)&to_stream = of_driver("sim_queue_call");
    operation *o = malloc(sizeof *o);
    if (!o || !to_stream)
        return refuse(SYSTEM, "no memory");
    *o = *what;
    const size_t bytes = o->count * size_of(o->type);
    o->call = (sim_call){.name = name, .run = run};
    o->call.uses[0].address = in;
    o->call.uses[0].bytes = bytes;
    o->call.uses[1].address = out;
    o->call.uses[1].bytes = bytes;
    if (c->local) {
        grouped[ngrouped] = o;
        grouped_streams[ngrouped++] = stream;
        return 0;
    }
    c->slow = (int)sim_setting("SIM_NCCL_HANGS", sim_setting("SIM_NCCL_SLOW", 0));
    return to_stream(stream, &o->call) ? refuse(UNHANDLED, "the device failed")
                                       : FXI_NCCL_IN_PROGRESS;
}

int sim_AllReduce(const void *in, void *out, size_t n, int type, int op, fxi_nccl_comm comm,
                  void *stream)
{
    const operation o = {.comm = comm, .type = type, .op = op, .count = n};
    if (type < FXI_NCCL_INT32 || op < FXI_NCCL_SUM || op > FXI_NCCL_AVG)
        return refuse(INVALID_ARGUMENT, "a type or a reduction that cflux does not use");
    return queue("ncclAllReduce", &o, in, out, stream);
}

int sim_Broadcast(const void *in, void *out, size_t n, int type, int root, fxi_nccl_comm comm,
                  void *stream)
{
    const operation o = {.comm = comm, .kind = 1 + root, .type = type, .count = n};
    if (root < 0 || root >= comm->size)
        return refuse(INVALID_ARGUMENT, "no such root");
    return queue("ncclBroadcast", &o, in, out, stream);
}
