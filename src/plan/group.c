/* group.c: planner rules 1 and 2: elementwise nodes of one shape are grouped into one step, with
 * the reduction that reads them if there is one. A pure function of the graph. Row steps (rule 3,
 * row.c) are found first; their members join no group here.
 *
 * Nodes are visited from the last to the first, so all consumers of a node have their groups when
 * the node is visited. The node joins the group of one consumer if every consumer outside that
 * group is computed after the group's root. A group is computed at its root, so its results exist
 * before those consumers run, and no cycle can arise. Inside the group the value stays in a
 * register; if a node outside needs it, it is one more output. Broadcasts, slices and permutations
 * are not members: they are ways to address a group's inputs. Nodes of other shapes are never
 * members.
 *
 * Groups without a reader in common may still read the same operands, as a function and its
 * gradient do. These groups are merged last, at the position of the later one. A step in between
 * may read a value of the earlier group, as a loss reads the differences before its gradient does.
 * Then the later group moves to the position of the earlier one, if all its operands exist there.
 * So each operand is read once, and what the earlier group computes for the later one stays in
 * registers.
 *
 * Rejected: computing cheap producers again in each group that needs them. It saves a store now and
 * then, but makes the result depend on the order of the nodes. (again.c does so later, on the list
 * of steps.) Measurements: docs/design/0004.
 */
#include "group.h"
#include "literal.h"

#include <string.h>

/* The size of a group while it grows; kept at its root. */
typedef struct growth {
    int32_t instructions, outputs;
    int32_t inputs; /* operands outside the group. An operand of several members counts once for
                       each member: the group may then stop growing too early, which is safe */
    int32_t end;    /* of the list `next`: the member that joined last, which is computed first */
    int32_t most_outputs;
    const fxi_node *space; /* a node of the shape that is iterated over */
} growth;

typedef struct grouping {
    const fxi_graph *g;
    int32_t buffers; /* buffers of a step, without its work space */
    fxi_groups *out;
    growth *growth;
    int32_t *at; /* per node: its position in the order of computation */
    fxi_consumers consumers;
    bool *needed; /* per node: it moves with a group (advance) */
} grouping;

void fxi_groups_free(fxi_groups *groups)
{
    fxi_free(groups->root);
    fxi_free(groups->stored);
    fxi_free(groups->next);
    fxi_free(groups->literal);
    fxi_rows_free(&groups->rows);
    memset(groups, 0, sizeof *groups);
}

/* Only elementwise operations can be instructions of a program. A value that depends on literals
 * only is a literal of the plan and needs no instruction. */
static bool groupable(const grouping *s, int32_t i)
{
    const fxi_node *n = s->g->nodes[i];
    return !n->data && fxi_ops[n->op].cls == FX_CLASS_ELEMENTWISE && !s->out->literal[i];
}

/* Must the value of node i be stored if i joins the group of `root`? 1: yes, an output or a
 * consumer outside needs it. 0: no. −1: i cannot join, because a consumer outside is computed
 * before the root. */
static int needed_outside(const grouping *s, int32_t i, int32_t root)
{
    int outside = s->g->output[i] >= 0;
    for (int32_t k = s->consumers.first[i]; k < s->consumers.first[i + 1]; k++) {
        const int32_t c = s->consumers.list[k];
        if (s->out->root[c] == root)
            continue;
        if (s->at[c] < s->at[root])
            return -1;
        outside = 1;
    }
    return outside;
}

static bool joins(const grouping *s, int32_t i, int32_t root, bool *out_stored)
{
    const growth *w = &s->growth[root];
    /* Node i stops being an operand of the group, and brings its own operands. */
    const int32_t inputs = w->inputs + fxi_graph_inputs(s->g, i) - 1;
    if (!fxi_same_shape(s->g->nodes[i], w->space) || w->instructions >= FXI_GROUP_INSTRUCTIONS ||
        inputs > FXI_GROUP_INPUTS)
        return false;
    /* Tested last, because it looks at all consumers of i. */
    const int outside = needed_outside(s, i, root);
    if (outside < 0 || w->outputs + outside > w->most_outputs ||
        inputs + w->outputs + outside > s->buffers)
        return false;
    *out_stored = outside > 0;
    return true;
}

/* Planner rule 2: a reduction computes its elementwise producers in the same step if its reduced
 * axes surround the kept ones (reduced… kept… reduced…, ignoring axes of size 1): then kernels can
 * walk memory in order, tile by tile. The reduction is the only output. Not for the folds after
 * FX_REDUCE_PROD, which need the mean of the elements or the index of one. */
