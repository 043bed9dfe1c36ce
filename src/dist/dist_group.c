/* dist_group.c: runs collective operations of plans by a transport, in host memory.
 *
 * The operands are copied to buffers of the group, which a transport may write to even after the
 * time limit. Operations in memory that all members share use the operands themselves, unless these
 * are 16-bit floats.
 */
#include "dist_group.h"

#include "clock.h"
#include "dist_update.h"
#include "error.h"
#include "half.h"
#include "memory.h"
#include "shared_library.h"
#include "this_process.h"
#include "timeline.h"

#include <stdio.h>
#include <string.h>

const fxi_transport_host fxi_dist_host = {.alloc = fxi_malloc,
                                          .sleep = fxi_sleep_microseconds,
                                          .yield = fxi_thread_yield,
                                          .process = fxi_process_id,
                                          .library = fxi_library_open,
                                          .symbol = fxi_library_symbol,
                                          .variable = fxi_trusted_variable};

/* ---- numbers --------------------------------------------------------------------------------- */

static bool is_half(int64_t dtype)
{
    return dtype == FX_DTYPE_F16 || dtype == FX_DTYPE_BF16;
}

/* 16-bit floats are added as Float32. */
static void widen(int64_t dtype, const void *from, float *to, int64_t n)
{
    const uint16_t *x = from;
    for (int64_t i = 0; i < n; i++)
        to[i] = dtype == FX_DTYPE_F16 ? fxi_f16_to_f32(x[i]) : fxi_bf16_to_f32(x[i]);
}

static void narrow(int64_t dtype, const float *from, void *to, int64_t n)
{
    uint16_t *y = to;
    for (int64_t i = 0; i < n; i++)
        y[i] = dtype == FX_DTYPE_F16 ? fxi_f32_to_f16(from[i]) : fxi_f32_to_bf16(from[i]);
}

static void divide(int64_t dtype, void *x, int64_t n, int size)
{
    for (int64_t i = 0; i < n; i++)
        if (dtype == FX_DTYPE_F64)
            ((double *)x)[i] /= size;
        else
            ((float *)x)[i] /= (float)size;
}

/* Folds the n elements of `size` members, one member after the other, into out. Maxima and minima
 * do not depend on the order and stay with the transport. */
#define FOLD_TYPE(T)                                                                               \
    for (int64_t i = 0; i < n; i++) {                                                              \
        T v = ((const T *)all)[i];                                                                 \
        for (int64_t k = 1; k < size; k++) {                                                       \
            const T x = ((const T *)all)[k * n + i];                                               \
            v = (T)(product ? v * x : v + x);                                                      \
        }                                                                                          \
        ((T *)out)[i] = v;                                                                         \
    }
static void fold_in_order(int64_t dtype, const void *all, void *out, int64_t n, int size,
                          bool product)
{
    if (dtype == FX_DTYPE_F64)
        FOLD_TYPE(double)
    else if (dtype == FX_DTYPE_F32)
        FOLD_TYPE(float)
    else if (dtype == FX_DTYPE_I64)
        FOLD_TYPE(uint64_t) /* wraps around, as MPI's sum does */
    else if (dtype == FX_DTYPE_I32)
        FOLD_TYPE(uint32_t)
    else
        FOLD_TYPE(uint8_t)
}

/* ---- in host memory -------------------------------------------------------------------------- */

static bool reserve(void **buffer, size_t *have, size_t want)
{
    if (want <= *have)
        return true;
    void *p = fxi_realloc(*buffer, want);
    if (p) {
        *buffer = p;
        *have = want;
    }
    return p != NULL;
}

/* The type in which elements are sent. */
static int64_t wire_type(const fxi_dist_header *h)
{
    return h->kind != FX_COLLECTIVE_BROADCAST && is_half(h->dtype) ? FX_DTYPE_F32 : h->dtype;
}

static size_t wire_bytes(const fxi_dist_move *m)
{
    return (size_t)m->n * fx_dtype_size((fx_dtype)wire_type(m->what));
}

fx_status fxi_dist_buffers(fx_dist *d, size_t bytes, char *why, size_t size)
{
    if (reserve(&d->in, &d->in_bytes, bytes) && reserve(&d->out, &d->out_bytes, bytes))
        return FX_OK;
    snprintf(why, size, "no memory for %zu bytes", bytes);
    return FX_STATUS_MEMORY;
}

/* Elements. If the order is fixed, they are gathered in parts of this length, because those of all
 * members are in memory at the same time. */
enum { PART = 1 << 20 };

/* Does the transport read and write the operands themselves? */
static bool is_direct(const fxi_dist_move *m)
{
    return m->shared && wire_type(m->what) == m->what->dtype;
}

/* Called before the members agree, so that a member without memory can refuse. */
fx_status fxi_dist_ready_on_host(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    if (is_direct(m))
        return FX_OK;
    const size_t bytes = wire_bytes(m), width = m->n ? bytes / (size_t)m->n : 0;
    const size_t part = width * (size_t)(m->n < PART ? m->n : PART);
    const size_t gathered = m->what->fixed && !m->shared ? part * (size_t)d->group.size : 0;
    return fxi_dist_buffers(
        d, (gathered > bytes ? gathered : bytes) + fxi_dist_narrow_bytes(d, m) + 1, why, size);
}

