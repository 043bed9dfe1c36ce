/* row.c: planner rule 3: finds reductions of rows whose result is combined again with the values
 * that were reduced (softmax, layer norm, cross-entropy), or that share an operand (gradients of
 * scale and bias). A pure function of the graph.
 *
 * A row step computes several nodes for one row of memory before it starts the next row, so the row
 * is read from memory once. It starts with one reduction. Sweeps along the order of computation add
 * nodes that use its members; sweeps against the order add nodes that its members are computed
 * from. A node may join if it is elementwise, or a reduction of the same rows.
 *
 * A node must stay outside if it would close a cycle, that is if a path from a member to the node,
 * or from the node to a member, leads through nodes outside. A later sweep can remove a member
 * again, so the last sweep tests all of them.
 *
 * Members need not be neighbours in the graph: a loss is often recorded before the gradient which
 * shares its row values. So the order of computation is changed to bring them together. Row steps
 * found earlier are moved, and tested for cycles, as one unit.
 *
 * The level of a member is the number of passes over the row that must be complete before the pass
 * of the member. Measurements: docs/design/0007.
 */
#include "row_search.h"
#include "build.h"

#include <string.h>

/* Limits of a search. Nodes farther than WINDOW from the first reduction are not examined:
 * otherwise every reduction would sweep the whole graph, and the time would be quadratic. Sweeps
 * alternate at most ROUNDS times. */
enum { WINDOW = 512, ROUNDS = 4 };

/* ---- what fits ------------------------------------------------------------------------------- */

/* The reductions that the row kernels have as instructions. */
static bool reducible(int64_t kind)
{
    return kind == FX_REDUCE_SUM || kind == FX_REDUCE_MAX || kind == FX_REDUCE_MIN ||
           kind == FX_REDUCE_SQDEV;
}

/* Are rows of `reduced` bytes short enough? There are `kept` rows. If they are around kept axes
 * (row.h), `piece` is the number of elements in a piece, else 0. Contiguous rows of more than
 * s->longest bytes fit only in the second-level cache, so there must be enough rows for several
 * threads. Rows around kept axes must always be that many, in pieces that are long enough for
 * vectors. A device that divides rows between work-groups reads them from memory in each pass, as
 * separate steps would do, so rows around kept axes may have any length there. */
static bool fits(const fxi_row_search *s, int64_t piece, int64_t kept, int64_t reduced)
{
    const bool enough =
        kept >= FXI_ROW_PIECE && (reduced <= FXI_ROW_AROUND || (piece && s->own_memory));
    return piece ? s->around && piece >= FXI_ROW_PIECE && enough : enough || reduced <= s->longest;
}

/* Can the rows be columns (row.h) of `terms` elements, if `before` columns are neighbours in
 * memory? The work-items of a GPU read neighbouring columns, of at most FXI_ROW_BYTES each. The CPU
 * reads wide blocks of them, or all neighbours, and these must fit in the second-level cache. Fewer
 * than FXI_ROW_COLUMNS elements are not worth the calls of a block. */
static bool fits_columns(const fxi_row_search *s, int64_t before, int64_t terms, int64_t size)
{
    const int64_t column = terms * (size < 4 ? 4 : size);
    const bool stays = column <= FXI_ROW_COLUMN || before * column <= FXI_ROW_PLANE;
    return before * terms >= FXI_ROW_COLUMNS &&
           (stays || (s->longest > FXI_ROW_BYTES && column <= FXI_ROW_BYTES));
}

/* The sizes of the four runs of axes that a reduction of rows may have, in the order of memory:
 * kept, reduced, kept, reduced. A run that does not exist has size 1. */
enum { BEFORE, TERMS, KEPT, OUTER, RUNS };

/* False if the axes of reduction n have more runs. Axes of size 1 do not count. */
static bool find_runs(const fxi_node *n, int64_t run[RUNS])
{
    const fxi_node *x = n->in[0];
    int at = BEFORE;
    run[BEFORE] = run[TERMS] = run[KEPT] = run[OUTER] = 1;
    for (int k = 0; k < n->ndim; k++) {
        if (x->shape[k] == 1)
            continue;
        at += FXI_AXIS_IN(n->attr.reduce.mask, k) != (at == TERMS || at == OUTER);
        if (at == RUNS)
            return false;
        run[at] *= x->shape[k];
    }
    return true;
}

