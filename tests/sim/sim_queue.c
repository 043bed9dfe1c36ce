/* sim_queue.c: streams and events. By default work runs when it is queued. With SIM_DEFER work runs
 * only when something waits for it, and every stream proceeds by itself, as if it were a thread: in
 * any order with the others that events allow. A stream may be much slower or faster than another,
 * and a long copy is divided. One thread at a time runs work, because it holds the simulator's
 * lock, and the seed decides the order, so a failure can be repeated.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

enum { PENDING_MOST = 2000 };
enum { PART = 16 << 10 }; /* the smallest part of a copy, in bytes */

static sim_stream *streams;
static int pending;

sim_stream *sim_stream_new(sim_device *d)
{
    sim_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->device = d;
    s->last = &s->first;
    s->next = streams;
    streams = s;
    return s;
}

void sim_point_release(sim_point *p)
{
    if (p && --p->users == 0)
        free(p);
}

/* ---- one piece of work ----------------------------------------------------------------------- */

static int run_call(sim_device *d, sim_call *c)
{
    for (int k = 0; k < SIM_USES; k++)
        if (c->uses[k].address &&
            !(c->at[k] = sim_memory_at(d, c->uses[k].address, c->uses[k].bytes, c->name)))
            return SIM_ILLEGAL_ADDRESS;
    c->run(c);
    return SIM_OK;
}

/* With SIM_NOTHING kernels, graphs and calls of libraries are queued but compute nothing. */
static bool computes_nothing(sim_kind kind)
{
    return (kind == SIM_LAUNCH || kind == SIM_CALL || kind == SIM_GRAPH) && sim_computes_nothing();
}

/* Events read a simulated clock, so that measured times do not depend on the machine. It advances
 * by this number of milliseconds for each piece of work, and by what the work takes in addition. */
#define WORK_TIME 1e-3
static double simulated_clock;

int sim_run_op(sim_op *o)
{
    char *to = NULL;
    const char *from = NULL;
    if (o->kind != SIM_RECORD && o->kind != SIM_WAIT)
        simulated_clock += WORK_TIME + o->milliseconds;
    if (computes_nothing(o->kind))
        return SIM_OK;
    if (o->kind == SIM_LAUNCH)
        return sim_run(o->launch);
    if (o->kind == SIM_CALL)
        return run_call(o->to_device, o->call);
    if (o->kind == SIM_GRAPH)
        return sim_graph_run(o->graph);
    if (o->kind == SIM_RECORD || o->kind == SIM_WAIT) {
        if (o->kind == SIM_RECORD) {
            o->point->reached = true;
            o->point->milliseconds = simulated_clock;
        }
        return SIM_OK;
    }
    to = o->to_device ? sim_memory_at(o->to_device, o->to, o->bytes, "the destination of a copy")
                      : o->to;
    from = o->from_device ? sim_memory_at(o->from_device, o->from, o->bytes, "the source of a copy")
                          : (o->copy ? o->copy + o->skipped : o->from);
    if (!to || (o->kind != SIM_FILL && !from))
        return SIM_ILLEGAL_ADDRESS;
    if (o->kind == SIM_FILL)
        memset(to, o->value, o->bytes);
    else
        memmove(to, from, o->bytes);
    return SIM_OK;
}

/* A long copy may run in parts, between which other streams run, as a copy engine and a kernel do
 * at the same time. True: a part has run, and o is the rest. */
static bool run_part(sim_op *o)
{
    const bool copies = o->kind == SIM_COPY || o->kind == SIM_WRITE || o->kind == SIM_READ;
    if (!copies || o->bytes < 2 * PART || sim_random(2))
        return false;
    sim_op part = *o;
    part.bytes = PART * (1 + sim_random((unsigned)(o->bytes / PART - 1)));
    if (sim_run_op(&part))
        return false; /* the whole copy fails too */
    o->bytes -= part.bytes;
    o->to = (char *)o->to + part.bytes;
    o->from = (const char *)o->from + part.bytes;
    o->skipped += o->copy ? part.bytes : 0;
    return true;
}

static void run_first(sim_stream *s)
{
    sim_op *o = s->first;
    if (!s->device->error && run_part(o))
        return;
    s->first = o->next;
    if (!s->first)
        s->last = &s->first;
    pending--;
    /* A lost device runs nothing, but events are still recorded, so that nothing waits for ever. */
    const int error = s->device->error && o->kind != SIM_RECORD ? SIM_OK : sim_run_op(o);
    if (error)
        s->device->error = error;
    sim_point_release(o->point);
    if (o->graph)
        sim_graph_ran(o->graph);
    free(o->launch);
    free(o->call);
    free(o->copy);
    free(o);
}

