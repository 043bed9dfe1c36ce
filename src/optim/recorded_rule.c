/* recorded_rule.c: applications of rules in a recorded training step (value/tape.h).
 *
 * The first parameter of an optimiser computes the numbers of the rule on the host and makes its
 * literals. The next parameters with the same numbers use these literals, so the calls of their
 * applications depend on their operands only: if the operands are the recorded ones, the
 * application is repeated as a whole, without any call.
 */
#include "rules.h"
#include "state_parts.h"
#include "tape.h"

#include "memory.h"

/* The operands of an application: x, dx and the states. */
enum { OPERANDS = 2 + FXI_RULE_STATES };

typedef struct recorded_rule {
    fxi_event event;
    const fxi_rule_info *info;
    int n;                              /* operands */
    int32_t of[OPERANDS];               /* their numbers on the tape */
    int32_t value[1 + FXI_RULE_STATES]; /* entries; −1: unchanged */
} recorded_rule;

static void rule_free(fxi_event *e)
{
    fxi_free(e);
}

static const fxi_event_kind rule_kind = {rule_free, true, NULL};

static fxi_node *operand(const fxi_rule_call *call, int i)
{
    return (i == 0 ? call->x : i == 1 ? call->dx : call->states[i - 2])->node;
}

/* Fills in the numbers of operands and values. False: one of them is not on the tape. */
static bool number_all(recorded_rule *r, const fxi_tape *t, const fxi_rule_call *call)
{
    for (int i = 0; i < r->n; i++)
        if (!fxi_tape_find(t, operand(call, i), &r->of[i]))
            return false;
    for (int k = 0; k <= call->nstates; k++) {
        r->value[k] = -1;
        if (call->values[k] &&
            (!fxi_tape_find(t, call->values[k]->node, &r->value[k]) || r->value[k] < 0))
            return false;
    }
    return true;
}

void fxi_note_rule(fxi_context *c, int32_t first, bool shared, const fxi_rule_call *call)
{
    fxi_tape *t = c->tape;
    const int n = 2 + call->nstates;
    fxi_tape_inside(t, first);
    /* The calls of a composed rule for a parameter may depend on more than the calls for the
     * previous parameter. */
    if (!shared || n > OPERANDS || fxi_rule_parts(call->rule) ||
        !fxi_tape_can_skip(t, first, false, n))
        return;
    recorded_rule *r = fxi_calloc(1, sizeof *r);
    if (!r)
        return;
    r->event.kind = &rule_kind;
    r->info = fxi_rule_info_of(call->rule);
    r->n = n;
    if (number_all(r, t, call))
        fxi_tape_add(c, &r->event, first);
    else
        fxi_free(r);
}

bool fxi_repeat_rule(fxi_context *c, const fxi_rule_call *call)
{
    const fxi_tape *t = c->tape;
    const recorded_rule *r = (recorded_rule *)fxi_tape_event(c, &rule_kind);
    fxi_node *fresh[OPERANDS] = {NULL};
    int nfresh = 0;
    if (!r || r->n != 2 + call->nstates || r->info != fxi_rule_info_of(call->rule) ||
        fxi_rule_parts(call->rule))
        return false;
    for (int i = 0; i < r->n; i++) {
        fxi_node *n = operand(call, i);
        const int32_t at = r->of[i], next = ~at - t->nbound;
        if (at >= 0 || next < 0) {
            if (fxi_tape_node(t, at) != n)
                return false;
        } else if (next < OPERANDS) {
            nfresh += !fresh[next];
            fresh[next] = n;
        }
    }
    for (int i = 0; i < nfresh; i++)
        if (!fresh[i])
            return false;
    if (!fxi_tape_skip(c, r->event.end, nfresh, fresh))
        return false;
    for (int k = 0; k <= call->nstates; k++)
        call->values[k] = r->value[k] < 0 ? NULL : fxi_array_of(t->entries[r->value[k]].node);
    return true;
}