/* Is n a reduction of rows: of contiguous ones that are short enough (fits), of rows around a kept
 * axis, or of columns? 16-bit elements count with the 4 bytes that they have in registers. */
static bool reduces_rows(const fxi_row_search *s, const fxi_node *n)
{
    int64_t run[RUNS];
    if (n->data || n->op != FX_OP_REDUCE || !reducible(n->attr.reduce.fold) || !find_runs(n, run))
        return false;
    const fxi_node *x = n->in[0];
    const bool half = x->dtype == FX_DTYPE_F16 || x->dtype == FX_DTYPE_BF16;
    const int64_t size = half ? (int64_t)sizeof(float) : (int64_t)fx_dtype_size((fx_dtype)x->dtype),
                  row = run[TERMS] * run[OUTER] * size;
    /* An empty array has no rows to share, and a reduction over axes of size 1 changes nothing. */
    if (fxi_same_shape(x, n) || fxi_length(x->ndim, x->shape) == 0)
        return false;
    if (run[BEFORE] > 1)
        return s->around && run[OUTER] == 1 && fits_columns(s, run[BEFORE], run[TERMS], size);
    return fits(s, run[OUTER] > 1 ? run[TERMS] : 0, run[KEPT], row);
}

/* Like reduces_rows, but false for columns. A step that reads columns, block by block, takes longer
 * than reductions that walk memory in order. So it is made only if its values are expanded
 * (find_seeds), which saves passes. */
static bool reduces_pieces(const fxi_row_search *s, const fxi_node *n)
{
    int64_t run[RUNS];
    return reduces_rows(s, n) && find_runs(n, run) && run[BEFORE] == 1;
}

/* May n be a sum across the rows of the step that grows, such as the gradient of the scale of a
 * norm? The rows are contiguous. The sum keeps the last axes of a row, so neighbouring terms or
 * neighbouring results are neighbours in memory. It adds up many rows, and its result is small. All
 * these sums of a step have one shape. */
static bool sums_across(const fxi_row_search *s, const fxi_node *n)
{
    if (n->data || n->op != FX_OP_REDUCE || n->attr.reduce.fold != FX_REDUCE_SUM ||
        !fxi_same_shape(n->in[0], s->full) || (s->sums && !fxi_same_shape(n, s->sums)))
        return false;
    const uint8_t type = n->in[0]->dtype;
    int64_t sizes[2][2] = {{1, 1}, {1, 1}};
    int64_t *const inside = sizes[0], *const outside = sizes[1];
    for (int k = 0; k < n->ndim; k++) {
        const int64_t size = s->full->shape[k];
        const bool added = n->shape[k] != size, own = s->reduced->shape[k] != size;
        /* Inside a row, added axes come before kept ones; outside, after them. */
        if (size > 1 && (own ? added && inside[false] > 1 : !added && outside[true] > 1))
            return false;
        (own ? inside : outside)[added] *= size;
    }
    return (type <= FX_DTYPE_F64 || type == FX_DTYPE_F16 || type == FX_DTYPE_BF16) &&
           inside[false] > 1 && inside[false] * outside[false] <= FXI_ROW_SUMS &&
           outside[true] >= FXI_ROW_PIECE;
}

/* The role that node n would have in the row step that grows, from its operation and shape alone.
 */
