/* bind.c: prepares one run of a plan: allocates all memory that the run needs, and puts the graph's
 * leaves, literals and random streams into the plan's numbering.
 *
 * Everything is allocated before the first step runs, so a run that does not fit fails before it
 * has overwritten any value.
 */
#include "evaluate.h"
#include "host.h"
#include "pool.h"
#include "run.h"

#include <cflux/device.h>
#include <math.h>
#include <string.h>

/* ---- inputs ---------------------------------------------------------------------------------- */

void fxi_binding_let_go(fxi_binding *b)
{
    for (int32_t i = 0; i < b->plan->nbuffers; i++)
        if (b->buffers[i] && b->buffers[i]->refs > 1) {
            b->buffers[i]->refs--;
            b->buffers[i] = NULL;
        }
}

/* Frees a binding that may be incomplete: every pointer is NULL until its memory is allocated. The
 * arena returns to the thread's scratch, for the next run. */
void fxi_binding_free(fxi_binding *b, fxi_scratch *s)
{
    if (b->arena)
        fxi_arena_keep(s, b->arena);
    b->arena = NULL;
    if (!b->lists)
        return;
    /* Results that were handed over hold their own references to their buffers. */
    for (int32_t i = 0; i < b->plan->nbuffers; i++)
        if (b->buffers[i]) {
            fxi_buffer_release(b->buffers[i]);
            b->buffers[i] = NULL;
        }
    for (int32_t i = 0; i < b->plan->noutputs; i++)
        if (b->datas[i]) {
            fxi_data_free(b->datas[i]);
            b->datas[i] = NULL;
        }
    if (b->kept)
        return;
    fxi_free(b->lists);
    b->lists = NULL;
}

bool fxi_binding_alloc(fxi_binding *b, const fxi_graph *g)
{
    const fxi_plan *p = b->plan;
    const size_t constants = (size_t)fxi_plan_literals_bytes(p) / 8, buffers = (size_t)p->nbuffers,
                 datas = (size_t)p->noutputs, base = (size_t)p->nvalues, sites = (size_t)p->nsites,
                 leaves = (size_t)(g->nleaves + g->nconsts),
                 literals = sizeof(fxi_literal_value) / 8 * (size_t)p->nliterals;
    _Static_assert(sizeof(uint64_t) >= sizeof(void *), "a word holds an address");
    if (b->lists)
        return true;
    /* The lists that are freed entry by entry come first, and are zero until they are filled. */
    const size_t zero = constants + buffers + datas;
    uint64_t *at = fxi_malloc((zero + base + sites + leaves + literals + 1) * sizeof *at);
    if (!at)
        return false;
    memset(at, 0, zero * sizeof *at);
    b->lists = b->constants = at;
    /* Streams follow the literals, because devices with memory of their own get both in one
     * write. */
    b->streams = (uint64_t(*)[2])(b->constants + p->nliterals);
    b->buffers = (void *)(at += constants);
    b->datas = (void *)(at += buffers);
    b->base = (void *)(at += datas);
    b->at = (void *)(at += base);
    b->leaves = (void *)(at += sites);
    b->literals = (void *)(at + leaves);
    return true;
}

/* A literal that the program made as a 0-d array is first rounded to the type of that array, as if
 * the array had been converted. */
void fxi_put_literal(const fxi_node *n, uint8_t dtype, uint64_t *out)
{
    const fx_attr *a = &n->attr;
    double number = a->literal.number;
    if (!a->literal.is_integer && !n->weak && n->dtype != dtype) {
        fxi_host_put_double(n->dtype, out, number);
        number = fxi_host_double(n->dtype, out);
    }
    if (a->literal.is_integer)
        fxi_host_put_integer(dtype, out, a->literal.integer);
    else
        fxi_host_put_double(dtype, out, number);
}

/* Computes a literal from earlier ones (plan/literal.c). Float32 literals are computed in double
 * too: a sum, difference, product, quotient or root of Float32 numbers, rounded to double and then
 * to Float32, has the same bits as in Float32 arithmetic, because double has 53 bits and 2·24 + 2
 * are enough (Figueroa, 1995). */
static void compute_literal(const fxi_plan_literal *s, const fxi_plan_literal *literals,
                            uint64_t *constants, int32_t k)
{
    const double a = fxi_host_double(literals[s->in[0]].dtype, &constants[s->in[0]]);
    const double b = fxi_host_double(literals[s->in[1]].dtype, &constants[s->in[1]]);
    const double y = s->op == FX_OP_ADD    ? a + b
                     : s->op == FX_OP_SUB  ? a - b
                     : s->op == FX_OP_MUL  ? a * b
                     : s->op == FX_OP_DIV  ? a / b
                     : s->op == FX_OP_NEG  ? -a
                     : s->op == FX_OP_SQRT ? sqrt(a)
                                           : a;
    fxi_host_put_double(s->dtype, &constants[k], y);
}

