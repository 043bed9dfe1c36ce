/* old_values.c: computes the values that an update replaces, if they are still pending.
 *
 * The state of an optimiser starts as zeros that are not computed yet, and so may the parameters of
 * a large layer. If the plan of the first training step computed them, it would differ from the
 * plan of all later ones, in which they are leaves whose memory the new values take over. So they
 * are computed before the graph of the update is built, and all training steps have one plan.
 */
#include "run.h"
#include "host.h"
#include "pool.h"

#include <cflux/backend.h>
#include <string.h>

/* The literal that n holds in all elements, as most old values do (fx_zeros_like); NULL: none. */
static const fxi_node *literal_of(const fxi_node *n)
{
    while (!n->data && (n->op == FX_OP_EXPAND || n->op == FX_OP_RESHAPE))
        n = n->in[0];
    return n->op == FX_OP_CONST && !n->data ? n : NULL;
}

static void put_copies(char *at, const fxi_node *n, size_t bytes)
{
    const size_t size = fx_dtype_size((fx_dtype)n->dtype);
    uint64_t value = 0;
    fxi_put_literal(literal_of(n), n->dtype, &value);
    if (value == 0) {
        memset(at, 0, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += size)
        memcpy(at + i, &value, size);
}

/* Fills the value without a plan: the plan for a model with thousands of parameters would have
 * thousands of steps and run only once. */
static fx_status fill(fxi_node *n, fx_device *device)
{
    const fx_backend *backend = device->backend;
    const size_t bytes = (size_t)fxi_length(n->ndim, n->shape) * fx_dtype_size((fx_dtype)n->dtype);
    fxi_buffer *b;
    fx_status status = fxi_buffer_need("eval", device, bytes, &b);
    if (status != FX_OK)
        return status;
    /* A device without `write` has its memory on the host. */
    char *at = backend->write ? fxi_malloc(bytes) : b->ptr;
    if (at)
        put_copies(at, n, bytes);
    if (at && backend->write)
        status = backend->write(device, b->ptr, at, bytes);
    if (backend->write)
        fxi_free(at);
    if (!at || status != FX_OK) {
        fxi_buffer_release(b);
        return at ? status : fx_fail(FX_STATUS_MEMORY, "eval", "no memory for %zu bytes", bytes);
    }
    fxi_pool_name(b, (fx_dtype)n->dtype, n->ndim, n->shape);
    fxi_data *data = fxi_data_new(b, 0, n->ndim, n->shape, NULL);
    if (!data)
        return fx_fail(FX_STATUS_MEMORY, "eval", "no memory for the array");
    fxi_node_settle(n, data);
    return FX_OK;
}

/* The pending donors of the roots, if the graph reads them. Other donors need not be computed:
 * fx_load, for example, replaces pending values without reading them. A value without a device
 * would be computed on the CPU, so it stays part of a graph of another device. */
static int list_pending(const fxi_context *c, const fxi_graph *g, int n, const fxi_root *roots,
                        fxi_root *out)
{
    int m = 0;
    for (int i = 0; i < n; i++) {
        fxi_node *old = roots[i].donor;
        if (!old || old->data || old->owner != c->id || old->mark != c->mark)
            continue;
        if (literal_of(old) || old->device == g->device ||
            (!old->device && g->device == fx_cpu_device()))
            out[m++] = (fxi_root){old, NULL};
    }
    return m;
}

/* Fills the values that are literals, and moves the others to the front of the list. */
static fx_status fill_some(fxi_root *old, int *n, fx_device *device)
{
    int left = 0;
    fx_status status = FX_OK;
    for (int i = 0; i < *n && status == FX_OK; i++)
        if (!literal_of(old[i].node))
            old[left++] = old[i];
        else if (!old[i].node->data) /* not yet filled: two handles may share a node */
            status = fill(old[i].node, old[i].node->device ? old[i].node->device : device);
    *n = left;
    return status;
}

fx_status fxi_settle_old_values(fxi_context *c, fxi_scratch *s, int n, const fxi_root *roots)
{
    fxi_root *old = fxi_malloc((size_t)n * sizeof *old);
    if (!old)
        return fxi_no_roots();
    int m = list_pending(c, &s->graph, n, roots, old);
    fx_status status = fill_some(old, &m, s->graph.device);
    if (status == FX_OK && m > 0)
        status = fxi_run_roots(c, s, m, old);
    fxi_free(old);
    return status;
}