static fxi_row_kind kind_of(const fxi_row_search *s, int32_t id)
{
    const fxi_node *n = s->g->nodes[id];
    if (n->data || s->literal[id])
        return FXI_ROW_NONE;
    const bool full = fxi_same_shape(n, s->full), reduced = fxi_same_shape(n, s->reduced);
    if (fxi_ops[n->op].cls == FX_CLASS_ELEMENTWISE)
        return full ? FXI_ROW_FULL : reduced ? FXI_ROW_SCALAR : FXI_ROW_NONE;
    if (n->op == FX_OP_STOP)
        return full || reduced ? FXI_ROW_ALIAS : FXI_ROW_NONE;
    if (n->op == FX_OP_EXPAND)
        return full && fxi_same_shape(n->in[0], s->reduced) ? FXI_ROW_ALIAS : FXI_ROW_NONE;
    return reduced && reduces_rows(s, n) && fxi_same_shape(n->in[0], s->full) ? FXI_ROW_REDUCE
                                                                              : FXI_ROW_NONE;
}

/* The union of the marks of the inputs of node id. */
static int input_marks(const fxi_row_search *s, int32_t id)
{
    int marks = 0;
    for (int k = 0; k < fxi_graph_inputs(s->g, id); k++)
        marks |= s->mark[fxi_graph_input(s->g, id, k)];
    return marks;
}

/* A reduction is complete only at the end of its pass, so whatever reads it is one level later. */
static int level_of(const fxi_row_search *s, int32_t id)
{
    int level = 0;
    for (int k = 0; k < fxi_graph_inputs(s->g, id); k++) {
        const int32_t i = fxi_graph_input(s->g, id, k);
        if (!(s->mark[i] & FXI_ROW_MEMBER))
            continue;
        const int own = s->out->level[i] + (s->out->kind[i] == FXI_ROW_REDUCE);
        level = own > level ? own : level;
    }
    return level;
}

static bool can_join(const fxi_row_search *s, int32_t id)
{
    return s->out->row[id] < 0 && kind_of(s, id) != FXI_ROW_NONE;
}

/* Node id becomes a member: its inputs and consumers may join next. Those outside the window are
 * never visited. Sweeps must not run up to them: values of the forward pass have consumers in the
 * backward pass, far away, and each of them would cost a sweep of the whole window. */
static void widen(fxi_row_search *s, int32_t id)
{
    for (int k = 0; k < fxi_graph_inputs(s->g, id); k++) {
        const int32_t i = fxi_graph_input(s->g, id, k), at = s->at[i];
        s->first_candidate =
            at < s->first_candidate && at >= s->low && can_join(s, i) ? at : s->first_candidate;
    }
    const int32_t from = s->consumers.first[id], to = s->consumers.first[id + 1];
    /* A value with very many consumers is not searched; the sweep then runs to the end of the
     * window.
     */
    if (to - from > WINDOW)
        s->last_candidate = s->high;
    for (int32_t k = from; k < to && to - from <= WINDOW; k++) {
        const int32_t i = s->consumers.list[k], at = s->at[i];
        s->last_candidate =
            at > s->last_candidate && at < s->high && can_join(s, i) ? at : s->last_candidate;
    }
}

static void join(fxi_row_search *s, int32_t id, fxi_row_kind kind)
{
    widen(s, id);
    fxi_row_set_mark(s, id, FXI_ROW_MEMBER);
    s->out->kind[id] = (uint8_t)kind;
    s->members++;
    s->first = s->at[id] < s->first ? s->at[id] : s->first;
    s->last = s->at[id] > s->last ? s->at[id] : s->last;
}

/* ---- sweeps ---------------------------------------------------------------------------------- */

/* The position after the unit at `at`. A unit is moved as a whole: one node, or a row step found
 * earlier. */
static int32_t unit_end(const fxi_row_search *s, int32_t at)
{
    const int32_t row = s->out->row[s->out->order[at]];
    int32_t end = at + 1;
    while (row >= 0 && end < s->g->n && s->out->row[s->out->order[end]] == row)
        end++;
    return end;
}

/* The position of the first node of the unit that contains `at`. */
static int32_t unit_start(const fxi_row_search *s, int32_t at)
{
    const int32_t row = s->out->row[s->out->order[at]];
    while (row >= 0 && at > 0 && s->out->row[s->out->order[at - 1]] == row)
        at--;
    return at;
}

/* Visits one node in the order of computation. A consumer of members joins if it fits. A member
 * leaves if it no longer fits: a node outside may have come between it and another member. A node
 * that touches the step and stays outside is marked FXI_ROW_AFTER, so nothing computed from it can
 * join.
 */
