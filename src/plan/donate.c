/* donate.c: results of an update take over the memory of the values that they replace, so that
 * training needs memory for one copy of the parameters, not for two.
 *
 * A result may be written over the old value if its step reads that value element by element
 * (in_place.c) and no later step reads it. A step that overwrites an old value moves to the end of
 * the plan, after the steps that read that value, if no other step reads its outputs.
 */
#include "build.h"
#include "uses.h"

#include <string.h>

/* Step numbers in this struct are positions before order_steps. */
typedef struct donation {
    bool *at_end;     /* per step: it runs after all others, because it overwrites their input */
    int32_t *taken;   /* per leaf value: 1 + the step that overwrites it; 0: none */
    bool *late;       /* per value: its step overwrites a leaf, or reads a late value */
    int32_t *results; /* per value: number of the plan's results that are in it */
    fxi_uses uses;
} donation;

static bool start(const fxi_plan *p, donation *d)
{
    d->at_end = fxi_calloc((size_t)p->nsteps + 1, sizeof *d->at_end);
    d->taken = fxi_calloc((size_t)p->nvalues + 1, sizeof *d->taken);
    d->late = fxi_calloc((size_t)p->nvalues + 1, sizeof *d->late);
    d->results = fxi_calloc((size_t)p->nvalues + 1, sizeof *d->results);
    if (!fxi_uses_list(p, &d->uses) || !d->at_end || !d->taken || !d->late || !d->results)
        return false;
    for (int32_t k = 0; k < p->noutputs; k++)
        d->results[p->results[k].value]++;
    return true;
}

/* Does a step other than m read value v? */
static bool read_elsewhere(const donation *d, int32_t v, int32_t m)
{
    for (int32_t r = d->uses.first[v]; r < d->uses.first[v + 1]; r++)
        if (d->uses.reader[r] != m)
            return true;
    return false;
}

/* Will a step read the old value after step m has overwritten it? Steps that were moved to the end
 * count, and all steps after m unless m itself moves to the end. */
static bool read_later(const donation *d, int32_t leaf, int32_t m, bool at_end)
{
    for (int32_t r = d->uses.first[leaf]; r < d->uses.first[leaf + 1]; r++) {
        const int32_t i = d->uses.reader[r];
        if (i != m && (d->at_end[i] || (!at_end && i > m)))
            return true;
    }
    return false;
}

/* Lets output k be written into the buffer of its donor. If no other step reads an output of the
 * step that computes the result, this step moves to the end. Otherwise it keeps its position, and
 * no later step may read the old value. Returns NULL on success, else the reason. */
static const char *try_donation(fxi_builder *b, int32_t k, donation *d)
{
    fxi_plan *p = b->p;
    const int32_t v = p->results[k].value, leaf = b->places[b->g->donors[k]].value,
                  m = d->uses.made[v];
    if (m < 0 || p->values[v].kind != FXI_VALUE_OUTPUT || p->values[leaf].kind != FXI_VALUE_LEAF)
        return "no step makes the new value";
    /* FX_TRACE=donation shows the reasons to users. */
    if (d->taken[leaf])
        return "another new value takes the memory of the old one";
    if (p->results[k].offset != 0 || p->values[v].bytes != p->values[leaf].bytes)
        return "the new value is of another size, or part of a larger one";
    if (fxi_reads(p, &p->steps[m], leaf, v) == FXI_READS_OTHERWISE)
        return "the step that makes the new value reads the old one out of order";
    if (d->results[v] > 1 || d->results[leaf] > 0)
        return "the old or the new value is also another result";
    /* The step may move to the end only if no step reads any of its outputs. */
    bool at_end = true;
    for (int32_t i = 0; i < fx_step_outputs(&p->steps[m]) && at_end; i++)
        at_end = !read_elsewhere(d, fx_step_output(&p->steps[m], i), m);
    if (read_later(d, leaf, m, at_end))
        return "a later step reads the old value";
    /* Two steps at the end must not read each other's old values: whichever runs second would read
     * the new one. */
    for (int i = 0; i < p->steps[m].nin && at_end; i++) {
        const int32_t by = d->taken[p->steps[m].in_value[i]];
        if (by && by != m + 1)
            return "the step reads another value that is replaced";
    }
    p->buffer_bytes[p->values[v].index] = -1; /* −1: the run allocates no buffer */
    p->values[v].kind = FXI_VALUE_DONATED;
    p->values[v].index = p->values[leaf].index;
    d->at_end[m] = at_end;
    d->taken[leaf] = m + 1;
    return NULL;
}

/* Writes the steps in a new order: those that overwrite nothing first. If a kernel among them fails
 * (an index out of range, no memory), all old values are intact. Second come the steps that
 * overwrite values and whose results are read, with their readers. The steps that were moved to the
 * end come last. */
static void order_steps(const fxi_plan *p, donation *d, fx_step *ordered)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->nsteps; i++) {
        const fx_step *s = &p->steps[i];
        bool late = false;
        for (int k = 0; k < s->nin; k++)
            late |= d->late[s->in_value[k]];
        for (int32_t k = 0; k < fx_step_outputs(s); k++)
            late |= p->values[fx_step_output(s, k)].kind == FXI_VALUE_DONATED;
        for (int32_t k = 0; k < fx_step_outputs(s); k++)
            d->late[fx_step_output(s, k)] = late;
        if (!late)
            ordered[n++] = *s;
    }
    /* Both passes keep the order of the list, so inputs still come before consumers. */
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < p->nsteps; i++)
            if (d->late[p->steps[i].out_value] && d->at_end[i] == (pass == 1))
                ordered[n++] = p->steps[i];
}

/* Reports a refused donation: the user sees why an update needs more memory. */
static void deny(const fxi_builder *b, int32_t output, const char *why)
{
    if (b->how->denied)
        b->how->denied(b->g->nodes[b->g->outputs[output]], why);
}

bool fxi_donate(fxi_builder *b)
{
    fxi_plan *p = b->p;
    bool any = false;
    for (int32_t k = 0; k < b->g->noutputs; k++)
        any |= b->g->donors[k] >= 0;
    /* Plans without donors are the most frequent. They keep their order. */
    if (!any)
        return true;
    donation d = {0};
    fx_step *ordered = fxi_malloc(((size_t)p->nsteps + 1) * sizeof *ordered);
    const bool ok = start(p, &d) && ordered;
    /* The order of the results decides, because an accepted donation can prevent later ones. */
    for (int32_t k = 0; k < p->noutputs && ok; k++) {
        if (b->g->donors[k] < 0)
            continue;
        const char *why = try_donation(b, k, &d);
        if (why)
            deny(b, k, why);
        p->donations += !why;
        p->donations_denied += why != NULL;
    }
    if (ok && p->nsteps > 0) {
        order_steps(p, &d, ordered);
        memcpy(p->steps, ordered, (size_t)p->nsteps * sizeof *ordered);
    }
    fxi_free(d.at_end);
    fxi_free(d.taken);
    fxi_free(d.late);
    fxi_free(d.results);
    fxi_uses_free(&d.uses);
    fxi_free(ordered);
    return ok;
}
