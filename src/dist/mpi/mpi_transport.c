/* mpi_transport.c: the transport over MPI. It is compiled once for each MPI, with CFLUX_MPI_NAME
 * its name, because Open MPI and MPICH have different headers.
 *
 * Every operation is nonblocking and is tested in a loop, so that it can be abandoned at the time
 * limit. MPI does not promise that all ranks get the same bits from its own all-reduce. So in
 * ALL_REDUCE each of n ranks reduces an equal share of the elements, in the order of the ranks, and
 * all ranks get its result (`reduce_shares`). Each rank sends and receives 2(n−1)/n·S bytes for S
 * bytes. Arrays of less than LEAST_SHARE bytes for each rank are reduced to rank 0 and broadcast
 * from there, which takes fewer messages. If all ranks are on one machine, ALL_REDUCE uses memory
 * that they share instead (mpi_window.c).
 *
 * When half and when three quarters of the time limit have passed, a rank notifies the other ranks
 * that it is waiting in this operation. At the limit the error names the ranks that sent no notice.
 * Operations that finish earlier send no notices. If a rank stops in a broadcast before it has
 * passed the data on, some ranks wait for it in this operation and others in the next one. So a
 * notice about a later operation counts too. A notice about an earlier operation counts only if it
 * arrives in the second half of the wait: before that it may be about a wait that has ended.
 *
 * A rank whose process ends waits for the others. If it gets a notice about an operation that it
 * has not called, it answers that it has ended, and the rank that waits fails at once.
 */
#include "mpi_window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTICE = 20, NONE = 21 };    /* tags: of notices, and one that no message has */
enum { CHUNK = FXI_EXCHANGE_MOST }; /* most elements of a call of MPI, whose count is an int */
/* Of `reduce_shares`: the least bytes for each rank, bytes of memory and of a message, and the
 * pieces that are exchanged at the same time. */
enum { LEAST_SHARE = 1 << 10, WORK = 8 << 20, MESSAGE = 32 << 10, MOVING = 16 };
enum { SILENT, WAITS, FAILED, GONE };
/* In notices: the rank failed, and its process ends; the process ends without the operation. */
static const int64_t ends = INT64_MAX, gone = INT64_MAX - 1;

static struct {
    MPI_Comm comm, notices; /* made by the plugin, for operations and for notices */
    fxi_window window;      /* of all ranks, if they are on one machine */
    int rank, size;
    bool several; /* the ranks are on several machines */
    int level;    /* thread level of MPI */
    bool ours;    /* the plugin initialised MPI, not the program */
    bool broken;  /* atomic: an operation failed; MPI_Finalize would wait for the other ranks, so it
                     is not called */
    bool blocked; /* atomic: a thread may be in MPI, in an operation */
    bool leaves;  /* atomic: the process ends */
    const fxi_transport_host *host;
    int64_t number; /* of the latest operation that this rank has called */
    long process;   /* process that joined; a forked child must not call MPI_Finalize */
    int64_t *sent;  /* by rank: the number in the notice to it */
    MPI_Request *sending;
    char *heard;  /* by rank: SILENT, WAITS, FAILED or GONE, by the notices during this wait */
    int *numbers; /* of `reduce_shares`: 4 for each rank and piece */
    char *work;   /* of `reduce_shares`: WORK bytes, operands of this rank's shares */
} mpi;

static void set_broken(void)
{
    __atomic_store_n(&mpi.broken, true, __ATOMIC_SEQ_CST);
}

static bool is_broken(void)
{
    return __atomic_load_n(&mpi.broken, __ATOMIC_SEQ_CST);
}

static const char *fail(char *why, size_t size, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;
    MPI_Error_string(code, text, &n);
    snprintf(why, size, "%s failed: %s", what, text);
    return why;
}

/* ---- notices --------------------------------------------------------------------------------- */

/* Sends nothing while an earlier notice to the rank is still being sent. */
static void tell(int r, int64_t number)
{
    int sent = 1;
    if (mpi.sending[r] != MPI_REQUEST_NULL)
        MPI_Test(&mpi.sending[r], &sent, MPI_STATUS_IGNORE);
    if (!sent)
        return;
    mpi.sent[r] = number;
    MPI_Isend(&mpi.sent[r], 1, MPI_INT64_T, r, NOTICE, mpi.notices, &mpi.sending[r]);
}

static void tell_all(int64_t number)
{
    for (int r = 0; r < mpi.size; r++)
        if (r != mpi.rank)
            tell(r, number);
}

/* Receives all notices that have arrived and ignores those about operations before `first`. If that
 * is `ends`, this process ends, and answers those that wait for it. */
