/* dist_aware.c: operations on arrays of GPUs by an MPI that reads and writes GPU memory
 * ("CUDA-aware", "ROCm-aware").
 *
 * An MPI that cannot do it ends the process when it gets such an address, and may be unable to say
 * so beforehand. So three things must agree: the user's preference, on all members; the library's
 * query, where it has one; and a probe. The probe is the first operation of each kind: the members
 * gather its first elements in host memory and compute the result again. If it differs on one
 * member, all members copy their arrays through host memory from then on. A step still counts as
 * one in GPU memory: members that plan it before and after the probe must call the same operation.
 *
 * The members have agreed on the operation in host memory before, with the time limit. The function
 * of MPI then blocks: Open MPI supports addresses of GPUs in blocking reductions and broadcasts,
 * but not in nonblocking ones. So another thread calls it, and the caller waits for that thread, at
 * most until the time limit. MPI gets only addresses of buffers that belong to the group and are
 * never freed, because nothing ends its function: it may still write to them after the time limit.
 * MPI has no mean, so ops/collective.c records means as sums.
 */
#include "dist_group.h"

#include "clock.h"
#include "memory.h"
#include "pool.h"
#include "preferences.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of the libraries in fxi_device_libraries. */
static const char *const preferences[FXI_DIST_DEVICES] = {"FluxDistributedMPICUDAAware",
                                                          "FluxDistributedMPIROCMAware"};

/* ---- when the group begins ------------------------------------------------------------------- */

/* A rank as a number that is larger for lower ranks, and 0 for none: the maximum over the members
 * is then the lowest rank. */
static int64_t lowest(const fx_dist *d, bool is_one)
{
    return is_one ? d->group.size - d->group.rank : 0;
}

static const char *query(const fx_dist *d, const char *backend)
{
    const fxi_transport *t = d->transport;
    return t->query_devices && t->run_on_devices && t->give_up
               ? t->query_devices(backend)
               : "the transport moves host memory only";
}

/* Decides from three maxima over the members: whether one of them has the preference, the lowest
 * rank without it, and the lowest rank whose library cannot do it (both as in `lowest`). */
static bool decide(const fx_dist *d, int k, const int64_t most[3])
{
    const char *key = preferences[k], *backend = fxi_device_libraries[k].backend;
    if (!most[0])
        return false;
    if (d->group.rank == 0 && most[1])
        fx_message(
            1,
            "The preference %s is true, but not on rank %d: arrays on GPUs are copied through "
            "host memory",
            key, (int)(d->group.size - most[1]));
    else if (d->group.rank == 0 && most[2])
        fx_message(
            1,
            "The preference %s is true, but %s cannot use memory of %s on rank %d: %s. Arrays "
            "on GPUs are copied through host memory",
            key, d->group.library, backend, (int)(d->group.size - most[2]),
            query(d, backend) ? query(d, backend) : "its library says so");
    return !most[1] && !most[2];
}

/* The members may have different preferences, because each reads the file of its own folder. So all
 * of them take part, also those without one. */
fx_status fxi_dist_choose(fx_dist *d, int64_t *io_code, char *why, size_t size)
{
    enum { EACH = 3 };
    int64_t *const mine = d->vote, *const most = d->votes;
    if (d->group.size == 1)
        return FX_OK;
    for (int k = 0; k < FXI_DIST_DEVICES; k++) {
        const bool wants = fxi_preference_is_true(preferences[k]);
        mine[EACH * k] = wants;
        mine[EACH * k + 1] = lowest(d, !wants);
        mine[EACH * k + 2] = lowest(d, wants && query(d, fxi_device_libraries[k].backend) != NULL);
    }
    mine[EACH * FXI_DIST_DEVICES] = d->group.rank == 0 ? *io_code : 0;
    const fx_status status = fxi_dist_vote(d, FXI_DIST_VOTES, why, size);
    for (int k = 0; k < FXI_DIST_DEVICES && status == FX_OK; k++)
        d->aware[k] = decide(d, k, most + EACH * k);
    *io_code = most[EACH * FXI_DIST_DEVICES];
    return status;
}

bool fxi_dist_aware(const fx_dist *d, const char *backend)
{
    const int k = fxi_device_library_of(backend);
    return k < FXI_DIST_DEVICES && d->aware[k];
}

/* ---- copies ---------------------------------------------------------------------------------- */

static size_t bytes_of(const fxi_dist_move *m)
{
    return (size_t)m->n * fx_dtype_size((fx_dtype)m->what->dtype);
}

/* The other members may still wait in this operation. */
static fx_status failed(fx_dist *d, fx_status status)
{
    if (status != FX_OK) {
        d->broken = true;
        d->transport->give_up(&d->group);
    }
    return status;
}