/* Most literals of a recorded training step keep their values. */
static inline void bind_literal(fxi_binding *b, int32_t i, const fxi_node *n)
{
    fxi_literal_value *was = &b->literals[i];
    if (b->bound_once && was->integer == n->attr.literal.integer &&
        was->is_integer == n->attr.literal.is_integer &&
        memcmp(&was->number, &n->attr.literal.number, sizeof was->number) == 0)
        return;
    *was = (fxi_literal_value){n->attr.literal.number, n->attr.literal.integer,
                               n->attr.literal.is_integer};
    fxi_put_literal(n, b->plan->literals[i].dtype, &b->constants[i]);
}

/* Fills in the leaves, literals and random streams of this graph, by the plan's numbers. Two graphs
 * with equal keys number them alike. */
static void bind_inputs(fxi_binding *b, const fxi_graph *g)
{
    fxi_node **consts = b->leaves + g->nleaves;
    for (int32_t k = 0; k < (b->inputs ? b->ninputs : g->n); k++) {
        const int32_t i = b->inputs ? b->inputs[k] : k;
        fxi_node *n = g->nodes[i];
        if (n->data)
            b->leaves[g->slot[i]] = n;
        else if (n->op == FX_OP_CONST)
            consts[g->slot[i]] = n;
        else if (n->op == FX_OP_RANDOM)
            memcpy(b->streams[g->slot[i]], n->attr.stream, sizeof b->streams[0]);
    }
    for (int32_t i = 0; i < b->plan->nliterals; i++)
        if (b->plan->literals[i].op == FX_OP_CONST)
            bind_literal(b, i, consts[b->plan->literals[i].constant]);
        else
            compute_literal(&b->plan->literals[i], b->plan->literals, b->constants, i);
    b->bound_once = b->kept;
}

/* reserve_arena, reserve_outputs and reserve return 0 on success, else the size of the allocation
 * that failed: negative for host memory, so the error can name the right memory. */
static int64_t reserve_arena(fxi_binding *b, fxi_scratch *s)
{
    const fxi_plan *p = b->plan;
    /* Without an arena the size is 0, which the last line returns as success. */
    if (p->arena_bytes > 0)
        b->arena = fxi_arena_take(s, p->device, p->arena_bytes);
    return b->arena ? 0 : p->arena_bytes;
}

/* Makes the fxi_data of output k, or fills in the empty fxi_data that the caller gave. */
static bool reserve_output(fxi_binding *b, const fxi_graph *g, int32_t k)
{
    const fxi_result *r = &b->plan->results[k];
    const fxi_value *v = &b->plan->values[r->value];
    const fxi_node *n = g->nodes[g->outputs[k]];
    const bool own = v->kind == FXI_VALUE_OUTPUT;
    /* A result can also be a view of a leaf, or have taken over its buffer. */
    const fxi_data *leaf = own ? NULL : b->leaves[v->index]->data;
    fxi_buffer *buffer = own ? b->buffers[v->index] : leaf->buffer;
    const int64_t offset = own ? r->offset : leaf->offset + r->offset;
    /* No atomic operation on the buffer of a new or a donated value: no other thread can have it
     * yet, as only the plan or the old value refers to it. Several outputs can be views of one
     * buffer, each with a reference. */
    if (own || v->kind == FXI_VALUE_DONATED)
        buffer->refs++;
    else
        fxi_buffer_retain(buffer);
    if (v->kind != FXI_VALUE_DONATED) /* it has its name already */
        fxi_pool_name(buffer, (fx_dtype)n->dtype, n->ndim, n->shape);
    fxi_data *d = b->datas[k];
    if (!d) {
        b->datas[k] = fxi_data_new(buffer, offset, n->ndim, n->shape, r->stride);
        return b->datas[k] != NULL;
    }
    d->buffer = buffer;
    d->offset = offset;
    for (int i = 0; i < n->ndim; i++)
        d->stride[i] = r->stride[i];
    return true;
}

static int64_t reserve_outputs(fxi_binding *b, const fxi_graph *g)
{
    const fxi_plan *p = b->plan;
    for (int32_t i = 0; i < p->nbuffers; i++) {
        /* −1: the output takes over the buffer of a leaf (donate.c). */
        if (p->buffer_bytes[i] < 0)
            continue;
        b->buffers[i] = fxi_buffer_new(p->device, (size_t)p->buffer_bytes[i]);
        if (!b->buffers[i])
            /* 0 would mean success, so the failure of an empty buffer counts as one byte. */
            return p->buffer_bytes[i] > 0 ? p->buffer_bytes[i] : 1;
    }
    for (int32_t k = 0; k < p->noutputs; k++)
        if (!(b->in_place && b->in_place[k]) && !reserve_output(b, g, k))
            return -(int64_t)sizeof(fxi_data);
    return 0;
}

