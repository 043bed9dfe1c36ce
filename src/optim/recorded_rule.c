/* recorded_rule.c: applications of rules in a recorded training step (value/tape.h).
 *
 * The first parameter of an optimiser computes the numbers of the rule on the host and makes its
 * literals. The next parameters with the same numbers use these literals, so the calls of their
 * applications depend on their operands only. These applications are one run: if all operands are
 * the recorded ones, it is repeated as a whole, without any call.
 */
#include "context.h"
#include "memory.h"
#include "tape.h"
#include "update_items.h"

#include <string.h>

/* The operands of an application: x, dx and the states. */
enum { OPERANDS = 2 + FXI_RULE_STATES };

typedef struct recorded_rule {
    int32_t n;                          /* operands */
    int32_t of[OPERANDS];               /* their numbers on the tape */
    int32_t value[1 + FXI_RULE_STATES]; /* entries; −1: unchanged */
} recorded_rule;

typedef struct recorded_run {
    fxi_event event;
    const fxi_rule_info *info;
    int64_t n;
    int32_t nfresh;
    fxi_node **fresh; /* while it is repeated: the leaves that no earlier entry uses */
    recorded_rule all[];
} recorded_run;

static void run_free(fxi_event *e)
{
    fxi_free(((recorded_run *)e)->fresh);
    fxi_free(e);
}

static const fxi_event_kind rule_kind = {run_free, true, NULL};

static fxi_node *operand(const fxi_item *it, int i)
{
    return fxi_item_operand(it, i)->node;
}

/* ---- noting ---------------------------------------------------------------------------------- */

/* Fills in the numbers of operands and values. False: one of them is not on the tape. */
static bool number_all(recorded_rule *r, const fxi_tape *t, const fxi_item *it)
{
    r->n = 2 + (int32_t)it->leaf->states.n;
    for (int i = 0; i < r->n; i++)
        if (!fxi_tape_find(t, operand(it, i), &r->of[i]))
            return false;
    for (int k = 0; k <= it->leaf->states.n; k++) {
        r->value[k] = -1;
        if (it->values[k] &&
            (!fxi_tape_find(t, it->values[k]->node, &r->value[k]) || r->value[k] < 0))
            return false;
    }
    return true;
}

void fxi_note_rule(fxi_context *c, fxi_rule_run *run, const fxi_items *s, int64_t i, int32_t first,
                   bool shared)
{
    const fxi_state_leaf *l = s->all[i].leaf;
    const int n = 2 + (int)l->states.n;
    fxi_tape_inside(c->tape, first);
    /* The calls of a composed rule may depend on more than its literals and operands. */
    if (!shared || n > OPERANDS || fxi_rule_parts(l->rule) ||
        !fxi_tape_can_skip(c->tape, first, false, n)) {
        run->n = 0;
        return;
    }
    if (run->n++ == 0)
        run->first = first, run->item = i;
}

void fxi_note_rules(fxi_context *c, fxi_rule_run *run, const fxi_items *s)
{
    fxi_tape *t = c->tape;
    const int64_t n = run->n;
    run->n = 0;
    if (n == 0 || !fxi_tape_notes(c))
        return;
    recorded_run *r = fxi_calloc(1, sizeof *r + (size_t)n * sizeof *r->all);
    if (!r)
        return;
    r->event.kind = &rule_kind;
    r->info = fxi_rule_info_of(s->all[run->item].leaf->rule);
    r->n = n;
    r->nfresh = t->nused - t->entries[run->first].leaves;
    r->fresh = fxi_malloc(((size_t)r->nfresh + 1) * sizeof *r->fresh);
    bool ok = r->fresh != NULL;
    for (int64_t k = 0; k < n && ok; k++)
        ok = number_all(&r->all[k], t, &s->all[run->item + k]);
    if (ok)
        fxi_tape_add(c, &r->event, run->first);
    else
        run_free(&r->event);
}

/* ---- repeating ------------------------------------------------------------------------------- */

/* Compares the operands of an application, and stores those that are new leaves. */
static bool same_operands(const fxi_tape *t, recorded_run *r, const recorded_rule *rule,
                          const fxi_item *it)
{
    if (rule->n != 2 + it->leaf->states.n)
        return false;
    for (int i = 0; i < rule->n; i++) {
        fxi_node *n = operand(it, i);
        const int32_t at = rule->of[i], next = ~at - t->nbound;
        if (at >= 0 || next < 0) {
            if (fxi_tape_node(t, at) != n)
                return false;
        } else if (next >= r->nfresh || (r->fresh[next] && r->fresh[next] != n)) {
            return false;
        } else {
            r->fresh[next] = n;
        }
    }
    return true;
}

/* The values need no handles: the update binds the handles of the program to these nodes. */
static void take_values(const fxi_tape *t, const recorded_rule *rule, fxi_item *it)
{
    for (int k = 0; k <= it->leaf->states.n; k++) {
        it->nodes[k] = rule->value[k] < 0 ? NULL : t->entries[rule->value[k]].node;
        if (it->nodes[k])
            fxi_node_retain(it->nodes[k]);
    }
}

int64_t fxi_repeat_rules(fxi_context *c, fxi_items *s, int64_t i, const fxi_literals *literals)
{
    const fxi_tape *t = c->tape;
    recorded_run *r =
        i > 0 && fxi_tape_repeats(c) ? (recorded_run *)fxi_tape_event(c, &rule_kind) : NULL;
    if (!r || r->n > s->n - i || fxi_rule_parts(literals->rule) ||
        r->info != fxi_rule_info_of(literals->rule))
        return 0;
    memset(r->fresh, 0, (size_t)r->nfresh * sizeof *r->fresh);
    for (int64_t k = 0; k < r->n; k++) {
        const fxi_item *it = &s->all[i + k];
        if (!fxi_literals_kept(literals, it->leaf->rule, fx_eltype(it->x), it->leaf->numbers) ||
            !same_operands(t, r, &r->all[k], it))
            return 0;
    }
    for (int32_t k = 0; k < r->nfresh; k++)
        if (!r->fresh[k])
            return 0;
    if (!fxi_tape_skip(c, r->event.end, r->nfresh, r->fresh))
        return 0;
    for (int64_t k = 0; k < r->n; k++) {
        memcpy(s->all[i + k].numbers, s->all[i - 1].numbers, sizeof s->all[i].numbers);
        take_values(t, &r->all[k], &s->all[i + k]);
    }
    return r->n;
}
