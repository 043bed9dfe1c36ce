/* row.c: planner rule 3: reductions over leading axes that are combined again with the values they
 * were reduced from, such as softmax, layer norm, cross-entropy and their gradients. A pure
 * function of the graph.
 *
 * A row step computes several nodes for one row of memory after the other. It grows from such a
 * reduction: sweeps along the order of computation take in what uses its members, sweeps against it
 * what they are made from, as long as it is elementwise or a reduction of the same rows. A node
 * stays outside when it would close a cycle, that is when a path from a member to it, or from it to
 * a member, leads through nodes outside; the last sweep checks this for all members again. Because
 * a loss is often computed before the gradient but not needed for it, members need not be
 * neighbours: the order of computation is changed so that they are. Row steps found earlier are
 * moved, and tested for cycles, as a whole.
 *
 * A member's level is the number of passes over the row that must be complete before its own.
 */
#include "row.h"
#include "group.h"

#include <string.h>

/* Marks of nodes during a search. Of members: */
enum {
    MEMBER = 1,
    FEEDS = 2,  /* a member takes it */
    LEAVES = 4, /* it leads to a member through nodes outside */
    AFTER = 8   /* outside, and computed from a member */
};

/* Nodes farther than this from the first reduction are not looked at. */
enum { WINDOW = 4096, ROUNDS = 4 };

typedef struct search {
    const fxi_graph *g;
    fxi_rows *out;
    int32_t *at; /* per node: its place in the order */
    uint8_t *mark;
    const fxi_node *full, *reduced; /* nodes of the shapes of the row step that grows */
    int32_t first, last;            /* places of its members lie between */
    int32_t low, high;              /* places that are looked at: low … high − 1 */
    int32_t members, most;
    int32_t buffers; /* inputs and outputs that a row step may have */
} search;

/* ---- what fits ------------------------------------------------------------------------------- */

static bool reducible(int64_t kind)
{
    return kind == FX_REDUCE_SUM || kind == FX_REDUCE_MAX || kind == FX_REDUCE_MIN ||
           kind == FX_REDUCE_SQDEV;
}

/* Is n a reduction of contiguous rows that are short enough? Sizes of 1 count on neither side. */
static bool reduces_rows(const fxi_node *n)
{
    if (n->data || n->op != FX_OP_REDUCE || !reducible(n->attr.reduce.fold) ||
        n->dtype == FX_DTYPE_F16 || n->dtype == FX_DTYPE_BF16)
        return false;
    const fxi_node *x = n->in[0];
    int64_t row = (int64_t)fx_dtype_size((fx_dtype)x->dtype);
    bool kept = false;
    for (int k = 0; k < n->ndim; k++) {
        const bool reduced = FXI_AXIS_IN(n->attr.reduce.mask, k);
        if (x->shape[k] != 1 && reduced && kept)
            return false;
        kept |= x->shape[k] != 1 && !reduced;
        row *= reduced ? x->shape[k] : 1;
    }
    return row <= FXI_ROW_BYTES && !fxi_same_shape(x, n) && fxi_length(x->ndim, x->shape) > 0;
}

static fxi_row_kind kind_of(const search *s, const fxi_node *n)
{
    if (n->data)
        return FXI_ROW_NONE;
    const bool full = fxi_same_shape(n, s->full), reduced = fxi_same_shape(n, s->reduced);
    if (fxi_ops[n->op].cls == FX_CLASS_ELEMENTWISE)
        return full ? FXI_ROW_FULL : reduced ? FXI_ROW_SCALAR : FXI_ROW_NONE;
    if (n->op == FX_OP_STOP)
        return full || reduced ? FXI_ROW_ALIAS : FXI_ROW_NONE;
    if (n->op == FX_OP_EXPAND)
        return full && fxi_same_shape(n->in[0], s->reduced) ? FXI_ROW_ALIAS : FXI_ROW_NONE;
    return reduced && reduces_rows(n) && fxi_same_shape(n->in[0], s->full) ? FXI_ROW_REDUCE
                                                                           : FXI_ROW_NONE;
}

/* The marks of node id's inputs, all together. */
static int input_marks(const search *s, int32_t id)
{
    int marks = 0;
    for (int k = 0; k < fxi_graph_inputs(s->g, id); k++)
        marks |= s->mark[fxi_graph_input(s->g, id, k)];
    return marks;
}

static int level_of(const search *s, int32_t id)
{
    int level = 0;
    for (int k = 0; k < fxi_graph_inputs(s->g, id); k++) {
        const int32_t i = fxi_graph_input(s->g, id, k);
        if (!(s->mark[i] & MEMBER))
            continue;
        const int own = s->out->level[i] + (s->out->kind[i] == FXI_ROW_REDUCE);
        level = own > level ? own : level;
    }
    return level;
}