static int64_t reserve(fxi_binding *b, fxi_scratch *s, const fxi_graph *g)
{
    if (!fxi_binding_alloc(b, g))
        return -(int64_t)sizeof *b;
    /* Inputs are bound first, because outputs can be views of leaves. */
    bind_inputs(b, g);
    /* The arena is allocated first: if it fails, no output has to be freed. */
    const int64_t missing = reserve_arena(b, s);
    return missing ? missing : reserve_outputs(b, g);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Outputs that take over old memory have size −1 and need none. */
static int64_t result_bytes(const fxi_plan *p)
{
    int64_t n = 0;
    for (int32_t i = 0; i < p->nbuffers; i++)
        if (p->buffer_bytes[i] > 0)
            n += p->buffer_bytes[i];
    return n;
}

/* Calls reserve, but only if the plan can fit: the limit and the free memory of the device are
 * compared with all that the plan needs, before anything is allocated. The thread's kept arena
 * counts as free, because the run uses or replaces it. */
static int64_t reserve_if_it_fits(fxi_binding *b, fxi_scratch *s, const fxi_graph *g)
{
    const fxi_plan *p = b->plan;
    const fxi_buffer *kept = fxi_arena_kept(s, p->device);
    const int64_t idle = kept ? (int64_t)kept->held : 0;
    /* 0 for host memory without a limit: the system cannot tell in advance how much it will grant.
     */
    const int64_t need = fxi_device_is_bounded(p->device) ? p->arena_bytes + result_bytes(p) : 0;
    return need && !fxi_device_fits(p->device, need, idle) ? need : reserve(b, s, g);
}

static fx_status no_memory(const fxi_plan *p, int64_t missing)
{
    char needs[200], kernels[80] = "";
    /* Host memory: the figures of the device would not explain the failure. */
    if (missing < 0)
        return fxi_no_memory("eval", fx_cpu_device(), -missing, "");
    if (p->work_step >= 0)
        snprintf(kernels, sizeof kernels, " (%lld of them for the kernels of %s)",
                 (long long)fxi_plan_work_bytes(p), fxi_ops[p->steps[p->work_step].op].name);
    snprintf(needs, sizeof needs,
             "; the plan needs %lld bytes of temporary memory%s and %lld of results",
             (long long)p->arena_bytes, kernels, (long long)result_bytes(p));
    return fxi_no_memory("eval", p->device, missing, needs);
}

/* Allocates all memory of a run. If it is not enough, caches are freed and the run tries once more.
 * All kinds of caches are freed at once: this happens too rarely to be worth a try after each kind.
 */
fx_status fxi_binding_reserve(fxi_binding *b, fxi_scratch *s, const fxi_graph *g)
{
    const fxi_plan *p = b->plan;
    int64_t missing = reserve_if_it_fits(b, s, g);
    if (missing) {
        /* The parts that were allocated are freed first: they may be the memory that is missing. */
        fxi_binding_free(b, s);
        /* A plan that can never run does not cost the program its caches. */
        if (missing > 0 && !fxi_device_can_hold(p->device, p->arena_bytes + result_bytes(p)))
            return no_memory(p, missing);
        const fx_status status = fxi_reclaim_for(p->device);
        if (status != FX_OK)
            return status;
        missing = reserve_if_it_fits(b, s, g);
    }
    return missing ? no_memory(p, missing) : FX_OK;
}

static inline void *address_of(const fxi_binding *b, int32_t i, char *arena)
{
    const fxi_plan *p = b->plan;
    const fxi_value *v = &p->values[i];
    if (v->kind == FXI_VALUE_OUTPUT)
        return b->buffers[v->index]->ptr;
    if (v->kind == FXI_VALUE_ARENA)
        return arena + v->offset;
    /* If the arena holds no literals, kernels read them from host memory. */
    if (v->kind == FXI_VALUE_LITERAL)
        return p->literals_bytes ? (void *)(arena + p->literals_offset + 8 * v->index)
                                 : (void *)&b->constants[v->index];
    /* A donated value starts where its leaf starts: donors are dense and have offset 0
     * (fxi_not_donatable in graph.c). */
    const fxi_node *n = b->leaves[v->index];
    const fxi_data *d = n->data;
    return d->offset == 0 ? d->buffer->ptr
                          : (char *)d->buffer->ptr + d->offset * (int64_t)fxi_dtype_size(n->dtype);
}

/* Only the backend reads through these addresses; on a device with its own memory they mean nothing
 * to the host. The addresses of a kept binding are computed again only if a value has moved. */
void fxi_bind_values(fxi_binding *b)
{
    const fxi_plan *p = b->plan;
    /* If the plan has no arena, all its arena values are empty. They still get an address that is
     * not NULL, because C forbids adding even 0 to NULL. */
    static char empty;
    char *arena = b->arena ? b->arena->ptr : &empty;
    bool moved = b->bound != arena;
    for (int32_t k = 0; k < p->noutside && !moved; k++)
        moved = b->base[p->outside[k]] != address_of(b, p->outside[k], arena);
    if (!moved)
        return;
    for (int32_t i = 0; i < p->nvalues; i++)
        b->base[i] = address_of(b, i, arena);
    for (int32_t k = 0; k < p->nsites; k++)
        b->at[k] = (char *)b->base[p->sites[k].value] + p->sites[k].offset;
    b->bound = b->kept ? arena : NULL;
}
