/* lower_row.c: makes the register program of a row step from its members.
 *
 * Instructions are ordered by pass: first those that compute values of the row, then those that
 * compute its elements. A member whose operands are all values of the row, and that is needed only
 * inside, is computed once for each row, not for each element. Elements are computed in the first
 * pass that reads them, not in the first pass that could compute them: a backend stores a whole row
 * of every value that a later pass reads, but the operands of the row step are in memory anyway.
 *
 * Aliases name the register of the value that they rename. So do twins: members that compute the
 * same as an earlier member. Gradients often repeat sums of the row that the forward computation
 * already needs.
 */
#include "build.h"

#include <string.h>

typedef struct row_group {
    const fxi_builder *b;
    int32_t members[FXI_ROW_ALL]; /* in the order of execution */
    bool row[FXI_ROW_ALL];        /* one value for each row */
    uint8_t pass[FXI_ROW_ALL];
    int32_t aliases[FXI_ROW_ALL];
    /* twins[i] has the value of originals[i]. */
    int32_t twins[FXI_ROW_ALL], originals[FXI_ROW_ALL];
    int32_t operands[FXI_ROW_INPUTS];
    const fxi_node *nodes[FXI_ROW_INPUTS]; /* of the operands */
    int nmembers, naliases, ntwins, noperands;
} row_group;

/* The node that computes input k of a member; aliases and twins of this row step are followed. */
static int32_t input_of(const row_group *q, int32_t id, int k)
{
    const fxi_rows *r = &q->b->groups.rows;
    const int32_t row = r->row[id];
    id = fxi_graph_input(q->b->g, id, k);
    /* Only aliases of this row step: one of another step has a place in memory (place_aliases). */
    while (r->row[id] == row && r->kind[id] == FXI_ROW_ALIAS)
        id = fxi_graph_input(q->b->g, id, 0);
    const int twin = fxi_find_id(q->twins, q->ntwins, id);
    return twin >= 0 ? q->originals[twin] : id;
}

static bool is_member(const row_group *q, int32_t id)
{
    return q->b->groups.rows.row[id] == q->b->groups.rows.row[q->members[0]];
}

/* Do members a and b compute the same value? Twins are followed before inputs are compared. Since
 * members are listed oldest first, this finds whole repeated expressions. */
static bool same_value(const row_group *q, int32_t a, int32_t b)
{
    const fxi_node *x = q->b->g->nodes[a], *y = q->b->g->nodes[b];
    if (x->op != y->op || x->dtype != y->dtype || x->nin != y->nin || x->ndim != y->ndim ||
        memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape) != 0 ||
        memcmp(x->attr.words, y->attr.words, fxi_ops[x->op].attr_words * sizeof *x->attr.words) !=
            0)
        return false;
    for (int k = 0; k < x->nin; k++)
        if (input_of(q, a, k) != input_of(q, b, k))
            return false;
    return true;
}

/* Lists node id as an alias, a twin or a member. A stored member is never a twin: it needs an
 * output of its own. */
static void list_member(row_group *q, int32_t id)
{
    if (q->b->groups.rows.kind[id] == FXI_ROW_ALIAS) {
        q->aliases[q->naliases++] = id;
        return;
    }
    for (int m = 0; m < q->nmembers && !q->b->groups.stored[id]; m++)
        if (same_value(q, id, q->members[m])) {
            q->twins[q->ntwins] = id;
            q->originals[q->ntwins++] = q->members[m];
            return;
        }
    q->members[q->nmembers++] = id;
}

/* Lists the members oldest first, so that an original is known before its twins. */
static void list_members(row_group *q, int32_t root)
{
    int32_t newest_first[FXI_ROW_ALL];
    int n = 0;
    for (int32_t i = root; i >= 0; i = q->b->groups.next[i])
        newest_first[n++] = i;
    while (n-- > 0)
        list_member(q, newest_first[n]);
}

static void list_operands(row_group *q)
{
    for (int m = 0; m < q->nmembers; m++) {
        const int32_t id = q->members[m];
        for (int k = 0; k < fxi_graph_inputs(q->b->g, id); k++) {
            const int32_t x = input_of(q, id, k);
            if (is_member(q, x) || fxi_find_id(q->operands, q->noperands, x) >= 0)
                continue;
            q->nodes[q->noperands] = q->b->g->nodes[x];
            q->operands[q->noperands++] = x;
        }
    }
}

/* Is input k of a member the same for all elements of a row? */
static bool one_a_row(const row_group *q, int32_t id, int k)
{
    const int32_t x = input_of(q, id, k);
    if (is_member(q, x))
        return q->row[fxi_find_id(q->members, q->nmembers, x)];
    return q->b->g->nodes[x]->ndim == 0 || q->b->groups.literal[x];
}

/* Finds the members that need one value for each row: fewer instructions, and no tile of memory for
 * the result. */