/* Every member gets the operands of all, and replaces its own operand by their fold. */
static fx_status gather_and_fold(fx_dist *d, const fxi_transport_call *reduction, char *why,
                                 size_t size)
{
    const int64_t n = reduction->count;
    const size_t width = fx_dtype_size((fx_dtype)reduction->dtype);
    for (int64_t at = 0; at < n; at += PART) {
        const int64_t part = n - at < PART ? n - at : PART;
        char *mine = (char *)d->in + (size_t)at * width;
        fxi_transport_call c = {.kind = FXI_COLLECTIVE_GATHER,
                                .dtype = FX_DTYPE_U8,
                                .count = part * (int64_t)width,
                                .in = mine,
                                .out = d->out};
        const fx_status status = fxi_dist_call(d, &c, why, size);
        if (status != FX_OK)
            return status;
        fold_in_order(reduction->dtype, d->out, mine, part, d->group.size,
                      reduction->fold == FX_REDUCE_PROD);
    }
    memcpy(d->out, d->in, (size_t)n * width);
    return FX_OK;
}

/* Copies the operand to the group's buffer, in the type in which it is sent. */
static void put_in(fx_dist *d, const fxi_dist_move *m)
{
    if (wire_type(m->what) != m->what->dtype)
        widen(m->what->dtype, m->in, d->in, m->n);
    else
        memcpy(d->in, m->in, wire_bytes(m));
}

static void take_out(fx_dist *d, const fxi_dist_move *m)
{
    const fxi_dist_header *h = m->what;
    /* Only the root's memory has been written. */
    if (h->kind == FX_COLLECTIVE_REDUCE && h->root != d->group.rank)
        memset(d->out, 0, wire_bytes(m));
    if (wire_type(h) != h->dtype)
        narrow(h->dtype, d->out, m->out, m->n);
    else
        memcpy(m->out, d->out, wire_bytes(m));
}

static fx_status transfer_exactly(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    const fxi_dist_header *h = m->what;
    const bool direct = is_direct(m);
    /* In shared memory the transport itself divides by the number of members. */
    const bool mean = h->kind != FX_COLLECTIVE_BROADCAST && h->fold == FX_REDUCE_MEAN && !m->shared;
    fxi_transport_call c = {.kind = h->kind,
                            .fold = mean ? FX_REDUCE_SUM : h->fold,
                            .root = h->root,
                            .dtype = wire_type(h),
                            .count = m->n,
                            .in = direct ? m->in : d->in,
                            .out = direct ? m->out : d->out};
    if (m->n == 0)
        return FX_OK;
    if (!direct)
        put_in(d, m);
    const fx_status status = h->fixed && !m->shared ? gather_and_fold(d, &c, why, size)
                                                    : fxi_dist_call(d, &c, why, size);
    if (status != FX_OK || direct)
        return status;
    if (mean)
        divide(c.dtype, d->out, m->n, d->group.size);
    take_out(d, m);
    return FX_OK;
}