static bool takes_producers(const fxi_node *n)
{
    if (n->data || n->op != FX_OP_REDUCE || n->attr.reduce.fold > FX_REDUCE_PROD)
        return false;
    int changes = 0;
    bool reduced = true;
    for (int k = 0; k < n->ndim; k++) {
        if (n->in[0]->shape[k] == 1)
            continue;
        const bool now = FXI_AXIS_IN(n->attr.reduce.mask, k);
        changes += now != reduced;
        reduced = now;
    }
    return changes <= 2;
}

/* Gives node i a group: that of the first consumer which it can join, else a new one. */
static void assign(grouping *s, int32_t i)
{
    fxi_groups *o = s->out;
    /* Row steps have been written into the tables by assign_rows. */
    if (o->rows.row[i] >= 0)
        return;
    /* Every node starts as a group of its own and stays one if no consumer takes it. */
    o->root[i] = i;
    o->stored[i] = true;
    o->next[i] = -1;
    const fxi_node *n = s->g->nodes[i];
    s->growth[i] = (growth){1, 1, fxi_graph_inputs(s->g, i), i, FXI_GROUP_OUTPUTS, n};
    if (takes_producers(n)) {
        /* The group of a reduction iterates over the input, whose shape its producers have. */
        s->growth[i].space = n->in[0];
        s->growth[i].most_outputs = 1;
    }
    if (!groupable(s, i))
        return;
    for (int32_t k = s->consumers.first[i]; k < s->consumers.first[i + 1]; k++) {
        const int32_t root = o->root[s->consumers.list[k]];
        bool stored;
        const int32_t c = s->consumers.list[k];
        if (o->rows.row[c] >= 0 || !(groupable(s, c) || takes_producers(s->g->nodes[c])) ||
            !joins(s, i, root, &stored))
            continue;
        growth *w = &s->growth[root];
        o->root[i] = root;
        o->stored[i] = stored;
        w->instructions++;
        w->outputs += stored;
        w->inputs += fxi_graph_inputs(s->g, i) - 1;
        o->next[w->end] = i;
        w->end = i;
        return;
    }
}

/* ---- siblings -------------------------------------------------------------------------------- */

/* At most this many readers of the values and operands of a group are tried in total. Otherwise a
 * value with very many readers would make the time quadratic. */
enum { SIBLINGS = 32 };
/* A group moves to the position of an earlier one only past fewer nodes than this. Its results are
 * then kept for longer, and this limits by how much. */
enum { ADVANCE = 64 };

/* The number of operands outside of the groups of roots a and b together, each counted once.
 * Counting ends at FXI_GROUP_INPUTS + 1, which is too many. */
static int32_t operands_of_both(const grouping *s, int32_t a, int32_t b)
{
    const fxi_groups *o = s->out;
    const int32_t roots[] = {a, b};
    int32_t seen[FXI_GROUP_INPUTS], n = 0;
    for (int r = 0; r < 2; r++)
        for (int32_t i = roots[r]; i >= 0; i = o->next[i])
            for (int k = 0; k < fxi_graph_inputs(s->g, i); k++) {
                const int32_t x = fxi_graph_input(s->g, i, k);
                if (o->root[x] == a || o->root[x] == b || fxi_find_id(seen, n, x) >= 0)
                    continue;
                if (n == FXI_GROUP_INPUTS)
                    return n + 1;
                seen[n++] = x;
            }
    return n;
}

/* Is the value of node i needed outside the groups of roots a and b? −1: yes, and before b. */
static int needed_outside_both(const grouping *s, int32_t i, int32_t a, int32_t b)
{
    int outside = s->g->output[i] >= 0;
    for (int32_t k = s->consumers.first[i]; k < s->consumers.first[i + 1]; k++) {
        const int32_t c = s->consumers.list[k];
        if (s->out->root[c] == a || s->out->root[c] == b)
            continue;
        if (s->at[c] < s->at[b])
            return -1;
        outside = 1;
    }
    return outside;
}

/* Can the groups of roots a and b be one group? 1: yes, at root b. −1: only at the position of a,
 * because a step in between reads a value of group a. 0: no. */
static int may_merge(const grouping *s, int32_t a, int32_t b)
{
    const growth *x = &s->growth[a], *y = &s->growth[b];
    const int32_t roots[] = {a, b};
    int32_t outputs = 0;
    bool read = false;
    if (s->at[b] <= s->at[a] || !groupable(s, b) || s->out->rows.row[b] >= 0 ||
        !fxi_same_shape(x->space, y->space) ||
        x->instructions + y->instructions > FXI_GROUP_INSTRUCTIONS)
        return 0;
    for (int r = 0; r < 2; r++)
        for (int32_t i = roots[r]; i >= 0; i = s->out->next[i]) {
            const int outside = needed_outside_both(s, i, a, b);
            outputs += outside != 0;
            read |= outside < 0;
        }
    const int32_t inputs = outputs <= FXI_GROUP_OUTPUTS ? operands_of_both(s, a, b) : s->buffers;
    if (inputs > FXI_GROUP_INPUTS || inputs + outputs > s->buffers)
        return 0;
    return read ? -1 : 1;
}

