/* copied_rule.c: applies a rule to further parameters by copying the nodes of an application.
 *
 * A formula makes a handle for each intermediate value, and each of its calls checks its operands.
 * Further parameters with the same literals get the same nodes with other operands, because nearly
 * all formulas are elementwise. So the nodes of one application become a list, from which the nodes
 * of further parameters are made without calls and handles. The graph is the one that the formula
 * would have made.
 *
 * A list is made only if all its nodes are elementwise, and if all arrays of the application have
 * one shape and device, have axes and are not empty. The last two conditions exclude 0-d values,
 * which broadcast, and formulas that do nothing for an empty array. In a recorded training step the
 * tape has to note the calls, and recorded_rule.c repeats them.
 */
#include "error.h"
#include "handle.h"
#include "primitives.h"
#include "update_items.h"

#include <cflux/ops.h>
#include <string.h>

enum { NOT_LISTED = -1, REFUSED = -2 }; /* instead of the number of nodes */
/* Operand i has number i, literal i the number LITERALS + i, and entry k of the list the number
 * FXI_COPIED_GIVEN + k. */
enum { LITERALS = 2 + FXI_RULE_STATES, NO_NUMBER = -1 };

/* ---- the list -------------------------------------------------------------------------------- */

/* The nodes of the operands. False unless all are non-empty arrays with axes, of one shape, and on
 * one device or all on none. */
static bool operands_of(const fxi_context *c, const fxi_item *it, fxi_node **nodes)
{
    const fxi_node *x = fxi_array_ok(it->x) ? it->x->node : NULL;
    /* The sizes of copies are not checked again (node_copy.h). */
    if (!x || x->ndim == 0 || fxi_length(x->ndim, x->shape) == 0 ||
        !fxi_sizes_fit(FX_DTYPE_F64, x->ndim, x->shape))
        return false;
    for (int i = 0; i < fxi_item_operands(it); i++) {
        const fx_array *a = fxi_item_operand(it, i);
        if (!fxi_array_ok(a))
            return false;
        fxi_node *n = a->node;
        if (!fxi_node_usable(c, n) || n->weak || n->device != x->device || !fxi_same_shape(n, x))
            return false;
        nodes[i] = n;
    }
    return true;
}

/* Gives a node a number during the walk. False: it has one already, or belongs to another thread.
 */
static bool give_number(const fxi_context *c, fxi_node *n, int number)
{
    if (n->owner != c->id || n->mark == c->mark)
        return false;
    n->mark = c->mark;
    n->id = (uint32_t)number;
    return true;
}

/* Numbers the operands. False: two of them have the same node, so that a node of the application
 * does not tell which of them it reads. */
static bool number_operands(const fxi_context *c, fxi_copied_rule *r)
{
    bool ok = true;
    for (int i = 0; i < fxi_item_operands(r->from) && ok; i++) {
        r->dtypes[i] = (fx_dtype)r->values[i]->dtype;
        ok = give_number(c, r->values[i], i);
    }
    return ok;
}

/* A literal without a number is copied like other nodes. */
static void number_literals(const fxi_context *c, fxi_copied_rule *r, const fxi_literals *l)
{
    for (int i = 0; i < l->n && i < FXI_COPIED_LITERALS; i++)
        if (l->at[i] && give_number(c, l->at[i]->node, LITERALS + i))
            r->values[LITERALS + i] = l->at[i]->node;
}

/* Can the application of another parameter have a node like n? */
static bool can_copy(const fxi_node *n, const fxi_node *x)
{
    const bool number = n->op == FX_OP_CONST, whole = n->ndim > 0;
    return !(n->data || n->wanted || n->on_demand || n->grad || n->tied || n->ghost) &&
           (number || fxi_ops[n->op].cls == FX_CLASS_ELEMENTWISE) && (number || !n->weak) &&
           (!whole || fxi_same_shape(n, x)) && n->device == (whole ? x->device : NULL);
}