static void visit_consumer(fxi_row_search *s, int32_t id)
{
    const int inputs = input_marks(s, id), touched = inputs & (FXI_ROW_MEMBER | FXI_ROW_AFTER);
    const bool was = s->mark[id] & FXI_ROW_MEMBER;
    if (!was && !touched)
        return;
    const fxi_row_kind kind = kind_of(s, id);
    bool fits = kind != FXI_ROW_NONE && !(inputs & FXI_ROW_AFTER);
    fits &= was || s->members < s->most;
    /* An alias only renames a register of this step. If its input is outside, it is an ordinary
     * view. */
    fits &= kind != FXI_ROW_ALIAS || (inputs & FXI_ROW_MEMBER);
    /* A value of the row is computed before the pass of its level. Any other member is computed in
     * that pass, which must therefore exist. */
    const int level = level_of(s, id) + (kind == FXI_ROW_SCALAR ? 0 : 1);
    fits &= level <= FXI_ROW_PASSES;
    if (fits && !was)
        join(s, id, kind);
    else if (!fits && was)
        fxi_row_leave(s, id);
    s->out->level[id] = (uint8_t)(fits ? level_of(s, id) : 0);
    fxi_row_set_mark(s, id, !fits && touched ? FXI_ROW_AFTER : 0);
}

/* One sweep along the order. If a row step found earlier reads a value of this one, it is computed
 * after this one as a whole. So all its nodes are marked AFTER. */
static void take_consumers(fxi_row_search *s)
{
    fxi_row_keep_members(s);
    for (int32_t at = s->first; at < s->high && at <= s->last_candidate;) {
        const int32_t stop = unit_end(s, at);
        int touched = 0;
        for (int32_t k = at; k < stop && s->out->row[s->out->order[at]] >= 0; k++)
            touched |= input_marks(s, s->out->order[k]) & (FXI_ROW_MEMBER | FXI_ROW_AFTER);
        for (; at < stop; at++)
            if (s->out->row[s->out->order[at]] < 0)
                visit_consumer(s, s->out->order[at]);
            else
                fxi_row_set_mark(s, s->out->order[at], touched ? FXI_ROW_AFTER : 0);
    }
}

/* Passes the marks of node id to its inputs. Members feed their inputs. A node outside that leads
 * to a member makes its inputs lead there too, and those may not join. */
static void pass_on(fxi_row_search *s, int32_t id, int marks)
{
    if (!(marks & (FXI_ROW_MEMBER | FXI_ROW_FEEDS | FXI_ROW_BEFORE)))
        return;
    fxi_row_set_mark(s, id, marks & FXI_ROW_MEMBER ? 0 : FXI_ROW_BEFORE);
    for (int k = 0; k < fxi_graph_inputs(s->g, id); k++)
        fxi_row_set_mark(s, fxi_graph_input(s->g, id, k),
                         marks & FXI_ROW_MEMBER ? FXI_ROW_FEEDS : FXI_ROW_BEFORE);
}

/* One sweep against the order: adds the nodes that members are computed from. Returns whether a
 * node joined. */
static bool take_operands(fxi_row_search *s)
{
    bool joined = false;
    fxi_row_keep_members(s);
    for (int32_t at = s->last; at >= s->low && (at >= s->first_candidate || at >= s->first);) {
        const int32_t start = unit_start(s, at);
        int marks = 0;
        for (int32_t k = start; k <= at; k++)
            /* A row step found earlier stays one step: if one of its nodes leads to a member, all
             * of it must be computed before. */
            marks |= s->mark[s->out->order[k]];
        const int32_t id = s->out->order[at];
        /* The kind is tested last: most nodes that a sweep passes have no marks. */
        if (s->out->row[id] < 0 && !(marks & (FXI_ROW_MEMBER | FXI_ROW_BEFORE)) &&
            (marks & FXI_ROW_FEEDS) && s->members < s->most && can_join(s, id)) {
            join(s, id, kind_of(s, id));
            joined = true;
            marks |= FXI_ROW_MEMBER;
        }
        for (; at >= start; at--)
            pass_on(s, s->out->order[at], marks);
    }
    return joined;
}