/* For all steps after a probe that failed, on all members. */
static fx_status move_copies(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    const size_t bytes = bytes_of(m);
    char *copies = fxi_malloc(2 * bytes + 1);
    fxi_dist_move host = *m;
    host.queue = NULL;
    host.in = copies;
    host.out = copies ? copies + bytes : NULL;
    fx_status status = copies ? fxi_dist_ready_on_host(d, &host, why, size) : FX_STATUS_MEMORY;
    if (status == FX_OK)
        status = m->queue->read(m->queue, copies, m->in, bytes);
    if (status == FX_OK)
        status = fxi_dist_move_on_host(d, &host, why, size);
    if (status == FX_OK)
        status = m->queue->write(m->queue, m->out, copies + bytes, bytes);
    if (status != FX_OK && !*why)
        snprintf(why, size, "its array could not be copied to host memory and back");
    fxi_free(copies);
    return failed(d, status);
}

/* ---- the probe ------------------------------------------------------------------------------- */

enum { PROBED = 16 }; /* elements */

/* A result in Float64, and numbers that bound its rounding errors. */
typedef struct folded {
    double value;
    double size; /* the sum, or product, of the absolute values */
    double high; /* bounds the result over any subset of the members */
    bool finite; /* all operands are finite */
} folded;

/* Adds or multiplies element i of all members. */
static folded fold(const fx_dist *d, const fxi_dist_move *m, int64_t n, int64_t i)
{
    const bool product = m->what->fold == FX_REDUCE_PROD, wide = m->what->dtype == FX_DTYPE_F64;
    folded f = {product, product, product, true};
    for (int64_t r = 0; r < d->group.size; r++) {
        const int64_t at = r * n + i;
        const double x = wide ? ((const double *)d->out)[at] : (double)((const float *)d->out)[at];
        f.value = product ? f.value * x : f.value + x;
        f.size = product ? f.size * fabs(x) : f.size + fabs(x);
        f.high = product ? f.high * fmax(fabs(x), 1) : f.size;
        f.finite = f.finite && isfinite(x);
    }
    return f;
}

/* The members are combined in any order. Each of at most 2·size roundings has a relative error of
 * `unit`, or an absolute error of `least` by underflow, which later factors may enlarge. A partial
 * result may overflow, although the whole one does not. */
static bool is_near(const folded *f, double have, int size, bool wide)
{
    const double unit = wide ? DBL_EPSILON : (double)FLT_EPSILON,
                 least = wide ? DBL_MIN : (double)FLT_MIN, most = wide ? DBL_MAX : (double)FLT_MAX;
    const double enlarged = fmax(f->high, 1);
    if (!isfinite(have))
        return !f->finite || !(f->high < most / 2);
    return !isfinite(f->value) ||
           fabs(have - f->value) <= 2 * size * (unit * f->size + least * enlarged);
}

static bool is_float_right(const fx_dist *d, const fxi_dist_move *m, int64_t n, const void *got)
{
    const bool wide = m->what->dtype == FX_DTYPE_F64;
    for (int64_t i = 0; i < n; i++) {
        const folded f = fold(d, m, n, i);
        const double have = wide ? ((const double *)got)[i] : (double)((const float *)got)[i];
        if (!is_near(&f, have, d->group.size, wide))
            return false;
    }
    return true;
}

/* Wraps around, as sums of MPI do. */
static uint64_t whole(const void *x, int64_t dtype, int64_t i)
{
    return dtype == FX_DTYPE_I64 ? ((const uint64_t *)x)[i]
                                 : (uint64_t)(int64_t)((const int32_t *)x)[i];
}

static uint64_t fold_whole(int64_t fold, uint64_t a, uint64_t b)
{
    return fold == FX_REDUCE_SUM    ? a + b
           : fold == FX_REDUCE_PROD ? a * b
           : fold == FX_REDUCE_MAX  ? ((int64_t)a > (int64_t)b ? a : b)
                                    : ((int64_t)a < (int64_t)b ? a : b);
}

static bool is_whole_right(const fx_dist *d, const fxi_dist_move *m, int64_t n, const void *got)
{
    const int64_t type = m->what->dtype;
    for (int64_t i = 0; i < n; i++) {
        uint64_t want = whole(d->out, type, i);
        for (int64_t r = 1; r < d->group.size; r++)
            want = fold_whole(m->what->fold, want, whole(d->out, type, r * n + i));
        const uint64_t have = whole(got, type, i);
        if (type == FX_DTYPE_I64 ? have != want : (uint32_t)have != (uint32_t)want)
            return false;
    }
    return true;
}

