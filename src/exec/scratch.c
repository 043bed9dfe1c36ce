/* scratch.c: the memory that a thread keeps between evaluations, and the functions that free caches
 * when an allocation fails or the program asks for it.
 */
#include "counters.h"
#include "evaluate.h"
#include "pool.h"
#include "run.h"
#include "tape.h"

#include <cflux/device.h>

/* Allocated on first use: threads that never evaluate have none. */
fxi_scratch *fxi_scratch_of(fxi_context *c)
{
    if (!c->scratch) {
        c->scratch = fxi_calloc(1, sizeof *c->scratch);
        if (!c->scratch)
            fx_fail(FX_STATUS_MEMORY, "eval", "no memory for the evaluator");
    }
    return c->scratch;
}

/* ---- arenas ---------------------------------------------------------------------------------- */

/* A linear search: a process has few devices. */
static int32_t arena_index(const fxi_scratch *s, const fx_device *device)
{
    for (int32_t i = 0; i < s->narenas; i++)
        if (s->arenas[i]->device == device)
            return i;
    return -1;
}

fxi_buffer *fxi_arena_kept(const fxi_scratch *s, const fx_device *device)
{
    const int32_t i = arena_index(s, device);
    return i < 0 ? NULL : s->arenas[i];
}

/* A kept arena that is too small is freed before the larger one is allocated, so both never exist
 * at once. */
fxi_buffer *fxi_arena_take(fxi_scratch *s, fx_device *device, int64_t bytes)
{
    const int32_t i = arena_index(s, device);
    if (i >= 0) {
        fxi_buffer *arena = s->arenas[i];
        /* The last entry fills the gap: the list has no order. */
        s->arenas[i] = s->arenas[--s->narenas];
        if ((int64_t)arena->bytes >= bytes)
            return arena;
        fxi_buffer_release(arena);
    }
    return fxi_buffer_new(device, (size_t)bytes);
}

/* If the list cannot grow, that is not an error: the arena is freed, and allocated again later. */
void fxi_arena_keep(fxi_scratch *s, fxi_buffer *arena)
{
    /* One arena for each device: fxi_arena_take removed the previous one. */
    if (fxi_grow(&s->arenas, &s->arena_capacity, s->narenas + 1, sizeof *s->arenas))
        s->arenas[s->narenas++] = arena;
    else
        fxi_buffer_release(arena);
}

/* Frees the kept arena of a device; NULL: of all devices. */
static void reclaim_arenas(fxi_scratch *s, const fx_device *device)
{
    /* Backwards, because the last entry fills the gap of a freed one. A thread that never evaluated
     * has no scratch. */
    for (int32_t i = s ? s->narenas - 1 : -1; i >= 0; i--)
        if (!device || s->arenas[i]->device == device) {
            fxi_buffer_release(s->arenas[i]);
            s->arenas[i] = s->arenas[--s->narenas];
        }
}

/* ---- the plan -------------------------------------------------------------------------------- */

void fxi_plan_drop(fxi_scratch *s)
{
    if (!s || !s->plan)
        return;
    fxi_plan_release(s->plan);
    s->plan = NULL;
}

/* ---- freeing caches -------------------------------------------------------------------------- */

void fxi_scratch_free(fxi_context *c)
{
    fxi_scratch *s = c->scratch;
    if (!s)
        return;
    fxi_plan_drop(s);
    fxi_graph_free(&s->graph);
    fxi_free(s->roots);
    fxi_free(s->foreign);
    reclaim_arenas(s, NULL);
    fxi_free(s->arenas);
    fxi_free(s);
    c->scratch = NULL;
}

/* Tests count allocations, so an empty list of promises is freed too. */
void fxi_reclaim_all(void)
{
    fxi_context *c = fxi_here();
    fxi_tapes_free(c);
    fxi_scratch_free(c);
    if (c->npromises == 0) {
        fxi_free(c->promises);
        c->promises = NULL;
        c->promise_capacity = 0;
    }
    fxi_plans_reclaim();
    fxi_pools_reclaim();
    fxi_memory_reclaim();
}

/* Frees caches, then waits for the device, which may still use memory that was freed; then drops
 * idle plans. If the device reports a failure of earlier work, that is the error, not the lack of
 * memory. */
fx_status fxi_reclaim_for(fx_device *device)
{
    fxi_tapes_free(fxi_here());
    fxi_plan_drop(fxi_here()->scratch);
    reclaim_arenas(fxi_here()->scratch, device);
    /* A freed arena returns its memory to the pool, so the pool is freed after the arenas. */
    fxi_pool_reclaim(device);
    fxi_memory_reclaim();
    const fx_status status = device->backend->sync ? device->backend->sync(device) : FX_OK;
    fxi_plans_reclaim_idle();
    return status;
}

void fx_reclaim(void)
{
    fxi_tapes_free(fxi_here());
    fxi_plan_drop(fxi_here()->scratch);
    reclaim_arenas(fxi_here()->scratch, NULL);
    fxi_plans_reclaim_idle();
    fxi_pools_reclaim();
    fxi_memory_reclaim_all();
}

void fx_reclaim_device(fx_device *device)
{
    device = device ? device : fx_cpu_device();
    reclaim_arenas(fxi_here()->scratch, device);
    fxi_pool_reclaim(device);
    /* Host memory is cached for each thread, not for each device. */
    if (fxi_device_on_host(device))
        fxi_memory_reclaim();
}