static bool is_blocked(const sim_stream *s)
{
    return s->first && s->first->kind == SIM_WAIT && !s->first->point->reached;
}

/* Runs the stream's first work, after the work of other streams that it waits for. */
static void advance(sim_stream *s)
{
    while (is_blocked(s))
        advance(s->first->point->stream);
    if (s->first)
        run_first(s);
}

/* Runs one piece of work of a stream other than s, chosen at random among those that can continue.
 * False: there is none. */
static bool advance_another(const sim_stream *s)
{
    int n = 0;
    for (const sim_stream *o = streams; o; o = o->next)
        n += o != s && o->first && !is_blocked(o);
    if (n == 0)
        return false;
    int which = (int)sim_random((unsigned)n);
    for (sim_stream *o = streams; o; o = o->next)
        if (o != s && o->first && !is_blocked(o) && which-- == 0) {
            run_first(o);
            return true;
        }
    return false;
}

/* How the other streams proceed while the host waits for one: not at all, as far as they can before
 * it, or alternately with it, at random. Each wait chooses again. */
enum { STOPPED, AHEAD, MIXED, ORDERS };

/* Runs work until the point is reached; NULL: until the stream is empty. */
static void run_until(sim_stream *s, const sim_point *point)
{
    const unsigned order = sim_random(ORDERS);
    while (point ? !point->reached : s->first != NULL) {
        const bool other = order == AHEAD || (order == MIXED && sim_random(2));
        if (!other || !advance_another(s))
            advance(s);
    }
}

int sim_drain(sim_stream *s)
{
    run_until(s, NULL);
    return s->device->error;
}

/* Each call does one piece of the stream's work, so that a loop that only polls ends. */
int sim_poll(sim_stream *s)
{
    if (sim_random(2))
        advance_another(s);
    advance(s);
    return s->device->error ? s->device->error : s->first ? SIM_NOT_READY : SIM_OK;
}

int sim_event_wait(sim_event *e)
{
    if (e->point)
        run_until(e->point->stream, e->point);
    return e->device->error;
}

int sim_queue(sim_stream *s, const sim_op *op)
{
    static int defers = -1;
    if (defers < 0)
        defers = (int)sim_setting("SIM_DEFER", 0);
    if (s->capture)
        return sim_capture_op(s, op);
    sim_op *o = malloc(sizeof *o);
    if (!o)
        return SIM_OUT_OF_MEMORY;
    *o = *op;
    o->next = NULL;
    *s->last = o;
    s->last = &o->next;
    pending++;
    if (!defers)
        return sim_drain(s);
    while (pending > PENDING_MOST)
        advance(s);
    return SIM_OK;
}

static bool overlaps(const void *a, size_t n, const char *b, size_t m)
{
    return (const char *)a < b + m && b < (const char *)a + n;
}

static bool launch_uses(const sim_launch *l, const char *address, size_t bytes)
{
    for (int k = 0; l->kernel->sizes[k]; k++)
        if (l->kernel->sizes[k] < 0 && overlaps(*(void **)l->arguments[k], 1, address, bytes))
            return true;
    return false;
}

static bool call_uses(const sim_call *c, const char *address, size_t bytes)
{
    for (int k = 0; k < SIM_USES; k++)
        if (c->uses[k].address && overlaps(c->uses[k].address, c->uses[k].bytes, address, bytes))
            return true;
    return false;
}

bool sim_op_uses(const sim_op *o, const sim_device *d, const char *address, size_t bytes)
{
    return (o->to_device == d && overlaps(o->to, o->bytes, address, bytes)) ||
           (o->from_device == d && overlaps(o->from, o->bytes, address, bytes)) ||
           (o->launch && launch_uses(o->launch, address, bytes)) ||
           (o->call && o->to_device == d && call_uses(o->call, address, bytes)) ||
           (o->graph && sim_graph_uses(o->graph, d, address, bytes));
}

bool sim_is_used(const sim_device *d, const char *address, size_t bytes)
{
    for (const sim_stream *s = streams; s; s = s->next)
        for (const sim_op *o = s->first; o; o = o->next)
            if (sim_op_uses(o, d, address, bytes))
                return true;
    return false;
}

void sim_streams_uncaptured(int capture)
{
    for (sim_stream *s = streams; s; s = s->next)
        if (s->capture == capture) {
            s->capture = 0;
            s->tails.n = 0;
        }
}
