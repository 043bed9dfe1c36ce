/* mpi_window.c: reductions in memory that the ranks of one machine share.
 *
 * MPI moves large arrays between two local processes through small pieces of shared memory, or by
 * calls of the system, and adds them up in another pass. Here MPI only allocates the memory
 * (MPI_Win_allocate_shared), a segment for each rank. An array is divided into one slice for each
 * rank. In the first phase a rank copies the slices of the others to its segment, in the second it
 * adds up its own slice in the order of the ranks, and in the third it copies the sums of the
 * others from their segments. So for an array of S bytes each rank reads S bytes about three times
 * and writes S bytes about twice, and all ranks get the same bits, in every run.
 *
 * Between the phases the ranks meet: each increments a counter in its segment and waits until the
 * counters of all ranks have this value. After the last phase a rank increments its counter but
 * does not wait. The next operation waits for it, before it writes to a segment.
 *
 * An array of at most WHOLE bytes takes the three phases once. Two ranks need only one meeting:
 * each copies all of its operand in the first phase, and adds up all slices in the second. This
 * reads as many bytes of the other rank as two phases would.
 *
 * A larger array is divided into parts, whose pieces stay in the cache. From one meeting to the
 * next, a rank does the first phase of a part, the second phase of the previous part and the third
 * phase of the part before that. So n parts need n + 1 meetings, and three buffers: all ranks meet
 * at least once between the last time that the others read part k and the time that a rank writes
 * part k+3.
 *
 * An array of at most SMALL bytes is not divided: after one meeting each rank adds up all of
 * it, with the same instructions and in the same order. All ranks are on one machine, so they get
 * the same bits. Such arrays have two buffers of their own: a rank that writes to one of them has
 * met the others in the operation that used the other buffer, and so they have read this one.
 */
#include "mpi_window.h"

#include <string.h>

enum { BUFFERS = 3 };
enum {
    PART = 256 << 10
};                        /* bytes of a buffer: three of them fit in a second-level cache of 1
                             MB */
enum { SMALL = 4096 };    /* the most bytes of an array that is not divided */
enum { WHOLE = 1 << 20 }; /* the most bytes of an array that is not divided into parts */
enum { BLOCK = 4096 };    /* bytes that are added up at a time, in the first-level cache */
enum { LINE = 64 };       /* bytes of a cache line: two ranks never write to the same one */
enum { HEAD = 4096 };     /* the counter has a page of its own */
/* Where the memory for small arrays, and for parts of others, begins in a segment. */
enum { SMALLS = HEAD, COPIES = SMALLS + 2 * SMALL, SEGMENT = COPIES + WHOLE };

/* ---- folds ----------------------------------------------------------------------------------- */

/* The best instructions of the processor are chosen when the plugin is loaded (not under a
 * sanitizer, which is not ready then). The bits do not depend on them: no product is added, so
 * nothing can be contracted. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__OPTIMIZE__) && !defined(SANITIZED)
#define BEST_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define BEST_VECTORS
#endif

/* y = a op b */
typedef void combine(void *restrict y, const void *restrict a, const void *restrict b, int64_t n);

#define COMBINE(name, T, result)                                                                   \
    BEST_VECTORS static void name(void *restrict to, const void *restrict left,                    \
                                  const void *restrict right, int64_t n)                           \
    {                                                                                              \
        T *restrict y = to;                                                                        \
        const T *restrict l = left, *restrict r = right;                                           \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const T a = l[i], b = r[i];                                                            \
            y[i] = (T)(result);                                                                    \
        }                                                                                          \
    }