/* The number of n, which is added to the list after its inputs. NO_NUMBER: it cannot be copied. The
 * recursion is not deeper than the list is long. */
static int number_of(const fxi_context *c, fxi_copied_rule *r, fxi_node *n, int depth)
{
    int16_t in[3];
    if (n->mark == c->mark && n->owner == c->id)
        return (int32_t)n->id;
    if (depth == FXI_COPIED_NODES || !can_copy(n, r->from->x->node))
        return NO_NUMBER;
    for (int i = 0; i < n->nin; i++) {
        const int number = number_of(c, r, n->in[i], depth + 1);
        if (number == NO_NUMBER)
            return NO_NUMBER;
        in[i] = (int16_t)number;
    }
    const int number = FXI_COPIED_GIVEN + r->n;
    if (r->n == FXI_COPIED_NODES || !give_number(c, n, number))
        return NO_NUMBER;
    fxi_copied_node *e = &r->all[r->n++];
    e->op = n->op;
    e->dtype = n->dtype;
    e->nin = (uint8_t)n->nin;
    e->weak = n->weak;
    e->whole = n->ndim > 0;
    e->attr = n->attr;
    for (int i = 0; i < n->nin; i++)
        e->in[i] = in[i];
    return number;
}

static bool list(fxi_context *c, fxi_copied_rule *r, const fxi_literals *l)
{
    const fxi_item *it = r->from;
    bool ok = operands_of(c, it, r->values) && !fxi_rule_divides(it->leaf->rule);
    c->mark++;
    r->n = 0;
    ok = ok && number_operands(c, r);
    if (ok)
        number_literals(c, r, l);
    for (int k = 0; k <= it->leaf->states.n && ok; k++) {
        r->value[k] = NO_NUMBER;
        if (!it->values[k])
            continue;
        r->value[k] = (int16_t)number_of(c, r, it->values[k]->node, 0);
        ok = r->value[k] != NO_NUMBER;
    }
    r->n = ok ? r->n : REFUSED;
    return ok;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Does the application of `it` make the nodes of the list? Its operands become those of r. */
static bool alike(const fxi_context *c, const fxi_item *it, fxi_copied_rule *r)
{
    const fxi_item *from = r->from;
    if (it->total != from->total || it->leaf->states.n != from->leaf->states.n ||
        !operands_of(c, it, r->values))
        return false;
    for (int i = 0; i < fxi_item_operands(it); i++)
        if (r->values[i]->dtype != r->dtypes[i])
            return false;
    return true;
}

/* Makes the nodes of the list, and sets those of the new values. The list has only nodes that a new
 * value is computed from, so each of them has a reader or is retained here. */
static fx_status copy_all(fxi_context *c, fxi_copied_rule *r, fxi_item *it)
{
    if (!fxi_nodes_copy(c, r->n, r->all, it->x->node, FXI_COPIED_GIVEN, r->values))
        return fxi_error_latest();
    for (int k = 0; k <= it->leaf->states.n; k++)
        if (r->value[k] != NO_NUMBER) {
            it->nodes[k] = r->values[r->value[k]];
            fxi_node_retain(it->nodes[k]);
        }
    return FX_OK;
}

void fxi_copy_begin(fxi_copied_rule *r, const fxi_item *it)
{
    r->from = it;
    r->n = NOT_LISTED;
}

bool fxi_copy_rule(fxi_copied_rule *r, fxi_item *it, const fxi_literals *l, fx_status *out)
{
    const fxi_state_leaf *leaf = it->leaf;
    if (!r->from || r->n == REFUSED || fxi_here()->tape ||
        !fxi_literals_kept(l, leaf->rule, fx_eltype(it->x), leaf->numbers))
        return false;
    fxi_context *c = fxi_begin();
    if ((r->n == NOT_LISTED && !list(c, r, l)) || !alike(c, it, r))
        return false;
    memcpy(it->numbers, r->from->numbers, sizeof it->numbers);
    *out = copy_all(c, r, it);
    return true;
}
