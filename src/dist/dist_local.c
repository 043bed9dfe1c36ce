/* dist_local.c: means over the GPUs of one process by NCCL or RCCL.
 *
 * Each set of devices has a connection for each device. A mean is one collective step for each
 * device, which the backend runs with its stream. The steps run one after the other in one thread,
 * so each only stores its operands, and the last one queues the operations of all devices as a
 * group. The host waits until they are queued, not until they have ended.
 *
 * The plugin and the library are opened, and the devices are connected, when they are first needed.
 * If that fails, it is not tried again, and fx_average copies. Sets stay until the process ends,
 * because plans refer to their communicators.
 */
#include "dist_local.h"

#include "c_text.h"
#include "clock.h"
#include "dist_group.h"
#include "error.h"
#include "evaluate.h"
#include "memory.h"
#include "plugin_file.h"
#include "primitives.h"
#include "reads.h"
#include "this_process.h"

#include <stdio.h>
#include <string.h>

enum { SETS = 8 }; /* the most sets of devices; fx_average copies for further sets */
/* Seconds. Connecting eight GPUs takes a few. */
#define LONGEST 120

/* The queue and the buffers of one device, which its step stored. */
typedef struct part {
    fx_device_queue queue;
    const void *in;
    void *out;
} part;

typedef struct device_set {
    int32_t n;
    const fx_device *devices[FXI_LOCAL_MOST];
    fx_communicator members[FXI_LOCAL_MOST];
    void *connections[FXI_LOCAL_MOST];
    const fxi_device_transport *library;
    bool connected, failed; /* failed: could not connect, or an operation failed */
    int32_t arrived;        /* steps of the present operation so far */
    part parts[FXI_LOCAL_MOST];
    char why[FXI_DIST_WHY]; /* of a failure of the library; "": none */
} device_set;

static fxi_mutex lock = FXI_MUTEX_INIT; /* protects everything here: one operation at a time */
static device_set sets[SETS];
static int nsets;

/* ---- the library ----------------------------------------------------------------------------- */

/* By library of fxi_device_libraries. */
static struct {
    bool tried;
    const fxi_device_transport *library;
} opened[FXI_DIST_DEVICES];

