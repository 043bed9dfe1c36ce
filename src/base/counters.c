/* counters.c: the counters of the process, which fx_stats returns. */
#include "counters.h"

fx_counters fxi_counters;
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

fx_counters fx_stats(void)
{
    fx_counters c;
    fxi_count_nodes_here();
#define LOAD(field) c.field = __atomic_load_n(&fxi_counters.field, __ATOMIC_RELAXED)
    LOAD(nodes);
    LOAD(plans_built);
    LOAD(plan_hits);
    LOAD(plans_evicted);
    LOAD(steps_run);
    LOAD(fused_steps);
    LOAD(bytes_moved);
    LOAD(bytes_saved);
    LOAD(allocations);
    LOAD(evals);
    LOAD(implicit_evals);
    LOAD(donations);
    LOAD(donation_misses);
    LOAD(transfers);
    LOAD(bytes_transferred);
    LOAD(repeated_evals);
    LOAD(graphs_captured);
    LOAD(graphs_replayed);
    LOAD(graphs_invalidated);
    LOAD(live_bytes);
    LOAD(peak_bytes);
#undef LOAD
    return c;
}

const char *fx_version(void)
{
    return FX_VERSION_STRING;
}
