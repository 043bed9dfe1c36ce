/* literal.c: planner rule 6: values that depend on literals only are computed on the host.
 *
 * The gradient of a mean begins with 1, converted to Float64, divided by the number of elements and
 * converted back: a step for one number, which on a GPU is a launch. Such a number is a literal of
 * the plan, like those that it is made of. Each run computes it again, because literals are not
 * part of the key (graph.h) and may differ between runs.
 *
 * Only operations that IEEE 754 rounds correctly are computed this way, and only on Float32 and
 * Float64: their results do not depend on who computes them, so FX_EAGER=1 gives the same bits.
 * All elements of such a value are equal, so a movement of it is a view of the literal.
 */
#include "literal.h"

/* The operations that bind.c computes. */
static bool exact(uint8_t op)
{
    return op == FX_OP_CAST || op == FX_OP_ADD || op == FX_OP_SUB || op == FX_OP_MUL ||
           op == FX_OP_DIV || op == FX_OP_NEG || op == FX_OP_SQRT;
}

static bool is_real(const fxi_node *n)
{
    return n->dtype == FX_DTYPE_F32 || n->dtype == FX_DTYPE_F64;
}

/* Is n computed on the host if its inputs are literals? */
static bool computable(const fxi_node *n)
{
    if (fxi_ops[n->op].cls == FX_CLASS_MOVEMENT)
        return true;
    if (!exact(n->op) || !is_real(n))
        return false;
    for (int k = 0; k < n->nin; k++)
        if (!is_real(n->in[k]))
            return false;
    return true;
}

void fxi_find_literals(const fxi_graph *g, bool computes, bool *out)
{
    /* Inputs come before consumers. */
    for (int32_t i = 0; i < g->n; i++) {
        const fxi_node *n = g->nodes[i];
        out[i] = !n->data && (n->op == FX_OP_CONST || fxi_is_cast_literal(n) ||
                              (computes && n->nin > 0 && computable(n)));
        for (int k = 0; k < fxi_graph_inputs(g, i) && out[i]; k++)
            out[i] = out[fxi_graph_input(g, i, k)];
    }
}

/* Adds a literal that is computed from those of the inputs. */
static bool place_computed(fxi_builder *b, int32_t id)
{
    const fxi_node *n = b->g->nodes[id];
    fxi_plan_literal made = {.dtype = n->dtype, .op = n->op};
    for (int k = 0; k < n->nin; k++)
        made.in[k] = b->p->values[b->places[fxi_graph_input(b->g, id, k)].value].index;
    const int32_t v = fxi_add_literal(b->p, made);
    b->places[id] = (fxi_place){.value = v, .dense = -1};
    return v >= 0;
}

/* `constant` is the graph's number of the literal; the plan's literal adds the type in which node
 * id needs it. */
static bool place_constant(fxi_builder *b, int32_t id, int32_t constant)
{
    const int32_t v = fxi_add_literal(b->p, (fxi_plan_literal){.constant = constant,
                                                               .dtype = b->g->nodes[id]->dtype,
                                                               .op = FX_OP_CONST});
    b->places[id] = (fxi_place){.value = v, .dense = -1};
    return v >= 0;
}

bool fxi_place_literal(fxi_builder *b, int32_t id)
{
    const fxi_node *n = b->g->nodes[id];
    if (n->op == FX_OP_CONST)
        return place_constant(b, id, b->g->slot[id]);
    if (fxi_is_cast_literal(n))
        return place_constant(b, id, b->g->slot[fxi_graph_input(b->g, id, 0)]);
    if (fxi_ops[n->op].cls != FX_CLASS_MOVEMENT)
        return place_computed(b, id);
    /* All elements are the one number, whatever the movement. */
    const int32_t v = b->places[fxi_graph_input(b->g, id, 0)].value;
    b->places[id] = (fxi_place){.value = v, .dense = -1};
    return true;
}