static const fxi_device_transport *library_for(const char *backend)
{
    const int k = fxi_device_library_of(backend);
    if (k == FXI_DIST_DEVICES)
        return NULL;
    const char *file = fxi_trusted_variable(fxi_device_libraries[k].variable);
    const bool off = file && strcmp(file, "off") == 0;
    if (!opened[k].tried && !off)
        opened[k].library = fxi_device_transport_find(fxi_device_libraries[k].plugin);
    opened[k].tried = true;
    return opened[k].library;
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* A connection whose operation failed is abandoned, because destroying it could block forever. */
static void give_up(device_set *s)
{
    for (int k = 0; k < s->n; k++)
        if (s->connections[k])
            s->library->abandon(s->connections[k]);
    memset(s->connections, 0, sizeof s->connections);
    s->connected = false;
    s->failed = true;
}

/* Waits until all connections take calls. */
static bool wait_for_all(device_set *s, char *why, size_t size)
{
    const double begin = fxi_clock();
    for (int k = 0; k < s->n;) {
        char reason[FXI_DIST_REASON] = "";
        const fxi_device_state state = s->library->state(s->connections[k], reason, sizeof reason);
        if (state == FXI_DEVICE_FAILED) {
            snprintf(why, size, "%s: %s", fx_device_name(s->devices[k]), reason);
            return false;
        }
        if (state == FXI_DEVICE_READY) {
            k++;
            continue;
        }
        const double waited = fxi_clock() - begin;
        if (waited > LONGEST) {
            snprintf(why, size, "%s: %s did not begin within %d s", fx_device_name(s->devices[k]),
                     s->library->head.name, LONGEST);
            return false;
        }
        if (waited > 0.002)
            fxi_sleep_milliseconds(1);
    }
    return true;
}

/* Selects device k of the set for this thread. */
static bool select_device(const device_set *s, int k, char *why, size_t size)
{
    const fx_device_queue *q = &s->parts[k].queue;
    return q->select(q, why, size) == 0;
}

/* Calls `act` for each device between the begin and the end of a group. The group is ended after a
 * failure too: otherwise it would include the thread's later calls. */
static bool in_a_group(device_set *s, bool (*act)(device_set *s, int k, char *why, size_t size),
                       char *why, size_t size)
{
    const char *failed = s->library->group(true);
    if (failed) {
        snprintf(why, size, "%s", failed);
        return false;
    }
    bool ok = true;
    for (int k = 0; k < s->n && ok; k++)
        ok = select_device(s, k, why, size) && act(s, k, why, size);
    failed = s->library->group(false);
    if (ok && failed)
        snprintf(why, size, "%s", failed);
    return ok && !failed && wait_for_all(s, why, size);
}

static fxi_device_id id; /* of the connections that are being made */

static bool join(device_set *s, int k, char *why, size_t size)
{
    const char *failed = s->library->join(&id, k, s->n, &s->connections[k]);
    if (!failed)
        return true;
    snprintf(why, size, "%s: %s", fx_device_name(s->devices[k]), failed);
    return false;
}

static bool connect(device_set *s, char *why, size_t size)
{
    const char *failed = s->library->new_id(&id);
    if (failed)
        snprintf(why, size, "%s", failed);
    s->connected = !failed && in_a_group(s, join, why, size);
    return s->connected;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static const fx_step *step_now; /* of the operation that is being queued */

static bool reduce(device_set *s, int k, char *why, size_t size)
{
    char reason[FXI_DIST_REASON] = "";
    const fxi_transport_call c = {.kind = FX_COLLECTIVE_ALL_REDUCE,
                                  .fold = FX_REDUCE_MEAN,
                                  .dtype = step_now->out.dtype,
                                  .count = fx_tensor_length(&step_now->out),
                                  .in = s->parts[k].in,
                                  .out = s->parts[k].out};
    if (s->library->run(s->connections[k], &c, s->parts[k].queue.stream, reason, sizeof reason) ==
        FX_OK)
        return true;
    snprintf(why, size, "%s: %s", fx_device_name(s->devices[k]), reason);
    return false;
}

static bool takes(const fx_communicator *self, const char *backend, const fx_step *step)
{
    (void)self, (void)backend, (void)step;
    return true;
}

static fx_status run_on(const fx_communicator *self, const fx_device_queue *queue,
                        const fx_step *step, const void *in, void *out, char *why, size_t size)
{
    device_set *s = &sets[(const device_set *)self->user - sets];
    s->parts[self->rank] = (part){.queue = *queue, .in = in, .out = out};
    if (++s->arrived < s->n)
        return FX_OK;
    step_now = step;
    const bool ok = (s->connected || connect(s, s->why, sizeof s->why)) &&
                    in_a_group(s, reduce, s->why, sizeof s->why);
    /* The backend continues with the device of this step. */
    const bool selected = queue->select(queue, why, size) == 0;
    if (!ok)
        snprintf(why, size, "%s", s->why);
    return selected && ok ? FX_OK : FX_STATUS_DEVICE;
}

/* Never called: the backend takes every step. */
static fx_status run(const fx_communicator *self, const fx_step *step, const void *in, void *out,
                     char *why, size_t size)
{
    (void)self, (void)step, (void)in, (void)out;
    snprintf(why, size, "the backend did not take the step");
    return FX_STATUS_UNSUPPORTED;
}

/* ---- sets of devices ------------------------------------------------------------------------- */

static bool is_of(const device_set *s, int n, fx_array *const *vectors)
{
    bool same = s->n == n;
    for (int k = 0; k < n && same; k++)
        same = s->devices[k] == fx_array_device(vectors[k]);
    return same;
}

/* The devices must differ, and belong to one backend. */
static bool can_connect(int n, fx_array *const *vectors)
{
    for (int k = 0; k < n; k++)
        for (int i = 0; i < k; i++) {
            const fx_device *a = fx_array_device(vectors[i]), *b = fx_array_device(vectors[k]);
            if (a == b || a->backend != b->backend)
                return false;
        }
    return n >= 2 && n <= FXI_LOCAL_MOST;
}

static device_set *set_of(int n, fx_array *const *vectors)
{
    for (int i = 0; i < nsets; i++)
        if (is_of(&sets[i], n, vectors))
            return &sets[i];
    if (nsets == SETS || !can_connect(n, vectors))
        return NULL;
    const fxi_device_transport *library =
        library_for(fx_array_device(vectors[0])->backend->head.name);
    if (!library)
        return NULL;
    device_set *s = &sets[nsets++];
    *s = (device_set){.n = n, .library = library};
    for (int k = 0; k < n; k++) {
        s->devices[k] = fx_array_device(vectors[k]);
        s->members[k] = (fx_communicator){.fxi_size = sizeof s->members[k],
                                          .name = library->head.name,
                                          .rank = k,
                                          .size = n,
                                          .user = s,
                                          .run = run,
                                          .takes = takes,
                                          .run_on = run_on};
    }
    return s;
}

/* ---- the mean -------------------------------------------------------------------------------- */

/* 16-bit numbers are added in Float32, as in average_devices.c. */
static fx_array *mean_of(const device_set *s, int k, fx_array *x)
{
    const bool narrow = fx_dtype_size(fx_eltype(x)) < sizeof(float);
    return fxi_collective(&(const fx_collective){.communicator = &s->members[k],
                                                 .kind = FX_COLLECTIVE_ALL_REDUCE,
                                                 .fold = FX_REDUCE_MEAN},
                          narrow ? fx_cast(x, FX_DTYPE_F32) : x);
}

static fx_status evaluate(device_set *s, fx_array *const *vectors, fx_array **out)
{
    fxi_context *c = fxi_here();
    fxi_node *nodes[FXI_LOCAL_MOST], *before = c->collective;
    fx_status status = FX_OK;
    c->collective = NULL; /* an operation of a group of processes must not run here: it waits for
                             other processes */
    s->arrived = 0;
    for (int k = 0; k < s->n && status == FX_OK; k++) {
        out[k] = mean_of(s, k, vectors[k]);
        status = fx_array_status(out[k]);
        nodes[k] = out[k]->node;
    }
    if (status == FX_OK)
        status = fxi_evaluate(c, s->n, nodes);
    if (c->collective)
        fxi_node_release(c->collective);
    c->collective = before;
    for (int k = 0; k < s->n && status == FX_OK; k++) {
        fxi_array_cut(out[k]);
        out[k] = fx_cast(out[k], fx_eltype(vectors[k]));
        status = fx_array_status(out[k]);
    }
    return status;
}

/* If the devices cannot be connected, a warning gives the reason, and fx_average copies instead. */
static fx_status mean(device_set *s, fx_array *const *vectors, fx_array **out)
{
    const bool connects = !s->connected;
    const fx_error earlier = fx_error_take();
    fx_status status = evaluate(s, vectors, out);
    const fx_error mine = fx_error_take();
    fxi_error_carry(&earlier);
    if (status == FX_OK)
        return FX_OK;
    const bool refused = connects && !s->connected && *s->why;
    if (s->arrived == s->n)
        give_up(s);
    if (refused) {
        fx_message(1, "average: copies are used instead of %s: %s", s->library->head.name, s->why);
        return FX_STATUS_UNSUPPORTED;
    }
    if (*s->why)
        return fx_fail(FX_STATUS_DEVICE, "average", "%s: %s", s->library->head.name, s->why);
    fxi_error_carry(&mine);
    return status;
}

fx_status fxi_local_mean(int n, fx_array *const *vectors, fx_array **out)
{
    fxi_mutex_lock(&lock);
    device_set *s = set_of(n, vectors);
    const fx_status status = s && !s->failed ? mean(s, vectors, out) : FX_STATUS_UNSUPPORTED;
    fxi_mutex_unlock(&lock);
    return status;
}
