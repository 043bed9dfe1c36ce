/* sim_graph.c: capture of streams, and graphs. Work that is queued in a captured stream
 * becomes a node, with a list of the nodes that must run before it; a stream that waits for an
 * event of a captured one is captured too. A graph runs its nodes in a random order that the lists
 * allow, so that a missing dependency gives wrong results. Addresses are those of the capture:
 * memory that was freed since is found when the graph runs.
 *
 * Illegal calls return the errors of the drivers' documentation, and the capture then ends with an
 * error.
 */
#include "sim_functions.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    ILLEGAL_STATE = 401,
    UNSUPPORTED = 900,
    INVALIDATED = 901,
    MERGE = 902,
    UNMATCHED = 903,
    UNJOINED = 904,
    ISOLATION = 905,
    CAPTURED_EVENT = 907,
    WRONG_THREAD = 908
};
enum { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };

typedef struct node {
    sim_op op;
    sim_tails needs;
} node;

struct sim_graph {
    sim_graph *next; /* all graphs: the driver has those that a program never destroys */
    int refs, queued;
    sim_device *device;
    node *nodes;
    int n, capacity;
};

struct sim_capture {
    sim_capture *next;
    int id, mode;
    pthread_t thread;
    sim_stream *origin;
    sim_graph *graph;
    bool invalid;
};

static sim_capture *captures;
static sim_graph *graphs;
static int latest, live;

/* ---- graphs ---------------------------------------------------------------------------------- */

static void release(sim_graph *g)
{
    if (!g || --g->refs > 0)
        return;
    for (int k = 0; k < g->n; k++) {
        free(g->nodes[k].op.launch);
        free(g->nodes[k].op.call);
        free(g->nodes[k].op.copy);
    }
    sim_graph **link = &graphs;
    while (*link != g)
        link = &(*link)->next;
    *link = g->next;
    free(g->nodes);
    free(g);
    live--;
}

int sim_graphs_live(void)
{
    return live;
}

void sim_graph_ran(sim_graph *g)
{
    g->queued--;
    release(g);
}

static bool holds(const sim_tails *t, int which)
{
    for (int k = 0; k < t->n; k++)
        if (t->nodes[k] == which)
            return true;
    return false;
}

static bool join(sim_tails *t, const sim_tails *more)
{
    for (int k = 0; k < more->n; k++) {
        if (holds(t, more->nodes[k]))
            continue;
        if (t->n == SIM_TAILS)
            return false;
        t->nodes[t->n++] = more->nodes[k];
    }
    return true;
}

static bool is_ready(const node *n, const bool *done)
{
    for (int k = 0; k < n->needs.n; k++)
        if (!done[n->needs.nodes[k]])
            return false;
    return true;
}

/* Addresses are looked up again: the memory may have been freed since the capture. */
static int run_node(sim_graph *g, node *n)
{
    if (n->op.kind == SIM_LAUNCH)
        for (int k = 0; n->op.launch->kernel->sizes[k]; k++) {
            const void *address = *(void **)n->op.launch->arguments[k];
            if (n->op.launch->kernel->sizes[k] < 0 && address &&
                !sim_memory_at(g->device, address, 0, "a graph"))
                return SIM_ILLEGAL_ADDRESS;
        }
    return sim_run_op(&n->op);
}

/* Runs any node that is ready, until all have run. */
int sim_graph_run(sim_graph *g)
{
    bool *done = calloc((size_t)g->n + 1, sizeof *done);
    int error = done ? SIM_OK : SIM_OUT_OF_MEMORY;
    for (int left = g->n; left > 0 && !error; left--) {
        int ready = 0, k = 0;
        for (int i = 0; i < g->n; i++)
            ready += !done[i] && is_ready(&g->nodes[i], done);
        for (int which = (int)sim_random((unsigned)ready); k < g->n; k++)
            if (!done[k] && is_ready(&g->nodes[k], done) && which-- == 0)
                break;
        error = run_node(g, &g->nodes[k]);
        done[k] = true;
    }
    free(done);
    return error;
}