/* ---- sums across rows ------------------------------------------------------------------------ */

/* Adds the sums across rows of node x, which is a member or an operand. They may not lead to a
 * member: sums are complete only after the last row. */
static void take_sums_of(fxi_row_search *s, int32_t x)
{
    enum { READERS = 32 }; /* a value with more readers is not searched */
    const int32_t from = s->consumers.first[x], to = s->consumers.first[x + 1];
    for (int32_t k = from; k < to && to - from <= READERS; k++) {
        const int32_t id = s->consumers.list[k];
        if (s->out->row[id] >= 0 || s->at[id] <= s->first || s->at[id] >= s->high ||
            (s->mark[id] & (FXI_ROW_MEMBER | FXI_ROW_FEEDS | FXI_ROW_BEFORE)) ||
            s->members == FXI_ROW_ALL || !sums_across(s, s->g->nodes[id]))
            continue;
        join(s, id, FXI_ROW_ACROSS);
        s->out->level[id] = (uint8_t)level_of(s, id);
        s->sums = s->g->nodes[id];
    }
}

/* Adds the sums of members and operands across rows that are contiguous. So the gradients of scale
 * and bias come out of the pass that computes the gradient of the input. They join last, so that no
 * other member is left out because of them. But each is an output: if the step then has too many
 * buffers, it is grown again with fewer members (find_row). */
static void take_sums(fxi_row_search *s)
{
    int64_t run[RUNS];
    s->sums = NULL;
    if (s->own_memory || !find_runs(s->reduced, run) || run[BEFORE] > 1 || run[OUTER] > 1)
        return;
    s->most = 0;
    take_operands(s); /* only sets marks, because no node may join */
    for (int32_t at = s->first, end = s->last; at <= end; at++) {
        const int32_t id = s->out->order[at];
        if (!(s->mark[id] & FXI_ROW_MEMBER))
            continue;
        take_sums_of(s, id);
        for (int k = 0; k < fxi_graph_inputs(s->g, id); k++)
            take_sums_of(s, fxi_graph_input(s->g, id, k));
    }
}

/* ---- one row step ---------------------------------------------------------------------------- */

/* Changes the order of computation: first the nodes that lead to members, then the members, then
 * all others in between. Each part keeps its order, so inputs still come before consumers. */
static void make_neighbours(fxi_row_search *s, int32_t *moved)
{
    int32_t *order = s->out->order, n = 0;
    const int32_t number = s->out->n++;
    take_operands(s); /* only sets marks: s->most is 0, so no node joins */
    const int32_t first = s->first, last = s->last;
    for (int part = 0; part < 3; part++)
        for (int32_t at = first; at <= last; at++) {
            const int mark = s->mark[order[at]];
            const int own = mark & FXI_ROW_MEMBER ? 1 : mark & FXI_ROW_BEFORE ? 0 : 2;
            if (own == part)
                moved[n++] = order[at];
        }
    for (int32_t k = 0; k < n; k++) {
        order[first + k] = moved[k];
        s->at[moved[k]] = first + k;
        if (s->mark[moved[k]] & FXI_ROW_MEMBER)
            s->out->row[moved[k]] = number;
    }
}

/* Grows a row step from the reduction `seed`, with at most `most` members. False: the step would
 * save nothing. */
static bool grow(fxi_row_search *s, int32_t seed, int32_t most)
{
    for (int32_t i = 0; i < s->nmarked; i++)
        s->mark[s->marked[i]] = 0;
    s->nmarked = 0;
    s->full = s->g->nodes[seed]->in[0];
    s->reduced = s->g->nodes[seed];
    s->first = s->last = s->at[seed];
    s->low = s->first > WINDOW ? s->first - WINDOW : 0;
    s->high = s->g->n - s->first > WINDOW ? s->first + WINDOW : s->g->n;
    s->members = 0;
    s->first_candidate = s->last_candidate = s->first;
    s->most = most;
    join(s, seed, FXI_ROW_REDUCE);
    take_consumers(s);
    for (int round = 0; round < ROUNDS && take_operands(s); round++)
        take_consumers(s);
    return fxi_row_combines(s);
}

