/* foreach.c: planner rule 5: identical programs over different tensors are one step.
 *
 * An optimiser updates every parameter by the same few instructions. Elementwise steps of one
 * program, whose operands are dense or single values alike, become one step over a table of
 * segments: one launch, and small parameters share the cost of a step.
 *
 * A pure function on the list of steps in their final order, before memory is placed. Only steps
 * whose results nobody in the plan reads take part, so that no value has to live longer. The merged
 * step runs where the last of its members would: a member moves back past other steps, which is
 * allowed when none of them overwrites what it reads (donation), and neither does another member,
 * since segments may run at the same time.
 */
#include "build.h"

#include <string.h>

/* A step while steps are merged: the members of a group are a list from its newest one. */
typedef struct member {
    int32_t before;   /* the next older member, or −1 */
    int32_t count;    /* at the newest: members in all; 0: merged into a newer one */
    int32_t typical;  /* at the newest: a member of several elements if there is one */
    int32_t deadline; /* the first step after this one, or at the newest after any member, that
                         overwrites what is read */
    bool fits;        /* may be a member at all */
} member;

/* ---- what may be merged ---------------------------------------------------------------------- */

static int64_t length_of(const fx_tensor *t)
{
    return fxi_length(t->ndim, t->shape);
}

/* One value for all elements. */
static bool single(const fx_tensor *t)
{
    for (int a = 0; a < t->ndim; a++)
        if (t->shape[a] != 1 && t->stride[a] != 0)
            return false;
    return true;
}

static bool whole(const fx_step *s, int k)
{
    const fx_tensor *t = &s->in[k];
    return length_of(t) == length_of(&s->out) && fxi_is_dense(t->ndim, t->shape, t->stride);
}

static bool segment_like(const fx_step *s)
{
    if (s->cls != FX_CLASS_ELEMENTWISE || length_of(&s->out) == 0)
        return false;
    for (int k = 0; k < s->nin; k++)
        if (!whole(s, k) && !single(&s->in[k]))
            return false;
    return true;
}

/* One step's operand k is read as the other's is. A single value is both a scalar and dense. */
static bool same_kind(const fx_step *a, const fx_step *b, int k)
{
    if (a->in[k].dtype != b->in[k].dtype)
        return false;
    return single(&a->out) || single(&b->out) || whole(a, k) == whole(b, k);
}

static bool same_program(const fx_step *a, const fx_step *b)
{
    const fx_elementwise_step *p = fx_step_elementwise(a), *q = fx_step_elementwise(b);
    if (a->nin != b->nin || p->program.n != q->program.n || p->more.n != q->more.n ||
        memcmp(p->more.reg, q->more.reg, (size_t)p->more.n) != 0)
        return false;
    for (int k = 0; k < p->program.n; k++) {
        const fx_instr *x = &p->program.instr[k], *y = &q->program.instr[k];
        if (x->op != y->op || x->dtype != y->dtype || x->from != y->from || x->nsrc != y->nsrc ||
            x->attr != y->attr || memcmp(x->src, y->src, x->nsrc) != 0)
            return false;
    }
    for (int k = 0; k < a->nin; k++)
        if (!same_kind(a, b, k))
            return false;
    return true;
}

/* ---- merging --------------------------------------------------------------------------------- */

/* Fills a foreach step at j's place with the members from the oldest to the newest. */
static bool merge(fxi_plan *p, const member *m, int32_t j)
{
    const int32_t n = m[j].count, nin = p->steps[j].nin;
    const fx_elementwise_step *each = fx_step_elementwise(&p->steps[j]);
    fx_segment *segments = fxi_calloc((size_t)n, sizeof *segments);
    fx_step merged = p->steps[j], *f = &merged;
    f->cls = FX_CLASS_FOREACH;
    f->nin = n * nin;
    f->as.foreach = (fx_foreach_step){each->program, each->more, segments, n};
    f->in = fxi_malloc((size_t)f->nin * sizeof *f->in);
    f->in_value = fxi_malloc((size_t)f->nin * sizeof *f->in_value);
    f->in_offset = fxi_malloc((size_t)f->nin * sizeof *f->in_offset);
    const bool ok = segments && f->in && f->in_value && f->in_offset;
    int32_t at = n;
    for (int32_t a = j; a >= 0 && ok; a = m[a].before) {
        const fx_step *s = &p->steps[a];
        fx_segment *g = &segments[--at];
        g->length = length_of(&s->out);
        for (int32_t o = 0; o < fx_step_outputs(s); o++)
            g->value[o] = fx_step_output(s, o);
        memcpy(f->in + at * nin, s->in, (size_t)nin * sizeof *f->in);
        memcpy(f->in_value + at * nin, s->in_value, (size_t)nin * sizeof *f->in_value);
        memcpy(f->in_offset + at * nin, s->in_offset, (size_t)nin * sizeof *f->in_offset);
    }
    if (!ok) {
        fxi_free(segments);
        fxi_free(f->in);
        fxi_free(f->in_value);
        fxi_free(f->in_offset);
        return false;
    }
    fxi_free(p->steps[j].in);
    fxi_free(p->steps[j].in_value);
    fxi_free(p->steps[j].in_offset);
    p->steps[j] = merged;
    p->max_inputs = f->nin > p->max_inputs ? f->nin : p->max_inputs;
    const int32_t outputs = fx_step_outputs(f);
    p->max_outputs = outputs > p->max_outputs ? outputs : p->max_outputs;
    return true;
}