#define FLOATS(fold, result)                                                                       \
    COMBINE(fold##_f32, float, result)                                                             \
    COMBINE(fold##_f64, double, result)
#define INTEGERS(fold, of_32, of_64, result)                                                       \
    COMBINE(fold##_i32, of_32, result)                                                             \
    COMBINE(fold##_i64, of_64, result)                                                             \
    COMBINE(fold##_u8, uint8_t, result)
FLOATS(sum, a + b)
INTEGERS(sum, uint32_t, uint64_t, a + b) /* wraps around, as MPI's sum does */
FLOATS(prod, a *b)
INTEGERS(prod, uint32_t, uint64_t, a *b)
/* NaN if a member has NaN */
FLOATS(max, a > b || a != a ? a : b)
INTEGERS(max, int32_t, int64_t, a > b ? a : b)
FLOATS(min, a < b || a != a ? a : b)
INTEGERS(min, int32_t, int64_t, a < b ? a : b)

#define ALL_TYPES(fold)                                                                            \
    {                                                                                              \
        [FX_DTYPE_F32] = fold##_f32, [FX_DTYPE_F64] = fold##_f64, [FX_DTYPE_I32] = fold##_i32,     \
        [FX_DTYPE_I64] = fold##_i64, [FX_DTYPE_U8] = fold##_u8                                     \
    }
static combine *const folds[FX_REDUCE_COUNT][FX_DTYPE_COUNT] = {
    [FX_REDUCE_SUM] = ALL_TYPES(sum),
    [FX_REDUCE_PROD] = ALL_TYPES(prod),
    [FX_REDUCE_MAX] = ALL_TYPES(max),
    [FX_REDUCE_MIN] = ALL_TYPES(min),
    [FX_REDUCE_MEAN] = {[FX_DTYPE_F32] = sum_f32, [FX_DTYPE_F64] = sum_f64}};

/* The end of a mean: y = (a + b) / size. A product with the reciprocal has the same bits if
 * `size` is a power of 2, and takes a quarter of the time. */
#define MEAN(name, T)                                                                              \
    BEST_VECTORS static void name(void *restrict to, const void *restrict left,                    \
                                  const void *restrict right, int64_t n, int size)                 \
    {                                                                                              \
        T *restrict y = to;                                                                        \
        const T *restrict l = left, *restrict r = right;                                           \
        const T by = (T)size, reciprocal = 1 / by;                                                 \
        if ((size & (size - 1)) == 0) {                                                            \
            for (int64_t i = 0; i < n; i++)                                                        \
                y[i] = (l[i] + r[i]) * reciprocal;                                                 \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++)                                                        \
                y[i] = (l[i] + r[i]) / by;                                                         \
        }                                                                                          \
    }
MEAN(mean_f32, float)
MEAN(mean_f64, double)

/* ---- meetings -------------------------------------------------------------------------------- */

/* How often a rank has come to a meeting. */
static int64_t *counter(const fxi_window *w, int rank)
{
    return (int64_t *)(void *)w->segments[rank];
}

bool fxi_window_met(const fxi_window *w)
{
    for (int k = 0; k < w->size; k++)
        if (__atomic_load_n(counter(w, k), __ATOMIC_ACQUIRE) < w->met)
            return false;
    return true;
}

/* Comes to a meeting; the next wait is for all ranks to come to it. */
static void arrive(fxi_window *w)
{
    w->met++;
    __atomic_store_n(counter(w, w->rank), w->met, __ATOMIC_RELEASE);
}

static fx_status wait_for_all(fxi_window *w, const fxi_transport_call *c, char *why, size_t size)
{
    return fxi_window_wait(w, c, PART, why, size);
}

static fx_status meet(fxi_window *w, const fxi_transport_call *c, char *why, size_t size)
{
    arrive(w);
    return wait_for_all(w, c, why, size);
}

/* ---- one part -------------------------------------------------------------------------------- */

/* A part of the arrays of an operation, or all of it. */
typedef struct piece {
    const fxi_transport_call *call;
    const char *in;
    char *out;
    int64_t width; /* bytes of an element */
    int64_t bytes;
    int64_t at; /* where it begins in the segments */
} piece;

static char *buffer_of(const fxi_window *w, const piece *p, int rank)
{
    return w->segments[rank] + p->at;
}

/* The slice of a rank begins at this byte; that of rank `size` is the end of the part. */
static int64_t slice(const fxi_window *w, const piece *p, int rank)
{
    const int64_t lines = (p->bytes + LINE - 1) / LINE, each = (lines + w->size - 1) / w->size;
    const int64_t at = each * LINE * rank;
    return at < p->bytes ? at : p->bytes;
}

/* The last operand of a fold. */
static void finish_fold(const fxi_window *w, const fxi_transport_call *c, void *to, const void *sum,
                        const void *last, int64_t n)
{
    if (c->fold != FX_REDUCE_MEAN)
        folds[c->fold][c->dtype](to, sum, last, n);
    else if (c->dtype == FX_DTYPE_F64)
        mean_f64(to, sum, last, n, w->size);
    else
        mean_f32(to, sum, last, n, w->size);
}

/* Folds bytes from … until−1 of all ranks to `to` and, unless NULL, to `also`; those of this rank
 * are read from `in`, which may be `to`. */
static void fold(const fxi_window *w, const piece *p, int64_t from, int64_t until, char *to,
                 char *also)
{
    _Alignas(LINE) char block[2][BLOCK]; /* `combine` never writes to an operand */
    combine *const apply = folds[p->call->fold][p->call->dtype];
    const int last = w->size - 1;
    for (int64_t at = from; at < until; at += BLOCK) {
        const int64_t bytes = until - at < BLOCK ? until - at : BLOCK, n = bytes / p->width;
        const char *so_far = w->rank == 0 ? p->in + at : buffer_of(w, p, 0) + at;
        for (int k = 1; k < last; k++) {
            apply(block[k % 2], so_far, w->rank == k ? p->in + at : buffer_of(w, p, k) + at, n);
            so_far = block[k % 2];
        }
        char *const target = to + (at - from),
                    *result = target == p->in + at ? block[last % 2] : target;
        finish_fold(w, p->call, result, so_far,
                    w->rank == last ? p->in + at : buffer_of(w, p, last) + at, n);
        if (result != target)
            memcpy(target, result, (size_t)bytes);
        if (also)
            memcpy(also + (at - from), result, (size_t)bytes);
    }
}

static void offer_slices(const fxi_window *w, const piece *p)
{
    const int64_t from = slice(w, p, w->rank), until = slice(w, p, w->rank + 1);
    char *mine = buffer_of(w, p, w->rank);
    memcpy(mine, p->in, (size_t)from);
    memcpy(mine + until, p->in + until, (size_t)(p->bytes - until));
}

static void fold_slice(const fxi_window *w, const piece *p)
{
    const int64_t from = slice(w, p, w->rank), until = slice(w, p, w->rank + 1);
    fold(w, p, from, until, buffer_of(w, p, w->rank) + from, p->out + from);
}

static void take_slices(const fxi_window *w, const piece *p)
{
    for (int k = 0; k < w->size; k++) {
        const int64_t from = slice(w, p, k), until = slice(w, p, k + 1);
        if (k != w->rank)
            memcpy(p->out + from, buffer_of(w, p, k) + from, (size_t)(until - from));
    }
}

/* ---- an operation ---------------------------------------------------------------------------- */

static fx_status reduce_small(fxi_window *w, const fxi_transport_call *c, int64_t width, char *why,
                              size_t size)
{
    _Alignas(LINE) char result[SMALL];
    const piece p = {.call = c,
                     .in = c->in,
                     .width = width,
                     .bytes = c->count * width,
                     .at = SMALLS + (w->smalls++ % 2) * SMALL};
    memcpy(buffer_of(w, &p, w->rank), p.in, (size_t)p.bytes);
    const fx_status status = meet(w, c, why, size);
    if (status != FX_OK)
        return status;
    fold(w, &p, 0, p.bytes, result, NULL);
    memcpy(c->out, result, (size_t)p.bytes);
    return FX_OK;
}

static fx_status reduce_pair(fxi_window *w, const piece *p, char *why, size_t size)
{
    memcpy(buffer_of(w, p, w->rank), p->in, (size_t)p->bytes);
    const fx_status status = meet(w, p->call, why, size);
    if (status == FX_OK)
        fold(w, p, 0, p->bytes, p->out, NULL);
    return status;
}

static fx_status reduce_slices(fxi_window *w, const piece *p, char *why, size_t size)
{
    offer_slices(w, p);
    fx_status status = meet(w, p->call, why, size);
    if (status != FX_OK)
        return status;
    fold_slice(w, p);
    status = meet(w, p->call, why, size);
    if (status == FX_OK)
        take_slices(w, p);
    return status;
}

static fx_status reduce_whole(fxi_window *w, const fxi_transport_call *c, int64_t width, char *why,
                              size_t size)
{
    const piece p = {.call = c,
                     .in = c->in,
                     .out = c->out,
                     .width = width,
                     .bytes = c->count * width,
                     .at = COPIES};
    fx_status status = wait_for_all(w, c, why, size);
    if (status == FX_OK)
        status = (w->size == 2 ? reduce_pair : reduce_slices)(w, &p, why, size);
    if (status == FX_OK)
        arrive(w);
    return status;
}

/* Part i of an operation. */
static piece part_of(const fxi_transport_call *c, int64_t width, int64_t i)
{
    const int64_t at = i * PART, left = c->count * width - at;
    return (piece){.call = c,
                   .in = (const char *)c->in + at,
                   .out = (char *)c->out + at,
                   .width = width,
                   .bytes = left < PART ? left : PART,
                   .at = COPIES + i % BUFFERS * PART};
}

static fx_status reduce_parts(fxi_window *w, const fxi_transport_call *c, int64_t width, char *why,
                              size_t size)
{
    const int64_t n = (c->count * width + PART - 1) / PART;
    fx_status status = wait_for_all(w, c, why, size);
    for (int64_t i = 0; i < n + 2 && status == FX_OK; i++) {
        const piece next = part_of(c, width, i), here = part_of(c, width, i - 1),
                    done = part_of(c, width, i - 2);
        if (i < n)
            offer_slices(w, &next);
        if (i >= 1 && i <= n)
            fold_slice(w, &here);
        if (i >= 2)
            take_slices(w, &done);
        if (i <= n)
            status = meet(w, c, why, size);
    }
    if (status == FX_OK)
        arrive(w);
    return status;
}

fx_status fxi_window_reduce(fxi_window *w, const fxi_transport_call *c, char *why, size_t size)
{
    static const int widths[FX_DTYPE_COUNT] = {[FX_DTYPE_F32] = 4,
                                               [FX_DTYPE_F64] = 8,
                                               [FX_DTYPE_I32] = 4,
                                               [FX_DTYPE_I64] = 8,
                                               [FX_DTYPE_U8] = 1};
    const int64_t width = widths[c->dtype], bytes = c->count * width;
    return bytes == 0       ? FX_OK
           : bytes <= SMALL ? reduce_small(w, c, width, why, size)
           : bytes <= WHOLE ? reduce_whole(w, c, width, why, size)
                            : reduce_parts(w, c, width, why, size);
}

bool fxi_window_takes(const fxi_window *w, const fxi_transport_call *c)
{
    return w->memory != MPI_WIN_NULL && c->kind == FX_COLLECTIVE_ALL_REDUCE && c->fold >= 0 &&
           c->fold < FX_REDUCE_COUNT && c->dtype >= 0 && c->dtype < FX_DTYPE_COUNT &&
           folds[c->fold][c->dtype];
}

/* ---- the memory ------------------------------------------------------------------------------ */

/* Allocates this rank's segment, beside those of the others. */
static bool allocate(fxi_window *w, MPI_Comm comm)
{
    char *mine = NULL;
    MPI_Info info = MPI_INFO_NULL;
    /* Allows MPI to put the segment of each rank into memory near the processor of that rank. */
    if (MPI_Info_create(&info) == MPI_SUCCESS)
        MPI_Info_set(info, "alloc_shared_noncontig", "true");
    const int code = MPI_Win_allocate_shared(SEGMENT, 1, info, comm, &mine, &w->memory);
    if (info != MPI_INFO_NULL)
        MPI_Info_free(&info);
    return code == MPI_SUCCESS &&
           MPI_Win_set_errhandler(w->memory, MPI_ERRORS_RETURN) == MPI_SUCCESS;
}

/* Finds the segments of all ranks and opens them: every rank may access all of them at any time. */
static bool attach(fxi_window *w)
{
    for (int k = 0; k < w->size; k++) {
        MPI_Aint bytes;
        int unit;
        if (MPI_Win_shared_query(w->memory, k, &bytes, &unit, &w->segments[k]) != MPI_SUCCESS)
            return false;
    }
    if (MPI_Win_lock_all(MPI_MODE_NOCHECK, w->memory) != MPI_SUCCESS)
        return false;
    *counter(w, w->rank) = 0;
    return MPI_Win_sync(w->memory) == MPI_SUCCESS;
}

static bool wanted(const fxi_transport_host *host)
{
    const char *choice = host->variable("FX_DIST_SHARED_MEMORY");
    return !choice || strcmp(choice, "off") != 0;
}

/* True if `mine` is true on all ranks. */
static bool on_all(MPI_Comm comm, bool mine)
{
    int one = mine, all = 0;
    return MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && all;
}

void fxi_window_open(fxi_window *w, MPI_Comm comm, const fxi_transport_host *host)
{
    w->memory = MPI_WIN_NULL;
    MPI_Comm_rank(comm, &w->rank);
    MPI_Comm_size(comm, &w->size);
    w->segments = host->alloc((size_t)w->size * sizeof *w->segments);
    bool ok = on_all(comm, w->segments && wanted(host));
    ok = ok && on_all(comm, allocate(w, comm));
    ok = ok && on_all(comm, attach(w)); /* all counters are 0 before one of them changes */
    if (!ok)
        w->memory = MPI_WIN_NULL; /* not freed: some ranks may have none */
}

void fxi_window_close(fxi_window *w)
{
    if (w->memory == MPI_WIN_NULL)
        return;
    MPI_Win_unlock_all(w->memory);
    MPI_Win_free(&w->memory);
}