bool sim_graph_uses(const sim_graph *g, const sim_device *d, const char *address, size_t bytes)
{
    for (int k = 0; k < g->n; k++)
        if (sim_op_uses(&g->nodes[k].op, d, address, bytes))
            return true;
    return false;
}

/* ---- captures -------------------------------------------------------------------------------- */

static sim_capture *capture_of(int id)
{
    sim_capture *c = captures;
    while (c && c->id != id)
        c = c->next;
    return c;
}

static int spoil(sim_capture *c, int error, const char *what)
{
    c->invalid = true;
    sim_say("%s during a capture, which ends with error %d", what, error);
    return error;
}

int sim_capture_forbids(const char *function)
{
    for (sim_capture *c = captures; c; c = c->next)
        if (c->mode == MODE_GLOBAL ||
            (c->mode == MODE_THREAD_LOCAL && pthread_equal(c->thread, pthread_self())))
            return spoil(c, UNSUPPORTED, function);
    return SIM_OK;
}

int sim_capture_stream(const sim_stream *s, const char *function)
{
    sim_capture *c = capture_of(s->capture);
    return c ? spoil(c, UNSUPPORTED, function) : SIM_OK;
}

static bool grow(sim_graph *g)
{
    if (g->n < g->capacity)
        return true;
    const int more = g->capacity ? 2 * g->capacity : 64;
    node *nodes = realloc(g->nodes, (size_t)more * sizeof *nodes);
    if (!nodes)
        return false;
    g->nodes = nodes;
    g->capacity = more;
    return true;
}

/* Takes *op over, unless it fails. */
int sim_capture_op(sim_stream *s, const sim_op *op)
{
    sim_capture *c = capture_of(s->capture);
    sim_graph *g = c->graph;
    if (c->invalid)
        return INVALIDATED;
    if (op->kind == SIM_GRAPH || op->copy)
        return spoil(c, UNSUPPORTED, op->copy ? "a write from pageable memory" : "a graph");
    if (!grow(g))
        return SIM_OUT_OF_MEMORY;
    g->nodes[g->n] = (node){.op = *op, .needs = s->tails};
    s->tails = (sim_tails){.n = 1, .nodes = {g->n++}};
    return SIM_OK;
}

int sim_capture_record(sim_stream *s, sim_event *e)
{
    const sim_capture *c = capture_of(s->capture);
    if (c->invalid)
        return INVALIDATED;
    sim_point_release(e->point);
    e->point = NULL;
    e->capture = c->id;
    e->tails = s->tails;
    return SIM_OK;
}

int sim_capture_wait(sim_stream *s, const sim_event *e)
{
    sim_capture *own = capture_of(s->capture), *c = capture_of(e->capture);
    if (!c)
        return own ? spoil(own, ISOLATION, "a wait for an event from before") : MERGE;
    if (own && own != c)
        return spoil(own, MERGE, "a wait for another capture");
    if (c->invalid)
        return INVALIDATED;
    if (!own && s->first)
        return spoil(c, ISOLATION, "a wait of a stream that has other work");
    s->capture = c->id;
    return join(&s->tails, &e->tails) ? SIM_OK : SIM_OUT_OF_MEMORY;
}

int sim_capture_event(const sim_event *e, const char *function)
{
    sim_capture *c = capture_of(e->capture);
    return c ? spoil(c, CAPTURED_EVENT, function) : SIM_OK;
}

/* Are all nodes after the tails of the stream? */
static bool is_joined(const sim_graph *g, const sim_tails *tails)
{
    bool *reached = calloc((size_t)g->n + 1, sizeof *reached), all = reached;
    for (int k = 0; all && k < tails->n; k++)
        reached[tails->nodes[k]] = true;
    for (int k = g->n - 1; reached && k >= 0; k--)
        for (int i = 0; reached[k] && i < g->nodes[k].needs.n; i++)
            reached[g->nodes[k].needs.nodes[i]] = true;
    for (int k = 0; reached && k < g->n; k++)
        all = all && reached[k];
    free(reached);
    return all;
}