/* Puts groups of several into their newest members' places and takes the others out. */
static bool merge_all(fxi_plan *p, const member *m)
{
    for (int32_t j = 0; j < p->nsteps; j++)
        if (m[j].count > 1 && !merge(p, m, j))
            return false;
    int32_t n = 0;
    for (int32_t j = 0; j < p->nsteps; j++) {
        if (m[j].count > 0)
            p->steps[n++] = p->steps[j];
        else
            fxi_step_free(&p->steps[j]);
    }
    p->nsteps = n;
    return true;
}

/* Which step overwrites each leaf; nsteps where none does. */
static int32_t *find_overwriters(const fxi_plan *p, int32_t nleaves)
{
    int32_t *by = fxi_malloc(((size_t)nleaves + 1) * sizeof *by);
    for (int32_t l = 0; by && l < nleaves; l++)
        by[l] = p->nsteps;
    for (int32_t i = 0; by && i < p->nsteps; i++)
        for (int32_t o = 0; o < fx_step_outputs(&p->steps[i]); o++) {
            const fxi_value *v = &p->values[fx_step_output(&p->steps[i], o)];
            if (v->kind == FXI_VALUE_DONATED)
                by[v->index] = i;
        }
    return by;
}

static void note_member(const fxi_plan *p, const bool *read, const int32_t *by, int32_t i,
                        member *m)
{
    const fx_step *s = &p->steps[i];
    *m = (member){-1, 1, i, p->nsteps, segment_like(s)};
    for (int32_t o = 0; o < fx_step_outputs(s); o++)
        m->fits &= !read[fx_step_output(s, o)];
    for (int k = 0; k < s->nin; k++) {
        const fxi_value *v = &p->values[s->in_value[k]];
        const int32_t writer = v->kind == FXI_VALUE_LEAF ? by[v->index] : p->nsteps;
        if (writer != i && writer < m->deadline)
            m->deadline = writer;
    }
}

static bool find_members(const fxi_plan *p, member *m)
{
    int32_t nleaves = 0;
    for (int32_t v = 0; v < p->nvalues; v++)
        if ((p->values[v].kind == FXI_VALUE_LEAF || p->values[v].kind == FXI_VALUE_DONATED) &&
            p->values[v].index >= nleaves)
            nleaves = p->values[v].index + 1;
    bool *read = fxi_calloc((size_t)p->nvalues + 1, sizeof *read);
    int32_t *by = find_overwriters(p, nleaves);
    const bool ok = read && by;
    for (int32_t i = 0; i < p->nsteps && ok; i++)
        for (int k = 0; k < p->steps[i].nin; k++)
            read[p->steps[i].in_value[k]] = true;
    for (int32_t i = 0; i < p->nsteps && ok; i++)
        note_member(p, read, by, i, &m[i]);
    fxi_free(read);
    fxi_free(by);
    return ok;
}

/* Newest members looked at for each step: groups that far apart have little in common. */
enum { NEAREST = 8 };

static bool single_step(const fxi_plan *p, int32_t i)
{
    return single(&p->steps[i].out);
}

static void find_group(const fxi_plan *p, member *m, int32_t j)
{
    int looked = 0;
    for (int32_t i = j - 1; i >= 0 && looked < NEAREST; i--) {
        if (!m[i].fits || m[i].count == 0)
            continue;
        looked++;
        if (m[i].deadline <= j || !same_program(&p->steps[m[i].typical], &p->steps[j]))
            continue;
        m[j].before = i;
        m[j].count = m[i].count + 1;
        m[j].typical = single_step(p, m[i].typical) ? j : m[i].typical;
        m[j].deadline = m[i].deadline < m[j].deadline ? m[i].deadline : m[j].deadline;
        m[i].count = 0;
        return;
    }
}

bool fxi_merge_foreach(fxi_plan *p)
{
    member *m = fxi_malloc(((size_t)p->nsteps + 1) * sizeof *m);
    bool ok = m && find_members(p, m);
    for (int32_t j = 0; j < p->nsteps && ok; j++)
        if (m[j].fits)
            find_group(p, m, j);
    ok = ok && merge_all(p, m);
    fxi_free(m);
    return ok;
}