/* Compares the first n elements of the result with the operands of all members in d->out. */
static bool is_right(const fx_dist *d, const fxi_dist_move *m, int64_t n, const void *got)
{
    const size_t bytes = (size_t)n * fx_dtype_size((fx_dtype)m->what->dtype);
    if (m->what->kind == FX_COLLECTIVE_BROADCAST)
        return memcmp((const char *)d->out + (size_t)m->what->root * bytes, got, bytes) == 0;
    return m->what->dtype == FX_DTYPE_F32 || m->what->dtype == FX_DTYPE_F64
               ? is_float_right(d, m, n, got)
               : is_whole_right(d, m, n, got);
}

/* True on all members if the result is right on all of them. */
static fx_status probe(fx_dist *d, const fxi_dist_move *m, bool *out_right, char *why, size_t size)
{
    double got[PROBED]; /* aligned for elements of all types */
    const int64_t n = m->n < PROBED ? m->n : PROBED;
    const size_t bytes = (size_t)n * fx_dtype_size((fx_dtype)m->what->dtype);
    const bool read = m->queue->read(m->queue, d->in, m->in, bytes) == FX_OK &&
                      m->queue->read(m->queue, got, m->out, bytes) == FX_OK;
    fxi_transport_call gather = {.kind = FXI_COLLECTIVE_GATHER,
                                 .dtype = FX_DTYPE_U8,
                                 .count = (int64_t)bytes,
                                 .in = d->in,
                                 .out = d->out};
    fx_status status = fxi_dist_call(d, &gather, why, size);
    if (status != FX_OK)
        return status;
    d->vote[0] = !read || !is_right(d, m, n, got);
    status = fxi_dist_vote(d, 1, why, size);
    *out_right = d->votes[0] == 0;
    return status;
}

/* ---- the time limit -------------------------------------------------------------------------- */

/* Each operation of MPI moves at most this many bytes: those of a buffer. */
enum { PART_BYTES = 4 << 20 };

/* The buffers on one device. */
typedef struct fxi_dist_staging {
    const void *device; /* fx_device_queue.data */
    char *in, *out;
    struct fxi_dist_staging *next;
} staging;

static staging *staging_of(const fx_dist *d, const fx_device_queue *queue)
{
    staging *s = d->staging;
    while (s && s->device != queue->data)
        s = s->next;
    return s;
}

static bool allocate(fx_dist *d, const fx_device_queue *queue)
{
    if (staging_of(d, queue))
        return true;
    staging *s = fxi_malloc(sizeof *s);
    char *in = s ? queue->alloc(queue, (size_t)2 * PART_BYTES) : NULL;
    /* In a run, only the memory of arrays that were freed can be taken back. */
    if (s && !in) {
        fxi_pools_reclaim();
        in = queue->alloc(queue, (size_t)2 * PART_BYTES);
    }
    if (!in) {
        fxi_free(s);
        return false;
    }
    *s = (staging){.device = queue->data, .in = in, .out = in + PART_BYTES, .next = d->staging};
    d->staging = s;
    return true;
}

void fxi_dist_aware_end(fx_dist *d)
{
    for (staging *s = d->staging, *next; s; s = next) {
        next = s->next;
        fxi_free(s);
    }
}

/* A call of MPI's function, in a thread. */
typedef struct blocking {
    const fx_dist *d;
    fx_device_queue queue;
    fxi_transport_call call;
    fx_status status;
    char why[FXI_DIST_WHY];
    bool ended; /* atomic */
} blocking;

static void *run_blocking(void *call)
{
    blocking *b = call;
    if (b->queue.select(&b->queue, b->why, sizeof b->why) == 0)
        b->status = b->d->transport->run_on_devices(&b->d->group, &b->call, b->why, sizeof b->why);
    else
        b->status = FX_STATUS_DEVICE;
    __atomic_store_n(&b->ended, true, __ATOMIC_RELEASE);
    return NULL;
}

/* Returns false at the time limit: when the clock shows `end`. */
static bool wait_for_end(const blocking *b, double end)
{
    const double begin = fxi_clock();
    for (;;) {
        if (__atomic_load_n(&b->ended, __ATOMIC_ACQUIRE))
            return true;
        const double now = fxi_clock(), waited = now - begin;
        if (now > end)
            return false;
        if (waited < 0.0002)
            fxi_thread_yield();
        else
            fxi_sleep_microseconds(waited < 1 ? 50 : 1000);
    }
}

/* Runs a call until the clock shows `end`, or without a time limit if MPI accepts calls of one
 * thread only. After the limit, the thread keeps `b` until the process ends. */