/* Node id is a member of group b, or a view that group b needs. Marks the nodes after position
 * `from` that it reads. False if one of its inputs does not exist at that position. */
static bool need_inputs(grouping *s, int32_t id, int32_t b, int32_t from)
{
    const fxi_groups *o = s->out;
    for (int k = 0; k < fxi_graph_inputs(s->g, id); k++) {
        const int32_t x = fxi_graph_input(s->g, id, k);
        if (s->at[x] > from)
            s->needed[x] = true;
        else if (o->root[x] != b && s->at[o->root[x]] > from)
            return false;
    }
    return true;
}

/* Is node id computed without a step? Leaves and literals are, and views outside of row steps. */
static bool is_free(const grouping *s, int32_t id)
{
    const fxi_node *n = s->g->nodes[id];
    return n->data || s->out->literal[id] ||
           (fxi_ops[n->op].cls == FX_CLASS_MOVEMENT && s->out->rows.row[id] < 0);
}

/* Marks the members of group b after root a, and the nodes there that they need. False if one of
 * these nodes is not a leaf, a literal or a view, or if a view among them reads group a: the view
 * would come before the merged group, which computes the value that the view reads. */
static bool can_advance(grouping *s, int32_t a, int32_t b)
{
    const int32_t from = s->at[a];
    bool ok = true;
    for (int32_t i = b; i >= 0 && ok; i = s->out->next[i])
        ok = s->at[i] > from ? (s->needed[i] = true) : need_inputs(s, i, b, from);
    for (int32_t at = s->at[b]; at > from && ok; at--) {
        const int32_t id = s->out->rows.order[at];
        if (!s->needed[id])
            continue;
        ok = need_inputs(s, id, b, from) && (s->out->root[id] == b || is_free(s, id));
        for (int k = 0; k < fxi_graph_inputs(s->g, id) && s->out->root[id] != b && ok; k++)
            ok = s->out->root[fxi_graph_input(s->g, id, k)] != a;
    }
    return ok;
}

/* Moves group b, and the leaves, literals and views that it reads, to directly after root a, if
 * all its operands exist there. All other nodes in between, such as the readers of group a, then
 * come after both. */
static bool advance(grouping *s, int32_t a, int32_t b)
{
    int32_t *order = s->out->rows.order, later[ADVANCE];
    const int32_t from = s->at[a] + 1, to = s->at[b];
    int32_t n = 0, end = from;
    if (to - from >= ADVANCE)
        return false;
    const bool ok = can_advance(s, a, b);
    for (int32_t at = from; at <= to; at++) {
        const int32_t id = order[at];
        if (ok && s->needed[id])
            order[end++] = id;
        else if (ok)
            later[n++] = id;
        s->needed[id] = false;
    }
    for (int32_t k = 0; k < n; k++)
        order[end + k] = later[k];
    for (int32_t at = from; at <= to && ok; at++)
        s->at[order[at]] = at;
    return ok;
}

/* Moves the members of group a into group b. Both lists begin with the member that is computed last
 * and end with the one that is computed first, and so does the new list. */
static void merge(grouping *s, int32_t a, int32_t b)
{
    fxi_groups *o = s->out;
    s->growth[b].instructions += s->growth[a].instructions;
    int32_t x = a, y = o->next[b], end = b;
    for (int32_t i = a; i >= 0; i = o->next[i])
        o->root[i] = b;
    while (x >= 0 || y >= 0) {
        int32_t *from = y < 0 || (x >= 0 && s->at[x] > s->at[y]) ? &x : &y;
        o->next[end] = *from;
        end = *from;
        *from = o->next[end];
    }
    o->next[end] = -1;
    for (int32_t i = b; i >= 0; i = o->next[i])
        o->stored[i] = needed_outside_both(s, i, b, b) > 0;
}

/* Merges the group of root a into that of one of the readers of value x, and returns its root; −1:
 * into none. `tried` counts the readers. */
static int32_t merge_into_reader(grouping *s, int32_t a, int32_t x, int32_t *tried)
{
    for (int32_t k = s->consumers.first[x]; k < s->consumers.first[x + 1] && *tried < SIBLINGS;
         k++) {
        const int32_t b = s->out->root[s->consumers.list[k]];
        if (b == a)
            continue;
        ++*tried;
        const int fits = may_merge(s, a, b);
        if (fits > 0 || (fits < 0 && advance(s, a, b))) {
            merge(s, a, b);
            return b;
        }
    }
    return -1;
}

/* Merges the group of root a into a later one that reads one of its operands or of its values, and
 * returns the root of that; −1: there is none. Literals and broadcast operands do not count:
 * reading them together saves nothing. */