static void join(search *s, int32_t id, fxi_row_kind kind)
{
    s->mark[id] |= MEMBER;
    s->out->kind[id] = (uint8_t)kind;
    s->members++;
    s->first = s->at[id] < s->first ? s->at[id] : s->first;
    s->last = s->at[id] > s->last ? s->at[id] : s->last;
}

static void leave(search *s, int32_t id)
{
    s->members--;
    s->mark[id] &= (uint8_t)~MEMBER;
}

/* ---- sweeps ---------------------------------------------------------------------------------- */

/* The end of what is moved as one: a node, or a row step found earlier. */
static int32_t unit_end(const search *s, int32_t at)
{
    const int32_t row = s->out->row[s->out->order[at]];
    int32_t end = at + 1;
    while (row >= 0 && end < s->g->n && s->out->row[s->out->order[end]] == row)
        end++;
    return end;
}

static int32_t unit_start(const search *s, int32_t at)
{
    const int32_t row = s->out->row[s->out->order[at]];
    while (row >= 0 && at > 0 && s->out->row[s->out->order[at - 1]] == row)
        at--;
    return at;
}

static void keep_members(search *s)
{
    for (int32_t i = 0; i < s->g->n; i++)
        s->mark[i] &= MEMBER;
}

/* In the order of computation: takes in users of members, and drops members that lost their
 * place. */
static void visit_user(search *s, int32_t id)
{
    const int inputs = input_marks(s, id), touched = inputs & (MEMBER | AFTER);
    const bool was = s->mark[id] & MEMBER;
    if (!was && !touched)
        return;
    const fxi_row_kind kind = kind_of(s, s->g->nodes[id]);
    bool fits = kind != FXI_ROW_NONE && !(inputs & AFTER);
    fits &= was || s->members < s->most;
    fits &= kind != FXI_ROW_ALIAS || (inputs & MEMBER);
    const int level = level_of(s, id) + (kind == FXI_ROW_SCALAR ? 0 : 1);
    fits &= level <= FXI_ROW_PASSES;
    if (fits && !was)
        join(s, id, kind);
    else if (!fits && was)
        leave(s, id);
    s->out->level[id] = (uint8_t)(fits ? level_of(s, id) : 0);
    s->mark[id] |= !fits && touched ? AFTER : 0;
}

static void take_users(search *s)
{
    keep_members(s);
    for (int32_t at = s->first; at < s->high;) {
        const int32_t stop = unit_end(s, at);
        int touched = 0;
        for (int32_t k = at; k < stop && s->out->row[s->out->order[at]] >= 0; k++)
            touched |= input_marks(s, s->out->order[k]) & (MEMBER | AFTER);
        for (; at < stop; at++)
            if (s->out->row[s->out->order[at]] < 0)
                visit_user(s, s->out->order[at]);
            else
                s->mark[s->out->order[at]] |= touched ? AFTER : 0;
    }
}

/* Tells the inputs of node id, which has these marks, that it takes them. */
static void pass_on(search *s, int32_t id, int marks)
{
    if (!(marks & (MEMBER | FEEDS | LEAVES)))
        return;
    s->mark[id] |= marks & MEMBER ? 0 : LEAVES;
    for (int k = 0; k < fxi_graph_inputs(s->g, id); k++)
        s->mark[fxi_graph_input(s->g, id, k)] |= marks & MEMBER ? FEEDS : LEAVES;
}

/* Against the order of computation: takes in what members are made from. True: somebody joined. */
static bool take_makers(search *s)
{
    bool joined = false;
    keep_members(s);
    for (int32_t at = s->last; at >= s->low;) {
        const int32_t start = unit_start(s, at);
        int marks = 0;
        for (int32_t k = start; k <= at; k++)
            marks |= s->mark[s->out->order[k]];
        const int32_t id = s->out->order[at];
        const fxi_row_kind kind = kind_of(s, s->g->nodes[id]);
        if (s->out->row[id] < 0 && !(marks & (MEMBER | LEAVES)) && (marks & FEEDS) &&
            kind != FXI_ROW_NONE && s->members < s->most) {
            join(s, id, kind);
            joined = true;
            marks |= MEMBER;
        }
        for (; at >= start; at--)
            pass_on(s, s->out->order[at], marks);
    }
    return joined;
}

/* ---- one row step ---------------------------------------------------------------------------- */

/* The node a member stands for: aliases lead to what they alias. */
static int32_t behind(const search *s, int32_t id)
{
    while ((s->mark[id] & MEMBER) && s->out->kind[id] == FXI_ROW_ALIAS)
        id = fxi_graph_input(s->g, id, 0);
    return id;
}

