/* meeting.h: groups whose members are threads of a test program, with a transport that meets in
 * memory.
 *
 * The transport has a script: the operation with a given number fails, as at the time limit. Only
 * the main thread uses assertions, because a failed one jumps out of the test.
 */
#ifndef CFLUX_TEST_MEETING_H
#define CFLUX_TEST_MEETING_H

#include "dist_group.h"
#include "semantics_check.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

enum { MEMBERS = 3 };

/* ---- the transport --------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t all;
    int here, round;
    const fxi_transport_call *calls[MEMBERS];
    int64_t fails_at, made; /* number of the operation that fails; operations so far */
    int64_t large;          /* reductions of more than three numbers so far */
    bool no_sums;           /* sums and products give zeros */
} meeting = {.lock = PTHREAD_MUTEX_INITIALIZER, .all = PTHREAD_COND_INITIALIZER};

/* The caller holds the lock. */
static void wait_for_all(void)
{
    const int round = meeting.round;
    if (++meeting.here == MEMBERS) {
        meeting.here = 0;
        meeting.round++;
        pthread_cond_broadcast(&meeting.all);
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    while (meeting.round == round)
        if (pthread_cond_timedwait(&meeting.all, &meeting.lock, &until) != 0)
            abort(); /* a member did not take part, which is a defect; without abort the test would
                        hang */
}

#define FOLD(T)                                                                                    \
    do {                                                                                           \
        T v = ((const T *)meeting.calls[0]->in)[i];                                                \
        for (int k = 1; k < MEMBERS; k++) {                                                        \
            const T x = ((const T *)meeting.calls[k]->in)[i];                                      \
            v = c->fold == FX_REDUCE_MAX    ? (x > v ? x : v)                                      \
                : c->fold == FX_REDUCE_MIN  ? (x < v ? x : v)                                      \
                : c->fold == FX_REDUCE_PROD ? (T)(v * x)                                           \
                                            : (T)(v + x);                                          \
        }                                                                                          \
        ((T *)c->out)[i] = v;                                                                      \
    } while (0)

static void fold(const fxi_transport_call *c, int64_t i)
{
    if (c->dtype == FX_DTYPE_F64)
        FOLD(double);
    else if (c->dtype == FX_DTYPE_I64)
        FOLD(int64_t);
    else if (c->dtype == FX_DTYPE_I32)
        FOLD(int32_t);
    else
        FOLD(float);
}

static void move(const fxi_transport_call *c, int rank)
{
    const size_t bytes = (size_t)c->count * fx_dtype_size((fx_dtype)c->dtype);
    for (int k = 0; k < MEMBERS && c->kind == FXI_COLLECTIVE_GATHER; k++)
        memcpy((char *)c->out + (size_t)k * bytes, meeting.calls[k]->in, bytes);
    for (int k = 0; k < MEMBERS && c->kind == FXI_COLLECTIVE_EXCHANGE; k++)
        memcpy((char *)c->out + (size_t)k * (bytes / MEMBERS),
               (const char *)meeting.calls[k]->in + (size_t)rank * (bytes / MEMBERS),
               bytes / MEMBERS);
    if (c->kind == FX_COLLECTIVE_BROADCAST)
        memcpy(c->out, meeting.calls[c->root]->in, bytes);
    for (int64_t i = 0; i < c->count && c->kind <= FX_COLLECTIVE_REDUCE; i++)
        fold(c, i);
    if (meeting.no_sums && c->kind <= FX_COLLECTIVE_REDUCE && c->fold != FX_REDUCE_MAX)
        memset(c->out, 0, bytes);
}

static fx_status meet(const fxi_transport_group *g, const fxi_transport_call *c, char *why,
                      size_t size)
{
    pthread_mutex_lock(&meeting.lock);
    meeting.calls[g->rank] = c;
    wait_for_all();
    const bool fails = c->number == meeting.fails_at;
    meeting.made += g->rank == 0;
    meeting.large += g->rank == 0 && c->kind == FX_COLLECTIVE_ALL_REDUCE && c->count > 3;
    if (!fails)
        move(c, g->rank);
    wait_for_all();
    pthread_mutex_unlock(&meeting.lock);
    if (fails)
        snprintf(why, size, "no answer from rank 1 within %g s", c->limit);
    return fails ? FX_STATUS_IO : FX_OK;
}

static const fxi_transport transport = {.run = meet};

/* ---- members --------------------------------------------------------------------------------- */

typedef struct member {
    fx_dist d;
    double got[64];
    int n;
    fx_status status;
    char message[500];
} member;

static void begin(fx_dist *d, int rank, int size, const fxi_transport *t)
{
    const fxi_transport_group g = {.rank = rank,
                                   .size = size,
                                   .local_rank = rank,
                                   .local_size = size,
                                   .any_thread = true,
                                   .library = "a meeting"};
    fxi_dist_begin(d, t, &g, 2);
}

static member members[MEMBERS];
static void run_members(void *(*body)(void *))
{
    pthread_t threads[MEMBERS];
    meeting.made = meeting.large = 0;
    for (int k = 0; k < MEMBERS; k++) {
        members[k] = (member){.n = 0};
        begin(&members[k].d, k, MEMBERS, &transport);
        assert_int_equal(pthread_create(&threads[k], NULL, body, &members[k]), 0);
    }
    for (int k = 0; k < MEMBERS; k++) {
        pthread_join(threads[k], NULL);
        fxi_dist_end(&members[k].d);
    }
    meeting.fails_at = 0;
}

static void take_error(member *m)
{
    const fx_error e = fx_error_take();
    m->status = e.status;
    snprintf(m->message, sizeof m->message, "%s", e.message);
}

__attribute__((unused)) static void read_out(member *m, fx_array *y)
{
    const int64_t n = fx_length(y);
    if (fx_read_as(y, FX_DTYPE_F64, m->got + m->n, n) == FX_OK)
        m->n += (int)n;
    else
        take_error(m);
}

/* All members have the same n numbers and no message. `serial`: what one process computes, from
 * which no number may differ by more than `most`; NULL: not compared. */
__attribute__((unused)) static void expect_same(int n, const double *serial, double most)
{
    for (int k = 0; k < MEMBERS; k++) {
        assert_string_equal(members[k].message, "");
        assert_int_equal(members[k].n, n);
        assert_memory_equal(members[k].got, members[0].got, sizeof members[0].got);
    }
    for (int i = 0; i < n && serial; i++)
        assert_true(fabs(members[0].got[i] - serial[i]) <= most);
}

#endif