static int32_t join_sibling(grouping *s, int32_t a)
{
    const fxi_groups *o = s->out;
    int32_t tried = 0;
    for (int32_t i = a; i >= 0; i = o->next[i]) {
        int32_t b = o->stored[i] ? merge_into_reader(s, a, i, &tried) : -1;
        for (int k = 0; k < fxi_graph_inputs(s->g, i) && b < 0; k++) {
            const int32_t x = fxi_graph_input(s->g, i, k);
            if (o->root[x] != a && !o->literal[x] &&
                fxi_same_shape(s->g->nodes[x], s->growth[a].space))
                b = merge_into_reader(s, a, x, &tried);
        }
        if (b >= 0)
            return b;
    }
    return -1;
}

/* A group that another one has joined reads more, so it may have a sibling now that it had not
 * before. Each round makes one group less. */
static void join_siblings(grouping *s, int32_t a)
{
    while (a >= 0)
        a = join_sibling(s, a);
}

/* The node whose value an alias in a row step names. */
static int32_t aliased_node(const fxi_groups *o, const fxi_graph *g, int32_t id)
{
    while (o->rows.row[id] >= 0 && o->rows.kind[id] == FXI_ROW_ALIAS)
        id = fxi_graph_input(g, id, 0);
    return id;
}

/* Writes the row steps into the tables of groups. A row step is computed at its last member; values
 * that nodes outside need are stored. An alias has no memory, so the node that it names is stored.
 */
static void assign_rows(const fxi_graph *g, fxi_groups *o)
{
    const int32_t *row = o->rows.row, *order = o->rows.order;
    for (int32_t at = g->n - 1; at >= 0; at--) {
        const int32_t i = order[at], after = at + 1 < g->n ? order[at + 1] : -1,
                      before = at > 0 ? order[at - 1] : -1;
        if (row[i] < 0)
            continue;
        o->root[i] = after >= 0 && row[after] == row[i] ? o->root[after] : i;
        o->next[i] = before >= 0 && row[before] == row[i] ? before : -1;
        o->stored[i] = false;
    }
    for (int32_t i = 0; i < g->n; i++) {
        for (int k = 0; k < fxi_graph_inputs(g, i); k++) {
            const int32_t x = fxi_graph_input(g, i, k);
            /* Readers in another row step count as outside: the two steps share nothing but memory.
             */
            if (row[x] >= 0 && row[x] != row[i])
                o->stored[aliased_node(o, g, x)] = true;
        }
        if (row[i] >= 0 && g->output[i] >= 0)
            o->stored[aliased_node(o, g, i)] = true;
    }
}

/* Eager mode, and backends without fused steps: every node is its own step. */
static void alone(const fxi_graph *g, fxi_groups *out)
{
    for (int32_t i = 0; i < g->n; i++) {
        out->root[i] = i;
        out->stored[i] = true;
        out->next[i] = -1;
    }
}

bool fxi_group(const fxi_planner *how, const fxi_graph *g, fxi_groups *out)
{
    const size_t n = (size_t)g->n + 1;
    grouping s = {.g = g, .buffers = how->buffers - 1, .out = out};
    out->root = fxi_malloc(n * sizeof *out->root);
    out->stored = fxi_malloc(n * sizeof *out->stored);
    out->next = fxi_malloc(n * sizeof *out->next);
    out->literal = fxi_malloc(n * sizeof *out->literal);
    bool ok = out->root && out->stored && out->next && out->literal;
    if (ok)
        fxi_find_literals(g, how->fuses, out->literal);
    ok = ok && fxi_rows_find(how, g, out->literal, &out->rows);
    if (ok && !how->fuses)
        alone(g, out);
    if (ok && how->fuses) {
        s.growth = fxi_malloc(n * sizeof *s.growth);
        s.at = fxi_malloc(n * sizeof *s.at);
        s.needed = fxi_calloc(n, sizeof *s.needed);
        ok = s.growth && s.at && s.needed && fxi_graph_consumers(g, &s.consumers);
        if (ok)
            assign_rows(g, out);
        for (int32_t k = 0; k < g->n && ok; k++)
            s.at[out->rows.order[k]] = k;
        for (int32_t k = g->n - 1; k >= 0 && ok; k--)
            assign(&s, out->rows.order[k]);
        /* Last to first, so that three groups of one operand become one. */
        for (int32_t k = g->n - 1; k >= 0 && ok; k--) {
            const int32_t i = out->rows.order[k];
            if (out->root[i] == i && groupable(&s, i) && out->rows.row[i] < 0)
                join_siblings(&s, i);
        }
    }
    fxi_free(s.growth);
    fxi_free(s.at);
    fxi_free(s.needed);
    fxi_consumers_free(&s.consumers);
    if (!ok)
        fxi_groups_free(out);
    return ok;
}