static void find_row(fxi_row_search *s, int32_t seed, int32_t *moved)
{
    /* If the step needs too many buffers, it is grown again with fewer members. */
    for (int32_t most = FXI_ROW_MEMBERS; most >= 8; most /= 2) {
        if (!grow(s, seed, most))
            return;
        fxi_row_prune(s);
        if (!fxi_row_combines(s))
            return;
        take_sums(s);
        const int32_t outputs = fxi_row_count_outputs(s), inputs = fxi_row_count_inputs(s);
        if (outputs <= FXI_ROW_OUTPUTS && inputs <= FXI_ROW_INPUTS &&
            inputs + outputs <= s->buffers) {
            s->most = 0; /* no node joins any more */
            make_neighbours(s, moved);
            return;
        }
        /* A limit not below the number of its members would give the same step again. */
        while (most / 2 >= s->members)
            most /= 2;
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

void fxi_rows_free(fxi_rows *rows)
{
    fxi_free(rows->order);
    fxi_free(rows->row);
    fxi_free(rows->level);
    fxi_free(rows->kind);
    memset(rows, 0, sizeof *rows);
}

/* Is node x computed from values of the row and expanded (`seeds`), such as the root by which a
 * norm divides? A row step computes it, and the nodes that read the expanded value. */
static bool is_expanded(const fxi_row_search *s, int32_t x, const bool *seeds)
{
    const fxi_node *n = s->g->nodes[x];
    return seeds[x] && !n->data && fxi_ops[n->op].cls == FX_CLASS_ELEMENTWISE;
}

/* Does elementwise node u compute its value from input k, which is a reduction of rows, and from
 * literals or expanded values of the same shape? Examples are the division of a mean, and the
 * gradient of the scale of a norm in test mode. */
static bool follows(const fxi_row_search *s, int32_t u, int k, const bool *seeds)
{
    const fxi_node *n = s->g->nodes[u];
    bool all =
        !n->data && fxi_ops[n->op].cls == FX_CLASS_ELEMENTWISE && reduces_pieces(s, n->in[k]);
    for (int i = 0; all && i < fxi_graph_inputs(s->g, u); i++) {
        const int32_t x = fxi_graph_input(s->g, u, i);
        all = i == k || s->literal[x] ||
              (is_expanded(s, x, seeds) && fxi_same_shape(n->in[i], n->in[k]));
    }
    return all;
}

/* Notes that node x leads to reduction r through elementwise nodes: reach[x]. If it also leads to
 * another reduction of the same rows, both are marked. */
static void note_reduction(const fxi_row_search *s, int32_t x, int32_t r, int32_t *reach,
                           bool *seeds)
{
    const fxi_node *n = s->g->nodes[x];
    if (r < 0 || n->data || s->literal[x] || fxi_ops[n->op].cls != FX_CLASS_ELEMENTWISE)
        return;
    if (reach[x] < 0)
        reach[x] = r;
    else if (reach[x] != r && fxi_same_shape(s->g->nodes[r], s->g->nodes[reach[x]]))
        seeds[r] = seeds[reach[x]] = true;
}

/* Marks the reductions of rows that share an elementwise operand with another one. Against the
 * order, so the readers of a node come first. */
static void mark_pairs(const fxi_row_search *s, int32_t *reach, bool *seeds)
{
    for (int32_t u = s->g->n - 1; u >= 0; u--) {
        const fxi_node *n = s->g->nodes[u];
        const bool reduces = reduces_pieces(s, n);
        if (!reduces && (n->data || fxi_ops[n->op].cls != FX_CLASS_ELEMENTWISE))
            continue;
        for (int k = 0; k < fxi_graph_inputs(s->g, u); k++)
            if (reduces || fxi_same_shape(n, n->in[k]))
                note_reduction(s, fxi_graph_input(s->g, u, k), reduces ? u : reach[u], reach,
                               seeds);
    }
}

/* Marks nodes of three kinds: those whose value is expanded, itself or after elementwise operations
 * of the same shape; reductions whose result an elementwise operation reads together with nothing
 * but literals and expanded values; and reductions that share an operand. A reduction that is not
 * marked starts no row step, although it may join one. Without this test, each sum of a program
 * that adds up many sums would collect the others, and the step would then be rejected
 * (fxi_row_combines). */
static bool *find_seeds(const fxi_row_search *s)
{
    const fxi_graph *g = s->g;
    bool *seeds = fxi_calloc((size_t)g->n + 1, sizeof *seeds);
    int32_t *reach = fxi_malloc(((size_t)g->n + 1) * sizeof *reach);
    if (!seeds || !reach) {
        fxi_free(seeds);
        fxi_free(reach);
        return NULL;
    }
    memset(reach, -1, (size_t)g->n * sizeof *reach);
    mark_pairs(s, reach, seeds);
    fxi_free(reach);
    for (int32_t u = g->n - 1; u >= 0; u--) {
        const fxi_node *n = g->nodes[u];
        const bool keeps = fxi_ops[n->op].cls == FX_CLASS_ELEMENTWISE || n->op == FX_OP_STOP;
        for (int k = 0; k < fxi_graph_inputs(g, u); k++) {
            const int32_t x = fxi_graph_input(g, u, k);
            seeds[x] |= n->op == FX_OP_EXPAND || (keeps && seeds[u] && fxi_same_shape(n, n->in[k]));
        }
    }
    for (int32_t u = g->n - 1; u >= 0; u--)
        for (int k = 0; k < fxi_graph_inputs(g, u); k++)
            seeds[fxi_graph_input(g, u, k)] |= follows(s, u, k, seeds);
    return seeds;
}

bool fxi_rows_find(const fxi_planner *how, const fxi_graph *g, const bool *literal, fxi_rows *out)
{
    const size_t n = (size_t)g->n + 1;
    fxi_row_search s = {.g = g,
                        .literal = literal,
                        .around = how->rows && !fxi_runs_channels_last(how, g),
                        .own_memory = how->own_memory,
                        .longest = how->own_memory ? FXI_ROW_LONG : FXI_ROW_BYTES,
                        .out = out,
                        .buffers = how->buffers - 1};
    int32_t *moved = fxi_malloc(n * sizeof *moved);
    s.at = fxi_malloc(n * sizeof *s.at);
    s.mark = fxi_calloc(n, 1);
    s.marked = fxi_malloc(n * sizeof *s.marked);
    out->order = fxi_malloc(n * sizeof *out->order);
    out->row = fxi_malloc(n * sizeof *out->row);
    out->level = fxi_calloc(n, 1);
    out->kind = fxi_calloc(n, 1);
    bool ok =
        moved && s.at && s.mark && s.marked && out->order && out->row && out->level && out->kind;
    for (int32_t i = 0; i < g->n && ok; i++) {
        out->order[i] = i;
        out->row[i] = -1;
    }
    /* In a smaller graph, every node is near every other one. */
    ok = ok && (!how->rows || g->n <= WINDOW || fxi_order_for_rows(g, out->order));
    for (int32_t i = 0; i < g->n && ok; i++)
        s.at[out->order[i]] = i;
    bool *seeds = NULL;
    /* A reduction that an earlier row step contains is not a seed. */
    for (int32_t i = 0; i < g->n && ok && how->rows; i++)
        if (out->row[i] < 0 && reduces_rows(&s, g->nodes[i])) {
            /* Most graphs have no such reduction and need no tables. */
            ok = s.consumers.first ||
                 (fxi_graph_consumers(g, &s.consumers) && (seeds = find_seeds(&s)));
            if (ok && seeds[i])
                find_row(&s, i, moved);
        }
    fxi_free(seeds);
    fxi_free(moved);
    fxi_free(s.at);
    fxi_free(s.mark);
    fxi_free(s.marked);
    fxi_consumers_free(&s.consumers);
    if (!ok)
        fxi_rows_free(out);
    return ok;
}
