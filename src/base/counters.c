/* counters.c: the counters of the process, which fx_stats returns. */
#include "counters.h"
#include "memory.h"

fx_counters fxi_counters;
_Thread_local fx_counters *fxi_own_counters;
_Thread_local uint64_t fxi_nodes_here;

void fxi_count_nodes_here(void)
{
    fxi_count(&fxi_counters.nodes, fxi_nodes_here);
    fxi_nodes_here = 0;
}

void fxi_count_live(int64_t n)
{
    const int64_t now = __atomic_add_fetch(&fxi_counters.live_bytes, n, __ATOMIC_RELAXED);
    int64_t peak = __atomic_load_n(&fxi_counters.peak_bytes, __ATOMIC_RELAXED);
    while (now > peak && !__atomic_compare_exchange_n(&fxi_counters.peak_bytes, &peak, now, true,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

void fxi_counters_add(fx_counters *sum, const fx_counters *counts)
{
#define ADD(field)                                                                                 \
    __atomic_fetch_add(&sum->field, __atomic_load_n(&counts->field, __ATOMIC_RELAXED),             \
                       __ATOMIC_RELAXED)
    ADD(nodes);
    ADD(plans_built);
    ADD(plan_hits);
    ADD(plans_evicted);
    ADD(steps_run);
    ADD(fused_steps);
    ADD(bytes_moved);
    ADD(bytes_saved);
    ADD(allocations);
    ADD(evals);
    ADD(implicit_evals);
    ADD(donations);
    ADD(donation_misses);
    ADD(transfers);
    ADD(bytes_transferred);
    ADD(repeated_evals);
    ADD(graphs_captured);
    ADD(graphs_replayed);
    ADD(graphs_invalidated);
#undef ADD
}

fx_counters fx_stats(void)
{
    fx_counters c = {0};
    fxi_count_nodes_here();
    fxi_memory_counters(&c);
    c.live_bytes = __atomic_load_n(&fxi_counters.live_bytes, __ATOMIC_RELAXED);
    c.peak_bytes = __atomic_load_n(&fxi_counters.peak_bytes, __ATOMIC_RELAXED);
    return c;
}

const char *fx_version(void)
{
    return FX_VERSION_STRING;
}