/* ---- the driver's functions ------------------------------------------------------------------ */

int sim_CaptureBegin(fxi_rt_stream stream, int mode)
{
    BEGIN(CaptureBegin);
    sim_stream *s = (sim_stream *)stream;
    if (s->capture || mode < MODE_GLOBAL || mode > MODE_RELAXED || s->device != sim_current())
        return sim_end(s->capture ? ILLEGAL_STATE : SIM_INVALID_VALUE);
    sim_capture *c = calloc(1, sizeof *c);
    sim_graph *g = calloc(1, sizeof *g);
    if (!c || !g) {
        free(c);
        free(g);
        return sim_end(SIM_OUT_OF_MEMORY);
    }
    *g = (sim_graph){.next = graphs, .refs = 1, .device = s->device};
    graphs = g;
    *c = (sim_capture){.next = captures,
                       .id = ++latest,
                       .mode = mode,
                       .thread = pthread_self(),
                       .origin = s,
                       .graph = g};
    captures = c;
    s->capture = c->id;
    s->tails.n = 0;
    live++;
    return sim_end(SIM_OK);
}

static int end_error(const sim_capture *c, const sim_stream *s)
{
    return c->origin != s ? UNMATCHED
           : c->mode == MODE_THREAD_LOCAL && !pthread_equal(c->thread, pthread_self())
               ? WRONG_THREAD
           : c->invalid                      ? INVALIDATED
           : !is_joined(c->graph, &s->tails) ? UNJOINED
                                             : SIM_OK;
}

int sim_CaptureEnd(fxi_rt_stream stream, fxi_rt_graph *out)
{
    /* The capture ends even if the script or the device makes this call fail; then there is no
     * graph. */
    int error = sim_begin(names.CaptureEnd, true);
    sim_stream *s = (sim_stream *)stream;
    sim_capture *c = capture_of(s->capture);
    *out = NULL;
    if (!c)
        return sim_end(error ? error : ILLEGAL_STATE);
    error = error ? error : end_error(c, s);
    if (error == WRONG_THREAD || error == UNMATCHED)
        return sim_end(error);
    sim_streams_uncaptured(c->id);
    sim_capture **link = &captures;
    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    if (error)
        release(c->graph);
    else
        *out = (fxi_rt_graph)c->graph;
    free(c);
    return sim_end(error);
}

int sim_GraphInstantiate(fxi_rt_exec *out, fxi_rt_graph graph, unsigned long long flags)
{
    BEGIN_UNCAPTURED(GraphInstantiate);
    sim_graph *g = (sim_graph *)graph;
    if (flags || !g)
        return sim_end(SIM_INVALID_VALUE);
    g->refs++;
    *out = (fxi_rt_exec)g;
    return sim_end(SIM_OK);
}

int sim_GraphLaunch(fxi_rt_exec exec, fxi_rt_stream stream)
{
    BEGIN(GraphLaunch);
    sim_graph *g = (sim_graph *)exec;
    sim_op op = {.kind = SIM_GRAPH, .graph = g};
    if (g->device != sim_current())
        return sim_end(SIM_INVALID_HANDLE);
    g->refs++;
    g->queued++;
    error = sim_queue((sim_stream *)stream, &op);
    sim_select_another();
    return sim_end(error);
}

int sim_GraphDestroy(fxi_rt_graph graph)
{
    BEGIN(GraphDestroy);
    release((sim_graph *)graph);
    return sim_end(SIM_OK);
}

/* NVIDIA's documentation allows this call while the graph runs; AMD's does not say. */
int sim_ExecDestroy(fxi_rt_exec exec)
{
    BEGIN(ExecDestroy);
    sim_graph *g = (sim_graph *)exec;
#ifdef FXI_AMDGPU
    if (g->queued > 0)
        sim_say("a graph is destroyed while it is queued");
#endif
    release(g);
    return sim_end(SIM_OK);
}

/* For simulated libraries. */
__attribute__((visibility("default"))) int sim_is_capturing(const void *stream)
{
    return ((const sim_stream *)stream)->capture != 0;
}
