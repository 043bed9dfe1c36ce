/* inside.c: finds the values that steps can compute inside the output of a concatenation, so that
 * it need not copy them.
 *
 * A concatenation along the last axis writes its operands one after the other. If a step of this
 * plan computes an operand, and no step reads it after the concatenation, that step can write the
 * operand where the concatenation would copy it to. Examples are the gradients of a bucket that is
 * sent to other processes, and the outputs of a recurrent layer.
 *
 * Only for the library's own CPU backend (fxi_planner.is_cpu), whose CONCAT steps skip such
 * operands. On a GPU a copy is a launch, which is prepared before the values have their places.
 */
#include "plan.h"

#include <string.h>

/* fxi_inside.value of a value that is inside no output. COPIED: it is an operand twice, or an
 * operand that does not fit; then no other operand with the same value is computed inside either.
 */
enum { NOWHERE = -1, COPIED = -2 };

/* Can operand k be computed `skip` bytes after the beginning of the output? It must be a whole
 * dense value, and aligned as the values of the arena are. */
static bool is_one_piece(const fxi_plan *p, const fx_step *s, int k, int64_t skip)
{
    const fx_tensor *t = &s->in[k];
    const int64_t bytes = (int64_t)fxi_tensor_bytes(t);
    return skip % FXI_ARENA_ALIGN == 0 && s->in_offset[k] == 0 && bytes > 0 &&
           bytes == p->values[s->in_value[k]].bytes && fxi_is_dense(t->ndim, t->shape, t->stride);
}

/* Is step i a concatenation whose operands are each contiguous in its output? */
static bool joins(const fxi_plan *p, int32_t i)
{
    const fx_step *s = &p->steps[i];
    if (s->op != FX_OP_CONCAT || p->values[s->out_value].kind != FXI_VALUE_ARENA)
        return false;
    for (int d = fx_step_copy(s)->axis + 1; d < s->out.ndim; d++)
        if (s->out.shape[d] != 1)
            return false;
    return true;
}

static bool find_operands(const fxi_plan *p, int32_t i, fxi_inside *inside)
{
    const fx_step *s = &p->steps[i];
    const int axis = fx_step_copy(s)->axis;
    const int64_t along = s->out.shape[axis];
    const int64_t each = along > 0 ? p->values[s->out_value].bytes / along : 0;
    int64_t skip = 0;
    bool any = false;
    for (int k = 0; k < s->nin; skip += each * s->in[k++].shape[axis]) {
        const fxi_value *v = &p->values[s->in_value[k]];
        fxi_inside *at = &inside[s->in_value[k]];
        if (at->value == s->out_value)
            at->value = COPIED;
        else if (v->kind == FXI_VALUE_ARENA && v->last == i && at->value != COPIED)
            *at = (fxi_inside){is_one_piece(p, s, k, skip) ? s->out_value : COPIED, skip};
    }
    for (int k = 0; k < s->nin; k++)
        any |= inside[s->in_value[k]].value == s->out_value;
    return any;
}

bool fxi_find_inside(const fxi_plan *p, fxi_inside *inside)
{
    bool any = false;
    for (int32_t v = 0; v < p->nvalues; v++)
        inside[v].value = NOWHERE;
    /* From the last step to the first. The output of a concatenation that is itself inside another
     * output contains no values: otherwise an offset could depend on a chain of any length. */
    for (int32_t i = p->nsteps - 1; i >= 0; i--)
        if (joins(p, i) && inside[p->steps[i].out_value].value < 0)
            any |= find_operands(p, i, inside);
    return any;
}
