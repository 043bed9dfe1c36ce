/* overlap.c: decides which collective steps run beside the steps that follow them.
 *
 * The run begins such a step, and finishes it before the first step that reads its result, or after
 * the last step if none reads it. Until then the communicator reads the operand and writes the
 * result, so both keep their memory.
 *
 * A step on device memory is begun if backend and communicator can do that. A step on host memory
 * of a device that has its own is begun on copies (exec/begun.c). The operand of the step must be a
 * value of the arena: an update might overwrite a leaf before the exchange has read it.
 *
 * A step is not begun if only a few small steps, such as the sum of a loss, would run beside it:
 * passing the exchange to another thread and back takes longer. Two processes that train 784-256-10
 * lost 16 µs of a training step of 430 µs in this way, to run a step of 0.5 µs beside the exchange.
 */
#include "build.h"

/* The least bytes that the steps beside an exchange read and write: about 10 µs of work of a CPU.
 * If the operand is copied, the device waits for the host, so more must run beside; how much was
 * not measured on a GPU. */
enum { LEAST_BESIDE = 64 << 10, LEAST_BESIDE_COPIES = 16 * LEAST_BESIDE };

static bool can_begin(const fxi_planner *how, const fx_collective_step *s)
{
    const fx_communicator *c = s->what.communicator;
    return s->by_backend ? how->begins && c->begin_on : c->begin != NULL;
}

/* May the run begin step s? */
static bool may_begin(const fxi_builder *b, const fx_step *s)
{
    return s->cls == FX_CLASS_COLLECTIVE && can_begin(b->how, &s->as.collective) &&
           b->p->values[s->in_value[0]].kind == FXI_VALUE_ARENA &&
           b->p->values[s->out_value].kind != FXI_VALUE_DONATED;
}

/* Is the work of steps first … end − 1 worth a thread for the exchange? The time of a custom
 * operation is unknown: the answer is then yes. Another exchange waits for this one, so it does not
 * count. */
static bool worth_beginning(const fxi_plan *p, int32_t first, int32_t end, int64_t least)
{
    int64_t bytes = 0;
    for (int32_t i = first; i < end && bytes < least; i++) {
        const fx_step *s = &p->steps[i];
        if (s->cls == FX_CLASS_CUSTOM)
            return true;
        bytes += s->cls == FX_CLASS_COLLECTIVE ? 0 : fxi_step_bytes(p, s);
    }
    return bytes >= least;
}

static int64_t least_beside(const fxi_builder *b, const fx_step *s)
{
    return b->how->own_memory && !s->as.collective.by_backend ? LEAST_BESIDE_COPIES : LEAST_BESIDE;
}

static void keep_until(fxi_value *v, int32_t step)
{
    v->last = v->last > step ? v->last : step;
}

bool fxi_overlap(fxi_builder *b)
{
    fxi_plan *p = b->p;
    bool any = false;
    for (int32_t i = 0; i < p->nsteps && !any; i++)
        any = may_begin(b, &p->steps[i]);
    if (!any)
        return true;
    /* The first step that reads each value; nsteps: none. */
    int32_t *reader = fxi_malloc(((size_t)p->nvalues + 1) * sizeof *reader);
    if (!reader)
        return false;
    for (int32_t v = 0; v < p->nvalues; v++)
        reader[v] = p->nsteps;
    for (int32_t i = p->nsteps - 1; i >= 0; i--) {
        fx_step *s = &p->steps[i];
        /* A collective step reads only its first input; the other is the previous operation. */
        const int n = s->cls == FX_CLASS_COLLECTIVE ? 1 : s->nin;
        const int32_t until = reader[s->out_value];
        for (int k = 0; k < n; k++)
            reader[s->in_value[k]] = i;
        if (!may_begin(b, s) || !worth_beginning(p, i + 1, until, least_beside(b, s)))
            continue;
        s->as.collective.until = until;
        const int32_t end = until < p->nsteps ? until : p->nsteps - 1;
        keep_until(&p->values[s->in_value[0]], end);
        keep_until(&p->values[s->out_value], end);
    }
    fxi_free(reader);
    return true;
}
