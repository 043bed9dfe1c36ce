/* sites.c: lists where the operands of each step are, so that a run computes all addresses in one
 * loop. A recorded training step, which runs the plan many times, computes the addresses only when
 * memory has moved.
 */
#include "plan.h"
#include "memory.h"

static int32_t count_sites(const fxi_plan *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->nsteps; i++)
        n += p->steps[i].nin + (p->steps[i].work_bytes > 0) + fx_step_outputs(&p->steps[i]);
    return n;
}

static void add(fxi_plan *p, int32_t value, int64_t offset)
{
    p->sites[p->nsites++] = (fxi_site){value, offset};
}

static void list_operands(fxi_plan *p, int32_t i)
{
    const fx_step *s = &p->steps[i];
    fxi_operands *o = &p->operands[i];
    const int32_t more = fx_step_more(s)->n, outputs = fx_step_outputs(s);
    o->in = p->nsites;
    for (int32_t k = 0; k < s->nin; k++)
        add(p, s->in_value[k], s->in_offset[k] * fx_tensor_element_bytes(&s->in[k]));
    o->work = s->work_bytes > 0 ? p->nsites : -1;
    if (s->work_bytes > 0)
        add(p, s->work_value, 0);
    o->outputs = p->nsites;
    for (int32_t k = 0; k < outputs; k++)
        add(p, fx_step_output(s, k), 0);
    /* The output of a foreach step is that of its last segment. */
    o->out = p->nsites - 1 - more;
    o->more = more;
}

bool fxi_list_sites(fxi_plan *p)
{
    p->sites = fxi_malloc(((size_t)count_sites(p) + 1) * sizeof *p->sites);
    p->operands = fxi_malloc(((size_t)p->nsteps + 1) * sizeof *p->operands);
    p->outside = fxi_malloc(((size_t)p->nvalues + 1) * sizeof *p->outside);
    if (!p->sites || !p->operands || !p->outside)
        return false;
    for (int32_t i = 0; i < p->nsteps; i++)
        list_operands(p, i);
    for (int32_t v = 0; v < p->nvalues; v++)
        if (p->values[v].kind == FXI_VALUE_LEAF || p->values[v].kind == FXI_VALUE_OUTPUT)
            p->outside[p->noutside++] = v;
    return true;
}