static void find_row_values(row_group *q)
{
    for (int m = 0; m < q->nmembers; m++) {
        const int32_t id = q->members[m];
        const uint8_t kind = q->b->groups.rows.kind[id];
        q->row[m] = kind != FXI_ROW_FULL && kind != FXI_ROW_ACROSS;
        if (q->row[m] || q->b->groups.stored[id])
            continue;
        /* A node of full size, but all its operands may be values of the row: then all elements of
         * a row are equal. Members that compute operands are earlier in the list, so their answers
         * are known here. */
        q->row[m] = true;
        for (int k = 0; k < fxi_graph_inputs(q->b->g, id); k++)
            q->row[m] &= one_a_row(q, id, k);
    }
}

/* The first pass of the members that read node id, apart from member `but`; FXI_ROW_PASSES if there
 * are none. Readers are later in the list. */
static int first_reader(const row_group *q, int32_t id, int but)
{
    int first = FXI_ROW_PASSES;
    for (int m = q->nmembers - 1; m >= 0 && q->members[m] != id; m--)
        for (int k = 0; m != but && k < fxi_graph_inputs(q->b->g, q->members[m]); k++)
            if (input_of(q, q->members[m], k) == id && q->pass[m] < first)
                first = q->pass[m];
    return first;
}

/* Does member m compute elements of the row that only other members read? */
static bool is_inner(const row_group *q, int m)
{
    const int32_t id = q->members[m];
    return !q->row[m] && q->b->groups.rows.kind[id] == FXI_ROW_FULL && !q->b->groups.stored[id];
}

/* Can member m be computed in the later pass `pass` without keeping more values between passes?
 * Operands that other members read earlier must then be kept for m, but the value of m need not be
 * kept. */
static bool keeps_few(const row_group *q, int m, int pass)
{
    int more = 0;
    for (int k = 0; k < fxi_graph_inputs(q->b->g, q->members[m]); k++) {
        const int32_t x = input_of(q, q->members[m], k);
        more += is_member(q, x) && is_inner(q, fxi_find_id(q->members, q->nmembers, x)) &&
                first_reader(q, x, m) < pass;
    }
    return more < 2;
}

/* Newest first, because readers are delayed before what they read. */
static void choose_passes(row_group *q)
{
    for (int m = 0; m < q->nmembers; m++)
        q->pass[m] = q->b->groups.rows.level[q->members[m]];
    for (int m = q->nmembers - 1; m >= 0; m--) {
        const int first = is_inner(q, m) ? first_reader(q, q->members[m], m) : 0;
        if (first < FXI_ROW_PASSES && first > q->pass[m] && keeps_few(q, m, first))
            q->pass[m] = (uint8_t)first;
    }
}

/* The sort key of member m: its pass, values of the row before elements. Reductions belong to the
 * elements: they are accumulated while the row is read. */
static int stage(const row_group *q, int m)
{
    return 2 * q->pass[m] + !(q->row[m] && q->b->groups.rows.kind[q->members[m]] != FXI_ROW_REDUCE);
}

/* Sorts the members by stage. Insertion sort: it is stable, so operands stay before their users,
 * and there are at most FXI_ROW_ALL members. */
static void order_members(row_group *q)
{
    for (int i = 1; i < q->nmembers; i++)
        for (int k = i; k > 0 && stage(q, k) < stage(q, k - 1); k--) {
            const int32_t id = q->members[k];
            const bool row = q->row[k];
            const uint8_t pass = q->pass[k];
            q->members[k] = q->members[k - 1];
            q->row[k] = q->row[k - 1];
            q->pass[k] = q->pass[k - 1];
            q->members[k - 1] = id;
            q->row[k - 1] = row;
            q->pass[k - 1] = pass;
        }
}

/* Registers 0 … noperands−1 are the inputs, as in elementwise programs (lower.c). */
static uint8_t register_of(const row_group *q, int32_t id)
{
    const int k = fxi_find_id(q->operands, q->noperands, id);
    return (uint8_t)(k >= 0 ? k : q->noperands + fxi_find_id(q->members, q->nmembers, id));
}

static bool make_program(const row_group *q, fx_program *p)
{
    p->instr = fxi_calloc((size_t)q->nmembers, sizeof *p->instr);
    if (!p->instr)
        return false;
    p->n = q->nmembers;
    for (int m = 0; m < q->nmembers; m++) {
        const int32_t id = q->members[m];
        const fxi_node *n = q->b->g->nodes[id];
        fx_instr *ins = &p->instr[m];
        /* As in lower.c, `from` is the type of the last operand. */
        *ins = (fx_instr){.op = n->op,
                          .dtype = n->dtype,
                          .from = n->in[n->nin - 1]->dtype,
                          .nsrc = (uint8_t)n->nin,
                          .row = q->row[m],
                          .pass = q->pass[m],
                          .attr = fxi_instr_attr(n)};
        for (int i = 0; i < n->nin; i++)
            ins->src[i] = register_of(q, input_of(q, id, i));
    }
    return true;
}