static fx_status run_call(fx_dist *d, const fxi_dist_move *m, const fxi_transport_call *c,
                          double end, char *why, size_t size)
{
    fxi_thread thread;
    if (!d->group.any_thread)
        return d->transport->run_on_devices(&d->group, c, why, size);
    blocking *b = fxi_malloc(sizeof *b);
    if (b)
        *b = (blocking){.d = d, .queue = *m->queue, .call = *c};
    if (!b || fxi_thread_start(&thread, run_blocking, b) != 0) {
        fxi_free(b);
        snprintf(why, size, "no thread can be started");
        return FX_STATUS_MEMORY;
    }
    if (!wait_for_end(b, end)) {
        fxi_dist_say_unfinished(d->group.library, d->limit, why, size);
        return FX_STATUS_IO;
    }
    fxi_thread_join(thread);
    const fx_status status = b->status;
    snprintf(why, size, "%s", b->why);
    fxi_free(b);
    return status;
}

/* Copies a part of the operand to the group's buffer, and the result from there. */
static fx_status run_part(fx_dist *d, const fxi_dist_move *m, int64_t at, int64_t n, double end,
                          char *why, size_t size)
{
    const size_t width = fx_dtype_size((fx_dtype)m->what->dtype), bytes = (size_t)n * width,
                 skip = (size_t)at * width;
    const staging *s = staging_of(d, m->queue);
    fxi_transport_call c = fxi_dist_call_of(d, m);
    c.count = n;
    c.in = s->in;
    c.out = s->out;
    const fx_device_queue *q = m->queue;
    fx_status status = q->copy(q, s->in, (const char *)m->in + skip, bytes, why, size);
    if (status == FX_OK)
        status = fxi_dist_wait_for_own_work(q, why, size);
    if (status == FX_OK)
        status = run_call(d, m, &c, end, why, size);
    if (status == FX_OK)
        status = q->copy(q, (char *)m->out + skip, s->out, bytes, why, size);
    return status;
}

static fx_status run_parts(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    const int64_t part = PART_BYTES / (int64_t)fx_dtype_size((fx_dtype)m->what->dtype);
    const double end = fxi_clock() + d->limit; /* of all parts together */
    fx_status status = FX_OK;
    for (int64_t at = 0; at < m->n && status == FX_OK; at += part)
        status = run_part(d, m, at, m->n - at < part ? m->n - at : part, end, why, size);
    return status;
}

/* ---- operations ------------------------------------------------------------------------------ */

static fx_status ready(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    const size_t probed = PROBED * sizeof(double) * (size_t)d->group.size;
    const fx_status status = fxi_dist_buffers(d, probed, why, size);
    if (status != FX_OK || allocate(d, m->queue))
        return status == FX_OK ? fxi_dist_wait_for_own_work(m->queue, why, size) : status;
    snprintf(why, size, "no memory for %d bytes on its GPU", 2 * PART_BYTES);
    return FX_STATUS_MEMORY;
}

static fx_status move(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    const int k = fxi_device_library_of(m->queue->backend),
              kind = m->what->kind == FX_COLLECTIVE_BROADCAST;
    bool right = true;
    if (d->wrong[k])
        return move_copies(d, m, why, size);
    fx_status status = failed(d, run_parts(d, m, why, size));
    if (status != FX_OK || d->probed[k][kind])
        return status;
    status = probe(d, m, &right, why, size);
    d->probed[k][kind] = true;
    if (status != FX_OK || right)
        return status;
    d->wrong[k] = true;
    if (d->group.rank == 0)
        fx_message(
            1,
            "The preference %s is true, but %s moved memory of %s wrongly: arrays on GPUs are "
            "copied through host memory",
            preferences[k], d->group.library, fxi_device_libraries[k].backend);
    return move_copies(d, m, why, size);
}

/* The thread of the group runs only operations whose kind has been probed, so it changes none of
 * these fields. */
bool fxi_dist_aware_proven(const fx_dist *d, const fx_device_queue *queue, const fx_step *step)
{
    const int k = fxi_device_library_of(queue->backend),
              kind = fx_step_collective(step)->what.kind == FX_COLLECTIVE_BROADCAST;
    return k < FXI_DIST_DEVICES && d->probed[k][kind] && !d->wrong[k] && staging_of(d, queue);
}

fx_status fxi_dist_run_aware(const fx_communicator *self, const fx_device_queue *queue,
                             const fx_step *step, const void *in, void *out, char *why, size_t size)
{
    const fxi_dist_move how = {.in = in, .out = out, .queue = queue, .ready = ready, .move = move};
    return fxi_dist_step(self, step, how, why, size);
}