/* FEEDS from now on marks members whose value is needed outside. Counts them. */
static int32_t count_outputs(search *s)
{
    keep_members(s);
    for (int32_t i = 0; i < s->g->n; i++) {
        for (int k = 0; k < fxi_graph_inputs(s->g, i) && !(s->mark[i] & MEMBER); k++)
            s->mark[behind(s, fxi_graph_input(s->g, i, k))] |= FEEDS;
        if (s->g->output[i] >= 0)
            s->mark[behind(s, i)] |= FEEDS;
    }
    int32_t n = 0;
    for (int32_t i = 0; i < s->g->n; i++)
        n += (s->mark[i] & (MEMBER | FEEDS)) == (MEMBER | FEEDS);
    return n;
}

/* Operands of members that are no members; LEAVES marks those that are counted. */
static int32_t count_inputs(search *s)
{
    int32_t n = 0;
    for (int32_t at = s->first; at <= s->last; at++) {
        const int32_t id = s->out->order[at];
        for (int k = 0; k < fxi_graph_inputs(s->g, id) && (s->mark[id] & MEMBER); k++) {
            const int32_t i = fxi_graph_input(s->g, id, k);
            n += !(s->mark[i] & (MEMBER | LEAVES));
            s->mark[i] |= LEAVES;
        }
    }
    return n;
}

/* Is a value of the row combined with the row again? */
static bool combines(const search *s)
{
    for (int32_t at = s->first; at <= s->last; at++) {
        const int32_t id = s->out->order[at];
        if ((s->mark[id] & MEMBER) && s->out->level[id] > 0 && s->out->kind[id] == FXI_ROW_FULL)
            return true;
    }
    return false;
}

/* What leads to members comes first, then they, then the others. */
static void make_neighbours(search *s, int32_t *moved)
{
    int32_t *order = s->out->order, n = 0;
    const int32_t number = s->out->n++;
    take_makers(s); /* marks, and finds nobody new */
    const int32_t first = s->first, last = s->last;
    for (int part = 0; part < 3; part++)
        for (int32_t at = first; at <= last; at++) {
            const int mark = s->mark[order[at]];
            const int own = mark & MEMBER ? 1 : mark & LEAVES ? 0 : 2;
            if (own == part)
                moved[n++] = order[at];
        }
    for (int32_t k = 0; k < n; k++) {
        order[first + k] = moved[k];
        s->at[moved[k]] = first + k;
        if (s->mark[moved[k]] & MEMBER)
            s->out->row[moved[k]] = number;
    }
}

static bool grow(search *s, int32_t seed, int32_t most)
{
    memset(s->mark, 0, (size_t)s->g->n);
    s->full = s->g->nodes[seed]->in[0];
    s->reduced = s->g->nodes[seed];
    s->first = s->last = s->at[seed];
    s->low = s->first > WINDOW ? s->first - WINDOW : 0;
    s->high = s->g->n - s->first > WINDOW ? s->first + WINDOW : s->g->n;
    s->members = 0;
    s->most = most;
    join(s, seed, FXI_ROW_REDUCE);
    take_users(s);
    for (int round = 0; round < ROUNDS && take_makers(s); round++)
        take_users(s);
    return combines(s);
}

static void find_row(search *s, int32_t seed, int32_t *room)
{
    for (int32_t most = FXI_ROW_MEMBERS; most >= 8; most /= 2) {
        if (!grow(s, seed, most))
            return;
        const int32_t outputs = count_outputs(s), inputs = count_inputs(s);
        if (outputs > FXI_ROW_OUTPUTS || inputs > FXI_ROW_INPUTS || inputs + outputs > s->buffers)
            continue;
        s->most = 0; /* nobody joins any more */
        make_neighbours(s, room);
        return;
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

bool fxi_rows_find(const fxi_planner *how, const fxi_graph *g, fxi_rows *out)
{
    const size_t n = (size_t)g->n + 1;
    search s = {.g = g, .out = out, .buffers = how->buffers - 1};
    int32_t *room = fxi_malloc(n * sizeof *room);
    s.at = fxi_malloc(n * sizeof *s.at);
    s.mark = fxi_malloc(n);
    out->order = fxi_malloc(n * sizeof *out->order);
    out->row = fxi_malloc(n * sizeof *out->row);
    out->level = fxi_calloc(n, 1);
    out->kind = fxi_calloc(n, 1);
    const bool ok = room && s.at && s.mark && out->order && out->row && out->level && out->kind;
    for (int32_t i = 0; i < g->n && ok; i++) {
        out->order[i] = s.at[i] = i;
        out->row[i] = -1;
    }
    for (int32_t i = 0; i < g->n && ok && how->rows; i++)
        if (out->row[i] < 0 && reduces_rows(g->nodes[i]))
            find_row(&s, i, room);
    fxi_free(room);
    fxi_free(s.at);
    fxi_free(s.mark);
    if (!ok)
        fxi_rows_free(out);
    return ok;
}