static void set_space(fx_row_step *row, const fxi_node *reduction)
{
    const fxi_node *x = reduction->in[0];
    int kept = -1, last = -1;
    /* The space is the full shape. A row has the first reduced axis and the reduced axes after it
     * up to the next kept axis. If kept axes are before them, the rows are columns (row.h). If axes
     * after the last kept axis are reduced too, all axes after that kept axis are part of the row.
     * Axes of size 1 change nothing. */
    fxi_set_space(&row->space, x);
    row->outer_axes = 0;
    row->column_axes = 0;
    for (int k = 0; k < x->ndim; k++) {
        const bool reduced = x->shape[k] != reduction->shape[k];
        if (reduced && last < 0)
            row->column_axes = (uint8_t)(kept < 0 ? 0 : k);
        if (reduced && (last < 0 || kept < last))
            last = k;
        else if (reduced)
            row->outer_axes = x->ndim - 1 - kept;
        else if (x->shape[k] != 1)
            kept = k;
    }
    row->row_axes = last + 1 - row->column_axes;
}

/* All sums across rows have one shape (row.c). */
static void set_across(fx_row_step *row, const fxi_node *sum)
{
    row->across_axes = 0;
    for (int k = 0; k < sum->ndim; k++)
        if (sum->shape[k] != sum->in[0]->shape[k])
            row->across_axes |= (uint8_t)(1u << k);
}

/* Has the value of member m the whole shape? */
static bool is_full(const row_group *q, int m)
{
    return !q->row[m] && q->b->groups.rows.kind[q->members[m]] != FXI_ROW_ACROSS;
}

/* The main output is the last stored member of the whole shape, or the last stored one if there is
 * none. The other stored members are further outputs. */
static bool set_outputs(fxi_builder *b, int32_t step, const row_group *q)
{
    int main_member = -1;
    for (int m = 0; m < q->nmembers; m++)
        if (b->groups.stored[q->members[m]] &&
            (main_member < 0 || is_full(q, m) || !is_full(q, main_member)))
            main_member = m;
    for (int m = 0; m < q->nmembers; m++) {
        const int32_t id = q->members[m];
        const fxi_node *n = b->g->nodes[id];
        fx_step *s = &b->p->steps[step];
        /* A member that no node outside reads stays in a tile of the backend. */
        if (!b->groups.stored[id])
            continue;
        if (m == main_member) {
            s->as.row.out_reg = (uint8_t)(q->noperands + m);
            if (!fxi_set_output(b, s, n, &b->places[id]))
                return false;
            continue;
        }
        const int32_t v = fxi_add_value(b->p, FXI_VALUE_ARENA, 0, fxi_node_bytes(n));
        fx_more_outputs *more = &s->as.row.more;
        more->reg[more->n] = (uint8_t)(q->noperands + m);
        more->value[more->n++] = v;
        b->places[id] = (fxi_place){.value = v, .dense = -1};
        fxi_dense_strides(n->ndim, n->shape, b->places[id].stride);
        if (v < 0)
            return false;
    }
    return true;
}

/* Nodes outside the step see an alias as a view of the stored value that it names. */
static void place_aliases(fxi_builder *b, const row_group *q)
{
    for (int k = 0; k < q->naliases; k++) {
        const int32_t id = q->aliases[k], x = fxi_graph_input(b->g, id, 0);
        /* A value that only members read is not in memory. Then no node outside reads the alias
         * either. */
        if (b->places[x].value >= 0)
            fxi_view(b->g->nodes[id], &b->places[x], &b->places[id]);
    }
}

bool fxi_lower_row(fxi_builder *b, int32_t root)
{
    row_group q = {.b = b};
    list_members(&q, root);
    list_operands(&q);
    find_row_values(&q);
    choose_passes(&q);
    order_members(&q);
    fxi_place in;
    /* Copies must be in the list before the step that reads them. */
    for (int i = 0; i < q.noperands; i++)
        if (!fxi_plain_place(b, q.operands[i], &in))
            return false;
    fx_step *s = fxi_add_step(b, FX_OP_REDUCE, q.noperands, NULL);
    if (!s)
        return false;
    /* A row step has no single operation. Messages name it REDUCE, because every row step has a
     * reduction. */
    s->cls = FX_CLASS_ROW;
    for (int i = 0; i < q.noperands; i++) {
        /* The copies exist by now, so this call adds no step and cannot fail. */
        fxi_plain_place(b, q.operands[i], &in);
        fxi_set_input(s, i, q.nodes[i], &in);
    }
    for (int m = 0; m < q.nmembers; m++)
        if (b->groups.rows.kind[q.members[m]] == FXI_ROW_REDUCE)
            set_space(&s->as.row, b->g->nodes[q.members[m]]);
        else if (b->groups.rows.kind[q.members[m]] == FXI_ROW_ACROSS)
            set_across(&s->as.row, b->g->nodes[q.members[m]]);
    if (!make_program(&q, &s->as.row.program) || !set_outputs(b, b->p->nsteps - 1, &q))
        return false;
    place_aliases(b, &q);
    return true;
}
