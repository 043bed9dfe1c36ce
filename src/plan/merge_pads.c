/* merge_pads.c: on the CPU, paddings of several axes with one number become one step.
 *
 * fx_pad pads one axis, so a border around a matrix is two operations, and each of them would read
 * and write the whole matrix. The outer step takes the operand of the inner one if nothing else
 * reads the array between them. Both must read the same literal: the key of a plan does not contain
 * numbers, so two literals that are equal now may differ in a later run. fx_pad therefore uses the
 * literal of the inner padding again if the numbers are equal.
 */
#include "build.h"
#include "step.h"
#include "uses.h"

/* Does step s pad exactly the array that step f computes, with the same number? */
static bool pads_whole(const fx_step *f, const fx_step *s)
{
    return f->op == FX_OP_PAD && s->in_value[1] == f->in_value[1] && s->in_offset[0] == 0 &&
           fxi_same_view(&s->in[0], &f->out) && fx_tensor_length(&s->out) > 0;
}

/* Makes s pad what f pads. */
static void take_operand(fx_step *s, const fx_step *f)
{
    int64_t inner[FX_MAX_DIMS], outer[FX_MAX_DIMS], position = 0;
    fxi_pad_before(f, inner);
    fxi_pad_before(s, outer);
    for (int d = 0; d < s->out.ndim; d++)
        position += (inner[d] + outer[d]) * s->out.stride[d];
    s->as.copy = (fx_copy_step){.axis = FXI_PAD_AXES, .before = position};
    s->in[0] = f->in[0];
    s->in_value[0] = f->in_value[0];
    s->in_offset[0] = f->in_offset[0];
}

/* Is v computed in the plan, and read by one step only? */
static bool is_private(const fxi_plan *p, const fxi_uses *u, int32_t v)
{
    return p->values[v].kind == FXI_VALUE_ARENA && u->made[v] >= 0 &&
           u->first[v + 1] - u->first[v] == 1;
}

/* A step follows the step that computes its operand, so paddings of three axes are merged one after
 * the other.
 */
static void merge_all(fxi_plan *p, const fxi_uses *u)
{
    for (int32_t j = 0; j < p->nsteps; j++) {
        fx_step *s = &p->steps[j];
        if (s->op != FX_OP_PAD || !is_private(p, u, s->in_value[0]))
            continue;
        fx_step *f = &p->steps[u->made[s->in_value[0]]];
        if (!pads_whole(f, s))
            continue;
        take_operand(s, f);
        f->op = FX_OP_COUNT;
    }
    int32_t n = 0;
    for (int32_t j = 0; j < p->nsteps; j++)
        if (p->steps[j].op == FX_OP_COUNT)
            fxi_step_free(&p->steps[j]);
        else
            p->steps[n++] = p->steps[j];
    p->nsteps = n;
}

bool fxi_merge_pads(fxi_plan *p)
{
    fxi_uses u;
    int32_t pads = 0;
    for (int32_t i = 0; i < p->nsteps; i++)
        pads += p->steps[i].op == FX_OP_PAD;
    if (pads < 2)
        return true;
    const bool ok = fxi_uses_list(p, &u);
    if (ok)
        merge_all(p, &u);
    fxi_uses_free(&u);
    return ok;
}