static void hear_all(int64_t first)
{
    for (;;) {
        int some = 0;
        MPI_Status from;
        int64_t its = 0;
        if (MPI_Iprobe(MPI_ANY_SOURCE, NOTICE, mpi.notices, &some, &from) != MPI_SUCCESS || !some)
            return;
        MPI_Recv(&its, 1, MPI_INT64_T, from.MPI_SOURCE, NOTICE, mpi.notices, MPI_STATUS_IGNORE);
        if (its >= first)
            mpi.heard[from.MPI_SOURCE] = its == ends ? FAILED : its == gone ? GONE : WAITS;
        else if (first == ends && its > mpi.number && its != gone)
            tell(from.MPI_SOURCE, gone);
    }
}

static void forget_waits(void)
{
    for (int r = 0; r < mpi.size; r++)
        if (mpi.heard[r] == WAITS)
            mpi.heard[r] = SILENT;
}

/* Writes "BEFORE1, 3" with the other ranks of this state; returns 0 if there are none. */
static int list_ranks(int state, const char *before, char *out, size_t size)
{
    int n = 0;
    *out = 0;
    for (int r = 0; r < mpi.size; r++)
        if (r != mpi.rank && mpi.heard[r] == state && n >= 0 && (size_t)n < size)
            n += snprintf(out + n, size - (size_t)n, "%s%d", n ? ", " : before, r);
    return n;
}

/* "no answer from rank 1, 3 within 60 s"; whole numbers, because printf writes decimals as the
 * program's locale does. */