fx_status fxi_dist_move_on_host(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    const int64_t first = m->what->narrow;
    if (first == 0)
        return transfer_exactly(d, m, why, size);
    const fx_status status = fxi_dist_narrow(d, m, why, size);
    const fxi_dist_move rest = {.what = m->what,
                                .n = m->n - first,
                                .in = (const float *)m->in + first,
                                .out = (float *)m->out + first};
    return status == FX_OK ? transfer_exactly(d, &rest, why, size) : status;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Notes the operation that begins, for cflux launch, which prints the last operation of a rank that
 * died. If the previous line was longer, its end stays in the file after the line break. */
static void note_progress(fx_dist *d, const char *what)
{
    if (!d->progress)
        return;
    rewind(d->progress);
    fprintf(d->progress, "%lld, %s\n", (long long)d->number, what);
    fflush(d->progress);
}

static fx_status operate(fx_dist *d, const fxi_dist_move *m, const char *what, char *why,
                         size_t size)
{
    char reason[FXI_DIST_REASON] = "";
    const fx_status refusal = m->refuses ? m->refuses : m->ready(d, m, reason, sizeof reason);
    int64_t began = fxi_timeline_now();
    const double came = fxi_clock();
    fx_status status =
        fxi_dist_agree(d, m->what, refusal, m->refuses ? m->reason : reason, why, size);
    d->waited += fxi_clock() - came;
    fxi_timeline_event(FXI_ROW_COMMUNICATION, "waiting", "wait for all ranks", began);
    if (status != FX_OK)
        return status;
    began = fxi_timeline_now();
    status = m->move(d, m, why, size);
    char text[160];
    snprintf(text, sizeof text, "%s%s", what, m->shared ? " in shared memory" : "");
    fxi_timeline_event(FXI_ROW_COMMUNICATION, "communication", text, began);
    return status;
}

static fx_status run_alone(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    char reason[FXI_DIST_WHY] = "", what[120];
    fxi_dist_describe(m->what, what, sizeof what);
    d->number++;
    note_progress(d, what);
    const fx_status status = operate(d, m, what, reason, sizeof reason);
    d->told = status != FX_OK;
    snprintf(why, size, "%s, operation %lld: %s", what, (long long)d->number,
             *reason ? reason : fx_status_name(status));
    if (d->broken)
        snprintf(d->why, sizeof d->why, "%s", *reason ? reason : fx_status_name(status));
    return status;
}

fx_status fxi_dist_operation(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    fxi_mutex_lock(&d->lock);
    fx_status status = FX_STATUS_IO;
    if (d->broken) {
        snprintf(why, size, "an earlier operation failed: %s", d->why);
    } else if (fxi_dist_enter(d)) {
        status = run_alone(d, m, why, size);
        fxi_dist_done(d);
    } else {
        snprintf(why, size, "the process is ending");
        status = FX_STATUS_STATE;
    }
    fxi_mutex_unlock(&d->lock);
    return status;
}

/* Does the transport reduce it in memory that all members share? */
static bool is_shared(const fx_dist *d, const fxi_dist_header *h)
{
    const fxi_transport_call c = {.kind = h->kind, .fold = h->fold, .dtype = wire_type(h)};
    return d->transport->shares && d->transport->shares(&d->group, &c);
}

fx_status fxi_dist_step(const fx_communicator *self, const fx_step *step, fxi_dist_move how,
                        char *why, size_t size)
{
    fx_dist *d = (fx_dist *)(uintptr_t)self->user;
    fxi_dist_header h = fxi_dist_header_of(step);
    h.fixed = d->fixed_order && h.kind != FX_COLLECTIVE_BROADCAST && h.fold != FX_REDUCE_MAX &&
              h.fold != FX_REDUCE_MIN;
    if (d->narrow && h.kind == FX_COLLECTIVE_ALL_REDUCE && h.dtype == FX_DTYPE_F32 && !how.queue)
        h.narrow = fx_step_collective(step)->what.inexact;
    how.what = &h;
    how.shared = !how.queue && h.narrow == 0 && is_shared(d, &h);
    how.n = fx_tensor_length(&step->out);
    return fxi_dist_operation(d, &how, why, size);
}

fx_status fxi_dist_run_now(const fx_communicator *self, const fx_step *step, const void *in,
                           void *out, char *why, size_t size)
{
    const fxi_dist_move how = {
        .in = in, .out = out, .ready = fxi_dist_ready_on_host, .move = fxi_dist_move_on_host};
    return fxi_dist_step(self, step, how, why, size);
}

double fxi_dist_waited(fx_dist *d)
{
    fxi_mutex_lock(&d->lock);
    const double seconds = d->waited;
    fxi_mutex_unlock(&d->lock);
    return seconds;
}

void fxi_dist_refuse(const fx_communicator *self, fx_status status, const char *reason)
{
    fx_dist *d = (fx_dist *)(uintptr_t)self->user;
    char why[FXI_DIST_WHY] = "";
    fxi_mutex_lock(&d->lock);
    /* After an operation that failed on all members, the others do not wait for this member. */
    if (!d->broken && !d->told && fxi_dist_enter(d)) {
        fxi_dist_share(d, status, reason, why, sizeof why);
        fxi_dist_done(d);
    }
    if (d->broken && !*d->why)
        snprintf(d->why, sizeof d->why, "%s", why);
    d->told = false;
    fxi_mutex_unlock(&d->lock);
}

/* ---- groups ---------------------------------------------------------------------------------- */

void fxi_dist_begin(fx_dist *d, const fxi_transport *transport, const fxi_transport_group *group,
                    double limit)
{
    *d = (fx_dist){.transport = transport, .group = *group, .limit = limit};
    d->communicator = (fx_communicator){.fxi_size = sizeof d->communicator,
                                        .name = d->group.library,
                                        .rank = group->rank,
                                        .size = group->size,
                                        .user = d,
                                        .run = fxi_dist_run,
                                        .refuse = fxi_dist_refuse,
                                        .takes = fxi_dist_takes,
                                        .run_on = fxi_dist_run_on};
    if (group->any_thread) {
        d->communicator.begin = fxi_dist_operation_begin;
        d->communicator.begin_on = fxi_dist_operation_begin_on;
        d->communicator.finish = fxi_dist_operation_finish;
    }
    d->statements = fxi_malloc(fxi_dist_statements_bytes(group->size));
    d->broken = !fxi_dist_queue_init(d) || !d->statements;
    snprintf(d->why, sizeof d->why, "%s", d->broken ? "out of memory" : "");
    fxi_mutex_init(&d->lock);
}

void fxi_dist_end(fx_dist *d)
{
    fxi_dist_queue_end(d);
    fxi_dist_aware_end(d);
    fxi_mutex_destroy(&d->lock);
    fxi_free(d->in);
    fxi_free(d->out);
    fxi_free(d->statements);
}
