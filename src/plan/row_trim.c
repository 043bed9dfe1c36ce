/* row_trim.c: examines the members of a row step that has been found: counts its operands and
 * outputs, decides whether the step is made, and removes members that other steps compute better.
 */
#include "row_search.h"

/* The node whose value a member names: follows aliases, which have no memory. */
static int32_t aliased_node(const fxi_row_search *s, int32_t id)
{
    while ((s->mark[id] & FXI_ROW_MEMBER) && s->out->kind[id] == FXI_ROW_ALIAS)
        id = fxi_graph_input(s->g, id, 0);
    return id;
}

/* Is a member's value needed outside: by a node that is not a member, or as a result? */
static bool needed_outside(const fxi_row_search *s, int32_t id)
{
    for (int32_t k = s->consumers.first[id]; k < s->consumers.first[id + 1]; k++)
        if (!(s->mark[s->consumers.list[k]] & FXI_ROW_MEMBER))
            return true;
    return s->g->output[id] >= 0;
}

int32_t fxi_row_count_outputs(fxi_row_search *s)
{
    int32_t n = 0;
    fxi_row_keep_members(s);
    for (int32_t at = s->first; at <= s->last; at++) {
        const int32_t id = s->out->order[at];
        if ((s->mark[id] & FXI_ROW_MEMBER) && needed_outside(s, id))
            fxi_row_set_mark(s, aliased_node(s, id), FXI_ROW_FEEDS);
    }
    for (int32_t at = s->first; at <= s->last; at++)
        n += (s->mark[s->out->order[at]] & (FXI_ROW_MEMBER | FXI_ROW_FEEDS)) ==
             (FXI_ROW_MEMBER | FXI_ROW_FEEDS);
    return n;
}

int32_t fxi_row_count_inputs(fxi_row_search *s)
{
    int32_t n = 0;
    for (int32_t at = s->first; at <= s->last; at++) {
        const int32_t id = s->out->order[at];
        for (int k = 0; k < fxi_graph_inputs(s->g, id) && (s->mark[id] & FXI_ROW_MEMBER); k++) {
            const int32_t i = fxi_graph_input(s->g, id, k);
            n += !(s->mark[i] & (FXI_ROW_MEMBER | FXI_ROW_BEFORE));
            fxi_row_set_mark(s, i, FXI_ROW_BEFORE);
        }
    }
    return n;
}

bool fxi_row_combines(const fxi_row_search *s)
{
    int32_t reductions = 0;
    for (int32_t at = s->first; at <= s->last; at++) {
        const int32_t id = s->out->order[at];
        if (!(s->mark[id] & FXI_ROW_MEMBER) || s->out->kind[id] == FXI_ROW_ALIAS)
            continue;
        reductions += s->out->kind[id] == FXI_ROW_REDUCE;
        if (s->out->level[id] > 0 || reductions > 1)
            return true;
    }
    return false;
}

static bool full_member(const fxi_row_search *s, int32_t id)
{
    return (s->mark[id] & FXI_ROW_MEMBER) && s->out->kind[id] == FXI_ROW_FULL;
}

/* Is node id a product, or a reshape of one, that only one node reads? */
static bool single_product(const fxi_row_search *s, int32_t id)
{
    const fxi_node *n = s->g->nodes[id];
    for (; s->consumers.first[id + 1] - s->consumers.first[id] == 1 && !n->data &&
           n->op == FX_OP_RESHAPE;
         n = s->g->nodes[id])
        id = fxi_graph_input(s->g, id, 0);
    return s->consumers.first[id + 1] - s->consumers.first[id] == 1 && !n->data &&
           s->g->output[id] < 0 &&
           (n->op == FX_OP_MATMUL || (n->op == FX_OP_CONV && n->attr.conv.kind == FX_CONV_FORWARD));
}

/* Does member id add to a product? The step of the product can do that, and then stores the sum
 * instead of the product (rule 4). False if it adds what members compute: the product's step comes
 * before this one. */
static bool finishes_product(const fxi_row_search *s, int32_t id)
{
    if (!full_member(s, id) || s->g->nodes[id]->op != FX_OP_ADD)
        return false;
    const int32_t x = fxi_graph_input(s->g, id, 0), y = fxi_graph_input(s->g, id, 1);
    return !(s->mark[aliased_node(s, x)] & FXI_ROW_MEMBER) &&
           !(s->mark[aliased_node(s, y)] & FXI_ROW_MEMBER) &&
           (single_product(s, x) || single_product(s, y));
}

/* Do only elementwise nodes of full size use member id, none of them a member? A comparison must
 * not be used by a node beyond the examined positions either: outside the row step, it could become
 * a step of its own. In the row step it costs little, because its elements have one byte. */
static bool serves_later_groups(const fxi_row_search *s, int32_t id)
{
    const bool small = fx_dtype_size((fx_dtype)s->g->nodes[id]->dtype) == 1;
    for (int32_t k = s->consumers.first[id]; k < s->consumers.first[id + 1]; k++) {
        const fxi_node *n = s->g->nodes[s->consumers.list[k]];
        if (small && s->at[s->consumers.list[k]] >= s->high)
            return false;
        if ((s->mark[s->consumers.list[k]] & FXI_ROW_MEMBER) || n->data ||
            fxi_ops[n->op].cls != FX_CLASS_ELEMENTWISE || !fxi_same_shape(n, s->full))
            return false;
    }
    return s->consumers.first[id] < s->consumers.first[id + 1] && s->g->output[id] < 0;
}

/* Can member id be computed outside instead, from values that are stored anyway? Values of the row
 * may be stored for it: they are small. */
static bool made_of_stored(const fxi_row_search *s, int32_t id)
{
    for (int k = 0; k < fxi_graph_inputs(s->g, id); k++) {
        const int32_t i = fxi_graph_input(s->g, id, k);
        if (full_member(s, i) && !needed_outside(s, i))
            return false;
    }
    return true;
}

void fxi_row_prune(fxi_row_search *s)
{
    int32_t stored = 0;
    for (int32_t at = s->first; at <= s->last; at++)
        if (finishes_product(s, s->out->order[at]))
            fxi_row_leave(s, s->out->order[at]);
    for (int32_t at = s->first; at <= s->last; at++)
        stored += full_member(s, s->out->order[at]) && needed_outside(s, s->out->order[at]);
    for (int32_t at = s->last; at >= s->first && stored > 1; at--) {
        const int32_t id = s->out->order[at];
        if (!full_member(s, id) || !needed_outside(s, id) || !serves_later_groups(s, id) ||
            !made_of_stored(s, id))
            continue;
        fxi_row_leave(s, id);
        stored--;
    }
}