static void name_missing(const fxi_transport_call *c, char *why, size_t size)
{
    int n = list_ranks(GONE, "the program has ended without this operation on rank ", why, size);
    if (n > 0)
        return;
    n = list_ranks(SILENT, "no answer from rank ", why, size);
    if (n == 0 && list_ranks(FAILED, "an operation failed on rank ", why, size) > 0)
        return;
    if (n == 0)
        n = snprintf(why, size, "all ranks wait, but the operation did not end");
    const bool whole = c->limit >= 1e15 || c->limit == (double)(int64_t)c->limit;
    if (n >= 0 && (size_t)n < size)
        snprintf(why + n, size - (size_t)n, whole ? " within %.0f s" : " within %.0f ms",
                 whole ? c->limit : 1000 * c->limit);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Returns an MPI error code. */
typedef int is_over(void *what, int *is_done);

static int request_is_over(void *request, int *is_done)
{
    return MPI_Test(request, is_done, MPI_STATUS_IGNORE);
}

/* Ranks arrive within microseconds of each other, so the first tests have no pauses between them.
 * Then this thread lets others run: this rank may wait for one of them. MPI_Iprobe makes MPI send
 * the data that it has not sent yet, because another rank may still wait for them in an earlier
 * operation. The probe asks for a message that is never sent: once a message has been found,
 * MPICH's probe returns it, and does not look for messages that arrive later. */
static int window_is_over(void *window, int *is_done)
{
    enum { TESTS = 200 };
    int some;
    for (int i = 0; i < TESTS; i++)
        if (fxi_window_met(window)) {
            *is_done = 1;
            return MPI_SUCCESS;
        }
    mpi.host->yield();
    return MPI_Iprobe(MPI_ANY_SOURCE, NONE, mpi.notices, &some, MPI_STATUS_IGNORE);
}

/* Each test of a request moves a few KB only: Open MPI needs about 1,000 tests to reduce 4 MB
 * within a machine. So the pauses between tests are short until `moving` seconds have passed, which
 * is enough to move the data at 10 MB/s; a longer wait is a wait for a process that computes. A
 * short operation is not worth a pause, unless other threads need the processor (`beside`). Over a
 * network a test moves the data that have arrived since the previous one, and takes longer: a
 * training step took 352 ms with pauses of 250 µs, and 388 ms with pauses of 50 µs. */
static void pause_between_tests(double waited, double moving, double short_wait, bool beside)
{
    if (waited > moving)
        mpi.host->sleep(1000);
    else if (waited > short_wait)
        mpi.host->sleep(beside && mpi.several ? 250 : 50);
}

static fx_status wait_until(is_over *test, void *what, const fxi_transport_call *c, double bytes,
                            double short_wait, char *why, size_t size)
{
    const double begin = MPI_Wtime(), moving = 0.05 + bytes / 10e6;
    int told = 0;
    for (;;) {
        int is_done = 0;
        const int code = test(what, &is_done);
        if (code != MPI_SUCCESS) {
            fail(why, size, "MPI", code);
            return FX_STATUS_IO;
        }
        if (is_done)
            return FX_OK;
        const double waited = MPI_Wtime() - begin;
        if (told < 2 && waited > c->limit * (2 + told) / 4) {
            if (told++ == 0) {
                forget_waits();
                hear_all(c->number);
            }
            tell_all(c->number);
        }
        if (told > 0)
            hear_all(0);
        if (waited > c->limit || (told > 0 && memchr(mpi.heard, GONE, (size_t)mpi.size))) {
            name_missing(c, why, size);
            return FX_STATUS_IO;
        }
        pause_between_tests(waited, moving, short_wait, c->beside);
    }
}

static fx_status wait_for(MPI_Request *request, const fxi_transport_call *c, double bytes,
                          char *why, size_t size)
{
    return wait_until(request_is_over, request, c, bytes, c->beside ? 0 : 0.002, why, size);
}

/* Without pauses for 2 ms, or for 200 µs if other threads need the processor: a rank adds up its
 * slice of a part in less than 100 µs. */
fx_status fxi_window_wait(fxi_window *w, const fxi_transport_call *c, double bytes, char *why,
                          size_t size)
{
    return fxi_window_met(w)
               ? FX_OK
               : wait_until(window_is_over, w, c, bytes, c->beside ? 0.0002 : 0.002, why, size);
}

/* ---- operations ------------------------------------------------------------------------------ */

static MPI_Datatype type_of(int64_t dtype)
{
    switch (dtype) {
    case FX_DTYPE_F32:
        return MPI_FLOAT;
    case FX_DTYPE_F64:
        return MPI_DOUBLE;
    case FX_DTYPE_I32:
        return MPI_INT32_T;
    case FX_DTYPE_I64:
        return MPI_INT64_T;
    case FX_DTYPE_F16:
    case FX_DTYPE_BF16:
        return MPI_UINT16_T; /* moved, not folded */
    default:
        return MPI_UINT8_T;
    }
}

#define OPERATION(name, type, result)                                                              \
    static void name(void *in, void *io, int *n, MPI_Datatype *unused)                             \
    {                                                                                              \
        const type *x = in;                                                                        \
        type *y = io;                                                                              \
        (void)unused;                                                                              \
        for (int i = 0; i < *n; i++)                                                               \
            y[i] = (type)(result);                                                                 \
    }
/* Maxima and minima of floats that are NaN if a member has NaN. With MPI's own operations the
 * result depends on which member has it. */
OPERATION(max_f32, float, x[i] > y[i] || x[i] != x[i] ? x[i] : y[i])
OPERATION(max_f64, double, x[i] > y[i] || x[i] != x[i] ? x[i] : y[i])
OPERATION(min_f32, float, x[i] < y[i] || x[i] != x[i] ? x[i] : y[i])
OPERATION(min_f64, double, x[i] < y[i] || x[i] != x[i] ? x[i] : y[i])
/* In MPICH 4.0 maxima and minima take UInt8 as signed. Open MPI 4.1 adds without wrapping around
 * (200 + 100 = 255) where it uses vectors, which depends on the length. */
OPERATION(sum_u8, uint8_t, x[i] + y[i])
OPERATION(prod_u8, uint8_t, x[i] * y[i])
OPERATION(max_u8, uint8_t, x[i] > y[i] ? x[i] : y[i])
OPERATION(min_u8, uint8_t, x[i] < y[i] ? x[i] : y[i])

/* What replaces MPI's own operations. */
static struct {
    int64_t fold, dtype;
    MPI_User_function *function;
    MPI_Op made;
} operations[] = {{FX_REDUCE_MAX, FX_DTYPE_F32, .function = max_f32},
                  {FX_REDUCE_MAX, FX_DTYPE_F64, .function = max_f64},
                  {FX_REDUCE_MIN, FX_DTYPE_F32, .function = min_f32},
                  {FX_REDUCE_MIN, FX_DTYPE_F64, .function = min_f64},
                  {FX_REDUCE_SUM, FX_DTYPE_U8, .function = sum_u8},
                  {FX_REDUCE_PROD, FX_DTYPE_U8, .function = prod_u8},
                  {FX_REDUCE_MAX, FX_DTYPE_U8, .function = max_u8},
                  {FX_REDUCE_MIN, FX_DTYPE_U8, .function = min_u8}};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static bool make_operations(void)
{
    for (int k = 0; k < OPERATIONS; k++)
        if (MPI_Op_create(operations[k].function, 1, &operations[k].made) != MPI_SUCCESS)
            return false;
    return true;
}

static MPI_Op op_of(int64_t fold, int64_t dtype)
{
    for (int k = 0; k < OPERATIONS; k++)
        if (operations[k].fold == fold && operations[k].dtype == dtype)
            return operations[k].made;
    return fold == FX_REDUCE_MAX    ? MPI_MAX
           : fold == FX_REDUCE_MIN  ? MPI_MIN
           : fold == FX_REDUCE_PROD ? MPI_PROD
                                    : MPI_SUM;
}

/* Begins one operation of MPI on n elements. */
static int begin(const fxi_transport_call *c, int64_t kind, const void *in, void *out, int n,
                 MPI_Request *request)
{
    const MPI_Datatype type = type_of(c->dtype);
    const int root = kind == c->kind && kind != FX_COLLECTIVE_ALL_REDUCE ? (int)c->root : 0;
    if (kind == FXI_COLLECTIVE_GATHER)
        return MPI_Iallgather(in, n, type, out, n, type, mpi.comm, request);
    if (kind == FXI_COLLECTIVE_EXCHANGE)
        return MPI_Ialltoall(in, n / mpi.size, type, out, n / mpi.size, type, mpi.comm, request);
    if (kind == FX_COLLECTIVE_BROADCAST)
        return MPI_Ibcast(out, n, type, root, mpi.comm, request);
    return MPI_Ireduce(in, out, n, type, op_of(c->fold, c->dtype), root, mpi.comm, request);
}

static fx_status started(int code, MPI_Request *request, const fxi_transport_call *c, double bytes,
                         char *why, size_t size)
{
    if (code == MPI_SUCCESS)
        return wait_for(request, c, bytes, why, size);
    fail(why, size, "MPI", code);
    return FX_STATUS_IO;
}

static fx_status one(const fxi_transport_call *c, int64_t kind, const void *in, void *out, int n,
                     char *why, size_t size)
{
    MPI_Request request;
    int width = 1;
    MPI_Type_size(type_of(c->dtype), &width);
    const double bytes = (double)n * width * (kind == FXI_COLLECTIVE_GATHER ? mpi.size : 1);
    return started(begin(c, kind, in, out, n, &request), &request, c, bytes, why, size);
}

/* ---- sums by shares -------------------------------------------------------------------------- */

/* Some elements of an operand. Each rank reduces its share of them. The arrays have a number for
 * each rank. */
typedef struct piece {
    int64_t begin;             /* its first element */
    int n;                     /* number of elements */
    int *counts, *starts;      /* number and position of the elements sent to a rank */
    int *received, *positions; /* the same of those received from it, in `work` */
    char *work;                /* the operands of this rank's share, one rank after the other */
    MPI_Request request;
} piece;

/* An operand that is reduced piece by piece. `moving` pieces at most are exchanged at the same
 * time, and as many results gathered. */
typedef struct sharing {
    const fxi_transport_call *call;
    int width, moving;
    int64_t each; /* elements of a piece, a multiple of the number of ranks */
    piece pieces[2 * MOVING];
} sharing;

static piece *piece_at(sharing *s, int64_t k)
{
    return &s->pieces[k % (2 * s->moving)];
}

static void lay_out_piece(sharing *s, int64_t k)
{
    piece *p = piece_at(s, k);
    const int64_t left = s->call->count - k * s->each;
    p->begin = k * s->each;
    p->n = (int)(left < s->each ? left : s->each);
    p->counts = mpi.numbers + 4 * (p - s->pieces) * mpi.size;
    p->starts = p->counts + mpi.size;
    p->received = p->starts + mpi.size;
    p->positions = p->received + mpi.size;
    p->work = mpi.work + k % s->moving * s->each * s->width;
    const int share = p->n / mpi.size + (p->n % mpi.size != 0);
    for (int r = 0, at = 0; r < mpi.size; r++) {
        p->starts[r] = at;
        p->counts[r] = p->n - at < share ? p->n - at : share;
        at += p->counts[r];
    }
    for (int r = 0; r < mpi.size; r++) {
        p->received[r] = p->counts[mpi.rank];
        p->positions[r] = r * p->counts[mpi.rank];
    }
}

static int begin_exchange(sharing *s, int64_t k)
{
    const fxi_transport_call *c = s->call;
    const MPI_Datatype type = type_of(c->dtype);
    lay_out_piece(s, k);
    piece *p = piece_at(s, k);
    return MPI_Ialltoallv((const char *)c->in + p->begin * s->width, p->counts, p->starts, type,
                          p->work, p->received, p->positions, type, mpi.comm, &p->request);
}

/* Reduces this rank's share, and begins to gather the shares of all ranks. */
static int begin_gather(sharing *s, int64_t k)
{
    const fxi_transport_call *c = s->call;
    const MPI_Datatype type = type_of(c->dtype);
    piece *p = piece_at(s, k);
    const int n = p->counts[mpi.rank];
    char *out = (char *)c->out + p->begin * s->width;
    char *mine = out + (int64_t)p->starts[mpi.rank] * s->width;
    memcpy(mine, p->work, (size_t)n * (size_t)s->width);
    for (int r = 1; r < mpi.size; r++)
        MPI_Reduce_local(p->work + (int64_t)r * n * s->width, mine, n, type,
                         op_of(c->fold, c->dtype));
    return MPI_Iallgatherv(MPI_IN_PLACE, 0, type, out, p->counts, p->starts, type, mpi.comm,
                           &p->request);
}

static fx_status wait_for_piece(sharing *s, int64_t k, char *why, size_t size)
{
    return wait_for(&piece_at(s, k)->request, s->call, (double)(s->moving * s->each * s->width),
                    why, size);
}

/* All ranks begin the same operations in the same order, as MPI requires. A test of one request
 * moves the data of all. */
static fx_status reduce_pieces(sharing *s, char *why, size_t size)
{
    const int64_t pieces = (s->call->count + s->each - 1) / s->each, m = s->moving;
    for (int64_t k = 0; k < pieces + 2 * m; k++) {
        fx_status status = FX_OK;
        int code = MPI_SUCCESS;
        if (k >= 2 * m && k - 2 * m < pieces)
            status = wait_for_piece(s, k - 2 * m, why, size);
        if (status == FX_OK && k >= m && k - m < pieces) {
            status = wait_for_piece(s, k - m, why, size);
            code = status == FX_OK ? begin_gather(s, k - m) : code;
        }
        if (status == FX_OK && code == MPI_SUCCESS && k < pieces)
            code = begin_exchange(s, k);
        if (code != MPI_SUCCESS) {
            fail(why, size, "MPI", code);
            status = FX_STATUS_IO;
        }
        if (status != FX_OK)
            return status;
    }
    return FX_OK;
}

static bool has_shares(const fxi_transport_call *c, int width)
{
    return c->kind == FX_COLLECTIVE_ALL_REDUCE && mpi.size > 1 && mpi.size <= WORK / 4 / width &&
           c->count * width >= (int64_t)mpi.size * LEAST_SHARE;
}

/* Why in pieces: a message of 64 KB or more waits until its receiver has asked for it. Over a slow
 * link the receiver sends this request after the data that it sends itself, so the two directions
 * took turns, and a third of the time was lost. Short messages are sent at once. With many ranks,
 * WORK limits the length of a message. */
static fx_status reduce_shares(const fxi_transport_call *c, int width, char *why, size_t size)
{
    const int64_t all = (int64_t)MESSAGE * mpi.size, bytes = all < WORK / 4 ? all : WORK / 4;
    sharing s = {.call = c, .width = width, .each = bytes / width / mpi.size * mpi.size};
    const int64_t moving = WORK / (s.each * width);
    s.moving = (int)(moving < MOVING ? moving : MOVING);
    return reduce_pieces(&s, why, size);
}

/* Runs an operation on part of the elements, because counts of MPI are ints. */
static fx_status part(const fxi_transport_call *c, const void *in, void *out, int n, size_t bytes,
                      char *why, size_t size)
{
    if (c->kind == FX_COLLECTIVE_BROADCAST && c->root == mpi.rank)
        memcpy(out, in, bytes);
    if (c->kind != FX_COLLECTIVE_ALL_REDUCE)
        return one(c, c->kind, in, out, n, why, size);
    const fx_status status = one(c, FX_COLLECTIVE_REDUCE, in, out, n, why, size);
    return status == FX_OK ? one(c, FX_COLLECTIVE_BROADCAST, in, out, n, why, size) : status;
}

static fx_status run_parts(const fxi_transport_call *c, int width, char *why, size_t size)
{
    fx_status status = FX_OK;
    for (int64_t at = 0; at < c->count && status == FX_OK; at += CHUNK) {
        const int64_t n = c->count - at < CHUNK ? c->count - at : CHUNK, skip = at * width;
        status = part(c, (const char *)c->in + skip, (char *)c->out + skip, (int)n,
                      (size_t)(n * width), why, size);
    }
    return status;
}

/* May the calling thread use MPI? Below MPI_THREAD_SERIALIZED only the thread that initialised MPI
 * may. */
static bool may_call(char *why, size_t size)
{
    int is_main = 1, over = 0;
    if (mpi.host->process() != mpi.process) {
        snprintf(why, size, "this process is a child (fork) of the one that joined the group");
        return false;
    }
    MPI_Finalized(&over);
    if (over) {
        snprintf(why, size, "the program has finalised MPI");
        return false;
    }
    if (mpi.level < MPI_THREAD_SERIALIZED)
        MPI_Is_thread_main(&is_main);
    if (!is_main)
        snprintf(
            why, size,
            "the program initialised MPI with a thread level below MPI_THREAD_SERIALIZED: only "
            "the thread that initialised MPI may call this function");
    return is_main != 0;
}

static bool shares(const fxi_transport_group *group, const fxi_transport_call *c)
{
    (void)group;
    return fxi_window_takes(&mpi.window, c);
}

/* Before and after an operation. The process may end in another thread meanwhile (`leave`). One of
 * the two threads sees what the other has written first: either this one sees `leaves` and does not
 * enter MPI, or `leave` sees `blocked`. */
static bool enter(char *why, size_t size)
{
    __atomic_store_n(&mpi.blocked, true, __ATOMIC_SEQ_CST);
    const bool leaves = __atomic_load_n(&mpi.leaves, __ATOMIC_SEQ_CST);
    if (!leaves && may_call(why, size))
        return true;
    if (leaves)
        snprintf(why, size, "the process is ending");
    __atomic_store_n(&mpi.blocked, false, __ATOMIC_RELEASE);
    return false;
}

static void done(void)
{
    __atomic_store_n(&mpi.blocked, false, __ATOMIC_RELEASE);
}

static fx_status run_on_host(const fxi_transport_call *c, char *why, size_t size)
{
    int width = 1;
    MPI_Type_size(type_of(c->dtype), &width);
    if (c->kind >= FXI_COLLECTIVE_GATHER && c->count > CHUNK) {
        snprintf(why, size, "cannot gather or exchange more than %d elements", (int)CHUNK);
        return FX_STATUS_UNSUPPORTED;
    }
    const fx_status status = fxi_window_takes(&mpi.window, c)
                                 ? fxi_window_reduce(&mpi.window, c, why, size)
                             : has_shares(c, width) ? reduce_shares(c, width, why, size)
                                                    : run_parts(c, width, why, size);
    if (status != FX_OK)
        set_broken();
    return status;
}

static fx_status run(const fxi_transport_group *group, const fxi_transport_call *c, char *why,
                     size_t size)
{
    (void)group;
    if (!enter(why, size))
        return FX_STATUS_STATE;
    mpi.number = c->number;
    const fx_status status = run_on_host(c, why, size);
    done();
    return status;
}

/* ---- memory of devices ----------------------------------------------------------------------- */

/* Functions that some versions of some libraries have. If the library lacks one, its address is
 * NULL. Not all headers declare them: Open MPI has a separate header for its own. */
#ifdef __APPLE__
#define MAYBE __attribute__((weak_import))
#else
#define MAYBE __attribute__((weak))
#endif
MAYBE int MPIX_Query_cuda_support(void); /* Open MPI, MPICH 4 */
MAYBE int MPIX_Query_rocm_support(void); /* Open MPI 5 */
MAYBE int MPIX_Query_hip_support(void);  /* MPICH 4 */

static const char *query_devices(const char *backend)
{
    const bool cuda = strcmp(backend, "CUDA") == 0;
    if (cuda)
        return !MPIX_Query_cuda_support || MPIX_Query_cuda_support()
                   ? NULL
                   : "MPIX_Query_cuda_support returns 0";
    if (MPIX_Query_rocm_support)
        return MPIX_Query_rocm_support() ? NULL : "MPIX_Query_rocm_support returns 0";
    return !MPIX_Query_hip_support || MPIX_Query_hip_support() ? NULL
                                                               : "MPIX_Query_hip_support returns 0";
}

/* The root's data is in `in`; its `out` becomes a copy by a message to itself, because only MPI
 * knows how to copy memory of devices. */
static int broadcast_on_devices(int root, const void *in, void *out, int n, MPI_Datatype type)
{
    void *data = root == mpi.rank ? (void *)(uintptr_t)in : out;
    const int code = MPI_Bcast(data, n, type, root, mpi.comm);
    return code != MPI_SUCCESS || root != mpi.rank
               ? code
               : MPI_Sendrecv(in, n, type, root, NOTICE, out, n, type, root, NOTICE, mpi.comm,
                              MPI_STATUS_IGNORE);
}

static int on_devices(const fxi_transport_call *c, const void *in, void *out, int n)
{
    const MPI_Datatype type = type_of(c->dtype);
    if (c->kind == FX_COLLECTIVE_BROADCAST)
        return broadcast_on_devices((int)c->root, in, out, n, type);
    /* A sum on rank 0, so that all ranks get the same bits. */
    const int code = MPI_Reduce(in, out, n, type, op_of(c->fold, c->dtype), 0, mpi.comm);
    return code == MPI_SUCCESS ? MPI_Bcast(out, n, type, 0, mpi.comm) : code;
}

static fx_status run_parts_on_devices(const fxi_transport_call *c, char *why, size_t size)
{
    int width = 1, code = MPI_SUCCESS;
    MPI_Type_size(type_of(c->dtype), &width);
    for (int64_t at = 0; at < c->count && code == MPI_SUCCESS; at += CHUNK) {
        const int64_t n = c->count - at < CHUNK ? c->count - at : CHUNK, skip = at * width;
        code = on_devices(c, (const char *)c->in + skip, (char *)c->out + skip, (int)n);
    }
    if (code == MPI_SUCCESS)
        return FX_OK;
    set_broken();
    fail(why, size, "MPI", code);
    return FX_STATUS_IO;
}

/* If the caller has given up before this thread begins, it does not enter MPI. */
static fx_status run_on_devices(const fxi_transport_group *group, const fxi_transport_call *c,
                                char *why, size_t size)
{
    fx_status status = FX_STATUS_IO;
    (void)group;
    if (!enter(why, size))
        return FX_STATUS_STATE;
    mpi.number = c->number;
    if (is_broken())
        snprintf(why, size, "an earlier operation failed");
    else
        status = run_parts_on_devices(c, why, size);
    done();
    return status;
}

static void give_up(const fxi_transport_group *group)
{
    (void)group;
    set_broken();
}

/* ---- times of the library itself ------------------------------------------------------------- */

static fx_status measure(const fxi_transport_group *group, const fxi_transport_call *c, bool link,
                         int64_t runs, double *out_seconds, char *why, size_t size)
{
    const int n = (int)c->count, next = (mpi.rank + 1) % mpi.size,
              previous = (mpi.rank + mpi.size - 1) % mpi.size;
    const MPI_Datatype type = type_of(c->dtype);
    (void)group;
    if (!enter(why, size))
        return FX_STATUS_STATE;
    int code = MPI_Barrier(mpi.comm);
    const double begin = MPI_Wtime();
    for (int64_t i = 0; i < runs && code == MPI_SUCCESS; i++)
        code = link ? MPI_Sendrecv(c->in, n, type, next, NOTICE, c->out, n, type, previous, NOTICE,
                                   mpi.comm, MPI_STATUS_IGNORE)
                    : MPI_Allreduce(c->in, c->out, n, type, op_of(c->fold, c->dtype), mpi.comm);
    *out_seconds = (MPI_Wtime() - begin) / (double)runs;
    if (code != MPI_SUCCESS) {
        set_broken();
        fail(why, size, "MPI", code);
    }
    done();
    return code == MPI_SUCCESS ? FX_OK : FX_STATUS_IO;
}

/* ---- joining and leaving --------------------------------------------------------------------- */

/* Waits until all ranks end. False if a rank has failed, because it would never take part. */
static bool all_leave(void)
{
    MPI_Request request;
    int is_done = 0;
    if (MPI_Ibarrier(mpi.notices, &request) != MPI_SUCCESS)
        return false;
    for (;;) {
        if (MPI_Test(&request, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return false;
        if (is_done)
            return true;
        hear_all(ends);
        if (memchr(mpi.heard, FAILED, (size_t)mpi.size))
            return false;
        mpi.host->sleep(1000);
    }
}

/* Runs when the program ends. If a process ends without MPI_Finalize, the launcher kills the other
 * processes, which may still compute or save for a long time; so a rank waits for all others
 * without a time limit. A rank that failed does not call MPI_Finalize, which would wait forever; it
 * notifies the ranks that wait here. Notices have a communicator of their own, which failed
 * operations cannot disturb. The library has waited for operations of other threads before
 * (dist_leave.c). If a thread is still in MPI, no other thread may call MPI; the launcher then ends
 * the other ranks. */
static void leave(void)
{
    char why[200];
    __atomic_store_n(&mpi.leaves, true, __ATOMIC_SEQ_CST);
    /* A thread that is refused is "blocked" for a moment. */
    for (int k = 0; k < 10 && __atomic_load_n(&mpi.blocked, __ATOMIC_SEQ_CST); k++)
        mpi.host->sleep(1000);
    if (__atomic_load_n(&mpi.blocked, __ATOMIC_SEQ_CST) || !may_call(why, sizeof why))
        return;
    if (is_broken()) {
        tell_all(ends);
    } else if (all_leave()) {
        fxi_window_close(&mpi.window);
        MPI_Finalize();
    }
}

/* Reads the name and version of the library that answers, up to a comma or the end of the line. */
static void read_library(char *out, size_t size)
{
    char text[8193] = ""; /* MPICH's largest; Open MPI's is 256 */
    int n = 0;
    MPI_Get_library_version(text, &n);
    snprintf(out, size, "%.*s", (int)strcspn(text, ",\n"), text);
    for (char *c = out; *c; c++)
        if (*c == '\t')
            *c = ' ';
}

/* If the program is linked with another MPI, the plugin's calls reach that library, whose handles
 * have other types. Returns NULL, or the message for this case. */
static const char *wrong_library(void)
{
    static char why[300];
    char library[120];
#ifdef OPEN_MPI
    const bool want = true;
#else
    const bool want = false;
#endif
    read_library(library, sizeof library);
    if ((strncmp(library, "Open MPI", 8) == 0) == want)
        return NULL;
    snprintf(why, sizeof why,
             "the program uses another MPI, %s: start it with the launcher of that MPI", library);
    return why;
}

static const char *initialise(void)
{
    static char why[300];
    int already = 0, over = 0;
    MPI_Initialized(&already);
    MPI_Finalized(&over);
    if (over)
        return "the program has finalised MPI";
    if (already) {
        MPI_Query_thread(&mpi.level);
        return NULL;
    }
    const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &mpi.level);
    mpi.ours = code == MPI_SUCCESS;
    return mpi.ours ? NULL : fail(why, sizeof why, "MPI_Init_thread", code);
}

/* Describes the group, and opens the window if all its ranks are on this machine. */
static void describe(fxi_transport_group *g)
{
    int local_rank = 0, local_size = 1;
    MPI_Comm local;
    mpi.window.memory = MPI_WIN_NULL;
    read_library(g->library, sizeof g->library);
    if (MPI_Comm_split_type(mpi.comm, MPI_COMM_TYPE_SHARED, mpi.rank, MPI_INFO_NULL, &local) ==
        MPI_SUCCESS) {
        MPI_Comm_rank(local, &local_rank);
        MPI_Comm_size(local, &local_size);
        MPI_Comm_set_errhandler(local, MPI_ERRORS_RETURN);
        if (mpi.size > 1 && local_size == mpi.size)
            fxi_window_open(&mpi.window, local, mpi.host);
        MPI_Comm_free(&local);
    }
    mpi.several = local_size < mpi.size;
    g->any_thread = mpi.level >= MPI_THREAD_SERIALIZED;
    g->rank = mpi.rank;
    g->size = mpi.size;
    g->local_rank = local_rank;
    g->local_size = local_size;
}

static const char *join_members_of(MPI_Comm from, fxi_transport_group *out)
{
    if (MPI_Comm_dup(from, &mpi.comm) != MPI_SUCCESS ||
        MPI_Comm_dup(from, &mpi.notices) != MPI_SUCCESS)
        return "MPI_Comm_dup failed";
    MPI_Comm_set_errhandler(mpi.comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(mpi.notices, MPI_ERRORS_RETURN);
    MPI_Comm_rank(mpi.comm, &mpi.rank);
    MPI_Comm_size(mpi.comm, &mpi.size);
    mpi.sent = mpi.host->alloc((size_t)mpi.size * sizeof *mpi.sent);
    mpi.sending = mpi.host->alloc((size_t)mpi.size * sizeof(MPI_Request));
    mpi.heard = mpi.host->alloc((size_t)mpi.size);
    mpi.numbers = mpi.host->alloc(8 * MOVING * (size_t)mpi.size * sizeof *mpi.numbers);
    mpi.work = mpi.host->alloc(WORK);
    if (!mpi.sent || !mpi.sending || !mpi.heard || !mpi.numbers || !mpi.work)
        return "out of memory";
    memset(mpi.heard, SILENT, (size_t)mpi.size);
    for (int r = 0; r < mpi.size; r++)
        mpi.sending[r] = MPI_REQUEST_NULL;
    if (!make_operations())
        return "MPI_Op_create failed";
    mpi.process = mpi.host->process();
    if (mpi.ours) {
        /* Open MPI reports failures of nonblocking operations here. */
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        atexit(leave);
    }
    describe(out);
    return NULL;
}

static const char *join(const fxi_transport_host *host, const void *communicator,
                        fxi_transport_group *out)
{
    /* Another attempt would wait in MPI_Comm_dup for members that have joined. */
    static const char *failed;
    if (failed)
        return failed;
    mpi.host = host;
    const char *why = wrong_library();
    if (!why)
        why = initialise();
    if (why)
        return why;
    const MPI_Comm from = communicator ? *(const MPI_Comm *)communicator : MPI_COMM_WORLD;
    if (from == MPI_COMM_NULL)
        return "the communicator is MPI_COMM_NULL: this process is not one of its members";
    failed = join_members_of(from, out);
    return failed;
}

FX_PLUGIN_EXPORT(fxi_transport) = {.head = FXI_TRANSPORT_HEAD(CFLUX_MPI_NAME, "MPI"),
                                   .open = join,
                                   .run = run,
                                   .shares = shares,
                                   .query_devices = query_devices,
                                   .run_on_devices = run_on_devices,
                                   .give_up = give_up,
                                   .measure = measure};
