/* early.c: products and reductions run as soon as their operands exist, if that frees memory.
 *
 * Steps come in the order in which a walk of the graph finishes their nodes (row_order.c changes
 * the order of large graphs). After a gradient has been taken, this walk finishes the gradients of
 * weights last, so the activations and all their gradients stay in memory until then. A gradient of
 * a weight is small: computed directly after the step that makes its operand, it ends the life of
 * two large values.
 *
 * Only products, convolutions and reductions are moved, because their outputs are often smaller
 * than their inputs. The bits do not depend on the order.
 */
#include "build.h"
#include "uses.h"

#include <string.h>

/* A value with more readers is not examined, so that the time stays linear. */
enum { READERS = 32 };

typedef struct moving {
    const fxi_plan *p;
    fxi_uses uses;
    int32_t *after; /* per step: the step that it runs directly after; its own number if it stays */
} moving;

static bool start(moving *m)
{
    m->after = fxi_malloc(((size_t)m->p->nsteps + 1) * sizeof *m->after);
    for (int32_t i = 0; m->after && i < m->p->nsteps; i++)
        m->after[i] = i;
    return fxi_uses_list(m->p, &m->uses) && m->after;
}

/* The step after which all operands of step i exist; −1: they exist before the plan runs. If a step
 * that computes an operand is itself moved, the step after which it will run counts. */
static int32_t latest_producer(const moving *m, int32_t i)
{
    const fx_step *s = &m->p->steps[i];
    int32_t latest = -1;
    for (int k = 0; k < s->nin; k++) {
        const int32_t by = m->uses.made[s->in_value[k]];
        latest = by >= 0 && m->after[by] > latest ? m->after[by] : latest;
    }
    return latest;
}

/* The number of steps by which the life of value v gets shorter if its reader i moves to after step
 * `to`; 0 if another step reads v as late as i does now. */
static int32_t steps_saved(const moving *m, int32_t v, int32_t i, int32_t to)
{
    int32_t end = to;
    if (m->p->values[v].kind != FXI_VALUE_ARENA ||
        m->uses.first[v + 1] - m->uses.first[v] > READERS)
        return 0;
    for (int32_t r = m->uses.first[v]; r < m->uses.first[v + 1]; r++)
        if (m->uses.reader[r] != i)
            end = m->after[m->uses.reader[r]] > end ? m->after[m->uses.reader[r]] : end;
    return end < i ? i - end : 0;
}

/* The decrease of the sum, over all steps, of the bytes that are kept, if step i moves to after
 * step `to`. Its outputs are kept for longer, its operands perhaps not as long. A double, because
 * bytes × steps can exceed 2^63. */
static double gain(const moving *m, int32_t i, int32_t to)
{
    const fx_step *s = &m->p->steps[i];
    double sum = 0;
    for (int k = 0; k < s->nin; k++) {
        bool again = false;
        for (int j = 0; j < k; j++)
            again |= s->in_value[j] == s->in_value[k];
        if (!again)
            sum +=
                (double)m->p->values[s->in_value[k]].bytes * steps_saved(m, s->in_value[k], i, to);
    }
    for (int32_t k = 0; k < fx_step_outputs(s); k++)
        if (m->p->values[fx_step_output(s, k)].kind == FXI_VALUE_ARENA)
            sum -= (double)m->p->values[fx_step_output(s, k)].bytes * (i - to);
    return sum;
}

/* Visits the steps from the last to the first: when the last reader of a value has moved, the
 * reader before it becomes the last one. */
static bool choose(moving *m)
{
    bool any = false;
    for (int32_t i = m->p->nsteps - 1; i >= 0; i--) {
        const uint8_t cls = m->p->steps[i].cls;
        const int32_t to = latest_producer(m, i);
        if ((cls != FX_CLASS_MATMUL && cls != FX_CLASS_CONV && cls != FX_CLASS_REDUCE) || to < 0 ||
            to >= i - 1 || gain(m, i, to) <= 0)
            continue;
        m->after[i] = to;
        any = true;
    }
    return any;
}

/* Writes the steps in their new order: after each step that stays come the steps that moved there.
 * Two moved steps of which one computes an operand of the other may follow the same step, in their
 * old order. */
static void order_steps(moving *m, int32_t *next, int32_t *head, fx_step *ordered)
{
    const int32_t n = m->p->nsteps;
    int32_t at = 0;
    memset(head, -1, (size_t)n * sizeof *head);
    /* `choose` decided on readers before it moved the steps that compute their operands. */
    for (int32_t i = 0; i < n; i++)
        if (m->after[i] != i)
            m->after[i] = latest_producer(m, i);
    /* The lists are filled from their ends, so they are in the old order. */
    for (int32_t i = n - 1; i >= 0; i--) {
        if (m->after[i] == i)
            continue;
        next[i] = head[m->after[i]];
        head[m->after[i]] = i;
    }
    for (int32_t i = 0; i < n; i++) {
        if (m->after[i] != i)
            continue;
        ordered[at++] = m->p->steps[i];
        for (int32_t k = head[i]; k >= 0; k = next[k])
            ordered[at++] = m->p->steps[k];
    }
}

bool fxi_run_early(fxi_plan *p)
{
    moving m = {.p = p};
    bool ok = start(&m);
    if (ok && choose(&m)) {
        const size_t n = (size_t)p->nsteps + 1;
        int32_t *next = fxi_malloc(n * sizeof *next), *head = fxi_malloc(n * sizeof *head);
        fx_step *ordered = fxi_malloc(n * sizeof *ordered);
        ok = next && head && ordered;
        if (ok) {
            order_steps(&m, next, head, ordered);
            memcpy(p->steps, ordered, (size_t)p->nsteps * sizeof *ordered);
        }
        fxi_free(next);
        fxi_free(head);
        fxi_free(ordered);
    }
    fxi_free(m.after);
    fxi_uses_free(&m.uses);
    return ok;
}
