/* uses.c: lists which steps of a plan compute and read each value. */
#include "uses.h"
#include "memory.h"
#include "step.h"

#include <string.h>

bool fxi_uses_list(const fxi_plan *p, fxi_uses *out)
{
    const size_t n = (size_t)p->nvalues;
    int32_t reads = 0;
    for (int32_t i = 0; i < p->nsteps; i++)
        reads += p->steps[i].nin;
    *out = (fxi_uses){.made = fxi_malloc((n + 1) * sizeof *out->made),
                      .first = fxi_calloc(n + 2, sizeof *out->first),
                      .reader = fxi_malloc(((size_t)reads + 1) * sizeof *out->reader)};
    if (!out->made || !out->first || !out->reader)
        return false;
    memset(out->made, -1, n * sizeof *out->made);
    for (int32_t i = 0; i < p->nsteps; i++) {
        for (int32_t k = 0; k < fx_step_outputs(&p->steps[i]); k++)
            out->made[fx_step_output(&p->steps[i], k)] = i;
        /* Counted two entries further on, because filling advances each start to its end
         * (fxi_graph_consumers in graph.c does the same). */
        for (int k = 0; k < p->steps[i].nin; k++)
            out->first[p->steps[i].in_value[k] + 2]++;
    }
    for (size_t v = 2; v < n + 2; v++)
        out->first[v] += out->first[v - 1];
    for (int32_t i = 0; i < p->nsteps; i++)
        for (int k = 0; k < p->steps[i].nin; k++)
            out->reader[out->first[p->steps[i].in_value[k] + 1]++] = i;
    return true;
}

void fxi_uses_free(fxi_uses *u)
{
    fxi_free(u->made);
    fxi_free(u->first);
    fxi_free(u->reader);
}
